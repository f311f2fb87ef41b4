use command::entry::Builder;
use node::Rows as _;
use resp::Reply;
use rocks::Keyspace;
use storage::{RegionState, Txn, WriteSet};
use tempfile::TempDir;
use types::{Draw, SlotRange};

use super::*;

const REGION: u64 = 1;

/// A store's rows without a row cache, so that every row that is not prefetched must be read.
struct Rows {
    engine: Engine,
    metrics: Metrics,
    state: RegionState,
    _dir: TempDir,
}

fn args(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

/// Returns an entry of these commands, and of maintenance for every slot that has keys here.
fn entry<'a>(lines: impl IntoIterator<Item = &'a str>, stamp_ms: u64) -> Bytes {
    let mut builder = Builder::new();
    for line in lines {
        builder.push(0, false, &args(line));
    }
    builder.push_expire_due(types::slot_of_key(b"k1"), 10);
    builder.finish(stamp_ms, stamp_ms)
}

impl Rows {
    fn new() -> Rows {
        let dir = tempfile::tempdir().expect("a directory");
        let options = rocks::Options { row_cache_bytes: 0, ..rocks::Options::default() };
        let flash = Keyspace::open(dir.path(), &options).expect("rows");
        Rows {
            engine: Engine::on_a_slow_device(flash),
            metrics: Metrics::new(),
            state: RegionState::default(),
            _dir: dir,
        }
    }

    /// Applies entries in one turn. Returns the replies, the written rows, and the remaining turns
    /// with prefetching.
    fn apply(&mut self, entries: &[Bytes], ahead: u32) -> (Vec<Option<Reply>>, WriteSet, u32) {
        let turn = Turn::new(&self.engine, &self.metrics, ahead, entries.to_vec());
        let mut txn = Txn::new(&turn, REGION, self.state.clone());
        let mut replies = Vec::new();
        for payload in entries {
            turn.begin_payload();
            let coming = &mut |items: &Items| turn.coming(items);
            let applied = command::entry::apply_told(payload, &mut txn, SlotRange::ALL, coming);
            replies.extend(applied.expect("it applies"));
        }
        let (writes, state) = txn.finish();
        let left = turn.left();
        self.engine.write(writes.clone());
        self.engine.rows().flush().expect("there is room");
        self.state = state;
        (replies, writes, left)
    }

    /// Applies entries and reads every row when it is requested.
    fn apply_plainly(&mut self, entries: &[Bytes]) -> (Vec<Option<Reply>>, WriteSet) {
        let mut txn = Txn::new(self.engine.rows(), REGION, self.state.clone());
        let mut replies = Vec::new();
        for payload in entries {
            replies.extend(command::entry::apply(payload, &mut txn, SlotRange::ALL).expect("it applies"));
        }
        let (writes, state) = txn.finish();
        self.engine.write(writes.clone());
        self.engine.rows().flush().expect("there is room");
        self.state = state;
        (replies, writes)
    }

    fn used(&self) -> u64 {
        self.metrics.rows_read_ahead_used.get()
    }
}

fn command(draw: &mut Draw) -> String {
    let (a, b, f, n) = (draw.below(40), draw.below(40), draw.below(6), draw.below(1000));
    match draw.below(16) {
        0..=3 => format!("SET k{a} {n}"),
        4 => format!("SET k{a} {n} PX {}", 1 + n % 50),
        5 => format!("GET k{a}"),
        6 => format!("INCR k{a}"),
        7 => format!("APPEND k{a} {n}"),
        8 => format!("MSET k{a} {n} k{b} {n}"),
        9 => format!("DEL k{a} h{b}"),
        10 => format!("HSET h{a} f{f} {n} f{n} x"),
        11 => format!("HDEL h{a} f{f}"),
        12 => format!("HINCRBY h{a} f{f} 1"),
        13 => format!("RENAME k{a} k{b}"),
        14 => format!("HGETALL h{a}"),
        _ => format!("EXPIRE h{a} {}", n % 3),
    }
}

#[test]
fn what_is_executed_is_the_same_whether_rows_are_read_ahead_or_not() {
    let (mut ahead, mut plain) = (Rows::new(), Rows::new());
    let mut draw = Draw::new(7);
    for round in 0..60u64 {
        let entries: Vec<Bytes> = (0..3)
            .map(|_| {
                let lines: Vec<String> = (0..draw.below(40)).map(|_| command(&mut draw)).collect();
                entry(lines.iter().map(String::as_str), 1000 + round * 20)
            })
            .collect();
        // Some turns begin with prefetching, and others start it during the turn.
        let (replies, writes, _) = ahead.apply(&entries, (round % 2) as u32);
        assert_eq!((replies, writes), plain.apply_plainly(&entries), "round {round}");
    }
    let (read, used) = (ahead.metrics.rows_read_ahead.get(), ahead.used());
    assert!(used > 500 && used <= read, "{used} of {read}");
}

#[test]
fn reading_ahead_begins_after_two_slow_reads_and_covers_all_that_follows() {
    let mut rows = Rows::new();
    let keys = 2 * ROWS_MAX + 100;
    let lines: Vec<String> = (0..keys).map(|key| format!("SET k{key} 1")).collect();
    let entries: Vec<Bytes> =
        lines.chunks(300).map(|part| entry(part.iter().map(String::as_str), 1)).collect();
    rows.apply_plainly(&entries);
    let (_, _, left) = rows.apply(&entries, 0);
    assert_eq!(left, TURNS - 1);
    assert_eq!(rows.used(), keys as u64 - 2, "all rows but those of the slow reads");
    let (_, _, left) = rows.apply(&entries, left);
    assert_eq!((left, rows.used()), (TURNS - 1, 2 * keys as u64 - 2));
}

#[test]
fn fields_are_read_ahead_with_their_hashes() {
    let mut rows = Rows::new();
    let lines: Vec<String> = (0..20).map(|key| format!("HSET h{key} f 1 g 2")).collect();
    let entries = [entry(lines.iter().map(String::as_str), 1)];
    rows.apply_plainly(&entries);
    rows.apply(&entries, 1);
    assert_eq!(rows.used(), 20 * 3);
}

#[test]
fn the_rest_of_a_command_with_many_keys_is_read_ahead_too() {
    let mut rows = Rows::new();
    let keys: String = (0..500).map(|key| format!(" k{key} v")).collect();
    let entries = [entry([format!("MSET{keys}").as_str()], 1)];
    rows.apply_plainly(&entries);
    rows.apply(&entries, 0);
    assert_eq!(rows.used(), 500 - 2);
}

#[test]
fn a_row_that_the_turn_has_written_is_read_as_written() {
    let mut rows = Rows::new();
    rows.apply_plainly(&[entry(["SET k1 1", "SET k2 1", "SET k3 1"], 1)]);
    let both = [entry(["INCR k1", "INCR k2"], 1), entry(["INCR k1", "DEL k3", "INCR k3"], 1)];
    let (replies, _, _) = rows.apply(&both, 1);
    let numbers: Vec<_> = replies.into_iter().flatten().collect();
    assert_eq!(numbers, [2, 2, 0, 3, 1, 1, 0].map(Reply::Int));
}

#[test]
fn where_no_read_is_slow_nothing_is_read_ahead() {
    let dir = tempfile::tempdir().expect("a directory");
    let flash = Keyspace::open(dir.path(), &rocks::Options::default()).expect("rows");
    let mut rows = Rows { engine: Engine::new(flash, crate::tuning::Tuning::default()), ..Rows::new() };
    let entries = [entry(["SET k1 1", "SET k2 1", "SET k3 1"], 1)];
    rows.apply_plainly(&entries);
    // The rows are in the row cache.
    let (_, _, left) = rows.apply(&entries, 5);
    assert_eq!((left, rows.metrics.rows_read_ahead.get()), (4, 0));
}
