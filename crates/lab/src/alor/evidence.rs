//! Evidence of what bounded a measurement (CPU, client, devices, compaction), and whether the
//! measurement is void.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use client::table::bytes;

/// The state of a store at one moment. Counters count from the store's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreSample {
    pub store: u64,
    pub device: String,
    pub cpu_s: f64,
    /// CPU seconds by thread name. Of threads that share a name, the largest value counts.
    pub threads_cpu_s: BTreeMap<String, f64>,
    pub device_written_bytes: u64,
    pub device_read_bytes: u64,
    pub device_flushes: u64,
    /// The speeds of the emulated device with the run's speed factor applied. 0 for a real device.
    pub device_write_bytes_per_s: f64,
    pub device_read_bytes_per_s: f64,
    pub device_sync_s: f64,
    pub log_bytes: u64,
    /// Bytes that applied entries handed to RocksDB.
    pub rows_bytes: u64,
    pub compactions: u64,
    pub compaction_bytes: u64,
    pub leaders: u64,
    pub regions: u64,
    pub used_bytes: u64,
}

/// The state of the machine at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    pub at_s: f64,
    /// Busy seconds of all CPUs, whichever process used them, including time that a hypervisor
    /// took.
    pub machine_busy_s: f64,
    pub client_cpu_s: f64,
    pub stores: Vec<StoreSample>,
    /// The number of operators begun so far.
    pub moves: u64,
    /// Log entries by which the peer that lags most is behind.
    pub worst_lag: u64,
}

/// The work of one store between two moments. Shares are parts of the time between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreUse {
    pub store: u64,
    pub device: String,
    pub cpu_s: f64,
    pub write_share: f64,
    pub read_share: f64,
    pub sync_share: f64,
    pub log_bytes: u64,
    pub rows_bytes: u64,
    pub compactions: u64,
    pub compaction_bytes: u64,
    pub leaders: u64,
    pub regions: u64,
    pub used_bytes: u64,
}

impl StoreUse {
    /// Returns the largest of the device's three shares: writes, reads and syncs.
    pub fn device_share(&self) -> f64 {
        self.write_share.max(self.read_share).max(self.sync_share)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub seconds: f64,
    pub cpus: usize,
    pub client_threads: usize,
    pub stores_cpu_s: f64,
    pub client_cpu_s: f64,
    pub machine_busy_s: f64,
    /// The thread of a store that used the largest share of one CPU, and that share.
    pub busiest_thread: Option<(String, f64)>,
    pub stores: Vec<StoreUse>,
    pub moves: u64,
    /// Log entries by which the peer that lags most is behind at the end. The measured figures do
    /// not include that work.
    pub worst_lag: u64,
}

impl Evidence {
    pub fn between(before: &Sample, after: &Sample, cpus: usize, client_threads: usize) -> Evidence {
        let seconds = (after.at_s - before.at_s).max(1e-9);
        let mut busiest: Option<(String, f64)> = None;
        let mut stores = Vec::new();
        for now in &after.stores {
            // A store that is missing from the first sample started in between, with its counters
            // at zero.
            let default = StoreSample::default();
            let then = before.stores.iter().find(|then| then.store == now.store).unwrap_or(&default);
            for (name, cpu) in &now.threads_cpu_s {
                let share = (cpu - then.threads_cpu_s.get(name).unwrap_or(&0.0)) / seconds;
                if busiest.as_ref().is_none_or(|(_, known)| share > *known) {
                    busiest = Some((format!("{name} of store {}", now.store), share));
                }
            }
            let since = |field: fn(&StoreSample) -> u64| field(now).saturating_sub(field(then));
            let share =
                |bytes: u64, per_s: f64| if per_s > 0.0 { bytes as f64 / per_s / seconds } else { 0.0 };
            stores.push(StoreUse {
                store: now.store,
                device: now.device.clone(),
                cpu_s: now.cpu_s - then.cpu_s,
                write_share: share(since(|s| s.device_written_bytes), now.device_write_bytes_per_s),
                read_share: share(since(|s| s.device_read_bytes), now.device_read_bytes_per_s),
                sync_share: since(|s| s.device_flushes) as f64 * now.device_sync_s / seconds,
                log_bytes: since(|s| s.log_bytes),
                rows_bytes: since(|s| s.rows_bytes),
                compactions: since(|s| s.compactions),
                compaction_bytes: since(|s| s.compaction_bytes),
                leaders: now.leaders,
                regions: now.regions,
                used_bytes: now.used_bytes,
            });
        }
        Evidence {
            seconds,
            cpus,
            client_threads,
            stores_cpu_s: stores.iter().map(|store| store.cpu_s).sum(),
            client_cpu_s: after.client_cpu_s - before.client_cpu_s,
            machine_busy_s: after.machine_busy_s - before.machine_busy_s,
            busiest_thread: busiest,
            stores,
            moves: after.moves.saturating_sub(before.moves),
            worst_lag: after.worst_lag,
        }
    }

    /// The part of all CPUs' time that stores and client used.
    pub fn cpu_share(&self) -> f64 {
        (self.stores_cpu_s + self.client_cpu_s) / self.capacity_s()
    }

    pub fn client_share(&self) -> f64 {
        self.client_cpu_s / (self.seconds * self.client_threads.max(1) as f64)
    }

    /// The part of all CPUs' time that processes other than stores and client used.
    pub fn others_share(&self) -> f64 {
        (self.machine_busy_s - self.stores_cpu_s - self.client_cpu_s).max(0.0) / self.capacity_s()
    }

    fn capacity_s(&self) -> f64 {
        self.seconds * self.cpus.max(1) as f64
    }

    pub fn busiest_device(&self) -> Option<&StoreUse> {
        self.stores.iter().max_by(|a, b| a.device_share().total_cmp(&b.device_share()))
    }

    /// Bytes that compaction wrote for each byte of rows. `None` if less than 1 MiB of rows were
    /// written.
    pub fn compaction_ratio(&self) -> Option<f64> {
        let sum = |field: fn(&StoreUse) -> u64| self.stores.iter().map(field).sum::<u64>();
        let rows = sum(|store| store.rows_bytes);
        (rows >= ROWS_BYTES_LEAST).then(|| sum(|store| store.compaction_bytes) as f64 / rows as f64)
    }

    /// The reasons why the measurement says nothing about devices and placement. Empty if it is
    /// good. `writes` says that the workload writes enough to keep compaction busy.
    pub fn void(&self, writes: bool) -> Vec<String> {
        let mut reasons = Vec::new();
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        if self.cpu_share() > CPU_SHARE_MAX {
            reasons.push(format!(
                "bound by CPU: stores and client used {} of {} CPUs (limit {})",
                percent(self.cpu_share()),
                self.cpus,
                percent(CPU_SHARE_MAX)
            ));
        }
        if let Some((name, share)) =
            self.busiest_thread.as_ref().filter(|(_, share)| *share > THREAD_SHARE_MAX)
        {
            reasons.push(format!(
                "bound by CPU: the {name} thread used {} of a CPU (limit {})",
                percent(*share),
                percent(THREAD_SHARE_MAX)
            ));
        }
        if self.client_share() > CLIENT_SHARE_MAX {
            reasons.push(format!(
                "bound by the client: it used {} of its {} thread(s) (limit {})",
                percent(self.client_share()),
                self.client_threads,
                percent(CLIENT_SHARE_MAX)
            ));
        }
        if self.others_share() > OTHERS_SHARE_MAX {
            reasons.push(format!(
                "disturbed: other processes used {} of the CPUs (limit {})",
                percent(self.others_share()),
                percent(OTHERS_SHARE_MAX)
            ));
        }
        let compacted = self.compaction_ratio().unwrap_or(0.0);
        if writes && compacted < COMPACTION_RATIO_MIN {
            let sum = |field: fn(&StoreUse) -> u64| self.stores.iter().map(field).sum::<u64>();
            reasons.push(format!(
                "did not compact: {} compactions wrote {} for {} of rows, {:.2} of it (at least {})",
                sum(|store| store.compactions),
                bytes(sum(|store| store.compaction_bytes) as f64),
                bytes(sum(|store| store.rows_bytes) as f64),
                compacted,
                COMPACTION_RATIO_MIN
            ));
        }
        reasons
    }
}

/// Maximum part of all CPUs' time that stores and client may use. Above it, every latency includes
/// waiting for a CPU.
pub const CPU_SHARE_MAX: f64 = 0.85;
/// Maximum part of one CPU that a thread of a store may use. A thread without time left holds up
/// all regions of its store, whatever the device does.
pub const THREAD_SHARE_MAX: f64 = 0.90;
pub const CLIENT_SHARE_MAX: f64 = 0.85;
pub const OTHERS_SHARE_MAX: f64 = 0.15;
/// Minimum number of bytes that compaction writes for each byte of rows. Levelled compaction that
/// keeps up rewrites every row at least once, soon after its flush.
pub const COMPACTION_RATIO_MIN: f64 = 0.5;
/// Minimum number of bytes of rows for which a ratio to them is meaningful.
const ROWS_BYTES_LEAST: u64 = 1 << 20;

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two stores over ten seconds: half a CPU busy, the second device's bandwidth used up.
    pub fn samples() -> (Sample, Sample) {
        let store = |store: u64, device: &str| StoreSample {
            store,
            device: device.into(),
            device_write_bytes_per_s: 10e6,
            device_read_bytes_per_s: 20e6,
            device_sync_s: 0.05,
            leaders: 3,
            regions: 6,
            ..StoreSample::default()
        };
        let before = Sample { stores: vec![store(0, "nvm"), store(1, "plain-ssd")], ..Sample::default() };
        let mut after = before.clone();
        after.at_s = 10.0;
        after.machine_busy_s = 7.0;
        after.client_cpu_s = 1.0;
        for (index, store) in after.stores.iter_mut().enumerate() {
            store.cpu_s = 2.0;
            store.threads_cpu_s = BTreeMap::from([("apply".into(), 1.0 + index as f64)]);
            store.rows_bytes = 10_000_000;
            store.compactions = 9;
            store.compaction_bytes = 20_000_000;
            store.device_written_bytes = 49_000_000 * (index as u64 + 1);
            store.device_flushes = 100;
        }
        (before, after)
    }

    pub fn evidence() -> Evidence {
        let (before, after) = samples();
        Evidence::between(&before, &after, 2, 1)
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let evidence = evidence();
        assert_eq!((evidence.cpu_share(), evidence.client_share()), (0.25, 0.1));
        assert!((evidence.others_share() - 0.1).abs() < 1e-9);
        assert_eq!(evidence.compaction_ratio(), Some(2.0));
        let busiest = evidence.busiest_device().unwrap();
        assert_eq!((busiest.store, busiest.sync_share), (1, 0.5));
        assert!((busiest.device_share() - 0.98).abs() < 1e-9, "{}", busiest.write_share);
        assert_eq!(evidence.busiest_thread, Some(("apply of store 1".into(), 0.2)));
        assert_eq!(evidence.void(true), Vec::<String>::new());
    }

    fn void(change: impl Fn(&mut Sample)) -> Vec<String> {
        let (before, mut after) = samples();
        change(&mut after);
        Evidence::between(&before, &after, 2, 1).void(true)
    }

    #[test]
    fn each_limit_makes_a_run_void_and_says_by_how_much() {
        let one = |reasons: Vec<String>, text: &str| {
            assert!(reasons.iter().any(|reason| reason.contains(text)), "{text}: {reasons:?}");
        };
        one(
            void(|s| {
                s.stores[0].cpu_s = 16.0;
                s.machine_busy_s = 20.0;
            }),
            "stores and client used 95% of 2 CPUs (limit 85%)",
        );
        one(
            void(|s| s.stores[0].threads_cpu_s = BTreeMap::from([("regions".into(), 9.5)])),
            "the regions of store 0 thread used 95% of a CPU",
        );
        one(
            void(|s| {
                s.client_cpu_s = 9.0;
                s.machine_busy_s = 15.0;
            }),
            "it used 90% of its 1 thread(s)",
        );
        one(void(|s| s.machine_busy_s = 10.0), "other processes used 25% of the CPUs");
        let still = void(|s| s.stores.iter_mut().for_each(|store| store.compaction_bytes = 1_000_000));
        one(still, "18 compactions wrote 2.0 MB for 20 MB of rows, 0.10 of it");
    }

    #[test]
    fn a_load_that_only_reads_need_not_compact() {
        let (before, mut after) = samples();
        after.stores.iter_mut().for_each(|store| store.compaction_bytes = 0);
        let evidence = Evidence::between(&before, &after, 2, 1);
        assert!(evidence.void(false).is_empty() && !evidence.void(true).is_empty());
    }
}
