//! The cluster as this store knows it: the meta region's state, if this store holds a peer of it,
//! and the recent heartbeats of all stores. Only the leader of the meta region plans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use cluster::admin::AuditRows;
use cluster::{
    AuditRecord, Driver, DriverConfig, InFlight, Ledger, LedgerConfig, MemberState, MetaCommand, MetaError,
    MetaReply, MetaState, Neighbours, Quarantine, Route, Setting, SettingError, Standing, StartError, Step,
    StoreFacts, StoreHeartbeat, StoreKey, StoreRecord, StoreVersions, TurnGrant, Turns, Upgrade, UpgradeStep,
};
use node::merged::Merged;
use parking_lot::Mutex;
use placement::{Operator, PlanLimits, Policy};
use resp::Reply;
use storage::{Reader, Txn};
use tokio::sync::Notify;
use types::{
    BootNanos, RegionDescriptor, RegionId, SlotRange, StoreId, Term, Version, META_REGION, NEWEST_VERSION,
    OLDEST_VERSION,
};

use crate::clock;
use crate::config::{facts_of, Config};
use crate::functions::AgreedLibraries;
use crate::members::AgreedMembers;

/// The silence in nanoseconds after which a store is down for placement and routing.
const DOWN_AFTER_NANOS: u64 = 3_000_000_000;

pub struct ClusterState {
    parts: Mutex<Parts>,
    limits: PlanLimits,
    newcomers: AtomicBool,
    /// True if another store has room and may lead, according to recent heartbeats.
    room_elsewhere: AtomicBool,
    this: StoreId,
    /// Requests that the next heartbeat be sent at once.
    pub report_soon: Arc<Notify>,
}

struct Parts {
    meta: MetaState,
    ledger: Ledger,
    driver: Driver,
    turns: Turns,
    upgrade: Upgrade,
}

/// An operator in flight or ended, as `ctl` shows it.
pub struct OperatorEntry {
    pub operator: Operator,
    pub state: String,
    pub started_unix_ms: u64,
    pub finished_unix_ms: Option<u64>,
}

impl ClusterState {
    /// Creates the state. `meta` is read from the rows; it is the default if this store has no peer
    /// of the meta region.
    pub fn new(meta: MetaState, config: &Config) -> ClusterState {
        let times = LedgerConfig {
            down_after_nanos: DOWN_AFTER_NANOS,
            replace_after_nanos: config.replace_after.as_nanos() as u64,
        };
        let ledger = Ledger::new(clock::boot_nanos(), times);
        let parts = Parts {
            meta,
            ledger,
            driver: Driver::new(DriverConfig::default()),
            turns: Turns::default(),
            upgrade: Upgrade::default(),
        };
        ClusterState {
            parts: Mutex::new(parts),
            limits: config.limits,
            newcomers: AtomicBool::new(false),
            room_elsewhere: AtomicBool::new(false),
            this: config.this().id,
            report_soon: Arc::default(),
        }
    }

    /// Applies an entry of the meta region. Returns the proposer's reply, an encoded `MetaReply`.
    pub fn apply(&self, entry: &Bytes, txn: &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>> {
        let mut parts = self.parts.lock();
        let before = parts.meta.members_version;
        let outcome = cluster::apply_entry(entry, &mut parts.meta, txn)?;
        if let Some(InFlight { id, operator, .. }) = begun(&parts, &outcome, self.this) {
            tracing::info!("operator {id}: {operator}");
        }
        if parts.meta.members_version != before {
            self.report_soon.notify_one();
        }
        Ok(vec![Some(match outcome {
            Ok(reply) => Reply::Bulk(reply.encode()),
            Err(error) => Reply::error(format!("ERR {error}")),
        })])
    }

    /// Reloads the meta region's state, because a snapshot has replaced its rows.
    pub fn reload(&self, rows: &dyn Reader) -> storage::Result<()> {
        let meta = MetaState::load(rows)?;
        self.parts.lock().meta = meta;
        self.report_soon.notify_one();
        Ok(())
    }

    /// Records a heartbeat of this or another store. Returns false if a later one is known.
    pub fn hear(&self, heartbeat: StoreHeartbeat) -> bool {
        let mut parts = self.parts.lock();
        let before = parts.ledger.heard(heartbeat.store).map(|heard| heard.heartbeat.incarnation);
        if before != Some(heartbeat.incarnation) {
            self.newcomers.store(true, Ordering::Release);
        }
        let now = clock::boot_nanos();
        let is_news = parts.ledger.hear(heartbeat, now);
        let Parts { meta, ledger, .. } = &*parts;
        let mut others =
            meta.members().filter(|store| store.id != self.this && store.state == MemberState::Up);
        self.room_elsewhere.store(others.any(|store| ledger.may_lead(store.id, now)), Ordering::Relaxed);
        is_news
    }

    /// Returns true if the first heartbeat of a store arrived since the last call. Such a store
    /// needs a full heartbeat.
    pub fn take_newcomers(&self) -> bool {
        self.newcomers.swap(false, Ordering::AcqRel)
    }

    pub fn learn(&self, region: RegionId, route: Route) {
        self.parts.lock().ledger.learn(region, route);
    }

    pub fn is_up(&self, store: StoreId, now: BootNanos) -> bool {
        self.parts.lock().ledger.is_up(store, now)
    }

    /// Returns true if a recent heartbeat of the store arrived. Always true for this store.
    pub fn is_heard(&self, store: StoreId) -> bool {
        store == self.this || self.is_up(store, clock::boot_nanos())
    }

    /// Returns true if the store may get new peers and leaders: it is up and not about to stop.
    pub fn takes_on(&self, store: StoreId) -> bool {
        self.parts.lock().ledger.takes_on(store, clock::boot_nanos())
    }

    pub fn is_room_elsewhere(&self) -> bool {
        self.room_elsewhere.load(Ordering::Relaxed)
    }

    /// Returns the time of a store's last heartbeat, and the incarnation that sent it.
    pub fn heard_from(&self, store: StoreId) -> Option<(BootNanos, u64)> {
        self.parts.lock().ledger.heard(store).map(|heard| (heard.at, heard.heartbeat.incarnation))
    }

    /// Returns a store's last heartbeat and its time.
    pub fn heard(&self, store: StoreId) -> Option<(BootNanos, StoreHeartbeat)> {
        let parts = self.parts.lock();
        parts.ledger.heard(store).map(|heard| (heard.at, heard.heartbeat.clone()))
    }

    /// Returns the store's share of its device; `None` before the store's first heartbeat.
    pub fn standing(&self, store: StoreId) -> Option<Standing> {
        self.parts.lock().ledger.standing(store, clock::boot_nanos())
    }

    /// Returns the activity of the other stores on this store's device.
    pub fn neighbours(&self) -> Neighbours {
        self.parts.lock().ledger.neighbours(self.this, clock::boot_nanos())
    }

    /// Grants turns to measure, if this store leads the meta region.
    pub fn grant_turns(&self, leads: bool) -> Vec<TurnGrant> {
        let mut parts = self.parts.lock();
        let Parts { ledger, turns, .. } = &mut *parts;
        if leads {
            return turns.step(ledger, clock::boot_nanos());
        }
        turns.stop();
        Vec::new()
    }

    /// Returns true if the last heartbeat of `leader` grants a request.
    pub fn is_granted_by(&self, leader: StoreId, grant: TurnGrant) -> bool {
        let parts = self.parts.lock();
        parts.ledger.heard(leader).is_some_and(|heard| heard.heartbeat.grants.contains(&grant))
    }

    /// Drops a store that left the cluster.
    pub fn forget(&self, store: StoreId) {
        self.parts.lock().ledger.forget(store);
    }

    /// Returns the last reports of the regions' present leaders.
    pub fn leads(&self) -> BTreeMap<RegionId, cluster::LeadReport> {
        let parts = self.parts.lock();
        let regions = parts.ledger.routes().iter().map(|(region, _)| region);
        regions.filter_map(|region| Some((region, parts.ledger.lead(region)?.clone()))).collect()
    }

    /// Returns the quarantined peers of all stores, as last reported, by region and store.
    pub fn quarantined(&self) -> BTreeMap<(RegionId, StoreId), Quarantine> {
        let parts = self.parts.lock();
        let of_store = |heard: &cluster::Heard| {
            let (store, told) = (heard.heartbeat.store, heard.heartbeat.quarantined.clone());
            told.into_iter().map(move |(region, held)| ((region, store), held))
        };
        parts.ledger.all_heard().flat_map(of_store).collect()
    }

    /// Returns true if the store reports that its peer of the region may have lost writes.
    pub fn is_unclean(&self, region: &RegionDescriptor, store: StoreId) -> bool {
        self.parts.lock().ledger.is_unclean(region, store)
    }

    /// Returns the stores whose peer of the region is quarantined, as last reported.
    pub fn quarantined_on(&self, region: RegionId) -> Vec<StoreId> {
        self.parts.lock().ledger.quarantined(region).map(|(store, _)| store).collect()
    }

    /// Returns true if a store that is up reports that it leads the region.
    pub fn has_live_leader(&self, region: RegionId) -> bool {
        self.without_live_leader([region]).is_empty()
    }

    /// Returns the regions without a live leader: no store that is up reports that it leads them.
    pub fn without_live_leader(&self, regions: impl IntoIterator<Item = RegionId>) -> Vec<RegionId> {
        self.parts.lock().ledger.without_live_leader(regions, clock::boot_nanos())
    }

    /// Returns each region's load and its size in bytes, as placement counts them: the load
    /// includes the reports of stores that recently led the region.
    pub fn loads(&self) -> BTreeMap<RegionId, (cluster::Load, u64)> {
        let now = clock::boot_nanos();
        let parts = self.parts.lock();
        let ledger = &parts.ledger;
        let regions = ledger.routes().iter().map(|(region, _)| region);
        regions.map(|region| (region, (ledger.load(region, now), ledger.bytes(region)))).collect()
    }

    pub fn is_bootstrapped(&self) -> bool {
        self.parts.lock().meta.is_bootstrapped()
    }

    pub fn cluster_id(&self) -> Option<u64> {
        self.parts.lock().meta.cluster_id
    }

    pub fn policy(&self) -> Policy {
        self.parts.lock().meta.policy
    }

    pub fn settings(&self) -> Vec<Setting> {
        self.parts.lock().meta.settings()
    }

    /// Returns the cluster's version, according to the meta region's rows here.
    pub fn version(&self) -> Version {
        self.parts.lock().meta.version
    }

    /// Returns the answer to a store that asks which of these regions have merged away.
    pub fn merged_away(&self, asked: &[(RegionId, SlotRange)]) -> Vec<Merged> {
        node::merged::answer(&self.parts.lock().meta, asked)
    }

    /// Returns the stores that were not removed.
    pub fn members(&self) -> Vec<StoreId> {
        self.parts.lock().meta.members().map(|store| store.id).collect()
    }

    /// Returns true if the cluster's version rises automatically.
    pub fn finishes_upgrades(&self) -> bool {
        self.parts.lock().meta.finishes_upgrades()
    }

    /// Returns the next step of the rise of the version, as the leader of the meta region.
    pub fn upgrade_step(&self) -> UpgradeStep {
        let parts = self.parts.lock();
        parts.upgrade.step(&parts.meta, NEWEST_VERSION, clock::boot_nanos())
    }

    pub fn hear_versions(&self, store: StoreId, versions: StoreVersions) {
        self.parts.lock().upgrade.hear(store, versions, clock::boot_nanos());
    }

    /// Returns the last answer of each member, if it is still valid.
    pub fn versions(&self) -> Vec<(StoreId, Option<StoreVersions>)> {
        let (parts, now) = (self.parts.lock(), clock::boot_nanos());
        parts.meta.members().map(|store| (store.id, parts.upgrade.heard(store.id, now))).collect()
    }

    /// Drops the stores' answers, because another store leads the meta region.
    pub fn forget_versions(&self) {
        self.parts.lock().upgrade.forget();
    }

    /// Returns the members whose heartbeats do not confirm the latest list of stores, with its
    /// settings.
    pub fn stores_behind(&self) -> Vec<StoreId> {
        let parts = self.parts.lock();
        let version = parts.meta.members_version;
        let knows = |id: StoreId| {
            let heard = parts.ledger.heard(id);
            heard.is_some_and(|heard| heard.heartbeat.members_version >= version)
        };
        parts.meta.members().map(|store| store.id).filter(|&id| !knows(id)).collect()
    }

    /// Returns the command that changes a setting.
    pub fn set(&self, name: &str, value: &str) -> Result<MetaCommand, SettingError> {
        let parts = self.parts.lock();
        let has_session = |store| parts.ledger.heard(store).is_some_and(|heard| heard.heartbeat.has_session);
        parts.meta.set_with_sessions(name, value, has_session)
    }

    /// Returns the command that changes these thresholds of collections.
    pub fn set_thresholds(&self, values: &BTreeMap<String, String>) -> Result<MetaCommand, SettingError> {
        self.parts.lock().meta.set_thresholds(values)
    }

    /// Returns the list of stores and their settings, if the meta region's rows here have a later
    /// version than `known`.
    pub fn members_after(&self, known: u64) -> Option<AgreedMembers> {
        let parts = self.parts.lock();
        (parts.meta.members_version > known).then(|| AgreedMembers::of(&parts.meta))
    }

    /// Returns the version of the libraries of functions in the meta region's rows here.
    pub fn libraries_version(&self) -> u64 {
        self.parts.lock().meta.libraries_version
    }

    /// Returns the libraries in those rows, without those that are `known` in the same version.
    pub fn libraries(&self, known: &BTreeMap<String, u64>) -> AgreedLibraries {
        let parts = self.parts.lock();
        let all = &parts.meta.libraries;
        let unknown = all.iter().filter(|(name, library)| known.get(*name) != Some(&library.since));
        AgreedLibraries {
            version: parts.meta.libraries_version,
            names: all.iter().map(|(name, library)| (name.clone(), library.since)).collect(),
            libraries: unknown.map(|(name, library)| (name.clone(), library.clone())).collect(),
        }
    }

    /// Returns the last records of the audit log in the meta region's rows here.
    pub fn audit(&self, last: usize) -> AuditRows {
        let parts = self.parts.lock();
        let mut records: Vec<AuditRecord> = parts.meta.audit.records().rev().take(last).cloned().collect();
        records.reverse();
        AuditRows { first: parts.meta.first_audit_id(), records }
    }

    /// Returns true if a store has or had this key.
    pub fn knows_key(&self, key: StoreKey) -> bool {
        self.parts.lock().meta.with_key(key).is_some()
    }

    /// Returns another live member with the same address for stores or for clients.
    pub fn live_at(&self, facts: &StoreFacts) -> Option<StoreId> {
        let parts = self.parts.lock();
        let now = clock::boot_nanos();
        let is_there = |store: &&StoreRecord| {
            let known = &store.facts;
            let meets = known.peer == facts.peer || known.client == facts.client;
            meets && known.key != facts.key && (store.id == self.this || parts.ledger.is_up(store.id, now))
        };
        let mut members = parts.meta.members();
        members.find(is_there).map(|store| store.id)
    }

    /// Runs one round of planning, as the leader of the meta region in `term`.
    pub fn plan(&self, term: Term) -> Step {
        let mut parts = self.parts.lock();
        let Parts { meta, ledger, driver, .. } = &mut *parts;
        let step = driver.step(meta, ledger, &self.limits, term, clock::boot_nanos());
        for command in &step.commands {
            if let MetaCommand::FinishOperator { id, outcome } = command {
                tracing::info!("operator {id}: {outcome}");
            }
        }
        step
    }

    /// Returns the command that begins a requested operator.
    pub fn request(&self, operator: Operator) -> Result<MetaCommand, StartError> {
        let mut parts = self.parts.lock();
        let Parts { meta, ledger, driver, .. } = &mut *parts;
        driver.request(meta, ledger, operator, clock::boot_nanos())
    }

    /// Returns a region's leader, according to heartbeats.
    pub fn leader_of(&self, region: RegionId) -> Option<StoreId> {
        self.parts.lock().ledger.routes().get(region).map(|route| route.leader)
    }

    pub fn may_drain(&self, store: StoreId) -> Result<(), cluster::DrainError> {
        let parts = self.parts.lock();
        cluster::may_drain(&parts.meta, &parts.ledger, store, clock::boot_nanos())
    }

    /// Returns the pinned weights of a store, for data and for leaders.
    pub fn pins(&self, store: StoreId) -> (Option<f64>, Option<f64>) {
        let parts = self.parts.lock();
        parts
            .meta
            .stores
            .get(&store)
            .map_or((None, None), |record| (record.data_weight, record.leader_weight))
    }

    /// Drops the planning state, because another store plans from now on.
    pub fn stop_planning(&self) {
        self.parts.lock().driver.forget();
    }

    pub fn explain(&self, region: RegionId) -> Option<placement::Explanation> {
        let parts = self.parts.lock();
        let view = cluster::view(&parts.meta, &parts.ledger, &parts.driver, clock::boot_nanos());
        placement::explain(&view, parts.meta.policy, &self.limits, region)
    }

    pub fn explain_store(&self, store: StoreId) -> Result<placement::StoreExplanation, MetaError> {
        let parts = self.parts.lock();
        let view = cluster::view(&parts.meta, &parts.ledger, &parts.driver, clock::boot_nanos());
        let explanation = placement::explain_store(&view, parts.meta.policy, &self.limits, store);
        // The view contains only members.
        explanation.ok_or_else(|| parts.meta.member(store).err().unwrap_or(MetaError::UnknownStore(store)))
    }

    /// Returns the operators in flight, preceded by the ended ones if `history` is true.
    pub fn operators(&self, history: bool) -> Vec<OperatorEntry> {
        let parts = self.parts.lock();
        let ended = parts.meta.history.values().filter(|_| history).map(|finished| OperatorEntry {
            operator: finished.operator.clone(),
            state: finished.outcome.to_string(),
            started_unix_ms: finished.started_ms,
            finished_unix_ms: Some(finished.finished_ms),
        });
        let running = parts.meta.operators.values().map(|flight| OperatorEntry {
            operator: flight.operator.clone(),
            state: match flight.phase {
                cluster::Phase::Going | cluster::Phase::Bound => "in flight".into(),
                cluster::Phase::Undoing { because } => format!("{because}; being undone"),
            },
            started_unix_ms: flight.started_ms,
            finished_unix_ms: None,
        });
        ended.chain(running).collect()
    }
}

/// Returns an operator that has just begun, if this store leads the meta region. Every peer of that
/// region applies the entry, possibly again after a restart, but only the leader logs it.
fn begun<'a>(
    parts: &'a Parts,
    outcome: &Result<MetaReply, MetaError>,
    this: StoreId,
) -> Option<&'a InFlight> {
    let leads = parts.ledger.routes().get(META_REGION).is_some_and(|route| route.leader == this);
    match outcome {
        Ok(MetaReply::Begun { id }) if leads => parts.meta.operators.get(id),
        _ => None,
    }
}

/// Returns the command that creates the cluster's state from the configuration. Other stores'
/// entries hold only their addresses; those stores report the rest themselves.
pub fn bootstrap_command(
    config: &Config,
    key: StoreKey,
    cluster_id: u64,
    regions: Vec<RegionDescriptor>,
) -> MetaCommand {
    let record = |member: &crate::config::Member| {
        let own = (member.id == config.store).then_some(key);
        StoreRecord::new(member.id, facts_of(member, own))
    };
    let settings = [(cluster::CONFIG_REPLICAS, config.replicas.to_string())];
    MetaCommand::Bootstrap {
        cluster_id,
        stores: config.members.iter().map(record).collect(),
        regions,
        policy: config.policy,
        config: settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        // The version rises once the other stores have answered that they support a newer one.
        version: OLDEST_VERSION,
    }
}

#[cfg(test)]
mod tests;
