//! The answers of a store that cannot execute a request, and the reasons for refusing to start.

mod stores;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::admin::{StoresQuery, WindowsQuery};
use client::process::{free_ports, Child};
use resp::Reply;
use stores::ledger::{Load, Shape};
use stores::wire::Wire;
use stores::{alone, eventually, say, steelyard, Plan, Store, Stores, PATIENCE};

/// Runs `serve`, which must refuse to start with one line of text. Returns that line.
fn refusal(arguments: &[String]) -> String {
    let mut command = steelyard();
    command.args(arguments).args(["--loglevel", "warning"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = client::process::output(&mut command).expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("steelyard: "), "{said}");
    said
}

#[test]
fn without_a_quorum_answers_are_clusterdown_or_unknown_after_a_bounded_wait() {
    let _alone = alone();
    let wait_ms = 1000;
    let mut stores =
        Stores::start(&Plan { stores: 3, flags: &[("--request-timeout", "1000")], ..Plan::default() });
    let leader = stores.leader(1);
    let mut wire = Wire::open(stores.all[leader].client);
    wire.ok(&["SET", "k", "before"]);
    let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
    others.iter().for_each(|&store| stores.all[store].kill());

    // The leader does not know yet that it is alone. It proposes the write and cannot learn the
    // outcome.
    let asked = Instant::now();
    let error = wire.error(&["SET", "k", "during"]);
    let bound = Duration::from_millis(wait_ms) + Duration::from_secs(5);
    assert!(asked.elapsed() < bound, "{:?}", asked.elapsed());
    assert!(error.starts_with("UNKNOWN "), "{error}");

    // After it has stepped down, nothing is proposed. The answer says so, and clients may retry.
    eventually("the leader without a quorum steps down", || {
        stores.all[leader].regions().filter(|rows| rows.iter().all(|row| row.leader.is_none())).map(drop)
    });
    for words in [&["SET", "k", "after"][..], &["GET", "k"], &["INCR", "n"]] {
        let asked = Instant::now();
        let error = wire.error(words);
        assert!(asked.elapsed() < bound, "{words:?}: {:?}", asked.elapsed());
        assert!(error.starts_with("CLUSTERDOWN "), "{words:?}: {error}");
    }
    // Commands that need no quorum are still answered: those about the store itself, and weak
    // reads.
    assert_eq!(wire.text(&["PING"]).as_deref(), Some("PONG"));
    wire.ok(&["READONLY"]);
    assert!(wire.text(&["GET", "k"]).is_some());

    others.iter().for_each(|&store| stores.all[store].spawn());
    stores.await_ready();
    wire.ok(&["READWRITE"]);
    wire.ok(&["SET", "k", "again"]);
    assert_eq!(wire.text(&["GET", "k"]).as_deref(), Some("again"));
    // None of the refused increments took effect.
    assert_eq!(wire.int(&["INCR", "n"]), 1);
}

#[test]
fn a_leader_without_a_quorum_proposes_no_more_than_its_window() {
    const WINDOW: u64 = 4;
    const CLIENTS: usize = 30;
    let _alone = alone();
    let flags = [("--proposal-window", "4"), ("--request-timeout", "2000")];
    let stores = Stores::start(&Plan { stores: 3, flags: &flags, ..Plan::default() });
    let leader = stores.leader(1);
    let address = stores.all[leader].client;
    let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
    Wire::open(address).ok(&["SET", "first", "value"]);
    let windows = || stores.all[leader].admin().ask(&WindowsQuery {}).expect("windows are told");
    eventually("the windows of both regions are told", || (windows().len() == 2).then_some(()));
    others.iter().for_each(|&store| stores.all[store].signal("-STOP"));
    // Each client is a proposal of its own, as long as the window has room.
    let asked: Vec<_> = (0..CLIENTS)
        .map(|client| {
            std::thread::sleep(Duration::from_millis(10));
            std::thread::spawn(move || Wire::open(address).call(&["SET", &format!("key:{client}"), "value"]))
        })
        .collect();
    let row = windows().into_iter().find(|row| row.region == 1).expect("it still leads");
    say(&format!("{row:?}"));
    assert_eq!((row.window, row.in_flight()), (WINDOW, WINDOW));
    assert!(row.commit <= row.promised && row.promised < row.written, "{row:?}");
    assert_eq!(row.written + 1, row.next, "the leader's own log has them all: {row:?}");
    let answers: Vec<Reply> = asked.into_iter().map(|thread| thread.join().expect("it answers")).collect();
    let begins = |reply: &Reply, code: &str| matches!(reply, Reply::Error(text) if text.starts_with(code));
    let unknown = answers.iter().filter(|reply| begins(reply, "UNKNOWN ")).count();
    let refused = answers.iter().filter(|reply| begins(reply, "CLUSTERDOWN ")).count();
    say(&format!("{unknown} unknown, {refused} refused"));
    assert_eq!(unknown + refused, CLIENTS, "{answers:?}");
    // On a slow machine, one entry has the commands of several clients.
    assert!((WINDOW as usize..CLIENTS / 2).contains(&unknown), "{unknown}");
    others.iter().for_each(|&store| stores.all[store].signal("-CONT"));
    let mut wire = eventually("there is a leader again", || {
        let mut wire = Wire::open(address);
        matches!(wire.call(&["SET", "last", "value"]), Reply::Simple(_)).then_some(wire)
    });
    // What was refused is not there.
    for (client, answer) in answers.iter().enumerate().filter(|(_, answer)| begins(answer, "CLUSTERDOWN ")) {
        assert_eq!(wire.call(&["EXISTS", &format!("key:{client}")]), Reply::Int(0), "{answer:?}");
    }
}

/// A RAM file system of limited size.
struct SmallDevice {
    dir: tempfile::TempDir,
}

impl SmallDevice {
    /// Mounts the file system. Prints a message and returns `None` if mounting is refused.
    fn mount(test: &str, megabytes: u32) -> Option<SmallDevice> {
        let dir = tempfile::Builder::new().prefix("steelyard-small-").tempdir().expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDevice { dir });
        }
        say(&format!("SKIPPED {test}: a tmpfs cannot be mounted here"));
        None
    }

    fn resize(&self, megabytes: u32) {
        let option = format!("remount,size={megabytes}m");
        let status = Command::new("mount").args(["-o", &option]).arg(self.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "the device is resized");
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallDevice {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// Starts one store with its data on a small device. The device outlives the store.
fn on_small_device(device: &SmallDevice, flags: &[(&str, &str)]) -> Stores {
    let mut stores = Stores::prepare(&Plan { flags, ..Plan::default() });
    let dir = device.path().join("data");
    stores.all[0].change(&[("--dir", dir.to_str().expect("a plain path"))]);
    stores.all[0].dir = dir;
    stores.all[0].restart();
    stores
}

/// Starts three stores, of which the most capable one leads. The data of store `at` is on a small
/// device.
fn led_by_the_first(device: &SmallDevice, at: usize, reserve: &str) -> Stores {
    let mut stores = Stores::prepare(&Plan {
        stores: 3,
        capabilities: &["600mb", "300mb", "100mb"],
        flags: &[("--policy", "leader-only")],
        ..Plan::default()
    });
    let dir = device.path().join("data");
    stores.all[at].change(&[("--dir", dir.to_str().expect("a plain path")), ("--reserve", reserve)]);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    eventually("store 0 leads", || (stores.all[1].leader_of(1) == Some(0)).then_some(()));
    stores
}

#[test]
fn below_the_reserve_writes_are_refused_and_reads_and_deletions_served() {
    let _alone = alone();
    let Some(device) = SmallDevice::mount("the reserve", 256) else { return };
    let stores = on_small_device(&device, &[("--reserve", "64mb")]);
    let mut wire = Wire::open(stores.all[0].client);
    let value = String::from_utf8(client::value::printable(100_000, 1)).expect("printable");
    let mut written = 0;
    let error = loop {
        let key = format!("fill:{written}");
        match wire.call(&["SET", &key, &value]) {
            resp::Reply::Error(text) => break text.into_owned(),
            _ => written += 1,
        }
        assert!(written < 4000, "the device never fills");
    };
    assert!(error.starts_with("MISCONF "), "{error}");
    assert!(written > 300, "refused after {written} writes");
    assert!(wire.error(&["HSET", "h", "f", "1"]).starts_with("MISCONF "));
    assert_eq!(wire.int(&["STRLEN", "fill:0"]), value.len() as i64);
    assert_eq!(wire.int(&["DEL", "fill:0"]), 1);
    assert_eq!(wire.int(&["EXISTS", "fill:0"]), 0);
    // Each command of a pipeline of both kinds gets its own answer, in order.
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let replies =
        wire.call_all(&[words(&["SET", "a", "1"]), words(&["DEL", "fill:1"]), words(&["EXISTS", "fill:2"])]);
    assert!(matches!(&replies[0], resp::Reply::Error(text) if text.starts_with("MISCONF ")), "{replies:?}");
    assert_eq!(replies[1..], [resp::Reply::Int(1), resp::Reply::Int(1)]);

    device.resize(512);
    eventually("writes are accepted again", || match wire.call(&["SET", "room", "yes"]) {
        resp::Reply::Error(_) => None,
        _ => Some(()),
    });
    assert_eq!(wire.int(&["DBSIZE"]), written - 2 + 1);
}

/// Writes until the device has refused three times. Returns the acknowledged keys and the length of
/// each value in bytes.
fn fill_to_the_wall(stores: &Stores) -> (Vec<String>, i64) {
    let mut wire = Wire::open(stores.all[0].client);
    let value = String::from_utf8(client::value::printable(200_000, 1)).expect("printable");
    let mut acknowledged = Vec::new();
    let mut doubtful = 0;
    for number in 0..1000 {
        let key = format!("fill:{number}");
        match wire.call(&["SET", &key, &value]) {
            resp::Reply::Error(text) => {
                assert!(text.starts_with("UNKNOWN ") || text.starts_with("MISCONF "), "{text}");
                doubtful += 1;
                if doubtful == 3 {
                    break;
                }
            }
            _ => acknowledged.push(key),
        }
    }
    assert_eq!(doubtful, 3, "the device never fills");
    assert!(acknowledged.len() > 20, "{} writes fit", acknowledged.len());
    (acknowledged, value.len() as i64)
}

fn check_lengths(stores: &Stores, keys: &[String], bytes: i64) {
    let mut wire = Wire::open(stores.all[0].client);
    for key in keys {
        assert_eq!(wire.int(&["STRLEN", key]), bytes, "{key}");
    }
}

#[test]
fn a_store_whose_device_is_full_ends_when_asked_and_starts_when_there_is_room() {
    let _alone = alone();
    let Some(device) = SmallDevice::mount("SIGTERM at the wall", 48) else { return };
    let mut stores = on_small_device(&device, &[("--reserve", "0"), ("--request-timeout", "500")]);
    let (acknowledged, bytes) = fill_to_the_wall(&stores);
    assert_eq!(stores.all[0].terminate().code(), Some(0));
    device.resize(256);
    stores.all[0].restart();
    check_lengths(&stores, &acknowledged, bytes);
}

#[test]
fn at_the_wall_acknowledgements_wait_for_room_and_none_is_lost() {
    let _alone = alone();
    let Some(device) = SmallDevice::mount("the wall", 48) else { return };
    // Without a reserve, the file system itself refuses in the middle of a write.
    let mut stores = on_small_device(&device, &[("--reserve", "0"), ("--request-timeout", "500")]);
    let (acknowledged, bytes) = fill_to_the_wall(&stores);
    let mut wire = Wire::open(stores.all[0].client);
    // A read waits until committed entries are applied. A full device may delay that, and the read
    // then fails with an error.
    match wire.call(&["STRLEN", &acknowledged[0]]) {
        resp::Reply::Error(text) => assert!(text.starts_with("CLUSTERDOWN "), "{text}"),
        found => assert_eq!(found, resp::Reply::Int(bytes)),
    }

    device.resize(256);
    eventually("writes are accepted again", || match wire.call(&["SET", "room", "yes"]) {
        resp::Reply::Error(_) => None,
        _ => Some(()),
    });
    check_lengths(&stores, &acknowledged, bytes);
    stores.all[0].kill();
    stores.all[0].restart();
    check_lengths(&stores, &acknowledged, bytes);
    assert_eq!(Wire::open(stores.all[0].client).text(&["GET", "room"]).as_deref(), Some("yes"));
}

#[test]
fn a_follower_without_room_holds_nobody_up_and_catches_up_when_there_is_room() {
    let _alone = alone();
    let Some(device) = SmallDevice::mount("a full follower", 48) else { return };
    let stores = led_by_the_first(&device, 2, "0");
    let mut wire = Wire::open(stores.all[0].client);
    let value = String::from_utf8(client::value::printable(200_000, 1)).expect("printable");
    for number in 0..300 {
        wire.ok(&["SET", &format!("fill:{number}"), &value]);
    }
    let log = stores.all[2].log_text();
    assert!(log.contains("no space"), "the follower's device never fills:\n{log}");
    assert_eq!(stores.all[1].leader_of(1), Some(0));

    device.resize(512);
    let mut weak = Wire::open(stores.all[2].client);
    weak.ok(&["READONLY"]);
    eventually("the follower holds everything", || {
        (weak.int(&["STRLEN", "fill:299"]) == value.len() as i64).then_some(())
    });
    for number in 0..300 {
        assert_eq!(weak.int(&["STRLEN", &format!("fill:{number}")]), value.len() as i64);
    }
}

#[test]
fn a_leader_without_room_gives_its_lead_to_a_store_with_room_and_no_write_is_refused() {
    let _alone = alone();
    let Some(device) = SmallDevice::mount("a full leader", 256) else { return };
    let stores = led_by_the_first(&device, 0, "64mb");
    let mut wire = Wire::open(stores.all[0].client);
    let value = String::from_utf8(client::value::printable(100_000, 1)).expect("printable");
    let mut written = 0;
    while written % 10 > 0 || stores.all[1].leader_of(1) == Some(0) {
        wire.ok(&["SET", &format!("fill:{written}"), &value]);
        written += 1;
        assert!(written < 4000, "it still leads although it cannot write");
    }
    assert!(written > 300, "full after {written} writes");
    assert!(stores.all[0].log_text().contains("the data device is full"));
    let told = stores.all[1].admin().ask(&StoresQuery {}).expect("an answer");
    assert_eq!((told[0].state.as_str(), told[1].state.as_str()), ("out of room", "up"));
    for number in (0..written).step_by(50) {
        assert_eq!(wire.int(&["STRLEN", &format!("fill:{number}")]), value.len() as i64);
    }

    device.resize(1024);
    eventually("the most capable store leads again", || {
        (stores.all[1].leader_of(1) == Some(0)).then_some(())
    });
    wire.ok(&["SET", "room", "yes"]);
}

#[test]
fn a_data_directory_is_refused_when_it_is_not_this_stores_own() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan::default());
    let store = &mut stores.all[0];

    // The directory is in use: the second process exits at once, and the first continues to serve.
    let ports = free_ports(6).expect("free ports");
    let entry = |id: u64, ports: &[u16]| format!("{id}=127.0.0.1:{}:{}:{}", ports[0], ports[1], ports[2]);
    let other_list = entry(0, &ports[..3]);
    let said = refusal(&store.arguments_with(&[("--stores", &other_list)]));
    assert!(said.contains("in use by another process"), "{said}");
    Wire::open(store.client).ok(&["SET", "k", "v"]);
    assert_eq!(store.terminate().code(), Some(0));

    let identity = store.dir.join("IDENTITY");
    let original = std::fs::read_to_string(&identity).expect("it is there");

    // Another layout, and another store's number.
    let said = refusal(&store.arguments_with(&[("--cluster-enabled", "yes"), ("--regions", "4")]));
    assert!(said.contains("another layout"), "{said}");
    let second = format!("{other_list},{}", entry(1, &ports[3..]));
    let said = refusal(&store.arguments_with(&[("--stores", &second), ("--store-id", "1")]));
    assert!(said.contains("belongs to store 0, not to store 1"), "{said}");

    // A newer format, and a damaged identity.
    std::fs::write(&identity, "format = 99\nwhat = \"nobody knows\"\n").expect("written");
    let said = refusal(&store.arguments_with(&[]));
    assert!(said.contains("format 99, newer than"), "{said}");
    std::fs::write(&identity, "\u{0}\u{0}").expect("written");
    let said = refusal(&store.arguments_with(&[]));
    assert!(said.contains("IDENTITY"), "{said}");

    // No refusal has changed the data.
    std::fs::write(&identity, original).expect("written");
    store.restart();
    assert_eq!(Wire::open(store.client).text(&["GET", "k"]).as_deref(), Some("v"));
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let _alone = alone();
    let stores = Stores::prepare(&Plan::default());
    let dir = &stores.all[0].dir;
    std::fs::create_dir_all(dir).expect("made");
    std::fs::write(dir.join("photo.jpg"), "x").expect("written");
    let said = refusal(&stores.all[0].arguments_with(&[]));
    assert!(said.contains("not empty"), "{said}");
    let names: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("readable").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(names, [dir.join("photo.jpg")], "nothing was added");
}

#[test]
fn a_port_in_use_is_named() {
    let _alone = alone();
    let stores = Stores::prepare(&Plan::default());
    let _taken = std::net::TcpListener::bind(stores.all[0].client).expect("the port is free");
    let said = refusal(&stores.all[0].arguments_with(&[]));
    assert!(said.contains(&format!("cannot listen on {}", stores.all[0].client)), "{said}");
}

/// Makes every later fdatasync of a running store fail. Prints a message and returns `None` if that
/// is not possible.
fn fail_syncs(store: &Store) -> Option<Child> {
    let report = store.dir.with_extension("strace");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO:when=1+"])
        .args(["-p", &store.pid().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&report).expect("made"));
    let skip = |why: &str| say(&format!("SKIPPED EIO on the log: {why}"));
    let mut tracer = match Child::spawn("strace", &mut command) {
        Ok(tracer) => tracer,
        Err(error) => {
            skip(&error.to_string());
            return None;
        }
    };
    let attached = stores::within(PATIENCE, || {
        let said = std::fs::read_to_string(&report).unwrap_or_default();
        (said.contains("attached") || tracer.ended().is_some()).then_some(said)
    });
    // After attaching, strace may end before the test sees it, because the store ends at its next
    // sync.
    let attached = attached.unwrap_or_default();
    if !attached.contains("attached") {
        skip(attached.lines().next().unwrap_or("strace ended"));
        return None;
    }
    Some(tracer)
}

#[test]
fn a_failed_sync_of_the_log_stops_the_store_and_loses_nothing_acknowledged() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan::default());
    let load = Load::start(&stores.clients(), "eio", Shape::WRITES);
    load.await_more(500);
    let Some(tracer) = fail_syncs(&stores.all[0]) else { return };
    let status = stores.all[0].await_end();
    assert!(!status.success(), "{status}");
    let log = stores.all[0].log_text();
    assert!(log.contains("a sync of the log failed; the process ends"), "{log}");
    drop(tracer);
    stores.all[0].restart();
    load.await_more(100);
    load.finish().check("EIO on the log");
}
