//! One test per promise of a merge, each over a cluster in good weather.

mod cluster;

use cluster::{Cluster, MILLISECOND};
use steelyard_replica::{Input, RegionStatus};
use types::{RegionChange, RegionDescriptor, RegionId, SlotRange, StoreId};

const SOURCE: RegionId = 1;
const TARGET: RegionId = 2;
const SECOND: u64 = 1000 * MILLISECOND;

/// Three stores, and two regions that are neighbours and have taken commands.
fn neighbours() -> Cluster {
    let mut cluster = Cluster::sleepless(11, 3, 2);
    cluster.run_for(10 * SECOND);
    for region in [SOURCE, TARGET] {
        write(&mut cluster, region, 3);
    }
    cluster
}

fn write(cluster: &mut Cluster, region: RegionId, times: usize) {
    for _ in 0..times {
        let before = cluster.tally.acknowledged;
        let leader = cluster.leader(region).expect("it is led");
        cluster.propose(leader, region);
        cluster.turn(leader);
        cluster.run_for(SECOND);
        assert!(cluster.tally.acknowledged > before, "a write to {region} was not done");
    }
}

fn order(cluster: &mut Cluster, region: RegionId, change: RegionChange) {
    let leader = cluster.leader(region).expect("it is led");
    cluster.change(leader, region, change);
    cluster.turn(leader);
    cluster.run_for(SECOND);
}

fn status(cluster: &Cluster, region: RegionId) -> RegionStatus {
    let leader = cluster.leader(region).expect("it is led");
    cluster.stores[leader as usize].worker.as_ref().unwrap().status(region, 0).unwrap()
}

fn sealed(cluster: &mut Cluster) -> RegionDescriptor {
    order(cluster, SOURCE, RegionChange::PrepareMerge { into: TARGET });
    let status = status(cluster, SOURCE);
    let sealed_at = status.descriptor.merging.expect("it is sealed").sealed_at;
    assert!(status.peers.values().all(|peer| peer.matched >= sealed_at), "all peers hold its log");
    status.descriptor
}

fn commit(cluster: &mut Cluster, source: RegionDescriptor) {
    let source_index = source.merging.expect("it is sealed").sealed_at;
    let change = RegionChange::CommitMerge { source: Box::new(source), source_index };
    order(cluster, TARGET, change);
}

fn has_merged(cluster: &Cluster, store: StoreId) -> bool {
    let engines = &cluster.stores[store as usize].engines;
    let slots = engines.get(&TARGET).and_then(|engine| engine.descriptor.slots);
    slots == Some(SlotRange { first: 1000, last: 2999 }) && !engines.contains_key(&SOURCE)
}

#[test]
fn a_sealed_region_takes_nothing_until_the_merge_is_taken_back() {
    let mut cluster = neighbours();
    let leader = cluster.leader(SOURCE).unwrap();
    cluster.input(leader, Input::WantLease { region: SOURCE });
    cluster.turn(leader);
    cluster.run_for(SECOND);
    assert!(cluster.stores[leader as usize].leases.contains_key(&SOURCE), "there is a lease to lose");
    let before = sealed(&mut cluster);
    assert!(!cluster.stores[leader as usize].leases.contains_key(&SOURCE), "a lease on a sealed region");
    let (refused, acknowledged, reads) =
        (cluster.tally.refused, cluster.tally.acknowledged, cluster.tally.reads);
    cluster.propose(leader, SOURCE);
    cluster.read(leader, SOURCE);
    cluster.input(leader, Input::WantLease { region: SOURCE });
    cluster.change(leader, SOURCE, RegionChange::Split { at: 1500, new_region: 9 });
    cluster.turn(leader);
    cluster.run_for(5 * SECOND);
    assert_eq!(cluster.tally.refused, refused + 3);
    assert_eq!((cluster.tally.acknowledged, cluster.tally.reads), (acknowledged, reads));
    assert!(!cluster.stores[leader as usize].leases.contains_key(&SOURCE), "a lease on a sealed region");
    order(&mut cluster, SOURCE, RegionChange::RollbackMerge);
    write(&mut cluster, SOURCE, 1);
    // Whoever was told of the seal too late is not believed.
    commit_is_refused(&mut cluster, RegionDescriptor { merging: None, ..before });
    cluster.settle();
}

fn commit_is_refused(cluster: &mut Cluster, source: RegionDescriptor) {
    let refused = cluster.tally.refused;
    order(cluster, TARGET, RegionChange::CommitMerge { source: Box::new(source), source_index: 0 });
    assert_eq!(cluster.tally.refused, refused + 1);
    assert!(!has_merged(cluster, 0));
}

#[test]
fn a_seal_outlives_its_leader_and_the_memory_of_all_stores() {
    let mut cluster = neighbours();
    sealed(&mut cluster);
    for store in 0..3 {
        cluster.crash(store);
    }
    for store in 0..3 {
        cluster.restart(store);
    }
    cluster.run_for(20 * SECOND);
    let refused = cluster.tally.refused;
    let leader = cluster.leader(SOURCE).expect("a sealed region is led");
    cluster.propose(leader, SOURCE);
    cluster.turn(leader);
    cluster.run_for(SECOND);
    assert_eq!(cluster.tally.refused, refused + 1);
    let source = status(&cluster, SOURCE).descriptor;
    commit(&mut cluster, source);
    assert!((0..3).all(|store| has_merged(&cluster, store)));
    write(&mut cluster, TARGET, 1);
    cluster.settle();
}

#[test]
fn a_store_that_was_away_finishes_the_source_from_its_own_log() {
    let mut cluster = neighbours();
    let source = sealed(&mut cluster);
    // What it has not flushed, it has in its log alone; the others forget the source while it is away.
    let away = (cluster.leader(TARGET).unwrap() + 1) % 3;
    cluster.crash(away);
    commit(&mut cluster, source);
    cluster.run_for(10 * SECOND);
    for store in (0..3).filter(|&store| store != away) {
        assert!(has_merged(&cluster, store), "store {store}");
        cluster.flush(store);
    }
    cluster.run_for(5 * SECOND);
    cluster.restart(away);
    cluster.run_for(10 * SECOND);
    assert!(has_merged(&cluster, away));
    assert_eq!(cluster.tally.snapshots, 0, "its log was enough");
    cluster.settle();
}

#[test]
fn a_snapshot_of_the_target_takes_the_place_of_the_source() {
    let mut cluster = neighbours();
    let source = sealed(&mut cluster);
    let away = (cluster.leader(TARGET).unwrap() + 1) % 3;
    cluster.crash(away);
    commit(&mut cluster, source);
    // So much that the log does not go back to the merge any more.
    for _ in 0..12 {
        write(&mut cluster, TARGET, 8);
        (0..3).filter(|&store| store != away).for_each(|store| cluster.flush(store));
        cluster.run_for(4 * SECOND);
    }
    cluster.restart(away);
    cluster.run_for(30 * SECOND);
    assert!(cluster.tally.snapshots > 0, "the log was enough: nothing is shown");
    assert!(has_merged(&cluster, away));
    cluster.settle();
}
