//! `steelyard import` and `steelyard export` with real servers: every key is compared, also after
//! an import that was interrupted.

#[allow(dead_code, reason = "the protocol tests use it, too")]
#[path = "differential/connection.rs"]
mod connection;
#[path = "transfer/refusals.rs"]
mod refusals;
#[path = "transfer/replicate.rs"]
mod replicate;
#[allow(dead_code, reason = "the tests of users use it, too")]
#[path = "differential/servers.rs"]
mod servers;
mod stores;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use connection::Connection;
use resp::Reply;
use servers::Server;

/// Keys of the large test, in three databases.
const KEYS: usize = 20_000;
/// Requests of one pipeline that fills a server.
const PIPELINE: usize = 2000;
/// An instant that is far away.
const FAR_MS: u64 = 4_102_444_800_000;

fn url(address: SocketAddr) -> String {
    format!("redis://{address}")
}

fn steelyard(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steelyard"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> String {
    let output = steelyard(words).output().expect("the program starts");
    let told = told(&output);
    assert!(output.status.success(), "{words:?}\n{told}");
    told
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Returns commands that make a key of one of the types, sometimes with an expiry time.
fn requests_of(number: usize) -> Vec<Vec<Vec<u8>>> {
    let key = format!("key:{number}:\r\n\u{e4}").into_bytes();
    let text = |part: usize| format!("value {part} of {number} {}", "x".repeat(number % 90)).into_bytes();
    let count = 1 + number % 7;
    let mut words: Vec<Vec<u8>> = match number % 5 {
        0 => vec![
            b"SET".to_vec(),
            key.clone(),
            if number % 10 == 0 { number.to_string().into() } else { text(0) },
        ],
        1 => vec![b"RPUSH".to_vec(), key.clone()],
        2 => vec![b"SADD".to_vec(), key.clone()],
        3 => vec![b"HSET".to_vec(), key.clone()],
        _ => vec![b"ZADD".to_vec(), key.clone()],
    };
    for part in 0..count {
        match number % 5 {
            0 => {}
            1 | 2 => words.push(if number % 4 == 0 { (part * 1000).to_string().into() } else { text(part) }),
            3 => words.extend([text(part), text(part + 1)]),
            _ => words.extend([format!("{}", part as f64 / 3.0).into_bytes(), text(part)]),
        }
    }
    let mut all = vec![words];
    if number % 3 == 0 {
        let at = (FAR_MS + number as u64).to_string().into_bytes();
        all.push(vec![b"PEXPIREAT".to_vec(), key, at]);
    }
    all
}

/// Fills three databases of a server, and adds large values to the first one.
fn fill(connection: &mut Connection, keys: usize) {
    for (database, numbers) in [(0, 0..keys / 2), (3, keys / 2..keys * 3 / 4), (9, keys * 3 / 4..keys)] {
        connection.call(&["SELECT", &database.to_string()]).unwrap();
        let requests: Vec<_> = numbers.flat_map(requests_of).collect();
        for part in requests.chunks(PIPELINE) {
            for reply in connection.pipeline(part).unwrap() {
                assert!(!reply.is_error(), "{reply:?}");
            }
        }
    }
    connection.call(&["SELECT", "0"]).unwrap();
    for name in ["RPUSH large-list", "SADD large-set", "HSET large-hash", "ZADD large-sorted"] {
        let (name, key) = name.split_once(' ').unwrap();
        let mut words = vec![name.as_bytes().to_vec(), key.as_bytes().to_vec()];
        for part in 0..3000 {
            let element = format!("element {part} {}", "y".repeat(part % 50)).into_bytes();
            if name == "ZADD" {
                words.push(format!("{}", part as f64 * 0.7).into_bytes());
            }
            words.push(element.clone());
            if name == "HSET" {
                words.push(element);
            }
        }
        assert!(!connection.call(&words).unwrap().is_error());
    }
    connection.call(&["PEXPIREAT", "large-hash", &FAR_MS.to_string()]).unwrap();
    let large = vec![b'z'; 300_000];
    connection.call(&[&b"SET"[..], b"large-string", &large]).unwrap();
    for (key, entries) in [("stream", 30), ("large-stream", 2500)] {
        let mut requests: Vec<Vec<String>> = Vec::new();
        let mut run = |line: String| requests.push(line.split(' ').map(str::to_owned).collect());
        for at in 0..entries {
            run(format!("XADD {key} {at}-1 field {at} other {}", "y".repeat(at % 50)));
        }
        run(format!("XDEL {key} 3-1 9-1"));
        run(format!("XGROUP CREATE {key} first 5-1"));
        run(format!("XGROUP CREATE {key} other 0 ENTRIESREAD 0"));
        run(format!("XREADGROUP GROUP other me COUNT 6 STREAMS {key} >"));
        run(format!("XREADGROUP GROUP other you COUNT {} STREAMS {key} >", entries / 2));
        run(format!("XCLAIM {key} other they 0 5-1 6-1 RETRYCOUNT 9"));
        run(format!("XGROUP CREATECONSUMER {key} first idle"));
        run(format!("XDEL {key} {}-1", entries - 1));
        for reply in connection.pipeline(&requests).unwrap() {
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
}

/// Keys besides those of [`requests_of`].
const LARGE_KEYS: usize = 7;

/// Returns the facts about a stream that a copy in pieces keeps, in a comparable form.
fn stream_facts(reply: &Reply) -> String {
    let Reply::Array(items) = reply else { return format!("{reply:?}") };
    let mut shown = Vec::new();
    let mut items = items.iter().peekable();
    while let Some(item) = items.next() {
        let name = client::connection::text(item);
        match name.as_deref() {
            Some(b"radix-tree-keys" | b"radix-tree-nodes" | b"seen-time") => drop(items.next()),
            Some(b"pending") => {
                // Without the times of delivery, the last but one part.
                let Some(Reply::Array(pending)) = items.next() else { panic!("no list") };
                for entry in pending {
                    let Reply::Array(parts) = entry else { panic!("no entry") };
                    let end = parts.len() - 2;
                    shown.push(format!("{:?} {:?}", &parts[..end], parts[end + 1]));
                }
            }
            _ => shown.push(stream_facts(item)),
        }
    }
    format!("{shown:?}")
}

/// Returns all keys of a database.
fn keys_of(connection: &mut Connection, database: u16) -> Vec<Bytes> {
    connection.call(&["SELECT", &database.to_string()]).unwrap();
    let Reply::Array(keys) = connection.call(&["KEYS", "*"]).unwrap() else { panic!("no keys") };
    let mut keys: Vec<Bytes> = keys.iter().filter_map(client::connection::text).collect();
    keys.sort();
    keys
}

/// Returns a comparable form of a value.
fn shown(kind: &str, reply: &Reply) -> String {
    match (kind, reply) {
        ("set", Reply::Array(items)) => {
            format!("{:?}", items.iter().map(|item| format!("{item:?}")).collect::<BTreeSet<_>>())
        }
        ("hash", Reply::Array(items)) => {
            format!("{:?}", items.chunks(2).map(|pair| format!("{pair:?}")).collect::<BTreeSet<_>>())
        }
        ("stream", reply) => stream_facts(reply),
        _ => format!("{reply:?}"),
    }
}

/// Compares every key of every database: type, value and expiry time. Returns the number of keys.
fn compare(ours: &mut Connection, theirs: &mut Connection) -> usize {
    let mut compared = 0;
    for database in 0..16 {
        let keys = keys_of(ours, database);
        assert_eq!(keys, keys_of(theirs, database), "database {database}");
        for part in keys.chunks(PIPELINE) {
            let kinds: Vec<Vec<&[u8]>> = part.iter().map(|key| vec![&b"TYPE"[..], key]).collect();
            let kinds: Vec<String> = theirs
                .pipeline(&kinds)
                .unwrap()
                .into_iter()
                .map(|kind| String::from_utf8(client::connection::text(&kind).unwrap().to_vec()).unwrap())
                .collect();
            let mut requests: Vec<Vec<&[u8]>> = Vec::new();
            for (key, kind) in part.iter().zip(&kinds) {
                requests.push(match kind.as_str() {
                    "string" => vec![b"GET", key],
                    "list" => vec![b"LRANGE", key, b"0", b"-1"],
                    "set" => vec![b"SMEMBERS", key],
                    "hash" => vec![b"HGETALL", key],
                    "zset" => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
                    "stream" => vec![b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"],
                    other => panic!("{other}"),
                });
                requests.push(vec![b"PEXPIRETIME", key]);
            }
            let (ours, theirs) = (ours.pipeline(&requests).unwrap(), theirs.pipeline(&requests).unwrap());
            for ((key, kind), at) in part.iter().zip(&kinds).zip((0..).step_by(2)) {
                let key = key.escape_ascii();
                assert_eq!(shown(kind, &ours[at]), shown(kind, &theirs[at]), "{kind} {key}");
                assert_eq!(ours[at + 1], theirs[at + 1], "{kind} {key}: expiry time");
            }
            compared += part.len();
        }
    }
    compared
}

/// Saves a server's data and returns the path of its file.
fn save(server: &Server, connection: &mut Connection) -> std::path::PathBuf {
    assert_eq!(connection.call(&["SAVE"]).unwrap(), Reply::OK);
    server.dir().join("dump.rdb")
}

#[test]
fn a_running_redis_and_its_file_are_imported_and_exported_again() {
    let Some(redis) = servers::redis(&[]) else { return };
    let mut theirs = redis.connect();
    fill(&mut theirs, KEYS);
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    assert!(!theirs.call(&["FUNCTION", "LOAD", library]).unwrap().is_error());
    let file = save(&redis, &mut theirs);
    let ours = servers::steelyard(&[]);
    let to = url(ours.address);
    let mut connection = ours.connect();

    let words = ["import", "--rdb", file.to_str().unwrap(), "--to", &to, "--large", "30000"];
    let told_of_file = run(&words);
    assert!(told_of_file.contains("1000 random keys: 0 differ"), "{told_of_file}");
    assert!(told_of_file.contains("6 keys in pieces"), "{told_of_file}");
    assert_eq!(compare(&mut connection, &mut theirs), KEYS + LARGE_KEYS);

    connection.call(&["FLUSHALL"]).unwrap();
    connection.call(&["SELECT", "0"]).unwrap();
    // A key of the target that the source has too is replaced.
    connection.call(&["SET", "large-list", "old"]).unwrap();
    let words = ["import", "--from", &url(redis.address), "--to", &to, "--large", "30000"];
    let told_of_copy = run(&words);
    assert!(told_of_copy.contains("keys/s"), "{told_of_copy}");
    assert_eq!(compare(&mut connection, &mut theirs), KEYS + LARGE_KEYS);

    let dir = tempfile::tempdir().unwrap();
    let exported = dir.path().join("dump.rdb");
    run(&["export", "--rdb", exported.to_str().unwrap(), "--from", &to, "--large", "30000"]);
    let Some(loaded) = servers::redis(&["--dir", dir.path().to_str().unwrap()]) else { return };
    assert_eq!(compare(&mut connection, &mut loaded.connect()), KEYS + LARGE_KEYS);
    // Redis's own data, with its functions.
    let again = dir.path().join("again.rdb");
    run(&["export", "--rdb", again.to_str().unwrap(), "--from", &url(redis.address)]);
    let flags = ["--dir", dir.path().to_str().unwrap(), "--dbfilename", "again.rdb"];
    let Some(loaded) = servers::redis(&flags) else { return };
    let mut loaded = loaded.connect();
    assert_eq!(compare(&mut theirs, &mut loaded), KEYS + LARGE_KEYS);
    assert_eq!(loaded.call(&["FCALL", "f", "0"]).unwrap(), Reply::Int(1));
}

/// Starts an import, and ends it once the target has some keys.
fn interrupt(words: &[&str], target: &mut Connection, progress: &Path) {
    let mut child = steelyard(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "the import does not begin");
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the import ended before it was interrupted: {status}");
        }
        let keys = target.call(&["DBSIZE"]).unwrap();
        if matches!(keys, Reply::Int(keys) if keys > 2000) && progress.exists() {
            break;
        }
        // The import must not end before it has recorded its progress, so it is slowed down.
        target.call(&["CLIENT", "PAUSE", "90", "WRITE"]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_import_that_was_killed_continues_where_it_was() {
    let Some(redis) = servers::redis(&[]) else { return };
    let mut theirs = redis.connect();
    fill(&mut theirs, KEYS);
    let file = save(&redis, &mut theirs);
    let dir = tempfile::tempdir().unwrap();
    let from = url(redis.address);
    for (at, source) in [["--from", &from], ["--rdb", file.to_str().unwrap()]].into_iter().enumerate() {
        let ours = servers::steelyard(&[]);
        let (to, mut connection) = (url(ours.address), ours.connect());
        let progress = dir.path().join(format!("progress{at}"));
        let words = ["import", source[0], source[1], "--to", &to, "--connections", "1", "--progress"];
        let words = [&words[..], &[progress.to_str().unwrap()]].concat();
        interrupt(&words, &mut connection, &progress);
        let told = run(&words);
        assert!(told.contains("continuing"), "{told}");
        assert!(!progress.exists(), "the record of a complete import is deleted");
        assert_eq!(compare(&mut connection, &mut theirs), KEYS + LARGE_KEYS);
    }
}

#[test]
fn wrong_files_and_servers_are_errors_that_name_them() {
    let ours = servers::steelyard(&["--requirepass", "secret"]);
    let to = url(ours.address);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.rdb");
    let fails = |words: &[&str], needle: &str| {
        let output = steelyard(words).output().unwrap();
        let told = told(&output);
        assert!(!output.status.success() && told.contains(needle), "{words:?}: {told}");
    };
    let with_login = to.replace("redis://", "redis://:secret@");
    let import = ["import", "--rdb", path.to_str().unwrap(), "--to", &with_login];
    fails(&import, "wrong.rdb");
    let with_database = format!("{with_login}/5");
    fails(&["import", "--rdb", path.to_str().unwrap(), "--to", &with_database], "--to names no database");
    std::fs::write(&path, "not an RDB file").unwrap();
    fails(&import, "this is not an RDB file");
    std::fs::write(&path, "REDIS0099").unwrap();
    fails(&import, "version 99");
    let mut file = rdb::FileWriter::create(Vec::new(), &[]).unwrap();
    let facts = rdb::KeyFacts { key: "k".into(), expire_at_ms: None, type_number: 0 };
    file.begin_key(0, &facts, b"\x01v").unwrap();
    let mut bytes = file.finish().unwrap();
    std::fs::write(&path, &bytes).unwrap();
    run(&import);
    fails(&["import", "--rdb", path.to_str().unwrap(), "--to", &to], "NOAUTH");
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    fails(&import, "the checksum is wrong");
    bytes.truncate(bytes.len() - 10);
    std::fs::write(&path, &bytes).unwrap();
    fails(&import, "the key k");
    let [free] = client::process::free_ports(1).unwrap()[..] else { panic!("one port") };
    fails(
        &["import", "--from", &format!("redis://127.0.0.1:{free}"), "--to", &with_login],
        &free.to_string(),
    );
}
