//! Prefetch hints: the rows that a command will read, as far as its arguments show.
//!
//! The result is only a hint. A command reads missing rows when it executes, and unneeded rows do
//! no harm. A command reads the meta row of each of its keys. A command that names fields of a hash
//! or members of a set then reads their rows, whose keys depend on the meta row, a command on a
//! list or sorted set the root of its tree, and an append to a stream its last node. An expiry step
//! reads the meta rows of the expired keys. The hints include no ranges, and no nodes below a root.
//!
//! [`of_item`] tells rows that may have to be read from flash. [`touch`] brings rows that are in
//! memory into the processor's cache.

use std::ops::ControlFlow;

use bytes::Bytes;
use storage::packed::is_packed;
use storage::rows::{decode_expiry_row, due_range};
use storage::{KeyRef, Meta, Reader, Txn, Value};
use types::UnixMillis;

use crate::counted_tree::ROOT;
use crate::elements::element_row;
use crate::entry::Item;
use crate::exec::{Collection, CollectionKind};
use crate::spec::{CommandSpec, FieldSpec};
use crate::streams::entries::node_row;
use crate::table::{check_arity, fixed_keys_of, leaf};
use crate::transaction::{self, lookup_in_log};

/// A key that a command names, with the fields that it looks up in that key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub db: u16,
    /// The key. It and `fields` are slices of the command's arguments.
    pub key: Bytes,
    pub fields: Vec<Bytes>,
    /// True if the command reads the root of the key's tree or the last node of its stream, if it
    /// has one.
    pub walks_tree: bool,
}

impl Wanted {
    pub fn meta_row(&self) -> Bytes {
        KeyRef::new(self.db, &self.key).meta_row()
    }

    /// Returns the number of rows of the key that the command reads besides its meta row, unless
    /// the key is a string or does not exist.
    pub fn parts(&self) -> usize {
        self.fields.len() + usize::from(self.walks_tree)
    }

    pub fn has_parts(&self) -> bool {
        self.parts() > 0
    }

    /// Returns the rows of the fields and of the tree's root, given the key's meta row. Empty if
    /// that row is of a string.
    pub fn part_rows(&self, meta: &Bytes) -> Vec<Bytes> {
        let Ok(meta) = Meta::decode(meta) else { return Vec::new() };
        let key = KeyRef::new(self.db, &self.key);
        if let Value::Stream(stream) = &meta.value {
            let has_last = self.walks_tree && stream.nodes > 0;
            return has_last.then(|| node_row(&key, stream, stream.last_node)).into_iter().collect();
        }
        let Some(Collection { kind, generation, .. }) = Collection::of(&meta) else { return Vec::new() };
        if is_packed(generation) {
            return Vec::new();
        }
        let (has_tree, has_fields) = match kind {
            CollectionKind::Hash | CollectionKind::Set => (false, true),
            CollectionKind::SortedSet => (true, true),
            CollectionKind::List => (true, false),
        };
        let fields = self.fields.iter().filter(|_| has_fields);
        let root = (self.walks_tree && has_tree).then(|| key.node_row(generation, ROOT));
        root.into_iter().chain(fields.map(|field| element_row(&key, generation, field))).collect()
    }
}

/// Visits the keys and fields that an item of an entry with this time will look up. `reader`
/// supplies the expired keys. Errors of the reader are ignored here, because the execution of the
/// item gets them again.
pub fn of_item(item: &Item, stamp_ms: UnixMillis, reader: &dyn Reader, visit: &mut dyn FnMut(Wanted)) {
    match item {
        Item::Command { db, args, .. } => {
            if let Some(spec) = args.first().and_then(|name| lookup_in_log(name)) {
                of_command(spec, args, *db, visit);
            }
        }
        Item::ExpireDue { slot, limit } => {
            let (from, to) = due_range(*slot, stamp_ms);
            let mut left = *limit;
            let _ = reader.scan(&from, &to, &mut |row, _| match decode_expiry_row(row) {
                Ok((_, key)) if left > 0 => {
                    left -= 1;
                    let key_bytes = Bytes::copy_from_slice(key.key);
                    visit(Wanted { db: key.db, key: key_bytes, fields: Vec::new(), walks_tree: false });
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            });
        }
        Item::Sweep { .. } => {}
    }
}

/// Maximum number of keys, and of fields of each, for which [`touch`] looks ahead for a command.
/// One with more has enough look-ups of its own.
const KEYS_TOUCHED: usize = 2;
const FIELDS_TOUCHED: usize = 8;

/// Hints to a reader in memory which rows the items of an entry are about to look up, all together.
/// For a single item that would save nothing.
pub(crate) fn touch<'i>(items: impl Iterator<Item = &'i Item> + Clone, txn: &Txn<'_>) {
    if !txn.is_worth_touching() || items.clone().nth(1).is_none() {
        return;
    }
    let mut wanted = Vec::new();
    for item in items {
        let Item::Command { db, args, .. } = item else { continue };
        let Some(spec) = args.first().and_then(|name| lookup_in_log(name)) else { continue };
        if !spec.holds_commands && has_few_look_ups(leaf(spec, args), args) {
            of_command(spec, args, *db, &mut |wants| {
                let meta_row = wants.meta_row();
                wanted.push((wants, meta_row));
            });
        }
    }
    txn.touch(&wanted.iter().map(|(_, meta_row)| &meta_row[..]).collect::<Vec<_>>());
    let mut parts = Vec::new();
    for (wants, meta_row) in wanted.iter().filter(|(wants, _)| !wants.fields.is_empty()) {
        if let Some(meta) = txn.look(meta_row) {
            parts.extend(wants.part_rows(&meta));
        }
    }
    txn.touch(&parts.iter().map(|row| &row[..]).collect::<Vec<_>>());
}

fn has_few_look_ups(spec: &'static CommandSpec, args: &[Bytes]) -> bool {
    let fields = |of: FieldSpec| args.len().saturating_sub(of.first).div_ceil(of.step).min(of.count);
    fixed_keys_of(spec, args).nth(KEYS_TOUCHED).is_none() && spec.fields.map_or(0, fields) <= FIELDS_TOUCHED
}

/// Visits the keys and fields that a command will look up. Visits none if the command's argument
/// count is wrong.
pub fn of_command(spec: &'static CommandSpec, args: &[Bytes], db: u16, visit: &mut dyn FnMut(Wanted)) {
    if check_arity(spec, args).is_err() {
        return;
    }
    if spec.holds_commands {
        transaction::visit_watched(args, &mut |db, key| {
            visit(Wanted { db, key: key.clone(), fields: Vec::new(), walks_tree: false });
        });
        return transaction::visit(args, &mut |spec, db, args| of_command(spec, args, db, visit));
    }
    let leaf = leaf(spec, args);
    let fields = match leaf.fields {
        Some(of) => args.iter().skip(of.first).step_by(of.step).take(of.count).cloned().collect(),
        None => Vec::new(),
    };
    for (key, _) in fixed_keys_of(leaf, args) {
        visit(Wanted { db, key: key.clone(), fields: fields.clone(), walks_tree: leaf.walks_tree });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use storage::{MemoryKeyspace, Visit};
    use types::{slot_of_key, SlotRange};

    use super::*;
    use crate::entry::Builder;
    use crate::table::lookup;

    const STAMP_MS: UnixMillis = 1000;
    const LATER_MS: UnixMillis = 1003;

    fn args(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    fn wanted(line: &str) -> Vec<(String, Vec<String>)> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let args = args(line);
        let mut all = Vec::new();
        of_command(lookup(&args[0]).unwrap(), &args, 0, &mut |wanted| {
            all.push((text(&wanted.key), wanted.fields.iter().map(text).collect()));
        });
        all
    }

    /// A keyspace that records the rows requested.
    struct Asked<'a> {
        keyspace: &'a MemoryKeyspace,
        rows: RefCell<BTreeSet<Bytes>>,
    }

    impl Reader for Asked<'_> {
        fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
            self.rows.borrow_mut().insert(Bytes::copy_from_slice(row));
            self.keyspace.get(row)
        }

        fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> storage::Result<()> {
            self.keyspace.scan(from, to, visit)
        }
    }

    /// Executes the items that `fill` adds to an entry, and returns the rows requested.
    fn apply(keyspace: &mut MemoryKeyspace, fill: impl FnOnce(&mut Builder)) -> BTreeSet<Bytes> {
        apply_at(keyspace, STAMP_MS, fill)
    }

    fn apply_at(
        keyspace: &mut MemoryKeyspace,
        stamp_ms: UnixMillis,
        fill: impl FnOnce(&mut Builder),
    ) -> BTreeSet<Bytes> {
        let mut builder = Builder::new();
        fill(&mut builder);
        let asked = Asked { keyspace, rows: RefCell::default() };
        let state = storage::load_state(asked.keyspace, 1).unwrap();
        let mut txn = Txn::new(&asked, 1, state);
        crate::entry::apply(&builder.finish(stamp_ms, 0), &mut txn, SlotRange::ALL).unwrap();
        let (writes, _) = txn.finish();
        let rows = asked.rows.into_inner();
        keyspace.write(writes);
        rows
    }

    #[test]
    fn keys_and_fields_are_found_where_they_stand() {
        let of =
            |key: &str, fields: &[&str]| (key.to_owned(), fields.iter().map(|f| f.to_string()).collect());
        assert_eq!(wanted("set a 1 EX 5"), [of("a", &[])]);
        assert_eq!(wanted("mset a 1 b 2"), [of("a", &[]), of("b", &[])]);
        assert_eq!(wanted("hset h f 1 g 2"), [of("h", &["f", "g"])]);
        assert_eq!(wanted("hincrby h f 2"), [of("h", &["f"])]);
        assert_eq!(wanted("hdel h f g"), [of("h", &["f", "g"])]);
        assert_eq!(wanted("srem s x y"), [of("s", &["x", "y"])]);
        assert_eq!(wanted("smove s t x"), [of("s", &["x"]), of("t", &["x"])]);
        assert_eq!(wanted("sintercard 2 s t LIMIT 1"), [of("s", &[]), of("t", &[])]);
        assert_eq!(wanted("object encoding a"), [of("a", &[])]);
        assert_eq!(wanted("get"), []);
        assert_eq!(wanted("ping"), []);
    }

    #[test]
    fn every_row_that_a_command_gets_is_told_of_and_no_other() {
        let mut keyspace = MemoryKeyspace::default();
        for line in [
            "MSET a 1 b 2 n 3",
            "HSET h f 1 g 2 n 3",
            "SADD s x y z",
            "SADD t y",
            "SET due v PX 1",
            "ZADD ranked 1 x 2 y 3 z",
            "RPUSH list a b c d",
            "RPUSH other-list a",
            "XADD stream 1 f v",
        ] {
            apply(&mut keyspace, |entry| entry.push(0, false, &args(line)));
        }
        for line in [
            "SET a 2",
            "SET due 2",
            "GET b",
            "INCR n",
            "MGET a b missing",
            "APPEND a x",
            "GETSET a y",
            "EXPIRE a 100",
            "DEL a missing",
            "EXISTS b b",
            "HGET h f",
            "HMGET h f g missing",
            "HSET h f 5 g 6 z 7",
            "HINCRBY h n 2",
            "HINCRBYFLOAT h n 0.5",
            "HSETNX h f 1",
            "HSTRLEN h f",
            "HEXISTS h missing",
            "HDEL h f z",
            "HLEN h",
            "RENAME b c",
            "SADD s x new",
            "SADD other x y",
            "SREM s x missing",
            "SCARD s",
            "SISMEMBER s y",
            "SMISMEMBER s y missing",
            "SMOVE s t z",
            "ZADD ranked 1 x 5 new",
            "ZADD other-ranked 1 x 5 y",
            "ZINCRBY ranked 1 x",
            "ZREM ranked x missing",
            "ZSCORE ranked y",
            "ZMSCORE ranked y missing",
            "ZCARD ranked",
            "ZRANK ranked y",
            "ZRANGE ranked 0 -1",
            "ZCOUNT ranked 0 1",
            "ZREMRANGEBYRANK ranked 0 0",
            "GEOADD ranked 1 1 x 2 2 new-place",
            "GEOPOS ranked y missing",
            "GEODIST ranked x y",
            "GEOSEARCH ranked FROMLONLAT 1 1 BYRADIUS 1 km",
            "DUMP list",
            "DUMP h",
            "DUMP a",
            "RPUSH list e",
            "RPUSH new-list e",
            "LPUSHX list e",
            "LPOP list",
            "LLEN list",
            "LINDEX list 1",
            "LRANGE list 0 -1",
            "LSET list 0 x",
            "LTRIM list 1 -1",
            "LMOVE list other-list LEFT LEFT",
            "LMOVE list list LEFT RIGHT",
            "XADD stream 2 f v",
            "XADD new-stream 1 f v",
            "XLEN stream",
            "XREAD STREAMS stream 1",
            "XREVRANGE stream + - COUNT 1",
        ] {
            let mut told = BTreeSet::new();
            let item = Item::Command { db: 0, resp3: false, args: args(line) };
            of_item(&item, STAMP_MS, &keyspace, &mut |wanted| {
                let meta = wanted.meta_row();
                if let Some(value) = keyspace.get(&meta).unwrap() {
                    told.extend(wanted.part_rows(&value));
                }
                told.insert(meta);
            });
            let asked = apply(&mut keyspace, |entry| entry.push(0, false, &args(line)));
            assert_eq!(asked, told, "{line}");
        }
    }

    #[test]
    fn the_keys_of_a_step_of_expiry_are_told_of() {
        let mut keyspace = MemoryKeyspace::default();
        for line in ["SET {s}a 1 PX 1", "HSET {s}h f 1", "PEXPIRE {s}h 2", "SET {s}b 1", "SET {s}c 1 PX 3"] {
            apply(&mut keyspace, |entry| entry.push(0, false, &args(line)));
        }
        let slot = slot_of_key(b"{s}");
        for (limit, due) in [(2, 2), (9, 1)] {
            let mut told = BTreeSet::new();
            let item = Item::ExpireDue { slot, limit };
            of_item(&item, LATER_MS, &keyspace, &mut |wanted| {
                told.insert(wanted.meta_row());
            });
            assert_eq!(told.len(), due);
            assert_eq!(apply_at(&mut keyspace, LATER_MS, |entry| entry.push_expire_due(slot, limit)), told);
        }
    }
}
