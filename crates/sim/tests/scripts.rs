//! Scenarios with a few stores, step by step, as golden scripts in `tests/scripts`. They show the
//! actions of `node` and `replica` to a reader. `UPDATE_GOLDENFILES=1` rewrites them.
//!
//! ```text
//! stores N                  region 1 gets a peer on each store, with slots 0 to 16383
//! tick STORE... [times=N]   a tenth of a second passes each time, with a tick at these stores
//! submit STORE NAME COMMAND NAME sends a command; wait=MS sets its deadline
//! read STORE NAME KEY       NAME asks for a proof of leadership, and then reads
//! change STORE split AT NEW splits region 1
//! change STORE prepare SOURCE INTO | rollback SOURCE | commit SOURCE INTO   the steps of a merge
//! pass MS                   time passes, and deadlines expire
//! turn STORE                takes turns until there is nothing to do
//! sync STORE                writes and syncs the batch that is on its way to the log
//! apply STORE [through=write]  executes what was handed out, or only writes its rows
//! deliver [from=STORE] [to=STORE] delivers messages in transit, and does nothing else
//! drop [from=STORE] [to=STORE]    loses messages in transit
//! settle                    repeats all that until nothing is left; shows answers and leaders
//! rounds COUNT              repeats a tick at all stores and settle
//! lead STORE                ticks and settles until the store leads region 1
//! cut STORE | heal STORE    loses all messages from and to the store from now on, or no longer
//! lease STORE               shows whether local reads may be answered now
//! live STORE                takes the next step of a snapshot that replaces rows, or of an end
//! view STORE | make STORE | ship STORE   takes a snapshot's view, finishes it, delivers it
//! flush STORE               makes the store's rows durable and tells the groups
//! pin STORE [REGION]        tells the region that the log is too large and that it must let go
//! differ STORE              the store finds that its rows are not those of the majority
//! write STORE               writes the batch without a sync
//! crash STORE [kept=BYTES]  ends the process; keeps BYTES unsynced bytes of the log, and no
//!                           unflushed rows
//! start STORE               starts the store with its recovery
//! show STORE                shows the log and the regions: term, leader, committed and applied
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use goldenscript::{Command, Runner};
use node::lifecycle::{self, Step};
use node::recovery::StoredState;
use node::{
    ApplyEffect, Effect, Execution, Input, Item, Leadership, Moment, Outcome, Shard, Submit, ToApply, Work,
};
use replica::eraftpb::Message;
use replica::{Config, LogBatch, LogStore, Worker};
use resp::Reply;
use sim::disk::Disk;
use sim::durable::{Durable, Snapshot};
use storage::{RegionState, Txn};
use types::{RegionChange, RegionDescriptor, RegionId, SlotRange, StoreId};
use wal::PeerLifecycle;

const MILLISECOND: u64 = 1_000_000;
const REGION: RegionId = 1;

struct Process {
    shard: Shard<Disk, String, (String, String)>,
    execution: Execution,
    batches: VecDeque<LogBatch>,
    /// True if the first batch is written to the log and not synced.
    is_written: bool,
    entries: VecDeque<(RegionId, Vec<ToApply<String>>)>,
    applying: VecDeque<ApplyEffect<String>>,
    leadership: BTreeMap<RegionId, Leadership>,
    leases: BTreeMap<RegionId, u64>,
    applied: BTreeMap<RegionId, u64>,
    lifecycle_steps: VecDeque<(RegionId, Step)>,
    /// Regions whose snapshot is wanted, snapshots whose view is taken, and finished ones.
    to_make: VecDeque<RegionId>,
    views: VecDeque<Snapshot>,
    made: BTreeMap<RegionId, Snapshot>,
    to_ship: VecDeque<(RegionId, StoreId, Message)>,
}

#[derive(Default)]
struct Store {
    durable: Durable,
    process: Option<Process>,
}

#[derive(Default)]
struct Script {
    now: u64,
    stores: BTreeMap<StoreId, Store>,
    network: VecDeque<(StoreId, StoreId, RegionId, Message)>,
    turns: u64,
    out: String,
    cut: BTreeSet<StoreId>,
    /// True if only answers and leadership are shown.
    is_quiet: bool,
}

type Outcomes<T> = Result<T, Box<dyn Error>>;

fn text(reply: &Option<Reply>) -> String {
    match reply {
        None => "not executed: the slot is another region's".into(),
        Some(Reply::Bulk(bytes)) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Some(reply) => format!("{reply:?}"),
    }
}

impl Script {
    fn say(&mut self, store: StoreId, line: String) {
        if !self.is_quiet {
            let _ = writeln!(self.out, "{store}: {line}");
        }
    }

    fn tell(&mut self, store: StoreId, line: String) {
        let _ = writeln!(self.out, "{store}: {line}");
    }

    fn process(&mut self, store: StoreId) -> Outcomes<&mut Process> {
        let found = self.stores.get_mut(&store).and_then(|store| store.process.as_mut());
        found.ok_or_else(|| format!("store {store} does not run").into())
    }

    fn found(&mut self, count: u64) -> Outcomes<()> {
        let ids: Vec<StoreId> = (1..=count).collect();
        let region = RegionDescriptor::founded(REGION, Some(SlotRange::ALL), &ids);
        *self = Script { now: 1_000_000 * MILLISECOND, ..Script::default() };
        for id in ids {
            let mut store = Store::default();
            store.durable.disk.found(region.clone());
            store.durable.set_own_rows(&region, &RegionState::default())?;
            store.durable.engine.flush();
            self.stores.insert(id, store);
            self.start(id)?;
        }
        Ok(())
    }

    fn start(&mut self, id: StoreId) -> Outcomes<()> {
        let now = self.now;
        let store = self.stores.get_mut(&id).ok_or("no such store")?;
        let recovered = store.durable.recover(id, &BTreeMap::new())?;
        let mut execution = Execution::new(id, true);
        let mut applied = BTreeMap::new();
        for seed in &recovered.seeds {
            let region = seed.descriptor.id;
            if let Some((state, _)) = store.durable.described(region) {
                applied.insert(region, state.applied_index);
                execution.load(region, state, seed.descriptor.slots);
            }
        }
        let config = Config::new(id, 7);
        let worker =
            Worker::new(config, store.durable.disk.clone(), recovered.seeds, recovered.tombstones, now)?;
        let line = format!("starts with {applied:?} applied, by region");
        store.process = Some(Process {
            shard: Shard::new(worker),
            execution,
            batches: VecDeque::new(),
            is_written: false,
            entries: VecDeque::new(),
            applying: VecDeque::new(),
            leadership: BTreeMap::new(),
            leases: BTreeMap::new(),
            applied,
            lifecycle_steps: VecDeque::new(),
            to_make: VecDeque::new(),
            views: VecDeque::new(),
            made: BTreeMap::new(),
            to_ship: VecDeque::new(),
        });
        self.tell(id, line);
        Ok(())
    }

    fn crash(&mut self, id: StoreId, kept: u64) -> Outcomes<()> {
        let store = self.stores.get_mut(&id).ok_or("no such store")?;
        store.process = None;
        store.durable.disk.tear(kept);
        store.durable.engine.crash();
        Ok(())
    }

    fn turn(&mut self, id: StoreId) -> Outcomes<bool> {
        let mut any = false;
        loop {
            self.turns += 1;
            let now = Moment {
                boot: self.now,
                stamp: Some(self.now / MILLISECOND),
                version: types::NEWEST_VERSION,
                thresholds: types::Thresholds::default(),
                seed: self.turns,
                room: u64::MAX,
            };
            match self.process(id)?.shard.turn(now, &mut ())? {
                None => return Ok(any),
                Some(effects) => {
                    any = true;
                    for effect in effects {
                        self.carry_out(id, effect)?;
                    }
                }
            }
        }
    }

    fn carry_out(&mut self, id: StoreId, effect: Effect<String, (String, String)>) -> Outcomes<()> {
        match effect {
            Effect::Leadership { region, leadership, .. } => {
                let process = self.process(id)?;
                let known = process.leadership.entry(region).or_default();
                if known.yields_to(leadership) {
                    *known = leadership;
                    let leader =
                        leadership.leader.map_or("nobody".into(), |leader| format!("store {leader}"));
                    self.tell(id, format!("{leader} leads region {region} in term {}", leadership.term));
                }
            }
            Effect::Lease { region, term, until } => {
                let now = self.now;
                let process = self.process(id)?;
                let counts = process.leadership.get(&region).is_some_and(|known| known.is_of(id, term));
                match until.filter(|_| counts) {
                    Some(until) => {
                        process.leases.insert(region, until);
                        let left = until.saturating_sub(now) / MILLISECOND;
                        self.say(id, format!("may answer local reads of region {region} for {left} ms"));
                    }
                    None => {
                        process.leases.remove(&region);
                        self.say(id, format!("the lease of region {region} ends"));
                    }
                }
            }
            // The scenarios have no coordinator.
            Effect::Seeking { .. } => {}
            Effect::Send { to, messages, .. } => {
                for (region, message) in messages {
                    self.say(id, format!("sends {to}: {}", line_of(&message)));
                    self.network.push_back((id, to, region, message));
                }
            }
            Effect::AcceptSnapshot { region, index, .. } => {
                self.say(id, format!("accepts a snapshot of region {region} at {index}"));
            }
            Effect::Persist(batch) => {
                self.say(id, format!("to the log: {}", batch_line(&batch)));
                let process = self.process(id)?;
                process.batches.push_back(batch);
            }
            Effect::Apply { region, entries } => {
                let indexes: Vec<u64> = entries.iter().map(|apply| apply.entry.index).collect();
                self.say(id, format!("committed in region {region}: {indexes:?}"));
                self.process(id)?.entries.push_back((region, entries));
            }
            Effect::Answer { client, outcome } => self.answer(id, client, &outcome),
            Effect::NotApplied { waiting, outcome } => {
                for client in waiting.clients().collect::<Vec<_>>() {
                    self.answer(id, client, &outcome);
                }
            }
            Effect::Read { region, reader: (name, key), proven } => match proven {
                Ok(()) => {
                    let value = self.get(id, region, &key)?;
                    self.tell(id, format!("{name} reads {value}"));
                }
                Err(refusal) => self.tell(id, format!("{name} is refused: {refusal:?}")),
            },
            Effect::Truncate { region, index, .. } => {
                self.say(id, format!("the log of region {region} may forget entries through {index}"));
            }
            Effect::FlushSoon => self.say(id, "wants a flush soon".into()),
            Effect::Life(job) => {
                let region = job.region();
                let begun = self.process(id)?.execution.begin(job);
                let steps = begun.map_or(Vec::new(), lifecycle::Job::steps);
                self.say(id, format!("{} steps are to be done for region {region}", steps.len()));
                let process = self.process(id)?;
                process.lifecycle_steps.extend(steps.into_iter().map(|step| (region, step)));
            }
            Effect::StopApplying { region, index } => {
                self.say(id, format!("stops the execution of region {region} before {index}"));
            }
            Effect::ResumeApplying { region } => {
                self.say(id, format!("resumes the execution of region {region}"));
            }
            Effect::ReadLog { region, number, low, high, max_bytes } => {
                let disk = self.stores[&id].durable.disk.clone();
                let entries = disk.entries(region, low, high, max_bytes);
                let input = replica::Input::LogRead { region, number, entries };
                let now = self.now;
                self.process(id)?.shard.step(Input::Raft(input), now);
            }
            Effect::MakeSnapshot { region } => {
                self.say(id, format!("wants a snapshot of region {region}"));
                self.process(id)?.to_make.push_back(region);
            }
            Effect::SendSnapshot { region, to, message } => {
                let index = message.get_snapshot().get_metadata().index;
                self.say(id, format!("wants to send {to} the snapshot of region {region} at {index}"));
                self.process(id)?.to_ship.push_back((region, to, message));
            }
            Effect::Announce { to, .. } => self.say(id, format!("tells {to} what the region is now")),
            Effect::ChangeRefused { reason, .. } => {
                self.tell(id, format!("the change is refused: {reason:?}"))
            }
            Effect::Transferred { to, is_done, .. } => {
                self.tell(id, format!("lead handed to {to}: {is_done}"))
            }
            Effect::Damaged { first, reason, .. } => {
                self.tell(id, format!("finds damage from entry {first} on: {reason}"))
            }
            Effect::GiveUpLog { first, .. } => self.tell(id, format!("drops its log from {first} on")),
            Effect::Dropped { reason, .. } => self.tell(id, format!("drops a message: {reason}")),
        }
        Ok(())
    }

    fn answer(&mut self, id: StoreId, client: String, outcome: &Outcome) {
        let answer = match outcome {
            Outcome::Applied(replies) => replies.iter().map(text).collect::<Vec<_>>().join(", "),
            Outcome::Refused(refusal) => format!("refused, {refusal:?}: nothing was proposed"),
            Outcome::Unknown => "unknown: it was proposed".into(),
        };
        self.tell(id, format!("{client} is answered {answer}"));
    }

    fn get(&self, id: StoreId, region: RegionId, key: &str) -> Outcomes<String> {
        let args: Vec<Bytes> = ["GET", key].map(|arg| Bytes::copy_from_slice(arg.as_bytes())).into();
        let spec = command::lookup(&args[0]).ok_or("GET is a command")?;
        let mut txn = Txn::read_only(&self.stores[&id].durable.engine, region);
        let mut exec = command::Exec {
            txn: &mut txn,
            now_ms: self.now / MILLISECOND,
            seed: 0,
            db: 0,
            mode: command::Mode::Read,
            slots: SlotRange::ALL,
            limits: command::Limits::default(),
            resp3: false,
        };
        match command::execute(spec, &args, &mut exec)? {
            command::Outcome::Reply(reply) => Ok(text(&Some(reply))),
            command::Outcome::NeedsApply => Ok("nothing yet: the key's time is over".into()),
        }
    }

    fn write(&mut self, id: StoreId) -> Outcomes<()> {
        let process = self.process(id)?;
        let batch = process.batches.front().ok_or("no batch is on its way")?.clone();
        process.is_written = true;
        self.stores[&id].durable.disk.append(&batch);
        self.say(id, format!("written: {}", batch_line(&batch)));
        Ok(())
    }

    fn sync(&mut self, id: StoreId) -> Outcomes<bool> {
        let now = self.now;
        let process = self.process(id)?;
        let Some(batch) = process.batches.pop_front() else { return Ok(false) };
        let is_written = std::mem::take(&mut process.is_written);
        let store = &self.stores[&id];
        if !is_written {
            store.durable.disk.append(&batch);
        }
        store.durable.disk.sync();
        self.say(id, format!("synced: {}", batch_line(&batch)));
        let input = replica::Input::Persisted { batch: batch.number };
        self.process(id)?.shard.step(Input::Raft(input), now);
        self.turn(id)?;
        Ok(true)
    }

    fn apply(&mut self, id: StoreId, stop_at_write: bool) -> Outcomes<bool> {
        let store = self.stores.get_mut(&id).ok_or("no such store")?;
        let process = store.process.as_mut().ok_or("the store does not run")?;
        if process.applying.is_empty() {
            let mut by_region: BTreeMap<RegionId, Vec<ToApply<String>>> = BTreeMap::new();
            for (region, entries) in process.entries.drain(..) {
                by_region.entry(region).or_default().extend(entries);
            }
            if by_region.is_empty() {
                return Ok(false);
            }
            let mut meta = |_: &Bytes, _: &mut Txn<'_>| Ok(Vec::new());
            process.applying.extend(process.execution.execute(
                by_region,
                &store.durable.engine,
                &mut meta,
                &mut (),
            )?);
        }
        while let Some(effect) = self.process(id)?.applying.pop_front() {
            let now = self.now;
            match effect {
                ApplyEffect::Write(writes) => {
                    self.say(id, format!("writes {} rows", writes.rows.len()));
                    self.stores.get_mut(&id).expect("it runs").durable.engine.write(writes);
                    if stop_at_write {
                        return Ok(true);
                    }
                }
                ApplyEffect::Describe(descriptors) => {
                    for region in descriptors {
                        let slots = region.slots.unwrap_or(SlotRange::ALL);
                        let line =
                            format!("region {} has slots {} to {}", region.id, slots.first, slots.last);
                        self.say(id, line);
                    }
                }
                ApplyEffect::Absorbed { region } => self.say(id, format!("region {region} has merged away")),
                ApplyEffect::State { region, state } => {
                    self.say(id, format!("region {region} is applied through {}", state.applied_index));
                    self.process(id)?.applied.insert(region, state.applied_index);
                }
                ApplyEffect::Changed { .. } => unreachable!("nobody asks for a record"),
                ApplyEffect::Check { region, index, number } => {
                    self.say(id, format!("check {number} of region {region} at {index}"));
                }
                ApplyEffect::Hold { region, mark } => {
                    let held = mark.held.as_ref().ok_or("a hold without a quarantine")?;
                    let line = format!("region {region} is quarantined at {}: {}", held.index, held.what);
                    self.say(id, line);
                    let steps = lifecycle::Job::Hold { region, mark }.steps();
                    self.process(id)?.lifecycle_steps.extend(steps.into_iter().map(|step| (region, step)));
                }
                ApplyEffect::Applied(indexes) => {
                    let process = self.process(id)?;
                    for (region, index) in indexes {
                        let input = replica::Input::Applied { region, index };
                        process.shard.step(Input::Raft(input), now);
                    }
                }
                ApplyEffect::Published { .. } | ApplyEffect::Counted(_) => {}
                ApplyEffect::Answer { client, outcome } => self.answer(id, client, &outcome),
            }
        }
        self.turn(id)?;
        Ok(true)
    }

    /// Takes the next step of a snapshot that replaces rows, or of the removal of a peer. Returns
    /// false if there is none.
    fn live(&mut self, id: StoreId) -> Outcomes<bool> {
        let now = self.now;
        let Some((region, step)) = self.process(id)?.lifecycle_steps.pop_front() else { return Ok(false) };
        let line = match &step {
            Step::HideRows => format!("nobody reads region {region} any more"),
            Step::ReplaceRows { index, .. } => {
                format!("the rows of region {region} are those of the snapshot at {index}")
            }
            Step::Record(PeerLifecycle::Tombstone { peer }) => {
                format!("the log says that peer {peer} of region {region} is gone")
            }
            Step::Record(_) => format!("the log says that the peer of region {region} exists"),
            Step::Load(_) => format!("region {region} may be executed and read"),
            Step::TellApplied => format!("the groups are told that region {region} has its snapshot"),
            Step::RemovePeer => format!("no peer of region {region} is found here"),
            Step::Flush => "flushes".into(),
            Step::DeleteRows => format!("deletes what is region {region}'s alone"),
            Step::DestroyLog { .. } => format!("deletes the log of region {region}"),
            Step::RecordMark(mark) => match &mark.held {
                Some(held) => format!("the log says that region {region} is quarantined at {}", held.index),
                None => format!("the log says that region {region} goes on, without {:?}", mark.skips),
            },
            Step::ForgetMark => format!("forgets whether region {region} was quarantined"),
            Step::TellHeld(_) => format!("the groups are told that region {region} is quarantined"),
            Step::TellReleased(_) => format!("the groups are told that region {region} goes on"),
            Step::TellDestroyed => format!("the groups are told that region {region} is gone"),
        };
        self.say(id, line);
        let store = self.stores.get_mut(&id).ok_or("no such store")?;
        let (durable, process) = (&mut store.durable, store.process.as_mut().ok_or("it does not run")?);
        match step {
            Step::HideRows | Step::RemovePeer => {}
            Step::ReplaceRows { index, .. } => durable.ingest(region, index)?,
            Step::Record(life) => durable.disk.set_life(region, life),
            Step::Load(descriptor) => {
                let (state, _) = durable.described(region).ok_or("there are no rows to load")?;
                process.applied.insert(region, state.applied_index);
                process.execution.load(region, state, descriptor.slots);
            }
            Step::TellApplied => process.shard.step(Input::SnapshotApplied { region }, now),
            Step::Flush => durable.engine.flush(),
            Step::DeleteRows => durable.delete_own_rows(region)?,
            Step::DestroyLog { peer } => durable.destroy_log(region, peer)?,
            Step::RecordMark(mark) => durable.disk.set_mark(region, Some(mark)),
            Step::ForgetMark => durable.forget_mark(region)?,
            Step::TellHeld(mark) => process.shard.step(Input::Held { region, mark }, now),
            Step::TellReleased(mark) => process.shard.step(Input::Released { region, mark }, now),
            Step::TellDestroyed => {
                process.shard.step(Input::Raft(replica::Input::Destroyed { region }), now);
            }
        }
        self.turn(id)?;
        Ok(true)
    }

    /// Takes a view of the rows for a wanted snapshot. Returns false if none is wanted.
    fn view(&mut self, id: StoreId) -> Outcomes<bool> {
        let Some(region) = self.process(id)?.to_make.pop_front() else { return Ok(false) };
        let snapshot = self.stores[&id].durable.view(region).ok_or("there are no rows to make it of")?;
        let index = snapshot.state.applied_index;
        self.say(id, format!("takes a view of region {region} at {index}"));
        self.process(id)?.views.push_back(snapshot);
        Ok(true)
    }

    /// Finishes a snapshot and tells the groups. Returns false if there is no view.
    fn make(&mut self, id: StoreId) -> Outcomes<bool> {
        let now = self.now;
        let Some(snapshot) = self.process(id)?.views.pop_front() else { return Ok(false) };
        let (index, term) = (snapshot.state.applied_index, snapshot.state.applied_term);
        let descriptor = snapshot.descriptor.clone();
        let region = descriptor.id;
        self.say(id, format!("has made the snapshot of region {region} at {index}"));
        let process = self.process(id)?;
        process.made.insert(region, snapshot);
        let input = replica::Input::SnapshotMade { region, index, term, descriptor };
        process.shard.step(Input::Raft(input), now);
        self.turn(id)?;
        Ok(true)
    }

    /// Delivers a complete snapshot. Returns false if none is to be sent.
    fn ship(&mut self, id: StoreId) -> Outcomes<bool> {
        let now = self.now;
        let Some((region, to, message)) = self.process(id)?.to_ship.pop_front() else { return Ok(false) };
        let runs = self.stores.get(&to).is_some_and(|store| store.process.is_some());
        let snapshot = self.process(id)?.made.get(&region).cloned();
        let arrived = snapshot.filter(|_| runs && !self.cut.contains(&to) && !self.cut.contains(&id));
        let delivered = arrived.is_some();
        if let Some(snapshot) = arrived {
            let index = snapshot.state.applied_index;
            self.say(to, format!("has the snapshot of region {region} at {index} from {id}"));
            let store = self.stores.get_mut(&to).ok_or("no such store")?;
            store.durable.received.insert((region, index), snapshot);
            let input = replica::Input::Message { from: id, region, message };
            self.process(to)?.shard.step(Input::Raft(input), now);
            self.turn(to)?;
        }
        let input = replica::Input::SnapshotSent { region, to, delivered };
        self.process(id)?.shard.step(Input::Raft(input), now);
        self.turn(id)?;
        Ok(true)
    }

    fn flush(&mut self, id: StoreId) -> Outcomes<()> {
        let now = self.now;
        let process = self.process(id)?;
        for (region, index) in process.applied.clone() {
            process.shard.step(Input::Raft(replica::Input::Flushed { region, index }), now);
        }
        self.stores.get_mut(&id).expect("it runs").durable.engine.flush();
        self.turn(id)?;
        Ok(())
    }

    fn deliver(&mut self, from: Option<StoreId>, to: Option<StoreId>, is_lost: bool) -> Outcomes<bool> {
        let (chosen, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.network).into_iter().partition(|(sender, receiver, ..)| {
                from.is_none_or(|from| from == *sender) && to.is_none_or(|to| to == *receiver)
            });
        self.network = left;
        let any = !chosen.is_empty();
        let now = self.now;
        for (sender, receiver, region, message) in chosen {
            let runs = self.stores.get(&receiver).is_some_and(|store| store.process.is_some());
            let is_cut = self.cut.contains(&sender) || self.cut.contains(&receiver);
            if is_lost || is_cut || !runs {
                self.say(receiver, format!("never gets from {sender}: {}", line_of(&message)));
                continue;
            }
            self.say(receiver, format!("gets from {sender}: {}", line_of(&message)));
            let input = replica::Input::Message { from: sender, region, message };
            self.process(receiver)?.shard.step(Input::Raft(input), now);
            self.turn(receiver)?;
        }
        Ok(any)
    }

    fn settle(&mut self) -> Outcomes<()> {
        self.is_quiet = true;
        let running = self.running();
        for _ in 0..1000 {
            let mut any = self.deliver(None, None, false)?;
            for id in &running {
                any |= self.turn(*id)?;
                any |= self.sync(*id)?;
                any |= self.apply(*id, false)?;
                any |= self.live(*id)?;
                any |= self.view(*id)?;
                any |= self.make(*id)?;
                any |= self.ship(*id)?;
            }
            if !any {
                self.is_quiet = false;
                return Ok(());
            }
        }
        Err("it does not come to rest".into())
    }

    /// Ticks and settles until the store leads region 1. Shows only the outcomes of clients.
    fn lead(&mut self, id: StoreId) -> Outcomes<()> {
        for _ in 0..100 {
            let there: Vec<StoreId> =
                self.running().into_iter().filter(|store| !self.cut.contains(store)).collect();
            self.tick(&there)?;
            self.settle()?;
            let now = self.now;
            for store in there {
                let process = self.process(store)?;
                let status = process.shard.status(REGION, now).filter(|status| status.leader == Some(store));
                if status.is_none() {
                    continue;
                }
                if store == id {
                    let shown: Vec<&str> = self
                        .out
                        .lines()
                        .filter(|line| line.contains("answered") || line.contains("refused"))
                        .collect();
                    self.out = shown.iter().map(|line| format!("{line}\n")).collect();
                    return Ok(());
                }
                let transfer = replica::Input::TransferLeader { region: REGION, to: id };
                process.shard.step(Input::Raft(transfer), now);
                self.settle()?;
            }
        }
        Err("it does not come to lead".into())
    }

    fn tick(&mut self, ids: &[StoreId]) -> Outcomes<()> {
        self.now += 100 * MILLISECOND;
        let now = self.now;
        for id in ids {
            self.process(*id)?.shard.step(Input::Raft(replica::Input::Tick), now);
            self.turn(*id)?;
        }
        Ok(())
    }

    fn running(&self) -> Vec<StoreId> {
        let runs = self.stores.iter().filter(|(_, store)| store.process.is_some());
        runs.map(|(id, _)| *id).collect()
    }

    fn show(&mut self, id: StoreId) -> Outcomes<()> {
        let now = self.now;
        let regions: Vec<RegionId> = self.process(id)?.shard.regions().collect();
        for region in regions {
            if let Some(status) = self.process(id)?.shard.status(region, now) {
                let leader = status.leader.map_or("nobody".into(), |leader| format!("store {leader}"));
                let line = format!(
                    "region {region}: term {}, led by {leader}, log {} to {}, committed {}, applied {}",
                    status.term, status.first, status.last, status.commit, status.applied
                );
                self.tell(id, line);
            }
        }
        Ok(())
    }
}

fn line_of(message: &Message) -> String {
    let mut line = format!("{:?} of term {}", message.get_msg_type(), message.term);
    if !message.entries.is_empty() {
        let (first, last) = (message.entries[0].index, message.entries[message.entries.len() - 1].index);
        let _ = write!(line, ", entries {first} to {last}");
    }
    if message.reject {
        line.push_str(", rejected");
    }
    line
}

fn batch_line(batch: &LogBatch) -> String {
    let mut parts = Vec::new();
    for write in &batch.writes {
        let mut what = Vec::new();
        if let Some(restart) = &write.restart {
            what.push(format!("begins after {}", restart.index));
        }
        if let (Some(first), Some(last)) = (write.entries.first(), write.entries.last()) {
            what.push(format!("entries {} to {}", first.index, last.index));
        }
        if let Some(state) = &write.hard_state {
            what.push(format!("term {}, vote {:?}, commit {}", state.term, state.vote, state.commit));
        }
        parts.push(format!("region {}: {}", write.region, what.join(", ")));
    }
    format!("batch {} ({})", batch.number, parts.join("; "))
}

impl Runner for Script {
    fn run(&mut self, command: &Command) -> Outcomes<String> {
        let mut args = command.consume_args();
        let now = self.now;
        match command.name.as_str() {
            "stores" => {
                let count = args.next_pos().ok_or("how many")?.value.parse()?;
                self.found(count)?;
            }
            "tick" => {
                let times: u64 = args.lookup_parse("times")?.unwrap_or(1);
                let ids: Vec<StoreId> =
                    args.rest_pos().iter().map(|arg| arg.value.parse()).collect::<Result<_, _>>()?;
                for _ in 0..times {
                    self.tick(&ids)?;
                }
            }
            "submit" => {
                let wait: u64 = args.lookup_parse("wait")?.unwrap_or(5000);
                let words: Vec<String> = args.rest_pos().iter().map(|arg| arg.value.clone()).collect();
                let (id, name) = (words[0].parse()?, words[1].clone());
                let item = words[2..].iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
                let item = Item::new(item, 0, false).ok_or("no such command")?;
                let work = Work::Commands(Arc::new(vec![item]));
                let deadline = now + wait * MILLISECOND;
                let region = self.region_of(&words[3]);
                let submit = Submit { region, work, deadline, author: 0, client: name };
                self.process(id)?.shard.step(Input::Submit(submit), now);
            }
            "read" => {
                let words: Vec<String> = args.rest_pos().iter().map(|arg| arg.value.clone()).collect();
                let (id, reader) = (words[0].parse()?, (words[1].clone(), words[2].clone()));
                let deadline = now + 5000 * MILLISECOND;
                let region = self.region_of(&words[2]);
                self.process(id)?
                    .shard
                    .step(Input::ReadIndex { region, asked: replica::Asked::All, deadline, reader }, now);
            }
            "change" => {
                let words: Vec<String> = args.rest_pos().iter().map(|arg| arg.value.clone()).collect();
                let id: StoreId = words[0].parse()?;
                let number = |at: usize| -> Outcomes<RegionId> { Ok(words[at].parse()?) };
                let process = self.process(id)?;
                let described = |region| process.shard.status(region, now).map(|status| status.descriptor);
                let (region, change) = match words[1].as_str() {
                    "split" => {
                        (REGION, RegionChange::Split { at: words[2].parse()?, new_region: number(3)? })
                    }
                    "prepare" => (number(2)?, RegionChange::PrepareMerge { into: number(3)? }),
                    "rollback" => (number(2)?, RegionChange::RollbackMerge),
                    "commit" => {
                        let source = described(number(2)?).ok_or("no such region")?;
                        let source_index = source.merging.ok_or("it is not prepared")?.sealed_at;
                        (number(3)?, RegionChange::CommitMerge { source: Box::new(source), source_index })
                    }
                    other => return Err(format!("no such change: {other}").into()),
                };
                let expect = described(region).ok_or("no such region")?.epoch;
                process.shard.step(Input::ChangeRegion { region, expect, change }, now);
            }
            "pass" => {
                let ms: u64 = args.next_pos().ok_or("how long")?.value.parse()?;
                self.now += ms * MILLISECOND;
                let now = self.now;
                let running = self.running();
                for id in running {
                    self.process(id)?.shard.expire(now);
                    self.turn(id)?;
                }
            }
            "deliver" | "drop" => {
                let (from, to) = (args.lookup_parse("from")?, args.lookup_parse("to")?);
                self.deliver(from, to, command.name == "drop")?;
            }
            "crash" => {
                let kept: u64 = args.lookup_parse("kept")?.unwrap_or(0);
                let id = args.next_pos().ok_or("a store")?.value.parse()?;
                self.crash(id, kept)?;
            }
            "settle" => self.settle()?,
            "rounds" => {
                let count: u64 = args.next_pos().ok_or("how many")?.value.parse()?;
                for _ in 0..count {
                    self.is_quiet = true;
                    let running = self.running();
                    self.tick(&running)?;
                    self.settle()?;
                }
            }
            "apply" => {
                let stop: Option<String> = args.lookup_parse("through")?;
                let id = args.next_pos().ok_or("a store")?.value.parse()?;
                if !self.apply(id, stop.is_some())? {
                    return Err("nothing was handed out".into());
                }
            }
            name => {
                let id: StoreId = args.next_pos().ok_or("a store")?.value.parse()?;
                match name {
                    "turn" => drop(self.turn(id)?),
                    "sync" => {
                        if !self.sync(id)? {
                            return Err("no batch is on its way".into());
                        }
                    }
                    "live" | "view" | "make" | "ship" => {
                        let is_done = match name {
                            "live" => self.live(id)?,
                            "view" => self.view(id)?,
                            "make" => self.make(id)?,
                            _ => self.ship(id)?,
                        };
                        if !is_done {
                            return Err(format!("nothing to {name}").into());
                        }
                    }
                    "write" => self.write(id)?,
                    "flush" => self.flush(id)?,
                    "pin" => {
                        let region = args.next_pos().map_or(Ok(REGION), |arg| arg.value.parse())?;
                        let input = replica::Input::LogPinned { regions: vec![region] };
                        self.process(id)?.shard.step(Input::Raft(input), now);
                        self.turn(id)?;
                    }
                    "differ" => {
                        let checked = self.process(id)?.applied.get(&REGION).copied().unwrap_or(0);
                        self.process(id)?.shard.step(Input::Differs { region: REGION, checked }, now);
                        self.turn(id)?;
                    }
                    "start" => self.start(id)?,
                    "show" => self.show(id)?,
                    "lead" => self.lead(id)?,
                    "cut" => drop(self.cut.insert(id)),
                    "heal" => drop(self.cut.remove(&id)),
                    "lease" => {
                        let until = self.process(id)?.leases.get(&REGION).copied();
                        let holds = until.is_some_and(|until| now < until);
                        self.tell(id, if holds { "local reads may be answered" } else { "no lease" }.into());
                    }
                    other => return Err(format!("no such command: {other}").into()),
                }
            }
        }
        args.reject_rest()?;
        Ok(std::mem::take(&mut self.out))
    }
}

impl Script {
    /// Returns the region of a key: the newest on any store whose slots contain it.
    fn region_of(&self, key: &str) -> RegionId {
        let slot = types::slot_of_key(key.as_bytes());
        let kept = self.stores.values().map(|store| &store.durable);
        let regions = kept.flat_map(|kept| (1..10).filter_map(|region| kept.described(region)));
        let has = regions.map(|(_, descriptor)| descriptor).filter(|descriptor| descriptor.contains(slot));
        has.max_by_key(|descriptor| descriptor.epoch.version).map_or(REGION, |descriptor| descriptor.id)
    }
}

fn run(path: &str) {
    goldenscript::run(&mut Script::default(), format!("tests/scripts/{path}"))
        .expect("the script is as it was");
}

#[test]
fn an_election() {
    run("election");
}

#[test]
fn a_set_step_by_step() {
    run("set");
}

#[test]
fn a_mark_that_is_reported_after_a_snapshot() {
    run("old-mark");
}

#[test]
fn a_lease_is_lost() {
    run("lease");
}

#[test]
fn a_split() {
    run("split");
}

#[test]
fn a_crash_before_and_after_the_sync() {
    run("crash");
}

#[test]
fn a_merge_is_taken_back_and_another_is_done() {
    run("merge");
}

#[test]
fn a_merge_outlives_crashes() {
    run("merge-crash");
}

#[test]
fn a_snapshot_of_the_target_takes_the_place_of_a_merged_region() {
    run("merge-snapshot");
}

#[test]
fn a_snapshot_of_what_a_split_made_waits_until_the_split_is_flushed() {
    run("split-snapshot");
}

#[test]
fn a_snapshot_races_an_append() {
    run("snapshot");
}

#[test]
fn a_torn_tail() {
    run("torn-tail");
}

#[test]
fn answers_that_come_too_late() {
    run("deadlines");
}
