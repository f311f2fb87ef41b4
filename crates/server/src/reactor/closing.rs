//! The closing of connections in the course of a planned stop.
//!
//! A connection is closed when the client has every reply that it waits for: together with the last reply, in one
//! segment, so that a client which looks at its connection before it sends never sends into the end; or once the client
//! has asked nothing for a while. What the client sends after that is read and dropped: an unread byte would take
//! replies with it that the client has not seen.

use std::io::{self, Read};
use std::time::Duration;

use super::connection::Connection;
use super::serve::Then;
use super::Loop;

/// A client that has asked nothing for this long is not about to.
const QUIET: Duration = Duration::from_millis(150);
/// How often connections are looked at while the store closes.
pub(super) const CLOSING_LOOK: Duration = Duration::from_millis(20);

impl Loop {
    pub(super) fn begin_closing(&mut self) {
        self.closes = true;
        self.look_at_closing();
    }

    /// Connections whose clients say nothing are closed, too.
    pub(super) fn look_at_closing(&mut self) {
        self.next_closing_look = self.now + CLOSING_LOOK;
        for slot in 0..self.slots.len() as u32 {
            self.wake(slot);
        }
    }

    /// Closes a connection of which every request is answered and every reply written, if this is the time. `has_written`:
    /// the last of the replies just now.
    pub(super) fn close_if_due(&mut self, connection: &mut Connection, has_written: bool) -> Option<Then> {
        let is_quiet = self.now.saturating_duration_since(connection.stands_since) >= QUIET;
        if !connection.session.output().is_empty() || !(has_written || is_quiet) {
            return None;
        }
        connection.shut_down();
        connection.is_closed = true;
        connection.seat.entry.set_closed();
        Some(self.drop_what_comes(connection))
    }

    pub(super) fn drop_what_comes(&mut self, connection: &mut Connection) -> Then {
        loop {
            match connection.stream.read(&mut self.read_buffer) {
                Ok(0) => return Then::Ends,
                Ok(_) => self.store.clients.note_late(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Then::Waits,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Then::Ends,
            }
        }
    }
}
