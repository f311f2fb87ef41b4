//! The cluster's state as rows. Each object is one row, so a change writes only the objects that it
//! changed.
//!
//! ```text
//! row    'm' | kind u8 | id
//! value  format u8 = 3 | JSON
//!
//! kind   id             value
//! 1      -              cluster id, creation time, the cluster's version
//! 2      -              policy, since when
//! 3      store u64 BE   StoreRecord
//! 4      region u64 BE  descriptor
//! 5      name           a configuration value
//! 6      -              the next ids, the version of the list of stores, the planner's term
//! 7      operator u64   an operator in flight
//! 8      operator u64   an operator that ended
//! 9      chunk u64 BE   regions that merged away, of 4096: their places in the chunk, ascending
//! 10     name           a user of clients
//! 11     name           a library of functions
//! 12     name           a bearer token of the admin endpoint
//! 13     record u64 BE  a record of the audit log
//! ```

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};
use placement::Policy;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use storage::rows::SPACE_META_REGION;
use storage::{Reader, StorageError, Txn};
use types::{RegionDescriptor, RegionId, StoreId, Term, UnixMillis, Version};

use crate::command::{self, decode_entry};
use crate::state::{
    descriptors, AuditRecord, Finished, InFlight, MetaState, Object, OperatorId, StoreRecord,
};
use crate::{MetaError, MetaReply};

const VALUE_FORMAT: u8 = 3;

const KIND_CLUSTER: u8 = 1;
const KIND_POLICY: u8 = 2;
const KIND_STORE: u8 = 3;
const KIND_REGION: u8 = 4;
const KIND_CONFIG: u8 = 5;
const KIND_COUNTERS: u8 = 6;
const KIND_OPERATOR: u8 = 7;
const KIND_FINISHED: u8 = 8;
const KIND_MERGED: u8 = 9;
const KIND_USER: u8 = 10;
const KIND_LIBRARY: u8 = 11;
const KIND_TOKEN: u8 = 12;
const KIND_AUDIT: u8 = 13;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterRow {
    cluster_id: u64,
    created_ms: UnixMillis,
    #[serde(rename = "semantics")]
    version: Version,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRow {
    policy: Policy,
    since_ms: UnixMillis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountersRow {
    members_version: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    libraries_version: u64,
    next_store: StoreId,
    next_region: RegionId,
    next_operator: OperatorId,
    planner_term: Term,
}

fn is_zero(version: &u64) -> bool {
    *version == 0
}

/// Applies an entry of the meta region to `state` and to the rows of `txn`. The outer error stops
/// the store; the inner result is the answer to the proposer. `state` must equal the rows of `txn`.
pub fn apply_entry(
    entry: &[u8],
    state: &mut MetaState,
    txn: &mut Txn<'_>,
) -> storage::Result<Result<MetaReply, MetaError>> {
    let (stamp_ms, command) =
        decode_entry(entry).map_err(|error| StorageError::Corrupt(error.to_string()))?;
    let stamp_ms = txn.state_mut().advance_time(stamp_ms);
    let mut changed = BTreeSet::new();
    let outcome = state.apply_noting(&command, stamp_ms, &mut changed);
    for object in changed {
        let row = object.row();
        match state.value_of(&object) {
            Some(value) => txn.put(row, value),
            None => txn.delete(row),
        }
    }
    Ok(outcome)
}

impl MetaState {
    /// Returns the state in the rows; before bootstrap, the default.
    pub fn load(reader: &dyn Reader) -> storage::Result<MetaState> {
        let mut state = MetaState::default();
        let mut result = Ok(());
        reader.scan(&[SPACE_META_REGION], &[SPACE_META_REGION + 1], &mut |row, value| {
            result = state.take_row(row, value);
            match result {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        result.map(|()| state)
    }

    fn take_row(&mut self, row: &[u8], value: &[u8]) -> storage::Result<()> {
        let corrupt = || StorageError::Corrupt(format!("unknown row {row:?} of the meta region"));
        let (&kind, id) = row.get(1..).and_then(<[u8]>::split_first).ok_or_else(corrupt)?;
        let id_matches = |number: u64| if *id == number.to_be_bytes() { Ok(()) } else { Err(corrupt()) };
        match kind {
            KIND_CLUSTER if id.is_empty() => {
                let ClusterRow { cluster_id, created_ms, version } = decode(row, value)?;
                self.cluster_id = Some(cluster_id);
                self.created_ms = created_ms;
                self.version = version;
            }
            KIND_POLICY if id.is_empty() => {
                let PolicyRow { policy, since_ms } = decode(row, value)?;
                self.policy = policy;
                self.policy_since_ms = since_ms;
            }
            KIND_STORE => {
                let store: StoreRecord = decode(row, value)?;
                id_matches(store.id)?;
                self.stores.insert(store.id, store);
            }
            KIND_REGION => {
                let region = RegionDescriptor::try_from(decode::<descriptors::Json>(row, value)?)
                    .map_err(|error| StorageError::Corrupt(format!("{row:?}: {error}")))?;
                id_matches(region.id)?;
                self.regions.insert(region.id, region);
            }
            KIND_CONFIG => {
                let name = std::str::from_utf8(id).map_err(|_| corrupt())?;
                self.config.insert(name.to_owned(), decode(row, value)?);
            }
            KIND_USER => {
                let name = std::str::from_utf8(id).map_err(|_| corrupt())?;
                self.users.insert(name.to_owned(), decode(row, value)?);
            }
            KIND_LIBRARY => {
                let name = std::str::from_utf8(id).map_err(|_| corrupt())?;
                self.libraries.insert(name.to_owned(), decode(row, value)?);
            }
            KIND_TOKEN => {
                let name = std::str::from_utf8(id).map_err(|_| corrupt())?;
                self.tokens.insert(name.to_owned(), decode(row, value)?);
            }
            KIND_AUDIT => {
                let record: AuditRecord = decode(row, value)?;
                id_matches(record.id)?;
                self.audit.insert(record);
            }
            KIND_COUNTERS if id.is_empty() => {
                let row: CountersRow = decode(row, value)?;
                self.members_version = row.members_version;
                self.libraries_version = row.libraries_version;
                self.next_store = row.next_store;
                self.next_region = row.next_region;
                self.next_operator = row.next_operator;
                self.planner_term = row.planner_term;
            }
            KIND_OPERATOR => {
                let flight: InFlight = decode(row, value)?;
                id_matches(flight.id)?;
                self.operators.insert(flight.id, flight);
            }
            KIND_FINISHED => {
                let finished: Finished = decode(row, value)?;
                id_matches(finished.id)?;
                self.history.insert(finished.id, finished);
            }
            KIND_MERGED => {
                let chunk = u64::from_be_bytes(id.try_into().map_err(|_| corrupt())?);
                if !self.merged.take_chunk(chunk, decode(row, value)?) {
                    return Err(corrupt());
                }
            }
            _ => return Err(corrupt()),
        }
        Ok(())
    }

    /// Returns the object's row value; `None` if the object is gone.
    fn value_of(&self, object: &Object) -> Option<Bytes> {
        match object {
            Object::Cluster => self.cluster_id.map(|cluster_id| {
                encode(&ClusterRow { cluster_id, created_ms: self.created_ms, version: self.version })
            }),
            Object::Policy => {
                Some(encode(&PolicyRow { policy: self.policy, since_ms: self.policy_since_ms }))
            }
            Object::Store(id) => self.stores.get(id).map(encode),
            Object::Region(id) => self.regions.get(id).map(|region| encode(&descriptors::Json::from(region))),
            Object::Config(name) => self.config.get(name).map(encode),
            Object::User(name) => self.users.get(name).map(encode),
            Object::Library(name) => self.libraries.get(name).map(encode),
            Object::Token(name) => self.tokens.get(name).map(encode),
            Object::Audit(id) => self.audit.get(*id).map(encode),
            Object::Counters => Some(encode(&CountersRow {
                members_version: self.members_version,
                libraries_version: self.libraries_version,
                next_store: self.next_store,
                next_region: self.next_region,
                next_operator: self.next_operator,
                planner_term: self.planner_term,
            })),
            Object::Operator(id) => self.operators.get(id).map(encode),
            Object::Finished(id) => self.history.get(id).map(encode),
            Object::Merged(chunk) => self.merged.chunk(*chunk).map(encode),
        }
    }
}

impl Object {
    fn row(&self) -> Bytes {
        let mut row = BytesMut::new();
        row.put_u8(SPACE_META_REGION);
        let (kind, id) = match self {
            Object::Cluster => (KIND_CLUSTER, None),
            Object::Policy => (KIND_POLICY, None),
            Object::Counters => (KIND_COUNTERS, None),
            Object::Store(id) => (KIND_STORE, Some(*id)),
            Object::Region(id) => (KIND_REGION, Some(*id)),
            Object::Operator(id) => (KIND_OPERATOR, Some(*id)),
            Object::Finished(id) => (KIND_FINISHED, Some(*id)),
            Object::Merged(chunk) => (KIND_MERGED, Some(*chunk)),
            Object::Config(_) => (KIND_CONFIG, None),
            Object::User(_) => (KIND_USER, None),
            Object::Library(_) => (KIND_LIBRARY, None),
            Object::Token(_) => (KIND_TOKEN, None),
            Object::Audit(id) => (KIND_AUDIT, Some(*id)),
        };
        row.put_u8(kind);
        if let Some(id) = id {
            row.put_u64(id);
        }
        if let Object::Config(name) | Object::User(name) | Object::Library(name) | Object::Token(name) = self
        {
            row.put_slice(name.as_bytes());
        }
        row.freeze()
    }
}

fn encode<T: Serialize>(value: &T) -> Bytes {
    command::encode(VALUE_FORMAT, value)
}

fn decode<T: DeserializeOwned>(row: &[u8], value: &[u8]) -> storage::Result<T> {
    command::decode("a row of the meta region", VALUE_FORMAT, value)
        .map_err(|error| StorageError::Corrupt(format!("{row:?}: {error}")))
}

#[cfg(test)]
mod tests;
