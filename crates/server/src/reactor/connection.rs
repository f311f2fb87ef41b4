//! One client's socket, its session, and the memory of both.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::session::{Session, READS_FIRST};
use node::Item;
use tokio::task::AbortHandle;
use types::RegionId;

use super::READ_BYTES;
use crate::client_memory::{ClientMemory, Held};
use crate::client_socket::ClientSocket;
use crate::connections::{ConnectionSlot, ListenerKind, Moving};
use crate::dispatch::REPLY_BYTES_MAX;
use crate::loops::ConnectionId;
use crate::metrics::Traffic;
use crate::pubsub::mailbox::Overfull;
use crate::regions::RegionShared;
use crate::store::Store;

/// Maximum bytes of a client's first read while others wait for memory.
const READ_BYTES_SHORT: usize = 1 << 10;
/// Maximum bytes that are written to one client before others are served.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Memory that executing a batch takes in addition to requests and replies, in bytes.
const BATCH_BYTES: usize = 6 << 10;

/// Commands that were submitted to the groups.
pub struct Submitted {
    pub number: usize,
    pub region: Arc<RegionShared>,
    pub items: Arc<Vec<Item>>,
    pub began: Instant,
    /// The latest time at which the commands get an answer, possibly an error.
    pub deadline: Instant,
}

/// Tasks that carry out parts. They end with the connection.
#[derive(Default)]
pub struct Tasks(pub Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

pub struct Connection {
    pub id: ConnectionId,
    pub(super) stream: ClientSocket,
    pub kind: ListenerKind,
    pub seat: ConnectionSlot,
    pub session: Session<Arc<RegionShared>>,
    memory: Arc<ClientMemory>,
    pub(super) held: Held,
    pub submitted: Vec<Submitted>,
    /// Likely size of the replies to reads in tasks, in bytes. Until these replies arrive, they are
    /// counted only here.
    expected: usize,
    pub tasks: Tasks,
    /// The time at which the session took the commands that are being answered.
    pub began: Option<Instant>,
    /// The time at which the client last sent or received something.
    pub(super) last_progress: Instant,
    /// True if the socket may have input: since the last event no read has found it empty.
    pub is_readable: bool,
    /// True if the socket may take output: since the last event no write has found it full.
    pub is_writable: bool,
    /// True if the end of the client's stream has arrived. There may be input before it, but no
    /// further event.
    pub is_end_near: bool,
    /// True if the client sends nothing more.
    is_at_end: bool,
    /// True if the connection is served in this round.
    pub is_ready: bool,
    /// True if the connection is in the loop's queue for memory.
    pub has_place_in_line: bool,
    pub has_waited_longest: bool,
    /// True if the connection was closed by a planned stop: nothing is written, and input is
    /// dropped.
    pub is_closed: bool,
    /// The number of queued commands that `CLIENT LIST` shows.
    pub shown_queued: Option<usize>,
    /// True if the connection is among those that a pause holds.
    pub is_paused: bool,
    /// The region to which the connection wrote last.
    pub last_written: Option<RegionId>,
    /// The loop that is to serve the connection, if it is another one.
    pub moves_to: Option<usize>,
    /// The time since when the replies that the socket does not take have exceeded the soft limit.
    over_soft_since: Option<Instant>,
}

/// The result of a read from the socket.
pub enum ReadOutcome {
    Bytes,
    Nothing,
    /// There is no memory for more input.
    NoRoom,
    /// The buffer of a very large request is growing.
    NotYet,
}

impl Connection {
    /// Returns the session of a new client.
    pub fn first_session(store: &Store) -> Session<Arc<RegionShared>> {
        let limits = store.settings.read().limits.clone();
        Session::new(limits, !store.access.accounts().default_user().is_open())
    }

    pub fn new(id: ConnectionId, client: Moving, store: &Store, now: Instant) -> Connection {
        let Moving { stream, kind, seat, session } = client;
        Connection {
            id,
            stream,
            kind,
            seat,
            session,
            held: Held::new(store.client_memory.clone()),
            memory: store.client_memory.clone(),
            submitted: Vec::new(),
            expected: 0,
            tasks: Tasks::default(),
            began: None,
            last_progress: now,
            is_readable: false,
            is_writable: true,
            is_end_near: false,
            is_at_end: false,
            is_ready: false,
            has_place_in_line: false,
            has_waited_longest: false,
            is_closed: false,
            shown_queued: None,
            is_paused: false,
            last_written: None,
            moves_to: None,
            over_soft_since: None,
        }
    }

    /// Returns true if the connection can move to another loop: nothing of it is in progress, and
    /// neither memory nor a planned stop holds it here. `rest` was called before.
    pub fn can_move(&self) -> bool {
        self.session.is_idle()
            && !self.has_output()
            && !(self.stream.is_tls() && (self.is_readable || self.stream.handshake_since().is_some()))
            && self.submitted.is_empty()
            && self.tasks.0.is_empty()
            && !(self.held.is_in_line() || self.has_place_in_line || self.is_closed)
    }

    /// Reads once, through a buffer that all connections of a loop share, into a buffer as large as
    /// the input.
    pub fn read(
        &mut self,
        shared: &mut [u8],
        traffic: &mut Traffic,
        now: Instant,
    ) -> io::Result<ReadOutcome> {
        let mut most = shared.len();
        if self.session.input_bytes() == 0 {
            if self.memory.is_short() {
                most = READ_BYTES_SHORT;
            }
        } else {
            let needed = self.session.input_bytes_with(READ_BYTES);
            if !self.hold(self.session.output_bytes() + needed) {
                return Ok(ReadOutcome::NoRoom);
            }
            if !self.session.make_room(READ_BYTES) {
                return Ok(ReadOutcome::NotYet);
            }
        }
        loop {
            if self.stream.holds_much() {
                self.held.count((self.session.held_bytes() + self.stream.held_bytes()) as u64);
                // It does not wait in line, where it could get the turn without ever completing.
                if self.memory.has_no_room_for_tls() {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
            }
            match self.stream.read(&mut shared[..most]) {
                Ok(0) => {
                    self.is_at_end = true;
                    self.is_readable = false;
                    return Ok(ReadOutcome::Nothing);
                }
                Ok(bytes) => {
                    // Input that follows a short read causes another event.
                    self.is_readable = bytes == most || self.is_end_near || self.stream.may_have_more();
                    self.last_progress = now;
                    traffic.bytes_in += bytes as u64;
                    traffic.reads += 1;
                    self.session.received(&shared[..bytes]);
                    return Ok(ReadOutcome::Bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    return Ok(ReadOutcome::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts waiting messages into the output, as far as there is room.
    ///
    /// # Errors
    /// [`Overfull`] if the client must end, because it does not read them.
    pub fn take_mail(&mut self) -> Result<(), Overfull> {
        let subscriber = &self.seat.entry.subscriber;
        if !subscriber.has_mail() {
            return Ok(());
        }
        let session = &mut self.session;
        subscriber.take(|message| {
            let takes = session.takes_pushes();
            if takes {
                message.parts(|part| session.push(part));
            }
            takes
        })
    }

    /// Returns true if there are messages that the output may take.
    pub fn has_mail_to_take(&self) -> bool {
        self.is_writable && self.session.takes_pushes() && self.seat.entry.subscriber.has_mail()
    }

    /// Writes as much output as the socket takes, up to a maximum. With `is_last` the kernel delays
    /// the last segment, so that it can carry the end of the stream.
    pub fn write(&mut self, traffic: &mut Traffic, now: Instant, is_last: bool) -> io::Result<()> {
        let mut room = WRITE_BYTES_MAX;
        while self.has_more_to_write() && room > 0 {
            let output = self.session.output();
            let output = &output[..output.len().min(room)];
            let written = match output.is_empty() {
                true => self.stream.flush().map(|()| 0),
                false => self.stream.write(output, is_last),
            };
            match written {
                Ok(0) if output.is_empty() => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.last_progress = now;
                    traffic.bytes_out += bytes as u64;
                    traffic.writes += 1;
                    self.session.written(bytes);
                    room -= bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns true if the client must end, because it does not read its replies: those that its
    /// socket does not take exceed `client-output-buffer-limit normal`. Messages for subscribers
    /// have a limit of their own.
    pub fn exceeds_output_limit(&mut self, now: Instant) -> bool {
        let limit = self.memory.limits().normal;
        if limit.is_none() && self.over_soft_since.is_none() {
            self.session.allow_output(0);
            return false;
        }
        let is_counted = !self.is_writable && !self.seat.entry.subscriber.is_subscribed();
        // Only replies that the client does not read may take more than a session has by itself.
        let most = if is_counted { limit.hard_bytes.max(limit.soft_bytes) } else { 0 };
        self.session.allow_output(usize::try_from(most).unwrap_or(usize::MAX));
        let bytes = if is_counted { self.session.output_bytes() as u64 } else { 0 };
        limit.is_exceeded(bytes, || now, &mut self.over_soft_since)
    }

    /// Returns true if there is output that the socket may take.
    pub fn has_more_to_write(&self) -> bool {
        self.is_writable && self.has_output()
    }

    /// Returns true if there is output that the socket has not taken.
    pub fn has_output(&self) -> bool {
        !self.session.output().is_empty() || self.stream.has_pending()
    }

    /// Returns true if the connection is over: the client has all of its replies, and its input has
    /// ended or is no longer read.
    pub fn has_ended(&self) -> bool {
        let is_over = self.session.has_ended() || (self.is_at_end && self.session.is_idle());
        is_over && !self.has_output()
    }

    /// Returns true if every request that has arrived is answered. The replies may not be written
    /// yet.
    pub fn is_answered(&mut self) -> bool {
        self.session.is_idle() && self.session.input_bytes() == 0 && !self.is_readable
    }

    pub fn shut_down(&mut self) {
        self.stream.shut_down();
    }

    /// Reserves memory for this many commands and their likely replies.
    pub fn hold_for(&mut self, commands: usize) -> bool {
        let replies = commands.min(READS_FIRST).saturating_mul(self.held.reply_bytes());
        self.hold(self.session.held_bytes() + replies + BATCH_BYTES)
    }

    /// Reserves memory. Returns false if there is no room; the connection then waits in line.
    fn hold(&mut self, bytes: usize) -> bool {
        let bytes = (bytes + self.stream.held_bytes()) as u64;
        let has_room = self.held.try_hold(bytes, self.has_waited_longest);
        self.held.set_in_line(!has_room);
        self.has_waited_longest &= !has_room;
        has_room
    }

    pub fn is_in_line(&self) -> bool {
        self.held.is_in_line()
    }

    /// Reserves memory for the replies to this many reads. The reservation lasts until no part of
    /// the session is pending.
    pub fn expect(&mut self, reads: usize) {
        let reply = self.held.reply_bytes();
        // A task returns its answers once they reach the limit.
        let replies = reads.saturating_mul(reply).min(REPLY_BYTES_MAX.saturating_add(reply));
        self.expected = self.expected.saturating_add(replies);
    }

    /// Accounts for the memory that is held between two rounds. An idle connection holds no
    /// buffers.
    pub fn rest(&mut self) {
        if !self.session.is_waiting() {
            self.expected = 0;
        }
        if self.session.is_idle() {
            self.session.rest();
            self.tasks.0.clear();
        }
        let held = self.session.held_bytes() + self.expected + self.stream.held_bytes();
        self.held.count(held as u64);
    }

    /// Records the replies of a batch whose commands are all answered.
    pub fn batch_ended(&mut self) {
        let replied = self.session.replied();
        self.held.replied(replied.count, replied.bytes);
    }

    /// Returns true if nothing was read from the client, or written to it, for longer than
    /// `patience`, and nothing of it is in progress.
    pub fn is_idle_for(&self, now: Instant, patience: Duration) -> bool {
        !self.session.is_waiting()
            && !self.seat.entry.subscriber.expects_messages()
            && now.saturating_duration_since(self.last_progress) > patience
    }

    /// Returns true if the client has been idle for `patience` while it holds memory that others
    /// wait for.
    pub fn is_stalled(&self, now: Instant, patience: Duration) -> bool {
        !self.session.is_waiting()
            && !self.held.is_in_line()
            && now.saturating_duration_since(self.last_progress) >= patience
            // What TLS needs is no reason: an idle client with TLS is no burden.
            && (self.session.held_bytes() > 0 || self.stream.has_pending())
            && self.held.holds_contended_memory()
    }
}
