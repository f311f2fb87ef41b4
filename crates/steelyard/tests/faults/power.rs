//! The power of all machines goes at once.

use device::Survival;

use crate::disk::under_all;
use faults::workload::Shape;

use crate::stores::alone;
use crate::{await_operations, judge, load_on, rounds, three, warm_up, Plan, Stores};

fn lose_power_again_and_again(name: &str, plan: &Plan, shape: Shape, rounds: u64) {
    let _alone = alone();
    let mut stores = Stores::prepare(plan);
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let load = load_on(&stores.clients(), name, shape);
    for round in 0..rounds {
        warm_up(&load);
        stores.kill_all();
        for (disk, seed) in disks.iter().zip(round * 100..) {
            // The first time as little as a disk may keep; then anything between that and all of it.
            let survival = if round == 0 { Survival::Synced } else { Survival::Torn(seed) };
            disk.lose_power(survival);
        }
        stores.all.iter_mut().for_each(|store| store.spawn());
        stores.await_ready();
        await_operations(&load, 200);
    }
    judge(load.finish());
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_everywhere() {
    lose_power_again_and_again("power", &three(), Shape::default(), rounds(3));
}

#[test]
fn a_loss_of_power_between_flushes_and_compactions_loses_nothing() {
    // Memtables so small, and values so large, that files of RocksDB and of the log come and go all the time.
    let plan = Plan { flags: SMALL, ..three() };
    let shape = Shape { value_bytes: 16 << 10, ..Shape::default() };
    lose_power_again_and_again("power-flushes", &plan, shape, rounds(3));
}

const SMALL: &[(&str, &str)] = &[("--rocksdb", "write_buffer_size=64kb")];
