//! The number of loops that serve clients at present.
//!
//! If `io-threads` is 0, it follows the load: [`policy`] decides, from the CPU time of the loops,
//! the idle CPUs, and the rate of commands. Otherwise the setting is the number. When the number
//! changes, the loops give connections to each other (`reactor/moving.rs`).

mod policy;

use std::fs;
use std::time::{Duration, Instant};

use crate::cpu::IdleMeter;
use crate::store::Store;

use policy::{Load, Policy};

const PERIOD: Duration = Duration::from_millis(500);

/// The counters of the last look.
struct Reading {
    at: Instant,
    used_nanos: u64,
    commands: u64,
}

/// Looks at the load when it is due.
pub struct FrontsKeeper {
    policy: Policy,
    idle: IdleMeter,
    looked: Instant,
    last: Option<Reading>,
}

impl FrontsKeeper {
    pub fn new(store: &Store) -> FrontsKeeper {
        FrontsKeeper {
            policy: Policy::new(store.loops.all().len()),
            idle: IdleMeter::new(),
            looked: Instant::now(),
            last: None,
        }
    }

    pub fn look(&mut self, store: &Store) {
        let now = Instant::now();
        if store.loops.all().len() == 1 || now.duration_since(self.looked) < PERIOD {
            return;
        }
        self.looked = now;
        let fixed = store.settings.read().io_threads;
        let loops = if fixed > 0 { fixed } else { self.by_load(store, now) };
        if store.loops.serve_with(loops) {
            tracing::debug!(loops, "clients are served by another number of loops");
        }
    }

    /// Returns the number of loops by the load. If the kernel does not report it, all loops serve.
    fn by_load(&mut self, store: &Store, now: Instant) -> usize {
        let (idle, used_nanos) = (self.idle.look(), used_nanos(&store.loops.threads()));
        let (Some(idle), Some(used_nanos)) = (idle, used_nanos) else {
            return store.loops.all().len();
        };
        let commands = store.metrics.commands.get();
        let last = self.last.replace(Reading { at: now, used_nanos, commands });
        match last.filter(|_| store.loops.active() == self.policy.loops()) {
            Some(last) => {
                let seconds = now.duration_since(last.at).as_secs_f64();
                let used = used_nanos.saturating_sub(last.used_nanos) as f64 / 1e9 / seconds;
                let commands = commands.saturating_sub(last.commands) as f64 / seconds;
                let only_writes = store.loops.only_write();
                self.policy.look(Load { used, idle, commands, only_writes })
            }
            // The first reading, or the first one after the number was fixed.
            None => self.policy.loops(),
        }
    }
}

/// Returns the CPU time that the threads have used together.
fn used_nanos(threads: &[u32]) -> Option<u64> {
    let nanos = |thread: &u32| {
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.iter().map(nanos).sum()
}
