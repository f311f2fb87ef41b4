//! The worker's turn over many Raft groups, as a state machine without I/O.
//!
//! A [`Worker`] owns this store's peers of its regions. [`Worker::step`] takes one [`Input`];
//! [`Worker::turn`] drains what came of it into [`Action`]s, which the caller executes in order. Time
//! comes in with each call, randomness is derived from the configured seed, and the only thing read
//! is the [`LogStore`], so a run replays exactly from its seed.
//!
//! What is promised, and where it is kept:
//! - at most one [`LogBatch`] per turn over all regions, at most one in flight (`worker`);
//! - a leader's messages go out beside its own write, everybody else's after it (`peer`);
//! - reads are proved by a round of heartbeats or by a clock lease counted from its sending (`reads`,
//!   `lease`); the voters' half of the lease's argument is in `vote_hold`;
//! - a proposal is answered at most once, and `Refused` only when nothing was proposed (`proposals`);
//! - what another store sends is inspected before the consensus code sees it, and a lie is dropped
//!   (`peer::inspect`);
//! - entries in memory stay within one budget, beyond which appends of other stores are not taken in, and so do
//!   committed entries that are handed out (`memory`, [`Worker::make_room`]);
//! - the log keeps what a peer may need, within a budget (`truncation`); beyond it a peer gets a snapshot
//!   (`peer::snapshots`), whose data the caller carries;
//! - a change of a region is made for one epoch, one at a time (`peer::changes`); a store learns of the peers
//!   it has or has no more by announcements, and never brings back one that was removed (`worker`).

#![forbid(unsafe_code)]

mod action;
mod change_entry;
mod conf;
mod config;
mod lease;
mod log_reads;
mod log_store;
mod log_view;
mod memory;
mod message;
mod peer;
pub mod planted;
mod proposals;
mod reads;
mod truncation;
mod unsaved;
mod vote_hold;
mod worker;

pub use action::{
    Action, Committed, DropReason, Fatal, Input, Lane, LogBatch, PeerProgress, PeerSeed, Refusal,
    RegionStatus, RegionWrite, Restart, RestartCause, Role,
};
pub use config::{Config, DRIFT_BOUND_PPM};
pub use log_store::{HardState, LogBounds, LogError, LogStore};
pub use memory::EntryMemory;
pub use truncation::Truncation;
pub use worker::Worker;

/// The messages and entries of the consensus library, as they travel and as they are stored.
pub use raft::eraftpb;
