//! The facts of a command. All code that needs information about a command reads it here.

use std::ops::Range;

use bytes::Bytes;
use resp::Reply;
use types::{Version, OLDEST_VERSION};

use crate::exec::{CommandResult, Exec};
use crate::ranked::is_short_range;
use crate::server_command::{ChannelKind, ServerCommand, SessionCommand};

/// Maximum number of random picks of a command that is little work. Each pick reads about 14 rows
/// of a large collection, in two places, and up to 128 of a small one.
const FEW_PICKS: u64 = 2;

/// Redis's command flags.
pub mod flags {
    pub const NONE: u32 = 0;
    pub const WRITE: u32 = 1 << 0;
    pub const READONLY: u32 = 1 << 1;
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const NOSCRIPT: u32 = 1 << 4;
    pub const LOADING: u32 = 1 << 5;
    pub const STALE: u32 = 1 << 6;
    pub const FAST: u32 = 1 << 7;
    pub const NO_AUTH: u32 = 1 << 8;
    pub const NO_MULTI: u32 = 1 << 9;
    pub const ALLOW_BUSY: u32 = 1 << 10;
    pub const MOVABLEKEYS: u32 = 1 << 11;
    pub const SKIP_SLOWLOG: u32 = 1 << 12;
    pub const BLOCKING: u32 = 1 << 13;
    pub const SKIP_MONITOR: u32 = 1 << 14;
    pub const NO_MANDATORY_KEYS: u32 = 1 << 15;
    pub const PUBSUB: u32 = 1 << 16;
    pub const NO_ASYNC_LOADING: u32 = 1 << 17;
    /// Redis also permits the command while it loads its data and while it has no master.
    pub const ANYTIME: u32 = LOADING | STALE;

    pub(crate) const NAMES: [(u32, &str); 18] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NOSCRIPT, "noscript"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (BLOCKING, "blocking"),
        (NO_MULTI, "no_multi"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (ALLOW_BUSY, "allow_busy"),
        (MOVABLEKEYS, "movablekeys"),
    ];
}

/// The positions of keys among the arguments (the command's name is argument 0), and the access to
/// them.
#[derive(Debug)]
pub struct KeySpec {
    pub first: usize,
    /// Relative to `first` if at least 0. Counted from the end if negative: -1 is the last
    /// argument. [`KeySpec::COUNTED`] if the argument before `first` is the number of keys, and
    /// [`KeySpec::COUNTED_OR_NONE`] if that number may be 0. [`KeySpec::BEHIND_STORE`] and
    /// [`KeySpec::BEHIND_STOREDIST`] if a word at or behind `first` precedes the key,
    /// [`KeySpec::STORE_OF_SORT`] and [`KeySpec::UNKNOWN`] for `SORT`. [`KeySpec::STREAMS`] if the
    /// keys are the first half of the arguments behind the option `STREAMS`.
    pub last: isize,
    pub step: usize,
    /// Redis's key flags: `RO RW OW RM`, `access update insert delete`.
    pub flags: &'static [&'static str],
}

impl KeySpec {
    pub const COUNTED: isize = isize::MIN;
    pub const COUNTED_OR_NONE: isize = isize::MIN + 1;

    pub const BEHIND_STORE: isize = isize::MIN + 2;
    pub const BEHIND_STOREDIST: isize = isize::MIN + 3;
    /// The destination of `SORT`, whose position only its own syntax tells.
    pub const STORE_OF_SORT: isize = isize::MIN + 4;
    pub const STREAMS: isize = isize::MIN + 5;
    /// Keys that depend on the data.
    pub const UNKNOWN: isize = isize::MIN + 6;

    /// Returns false if the arguments are only routed like keys, as shard channels are.
    pub fn names_keys(&self) -> bool {
        !self.flags.contains(&"not_key")
    }

    /// Returns true if the positions do not depend on the contents of the arguments.
    fn is_fixed(&self) -> bool {
        self.last > KeySpec::UNKNOWN
    }
}

/// The positions of a hash's fields or the members of a set or sorted set among the arguments of a
/// command that names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    pub first: usize,
    /// Maximum number of fields or members.
    pub count: usize,
    pub step: usize,
}

impl FieldSpec {
    pub(crate) const ONE: FieldSpec = FieldSpec { first: 2, count: 1, step: 1 };
    pub(crate) const ALL: FieldSpec = FieldSpec { first: 2, count: usize::MAX, step: 1 };
    /// The member that `SMOVE` looks up in both of its keys, or `ZINCRBY` in its key.
    pub(crate) const MOVED: FieldSpec = FieldSpec { first: 3, count: 1, step: 1 };
    /// The members of `ZADD` behind their scores, if there are no options or two.
    pub(crate) const SCORED: FieldSpec = FieldSpec { first: 3, count: usize::MAX, step: 2 };
    /// Fields that alternate with their values.
    pub(crate) const PAIRS: FieldSpec = FieldSpec { first: 2, count: usize::MAX, step: 2 };
}

pub type KeyspaceFn = fn(&[Bytes], &mut Exec<'_, '_>) -> CommandResult;
pub type TableFn = fn(&[Bytes]) -> Reply;

/// The executor of a command. Arguments have passed the check of arity.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Executed by this crate, against the rows of its keys' region.
    Keyspace(KeyspaceFn),
    /// Executed by this crate, against the rows of one region or of several. The command has no
    /// keys.
    Spanning(Spanning, KeyspaceFn),
    /// Answered by this crate from the command table.
    Table(TableFn),
    /// Executed by the server: connections, configuration, the cluster.
    Server(ServerCommand),
    /// Executed by the client's session.
    Session(SessionCommand),
    /// Requires a subcommand, as its arity states.
    Container,
}

/// The execution of a command about the whole keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spanning {
    /// Every region executes it. The sum of their integer replies is returned.
    Sum,
    /// Every region executes it. Their array replies are concatenated.
    Concatenate,
    /// Every region executes it. The reply is OK if no region replies an error.
    AllOk,
    /// The regions execute it one after the other, until one replies with something other than nil.
    FirstFound,
    /// The region of the slot in the cursor, which is argument 1, executes it.
    Cursor,
}

pub struct CommandSpec {
    /// The name in lower case. A subcommand's name is `container|subcommand`.
    pub name: &'static str,
    /// The number of arguments, including the name, as in Redis. If negative, the minimum number.
    pub arity: i32,
    pub flags: u32,
    pub handler: Handler,
    pub subcommands: &'static [CommandSpec],
    pub keys: &'static [KeySpec],
    /// The fields or members that the command looks up in each of its keys.
    pub fields: Option<FieldSpec>,
    /// The version of the cluster since which the command exists. An earlier program would not know
    /// it in a log entry, or could not read the rows that it writes.
    pub cluster_version: Version,
    /// True if the command reads the root of a tree, if a key holds one, or the last node of a
    /// stream.
    pub walks_tree: bool,
    /// True if each argument makes the command read at most a few rows, however large its data is.
    pub reads_few_rows: bool,
    /// True if the second and third argument are ranks, and the command reads the elements between
    /// them.
    pub reads_ranks: bool,
    /// True for a transaction in the log, whose arguments are commands.
    pub holds_commands: bool,
    /// True for a command that changes keys and creates none.
    changes_only: bool,
    /// True for a command that Redis counts as a write in scripts although it is none here.
    pub(crate) counts_as_write: bool,
    /// True for a command that may be executed in parts, see `copying`.
    pub may_be_in_parts: bool,
    /// The ACL categories that do not follow from the flags.
    categories: &'static [&'static str],
    pub tips: &'static [&'static str],
    pub group: &'static str,
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    /// The arguments in the usual notation: `key value [NX | XX]`.
    pub syntax: &'static str,
}

impl CommandSpec {
    pub(crate) const fn new(name: &'static str, arity: i32, flags: u32, handler: Handler) -> CommandSpec {
        CommandSpec {
            name,
            arity,
            flags,
            handler,
            subcommands: &[],
            keys: &[],
            fields: None,
            cluster_version: OLDEST_VERSION,
            walks_tree: false,
            reads_few_rows: false,
            reads_ranks: false,
            holds_commands: false,
            changes_only: false,
            counts_as_write: false,
            may_be_in_parts: false,
            categories: &[],
            tips: &[],
            group: "",
            since: "",
            complexity: "",
            summary: "",
            syntax: "",
        }
    }

    /// Returns true if the command with these arguments reads a few rows for each argument, however
    /// large its data is.
    pub fn is_bounded(&self, args: &[Bytes]) -> bool {
        self.reads_few_rows || self.reads_ranks && is_short_range(args)
    }

    /// Returns true if the command with these arguments reads collections and nothing else, and the
    /// bytes of them that it looks at, each time counted, bound its work. It is little if they are
    /// few and [packed](storage::packed), or known in RAM.
    pub fn is_bounded_by_collections(&self, args: &[Bytes]) -> bool {
        let is_few =
            |count: &Bytes| resp::parse_integer(count).is_some_and(|count| count.unsigned_abs() <= FEW_PICKS);
        let is_random = self.tips.contains(&"nondeterministic_output");
        // The third word of HSCAN, SSCAN and ZSCAN is a cursor.
        let takes_count = self.arity == -2;
        let repeats_elements = is_random && args.get(2).is_some_and(|count| !(takes_count && is_few(count)));
        self.is_readonly()
            && matches!(self.group, "hash" | "set" | "sorted-set" | "list" | "geo")
            && !repeats_elements
    }

    pub(crate) const fn subcommands(mut self, subcommands: &'static [CommandSpec]) -> CommandSpec {
        self.subcommands = subcommands;
        self
    }

    pub(crate) const fn keys(mut self, keys: &'static [KeySpec]) -> CommandSpec {
        self.keys = keys;
        self
    }

    pub(crate) const fn fields(mut self, fields: FieldSpec) -> CommandSpec {
        self.fields = Some(fields);
        self
    }

    pub(crate) const fn since_version(mut self, version: Version) -> CommandSpec {
        self.cluster_version = version;
        self
    }

    pub(crate) const fn walks_tree(mut self) -> CommandSpec {
        self.walks_tree = true;
        self
    }

    pub(crate) const fn reads_few_rows(mut self) -> CommandSpec {
        self.reads_few_rows = true;
        self
    }

    pub(crate) const fn reads_ranks(mut self) -> CommandSpec {
        self.reads_ranks = true;
        self
    }

    pub(crate) const fn holds_commands(mut self) -> CommandSpec {
        self.holds_commands = true;
        self
    }

    pub(crate) const fn changes_only(mut self) -> CommandSpec {
        self.changes_only = true;
        self
    }

    pub(crate) const fn counts_as_write(mut self) -> CommandSpec {
        self.counts_as_write = true;
        self
    }

    pub(crate) const fn may_be_in_parts(mut self) -> CommandSpec {
        self.may_be_in_parts = true;
        self
    }

    pub(crate) const fn categories(mut self, categories: &'static [&'static str]) -> CommandSpec {
        self.categories = categories;
        self
    }

    pub(crate) const fn group(mut self, group: &'static str) -> CommandSpec {
        self.group = group;
        self
    }

    pub(crate) const fn tips(mut self, tips: &'static [&'static str]) -> CommandSpec {
        self.tips = tips;
        self
    }

    pub(crate) const fn about(
        mut self,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
        syntax: &'static str,
    ) -> CommandSpec {
        self.group = group;
        self.since = since;
        self.complexity = complexity;
        self.summary = summary;
        self.syntax = syntax;
        self
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if the command goes through the log.
    pub fn is_write(&self) -> bool {
        self.has(flags::WRITE)
    }

    pub fn is_readonly(&self) -> bool {
        self.has(flags::READONLY)
    }

    /// Returns true if the command changes nothing while the keys of its first specification do not
    /// exist. Such a command removes something from these keys, or changes them without creating
    /// any. Its other keys make no difference.
    pub fn needs_its_keys(&self) -> bool {
        let removes = self.keys.first().is_some_and(|keys| keys.flags.contains(&"delete"));
        self.is_write() && matches!(self.handler, Handler::Keyspace(_)) && (removes || self.changes_only)
    }

    /// Returns true if the command may change data, or tell other clients of something.
    pub fn may_write(&self) -> bool {
        // A count that is not known is stored.
        const STORES_COUNT: &str = "pfcount";
        match self.handler {
            Handler::Server(ServerCommand::Publish(_)) => true,
            Handler::Session(SessionCommand::Script(call)) => !call.is_readonly,
            _ => self.is_write() || self.name == STORES_COUNT,
        }
    }

    /// Returns true if the command may wait for elements.
    pub fn blocks(&self) -> bool {
        self.has(flags::BLOCKING)
    }

    /// Returns true if the command may make the data grow. Such a command is refused when there is
    /// no room.
    pub fn denies_oom(&self) -> bool {
        self.has(flags::DENYOOM)
    }

    /// Returns the channels among the arguments for which a user needs permission. The flag is true
    /// if they are patterns of channels.
    pub fn channels(&self, arguments: usize) -> Option<(Range<usize>, bool)> {
        match self.handler {
            Handler::Server(ServerCommand::Subscribe(kind)) => {
                Some((1..arguments, kind == ChannelKind::Pattern))
            }
            Handler::Server(ServerCommand::Publish(_)) => Some((1..2, false)),
            _ => None,
        }
    }

    /// Returns how a command about the whole keyspace is executed, and `None` for other commands.
    pub fn spanning(&self) -> Option<Spanning> {
        match self.handler {
            Handler::Spanning(spanning, _) => Some(spanning),
            Handler::Keyspace(_)
            | Handler::Table(_)
            | Handler::Server(_)
            | Handler::Session(_)
            | Handler::Container => None,
        }
    }

    /// Returns true if the arity permits this number of arguments, including the name.
    pub fn accepts(&self, arguments: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => arguments == exactly,
            Err(_) => arguments >= self.arity.unsigned_abs() as usize,
        }
    }

    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        flags::NAMES.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }

    /// Returns true if the command may read keys that are not among its arguments: a script, or
    /// `SORT` with patterns.
    pub fn reads_unnamed_keys(&self) -> bool {
        // The keys of a script may be none, and it may read others.
        let is_open = |keys: &KeySpec| matches!(keys.last, KeySpec::UNKNOWN | KeySpec::COUNTED_OR_NONE);
        self.is_about_scripts() || self.keys.iter().any(is_open)
    }

    /// Returns true for the commands on scripts, which Redis does not count as reads.
    fn is_about_scripts(&self) -> bool {
        self.categories.contains(&"@scripting")
    }

    /// Returns the ACL categories with their `@`.
    pub fn acl_categories(&self) -> Vec<&'static str> {
        let implied = [
            (flags::WRITE, "@write"),
            (if self.is_about_scripts() { flags::NONE } else { flags::READONLY }, "@read"),
            (flags::ADMIN, "@admin"),
            (flags::ADMIN, "@dangerous"),
            (flags::BLOCKING, "@blocking"),
            (flags::PUBSUB, "@pubsub"),
        ];
        let mut categories: Vec<_> =
            implied.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name).collect();
        categories.push(if self.has(flags::FAST) { "@fast" } else { "@slow" });
        categories.extend(self.categories);
        categories
    }

    /// Returns first key, last key and step, as in the fields of `COMMAND INFO` that predate key
    /// specifications.
    pub fn key_positions(&self) -> (usize, isize, usize) {
        let ranges = || self.keys.iter().filter(|spec| spec.is_fixed());
        let Some(first) = ranges().map(|spec| spec.first).min() else { return (0, 0, 0) };
        let absolute = |spec: &KeySpec| match spec.last {
            last if last < 0 => last,
            last => spec.first as isize + last,
        };
        let last = ranges().map(absolute).fold(0, |a, b| if a < 0 || b < 0 { a.min(b) } else { a.max(b) });
        (first, last, self.keys[0].step)
    }
}

impl std::fmt::Debug for CommandSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandSpec").field("name", &self.name).finish_non_exhaustive()
    }
}
