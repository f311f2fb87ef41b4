//! What stores ask of each other, by its number on the wire.

/// Commands that are passed on to the region's leader.
pub const REQUEST_COMMANDS: u8 = 1;
/// A question to the leader of the meta region.
pub const REQUEST_ADMIN: u8 = 2;
/// For the list of stores.
pub const REQUEST_MEMBERS: u8 = 3;
/// To be taken into the cluster.
pub const REQUEST_JOIN: u8 = 4;
/// For what an operator's order to recover regions needs of a survivor.
pub const REQUEST_RECOVER: u8 = 5;

/// Statuses of the answers.
pub const STATUS_DONE: u8 = 0;
pub const STATUS_NOT_LEADER: u8 = 1;
pub const STATUS_ERROR: u8 = 2;
