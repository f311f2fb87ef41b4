//! Execution: turns committed entries into rows, and answers the clients that wait for them.

use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

use bytes::Bytes;
use cluster::Mark;
use command::entry::Items;
use command::order::Order;
use replica::Committed;
use resp::Reply;
use storage::record::{Publication, Publications, Record};
use storage::rows::{region_descriptor_row, region_state_row};
use storage::{KeyCounts, MemoryKeyspace, Reader, RegionState, StorageError, Txn, WriteSet};
use types::{
    Changed, LogIndex, RegionDescriptor, RegionId, SlotRange, StoreId, Term, UnixMillis, META_REGION,
};

use crate::failpoints::Failpoint;
use crate::queue::Waiting;
use crate::work::Outcome;
use failure::{failure_of, panic_text, Failed, Failure, Progress};

mod failure;
mod quarantine;

/// A committed entry, and the clients on this store that wait for it.
#[derive(Debug)]
pub struct ToApply<C> {
    pub entry: Committed,
    pub waiting: Option<Waiting<C>>,
}

impl<C> ToApply<C> {
    pub fn bytes(&self) -> usize {
        self.entry.payload.len()
    }

    /// Returns true if the entry orders an action on the region as of its index. Later entries of
    /// the region must then be executed in another batch.
    pub fn ends_batch(&self) -> bool {
        command::order::is_order(&self.entry.payload)
    }
}

/// The meta region's state machine on this store.
pub trait Meta {
    /// Applies an entry of the meta region and returns its replies.
    fn apply(&mut self, payload: &Bytes, txn: &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>>;

    /// Reloads the state from the rows, after an entry that could not be applied. Nothing of its
    /// batch is written.
    fn reload(&mut self) -> storage::Result<()> {
        Ok(())
    }
}

impl<F: FnMut(&Bytes, &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>>> Meta for F {
    fn apply(&mut self, payload: &Bytes, txn: &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>> {
        self(payload, txn)
    }
}

/// Read access to the present rows, with notices of the reads that follow.
pub trait Rows: Reader {
    /// Gives notice that a payload of commands is executed next.
    fn begin_payload(&self) {}

    /// Gives notice of the remaining items of that payload. The first of them is executed next.
    fn coming(&self, _items: &Items) {}

    /// Returns true if the changes of keys are to be told, as [`ApplyEffect::Changed`]. It does not
    /// influence the execution.
    fn wants_record(&self) -> bool {
        false
    }
}

impl Rows for MemoryKeyspace {}

/// An entry of commands that was executed.
pub struct Executed<'a> {
    pub region: RegionId,
    pub index: LogIndex,
    pub term: Term,
    pub payload: &'a Bytes,
    /// The region's time after the entry.
    pub now_ms: UnixMillis,
    pub replies: &'a [Option<Reply>],
    /// True if a client on this store waits for the entry.
    pub is_awaited: bool,
}

/// A view of internal steps for a simulator's invariants. Nothing depends on it.
pub trait Watch<C> {
    /// Observes that an entry with this seed is proposed for these clients, each with its number of
    /// commands.
    fn proposed(&mut self, _region: RegionId, _seed: u64, _clients: &mut dyn Iterator<Item = (&C, usize)>) {}

    fn executed(&mut self, _executed: Executed<'_>) {}

    /// Observes that a later entry of the region failed. Everything that this call has executed and
    /// changed in the region has no effect. The entries before the failed one are executed again.
    fn withdrawn(&mut self, _region: RegionId) {}

    /// Observes that an entry changed the region. The token belongs to the local proposer, if any.
    fn changed(&mut self, _region: RegionId, _changed: &Changed, _token: Option<u64>) {}
}

/// Observes nothing.
impl<C> Watch<C> for () {}

/// The next steps after an execution, in order. Rows are written before they can be read. A
/// region's new range is published before the groups continue. Clients are answered last.
pub enum ApplyEffect<C> {
    /// Write everything as one set. Wait for room if there is none.
    Write(WriteSet),
    /// Publish the new descriptors of regions with a peer here, in the order in which they were
    /// created. These regions have no lease until the groups are told.
    Describe(Vec<RegionDescriptor>),
    /// The region has merged into another, which counts its keys now.
    Absorbed {
        region: RegionId,
    },
    /// Publish the region's applied index and contents.
    State {
        region: RegionId,
        state: RegionState,
    },
    /// Tell clients which keys have changed.
    Changed {
        region: RegionId,
        record: Record,
    },
    /// Publish the messages of scripts. Only the store that has proposed the scripts' entries gets
    /// this, so no message is published twice.
    Published {
        messages: Vec<Publication>,
        /// Number of messages that were dropped, because they were too many.
        dropped: usize,
    },
    /// Add the keys that commands have looked up, and those that have expired. Only the store that
    /// has proposed an entry counts its keys.
    Counted(KeyCounts),
    /// The region's peer is quarantined. Carry out the steps of `Job::Hold`, in parallel with
    /// execution. From now on the region is neither read nor executed here.
    Hold {
        region: RegionId,
        mark: Mark,
    },
    /// Compute a checksum of the region's rows. Take the view before any other entry of the region
    /// is executed. The rest of the work runs independently.
    Check {
        region: RegionId,
        index: LogIndex,
        number: u64,
    },
    /// Tell the groups, as `replica::Input::Applied`.
    Applied(Vec<(RegionId, LogIndex)>),
    Answer {
        client: C,
        outcome: Outcome,
    },
}

/// The applied state of each region with rows here.
#[derive(Debug, Default)]
pub struct Execution {
    store: StoreId,
    states: BTreeMap<RegionId, RegionState>,
    /// The slots of each region as of its state.
    slots: BTreeMap<RegionId, SlotRange>,
    /// Peers that are quarantined or skip entries.
    marks: BTreeMap<RegionId, Mark>,
    /// True if entries that order a failure fail on this store.
    fails_by_order: bool,
}

/// The reply to each command of an entry; `None` if the entry was not executed.
type Replies = Option<Vec<Option<Reply>>>;

/// Entries that are executed and not yet written.
struct Batch<C> {
    writes: WriteSet,
    states: Vec<(RegionId, RegionState)>,
    descriptors: Vec<RegionDescriptor>,
    absorbed: Vec<RegionId>,
    /// Region, index and number of each check.
    checks: Vec<(RegionId, LogIndex, u64)>,
    records: Vec<(RegionId, Record)>,
    publications: Publications,
    counts: KeyCounts,
    held: Vec<(RegionId, Mark)>,
    answers: Vec<(Waiting<C>, Replies)>,
}

impl<C> Default for Batch<C> {
    fn default() -> Batch<C> {
        Batch {
            writes: WriteSet::default(),
            states: Vec::new(),
            descriptors: Vec::new(),
            absorbed: Vec::new(),
            checks: Vec::new(),
            records: Vec::new(),
            publications: Publications::default(),
            counts: KeyCounts::default(),
            held: Vec::new(),
            answers: Vec::new(),
        }
    }
}

impl<C> Batch<C> {
    fn answer(&mut self, entries: Vec<ToApply<C>>, replies: Vec<Replies>) {
        let answer = |(apply, replies): (ToApply<C>, _)| {
            let waiting = apply.waiting.filter(|_| !apply.entry.payload.is_empty())?;
            Some((waiting, replies))
        };
        self.answers.extend(entries.into_iter().zip(replies).filter_map(answer));
    }

    /// Answers entries that are committed but not executed, and that may be executed later.
    fn leave(&mut self, entries: Vec<ToApply<C>>) {
        let replies = entries.iter().map(|_| None).collect();
        self.answer(entries, replies);
    }

    fn add(&mut self, done: Done) -> Vec<Replies> {
        match self.writes.is_empty() {
            true => self.writes = done.writes,
            false => {
                self.writes.ranges_deleted.extend(done.writes.ranges_deleted);
                self.writes.rows.extend(done.writes.rows);
            }
        }
        self.states.extend(done.states);
        self.descriptors.extend(done.descriptors);
        self.absorbed.extend(done.absorbed);
        self.checks.extend(done.checks);
        self.records.extend(done.records);
        self.publications.append(done.publications);
        self.counts += done.counts;
        done.replies
    }
}

/// Entries of one region that are executed and not yet in a batch.
#[derive(Default)]
struct Done {
    writes: WriteSet,
    states: Vec<(RegionId, RegionState)>,
    slots: Vec<(RegionId, SlotRange)>,
    descriptors: Vec<RegionDescriptor>,
    absorbed: Vec<RegionId>,
    checks: Vec<(RegionId, LogIndex, u64)>,
    records: Vec<(RegionId, Record)>,
    publications: Publications,
    counts: KeyCounts,
    replies: Vec<Replies>,
}

/// The result of an execution that must not wait for a device.
pub enum InRamOutcome<C> {
    Executed(Vec<ApplyEffect<C>>),
    NotExecuted(Vec<ToApply<C>>),
}

impl Execution {
    /// Creates an execution without regions. With `fails_by_order`, entries that order a failure
    /// fail on this store, as `enable-debug-command` says.
    pub fn new(store: StoreId, fails_by_order: bool) -> Execution {
        Execution { store, fails_by_order, ..Execution::default() }
    }

    /// Loads a region's state at start, or after a snapshot has replaced its rows.
    pub fn load(&mut self, region: RegionId, state: RegionState, slots: Option<SlotRange>) {
        self.states.insert(region, state);
        self.slots.insert(region, slots.unwrap_or(SlotRange::ALL));
    }

    /// Unloads a region. No entry of the region may arrive until it is loaded again.
    fn unload(&mut self, region: RegionId) {
        self.states.remove(&region);
        self.slots.remove(&region);
        self.marks.remove(&region);
    }

    pub fn state(&self, region: RegionId) -> Option<&RegionState> {
        self.states.get(&region)
    }

    pub fn states(&self) -> impl Iterator<Item = (RegionId, &RegionState)> + '_ {
        self.states.iter().map(|(region, state)| (*region, state))
    }

    /// Executes entries, each region's in the order of its log. `meta` applies an entry of the meta
    /// region. If an entry fails, its region's peer is quarantined: the entries before it are
    /// executed, but not it or any later entry. An error comes from the rows' device. The store
    /// must then stop, and no effect may be carried out.
    ///
    /// # Panics
    ///
    /// If a region's entries do not directly follow its applied index.
    pub fn execute<C, R: Rows>(
        &mut self,
        entries: BTreeMap<RegionId, Vec<ToApply<C>>>,
        rows: &R,
        meta: &mut dyn Meta,
        watch: &mut impl Watch<C>,
    ) -> Result<Vec<ApplyEffect<C>>, ExecutionError> {
        let mut batch = Batch::default();
        for (region, mut entries) in entries {
            let stop = |error| ExecutionError { region, error };
            let mut left = self.withheld_of(region, &mut entries);
            let mut failed = None;
            while !entries.is_empty() {
                match self.attempt(region, &entries, rows, meta, watch) {
                    Ok(done) => {
                        let replies = self.take(done, &mut batch);
                        batch.answer(std::mem::take(&mut entries), replies);
                    }
                    Err(Failed { failure: Failure::Store(error), .. }) => return Err(stop(error)),
                    Err(Failed { at, failure: Failure::Entry { nth, error } }) => {
                        watch.withdrawn(region);
                        if region == META_REGION {
                            meta.reload().map_err(stop)?;
                        }
                        let rest = entries.split_off(at);
                        failed = rest.first().map(|apply| failure_of(region, &apply.entry, nth, &error));
                        left.splice(..0, rest);
                    }
                }
            }
            batch.leave(left);
            if let Some((cause, what, error)) = failed {
                batch.held.extend(self.hold(region, cause, &what, &error).map(|mark| (region, mark)));
            }
        }
        Ok(self.effects_of(batch))
    }

    /// Executes entries of one region over rows that need no device. Returns the entries unchanged
    /// if RAM lacks a row that they need, if they do more than execute commands, or if one of them
    /// fails.
    ///
    /// # Panics
    ///
    /// As [`execute`](Self::execute).
    pub fn execute_in_ram<C, R: Rows>(
        &mut self,
        region: RegionId,
        entries: Vec<ToApply<C>>,
        rows: &R,
        watch: &mut impl Watch<C>,
    ) -> Result<InRamOutcome<C>, ExecutionError> {
        let is_more = |apply: &ToApply<C>| apply.entry.change.is_some() || apply.ends_batch();
        if region == META_REGION || self.is_held(region) || entries.iter().any(is_more) {
            return Ok(InRamOutcome::NotExecuted(entries));
        }
        let mut batch = Batch::default();
        let no_meta = &mut |_: &Bytes, _: &mut Txn<'_>| Ok(Vec::new());
        match self.attempt(region, &entries, rows, no_meta, watch) {
            Ok(done) => {
                let replies = self.take(done, &mut batch);
                batch.answer(entries, replies);
                Ok(InRamOutcome::Executed(self.effects_of(batch)))
            }
            Err(Failed {
                failure: Failure::Store(StorageError::NotInRam) | Failure::Entry { .. }, ..
            }) => Ok(InRamOutcome::NotExecuted(entries)),
            Err(Failed { failure: Failure::Store(error), .. }) => Err(ExecutionError { region, error }),
        }
    }

    /// Adds the executed part of a region to the batch.
    fn take<C>(&mut self, done: Done, batch: &mut Batch<C>) -> Vec<Replies> {
        for region in &done.absorbed {
            self.unload(*region);
        }
        self.slots.extend(done.slots.iter().copied());
        self.states.extend(done.states.iter().cloned());
        batch.add(done)
    }

    /// Executes entries of one region. A panic counts as a failure: its effects are dropped.
    fn attempt<C, R: Rows>(
        &self,
        region: RegionId,
        entries: &[ToApply<C>],
        rows: &R,
        meta: &mut dyn Meta,
        watch: &mut impl Watch<C>,
    ) -> Result<Done, Failed> {
        let progress = Progress::default();
        let state = self.states.get(&region).ok_or_else(|| {
            let missing = format!("an entry of region {region}, which has no rows here");
            Failed { at: 0, failure: Failure::Store(StorageError::Corrupt(missing)) }
        })?;
        let next = state.applied_index + 1;
        let is_next = |(apply, index): (&ToApply<C>, LogIndex)| apply.entry.index == index;
        assert!(
            entries.iter().zip(next..).all(is_next),
            "entries of region {region} apply in order: {:?} after {}",
            entries.iter().map(|apply| apply.entry.index).collect::<Vec<_>>(),
            state.applied_index
        );
        let executed = catch_unwind(AssertUnwindSafe(|| {
            self.execute_region(region, entries, (rows, state.clone()), meta, watch, &progress)
        }));
        let failure = match executed {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(StorageError::Corrupt(error))) => Failure::Entry { nth: progress.item.get(), error },
            Ok(Err(error)) => Failure::Store(error),
            Err(panic) => {
                Failure::Entry { nth: progress.item.get(), error: format!("panic: {}", panic_text(&*panic)) }
            }
        };
        Err(Failed { at: progress.entry.get(), failure })
    }

    fn execute_region<C, R: Rows>(
        &self,
        region: RegionId,
        entries: &[ToApply<C>],
        (rows, state): (&R, RegionState),
        meta: &mut dyn Meta,
        watch: &mut impl Watch<C>,
        progress: &Progress,
    ) -> storage::Result<Done> {
        let missing = |what: String| StorageError::Corrupt(what);
        let mut done = Done::default();
        let mut slots = self.slots.get(&region).copied().unwrap_or(SlotRange::ALL);
        let mut born = Vec::new();
        let mut txn = Txn::new(rows, region, state);
        if region != META_REGION && rows.wants_record() {
            txn.begin_record();
        }
        for (at, ToApply { entry, waiting }) in entries.iter().enumerate() {
            progress.begin(at);
            let mut replies = Some(Vec::new());
            assert!(done.checks.is_empty(), "a check ends its region's batch");
            if self.skips(region, entry.index) {
                txn.state_mut().note_skipped(entry.index);
                replies = None;
            } else if let Some(order) = Order::decode(&entry.payload)? {
                self.obey(&order, entry.index, &mut txn)?;
                if let Order::Checksum(number) = order {
                    done.checks.push((region, entry.index, number));
                }
                replies = Some(vec![Some(Reply::Int(i64::try_from(entry.index).unwrap_or(i64::MAX)))]);
            } else if !entry.payload.is_empty() {
                replies = Some(match region {
                    META_REGION => meta.apply(&entry.payload, &mut txn)?,
                    _ => {
                        rows.begin_payload();
                        let coming = &mut |items: &_| {
                            progress.next_item();
                            rows.coming(items);
                        };
                        let items_before = txn.record_mut().map_or(0, |record| record.items());
                        let replies = command::entry::apply_told(&entry.payload, &mut txn, slots, coming)?;
                        if let (Some(record), Some(waiting)) = (txn.record_mut(), waiting) {
                            record.set_authors(items_before, waiting.authors());
                        }
                        // A store that replays the log, or follows, neither publishes nor counts.
                        let (published, counted) = (txn.take_publications(), txn.take_counts());
                        if waiting.is_some() {
                            done.publications.append(published);
                            done.counts += counted;
                        }
                        watch.executed(Executed {
                            region,
                            index: entry.index,
                            term: entry.term,
                            payload: &entry.payload,
                            now_ms: txn.state().last_stamp_ms,
                            replies: &replies,
                            is_awaited: waiting.is_some(),
                        });
                        replies
                    }
                });
            }
            done.replies.push(replies);
            if let Some(changed) = &entry.change {
                if let Some(source) = &changed.absorbed {
                    // The groups handed this entry out only after the whole source was applied.
                    let state = self.states.get(&source.id).ok_or_else(|| {
                        missing(format!("region {} is to be absorbed and is not here", source.id))
                    })?;
                    absorb(&mut txn, source.id, state);
                    done.absorbed.push(source.id);
                }
                if let Some((child, state)) = change(&mut txn, changed)? {
                    born.push((child.id, state));
                    done.slots.push((child.id, child.slots.unwrap_or(SlotRange::ALL)));
                }
                if !Failpoint::SlotsOfTheTurn.is_on() {
                    slots = changed.region.slots.unwrap_or(SlotRange::ALL);
                }
                watch.changed(region, changed, entry.token);
                done.descriptors.push(changed.region.clone());
                done.descriptors.extend(changed.split_off.clone());
                done.slots.push((region, changed.region.slots.unwrap_or(SlotRange::ALL)));
            }
            let state = txn.state_mut();
            state.applied_index = entry.index;
            state.applied_term = entry.term;
        }
        let record = txn.take_record().filter(|record| !record.is_empty());
        done.records.extend(record.map(|record| (region, record)));
        let (mut writes, state) = txn.finish();
        if Failpoint::RowDiffers.is_on() && self.store == 1 && state.applied_index % 4 == 0 {
            spoil(&mut writes);
        }
        done.writes = writes;
        done.states.push((region, state));
        done.states.extend(born);
        Ok(done)
    }

    /// Returns the effects of a batch in the order in which they must be carried out.
    fn effects_of<C>(&self, batch: Batch<C>) -> Vec<ApplyEffect<C>> {
        let mut effects = Vec::new();
        if !batch.states.is_empty() {
            effects.push(ApplyEffect::Write(batch.writes));
        }
        let mut here = batch.descriptors;
        here.retain(|descriptor| descriptor.has_peer_on(self.store));
        if !here.is_empty() {
            effects.push(ApplyEffect::Describe(here));
        }
        effects.extend(batch.absorbed.into_iter().map(|region| ApplyEffect::Absorbed { region }));
        let applied = batch.states.iter().map(|(region, state)| (*region, state.applied_index)).collect();
        effects.extend(batch.states.into_iter().map(|(region, state)| ApplyEffect::State { region, state }));
        let changed = |(region, record)| ApplyEffect::Changed { region, record };
        effects.extend(batch.records.into_iter().map(changed));
        let Publications { messages, dropped, .. } = batch.publications;
        if !messages.is_empty() || dropped > 0 {
            effects.push(ApplyEffect::Published { messages, dropped });
        }
        if !batch.counts.is_empty() {
            effects.push(ApplyEffect::Counted(batch.counts));
        }
        let check = |(region, index, number)| ApplyEffect::Check { region, index, number };
        effects.extend(batch.checks.into_iter().map(check));
        effects.extend(batch.held.into_iter().map(|(region, mark)| ApplyEffect::Hold { region, mark }));
        effects.push(ApplyEffect::Applied(applied));
        for (waiting, replies) in batch.answers {
            let answer = |(client, outcome)| ApplyEffect::Answer { client, outcome };
            match replies {
                Some(replies) => effects.extend(waiting.answers(replies).map(answer)),
                None => effects.extend(waiting.clients().map(|client| answer((client, Outcome::Unknown)))),
            }
        }
        if Failpoint::AnswerBeforeWrite.is_on() {
            effects.rotate_left(1);
        }
        effects
    }
}

/// A failure of the rows' device. It must never become a reply.
#[derive(Debug)]
pub struct ExecutionError {
    pub region: RegionId,
    pub error: StorageError,
}

impl std::fmt::Display for ExecutionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "region {} cannot apply: {}", self.region, self.error)
    }
}

impl std::error::Error for ExecutionError {}

/// Changes the last byte of the first string among the rows.
fn spoil(writes: &mut WriteSet) {
    let is_string = |value: &Bytes| value.len() > 10 && value[..2] == [1, 1];
    let values = writes.rows.iter_mut().filter(|(row, _)| row.first() == Some(&b'd'));
    if let Some(value) = values.filter_map(|(_, value)| value.as_mut()).find(|value| is_string(value)) {
        let mut spoilt = value.to_vec();
        *spoilt.last_mut().expect("the value is not empty") ^= 1;
        *value = spoilt.into();
    }
}

/// Absorbs a region's keys. Their rows stay in place, and the rows about the region itself are
/// deleted.
fn absorb(txn: &mut Txn<'_>, source: RegionId, state: &RegionState) {
    txn.state_mut().absorb(state);
    txn.delete(region_state_row(source));
    txn.delete(region_descriptor_row(source));
}

/// Writes the descriptors of a change, and the rows of a region that it splits off.
fn change(txn: &mut Txn<'_>, changed: &Changed) -> storage::Result<Option<(RegionDescriptor, RegionState)>> {
    txn.put(region_descriptor_row(changed.region.id), changed.region.encode());
    let Some(child) = &changed.split_off else { return Ok(None) };
    // After a crash the entry may be applied again, although the child's rows are durable and come
    // from a later snapshot.
    let is_here = txn.get(&region_state_row(child.id))?.is_some();
    if is_here {
        let slots = changed.region.slots.unwrap_or(SlotRange::ALL);
        let left = storage::count_keys(txn, slots)?;
        txn.state_mut().recount(&left);
        txn.state_mut().retain_watches(slots);
        return Ok(None);
    }
    let slots = child.slots.unwrap_or(SlotRange::ALL);
    let counts = storage::count_keys(txn, slots)?;
    let state = txn.state_mut().split_off(slots, &counts);
    txn.put(region_state_row(child.id), state.encode());
    txn.put(region_descriptor_row(child.id), child.encode());
    Ok(Some((child.clone(), state)))
}

#[cfg(test)]
mod tests;
