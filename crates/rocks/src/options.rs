//! RocksDB tuning: named profiles, and every option by its RocksDB name.

mod knobs;

use rocksdb::{BlockBasedIndexType, DBCompressionType};

use knobs::{Access, Change, Knob, KNOBS};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Number of memtables that the RAM tier has room for: the active one, a frozen one, and the size
/// of one memtable for the row cache.
const MEMTABLE_PART: u64 = 3;
/// Part of the rows' memory that the filter of rows takes at most.
const FILTER_PART: u64 = 16;
/// Maximum size of a memtable, in bytes. It bounds the time of a flush and the size of its file.
const MEMTABLE_BYTES_MAX: u64 = 512 * MIB;

/// Period in which the rate limiter hands out its rate, in microseconds. RocksDB's default of 100
/// ms would let a compaction's burst delay the log's syncs for as long.
const RATE_PERIOD_US: i64 = 10_000;
/// One in this many requests of low priority is served before those of high priority.
const RATE_FAIRNESS: i32 = 10;

/// The version of RocksDB's table format.
const FORMAT_VERSION: u32 = 5;
/// Bytes of a part of a file's filter or index.
const PARTITION_BYTES: usize = 4 << 10;

/// Levels of the tree, RocksDB's default.
pub(crate) const LEVELS: usize = 7;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("unknown RocksDB option '{0}'")]
    UnknownName(String),
    #[error("unknown RocksDB profile '{0}' (default, redis-on-flash or bulk)")]
    UnknownProfile(String),
    #[error("RocksDB option {name} cannot be '{value}': {why}")]
    BadValue { name: &'static str, value: String, why: String },
    #[error("RocksDB option {0} can be changed only in the configuration, for the next start")]
    OnlyAtStart(&'static str),
    #[error("{0}")]
    Contradiction(String),
    #[error("RocksDB refused the change: {0}")]
    Refused(String),
}

/// All options that can be set. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub write_buffer_size: u64,
    pub level0_file_num_compaction_trigger: u64,
    pub level0_slowdown_writes_trigger: u64,
    pub level0_stop_writes_trigger: u64,
    pub max_background_jobs: u64,
    pub max_subcompactions: u64,
    pub target_file_size_base: u64,
    pub target_file_size_multiplier: u64,
    pub max_bytes_for_level_base: u64,
    pub max_bytes_for_level_multiplier: u64,
    /// Maximum bytes of one compaction; 0 means 25 times `target_file_size_base`.
    pub max_compaction_bytes: u64,
    pub soft_pending_compaction_bytes_limit: u64,
    pub hard_pending_compaction_bytes_limit: u64,
    pub compaction_readahead_size: u64,
    /// Maximum bytes per second that compactions write; 0 means no limit.
    pub rate_limiter_bytes_per_sec: u64,
    /// Bits per key of the whole-key bloom filter; 0 turns it off.
    pub bloom_bits: u64,
    pub block_size: u64,
    pub block_cache_size: u64,
    pub bytes_per_sync: u64,
    pub max_open_files: u64,
    pub max_file_opening_threads: u64,
    pub writable_file_max_buffer_size: u64,
    pub optimize_filters_for_hits: bool,
    pub level_compaction_dynamic_level_bytes: bool,
    pub cache_index_and_filter_blocks: bool,
    pub pin_l0_filter_and_index_blocks_in_cache: bool,
    pub disable_auto_compactions: bool,
    pub skip_stats_update_on_db_open: bool,
    pub use_direct_reads: bool,
    pub use_direct_io_for_flush_and_compaction: bool,
    /// Compression from level 0 down. The last entry also applies to the levels after it.
    pub compression_per_level: Vec<Compression>,
    /// Budget of the row cache in bytes; 0 turns it off. Not an option of RocksDB.
    pub row_cache_bytes: u64,
    /// Maximum size of the filter that knows which rows flash lacks, in bytes; 0 turns it off. Not
    /// an option of RocksDB.
    pub row_filter_bytes: u64,
    /// Budget of memtables, row cache and filter together, in bytes. The row cache gets the part
    /// that the others leave. Not an option of RocksDB.
    pub ram_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Lz4,
    Zstd,
}

impl Default for Options {
    /// Returns the options of a store on a small machine, used if nothing is configured.
    fn default() -> Options {
        Options {
            write_buffer_size: 64 * MIB,
            level0_file_num_compaction_trigger: 4,
            level0_slowdown_writes_trigger: 20,
            level0_stop_writes_trigger: 36,
            max_background_jobs: 4,
            max_subcompactions: 2,
            target_file_size_base: 64 * MIB,
            target_file_size_multiplier: 1,
            max_bytes_for_level_base: 256 * MIB,
            max_bytes_for_level_multiplier: 10,
            max_compaction_bytes: 0,
            soft_pending_compaction_bytes_limit: 64 * GIB,
            hard_pending_compaction_bytes_limit: 256 * GIB,
            compaction_readahead_size: 2 * MIB,
            rate_limiter_bytes_per_sec: 0,
            bloom_bits: 10,
            block_size: 8 * KIB,
            block_cache_size: 128 * MIB,
            bytes_per_sync: MIB,
            max_open_files: 4096,
            max_file_opening_threads: 16,
            writable_file_max_buffer_size: MIB,
            optimize_filters_for_hits: false,
            level_compaction_dynamic_level_bytes: true,
            cache_index_and_filter_blocks: true,
            pin_l0_filter_and_index_blocks_in_cache: true,
            disable_auto_compactions: false,
            skip_stats_update_on_db_open: false,
            use_direct_reads: false,
            use_direct_io_for_flush_and_compaction: false,
            compression_per_level: vec![Compression::None, Compression::None, Compression::Lz4],
            row_cache_bytes: 64 * MIB,
            row_filter_bytes: 64 * MIB,
            ram_bytes: u64::MAX,
        }
    }
}

impl Options {
    pub fn profile(name: &str) -> Result<Options, OptionError> {
        let default = Options::default();
        match name {
            "default" => Ok(default),
            // For point accesses to data that is much larger than RAM (RocksDB for Redis on Flash):
            // parallel compactions, level 0 triggers that are far apart, and files past the page
            // cache, so that the process uses as much RAM as maxmemory states. The paper also drops
            // the filters of the last level, because all of its keys are in RAM. Here they are not,
            // and these filters answer reads of absent keys.
            "redis-on-flash" => Ok(Options {
                write_buffer_size: 128 * MIB,
                level0_file_num_compaction_trigger: 2,
                level0_slowdown_writes_trigger: 24,
                level0_stop_writes_trigger: 40,
                max_background_jobs: 16,
                max_subcompactions: 4,
                max_bytes_for_level_base: 512 * MIB,
                use_direct_reads: true,
                use_direct_io_for_flush_and_compaction: true,
                ..default
            }),
            // For bulk loading: writes are rarely slowed down for compaction, and reads are slow
            // until it catches up.
            "bulk" => Ok(Options {
                write_buffer_size: 128 * MIB,
                level0_file_num_compaction_trigger: 8,
                level0_slowdown_writes_trigger: 200,
                level0_stop_writes_trigger: 400,
                max_background_jobs: 8,
                max_subcompactions: 4,
                max_bytes_for_level_base: GIB,
                target_file_size_base: 128 * MIB,
                soft_pending_compaction_bytes_limit: 1 << 40,
                hard_pending_compaction_bytes_limit: 1 << 41,
                ..default
            }),
            _ => Err(OptionError::UnknownProfile(name.to_owned())),
        }
    }

    /// Returns the names of all options that [`Options::set`] accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOBS.iter().map(|knob| knob.name)
    }

    /// Sets an option by its RocksDB name. Numbers may have a [unit](types::parse_size).
    /// `compression_per_level` accepts `none`, `lz4` and `zstd`, separated by `:`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let knob = find(name)?;
        let bad = |why: String| OptionError::BadValue { name: knob.name, value: value.to_owned(), why };
        match knob.access {
            Access::Count { of, min, max } => {
                let number = types::parse_size(value).map_err(|_| bad("not a number".to_owned()))?;
                if number < min || number > max {
                    return Err(bad(format!("not in {min}..={max}")));
                }
                *of(self) = number;
            }
            Access::Size { of, least } => {
                let number = types::parse_size(value).map_err(|_| bad("not a size".to_owned()))?;
                if number < least || number > 1 << 50 {
                    return Err(bad(format!("not in {least}..={}", 1u64 << 50)));
                }
                *of(self) = number;
            }
            Access::Flag(of) => {
                *of(self) = match value {
                    "yes" | "true" | "1" => true,
                    "no" | "false" | "0" => false,
                    _ => return Err(bad("not yes or no".to_owned())),
                }
            }
            Access::Levels => {
                let levels: Option<Vec<_>> = value.split(':').map(Compression::parse).collect();
                self.compression_per_level = levels
                    .filter(|levels| levels.len() <= LEVELS)
                    .ok_or_else(|| bad(format!("not 1 to {LEVELS} of none, lz4, zstd")))?;
            }
        }
        Ok(())
    }

    /// Returns the value of every option, by its name in `CONFIG GET`.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let value = |knob: &Knob| self.get(knob.name).unwrap_or_default();
        KNOBS.iter().map(|knob| (knob.setting, value(knob))).collect()
    }

    /// Returns true if `CONFIG SET` can change the option.
    pub fn can_change(name: &str) -> bool {
        find(name).is_ok_and(|knob| knob.change != Change::AtStart)
    }

    /// Returns the options after a change of several, which an open database permits. The error is
    /// the first reason against it.
    pub fn changed(&self, pairs: &[(String, String)]) -> Result<Options, OptionError> {
        let mut changed = self.clone();
        for (name, value) in pairs {
            let knob = find(name)?;
            if knob.change == Change::AtStart {
                return Err(OptionError::OnlyAtStart(knob.name));
            }
            changed.set(name, value)?;
        }
        changed.check()?;
        Ok(changed)
    }

    /// Checks the options against each other. RocksDB would change some of them silently.
    pub fn check(&self) -> Result<(), OptionError> {
        let ordered = [
            ("level0_file_num_compaction_trigger", self.level0_file_num_compaction_trigger),
            ("level0_slowdown_writes_trigger", self.level0_slowdown_writes_trigger),
            ("level0_stop_writes_trigger", self.level0_stop_writes_trigger),
        ];
        for pair in ordered.windows(2) {
            let [(low_name, low), (high_name, high)] = [pair[0], pair[1]];
            if low > high {
                return Err(OptionError::Contradiction(format!(
                    "{low_name} {low} exceeds {high_name} {high}"
                )));
            }
        }
        let (soft, hard) =
            (self.soft_pending_compaction_bytes_limit, self.hard_pending_compaction_bytes_limit);
        if hard > 0 && soft > hard {
            return Err(OptionError::Contradiction(format!(
                "soft_pending_compaction_bytes_limit {soft} exceeds hard_pending_compaction_bytes_limit {hard}"
            )));
        }
        Ok(())
    }

    /// Returns the changes from `before` as `SetOptions` takes them.
    pub(crate) fn set_options_since(&self, before: &Options) -> Vec<(&'static str, String)> {
        let changed = KNOBS.iter().filter(|knob| self.get(knob.name) != before.get(knob.name));
        changed
            .filter_map(|knob| {
                let value = self.get(knob.name).ok()?;
                let flag = |value: &str| if value == "yes" { "true" } else { "false" }.to_owned();
                match (knob.change, &knob.access) {
                    // RocksDB shows 25 times the file size, and takes no 0 here.
                    (Change::SetOptions, _) if knob.name == "max_compaction_bytes" => {
                        Some((knob.name, self.compaction_bytes().to_string()))
                    }
                    (Change::SetOptions, Access::Flag(_)) => Some((knob.name, flag(&value))),
                    (Change::SetOptions, _) => Some((knob.name, value)),
                    (Change::Table, _) => {
                        Some(("block_based_table_factory", format!("{{{}={value};}}", knob.name)))
                    }
                    (Change::Here | Change::AtStart, _) => None,
                }
            })
            .collect()
    }

    fn compaction_bytes(&self) -> u64 {
        match self.max_compaction_bytes {
            0 => self.target_file_size_base.saturating_mul(25),
            bytes => bytes,
        }
    }

    pub fn get(&self, name: &str) -> Result<String, OptionError> {
        let mut copy = self.clone();
        Ok(match find(name)?.access {
            Access::Count { of, .. } | Access::Size { of, .. } => of(&mut copy).to_string(),
            Access::Flag(of) => if *of(&mut copy) { "yes" } else { "no" }.to_owned(),
            Access::Levels => {
                let names: Vec<_> = self.compression_per_level.iter().map(|c| c.name()).collect();
                names.join(":")
            }
        })
    }

    /// Returns these options with memtables and a row cache that take at most `bytes` together. A
    /// memtable gets a third of it, because one is flushed while the next one fills. The tree keeps
    /// its proportions to the memtable: a level 1 that is large compared with level 0 would be
    /// rewritten for each small flush, and a compaction reads ahead in each of its files.
    pub fn with_ram(mut self, bytes: u64) -> Options {
        let was = self.write_buffer_size;
        self.write_buffer_size = (bytes / MEMTABLE_PART).clamp(MIB, MEMTABLE_BYTES_MAX);
        let resize = |size: u64| (size as u128 * self.write_buffer_size as u128 / was as u128) as u64;
        self.max_bytes_for_level_base = resize(self.max_bytes_for_level_base).max(4 * MIB);
        for (size, least) in
            [(&mut self.target_file_size_base, MIB), (&mut self.compaction_readahead_size, 64 * KIB)]
        {
            *size = resize(*size).clamp(least, *size);
        }
        (self.row_cache_bytes, self.ram_bytes) = (bytes, bytes);
        self.row_filter_bytes = bytes / FILTER_PART;
        self
    }

    /// Returns the memory that full memtables and caches take, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let memtables = self.write_buffer_size.saturating_mul(2);
        let rows = memtables.saturating_add(self.row_cache_bytes).min(self.ram_bytes.max(memtables));
        rows.saturating_add(self.block_cache_size)
    }

    /// Multiplies every size by one factor in (0, 1], so that a small data set flushes and compacts
    /// as a large one does. Each size has a minimum, below which a tree would be mostly overhead.
    pub fn scaled(mut self, data_factor: f64) -> Options {
        assert!(data_factor > 0.0 && data_factor <= 1.0, "a data factor shrinks");
        for knob in KNOBS {
            if let Access::Size { of, least } = knob.access {
                let size = of(&mut self);
                *size = ((*size as f64 * data_factor) as u64).max(least).min(*size);
            }
        }
        self
    }

    /// Returns the format of files that memtables are flushed into. They go to level 0, or lower if
    /// they overlap no other file.
    pub(crate) fn flush_format(&self) -> sst::Format {
        self.format_of(self.compression_of(0))
    }

    /// Returns the format of a snapshot's files, which go to the last level if they can.
    pub(crate) fn snapshot_format(&self) -> sst::Format {
        self.format_of(self.compression_of(LEVELS - 1))
    }

    fn compression_of(&self, level: usize) -> Compression {
        let levels = &self.compression_per_level;
        levels.get(level).or(levels.last()).copied().unwrap_or(Compression::None)
    }

    fn format_of(&self, compression: Compression) -> sst::Format {
        sst::Format {
            block_bytes: self.block_size,
            bloom_bits: self.bloom_bits as f64,
            bytes_per_sync: self.bytes_per_sync,
            format_version: FORMAT_VERSION,
            compression: match compression {
                Compression::None => sst::Compression::None,
                Compression::Lz4 => sst::Compression::Lz4,
                Compression::Zstd => sst::Compression::Zstd,
            },
            stays_in_page_cache: true,
            direct_writes: self.use_direct_io_for_flush_and_compaction,
        }
    }

    pub(crate) fn to_rocksdb(&self, cache: &rocksdb::Cache) -> rocksdb::Options {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(size(self.write_buffer_size));
        options.set_level_zero_file_num_compaction_trigger(int(self.level0_file_num_compaction_trigger));
        options.set_level_zero_slowdown_writes_trigger(int(self.level0_slowdown_writes_trigger));
        options.set_level_zero_stop_writes_trigger(int(self.level0_stop_writes_trigger));
        options.set_max_background_jobs(int(self.max_background_jobs));
        options.set_max_subcompactions(int(self.max_subcompactions) as u32);
        options.set_target_file_size_base(self.target_file_size_base);
        options.set_target_file_size_multiplier(int(self.target_file_size_multiplier));
        options.set_max_compaction_bytes(self.compaction_bytes());
        options.set_max_bytes_for_level_base(self.max_bytes_for_level_base);
        options.set_max_bytes_for_level_multiplier(self.max_bytes_for_level_multiplier as f64);
        options.set_soft_pending_compaction_bytes_limit(size(self.soft_pending_compaction_bytes_limit));
        options.set_hard_pending_compaction_bytes_limit(size(self.hard_pending_compaction_bytes_limit));
        options.set_compaction_readahead_size(size(self.compaction_readahead_size));
        options.set_bytes_per_sync(self.bytes_per_sync);
        options.set_max_open_files(int(self.max_open_files));
        options.set_max_file_opening_threads(int(self.max_file_opening_threads));
        options.set_writable_file_max_buffer_size(self.writable_file_max_buffer_size);
        options.set_skip_stats_update_on_db_open(self.skip_stats_update_on_db_open);
        if self.rate_limiter_bytes_per_sec > 0 {
            let rate = i64::try_from(self.rate_limiter_bytes_per_sec).unwrap_or(i64::MAX);
            options.set_ratelimiter(rate, RATE_PERIOD_US, RATE_FAIRNESS);
        }
        options.set_optimize_filters_for_hits(self.optimize_filters_for_hits);
        options.set_level_compaction_dynamic_level_bytes(self.level_compaction_dynamic_level_bytes);
        options.set_disable_auto_compactions(self.disable_auto_compactions);
        options.set_use_direct_reads(self.use_direct_reads);
        options.set_use_direct_io_for_flush_and_compaction(self.use_direct_io_for_flush_and_compaction);
        options.set_num_levels(LEVELS as i32);
        let levels: Vec<_> = (0..LEVELS).map(|level| self.compression_of(level).to_rocksdb()).collect();
        options.set_compression_per_level(&levels);
        // RocksDB's text log has only the options at the start. A line behind one that could not be
        // written, because the device was full for a moment, would end the process in builds of
        // RocksDB with assertions, such as Debian's. Failures are also returned by calls.
        options.set_log_level(rocksdb::LogLevel::Header);
        // Each start begins another one.
        options.set_keep_log_file_num(4);

        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_size(size(self.block_size));
        table.set_block_cache(cache);
        table.set_cache_index_and_filter_blocks(self.cache_index_and_filter_blocks);
        table.set_pin_l0_filter_and_index_blocks_in_cache(self.pin_l0_filter_and_index_blocks_in_cache);
        table.set_format_version(FORMAT_VERSION as i32);
        if self.bloom_bits > 0 {
            table.set_bloom_filter(self.bloom_bits as f64, false);
            table.set_whole_key_filtering(true);
        }
        // The cache has many shards, and holds no block that is larger than one of them. The whole
        // filter of a file would be read again for each look-up.
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_partition_filters(true);
        table.set_metadata_block_size(PARTITION_BYTES);
        table.set_pin_top_level_index_and_filter(true);
        options.set_block_based_table_factory(&table);
        options
    }
}

impl Compression {
    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    fn parse(name: &str) -> Option<Compression> {
        Compression::ALL.into_iter().find(|c| c.name() == name)
    }

    fn to_rocksdb(self) -> DBCompressionType {
        match self {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
            Compression::Zstd => DBCompressionType::Zstd,
        }
    }
}

fn find(name: &str) -> Result<&'static Knob, OptionError> {
    KNOBS.iter().find(|knob| knob.name == name).ok_or_else(|| OptionError::UnknownName(name.to_owned()))
}

/// Converts to a C `int`. The fields are public, so a larger value is clamped rather than wrapped.
fn int(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_can_be_set_to_what_it_is() {
        for profile in ["default", "redis-on-flash", "bulk"] {
            let options = Options::profile(profile).unwrap();
            let mut again = Options::default();
            for name in Options::names() {
                again.set(name, &options.get(name).unwrap()).unwrap();
            }
            assert_eq!(again, options, "{profile}");
        }
    }

    #[test]
    fn unknown_names_and_bad_values_are_named() {
        let mut options = Options::default();
        assert_eq!(
            options.set("wriet_buffer_size", "1"),
            Err(OptionError::UnknownName("wriet_buffer_size".into()))
        );
        assert!(matches!(Options::profile("fast"), Err(OptionError::UnknownProfile(_))));
        for (name, value) in [
            ("write_buffer_size", "12x"),
            ("write_buffer_size", "1"),
            ("write_buffer_size", "99999999999gb"),
            ("max_background_jobs", "0"),
            ("optimize_filters_for_hits", "perhaps"),
            ("compression_per_level", "lz4:gzip"),
            ("compression_per_level", "lz4:lz4:lz4:lz4:lz4:lz4:lz4:lz4"),
        ] {
            let error = options.set(name, value).unwrap_err();
            assert!(matches!(error, OptionError::BadValue { .. }), "{name}={value}");
        }
        assert_eq!(options, Options::default());
    }

    #[test]
    fn only_consistent_changes_of_options_that_can_change_are_accepted() {
        let options = Options::default();
        let change = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> =
                pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            options.changed(&pairs)
        };
        let stop = [("level0_stop_writes_trigger", "60"), ("level0_slowdown_writes_trigger", "40")];
        let changed = change(&stop).unwrap();
        assert_eq!(
            changed.set_options_since(&options),
            [
                ("level0_slowdown_writes_trigger", "40".to_owned()),
                ("level0_stop_writes_trigger", "60".into())
            ]
        );
        assert!(matches!(change(&stop[1..]), Err(OptionError::Contradiction(_))));
        assert_eq!(change(&[("max_open_files", "100")]), Err(OptionError::OnlyAtStart("max_open_files")));
        assert!(Options::can_change("block_size") && !Options::can_change("bytes_per_sync"));
        for profile in ["default", "redis-on-flash", "bulk"] {
            assert_eq!(Options::profile(profile).unwrap().check(), Ok(()), "{profile}");
        }
    }

    #[test]
    fn one_factor_shrinks_the_sizes_and_nothing_else() {
        let full = Options::default();
        let small = full.clone().scaled(1.0 / 64.0);
        assert_eq!(small.write_buffer_size, MIB);
        assert_eq!(small.max_bytes_for_level_base, 4 * MIB);
        assert_eq!(small.level0_stop_writes_trigger, full.level0_stop_writes_trigger);
        assert_eq!(full.clone().scaled(1e-9).write_buffer_size, 64 * KIB);
        let off = Options { row_cache_bytes: 0, ..full };
        assert_eq!(off.scaled(0.5).row_cache_bytes, 0);
    }

    #[test]
    fn the_ram_tier_fits_and_what_depends_on_a_memtable_s_size_keeps_its_proportion() {
        for profile in ["default", "redis-on-flash", "bulk"] {
            let full = Options::profile(profile).unwrap();
            for ram in
                [MEMTABLE_PART * full.write_buffer_size / 4, MEMTABLE_PART * full.write_buffer_size * 2]
            {
                let fitted = full.clone().with_ram(ram);
                assert_eq!(fitted.write_buffer_size, ram / MEMTABLE_PART);
                assert_eq!(fitted.memory_bytes() - fitted.block_cache_size, ram);
                let proportion =
                    |options: &Options| options.max_bytes_for_level_base / options.write_buffer_size;
                assert_eq!(proportion(&fitted), proportion(&full));
                assert!(fitted.target_file_size_base <= full.target_file_size_base);
            }
            assert_eq!(full.clone().with_ram(1).write_buffer_size, MIB);
            assert_eq!(full.clone().with_ram(1 << 40).write_buffer_size, MEMTABLE_BYTES_MAX);
        }
    }
}
