//! Users of a cluster: set at one store, in force at all, and kept.

use std::time::Duration;

use resp::Reply;

use crate::connection::Connection;
use crate::stores::{alone, eventually, within, Plan, Stores};

/// The product's promise for a change of users.
const PROMISED: Duration = Duration::from_secs(1);

fn call(stores: &Stores, at: usize, words: &[&str]) -> Option<Reply> {
    Connection::open(stores.all[at].client).ok()?.call(words).ok()
}

/// Logs in at a store and sends one command.
fn as_user(stores: &Stores, at: usize, login: &[&str], words: &[&str]) -> Option<Reply> {
    let mut connection = Connection::open(stores.all[at].client).ok()?;
    match connection.call(login).ok()? {
        Reply::Simple(_) => connection.call(words).ok(),
        refused => Some(refused),
    }
}

fn starts_with(reply: &Option<Reply>, text: &str) -> bool {
    matches!(reply, Some(Reply::Error(error)) if error.starts_with(text))
}

/// Starts three stores, which all know the newest version of the cluster.
fn start() -> Stores {
    let stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    eventually("the cluster has the version with users", || {
        call(&stores, 0, &["ACL", "SETUSER", "first"]).filter(|reply| *reply == Reply::OK)
    });
    stores
}

#[test]
fn a_user_who_is_set_at_one_store_is_in_force_at_all_within_a_second_and_after_kills() {
    let _alone = alone();
    let mut stores = start();
    let login = ["AUTH", "alice", "pw"];
    for (at, key) in [(0, "a*"), (1, "b*"), (2, "c*")] {
        let pattern = format!("~{key}");
        let set = ["ACL", "SETUSER", "alice", "reset", "on", ">pw", &pattern, "+@read", "+@write"];
        assert_eq!(call(&stores, at, &set), Some(Reply::OK));
        let (permitted, denied) = (key.replace('*', "1"), "z");
        // The store that was asked applies it before its answer.
        assert_eq!(as_user(&stores, at, &login, &["SET", &permitted, "v"]), Some(Reply::OK));
        for other in 0..3 {
            let applied = within(PROMISED, || {
                let sets = as_user(&stores, other, &login, &["SET", &permitted, "v"]);
                (sets == Some(Reply::OK)).then_some(())
            });
            assert!(applied.is_some(), "store {other} has the user that store {at} set");
            assert!(starts_with(&as_user(&stores, other, &login, &["SET", denied, "v"]), "NOPERM"));
        }
    }
    // All stores are killed at once, and start again with the users.
    stores.kill_all();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    for at in 0..3 {
        eventually("the store has the user again", || {
            (as_user(&stores, at, &login, &["SET", "c1", "v"]) == Some(Reply::OK)).then_some(())
        });
        assert!(starts_with(&as_user(&stores, at, &login, &["SET", "a1", "v"]), "NOPERM"));
        assert!(starts_with(&as_user(&stores, at, &["AUTH", "alice", "wrong"], &["PING"]), "WRONGPASS"));
    }
}

#[test]
fn connections_of_a_deleted_user_end_at_all_stores_and_those_of_a_changed_one_are_checked_again() {
    let _alone = alone();
    let stores = start();
    assert_eq!(call(&stores, 0, &["ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~*"]), Some(Reply::OK));
    let mut clients: Vec<Connection> = (0..3)
        .map(|at| {
            eventually("the store knows the user", || {
                let mut connection = Connection::open(stores.all[at].client).ok()?;
                connection.call(&["AUTH", "bob", ""]).ok().filter(|reply| *reply == Reply::OK)?;
                Some(connection)
            })
        })
        .collect();
    assert_eq!(call(&stores, 1, &["ACL", "SETUSER", "bob", "-set"]), Some(Reply::OK));
    for client in &mut clients {
        let denied = within(PROMISED, || {
            let reply = client.call(&["SET", "k", "v"]).ok();
            starts_with(&reply, "NOPERM").then_some(())
        });
        assert!(denied.is_some(), "an open connection is checked again");
        assert_eq!(client.call(&["GET", "nothing"]).unwrap(), Reply::Nil);
    }
    // The connection that deletes its own user gets its answer, and ends like the others.
    assert_eq!(clients[2].call(&["ACL", "DELUSER", "bob", "nobody"]).unwrap(), Reply::Int(1));
    for (at, client) in clients.iter_mut().enumerate() {
        let ended = within(PROMISED, || client.call(&["PING"]).is_err().then_some(()));
        assert!(ended.is_some(), "the connection to store {at} ends");
    }
}

#[test]
fn a_store_that_is_cut_off_goes_on_with_the_users_that_it_knew() {
    let _alone = alone();
    let mut stores = start();
    assert_eq!(
        call(&stores, 0, &["ACL", "SETUSER", "carol", "on", ">pw", "+@connection", "+acl|whoami"]),
        Some(Reply::OK)
    );
    let login = ["AUTH", "carol", "pw"];
    for at in 0..3 {
        eventually("the store knows the user", || {
            let who = as_user(&stores, at, &login, &["ACL", "WHOAMI"]);
            (who == Some(Reply::bulk("carol"))).then_some(())
        });
    }
    // One of three has no quorum, also after its own restart.
    stores.all.iter_mut().for_each(|store| store.kill());
    stores.all[2].spawn();
    eventually("the store answers by itself", || {
        let who = as_user(&stores, 2, &login, &["ACL", "WHOAMI"]);
        (who == Some(Reply::bulk("carol"))).then_some(())
    });
    assert!(starts_with(&as_user(&stores, 2, &login, &["CONFIG", "GET", "*"]), "NOPERM"));
    let set = call(&stores, 2, &["ACL", "SETUSER", "carol", "+@all"]);
    assert!(starts_with(&set, "ERR"), "without a quorum nobody changes users: {set:?}");
}
