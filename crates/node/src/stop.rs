//! A planned stop: what a store that is to stop waits for, and to whom it hands its leads.
//!
//! ```text
//!  Telling ─▶ HandingOver ─▶ Redirecting ─▶ Closing ─▶ Done
//! ```
//!
//! - *Telling*: heartbeats say that the store is stopping, so that nothing comes back that it hands over.
//! - *HandingOver*: every region that it leads goes to an up-to-date voter on a store that takes leads.
//! - *Redirecting*: the store goes on serving until no other store sends it commands for what it led.
//! - *Closing*: no new connections; each client's connection is closed once its requests are answered.
//!
//! The executor tells the store's peers at the beginning that they are to lead nothing more
//! (`replica::Input::StopLeading`), and then asks [`PlannedStop::step`] again and again. Every phase is bounded, so a
//! stop ends. What could not be done in time is in [`Left`].

use std::collections::BTreeMap;

use replica::RegionStatus;
use types::{BootNanos, RegionDescriptor, RegionId, StoreId};

use crate::planted::{self, Bug};

/// Entries that a voter may lack to count as up to date. It gets them before it takes over.
const LAG_MAX: u64 = 1024;

/// How long the phases of a planned stop take.
#[derive(Clone, Copy, Debug)]
pub struct StopTimes {
    /// From the first heartbeat that says so until other stores have heard that this one is stopping.
    pub told_nanos: u64,
    /// Bound of handing over, for all regions together.
    pub hand_over_nanos: u64,
    /// A transfer that was not done by then is tried again. Longer than an election timeout.
    pub retry_nanos: u64,
    /// Other stores know who leads once none has sent a command for this long.
    pub quiet_nanos: u64,
    /// Bound of redirecting.
    pub redirect_nanos: u64,
    /// Bound of closing. Longer than a request may take.
    pub close_nanos: u64,
}

/// A region that the stopping store leads, and the stores that could take it over.
#[derive(Clone, Debug)]
pub struct Led {
    pub region: RegionId,
    heirs: Vec<Heir>,
}

/// Another voter, on a store that takes leads.
#[derive(Clone, Copy, Debug)]
struct Heir {
    store: StoreId,
    lag: u64,
    is_up_to_date: bool,
}

/// What a store sees of itself while it stops.
#[derive(Clone, Debug, Default)]
pub struct StopView {
    pub led: Vec<Led>,
    /// Another store is up and not stopping.
    pub has_others: bool,
    /// Number of commands that other stores have sent here so far.
    pub passed: u64,
    /// Number of other stores' requests that are being answered.
    pub answering: usize,
    /// Number of clients' connections that are not closed.
    pub connections: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopPhase {
    Telling,
    HandingOver,
    Redirecting,
    Closing,
    Done,
}

/// What a stop has not done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Regions that no other store has taken over.
    pub regions: Vec<RegionId>,
    /// Connections that were not closed: a request on them may be unanswered.
    pub connections: usize,
    /// Requests of other stores that were not answered.
    pub answering: usize,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub struct StopStep {
    pub phase: StopPhase,
    /// Leads to transfer.
    pub transfers: Vec<(RegionId, StoreId)>,
}

#[derive(Clone, Debug, Default)]
struct Attempts {
    last: Option<BootNanos>,
    by_store: BTreeMap<StoreId, u32>,
}

#[derive(Debug)]
pub struct PlannedStop {
    times: StopTimes,
    phase: StopPhase,
    since: BootNanos,
    attempts: BTreeMap<RegionId, Attempts>,
    /// Leads given to each store so far.
    given: BTreeMap<StoreId, u32>,
    passed: u64,
    passed_at: BootNanos,
    left: Left,
}

impl Led {
    /// The region as its leader sees it. `takes_leads`: whether a store is up and may be handed a lead.
    pub fn of(status: &RegionStatus, this: StoreId, takes_leads: impl Fn(StoreId) -> bool) -> Led {
        let others = status.descriptor.voters().filter(|&store| store != this && takes_leads(store));
        let heir = |store| {
            let progress = status.peers.get(&store);
            let lag = progress.map_or(u64::MAX, |progress| status.commit.saturating_sub(progress.matched));
            let is_able = progress.is_some_and(|progress| progress.is_active && !progress.needs_snapshot);
            Heir { store, lag, is_up_to_date: is_able && lag <= LAG_MAX }
        };
        Led { region: status.descriptor.id, heirs: others.map(heir).collect() }
    }

    /// A region of which its leader does not know yet how far the voters are.
    pub fn unseen(
        descriptor: &RegionDescriptor,
        this: StoreId,
        takes_leads: impl Fn(StoreId) -> bool,
    ) -> Led {
        let others = descriptor.voters().filter(|&store| store != this && takes_leads(store));
        let heir = |store| Heir { store, lag: u64::MAX, is_up_to_date: false };
        Led { region: descriptor.id, heirs: others.map(heir).collect() }
    }
}

impl PlannedStop {
    pub fn new(times: StopTimes, now: BootNanos) -> PlannedStop {
        PlannedStop {
            times,
            phase: StopPhase::Telling,
            since: now,
            attempts: BTreeMap::new(),
            given: BTreeMap::new(),
            passed: 0,
            passed_at: now,
            left: Left::default(),
        }
    }

    /// Ends the waiting: the next step is the last.
    pub fn hurry(&mut self) {
        self.phase = StopPhase::Done;
    }

    /// What has not been done so far.
    pub fn left(&self) -> &Left {
        &self.left
    }

    /// Takes what the store sees of itself, and says what to do next.
    pub fn step(&mut self, view: &StopView, now: BootNanos) -> StopStep {
        if view.passed != self.passed {
            (self.passed, self.passed_at) = (view.passed, now);
        }
        self.left = Left {
            regions: view.led.iter().map(|led| led.region).collect(),
            connections: view.connections,
            answering: view.answering,
        };
        while let Some(next) = self.next_phase(view, now) {
            (self.phase, self.since) = (next, now);
        }
        let is_leading_on = matches!(self.phase, StopPhase::HandingOver | StopPhase::Redirecting);
        let transfers = if is_leading_on { self.transfers(view, now) } else { Vec::new() };
        StopStep { phase: self.phase, transfers }
    }

    /// The next phase, if the present one is over.
    fn next_phase(&self, view: &StopView, now: BootNanos) -> Option<StopPhase> {
        let times = &self.times;
        let lasts = |nanos: u64| now.saturating_sub(self.since) < nanos;
        match self.phase {
            StopPhase::Telling => {
                let is_alone = !view.has_others;
                (is_alone || !lasts(times.told_nanos)).then_some(StopPhase::HandingOver)
            }
            StopPhase::HandingOver => {
                let goes_on = view.led.iter().any(|led| !led.heirs.is_empty());
                (!goes_on || !lasts(times.hand_over_nanos)).then_some(StopPhase::Redirecting)
            }
            StopPhase::Redirecting => {
                let heard_at = self.passed_at.max(self.since);
                let is_quiet = view.answering == 0 && now.saturating_sub(heard_at) >= times.quiet_nanos;
                let is_over = !view.has_others || is_quiet || !lasts(times.redirect_nanos);
                is_over.then_some(StopPhase::Closing)
            }
            StopPhase::Closing => {
                let is_answered = view.connections == 0 && view.answering == 0;
                let is_over = is_answered || planted::is(Bug::StopUnanswered);
                (is_over || !lasts(times.close_nanos)).then_some(StopPhase::Done)
            }
            StopPhase::Done => None,
        }
    }

    /// The leads to transfer now: each to the voter that was tried least, lacks least and was given least.
    fn transfers(&mut self, view: &StopView, now: BootNanos) -> Vec<(RegionId, StoreId)> {
        let mut transfers = Vec::new();
        for led in &view.led {
            let attempts = self.attempts.entry(led.region).or_default();
            if attempts.last.is_some_and(|at| now.saturating_sub(at) < self.times.retry_nanos) {
                continue;
            }
            let rank = |heir: &&Heir| {
                let tried = attempts.by_store.get(&heir.store).copied().unwrap_or(0);
                (tried, heir.lag, self.given.get(&heir.store).copied().unwrap_or(0), heir.store)
            };
            let Some(heir) = led.heirs.iter().filter(|heir| heir.is_up_to_date).min_by_key(rank) else {
                continue;
            };
            attempts.last = Some(now);
            *attempts.by_store.entry(heir.store).or_default() += 1;
            *self.given.entry(heir.store).or_default() += 1;
            transfers.push((led.region, heir.store));
        }
        transfers
    }
}

#[cfg(test)]
mod tests;
