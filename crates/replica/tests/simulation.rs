//! Hundreds of clusters in bad weather, each from one seed.

mod cluster;

use cluster::{Cluster, Tally, Weather, MILLISECOND};

const STORM: Weather = Weather {
    lost_percent: 4,
    doubled_percent: 4,
    slow_percent: 3,
    faults_per_thousand: 25,
    changes_per_thousand: 0,
    merges_per_thousand: 0,
};

fn storm(seed: u64, stores: u64, traced: bool) -> Cluster {
    let mut cluster = Cluster::new(seed, stores, 2);
    cluster.trace = traced.then_some(0xcbf2_9ce4_8422_2325);
    cluster.weather = STORM;
    ride_out(cluster)
}

/// Three stores of five begin with peers; peers come and go, and regions are cut.
fn upheaval(seed: u64) -> Cluster {
    let mut cluster = Cluster::with_spares(seed, 3, 2, 2);
    cluster.weather = Weather { changes_per_thousand: 60, ..STORM };
    ride_out(cluster)
}

/// Regions are cut, and merge again with their neighbours, while peers come and go.
fn merger(seed: u64) -> Cluster {
    let mut cluster = Cluster::with_spares(seed, 3, 1, 2);
    cluster.weather = Weather { changes_per_thousand: 50, merges_per_thousand: 150, ..STORM };
    ride_out(cluster)
}

fn ride_out(mut cluster: Cluster) -> Cluster {
    for round in 0..600 {
        // Now and then nothing happens for long enough that regions go to sleep.
        let most = if cluster.rng.chance(2) { 6000 } else { 60 };
        let pause = cluster.rng.below(most) * MILLISECOND;
        cluster.run_for(pause);
        cluster.whim();
        if round % 20 == 0 {
            cluster.check_logs();
        }
    }
    cluster.settle();
    cluster
}

fn storms(seeds: std::ops::Range<u64>, stores: u64) -> Tally {
    all(seeds, &format!("{stores} stores"), |seed| storm(seed, stores, false))
}

fn all(
    seeds: std::ops::Range<u64>,
    what: &str,
    run: impl Fn(u64) -> Cluster + std::panic::RefUnwindSafe,
) -> Tally {
    let mut sum = Tally::default();
    for seed in seeds {
        let tally = std::panic::catch_unwind(|| run(seed).tally);
        let tally = tally.unwrap_or_else(|_| panic!("{what}, seed {seed}"));
        sum.acknowledged += tally.acknowledged;
        sum.refused += tally.refused;
        sum.lost += tally.lost;
        sum.reads += tally.reads;
        sum.leases += tally.leases;
        sum.lease_reads += tally.lease_reads;
        sum.truncations += tally.truncations;
        sum.transfers += tally.transfers;
        sum.aborted += tally.aborted;
        sum.crashes += tally.crashes;
        sum.leaders += tally.leaders;
        sum.snapshots += tally.snapshots;
        sum.changes += tally.changes;
        sum.splits += tally.splits;
        sum.joints += tally.joints;
        sum.destroyed += tally.destroyed;
        sum.seals += tally.seals;
        sum.rollbacks += tally.rollbacks;
        sum.merges += tally.merges;
        sum.slept += tally.slept;
    }
    println!("{what}: {sum:?}");
    sum
}

#[test]
fn three_stores_keep_every_promise_in_any_weather() {
    let sum = storms(0..200, 3);
    // The weather was bad and the work was done: nothing above holds for want of trying.
    for (what, count) in [
        ("acknowledged", sum.acknowledged),
        ("refused", sum.refused),
        ("lost", sum.lost),
        ("reads", sum.reads),
        ("leases", sum.leases),
        ("lease reads", sum.lease_reads),
        ("truncations", sum.truncations),
        ("transfers", sum.transfers),
        ("aborted transfers", sum.aborted),
        ("crashes", sum.crashes),
        ("ticks slept through", sum.slept),
    ] {
        assert!(count >= 20, "{what}: {count}");
    }
}

#[test]
fn peers_come_and_go_and_regions_are_cut_in_any_weather() {
    let seeds = std::env::var("STEELYARD_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let sum = all(3000..3000 + seeds, "upheaval", upheaval);
    for (what, count) in [
        ("acknowledged", sum.acknowledged),
        ("snapshots", sum.snapshots),
        ("changes", sum.changes),
        ("splits", sum.splits),
        ("joint configurations", sum.joints),
        ("peers destroyed", sum.destroyed),
    ] {
        assert!(count >= 100, "{what}: {count}");
    }
}

#[test]
fn regions_merge_and_merges_are_taken_back_in_any_weather() {
    let seeds = std::env::var("STEELYARD_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let sum = all(5000..5000 + seeds, "merger", merger);
    for (what, count) in [
        ("acknowledged", sum.acknowledged),
        ("splits", sum.splits),
        ("sealed regions", sum.seals),
        ("merges taken back", sum.rollbacks),
        ("merges", sum.merges),
        ("snapshots", sum.snapshots),
        ("crashes", sum.crashes),
    ] {
        assert!(count >= 50, "{what}: {count}");
    }
}

#[test]
fn five_stores_keep_every_promise_in_any_weather() {
    assert!(storms(1000..1040, 5).acknowledged > 0);
}

#[test]
fn one_store_keeps_every_promise_in_any_weather() {
    assert!(storms(2000..2040, 1).acknowledged > 0);
}

#[test]
fn the_same_seed_gives_the_same_actions() {
    let traces: Vec<_> = (0..2).map(|_| storm(7, 3, true).trace).collect();
    assert_eq!(traces[0], traces[1]);
    assert_ne!(traces[0], storm(8, 3, true).trace);
}
