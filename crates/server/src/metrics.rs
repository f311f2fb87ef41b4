//! The counters and timers of a store: Prometheus text for scraping, quantiles for `ctl` and the
//! demo.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::admin::{StageRow, WindowRow};
use cluster::Quarantine;
use hdrhistogram::Histogram as Quantiles;
use parking_lot::Mutex;
use placement::{Capability, Cpu, Spread};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{exponential_buckets, Histogram};
use prometheus_client::registry::{Registry, Unit};
use storage::KeyCounts;
use types::{RegionId, UnixMillis, Version};

use crate::slow_moments::{SlowMoments, LOG_SYNC};
use crate::snapshot;
use crate::wall_clock::WallClock;

/// One step of a command's way through the store, timed in microseconds.
pub struct LatencyHistogram {
    name: &'static str,
    exported: Histogram,
    all: Mutex<Quantiles<u64>>,
}

impl LatencyHistogram {
    fn new(registry: &mut Registry, name: &'static str, help: &'static str) -> LatencyHistogram {
        // From 20 microseconds to about 20 s.
        let exported = Histogram::new(exponential_buckets(20e-6, 2.0, 20));
        registry.register_with_unit(name, help, Unit::Seconds, exported.clone());
        LatencyHistogram { name, exported, all: Mutex::new(quantiles()) }
    }

    pub fn record(&self, took: Duration) {
        self.exported.observe(took.as_secs_f64());
        self.all.lock().saturating_record(took.as_micros() as u64);
    }

    fn row(&self) -> StageRow {
        let all = self.all.lock();
        StageRow {
            stage: self.name.to_owned(),
            count: all.len(),
            mean_us: all.mean(),
            p50_us: all.value_at_quantile(0.5),
            p99_us: all.value_at_quantile(0.99),
            max_us: all.max(),
        }
    }
}

/// Reads of clients that wait for flash: those under way, and the time that they took.
pub struct ColdReads {
    histogram: LatencyHistogram,
    in_flight: Gauge,
}

/// Reads of one client that wait for flash.
pub struct ColdRead<'a> {
    of: &'a ColdReads,
    began: Instant,
}

impl ColdReads {
    fn new(registry: &mut Registry) -> ColdReads {
        let help = "From a client's first read that RAM cannot answer to the answers from flash";
        let histogram = LatencyHistogram::new(registry, "cold_read", help);
        let in_flight = Gauge::default();
        let help = "Clients whose reads wait for flash now";
        registry.register("cold_reads_in_flight", help, in_flight.clone());
        ColdReads { histogram, in_flight }
    }

    pub fn begin(&self) -> ColdRead<'_> {
        self.in_flight.inc();
        ColdRead { of: self, began: Instant::now() }
    }

    pub fn in_flight(&self) -> i64 {
        self.in_flight.get()
    }

    pub fn row(&self) -> StageRow {
        self.histogram.row()
    }
}

impl ColdRead<'_> {
    /// Ends the wait, and records it if flash was needed.
    pub fn end(self, misses: u64) {
        if misses > 0 {
            self.of.histogram.record(self.began.elapsed());
        }
    }
}

impl Drop for ColdRead<'_> {
    fn drop(&mut self) {
        self.of.in_flight.dec();
    }
}

/// Returns quantiles up to 100 s, in microseconds, with two significant digits.
fn quantiles() -> Quantiles<u64> {
    Quantiles::new_with_bounds(1, 100_000_000, 2).expect("constant bounds are valid")
}

/// Rate and latency over the last one to two seconds, from two alternating windows.
struct Recent {
    current: Quantiles<u64>,
    previous: Quantiles<u64>,
    started: Instant,
    previous_took: Duration,
    /// Bytes from clients and to them, at the beginning of the present window and of the one
    /// before.
    bytes_at_start: [u64; 2],
    bytes_before: [u64; 2],
}

const WINDOW: Duration = Duration::from_secs(1);

impl Recent {
    fn turn(&mut self, now: Instant, bytes: [u64; 2]) {
        let age = now.duration_since(self.started);
        if age < WINDOW {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.reset();
        if age > 2 * WINDOW {
            self.previous.reset();
        }
        self.bytes_before = std::mem::replace(&mut self.bytes_at_start, bytes);
        self.previous_took = age;
        self.started = now;
    }
}

/// Counters of keys that commands have looked up or met.
pub struct KeyCounters {
    hits: Counter,
    misses: Counter,
    expired: Counter,
}

impl KeyCounters {
    pub fn add(&self, counts: KeyCounts) {
        for (counter, count) in
            [(&self.hits, counts.hits), (&self.misses, counts.misses), (&self.expired, counts.expired)]
        {
            if count > 0 {
                counter.inc_by(count);
            }
        }
    }

    pub fn get(&self) -> KeyCounts {
        KeyCounts { hits: self.hits.get(), misses: self.misses.get(), expired: self.expired.get() }
    }
}

/// Bytes that a loop has read from clients' sockets, and has written to them.
#[derive(Default)]
pub struct Traffic {
    pub reads: u64,
    pub writes: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

pub struct Metrics {
    registry: Registry,
    pub log_sync: LatencyHistogram,
    pub apply: LatencyHistogram,
    pub command: LatencyHistogram,
    pub groups_turn: LatencyHistogram,
    pub cold_reads: ColdReads,
    pub commands: Counter,
    pub keys: KeyCounters,
    pub log_syncs: Counter,
    pub log_batches: Counter,
    pub log_batches_of_loop: Counter,
    pub log_bytes: Counter,
    pub log_device_bytes: Counter,
    pub entries_applied: Counter,
    pub entries_applied_in_ram: Counter,
    pub rows_not_in_ram: Counter,
    pub rows_bytes_written: Counter,
    pub rows_read_ahead: Counter,
    pub rows_read_ahead_used: Counter,
    pub reads_by_lease: Counter,
    pub writes_of_nothing: Counter,
    pub reads_by_read_index: Counter,
    pub weak_read_questions: Counter,
    pub weak_reads_refused: Counter,
    pub forwarded: Counter,
    pub unknown_outcomes: Counter,
    pub raft_messages_sent: Counter,
    pub raft_messages_dropped: Counter,
    pub raft_messages_refused: Counter,
    pub log_damages: Counter,
    pub elections_stood: Counter,
    pub raft_appends_put_off: Counter,
    pub raft_entry_bytes_sent: Counter,
    pub chained_appends: Counter,
    pub chained_bytes: Counter,
    pub relayed_appends: Counter,
    pub relayed_bytes: Counter,
    pub chain_fallbacks: Counter,
    pub pauses: Counter,
    pub connections_accepted: Counter,
    pub connections_rejected: Counter,
    pub output_limit_ends: Counter,
    pub clients_given_up: Counter,
    pub checksums: Counter,
    pub checksum_bytes: Counter,
    pub checks_equal: Counter,
    pub checks_different: Counter,
    pub quarantines: Counter,
    /// By region, with the entry at which each peer is quarantined.
    quarantined: Family<Vec<(&'static str, String)>, Gauge>,
    windows: Family<Vec<(&'static str, String)>, Gauge>,
    quarantined_regions: Gauge,
    pub connections: Gauge,
    pub leaders: Gauge,
    pub zookeeper_session: Gauge,
    pub peers_encrypted: Gauge,
    pub data_key: Gauge,
    pub outdated_bytes: Gauge,
    pub insecure_peers: Gauge,
    cluster_version: Gauge,
    unclean_peers: Gauge,
    incomplete_regions: Gauge,
    accepted_losses: Gauge,
    capability: [Gauge<f64, AtomicU64>; CAPABILITY.len()],
    /// In the order of `CPU`.
    cpu: [Gauge<f64, AtomicU64>; CPU.len()],
    /// In the order of `CLOCK`.
    clock: [Gauge<f64, AtomicU64>; CLOCK.len()],
    device: [Gauge<f64, AtomicU64>; DEVICE.len()],
    /// In the order of `RECOVERIES`.
    recoveries: [Gauge<f64, AtomicU64>; RECOVERIES.len()],
    /// In the order of `SNAPSHOTS`.
    snapshots: [Counter; SNAPSHOTS.len()],
    /// In the order of `ENGINE_COUNTERS` and `ENGINE_GAUGES`.
    engine: ([Counter; ENGINE_COUNTERS.len()], [Gauge; ENGINE_GAUGES.len()]),
    recent: Mutex<Recent>,
    /// The moments that `LATENCY` shows.
    pub slow_moments: Arc<SlowMoments>,
    pub started: Instant,
    pub client_bytes_in: AtomicU64,
    pub client_bytes_out: AtomicU64,
    /// Number of reads from clients' sockets, and of writes to them.
    pub client_reads: AtomicU64,
    pub client_writes: AtomicU64,
}

/// Counters of the snapshot service.
const SNAPSHOTS: [(&str, &str); 9] = [
    ("snapshots_made", "Snapshots of regions made"),
    ("snapshots_failed", "Snapshots that were not made, or not sent completely"),
    ("snapshots_sent", "Snapshots sent to other stores"),
    ("snapshots_received", "Snapshots received completely"),
    ("snapshots_refused", "Offers of snapshots that were refused"),
    ("snapshots_damaged", "Frames and files of snapshots with a wrong checksum"),
    ("snapshots_applied", "Snapshots that replaced a region's rows"),
    ("snapshot_bytes_sent", "Bytes of snapshots sent"),
    ("snapshot_bytes_received", "Bytes of snapshots received"),
];

/// Counters of the RAM tier and of RocksDB.
const ENGINE_COUNTERS: [(&str, &str); 10] = [
    ("row_cache_hits", "Rows found in the row cache"),
    ("row_cache_misses", "Rows read from RocksDB because the row cache did not hold them"),
    ("block_cache_hits", "Table blocks found in RocksDB's block cache"),
    ("block_cache_misses", "Table blocks read from the device"),
    ("write_stall_micros", "Microseconds for which writes and flushes waited for compaction"),
    ("write_delay_micros", "Microseconds for which writes waited for the flush under way"),
    ("flush_bytes", "Bytes that flushes wrote to the device"),
    ("compaction_write_bytes", "Bytes that compactions wrote to the device"),
    ("compaction_read_bytes", "Bytes that compactions read"),
    ("ingested_bytes", "Bytes of the files of snapshots that were received"),
];

const ENGINE_GAUGES: [(&str, &str); 11] = [
    ("row_cache_bytes", "Bytes in the row cache"),
    ("row_filter_bytes", "Bytes of the filter that knows which rows flash lacks"),
    ("row_filter_rows", "Rows that the filter of rows has learnt, deleted ones included"),
    ("row_filter_slots", "Slots for which the filter of rows gives answers"),
    ("memtable_bytes", "Bytes of memtables"),
    ("table_bytes", "Bytes of live tables"),
    ("level0_files", "Tables in level 0"),
    ("compaction_pending_bytes", "Bytes that RocksDB estimates it has yet to compact"),
    ("compactions_running", "Compactions in progress"),
    ("writes_stopped", "1 while RocksDB stops all writes"),
    (
        "compaction_debt_percent",
        "The way from RocksDB's slowdown triggers, 0, to its stop triggers, 100; flushes slow down on it",
    ),
];

const CAPABILITY: [(&str, &str); 4] = [
    (
        "capability_bytes_per_s",
        "Bytes of keys and values per second, as placement counts this store; 1: unknown",
    ),
    ("capability_correction", "The factor on the configured or measured capability"),
    ("capability_spread", "The factor within which the capability is known; 1: configured, 0: unknown"),
    ("device_ratio", "The device's time relative to its measured time; 0: unknown"),
];

const CPU: [(&str, &str); 3] = [
    ("cpu_cores", "Cores that this store may use; 0: the CPU gauges are unknown"),
    ("cpu_busy_ratio", "The busy share of them, by any process, over about 10 s"),
    ("cpu_own_cores", "Cores that this store's process uses, over about 10 s"),
];

const CLOCK: [(&str, &str); 4] = [
    (
        "clock_offset_seconds",
        "This store's wall clock minus the median of the stores' clocks; 0: no other clock",
    ),
    ("clock_off", "1 while the wall clock is too far from the median, so the store should not lead"),
    ("clocks_compared", "Stores whose clocks were heard lately, this one included"),
    ("region_time_ahead_seconds", "Maximum time by which a region led here is ahead of the clock"),
];

const DEVICE: [(&str, &str); 3] = [
    ("device_hanging", "1 while the device does not answer, and the store is not to lead"),
    (
        "device_log_wait_seconds",
        "How long the oldest write or sync of the Raft log has waited for its answer",
    ),
    ("device_read_wait_seconds", "How long the oldest read of a row has waited for its answer"),
];

const RECOVERIES: [(&str, &str); 2] = [
    (
        "recovered_regions",
        "Regions with a peer here that went on from one survivor's log, by an operator's order",
    ),
    ("last_recovery_timestamp_seconds", "When the latest of these orders was given, in Unix time; 0: never"),
];

/// Maximum number of quarantined regions that are shown one by one.
const QUARANTINED_SHOWN: usize = 64;

impl Metrics {
    /// Sets whether the device hangs, and the time for which the log and a read have waited for it.
    pub fn set_device(&self, hangs: bool, log_waited: Duration, read_waited: Duration) {
        let values = [f64::from(u8::from(hangs)), log_waited.as_secs_f64(), read_waited.as_secs_f64()];
        for (gauge, value) in self.device.iter().zip(values) {
            gauge.set(value);
        }
    }

    /// Sets the gauges of recoveries: the number of regions, and the time of the latest in Unix
    /// milliseconds.
    pub fn set_recoveries(&self, (regions, latest_ms): (usize, UnixMillis)) {
        for (gauge, value) in self.recoveries.iter().zip([regions as f64, latest_ms as f64 / 1000.0]) {
            gauge.set(value);
        }
    }

    /// Sets the gauges of the wall clock.
    pub fn set_clock(&self, wall: &WallClock) {
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let values = [
            seconds(wall.offset_ms().unwrap_or(0)),
            f64::from(u8::from(wall.is_off())),
            wall.clocks_heard() as f64,
            seconds(wall.region_ahead_ms()),
        ];
        for (gauge, value) in self.clock.iter().zip(values) {
            gauge.set(value);
        }
    }

    /// Sets the gauges of quarantined peers.
    pub fn set_quarantined(&self, held: &BTreeMap<RegionId, Quarantine>) {
        self.quarantined_regions.set(held.len() as i64);
        self.quarantined.clear();
        for (region, Quarantine { index, cause, what, error, .. }) in held.iter().take(QUARANTINED_SHOWN) {
            let labels = vec![
                ("region", region.to_string()),
                ("index", index.to_string()),
                ("cause", cause.name().to_owned()),
                ("what", what.clone()),
                ("error", error.clone()),
            ];
            self.quarantined.get_or_create(&labels).set(1);
        }
    }

    /// Sets the gauges of the proposals under way in the regions that this store leads.
    pub fn set_windows(&self, rows: &[WindowRow]) {
        self.windows.clear();
        for row in rows {
            let marks = [
                ("commit", row.commit),
                ("promised", row.promised),
                ("written", row.written),
                ("next", row.next),
            ];
            for (mark, index) in marks {
                let labels = vec![("region", row.region.to_string()), ("mark", mark.to_owned())];
                self.windows.get_or_create(&labels).set(i64::try_from(index).unwrap_or(i64::MAX));
            }
        }
    }

    /// Sets the gauges of the CPU.
    pub fn set_cpu(&self, cpu: Option<Cpu>) {
        let Cpu { cores, busy, own, .. } = cpu.unwrap_or_default();
        for (gauge, value) in self.cpu.iter().zip([cores, busy, own]) {
            gauge.set(value);
        }
    }

    /// Sets the gauges of the capability.
    pub fn set_capability(&self, counts: Capability, correction: f64, spread: Spread, ratio: Option<f64>) {
        let values = [counts.kv_bytes_per_s, correction, spread.kv_bytes_per_s, ratio.unwrap_or_default()];
        for (gauge, value) in self.capability.iter().zip(values) {
            gauge.set(value);
        }
    }

    /// Sets the counters of the snapshot service.
    pub fn set_snapshots(&self, counts: snapshot::Counts) {
        let values = [
            counts.made,
            counts.make_failed + counts.send_failed,
            counts.sent,
            counts.received,
            counts.refused,
            counts.damaged,
            counts.ingested,
            counts.sent_bytes,
            counts.received_bytes,
        ];
        for (counter, value) in self.snapshots.iter().zip(values) {
            counter.inner().store(value, Ordering::Relaxed);
        }
    }

    pub fn set_cluster_version(&self, version: Version) {
        self.cluster_version.set(version.into());
    }

    /// Sets the gauges of the losses that a crash of the machine may have caused: unclean peers,
    /// incomplete regions, accepted losses.
    pub fn set_unsynced(&self, counts: [usize; 3]) {
        let gauges = [&self.unclean_peers, &self.incomplete_regions, &self.accepted_losses];
        for (gauge, count) in gauges.into_iter().zip(counts) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Copies the engine's counters.
    pub fn set_engine(&self, stats: &rocks::Stats) {
        let counts = [
            stats.row_cache_hits,
            stats.row_cache_misses,
            stats.block_cache_hits,
            stats.block_cache_misses,
            stats.stall_micros,
            stats.write_delay_micros,
            stats.flush_bytes,
            stats.compaction_write_bytes,
            stats.compaction_read_bytes,
            stats.ingested_bytes,
        ];
        let values = [
            stats.row_cache_bytes,
            stats.row_filter_bytes,
            stats.row_filter_rows,
            stats.row_filter_slots,
            stats.memtable_bytes,
            stats.live_sst_bytes,
            stats.files_per_level.first().copied().unwrap_or(0),
            stats.compaction_pending_bytes,
            stats.running_compactions,
            u64::from(stats.write_stopped),
            (stats.debt_share.max(0.0) * 100.0) as u64,
        ];
        let (counters, gauges) = &self.engine;
        for (counter, count) in counters.iter().zip(counts) {
            counter.inner().store(count, Ordering::Relaxed);
        }
        for (gauge, value) in gauges.iter().zip(values) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("steelyard");
        let r = &mut registry;
        let log_sync =
            LatencyHistogram::new(r, "log_sync", "Appending one batch to the Raft log and syncing it");
        let apply = LatencyHistogram::new(
            r,
            "apply",
            "Executing one turn's committed entries and writing their rows",
        );
        let command = LatencyHistogram::new(
            r,
            "command",
            "From a request's last byte to its reply, one pipeline batch",
        );
        let groups_turn = LatencyHistogram::new(
            r,
            "groups_turn",
            "CPU time of the Raft groups' thread from one wait to the next",
        );
        let cold_reads = ColdReads::new(r);
        let mut counter = |name: &'static str, help: &'static str| {
            let counter = Counter::default();
            r.register(name, help, counter.clone());
            counter
        };
        let commands = counter("commands", "Commands answered");
        let keys = KeyCounters {
            hits: counter("keyspace_hits", "Keys that existed when commands looked them up for reading"),
            misses: counter(
                "keyspace_misses",
                "Keys that did not exist when commands looked them up for reading",
            ),
            expired: counter(
                "expired_keys",
                "Keys that were deleted because their time had come, in regions led here",
            ),
        };
        let log_syncs = counter("log_syncs", "Syncs of the Raft log");
        let log_batches = counter("log_batches", "Batches written to the Raft log");
        let log_batches_of_loop =
            counter("log_batches_of_loop", "Batches that the first loop has written itself");
        let log_bytes = counter("log_bytes", "Bytes written to the Raft log");
        let log_device_bytes =
            counter("log_device_bytes", "Bytes written to the Raft log's files, with marks and new segments");
        let entries_applied = counter("entries_applied", "Raft entries applied");
        let entries_applied_in_ram =
            counter("entries_applied_in_ram", "Raft entries applied in the worker's thread, from RAM alone");
        let rows_not_in_ram = counter(
            "rows_not_in_ram",
            "Times that entries went to the apply thread because RAM lacked a row",
        );
        let rows_bytes_written = counter("rows_bytes_written", "Bytes of rows handed to RocksDB");
        let rows_read_ahead =
            counter("rows_read_ahead", "Rows prefetched before an entry's commands needed them");
        let rows_read_ahead_used =
            counter("rows_read_ahead_used", "Prefetched rows that a command then needed");
        let reads_by_lease = counter("reads_by_lease", "Reads answered under the leader's lease");
        let writes_of_nothing = counter(
            "writes_of_nothing",
            "Writes answered without an entry of the log, because their keys did not exist",
        );
        let reads_by_read_index = counter("reads_by_read_index", "Reads that needed a ReadIndex round");
        let weak_read_questions = counter(
            "weak_read_questions",
            "Questions to leaders for their applied index, for weak reads with a bound",
        );
        let weak_reads_refused =
            counter("weak_reads_refused", "Weak reads refused because the copy was older than their bound");
        let forwarded = counter("forwarded", "Commands passed to the leader's store");
        let unknown_outcomes = counter("unknown_outcomes", "Commands answered -UNKNOWN");
        let raft_messages_sent = counter("raft_messages_sent", "Raft messages handed to a link");
        let raft_messages_dropped =
            counter("raft_messages_dropped", "Raft messages dropped by a down or full link");
        let raft_messages_refused = counter(
            "raft_messages_refused",
            "Raft messages and announcements dropped because no correct store sends them",
        );
        let elections_stood =
            counter("elections_stood", "Times that ZooKeeper's znodes had a peer of this store campaign");
        let log_damages = counter(
            "log_damages",
            "Times that entries of the Raft log failed their checksum when they were read",
        );
        let pauses = counter("pauses", "Times that this store stood still for a second or longer");
        let raft_appends_put_off =
            counter("raft_appends_put_off", "Appends of other stores put off because the log was behind");
        let raft_entry_bytes_sent =
            counter("raft_entry_bytes_sent", "Bytes of entries in the Raft messages handed to a link");
        let chained_appends = counter(
            "chained_appends",
            "Appends that this store's leaders did not send because a follower passes them on",
        );
        let chained_bytes = counter("chained_bytes", "Bytes of the entries in these appends");
        let relayed_appends = counter("relayed_appends", "Appends passed on for leaders of other stores");
        let relayed_bytes = counter("relayed_bytes", "Bytes of the entries in these appends");
        let chain_fallbacks = counter(
            "chain_fallbacks",
            "Times that a leader returned to sending directly because a follower missed relayed appends",
        );
        let connections_accepted = counter("connections_accepted", "Client connections accepted");
        let connections_rejected = counter("connections_rejected", "Client connections refused");
        let clients_given_up = counter(
            "clients_given_up",
            "Clients closed because they were idle with memory that others waited for",
        );
        let output_limit_ends = counter(
            "output_limit_ends",
            "Clients that were disconnected because their unread replies exceeded client-output-buffer-limit normal",
        );
        let checksums = counter("checksums", "Checksums computed of peers' rows on this store");
        let checksum_bytes = counter("checksum_bytes", "Bytes of rows read for checksums");
        let checks_equal =
            counter("checks_equal", "Checks of regions led here that found all replicas equal");
        let checks_different = counter(
            "checks_different",
            "Checks that found different replicas, of regions led here or with this store in the minority",
        );
        let quarantines = counter("quarantines", "Times that a peer of this store was quarantined");
        let snapshots = SNAPSHOTS.map(|(name, help)| counter(name, help));
        let engine_counters = ENGINE_COUNTERS.map(|(name, help)| counter(name, help));
        let mut gauge = |name: &'static str, help: &'static str| {
            let gauge = Gauge::default();
            r.register(name, help, gauge.clone());
            gauge
        };
        let connections = gauge("connections", "Client connections now");
        let leaders = gauge("leaders", "Regions led by this store");
        let peers_encrypted = gauge("peers_encrypted", "1 if stores use TLS with each other");
        let data_key = gauge(
            "encryption_data_key",
            "Number of the data key that encrypts new files of this store, 0 without encryption at rest",
        );
        let outdated_bytes = gauge(
            "encryption_outdated_bytes",
            "Bytes of files that are plain or have an earlier data key, as of the last search for them",
        );
        let insecure_peers =
            gauge("insecure_peers", "1 if stores may talk without TLS over a network (insecure-peers)");
        let zookeeper_session = gauge("zookeeper_session", "1 while this store has a session with ZooKeeper");
        let cluster_version =
            gauge("cluster_version", "The version of the cluster in which this store writes");
        let unclean_peers = gauge(
            "unclean_peers",
            "Peers of this store that take no part, for they may have forgotten writes: the machine crashed or the \
             log is damaged",
        );
        let incomplete_regions = gauge(
            "incomplete_regions",
            "Regions that this store alone has, and of which a crash of its machine or damage to its log may have lost \
             writes",
        );
        let accepted_losses = gauge(
            "accepted_losses",
            "Peers that take part by an operator's order, whatever they have forgotten",
        );
        let quarantined_regions = gauge("quarantined_regions", "Peers of this store that are quarantined");
        let engine = (engine_counters, ENGINE_GAUGES.map(|(name, help)| gauge(name, help)));
        let mut real = |(name, help): (&'static str, &'static str)| {
            let gauge = Gauge::default();
            r.register(name, help, gauge.clone());
            gauge
        };
        let capability = CAPABILITY.map(&mut real);
        let cpu = CPU.map(&mut real);
        let clock = CLOCK.map(&mut real);
        let device = DEVICE.map(&mut real);
        let recoveries = RECOVERIES.map(&mut real);
        let quarantined = Family::default();
        r.register("quarantined", "A quarantined peer, and the entry at which it is", quarantined.clone());
        let windows = Family::default();
        r.register(
            "region_log_index",
            "The four marks of a led region's proposals: commit, promised, written, next",
            windows.clone(),
        );
        let now = Instant::now();
        let recent = Recent {
            current: quantiles(),
            previous: quantiles(),
            started: now,
            previous_took: WINDOW,
            bytes_at_start: [0; 2],
            bytes_before: [0; 2],
        };
        Metrics {
            log_sync,
            apply,
            command,
            groups_turn,
            cold_reads,
            commands,
            keys,
            log_syncs,
            log_batches,
            log_batches_of_loop,
            log_bytes,
            log_device_bytes,
            entries_applied,
            entries_applied_in_ram,
            rows_not_in_ram,
            rows_bytes_written,
            rows_read_ahead,
            rows_read_ahead_used,
            reads_by_lease,
            writes_of_nothing,
            reads_by_read_index,
            weak_read_questions,
            weak_reads_refused,
            forwarded,
            unknown_outcomes,
            raft_messages_sent,
            raft_messages_dropped,
            raft_messages_refused,
            log_damages,
            elections_stood,
            raft_appends_put_off,
            raft_entry_bytes_sent,
            chained_appends,
            chained_bytes,
            relayed_appends,
            relayed_bytes,
            chain_fallbacks,
            pauses,
            connections_accepted,
            connections_rejected,
            clients_given_up,
            output_limit_ends,
            checksums,
            checksum_bytes,
            checks_equal,
            checks_different,
            quarantines,
            quarantined,
            windows,
            quarantined_regions,
            connections,
            leaders,
            zookeeper_session,
            peers_encrypted,
            data_key,
            outdated_bytes,
            insecure_peers,
            cluster_version,
            unclean_peers,
            incomplete_regions,
            accepted_losses,
            capability,
            cpu,
            clock,
            device,
            recoveries,
            snapshots,
            engine,
            recent: Mutex::new(recent),
            slow_moments: Arc::default(),
            started: now,
            client_bytes_in: AtomicU64::new(0),
            client_bytes_out: AtomicU64::new(0),
            client_reads: AtomicU64::new(0),
            client_writes: AtomicU64::new(0),
            registry,
        }
    }

    /// Adds what a loop has read and written.
    pub fn add_traffic(&self, traffic: Traffic) {
        let Traffic { reads, writes, bytes_in, bytes_out } = traffic;
        for (counter, more) in [
            (&self.client_reads, reads),
            (&self.client_writes, writes),
            (&self.client_bytes_in, bytes_in),
            (&self.client_bytes_out, bytes_out),
        ] {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Records and removes the batches of answered commands: their numbers of commands, and the
    /// time that each batch took.
    pub fn record_commands(&self, batches: &mut Vec<(u64, Duration)>) {
        if batches.is_empty() {
            return;
        }
        self.commands.inc_by(batches.iter().map(|(count, _)| count).sum());
        let mut recent = self.recent.lock();
        recent.turn(Instant::now(), self.client_bytes());
        for (count, took) in batches.drain(..) {
            self.command.record(took);
            recent.current.saturating_record_n(took.as_micros() as u64, count);
        }
    }

    /// Records the time of a sync of the log, or of a write to it that is synced.
    pub fn record_log_sync(&self, took: Duration) {
        self.log_sync.record(took);
        self.slow_moments.note(LOG_SYNC, took);
    }

    /// Returns commands/s and the 99th percentile in microseconds over the last one to two seconds.
    pub fn recent(&self) -> (f64, u64) {
        let mut recent = self.recent.lock();
        recent.turn(Instant::now(), self.client_bytes());
        let seconds = (recent.started.elapsed() + recent.previous_took).as_secs_f64().max(0.5);
        let mut both = recent.previous.clone();
        let _ = both.add(&recent.current);
        (both.len() as f64 / seconds, both.value_at_quantile(0.99))
    }

    /// Returns the bytes/s from clients and to them over the last one to two seconds.
    pub fn recent_bytes(&self) -> [f64; 2] {
        let (now, bytes) = (Instant::now(), self.client_bytes());
        let mut recent = self.recent.lock();
        recent.turn(now, bytes);
        let seconds = (recent.started.elapsed() + recent.previous_took).as_secs_f64().max(0.5);
        std::array::from_fn(|way| bytes[way].saturating_sub(recent.bytes_before[way]) as f64 / seconds)
    }

    fn client_bytes(&self) -> [u64; 2] {
        [&self.client_bytes_in, &self.client_bytes_out].map(|bytes| bytes.load(Ordering::Relaxed))
    }

    pub fn stages(&self) -> Vec<StageRow> {
        let cold_read = &self.cold_reads.histogram;
        let all = [&self.log_sync, &self.apply, &self.command, &self.groups_turn, cold_read];
        all.map(LatencyHistogram::row).to_vec()
    }

    pub fn counters(&self) -> Vec<(String, u64)> {
        let rows: [(&str, u64); 29] = [
            ("commands", self.commands.get()),
            ("log_syncs", self.log_syncs.get()),
            ("log_batches", self.log_batches.get()),
            ("log_bytes", self.log_bytes.get()),
            ("entries_applied", self.entries_applied.get()),
            ("rows_bytes_written", self.rows_bytes_written.get()),
            ("rows_read_ahead", self.rows_read_ahead.get()),
            ("rows_read_ahead_used", self.rows_read_ahead_used.get()),
            ("reads_by_lease", self.reads_by_lease.get()),
            ("writes_of_nothing", self.writes_of_nothing.get()),
            ("reads_by_read_index", self.reads_by_read_index.get()),
            ("weak_read_questions", self.weak_read_questions.get()),
            ("weak_reads_refused", self.weak_reads_refused.get()),
            ("forwarded", self.forwarded.get()),
            ("unknown_outcomes", self.unknown_outcomes.get()),
            ("raft_messages_sent", self.raft_messages_sent.get()),
            ("pauses", self.pauses.get()),
            ("raft_messages_refused", self.raft_messages_refused.get()),
            ("log_damages", self.log_damages.get()),
            ("elections_stood", self.elections_stood.get()),
            ("raft_appends_put_off", self.raft_appends_put_off.get()),
            ("raft_entry_bytes_sent", self.raft_entry_bytes_sent.get()),
            ("chained_appends", self.chained_appends.get()),
            ("chained_bytes", self.chained_bytes.get()),
            ("relayed_appends", self.relayed_appends.get()),
            ("relayed_bytes", self.relayed_bytes.get()),
            ("chain_fallbacks", self.chain_fallbacks.get()),
            ("client_bytes_in", self.client_bytes_in.load(Ordering::Relaxed)),
            ("client_bytes_out", self.client_bytes_out.load(Ordering::Relaxed)),
        ];
        rows.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string succeeds");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_counts_is_told_by_name() {
        let metrics = Metrics::new();
        metrics.set_engine(&rocks::Stats {
            row_cache_hits: 1,
            row_cache_misses: 2,
            block_cache_hits: 3,
            block_cache_misses: 4,
            stall_micros: 5,
            row_cache_bytes: 6,
            row_filter_bytes: 61,
            row_filter_rows: 62,
            row_filter_slots: 63,
            memtable_bytes: 7,
            live_sst_bytes: 8,
            files_per_level: vec![9, 90],
            compaction_pending_bytes: 10,
            running_compactions: 11,
            write_stopped: true,
            write_delay_micros: 12,
            flush_bytes: 13,
            compaction_write_bytes: 14,
            compaction_read_bytes: 15,
            ingested_bytes: 16,
            debt_share: 0.175,
            ..rocks::Stats::default()
        });
        let text = metrics.text();
        for line in [
            "row_cache_hits_total 1",
            "row_cache_misses_total 2",
            "block_cache_hits_total 3",
            "block_cache_misses_total 4",
            "write_stall_micros_total 5",
            "row_cache_bytes 6",
            "row_filter_bytes 61",
            "row_filter_rows 62",
            "row_filter_slots 63",
            "memtable_bytes 7",
            "table_bytes 8",
            "level0_files 9",
            "compaction_pending_bytes 10",
            "compactions_running 11",
            "writes_stopped 1",
            "write_delay_micros_total 12",
            "flush_bytes_total 13",
            "compaction_write_bytes_total 14",
            "compaction_read_bytes_total 15",
            "ingested_bytes_total 16",
            "compaction_debt_percent 17",
        ] {
            assert!(text.contains(&format!("\nsteelyard_{line}\n")), "{line}: {text}");
        }
    }
}
