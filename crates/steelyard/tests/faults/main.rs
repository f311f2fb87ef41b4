//! Faults on real processes, under clients that record what they see: every history must be linearizable,
//! whatever was killed, stopped, cut off, filled up, damaged or robbed of its power meanwhile.
//!
//! `STEELYARD_FAULT_ROUNDS=20` makes the long run: so many rounds of each fault, and every byte of a tail.
//! With `STEELYARD_HISTORIES=DIR` all histories are written there, to be judged by another checker.

mod churn;
mod clocks;
mod disk;
mod disks;
mod failover;
mod identity;
mod partitions;
mod power;
mod recycling;
#[path = "../stores/mod.rs"]
mod stores;
mod tails;
mod unsynced;

use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use faults::workload::{Recording, Shape, Workload};

use stores::{Plan, Store, Stores};

/// The region that holds everything where there is one.
const REGION: u64 = 1;

/// Below this a run means nothing. A cluster that serves does thousands, one that is without a leader half of
/// the time still a multiple of this.
const LEAST_PER_SECOND: f64 = 50.0;

/// How often each fault comes: `short` in the short run.
fn rounds(short: u64) -> u64 {
    match std::env::var("STEELYARD_FAULT_ROUNDS") {
        Ok(text) => text.parse().expect("a number of rounds"),
        Err(_) => short,
    }
}

fn is_long_run() -> bool {
    std::env::var_os("STEELYARD_FAULT_ROUNDS").is_some()
}

/// Tests that may run at a time: most of each is waiting, for elections and for clients.
const PLACES: u32 = 2;

static TAKEN: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

/// Held by a test while it runs.
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

/// Three stores in RAM that share one region.
fn three() -> Plan<'static> {
    Plan { stores: 3, in_ram: true, ..Plan::default() }
}

fn load(stores: &Stores, name: &str) -> Workload {
    load_on(&stores.clients(), name, Shape::default())
}

fn load_on(clients: &[SocketAddr], name: &str, shape: Shape) -> Workload {
    Workload::start(clients, name, shape, 0x5eed)
}

/// Enough operations that every kind of object is in use.
fn warm_up(load: &Workload) {
    await_operations(load, 500);
}

/// Waits until so many more operations were answered, which they must be.
fn await_operations(load: &Workload, more: u64) {
    assert!(load.await_more(more, stores::PATIENCE), "not {more} operations in {:?}", stores::PATIENCE);
}

/// Reads everything back and fails unless all of it is explained.
fn judge(recording: Recording) {
    recording.judge().expect(LEAST_PER_SECOND);
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Asks for the region's leadership to move until it is taken up.
fn move_leader(asked: &Store, to: usize) {
    let words = ["move-leader", &REGION.to_string(), &to.to_string()];
    stores::eventually("a transfer is taken up", || asked.host().ctl(&words).ok().map(drop));
}

/// Who of `asked` believes to be led by one of them, once any does.
fn leader_of_any(stores: &Stores, asked: &[usize]) -> usize {
    stores::eventually("a leader among some stores", || {
        let leader = asked.iter().find_map(|&i| stores.all[i].leader_of(REGION))? as usize;
        asked.contains(&leader).then_some(leader)
    })
}
