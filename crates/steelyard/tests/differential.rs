//! Sends the same random commands to `redis-server` and to Steelyard. Every answer must be the
//! same, except for the differences that `known` lists and docs/COMPATIBILITY.md describes.
//!
//! `STEELYARD_SEEDS=100..200` sets the seeds, and `STEELYARD_COMMANDS=20000` the number of commands
//! per seed.

#[path = "differential/chance.rs"]
mod chance;
#[path = "differential/compare.rs"]
mod compare;
#[allow(dead_code, reason = "the protocol tests use it, too")]
#[path = "differential/connection.rs"]
mod connection;
#[path = "differential/events.rs"]
mod events;
#[path = "differential/generator/mod.rs"]
mod generator;
#[path = "differential/golden.rs"]
mod golden;
#[path = "differential/known.rs"]
mod known;
#[path = "differential/large.rs"]
mod large;
#[path = "differential/moving.rs"]
mod moving;
#[path = "differential/output_limits.rs"]
mod output_limits;
#[path = "../../command/tests/golden/render.rs"]
mod render;
#[path = "differential/scripts.rs"]
mod scripts;
#[path = "differential/servers.rs"]
mod servers;
#[path = "differential/session.rs"]
mod session;
mod stores;
#[path = "differential/thresholds.rs"]
mod thresholds;
#[path = "differential/transactions.rs"]
mod transactions;
#[path = "differential/waits.rs"]
mod waits;

use std::ops::Range;

use scripts::Scripts;
use session::Session;
use stores::churn::while_the_layout_changes;
use stores::{Plan, Stores};
use transactions::Transactions;
use waits::Waits;

const SEEDS: Range<u64> = 1..9;
const COMMANDS: usize = 2500;
/// Maximum number of mismatches. After that many, the remaining seeds are skipped.
const MISMATCHES_MAX: usize = 5;

#[test]
fn clients_that_do_not_read_their_replies_end_at_their_limit_as_in_redis() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    output_limits::check("redis", redis.address);
    output_limits::check("steelyard", steelyard.address);
}

#[test]
fn random_commands_are_answered_as_redis_answers_them() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    let mut mismatches = Vec::new();
    for seed in seeds() {
        let outcome = Session::new(seed, steelyard.address, redis.address).run(commands());
        mismatches.extend(outcome.err());
        if mismatches.len() >= MISMATCHES_MAX {
            break;
        }
    }
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
}

#[test]
fn places_and_sorted_elements_are_answered_as_redis_answers_them() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    for seed in seeds() {
        if let Err(mismatch) = Session::of_places(seed, steelyard.address, redis.address).run(commands()) {
            panic!("{mismatch}");
        }
    }
}

#[test]
fn random_commands_on_streams_are_answered_as_redis_answers_them() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    let mut mismatches = Vec::new();
    for seed in seeds() {
        let outcome = Session::of_streams(seed, steelyard.address, redis.address).run(commands());
        mismatches.extend(outcome.err());
        if mismatches.len() >= MISMATCHES_MAX {
            break;
        }
    }
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
}

#[test]
fn random_transactions_are_answered_as_redis_answers_them() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    let mut mismatches = Vec::new();
    let mut tally = transactions::Tally::default();
    for seed in seeds() {
        let mut transactions = Transactions::new(seed, steelyard.address, redis.address);
        mismatches.extend(transactions.run(commands()).err());
        tally.add(&transactions.tally);
        if mismatches.len() >= MISMATCHES_MAX {
            break;
        }
    }
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
    assert!(tally.executed > 100 && tally.stopped > 50 && tally.aborted > 50, "{tally:?}");
}

#[test]
fn collections_around_thresholds_have_the_encodings_that_redis_gives_them() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    thresholds::check_defaults(&steelyard, &redis);
    let mut compared = std::collections::BTreeMap::new();
    for seed in seeds() {
        let mut program = thresholds::Program::new(seed, &steelyard, &redis);
        program.run(commands() / 16);
        program.compared.into_iter().for_each(|encoding| *compared.entry(encoding).or_insert(0) += 1);
    }
    for encoding in ["listpack", "hashtable", "intset", "skiplist", "quicklist"] {
        assert!(compared.get(encoding).is_some_and(|count| *count > 20), "{compared:?}");
    }
}

#[test]
fn scripts_are_answered_as_redis_answers_them() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    let mut mismatches = Vec::new();
    let mut compared = 0;
    for resp3 in [false, true] {
        let mut scripts = Scripts::new(steelyard.address, redis.address, resp3);
        mismatches.extend(scripts.run_corpus().err());
        for seed in seeds() {
            mismatches.extend(scripts.run_commands(seed, commands() / 4).err());
        }
        compared += scripts.compared;
    }
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
    assert!(compared > 1000, "{compared}");
}

#[test]
fn clients_that_wait_are_served_as_redis_serves_them() {
    let Some(redis) = servers::redis(&[]) else { return };
    let steelyard = servers::steelyard(&[]);
    let mut served = 0;
    for seed in seeds() {
        let mut waits = Waits::new(seed, steelyard.address, redis.address);
        if let Err(mismatch) = waits.run(commands() / 16) {
            panic!("{mismatch}");
        }
        served += waits.served;
    }
    assert!(served > 100, "{served}");
}

/// One of three stores leads, and the others forward commands to it. Clients must see no
/// difference.
#[test]
fn every_store_of_three_answers_as_redis_does() {
    let Some(redis) = servers::redis(&[]) else { return };
    let stores = Stores::start(&Plan { stores: 3, flags: &[("--fsync", "no")], ..Plan::default() });
    await_newest_commands(&stores);
    let mut mismatches = Vec::new();
    for (seed, store) in (1001..).zip(&stores.all) {
        let outcome = Session::new(seed, store.client, redis.address).run(COMMANDS / 2);
        mismatches.extend(outcome.err());
    }
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
}

/// The layout of the regions changes all the time. Clients must see no difference.
#[test]
fn stores_answer_as_redis_does_while_leaders_move_and_regions_split_and_merge() {
    let Some(redis) = servers::redis(&["--cluster-enabled", "yes"]) else { return };
    moving::own_all_slots(&redis);
    let plan =
        Plan { stores: 3, regions: 2, cluster_enabled: true, flags: &[("--fsync", "no")], ..Plan::default() };
    let mut stores = Stores::start(&plan);
    await_newest_commands(&stores);
    let mut mismatches = Vec::new();
    let mut tally = moving::Tally::default();
    while_the_layout_changes("differential", &["move-leader", "split", "merge"], &mut stores, |stores| {
        for seed in seeds() {
            let turns = commands() / 16;
            mismatches.extend(moving::run_programs(seed, stores, redis.address, turns, &mut tally).err());
            if mismatches.len() >= MISMATCHES_MAX {
                break;
            }
        }
    });
    assert!(mismatches.is_empty(), "\n{}", mismatches.join("\n"));
    let transactions = &tally.transactions;
    let has_transactions = transactions.executed > 50 && transactions.stopped > 10;
    assert!(has_transactions && tally.served > 50 && tally.copied > 5 && tally.removed > 5, "{tally:?}");
}

/// Waits until every store knows the commands of the newest version.
fn await_newest_commands(stores: &Stores) {
    for store in &stores.all {
        stores::eventually("the store knows the commands of the newest version", || {
            let mut connection = connection::Connection::open(store.forward.unwrap_or(store.client)).ok()?;
            connection.call(&["SCARD", "s"]).ok().filter(|reply| !reply.is_error())
        });
    }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("STEELYARD_SEEDS") else { return SEEDS };
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.expect("STEELYARD_SEEDS is a range like 100..200")
}

fn commands() -> usize {
    let text = std::env::var("STEELYARD_COMMANDS").ok();
    text.map_or(COMMANDS, |text| text.parse().expect("STEELYARD_COMMANDS is a number"))
}
