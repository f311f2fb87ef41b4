use device::Extent;

use super::*;
use crate::device::{Device, Queues};
use crate::draw::popular;
use crate::tree::{Job, Kind, Place, Tree};
use crate::Tuning;

fn device(text: &str) -> (tempfile::TempDir, device::Control, Device) {
    let dir = tempfile::tempdir().unwrap();
    let profile: device::Profile = text.parse().unwrap();
    let control = device::Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
    let cache = profile.cache.unwrap();
    let ours = Device {
        write_bytes_per_s: profile.write_bytes_per_s,
        read_bytes_per_s: profile.read_bytes_per_s,
        sync_ns: profile.sync_latency.as_nanos() as u64,
        read_ns: profile.read_latency.as_nanos() as u64,
        cache: Some(WriteBack {
            bytes: cache.bytes,
            write_bytes_per_s: cache.write_bytes_per_s,
            read_bytes_per_s: cache.read_bytes_per_s,
            sync_ns: cache.sync_latency.as_nanos() as u64,
            read_ns: cache.read_latency.as_nanos() as u64,
        }),
        sharing_milli: 1000,
    };
    (dir, control, ours)
}

fn near(ours: u64, theirs: u64, part: f64, what: &str) {
    let off = ours.abs_diff(theirs) as f64 / theirs.max(1) as f64;
    assert!(off <= part, "{what}: {ours} beside {theirs}");
}

/// A burst runs at the cache's speed and a long load at that of the device behind; pauses let it
/// catch up.
#[test]
fn writes_end_when_those_of_the_emulated_hybrid_do() {
    let (_dir, control, ours) = device("hybrid/80,cache=8MiB");
    let mut queues = Queues::new(ours);
    let (mut draw, mut now) = (Draw::new(3), 1_000_000_000);
    for file in 0..400 {
        now += draw.below(40_000_000);
        let bytes = (1 + draw.below(64)) * BLOCK_BYTES;
        let theirs = control.cache().unwrap().write(now, Extent { file, begin: 0, bytes });
        let ours = queues.write(now, bytes);
        near(ours - 1_000_000_000, theirs - 1_000_000_000, 0.08, &format!("write {file}"));
        if draw.below(3) == 0 {
            near(queues.sync(now, 1.0), control.block().sync(now), 0.05, "sync");
        }
        now = now.max(ours.saturating_sub(20_000_000));
    }
    let stats = control.stats();
    assert!(stats.bytes_destaged > 8 << 20, "the device behind did work: {stats:?}");
}

/// Tables that are replaced while dirty cost the device behind nothing.
#[test]
fn as_much_is_destaged_as_of_an_emulated_hybrid() {
    let (_dir, control, ours) = device("hybrid/80,cache=8MiB");
    let mut hybrid = Hybrid::new(ours.cache.unwrap(), ours.write_bytes_per_s);
    let cache = control.cache().unwrap();
    let (mut now, table) = (1_000_000_000, 1 << 20);
    for file in 0..200u64 {
        let extent = Extent { file, begin: 0, bytes: table };
        now = cache.write(now, extent).max(hybrid.write(now, table, true));
        hybrid.replaced(&[], 0, 0, table);
        // One of four tables stays and belongs to the next level.
        if file % 4 == 3 {
            for gone in file - 3..file {
                cache.forget(Extent { file: gone, begin: 0, bytes: table });
            }
            hybrid.replaced(&[(0, 0.25)], LEVELS - 1, 0, 0);
            hybrid.replaced(&[(0, 1.0)], LEVELS - 1, 0, 1);
        }
        now += 50_000_000;
    }
    let stats = control.stats();
    assert!(stats.bytes_dropped > stats.bytes_destaged / 2, "{stats:?}");
    near(hybrid.bytes_destaged, stats.bytes_destaged, 0.15, "destaged");
}

#[test]
fn at_rest_as_much_stays_dirty_as_in_an_emulated_hybrid() {
    let (_dir, control, ours) = device("hybrid/80,cache=8MiB");
    let mut hybrid = Hybrid::new(ours.cache.unwrap(), ours.write_bytes_per_s);
    for (file, now) in [(0, 1_000_000_000), (1, 1_000_000_000_000)] {
        let bytes = if file == 0 { 6 << 20 } else { BLOCK_BYTES };
        control.cache().unwrap().write(now, Extent { file, begin: 0, bytes });
        hybrid.write(now, bytes, false);
        near(hybrid.dirty_bytes() as u64, control.stats().dirty_bytes, 0.03, "dirty");
    }
}

/// Reads of popular rows hit equally often, in caches of several sizes.
#[test]
fn as_many_rows_are_found_as_in_an_emulated_hybrid() {
    let (records, row, block) = (40_000u64, 1084, 8 * 1084);
    for cache in ["1MiB", "4MiB", "16MiB"] {
        let (_dir, control, ours) = device(&format!("hybrid,cache={cache}"));
        let mut hybrid = Hybrid::new(ours.cache.unwrap(), ours.write_bytes_per_s);
        hybrid.hold_rows(records, row, block);
        let theirs = control.cache().unwrap();
        let (mut draw, mut found, mut missed, mut warm) = (Draw::new(9), [0, 0], 0, false);
        for at in 0..60_000 {
            let record = popular(records, &mut draw) as u32;
            let place = u64::from(hybrid.rows.block_of[record as usize]);
            theirs.read(at, Extent { file: 1, begin: place * block, bytes: block }, false);
            // A block that is cached in part is waited for like one that is not cached.
            let theirs_hit = std::mem::replace(&mut missed, control.stats().bytes_missed) == missed;
            let on = Place { levels: LEVELS - 1..=LEVELS - 1, bytes: records * row };
            let hit = hybrid.finds_row(at, record, block, &on);
            warm |= at == 30_000;
            if warm {
                found[0] += u32::from(hit);
                found[1] += u32::from(theirs_hit);
            }
        }
        let [ours, theirs] = found.map(|found| f64::from(found) / 30_000.0);
        assert!((ours - theirs).abs() < 0.06, "{cache}: {ours:.3} beside {theirs:.3}");
    }
}

const ROW_BYTES: u64 = 1084;

/// A tree's files on the emulated device, next to the same tree in the model.
struct Twin<'a> {
    control: &'a device::Control,
    theirs: device::Cache<'a>,
    ours: Queues,
    tree: Tree,
    /// By level; the first is the next to be compacted.
    levels: [VecDeque<Extent>; LEVELS],
    files: u64,
    log_bytes: u64,
    running: Vec<Running>,
}

struct Running {
    job: Job,
    /// The input files with their levels.
    inputs: Vec<(usize, Extent)>,
    output: Extent,
    read: u64,
    ready_at: u64,
}

/// Takes the first `bytes` of the files.
fn take(files: &mut VecDeque<Extent>, bytes: u64) -> Vec<Extent> {
    let (mut taken, mut left) = (Vec::new(), bytes);
    while left > 0 {
        let Some(file) = files.pop_front() else { break };
        let bytes = file.bytes.min(left);
        left -= bytes;
        taken.push(Extent { bytes, ..file });
        if bytes < file.bytes {
            files.push_front(Extent { begin: file.begin + bytes, bytes: file.bytes - bytes, ..file });
        }
    }
    taken
}

impl Twin<'_> {
    /// Writes rows to the log and to the tree, each given by the table with its previous version.
    /// Background jobs take the steps that they are ready for.
    fn turn(&mut self, now: u64, rows: &[u32]) -> u64 {
        let bytes = rows.len() as u64 * ROW_BYTES;
        let theirs = self.theirs.write(now, Extent { file: 0, begin: self.log_bytes, bytes });
        self.ours.write(now, bytes);
        self.log_bytes += bytes;
        for &before in rows {
            self.tree.live_bytes += if before == 0 { ROW_BYTES } else { 0 };
            self.tree.write(ROW_BYTES, before);
        }
        while let Some(job) = self.tree.next_flush() {
            self.start(job, now);
        }
        while self.running.iter().filter(|running| running.job.kind != Kind::Flush).count() == 0 {
            let Some(job) = self.tree.next_compaction() else { break };
            self.start(job, now);
        }
        for mut running in std::mem::take(&mut self.running) {
            if running.ready_at > now || self.step(&mut running, now) {
                self.running.push(running);
            } else {
                self.finish(running);
            }
        }
        theirs
    }

    /// Reads a row that was last written in this table. `at` is its position among the keys.
    /// Returns whether the model and the emulated device find it, or `None` if it is in a memtable.
    fn read(&mut self, now: u64, record: u32, at: f64, table: u32) -> Option<[bool; 2]> {
        const BLOCK: u64 = 8 * ROW_BYTES;
        if table > self.tree.flushed {
            return None;
        }
        let on = self.tree.place_of(table);
        let files: Vec<Extent> = match *on.levels.start() {
            0 => {
                let newest = self.tree.flushed - table;
                let level = &self.levels[0];
                vec![level[level.len() - 1 - newest as usize]]
            }
            _ => self.levels[on.levels.clone()].iter().flatten().copied().collect(),
        };
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let mut begin = (at * bytes as f64) as u64 / BLOCK * BLOCK;
        let control = self.control;
        let missed = || control.stats().bytes_missed;
        let before = missed();
        assert!(begin < bytes, "there is a file: {on:?}");
        for file in files {
            if begin < file.bytes {
                let extent =
                    Extent { begin: file.begin + begin, bytes: BLOCK.min(file.bytes - begin), ..file };
                self.theirs.read(now, extent, false);
                break;
            }
            begin -= file.bytes;
        }
        let theirs = missed() == before;
        let misses = self.ours.used();
        self.ours.read_row(now, BLOCK, record, || on);
        Some([self.ours.used().missed_since(&misses) == 0, theirs])
    }

    fn start(&mut self, job: Job, now: u64) {
        let mut inputs = Vec::new();
        if let Kind::Compaction { from, into } = job.kind {
            let of_next = self.tree.overlap(&job);
            let of_first = if from == 0 { u64::MAX } else { job.reads - of_next };
            for (level, bytes) in [(from, of_first), (into, of_next)] {
                // The inputs stay until the job ends.
                inputs.extend(
                    take(&mut self.levels[level].clone(), bytes).into_iter().map(|file| (level, file)),
                );
            }
        }
        self.files += 1;
        let output = Extent { file: self.files, begin: 0, bytes: 0 };
        self.running.push(Running { job, inputs, output, read: 0, ready_at: now });
    }

    /// Reads a part of all inputs, or writes a part of the output. Returns false if the job is
    /// done.
    fn step(&mut self, running: &mut Running, now: u64) -> bool {
        let Running { job, inputs, output, read, .. } = running;
        let done = if output.bytes >= job.writes {
            return false;
        } else if *read < job.reads && *read <= output.bytes {
            let bytes = (2u64 << 20).min(job.reads - *read);
            let part = |of: u64, at: u64| (u128::from(of) * u128::from(at) / u128::from(job.reads)) as u64;
            let parts = inputs.iter().map(|(_, file)| {
                let (first, last) = (part(file.bytes, *read), part(file.bytes, *read + bytes));
                Extent { begin: file.begin + first, bytes: last - first, ..*file }
            });
            let done = parts.map(|file| self.theirs.read(now, file, true)).max();
            let (parts, _) = self.tree.replaced(job);
            self.ours.read_tables(now, bytes, true, &parts, job.reads);
            *read += bytes;
            done.unwrap_or(now)
        } else {
            let bytes = (1u64 << 20).min(job.writes - output.bytes);
            let done = self.theirs.write(now, Extent { begin: output.bytes, bytes, ..*output });
            self.ours.write_table(now, bytes);
            output.bytes += bytes;
            Queues::buffered(done)
        };
        running.ready_at = done;
        true
    }

    fn finish(&mut self, running: Running) {
        let Running { job, inputs, output, .. } = running;
        for (level, file) in inputs {
            self.theirs.forget(file);
            take(&mut self.levels[level], file.bytes);
        }
        let into = match job.kind {
            Kind::Compaction { into, .. } => into,
            _ => 0,
        };
        self.levels[into].push_back(output);
        let (parts, into) = self.tree.replaced(&job);
        self.ours.replaced(&parts, into, job.reads, job.writes);
        self.tree.finish(&job);
    }
}

impl<'a> Twin<'a> {
    fn new(control: &'a device::Control, ours: Device, records: u64) -> Twin<'a> {
        let tuning = Tuning {
            memtable_bytes: 838_860,
            level_base_bytes: 3_355_443,
            table_file_bytes: 8 << 20,
            ..Tuning::default()
        };
        Twin {
            control,
            theirs: control.cache().unwrap(),
            ours: Queues::new(ours).with_rows(records, ROW_BYTES, 8 * ROW_BYTES),
            tree: Tree::new(&tuning),
            levels: Default::default(),
            files: 0,
            log_bytes: 0,
            running: Vec::new(),
        }
    }

    /// Writes the rows if the tree has room. Otherwise only background jobs continue.
    fn turn_or_wait(&mut self, now: u64, rows: &[u32]) -> Option<u64> {
        if self.tree.is_stalled() {
            self.turn(now, &[]);
            return None;
        }
        Some(self.turn(now, rows))
    }
}

/// The time between two turns, in nanoseconds.
const PAUSE: u64 = 15_000_000;

/// Compactions of a tree that is written as fast as the device permits.
#[test]
fn as_much_of_tables_is_found_as_in_an_emulated_hybrid() {
    let mut shares = Vec::new();
    for cache in ["4MiB", "6.5MB", "16MiB", "64MiB"] {
        let (_dir, control, ours) = device(&format!("hybrid/160,cache={cache}"));
        let mut twin = Twin::new(&control, ours, 0);
        let mut now = 1_000_000_000;
        while twin.tree.live_bytes < 32 << 20 {
            let done = twin.turn_or_wait(now, &[0; 13]);
            now = (now + PAUSE).max(done.unwrap_or(0));
        }
        let stats = control.stats();
        near(twin.ours.bytes_destaged(), stats.bytes_destaged, 0.15, &format!("{cache}: destaged"));
        let (ours, theirs) = (twin.ours.bytes_found(), stats.bytes_hit);
        let [ours, theirs] = [ours, theirs].map(|found| found as f64 / stats.bytes_read as f64);
        assert!((ours - theirs).abs() < 0.06, "{cache}: {ours:.3} beside {theirs:.3}");
        shares.push(theirs);
    }
    assert!(shares[0] < 0.1 && shares[3] > 0.9, "of all kinds: {shares:?}");
}

/// Popular rows are read and written, as in workload A.
#[test]
fn as_many_rows_of_a_tree_at_work_are_found_as_in_an_emulated_hybrid() {
    let (records, mut shares) = (30_000, Vec::new());
    for cache in ["4MiB", "6.5MB", "16MiB", "64MiB"] {
        let (_dir, control, ours) = device(&format!("hybrid/160,cache={cache}"));
        let mut twin = Twin::new(&control, ours, records);
        let (mut draw, mut now) = (Draw::new(9), 1_000_000_000);
        let mut written_in = vec![0; records as usize];
        let mut next = 0;
        while next < records {
            let rows: Vec<u64> = (next..records.min(next + 13)).collect();
            let tables = vec![0; rows.len()];
            let memtable = twin.tree.memtable;
            let done = twin.turn_or_wait(now, &tables);
            if done.is_some() {
                rows.iter().for_each(|row| written_in[*row as usize] = memtable);
                next += rows.len() as u64;
            }
            now = (now + PAUSE).max(done.unwrap_or(0));
        }
        let places: Vec<f64> = (0..records).map(|_| draw.fraction()).collect();
        let (mut found, mut read) = ([0, 0], 0);
        let mut before = twin.ours.bytes_destaged();
        let mut theirs_before = control.stats();
        for turn in 0..4_000 {
            if turn == 1_000 {
                (found, read) = ([0, 0], 0);
                before = twin.ours.bytes_destaged();
                theirs_before = control.stats();
            }
            for _ in 0..12 {
                let record = popular(records, &mut draw) as usize;
                let hits = twin.read(now, record as u32, places[record], written_in[record]);
                if let Some(hits) = hits {
                    read += 1;
                    found = [0, 1].map(|side| found[side] + u32::from(hits[side]));
                }
            }
            let rows: Vec<usize> = (0..6).map(|_| popular(records, &mut draw) as usize).collect();
            let tables: Vec<u32> = rows.iter().map(|row| written_in[*row]).collect();
            let memtable = twin.tree.memtable;
            let done = twin.turn_or_wait(now, &tables);
            if done.is_some() {
                rows.iter().for_each(|row| written_in[*row] = memtable);
            }
            now = (now + 2 * PAUSE).max(done.unwrap_or(0));
        }
        let destaged = control.stats().bytes_destaged - theirs_before.bytes_destaged;
        near(twin.ours.bytes_destaged() - before, destaged, 0.20, &format!("{cache}: destaged"));
        let [ours, theirs] = found.map(|found| f64::from(found) / f64::from(read));
        assert!((ours - theirs).abs() < 0.05, "{cache}: {ours:.3} beside {theirs:.3}");
        shares.push(theirs);
    }
    assert!(shares[0] < 0.1 && shares[3] > 0.8, "of all kinds: {shares:?}");
}
