//! Neighbours on the same machine, measured side by side.
