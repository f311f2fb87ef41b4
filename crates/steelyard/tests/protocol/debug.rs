//! `DEBUG`, beside that of `redis-server`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use resp::Reply;

use crate::connection::Connection;
use crate::script::assert_same;
use crate::servers::{redis, steelyard, Server};

const KINDS: &str =
    "string integer double bignum null array set map attrib push verbatim true false STRING none";
const ENABLED: &[&str] = &["--enable-debug-command", "yes"];

#[test]
fn subcommands_answer_as_in_redis() {
    let Some(theirs) = redis(ENABLED) else { return };
    assert_same(
        &steelyard(ENABLED),
        &theirs,
        &[
            "DEBUG\nDEBUG NOPE\nDEBUG SLEEP\nDEBUG SLEEP 0 1\nDEBUG ERROR\nDEBUG ERROR x y\nDEBUG HELP x",
            "DEBUG SLEEP x\nDEBUG SLEEP -1\nDEBUG SLEEP 0.001\ndebug sleep 0\nDEBUG JMAP\nDEBUG STRINGMATCH-LEN a b",
            "DEBUG ERROR x\nDEBUG ERROR ERR_a_text\nDEBUG ERROR -a_b\nDEBUG ERROR ''\nDEBUG ERROR ERR_two¶lines",
            "DEBUG SET-ACTIVE-EXPIRE\nDEBUG SET-ACTIVE-EXPIRE 0\nDEBUG SET-ACTIVE-EXPIRE x\nDEBUG SET-ACTIVE-EXPIRE 1",
            "DEBUG LOG hello\nDEBUG LOG\nCONFIG GET enable-debug-command\nCONFIG SET enable-debug-command no",
            "MULTI\nDEBUG SLEEP 0\nDEBUG ERROR WHY_not\nPING\nEXEC\nEVAL return_redis.call('debug','sleep','0') 0",
        ],
    );
}

#[test]
fn debugging_is_refused_as_in_redis() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let script = "DEBUG SLEEP 0\nDEBUG\nDEBUG NOPE\nDEBUG HELP\nCONFIG GET enable-debug-command\nMULTI\nDEBUG SLEEP 0\nEXEC";
    assert_same(&ours, &theirs, &[script]);
    let local = steelyard(&["--enable-debug-command", "local"]);
    assert_eq!(local.connect().call(&["DEBUG", "SLEEP", "0"]).unwrap(), Reply::OK);
    let Reply::Error(refused) = local.connect().call(&["DEBUG", "RELOAD"]).unwrap() else { panic!() };
    assert!(refused.starts_with("ERR DEBUG RELOAD is not supported: SAVE"), "{refused}");
}

/// Returns the bytes that a server sends in answer to these commands.
fn raw(server: &Server, protocol: &str, lines: &str) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let commands = format!("HELLO {protocol}\nECHO begin\n{lines}\nECHO end\n");
    stream.write_all(commands.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"$3\r\nend\r\n") {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the connection ends: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..count]);
    }
    let answer = String::from_utf8(answer).unwrap();
    answer.split_once("$5\r\nbegin\r\n").expect("the answer to ECHO").1.to_owned()
}

#[test]
fn every_kind_of_reply_has_the_bytes_of_redis() {
    let Some(theirs) = redis(ENABLED) else { return };
    let ours = steelyard(ENABLED);
    let of_kinds: Vec<String> = KINDS.split(' ').map(|kind| format!("DEBUG PROTOCOL {kind}")).collect();
    let of_kinds = of_kinds.join("\n");
    for lines in [of_kinds.clone(), format!("MULTI\n{of_kinds}\nEXEC"), "DEBUG HELP x".to_owned()] {
        for protocol in ["2", "3"] {
            assert_eq!(raw(&ours, protocol, &lines), raw(&theirs, protocol, &lines));
        }
    }
}

fn send(connection: &mut Connection, words: &[&str]) {
    let mut bytes = BytesMut::new();
    resp::encode_request(words, &mut bytes);
    connection.send(&bytes).unwrap();
}

#[test]
fn a_sleep_delays_only_its_own_client_and_is_in_the_slow_log() {
    let server = steelyard(ENABLED);
    let [mut sleeper, mut other] = [server.connect(), server.connect()];
    let began = Instant::now();
    send(&mut sleeper, &["DEBUG", "SLEEP", "0.5"]);
    send(&mut sleeper, &["PING"]);
    assert_eq!(other.call(&["SET", "key", "value"]).unwrap(), Reply::OK);
    assert!(began.elapsed() < Duration::from_millis(450), "{:?}", began.elapsed());
    assert_eq!(sleeper.reply().unwrap(), Reply::OK);
    assert!(began.elapsed() >= Duration::from_millis(500));
    assert_eq!(sleeper.reply().unwrap(), Reply::Simple("PONG".into()));
    let Reply::Array(slow) = other.call(&["SLOWLOG", "GET"]).unwrap() else { panic!("no log") };
    assert!(format!("{slow:?}").contains("SLEEP"), "{slow:?}");
    // A client that goes away ends its sleep, and a stop does not wait for one.
    send(&mut sleeper, &["DEBUG", "SLEEP", "1000000"]);
}

#[test]
fn keys_stay_until_they_are_read_without_active_expiry() {
    let server = steelyard(ENABLED);
    let mut connection = server.connect();
    connection.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).unwrap();
    for key in ["a", "b"] {
        connection.call(&["SET", key, "x", "PX", "1"]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(connection.call(&["DBSIZE"]).unwrap(), Reply::Int(2));
    assert_eq!(connection.call(&["GET", "a"]).unwrap(), Reply::Nil);
    assert_eq!(connection.call(&["DBSIZE"]).unwrap(), Reply::Int(1));
    connection.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while connection.call(&["DBSIZE"]).unwrap() != Reply::Int(0) {
        assert!(Instant::now() < until, "the key is not deleted");
        std::thread::sleep(Duration::from_millis(50));
    }
}
