//! `CLIENT TRACKING` with `NOLOOP`, beside that of `redis-server`.

use std::time::Duration;

use resp::Reply;

use crate::connection::Connection;
use crate::servers::{redis, steelyard, Server};

/// Time in which a notice arrives.
const NOTICE: Duration = Duration::from_millis(150);

/// The options of `CLIENT TRACKING`, and commands of the tracking client (`c`) and of another one
/// (`o`).
const CASES: [(&str, &str); 9] = [
    ("NOLOOP", "c SET a 1;c GET a;c SET a 2;c GET a;o SET a 3;c SET a 4"),
    ("NOLOOP", "c GET a;c MULTI;c SET a 1;c INCR b;c EXEC;c GET b;o MSET a 1 b 2"),
    ("NOLOOP", "c GET a;c EVAL redis.call('set',KEYS[1],5) 1 a;c MGET a b;c RENAME a b;c HSET h f v;c HLEN h;o DEL h"),
    ("NOLOOP BCAST", "c SET a 1;o SET a 2;c MSET a 1 b 2;o RPUSH l x;c LPOP l"),
    ("NOLOOP BCAST PREFIX x PREFIX y", "c SET xa 1;o SET xa 2;c SET yb 1;o SET b 2;o DEL yb"),
    ("NOLOOP OPTIN", "c CLIENT CACHING YES;c GET a;c SET a 1;o SET a 2;c CLIENT CACHING YES;c GET a;o SET a 3"),
    ("NOLOOP", "c GET a;c FLUSHALL"),
    ("", "c GET a;c SET a 9;c GET a;o SET a 1"),
    ("BCAST", "c SET a 9;o SET a 1"),
];

/// Returns the notices that the tracking client gets.
fn notices(server: &Server, (options, steps): (&str, &str)) -> Vec<Reply> {
    let [mut client, mut other] = [server.connect(), server.connect()];
    other.call(&["FLUSHALL"]).unwrap();
    client.call(&["HELLO", "3"]).unwrap();
    let tracking = format!("CLIENT TRACKING ON {options}");
    client.call(&tracking.split_whitespace().collect::<Vec<_>>()).unwrap();
    let mut notices = Vec::new();
    for step in steps.split(';') {
        let words: Vec<&str> = step.split(' ').collect();
        if words[0] == "c" {
            answer(&mut client, &words[1..], &mut notices);
        } else {
            other.call(&words[1..]).unwrap();
            drain(&mut client, &mut notices);
        }
    }
    drain(&mut client, &mut notices);
    notices
}

/// Executes a command, and takes the notices before its reply.
fn answer(client: &mut Connection, words: &[&str], notices: &mut Vec<Reply>) {
    let mut reply = client.call(words).unwrap();
    while matches!(reply, Reply::Push(_)) {
        notices.push(reply);
        reply = client.reply().unwrap();
    }
    assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
}

fn drain(client: &mut Connection, notices: &mut Vec<Reply>) {
    while let Some(notice) = client.reply_within(NOTICE).unwrap() {
        notices.push(notice);
    }
}

#[test]
fn a_client_without_loop_is_not_told_of_its_own_changes() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    for case in CASES {
        assert_eq!(notices(&ours, case), notices(&theirs, case), "{case:?}");
    }
}
