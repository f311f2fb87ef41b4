//! Commands that change nothing because their keys do not exist need no entry of the log: as
//! reads they have the same outcome.

use std::collections::BTreeSet;

use bytes::Bytes;
use steelyard_command::entry::{apply, Builder};
use steelyard_command::{commands, execute, finds_nothing, resolve, Exec, Limits, Mode, Outcome};
use storage::{MemoryKeyspace, Reader, Txn};
use types::{SlotRange, NEWEST_VERSION};

const REGION: u64 = 1;

/// The keys that exist beside `gone` and `lost`, which do not.
const OTHERS: [&str; 6] = [
    "SET string v",
    "HSET hash f v",
    "SADD set m n",
    "ZADD zset 1 m 2 n",
    "RPUSH list a b",
    "XADD stream 1-0 f v",
];

/// Each command that needs its keys, with and without errors in its arguments.
const EXAMPLES: [&str; 74] = [
    "DEL gone",
    "DEL gone lost",
    "UNLINK gone lost",
    "EXPIRE gone 10",
    "EXPIRE gone -1 GT",
    "EXPIRE gone soon",
    "PEXPIRE gone 10 NX",
    "EXPIREAT gone 10",
    "PEXPIREAT gone 10",
    "PERSIST gone",
    "RENAME gone string",
    "RENAME gone lost",
    "RENAMENX gone list",
    "GETDEL gone",
    "GETEX gone",
    "GETEX gone PX 10",
    "GETEX gone PX none",
    "HDEL gone f g",
    "LPOP gone",
    "LPOP gone 2",
    "LPOP gone -2",
    "RPOP gone",
    "LREM gone 1 a",
    "LTRIM gone 0 1",
    "LTRIM gone a b",
    "LSET gone 0 v",
    "LINSERT gone BEFORE a v",
    "LPUSHX gone v w",
    "RPUSHX gone v",
    "LMOVE gone list LEFT RIGHT",
    "LMOVE gone gone LEFT RIGHT",
    "LMOVE gone string LEFT RIGHT",
    "LMOVE gone string UP RIGHT",
    "RPOPLPUSH gone list",
    "LMPOP 2 gone lost LEFT",
    "LMPOP 2 gone lost LEFT COUNT 0",
    "BLPOP gone lost 0",
    "BRPOP gone 0",
    "BLMOVE gone list LEFT RIGHT 0",
    "BRPOPLPUSH gone list 0",
    "BLMPOP 0 1 gone LEFT",
    "SREM gone m n",
    "SPOP gone",
    "SPOP gone 2",
    "SPOP gone -2",
    "SMOVE gone set m",
    "SMOVE gone string m",
    "ZREM gone m n",
    "ZREMRANGEBYRANK gone 0 1",
    "ZREMRANGEBYSCORE gone 0 1",
    "ZREMRANGEBYSCORE gone a b",
    "ZREMRANGEBYLEX gone - +",
    "ZPOPMIN gone",
    "ZPOPMIN gone 2",
    "ZPOPMAX gone",
    "ZPOPMAX gone -1",
    "ZMPOP 2 gone lost MIN",
    "BZPOPMIN gone lost 0",
    "BZPOPMAX gone 0",
    "BZMPOP 0 1 gone MAX",
    "XACK gone g 1-0",
    "XDEL gone 1-0 2-0",
    "XDEL gone no",
    "XTRIM gone MAXLEN 0",
    "XTRIM gone MAXLEN x",
    "XAUTOCLAIM gone g c 0 0",
    "XAUTOCLAIM gone g c x 0",
    "XGROUP DELCONSUMER gone g c",
    "XGROUP DESTROY gone g",
    "XGROUP DESTROY gone gone",
    "SPOP gone none",
    "ZPOPMIN gone none",
    "LSET gone none v",
    "LREM gone none a",
];

fn args_of(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

/// Executes a command as an entry of the log, and returns its reply and the number of rows that it
/// has written besides the region's state.
fn apply_line(engine: &mut MemoryKeyspace, line: &str) -> (resp::Reply, usize) {
    let mut builder = Builder::new();
    builder.push(0, false, &args_of(line));
    let mut txn = Txn::begin(engine, REGION).unwrap();
    let mut replies = apply(&builder.finish_as(NEWEST_VERSION, 5, 7), &mut txn, SlotRange::ALL).unwrap();
    let (writes, _) = txn.finish();
    let count = writes.rows.len() - 1 + writes.ranges_deleted.len();
    engine.write(writes);
    (replies.remove(0).expect("its slot is here"), count)
}

fn read_line(engine: &dyn Reader, line: &str) -> Outcome {
    let mut txn = Txn::read_only(engine, REGION);
    let mut exec = Exec {
        txn: &mut txn,
        now_ms: 5,
        seed: 9,
        db: 0,
        mode: Mode::Read,
        slots: SlotRange::ALL,
        limits: Limits::default(),
        resp3: false,
    };
    let args = args_of(line);
    execute(resolve(&args).unwrap(), &args, &mut exec).unwrap()
}

fn finds(engine: &dyn Reader, line: &str) -> bool {
    let args = args_of(line);
    finds_nothing(resolve(&args).unwrap(), &args, 0, engine).unwrap()
}

#[test]
fn a_command_without_its_keys_changes_nothing_and_answers_as_a_read() {
    let mut engine = MemoryKeyspace::default();
    for line in OTHERS {
        apply_line(&mut engine, line);
    }
    let mut shown = BTreeSet::new();
    for line in EXAMPLES {
        assert!(finds(&engine, line), "{line}");
        let read = read_line(&engine, line);
        let (reply, written) = apply_line(&mut engine, line);
        assert_eq!((read, written), (Outcome::Reply(reply), 0), "{line}");
        shown.insert(resolve(&args_of(line)).unwrap().name);
    }
    let all = commands().iter().copied().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    let needing: BTreeSet<_> = all.filter(|spec| spec.needs_its_keys()).map(|spec| spec.name).collect();
    assert_eq!(needing, shown);
}

#[test]
fn a_command_with_one_of_its_keys_and_one_that_creates_keys_need_an_entry() {
    let mut engine = MemoryKeyspace::default();
    for line in OTHERS {
        apply_line(&mut engine, line);
    }
    apply_line(&mut engine, "SET expired v PX 1");
    let with_keys = [
        "DEL gone string",
        "LMPOP 2 gone list LEFT",
        "ZMPOP 2 gone zset MIN",
        "SPOP set",
        "LPOP string",
        "LMOVE list gone LEFT RIGHT",
        "PERSIST string",
        "GETDEL expired",
        "DEL expired",
    ];
    let creating = [
        "SET gone v",
        "SADD gone m",
        "LPUSH gone v",
        "INCR gone",
        "APPEND gone v",
        "HINCRBY gone f 1",
        "COPY gone lost",
        "SINTERSTORE string gone",
        "SORT gone STORE string",
        "ZRANGESTORE zset gone 0 1",
        "XGROUP CREATE gone g 0 MKSTREAM",
        "PFMERGE gone lost",
        "RESTORE gone 0 x",
    ];
    for line in with_keys.into_iter().chain(creating) {
        assert!(!finds(&engine, line), "{line}");
    }
    assert!(!finds(&engine, "GET gone"), "it is a read anyway");
}
