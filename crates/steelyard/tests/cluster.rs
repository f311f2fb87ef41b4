//! Three stores with many regions: Redis Cluster's rules, placement, and a store that dies.

mod stores;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use client::admin::{ExplainQuery, OperatorsQuery, PolicyQuery, PolicyRequest, RegionRow, RegionsQuery};
use resp::Reply;
use serde_json::Value;
use stores::ledger::{Load, Shape};
use stores::wire::Wire;
use stores::{alone, eventually, say, steelyard, within, Plan, Stores};
use types::{slot_of_key, SLOT_COUNT};

const REGIONS: u16 = 9;

/// Starts three stores. Store 0 is the most capable, and store 2 the least.
fn three() -> Stores {
    Stores::start(&Plan {
        stores: 3,
        regions: REGIONS,
        cluster_enabled: true,
        capabilities: &["600mb/60000", "300mb/30000", "100mb/10000"],
        ..Plan::default()
    })
}

fn set_policy(stores: &Stores, name: &str) {
    // The asked store need not lead the meta region.
    let admin = stores.all[2].admin();
    // At first the meta region may have no leader.
    eventually("the policy is changed", || admin.ask(&PolicyRequest { policy: name.to_owned() }).ok());
    assert_eq!(admin.ask(&PolicyQuery {}).expect("it is told").policy, name);
}

/// Waits until `settled` holds for the regions' leaders at every store, and returns the leaders by
/// region.
fn await_leaders(stores: &Stores, what: &str, settled: impl Fn(&[u64]) -> bool) -> Vec<u64> {
    eventually(what, || {
        let views: Option<Vec<Vec<u64>>> = (0..stores.all.len()).map(|i| stores.leaders(i)).collect();
        let views = views?;
        (views.iter().all(|view| *view == views[0]) && settled(&views[0])).then(|| views[0].clone())
    })
}

fn counts(leaders: &[u64]) -> BTreeMap<u64, usize> {
    let mut counts: BTreeMap<u64, usize> = (0..3).map(|store| (store, 0)).collect();
    leaders.iter().for_each(|leader| *counts.entry(*leader).or_default() += 1);
    counts
}

fn even(leaders: &[u64]) -> bool {
    let counts = counts(leaders);
    counts.values().max().unwrap_or(&0) - counts.values().min().unwrap_or(&0) <= 1
}

/// Waits until every store leads some regions and follows others, whatever the policy did before.
fn spread(stores: &Stores) -> Vec<u64> {
    set_policy(stores, "even");
    await_leaders(stores, "leaders are even", |leaders| even(leaders) && counts(leaders).len() == 3)
}

/// Returns a key in the slots of a region that the store leads.
fn key_led_by(stores: &Stores, store: u64) -> String {
    let rows = stores.any().regions().expect("regions are told");
    let row = rows.iter().find(|row| row.id != 0 && row.leader == Some(store)).expect("it leads one");
    let range = row.first_slot.expect("a slot")..=row.last_slot.expect("a slot");
    let mut keys = (0..).map(|n| format!("key:{n}"));
    keys.find(|key| range.contains(&slot_of_key(key.as_bytes()))).expect("keys fall everywhere")
}

fn quiet_for(stores: &Stores, seconds: u64) {
    let moves = || stores.any().admin().ask(&OperatorsQuery { history: true }).ok();
    let before = (stores.leaders(0), eventually("operators are told", moves).len());
    std::thread::sleep(Duration::from_secs(seconds));
    assert_eq!((stores.leaders(0), eventually("operators are told", moves).len()), before, "still moving");
}

#[test]
fn policies_converge_and_the_cluster_stays_quiet() {
    let _alone = alone();
    let quiet_s: u64 =
        std::env::var("STEELYARD_QUIET_SECONDS").map_or(4, |text| text.parse().expect("seconds"));
    let stores = three();
    let began = std::time::Instant::now();
    set_policy(&stores, "leader-only");
    await_leaders(&stores, "every leader on the most capable store", |leaders| {
        leaders.iter().all(|leader| *leader == 0)
    });
    say(&format!("leader-only converged in {:.1} s", began.elapsed().as_secs_f64()));
    quiet_for(&stores, quiet_s);
    let text = stores.all[1].admin().ask_of(1, &ExplainQuery {}).expect("explained").explanation;
    assert!(text.starts_with("Region 1 is led by store 0; the policy is leader-only."), "{text}");

    let began = std::time::Instant::now();
    let leaders = spread(&stores);
    say(&format!("even converged in {:.1} s: {:?}", began.elapsed().as_secs_f64(), counts(&leaders)));
    quiet_for(&stores, quiet_s);

    // Move leaders by hand through the command line. The asked store leads none of the regions.
    set_policy(&stores, "leader-only");
    await_leaders(&stores, "leader-only again", |leaders| leaders.iter().all(|leader| *leader == 0));
    let port = stores.all[2].admin().address().to_string();
    let run = |words: &[&str]| {
        let output = steelyard().arg("ctl").args(["--admin", &port]).args(words).output().expect("ctl runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (ok, rows) = run(&["--json", "stores"]);
    assert!(ok, "{rows}");
    let rows: Vec<Value> = serde_json::from_str(&rows).expect("JSON");
    assert_eq!(
        rows.iter().map(|row| row["leaders"].as_u64()).collect::<Vec<_>>(),
        [Some(9), Some(0), Some(0)]
    );
    assert!(run(&["policy"]).1.contains("leader-only"));
    assert!(!run(&["move-leader", "77", "1"]).0, "region 77 does not exist");

    // The weights are relative to the 600 MB/s of the fastest store.
    set_policy(&stores, "alor");
    let (ok, text) = run(&["explain", "--store", "2"]);
    assert!(ok && text.starts_with("Store 2 is up; the policy is alor."), "{text}");
    assert!(text.contains("weight 0.167"), "{text}");
    let (ok, text) = run(&["--json", "explain", "--store", "0"]);
    let explained: Value = serde_json::from_str(&text).expect("JSON");
    assert!(ok && explained["store"] == 0, "{text}");
    assert!(explained["explanation"].as_str().is_some_and(|text| text.contains("weight 1.000")), "{text}");
}

#[test]
fn cluster_commands_and_redirections_follow_redis() {
    let _alone = alone();
    let stores = three();
    let leaders = spread(&stores);
    let mut wires: Vec<Wire> = stores.all.iter().map(|store| Wire::open(store.client)).collect();

    // Every store gives the same map of all slots. Each run of slots has its region's leader first.
    let mut maps = Vec::new();
    for wire in &mut wires {
        let Reply::Array(runs) = wire.call(&["CLUSTER", "SLOTS"]) else { panic!("no array") };
        let run = |run: &Reply| match run {
            Reply::Array(fields) => match &fields[..] {
                [Reply::Int(first), Reply::Int(last), Reply::Array(leader), ..] => {
                    (*first, *last, format!("{:?}", leader[1]))
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        maps.push(runs.iter().map(run).collect::<Vec<_>>());
    }
    assert!(maps.iter().all(|map| *map == maps[0]));
    let mut next = 0;
    for (first, last, _) in &maps[0] {
        assert_eq!(*first, next, "no gap and no overlap");
        next = last + 1;
    }
    assert_eq!(next, i64::from(SLOT_COUNT));

    let Reply::Array(shards) = wires[1].call(&["CLUSTER", "SHARDS"]) else { panic!("no array") };
    assert_eq!(shards.len(), 3);
    let nodes = wires[2].text(&["CLUSTER", "NODES"]).expect("nodes");
    assert_eq!(nodes.lines().filter(|line| line.contains("master")).count(), 3, "{nodes}");
    assert_eq!(nodes.matches("myself").count(), 1);
    let id = wires[2].text(&["CLUSTER", "MYID"]).expect("an id");
    assert!(nodes.lines().any(|line| line.starts_with(&id) && line.contains("myself")), "{nodes}");
    let info = wires[0].text(&["CLUSTER", "INFO"]).expect("info");
    for part in ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3", "cluster_size:3"] {
        assert!(info.contains(part), "{info}");
    }
    assert_eq!(wires[0].int(&["CLUSTER", "KEYSLOT", "foo{hash_tag}"]), i64::from(slot_of_key(b"hash_tag")));

    // The leader serves the key, and the others redirect to it, with and without READONLY.
    for leader in 0..3u64 {
        assert!(leaders.contains(&leader));
        let key = key_led_by(&stores, leader);
        let slot = slot_of_key(key.as_bytes());
        let moved = format!("MOVED {slot} {}", stores.all[leader as usize].client);
        for (store, wire) in wires.iter_mut().enumerate() {
            if store as u64 != leader {
                assert_eq!(wire.error(&["SET", &key, "x"]), moved);
                assert_eq!(wire.error(&["GET", &key]), moved);
            }
        }
        wires[leader as usize].ok(&["SET", &key, "x"]);
        let follower = (leader as usize + 1) % 3;
        wires[follower].ok(&["READONLY"]);
        let read = || wires[follower].text(&["GET", &key]);
        within(stores::PATIENCE, read).expect("a follower has applied the write");
        assert_eq!(wires[follower].error(&["SET", &key, "y"]), moved);
        wires[follower].ok(&["READWRITE"]);
        assert_eq!(wires[follower].error(&["GET", &key]), moved);

        let slot = slot.to_string();
        assert_eq!(wires[leader as usize].int(&["CLUSTER", "COUNTKEYSINSLOT", &slot]), 1);

        // The forward port of every store serves the same key.
        let forward = stores.all[follower].forward.expect("cluster mode has one");
        let mut plain = Wire::open(forward);
        assert_eq!(plain.text(&["GET", &key]).as_deref(), Some("x"));
        plain.ok(&["SET", &key, "x2"]);
        assert_eq!(wires[leader as usize].text(&["GET", &key]).as_deref(), Some("x2"));
    }

    // Reads that a follower serves increase the region's heat at every store, although the leader
    // does not see them.
    let key = key_led_by(&stores, 0);
    let reads = 600;
    wires[1].ok(&["READONLY"]);
    for _ in 0..reads {
        assert!(wires[1].text(&["GET", &key]).is_some());
    }
    wires[1].ok(&["READWRITE"]);
    for store in &stores.all {
        let is_heated = || {
            let rows = store.admin().ask(&RegionsQuery {}).ok()?;
            let heat = row_of(&rows, &key).heat;
            // The heat is an average over ten minutes.
            (heat > 0.5 * f64::from(reads) / 600.0).then_some(())
        };
        within(stores::PATIENCE, is_heated).expect("every store receives the heat");
    }

    let error = wires[0].error(&["MSET", "a", "1", "b", "2"]);
    assert_eq!(error, "CROSSSLOT Keys in request don't hash to the same slot");
    let home = leaders_store(&stores, "{tag}");
    wires[home].ok(&["MSET", "{tag}a", "1", "{tag}b", "2"]);
    eventually("the cluster has the version of sets", || {
        matches!(wires[home].call(&["SADD", "{tag}s", "x", "y"]), Reply::Int(_)).then_some(())
    });
    for line in ["SUNION {tag}s other", "SINTERCARD 2 {tag}s other", "SMOVE {tag}s other x"] {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(
            wires[home].error(&args),
            "CROSSSLOT Keys in request don't hash to the same slot",
            "{line}"
        );
    }
    for (line, error) in [
        ("SORT {tag}s BY w_*", "ERR BY option of SORT denied in Cluster mode."),
        ("SORT_RO {tag}s BY nosort GET #", "ERR GET option of SORT denied in Cluster mode."),
        ("SORT {tag}s STORE other", "CROSSSLOT Keys in request don't hash to the same slot"),
        ("GEORADIUS {tag}g 1 1 1 km STORE other", "CROSSSLOT Keys in request don't hash to the same slot"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(wires[home].error(&args), error, "{line}");
    }
    assert_eq!(wires[home].call(&["SINTERCARD", "2", "{tag}s", "{tag}s", "LIMIT", "1"]), Reply::Int(1));
    assert_eq!(wires[home].call(&["SDIFFSTORE", "{tag}t", "{tag}s", "{tag}none"]), Reply::Int(2));
    assert_eq!(wires[home].error(&["SELECT", "1"]), "ERR SELECT is not allowed in cluster mode");
}

/// Returns the row of the region that a key is in.
fn row_of<'a>(rows: &'a [RegionRow], key: &str) -> &'a RegionRow {
    let slot = slot_of_key(key.as_bytes());
    let holds = |row: &&RegionRow| row.id != 0 && row.first_slot <= Some(slot) && Some(slot) <= row.last_slot;
    rows.iter().find(holds).expect("every slot has a region")
}

/// Returns the store that leads a key's slot.
fn leaders_store(stores: &Stores, key: &str) -> usize {
    let rows = stores.any().regions().expect("regions are told");
    row_of(&rows, key).leader.expect("a leader") as usize
}

/// Clients that find gaps in the table of slots combine those of several stores, and some give up
/// if these differ.
#[test]
fn slots_without_a_leader_keep_an_address() {
    let _alone = alone();
    let mut stores = three();
    spread(&stores);
    stores.all[1].kill();
    stores.all[2].kill();
    let mut wire = Wire::open(stores.all[0].client);
    let mut has_failed = || {
        let info = wire.text(&["CLUSTER", "INFO"])?;
        info.contains("cluster_slots_ok:0").then_some(())
    };
    within(stores::PATIENCE, &mut has_failed).expect("a store alone knows no leader");
    let Reply::Array(runs) = wire.call(&["CLUSTER", "SLOTS"]) else { panic!("no array") };
    let mut next = 0;
    for run in runs {
        let Reply::Array(fields) = run else { panic!("{run:?}") };
        let [Reply::Int(first), Reply::Int(last), Reply::Array(_), ..] = &fields[..] else {
            panic!("{fields:?}")
        };
        assert_eq!(*first, next);
        next = last + 1;
    }
    assert_eq!(next, i64::from(SLOT_COUNT));
    assert!(wire.text(&["CLUSTER", "NODES"]).expect("nodes").contains(" 0-"));
}

#[test]
fn when_the_busiest_store_dies_its_regions_get_new_leaders_and_lose_nothing() {
    let _alone = alone();
    let mut stores = three();
    set_policy(&stores, "leader-only");
    await_leaders(&stores, "store 0 leads everything", |leaders| leaders.iter().all(|leader| *leader == 0));
    let mut load = Load::start(&stores.clients(), "busiest", Shape::MIXED);
    load.await_more(800);
    stores.all[0].kill();
    let time = load.time_to_serve(stores::PATIENCE);
    eventually("every region has another leader", || {
        stores.leaders(1).filter(|leaders| leaders.iter().all(|leader| *leader != 0)).map(drop)
    });
    say(&format!("the store that led all {REGIONS} regions died: service after {:.2} s", time.as_secs_f64()));
    load.await_more(800);
    let began = std::time::Instant::now();
    // The more capable of the two remaining stores should lead.
    eventually("leaders go to the most capable of the remaining stores", || {
        stores.leaders(1).filter(|leaders| leaders.iter().all(|leader| *leader == 1)).map(drop)
    });
    say(&format!("leaders on the better of the living {:.1} s later", began.elapsed().as_secs_f64()));
    stores.all[0].restart();
    load.await_more(200);
    load.finish().check("the busiest store killed");
}

#[test]
fn six_stores_killed_at_once_come_back_with_every_acknowledged_write() {
    let _alone = alone();
    let mut stores =
        Stores::start(&Plan { stores: 6, regions: 12, cluster_enabled: true, ..Plan::default() });
    let mut load = Load::start(&stores.clients(), "six", Shape::MIXED);
    load.await_more(1000);
    stores.kill_all();
    stores.all.iter_mut().for_each(|store| store.spawn());
    let time = load.time_to_serve(stores::PATIENCE);
    say(&format!("six stores killed and started: service after {:.2} s", time.as_secs_f64()));
    stores.await_ready();
    load.await_more(200);
    load.finish().check("kill -9 of all six");
}

#[test]
fn redis_cli_understands_a_cluster_whose_stores_both_lead_and_follow() {
    let _alone = alone();
    let run = |words: &[&str]| {
        let output = Command::new("redis-cli").args(words).output().ok()?;
        Some((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    if run(&["--version"]).is_none() {
        return say("SKIPPED redis-cli: it is not installed");
    }
    let stores = three();
    spread(&stores);
    let address = stores.all[1].client.to_string();
    let port = stores.all[1].client.port().to_string();
    let (ok, said) = run(&["--cluster", "check", &address]).expect("it runs");
    assert!(ok && said.contains("All 16384 slots covered"), "{said}");
    assert!(said.contains("All nodes agree about slots configuration"), "{said}");
    for n in 0..30 {
        let (key, value) = (format!("cli:{n}"), n.to_string());
        let (ok, said) = run(&["-c", "-p", &port, "SET", &key, &value]).expect("it runs");
        assert!(ok && said.trim() == "OK", "{said}");
        let (_, said) = run(&["-c", "-p", &port, "GET", &key]).expect("it runs");
        assert_eq!(said.trim(), value);
    }
    let (ok, said) = run(&["--cluster", "call", &address, "DBSIZE"]).expect("it runs");
    assert!(ok && stores.all.iter().all(|store| said.contains(&store.client.to_string())), "{said}");
}
