//! Regions that constantly split, merge, move and change leaders, with further faults at the same
//! time.

use faults::chance::Chance;
use faults::network::Network;

use crate::stores::churn::while_the_layout_changes;
use crate::stores::say;
use crate::{await_operations, judge, load, pause, rounds, three, warm_up, Plan, Stores};

const STORES: u16 = 5;

/// Five stores, and four regions with three peers each.
fn five<'a>() -> Plan<'a> {
    Plan { stores: STORES, regions: 4, cluster_enabled: true, ..three() }
}

/// The changes that must have been accepted. Otherwise the run has no meaning. A merge needs both
/// regions on the same stores, all of them up and no other change in flight. Under faults these
/// conditions may never be met.
const UNDER_FAULTS: &[&str] = &["move-leader", "move-peer", "split"];
const UNDISTURBED: &[&str] = &["move-leader", "move-peer", "split", "merge"];

#[test]
fn histories_stay_linearizable_while_the_layout_changes() {
    let _place = crate::place();
    let mut stores = Stores::start(&five());
    let load = load(&stores, "churn");
    warm_up(&load);
    while_the_layout_changes("churn", UNDISTURBED, &mut stores, |_| {
        for _ in 0..rounds(4) {
            await_operations(&load, 500);
            pause(1000);
        }
    });
    judge(load.finish());
}

#[test]
fn histories_stay_linearizable_while_the_layout_changes_and_stores_are_killed_and_stopped() {
    let _place = crate::place();
    let mut stores = Stores::start(&five());
    let load = load(&stores, "churn-kills");
    warm_up(&load);
    while_the_layout_changes("churn-kills", UNDER_FAULTS, &mut stores, |stores| {
        for round in 0..rounds(3) as usize {
            let victim = round % usize::from(STORES);
            pause(700);
            match round % 2 {
                0 => {
                    stores.all[victim].kill();
                    await_operations(&load, 300);
                    stores.all[victim].spawn();
                }
                _ => {
                    stores.all[victim].signal("-STOP");
                    pause(1800);
                    stores.all[victim].signal("-CONT");
                }
            }
            await_operations(&load, 300);
        }
    });
    judge(load.finish());
}

#[test]
fn histories_stay_linearizable_while_the_layout_changes_across_partitions() {
    let _place = crate::place();
    let mut network = match Network::new(STORES.into()) {
        Ok(network) => network,
        Err(why) => return say(&format!("SKIPPED partitions under changes of the layout: {why}")),
    };
    let mut stores = Stores::start(&Plan { network: Some(&network), ..five() });
    let load = load(&stores, "churn-partitions");
    warm_up(&load);
    while_the_layout_changes("churn-partitions", UNDER_FAULTS, &mut stores, |_| {
        let mut chance = Chance::new(7);
        for round in 0..rounds(3) {
            pause(700);
            let alone = chance.below(5) as usize;
            let others: Vec<usize> = (0..5).filter(|&store| store != alone).collect();
            match round % 3 {
                0 => network.part(&[&others, &[alone]]),
                1 => others.iter().for_each(|&other| network.cut(alone, other)),
                _ => network.part(&[&others[..2], &[alone, others[2], others[3]]]),
            }
            pause(2000);
            network.heal();
            await_operations(&load, 300);
        }
    });
    judge(load.finish());
}
