//! The audit log and the bearer tokens of the admin port.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use resp::Reply;
use serde_json::Value;

use crate::connection::Connection;
use crate::stores::{alone, ctl, eventually, Plan, Store, Stores};

/// Starts three stores whose cluster keeps an audit log.
fn start(flags: &[(&str, &str)]) -> Stores {
    let stores = Stores::start(&Plan { stores: 3, flags, ..Plan::default() });
    for store in &stores.all {
        eventually("the store knows the version with users", || {
            let mut connection = Connection::open(store.client).ok()?;
            connection.call(&["ACL", "SETUSER", "first"]).ok().filter(|reply| *reply == Reply::OK)
        });
    }
    stores
}

fn records(store: &Store) -> Option<Vec<Value>> {
    let rows = store.host().ctl(&["audit", "--last", "1000"]).ok()?;
    rows["records"].as_array().cloned()
}

/// Returns what a record says of a change: the store, the user, the words and the outcome.
fn said(record: &Value) -> (u64, Option<&str>, String, &str) {
    let change = &record["change"];
    let arguments = change["arguments"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<&str> = change["command"].as_str().into_iter().chain(arguments).collect();
    let user = change["user"].as_str();
    (change["store"].as_u64().unwrap(), user, words.join(" "), record["outcome"].as_str().unwrap())
}

#[test]
fn changes_are_in_the_log_of_all_stores_without_secrets_and_survive_kills() {
    let _alone = alone();
    let mut stores = start(&[]);
    let secret = "n0-0ne-may-read-this";
    let began_ms = client_ms();
    let mut first = Connection::open(stores.all[1].client).unwrap();
    let set = ["ACL", "SETUSER", "ann", "on", &format!(">{secret}"), "+@all", "~*", "a\nb"];
    assert!(matches!(first.call(&set).unwrap(), Reply::Error(_)), "the last word is no rule");
    assert_eq!(first.call(&set[..7]).unwrap(), Reply::OK);
    let mut ann = eventually("the other store knows the user", || {
        let mut connection = Connection::open(stores.all[2].client).ok()?;
        connection.call(&["AUTH", "ann", secret]).ok().filter(|reply| *reply == Reply::OK)?;
        Some(connection)
    });
    assert_eq!(ann.call(&["CONFIG", "SET", "timeout", "77", "requirepass", ""]).unwrap(), Reply::OK);
    let forged = "/x\n9  2026-01-01 00:00:00  0  none  127.0.0.1:1  acl setuser  done";
    assert!(matches!(ann.call(&["CONFIG", "SET", "loglevel", forged]).unwrap(), Reply::Error(_)));
    assert!(matches!(ann.call(&["CONFIG", "SET", "requirepas", secret]).unwrap(), Reply::Error(_)));
    assert_eq!(ann.call(&["ACL", "DELUSER", "first"]).unwrap(), Reply::Int(1));
    ctl(&stores, 0, &["config", "finish-upgrades", "no"]).unwrap();
    ctl(&stores, 0, &["config", "replicas", "9"]).unwrap_err();
    ctl(&stores, 0, &["config", "requirepass", secret]).unwrap_err();
    ctl(&stores, 0, &["store", "pin", "2", "--data-weight", "5"]).unwrap();
    assert!(matches!(ann.call(&["FUNCTION", "DELETE", "none"]).unwrap(), Reply::Error(_)));
    let expected = [
        (1, None, "acl setuser ann on >(hidden) +@all ~* (hidden)".to_owned(), "refused"),
        (1, None, "acl setuser ann on >(hidden) +@all ~*".to_owned(), "done"),
        (2, Some("ann"), "config set timeout 77 requirepass (hidden)".to_owned(), "done"),
        (2, Some("ann"), format!("config set loglevel {forged}"), "refused"),
        (2, Some("ann"), "config set (hidden) (hidden)".to_owned(), "refused"),
        (2, Some("ann"), "acl deluser first".to_owned(), "done"),
        (0, None, "config name=finish-upgrades value=no".to_owned(), "done"),
        (0, None, "config name=replicas value=9".to_owned(), "refused"),
        (0, None, "config name=(hidden) value=(hidden)".to_owned(), "refused"),
        (0, None, "store 2 change=pin data_weight=5.0".to_owned(), "done"),
        (2, Some("ann"), "function delete none".to_owned(), "refused"),
    ];
    for store in &stores.all {
        let records = records(store).expect("the store shows the log");
        let ids: Vec<u64> = records.iter().filter_map(|record| record["id"].as_u64()).collect();
        assert!(ids.iter().copied().eq(1..=records.len() as u64), "no record is missing: {ids:?}");
        let last = &records[records.len() - expected.len()..];
        let told: Vec<_> = last.iter().map(said).collect();
        let expected: Vec<_> =
            expected.iter().map(|(at, user, words, end)| (*at, *user, words.clone(), *end)).collect();
        assert_eq!(told, expected);
        let replicas = &last[7];
        let reason = replicas["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("3 stores stay"), "{reason}");
        for record in last {
            let at = record["change"]["at_ms"].as_u64().unwrap();
            assert!(at + 5000 >= began_ms && at <= client_ms() + 5000, "{record}");
            let address: SocketAddr = record["change"]["address"].as_str().unwrap().parse().unwrap();
            assert!(address.ip().is_loopback() && address.port() > 0);
            assert!(!record.to_string().contains(secret), "{record}");
        }
    }
    let table = ctl(&stores, 1, &["audit", "--last", "8"]).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains("127.0.0.1:")).count(), 8, "{table}");
    assert!(!table.contains(secret));
    for store in &stores.all {
        assert!(!store.log_text().contains(secret), "the log of store {} has the password", store.id);
    }
    assert!(stores.all[2].log_text().contains("audit: a change"));

    // A store that reaches no quorum takes a change of its own, and delivers the record later, even
    // if it is killed in between.
    let before = records(&stores.all[0]).unwrap();
    stores.kill_all();
    stores.all[2].spawn();
    let mut ann = eventually("the store answers by itself", || {
        let mut connection = Connection::open(stores.all[2].client).ok()?;
        connection.call(&["AUTH", "ann", secret]).ok().filter(|reply| *reply == Reply::OK)?;
        Some(connection)
    });
    assert_eq!(ann.call(&["CONFIG", "SET", "timeout", "78"]).unwrap(), Reply::OK);
    let kept = stores.all[2].dir.join("AUDIT");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    stores.all[2].kill();
    stores.all.iter_mut().for_each(Store::spawn);
    stores.await_ready();
    let late = eventually("the record is delivered", || {
        let records = records(&stores.all[0])?;
        let late: Vec<Value> = records[before.len().min(records.len())..].to_vec();
        assert_eq!(records[..before.len()], before[..], "records survive kills");
        (!late.is_empty()).then_some(late)
    });
    let told: Vec<_> = late.iter().map(said).collect();
    assert_eq!(told, [(2, Some("ann"), "config set timeout 78".to_owned(), "done")]);
    eventually("nothing is kept any more", || (!kept.exists()).then_some(()));
}

fn client_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis() as u64
}

/// Sends a request with a header. Returns the status and the whole answer.
fn request(address: SocketAddr, request: &str, authorization: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (head, body) = request.split_once('|').unwrap_or((request, ""));
    let text = format!(
        "{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {authorization}\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[test]
fn a_token_may_do_what_its_user_may_at_the_admin_port_of_every_store_until_it_is_revoked() {
    let _alone = alone();
    let stores = start(&[("--admin-auth", "yes")]);
    let mut admin = Connection::open(stores.all[0].client).unwrap();
    let mut call = |words: &[&str]| admin.call(words).unwrap();
    let metrics = ["ACL", "SETUSER", "metrics", "on", "resetpass", "+info"];
    assert_eq!(call(&metrics), Reply::OK);
    assert_eq!(call(&["ACL", "SETUSER", "plain", "on", ">pw", "+@admin", "-acl"]), Reply::OK);
    let admin_of = |at: usize| stores.all[at].admin().address();
    let basic = |pair: &str| format!("Authorization: Basic {pair}\r\n");
    // default:x and plain:pw
    let (default, plain) = (basic("ZGVmYXVsdDp4"), basic("cGxhaW46cHc="));
    let create = |name: &str, user: &str| {
        let body = format!(r#"{{"change":"create","name":"{name}","user":"{user}"}}"#);
        request(admin_of(0), &format!("POST /api/v1/tokens|{body}"), &default)
    };
    let token_of = |answer: &str| {
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        body["token"].as_str().unwrap_or_else(|| panic!("no token in {body}")).to_owned()
    };
    let (status, answer) = create("prometheus", "metrics");
    assert_eq!(status, 200, "{answer}");
    let token = token_of(&answer);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    for at in 0..3 {
        eventually("the store knows the token", || {
            (request(admin_of(at), "GET /metrics", &bearer).0 == 200).then_some(())
        });
    }
    // Each wrong use has its own error.
    let policy = r#"POST /api/v1/policy|{"policy":"even"}"#;
    let revoke = r#"POST /api/v1/tokens|{"change":"revoke","name":"prometheus"}"#;
    for (wanted, header, status, text) in [
        ("GET /api/v1/stores", &bearer, 403, "permission for CONFIG GET"),
        (policy, &bearer, 403, "permission for CONFIG SET"),
        ("GET /api/v1/audit", &bearer, 403, "permission for ACL LOG"),
        ("GET /api/v1/tokens", &bearer, 403, "permission for ACL LIST"),
        (revoke, &bearer, 403, "permission for ACL SETUSER"),
        (revoke, &plain, 403, "permission for ACL SETUSER"),
        ("GET /metrics", &String::new(), 401, "a user and a password, or a token"),
        ("GET /metrics", &bearer.replace("steelyard_", "steelyard-"), 401, "no such token"),
        ("GET /metrics", &"Authorization: Bearer \r\n".to_owned(), 401, "or a token"),
        ("GET /metrics", &"Authorization: Bearer x\r\n".to_owned(), 401, "no such token"),
        ("GET /metrics", &"Authorization: Digest x\r\n".to_owned(), 401, "or a token"),
    ] {
        let (found, answer) = request(admin_of(0), wanted, header);
        assert!(found == status && answer.contains(text), "{wanted} {header}: {answer}");
    }
    let (_, answer) = request(admin_of(0), "GET /metrics", "Authorization: Bearer x\r\n");
    assert!(answer
        .to_ascii_lowercase()
        .contains(r#"www-authenticate: bearer realm="steelyard", error="invalid_token""#));
    for (name, user, text) in [
        ("prometheus", "metrics", "there is a token of that name"),
        ("other", "nobody", "there is none of that name"),
        ("a b", "metrics", "the name of a token has"),
    ] {
        let (status, answer) = create(name, user);
        assert!(status == 409 && answer.contains(text), "{answer}");
    }
    // It is no password, and is in no list or record.
    let mut client = Connection::open(stores.all[0].client).unwrap();
    for login in [vec!["AUTH", "metrics", &token], vec!["AUTH", &token]] {
        assert!(matches!(client.call(&login).unwrap(), Reply::Error(_)));
    }
    for path in ["GET /api/v1/tokens", "GET /api/v1/audit"] {
        let (status, answer) = request(admin_of(1), path, &default);
        assert!(status == 200 && answer.contains("prometheus") && !answer.contains(&token), "{answer}");
    }
    // The user decides: off, on, and gone for good.
    let status = |header: &str| request(admin_of(0), "GET /metrics", header);
    assert_eq!(call(&["ACL", "SETUSER", "metrics", "off"]), Reply::OK);
    let (code, answer) = status(&bearer);
    assert!(code == 403 && answer.contains("the user of the token is off"), "{answer}");
    assert_eq!(call(&["ACL", "SETUSER", "metrics", "on"]), Reply::OK);
    assert_eq!(status(&bearer).0, 200);
    assert_eq!(call(&["ACL", "DELUSER", "metrics"]), Reply::Int(1));
    assert_eq!(status(&bearer).0, 401);
    assert_eq!(call(&metrics), Reply::OK);
    assert_eq!(status(&bearer).0, 401, "a user of the same name is another one");
    let (_, answer) = create("prometheus", "metrics");
    let second = format!("Authorization: Bearer {}\r\n", token_of(&answer));
    assert_eq!((status(&bearer).0, status(&second).0), (401, 200));
    assert_eq!(request(admin_of(0), revoke, &default).0, 200);
    assert_eq!(status(&second).0, 401);
    for at in 1..3 {
        eventually("the store refuses the revoked token", || {
            (request(admin_of(at), "GET /metrics", &second).0 == 401).then_some(())
        });
    }
    let (code, answer) = request(admin_of(0), revoke, &default);
    assert!(code == 409 && answer.contains("there is no token of that name"), "{answer}");
    let body = r#"{"change":"create","name":"short","user":"metrics","seconds":1}"#;
    let (_, answer) = request(admin_of(0), &format!("POST /api/v1/tokens|{body}"), &default);
    let short = format!("Authorization: Bearer {}\r\n", token_of(&answer));
    eventually("the token expires", || {
        let (code, answer) = request(admin_of(0), "GET /metrics", &short);
        (code == 401 && answer.contains("the token has expired")).then_some(())
    });
    token_files(&stores);
}

/// Creates a token with `ctl`, into a file that only its owner can read.
fn token_files(stores: &Stores) {
    let file = stores.all[0].dir.with_extension("token");
    let ctl_as = |(variable, login): (&str, &str), words: &[&str]| {
        let mut command = crate::stores::steelyard();
        command.env(variable, login).args(["ctl", "--admin"]);
        command.arg(stores.all[0].admin().address().to_string()).args(words);
        let output = command.output().expect("ctl runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let ctl = |words: &[&str]| ctl_as(("STEELYARD_ADMIN_AUTH", "default:x"), words);
    let path = file.to_str().unwrap();
    let (is_done, text) = ctl(&["token", "create", "filed", "--user", "metrics", "--file", path]);
    let token = fs::read_to_string(&file).unwrap();
    assert!(is_done && !text.contains(&token), "{text}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(request(stores.all[0].admin().address(), "GET /metrics", &bearer).0, 200);
    let (is_done, text) = ctl(&["token", "list"]);
    assert!(is_done && text.contains("filed") && text.contains("never") && !text.contains(&token), "{text}");
    let (is_done, plain) = ctl(&["token", "create", "month", "--user", "plain", "--days", "30"]);
    assert!(is_done && ctl(&["token", "list"]).1.contains("in 29d"), "{plain}");
    let with_token = |token: &str| ctl_as(("STEELYARD_ADMIN_TOKEN", token), &["stores"]).0;
    assert!(with_token(&plain) && !with_token(&token), "the first one's user may look at stores");
    assert!(ctl(&["token", "revoke", "filed"]).0 && !ctl(&["token", "revoke", "filed"]).0);
}
