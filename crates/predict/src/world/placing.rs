//! Planning rounds over what the simulation knows, and what their operators do to it.

use placement::{plan, ClusterView, Operator, PeerView, PlanLimits, RegionView};

use super::{Peer, RegionAt, StoreAt, World};
use crate::layout;

/// `server::heartbeat`: rates and heat are decaying averages over about so many seconds.
const RATE_WINDOW_S: f64 = 5.0;
const HEAT_WINDOW_S: f64 = 600.0;
/// A round each second.
const ROUND_S: f64 = 1.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    reads: u64,
    writes: u64,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    pub heat: f64,
}

impl Rates {
    fn advance(&mut self, reads: u64, writes: u64) {
        let (new_reads, new_writes) = ((reads - self.reads) as f64, (writes - self.writes) as f64);
        (self.reads, self.writes) = (reads, writes);
        let blend = |old: f64, new: f64, window: f64| old + (1.0 - (-ROUND_S / window).exp()) * (new - old);
        self.reads_per_s = blend(self.reads_per_s, new_reads / ROUND_S, RATE_WINDOW_S);
        self.writes_per_s = blend(self.writes_per_s, new_writes / ROUND_S, RATE_WINDOW_S);
        self.heat = blend(self.heat, (new_reads + new_writes) / ROUND_S, HEAT_WINDOW_S);
    }
}

impl World<'_> {
    pub(super) fn round(&mut self) {
        for region in &mut self.regions {
            region.rates.advance(region.reads, region.writes);
        }
        let limits = PlanLimits::default();
        let mut view = self.view();
        layout::remember_shedding(&mut view, &limits);
        self.shedding = view.stores.iter().map(|store| store.shedding).collect();
        for operator in plan(&view, self.policy, &limits) {
            self.moves += 1;
            self.carry_out(operator);
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
            write_bytes_rate: region.rates.writes_per_s * self.row_bytes as f64,
            heat: region.rates.heat,
            leader: Some(id(region.leader)),
            peers: region
                .peers
                .iter()
                .map(|peer| {
                    let lag = u64::from(region.committed.saturating_sub(peer.persisted));
                    PeerView { store: id(peer.store), voter: true, lag: Some(lag) }
                })
                .collect(),
            ..RegionView::default()
        });
        let mut view = layout::view(&self.question.stores, regions.collect(), self.question.replicas);
        view.in_flight = self.in_flight.clone();
        for (store, shedding) in view.stores.iter_mut().zip(&self.shedding) {
            store.shedding = *shedding;
        }
        view
    }

    fn carry_out(&mut self, operator: Operator) {
        let Some(region) = self.regions.iter().position(|region| region.id == operator.region()) else {
            return;
        };
        let at = |id: Option<u64>| id.and_then(|id| self.question.stores.iter().position(|s| s.id == id));
        let (from, to) = (at(operator.from()), at(operator.to()));
        match (&operator, from, to) {
            (Operator::TransferLeader { .. }, _, Some(to)) => self.transfer(region, to),
            (Operator::RemovePeer { .. }, Some(from), _) => self.remove_peer(region, from, None),
            (Operator::AddPeer { .. } | Operator::MovePeer { .. }, _, Some(to)) => {
                self.in_flight.push(operator.clone());
                self.start_copy(operator, region, to);
            }
            _ => {}
        }
    }

    /// A copy is there, and caught up.
    pub(super) fn copied(&mut self, operator: Operator, region: RegionAt, to: StoreAt) {
        self.in_flight.retain(|under_way| *under_way != operator);
        self.add_peer(region, to);
        let from = operator.from().and_then(|id| self.question.stores.iter().position(|s| s.id == id));
        if let Some(from) = from {
            self.remove_peer(region, from, Some(to));
        }
    }

    fn add_peer(&mut self, region: RegionAt, store: StoreAt) {
        let log = &mut self.regions[region];
        if log.peer(store).is_some() {
            return;
        }
        let end = log.committed;
        log.peers.push(Peer {
            store,
            sent: end,
            persisted: end,
            acknowledged: end,
            committed: end,
            handed: end,
            applied: end,
        });
        self.stores[store].tree.ingest(log.bytes);
        self.send(region);
    }

    fn remove_peer(&mut self, region: RegionAt, store: StoreAt, newcomer: Option<StoreAt>) {
        if self.regions[region].leader == store {
            let peers = self.regions[region].peers.iter().map(|peer| peer.store as u64);
            let heir = layout::heir(peers, store as u64, newcomer.map(|at| at as u64));
            match heir {
                Some(heir) => self.transfer(region, heir as StoreAt),
                None => return,
            }
        }
        let log = &mut self.regions[region];
        log.peers.retain(|peer| peer.store != store);
        self.stores[store].tree.lose(log.bytes);
        self.commit(region);
    }

    fn transfer(&mut self, region: RegionAt, to: StoreAt) {
        let log = &mut self.regions[region];
        if log.leader == to || log.peer(to).is_none() {
            return;
        }
        log.leader = to;
        // What the others have, the new leader learns from their first answers.
        log.peers.iter_mut().for_each(|peer| peer.acknowledged = peer.acknowledged.max(peer.persisted));
        self.send(region);
        self.commit(region);
        self.answer(region);
    }

    /// Makes the layout that of a view at once.
    pub(super) fn adopt(&mut self, view: &ClusterView) {
        let at = |world: &World<'_>, id: u64| world.question.stores.iter().position(|s| s.id == id);
        for (region, wanted) in view.regions.iter().enumerate() {
            let peers: Vec<StoreAt> = wanted.peers.iter().filter_map(|peer| at(self, peer.store)).collect();
            for store in &peers {
                self.add_peer(region, *store);
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
                self.remove_peer(region, store, None);
            }
        }
        self.in_flight.clear();
        self.jobs.retain(|_, job| !matches!(job, super::background::Job::Copy { .. }));
    }
}
