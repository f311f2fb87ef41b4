//! Partitions between hosts.

use faults::network::Network;
use faults::workload::Workload;

use crate::stores::wire::Wire;
use crate::stores::{eventually, say};
use crate::{
    await_operations, judge, leader_of_any, load, pause, rounds, three, warm_up, Plan, Stores, REGION,
};

/// Creates a network. Prints a message and returns `None` if namespaces cannot be created.
pub fn network(test: &str, hosts: usize) -> Option<Network> {
    Network::new(hosts).map_err(|why| say(&format!("SKIPPED {test}: {why}"))).ok()
}

/// Duration in milliseconds that exceeds a lease and an election together.
const LONG_MS: u64 = 2000;

#[test]
fn an_isolated_old_leader_serves_no_read_once_another_has_written() {
    let _place = crate::place();
    let Some(mut network) = network("an isolated leader", 3) else { return };
    let flags = &[("--request-timeout", "300")];
    let mut stores = Stores::start(&Plan { network: Some(&network), flags, ..three() });
    for round in 0..rounds(1) {
        let leader = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
        let key = format!("isolated:{round}");
        let mut at_old = Wire::open(stores.all[leader].client);
        at_old.ok(&["SET", &key, "old"]);
        assert_eq!(at_old.text(&["GET", &key]).as_deref(), Some("old"), "in RAM, under a fresh lease");

        network.part(&[&others]);
        // Clients still reach the old leader. It answers reads only until its lease ends.
        let new = leader_of_any(&stores, &others);
        Wire::open(stores.all[new].client).ok(&["SET", &key, "new"]);
        for _ in 0..4 {
            match at_old.call(&["GET", &key]) {
                resp::Reply::Error(text) => assert!(text.starts_with("CLUSTERDOWN "), "{text}"),
                reply => panic!("the deposed leader answers {reply:?}"),
            }
            let error = at_old.error(&["SET", &key, "older"]);
            assert!(error.starts_with("CLUSTERDOWN ") || error.starts_with("UNKNOWN "), "{error}");
        }
        network.heal();
        stores.await_ready();
        eventually("the old leader follows", || (at_old.text_if_any(&["GET", &key])? == "new").then_some(()));
    }
}

/// Repeats a partition under load. Each lasts some seconds, followed by an equal time to recover.
fn partitions(name: &str, hosts: usize, steps: u64, mut cut: impl FnMut(&mut Network, &Stores, u64)) {
    let _place = crate::place();
    let Some(mut network) = network(name, hosts) else { return };
    let plan = Plan { stores: hosts as u16, network: Some(&network), ..three() };
    let stores = Stores::start(&plan);
    let load: Workload = load(&stores, name);
    for step in 0..steps {
        warm_up(&load);
        cut(&mut network, &stores, step);
        pause(LONG_MS);
        network.heal();
        await_operations(&load, 500);
    }
    judge(load.finish());
    drop(stores);
}

#[test]
fn histories_stay_linearizable_while_the_leader_is_cut_off() {
    partitions("symmetric", 3, rounds(1), |network, stores, _| {
        let leader = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
        network.part(&[&others, &[leader]]);
    });
}

#[test]
fn histories_stay_linearizable_when_the_leader_hears_all_and_reaches_none_and_the_other_way_round() {
    partitions("one-way", 3, rounds(2), |network, stores, step| {
        let leader = stores.leader(REGION);
        for other in (0..3).filter(|&store| store != leader) {
            match step % 2 {
                0 => network.cut(leader, other),
                _ => network.cut(other, leader),
            }
        }
    });
}

#[test]
fn histories_stay_linearizable_while_two_of_three_do_not_reach_each_other() {
    // The third store reaches both. Without pre-vote the two would repeatedly depose it and each
    // other.
    partitions("partial", 3, rounds(2), |network, stores, step| {
        let leader = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|&store| store != leader).collect();
        let pair = if step % 2 == 0 { [leader, others[0]] } else { [others[0], others[1]] };
        network.cut(pair[0], pair[1]);
        network.cut(pair[1], pair[0]);
    });
}

#[test]
fn histories_stay_linearizable_while_five_reach_only_their_neighbours() {
    partitions("ring", 5, rounds(1), |network, _, _| network.ring());
}
