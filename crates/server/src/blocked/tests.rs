use command::blocking::wait_of;
use storage::KeyRef;

use super::*;

fn item(line: &str) -> Item {
    Item::new(line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect(), 0, false).unwrap()
}

fn enter(blocked: &Arc<Blocked>, client: u64, line: &str) -> Seat {
    let item = item(line);
    let wait = wait_of(item.spec, &item.args).unwrap();
    blocked.enter(client, &item, &wait)
}

/// Lets a client wait whose first attempt took nothing.
fn waits(blocked: &Arc<Blocked>, client: u64, line: &str) -> Seat {
    let seat = enter(blocked, client, line);
    blocked.waits(&seat);
    seat
}

fn place(key: &str) -> Place {
    (0, Bytes::copy_from_slice(key.as_bytes()), Awaited::List)
}

fn attempts(blocked: &Blocked, key: &str, count: usize) -> Vec<Attempt> {
    blocked.next(&place(key), count)
}

fn numbers(attempts: &[Attempt]) -> Vec<u64> {
    attempts.iter().map(|attempt| attempt.number).collect()
}

fn took() -> Answer {
    Reply::bulk("element").into()
}

fn nothing() -> Answer {
    Reply::NilArray.into()
}

#[test]
fn clients_are_served_in_the_order_of_their_arrival() {
    let blocked = Arc::new(Blocked::default());
    let mut seats: Vec<Seat> = (0..3).map(|client| waits(&blocked, client, "BLPOP k 0")).collect();
    assert!(attempts(&blocked, "k", 1).is_empty(), "the key is not ready");
    blocked.look_at(&place("k"));
    let first = attempts(&blocked, "k", 2);
    assert_eq!(numbers(&first), [1, 2]);
    assert_eq!(blocked.ended(&place("k"), &first, vec![took(), nothing()]), Some(false));
    assert_eq!(seats[0].answer.try_recv().unwrap(), took());
    assert!(seats[1].answer.try_recv().is_err());
    assert!(attempts(&blocked, "k", 2).is_empty(), "the list is empty");
    blocked.look_at(&place("k"));
    let second = attempts(&blocked, "k", 2);
    assert_eq!(numbers(&second), [2, 3], "the second client kept its place");
    assert_eq!(blocked.ended(&place("k"), &second, vec![took(), took()]), Some(true));
    assert_eq!(blocked.count(), 0);
    assert!(attempts(&blocked, "k", 2).is_empty());
    assert!(blocked.state.lock().queues.is_empty(), "nothing is left behind");
}

#[test]
fn an_element_that_comes_between_the_first_attempt_and_the_wait_is_not_missed() {
    let blocked = Arc::new(Blocked::default());
    let seat = enter(&blocked, 1, "BLPOP k 0");
    assert_eq!(seat.free, ["k"]);
    // The push is executed after the attempt, and before its reply arrives.
    blocked.look_at(&place("k"));
    assert!(attempts(&blocked, "k", 1).is_empty(), "one attempt is under way");
    blocked.waits(&seat);
    assert_eq!(numbers(&attempts(&blocked, "k", 1)), [1]);
}

#[test]
fn a_client_of_two_keys_has_one_attempt_at_a_time_and_misses_neither_key() {
    let blocked = Arc::new(Blocked::default());
    let seat = waits(&blocked, 1, "BLPOP a b 0");
    blocked.look_at(&place("a"));
    blocked.look_at(&place("b"));
    let of_a = attempts(&blocked, "a", 1);
    assert_eq!(of_a[0].item.args[1..], ["a", "0"]);
    assert!(attempts(&blocked, "b", 1).is_empty());
    assert_eq!(blocked.ended(&place("a"), &of_a, vec![nothing()]), Some(false));
    let of_b = attempts(&blocked, "b", 1);
    assert_eq!(of_b[0].item.args[1..], ["b", "0"]);
    assert_eq!(blocked.ended(&place("b"), &of_b, vec![took()]), Some(true));
    drop(seat);
    assert!(attempts(&blocked, "a", 1).is_empty() && attempts(&blocked, "b", 1).is_empty());
    assert!(blocked.state.lock().queues.is_empty());
}

#[test]
fn nobody_overtakes_a_client_whose_attempt_for_another_key_is_under_way() {
    for goes in [false, true] {
        let blocked = Arc::new(Blocked::default());
        let first = waits(&blocked, 1, "BLPOP a b 0");
        let _second = waits(&blocked, 2, "BLPOP b 0");
        blocked.look_at(&place("a"));
        let of_a = attempts(&blocked, "a", 1);
        blocked.look_at(&place("b"));
        assert!(attempts(&blocked, "b", 2).is_empty());
        if goes {
            drop(first);
            assert_eq!(numbers(&attempts(&blocked, "b", 2)), [2]);
        } else {
            blocked.ended(&place("a"), &of_a, vec![nothing()]);
            assert_eq!(numbers(&attempts(&blocked, "b", 2)), [1, 2]);
        }
    }
}

#[test]
fn a_newcomer_does_not_take_before_those_who_wait() {
    let blocked = Arc::new(Blocked::default());
    let _first = waits(&blocked, 1, "BLPOP k 0");
    let second = enter(&blocked, 2, "BLPOP k other 0");
    assert_eq!(second.free, ["other"]);
    blocked.look_at(&place("k"));
    assert_eq!(numbers(&attempts(&blocked, "k", 2)), [1]);
}

#[test]
fn a_wait_that_ends_during_an_attempt_ends_with_what_the_attempt_takes() {
    for (answer, expected) in [(took(), took()), (nothing(), Reply::error("over").into())] {
        let blocked = Arc::new(Blocked::default());
        let mut seat = waits(&blocked, 7, "BLPOP k 0");
        blocked.look_at(&place("k"));
        let under_way = attempts(&blocked, "k", 1);
        assert!(blocked.unblock(7, Reply::error("over")) && !blocked.unblock(8, Reply::Nil));
        assert!(seat.answer.try_recv().is_err());
        blocked.ended(&place("k"), &under_way, vec![answer]);
        assert_eq!(seat.answer.try_recv().unwrap(), expected);
        assert_eq!(blocked.count(), 0);
    }
    let blocked = Arc::new(Blocked::default());
    let mut seat = waits(&blocked, 7, "BLPOP k 0");
    assert!(blocked.unblock(7, Reply::NilArray));
    assert_eq!(seat.answer.try_recv().unwrap(), nothing());
}

#[test]
fn an_attempt_that_was_not_proposed_is_repeated_and_one_of_unknown_outcome_is_not() {
    let blocked = Arc::new(Blocked::default());
    let mut seat = waits(&blocked, 1, "BLPOP k 0");
    blocked.look_at(&place("k"));
    let first = attempts(&blocked, "k", 1);
    let answers = vec![Reply::error("CLUSTERDOWN no leader").into()];
    assert_eq!(blocked.ended(&place("k"), &first, answers), None);
    let second = attempts(&blocked, "k", 1);
    assert_eq!(numbers(&second), [1]);
    blocked.ended(&place("k"), &second, vec![Reply::error("UNKNOWN outcome").into()]);
    assert_eq!(seat.answer.try_recv().unwrap(), Reply::error("UNKNOWN outcome").into());
}

#[test]
fn a_key_of_another_type_does_not_end_a_wait_but_a_wrong_destination_does() {
    for (line, ends) in
        [("BLPOP k 0", false), ("BLMOVE k d LEFT LEFT 0", true), ("BLMOVE k k LEFT LEFT 0", true)]
    {
        let blocked = Arc::new(Blocked::default());
        let mut seat = waits(&blocked, 1, line);
        blocked.look_at(&place("k"));
        let under_way = attempts(&blocked, "k", 1);
        blocked.ended(&place("k"), &under_way, vec![Reply::error("WRONGTYPE of k").into()]);
        assert_eq!(seat.answer.try_recv().is_ok(), ends, "{line}");
    }
}

#[test]
fn written_lists_and_sorted_sets_feed_those_who_wait() {
    let blocked = Arc::new(Blocked::default());
    let meta = |value| Some(Meta { expire_at_ms: None, value }.encode());
    let row = |key: &'static str| KeyRef::new(0, key.as_bytes()).meta_row();
    let rows = vec![
        (row("list"), meta(Value::List { generation: 1, len: 1 })),
        (row("zset"), meta(Value::SortedSet { generation: 1, len: 1 })),
        (row("hash"), meta(Value::Hash { generation: 1, len: 1 })),
        (row("gone"), None),
        (KeyRef::new(0, b"list").node_row(1, 0), Some(Bytes::new())),
    ];
    let writes = WriteSet { ranges_deleted: Vec::new(), rows };
    assert!(blocked.fed_by(&writes).is_empty(), "nobody waits");
    let _seat = waits(&blocked, 1, "BLPOP k 0");
    assert_eq!(blocked.fed_by(&writes), [place("list"), (0, Bytes::from("zset"), Awaited::SortedSet)]);
}

fn stream(key: &str) -> Place {
    (0, Bytes::copy_from_slice(key.as_bytes()), Awaited::Stream)
}

#[test]
fn a_stream_is_looked_at_when_it_grows_or_is_gone_or_has_lost_a_group() {
    let blocked = Arc::new(Blocked::default());
    let key = KeyRef::new(0, b"s");
    let rows = |rows: Vec<(Bytes, Option<Bytes>)>| WriteSet { ranges_deleted: Vec::new(), rows };
    let meta = |generation, ms| {
        let last_id = StreamId { ms, seq: 0 };
        let stream = storage::Stream { generation, last_id, ..storage::Stream::default() };
        let value = Value::Stream(Box::new(stream));
        rows(vec![(key.meta_row(), Some(Meta { expire_at_ms: None, value }.encode()))])
    };
    assert!(blocked.fed_by(&meta(1, 5)).is_empty(), "nobody waits");
    let _seat = waits(&blocked, 1, "XREAD BLOCK 0 STREAMS s other 0 0");
    let is_fed = |writes: &WriteSet| match &blocked.fed_by(writes)[..] {
        [] => false,
        [place] => *place == stream("s"),
        more => panic!("{more:?}"),
    };
    assert!(is_fed(&meta(1, 5)));
    assert!(!is_fed(&meta(1, 5)), "an entry was deleted");
    assert!(is_fed(&meta(1, 6)) && is_fed(&meta(2, 6)));
    assert!(!is_fed(&rows(vec![(key.group_row(2, b"g"), Some(Bytes::new()))])));
    assert!(is_fed(&rows(vec![(key.group_row(2, b"g"), None)])));
    assert!(is_fed(&rows(vec![(key.meta_row(), None)])));
    let text = Meta { expire_at_ms: None, value: Value::String(Bytes::new()) }.encode();
    assert!(is_fed(&rows(vec![(key.meta_row(), Some(text))])));
    let all = WriteSet { ranges_deleted: vec![(Bytes::new(), Bytes::new())], rows: Vec::new() };
    assert_eq!(blocked.fed_by(&all), [stream("other"), stream("s")]);
}

#[test]
fn all_clients_of_a_stream_get_their_turn_but_those_of_a_group_without_new_entries() {
    let blocked = Arc::new(Blocked::default());
    let lines = [
        "XREADGROUP GROUP g a BLOCK 0 STREAMS s >",
        "XREADGROUP GROUP g b BLOCK 0 STREAMS s >",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
        "XREAD BLOCK 0 STREAMS s 1",
        "XREAD BLOCK 0 STREAMS s 2",
        "XREADGROUP GROUP h d BLOCK 0 STREAMS s >",
    ];
    let mut seats: Vec<Seat> = Vec::new();
    for (client, line) in lines.into_iter().enumerate() {
        let seat = enter(&blocked, client as u64, line);
        assert_eq!(seat.free, ["s"], "the first attempt is made also if others wait");
        blocked.waits(&seat);
        seats.push(seat);
    }
    let place = stream("s");
    assert!(blocked.next(&place, 1).is_empty());
    blocked.look_at(&place);
    let turn = |expected: &[u64], answers: Vec<Answer>| {
        let attempts = blocked.next(&place, 1);
        assert_eq!(numbers(&attempts), expected);
        blocked.ended(&place, &attempts, answers)
    };
    assert_eq!(turn(&[1], vec![took()]), Some(true));
    assert_eq!(turn(&[2], vec![nothing()]), Some(false));
    assert_eq!(turn(&[4, 5], vec![took(), nothing()]), Some(false));
    assert_eq!(turn(&[6], vec![took()]), Some(true));
    assert!(blocked.next(&place, 1).is_empty());
    let served: Vec<bool> = seats.iter_mut().map(|seat| seat.answer.try_recv().is_ok()).collect();
    assert_eq!(served, [true, false, false, true, false, true]);
    // The stream grows again. Replies to reads may come in parts.
    blocked.look_at(&place);
    assert_eq!(turn(&[2], vec![took()]), Some(true));
    assert_eq!(turn(&[3], vec![took()]), Some(true));
    assert_eq!(turn(&[5], vec![]), Some(false));
    assert_eq!(turn(&[5], vec![took()]), Some(true));
    assert!(blocked.next(&place, 1).is_empty());
    assert_eq!(blocked.count(), 0);
    assert!(blocked.state.lock().queues.is_empty(), "nothing is left behind");
}

#[test]
fn a_client_that_comes_during_a_write_has_its_keys_looked_at() {
    let cases =
        [("XREAD BLOCK 0 STREAMS s 1", vec![stream("s")]), ("BLPOP a b 0", vec![place("a"), place("b")])];
    for (line, places) in cases {
        let blocked = Arc::new(Blocked::default());
        let before = blocked.last();
        // The writes are examined now. Then the client comes, and its first attempt reads the rows
        // before they are written.
        let seat = enter(&blocked, 1, line);
        blocked.waits(&seat);
        assert!(places.iter().all(|place| blocked.next(place, 1).is_empty()), "{line}");
        blocked.look_at_those_behind(before);
        for place in &places {
            let attempts = blocked.next(place, 1);
            assert_eq!(numbers(&attempts), [1], "{line}");
            blocked.ended(place, &attempts, vec![nothing()]);
        }
        // No other client has come since then.
        blocked.look_at_those_behind(blocked.last());
        assert!(places.iter().all(|place| blocked.next(place, 1).is_empty()), "{line}");
    }
}
