//! The decisions of a planned stop: when a stopping store may end, and which stores take over its
//! regions.
//!
//! ```text
//!  Telling ─▶ HandingOver ─▶ Redirecting ─▶ Closing ─▶ Done
//! ```
//!
//! - *Telling*: heartbeats announce the stop, so that placement moves no leadership to the store.
//! - *HandingOver*: the store transfers the leadership of every region to an up-to-date voter on a
//!   store that accepts leadership.
//! - *Redirecting*: the store continues to serve until other stores have stopped sending it
//!   commands.
//! - *Closing*: the store accepts no connections, and closes each client's connection once its
//!   requests are answered.
//!
//! At the beginning the executor sends `replica::Input::StopLeading`, after which the store's peers
//! no longer become leaders. Then it calls [`PlannedStop::step`] repeatedly. Every phase has a time
//! limit, so every stop ends. [`Left`] lists the work that was not done in time.

use types::{BootNanos, RegionId, StoreId};

use crate::failpoints::Failpoint;
use crate::hand_over::{HandOver, Led};

/// Time limits of a planned stop's phases, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct StopTimes {
    /// Time from the first heartbeat that announces the stop until all other stores know of it.
    pub told_nanos: u64,
    /// Time limit of the phase *HandingOver*, for all regions together.
    pub hand_over_nanos: u64,
    /// Time after which an unfinished transfer is tried again. It is longer than an election
    /// timeout.
    pub retry_nanos: u64,
    /// Time without a command from another store after which the other stores are assumed to know
    /// the new leaders.
    pub quiet_nanos: u64,
    /// Time limit of the phase *Redirecting*.
    pub redirect_nanos: u64,
    /// Time limit of the phase *Closing*. It is longer than a request may take.
    pub close_nanos: u64,
}

/// The state of a stopping store.
#[derive(Clone, Debug, Default)]
pub struct StopView {
    pub led: Vec<Led>,
    /// True if another store is up and not stopping.
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

/// The work that a planned stop has not completed, so far or at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Regions that this store still leads.
    pub regions: Vec<RegionId>,
    /// Number of connections that are not closed. A request on them may be unanswered.
    pub connections: usize,
    /// Number of other stores' requests that are not answered.
    pub answering: usize,
}

/// The next actions of a stop.
#[derive(Debug, PartialEq, Eq)]
pub struct StopStep {
    pub phase: StopPhase,
    /// Transfers to start, as region and target store.
    pub transfers: Vec<(RegionId, StoreId)>,
}

#[derive(Debug)]
pub struct PlannedStop {
    times: StopTimes,
    phase: StopPhase,
    since: BootNanos,
    hand_over: HandOver,
    passed: u64,
    passed_at: BootNanos,
    left: Left,
}

impl PlannedStop {
    pub fn new(times: StopTimes, now: BootNanos) -> PlannedStop {
        PlannedStop {
            times,
            phase: StopPhase::Telling,
            since: now,
            hand_over: HandOver::default(),
            passed: 0,
            passed_at: now,
            left: Left::default(),
        }
    }

    /// Ends all waiting, so that the next step is the last.
    pub fn hurry(&mut self) {
        self.phase = StopPhase::Done;
    }

    /// Returns the work that is not done so far.
    pub fn left(&self) -> &Left {
        &self.left
    }

    /// Returns the next actions for the store's present state.
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
        let transfers = match is_leading_on {
            true => self.hand_over.transfers(&view.led, self.times.retry_nanos, now),
            false => Vec::new(),
        };
        StopStep { phase: self.phase, transfers }
    }

    /// Returns the next phase if the present one is over.
    fn next_phase(&self, view: &StopView, now: BootNanos) -> Option<StopPhase> {
        let times = &self.times;
        let lasts = |nanos: u64| now.saturating_sub(self.since) < nanos;
        match self.phase {
            StopPhase::Telling => {
                let is_alone = !view.has_others;
                (is_alone || !lasts(times.told_nanos)).then_some(StopPhase::HandingOver)
            }
            StopPhase::HandingOver => {
                let goes_on = view.led.iter().any(Led::has_heirs);
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
                let is_over = is_answered || Failpoint::StopUnanswered.is_on();
                (is_over || !lasts(times.close_nanos)).then_some(StopPhase::Done)
            }
            StopPhase::Done => None,
        }
    }
}

#[cfg(test)]
mod tests;
