//! Planning rounds over the state of the simulation, and layouts that are adopted at once.

use placement::{plan, ClusterView, PeerView, PlanLimits, RegionView};

use super::{Peer, RegionAt, StoreAt, World, SECOND};
use crate::layout;

/// Windows in seconds of the decaying averages of rates and heat (`cluster::heartbeat`).
const RATE_WINDOW_S: f64 = 5.0;
const HEAT_WINDOW_S: f64 = 600.0;
/// Time after a change of leaders in which the share of reads that miss RAM counts as at most what
/// it was before (`cluster::ledger`).
const COLD: u64 = 60 * SECOND;
/// The time between two heartbeats, and between two rounds of the driver (`server::heartbeat`).
const PERIOD: u64 = SECOND / 5;
/// The time between two plans if nothing changes (`cluster::DriverConfig`).
const SURVEY: u64 = SECOND;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    reads: u64,
    misses: u64,
    writes: u64,
    pub reads_per_s: f64,
    misses_per_s: f64,
    pub writes_per_s: f64,
    pub heat: f64,
    /// The maximum share of reads that count as misses, and until when it applies.
    missed_before: Option<(f64, u64)>,
}

impl Rates {
    fn led_anew(&mut self, now: u64, until: u64) {
        if self.reads_per_s >= 1.0 {
            self.missed_before = Some((self.counted_misses(now) / self.reads_per_s, until));
        }
    }

    fn counted_misses(&self, now: u64) -> f64 {
        match self.missed_before {
            Some((share, until)) if now < until => self.misses_per_s.min(self.reads_per_s * share),
            _ => self.misses_per_s,
        }
    }

    fn advance(&mut self, reads: u64, misses: u64, writes: u64, seconds: f64) {
        let (new_reads, new_writes) = ((reads - self.reads) as f64, (writes - self.writes) as f64);
        let new_misses = (misses - self.misses) as f64;
        (self.reads, self.misses, self.writes) = (reads, misses, writes);
        // Windows have the same length relative to a round as in reality.
        let of_window = PERIOD as f64 / SECOND as f64;
        let blend = |old: f64, new: f64, window: f64| old + (1.0 - (-of_window / window).exp()) * (new - old);
        self.reads_per_s = blend(self.reads_per_s, new_reads / seconds, RATE_WINDOW_S);
        self.misses_per_s = blend(self.misses_per_s, new_misses / seconds, RATE_WINDOW_S);
        self.writes_per_s = blend(self.writes_per_s, new_writes / seconds, RATE_WINDOW_S);
        self.heat = blend(self.heat, (new_reads + new_writes) / seconds, HEAT_WINDOW_S);
    }
}

/// The time of the last plan, and whether anything that it depends on has changed since.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planning {
    at: u64,
    pub changed: bool,
}

impl World<'_> {
    /// Scales a period. If the simulated data is a part of all data, periods shrink by the same
    /// factor.
    pub(super) fn scaled(&self, nanos: u64) -> u64 {
        ((nanos as f64 * self.question.tuning.background_sync_part) as u64).max(SECOND / 1000)
    }

    pub(super) fn period(&self) -> u64 {
        self.scaled(PERIOD)
    }

    /// Simulates a heartbeat of every store and a round of the meta region's leader.
    pub(super) fn round(&mut self) {
        let seconds = self.period() as f64 / SECOND as f64;
        for region in &mut self.regions {
            region.rates.advance(region.reads, region.misses, region.writes, seconds);
        }
        self.drive();
        if self.planning.changed || self.now - self.planning.at >= self.scaled(SURVEY) {
            self.survey();
        }
    }

    fn survey(&mut self) {
        self.planning = Planning { at: self.now, changed: false };
        let limits = PlanLimits::default();
        let mut view = self.view();
        layout::remember_shedding(&mut view, &limits);
        self.shedding = view.stores.iter().map(|store| store.shedding).collect();
        for operator in plan(&view, self.policy, &limits) {
            self.moves += 1;
            self.planning.changed = true;
            self.begin_operator(operator);
        }
    }

    pub(super) fn view(&self) -> ClusterView {
        let id = |at: StoreAt| self.question.stores[at].id;
        let regions = self.regions.iter().zip(&self.question.regions).map(|(region, asked)| RegionView {
            id: region.id,
            bytes: region.bytes,
            first_slot: asked.slots.first,
            last_slot: asked.slots.last,
            slots: asked.slots.len() as u32,
            write_rate: region.rates.writes_per_s,
            read_rate: region.rates.reads_per_s,
            miss_rate: region.rates.counted_misses(self.now),
            write_bytes_rate: region.rates.writes_per_s * self.row_bytes as f64,
            heat: region.rates.heat,
            leader: Some(id(region.leader)),
            peers: region
                .peers
                .iter()
                .map(|peer| {
                    let lag = u64::from(region.committed.saturating_sub(peer.persisted));
                    PeerView {
                        store: id(peer.store),
                        voter: peer.voter,
                        lag: Some(lag),
                        unclean: false,
                        lost_rows: false,
                    }
                })
                .collect(),
            ..RegionView::default()
        });
        let mut view = layout::view(&self.question.stores, regions.collect(), self.question.replicas);
        view.in_flight = self.moving.values().map(|moving| moving.operator.clone()).collect();
        for ((store, shedding), own) in view.stores.iter_mut().zip(&self.shedding).zip(&self.stores) {
            store.shedding = *shedding;
            store.unapplied_bytes = own.to_apply_bytes;
        }
        view
    }

    /// Adds a voter that has everything committed, at once and at no cost.
    fn place_peer(&mut self, region: RegionAt, store: StoreAt) {
        let log = &mut self.regions[region];
        if log.peer(store).is_some() {
            return;
        }
        log.peers.push(Peer { voter: true, ..Peer::at(store, log.committed) });
        self.stores[store].tree.ingest(log.bytes);
        self.send(region);
    }

    /// Removes a peer that does not lead.
    pub(super) fn remove_peer(&mut self, region: RegionAt, store: StoreAt) {
        let log = &mut self.regions[region];
        log.peers.retain(|peer| peer.store != store);
        self.stores[store].tree.lose(log.bytes);
        self.commit(region);
    }

    pub(super) fn transfer(&mut self, region: RegionAt, to: StoreAt) {
        let (now, warm_at) = (self.now, self.now + self.scaled(COLD));
        let log = &mut self.regions[region];
        if log.leader == to || log.peer(to).is_none() {
            return;
        }
        log.leader = to;
        log.rates.led_anew(now, warm_at);
        // The new leader learns what the others have from their first answers.
        log.peers.iter_mut().for_each(|peer| peer.acknowledged = peer.acknowledged.max(peer.persisted));
        log.size(self.row_bytes);
        self.send(region);
        self.commit(region);
        self.answer(region);
    }

    /// Makes the layout of a view the present one, at once.
    pub(super) fn adopt(&mut self, view: &ClusterView) {
        let at = |world: &World<'_>, id: u64| world.question.stores.iter().position(|s| s.id == id);
        for (region, wanted) in view.regions.iter().enumerate() {
            let peers: Vec<StoreAt> = wanted.peers.iter().filter_map(|peer| at(self, peer.store)).collect();
            for store in &peers {
                self.place_peer(region, *store);
            }
            if let Some(leader) = wanted.leader.and_then(|id| at(self, id)) {
                self.transfer(region, leader);
            }
            let gone: Vec<StoreAt> = self.regions[region]
                .peers
                .iter()
                .map(|peer| peer.store)
                .filter(|store| !peers.contains(store))
                .collect();
            for store in gone {
                self.remove_peer(region, store);
                self.stores[store].tree.forget(0);
            }
        }
    }
}
