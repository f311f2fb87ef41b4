//! Three stores under load for a long time, with a fault every ten seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::admin::{PeerRow, RegionRow};
use device::{Hang, Survival};
use faults::chance::Chance;
use faults::workload::Shape;

use crate::disk::{under_all, Disk};
use crate::stores::{ctl, eventually, say, Plan};
use crate::{await_operations, judge, load_on, log_damage, pause, three, Stores};

const REGIONS: u16 = 4;
const MAXMEMORY: &str = "256mb";
/// Maximum peak memory of a store, in bytes: 125% of `maxmemory`.
const PEAK_RSS_MAX: u64 = 320 << 20;
/// Time from the end of a fault to the next one.
const REST: Duration = Duration::from_secs(10);
/// Minimum size of a row file that is damaged, in bytes. A smaller one may hold only the rows that
/// a store needs to start.
const TABLE_BYTES_MIN: u64 = 1 << 20;
const HOUR_NS: i64 = 3_600_000_000_000;

type Fault = fn(&mut Stores, &[Disk], usize, u64);

const FAULTS: &[(&str, Fault)] = &[
    ("killed", |stores, _, victim, _| {
        stores.all[victim].kill();
        pause(1000);
        stores.all[victim].restart();
    }),
    ("stood still", |stores, _, victim, _| {
        stores.all[victim].signal("-STOP");
        pause(2500);
        stores.all[victim].signal("-CONT");
    }),
    ("stopped by plan", |stores, _, victim, _| {
        assert!(stores.all[victim].terminate().success(), "a planned stop");
        stores.all[victim].restart();
    }),
    ("lost power", |stores, disks, victim, seed| {
        stores.all[victim].kill();
        disks[victim].lose_power(Survival::Torn(seed));
        stores.all[victim].restart();
    }),
    ("all lost power", |stores, disks, _, seed| {
        stores.kill_all();
        disks.iter().zip(seed..).for_each(|(disk, seed)| disk.lose_power(Survival::Torn(seed)));
        stores.all.iter_mut().for_each(|store| store.spawn());
        stores.await_ready();
    }),
    ("device hung", |_, disks, victim, _| {
        disks[victim].control.set_hang(Hang::Everything);
        pause(5000);
        disks[victim].control.set_hang(Hang::Nothing);
    }),
    ("device slow", |_, disks, victim, _| {
        let slow = "write=20MB/s,read=50MB/s,sync=20ms,read-latency=2ms".parse().expect("a profile");
        let before = disks[victim].control.profile();
        disks[victim].control.set_profile(&slow);
        pause(5000);
        disks[victim].control.set_profile(&before);
    }),
    ("device full", |_, disks, victim, _| {
        disks[victim].leave_room(1 << 20);
        pause(5000);
        disks[victim].leave_all_room();
    }),
    ("clock an hour off", |_, disks, victim, seed| {
        let offset = if seed % 2 == 0 { HOUR_NS } else { -HOUR_NS };
        disks[victim].control.set_wall_offset(offset);
        pause(4000);
        disks[victim].control.set_wall_offset(0);
    }),
    ("leaders moved", |stores, _, victim, _| {
        for region in 1..=REGIONS {
            // A refusal is also an answer.
            let _ = ctl(stores, victim, &["move-leader", &region.to_string(), &victim.to_string()]);
        }
    }),
    ("log damaged", |stores, _, victim, seed| {
        stores.all[victim].kill();
        let region = 1 + seed % u64::from(REGIONS);
        let entries = log_damage::entries(&stores.all[victim], region);
        match entries.get(seed as usize % entries.len().max(1)) {
            Some(section) => log_damage::flip(section),
            None => say("         its log has no entries of the region: nothing is damaged"),
        }
        stores.all[victim].restart();
    }),
    ("rows damaged", |stores, _, victim, _| {
        stores.all[victim].kill();
        let damaged = stores.all[victim].damage_rows(TABLE_BYTES_MIN);
        stores.all[victim].restart();
        match damaged {
            // A check reads all rows.
            Some(_) => drop(ctl(stores, (victim + 1) % 3, &["check"])),
            None => say("         no row file is large enough yet: nothing is damaged"),
        }
    }),
];

/// Waits until the stores can take another fault: each serves, every peer takes part in consensus,
/// and all replicas are equal.
fn await_whole(stores: &Stores) {
    eventually("all stores serve", || stores.all.iter().all(|store| store.answers()).then_some(()));
    eventually("every peer takes part, and all replicas are equal", || {
        let rows = stores.any().regions()?;
        let is_whole = |row: &RegionRow| {
            let takes_part = |peer: &PeerRow| peer.role == "voter" && peer.quarantined.is_none();
            row.peers.len() == 3 && row.peers.iter().all(takes_part)
        };
        let are_clean =
            stores.all.iter().all(|store| store.admin().gauge("unclean_peers").is_ok_and(|peers| peers == 0));
        (rows.iter().all(is_whole) && are_clean && ctl(stores, 0, &["check"]).is_ok()).then_some(())
    });
}

#[test]
#[ignore = "takes STEELYARD_MINUTES, an hour by default"]
fn nothing_is_lost_or_stale_for_long_with_a_fault_every_ten_seconds() {
    let minutes: u64 = std::env::var("STEELYARD_MINUTES").map_or(60, |text| text.parse().expect("minutes"));
    let seed: u64 = std::env::var("STEELYARD_SEED").map_or(1, |text| text.parse().expect("a seed"));
    let flags =
        [("--maxmemory", MAXMEMORY), ("--rocksdb", "write_buffer_size=4mb"), ("--raft-log-size", "64mb")];
    let plan = Plan { regions: REGIONS, cluster_enabled: true, flags: &flags, ..three() };
    let mut stores = Stores::prepare(&plan);
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let shape = Shape { rest: Duration::from_millis(20), value_bytes: 1024, ..Shape::default() };
    let load = load_on(&stores.clients(), "endurance", shape);
    let mut chance = Chance::new(seed);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut peak = 0;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        await_operations(&load, 200);
        let (name, fault) = chance.pick(FAULTS);
        let (victim, drawn) = (chance.below(3) as usize, chance.draw());
        // Only its fault restarts a process, and its peak memory then starts again.
        peak = stores.all.iter().map(|store| store.peak_rss()).fold(peak, u64::max);
        say(&format!("{:>5} s: store {victim}: {name}", begun.elapsed().as_secs()));
        fault(&mut stores, &disks, victim, drawn);
        *counts.entry(name).or_default() += 1;
        for store in &mut stores.all {
            assert_eq!(store.ended(), None, "store {} ended by itself after: {name}", store.id);
        }
        await_whole(&stores);
        std::thread::sleep(REST);
    }
    peak = stores.all.iter().map(|store| store.peak_rss()).fold(peak, u64::max);
    say(&format!("endurance: {minutes} minutes from seed {seed}, {counts:?}; peak RSS {} MiB", peak >> 20));
    judge(load.finish());
    assert!(peak <= PEAK_RSS_MAX, "a store had {} MiB, its maxmemory is {MAXMEMORY}", peak >> 20);
}
