//! Consumer groups: their rows, their consumers, and their pending entries.
//!
//! ```text
//! group's row (a kind of rows of its own), in the stream's generation, by name:
//!     version u8 = 1 | generation u64 | last delivered ID, 16 bytes
//!     | entries read i64, -1: unknown | pending entries u64 | consumers u64
//!     | number of the next consumer u64
//!     | lower and upper bound of the pending entries' IDs, 16 bytes each
//! in the group's generation, by sub-key:
//! 1 | consumer's name                   version u8 = 1 | consumer's number u64
//! 2 | consumer's number u64             version u8 = 1 | seen ms u64 | pending entries u64 | name
//! 3 | entry's ID                        version u8 = 1 | delivered ms u64 | deliveries u64
//!                                       | consumer's number u64
//! 4 | consumer's number u64 | entry's ID    empty
//! ```
//!
//! The bounds hold for all pending entries, but there may be no entry at a bound. They let the
//! first and the last pending entry be found without a look at the rows of acknowledged ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use storage::rows::row_behind;
use storage::{KeyRef, StorageError, Stream, StreamId};

use super::entries::rows_of;
use crate::exec::{CommandResult, Exec, Key, HELD_ROW};

const VERSION: u8 = 1;
const GROUP_LEN: usize = 1 + 8 + StreamId::LEN + 4 * 8 + 2 * StreamId::LEN;
const PENDING_LEN: usize = 1 + 3 * 8;

/// The number of entries read if it is not known.
pub(super) const UNKNOWN: i64 = -1;

const NAMES: u8 = 1;
const CONSUMERS: u8 = 2;
const PENDING: u8 = 3;
const OF_CONSUMER: u8 = 4;

/// Maximum number of pending entries and consumers that are deleted together with their group.
const DELETED_AT_ONCE: u64 = 64;

fn corrupt(what: &str) -> StorageError {
    StorageError::Corrupt(format!("{what} of a stream cannot be read"))
}

fn get_id(bytes: &mut &[u8]) -> StreamId {
    StreamId { ms: bytes.get_u64(), seq: bytes.get_u64() }
}

/// The value of a group's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRow {
    pub generation: u64,
    /// The ID of the last entry that was delivered.
    pub last_id: StreamId,
    /// The number of entries that were read, or [`UNKNOWN`]. It wraps, as in Redis.
    pub entries_read: i64,
    /// Number of pending entries.
    pub pending: u64,
    pub consumers: u64,
    next_consumer: u64,
    /// Lower bound of the pending entries' IDs.
    low: StreamId,
    /// Upper bound of the pending entries' IDs.
    high: StreamId,
}

impl GroupRow {
    fn new(generation: u64, last_id: StreamId, entries_read: i64) -> GroupRow {
        GroupRow {
            generation,
            last_id,
            entries_read,
            pending: 0,
            consumers: 0,
            next_consumer: 0,
            low: StreamId::MIN,
            high: StreamId::MIN,
        }
    }

    /// Counts a new pending entry.
    fn count_pending(&mut self, id: StreamId) {
        (self.low, self.high) = match self.pending {
            0 => (id, id),
            _ => (self.low.min(id), self.high.max(id)),
        };
        self.pending += 1;
    }

    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(GROUP_LEN);
        out.put_u8(VERSION);
        out.put_u64(self.generation);
        out.put_slice(&self.last_id.to_bytes());
        out.put_i64(self.entries_read);
        out.put_u64(self.pending);
        out.put_u64(self.consumers);
        out.put_u64(self.next_consumer);
        out.put_slice(&self.low.to_bytes());
        out.put_slice(&self.high.to_bytes());
        out.freeze()
    }

    fn decode(mut value: &[u8]) -> Option<GroupRow> {
        if value.len() != GROUP_LEN || value.get_u8() != VERSION {
            return None;
        }
        Some(GroupRow {
            generation: value.get_u64(),
            last_id: get_id(&mut value),
            entries_read: value.get_i64(),
            pending: value.get_u64(),
            consumers: value.get_u64(),
            next_consumer: value.get_u64(),
            low: get_id(&mut value),
            high: get_id(&mut value),
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub name: Bytes,
    pub row: GroupRow,
}

impl Group {
    pub fn decode(name: Bytes, value: &[u8]) -> CommandResult<Group> {
        match GroupRow::decode(value) {
            Some(row) => Ok(Group { name, row }),
            None => Err(corrupt("a group").into()),
        }
    }
}

/// Returns the generation of the rows of the group with this row's value.
pub(crate) fn generation_of(value: &[u8]) -> CommandResult<u64> {
    Ok(GroupRow::decode(value).ok_or_else(|| corrupt("a group"))?.generation)
}

/// Returns the names and values of all groups' rows.
pub(super) fn all_rows(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    generation: u64,
) -> CommandResult<Vec<(Bytes, Bytes)>> {
    rows_of(exec, key.group_range(generation))
}

/// Returns all groups in the order of their names.
pub(crate) fn all(exec: &Exec<'_, '_>, key: &KeyRef<'_>, stream: &Stream) -> CommandResult<Vec<Group>> {
    if stream.groups == 0 {
        return Ok(Vec::new());
    }
    let rows = all_rows(exec, key, stream.generation)?;
    rows.into_iter().map(|(name, value)| Group::decode(name, &value)).collect()
}

pub(super) fn find(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &Stream,
    name: &Bytes,
) -> CommandResult<Option<Group>> {
    if stream.groups == 0 {
        return Ok(None);
    }
    let value = exec.txn.get(&key.group_row(stream.generation, name))?;
    value.map(|value| Group::decode(name.clone(), &value)).transpose()
}

/// Writes the row of a new group. The caller writes the meta row.
pub(super) fn create(
    exec: &mut Exec<'_, '_>,
    key: &KeyRef<'_>,
    stream: &mut Stream,
    name: &Bytes,
    (last_id, entries_read): (StreamId, i64),
) {
    let row = GroupRow::new(exec.txn.state_mut().take_generation(), last_id, entries_read);
    exec.put_element(key, key.group_row(stream.generation, name), None, row.encode());
    stream.groups += 1;
}

/// Deletes a group. The caller writes the meta row.
pub(super) fn destroy(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    stream: &mut Stream,
    group: &Group,
) -> CommandResult<()> {
    let GroupRow { generation, pending, consumers, .. } = group.row;
    if pending.saturating_add(consumers) > DELETED_AT_ONCE {
        exec.leave_generation(key, generation);
    } else {
        let mut changing = Changing::begin(key, stream, group.clone());
        for consumer in changing.rows().all_consumers(exec)? {
            changing.delete_consumer(exec, consumer.number)?;
        }
    }
    exec.delete_element(key, key.group_row(stream.generation, &group.name), GROUP_LEN);
    stream.groups = stream.groups.checked_sub(1).ok_or_else(|| corrupt("the number of groups"))?;
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consumer {
    pub number: u64,
    pub name: Bytes,
    /// The time at which the consumer was last active.
    pub seen_ms: u64,
    /// Number of pending entries.
    pub pending: u64,
}

impl Consumer {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(17 + self.name.len());
        out.put_u8(VERSION);
        out.put_u64(self.seen_ms);
        out.put_u64(self.pending);
        out.put_slice(&self.name);
        out.freeze()
    }

    fn decode(number: u64, value: &Bytes) -> Option<Consumer> {
        let mut head = value.get(..17)?;
        if head.get_u8() != VERSION {
            return None;
        }
        let (seen_ms, pending) = (head.get_u64(), head.get_u64());
        Some(Consumer { number, name: value.slice(17..), seen_ms, pending })
    }
}

/// A pending entry: one that was delivered, but not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub delivered_ms: u64,
    pub deliveries: u64,
    /// The number of the consumer that got it.
    pub consumer: u64,
}

impl Pending {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(PENDING_LEN);
        out.put_u8(VERSION);
        out.put_u64(self.delivered_ms);
        out.put_u64(self.deliveries);
        out.put_u64(self.consumer);
        out.freeze()
    }

    fn decode(mut value: &[u8]) -> Option<Pending> {
        if value.len() != PENDING_LEN || value.get_u8() != VERSION {
            return None;
        }
        let (delivered_ms, deliveries, consumer) = (value.get_u64(), value.get_u64(), value.get_u64());
        Some(Pending { delivered_ms, deliveries, consumer })
    }

    /// Returns the time since the last delivery, which may be negative.
    pub fn idle_ms(&self, now_ms: u64) -> i64 {
        (now_ms as i64).wrapping_sub(self.delivered_ms as i64)
    }
}

/// The rows of a group.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'k> {
    key: KeyRef<'k>,
    generation: u64,
    /// The bounds of the pending entries. Behind them are rows of acknowledged ones.
    bounds: (StreamId, StreamId),
}

impl<'k> Rows<'k> {
    pub fn new(key: &KeyRef<'k>, group: &Group) -> Rows<'k> {
        let GroupRow { generation, low, high, .. } = group.row;
        Rows { key: *key, generation, bounds: (low, high) }
    }

    fn row(&self, table: u8, parts: &[&[u8]]) -> Bytes {
        let mut subkey = BytesMut::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
        subkey.put_u8(table);
        parts.iter().for_each(|part| subkey.put_slice(part));
        self.key.element_row(self.generation, &subkey)
    }

    fn name_row(&self, name: &[u8]) -> Bytes {
        self.row(NAMES, &[name])
    }

    fn consumer_row(&self, number: u64) -> Bytes {
        self.row(CONSUMERS, &[&number.to_be_bytes()])
    }

    fn pending_row(&self, id: StreamId) -> Bytes {
        self.row(PENDING, &[&id.to_bytes()])
    }

    fn owned_row(&self, consumer: u64, id: StreamId) -> Bytes {
        self.row(OF_CONSUMER, &[&consumer.to_be_bytes(), &id.to_bytes()])
    }

    pub fn consumer(&self, exec: &Exec<'_, '_>, number: u64) -> CommandResult<Consumer> {
        let value = exec.txn.get(&self.consumer_row(number))?;
        let consumer = value.and_then(|value| Consumer::decode(number, &value));
        Ok(consumer.ok_or_else(|| corrupt("a consumer"))?)
    }

    pub fn find_consumer(&self, exec: &Exec<'_, '_>, name: &[u8]) -> CommandResult<Option<Consumer>> {
        let Some(value) = exec.txn.get(&self.name_row(name))? else { return Ok(None) };
        self.consumer(exec, number_in(&value)?).map(Some)
    }

    /// Returns all consumers in the order of their names.
    pub fn all_consumers(&self, exec: &Exec<'_, '_>) -> CommandResult<Vec<Consumer>> {
        let from = self.name_row(b"");
        let to = self.consumer_row(0);
        let mut numbers = Vec::new();
        exec.txn.scan(&from, &to, &mut |_, value| {
            numbers.push(number_in(value));
            exec.holding(4, 0)
        })?;
        exec.check_held()?;
        numbers.into_iter().map(|number| self.consumer(exec, number?)).collect()
    }

    pub fn pending(&self, exec: &Exec<'_, '_>, id: StreamId) -> CommandResult<Option<Pending>> {
        let Some(value) = exec.txn.get(&self.pending_row(id))? else { return Ok(None) };
        Ok(Some(Pending::decode(&value).ok_or_else(|| corrupt("a pending entry"))?))
    }

    /// Visits the pending entries of a range in the order of their IDs.
    pub fn visit_pending(
        &self,
        exec: &Exec<'_, '_>,
        (from, to): (StreamId, StreamId),
        visit: &mut dyn FnMut(StreamId, Pending) -> ControlFlow<()>,
    ) -> CommandResult<()> {
        let (from, to) = (from.max(self.bounds.0), to.min(self.bounds.1));
        if from > to {
            return Ok(());
        }
        let prefix = self.row(PENDING, &[]).len();
        let mut is_corrupt = false;
        self.visit_ids(exec, (self.pending_row(from), self.pending_row(to)), prefix, &mut |id, value| {
            match Pending::decode(value) {
                Some(pending) => visit(id, pending),
                None => {
                    is_corrupt = true;
                    ControlFlow::Break(())
                }
            }
        })?;
        match is_corrupt {
            true => Err(corrupt("a pending entry").into()),
            false => Ok(()),
        }
    }

    /// Visits the IDs of a consumer's pending entries of a range in order.
    pub fn visit_owned(
        &self,
        exec: &Exec<'_, '_>,
        consumer: u64,
        (from, to): (StreamId, StreamId),
        visit: &mut dyn FnMut(StreamId) -> ControlFlow<()>,
    ) -> CommandResult<()> {
        let (from, to) = (from.max(self.bounds.0), to.min(self.bounds.1));
        if from > to {
            return Ok(());
        }
        let prefix = self.row(OF_CONSUMER, &[&consumer.to_be_bytes()]).len();
        let rows = (self.owned_row(consumer, from), self.owned_row(consumer, to));
        self.visit_ids(exec, rows, prefix, &mut |id, _| visit(id))
    }

    /// Visits rows that end with IDs, the last one included.
    fn visit_ids(
        &self,
        exec: &Exec<'_, '_>,
        (from, last): (Bytes, Bytes),
        prefix: usize,
        visit: &mut dyn FnMut(StreamId, &[u8]) -> ControlFlow<()>,
    ) -> CommandResult<()> {
        let to = row_behind(&last);
        let mut is_corrupt = false;
        exec.txn.scan(
            &from,
            &to,
            &mut |row, value| match row.get(prefix..).and_then(|id| id.try_into().ok()) {
                Some(id) => visit(StreamId::from_bytes(id), value),
                None => {
                    is_corrupt = true;
                    ControlFlow::Break(())
                }
            },
        )?;
        match is_corrupt {
            true => Err(corrupt("a row of a group").into()),
            false => Ok(()),
        }
    }

    fn first_from(&self, exec: &Exec<'_, '_>, ids: (StreamId, StreamId)) -> CommandResult<Option<StreamId>> {
        let mut first = None;
        self.visit_pending(exec, ids, &mut |id, _| {
            first = Some(id);
            ControlFlow::Break(())
        })?;
        Ok(first)
    }
}

/// Returns the smallest and the largest ID of the pending entries.
///
/// The largest one is at the upper bound, unless entries were acknowledged out of order. Otherwise
/// it is found by bisection, because rows are read in ascending order only.
pub(super) fn pending_bounds(
    exec: &Exec<'_, '_>,
    key: &KeyRef<'_>,
    group: &Group,
) -> CommandResult<Option<(StreamId, StreamId)>> {
    if group.row.pending == 0 {
        return Ok(None);
    }
    let rows = Rows::new(key, group);
    let GroupRow { low, high, .. } = group.row;
    let first = rows.first_from(exec, (low, high))?.ok_or_else(|| corrupt("the pending entries"))?;
    if rows.pending(exec, high)?.is_some() {
        return Ok(Some((first, high)));
    }
    // There is an entry at `last`, and none behind `end`.
    let (mut last, mut end) = (first, high);
    while last < end {
        let middle = StreamId::of(last.number() + (end.number() - last.number()).div_ceil(2));
        match rows.first_from(exec, (middle, end))? {
            Some(found) => last = found,
            None => end = middle.previous().unwrap_or(last),
        }
    }
    Ok(Some((first, last)))
}

fn number_in(value: &[u8]) -> Result<u64, StorageError> {
    match value {
        [VERSION, number @ ..] if number.len() == 8 => {
            Ok(u64::from_be_bytes(number.try_into().expect("eight bytes")))
        }
        _ => Err(corrupt("a consumer's name")),
    }
}

/// Returns the value of the row of a consumer's name.
fn name_value(number: u64) -> Bytes {
    let mut value = BytesMut::with_capacity(9);
    value.put_u8(VERSION);
    value.put_u64(number);
    value.freeze()
}

/// A group during a write.
pub(super) struct Changing<'k> {
    key: &'k Key<'k>,
    generation: u64,
    pub group: Group,
    rows: Rows<'k>,
    /// Consumers that were read, and their contents before.
    consumers: BTreeMap<u64, (Consumer, Bytes)>,
    old: GroupRow,
}

impl<'k> Changing<'k> {
    pub fn begin(key: &'k Key<'k>, stream: &Stream, group: Group) -> Changing<'k> {
        let rows = Rows::new(key, &group);
        let old = group.row;
        Changing { key, generation: stream.generation, group, rows, consumers: BTreeMap::new(), old }
    }

    pub fn rows(&self) -> Rows<'k> {
        self.rows
    }

    /// Returns the number of a consumer, which is seen now.
    pub fn see(&mut self, exec: &mut Exec<'_, '_>, name: &Bytes) -> CommandResult<u64> {
        let now_ms = exec.now_ms;
        let Some(number) = self.find_consumer(exec, name)? else {
            return Ok(self.create_consumer(exec, name));
        };
        self.consumer(exec, number)?.seen_ms = now_ms;
        Ok(number)
    }

    pub fn find_consumer(&mut self, exec: &Exec<'_, '_>, name: &[u8]) -> CommandResult<Option<u64>> {
        exec.txn.get(&self.rows.name_row(name))?.map(|value| Ok(number_in(&value)?)).transpose()
    }

    /// Returns a consumer for modification.
    pub fn consumer(&mut self, exec: &Exec<'_, '_>, number: u64) -> CommandResult<&mut Consumer> {
        match self.consumers.entry(number) {
            std::collections::btree_map::Entry::Occupied(known) => Ok(&mut known.into_mut().0),
            std::collections::btree_map::Entry::Vacant(free) => {
                let consumer = self.rows.consumer(exec, number)?;
                let old = consumer.encode();
                Ok(&mut free.insert((consumer, old)).0)
            }
        }
    }

    /// Creates a consumer, which must not exist, and tells the event.
    pub fn create_consumer(&mut self, exec: &mut Exec<'_, '_>, name: &Bytes) -> u64 {
        let number = self.group.row.next_consumer;
        self.group.row.next_consumer += 1;
        self.group.row.consumers += 1;
        let consumer = Consumer { number, name: name.clone(), seen_ms: exec.now_ms, pending: 0 };
        exec.put_element(self.key, self.rows.name_row(name), None, name_value(number));
        let encoded = consumer.encode();
        exec.put_element(self.key, self.rows.consumer_row(number), None, encoded.clone());
        exec.tell(self.key, "xgroup-createconsumer");
        self.consumers.insert(number, (consumer, encoded));
        number
    }

    /// Deletes a consumer with its pending entries, and returns their number.
    pub fn delete_consumer(&mut self, exec: &mut Exec<'_, '_>, number: u64) -> CommandResult<u64> {
        let consumer = self.consumer(exec, number)?.clone();
        let mut ids = Vec::new();
        self.rows.visit_owned(exec, number, (StreamId::MIN, StreamId::MAX), &mut |id| {
            ids.push(id);
            exec.holding(2 * HELD_ROW, 0)
        })?;
        exec.check_held()?;
        for id in &ids {
            exec.delete_element(self.key, self.rows.pending_row(*id), PENDING_LEN);
            exec.delete_element(self.key, self.rows.owned_row(number, *id), 0);
        }
        let count = ids.len() as u64;
        self.group.row.pending =
            self.group.row.pending.checked_sub(count).ok_or_else(|| corrupt("the pending entries"))?;
        self.group.row.consumers =
            self.group.row.consumers.checked_sub(1).ok_or_else(|| corrupt("the number of consumers"))?;
        exec.delete_element(self.key, self.rows.name_row(&consumer.name), 9);
        let (_, old) = self.consumers.remove(&number).ok_or_else(|| corrupt("a consumer"))?;
        exec.delete_element(self.key, self.rows.consumer_row(number), old.len());
        Ok(count)
    }

    /// Returns the pending entry with an ID, if there is one.
    pub fn pending(&self, exec: &Exec<'_, '_>, id: StreamId) -> CommandResult<Option<Pending>> {
        match self.group.row.pending > 0 && (self.group.row.low..=self.group.row.high).contains(&id) {
            true => self.rows.pending(exec, id),
            false => Ok(None),
        }
    }

    /// Writes a pending entry in place of `old`.
    pub fn put_pending(
        &mut self,
        exec: &mut Exec<'_, '_>,
        id: StreamId,
        old: Option<Pending>,
        new: Pending,
    ) -> CommandResult<()> {
        if old.is_none_or(|old| old.consumer != new.consumer) {
            if let Some(old) = old {
                exec.delete_element(self.key, self.rows.owned_row(old.consumer, id), 0);
                self.lose_pending(exec, old.consumer)?;
            }
            exec.put_element(self.key, self.rows.owned_row(new.consumer, id), None, Bytes::new());
            self.consumer(exec, new.consumer)?.pending += 1;
        }
        if old.is_none() {
            self.group.row.count_pending(id);
        }
        let length = old.map(|_| PENDING_LEN);
        exec.put_element(self.key, self.rows.pending_row(id), length, new.encode());
        Ok(())
    }

    fn lose_pending(&mut self, exec: &Exec<'_, '_>, consumer: u64) -> CommandResult<()> {
        let consumer = self.consumer(exec, consumer)?;
        consumer.pending = consumer.pending.checked_sub(1).ok_or_else(|| corrupt("a consumer"))?;
        Ok(())
    }

    /// Deletes a pending entry.
    pub fn delete_pending(
        &mut self,
        exec: &mut Exec<'_, '_>,
        id: StreamId,
        pending: &Pending,
    ) -> CommandResult<()> {
        exec.delete_element(self.key, self.rows.pending_row(id), PENDING_LEN);
        exec.delete_element(self.key, self.rows.owned_row(pending.consumer, id), 0);
        self.lose_pending(exec, pending.consumer)?;
        let row = &mut self.group.row;
        row.pending = row.pending.checked_sub(1).ok_or_else(|| corrupt("the pending entries"))?;
        if id == row.low {
            row.low = id.next().unwrap_or(id);
        }
        if id == row.high {
            row.high = id.previous().unwrap_or(id);
        }
        Ok(())
    }

    /// Writes the rows of the group and the consumers that have changed.
    pub fn finish(self, exec: &mut Exec<'_, '_>) {
        for (number, (consumer, old)) in self.consumers {
            let value = consumer.encode();
            if value != old {
                exec.put_element(self.key, self.rows.consumer_row(number), Some(old.len()), value);
            }
        }
        if self.group.row != self.old {
            let row = self.key.group_row(self.generation, &self.group.name);
            exec.put_element(self.key, row, Some(GROUP_LEN), self.group.row.encode());
        }
    }
}

/// A group that is written from a payload: its consumers in order, each with its pending entries.
pub(super) struct Restoring<'k> {
    key: &'k Key<'k>,
    group: Group,
    rows: Rows<'k>,
    consumer: Option<Consumer>,
}

impl<'k> Restoring<'k> {
    pub fn begin(
        exec: &mut Exec<'_, '_>,
        key: &'k Key<'k>,
        name: Bytes,
        (last_id, entries_read): (StreamId, i64),
    ) -> Restoring<'k> {
        let generation = exec.txn.state_mut().take_generation();
        let group = Group { name, row: GroupRow::new(generation, last_id, entries_read) };
        let rows = Rows::new(key, &group);
        Restoring { key, group, rows, consumer: None }
    }

    fn finish_consumer(&mut self, exec: &mut Exec<'_, '_>) {
        if let Some(consumer) = self.consumer.take() {
            let row = self.rows.consumer_row(consumer.number);
            exec.put_element(self.key, row, None, consumer.encode());
        }
    }

    pub fn consumer(&mut self, exec: &mut Exec<'_, '_>, name: Bytes, seen_ms: u64) {
        self.finish_consumer(exec);
        let number = self.group.row.next_consumer;
        self.group.row.next_consumer += 1;
        self.group.row.consumers += 1;
        exec.put_element(self.key, self.rows.name_row(&name), None, name_value(number));
        self.consumer = Some(Consumer { number, name, seen_ms, pending: 0 });
    }

    /// Adds a pending entry of the last consumer.
    pub fn pending(
        &mut self,
        exec: &mut Exec<'_, '_>,
        id: StreamId,
        (delivered_ms, deliveries): (u64, u64),
    ) -> CommandResult<()> {
        let consumer = self.consumer.as_mut().ok_or_else(|| corrupt("a pending entry"))?;
        consumer.pending += 1;
        let pending = Pending { delivered_ms, deliveries, consumer: consumer.number };
        exec.put_element(self.key, self.rows.owned_row(consumer.number, id), None, Bytes::new());
        exec.put_element(self.key, self.rows.pending_row(id), None, pending.encode());
        self.group.row.count_pending(id);
        Ok(())
    }

    /// Writes the group's row. The caller writes the meta row.
    pub fn finish(mut self, exec: &mut Exec<'_, '_>, stream: &mut Stream) {
        self.finish_consumer(exec);
        let row = self.key.group_row(stream.generation, &self.group.name);
        exec.put_element(self.key, row, None, self.group.row.encode());
        stream.groups += 1;
    }
}
