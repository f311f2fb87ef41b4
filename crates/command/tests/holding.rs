//! A command that would hold too much in memory is refused and changes nothing. With more room it
//! is executed.

use bytes::Bytes;
use resp::Reply;
use steelyard_command::entry::{self, Builder};
use steelyard_command::transaction::{exec_args, Queued};
use steelyard_command::{execute, resolve, Exec, Limits, Mode, Outcome};
use storage::{HeldLimit, MemoryKeyspace, Txn};
use types::SlotRange;

const ELEMENTS: usize = 5000;
/// More than the reply to a command on a few elements, less than one on all of them.
const SMALL: u64 = 64 << 10;

/// Commands that hold all elements of a collection of [`ELEMENTS`], and many small ones.
const HOLDING: [&str; 64] = [
    "HGETALL hash",
    "HKEYS hash",
    "HVALS hash",
    "HSCAN hash 0 COUNT 100000",
    "HRANDFIELD hash 100000 WITHVALUES",
    "HMGET hash f1 f2 long long long",
    "SMEMBERS set",
    "SSCAN set 0 COUNT 100000",
    "SRANDMEMBER set 100000",
    "SPOP set 100000",
    "SINTER set",
    "SUNION set small",
    "SDIFF set small",
    "SINTERSTORE to set",
    "SUNIONSTORE to small set",
    "SDIFFSTORE to set small",
    "ZRANGE zset 0 -1",
    "ZRANGE zset 0 -1 WITHSCORES",
    "ZREVRANGE zset 0 -1",
    "ZRANGEBYSCORE zset -inf +inf",
    "ZRANGEBYLEX zset - +",
    "ZRANGESTORE to zset 0 -1",
    "ZSCAN zset 0 COUNT 100000",
    "ZRANDMEMBER zset 100000",
    "ZPOPMIN zset 100000",
    "ZPOPMAX zset 4000",
    "ZUNION 2 zset set",
    "ZINTER 1 zset",
    "ZDIFF 2 zset small",
    "ZUNIONSTORE to 2 set zset",
    "ZINTERSTORE to 1 zset",
    "ZDIFFSTORE to 1 zset",
    "ZMPOP 1 zset MIN COUNT 100000",
    "LRANGE list 0 -1",
    "LPOP list 100000",
    "RPOP list 4000",
    "LMPOP 1 list LEFT COUNT 100000",
    "SORT list",
    "SORT set ALPHA STORE to",
    "SORT list BY nosort GET large GET large GET large",
    "XRANGE stream - +",
    "XREVRANGE stream + -",
    "XREAD STREAMS stream 0",
    "XREADGROUP GROUP g c STREAMS stream >",
    "XPENDING stream all - + 100000",
    "XINFO STREAM stream FULL COUNT 0",
    "KEYS *",
    "MGET large large large",
    "RENAME hash to",
    "RENAME stream small",
    "RENAME pending small",
    "COPY zset to REPLACE",
    "COPY stream small REPLACE",
    "COPY list small REPLACE",
    "SPOP set 4999",
    "SRANDMEMBER set -4999",
    "HRANDFIELD hash -4999 WITHVALUES",
    "ZRANDMEMBER zset -4999",
    "LPOS same x COUNT 0",
    "LREM same 0 x",
    "LREM sparse 0 x",
    "ZREMRANGEBYRANK zset 0 2000",
    "ZREMRANGEBYLEX zset [m1 [m3",
    "XGROUP DELCONSUMER pending all c",
];

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn apply(rows: &mut MemoryKeyspace, lines: impl IntoIterator<Item = String>) {
    let mut builder = Builder::new();
    lines.into_iter().for_each(|line| builder.push(0, false, &words(&line)));
    let mut txn = Txn::begin(rows, 1).expect("rows are read");
    let replies = entry::apply(&builder.finish(1, 1), &mut txn, SlotRange::ALL).expect("it is executed");
    rows.write(txn.finish().0);
    for reply in replies.iter().flatten() {
        assert!(!reply.is_error(), "{reply:?}");
    }
}

fn filled() -> MemoryKeyspace {
    let mut rows = MemoryKeyspace::default();
    let long = "x".repeat(40_000);
    apply(
        &mut rows,
        ["SADD small a b".into(), format!("SET large {long}"), format!("HSET hash long {long}")],
    );
    for at in 0..ELEMENTS {
        apply(
            &mut rows,
            [
                format!("HSET hash f{at} value"),
                format!("SADD set m{at}"),
                format!("ZADD zset 1 m{at}"),
                format!("RPUSH list {at}"),
                format!("XADD stream {at}-1 field value"),
                format!("SET key:{at} v"),
                "RPUSH same x".into(),
                format!("RPUSH sparse {}", if at % 10 == 0 { "x" } else { "other" }),
                format!("XADD pending {at}-1 f v"),
            ],
        );
    }
    apply(
        &mut rows,
        [
            "XGROUP CREATE stream g 0",
            "XGROUP CREATE stream all 0",
            "XREADGROUP GROUP all c STREAMS stream >",
            "XGROUP CREATE pending all 0",
            "XREADGROUP GROUP all c STREAMS pending >",
            "XTRIM pending MAXLEN 1",
        ]
        .map(String::from),
    );
    rows
}

/// Executes a command as part of an entry with a limit. Returns its reply and what it writes.
fn run(rows: &MemoryKeyspace, line: &str, bytes: u64) -> (Reply, usize) {
    let args = words(line);
    let spec = resolve(&args).expect("a command");
    let mut txn = Txn::begin(rows, 1).expect("rows are read");
    txn.set_held_limit(HeldLimit { bytes, large: None });
    let mut exec = Exec {
        txn: &mut txn,
        now_ms: 1,
        seed: 1,
        db: 0,
        mode: Mode::Apply,
        slots: SlotRange::ALL,
        limits: Limits::default(),
        resp3: false,
    };
    let Ok(Outcome::Reply(reply)) = execute(spec, &args, &mut exec) else { panic!("{line}") };
    let writes = txn.finish().0;
    (reply, writes.rows.len() + writes.ranges_deleted.len())
}

#[test]
fn a_command_that_holds_too_much_is_refused_and_changes_nothing() {
    let rows = filled();
    // An entry always writes the region's state.
    let (_, nothing) = run(&rows, "GET large", SMALL);
    let refusal = Reply::error(
        "ERR the command needs more than 0 MiB of memory at once: read or write the data in parts",
    );
    for line in HOLDING {
        let (reply, written) = run(&rows, line, SMALL);
        assert_eq!((reply, written), (refusal.clone(), nothing), "{line}");
        let (reply, _) = run(&rows, line, storage::HELD_BYTES_MAX);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    for line in
        ["HLEN hash", "ZCOUNT zset -inf +inf", "SINTERCARD 1 set", "XLEN stream", "SCAN 0", "DEL list"]
    {
        assert!(!run(&rows, line, SMALL).0.is_error(), "{line}");
    }
}

/// Commands with another way hold less.
#[test]
fn what_does_not_fit_is_done_in_another_way_or_left() {
    let rows = filled();
    // There is room for the rows that are deleted, but not for those that would be written again.
    const REMOVED: u64 = 700_000;
    for (line, bytes) in
        [("LTRIM list 0 2400", SMALL), ("ZREMRANGEBYRANK zset 0 2600", REMOVED), ("LPOP list 1", SMALL)]
    {
        let (reply, written) = run(&rows, line, bytes);
        assert!(!reply.is_error() && written > 1, "{line}: {reply:?}");
    }
    let claimed = |bytes| match run(&rows, "XAUTOCLAIM stream all d 0 0 COUNT 5000", bytes).0 {
        Reply::Array(parts) => match &parts[..] {
            [Reply::Bulk(next), Reply::Array(claimed), _] => (next.clone(), claimed.len()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let (next, some) = claimed(SMALL);
    assert!((1..ELEMENTS).contains(&some) && next == format!("{some}-1"), "{next:?} {some}");
    assert_eq!(claimed(storage::HELD_BYTES_MAX), (Bytes::from_static(b"0-0"), ELEMENTS));
}

/// The commands of a transaction and of an entry hold together.
#[test]
fn an_entry_holds_what_its_commands_hold() {
    let rows = filled();
    let mut builder = Builder::new();
    for _ in 0..3 {
        builder.push(0, false, &words("COPY large copy REPLACE"));
        builder.push(0, false, &words("SMEMBERS set"));
    }
    let mut txn = Txn::begin(&rows, 1).expect("rows are read");
    // One reply fits, and two do not.
    txn.set_held_limit(HeldLimit { bytes: 700_000, large: None });
    let replies = entry::apply(&builder.finish(1, 1), &mut txn, SlotRange::ALL).expect("it is executed");
    let refused: Vec<bool> = replies.iter().flatten().map(Reply::is_error).collect();
    // What a refused command has collected is dropped, and what others hold is not.
    assert_eq!(refused, [false, false, false, true, false, true]);
    // The next entry holds nothing at first.
    let mut builder = Builder::new();
    builder.push(0, false, &words("SMEMBERS set"));
    let replies = entry::apply(&builder.finish(2, 1), &mut txn, SlotRange::ALL).expect("it is executed");
    assert!(matches!(&replies[..], [Some(Reply::Set(members))] if members.len() == ELEMENTS));
}

/// However much a command asks for, those behind it in the entry are executed, also if it does a
/// part or fails for another reason.
#[test]
fn a_refused_command_does_not_refuse_others_of_its_entry() {
    let mut rows = filled();
    apply(&mut rows, ["XADD short 1-1 f v", "XGROUP CREATE short g 0"].map(String::from));
    apply(&mut rows, (0..300).map(|at| format!("RPUSH mixed {}{at}", "9".repeat(60))));
    apply(&mut rows, ["RPUSH mixed word".to_owned()]);
    let mut builder = Builder::new();
    for line in [
        "SUNIONSTORE to set",
        "XREADGROUP GROUP g c STREAMS short stream > >",
        "SORT mixed STORE to",
        "SMEMBERS set",
    ] {
        builder.push(0, false, &words(line));
        builder.push(0, false, &words("SET key value"));
        builder.push(0, false, &words("HMGET hash f1 f2"));
    }
    // This takes more than the half of the room.
    builder.push(0, false, &words("HMGET hash long"));
    let mut txn = Txn::begin(&rows, 1).expect("rows are read");
    txn.set_held_limit(HeldLimit { bytes: SMALL, large: None });
    let replies = entry::apply(&builder.finish(1, 1), &mut txn, SlotRange::ALL).expect("it is executed");
    let refused: Vec<bool> = replies.iter().flatten().map(Reply::is_error).collect();
    let of = |is_refused| [is_refused, false, false];
    let expected = [&of(true)[..], &of(false), &of(true), &of(true), &[false]];
    assert_eq!(refused, expected.concat());
}

/// Otherwise each transaction of an entry would hold one more reply.
#[test]
fn a_read_in_a_transaction_is_refused_if_its_reply_is_too_much() {
    let rows = filled();
    let mut builder = Builder::new();
    for _ in 0..3 {
        let queued = ["GET large", "SET key value"].map(|line| Queued { db: 0, args: words(line) });
        builder.push(0, false, &exec_args(&[], &queued));
    }
    builder.push(0, false, &words("HMGET hash f1 f2"));
    let mut txn = Txn::begin(&rows, 1).expect("rows are read");
    txn.set_held_limit(HeldLimit { bytes: SMALL, large: None });
    let replies = entry::apply(&builder.finish(1, 1), &mut txn, SlotRange::ALL).expect("it is executed");
    let refused = |reply: &Reply| match reply {
        Reply::Array(replies) => replies.iter().map(Reply::is_error).collect(),
        reply => vec![reply.is_error()],
    };
    let refused: Vec<Vec<bool>> = replies.iter().flatten().map(refused).collect();
    assert_eq!(refused, [&[false, false][..], &[true, false], &[true, false], &[false, false]]);
}

/// A group's second stream does not undo the delivery of the first one.
#[test]
fn streams_that_do_not_fit_beside_others_are_left_to_the_next_read() {
    let mut rows = filled();
    apply(&mut rows, ["XADD short 1-1 f v", "XGROUP CREATE short g 0"].map(String::from));
    let line = "XREADGROUP GROUP g c STREAMS short stream > >";
    let Reply::Array(streams) = run(&rows, line, SMALL).0 else { panic!("no streams") };
    assert_eq!(streams.len(), 1);
    let Reply::Array(streams) = run(&rows, line, storage::HELD_BYTES_MAX).0 else { panic!("no streams") };
    assert_eq!(streams.len(), 2);
}
