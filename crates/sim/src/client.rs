//! The clients. Each has one connection at a time, to the presumed leader's store, and sends a few
//! commands at once over it, as bytes. If stores pass commands on, clients often connect to any
//! store.
//!
//! Clients are outside the stores' network and never partitioned from them. A refused command was
//! not proposed, so the client sends it again to another store. The outcome of a command stays
//! unknown if it timed out or was sent to a store that crashed.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use resp::{Reply, ReplyDecoder};
use types::{StoreId, UnixMillis};

use crate::clock::{MILLISECOND, SECOND};
use crate::model::{Command, Group, Key, LogCommand, LOG_GROUP};
use crate::observation::{Observation, Op, OpId, Weakly};
use crate::rng::Rng;
use crate::world::{Event, World};

pub type ClientId = usize;
/// The number of a connection. Each connection of a run has its own.
pub type ConnectionId = u64;

/// Maximum time that a client waits for its answers.
pub const PATIENCE: u64 = 4 * SECOND;

/// Maximum number of commands that a client sends at once. The case of the letters in their names
/// numbers them.
const PIPELINE_MAX: u64 = 6;

/// The salt of the choice of runs whose programs have all types.
const TYPES_SALT: u64 = 0x7479_7065_7320_716f;

/// The salt of the choice of commands of lists, sets and sorted sets.
const COLLECTIONS_SALT: u64 = 0x636f_6c6c_6563_7473;

/// The salt of the choice of runs with streams. It is one of those that leave out the seeds with
/// which the search for failpoints begins, so that these keep their course.
const LOG_RUNS_SALT: u64 = 0x7374_7265_616e_445a;

/// The salt of the choice of commands that may be executed in parts.
const COPIES_SALT: u64 = 0x636f_7069_6573_2121;

/// The salt of the choice of commands of streams.
const LOG_SALT: u64 = 0x7374_7265_616d_7321;

/// The salt of the choice of transactions.
const TRANSACTIONS_SALT: u64 = 0x7472_616e_7361_6374;

/// The salt of the choice of scripts.
const SCRIPTS_SALT: u64 = 0x7363_7269_7074_7321;

/// Writes a command's name with upper and lower case letters that encode its place in a pipeline.
fn number(name: &[u8], place: usize) -> Bytes {
    let letter = |(at, byte): (usize, &u8)| match place >> at & 1 {
        0 => byte.to_ascii_uppercase(),
        _ => byte.to_ascii_lowercase(),
    };
    name.iter().enumerate().map(letter).collect()
}

/// Returns the place in its pipeline that a command's name encodes.
fn place(name: &[u8]) -> usize {
    let bit = |(at, byte): (usize, &u8)| usize::from(byte.is_ascii_lowercase()) << at;
    name.iter().take(3).enumerate().map(bit).sum()
}

#[derive(Debug, Default)]
pub struct Client {
    pub conversation: Option<Conversation>,
    /// The operations that the client must still send. `None` if it sends random operations without
    /// end.
    pub wishes: Option<Vec<Op>>,
    /// The store whose next execution wakes the client, and the true time at which the wait began.
    /// The client does nothing else until then, or until it has waited too long.
    pub waits: Option<(StoreId, u64)>,
}

impl Client {
    pub fn is_content(&self) -> bool {
        self.conversation.is_none() && self.wishes.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The bounds that connections set for weak reads, in milliseconds. -1 stands for none.
const MAX_LAGS_MS: [&str; 5] = ["0", "10", "100", "1000", "-1"];

/// A connection, and the operations sent over it.
#[derive(Debug)]
pub struct Conversation {
    /// The connection. `None` while the client pauses before it sends refused operations again.
    pub connection: Option<ConnectionId>,
    /// The first connection over which the operations were sent.
    first: ConnectionId,
    pub at: StoreId,
    /// The operations, by their places in the pipeline.
    ops: Vec<OpId>,
    /// The replies that have not arrived yet, in order.
    awaited: VecDeque<Awaited>,
    /// The operations that the store refused. They will be sent again.
    refused: Vec<Asking>,
    /// The store that was named as the leader for some of the refused operations.
    leader: Option<StoreId>,
    /// Bytes of an incomplete reply.
    received: BytesMut,
    decoder: ReplyDecoder,
    /// The way in which the store read each answer, as recorded by the simulation.
    pub read: BTreeMap<OpId, ReadAs>,
    /// The last command of each group that leaders answered on this connection.
    last: BTreeMap<Group, OpId>,
}

#[derive(Clone, Debug)]
pub struct Asking {
    pub op: Op,
    since: u64,
}

/// A reply that a client waits for.
#[derive(Debug)]
enum Awaited {
    Op(Asking),
    /// A command about the connection, with its expected reply.
    Own(Reply),
    /// A command of a transaction, which is queued, or a `WATCH`. If it is refused, the transaction
    /// is refused, too, or has no watch.
    Part(Reply),
}

/// The way in which a read was answered.
#[derive(Clone, Copy, Debug)]
pub struct ReadAs {
    pub read_ms: UnixMillis,
    /// Set if the read was a weak one.
    pub weakly: Option<Weakly>,
    /// The store that passed the command on, if any.
    pub passed_by: Option<StoreId>,
}

/// Error replies by which a store tells a client the outcome of a command.
pub mod answer {
    use resp::Reply;
    use types::{Slot, StoreId};

    /// Nothing was proposed. The named store leads.
    pub fn moved(slot: Slot, leader: StoreId) -> Reply {
        Reply::error(format!("MOVED {slot} {leader}"))
    }

    /// Nothing was proposed.
    pub fn refused() -> Reply {
        Reply::error("CLUSTERDOWN nobody is known to lead")
    }

    /// The command may have taken effect, or may still take effect.
    pub fn unknown() -> Reply {
        Reply::error("UNKNOWN it was proposed")
    }
}

/// Draws a command. Values are unique.
pub fn draw(rng: &mut Rng, value: u64) -> Command {
    let key = if rng.chance(60) { Key::First } else { Key::Second };
    match rng.below(20) {
        0..=3 => Command::Set { key, value },
        4 => Command::SetFor { key, value, ms: rng.between(1, 1500) },
        5 | 6 => Command::Append { key, value },
        7 => Command::SetBoth { first: value, second: value + 1 },
        8 => Command::Delete { key: rng.pick(&Key::SIMPLE).expect("four keys") },
        9 | 10 => Command::Increment,
        11 => Command::SetField { field: rng.below(3), value },
        12..=15 => Command::Get { key },
        16 | 17 => Command::Get { key: Key::Counter },
        18 => Command::GetBoth,
        _ => Command::GetField { field: rng.below(3) },
    }
}

/// Returns the transaction that may take the place of a write. It is drawn from the operation's
/// number, so that the run's other choices stay as they are.
fn drawn_transaction(seed: u64, id: OpId) -> Option<Command> {
    let drawn = types::mix(seed ^ TRANSACTIONS_SALT ^ id);
    let (key, value) = (if drawn & 64 == 0 { Key::First } else { Key::Second }, id * 2);
    match drawn % 16 {
        0 | 1 => Some(Command::Transaction { key, value }),
        2..=4 => Some(Command::Checked { key, value }),
        _ => None,
    }
}

/// Returns true if the programs of a run have lists, sets, sorted sets and scripts. The others,
/// half of all runs, have more of the remaining commands for each key.
pub(crate) fn has_all_types(seed: u64) -> bool {
    types::Draw::new(seed ^ TYPES_SALT).below(2) == 1
}

/// Returns true if the programs of a run have a stream and functions, too: a quarter of all runs.
fn has_log(seed: u64) -> bool {
    has_all_types(seed) && types::Draw::new(seed ^ LOG_RUNS_SALT).below(2) == 1
}

/// Returns the command on sorted sets that may take the place of another one on a collection. It
/// is drawn in the same way as [transactions](drawn_transaction).
pub(crate) fn drawn_copy(seed: u64, id: OpId, is_read: bool) -> Option<Command> {
    let mut drawn = types::Draw::new(types::mix(seed ^ COPIES_SALT ^ id));
    let (at, count) = (drawn.below(16), drawn.below(12));
    match (is_read, at) {
        (true, 0..=4) => Some(Command::Range { key: Key::Copied, from: drawn.below(60) as i64 - 30 }),
        (false, 0..=2) => Some(Command::TakeLowest { count: 4 + count }),
        (false, 3..=5) => Some(Command::CopyScores),
        (false, 6..=9) => Some(Command::AddScores { value: id * 2, count: 1 + count }),
        _ => None,
    }
}

/// Returns the command of a list, set or sorted set that may take the place of a read or a write.
/// It is drawn in the same way as [transactions](drawn_transaction).
pub(crate) fn drawn_collection(seed: u64, id: OpId, is_read: bool) -> Option<Command> {
    let mut drawn = types::Draw::new(types::mix(seed ^ COLLECTIONS_SALT ^ id));
    if drawn.below(8) >= 3 {
        return None;
    }
    let (count, member) = (1 + drawn.below(3), drawn.below(12));
    let from = drawn.below(60) as i64 - 30;
    Some(match (is_read, drawn.below(16)) {
        (true, 0..=5) => Command::Range { key: Key::List, from },
        (true, 6..=11) => Command::Range { key: Key::Scores, from },
        (true, 12) => Command::CountMembers,
        (true, _) => Command::HasMembers { first: member },
        (false, 0..=3) => Command::Push { value: id * 2, count },
        (false, 4) => Command::Pop { count },
        (false, 5 | 6) => Command::AddMember { member },
        (false, 7) => Command::RemoveMember { member },
        (false, 8..=11) => Command::AddScores { value: id * 2, count },
        (false, 12 | 13) => Command::RemoveLowest { count },
        (false, 14) => Command::Delete { key: Key::COLLECTIONS[(member % 3) as usize] },
        (false, _) => {
            Command::ExpireIn { key: Key::COLLECTIONS[(member % 3) as usize], ms: 1 + drawn.below(1500) }
        }
    })
}

/// Returns the command of a stream that may take the place of a read or a write. It is drawn in the
/// same way as [transactions](drawn_transaction).
pub(crate) fn drawn_of_log(seed: u64, id: OpId, is_read: bool) -> Option<Command> {
    let mut drawn = types::Draw::new(types::mix(seed ^ LOG_SALT ^ id));
    if drawn.below(8) >= 2 {
        return None;
    }
    let (consumer, count) = (drawn.below(3) as usize, 1 + drawn.below(4));
    Some(Command::Log(match (is_read, drawn.below(16)) {
        (true, 0..=7) => LogCommand::Newest { count: 3 * count },
        (true, 8..=10) => LogCommand::Length,
        (true, _) => LogCommand::Pending,
        (false, 0..=6) => {
            let kept = (drawn.below(8) == 0).then(|| 20 + 10 * count);
            LogCommand::Add { value: id * 2, kept }
        }
        (false, 7) => LogCommand::CreateGroup,
        (false, 8 | 9) => LogCommand::Deliver { consumer, count },
        (false, 10) => LogCommand::DeliverAgain { consumer, count },
        (false, 11) => LogCommand::Claim { consumer, count },
        (false, 12) => LogCommand::Take { consumer, count },
        (false, 13 | 14) => LogCommand::Settle { count },
        (false, _) => match drawn.below(4) {
            0 => return Some(Command::Delete { key: Key::Log }),
            1 => return Some(Command::ExpireIn { key: Key::Log, ms: 1 + drawn.below(1500) }),
            _ => LogCommand::Trim { kept: 10 * count },
        },
    }))
}

/// Returns the script that may take the place of a write, drawn likewise.
fn drawn_script(seed: u64, id: OpId) -> Option<Command> {
    let drawn = types::mix(seed ^ SCRIPTS_SALT ^ id);
    let (key, value) = (if drawn & 64 == 0 { Key::First } else { Key::Second }, id * 2);
    (drawn % 16 < 2).then_some(Command::Script { key, value })
}

/// Returns the text of an error, unless it is the reply of a command that was executed.
fn refusal(reply: &Reply) -> Option<&str> {
    let Reply::Error(text) = reply else { return None };
    let is_executed = ["NOGROUP ", "BUSYGROUP "].iter().any(|code| text.starts_with(code));
    (!is_executed).then_some(text)
}

impl Conversation {
    /// Returns the operation that a store has received as this command, or as this command of the
    /// log.
    pub fn op(&self, args: &[Bytes]) -> Option<OpId> {
        match &args[0][..] {
            // The last watched key is the operation's own.
            b"\0watch" => {
                let name = std::str::from_utf8(args.last()?).ok()?;
                name.split_once("}watched").and_then(|(_, id)| id.parse().ok())
            }
            b"\0exec" => {
                let watches = u32::from_be_bytes(args[1][..].try_into().ok()?) as usize;
                // The arguments of the first command follow its head.
                self.ops.get(place(args.get(2 + 2 * watches + 1)?)).copied()
            }
            // The last argument is the place.
            b"\0eval" => {
                let place = std::str::from_utf8(args.last()?).ok()?.parse::<usize>().ok()?;
                self.ops.get(place).copied()
            }
            name => self.ops.get(place(name)).copied(),
        }
    }

    fn take_open(&mut self) -> Vec<Asking> {
        let open = self.awaited.drain(..).filter_map(|awaited| match awaited {
            Awaited::Op(asking) => Some(asking),
            Awaited::Own(_) | Awaited::Part(_) => None,
        });
        open.collect()
    }
}

impl World {
    /// Begins a new conversation, unless one is in progress.
    pub(crate) fn client_turn(&mut self, id: ClientId) {
        if self.clients[id].conversation.is_some() {
            return;
        }
        self.clients[id].waits = None;
        let is_rushing = self.now < self.rush_until;
        let count = match is_rushing {
            true => PIPELINE_MAX,
            false if self.rng.chance(50) => 1,
            false => self.rng.between(2, PIPELINE_MAX),
        };
        let ops: Vec<Op> = match &mut self.clients[id].wishes {
            Some(wishes) => {
                let kept = wishes.len().saturating_sub(count as usize);
                wishes.drain(kept..).rev().collect()
            }
            None => (0..count).map(|_| self.new_op()).collect(),
        };
        let Some(first) = ops.first() else { return };
        self.tally.conversations += u64::from(!is_rushing);
        // A weak read may go to any store.
        let weak_percent = if self.plan.bounds_reads { 60 } else { 15 };
        let is_weak = first.command.is_read() && !self.is_calm && self.rng.chance(weak_percent);
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let at = match is_weak {
            true => self.rng.pick(&stores).expect("there are stores"),
            false => self.guess(first),
        };
        self.begin_conversation(id, ops, at, is_weak);
    }

    /// Sends new operations to a store.
    pub(crate) fn begin_conversation(&mut self, id: ClientId, ops: Vec<Op>, at: StoreId, is_weak: bool) {
        for op in &ops {
            self.tally.operations += 1;
            self.observe(&Observation::Invoked { op, at: self.now });
        }
        let since = self.now;
        let asked = ops.into_iter().map(|op| Asking { op, since }).collect();
        let connection = self.ask(id, asked, at, is_weak, None);
        self.schedule(PATIENCE, Event::Impatience { client: id, first: connection });
    }

    pub(crate) fn new_op(&mut self) -> Op {
        self.last_op += 1;
        let mut group = self.rng.below(self.groups);
        // The command that writes two values needs two numbers.
        let mut command = draw(&mut self.rng, self.last_op * 2);
        // Runs with bounds on weak reads have few writes that such a read could miss, and need
        // them.
        if !self.plan.bounds_reads {
            let transaction = drawn_transaction(self.seed, self.last_op);
            let has_all_types = has_all_types(self.seed);
            let script = drawn_script(self.seed, self.last_op).filter(|_| has_all_types);
            let written = transaction.or(script).filter(|_| !command.is_read());
            let collection = drawn_collection(self.seed, self.last_op, command.is_read());
            let collection = collection.filter(|_| has_all_types);
            let copy = drawn_copy(self.seed, self.last_op, command.is_read());
            let copy = copy.filter(|_| collection.is_some() && self.plan.has_copies);
            let collection = copy.or(collection);
            if written.is_none() && collection.is_some() {
                // One group has all collections, so that their trees grow.
                group = 0;
            }
            let is_simple = written.is_none() && collection.is_none();
            let of_log = drawn_of_log(self.seed, self.last_op, command.is_read());
            let of_log = of_log.filter(|_| is_simple && has_log(self.seed));
            if of_log.is_some() {
                group = LOG_GROUP;
            }
            command = written.or(collection).or(of_log).unwrap_or(command);
        }
        let (is_quiet, is_rushing) = (self.is_quiet(), self.now < self.rush_until);
        while is_quiet && !command.is_read() || !is_quiet && is_rushing && command.is_read() {
            command = draw(&mut self.rng, self.last_op * 2);
        }
        Op { id: self.last_op, group, command }
    }

    fn is_quiet(&self) -> bool {
        self.quiet.is_some_and(|(_, until)| self.now < until)
    }

    /// Returns the store to ask: usually the presumed leader, or often any store if stores pass
    /// commands on.
    fn guess(&mut self, op: &Op) -> StoreId {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let known = self.routed_to(crate::model::slot_of(op.group));
        let leader_percent = if self.plan.passes_on && !self.is_calm { 50 } else { 95 };
        match known.filter(|_| self.rng.chance(leader_percent)) {
            Some(leader) => leader,
            None => self.rng.pick(&stores).expect("there are stores"),
        }
    }

    /// Opens a connection and sends the commands, cut into pieces at random places.
    fn ask(
        &mut self,
        client: ClientId,
        ops: Vec<Asking>,
        at: StoreId,
        is_weak: bool,
        first: Option<ConnectionId>,
    ) -> ConnectionId {
        self.last_connection += 1;
        let connection = self.last_connection;
        let (mut awaited, mut bytes) = (VecDeque::new(), BytesMut::new());
        if is_weak {
            match self.plan.bounds_reads.then(|| MAX_LAGS_MS[connection as usize % MAX_LAGS_MS.len()]) {
                Some(ms) => resp::encode_request(&["READONLY", "MAXLAG", ms], &mut bytes),
                None => resp::encode_request(&["READONLY"], &mut bytes),
            }
            awaited.push_back(Awaited::Own(Reply::OK));
        }
        if self.is_tracing {
            let names: Vec<OpId> = ops.iter().map(|asking| asking.op.id).collect();
            self.say(&format!("client {client} asks store {at} over connection {connection} for {names:?}"));
        }
        let names = ops.iter().map(|asking| asking.op.id).collect();
        for (place, asking) in ops.into_iter().enumerate() {
            if self.rng.chance(10) {
                resp::encode_request(&["PING"], &mut bytes);
                awaited.push_back(Awaited::Own(Reply::Simple("PONG".into())));
            }
            let (group, command) = (asking.op.group, &asking.op.command);
            if let Some(key) = command.watched() {
                let own = format!("{{g{group}}}watched{}", asking.op.id);
                resp::encode_request(&[&b"WATCH"[..], &key.name(group), own.as_bytes()], &mut bytes);
                awaited.push_back(Awaited::Part(Reply::OK));
            }
            let parts = command.parts();
            if parts.is_empty() {
                let mut args = command.args(group);
                args[0] = number(&args[0], place);
                if command.is_script() {
                    args.push(place.to_string().into());
                }
                resp::encode_request(&args, &mut bytes);
            } else {
                resp::encode_request(&["MULTI"], &mut bytes);
                awaited.push_back(Awaited::Own(Reply::OK));
                for part in parts {
                    let mut args = part.args(group);
                    args[0] = number(&args[0], place);
                    resp::encode_request(&args, &mut bytes);
                    awaited.push_back(Awaited::Part(Reply::Simple("QUEUED".into())));
                }
                resp::encode_request(&["EXEC"], &mut bytes);
            }
            awaited.push_back(Awaited::Op(asking));
        }
        self.clients[client].conversation = Some(Conversation {
            connection: Some(connection),
            first: first.unwrap_or(connection),
            at,
            ops: names,
            awaited,
            refused: Vec::new(),
            leader: None,
            received: BytesMut::new(),
            decoder: ReplyDecoder::default(),
            read: BTreeMap::new(),
            last: BTreeMap::new(),
        });
        let (mut delay, mut offset) = (self.client_delay(), 0);
        while !bytes.is_empty() {
            let most = bytes.len() as u64;
            let count = if self.rng.chance(60) { most } else { self.rng.between(1, most) };
            let piece = bytes.split_to(count as usize).freeze();
            self.schedule(delay, Event::Request { store: at, client, connection, offset, bytes: piece });
            offset += count as usize;
            delay += self.rng.below(MILLISECOND);
        }
        connection
    }

    pub(crate) fn client_delay(&mut self) -> u64 {
        MILLISECOND / 10 + self.rng.below(MILLISECOND)
    }

    /// Receives bytes of replies, unless the client has closed the connection.
    pub(crate) fn replied(&mut self, client: ClientId, connection: ConnectionId, bytes: &Bytes) {
        let Some(conversation) = self.conversation(client, connection) else { return };
        conversation.received.extend_from_slice(bytes);
        loop {
            let Some(conversation) = self.conversation(client, connection) else { return };
            match conversation.decoder.decode(&mut conversation.received) {
                Ok(Some(reply)) => self.answered(client, reply),
                Ok(None) => break,
                Err(error) => return self.violate("sessions", format!("client {client} reads: {error}")),
            }
        }
        if self.conversation(client, connection).is_some_and(|conversation| conversation.awaited.is_empty()) {
            self.all_answered(client);
        }
    }

    fn conversation(&mut self, client: ClientId, connection: ConnectionId) -> Option<&mut Conversation> {
        self.clients[client].conversation.as_mut().filter(|of| of.connection == Some(connection))
    }

    /// Handles the reply to the next command of the connection.
    fn answered(&mut self, client: ClientId, reply: Reply) {
        let Some(conversation) = &mut self.clients[client].conversation else { return };
        let asking = match conversation.awaited.pop_front() {
            Some(Awaited::Op(asking)) => asking,
            Some(Awaited::Own(expected)) if expected == reply => return,
            Some(Awaited::Own(expected)) => {
                return self.violate("sessions", format!("client {client}: {reply:?}, not {expected:?}"));
            }
            Some(Awaited::Part(expected)) => {
                let is_refused = |text: &str| {
                    ["MOVED ", "CLUSTERDOWN ", "UNKNOWN "].iter().any(|code| text.starts_with(code))
                };
                return match &reply {
                    Reply::Error(text) if is_refused(text) => {}
                    _ if reply == expected => {}
                    _ => self.violate("sessions", format!("client {client}: {reply:?}, not {expected:?}")),
                };
            }
            None => return self.violate("sessions", format!("client {client}: {reply:?} to no command")),
        };
        if let Some(text) = refusal(&reply) {
            let text = text.to_owned();
            if let Some(moved) = text.strip_prefix("MOVED ") {
                conversation.leader = moved.split(' ').nth(1).and_then(|store| store.parse().ok());
            } else if text.starts_with("UNKNOWN ") {
                return self.give_up(&asking);
            } else if !["CLUSTERDOWN ", "EXECABORT "].iter().any(|code| text.starts_with(code)) {
                return self.violate("sessions", format!("operation {}: {text}", asking.op.id));
            }
            conversation.refused.push(asking);
            return;
        }
        let Asking { op, since } = asking;
        let read = conversation.read.get(&op.id).copied();
        let weakly = read.and_then(|read| read.weakly);
        let passed_by = read.and_then(|read| read.passed_by);
        let after = match weakly {
            None => conversation.last.insert(op.group, op.id),
            Some(_) => None,
        };
        let at = conversation.at;
        if self.is_tracing {
            let (weak, Op { group, command, .. }) = (if weakly.is_some() { ", weakly" } else { "" }, &op);
            self.say(&format!(
                "client {client}: {} of group {group}, store {at}{weak}: {command:?} -> {reply:?}",
                op.id
            ));
        }
        self.tally.answered += 1;
        self.tally.pipelined += u64::from(after.is_some());
        let read_ms = read.map(|read| read.read_ms);
        self.tally.reads += u64::from(read_ms.is_some());
        self.tally.slowest_ns = self.tally.slowest_ns.max(self.now - since);
        self.observe(&Observation::Answered {
            op: op.id,
            at: self.now,
            reply: &reply,
            read_ms,
            weakly,
            passed_by,
            after,
        });
    }

    /// Ends the conversation, or prepares to send refused operations again, this time only to
    /// leaders.
    fn all_answered(&mut self, client: ClientId) {
        let Some(mut conversation) = self.clients[client].conversation.take() else { return };
        self.close(&conversation);
        if conversation.refused.is_empty() {
            return self.content(client);
        }
        self.tally.refused += conversation.refused.len() as u64;
        let leader = conversation.leader;
        let at = match leader {
            Some(leader) if self.rng.chance(90) && self.stores.contains_key(&leader) => leader,
            _ => self.guess(&conversation.refused[0].op),
        };
        let pause = if leader.is_some() { MILLISECOND } else { 40 * MILLISECOND };
        (conversation.connection, conversation.at) = (None, at);
        self.schedule(pause, Event::AskAgain { client, first: conversation.first });
        self.clients[client].conversation = Some(conversation);
    }

    /// Sends the refused operations over a new connection, unless the client has given up in the
    /// meantime.
    pub(crate) fn ask_again(&mut self, client: ClientId, first: ConnectionId) {
        let is_meant = |of: &&mut Conversation| of.first == first && of.connection.is_none();
        let conversation = self.clients[client].conversation.as_mut().filter(is_meant);
        let Some((ops, at)) = conversation.map(|of| (std::mem::take(&mut of.refused), of.at)) else { return };
        self.ask(client, ops, at, false, Some(first));
    }

    pub(crate) fn impatient(&mut self, client: ClientId, first: ConnectionId) {
        if self.clients[client].conversation.as_ref().is_some_and(|of| of.first == first) {
            self.hang_up(client);
        }
    }

    /// Ends the client's connection. The outcomes of operations without an answer stay unknown.
    fn hang_up(&mut self, client: ClientId) {
        let Some(mut conversation) = self.clients[client].conversation.take() else { return };
        self.close(&conversation);
        let open = conversation.take_open();
        for asking in conversation.refused.into_iter().chain(open) {
            self.give_up(&asking);
        }
        self.content(client);
    }

    /// Counts an operation whose outcome stays unknown.
    fn give_up(&mut self, Asking { op, .. }: &Asking) {
        self.tally.unknown += 1;
        if self.is_calm && !self.is_doomed() {
            self.violate("liveness", format!("operation {} was not answered: {:?}", op.id, op.command));
        }
    }

    fn content(&mut self, client: ClientId) {
        if self.begins_to_wait(client) {
            return;
        }
        let span = match self.now < self.rush_until {
            true => 5,
            false if self.is_quiet() => 500,
            false => 400,
        };
        let pause = self.rng.below(span) * MILLISECOND;
        self.schedule(pause, Event::Client { client });
    }

    /// Resets the clients' connections to a store that crashed.
    pub(crate) fn reset_clients(&mut self, store: StoreId) {
        for client in 0..self.clients.len() {
            let Some(conversation) = &self.clients[client].conversation else { continue };
            if let Some(connection) = conversation.connection.filter(|_| conversation.at == store) {
                let delay = self.client_delay();
                self.schedule(delay, Event::Reset { client, connection, is_refused: false });
            }
        }
    }

    pub(crate) fn reset(&mut self, client: ClientId, connection: ConnectionId, is_refused: bool) {
        let Some(conversation) = self.conversation(client, connection) else { return };
        if is_refused {
            conversation.refused = conversation.take_open();
            return self.all_answered(client);
        }
        self.hang_up(client);
    }
}
