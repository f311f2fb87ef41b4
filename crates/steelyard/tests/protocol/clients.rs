//! Connections as other clients see them: listed, named, killed, and limited in number.

use std::collections::BTreeMap;

use bytes::Bytes;
use resp::Reply;

use crate::connection::{is_closed, Connection};
use crate::script::assert_same;
use crate::servers::{redis, steelyard, Server};

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(text) | Reply::Verbatim(_, text) => String::from_utf8(text.to_vec()).unwrap(),
        other => panic!("{other:?} is no text"),
    }
}

/// Returns the lines of `CLIENT LIST` as fields.
fn listed(connection: &mut Connection, args: &[&str]) -> Vec<BTreeMap<String, String>> {
    let lines = text(connection.call(args).unwrap());
    let field = |field: &str| {
        let (name, value) = field.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    };
    lines.lines().map(|line| line.split(' ').map(field).collect()).collect()
}

fn id(connection: &mut Connection) -> i64 {
    match connection.call(&["CLIENT", "ID"]).unwrap() {
        Reply::Int(id) => id,
        other => panic!("{other:?} is no id"),
    }
}

/// Starts both servers, ours first, so that a test can check the same claims on both.
fn both() -> Vec<Server> {
    [Some(steelyard(&[])), redis(&[])].into_iter().flatten().collect()
}

#[test]
fn a_client_is_listed_with_its_number_addresses_name_database_and_protocol() {
    for server in both() {
        let mut client = server.connect();
        let mut watcher = server.connect();
        let number = id(&mut client);
        client.call(&["HELLO", "3", "SETNAME", "worker"]).unwrap();
        client.call(&["SELECT", "5"]).unwrap();
        client.call(&["GET", "k"]).unwrap();
        let all = listed(&mut watcher, &["CLIENT", "LIST"]);
        assert_eq!(all.len(), 2);
        let line = listed(&mut watcher, &["CLIENT", "LIST", "ID", &number.to_string()]).pop().unwrap();
        assert!(all.iter().any(|other| other["id"] == line["id"]));
        assert_eq!(line["id"], number.to_string());
        assert_eq!(line["name"], "worker");
        assert_eq!(line["db"], "5");
        assert_eq!(line["resp"], "3");
        assert_eq!(line["cmd"], "get");
        assert_eq!(line["addr"], client.local().to_string());
        assert_eq!(line["laddr"], server.address.to_string());
        assert_eq!(line["user"], "default");
        let own = listed(&mut watcher, &["CLIENT", "INFO"]).pop().unwrap();
        assert_eq!(own["cmd"], "client|info");
        assert_eq!(own["id"], id(&mut watcher).to_string());
        drop(client);
        // The server detects the end of the connection a little later.
        while listed(&mut watcher, &["CLIENT", "LIST"]).len() > 1 {
            std::thread::yield_now();
        }
    }
}

/// Tools look up the fields of `CLIENT LIST` by name.
#[test]
fn client_list_has_every_field_that_redis_has() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let fields = |server: &Server| listed(&mut server.connect(), &["CLIENT", "LIST"]).remove(0);
    let ours = fields(&ours);
    for field in fields(&theirs).keys() {
        assert!(ours.contains_key(field), "CLIENT LIST lacks {field}");
    }
}

#[test]
fn a_killed_client_is_gone_and_the_others_stay() {
    for server in both() {
        let mut killer = server.connect();
        let number = |connection: &mut Connection| id(connection).to_string();
        let mut victims: Vec<Connection> = (0..4).map(|_| server.connect()).collect();
        // Other clients see a connection only after it has been accepted. The call ensures that.
        let numbers: Vec<String> = victims.iter_mut().map(number).collect();
        assert_eq!(killer.call(&["CLIENT", "KILL", "ID", &numbers[0]]).unwrap(), Reply::Int(1));
        let address = victims[1].local().to_string();
        assert_eq!(killer.call(&["CLIENT", "KILL", &address]).unwrap(), Reply::OK);
        assert_eq!(killer.call(&["CLIENT", "KILL", &address]).unwrap(), Reply::error("ERR No such client"));
        let address = victims[2].local().to_string();
        assert_eq!(killer.call(&["CLIENT", "KILL", "ADDR", &address]).unwrap(), Reply::Int(1));
        for victim in &mut victims[..3] {
            assert!(is_closed(&victim.call(&["PING"]).unwrap_err()));
        }
        assert_eq!(victims[3].call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
        // This kills every connection except the caller's own.
        let local = server.address.to_string();
        assert_eq!(killer.call(&["CLIENT", "KILL", "LADDR", &local]).unwrap(), Reply::Int(1));
        assert!(is_closed(&victims[3].call(&["PING"]).unwrap_err()));
        // The caller's own connection ends after the answer.
        let own = number(&mut killer);
        assert_eq!(killer.call(&["CLIENT", "KILL", "ID", &own, "SKIPME", "no"]).unwrap(), Reply::Int(1));
        assert!(is_closed(&killer.call(&["PING"]).unwrap_err()));
    }
}

#[test]
fn what_client_commands_refuse_they_refuse_as_redis_does() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    assert_same(
        &ours,
        &theirs,
        &["CLIENT SETNAME a_b
           CLIENT GETNAME
           CLIENT SETNAME ab
           CLIENT GETNAME
           CLIENT SETNAME ''
           CLIENT GETNAME
           CLIENT SETNAME é
           CLIENT KILL
           CLIENT KILL 1.2.3.4:5
           CLIENT KILL nonsense
           CLIENT KILL ID
           CLIENT KILL ID x
           CLIENT KILL ID 0
           CLIENT KILL ID -1
           CLIENT KILL ID 999999999
           CLIENT KILL ADDR 1.2.3.4:5
           CLIENT KILL LADDR 1.2.3.4:5
           CLIENT KILL TYPE nonsense
           CLIENT KILL TYPE pubsub
           CLIENT KILL TYPE replica
           CLIENT KILL TYPE master
           CLIENT KILL USER nobody
           CLIENT KILL SKIPME maybe
           CLIENT KILL NONSENSE x
           CLIENT KILL ID 999999999 ADDR
           CLIENT KILL ID 999999999 SKIPME yes
           CLIENT LIST NONSENSE
           CLIENT LIST TYPE
           CLIENT LIST TYPE nonsense
           CLIENT LIST TYPE pubsub
           CLIENT LIST TYPE replica
           CLIENT LIST ID
           CLIENT LIST ID x
           CLIENT LIST ID 0
           CLIENT LIST ID 1 x
           CLIENT LIST ID 999999999
           CLIENT LIST NONSENSE x"],
    );
}

#[test]
fn the_number_of_clients_is_bounded_and_places_come_free() {
    let flags = ["--maxclients", "3"];
    for server in [Some(steelyard(&flags)), redis(&flags)].into_iter().flatten() {
        let mut clients: Vec<Connection> = Vec::new();
        // The connection that waited for the server's start may still be counted for a moment.
        while clients.len() < 3 {
            let mut client = server.connect();
            if matches!(client.call(&["PING"]), Ok(Reply::Simple(_))) {
                clients.push(client);
            }
        }
        let refused = server.connect().replies_to_the_end().unwrap();
        assert_eq!(refused, [Reply::error("ERR max number of clients reached")]);
        assert_eq!(clients[0].call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
        clients.pop();
        while !matches!(server.connect().call(&["PING"]), Ok(Reply::Simple(_))) {
            std::thread::yield_now();
        }
        // The limit can be raised while the server runs.
        assert_eq!(clients[0].call(&["CONFIG", "SET", "maxclients", "50"]).unwrap(), Reply::OK);
        let mut more: Vec<Connection> = (0..20).map(|_| server.connect()).collect();
        for client in &mut more {
            assert_eq!(client.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
        }
    }
}

/// A request that arrives byte by byte is one request.
#[test]
fn packets_have_no_part_in_what_is_said() {
    for server in both() {
        let mut client = server.connect();
        for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nb\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" {
            client.send(std::slice::from_ref(byte)).unwrap();
        }
        assert_eq!(client.reply().unwrap(), Reply::OK);
        assert_eq!(client.reply().unwrap(), Reply::Bulk(Bytes::from_static(b"a\r\nb\n")));
    }
}

#[test]
fn a_silent_client_is_closed_after_the_timeout_and_one_that_waits_or_talks_is_not() {
    for server in both() {
        let mut silent = server.connect();
        let mut waiting = server.connect();
        let mut subscribed = server.connect();
        let mut talking = server.connect();
        subscribed.call(&["SUBSCRIBE", "channel"]).unwrap();
        silent.call(&["PING"]).unwrap();
        let mut bytes = bytes::BytesMut::new();
        resp::encode_request(&["BLPOP", "list", "0"], &mut bytes);
        waiting.send(&bytes).unwrap();
        assert_eq!(talking.call(&["CONFIG", "SET", "timeout", "1"]).unwrap(), Reply::OK);
        let mut ended = None;
        while ended.is_none() {
            talking.call(&["PING"]).expect("a client that talks stays");
            ended = silent.reply_within(std::time::Duration::from_millis(50)).err();
        }
        assert!(ended.is_some_and(|error| is_closed(&error)));
        assert_eq!(talking.call(&["RPUSH", "list", "x"]).unwrap(), Reply::Int(1));
        assert!(matches!(waiting.reply().unwrap(), Reply::Array(pair) if pair.len() == 2));
        assert_eq!(talking.call(&["PUBLISH", "channel", "x"]).unwrap(), Reply::Int(1));
        assert!(matches!(subscribed.reply().unwrap(), Reply::Array(message) if message.len() == 3));
        assert_eq!(talking.call(&["CONFIG", "SET", "timeout", "0"]).unwrap(), Reply::OK);
    }
}

#[test]
fn clients_that_do_not_log_in_are_few_and_do_not_stay() {
    let server = steelyard(&["--requirepass", "secret", "--maxclients-unauthenticated", "3"]);
    let log_in = |mut client: Connection| {
        assert_eq!(client.call(&["AUTH", "secret"]).unwrap(), Reply::OK);
        client
    };
    let mut logged_in = log_in(server.connect());
    let mut strangers: Vec<Connection> = Vec::new();
    // The connection that waited for the server's start may still be counted for a moment.
    while strangers.len() < 3 {
        let mut client = server.connect();
        let reply = client.call(&["PING"]);
        if reply.is_ok_and(|reply| matches!(&reply, Reply::Error(text) if text.starts_with("NOAUTH"))) {
            strangers.push(client);
        }
    }
    let refused = server.connect().replies_to_the_end().unwrap();
    assert_eq!(refused, [Reply::error("ERR max number of clients reached")]);
    // A client that has logged in needs no place.
    let mut second = log_in(strangers.pop().unwrap());
    let mut third = log_in(server.connect());
    let set = ["CONFIG", "SET", "maxclients-unauthenticated", "0", "auth-timeout", "1"];
    assert_eq!(third.call(&set).unwrap(), Reply::OK);
    strangers.extend((0..20).map(|_| server.connect()));
    for mut stranger in strangers {
        assert!(stranger.replies_to_the_end().unwrap().is_empty());
    }
    for client in [&mut logged_in, &mut second, &mut third] {
        assert_eq!(client.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
    }
    // If the default user needs no password, its clients may stay without a login.
    let mut fourth = server.connect();
    assert_eq!(third.call(&["CONFIG", "SET", "requirepass", ""]).unwrap(), Reply::OK);
    assert_eq!(fourth.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(fourth.call(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
}

#[test]
fn a_core_file_would_not_have_the_memory() {
    for (flags, is_kept_out) in [(&[][..], true), (&["--core-file-memory", "yes"][..], false)] {
        let server = steelyard(flags);
        let filter = std::fs::read_to_string(format!("/proc/{}/coredump_filter", server.pid())).unwrap();
        assert_eq!(filter.trim() == "00000010", is_kept_out, "{filter}");
    }
}
