//! Wrong clocks. Leases depend only on a clock that counts time, a region's time never decreases,
//! and a store whose wall clock is far from the others' does not lead.

use std::time::{Duration, Instant};

use crate::disk::{on_devices, under_all};
use crate::stores::wire::Wire;
use crate::stores::{eventually, say, Plan, Store};
use crate::{await_operations, judge, load, move_leader, pause, rounds, row, three, warm_up, Stores, REGION};

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_NS: i64 = 3600 * SECOND_NS;
const DAY_NS: i64 = 24 * HOUR_NS;
const DAY_MS: i64 = DAY_NS / 1_000_000;

fn config(store: &Store, name: &str, value: &str) {
    let words = ["config", name, value];
    eventually("a setting is accepted", || store.host().ctl(&words).ok().map(drop));
    eventually("every store uses the setting", || {
        let rows = store.host().ctl(&["config"]).ok()?;
        let row = rows.as_array()?.iter().find(|row| row["name"] == name)?.clone();
        (row["value"] == value && !row["note"].as_str()?.contains("not known")).then_some(())
    });
}

#[test]
fn histories_stay_linearizable_while_wall_clocks_jump_by_hours() {
    let _place = crate::place();
    let (stores, disks) = on_devices(&three());
    // The limit is so large that stamps do jump.
    config(&stores.all[0], "max-clock-offset", "365d");
    let load = load(&stores, "clocks");
    warm_up(&load);
    for round in 0..rounds(4) as i64 {
        let leader = stores.leader(REGION);
        let offset = [HOUR_NS, -HOUR_NS, 30 * 24 * HOUR_NS, 0][round as usize % 4];
        disks[leader].control.set_wall_offset(offset);
        await_operations(&load, 200);
        move_leader(&stores, (leader + 1) % 3);
        await_operations(&load, 200);
    }
    judge(load.finish());
}

#[test]
fn histories_stay_linearizable_while_leads_leave_stores_whose_wall_clocks_jump() {
    let _place = crate::place();
    let (stores, disks) = on_devices(&three());
    let load = load(&stores, "outliers");
    warm_up(&load);
    for round in 0..rounds(4) as i64 {
        let leader = stores.leader(REGION);
        let offset = [HOUR_NS, -HOUR_NS, 30 * 24 * HOUR_NS, -DAY_NS][round as usize % 4];
        disks[leader].control.set_wall_offset(offset);
        await_operations(&load, 200);
        eventually("the lead goes elsewhere", || (stores.leader(REGION) != leader).then_some(()));
        await_operations(&load, 200);
        disks[leader].control.set_wall_offset(0);
    }
    judge(load.finish());
}

#[test]
fn a_key_that_has_expired_stays_gone_under_a_leader_whose_clock_is_behind() {
    let _place = crate::place();
    let (stores, disks) = on_devices(&three());
    config(&stores.all[0], "max-clock-offset", "365d");
    let leader = stores.leader(REGION);
    let mut wire = Wire::open(stores.all[leader].client);
    wire.ok(&["SET", "short", "x", "EX", "600"]);
    wire.ok(&["SET", "kept", "x", "EX", "100000"]);
    assert_eq!(wire.text(&["GET", "short"]).as_deref(), Some("x"));
    disks[leader].control.set_wall_offset(HOUR_NS);
    assert_eq!(wire.text(&["GET", "short"]), None, "an hour later it is over");

    let next = (leader + 1) % 3;
    disks[next].control.set_wall_offset(-HOUR_NS);
    move_leader(&stores, next);
    eventually("the store whose clock is behind leads", || (stores.leader(REGION) == next).then_some(()));
    let mut wire = Wire::open(stores.all[next].client);
    assert_eq!(wire.text(&["GET", "short"]), None, "it came back");
    assert_eq!(wire.int(&["EXISTS", "short"]), 0);
    // The region's time stands still until that clock has caught up, two hours from now. Keys do
    // not expire too early, and no live key is lost.
    wire.ok(&["SET", "later", "x", "EX", "600"]);
    assert_eq!(wire.text(&["GET", "later"]).as_deref(), Some("x"));
    assert_eq!(wire.text(&["GET", "kept"]).as_deref(), Some("x"));
}

const KEYS: usize = 60;

/// Asserts that every key that expires in an hour exists on every store, by strong and by weak
/// reads.
fn assert_alive(stores: &Stores, when: &str) {
    for store in &stores.all {
        let mut strong = Wire::open(store.forward.expect("it has a forward port"));
        let mut weak = Wire::open(store.client);
        weak.ok(&["READONLY"]);
        for key in 0..KEYS {
            let key = format!("hour:{key}");
            assert_eq!(
                strong.text(&["GET", &key]).as_deref(),
                Some("x"),
                "{when}: {key}, store {}",
                store.id
            );
            let read = weak.text(&["GET", &key]);
            assert_eq!(read.as_deref(), Some("x"), "{when}: {key}, weakly on store {}", store.id);
        }
    }
}

/// Returns true if keys with a short time to live expire in time in every region.
fn does_time_go_on(store: &Store, when: &str) -> bool {
    let mut wire = Wire::open(store.forward.expect("it has a forward port"));
    let keys: Vec<String> = (0..KEYS).map(|key| format!("soon:{key}")).collect();
    keys.iter().for_each(|key| wire.ok(&["SET", key, "x", "PX", "300"]));
    let set = Instant::now();
    while keys.iter().any(|key| wire.text(&["GET", key]).is_some()) {
        if set.elapsed() > Duration::from_secs(2) {
            return false;
        }
        pause(20);
    }
    say(&format!("{when}: keys of 300 ms were gone {} ms after the last was set", set.elapsed().as_millis()));
    true
}

fn assert_time_goes_on(store: &Store, when: &str) {
    assert!(does_time_go_on(store, when), "{when}: time stands still in some region");
}

#[test]
fn a_leader_whose_clock_jumps_a_day_ahead_deletes_nothing_and_leads_no_longer_than_that_lasts() {
    let _place = crate::place();
    let plan = Plan { regions: 3, cluster_enabled: true, ..three() };
    let (stores, disks) = on_devices(&plan);
    let leads = |store: usize| {
        let leaders = stores.leaders(0)?;
        Some(leaders.iter().filter(|leader| **leader == store as u64).count())
    };
    eventually("every store leads a region", || (0..3).all(|store| leads(store) == Some(1)).then_some(()));
    let mut wire = Wire::open(stores.all[0].forward.expect("it has a forward port"));
    for key in 0..KEYS {
        wire.ok(&["SET", &format!("hour:{key}"), "x", "EX", "3600"]);
    }
    assert_alive(&stores, "before");

    let wrong = 1;
    disks[wrong].control.set_wall_offset(DAY_NS);
    let jumped = Instant::now();
    loop {
        assert_alive(&stores, "a day ahead");
        wire.ok(&["SET", "written", "meanwhile"]);
        if leads(wrong) == Some(0) {
            break;
        }
        assert!(jumped.elapsed() < Duration::from_secs(10), "the store still leads");
    }
    say(&format!("its leads were gone {} ms after its clock had jumped", jumped.elapsed().as_millis()));
    for asked in &stores.all {
        eventually("the store is shown with its clock", || {
            let shown = row(asked, wrong)?;
            let near = (shown["clock_offset_ms"].as_i64()? - DAY_MS).abs() < 5000;
            (shown["state"] == "clock off" && near).then_some(())
        });
        for right in (0..3).filter(|store| *store != wrong) {
            let shown = row(asked, right).expect("it is a member");
            assert_eq!(shown["state"], "up", "{shown}");
            assert!(shown["clock_offset_ms"].as_i64().is_some_and(|offset| offset.abs() < 5000), "{shown}");
        }
    }
    let log = stores.all[wrong].log_text();
    assert!(log.contains("max-clock-offset") && log.contains("NTP"), "{log}");
    assert_alive(&stores, "led elsewhere");
    assert_time_goes_on(&stores.all[wrong], "led elsewhere");

    disks[wrong].control.set_wall_offset(0);
    let mended = Instant::now();
    eventually("it leads again", || (leads(wrong) == Some(1)).then_some(()));
    say(&format!("it led again {} ms after its clock was mended", mended.elapsed().as_millis()));
    eventually("it is shown to be up", || (row(&stores.all[0], wrong)?["state"] == "up").then_some(()));
    assert_time_goes_on(&stores.all[0], "mended");
    assert_alive(&stores, "mended");
}

/// The only voter of a region leads it as soon as its store starts, and no other store can. A write
/// that waits for the leader must not be stamped before the store knows the others' clocks.
#[test]
fn a_store_that_starts_with_its_clock_a_day_ahead_and_leads_alone_keeps_right_time() {
    let _place = crate::place();
    let wrong = 1;
    let attempt = || {
        let plan = Plan { regions: 3, cluster_enabled: true, flags: &[("--replicas", "1")], ..three() };
        let mut stores = Stores::prepare(&plan);
        let disks = under_all(&mut stores);
        disks[wrong].control.set_wall_offset(DAY_NS);
        stores.all[wrong].spawn();
        let client = stores.all[wrong].client;
        eventually("the store's port is open", || std::net::TcpStream::connect(client).ok());
        // Each write has its own connection, because writes to other regions wait until those have
        // leaders. A store that waits for its own election redirects to itself.
        let here = client.to_string();
        let writers = (0..8).map(|key| {
            let here = here.clone();
            std::thread::spawn(move || {
                let key = format!("first:{key}");
                eventually("the store answers", || {
                    let reply = Wire::ask(client, &[&["SET", &key, "x"]])?.remove(0);
                    let again = matches!(&reply, resp::Reply::Error(error) if error.contains(&here));
                    (!again).then_some(reply)
                })
            })
        });
        let writers: Vec<_> = writers.collect();
        pause(200);
        for right in [0, 2] {
            stores.all[right].spawn();
        }
        let written = writers.into_iter().map(|writer| writer.join().expect("it is answered"));
        let written: Vec<_> = written.collect();
        assert!(written.iter().any(|reply| !reply.is_error()), "it leads the region of some: {written:?}");
        stores.await_ready();
        (stores, disks)
    };
    // The store waits a second for the others' clocks. On a busy machine the others may not be up
    // by then.
    let (stores, _disks) = (0..3)
        .map(|_| attempt())
        .find(|(stores, _)| does_time_go_on(&stores.all[wrong], "started a day ahead"))
        .expect("it never waits for the others' clocks");
    eventually("the store is shown", || (row(&stores.all[0], wrong)?["state"] == "clock off").then_some(()));
    assert!(
        stores.leaders(0).is_some_and(|leaders| leaders.contains(&(wrong as u64))),
        "no other store can lead"
    );
    assert_time_goes_on(&stores.all[0], "led with a wrong clock");
}

#[test]
fn two_stores_whose_clocks_differ_are_told_so_and_lead() {
    let _place = crate::place();
    let (stores, disks) = on_devices(&Plan { stores: 2, ..three() });
    let leader = stores.leader(REGION);
    disks[leader].control.set_wall_offset(HOUR_NS);
    for store in &stores.all {
        eventually("both say that their clocks differ", || {
            let log = store.log_text();
            (log.contains("clocks differ") && log.contains("NTP")).then_some(())
        });
        eventually("the one that is ahead is shown", || {
            let offset = row(store, leader)?["clock_offset_ms"].as_i64()?;
            ((offset - HOUR_NS / 1_000_000).abs() < 5000).then_some(())
        });
    }
    let shown = row(&stores.all[0], leader).expect("it is a member");
    assert_eq!((shown["state"].as_str(), stores.leader(REGION)), (Some("up"), leader));
    Wire::open(stores.all[leader].client).ok(&["SET", "k", "v"]);
}

/// A paused virtual machine does not count the time of its pause, so its leases still appear valid
/// after it.
#[test]
fn a_store_on_a_paused_machine_answers_no_read_from_its_past_where_reads_are_proven_one_by_one() {
    let _place = crate::place();
    let (mut stores, disks) = on_devices(&three());
    config(&stores.all[0], "strong-reads", "read-index");
    for round in 0..rounds(3) {
        let leader = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
        let key = format!("paused:{round}");
        let mut at_leader = Wire::open(stores.all[leader].client);
        at_leader.ok(&["SET", &key, "old"]);
        assert_eq!(at_leader.text(&["GET", &key]).as_deref(), Some("old"));

        stores.all[leader].signal("-STOP");
        let stopped = Instant::now();
        let successor = eventually("another leader", || {
            let leaders: Vec<_> = others.iter().map(|&i| stores.all[i].leader_of(REGION)).collect();
            let new = leaders[0].filter(|new| *new != leader as u64 && leaders[1] == Some(*new))?;
            Some(new as usize)
        });
        Wire::open(stores.all[successor].client).ok(&["SET", &key, "new"]);
        // After the pause the process finds this request first, while its clock shows the time
        // before the pause.
        let read = std::thread::scope(|scope| {
            let asked = scope.spawn(|| at_leader.text(&["GET", &key]));
            pause(100);
            let stood_still = stopped.elapsed().as_nanos() as i64;
            let before = disks[leader].control.block().boot_offset_ns();
            disks[leader].control.set_boot_offset(before - stood_still);
            stores.all[leader].signal("-CONT");
            asked.join().expect("the read is answered")
        });
        assert_eq!(read.as_deref(), Some("new"), "round {round}: a read older than an acknowledged write");
        stores.await_ready();
    }
}
