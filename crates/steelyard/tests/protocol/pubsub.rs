//! Channels: scripts with several clients, each of which must get the same messages and replies
//! from Redis and from Steelyard.

use std::time::Duration;

use resp::Reply;

use crate::chance::Chance;
use crate::connection::{is_closed, Connection};
use crate::servers::{redis, steelyard, Server};

/// Time in which bytes are read that have arrived.
const HERE: Duration = Duration::from_millis(2);
/// Time in which nothing more must arrive at the end of a script.
const SILENCE: Duration = Duration::from_millis(100);

fn send(connection: &mut Connection, line: &str) {
    let words: Vec<String> = line.split(' ').map(|word| word.replace("''", "")).collect();
    let mut bytes = bytes::BytesMut::new();
    resp::encode_request(&words, &mut bytes);
    // The server may have closed the connection.
    let _ = connection.send(&bytes);
}

/// Returns the next reply or message; `None` if there is none within the time.
fn next(connection: &mut Connection, time: Option<Duration>) -> Option<String> {
    let next = match time {
        Some(time) => connection.reply_within(time),
        None => connection.reply().map(Some),
    };
    match next {
        Ok(reply) => reply.map(|reply| shown(&reply)),
        Err(error) if is_closed(&error) => Some("(closed)".to_owned()),
        Err(error) => panic!("{error}"),
    }
}

fn shown(reply: &Reply) -> String {
    let text = format!("{reply:?}");
    // The number of a connection differs.
    text.split("Bulk(b\"id\")").next().unwrap_or_default().to_owned()
}

/// Three clients of a server.
struct Side {
    clients: Vec<Connection>,
    barrier: Connection,
    /// The number of the last client's connection.
    last: String,
}

impl Side {
    fn new(server: &Server) -> Side {
        let mut clients: Vec<Connection> = (0..3).map(|_| server.connect()).collect();
        clients[0].call(&["FLUSHALL"]).expect("a reply");
        let Reply::Int(last) = clients[2].call(&["CLIENT", "ID"]).expect("a reply") else {
            panic!("no number")
        };
        Side { clients, barrier: server.connect(), last: last.to_string() }
    }

    fn send(&mut self, client: usize, command: &str) {
        let command = command.replace("@2", &self.last);
        send(&mut self.clients[client], &command);
    }

    /// Returns everything that Redis has sent to each client. Redis writes all messages before it
    /// executes the next command.
    fn take_all(&mut self, sender: usize) -> Vec<Vec<String>> {
        let first = next(&mut self.clients[sender], None);
        self.barrier.call(&["PING"]).expect("a reply");
        let mut all: Vec<Vec<String>> = vec![Vec::new(); self.clients.len()];
        all[sender].extend(first);
        for (client, taken) in self.clients.iter_mut().zip(&mut all) {
            while taken.last().is_none_or(|text| text != "(closed)") {
                match next(client, Some(HERE)) {
                    Some(text) => taken.push(text),
                    None => break,
                }
            }
        }
        self.named(all)
    }

    /// Returns this many replies and messages of each client.
    fn take(&mut self, counts: &[usize]) -> Vec<Vec<String>> {
        let take = |(client, count): (&mut Connection, &usize)| -> Vec<String> {
            (0..*count).filter_map(|_| next(client, None)).collect()
        };
        let all = self.clients.iter_mut().zip(counts).map(take).collect();
        self.named(all)
    }

    fn named(&self, mut all: Vec<Vec<String>>) -> Vec<Vec<String>> {
        for taken in &mut all {
            // A notice of a client's own change may come before its reply.
            taken.sort_by_key(|text| text.contains("invalidate") && !text.contains("subscribe"));
            taken.iter_mut().for_each(|text| *text = text.replace(&format!("Int({})", self.last), "Int(@2)"));
        }
        all
    }
}

/// Plays a script of lines `client: command` to both servers. Returns the differences.
fn differences(ours: &Server, theirs: &Server, script: &str) -> Vec<String> {
    let (mut ours, mut theirs) = (Side::new(ours), Side::new(theirs));
    let mut differing = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (client, command) = line.split_once(": ").expect("a client and its command");
        let client: usize = client.parse().expect("the number of a client");
        ours.send(client, command);
        theirs.send(client, command);
        let expected = theirs.take_all(client);
        let got = ours.take(&expected.iter().map(Vec::len).collect::<Vec<_>>());
        if got != expected {
            differing.push(format!("{line}\n  steelyard:    {got:?}\n  redis-server: {expected:?}"));
        }
    }
    for (at, client) in ours.clients.iter_mut().enumerate() {
        match next(client, Some(SILENCE)) {
            Some(text) if text != "(closed)" => {
                differing.push(format!("client {at} also got {text}\n{script}"))
            }
            _ => {}
        }
    }
    differing
}

const SCRIPTS: &[&str] = &[
    "0: SUBSCRIBE a b a
     0: PING
     0: PING hi
     0: PING a b
     0: GET x
     0: CLIENT LIST
     0: SUBSCRIBE
     0: nonsense
     1: PUBLISH a one
     1: PUBLISH c none
     0: PSUBSCRIBE a*
     1: PUBLISH a two
     1: PUBLISH ab three
     1: PUBLISH a ''
     0: UNSUBSCRIBE a
     1: PUBLISH a four
     0: SSUBSCRIBE a
     1: SPUBLISH a five
     1: PUBLISH a six
     0: UNSUBSCRIBE b
     0: UNSUBSCRIBE
     0: UNSUBSCRIBE zz
     0: PUNSUBSCRIBE
     0: GET x
     0: SUNSUBSCRIBE
     0: SUNSUBSCRIBE
     0: SUNSUBSCRIBE zz
     0: PUNSUBSCRIBE yy zz
     0: GET x",
    "0: HELLO 3
     0: SUBSCRIBE a b
     0: PING
     0: PING hi
     0: GET x
     0: PUBLISH a self
     0: PSUBSCRIBE a?
     0: PUBLISH ab self
     0: PSUBSCRIBE *
     0: SUBSCRIBE ''
     1: PUBLISH '' none
     0: PUBSUB CHANNELS ''
     0: UNSUBSCRIBE ''
     0: PUNSUBSCRIBE *
     1: PUBLISH b other
     0: UNSUBSCRIBE b
     0: UNSUBSCRIBE b
     0: HELLO 2
     1: PUBLISH a now-resp2
     0: GET x
     0: PING
     0: HELLO 3
     0: UNSUBSCRIBE a
     0: PUNSUBSCRIBE a?
     0: HELLO 3
     0: SET x 1
     0: GET x",
    "0: MULTI
     0: SUBSCRIBE a b
     0: PUBLISH a x
     0: PING
     0: SSUBSCRIBE s
     1: PUBLISH a early
     0: EXEC
     0: GET x
     1: PUBLISH b y
     0: MULTI
     0: EXEC
     0: UNSUBSCRIBE a b
     0: GET x",
    "0: HELLO 3
     0: MULTI
     0: SUBSCRIBE a b
     0: PUBLISH a x
     0: PING
     0: UNSUBSCRIBE a
     0: SPUBLISH a x
     0: GET x
     0: EXEC
     0: GET x
     1: PUBLISH a y
     1: PUBLISH b y",
    "0: MULTI
     0: UNSUBSCRIBE
     0: PUNSUBSCRIBE a b
     0: EXEC
     0: PUBSUB
     0: PUBSUB CHANNELS
     0: PUBSUB CHANNELS a b
     0: PUBSUB NUMSUB
     0: PUBSUB NUMSUB a b
     0: PUBSUB NUMPAT
     0: PUBSUB NUMPAT x
     0: PUBSUB SHARDCHANNELS
     0: PUBSUB SHARDNUMSUB a
     0: PUBSUB nonsense
     0: PUBLISH a
     0: PUBLISH a b c
     1: SUBSCRIBE news
     2: PSUBSCRIBE n* m*
     2: SSUBSCRIBE shard
     0: PUBSUB CHANNELS
     0: PUBSUB CHANNELS n?ws
     0: PUBSUB CHANNELS x*
     0: PUBSUB NUMSUB news shard n*
     0: PUBSUB NUMPAT
     0: PUBSUB SHARDCHANNELS
     0: PUBSUB SHARDCHANNELS s*
     0: PUBSUB SHARDNUMSUB shard news
     0: COMMAND GETKEYS SSUBSCRIBE a b
     0: COMMAND GETKEYS PUBLISH a b",
    "0: SUBSCRIBE a
     0: RESET
     0: GET x
     1: PUBLISH a none
     0: HELLO 3
     0: SUBSCRIBE a
     0: RESET
     0: SUBSCRIBE a
     1: PUBLISH a resp2
     0: QUIT
     1: PUBLISH a none
     1: CLIENT KILL TYPE pubsub
     2: SUBSCRIBE a
     1: CLIENT KILL TYPE pubsub
     1: PUBLISH a none",
    "0: ACL SETUSER bob on nopass +@all ~* resetchannels &news* &exact
     1: AUTH bob x
     1: SUBSCRIBE news1 exact
     1: UNSUBSCRIBE anything
     1: SUBSCRIBE other
     1: PSUBSCRIBE news*
     1: PSUBSCRIBE news1*
     1: SSUBSCRIBE exact
     1: SSUBSCRIBE no
     2: AUTH bob x
     2: PUBLISH news2 x
     2: PUBLISH other x
     2: SPUBLISH other x
     2: PUBLISH news1 x
     0: ACL DRYRUN bob PUBLISH other x
     0: ACL DRYRUN bob PUBLISH exact x
     0: ACL DRYRUN bob PSUBSCRIBE exact
     0: ACL SETUSER bob &more
     2: PUBLISH news1 still
     0: ACL SETUSER bob resetchannels &exact
     2: PUBLISH exact gone
     0: PUBSUB CHANNELS",
];

#[test]
fn clients_of_channels_get_what_redis_sends() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let mut differing = Vec::new();
    for script in SCRIPTS {
        differing.extend(differences(&ours, &theirs, script));
    }
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}

const CACHING: &[&str] = &[
    "0: HELLO 3
     0: CLIENT TRACKINGINFO
     0: CLIENT GETREDIR
     0: CLIENT TRACKING ON
     0: CLIENT TRACKINGINFO
     0: CLIENT GETREDIR
     1: SET k 1
     0: GET k
     1: SET k 2
     1: SET k 3
     0: GET k
     0: SET k 4
     0: GET k
     1: DEL k
     0: MGET x y
     1: MSET x 1 y 2
     0: GET k
     0: HGETALL h
     1: FLUSHALL
     1: SET k 1
     0: MULTI
     0: GET k
     0: EXISTS j
     0: EXEC
     1: SET k 1
     1: SET j 1
     0: CLIENT TRACKING OFF
     0: GET k
     1: SET k 2
     0: CLIENT TRACKINGINFO",
    "0: HELLO 3
     0: CLIENT CACHING YES
     0: CLIENT TRACKING ON OPTIN
     0: CLIENT TRACKINGINFO
     0: GET k
     1: SET k 1
     0: CLIENT CACHING YES
     0: CLIENT TRACKINGINFO
     0: GET k
     0: GET j
     1: SET k 1
     1: SET j 1
     0: CLIENT CACHING YES
     0: MULTI
     0: GET k
     0: GET j
     0: EXEC
     0: GET i
     1: MSET k 1 j 1 i 1
     0: CLIENT CACHING NO
     0: CLIENT TRACKING ON OPTOUT
     0: CLIENT CACHING YES YES
     0: CLIENT CACHING foo
     0: CLIENT TRACKING OFF
     0: CLIENT TRACKING ON OPTOUT
     0: CLIENT CACHING YES
     0: CLIENT CACHING NO
     0: CLIENT TRACKINGINFO
     0: GET k
     0: GET j
     1: MSET k 1 j 1
     0: CLIENT TRACKING ON BCAST
     0: CLIENT TRACKING ON OPTIN OPTOUT
     0: RESET
     0: CLIENT TRACKINGINFO",
    "0: HELLO 3
     0: CLIENT TRACKING ON BCAST PREFIX foo PREFIX fo
     0: CLIENT TRACKING ON BCAST OPTIN
     0: CLIENT TRACKING ON PREFIX x
     0: CLIENT TRACKING ON BCAST PREFIX foo PREFIX bar
     0: CLIENT TRACKING ON BCAST PREFIX fo
     0: CLIENT TRACKING ON BCAST PREFIX zap
     0: CLIENT TRACKINGINFO
     1: MSET foo1 1 bar1 1 x 1
     1: SET foo1 2
     0: SET foo1 3
     0: CLIENT TRACKING ON
     1: FLUSHALL
     0: CLIENT TRACKING OFF PREFIX x
     0: CLIENT TRACKING ON BCAST
     0: CLIENT TRACKINGINFO
     1: MSET a 1 b 2",
    "0: CLIENT TRACKING ON
     0: CLIENT TRACKING ON REDIRECT 99999
     0: CLIENT TRACKING ON REDIRECT x
     0: CLIENT TRACKING ON REDIRECT
     0: CLIENT TRACKING ON REDIRECT @2
     0: CLIENT TRACKINGINFO
     0: CLIENT GETREDIR
     0: GET k
     1: SET k 1
     2: SUBSCRIBE __redis__:invalidate
     0: GET k
     1: SET k 1
     0: GET k
     1: FLUSHALL
     0: CLIENT TRACKING
     0: CLIENT TRACKING FOO
     0: CLIENT TRACKING ON FOO
     0: CLIENT CACHING
     2: QUIT
     0: GET k
     1: SET k 2
     0: CLIENT TRACKINGINFO
     0: CLIENT GETREDIR",
    "2: HELLO 3
     0: HELLO 3
     0: CLIENT TRACKING ON BCAST REDIRECT @2
     1: SET k 2
     2: QUIT
     1: SET k 3
     0: CLIENT TRACKINGINFO",
];

#[test]
fn clients_that_cache_keys_are_told_what_redis_tells_them() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let mut differing = Vec::new();
    for script in CACHING {
        differing.extend(differences(&ours, &theirs, script));
    }
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}

/// The commands after `CLIENT REPLY`: those that must have no reply are followed by one that has.
#[test]
fn replies_are_given_as_the_client_wants_them() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let lines = [
        "CLIENT REPLY SKIP",
        "GET x",
        "ECHO one",
        "CLIENT REPLY OFF",
        "PING",
        "nonsense",
        "SET x 1",
        "CLIENT REPLY ON",
        "GET x",
        "CLIENT REPLY foo",
        "CLIENT REPLY SKIP",
        "CLIENT REPLY SKIP",
        "PING",
        "ECHO two",
        "CLIENT REPLY OFF",
        "CLIENT REPLY SKIP",
        "PING",
        "CLIENT REPLY ON",
        "CLIENT REPLY SKIP",
        "MULTI",
        "INCR x",
        "EXEC",
        "CLIENT NO-EVICT ON",
        "CLIENT NO-EVICT foo",
        "ECHO end",
    ];
    let replies = |server: &Server| {
        let mut client = server.connect();
        lines.iter().for_each(|line| send(&mut client, line));
        let mut replies = Vec::new();
        while replies.last().is_none_or(|reply| *reply != Reply::bulk("end")) {
            replies.push(client.reply().expect("a reply"));
        }
        replies
    };
    assert_eq!(replies(&ours), replies(&theirs));
}

/// Returns what a client sees that monitors the commands of another one, without times and ports.
fn monitored(server: &Server) -> Vec<String> {
    let (mut monitor, mut client) = (server.connect(), server.connect());
    assert_eq!(monitor.call(&["MONITOR"]).expect("a reply"), Reply::OK);
    let lines = [
        "SET k v",
        "GET k",
        "AUTH user secret",
        "CONFIG GET port",
        "HELLO 2 AUTH user secret",
        "MULTI",
        "INCR n",
        "EXEC",
        "nonsense a",
        "GET",
        "LPUSH l a",
        "BLPOP l 0",
        "EVAL return(1) 0",
        "EVALSHA 0123456789012345678901234567890123456789 0",
        "CLIENT SETNAME foo",
        "CLIENT LIST",
        "RESET",
        "ECHO end",
    ];
    lines.iter().for_each(|line| send(&mut client, line));
    let mut seen: Vec<String> = Vec::new();
    while seen.last().is_none_or(|line| !line.contains("end")) {
        let Reply::Simple(line) = monitor.reply().expect("a line") else { panic!("no line") };
        let (_, command) = line.split_once("] ").expect("a client and its command");
        seen.push(command.to_owned());
    }
    assert_eq!(
        monitor.call(&["GET", "k"]).expect("a reply"),
        Reply::error("ERR Replica can't interact with the keyspace")
    );
    // Steelyard also shows the client its own `RESET`.
    let mut reply = monitor.call(&["RESET"]).expect("a reply");
    while reply != Reply::Simple("RESET".into()) {
        reply = monitor.reply().expect("a reply");
    }
    assert_eq!(monitor.call(&["GET", "k"]).expect("a reply"), Reply::bulk("v"));
    seen
}

#[test]
fn a_client_that_monitors_sees_the_commands_that_redis_shows_and_no_password() {
    let Some(theirs) = redis(&[]) else { return };
    let seen = monitored(&steelyard(&[]));
    assert_eq!(seen, monitored(&theirs));
    assert!(seen.iter().all(|line| !line.contains("secret")), "{seen:?}");
}

const CLIENTS: usize = 4;
const STEPS: usize = 400;
const NAMES: [&str; 6] = ["a", "b", "ab", "ba", "abc", "c"];
const PATTERNS: [&str; 6] = ["a*", "?", "[ab]", "*", "ab?", "c"];

/// Returns what arrives up to the answer to a `PING`, in an order that does not depend on that of
/// patterns and channels in a server's tables.
fn settled(connection: &mut Connection, number: usize) -> Vec<String> {
    let mark = format!("mark-{number}");
    send(connection, &format!("PING {mark}"));
    let mark = Reply::bulk(mark);
    let mut arrived = Vec::new();
    loop {
        let reply = connection.reply().expect("an answer");
        match &reply {
            Reply::Bulk(_) if reply == mark => break,
            Reply::Array(parts) if parts.len() == 2 && parts[1] == mark => break,
            Reply::Array(parts) | Reply::Push(parts)
                if parts.len() == 3 && format!("{:?}", parts[0]).contains("unsubscribe") =>
            {
                arrived.push(format!("{:?} of {:?}", parts[0], parts[1]));
                arrived.push(format!("{:?} leaves {:?}", parts[0], parts[2]));
            }
            other => arrived.push(format!("{other:?}")),
        }
    }
    arrived.sort();
    arrived
}

fn step(chance: &mut Chance) -> String {
    let (name, other) = (NAMES[chance.below(6)], NAMES[chance.below(6)]);
    let (pattern, second) = (PATTERNS[chance.below(6)], PATTERNS[chance.below(6)]);
    match chance.below(20) {
        0..=2 => format!("SUBSCRIBE {name} {other}"),
        3..=4 => format!("PSUBSCRIBE {pattern} {second}"),
        5 => format!("SSUBSCRIBE {name}"),
        6..=7 => format!("UNSUBSCRIBE {name}"),
        8 => format!("PUNSUBSCRIBE {pattern}"),
        9 => format!("SUNSUBSCRIBE {name} {other}"),
        10 => "UNSUBSCRIBE".into(),
        11 => "PUNSUBSCRIBE".into(),
        12 => "SUNSUBSCRIBE".into(),
        13 => "RESET".into(),
        14 => "HELLO 3".into(),
        15 => format!("SPUBLISH {name} s{}", chance.below(1000)),
        16 => format!("PUBSUB NUMSUB {name} {other}"),
        _ => format!("PUBLISH {name} m{}", chance.below(1000)),
    }
}

#[test]
fn random_subscriptions_and_messages_are_those_of_redis() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    for seed in 1..5 {
        let mut chance = Chance::new(seed);
        let mut sides = [&ours, &theirs]
            .map(|server| -> Vec<Connection> { (0..CLIENTS + 1).map(|_| server.connect()).collect() });
        let mut messages = 0;
        for number in 0..STEPS {
            // The last client never subscribes.
            let (client, line) = match chance.below(2) {
                0 => (CLIENTS, format!("PUBLISH {} x{number}", NAMES[chance.below(6)])),
                _ => (chance.below(CLIENTS), step(&mut chance)),
            };
            let got = sides.each_mut().map(|clients| {
                send(&mut clients[client], &line);
                // Without the number of the connection that `HELLO` tells.
                let mut all: Vec<Vec<String>> = vec![Vec::new(); CLIENTS + 1];
                all[client] = settled(&mut clients[client], number);
                for at in (0..=CLIENTS).filter(|at| *at != client) {
                    all[at] = settled(&mut clients[at], number);
                }
                if line.starts_with("HELLO") {
                    all[client].clear();
                }
                all
            });
            assert_eq!(got[0], got[1], "seed {seed}, step {number}, client {client}: {line}");
            messages += got[0].iter().flatten().filter(|text| text.contains("message")).count();
        }
        assert!(messages > 100, "{messages}");
    }
}
