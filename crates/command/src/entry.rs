//! Log entries: a stamp, a seed, and a batch of commands.
//!
//! ```text
//! format u8 = 1 | stamp ms u64 | seed u64 | items
//! format u8 = 4 | thresholds 6 * i32 | stamp ms u64 | seed u64 | items
//! item 0, client's command: 0u8 | flags u8 (1: RESP3) | db u16 | arguments u32
//!                           | (length u32 | bytes)*
//! item 1, expire due keys:  1u8 | slot u16 | limit u32
//! item 2, sweep garbage:    2u8 | slot u16 | limit u32
//! ```
//!
//! A transaction is a command whose arguments hold other commands (`transaction`).
//!
//! The format follows from the cluster's version (`types::Version`), which the leader stamps. It
//! decides how every replica executes the entry, even if the cluster's version is different by
//! then. Format 2 belongs to the orders (`order`). Format 3 is as format 1, since version 3 of the
//! cluster. Format 4 is format 3 with thresholds of collections (`types::Thresholds`) that are not
//! Redis's defaults.
//!
//! Integers are big-endian. An entry that cannot be decoded, or that names a command unknown to
//! this program, is treated as corruption of this store. Skipping it would let replicas diverge.

use std::collections::VecDeque;
use std::future::Future;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use resp::Reply;
use storage::{StorageError, Txn};
use types::{
    copy_in_pieces, mix, slot_of_key, Slot, SlotRange, Thresholds, UnixMillis, Version, NEWEST_VERSION,
    OLDEST_VERSION, SLOT_COUNT,
};

use crate::exec::{execute, outcome, Exec, Limits, Mode, Outcome};
use crate::maintenance;
use crate::prefetch;
use crate::spec::CommandSpec;
use crate::table::{check_arity, keys_of};
use crate::transaction::lookup_in_log;

const FORMAT: u8 = 1;
/// The format of entries since version 3 of the cluster. Programs that support that version use it.
const NEXT_FORMAT: u8 = 3;
const NEXT_FORMAT_SINCE: Version = 3;
/// The format of entries with thresholds that are not the defaults, of the same programs.
const THRESHOLDS_FORMAT: u8 = 4;
const HEADER_LEN: usize = 1 + 8 + 8;
/// Bytes that a builder leaves free for the longest header. A shorter one begins later.
const ROOM: usize = HEADER_LEN + Thresholds::LEN;
const ITEM_COMMAND: u8 = 0;
const ITEM_EXPIRE_DUE: u8 = 1;
const ITEM_SWEEP: u8 = 2;
const FLAG_RESP3: u8 = 1;
/// Number of items that are decoded together, so that their look-ups in memory are, too.
const ITEMS_AHEAD: usize = 32;

/// Returns the bytes that a client's command takes in an entry.
fn item_bytes(args: &[Bytes]) -> usize {
    args.iter().map(|arg| arg.len() + 4).sum::<usize>() + 8
}

/// Builds an entry. The stamp is set last, when the entry is proposed.
#[derive(Clone, Debug)]
pub struct Builder {
    buffer: BytesMut,
    items: usize,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    pub fn new() -> Builder {
        Builder::with_capacity(1024)
    }

    /// Creates a builder with room for `bytes` bytes of items.
    pub fn with_capacity(bytes: usize) -> Builder {
        let mut buffer = BytesMut::with_capacity(ROOM + bytes);
        buffer.put_bytes(0, ROOM);
        Builder { buffer, items: 0 }
    }

    /// Appends a client's command, name first.
    ///
    /// # Panics
    /// If an argument has 4 GiB or more. The server's limits are far lower.
    pub fn push(&mut self, db: u16, resp3: bool, args: &[Bytes]) {
        self.begin_command(db, resp3, args);
        for arg in args {
            self.begin_argument(arg);
            self.buffer.put_slice(arg);
        }
    }

    /// Appends a client's command, and pauses whenever a certain number of bytes is copied. So a
    /// very large command does not delay other work for long.
    ///
    /// # Panics
    /// See [`push`](Builder::push).
    pub async fn push_in_pieces<P: Future<Output = ()>>(
        &mut self,
        (db, resp3): (u16, bool),
        args: &[Bytes],
        mut pause: impl FnMut() -> P,
    ) {
        self.begin_command(db, resp3, args);
        for arg in args {
            self.begin_argument(arg);
            copy_in_pieces(arg, &mut self.buffer, &mut pause).await;
        }
    }

    /// Appends the items of another builder. Copies nothing if this builder is empty.
    pub fn append(&mut self, other: Builder) {
        if self.is_empty() {
            return *self = other;
        }
        self.buffer.put_slice(&other.buffer[ROOM..]);
        self.items += other.items;
    }

    fn begin_command(&mut self, db: u16, resp3: bool, args: &[Bytes]) {
        self.buffer.reserve(item_bytes(args));
        self.buffer.put_u8(ITEM_COMMAND);
        self.buffer.put_u8(if resp3 { FLAG_RESP3 } else { 0 });
        self.buffer.put_u16(db);
        self.buffer.put_u32(u32::try_from(args.len()).expect("fewer than 2^32 arguments"));
        self.items += 1;
    }

    fn begin_argument(&mut self, arg: &Bytes) {
        self.buffer.put_u32(u32::try_from(arg.len()).expect("arguments are below 4 GiB"));
    }

    /// Appends the deletion of up to `limit` expired keys of a slot.
    pub fn push_expire_due(&mut self, slot: Slot, limit: u32) {
        self.push_step(ITEM_EXPIRE_DUE, slot, limit);
    }

    /// Appends a sweep step for up to `limit` rows of a slot.
    pub fn push_sweep(&mut self, slot: Slot, limit: u32) {
        self.push_step(ITEM_SWEEP, slot, limit);
    }

    fn push_step(&mut self, item: u8, slot: Slot, limit: u32) {
        self.buffer.put_u8(item);
        self.buffer.put_u16(slot);
        self.buffer.put_u32(limit);
        self.items += 1;
    }

    /// Returns the number of items. Each item gets a reply.
    pub fn len(&self) -> usize {
        self.items
    }

    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Returns the bytes that the entry will have, with default thresholds.
    pub fn bytes(&self) -> usize {
        self.buffer.len() - Thresholds::LEN
    }

    /// Returns the address range of the bytes of the entry with default thresholds. A test uses it
    /// to show that they are not copied.
    #[doc(hidden)]
    pub fn as_ptr_range(&self) -> std::ops::Range<*const u8> {
        self.buffer[Thresholds::LEN..].as_ptr_range()
    }

    /// Returns the entry of a cluster with the version `version` and default thresholds. `stamp_ms`
    /// is the leader's clock. The leader may choose any `seed`.
    pub fn finish_as(self, version: Version, stamp_ms: UnixMillis, seed: u64) -> Bytes {
        self.finish_with((version, Thresholds::default()), stamp_ms, seed)
    }

    /// Same as [`finish_as`](Builder::finish_as), with these thresholds. Versions before the third
    /// have no thresholds.
    pub fn finish_with(
        mut self,
        (version, thresholds): (Version, Thresholds),
        stamp_ms: UnixMillis,
        seed: u64,
    ) -> Bytes {
        let has_thresholds = version >= NEXT_FORMAT_SINCE && !thresholds.is_default();
        if !has_thresholds {
            self.buffer.advance(Thresholds::LEN);
        }
        let mut header = &mut self.buffer[..];
        header.put_u8(match version >= NEXT_FORMAT_SINCE {
            true if has_thresholds => THRESHOLDS_FORMAT,
            true => NEXT_FORMAT,
            false => FORMAT,
        });
        if has_thresholds {
            header.put_slice(&thresholds.encode());
        }
        header.put_u64(stamp_ms);
        header.put_u64(seed);
        self.buffer.freeze()
    }

    /// Returns the entry in the oldest version. See [`finish_as`](Builder::finish_as).
    pub fn finish(self, stamp_ms: UnixMillis, seed: u64) -> Bytes {
        self.finish_as(OLDEST_VERSION, stamp_ms, seed)
    }
}

/// One item of an entry. Arguments are slices of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Command { db: u16, resp3: bool, args: Vec<Bytes> },
    ExpireDue { slot: Slot, limit: u32 },
    Sweep { slot: Slot, limit: u32 },
}

/// A decoder of entries.
#[derive(Clone, Debug)]
pub struct Items {
    rest: Bytes,
    format: u8,
    pub thresholds: Thresholds,
    pub stamp_ms: UnixMillis,
    pub seed: u64,
}

impl Items {
    /// Decodes the header of an entry.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if the header cannot be decoded.
    pub fn decode(mut payload: Bytes) -> storage::Result<Items> {
        if payload.len() < HEADER_LEN {
            return Err(corrupt("the header"));
        }
        let format = payload.get_u8();
        let thresholds = match format {
            FORMAT => Thresholds::default(),
            NEXT_FORMAT if NEWEST_VERSION >= NEXT_FORMAT_SINCE => Thresholds::default(),
            THRESHOLDS_FORMAT if NEWEST_VERSION >= NEXT_FORMAT_SINCE && payload.len() >= ROOM - 1 => {
                let bytes = payload.split_to(Thresholds::LEN);
                let thresholds = bytes[..].try_into().ok().and_then(Thresholds::decode);
                thresholds.ok_or_else(|| corrupt("a threshold"))?
            }
            THRESHOLDS_FORMAT => return Err(corrupt("the header")),
            _ => return Err(corrupt(&format!("the unknown version {format}"))),
        };
        let (stamp_ms, seed) = (payload.get_u64(), payload.get_u64());
        Ok(Items { format, thresholds, stamp_ms, seed, rest: payload })
    }

    /// Returns true if the entry was written in version 3 of the cluster or a later one.
    fn is_of_third_version(&self) -> bool {
        self.format >= NEXT_FORMAT
    }

    /// Returns the next item, or `None` after the last one.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if the item cannot be decoded.
    pub fn next_item(&mut self) -> storage::Result<Option<Item>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        Ok(Some(match self.u8()? {
            ITEM_COMMAND => self.command()?,
            ITEM_EXPIRE_DUE => {
                let (slot, limit) = self.step()?;
                Item::ExpireDue { slot, limit }
            }
            ITEM_SWEEP => {
                let (slot, limit) = self.step()?;
                Item::Sweep { slot, limit }
            }
            _ => return Err(corrupt("an item's kind")),
        }))
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn command(&mut self) -> storage::Result<Item> {
        let resp3 = match self.u8()? {
            0 => false,
            FLAG_RESP3 => true,
            _ => return Err(corrupt("an item's flags")),
        };
        let db = self.need(2)?.get_u16();
        let count = self.u32()? as usize;
        // An argument takes at least the 4 bytes of its length, which bounds the memory that a
        // damaged count can request.
        if count > self.rest.len() / 4 {
            return Err(corrupt("the argument count"));
        }
        let mut args = Vec::with_capacity(count);
        for _ in 0..count {
            let length = self.u32()? as usize;
            if length > self.rest.len() {
                return Err(corrupt("an argument"));
            }
            args.push(self.rest.split_to(length));
        }
        Ok(Item::Command { db, resp3, args })
    }

    fn step(&mut self) -> storage::Result<(Slot, u32)> {
        let slot = self.need(2)?.get_u16();
        match slot < SLOT_COUNT {
            true => Ok((slot, self.u32()?)),
            false => Err(corrupt("a slot")),
        }
    }

    fn u8(&mut self) -> storage::Result<u8> {
        Ok(self.need(1)?.get_u8())
    }

    fn u32(&mut self) -> storage::Result<u32> {
        Ok(self.need(4)?.get_u32())
    }

    fn need(&mut self, bytes: usize) -> storage::Result<&mut Bytes> {
        match self.rest.len() >= bytes {
            true => Ok(&mut self.rest),
            false => Err(corrupt("the end")),
        }
    }
}

fn corrupt(what: &str) -> StorageError {
    StorageError::Corrupt(format!("{what} of a log entry cannot be read"))
}

/// Executes an entry's items in order and returns a reply for each.
///
/// The reply is `None` for an item that names a slot outside of `slots`, which is not executed. The
/// region gave the slot away after the item was proposed. All replicas agree on this, because they
/// apply the same log.
///
/// # Errors
/// [`StorageError::Corrupt`] for an entry that cannot be decoded, and all storage errors. `txn` is
/// then unusable, and the store must stall or stop so as not to diverge from its peers.
pub fn apply(payload: &Bytes, txn: &mut Txn<'_>, slots: SlotRange) -> storage::Result<Vec<Option<Reply>>> {
    apply_told(payload, txn, slots, &mut |_| {})
}

/// Same as [`apply`], but calls `coming` before each item with the remaining items, this item
/// included. `coming` may prefetch rows ([`crate::prefetch`]). It does not affect the execution or
/// the replies.
///
/// # Errors
/// Those of [`apply`].
pub fn apply_told(
    payload: &Bytes,
    txn: &mut Txn<'_>,
    slots: SlotRange,
    coming: &mut dyn FnMut(&Items),
) -> storage::Result<Vec<Option<Reply>>> {
    let mut items = Items::decode(payload.clone())?;
    let now_ms = txn.state_mut().advance_time(items.stamp_ms);
    txn.set_packing(items.is_of_third_version());
    txn.set_thresholds(items.thresholds);
    txn.begin_entry();
    let mut replies = Vec::new();
    let ahead = if txn.is_hasty() { ITEMS_AHEAD } else { 1 };
    let mut decoded = VecDeque::new();
    loop {
        if decoded.is_empty() {
            decode_ahead(&mut items, ahead, &mut decoded);
            prefetch::touch(decoded.iter().filter_map(|(_, item)| item.as_ref().ok()), txn);
        }
        let Some((items, item)) = decoded.pop_front() else { break };
        coming(&items);
        let item = item?;
        txn.begin_item();
        let seed = mix(items.seed.wrapping_add(replies.len() as u64));
        let mut exec = Exec {
            txn,
            now_ms,
            seed,
            db: 0,
            mode: Mode::Apply,
            slots,
            limits: Limits::default(),
            resp3: false,
        };
        let outcome = match item {
            Item::Command { db, resp3, args } => {
                exec.db = db;
                exec.resp3 = resp3;
                match args.first().and_then(|name| lookup_in_log(name)) {
                    Some(spec) if !has_keys_outside(spec, &args, slots) => execute(spec, &args, &mut exec)?,
                    Some(_) => {
                        replies.push(None);
                        continue;
                    }
                    None => return Err(corrupt("a command that is not known here")),
                }
            }
            Item::ExpireDue { slot, .. } | Item::Sweep { slot, .. } if !slots.contains(slot) => {
                replies.push(None);
                continue;
            }
            Item::ExpireDue { slot, limit } => outcome(maintenance::expire_due(&mut exec, slot, limit))?,
            Item::Sweep { slot, limit } => {
                let keeps_place = items.is_of_third_version();
                outcome(maintenance::sweep(&mut exec, slot, limit, keeps_place))?
            }
        };
        replies.push(match outcome {
            Outcome::Reply(reply) => Some(reply),
            Outcome::NeedsApply => unreachable!("only reads ask to be applied"),
        });
    }
    Ok(replies)
}

/// Decodes up to `count` items, each with the remaining items, itself included. The last one may be
/// an item that cannot be decoded.
fn decode_ahead(items: &mut Items, count: usize, decoded: &mut VecDeque<(Items, storage::Result<Item>)>) {
    while decoded.len() < count {
        let before = items.clone();
        match items.next_item() {
            Ok(Some(item)) => decoded.push_back((before, Ok(item))),
            Ok(None) => return,
            Err(error) => return decoded.push_back((before, Err(error))),
        }
    }
}

fn has_keys_outside(spec: &'static CommandSpec, args: &[Bytes], slots: SlotRange) -> bool {
    slots != SlotRange::ALL
        // The command itself checks its arguments later. With too few arguments there are no keys
        // to check.
        && check_arity(spec, args).is_ok()
        && keys_of(spec, args).any(|(key, _)| !slots.contains(slot_of_key(key)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use storage::{MemoryKeyspace, Reader};
    use types::PIECE_BYTES;

    use super::*;

    fn args(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    fn sample() -> Bytes {
        let mut builder = Builder::new();
        builder.push(3, true, &args("SET k v"));
        builder.push(0, false, &args("GET k"));
        builder.push_expire_due(7, 100);
        builder.push_sweep(16383, 5);
        assert_eq!(builder.len(), 4);
        builder.finish(1234, 99)
    }

    fn read(payload: Bytes) -> storage::Result<Vec<Item>> {
        let mut items = Items::decode(payload)?;
        let mut all = Vec::new();
        while let Some(item) = items.next_item()? {
            all.push(item);
        }
        Ok(all)
    }

    #[test]
    fn entries_round_trip() {
        let payload = sample();
        let items = Items::decode(payload.clone()).unwrap();
        assert_eq!((items.stamp_ms, items.seed), (1234, 99));
        assert_eq!(
            read(payload).unwrap(),
            [
                Item::Command { db: 3, resp3: true, args: args("SET k v") },
                Item::Command { db: 0, resp3: false, args: args("GET k") },
                Item::ExpireDue { slot: 7, limit: 100 },
                Item::Sweep { slot: 16383, limit: 5 },
            ]
        );
    }

    #[test]
    fn a_command_that_is_pushed_in_pieces_makes_the_same_entry_and_is_not_copied_again() {
        let mut large = args("SET k");
        large.push(vec![7; 2 * PIECE_BYTES + 5].into());
        let (mut whole, mut pieces) = (Builder::new(), Builder::new());
        let pauses = std::cell::Cell::new(0);
        {
            let pause = || {
                pauses.set(pauses.get() + 1);
                std::future::ready(())
            };
            let mut pushing = std::pin::pin!(pieces.push_in_pieces((3, true), &large, pause));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(pushing.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(pauses.get(), 2);
        whole.push(3, true, &large);
        let at = pieces.as_ptr_range().start;
        let mut alone = Builder::with_capacity(0);
        alone.append(pieces);
        let entry = alone.finish(1, 2);
        assert_eq!((entry.as_ptr(), &entry), (at, &whole.clone().finish(1, 2)));
        let mut both = Builder::new();
        both.push(0, false, &args("GET k"));
        both.append(whole);
        assert_eq!(both.len(), 2);
        assert_eq!(read(both.finish(1, 2)).unwrap()[1], read(entry).unwrap()[0]);
    }

    #[test]
    fn an_entry_carries_thresholds_that_are_not_the_defaults() {
        let mut lower = Thresholds::default();
        lower.set("hash-max-listpack-entries", "1").unwrap();
        let build = |version, thresholds| {
            let mut builder = Builder::new();
            for line in ["HSET h f 1 g 2", "OBJECT ENCODING h"] {
                builder.push(0, false, &args(line));
            }
            let bytes = builder.bytes();
            (builder.finish_with((version, thresholds), 5, 6), bytes)
        };
        let run = |payload: &Bytes| {
            let engine = MemoryKeyspace::default();
            let mut txn = Txn::begin(&engine, 1).unwrap();
            let replies = apply(payload, &mut txn, SlotRange::ALL).unwrap();
            let meta = txn.get(&storage::KeyRef::new(0, b"h").meta_row()).unwrap().unwrap();
            (replies[1].clone().unwrap(), meta.len() > 40)
        };
        let (default, bytes) = build(NEWEST_VERSION, Thresholds::default());
        let (lowered, _) = build(NEWEST_VERSION, lower);
        assert_eq!((default.len(), lowered.len()), (bytes, bytes + Thresholds::LEN));
        assert_eq!((default[0], lowered[0]), (NEXT_FORMAT, THRESHOLDS_FORMAT));
        assert_eq!(run(&default), (Reply::bulk("listpack"), true));
        assert_eq!(run(&lowered), (Reply::bulk("hashtable"), false), "with a row for each field");
        let items = Items::decode(lowered.clone()).unwrap();
        assert_eq!((items.stamp_ms, items.seed, items.thresholds), (5, 6, lower));
        assert_eq!(read(lowered.clone()).unwrap(), read(default.clone()).unwrap());
        for cut in 0..ROOM {
            assert!(Items::decode(lowered.slice(..cut)).is_err(), "{cut}");
        }
        let mut damaged = lowered.to_vec();
        damaged[1] = 0xff;
        assert!(Items::decode(damaged.into()).is_err(), "a negative number of elements");
        // A store that writes an earlier version still does so without thresholds.
        assert_eq!(build(OLDEST_VERSION, lower).0, build(OLDEST_VERSION, Thresholds::default()).0);
        // The next entry of a batch has its own thresholds.
        let engine = MemoryKeyspace::default();
        let mut txn = Txn::begin(&engine, 1).unwrap();
        let mut encodings = Vec::new();
        for payload in [&lowered, &default] {
            encodings.push(apply(payload, &mut txn, SlotRange::ALL).unwrap().pop().unwrap().unwrap());
        }
        assert_eq!(encodings, [Reply::bulk("hashtable"), Reply::bulk("listpack")]);
    }

    #[test]
    fn arguments_are_slices_of_the_payload() {
        let payload = sample();
        let Item::Command { args, .. } = read(payload.clone()).unwrap().swap_remove(0) else { panic!() };
        assert!(payload.as_ptr_range().contains(&args[2].as_ptr()));
    }

    #[test]
    fn a_cut_entry_is_corrupt_or_a_whole_number_of_items() {
        let payload = sample();
        let whole: Vec<usize> =
            (0..=payload.len()).filter(|&cut| read(payload.slice(..cut)).is_ok()).collect();
        assert_eq!(whole.len(), 5, "after the header and after each item");
    }

    #[test]
    fn unknown_commands_are_corrupt_not_a_reply() {
        let engine = MemoryKeyspace::default();
        let mut builder = Builder::new();
        builder.push(0, false, &args("nosuchcommand"));
        let mut txn = Txn::begin(&engine, 1).unwrap();
        let result = apply(&builder.finish(0, 0), &mut txn, SlotRange::ALL);
        assert!(matches!(result, Err(StorageError::Corrupt(_))));
    }

    #[test]
    fn what_lies_outside_of_the_region_is_not_executed() {
        let mut engine = MemoryKeyspace::default();
        // "foo" is in slot 12182, "bar" in slot 5061.
        let mut builder = Builder::new();
        builder.push(0, false, &args("SET foo 1"));
        builder.push(0, false, &args("SET bar 1"));
        builder.push(0, false, &args("OBJECT ENCODING foo"));
        builder.push_expire_due(12182, 10);
        builder.push_sweep(5061, 10);
        builder.push(0, false, &args("DBSIZE"));
        let entry = builder.finish(5, 0);
        let mut run = |range: SlotRange| {
            let mut txn = Txn::begin(&engine, 1).unwrap();
            let replies = apply(&entry, &mut txn, range).unwrap();
            engine.write(txn.finish().0);
            replies
        };
        let executed = |replies: &[Option<Reply>]| replies.iter().map(Option::is_some).collect::<Vec<_>>();
        let left = run(SlotRange { first: 0, last: 12181 });
        assert_eq!(executed(&left), [false, true, false, false, true, true]);
        assert_eq!(left[5], Some(Reply::Int(1)));
        let right = run(SlotRange { first: 12182, last: SLOT_COUNT - 1 });
        assert_eq!(executed(&right), [true, false, true, true, false, true]);
    }

    #[test]
    fn a_sweep_continues_where_the_last_one_ended() {
        for (version, keeps_place) in [(OLDEST_VERSION, false), (NEXT_FORMAT_SINCE, true)] {
            let mut engine = MemoryKeyspace::default();
            let mut run = |fill: &dyn Fn(&mut Builder)| {
                let mut builder = Builder::new();
                fill(&mut builder);
                let mut txn = Txn::begin(&engine, 1).unwrap();
                let replies = apply(&builder.finish_as(version, 1, 0), &mut txn, SlotRange::ALL).unwrap();
                engine.write(txn.finish().0);
                (replies, engine.clone())
            };
            let fields: String = (0..300).map(|field| format!(" {field} x")).collect();
            run(&|builder| builder.push(0, false, &args(&format!("HSET hash{fields}"))));
            run(&|builder| builder.push(0, false, &args("DEL hash")));
            let slot = slot_of_key(b"hash");
            let rows_of = |engine: &MemoryKeyspace, table| {
                let (from, to) = storage::rows::table_range(slot, table);
                let mut rows = Vec::new();
                let all = &mut |row: &[u8], value: &[u8]| {
                    rows.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
                    std::ops::ControlFlow::Continue(())
                };
                engine.scan(&from, &to, all).unwrap();
                rows
            };
            let mut deleted = 0;
            for limit in [100, 150, 100] {
                let (replies, engine) = run(&|builder| builder.push_sweep(slot, limit));
                let Some(Reply::Int(handled)) = replies[0] else { panic!("{replies:?}") };
                deleted += handled;
                let garbage = rows_of(&engine, storage::rows::TABLE_GARBAGE);
                let left = rows_of(&engine, storage::rows::TABLE_KEYS);
                match garbage.first() {
                    None => assert!(left.is_empty() && deleted == 301),
                    Some((_, place)) if keeps_place => assert!(*place < left[0].0 && !place.is_empty()),
                    Some((_, place)) => assert!(place.is_empty(), "older programs write no place"),
                }
            }
            assert_eq!(deleted, 301, "the fields and the garbage row");
        }
    }

    #[test]
    fn a_region_s_time_never_goes_back() {
        let mut engine = MemoryKeyspace::default();
        let mut run = |stamp: u64, line: &str| {
            let mut builder = Builder::new();
            builder.push(0, false, &args(line));
            let mut txn = Txn::begin(&engine, 1).unwrap();
            let reply = apply(&builder.finish(stamp, 0), &mut txn, SlotRange::ALL).unwrap().remove(0);
            engine.write(txn.finish().0);
            reply.unwrap()
        };
        assert_eq!(run(1000, "SET k v PX 500"), Reply::OK);
        assert_eq!(run(1499, "GET k"), Reply::bulk("v"));
        assert_eq!(run(1500, "PTTL other"), Reply::Int(-2));
        // A leader with a slower clock neither returns the expired key nor computes with its own
        // time.
        assert_eq!(run(1, "GET k"), Reply::Nil);
        assert_eq!(run(2, "SET k v PX 10"), Reply::OK);
        assert_eq!(run(3, "PEXPIRETIME k"), Reply::Int(1510));
    }

    proptest! {
        #[test]
        fn no_payload_makes_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = FORMAT;
            }
            let _ = read(bytes.into());
        }
    }
}
