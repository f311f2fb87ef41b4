//! One client of one region in memory. Its bytes go through a session, its commands are executed
//! as log entries or as reads, and another replica executes the same entries in other batches.
//!
//! An input is two bytes that choose how the client is served, followed by what it sends. Commands
//! about the connection or the store have no effect, except for two: `ECHO n` lets `n` milliseconds
//! pass, and `LASTSAVE` deletes expired keys and sweeps.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use command::blocking::{attempt, last_ids_question, wait_of, with_last_ids};
use command::entry::{self, Builder, Items};
use command::permission::{Access, KeyPattern};
use command::scripting::rules::{Rules, SelectorRules};
use command::scripting::Code;
use command::transaction::lookup_in_log;
use command::{
    describe, execute, prefetch, CommandSpec, Exec, FunctionCommand, Mode, Outcome, ScriptCommand,
    ServerCommand,
};
use node::session::{self, Ask, Context, Host, Kind, Own, Part, Route, Session};
use node::{Answer, Item, ItemSlot};
use resp::{Protocol, Reply, ReplyDecoder, ReplyLimits};
use storage::rows::{upkeep_of, Upkeep};
use storage::{load_state, MemoryKeyspace, Txn};
use types::{mix, SlotRange, NEWEST_VERSION};

use super::consistency::{check, REGION};

/// Bytes of rows beyond which the client is served no further, so that a replica needs little
/// memory.
const ROWS_BYTES_MAX: u64 = 16 << 20;
/// Commands after which the client is served no further.
const COMMANDS_MAX: usize = 400;
/// Offsets between which a string would become so long that a test takes long.
const LONG_OFFSETS: std::ops::Range<u64> = 1 << 20..1 << 33;
/// Maximum time that passes at once, in milliseconds.
const SPAN_MS_MAX: u64 = 1 << 40;

/// The ways in which a client is served, as bits of an input's first byte.
const SLOTS: u8 = 1;
const RESTRICTED: u8 = 2;
const RECORDED: u8 = 4;
const LOGIN: u8 = 8;

/// A region's leader and what it has written to the log.
#[derive(Default)]
struct Region {
    rows: MemoryKeyspace,
    /// The entries with their replies.
    log: Vec<(Bytes, Vec<Option<Reply>>)>,
    now_ms: u64,
    seed: u64,
    /// Events of changed keys are recorded during execution, as for subscribers.
    is_recorded: bool,
    commands: usize,
}

impl Region {
    fn is_full(&self) -> bool {
        let bytes = load_state(&self.rows, REGION).expect("the region's state").bytes();
        bytes > ROWS_BYTES_MAX || self.commands > COMMANDS_MAX
    }

    /// Executes an entry.
    fn apply(&mut self, builder: Builder) -> Vec<Option<Reply>> {
        self.now_ms += 1;
        self.seed += 1;
        let count = builder.len();
        let payload = builder.finish_as(NEWEST_VERSION, self.now_ms, self.seed);
        for nth in 0..count {
            assert!(!describe::entry_item(&payload, nth).contains("cannot be read"));
        }
        self.prefetch(&payload);
        let mut txn = Txn::begin(&self.rows, REGION).expect("the region's state");
        if self.is_recorded {
            txn.begin_record();
        }
        let replies = entry::apply(&payload, &mut txn, SlotRange::ALL).expect("an entry made here");
        assert_eq!(replies.len(), count);
        drop(txn.take_record());
        drop(txn.take_publications());
        self.rows.write(txn.finish().0);
        self.rows.flush();
        self.log.push((payload, replies.clone()));
        replies
    }

    fn prefetch(&self, payload: &Bytes) {
        let mut items = Items::decode(payload.clone()).expect("an entry made here");
        let stamp_ms = items.stamp_ms;
        while let Some(item) = items.next_item().expect("an item made here") {
            prefetch::of_item(&item, stamp_ms, &self.rows, &mut |wanted| {
                let meta = storage::Reader::get(&self.rows, &wanted.meta_row()).expect("a row");
                drop(meta.map(|meta| wanted.part_rows(&meta)));
            });
        }
    }

    fn write(&mut self, items: &[Item]) -> Vec<Answer> {
        let mut builder = Builder::new();
        self.commands += items.len();
        items.iter().for_each(|item| builder.push(item.db, item.resp3, &item.args));
        let replies = self.apply(builder).into_iter();
        replies.map(|reply| reply.unwrap_or(Reply::Nil).into()).collect()
    }

    /// Executes a command over the present rows. A read that must be applied is.
    fn read(&mut self, item: &Item) -> Answer {
        let mut txn = Txn::read_only(&self.rows, REGION);
        let mut exec = Exec {
            txn: &mut txn,
            now_ms: self.now_ms,
            seed: mix(self.seed),
            db: item.db,
            mode: Mode::Read,
            slots: SlotRange::ALL,
            limits: command::Limits::default(),
            resp3: item.resp3,
        };
        match execute(item.spec, &item.args, &mut exec).expect("rows in memory") {
            Outcome::Reply(reply) => reply.into(),
            Outcome::NeedsApply => self.write(std::slice::from_ref(item)).remove(0),
        }
    }

    /// Executes a command that may wait for elements, which then gets nothing.
    fn attempt(&mut self, item: Item) -> Answer {
        let Some(wait) = wait_of(item.spec, &item.args) else {
            return self.write(&[item]).remove(0);
        };
        let mut args = item.args.clone();
        if let Some(question) = last_ids_question(item.spec, &args) {
            let Some(question) = Item::new(question, item.db, false) else { return Reply::Nil.into() };
            match with_last_ids(item.spec, &args, &self.read(&question).into_reply()) {
                Some(with_ids) => args = with_ids,
                None => return Reply::Nil.into(),
            }
        }
        // Every other time, others wait for the first of several keys.
        let others_wait = self.seed % 2 == 0 && wait.keys.len() > 1;
        if others_wait {
            args = attempt(item.spec, &args, &wait.keys[1..]);
        }
        let spec = lookup_in_log(&args[0]).unwrap_or(item.spec);
        self.write(&[Item { args, spec, ..item }]).remove(0)
    }

    /// Deletes expired keys and sweeps, until nothing is left to do.
    fn maintain(&mut self) {
        loop {
            let mut due = BTreeSet::new();
            let mut dead = BTreeSet::new();
            for (row, _) in self.rows.iter() {
                match upkeep_of(row) {
                    Some((slot, Upkeep::Expire { at_ms })) if at_ms <= self.now_ms => drop(due.insert(slot)),
                    Some((slot, Upkeep::Sweep)) => drop(dead.insert(slot)),
                    _ => {}
                }
            }
            if due.is_empty() && dead.is_empty() {
                return;
            }
            let mut builder = Builder::new();
            due.into_iter().for_each(|slot| builder.push_expire_due(slot, 1000));
            dead.into_iter().for_each(|slot| builder.push_sweep(slot, 10_000));
            self.apply(builder);
        }
    }

    /// Checks that a replica that executes the log in batches of `batch` entries has the same rows
    /// and replies.
    fn check_replica(&self, batch: usize) {
        let mut rows = MemoryKeyspace::default();
        for entries in self.log.chunks(batch) {
            let mut txn = Txn::begin(&rows, REGION).expect("the region's state");
            for (payload, replies) in entries {
                let again = entry::apply(payload, &mut txn, SlotRange::ALL).expect("an entry made here");
                // A NaN does not equal itself.
                assert_eq!(format!("{again:?}"), format!("{replies:?}"), "replicas reply the same");
            }
            rows.write(txn.finish().0);
        }
        assert!(rows.iter().eq(self.rows.iter()), "replicas hold the same rows");
    }
}

/// The store, as the session sees it.
struct Store {
    region: Region,
    scripts: BTreeMap<String, Bytes>,
    /// The functions by name, with the code of their libraries.
    functions: BTreeMap<Bytes, Code>,
    has_slots: bool,
    rules: Option<Bytes>,
}

fn rules() -> Bytes {
    let read_only = Access { read: true, write: false };
    let selector = SelectorRules {
        forbids: true,
        commands: vec!["flushall".into()],
        keys: vec![
            KeyPattern { glob: b"[ab]*".to_vec(), access: Access::ALL },
            KeyPattern { glob: b"c*".to_vec(), access: read_only },
        ],
        channels: vec![b"news".to_vec()],
        ..SelectorRules::default()
    };
    let encoded = Rules(vec![selector.clone()]).encode();
    assert_eq!(Rules::decode(&encoded), Some(Rules(vec![selector])));
    encoded
}

impl Host for Store {
    type Region = ();

    fn has_slots(&self) -> bool {
        self.has_slots
    }

    fn script(&mut self, digest: &[u8]) -> Option<Bytes> {
        self.scripts.get(&String::from_utf8_lossy(digest).to_lowercase()).cloned()
    }

    fn function(&mut self, name: &[u8]) -> Option<Code> {
        self.functions.get(name).cloned()
    }

    fn note_script(&mut self, body: &Bytes) {
        self.scripts.insert(script::digest(body), body.clone());
    }

    fn script_rules(&mut self) -> Option<Bytes> {
        self.rules.clone()
    }

    fn route(&mut self, context: &Context, item: &Item) -> Route<()> {
        // What users' rules, events and statistics ask about a command.
        command::key_access(item.spec, &item.args).for_each(drop);
        command::transaction::sent_commands(item.spec, &item.args);
        drop((item.keys_exist(), item.denies_oom(), item.is_bounded_read()));
        if let Some(refusal) = item.too_large() {
            return Route::Answered(refusal);
        }
        if makes_long_string(item) || self.region.is_full() {
            return Route::Answered(Reply::error("ERR not in this test"));
        }
        match item.slot {
            ItemSlot::Several => Route::Answered(Reply::error("CROSSSLOT")),
            ItemSlot::Any if self.has_slots => Route::Alone,
            _ if context.read_only && !item.is_write() => Route::Weak(()),
            _ => Route::Region(()),
        }
    }

    fn is_monitored(&self) -> bool {
        self.region.is_recorded
    }

    fn own(
        &mut self,
        context: &mut Context,
        command: ServerCommand,
        spec: &'static CommandSpec,
        args: &[Bytes],
    ) -> Own {
        Own::Reply(match command {
            ServerCommand::Auth => {
                context.authenticated = true;
                Reply::OK
            }
            ServerCommand::Echo => {
                let ms = resp::parse_integer(&args[1]).and_then(|ms| u64::try_from(ms).ok());
                self.region.now_ms += ms.unwrap_or(0).min(SPAN_MS_MAX);
                Reply::Bulk(args[1].clone())
            }
            ServerCommand::LastSave => {
                self.region.maintain();
                check(&self.region.rows);
                Reply::Int(0)
            }
            ServerCommand::Select => match command::database_index(&args[1], 16) {
                Ok(db) => {
                    context.db = db;
                    Reply::OK
                }
                Err(error) => Reply::error(error),
            },
            ServerCommand::Hello => {
                let is_old = args.get(1).is_some_and(|version| version == "2");
                context.protocol = if is_old { Protocol::Resp2 } else { Protocol::Resp3 };
                Reply::Map(Vec::new())
            }
            ServerCommand::ReadOnly => {
                context.read_only = true;
                Reply::OK
            }
            ServerCommand::Subscribe(_) => {
                context.is_subscriber = !context.is_subscriber;
                return Own::Several(args[1..].iter().map(|name| Reply::Bulk(name.clone()).into()).collect());
            }
            ServerCommand::Quit => {
                context.closing = true;
                Reply::OK
            }
            ServerCommand::Client(command::ClientCommand::Tracking) => {
                context.caching = match &args[2..] {
                    [_] => session::Caching::All,
                    _ => session::Caching::OptIn,
                };
                Reply::OK
            }
            ServerCommand::Client(command::ClientCommand::Caching) => {
                context.caching = session::Caching::Next { yes: true };
                Reply::OK
            }
            ServerCommand::Script(ScriptCommand::Load) => match script::compile(&args[2]) {
                Ok(()) => {
                    self.note_script(&args[2]);
                    Reply::bulk(script::digest(&args[2]))
                }
                Err(error) => error,
            },
            ServerCommand::Function(FunctionCommand::Load) => {
                let Some(code) = args.last() else { return Own::Reply(Reply::Nil) };
                match script::load_library(code) {
                    Ok(functions) => {
                        for script::Function { name, flags, .. } in functions {
                            let name = Bytes::from(name);
                            let function = Some((name.clone(), flags));
                            self.functions.insert(name, Code { body: code.clone(), function });
                        }
                        Reply::OK
                    }
                    Err(error) => Reply::error(error),
                }
            }
            _ => Reply::bulk(spec.name),
        })
    }
}

/// Returns true if the command writes far behind the end of a string.
fn makes_long_string(item: &Item) -> bool {
    let is_long = |arg: &Bytes| {
        let digits = arg.strip_prefix(b"#").unwrap_or(arg);
        let number = resp::parse_integer(digits).and_then(|number| u64::try_from(number).ok());
        number.is_some_and(|number| LONG_OFFSETS.contains(&number))
    };
    let writes = |name: &[u8]| {
        [&b"setrange"[..], b"setbit", b"bitfield"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    // Queued commands are arguments of a transaction.
    (writes(item.spec.name.as_bytes()) || item.args.iter().any(|arg| writes(arg)))
        && item.args.iter().any(is_long)
}

/// A client's connection.
struct Client {
    session: Session<()>,
    output: BytesMut,
}

impl Client {
    fn receive(&mut self, bytes: &[u8], store: &mut Store) {
        self.session.received(bytes);
        let mut asks = Vec::new();
        loop {
            self.session.decode();
            self.take_output();
            if !self.session.can_advance() {
                break;
            }
            self.session.advance(store, &mut asks);
            for Ask { number, part } in asks.drain(..) {
                let region = &mut store.region;
                let answers = match part {
                    Part::Commands { kind: Kind::Writes, items, .. } => region.write(&items),
                    Part::Commands { items, .. } => {
                        // The session asks again for reads that are not answered.
                        let count = 1 + region.seed as usize % items.len();
                        items[..count].iter().map(|item| region.read(item)).collect()
                    }
                    Part::Alone(item) | Part::Copying(item) => region.write(&[item]),
                    Part::Blocking(item) => vec![region.attempt(item)],
                    Part::Own { .. } => unreachable!("the store answers at once"),
                    Part::Release(item) => {
                        region.write(&[item]);
                        continue;
                    }
                };
                self.session.answered(number, answers);
            }
        }
        assert!(!self.session.is_waiting() && !self.session.is_held());
    }

    fn take_output(&mut self) {
        while !self.session.output().is_empty() {
            let length = self.session.output().len();
            self.output.extend_from_slice(self.session.output());
            self.session.written(length);
        }
    }
}

/// Serves a client, and checks that it gets replies, that the rows are consistent with each other,
/// and that replicas agree.
pub fn serve(input: &[u8]) {
    let Some((&[ways, cuts], bytes)) = input.split_first_chunk() else { return };
    let is_restricted = ways & RESTRICTED != 0;
    let region = Region { now_ms: 1_700_000_000_000, is_recorded: ways & RECORDED != 0, ..Region::default() };
    let mut store = Store {
        region,
        scripts: BTreeMap::new(),
        functions: BTreeMap::new(),
        has_slots: ways & SLOTS != 0,
        rules: is_restricted.then(rules),
    };
    let mut session = Session::new(resp::Limits::default(), ways & LOGIN != 0);
    session.set_access(session::Access::Granted { authenticated: ways & LOGIN == 0, is_restricted });
    let mut client = Client { session, output: BytesMut::new() };
    let (mut rest, mut draw) = (bytes, types::Draw::new(cuts.into()));
    while !rest.is_empty() && !client.session.has_ended() {
        let length = if cuts == 0 { rest.len() } else { 1 + draw.below(64) as usize };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        client.receive(piece, &mut store);
        rest = after;
    }
    check_output(client.output);

    let region = &mut store.region;
    check(&region.rows);
    region.check_replica([1, 2, 7, usize::MAX][usize::from(ways >> 6)]);
    // Once all is deleted, expired and swept, nothing is left.
    let args = [Bytes::from_static(b"FLUSHALL")];
    let flush = Item::new(args.to_vec(), 0, false).expect("a command");
    region.write(&[flush]);
    region.maintain();
    assert_eq!(region.rows.len(), 1, "only the region's state is left");
}

fn check_output(mut output: BytesMut) {
    let limits = ReplyLimits { line_bytes_max: usize::MAX, nesting_max: 1000, ..ReplyLimits::default() };
    let mut decoder = ReplyDecoder::new(limits);
    while !output.is_empty() {
        let reply = decoder.decode(&mut output).expect("a reply");
        assert!(reply.is_some(), "a reply is whole");
    }
}
