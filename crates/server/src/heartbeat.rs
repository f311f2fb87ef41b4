//! What stores tell each other several times a second, and what the meta region's leader does about it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{LeadReport, PeerProgress, Route, StoreHeartbeat};
use parking_lot::Mutex;
use placement::Operator;
use tokio::task::JoinSet;
use types::{RegionId, StoreId};

use crate::clock;
use crate::cluster_state::{bootstrap_command, capability_of};
use crate::region::inbox::{ToWorker, Work};
use crate::region::shared::RegionShared;
use crate::store::Store;

const PERIOD: Duration = Duration::from_millis(200);
/// Two heartbeats of which the second was rung for are at least this far apart.
const PERIOD_MIN: Duration = Duration::from_millis(20);
/// Sizes are asked of the engines this often: it walks all files.
const SIZES_PERIOD: Duration = Duration::from_secs(3);
/// Rates are decaying averages over about this long.
const RATE_WINDOW_S: f64 = 5.0;

/// Runs until the task is dropped. Nothing that may take long is awaited here: a heartbeat that is late is a
/// store that is down.
pub async fn run(store: Arc<Store>) {
    let sizes = Arc::new(Mutex::new(Sizes::default()));
    let mut reporter = Reporter::new(sizes.clone());
    // Dropping these ends their tasks.
    let mut measuring = JoinSet::new();
    measuring.spawn(measure(store.clone(), sizes));
    let mut bootstrap = JoinSet::new();
    let mut planned = false;
    loop {
        let heartbeat = reporter.report(&store);
        if store.config.members.len() > 1 {
            store.transport().send_heartbeat(&heartbeat.encode());
        }
        store.cluster.hear(heartbeat);
        forget_the_dead(&store);
        let plans = store.regions.meta().leader() == Some(store.id);
        if plans {
            plan(&store, &mut bootstrap);
        } else if planned {
            store.cluster.stop_planning();
        }
        planned = plans;
        tokio::time::sleep(PERIOD_MIN).await;
        let _ = tokio::time::timeout(PERIOD - PERIOD_MIN, store.cluster.report_soon.notified()).await;
    }
}

/// Takes in another store's report.
pub fn hear(store: &Store, from: StoreId, report: &Bytes) {
    let heartbeat = match StoreHeartbeat::decode(report) {
        Ok(heartbeat) if heartbeat.store == from => heartbeat,
        Ok(_) => return tracing::warn!(from, "a heartbeat in another store's name"),
        Err(error) => return tracing::warn!(from, %error, "a heartbeat cannot be read"),
    };
    let mut held = Vec::new();
    for lead in &heartbeat.leads {
        let Some(region) = store.regions.get(lead.region) else { continue };
        let before = region.leader();
        if region.hear_leader(lead.term, from) {
            store.leader_changed(&region, before);
        }
        if region.is_local() {
            held.push((lead.region, lead.truncate_to));
        }
    }
    if store.cluster.hear(heartbeat) && !held.is_empty() {
        let _ = store.worker.send(ToWorker::HeldByAll { indexes: held });
    }
}

/// A region without a peer here is known by hearsay: when its leader's store falls silent, nobody leads it
/// as far as this store knows.
fn forget_the_dead(store: &Store) {
    for region in store.regions.table().iter().filter(|region| !region.is_local()) {
        if let Some(leader) = region.leader().filter(|leader| !store.is_heard(*leader)) {
            if region.forget_leader(leader) {
                store.leader_changed(region, Some(leader));
            }
        }
    }
}

/// As the leader of the meta region: begins the cluster's state, and moves what should be elsewhere.
fn plan(store: &Arc<Store>, bootstrap: &mut JoinSet<()>) {
    if store.cluster.is_bootstrapped() {
        for operator in store.cluster.plan() {
            send_out(store, &operator);
        }
        return;
    }
    // One attempt at a time; what came of it, the cluster's state says.
    while bootstrap.try_join_next().is_some() {}
    if bootstrap.is_empty() {
        bootstrap.spawn(propose_bootstrap(store.clone()));
    }
}

async fn propose_bootstrap(store: Arc<Store>) {
    let regions = store.regions.table().iter().map(|region| (*region.newest()).clone()).collect();
    // Any number will do that no other cluster has: the first leader's clock and the layout.
    let cluster_id = store.layout_digest ^ clock::unix_micros();
    let command = bootstrap_command(&store.config, cluster_id, regions);
    let deadline = Instant::now() + store.config.request_timeout;
    let _ = store.submit(store.regions.meta(), Work::Meta(command.encode()), deadline).await;
}

/// Gives an operator to the store that carries it out: the region's present leader.
pub fn send_out(store: &Store, operator: &Operator) {
    tracing::info!(%operator, "operator");
    let Operator::TransferLeader { region, from, to, .. } = operator else { return };
    if *from == store.id {
        let _ = store.worker.send(ToWorker::TransferLeader { region: *region, to: *to });
    } else {
        store.transport().send_order(*from, *region, *to);
    }
}

/// What the engines said when they were last asked.
#[derive(Default)]
struct Sizes {
    used_bytes: u64,
    regions: HashMap<RegionId, u64>,
}

/// Keeps `sizes` up to date until the task is dropped.
async fn measure(store: Arc<Store>, sizes: Arc<Mutex<Sizes>>) {
    loop {
        let measured = store.clone();
        let measuring = tokio::task::spawn_blocking(move || {
            let local: Vec<_> = measured
                .user_regions()
                .into_iter()
                .filter(|region| region.is_local())
                .filter_map(|region| Some((region.id(), region.slots()?)))
                .collect();
            let ranges: Vec<_> = local.iter().map(|(_, slots)| *slots).collect();
            let bytes = measured.engine.bytes_of(&ranges);
            Sizes {
                used_bytes: measured.engine.used_bytes(),
                regions: local.into_iter().map(|(id, _)| id).zip(bytes).collect(),
            }
        });
        if let Ok(now) = measuring.await {
            *sizes.lock() = now;
        }
        tokio::time::sleep(SIZES_PERIOD).await;
    }
}

struct Reporter {
    incarnation: u64,
    seq: u64,
    sizes: Arc<Mutex<Sizes>>,
    rates: HashMap<RegionId, Rates>,
    rated_at: Instant,
}

#[derive(Default)]
struct Rates {
    reads: u64,
    writes: u64,
    reads_per_s: f64,
    writes_per_s: f64,
}

impl Reporter {
    fn new(sizes: Arc<Mutex<Sizes>>) -> Reporter {
        Reporter {
            incarnation: clock::unix_millis(),
            seq: 0,
            sizes,
            rates: HashMap::new(),
            rated_at: Instant::now(),
        }
    }

    fn report(&mut self, store: &Store) -> StoreHeartbeat {
        self.seq += 1;
        let (load_ops_per_s, p99_us) = store.metrics.recent();
        let seconds = self.rated_at.elapsed().as_secs_f64().max(1e-3);
        self.rated_at = Instant::now();
        let mut leads = Vec::new();
        for region in store.regions.all().iter().filter(|region| region.is_local()) {
            self.rates.entry(region.id()).or_default().advance(region, seconds);
            let leadership = region.leadership();
            if let Some(leader) = leadership.leader {
                store.cluster.learn(region.id(), Route { term: leadership.term, leader });
            }
            if leadership.leader == Some(store.id) {
                leads.extend(self.lead(store, region));
            }
        }
        StoreHeartbeat {
            store: store.id,
            incarnation: self.incarnation,
            seq: self.seq,
            capability: capability_of(store.config.this()),
            capacity_bytes: store.disk.total(),
            used_bytes: self.sizes.lock().used_bytes,
            load_ops_per_s,
            p99_us,
            leads,
        }
    }

    fn lead(&self, store: &Store, region: &RegionShared) -> Option<LeadReport> {
        let status = region.status()?;
        if status.leader != Some(store.id) {
            return None;
        }
        let rates = self.rates.get(&region.id())?;
        Some(LeadReport {
            region: region.id(),
            epoch: region.descriptor().epoch,
            term: status.term,
            commit: status.commit,
            applied: status.applied,
            bytes: self.sizes.lock().regions.get(&region.id()).copied().unwrap_or(0),
            keys: store.engine.keys_in_region(region.id()),
            write_rate: rates.writes_per_s,
            read_rate: rates.reads_per_s,
            truncate_to: status.min_matched().unwrap_or(0),
            peers: status.matched.iter().map(|(&store, &matched)| PeerProgress { store, matched }).collect(),
        })
    }
}

impl Rates {
    fn advance(&mut self, region: &RegionShared, seconds: f64) {
        let (reads, writes) = (region.reads.load(Ordering::Relaxed), region.writes.load(Ordering::Relaxed));
        let weight = 1.0 - (-seconds / RATE_WINDOW_S).exp();
        let blend = |old: f64, count: u64| old + weight * (count as f64 / seconds - old);
        self.reads_per_s = blend(self.reads_per_s, reads - self.reads);
        self.writes_per_s = blend(self.writes_per_s, writes - self.writes);
        (self.reads, self.writes) = (reads, writes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::region::shared::Leadership;

    #[test]
    fn a_steady_rate_is_reached_and_decays_after_the_load_ends() {
        let descriptor = types::RegionDescriptor::founded(1, None, &[]);
        let region = RegionShared::new(descriptor, true);
        let mut rates = Rates::default();
        for _ in 0..150 {
            region.writes.fetch_add(200, Ordering::Relaxed);
            rates.advance(&region, 0.2);
        }
        assert!((rates.writes_per_s - 1000.0).abs() < 10.0, "{}", rates.writes_per_s);
        assert_eq!(rates.reads_per_s, 0.0);
        for _ in 0..50 {
            rates.advance(&region, 0.2);
        }
        assert!(rates.writes_per_s < 150.0, "{}", rates.writes_per_s);
    }
    /// A store whose worker never answers and whose blocking threads are all taken: a device that hangs.
    #[test]
    fn heartbeats_do_not_wait_for_engines_or_proposals() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let fixture = Fixture::new();
        let store = fixture.store.clone();
        let led = Leadership { term: 1, leader: Some(store.id) };
        assert!(store.regions.meta().set_leadership(led));
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let hanging = runtime.spawn_blocking(move || hang.recv());
        let heartbeats = runtime.spawn(run(store.clone()));
        let begun = Instant::now();
        let heard = || store.cluster.heard(store.id).map_or(0, |(_, heartbeat)| heartbeat.seq);
        while heard() < 5 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} heartbeats", heard());
            std::thread::sleep(Duration::from_millis(5));
        }
        let bootstraps = fixture.told().filter(|told| matches!(told, ToWorker::Submit(_))).count();
        assert_eq!(bootstraps, 1, "while one is under way there is no other");
        heartbeats.abort();
        drop(release);
        assert!(runtime.block_on(hanging).expect("it ends").is_err());
    }
}
