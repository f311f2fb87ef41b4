//! The execution of a command against one region's rows. Time and randomness are inputs.
//!
//! An error reply leaves no partial effects: handlers check first and write afterwards. The only
//! write that may precede an error is the deletion of an expired key, which every command performs
//! on finding one.

use std::borrow::Cow;
use std::ops::{ControlFlow, Deref};
use std::rc::Rc;

use bytes::Bytes;
use resp::Reply;
use storage::packed::PACKED;
use storage::{KeyRef, Meta, StorageError, Stream, Txn, Unencoded, Value};
use types::{SlotRange, UnixMillis};

use crate::error_messages;
use crate::events;
use crate::spec::{CommandSpec, Handler, KeyspaceFn};
use crate::table::{check_arity, leaf};

/// The way in which a command handles an expired key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Execution over a snapshot, without writes. An expired key ends the command with
    /// [`Outcome::NeedsApply`].
    Read,
    /// Execution as part of a log entry. An expired key is deleted.
    Apply,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Reply(Reply),
    /// The read found an expired key. The caller must propose the read as a log entry, so that the
    /// deletion is committed before the reply is sent. After that, no later leader with a slower
    /// clock can return the key again.
    NeedsApply,
}

/// Limits that affect replies. They must be the same on every replica, so they belong to the
/// semantics version and are never local configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a string that a command may create, as Redis's `proto-max-bulk-len`.
    pub max_value_bytes: u64,
    pub databases: u16,
    /// Maximum number of elements of a reply that may repeat elements (`HRANDFIELD` with a negative
    /// count).
    pub max_reply_elements: u64,
}

/// Maximum size of a value in bytes: the maximum that one command can carry. It also limits
/// `APPEND` and `SETRANGE`. A value is one row, which is written, kept in RAM and sent as a whole.
const VALUE_BYTES_MAX: u64 = 64 << 20;

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_value_bytes: VALUE_BYTES_MAX, databases: 16, max_reply_elements: 1 << 20 }
    }
}

pub struct Exec<'t, 'r> {
    pub txn: &'t mut Txn<'r>,
    /// The time of the entry, or of the read.
    pub now_ms: UnixMillis,
    /// The seed of all random choices, different for each command.
    pub seed: u64,
    pub db: u16,
    pub mode: Mode,
    /// All slots of the region.
    pub slots: SlotRange,
    pub limits: Limits,
    /// True if the client uses RESP3, in which some replies have another form.
    pub resp3: bool,
}

/// The reason why a handler ended without its regular reply.
#[derive(Debug)]
pub enum CommandError {
    Error(Cow<'static, str>),
    NeedsApply,
    Storage(StorageError),
}

impl From<StorageError> for CommandError {
    fn from(error: StorageError) -> CommandError {
        CommandError::Storage(error)
    }
}

pub type CommandResult<T = Reply> = Result<T, CommandError>;

pub(crate) fn fail<T>(text: impl Into<Cow<'static, str>>) -> CommandResult<T> {
    Err(CommandError::Error(text.into()))
}

/// Executes one command. `args[0]` is its name.
///
/// # Errors
/// Only storage errors: failures of this store, which must never become a reply.
pub fn execute(
    spec: &'static CommandSpec,
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
) -> Result<Outcome, StorageError> {
    if let Err(refusal) = check_arity(spec, args) {
        return Ok(Outcome::Reply(refusal));
    }
    let leaf = leaf(spec, args);
    match leaf.handler {
        Handler::Keyspace(handler) | Handler::Spanning(_, handler) => {
            outcome(call((leaf, handler), args, exec))
        }
        Handler::Table(reply) => Ok(Outcome::Reply(reply(args))),
        Handler::Server(_) | Handler::Session(_) | Handler::Container => {
            Ok(Outcome::Reply(Reply::error(format!("ERR '{}' does not belong in the log", spec.name))))
        }
    }
}

/// Calls a command's handler, and records its events if they are asked for.
pub(crate) fn call(
    (spec, handler): (&'static CommandSpec, KeyspaceFn),
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
) -> CommandResult {
    exec.txn.count_lookups(spec.is_readonly());
    // The commands before it in the entry or transaction may hold too much already.
    let before = exec.txn.held();
    let result = exec.check_held().and_then(|()| handler(args, exec));
    if result.is_err() {
        // What it has collected is dropped, so the commands of others behind it have room.
        exec.txn.hold_only(before);
    }
    events::conclude(Some(spec), args, exec);
    match result {
        Err(CommandError::Storage(_)) => result,
        _ => exec.txn.take_failure().map_or(result, |error| Err(error.into())),
    }
}

pub(crate) fn outcome(step: CommandResult) -> Result<Outcome, StorageError> {
    match step {
        Ok(reply) => Ok(Outcome::Reply(reply)),
        Err(CommandError::Error(text)) => Ok(Outcome::Reply(Reply::Error(text))),
        Err(CommandError::NeedsApply) => Ok(Outcome::NeedsApply),
        Err(CommandError::Storage(error)) => Err(error),
    }
}

/// Maximum number of elements that are deleted together with their collection. The sweep deletes
/// the elements of larger collections.
pub(crate) const DELETED_AT_ONCE: u64 = 128;

/// A string value and its key's expiry time.
pub(crate) struct StringValue {
    pub bytes: Bytes,
    pub expire_at_ms: Option<u64>,
}

/// A stream's meta row and its key's expiry time.
#[derive(Clone, Copy)]
pub(crate) struct StreamValue {
    pub stream: Stream,
    pub expire_at_ms: Option<u64>,
}

/// Maximum number of nodes that are deleted together with their stream.
const NODES_DELETED_AT_ONCE: u64 = 16;

/// A type of values whose elements are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectionKind {
    Hash,
    Set,
    SortedSet,
    List,
}

/// The meta row of a collection.
#[derive(Clone, Copy)]
pub(crate) struct Collection {
    pub kind: CollectionKind,
    /// The generation of its element rows, with the bit [`PACKED`] if it was packed when it was
    /// found.
    pub generation: u64,
    /// The number of its elements, which is 0 only within a command.
    pub len: u64,
    pub expire_at_ms: Option<u64>,
}

impl Collection {
    /// Returns the collection of a meta row, or `None` for a string or a stream.
    pub fn of(meta: &Meta) -> Option<Collection> {
        let (kind, generation, len) = match meta.value {
            Value::String(_) | Value::Stream(_) => return None,
            Value::Hash { generation, len } => (CollectionKind::Hash, generation, len),
            Value::Set { generation, len } => (CollectionKind::Set, generation, len),
            Value::SortedSet { generation, len } => (CollectionKind::SortedSet, generation, len),
            Value::List { generation, len } => (CollectionKind::List, generation, len),
        };
        Some(Collection { kind, generation, len, expire_at_ms: meta.expire_at_ms })
    }

    pub fn meta(self) -> Meta {
        let Collection { kind, generation, len, expire_at_ms } = self;
        let value = match kind {
            CollectionKind::Hash => Value::Hash { generation, len },
            CollectionKind::Set => Value::Set { generation, len },
            CollectionKind::SortedSet => Value::SortedSet { generation, len },
            CollectionKind::List => Value::List { generation, len },
        };
        Meta { expire_at_ms, value }
    }
}

/// A key and its meta row, which most commands need more than once.
#[derive(PartialEq, Eq)]
pub(crate) struct Key<'k> {
    of: KeyRef<'k>,
    pub(crate) meta_row: Bytes,
}

impl<'k> From<KeyRef<'k>> for Key<'k> {
    fn from(key: KeyRef<'k>) -> Key<'k> {
        Key { of: key, meta_row: key.meta_row() }
    }
}

impl<'k> Deref for Key<'k> {
    type Target = KeyRef<'k>;

    fn deref(&self) -> &KeyRef<'k> {
        &self.of
    }
}

/// Bytes that an item which a command holds takes beside its own: an allocation, and places in a
/// list and in the reply.
const HELD_ITEM_BYTES: usize = 80;

/// Number of items for which a row that a command writes counts: its key with the collection's
/// name, its value, and its places in the batch and in the memtable.
pub(crate) const HELD_ROW: usize = 3;

/// Number of keys that [`Exec::keys`] takes at once.
pub(crate) const KEYS_AT_ONCE: usize = 64;

/// Returns the bytes for which items count that a command holds.
pub(crate) fn held_bytes(items: usize, bytes: usize) -> u64 {
    items.saturating_mul(HELD_ITEM_BYTES).saturating_add(bytes) as u64
}

/// Same as [`Exec::holding`].
pub(crate) fn holding(txn: &Txn<'_>, items: usize, bytes: usize) -> ControlFlow<()> {
    match txn.hold(held_bytes(items, bytes)) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

fn of_kind(found: Option<Meta>, kind: CollectionKind) -> CommandResult<Option<Collection>> {
    match found.as_ref().map(Collection::of) {
        None => Ok(None),
        Some(Some(found)) if found.kind == kind => Ok(Some(found)),
        Some(_) => fail(error_messages::WRONG_TYPE),
    }
}

impl Exec<'_, '_> {
    pub(crate) fn key<'k>(&self, key: &'k [u8]) -> Key<'k> {
        KeyRef::new(self.db, key).into()
    }

    /// Returns keys that the command is about to look up. Callers pass at most [`KEYS_AT_ONCE`]. In
    /// memory their look-ups wait together.
    pub(crate) fn keys<'k>(&self, keys: impl Iterator<Item = &'k Bytes>) -> Vec<Key<'k>> {
        let keys: Vec<Key<'k>> = keys.map(|key| self.key(key)).collect();
        if keys.len() > 1 && self.txn.is_worth_touching() {
            self.txn.touch(&keys.iter().map(|key| &key.meta_row[..]).collect::<Vec<_>>());
        }
        keys
    }

    /// Counts items of `bytes` in all that the command holds until the end of its entry.
    ///
    /// # Errors
    /// That is too much, and the command must end before it writes anything.
    pub(crate) fn hold(&self, items: usize, bytes: usize) -> CommandResult<()> {
        match self.holding(items, bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => self.check_held(),
        }
    }

    /// Same as [`hold`](Exec::hold), for the callback of a walk. Behind the walk the caller checks
    /// what the command [holds](Exec::check_held).
    pub(crate) fn holding(&self, items: usize, bytes: usize) -> ControlFlow<()> {
        holding(self.txn, items, bytes)
    }

    /// Holds that many bytes more, if there is room for them, and returns whether there is.
    pub(crate) fn find_room(&self, bytes: u64) -> bool {
        self.txn.has_room(bytes) && self.txn.hold(bytes)
    }

    /// Executes a part of a command that has another way. Returns `None` if the part would hold too
    /// much, and what it held is dropped. It has then written nothing.
    pub(crate) fn unless_too_much<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> CommandResult<T>,
    ) -> CommandResult<Option<T>> {
        let before = self.txn.held();
        match part(self) {
            Ok(done) => Ok(Some(done)),
            Err(CommandError::Error(_)) if self.check_held().is_err() => {
                self.txn.hold_only(before);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if the sweep has not yet deleted all that the key has left to it.
    pub(crate) fn has_garbage(&self, key: &Key<'_>) -> CommandResult<bool> {
        let (from, to) = key.garbage_range();
        let mut has_any = false;
        self.txn.scan(&from, &to, &mut |_, _| {
            has_any = true;
            ControlFlow::Break(())
        })?;
        Ok(has_any)
    }

    pub(crate) fn check_held(&self) -> CommandResult<()> {
        self.txn.holds_too_much().map_or(Ok(()), |bytes| fail(error_messages::holds_too_much(bytes)))
    }

    /// Executes a part of a command that writes, and counts the look-ups of keys in it as those of
    /// a read.
    pub(crate) fn reading<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> T {
        self.counting(true, part)
    }

    /// Executes a part of a command that reads, and does not count the look-ups of keys in it.
    pub(crate) fn uncounted<T>(&mut self, part: impl FnOnce(&mut Self) -> T) -> T {
        self.counting(false, part)
    }

    /// Same as [`find`](Exec::find), but does not end the key's idle time.
    pub(crate) fn peek(&mut self, key: &Key<'_>) -> CommandResult<Option<Meta>> {
        let before = self.txn.set_peeks(true);
        let found = self.find(key);
        self.txn.set_peeks(before);
        found
    }

    /// Same as [`peek`](Exec::peek), but the look-up is not counted.
    pub(crate) fn look_up(&mut self, key: &Key<'_>) -> CommandResult<Option<Meta>> {
        self.uncounted(|exec| exec.peek(key))
    }

    /// Returns the seconds since the key was last used. In a write they are 0.
    pub(crate) fn idle_time(&self, key: &Key<'_>) -> u32 {
        self.txn.idle_time(&key.meta_row)
    }

    /// Sets whether look-ups of keys are counted in a part of a command.
    pub(crate) fn counting<T>(&mut self, counts: bool, part: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.txn.count_lookups(counts);
        let result = part(self);
        self.txn.count_lookups(before);
        result
    }

    /// Returns the current value of a key. An expired key is deleted, or ends a read. Commands that
    /// only read count it as a look-up.
    pub(crate) fn find(&mut self, key: &Key<'_>) -> CommandResult<Option<Meta>> {
        let Some(row) = self.txn.get(&key.meta_row)? else {
            self.txn.looked_up(false);
            return Ok(None);
        };
        let meta = Meta::decode(&row)?;
        if !meta.is_due(self.now_ms) {
            self.txn.looked_up(true);
            return Ok(Some(meta));
        }
        match self.mode {
            Mode::Read => Err(CommandError::NeedsApply),
            Mode::Apply => {
                self.expire(key, &meta)?;
                self.txn.looked_up(false);
                Ok(None)
            }
        }
    }

    pub(crate) fn find_string(&mut self, key: &Key<'_>) -> CommandResult<Option<StringValue>> {
        match self.find(key)? {
            None => Ok(None),
            Some(Meta { expire_at_ms, value: Value::String(bytes) }) => {
                Ok(Some(StringValue { bytes, expire_at_ms }))
            }
            Some(_) => fail(error_messages::WRONG_TYPE),
        }
    }

    pub(crate) fn find_hash(&mut self, key: &Key<'_>) -> CommandResult<Option<Collection>> {
        self.find_collection(key, CollectionKind::Hash)
    }

    pub(crate) fn find_set(&mut self, key: &Key<'_>) -> CommandResult<Option<Collection>> {
        self.find_collection(key, CollectionKind::Set)
    }

    pub(crate) fn find_sorted_set(&mut self, key: &Key<'_>) -> CommandResult<Option<Collection>> {
        self.find_collection(key, CollectionKind::SortedSet)
    }

    pub(crate) fn find_list(&mut self, key: &Key<'_>) -> CommandResult<Option<Collection>> {
        self.find_collection(key, CollectionKind::List)
    }

    pub(crate) fn find_stream(&mut self, key: &Key<'_>) -> CommandResult<Option<StreamValue>> {
        match self.find(key)? {
            None => Ok(None),
            Some(Meta { expire_at_ms, value: Value::Stream(stream) }) => {
                Ok(Some(StreamValue { stream: *stream, expire_at_ms }))
            }
            Some(_) => fail(error_messages::WRONG_TYPE),
        }
    }

    fn find_collection(&mut self, key: &Key<'_>, kind: CollectionKind) -> CommandResult<Option<Collection>> {
        of_kind(self.find(key)?, kind)
    }

    /// Returns a collection. The look-up is not counted.
    pub(crate) fn look_up_collection(
        &mut self,
        key: &Key<'_>,
        kind: CollectionKind,
    ) -> CommandResult<Option<Collection>> {
        of_kind(self.look_up(key)?, kind)
    }

    /// Writes a string in place of `old`, the current value of the key.
    pub(crate) fn put_string(
        &mut self,
        key: &Key<'_>,
        old: Option<&Meta>,
        value: &[u8],
        expire_at_ms: Option<u64>,
    ) -> CommandResult<()> {
        if let Some(old) = old {
            self.drop_elements(key, old)?;
        }
        self.account(key, old.map(|old| old.expire_at_ms), Some(expire_at_ms));
        self.txn.state_mut().adjust_bytes(value.len(), old.map_or(0, |old| old.value.string_len()));
        self.txn.put(key.meta_row.clone(), storage::meta::encode_string(expire_at_ms, value));
        Ok(())
    }

    /// Changes a string or creates it. An existing string keeps its expiry time.
    pub(crate) fn update_string(&mut self, key: &Key<'_>, old: Option<&StringValue>, value: &[u8]) {
        let expire_at_ms = old.and_then(|old| old.expire_at_ms);
        match old {
            None => self.account(key, None, Some(None)),
            Some(_) => self.touch(key),
        }
        self.txn.state_mut().adjust_bytes(value.len(), old.map_or(0, |old| old.bytes.len()));
        self.txn.put(key.meta_row.clone(), storage::meta::encode_string(expire_at_ms, value));
    }

    /// Writes a collection's meta row in place of `old`. The caller writes the elements.
    pub(crate) fn put_collection(&mut self, key: &Key<'_>, old: Option<Collection>, new: Collection) {
        self.account(key, old.map(|old| old.expire_at_ms), Some(new.expire_at_ms));
        self.txn.put_collection(key.meta_row.clone(), &new.meta());
    }

    /// Writes a stream's meta row in place of `old`. The caller writes the other rows.
    pub(crate) fn put_stream(&mut self, key: &Key<'_>, old: Option<&StreamValue>, stream: Stream) {
        let expire_at_ms = old.and_then(|old| old.expire_at_ms);
        self.put_stream_with_time(key, old, StreamValue { stream, expire_at_ms });
    }

    /// Same as [`put_stream`](Exec::put_stream), with an expiry time.
    pub(crate) fn put_stream_with_time(
        &mut self,
        key: &Key<'_>,
        old: Option<&StreamValue>,
        new: StreamValue,
    ) {
        self.account(key, old.map(|old| old.expire_at_ms), Some(new.expire_at_ms));
        self.txn.put(key.meta_row.clone(), storage::meta::encode_stream(new.expire_at_ms, &new.stream));
    }

    /// Tells an event of a key that the command has changed.
    pub(crate) fn tell(&mut self, key: &KeyRef<'_>, event: &'static str) {
        if let Some(record) = self.txn.record_mut() {
            record.touch(key, true).told.push(event);
        }
    }

    /// Sets or removes the expiry time of a key.
    pub(crate) fn set_expiry(&mut self, key: &Key<'_>, mut meta: Meta, expire_at_ms: Option<u64>) {
        self.account(key, Some(meta.expire_at_ms), Some(expire_at_ms));
        meta.expire_at_ms = expire_at_ms;
        self.txn.put_collection(key.meta_row.clone(), &meta);
    }

    /// Deletes a key that has expired.
    pub(crate) fn expire(&mut self, key: &Key<'_>, meta: &Meta) -> CommandResult<()> {
        self.remove(key, meta)?;
        self.txn.expired();
        if let Some(record) = self.txn.record_mut() {
            let touched = record.touch(key, true);
            (touched.existed, touched.is_changed, touched.has_expired) = (false, false, true);
        }
        Ok(())
    }

    /// Records that the value of a key changes, which exists before and after.
    pub(crate) fn touch(&mut self, key: &KeyRef<'_>) {
        if let Some(record) = self.txn.record_mut() {
            record.touch(key, true).is_changed = true;
        }
    }

    pub(crate) fn remove(&mut self, key: &Key<'_>, meta: &Meta) -> CommandResult<()> {
        self.drop_elements(key, meta)?;
        self.remove_emptied(key, meta);
        Ok(())
    }

    /// Deletes a key that has no element rows, or none any more.
    pub(crate) fn remove_emptied(&mut self, key: &Key<'_>, meta: &Meta) {
        self.account(key, Some(meta.expire_at_ms), None);
        self.txn.state_mut().adjust_bytes(0, meta.value.string_len());
        self.txn.delete(key.meta_row.clone());
    }

    /// Deletes the rows of a collection, or leaves them to the sweep if there are many elements.
    /// The caller deletes the meta row, or writes another value into it.
    fn drop_elements(&mut self, key: &Key<'_>, meta: &Meta) -> CommandResult<()> {
        let (generation, is_small) = match &meta.value {
            // The sweep finds the rows of the groups.
            Value::Stream(stream) => {
                (stream.generation, stream.groups == 0 && stream.nodes <= NODES_DELETED_AT_ONCE)
            }
            _ => match Collection::of(meta) {
                Some(Collection { generation, len, .. }) => (generation, len <= DELETED_AT_ONCE),
                None => return Ok(()),
            },
        };
        if let Some(bytes) = self.txn.packed_bytes(&key.meta_row, generation)? {
            self.txn.state_mut().adjust_bytes(0, bytes);
            return Ok(());
        }
        match is_small {
            true => self.delete_generation(key, generation & !PACKED),
            false => {
                self.leave_generation(key, generation & !PACKED);
                Ok(())
            }
        }
    }

    /// Leaves the rows of a generation to the sweep.
    pub(crate) fn leave_generation(&mut self, key: &KeyRef<'_>, generation: u64) {
        self.txn.put(key.garbage_row(generation), Bytes::new());
    }

    /// Deletes the few rows of a generation.
    pub(crate) fn delete_generation(&mut self, key: &KeyRef<'_>, generation: u64) -> CommandResult<()> {
        let mut rows = Vec::new();
        for (from, to) in key.generation_ranges(generation) {
            self.txn.scan(&from, &to, &mut |row, value| {
                rows.push((Bytes::copy_from_slice(row), value.len()));
                std::ops::ControlFlow::Continue(())
            })?;
        }
        rows.into_iter().for_each(|(row, value)| self.delete_element(key, row, value));
        Ok(())
    }

    /// Writes the row of an element or a node. `old` is the length of its current value, or `None`
    /// for a new row.
    pub(crate) fn put_element(&mut self, key: &KeyRef<'_>, row: Bytes, old: Option<usize>, value: Bytes) {
        self.account_element(key, &row, old, value.len());
        self.txn.put(row, value);
    }

    /// Same as [`put_element`](Exec::put_element), for a value of `len` bytes that is encoded when
    /// it is needed.
    pub(crate) fn put_unencoded_element(
        &mut self,
        key: &KeyRef<'_>,
        row: Bytes,
        old: Option<usize>,
        (value, len): (Rc<dyn Unencoded>, usize),
    ) {
        self.account_element(key, &row, old, len);
        self.txn.put_unencoded(row, value);
    }

    /// Same as [`put_element`](Exec::put_element), for a generation that no meta row names. It
    /// changes no key.
    pub(crate) fn put_unseen(&mut self, key: &KeyRef<'_>, row: Bytes, old: Option<usize>, value: Bytes) {
        let went = old.map_or(0, |old| key.element_bytes(&row, old));
        self.txn.state_mut().adjust_bytes(key.element_bytes(&row, value.len()), went);
        self.txn.put_unseen(row, value);
    }

    fn account_element(&mut self, key: &KeyRef<'_>, row: &Bytes, old: Option<usize>, new: usize) {
        self.touch_element(key);
        let went = old.map_or(0, |old| key.element_bytes(row, old));
        self.txn.state_mut().adjust_bytes(key.element_bytes(row, new), went);
    }

    /// Deletes the row of an element or a node, whose value has the length `old`.
    pub(crate) fn delete_element(&mut self, key: &KeyRef<'_>, row: Bytes, old: usize) {
        self.touch_element(key);
        self.txn.state_mut().adjust_bytes(0, key.element_bytes(&row, old));
        self.txn.delete(row);
    }

    /// Records that an element changes. The first element of a new key comes before its meta row.
    fn touch_element(&mut self, key: &KeyRef<'_>) {
        match self.txn.record_mut() {
            None => return,
            Some(record) if record.is_last(key) => {
                record.touch(key, true).is_changed = true;
                return;
            }
            Some(_) => {}
        }
        // A meta row that cannot be read ends the command elsewhere.
        let exists = self.txn.get(&key.meta_row()).is_ok_and(|row| row.is_some());
        if let Some(record) = self.txn.record_mut() {
            record.touch(key, exists).is_changed = true;
        }
    }

    /// Deletes the row of an element or a node of a dead generation.
    pub(crate) fn delete_garbage(&mut self, key: &KeyRef<'_>, row: Bytes, old: usize) {
        self.txn.state_mut().adjust_bytes(0, key.element_bytes(&row, old));
        self.txn.delete_garbage(row);
    }

    /// Updates the counts and the expiry index for a change of a key's meta row, except for the
    /// bytes of its value. `None` stands for no key, `Some(None)` for a key without an expiry time.
    fn account(&mut self, key: &Key<'_>, old: Option<Option<u64>>, new: Option<Option<u64>>) {
        if let Some(record) = self.txn.record_mut() {
            let touched = record.touch(key, old.is_some());
            (touched.exists, touched.is_changed) = (new.is_some(), true);
        }
        let (old_at, new_at) = (old.flatten(), new.flatten());
        if old_at != new_at {
            if let Some(at) = old_at {
                self.txn.delete(key.expiry_row(at));
            }
            if let Some(at) = new_at {
                self.txn.put(key.expiry_row(at), Bytes::new());
            }
        }
        let count = |present: bool| i64::from(present);
        let keys = count(new.is_some()) - count(old.is_some());
        let with_expiry = count(new_at.is_some()) - count(old_at.is_some());
        if keys != 0 || with_expiry != 0 {
            self.txn.state_mut().adjust(key.db, keys, with_expiry);
        }
        let length = |present: bool| if present { key.key.len() } else { 0 };
        self.txn.state_mut().adjust_bytes(length(new.is_some()), length(old.is_some()));
    }
}
