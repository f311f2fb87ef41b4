//! The faults and their frequency. Each seed draws the kinds of faults and their weights, so that
//! some runs are full of one kind and free of the others.

use cluster::{InFlight, MemberState, MetaCommand, Outcome, Phase};
use placement::{Operator, Reason};
use types::{PeerChange, PeerRole, RegionChange, RegionId, StoreId, META_REGION};

use crate::clock::{MILLISECOND, SECOND};
use crate::network::{Weather, PARTITIONS};
use crate::rng::Rng;
use crate::store::{facts, Process};
use crate::world::{Asked, Event, Packet, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill,
    /// A store is stopped by plan, as an operator does it, and started again.
    PlannedStop,
    KillAll,
    KillStaggered,
    PowerLoss,
    PowerLossAll,
    Pause,
    Partition,
    SlowLog,
    /// A log write of a store does not return for seconds.
    LogHangs,
    /// Clients write as much as they can while a log device is slow.
    Rush,
    /// A device runs out of room, down to the reserve or completely.
    FullDevice,
    /// A store is asked to leave, or to stay after all.
    Drain,
    /// A store joins with an empty disk.
    Join,
    ClockJump,
    Drift,
    Transfer,
    /// A transfer to a process that is paused before it reads the message.
    TransferPause,
    WeatherChange,
    /// A leader and one follower cannot reach each other, and the others restart after a while.
    Duel,
    /// A leader transfers its leadership of all regions and receives nothing from then on.
    TransferDeaf,
    /// A leader's messages are lost, and the answers to its earlier messages come late.
    LateAnswers,
    /// An operator is requested.
    Operator,
    /// A merge of neighbours is requested. Sometimes a store is paused and the merge is rolled
    /// back.
    Merge,
    /// An unplanned change of peers is requested.
    Change,
    /// A store is lost with all its data.
    StoreLost,
    /// Bits flip in the synced tail of a log, and its store does not start again.
    TailDamaged,
}

pub const FAULTS: [(Fault, &str); 27] = [
    (Fault::Kill, "process killed"),
    (Fault::PlannedStop, "store restarts by plan"),
    (Fault::KillAll, "all processes killed"),
    (Fault::KillStaggered, "majorities killed in turn"),
    (Fault::PowerLoss, "machine lost power"),
    (Fault::PowerLossAll, "all machines lost power"),
    (Fault::Pause, "process stood still"),
    (Fault::Partition, "network parted"),
    (Fault::SlowLog, "log device slow"),
    (Fault::LogHangs, "log device hung"),
    (Fault::Rush, "rush of writes to a slow log"),
    (Fault::FullDevice, "device full"),
    (Fault::Drain, "store asked to go or to stay"),
    (Fault::Join, "store asked to join"),
    (Fault::ClockJump, "wall clock jumped"),
    (Fault::Drift, "clock drifted"),
    (Fault::Transfer, "leader transfer"),
    (Fault::TransferPause, "transfer to a still process"),
    (Fault::WeatherChange, "network weather changed"),
    (Fault::Duel, "pair parted, the others restarted"),
    (Fault::TransferDeaf, "transfer from a leader gone deaf"),
    (Fault::LateAnswers, "answers came late to a mute leader"),
    (Fault::Operator, "operator asked for"),
    (Fault::Merge, "merge asked for"),
    (Fault::Change, "unplanned change of peers"),
    (Fault::StoreLost, "store lost with its disk"),
    (Fault::TailDamaged, "synced log tail damaged"),
];

/// Times of a duel: until pending entries are written everywhere, then until the rival may
/// campaign, then the number of restarts and the time between them.
const QUIET: u64 = 200 * MILLISECOND;
const PATIENCE: u64 = 900 * MILLISECOND;
const RESTARTS: u64 = 10;
const RESTART_PERIOD: u64 = 160 * MILLISECOND;

const DAY_MS: u64 = 86_400_000;

/// Maximum number of regions. With more, no split is requested.
pub(crate) const REGIONS_MAX: usize = 8;

/// Maximum number of stores. With more, no store joins.
const STORES_MAX: usize = 8;
/// The first number for the keys and addresses of stores that join.
const FIRST_STRANGER: u64 = 100;

/// Maximum drift of the clocks in parts per million.
const DRIFT_PPM: u64 = replica::DRIFT_BOUND_PPM;

#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The kinds of faults. A more frequent kind is listed more often.
    kinds: Vec<Fault>,
    /// The approximate mean time between two faults.
    pub(crate) pause_ns: u64,
    /// Minimum duration of the faults.
    pub least_ns: u64,
    /// Percentage of the steps of a snapshot or a peer's lifecycle before which the store crashes.
    pub step_crash_percent: u64,
    pub is_over: bool,
    /// True if entries occasionally fail, on some stores or on all.
    pub entries_fail: bool,
    /// True if stores report some marks of quarantines late.
    pub has_late_marks: bool,
    /// The proposal window, in entries.
    pub window: u64,
    /// True if weak reads have bounds.
    pub bounds_reads: bool,
    /// True if stores know ranges of rows.
    pub knows_ranges: bool,
    /// True if entries carry thresholds of collections.
    pub has_thresholds: bool,
    /// True if leaders answer writes that change nothing without an entry.
    pub finds_nothing: bool,
    /// True if workers write some batches of the log themselves.
    pub logs_at_once: bool,
    /// True if stores execute commands on sorted sets in parts.
    pub has_copies: bool,
    /// True if stores pass commands on to leaders.
    pub passes_on: bool,
    /// True if leaders use no lease and ask a mere majority for each strong read.
    pub asks_majority: bool,
}

impl Plan {
    pub(crate) fn asked(&self) -> replica::Asked {
        match self.asks_majority {
            true => replica::Asked::Majority,
            false => replica::Asked::All,
        }
    }

    pub fn draw(rng: &mut Rng) -> Plan {
        let mut kinds = Vec::new();
        let step_crash_percent = if rng.chance(40) { 0 } else { rng.between(5, 40) };
        if rng.chance(30) {
            // The plan has only one kind, with time between the faults, so that no other fault
            // hides its consequences.
            kinds.extend(rng.pick(&FAULTS).map(|(kind, _)| kind));
            let pause_ns = rng.between(1200, 3000) * MILLISECOND;
            return Plan { kinds, pause_ns, least_ns: 12 * SECOND, step_crash_percent, ..Plan::default() };
        }
        if rng.chance(25) {
            // Most faults are changes of regions and stores. There are leaders most of the time,
            // and time between the changes.
            for kind in [Fault::Merge, Fault::Operator, Fault::Drain, Fault::Join, Fault::Change] {
                let weight = rng.between(1, if kind == Fault::Merge { 12 } else { 4 });
                kinds.extend((0..weight).map(|_| kind));
            }
            kinds.extend(rng.pick(&FAULTS).map(|(kind, _)| kind));
            let pause_ns = rng.between(400, 1500) * MILLISECOND;
            return Plan { kinds, pause_ns, least_ns: 15 * SECOND, step_crash_percent, ..Plan::default() };
        }
        for (kind, _) in FAULTS {
            let often = if matches!(kind, Fault::Operator | Fault::Merge) { 8 } else { 3 };
            let weight = if rng.chance(45) { 0 } else { rng.between(1, often) };
            kinds.extend((0..weight).map(|_| kind));
        }
        let pause_ns = rng.between(100, 1500) * MILLISECOND;
        Plan { kinds, pause_ns, least_ns: 0, step_crash_percent, ..Plan::default() }
    }

    /// A plan without faults.
    #[cfg(test)]
    pub fn none() -> Plan {
        Plan { is_over: true, ..Plan::default() }
    }

    pub fn drift(rng: &mut Rng) -> i64 {
        rng.below(2 * DRIFT_PPM + 1) as i64 - DRIFT_PPM as i64
    }
}

impl World {
    pub(crate) fn fault(&mut self) {
        if self.plan.is_over {
            return;
        }
        let pause = self.rng.between(self.plan.pause_ns / 4, 2 * self.plan.pause_ns);
        self.schedule(pause, Event::Fault);
        let Some(fault) = self.rng.pick(&self.plan.kinds.clone()) else { return };
        let kind = FAULTS.iter().find(|(other, _)| *other == fault).map_or("", |(_, kind)| kind);
        if !matches!(fault, Fault::StoreLost | Fault::TailDamaged) {
            self.tally.fault(kind);
        }
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let victim = self.victim(&stores);
        let length = self.rng.between(50, 3000) * MILLISECOND;
        self.say(&format!("fault: {kind}, store {victim}, {} ms", length / MILLISECOND));
        self.damage_running(victim);
        match fault {
            Fault::Kill => {
                let is_power = self.dies_with_its_machine();
                self.crash_for(victim, length, is_power);
            }
            Fault::PlannedStop => self.stop_by_plan(victim),
            Fault::PowerLoss => self.crash_for(victim, length, true),
            Fault::KillAll | Fault::PowerLossAll => {
                for &store in &stores {
                    let down = self.rng.below(length);
                    self.crash_for(store, down, fault == Fault::PowerLossAll);
                }
            }
            Fault::KillStaggered => {
                let majority = stores.len() / 2 + 1;
                for at in 0..majority as u64 {
                    let store = stores[((victim + at) % stores.len() as u64) as usize];
                    let down = length / 2 + at * (length / 3);
                    let is_power = self.dies_with_its_machine();
                    self.crash_for(store, down, is_power);
                }
            }
            Fault::Pause => self.pause(victim, length),
            Fault::Partition => {
                let shape = self.rng.pick(&PARTITIONS).expect("there are shapes");
                let partition = self.network.part(shape, &stores, &mut self.rng);
                self.schedule(length, Event::Heal { partition });
            }
            Fault::SlowLog => {
                let until = self.now + length;
                self.store_mut(victim).slow_log_until = until;
            }
            Fault::LogHangs => {
                let until = self.now + self.rng.between(2500, 9000) * MILLISECOND;
                self.store_mut(victim).hung_until = until;
                // Sometimes another store, possibly the target of the transfers, is paused at about
                // the time of the transfers.
                if let Some(heir) =
                    self.rng.pick(&stores).filter(|&heir| heir != victim && self.rng.chance(60))
                {
                    let delay = self.rng.between(1500, 2500) * MILLISECOND;
                    self.schedule(delay, Event::Silence { store: heir });
                }
            }
            Fault::Rush => {
                let until = self.now + length.min(SECOND);
                self.store_mut(victim).slow_log_until = until + SECOND;
                self.rush_until = until;
            }
            Fault::FullDevice => {
                let is_at_the_wall = self.rng.chance(60);
                let until = self.now + length;
                let store = self.store_mut(victim);
                store.low_until = until + SECOND / 2;
                if is_at_the_wall {
                    store.full_until = until;
                }
            }
            Fault::Drain => self.ask_to_go(&stores),
            Fault::Join => self.ask_to_join(&stores),
            Fault::ClockJump => {
                let span = self.rng.pick(&[4_000, 20_000, 2 * DAY_MS]).expect("there are spans");
                let offset = self.rng.below(span + 1) as i64 - span as i64 / 2;
                self.store_mut(victim).clock.set_wall(offset);
            }
            Fault::Drift => {
                let (now, ppm) = (self.now, Plan::drift(&mut self.rng));
                self.store_mut(victim).clock.drift(now, ppm);
            }
            Fault::Transfer | Fault::TransferPause => {
                let led = self.stores[&victim].led();
                let Some(region) = self.rng.pick(&led) else { return };
                let Some(to) = self.rng.pick(&stores) else { return };
                self.send(victim, victim, Packet::Asked(Asked::Transfer { region, to }));
                if fault == Fault::TransferPause {
                    self.pause(to, length);
                }
            }
            Fault::WeatherChange => self.change_weather(),
            Fault::Duel => self.duel(victim, &stores),
            Fault::TransferDeaf => self.transfer_deaf(victim, &stores, length),
            Fault::LateAnswers => self.delay_answers(victim, &stores),
            Fault::Operator => self.ask_for_operator(&stores),
            Fault::Merge => self.ask_for_merge(&stores),
            Fault::Change => self.ask_for_change(victim, &stores),
            Fault::StoreLost => self.lose(victim, false),
            Fault::TailDamaged => self.lose(victim, true),
        }
    }

    /// The follower campaigns while the leader has a lease from voters that have restarted since. A
    /// rival that lacks entries gets no votes, so nothing is written during the duel.
    fn duel(&mut self, leader: StoreId, stores: &[StoreId]) {
        let others: Vec<StoreId> = stores.iter().copied().filter(|&store| store != leader).collect();
        let Some(rival) = self.rng.pick(&others) else { return };
        self.quiet = Some((rival, self.now + QUIET + PATIENCE + RESTARTS * RESTART_PERIOD));
        let others = others.into_iter().filter(|&store| store != rival).collect();
        self.schedule(QUIET, Event::Duel { leader, rival, others });
    }

    pub(crate) fn begin_duel(&mut self, leader: StoreId, rival: StoreId, others: &[StoreId]) {
        if self.plan.is_over {
            return;
        }
        let partition = self.network.cut(leader, rival);
        self.schedule(PATIENCE + RESTARTS * RESTART_PERIOD, Event::Heal { partition });
        for &store in others {
            for again in 0..RESTARTS {
                self.schedule(PATIENCE + again * RESTART_PERIOD, Event::Restart { store });
            }
        }
    }

    /// Delays the answers to a leader, and later mutes it. The other stores may elect a new leader
    /// before the old one gets the answers to its last rounds.
    fn delay_answers(&mut self, leader: StoreId, stores: &[StoreId]) {
        let late = self.rng.between(900, 1600) * MILLISECOND;
        let lag = self.network.lag(leader, late);
        self.schedule(late + 2 * SECOND, Event::Heal { partition: lag });
        // The leader can still send rounds whose answers will come late.
        self.schedule(late / 3, Event::Mute { store: leader, stores: stores.to_vec() });
    }

    pub(crate) fn mute(&mut self, store: StoreId, stores: &[StoreId]) {
        if !self.plan.is_over {
            let partition = self.network.mute(store, stores);
            self.schedule(2 * SECOND, Event::Heal { partition });
        }
    }

    fn transfer_deaf(&mut self, leader: StoreId, stores: &[StoreId], length: u64) {
        for region in self.stores[&leader].led() {
            let Some(to) = self.rng.pick(stores) else { return };
            self.send(leader, leader, Packet::Asked(Asked::Transfer { region, to }));
        }
        let partition = self.network.deafen(leader, stores);
        self.schedule(length, Event::Heal { partition });
    }

    /// Kills a process, which starts again after a short time.
    pub(crate) fn restart(&mut self, store: StoreId) {
        if !self.plan.is_over {
            let down = self.rng.below(20) * MILLISECOND;
            self.crash_for(store, down, false);
        }
    }

    /// Loses at most one store of a cluster permanently, and only if another one can replace it.
    fn lose(&mut self, victim: StoreId, by_damage: bool) {
        let has_lost = self.stores.values().any(|store| store.is_lost);
        if has_lost || self.staying().len() < 4 || self.stores[&victim].process.is_none() {
            return;
        }
        self.tally.fault(if by_damage { "synced log tail damaged" } else { "store lost with its disk" });
        self.crash(victim, true);
        let store = self.store_mut(victim);
        if by_damage {
            let is_damaged = store.durable.disk.damage_tail();
            self.start(victim);
            if is_damaged && !self.stores[&victim].is_lost {
                self.violate("recovery", format!("store {victim} took a damaged log for whole"));
            }
        } else {
            store.is_lost = true;
        }
    }

    pub(crate) fn meta_leader(&self, stores: &[StoreId]) -> Option<StoreId> {
        stores.iter().copied().find(|store| self.stores[store].led().contains(&META_REGION))
    }

    /// Returns the members that were not asked to leave, according to the leader of the meta
    /// region.
    pub(crate) fn staying(&self) -> Vec<StoreId> {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let leader = self.meta_leader(&stores).and_then(|leader| self.stores[&leader].process.as_ref());
        let stays = |store: &StoreId| {
            let is_up = |process: &Process| {
                process.meta.stores.get(store).is_some_and(|record| record.state == MemberState::Up)
            };
            let known = &self.stores[store];
            !known.is_removed
                && !known.is_lost
                && !self.asked_to_go.contains(store)
                && leader.is_some_and(is_up)
        };
        stores.into_iter().filter(stays).collect()
    }

    /// Asks a store to leave, but only if enough stores remain for three peers of every region.
    fn ask_to_go(&mut self, stores: &[StoreId]) {
        let Some(leader) = self.meta_leader(stores) else { return };
        let Some(process) = self.stores[&leader].process.as_ref() else { return };
        let going = process.meta.members().filter(|record| record.state == MemberState::Draining);
        let going: Vec<StoreId> = going.map(|record| record.id).collect();
        let staying = self.staying();
        let (store, state) = match self.rng.pick(&going).filter(|_| self.rng.chance(50)) {
            Some(store) => (store, MemberState::Up),
            None => match self.rng.pick(&staying) {
                Some(store) if staying.len() > 3 => (store, MemberState::Draining),
                _ => return,
            },
        };
        self.asked_to_go.insert(store);
        let command = MetaCommand::SetStoreState { store, state };
        self.send(leader, leader, Packet::Asked(Asked::Meta(command)));
    }

    fn ask_to_join(&mut self, stores: &[StoreId]) {
        let Some(leader) = self.meta_leader(stores) else { return };
        if stores.len() >= STORES_MAX {
            return;
        }
        // Sometimes a store asks again.
        let number = FIRST_STRANGER + self.tally.joined + self.rng.below(2);
        let command = MetaCommand::Join { facts: facts(number), newest: Some(types::NEWEST_VERSION) };
        self.send(leader, leader, Packet::Asked(Asked::Meta(command)));
    }

    fn ask_for_operator(&mut self, stores: &[StoreId]) {
        let Some(meta_leader) = self.meta_leader(stores) else { return };
        let Some(process) = self.stores[&meta_leader].process.as_ref() else { return };
        let regions: Vec<RegionId> = process.meta.regions.keys().copied().collect();
        let Some(region) = self.rng.pick(&regions) else { return };
        let members: Vec<StoreId> =
            process.meta.regions[&region].peers.iter().map(|peer| peer.store).collect();
        let (Some(to), Some(from)) = (self.rng.pick(stores), self.rng.pick(&members)) else { return };
        let reason = Reason::Requested;
        let operator = match self.rng.below(8) {
            0 => Operator::AddPeer { region, to, reason },
            1 => Operator::RemovePeer { region, from, reason },
            2 | 3 => Operator::MovePeer { region, from, to, reason },
            _ if regions.len() < REGIONS_MAX => Operator::Split { region, reason },
            _ => return,
        };
        self.send(meta_leader, meta_leader, Packet::Asked(Asked::Operator(operator)));
    }

    /// Requests a merge, or a split of a region if no regions can be merged.
    fn ask_for_merge(&mut self, stores: &[StoreId]) {
        let Some(meta_leader) = self.meta_leader(stores) else { return };
        let Some(process) = self.stores[&meta_leader].process.as_ref() else { return };
        let regions = &process.meta.regions;
        let pairs: Vec<(RegionId, RegionId)> = regions
            .values()
            .flat_map(|one| {
                let fits = regions.values().filter(|other| other.joined(one).is_some());
                fits.map(|other| (one.id, other.id))
            })
            .collect();
        let ids: Vec<RegionId> = regions.keys().copied().filter(|id| *id != META_REGION).collect();
        let reason = Reason::Requested;
        let operator = match self.rng.pick(&pairs).filter(|_| self.rng.chance(75)) {
            Some((region, into)) => {
                let members: Vec<StoreId> = regions[&region].peers.iter().map(|peer| peer.store).collect();
                // Most of these delays end after the source was sealed and before all of its peers
                // are known to hold the seal.
                let delay = self.rng.between(300, 2000) * MILLISECOND;
                match (self.rng.below(3), self.rng.pick(&members)) {
                    (0, Some(silent)) => self.schedule(delay, Event::Silence { store: silent }),
                    (1, _) => self.schedule(delay, Event::GiveUpMerges),
                    _ => {}
                }
                Operator::Merge { region, into, reason }
            }
            None if ids.len() < REGIONS_MAX => match self.rng.pick(&ids) {
                Some(region) => Operator::Split { region, reason },
                None => return,
            },
            None => return,
        };
        self.send(meta_leader, meta_leader, Packet::Asked(Asked::Operator(operator)));
    }

    /// Requests a change that may or may not be possible.
    fn ask_for_change(&mut self, leader: StoreId, stores: &[StoreId]) {
        let Some(region) = self.rng.pick(&self.stores[&leader].led()) else { return };
        let process = self.stores[&leader].process.as_ref();
        let status = process.and_then(|process| process.shard.status(region, 0));
        let Some(descriptor) = status.map(|status| status.descriptor) else { return };
        let learners = descriptor.peers.iter().filter(|peer| peer.role == PeerRole::Learner);
        let learner = learners.map(|peer| peer.store).next();
        let voters: Vec<StoreId> = descriptor.voters().collect();
        let (Some(voter), Some(store)) = (self.rng.pick(&voters), self.rng.pick(stores)) else { return };
        let changes = match (self.rng.below(10), learner) {
            (0..=3, Some(learner)) => vec![PeerChange::Promote(learner), PeerChange::Demote(voter)],
            (4..=5, Some(learner)) => vec![PeerChange::Promote(learner)],
            (6..=7, Some(learner)) => vec![PeerChange::Remove(learner)],
            (8, _) if voters.len() > 2 => vec![PeerChange::Demote(voter)],
            _ => vec![PeerChange::AddLearner(store)],
        };
        let change = RegionChange::Peers(changes);
        self.send(leader, leader, Packet::Asked(Asked::Change { region, change }));
    }

    /// Rolls back the merges that can still be rolled back.
    pub(crate) fn give_up_merges(&mut self) {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let Some(leader) = self.meta_leader(&stores).filter(|_| !self.plan.is_over) else { return };
        let Some(process) = self.stores[&leader].process.as_ref() else { return };
        let is_going = |flight: &&InFlight| {
            flight.phase == Phase::Going && matches!(flight.operator, Operator::Merge { .. })
        };
        let going: Vec<_> =
            process.meta.operators.values().filter(is_going).map(|flight| flight.id).collect();
        for id in going {
            let phase = Phase::Undoing { because: Outcome::Aborted };
            let command = MetaCommand::AdvanceOperator { id, phase };
            self.send(leader, leader, Packet::Asked(Asked::Meta(command)));
        }
    }

    pub(crate) fn silence(&mut self, store: StoreId) {
        if !self.plan.is_over {
            let length = self.rng.between(2000, 9000) * MILLISECOND;
            self.pause(store, length);
        }
    }

    pub(crate) fn change_weather(&mut self) {
        let rng = &mut self.rng;
        let slow_ms = rng.pick(&[100, 500, 3000]).expect("a delay");
        self.network.weather =
            Weather { lost: rng.below(8), doubled: rng.below(8), slow: rng.below(6) * rng.below(3), slow_ms };
    }

    /// Chooses a store. Leaders are chosen more often than others.
    pub(crate) fn victim(&mut self, stores: &[StoreId]) -> StoreId {
        let leaders: Vec<StoreId> =
            stores.iter().copied().filter(|store| !self.stores[store].led().is_empty()).collect();
        let from = if self.rng.chance(60) && !leaders.is_empty() { leaders } else { stores.to_vec() };
        self.rng.pick(&from).expect("there are stores")
    }

    pub(crate) fn crash_for(&mut self, store: StoreId, length: u64, is_power: bool) {
        let is_power = is_power && self.machine_may_crash(store);
        self.crash(store, is_power);
        self.schedule(length + 1, Event::Start { store });
    }

    fn pause(&mut self, store: StoreId, length: u64) {
        let until = self.now + length;
        self.store_mut(store).paused_until = until;
    }

    /// Ends all faults: every store runs, reaches all others, and has a fast device.
    pub fn calm(&mut self) {
        self.plan.is_over = true;
        self.network.calm();
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.calm();
        }
        let now = self.now;
        for store in self.stores.values_mut() {
            store.paused_until = 0;
            (store.slow_log_until, store.hung_until) = (now, now);
            (store.low_until, store.full_until) = (now, now);
        }
        let down: Vec<StoreId> =
            self.stores.iter().filter(|(_, s)| s.process.is_none()).map(|(&id, _)| id).collect();
        for store in down {
            self.start(store);
        }
    }

    /// Returns the time that a log write with its sync takes.
    pub(crate) fn log_delay(&mut self, store: StoreId) -> u64 {
        let is_slow = self.now < self.stores[&store].slow_log_until;
        let span = if is_slow { SECOND / 2 } else { 4 * MILLISECOND };
        MILLISECOND / 2 + self.rng.below(span)
    }
}
