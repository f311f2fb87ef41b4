//! The table of options: their names, the values that they accept, and when a change takes effect.

use super::{Options, GIB, KIB};

/// Access to an option's field. The variant for sizes marks the options that shrink with the data.
pub(super) enum Access {
    Count { of: fn(&mut Options) -> &mut u64, min: u64, max: u64 },
    Size { of: fn(&mut Options) -> &mut u64, least: u64 },
    Flag(fn(&mut Options) -> &mut bool),
    Levels,
}

/// The way in which a change of an option takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// At the next start. RocksDB cannot change the option of an open database, or can do so only
    /// through `SetDBOptions`, which its C interface does not have.
    AtStart,
    /// At once, through RocksDB's `SetOptions`.
    SetOptions,
    /// At once, through `SetOptions` as part of `block_based_table_factory`. Existing files stay as
    /// they are.
    Table,
    /// At once, in this process alone.
    Here,
}

pub(super) struct Knob {
    pub name: &'static str,
    /// The name in `CONFIG GET` and `CONFIG SET`.
    pub setting: &'static str,
    pub access: Access,
    pub change: Change,
}

/// Maximum of a C `int`, the type of RocksDB's counts.
const INT_MAX: u64 = i32::MAX as u64;

macro_rules! knob {
    ($field:ident, $change:ident, $access:expr) => {
        Knob {
            name: stringify!($field),
            setting: concat!("rocksdb.", stringify!($field)),
            access: $access,
            change: Change::$change,
        }
    };
}

macro_rules! count {
    ($field:ident, $min:expr, $max:expr, $change:ident) => {
        knob!($field, $change, Access::Count { of: |o| &mut o.$field, min: $min, max: $max })
    };
}

macro_rules! size {
    ($field:ident, $least:expr, $change:ident) => {
        knob!($field, $change, Access::Size { of: |o| &mut o.$field, least: $least })
    };
}

macro_rules! flag {
    ($field:ident, $change:ident) => {
        knob!($field, $change, Access::Flag(|o| &mut o.$field))
    };
}

pub(super) static KNOBS: &[Knob] = &[
    size!(write_buffer_size, 64 * KIB, SetOptions),
    count!(level0_file_num_compaction_trigger, 1, INT_MAX, SetOptions),
    count!(level0_slowdown_writes_trigger, 1, INT_MAX, SetOptions),
    count!(level0_stop_writes_trigger, 1, INT_MAX, SetOptions),
    count!(max_background_jobs, 1, 1024, AtStart),
    count!(max_subcompactions, 1, 1024, AtStart),
    size!(target_file_size_base, 64 * KIB, SetOptions),
    count!(target_file_size_multiplier, 1, 100, SetOptions),
    size!(max_bytes_for_level_base, 256 * KIB, SetOptions),
    count!(max_bytes_for_level_multiplier, 2, 1000, SetOptions),
    size!(max_compaction_bytes, 0, SetOptions),
    size!(soft_pending_compaction_bytes_limit, 0, SetOptions),
    size!(hard_pending_compaction_bytes_limit, 0, SetOptions),
    count!(compaction_readahead_size, 0, GIB, AtStart),
    count!(rate_limiter_bytes_per_sec, 0, 1 << 40, AtStart),
    count!(bloom_bits, 0, 100, AtStart),
    count!(block_size, KIB, 4 * GIB - 1, Table),
    size!(block_cache_size, 64 * KIB, Here),
    count!(bytes_per_sync, 0, 1 << 40, AtStart),
    count!(max_open_files, 16, INT_MAX, AtStart),
    count!(max_file_opening_threads, 1, 1024, AtStart),
    count!(writable_file_max_buffer_size, 4 * KIB, GIB, AtStart),
    flag!(optimize_filters_for_hits, AtStart),
    flag!(level_compaction_dynamic_level_bytes, AtStart),
    flag!(cache_index_and_filter_blocks, AtStart),
    flag!(pin_l0_filter_and_index_blocks_in_cache, AtStart),
    flag!(disable_auto_compactions, SetOptions),
    flag!(skip_stats_update_on_db_open, AtStart),
    flag!(use_direct_reads, AtStart),
    flag!(use_direct_io_for_flush_and_compaction, AtStart),
    knob!(compression_per_level, AtStart, Access::Levels),
    size!(row_cache_bytes, 0, Here),
    size!(row_filter_bytes, 0, AtStart),
];
