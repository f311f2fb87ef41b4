//! Faults on real processes. Clients record their operations, and every history must be
//! linearizable, even if stores are killed, stopped or cut off, devices fill up or lose power, or
//! files are damaged.
//!
//! `STEELYARD_FAULT_ROUNDS=20` selects the long run: that many rounds of each fault, and every byte
//! of a tail. `STEELYARD_HISTORIES=DIR` writes all histories to that directory for another checker.

mod chains;
mod churn;
mod clocks;
mod disk;
mod disks;
mod endurance;
mod failover;
mod hangs;
mod identity;
mod large_values;
mod log_damage;
mod partitions;
mod power;
mod recycling;
#[path = "../stores/mod.rs"]
mod stores;
mod tails;
mod unsynced;
mod zookeeper;

use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use faults::workload::{Recording, Shape, Workload};

use stores::{Plan, Store, Stores};

/// The region that holds all slots if there is only one.
const REGION: u64 = 1;

/// Minimum number of operations per second. A run with fewer has no meaning. A serving cluster does
/// thousands, and one without a leader for half of the time still does several times this number.
const LEAST_PER_SECOND: f64 = 50.0;

/// Returns the number of rounds of a fault: `short`, or the number for the long run.
fn rounds(short: u64) -> u64 {
    match std::env::var("STEELYARD_FAULT_ROUNDS") {
        Ok(text) => text.parse().expect("a number of rounds"),
        Err(_) => short,
    }
}

fn is_long_run() -> bool {
    std::env::var_os("STEELYARD_FAULT_ROUNDS").is_some()
}

/// Maximum number of tests that run at the same time. Most of a test's time is spent waiting.
const PLACES: u32 = 2;

static TAKEN: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

/// The permission to run. A test holds it while it runs.
struct Place;

fn place() -> Place {
    let (taken, left) = &TAKEN;
    let taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = left.wait_while(taken, |taken| *taken == PLACES);
    *taken.unwrap_or_else(PoisonError::into_inner) += 1;
    Place
}

impl Drop for Place {
    fn drop(&mut self) {
        let (taken, left) = &TAKEN;
        *taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        left.notify_one();
    }
}

/// Three stores in RAM with one region.
fn three() -> Plan<'static> {
    Plan { stores: 3, in_ram: true, ..Plan::default() }
}

fn load(stores: &Stores, name: &str) -> Workload {
    load_on(&stores.clients(), name, Shape::default())
}

fn load_on(clients: &[SocketAddr], name: &str, shape: Shape) -> Workload {
    Workload::start(clients, name, shape, 0x5eed)
}

/// Waits until there are enough operations that every kind of object is in use.
fn warm_up(load: &Workload) {
    await_operations(load, 500);
}

/// Waits until `more` operations were answered. Fails if that takes too long.
fn await_operations(load: &Workload, more: u64) {
    assert!(load.await_more(more, stores::PATIENCE), "not {more} operations in {:?}", stores::PATIENCE);
}

/// Reads all data back and fails unless the history explains it.
fn judge(recording: Recording) {
    recording.judge().expect(LEAST_PER_SECOND);
}

/// Returns the row of one store in another store's `ctl stores`.
fn row(asked: &Store, of: usize) -> Option<serde_json::Value> {
    let rows = asked.host().ctl(&["stores"]).ok()?;
    rows.as_array()?.iter().find(|row| row["id"] == of as u64).cloned()
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Has the leader transfer its leadership to `to`. Returns once it has accepted, or once `to`
/// leads.
fn move_leader(stores: &Stores, to: usize) {
    let words = ["move-leader", &REGION.to_string(), &to.to_string()];
    stores::eventually("a transfer is accepted", || {
        let leader = stores.leader(REGION);
        (leader == to || stores.all[leader].host().ctl(&words).is_ok()).then_some(())
    });
}

/// Waits until one of the `asked` stores believes that one of them leads the region, and returns
/// the leader.
fn leader_of_any(stores: &Stores, asked: &[usize]) -> usize {
    stores::eventually("a leader among some stores", || {
        let leader = asked.iter().find_map(|&i| stores.all[i].leader_of(REGION))? as usize;
        asked.contains(&leader).then_some(leader)
    })
}
