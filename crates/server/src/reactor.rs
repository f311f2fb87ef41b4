//! The loops of a store. Each serves its share of the clients on one thread, and the first one owns
//! the Raft groups.
//!
//! ```text
//!  wait for sockets, messages, timers                     one wake-up for all that is ready
//!    ready connections: read, session, submissions        new input joins the next log batch
//!    lanes of other stores: read ─▶ groups
//!    messages ─▶ groups, sessions
//!    groups take turns ─▶ outcomes ─▶ sessions             the log batch leaves before replies do
//!    answered connections: write, read                    one write for all replies of a client
//!    groups take turns
//! ```
//!
//! A loop waits for nothing else: no device, no lock that is held during device I/O, no other loop.
//! There is one exception: the first loop makes short writes of the log
//! ([`Loop::may_wait_for_log`]). Work that waits for a leader, another store or rows on flash is a
//! task of the runtime. The task sends its answers as a message.

mod closing;
mod connection;
mod lanes;
mod moving;
mod serve;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Interest, Token};
use node::session::Ask;
use node::Outcome;

use crate::client_socket::ClientSocket;
use crate::clock::TurnTime;
use crate::connections::Moving;
use crate::executor::worker::RegionWorker;
use crate::loops::{ConnectionId, LoopInbox, PartId, ToLoop, ToWorker, WAKER};
use crate::regions::RegionShared;
use crate::statistics::commands::Tallied;
use crate::store::Store;
use crate::store_messages;
use crate::tls::Handshake;
use crate::transport::Remote;

use connection::Connection;
use lanes::{Lanes, LANES};

const EVENTS_MAX: usize = 1024;
/// Maximum bytes of one read from a socket, into a buffer that all connections of a loop share.
const READ_BYTES: usize = 64 << 10;
/// Maximum time of a client's TLS handshake. It is noticed up to a [`LOOK_PERIOD`] later. A client
/// that begins thousands at once takes long over each.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum time of a handshake while others find no place or no memory.
const HANDSHAKE_TIME_CROWDED: Duration = Duration::from_secs(10);
/// Interval at which a loop looks for idle connections that hold memory that others wait for.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Interval at which connections that wait for memory are tried again.
const MEMORY_POLL: Duration = Duration::from_millis(5);
/// Maximum time for which a loop lets the writes of its clients gather while others are in the log.
const REST: Duration = Duration::from_micros(100);
/// Time after a read in which a loop neither rests nor waits for the log.
const READS_PAUSE: Duration = Duration::from_millis(5);
/// Interval of looks at the end of a pause.
const PAUSE_POLL: Duration = Duration::from_millis(10);

/// A slot for a connection.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

pub struct Loop {
    number: usize,
    store: Arc<Store>,
    runtime: tokio::runtime::Handle,
    inbox: LoopInbox,
    /// The region worker; only the first loop has one.
    worker: Option<RegionWorker>,
    /// Connections from other stores; only the first loop has some.
    lanes: Lanes,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections that can continue.
    ready: VecDeque<u32>,
    /// Connections that wait for memory, longest wait first.
    in_line: VecDeque<u32>,
    /// Connections whose commands a pause holds.
    paused: Vec<u32>,
    read_buffer: Box<[u8]>,
    asks: Vec<Ask<Arc<RegionShared>>>,
    /// Numbers of commands that were answered in this round, and the times they took.
    answered: Vec<(u64, Duration)>,
    /// The counts of the same commands.
    tallied: Tallied,
    /// The number of parts that clients wait for and that the groups have not answered.
    submitted: usize,
    /// Commands that were submitted in this round, and the connections that sent them.
    commands_now: usize,
    writers_now: usize,
    /// True if clients send further writes before the first one is answered.
    is_pipelined: bool,
    /// True if the list of stores has only this one, as of the last look.
    is_alone: bool,
    /// The time of the last request that needed more than an entry of the log, or none.
    last_read: Instant,
    now: Instant,
    next_look: Instant,
    /// True during a planned stop, in which each connection is closed once its requests are
    /// answered.
    closes: bool,
    next_closing_look: Instant,
    stops: bool,
}

impl Loop {
    /// Creates a loop. The runtime runs the tasks that wait. Only the first loop has a worker.
    pub fn new(
        number: usize,
        store: Arc<Store>,
        runtime: tokio::runtime::Handle,
        inbox: LoopInbox,
        worker: Option<RegionWorker>,
    ) -> Loop {
        assert_eq!(number == 0, worker.is_some(), "the first loop owns the groups");
        let now = Instant::now();
        Loop {
            number,
            store,
            runtime,
            inbox,
            worker,
            lanes: Lanes::default(),
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            in_line: VecDeque::new(),
            paused: Vec::new(),
            read_buffer: vec![0; READ_BYTES].into_boxed_slice(),
            asks: Vec::new(),
            answered: Vec::new(),
            tallied: Tallied::default(),
            submitted: 0,
            commands_now: 0,
            writers_now: 0,
            is_pipelined: false,
            is_alone: false,
            last_read: now,
            now,
            next_look: now + LOOK_PERIOD,
            closes: false,
            next_closing_look: now,
            stops: false,
        }
    }

    /// Runs until the loop is told to stop.
    pub fn run(mut self) {
        self.store.loops.runs_here(self.number);
        if self.worker.is_some() {
            // The worker executes entries.
            allocator::share_arena_of_rows();
        }
        let runtime = self.runtime.clone();
        let _inside = runtime.enter();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut turn_time = TurnTime::new();
        while !self.stops {
            let mut timeout = self.timeout();
            if let Some(rest) = self.rest(timeout) {
                if let Err(error) = self.inbox.rest(rest) {
                    self.store.ends.fatal(&format!("cannot wait for messages: {error}"));
                }
                timeout = self.timeout();
            }
            if let Err(error) = self.inbox.wait(&mut events, timeout) {
                self.store.ends.fatal(&format!("cannot wait for sockets: {error}"));
            }
            self.now = Instant::now();
            turn_time.begin(self.now);
            events.iter().for_each(|event| self.note(event));
            // Client input joins the next log batch, so it is processed before a batch is closed.
            self.serve_ready();
            self.read_lanes();
            self.take_messages();
            if self.closes && self.now >= self.next_closing_look {
                self.look_at_closing();
            }
            if let Some(worker) = &mut self.worker {
                worker.on_time(self.now);
            }
            self.turn();
            self.serve_ready();
            self.serve_in_line();
            self.end_pause();
            self.turn();
            if self.worker.is_some() {
                self.store.metrics.groups_turn.record(turn_time.spent());
                self.store.loops.note_only_write(self.takes_single_writes());
            }
            self.store.metrics.add_traffic(std::mem::take(&mut self.tallied.traffic));
            self.store.metrics.record_commands(&mut self.answered);
            self.store.metrics.keys.add(std::mem::take(&mut self.tallied.keys));
            self.store.statistics.commands.record(self.number, &mut self.tallied);
            if self.now >= self.next_look {
                self.next_look = self.now + LOOK_PERIOD;
                self.store.engine.rows().note_time(self.now);
                self.is_alone = self.store.membership.members().list.len() == 1;
                self.close_stalled_clients();
                self.look_at_output_limits();
                self.close_slow_handshakes();
                self.close_idle_clients();
                self.close_late_strangers();
            }
        }
    }

    /// Returns the time for which the loop does not look at its clients, if it is to rest.
    ///
    /// Clients whose writes are in the log wait for its sync, and so will those that send writes
    /// meanwhile. A wake-up for each of these would cost them and this loop more than the write.
    /// With other stores there is more to do meanwhile, and a loop that rests would make it late.
    fn rest(&self, timeout: Duration) -> Option<Duration> {
        let rest = timeout.min(REST);
        let may_rest = self.submitted > 0 && self.only_writes();
        (may_rest && !rest.is_zero()).then_some(rest)
    }

    /// Returns true if the loop has had nothing to do lately but clients' writes.
    fn only_writes(&self) -> bool {
        let serves_reads = self.now.saturating_duration_since(self.last_read) < READS_PAUSE;
        self.is_alone && self.lanes.is_empty() && !serves_reads
    }

    /// Returns true if the loop would write the log itself if it were the only one.
    fn takes_single_writes(&self) -> bool {
        !self.is_pipelined && self.only_writes()
    }

    /// Notes whether the clients of this round pipeline their writes.
    fn note_writers(&mut self) {
        let (commands, writers) =
            (std::mem::take(&mut self.commands_now), std::mem::take(&mut self.writers_now));
        if writers > 0 {
            self.is_pipelined = commands > 2 * writers;
        }
    }

    fn timeout(&self) -> Duration {
        if !self.ready.is_empty() || self.lanes.are_ready() {
            return Duration::ZERO;
        }
        let wakes_at = match &self.worker {
            Some(worker) => worker.wakes_at().min(self.next_look),
            None => self.next_look,
        };
        let wakes_at = if self.closes { wakes_at.min(self.next_closing_look) } else { wakes_at };
        let wait = wakes_at.saturating_duration_since(Instant::now());
        let wait = if self.in_line.is_empty() { wait } else { wait.min(MEMORY_POLL) };
        if self.paused.is_empty() {
            wait
        } else {
            wait.min(PAUSE_POLL)
        }
    }

    fn note(&mut self, event: &Event) {
        let Token(slot) = event.token();
        if event.token() == WAKER {
            return;
        }
        if slot >= LANES {
            return self.lanes.note(event);
        }
        let Some(Slot { connection: Some(connection), .. }) = self.slots.get_mut(slot) else { return };
        connection.is_end_near |= event.is_read_closed() || event.is_error();
        connection.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        connection.is_writable |= event.is_writable() || event.is_error();
        self.wake(slot as u32);
    }

    /// Schedules the connection for this round.
    fn wake(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else { return };
        if !connection.is_ready {
            connection.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Returns the connection; `None` if it has ended.
    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.connection.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    fn take_messages(&mut self) {
        while let Some(message) = self.inbox.try_recv() {
            match message {
                ToLoop::Worker(message) => match &mut self.worker {
                    Some(worker) => worker.take(message),
                    None => unreachable!("only the first loop is told of groups"),
                },
                ToLoop::Accepted { stream, kind, seat, handshake } => {
                    if let Some(stream) = self.socket_of(stream, handshake) {
                        let session = Connection::first_session(&self.store);
                        let _ = self.accept(Moving { stream, kind, seat, session });
                    }
                }
                ToLoop::Lane { lane, back } => {
                    if let Err(error) = self.lanes.add(lane, back, self.inbox.poll.registry()) {
                        tracing::warn!(%error, "cannot wait for another store's socket");
                    }
                }
                ToLoop::Spread { before, now } => self.spread(before, now),
                ToLoop::Moved(client) => {
                    // It is served at once, because a planned stop may have begun.
                    if let Some(id) = self.accept(*client) {
                        self.wake(id.slot);
                    }
                }
                ToLoop::Answered { connection, number, answers } => match answers {
                    Some(answers) => {
                        let now = self.now;
                        if let Some(connection) = self.connection(connection) {
                            if connection.session.is_blocked() {
                                // The time for which a client waited for elements is no cost.
                                connection.began = Some(now);
                            }
                            connection.session.answered(number, answers);
                        }
                        self.wake_if_there(connection);
                    }
                    None => self.end(connection),
                },
                ToLoop::Outcomes(outcomes) => self.take_outcomes(outcomes),
                ToLoop::Kill(connection) => self.end(connection),
                ToLoop::Mail(connection) => self.wake_if_there(connection),
                ToLoop::Close => self.begin_closing(),
                ToLoop::Stop => self.stops = true,
            }
        }
    }

    /// Returns the socket of a new client. Without memory for one more connection with TLS, the
    /// client is dropped.
    fn socket_of(&self, stream: std::net::TcpStream, handshake: Option<Handshake>) -> Option<ClientSocket> {
        let stream = mio::net::TcpStream::from_std(stream);
        let Some(handshake) = handshake else { return Some(ClientSocket::Plain(stream)) };
        // Connections with TLS take memory although they are idle, also before a login.
        let has_no_room = self.store.client_memory.has_no_room_for_tls();
        let offered = self.store.tls.offered().filter(|_| !has_no_room);
        let Some(config) = offered else {
            self.store.metrics.connections_rejected.inc();
            return None;
        };
        match ClientSocket::tls(stream, config, handshake, Instant::now()) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "a client's TLS connection cannot begin");
                None
            }
        }
    }

    /// Passes the messages of other stores to the groups.
    fn read_lanes(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        let (store, registry) = (&self.store, self.inbox.poll.registry());
        let is_welcome = |remote: &Remote| store.membership.is_welcome(remote);
        self.lanes.read(&mut self.read_buffer, registry, is_welcome, |from, mut messages| {
            store_messages::drop_snapshots(store, from, &mut messages);
            worker.take(ToWorker::Messages { from, messages, place: None });
        });
    }

    fn wake_if_there(&mut self, id: ConnectionId) {
        if self.connection(id).is_some() {
            self.wake(id.slot);
        }
    }

    /// Returns true if the groups may wait for short writes of the log on this loop's thread.
    ///
    /// While clients wait for one write each, the loop has nothing else to do, and two wake-ups of
    /// threads would cost more than the wait. While the log thread writes, however, the loop
    /// answers reads and decodes the requests of a pipeline. Messages of other stores must not be
    /// late, above all if the device hangs.
    fn may_wait_for_log(&self) -> bool {
        self.takes_single_writes() && self.store.loops.active() == 1
    }

    /// Lets the groups take turns, if this loop owns them, and delivers the outcomes to clients.
    fn turn(&mut self) {
        self.note_writers();
        let may_wait = self.may_wait_for_log();
        let Some(worker) = &mut self.worker else { return };
        worker.turn(may_wait);
        let outcomes = worker.take_outcomes();
        if outcomes.is_empty() {
            return;
        }
        let loops = self.store.loops.all().len();
        let mut of_others: Vec<Vec<(PartId, Outcome)>> = Vec::new();
        let mut own = outcomes;
        if loops > 1 {
            of_others.resize_with(loops, Vec::new);
            let (mine, others): (Vec<_>, Vec<_>) =
                own.into_iter().partition(|(part, _)| part.of == self.number);
            own = mine;
            others.into_iter().for_each(|other| of_others[other.0.of].push(other));
        }
        for (of, outcomes) in of_others.into_iter().enumerate().filter(|(_, outcomes)| !outcomes.is_empty()) {
            let _ = self.store.loops.get(of).send(ToLoop::Outcomes(outcomes));
        }
        self.take_outcomes(own);
    }

    /// Takes a connection: a new one, or one that another loop has served.
    fn accept(&mut self, mut client: Moving) -> Option<ConnectionId> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(slot as usize);
        if let Err(error) = self.inbox.poll.registry().register(client.stream.stream(), token, interest) {
            tracing::warn!(%error, "cannot wait for a client's socket");
            self.free.push(slot);
            return None;
        }
        let id = ConnectionId { slot, generation: self.slots[slot as usize].generation };
        let home = self.store.loops.get(self.number).clone();
        let mail = home.clone();
        client.seat.entry.subscriber.served_by(move || drop(mail.send(ToLoop::Mail(id))));
        let goes_on = client.seat.entry.served_by(move || drop(home.send(ToLoop::Kill(id))));
        let mut connection = Connection::new(id, client, &self.store, self.now);
        let active = self.store.loops.active();
        // The number of loops may have changed while the connection was on its way.
        connection.moves_to = (self.number >= active).then_some(slot as usize % active);
        self.slots[slot as usize].connection = Some(Box::new(connection));
        if !goes_on {
            self.end(id);
            return None;
        }
        Some(id)
    }

    fn end(&mut self, id: ConnectionId) {
        if self.connection(id).is_some() {
            if let Some(mut connection) = self.empty(id.slot) {
                self.release_watches(&mut connection);
            }
        }
    }

    /// Empties a slot. Returns the connection that was in it.
    fn empty(&mut self, number: u32) -> Option<Box<Connection>> {
        let slot = &mut self.slots[number as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(number);
        slot.connection.take()
    }

    /// Serves each connection that can continue once, so that a busy one does not delay the others.
    fn serve_ready(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(slot) = self.ready.pop_front() else { return };
            if let Some(connection) = &mut self.slots[slot as usize].connection {
                connection.is_ready = false;
                self.serve(slot);
            }
        }
    }

    /// Continues connections that wait for memory, as far as there is room. The first of them
    /// always gets room eventually.
    fn serve_in_line(&mut self) {
        if self.in_line.is_empty() {
            return;
        }
        let mut is_first = true;
        for slot in std::mem::take(&mut self.in_line) {
            // The slot may belong to another connection now, which has its own place in the queue.
            let Some(connection) = &mut self.slots[slot as usize].connection else { continue };
            if !std::mem::replace(&mut connection.has_place_in_line, false) {
                continue;
            }
            if !connection.is_in_line() {
                // Its place in the queue may have kept it from moving to another loop.
                if connection.moves_to.is_some() {
                    self.wake(slot);
                }
                continue;
            }
            connection.has_waited_longest = std::mem::replace(&mut is_first, false);
            self.serve(slot);
        }
    }

    /// Closes clients that have not completed their TLS handshake in time.
    fn close_slow_handshakes(&mut self) {
        let is_crowded = self.store.tls.is_crowded() || self.store.client_memory.has_no_room_for_tls();
        let patience = match is_crowded {
            true => HANDSHAKE_TIME_CROWDED,
            false => HANDSHAKE_TIME_MAX,
        };
        let now = self.now;
        let is_slow = |since: Instant| now.saturating_duration_since(since) >= patience;
        for id in self.those(|connection| connection.stream.handshake_since().is_some_and(is_slow)) {
            tracing::debug!("closing a client that has not completed its TLS handshake in time");
            self.end(id);
        }
    }

    /// Returns the connections for which `holds` is true.
    fn those(&self, holds: impl Fn(&Connection) -> bool) -> Vec<ConnectionId> {
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_deref());
        connections.filter(|connection| holds(connection)).map(|connection| connection.id).collect()
    }

    /// Closes clients that have been silent for longer than `timeout`. Those that wait for an
    /// element or for an answer are not idle.
    fn close_idle_clients(&mut self) {
        let patience = match self.store.settings.read().timeout {
            0 => return,
            seconds => Duration::from_secs(seconds.into()),
        };
        let now = self.now;
        for id in self.those(|connection| connection.is_idle_for(now, patience)) {
            tracing::debug!("closing an idle client");
            self.end(id);
        }
    }

    /// Closes clients that have not logged in within `auth-timeout`.
    fn close_late_strangers(&mut self) {
        let patience = match self.store.settings.read().auth_timeout {
            _ if self.store.access.accounts().default_user().is_open() => return,
            0 => return,
            seconds => Duration::from_secs(seconds.into()),
        };
        let now = self.now;
        let is_late = |connection: &Connection| {
            connection.seat.stranger.as_ref().is_some_and(|stranger| stranger.is_late(now, patience))
        };
        for id in self.those(is_late) {
            tracing::debug!("closing a client that has not logged in");
            self.end(id);
        }
    }

    /// Serves clients that do not read their replies, so that those beyond their limit end although
    /// nothing happens at their sockets.
    fn look_at_output_limits(&mut self) {
        if self.store.client_memory.limits().normal.is_none() {
            return;
        }
        for slot in 0..self.slots.len() as u32 {
            let connection = self.slots[slot as usize].connection.as_deref();
            if connection.is_some_and(|connection| connection.has_output() && !connection.is_writable) {
                self.wake(slot);
            }
        }
    }

    /// Closes clients that neither send nor read while they hold memory that others wait for.
    fn close_stalled_clients(&mut self) {
        if !self.store.client_memory.is_short() {
            return;
        }
        let patience = self.store.config.request_timeout;
        let now = self.now;
        for id in self.those(|connection| connection.is_stalled(now, patience)) {
            let client = self.connection(id).map(|connection| connection.seat.entry.id);
            tracing::warn!(
                client,
                "closing a client: it neither sends nor reads, and holds memory that others wait for"
            );
            self.store.metrics.clients_given_up.inc();
            self.end(id);
        }
    }
}
