use proptest::prelude::*;

use super::*;
use crate::chance::Chance;
use crate::history::{Answer, Call, Member};
use crate::workload::{Judged, HISTORIES_ENV};

fn read(value: &str) -> (Call, Option<Answer>) {
    let value = (!value.is_empty()).then(|| value.to_owned());
    (Call::Read(vec![0]), Some(Answer::Values(vec![value])))
}

fn write(value: &str) -> (Call, Option<Answer>) {
    (Call::Write(vec![(0, value.into())]), Some(Answer::Written))
}

fn increment(number: i64) -> (Call, Option<Answer>) {
    (Call::Increment(0), Some(Answer::Number(number)))
}

fn append(text: &str, length: u64) -> (Call, Option<Answer>) {
    (Call::Append(0, text.into()), Some(Answer::Length(length)))
}

fn open(asked: (Call, Option<Answer>)) -> (Call, Option<Answer>) {
    (asked.0, None)
}

type Row = (u64, u64, (Call, Option<Answer>));

fn history(rows: Vec<Row>) -> History {
    let operation = |(client, (began, ended, (call, answer))): (usize, Row)| Operation {
        client: client as u32,
        call,
        began,
        ended: answer.map(|answer| (ended, answer)),
    };
    rows.into_iter().enumerate().map(operation).collect()
}

fn linearizable(rows: Vec<Row>) -> bool {
    match check(&history(rows)) {
        Verdict::Linearizable => true,
        Verdict::Violation(_) => false,
        Verdict::Undecided => panic!("a few operations are decided at once"),
    }
}

#[test]
fn one_after_the_other_is_judged_by_the_model_alone() {
    assert!(linearizable(vec![]));
    assert!(linearizable(vec![(0, 1, read("")), (2, 3, write("a")), (4, 5, read("a"))]));
    assert!(!linearizable(vec![(0, 1, write("a")), (2, 3, read(""))]));
    assert!(linearizable(vec![(0, 1, increment(1)), (2, 3, increment(2)), (4, 5, read("2"))]));
    assert!(!linearizable(vec![(0, 1, increment(1)), (2, 3, increment(3))]));
    assert!(linearizable(vec![(0, 1, append("ab", 2)), (2, 3, append("c", 3)), (4, 5, read("abc"))]));
    assert!(!linearizable(vec![(0, 1, append("ab", 2)), (2, 3, read("abab"))]));
}

#[test]
fn concurrent_operations_take_effect_in_either_order() {
    for first in ["", "a"] {
        assert!(linearizable(vec![(0, 10, write("a")), (5, 6, read(first))]));
    }
    // Once seen, the value stays.
    assert!(!linearizable(vec![(0, 10, write("a")), (2, 3, read("a")), (4, 5, read(""))]));
    assert!(linearizable(vec![(0, 10, write("a")), (2, 5, read("a")), (4, 6, read(""))]));
    // Two writes, and reads that disagree about their order.
    let disagree =
        vec![(0, 9, write("a")), (0, 9, write("b")), (1, 2, read("a")), (3, 4, read("b")), (5, 6, read("a"))];
    assert!(!linearizable(disagree));
}

#[test]
fn a_stale_read_is_a_violation_and_is_named() {
    let rows = vec![(0, 1, write("old")), (2, 3, write("new")), (4, 5, read("old")), (6, 7, read("new"))];
    let Verdict::Violation(found) = check(&history(rows)) else { panic!("a stale read") };
    assert_eq!((found.order, found.stuck), (vec![0, 1], 2));
}

#[test]
fn an_open_operation_may_take_effect_late_or_never_but_once() {
    assert!(linearizable(vec![(0, 0, open(write("a"))), (1, 2, read("")), (3, 4, read(""))]));
    assert!(linearizable(vec![(0, 0, open(write("a"))), (1, 2, read("")), (3, 4, read("a"))]));
    assert!(!linearizable(vec![(0, 0, open(write("a"))), (1, 2, read("a")), (3, 4, read(""))]));
    // It cannot take effect before it began.
    assert!(!linearizable(vec![(1, 2, read("a")), (3, 0, open(write("a")))]));
    // A store may not repeat an increment.
    assert!(linearizable(vec![(0, 0, open(increment(0))), (1, 2, increment(2)), (3, 4, read("2"))]));
    assert!(!linearizable(vec![(0, 0, open(increment(0))), (1, 2, read("2"))]));
    assert!(!linearizable(vec![(0, 0, open(append("x", 0))), (1, 2, read("xx"))]));
    // Each of the two may have taken effect.
    assert!(linearizable(vec![
        (0, 0, open(increment(0))),
        (0, 0, open(increment(0))),
        (1, 2, increment(2)),
        (3, 4, increment(4))
    ]));
}

#[test]
fn a_group_is_written_and_read_as_a_whole() {
    let both = |value: &str| (Call::Write(vec![(0, value.into()), (1, value.into())]), Some(Answer::Written));
    let seen = |first: &str, second: &str| {
        let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        (Call::Read(vec![0, 1]), Some(Answer::Values(vec![value(first), value(second)])))
    };
    assert!(linearizable(vec![(0, 9, both("a")), (1, 2, seen("", "")), (3, 4, seen("a", "a"))]));
    assert!(!linearizable(vec![(0, 9, both("a")), (1, 2, seen("a", ""))]), "a torn write");
    let crossed = vec![(0, 9, both("a")), (0, 9, both("b")), (10, 11, seen("a", "b"))];
    assert!(!linearizable(crossed));
}

/// The reference for the search: tries every order of every subset of the open operations.
fn by_all_orders(operations: &[Operation]) -> bool {
    fn go(operations: &[Operation], done: &mut Vec<bool>, state: &Group) -> bool {
        let left = || (0..operations.len()).filter(|&i| !done[i]);
        if left().all(|i| operations[i].ended.is_none()) {
            return true;
        }
        let first_end = left().filter_map(|i| operations[i].ended.as_ref().map(|(at, _)| *at)).min();
        let candidates: Vec<usize> =
            left().filter(|&i| first_end.is_none_or(|end| operations[i].began <= end)).collect();
        candidates.into_iter().any(|i| {
            let answer = operations[i].ended.as_ref().map(|(_, answer)| answer);
            let Some(next) = state.step(&operations[i].call, answer) else { return false };
            done[i] = true;
            let found = go(operations, done, &next);
            done[i] = false;
            found
        })
    }
    go(operations, &mut vec![false; operations.len()], &Group::default())
}

/// Makes a history that some order explains: each operation takes effect at its own moment between
/// its ends.
///
/// Depending on the seed, it contains one kind of call, for which the search may have a shortcut,
/// or all kinds.
fn explained(seed: u64, count: usize) -> History {
    let mut chance = Chance::new(seed);
    let kind = chance.below(5);
    let mut moments: Vec<(u64, Call, bool)> = (0..count)
        .map(|n| {
            let call = match (kind, chance.below(8)) {
                (0, 0..=4) => Call::Write(vec![(chance.below(2) as u8, n.to_string())]),
                (1, 0..=4) => Call::Increment(0),
                (2, 0..=4) => Call::Append(0, format!("{n};")),
                (0..=2, _) => Call::Read(vec![0, 1]),
                (_, 0 | 1) => Call::Write(vec![(0, n.to_string())]),
                (_, 2) => Call::Write(vec![(0, n.to_string()), (1, n.to_string())]),
                (_, 3) => Call::Increment(0),
                (_, 4) => Call::Append(1, "1".into()),
                (_, 5) => Call::Read(vec![0, 1]),
                _ => Call::Read(vec![0]),
            };
            (10 * (n as u64 + 1) + chance.below(3), call, chance.below(6) == 0)
        })
        .collect();
    moments.sort_by_key(|(at, ..)| *at);
    if let (2, Some(last)) = (kind, moments.last_mut()) {
        *last = (last.0 + 100, Call::Read(vec![0, 1]), false);
    }
    let mut state = Group::default();
    let mut made = History::new();
    for (client, (at, call, is_open)) in moments.into_iter().enumerate() {
        let takes_effect = !is_open || chance.below(2) == 0;
        let answer = answer(&state, &call);
        if takes_effect {
            state = state.step(&call, None).expect("numbers stay numbers");
        }
        let began = at - chance.below(at.min(30));
        let ended = at + chance.below(30);
        made.push(Operation {
            client: client as u32,
            call,
            began,
            ended: (!is_open).then_some((ended, answer)),
        });
    }
    made
}

fn answer(state: &Group, call: &Call) -> Answer {
    let whole = |member| match state.step(&Call::Read(vec![member]), None) {
        Some(state) => state.value(member).unwrap_or_default(),
        None => unreachable!("a read without an answer is always allowed"),
    };
    match call {
        Call::Write(_) => Answer::Written,
        Call::Read(members) => Answer::Values(members.iter().map(|&member| state.value(member)).collect()),
        Call::Increment(member) => Answer::Number(whole(*member).parse::<i64>().unwrap_or(0) + 1),
        Call::Append(member, text) => Answer::Length((whole(*member).len() + text.len()) as u64),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn an_explained_history_passes(seed: u64, count in 1usize..120) {
        prop_assert_eq!(check(&explained(seed, count)), Verdict::Linearizable);
    }

    #[test]
    fn the_search_agrees_with_trying_all_orders(seed: u64, count in 1usize..8, wrong: u64) {
        let mut history = explained(seed, count);
        // One operation has the answer of another, which may or may not be explainable.
        let mut chance = Chance::new(wrong);
        let donor = chance.pick(&history).clone();
        let taker = chance.below(history.len() as u64) as usize;
        if let (Some((at, _)), Some((_, answer))) = (history[taker].ended.clone(), donor.ended) {
            history[taker].ended = Some((at, answer));
        }
        let expected = by_all_orders(&history);
        prop_assert_eq!(check(&history) == Verdict::Linearizable, expected, "{:?}", history);
    }
}

#[test]
fn wrong_answers_do_turn_histories_bad() {
    // The property above proves nothing if all its histories are linearizable.
    let bad = (0..400)
        .filter(|&seed| {
            let mut history = explained(seed, 7);
            let read = history.iter().rposition(|operation| operation.is_read() && operation.ended.is_some());
            let Some(read) = read else { return false };
            let Some((_, Answer::Values(values))) = &mut history[read].ended else { return false };
            values[0] = Some("nobody wrote this".into());
            assert!(!by_all_orders(&history));
            check(&history) != Verdict::Linearizable
        })
        .count();
    assert!(bad > 200, "{bad}");
}

#[test]
fn open_operations_that_nobody_saw_cost_no_time() {
    // Forty open operations of one kind, and a history that continues without them.
    for call in
        [Call::Increment(0), Call::Append(0, "never seen".into()), Call::Write(vec![(0, "same".into())])]
    {
        let made = |n: i64| match &call {
            Call::Increment(_) => [increment(n), read(&n.to_string())],
            Call::Append(..) => [append("x", n as u64), read(&"x".repeat(n as usize))],
            _ => [write(&n.to_string()), read(&n.to_string())],
        };
        let mut rows: Vec<Row> = (0..40).map(|_| (0, 0, (call.clone(), None))).collect();
        rows.extend((1..100).flat_map(|n| {
            let at = n as u64 * 10;
            let [change, read] = made(n);
            [(at, at + 1, change), (at + 5, at + 6, read)]
        }));
        assert_eq!(check_within(&history(rows), 500_000), Verdict::Linearizable, "{call:?}");
    }
}

#[test]
fn increments_that_waited_long_beside_open_ones_cost_no_time() {
    // Twenty increments that were cut off and twenty that were answered late: a number may belong
    // to either kind.
    let mut rows: Vec<Row> = (0..20).map(|n| (n, 0, open(increment(0)))).collect();
    rows.extend((1..=20).map(|n| (n as u64, 1000 + n as u64, increment(n))));
    rows.push((2000, 2001, read("20")));
    assert_eq!(check_within(&history(rows.clone()), 500_000), Verdict::Linearizable);
    // Some of the open ones took effect.
    rows.extend([(2002, 2003, increment(24)), (2004, 2005, read("30")), (2006, 2007, read("30"))]);
    assert_eq!(check_within(&history(rows.clone()), 500_000), Verdict::Linearizable);
    rows.push((2008, 2009, read("42")));
    assert!(
        matches!(check_within(&history(rows), 500_000), Verdict::Violation(_)),
        "one more than there were"
    );
}

#[test]
fn a_search_without_end_is_given_up_and_says_so() {
    // Concurrent writes of two members, and a read that no order explains: all orders are tried.
    let both = |n: u8| (Call::Write(vec![(0, n.to_string()), (1, n.to_string())]), Some(Answer::Written));
    let mut rows: Vec<Row> = (0..24).map(|n| (0, 100, both(n))).collect();
    rows.push((50, 60, read("nobody")));
    assert_eq!(check_within(&history(rows), 100_000), Verdict::Undecided);
}

/// Makes the history of a group of `members` keys whose store is down for long. Each client sends
/// its next call as soon as it has an answer, and some never have one.
fn waited_for(seed: u64, members: Member, count: usize) -> History {
    let mut chance = Chance::new(seed);
    let mut free_at = [0u64; 20];
    let mut moments: Vec<(u64, u64, u64, Call, bool)> = (0..count)
        .map(|n| {
            let client = chance.below(20) as usize;
            let began = free_at[client] + 1;
            let effect = began + chance.below(1000);
            let ended = effect + chance.below(1000);
            free_at[client] = ended;
            let all: Vec<Member> = (0..members).collect();
            let call = match chance.below(2) {
                0 => Call::Read(all),
                _ => {
                    let left_out = chance.below(4) as Member;
                    let written = all.iter().filter(|&&member| members == 1 || member != left_out);
                    Call::Write(written.map(|&member| (member, format!("{n}.{member}"))).collect())
                }
            };
            (effect, began, ended, call, chance.below(15) == 0)
        })
        .collect();
    moments.sort_by_key(|(effect, ..)| *effect);
    let mut state = Group::default();
    let mut made = History::new();
    for (client, (_, began, ended, call, is_open)) in moments.into_iter().enumerate() {
        let answer = answer(&state, &call);
        if !is_open || chance.below(2) == 0 {
            state = state.step(&call, None).expect("a write");
        }
        let ended = (!is_open).then_some((ended, answer));
        made.push(Operation { client: client as u32, call, began, ended });
    }
    made
}

#[test]
fn groups_whose_clients_all_waited_cost_little_time() {
    for seed in 0..100 {
        let register = waited_for(seed, 1, 150);
        assert_eq!(check_within(&register, 0), Verdict::Linearizable, "register {seed}");
        let group = waited_for(seed, 3, 150);
        assert_eq!(check_within(&group, 1_000_000), Verdict::Linearizable, "group {seed}");
    }
}

/// Makes a history of one register. Every value is written once, moments often touch, and answers
/// may be wrong.
fn register(seed: u64, count: usize) -> History {
    let mut chance = Chance::new(seed);
    let operation = |client: usize| {
        let began = chance.below(4 * count as u64);
        let (call, answer) = match chance.below(2) {
            0 => write(&client.to_string()),
            _ => read(&chance.below(count as u64).to_string()),
        };
        let answer = match &call {
            Call::Read(_) if chance.below(6) == 0 => Some(Answer::Values(vec![None])),
            Call::Write(_) if chance.below(6) == 0 => None,
            _ => answer,
        };
        let ended = began + chance.below(3 * count as u64);
        Operation { client: client as u32, call, began, ended: answer.map(|answer| (ended, answer)) }
    };
    let mut made: History = (0..count).map(operation).collect();
    let written: Vec<String> = made
        .iter()
        .filter_map(|operation| match &operation.call {
            Call::Write(pairs) => Some(pairs[0].1.clone()),
            _ => None,
        })
        .collect();
    // Almost all reads return a value that was written.
    for operation in &mut made {
        if let Some((_, Answer::Values(values))) = &mut operation.ended {
            if values[0].is_some() && !written.is_empty() && chance.below(30) != 0 {
                values[0] = Some(chance.pick(&written).clone());
            }
        }
    }
    made
}

#[test]
fn registers_are_judged_as_by_trying_all_orders() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..60_000 {
        let history = register(seed, 1 + seed as usize % 7);
        let expected = by_all_orders(&history);
        let known = seen::that_matter(&history);
        let known: Vec<Operation> = known.iter().map(|&index| history[index].clone()).collect();
        assert_eq!(super::register::is_linearizable(&known), Some(expected), "{seed}: {history:?}");
        assert_eq!(check(&history) == Verdict::Linearizable, expected, "{seed}: {history:?}");
        if history.len() > 3 {
            *if expected { &mut good } else { &mut bad } += 1;
        }
    }
    assert!(good > 5_000 && bad > 5_000, "{good} good, {bad} bad");
}

/// Makes a history of one journal. Moments often touch, lengths of texts differ, and answers may be
/// wrong.
fn journal(seed: u64, count: usize) -> History {
    let mut chance = Chance::new(seed);
    let texts: Vec<String> = (0..count).map(|n| format!("{};", "x".repeat(n % 2) + &n.to_string())).collect();
    let mut order = texts.clone();
    for n in (1..count).rev() {
        order.swap(n, chance.below(n as u64 + 1) as usize);
    }
    order.truncate(count.div_ceil(2));
    let length = |n: usize| order[..n].iter().map(|text| text.len() as u64).sum::<u64>();
    let operation = |client: usize| {
        let placed = order.iter().position(|text| *text == texts[client]);
        let is_append = placed.is_some() || chance.below(3) == 0;
        // Most operations happen about where the order has them.
        let place = placed.map_or(chance.below(order.len() as u64 + 1) as usize, |at| at + 1);
        let call = match is_append {
            true => append(&texts[client], length(place) + u64::from(chance.below(20) == 0)),
            false => {
                let mut seen = order[..place].concat();
                match chance.below(30) {
                    0 => drop(seen.pop()),
                    1 => seen.push_str("9;"),
                    _ => {}
                }
                read(&seen)
            }
        };
        let (call, answer) = if is_append && chance.below(4) == 0 { open(call) } else { call };
        let began = (3 * place as u64).saturating_sub(chance.below(6));
        let ended = 3 * place as u64 + chance.below(5);
        Operation { client: client as u32, call, began, ended: answer.map(|answer| (ended, answer)) }
    };
    (0..count).map(operation).collect()
}

#[test]
fn journals_are_judged_as_by_trying_all_orders() {
    let (mut good, mut bad, mut searched) = (0, 0, 0);
    for seed in 0..60_000 {
        let history = journal(seed, 1 + seed as usize % 7);
        let expected = by_all_orders(&history);
        let known = seen::that_matter(&history);
        let known: Vec<Operation> = known.iter().map(|&index| history[index].clone()).collect();
        match super::journal::is_linearizable(&known) {
            Some(verdict) => assert_eq!(verdict, expected, "{seed}: {history:?}"),
            None => searched += 1,
        }
        assert_eq!(check(&history) == Verdict::Linearizable, expected, "{seed}: {history:?}");
        if history.len() > 3 {
            *if expected { &mut good } else { &mut bad } += 1;
        }
    }
    assert!(good > 5_000 && bad > 5_000, "{good} good, {bad} bad");
    assert!((10_000..40_000).contains(&searched), "{searched} were left to the search");
}

#[test]
fn a_journal_whose_clients_all_waited_is_judged_without_a_search() {
    // Forty appends of equal length wait for one store, half of them without an answer.
    let texts: Vec<String> = (10..50).map(|n| format!("{n};")).collect();
    let waited = |n: usize| match n % 2 {
        0 => (n as u64, 1000, append(&texts[n], 3 * (40 - n as u64))),
        _ => (n as u64, 0, open(append(&texts[n], 0))),
    };
    let mut rows: Vec<Row> = (0..40).map(waited).collect();
    let all: String = texts.iter().rev().map(String::as_str).collect();
    rows.push((2000, 2001, read(&all)));
    assert_eq!(check_within(&history(rows.clone()), 0), Verdict::Linearizable);
    // The last text was read before its append began.
    rows.push((3, 5, read(&all)));
    assert!(matches!(check_within(&history(rows), 100_000), Verdict::Violation(_)));
}

/// Writes histories for another checker, which must agree on linearizable and other ones alike: see
/// `tests/porcupine`.
#[test]
fn made_histories_are_written_where_that_is_asked_for() {
    let Some(dir) = std::env::var_os(HISTORIES_ENV) else { return };
    let mut text = String::new();
    for seed in 0..2000 {
        let mut history = explained(seed, 40);
        let mut chance = Chance::new(!seed);
        if seed % 2 == 0 {
            let (donor, taker) = (chance.pick(&history).clone(), chance.below(40) as usize);
            if let (Some((at, _)), Some((_, answer))) = (history[taker].ended.clone(), donor.ended) {
                history[taker].ended = Some((at, answer));
            }
        }
        let linearizable = match check(&history) {
            Verdict::Linearizable => true,
            Verdict::Violation(_) => false,
            Verdict::Undecided => continue,
        };
        let judged = Judged { object: &format!("made:{seed}"), linearizable, operations: &history };
        text += &serde_json::to_string(&judged).expect("plain data");
        text.push('\n');
    }
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(std::path::Path::new(&dir).join("made.jsonl"), text).expect("written");
}
