//! The order of steps in a store, written once: pure state machines that are told what happened and say what to do.
//!
//! The server drives them with threads and devices, the simulator with a seed. Neither decides anything: each executes
//! a list of effects in the order in which it stands, and reports what came of them.
//!
//! ```text
//!  submissions ─▶ Shard::step ─▶ Shard::turn ─▶ Effect: send, persist, apply, answer, publish
//!                      ▲                           │
//!                      │                           ▼  committed entries
//!                   Applied ◀── ApplyEffect ◀── Execution::execute
//! ```
//!
//! - [`session`] is one client's conversation, from bytes to commands and from answers to bytes.
//! - [`Shard`] owns the Raft groups of a store (`replica`), the commands that wait to be proposed, and who waits for
//!   which entry.
//! - [`Execution`] makes rows of committed entries, and says what must be written, published and answered, in that order.
//! - [`ApplyQueue`] decides which thread executes: the worker's where RAM has all rows, else the apply thread.
//! - [`recovery`] makes peers of what the log and the rows hold at a start.
//! - [`lives`] has the steps by which a snapshot replaces a region's rows, and by which a peer ends.
//! - [`reads`] is the rule by which a read of local rows may be answered.
//! - [`Silence`] tells which stores have fallen silent, so that what they led wakes.
//! - [`stop`] is what a store that is to stop waits for, and to whom it hands its leads.
//! - [`Leadership`] is what a store believes of who leads a region.
//!
//! Invariant: nothing here reads a clock, a file, a socket or ambient randomness, nor waits.

#![forbid(unsafe_code)]

mod answer;
mod apply;
mod apply_queue;
mod item;
mod leadership;
pub mod lives;
pub mod planted;
mod queue;
pub mod reads;
pub mod recovery;
pub mod session;
mod shard;
mod silence;
pub mod stop;
mod work;

pub use answer::Answer;
pub use apply::{ApplyEffect, Executed, Execution, ExecutionError, InRamOutcome, Meta, Rows, ToApply, Watch};
pub use apply_queue::{ApplyJob, ApplyQueue, Attempt, Backlog, Executor, Next};
pub use item::{Item, ItemSlot, REQUEST_BYTES_MAX};
pub use leadership::Leadership;
pub use queue::Waiting;
pub use shard::{Effect, Input, Messages, Moment, Shard};
pub use silence::Silence;
pub use work::{Maintenance, Outcome, Refusal, Submit, Work};
