//! Moves connections between the loops when another number of them serves clients.
//!
//! A connection moves once all of its requests are answered and written, so no answer is on its way
//! to the loop that it leaves. A request that is read only in part moves with the session. The new
//! loop's poller reports input that came meanwhile.

use super::connection::Connection;
use super::Loop;
use crate::connections::Moving;
use crate::loops::ToLoop;

impl Loop {
    /// Decides which connections are to move, now that `now` loops serve instead of `before`.
    pub(super) fn spread(&mut self, before: usize, now: usize) {
        let mut place = self.number;
        for slot in 0..self.slots.len() {
            let Some(connection) = &mut self.slots[slot].connection else { continue };
            place += 1;
            let to = match place % now {
                // A loop that serves on keeps the share of those that served before.
                to if self.number < now && to < before => self.number,
                to => to,
            };
            connection.moves_to = (to != self.number).then_some(to);
            if to != self.number {
                self.wake(slot as u32);
            }
        }
    }

    /// Gives a connection that waits to another loop.
    pub(super) fn give_away(&mut self, slot: u32, to: usize) {
        let Some(connection) = &mut self.slots[slot as usize].connection else { return };
        connection.moves_to = None;
        if let Err(error) = self.inbox.poll.registry().deregister(connection.stream.stream()) {
            return tracing::warn!(%error, "a client's socket cannot move to another loop");
        }
        if let Some(connection) = self.empty(slot) {
            let Connection { stream, kind, seat, session, held, .. } = *connection;
            // The other loop counts the connection's memory from here on.
            drop(held);
            let client = Box::new(Moving { stream, kind, seat, session });
            // A loop that has stopped serves no clients, and neither does this store.
            let _ = self.store.loops.get(to).send(ToLoop::Moved(client));
        }
    }
}
