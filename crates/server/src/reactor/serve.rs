//! Serves one connection: lets its session advance as far as it can without waiting, and carries
//! out the session's requests.

use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use command::{flags, CommandSpec, Handler, ServerCommand};
use node::reads::Origin;
use node::session::{Ask, Context, Host, Kind, Own, Part, Route};
use node::{Answer, Item, Outcome};
use resp::Reply;
use rustls::pki_types::CertificateDer;
use tls_stream::certificate;

use super::connection::{Connection, ReadOutcome, Submitted};
use super::Loop;
use crate::client::{self, Connected};
use crate::connections::{ClientEntry, ListenerKind};
use crate::dispatch::Finished;
use crate::loops::{Asker, ConnectionId, LoopSender, PartId, ToLoop};
use crate::regions::RegionShared;
use crate::store::{self, Store};

/// Maximum number of batches of one connection before others are served.
const BATCHES_MAX: usize = 4;

/// The state of a connection after a round.
#[derive(PartialEq, Eq)]
pub(super) enum Then {
    /// The connection waits for an event or a message.
    Waits,
    /// The connection can continue after others were served.
    GoesOn,
    Ends,
}

/// A command panicked, so its connection must end.
struct Panicked;

impl Loop {
    pub(super) fn serve(&mut self, slot: u32) {
        let Some(mut connection) = self.slots[slot as usize].connection.take() else { return };
        let then = self.go_on(&mut connection);
        let id = connection.id;
        if then != Then::Ends {
            connection.rest();
            let moves = then == Then::Waits && connection.can_move();
            let moves_to = connection.moves_to.filter(|_| moves);
            self.slots[slot as usize].connection = Some(connection);
            if let Some(to) = moves_to {
                return self.give_away(slot, to);
            }
        } else {
            // The replies are written, so the client must see the end of the stream after them.
            connection.shut_down();
            self.slots[slot as usize].connection = Some(connection);
            self.end(id);
        }
        if then == Then::GoesOn {
            self.wake(slot);
        }
    }

    fn go_on(&mut self, connection: &mut Connection) -> Then {
        for _ in 0..BATCHES_MAX {
            if connection.seat.entry.killed.load(Ordering::Acquire) {
                return Then::Ends;
            }
            if connection.is_closed {
                return self.drop_what_comes(connection);
            }
            if connection.take_mail().is_err() {
                return self.end_slow_subscriber(connection);
            }
            let is_last = self.closes && connection.is_answered();
            let has_output = connection.has_output();
            if connection.write(&mut self.tallied.traffic, self.now, is_last).is_err() {
                return Then::Ends;
            }
            if connection.exceeds_output_limit(self.now) {
                return self.end_slow_reader(connection);
            }
            if connection.has_more_to_write() || connection.has_mail_to_take() {
                return Then::GoesOn;
            }
            if is_last {
                if let Some(then) = self.close_if_due(connection, has_output) {
                    return then;
                }
            }
            if connection.session.is_blocked() && connection.is_end_near {
                // The client has gone, and must not take an element with it.
                return Then::Ends;
            }
            if connection.session.is_held() {
                // The commands before the held one are answered.
                if !self.advance(connection)
                    || connection.write(&mut self.tallied.traffic, self.now, is_last).is_err()
                {
                    return Then::Ends;
                }
                return self.pause(connection);
            }
            if !connection.session.can_advance() {
                if connection.session.is_waiting() || connection.session.is_output_full() {
                    return Then::Waits;
                }
                connection.session.decode();
            }
            if !connection.session.can_advance() {
                if connection.has_ended() {
                    return Then::Ends;
                }
                if !connection.is_readable || connection.session.context().closing {
                    return Then::Waits;
                }
                match connection.read(&mut self.read_buffer, &mut self.tallied.traffic, self.now) {
                    Ok(ReadOutcome::Bytes | ReadOutcome::Nothing) => {
                        match connection.stream.take_certificate() {
                            Some(certificate) if !self.identify(connection, &certificate) => {
                                return Then::Ends
                            }
                            _ => continue,
                        }
                    }
                    Ok(ReadOutcome::NotYet) => return Then::GoesOn,
                    Ok(ReadOutcome::NoRoom) => return self.wait_in_line(connection),
                    Err(_) => return Then::Ends,
                }
            }
            let commands = connection.session.decode();
            // Replies that need no execution never wait for memory.
            if commands > 0 && !connection.hold_for(commands) {
                return self.wait_in_line(connection);
            }
            if !self.advance(connection) {
                return Then::Ends;
            }
            if commands > 0 && connection.session.is_idle() {
                // The commands are answered already.
                self.last_read = self.now;
            }
        }
        Then::GoesOn
    }

    /// Gives a connection the user whom its certificate names, if the settings say so. Returns
    /// false if the certificate has expired: that of a resumed session is not verified again.
    fn identify(&self, connection: &mut Connection, certificate: &CertificateDer<'_>) -> bool {
        let Some(facts) = certificate::facts(certificate) else { return true };
        if facts.valid_until < Duration::from_micros(self.store.wall.micros()) {
            tracing::debug!("closing a client that has resumed a TLS session with an expired certificate");
            return false;
        }
        let name = facts.common_name.filter(|_| self.store.settings.read().tls.names_users);
        let access =
            name.and_then(|name| self.store.access.log_in_named(&connection.seat.entry, &name.into()));
        if let Some(access) = access {
            connection.session.set_access(access);
            connection.seat.stranger = None;
        }
        true
    }

    /// Lets a connection wait for the end of a pause.
    fn pause(&mut self, connection: &mut Connection) -> Then {
        if !std::mem::replace(&mut connection.is_paused, true) {
            self.paused.push(connection.id.slot);
        }
        Then::Waits
    }

    /// Continues the connections that a pause has held, if it has ended.
    pub(super) fn end_pause(&mut self) {
        if self.paused.is_empty() || self.store.client_pause.holds(true).is_some() {
            return;
        }
        for slot in std::mem::take(&mut self.paused) {
            // Another connection may have the slot now.
            let connection = self.slots[slot as usize].connection.as_mut();
            if let Some(connection) = connection.filter(|connection| connection.is_paused) {
                connection.is_paused = false;
                // The pause is no cost of the held command.
                connection.began = Some(self.now);
                connection.session.resume();
                self.wake(slot);
            }
        }
    }

    /// Ends a client that does not read the messages of its channels.
    fn end_slow_subscriber(&self, connection: &Connection) -> Then {
        self.store.clients.pubsub.ended.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            client = connection.seat.entry.id,
            "closing a client: it does not read the messages of its channels as fast as they come"
        );
        Then::Ends
    }

    /// Ends a client that does not read its replies.
    fn end_slow_reader(&self, connection: &Connection) -> Then {
        self.store.metrics.output_limit_ends.inc();
        tracing::warn!(
            client = connection.seat.entry.id,
            "closing a client: it does not read its replies, and they exceed client-output-buffer-limit normal"
        );
        Then::Ends
    }

    fn wait_in_line(&mut self, connection: &mut Connection) -> Then {
        if !std::mem::replace(&mut connection.has_place_in_line, true) {
            self.in_line.push_back(connection.id.slot);
        }
        Then::Waits
    }

    /// Advances the session. Returns false if it panicked; then only its connection ends.
    fn advance(&mut self, connection: &mut Connection) -> bool {
        connection.began.get_or_insert(self.now);
        let mut asks = std::mem::take(&mut self.asks);
        let mut host = Served { store: &self.store, entry: &connection.seat.entry, kind: connection.kind };
        let session = &mut connection.session;
        if let Some(access) = self.store.access.review(host.entry, session.context()) {
            session.set_access(access);
        }
        if session.context().is_subscriber && !host.entry.subscriber.is_subscribed() {
            // The last of its shard channels has moved to another store.
            session.end_subscriptions();
        }
        let advanced = catch_unwind(AssertUnwindSafe(|| session.advance(&mut host, &mut asks)));
        if session.context().authenticated {
            connection.seat.stranger = None;
        }
        while let Some(keys) = session.take_tracked() {
            self.store.settle_reads(host.entry.id, &keys);
        }
        let mut is_whole = advanced.is_ok();
        let submitted = self.submitted;
        for ask in asks.drain(..) {
            is_whole = is_whole && self.carry_out(connection, ask);
        }
        self.writers_now += usize::from(self.submitted > submitted);
        self.asks = asks;
        self.account(connection);
        if !is_whole {
            tracing::error!(
                client = connection.seat.entry.id,
                "a command panicked: closing its client's connection"
            );
        }
        is_whole
    }

    /// Counts the answered commands.
    fn account(&mut self, connection: &mut Connection) {
        if let Some(name) = connection.session.take_last_command() {
            connection.seat.entry.describe(|d| d.last_command = name);
        }
        let queued = connection.session.queued();
        if queued != connection.shown_queued {
            connection.shown_queued = queued;
            connection.seat.entry.describe(|d| d.queued = queued);
        }
        if !connection.session.is_idle() {
            return;
        }
        if let Some(began) = connection.began.take() {
            let count = connection.session.take_answered();
            connection.batch_ended();
            connection.seat.entry.commands.fetch_add(count, Ordering::Relaxed);
            let took = began.elapsed();
            self.answered.push((count, took));
            self.tallied.take(connection.session.tally(), took);
        }
    }

    /// Carries out a part of a session's work. Returns false if it panicked.
    fn carry_out(&mut self, connection: &mut Connection, ask: Ask<Arc<RegionShared>>) -> bool {
        let Ask { number, part } = ask;
        let deadline = self.now + self.store.config.request_timeout;
        let (store, kind) = (self.store.clone(), connection.kind);
        if !matches!(part, Part::Commands { kind: Kind::Writes, .. }) {
            self.last_read = self.now;
        }
        match part {
            Part::Commands { region, kind: Kind::Writes, items } => {
                match self.find_nothing(connection, &region, &items) {
                    Ok(Some(answers)) => {
                        connection.session.answered(number, answers);
                        return true;
                    }
                    Ok(None) => {}
                    Err(Panicked) => return false,
                }
                if connection.last_written.replace(region.id()) != Some(region.id()) {
                    connection.seat.entry.writes_to(region.id());
                }
                let client = Asker::Client(PartId { of: self.number, connection: connection.id, number });
                let author = connection.seat.entry.id;
                if let Some(submit) = store.submission(&region, &items, deadline, (author, client)) {
                    match &mut self.worker {
                        Some(worker) => worker.submit(submit),
                        // A worker that has ended no longer answers clients.
                        None => drop(store.worker.step(node::Input::Submit(submit))),
                    }
                    let began = self.now;
                    self.submitted += 1;
                    self.commands_now += items.len();
                    connection.submitted.push(Submitted { number, region, items, began, deadline });
                    return true;
                }
                self.spawn_commands(connection, number, items.clone(), async move {
                    store.execute(&region, items, deadline).await
                });
            }
            Part::Commands { region, kind: reads, items } => {
                let began = store.statistics.begin(&items);
                let counts = &mut self.tallied.keys;
                let read = || store.read_at_once(&region, &items, reads, counts);
                let read = catch_unwind(AssertUnwindSafe(read));
                match read {
                    Ok(Some(answers)) => {
                        if let Some(began) = began {
                            store.statistics.executed(&items, began.elapsed(), &connection.seat.entry);
                        }
                        connection.session.answered(number, answers);
                    }
                    Ok(None) => {
                        connection.expect(items.len());
                        self.spawn_commands(connection, number, items.clone(), async move {
                            match reads {
                                Kind::Weak(max) => {
                                    store.execute_weakly(kind, &region, &items, max, deadline).await
                                }
                                Kind::Reads | Kind::Writes => store.execute(&region, items, deadline).await,
                            }
                        });
                    }
                    Err(_) => return false,
                }
            }
            Part::Alone(item) => {
                connection.seat.entry.writes_with(&item);
                let items = Arc::new(vec![item.clone()]);
                self.spawn_commands(connection, number, items, async move {
                    vec![store.execute_alone(kind, item, deadline).await]
                });
            }
            Part::Copying(item) => {
                connection.seat.entry.writes_with(&item);
                let items = Arc::new(vec![item.clone()]);
                self.spawn_commands(connection, number, items, async move {
                    vec![store.copy_in_parts(kind, item).await]
                });
            }
            Part::Own { command, args } => {
                let (entry, began) = (connection.seat.entry.clone(), self.now);
                self.spawn(connection, number, async move {
                    let reply = client::run_own_later(&store, &entry, command, &args).await;
                    // The time of WAIT and WAITAOF is no cost. DEBUG SLEEP counts as in Redis,
                    // whose tests use it for the slow log.
                    let spec = command::resolve(&args).ok().filter(|_| !command.waits_for_copies());
                    if let Some(spec) = spec {
                        store.statistics.executed_own(spec, &args, began.elapsed(), &entry);
                    }
                    vec![reply.into()]
                });
            }
            Part::Blocking(item) => {
                match store.route(&item) {
                    Ok(store::Route::Region(region)) if item.is_write() => {
                        connection.seat.entry.writes_to(region.id());
                    }
                    _ => connection.seat.entry.writes_with(&item),
                }
                let client = connection.seat.entry.id;
                self.spawn(connection, number, async move {
                    vec![store.block(kind, client, item, deadline).await]
                });
            }
            Part::Release(item) => self.release(connection.kind, item),
        }
        true
    }

    /// Answers writes that change nothing because their keys do not exist; `None` if they need an
    /// entry of the log.
    fn find_nothing(
        &mut self,
        connection: &Connection,
        region: &RegionShared,
        items: &[Item],
    ) -> Result<Option<Vec<Answer>>, Panicked> {
        if !items.iter().all(Item::needs_its_keys) {
            return Ok(None);
        }
        let began = self.store.statistics.begin(items);
        let (store, counts) = (&self.store, &mut self.tallied.keys);
        let found = catch_unwind(AssertUnwindSafe(|| {
            store.find_nothing_at_once(region, items, Origin::Here, counts)
        }));
        let answers = found.map_err(|_| Panicked)?;
        if let Some(began) = began.filter(|_| answers.is_some()) {
            self.store.statistics.executed(items, began.elapsed(), &connection.seat.entry);
        }
        Ok(answers)
    }

    /// Releases the watches of a connection that ends.
    pub(super) fn release_watches(&self, connection: &mut Connection) {
        if let Some(item) = connection.session.take_watches(self.store.config.cluster_enabled) {
            self.release(connection.kind, item);
        }
    }

    /// Releases watches in a task. Nothing waits for it: a watch that stays is never mistaken for
    /// another one.
    fn release(&self, kind: ListenerKind, item: Item) {
        let (store, deadline) = (self.store.clone(), self.now + self.store.config.request_timeout);
        self.runtime.spawn(async move { store.execute_alone(kind, item, deadline).await });
    }

    /// Starts a task that executes commands, and notes them if they take long.
    fn spawn_commands(
        &self,
        connection: &mut Connection,
        number: usize,
        items: Arc<Vec<Item>>,
        work: impl Future<Output = Vec<Answer>> + Send + 'static,
    ) {
        let (store, entry, began) = (self.store.clone(), connection.seat.entry.clone(), self.now);
        self.spawn(connection, number, async move {
            let answers = work.await;
            // A part that took long may end before its last command.
            let answered = &items[..answers.len().min(items.len())];
            store.statistics.executed(answered, began.elapsed(), &entry);
            answers
        });
    }

    /// Starts a task that executes a part. Its answers come as a message.
    fn spawn(
        &self,
        connection: &mut Connection,
        number: usize,
        work: impl Future<Output = Vec<Answer>> + Send + 'static,
    ) {
        let home = self.store.loops.get(self.number).clone();
        let answering = Answering { home, connection: connection.id, number, answers: None };
        let task = self.runtime.spawn(async move { answering.ends_with(work).await });
        connection.tasks.0.push(task.abort_handle());
    }

    pub(super) fn take_outcomes(&mut self, outcomes: Vec<(PartId, Outcome)>) {
        // The groups may have executed for long since the round began.
        let now = Instant::now();
        self.submitted = self.submitted.saturating_sub(outcomes.len());
        for (part, outcome) in outcomes {
            let Some(mut connection) = self.take(part.connection) else { continue };
            let submitted = connection.submitted.iter().position(|of| of.number == part.number);
            if let Some(at) = submitted {
                let Submitted { number, region, items, began, deadline } =
                    connection.submitted.swap_remove(at);
                let took = now.saturating_duration_since(began);
                self.store.statistics.executed(&items, took, &connection.seat.entry);
                match self.store.finished(outcome, items.len()) {
                    Finished::Answered(answers) => connection.session.answered(number, answers),
                    Finished::GoesOn(answers) => {
                        let store = self.store.clone();
                        self.spawn(&mut connection, number, async move {
                            store.go_on(&region, items, answers, deadline).await
                        });
                    }
                }
            }
            self.slots[part.connection.slot as usize].connection = Some(connection);
            self.wake(part.connection.slot);
        }
    }

    fn take(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        self.connection(id)?;
        self.slots[id.slot as usize].connection.take()
    }
}

/// Sends a part's answers when its task ends, or `None` if the task panics.
struct Answering {
    home: LoopSender,
    connection: ConnectionId,
    number: usize,
    answers: Option<Vec<Answer>>,
}

impl Answering {
    async fn ends_with(mut self, work: impl Future<Output = Vec<Answer>>) {
        self.answers = Some(work.await);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let (connection, number, answers) = (self.connection, self.number, self.answers.take());
        let _ = self.home.send(ToLoop::Answered { connection, number, answers });
    }
}

/// The store, as seen by the session of one of its clients.
struct Served<'a> {
    store: &'a Store,
    entry: &'a Arc<ClientEntry>,
    kind: ListenerKind,
}

impl Host for Served<'_> {
    type Region = Arc<RegionShared>;

    fn may_copy_much(&self, item: &Item) -> bool {
        self.store.may_copy_much(item)
    }

    fn has_slots(&self) -> bool {
        self.store.config.cluster_enabled
    }

    fn route(&mut self, context: &Context, item: &Item) -> Route<Arc<RegionShared>> {
        let region = match self.store.route(item) {
            Ok(store::Route::Region(region)) => region,
            Ok(store::Route::Every(_) | store::Route::Unknown(_)) => return Route::Alone,
            Err(error) => return Route::Answered(error),
        };
        let leads = region.leader() == Some(self.store.id);
        if leads && !region.is_quarantined() {
            return Route::Region(region);
        }
        if context.read_only && !item.is_write() && region.is_local() {
            return Route::Weak(region);
        }
        if leads || !self.store.redirects(self.kind) {
            return Route::Region(region);
        }
        self.store.moved(&region, item).map_or(Route::Alone, Route::Answered)
    }

    fn holds(&self, may_write: bool) -> bool {
        self.store.client_pause.holds(may_write).is_some()
    }

    fn is_monitored(&self) -> bool {
        self.store.clients.pubsub.monitors.are_there()
    }

    fn monitor(&mut self, context: &Context, spec: &'static CommandSpec, args: &[bytes::Bytes]) {
        let (micros, peer) = (self.store.wall.micros(), self.entry.peer.to_string());
        self.store.clients.pubsub.monitors.tell(micros, (context.db, &peer), spec, args);
    }

    fn reads(&mut self, keys: &[bytes::Bytes]) {
        self.store.clients.pubsub.tracking.reads(self.entry.id, keys);
    }

    fn forbids(&mut self, spec: &'static CommandSpec, args: &[bytes::Bytes]) -> Option<Reply> {
        if matches!(spec.handler, Handler::Server(ServerCommand::Debug)) {
            if let Some(error) = client::debugging_refusal(self.store, self.entry) {
                return Some(error);
            }
        }
        let denial = self.store.access.check(self.entry, spec, args).err()?;
        Some(client::refusal(denial, spec))
    }

    fn script(&mut self, digest: &[u8]) -> Option<bytes::Bytes> {
        self.store.scripts.get(digest)
    }

    fn function(&mut self, name: &[u8]) -> Option<command::scripting::Code> {
        self.store.functions.code_of(name)
    }

    fn note_script(&mut self, body: &bytes::Bytes) {
        self.store.scripts.note(body);
    }

    fn script_rules(&mut self) -> Option<bytes::Bytes> {
        Some(self.store.access.account_of(self.entry).user.script_rules().encode())
    }

    fn own(
        &mut self,
        context: &mut Context,
        command: ServerCommand,
        spec: &'static CommandSpec,
        args: &[bytes::Bytes],
    ) -> Own {
        if command.waits_for_earlier() {
            // The command may report itself.
            self.entry.describe(|d| d.last_command = spec.name);
        }
        let began = (!spec.has(flags::FAST)).then(Instant::now);
        let mut client = Connected { context, entry: self.entry, kind: self.kind };
        let own = client::run_own(self.store, &mut client, command, spec, args);
        if let Some(began) = began.filter(|_| !matches!(own, Own::Later)) {
            self.store.statistics.executed_own(spec, args, began.elapsed(), self.entry);
        }
        own
    }
}
