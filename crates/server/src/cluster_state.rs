//! What this store knows of the cluster: the meta region's state where it holds a peer of it, and what
//! all stores have lately said. The leader of the meta region, and only it, plans.

use std::collections::BTreeMap;

use bytes::Bytes;
use cluster::{
    Driver, DriverConfig, Ledger, MetaCommand, MetaState, Now, Route, StartError, StoreHeartbeat, StoreRecord,
};
use parking_lot::Mutex;
use placement::{Operator, PlanLimits, Policy};
use resp::Reply;
use storage::Txn;
use tokio::sync::Notify;
use types::{BootNanos, RegionDescriptor, RegionId, StoreId};

use crate::clock;
use crate::config::{Config, Member};

/// A store that was not heard of for this long is down for placement and routing.
const DOWN_AFTER_NANOS: u64 = 3_000_000_000;

pub struct ClusterState {
    parts: Mutex<Parts>,
    limits: PlanLimits,
    /// Rung when the next heartbeat should not wait for its turn.
    pub report_soon: Notify,
}

struct Parts {
    meta: MetaState,
    ledger: Ledger,
    driver: Driver,
}

/// What `ctl` shows of an operator, whether it has ended or not.
pub struct OperatorEntry {
    pub operator: Operator,
    pub state: String,
    pub started_unix_ms: u64,
    pub finished_unix_ms: Option<u64>,
}

impl ClusterState {
    /// `meta` is what the rows hold; the default where this store has no peer of the meta region.
    pub fn new(meta: MetaState) -> ClusterState {
        let ledger = Ledger::new(clock::boot_nanos(), DOWN_AFTER_NANOS);
        let parts = Parts { meta, ledger, driver: Driver::new(DriverConfig::default()) };
        // Only leaders move.
        let limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
        ClusterState { parts: Mutex::new(parts), limits, report_soon: Notify::new() }
    }

    /// Applies an entry of the meta region; the reply is the proposer's.
    pub fn apply(&self, entry: &Bytes, txn: &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>> {
        let outcome = cluster::apply_entry(entry, &mut self.parts.lock().meta, txn)?;
        Ok(vec![Some(match outcome {
            Ok(_) => Reply::OK,
            Err(error) => Reply::error(format!("ERR {error}")),
        })])
    }

    /// Takes in another store's heartbeat, or this store's own. False: it was not news.
    pub fn hear(&self, heartbeat: StoreHeartbeat) -> bool {
        self.parts.lock().ledger.hear(heartbeat, clock::boot_nanos())
    }

    pub fn learn(&self, region: RegionId, route: Route) {
        self.parts.lock().ledger.learn(region, route);
    }

    pub fn is_up(&self, store: StoreId, now: BootNanos) -> bool {
        self.parts.lock().ledger.is_up(store, now)
    }

    /// The last heartbeat of a store, and when it came.
    pub fn heard(&self, store: StoreId) -> Option<(BootNanos, StoreHeartbeat)> {
        let parts = self.parts.lock();
        parts.ledger.heard(store).map(|heard| (heard.at, heard.heartbeat.clone()))
    }

    /// The last reports of the regions' present leaders.
    pub fn leads(&self) -> BTreeMap<RegionId, cluster::LeadReport> {
        let parts = self.parts.lock();
        let regions = parts.ledger.routes().iter().map(|(region, _)| region);
        regions.filter_map(|region| Some((region, parts.ledger.lead(region)?.clone()))).collect()
    }

    pub fn is_bootstrapped(&self) -> bool {
        self.parts.lock().meta.is_bootstrapped()
    }

    pub fn policy(&self) -> Policy {
        self.parts.lock().meta.policy
    }

    /// One round of planning; the operators are to be sent out.
    pub fn plan(&self) -> Vec<Operator> {
        let mut parts = self.parts.lock();
        let Parts { meta, ledger, driver } = &mut *parts;
        driver.step(meta, ledger, &self.limits, now())
    }

    /// Begins a move that an operator asked for.
    pub fn request(&self, region: RegionId, to: StoreId) -> Result<Operator, StartError> {
        let mut parts = self.parts.lock();
        let Parts { meta, ledger, driver } = &mut *parts;
        driver.request(meta, ledger, region, to, now())
    }

    /// Another store plans from now on.
    pub fn stop_planning(&self) {
        self.parts.lock().driver.forget();
    }

    pub fn explain(&self, region: RegionId) -> Option<placement::Explanation> {
        let parts = self.parts.lock();
        let view = cluster::view(&parts.meta, &parts.ledger, &parts.driver, clock::boot_nanos());
        placement::explain(&view, parts.meta.policy, &self.limits, region)
    }

    /// Operators in flight, and before them those that have ended when `history` is asked for.
    pub fn operators(&self, history: bool) -> Vec<OperatorEntry> {
        let parts = self.parts.lock();
        let ended = parts.driver.history().filter(|_| history).map(|finished| OperatorEntry {
            operator: finished.operator.clone(),
            state: finished.outcome.to_string(),
            started_unix_ms: finished.started_unix_ms,
            finished_unix_ms: Some(finished.finished_unix_ms),
        });
        let running = parts.driver.in_flight().map(|flight| OperatorEntry {
            operator: flight.operator.clone(),
            state: "in flight".into(),
            started_unix_ms: flight.started.unix_ms,
            finished_unix_ms: None,
        });
        ended.chain(running).collect()
    }
}

fn now() -> Now {
    Now { boot: clock::boot_nanos(), unix_ms: clock::unix_millis() }
}

/// The command that begins the cluster's state, as the configuration has it.
pub fn bootstrap_command(config: &Config, cluster_id: u64, regions: Vec<RegionDescriptor>) -> MetaCommand {
    MetaCommand::Bootstrap {
        cluster_id,
        stores: config.members.iter().map(record).collect(),
        regions,
        policy: config.policy,
        config: BTreeMap::new(),
        semantics: storage::SEMANTICS_VERSION,
    }
}

fn record(member: &Member) -> StoreRecord {
    StoreRecord {
        id: member.id,
        client: member.client.to_string(),
        peer: member.peer.to_string(),
        admin: member.admin.to_string(),
        forward: member.forward.map(|address| address.to_string()),
        device: member.device.clone(),
        capability: capability_of(member),
        labels: BTreeMap::new(),
    }
}

pub fn capability_of(member: &Member) -> placement::Capability {
    member.capability.map_or(placement::Capability::UNKNOWN, |known| placement::Capability {
        kv_bytes_per_s: known.kv_bytes_per_s,
        ops_per_s: known.ops_per_s,
    })
}
