//! Turns for measuring devices. Stores that measure at the same time on one host would disturb each
//! other's measurement. A measurement is called a *sitting*.
//!
//! Before a sitting a store reports in its heartbeats that it waits for its turn, and how long it
//! has waited. The leader of the meta region names in its heartbeats the stores that have a turn.
//! Such a store then reports that it measures, and after the sitting that it is idle.
//!
//! ```text
//!        waits, number n            the leader's heartbeat names n           the probe ends
//! idle ───────────────────▶ waiting ────────────────────────────▶ sitting ─────────────────▶ idle
//! ```
//!
//! Only current heartbeats carry this state. A lost heartbeat therefore costs only time, and
//! nothing is agreed on or stored.
//!
//! - A store that reports a sitting has the turn, granted or not. So a new leader knows which
//!   stores have turns once it has a heartbeat from every live store. Until then it grants none
//!   ([`SETTLE_NANOS`]).
//! - A sitting ends when its store reports its end, is down, or has measured for
//!   [`SITTING_MAX_NANOS`].
//! - A store that does not take a granted turn within [`TAKE_MAX_NANOS`] goes to the end of the
//!   queue.
//! - Stores of one host measure one after the other, longest wait first. Stores of different hosts
//!   do not disturb each other and may measure at the same time. A store with an unknown host
//!   counts as on every host.
//! - A store that receives no heartbeat from a leader for a while measures without a grant
//!   ([`Waiting`]), because a disturbed measurement is better than none.
//!
//! A request has a number that its store never used before, and a grant names that number. So a
//! late grant cannot count for another request.

use std::collections::BTreeMap;

use types::{BootNanos, StoreId};

use crate::{Ledger, Place};

const SECOND: u64 = 1_000_000_000;
/// Time in nanoseconds for which a new leader grants nothing. A store that has sent no heartbeat in
/// this time is down.
pub const SETTLE_NANOS: u64 = 3 * SECOND;
/// Maximum time in nanoseconds between a grant and the beginning of the sitting. Later the grant is
/// withdrawn.
pub const TAKE_MAX_NANOS: u64 = 3 * SECOND;
/// Maximum time in nanoseconds of a sitting. A device that hangs must not delay other stores.
pub const SITTING_MAX_NANOS: u64 = 120 * SECOND;
/// Time in nanoseconds after which a waiting store without a leader measures without a grant.
pub const LEADERLESS_MAX_NANOS: u64 = 20 * SECOND;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnState {
    #[default]
    Idle,
    Waits,
    Sits,
}

/// The state of a store's turn, as its heartbeats report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    pub state: TurnState,
    /// The request's number; 0 when idle.
    pub number: u64,
    /// The time in milliseconds for which the store has waited or measured.
    pub millis: u64,
}

/// A request that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnGrant {
    pub store: StoreId,
    pub number: u64,
}

/// A live store that waits or measures.
#[derive(Clone, Copy, Debug)]
struct Claim {
    store: StoreId,
    place: Place,
    number: u64,
    /// Time in nanoseconds for which it has waited or measured.
    age: u64,
}

/// Grants turns. Used by the leader of the meta region.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    leads_since: Option<BootNanos>,
    /// The granted requests, by store: the number, and the time of the grant.
    granted: BTreeMap<StoreId, (u64, BootNanos)>,
    /// The requests whose grants were not taken, by store: the number, and the count of missed
    /// grants.
    missed: BTreeMap<StoreId, (u64, u32)>,
}

impl Turns {
    /// Drops all state, because another store leads.
    pub fn stop(&mut self) {
        *self = Turns::default();
    }

    /// Runs one round of the leader. Returns the granted requests, ascending by store.
    pub fn step(&mut self, ledger: &Ledger, now: BootNanos) -> Vec<TurnGrant> {
        let (waiting, sitting) = claims(ledger, now);
        let is_waiting = |store: &StoreId, number: u64| {
            waiting.iter().any(|claim| claim.store == *store && claim.number == number)
        };
        self.missed.retain(|store, (number, _)| is_waiting(store, *number));
        let missed = &mut self.missed;
        // Removes grants that were taken, abandoned or are too old.
        self.granted.retain(|store, (number, at)| {
            let in_time = now.saturating_sub(*at) <= TAKE_MAX_NANOS;
            if is_waiting(store, *number) && !in_time {
                let (_, times) = missed.entry(*store).or_insert((*number, 0));
                *times += 1;
            }
            is_waiting(store, *number) && in_time
        });
        let leads_since = *self.leads_since.get_or_insert(now);
        if now.saturating_sub(leads_since) >= SETTLE_NANOS {
            self.grant(waiting, sitting, now);
        }
        let each = self.granted.iter();
        each.map(|(&store, &(number, _))| TurnGrant { store, number }).collect()
    }

    fn grant(&mut self, mut waiting: Vec<Claim>, sitting: Vec<Claim>, now: BootNanos) {
        let times_missed = |store| self.missed.get(&store).map_or(0, |(_, times)| *times);
        waiting.sort_by_key(|claim| (times_missed(claim.store), u64::MAX - claim.age, claim.store));
        let mut before: Vec<Place> = sitting.iter().map(|claim| claim.place).collect();
        let (taking, waiting): (Vec<Claim>, Vec<Claim>) =
            waiting.into_iter().partition(|claim| self.granted.contains_key(&claim.store));
        before.extend(taking.iter().map(|claim| claim.place));
        for claim in waiting {
            if before.iter().all(|other| !disturb(&claim.place, other)) {
                self.granted.insert(claim.store, (claim.number, now));
            }
            // The claim also blocks later ones if it was not granted: a store must not overtake
            // another one on its host that has waited longer.
            before.push(claim.place);
        }
    }
}

/// Returns the claims of live stores that wait, and of those that measure.
fn claims(ledger: &Ledger, now: BootNanos) -> (Vec<Claim>, Vec<Claim>) {
    let (mut waiting, mut sitting) = (Vec::new(), Vec::new());
    for heard in ledger.all_heard() {
        let heartbeat = &heard.heartbeat;
        if !ledger.is_up(heartbeat.store, now) {
            continue;
        }
        let Turn { state, number, millis } = heartbeat.turn;
        let age = millis.saturating_mul(1_000_000).saturating_add(now.saturating_sub(heard.at));
        let claim = Claim { store: heartbeat.store, place: heartbeat.place, number, age };
        match state {
            TurnState::Waits => waiting.push(claim),
            TurnState::Sits if age <= SITTING_MAX_NANOS => sitting.push(claim),
            TurnState::Sits | TurnState::Idle => {}
        }
    }
    (waiting, sitting)
}

fn disturb(one: &Place, other: &Place) -> bool {
    one.host == 0 || other.host == 0 || one.host == other.host
}

/// A store's own decision when to measure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    unheard_since: Option<BootNanos>,
}

impl Waiting {
    /// Returns true if the store may measure now. `leader_heard` is true if the leader of the meta
    /// region is known and has sent a recent heartbeat.
    pub fn may_sit(&mut self, granted: bool, leader_heard: bool, now: BootNanos) -> bool {
        if leader_heard {
            self.unheard_since = None;
            return granted;
        }
        let since = *self.unheard_since.get_or_insert(now);
        granted || now.saturating_sub(since) >= LEADERLESS_MAX_NANOS
    }
}

#[cfg(test)]
mod tests;
