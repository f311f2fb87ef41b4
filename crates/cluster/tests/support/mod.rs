//! A small simulated cluster: regions that carry out orders as real leaders do, stores that report
//! them, and a meta region whose log is a list. Invariants are checked after every moment.

// Each test program uses only a part.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};

use placement::{Operator, PlanLimits, Policy, Reason};
use steelyard_cluster::*;
use storage::{MemoryKeyspace, Txn};
use types::*;

pub const SECOND: u64 = 1_000_000_000;
const TICK: u64 = SECOND / 2;

/// The true state of a region.
#[derive(Clone, Debug)]
pub struct Region {
    pub descriptor: RegionDescriptor,
    pub leader: Option<StoreId>,
    pub term: Term,
    pub commit: LogIndex,
    pub matched: BTreeMap<StoreId, LogIndex>,
    pub bytes: u64,
}

/// The fate of an order or proposal in transit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    #[default]
    Arrives,
    Lost,
    /// It arrives after this many moments, and twice.
    Late(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cargo {
    Order,
    Proposal,
}

pub struct World {
    pub now: BootNanos,
    pub meta: MetaState,
    /// The stored form of `meta`.
    rows: MemoryKeyspace,
    pub ledger: Ledger,
    pub driver: Driver,
    /// Region 0's term, in which the driver plans.
    pub term: Term,
    pub limits: PlanLimits,
    pub regions: BTreeMap<RegionId, Region>,
    pub dead: BTreeSet<StoreId>,
    /// The speeds that stores report. A store without an entry is as fast as any other.
    pub speeds: BTreeMap<StoreId, f64>,
    /// The spread that all stores report.
    pub spread: f64,
    /// The CPU loads that stores report, if any.
    pub cpus: BTreeMap<StoreId, placement::Cpu>,
    /// Peers that stores name as unclean.
    pub unclean: BTreeMap<StoreId, Vec<(RegionId, u64)>>,
    /// Peers that stores name as quarantined.
    pub quarantined: BTreeMap<StoreId, Vec<(RegionId, Quarantine)>>,
    /// Stores that have a session with ZooKeeper.
    pub sessions: BTreeSet<StoreId>,
    /// Regions that can elect no leader.
    pub leaderless: BTreeSet<RegionId>,
    /// Stores on which learners receive no data.
    pub stuck: BTreeSet<StoreId>,
    /// Moments that it takes to fill a learner.
    pub fill_moments: u64,
    filling: BTreeMap<(RegionId, StoreId), u64>,
    /// The capacity of every store; 0 if unknown.
    pub capacity_bytes: u64,
    /// Operations per second. A leader knows only the operations since its election.
    pub heat: BTreeMap<RegionId, f64>,
    leading: BTreeMap<RegionId, (StoreId, BootNanos)>,
    /// Regions whose sizes their leaders have not measured.
    pub unsized_regions: BTreeSet<RegionId>,
    /// All regions that ever existed.
    known: BTreeSet<RegionId>,
    books: BTreeMap<StoreId, DeltaTracker>,
    seq: u64,
    late: Vec<(u8, Order)>,
    /// Proposals, orders and executed orders.
    pub events: Vec<String>,
}

fn key(id: StoreId) -> StoreKey {
    let mut key = [1; 32];
    key[..8].copy_from_slice(&id.to_be_bytes());
    StoreKey(key)
}

fn facts(id: StoreId) -> StoreFacts {
    StoreFacts {
        key: Some(key(id)),
        client: String::new(),
        peer: String::new(),
        admin: String::new(),
        forward: None,
        device: String::new(),
        capability: placement::Capability::UNKNOWN,
        labels: BTreeMap::new(),
    }
}

impl World {
    pub fn new(stores: u64, regions: u16, replicas: usize) -> World {
        let ids: Vec<StoreId> = (0..stores).collect();
        let layout = Layout { stores: ids.clone(), regions, replicas };
        let plan = bootstrap_plan(&layout);
        let config = BTreeMap::from([(CONFIG_REPLICAS.to_owned(), replicas.to_string())]);
        let bootstrap = MetaCommand::Bootstrap {
            cluster_id: 1,
            stores: ids.into_iter().map(|id| StoreRecord::new(id, facts(id))).collect(),
            regions: plan.clone(),
            policy: Policy::Even,
            config,
            version: 1,
        };
        let config = LedgerConfig { down_after_nanos: 3 * SECOND, replace_after_nanos: 20 * SECOND };
        let regions = plan.into_iter().map(|descriptor| {
            let stores: Vec<StoreId> = descriptor.peers.iter().map(|peer| peer.store).collect();
            let region = Region {
                leader: stores.first().copied(),
                term: 5,
                commit: 10,
                matched: stores.into_iter().map(|store| (store, 10)).collect(),
                bytes: 1 << 20,
                descriptor,
            };
            (region.descriptor.id, region)
        });
        let regions: BTreeMap<RegionId, Region> = regions.collect();
        let mut world = World {
            now: 0,
            meta: MetaState::default(),
            rows: MemoryKeyspace::default(),
            ledger: Ledger::new(0, config),
            driver: Driver::new(DriverConfig::default()),
            term: 5,
            // No operator is planned unless a test enables planning.
            limits: PlanLimits { in_flight_max: 0, ..PlanLimits::default() },
            known: regions.keys().copied().collect(),
            regions,
            dead: BTreeSet::new(),
            unclean: BTreeMap::new(),
            quarantined: BTreeMap::new(),
            sessions: BTreeSet::new(),
            leaderless: BTreeSet::new(),
            stuck: BTreeSet::new(),
            fill_moments: 0,
            filling: BTreeMap::new(),
            capacity_bytes: 0,
            heat: BTreeMap::new(),
            leading: BTreeMap::new(),
            unsized_regions: BTreeSet::new(),
            speeds: BTreeMap::new(),
            spread: 1.0,
            cpus: BTreeMap::new(),
            books: BTreeMap::new(),
            seq: 0,
            late: Vec::new(),
            events: Vec::new(),
        };
        world.apply(&bootstrap).expect("a good beginning");
        world.events.clear();
        world
    }

    fn event(&mut self, what: String) {
        self.events.push(format!("{}: {what}", Seconds(self.now)));
    }

    pub fn apply(&mut self, command: &MetaCommand) -> Result<MetaReply, MetaError> {
        let entry = encode_entry(self.now / 1_000_000, &command.encode());
        let next = (self.meta.next_store, self.meta.next_region, self.meta.next_operator);
        let mut txn = Txn::begin(&self.rows, META_REGION).expect("memory does not fail");
        let reply = apply_entry(&entry, &mut self.meta, &mut txn).expect("just encoded");
        let (writes, _) = txn.finish();
        self.rows.write(writes);
        let told = match &reply {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => format!("refused: {error}"),
        };
        if !matches!(reply, Ok(MetaReply::Unchanged)) {
            self.event(format!("{} -> {told}", show(command)));
        }
        let after = (self.meta.next_store, self.meta.next_region, self.meta.next_operator);
        assert!(next.0 <= after.0 && next.1 <= after.1 && next.2 <= after.2, "ids are not used again");
        reply
    }

    pub fn join(&mut self) -> StoreId {
        match self.apply(&MetaCommand::Join { facts: facts(self.meta.next_store), newest: None }) {
            Ok(MetaReply::Joined { store, .. }) => store,
            other => panic!("{other:?}"),
        }
    }

    pub fn request(&mut self, operator: Operator) -> Result<(), StartError> {
        let command = self.driver.request(&self.meta, &self.ledger, operator, self.now)?;
        self.apply(&command)?;
        Ok(())
    }

    /// Replaces the leader of region 0. The new one knows only the rows and the heartbeats.
    pub fn new_driver(&mut self) {
        let meta = MetaState::load(&self.rows).expect("the rows are whole");
        assert_eq!(meta, self.meta);
        self.meta = meta;
        self.driver = Driver::new(DriverConfig::default());
        self.term += 1;
    }

    /// Prepares a merge, as an order that arrives late does.
    pub fn freeze(&mut self, source: RegionId, into: RegionId) {
        let expect = self.regions[&source].descriptor.epoch;
        self.carry_out(&Order::Change {
            region: source,
            expect,
            change: RegionChange::PrepareMerge { into },
        });
    }

    /// Adds a learner, as an order that arrives late does.
    pub fn add_late(&mut self, region: RegionId, store: StoreId) {
        let expect = self.regions[&region].descriptor.epoch;
        let change = RegionChange::Peers(vec![PeerChange::AddLearner(store)]);
        self.carry_out(&Order::Change { region, expect, change });
    }

    /// Runs one moment.
    pub fn tick(&mut self, mut fate: impl FnMut(Cargo) -> Fate) {
        self.now += TICK;
        self.live();
        self.report();
        let step = self.driver.step(&self.meta, &self.ledger, &self.limits, self.term, self.now);
        for command in step.commands {
            if fate(Cargo::Proposal) == Fate::Arrives {
                let _ = self.apply(&command);
            }
        }
        let mut arriving = Vec::new();
        self.late.retain_mut(|(moments, order)| {
            *moments -= 1;
            if *moments == 0 {
                arriving.push(order.clone());
            }
            *moments > 0
        });
        for (store, order) in step.orders {
            let (term, order) = Order::decode(&order.encode(self.term)).expect("just encoded");
            assert_eq!(term, self.term);
            self.event(format!("-> store {store}: {order}"));
            self.check_order(&order);
            match fate(Cargo::Order) {
                Fate::Arrives => arriving.push(order),
                Fate::Lost => {}
                Fate::Late(moments) => {
                    self.late.extend([moments.max(1), moments.max(1) + 1].map(|m| (m, order.clone())))
                }
            }
        }
        for order in arriving {
            self.carry_out(&order);
        }
        self.check();
    }

    pub fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * SECOND / TICK {
            self.tick(|_| Fate::Arrives);
        }
    }

    /// Runs the regions' own actions: elections, catching up, and leaving a joint configuration.
    fn live(&mut self) {
        for region in self.regions.values_mut() {
            let alive = |store: StoreId| !self.dead.contains(&store);
            if !has_quorum(&region.descriptor, alive) || self.leaderless.contains(&region.descriptor.id) {
                region.leader = None;
                continue;
            }
            let leads = |store| alive(store) && region.descriptor.voters().any(|voter| voter == store);
            if !region.leader.is_some_and(leads) {
                region.leader = region.descriptor.voters().find(|&store| alive(store));
                region.term += 1;
            }
            if region.descriptor.merging.is_none() {
                region.commit += 1;
            }
            for (&store, matched) in &mut region.matched {
                let id = region.descriptor.id;
                let fills =
                    region.descriptor.peer_on(store).is_some_and(|peer| peer.role == PeerRole::Learner);
                let filled = if fills && *matched == 0 {
                    let moments = self.filling.entry((id, store)).or_default();
                    *moments += 1;
                    *moments > self.fill_moments
                } else {
                    self.filling.remove(&(id, store));
                    true
                };
                if alive(store) && filled && !(fills && self.stuck.contains(&store)) {
                    *matched = region.commit;
                }
            }
            if region.descriptor.is_joint() {
                region.descriptor =
                    region.descriptor.after(&RegionChange::LeaveJoint).expect("it is joint").region;
            }
        }
    }

    fn report(&mut self) {
        self.seq += 1;
        for store in self.meta.stores.keys().copied().filter(|store| !self.dead.contains(store)) {
            let book = self.books.entry(store).or_default();
            let led: BTreeSet<RegionId> = book.iter().map(LeadReport::region).collect();
            for region in led {
                if self.regions.get(&region).is_none_or(|region| region.leader != Some(store)) {
                    book.remove(region);
                }
            }
            for region in self.regions.values().filter(|region| region.leader == Some(store)) {
                let peers = region.matched.iter().map(|(&store, &matched)| PeerProgress {
                    store,
                    matched,
                    active: !self.dead.contains(&store),
                    needs_snapshot: matched == 0,
                });
                let id = region.descriptor.id;
                let heat = self.heat.get(&id).copied().unwrap_or(0.0);
                // The first leader counts as having always led.
                let led = self.leading.entry(id).or_insert((store, 0));
                if led.0 != store {
                    *led = (store, self.now);
                }
                let known = match led.1 {
                    0 => 1.0,
                    since => 1.0 - (-((self.now - since) as f64) / 1e9 / HEAT_WINDOW_S).exp(),
                };
                let sized = !self.unsized_regions.contains(&id);
                book.put(LeadReport {
                    commit: region.commit,
                    applied: region.commit,
                    bytes: if sized { region.bytes } else { 0 },
                    sized,
                    heat: heat * known,
                    peers: peers.collect(),
                    ..LeadReport::blank(region.descriptor.clone(), region.term)
                });
            }
            let kv_bytes_per_s = self.speeds.get(&store).copied().unwrap_or(1e6);
            let heartbeat = StoreHeartbeat {
                store,
                capability: placement::Capability { kv_bytes_per_s, ops_per_s: 1e6 },
                spread: placement::Spread::all(self.spread),
                capacity_bytes: self.capacity_bytes,
                cpu: self.cpus.get(&store).copied(),
                seq: self.seq,
                leads: book.tell(self.seq, self.seq % 10 == 0),
                unclean: self.unclean.get(&store).cloned().unwrap_or_default(),
                quarantined: self.quarantined.get(&store).cloned().unwrap_or_default(),
                has_session: self.sessions.contains(&store),
                ..StoreHeartbeat::default()
            };
            let heartbeat =
                StoreHeartbeat::decode(&heartbeat.encode(types::NEWEST_VERSION)).expect("just encoded");
            self.ledger.hear(heartbeat, self.now);
        }
    }

    /// Carries out an order as a region's leader does: only for the epoch that it names.
    fn carry_out(&mut self, order: &Order) {
        let Some(region) = self.regions.get(&order.region()).filter(|region| region.leader.is_some()) else {
            return;
        };
        let mut region = region.clone();
        let alive = |store: StoreId| !self.dead.contains(&store);
        let had_quorum = has_quorum(&region.descriptor, alive);
        match order {
            Order::TransferLeader { to, .. } => {
                let is_voter =
                    region.descriptor.peer_on(*to).is_some_and(|peer| peer.role == PeerRole::Voter);
                if is_voter && alive(*to) && region.leader != Some(*to) {
                    (region.leader, region.term) = (Some(*to), region.term + 1);
                }
            }
            Order::Change { expect, .. } | Order::Split { expect, .. }
                if *expect != region.descriptor.epoch =>
            {
                return;
            }
            Order::Split { new_region, .. } => {
                let slots = region.descriptor.slots.expect("a user region");
                let at = slots.first + (slots.len() / 2) as u16;
                self.split(region, at, *new_region);
                return self.event(format!("region {} is split", order.region()));
            }
            Order::Change { change, .. } => {
                let Ok(changed) = region.descriptor.after_entry(change, region.commit + 1) else { return };
                region.commit += 1;
                if let RegionChange::CommitMerge { source, source_index } = change {
                    // A source that no longer exists, or accepts commands again, must never be
                    // absorbed.
                    let truth = self.regions.remove(&source.id).expect("a source is merged once");
                    assert_eq!(truth.descriptor, **source);
                    let merging = truth.descriptor.merging.expect("it was rolled back");
                    assert_eq!(merging, Merging { into: region.descriptor.id, sealed_at: *source_index });
                    assert!(truth.matched.values().all(|matched| matched >= source_index));
                    assert_eq!(truth.commit, *source_index, "a write would be lost");
                }
                region.descriptor = changed.region;
                let old = std::mem::take(&mut region.matched);
                let matched = |peer: &Peer| (peer.store, old.get(&peer.store).copied().unwrap_or(0));
                region.matched = region.descriptor.peers.iter().map(matched).collect();
                if had_quorum && !has_quorum(&region.descriptor, alive) {
                    // A store that was alive when the order was given has died since. A real leader
                    // also checks this.
                    return;
                }
            }
        }
        self.regions.insert(order.region(), region);
    }

    fn split(&mut self, mut region: Region, at: Slot, new_region: RegionId) {
        assert!(self.known.insert(new_region), "region {new_region} was there before");
        let change = RegionChange::Split { at, new_region };
        let Changed { region: left, split_off, .. } =
            region.descriptor.after(&change).expect("it has two slots");
        let right = Region { descriptor: split_off.expect("a split"), term: 6, ..region.clone() };
        region.descriptor = left;
        self.regions.insert(region.descriptor.id, region);
        self.regions.insert(new_region, right);
    }

    /// Checks that no order takes a region's quorum among the stores that are known to be up.
    fn check_order(&self, order: &Order) {
        let Order::Change { region, expect, change } = order else { return };
        let Some(region) = self.regions.get(region).filter(|region| region.descriptor.epoch == *expect)
        else {
            return;
        };
        let is_up = |store: StoreId| self.ledger.is_up(store, self.now);
        if let Ok(changed) = region.descriptor.after(change) {
            let had_quorum = has_quorum(&region.descriptor, is_up);
            assert!(!had_quorum || has_quorum(&changed.region, is_up), "{order}: {:?}", changed.region);
        }
    }

    /// Checks the invariants.
    fn check(&self) {
        for regions in [
            self.meta.regions.values().collect::<Vec<_>>(),
            self.regions.values().map(|region| &region.descriptor).collect(),
        ] {
            let mut slots: Vec<SlotRange> = regions.iter().filter_map(|region| region.slots).collect();
            slots.sort_unstable();
            assert!(slots[0].first == 0 && slots[slots.len() - 1].last == SLOT_COUNT - 1, "{slots:?}");
            assert!(slots.windows(2).all(|pair| pair[0].last + 1 == pair[1].first), "{slots:?}");
        }
        let mut busy = BTreeSet::new();
        for flight in self.meta.operators.values() {
            let regions = [Some(flight.operator.region()), flight.operator.into_region()];
            assert!(
                regions.into_iter().flatten().all(|region| busy.insert(region)),
                "one operator at a time"
            );
        }
        for region in self.meta.regions.values() {
            let truth = self.regions.get(&region.id).map(|region| region.descriptor.epoch);
            assert!(truth.is_none_or(|truth| !region.epoch.is_newer_than(truth)), "nothing is made up");
        }
    }

    /// Returns the bytes that a store holds, including learners that are being filled.
    pub fn held_bytes(&self, store: StoreId) -> u64 {
        let held = self.regions.values().filter(|region| region.descriptor.has_peer_on(store));
        held.map(|region| region.bytes).sum()
    }

    /// Returns true if the agreed and the true state are equal and nothing is in progress.
    pub fn is_at_rest(&self) -> bool {
        let truth = self.regions.values().map(|region| (&region.descriptor, region.descriptor.merging));
        self.meta.operators.is_empty()
            && self.late.is_empty()
            && truth.eq(self.meta.regions.values().map(|region| (region, None)))
    }

    pub fn outcomes(&self) -> Vec<(RegionId, Outcome)> {
        self.meta.history.values().map(|ended| (ended.operator.region(), ended.outcome)).collect()
    }
}

fn has_quorum(region: &RegionDescriptor, alive: impl Fn(StoreId) -> bool) -> bool {
    let majority = |roles: [PeerRole; 2]| {
        let voters: Vec<&Peer> = region.peers.iter().filter(|peer| roles.contains(&peer.role)).collect();
        voters.iter().filter(|peer| alive(peer.store)).count() > voters.len() / 2
    };
    majority([PeerRole::Voter, PeerRole::Incoming]) && majority([PeerRole::Voter, PeerRole::Outgoing])
}

pub struct Seconds(pub BootNanos);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / SECOND, self.0 % SECOND / (SECOND / 10))
    }
}

pub fn show_region(region: &RegionDescriptor) -> String {
    let peers: Vec<String> = region
        .peers
        .iter()
        .map(|peer| {
            let role = match peer.role {
                PeerRole::Voter => "",
                PeerRole::Learner => "L",
                PeerRole::Incoming => "+",
                PeerRole::Outgoing => "-",
            };
            format!("{}{role}", peer.store)
        })
        .collect();
    let slots = region.slots.map_or("no slots".into(), |slots| format!("{}-{}", slots.first, slots.last));
    let epoch = region.epoch;
    format!("{} [{slots}] {}/{} on {}", region.id, epoch.conf_version, epoch.version, peers.join(" "))
}

fn show(command: &MetaCommand) -> String {
    match command {
        MetaCommand::ReportRegions { regions } => {
            let regions: Vec<String> = regions.iter().map(show_region).collect();
            format!("report {}", regions.join(", "))
        }
        MetaCommand::BeginOperator { id, operator } => format!("begin {id}: {operator}"),
        MetaCommand::AdvanceOperator { id, phase } => format!("advance {id}: {phase:?}"),
        MetaCommand::FinishOperator { id, outcome } => format!("finish {id}: {outcome}"),
        MetaCommand::Join { facts, .. } => {
            let key = facts.key.expect("a store that joins has a key");
            format!("join with key {}", u64::from_be_bytes(key.0[..8].try_into().expect("eight bytes")))
        }
        other => format!("{other:?}"),
    }
}

/// Parses `kind region [from] to`, as administrators write it.
pub fn operator(kind: &str, numbers: &[u64]) -> Option<Operator> {
    let reason = Reason::Requested;
    Some(match (kind, numbers) {
        ("transfer", &[region, from, to]) => Operator::TransferLeader { region, from, to, reason },
        ("add", &[region, to]) => Operator::AddPeer { region, to, reason },
        ("remove", &[region, from]) => Operator::RemovePeer { region, from, reason },
        ("move", &[region, from, to]) => Operator::MovePeer { region, from, to, reason },
        ("split", &[region]) => Operator::Split { region, reason },
        ("merge", &[region, into]) => Operator::Merge { region, into, reason },
        _ => return None,
    })
}
