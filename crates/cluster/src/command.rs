//! What changes the cluster's state, and how it is written into the meta region's log.
//!
//! ```text
//! command  format u8 = 3 | JSON of MetaCommand
//! entry    version u8 = 1 | stamp u64 BE (Unix ms, by the leader) | command
//! reply    format u8 = 1 | JSON of MetaReply
//! ```
//!
//! JSON, because these are few, small and worth reading in a dump of the log; an entry that this version
//! cannot read stops the store, since a newer one among its peers may have applied it.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use placement::{Operator, Policy};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{RegionDescriptor, RegionId, StoreId, Term, UnixMillis};

use crate::state::{
    descriptors, OperatorId, Outcome, Phase, StoreFacts, StoreRecord, StoreState, STORES_MAX,
};

const COMMAND_FORMAT: u8 = 3;
const ENTRY_VERSION: u8 = 1;
const REPLY_FORMAT: u8 = 1;

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
    /// A process with an empty disk becomes a member. Repeated with the same key, it is answered the same
    /// id; the facts last told count.
    Join {
        facts: StoreFacts,
    },
    /// Replaces what a member says of itself.
    SetStore {
        store: StoreId,
        facts: StoreFacts,
    },
    /// Asks a member to go, or takes that back.
    SetStoreState {
        store: StoreId,
        state: StoreState,
    },
    /// Weights that stand in for the measured ones; `None`: measured.
    SetPins {
        store: StoreId,
        data_weight: Option<f64>,
        leader_weight: Option<f64>,
    },
    /// A member without peers is none from now on, and its id is never used again.
    RemoveStore {
        store: StoreId,
    },
    /// What leaders of regions say of them. Whatever is newer and fits is taken.
    ReportRegions {
        #[serde(with = "descriptors")]
        regions: Vec<RegionDescriptor>,
    },
    /// Takes `count` ids that no region has or ever had.
    AllocateRegions {
        count: u32,
    },
    /// The leader of region 0 in `term` plans from now on. Once it sees this, it has seen all that any
    /// leader before it did.
    TakeOver {
        term: Term,
    },
    /// `id` is the proposer's choice, and larger than any before it: two proposals of one operator begin
    /// it once.
    BeginOperator {
        id: OperatorId,
        operator: Operator,
    },
    /// From [`Phase::Going`] to another; there is no way back.
    AdvanceOperator {
        id: OperatorId,
        phase: Phase,
    },
    FinishOperator {
        id: OperatorId,
        outcome: Outcome,
    },
    /// `None` removes the entry.
    SetConfig {
        name: String,
        value: Option<String>,
    },
}

/// What a command came to, for its proposer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum MetaReply {
    Bootstrapped,
    AlreadyBootstrapped {
        cluster_id: u64,
    },
    Changed,
    /// It was so already.
    Unchanged,
    Joined {
        store: StoreId,
        cluster_id: u64,
    },
    /// Reports that told nothing new are in neither list.
    Reported {
        taken: Vec<RegionId>,
        /// With the others' ranges these would leave a slot without a region or with two, or they name
        /// a store or an id that there never was.
        ignored: Vec<RegionId>,
    },
    Allocated {
        first: RegionId,
        count: u32,
    },
    Begun {
        id: OperatorId,
    },
}

/// Deterministic: every replica comes to the same, and it is the proposer's answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error("the cluster's state does not exist yet")]
    NotBootstrapped,
    #[error("no store {0} in this cluster")]
    UnknownStore(StoreId),
    #[error("store {0} was removed from this cluster")]
    StoreRemoved(StoreId),
    #[error("store {0} is being drained")]
    StoreDraining(StoreId),
    #[error("store {0} is known with another disk: remove it, and let the new one join")]
    OtherDisk(StoreId),
    #[error("a store has a key")]
    NoKey,
    #[error("store {0} has that key: a data directory was copied, and only one of the two may be used")]
    KeyInUse(StoreId),
    #[error("a store cannot say that of itself: {0}")]
    BadFacts(&'static str),
    #[error("the cluster has {STORES_MAX} stores, and takes no more; remove some first")]
    TooManyStores,
    #[error("the {staying} stores that would stay cannot hold the {replicas} replicas of a region; have others join first, or lower 'replicas'")]
    TooFewStores { staying: usize, replicas: usize },
    #[error("store {store} holds a peer of region {region}; drain it first")]
    HoldsPeer { store: StoreId, region: RegionId },
    #[error("an operator in flight names store {0}")]
    StoreInUse(StoreId),
    #[error("a weight is a finite number above 0")]
    BadWeight,
    #[error("no region {0}")]
    UnknownRegion(RegionId),
    #[error("region {0} has an operator in flight")]
    RegionBusy(RegionId),
    #[error("that would leave region {0} without a voter")]
    LastVoter(RegionId),
    #[error("operator {id} is not newer than the last one, {last}")]
    StaleOperator { id: OperatorId, last: OperatorId },
    #[error("there are no operators of that kind for region {0}")]
    NotForRegion(RegionId),
    #[error("operator {0} does not go that way")]
    BadPhase(OperatorId),
    #[error("ids are used up")]
    NoIds,
    #[error("'{value}' is no value of '{name}': {expected}")]
    BadConfig { name: String, value: String, expected: &'static str },
    #[error("bad bootstrap: {0}")]
    BadBootstrap(String),
}

/// The bytes are no command, entry or reply that this version reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("{0} is empty or cut short")]
    Cut(&'static str),
    #[error("{what} has the unknown format {format}")]
    UnknownFormat { what: &'static str, format: u8 },
    #[error("{what} cannot be read: {reason}")]
    Malformed { what: &'static str, reason: String },
}

impl MetaCommand {
    pub fn encode(&self) -> Bytes {
        encode(COMMAND_FORMAT, self)
    }

    pub fn decode(bytes: &[u8]) -> Result<MetaCommand, CommandError> {
        decode("a meta command", COMMAND_FORMAT, bytes)
    }
}

impl MetaReply {
    pub fn encode(&self) -> Bytes {
        encode(REPLY_FORMAT, self)
    }

    pub fn decode(bytes: &[u8]) -> Result<MetaReply, CommandError> {
        decode("a meta reply", REPLY_FORMAT, bytes)
    }
}

/// A format byte and JSON.
pub(crate) fn encode<T: Serialize>(format: u8, value: &T) -> Bytes {
    let mut out = BytesMut::new().writer();
    out.get_mut().put_u8(format);
    serde_json::to_writer(&mut out, value).expect("maps have string keys, and writing to memory succeeds");
    out.into_inner().freeze()
}

pub(crate) fn decode<T: DeserializeOwned>(
    what: &'static str,
    format: u8,
    bytes: &[u8],
) -> Result<T, CommandError> {
    match bytes.split_first() {
        Some((&found, json)) if found == format => serde_json::from_slice(json)
            .map_err(|error| CommandError::Malformed { what, reason: error.to_string() }),
        Some((&format, _)) => Err(CommandError::UnknownFormat { what, format }),
        None => Err(CommandError::Cut(what)),
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
