//! All of a store's Raft groups as one state machine without I/O.
//!
//! A [`Worker`] owns this store's peers. [`Worker::step`] takes one [`Input`]. [`Worker::turn`]
//! returns the resulting [`Action`]s, which the caller executes in order. The time is an argument
//! of each call, randomness is derived from the configured seed, and the worker reads nothing but
//! the [`LogStore`]. So a run replays exactly from its seed.
//!
//! Guarantees, and the module that keeps each:
//! - A turn returns at most one [`LogBatch`] for all regions, and at most one batch is in flight
//!   (`worker`).
//! - A leader sends its messages in parallel with its own log write. Other peers send theirs after
//!   the write (`peer`).
//! - A strong read is confirmed by a round of heartbeats, or by a clock lease that counts from the
//!   sending of such a round (`reads`, `lease`). The voters' half of the lease is in `stickiness`.
//! - A proposal is answered at most once, and with `Refused` only if nothing was proposed
//!   (`proposals`).
//! - Messages of other stores are inspected before the consensus code sees them. A message that no
//!   correct store sends is dropped (`peer::inspect`).
//! - Entries in memory stay within one budget. Beyond it, appends of other stores are refused
//!   (`memory`). Committed entries that are handed out stay within a budget too
//!   ([`Worker::make_room`]).
//! - The log keeps the entries that a peer may need, within a budget (`truncation`). A peer that
//!   lags beyond it gets a snapshot (`peer::snapshots`), whose data the caller carries.
//! - A change of a region is made for one epoch, and one change at a time (`peer::changes`). A
//!   store learns from announcements which peers it has or has lost, and never brings back a peer
//!   that was removed (`worker`).
//! - A region whose majority is lost for good stays without a leader. Only an operator's order lets
//!   it continue from the log of one survivor, to which all survivors agree (`peer::quorum_loss`).

#![forbid(unsafe_code)]

mod action;
mod chain;
mod change_entry;
mod conf;
mod config;
pub mod failpoints;
mod lease;
mod log_reads;
mod log_store;
mod log_view;
mod memory;
mod message;
mod peer;
mod proposals;
mod reads;
mod stickiness;
mod truncation;
mod unsaved;
mod worker;

pub use action::{
    Action, Committed, DropReason, Fatal, Input, Lane, LogBatch, PeerProgress, PeerReport, PeerSeed,
    RecoveryRefusal, Refusal, RegionStatus, RegionWrite, Restart, RestartCause, Role, Seeker, Unclean, Unfit,
};
pub use chain::{announced_commit, RelayCounts, Replication};
pub use config::{Config, Elections, DRIFT_BOUND_PPM, UNCOMMITTED_ENTRIES};
pub use log_store::{HardState, LogBounds, LogError, LogStore};
pub use memory::EntryMemory;
pub use reads::Asked;
pub use truncation::Truncation;
pub use worker::Worker;

/// The consensus library's messages and entries, as they are sent and stored.
pub use raft::eraftpb;
