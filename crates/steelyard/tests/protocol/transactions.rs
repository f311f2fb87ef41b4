//! Transactions of one connection and of two: the texts of all replies are those of Redis.

use resp::Reply;

use crate::connection::Connection;
use crate::script::assert_same;
use crate::servers::{redis, steelyard};

#[test]
fn transactions_are_answered_as_redis_answers_them() {
    let Some(theirs) = redis(&[]) else { return };
    assert_same(
        &steelyard(&[]),
        &theirs,
        &[
            "MULTI\nMULTI\nSET a 1\nEXEC\nEXEC",
            "MULTI\nWATCH a\nSET a 1\nEXEC",
            "MULTI\nEXEC foo\nEXEC\nEXEC foo\nDISCARD\nDISCARD x",
            "MULTI\nDISCARD x\nSET a 1\nEXEC\nGET a",
            "MULTI\nnosuch x\nSET a 7\nEXEC\nGET a",
            "MULTI\nGET\nEXEC",
            "MULTI\nCONFIG nosuch\nEXEC",
            "MULTI\nSET a 5\nDISCARD\nGET a\nEXEC",
            "MULTI\nUNWATCH\nPING\nSELECT 1\nSET db1 x\nECHO hi\nGET db1\nEXEC\nGET db1\nSELECT 0\nGET db1",
            "MULTI\nSELECT 99\nSELECT x\nSET db0 x\nEXEC\nGET db0",
            "MULTI\nPING\nEXEC\nMULTI\nEXEC",
            "MULTI\nSHUTDOWN\nEXEC",
            "MULTI\nAUTH x\nEXEC",
            "MULTI\nRESET\nEXEC",
            "MULTI\nSET a 1\nQUIT\nEXEC",
            "MULTI\nCLIENT KILL ID 99999\nCLIENT SETNAME me\nCLIENT GETNAME\nEXEC\nCLIENT GETNAME",
            "SET a 1\nMULTI\nINCR a\nLPUSH a x\nINCR a\nGET a\nEXEC\nGET a",
            "MULTI\nCONFIG SET nosuch 1\nCONFIG GET nosuch\nEXEC",
            "MULTI\nCONFIG GET maxclients\nSET a 1\nCOMMAND COUNT x\nEXEC",
            "MULTI\nDBSIZE\nFLUSHALL\nDBSIZE\nSET a 1\nKEYS *\nRANDOMKEY\nSCAN 0 COUNT 1000\nEXEC",
            "WATCH\nMULTI x\nUNWATCH x\nUNWATCH",
            "WATCH a\nSET a 1\nMULTI\nGET a\nEXEC\nMULTI\nGET a\nEXEC",
            "WATCH a\nSET a 1\nUNWATCH\nMULTI\nGET a\nEXEC",
            "WATCH a\nSET a 1\nMULTI\nDISCARD\nMULTI\nGET a\nEXEC",
            "WATCH a\nSET a 1\nMULTI\nnosuch\nEXEC\nMULTI\nGET a\nEXEC",
            "WATCH a\nSET a 1\nRESET\nMULTI\nGET a\nEXEC",
            "WATCH a a b\nMULTI\nSET a 1\nSELECT 3\nEXEC\nMULTI\nSET a 1\nEXEC\nSELECT 0",
            "WATCH a\nSET a 2\nMULTI\nCLIENT SETNAME other\nSELECT 3\nEXEC\nCLIENT GETNAME\nGET a",
            "DEL nk\nWATCH nk\nDEL nk\nMULTI\nGET a\nEXEC",
            "SET a 1\nWATCH a\nFLUSHALL\nMULTI\nEXEC\nWATCH a\nFLUSHALL\nMULTI\nEXEC",
            "SET a 1\nWATCH a\nSELECT 1\nFLUSHDB\nSET a 5\nMULTI\nEXEC\nSELECT 0",
            "SET a 1\nSELECT 1\nSET other 1\nSELECT 0\nWATCH a none\nFLUSHDB\nMULTI\nEXEC",
            "SET a 1 PXAT 1\nWATCH a\nGET a\nMULTI\nEXEC",
            "HELLO 3\nWATCH a\nSET a 1\nMULTI\nEXEC\nHSET h f 1\nMULTI\nHGETALL h\nPING\nEXEC",
            "HELLO 3\nZADD z 1.5 m\nMULTI\nZSCORE z m\nHGETALL h\nEXEC",
        ],
    );
}

fn ok(connection: &mut Connection, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    connection.call(&words).unwrap()
}

#[test]
fn a_pipeline_with_transactions_is_answered_in_order() {
    for server in [Some(steelyard(&[])), redis(&[])].into_iter().flatten() {
        let mut connection = server.connect();
        let mut lines = Vec::new();
        for number in 0..50 {
            lines.extend(["MULTI", "INCR n", "GET n", "EXEC", "GET n"].map(str::to_owned));
            lines.extend(["WATCH n".to_owned(), "MULTI".into(), format!("ECHO {number}"), "INCR n".into()]);
            lines.extend(["EXEC", "PING"].map(str::to_owned));
        }
        let requests: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
        let replies = connection.pipeline(&requests).unwrap();
        let queued = Reply::Simple("QUEUED".into());
        for (number, replies) in replies.chunks(11).enumerate() {
            let (first, second) = (2 * number as i64 + 1, 2 * number as i64 + 2);
            let text = |number: i64| Reply::bulk(number.to_string());
            assert_eq!(replies[..3], [Reply::OK, queued.clone(), queued.clone()]);
            assert_eq!(replies[3], Reply::Array(vec![Reply::Int(first), text(first)]));
            assert_eq!(replies[4], text(first));
            assert_eq!(replies[9], Reply::Array(vec![text(number as i64), Reply::Int(second)]));
        }
    }
}

#[test]
fn a_watch_sees_other_connections_and_ends_with_its_own() {
    for server in [Some(steelyard(&[])), redis(&[])].into_iter().flatten() {
        let (mut one, mut other) = (server.connect(), server.connect());
        assert_eq!(ok(&mut one, "WATCH a b"), Reply::OK);
        assert_eq!(ok(&mut other, "SET b 1"), Reply::OK);
        ok(&mut one, "MULTI");
        ok(&mut one, "SET a 1");
        assert_eq!(ok(&mut one, "EXEC"), Reply::NilArray);
        assert_eq!(ok(&mut one, "GET a"), Reply::Nil);
        // A transaction of the other connection changes the key, too.
        ok(&mut one, "WATCH a");
        for line in ["MULTI", "SET a 2", "EXEC"] {
            ok(&mut other, line);
        }
        ok(&mut one, "MULTI");
        assert_eq!(ok(&mut one, "EXEC"), Reply::NilArray);
        // Both watch the key, and one of them changes it.
        ok(&mut one, "WATCH a");
        ok(&mut other, "WATCH a");
        ok(&mut one, "MULTI");
        ok(&mut one, "SET a 3");
        assert_eq!(ok(&mut one, "EXEC"), Reply::Array(vec![Reply::OK]));
        ok(&mut other, "MULTI");
        assert_eq!(ok(&mut other, "EXEC"), Reply::NilArray);
        // A key that expires while it is watched.
        ok(&mut one, "SET a 4 PX 30");
        ok(&mut one, "WATCH a");
        std::thread::sleep(std::time::Duration::from_millis(60));
        ok(&mut one, "MULTI");
        assert_eq!(ok(&mut one, "EXEC"), Reply::NilArray);
    }
}

#[test]
fn the_queue_of_a_client_is_bounded_and_shown() {
    let server = steelyard(&[]);
    let mut connection = server.connect();
    ok(&mut connection, "MULTI");
    let mut other = server.connect();
    let requests = vec![vec!["SET", "a", "1"]; 1 << 16];
    let queued = connection.pipeline(&requests).unwrap();
    assert!(queued.iter().all(|reply| *reply == Reply::Simple("QUEUED".into())));
    let (Reply::Verbatim(_, list) | Reply::Bulk(list)) = ok(&mut other, "CLIENT LIST") else {
        panic!("no list")
    };
    let list = String::from_utf8(list.to_vec()).unwrap();
    assert!(list.contains("flags=x ") && list.contains(" multi=65536 "), "{list}");
    assert!(ok(&mut connection, "SET a 1").is_error());
    let Reply::Error(text) = ok(&mut connection, "EXEC") else { panic!("the queue was too long") };
    assert!(text.starts_with("EXECABORT "), "{text}");
    ok(&mut connection, "MULTI");
    let hello = ok(&mut connection, "HELLO 3");
    assert_eq!(hello, Reply::error("ERR HELLO is not supported inside a transaction"));
}
