//! Raft logs that exceed their segments many times. The stores are killed, or lose power, while
//! segments are being overwritten.
//!
//! The logs are small in the short runs. `make test-large` repeats the tests with logs of the
//! default size.

use std::path::Path;

use device::Survival;
use types::Draw;

use crate::disk::under_all;
use crate::stores::ledger::{Ledger, Load, Shape};
use crate::stores::wire::Wire;
use crate::stores::{eventually, say};
use crate::{pause, Plan, Stores};

/// The size of the log, and the bytes written between two faults.
struct Size {
    log: &'static str,
    bytes: u64,
    value_bytes: usize,
    kills: u64,
    losses_of_power: u64,
    /// Number of stores that lose power together.
    stores: u16,
    /// True if each round begins with only the data that is written once.
    is_cleared: bool,
}

const SMALL: Size = Size {
    log: "4mb",
    bytes: 96 << 20,
    value_bytes: 128 << 10,
    kills: 4,
    losses_of_power: 2,
    stores: 3,
    is_cleared: false,
};
const LARGE: Size =
    Size { log: "256mb", bytes: 600 << 20, value_bytes: 4 << 10, kills: 10, losses_of_power: 5, ..SMALL };
/// Two gibibytes of log exist at each start.
const HUGE: Size = Size {
    log: "4gb",
    bytes: 2300 << 20,
    value_bytes: 128 << 10,
    kills: 20,
    losses_of_power: 20,
    stores: 1,
    is_cleared: true,
};

/// Several regions, of which only one is written to. The others pin the files that hold their last
/// entries.
fn plan(stores: u16, size: &Size) -> Plan<'static> {
    let flags: &[(&str, &str)] = match size.log {
        // The log keeps all data in memtables, however slowly they are flushed.
        "4mb" => &[("--raft-log-size", "4mb"), ("--rocksdb", "write_buffer_size=8mb")],
        "4gb" => &[("--raft-log-size", "4gb")],
        _ => &[],
    };
    // An emulated device that keeps gigabytes of unsynced data would not fit into RAM.
    let in_ram = size.stores > 1;
    Plan { stores, regions: 4, cluster_enabled: true, in_ram, flags, ..Plan::default() }
}

/// Writes once to keys of all regions.
fn write_cold(stores: &Stores) {
    let mut wire = Wire::open(stores.all[0].forward.expect("a cluster has forward ports"));
    (0..64).for_each(|key| wire.ok(&["SET", &format!("cold:{key}"), "cold"]));
}

fn assert_cold(stores: &Stores) {
    let mut wire = Wire::open(stores.all[0].forward.expect("a cluster has forward ports"));
    for key in 0..64 {
        assert_eq!(wire.text(&["GET", &format!("cold:{key}")]).as_deref(), Some("cold"));
    }
}

/// Starts a load on one slot and waits until it has written the requested bytes, and a random
/// number more.
fn write(stores: &Stores, size: &Size, round: u64, draw: &mut Draw) -> Load {
    let shape = Shape { value_bytes: size.value_bytes, ..Shape::WRITES };
    let load = Load::start(&stores.clients(), &format!("{{busy}}:{round}"), shape);
    let mut left = size.bytes / size.value_bytes as u64;
    while left > 0 {
        let some = left.min(200);
        load.await_more(some);
        left -= some;
    }
    pause(draw.below(700));
    load
}

fn clear(stores: &Stores, size: &Size, ledgers: &mut Vec<Ledger>) {
    if size.is_cleared {
        ledgers.clear();
        Wire::open(stores.all[0].forward.expect("a cluster has forward ports")).ok(&["FLUSHALL"]);
        write_cold(stores);
    }
}

/// Returns the bytes of the log's files. A file that is renamed meanwhile does not count.
fn log_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("log")).expect("a log").map(|entry| entry.expect("a file"));
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

fn kill_while_segments_are_overwritten(size: &Size) {
    let _place = crate::place();
    let mut stores = Stores::start(&plan(1, size));
    write_cold(&stores);
    let mut draw = Draw::new(14);
    let mut ledgers: Vec<Ledger> = Vec::new();
    for round in 0..size.kills {
        clear(&stores, size, &mut ledgers);
        let load = write(&stores, size, round, &mut draw);
        let rss = stores.all[0].peak_rss();
        stores.all[0].kill();
        let bytes = log_bytes(&stores.all[0].dir);
        let began = std::time::Instant::now();
        stores.all[0].restart();
        let seconds = began.elapsed().as_secs_f64();
        ledgers.push(load.finish());
        ledgers.iter().for_each(|ledger| ledger.check("kill -9"));
        assert_cold(&stores);
        say(&format!(
            "round {round}: peak RSS {} MiB, a log of {} MiB, ready after {seconds:.1} s ({:.0} MiB/s)",
            rss >> 20,
            bytes >> 20,
            (bytes >> 20) as f64 / seconds
        ));
        // The log holds the data that is written while rows are flushed. Each round writes that
        // amount again.
        if round + 1 == size.kills {
            assert!(bytes < size.bytes * size.kills / 2, "{bytes} bytes: hardly anything was overwritten");
        }
    }
}

fn lose_power_while_segments_are_overwritten(size: &Size) {
    let _place = crate::place();
    let mut stores = Stores::prepare(&plan(size.stores, size));
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    write_cold(&stores);
    let mut draw = Draw::new(15);
    let mut ledgers: Vec<Ledger> = Vec::new();
    for round in 0..size.losses_of_power {
        clear(&stores, size, &mut ledgers);
        let load = write(&stores, size, round, &mut draw);
        stores.kill_all();
        for disk in &disks {
            let survival = if round == 0 { Survival::Synced } else { Survival::Torn(draw.number()) };
            disk.lose_power(survival);
        }
        stores.all.iter_mut().for_each(|store| store.spawn());
        stores.await_ready();
        ledgers.push(load.finish());
        ledgers.iter().for_each(|ledger| ledger.check("power loss"));
        assert_cold(&stores);
    }
}

#[test]
fn a_store_whose_log_was_overwritten_starts_after_kill_9() {
    kill_while_segments_are_overwritten(&SMALL);
}

#[test]
fn three_stores_whose_logs_were_overwritten_start_after_a_loss_of_power() {
    lose_power_while_segments_are_overwritten(&SMALL);
}

/// Each of sixteen regions may keep a log's size for a follower that lags, but not all of them
/// together.
#[test]
fn a_store_that_is_away_costs_the_others_one_logs_size() {
    let _place = crate::place();
    let flags: &[(&str, &str)] = &[("--raft-log-size", "4mb")];
    let plan = Plan { stores: 3, regions: 16, cluster_enabled: true, in_ram: true, flags, ..Plan::default() };
    let mut stores = Stores::start(&plan);
    write_cold(&stores);
    stores.all[2].kill();
    let shape = Shape { value_bytes: 32 << 10, ..Shape::WRITES };
    let load = Load::start(&stores.clients()[..2], "away", shape);
    (0..(120 << 20) / (32 << 10) / 200).for_each(|_| load.await_more(200));
    let ledger = load.finish();
    let bytes = || [0, 1].map(|store: usize| log_bytes(&stores.all[store].dir) >> 20);
    say(&format!("logs of {:?} MiB after 120 MiB", bytes()));
    // While rows are flushed, a log holds the data written in the meantime. Afterwards it holds
    // only the data that the absent store needs.
    eventually("the logs become small", || {
        write_cold(&stores);
        bytes().iter().all(|mib| *mib <= 24).then_some(())
    });
    say(&format!("logs of {:?} MiB at rest", bytes()));
    stores.all[2].restart();
    stores.await_ready();
    ledger.check("a return after much was written");
    assert_cold(&stores);
}

#[test]
#[ignore = "gigabytes: make test-large"]
fn ten_kills_after_600_mb_each() {
    kill_while_segments_are_overwritten(&LARGE);
}

#[test]
#[ignore = "gigabytes: make test-large"]
fn five_losses_of_power_after_600_mb_each() {
    lose_power_while_segments_are_overwritten(&LARGE);
}

#[test]
#[ignore = "gigabytes: make test-large"]
fn twenty_kills_with_2_gb_of_log() {
    kill_while_segments_are_overwritten(&HUGE);
}

#[test]
#[ignore = "gigabytes: make test-large"]
fn twenty_losses_of_power_with_2_gb_of_log() {
    lose_power_while_segments_are_overwritten(&HUGE);
}
