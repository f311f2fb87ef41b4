use clap::Parser;
use client::admin::{PeerRow, RegionRow, StoreRow};
use device::{KvCapability, Pair, Profile};
use placement::Spread;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    plan: Plan,
}

fn plan(arguments: &[&str]) -> Plan {
    Cli::parse_from(std::iter::once("plan").chain(arguments.iter().copied())).plan
}

fn refusal(arguments: &[&str]) -> String {
    run(plan(arguments)).unwrap_err().to_string()
}

#[test]
fn stores_are_counted_and_numbered() {
    let fit = Fit::shipped();
    let stores = stores::parse("1xnvm,2x high-end-ssd,plain-ssd", 0.1, &fit, 7).unwrap();
    let names: Vec<_> = stores.iter().map(|store| (store.id, store.device_name.as_str())).collect();
    assert_eq!(names, [(0, "nvm"), (1, "high-end-ssd"), (2, "high-end-ssd"), (3, "plain-ssd")]);
    assert_eq!((stores[3].device.write_bytes_per_s, stores[3].device.sync_ns), (50_000_000, 10_000_000));
    assert_eq!(stores[0].capacity_bytes, 7);
    let numbers = stores::parse("nvm;2x write=5MB/s,read=6MB/s,capacity=1GB", 1.0, &fit, 7).unwrap();
    assert_eq!((numbers.len(), numbers[2].capacity_bytes), (3, 1_000_000_000));
    assert!(stores[0].capability.kv_bytes_per_s > stores[3].capability.kv_bytes_per_s);
}

#[test]
fn what_cannot_be_predicted_is_refused_in_a_line() {
    for (arguments, words) in [
        (&["--stores", "floppy"][..], "unknown device profile 'floppy'"),
        (&["--stores", "1xnvm,,nvm"], "a store is missing"),
        (&["--stores", "0xnvm"], "'0xnvm' asks for no store"),
        (&["--stores", "99xnvm"], "at most 64 stores"),
        (&["--stores", "3xnvm", "--device-speed", "0"], "a factor above 0"),
        (&["--stores", "3xnvm", "--workload", "e"], "'e' is no workload that can be predicted"),
        (&["--stores", "3xnvm", "--workload", "a,a"], "named twice"),
        (&["--stores", "3xnvm", "--data", "10"], "smaller than one record"),
        (&["--stores", "3xnvm", "--like-bench", "huge"], "'huge' is no scale"),
        (&["--stores", "3xnvm", "--value", "18446744073709551600"], "smaller than one record"),
        (&["--stores", "3xnvm", "--add", "nvm"], "change a running cluster"),
        (&["--stores", "3xnvm", "--capability-fit", "/nowhere"], "capability-fit: /nowhere cannot be read"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(words) && !said.contains('\n'), "{arguments:?}: {said}");
    }
    let unknown = Cli::try_parse_from(["plan", "--stores", "nvm", "--policy", "best"]);
    assert!(unknown.is_err());
    assert!(Cli::try_parse_from(["plan"]).is_err(), "stores or a cluster");
}

fn is_refused(given: &[&str], option: &str, value: &str) -> bool {
    let mut all = vec!["plan"];
    all.extend(given);
    all.extend([option, value]);
    let Err(error) = Cli::try_parse_from(all) else { return false };
    let text = error.to_string();
    assert!(text.contains("cannot be used with") && text.contains(option), "{text}");
    true
}

/// Options without effect are refused. Their default values are not.
#[test]
fn options_that_would_change_nothing_are_refused() {
    let stores = ["--stores", "3xnvm"];
    let of_cluster = ["--from-cluster", "127.0.0.1:1"];
    let of_scale = ["--stores", "3xnvm", "--like-bench", "quick"];
    for (option, value, says_the_cluster) in [
        ("--regions", "24", true),
        ("--replicas", "3", true),
        ("--threads", "256", false),
        ("--value", "1kb", false),
        ("--data", "1gb", false),
        ("--capacity", "1gb", false),
        ("--cpus", "8", false),
        ("--device-speed", "1", false),
        ("--capability-fit", "fit.json", false),
    ] {
        assert!(!is_refused(&stores, option, value), "{option}");
        assert_eq!(is_refused(&of_cluster, option, value), says_the_cluster, "{option}");
        assert!(is_refused(&of_scale, option, value), "{option}");
    }
    assert!(!is_refused(&of_scale, "--seed", "2") && !is_refused(&of_scale, "--runs", "1"));
}

/// Writes a fit with one pair, which is proportional, and returns its path.
fn fit_file(dir: &tempfile::TempDir) -> String {
    let pair = Pair { name: "one".into(), io_bytes_per_s: 1e6, kv_bytes_per_s: 500.0 };
    let path = dir.path().join("fit.json");
    Fit::of(vec![pair], 1, "made up".into()).unwrap().write(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_fit_of_ones_own_is_what_stores_count_by() {
    let dir = tempfile::tempdir().unwrap();
    let file = fit_file(&dir);
    let asked = plan(&["--stores", "3xnvm", "--capability-fit", &file, "--device-speed", "0.1"]);
    let stores = settings::question(&asked, "3xnvm").unwrap().question.stores;
    let kv_bytes_per_s = stores[0].capability.kv_bytes_per_s;
    assert!((kv_bytes_per_s / 250_000.0 - 1.0).abs() < 1e-6, "{kv_bytes_per_s}");
    assert_eq!(stores[0].device.write_bytes_per_s, 500_000_000, "the device is the profile's");
    let asked = plan(&["--from-cluster", "127.0.0.1:1", "--add", "nvm", "--capability-fit", &file]);
    let (_, changed) = running().changed(&asked).unwrap().unwrap();
    let added = &changed.question.stores[4];
    assert!((added.capability.kv_bytes_per_s / 2.5e6 - 1.0).abs() < 1e-6, "{added:?}");
}

/// A part of the data is simulated, and every quantity that grows with the data is scaled by the
/// same factor.
#[test]
fn data_that_is_too_large_is_scaled_with_all_that_belongs_to_it() {
    let settings = settings::question(&plan(&["--stores", "3xnvm", "--capacity", "100gb"]), "3xnvm").unwrap();
    let question = &settings.question;
    assert!(settings.data_factor < 0.02 && question.load.records == 150_000);
    let capacity = (100u64 << 30) as f64 * settings.data_factor;
    assert_eq!(question.stores[0].capacity_bytes, capacity as u64);
    assert_eq!(question.tuning.memtable_bytes, ((64 << 20) as f64 * settings.data_factor) as u64);
    let small = settings::question(&plan(&["--stores", "3xnvm", "--data", "10mb"]), "3xnvm").unwrap();
    assert!(small.data_factor == 1.0 && small.question.tuning.memtable_bytes == 64 << 20);
}

/// A cache is scaled like the data, and slowed like the device behind it.
#[test]
fn a_hybrid_is_scaled_with_the_data() {
    let text = "3x hybrid/2,cache=2GB";
    let asked = plan(&["--stores", text, "--device-speed", "0.1"]);
    let settings = settings::question(&asked, "hybrid/2,cache=2GB;hybrid;nvm").unwrap();
    let [first, second, third] = [0, 1, 2].map(|at| settings.question.stores[at].device);
    let cache = first.cache.unwrap();
    assert_eq!(cache.bytes, (2e9 * settings.data_factor) as u64);
    assert_eq!((first.write_bytes_per_s, cache.write_bytes_per_s), (25_000_000, 250_000_000));
    assert_eq!((second.sync_ns, second.cache.unwrap().sync_ns), (10_000_000, 50_000));
    assert!(third.cache.is_none() && settings.question.stores[1].capability.kv_bytes_per_s > 1.0);
    let quick_caches =
        settings::question(&plan(&["--stores", "3xhybrid", "--like-bench", "quick"]), "3xhybrid");
    let cache = quick_caches.unwrap().question.stores[0].device.cache.unwrap();
    assert_eq!(cache.bytes, (1e9 * predict::alor::Scale::named("quick").unwrap().data_factor) as u64);
}

#[test]
fn a_scale_of_the_reproduction_is_taken_over() {
    let text = "1xnvm,2xhigh-end-ssd,3xplain-ssd";
    let settings = settings::question(&plan(&["--stores", text, "--like-bench", "quick"]), text).unwrap();
    let question = &settings.question;
    let scale = predict::alor::Scale::named("quick").unwrap();
    let option =
        |wanted: &str| scale.store_options().into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert_eq!((question.load.records, question.load.threads), (scale.records(6), scale.threads));
    let tuning = &question.tuning;
    assert_eq!(
        (tuning.memtable_bytes, tuning.row_cache_bytes, tuning.level_base_bytes, tuning.table_file_bytes),
        (
            option("write_buffer_size"),
            option("row_cache_bytes"),
            option("max_bytes_for_level_base"),
            option("target_file_size_base")
        )
    );
    assert_eq!(question.stores[5].device.sync_ns, (1e6 / scale.device_speed) as u64);
    assert!(question.processors.shared);
}

/// Unequal stores are compared with hybrid ones of the same hardware, and any other mix with
/// itself.
#[test]
fn figures_are_predicted_over_the_cluster_that_they_are_compared_with() {
    let scale = predict::alor::Scale::named("smoke").unwrap();
    let ratios = |mix: &str, beside: &str| {
        let both = [Policy::Even, Policy::Alor];
        let ratios = settings::ratios(mix, beside, Policy::Even, &both, &[Workload::Load], &scale).unwrap();
        ratios.iter().map(|ratio| (ratio.ops_per_s, ratio.throughput)).collect::<Vec<_>>()
    };
    for (mix, beside) in [("1N3P", "4Y"), ("1N5P", "6Y")] {
        let (unequal, hybrid) = (ratios(mix, beside), ratios(beside, beside));
        assert_eq!(hybrid[0].1, 1.0);
        for (ops_per_s, ratio) in unequal {
            assert!((ratio - ops_per_s / hybrid[0].0).abs() < 1e-9 && ratio != 1.0, "{ratio}");
        }
    }
}

fn store(id: u64, device: &str) -> StoreRow {
    let state = "up".into();
    let device = device.into();
    StoreRow { id, state, device, capability_bytes_per_s: 1.0, correction: 1.0, ..StoreRow::default() }
}

fn region(id: u64, slots: (u16, u16), stores: [u64; 3]) -> RegionRow {
    let peer = |store: u64| PeerRow {
        store,
        id: store + 1,
        role: "voter".into(),
        lag: Some(0),
        quarantined: None,
        unclean: false,
    };
    RegionRow {
        id,
        first_slot: Some(slots.0),
        last_slot: Some(slots.1),
        epoch_conf_version: 1,
        epoch_version: 1,
        joint: false,
        leader: Some(stores[0]),
        term: 1,
        peers: stores.into_iter().map(peer).collect(),
        keys: 10_000,
        bytes: 10_000_000,
        read_rate: 90.0,
        miss_rate: 60.0,
        write_rate: 10.0,
        heat: 100.0,
    }
}

fn running() -> cluster::Running {
    let stores = vec![store(0, "nvm"), store(1, "plain-ssd"), store(2, "plain-ssd"), store(3, "plain-ssd")];
    let regions = vec![region(1, (0, 8191), [1, 2, 3]), region(2, (8192, 16383), [2, 3, 0])];
    cluster::Running::of(stores, regions, Policy::Alor)
}

#[test]
fn a_running_cluster_is_taken_as_it_is() {
    let running = running();
    assert_eq!(running.mix(), Some(Workload::Mixed(90)));
    let settings = running.question(&plan(&["--from-cluster", "127.0.0.1:1"])).unwrap();
    let question = &settings.question;
    assert_eq!((question.stores.len(), question.regions.len(), question.replicas), (4, 2, 3));
    assert_eq!((question.regions[0].leader, question.regions[1].peers.as_slice()), (1, &[2, 3, 0][..]));
    assert!((question.regions[0].bytes as i64 - 10_000_000).abs() < 10_000);
    assert!(running.changed(&plan(&["--from-cluster", "127.0.0.1:1"])).unwrap().is_none());
}

/// Pinned weights replace the measured ones, as in the cluster, and stay with a store that gets
/// another device.
#[test]
fn pinned_weights_count() {
    let of = |pinned: Option<f64>| {
        let mut rows =
            vec![store(0, "nvm"), store(1, "plain-ssd"), store(2, "plain-ssd"), store(3, "plain-ssd")];
        (rows[3].data_weight, rows[3].leader_weight) = (pinned, pinned);
        let regions = vec![region(1, (0, 8191), [1, 2, 0]), region(2, (8192, 16383), [2, 1, 0])];
        cluster::Running::of(rows, regions, Policy::Alor)
    };
    let asked = plan(&["--from-cluster", "127.0.0.1:1", "--swap", "3=high-end-ssd"]);
    let leads = |running: &cluster::Running| {
        let settings = running.question(&asked).unwrap();
        let case = Case::predict(String::new(), settings, &[Policy::Alor], &[Workload::C]).unwrap();
        let stores = &case.predictions[0].stores;
        (stores[0].leaders, stores[3].leaders)
    };
    assert_eq!(leads(&of(None)), (2, 0));
    let pinned = of(Some(1e12));
    assert_eq!(leads(&pinned), (0, 2));
    let (_, changed) = pinned.changed(&asked).unwrap().unwrap();
    let swapped = &changed.question.stores[3];
    assert_eq!((swapped.data_weight, swapped.leader_weight), (Some(1e12), Some(1e12)));
}

#[test]
fn of_a_cluster_that_holds_next_to_nothing_the_data_is_asked_for() {
    let rows = vec![store(0, "nvm"), store(1, "nvm"), store(2, "nvm")];
    let mut regions = vec![region(1, (0, 4095), [0, 1, 2]), region(2, (4096, 16383), [0, 1, 2])];
    (regions[0].keys, regions[0].bytes) = (3, 120);
    (regions[1].keys, regions[1].bytes) = (0, 0);
    let running = cluster::Running::of(rows, regions, Policy::Even);
    let error = running.question(&plan(&["--from-cluster", "127.0.0.1:1"])).err().unwrap().to_string();
    assert!(error.contains("holds 120 B of data") && error.contains("--data 10gb"), "{error}");
    // Three keys do not show how a gigabyte would be distributed.
    let asked = plan(&["--from-cluster", "127.0.0.1:1", "--data", "100mb"]);
    let question = running.question(&asked).unwrap().question;
    let share = question.regions[0].bytes as f64 / question.regions[1].bytes as f64;
    assert!((share - 1.0 / 3.0).abs() < 1e-6, "{share}");
    let small = plan(&["--from-cluster", "127.0.0.1:1", "--value", "20"]);
    assert!(running.question(&small).is_ok(), "three small records for two regions");
}

#[test]
fn stores_come_go_and_change() {
    let running = running();
    let of = |arguments: &[&str]| {
        let mut all = vec!["--from-cluster", "127.0.0.1:1"];
        all.extend(arguments);
        running.changed(&plan(&all))
    };
    let (what, settings) =
        of(&["--add", "nvm", "--remove", "2", "--swap", "3=high-end-ssd"]).unwrap().unwrap();
    assert_eq!(
        what,
        "the cluster store 3 with high-end-ssd instead of plain-ssd, without store 2, with nvm as store 4"
    );
    let case = Case::predict(what, settings, &[Policy::Alor], &[Workload::Mixed(90)]).unwrap();
    let stores = &case.predictions[0].stores;
    assert_eq!((stores[2].peers, stores[2].leaders), (0, 0), "it left");
    assert!(stores[4].peers == 2 && stores[4].device == "nvm", "{stores:?}");
    assert!(show::text(&[case]).contains("layout under alor"));
    for (arguments, words) in [
        (&["--remove", "9"][..], "no store 9"),
        (&["--swap", "3"], "'3' is no swap"),
        (&["--swap", "3=tape"], "unknown device profile"),
    ] {
        let said = of(arguments).err().unwrap().to_string();
        assert!(said.contains(words), "{said}");
    }
    // Three copies need three stores.
    let (what, settings) = of(&["--remove", "1", "--remove", "2"]).unwrap().unwrap();
    let error = Case::predict(what, settings, &[Policy::Alor], &[Workload::A]).err().unwrap();
    assert!(error.to_string().contains("has nowhere else to be"), "{error}");
}

/// Returns true if the values are equal up to rounding to whole nanoseconds and bytes.
fn near(value: f64, wanted: f64) -> bool {
    (value / wanted - 1.0).abs() < 1e-3
}

/// Returns a store of a playground with a stated capability.
fn told(id: u64, device: &str, device_speed: f64) -> StoreRow {
    let profile: Profile = device.parse().unwrap();
    let kv = KvCapability::of(&profile).scaled(device_speed);
    StoreRow { capability_bytes_per_s: kv.kv_bytes_per_s.round(), ..store(id, device) }
}

/// Returns a store that has measured its device.
fn measured(id: u64, device: &str, io_bytes_per_s: f64, fit: &Fit) -> StoreRow {
    let capability_bytes_per_s = fit.kv_bytes_per_s(io_bytes_per_s);
    StoreRow { io_bytes_per_s, capability_bytes_per_s, ..store(id, device) }
}

/// Returns a cluster in which all stores have a peer of the only region.
fn of_three(rows: Vec<StoreRow>) -> cluster::Running {
    cluster::Running::of(rows, vec![region(1, (0, 16383), [0, 1, 2])], Policy::Alor)
}

fn of_cluster(arguments: &[&str]) -> Plan {
    let mut all = vec!["--from-cluster", "127.0.0.1:1"];
    all.extend(arguments);
    plan(&all)
}

/// Placement in the prediction distinguishes measured stores in the same way as in the cluster.
#[test]
fn what_is_measured_is_as_sure_as_the_cluster_tells() {
    let mut rows = vec![told(0, "nvm", 0.1), told(1, "nvm", 0.1), told(2, "nvm", 0.1)];
    rows[0].capability_spread = 1.0;
    rows[1].capability_spread = 1.2;
    rows[1].capability_bytes_per_s *= 1.3;
    let running = of_three(rows);
    let settings = running.question(&of_cluster(&["--add", "nvm"])).unwrap();
    let spreads: Vec<Spread> = settings.question.stores.iter().map(|store| store.spread).collect();
    assert_eq!(spreads, [Spread::EXACT, Spread::all(1.2), Spread::EXACT]);
}

/// The stores of `make demo`, and stores that join them, are simulated at the speed of their
/// devices.
#[test]
fn slowed_devices_are_as_slow_as_the_cluster_tells() {
    let mut rows = vec![told(0, "nvm", 0.1), told(1, "plain-ssd/2", 0.1), told(2, "plain-ssd", 0.1)];
    // Its device has become four times slower since.
    rows[2].correction = 0.25;
    rows[2].capability_bytes_per_s *= 0.25;
    let running = of_three(rows.clone());
    let asked = of_cluster(&["--add", "nvm", "--swap", "2=high-end-ssd"]);
    let settings = running.question(&asked).unwrap();
    let stores = &settings.question.stores;
    for (store, write, sync_ns) in [(0, 5e8, 5e4), (1, 2.5e7, 2e7), (2, 1.25e7, 4e7)] {
        let device = &stores[store].device;
        assert!(near(device.write_bytes_per_s as f64, write), "{store}");
        assert!(near(device.sync_ns as f64, sync_ns), "{store}");
        let full: Profile = rows[store].device.parse().unwrap();
        let slowed = write / full.write_bytes_per_s as f64;
        assert!(near(device.read_bytes_per_s as f64, full.read_bytes_per_s as f64 * slowed), "{store}");
        let kv = KvCapability::of(&full).scaled(slowed);
        let capability = stores[store].capability;
        assert_eq!(capability.kv_bytes_per_s, rows[store].capability_bytes_per_s);
        assert!(near(capability.kv_bytes_per_s, kv.kv_bytes_per_s), "{store}");
        assert!(near(capability.ops_per_s, kv.kv_ops_per_s), "{store}");
    }
    assert_eq!(
        settings.notes,
        [
            "devices at 0.1 (store 0), 0.1 (store 1), 0.025 (store 2) of their profiles' speed",
            "store 2 counts for 25%, because its device has become slower",
        ]
    );

    let (_, changed) = running.changed(&asked).unwrap().unwrap();
    let new = &changed.question.stores;
    assert!(near(new[3].capability.kv_bytes_per_s, stores[0].capability.kv_bytes_per_s), "{:?}", new[3]);
    assert!(near(new[3].device.write_bytes_per_s as f64, 5e8), "{:?}", new[3]);
    assert!(near(new[2].device.write_bytes_per_s as f64, 2e8), "it is not corrected: {:?}", new[2]);
    assert_eq!(changed.notes, ["new devices at 0.1 of their profiles' speed, like the cluster's devices"]);

    let asked = of_cluster(&["--add", "nvm", "--device-speed", "1"]);
    let (_, changed) = running.changed(&asked).unwrap().unwrap();
    let new = &changed.question.stores;
    assert!(near(new[0].device.write_bytes_per_s as f64, 5e8), "a running device is as it is: {:?}", new[0]);
    assert_eq!(new[3].device.write_bytes_per_s, 5_000_000_000);
    assert_eq!(changed.notes, ["new devices at 1 of their profiles' speed, as --device-speed says"]);
}

/// Measured speeds scatter. A new store will also measure itself, and look up its reduced speed in
/// the curve.
#[test]
fn a_device_that_joins_counts_like_one_that_was_measured() {
    let pair = |io_bytes_per_s, kv_bytes_per_s| Pair { name: String::new(), io_bytes_per_s, kv_bytes_per_s };
    let pairs = vec![pair(5e7, 1e7), pair(5e8, 6e7), pair(5e9, 9e7)];
    let fit = Fit::of(pairs, 2, String::new()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fit.json");
    fit.write(&path).unwrap();
    let rows = vec![
        measured(0, "nvm", 5e8, &fit),
        measured(1, "plain-ssd", 4.6e7, &fit),
        measured(2, "plain-ssd", 5.3e7, &fit),
    ];
    let asked = of_cluster(&["--add", "nvm", "--capability-fit", path.to_str().unwrap()]);
    let (_, changed) = of_three(rows).changed(&asked).unwrap().unwrap();
    let stores = &changed.question.stores;
    assert!(near(stores[1].device.sync_ns as f64, 1e6 * 5e8 / 4.6e7), "{:?}", stores[1]);
    assert!(near(stores[3].device.write_bytes_per_s as f64, 5e8), "{:?}", stores[3]);
    assert!(near(stores[3].capability.kv_bytes_per_s, stores[0].capability.kv_bytes_per_s), "{stores:?}");
}

#[test]
fn where_speeds_differ_what_joins_has_its_profiles() {
    let mut rows = vec![told(0, "nvm", 0.1), told(1, "plain-ssd", 0.5), store(2, "plain-ssd")];
    let running = of_three(rows.clone());
    let asked = of_cluster(&["--add", "nvm"]);
    let settings = running.question(&asked).unwrap();
    let notes = ["devices at 0.1 (store 0), 0.5 (store 1), 1 (store 2) of their profiles' speed"];
    assert_eq!(settings.notes, notes, "the last one is unknown");
    let (_, changed) = running.changed(&asked).unwrap().unwrap();
    assert_eq!(changed.question.stores[3].device.write_bytes_per_s, 5_000_000_000);
    assert_eq!(
        changed.notes,
        ["new devices at 1 of their profiles' speed, because the cluster's devices differ"]
    );
    rows[1] = told(1, "plain-ssd", 0.1);
    let settings = of_three(rows).question(&asked).unwrap();
    assert_eq!(settings.notes, ["devices at 0.1 of their profiles' speed"], "the last as the others");
}

#[test]
fn a_store_that_drains_leaves() {
    let mut rows = vec![store(0, "nvm"), store(1, "plain-ssd"), store(2, "plain-ssd"), store(3, "plain-ssd")];
    rows[3].state = "draining".into();
    let regions = vec![region(1, (0, 8191), [1, 2, 3]), region(2, (8192, 16383), [3, 1, 2])];
    let running = cluster::Running::of(rows, regions, Policy::Even);
    let asked = of_cluster(&["--swap", "3=nvm"]);
    let settings = running.question(&asked).unwrap();
    assert_eq!(settings.notes.last().unwrap(), "store 3 is draining and leaves the cluster");
    let (_, changed) = running.changed(&asked).unwrap().unwrap();
    assert!(changed.question.stores[3].leaving, "with another device, too");
    let case = Case::predict(String::new(), settings, &[Policy::Even], &[Workload::C]).unwrap();
    assert_eq!(case.predictions[0].stores[3].peers, 0);
    assert!(show::text(&[case]).contains("\nstore 3 is draining and leaves the cluster\n"));
}

#[test]
fn a_real_device_is_taken_for_what_it_was_measured_to_be() {
    let mut rows = vec![store(0, ""), store(1, "nvm"), store(2, "nvm")];
    rows[0].io_bytes_per_s = 450e6;
    let regions = vec![region(1, (0, 16383), [0, 1, 2])];
    let running = cluster::Running::of(rows.clone(), regions.clone(), Policy::Even);
    let settings = running.question(&plan(&["--from-cluster", "127.0.0.1:1"])).unwrap();
    let store = &settings.question.stores[0];
    assert_eq!(store.device_name, "like plain-ssd");
    assert!(near(store.device.write_bytes_per_s as f64, 450e6), "{store:?}");
    assert!(near(store.device.sync_ns as f64, 1e6 / 0.9), "as slow in everything: {store:?}");
    rows[0].io_bytes_per_s = 0.0;
    let running = cluster::Running::of(rows, regions, Policy::Even);
    let error = running.question(&plan(&["--from-cluster", "127.0.0.1:1"])).err().unwrap();
    assert!(error.to_string().contains("was not measured"), "{error}");
}
