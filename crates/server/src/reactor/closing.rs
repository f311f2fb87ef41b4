//! Closes clients' connections during a planned stop.
//!
//! A connection is closed together with the last reply that the client waits for, or when the
//! client has sent nothing for [`QUIET`]. The last reply and the end of the stream go in one
//! segment. So a client that checks its connection before it sends does not send into a closed
//! connection. Bytes that arrive later are read and dropped: closing a socket with unread bytes
//! would discard replies that the client has not read.

use std::io;
use std::time::Duration;

use super::connection::Connection;
use super::serve::Then;
use super::Loop;

/// Time without a request after which a client's connection is closed.
const QUIET: Duration = Duration::from_millis(150);
/// Interval between two looks at the connections during closing.
pub(super) const CLOSING_LOOK: Duration = Duration::from_millis(20);

impl Loop {
    pub(super) fn begin_closing(&mut self) {
        self.closes = true;
        self.store.client_pause.end();
        self.look_at_closing();
    }

    /// Wakes all connections, so that those of quiet clients are closed, too.
    pub(super) fn look_at_closing(&mut self) {
        self.next_closing_look = self.now + CLOSING_LOOK;
        for slot in 0..self.slots.len() as u32 {
            self.wake(slot);
        }
    }

    /// Closes a connection whose requests are all answered and whose replies are all written. The
    /// condition is that the last reply was written just now (`has_written`) or the client is
    /// quiet.
    pub(super) fn close_if_due(&mut self, connection: &mut Connection, has_written: bool) -> Option<Then> {
        let is_quiet = self.now.saturating_duration_since(connection.last_progress) >= QUIET;
        if connection.has_output() || !(has_written || is_quiet) {
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
