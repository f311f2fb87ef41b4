use clap::Parser;
use server::admin::{PeerRow, RegionRow, StoreRow};

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
    let stores = stores::parse("1xnvm,2x high-end-ssd,plain-ssd", 0.1, 7).unwrap();
    let names: Vec<_> = stores.iter().map(|store| (store.id, store.device_name.as_str())).collect();
    assert_eq!(names, [(0, "nvm"), (1, "high-end-ssd"), (2, "high-end-ssd"), (3, "plain-ssd")]);
    assert_eq!((stores[3].device.write_bytes_per_s, stores[3].device.sync_ns), (50_000_000, 10_000_000));
    assert_eq!(stores[0].capacity_bytes, 7);
    let numbers = stores::parse("nvm;2x write=5MB/s,read=6MB/s,capacity=1GB", 1.0, 7).unwrap();
    assert_eq!((numbers.len(), numbers[2].capacity_bytes), (3, 1_000_000_000));
    assert!(stores[0].capability.kv_bytes_per_s > stores[3].capability.kv_bytes_per_s);
}

#[test]
fn what_cannot_be_predicted_is_refused_in_a_line() {
    for (arguments, words) in [
        (&["--stores", "floppy"][..], "unknown device profile 'floppy'"),
        (&["--stores", "1xnvm,,nvm"], "a store is missing"),
        (&["--stores", "0xnvm"], "'0xnvm' is no store at all"),
        (&["--stores", "99xnvm"], "at most 64 stores"),
        (&["--stores", "3xnvm", "--device-speed", "0"], "a factor above 0"),
        (&["--stores", "3xnvm", "--workload", "e"], "'e' is no workload that can be predicted"),
        (&["--stores", "3xnvm", "--workload", "a,a"], "named twice"),
        (&["--stores", "3xnvm", "--data", "10"], "smaller than one record"),
        (&["--stores", "3xnvm", "--like-bench", "huge"], "'huge' is no scale"),
        (&["--stores", "3xnvm", "--value", "18446744073709551600"], "smaller than one record"),
        (&["--stores", "3xnvm", "--add", "nvm"], "change a running cluster"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(words) && !said.contains('\n'), "{arguments:?}: {said}");
    }
    let unknown = Cli::try_parse_from(["plan", "--stores", "nvm", "--policy", "best"]);
    assert!(unknown.is_err());
    assert!(Cli::try_parse_from(["plan"]).is_err(), "stores or a cluster");
}

/// What is simulated is a part of the data, with everything that grows with it.
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

/// A cache is as much smaller as the data that is simulated, and as slow as the device behind.
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
    assert_eq!(cache.bytes, (1e9 * bench::alor::Scale::named("quick").unwrap().data_factor) as u64);
}

#[test]
fn a_scale_of_the_reproduction_is_taken_over() {
    let text = "1xnvm,2xhigh-end-ssd,3xplain-ssd";
    let settings = settings::question(&plan(&["--stores", text, "--like-bench", "quick"]), text).unwrap();
    let question = &settings.question;
    let scale = bench::alor::Scale::named("quick").unwrap();
    let option =
        |wanted: &str| scale.store_options().into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert_eq!((question.load.records, question.load.threads), (scale.records(6), scale.threads));
    let tuning = &question.tuning;
    assert_eq!(
        (tuning.memtable_bytes, tuning.row_cache_bytes, tuning.level_base_bytes, tuning.table_file_bytes),
        (
            option("write_buffer_size"),
            option("maxmemory"),
            option("max_bytes_for_level_base"),
            option("target_file_size_base")
        )
    );
    assert_eq!(question.stores[5].device.sync_ns, (1e6 / scale.device_speed) as u64);
    assert!(question.processors.shared);
}

/// Unequal stores are laid beside hybrid ones with the same hardware, and any mix beside itself.
#[test]
fn figures_are_predicted_over_the_cluster_that_they_are_compared_with() {
    let scale = bench::alor::Scale::named("smoke").unwrap();
    let ratios = |mix: &str, beside: &str| {
        let both = [Policy::Even, Policy::Alor];
        let ratios = settings::ratios(mix, beside, Policy::Even, &both, &[Workload::Load], &scale).unwrap();
        ratios.iter().map(|ratio| (ratio.ops_per_s, ratio.throughput)).collect::<Vec<_>>()
    };
    let (unequal, hybrid) = (ratios("1N5P", "6Y"), ratios("6Y", "6Y"));
    assert_eq!(hybrid[0].1, 1.0);
    for (ops_per_s, ratio) in unequal {
        assert!((ratio - ops_per_s / hybrid[0].0).abs() < 1e-9 && ratio != 1.0, "{ratio}");
    }
}

fn store(id: u64, device: &str) -> StoreRow {
    StoreRow {
        id,
        state: "up".into(),
        client: String::new(),
        peer: String::new(),
        admin: String::new(),
        forward: None,
        device: device.into(),
        capability_bytes_per_s: 1.0,
        io_bytes_per_s: 0.0,
        correction: 1.0,
        data_weight: None,
        leader_weight: None,
        leaders: 0,
        regions: 0,
        used_bytes: 0,
        capacity_bytes: 0,
        ops_per_s: 0.0,
        p99_us: 0,
        heard_ms_ago: None,
    }
}

fn region(id: u64, slots: (u16, u16), stores: [u64; 3]) -> RegionRow {
    let peer = |store: u64| PeerRow { store, id: store + 1, role: "voter".into(), lag: Some(0) };
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

/// Weights stand in for what was measured, here as in the cluster, and stay with a store that gets another device.
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
    // Three keys do not say how a gigabyte would lie.
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

#[test]
fn a_real_device_is_taken_for_what_it_was_measured_to_be() {
    let mut rows = vec![store(0, ""), store(1, "nvm"), store(2, "nvm")];
    rows[0].io_bytes_per_s = 450e6;
    let regions = vec![region(1, (0, 16383), [0, 1, 2])];
    let running = cluster::Running::of(rows.clone(), regions.clone(), Policy::Even);
    let settings = running.question(&plan(&["--from-cluster", "127.0.0.1:1"])).unwrap();
    let store = &settings.question.stores[0];
    assert_eq!((store.device_name.as_str(), store.device.write_bytes_per_s), ("like plain-ssd", 450_000_000));
    rows[0].io_bytes_per_s = 0.0;
    let running = cluster::Running::of(rows, regions, Policy::Even);
    let error = running.question(&plan(&["--from-cluster", "127.0.0.1:1"])).err().unwrap();
    assert!(error.to_string().contains("was not measured"), "{error}");
}
