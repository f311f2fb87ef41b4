//! The apply thread. It executes waiting entries of all regions at once, and carries out the
//! effects in the order that `node` gives. Between any two effects the thread may be delayed, and
//! the store may crash.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use cluster::MetaState;
use command::entry::Items;
use node::lifecycle::Job;
use node::{
    ApplyEffect, ApplyJob, ApplyQueue, Attempt, Executed, Executor, InRamOutcome, Meta, Next, ToApply, Watch,
};
use replica::Input;
use resp::Reply;
use storage::rows::{region_descriptor_row, region_state_row};
use storage::{extent, Reader, Txn};
use types::{Changed, LogIndex, RegionId, StoreId, Term, UnixMillis};

use super::Asker;
use crate::clock::MILLISECOND;
use crate::observation::Observation;
use crate::rng::fold;
use crate::rows::Rows;
use crate::world::{Work, World};

/// Maximum number of entries that may be proposed with the old voters after a change was executed
/// and before the worker knows of it.
const PROPOSED_MEANWHILE: u64 = 8;

/// Maximum size of a batch of the apply thread, in bytes. Up to twice as many bytes are possible.
const BATCH_BYTES: u64 = 600;

/// The executed entries, which are shown to the invariants.
#[derive(Default)]
struct Seen {
    entries: Vec<Entry>,
    changes: Vec<(RegionId, Changed, Option<u64>)>,
}

struct Entry {
    region: RegionId,
    index: LogIndex,
    term: Term,
    payload: Bytes,
    now_ms: UnixMillis,
    replies: Vec<Option<Reply>>,
    is_awaited: bool,
}

impl Watch<Asker> for Seen {
    fn executed(&mut self, executed: Executed<'_>) {
        let Executed { region, index, term, payload, now_ms, replies, is_awaited } = executed;
        let (payload, replies) = (payload.clone(), replies.to_vec());
        self.entries.push(Entry { region, index, term, payload, now_ms, replies, is_awaited });
    }

    fn withdrawn(&mut self, region: RegionId) {
        self.entries.retain(|entry| entry.region != region);
        self.changes.retain(|(of, ..)| *of != region);
    }

    fn changed(&mut self, region: RegionId, changed: &Changed, token: Option<u64>) {
        self.changes.push((region, changed.clone(), token));
    }
}

/// The cluster's state on a store, and the rows that hold it.
struct MetaRegion<'a> {
    state: &'a mut MetaState,
    rows: &'a Rows,
}

impl Meta for MetaRegion<'_> {
    fn apply(&mut self, payload: &Bytes, txn: &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>> {
        // A command that the state machine refuses is refused on every store.
        let _ = cluster::apply_entry(payload, self.state, txn)?;
        Ok(vec![None])
    }

    fn reload(&mut self) -> storage::Result<()> {
        *self.state = MetaState::load(self.rows)?;
        Ok(())
    }
}

/// The threads of a store, as used by its apply queue.
pub(super) struct Threads<'a> {
    world: &'a mut World,
    id: StoreId,
}

impl Executor<Asker> for Threads<'_> {
    fn attempt(&mut self, region: RegionId, entries: Vec<ToApply<Asker>>) -> Attempt<Asker> {
        self.world.attempt(self.id, region, entries)
    }

    fn send(&mut self, job: ApplyJob<Asker>) {
        self.world.queue_job(self.id, job);
    }

    fn withheld(&mut self, entries: Vec<ToApply<Asker>>) {
        self.world.leave_unanswered(self.id, entries);
    }
}

impl World {
    pub(super) fn with_apply_queue(
        &mut self,
        id: StoreId,
        with: impl FnOnce(&mut ApplyQueue<Asker>, &mut Threads<'_>),
    ) {
        let Some(process) = self.process(id) else { return };
        let mut queue = std::mem::take(&mut process.apply_queue);
        with(&mut queue, &mut Threads { world: self, id });
        // The store may have crashed meanwhile.
        if let Some(process) = self.process(id) {
            process.apply_queue = queue;
        }
    }

    pub(super) fn queue_job(&mut self, id: StoreId, job: ApplyJob<Asker>) {
        let Some(process) = self.process(id) else { return };
        process.backlog.push(job);
        self.wake_apply(id);
    }

    pub(super) fn wake_apply(&mut self, id: StoreId) {
        // Commands that are passed on must often reach a leader that is behind its followers.
        let slow_percent = if self.plan.passes_on { 15 } else { 3 };
        let slow = if self.rng.chance(slow_percent) { 100 } else { 1 };
        let delay = self.rng.below(2 * slow * MILLISECOND);
        let Some(process) = self.process(id) else { return };
        let has_work = !process.backlog.is_empty() || !process.applying.is_empty();
        if has_work && !std::mem::replace(&mut process.has_apply, true) {
            self.schedule_work(id, delay, Work::Apply);
        }
    }

    pub(super) fn apply(&mut self, id: StoreId) {
        let bytes_max = self.rng.below(2 * BATCH_BYTES) as usize;
        let Some(process) = self.process(id) else { return };
        process.has_apply = false;
        if process.applying.is_empty() {
            match process.backlog.next(bytes_max) {
                Some(Next::Entries { by_region }) => self.execute(id, by_region),
                Some(Next::Life(job)) => self.begin_life(id, job),
                Some(Next::Reload(descriptor)) => self.load(id, &descriptor),
                None => {}
            }
        }
        while let Some(effect) = self.process(id).and_then(|process| process.applying.pop_front()) {
            if let (ApplyEffect::Write(_), Some(wait)) = (&effect, self.without_room(id)) {
                let Some(process) = self.process(id) else { return };
                process.applying.push_front(effect);
                process.has_apply = true;
                return self.schedule_work(id, wait, Work::Apply);
            }
            match effect {
                ApplyEffect::Applied(indexes) => {
                    self.show_executed(id);
                    for (region, index) in indexes {
                        self.input(id, Input::Applied { region, index });
                    }
                }
                effect => self.carry_out_applied(id, effect),
            }
            let may_stop = self.rng.chance(3);
            if may_stop && self.may_crash(id, "crash while entries are applied") {
                return;
            }
            if may_stop {
                break;
            }
        }
        self.wake_apply(id);
        // Full memtables are flushed without a request.
        if self.rng.chance(4) && self.without_room(id).is_none() {
            self.sync_before_flush(id);
            self.store_mut(id).durable.engine.flush_some();
        }
    }

    /// Executes entries on the worker's thread if RAM has their rows. While the apply thread
    /// executes, no entries are executed here.
    fn attempt(&mut self, id: StoreId, region: RegionId, entries: Vec<ToApply<Asker>>) -> Attempt<Asker> {
        let has_room = self.without_room(id).is_none();
        let store = self.stores.get_mut(&id).expect("a store of this cluster");
        let Some(process) = &mut store.process else { return Attempt::Executed };
        if !process.applying.is_empty() || !has_room {
            return Attempt::Busy(entries);
        }
        let mut seen = Seen::default();
        let rows = store.durable.engine.in_ram();
        let effects = match process.execution.execute_in_ram(region, entries, &rows, &mut seen) {
            Ok(InRamOutcome::Executed(effects)) => effects,
            Ok(InRamOutcome::NotExecuted(entries)) => {
                self.tally.attempts_missed += 1;
                return Attempt::NotInRam(entries);
            }
            Err(error) => {
                self.violate("execution", format!("store {id}: {error}"));
                return Attempt::Executed;
            }
        };
        self.tally.executed_in_ram += 1;
        self.executed(id, vec![region], seen);
        for effect in effects {
            match effect {
                ApplyEffect::Applied(indexes) => {
                    self.show_executed(id);
                    let boot = self.boot(id);
                    let Some(process) = self.process(id) else { break };
                    for (region, index) in indexes {
                        process.shard.step(node::Input::Raft(Input::Applied { region, index }), boot);
                    }
                }
                effect => self.carry_out_applied(id, effect),
            }
            if self.rng.chance(3) && self.may_crash(id, "crash while the worker executes") {
                break;
            }
        }
        Attempt::Executed
    }

    fn execute(&mut self, id: StoreId, entries: BTreeMap<RegionId, Vec<ToApply<Asker>>>) {
        let regions: Vec<RegionId> = entries.keys().copied().collect();
        let mut seen = Seen::default();
        let store = self.stores.get_mut(&id).expect("a store of this cluster");
        let Some(process) = &mut store.process else { return };
        let mut meta = MetaRegion { state: &mut process.meta, rows: &store.durable.engine };
        match process.execution.execute(entries, &store.durable.engine, &mut meta, &mut seen) {
            Ok(effects) => process.applying.extend(effects),
            Err(error) => return self.violate("execution", format!("store {id}: {error}")),
        }
        self.executed(id, regions, seen);
    }

    /// Shows the invariants the executed entries, before any effect is carried out.
    fn executed(&mut self, id: StoreId, regions: Vec<RegionId>, seen: Seen) {
        let Some(process) = self.process(id) else { return };
        process.executed.extend(&regions);
        for entry in &seen.entries {
            if entry.is_awaited {
                process.acknowledged.push((entry.region, entry.index, entry.term));
            }
        }
        for Entry { region, index, payload, now_ms, replies, .. } in seen.entries {
            self.tally.entries_applied += 1;
            match Items::decode(payload) {
                Ok(items) => {
                    let (entry, replies) = (items.seed, &replies[..]);
                    let done = Observation::Executed { store: id, region, index, entry, now_ms, replies };
                    self.observe(&done);
                }
                Err(error) => return self.violate("execution", error.to_string()),
            }
        }
        self.show_changes(id, seen.changes);
        self.wake_clients(id, &regions);
    }

    fn show_changes(&mut self, id: StoreId, changes: Vec<(RegionId, Changed, Option<u64>)>) {
        let mut newest = BTreeMap::new();
        for (region, changed, token) in changes {
            let Some(process) = self.process(id) else { return };
            let before = newest.insert(region, changed.region.clone());
            let before = before.unwrap_or_else(|| process.regions[&region].descriptor.clone());
            let expect = token.and_then(|token| process.expected.remove(&token));
            let last = process.shard.status(region, 0).map_or(0, |status| status.last);
            let voters = process.voters_before.entry(region).or_default();
            voters.push((last + PROPOSED_MEANWHILE, before.voters().collect()));
            process.ledger.learn_descriptor(&changed.region);
            self.tally.splits += u64::from(changed.split_off.is_some());
            self.tally.merges += u64::from(changed.absorbed.is_some());
            self.merged.extend(changed.absorbed.as_ref().map(|source| source.id));
            let (was, is) = (before.merging.is_some(), changed.region.merging.is_some());
            self.tally.seals += u64::from(is && !was);
            self.tally.merges_taken_back += u64::from(was && !is);
            self.tally.changes += 1;
            self.tally.joints += u64::from(changed.region.is_joint());
            if let Some(expect) = expect {
                self.observe(&Observation::Changed { region, before: before.epoch, expect });
            }
            self.say(&format!("store {id}: region {region} is {:?}", changed.region));
            let split_off = changed.split_off.as_ref();
            self.observe(&Observation::Described { store: id, region: &changed.region, split_off });
        }
    }

    fn carry_out_applied(&mut self, id: StoreId, effect: ApplyEffect<Asker>) {
        match effect {
            ApplyEffect::Write(writes) => {
                self.store_mut(id).durable.engine.write(writes);
            }
            ApplyEffect::Describe(descriptors) => {
                let Some(process) = self.process(id) else { return };
                descriptors.iter().for_each(|descriptor| process.set_local(descriptor));
            }
            ApplyEffect::Absorbed { region } => {
                let Some(process) = self.process(id) else { return };
                process.checks.withdraw(id, region);
            }
            ApplyEffect::Changed { .. } => unreachable!("nobody asks for a record"),
            ApplyEffect::Published { .. } | ApplyEffect::Counted(_) => {}
            ApplyEffect::Check { region, index, number } => self.begin_check(id, region, index, number),
            ApplyEffect::Hold { region, mark } => self.carry_on_life(id, Job::Hold { region, mark }),
            ApplyEffect::State { region, state } => {
                let Some(process) = self.process(id) else { return };
                process.set_applied(region, &state);
            }
            ApplyEffect::Answer { client, outcome } => self.answer(id, client, outcome),
            ApplyEffect::Applied(_) => unreachable!("the caller tells the groups"),
        }
    }

    /// Shows the invariants the rows and acknowledgements, before the groups are told and answers
    /// are sent.
    fn show_executed(&mut self, id: StoreId) {
        let Some(process) = self.process(id) else { return };
        for region in std::mem::take(&mut process.executed) {
            self.show_rows(id, region);
        }
        self.show_acknowledged(id);
        self.look_at_members(id);
    }

    fn show_acknowledged(&mut self, id: StoreId) {
        let Some(process) = self.process(id) else { return };
        for (region, index, term) in std::mem::take(&mut process.acknowledged) {
            let Some(process) = self.process(id) else { return };
            let mut voters: Vec<Vec<StoreId>> = vec![process.regions[&region].descriptor.voters().collect()];
            let before = process.voters_before.get(&region).into_iter().flatten();
            voters.extend(before.filter(|(through, _)| index <= *through).map(|(_, voters)| voters.clone()));
            let seen = Observation::Acknowledged { store: id, region, index, term, voters: &voters };
            self.observe(&seen);
        }
    }

    /// Shows the invariants a digest of a region's rows on this store.
    pub(crate) fn show_rows(&mut self, id: StoreId, region: RegionId) {
        let store = &self.stores[&id];
        let Some(process) = &store.process else { return };
        let Some(state) = process.execution.state(region) else { return };
        let range = extent::data_range(region, process.regions[&region].descriptor.slots);
        let (from, to) = range.unwrap_or_default();
        let own = [region_state_row(region), region_descriptor_row(region)]
            .map(|row| store.durable.engine.get(&row).ok().flatten().unwrap_or_default());
        let mut digest = fold(fold(region, &own[0]), &own[1]);
        let scanned = store.durable.engine.scan(&from, &to, &mut |row, value| {
            digest = fold(fold(digest, row), value);
            ControlFlow::Continue(())
        });
        let index = state.applied_index;
        if scanned.is_ok() {
            self.observe(&Observation::Rows { store: id, region, index, digest });
        }
    }
}
