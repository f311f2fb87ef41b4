//! Commands that wait for elements: their replies, and the order in which clients are served, are
//! those of Redis.

use std::time::Duration;

use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;
use crate::script::assert_same;
use crate::servers::{redis, steelyard, Server};

#[test]
fn blocking_commands_are_answered_as_redis_answers_them() {
    let Some(theirs) = redis(&[]) else { return };
    assert_same(
        &steelyard(&[]),
        &theirs,
        &[
            "RPUSH l a b c\nBLPOP l 0\nBRPOP none l 0\nBLPOP none l none 0.01\nBLPOP l 0.01\nEXISTS l",
            "SET s x\nBLPOP s 0\nBRPOP none s 0\nRPUSH l a\nBLPOP l s 0\nBZPOPMIN s 0\nBZMPOP 0 1 s MIN",
            "BLPOP l x\nBLPOP l -1\nBLPOP l 1e300\nBLPOP l inf\nBLPOP l nan\nBLPOP l ''\nBLPOP l _1\nBLPOP l",
            "SET s x\nBLPOP s x\nBLPOP s -1\nBRPOPLPUSH s d x\nBLMOVE s d UP LEFT x\nBLMOVE s d LEFT LEFT x",
            "BLMPOP x 1 l LEFT\nBLMPOP -1 1 l LEFT\nBLMPOP 0 0 l LEFT\nBLMPOP 0 x l LEFT\nBLMPOP 0 1 l UP",
            "BLMPOP 0 1 l LEFT COUNT 0\nBLMPOP 0 1 l LEFT COUNT\nBLMPOP 0 2 l LEFT\nBLMPOP 0.01 1 l LEFT COUNT 2",
            "RPUSH l a b c\nBLMPOP 0 2 none l RIGHT COUNT 2\nBLMPOP 0 1 l LEFT\nBLMPOP 0.01 1 l LEFT",
            "ZADD z 1 a 2 b 3.5 c\nBZPOPMIN z 0\nBZPOPMAX none z 0\nBZMPOP 0 1 z MAX\nBZPOPMIN z 0.01",
            "ZADD z 1 a 2 b 3 c\nBZMPOP 0 2 none z MIN COUNT 2\nBZMPOP 0.01 1 none MIN\nDEL z",
            "RPUSH l a b\nBLMOVE l d LEFT RIGHT 0\nBRPOPLPUSH l d 0\nLRANGE d 0 -1\nBLMOVE l d LEFT LEFT 0.01",
            "BRPOPLPUSH l d 0.01\nSET s x\nRPUSH l a\nBLMOVE l s LEFT LEFT 0\nLRANGE l 0 -1\nDEL l d s",
            "MULTI\nBLPOP none 0\nBRPOP none 0\nBLMOVE none d LEFT LEFT 0\nBRPOPLPUSH none d 0\nEXEC",
            "MULTI\nBLMPOP 0 1 none LEFT\nBZPOPMIN none 0\nBZPOPMAX none 0\nBZMPOP 0 1 none MIN\nEXEC",
            "MULTI\nRPUSH l a\nBLPOP l 0\nBLPOP l x\nEXEC",
            "HELLO 3\nZADD z 1.5 a 2 b\nBZPOPMIN z 0\nBZMPOP 0 1 z MIN\nBLPOP l 0.01\nBLMOVE l d LEFT LEFT 0.01",
            "HELLO 3\nMULTI\nBLPOP none 0\nBLMOVE none d LEFT LEFT 0\nEXEC",
            "XADD s 1-1 f v\nXREAD BLOCK 0 STREAMS s 0\nXREAD BLOCK 1 STREAMS s $\nXREAD BLOCK 1 STREAMS none $",
            "XGROUP CREATE s g 0\nXREADGROUP GROUP g c BLOCK 0 STREAMS s >\nXREADGROUP GROUP g c BLOCK 0 STREAMS s 0",
            "XREADGROUP GROUP g c BLOCK 1 STREAMS s >\nXREADGROUP GROUP x c BLOCK 0 STREAMS s >\nSET t x",
            "XREAD BLOCK 0 STREAMS s t $ $\nXREAD BLOCK 0 STREAMS s x\nXREAD BLOCK x STREAMS s $\nDEL s t",
            "MULTI\nXADD s 1-1 f v\nXREAD BLOCK 0 STREAMS s 0\nXREAD BLOCK 0 STREAMS s $\nXREAD BLOCK x STREAMS s 0\nEXEC",
            "HELLO 3\nXREAD BLOCK 1 STREAMS s $\nXREAD BLOCK 0 STREAMS s none 0 0\nDEL s",
            "EVAL \"return redis.pcall('xRead', 'BLOCK', '0', 'STREAMS', 's', '$')\" 0",
            "EVAL \"return redis.pcall('xread', 'COUNT', '1', 'STREAMS', 's', '$')\" 0",
            "CLIENT UNBLOCK 99999\nCLIENT UNBLOCK x\nCLIENT UNBLOCK 99999 NOW\nCLIENT UNBLOCK 99999 ERROR",
            "CLIENT UNBLOCK",
        ],
    );
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn send(connection: &mut Connection, line: &str) {
    let mut bytes = bytes::BytesMut::new();
    resp::encode_request(&words(line), &mut bytes);
    connection.send(&bytes).unwrap();
}

fn call(connection: &mut Connection, line: &str) -> Reply {
    connection.call(&words(line)).unwrap()
}

/// Waits until the server has this many blocked clients.
fn await_blocked(server: &Server, count: usize) {
    let mut connection = server.connect();
    for _ in 0..2000 {
        let info = match call(&mut connection, "INFO clients") {
            Reply::Bulk(text) | Reply::Verbatim(_, text) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        if info.contains(&format!("blocked_clients:{count}\r\n")) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("there are never {count} blocked clients");
}

fn both() -> Vec<Server> {
    [Some(steelyard(&[])), redis(&[])].into_iter().flatten().collect()
}

fn pair(key: &str, value: &str) -> Reply {
    Reply::Array(vec![Reply::bulk(key.to_owned()), Reply::bulk(value.to_owned())])
}

#[test]
fn clients_are_served_in_the_order_in_which_they_came() {
    for server in both() {
        let mut pusher = server.connect();
        let mut waiting = Vec::new();
        for count in 1..=5 {
            let mut connection = server.connect();
            send(&mut connection, "BLPOP k other 0");
            await_blocked(&server, count);
            waiting.push(connection);
        }
        assert_eq!(call(&mut pusher, "RPUSH k a"), Reply::Int(1));
        assert_eq!(waiting[0].reply().unwrap(), pair("k", "a"));
        assert_eq!(call(&mut pusher, "RPUSH k b c"), Reply::Int(2));
        assert_eq!(waiting[1].reply().unwrap(), pair("k", "b"));
        assert_eq!(waiting[2].reply().unwrap(), pair("k", "c"));
        await_blocked(&server, 2);
        call(&mut pusher, "RPUSH other x y z");
        assert_eq!(waiting[3].reply().unwrap(), pair("other", "x"));
        assert_eq!(waiting[4].reply().unwrap(), pair("other", "y"));
        await_blocked(&server, 0);
        assert_eq!(call(&mut pusher, "LRANGE other 0 -1"), Reply::Array(vec![Reply::bulk("z")]));
        assert_eq!(call(&mut pusher, "EXISTS k"), Reply::Int(0));
    }
}

#[test]
fn every_way_to_fill_a_list_or_sorted_set_serves_those_who_wait() {
    for (wait, fill, expected) in [
        ("BLPOP k 0", &["LPUSH k a"][..], pair("k", "a")),
        ("BRPOP k 0", &["RPUSH src a b", "RENAME src k"], pair("k", "b")),
        ("BLPOP k 0", &["RPUSH src a", "LMOVE src k LEFT LEFT"], pair("k", "a")),
        ("BLPOP k 0", &["RPUSH src a b", "COPY src k"], pair("k", "a")),
        ("BLPOP k 0", &["MULTI", "RPUSH k a", "RPUSH k b", "EXEC"], pair("k", "a")),
        ("BLPOP k 0", &["MULTI", "RPUSH k a", "DEL k", "EXEC", "RPUSH k b"], pair("k", "b")),
        ("BLPOP k 0", &["SET k x", "DEL k", "RPUSH k a"], pair("k", "a")),
        ("BLPOP k 0", &["ZADD k 1 a", "DEL k", "RPUSH k a"], pair("k", "a")),
        ("BLMPOP 0 2 j k LEFT COUNT 2", &["RPUSH k a b c"], {
            let both = Reply::Array(vec![Reply::bulk("a"), Reply::bulk("b")]);
            Reply::Array(vec![Reply::bulk("k"), both])
        }),
        ("BLMOVE k d LEFT LEFT 0", &["RPUSH k a"], Reply::bulk("a")),
        ("BRPOPLPUSH k k 0", &["RPUSH k a b"], Reply::bulk("b")),
        ("BLMOVE k d LEFT LEFT 0", &["SET d x", "RPUSH k a"], {
            Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
        }),
        (
            "BZPOPMIN k 0",
            &["ZADD k 2 b 1 a"],
            Reply::Array(vec![Reply::bulk("k"), Reply::bulk("a"), Reply::bulk("1")]),
        ),
        (
            "BZPOPMAX k 0",
            &["ZADD src 2 b 1 a", "ZUNIONSTORE k 1 src"],
            Reply::Array(vec![Reply::bulk("k"), Reply::bulk("b"), Reply::bulk("2")]),
        ),
        ("BZMPOP 0 1 k MIN", &["RPUSH k a", "DEL k", "ZADD k 1 a"], {
            let member = Reply::Array(vec![Reply::bulk("a"), Reply::bulk("1")]);
            Reply::Array(vec![Reply::bulk("k"), Reply::Array(vec![member])])
        }),
    ] {
        for server in both() {
            let (mut waiting, mut pusher) = (server.connect(), server.connect());
            send(&mut waiting, wait);
            await_blocked(&server, 1);
            fill.iter().for_each(|line| drop(call(&mut pusher, line)));
            assert_eq!(waiting.reply().unwrap(), expected, "{wait}, {fill:?}");
            await_blocked(&server, 0);
        }
    }
}

fn entries(key: &str, ids: &[&str]) -> Reply {
    let entry = |id: &&str| {
        let parts = Reply::Array(vec![Reply::bulk("f"), Reply::bulk("v")]);
        Reply::Array(vec![Reply::bulk((*id).to_owned()), parts])
    };
    let entries = Reply::Array(ids.iter().map(entry).collect());
    Reply::Array(vec![Reply::Array(vec![Reply::bulk(key.to_owned()), entries])])
}

#[test]
fn clients_that_wait_for_entries_get_them_or_learn_that_their_group_is_gone() {
    const KEY_IS_GONE: &str = "UNBLOCKED the stream key no longer exists";
    const GROUP_IS_GONE: &str = "NOGROUP the consumer group this client was blocked on no longer exists";
    let as_consumer = "XREADGROUP GROUP g c BLOCK 0 STREAMS k >";
    let servers = both();
    for (wait, fill, expected) in [
        ("XREAD BLOCK 0 STREAMS k $", &["XADD k 5-1 f v"][..], entries("k", &["5-1"])),
        ("XREAD BLOCK 0 STREAMS j k 0 3", &["XADD k 2-5 f v", "XADD k 5-1 f v"], entries("k", &["5-1"])),
        ("XREAD BLOCK 0 STREAMS j k 0 $", &["XADD j 1-1 f v"], entries("j", &["1-1"])),
        (
            "XREAD BLOCK 0 STREAMS k 1-1",
            &["DEL k", "SET k x", "DEL k", "XADD k 1-1 f v", "XADD k 1-2 f v"],
            entries("k", &["1-2"]),
        ),
        (
            "XREAD COUNT 2 BLOCK 0 STREAMS k $",
            &["MULTI", "XADD k 5-1 f v", "XADD k 5-2 f v", "XADD k 5-3 f v", "EXEC"],
            entries("k", &["5-1", "5-2"]),
        ),
        (as_consumer, &["XADD k 5-1 f v"], entries("k", &["5-1"])),
        (as_consumer, &["XGROUP SETID k g 0", "XADD k 5-1 f v"], entries("k", &["1-1", "5-1"])),
        (as_consumer, &["XGROUP DESTROY k h", "XADD k 5-1 f v"], entries("k", &["5-1"])),
        (as_consumer, &["XGROUP DESTROY k g"], Reply::error(GROUP_IS_GONE)),
        (as_consumer, &["XADD s 9-1 f v", "RENAME s k"], Reply::error(GROUP_IS_GONE)),
        (as_consumer, &["DEL k"], Reply::error(KEY_IS_GONE)),
        (as_consumer, &["SET k x"], Reply::error(KEY_IS_GONE)),
        (as_consumer, &["RENAME k other"], Reply::error(KEY_IS_GONE)),
        (as_consumer, &["PEXPIRE k 1"], Reply::error(KEY_IS_GONE)),
        (as_consumer, &["FLUSHALL"], Reply::error(KEY_IS_GONE)),
    ] {
        for server in &servers {
            let (mut waiting, mut filler) = (server.connect(), server.connect());
            call(&mut filler, "FLUSHALL");
            call(&mut filler, "XADD k 1-1 f v");
            call(&mut filler, "XGROUP CREATE k g $");
            call(&mut filler, "XGROUP CREATE k h $");
            send(&mut waiting, wait);
            await_blocked(server, 1);
            fill.iter().for_each(|line| drop(call(&mut filler, line)));
            assert_eq!(waiting.reply().unwrap(), expected, "{wait}, {fill:?}");
            await_blocked(server, 0);
        }
    }
}

/// Workers of one group that race with a producer: each entry is delivered exactly once.
#[test]
fn each_entry_is_delivered_to_one_consumer() {
    let server = steelyard(&[]);
    let (workers, each) = (6, 50);
    let mut producer = server.connect();
    call(&mut producer, "XGROUP CREATE s g $ MKSTREAM");
    let working: Vec<_> = (0..workers)
        .map(|number| {
            let mut connection = server.connect();
            std::thread::spawn(move || {
                let line = format!("XREADGROUP GROUP g c{number} COUNT 1 BLOCK 0 STREAMS s >");
                let got = |_| format!("{:?}", call(&mut connection, &line));
                (0..each).map(got).collect::<Vec<String>>()
            })
        })
        .collect();
    for _ in 0..workers * each {
        call(&mut producer, "XADD s * f v");
    }
    let mut got: Vec<String> = working.into_iter().flat_map(|working| working.join().unwrap()).collect();
    got.sort();
    got.dedup();
    assert_eq!(got.len(), workers * each);
    assert!(got.iter().all(|reply| reply.starts_with("Array")), "{got:?}");
    let Reply::Array(summary) = call(&mut producer, "XPENDING s g") else { panic!("no summary") };
    assert_eq!(summary[0], Reply::Int((workers * each) as i64));
}

#[test]
fn a_chain_of_moves_serves_the_next_client() {
    for server in both() {
        let (mut mover, mut popper, mut pusher) = (server.connect(), server.connect(), server.connect());
        send(&mut mover, "BLMOVE a b LEFT RIGHT 0");
        await_blocked(&server, 1);
        send(&mut popper, "BLPOP b 0");
        await_blocked(&server, 2);
        call(&mut pusher, "RPUSH a x");
        assert_eq!(mover.reply().unwrap(), Reply::bulk("x"));
        assert_eq!(popper.reply().unwrap(), pair("b", "x"));
    }
}

#[test]
fn a_client_that_goes_or_is_unblocked_or_killed_takes_nothing() {
    for server in both() {
        let mut control = server.connect();
        let (gone, mut half, mut killed) = (server.connect(), server.connect(), server.connect());
        let (mut timed, mut failed) = (server.connect(), server.connect());
        let number = |connection: &mut Connection| match call(connection, "CLIENT ID") {
            Reply::Int(id) => id,
            other => panic!("{other:?}"),
        };
        let ids = [&mut killed, &mut timed, &mut failed].map(number);
        let mut gone = gone;
        for (at, connection) in
            [&mut gone, &mut half, &mut killed, &mut timed, &mut failed].into_iter().enumerate()
        {
            send(connection, "BLPOP k 0");
            await_blocked(&server, at + 1);
        }
        drop(gone);
        await_blocked(&server, 4);
        half.finish_sending().unwrap();
        await_blocked(&server, 3);
        assert_eq!(call(&mut control, &format!("CLIENT KILL ID {}", ids[0])), Reply::Int(1));
        assert_eq!(call(&mut control, &format!("CLIENT UNBLOCK {}", ids[1])), Reply::Int(1));
        assert_eq!(call(&mut control, &format!("CLIENT UNBLOCK {} ERROR", ids[2])), Reply::Int(1));
        await_blocked(&server, 0);
        assert_eq!(timed.reply().unwrap(), Reply::NilArray);
        let error = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
        assert_eq!(failed.reply().unwrap(), Reply::error(error));
        assert!(half.reply().is_err() && killed.reply().is_err());
        call(&mut control, "RPUSH k a");
        assert_eq!(call(&mut control, "LLEN k"), Reply::Int(1));
        assert_eq!(call(&mut control, &format!("CLIENT UNBLOCK {}", ids[1])), Reply::Int(0));
    }
}

/// Clients and pushers that race: each element is taken exactly once, and none stays while a client
/// waits.
#[test]
fn no_element_is_missed_or_taken_twice() {
    let server = steelyard(&[]);
    let (clients, each) = (8, 100);
    let taking: Vec<_> = (0..clients)
        .map(|number| {
            let mut connection = server.connect();
            std::thread::spawn(move || {
                let mut chance = Chance::new(number);
                let mut taken = Vec::new();
                for _ in 0..each {
                    let line = match chance.below(4) {
                        0 => "BLPOP {k}1 {k}2 {k}3 0",
                        1 => "BRPOP {k}3 {k}1 0",
                        2 => "BLMPOP 0 3 {k}2 {k}3 {k}1 LEFT",
                        _ => "BLPOP {k}3 {k}2 {k}1 0",
                    };
                    match call(&mut connection, line) {
                        Reply::Array(mut parts) => taken.push(format!("{:?}", parts.remove(1))),
                        other => panic!("{other:?}"),
                    }
                }
                taken
            })
        })
        .collect();
    let mut pusher = server.connect();
    let mut chance = Chance::new(99);
    for number in 0..clients * each {
        // Two of the clients do not wait for the second key, so the last elements go to the others.
        let key = if chance.percent(50) { 1 } else { 3 };
        call(&mut pusher, &format!("RPUSH {{k}}{key} element{number}"));
        if chance.percent(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let mut taken: Vec<String> = taking.into_iter().flat_map(|taking| taking.join().unwrap()).collect();
    assert_eq!(taken.len(), (clients * each) as usize);
    taken.iter_mut().for_each(|text| {
        let digits: String = text.chars().skip_while(|c| *c != 't').filter(char::is_ascii_digit).collect();
        *text = digits;
    });
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), (clients * each) as usize, "no element was taken twice");
    assert_eq!(call(&mut pusher, "EXISTS {k}1 {k}2 {k}3"), Reply::Int(0));
}
