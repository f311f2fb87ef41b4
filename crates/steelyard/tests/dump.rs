//! `DUMP` and `RESTORE` beside a real `redis-server`: the payloads of each restore on the other
//! one, for every type and encoding, at sizes on both sides of Redis's thresholds. `streams` has
//! those of streams.

#[allow(dead_code, reason = "the protocol tests use it, too")]
#[path = "differential/connection.rs"]
mod connection;
#[path = "differential/servers.rs"]
mod servers;
#[path = "dump/streams.rs"]
mod streams;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bytes::Bytes;
use connection::Connection;
use resp::Reply;

/// Numbers of elements around the thresholds of 128 and 512, and of nodes of lists.
const COUNTS: [usize; 8] = [1, 2, 127, 128, 129, 511, 512, 513];
/// Lengths around the threshold of 64 bytes, and around the forms of lengths in packed encodings.
const LENGTHS: [usize; 9] = [1, 63, 64, 65, 127, 128, 253, 254, 5000];

type Command = Vec<Vec<u8>>;

fn command<A: AsRef<[u8]>>(words: &[A]) -> Command {
    words.iter().map(|word| word.as_ref().to_vec()).collect()
}

/// Returns text that does not compress if `seed` is odd.
fn text(length: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|at| if seed % 2 == 0 { b'a' + (at / 40 % 3) as u8 } else { next() }).collect()
}

/// Returns commands that make keys of every type, and the names of the keys.
fn corpus() -> (Vec<Command>, Vec<String>) {
    let mut commands: Vec<Command> = Vec::new();
    let numbers = ["0", "-1", "127", "128", "-128", "-129", "32767", "32768", "-32769", "8388607", "8388608"];
    let wide = ["2147483647", "2147483648", "-2147483648", "9223372036854775807", "-9223372036854775808"];
    let numbers: Vec<&str> = numbers.into_iter().chain(wide).collect();
    let strings = ["", "a", "007", "-0", "1.5", "18446744073709551615", "binary\r\n\0\u{ff}"];
    for (at, value) in numbers.iter().copied().chain(strings).enumerate() {
        commands.push(command(&["SET", &format!("string:{at}"), value]));
    }
    for length in [19, 20, 21, 63, 64, 16_383, 16_384, 100_000] {
        for seed in 0..2 {
            let key = format!("string:{length}:{seed}").into_bytes();
            commands.push(vec![b"SET".to_vec(), key, text(length, seed)]);
        }
    }
    let mut sizes: Vec<(usize, usize)> = COUNTS.iter().map(|count| (*count, 5)).collect();
    sizes.extend(LENGTHS.iter().map(|length| (3, *length)));
    for (count, length) in sizes {
        let element = |prefix: &str, at: usize| {
            let mut element = format!("{prefix}{at}:").into_bytes();
            element.extend(text(length, at));
            element
        };
        let mut all: [Command; 4] = ["RPUSH list", "SADD set", "HSET hash", "ZADD sorted"].map(|words| {
            let (name, kind) = words.split_once(' ').unwrap();
            command(&[name, &format!("{kind}:{count}:{length}")])
        });
        for at in 0..count {
            all[0].push(element("item", at));
            all[1].push(element("member", at));
            all[2].extend([element("field", at), element("value", at * 7)]);
            let score = ["inf", "-inf", "0.1", "3", "-1e300", "1.5e-10"].get(at).copied();
            let score = score.map_or(format!("{}", at as f64 / 3.0), str::to_owned);
            all[3].extend([score.into_bytes(), element("name", at)]);
        }
        commands.extend(all);
        // Integers in packed encodings, and sets of them in each width.
        for (width, step) in [("small", 1i64), ("16", 60), ("32", 4_000_000), ("64", 1 << 50)] {
            let mut all: [Command; 4] = ["RPUSH list", "SADD set", "HSET hash", "ZADD sorted"].map(|words| {
                let (name, kind) = words.split_once(' ').unwrap();
                command(&[name, &format!("{kind}:{count}:{length}:{width}")])
            });
            for at in 0..count as i64 {
                let number = ((at - count as i64 / 2) * step).to_string().into_bytes();
                all[0].push(number.clone());
                all[1].push(number.clone());
                all[2].extend([number.clone(), number.clone()]);
                all[3].extend([number.clone(), number]);
            }
            commands.extend(all);
        }
    }
    // A list of several nodes, a node for each element, and elements larger than a node.
    let mut nodes = command(&["RPUSH", "list:nodes"]);
    nodes.extend((0..3000).map(|at| format!("element number {at}").into_bytes()));
    nodes.extend((0..3).map(|seed| text(20_000, seed)));
    commands.push(nodes);
    let mut registers = command(&["PFADD", "registers"]);
    registers.extend((0..2000).map(|at| format!("{at}").into_bytes()));
    commands.push(registers);
    let keys: BTreeSet<String> =
        commands.iter().map(|words| String::from_utf8(words[1].clone()).unwrap()).collect();
    (commands, keys.into_iter().collect())
}

/// Returns a key's type and value, in an order that both servers agree on.
fn value(connection: &mut Connection, key: &str) -> String {
    let Reply::Simple(kind) = connection.call(&["TYPE", key]).unwrap() else { panic!("no type of {key}") };
    let reply = match &*kind {
        "string" => connection.call(&["GET", key]),
        "list" => connection.call(&["LRANGE", key, "0", "-1"]),
        "set" => connection.call(&["SMEMBERS", key]),
        "hash" => connection.call(&["HGETALL", key]),
        "zset" => connection.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        other => panic!("{key}: {other}"),
    };
    let reply = reply.unwrap();
    let mut text = format!("{kind} ");
    match (&*kind, &reply) {
        ("set" | "hash", Reply::Array(items) | Reply::Set(items)) => {
            let chunk = if kind == "hash" { 2 } else { 1 };
            let items: BTreeSet<String> = items.chunks(chunk).map(|part| format!("{part:?}")).collect();
            let _ = write!(text, "{items:?}");
        }
        _ => {
            let _ = write!(text, "{reply:?}");
        }
    }
    text
}

fn dumped(connection: &mut Connection, key: &str) -> Bytes {
    match connection.call(&["DUMP", key]).unwrap() {
        Reply::Bulk(payload) => payload,
        other => panic!("DUMP {key}: {other:?}"),
    }
}

fn restored(connection: &mut Connection, key: &str, payload: &Bytes) {
    let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"];
    assert_eq!(connection.call(&words).unwrap(), Reply::OK, "RESTORE {key}");
}

#[test]
fn payloads_restore_on_the_other_server_with_the_same_value() {
    let Some(theirs) = servers::redis(&["--enable-debug-command", "yes"]) else { return };
    let ours = servers::steelyard(&[]);
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    let (commands, keys) = corpus();
    let mut encodings = BTreeSet::new();
    // As configured by default, then with other thresholds: compressed and plain nodes of lists,
    // and everything in hash tables, skip lists, or packed.
    let other: [&[&str]; 3] = [
        &[],
        &[
            "list-compress-depth 1",
            "list-max-listpack-size -1",
            "hash-max-listpack-entries 0",
            "zset-max-listpack-entries 0",
            "set-max-intset-entries 0",
        ],
        &[
            "list-max-listpack-size 3",
            "hash-max-listpack-entries 9999",
            "hash-max-listpack-value 99999",
            "zset-max-listpack-entries 9999",
            "zset-max-listpack-value 99999",
            "set-max-intset-entries 9999",
        ],
    ];
    for (round, settings) in other.iter().enumerate() {
        theirs.call(&["FLUSHALL"]).unwrap();
        for setting in *settings {
            let (name, value) = setting.split_once(' ').unwrap();
            assert_eq!(theirs.call(&["CONFIG", "SET", name, value]).unwrap(), Reply::OK, "{setting}");
        }
        if round == 2 {
            assert_eq!(theirs.call(&["DEBUG", "QUICKLIST-PACKED-THRESHOLD", "200b"]).unwrap(), Reply::OK);
        }
        for reply in theirs.pipeline(&commands).unwrap() {
            assert!(!reply.is_error(), "{reply:?}");
        }
        for key in &keys {
            let expected = value(&mut theirs, key);
            let encoding = theirs.call(&["OBJECT", "ENCODING", key]).unwrap();
            let payload = dumped(&mut theirs, key);
            encodings.insert(payload[0]);
            restored(&mut ours, key, &payload);
            assert_eq!(value(&mut ours, key), expected, "{key} from Redis");
            let payload = dumped(&mut ours, key);
            restored(&mut theirs, key, &payload);
            assert_eq!(value(&mut theirs, key), expected, "{key} back to Redis");
            if round == 0 && !key.starts_with("string") {
                assert_eq!(theirs.call(&["OBJECT", "ENCODING", key]).unwrap(), encoding, "{key}");
            }
        }
    }
    // Strings, sets, hashes and sorted sets in tables, sets of integers, listpacks, quicklists.
    assert_eq!(encodings.into_iter().collect::<Vec<_>>(), [0, 2, 4, 5, 11, 16, 17, 18]);
}

#[test]
fn refusals_and_options_are_those_of_redis() {
    let Some(theirs) = servers::redis(&["--sanitize-dump-payload", "yes"]) else { return };
    let ours = servers::steelyard(&[]);
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    theirs.call(&["SET", "from", "10"]).unwrap();
    theirs.call(&["RPUSH", "list", "a"]).unwrap();
    let good = dumped(&mut theirs, "from").to_vec();
    let list = dumped(&mut theirs, "list").to_vec();
    theirs.call(&["FLUSHALL"]).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut payload = good.clone();
        payload[at] ^= byte;
        payload
    };
    // A payload with a right checksum and wrong contents.
    let sealed = |body: &[u8]| {
        let mut payload = body.to_vec();
        rdb::seal_payload(&mut payload);
        payload
    };
    let newer = {
        let mut payload = good[..2].to_vec();
        payload.extend(99u16.to_le_bytes());
        payload.extend(rdb::crc64(0, &payload).to_le_bytes());
        payload
    };
    let far = "9999999999999";
    let mut requests: Vec<(Vec<&[u8]>, &[u8])> = vec![
        (vec![b"RESTORE", b"k", b"0"], &good),
        (vec![b"RESTORE", b"k", b"0"], &good),
        (vec![b"RESTORE", b"k", b"x"], &good),
        (vec![b"RESTORE", b"k", b"-1", b"", b"REPLACE"], &good),
        (vec![b"RESTORE", b"k", b"x", b"", b"REPLACE"], &good),
        (vec![b"RESTORE", b"k", b"0", b"", b"replace"], &list),
        (vec![b"RESTORE", b"other", b"-5"], &good),
        (vec![b"RESTORE", b"e", far.as_bytes(), b"", b"ABSTTL"], &good),
        (vec![b"RESTORE", b"past", b"1", b"", b"ABSTTL"], &good),
        (vec![b"RESTORE", b"k", b"1", b"", b"ABSTTL", b"REPLACE"], &good),
        (vec![b"RESTORE", b"i", b"0", b"", b"IDLETIME", b"5"], &good),
        (vec![b"RESTORE", b"f", b"0", b"", b"FREQ", b"255"], &good),
        (vec![b"RESTORE", b"x", b"0", b"", b"FREQ", b"256"], &good),
        (vec![b"RESTORE", b"x", b"0", b"", b"FREQ", b"-1"], &good),
        (vec![b"RESTORE", b"x", b"0", b"", b"IDLETIME", b"-1"], &good),
        (vec![b"RESTORE", b"x", b"0", b"", b"IDLETIME", b"x"], &good),
        (vec![b"RESTORE", b"x", b"0", b"", b"IDLETIME", b"1", b"FREQ", b"1"], &good),
        (vec![b"RESTORE", b"x", b"0", b"", b"FREQ"], &good),
        (vec![b"RESTORE", b"x", b"0", b"", b"nonsense"], &good),
        (vec![b"RESTORE", b"x"], &good),
        (vec![b"DUMP", b"missing"], b""),
        (vec![b"DUMP"], b""),
        (vec![b"RESTORE", b"x", b"0"], b""),
        (vec![b"RESTORE", b"x", b"0"], &good[..9]),
        (vec![b"RESTORE", b"x", b"0"], &newer),
    ];
    let damaged: Vec<Vec<u8>> = (0..good.len()).map(|at| changed(at, 0x11)).collect();
    requests.extend(damaged.iter().map(|payload| (vec![&b"RESTORE"[..], b"x", b"0"], &payload[..])));
    let wrong = [
        sealed(b"\x00\x20abc"),
        sealed(b"\x01\x00"),
        sealed(b"\x02\x02\x01a\x01a"),
        sealed(b"\x04\x02\x01a\x01b\x01a\x01c"),
        sealed(b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f"),
        sealed(b"\x10\x05short"),
        sealed(b"\x63\x01a"),
        sealed(b"\x0b\x09\x02\0\0\0\x05\0\0\0\x01"),
    ];
    requests.extend(wrong.iter().map(|payload| (vec![&b"RESTORE"[..], b"x", b"0"], &payload[..])));
    for (mut words, payload) in requests {
        match words.len() {
            3 if words[0] == b"RESTORE" => words.push(payload),
            4.. => words[3] = payload,
            _ => {}
        }
        let shown: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        let (ours, theirs) = (ours.call(&words).unwrap(), theirs.call(&words).unwrap());
        assert_eq!(ours, theirs, "{shown:?}");
    }
    for key in ["k", "e", "past", "i", "f"] {
        for words in [["EXISTS", key], ["PEXPIRETIME", key]] {
            assert_eq!(ours.call(&words).unwrap(), theirs.call(&words).unwrap(), "{words:?}");
        }
    }
    let words: [&[u8]; 4] = [b"RESTORE", b"x", b"0", &sealed(b"\x07\x01")];
    assert_eq!(ours.call(&words).unwrap(), Reply::error("ERR values of modules are not supported"));
}

/// Returns the events of keys that a command causes.
fn events(server: &servers::Server, words: &[&[u8]]) -> Vec<String> {
    let (mut client, mut subscriber) = (server.connect(), server.connect());
    client.call(&["CONFIG", "SET", "notify-keyspace-events", "AKEn"]).unwrap();
    subscriber.call(&["PSUBSCRIBE", "__keyevent*@*__:*"]).unwrap();
    client.call(words).unwrap();
    client.call(&["PUBLISH", "__keyevent@0__:end", ""]).unwrap();
    let mut events = Vec::new();
    loop {
        let Reply::Array(parts) = subscriber.reply().unwrap() else { panic!("no message") };
        match format!("{:?} {:?}", parts[2], parts[3]) {
            end if end.contains("__:end") => return events,
            event => events.push(event),
        }
    }
}

#[test]
fn restored_keys_cause_the_events_of_redis() {
    let Some(theirs) = servers::redis(&[]) else { return };
    let ours = servers::steelyard(&[]);
    let mut payload = b"\x00\x01a".to_vec();
    rdb::seal_payload(&mut payload);
    let mut compared = 0;
    for words in [
        &[&b"RESTORE"[..], b"k", b"0", &payload][..],
        &[b"RESTORE", b"k", b"0", &payload],
        &[b"RESTORE", b"k", b"1000000", &payload, b"REPLACE"],
        &[b"RESTORE", b"k", b"1", &payload, b"REPLACE", b"ABSTTL"],
        &[b"RESTORE", b"k", b"1", &payload, b"REPLACE", b"ABSTTL"],
    ] {
        let (ours, theirs) = (events(&ours, words), events(&theirs, words));
        assert_eq!(ours, theirs);
        compared += ours.len();
    }
    assert_eq!(compared, 5);
}

#[test]
fn a_value_too_large_for_a_payload_is_refused_and_one_below_the_limit_is_not() {
    let ours = servers::steelyard(&[]);
    let mut ours = ours.connect();
    let chunk = vec![b'x'; 16 << 20];
    for _ in 0..3 {
        ours.call(&[&b"APPEND"[..], b"k", &chunk]).unwrap();
    }
    assert_eq!(dumped(&mut ours, "k").len(), (48 << 20) + 1 + 5 + 10);
    ours.call(&[&b"RPUSH"[..], b"list", &chunk, &chunk, &chunk]).unwrap();
    ours.call(&[&b"RPUSH"[..], b"list", &chunk, b"more"]).unwrap();
    match ours.call(&["DUMP", "list"]).unwrap() {
        Reply::Error(text) => {
            assert!(text.starts_with("ERR the value is too large for one payload"), "{text}")
        }
        other => panic!("{} bytes", other.bytes()),
    }
    // A large value may be stored once for each element.
    ours.call(&[&b"SET"[..], b"w_a", &chunk]).unwrap();
    ours.call(&["RPUSH", "same", "a", "a", "a", "a", "a"]).unwrap();
    let sorted = ours.call(&["SORT", "same", "BY", "nosort", "GET", "w_*", "STORE", "d"]).unwrap();
    assert_eq!(sorted, Reply::error("ERR SORT stores at most 64 MiB of values"));
    let sorted = ours.call(&["SORT", "same", "BY", "nosort", "LIMIT", "0", "3", "GET", "w_*", "STORE", "d"]);
    assert_eq!(sorted.unwrap(), Reply::Int(3));
    // Three bytes decompress to 264, so this payload of less than 1 MiB would become 69 MB.
    let mut payload = vec![0u8, 0xc3];
    let mut compressed = vec![0u8, b'x'];
    let copies = 262_144;
    (0..copies).for_each(|_| compressed.extend([0xe0, 0xff, 0x00]));
    rdb::write::length(&mut payload, compressed.len() as u64);
    rdb::write::length(&mut payload, 1 + copies * 264);
    payload.extend(&compressed);
    rdb::seal_payload(&mut payload);
    match ours.call(&[&b"RESTORE"[..], b"bomb", b"0", &payload]).unwrap() {
        Reply::Error(text) => assert!(text.contains("payload is too large"), "{text}"),
        other => panic!("{other:?}"),
    }
}
