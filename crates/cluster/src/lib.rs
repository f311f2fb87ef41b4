//! The cluster's own state: which stores and regions there are, who leads, and what is being changed.
//!
//! - [`MetaState`] is the state machine of the meta region: [`MetaCommand`]s applied in log order, kept as
//!   rows under `b'm'` ([`apply_entry`], [`MetaState::load`]).
//! - [`bootstrap_plan`] is the layout with which a cluster begins.
//! - [`StoreHeartbeat`]s carry what changes too fast for a log; the [`Ledger`] keeps the last of each store,
//!   [`Routes`] who leads what, and [`view`] makes of both what `placement` plans on.
//! - The [`Driver`] starts operators, sees from heartbeats how they end, and keeps their history.
//!
//! Everything is pure: time comes in as an argument, and bytes, states and views go out.

#![forbid(unsafe_code)]

mod command;
mod driver;
mod heartbeat;
mod layout;
mod ledger;
mod rows;
mod state;
mod view;
mod wire;

pub use command::{decode_entry, encode_entry, CommandError, MetaCommand, MetaError, MetaReply};
pub use driver::{Driver, DriverConfig, Finished, InFlight, Now, Outcome, StartError};
pub use heartbeat::{HeartbeatError, LeadReport, PeerProgress, StoreHeartbeat};
pub use layout::{bootstrap_plan, first_leaders, Layout};
pub use ledger::{Heard, Ledger, Route, Routes};
pub use rows::apply_entry;
pub use state::{MetaState, StoreRecord};
pub use view::view;
