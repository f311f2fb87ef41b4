//! The order of steps in a store, as pure state machines that take inputs and return effects.
//!
//! Two executors drive them: the server with threads and devices, and the simulator with a seed.
//! Neither makes decisions. Each executes the effects in order and reports the results.
//!
//! ```text
//!  submissions ─▶ Shard::step ─▶ Shard::turn ─▶ Effect: send, persist, apply, answer, publish
//!                      ▲                           │
//!                      │                           ▼  committed entries
//!                   Applied ◀── ApplyEffect ◀── Execution::execute
//! ```
//!
//! - [`session`] is one client's session, from bytes to commands and from answers to bytes.
//! - [`Shard`] owns the Raft groups of a store (`replica`), the commands that wait to be proposed,
//!   and the clients that wait for entries.
//! - [`Execution`] turns committed entries into rows. It returns what must be written, published
//!   and answered, in that order.
//! - [`ApplyQueue`] decides which thread executes: the worker's if RAM holds all rows, else the
//!   apply thread.
//! - [`recovery`] builds the peers from the log and the rows at a start.
//! - [`lifecycle`] defines the steps that replace a region's rows with a snapshot, or remove a
//!   peer.
//! - [`reads`] is the rule by which a read of local rows may be answered.
//! - [`bounded_staleness`] decides whether a copy is fresh enough for a weak read with a bound.
//! - [`Silence`] detects silent stores, so that the regions they led wake.
//! - [`merged`] informs a store of regions that merged away while it was absent.
//! - [`hand_over`] chooses the stores that take over the regions of a store that must not lead.
//! - [`stop`] decides when a stopping store may end.
//! - [`hang`] decides whether the store's device hangs, and moves leadership away while it does.
//! - [`Leadership`] is a store's knowledge of a region's leader.
//!
//! Invariant: nothing here reads a clock, a file, a socket or ambient randomness, and nothing
//! blocks.

#![forbid(unsafe_code)]

mod answer;
mod apply;
mod apply_queue;
pub mod bounded_staleness;
pub mod coordinator;
pub mod damage;
pub mod failpoints;
pub mod hand_over;
pub mod hang;
mod item;
mod leadership;
pub mod lifecycle;
pub mod merged;
mod queue;
pub mod reads;
pub mod recovery;
pub mod session;
mod shard;
mod silence;
pub mod stop;
pub mod unsynced;
mod work;

pub use answer::Answer;
pub use apply::{ApplyEffect, Executed, Execution, ExecutionError, InRamOutcome, Meta, Rows, ToApply, Watch};
pub use apply_queue::{ApplyJob, ApplyQueue, Attempt, Backlog, Executor, Next};
pub use item::{Item, ItemSlot, REQUEST_BYTES_MAX};
pub use leadership::Leadership;
pub use queue::Waiting;
pub use shard::{Effect, Input, Messages, Moment, Shard};
pub use silence::Silence;
pub use work::{Maintenance, Outcome, Refusal, Submit, Work, COPIED_BYTES_MAX};
