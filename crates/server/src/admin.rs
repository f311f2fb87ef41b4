//! The admin endpoint: a JSON API, Prometheus metrics and a health check over HTTP, on loopback by
//! default. The operations are in [`cluster::admin`]. An operation that only a region's leader can
//! carry out is sent to it.

mod ask;
mod audit;
mod check;
mod flash;
mod http;
mod libraries;
mod listener;
mod login;
mod merged;
mod operations;
mod proposer;
mod quarantine;
mod recover;
pub(crate) mod rows;
mod thresholds;
mod tokens;
mod users;
mod versions;
mod windows;

pub use ask::{answer_passed, join, set_facts, Ask};
pub use audit::{describe, keep_records, log_change, note_change, outcome_of, Author};
pub use http::serve;
pub use libraries::{has_libraries, libraries, set_libraries, LibrariesAnswer};
pub use login::credentials;
pub use merged::merged_away;
pub use operations::{Change, Served};
pub use thresholds::{has_members, set_thresholds};
pub use users::{set_users, UsersAnswer};
