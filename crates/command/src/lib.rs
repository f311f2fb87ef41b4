//! The commands: a table with the facts of each, and the handlers of those that act on the
//! keyspace.
//!
//! [`lookup`] and [`check_arity`] map a client's arguments to a [`CommandSpec`]. [`execute`] runs
//! it over a [`storage::Txn`]. [`entry`] encodes many commands as one log entry and applies such
//! entries. A command's result depends only on its arguments, the rows, and the entry's stamp and
//! seed. Replicas that apply the same entries therefore hold the same rows. [`order`] has the
//! entries that are not commands, such as the one that orders a comparison of the replicas.
//! [`transaction`] has the form of transactions in the log, and [`scripting`] that of scripts.

#![forbid(unsafe_code)]

mod bitmaps;
pub mod blocking;
pub mod cluster_mode;
pub mod copying;
mod counted_tree;
mod decimal;
pub mod describe;
mod dump;
mod elements;
pub mod entry;
mod error_messages;
mod events;
mod exec;
pub mod failpoints;
#[doc(hidden)]
pub mod fuzzing;
mod geo;
mod glob;
mod hashes;
mod hyperloglog;
mod introspect;
mod key_access;
mod keys;
mod lists;
mod maintenance;
mod number;
pub mod order;
pub mod permission;
pub mod prefetch;
mod ranked;
pub mod refused;
pub mod scripting;
mod server_command;
mod sets;
pub mod sort;
mod sorted_sets;
mod spec;
mod streams;
mod strings;
mod syntax;
mod table;
pub mod transaction;
mod varint;

pub use error_messages::{unknown_command, unknown_subcommand, wrong_arity, wrong_subcommand};
pub use exec::{execute, CommandError, CommandResult, Exec, Limits, Mode, Outcome};
pub use glob::matches as glob_matches;
pub use introspect::help;
pub use key_access::key_access;
pub use keys::scan::{cursor_at, cursor_slot, parse_cursor_text as parse_cursor};
pub use maintenance::{earliest_due, find_due, garbage_since, keys_in_slot};
pub use number::{database_index, database_index_in};
pub use server_command::{
    AclCommand, ChannelKind, ClientCommand, ClusterCommand, ConfigCommand, FunctionCommand, LatencyCommand,
    MemoryCommand, PubSubCommand, ScriptCommand, ServerCommand, SessionCommand, SlowLogCommand,
};
pub use spec::{flags, CommandSpec, FieldSpec, Handler, KeySpec, KeyspaceFn, Spanning, TableFn};
pub use table::{check_arity, commands, finds_nothing, keys_of, leaf, lookup, resolve};
