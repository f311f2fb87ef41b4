//! Copies in parts give the replies and the keys that the commands give at once, whatever happens
//! between the parts, and leave nothing behind.

#[path = "support/consistency.rs"]
mod consistency;

use bytes::Bytes;
use consistency::{check, REGION};
use proptest::prelude::*;
use resp::Reply;
use steelyard_command::copying::{has_large_source, Copying, Next, Sizes};
use steelyard_command::entry::{apply, Builder};
use storage::{load_state, MemoryKeyspace, Txn};
use types::{SlotRange, NEWEST_VERSION, SLOT_COUNT};

/// Sizes that the collections of the test exceed.
const SIZES: Sizes = Sizes { elements: 100, rows: 90 };
/// Removals go in parts from 80 members on.
const REMOVING_SIZES: Sizes = Sizes { elements: 20, rows: 90 };
const KEYS: [&str; 4] = ["a", "b", "c", "{a}1"];
const DATABASES: u16 = 2;
/// Time in milliseconds after which the sweep deletes a copy that was not ended.
const ABANDONED_MS: u64 = 61_000;

#[derive(Clone, Debug)]
enum Step {
    Command(String),
    /// Begins a copy, if few are under way.
    Begin(String),
    /// Lets a copy ask next, and loses its answer if it is lost.
    Go {
        copy: usize,
        is_lost: bool,
    },
    Abandon(usize),
    Sweep,
    Wait(u64),
}

fn copy() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(&KEYS[..]);
    prop_oneof![
        2 => (key(), key()).prop_map(|(a, b)| format!("COPY {a} {b} REPLACE")),
        1 => (key(), key()).prop_map(|(a, b)| format!("copy {a} {b}")),
        1 => (key(), key()).prop_map(|(a, b)| format!("COPY {a} {b} DB 1 REPLACE")),
        2 => (key(), key()).prop_map(|(a, b)| format!("RENAME {a} {b}")),
        1 => (key(), key()).prop_map(|(a, b)| format!("RenameNX {a} {b}")),
        1 => key().prop_map(|a| format!("MOVE {a} 1")),
        1 => key().prop_map(|a| format!("MOVE {a} none")),
    ]
}

/// A command that stores a result of sets.
fn storing() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(&KEYS[..]);
    let keys = || (key(), key(), key());
    let options = || {
        prop::sample::select(vec![
            "",
            " WEIGHTS 2 -1.5",
            " AGGREGATE MAX",
            " WEIGHTS -inf inf AGGREGATE SUM",
            " x",
        ])
    };
    let range = prop::sample::select(vec![
        "0 -1",
        "5 -20",
        "30 400 REV",
        "(1 5 BYSCORE",
        "+inf -inf BYSCORE REV LIMIT 10 270",
        "- [m3 BYLEX",
        "1 x",
    ]);
    let name = |names: &[&'static str]| prop::sample::select(names.to_vec());
    prop_oneof![
        3 => (name(&["SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE"]), keys())
            .prop_map(|(name, (to, a, b))| format!("{name} {to} {a} {b}")),
        1 => (name(&["SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE"]), key(), key())
            .prop_map(|(name, to, a)| format!("{name} {to} {a}")),
        3 => (name(&["ZUNIONSTORE", "ZINTERSTORE"]), keys(), options())
            .prop_map(|(name, (to, a, b), options)| format!("{name} {to} 2 {a} {b}{options}")),
        1 => keys().prop_map(|(to, a, b)| format!("ZDIFFSTORE {to} 2 {a} {b}")),
        2 => (key(), key(), range).prop_map(|(to, a, range)| format!("ZRANGESTORE {to} {a} {range}")),
    ]
}

/// A command that removes many members. The scores are 0 to 6. Ranges by name of members with
/// different scores depend on the shape of the tree.
fn removing() -> impl Strategy<Value = String> {
    let key = || prop::sample::select(&KEYS[..]);
    prop_oneof![
        (key(), -400..400i16, -400..400i16).prop_map(|(k, a, b)| format!("ZREMRANGEBYRANK {k} {a} {b}")),
        (key(), 0..7u8, 0..8u8).prop_map(|(k, a, b)| format!("ZREMRANGEBYSCORE {k} {a} ({b}")),
        (key(), 0..7u8).prop_map(|(k, a)| format!("zremrangebyscore {k} -inf {a}")),
        key().prop_map(|k| format!("ZREMRANGEBYSCORE {k} x 1")),
        (key(), 0..500u16).prop_map(|(k, n)| format!("ZPOPMIN {k} {n}")),
        (key(), 0..500u16).prop_map(|(k, n)| format!("zpopmax {k} {n}")),
        (key(), 0..500u16).prop_map(|(k, n)| format!("SPOP {k} {n}")),
        key().prop_map(|k| format!("ZPOPMIN {k} -1")),
    ]
}

fn copies_and_results() -> impl Strategy<Value = String> {
    prop_oneof![1 => copy(), 5 => storing()]
}

fn copies_and_removals() -> impl Strategy<Value = String> {
    prop_oneof![1 => copy(), 5 => removing()]
}

fn step(begun: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = Step> {
    let key = || prop::sample::select(&KEYS[..]);
    let command = prop_oneof![
        2 => (key(), 0..400u16).prop_map(|(k, n)| format!("HSET {k} {n}")),
        2 => (key(), 0..400u16).prop_map(|(k, n)| format!("SADD {k} {n}")),
        2 => (key(), 0..400u16).prop_map(|(k, n)| format!("ZADD {k} {n}")),
        1 => (key(), 1..200u16).prop_map(|(k, n)| format!("SADD {k} {n}..{}", n + 330)),
        1 => (key(), 1..200u16).prop_map(|(k, n)| format!("ZADD {k} {n}..{}", n + 330)),
        2 => (key(), 0..1400u16).prop_map(|(k, n)| format!("RPUSH {k} {n}")),
        1 => key().prop_map(|k| format!("XADD {k} *")),
        1 => key().prop_map(|k| format!("SET {k} v")),
        6 => (key(), 0..400u16).prop_map(|(k, n)| format!("HDEL {k} m{n}")),
        6 => (key(), 0..400u16).prop_map(|(k, n)| format!("SREM {k} m{n}")),
        6 => (key(), 0..400u16).prop_map(|(k, n)| format!("ZREM {k} m{n}")),
        6 => key().prop_map(|k| format!("LPOP {k} 3")),
        2 => key().prop_map(|k| format!("DEL {k}")),
        2 => (key(), 1..9000u16).prop_map(|(k, ms)| format!("PEXPIRE {k} {ms}")),
        1 => key().prop_map(|k| format!("PERSIST {k}")),
        1 => Just("FLUSHALL".to_owned()),
    ];
    prop_oneof![
        5 => command.prop_map(Step::Command),
        4 => begun.prop_map(Step::Begin),
        30 => (0..3usize, 0..20u8).prop_map(|(copy, die)| Step::Go { copy, is_lost: die == 0 }),
        1 => (0..3usize).prop_map(Step::Abandon),
        3 => Just(Step::Sweep),
        2 => (1..5000u64).prop_map(Step::Wait),
        1 => Just(Step::Wait(ABANDONED_MS)),
    ]
}

/// Returns the arguments of a command. One that adds elements adds those up to a number, or those
/// between two numbers.
fn args(line: &str) -> Vec<Bytes> {
    let mut args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    let adds = ["HSET", "SADD", "ZADD", "RPUSH"].iter().any(|name| args[0] == name);
    if adds {
        let last = args.pop().expect("a number");
        let last = std::str::from_utf8(&last).unwrap();
        let (first, last) = last.split_once("..").unwrap_or(("0", last));
        for number in first.parse::<u16>().unwrap()..=last.parse().unwrap() {
            let member = Bytes::from(format!("m{number}"));
            match &args[0][..] {
                b"HSET" => args.extend([member.clone(), member]),
                b"ZADD" => args.extend([Bytes::from((number % 7).to_string()), member]),
                _ => args.push(member),
            }
        }
    }
    if args[0] == "XADD" {
        args.extend(["f", "v"].map(Bytes::from));
    }
    args
}

/// A region's rows.
#[derive(Default)]
struct Region {
    rows: MemoryKeyspace,
    now: u64,
    entries: u64,
}

impl Region {
    fn execute(&mut self, builder: Builder) -> Vec<Option<Reply>> {
        self.entries += 1;
        let seed = types::mix(self.now ^ self.entries << 32);
        let entry = builder.finish_as(NEWEST_VERSION, self.now, seed);
        let mut txn = Txn::begin(&self.rows, REGION).unwrap();
        let replies = apply(&entry, &mut txn, SlotRange::ALL).unwrap();
        let writes = txn.finish().0;
        self.rows.write(writes);
        check(&self.rows);
        replies
    }

    fn command(&mut self, db: u16, args: &[Bytes]) -> Reply {
        let mut builder = Builder::new();
        builder.push(db, false, args);
        self.execute(builder).remove(0).expect("a reply")
    }

    fn sweep(&mut self, limit: u32) {
        let is_due = |slot: &u16| {
            steelyard_command::garbage_since(&self.rows, *slot).unwrap().is_some_and(|at| at <= self.now)
        };
        let slots: Vec<u16> = (0..SLOT_COUNT).filter(is_due).collect();
        let mut builder = Builder::new();
        slots.into_iter().for_each(|slot| builder.push_sweep(slot, limit));
        if !builder.is_empty() {
            self.execute(builder);
        }
    }

    /// Executes a command that another region with the same keys has executed. Of an `SPOP` it
    /// takes over which members were removed.
    fn same(&mut self, other: &mut Region, command: &[Bytes]) -> Reply {
        let members = |region: &mut Region| {
            let key = std::str::from_utf8(&command[1]).unwrap();
            match region.command(0, &args(&format!("SMEMBERS {key}"))) {
                Reply::Set(members) => Some(members),
                _ => None,
            }
        };
        let (true, Some(before)) = (command[0].eq_ignore_ascii_case(b"SPOP"), members(self)) else {
            return self.command(0, command);
        };
        let left = members(other).unwrap();
        let removed: Vec<Reply> = before.iter().filter(|member| !left.contains(member)).cloned().collect();
        let wanted: usize = std::str::from_utf8(&command[2]).unwrap().parse().unwrap();
        assert_eq!((removed.len(), left.len()), (wanted.min(before.len()), before.len() - removed.len()));
        let mut removal = vec![Bytes::from("SREM"), command[1].clone()];
        removal.extend(removed.iter().map(|member| match member {
            Reply::Bulk(name) => name.clone(),
            member => panic!("{member:?}"),
        }));
        if removal.len() > 2 {
            self.command(0, &removal);
        }
        Reply::Set(removed)
    }

    /// Returns everything that a client can see.
    fn shown(&mut self) -> Vec<Reply> {
        let mut shown = Vec::new();
        for db in 0..DATABASES {
            for key in KEYS {
                for command in ["TYPE", "PEXPIRETIME", "DUMP"] {
                    shown.push(self.command(db, &args(&format!("{command} {key}"))));
                }
            }
            // Expired keys, which may still count, were looked up before.
            shown.push(self.command(db, &args("DBSIZE")));
        }
        shown
    }
}

/// A copy under way, and what it asks next.
struct Active {
    copying: Copying,
    command: Vec<Bytes>,
    asks: Vec<Bytes>,
}

impl Active {
    /// Returns true if the next request may execute the command.
    fn may_end(&self) -> bool {
        self.asks[0] != "\0copypart" && self.asks[0] != "\0copydrop"
    }
}

/// Returns true for the reply of a copy that has begun.
fn has_begun(reply: &Reply) -> bool {
    let Reply::Array(items) = reply else { return false };
    matches!(items.first(), Some(Reply::Simple(word)) if word == "BEGUN")
}

/// Puts the members of a set in order.
fn sorted(reply: Reply) -> Reply {
    match reply {
        Reply::Set(mut members) => {
            members.sort_by_key(|member| format!("{member:?}"));
            Reply::Set(members)
        }
        reply => reply,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn copies_in_parts_are_as_copies_at_once(steps in proptest::collection::vec(step(copy()), 1..120)) {
        compare(["HSET a 300", "SADD b 300", "ZADD c 300", "RPUSH {a}1 1300"], SIZES, steps)?;
    }

    #[test]
    fn results_in_parts_are_as_results_at_once(steps in proptest::collection::vec(step(copies_and_results()), 1..120)) {
        compare(["SADD a 370", "SADD b 100..500", "ZADD c 300", "ZADD {a}1 150..450"], SIZES, steps)?;
    }

    #[test]
    fn removals_in_parts_are_as_removals_at_once(steps in proptest::collection::vec(step(copies_and_removals()), 1..120)) {
        compare(["SADD a 370", "ZADD b 100..500", "ZADD c 300", "ZADD {a}1 150..450"], REMOVING_SIZES, steps)?;
    }
}

/// Takes the steps with parts, and without them.
fn compare(keys: [&str; 4], sizes: Sizes, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut region, mut model) = (Region::default(), Region::default());
    let mut copies: Vec<Active> = Vec::new();
    let mut now = 1;
    (region.now, model.now) = (now, now);
    for line in keys {
        prop_assert_eq!(region.command(0, &args(line)), model.command(0, &args(line)));
    }
    for step in steps {
        now += 1;
        (region.now, model.now) = (now, now);
        match step {
            Step::Command(line) => {
                let args = args(&line);
                prop_assert_eq!(region.command(0, &args), model.command(0, &args), "{}", line);
            }
            Step::Begin(line) if copies.len() < 3 => {
                let command = args(&line);
                let (copying, asks) = Copying::begin(command.clone(), sizes);
                copies.push(Active { copying, command, asks });
            }
            Step::Begin(_) => {}
            Step::Go { copy, is_lost } if copy < copies.len() => {
                let active = &mut copies[copy];
                let reply = region.command(0, &active.asks);
                // These replies are the command's own.
                let is_done = active.may_end() && !has_begun(&reply) && reply != Reply::Nil;
                let expected = is_done.then(|| model.same(&mut region, &active.command));
                let lost = Reply::error("UNKNOWN outcome");
                match active.copying.answered(if is_lost { lost.clone() } else { reply }) {
                    Next::Ask(asks) => {
                        prop_assert!(expected.is_none() || is_lost, "{:?}", active.command);
                        active.asks = asks;
                    }
                    Next::Reply(reply) => {
                        let command = copies.remove(copy).command;
                        match expected {
                            Some(expected) if !is_lost => {
                                prop_assert_eq!(sorted(reply), sorted(expected), "{:?}", command);
                            }
                            _ => prop_assert_eq!(reply, lost, "{:?}", command),
                        }
                        prop_assert_eq!(region.shown(), model.shown());
                    }
                }
            }
            Step::Go { .. } => {}
            Step::Abandon(copy) => drop((copy < copies.len()).then(|| copies.remove(copy))),
            Step::Sweep => region.sweep(50),
            Step::Wait(ms) => now += ms,
        }
    }
    prop_assert_eq!(region.shown(), model.shown());
    // Nothing of the copies is left but the keys.
    now += ABANDONED_MS;
    (region.now, model.now) = (now, now);
    prop_assert_eq!(region.command(0, &args("FLUSHALL")), Reply::OK);
    region.sweep(1_000_000);
    prop_assert_eq!(region.rows.len(), 1, "only the region's state is left");
    let state = load_state(&region.rows, REGION).unwrap();
    prop_assert_eq!(state.bytes(), 0);
    prop_assert!(state.watches.is_empty());
    Ok(())
}

/// Returns the commands that a copy asks for until it has its reply.
fn run(region: &mut Region, line: &str, between: &mut dyn FnMut(&mut Region)) -> (usize, Reply) {
    let (mut copying, mut asks) = Copying::begin(args(line), SIZES);
    let mut count = 0;
    loop {
        count += 1;
        let reply = region.command(0, &asks);
        match copying.answered(reply) {
            Next::Ask(next) => asks = next,
            Next::Reply(reply) => return (count, reply),
        }
        between(region);
    }
}

#[test]
fn a_copy_reads_its_rows_once_and_small_keys_need_one_command() {
    let mut region = Region { now: 1, ..Region::default() };
    region.command(0, &args("HSET a 369"));
    let parts = 370usize.div_ceil(SIZES.rows as usize);
    assert_eq!(run(&mut region, "COPY a b", &mut |_| {}), (1 + parts + 1, Reply::Int(1)));
    assert_eq!(run(&mut region, "COPY a b", &mut |_| {}), (1, Reply::Int(0)));
    assert_eq!(
        run(&mut region, "COPY a a", &mut |_| {}),
        (1, Reply::error("ERR source and destination objects are the same"))
    );
    assert_eq!(run(&mut region, "RENAME c b", &mut |_| {}), (1, Reply::error("ERR no such key")));
    region.command(0, &args("SET c v"));
    assert_eq!(run(&mut region, "RENAME c b", &mut |_| {}), (1, Reply::OK));
}

#[test]
fn a_result_in_parts_reads_each_element_once_and_small_sets_need_one_command() {
    let mut region = Region { now: 1, ..Region::default() };
    for line in ["SADD a 400", "SADD b 200..600", "ZADD c 400", "SADD few 98", "SADD none 700..800"] {
        region.command(0, &args(line));
    }
    let mut parts = |line: &str, reply: i64| {
        let (count, answer) = run(&mut region, line, &mut |_| {});
        assert_eq!(answer, Reply::Int(reply), "{line}");
        count as i64 - 2
    };
    let in_steps = |elements: usize, rows: usize| elements.div_ceil(rows) as i64;
    // A part looks at 90 elements.
    assert!((401 * 2 / 90..=401 * 2 / 45).contains(&parts("SUNIONSTORE d a b", 601)));
    let half = in_steps(401, 45);
    assert_eq!(parts("SINTERSTORE d b a", 201), half);
    assert_eq!(parts("SDIFFSTORE d a b", 200), half);
    assert_eq!(parts("SINTERSTORE d a none", 0), in_steps(101, 45));
    assert_eq!(
        parts("ZINTERSTORE d 2 a c WEIGHTS 1 2", 401),
        half + in_steps(401, 90),
        "and those that append to the tree"
    );
    assert_eq!(parts("ZRANGESTORE d c 100 -1", 301), in_steps(301, 90));
    // As many keys as these are combined at once.
    let (line, whole) = (format!("SUNIONSTORE d{}", " a".repeat(17)), -1);
    assert_eq!(parts(&line, 401), whole);
    for (line, reply) in [
        ("SUNIONSTORE d few", 99),
        ("SINTERSTORE d a few", 99),
        ("SDIFFSTORE d few a", 0),
        ("ZRANGESTORE d c 0 98", 99),
        ("SDIFFSTORE d absent a", 0),
    ] {
        assert_eq!(parts(line, reply), whole, "{line}");
    }
    assert_eq!(
        run(&mut region, "SUNIONSTORE d a c", &mut |_| {}).1,
        Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
    );
}

#[test]
fn a_removal_in_parts_copies_what_is_left() {
    let mut region = Region { now: 1, ..Region::default() };
    let parts = |region: &mut Region, line: &str, expected: (usize, i64), left: i64| {
        region.command(0, &args("ZADD z 1999"));
        region.command(0, &args("PEXPIRE z 5000"));
        assert_eq!(run(region, line, &mut |_| {}), (expected.0, Reply::Int(expected.1)), "{line}");
        assert_eq!(region.command(0, &args("ZCARD z")), Reply::Int(left), "{line}");
        assert_eq!(region.command(0, &args("PEXPIRETIME z")), Reply::Int(if left > 0 { 5001 } else { -2 }));
        region.sweep(1_000_000);
    };
    let in_parts = |left: usize| 1 + left.div_ceil(90) + 1;
    parts(&mut region, "ZREMRANGEBYRANK z 0 999", (in_parts(1000), 1000), 1000);
    parts(&mut region, "ZREMRANGEBYRANK z -1000 -1", (in_parts(1000), 1000), 1000);
    // The members before and behind the range are copied one after the other.
    parts(&mut region, "ZREMRANGEBYRANK z 450 1349", (in_parts(450) + in_parts(650) - 2, 900), 1100);
    parts(&mut region, "ZREMRANGEBYSCORE z 2 5", (in_parts(572) + in_parts(285) - 2, 1143), 857);
    region.command(
        0,
        &["ZADD", "even"]
            .map(Bytes::from)
            .into_iter()
            .chain((0..2000).flat_map(|number| ["0".into(), format!("m{number:04}").into()]))
            .collect::<Vec<Bytes>>(),
    );
    assert_eq!(
        run(&mut region, "ZREMRANGEBYLEX even [m0500 (m1500", &mut |_| {}),
        (in_parts(500) + in_parts(500) - 2, Reply::Int(1000))
    );
    assert_eq!(
        region.command(0, &args("ZRANGE even 499 500")),
        Reply::Array(vec![Reply::bulk("m0499"), Reply::bulk("m1500")])
    );
    // Few are removed, few are left, and too many would be copied for those that are removed.
    for (line, removed) in [
        ("ZREMRANGEBYRANK z 0 398", 399),
        ("ZREMRANGEBYRANK z 399 -1", 1601),
        ("ZREMRANGEBYRANK z 0 -1", 2000),
        ("ZREMRANGEBYRANK z 5 4", 0),
    ] {
        parts(&mut region, line, (1, removed), 2000 - removed);
    }
    region.command(0, &args("ZADD large 2499"));
    let (count, reply) = run(&mut region, "ZREMRANGEBYRANK large 0 498", &mut |_| {});
    assert_eq!((count, reply), (1, Reply::Int(499)), "499 removed, 2001 left");
    assert_eq!(
        run(&mut region, "ZREMRANGEBYSCORE large x 1", &mut |_| {}),
        (1, Reply::error("ERR min or max is not a float"))
    );
}

/// Returns the number of commands and the members of a pop.
fn popped(region: &mut Region, line: &str) -> (usize, Vec<Reply>) {
    match run(region, line, &mut |_| {}) {
        (count, Reply::Array(members) | Reply::Set(members)) => (count, members),
        (_, reply) => panic!("{line}: {reply:?}"),
    }
}

#[test]
fn a_pop_in_parts_returns_what_its_parts_have_found() {
    let mut region = Region { now: 1, ..Region::default() };
    let in_parts = |members: usize| members.div_ceil(90);
    for (line, removed) in [("ZPOPMIN z 1200", 1200), ("ZPOPMAX z 400", 400), ("ZPOPMAX z 5000", 2000)] {
        region.command(0, &args("ZADD z 1999"));
        region.command(0, &args("PEXPIRE z 5000"));
        // The same at once.
        region.command(0, &args("ZADD model 1999"));
        let mut at_once = args(line);
        at_once[1] = Bytes::from("model");
        let expected = region.command(0, &at_once);
        let (count, members) = popped(&mut region, line);
        assert_eq!(count, 1 + in_parts(removed) + in_parts(2000 - removed) + 1, "{line}");
        assert_eq!(Reply::Array(members), expected, "{line}");
        for about in ["ZCARD", "ZRANGE"] {
            let rest =
                |key: &str| args(&format!("{about} {key}{}", if about == "ZRANGE" { " 0 -1" } else { "" }));
            assert_eq!(region.command(0, &rest("z")), region.command(0, &rest("model")), "{line}");
        }
        let left = if removed < 2000 { 5001 } else { -2 };
        assert_eq!(region.command(0, &args("PEXPIRETIME z")), Reply::Int(left), "{line}");
        region.command(0, &args("DEL z model"));
        region.sweep(1_000_000);
    }
    for (line, removed) in [("SPOP s 400", 400), ("SPOP s 1999", 1999), ("SPOP s 2000", 2000)] {
        region.command(0, &args("SADD s 1999"));
        let (count, mut members) = popped(&mut region, line);
        assert_eq!(count, 1 + in_parts(2000) + 1, "{line}");
        members.sort_by_key(|member| format!("{member:?}"));
        members.dedup();
        assert_eq!(members.len(), removed, "{line}");
        for member in members {
            let Reply::Bulk(name) = member else { panic!("{member:?}") };
            let asked = [Bytes::from("SISMEMBER"), Bytes::from("s"), name];
            assert_eq!(region.command(0, &asked), Reply::Int(0), "{line}");
        }
        assert_eq!(region.command(0, &args("SCARD s")), Reply::Int(2000 - removed as i64), "{line}");
        region.command(0, &args("DEL s"));
        region.sweep(1_000_000);
    }
    // Few are removed, or too many would be copied for those that are removed.
    region.command(0, &args("SADD s 1999"));
    region.command(0, &args("ZADD z 2499"));
    for (line, removed) in
        [("SPOP s 399", 399), ("SPOP s 0", 0), ("ZPOPMIN z 499", 998), ("ZPOPMAX none 600", 0)]
    {
        let (count, members) = popped(&mut region, line);
        assert_eq!((count, members.len()), (1, removed), "{line}");
    }
    for line in ["SPOP z 600", "ZPOPMIN s 600"] {
        let (count, reply) = run(&mut region, line, &mut |_| {});
        assert!(count == 1 && reply.is_error(), "{line}: {reply:?}");
    }
}

/// Each member of a large set is removed with the same probability.
#[test]
fn a_pop_in_parts_prefers_no_member() {
    const ROUNDS: u64 = 300;
    let mut times = std::collections::BTreeMap::new();
    for round in 0..ROUNDS {
        let mut region = Region { now: 1 + 1000 * round, ..Region::default() };
        region.command(0, &args("SADD s 999"));
        for member in popped(&mut region, "SPOP s 400").1 {
            *times.entry(format!("{member:?}")).or_insert(0u64) += 1;
        }
    }
    assert_eq!(times.len(), 1000, "each was removed at least once");
    // The sum of squared differences has the distribution chi-squared, with 1,000 degrees.
    let (mean, variance) = (ROUNDS as f64 * 0.4, ROUNDS as f64 * 0.4 * 0.6);
    let sum: f64 = times.values().map(|count| (*count as f64 - mean).powi(2) / variance).sum();
    assert!((850.0..1150.0).contains(&sum), "{sum}");
}

/// Members that wait for the end of a removal are bounded.
#[test]
fn a_pop_of_very_large_members_is_executed_at_once() {
    let mut region = Region { now: 1, ..Region::default() };
    let member = |number: usize| Bytes::from(format!("{number}-{}", "m".repeat(200_000)));
    let add = ["SADD", "s"].map(Bytes::from).into_iter().chain((0..500).map(member));
    region.command(0, &add.collect::<Vec<_>>());
    let (mut copying, mut asks) = Copying::begin(args("SPOP s 450"), SIZES);
    let mut asked = Vec::new();
    let reply = loop {
        asked.push(asks[0].clone());
        match copying.answered(region.command(0, &asks)) {
            Next::Ask(next) => asks = next,
            Next::Reply(reply) => break reply,
        }
    };
    assert!(matches!(reply, Reply::Set(members) if members.len() == 450));
    assert_eq!(asked[asked.len() - 2..], ["\0copydrop", "SPOP"]);
    assert!(asked.len() > 100, "{}", asked.len());
    assert_eq!(region.command(0, &args("SCARD s")), Reply::Int(50));
    assert!(load_state(&region.rows, REGION).unwrap().watches.is_empty());
}

/// A client that removes members again and again leaves no more to the sweep than one set.
#[test]
fn a_removal_is_executed_at_once_while_the_last_one_is_swept() {
    let mut region = Region { now: 1, ..Region::default() };
    let removed = |region: &mut Region| {
        region.command(0, &args("ZADD z 1999"));
        run(region, "ZREMRANGEBYRANK z 0 999", &mut |_| {})
    };
    assert!(removed(&mut region).0 > 2);
    assert_eq!(removed(&mut region), (1, Reply::Int(1000)));
    region.sweep(500);
    assert_eq!(removed(&mut region), (1, Reply::Int(1000)));
    region.sweep(1_000_000);
    assert!(removed(&mut region).0 > 2);
    // The garbage of another key does not count.
    region.sweep(1_000_000);
    region.command(0, &args("HSET h 1000"));
    region.command(0, &args("DEL h"));
    assert!(removed(&mut region).0 > 2);
}

/// A client that removes most members of a set again and again leaves bounded garbage, although the
/// sweep is slower.
#[test]
fn removals_of_most_members_leave_bounded_garbage() {
    for line in ["ZPOPMAX z 1500", "ZREMRANGEBYRANK z 0 1499", "SPOP s 1500"] {
        let mut region = Region { now: 1, ..Region::default() };
        let (mut most, mut in_parts) = (0, 0);
        for _ in 0..40 {
            region.command(0, &args("ZADD z 1999"));
            region.command(0, &args("SADD s 1999"));
            in_parts += usize::from(run(&mut region, line, &mut |_| {}).0 > 1);
            region.sweep(400);
            most = most.max(region.rows.len());
        }
        // The rows of both sets, of a copy, and of one old generation.
        assert!(most < 4 * 2_100, "{line}: {most}");
        assert!((4..=10).contains(&in_parts), "{line}: {in_parts}");
    }
}

/// While too many copies wait, removals are executed at once.
#[test]
fn a_removal_is_not_given_up() {
    let mut region = Region { now: 1, ..Region::default() };
    region.command(0, &args("ZADD z 1999"));
    region.command(0, &args("HSET h 1000"));
    for (line, expected) in
        [("ZREMRANGEBYRANK z 0 999", Reply::Int(1000)), ("RENAME h g", Reply::error("ERR too many"))]
    {
        let (mut copying, asks) = Copying::begin(args(line), SIZES);
        assert!(matches!(copying.answered(region.command(0, &asks)), Next::Ask(_)));
        let mut asks = copying.give_up(Reply::error("ERR too many"));
        let reply = loop {
            match copying.answered(region.command(0, &asks)) {
                Next::Ask(next) => asks = next,
                Next::Reply(reply) => break reply,
            }
        };
        assert_eq!(reply, expected, "{line}");
    }
}

/// A full disk refuses parts. Removals must work nevertheless, because they make room.
#[test]
fn a_removal_without_room_for_parts_is_executed_at_once() {
    let mut region = Region { now: 1, ..Region::default() };
    region.command(0, &args("ZADD z 1999"));
    let (mut copying, mut asks) = Copying::begin(args("ZREMRANGEBYRANK z 0 999"), SIZES);
    let mut asked = Vec::new();
    let reply = loop {
        asked.push(asks[0].clone());
        let reply = match asks[0] == "\0copypart" {
            true => Reply::error("MISCONF no room"),
            false => region.command(0, &asks),
        };
        match copying.answered(reply) {
            Next::Ask(next) => asks = next,
            Next::Reply(reply) => break reply,
        }
    };
    assert_eq!(reply, Reply::Int(1000));
    assert_eq!(asked, ["\0copybegin", "\0copypart", "\0copydrop", "ZREMRANGEBYRANK"]);
    assert!(load_state(&region.rows, REGION).unwrap().watches.is_empty());
}

/// The range decides about the way of a removal, and not the set alone.
#[test]
fn few_members_of_a_large_set_are_removed_at_once() {
    let mut region = Region { now: 1, ..Region::default() };
    region.command(0, &args("ZADD z 1999"));
    region.command(0, &args("SADD s 499"));
    let is_large = |line: &str| {
        let args = args(line);
        let spec = steelyard_command::lookup(&args[0]).unwrap();
        has_large_source(spec, &args, 0, &region.rows, SIZES.elements).unwrap()
    };
    assert!(is_large("ZREMRANGEBYRANK z 0 999"));
    assert!(is_large("ZREMRANGEBYSCORE z -inf 3"));
    for line in ["ZPOPMIN z 1000", "ZPOPMAX z 3000", "SPOP s 400", "SPOP s 500"] {
        assert!(is_large(line), "{line}");
    }
    for line in [
        "ZREMRANGEBYRANK z 0 300",
        "ZREMRANGEBYRANK z 0 -1",
        "ZREMRANGEBYSCORE z 3 3",
        "ZREMRANGEBYSCORE z x 3",
        "ZREMRANGEBYRANK z 0",
        "ZREMRANGEBYRANK none 0 999",
        "ZPOPMIN z",
        "ZPOPMIN z 399",
        "ZPOPMIN none 1000",
        "SPOP s",
        "SPOP z 1000",
        "SPOP s -1000",
    ] {
        assert!(!is_large(line), "{line}");
    }
}

#[test]
fn a_source_that_changes_all_the_time_is_copied_at_once() {
    let mut region = Region { now: 1, ..Region::default() };
    region.command(0, &args("SADD a 300"));
    let mut number = 0;
    let mut change = |region: &mut Region| {
        number += 1;
        region.command(0, &args(&format!("SREM a m{number}")));
    };
    let (count, reply) = run(&mut region, "RENAME a b", &mut change);
    assert_eq!((count, reply), (7, Reply::OK), "three beginnings, each with a part, and the whole");
    assert_eq!(region.command(0, &args("SCARD b")), Reply::Int(301 - 6));
    region.sweep(1_000_000);
    assert_eq!(region.command(0, &args("DEL b")), Reply::Int(1));
    region.sweep(1_000_000);
    assert_eq!(region.rows.len(), 1);
}

#[test]
fn a_copy_that_fails_leaves_nothing_behind() {
    for (asked, error) in [("\0copypart", "MISCONF no room"), ("\0copyend", "UNKNOWN outcome")] {
        let mut region = Region { now: 1, ..Region::default() };
        region.command(0, &args("HSET a 150"));
        let (mut copying, mut asks) = Copying::begin(args("COPY a b"), SIZES);
        let reply = loop {
            let mut reply = region.command(0, &asks);
            if asks[0] == asked {
                reply = Reply::error(error);
            }
            match copying.answered(reply) {
                Next::Ask(next) => asks = next,
                Next::Reply(reply) => break reply,
            }
        };
        assert_eq!(reply, Reply::error(error));
        assert!(load_state(&region.rows, REGION).unwrap().watches.is_empty());
        // The end was executed, although its answer was lost.
        assert_eq!(
            region.command(0, &args("HLEN b")),
            Reply::Int(if asked == "\0copyend" { 151 } else { 0 })
        );
        region.command(0, &args("DEL a b"));
        region.sweep(1_000_000);
        assert_eq!(region.rows.len(), 1, "only the region's state is left");
    }
}

/// Many parts in one entry hold no more than other commands.
#[test]
fn parts_of_one_entry_hold_bounded_memory() {
    let mut region = Region { now: 1, ..Region::default() };
    let large = Bytes::from(vec![b'v'; 60 << 20]);
    region
        .command(0, &["HSET", "h", "large"].map(Bytes::from).into_iter().chain([large]).collect::<Vec<_>>());
    region.command(0, &args("HSET h 150"));
    let mut copies: Vec<(Copying, Vec<Bytes>)> = (0..12)
        .map(|number| Copying::begin(args(&format!("COPY h d{number}")), Sizes { rows: 1000, ..SIZES }))
        .collect();
    let mut entries = 0;
    while !copies.is_empty() {
        let mut builder = Builder::new();
        copies.iter().for_each(|(_, asks)| builder.push(0, false, asks));
        let entry = builder.finish_as(NEWEST_VERSION, region.now, region.now);
        let mut txn = Txn::begin(&region.rows, REGION).unwrap();
        let replies = apply(&entry, &mut txn, SlotRange::ALL).unwrap();
        assert!(txn.held() <= storage::HeldLimit::default().bytes);
        let writes = txn.finish().0;
        region.rows.write(writes);
        entries += 1;
        let mut left = Vec::new();
        for ((mut copying, _), reply) in copies.into_iter().zip(replies) {
            match copying.answered(reply.expect("a reply")) {
                Next::Ask(asks) => left.push((copying, asks)),
                Next::Reply(reply) => assert_eq!(reply, Reply::Int(1)),
            }
        }
        copies = left;
    }
    assert!(entries > 4, "{entries}");
    check(&region.rows);
}

/// Two copies that begin one after the other have generations one after the other.
#[test]
fn copies_to_one_destination_do_not_end_each_other() {
    for (first, second) in [
        ("SUNIONSTORE d a b", "SINTERSTORE d a b"),
        ("COPY a d REPLACE", "ZUNIONSTORE d 2 a b"),
        ("ZUNIONSTORE d 2 a b", "COPY a d REPLACE"),
        ("ZUNIONSTORE d 2 a b", "ZINTERSTORE d 2 a b"),
    ] {
        let mut region = Region { now: 1, ..Region::default() };
        region.command(0, &args("SADD a 400"));
        region.command(0, &args("SADD b 100..500"));
        let mut alone = |line: &str| run(&mut region, line, &mut |_| {}).0;
        let expected = alone(first) + alone(second);
        let mut copies = [first, second].map(|line| Some(Copying::begin(args(line), SIZES)));
        let mut count = 0;
        while copies.iter().any(Option::is_some) {
            for slot in &mut copies {
                let Some((mut copying, asks)) = slot.take() else { continue };
                count += 1;
                if let Next::Ask(next) = copying.answered(region.command(0, &asks)) {
                    *slot = Some((copying, next));
                }
            }
        }
        assert_eq!(count, expected, "neither began again: {first}, {second}");
        assert!(load_state(&region.rows, REGION).unwrap().watches.is_empty());
        region.command(0, &args("DEL a b d"));
        region.sweep(1_000_000);
        assert_eq!(region.rows.len(), 1, "only the region's state is left");
    }
}

#[test]
fn nobody_is_told_of_a_copy_before_its_end() {
    let mut region = Region { now: 1, ..Region::default() };
    region.command(0, &args("ZADD a 300"));
    let watched = steelyard_command::transaction::watch_args(&[Bytes::from("b")]);
    let Reply::Array(numbers) = region.command(0, &watched) else { panic!("no watch") };
    let watches = |region: &Region| load_state(&region.rows, REGION).unwrap().watches.len();
    assert_eq!((numbers.len(), watches(&region)), (1, 1));
    let mut seen = Vec::new();
    let (_, reply) = run(&mut region, "COPY a b", &mut |region| seen.push(watches(region)));
    assert_eq!(reply, Reply::Int(1));
    assert!(seen.iter().all(|count| *count == 2), "{seen:?}");
    assert_eq!(watches(&region), 0, "the end changes the destination and releases the source");
}
