//! The answers of the admin endpoint. Questions that only the leader of the meta region can answer
//! are sent to it.

mod check;
mod merged;
mod quarantine;
mod recover;
mod versions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{MetaCommand, MetaError, MetaReply, SettingError, StartError, StoreFacts, StoreState};
use placement::{Operator, Reason};
use resp::Reply;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{RegionId, StoreId, Version, META_REGION, OLDEST_VERSION};

use crate::admin::{
    encode_error, read_error, refuse, AcceptedRow, AdminBackend, AdminError, Answer, CheckRow, ConfigRow,
    FailRequest, OperatorRow, PeerRow, ProbeRow, QuarantineRequest, QuarantineRow, RecoverRequest,
    RecoverRow, RecoveryRow, RegionRequest, RegionRow, StoreRequest, StoreRow, StoreStatus, VersionsRow,
};
use crate::admission;
use crate::capability::{self, NotProbed, Probe};
use crate::clock;
use crate::members::AgreedMembers;
use crate::proposals::NotDone;
use crate::regions::RegionShared;
use crate::store::Store;
use crate::transport::kinds::{REQUEST_ADMIN, STATUS_DONE, STATUS_ERROR, STATUS_NOT_LEADER};
use crate::transport::{CallError, Remote};
use crate::unsynced::{NotTaken, Taken};
use node::Work;

/// Maximum time for which a requested probe waits while other stores of the host measure their
/// devices.
const TURN_MAX: Duration = Duration::from_secs(60);

pub use merged::merged_away;
use merged::AskedRegion;

pub struct Backend {
    pub store: Arc<Store>,
}

/// The questions to the leader of the meta region. A check goes to the leader of its region.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
enum Ask {
    Policy,
    SetPolicy {
        name: String,
    },
    Config,
    SetConfig {
        name: String,
        value: String,
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
}

impl Ask {
    fn is_of_meta(&self) -> bool {
        !matches!(
            self,
            Ask::Check { .. }
                | Ask::Skip { .. }
                | Ask::Fail { .. }
                | Ask::PeerState { .. }
                | Ask::Retry { .. }
                | Ask::Admit { .. }
                | Ask::ReadOnly { .. }
        )
    }
}

/// Asks the meta region's leader, on any store, within the time limit of a request.
async fn ask(store: &Store, ask: Ask) -> Result<Value, AdminError> {
    ask_leader(store, store.regions.meta(), ask, Duration::from_millis(500)).await
}

/// Asks a region's leader, on any store. The search for a leader ends at the time limit of a
/// request. The answer may take `patience` longer.
async fn ask_leader(
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
                    Ok((_, body)) => return Err(read_error(&body)),
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

/// Asks the cluster to admit a store. Returns its id, the cluster's id, and the list of stores with
/// the new one.
/// `newest` is the newest version that its program supports.
pub async fn join(
    store: &Store,
    facts: StoreFacts,
    newest: Version,
) -> Result<(StoreId, u64, AgreedMembers), AdminError> {
    let joined = ask(store, Ask::Join { facts, newest: Some(newest) }).await?;
    serde_json::from_value(joined).map_err(|e| refuse(502, e.to_string()))
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
    if let Ask::SetFacts { store: of, facts } = &ask {
        if *of != from.store || facts.key != Some(from.key) {
            return error(refuse(403, "a store may change only its own facts, with its own key"));
        }
    }
    match answer(&store, ask).await {
        Ok(value) => (STATUS_DONE, serde_json::to_vec(&value).expect("plain data").into()),
        Err(NotAnswered::NotLeader) => (STATUS_NOT_LEADER, Bytes::new()),
        Err(NotAnswered::Error(reason)) => error(reason),
    }
}

enum NotAnswered {
    NotLeader,
    Error(AdminError),
}

impl From<AdminError> for NotAnswered {
    fn from(error: AdminError) -> NotAnswered {
        NotAnswered::Error(error)
    }
}

/// Answers as the leader of the region that the question is about.
async fn answer(store: &Store, ask: Ask) -> Result<Value, NotAnswered> {
    if ask.is_of_meta() && !store.regions.leads_meta() {
        return Err(NotAnswered::NotLeader);
    }
    let value = match ask {
        Ask::Policy => Value::from(store.cluster.policy().name()),
        Ask::SetPolicy { name } => {
            let policy = name.parse().map_err(|e: placement::UnknownPolicy| refuse(400, e.to_string()))?;
            propose(store, MetaCommand::SetPolicy { policy }).await?;
            Value::Null
        }
        Ask::Config => {
            let behind = store.cluster.stores_behind();
            let settings = store.cluster.settings().into_iter();
            let rows: Vec<ConfigRow> = settings.map(|setting| config_row(setting, &behind)).collect();
            serde_json::to_value(rows).expect("plain data")
        }
        Ask::SetConfig { name, value } => {
            let command = store.cluster.set(&name, &value).map_err(|error| match error {
                SettingError::NoSuchLabel { .. } | SettingError::TooFewStores { .. } => {
                    refuse(409, error.to_string())
                }
                _ => refuse(400, error.to_string()),
            })?;
            propose(store, command).await?;
            Value::Null
        }
        Ask::MoveLeader { region, to } => {
            let from = leader_of(store, region)?;
            begin(store, Operator::TransferLeader { region, from, to, reason: Reason::Requested }).await?
        }
        Ask::ChangeRegion { change: RegionRequest::Split, .. } if !store.config.cluster_enabled => {
            return Err(
                refuse(409, "a split needs cluster-enabled yes; without it one region has all keys").into()
            )
        }
        Ask::ChangeRegion { region, change } => begin(store, operator(region, change)).await?,
        Ask::ChangeStore { store: id, change } => {
            change_store(store, id, change).await?;
            Value::Null
        }
        Ask::SetFacts { store: id, facts } => {
            propose(store, MetaCommand::SetStore { store: id, facts }).await?;
            Value::Null
        }
        Ask::Join { facts, newest } => {
            admission::may_join(&store.cluster, &store.membership, &facts)?;
            join_as_leader(store, facts, newest).await?
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
                store.cluster.operators(history).into_iter().map(operator_row).collect();
            serde_json::to_value(rows).expect("plain data")
        }
        Ask::Check { region } => check::answer(store, region).await?,
        Ask::SkipRegionIds { count } => {
            propose(store, MetaCommand::AllocateRegions { count }).await?;
            Value::Null
        }
        Ask::Skip { region, index, force } => quarantine::skip(store, region, index, force).await?,
        Ask::Refill { region, from } => quarantine::refill(store, region, from).await?,
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
    };
    Ok(value)
}

async fn join_as_leader(
    store: &Store,
    facts: StoreFacts,
    newest: Option<Version>,
) -> Result<Value, NotAnswered> {
    let version = store.cluster.version();
    // Programs that support only the oldest version do not know the field.
    let told = newest.filter(|_| version > OLDEST_VERSION);
    let joined = match propose(store, MetaCommand::Join { facts, newest: told }).await {
        // The version has risen meanwhile. The store asks again.
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

/// Proposes a change of the cluster's state. Returns its result.
async fn propose(store: &Store, command: MetaCommand) -> Result<MetaReply, NotAnswered> {
    let deadline = Instant::now() + store.config.request_timeout;
    let answers =
        match store.proposals.submit(store.regions.meta(), Work::Meta(command.encode()), deadline).await {
            Ok(answers) => answers,
            Err(NotDone::NotLeader) => return Err(NotAnswered::NotLeader),
            Err(NotDone::Error(Reply::Error(error))) => return Err(refuse(503, error.into_owned()).into()),
            Err(NotDone::Error(_)) => return Err(refuse(503, "nothing was changed").into()),
        };
    match answers.into_iter().flatten().next().map(node::Answer::into_reply) {
        Some(Reply::Bulk(reply)) => {
            MetaReply::decode(&reply).map_err(|error| refuse(502, error.to_string()).into())
        }
        Some(Reply::Error(error)) => {
            Err(refuse(409, error.strip_prefix("ERR ").unwrap_or(&error).to_owned()).into())
        }
        _ => Err(refuse(502, "an answer of an unexpected kind").into()),
    }
}

async fn begin(store: &Store, operator: Operator) -> Result<Value, NotAnswered> {
    let command = store.cluster.request(operator).map_err(|error| match error {
        StartError::NoLeader(_) | StartError::Refused(MetaError::UnknownRegion(_)) => {
            refuse(404, error.to_string())
        }
        _ => refuse(409, error.to_string()),
    })?;
    propose(store, command).await?;
    // The next round sends the operator's first order, so it is requested at once.
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

async fn change_store(store: &Store, id: StoreId, change: StoreRequest) -> Result<(), NotAnswered> {
    let command = match change {
        StoreRequest::Drain => {
            store.cluster.may_drain(id).map_err(|error| refuse(409, error.to_string()))?;
            MetaCommand::SetStoreState { store: id, state: StoreState::Draining }
        }
        StoreRequest::Keep => MetaCommand::SetStoreState { store: id, state: StoreState::Up },
        StoreRequest::Remove => MetaCommand::RemoveStore { store: id },
        StoreRequest::Pin { data_weight, leader_weight } => {
            pins(data_weight, leader_weight, store.cluster.pins(id)).map(|(data_weight, leader_weight)| {
                MetaCommand::SetPins { store: id, data_weight, leader_weight }
            })?
        }
    };
    propose(store, command).await.map(drop)
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

/// Returns a setting's row. `behind` lists the stores that may still use the previous settings.
fn config_row(setting: cluster::Setting, behind: &[StoreId]) -> ConfigRow {
    let mut note = setting.note.clone();
    if setting.is_for_every_store() && !behind.is_empty() {
        let stores: Vec<String> = behind.iter().map(StoreId::to_string).collect();
        note += &format!("; perhaps not known to store {} yet", stores.join(" "));
    }
    ConfigRow { name: setting.name.to_owned(), value: setting.value, note }
}

fn operator_row(entry: crate::cluster_state::OperatorEntry) -> OperatorRow {
    let operator = entry.operator;
    OperatorRow {
        region: operator.region(),
        kind: operator.kind().to_owned(),
        from: operator.from(),
        to: operator.to(),
        reason: operator.reason().to_string(),
        reason_kind: reason_kind(operator.reason()),
        state: entry.state,
        started_unix_ms: entry.started_unix_ms,
        finished_unix_ms: entry.finished_unix_ms,
    }
}

/// Returns the name under which the kind of a reason is stored.
fn reason_kind(reason: &placement::Reason) -> String {
    let value = serde_json::to_value(reason).expect("plain data");
    value["reason"].as_str().expect("a reason is tagged with its kind").to_owned()
}

impl AdminBackend for Backend {
    fn stores(&self) -> Answer<'_, Vec<StoreRow>> {
        Box::pin(async { Ok(store_rows(&self.store)) })
    }

    fn regions(&self) -> Answer<'_, Vec<RegionRow>> {
        Box::pin(async { Ok(region_rows(&self.store)) })
    }

    fn policy(&self) -> Answer<'_, String> {
        Box::pin(async { text(ask(&self.store, Ask::Policy).await?) })
    }

    fn set_policy(&self, name: String) -> Answer<'_, ()> {
        Box::pin(async { ask(&self.store, Ask::SetPolicy { name }).await.map(drop) })
    }

    fn config(&self) -> Answer<'_, Vec<ConfigRow>> {
        Box::pin(async {
            let rows = ask(&self.store, Ask::Config).await?;
            serde_json::from_value(rows).map_err(|e| refuse(502, e.to_string()))
        })
    }

    fn set_config(&self, name: String, value: String) -> Answer<'_, ()> {
        Box::pin(async { ask(&self.store, Ask::SetConfig { name, value }).await.map(drop) })
    }

    fn move_leader(&self, region: u64, to: u64) -> Answer<'_, ()> {
        Box::pin(async move { ask(&self.store, Ask::MoveLeader { region, to }).await.map(drop) })
    }

    fn change_region(&self, region: u64, change: RegionRequest) -> Answer<'_, ()> {
        Box::pin(async move { ask(&self.store, Ask::ChangeRegion { region, change }).await.map(drop) })
    }

    fn change_store(&self, store: u64, change: StoreRequest) -> Answer<'_, ()> {
        Box::pin(async move { ask(&self.store, Ask::ChangeStore { store, change }).await.map(drop) })
    }

    fn check(&self, region: u64) -> Answer<'_, CheckRow> {
        Box::pin(check::ask(&self.store, region))
    }

    fn quarantined(&self) -> Answer<'_, Vec<QuarantineRow>> {
        Box::pin(async { Ok(quarantine::rows(&self.store)) })
    }

    fn quarantine(&self, region: u64, request: QuarantineRequest) -> Answer<'_, ()> {
        Box::pin(quarantine::decide(&self.store, region, request))
    }

    fn fail(&self, region: u64, request: FailRequest) -> Answer<'_, ()> {
        Box::pin(quarantine::ask_to_fail(&self.store, region, request))
    }

    fn explain(&self, region: u64) -> Answer<'_, String> {
        Box::pin(async move { text(ask(&self.store, Ask::Explain { region }).await?) })
    }

    fn explain_store(&self, store: u64) -> Answer<'_, String> {
        Box::pin(async move { text(ask(&self.store, Ask::ExplainStore { store }).await?) })
    }

    fn operators(&self, history: bool) -> Answer<'_, Vec<OperatorRow>> {
        Box::pin(async move {
            let rows = ask(&self.store, Ask::Operators { history }).await?;
            serde_json::from_value(rows).map_err(|e| refuse(502, e.to_string()))
        })
    }

    fn status(&self) -> Answer<'_, StoreStatus> {
        Box::pin(async {
            let store = &self.store;
            let policy = text(ask(store, Ask::Policy).await?)?;
            let settings = store.settings.read().all();
            let fsync = settings.into_iter().find(|(name, _)| *name == "appendfsync");
            Ok(StoreStatus {
                store: store.id,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                uptime_s: store.metrics.started.elapsed().as_secs(),
                cluster_enabled: store.config.cluster_enabled,
                policy,
                fsync: fsync.map(|(_, value)| value).unwrap_or_default(),
                stages: store.metrics.stages(),
                counters: store.metrics.counters(),
            })
        })
    }

    fn slow_device(&self, factor: f64) -> Answer<'_, ()> {
        Box::pin(async move {
            let Some(path) = &self.store.config.device_control else {
                return Err(refuse(409, "this store's device is not emulated"));
            };
            let control = device::Control::open(path).map_err(|e| refuse(500, e.to_string()))?;
            control.set_slow(factor).map_err(|e| refuse(400, e.to_string()))
        })
    }

    fn probe(&self) -> Answer<'_, ProbeRow> {
        Box::pin(async {
            let store = &self.store;
            let (load_ops_per_s, _) = store.metrics.recent();
            let probed =
                capability::probe(&store.measurer(), Probe::Full, Some(TURN_MAX)).await.map_err(|error| {
                    let status = match error {
                        NotProbed::UnderWay | NotProbed::NoTurn | NotProbed::NoRoom { .. } => 409,
                        NotProbed::Failed(_) | NotProbed::NoThread => 500,
                    };
                    refuse(status, error.to_string())
                })?;
            let measured = probed.measured;
            let counts = store.capability.counts_for(&measured);
            let method = serde_json::to_value(measured.method).expect("plain data");
            Ok(ProbeRow {
                store: store.id,
                method: method.as_str().unwrap_or_default().to_owned(),
                io_bytes_per_s: measured.write_bytes_per_s,
                sync_us: measured.sync_latency.as_secs_f64() * 1e6,
                read_us: measured.read_latency.as_secs_f64() * 1e6,
                capability_bytes_per_s: counts.kv_bytes_per_s,
                ops_per_s: counts.ops_per_s,
                told: store.capability.is_told(),
                kept: probed.is_reference,
                load_ops_per_s,
            })
        })
    }

    fn accept_loss(&self, region: Option<u64>) -> Answer<'_, Vec<AcceptedRow>> {
        let store = self.store.clone();
        let accept = move || {
            let damaged = region.filter(|&region| quarantine::is_damaged(&store, region));
            if let Some(region) = damaged {
                return quarantine::accept_damage(&store, region).map(|row| vec![row]);
            }
            if region.is_some_and(|region| store.cluster.has_live_leader(region)) {
                return Err(refuse(409, "the region has a leader, which has this store's peer replaced"));
            }
            let wanted = |of: RegionId| match region {
                Some(region) => of == region,
                None => !store.cluster.has_live_leader(of),
            };
            let taken = store.unsynced.accept(wanted, &store.worker, store.wall.millis()).map_err(
                |error| match error {
                    NotTaken::Nothing => refuse(409, "no such peer of this store may have forgotten writes"),
                    NotTaken::RestartFirst => refuse(
                        409,
                        "the damage to the log was found while the store runs: restart the store, and then accept \
                         the loss",
                    ),
                    NotTaken::Unwritten(error) => {
                        refuse(500, format!("the order cannot be recorded: {error}"))
                    }
                },
            )?;
            let row =
                |Taken { region, peer, last }: Taken| AcceptedRow { store: store.id, region, peer, last };
            Ok(taken.into_iter().map(row).collect())
        };
        Box::pin(async move {
            tokio::task::spawn_blocking(accept)
                .await
                .unwrap_or_else(|error| Err(refuse(500, error.to_string())))
        })
    }

    fn recover(&self, request: RecoverRequest) -> Answer<'_, RecoverRow> {
        Box::pin(recover::recover(&self.store, request))
    }

    fn recoveries(&self) -> Answer<'_, Vec<RecoveryRow>> {
        Box::pin(async { Ok(recover::recoveries(&self.store)) })
    }

    fn versions(&self) -> Answer<'_, VersionsRow> {
        Box::pin(versions::versions(&self.store))
    }

    fn healthy(&self) -> bool {
        self.store.is_healthy()
    }

    fn metrics(&self) -> String {
        self.store.metrics.set_snapshots(self.store.snapshots().counts());
        self.store.capability.present().show(&self.store.metrics);
        self.store.metrics.set_clock(&self.store.wall);
        let device = &self.store.hanging;
        self.store.metrics.set_device(device.is_hanging(), device.log_waited(), device.read_waited());
        self.store.metrics.set_cluster_version(self.store.membership.version.get());
        self.store.metrics.set_unsynced(self.store.unsynced.counts());
        self.store.metrics.set_recoveries(self.store.regions.recoveries_here());
        match self.store.engine.rows().stats() {
            Ok(stats) => self.store.metrics.set_engine(&stats),
            Err(error) => tracing::warn!(%error, "the statistics of RocksDB cannot be read"),
        }
        self.store.metrics.text()
    }
}

fn text(value: Value) -> Result<String, AdminError> {
    value.as_str().map(str::to_owned).ok_or_else(|| refuse(502, "an answer of an unexpected kind"))
}

fn store_rows(store: &Store) -> Vec<StoreRow> {
    let now = clock::boot_nanos();
    let (members, regions) = (store.membership.members(), store.regions.of_users());
    let quarantined = quarantine::rows(store);
    let rows = members.list.iter().map(|member| {
        let heard = store.cluster.heard(member.id);
        let (at, heartbeat) = heard.map_or((None, Default::default()), |(at, beat)| (Some(at), beat));
        let up = store.cluster.is_heard(member.id);
        let leads = |region: &&Arc<crate::regions::RegionShared>| region.leader() == Some(member.id);
        let record = members.record(member.id);
        let cpu = heartbeat.cpu.filter(|_| up);
        let standing = store.cluster.standing(member.id);
        let standing = standing.as_ref();
        let stores =
            |of: fn(&cluster::Standing) -> &Vec<StoreId>| standing.map_or(Vec::new(), |s| of(s).clone());
        StoreRow {
            id: member.id,
            state: match record.map(|record| record.state) {
                Some(StoreState::Removed) => "removed",
                _ if up && heartbeat.stopping => "stopping",
                _ if up && heartbeat.hanging => "hanging",
                Some(StoreState::Draining) if up => "draining",
                _ if up && heartbeat.out_of_room => "out of room",
                _ if up && heartbeat.clock_off => "clock off",
                _ if up => "up",
                _ => "down",
            }
            .to_owned(),
            client: member.client.to_string(),
            peer: member.peer.to_string(),
            admin: member.admin.to_string(),
            forward: member.forward.map(|address| address.to_string()),
            device: member.device.clone(),
            capability_bytes_per_s: match standing {
                Some(standing) => standing.capability.kv_bytes_per_s,
                None => crate::config::capability_of(member).kv_bytes_per_s,
            },
            capability_spread: standing.map_or(0.0, |standing| standing.spread.kv_bytes_per_s),
            io_bytes_per_s: heartbeat.io_bytes_per_s,
            sync_us: standing.map_or(0, |standing| standing.sync_ns) as f64 / 1e3,
            correction: standing.map_or(1.0, |standing| standing.correction),
            shares_device_with: stores(|standing| &standing.shares_device_with),
            shares_host_with: stores(|standing| &standing.shares_host_with),
            data_weight: record.and_then(|record| record.data_weight),
            leader_weight: record.and_then(|record| record.leader_weight),
            leaders: regions.iter().filter(leads).count(),
            regions: regions.iter().filter(|r| r.newest().has_peer_on(member.id)).count(),
            used_bytes: heartbeat.used_bytes,
            capacity_bytes: heartbeat.capacity_bytes,
            unapplied_bytes: heartbeat.unapplied_bytes,
            behind: placement::is_behind(
                standing.map_or(heartbeat.capability, |standing| standing.capability),
                heartbeat.unapplied_bytes,
                &store.config.limits,
            ),
            clock_offset_ms: match member.id == store.id {
                true => store.wall.offset_ms(),
                false => store.wall.offset_of(member.id).filter(|_| up),
            },
            clock_off: up && heartbeat.clock_off,
            cpu_cores: cpu.map(|cpu| cpu.cores),
            cpu_busy: cpu.map(|cpu| cpu.busy),
            cpu_own_cores: cpu.map(|cpu| cpu.own),
            // The last heartbeat of a silent store says nothing about its present load.
            ops_per_s: if up { heartbeat.load_ops_per_s } else { 0.0 },
            p99_us: if up { heartbeat.p99_us } else { 0 },
            quarantined: quarantined.iter().filter(|row| row.store == member.id).count(),
            heard_ms_ago: at.map(|at| now.saturating_sub(at) / 1_000_000),
        }
    });
    rows.collect()
}

fn region_rows(store: &Store) -> Vec<RegionRow> {
    let (leads, loads) = (store.cluster.leads(), store.cluster.loads());
    let (quarantined, unclean) = (quarantine::rows(store), store.unsynced.unclean());
    let regions = store.regions.all();
    let rows = regions.iter().map(|region| {
        let (load, bytes) = loads.get(&region.id()).copied().unwrap_or_default();
        let descriptor = region.newest();
        let lead = leads.get(&region.id());
        let leadership = region.leadership();
        let peers = descriptor.peers.iter().map(|peer| PeerRow {
            store: peer.store,
            id: peer.id,
            role: match peer.role {
                types::PeerRole::Voter => "voter",
                types::PeerRole::Learner => "learner",
                types::PeerRole::Incoming => "incoming",
                types::PeerRole::Outgoing => "outgoing",
            }
            .to_owned(),
            lag: lead.and_then(|lead| lead.lag_of(peer.store)),
            quarantined: quarantined
                .iter()
                .find(|row| (row.region, row.store) == (region.id(), peer.store))
                .map(|row| row.cause.clone()),
            unclean: store.cluster.is_unclean(&descriptor, peer.store)
                || peer.store == store.id && unclean.get(&region.id()) == Some(&peer.id),
        });
        RegionRow {
            id: region.id(),
            first_slot: descriptor.slots.map(|slots| slots.first),
            last_slot: descriptor.slots.map(|slots| slots.last),
            epoch_conf_version: descriptor.epoch.conf_version,
            epoch_version: descriptor.epoch.version,
            joint: descriptor.is_joint(),
            leader: leadership.leader,
            term: leadership.term,
            peers: peers.collect(),
            keys: lead.map_or(0, |lead| lead.keys),
            bytes,
            read_rate: load.read_rate,
            miss_rate: load.miss_rate,
            write_rate: load.write_rate,
            heat: load.heat,
        }
    });
    rows.collect()
}
