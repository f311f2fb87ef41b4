//! Scripts in the log: `EVAL`, `EVALSHA`, `FCALL` and their read-only forms.
//!
//! A session turns each of them into one command, which holds the script itself and everything
//! else that its execution depends on. So a script is executed like any command: on every replica,
//! as one, with the entries' usual ways to fetch missing rows, and it sees its own writes. Commands
//! that it calls are executed in the same overlay.
//!
//! ```text
//! eval       name | head | script | rules | number of keys, decimal | key ... | argument ...
//! head       flags u8   1: keys have slots   2: no writes   4: `script` is an error, the reply
//!                       8: allows growth on a full disk   16: the client sent a digest
//!                       32: the client sent a read-only form
//!                       64: `script` is the code of a library
//!            | the name of the library's function, if it is one
//! rules      empty for a user who may do everything, otherwise those of `rules`
//! ```
//!
//! Each `|` separates two arguments. There are two names, one for scripts that may write and one
//! for those that only read. The latter is not in the log unless it has met an expired key.
//!
//! A function's command holds the code of its whole library, so that every replica executes the
//! same code, also when it replays the log after the library was replaced or deleted.
//!
//! A script that reaches a limit ([`script::STEPS_MAX`], [`script::MEMORY_BYTES_MAX`]) has no
//! effect: its writes are undone. Like any other error, an error of the script leaves what it has
//! written before, as in Redis.

pub mod rules;

use bytes::Bytes;
use resp::Reply;
use script::{Called, Host, Outcome, Script};
use storage::record::Publication;
use storage::StorageError;
use types::{mix, slot_of_key, Slot, THIRD_VERSION};

use crate::cluster_mode;
use crate::error_messages;
use crate::exec::{call, fail, CommandError, CommandResult, Exec, Mode};
use crate::number::database_index_in;
use crate::server_command::{ChannelKind, ServerCommand};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};
use crate::streams::read::has_block;
use crate::table::{check_arity, keys_of, leaf, lookup, states_wrong_number};
use rules::Rules;

const EVAL_NAME: &[u8] = b"\0eval";
const EVAL_RO_NAME: &[u8] = b"\0eval_ro";

const HAS_SLOTS: u8 = 1;
const NO_WRITES: u8 = 2;
const IS_REFUSED: u8 = 4;
const ALLOWS_OOM: u8 = 8;
const BY_DIGEST: u8 = 16;
const SENT_READONLY: u8 = 32;
const IS_FUNCTION: u8 = 64;

/// Maximum bytes of a script's publications, and the bytes of one in addition to its text.
pub const PUBLISHED_BYTES_MAX: usize = 4 << 20;
const PUBLICATION_BYTES: usize = 64;

const SCRIPT_AT: usize = 2;
const RULES_AT: usize = 3;
const NUMBER_AT: usize = 4;
const KEYS_AT: usize = 5;

static EVAL: CommandSpec =
    CommandSpec::new("eval", -5, flags::WRITE | flags::MOVABLEKEYS, Handler::Keyspace(eval))
        .keys(&[KeySpec {
            first: KEYS_AT,
            last: KeySpec::COUNTED_OR_NONE,
            step: 1,
            flags: &["RW", "access", "update"],
        }])
        .since_version(THIRD_VERSION);
static EVAL_RO: CommandSpec =
    CommandSpec::new("eval_ro", -5, flags::READONLY | flags::MOVABLEKEYS, Handler::Keyspace(eval))
        .keys(&[KeySpec {
            first: KEYS_AT,
            last: KeySpec::COUNTED_OR_NONE,
            step: 1,
            flags: &["RO", "access"],
        }])
        .reads_few_rows()
        .since_version(THIRD_VERSION);

/// Finds a script's command of the log.
pub(crate) fn lookup_script(name: &[u8]) -> Option<&'static CommandSpec> {
    match name {
        EVAL_NAME => Some(&EVAL),
        EVAL_RO_NAME => Some(&EVAL_RO),
        _ => None,
    }
}

/// Returns true if the script with these arguments may make the data grow.
pub fn grows(spec: &CommandSpec, args: &[Bytes]) -> bool {
    std::ptr::eq(spec, &EVAL) && head_of(args).is_none_or(|head| head & ALLOWS_OOM == 0)
}

fn head_of(args: &[Bytes]) -> Option<u8> {
    args.get(1)?.first().copied()
}

/// The meaning of the first argument of a command that executes a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptBy {
    Body,
    Digest,
    /// The name of a function of a library.
    Function,
}

/// A command that executes a script, as a client sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptCall {
    pub by: ScriptBy,
    pub is_readonly: bool,
}

impl ScriptCall {
    fn flags(self) -> u8 {
        let by = match self.by {
            ScriptBy::Body => 0,
            ScriptBy::Digest => BY_DIGEST,
            ScriptBy::Function => IS_FUNCTION,
        };
        by | if self.is_readonly { SENT_READONLY } else { 0 }
    }
}

/// The code that a command executes.
#[derive(Clone, Debug)]
pub struct Code {
    /// The script, or the code of a library.
    pub body: Bytes,
    /// The function of the library, and its flags.
    pub function: Option<(Bytes, script::Flags)>,
}

/// The place at which the commands of a script are executed, and the user's rules.
pub struct Caller {
    pub has_slots: bool,
    /// The user's rules, if the user may not do everything.
    pub rules: Option<Bytes>,
}

/// Returns the arguments of the log's command for a script. `code` is what the command executes,
/// or the error if it is not known.
///
/// # Errors
/// The reply to the client.
pub fn eval_args(
    call: ScriptCall,
    args: &[Bytes],
    code: Result<Code, Reply>,
    caller: Caller,
) -> Result<Vec<Bytes>, Reply> {
    let is_function = call.by == ScriptBy::Function;
    if call.by == ScriptBy::Digest && args[1].len() != script::DIGEST_LEN {
        return Err(Reply::error(NO_SCRIPT));
    }
    if let (true, Err(error)) = (is_function, &code) {
        return Err(error.clone());
    }
    let not_a_number = if is_function { BAD_NUMBER_OF_KEYS } else { error_messages::NOT_AN_INTEGER };
    let count = resp::parse_integer(&args[2]).ok_or_else(|| Reply::error(not_a_number))?;
    if count > (args.len() - 3) as i64 {
        return Err(Reply::error("ERR Number of keys can't be greater than number of args"));
    }
    if count < 0 {
        return Err(Reply::error("ERR Number of keys can't be negative"));
    }
    let Code { body, function } = code?;
    let (function, flags) = match function {
        Some((name, flags)) => (name, flags),
        // A first line that cannot be read is refused by the execution.
        None => (Bytes::new(), script::flags_of(&body).unwrap_or_default().0),
    };
    if flags.no_cluster && caller.has_slots {
        return Err(Reply::error("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    if flags.are_stated && call.is_readonly && !flags.no_writes {
        let error = "ERR Can not execute a script with write flag using *_ro command.";
        return Err(Reply::error(error));
    }
    let mut head = call.flags();
    for (is_set, flag) in [
        (caller.has_slots, HAS_SLOTS),
        (call.is_readonly || flags.no_writes, NO_WRITES),
        (flags.allow_oom, ALLOWS_OOM),
    ] {
        head |= if is_set { flag } else { 0 };
    }
    let name = if head & NO_WRITES != 0 { EVAL_RO_NAME } else { EVAL_NAME };
    let mut eval = Vec::with_capacity(args.len() + 2);
    eval.extend([Bytes::from_static(name), head_argument(head, &function), body]);
    eval.push(caller.rules.unwrap_or_default());
    eval.push(Bytes::from(count.to_string()));
    eval.extend(args[3..].iter().cloned());
    Ok(eval)
}

fn head_argument(flags: u8, function: &[u8]) -> Bytes {
    match function {
        [] => Bytes::copy_from_slice(&[flags]),
        function => [&[flags], function].concat().into(),
    }
}

/// Returns the arguments of a log's command that replies an error, for a script that is refused in
/// a transaction.
pub fn refusal_args(call: ScriptCall, args: &[Bytes], error: &Reply) -> Vec<Bytes> {
    let text = match error {
        Reply::Error(text) => Bytes::copy_from_slice(text.as_bytes()),
        _ => Bytes::new(),
    };
    let function = if call.by == ScriptBy::Function { &args[1][..] } else { b"" };
    let head = head_argument(call.flags() | IS_REFUSED, function);
    let zero = Bytes::from_static(b"0");
    let mut refusal = vec![Bytes::from_static(EVAL_NAME), head, text, Bytes::new(), zero];
    refusal.extend(args[2..].iter().cloned());
    refusal
}

/// Returns a script's command as the client sent it, with the script in place of a digest. `None`
/// for other commands.
pub fn sent_args(spec: &CommandSpec, args: &[Bytes]) -> Option<(&'static CommandSpec, Vec<Bytes>)> {
    let sent_as = sent_as(spec, args)?;
    let head = head_of(args)?;
    let first = if head & IS_FUNCTION != 0 { args[1].slice(1..) } else { args[SCRIPT_AT].clone() };
    let mut sent = vec![Bytes::from_static(sent_as.name.as_bytes()), first];
    let from = if head & IS_REFUSED != 0 { KEYS_AT } else { NUMBER_AT };
    sent.extend(args[from..].iter().cloned());
    Some((sent_as, sent))
}

/// Returns the command by which the client sent a script. `None` for other commands.
pub fn sent_as(spec: &CommandSpec, args: &[Bytes]) -> Option<&'static CommandSpec> {
    if !std::ptr::eq(spec, &EVAL) && !std::ptr::eq(spec, &EVAL_RO) {
        return None;
    }
    let head = head_of(args)?;
    let is_function = head & IS_FUNCTION != 0;
    let name = match (head & BY_DIGEST != 0, head & SENT_READONLY != 0) {
        (_, false) if is_function => "fcall",
        (_, true) if is_function => "fcall_ro",
        (false, false) => "eval",
        (false, true) => "eval_ro",
        (true, false) => "evalsha",
        (true, true) => "evalsha_ro",
    };
    lookup(name.as_bytes())
}

/// Replaces the user's rules in a script's command.
pub fn renew_rules(args: &mut [Bytes], rules: Option<Bytes>) {
    args[RULES_AT] = rules.unwrap_or_default();
}

/// The command table as a script sees it.
struct Commands<'e, 't, 'r> {
    exec: &'e mut Exec<'t, 'r>,
    rules: Option<&'e Rules>,
    /// The only slot whose keys the script may use, or `None` for no slot, if keys have slots.
    slot: Option<Option<Slot>>,
    is_readonly: bool,
    seed: u64,
    calls: u64,
    /// The bytes of the script's publications.
    published: usize,
    ended: Option<CommandError>,
}

fn refused(text: &str) -> Called {
    Called::Refused(text.to_owned())
}

fn corrupt() -> CommandError {
    StorageError::Corrupt("a script in a log entry cannot be read".into()).into()
}

impl Commands<'_, '_, '_> {
    fn resolve(&self, args: &[Bytes]) -> Result<&'static CommandSpec, Called> {
        let unknown = || refused("Unknown Redis command called from script");
        let spec = lookup(&args[0]).ok_or_else(unknown)?;
        let leaf = leaf(spec, args);
        if check_arity(spec, args).is_err() {
            let names_none = !spec.subcommands.is_empty() && args.len() > 1 && std::ptr::eq(leaf, spec);
            return Err(match names_none {
                true => unknown(),
                false => refused("Wrong number of args calling Redis command from script"),
            });
        }
        Ok(leaf)
    }

    /// Returns the reason why a command may not be called, if there is one.
    fn refusal(&self, spec: &'static CommandSpec, args: &[Bytes]) -> Option<Called> {
        if spec.has(flags::NOSCRIPT) {
            return Some(refused("This Redis command is not allowed from script"));
        }
        if let Some(text) = self.rules.and_then(|rules| rules.denial(spec, args)) {
            return Some(refused(text));
        }
        if self.is_readonly && (spec.is_write() || spec.counts_as_write) {
            return Some(refused("Write commands are not allowed from read-only scripts."));
        }
        let slot = self.slot?;
        let is_foreign = |key: &Bytes| slot != Some(slot_of_key(key));
        // Redis finds no keys in a command with a wrong number of keys. Its own error follows.
        if !states_wrong_number(spec, args) && keys_of(spec, args).any(|(key, _)| is_foreign(key)) {
            return Some(refused("Script attempted to access a non local key in a cluster node"));
        }
        if let Some(text) = cluster_mode::denial(spec.name, args) {
            return Some(Called::Reply(Reply::error(text)));
        }
        match spec.handler {
            Handler::Spanning(..) => Some(Called::Reply(Reply::error(format!(
                "ERR '{}' is about all slots, and a script in cluster mode has one",
                spec.name
            )))),
            _ => None,
        }
    }

    fn execute(&mut self, spec: &'static CommandSpec, args: &[Bytes], resp3: bool) -> CommandResult {
        if matches!(spec.name, "xread" | "xreadgroup") && has_block(args) {
            return fail(error_messages::shown(format!(
                "ERR {} command is not allowed with BLOCK option from scripts",
                error_messages::c_text(&args[0])
            )));
        }
        self.calls += 1;
        self.exec.seed = mix(self.seed.wrapping_add(self.calls));
        self.exec.resp3 = resp3;
        match spec.handler {
            Handler::Keyspace(handler) | Handler::Spanning(_, handler) => {
                call((spec, handler), args, self.exec)
            }
            Handler::Table(reply) => Ok(reply(args)),
            Handler::Server(ServerCommand::Select) => {
                let databases = self.exec.limits.databases;
                self.exec.db = match database_index_in(&args[1], databases, self.slot.is_some()) {
                    Ok(db) => db,
                    Err(error) => return Ok(Reply::error(error)),
                };
                Ok(Reply::OK)
            }
            Handler::Server(ServerCommand::Ping) => match args {
                [_] => Ok(Reply::Simple("PONG".into())),
                [_, text] => Ok(Reply::Bulk(text.clone())),
                _ => Ok(error_messages::wrong_arity(spec.name)),
            },
            Handler::Server(ServerCommand::Echo) => Ok(Reply::Bulk(args[1].clone())),
            Handler::Server(ServerCommand::Time) => {
                let now_ms = self.exec.now_ms;
                let text = |number: u64| Reply::bulk(number.to_string());
                Ok(Reply::Array(vec![text(now_ms / 1000), text(now_ms % 1000 * 1000)]))
            }
            Handler::Server(ServerCommand::Publish(kind)) => Ok(self.publish(kind, args)),
            Handler::Server(_) | Handler::Session(_) | Handler::Container => {
                Ok(Reply::error("ERR This Redis command is not allowed from script"))
            }
        }
    }
}

impl Commands<'_, '_, '_> {
    /// Publishes when the script's entry is executed. The reply does not count receivers, because
    /// replicas would count different ones.
    fn publish(&mut self, kind: ChannelKind, args: &[Bytes]) -> Reply {
        self.published += args[1].len() + args[2].len() + PUBLICATION_BYTES;
        if self.published > PUBLISHED_BYTES_MAX {
            return Reply::error(format!("ERR a script publishes at most {PUBLISHED_BYTES_MAX} bytes"));
        }
        let is_shard = kind == ChannelKind::Shard;
        self.exec.txn.publish(Publication { is_shard, channel: args[1].clone(), payload: args[2].clone() });
        Reply::Int(0)
    }
}

impl Host for Commands<'_, '_, '_> {
    fn call(&mut self, args: Vec<Bytes>, resp3: bool) -> Called {
        if self.ended.is_some() {
            return Called::Ended;
        }
        let spec = match self.resolve(&args) {
            Ok(spec) => spec,
            Err(refused) => return refused,
        };
        if let Some(refused) = self.refusal(spec, &args) {
            return refused;
        }
        match self.execute(spec, &args, resp3) {
            Ok(reply) => Called::Reply(reply),
            Err(CommandError::Error(text)) => Called::Reply(Reply::Error(text)),
            Err(ended) => {
                self.ended = Some(ended);
                Called::Ended
            }
        }
    }

    fn may_call(&mut self, args: &[Bytes]) -> Option<bool> {
        let whole = lookup(&args[0])?;
        let spec = leaf(whole, args);
        // A container may be asked for alone, and the number of arguments does not matter.
        if args.len() > 1 && !whole.subcommands.is_empty() && std::ptr::eq(spec, whole) {
            return None;
        }
        Some(self.rules.is_none_or(|rules| rules.denial(spec, args).is_none()))
    }
}

/// Executes a script.
fn eval(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let head = head_of(args).ok_or_else(corrupt)?;
    if head & IS_REFUSED != 0 {
        return Ok(Reply::error(String::from_utf8_lossy(&args[SCRIPT_AT]).into_owned()));
    }
    let count = std::str::from_utf8(&args[NUMBER_AT]).ok().and_then(|text| text.parse::<usize>().ok());
    let (keys, rest) = count.and_then(|count| args[KEYS_AT..].split_at_checked(count)).ok_or_else(corrupt)?;
    let rules = match args[RULES_AT].is_empty() {
        true => None,
        false => Some(Rules::decode(&args[RULES_AT]).ok_or_else(corrupt)?),
    };
    let function = match head & IS_FUNCTION != 0 {
        true => Some(std::str::from_utf8(&args[1][1..]).map_err(|_| corrupt())?),
        false => None,
    };
    let script = Script { body: &args[SCRIPT_AT], function, keys, args: rest, seed: exec.seed };
    let slot = (head & HAS_SLOTS != 0).then(|| keys.first().map(|key| slot_of_key(key)));
    let is_readonly = head & NO_WRITES != 0 || exec.mode == Mode::Read;
    let (db, seed, resp3) = (exec.db, exec.seed, exec.resp3);
    let writes = exec.mode == Mode::Apply;
    let attempt = |exec: &mut Exec<'_, '_>, is_exact: bool| {
        if writes {
            exec.txn.begin_undo();
        }
        let mut commands = Commands {
            exec,
            rules: rules.as_ref(),
            slot,
            is_readonly,
            seed,
            calls: 0,
            published: 0,
            ended: None,
        };
        let outcome = match is_exact {
            true => script::run_exactly(&script, &mut commands),
            false => script::run(&script, &mut commands),
        };
        let ended = commands.ended.take();
        (exec.db, exec.seed, exec.resp3) = (db, seed, resp3);
        if writes {
            let is_undone = matches!(outcome, Outcome::Again | Outcome::OutOfSteps | Outcome::OutOfMemory);
            exec.txn.end_undo(is_undone);
        }
        match ended {
            Some(ended) => Err(ended),
            None => Ok(outcome),
        }
    };
    let mut outcome = attempt(exec, false)?;
    if outcome == Outcome::Again {
        if exec.txn.is_hasty() {
            // A thread that may take its time executes the script again.
            return Err(StorageError::NotInRam.into());
        }
        outcome = attempt(exec, true)?;
    }
    Ok(match outcome {
        Outcome::Reply(reply) => reply,
        Outcome::OutOfSteps | Outcome::Again => Reply::error(format!(
            "ERR the script takes more than {} steps and has had no effect",
            script::STEPS_MAX
        )),
        Outcome::OutOfMemory => Reply::error(format!(
            "ERR the script takes more than {} bytes of memory and has had no effect",
            script::MEMORY_BYTES_MAX
        )),
        Outcome::Ended => return Err(corrupt()),
    })
}

/// The error for a digest that names no script.
pub const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// The error for a name of no function.
pub const NO_FUNCTION: &str = "ERR Function not found";
const BAD_NUMBER_OF_KEYS: &str = "ERR Bad number of keys provided";

#[cfg(test)]
mod tests;
