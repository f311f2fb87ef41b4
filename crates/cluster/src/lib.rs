//! The cluster's own state: its stores and regions, their leaders, and the changes in progress.
//!
//! - [`MetaState`] is the state machine of the meta region: [`MetaCommand`]s applied in log order,
//!   stored as rows under `b'm'` ([`apply_entry`], [`MetaState::load`]).
//! - [`bootstrap_plan`] returns the initial layout of a cluster.
//! - [`StoreHeartbeat`]s carry state that changes too fast for a log, as deltas ([`DeltaTracker`]).
//!   The [`Ledger`] keeps the last heartbeat of each store, [`Routes`] the leaders and [`SlotMap`]
//!   the slots. [`view`] combines them into the input of `placement`.
//! - [`Clocks`] compares the wall clocks that heartbeats carry, and [`CheckBook`] the checksums of
//!   a region's peers.
//! - [`Quarantine`] is the state of a peer that does not execute its log any further, and [`Mark`]
//!   is its store's durable record of it.
//! - [`Place`] identifies a store's host and device, and [`Standing`] is the store's share of them.
//!   [`Turns`] lets the stores of one host measure their devices one after the other.
//! - [`Upgrade`] decides when the cluster's version rises.
//! - The [`Driver`] drives operators from their beginning to their end. It returns [`Order`]s for
//!   leaders of regions and commands for the meta region.
//! - [`admin`] has the operations of the admin endpoint, which stores and their clients share.
//!
//! Everything is pure: time is an argument, and the results are bytes, states, orders and views.

#![forbid(unsafe_code)]

pub mod admin;
mod check;
mod clocks;
mod command;
mod driver;
#[doc(hidden)]
pub mod fuzzing;
mod heartbeat;
mod layout;
mod ledger;
mod order;
mod place;
mod quarantine;
pub mod quorum_loss;
mod rows;
mod state;
mod turn;
pub mod upgrade;
mod view;
mod wire;

pub use check::{judge, CheckBook, CheckOutcome, CheckReport, Comparison, Verdict};
pub use clocks::{ClockLimit, ClockLook, Clocks};
pub use command::{decode_entry, encode_entry, CommandError, MetaCommand, MetaError, MetaReply};
pub use driver::{may_drain, DrainError, Driver, DriverConfig, StartError, Step};
pub use heartbeat::{
    DeltaTracker, LeadReport, Leads, PeerProgress, StoreHeartbeat, CPU_WINDOW_S, HEAT_WINDOW_S,
    RATE_WINDOW_S, UNCLEAN_MAX,
};
pub use layout::{bootstrap_plan, first_leaders, Layout};
pub use ledger::{Heard, Learned, Ledger, LedgerConfig, Liveness, Load, Route, Routes, SlotMap};
pub use order::Order;
pub use place::{Neighbours, Place, Standing};
pub use quarantine::{Cause, Mark, Quarantine};
pub use rows::apply_entry;
pub use state::{
    clipped, is_token_name, AgreedSettings, AuditOutcome, AuditRecord, AuditedChange, Election, Finished,
    FunctionRecord, InFlight, LibraryRecord, MemberState, MetaState, OperatorId, Outcome, Phase, Replication,
    Setting, SettingError, StoreFacts, StoreKey, StoreRecord, StrongReads, TokenRecord, UserRecord,
    AUDIT_BYTES_MAX, AUDIT_RECORDS_MAX, CONFIG_DOMAIN_LABEL, CONFIG_ELECTION, CONFIG_ELECTION_FALLBACK,
    CONFIG_FINISH_UPGRADES, CONFIG_MAX_CLOCK_OFFSET, CONFIG_META_REPLICAS, CONFIG_REPLACE_AFTER,
    CONFIG_REPLICAS, CONFIG_REPLICATION, CONFIG_STRONG_READS, HISTORY_MAX, LIBRARIES_BYTES_MAX,
    LIBRARIES_TOO_LONG, REPLICAS_MAX, STORES_MAX, TOKENS_MAX,
};
pub use turn::{Turn, TurnGrant, TurnState, Turns, Waiting};
pub use upgrade::{StoreVersions, Upgrade, UpgradeStep};
pub use view::view;
pub use wire::WireError;
