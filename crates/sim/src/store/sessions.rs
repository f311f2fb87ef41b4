//! The clients' connections: the production session, and the code that carries out the requested
//! parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use command::{CommandSpec, ServerCommand};
use node::bounded_staleness::MaxLag;
use node::reads::Proof;
use node::session::{self, Ask, Context, Host, Kind, Own, Route, Session};
use node::{Answer, Item, ItemSlot, Outcome, Work as Proposal};
use resp::Reply;
use types::{RegionId, StoreId, UnixMillis};

use super::copies::Copy;
use super::{Asker, Process};
use crate::client::{answer, ClientId, ConnectionId, Conversation, ReadAs};
use crate::clock::MILLISECOND;
use crate::observation::{self, OpId, Weakly};
use crate::world::{Event, Work, World};

/// The identity of a part of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartId {
    pub client: ClientId,
    pub connection: ConnectionId,
    pub(super) number: usize,
}

/// Commands that the session has requested.
#[derive(Clone)]
pub struct Part {
    pub region: RegionId,
    pub kind: Kind,
    pub items: Arc<Vec<Item>>,
    /// The clients' names for the items.
    pub ops: Arc<[OpId]>,
}

/// A client's connection in the store's process.
pub(super) struct Connection {
    client: ClientId,
    session: Session<RegionId>,
    /// The number of bytes received in order, and pieces that came too early.
    received: usize,
    early: BTreeMap<usize, Bytes>,
    /// The unanswered parts by number. Parts without operations are not listed.
    parts: BTreeMap<usize, Part>,
    /// The commands that are executed in parts, by the numbers of the session's parts.
    copies: BTreeMap<usize, Copy>,
    /// The time at which the last replies reach the client.
    replies_at: u64,
}

/// A store, as seen by the session of one of its clients.
struct Served<'a> {
    process: &'a Process,
    id: StoreId,
    /// True if commands about the store itself take some time.
    is_slow: bool,
    /// True if the store passes commands on to leaders, instead of naming the leader.
    passes_on: bool,
    has_copies: bool,
}

impl Host for Served<'_> {
    type Region = RegionId;

    fn has_slots(&self) -> bool {
        true
    }

    fn function(&mut self, name: &[u8]) -> Option<command::scripting::Code> {
        crate::model::function(self.id, name)
    }

    fn may_copy_much(&self, _item: &Item) -> bool {
        self.has_copies
    }

    fn route(&mut self, context: &Context, item: &Item) -> Route<RegionId> {
        let ItemSlot::One(slot) = item.slot else { return Route::Alone };
        let region = self.process.region_of(slot);
        let Some((region, shared)) =
            region.and_then(|region| Some((region, self.process.regions.get(&region)?)))
        else {
            return Route::Alone;
        };
        match shared.leadership.leader {
            Some(leader) if leader == self.id => Route::Region(region),
            _ if context.read_only && !item.is_write() && shared.is_local => Route::Weak(region),
            Some(_) if self.passes_on => Route::Region(region),
            Some(leader) => Route::Answered(answer::moved(slot, leader)),
            None => Route::Alone,
        }
    }

    fn own(
        &mut self,
        context: &mut Context,
        command: ServerCommand,
        spec: &'static CommandSpec,
        args: &[Bytes],
    ) -> Own {
        match command {
            ServerCommand::ReadOnly => {
                context.read_only = true;
                // READONLY MAXLAG milliseconds
                let ms = args.get(2).and_then(|ms| std::str::from_utf8(ms).ok()?.parse::<u64>().ok());
                context.max_lag = ms.map(|ms| MaxLag { nanos: ms * MILLISECOND, entries: None });
                Own::Reply(Reply::OK)
            }
            ServerCommand::Ping if self.is_slow => Own::Later,
            ServerCommand::Ping => Own::Reply(Reply::Simple("PONG".into())),
            _ => Own::Reply(Reply::error(format!("ERR {} is not simulated", spec.name))),
        }
    }
}

impl World {
    /// Receives bytes of a client.
    pub(crate) fn request(
        &mut self,
        id: StoreId,
        client: ClientId,
        number: ConnectionId,
        (offset, bytes): (usize, Bytes),
    ) {
        let Some(process) = self.process(id) else {
            // For a later piece, the client already knows that the process has ended.
            if offset == 0 {
                let delay = self.client_delay();
                self.schedule(delay, Event::Reset { client, connection: number, is_refused: true });
            }
            return;
        };
        let is_known = process.connections.contains_key(&number);
        if !is_known && process.stopping.as_ref().is_some_and(|stopping| !stopping.accepts()) {
            if offset == 0 {
                let delay = self.client_delay();
                self.schedule(delay, Event::Reset { client, connection: number, is_refused: true });
            }
            return;
        }
        let connection = process.connections.entry(number).or_insert_with(|| Connection::new(client));
        connection.early.insert(offset, bytes);
        while let Some(bytes) = connection.early.remove(&connection.received) {
            connection.session.received(&bytes);
            connection.received += bytes.len();
        }
        self.serve(id, number);
    }

    /// Closes the connection of a client that has gone.
    pub(crate) fn close(&mut self, conversation: &Conversation) {
        let Some(number) = conversation.connection else { return };
        if let Some(process) = self.stores.get_mut(&conversation.at).and_then(|store| store.process.as_mut())
        {
            process.connections.remove(&number);
        }
    }

    /// Advances the session as far as possible, and sends its output to the client.
    fn serve(&mut self, id: StoreId, number: ConnectionId) {
        loop {
            let (is_slow, passes_on) = (self.rng.chance(50), self.plan.passes_on);
            let has_copies = self.plan.has_copies;
            let Some(process) = self.process(id) else { return };
            let Some(mut connection) = process.connections.remove(&number) else { return };
            let mut asks = Vec::new();
            connection.session.decode();
            let can_advance = connection.session.can_advance();
            if can_advance {
                let mut served = Served { process, id, is_slow, passes_on, has_copies };
                connection.session.advance(&mut served, &mut asks);
            }
            let asks: Vec<_> =
                asks.into_iter().map(|ask| self.take_in(id, number, &mut connection, ask)).collect();
            self.send_replies(number, &mut connection);
            if let Some(process) = self.process(id) {
                process.connections.insert(number, connection);
            }
            for (part, wanted) in asks {
                self.carry_out_part(id, part, wanted);
            }
            if !can_advance {
                return;
            }
        }
    }

    fn send_replies(&mut self, number: ConnectionId, connection: &mut Connection) {
        let mut bytes = BytesMut::new();
        while !connection.session.output().is_empty() {
            let part = connection.session.output().len();
            bytes.extend_from_slice(connection.session.output());
            connection.session.written(part);
        }
        if bytes.is_empty() {
            return;
        }
        let bytes = bytes.freeze();
        connection.replies_at = (self.now + self.client_delay()).max(connection.replies_at + 1);
        let client = connection.client;
        self.schedule(connection.replies_at - self.now, Event::Replies { client, connection: number, bytes });
    }

    /// Records a part under its number, with the operations of its commands.
    fn take_in(
        &mut self,
        id: StoreId,
        number: ConnectionId,
        connection: &mut Connection,
        ask: Ask<RegionId>,
    ) -> (PartId, Wanted) {
        let part = PartId { client: connection.client, connection: number, number: ask.number };
        let (region, kind, items) = match ask.part {
            session::Part::Commands { region, kind, items } => (region, kind, items),
            session::Part::Copying(item) => return (part, self.begin_copy(id, part, connection, item)),
            session::Part::Alone(_) | session::Part::Blocking(_) => return (part, Wanted::Alone),
            session::Part::Own { .. } => return (part, Wanted::Own),
            // Watches that are left behind end with the next change of their keys.
            session::Part::Release(_) => return (part, Wanted::Gone),
        };
        let conversation = self.clients[part.client].conversation.as_ref();
        let Some(conversation) = conversation.filter(|of| of.connection == Some(number)) else {
            return (part, Wanted::Gone);
        };
        let ops: Option<_> = items.iter().map(|item| conversation.op(&item.args)).collect();
        let Some(ops) = ops else {
            self.violate("sessions", format!("client {}: the command was not sent", part.client));
            return (part, Wanted::Gone);
        };
        connection.parts.insert(part.number, Part { region, kind, items, ops });
        (part, Wanted::Commands)
    }

    pub(super) fn carry_out_part(&mut self, id: StoreId, part: PartId, wanted: Wanted) {
        let (region, kind) = match (wanted, self.part(id, part)) {
            (Wanted::Commands, Some(part)) => (part.region, part.kind),
            (Wanted::Alone, _) => {
                let delay = self.rng.below(50 * MILLISECOND);
                return self.schedule_work(id, delay, Work::Refuse { part });
            }
            (Wanted::Own, _) => {
                let delay = self.rng.below(5 * MILLISECOND);
                return self.schedule_work(id, delay, Work::Own { part });
            }
            (Wanted::Commands | Wanted::Gone, _) => return,
        };
        match self.leader_elsewhere(id, region).filter(|_| matches!(kind, Kind::Reads | Kind::Writes)) {
            Some(leader) => self.pass_on(id, part, leader),
            None => self.execute_part(id, part, region, kind),
        }
    }

    /// Executes a part on this store.
    pub(super) fn execute_part(&mut self, id: StoreId, part: PartId, region: RegionId, kind: Kind) {
        match kind {
            Kind::Weak(None) => return self.read_rows(id, part, Proof::AlreadyThere),
            Kind::Weak(Some(max)) => {
                let arrived = self.boot(id);
                return self.await_copy(id, part, max, arrived);
            }
            Kind::Reads => return self.read_strongly(id, part, region),
            Kind::Writes if self.find_nothing(id, part, region) => return,
            Kind::Writes => {}
        }
        self.propose_writes(id, part);
    }

    /// Proposes a part of writes, unless they may add data and the store has no room.
    pub(super) fn propose_writes(&mut self, id: StoreId, part: PartId) {
        let is_low = self.now < self.stores[&id].low_until;
        let adds = |part: &Part| part.items.iter().any(|item| item.denies_oom());
        if is_low && self.part(id, part).is_some_and(adds) {
            return self.refuse(id, part);
        }
        self.propose(id, part, usize::MAX);
    }

    /// Proposes the first `count` commands of the part.
    pub(super) fn propose(&mut self, id: StoreId, part: PartId, count: usize) {
        let Some(Part { region, items, ops, .. }) = self.part(id, part) else { return };
        let (region, count) = (*region, count.min(items.len()));
        let items = items[..count].to_vec();
        let observed = items.iter().zip(ops.iter()).map(|(item, op)| observed(item, *op)).collect();
        let asker = Asker::Part { part, items: observed };
        self.submit(id, region, Proposal::Commands(Arc::new(items)), asker);
    }

    pub(super) fn part(&mut self, id: StoreId, part: PartId) -> Option<&Part> {
        let process = self.process(id)?;
        match process.connections.get(&part.connection) {
            Some(connection) => connection.parts.get(&part.number),
            None => process.passed.get(&part.connection).map(|passed| &passed.part),
        }
    }

    /// Answers the commands of a part that were proposed.
    pub(super) fn proposed(&mut self, id: StoreId, part: PartId, count: usize, outcome: Outcome) {
        let replies = match outcome {
            Outcome::Applied(replies) => {
                // Nothing was executed if the slot was given away before.
                replies.into_iter().map(|reply| reply.unwrap_or_else(answer::refused)).collect()
            }
            Outcome::Refused(_) => return self.refuse(id, part),
            Outcome::Unknown => vec![answer::unknown(); count],
        };
        self.answer_part(id, part, replies);
    }

    /// Refuses a part. Nothing of it was proposed.
    pub(super) fn refuse(&mut self, id: StoreId, part: PartId) {
        let count = self.part(id, part).map_or(1, |part| part.items.len());
        let region = self.part(id, part).map(|part| part.region);
        let leader = region.and_then(|region| self.leader_elsewhere(id, region));
        let reply = leader.map_or_else(answer::refused, |leader| answer::moved(0, leader));
        self.answer_part(id, part, vec![reply; count]);
    }

    /// Gives the session the answers to the part's first commands.
    pub(super) fn answer_part(&mut self, id: StoreId, part: PartId, replies: Vec<Reply>) {
        let Some(process) = self.process(id) else { return };
        if let Some(passed) = process.passed.remove(&part.connection) {
            return self.answer_passed(id, &passed, replies);
        }
        let Some(connection) = process.connections.get_mut(&part.connection) else { return };
        let asked = connection.parts.remove(&part.number);
        if let Some(copy) = connection.copies.remove(&part.number) {
            return self.go_on_copying(id, part, copy, (asked, replies));
        }
        self.answer_session(id, part, replies);
    }

    pub(super) fn answer_session(&mut self, id: StoreId, part: PartId, replies: Vec<Reply>) {
        let connection = self.process(id).and_then(|process| process.connections.get_mut(&part.connection));
        let Some(connection) = connection else { return };
        connection.session.answered(part.number, replies.into_iter().map(Answer::from).collect());
        self.serve(id, part.connection);
    }

    /// Notes for the invariants how the store read the values that it is about to return.
    pub(super) fn note_read(
        &mut self,
        id: StoreId,
        part: PartId,
        op: OpId,
        read_ms: UnixMillis,
        weakly: Option<Weakly>,
    ) {
        let passed = self.process(id).and_then(|process| process.passed.get(&part.connection));
        let (part, passed_by) = passed.map_or((part, None), |passed| (passed.call.part, Some(passed.by)));
        let read = ReadAs { read_ms, weakly, passed_by };
        let conversation = self.clients[part.client].conversation.as_mut();
        if let Some(conversation) = conversation.filter(|of| of.connection == Some(part.connection)) {
            conversation.read.insert(op, read);
        }
    }
}

/// Returns the invariants' name of a command in the log.
fn observed(item: &Item, op: OpId) -> observation::Item {
    let has_watches = || item.args.get(1).is_some_and(|count| count[..] != [0; 4]);
    match item.spec.name {
        "watch" => observation::Item::Watch(op),
        "exec" if has_watches() => observation::Item::Checked(op),
        "copybegin" | "resultbegin" => observation::Item::Begin(op),
        "copypart" | "copydrop" => observation::Item::Unseen,
        "copyend" => observation::Item::End(op),
        _ => observation::Item::Op(op),
    }
}

/// The kind of work that a session requested.
pub(super) enum Wanted {
    Commands,
    Alone,
    Own,
    /// The client has gone, so the part is dropped.
    Gone,
}

impl Connection {
    fn new(client: ClientId) -> Connection {
        Connection {
            client,
            session: Session::new(resp::Limits::default(), false),
            received: 0,
            early: BTreeMap::new(),
            parts: BTreeMap::new(),
            copies: BTreeMap::new(),
            replies_at: 0,
        }
    }

    /// Records what a command that is executed in parts asks next; `None` if the store knows no
    /// region for it.
    pub(super) fn ask_for_copy(&mut self, number: usize, copy: Copy, asked: Option<Part>) -> Wanted {
        self.copies.insert(number, copy);
        match asked {
            Some(asked) => {
                self.parts.insert(number, asked);
                Wanted::Commands
            }
            None => Wanted::Alone,
        }
    }
}
