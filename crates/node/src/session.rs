//! One client's session: bytes in, commands in order, replies in order, bytes out.
//!
//! An executor passes in the bytes that it read ([`Session::received`]) and lets the session
//! continue ([`Session::advance`]). The session answers commands that need no rows, gathers the
//! other commands by region, and asks the executor to execute each gathered part ([`Ask`]). It
//! accepts no further command until all parts are answered ([`Session::answered`]). The encoded
//! replies are in [`Session::output`], in the order of the commands.
//!
//! ```text
//!  received ─▶ input ─▶ advance ─▶ Ask ─▶ (shard, rows, other stores) ─▶ answered ─▶ output
//!                         │                                                           ▲
//!                         └── commands of the connection's or the store's own ────────┘
//! ```
//!
//! Commands of one region keep their order. Reads are gathered until a write to the same region
//! follows; the write waits for them. Once a write is gathered, later reads of a few rows follow it
//! in the same log entry, and longer reads wait for it. Parts for different regions are executed
//! concurrently.

mod gather;
mod host;
mod modes;
mod output;
mod script;
mod tally;
mod transaction;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use command::transaction::Watched;
use command::{cluster_mode, CommandSpec, Handler, ServerCommand, SessionCommand};
use resp::{Decoder, Limits, Protocol, Reply};
use types::{Output, PIECE_BYTES};

use crate::answer::Answer;
use crate::bounded_staleness::MaxLag;
use crate::failpoints::Failpoint;
use crate::item::{Item, ItemSlot};

use gather::Group;
pub use gather::Kind;
pub use host::{Ask, Host, Own, Part, Route};
pub use modes::{Caching, Replies};
use tally::Call;
pub use tally::{Calls, Tally};
use transaction::Transaction;

/// Maximum number of commands taken from the input before the earlier ones are answered.
const BATCH_COMMANDS_MAX: usize = 512;
/// Maximum number of their arguments, because other clients wait for the execution of all of them.
/// A single command with more arguments is allowed.
const BATCH_ARGUMENTS_MAX: usize = 2048;
/// Maximum size of commands taken from the input before the earlier ones are answered, in bytes. A
/// single larger command is allowed.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The output buffer of one client, in bytes, beyond which no further reply is encoded and no
/// further command is taken, unless the executor allows more.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// The output buffer of one client, in bytes, beyond which no further message of others is put
/// into it. The messages stay where all receivers share them.
const PUSHED_BYTES_MAX: usize = 64 << 10;
/// Number of reads in the first part of one region's reads. The size of their replies determines
/// the number of reads in later parts.
pub const READS_FIRST: usize = 16;
/// Target size of the replies to one part of reads, in bytes, estimated from the replies before it.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// Minimum number of bytes in the frame of a reply.
const REPLY_FRAME_BYTES: usize = 16;
/// Maximum capacity reserved for output at once, in bytes.
const RESERVED_BYTES_MAX: usize = 64 << 10;
/// Number of commands for which an idle session keeps capacity.
const IDLE_ROOM: usize = 16;

/// The state of a connection that commands see and change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub protocol: Protocol,
    pub db: u16,
    pub authenticated: bool,
    /// True if the connection's user may not execute every command: [`Host::forbids`] decides.
    pub is_restricted: bool,
    /// Set by `READONLY`: this store's own copy may answer reads.
    pub read_only: bool,
    /// The bound that `READONLY` set for such reads.
    pub max_lag: Option<MaxLag>,
    /// True if the connection has subscriptions. With RESP2 it may then execute few commands.
    pub is_subscriber: bool,
    /// Set by `CLIENT TRACKING`.
    pub caching: Caching,
    pub replies: Replies,
    /// True if the connection is told of all commands, so that it may not use keys.
    pub is_monitor: bool,
    /// True if the connection is closed after the replies so far.
    pub closing: bool,
}

/// The permissions of a connection's user, after a change of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Granted {
        authenticated: bool,
        is_restricted: bool,
    },
    /// The user was deleted: the connection ends after the replies so far.
    Ended,
}

/// Number and size of replies, for memory planning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplySizes {
    pub count: usize,
    pub bytes: usize,
}

/// A reply that is due. Its protocol is the one that applied when the command was taken.
struct Due {
    protocol: Protocol,
    /// True if the client does not want the reply.
    is_silent: bool,
    answer: Option<Answer>,
    call: Call,
}

pub struct Session<R> {
    context: Context,
    limits: Limits,
    decoder: Decoder,
    input: BytesMut,
    /// A larger buffer, to which the input is being copied. Nothing is received during the copy.
    larger_input: Option<BytesMut>,
    output: Output,
    /// See [`Session::allow_output`].
    output_bytes_max: usize,
    /// Commands that are decoded but not taken yet.
    decoded: VecDeque<Vec<Bytes>>,
    /// The decoder's error on the input after these commands. The connection ends with this error.
    refused: Option<Reply>,
    /// Replies to the commands taken so far, in order. The first belongs to command number `given`.
    due: VecDeque<Due>,
    /// Number of replies encoded.
    given: usize,
    /// Parts that are not requested yet.
    gathered: Vec<Group<R>>,
    /// Parts that were requested, by number. `None` marks an answered part.
    asked: Vec<Option<Asked<R>>>,
    /// Number of parts that are requested and not answered.
    open: usize,
    /// A command that waits until all commands before it are answered.
    stalled: Option<Vec<Bytes>>,
    /// Size of the last batch of decoded commands, in bytes.
    decoded_bytes: usize,
    /// Replies given since the session last had no reply due.
    replied: ReplySizes,
    /// Commands answered since [`Session::take_answered`] was last called.
    answered: u64,
    /// The fate of the command that was last taken.
    call: Call,
    tally: Tally,
    last_command: Option<&'static str>,
    /// True while a command that may wait is unanswered.
    is_blocked: bool,
    transaction: Transaction,
    /// The keys of reads that the client may cache, by the position of the reply.
    tracked: VecDeque<(usize, Vec<Bytes>)>,
    /// True if other clients were told of the command that waits.
    is_shown: bool,
    /// True if the store holds the command that waits. The session does not continue by itself.
    is_held: bool,
}

enum Asked<R> {
    /// The command at this position.
    Alone(usize),
    Group(Group<R>),
    /// The log's `watch`, for the command at this position.
    Watch {
        position: usize,
        watched: Vec<Watched>,
    },
    /// The log's `exec`.
    Exec,
    /// A command of the store in a transaction.
    Step,
}

/// The result of taking a command from the input.
enum Admitted {
    Answered(Answer),
    Gathered,
    /// All commands before it must be answered first.
    Stalled(Vec<Bytes>),
    Asked,
}

impl<R: Clone + PartialEq> Session<R> {
    /// Creates a session. `limits` apply once the client is authenticated.
    pub fn new(limits: Limits, needs_password: bool) -> Session<R> {
        let context = Context {
            protocol: Protocol::Resp2,
            db: 0,
            authenticated: !needs_password,
            is_restricted: false,
            read_only: false,
            max_lag: None,
            is_subscriber: false,
            caching: Caching::Off,
            replies: Replies::On,
            is_monitor: false,
            closing: false,
        };
        let first = if needs_password { Limits::unauthenticated() } else { limits.clone() };
        Session {
            context,
            limits,
            decoder: Decoder::new(first),
            input: BytesMut::new(),
            larger_input: None,
            output: Output::default(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            decoded: VecDeque::new(),
            refused: None,
            due: VecDeque::new(),
            given: 0,
            gathered: Vec::new(),
            asked: Vec::new(),
            open: 0,
            stalled: None,
            decoded_bytes: 0,
            replied: ReplySizes::default(),
            answered: 0,
            call: Call::None,
            tally: Tally::default(),
            last_command: None,
            is_blocked: false,
            transaction: Transaction::default(),
            tracked: VecDeque::new(),
            is_shown: false,
            is_held: false,
        }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Changes the user's permissions, because users have changed.
    pub fn set_access(&mut self, access: Access) {
        match access {
            Access::Ended => self.context.closing = true,
            Access::Granted { authenticated, is_restricted } => {
                self.context.is_restricted = is_restricted;
                if self.context.authenticated != authenticated {
                    self.context.authenticated = authenticated;
                    self.set_limits();
                }
            }
        }
    }

    /// Notes that the connection has no subscriptions any more, although it has not ended them.
    pub fn end_subscriptions(&mut self) {
        self.context.is_subscriber = false;
    }

    /// Returns keys that the client may cache now, because the reply that it needs is encoded.
    pub fn take_tracked(&mut self) -> Option<Vec<Bytes>> {
        let is_encoded = self.tracked.front().is_some_and(|(position, _)| *position < self.given);
        is_encoded.then(|| self.tracked.pop_front()).flatten().map(|(_, keys)| keys)
    }

    /// Notes the keys of a read whose reply comes next.
    fn track<H: Host<Region = R>>(&mut self, host: &mut H, keys: Vec<Bytes>) {
        if !keys.is_empty() {
            host.reads(&keys);
            self.tracked.push_back((self.given + self.due.len(), keys));
        }
    }

    /// Sets the limits of the input that is not decoded yet.
    fn set_limits(&mut self) {
        let is_in = self.context.authenticated;
        self.decoder.set_limits(if is_in { self.limits.clone() } else { Limits::unauthenticated() });
    }

    /// Takes in bytes that the client sent.
    pub fn received(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns the memory that the input takes while `bytes` more are received.
    pub fn input_bytes_with(&self, bytes: usize) -> usize {
        let (length, capacity) = (self.input.len(), self.input.capacity());
        match length < PIECE_BYTES {
            // A growing buffer doubles its capacity.
            true if capacity - length < bytes => 2 * capacity.max(bytes),
            false if capacity - length < 2 * bytes => capacity + self.larger_capacity(bytes),
            _ => capacity,
        }
    }

    /// Makes room for `bytes` more of input. Returns false if it has copied only a part of a very
    /// large input; the caller must then call it again before it receives anything. Copying all of
    /// the input at once would delay all other work of the thread.
    pub fn make_room(&mut self, bytes: usize) -> bool {
        let (length, capacity) = (self.input.len(), self.input.capacity());
        // With twice the room, the decoder need not enlarge the buffer either.
        if capacity - length >= 2 * bytes || length < PIECE_BYTES {
            return true;
        }
        let larger_capacity = self.larger_capacity(bytes);
        let larger = self.larger_input.get_or_insert_with(|| BytesMut::with_capacity(larger_capacity));
        let copied = larger.len();
        larger.extend_from_slice(&self.input[copied..length.min(copied + PIECE_BYTES)]);
        if larger.len() < length {
            return false;
        }
        self.input = self.larger_input.take().unwrap_or_default();
        true
    }

    /// Returns the capacity of the next larger input buffer: at most twice the received bytes, and
    /// no more than the argument in progress needs.
    fn larger_capacity(&self, bytes: usize) -> usize {
        let length = self.input.len();
        let missing = self.decoder.missing(length).unwrap_or(length);
        length + missing.min(length) + 2 * bytes
    }

    pub fn input_bytes(&self) -> usize {
        self.input.len()
    }

    /// Returns the encoded replies to write next; empty if all are written. More may follow once
    /// these are written.
    pub fn output(&self) -> &[u8] {
        self.output.front()
    }

    /// Returns the size of all encoded replies that are not written yet, in bytes.
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Returns true if [`push`](Session::push) may be called: there is room, and no known reply
    /// must come first.
    pub fn takes_pushes(&self) -> bool {
        self.output.len() < PUSHED_BYTES_MAX
            && !self.is_executing()
            && self.due.front().is_none_or(|due| due.answer.is_none())
    }

    /// Appends a part of an encoded message, which is no reply, to the output. Very large parts are
    /// not copied. The caller appends all parts of a message at once.
    pub fn push(&mut self, part: &Bytes) {
        self.output.put(part);
    }

    /// Removes the first `bytes` of the output, which were sent to the client. An empty output
    /// holds no memory.
    pub fn written(&mut self, bytes: usize) {
        self.output.advance(bytes);
        if self.output.is_empty() {
            self.output = Output::default();
        }
    }

    /// Returns the memory that requests and encoded replies take, in bytes.
    pub fn held_bytes(&self) -> usize {
        let taken = if self.is_idle() { 0 } else { self.decoded_bytes };
        let larger = self.larger_input.as_ref().map_or(0, BytesMut::capacity);
        self.input.capacity() + larger + self.output.len() + taken + self.transaction_bytes()
    }

    /// Releases memory that an idle session does not need.
    pub fn rest(&mut self) {
        self.due.shrink_to(IDLE_ROOM);
        self.decoded.shrink_to(IDLE_ROOM);
        self.asked.shrink_to(IDLE_ROOM);
        self.gathered.shrink_to(IDLE_ROOM);
    }

    /// Returns true if a requested part is unanswered.
    pub fn is_waiting(&self) -> bool {
        self.open > 0
    }

    /// Returns true if a command that may wait for elements is unanswered. Its connection ends at
    /// once with the client's stream.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns true if every decoded command is answered and its reply encoded.
    pub fn is_idle(&self) -> bool {
        self.due.is_empty() && self.decoded.is_empty() && self.stalled.is_none() && self.refused.is_none()
    }

    /// Returns true if [`advance`](Self::advance) has work to do.
    pub fn can_advance(&self) -> bool {
        !self.is_idle() && !self.is_waiting() && !self.is_output_full() && !self.is_held
    }

    /// Returns true if the store holds the next command, until [`resume`](Self::resume) is called.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Lets the session try a held command again.
    pub fn resume(&mut self) {
        self.is_held = false;
    }

    /// Returns true if the output is so large that the session does not continue before some of it
    /// is written.
    pub fn is_output_full(&self) -> bool {
        self.output.len() >= self.output_bytes_max
    }

    /// Returns true if the connection ends: it is closing, and every reply that is due is encoded.
    pub fn has_ended(&self) -> bool {
        self.context.closing && self.is_idle()
    }

    /// Returns the number of commands answered since the last call.
    pub fn take_answered(&mut self) -> u64 {
        std::mem::take(&mut self.answered)
    }

    /// Returns the counts of the replies given, from which the executor removes those that it has
    /// noted.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Returns the last command taken since the last call.
    pub fn take_last_command(&mut self) -> Option<&'static str> {
        self.last_command.take()
    }

    /// Returns the replies given since the session last had no reply due.
    pub fn replied(&self) -> ReplySizes {
        self.replied
    }

    /// Decodes commands from the input if all commands decoded before are answered. Returns the
    /// maximum number of commands that the next [`advance`](Self::advance) takes.
    pub fn decode(&mut self) -> usize {
        if !self.is_idle() || self.context.closing {
            return self.decoded.len();
        }
        self.decoded_bytes = 0;
        let mut arguments = 0;
        while self.decoded.len() < BATCH_COMMANDS_MAX
            && arguments < BATCH_ARGUMENTS_MAX
            && self.decoded_bytes < BATCH_BYTES_MAX
        {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(request)) => {
                    arguments += request.args.len();
                    self.decoded_bytes += request.args.iter().map(Bytes::len).sum::<usize>();
                    self.decoded.push_back(request.args);
                    // The input after AUTH is decoded with other limits.
                    if !self.context.authenticated {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.refused = Some(Reply::error(format!("ERR {error}")));
                    break;
                }
            }
        }
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.replied = ReplySizes::default();
        self.asked.clear();
        self.decoded.len()
    }

    /// Takes decoded commands until none is left or one must wait. Appends the parts to execute to
    /// `asks`.
    pub fn advance<H: Host<Region = R>>(&mut self, host: &mut H, asks: &mut Vec<Ask<R>>) {
        self.give();
        if !self.can_advance() {
            return;
        }
        self.go_on_executing(host, asks);
        if !self.can_advance() {
            return self.give();
        }
        // Deferred reads are requested before commands that are not taken yet.
        if self.gathered.is_empty() {
            self.take_commands(host, asks);
        }
        self.ask_for_gathered(asks);
        self.give();
    }

    fn take_commands<H: Host<Region = R>>(&mut self, host: &mut H, asks: &mut Vec<Ask<R>>) {
        while !self.context.closing {
            let Some(args) = self.stalled.take().or_else(|| self.decoded.pop_front()) else { break };
            let is_client_command = args[0].eq_ignore_ascii_case(b"client");
            let admitted = self.admit(host, args, asks);
            let goes_on = is_client_command || self.queued().is_some();
            if !goes_on && !matches!(admitted, Admitted::Stalled(_)) {
                self.context.caching = self.context.caching.after_command();
            }
            self.is_shown = matches!(admitted, Admitted::Stalled(_)) && !self.is_held;
            let is_asked = matches!(admitted, Admitted::Asked);
            match admitted {
                Admitted::Answered(answer) => {
                    self.answered += 1;
                    self.push_due(Some(answer));
                }
                Admitted::Gathered | Admitted::Asked => {}
                Admitted::Stalled(args) => {
                    self.stalled = Some(args);
                    return;
                }
            }
            self.context.replies = self.context.replies.after_command();
            if is_asked {
                return;
            }
        }
        if self.context.closing {
            self.decoded.clear();
            self.refused = None;
        } else if let Some(error) = self.refused.take() {
            self.push_due(Some(error.into()));
            self.context.closing = true;
        }
    }

    /// Takes the answers to a part, in the order of its commands. Unanswered reads are requested
    /// again if at least one read was answered. In other parts every command must be answered.
    pub fn answered(&mut self, number: usize, answers: Vec<Answer>) {
        let Some(asked) = self.asked.get_mut(number).and_then(Option::take) else { return };
        self.open -= 1;
        self.is_blocked = false;
        let unanswered = match asked {
            Asked::Alone(position) => match answers.into_iter().next() {
                Some(answer) => {
                    self.place(position, answer);
                    return;
                }
                None => vec![position],
            },
            Asked::Watch { position, watched } => {
                return self.watch_answered(position, watched, answers.into_iter().next());
            }
            Asked::Exec => return self.exec_answered(answers.into_iter().next()),
            Asked::Step => return self.step_answered(answers.into_iter().next()),
            Asked::Group(mut group) => {
                let count = answers.len();
                for (at, answer) in answers.into_iter().enumerate().take(group.positions.len()) {
                    self.place(group.positions[at], answer);
                }
                let unanswered = group.end_part(count);
                if !group.is_done() {
                    self.gathered.push(group);
                }
                unanswered
            }
        };
        for position in unanswered {
            self.place(position, Reply::error("ERR internal error: a command got no reply").into());
        }
    }

    fn place(&mut self, position: usize, answer: Answer) {
        self.due[position - self.given].answer = Some(answer);
        self.answered += 1;
    }

    /// Encodes the known replies at the front of the queue.
    fn give(&mut self) {
        if self.output.is_empty() {
            let known = self.due.iter().map_while(|due| due.answer.as_ref());
            let bytes: usize = known.map(|answer| answer.bytes() + REPLY_FRAME_BYTES).sum();
            let buffer = self.output.buffer();
            if buffer.capacity() == 0 {
                buffer.reserve(bytes.min(RESERVED_BYTES_MAX));
            }
        }
        if Failpoint::RepliesTurned.is_on() && self.due.iter().all(|due| due.answer.is_some()) {
            self.due.make_contiguous().reverse();
        }
        while self.due.front().is_some_and(|due| due.answer.is_some()) && !self.is_output_full() {
            let Some(Due { protocol, is_silent, answer: Some(answer), call }) = self.due.pop_front() else {
                return;
            };
            self.tally.count(call, &answer);
            let before = self.output.len();
            // Confirmations of subscriptions are sent in any case.
            let is_push = matches!(answer, Answer::Reply(Reply::Push(_)));
            if !is_silent || is_push {
                output::put(&mut self.output, &answer, protocol);
            }
            self.given += 1;
            self.replied.count += 1;
            self.replied.bytes += self.output.len() - before;
        }
    }

    /// Appends a reply that is due. `HELLO` is answered in the protocol that it selects, so the
    /// protocol is read after the command was executed.
    fn push_due(&mut self, answer: Option<Answer>) {
        let is_silent = matches!(self.context.replies, Replies::Off | Replies::Skip);
        let call = std::mem::take(&mut self.call);
        self.due.push_back(Due { protocol: self.context.protocol, is_silent, answer, call });
    }

    fn admit<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        let Some(spec) = command::lookup(&args[0]) else {
            self.call = Call::None;
            self.spoil();
            if is_http(&args[0]) {
                // Neither the error nor anything behind it is sent.
                self.context.replies = Replies::Off;
                self.context.closing = true;
            }
            return Admitted::Answered(self.refuse_unknown(&args).into());
        };
        self.call = Call::Rejected(spec);
        if let Err(error) = command::check_arity(spec, &args) {
            return Admitted::Answered(self.refuse_arity(host, spec, error, asks).into());
        }
        if !self.context.authenticated && !spec.has(command::flags::NO_AUTH) {
            self.spoil();
            return Admitted::Answered(Reply::error("NOAUTH Authentication required.").into());
        }
        let leaf = command::leaf(spec, &args);
        self.call = Call::Rejected(leaf);
        if self.context.is_restricted || leaf.has(command::flags::ADMIN) {
            if let Some(error) = host.forbids(leaf, &args) {
                self.spoil();
                return Admitted::Answered(error.into());
            }
        }
        if self.context.is_subscriber && self.context.protocol == Protocol::Resp2 {
            if let Some(error) = refuse_subscriber(leaf) {
                self.spoil();
                return Admitted::Answered(error.into());
            }
        }
        if self.context.is_monitor && matches!(leaf.handler, Handler::Keyspace(_) | Handler::Spanning(..)) {
            self.spoil();
            let error = "ERR Replica can't interact with the keyspace";
            return Admitted::Answered(Reply::error(error).into());
        }
        if host.holds(self.may_write(leaf)) {
            self.is_held = true;
            return Admitted::Stalled(args);
        }
        if let Handler::Session(SessionCommand::Script(call)) = leaf.handler {
            return self.script(host, (call, leaf), args, asks);
        }
        if let Handler::Session(command) = leaf.handler {
            return self.transaction(host, (command, leaf), args, asks);
        }
        if self.queues(leaf) {
            return Admitted::Answered(self.queue(host, leaf, args).into());
        }
        self.call = Call::Executed(leaf);
        self.show(host, leaf, &args);
        let command = match leaf.handler {
            Handler::Server(command) => command,
            Handler::Keyspace(_) | Handler::Spanning(..) => {
                self.last_command = Some(leaf.name);
                let slot = if host.has_slots() { ItemSlot::of(leaf, &args) } else { ItemSlot::Any };
                let resp3 = self.context.protocol == Protocol::Resp3;
                let item = Item { spec: leaf, db: self.context.db, resp3, args, slot };
                return match command::blocking::may_wait(leaf, &item.args) {
                    true => self.block(host, item, asks),
                    false => self.keyspace(host, item, asks),
                };
            }
            Handler::Table(reply) => {
                self.last_command = Some(leaf.name);
                return Admitted::Answered(reply(&args).into());
            }
            Handler::Session(_) | Handler::Container => {
                return Admitted::Answered(command::wrong_arity(leaf.name).into())
            }
        };
        self.own(host, (command, leaf), args, asks)
    }

    /// Tells other clients of a command that is executed now, once.
    fn show<H: Host<Region = R>>(&self, host: &mut H, spec: &'static CommandSpec, args: &[Bytes]) {
        if host.is_monitored() && !self.is_shown && !spec.has(command::flags::ADMIN) {
            host.monitor(&self.context, spec, args);
        }
    }

    fn own<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        (command, spec): (ServerCommand, &'static CommandSpec),
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        if command.waits_for_earlier() && self.has_unanswered() {
            return Admitted::Stalled(args);
        }
        self.last_command = Some(spec.name);
        let own = self.run_own(host, command, spec, &args);
        if command == ServerCommand::Reset {
            self.forget_transaction(host, asks);
        }
        match own {
            Own::Reply(reply) => Admitted::Answered(reply.into()),
            Own::Several(mut answers) => match answers.pop() {
                Some(last) => {
                    let call = std::mem::take(&mut self.call);
                    answers.into_iter().for_each(|answer| self.push_due(Some(answer)));
                    self.call = call;
                    Admitted::Answered(last)
                }
                None => Admitted::Gathered,
            },
            Own::Later if self.has_unanswered() => Admitted::Stalled(args),
            Own::Later => {
                self.ask_alone(Part::Own { command, args }, asks);
                Admitted::Asked
            }
        }
    }

    fn run_own<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        command: ServerCommand,
        spec: &'static CommandSpec,
        args: &[Bytes],
    ) -> Own {
        let before = self.context.authenticated;
        let own = host.own(&mut self.context, command, spec, args);
        if self.context.authenticated != before {
            self.set_limits();
        }
        own
    }

    fn keyspace<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        item: Item,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        let route = host.route(&self.context, &item);
        if let Route::Answered(reply) = route {
            return self.reject(reply);
        }
        if host.has_slots() {
            if let Some(error) = cluster_mode::denial(item.spec.name, &item.args) {
                return Admitted::Answered(Reply::error(error).into());
            }
        }
        if let Some(error) = item.too_large() {
            return self.reject(error);
        }
        if item.spec.may_be_in_parts && host.may_copy_much(&item) {
            if self.has_unanswered() {
                return Admitted::Stalled(item.args);
            }
            self.ask_alone(Part::Copying(item), asks);
            return Admitted::Asked;
        }
        let tracked = match self.context.caching.tracks() && item.spec.is_readonly() {
            true => command::keys_of(item.spec, &item.args).map(|(key, _)| key.clone()).collect(),
            false => Vec::new(),
        };
        let (region, reads) = match route {
            Route::Region(region) => (region, Kind::Reads),
            Route::Weak(region) => (region, Kind::Weak(self.context.max_lag)),
            Route::Answered(_) | Route::Alone => {
                if self.has_unanswered() {
                    return Admitted::Stalled(item.args);
                }
                self.track(host, tracked);
                self.ask_alone(Part::Alone(item), asks);
                return Admitted::Asked;
            }
        };
        let position = self.given + self.due.len();
        match self.gathered.iter_mut().find(|group| group.region == region) {
            Some(group) if group.takes(&item, reads) => group.push(item, position),
            Some(_) if !Failpoint::Overtake.is_on() => return Admitted::Stalled(item.args),
            _ => self.gathered.push(Group::new(region, reads, item, position)),
        }
        self.track(host, tracked);
        self.push_due(None);
        Admitted::Gathered
    }

    /// Refuses a command that was about to be executed.
    fn reject(&mut self, reply: Reply) -> Admitted {
        if let Call::Executed(spec) = self.call {
            self.call = Call::Rejected(spec);
        }
        Admitted::Answered(reply.into())
    }

    /// Asks for a command that may wait for elements, after all commands before it.
    fn block<H: Host<Region = R>>(&mut self, host: &mut H, item: Item, asks: &mut Vec<Ask<R>>) -> Admitted {
        if self.has_unanswered() {
            return Admitted::Stalled(item.args);
        }
        if let Route::Answered(reply) = host.route(&self.context, &item) {
            return self.reject(reply);
        }
        if let Some(error) = item.too_large() {
            return self.reject(error);
        }
        self.ask_alone(Part::Blocking(item), asks);
        self.is_blocked = true;
        Admitted::Asked
    }

    fn has_unanswered(&self) -> bool {
        !self.gathered.is_empty() || self.is_waiting()
    }

    fn ask_alone(&mut self, part: Part<R>, asks: &mut Vec<Ask<R>>) {
        let position = self.given + self.due.len();
        self.push_due(None);
        let number = self.open_part(Asked::Alone(position));
        asks.push(Ask { number, part });
    }

    fn ask_for_gathered(&mut self, asks: &mut Vec<Ask<R>>) {
        let reads = self.reads_at_once();
        for mut group in std::mem::take(&mut self.gathered) {
            let items = group.next(reads);
            let (region, kind) = (group.region.clone(), group.kind);
            let number = self.open_part(Asked::Group(group));
            asks.push(Ask { number, part: Part::Commands { region, kind, items } });
        }
    }

    fn open_part(&mut self, asked: Asked<R>) -> usize {
        self.asked.push(Some(asked));
        self.open += 1;
        self.asked.len() - 1
    }

    fn reads_at_once(&self) -> usize {
        match self.replied.count {
            0 => READS_FIRST,
            count => (REPLY_BYTES_MAX / (self.replied.bytes / count).max(1)).max(1),
        }
    }

    /// Returns the error for a wrong number of arguments. An `EXEC` with one ends the transaction.
    fn refuse_arity<H: Host<Region = R>>(
        &mut self,
        host: &H,
        spec: &'static CommandSpec,
        error: Reply,
        asks: &mut Vec<Ask<R>>,
    ) -> Reply {
        match (spec.handler, &error) {
            (Handler::Session(SessionCommand::Exec), Reply::Error(text)) => {
                let text = text.trim_start_matches("ERR ");
                self.forget_transaction(host, asks);
                Reply::error(format!("EXECABORT Transaction discarded because of: {text}"))
            }
            _ => {
                self.spoil();
                error
            }
        }
    }

    /// Returns the error for an unknown command. A client that is not authenticated gets no
    /// information about commands.
    fn refuse_unknown(&self, args: &[Bytes]) -> Reply {
        match self.context.authenticated {
            true => command::unknown_command(args),
            false => Reply::error("NOAUTH Authentication required."),
        }
    }
}

/// Returns true for a line of an HTTP request. A page in a browser may have sent it, with commands
/// in its body. As in Redis, the connection is closed without a reply.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Returns the error for a command that a client of RESP2 may not use while it has subscriptions.
fn refuse_subscriber(spec: &'static CommandSpec) -> Option<Reply> {
    match spec.handler {
        Handler::Server(command) if command.is_for_subscribers() => return None,
        _ => {}
    }
    let why = format!(
        "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context",
        spec.name
    );
    Some(Reply::error(match spec.handler {
        Handler::Session(SessionCommand::Exec) => {
            format!("EXECABORT Transaction discarded because of: {why}")
        }
        _ => format!("ERR {why}"),
    }))
}

#[cfg(test)]
mod tests;
