//! Measures what a phase used, and the layout at its end.

use super::{StoreAt, World, SECOND};
use crate::answer::{Holding, Phase, Placed, Use, BOUND};
use crate::device::Used;
use crate::Workload;

/// Counters of one store since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub log_batches: u64,
    pub log_bytes: u64,
    pub rows_bytes: u64,
    pub compaction_bytes: u64,
    pub reads: u64,
    pub hits: u64,
    pub cpu_ns: u64,
    pub apply_ns: u64,
}

struct Mark {
    at: u64,
    stores: Vec<(Counts, Used)>,
    cpu_ns: u64,
    moves: u64,
}

impl World<'_> {
    fn mark(&self) -> Mark {
        let of = |store: &super::Store| (store.counts, store.device.used());
        Mark {
            at: self.now,
            stores: self.stores.iter().map(of).collect(),
            cpu_ns: self.cpu_ns,
            moves: self.moves,
        }
    }

    pub(super) fn phase(&mut self, workload: Workload) -> Phase {
        let before = self.mark();
        self.begin(workload);
        while !self.phase.is_over(self.now) && self.step() {}
        let after = self.mark();
        let elapsed = (after.at - before.at).max(1) as f64 / SECOND as f64;
        let stores: Vec<Use> =
            (0..self.stores.len()).map(|at| self.used(at, &before, &after, elapsed)).collect();
        let cpu_share = self.cpu_share(&before, &after, elapsed);
        let bound_by = self.bounds(&stores, cpu_share);
        let mut latencies = std::mem::take(&mut self.phase.latencies_ns);
        latencies.sort_unstable();
        let at = |part: f64| {
            let rank = ((latencies.len() as f64 * part).ceil() as usize).max(1);
            latencies.get(rank - 1).map_or(0.0, |nanos| *nanos as f64 / 1e3)
        };
        let sum: f64 = latencies.iter().map(|nanos| *nanos as f64).sum();
        let seconds = self.phase.seconds();
        let ops_per_s = self.phase.counted as f64 / seconds;
        Phase {
            workload,
            operations: self.phase.counted,
            seconds,
            ops_per_s,
            least_ops_per_s: ops_per_s,
            most_ops_per_s: ops_per_s,
            mean_us: sum / latencies.len().max(1) as f64 / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            moves: after.moves - before.moves,
            stores,
            cpu_share,
            bound_by,
        }
    }

    fn used(&self, at: StoreAt, before: &Mark, after: &Mark, seconds: f64) -> Use {
        let ((then, device_then), (now, device_now)) = (&before.stores[at], &after.stores[at]);
        let device = &self.stores[at].device;
        let [write_share, read_share, sync_share] = device.shares(device_then, device_now, seconds);
        Use {
            store: self.question.stores[at].id,
            write_share,
            read_share,
            sync_share,
            apply_share: (now.apply_ns - then.apply_ns) as f64 / SECOND as f64 / seconds,
            flushes: device_now.flushes - device_then.flushes,
            log_batches: now.log_batches - then.log_batches,
            log_bytes: now.log_bytes - then.log_bytes,
            rows_bytes: now.rows_bytes - then.rows_bytes,
            compaction_bytes: now.compaction_bytes - then.compaction_bytes,
            hit_share: (now.hits - then.hits) as f64 / (now.reads - then.reads).max(1) as f64,
        }
    }

    /// Returns the share of all CPUs that is busy if stores share them, and of the busiest store's
    /// CPUs otherwise.
    fn cpu_share(&self, before: &Mark, after: &Mark, seconds: f64) -> f64 {
        let processors = &self.question.processors;
        let nanos = match processors.shared {
            true => after.cpu_ns - before.cpu_ns,
            false => {
                let pairs = before.stores.iter().zip(&after.stores);
                pairs.map(|((then, _), (now, _))| now.cpu_ns - then.cpu_ns).max().unwrap_or(0)
            }
        };
        (nanos as f64 / SECOND as f64 / seconds + processors.idle) / processors.cpus as f64
    }

    fn bounds(&self, stores: &[Use], cpu_share: f64) -> Vec<String> {
        let mut bounds = Vec::new();
        for (used, store) in stores.iter().zip(&self.question.stores) {
            let parts = [
                ("writing", used.write_share),
                ("reading", used.read_share),
                ("syncs", used.sync_share),
                ("the apply thread", used.apply_share),
            ];
            for (what, _) in parts.iter().filter(|(_, share)| *share > BOUND) {
                bounds.push(format!("{what} on store {} ({})", used.store, store.device_name));
            }
        }
        if cpu_share > BOUND {
            bounds.push("CPU".to_owned());
        }
        bounds
    }

    pub(super) fn layout(&self) -> Vec<Placed> {
        let id = |at: StoreAt| self.question.stores[at].id;
        let placed = self.regions.iter().map(|region| {
            let mut peers: Vec<_> = region.peers.iter().map(|peer| id(peer.store)).collect();
            peers.sort_unstable();
            Placed { region: region.id, leader: id(region.leader), peers, bytes: region.bytes }
        });
        placed.collect()
    }

    pub(super) fn holdings(&self) -> Vec<Holding> {
        let of = |at: StoreAt| {
            let holds = |region: &&super::Region| region.peers.iter().any(|peer| peer.store == at);
            Holding {
                store: self.question.stores[at].id,
                device: self.question.stores[at].device_name.clone(),
                leaders: self.regions.iter().filter(|region| region.leader == at).count(),
                peers: self.regions.iter().filter(holds).count(),
                bytes: self.regions.iter().filter(holds).map(|region| region.bytes).sum(),
            }
        };
        (0..self.stores.len()).map(of).collect()
    }
}
