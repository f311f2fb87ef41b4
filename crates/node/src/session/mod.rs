//! One client's conversation: bytes in, commands in order, replies in order, bytes out.
//!
//! An executor passes in what it read ([`Session::received`]) and lets the session go on ([`Session::advance`]). The
//! session answers what needs no rows, gathers the other commands by region, and asks for each gathered part to be
//! carried out ([`Ask`]). It takes no further command before all parts are answered ([`Session::answered`]). The
//! encoded replies are in [`Session::output`], in the order of the commands.
//!
//! ```text
//!  received ─▶ input ─▶ advance ─▶ Ask ─▶ (shard, rows, other stores) ─▶ answered ─▶ output
//!                         │                                                           ▲
//!                         └── commands of the connection's or the store's own ────────┘
//! ```
//!
//! Commands of one region keep their order. Reads are gathered until a write to the same region comes, which waits for
//! them. Once a write is gathered, later reads of a few rows follow it in the same log entry, and longer reads wait for
//! it. Parts for different regions are carried out at once.

mod gather;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use command::{CommandSpec, Handler};
use resp::{Decoder, Limits, Protocol, Reply};

use crate::answer::Answer;
use crate::item::{Item, ItemSlot};
use crate::planted::{self, Bug};

use gather::Group;
pub use gather::Kind;

/// Maximum number of commands taken from the input before the earlier ones are answered.
const BATCH_COMMANDS_MAX: usize = 512;
/// Maximum bytes of commands taken from the input before the earlier ones are answered; one command may be larger.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of output above which no further reply is encoded and no further command is taken.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Number of reads of one region that are asked for at first. The size of their replies decides how many follow.
pub const READS_FIRST: usize = 16;
/// Bytes of replies that one part of reads should give, judged by the replies before it.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// Bytes that frame a reply, at least.
const REPLY_FRAME_BYTES: usize = 16;
/// Maximum bytes of output that room is made for at once.
const RESERVED_BYTES_MAX: usize = 64 << 10;
/// Number of commands that an idle session keeps room for.
const IDLE_ROOM: usize = 16;

/// The state of a connection that commands see and change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub protocol: Protocol,
    pub db: u16,
    pub authenticated: bool,
    /// Set by `READONLY`: this store's own copy may answer reads.
    pub read_only: bool,
    /// The connection is closed after the replies so far.
    pub closing: bool,
}

/// Where a command on keys goes.
pub enum Route<R> {
    /// To the region's leader, here or on another store.
    Region(R),
    /// To this store's own copy of the region, if nothing that this connection sent to the region is under way;
    /// otherwise to the leader.
    Weak(R),
    /// Nowhere: the answer is known.
    Answered(Reply),
    /// To no single region that is known now. It is carried out alone, after all commands before it.
    Alone,
}

/// The answer to a command that the store serves from its own state.
pub enum Own {
    Reply(Reply),
    /// The executor answers later, to an [`Ask`].
    Later,
}

/// What a session needs to know of its store while it takes commands.
pub trait Host {
    /// A handle of a region. Equal handles are of the same region.
    type Region: Clone + PartialEq;

    /// Returns whether keys have slots: without cluster mode one region has all of them.
    fn has_slots(&self) -> bool;

    fn route(&mut self, context: &Context, item: &Item) -> Route<Self::Region>;

    /// Carries out a command of the connection's or the store's own.
    fn own(&mut self, context: &mut Context, spec: &'static CommandSpec, args: &[Bytes]) -> Own;

    /// Returns whether the command must see the effects of all commands before it on this connection.
    fn waits_for_earlier(&self, spec: &CommandSpec) -> bool;
}

/// A part of the conversation that the executor carries out. It answers with the same number.
pub struct Ask<R> {
    pub number: usize,
    pub part: Part<R>,
}

pub enum Part<R> {
    /// Commands of one region, to be carried out in their order.
    Commands { region: R, kind: Kind, items: Arc<Vec<Item>> },
    /// A command that no single region is known for.
    Alone(Item),
    /// A command of the store's own: see [`Own::Later`].
    Own { spec: &'static CommandSpec, args: Vec<Bytes> },
}

/// Number and size of replies, for those who plan memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplySizes {
    pub count: usize,
    pub bytes: usize,
}

/// A reply that is due. The protocol is the one that held when the command was taken.
struct Due {
    protocol: Protocol,
    answer: Option<Answer>,
}

pub struct Session<R> {
    context: Context,
    limits: Limits,
    decoder: Decoder,
    input: BytesMut,
    output: BytesMut,
    /// Commands that were decoded and not carried out.
    decoded: VecDeque<Vec<Bytes>>,
    /// What the decoder refused behind them. The connection ends with it.
    refused: Option<Reply>,
    /// Replies of the commands taken so far, in order. The first is that of command number `given`.
    due: VecDeque<Due>,
    /// Number of replies that were encoded.
    given: usize,
    /// Parts that are not asked for yet.
    gathered: Vec<Group<R>>,
    /// Parts that were asked for, by number; `None` once answered.
    asked: Vec<Option<Asked<R>>>,
    /// Number of parts that are asked for and not answered.
    open: usize,
    /// A command that waits until all before it are answered.
    stalled: Option<Vec<Bytes>>,
    /// Bytes of the commands that were last decoded together.
    decoded_bytes: usize,
    /// Replies given since the session last had nothing due.
    replied: ReplySizes,
    /// Commands answered since [`Session::take_answered`] was last called.
    answered: u64,
    last_command: Option<&'static str>,
}

enum Asked<R> {
    /// Of the command at this position.
    Alone(usize),
    Group(Group<R>),
}

/// What became of a command that was taken from the input.
enum Admitted {
    Answered(Answer),
    Gathered,
    /// Everything before it has to be answered first.
    Stalled(Vec<Bytes>),
    Asked,
}

impl<R: Clone + PartialEq> Session<R> {
    /// `limits` apply once the client is authenticated.
    pub fn new(limits: Limits, needs_password: bool) -> Session<R> {
        let context = Context {
            protocol: Protocol::Resp2,
            db: 0,
            authenticated: !needs_password,
            read_only: false,
            closing: false,
        };
        let first = if needs_password { Limits::unauthenticated() } else { limits.clone() };
        Session {
            context,
            limits,
            decoder: Decoder::new(first),
            input: BytesMut::new(),
            output: BytesMut::new(),
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
            last_command: None,
        }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Takes in bytes that the client sent.
    pub fn received(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The buffer of bytes that the client sent and no command was made of. It may only be appended to.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    pub fn input_bytes(&self) -> usize {
        self.input.len()
    }

    /// Encoded replies that were not written yet.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// The client was sent the first `bytes` of the output. An empty output holds no memory.
    pub fn written(&mut self, bytes: usize) {
        self.output.advance(bytes);
        if self.output.is_empty() {
            self.output = BytesMut::new();
        }
    }

    /// Memory that requests and encoded replies take.
    pub fn held_bytes(&self) -> usize {
        let taken = if self.is_idle() { 0 } else { self.decoded_bytes };
        self.input.capacity() + self.output.len() + taken
    }

    /// Gives back memory that an idle session does not need.
    pub fn rest(&mut self) {
        self.due.shrink_to(IDLE_ROOM);
        self.decoded.shrink_to(IDLE_ROOM);
        self.asked.shrink_to(IDLE_ROOM);
        self.gathered.shrink_to(IDLE_ROOM);
    }

    /// Returns whether a part that was asked for is not answered.
    pub fn is_waiting(&self) -> bool {
        self.open > 0
    }

    /// Returns whether every command that was decoded is answered, and the answer encoded.
    pub fn is_idle(&self) -> bool {
        self.due.is_empty() && self.decoded.is_empty() && self.stalled.is_none() && self.refused.is_none()
    }

    /// Returns whether [`advance`](Self::advance) has something to do.
    pub fn can_advance(&self) -> bool {
        !self.is_idle() && !self.is_waiting() && !self.is_output_full()
    }

    /// Returns whether the output is so large that the session does not go on before some of it is written.
    pub fn is_output_full(&self) -> bool {
        self.output.len() >= OUTPUT_BYTES_MAX
    }

    /// Returns whether the connection ends: every reply that it gets is encoded.
    pub fn has_ended(&self) -> bool {
        self.context.closing && self.is_idle()
    }

    /// Returns the number of commands answered since the last call.
    pub fn take_answered(&mut self) -> u64 {
        std::mem::take(&mut self.answered)
    }

    /// Returns the last command taken since the last call.
    pub fn take_last_command(&mut self) -> Option<&'static str> {
        self.last_command.take()
    }

    /// Returns the replies given since the session last had nothing due.
    pub fn replied(&self) -> ReplySizes {
        self.replied
    }

    /// Decodes commands from the input, if all that were decoded before are answered. Returns the number of commands
    /// that [`advance`](Self::advance) takes next at most.
    pub fn decode(&mut self) -> usize {
        if !self.is_idle() || self.context.closing {
            return self.decoded.len();
        }
        self.decoded_bytes = 0;
        while self.decoded.len() < BATCH_COMMANDS_MAX && self.decoded_bytes < BATCH_BYTES_MAX {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(request)) => {
                    self.decoded_bytes += request.args.iter().map(Bytes::len).sum::<usize>();
                    self.decoded.push_back(request.args);
                    // What follows AUTH is read under other limits.
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

    /// Takes decoded commands until there are no more, or until one has to wait. Parts to be carried out are appended
    /// to `asks`.
    pub fn advance<H: Host<Region = R>>(&mut self, host: &mut H, asks: &mut Vec<Ask<R>>) {
        self.give();
        if !self.can_advance() {
            return;
        }
        // Reads that were left for later come before commands that were not taken yet.
        if self.gathered.is_empty() {
            self.take_commands(host, asks);
        }
        self.ask_for_gathered(asks);
        self.give();
    }

    fn take_commands<H: Host<Region = R>>(&mut self, host: &mut H, asks: &mut Vec<Ask<R>>) {
        while !self.context.closing {
            let Some(args) = self.stalled.take().or_else(|| self.decoded.pop_front()) else { break };
            match self.admit(host, args, asks) {
                Admitted::Answered(answer) => {
                    self.answered += 1;
                    self.push_due(Some(answer));
                }
                Admitted::Gathered => {}
                Admitted::Stalled(args) => {
                    self.stalled = Some(args);
                    return;
                }
                Admitted::Asked => return,
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

    /// Takes in the answers to a part, in the order of its commands. Reads that were not answered are asked for again if
    /// at least one was; of other parts every command must be answered.
    pub fn answered(&mut self, number: usize, answers: Vec<Answer>) {
        let Some(asked) = self.asked.get_mut(number).and_then(Option::take) else { return };
        self.open -= 1;
        let unanswered = match asked {
            Asked::Alone(position) => match answers.into_iter().next() {
                Some(answer) => {
                    self.place(position, answer);
                    return;
                }
                None => vec![position],
            },
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

    /// Encodes the replies at the front that are known.
    fn give(&mut self) {
        if self.output.capacity() == 0 {
            let known = self.due.iter().map_while(|due| due.answer.as_ref());
            let bytes: usize = known.map(|answer| answer.bytes() + REPLY_FRAME_BYTES).sum();
            self.output.reserve(bytes.min(RESERVED_BYTES_MAX));
        }
        if planted::is(Bug::RepliesTurned) && self.due.iter().all(|due| due.answer.is_some()) {
            self.due.make_contiguous().reverse();
        }
        while self.due.front().is_some_and(|due| due.answer.is_some()) && !self.is_output_full() {
            let Some(Due { protocol, answer: Some(answer) }) = self.due.pop_front() else { return };
            let before = self.output.len();
            answer.encode(protocol, &mut self.output);
            self.given += 1;
            self.replied.count += 1;
            self.replied.bytes += self.output.len() - before;
        }
    }

    /// `HELLO` answers in the protocol that it chose, so the protocol is read after the command.
    fn push_due(&mut self, answer: Option<Answer>) {
        self.due.push_back(Due { protocol: self.context.protocol, answer });
    }

    fn admit<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        let Some(spec) = command::lookup(&args[0]) else {
            return Admitted::Answered(self.refuse_unknown(&args).into());
        };
        if let Err(error) = command::check_arity(spec, &args) {
            return Admitted::Answered(error.into());
        }
        if !self.context.authenticated && !spec.has(command::flags::NO_AUTH) {
            return Admitted::Answered(Reply::error("NOAUTH Authentication required.").into());
        }
        let leaf = command::leaf(spec, &args);
        if !matches!(leaf.handler, Handler::Keyspace(_)) {
            return self.own(host, (spec, leaf), args, asks);
        }
        self.last_command = Some(leaf.name);
        self.keyspace(host, leaf, args, asks)
    }

    fn own<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        (spec, leaf): (&'static CommandSpec, &'static CommandSpec),
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        if host.waits_for_earlier(spec) && self.has_unanswered() {
            return Admitted::Stalled(args);
        }
        self.last_command = Some(leaf.name);
        let before = self.context.authenticated;
        let own = host.own(&mut self.context, spec, &args);
        if self.context.authenticated != before {
            let is_in = self.context.authenticated;
            self.decoder.set_limits(if is_in { self.limits.clone() } else { Limits::unauthenticated() });
        }
        match own {
            Own::Reply(reply) => Admitted::Answered(reply.into()),
            Own::Later if self.has_unanswered() => Admitted::Stalled(args),
            Own::Later => {
                self.ask_alone(Part::Own { spec, args }, asks);
                Admitted::Asked
            }
        }
    }

    fn keyspace<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        spec: &'static CommandSpec,
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        let slot = if host.has_slots() { ItemSlot::of(spec, &args) } else { ItemSlot::Any };
        let resp3 = self.context.protocol == Protocol::Resp3;
        let item = Item { spec, db: self.context.db, resp3, args, slot };
        let route = host.route(&self.context, &item);
        if let Route::Answered(reply) = route {
            return Admitted::Answered(reply.into());
        }
        if let Some(error) = item.too_large() {
            return Admitted::Answered(error.into());
        }
        let (region, weak) = match route {
            Route::Region(region) => (region, false),
            Route::Weak(region) => (region, true),
            Route::Answered(_) | Route::Alone => {
                if self.has_unanswered() {
                    return Admitted::Stalled(item.args);
                }
                self.ask_alone(Part::Alone(item), asks);
                return Admitted::Asked;
            }
        };
        let position = self.given + self.due.len();
        match self.gathered.iter_mut().find(|group| group.region == region) {
            Some(group) if group.takes(&item, weak) => group.push(item, position),
            Some(_) if !planted::is(Bug::Overtake) => return Admitted::Stalled(item.args),
            _ => self.gathered.push(Group::new(region, weak, item, position)),
        }
        self.push_due(None);
        Admitted::Gathered
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

    /// An unknown command. A client that has not logged in is told nothing about commands.
    fn refuse_unknown(&self, args: &[Bytes]) -> Reply {
        match self.context.authenticated {
            true => command::unknown_command(args),
            false => Reply::error("NOAUTH Authentication required."),
        }
    }
}

#[cfg(test)]
mod tests;
