//! The worker's thread: inputs, turns, and their effects in the order that `node` gives.

use cluster::Route;
use node::{Effect, Input, Leadership, Moment, Outcome as Answered, Submit, Watch, Work as Proposal};
use replica::{Input as RaftInput, Role};
use types::{RegionId, StoreId, Thresholds, THRESHOLDS};

use super::hang::HUNG_LOG_BYTES;
use super::log::ToLog;
use super::{Asker, Reader, ToShard, ENTRIES_HELD_MAX, PUSHED_BYTES};
use crate::absence::{has_past, PAST_ENTRY_BYTES};
use crate::client::has_all_types;
use crate::client::PATIENCE;
use crate::clock::MILLISECOND;
use crate::observation::{EntryId, Item, Observation};
use crate::world::{Packet, Work, World};

/// Returns the thresholds of collections that a leader knows in a turn: half of the time the
/// defaults, and otherwise low ones, so that leaders of the same region differ. They change only
/// the layout of rows, in which all replicas must agree.
fn drawn_thresholds(seed: u64) -> Thresholds {
    let mut draw = types::Draw::new(seed);
    let mut thresholds = Thresholds::default();
    if draw.below(2) == 0 {
        for threshold in &THRESHOLDS {
            let value = draw.below(4).to_string();
            thresholds.set(threshold.name, &value).expect("a small number");
        }
    }
    thresholds
}

/// Proposed entries and their items.
#[derive(Default)]
struct Proposed(Vec<(EntryId, Vec<Item>)>);

impl Watch<Asker> for Proposed {
    fn proposed(&mut self, _: RegionId, seed: u64, clients: &mut dyn Iterator<Item = (&Asker, usize)>) {
        let items = |(asker, _): (&Asker, usize)| match asker {
            Asker::Part { items, .. } => items.to_vec(),
            Asker::Upkeep(slot) => vec![Item::ExpireDue(*slot)],
            Asker::Sweep => vec![Item::Unseen],
            Asker::Meta => Vec::new(),
        };
        let items: Vec<Item> = clients.flat_map(items).collect();
        if !items.is_empty() {
            self.0.push((seed, items));
        }
    }
}

impl World {
    pub(super) fn tell(&mut self, id: StoreId, input: ToShard) {
        let delay = self.rng.below(MILLISECOND / 5);
        let Some(process) = self.process(id) else { return };
        process.inbox.push_back(input);
        if !std::mem::replace(&mut process.has_turn, true) {
            self.schedule_work(id, delay, Work::Turn);
        }
    }

    pub(crate) fn input(&mut self, id: StoreId, input: RaftInput) {
        self.tell(id, Input::Raft(input));
    }

    /// Submits work. Its deadline is not later than the time at which the client gives up. During
    /// faults some deadlines are shorter.
    pub(super) fn submit(&mut self, id: StoreId, region: RegionId, work: Proposal, client: Asker) {
        let is_short = !self.plan.is_over && self.rng.chance(20);
        let patience = if is_short { self.rng.below(PATIENCE) } else { PATIENCE };
        let deadline = self.boot(id) + patience;
        self.tell(id, Input::Submit(Submit { region, work, deadline, author: 0, client }));
    }

    pub(crate) fn receive(&mut self, id: StoreId, from: StoreId, packet: Packet) {
        match packet {
            Packet::Raft { region, message } => self.input(id, RaftInput::Message { from, region, message }),
            Packet::Heartbeat(bytes) => self.hear(id, &bytes),
            Packet::Announced(descriptor) => {
                if self.is_tracing {
                    self.say(&format!("store {from} announces to {id}: {descriptor:?}"));
                }
                self.input(id, RaftInput::Announced { from, descriptor });
            }
            Packet::Order(bytes) => self.ordered(id, &bytes),
            Packet::AskApplied { question } => self.asked_applied(id, from, question),
            Packet::Applied { question, index } => self.told_applied(id, question, index),
            Packet::Commands { call, part } => self.take_passed(id, from, call, part),
            Packet::Replies { call, replies } => self.take_replies(id, call, replies),
            Packet::Asked(asked) => self.asked(id, asked),
            Packet::AskMerged { regions } => self.answer_merged(id, from, regions),
            Packet::Merged { asked, merged } => self.hear_merged(id, &asked, merged),
        }
    }

    pub(super) fn tick(&mut self, id: StoreId) {
        self.input(id, RaftInput::Tick);
        let boot = self.boot(id);
        let Some(process) = self.process(id) else { return };
        process.shard.expire(boot);
        self.keep_session(id);
        let pause = 90 * MILLISECOND + self.rng.below(20 * MILLISECOND);
        self.schedule_work(id, pause, Work::Tick);
    }

    pub(super) fn turn(&mut self, id: StoreId) {
        let (boot, stamp) = (self.boot(id), self.usable_ms(id));
        let Some(process) = self.process(id) else { return };
        process.has_turn = false;
        for input in std::mem::take(&mut process.inbox) {
            if self.process(id).is_none() {
                return;
            }
            let expect = match &input {
                Input::ChangeRegion { expect, .. } => Some(*expect),
                _ => None,
            };
            let applied = match &input {
                Input::Raft(RaftInput::Applied { region, index }) => Some((*region, *index)),
                _ => None,
            };
            if matches!(input, Input::Raft(RaftInput::StopLeading)) {
                self.show_stop(id);
            }
            let Some(process) = self.process(id) else { return };
            process.shard.step(input, boot);
            let token = process.shard.last_token();
            process.expected.extend(expect.map(|expect| (token, expect)));
            if let Some((region, index)) = applied {
                self.with_apply_queue(id, |queue, threads| queue.applied(region, index, threads));
            }
        }
        while !self.is_over() {
            self.last_entry += 1;
            let seed = self.last_entry;
            let mut proposed = Proposed::default();
            let has_thresholds = self.plan.has_thresholds;
            let Some(process) = self.process(id) else { return };
            let version = types::NEWEST_VERSION;
            let thresholds = if has_thresholds { drawn_thresholds(seed) } else { Thresholds::default() };
            let now = Moment { boot, stamp: Some(stamp), version, thresholds, seed, room: process.room() };
            let effects = process.shard.turn(now, &mut proposed);
            for (entry, items) in proposed.0 {
                self.observe(&Observation::Proposed { entry, items: &items });
            }
            match effects {
                Ok(Some(effects)) => {
                    for effect in effects {
                        if self.process(id).is_none() {
                            return;
                        }
                        self.carry_out(id, effect);
                    }
                }
                Ok(None) => break,
                Err(fatal) => return self.violate("recovery", format!("store {id} stops: {fatal}")),
            }
        }
        self.look_at_memory(id);
    }

    fn look_at_memory(&mut self, id: StoreId) {
        let (boot, seed) = (self.boot(id), self.seed);
        let Some(process) = self.process(id) else { return };
        let withheld = process.shard.withheld_bytes() > 0;
        let relays = process.shard.relay_counts();
        let before = std::mem::replace(&mut process.relays, relays);
        let refused = process.memory.refused()
            - std::mem::replace(&mut process.appends_refused, process.memory.refused());
        let held = process.memory.held();
        // Until a hang is detected, a leader adds clients' proposals to the entries that wait for
        // the log.
        let hung = if process.device.waits_long(boot) { HUNG_LOG_BYTES } else { 0 };
        // The last entry of a log stays while the next one arrives, however large they are.
        let past = if has_past(seed) { 2 * PAST_ENTRY_BYTES } else { 0 };
        let pushed = if has_all_types(seed) { PUSHED_BYTES } else { 0 };
        let most = ENTRIES_HELD_MAX + hung + past + pushed;
        self.tally.withheld += u64::from(withheld);
        self.tally.appends_refused += refused;
        self.tally.chained += relays.chained - before.chained;
        self.tally.relayed += relays.relayed - before.relayed;
        self.tally.fallbacks += relays.fallbacks - before.fallbacks;
        if held > most {
            self.violate("memory", format!("store {id} holds {held} bytes of its logs"));
        }
    }

    fn carry_out(&mut self, id: StoreId, effect: Effect<Asker, Reader>) {
        match effect {
            Effect::Leadership { region, leadership, is_self } => self.lead(id, region, leadership, is_self),
            Effect::Lease { region, term, until } => {
                let Some(process) = self.process(id) else { return };
                if let Some(shared) = process.regions.get_mut(&region) {
                    shared.lease = until.filter(|_| shared.leadership.is_of(id, term));
                }
            }
            Effect::Seeking { region, seeker } => self.seek(id, region, seeker),
            Effect::Send { to, messages, .. } => {
                for (region, message) in messages {
                    let Some(process) = self.process(id) else { return };
                    if let Some(shared) = process.regions.get_mut(&region) {
                        shared.announced = shared.announced.max(replica::announced_commit(&message));
                    }
                    if !self.network.reaches(id, to) && self.rng.chance(20) {
                        self.input(id, RaftInput::StoreUnreachable { store: to });
                    }
                    self.send(id, to, Packet::Raft { region, message });
                }
            }
            // A received snapshot is kept until it is applied.
            Effect::AcceptSnapshot { .. } => {}
            Effect::Persist(batch) => {
                if let Err(batch) = self.log_at_once(id, batch) {
                    self.log(id, ToLog::Append(batch));
                }
            }
            Effect::Apply { region, entries } => {
                let term = self.term_of(id, region);
                let committed: Vec<_> = entries.iter().map(|apply| apply.entry.clone()).collect();
                self.observe(&Observation::Committed { region, term, entries: &committed });
                self.with_apply_queue(id, |queue, threads| queue.apply(region, entries, threads));
            }
            Effect::Life(job) => self.with_apply_queue(id, |queue, threads| queue.live(job, threads)),
            Effect::StopApplying { region, index } => self.stop_applying(id, region, index),
            Effect::ResumeApplying { region } => self.resume_applying(id, region),
            Effect::Truncate { region, index, term } => {
                self.log(id, ToLog::Truncate { region, index, term });
                self.tally.truncations += 1;
            }
            Effect::Answer { client, outcome } => self.answer(id, client, outcome),
            Effect::NotApplied { waiting, outcome } => {
                if let Answered::Refused(_) = outcome {
                    self.observe(&Observation::NotProposed { entry: waiting.seed() });
                }
                for client in waiting.clients().collect::<Vec<_>>() {
                    self.answer(id, client, outcome.clone());
                }
            }
            Effect::Read { reader: Reader::Part(part), proven: Ok(()), .. } => {
                let delay = self.rng.below(2 * MILLISECOND);
                self.schedule_work(id, delay, Work::ProvenRead { part });
            }
            Effect::Read { reader: Reader::Part(part), proven: Err(_), .. } => self.refuse(id, part),
            Effect::Read { reader: Reader::Store { store, question }, proven, .. } => {
                if proven.is_ok() {
                    self.tell_applied(id, store, question);
                }
            }
            Effect::Announce { to, descriptor } => self.send(id, to, Packet::Announced(descriptor)),
            Effect::ReadLog { region, number, low, high, max_bytes } => {
                let slow = if self.rng.chance(10) { 100 } else { 1 };
                let delay = self.rng.below(5 * slow * MILLISECOND);
                self.schedule_work(id, delay, Work::ReadLog { region, number, low, high, max_bytes });
            }
            Effect::MakeSnapshot { region } => {
                let delay = self.rng.below(200) * MILLISECOND;
                self.schedule_work(id, delay, Work::MakeSnapshot { region });
            }
            Effect::SendSnapshot { region, to, message } => self.send_snapshot(id, region, to, message),
            Effect::FlushSoon => {
                let delay = self.rng.below(1500) * MILLISECOND;
                self.schedule_work(id, delay, Work::FlushSoon);
            }
            Effect::ChangeRefused { .. } => {}
            Effect::Transferred { is_done: true, .. } => self.tally.transfers += 1,
            Effect::Transferred { is_done: false, .. } => self.tally.transfers_aborted += 1,
            Effect::Damaged { region, peer, first, executed, .. } => {
                self.found_damage(id, (region, peer), first, executed);
            }
            // The simulated log is not recycled.
            Effect::GiveUpLog { .. } => {}
            Effect::Dropped { region, from, reason } => {
                // All stores are correct, so no message may be dropped.
                let what = format!("store {id} drops what {from} sent of region {region}: {reason}");
                self.violate("inspection", what);
            }
        }
    }

    fn term_of(&mut self, id: StoreId, region: RegionId) -> u64 {
        let status = self.process(id).and_then(|process| process.shard.status(region, 0));
        status.map_or(0, |status| status.term)
    }

    fn lead(&mut self, id: StoreId, region: RegionId, leadership: Leadership, is_self: bool) {
        let Leadership { term, leader } = leadership;
        let Some(process) = self.process(id) else { return };
        let Some(status) = process.shard.status(region, 0) else { return };
        if let Some(shared) = process.regions.get_mut(&region) {
            if leader != Some(id) {
                shared.lease = None;
            }
            if shared.leadership.yields_to(leadership) {
                shared.leadership = leadership;
            }
        }
        if let Some(leader) = leader {
            process.ledger.learn(region, Route { term, leader });
        }
        if is_self && status.role == Role::Leader && status.term == term {
            self.tally.elections += 1;
            self.quiet = self.quiet.filter(|(rival, _)| *rival != id);
            self.say(&format!("store {id} leads region {region} in term {term}"));
            self.observe(&Observation::Led { store: id, region, term, last: status.last });
            if status.descriptor.voters().count() > 1 {
                self.observe(&Observation::LedBesideOthers { store: id, region, term });
            }
        }
    }

    pub(super) fn leader_elsewhere(&mut self, id: StoreId, region: RegionId) -> Option<StoreId> {
        let process = self.process(id)?;
        process.regions.get(&region).and_then(|shared| shared.leadership.leader).filter(|&to| to != id)
    }

    /// Passes the outcome to the client, if a client asked.
    pub(super) fn answer(&mut self, id: StoreId, asker: Asker, outcome: Answered) {
        if let Asker::Part { part, items } = asker {
            self.proposed(id, part, items.len(), outcome);
        }
    }
}
