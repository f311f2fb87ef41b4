//! The worker's thread: inputs, a turn, its actions.

use cluster::Route;
use command::entry::Builder;
use replica::{Action, Input, Refusal, Role};
use types::{RegionId, StoreId};

use super::log::ToLog;
use super::{Job, Reader, Submit, ToWorker, Waiting};
use crate::client::{Outcome, PATIENCE};
use crate::clock::MILLISECOND;
use crate::observation::{Item, Observation};
use crate::world::{Event, Packet, Work, World};

/// Readers' tokens have this bit, so that they never meet those of proposals.
const READER_TOKEN: u64 = 1 << 63;
/// Keys that one maintenance step of a slot deletes.
const MAINTENANCE_STEP: u32 = 256;

impl World {
    pub(super) fn tell(&mut self, id: StoreId, message: ToWorker) {
        let delay = self.rng.below(MILLISECOND / 5);
        let Some(process) = self.process(id) else { return };
        process.inbox.push_back(message);
        if !std::mem::replace(&mut process.has_turn, true) {
            self.schedule_work(id, delay, Work::Turn);
        }
    }

    pub(super) fn input(&mut self, id: StoreId, input: Input) {
        self.tell(id, ToWorker::Input(input));
    }

    pub(crate) fn receive(&mut self, id: StoreId, from: StoreId, packet: Packet) {
        match packet {
            Packet::Raft { region, message } => self.input(id, Input::Message { from, region, message }),
            Packet::Heartbeat(bytes) => self.hear(id, &bytes),
            Packet::Announced(descriptor) => {
                if self.is_tracing {
                    self.say(&format!("store {from} announces to {id}: {descriptor:?}"));
                }
                self.input(id, Input::Announced { from, descriptor });
            }
            Packet::Order(bytes) => self.ordered(id, &bytes),
            Packet::Asked(asked) => self.asked(id, asked),
        }
    }

    pub(super) fn tick(&mut self, id: StoreId) {
        self.input(id, Input::Tick);
        self.expire_waiting(id);
        let pause = 90 * MILLISECOND + self.rng.below(20 * MILLISECOND);
        self.schedule_work(id, pause, Work::Tick);
    }

    pub(super) fn turn(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let Some(process) = self.process(id) else { return };
        process.has_turn = false;
        let messages = std::mem::take(&mut process.inbox);
        for message in messages {
            self.take(id, message);
        }
        while !self.is_over() {
            self.propose(id);
            let Some(process) = self.process(id) else { return };
            if !process.worker.has_work() {
                break;
            }
            match process.worker.turn(boot) {
                Ok(actions) => self.carry_out(id, actions),
                Err(fatal) => return self.violate("recovery", format!("store {id} stops: {fatal}")),
            }
        }
    }

    fn take(&mut self, id: StoreId, message: ToWorker) {
        let (boot, now) = (self.boot(id), self.now);
        let Some(process) = self.process(id) else { return };
        match message {
            ToWorker::Input(input) => process.worker.step(input, boot),
            ToWorker::Submit { region, submit } => process.queues.entry(region).or_default().push(submit),
            ToWorker::ReadIndex { region, client, op } => {
                process.next_token += 1;
                let token = READER_TOKEN | process.next_token;
                process.readers.insert(token, Reader { region, client, op, since: now });
                process.worker.step(Input::ReadIndex { region, token }, boot);
            }
        }
    }

    /// Makes one entry of what waits for each region, unless a batch is on its way to the disk.
    fn propose(&mut self, id: StoreId) {
        let (now, boot) = (self.now, self.boot(id));
        let wall = self.usable_ms(id);
        let Some(process) = self.process(id) else { return };
        if process.queues.is_empty() || process.worker.persist_in_flight() {
            return;
        }
        for (region, queue) in std::mem::take(&mut process.queues) {
            let Some(process) = self.process(id) else { return };
            match process.worker.can_propose(region) {
                Ok(()) => {}
                Err(Refusal::NotLeader { leader }) => {
                    for submit in queue {
                        if let Submit::Command { client, op, .. } = submit {
                            self.reply(client, op, Outcome::Refused { leader });
                        }
                    }
                    continue;
                }
                Err(_) => {
                    process.queues.insert(region, queue);
                    continue;
                }
            }
            let (mut builder, mut items, mut clients) = (Builder::new(), Vec::new(), Vec::new());
            let mut payloads = Vec::new();
            for submit in queue {
                match submit {
                    Submit::Command { client, op, .. } => {
                        let Some(asking) = self.clients[client].asking.as_ref().filter(|a| a.op.id == op)
                        else {
                            continue;
                        };
                        builder.push(0, false, &asking.op.command.args(asking.op.group));
                        items.push(Item::Op(op));
                        clients.push(Some((client, op)));
                    }
                    Submit::ExpireDue(slot) => {
                        builder.push_expire_due(slot, MAINTENANCE_STEP);
                        items.push(Item::ExpireDue(slot));
                        clients.push(None);
                    }
                    Submit::Meta(command) => payloads.push(cluster::encode_entry(wall, &command)),
                }
            }
            let entry = self.last_entry + 1;
            self.last_entry = entry;
            let mut proposals: Vec<_> = payloads.into_iter().map(|payload| (payload, Vec::new())).collect();
            if !items.is_empty() {
                self.observe(&Observation::Proposed { entry, items: &items });
                proposals.push((builder.finish(wall, entry), clients));
            }
            let Some(process) = self.process(id) else { return };
            for (payload, clients) in proposals {
                process.next_token += 1;
                let token = process.next_token;
                process.waiting.insert(token, Waiting { region, entry, clients, since: now });
                process.worker.step(Input::Propose { region, token, payload }, boot);
            }
        }
    }

    fn carry_out(&mut self, id: StoreId, actions: Vec<Action>) {
        let mut to_log = Vec::new();
        let mut ended_leases = Vec::new();
        for action in actions {
            match action {
                Action::Send { to, region, message, .. } => {
                    if !self.network.reaches(id, to) && self.rng.chance(20) {
                        self.input(id, Input::StoreUnreachable { store: to });
                    }
                    self.send(id, to, Packet::Raft { region, message });
                }
                Action::Persist(batch) => to_log.push(ToLog::Append(batch)),
                Action::Apply { region, entries } => {
                    let term = self.term_of(id, region);
                    self.observe(&Observation::Committed { region, term, entries: &entries });
                    let Some(process) = self.process(id) else { return };
                    let waiting = &mut process.waiting;
                    let entries = entries.into_iter().map(|entry| {
                        // A change of the region itself has a token, too, and nobody who waits.
                        let waiter = entry.token.and_then(|token| waiting.remove(&token));
                        (entry, waiter)
                    });
                    let entries = entries.collect();
                    process.to_apply.push_back(Job::Entries { region, entries });
                    self.wake_apply(id);
                }
                Action::ApplySnapshot { region, index, descriptor, .. } => {
                    let Some(process) = self.process(id) else { return };
                    process.to_apply.push_back(Job::Ingest { region, index, descriptor });
                    self.wake_apply(id);
                }
                Action::Destroy { region, peer } => {
                    let Some(process) = self.process(id) else { return };
                    process.to_apply.push_back(Job::Destroy { region, peer });
                    self.wake_apply(id);
                }
                Action::Announce { to, descriptor } => self.send(id, to, Packet::Announced(descriptor)),
                Action::MakeSnapshot { region } => {
                    let delay = self.rng.below(200) * MILLISECOND;
                    self.schedule_work(id, delay, Work::MakeSnapshot { region });
                }
                Action::SendSnapshot { region, to, message } => self.send_snapshot(id, region, to, message),
                Action::FlushSoon => {
                    let delay = self.rng.below(1500) * MILLISECOND;
                    self.schedule_work(id, delay, Work::FlushSoon);
                }
                Action::Refused { region, token, reason } => self.refused(id, region, token, reason),
                Action::Lost { token, .. } => {
                    let Some(process) = self.process(id) else { return };
                    if let Some(waiting) = process.waiting.remove(&token) {
                        self.observe(&Observation::NotProposed { entry: waiting.entry });
                        self.reply_all(waiting, Outcome::Unknown);
                    }
                }
                Action::ReadReady { token, .. } => {
                    let Some(process) = self.process(id) else { return };
                    if let Some(Reader { region, client, op, .. }) = process.readers.remove(&token) {
                        let delay = self.rng.below(2 * MILLISECOND);
                        self.schedule_work(id, delay, Work::ProvenRead { region, client, op });
                    }
                }
                Action::Leadership { region, term, leader, is_self } => {
                    self.lead(id, region, term, leader, is_self)
                }
                Action::Lease { region, term, until } => {
                    if until.is_none() {
                        ended_leases.push(region);
                    }
                    let Some(process) = self.process(id) else { return };
                    if let Some(shared) = process.regions.get_mut(&region) {
                        let led = shared.term == term && shared.leader == Some(id);
                        shared.lease = until.filter(|_| led && !ended_leases.contains(&region));
                    }
                }
                Action::Truncate { region, index, term } => {
                    to_log.push(ToLog::Truncate { region, index, term });
                    self.tally.truncations += 1;
                }
                Action::TransferDone { .. } => self.tally.transfers += 1,
                Action::TransferAborted { .. } => self.tally.transfers_aborted += 1,
                Action::Dropped { region, from, reason } => {
                    // Every store is correct, so every message is.
                    let what = format!("store {id} drops what {from} sent of region {region}: {reason}");
                    self.violate("inspection", what);
                }
            }
        }
        self.log(id, to_log);
    }

    fn term_of(&mut self, id: StoreId, region: RegionId) -> u64 {
        let status = self.process(id).and_then(|process| process.worker.status(region, 0));
        status.map_or(0, |status| status.term)
    }

    fn lead(&mut self, id: StoreId, region: RegionId, term: u64, leader: Option<StoreId>, is_self: bool) {
        let Some(process) = self.process(id) else { return };
        let Some(status) = process.worker.status(region, 0) else { return };
        if let Some(shared) = process.regions.get_mut(&region) {
            if leader != Some(id) {
                shared.lease = None;
            }
            if term >= shared.term {
                (shared.term, shared.leader) = (term, leader);
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
        }
    }

    fn refused(&mut self, id: StoreId, region: RegionId, token: u64, _reason: Refusal) {
        let Some(process) = self.process(id) else { return };
        let leader = process.regions.get(&region).and_then(|shared| shared.leader).filter(|&to| to != id);
        if let Some(waiting) = process.waiting.remove(&token) {
            if !waiting.clients.is_empty() {
                self.observe(&Observation::NotProposed { entry: waiting.entry });
            }
            self.reply_all(waiting, Outcome::Refused { leader });
        } else if let Some(reader) = process.readers.remove(&token) {
            self.reply(reader.client, reader.op, Outcome::Refused { leader });
        }
    }

    fn reply_all(&mut self, waiting: Waiting, outcome: Outcome) {
        for (client, op) in waiting.clients.into_iter().flatten() {
            self.reply(client, op, outcome.clone());
        }
    }

    pub(super) fn reply(&mut self, client: usize, op: u64, outcome: Outcome) {
        let delay = self.client_delay();
        self.schedule(delay, Event::Response { client, op, outcome });
    }

    /// Nobody waits longer than clients do. What is still queued is dropped; what was proposed is forgotten.
    fn expire_waiting(&mut self, id: StoreId) {
        let limit = self.now.saturating_sub(PATIENCE);
        let Some(process) = self.process(id) else { return };
        for queue in process.queues.values_mut() {
            queue.retain(|submit| !matches!(submit, Submit::Command { since, .. } if *since < limit));
        }
        process.queues.retain(|_, queue| !queue.is_empty());
        let late: Vec<(u64, RegionId)> = process
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.since < limit)
            .map(|(&token, waiting)| (token, waiting.region))
            .collect();
        let late_readers: Vec<(u64, RegionId)> = process
            .readers
            .iter()
            .filter(|(_, reader)| reader.since < limit)
            .map(|(&token, reader)| (token, reader.region))
            .collect();
        for (token, region) in late.into_iter().chain(late_readers) {
            process.waiting.remove(&token);
            process.readers.remove(&token);
            process.worker.forget(region, token);
        }
    }
}
