//! Execution: turns committed entries into rows, and answers the clients that wait for them.

use std::collections::BTreeMap;

use bytes::Bytes;
use command::entry::Items;
use replica::Committed;
use resp::Reply;
use storage::rows::{region_descriptor_row, region_state_row};
use storage::{MemoryKeyspace, Reader, RegionState, StorageError, Txn, WriteSet};
use types::{
    Changed, LogIndex, RegionDescriptor, RegionId, SlotRange, StoreId, Term, UnixMillis, META_REGION,
};

use crate::planted::{self, Bug};
use crate::queue::Waiting;
use crate::work::Outcome;

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

    /// Returns true if the entry orders something of the region as of its index. Later entries of
    /// the region must then be executed in another batch.
    pub fn ends_batch(&self) -> bool {
        command::check::is_order(&self.entry.payload)
    }
}

/// A function that applies an entry of the meta region and returns its replies.
pub type ApplyMeta<'a> = dyn FnMut(&Bytes, &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>> + 'a;

/// The present rows, with announcements of the reads to come.
pub trait Rows: Reader {
    /// Announces that a payload of commands is executed next.
    fn begin_payload(&self) {}

    /// Announces the rest of that payload. The first of these items is executed next.
    fn coming(&self, _items: &Items) {}
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
    /// An entry with this seed is proposed for these clients, each with its number of commands.
    fn proposed(&mut self, _region: RegionId, _seed: u64, _clients: &mut dyn Iterator<Item = (&C, usize)>) {}

    fn executed(&mut self, _executed: Executed<'_>) {}

    /// An entry changed the region. The token belongs to the local proposer, if any.
    fn changed(&mut self, _region: RegionId, _changed: &Changed, _token: Option<u64>) {}
}

/// Observes nothing.
impl<C> Watch<C> for () {}

/// The next steps after an execution. Their order matters. Rows are written before anything can
/// show them. A region's new range is published before the groups continue. Clients are answered
/// last.
pub enum ApplyEffect<C> {
    /// Write everything as one set, and wait for room if there is none.
    Write(WriteSet),
    /// Publish the new descriptors of regions with a peer here, in the order in which they were
    /// made. These regions have no lease until the groups are told.
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
    /// Compute a checksum of the region's rows. The view must be taken before anything else of the
    /// region is executed. The rest of the work runs independently.
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
}

/// Entries that are executed and not yet written.
struct Batch<C> {
    writes: WriteSet,
    states: Vec<(RegionId, RegionState)>,
    descriptors: Vec<RegionDescriptor>,
    absorbed: Vec<RegionId>,
    /// Region, index and number of each check.
    checks: Vec<(RegionId, LogIndex, u64)>,
    answers: Vec<(Waiting<C>, Vec<Option<Reply>>)>,
}

impl<C> Default for Batch<C> {
    fn default() -> Batch<C> {
        Batch {
            writes: WriteSet::default(),
            states: Vec::new(),
            descriptors: Vec::new(),
            absorbed: Vec::new(),
            checks: Vec::new(),
            answers: Vec::new(),
        }
    }
}

impl<C> Batch<C> {
    fn answer(&mut self, entries: Vec<ToApply<C>>, replies: Vec<Vec<Option<Reply>>>) {
        let answer = |(apply, replies): (ToApply<C>, _)| {
            let waiting = apply.waiting.filter(|_| !apply.entry.payload.is_empty())?;
            Some((waiting, replies))
        };
        self.answers.extend(entries.into_iter().zip(replies).filter_map(answer));
    }
}

/// The result of an execution that must not wait.
pub enum InRamOutcome<C> {
    Executed(Vec<ApplyEffect<C>>),
    NotExecuted(Vec<ToApply<C>>),
}

impl Execution {
    pub fn new(store: StoreId) -> Execution {
        Execution { store, states: BTreeMap::new(), slots: BTreeMap::new() }
    }

    /// Loads a region's state: at a start, or after a snapshot has replaced its rows.
    pub fn load(&mut self, region: RegionId, state: RegionState, slots: Option<SlotRange>) {
        self.states.insert(region, state);
        self.slots.insert(region, slots.unwrap_or(SlotRange::ALL));
    }

    /// Unloads a region. No entry of it may come until it is loaded again.
    pub fn unload(&mut self, region: RegionId) {
        self.states.remove(&region);
        self.slots.remove(&region);
    }

    pub fn state(&self, region: RegionId) -> Option<&RegionState> {
        self.states.get(&region)
    }

    pub fn states(&self) -> impl Iterator<Item = (RegionId, &RegionState)> + '_ {
        self.states.iter().map(|(region, state)| (*region, state))
    }

    /// Executes entries, each region's in the order of its log. `meta` applies an entry of the meta
    /// region. After an error the store must stop, and no effect may be carried out.
    ///
    /// # Panics
    ///
    /// If a region's entries do not directly follow its applied index.
    pub fn execute<C, R: Rows>(
        &mut self,
        entries: BTreeMap<RegionId, Vec<ToApply<C>>>,
        rows: &R,
        meta: &mut ApplyMeta<'_>,
        watch: &mut impl Watch<C>,
    ) -> Result<Vec<ApplyEffect<C>>, ExecutionError> {
        let mut batch = Batch::default();
        for (region, entries) in entries {
            let replies = self
                .execute_region(region, &entries, rows, meta, watch, &mut batch)
                .map_err(|error| ExecutionError { region, error })?;
            batch.answer(entries, replies);
        }
        Ok(self.effects_of(batch))
    }

    /// Executes entries of one region over rows that need no device. Returns the entries unchanged
    /// if RAM lacks a row that they need, or if they do more than execute commands.
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
        if region == META_REGION || entries.iter().any(is_more) {
            return Ok(InRamOutcome::NotExecuted(entries));
        }
        let mut batch = Batch::default();
        let no_meta = &mut |_: &Bytes, _: &mut Txn<'_>| Ok(Vec::new());
        match self.execute_region(region, &entries, rows, no_meta, watch, &mut batch) {
            Ok(replies) => {
                batch.answer(entries, replies);
                Ok(InRamOutcome::Executed(self.effects_of(batch)))
            }
            // A region's state is stored only if all of its entries were executed.
            Err(StorageError::NotInRam) => Ok(InRamOutcome::NotExecuted(entries)),
            Err(error) => Err(ExecutionError { region, error }),
        }
    }

    /// Executes entries of one region. Returns the replies to each entry.
    fn execute_region<C, R: Rows>(
        &mut self,
        region: RegionId,
        entries: &[ToApply<C>],
        rows: &R,
        meta: &mut ApplyMeta<'_>,
        watch: &mut impl Watch<C>,
        batch: &mut Batch<C>,
    ) -> storage::Result<Vec<Vec<Option<Reply>>>> {
        let mut replies_of = Vec::with_capacity(entries.len());
        let missing = |what: String| StorageError::Corrupt(what);
        let state = self.states.get(&region);
        let state =
            state.ok_or_else(|| missing(format!("an entry of region {region}, which has no rows here")))?;
        let mut slots = self.slots.get(&region).copied().unwrap_or(SlotRange::ALL);
        let mut born = Vec::new();
        let mut txn = Txn::new(rows, region, state.clone());
        for ToApply { entry, waiting } in entries {
            assert_eq!(
                entry.index,
                txn.state().applied_index + 1,
                "entries of region {region} apply in order"
            );
            let mut replies = Vec::new();
            assert!(batch.checks.iter().all(|(of, ..)| *of != region), "a check ends its region's batch");
            if let Some(number) = command::check::decode(&entry.payload)? {
                batch.checks.push((region, entry.index, number));
                replies.push(Some(Reply::Int(i64::try_from(entry.index).unwrap_or(i64::MAX))));
            } else if !entry.payload.is_empty() {
                replies = match region {
                    META_REGION => meta(&entry.payload, &mut txn)?,
                    _ => {
                        rows.begin_payload();
                        let coming = &mut |items: &_| rows.coming(items);
                        let replies = command::entry::apply_told(&entry.payload, &mut txn, slots, coming)?;
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
                };
            }
            replies_of.push(replies);
            if let Some(changed) = &entry.change {
                if let Some(source) = &changed.absorbed {
                    // The groups handed this entry out only after the whole source was applied.
                    let state = self.states.remove(&source.id).ok_or_else(|| {
                        missing(format!("region {} is to be absorbed and is not here", source.id))
                    })?;
                    absorb(&mut txn, source.id, &state);
                    self.slots.remove(&source.id);
                    batch.absorbed.push(source.id);
                }
                if let Some((child, state)) = change(&mut txn, changed)? {
                    born.push((child.id, state));
                    self.slots.insert(child.id, child.slots.unwrap_or(SlotRange::ALL));
                }
                if !planted::is(Bug::SlotsOfTheTurn) {
                    slots = changed.region.slots.unwrap_or(SlotRange::ALL);
                }
                watch.changed(region, changed, entry.token);
                batch.descriptors.push(changed.region.clone());
                batch.descriptors.extend(changed.split_off.clone());
                self.slots.insert(region, changed.region.slots.unwrap_or(SlotRange::ALL));
            }
            let state = txn.state_mut();
            state.applied_index = entry.index;
            state.applied_term = entry.term;
        }
        let (mut writes, state) = txn.finish();
        if planted::is(Bug::RowDiffers) && self.store == 1 && state.applied_index % 4 == 0 {
            spoil(&mut writes);
        }
        match batch.writes.is_empty() {
            true => batch.writes = writes,
            false => {
                batch.writes.ranges_deleted.extend(writes.ranges_deleted);
                batch.writes.rows.extend(writes.rows);
            }
        }
        for (region, state) in std::iter::once((region, state)).chain(born) {
            self.states.insert(region, state.clone());
            batch.states.push((region, state));
        }
        Ok(replies_of)
    }

    /// Returns the effects of a batch in the order in which they must be carried out.
    fn effects_of<C>(&self, batch: Batch<C>) -> Vec<ApplyEffect<C>> {
        let mut effects = vec![ApplyEffect::Write(batch.writes)];
        let mut here = batch.descriptors;
        here.retain(|descriptor| descriptor.has_peer_on(self.store));
        if !here.is_empty() {
            effects.push(ApplyEffect::Describe(here));
        }
        effects.extend(batch.absorbed.into_iter().map(|region| ApplyEffect::Absorbed { region }));
        let applied = batch.states.iter().map(|(region, state)| (*region, state.applied_index)).collect();
        effects.extend(batch.states.into_iter().map(|(region, state)| ApplyEffect::State { region, state }));
        let check = |(region, index, number)| ApplyEffect::Check { region, index, number };
        effects.extend(batch.checks.into_iter().map(check));
        effects.push(ApplyEffect::Applied(applied));
        let answers = batch.answers.into_iter().flat_map(|(waiting, replies)| waiting.answers(replies));
        effects.extend(answers.map(|(client, outcome)| ApplyEffect::Answer { client, outcome }));
        if planted::is(Bug::AnswerBeforeWrite) {
            effects.rotate_left(1);
        }
        effects
    }
}

/// A local failure, or rows that violate an invariant. It must never become a reply.
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

/// Takes over a region's keys. Their rows stay where they are, and the rows about the region itself
/// are deleted.
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
        let left = storage::count_keys(txn, changed.region.slots.unwrap_or(SlotRange::ALL))?;
        txn.state_mut().recount(&left);
        return Ok(None);
    }
    let counts = storage::count_keys(txn, child.slots.unwrap_or(SlotRange::ALL))?;
    let state = txn.state_mut().split_off(&counts);
    txn.put(region_state_row(child.id), state.encode());
    txn.put(region_descriptor_row(child.id), child.encode());
    Ok(Some((child.clone(), state)))
}

#[cfg(test)]
mod tests;
