//! The kinds of requests between stores, by their number on the wire.

/// Commands for the region's leader.
pub const REQUEST_COMMANDS: u8 = 1;
/// A question to the leader of the meta region.
pub const REQUEST_ADMIN: u8 = 2;
/// A request for the list of stores.
pub const REQUEST_MEMBERS: u8 = 3;
/// A request to join the cluster.
pub const REQUEST_JOIN: u8 = 4;
/// For what an operator's order to recover regions needs of a survivor.
pub const REQUEST_RECOVER: u8 = 5;

/// The statuses of answers.
pub const STATUS_DONE: u8 = 0;
pub const STATUS_NOT_LEADER: u8 = 1;
pub const STATUS_ERROR: u8 = 2;
