//! A store's RocksDB as amounts of bytes: memtables, level 0, levels, and what flushes and
//! compactions read and write.
//!
//! Keys are hashed, so every file of a level spans its share of the keys evenly, and a part of a
//! level overlaps the same part of the next. With levels of dynamic size
//! (`level_compaction_dynamic_level_bytes`) the last level holds the data, and each level above it
//! a tenth of the next, down to `level_base_bytes`. The first of them is the base level, into which
//! all of level 0 is merged. A byte is written once by its flush, and then this many times:
//!
//! ```text
//! by level 0 into the base level    (L0 + base) / L0
//! by each level l into the next     1 + size(l + 1) / size(l)
//! ```
//!
//! The sizes at each moment follow from the compactions done; nothing is assumed about them.
//!
//! A flush keeps only the newest version of each row. So does a merge of level 0 into the base
//! level, for the rows of level 0 and for those that entered the base level after it was last
//! emptied. In the levels below, older versions count until they reach the last level.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use crate::Tuning;

/// The number of levels: RocksDB's default, which stores use.
pub(crate) const LEVELS: usize = 7;
const LAST: usize = LEVELS - 1;
/// The part of a memtable that rows fill. A memtable is sealed when its arena is full, and a tenth
/// of the arena is its Bloom filter. (Memtables of 839 kB were seen to have 705 rows of 1 KiB,
/// which are 764 kB of a table.)
const MEMTABLE_FILL: f64 = 0.9;
const SCORE_SCALE: f64 = 10.0;
/// `max_background_jobs` is 4, of which RocksDB reserves one for flushes.
const COMPACTIONS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flush,
    /// From a level into the next one in use.
    Compaction {
        from: usize,
        into: usize,
    },
    /// Everything that overlaps a region's rows, level by level (`Keyspace::reclaim`).
    Reclaim,
}

/// A background job and the bytes that it reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub kind: Kind,
    pub reads: u64,
    pub writes: u64,
    /// The number of files of level 0; 1 for other levels.
    files: usize,
    from_bytes: u64,
    into_bytes: u64,
}

/// The levels on which a row may be, and the bytes of their tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub levels: RangeInclusive<usize>,
    pub bytes: u64,
}

/// A memtable, or the file of level 0 that was made of it.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Bytes written.
    written: u64,
    /// Bytes of the rows, each counted once.
    rows: u64,
    /// The part of `rows` whose previous version is in an earlier table, by the number of that
    /// table.
    again: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    tuning: Tuning,
    /// Memtables are numbered. Those up to `flushed` have become files.
    pub memtable: u32,
    pub flushed: u32,
    active: Table,
    sealed: VecDeque<Table>,
    /// The newest is the last, whose number is `flushed`.
    level0: VecDeque<Table>,
    levels: [u64; LEVELS],
    /// Rows of tables up to this number have left the base level.
    below_base: u32,
    flushing: bool,
    /// Levels that a compaction in progress reads from or writes to.
    busy: [bool; LEVELS],
    /// The bytes that the reclaim in progress moves from each level to the next, beginning with the
    /// base level.
    descending: [u64; LEVELS],
    descends_from: usize,
    /// Bytes of the newest versions. A compaction into the last level leaves no more than this.
    pub live_bytes: u64,
}

impl Tree {
    pub fn new(tuning: &Tuning) -> Tree {
        Tree {
            tuning: tuning.clone(),
            memtable: 1,
            flushed: 0,
            active: Table::default(),
            sealed: VecDeque::new(),
            level0: VecDeque::new(),
            levels: [0; LEVELS],
            below_base: 0,
            flushing: false,
            busy: [false; LEVELS],
            descending: [0; LEVELS],
            descends_from: LAST,
            live_bytes: 0,
        }
    }

    /// Sets the initial state: the little that a store wrote before the load, mainly the states of
    /// regions. There are `files` small files in level 0, and `part` of a memtable is used. The
    /// times of the next flush and the next merge depend on this.
    pub fn begin(&mut self, files: u32, part: f64) {
        self.level0.extend((0..files).map(|_| Table::default()));
        self.flushed += files;
        self.memtable += files;
        self.active.written += (self.memtable_bytes() as f64 * part) as u64;
    }

    /// Adds rows that existed before or arrive in ingested files.
    pub fn ingest(&mut self, bytes: u64) {
        self.live_bytes += bytes;
        self.levels[LAST] += bytes;
    }

    /// Removes rows by a range deletion. Their bytes disappear in compactions into the last level.
    pub fn lose(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
    }

    /// Removes rows at once, at no cost.
    pub fn forget(&mut self, bytes: u64) {
        self.lose(bytes);
        self.levels[LAST] = self.levels[LAST].min(self.live_bytes);
    }

    /// Seals the memtable for a flush that nothing waits for, if it is not empty and another
    /// memtable is free.
    pub fn seal_for_log(&mut self) {
        if self.active.written > 0 && self.sealed.len() + 1 < self.tuning.memtables {
            self.seal_for_flush();
        }
    }

    /// Seals the memtable however full it is. Returns the number of the memtable whose flush covers
    /// everything written so far.
    pub fn seal_for_flush(&mut self) -> u32 {
        // A flush is requested after a write, so the memtable is not empty.
        self.active.rows = self.active.rows.max(1);
        self.sealed.push_back(std::mem::take(&mut self.active));
        self.memtable += 1;
        self.memtable - 1
    }

    /// Returns true if writes must wait: every memtable is full, or level 0 has too many files.
    pub fn is_stalled(&self) -> bool {
        self.sealed.len() + 1 >= self.tuning.memtables && self.active.written >= self.memtable_bytes()
            || self.level0.len() >= self.tuning.level0_stop
    }

    /// Returns the number of files that are searched for a row that does not exist: all files of
    /// level 0, and one of each level that is not empty.
    pub fn files_asked(&self) -> usize {
        self.level0.len() + self.levels.iter().filter(|bytes| **bytes > 0).count()
    }

    fn memtable_bytes(&self) -> u64 {
        (self.tuning.memtable_bytes as f64 * MEMTABLE_FILL) as u64
    }

    /// Writes a row. `before` is the number of the memtable with its previous version; 0 means that
    /// there is none.
    pub fn write(&mut self, bytes: u64, before: u32) {
        self.active.written += bytes;
        if before != self.memtable {
            self.active.rows += bytes;
            if before > self.below_base {
                *self.active.again.entry(before).or_default() += bytes;
            }
        }
        self.seal();
    }

    /// Returns the number of the newest table that has left level 0.
    fn merged(&self) -> u32 {
        self.flushed - self.level0.len() as u32
    }

    fn level0_bytes(&self) -> u64 {
        self.level0.iter().map(|table| table.rows).sum()
    }

    /// Returns the bytes that level 0 adds to the base level when all of it is merged.
    fn level0_new_bytes(&self) -> u64 {
        let again = self.level0.iter().flat_map(|table| table.again.range(self.below_base + 1..));
        self.level0_bytes() - again.map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn seal(&mut self) {
        if self.active.written >= self.memtable_bytes() && self.sealed.len() + 1 < self.tuning.memtables {
            self.sealed.push_back(std::mem::take(&mut self.active));
            self.memtable += 1;
        }
    }

    pub fn next_flush(&mut self) -> Option<Job> {
        let bytes = self.sealed.front().filter(|_| !self.flushing)?.rows;
        self.flushing = true;
        Some(Job { kind: Kind::Flush, reads: 0, writes: bytes, files: 1, from_bytes: bytes, into_bytes: 0 })
    }

    /// Returns the base level, and the target size of each level from there on, which is at least
    /// `level_base_bytes` (RocksDB 7.8, `VersionStorageInfo::CalculateBaseBytes`).
    fn targets(&self) -> (usize, [u64; LEVELS]) {
        let (base_max, factor) = (self.tuning.level_base_bytes, self.tuning.level_multiplier);
        let mut targets = [u64::MAX; LEVELS];
        let Some(first_used) = (1..=LAST).find(|level| self.levels[*level] > 0) else {
            return (LAST, targets);
        };
        let most = self.levels.iter().copied().max().unwrap_or(0);
        let (mut base, mut size) = (first_used, (first_used..LAST).fold(most, |size, _| size / factor));
        while size > base_max && base > 1 {
            base -= 1;
            size /= factor;
        }
        size = size.clamp(base_max / factor, base_max);
        for target in &mut targets[base..] {
            *target = size.max(base_max);
            size = size.saturating_mul(factor);
        }
        (base, targets)
    }

    /// Returns the number of concurrent compactions: one, until level 0 has so many files that
    /// RocksDB speeds up (`GetL0ThresholdSpeedupCompaction`).
    pub fn compactions_max(&self) -> usize {
        let Tuning { level0_trigger: trigger, level0_slowdown: slowdown, .. } = self.tuning;
        let haste = (2 * trigger).min(trigger + slowdown.saturating_sub(trigger) / 4);
        if self.level0.len() >= haste {
            COMPACTIONS_MAX
        } else {
            1
        }
    }

    /// Returns the compaction with the highest score of at least 1 (RocksDB 7.8,
    /// `VersionStorageInfo::ComputeCompactionScore`). The score of a level above its size is
    /// multiplied by ten, and is lower if much is about to arrive from above.
    pub fn next_compaction(&mut self) -> Option<Job> {
        let (base, targets) = self.targets();
        let bytes = self.level0_bytes();
        let mut best: Option<(f64, usize)> = None;
        if !self.busy[0] && !self.busy[base] && !self.level0.is_empty() {
            let mut score = self.level0.len() as f64 / self.tuning.level0_trigger as f64;
            if bytes >= self.tuning.level_base_bytes {
                score = score.max(1.01);
            }
            if bytes > targets[base] {
                score = score.max(bytes as f64 / self.levels[base].max(targets[base]) as f64);
            }
            best = Some((if score > 1.0 { score * SCORE_SCALE } else { score }, 0));
            best = best.filter(|(score, _)| *score >= 1.0);
        }
        let mut coming = bytes;
        for (level, target) in targets.into_iter().enumerate().take(LAST).skip(base) {
            let held = self.levels[level];
            if held <= target {
                continue;
            }
            let score = held as f64 / target.saturating_add(coming) as f64 * SCORE_SCALE;
            coming += held - target;
            let free = !self.busy[level] && !self.busy[level + 1];
            if free && best.is_none_or(|(known, _)| score > known) {
                best = Some((score, level));
            }
        }
        let (_, from) = best?;
        let into = if from == 0 { base } else { from + 1 };
        let (files, from_bytes) = match from {
            0 => (self.level0.len(), self.level0_new_bytes()),
            _ => (1, self.levels[from].min(self.tuning.table_file_bytes)),
        };
        let part = if from == 0 { 1.0 } else { from_bytes as f64 / self.levels[from].max(1) as f64 };
        let overlap = (self.levels[into] as f64 * part) as u64;
        self.busy[from] = true;
        self.busy[into] = true;
        // A file whose keys overlap nothing in the next level moves there without being read.
        let moves = overlap == 0 && from > 0;
        // The last level keeps one version of each row.
        let most = if into == LAST { (self.live_bytes as f64 * part) as u64 } else { u64::MAX };
        let writes = if moves { 0 } else { (from_bytes + overlap).min(most) };
        let reads = match from {
            0 => bytes + overlap,
            _ if moves => 0,
            _ => from_bytes + overlap,
        };
        let kind = Kind::Compaction { from, into };
        Some(Job { kind, reads, writes, files, from_bytes, into_bytes: overlap })
    }

    /// Returns the compaction of a range with `part` of all keys, once no other compaction is in
    /// progress. It merges level 0 into the base level, and then from each level the files that
    /// reach into the range, with those below them. A level with a single file therefore takes the
    /// whole next level with it.
    pub fn next_reclaim(&mut self, part: f64) -> Option<Job> {
        if self.busy.iter().any(|busy| *busy) {
            return None;
        }
        let (base, _) = self.targets();
        let above = self.level0_bytes();
        let mut bytes = if above > 0 { above + self.levels[base] } else { 0 };
        let mut arrived = above;
        (self.descending, self.descends_from) = ([0; LEVELS], base);
        for level in base..LAST {
            let held = self.levels[level] + arrived;
            let files = held.div_ceil(self.tuning.table_file_bytes.max(1)).max(1);
            let share = (part + 1.0 / files as f64).min(1.0);
            arrived = (held as f64 * share) as u64;
            self.descending[level] = arrived;
            if arrived > 0 {
                bytes += arrived + (self.levels[level + 1] as f64 * share) as u64;
            }
        }
        self.busy = [true; LEVELS];
        let files = self.level0.len();
        Some(Job {
            kind: Kind::Reclaim,
            reads: bytes,
            writes: bytes,
            files,
            from_bytes: above,
            into_bytes: 0,
        })
    }

    pub fn finish(&mut self, job: &Job) {
        match job.kind {
            Kind::Reclaim => {
                self.busy = [false; LEVELS];
                self.level0.drain(..job.files);
                self.below_base = self.merged();
                self.levels[self.descends_from] += job.from_bytes;
                for level in 1..LAST {
                    let down = std::mem::take(&mut self.descending[level]).min(self.levels[level]);
                    self.levels[level] -= down;
                    self.levels[level + 1] += down;
                }
                self.levels[LAST] = self.levels[LAST].min(self.live_bytes.max(1));
            }
            Kind::Flush => {
                self.flushing = false;
                self.flushed += 1;
                self.level0.extend(self.sealed.pop_front());
                self.seal();
            }
            Kind::Compaction { from, into } => {
                self.busy[from] = false;
                self.busy[into] = false;
                match from {
                    0 => drop(self.level0.drain(..job.files)),
                    _ => self.levels[from] = self.levels[from].saturating_sub(job.from_bytes),
                }
                self.levels[into] += job.from_bytes;
                if from > 0 || into == LAST {
                    self.below_base = self.merged();
                }
                if into == LAST {
                    self.levels[LAST] = self.levels[LAST].min(self.live_bytes.max(1));
                }
            }
        }
    }

    /// Returns the levels whose parts the finishing job replaces, those parts, and the output
    /// level.
    pub fn replaced(&self, job: &Job) -> (Vec<(usize, f64)>, usize) {
        let part = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
        match job.kind {
            Kind::Flush => (Vec::new(), 0),
            Kind::Compaction { from, into } => {
                let above = match from {
                    0 => job.files as f64 / self.level0.len().max(1) as f64,
                    _ => part(job.from_bytes, self.levels[from]),
                };
                (vec![(from, above), (into, part(job.into_bytes, self.levels[into]))], into)
            }
            Kind::Reclaim => {
                let all = self.bytes_down_to(job);
                ((0..LEVELS).map(|level| (level, part(job.reads, all))).collect(), LAST)
            }
        }
    }

    /// Returns where a row is that was last written in this table.
    pub fn place_of(&self, table: u32) -> Place {
        if table > self.merged() {
            return Place { levels: 0..=0, bytes: self.level0_bytes() };
        }
        let (base, _) = self.targets();
        let below = base + 1..=LAST;
        let bytes_below = self.levels[base..].iter().skip(1).sum::<u64>();
        match table > self.below_base && self.levels[base] > 0 || bytes_below == 0 {
            true => Place { levels: base..=base, bytes: self.levels[base] },
            false => Place { levels: below, bytes: bytes_below },
        }
    }

    /// Returns the bytes that a compaction takes from the level that it writes to.
    #[cfg(test)]
    pub fn overlap(&self, job: &Job) -> u64 {
        job.into_bytes
    }

    /// Returns the bytes of all tables from level 0 down to the level that a job writes to.
    pub fn bytes_down_to(&self, job: &Job) -> u64 {
        let into = match job.kind {
            Kind::Flush => 0,
            Kind::Compaction { into, .. } => into,
            Kind::Reclaim => LAST,
        };
        self.level0_bytes() + self.levels[..=into].iter().sum::<u64>()
    }

    pub fn table_file_bytes(&self) -> u64 {
        self.tuning.table_file_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning {
            memtable_bytes: 2 << 20,
            level_base_bytes: 8 << 20,
            table_file_bytes: 8 << 20,
            ..Tuning::default()
        }
    }

    /// Writes `bytes` and finishes every job at once. Returns the bytes written by flushes and by
    /// compactions.
    fn fill(tree: &mut Tree, bytes: u64) -> (u64, u64) {
        let (mut flushed, mut compacted) = (0, 0);
        for _ in 0..bytes / 1084 {
            tree.live_bytes += 1084;
            tree.write(1084, 0);
            while let Some(job) = tree.next_flush() {
                flushed += job.writes;
                tree.finish(&job);
            }
            while let Some(job) = tree.next_compaction() {
                compacted += job.writes;
                tree.finish(&job);
            }
        }
        (flushed, compacted)
    }

    /// Stores that were loaded with 84 MB of rows at the quick scale wrote 4.0 to 4.9 bytes by
    /// compaction for each of them. The ratio is higher here, because every job finishes at once
    /// and nothing accumulates in level 0.
    #[test]
    fn compaction_writes_what_rocksdb_was_seen_to_write() {
        let mut tree = Tree::new(&tuning());
        let (flushed, compacted) = fill(&mut tree, 84_000_000);
        assert!(flushed > 80_000_000);
        let ratio = compacted as f64 / 84e6;
        assert!((4.0..6.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_tree_grows_levels_upwards_and_holds_what_was_written() {
        let mut tree = Tree::new(&tuning());
        fill(&mut tree, 150_000_000);
        let held: u64 = tree.levels.iter().sum::<u64>() + tree.level0_bytes() + tree.active.rows;
        let held = held + tree.sealed.iter().map(|table| table.rows).sum::<u64>();
        assert!((held as f64 / 150e6 - 1.0).abs() < 0.02, "{held}");
        assert!(tree.levels[LAST] > 100_000_000 && tree.targets().0 == 4, "{:?}", tree.levels);
    }

    #[test]
    fn writes_stall_when_no_memtable_is_flushed() {
        let mut tree = Tree::new(&tuning());
        while !tree.is_stalled() {
            tree.write(100_000, 0);
        }
        assert_eq!(tree.sealed.len() + 1, tuning().memtables);
        let job = tree.next_flush().unwrap();
        assert!(tree.next_flush().is_none(), "one flush at a time");
        tree.finish(&job);
        assert!(!tree.is_stalled());
    }

    /// The base level is one file here, and a file spans all keys, so almost everything reaches
    /// into the range.
    #[test]
    fn to_reclaim_a_small_range_most_of_a_small_tree_is_written_again() {
        let mut tree = Tree::new(&tuning());
        fill(&mut tree, 84_000_000);
        tree.lose(3_500_000);
        let held: u64 = tree.levels.iter().sum();
        let job = tree.next_reclaim(1.0 / 24.0).unwrap();
        assert!(job.writes as f64 > 0.8 * held as f64, "{} of {held}", job.writes);
        assert!(tree.next_compaction().is_none() && tree.next_reclaim(0.1).is_none(), "one at a time");
        tree.finish(&job);
        assert!(tree.levels[LAST] <= tree.live_bytes && tree.level0.is_empty());

        // With many files in each level it is little more than the range itself.
        let mut tree = Tree::new(&Tuning { table_file_bytes: 64 << 10, ..tuning() });
        tree.ingest(84_000_000);
        tree.levels[LAST - 1] = 8_000_000;
        let job = tree.next_reclaim(1.0 / 24.0).unwrap();
        assert!((3_500_000..6_000_000).contains(&job.writes), "{}", job.writes);
    }

    #[test]
    fn a_flush_that_is_asked_for_covers_what_is_written_by_then() {
        let mut tree = Tree::new(&tuning());
        tree.write(1000, 0);
        let memtable = tree.seal_for_flush();
        tree.write(1000, 0);
        let job = tree.next_flush().unwrap();
        assert_eq!(job.writes, 1000);
        tree.finish(&job);
        assert_eq!((tree.flushed, tree.active.rows), (memtable, 1000));
    }

    #[test]
    fn replaced_rows_go() {
        let mut tree = Tree::new(&tuning());
        tree.ingest(50_000_000);
        for _ in 0..40_000 {
            tree.write(1084, 0);
            while let Some(job) = tree.next_flush().or_else(|| tree.next_compaction()) {
                tree.finish(&job);
            }
        }
        assert!(tree.levels[LAST] <= 50_000_000);
    }

    #[test]
    fn a_row_that_was_written_again_is_flushed_once_and_merged_once() {
        let mut tree = Tree::new(&tuning());
        // Three rows. One of them is written three times into the first memtable and once into the
        // second.
        for before in [0, 0, 0, 1, 1] {
            tree.write(1000, before);
        }
        tree.seal_for_flush();
        let job = tree.next_flush().unwrap();
        assert_eq!(job.writes, 3000);
        tree.finish(&job);
        tree.write(1000, 1);
        tree.write(1000, 0);
        tree.seal_for_flush();
        let job = tree.next_flush().unwrap();
        assert_eq!(job.writes, 2000);
        tree.finish(&job);
        assert_eq!((tree.level0_bytes(), tree.level0_new_bytes()), (5000, 4000));
        // Rows that have entered the base level are remembered until that is emptied.
        tree.level0.pop_front();
        assert_eq!((tree.level0_bytes(), tree.level0_new_bytes(), tree.merged()), (2000, 1000, 1));
        tree.below_base = tree.merged();
        assert_eq!(tree.level0_new_bytes(), 2000);
        tree.write(1000, 1);
        assert!(tree.active.again.is_empty());
    }

    #[test]
    fn the_last_level_is_written_with_each_row_once() {
        let mut tree = Tree::new(&Tuning { table_file_bytes: 16 << 20, ..tuning() });
        tree.ingest(40_000_000);
        tree.levels[LAST - 1] = 9_000_000;
        tree.level0.push_back(Table { written: 1000, rows: 1000, again: BTreeMap::from([(3, 1000)]) });
        tree.flushed = 4;
        let job = tree.next_compaction().unwrap();
        assert_eq!(job.kind, Kind::Compaction { from: LAST - 1, into: LAST });
        assert_eq!((job.reads, job.writes), (49_000_000, 40_000_000));
        assert_eq!(tree.level0_new_bytes(), 0);
        tree.finish(&job);
        assert_eq!((tree.levels[LAST], tree.levels[LAST - 1]), (40_000_000, 0));
        assert_eq!((tree.below_base, tree.level0_new_bytes()), (3, 1000));
    }

    #[test]
    fn no_level_is_to_hold_less_than_the_base_may() {
        let mut tree = Tree::new(&tuning());
        assert_eq!(tree.targets(), (LAST, [u64::MAX; LEVELS]));
        for (bytes, base) in [(1 << 20, LAST), (8 << 20, LAST), (20 << 20, LAST - 1), (90 << 20, LAST - 2)] {
            tree.levels[LAST] = bytes;
            let (found, targets) = tree.targets();
            assert_eq!(found, base, "{bytes}");
            assert!(targets[..base].iter().all(|target| *target == u64::MAX));
            assert!(targets[base..].iter().all(|target| *target >= 8 << 20), "{targets:?}");
        }
        // A level that is not needed any more remains the base level.
        tree.levels = [0, 0, 0, 0, 1000, 0, 9 << 20];
        assert_eq!(tree.targets().0, 4);
    }

    #[test]
    fn a_flush_for_the_log_waits_for_a_free_memtable_and_for_rows() {
        let mut tree = Tree::new(&tuning());
        tree.seal_for_log();
        assert!(tree.next_flush().is_none());
        for _ in 0..5 {
            tree.write(1000, 0);
            tree.seal_for_log();
        }
        assert_eq!((tree.sealed.len() + 1, tree.active.written), (tree.tuning.memtables, 2000));
    }
}
