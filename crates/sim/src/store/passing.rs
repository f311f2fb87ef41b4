//! Commands that a store passes on to a region's leader, and the execution at the leader.

use node::reads::Origin;
use node::session::Kind;
use resp::Reply;
use types::StoreId;

use super::sessions::{Part, PartId};
use crate::client::{answer, ConnectionId};
use crate::clock::SECOND;
use crate::world::{Event, Packet, Work, World};

/// Time after which a store gives up the answer to a call. It is shorter than a client's patience.
const CALL_PATIENCE: u64 = 3 * SECOND;

/// The identity of commands that are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The part at the store that passes it on.
    pub part: PartId,
    /// The number of the call, which no connection and no other call has.
    pub number: ConnectionId,
    /// The incarnation of the process that passes the part on.
    pub life: u64,
}

/// Commands that another store has passed on to this one.
pub(super) struct Passed {
    pub by: StoreId,
    pub call: Call,
    pub part: Part,
}

impl World {
    /// Passes a part on to the region's leader. If the leader cannot be reached, nothing was sent,
    /// and the part is refused.
    pub(super) fn pass_on(&mut self, id: StoreId, part: PartId, leader: StoreId) {
        if !self.network.reaches(id, leader) {
            return self.refuse(id, part);
        }
        self.last_connection += 1;
        let call = Call { part, number: self.last_connection, life: self.stores[&id].life };
        let Some(commands) = self.part(id, part).cloned() else { return };
        let Some(process) = self.process(id) else { return };
        process.calls.insert(call.number, part);
        self.tally.passed_on += commands.items.len() as u64;
        self.schedule_work(id, CALL_PATIENCE, Work::NoReplies { call });
        self.send_once(id, leader, Packet::Commands { call, part: commands });
    }

    /// Executes commands that another store has passed on, if this store leads their region.
    pub(super) fn take_passed(&mut self, id: StoreId, by: StoreId, call: Call, part: Part) {
        let (region, kind) = (part.region, part.kind);
        let Some(process) = self.process(id) else { return };
        let leads = process.regions.get(&region).is_some_and(|of| of.leadership.leader == Some(id));
        process.passed.insert(call.number, Passed { by, call, part });
        let own = PartId { connection: call.number, ..call.part };
        match kind {
            Kind::Reads | Kind::Writes if leads => self.execute_part(id, own, region, kind),
            _ => self.refuse(id, own),
        }
    }

    /// Returns the store to which a part's client is connected.
    pub(super) fn origin(&self, id: StoreId, part: PartId) -> Origin {
        match &self.stores[&id].process {
            Some(process) if process.passed.contains_key(&part.connection) => Origin::Elsewhere,
            _ => Origin::Here,
        }
    }

    pub(super) fn answer_passed(&mut self, id: StoreId, passed: &Passed, replies: Vec<Reply>) {
        self.send_once(id, passed.by, Packet::Replies { call: passed.call, replies });
    }

    /// Receives the answers to a part that this store has passed on.
    pub(super) fn take_replies(&mut self, id: StoreId, call: Call, replies: Vec<Reply>) {
        if let Some(part) = self.take_call(id, call) {
            self.answer_part(id, part, replies);
        }
    }

    /// Gives up a call. Its commands may have been executed.
    pub(super) fn no_replies(&mut self, id: StoreId, call: Call) {
        let Some(part) = self.take_call(id, call) else { return };
        let Some(count) = self.part(id, part).map(|part| part.items.len()) else { return };
        self.answer_part(id, part, vec![answer::unknown(); count]);
    }

    fn take_call(&mut self, id: StoreId, call: Call) -> Option<PartId> {
        let life = self.stores[&id].life;
        self.process(id).filter(|_| life == call.life)?.calls.remove(&call.number)
    }

    /// Sends a packet over a connection, which delivers it once at most.
    fn send_once(&mut self, from: StoreId, to: StoreId, packet: Packet) {
        let delay = self.network.delays(&mut self.rng, from, to).into_iter().next();
        if let Some(delay) = delay {
            self.schedule(delay, Event::Packet { from, to, packet });
        }
    }
}
