//! Weak reads with a bound, which ask the region's leader how far it has applied.

use node::bounded_staleness::{MaxLag, Next};
use node::reads::{Local, Read};
use replica::Input;
use types::{BootNanos, LogIndex, RegionId, StoreId};

use super::sessions::{Part, PartId};
use super::Shared;
use crate::clock::MILLISECOND;
use crate::world::{Packet, Question, Work, World};

/// Interval at which a read looks at the store's copy.
const COPY_POLL: u64 = 2 * MILLISECOND;
/// Time after which a question is given up.
const ANSWER_PATIENCE: u64 = 500 * MILLISECOND;

/// The reader that waits for the proof of a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A client's reads.
    Part(PartId),
    /// Another store's question.
    Store { store: StoreId, question: Question },
}

impl World {
    /// Begins weak reads once the store's copy is fresh enough.
    pub(super) fn await_copy(&mut self, id: StoreId, part: PartId, max: MaxLag, arrived: BootNanos) {
        let Some(Part { region, items, .. }) = self.part(id, part) else { return };
        let (region, items) = (*region, items.clone());
        let now = self.boot(id);
        let Some(shared) = self.shared_mut(id, region) else {
            return self.refuse(id, part);
        };
        let slots = items.iter().map(|item| item.slot);
        let Some(read) = Read::begin_weak(shared, slots, shared.version_here()) else {
            return self.refuse(id, part);
        };
        let (next, asks) = shared.freshness.look(max, arrived, now, shared.applied);
        let leader = shared.leadership.leader.filter(|leader| *leader != id);
        if asks {
            self.tally.bound_questions += 1;
            let question = Question { region, asked_at: now, life: self.stores[&id].life };
            self.schedule_work(id, ANSWER_PATIENCE, Work::NoAnswer { question });
            if let Some(leader) = leader {
                self.send(id, leader, Packet::AskApplied { question });
            }
        }
        match next {
            Next::Read => {
                let delay = self.read_delay();
                self.schedule_work(id, delay, Work::View { part, read });
            }
            _ if now.saturating_sub(arrived) > max.patience_nanos() => {
                self.tally.bounds_refused += 1;
                self.refuse(id, part);
            }
            Next::AwaitEntries | Next::AwaitAnswer => {
                self.schedule_work(id, COPY_POLL, Work::AwaitCopy { part, max, arrived })
            }
        }
    }

    pub(super) fn no_answer(&mut self, id: StoreId, question: Question) {
        if let Some(shared) = self.shared_mut(id, question.region) {
            shared.freshness.not_answered(question.asked_at);
        }
    }

    /// Proves the leadership, as for a strong read, and then answers another store.
    pub(super) fn asked_applied(&mut self, id: StoreId, from: StoreId, question: Question) {
        let (boot, region) = (self.boot(id), question.region);
        let asks_majority = self.plan.asks_majority;
        let Some(shared) = self.shared_mut(id, region) else { return };
        if shared.leadership.leader != Some(id) {
            return;
        }
        let holds = !asks_majority && shared.lease_holds(boot);
        self.input(id, Input::WantLease { region });
        match holds {
            true => self.tell_applied(id, from, question),
            false => {
                let reader = Reader::Store { store: from, question };
                let (asked, deadline) = (self.plan.asked(), boot + ANSWER_PATIENCE);
                self.tell(id, node::Input::ReadIndex { region, asked, deadline, reader });
            }
        }
    }

    pub(super) fn tell_applied(&mut self, id: StoreId, to: StoreId, question: Question) {
        let Some(shared) = self.shared_mut(id, question.region) else { return };
        let index = shared.applied;
        // The answer may wait behind large frames.
        let delay = if self.rng.chance(30) { self.rng.below(300 * MILLISECOND) } else { 0 };
        self.schedule_work(id, delay, Work::TellApplied { to, question, index });
    }

    pub(super) fn told_applied(&mut self, id: StoreId, question: Question, index: LogIndex) {
        let now = self.boot(id);
        if question.life != self.stores[&id].life {
            return;
        }
        if let Some(shared) = self.shared_mut(id, question.region) {
            shared.freshness.answered(question.asked_at, index, now);
        }
    }

    fn shared_mut(&mut self, id: StoreId, region: RegionId) -> Option<&mut Shared> {
        self.process(id)?.regions.get_mut(&region)
    }
}
