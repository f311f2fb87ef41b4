//! Operations as their clients saw them.

use serde::{Deserialize, Serialize};

/// A position in a group, counted from 0: one of the group's keys, or a field of a hash.
pub type Member = u8;

/// A command of a client on one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// SET, MSET, HSET. Writes all members atomically.
    Write(Vec<(Member, String)>),
    /// GET, MGET, HMGET. Reads all members atomically.
    Read(Vec<Member>),
    /// INCR.
    Increment(Member),
    /// APPEND.
    Append(Member, String),
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Written,
    Values(Vec<Option<String>>),
    Number(i64),
    /// The number of bytes after an APPEND.
    Length(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub client: u32,
    pub call: Call,
    /// Nanoseconds since the beginning of the history, on a clock that all its clients share.
    pub began: u64,
    /// The time and the answer. `None`: the client did not learn the result, so the operation may
    /// take effect at any time after it began, or never.
    pub ended: Option<(u64, Answer)>,
}

impl Operation {
    pub fn is_read(&self) -> bool {
        matches!(self.call, Call::Read(_))
    }
}

/// The operations of one object, in any order. Operations that are known to have had no effect are
/// left out. If such an effect is seen nevertheless, no other operation explains it.
pub type History = Vec<Operation>;
