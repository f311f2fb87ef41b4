//! Random removals of several commands of one entry, which share what they have read.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use resp::Reply;
use steelyard_command::entry::{apply, Builder};
use steelyard_command::scripting::{eval_args, Caller, Code, ScriptBy, ScriptCall};
use storage::{MemoryKeyspace, Txn};
use types::{SlotRange, NEWEST_VERSION};

const REGION: u64 = 1;

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

/// Returns the log's form of a command: a script's body goes with its call.
fn in_log(line: &str) -> Vec<Bytes> {
    let args = words(line);
    if !line.starts_with("EVAL ") {
        return args;
    }
    let code = Code { body: args[1].clone(), function: None };
    let call = ScriptCall { by: ScriptBy::Body, is_readonly: false };
    eval_args(call, &args, Ok(code), Caller { has_slots: false, rules: None }).expect("a script that may run")
}

fn entry(seed: u64, lines: &[&str]) -> Bytes {
    let mut builder = Builder::new();
    lines.iter().for_each(|line| builder.push(0, false, &in_log(line)));
    builder.finish_as(NEWEST_VERSION, 1, seed)
}

/// Executes entries in one batch and returns all replies.
fn execute(engine: &mut MemoryKeyspace, entries: &[Bytes]) -> Vec<Reply> {
    let mut txn = Txn::begin(engine, REGION).unwrap();
    let replies = entries.iter().flat_map(|entry| apply(entry, &mut txn, SlotRange::ALL).unwrap());
    let replies = replies.map(|reply| reply.expect("all slots are the region's")).collect();
    engine.write(txn.finish().0);
    replies
}

fn with_members(count: usize) -> MemoryKeyspace {
    let mut engine = MemoryKeyspace::default();
    let members: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    execute(&mut engine, &[entry(0, &[&format!("SADD s {}", members.join(" "))])]);
    engine
}

fn members(replies: impl IntoIterator<Item = Reply>) -> Vec<Bytes> {
    let name = |reply| match reply {
        Reply::Bulk(member) => member,
        other => panic!("{other:?} is no member"),
    };
    replies.into_iter().map(name).collect()
}

/// Replicas batch the same entries differently.
#[test]
fn the_members_do_not_depend_on_how_entries_are_batched() {
    let script = "EVAL return{redis.call('SPOP',KEYS[1]),redis.call('SPOP',KEYS[1])} 1 s";
    let changing = ["SPOP s", "SADD s m1 m2 m3", "SPOP s", "SPOP s 2", "SPOP s"];
    let entries: Vec<Bytes> = (1..=40)
        .map(|seed| match seed % 3 {
            0 => entry(seed, &["SPOP s"]),
            1 => entry(seed, &["SPOP s", script, "SPOP s", "SPOP s", "SPOP s", "SPOP s"]),
            _ => entry(seed, &changing),
        })
        .collect();
    let expected = execute(&mut with_members(2000), &entries);
    assert!(expected.iter().all(|reply| !matches!(reply, Reply::Error(_) | Reply::Nil)), "{expected:?}");
    for size in [1, 2, 3, 7] {
        let mut engine = with_members(2000);
        let replies: Vec<Reply> =
            entries.chunks(size).flat_map(|entries| execute(&mut engine, entries)).collect();
        assert_eq!(replies, expected, "batches of {size}");
    }
}

/// The elements that a removal leaves for others may be removed, or come back, before the next one.
#[test]
fn every_reply_is_a_member_at_that_moment() {
    let mut engine = with_members(600);
    let mut expected: BTreeSet<Bytes> = (0..600).map(|number| Bytes::from(format!("m{number}"))).collect();
    let mut removed = 0;
    for seed in 1..=60u64 {
        let (first, second) = (seed * 7 % 600, seed * 13 % 600);
        let (gone, back) = (format!("SREM s m{first} m{second}"), format!("SADD s m{first}"));
        let lines = ["SPOP s", &gone, "SPOP s", "SPOP s", &back, "SPOP s", "SPOP s", "SPOP s"];
        let replies = execute(&mut engine, &[entry(seed, &lines)]);
        for (line, reply) in lines.iter().zip(replies) {
            let names = words(line).split_off(2.min(line.split(' ').count()));
            match &line[..4] {
                "SREM" => {
                    let count = names.iter().filter(|name| expected.remove(*name)).count();
                    assert_eq!(reply, Reply::Int(count as i64));
                }
                "SADD" => assert_eq!(reply, Reply::Int(i64::from(expected.insert(names[0].clone())))),
                _ => {
                    let member = members([reply]).remove(0);
                    assert!(expected.remove(&member), "{member:?} was no member");
                    removed += 1;
                }
            }
        }
    }
    assert_eq!(removed, 360);
    let left = execute(&mut engine, &[entry(0, &["SCARD s"])]);
    assert_eq!(left, [Reply::Int(expected.len() as i64)]);
}

#[test]
fn a_member_that_was_left_and_is_removed_meanwhile_is_not_popped() {
    for seed in 0..20 {
        let mut engine = with_members(300);
        let others: Vec<String> = (1..300).map(|number| format!("m{number}")).collect();
        let removal = format!("SREM s {}", others.join(" "));
        let replies = execute(&mut engine, &[entry(seed, &["SPOP s", &removal, "SPOP s"])]);
        let m0 = Reply::Bulk(Bytes::from_static(b"m0"));
        let expected = if replies[0] == m0 { [Reply::Int(299), Reply::Nil] } else { [Reply::Int(298), m0] };
        assert_eq!(replies[1..], expected);
    }
}

/// A set whose members are all removed in one entry ends, and another set takes nothing of it.
#[test]
fn an_entry_empties_a_set_and_fills_it_again() {
    let mut engine = with_members(300);
    let pops = vec!["SPOP s"; 301];
    let again = ["SADD s a", "SPOP s", "SPOP s", "EXISTS s"];
    let lines: Vec<&str> = pops.into_iter().chain(again).collect();
    let mut replies = execute(&mut engine, &[entry(1, &lines)]);
    let last = replies.split_off(300);
    assert_eq!(members(replies).into_iter().collect::<BTreeSet<_>>().len(), 300);
    let a = Reply::Bulk(Bytes::from_static(b"a"));
    assert_eq!(last, [Reply::Nil, Reply::Int(1), a, Reply::Nil, Reply::Int(0)]);
}

/// Each set has its own members, which removals from the other sets do not take.
#[test]
fn sets_of_one_entry_take_nothing_of_each_other() {
    let names =
        |prefix: &str| (0..300).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>().join(" ");
    let (a, b) = (format!("SADD s {}", names("a")), format!("SADD t {}", names("b")));
    for seed in 0..20 {
        let mut engine = MemoryKeyspace::default();
        execute(&mut engine, &[entry(0, &[&a, &b])]);
        let lines = ["SPOP s", "SPOP t", "SPOP s", "SPOP s", "SPOP t", "SPOP t"];
        let popped = members(execute(&mut engine, &[entry(seed, &lines)]));
        for (line, member) in lines.iter().zip(popped) {
            assert_eq!(member[0], if line.ends_with('s') { b'a' } else { b'b' }, "{line}: {member:?}");
        }
        // The same key again, with other members.
        let c = format!("SADD s {}", names("c"));
        let replies = execute(&mut engine, &[entry(seed, &["SPOP s", "UNLINK s", &c, "SPOP s", "SPOP s"])]);
        assert!(members(replies.into_iter().skip(3)).iter().all(|member| member[0] == b'c'));
    }
}

/// The sum over all members of the squared difference of their count from the mean, relative to the
/// mean (chi-squared). By chance alone it is about the number of members, and its standard
/// deviation the root of twice that number.
fn chi_squared(members: usize, counts: &BTreeMap<Bytes, u64>) -> f64 {
    let mean = counts.values().sum::<u64>() as f64 / members as f64;
    let square = |count: u64| (count as f64 - mean).powi(2) / mean;
    counts.values().map(|count| square(*count)).sum::<f64>() + (members - counts.len()) as f64 * mean
}

fn count(counts: &mut BTreeMap<Bytes, u64>, picked: Vec<Bytes>) {
    picked.into_iter().for_each(|member| *counts.entry(member).or_default() += 1);
}

#[test]
fn shared_random_removals_are_almost_uniform() {
    const SIZE: usize = 1000;
    let full = with_members(SIZE);
    let mut counts = BTreeMap::new();
    for seed in 0..400 {
        count(&mut counts, members(execute(&mut full.clone(), &[entry(seed * 7919, &["SPOP s"; 50])])));
    }
    let statistic = chi_squared(SIZE, &counts);
    let deviation = (2.0 * SIZE as f64).sqrt();
    assert!((statistic - SIZE as f64).abs() < 5.0 * deviation, "chi-squared is {statistic}");
}

/// Members that are removed together are neighbours. What remains must stay even enough for picks.
#[test]
fn picks_stay_almost_uniform_after_shared_removals() {
    const SIZE: usize = 2000;
    let mut engine = with_members(4 * SIZE);
    for seed in 0..(3 * SIZE / 50) as u64 {
        execute(&mut engine, &[entry(seed * 7919, &["SPOP s"; 50])]);
    }
    assert_eq!(execute(&mut engine, &[entry(0, &["SCARD s"])]), [Reply::Int(SIZE as i64)]);
    let mut counts = BTreeMap::new();
    for seed in 0..4000 {
        count(&mut counts, members(execute(&mut engine, &[entry(seed * 7919, &["SRANDMEMBER s"; 50])])));
    }
    // The bound is that of a tenth of the members that are picked a sixth less often, and chance.
    let (statistic, picks_per_member) = (chi_squared(SIZE, &counts), 100.0);
    let uneven = 0.1 * SIZE as f64 * picks_per_member / 36.0 * 1.2;
    let deviation = (2.0 * SIZE as f64).sqrt();
    assert!(statistic < SIZE as f64 + uneven + 4.0 * deviation, "chi-squared is {statistic}");
}
