//! What changes the cluster's state, and how it is written into the meta region's log.
//!
//! ```text
//! command  format u8 = 1 | JSON of MetaCommand
//! entry    version u8 = 1 | stamp u64 BE (Unix ms, by the leader) | command
//! ```
//!
//! JSON, because these are few, small and worth reading in a dump of the log; an entry that this version
//! cannot read stops the store, since a newer one among its peers may have applied it.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use placement::Policy;
use serde::{Deserialize, Serialize};
use types::{RegionDescriptor, StoreId, UnixMillis};

use crate::state::{descriptors, StoreRecord};

const COMMAND_FORMAT: u8 = 1;
const ENTRY_VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MetaCommand {
    /// The first command of a cluster. Every leader of region 0 that finds no state may propose it; the
    /// first one wins and the others are answered [`MetaReply::AlreadyBootstrapped`].
    Bootstrap {
        cluster_id: u64,
        stores: Vec<StoreRecord>,
        #[serde(with = "descriptors")]
        regions: Vec<RegionDescriptor>,
        policy: Policy,
        config: BTreeMap<String, String>,
        semantics: u32,
    },
    SetPolicy {
        policy: Policy,
    },
    /// Replaces what is known of a store that is a member.
    SetStore {
        store: StoreRecord,
    },
    /// `None` removes the entry.
    SetConfig {
        name: String,
        value: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaReply {
    Bootstrapped,
    AlreadyBootstrapped {
        cluster_id: u64,
    },
    Changed,
    /// It was so already.
    Unchanged,
}

/// Deterministic: every replica comes to the same, and it is the proposer's answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error("the cluster's state does not exist yet")]
    NotBootstrapped,
    #[error("no store {0} in this cluster")]
    UnknownStore(StoreId),
    #[error("bad bootstrap: {0}")]
    BadBootstrap(String),
}

/// The bytes are no command or entry that this version reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("{0} is empty or cut short")]
    Cut(&'static str),
    #[error("{what} has the unknown format {format}")]
    UnknownFormat { what: &'static str, format: u8 },
    #[error("a command of the meta region cannot be read: {0}")]
    Malformed(String),
}

impl MetaCommand {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new().writer();
        out.get_mut().put_u8(COMMAND_FORMAT);
        serde_json::to_writer(&mut out, self).expect("maps have string keys, and writing to memory succeeds");
        out.into_inner().freeze()
    }

    pub fn decode(bytes: &[u8]) -> Result<MetaCommand, CommandError> {
        match bytes.split_first() {
            Some((&COMMAND_FORMAT, json)) => {
                serde_json::from_slice(json).map_err(|error| CommandError::Malformed(error.to_string()))
            }
            Some((&format, _)) => Err(CommandError::UnknownFormat { what: "a meta command", format }),
            None => Err(CommandError::Cut("a meta command")),
        }
    }
}

/// The payload of a Raft entry of the meta region.
pub fn encode_entry(stamp_ms: UnixMillis, command: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(9 + command.len());
    out.put_u8(ENTRY_VERSION);
    out.put_u64(stamp_ms);
    out.put_slice(command);
    out.freeze()
}

pub fn decode_entry(mut entry: &[u8]) -> Result<(UnixMillis, MetaCommand), CommandError> {
    const WHAT: &str = "an entry of the meta region";
    match entry.first() {
        None => return Err(CommandError::Cut(WHAT)),
        Some(&ENTRY_VERSION) => entry.advance(1),
        Some(&format) => return Err(CommandError::UnknownFormat { what: WHAT, format }),
    }
    if entry.len() < 8 {
        return Err(CommandError::Cut(WHAT));
    }
    let stamp_ms = entry.get_u64();
    Ok((stamp_ms, MetaCommand::decode(entry)?))
}
