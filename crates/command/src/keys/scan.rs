//! Commands over all keys of a region.
//!
//! `SCAN`'s cursor is a position in the order of the rows: 14 bits of slot, then the first 50 bits
//! of the key's hash. It needs no state and has the same meaning on every store. 0 is both the
//! start and the end. The position of a key depends only on its slot and hash, not on other keys
//! that are added or deleted. So a full walk returns every key that exists throughout.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;
use storage::rows::{self, Part};
use storage::{KeyRef, Meta, Reader, Txn};
use types::{Draw, Slot, SlotRange, SLOT_COUNT};

use super::type_name;
use crate::error_messages;
use crate::exec::{fail, holding, CommandError, CommandResult, Exec, Mode};
use crate::glob;
use crate::number::integer;

const HASH_BITS: u32 = 50;
const HASH_DROPPED: u32 = 64 - HASH_BITS;
const _: () = assert!(1 << (64 - HASH_BITS) == SLOT_COUNT as u32);

/// Number of consecutive rows that are not keys after which the walk seeks past them.
const PASSED_BEFORE_SEEK: u32 = 16;

/// Returns the position of a key, or of a slot's start, in the order of `SCAN`.
fn position(slot: Slot, hash: u64) -> u64 {
    u64::from(slot) << HASH_BITS | hash >> HASH_DROPPED
}

/// Returns the slot at which a cursor continues. A caller that serves `SCAN` from several regions
/// sends it to the region with this slot.
pub fn cursor_slot(cursor: u64) -> Slot {
    (cursor >> HASH_BITS) as Slot
}

/// Returns the cursor at which a slot's keys begin.
pub fn cursor_at(slot: Slot) -> u64 {
    u64::from(slot) << HASH_BITS
}

/// Parses a cursor as Redis does with C's `strtoul`: an empty text is 0, a sign is allowed, and a
/// minus wraps from 2^64 down.
pub fn parse_cursor_text(text: &[u8]) -> Option<u64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // Rust's own parser would accept a second sign.
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    let cursor: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}

pub(crate) fn parse_cursor(text: &[u8]) -> CommandResult<u64> {
    match parse_cursor_text(text) {
        Some(cursor) => Ok(cursor),
        None => fail(error_messages::INVALID_CURSOR),
    }
}

/// Visits the keys of one database in a range of slots in row order, starting at a hash in the
/// first slot. Expired keys are included.
pub(crate) fn visit_keys(
    reader: &dyn Reader,
    slots: SlotRange,
    db: u16,
    from_hash: u64,
    visit: &mut dyn FnMut(KeyRef<'_>, &[u8]) -> ControlFlow<()>,
) -> storage::Result<()> {
    if slots.is_empty() {
        return Ok(());
    }
    let end = rows::slots_range(slots).1;
    let mut from = Some(rows::hash_start(slots.first, db, from_hash));
    while let Some(start) = from.take() {
        let mut failed = None;
        let mut passed = 0;
        reader.scan(&start, &end, &mut |row, value| {
            let seek = match place(row, db) {
                Ok(Place::Key(key)) => {
                    passed = 0;
                    return visit(key, value);
                }
                Ok(Place::Elsewhere(seek)) => seek,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            };
            passed += 1;
            if passed <= PASSED_BEFORE_SEEK {
                return ControlFlow::Continue(());
            }
            from = Some(seek);
            ControlFlow::Break(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

enum Place<'a> {
    Key(KeyRef<'a>),
    /// The row is not a key of this database. The next such key is at this row or after it.
    Elsewhere(Bytes),
}

fn place(row: &[u8], db: u16) -> storage::Result<Place<'_>> {
    let (slot, table) = rows::table_of(row)?;
    if table != rows::TABLE_KEYS {
        return Ok(Place::Elsewhere(rows::hash_start(slot + 1, db, 0)));
    }
    let (key, part) = rows::decode_key_row(row)?;
    Ok(match part {
        _ if key.db < db => Place::Elsewhere(rows::hash_start(slot, db, 0)),
        _ if key.db > db => Place::Elsewhere(rows::hash_start(slot + 1, db, 0)),
        Part::Meta => Place::Key(key),
        Part::Element { .. } | Part::Node { .. } | Part::Group { .. } => Place::Elsewhere(key.end_row()),
    })
}

/// Visits the unexpired keys. An expired key ends a read, and is deleted in an entry.
fn visit_live(
    exec: &mut Exec<'_, '_>,
    slots: SlotRange,
    from_hash: u64,
    visit: &mut dyn FnMut(&Txn<'_>, KeyRef<'_>, &Meta) -> ControlFlow<()>,
) -> CommandResult<()> {
    let (now, mode) = (exec.now_ms, exec.mode);
    let mut due = Vec::new();
    let mut failed = None;
    let txn = &*exec.txn;
    visit_keys(txn, slots, exec.db, from_hash, &mut |key, value| {
        let meta = match Meta::decode(&Bytes::copy_from_slice(value)) {
            Ok(meta) => meta,
            Err(error) => {
                failed = Some(CommandError::Storage(error));
                return ControlFlow::Break(());
            }
        };
        if !meta.is_due(now) {
            return visit(txn, key, &meta);
        }
        if mode == Mode::Read {
            failed = Some(CommandError::NeedsApply);
            return ControlFlow::Break(());
        }
        due.push((Bytes::copy_from_slice(key.key), meta));
        holding(txn, 2, key.key.len() + value.len())
    })?;
    if let Some(stop) = failed {
        return Err(stop);
    }
    exec.check_held()?;
    for (key, meta) in due {
        let key = exec.key(&key);
        exec.expire(&key, &meta)?;
    }
    Ok(())
}

pub(crate) fn keys(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let mut found = Vec::new();
    let pattern = &args[1];
    visit_live(exec, exec.slots, 0, &mut |txn, key, _| {
        if !glob::selects(pattern, key.key) {
            return ControlFlow::Continue(());
        }
        found.push(Reply::bulk(Bytes::copy_from_slice(key.key)));
        holding(txn, 1, key.key.len())
    })?;
    exec.check_held()?;
    Ok(Reply::Array(found))
}

/// The options of `SCAN` and similar commands.
pub(crate) struct ScanOptions<'a> {
    pub pattern: Option<&'a Bytes>,
    pub count: u64,
    pub type_name: Option<&'a Bytes>,
}

impl<'a> ScanOptions<'a> {
    pub fn matches(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::selects(pattern, name))
    }

    pub fn parse(args: &'a [Bytes], with_type: bool) -> CommandResult<ScanOptions<'a>> {
        let mut options = ScanOptions { pattern: None, count: 10, type_name: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let is = |name: &str| arg.eq_ignore_ascii_case(name.as_bytes());
            let Some(value) = args.next() else { return fail(error_messages::SYNTAX) };
            if is("COUNT") {
                options.count = scan_count(value)?;
            } else if is("MATCH") {
                options.pattern = Some(value);
            } else if is("TYPE") && with_type {
                options.type_name = Some(value);
            } else {
                return fail(error_messages::SYNTAX);
            }
        }
        Ok(options)
    }
}

/// Parses the value of `COUNT`, which is at least 1.
fn scan_count(text: &[u8]) -> CommandResult<u64> {
    match u64::try_from(integer(text)?) {
        Ok(count) if count > 0 => Ok(count),
        _ => fail(error_messages::SYNTAX),
    }
}

/// Returns the reply to one step of a walk.
pub(crate) fn scan_reply(cursor: u64, found: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(found)])
}

/// Walks over this region's keys. At the end of the region the cursor is the start of the next
/// slot, or 0 after the last slot.
pub(crate) fn scan(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let cursor = parse_cursor(&args[1])?;
    let options = ScanOptions::parse(&args[2..], true)?;
    let SlotRange { first, last } = exec.slots;
    let mut next = match last + 1 {
        SLOT_COUNT => 0,
        behind => position(behind, 0),
    };
    let (slot, from_hash) = match cursor_slot(cursor) {
        slot if slot < first => (first, 0),
        slot if slot > last => return Ok(scan_reply(0, Vec::new())),
        slot => (slot, cursor << HASH_DROPPED),
    };
    // The cursor holds slot and hash without loss, so keys before it are not visited again.
    let mut found = Vec::new();
    let mut visited = 0;
    let mut last_position = None;
    visit_live(exec, SlotRange { first: slot, last }, from_hash, &mut |txn, key, meta| {
        let here = position(key.slot, key.hash);
        // A cursor cannot distinguish keys at one position, so they are returned together.
        if visited >= options.count && last_position != Some(here) {
            next = here;
            return ControlFlow::Break(());
        }
        visited += 1;
        last_position = Some(here);
        let wanted = options.matches(key.key)
            && options
                .type_name
                .is_none_or(|name| name.eq_ignore_ascii_case(type_name(&meta.value).as_bytes()));
        if !wanted {
            return ControlFlow::Continue(());
        }
        found.push(Reply::bulk(Bytes::copy_from_slice(key.key)));
        holding(txn, 1, key.key.len())
    })?;
    exec.check_held()?;
    Ok(scan_reply(next, found))
}

/// Returns the first key at or after a random position, wrapping around at the end.
pub(crate) fn randomkey(_: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    // The walk would read all deleted rows that flash still has.
    if exec.txn.counts(exec.db)?.keys == 0 {
        return Ok(Reply::Nil);
    }
    let mut random = Draw::new(exec.seed);
    let SlotRange { first, last } = exec.slots;
    let slot = first + random.below(exec.slots.len() as u64) as Slot;
    let hash = random.number();
    for (slots, from_hash) in [(SlotRange { first: slot, last }, hash), (SlotRange { first, last: slot }, 0)]
    {
        let mut found = None;
        visit_live(exec, slots, from_hash, &mut |_, key, _| {
            found = Some(Bytes::copy_from_slice(key.key));
            ControlFlow::Break(())
        })?;
        if let Some(key) = found {
            return Ok(Reply::Bulk(key));
        }
    }
    Ok(Reply::Nil)
}

/// Replies with the number of keys. As in Redis, expired keys count until they are deleted.
pub(crate) fn dbsize(_: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    Ok(Reply::Int(exec.txn.counts(exec.db)?.keys as i64))
}

fn check_flush(args: &[Bytes]) -> CommandResult<()> {
    let known = |arg: &Bytes| arg.eq_ignore_ascii_case(b"ASYNC") || arg.eq_ignore_ascii_case(b"SYNC");
    match &args[1..] {
        [] => Ok(()),
        [option] if known(option) => Ok(()),
        _ => fail(error_messages::SYNTAX),
    }
}

pub(crate) fn flushall(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    check_flush(args)?;
    flush_region(exec)?;
    Ok(flushed(exec))
}

fn flush_region(exec: &mut Exec<'_, '_>) -> CommandResult<()> {
    exec.txn.end_watches_of_keys()?;
    let (from, to) = rows::slots_range(exec.slots);
    exec.txn.delete_range(from, to);
    exec.txn.state_mut().clear_counts();
    Ok(())
}

/// Number of keys that `FLUSHDB` reads before it deletes them.
const FLUSHED_AT_ONCE: usize = 4096;

pub(crate) fn flushdb(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    check_flush(args)?;
    let db = exec.db;
    if exec.txn.state().databases().all(|(other, _)| other == db) {
        // Garbage of other databases may be deleted too, because nothing reads it.
        flush_region(exec)?;
        return Ok(flushed(exec));
    }
    // Databases share slots, so the keys are deleted one by one. Elements of large collections are
    // left to the sweep.
    let (mut slots, mut from_hash) = (exec.slots, 0);
    loop {
        let mut doomed = Vec::new();
        visit_keys(exec.txn, slots, db, from_hash, &mut |key, value| {
            (slots.first, from_hash) = (key.slot, key.hash);
            doomed.push((Bytes::copy_from_slice(key.key), Bytes::copy_from_slice(value)));
            match doomed.len() < FLUSHED_AT_ONCE {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let is_last = doomed.len() < FLUSHED_AT_ONCE;
        for (key, value) in doomed {
            let key = exec.key(&key);
            let meta = Meta::decode(&value)?;
            exec.remove(&key, &meta)?;
        }
        if is_last {
            return Ok(flushed(exec));
        }
    }
}

fn flushed(exec: &mut Exec<'_, '_>) -> Reply {
    if let Some(record) = exec.txn.record_mut() {
        record.flush();
    }
    Reply::OK
}

#[cfg(test)]
mod tests {
    use super::parse_cursor_text;

    #[test]
    fn cursors_are_read_as_c_reads_unsigned_numbers() {
        for (text, cursor) in [("", 0), ("0", 0), ("+7", 7), ("007", 7), ("7\0x", 7), ("-1", u64::MAX)] {
            assert_eq!(parse_cursor_text(text.as_bytes()), Some(cursor), "{text:?}");
        }
        assert_eq!(parse_cursor_text(u64::MAX.to_string().as_bytes()), Some(u64::MAX));
        for text in ["+", "-", "--1", "-+1", " 1", "1 ", "0x1", "x", "18446744073709551616"] {
            assert_eq!(parse_cursor_text(text.as_bytes()), None, "{text:?}");
        }
    }
}
