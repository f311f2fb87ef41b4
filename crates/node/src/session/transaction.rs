//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH` of one client.
//!
//! The session queues the commands of a transaction. `EXEC` sends those on keys as one command to
//! their region (`command::transaction`). Commands that the connection or the store answers itself
//! are executed after it, if the region has executed its part, and the replies are joined in the
//! order of the commands. `WATCH` asks the region for the number of each watch; `EXEC` takes these
//! numbers along.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use command::scripting::sent_as;
use command::transaction::{
    exec_args, lookup_in_log, unwatch_args, watch_args, watch_numbers, Queued, Watched,
};
use command::{
    cluster_mode, flags, ChannelKind, CommandSpec, Handler, ServerCommand, SessionCommand, TableFn,
};
use resp::{Protocol, Reply};

use super::{Admitted, Ask, Asked, Call, Host, Kind, Own, Part, Route, Session, Tally};
use crate::answer::Answer;
use crate::item::{Item, ItemSlot, REQUEST_BYTES_MAX};

/// Maximum number of commands of a transaction.
const COMMANDS_MAX: usize = 1 << 16;
/// Maximum number of keys that a client watches.
const WATCHED_MAX: usize = 1024;
/// Commands with fewer bytes are copied into the queue, so that they do not hold the larger buffer
/// in which they arrived.
const COPIED_BYTES_MAX: usize = 64 << 10;
/// Memory of a queued command and of each of its arguments, in bytes, in addition to its text.
const COMMAND_BYTES: usize = 64;
const ARGUMENT_BYTES: usize = 40;

/// A number that belongs to no part, because its answer is not needed.
const UNANSWERED: usize = usize::MAX;

#[derive(Default)]
pub(super) struct Transaction {
    /// The commands since `MULTI`.
    multi: Option<Box<Multi>>,
    watched: Vec<Watched>,
    /// An `EXEC` that is being executed.
    executing: Option<Box<Executing>>,
}

#[derive(Default)]
struct Multi {
    commands: Vec<Taken>,
    bytes: usize,
    /// True if a command could not be queued. `EXEC` is then refused, so nothing is kept.
    is_spoilt: bool,
}

struct Taken {
    spec: &'static CommandSpec,
    args: Vec<Bytes>,
}

/// The execution of a queued command.
enum Step {
    /// By the region, as part of its command.
    Keyspace,
    Own(ServerCommand, &'static CommandSpec, Vec<Bytes>),
    /// By an error, because cluster mode does not allow the arguments.
    Denied(&'static str),
    Table(TableFn, Vec<Bytes>),
    /// `UNWATCH`, which `EXEC` has done already.
    Nothing,
}

struct Executing {
    /// The position of `EXEC`.
    position: usize,
    steps: VecDeque<Step>,
    watched: Vec<Watched>,
    /// The region's answer. `None` while it is awaited.
    outcome: Option<Answer>,
    /// The region's replies that no step has taken.
    of_region: Option<VecDeque<Reply>>,
    /// The replies, and messages to the client between them.
    replies: Vec<Answer>,
    /// The number of commands.
    count: usize,
}

impl Taken {
    /// Returns the error of a command that is not allowed in cluster mode.
    fn denial(&self, has_slots: bool) -> Option<&'static str> {
        if !has_slots {
            return None;
        }
        cluster_mode::denial(self.spec.name, &self.args)
    }
}

impl Multi {
    fn spoil(&mut self) {
        *self = Multi { is_spoilt: true, ..Multi::default() };
    }

    fn push(&mut self, spec: &'static CommandSpec, args: Vec<Bytes>) -> Result<(), Reply> {
        if self.is_spoilt {
            return Ok(());
        }
        let text: usize = args.iter().map(Bytes::len).sum();
        let bytes = self.bytes + text + args.len() * ARGUMENT_BYTES + COMMAND_BYTES;
        if bytes > REQUEST_BYTES_MAX || self.commands.len() >= COMMANDS_MAX {
            return Err(Reply::error(format!(
                "ERR a transaction has at most {COMMANDS_MAX} commands and {REQUEST_BYTES_MAX} bytes"
            )));
        }
        let args = if text < COPIED_BYTES_MAX { copied(&args, text) } else { args };
        self.bytes = bytes;
        self.commands.push(Taken { spec, args });
        Ok(())
    }

    /// Returns the commands on keys, each with the database that the commands before it select.
    fn on_keys(&self, mut db: u16, has_slots: bool) -> Vec<Queued> {
        let mut queued = Vec::new();
        for taken in self.commands.iter().filter(|taken| taken.denial(has_slots).is_none()) {
            let Taken { spec, args } = taken;
            match spec.handler {
                Handler::Keyspace(_) | Handler::Spanning(..) => {
                    queued.push(Queued { db, args: args.clone() })
                }
                Handler::Server(ServerCommand::Select) if !has_slots => {
                    let databases = command::Limits::default().databases;
                    db = command::database_index(&args[1], databases).unwrap_or(db);
                }
                _ => {}
            }
        }
        queued
    }

    /// Returns the keys of the commands that only read.
    fn keys_read(&self) -> Vec<Bytes> {
        let reads = self.commands.iter().filter(|taken| taken.spec.is_readonly());
        reads
            .flat_map(|taken| command::keys_of(taken.spec, &taken.args).map(|(key, _)| key.clone()))
            .collect()
    }

    /// Counts the commands, which are executed now.
    fn count(&self, tally: &mut Tally) {
        for Taken { spec, args } in &self.commands {
            tally.count_queued(sent_as(spec, args).unwrap_or(spec));
        }
    }

    fn into_steps(self, has_slots: bool) -> VecDeque<Step> {
        let step = |taken: Taken| match (taken.denial(has_slots), taken.spec.handler) {
            (Some(error), _) => Step::Denied(error),
            (None, Handler::Keyspace(_) | Handler::Spanning(..)) => Step::Keyspace,
            (None, Handler::Server(command)) => Step::Own(command, taken.spec, taken.args),
            (None, Handler::Table(reply)) => Step::Table(reply, taken.args),
            (None, Handler::Session(_) | Handler::Container) => Step::Nothing,
        };
        self.commands.into_iter().map(step).collect()
    }
}

fn copied(args: &[Bytes], text: usize) -> Vec<Bytes> {
    let mut all = BytesMut::with_capacity(text);
    args.iter().for_each(|arg| all.extend_from_slice(arg));
    let mut all = all.freeze();
    args.iter().map(|arg| all.split_to(arg.len())).collect()
}

/// Returns a command of the log.
fn log_item(args: Vec<Bytes>, db: u16, resp3: bool, has_slots: bool) -> Item {
    let spec = lookup_in_log(&args[0]).expect("a command of transactions");
    let slot = if has_slots { ItemSlot::of(spec, &args) } else { ItemSlot::Any };
    Item { spec, db, resp3, args, slot }
}

/// Returns `WAIT` or `WAITAOF` for 0 copies, which tells the number of copies at once: nothing
/// waits in a transaction, as in Redis.
fn without_waiting(args: &[Bytes]) -> Vec<Bytes> {
    let zero = Bytes::from_static(b"0");
    args.iter().take(1).cloned().chain(args.iter().skip(1).map(|_| zero.clone())).collect()
}

impl<R: Clone + PartialEq> Session<R> {
    /// Returns the number of queued commands, or `None` without `MULTI`.
    pub fn queued(&self) -> Option<usize> {
        self.transaction.multi.as_ref().map(|multi| multi.commands.len())
    }

    /// Returns a command that releases the client's watches, if there are any, and forgets them.
    /// The executor calls this when the connection ends.
    pub fn take_watches(&mut self, has_slots: bool) -> Option<Item> {
        let watched = std::mem::take(&mut self.transaction.watched);
        (!watched.is_empty()).then(|| log_item(unwatch_args(&watched), 0, false, has_slots))
    }

    /// Returns the memory of the transaction in bytes.
    pub(super) fn transaction_bytes(&self) -> usize {
        let Transaction { multi, watched, executing } = &self.transaction;
        let queued = multi.as_ref().map_or(0, |multi| multi.bytes);
        let replies = executing.as_ref().map_or(0, |executing| {
            let of_region = executing.of_region.iter().flatten();
            let replies: usize = executing.replies.iter().map(Answer::bytes).sum();
            replies + of_region.map(Reply::bytes).sum::<usize>()
        });
        queued + replies + watched.iter().map(|watched| watched.key.len() + COMMAND_BYTES).sum::<usize>()
    }

    /// Makes the transaction, if there is one, fail because a command was refused.
    pub(super) fn spoil(&mut self) {
        self.transaction.multi.iter_mut().for_each(|multi| multi.spoil());
    }

    /// Ends the transaction and releases the watches.
    pub(super) fn forget_transaction<H: Host<Region = R>>(&mut self, host: &H, asks: &mut Vec<Ask<R>>) {
        self.transaction.multi = None;
        if let Some(item) = self.take_watches(host.has_slots()) {
            asks.push(Ask { number: UNANSWERED, part: Part::Release(item) });
        }
    }

    /// Returns true if a command may change something: as an `EXEC`, by its queued commands.
    pub(super) fn may_write(&self, leaf: &CommandSpec) -> bool {
        match (leaf.handler, &self.transaction.multi) {
            (Handler::Session(SessionCommand::Exec), Some(multi)) => {
                multi.commands.iter().any(|taken| taken.spec.may_write())
            }
            _ => leaf.may_write(),
        }
    }

    /// Returns true if the command is queued instead of executed.
    pub(super) fn queues(&self, leaf: &CommandSpec) -> bool {
        let is_now = matches!(leaf.handler, Handler::Server(ServerCommand::Quit | ServerCommand::Reset));
        self.transaction.multi.is_some() && !is_now
    }

    /// Queues a command of a transaction.
    pub(super) fn queue<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        leaf: &'static CommandSpec,
        args: Vec<Bytes>,
    ) -> Reply {
        let queued = self.check_queued(host, leaf, &args).and_then(|()| match &mut self.transaction.multi {
            Some(multi) => multi.push(leaf, args),
            None => Ok(()),
        });
        match queued {
            Ok(()) => {
                // It counts when it is executed.
                self.call = Call::None;
                Reply::Simple("QUEUED".into())
            }
            Err(error) => {
                self.spoil();
                error
            }
        }
    }

    /// Refuses commands that a transaction cannot have. As in Redis, keys of another store are
    /// refused when their command is queued.
    fn check_queued<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        leaf: &'static CommandSpec,
        args: &[Bytes],
    ) -> Result<(), Reply> {
        if leaf.has(flags::NO_MULTI) {
            return Err(Reply::error("ERR Command not allowed inside a transaction"));
        }
        match leaf.handler {
            Handler::Server(ServerCommand::Hello) => {
                Err(Reply::error("ERR HELLO is not supported inside a transaction"))
            }
            Handler::Spanning(..) if host.has_slots() => Err(Reply::error(format!(
                "ERR '{}' is about all slots, and a transaction in cluster mode has one",
                leaf.name
            ))),
            Handler::Keyspace(_) | Handler::Spanning(..) => {
                let slot = if host.has_slots() { ItemSlot::of(leaf, args) } else { ItemSlot::Any };
                let item = Item { spec: leaf, db: self.context.db, resp3: false, args: args.to_vec(), slot };
                match host.route(&self.context, &item) {
                    Route::Answered(error) => Err(error),
                    Route::Region(_) | Route::Weak(_) | Route::Alone => Ok(()),
                }
            }
            Handler::Server(_) | Handler::Table(_) | Handler::Session(_) | Handler::Container => Ok(()),
        }
    }

    /// Executes a command about transactions.
    pub(super) fn transaction<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        (command, leaf): (SessionCommand, &'static CommandSpec),
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        let is_multi = self.transaction.multi.is_some();
        self.call = Call::Executed(leaf);
        let error = |text: &'static str| Admitted::Answered(Reply::error(text).into());
        if command != SessionCommand::Exec {
            self.last_command = Some(leaf.name);
            self.show(host, leaf, &args);
        }
        match (command, is_multi) {
            (SessionCommand::Multi, true) => error("ERR MULTI calls can not be nested"),
            (SessionCommand::Multi, false) => {
                self.transaction.multi = Some(Box::default());
                Admitted::Answered(Reply::OK.into())
            }
            (SessionCommand::Exec, true) => self.exec(host, leaf, args, asks),
            (SessionCommand::Exec, false) => error("ERR EXEC without MULTI"),
            (SessionCommand::Discard, false) => error("ERR DISCARD without MULTI"),
            (SessionCommand::Watch, true) => error("ERR WATCH inside MULTI is not allowed"),
            (SessionCommand::Watch, false) => self.watch(host, args, asks),
            (SessionCommand::Unwatch, true) => Admitted::Answered(self.queue(host, leaf, args).into()),
            (SessionCommand::Script(_), _) => error("ERR a script is no command on transactions"),
            (SessionCommand::Discard, true) | (SessionCommand::Unwatch, false) => {
                self.forget_transaction(host, asks);
                Admitted::Answered(Reply::OK.into())
            }
        }
    }

    fn watch<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        if self.has_unanswered() {
            return Admitted::Stalled(args);
        }
        let db = self.context.db;
        let watched = &self.transaction.watched;
        let mut keys: Vec<Bytes> = Vec::new();
        for key in &args[1..] {
            let is_known = watched.iter().any(|known| known.db == db && known.key == *key);
            if !is_known && !keys.contains(key) {
                keys.push(Bytes::copy_from_slice(key));
            }
            if watched.len() + keys.len() > WATCHED_MAX {
                let error = format!("ERR a client watches at most {WATCHED_MAX} keys");
                return Admitted::Answered(Reply::error(error).into());
            }
        }
        if keys.is_empty() {
            return Admitted::Answered(Reply::OK.into());
        }
        let all: Vec<Bytes> = watched.iter().map(|watched| watched.key.clone()).chain(keys.clone()).collect();
        if log_item(watch_args(&all), db, false, host.has_slots()).slot == ItemSlot::Several {
            // One transaction could not check them all.
            let error = Reply::error("CROSSSLOT Keys in request don't hash to the same slot");
            return Admitted::Answered(error.into());
        }
        let item = log_item(watch_args(&keys), db, false, host.has_slots());
        let watched = keys.into_iter().map(|key| Watched { db, key, number: 0 }).collect();
        let position = self.given + self.due.len();
        match self.ask_one(host, item, Asked::Watch { position, watched }, asks) {
            Ok(()) => {
                self.push_due(None);
                Admitted::Asked
            }
            Err(error) => Admitted::Answered(error.into()),
        }
    }

    /// Asks for one command of the log, whose answer the session needs itself.
    fn ask_one<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        item: Item,
        asked: Asked<R>,
        asks: &mut Vec<Ask<R>>,
    ) -> Result<(), Reply> {
        let route = host.route(&self.context, &item);
        if let Route::Answered(error) = route {
            return Err(error);
        }
        if let Some(error) = item.too_large() {
            return Err(error);
        }
        let part = match route {
            Route::Region(region) | Route::Weak(region) => {
                Part::Commands { region, kind: Kind::Writes, items: Arc::new(vec![item]) }
            }
            Route::Answered(_) | Route::Alone => Part::Alone(item),
        };
        let number = self.open_part(asked);
        asks.push(Ask { number, part });
        Ok(())
    }

    fn exec<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        leaf: &'static CommandSpec,
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        let Some(multi) = &mut self.transaction.multi else { return Admitted::Stalled(args) };
        if multi.is_spoilt {
            self.last_command = Some(leaf.name);
            self.forget_transaction(host, asks);
            let error = "EXECABORT Transaction discarded because of previous errors.";
            return Admitted::Answered(Reply::error(error).into());
        }
        // The user's rules may have changed since the commands were queued.
        let forbidden = match self.context.is_restricted {
            true => multi
                .commands
                .iter_mut()
                .find_map(|taken| Self::forbids_queued(host, taken.spec, &mut taken.args)),
            false => None,
        };
        if let Some(error) = forbidden {
            self.last_command = Some(leaf.name);
            self.forget_transaction(host, asks);
            let why = if let Reply::Error(text) = error { text } else { "NOPERM".into() };
            let error = format!("EXECABORT Transaction discarded because of: {why}");
            return Admitted::Answered(Reply::error(error).into());
        }
        let Some(multi) = &self.transaction.multi else { return Admitted::Stalled(args) };
        if host.is_monitored() {
            multi.commands.iter().for_each(|taken| self.show_queued(host, taken.spec, &taken.args));
            self.show(host, leaf, &args);
        }
        let tracked = if self.context.caching.tracks() { multi.keys_read() } else { Vec::new() };
        let queued = multi.on_keys(self.context.db, host.has_slots());
        let resp3 = self.context.protocol == Protocol::Resp3;
        let log_exec = |watched: &[Watched], has_slots| {
            log_item(exec_args(watched, &queued), self.context.db, resp3, has_slots)
        };
        if self.transaction.watched.is_empty() && !queued.is_empty() && queued.len() == multi.commands.len() {
            // The region's reply is the reply, so this is a command like others.
            let item = log_exec(&[], host.has_slots());
            let position = self.given + self.due.len();
            let admitted = self.keyspace(host, item, asks);
            if let Admitted::Stalled(_) = admitted {
                return Admitted::Stalled(args);
            }
            if !tracked.is_empty() && !matches!(admitted, Admitted::Answered(_)) {
                host.reads(&tracked);
                self.tracked.push_back((position, tracked));
            }
            self.last_command = Some(leaf.name);
            if let Some(multi) = self.transaction.multi.take() {
                multi.count(&mut self.tally);
            }
            return admitted;
        }
        if self.has_unanswered() {
            return Admitted::Stalled(args);
        }
        self.last_command = Some(leaf.name);
        let watched = std::mem::take(&mut self.transaction.watched);
        let item = (!queued.is_empty() || !watched.is_empty()).then(|| log_exec(&watched, host.has_slots()));
        let multi = self.transaction.multi.take().unwrap_or_default();
        multi.count(&mut self.tally);
        let position = self.given + self.due.len();
        let steps = multi.into_steps(host.has_slots());
        let mut executing = Executing {
            position,
            count: steps.len(),
            steps,
            watched,
            outcome: None,
            of_region: None,
            replies: Vec::new(),
        };
        match item {
            Some(item) => {
                if let Err(error) = self.ask_one(host, item, Asked::Exec, asks) {
                    executing.outcome = Some(error.into());
                }
            }
            None => executing.of_region = Some(VecDeque::new()),
        }
        if executing.outcome.is_none() {
            self.track(host, tracked);
        }
        self.push_due(None);
        self.transaction.executing = Some(Box::new(executing));
        self.go_on_executing(host, asks);
        if self.is_waiting() {
            Admitted::Asked
        } else {
            Admitted::Gathered
        }
    }

    /// Takes the answer to the log's `watch`.
    pub(super) fn watch_answered(&mut self, position: usize, watched: Vec<Watched>, answer: Option<Answer>) {
        let no_reply = || Reply::error("ERR internal error: a command got no reply");
        let reply = answer.map_or_else(no_reply, Answer::into_reply);
        let reply = match watch_numbers(&reply, watched.len()) {
            Some(numbers) => {
                let numbered = watched.into_iter().zip(numbers);
                let watched = numbered.map(|(watched, number)| Watched { number, ..watched });
                self.transaction.watched.extend(watched);
                Reply::OK
            }
            None if reply.is_error() => reply,
            None => no_reply(),
        };
        self.place(position, reply.into());
    }

    /// Takes the answer to the log's `exec`.
    pub(super) fn exec_answered(&mut self, answer: Option<Answer>) {
        let answer =
            answer.unwrap_or_else(|| Reply::error("ERR internal error: a command got no reply").into());
        self.transaction.executing.iter_mut().for_each(|of| of.outcome = Some(answer.clone()));
    }

    /// Takes the answer to a command of the store that belongs to a transaction.
    pub(super) fn step_answered(&mut self, answer: Option<Answer>) {
        let reply =
            answer.unwrap_or_else(|| Reply::error("ERR internal error: a command got no reply").into());
        self.transaction.executing.iter_mut().for_each(|of| of.replies.push(reply.clone()));
    }

    /// Continues an `EXEC` after the region's answer: executes the commands that the store or the
    /// connection answers, and gives the reply.
    pub(super) fn go_on_executing<H: Host<Region = R>>(&mut self, host: &mut H, asks: &mut Vec<Ask<R>>) {
        let Some(mut executing) = self.transaction.executing.take() else { return };
        if executing.of_region.is_none() {
            let Some(answer) = executing.outcome.take() else {
                self.transaction.executing = Some(executing);
                return;
            };
            let are_all_of_region = executing.steps.iter().all(|step| matches!(step, Step::Keyspace));
            let is_error = |answer: &Answer| match answer {
                Answer::Reply(reply) => reply.is_error(),
                Answer::Encoded(bytes) => bytes.first() == Some(&b'-'),
            };
            if is_error(&answer) && !executing.watched.is_empty() {
                // The watches may still be there.
                let item = log_item(unwatch_args(&executing.watched), 0, false, host.has_slots());
                asks.push(Ask { number: UNANSWERED, part: Part::Release(item) });
            }
            if are_all_of_region || is_error(&answer) {
                return self.place(executing.position, answer);
            }
            match answer.into_reply() {
                Reply::Array(replies) => executing.of_region = Some(replies.into()),
                reply => {
                    // Nil, because a watched key has changed.
                    let reply = if reply == Reply::Nil { Reply::NilArray } else { reply };
                    return self.place(executing.position, reply.into());
                }
            }
        }
        while let Some(step) = executing.steps.pop_front() {
            let reply = match step {
                Step::Keyspace => executing.of_region.as_mut().and_then(VecDeque::pop_front),
                Step::Nothing => Some(Reply::OK),
                Step::Denied(error) => Some(Reply::error(error)),
                Step::Table(reply, args) => Some(reply(&args)),
                // As in Redis, which takes them for commands that may wait.
                Step::Own(ServerCommand::Monitor, ..) => {
                    Some(Reply::error("ERR MONITOR isn't allowed for DENY BLOCKING client"))
                }
                Step::Own(ServerCommand::Subscribe(ChannelKind::Shard), ..) => {
                    Some(Reply::error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"))
                }
                Step::Own(command, spec, args) => match self.run_own(host, command, spec, &args) {
                    Own::Reply(reply) => Some(reply),
                    // A command without a reply has one here, so that none is missing.
                    Own::Several(answers) if answers.is_empty() => Some(Reply::OK),
                    Own::Several(answers) => {
                        executing.replies.extend(answers);
                        continue;
                    }
                    Own::Later => {
                        let args = if command.waits_for_copies() { without_waiting(&args) } else { args };
                        let number = self.open_part(Asked::Step);
                        asks.push(Ask { number, part: Part::Own { command, args } });
                        self.transaction.executing = Some(executing);
                        return;
                    }
                },
            };
            let reply = reply.unwrap_or_else(|| Reply::error("ERR internal error: a command got no reply"));
            executing.replies.push(reply.into());
        }
        let answer = self.exec_reply(executing.count, executing.replies);
        self.place(executing.position, answer);
    }

    /// Returns the reply to `EXEC`. As in Redis, its length is the number of commands, and each
    /// reply or message to the client follows, although a command about channels has several.
    fn exec_reply(&self, count: usize, answers: Vec<Answer>) -> Answer {
        let are_replies = answers.iter().all(|answer| matches!(answer, Answer::Reply(_)));
        if are_replies && answers.len() == count {
            return Reply::Array(answers.into_iter().map(Answer::into_reply).collect()).into();
        }
        let mut out = BytesMut::new();
        resp::encode_array_length(count, &mut out);
        answers.iter().for_each(|answer| answer.encode(self.context.protocol, &mut out));
        Answer::Encoded(out.freeze())
    }

    /// Returns true while an `EXEC` is being executed.
    pub(super) fn is_executing(&self) -> bool {
        self.transaction.executing.is_some()
    }
}
