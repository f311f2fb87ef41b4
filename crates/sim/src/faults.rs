//! What goes wrong, and how often. Each seed draws which kinds of trouble it has and how much of each, so that
//! some runs are full of one kind and free of the others.

use types::StoreId;

use crate::clock::{MILLISECOND, SECOND};
use crate::network::{Weather, PARTITIONS};
use crate::rng::Rng;
use crate::world::{Event, Packet, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill,
    KillAll,
    KillStaggered,
    PowerLoss,
    PowerLossAll,
    Pause,
    Partition,
    SlowLog,
    ClockJump,
    Drift,
    Transfer,
    /// A transfer whose target stands still with the word unread.
    TransferPause,
    WeatherChange,
}

pub const FAULTS: [(Fault, &str); 13] = [
    (Fault::Kill, "process killed"),
    (Fault::KillAll, "all processes killed"),
    (Fault::KillStaggered, "majorities killed in turn"),
    (Fault::PowerLoss, "machine lost power"),
    (Fault::PowerLossAll, "all machines lost power"),
    (Fault::Pause, "process stood still"),
    (Fault::Partition, "network parted"),
    (Fault::SlowLog, "log device slow"),
    (Fault::ClockJump, "wall clock jumped"),
    (Fault::Drift, "clock drifted"),
    (Fault::Transfer, "leader transfer"),
    (Fault::TransferPause, "transfer to a still process"),
    (Fault::WeatherChange, "network weather changed"),
];

/// Clocks run at most this far off.
const DRIFT_PPM: u64 = replica::DRIFT_BOUND_PPM;

#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Kinds that happen, some more often.
    kinds: Vec<Fault>,
    pause_ns: u64,
    pub is_over: bool,
}

impl Plan {
    pub fn draw(rng: &mut Rng) -> Plan {
        let mut kinds = Vec::new();
        for (kind, _) in FAULTS {
            let weight = if rng.chance(45) { 0 } else { rng.between(1, 3) };
            kinds.extend((0..weight).map(|_| kind));
        }
        let pause_ns = rng.between(100, 1500) * MILLISECOND;
        Plan { kinds, pause_ns, is_over: false }
    }

    pub fn drift(rng: &mut Rng) -> i64 {
        rng.below(2 * DRIFT_PPM + 1) as i64 - DRIFT_PPM as i64
    }
}

impl World {
    pub(crate) fn fault(&mut self) {
        if self.plan.is_over {
            return;
        }
        let pause = self.rng.between(self.plan.pause_ns / 4, 2 * self.plan.pause_ns);
        self.schedule(pause, Event::Fault);
        let Some(fault) = self.rng.pick(&self.plan.kinds.clone()) else { return };
        let kind = FAULTS.iter().find(|(other, _)| *other == fault).map_or("", |(_, kind)| kind);
        self.tally.fault(kind);
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let victim = self.victim(&stores);
        let length = self.rng.between(50, 3000) * MILLISECOND;
        self.say(&format!("fault: {kind}, store {victim}, {} ms", length / MILLISECOND));
        match fault {
            Fault::Kill => self.crash_for(victim, length, false),
            Fault::PowerLoss => self.crash_for(victim, length, true),
            Fault::KillAll | Fault::PowerLossAll => {
                for &store in &stores {
                    let down = self.rng.below(length);
                    self.crash_for(store, down, fault == Fault::PowerLossAll);
                }
            }
            Fault::KillStaggered => {
                let majority = stores.len() / 2 + 1;
                for at in 0..majority as u64 {
                    let store = stores[((victim + at) % stores.len() as u64) as usize];
                    let down = length / 2 + at * (length / 3);
                    self.crash_for(store, down, false);
                }
            }
            Fault::Pause => self.pause(victim, length),
            Fault::Partition => {
                let shape = self.rng.pick(&PARTITIONS).expect("there are shapes");
                let partition = self.network.part(shape, &stores, &mut self.rng);
                self.schedule(length, Event::Heal { partition });
            }
            Fault::SlowLog => {
                let until = self.now + length;
                self.store_mut(victim).slow_log_until = until;
            }
            Fault::ClockJump => {
                let offset = self.rng.below(20_001) as i64 - 10_000;
                self.store_mut(victim).clock.set_wall(offset);
            }
            Fault::Drift => {
                let (now, ppm) = (self.now, Plan::drift(&mut self.rng));
                self.store_mut(victim).clock.drift(now, ppm);
            }
            Fault::Transfer | Fault::TransferPause => {
                let led = self.stores[&victim].led();
                let Some(region) = self.rng.pick(&led) else { return };
                let Some(to) = self.rng.pick(&stores) else { return };
                self.send(victim, victim, Packet::Transfer { region, to });
                if fault == Fault::TransferPause {
                    self.pause(to, length);
                }
            }
            Fault::WeatherChange => self.change_weather(),
        }
    }

    pub(crate) fn change_weather(&mut self) {
        let rng = &mut self.rng;
        self.network.weather =
            Weather { lost: rng.below(8), doubled: rng.below(8), slow: rng.below(6) * rng.below(3) };
    }

    /// Leaders are hit more often than others.
    fn victim(&mut self, stores: &[StoreId]) -> StoreId {
        let leaders: Vec<StoreId> =
            stores.iter().copied().filter(|store| !self.stores[store].led().is_empty()).collect();
        let from = if self.rng.chance(60) && !leaders.is_empty() { leaders } else { stores.to_vec() };
        self.rng.pick(&from).expect("there are stores")
    }

    fn crash_for(&mut self, store: StoreId, length: u64, is_power: bool) {
        self.crash(store, is_power);
        self.schedule(length + 1, Event::Start { store });
    }

    fn pause(&mut self, store: StoreId, length: u64) {
        let until = self.now + length;
        self.store_mut(store).paused_until = until;
    }

    /// Trouble ends: every store runs, hears all others, and its device is fast.
    pub fn calm(&mut self) {
        self.plan.is_over = true;
        self.network.calm();
        let now = self.now;
        for store in self.stores.values_mut() {
            store.paused_until = 0;
            store.slow_log_until = now;
        }
        let down: Vec<StoreId> =
            self.stores.iter().filter(|(_, s)| s.process.is_none()).map(|(&id, _)| id).collect();
        for store in down {
            self.start(store);
        }
    }

    /// How long a log write and its sync take.
    pub(crate) fn log_delay(&mut self, store: StoreId) -> u64 {
        let is_slow = self.now < self.stores[&store].slow_log_until;
        let span = if is_slow { SECOND / 2 } else { 4 * MILLISECOND };
        MILLISECOND / 2 + self.rng.below(span)
    }
}
