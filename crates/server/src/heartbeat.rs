//! What stores tell each other several times a second, and what the meta region's leader does about it.
//!
//! A heartbeat costs what has happened since the last one: regions in which something did are on a list
//! (`Regions::touch`), and only these are looked at and reported. Now and then all that are led are reported, and what
//! was read of followers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{
    LeadBook, LeadReport, MetaCommand, PeerProgress, Route, StoreHeartbeat, StoreKey, HEAT_WINDOW_S,
    RATE_WINDOW_S,
};
use futures::future::join_all;
use replica::Input;
use tokio::task::JoinSet;
use types::{RegionId, StoreId, Term};

use crate::announcing::MembershipKeeper;
use crate::clock;
use crate::cluster_state::bootstrap_command;
use crate::config::{Config, Fsync};
use crate::cpu::CpuKeeper;
use crate::loops::ToWorker;
use crate::orders;
use crate::proposals::{NotDone, Proposals};
use crate::regions::RegionShared;
use crate::store::Store;
use crate::transport::keys;
use crate::wall_clock::ClockKeeper;
use node::{Silence, Work};

const PERIOD: Duration = Duration::from_millis(200);
/// Two heartbeats of which the second was rung for are at least this far apart.
const PERIOD_MIN: Duration = Duration::from_millis(20);
/// Everything that is led is reported this often, and when a store is heard for the first time.
const FULL_PERIOD: Duration = Duration::from_secs(10);
/// A store of which nothing was heard for this long may have left its regions without a leader.
const QUIET_NANOS: u64 = 1_000_000_000;
/// Heat has a long memory, and is brought up to date for regions at rest every so often.
const HEAT_PERIOD: Duration = Duration::from_secs(30);
/// A store that was out of room counts as such for this long: what its log gave back is soon written again, and
/// leaders would come and go with it.
const OUT_OF_ROOM: Duration = Duration::from_secs(10);
/// Operations per second that count as none.
const RATE_MIN: f64 = 0.05;

/// Runs until the task is dropped. Nothing that may take long is awaited here: a heartbeat that is late is a
/// store that is down.
pub async fn run(store: Arc<Store>) {
    let mut reporter = Reporter::new();
    // Dropping it ends its tasks.
    let mut bootstrap = JoinSet::new();
    let mut members = MembershipKeeper::default();
    let mut clocks = ClockKeeper::default();
    let (mut silent, mut quiet) = (Silence::default(), Silence::default());
    let mut planned = false;
    loop {
        members.look(&store);
        let known = store.membership.members();
        let max_offset_ms = known.agreed.settings.max_clock_offset_ms;
        clocks.look(&store.wall, &store.regions, max_offset_ms, known.list.len());
        drop(known);
        let heartbeat = reporter.report(&store);
        store.transport.send_heartbeat(&heartbeat.encode());
        store.cluster.hear(heartbeat);
        forget_the_dead(&store, &mut silent);
        wake_what_the_silent_led(&store, &mut quiet);
        let plans = store.regions.leads_meta();
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
    let own = store.membership.identity.cluster_id();
    if own != 0 && heartbeat.cluster_id != 0 && heartbeat.cluster_id != own {
        return tracing::warn!(from, "a heartbeat of another cluster");
    }
    // First, because time that passes before it makes the clock look older.
    store.wall.hear(from, heartbeat.wall_ms);
    store.membership.take_cluster_id(heartbeat.cluster_id);
    if heartbeat.members_version > store.membership.members().agreed.version {
        store.membership.fetch(from);
    }
    store.regions.learn(heartbeat.leads.reports.iter().map(|lead| &lead.descriptor));
    let mut held = Vec::new();
    for lead in &heartbeat.leads.reports {
        let is_here = |id: &RegionId| store.regions.get(*id).is_some_and(|region| region.is_local());
        if lead.descriptor.absorbed.iter().any(is_here) {
            // It merged away while this store was not there to see it, or is about to be taken over.
            let descriptor = lead.descriptor.clone();
            let _ = store.worker.send(ToWorker::Input(Input::Announced { from, descriptor }));
        }
        let Some(region) = store.regions.get(lead.region()) else { continue };
        store.regions.hear_leader(&region, lead.term, from);
        if region.is_local() {
            // A full report says again what is known.
            if store.regions.held_by_all(&region, lead.truncate_to) {
                held.push((lead.region(), lead.truncate_to));
            }
            if !lead.descriptor.has_peer_on(store.id) {
                // The peer here was removed while it was away, and those it knew may be gone, too.
                let descriptor = lead.descriptor.clone();
                let _ = store.worker.send(ToWorker::Input(Input::Announced { from, descriptor }));
            }
        }
    }
    // True however old the heartbeat is, and told once.
    if !held.is_empty() {
        let _ = store.worker.send(ToWorker::HeldByAll { indexes: held });
    }
    store.checks.hear(from, &heartbeat.checks);
    store.cluster.hear(heartbeat);
}

fn forget_the_dead(store: &Store, silent: &mut Silence) {
    let members = store.membership.members();
    let stores = members.list.iter().map(|member| (member.id, store.cluster.is_heard(member.id)));
    if !silent.look(stores).is_empty() {
        store.regions.forget_leaders(|leader| silent.is_silent(leader));
    }
}

fn wake_what_the_silent_led(store: &Store, quiet: &mut Silence) {
    let now = clock::boot_nanos();
    let is_heard = |id: StoreId| {
        let heard = store.cluster.heard_at(id).is_some_and(|at| now.saturating_sub(at) < QUIET_NANOS);
        id == store.id || (heard && store.transport.is_connected(id))
    };
    let members = store.membership.members();
    for id in quiet.look(members.list.iter().map(|member| (member.id, is_heard(member.id)))) {
        let _ = store.worker.send(ToWorker::Input(Input::StoreSilent { store: id }));
    }
}

/// As the leader of the meta region: begins the cluster's state, and moves what should be elsewhere.
fn plan(store: &Store, bootstrap: &mut JoinSet<()>) {
    if store.cluster.is_bootstrapped() {
        let term = store.regions.meta().leadership().term;
        let step = store.cluster.plan(term);
        for (to, order) in step.orders {
            orders::send(store, to, order, term);
        }
        if !step.commands.is_empty() {
            tokio::spawn(propose(store.proposals.clone(), store.config.request_timeout, step.commands));
        }
        return;
    }
    // One attempt at a time; what came of it, the cluster's state says.
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
    propose(proposals, config.request_timeout, vec![command]).await;
}

/// Proposes in this order what is to be agreed on. What is lost, the next round of planning wants again.
async fn propose(proposals: Proposals, patience: Duration, commands: Vec<MetaCommand>) {
    let deadline = Instant::now() + patience;
    let meta = proposals.regions.meta();
    let proposed =
        commands.iter().map(|command| proposals.submit(meta, Work::Meta(command.encode()), deadline));
    for (outcome, command) in join_all(proposed).await.into_iter().zip(&commands) {
        match outcome {
            Ok(replies) => {
                for reply in replies.into_iter().flatten() {
                    if let resp::Reply::Error(error) = reply.into_reply() {
                        tracing::warn!(?command, %error, "the cluster's state stays as it is");
                    }
                }
            }
            Err(NotDone::NotLeader) => {}
            Err(NotDone::Error(error)) => tracing::debug!(?error, "a change of the cluster's state"),
        }
    }
}

struct Reporter {
    incarnation: u64,
    seq: u64,
    book: LeadBook,
    /// Of the regions with a peer here in which something has happened.
    rates: BTreeMap<RegionId, Rates>,
    /// Those whose rates change even when nothing happens any more.
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
    /// The term in which they are told as a leader's.
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
            book: LeadBook::default(),
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
        // What the log, old versions of rows or other files take of the device is no room for data. What was
        // moved away is, though its space is given back later: else a store would go on shedding for it.
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
            cpu,
            place: store.capability.place(),
            told: store.capability.is_told(),
            turn: store.capability.turn.told(),
            grants: store.cluster.grant_turns(store.regions.leads_meta()),
            leads: self.book.tell(self.seq, full),
            followed: if full { self.followed() } else { Vec::new() },
            checks: store.checks.tell(),
            quarantined: store.quarantines.all(),
        }
    }

    /// What was read of followers here lately.
    fn followed(&self) -> Vec<(RegionId, f64)> {
        let read = self.rates.iter().filter(|(_, rates)| rates.leads_in.is_none() && rates.heat > 0.0);
        read.map(|(&region, rates)| (region, rates.heat)).collect()
    }

    /// Brings up to date what is reported of one region.
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
            // It was told, and whoever heard it knows what has become of it since.
            *rates = Rates::of(&region);
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
            // It was elected just now, and its worker has not published how it stands.
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
            // What the region has applied may be later than what its worker told.
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
    /// From now on.
    fn of(counter: &AtomicU64) -> Rate {
        Rate { count: counter.load(Ordering::Relaxed), per_s: 0.0 }
    }

    /// What was counted since.
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
    /// From now on: what happened under another leader is not this one's load.
    fn of(region: &RegionShared) -> Rates {
        Rates {
            reads: Rate::of(&region.reads),
            misses: Rate::of(&region.misses),
            writes: Rate::of(&region.writes),
            write_bytes: Rate::of(&region.write_bytes),
            ..Rates::default()
        }
    }

    fn advance(&mut self, region: &RegionShared, seconds: f64, now: Instant) {
        let reads = self.reads.advance(&region.reads, seconds);
        let writes = self.writes.advance(&region.writes, seconds);
        self.misses.advance(&region.misses, seconds);
        self.write_bytes.advance(&region.write_bytes, seconds);
        // A region at rest is not looked at for a while, in which its heat went down all the same.
        let since = self.heated_at.map_or(seconds, |at| now.duration_since(at).as_secs_f64().max(1e-3));
        self.heated_at = Some(now);
        let weight = 1.0 - (-since / HEAT_WINDOW_S).exp();
        self.heat += weight * ((reads + writes) as f64 / since - self.heat);
    }

    /// Takes what is next to nothing for nothing. True: nothing changes any more by itself, or only its heat.
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

/// What a write waits for a sync; 0: not known. Where writes are answered before they are synced, next to nothing.
fn sync_ns(fsync: Fsync, measured: Option<Duration>) -> u64 {
    match (fsync, measured) {
        (Fsync::Always, Some(sync)) => u64::try_from(sync.as_nanos()).unwrap_or(u64::MAX),
        (Fsync::Always, None) => 0,
        (Fsync::EverySec | Fsync::No, _) => 1,
    }
}

#[cfg(test)]
mod tests;
