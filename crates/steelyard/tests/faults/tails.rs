//! Damage to files at rest: torn tails, flipped bits.
