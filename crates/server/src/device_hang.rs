//! Detects that the device has stopped answering, logs it, and moves the leadership of the store's
//! regions to other stores.
//!
//! `node::hang` makes the decisions. The heartbeat's thread calls them, because it waits for no
//! device, and reports the outcome.

use std::time::{Duration, Instant};

use node::hang::{HangRelief, HangTimes, HangWatch, Pending};
use replica::Input;
use types::RegionId;

use crate::clock;
use crate::config::ELECTION_TICKS;
use crate::device_waits::Hanging;
use crate::led::led;
use crate::store::Store;

/// Time without an answer after which the device counts as hanging, unless two election timeouts
/// are longer. Healthy flash answers within tens of milliseconds, and within a second during
/// garbage collection or the failover of a volume. The time is less than half of `request-timeout`,
/// so commands that wait here still have time to be executed on another store.
const AFTER: Duration = Duration::from_secs(2);
/// Minimum bytes per second that a healthy device writes to the log while other threads also write.
const BYTES_PER_S: u64 = 4 << 20;
/// Time during which the device must answer before the store leads again. A device that has hung
/// once often hangs again.
const HEALTHY: Duration = Duration::from_secs(10);
/// Maximum time that one look adds to the waiting time. It is twice the heartbeat's period.
const LOOK_MAX: Duration = Duration::from_millis(400);
/// Interval at which a lasting hang is logged again.
const SAID_AGAIN: Duration = Duration::from_secs(60);

fn times(raft_tick: Duration) -> HangTimes {
    let after = AFTER.max(raft_tick * ELECTION_TICKS * 2);
    HangTimes {
        after_nanos: after.as_nanos() as u64,
        bytes_per_s: BYTES_PER_S,
        healthy_nanos: HEALTHY.as_nanos() as u64,
        look_nanos_max: LOOK_MAX.as_nanos() as u64,
    }
}

/// The watch over the device and the relief of the store, driven by the heartbeat.
pub struct HangKeeper {
    log: HangWatch,
    reads: HangWatch,
    /// `None` unless the device hangs.
    relief: Option<HangRelief>,
    said: Option<Instant>,
    /// Regions whose other voters cannot elect a leader, as last logged.
    kept: Vec<RegionId>,
}

impl HangKeeper {
    pub fn new(raft_tick: Duration) -> HangKeeper {
        HangKeeper::with(times(raft_tick))
    }

    fn with(times: HangTimes) -> HangKeeper {
        let watch = || HangWatch::new(times);
        HangKeeper { log: watch(), reads: watch(), relief: None, said: None, kept: Vec::new() }
    }

    /// Looks at the device and acts. To be called before each heartbeat, which reports the result.
    pub fn look(&mut self, store: &Store) {
        let now = clock::boot_nanos();
        let log_hangs = self.log.look(store.capability.log.pending(), now);
        let reads = store.engine.rows().reads_under_way();
        let bytes = store.capability.log.largest_lately();
        let oldest = reads.oldest().map(|began| Pending { began, bytes });
        let reads_hang = self.reads.look(oldest, reads.now());
        let hangs = log_hangs || reads_hang;
        let state = &store.hanging;
        state.set(hangs, self.log.waited_nanos(), self.reads.waited_nanos());
        if hangs != self.relief.is_some() {
            let _ = store.worker.raft(Input::DeviceHangs { hangs });
            self.relief = hangs.then(HangRelief::default);
            if !hangs {
                (self.said, self.kept) = (None, Vec::new());
                tracing::info!(
                    "the device has answered for {} s without a pause: this store may lead again",
                    HEALTHY.as_secs()
                );
            }
        }
        if hangs {
            self.tell(state);
            self.lead_away(store, now);
        }
    }

    fn tell(&mut self, state: &Hanging) {
        if self.said.is_some_and(|at| at.elapsed() < SAID_AGAIN) {
            return;
        }
        self.said = Some(Instant::now());
        let what = match state.log_waited() >= state.read_waited() {
            true => "write or sync of the Raft log",
            false => "read of a row",
        };
        let waited = state.log_waited().max(state.read_waited());
        tracing::error!(
            "the device hangs: the oldest {what} has waited for {:.1} s without an answer or an error. Nothing that \
             needs the device is answered here, this store's leads go to other stores, and it takes none until the \
             device has answered for {} s. Check the device (dmesg, the volume's state); once it answers, the \
             store goes on by itself. If it does not come back, move the store to another device",
            waited.as_secs_f64(),
            HEALTHY.as_secs()
        );
    }

    fn lead_away(&mut self, store: &Store, now: u64) {
        let Some(relief) = &mut self.relief else { return };
        // A transfer is abandoned after an election timeout.
        let tick = store.config.raft_tick.as_nanos() as u64;
        let patience = tick * u64::from(ELECTION_TICKS) * 5 / 4;
        let led = led(store);
        let step = relief.step(&led, patience, now);
        for (region, to) in step.transfers {
            tracing::info!(region, to, "the device hangs: the region's leadership is transferred");
            let _ = store.worker.raft(Input::TransferLeader { region, to });
        }
        for region in step.step_downs {
            tracing::warn!(
                region,
                "the device hangs: this store steps down, and the other stores elect a leader"
            );
            let _ = store.worker.raft(Input::StepDown { region });
        }
        let kept: Vec<RegionId> = led.iter().filter(|led| !led.can_elect()).map(|led| led.region).collect();
        if !kept.is_empty() && kept != self.kept {
            tracing::warn!(
                regions = ?kept,
                "the device hangs, and the stores that could lead these regions are no majority, or their peers are \
                 quarantined: their leads stay, and writes to them wait for the device"
            );
        }
        self.kept = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::Schedule;
    use crate::fixture::Fixture;
    use crate::loops::ToWorker;

    #[test]
    fn a_log_write_that_does_not_return_is_told_to_the_worker_and_shown_and_forgotten_once_it_does() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let mut keeper = HangKeeper::with(quick());
        let (release, held) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let schedule = Schedule::default();
                store.capability.log.during(&schedule, 0, || held.recv(), |_| false)
            });
            let begun = Instant::now();
            while !store.hanging.is_hanging() {
                keeper.look(store);
                std::thread::sleep(Duration::from_millis(1));
                assert!(begun.elapsed() < Duration::from_secs(20), "nobody notices");
            }
            assert!(store.hanging.log_waited() >= Duration::from_nanos(quick().after_nanos));
            assert!(matches!(
                fixture.told().next(),
                Some(ToWorker::Shard(node::Input::Raft(Input::DeviceHangs { hangs: true })))
            ));
            release.send(()).expect("the writer waits");
        });
        let begun = Instant::now();
        while store.hanging.is_hanging() {
            keeper.look(store);
            std::thread::sleep(Duration::from_millis(1));
            assert!(begun.elapsed() < Duration::from_secs(20), "it is never forgotten");
        }
        assert_eq!(store.hanging.log_waited(), Duration::ZERO);
        assert!(matches!(
            fixture.told().last(),
            Some(ToWorker::Shard(node::Input::Raft(Input::DeviceHangs { hangs: false })))
        ));
    }

    fn quick() -> HangTimes {
        HangTimes { after_nanos: 20_000_000, healthy_nanos: 20_000_000, ..times(Duration::ZERO) }
    }
}
