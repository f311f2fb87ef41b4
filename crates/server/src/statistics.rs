//! The costs of the commands of this store's clients: numbers and times by command, the slow log,
//! and the slow moments that `LATENCY` shows.
//!
//! The time of a command is the one for which its client waited for the store: from the moment at
//! which the store took the command to its answer, with replication, syncs and reads from flash,
//! without the network to the client. Commands that arrive together and are answered together have
//! the same time.

pub mod commands;
pub mod slow_log;

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use command::transaction::sent_commands;
use command::{flags, CommandSpec};
use node::Item;
use parking_lot::Mutex;
use storage::KeyCounts;

use crate::connections::ClientEntry;
use crate::metrics::Metrics;
use crate::slow_moments::{SlowMoments, COMMAND, FAST_COMMAND};
use crate::statistics_settings::StatisticsSettings;
use commands::CommandTimes;
use slow_log::{SlowCommand, SlowLog};

pub struct Statistics {
    pub commands: CommandTimes,
    pub slow_log: SlowLog,
    pub latency: Arc<SlowMoments>,
    /// The totals of the last reset.
    before_reset: Mutex<Totals>,
}

/// Totals of clients, which `INFO stats` counts from the last `CONFIG RESETSTAT` on. The metrics
/// themselves never go back.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub connections: u64,
    pub rejected_connections: u64,
    pub commands: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Number of reads from clients' sockets, and of writes to them.
    pub reads: u64,
    pub writes: u64,
    pub evicted_clients: u64,
    pub snapshots_sent: u64,
    pub keys: KeyCounts,
}

impl Totals {
    fn since_start(metrics: &Metrics, snapshots_sent: u64) -> Totals {
        Totals {
            connections: metrics.connections_accepted.get(),
            rejected_connections: metrics.connections_rejected.get(),
            commands: metrics.commands.get(),
            bytes_in: metrics.client_bytes_in.load(Ordering::Relaxed),
            bytes_out: metrics.client_bytes_out.load(Ordering::Relaxed),
            reads: metrics.client_reads.load(Ordering::Relaxed),
            writes: metrics.client_writes.load(Ordering::Relaxed),
            evicted_clients: metrics.clients_given_up.get(),
            snapshots_sent,
            keys: metrics.keys.get(),
        }
    }

    fn without(self, earlier: Totals) -> Totals {
        Totals {
            connections: self.connections.saturating_sub(earlier.connections),
            rejected_connections: self.rejected_connections.saturating_sub(earlier.rejected_connections),
            commands: self.commands.saturating_sub(earlier.commands),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            evicted_clients: self.evicted_clients.saturating_sub(earlier.evicted_clients),
            snapshots_sent: self.snapshots_sent.saturating_sub(earlier.snapshots_sent),
            keys: KeyCounts {
                hits: self.keys.hits.saturating_sub(earlier.keys.hits),
                misses: self.keys.misses.saturating_sub(earlier.keys.misses),
                expired: self.keys.expired.saturating_sub(earlier.keys.expired),
            },
        }
    }
}

impl Statistics {
    /// Creates statistics for a number of loops.
    pub fn new(loops: usize, settings: &StatisticsSettings, latency: Arc<SlowMoments>) -> Statistics {
        let statistics = Statistics {
            commands: CommandTimes::new(loops),
            slow_log: SlowLog::default(),
            latency,
            before_reset: Mutex::default(),
        };
        statistics.configure(settings);
        statistics
    }

    /// Resets the statistics that `CONFIG RESETSTAT` resets in Redis. `snapshots_sent` is the
    /// number since the start.
    pub fn reset(&self, metrics: &Metrics, snapshots_sent: u64) {
        self.commands.reset();
        *self.before_reset.lock() = Totals::since_start(metrics, snapshots_sent);
    }

    /// Returns the totals since the last reset. `snapshots_sent` is the number since the start.
    pub fn totals(&self, metrics: &Metrics, snapshots_sent: u64) -> Totals {
        let earlier = *self.before_reset.lock();
        Totals::since_start(metrics, snapshots_sent).without(earlier)
    }

    /// Adopts changed settings.
    pub fn configure(&self, settings: &StatisticsSettings) {
        self.slow_log.configure(settings.slow_log);
        self.latency.set_threshold(settings.latency_threshold_ms);
        self.commands.set_tracking(settings.tracks_latency);
    }

    /// Returns the time of a beginning if the end is to be compared with it. Commands that Redis
    /// flags as fast are not measured here unless the limits are low, because a clock costs as much
    /// as a part of them.
    pub fn begin(&self, items: &[Item]) -> Option<Instant> {
        const LOW: Duration = Duration::from_millis(1);
        let limit = self.limit()?;
        let is_measured = limit < LOW || items.iter().any(|item| !item.spec.has(flags::FAST));
        is_measured.then(Instant::now)
    }

    /// Returns the shortest time of a command that is noted.
    fn limit(&self) -> Option<Duration> {
        let (slow, event) = (self.slow_log.limit(), self.latency.limit());
        slow.into_iter().chain(event).min()
    }

    /// Notes commands of a client that were executed together, if they took long.
    pub fn executed(&self, items: &[Item], took: Duration, client: &ClientEntry) {
        if self.limit().is_none_or(|limit| took < limit) {
            return;
        }
        let all: Vec<_> = items.iter().flat_map(|item| sent_commands(item.spec, &item.args)).collect();
        let fast = all.iter().all(|(spec, _)| spec.has(flags::FAST));
        self.latency.note(if fast { FAST_COMMAND } else { COMMAND }, took);
        if self.slow_log.limit().is_none_or(|limit| took < limit) {
            return;
        }
        // Of commands that took the time together, those are shown that can have caused it.
        let is_cause = |(spec, _): &&(&CommandSpec, _)| fast || !spec.has(flags::FAST);
        let most = if fast { 1 } else { slow_log::SHOWN_TOGETHER_MAX };
        for (spec, args) in all.iter().filter(is_cause).take(most) {
            self.slow_log.add(SlowCommand::of(spec, args, took, client));
        }
    }

    /// Notes a command that the store answered itself.
    pub fn executed_own(
        &self,
        spec: &'static CommandSpec,
        args: &[Bytes],
        took: Duration,
        client: &ClientEntry,
    ) {
        if self.limit().is_none_or(|limit| took < limit) {
            return;
        }
        self.latency.note(if spec.has(flags::FAST) { FAST_COMMAND } else { COMMAND }, took);
        if self.slow_log.limit().is_some_and(|limit| took >= limit) {
            self.slow_log.add(SlowCommand::of(spec, args, took, client));
        }
    }
}
