//! Operations as their clients saw them.

use serde::{Deserialize, Serialize};

/// A position in a group of keys: the group's keys, or a hash's fields, counted from 0.
pub type Member = u8;

/// What a client asked of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// SET, MSET, HSET: all at once.
    Write(Vec<(Member, String)>),
    /// GET, MGET, HMGET: all at once.
    Read(Vec<Member>),
    /// INCR.
    Increment(Member),
    /// APPEND.
    Append(Member, String),
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Written,
    Values(Vec<Option<String>>),
    Number(i64),
    /// Bytes after an APPEND.
    Length(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub client: u32,
    pub call: Call,
    /// Nanoseconds since the history's beginning, on a clock that all its clients share.
    pub began: u64,
    /// When and with what it came back. `None`: the client never learned, so it may take effect at any time
    /// after it began, or never.
    pub ended: Option<(u64, Answer)>,
}

impl Operation {
    pub fn is_read(&self) -> bool {
        matches!(self.call, Call::Read(_))
    }
}

/// One object's operations, in any order. An operation of which the client learned that it had no effect is
/// not among them: should its effect be seen all the same, no other operation explains it.
pub type History = Vec<Operation>;
