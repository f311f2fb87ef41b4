use bytes::Bytes;
use resp::Reply;
use storage::{load_state, KeyRef, MemoryKeyspace, Meta, Reader, Txn, Value};
use types::{slot_of_key, SlotRange, NEWEST_VERSION};

use crate::entry::{apply, Builder};

const REGION: u64 = 1;
const STAMP_MS: u64 = 1_000_000;

#[derive(Default)]
struct Keyspace {
    engine: MemoryKeyspace,
    /// The number of rows that the last entry wrote, without the region's state.
    written: usize,
}

impl Keyspace {
    fn entry(&mut self, fill: impl FnOnce(&mut Builder)) -> Vec<Reply> {
        let mut builder = Builder::new();
        fill(&mut builder);
        let mut txn = Txn::begin(&self.engine, REGION).unwrap();
        let payload = builder.finish_as(NEWEST_VERSION, STAMP_MS, 1);
        let replies = apply(&payload, &mut txn, SlotRange::ALL).unwrap();
        let writes = txn.finish().0;
        self.written = writes.rows.len() - 1;
        self.engine.write(writes);
        replies.into_iter().map(Option::unwrap).collect()
    }

    fn run(&mut self, line: &str) -> Reply {
        let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        self.entry(|entry| entry.push(0, false, &args)).remove(0)
    }

    /// Appends entries with the times `from..to`.
    fn add(&mut self, from: u64, to: u64) {
        for ms in from..to {
            let reply = self.run(&format!("XADD s {ms}-1 f value{ms}"));
            assert_eq!(reply, Reply::bulk(format!("{ms}-1")));
        }
    }

    fn stream(&self) -> storage::Stream {
        let row = self.engine.get(&KeyRef::new(0, b"s").meta_row()).unwrap().unwrap();
        match Meta::decode(&row).unwrap().value {
            Value::Stream(stream) => *stream,
            other => panic!("{other:?}"),
        }
    }

    fn times(&mut self, line: &str) -> Vec<u64> {
        let Reply::Array(entries) = self.run(line) else { panic!("{line}") };
        let time = |entry: &Reply| match entry {
            Reply::Array(parts) => match &parts[0] {
                Reply::Bulk(id) => {
                    std::str::from_utf8(id).unwrap().split_once('-').unwrap().0.parse().unwrap()
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        entries.iter().map(time).collect()
    }

    fn sweep(&mut self, limit: u32) -> i64 {
        match self.entry(|entry| entry.push_sweep(slot_of_key(b"s"), limit))[..] {
            [Reply::Int(count)] => count,
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ranges_of_many_nodes_are_those_of_a_list() {
    let mut keyspace = Keyspace::default();
    keyspace.add(1, 451);
    assert_eq!((keyspace.stream().len, keyspace.stream().nodes), (450, 5));
    // One node loses entries at its ends, another one goes as a whole.
    let mut left: Vec<u64> = (1..451).collect();
    for ms in [100, 101, 102, 200, 299].into_iter().chain(301..401) {
        assert_eq!(keyspace.run(&format!("XDEL s {ms}-1")), Reply::Int(1), "{ms}");
        left.retain(|other| *other != ms);
    }
    assert_eq!((keyspace.stream().len, keyspace.stream().nodes), (345, 4));
    for from in [0, 1, 50, 100, 101, 103, 200, 201, 300, 301, 350, 401, 450, 451] {
        for to in [0, 1, 99, 100, 102, 200, 299, 300, 320, 401, 450, 500] {
            let expected: Vec<u64> = left.iter().copied().filter(|ms| (from..=to).contains(ms)).collect();
            assert_eq!(keyspace.times(&format!("XRANGE s {from} {to}")), expected, "{from} {to}");
            let reversed: Vec<u64> = expected.iter().rev().copied().collect();
            assert_eq!(keyspace.times(&format!("XREVRANGE s {to} {from}")), reversed, "{from} {to}");
            let few: Vec<u64> = reversed.into_iter().take(7).collect();
            assert_eq!(keyspace.times(&format!("XREVRANGE s {to} {from} COUNT 7")), few, "{from} {to}");
        }
    }
}

#[test]
fn an_append_writes_two_rows_and_an_acknowledgement_four() {
    let mut keyspace = Keyspace::default();
    keyspace.add(1, 301);
    keyspace.run("XADD s 301-1 f v");
    assert_eq!(keyspace.written, 2, "the meta row and a node");
    keyspace.run("XGROUP CREATE s g 0");
    keyspace.run("XREADGROUP GROUP g c STREAMS s >");
    keyspace.run("XACK s g 150-1");
    assert_eq!(keyspace.written, 4, "the pending entry and its consumer's, the consumer, the group");
    assert_eq!(keyspace.run("XADD s MAXLEN ~ 50 302-1 f v"), Reply::bulk("302-1"));
    assert_eq!(keyspace.written, 2 + 2, "trimming deletes whole nodes");
    assert_eq!(keyspace.stream().len, 102);
}

#[test]
fn the_last_pending_entry_is_found_when_later_ones_were_acknowledged() {
    let mut keyspace = Keyspace::default();
    keyspace.add(1, 61);
    keyspace.run("XGROUP CREATE s g 0");
    keyspace.run("XREADGROUP GROUP g c STREAMS s >");
    let mut pending: Vec<u64> = (1..61).collect();
    for ms in [59, 1, 60, 2, 58, 57, 30, 5, 3, 4, 56, 6, 55, 54, 53] {
        assert_eq!(keyspace.run(&format!("XACK s g {ms}-1")), Reply::Int(1));
        pending.retain(|other| *other != ms);
        let Reply::Array(summary) = keyspace.run("XPENDING s g") else { panic!() };
        let id = |ms: u64| Reply::bulk(format!("{ms}-1"));
        let expected = [Reply::Int(pending.len() as i64), id(pending[0]), id(pending[pending.len() - 1])];
        assert_eq!(summary[..3], expected, "{ms}");
    }
    for ms in pending {
        keyspace.run(&format!("XACK s g {ms}-1"));
    }
    let Reply::Array(summary) = keyspace.run("XPENDING s g") else { panic!() };
    assert_eq!(summary, [Reply::Int(0), Reply::Nil, Reply::Nil, Reply::NilArray]);
}

#[test]
fn a_stream_with_groups_is_deleted_in_steps_and_nothing_is_left() {
    for limit in [7, 100_000] {
        let mut keyspace = Keyspace::default();
        keyspace.add(1, 401);
        for group in ["g", "h"] {
            keyspace.run(&format!("XGROUP CREATE s {group} 0"));
            keyspace.run(&format!("XREADGROUP GROUP {group} alice COUNT 150 STREAMS s >"));
            keyspace.run(&format!("XREADGROUP GROUP {group} bob COUNT 150 STREAMS s >"));
        }
        keyspace.run("XGROUP CREATE s empty 0");
        assert_eq!(keyspace.run("XGROUP DESTROY s h"), Reply::Int(1));
        assert_eq!(keyspace.written, 3, "a group of any size is left to the sweep");
        assert_eq!(keyspace.run("DEL s"), Reply::Int(1));
        assert_eq!(keyspace.written, 2, "so is a stream");
        let mut steps = 0;
        while keyspace.sweep(limit) == i64::from(limit) {
            assert!(keyspace.written <= limit as usize + 3);
            steps += 1;
        }
        assert!(limit > 7 || steps > 100);
        assert_eq!(keyspace.engine.len(), 1, "only the region's state is left");
        assert_eq!(load_state(&keyspace.engine, REGION).unwrap().bytes(), 0);
    }
}
