//! The heartbeats between stores, and the planning of the meta region's leader.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{
    LeadReport, MetaCommand, Order, PeerProgress, Route, Step, StoreFacts, StoreHeartbeat, StoreKey,
    StoreRecord, UNCLEAN_MAX,
};
use node::merged::concerns;
use node::{Leadership, Work as Proposal};
use placement::{Capability, PlanLimits, Policy};
use replica::Input;
use types::{RegionChange, RegionId, StoreId, META_REGION};

use super::Asker;
use crate::clock::MILLISECOND;
use crate::model::slot_of;
use crate::observation::Observation;
use crate::world::{Asked, Packet, Work, World};

const PERIOD: u64 = 400 * MILLISECOND;
/// Time in nanoseconds after which a silent store may have left its regions without a leader.
const QUIET: u64 = 1500 * MILLISECOND;
/// Interval between two full reports, in heartbeats.
const FULL: u64 = 8;
const POLICIES: [Policy; 4] = [Policy::Even, Policy::LeaderOnly, Policy::Alor, Policy::Adaptive];

impl World {
    pub(super) fn heartbeat(&mut self, id: StoreId) {
        self.schedule_work(id, PERIOD, Work::Heartbeat);
        self.look_at_device(id);
        self.look_for_merged(id);
        self.report(id);
        self.plan_round(id);
    }

    /// Reports changes to the other stores.
    pub(super) fn report(&mut self, id: StoreId) {
        let others: Vec<StoreId> = self.stores.keys().copied().collect();
        let (wall_ms, clock_off) = self.look_at_clocks(id);
        let out_of_room = self.now < self.stores[&id].low_until;
        self.wake_regions_of_stopped_stores(id);
        let boot = self.boot(id);
        let mark = self.stores[&id].mark.clone();
        let Some(process) = self.process(id) else { return };
        process.seq += 1;
        let leads = process.leads(id);
        let led: Vec<RegionId> = process.book.iter().map(LeadReport::region).collect();
        for gone in led.into_iter().filter(|region| leads.iter().all(|lead| lead.region() != *region)) {
            process.book.remove(gone);
        }
        leads.into_iter().for_each(|lead| process.book.put(lead));
        let report = StoreHeartbeat {
            store: id,
            cluster_id: 1,
            incarnation: process.incarnation,
            seq: process.seq,
            wall_ms,
            clock_off,
            hanging: process.device.is_hanging(),
            out_of_room,
            stopping: process.stopping.is_some(),
            capability: capability(id),
            sync_ns: 1_000_000 * (1 + id % 2),
            capacity_bytes: 1 << 30,
            leads: process.book.tell(process.seq, process.seq % FULL == 0),
            checks: process.checks.tell(boot),
            unclean: mark.reported(process.shard.unclean()).into_iter().take(UNCLEAN_MAX).collect(),
            quarantined: process.quarantined(),
            ..StoreHeartbeat::default()
        };
        let bytes = report.encode(types::NEWEST_VERSION);
        for to in others {
            self.send(id, to, Packet::Heartbeat(bytes.clone()));
        }
        self.order_checks(id);
    }

    fn wake_regions_of_stopped_stores(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let Some(process) = self.process(id) else { return };
        let incarnation = |of: StoreId| {
            let heard = process.ledger.heard(of).filter(|heard| boot.saturating_sub(heard.at) < QUIET);
            match of == id {
                true => Some(0),
                false => heard.map(|heard| heard.heartbeat.incarnation),
            }
        };
        let looked: Vec<_> = stores.into_iter().map(|store| (store, incarnation(store))).collect();
        let stopped = process.silence.look(looked);
        let awake: BTreeSet<RegionId> = process.shard.awake().collect();
        let asleep = process.shard.regions().filter(|region| !awake.contains(region)).count();
        self.tally.asleep += asleep as u64;
        for store in stopped {
            self.input(id, Input::StoreSilent { store });
        }
    }

    pub(super) fn hear(&mut self, id: StoreId, bytes: &[u8]) {
        let boot = self.boot(id);
        let heartbeat = match StoreHeartbeat::decode(bytes) {
            Ok(heartbeat) => heartbeat,
            Err(error) => return self.violate("heartbeat", error.to_string()),
        };
        let from = heartbeat.store;
        let Some(process) = self.process(id) else { return };
        if from != id {
            process.clocks.hear(from, heartbeat.wall_ms, boot);
        }
        if !process.ledger.hear(heartbeat.clone(), boot) {
            return;
        }
        if from != id {
            self.hear_checks(id, from, &heartbeat.checks);
        }
        let Some(process) = self.process(id) else { return };
        let mut announced = Vec::new();
        for lead in &heartbeat.leads.reports {
            process.learn(&lead.descriptor);
            let local = |region| {
                process.regions.get(&region).filter(|shared| shared.is_local).map(|shared| &shared.descriptor)
            };
            if from != id && concerns(&lead.descriptor, id, local) {
                announced.push(lead.descriptor.clone());
            }
            if let Some(shared) = process.regions.get_mut(&lead.region()) {
                if shared.leadership.yields_to_hearsay(lead.term) {
                    shared.leadership = Leadership { term: lead.term, leader: Some(from) };
                    if from != id {
                        shared.lease = None;
                    }
                }
            }
        }
        for descriptor in announced {
            self.input(id, Input::Announced { from, descriptor });
        }
        if from != id {
            for lead in heartbeat.leads.reports {
                self.input(id, Input::TruncateHint { region: lead.region(), index: lead.truncate_to });
            }
        }
    }

    /// Begins the cluster's state, or plans, if this store leads the meta region.
    fn plan_round(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let layout = self.layout.clone();
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let policy = POLICIES[(self.seed % 4) as usize];
        let Some(process) = self.process(id) else { return };
        let Some(shared) = process.regions.get(&META_REGION) else { return };
        let Leadership { term, leader } = shared.leadership;
        if leader != Some(id) || !shared.is_local {
            return process.driver.forget();
        }
        if !process.meta.is_bootstrapped() {
            let command = MetaCommand::Bootstrap {
                cluster_id: 1,
                stores: stores.into_iter().map(record).collect(),
                regions: layout,
                policy,
                config: BTreeMap::new(),
                version: types::NEWEST_VERSION,
            };
            return self.propose_meta(id, &command);
        }
        let limits = PlanLimits::default();
        let Step { orders, commands } =
            process.driver.step(&process.meta, &process.ledger, &limits, term, boot);
        for (leader, order) in orders {
            self.say(&format!("order to store {leader}: {order:?}"));
            self.send(id, leader, Packet::Order(order.encode(term)));
        }
        commands.iter().for_each(|command| self.propose_meta(id, command));
    }

    fn propose_meta(&mut self, id: StoreId, command: &MetaCommand) {
        if let MetaCommand::BeginOperator { operator, .. } = command {
            self.tally.operators += 1;
            self.say(&format!("operator: {operator}"));
            let Some(process) = self.process(id) else { return };
            let meta = process.meta.clone();
            let told = process.ledger.lead(operator.region()).map(|lead| lead.descriptor.clone());
            self.observe(&Observation::Planned { operator, meta: &meta, told: told.as_ref() });
        }
        self.submit(id, META_REGION, Proposal::Meta(command.encode()), Asker::Meta);
    }

    /// Carries out an order of the meta region's leader, unless its term is known to be over.
    pub(super) fn ordered(&mut self, id: StoreId, bytes: &[u8]) {
        let (term, order) = match Order::decode(bytes) {
            Ok(order) => order,
            Err(error) => return self.violate("order", error.to_string()),
        };
        let Some(process) = self.process(id) else { return };
        if process.regions.get(&META_REGION).is_some_and(|meta| meta.leadership.term > term) {
            return;
        }
        match order {
            Order::TransferLeader { region, to } => self.input(id, Input::TransferLeader { region, to }),
            Order::Change { region, expect, change } => self.change(id, region, expect, change),
            Order::Split { region, expect, new_region } => {
                let Some(slots) = process.regions.get(&region).and_then(|shared| shared.descriptor.slots)
                else {
                    return;
                };
                // Split between two groups of keys if possible.
                let inside = |slot: &u16| slots.first < *slot && *slot <= slots.last;
                let at: Vec<u16> = (0..self.groups).map(slot_of).filter(inside).collect();
                let middle = slots.first + (slots.last - slots.first) / 2 + 1;
                let at = self.rng.pick(&at).unwrap_or(middle);
                self.change(id, region, expect, RegionChange::Split { at, new_region });
            }
        }
    }

    fn change(&mut self, id: StoreId, region: RegionId, expect: types::RegionEpoch, change: RegionChange) {
        self.tell(id, node::Input::ChangeRegion { region, expect, change });
    }

    /// Carries out an unplanned request.
    pub(super) fn asked(&mut self, id: StoreId, asked: Asked) {
        let boot = self.boot(id);
        match asked {
            Asked::Transfer { region, to } => self.input(id, Input::TransferLeader { region, to }),
            Asked::Change { region, change } => {
                let status = self.process(id).and_then(|process| process.shard.status(region, boot));
                let Some(mut expect) = status.map(|status| status.descriptor.epoch) else { return };
                if self.rng.chance(5) {
                    expect.conf_version = expect.conf_version.wrapping_sub(1);
                }
                self.change(id, region, expect, change);
            }
            Asked::Meta(command) => self.propose_meta(id, &command),
            Asked::Operator(operator) => {
                let Some(process) = self.process(id) else { return };
                let asked = process.driver.request(&process.meta, &process.ledger, operator, boot);
                match asked {
                    Ok(command) => self.propose_meta(id, &command),
                    Err(error) => self.say(&format!("the operator is refused: {error}")),
                }
            }
        }
    }
}

impl super::Process {
    fn leads(&mut self, id: StoreId) -> Vec<LeadReport> {
        let mut leads = Vec::new();
        for (&region, shared) in &self.regions {
            let Leadership { term, leader } = shared.leadership;
            if let Some(leader) = leader.filter(|_| shared.is_local) {
                self.ledger.learn(region, Route { term, leader });
            }
            let Some(status) = self.shard.status(region, 0) else { continue };
            if leader != Some(id) || status.leader != Some(id) {
                continue;
            }
            let peers = status.peers.iter().map(|(&store, peer)| PeerProgress {
                store,
                matched: peer.matched,
                active: peer.is_active,
                needs_snapshot: peer.needs_snapshot,
            });
            leads.push(LeadReport {
                descriptor: status.descriptor.clone(),
                term: status.term,
                commit: status.commit,
                applied: status.applied,
                bytes: 1000 * region,
                sized: true,
                keys: 10,
                write_rate: 1.0,
                read_rate: 1.0,
                miss_rate: 1.0,
                write_bytes_rate: 10.0,
                heat: 1.0,
                truncate_to: status.truncate_to,
                peers: peers.collect(),
            });
        }
        leads
    }
}

fn capability(store: StoreId) -> Capability {
    Capability { kv_bytes_per_s: 1e6 * (1 + store % 3) as f64, ops_per_s: 1e4 }
}

fn record(id: StoreId) -> StoreRecord {
    StoreRecord::new(id, facts(id))
}

/// Returns the facts that a store reports about itself.
pub fn facts(id: StoreId) -> StoreFacts {
    StoreFacts {
        key: Some(StoreKey([id as u8; 32])),
        client: format!("store-{id}:6379"),
        peer: format!("store-{id}:7379"),
        admin: format!("store-{id}:8379"),
        forward: None,
        device: "simulated".into(),
        capability: capability(id),
        labels: BTreeMap::new(),
    }
}
