//! The heartbeats that stores exchange several times a second, and the planning of the meta
//! region's leader.
//!
//! The cost of a heartbeat depends only on the changes since the last one: changed regions are on a
//! list (`Regions::touch`), and only these are looked at and reported. At longer intervals a full
//! heartbeat reports all led regions, and the heat of reads on followers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{
    DeltaTracker, LeadReport, PeerProgress, Route, StoreHeartbeat, StoreKey, HEAT_WINDOW_S, RATE_WINDOW_S,
    UNCLEAN_MAX,
};
use replica::Input;
use tokio::task::JoinSet;
use types::{PeerId, RegionId, StoreId, Term};

use crate::clock;
use crate::cluster_state::bootstrap_command;
use crate::config::{Config, Fsync};
use crate::cpu::CpuKeeper;
use crate::device_hang::HangKeeper;
use crate::fronts::FrontsKeeper;
use crate::loops::ToWorker;
use crate::membership_keeper::MembershipKeeper;
use crate::merged_away::MergedKeeper;
use crate::orders;
use crate::pauses::PauseKeeper;
use crate::proposals::{propose_all, Proposals};
use crate::regions::RegionShared;
use crate::store::Store;
use crate::transport::keys;
use crate::upgrade::UpgradeKeeper;
use crate::wall_clock::ClockKeeper;
use node::Silence;

const PERIOD: Duration = Duration::from_millis(200);
/// Minimum time between two heartbeats when the second was requested early.
const PERIOD_MIN: Duration = Duration::from_millis(20);
/// Interval of full heartbeats. One is also sent after the first heartbeat from a new store.
const FULL_PERIOD: Duration = Duration::from_secs(10);
/// Silence in nanoseconds after which a store may have left its regions without a leader.
const QUIET_NANOS: u64 = 1_000_000_000;
/// Interval at which the heat of idle regions is updated. Heat decays over minutes.
const HEAT_PERIOD: Duration = Duration::from_secs(30);
/// Time for which a store that ran out of room is reported as such. Space that its log freed is
/// soon used again. Otherwise leaders would move away and back each time.
const OUT_OF_ROOM: Duration = Duration::from_secs(10);
/// Rate below which operations count as zero, in operations per second.
const RATE_MIN: f64 = 0.05;

/// Runs until the task is dropped. It awaits nothing that may take long, because a store with a
/// late heartbeat counts as down.
pub async fn run(store: Arc<Store>) {
    let mut reporter = Reporter::new();
    // Dropping the set ends its tasks.
    let mut bootstrap = JoinSet::new();
    let mut members = MembershipKeeper::default();
    let (mut clocks, mut upgrades) = (ClockKeeper::default(), UpgradeKeeper::default());
    let (mut merged, mut fronts) = (MergedKeeper::default(), FrontsKeeper::new(&store));
    let (mut device, mut pauses) = (HangKeeper::new(store.config.raft_tick), PauseKeeper::default());
    let (mut silent, mut quiet) = (Silence::default(), Silence::default());
    let mut planned = false;
    loop {
        members.look(&store);
        let known = store.membership.members();
        let max_offset_ms = known.agreed.settings.max_clock_offset_ms;
        clocks.look(&store.wall, &store.regions, max_offset_ms, known.list.len());
        drop(known);
        pauses.look(&store.metrics);
        device.look(&store);
        let heartbeat = reporter.report(&store);
        store.transport.send_heartbeat(&heartbeat.encode(store.membership.version.get()));
        store.cluster.hear(heartbeat);
        forget_leaders_on_silent_stores(&store, &mut silent);
        wake_regions_of_stopped_stores(&store, &mut quiet);
        store.unsynced.look(|region| store.cluster.has_live_leader(region));
        let plans = store.regions.leads_meta();
        if plans {
            plan(&store, &mut bootstrap);
        } else if planned {
            store.cluster.stop_planning();
        }
        planned = plans;
        upgrades.look(&store, plans);
        merged.look(&store);
        fronts.look(&store);
        tokio::time::sleep(PERIOD_MIN).await;
        let _ = tokio::time::timeout(PERIOD - PERIOD_MIN, store.cluster.report_soon.notified()).await;
    }
}

/// Processes another store's heartbeat.
pub fn hear(store: &Store, from: StoreId, report: &Bytes) {
    let heartbeat = match StoreHeartbeat::decode(report) {
        Ok(heartbeat) if heartbeat.store == from => heartbeat,
        Ok(_) => return tracing::warn!(from, "a heartbeat names another store as its sender"),
        Err(error) => return tracing::warn!(from, %error, "a heartbeat cannot be read"),
    };
    let own = store.membership.identity.cluster_id();
    if own != 0 && heartbeat.cluster_id != 0 && heartbeat.cluster_id != own {
        return tracing::warn!(from, "a heartbeat is from another cluster");
    }
    // The clock is recorded first, because any delay makes it look older.
    store.wall.hear(from, heartbeat.wall_ms);
    store.membership.take_cluster_id(heartbeat.cluster_id);
    if heartbeat.members_version > store.membership.members().agreed.version {
        store.membership.fetch(from);
    }
    store.regions.learn(heartbeat.leads.reports.iter().map(|lead| &lead.descriptor));
    let mut held = Vec::new();
    for lead in &heartbeat.leads.reports {
        let local = |id: RegionId| {
            let region = store.regions.get(id).filter(|region| region.is_local())?;
            Some(region.descriptor())
        };
        if node::merged::concerns(&lead.descriptor, store.id, local) {
            let descriptor = lead.descriptor.clone();
            let _ = store.worker.raft(Input::Announced { from, descriptor });
        }
        let Some(region) = store.regions.get(lead.region()) else { continue };
        store.regions.hear_leader(&region, lead.term, from);
        if region.is_local() {
            // A full report repeats known values.
            if store.regions.held_by_all(&region, lead.truncate_to) {
                held.push((lead.region(), lead.truncate_to));
            }
        }
    }
    // These indexes are valid regardless of the heartbeat's age, and each is reported only once.
    if !held.is_empty() {
        let _ = store.worker.send(ToWorker::HeldByAll { indexes: held });
    }
    store.checks.hear(from, &heartbeat.checks);
    store.cluster.hear(heartbeat);
}

fn forget_leaders_on_silent_stores(store: &Store, silent: &mut Silence) {
    let members = store.membership.members();
    // A restarted store reports by its heartbeats which regions it leads.
    let heard = |id: StoreId| store.cluster.is_heard(id).then_some(0);
    let stores = members.list.iter().map(|member| (member.id, heard(member.id)));
    if !silent.look(stores).is_empty() {
        store.regions.forget_leaders(|leader| silent.is_silent(leader));
    }
}

fn wake_regions_of_stopped_stores(store: &Store, quiet: &mut Silence) {
    let now = clock::boot_nanos();
    let incarnation = |id: StoreId| match id == store.id {
        true => Some(0),
        false => {
            let (at, incarnation) = store.cluster.heard_from(id)?;
            let is_heard = now.saturating_sub(at) < QUIET_NANOS && store.transport.is_connected(id);
            is_heard.then_some(incarnation)
        }
    };
    let members = store.membership.members();
    for id in quiet.look(members.list.iter().map(|member| (member.id, incarnation(member.id)))) {
        let _ = store.worker.raft(Input::StoreSilent { store: id });
    }
}

/// Plans, as the leader of the meta region: creates the cluster's state and moves regions and
/// leaders.
fn plan(store: &Store, bootstrap: &mut JoinSet<()>) {
    if store.cluster.is_bootstrapped() {
        let term = store.regions.meta().leadership().term;
        let step = store.cluster.plan(term);
        for (to, order) in step.orders {
            orders::send(store, to, order, term);
        }
        if !step.commands.is_empty() {
            tokio::spawn(propose_all(store.proposals.clone(), store.config.request_timeout, step.commands));
        }
        return;
    }
    // One attempt runs at a time. Its result appears in the cluster's state.
    while bootstrap.try_join_next().is_some() {}
    if bootstrap.is_empty() {
        let key = store.membership.identity.key();
        bootstrap.spawn(propose_bootstrap(store.proposals.clone(), store.config.clone(), key));
    }
}

async fn propose_bootstrap(proposals: Proposals, config: Arc<Config>, key: StoreKey) {
    let regions = proposals.regions.table().iter().map(|region| (*region.newest()).clone()).collect();
    let cluster_id = match keys::draw_number() {
        Ok(drawn) => drawn,
        Err(error) => return tracing::error!(%error, "the system gives no random number; the cluster waits"),
    };
    let command = bootstrap_command(&config, key, cluster_id, regions);
    propose_all(proposals, config.request_timeout, vec![command]).await;
}

struct Reporter {
    incarnation: u64,
    seq: u64,
    book: DeltaTracker,
    /// The rates of the regions with a peer here that had operations.
    rates: BTreeMap<RegionId, Rates>,
    /// The regions whose rates still decay.
    busy: BTreeSet<RegionId>,
    rated_at: Instant,
    full_at: Option<Instant>,
    cooled_at: Instant,
    out_of_room_until: Option<Instant>,
    cpu: CpuKeeper,
}

/// A decaying average.
#[derive(Default)]
struct Rate {
    count: u64,
    per_s: f64,
}

#[derive(Default)]
struct Rates {
    /// The term in which this store reports the rates as the leader.
    leads_in: Option<Term>,
    reads: Rate,
    misses: Rate,
    writes: Rate,
    write_bytes: Rate,
    heat: f64,
    heated_at: Option<Instant>,
}

impl Reporter {
    fn new() -> Reporter {
        Reporter {
            incarnation: clock::unix_millis(),
            seq: 0,
            book: DeltaTracker::default(),
            rates: BTreeMap::new(),
            busy: BTreeSet::new(),
            rated_at: Instant::now(),
            full_at: None,
            cooled_at: Instant::now(),
            out_of_room_until: None,
            cpu: CpuKeeper::new(),
        }
    }

    fn report(&mut self, store: &Store) -> StoreHeartbeat {
        self.seq += 1;
        let now = Instant::now();
        let seconds = now.duration_since(self.rated_at).as_secs_f64().max(1e-3);
        self.rated_at = now;
        let mut changed = std::mem::take(&mut self.busy);
        changed.extend(store.regions.take_touched());
        if now.duration_since(self.cooled_at) >= HEAT_PERIOD {
            self.cooled_at = now;
            changed.extend(self.rates.iter().filter(|(_, rates)| rates.heat > 0.0).map(|(id, _)| *id));
        }
        for id in changed {
            self.look(store, id, seconds, now);
        }
        let is_due = self.full_at.is_none_or(|at| now.duration_since(at) >= FULL_PERIOD);
        let full = store.cluster.take_newcomers() || is_due;
        if full {
            self.full_at = Some(now);
        }
        let (load_ops_per_s, p99_us) = store.metrics.recent();
        let present = store.capability.present();
        // Space that the log, old row versions or other files take is not available for data. Rows
        // that were moved away do not count, though their space is reclaimed later. Otherwise a
        // store would continue to shed because of them.
        let used_bytes = store.engine.user_bytes();
        let room = store.disk.room().saturating_add(store.to_reclaim());
        let at_most = used_bytes.saturating_add(room).max(1);
        if store.disk.is_full() {
            self.out_of_room_until = Some(now + OUT_OF_ROOM);
        }
        let cpu = self.cpu.look();
        store.metrics.set_cpu(cpu);
        StoreHeartbeat {
            store: store.id,
            cluster_id: store.membership.identity.cluster_id(),
            members_version: store.membership.members().agreed.version,
            incarnation: self.incarnation,
            seq: self.seq,
            wall_ms: clock::unix_millis(),
            capability: present.capability,
            io_bytes_per_s: present.io_bytes_per_s,
            correction: present.correction,
            sync_ns: sync_ns(store.config.fsync, present.sync),
            spread: present.spread,
            capacity_bytes: store.config.capacity_bytes.map_or(at_most, |stated| stated.min(at_most)),
            used_bytes,
            load_ops_per_s,
            p99_us,
            snapshots_in: 0,
            snapshots_out: 0,
            unapplied_bytes: store.levels.unapplied_bytes(),
            stopping: store.ends.is_leaving(),
            out_of_room: self.out_of_room_until.is_some_and(|until| now < until),
            clock_off: store.wall.is_off(),
            has_session: store.seekers.has_session(),
            hanging: store.hanging.is_hanging(),
            cpu,
            place: store.capability.place(),
            told: store.capability.is_told(),
            turn: store.capability.turn.told(),
            grants: store.cluster.grant_turns(store.regions.leads_meta()),
            leads: self.book.tell(self.seq, full),
            followed: if full { self.followed() } else { Vec::new() },
            checks: store.checks.tell(),
            unclean: unclean(store),
            quarantined: store.quarantines.all(),
        }
    }

    /// Returns the recent heat of reads on followers here.
    fn followed(&self) -> Vec<(RegionId, f64)> {
        let read = self.rates.iter().filter(|(_, rates)| rates.leads_in.is_none() && rates.heat > 0.0);
        read.map(|(&region, rates)| (region, rates.heat)).collect()
    }

    /// Updates the report of one region.
    fn look(&mut self, store: &Store, id: RegionId, seconds: f64, now: Instant) {
        let region = store.regions.get(id).filter(|region| region.is_local());
        let leadership = region.as_ref().map(|region| region.leadership());
        if let Some(route) = leadership.and_then(|l| Some(Route { term: l.term, leader: l.leader? })) {
            store.cluster.learn(id, route);
        }
        let Some(region) = region else {
            self.book.remove(id);
            self.rates.remove(&id);
            return;
        };
        let leads_in = leadership.filter(|l| l.leader == Some(store.id)).map(|l| l.term);
        let rates = self.rates.entry(id).or_insert_with(|| Rates::of(&region));
        if rates.leads_in.is_some() && rates.leads_in != leads_in {
            // The old rates were reported, and other stores have decayed them since.
            rates.start_again();
        }
        rates.advance(&region, seconds, now);
        let settled = rates.rest();
        if !settled {
            self.busy.insert(id);
        }
        let Some(term) = leads_in else { return self.book.remove(id) };
        match self.lead(store, &region, term) {
            Some(report) => {
                self.book.put(report);
                self.rates.entry(id).and_modify(|rates| rates.leads_in = leads_in);
            }
            // The leader was elected recently, and its worker has not published its status.
            None => drop(self.busy.insert(id)),
        }
    }

    fn lead(&self, store: &Store, region: &RegionShared, term: Term) -> Option<LeadReport> {
        let status = region.status()?;
        if status.leader != Some(store.id) || status.term != term {
            return None;
        }
        let rates = self.rates.get(&region.id())?;
        let peer = |(&store, progress): (&StoreId, &replica::PeerProgress)| PeerProgress {
            store,
            matched: progress.matched,
            active: progress.is_active,
            needs_snapshot: progress.needs_snapshot,
        };
        Some(LeadReport {
            term: status.term,
            commit: status.commit,
            applied: status.applied,
            bytes: store.engine.bytes_in_region(region.id()),
            // The region's applied slots may be newer than the worker's status.
            sized: region.slots() == status.descriptor.slots,
            keys: store.engine.keys_in_region(region.id()),
            write_rate: rates.writes.per_s,
            read_rate: rates.reads.per_s,
            miss_rate: rates.misses.per_s,
            write_bytes_rate: rates.write_bytes.per_s,
            heat: rates.heat,
            truncate_to: status.truncate_to,
            peers: status.peers.iter().map(peer).collect(),
            descriptor: status.descriptor,
        })
    }
}

impl Rate {
    /// Starts at the counter's present value.
    fn of(counter: &AtomicU64) -> Rate {
        Rate { count: counter.load(Ordering::Relaxed), per_s: 0.0 }
    }

    /// Updates the average. Returns the count since the last call.
    fn advance(&mut self, counter: &AtomicU64, seconds: f64) -> u64 {
        let before = std::mem::replace(&mut self.count, counter.load(Ordering::Relaxed));
        let since = self.count.saturating_sub(before);
        let weight = 1.0 - (-seconds / RATE_WINDOW_S).exp();
        self.per_s += weight * (since as f64 / seconds - self.per_s);
        since
    }

    fn is_next_to_nothing(&self) -> bool {
        self.per_s < RATE_MIN
    }
}

impl Rates {
    /// Starts at the counters' present values, because operations under another leader do not
    /// belong to this leader's load.
    fn of(region: &RegionShared) -> Rates {
        Rates {
            reads: Rate::of(&region.reads),
            misses: Rate::of(&region.misses),
            writes: Rate::of(&region.writes),
            write_bytes: Rate::of(&region.write_bytes),
            ..Rates::default()
        }
    }

    /// Sets all averages to zero. Operations that were not reported yet count in the new ones.
    fn start_again(&mut self) {
        let same_count = |rate: &Rate| Rate { count: rate.count, per_s: 0.0 };
        *self = Rates {
            reads: same_count(&self.reads),
            misses: same_count(&self.misses),
            writes: same_count(&self.writes),
            write_bytes: same_count(&self.write_bytes),
            heated_at: self.heated_at,
            ..Rates::default()
        };
    }

    fn advance(&mut self, region: &RegionShared, seconds: f64, now: Instant) {
        let reads = self.reads.advance(&region.reads, seconds);
        let writes = self.writes.advance(&region.writes, seconds);
        self.misses.advance(&region.misses, seconds);
        self.write_bytes.advance(&region.write_bytes, seconds);
        // An idle region is not looked at for a while, but its heat decays in that time, too.
        let since = self.heated_at.map_or(seconds, |at| now.duration_since(at).as_secs_f64().max(1e-3));
        self.heated_at = Some(now);
        let weight = 1.0 - (-since / HEAT_WINDOW_S).exp();
        self.heat += weight * ((reads + writes) as f64 / since - self.heat);
    }

    /// Rounds very small rates to zero. Returns true if only the heat still changes without
    /// operations.
    fn rest(&mut self) -> bool {
        let at_rest = self.reads.is_next_to_nothing() && self.writes.is_next_to_nothing();
        if at_rest {
            for rate in [&mut self.reads, &mut self.misses, &mut self.writes, &mut self.write_bytes] {
                rate.per_s = 0.0;
            }
        }
        if self.heat < RATE_MIN / 100.0 {
            self.heat = 0.0;
        }
        at_rest
    }
}

/// Returns the unclean peers that other peers should replace, at most [`UNCLEAN_MAX`]. Regions
/// without a leader are left out: they cannot be changed, and would displace regions that can.
fn unclean(store: &Store) -> Vec<(RegionId, PeerId)> {
    let unclean = store.unsynced.reported().into_iter();
    unclean.filter(|(region, _)| store.cluster.has_live_leader(*region)).take(UNCLEAN_MAX).collect()
}

/// Returns the time that a write waits for a sync, in nanoseconds. Returns 0 if it is unknown, and
/// 1 if writes are answered before they are synced.
fn sync_ns(fsync: Fsync, measured: Option<Duration>) -> u64 {
    match (fsync, measured) {
        (Fsync::Always, Some(sync)) => u64::try_from(sync.as_nanos()).unwrap_or(u64::MAX),
        (Fsync::Always, None) => 0,
        (Fsync::EverySec | Fsync::No, _) => 1,
    }
}

#[cfg(test)]
mod tests;
