//! A store measures its own capability and detects when its device becomes slower.

mod stores;

use std::sync::atomic::{AtomicBool, Ordering};

use client::admin::{AdminFailure, ProbeRequest, StoreRow, StoresQuery};
use serde_json::{json, Value};
use stores::wire::Wire;
use stores::{alone, eventually, steelyard, within, Plan, Store, Stores, PATIENCE};

/// Returns the row in which a store reports about a store of the cluster, which may be itself.
fn row(store: &Store, id: u64) -> Option<StoreRow> {
    let rows = store.admin().ask(&StoresQuery {}).ok()?;
    rows.into_iter().find(|row| row.id == id && row.heard_ms_ago.is_some())
}

fn number(store: &Store, field: fn(&StoreRow) -> f64) -> Option<f64> {
    row(store, store.id).as_ref().map(field)
}

fn kept(store: &Store) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(store.dir.join("CAPABILITY")).ok()?).ok()
}

#[test]
fn a_store_measures_its_device_once_keeps_that_and_measures_again_when_asked() {
    let _alone = alone();
    let mut stores = Stores::start(&Plan { flags: &[("--probe", "yes")], ..Plan::default() });
    let store = &mut stores.all[0];
    // The store serves before it has measured.
    let mut wire = Wire::open(store.client);
    wire.ok(&["SET", "k", "v"]);
    let capability = eventually("the store has measured its device", || {
        number(store, |row| row.capability_bytes_per_s).filter(|known| *known > 1.0)
    });
    let first = kept(store).expect("it is stored before it is reported");
    assert_eq!((&first["version"], &first["brief"]), (&json!(2), &json!(false)));
    let io = first["measured"]["write_bytes_per_s"].as_f64().expect("a number");
    assert_eq!(number(store, |row| row.io_bytes_per_s), Some(io));
    assert!(capability > 1.0 && number(store, |row| row.correction) == Some(1.0));
    assert!(store.log_text().contains("the device under this store writes"), "{}", store.log_text());

    assert!(store.terminate().success());
    store.restart();
    eventually("the store knows what it measured", || {
        number(store, |row| row.io_bytes_per_s).filter(|known| *known == io)
    });
    assert_eq!(kept(store), Some(first.clone()), "and has not measured it again");
    assert!(!store.log_text().contains("the device under this store writes"));

    let admin = store.admin().address().to_string();
    let mut command = steelyard();
    command.args(["ctl", "--json", "--admin", &admin, "probe", "--all"]);
    let asking = std::thread::spawn(move || client::process::output(&mut command).expect("ctl runs"));
    let is_probe = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().contains("probe-");
    eventually("its file is there", || {
        std::fs::read_dir(&store.dir).ok()?.flatten().any(is_probe).then_some(())
    });
    match store.admin().ask(&ProbeRequest {}) {
        Err(AdminFailure::Answered { status: 409, message }) => assert!(message.contains("under way")),
        other => panic!("two probes at once: {other:?}"),
    }
    // The store still serves during the probe.
    Wire::open(store.client).ok(&["SET", "k", "w"]);
    let output = asking.join().expect("the request ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [said] = &said.as_array().expect("a row for each store")[..] else { panic!("{said}") };
    assert!(
        said["store"] == json!(0)
            && said["io_bytes_per_s"].as_f64() > Some(0.0)
            && said["told"] == json!(false),
        "{said}"
    );
    let again = eventually("the new measurement is kept", || kept(store).filter(|kept| *kept != first));
    assert!(again["unix_ms"].as_u64() > first["unix_ms"].as_u64());
    let left = std::fs::read_dir(&store.dir).expect("it can be listed").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("probe")), "{left:?}");
}

#[test]
fn stores_of_one_disk_measure_it_one_after_the_other_and_share_it() {
    let _alone = alone();
    let stores = Stores::start(&Plan { stores: 3, flags: &[("--probe", "yes")], ..Plan::default() });
    // The time at which each store began and ended its first measurement.
    let first = |store: &Store| {
        let kept = kept(store)?;
        let sitting = &kept["history"][0];
        Some((sitting["began_unix_ms"].as_u64()?, sitting["ended_unix_ms"].as_u64()?))
    };
    let mut sittings: Vec<(u64, u64)> = stores
        .all
        .iter()
        .map(|store| {
            let sat = within(PATIENCE * 3, || first(store));
            sat.unwrap_or_else(|| panic!("store {} has not measured:\n{}", store.id, store.log_text()))
        })
        .collect();
    sittings.sort_unstable();
    assert!(sittings.windows(2).all(|pair| pair[0].1 <= pair[1].0), "they overlap: {sittings:?}");

    let rows = eventually("all are heard to have measured", || {
        let rows = stores.all[0].admin().ask(&StoresQuery {}).ok()?;
        rows.iter().all(|row| row.io_bytes_per_s > 0.0).then_some(rows)
    });
    let counts = rows[0].capability_bytes_per_s;
    assert!(rows.iter().all(|row| row.capability_bytes_per_s == counts), "{rows:?}");
    let alone: Vec<f64> =
        stores.all.iter().filter_map(|store| kept(store)?["kv_bytes_per_s"].as_f64()).collect();
    let (least, most) =
        (alone.iter().copied().fold(f64::MAX, f64::min), alone.iter().copied().fold(0.0, f64::max));
    let whole = counts / rows[0].correction * 3.0;
    assert!(least * 0.99 <= whole && whole <= most * 1.01, "{whole} of {alone:?}");
    for (id, row) in rows.iter().enumerate() {
        let others: Vec<u64> = (0..3).filter(|other| *other != id as u64).collect();
        assert_eq!((&row.shares_device_with, &row.shares_host_with), (&others, &others));
    }
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
    assert_eq!(number(store, |row| row.capability_bytes_per_s), Some(7.0 * (1 << 20) as f64));
    assert_eq!(number(store, |row| row.io_bytes_per_s), Some(0.0), "such a short measurement does not count");
    assert_eq!(number(store, |row| row.capacity_bytes as f64), Some(5.0 * (1u64 << 30) as f64));
    drop(stores);

    let stores = Stores::start(&Plan::default());
    let store = &stores.all[0];
    assert_eq!(eventually("it is heard", || number(store, |row| row.capability_bytes_per_s)), 1.0);
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
    // Only the last value counts. The values written before are obsolete, and most of them are
    // still in memtables.
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
        let regions: u64 = store.regions()?.iter().map(|row| row.bytes).sum();
        let used = row(store, 0)?.used_bytes;
        (used == expected && regions == expected).then_some(())
    };
    eventually("the store holds what was set last, once", || is_exact(store));
    store.kill();
    store.restart();
    eventually("and after a crash, too", || is_exact(store));
    Wire::open(forward).ok(&["FLUSHALL"]);
    eventually("nothing is left", || (row(store, 0)?.used_bytes == 0).then_some(()));
}

fn put_on_device(store: &mut Store, profile: &str) -> device::Control {
    std::fs::create_dir_all(&store.dir).expect("a directory");
    let profile = profile.parse().expect("a profile");
    let control =
        device::Control::create(&store.dir.with_extension("device"), &profile, 1.0).expect("a device");
    let environment = device::preload_env(control.path(), &store.dir).expect("the preload library");
    store.environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    control
}

#[test]
fn a_store_whose_device_slows_counts_for_less() {
    let _alone = alone();
    let mut stores = Stores::prepare(&Plan { flags: &[("--probe", "yes")], in_ram: true, ..Plan::default() });
    let store = &mut stores.all[0];
    let control = put_on_device(store, "write=100MB/s,read=100MB/s,sync=5ms,read-latency=100us");
    store.spawn();
    store.await_ready();
    let io = eventually("the emulated device is measured", || {
        number(store, |row| row.io_bytes_per_s).filter(|io| *io > 0.0)
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
        assert_eq!(number(store, |row| row.correction), Some(1.0), "{}", store.log_text());
        control.set_slow(10.0).expect("it slows");
        let low = within(PATIENCE * 2, || number(store, |row| row.correction).filter(|low| *low < 0.5));
        assert!(low.is_some(), "{}", store.log_text());
        let capability = number(store, |row| row.capability_bytes_per_s).expect("it is told");
        let whole = kept(store).and_then(|kept| kept["kv_bytes_per_s"].as_f64()).expect("a number");
        assert!(capability < whole / 2.0, "{capability} of {whole}");
        assert!(store.log_text().contains("times as long as it was measured to"));
    });
}

/// Runs the example of docs/CAPABILITY.md on real processes.
#[test]
#[ignore = "takes five minutes of a machine that does nothing else"]
fn noise_moves_nothing_at_rest_or_under_load_and_a_device_half_as_fast_is_found() {
    const NOISE: &str = "spread=50%,burst=10s:300ms:5";
    let _alone = alone();
    let plan = Plan {
        stores: 4,
        regions: 16,
        cluster_enabled: true,
        flags: &[("--probe", "yes"), ("--policy", "adaptive")],
        in_ram: true,
        ..Plan::default()
    };
    let mut stores = Stores::prepare(&plan);
    let devices: Vec<device::Control> = stores
        .all
        .iter_mut()
        .map(|store| {
            let seed = store.id;
            put_on_device(
                store,
                &format!("write=40MB/s,read=40MB/s,sync=4ms,read-latency=200us,{NOISE},seed={seed}"),
            )
        })
        .collect();
    stores.all.iter_mut().for_each(Store::spawn);
    stores.await_ready();
    for store in &stores.all {
        eventually("every device is measured", || {
            number(store, |row| row.io_bytes_per_s).filter(|io| *io > 0.0)
        });
    }
    let stores = &stores;
    let leads = || {
        let leaders = eventually("every region has a leader", || stores.leaders(0));
        (0..4).map(|store| leaders.iter().filter(|leader| **leader == store).count()).collect::<Vec<_>>()
    };
    let corrections =
        || stores.all.iter().map(|store| number(store, |row| row.correction)).collect::<Vec<_>>();
    let is_even = |leads: &[usize]| leads.iter().all(|leads| (3..=5).contains(leads));
    within(PATIENCE * 4, || is_even(&leads()).then_some(())).expect("leads are even");
    let stays = |seconds: u32, when: &str| {
        for second in 0..seconds {
            std::thread::sleep(std::time::Duration::from_secs(1));
            let corrections = corrections();
            assert!(corrections.iter().flatten().all(|it| *it == 1.0), "{when}, {second} s: {corrections:?}");
            let leads = leads();
            assert!(is_even(&leads), "{when}, {second} s: {leads:?}");
        }
        stores::say(&format!("{when}: no correction in {seconds} s, leads {:?}", leads()));
    };
    stays(60, "at rest");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = StopsAtEnd(&stop);
        for client in 0..4usize {
            let stop = &stop;
            scope.spawn(move || {
                let mut wire = Wire::open(stores.all[client].forward.expect("cluster mode has one"));
                for n in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    wire.call(&["SET", &format!("key:{client}:{}", n % 20_000), "value"]);
                }
            });
        }
        stays(120, "under load");
        devices[1].set_slow(2.0).expect("it slows");
        let slow = &stores.all[1];
        let found = within(PATIENCE * 4, || number(slow, |row| row.correction).filter(|low| *low < 0.8));
        stores::say(&format!("half as fast: store 1 counts for {found:?}, all {:?}", corrections()));
        assert!(found.is_some_and(|low| low > 0.2), "{}", slow.log_text());
    });
}

struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
