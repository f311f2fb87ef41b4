//! A store finds out by itself what it can do, and notices when its device does less.

mod stores;

use std::sync::atomic::{AtomicBool, Ordering};

use bench::admin::AdminFailure;
use serde_json::{json, Value};
use stores::wire::Wire;
use stores::{alone, eventually, steelyard, within, Plan, Store, Stores, PATIENCE};

/// How the store itself sees one of the cluster's.
fn row(store: &Store, id: u64) -> Option<Value> {
    let rows = store.admin().get::<Vec<Value>>("/api/v1/stores").ok()?;
    rows.into_iter().find(|row| row["id"] == id && row["heard_ms_ago"].is_u64())
}

fn number(store: &Store, field: &str) -> Option<f64> {
    row(store, store.id)?[field].as_f64()
}

fn kept(store: &Store) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(store.dir.join("CAPABILITY")).ok()?).ok()
}

#[test]
fn a_store_measures_its_device_once_keeps_that_and_measures_again_when_asked() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan { flags: &[("--probe", "yes")], ..Plan::default() });
    let store = &mut stores.all[0];
    // It serves before it knows.
    let mut wire = Wire::open(store.client);
    wire.ok(&["SET", "k", "v"]);
    let capability = eventually("the store has measured its device", || {
        number(store, "capability_bytes_per_s").filter(|known| *known > 1.0)
    });
    let first = kept(store).expect("it is written down before it is told");
    assert_eq!((&first["version"], &first["brief"]), (&json!(2), &json!(false)));
    let io = first["measured"]["write_bytes_per_s"].as_f64().expect("a number");
    assert_eq!(number(store, "io_bytes_per_s"), Some(io));
    assert!(capability > 1.0 && number(store, "correction") == Some(1.0));
    assert!(store.log_text().contains("the device under this store writes"), "{}", store.log_text());

    assert!(store.terminate().success());
    store.restart();
    eventually("the store knows what it measured", || {
        number(store, "io_bytes_per_s").filter(|known| *known == io)
    });
    assert_eq!(kept(store), Some(first.clone()), "and has not measured it again");
    assert!(!store.log_text().contains("the device under this store writes"));

    let admin = store.admin().address().to_string();
    let mut command = steelyard();
    command.args(["ctl", "--json", "--admin", &admin, "probe", "0"]);
    let asking = std::thread::spawn(move || bench::process::output(&mut command).expect("ctl runs"));
    let is_probe = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().contains("probe-");
    eventually("its file is there", || {
        std::fs::read_dir(&store.dir).ok()?.flatten().any(is_probe).then_some(())
    });
    match store.admin().post::<Value>("/api/v1/probe", json!({})) {
        Err(AdminFailure::Answered { status: 409, message }) => assert!(message.contains("under way")),
        other => panic!("two probes at once: {other:?}"),
    }
    // The store goes on meanwhile.
    Wire::open(store.client).ok(&["SET", "k", "w"]);
    let output = asking.join().expect("it asks");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(said["io_bytes_per_s"].as_f64() > Some(0.0) && said["told"] == json!(false), "{said}");
    let again = eventually("the new measurement is kept", || kept(store).filter(|kept| *kept != first));
    assert!(again["unix_ms"].as_u64() > first["unix_ms"].as_u64());
    let left = std::fs::read_dir(&store.dir).expect("it can be listed").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("probe")), "{left:?}");
}

#[test]
fn a_told_store_counts_as_told_and_one_that_is_told_not_to_probe_as_unknown() {
    let _alone = alone();
    let capabilities = ["7mb/5000"];
    let plan = Plan {
        capabilities: &capabilities,
        flags: &[("--probe", "yes"), ("--capacity", "5gb")],
        ..Plan::default()
    };
    let stores = Stores::start(&plan);
    let store = &stores.all[0];
    let brief = eventually("the store takes a short look", || kept(store));
    assert_eq!(brief["brief"], json!(true));
    assert_eq!(number(store, "capability_bytes_per_s"), Some(7.0 * (1 << 20) as f64));
    assert_eq!(number(store, "io_bytes_per_s"), Some(0.0), "so short a look is not to be trusted");
    assert_eq!(number(store, "capacity_bytes"), Some(5.0 * (1u64 << 30) as f64));
    drop(stores);

    let stores = Stores::start(&Plan::default());
    let store = &stores.all[0];
    assert_eq!(eventually("it is heard", || number(store, "capability_bytes_per_s")), 1.0);
    assert!(kept(store).is_none());
}

#[test]
fn used_bytes_are_those_of_live_keys_and_values() {
    let _alone = alone();
    let plan = Plan { regions: 4, cluster_enabled: true, ..Plan::default() };
    let mut stores = Stores::start(&plan);
    let store = &mut stores.all[0];
    let forward = store.forward.expect("cluster mode has one");
    let mut wire = Wire::open(forward);
    let value = "v".repeat(1000);
    // Whatever was written before is obsolete, most of it still in memtables.
    for round in ["w", "x", &value] {
        let set = |n: u32| vec!["SET".to_owned(), format!("key:{n:04}"), round.to_owned()];
        wire.call_all(&(0..2000).map(set).collect::<Vec<_>>());
    }
    wire.call(&["HSET", "hash", "field", "12345"]);
    wire.call(&["HSET", "hash", "field", "123"]);
    wire.call_all(&(0..500).map(|n| vec!["DEL".to_owned(), format!("key:{n:04}")]).collect::<Vec<_>>());
    // A field has a hash of eight bytes beside its name.
    let expected = 1500 * (8 + 1000) + 4 + (8 + 5 + 3);
    let is_exact = |store: &Store| {
        let regions: u64 = store.regions()?.iter().map(|row| row["bytes"].as_u64().unwrap_or(0)).sum();
        let used = row(store, 0)?["used_bytes"].as_u64()?;
        (used == expected && regions == expected).then_some(())
    };
    eventually("the store holds what was set last, once", || is_exact(store));
    store.kill();
    store.restart();
    eventually("and after a crash, too", || is_exact(store));
    Wire::open(forward).ok(&["FLUSHALL"]);
    eventually("nothing is left", || (row(store, 0)?["used_bytes"] == json!(0)).then_some(()));
}

#[test]
fn a_store_whose_device_slows_counts_for_less() {
    let _alone = alone();
    let mut stores = Stores::prepare(&Plan { flags: &[("--probe", "yes")], in_ram: true, ..Plan::default() });
    let store = &mut stores.all[0];
    std::fs::create_dir_all(&store.dir).expect("a directory");
    let profile = "write=100MB/s,read=100MB/s,sync=5ms,read-latency=100us".parse().expect("a profile");
    let control =
        device::Control::create(&store.dir.with_extension("device"), &profile, 1.0).expect("a device");
    let environment = device::preload_env(control.path(), &store.dir).expect("the preload library");
    store.environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    store.spawn();
    store.await_ready();
    let io = eventually("the emulated device is measured", || {
        number(store, "io_bytes_per_s").filter(|io| *io > 0.0)
    });
    assert!((50e6..150e6).contains(&io), "through its emulation: {io}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopsAtEnd(&stop);
        scope.spawn(|| {
            let mut wire = Wire::open(store.client);
            while !stop.load(Ordering::Relaxed) {
                wire.call(&["INCR", "n"]);
            }
        });
        std::thread::sleep(std::time::Duration::from_secs(6));
        assert_eq!(number(store, "correction"), Some(1.0), "{}", store.log_text());
        control.set_slow(10.0).expect("it slows");
        let low = within(PATIENCE * 2, || number(store, "correction").filter(|low| *low < 0.5));
        assert!(low.is_some(), "{}", store.log_text());
        let capability = number(store, "capability_bytes_per_s").expect("it is told");
        let whole = kept(store).and_then(|kept| kept["kv_bytes_per_s"].as_f64()).expect("a number");
        assert!(capability < whole / 2.0, "{capability} of {whole}");
        assert!(store.log_text().contains("times as long as it was measured to"));
    });
}

struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
