//! The faults and lies of the coordinator.

use node::coordinator::{positions_text, Position, Positions};
use types::{StoreId, META_REGION};

use super::{Ensemble, PROMPT_MS};
use crate::clock::{MILLISECOND, SECOND};
use crate::faults::REGIONS_MAX;
use crate::rng::Rng;
use crate::world::{Event, Work, World};

/// The names in the tally. Only liars have the last fault.
pub const FAULTS: [&str; 6] = [
    "coordinator away",
    "store without its coordinator",
    "coordinator lags, or no longer",
    "session of a store expired",
    "store parted and its session expired",
    "coordinator lies about a session",
];

/// Maximum delays of a message in milliseconds, with and without lag.
const LAGS_MS: [u64; 3] = [PROMPT_MS, 500, 3000];
/// Maximum time for which a store whose session has expired reaches no other store.
const PARTED: u64 = 3 * SECOND;

impl Ensemble {
    /// Returns a false text in place of that which a store has published.
    pub(super) fn invent(&self, rng: &mut Rng) -> Option<String> {
        let published: Vec<&String> = self.sessions.values().map(|session| &session.text).collect();
        let any = |texts: &[&String], rng: &mut Rng| rng.pick(texts).cloned();
        match rng.below(4) {
            0 => any(&self.remembered.iter().collect::<Vec<_>>(), rng),
            1 => any(&published, rng),
            2 => {
                let mut positions = Positions::new();
                for region in META_REGION..META_REGION + REGIONS_MAX as u64 {
                    let (last, may_stand) = ((rng.below(20), rng.below(200)), rng.chance(80));
                    positions.insert(region, Position { last, may_stand });
                }
                Some(positions_text(&positions))
            }
            _ => None,
        }
    }

    /// Ends the faults. A coordinator that leaves is away from now on, and a liar lies on.
    pub fn calm(&mut self) {
        self.away_until = if self.leaves { u64::MAX } else { 0 };
        self.cut_until.clear();
        self.lag_ms = PROMPT_MS;
    }
}

impl World {
    /// A fault of the coordinator, and the next one.
    pub(crate) fn ensemble_fault(&mut self) {
        let now = self.now;
        if self.plan.is_over {
            return;
        }
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let victim = self.victim(&stores);
        let length = self.rng.between(500, 12_000) * MILLISECOND;
        let Some(ensemble) = self.ensemble.as_mut() else { return };
        let count = FAULTS.len() - usize::from(ensemble.lies_percent == 0);
        let number = self.rng.below(count as u64);
        match number {
            0 => ensemble.away_until = now + length,
            1 => drop(ensemble.cut_until.insert(victim, now + length)),
            2 => {
                ensemble.lag_ms = self.rng.pick(&LAGS_MS).expect("there are lags");
            }
            3 => self.end_session(victim),
            4 => {
                // The other stores may elect a leader as soon as no lease can be valid.
                ensemble.cut_until.insert(victim, now + length);
                for partition in [self.network.mute(victim, &stores), self.network.deafen(victim, &stores)] {
                    self.schedule(length.min(PARTED), Event::Heal { partition });
                }
                self.end_session(victim);
            }
            _ => {
                self.report_end(victim);
                self.tally.lies += 1;
            }
        }
        let kind = FAULTS[number as usize];
        self.tally.fault(kind);
        self.say(&format!("fault: {kind}, store {victim}, {} ms", length / MILLISECOND));
        let pause = self.ensemble.as_ref().map_or(0, |ensemble| ensemble.pause_ns);
        let pause = self.rng.between(pause / 8, pause);
        self.schedule(pause, Event::EnsembleFault);
    }

    /// Changes the way in which candidates are chosen. The stores learn it one after another.
    pub(crate) fn switch_elections(&mut self) {
        if self.plan.is_over {
            return;
        }
        if let Some(ensemble) = self.ensemble.as_mut() {
            ensemble.is_in_charge = !ensemble.is_in_charge;
        }
        self.tally.switches += 1;
        self.say(&format!("from now on elections are {:?}", self.elections()));
        for store in self.stores.keys().copied().collect::<Vec<_>>() {
            let delay = self.rng.below(800) * MILLISECOND;
            self.schedule_work(store, delay, Work::LearnElections);
        }
        let pause = self.rng.between(2000, 9000) * MILLISECOND;
        self.schedule(pause, Event::SwitchElections);
    }
}
