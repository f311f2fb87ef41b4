//! Chained replication with five copies.

use crate::stores::{eventually, say};
use crate::{await_operations, judge, load, pause, rounds, three, warm_up, Plan, Stores, REGION};

const COPIES: usize = 5;

/// The places in a chain. Each round kills the peer at the next one. The short run kills only the
/// second follower, which has followers before and behind it.
const PLACES: [&str; COPIES] =
    ["the second follower", "the first follower", "the third follower", "the last follower", "the leader"];

fn place_of(name: &str, leader: usize, chain: &[usize]) -> usize {
    match name {
        "the leader" => leader,
        "the first follower" => chain[0],
        "the second follower" => chain[1],
        "the third follower" => chain[2],
        _ => chain[3],
    }
}

/// Returns the stores that passed appends on within the last moment.
fn relaying(stores: &Stores) -> Vec<usize> {
    let count = || -> Vec<u64> { stores.all.iter().map(|store| store.count("relayed_appends")).collect() };
    let before = count();
    // The counters are published every tenth of a second.
    pause(400);
    let after = count();
    (0..COPIES).filter(|&store| after[store] > before[store]).collect()
}

/// Begins a chain at a moment without writes. Then it has all followers, ordered by their stores.
fn begin_chain(stores: &Stores) -> (usize, Vec<usize>) {
    stores.replicate("direct");
    stores.await_no_lag(REGION);
    stores.replicate("chained");
    let leader = stores.leader(REGION);
    (leader, (0..COPIES).filter(|&store| store != leader).collect())
}

#[test]
fn each_place_of_a_chain_of_five_is_killed_without_a_loss() {
    let _place = crate::place();
    let flags = &[("--replicas", "5")];
    let mut stores = Stores::start(&Plan { stores: COPIES as u16, flags, ..three() });
    stores.await_no_lag(REGION);
    for round in 0..rounds(1) {
        let place = PLACES[round as usize % COPIES];
        let (leader, chain) = begin_chain(&stores);
        let load = load(&stores, &format!("chain-{round}"));
        eventually("all but the last follower pass on", || (relaying(&stores) == chain[..3]).then_some(()));
        let fallbacks = stores.all[leader].count("chain_fallbacks");
        let victim = place_of(place, leader, &chain);
        warm_up(&load);
        stores.all[victim].kill();
        await_operations(&load, 500);
        if victim != leader {
            eventually("the leader sends directly", || {
                (stores.all[leader].count("chain_fallbacks") > fallbacks).then_some(())
            });
        }
        stores.all[victim].restart();
        // Three of four followers pass on again, whichever store leads now.
        eventually("the chain has all followers again", || {
            let relaying = relaying(&stores);
            (relaying.len() == 3).then_some(())
        });
        warm_up(&load);
        say(&format!("chain-{round}: {place} was killed"));
        judge(load.finish());
        stores.await_no_lag(REGION);
    }
}
