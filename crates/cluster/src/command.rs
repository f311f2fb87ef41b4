//! Commands that change the cluster's state, and their encoding in the meta region's log.
//!
//! ```text
//! command  format u8 = 3 | JSON of MetaCommand
//! entry    version u8 = 1 | stamp u64 BE (Unix ms, by the leader) | command
//! reply    format u8 = 1 | JSON of MetaReply
//! ```
//!
//! The commands are JSON because they are few, small and should be readable in a dump of the log.
//! An entry that this version cannot read stops the store: a peer with a newer version may have
//! applied the entry.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use placement::{Operator, Policy};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{RegionDescriptor, RegionId, StoreId, Term, UnixMillis, Version};

use crate::state::{
    descriptors, AuditOutcome, AuditedChange, LibraryRecord, MemberState, OperatorId, Outcome, Phase,
    StoreFacts, StoreRecord, STORES_MAX,
};

const COMMAND_FORMAT: u8 = 3;
const ENTRY_VERSION: u8 = 1;
const REPLY_FORMAT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MetaCommand {
    /// The first command of a cluster. Every leader of region 0 that finds no state may propose it.
    /// The first proposal takes effect, and the others get [`MetaReply::AlreadyBootstrapped`].
    Bootstrap {
        cluster_id: u64,
        stores: Vec<StoreRecord>,
        #[serde(with = "descriptors")]
        regions: Vec<RegionDescriptor>,
        policy: Policy,
        config: BTreeMap<String, String>,
        /// The version that the stores write at first.
        #[serde(rename = "semantics")]
        version: Version,
    },
    SetPolicy {
        policy: Policy,
    },
    /// Makes a process with an empty disk a member. A repeated command with the same key gets the
    /// same store id, and its facts replace the earlier ones.
    ///
    /// `newest` is the newest version that its program supports. It is sent only after the cluster
    /// has left the oldest version, because the programs of that version do not know it.
    Join {
        facts: StoreFacts,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        newest: Option<Version>,
    },
    /// Replaces the facts of a member.
    SetStore {
        store: StoreId,
        facts: StoreFacts,
    },
    /// Starts or cancels the draining of a member.
    SetStoreState {
        store: StoreId,
        state: MemberState,
    },
    /// Sets weights that replace the measured ones. `None` restores the measured weight.
    SetPins {
        store: StoreId,
        data_weight: Option<f64>,
        leader_weight: Option<f64>,
    },
    /// Removes a member that has no peers. Its id is never used again.
    RemoveStore {
        store: StoreId,
    },
    /// Reports of region leaders about their regions. Reports that are newer than the state and
    /// consistent with it are accepted.
    ReportRegions {
        #[serde(with = "descriptors")]
        regions: Vec<RegionDescriptor>,
    },
    /// Allocates `count` region ids that were never used.
    AllocateRegions {
        count: u32,
    },
    /// Makes the leader of region 0 in `term` the planner. A leader that sees its own command
    /// applied has applied everything that earlier leaders proposed.
    TakeOver {
        term: Term,
    },
    /// Begins an operator. The proposer chooses `id`, which is larger than all earlier ids. So an
    /// operator that is proposed twice begins only once.
    BeginOperator {
        id: OperatorId,
        operator: Operator,
    },
    /// Moves an operator from [`Phase::Going`] to another phase. An operator never returns to an
    /// earlier phase.
    AdvanceOperator {
        id: OperatorId,
        phase: Phase,
    },
    FinishOperator {
        id: OperatorId,
        outcome: Outcome,
    },
    /// Raises the cluster's version if the version of the list of stores is unchanged. All stores
    /// of that list are prepared.
    RaiseVersion {
        version: Version,
        members_version: u64,
    },
    /// Sets a configuration value. `None` removes it.
    SetConfig {
        name: String,
        value: Option<String>,
    },
    /// Sets thresholds of collections, all or none. Version 3 of the cluster is the first that
    /// knows it.
    SetThresholds {
        values: BTreeMap<String, String>,
    },
    /// Changes users, if the list of stores, which includes them, still has the version `expected`.
    /// `None` deletes a user. With `replace`, users that are not named are deleted as well.
    /// Version 3 of the cluster is the first that knows it.
    SetUsers {
        expected: u64,
        changes: BTreeMap<String, Option<String>>,
        replace: bool,
    },
    /// Changes libraries of functions, if their last change has the version `expected`. `None`
    /// deletes a library. With `replace`, libraries that are not named are deleted as well.
    /// Version 3 of the cluster is the first that knows it.
    SetLibraries {
        expected: u64,
        changes: BTreeMap<String, Option<LibraryRecord>>,
        replace: bool,
    },
    /// Creates a bearer token of the admin endpoint for a user. Version 3 of the cluster is the
    /// first that knows it.
    CreateToken {
        name: String,
        user: String,
        digest: String,
        /// Time until the token expires, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_ms: Option<u64>,
    },
    RevokeToken {
        name: String,
    },
    /// Applies `order` and records in the audit log that `change` asked for it. Version 3 of the
    /// cluster is the first that knows it.
    Audited {
        change: AuditedChange,
        order: Box<MetaCommand>,
    },
    /// Records a change that a store made by itself. Proposed again, it is recorded once.
    RecordChange {
        change: AuditedChange,
        outcome: AuditOutcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// The result of a command, for its proposer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum MetaReply {
    Bootstrapped,
    AlreadyBootstrapped {
        cluster_id: u64,
    },
    Changed,
    /// The command changed nothing.
    Unchanged,
    Joined {
        store: StoreId,
        cluster_id: u64,
    },
    /// Answers a report. Reports that change nothing are in neither list.
    Reported {
        taken: Vec<RegionId>,
        /// Regions whose reports were refused. They would leave a slot without a region or with two
        /// regions, or they name a store or an id that was never allocated.
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

/// The reason why a command was refused. The refusal is deterministic: every replica gets the same
/// result, and it is the proposer's answer.
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
    #[error("store {0} is known with another disk: remove it, then let the new one join")]
    OtherDisk(StoreId),
    #[error("the store sent no key")]
    NoKey,
    #[error("store {0} has that key: a data directory was copied, and only one of the copies may be used")]
    KeyInUse(StoreId),
    #[error("the store's facts are not valid: {0}")]
    BadFacts(&'static str),
    #[error("the cluster has {STORES_MAX} stores, the maximum; remove some first")]
    TooManyStores,
    #[error("the {staying} stores that would stay cannot hold the {replicas} replicas of a region; have others join first, or lower 'replicas'")]
    TooFewStores { staying: usize, replicas: usize },
    #[error("store {store} holds a peer of region {region}; drain it first")]
    HoldsPeer { store: StoreId, region: RegionId },
    #[error("an operator in flight names store {0}")]
    StoreInUse(StoreId),
    #[error("a weight must be a finite number above 0")]
    BadWeight,
    #[error("no region {0}")]
    UnknownRegion(RegionId),
    #[error("region {0} has an operator in flight")]
    RegionBusy(RegionId),
    #[error("that would leave region {0} without a voter")]
    LastVoter(RegionId),
    #[error("operator {id} is not newer than the last one, {last}")]
    StaleOperator { id: OperatorId, last: OperatorId },
    #[error("an operator of that kind is not possible for region {0}")]
    NotForRegion(RegionId),
    #[error("operator {0} cannot change from its phase to that one")]
    BadPhase(OperatorId),
    #[error("no ids are left")]
    NoIds,
    #[error("'{value}' is no value of '{name}': {expected}")]
    BadConfig { name: String, value: String, expected: &'static str },
    #[error(
        "the cluster has version {version}, and the program of the store that joins supports {newest} at most: \
         install a newer program"
    )]
    OldProgram { newest: Version, version: Version },
    #[error("the list of stores has changed since they were asked")]
    MembersChanged,
    #[error("the list of users has changed meanwhile")]
    UsersChanged,
    #[error("{0}")]
    BadUsers(&'static str),
    #[error("the libraries of functions have changed meanwhile")]
    LibrariesChanged,
    #[error("{0}")]
    BadLibraries(&'static str),
    #[error("{0}")]
    BadToken(&'static str),
    #[error("{0}")]
    BadAudit(&'static str),
    #[error("bad bootstrap: {0}")]
    BadBootstrap(String),
}

/// The reason why bytes are not a command, an entry or a reply that this version can read.
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

/// Encodes a value as a format byte and JSON.
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

/// Encodes the payload of a Raft entry of the meta region.
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
