//! Table entries of the stream commands.

use types::THIRD_VERSION;

use crate::introspect;
use crate::spec::{flags, CommandSpec, Handler, KeySpec};
use crate::streams::{self, add, claim, delete, info, manage, pending, range, read, trim};

pub(super) static COMMANDS: [CommandSpec; 15] = [
    CommandSpec::new("xadd", -5, flags::WRITE | flags::DENYOOM | flags::FAST, Handler::Keyspace(add::xadd))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .tips(&["nondeterministic_output"])
        .about(
            "stream",
            "5.0.0",
            "O(1), and O(N) for N entries that are trimmed",
            "Appends an entry to a stream.",
            "key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value \
             [field value ...]",
        ),
    CommandSpec::new("xlen", 2, flags::READONLY | flags::FAST, Handler::Keyspace(streams::xlen))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about("stream", "5.0.0", "O(1)", "Returns the number of entries of a stream.", "key"),
    CommandSpec::new("xrange", -4, flags::READONLY, Handler::Keyspace(range::xrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(log N + M) where N is the length of the stream and M the number of entries returned",
            "Returns the entries in a range of IDs.",
            "key start end [COUNT count]",
        ),
    CommandSpec::new("xrevrange", -4, flags::READONLY, Handler::Keyspace(range::xrevrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(log N + M) where N is the length of the stream and M the number of entries returned",
            "Returns the entries in a range of IDs in reverse order.",
            "key end start [COUNT count]",
        ),
    CommandSpec::new("xdel", -3, flags::WRITE | flags::FAST, Handler::Keyspace(delete::xdel))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(log N) for each entry",
            "Removes entries of a stream.",
            "key id [id ...]",
        ),
    CommandSpec::new("xtrim", -4, flags::WRITE, Handler::Keyspace(trim::xtrim))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .tips(&["nondeterministic_output"])
        .about(
            "stream",
            "5.0.0",
            "O(N) where N is the number of entries removed",
            "Removes the oldest entries of a stream.",
            "key MAXLEN | MINID [= | ~] threshold [LIMIT count]",
        ),
    CommandSpec::new(
        "xread",
        -4,
        flags::READONLY | flags::BLOCKING | flags::MOVABLEKEYS,
        Handler::Keyspace(read::xread),
    )
    .keys(&[KeySpec { first: 1, last: KeySpec::STREAMS, step: 1, flags: &["RO", "access"] }])
    .walks_tree()
    .since_version(THIRD_VERSION)
    .categories(&["@stream"])
    .about(
        "stream",
        "5.0.0",
        "O(log N + M) for each stream, where N is its length and M the number of entries returned",
        "Returns the entries of streams behind an ID, or waits for some.",
        "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
    ),
    CommandSpec::new(
        "xreadgroup",
        -7,
        flags::WRITE | flags::BLOCKING | flags::MOVABLEKEYS,
        Handler::Keyspace(read::xreadgroup),
    )
    .keys(&[KeySpec { first: 4, last: KeySpec::STREAMS, step: 1, flags: &["RO", "access"] }])
    .since_version(THIRD_VERSION)
    .categories(&["@stream"])
    .about(
        "stream",
        "5.0.0",
        "O(log N + M) for each stream, where N is its length and M the number of entries returned",
        "Delivers entries of streams to a consumer of a group, or waits for some.",
        "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
    ),
    CommandSpec::new(
        "xsetid",
        -3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(add::xsetid),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
    .since_version(THIRD_VERSION)
    .categories(&["@stream"])
    .about(
        "stream",
        "5.0.0",
        "O(1)",
        "Sets the last ID of a stream.",
        "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
    ),
    CommandSpec::new("xgroup", -2, flags::NONE, Handler::Container).subcommands(&XGROUP).about(
        "stream",
        "5.0.0",
        "Depends on the subcommand.",
        "Manages the consumer groups of a stream.",
        "",
    ),
    CommandSpec::new("xack", -4, flags::WRITE | flags::FAST, Handler::Keyspace(pending::xack))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .changes_only()
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(1) for each entry",
            "Acknowledges pending entries of a group.",
            "key group id [id ...]",
        ),
    CommandSpec::new("xpending", -3, flags::READONLY, Handler::Keyspace(pending::xpending))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .tips(&["nondeterministic_output"])
        .about(
            "stream",
            "5.0.0",
            "O(N) where N is the number of pending entries looked at, or the number of consumers",
            "Returns the pending entries of a group.",
            "key group [[IDLE min-idle-time] start end count [consumer]]",
        ),
    CommandSpec::new("xclaim", -6, flags::WRITE | flags::FAST, Handler::Keyspace(claim::xclaim))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .tips(&["nondeterministic_output"])
        .about(
            "stream",
            "5.0.0",
            "O(log N) for each entry, where N is the length of the stream",
            "Gives pending entries to another consumer of the group.",
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] \
             [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
        ),
    CommandSpec::new("xautoclaim", -6, flags::WRITE | flags::FAST, Handler::Keyspace(claim::xautoclaim))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .tips(&["nondeterministic_output"])
        .about(
            "stream",
            "6.2.0",
            "O(N) where N is ten times the count",
            "Gives pending entries that are idle to another consumer of the group.",
            "key group consumer min-idle-time start [COUNT count] [JUSTID]",
        ),
    CommandSpec::new("xinfo", -2, flags::NONE, Handler::Container).subcommands(&XINFO).about(
        "stream",
        "5.0.0",
        "Depends on the subcommand.",
        "Describes streams, groups and consumers.",
        "",
    ),
];

static XGROUP: [CommandSpec; 6] = [
    CommandSpec::new(
        "xgroup|create",
        -5,
        flags::WRITE | flags::DENYOOM,
        Handler::Keyspace(manage::xgroup_create),
    )
    .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "insert"] }])
    .since_version(THIRD_VERSION)
    .categories(&["@stream"])
    .about(
        "stream",
        "5.0.0",
        "O(1)",
        "Creates a consumer group.",
        "key group id | $ [MKSTREAM] [ENTRIESREAD entries-read]",
    ),
    CommandSpec::new(
        "xgroup|createconsumer",
        5,
        flags::WRITE | flags::DENYOOM,
        Handler::Keyspace(manage::xgroup_createconsumer),
    )
    .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "insert"] }])
    .since_version(THIRD_VERSION)
    .categories(&["@stream"])
    .about("stream", "6.2.0", "O(1)", "Creates a consumer in a group.", "key group consumer"),
    CommandSpec::new("xgroup|delconsumer", 5, flags::WRITE, Handler::Keyspace(manage::xgroup_delconsumer))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "delete"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(N) where N is the number of the consumer's pending entries",
            "Deletes a consumer of a group, with its pending entries.",
            "key group consumer",
        ),
    CommandSpec::new("xgroup|destroy", 4, flags::WRITE, Handler::Keyspace(manage::xgroup_destroy))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "delete"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about("stream", "5.0.0", "O(1)", "Deletes a consumer group.", "key group"),
    CommandSpec::new("xgroup|setid", -5, flags::WRITE, Handler::Keyspace(manage::xgroup_setid))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "update"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(1)",
            "Sets the last delivered ID of a group.",
            "key group id | $ [ENTRIESREAD entries-read]",
        ),
    CommandSpec::new("xgroup|help", 2, flags::ANYTIME, Handler::Table(introspect::help))
        .categories(&["@stream"])
        .about("stream", "5.0.0", "O(1)", "Lists the subcommands.", ""),
];

static XINFO: [CommandSpec; 4] = [
    CommandSpec::new("xinfo|consumers", 4, flags::READONLY, Handler::Keyspace(info::xinfo_consumers))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .tips(&["nondeterministic_output"])
        .about(
            "stream",
            "5.0.0",
            "O(N) where N is the number of consumers",
            "Describes the consumers of a group.",
            "key group",
        ),
    CommandSpec::new("xinfo|groups", 3, flags::READONLY, Handler::Keyspace(info::xinfo_groups))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(N) where N is the number of groups",
            "Describes the groups of a stream.",
            "key",
        ),
    CommandSpec::new("xinfo|stream", -3, flags::READONLY, Handler::Keyspace(info::xinfo_stream))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@stream"])
        .about(
            "stream",
            "5.0.0",
            "O(1), or O(N) where N is the number of entries returned",
            "Describes a stream.",
            "key [FULL [COUNT count]]",
        ),
    CommandSpec::new("xinfo|help", 2, flags::ANYTIME, Handler::Table(introspect::help))
        .categories(&["@stream"])
        .about("stream", "5.0.0", "O(1)", "Lists the subcommands.", ""),
];
