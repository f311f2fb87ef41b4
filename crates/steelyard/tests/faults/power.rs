//! All machines lose power at the same time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use device::Survival;

use crate::disk::under_all;
use faults::workload::Shape;

use crate::stores::ledger::{self, Load};
use crate::stores::say;
use crate::{await_operations, judge, load_on, rounds, three, warm_up, Plan, Stores};

fn lose_power_again_and_again(name: &str, plan: &Plan, shape: Shape, rounds: u64) {
    let _place = crate::place();
    let mut stores = Stores::prepare(plan);
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let load = load_on(&stores.clients(), name, shape);
    for round in 0..rounds {
        warm_up(&load);
        stores.kill_all();
        for (disk, seed) in disks.iter().zip(round * 100..) {
            // In the first round the disk keeps as little as it may. In later rounds it keeps a
            // random part of the rest.
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
fn what_a_store_alone_has_acknowledged_survives_a_loss_of_power() {
    // Its loop writes the log itself, because its clients only write.
    let plan = Plan { stores: 1, ..three() };
    let _place = crate::place();
    let mut stores = Stores::prepare(&plan);
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let mut ledgers = Vec::new();
    for seed in 0..rounds(3) {
        let load = Load::start(&stores.clients(), &format!("alone{seed}"), ledger::Shape::WRITES);
        load.await_more(1000);
        stores.kill_all();
        disks[0].lose_power(if seed == 0 { Survival::Synced } else { Survival::Torn(seed) });
        stores.all.iter_mut().for_each(|store| store.spawn());
        stores.await_ready();
        ledgers.push(load.finish());
        ledgers.iter().for_each(|ledger| ledger.check("loss of power"));
    }
}

#[test]
fn a_loss_of_power_between_flushes_and_compactions_loses_nothing() {
    // Memtables are so small, and values so large, that files of RocksDB and of the log are
    // constantly created and deleted.
    let plan = Plan { flags: SMALL, ..three() };
    let shape = Shape { value_bytes: 16 << 10, ..Shape::default() };
    lose_power_again_and_again("power-flushes", &plan, shape, rounds(2));
}

const SMALL: &[(&str, &str)] = &[("--rocksdb", "write_buffer_size=64kb")];

#[test]
fn what_was_acknowledged_without_a_sync_is_lost_and_found_missing() {
    // This proves that these tests can fail: the stores are told not to sync.
    let _place = crate::place();
    let mut stores = Stores::prepare(&Plan { flags: &[("--fsync", "no")], ..three() });
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let load = load_on(&stores.clients(), "power-unsynced", Shape::default());
    warm_up(&load);
    stores.kill_all();
    disks.iter().for_each(|disk| disk.lose_power(Survival::Synced));
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let report = load.finish().judge();
    assert!(!report.violations.is_empty(), "nothing was lost: {report}");
}

/// An ext4 file system in a file. On a loss of power, all data that the kernel had not written is
/// lost.
struct LoopDisk {
    dir: tempfile::TempDir,
    generation: u32,
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{program}: {}", said.trim()))
}

impl LoopDisk {
    fn new() -> Result<LoopDisk, String> {
        let place = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("steelyard-loop-").tempdir_in(place);
        let disk = LoopDisk { dir: dir.map_err(|error| error.to_string())?, generation: 0 };
        let file = disk.file();
        let made = std::fs::File::create(&file).and_then(|file| file.set_len(512 << 20));
        made.map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-q", "-F", file.to_str().expect("a plain path")])?;
        std::fs::create_dir(disk.mounted()).map_err(|error| error.to_string())?;
        disk.mount()?;
        Ok(disk)
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join(format!("disk-{}", self.generation))
    }

    fn mounted(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// Mounts the file system with a commit interval so long that unsynced data stays in memory.
    fn mount(&self) -> Result<(), String> {
        let (file, at) = (self.file(), self.mounted());
        run("mount", &["-o", "loop,commit=300", file.to_str().expect("plain"), at.to_str().expect("plain")])
    }

    fn unmount(&self) {
        // A process that was just killed may still hold it for a moment.
        let at = self.mounted();
        let done = crate::stores::within(crate::stores::PATIENCE, || {
            run("umount", &[at.to_str().expect("a plain path")]).ok()
        });
        assert!(done.is_some(), "the file system cannot be unmounted");
    }

    /// Continues from a copy of the data that has reached the disk, without the data in memory.
    fn lose_power(&mut self) {
        let before = self.file();
        self.generation += 1;
        let after = self.file();
        let copied =
            run("cp", &["--sparse=always", before.to_str().expect("plain"), after.to_str().expect("plain")]);
        copied.unwrap_or_else(|why| panic!("{why}"));
        self.unmount();
        std::fs::remove_file(before).expect("the old disk goes");
        self.mount().unwrap_or_else(|why| panic!("{why}"));
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = run("umount", &[self.mounted().to_str().unwrap_or_default()]);
    }
}

#[test]
fn a_real_file_system_that_loses_its_memory_keeps_what_was_acknowledged_too() {
    let _place = crate::place();
    let mut disk = match LoopDisk::new() {
        Ok(disk) => disk,
        Err(why) => return say(&format!("SKIPPED power loss of a real file system: {why}")),
    };
    let mut stores = Stores::prepare(&three());
    for store in &mut stores.all {
        let dir = disk.mounted().join(format!("store-{}", store.id));
        store.change(&[("--dir", dir.to_str().expect("a plain path"))]);
        store.dir = dir;
    }
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let load = load_on(&stores.clients(), "power-ext4", Shape::default());
    for _ in 0..rounds(1) {
        warm_up(&load);
        stores.kill_all();
        // This file shows that data is lost: no process syncs it.
        let unsynced = disk.mounted().join("unsynced");
        std::fs::write(&unsynced, "x").expect("written");
        disk.lose_power();
        assert!(!unsynced.exists(), "this file system forgets nothing");
        stores.all.iter_mut().for_each(|store| store.spawn());
        stores.await_ready();
        await_operations(&load, 200);
    }
    judge(load.finish());
    drop(stores);
}
