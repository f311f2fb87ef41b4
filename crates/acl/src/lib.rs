//! Access control lists as in Redis 7.0: users, their rules, and the decision whether a user may
//! execute a command.
//!
//! A [`User`] is changed by modifiers, the arguments of `ACL SETUSER`, and is described by rules
//! that give the same user when they are applied to a new one. [`User::check`] decides by the
//! command table alone: by the command's place in it, its categories and its key specifications.
//! Passwords exist only as SHA-256 digests.
//!
//! Nothing here reads a clock, a file or a socket.

#![forbid(unsafe_code)]

mod absent;
mod categories;
mod commands;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod password;
mod patterns;
mod rule_error;
mod selector;
mod user;
mod words;

pub use categories::CATEGORIES;
pub use commands::category_members;
pub use file::{parse_file, write_file, FileErrors};
pub use log::{Entry, Event, Log};
pub use password::{hash, same_digest};
pub use rule_error::RuleError;
pub use selector::{Denial, Selector, SelectorView};
pub use user::{is_public, merge_selectors, Unmatched, User, DEFAULT_USER};
pub use words::has_spaces;
