//! The turn to measure a device: stores that sit down at once on one host measure each other.
//!
//! Before a store begins a sitting it says in its heartbeats that it waits for the turn, and for how long it has. The
//! leader of the meta region says in its heartbeats who has it. The store then says that it sits, and when it is done, no more.
//!
//! ```text
//!        waits, number n            the leader's heartbeat names n           the probe ends
//! idle ───────────────────▶ waiting ────────────────────────────▶ sitting ─────────────────▶ idle
//! ```
//!
//! All of this is what heartbeats say now, so a lost one costs time and nothing else, and nothing is agreed on or kept:
//!
//! - Whoever says that it sits has the turn, granted or not. So a new leader knows who has it once it has heard every store
//!   that lives; until then it grants nothing ([`SETTLE_NANOS`]).
//! - A sitting ends when its store says so, is down, or has sat for [`SITTING_MAX_NANOS`].
//! - A store that does not take a turn that it was granted ([`TAKE_MAX_NANOS`]) stands behind all others that wait.
//! - Stores of one host sit one after the other, those that have waited longest first. Stores of different hosts do not
//!   disturb each other and sit at once. A store whose host is not known counts as on every host.
//! - A store that hears no leader sits down by itself after a while ([`Waiting`]): an unlucky measurement is better than none.
//!
//! A request has a number, unlike any before from that store, and a grant names it: a grant that comes late is for
//! nothing else.

use std::collections::BTreeMap;

use types::{BootNanos, StoreId};

use crate::{Ledger, Place};

const SECOND: u64 = 1_000_000_000;
/// A new leader grants nothing for this long. A store that was not heard meanwhile is down.
pub const SETTLE_NANOS: u64 = 3 * SECOND;
/// A granted turn is begun within this, or it is taken back.
pub const TAKE_MAX_NANOS: u64 = 3 * SECOND;
/// A sitting counts for this long at most: a device that hangs holds nobody up.
pub const SITTING_MAX_NANOS: u64 = 120 * SECOND;
/// A store that waits and hears no leader for this long sits down all the same.
pub const LEADERLESS_MAX_NANOS: u64 = 20 * SECOND;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnState {
    #[default]
    Idle,
    Waits,
    Sits,
}

/// What a store says of its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    pub state: TurnState,
    /// Of its request; 0 when idle.
    pub number: u64,
    /// How long it has waited, or has sat.
    pub millis: u64,
}

/// A request that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnGrant {
    pub store: StoreId,
    pub number: u64,
}

/// A live store that waits or sits.
#[derive(Clone, Copy, Debug)]
struct Claim {
    store: StoreId,
    place: Place,
    number: u64,
    /// Nanoseconds for which it has waited or sat.
    age: u64,
}

/// Hands out turns, as the leader of the meta region.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    leads_since: Option<BootNanos>,
    /// By store: the request's number, and when it was granted.
    granted: BTreeMap<StoreId, (u64, BootNanos)>,
    /// Of requests that were granted and not taken: the number, and how often.
    missed: BTreeMap<StoreId, (u64, u32)>,
}

impl Turns {
    /// To be called when another store leads.
    pub fn stop(&mut self) {
        *self = Turns::default();
    }

    /// One round, as the leader. Returns the requests that are granted, ascending by store.
    pub fn step(&mut self, ledger: &Ledger, now: BootNanos) -> Vec<TurnGrant> {
        let (waiting, sitting) = claims(ledger, now);
        let is_waiting = |store: &StoreId, number: u64| {
            waiting.iter().any(|claim| claim.store == *store && claim.number == number)
        };
        self.missed.retain(|store, (number, _)| is_waiting(store, *number));
        let missed = &mut self.missed;
        // What is taken, given up or too old is granted no more.
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
            // Granted or not: no store gets past one that has waited longer and is in its way.
            before.push(claim.place);
        }
    }
}

/// Live stores that wait, and those that sit.
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

/// A store's side: whether it may sit down.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    unheard_since: Option<BootNanos>,
}

impl Waiting {
    /// `leader_heard`: the leader of the meta region is known, and was heard lately.
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
