//! `steelyard import --replicate` with a Redis that is written to meanwhile.

use std::io::Read;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn import(words: &[&str]) -> Child {
    let words = [&["import", "--replicate"][..], words].concat();
    steelyard(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits for the end of an import. Returns true if it succeeded, and what it told.
fn ended(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.success(), told(&output))
}

fn run_import(words: &[&str]) -> String {
    let (succeeded, told) = ended(import(words));
    assert!(succeeded, "{words:?}\n{told}");
    told
}

fn interrupt_and_end(child: Child) -> String {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (succeeded, told) = ended(child);
    assert!(succeeded, "{told}");
    told
}

fn line(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Writes a key at the source and waits until an import has brought it to the target.
fn arrives(source: &mut Connection, target: &mut Connection, import: &mut Child, key: &str) {
    assert_eq!(source.call(&["SET", key, "1"]).unwrap(), Reply::OK);
    let deadline = Instant::now() + PATIENCE;
    while target.call(&["EXISTS", key]).unwrap() != Reply::Int(1) {
        let is_over = import.try_wait().unwrap().is_some() || Instant::now() >= deadline;
        if is_over {
            let _ = import.kill();
            let mut told = String::new();
            import.stdout.take().map(|mut stdout| stdout.read_to_string(&mut told));
            import.stderr.take().map(|mut stderr| stderr.read_to_string(&mut told));
            panic!("{key} does not arrive\n{told}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns commands of every type. If most of them were executed twice, not at all, or in another
/// order, the servers would differ.
fn round(number: u64) -> Vec<Vec<Vec<u8>>> {
    let (some, other) = (number % 13, number % 7);
    let script = "redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], redis.call('GET', KEYS[1])) \
                  return redis.call('SPOP', KEYS[3])";
    let mut requests: Vec<Vec<Vec<u8>>> = [
        format!("SELECT {}", [0, 3][(number % 2) as usize]),
        format!("INCR count:{some}"),
        format!("INCRBYFLOAT float:{some} 0.1"),
        format!("APPEND text:{some} {number},"),
        format!("SETRANGE range:{some} {other} {number}"),
        format!("SETBIT bits:{some} {number} 1"),
        format!("LPUSH list:{some} {number} x{number}"),
        format!("RPOP list:{other}"),
        format!("LMOVE list:{some} list:{other} LEFT RIGHT"),
        format!("SADD set:{some} {number} m{other}"),
        format!("SPOP set:{other}"),
        format!("HINCRBY hash:{some} f{other} {number}"),
        format!("HSETNX hash:{some} first {number}"),
        format!("ZINCRBY sorted:{some} 1.5 m{other}"),
        format!("ZADD sorted:{some} GT {number} top"),
        format!("ZPOPMIN sorted:{other}"),
        format!("PFADD log:{some} {number}"),
        format!("SET until:{some} {number} EX 1000000"),
        format!("SET until:{other} {number} KEEPTTL"),
        format!("GETEX until:{some} PX 2000000000"),
        format!("EXPIRE count:{other} 1000000"),
        format!("PERSIST count:{some}"),
        format!("SET short:{number} x PX 40"),
        format!("XADD stream:{some} MAXLEN 50 * n {number}"),
        format!("XGROUP CREATE stream:{some} group 0"),
        format!("XREADGROUP GROUP group c{other} COUNT 2 STREAMS stream:{some} >"),
        format!("XAUTOCLAIM stream:{some} group c0 0 0 COUNT 1"),
        format!("XREADGROUP GROUP group c{other} COUNT 2 NOACK STREAMS stream:{some} >"),
        "MULTI".to_owned(),
        format!("INCR count:{some}"),
        format!("LPUSH list:{some} m{number}"),
        format!("DEL set:{other} hash:{other}"),
        "EXEC".to_owned(),
        format!("RENAME text:{some} text:{other}"),
        format!("COPY list:{some} copy:{some} REPLACE"),
        format!("SORT list:{some} ALPHA STORE order:{some}"),
        format!("MOVE bits:{some} 5"),
        "PUBLISH channel message".to_owned(),
    ]
    .iter()
    .map(|text| line(text))
    .collect();
    let keys = [format!("count:{other}"), format!("list:{some}"), format!("set:{some}")];
    let words = ["EVAL", script, "3"].into_iter().chain(keys.iter().map(String::as_str));
    requests.push(words.map(|word| word.as_bytes().to_vec()).collect());
    if number % 200 == 199 {
        requests.extend(["SELECT 5", "FLUSHDB", "SELECT 0"].map(line));
    }
    requests
}

/// Writes to the source until it is told to stop, and keeps a key alive that would soon expire.
fn write(address: SocketAddr, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut connection = Connection::open(address).unwrap();
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            // Some are refused for the type or absence of their key, and those do not matter.
            connection.pipeline(&round(number)).unwrap();
            connection.pipeline(&[line("SELECT 0"), line("PEXPIRE session 500")]).unwrap();
            number += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        connection.pipeline(&[line("SELECT 0"), line("PERSIST session")]).unwrap();
        number
    })
}

#[test]
fn a_redis_that_is_written_to_is_followed_through_breaks_and_an_interruption() {
    let Some(redis) = servers::redis(&["--repl-diskless-sync", "no", "--repl-backlog-size", "100mb"]) else {
        return;
    };
    let mut theirs = redis.connect();
    fill(&mut theirs, 2000);
    theirs.call(&["HSET", "session", "user", "1"]).unwrap();
    theirs.call(&["PEXPIRE", "session", "5000"]).unwrap();
    let ours = servers::steelyard(&[]);
    let mut connection = ours.connect();
    let dir = tempfile::tempdir().unwrap();
    let progress = dir.path().join("progress");
    let [from, to] = [redis.address, ours.address].map(url);
    let words = ["--from", &from, "--to", &to, "--progress", progress.to_str().unwrap(), "--large", "30000"];
    let stop = Arc::new(AtomicBool::new(false));
    let writer = write(redis.address, stop.clone());

    let mut following = import(&words);
    arrives(&mut theirs, &mut connection, &mut following, "arrived:1");
    // The connection breaks.
    assert_eq!(theirs.call(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap(), Reply::Int(1));
    arrives(&mut theirs, &mut connection, &mut following, "arrived:2");
    let told = interrupt_and_end(following);
    assert!(told.contains("6 keys in pieces") && told.contains("the stream continues at offset"), "{told}");
    assert!(told.contains("the place is recorded") && told.contains("--finish"), "{told}");
    // The key that is kept alive would expire now, if its time was true.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(connection.call(&["EXISTS", "session"]).unwrap(), Reply::Int(1));

    let mut following = import(&words);
    arrives(&mut theirs, &mut connection, &mut following, "arrived:3");
    let told = interrupt_and_end(following);
    assert!(told.contains("continuing at offset"), "{told}");
    stop.store(true, Ordering::Relaxed);
    assert!(writer.join().unwrap() > 200, "the writer wrote much");
    let told = run_import(&[&words[..], &["--until-caught-up"]].concat());
    assert!(told.contains("continuing at offset") && told.contains("lag at the end 0 B"), "{told}");
    assert!(told.contains("expiry times take effect") && told.contains(" 0 differ"), "{told}");
    assert!(!progress.exists(), "the record of a complete import is deleted");
    let user = Reply::Bulk("1".into());
    assert_eq!(connection.call(&["HGET", "session", "user"]).unwrap(), user, "it was never gone");
    // Redis does not tell its replicas how many entries a group has read.
    for (database, stream) in [0, 3].into_iter().flat_map(|at| (0..13).map(move |number| (at, number))) {
        for server in [&mut connection, &mut theirs] {
            let set = format!("XGROUP SETID stream:{stream} group 0 ENTRIESREAD 0");
            server.pipeline(&[line(&format!("SELECT {database}")), line(&set)]).unwrap();
        }
    }
    assert!(compare(&mut connection, &mut theirs) > 2000);
}

#[test]
fn a_diskless_source_refusals_and_a_source_that_ends_are_told() {
    let flags = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
    let Some(redis) = servers::redis(&flags) else { return };
    let mut theirs = redis.connect();
    fill(&mut theirs, 500);
    let ours = servers::steelyard(&[]);
    let mut connection = ours.connect();
    let dir = tempfile::tempdir().unwrap();
    let progress = dir.path().join("progress");
    let [from, to] = [redis.address, ours.address].map(url);
    let words = ["--from", &from, "--to", &to, "--progress", progress.to_str().unwrap()];
    let with = |more: &[&'static str]| [&words[..], more].concat();
    let fails = |words: &[&str], needle: &str| {
        let (succeeded, told) = ended(import(words));
        assert!(!succeeded && told.contains(needle), "{words:?}: {told}");
    };

    connection.call(&["SET", "stale", "1"]).unwrap();
    fails(&with(&["--until-caught-up"]), "the target has keys");
    let told = run_import(&with(&["--until-caught-up", "--flush-target"]));
    assert!(told.contains(" 0 differ"), "{told}");
    assert_eq!(compare(&mut connection, &mut theirs), 500 + LARGE_KEYS, "the stale key is gone");
    for connection in [&mut connection, &mut theirs] {
        assert_eq!(connection.call(&["SELECT", "0"]).unwrap(), Reply::OK);
    }

    // A command that cannot be executed ends the import, which then has no place to continue at.
    let mut following = import(&with(&["--flush-target"]));
    arrives(&mut theirs, &mut connection, &mut following, "arrived:1");
    assert_eq!(theirs.call(&["SWAPDB", "0", "1"]).unwrap(), Reply::OK);
    let (succeeded, told) = ended(following);
    assert!(!succeeded && told.contains("SWAPDB at offset") && told.contains("--flush-target"), "{told}");
    assert_eq!(theirs.call(&["SWAPDB", "0", "1"]).unwrap(), Reply::OK);
    fails(&words, "without recording its place");

    // The source ends: all that has arrived is executed, and expiry times take effect when told.
    let mut following = import(&with(&["--flush-target", "--source-timeout", "1"]));
    // The first key may arrive with the source's data, the second one follows all of it.
    arrives(&mut theirs, &mut connection, &mut following, "arrived:2");
    arrives(&mut theirs, &mut connection, &mut following, "arrived:3");
    let at = connection.call(&["PEXPIRETIME", "large-hash"]).unwrap();
    assert!(matches!(at, Reply::Int(at) if at > FAR_MS as i64), "{at:?}");
    drop(theirs);
    drop(redis);
    let (succeeded, told) = ended(following);
    assert!(!succeeded && told.contains("the place is recorded") && told.contains("no connection"), "{told}");
    let told = run_import(&with(&["--finish"]));
    assert!(told.contains("expiry times take effect"), "{told}");
    assert_eq!(connection.call(&["PEXPIRETIME", "large-hash"]).unwrap(), Reply::Int(FAR_MS as i64));
    assert!(!progress.exists());
}
