//! The overlay in which the commands of a log entry execute. Each command sees the writes of those
//! before it, and all writes together form one write set.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::rc::Rc;

use bytes::Bytes;
use types::{RegionId, Thresholds};

use crate::content::{Content, Stored, Unencoded};
use crate::failpoints::Failpoint;
use crate::held::{Held, HeldLimit};
use crate::merge::merge;
use crate::meta::{self, COLLECTION_END};
use crate::packed::{self, is_packed, Changed, PackedKey, PACKED};
use crate::record::{Mark, Publication, Publications, Record};
use crate::rows::{region_state_row, watched_key_range};
use crate::state::{DbCounts, RegionState};
use crate::{Meta, Reader, Result, StorageError, Value, Visit};

/// The changes of an apply batch. An engine applies it atomically: it deletes the ranges first,
/// then writes the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSet {
    /// Ranges `from..to`.
    pub ranges_deleted: Vec<(Bytes, Bytes)>,
    /// The written rows, ascending and without duplicates. `None` deletes a row.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.ranges_deleted.is_empty() && self.rows.is_empty()
    }
}

/// Numbers of keys that commands have looked up or met, for the store's statistics. They do not
/// influence the execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Keys that existed when they were looked up for reading.
    pub hits: u64,
    /// Keys that did not exist when they were looked up for reading.
    pub misses: u64,
    /// Keys that were deleted because their time had come.
    pub expired: u64,
}

impl KeyCounts {
    pub fn is_empty(self) -> bool {
        self == KeyCounts::default()
    }
}

impl std::ops::AddAssign for KeyCounts {
    fn add_assign(&mut self, other: KeyCounts) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.expired += other.expired;
    }
}

/// The rows of one region as a batch of commands sees them.
///
/// Writes are held in a sorted map, because commands read collections back by range within a batch.
/// At the size of a batch, a look-up in it costs less than copying a value.
pub struct Txn<'a> {
    reader: &'a dyn Reader,
    region: RegionId,
    /// The region's state, or `None` in a read, which loads it in the rare case of need.
    state: Option<RegionState>,
    rows: BTreeMap<Bytes, Content>,
    /// The number of rows whose values are taken out.
    taken: usize,
    ranges_deleted: Vec<(Bytes, Bytes)>,
    /// The changes of keys, if they are asked for.
    record: Option<Box<Record>>,
    /// The messages that scripts have published.
    publications: Publications,
    counts: KeyCounts,
    /// True if look-ups of keys are counted as those of reads.
    counts_lookups: bool,
    /// True if look-ups do not end the idle times of the rows.
    peeks: bool,
    /// The record of the writes that may be undone.
    undo: Option<Undo>,
    /// True if new collections are packed.
    packs: bool,
    thresholds: Thresholds,
    /// True if the thresholds bound the layout of packed collections.
    bounds_layouts: bool,
    /// The failure of a read that a write needed. The command fails with it.
    failed: Option<StorageError>,
    /// In a read, the meta row of the packed collection that was found last, and its value.
    found: RefCell<Option<(Bytes, Bytes)>>,
    held: Held<'a>,
    /// The elements that are left for the next random removals of the entry.
    spares: Spares,
}

/// Names of elements of one collection.
#[derive(Default)]
struct Spares {
    /// The meta row of the collection's key.
    key: Bytes,
    generation: u64,
    names: Vec<Bytes>,
}

/// The place of a packed collection's rows.
enum Home {
    /// The meta row, if it exists already.
    Meta(Option<Bytes>),
    /// Rows of their own, because they had become too large together or exceeded a threshold.
    OwnRows,
}

/// The contents that undo the writes since a moment.
struct Undo {
    state: RegionState,
    /// The number of deleted ranges at that moment.
    ranges: usize,
    /// The end of the record of changed keys at that moment.
    recorded: Option<Mark>,
    /// The end of the publications at that moment.
    publications: (usize, usize, usize),
    counts: KeyCounts,
    held: u64,
    /// Rows of the batch with their contents at that moment. `None` stands for a row that the batch
    /// had not written.
    rows: BTreeMap<Bytes, Option<Content>>,
}

impl<'a> Txn<'a> {
    /// Starts a batch over `reader`. `state` must be the region's state as of `reader`.
    pub fn new(reader: &'a dyn Reader, region: RegionId, state: RegionState) -> Txn<'a> {
        let (rows, ranges_deleted) = (BTreeMap::new(), Vec::new());
        Txn {
            reader,
            region,
            state: Some(state),
            rows,
            taken: 0,
            ranges_deleted,
            record: None,
            publications: Publications::default(),
            counts: KeyCounts::default(),
            counts_lookups: false,
            peeks: false,
            undo: None,
            packs: false,
            thresholds: Thresholds::default(),
            bounds_layouts: false,
            failed: None,
            found: RefCell::default(),
            held: Held::default(),
            spares: Spares::default(),
        }
    }

    /// Starts a batch with the state stored in the rows. A region without a state row is new.
    pub fn begin(reader: &'a dyn Reader, region: RegionId) -> Result<Txn<'a>> {
        Ok(Txn::new(reader, region, load_state(reader, region)?))
    }

    /// Creates an overlay for reads only. Writing to it panics.
    pub fn read_only(reader: &'a dyn Reader, region: RegionId) -> Txn<'a> {
        Txn {
            reader,
            region,
            state: None,
            rows: BTreeMap::new(),
            taken: 0,
            ranges_deleted: Vec::new(),
            record: None,
            publications: Publications::default(),
            counts: KeyCounts::default(),
            counts_lookups: false,
            peeks: false,
            undo: None,
            packs: false,
            thresholds: Thresholds::default(),
            bounds_layouts: false,
            failed: None,
            found: RefCell::default(),
            held: Held::default(),
            spares: Spares::default(),
        }
    }

    /// Sets whether the collections that are created from now on are packed.
    pub fn set_packing(&mut self, packs: bool) {
        self.packs = packs;
    }

    /// Sets the thresholds for the commands from now on: those of their entry, or in a read those
    /// that this store knows.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        if Failpoint::FirstThresholds.is_on() && !self.rows.is_empty() {
            return;
        }
        if self.thresholds != thresholds {
            self.thresholds = thresholds;
            self.bounds_layouts = thresholds.bound_layouts();
        }
    }

    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Returns true if the thresholds bound the layout of packed collections. A command that
    /// changes elements of a collection, but not their number, then also writes the meta row.
    pub fn bounds_layouts(&self) -> bool {
        self.bounds_layouts
    }

    /// Sets how much may be held. The default is the limit of an entry.
    pub fn set_held_limit(&mut self, limit: HeldLimit<'a>) {
        self.held.limit = limit;
    }

    /// Returns the bytes that are held now.
    pub fn held(&self) -> u64 {
        self.held.bytes()
    }

    /// Sets the bytes that are held: those of an earlier moment, if everything since is dropped, or
    /// none at the beginning of an entry.
    pub fn hold_only(&self, held: u64) {
        self.held.set(held);
    }

    /// Counts bytes that a command holds until the end of its entry. Returns false if that is too
    /// much. Then the command must end without writing anything.
    pub fn hold(&self, bytes: u64) -> bool {
        self.held.add(bytes)
    }

    /// Returns true if that many bytes more can be held.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.held.has_room(bytes)
    }

    /// Returns the maximum of the bytes that are held.
    pub fn held_max(&self) -> u64 {
        self.held.limit.bytes
    }

    /// Returns the limit if more is held.
    pub fn holds_too_much(&self) -> Option<u64> {
        self.held.is_too_much().then_some(self.held.limit.bytes)
    }

    /// Returns the generation of a new collection.
    pub fn new_collection(&mut self) -> u64 {
        let generation = self.state_mut().take_generation();
        if self.packs {
            generation | PACKED
        } else {
            generation
        }
    }

    /// Returns the failure of a read that a write needed.
    pub fn take_failure(&mut self) -> Option<StorageError> {
        if self.taken > 0 && self.failed.is_none() {
            self.fail(StorageError::Corrupt("a command has not written a row that it took".into()));
        }
        self.failed.take()
    }

    /// Begins a record of the changes of keys.
    pub fn begin_record(&mut self) {
        self.record = Some(Box::default());
    }

    /// Returns the record of the changes of keys, if one was begun.
    pub fn record_mut(&mut self) -> Option<&mut Record> {
        self.record.as_deref_mut()
    }

    /// Begins an entry. Of what influences execution, only rows and the region's state pass from
    /// one entry to the next, because other replicas may execute entries in other batches.
    pub fn begin_entry(&mut self) {
        self.hold_only(0);
        self.spares.names.clear();
    }

    /// Leaves elements of a collection for later random removals of the same entry, in place of
    /// those that were left before. `key` is the meta row of the collection's key.
    pub fn leave_spares(&mut self, key: &Bytes, generation: u64, names: Vec<Bytes>) {
        self.spares = Spares { key: key.clone(), generation, names };
    }

    /// Takes one of the elements that were left for this collection. It may have been removed
    /// since.
    pub fn take_spare(&mut self, key: &Bytes, generation: u64) -> Option<Bytes> {
        // Regions that were one give out the same generations, and may be merged again.
        match self.spares.generation == generation && self.spares.key == *key {
            true => self.spares.names.pop(),
            false => None,
        }
    }

    /// Begins an item of an entry in the record of the changes of keys, if one was begun.
    pub fn begin_item(&mut self) {
        if let Some(record) = self.record.as_deref_mut() {
            record.begin_item();
        }
    }

    pub fn take_record(&mut self) -> Option<Record> {
        self.record.take().map(|record| *record)
    }

    /// Adds a message that is published when the batch takes effect. It changes no row. If there
    /// are too many, it is dropped and counted.
    pub fn publish(&mut self, publication: Publication) {
        self.publications.push(publication);
    }

    /// Returns the messages that were added since this was last called.
    pub fn take_publications(&mut self) -> Publications {
        self.publications.take()
    }

    /// Sets whether the look-ups that follow are counted as those of reads. Returns the value
    /// before.
    pub fn count_lookups(&mut self, counts: bool) -> bool {
        std::mem::replace(&mut self.counts_lookups, counts)
    }

    /// Sets whether the look-ups that follow leave the idle times of the rows as they are. Returns
    /// the value before.
    pub fn set_peeks(&mut self, peeks: bool) -> bool {
        std::mem::replace(&mut self.peeks, peeks)
    }

    /// Returns the seconds since the last use of a row. They are 0 in a write: its result must not
    /// depend on the store.
    pub fn idle_time(&self, row: &[u8]) -> u32 {
        match self.state {
            None => self.reader.idle_time(row).unwrap_or(0),
            Some(_) => 0,
        }
    }

    /// Counts a look-up of a key.
    pub fn looked_up(&mut self, exists: bool) {
        if self.counts_lookups {
            match exists {
                true => self.counts.hits += 1,
                false => self.counts.misses += 1,
            }
        }
    }

    /// Counts a key that was deleted because its time had come.
    pub fn expired(&mut self) {
        self.counts.expired += 1;
    }

    /// Returns the numbers of keys since this was last called.
    pub fn take_counts(&mut self) -> KeyCounts {
        std::mem::take(&mut self.counts)
    }

    pub fn region(&self) -> RegionId {
        self.region
    }

    pub fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        let Some(key) = PackedKey::of(row) else {
            let value = self.get_row(row)?;
            self.remember(row, value.as_ref());
            return Ok(value);
        };
        match self.home_of(&key)? {
            Home::Meta(meta) => meta.map_or(Ok(None), |meta| packed::get(&meta, &key)),
            Home::OwnRows => self.get_row(&key.own_row()),
        }
    }

    /// Same as [`get`](Txn::get), but a value that this batch wrote unencoded is returned as it is.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn get_stored(&self, row: &[u8]) -> Result<Option<Stored>> {
        let own_row;
        let row = match PackedKey::of(row) {
            None => row,
            Some(key) => match self.home_of(&key)? {
                Home::Meta(meta) => {
                    let value = meta.map_or(Ok(None), |meta| packed::get(&meta, &key))?;
                    return Ok(value.map(Stored::Encoded));
                }
                Home::OwnRows => {
                    own_row = key.own_row();
                    &own_row
                }
            },
        };
        match self.rows.get(row) {
            Some(written) => Ok(written.stored()),
            None => Ok(self.get_below(row)?.map(Stored::Encoded)),
        }
    }

    /// Same as [`get_stored`](Txn::get_stored), for a row that the command then writes. An
    /// unencoded value is taken out of the batch, so that it can be changed without a copy. If the
    /// command does not write the row, it fails, and the batch with it.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn take_stored(&mut self, row: &[u8]) -> Result<Option<Stored>> {
        match self.take_unencoded(row) {
            Some(value) => Ok(Some(Stored::Unencoded(value))),
            None => self.get_stored(row),
        }
    }

    /// Takes the value that this batch wrote unencoded out of it, in order to change it, as
    /// [`take_stored`](Txn::take_stored) does. Returns `None` if there is no such value, or if the
    /// write may be undone and would need it.
    pub fn take_unencoded(&mut self, row: &[u8]) -> Option<Rc<dyn Unencoded>> {
        if self.undo.as_ref().is_some_and(|undo| !undo.rows.contains_key(row)) {
            return None;
        }
        let value = self.rows.get_mut(row)?.take()?;
        self.taken += 1;
        Some(value)
    }

    /// Returns the value of a row if it is in memory. Not for rows of packed collections.
    pub fn look(&self, row: &[u8]) -> Option<Bytes> {
        match self.rows.get(row) {
            Some(written) => written.value().clone(),
            None => self.reader.look(row),
        }
    }

    /// Returns true if [`touch`](Txn::touch) pays.
    pub fn is_worth_touching(&self) -> bool {
        self.reader.is_worth_touching()
    }

    /// Hints that these rows are about to be read, or written.
    pub fn touch(&self, rows: &[&[u8]]) {
        self.reader.touch(rows);
    }

    fn get_row(&self, row: &[u8]) -> Result<Option<Bytes>> {
        if let Some(written) = self.rows.get(row) {
            return Ok(written.value().clone());
        }
        self.get_below(row)
    }

    /// Returns the value of a row that this batch has not written.
    fn get_below(&self, row: &[u8]) -> Result<Option<Bytes>> {
        if self.is_range_deleted(row) {
            return Ok(None);
        }
        match self.peeks {
            true => self.reader.peek(row),
            false => self.reader.get(row),
        }
    }

    /// Same as [`get`](Txn::get), for a row that did not exist before this batch.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn get_new(&self, row: &[u8]) -> Result<Option<Bytes>> {
        match PackedKey::of(row) {
            Some(_) => self.get(row),
            None => Ok(self.rows.get(row).and_then(|written| written.value().clone())),
        }
    }

    /// Remembers the meta row of a packed collection, so that a read looks it up once.
    fn remember(&self, row: &[u8], value: Option<&Bytes>) {
        if self.state.is_none() {
            if let Some(value) = value.filter(|value| meta::generation_of(value).is_some_and(is_packed)) {
                *self.found.borrow_mut() = Some((Bytes::copy_from_slice(row), value.clone()));
            }
        }
    }

    /// Returns the place of a packed collection's rows.
    fn home_of(&self, key: &PackedKey<'_>) -> Result<Home> {
        let found =
            self.found.borrow().as_ref().filter(|(row, _)| key.is_of(row)).map(|(_, meta)| meta.clone());
        let meta = match found {
            Some(meta) => Some(meta),
            None => self.get_row(&key.meta_row())?,
        };
        match meta.as_deref().map(meta::generation_of) {
            Some(found) if found != Some(key.generation()) => Ok(Home::OwnRows),
            _ => Ok(Home::Meta(meta)),
        }
    }

    /// Returns the bytes of the rows in the meta row of a packed collection, or `None` if it has
    /// rows of its own.
    pub fn packed_bytes(&self, meta_row: &[u8], generation: u64) -> Result<Option<usize>> {
        if !is_packed(generation) {
            return Ok(None);
        }
        let meta = self.get_row(meta_row)?;
        let meta = meta.filter(|meta| meta::generation_of(meta) == Some(generation));
        meta.map(|meta| packed::bytes_in(&meta)).transpose()
    }

    /// Visits the rows in `from..to` in ascending order, including this batch's writes. The rows of
    /// a packed collection are visited only by a range of one generation.
    pub fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let Some(key) = PackedKey::of(from) else { return self.scan_rows(from, to, visit) };
        match self.home_of(&key)? {
            Home::Meta(meta) => meta.map_or(Ok(()), |meta| packed::scan(&meta, &key, to, visit)),
            Home::OwnRows => self.scan_rows(&key.own_row(), &key.own_end(to), visit),
        }
    }

    fn scan_rows(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let written = self.rows.range::<[u8], _>(bounds).map(|(row, written)| (row, written.value()));
        let is_all_deleted = self.ranges_deleted.iter().any(|(f, t)| f[..] <= *from && *to <= t[..]);
        let below = |visit: &mut Visit<'_>| match is_all_deleted {
            true => Ok(()),
            false => self.reader.scan(from, to, visit),
        };
        merge(written, |row| self.is_range_deleted(row), below, visit)
    }

    pub fn put(&mut self, row: Bytes, value: Bytes) {
        self.write(row, Some(value));
    }

    /// Same as [`put`](Txn::put), for a value that is encoded when it is needed.
    pub fn put_unencoded(&mut self, row: Bytes, value: Rc<dyn Unencoded>) {
        let Some(key) = PackedKey::of(&row) else {
            return self.write_content(row, Content::unencoded(value));
        };
        match self.home_of(&key) {
            Ok(Home::OwnRows) => self.write_content(key.own_row(), Content::unencoded(value)),
            home => self.write_packed(&key, home, Some(value.encode())),
        }
    }

    /// Writes a collection's meta row. The rows in it stay, unless they exceed a threshold.
    pub fn put_collection(&mut self, row: Bytes, meta: &Meta) {
        let encoded = meta.encode();
        let Some(generation) = meta::generation_of(&encoded).filter(|of| is_packed(*of)) else {
            return self.write_row(row, Some(encoded));
        };
        let written = match self.get_row(&row) {
            Ok(Some(old)) if meta::generation_of(&old) == Some(generation) => {
                let whole: Bytes = [&encoded[..], &old[COLLECTION_END..]].concat().into();
                if self.bounds_layouts {
                    return self.put_bounded(row, whole, (generation, &meta.value));
                }
                whole
            }
            // The collection has got rows of its own.
            Ok(_) => meta::with_generation(&encoded, generation & !PACKED),
            Err(error) => return self.fail(error),
        };
        self.write_row(row, Some(written));
    }

    /// Writes the meta row of a packed collection, or rows of its own if it exceeds a threshold.
    fn put_bounded(&mut self, row: Bytes, whole: Bytes, (generation, value): (u64, &Value)) {
        let unpacked = match packed::is_within(&self.thresholds, value, &whole) {
            Ok(true) => return self.write_row(row, Some(whole)),
            Ok(false) => packed::unpacked(&row, &whole, generation),
            Err(error) => Err(error),
        };
        match unpacked {
            Ok((meta, rows)) => {
                self.write_row(row, Some(meta));
                rows.into_iter().for_each(|(row, value)| self.write_row(row, Some(value)));
            }
            Err(error) => self.fail(error),
        }
    }

    pub fn delete(&mut self, row: Bytes) {
        self.write(row, None);
    }

    /// Deletes every row in `from..to`, including those that this batch has written.
    pub fn delete_range(&mut self, from: Bytes, to: Bytes) {
        assert!(self.state.is_some(), "a read does not write");
        if from >= to {
            return;
        }
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let written: Vec<Bytes> = self.rows.range::<[u8], _>(bounds).map(|(row, _)| row.clone()).collect();
        for row in written {
            let old = self.rows.remove(&row);
            self.note_old(row, old);
        }
        if !self.ranges_deleted.contains(&(from.clone(), to.clone())) {
            self.ranges_deleted.push((from, to));
        }
    }

    /// Returns the counts of a database. Also works in a read.
    pub fn counts(&self, db: u16) -> Result<DbCounts> {
        match &self.state {
            Some(state) => Ok(state.counts(db)),
            None => Ok(load_state(self.reader, self.region)?.counts(db)),
        }
    }

    /// Returns the region's state.
    ///
    /// # Panics
    /// In a read.
    pub fn state(&self) -> &RegionState {
        self.state.as_ref().expect("a read has no state of its own")
    }

    /// Returns the region's state for modification.
    ///
    /// # Panics
    /// In a read.
    pub fn state_mut(&mut self) -> &mut RegionState {
        self.state.as_mut().expect("a read does not write")
    }

    /// Returns the write set of the batch, which includes the region's state, and that state for
    /// the next batch.
    pub fn finish(mut self) -> (WriteSet, RegionState) {
        debug_assert_eq!((&self.failed, self.taken), (&None, 0), "a command has failed");
        let state = self.state.take().expect("a read does not write");
        self.rows.insert(region_state_row(self.region), Content::Encoded(Some(state.encode())));
        let rows = self.rows.into_iter().map(|(row, written)| (row, written.into_value())).collect();
        (WriteSet { ranges_deleted: self.ranges_deleted, rows }, state)
    }

    /// Writes a row of a generation that no meta row names, which changes no key.
    pub fn put_unseen(&mut self, row: Bytes, value: Bytes) {
        assert!(self.state.is_some(), "a read does not write");
        self.insert(row, Content::Encoded(Some(value)));
    }

    /// Deletes a row of a dead generation, which changes no key.
    pub fn delete_garbage(&mut self, row: Bytes) {
        assert!(self.state.is_some(), "a read does not write");
        self.insert(row, Content::Encoded(None));
    }

    /// Begins to record writes, so that they can be undone.
    pub fn begin_undo(&mut self) {
        let (state, ranges) = (self.state().clone(), self.ranges_deleted.len());
        let recorded = self.record.as_ref().map(|record| record.mark());
        let (publications, counts) = (self.publications.end(), self.counts);
        let (held, rows) = (self.held.bytes(), BTreeMap::new());
        self.undo = Some(Undo { state, ranges, recorded, publications, counts, held, rows });
        // Writes that are undone must not influence others.
        self.spares.names.clear();
    }

    /// Ends the record of writes, and undoes them if `undoes` is true.
    pub fn end_undo(&mut self, undoes: bool) {
        self.spares.names.clear();
        let Some(undo) = self.undo.take().filter(|_| undoes) else { return };
        for (row, old) in undo.rows {
            match old {
                Some(content) => self.rows.insert(row, content),
                None => self.rows.remove(&row),
            };
        }
        self.ranges_deleted.truncate(undo.ranges);
        if let (Some(record), Some(mark)) = (&mut self.record, undo.recorded) {
            record.back_to(mark);
        }
        self.publications.back_to(undo.publications);
        self.counts = undo.counts;
        self.held.set(undo.held);
        self.state = Some(undo.state);
    }

    /// Returns true if commands in this batch must not take long. See [`Reader::is_hasty`].
    pub fn is_hasty(&self) -> bool {
        self.reader.is_hasty()
    }

    fn insert(&mut self, row: Bytes, content: Content) {
        let noted = self.undo.is_some().then(|| row.clone());
        let old = self.rows.insert(row, content);
        if let Some(Content::Taken) = old {
            self.taken -= 1;
        } else if let Some(row) = noted {
            self.note_old(row, old);
        }
    }

    fn note_old(&mut self, row: Bytes, old: Option<Content>) {
        if let Some(undo) = &mut self.undo {
            undo.rows.entry(row).or_insert(old);
        }
    }

    /// Ends the watches of all keys that exist. A watched key without rows stays watched.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn end_watches_of_keys(&mut self) -> Result<()> {
        for key in self.state().watches.keys().collect::<Vec<_>>() {
            let (from, to) = watched_key_range(key);
            let mut exists = false;
            self.scan(&from, &to, &mut |_, _| {
                exists = true;
                ControlFlow::Break(())
            })?;
            if exists {
                self.state_mut().watches.key_changes(key);
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: StorageError) {
        self.failed.get_or_insert(error);
    }

    fn write(&mut self, row: Bytes, value: Option<Bytes>) {
        match PackedKey::of(&row) {
            Some(key) => self.write_packed(&key, self.home_of(&key), value),
            None => self.write_row(row, value),
        }
    }

    fn write_packed(&mut self, key: &PackedKey<'_>, home: Result<Home>, value: Option<Bytes>) {
        let changed = match home {
            Ok(Home::OwnRows) => return self.write_row(key.own_row(), value),
            Ok(Home::Meta(None)) if value.is_none() => return,
            Ok(Home::Meta(meta)) => packed::change(meta, key, value.as_ref()),
            Err(error) => Err(error),
        };
        match changed {
            Ok(Changed::Meta(meta)) => self.write_row(key.meta_row(), Some(meta)),
            Ok(Changed::Unpacked(meta, rows)) => {
                self.write_row(key.meta_row(), Some(meta));
                rows.into_iter().for_each(|(row, value)| self.write_row(row, Some(value)));
            }
            Err(error) => self.fail(error),
        }
    }

    fn write_row(&mut self, row: Bytes, value: Option<Bytes>) {
        self.write_content(row, Content::Encoded(value));
    }

    fn write_content(&mut self, row: Bytes, content: Content) {
        let state = self.state.as_mut().expect("a read does not write");
        if !state.watches.is_empty() {
            state.watches.row_changes(&row);
        }
        self.insert(row, content);
    }

    fn is_range_deleted(&self, row: &[u8]) -> bool {
        self.ranges_deleted.iter().any(|(from, to)| from[..] <= *row && *row < to[..])
    }
}

impl Reader for Txn<'_> {
    fn get(&self, row: &[u8]) -> Result<Option<Bytes>> {
        Txn::get(self, row)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        Txn::scan(self, from, to, visit)
    }

    fn is_hasty(&self) -> bool {
        Txn::is_hasty(self)
    }
}

/// Returns the state stored in a region's rows, or the default for a region that has applied
/// nothing.
pub fn load_state(reader: &dyn Reader, region: RegionId) -> Result<RegionState> {
    match reader.get(&region_state_row(region))? {
        Some(row) => RegionState::decode(&row),
        None => Ok(RegionState::default()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MemoryKeyspace;

    #[derive(Clone, Debug)]
    enum Op {
        Put(u8, u8),
        Delete(u8),
        DeleteRange(u8, u8),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0..32u8, any::<u8>()).prop_map(|(row, value)| Op::Put(row, value)),
            2 => (0..32u8).prop_map(Op::Delete),
            1 => (0..32u8, 0..33u8).prop_map(|(from, to)| Op::DeleteRange(from, to)),
        ];
        proptest::collection::vec(op, 0..40)
    }

    fn row(n: u8) -> Bytes {
        Bytes::copy_from_slice(&[b'd', n])
    }

    /// Replicas batch entries differently, and not all of them undo the same attempts of scripts.
    #[test]
    fn what_a_removal_leaves_ends_with_the_entry_and_with_undone_writes() {
        let engine = MemoryKeyspace::default();
        let mut txn = Txn::begin(&engine, 1).unwrap();
        let (key, other, a) = (row(1), row(2), Bytes::from_static(b"a"));
        let leave = |txn: &mut Txn<'_>| txn.leave_spares(&key, 7, vec![a.clone()]);
        leave(&mut txn);
        assert_eq!((txn.take_spare(&other, 7), txn.take_spare(&key, 8)), (None, None));
        assert_eq!((txn.take_spare(&key, 7), txn.take_spare(&key, 7)), (Some(a.clone()), None));
        leave(&mut txn);
        txn.begin_entry();
        assert_eq!(txn.take_spare(&key, 7), None);
        for undoes in [true, false] {
            leave(&mut txn);
            txn.begin_undo();
            assert_eq!(txn.take_spare(&key, 7), None);
            leave(&mut txn);
            txn.end_undo(undoes);
            assert_eq!(txn.take_spare(&key, 7), None);
        }
    }

    fn read_all(reader: &dyn Reader, from: u8, to: u8, limit: usize) -> Vec<(u8, u8)> {
        let mut seen = Vec::new();
        let (from, to) = (row(from), row(to));
        reader
            .scan(&from, &to, &mut |row, value| {
                seen.push((row[1], value[0]));
                if seen.len() == limit {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        seen
    }

    proptest! {
        #[test]
        fn a_batch_reads_its_own_writes_and_leaves_them_in_the_engine(
            before in ops(), inside in ops(), from in 0..33u8, to in 0..33u8, limit in 1..20usize
        ) {
            let mut model = BTreeMap::new();
            let mut engine = MemoryKeyspace::default();
            for batch in [before, inside] {
                let mut txn = Txn::begin(&engine, 1).unwrap();
                for op in batch {
                    match op {
                        Op::Put(r, value) => {
                            txn.put(row(r), Bytes::copy_from_slice(&[value]));
                            model.insert(r, value);
                        }
                        Op::Delete(r) => {
                            txn.delete(row(r));
                            model.remove(&r);
                        }
                        Op::DeleteRange(a, b) => {
                            txn.delete_range(row(a), row(b));
                            model.retain(|r, _| !(a <= *r && *r < b));
                        }
                    }
                    let expected: Vec<(u8, u8)> = model
                        .iter()
                        .filter(|(r, _)| from <= **r && **r < to)
                        .map(|(r, value)| (*r, *value))
                        .take(limit)
                        .collect();
                    prop_assert_eq!(read_all(&txn, from, to, limit), expected);
                    for r in 0..32 {
                        let got = txn.get(&row(r)).unwrap().map(|value| value[0]);
                        prop_assert_eq!(got, model.get(&r).copied());
                    }
                }
                let (writes, _) = txn.finish();
                engine.write(writes);
                let all: Vec<(u8, u8)> = model.iter().map(|(r, value)| (*r, *value)).collect();
                prop_assert_eq!(read_all(&engine, 0, 33, usize::MAX), all);
            }
        }
    }

    #[test]
    fn the_state_travels_with_the_rows() {
        let mut engine = MemoryKeyspace::default();
        let mut txn = Txn::begin(&engine, 5).unwrap();
        txn.state_mut().applied_index = 42;
        txn.state_mut().adjust(0, 1, 0);
        let (writes, state) = txn.finish();
        engine.write(writes);
        assert_eq!(load_state(&engine, 5).unwrap(), state);
        assert_eq!(Txn::read_only(&engine, 5).counts(0).unwrap().keys, 1);
        assert_eq!(load_state(&engine, 6).unwrap(), RegionState::default());
    }

    #[test]
    #[should_panic(expected = "a read does not write")]
    fn a_read_cannot_write() {
        let engine = MemoryKeyspace::default();
        Txn::read_only(&engine, 1).put(row(1), Bytes::new());
    }
}
