//! Requests of stores to the leader of the meta region, to the leader of another region, or to one
//! store, and the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::admin::{ConfigRow, FailRequest, OperatorRow, RegionRequest, StoreRequest, TokenRequest};
use cluster::{
    AuditOutcome, AuditedChange, LibraryRecord, MemberState, MetaCommand, MetaError, MetaReply, SettingError,
    StartError, StoreFacts,
};
use placement::{Operator, Reason};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{StoreId, Version, META_REGION, NEWEST_VERSION, OLDEST_VERSION, THIRD_VERSION};

use super::merged::{self, AskedRegion};
use super::operations::Change;
use super::proposer::{is_early, Proposer};
use super::{audit, check, libraries, quarantine, rows, thresholds, tokens, users, versions, windows};
use crate::admin_error::{encode_error, read_error, refuse, AdminError};
use crate::admission;
use crate::audit_queue::LocalRecord;
use crate::flash;
use crate::members::AgreedMembers;
use crate::regions::RegionShared;
use crate::store::Store;
use crate::transport::kinds::{REQUEST_ADMIN, STATUS_DONE, STATUS_ERROR, STATUS_NOT_LEADER};
use crate::transport::{CallError, Remote};

/// Time that one particular store may take to answer.
pub const PEER_PATIENCE: Duration = Duration::from_secs(2);

/// Questions to the leader of the meta region. A check goes to the leader of its region.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    Policy,
    SetPolicy {
        name: String,
    },
    Config,
    SetConfig {
        name: String,
        value: String,
    },
    /// Changes thresholds of collections, all or none.
    SetThresholds {
        values: BTreeMap<String, String>,
    },
    MoveLeader {
        region: u64,
        to: StoreId,
    },
    ChangeRegion {
        region: u64,
        change: RegionRequest,
    },
    ChangeStore {
        store: StoreId,
        change: StoreRequest,
    },
    SetFacts {
        store: StoreId,
        facts: StoreFacts,
    },
    Join {
        facts: StoreFacts,
        newest: Option<Version>,
    },
    Explain {
        region: u64,
    },
    ExplainStore {
        store: StoreId,
    },
    Operators {
        history: bool,
    },
    Check {
        region: u64,
    },
    SkipRegionIds {
        count: u32,
    },
    Skip {
        region: u64,
        index: u64,
        force: bool,
    },
    Refill {
        region: u64,
        from: StoreId,
    },
    Fail {
        region: u64,
        request: FailRequest,
    },
    Versions,
    MergedAway {
        regions: Vec<AskedRegion>,
    },
    /// Asks a store about its own peer. The variants below also go to one particular store.
    PeerState {
        region: u64,
    },
    /// Changes users of clients.
    SetUsers {
        expected: u64,
        changes: BTreeMap<String, Option<String>>,
        replace: bool,
    },
    /// Changes libraries of functions.
    SetLibraries {
        expected: u64,
        changes: BTreeMap<String, Option<LibraryRecord>>,
        replace: bool,
    },
    /// Asks a question to the meta region's leader, and records in the audit log that `change` led
    /// to it.
    Audited {
        change: AuditedChange,
        question: Box<Ask>,
    },
    /// Records a change that the asking store made by itself.
    Record {
        record: LocalRecord,
    },
    /// Asks for the last records of the audit log.
    Audit {
        last: usize,
    },
    /// Changes a bearer token. A new one is known by its digest.
    ChangeToken {
        change: TokenRequest,
        digest: String,
    },
    /// Asks for the libraries of functions that the asking store lacks.
    Libraries {
        known: BTreeMap<String, u64>,
    },
    /// Asks a store to get this version of the libraries, and to answer once it has it.
    HasLibraries {
        version: u64,
    },
    /// Asks a store to get this version of the list of stores, and to answer once it has it.
    HasMembers {
        version: u64,
    },
    Retry {
        region: u64,
    },
    Admit {
        region: u64,
    },
    ReadOnly {
        region: u64,
        read_only: bool,
    },
    /// Asks a store for the proposal windows of the regions that it leads.
    Windows,
    /// Asks a store for its use of RAM and flash.
    Flash,
}

impl Ask {
    fn is_of_meta(&self) -> bool {
        !matches!(
            self,
            Ask::Check { .. }
                | Ask::Skip { .. }
                | Ask::Fail { .. }
                | Ask::PeerState { .. }
                | Ask::HasLibraries { .. }
                | Ask::HasMembers { .. }
                | Ask::Retry { .. }
                | Ask::Admit { .. }
                | Ask::ReadOnly { .. }
                | Ask::Windows
                | Ask::Flash
        )
    }
}

/// Asks the meta region's leader, on any store, within the time limit of a request.
pub async fn ask(store: &Store, ask: Ask) -> Result<Value, AdminError> {
    ask_leader(store, store.regions.meta(), ask, Duration::from_millis(500)).await
}

/// Asks the meta region's leader, as [`ask`] does, and reads the answer.
pub async fn ask_for<T: DeserializeOwned>(store: &Store, question: Ask) -> Result<T, AdminError> {
    read(ask(store, question).await?)
}

/// Reads a leader's answer.
pub fn read<T: DeserializeOwned>(answer: Value) -> Result<T, AdminError> {
    serde_json::from_value(answer).map_err(|error| refuse(502, error.to_string()))
}

/// Asks a region's leader, on any store. The search for a leader ends at the time limit of a
/// request. The answer may take `patience` longer.
pub async fn ask_leader(
    store: &Store,
    region: &RegionShared,
    ask: Ask,
    patience: Duration,
) -> Result<Value, AdminError> {
    let deadline = Instant::now() + store.config.request_timeout;
    let name = match region.id() {
        META_REGION => "the meta region".to_owned(),
        id => format!("region {id}"),
    };
    loop {
        let changed = store.regions.leader_changes.notified();
        match region.leader() {
            Some(leader) if leader == store.id => match answer(store, ask.clone()).await {
                Err(NotAnswered::NotLeader) => {}
                Err(NotAnswered::Error(error)) => return Err(error),
                Ok(value) => return Ok(value),
            },
            Some(leader) => {
                let body = serde_json::to_vec(&ask).expect("plain data").into();
                let wait = deadline.saturating_duration_since(Instant::now()) + patience;
                match store.transport.call(leader, REQUEST_ADMIN, body, wait).await {
                    Ok((STATUS_DONE, body)) => {
                        return serde_json::from_slice(&body).map_err(|e| refuse(502, e.to_string()))
                    }
                    Ok((STATUS_NOT_LEADER, _)) | Err(CallError::NotSent) => {}
                    Ok((_, body)) => return Err(of_program(read_error(&body))),
                    Err(CallError::Unknown) => {
                        return Err(refuse(504, format!("{name}'s leader did not answer; it may still act")))
                    }
                }
            }
            None => {}
        }
        if Instant::now() >= deadline {
            return Err(refuse(503, format!("{name} has no leader that can reach a quorum")));
        }
        let _ = tokio::time::timeout(Duration::from_millis(50), changed).await;
    }
}

/// Returns the error of a leader, or an understandable one if its program is too old for the
/// question.
fn of_program(error: AdminError) -> AdminError {
    match error.message.starts_with("unknown variant") {
        true => refuse(
            409,
            format!(
                "this needs version {NEWEST_VERSION} of the cluster, and the leader that was asked has an older \
                 program: see steelyard ctl versions"
            ),
        ),
        false => error,
    }
}

/// Asks one particular store.
pub async fn ask_store(store: &Store, to: StoreId, ask: Ask) -> Result<Value, AdminError> {
    if to == store.id {
        return match Box::pin(answer(store, ask)).await {
            Ok(value) => Ok(value),
            Err(NotAnswered::NotLeader) => Err(refuse(502, "an answer of another kind")),
            Err(NotAnswered::Error(error)) => Err(error),
        };
    }
    let body = serde_json::to_vec(&ask).expect("plain data").into();
    match store.transport.call(to, REQUEST_ADMIN, body, PEER_PATIENCE).await {
        Ok((STATUS_DONE, body)) => {
            serde_json::from_slice(&body).map_err(|error| refuse(502, error.to_string()))
        }
        Ok((_, body)) => Err(read_error(&body)),
        Err(_) => Err(refuse(503, "it does not answer")),
    }
}

/// Asks the cluster to admit a store. Returns its id, the cluster's id, and the list of stores with
/// the new one.
/// `newest` is the newest version that its program supports.
pub async fn join(
    store: &Store,
    facts: StoreFacts,
    newest: Version,
) -> Result<(StoreId, u64, AgreedMembers), AdminError> {
    let change = audit::change_of_join(store, &facts);
    let question = audited(store, Some(change.clone()), Ask::Join { facts, newest: Some(newest) });
    let joined = ask_for(store, question).await;
    if joined.is_ok() {
        audit::log_change(&LocalRecord::new(change, AuditOutcome::Done, None));
    }
    joined
}

/// Asks the meta region's leader for a change, which is recorded with its command.
pub async fn ask_recorded(store: &Store, change: Change<'_>, question: Ask) -> Result<Value, AdminError> {
    ask(store, audited(store, change.cloned(), question)).await
}

/// Returns the question with the change that leads to it, if the cluster records changes.
pub fn audited(store: &Store, change: Option<AuditedChange>, ask: Ask) -> Ask {
    match change.filter(|_| audit::is_kept(store)) {
        Some(change) => Ask::Audited { change, question: Box::new(ask) },
        None => ask,
    }
}

/// Asks the cluster to record this store's facts.
pub async fn set_facts(store: &Store, facts: StoreFacts) -> Result<(), AdminError> {
    ask(store, Ask::SetFacts { store: store.id, facts }).await.map(drop)
}

/// Answers another store's question.
pub async fn answer_passed(store: Arc<Store>, from: Remote, body: Bytes) -> (u8, Bytes) {
    let error = |error: AdminError| (STATUS_ERROR, encode_error(error));
    let ask = match serde_json::from_slice(&body) {
        Ok(ask) => ask,
        Err(reason) => return error(refuse(400, reason.to_string())),
    };
    let (change, question) = match &ask {
        Ask::Audited { change, question } => (Some(change), &**question),
        Ask::Record { record } => (Some(&record.change), &ask),
        other => (None, other),
    };
    if let Ask::SetFacts { store: of, facts } = question {
        if *of != from.store || facts.key != Some(from.key) {
            return error(refuse(403, "a store may change only its own facts, with its own key"));
        }
    }
    if change.is_some_and(|change| change.store != from.store) {
        return error(refuse(403, "a store may record only changes that it was asked for"));
    }
    match answer(&store, ask).await {
        Ok(value) => (STATUS_DONE, serde_json::to_vec(&value).expect("plain data").into()),
        Err(NotAnswered::NotLeader) => (STATUS_NOT_LEADER, Bytes::new()),
        Err(NotAnswered::Error(reason)) => error(reason),
    }
}

pub enum NotAnswered {
    NotLeader,
    Error(AdminError),
}

impl NotAnswered {
    /// Returns the error for a caller that asks no other store.
    pub fn into_error(self) -> AdminError {
        match self {
            NotAnswered::NotLeader => refuse(503, "the meta region has no leader that can reach a quorum"),
            NotAnswered::Error(error) => error,
        }
    }
}

impl From<AdminError> for NotAnswered {
    fn from(error: AdminError) -> NotAnswered {
        NotAnswered::Error(error)
    }
}

/// Answers as the leader of the region that the question is about.
pub async fn answer(store: &Store, ask: Ask) -> Result<Value, NotAnswered> {
    let Ask::Audited { change, question } = ask else {
        return answer_as(store, ask, &Proposer::unrecorded()).await;
    };
    if !store.regions.leads_meta() {
        return Err(NotAnswered::NotLeader);
    }
    let proposer = Proposer::of(change);
    let answered = answer_as(store, *question, &proposer).await;
    if let Err(NotAnswered::Error(error)) = &answered {
        audit::record_refusal(store, proposer, error).await;
    }
    answered
}

/// Answers, and proposes with the proposer.
async fn answer_as(store: &Store, ask: Ask, proposer: &Proposer) -> Result<Value, NotAnswered> {
    if ask.is_of_meta() && !store.regions.leads_meta() {
        return Err(NotAnswered::NotLeader);
    }
    let value = match ask {
        Ask::Policy => Value::from(store.cluster.policy().name()),
        Ask::SetPolicy { name } => {
            let policy = name.parse().map_err(|e: placement::UnknownPolicy| refuse(400, e.to_string()))?;
            proposer.propose(store, MetaCommand::SetPolicy { policy }).await?;
            Value::Null
        }
        Ask::Config => {
            let behind = store.cluster.stores_behind();
            let settings = store.cluster.settings().into_iter();
            let rows: Vec<ConfigRow> = settings.map(|setting| rows::config_row(setting, &behind)).collect();
            serde_json::to_value(rows).expect("plain data")
        }
        Ask::SetConfig { name, value } => {
            let command = store.cluster.set(&name, &value).map_err(not_set)?;
            proposer.propose(store, command).await?;
            Value::Null
        }
        Ask::SetThresholds { values } => thresholds::answer(store, proposer, &values).await?,
        Ask::SetUsers { expected, changes, replace } => {
            users::answer(store, proposer, expected, changes, replace).await?
        }
        Ask::SetLibraries { expected, changes, replace } => {
            libraries::answer(store, proposer, expected, changes, replace).await?
        }
        Ask::Audited { .. } => return Err(refuse(400, "a question cannot be recorded twice").into()),
        Ask::Record { record } => {
            audit::record_as_leader(store, record).await?;
            Value::Null
        }
        Ask::Audit { last } => serde_json::to_value(store.cluster.audit(last)).expect("plain data"),
        Ask::ChangeToken { change, digest } => tokens::answer(store, proposer, change, digest).await?,
        Ask::Libraries { known } => {
            serde_json::to_value(store.cluster.libraries(&known)).expect("plain data")
        }
        Ask::HasMembers { version } => thresholds::answer_has(store, version).await,
        Ask::HasLibraries { version } => libraries::answer_has(store, version).await,
        Ask::MoveLeader { region, to } => {
            let from = leader_of(store, region)?;
            begin(store, proposer, Operator::TransferLeader { region, from, to, reason: Reason::Requested })
                .await?
        }
        Ask::ChangeRegion { change: RegionRequest::Split, .. } if !store.config.cluster_enabled => {
            return Err(
                refuse(409, "a split needs cluster-enabled yes; without it one region has all keys").into()
            )
        }
        Ask::ChangeRegion { region, change } => begin(store, proposer, operator(region, change)).await?,
        Ask::ChangeStore { store: id, change } => {
            change_store(store, proposer, id, change).await?;
            Value::Null
        }
        Ask::SetFacts { store: id, facts } => {
            proposer.propose(store, MetaCommand::SetStore { store: id, facts }).await?;
            Value::Null
        }
        Ask::Join { facts, newest } => {
            admission::may_join(&store.cluster, &store.membership, &facts)?;
            join_as_leader(store, proposer, facts, newest).await.inspect_err(|error| {
                if matches!(error, NotAnswered::Error(error) if is_early(&error.message)) {
                    store.membership.joined_too_early();
                }
            })?
        }
        Ask::Versions => versions::answer(store).await,
        Ask::MergedAway { regions } => merged::answer(store, &regions),
        Ask::Explain { region } => match store.cluster.explain(region) {
            Some(explanation) => Value::from(explanation.to_string()),
            None => return Err(refuse(404, format!("no region {region}")).into()),
        },
        Ask::ExplainStore { store: id } => match store.cluster.explain_store(id) {
            Ok(explanation) => Value::from(explanation.to_string()),
            Err(error) => return Err(refuse(404, error.to_string()).into()),
        },
        Ask::Operators { history } => {
            let rows: Vec<OperatorRow> =
                store.cluster.operators(history).into_iter().map(rows::operator_row).collect();
            serde_json::to_value(rows).expect("plain data")
        }
        Ask::Check { region } => check::answer(store, region).await?,
        Ask::SkipRegionIds { count } => {
            proposer.propose(store, MetaCommand::AllocateRegions { count }).await?;
            Value::Null
        }
        Ask::Skip { region, index, force } => quarantine::skip(store, region, index, force).await?,
        Ask::Refill { region, from } => quarantine::refill(store, proposer, region, from).await?,
        Ask::Fail { region, request } => quarantine::fail(store, region, request).await?,
        Ask::PeerState { region } => {
            serde_json::to_value(quarantine::own_peer(store, region)).expect("plain data")
        }
        Ask::Retry { region } => {
            quarantine::retry(store, region);
            Value::Null
        }
        Ask::Admit { region } => {
            let _ = store.worker.raft(replica::Input::AdmitSnapshot { region });
            Value::Null
        }
        Ask::ReadOnly { region, read_only } => {
            quarantine::read_only(store, region, read_only);
            Value::Null
        }
        Ask::Flash => serde_json::to_value(flash::row(store)).expect("plain data"),
        Ask::Windows => serde_json::to_value(windows::led(store)).expect("plain data"),
    };
    Ok(value)
}

async fn join_as_leader(
    store: &Store,
    proposer: &Proposer,
    facts: StoreFacts,
    newest: Option<Version>,
) -> Result<Value, NotAnswered> {
    let version = store.cluster.version();
    // Programs that support only the oldest version do not know this field.
    let told = newest.filter(|_| version > OLDEST_VERSION);
    let joined = match proposer.propose(store, MetaCommand::Join { facts, newest: told }).await {
        // The version has risen in the meantime. The store asks again.
        Err(NotAnswered::Error(error)) if store.cluster.version() > version => {
            return Err(refuse(503, error.message).into())
        }
        joined => joined?,
    };
    match joined {
        MetaReply::Joined { store: joined, cluster_id } => {
            // The command is applied here, so the store is in the list.
            let members = store.cluster.members_after(0).unwrap_or_default();
            Ok(serde_json::to_value((joined, cluster_id, members)).expect("plain data"))
        }
        other => Err(refuse(502, format!("an answer of an unexpected kind: {other:?}")).into()),
    }
}

/// Returns the refusal of a setting.
pub fn not_set(error: SettingError) -> AdminError {
    match error {
        SettingError::NoSuchLabel { .. }
        | SettingError::TooFewStores { .. }
        | SettingError::NeedsVersion { .. }
        | SettingError::NoSession { .. } => refuse(409, error.to_string()),
        _ => refuse(400, error.to_string()),
    }
}

/// Refuses a change of `what` whose command a store with an older program could not read.
pub fn need_third_version(store: &Store, what: &str) -> Result<(), NotAnswered> {
    if store.membership.agreed_settings().cluster_version < THIRD_VERSION {
        let text = format!("{what} need version {THIRD_VERSION} of the cluster: see steelyard ctl versions");
        return Err(refuse(409, text).into());
    }
    Ok(())
}

pub async fn begin(store: &Store, proposer: &Proposer, operator: Operator) -> Result<Value, NotAnswered> {
    let command = store.cluster.request(operator).map_err(|error| match error {
        StartError::NoLeader(_) | StartError::Refused(MetaError::UnknownRegion(_)) => {
            refuse(404, error.to_string())
        }
        _ => refuse(409, error.to_string()),
    })?;
    proposer.propose(store, command).await?;
    // The next round sends the operator's first order, so a round is requested at once.
    store.cluster.report_soon.notify_one();
    Ok(Value::Null)
}

fn leader_of(store: &Store, region: u64) -> Result<StoreId, AdminError> {
    let leader = store.cluster.leader_of(region);
    leader.ok_or_else(|| refuse(404, format!("region {region} has no known leader")))
}

fn operator(region: u64, change: RegionRequest) -> Operator {
    let reason = Reason::Requested;
    match change {
        RegionRequest::AddPeer { to } => Operator::AddPeer { region, to, reason },
        RegionRequest::RemovePeer { from } => Operator::RemovePeer { region, from, reason },
        RegionRequest::MovePeer { from, to } => Operator::MovePeer { region, from, to, reason },
        RegionRequest::Split => Operator::Split { region, reason },
        RegionRequest::Merge { into } => Operator::Merge { region, into, reason },
    }
}

async fn change_store(
    store: &Store,
    proposer: &Proposer,
    id: StoreId,
    change: StoreRequest,
) -> Result<(), NotAnswered> {
    let command = match change {
        StoreRequest::Drain => {
            store.cluster.may_drain(id).map_err(|error| refuse(409, error.to_string()))?;
            MetaCommand::SetStoreState { store: id, state: MemberState::Draining }
        }
        StoreRequest::Keep => MetaCommand::SetStoreState { store: id, state: MemberState::Up },
        StoreRequest::Remove => MetaCommand::RemoveStore { store: id },
        StoreRequest::Pin { data_weight, leader_weight } => {
            pins(data_weight, leader_weight, store.cluster.pins(id)).map(|(data_weight, leader_weight)| {
                MetaCommand::SetPins { store: id, data_weight, leader_weight }
            })?
        }
    };
    proposer.propose(store, command).await.map(drop)
}

type Pins = (Option<f64>, Option<f64>);

/// Combines the new weights with the pinned ones. Clears both pins if no new weight is given.
fn pins(data: Option<f64>, leader: Option<f64>, before: Pins) -> Result<Pins, AdminError> {
    if leader.is_some_and(|weight| weight < 1.0) {
        return Err(refuse(400, "a leader weight is in bytes per second and at least 1"));
    }
    match (data, leader) {
        (None, None) => Ok((None, None)),
        _ => Ok((data.or(before.0), leader.or(before.1))),
    }
}

#[cfg(test)]
mod tests {
    use cluster::StoreKey;

    use super::*;
    use crate::config::facts_of;
    use crate::fixture::Fixture;

    #[tokio::test]
    async fn a_store_changes_only_its_own_facts_and_records_only_its_own_changes() {
        let fixture = Fixture::new();
        let (own, other) = (StoreKey([1; 32]), StoreKey([2; 32]));
        let facts = |key| facts_of(fixture.store.config.this(), Some(key));
        let change = |store| AuditedChange { store, ..AuditedChange::default() };
        let record = |store| LocalRecord::new(change(store), AuditOutcome::Done, None);
        let audited = |store, question| Ask::Audited { change: change(store), question: Box::new(question) };
        for (ask, is_refused) in [
            (Ask::SetFacts { store: 7, facts: facts(own) }, false),
            (Ask::SetFacts { store: 8, facts: facts(own) }, true),
            (Ask::SetFacts { store: 7, facts: facts(other) }, true),
            (audited(7, Ask::SetFacts { store: 8, facts: facts(own) }), true),
            (audited(8, Ask::Policy), true),
            (audited(7, Ask::Policy), false),
            (Ask::Record { record: record(8) }, true),
            (Ask::Record { record: record(7) }, false),
        ] {
            let body = serde_json::to_vec(&ask).unwrap().into();
            let remote = Remote { store: 7, key: own };
            let (status, answer) = answer_passed(fixture.store.clone(), remote, body).await;
            let was_refused = status == STATUS_ERROR && read_error(&answer).status == 403;
            assert_eq!(was_refused, is_refused, "{ask:?}");
        }
    }
}
