//! Attempts to do more than a user may.

use std::fs;

use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;
use crate::servers::{steelyard, Server};
use crate::stores::{self, alone, eventually, Plan, Stores};

const NOPERM: &str = "NOPERM";

fn refused(reply: &Reply, with: &str) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with(with))
}

/// Sets a user who may read and write keys that begin with `a`, and logs in.
fn limited(server: &Server) -> Connection {
    let mut admin = server.connect();
    let set = admin.call(&[
        "ACL",
        "SETUSER",
        "limited",
        "reset",
        "on",
        ">pw",
        "~a*",
        "+@read",
        "+@write",
        "+select|0",
    ]);
    assert_eq!(set.unwrap(), Reply::OK);
    let mut connection = server.connect();
    assert_eq!(connection.call(&["AUTH", "limited", "pw"]).unwrap(), Reply::OK);
    connection
}

#[test]
fn a_key_in_any_place_of_a_command_is_checked() {
    let server = steelyard(&[]);
    let mut client = limited(&server);
    let denied = [
        "GET b",
        "MGET a b",
        "MSET a 1 b 2",
        "DEL a b",
        "COPY a b",
        "COPY b a",
        "RENAME a b",
        "RENAMENX b a",
        "BITOP AND a a b",
        "BITOP NOT b a",
        "OBJECT ENCODING b",
        "MEMORY USAGE b",
        "LMPOP 2 a b LEFT",
        "ZMPOP 1 b MIN",
        "ZUNIONSTORE b 1 a",
        "ZUNIONSTORE a 2 a b",
        "ZINTERSTORE a 1 b",
        "ZUNION 2 a b",
        "ZINTERCARD 2 a b",
        "SINTERCARD 2 a b",
        "SUNIONSTORE b a a",
        "SMOVE a b m",
        "LMOVE b a LEFT LEFT",
        "RPOPLPUSH a b",
        "ZRANGESTORE b a 0 1",
        "PFMERGE a b",
        "PFCOUNT a b",
        "LCS a b",
        "TOUCH a b",
        "UNLINK a b",
        "EXISTS a b",
        "SET b v GET",
        "GETDEL b",
        "BITFIELD b GET u8 0",
    ];
    for line in denied {
        let words: Vec<&str> = line.split(' ').collect();
        let reply = client.call(&words).unwrap();
        assert!(
            refused(&reply, "NOPERM this user has no permissions to access one of the keys"),
            "{line}: {reply:?}"
        );
    }
    assert_eq!(client.call(&["MSET", "a1", "1", "a2", "2"]).unwrap(), Reply::OK);
}

#[test]
fn commands_of_a_pipeline_are_checked_one_by_one_under_the_user_of_their_time() {
    let server = steelyard(&[]);
    drop(limited(&server));
    let mut client = server.connect();
    let lines = [
        "SET b 1",
        "AUTH limited pw",
        "SET b 2",
        "SET a 2",
        "CONFIG GET maxclients",
        "FLUSHALL",
        "SELECT 1",
        "SELECT 0",
        "GET a",
        "AUTH limited wrong",
        "GET b",
        "RESET",
        "GET b",
    ];
    let requests: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let replies = client.pipeline(&requests).unwrap();
    let denied: Vec<&str> = lines
        .iter()
        .zip(&replies)
        .filter(|(_, reply)| refused(reply, NOPERM))
        .map(|(line, _)| *line)
        .collect();
    // FLUSHALL is a write, and so permitted: it has no keys. SET b 1 was sent by the default user.
    assert_eq!(denied, ["SET b 2", "CONFIG GET maxclients", "SELECT 1", "GET b"]);
    assert_eq!((&replies[0], &replies[3], &replies[8]), (&Reply::OK, &Reply::OK, &Reply::Nil));
    assert_eq!(replies[12], Reply::Nil, "after RESET the default user reads");
}

#[test]
fn a_change_of_users_counts_for_the_next_command_of_the_same_pipeline() {
    let server = steelyard(&[]);
    let mut client = server.connect();
    let lines = [
        "ACL SETUSER me on nopass ~* +@all",
        "AUTH me x",
        "SET k 1",
        "ACL SETUSER me -set",
        "SET k 2",
        "ACL SETUSER me +set",
        "SET k 3",
        "ACL DELUSER me",
        "SET k 4",
    ];
    let requests: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    requests.iter().for_each(|words| {
        let mut bytes = bytes::BytesMut::new();
        resp::encode_request(words, &mut bytes);
        client.send(&bytes).unwrap();
    });
    let replies = client.replies_to_the_end().unwrap();
    assert_eq!(replies.len(), 8, "the connection ends after the answer to the deletion: {replies:?}");
    assert!(refused(&replies[4], NOPERM), "{replies:?}");
    assert_eq!((&replies[6], &replies[7]), (&Reply::OK, &Reply::Int(1)));
    assert_eq!(server.connect().call(&["GET", "k"]).unwrap(), Reply::bulk("3"));
}

/// A command that another store executes is checked where it enters, on each kind of port.
#[test]
fn commands_of_a_transaction_are_checked_when_they_are_queued_and_when_they_are_executed() {
    let server = steelyard(&[]);
    let mut client = limited(&server);
    let mut admin = server.connect();
    let call = |connection: &mut Connection, line: &str| {
        connection.call(&line.split(' ').collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(call(&mut admin, "ACL SETUSER limited +@transaction +@blocking"), Reply::OK);
    for line in ["WATCH b", "BLPOP b 0", "BLMOVE a b LEFT LEFT 0", "BZMPOP 0 1 b MIN"] {
        assert!(refused(&call(&mut client, line), NOPERM), "{line}");
    }
    assert_eq!(call(&mut client, "MULTI"), Reply::OK);
    assert_eq!(call(&mut client, "SET a 1"), Reply::Simple("QUEUED".into()));
    assert!(refused(&call(&mut client, "SET b 1"), NOPERM));
    assert!(refused(&call(&mut client, "EXEC"), "EXECABORT"));
    assert_eq!(call(&mut client, "MULTI"), Reply::OK);
    assert_eq!(call(&mut client, "SET a 1"), Reply::Simple("QUEUED".into()));
    assert_eq!(call(&mut admin, "ACL SETUSER limited resetkeys ~c*"), Reply::OK);
    assert!(refused(
        &call(&mut client, "EXEC"),
        "EXECABORT Transaction discarded because of: NOPERM this user has no permissions"
    ));
    assert_eq!(call(&mut admin, "EXISTS a b"), Reply::Int(0));
    assert_eq!(call(&mut client, "SET c 1"), Reply::OK, "the transaction has ended");
}

#[test]
fn passing_a_command_on_to_another_store_gets_around_nothing() {
    let _alone = alone();
    for cluster_enabled in [false, true] {
        let regions = if cluster_enabled { 6 } else { 1 };
        let plan = Plan { stores: 3, regions, cluster_enabled, ..Plan::default() };
        let stores = Stores::start(&plan);
        let set = ["ACL", "SETUSER", "limited", "reset", "on", ">pw", "~a*", "+@read", "+@write"];
        eventually("the user is set", || {
            Connection::open(stores.all[0].client).ok()?.call(&set).ok().filter(|reply| *reply == Reply::OK)
        });
        let ports = stores.all.iter().flat_map(|store| [Some(store.client), store.forward]).flatten();
        for address in ports {
            let mut client = eventually("the store knows the user", || {
                let mut client = Connection::open(address).ok()?;
                client.call(&["AUTH", "limited", "pw"]).ok().filter(|reply| *reply == Reply::OK)?;
                Some(client)
            });
            for number in 0..40 {
                let reply = client.call(&["SET", &format!("b{number}"), "v"]).unwrap();
                assert!(refused(&reply, NOPERM), "{address}: {reply:?}");
                let reply = client.call(&["SET", &format!("a{number}"), "v"]).unwrap();
                assert!(reply == Reply::OK || refused(&reply, "MOVED"), "{address}: {reply:?}");
            }
            for words in [&["CONFIG", "GET", "*"][..], &["CLUSTER", "INFO"], &["ACL", "LIST"], &["SHUTDOWN"]]
            {
                assert!(refused(&client.call(words).unwrap(), NOPERM), "{words:?}");
            }
        }
    }
}

#[test]
fn a_client_that_has_not_logged_in_learns_and_changes_nothing() {
    let server = steelyard(&["--requirepass", "open sesame"]);
    let mut client = server.connect();
    for line in [
        "GET a",
        "ACL LIST",
        "ACL WHOAMI",
        "ACL SETUSER x on nopass +@all",
        "CONFIG GET *",
        "COMMAND",
        "NONSENSE",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(refused(&client.call(&words).unwrap(), "NOAUTH"), "{line}");
    }
    for words in
        [["AUTH", "default", ""], ["AUTH", "nobody", "open sesame"], ["AUTH", "default", "open sesame\0"]]
    {
        assert!(refused(&client.call(&words).unwrap(), "WRONGPASS"), "{words:?}");
    }
    assert_eq!(client.call(&["AUTH", "open sesame"]).unwrap(), Reply::OK);
    let denied = client.call(&["INFO", "stats"]).unwrap();
    let text = format!("{denied:?}");
    assert!(text.contains("acl_access_denied_auth:3"), "{text}");
}

#[test]
fn passwords_are_shown_nowhere() {
    let secret = "n0-0ne-may-read-this";
    let server = steelyard(&["--requirepass", secret]);
    let mut client = server.connect();
    assert_eq!(client.call(&["AUTH", secret]).unwrap(), Reply::OK);
    let set = ["ACL", "SETUSER", "u", "on", &format!(">{secret}"), "+@all"];
    eventually("the cluster takes users", || client.call(&set).ok().filter(|reply| *reply == Reply::OK));
    assert!(refused(&client.call(&["AUTH", "u", "wrong-but-secret"]).unwrap(), "WRONGPASS"));
    // Mistyped changes are recorded, too.
    for line in
        ["CONFIG SET requirepas %", "CONFIG SET % requirepass", "ACL SETUSER u %", "ACL SETUSER u (>%)"]
    {
        let line = line.replace('%', secret);
        let words: Vec<&str> = line.split(' ').collect();
        assert!(matches!(client.call(&words).unwrap(), Reply::Error(_)), "{line}");
    }
    for line in [
        "CONFIG GET *",
        "CONFIG GET requirepass",
        "ACL LIST",
        "ACL GETUSER u",
        "ACL LOG",
        "CLIENT LIST",
        "INFO everything",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let text = format!("{:?}", client.call(&words).unwrap());
        assert!(!text.contains(secret) && !text.contains("wrong-but-secret"), "{line}: {text}");
    }
    assert!(format!("{:?}", client.call(&["CONFIG", "GET", "requirepass"]).unwrap()).contains("(hidden)"));
    let kept = server.files();
    assert!(!kept.is_empty());
    for (path, text) in kept {
        let has = |secret: &str| text.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!has(secret) && !has("wrong-but-secret"), "{} has the password", path.display());
    }
}

#[test]
fn a_file_of_users_is_written_and_read_and_a_damaged_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    let path = path.to_str().unwrap();
    let server = steelyard(&["--aclfile", path]);
    let mut admin = server.connect();
    let missing = admin.call(&["ACL", "LOAD"]).unwrap();
    assert!(refused(&missing, "ERR Error loading ACLs, opening file"), "{missing:?}");
    assert_eq!(admin.call(&["ACL", "SETUSER", "kept", "on", ">pw", "~k*", "+get"]).unwrap(), Reply::OK);
    assert_eq!(admin.call(&["ACL", "SAVE"]).unwrap(), Reply::OK);
    let saved = fs::read_to_string(path).unwrap();
    assert!(
        saved.contains("user default on nopass")
            && saved.contains("user kept on #")
            && !saved.contains(">pw")
    );
    assert_eq!(admin.call(&["ACL", "SETUSER", "gone", "on", "nopass", "+@all"]).unwrap(), Reply::OK);
    let mut gone = server.connect();
    assert_eq!(gone.call(&["AUTH", "gone", ""]).unwrap(), Reply::OK);
    fs::write(path, format!("{saved}user broken +nonsense\n")).unwrap();
    assert!(refused(&admin.call(&["ACL", "LOAD"]).unwrap(), "ERR "));
    assert_eq!(gone.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
    fs::write(path, &saved).unwrap();
    assert_eq!(admin.call(&["ACL", "LOAD"]).unwrap(), Reply::OK);
    assert_eq!(
        admin.call(&["ACL", "USERS"]).unwrap(),
        Reply::Array(vec![Reply::bulk("default"), Reply::bulk("kept")])
    );
    assert!(eventually("the connection ends", || gone.call(&["PING"]).is_err().then_some(true)));
}

#[test]
fn random_bytes_as_rules_and_names_harm_nothing() {
    let server = steelyard(&[]);
    let mut client = server.connect();
    let mut chance = Chance::new(11);
    for _ in 0..1500 {
        let mut words: Vec<Vec<u8>> = vec![b"ACL".to_vec(), b"SETUSER".to_vec()];
        for _ in 0..1 + chance.below(4) {
            let marks = b"+-~%&@|()<>#! \0\"'\\xONonalgets*\xff\xc3";
            let length = chance.below(12);
            words.push((0..length).map(|_| marks[chance.below(marks.len())]).collect());
        }
        client.call(&words).expect("the store answers");
        words[1] = b"DRYRUN".to_vec();
        client.call(&words).expect("the store answers");
    }
    // All that was accepted is described and read again.
    assert!(matches!(client.call(&["ACL", "LIST"]).unwrap(), Reply::Array(users) if !users.is_empty()));
    assert_eq!(server.connect().call(&["ACL", "WHOAMI"]).unwrap(), Reply::bulk("default"));
}

#[test]
fn the_admin_port_asks_for_a_user_with_the_permission() {
    let _alone = alone();
    let stores = Stores::start(&Plan { flags: &[("--admin-auth", "yes")], ..Plan::default() });
    let mut admin = Connection::open(stores.all[0].client).unwrap();
    eventually("the users are set", || {
        let looks = ["ACL", "SETUSER", "looks", "on", ">pw", "+config|get"];
        let changes = ["ACL", "SETUSER", "changes", "on", ">pw", "+@admin"];
        let set = [admin.call(&looks).ok()?, admin.call(&changes).ok()?];
        set.iter().all(|reply| *reply == Reply::OK).then_some(())
    });
    let run = |login: Option<&str>, words: &[&str]| {
        let mut command = stores::steelyard();
        command.env_remove("STEELYARD_ADMIN_AUTH").args(["ctl", "--admin"]);
        command.arg(stores.all[0].admin().address().to_string()).args(words);
        if let Some(login) = login {
            command.env("STEELYARD_ADMIN_AUTH", login);
        }
        command.output().expect("ctl runs")
    };
    let ctl = |login: Option<&str>, words: &[&str]| run(login, words).status.success();
    let (look, change): (&[&str], &[&str]) = (&["stores"], &["config", "finish-upgrades", "no"]);
    for (login, looks, changes) in [
        (None, false, false),
        (Some("looks:wrong"), false, false),
        (Some("nobody:pw"), false, false),
        (Some("looks:pw"), true, false),
        (Some("changes:pw"), true, true),
        (Some("default:anything"), true, true),
    ] {
        assert_eq!((ctl(login, look), ctl(login, change)), (looks, changes), "{login:?}");
    }
    for (login, part) in
        [(None, "needs a user and a password"), (Some("looks:wrong"), "the user or the password is wrong")]
    {
        let said = String::from_utf8_lossy(&run(login, look).stderr).into_owned();
        assert!(said.contains(part), "{login:?}: {said}");
    }
}
