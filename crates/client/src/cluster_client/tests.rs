//! Tests against scripted stores on loopback sockets.

use std::sync::Arc;

use super::*;
use crate::scripted::{scripted, slots};

fn call(words: &str, read: bool) -> Call {
    Call::new(words.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect(), read)
}

fn client(seed: SocketAddr) -> ClusterClient {
    let ms = Duration::from_millis;
    ClusterClient::new(vec![seed], Patience { connect: ms(500), reply: ms(2000), whole: ms(300) })
}

#[tokio::test]
async fn moved_is_followed_and_remembered() {
    let leader = scripted(|_| Some("+OK\r\n".into())).await;
    let follower = scripted(move |words| match words {
        "CLUSTER SLOTS" => None,
        _ => Some(format!("-MOVED {} 127.0.0.1:{}\r\n", slot_of_key(b"k"), leader.port())),
    })
    .await;
    let client = client(follower);
    for _ in 0..3 {
        assert_eq!(client.call(&call("SET k v", false)).await, Outcome::Done(Reply::OK));
    }
    assert_eq!(client.redirections(), 1);
}

#[tokio::test]
async fn a_lost_connection_leaves_a_write_unknown_and_a_read_asked_again() {
    let reads = Arc::new(AtomicU64::new(0));
    let seen = reads.clone();
    let store = scripted(move |words| match words {
        "CLUSTER SLOTS" => Some("-ERR This instance has cluster support disabled\r\n".into()),
        "GET k" if seen.fetch_add(1, Ordering::Relaxed) > 0 => Some("$1\r\nv\r\n".into()),
        _ => None,
    })
    .await;
    let client = client(store);
    assert!(matches!(client.call(&call("SET k v", false)).await, Outcome::Unknown(_)));
    assert_eq!(client.call(&call("GET k", true)).await, Outcome::Done(Reply::bulk("v")));
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_open_outcome_is_told_and_never_retried() {
    let writes = Arc::new(AtomicU64::new(0));
    let seen = writes.clone();
    let store = scripted(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        Some("-UNKNOWN it may still take effect\r\n".into())
    })
    .await;
    let client = client(store);
    // The first of the two requests is the client's request for the slot map.
    assert!(matches!(client.call(&call("SET k v", false)).await, Outcome::Unknown(_)));
    assert_eq!(writes.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn no_leader_and_no_store_are_waited_for_and_then_not_done() {
    let store = scripted(|_| Some("-CLUSTERDOWN no leader\r\n".into())).await;
    assert!(matches!(client(store).call(&call("SET k v", false)).await, Outcome::NotDone(_)));
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    assert!(matches!(client(nobody).call(&call("SET k v", false)).await, Outcome::NotDone(_)));
}

#[tokio::test]
async fn many_calls_keep_their_order_and_errors_their_place() {
    let store = scripted(|words| match words {
        "CLUSTER SLOTS" => Some("-ERR off\r\n".into()),
        "GET b" => Some("-WRONGTYPE no\r\n".into()),
        other => Some(format!("+{}\r\n", &other[4..])),
    })
    .await;
    let calls: Vec<Call> = ["GET a", "GET b", "GET c"].map(|words| call(words, true)).into();
    let outcomes = client(store).call_many(&calls).await;
    let reply = |outcome: &Outcome| match outcome {
        Outcome::Done(reply) => reply.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reply(&outcomes[0]), Reply::Simple("a".into()));
    assert!(reply(&outcomes[1]).is_error() && !outcomes[1].acknowledged());
    assert_eq!(reply(&outcomes[2]), Reply::Simple("c".into()));
}

#[tokio::test]
async fn the_slot_map_names_leaders() {
    let leader = scripted(|_| Some(":1\r\n".into())).await;
    let seed = scripted(move |words| match words {
        "CLUSTER SLOTS" => Some(slots(leader)),
        _ => Some("-ERR the seed was asked\r\n".into()),
    })
    .await;
    let client = client(seed);
    assert_eq!(client.call(&call("INCR k", false)).await, Outcome::Done(Reply::Int(1)));
    assert_eq!(client.redirections(), 0);
}

#[test]
fn moved_without_a_host_is_the_store_that_answered() {
    let target = "10.1.2.3:7000".parse().unwrap();
    assert_eq!(moved("MOVED 5 :7001", target), Some((5, "10.1.2.3:7001".parse().unwrap())));
    assert_eq!(moved("MOVED 5 [::1]:7001", target), Some((5, "[::1]:7001".parse().unwrap())));
    assert_eq!(moved("MOVED 99999 1.2.3.4:1", target), None);
}
