//! The kinds of requests between stores, by their number on the wire.

/// Commands for the region's leader.
pub const REQUEST_COMMANDS: u8 = 1;
/// A question to the leader of the meta region.
pub const REQUEST_ADMIN: u8 = 2;
/// A request for the list of stores.
pub const REQUEST_MEMBERS: u8 = 3;
/// A request to join the cluster.
pub const REQUEST_JOIN: u8 = 4;
/// A request to a survivor, for an operator's order to recover regions.
pub const REQUEST_RECOVER: u8 = 5;
/// A request for a store's versions, and to prepare for a version of the cluster.
pub const REQUEST_VERSIONS: u8 = 6;
/// A request to join the cluster, with the newest version that the program supports.
pub const REQUEST_JOIN_AS: u8 = 7;
/// A question to a region's leader: the index that it has applied, for reads of followers.
pub const REQUEST_APPLIED: u8 = 8;
/// Publications for the store's clients.
pub const REQUEST_PUBLISH: u8 = 9;

/// The answer to a process that is not a store and sends a request other than to join.
pub const JOIN_FIRST: &[u8] = b"join first";

/// The statuses of answers.
pub const STATUS_DONE: u8 = 0;
pub const STATUS_NOT_LEADER: u8 = 1;
pub const STATUS_ERROR: u8 = 2;
