//! Table entries of the commands on keys of every type, and on the whole keyspace.

use types::THIRD_VERSION;

use crate::dump;
use crate::introspect;
use crate::keys::{self, expiry, object, rename, scan};
use crate::server_command::{MemoryCommand, ServerCommand};
use crate::sort;
use crate::spec::{flags, CommandSpec, Handler, KeySpec, Spanning};

pub(super) static COMMANDS: [CommandSpec; 30] = [
    CommandSpec::new("del", -2, flags::WRITE, Handler::Keyspace(keys::del))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RM", "delete"] }])
        .categories(&["@keyspace"])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(
            "generic",
            "1.0.0",
            "O(N) where N is the number of keys that will be removed",
            "Deletes keys.",
            "key [key ...]",
        ),
    CommandSpec::new("unlink", -2, flags::WRITE | flags::FAST, Handler::Keyspace(keys::del))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RM", "delete"] }])
        .categories(&["@keyspace"])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(
            "generic",
            "4.0.0",
            "O(1) for each key removed regardless of its size",
            "Deletes keys. Large ones are swept later.",
            "key [key ...]",
        ),
    CommandSpec::new("exists", -2, flags::READONLY | flags::FAST, Handler::Keyspace(keys::exists))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(
            "generic",
            "1.0.0",
            "O(N) where N is the number of keys to check",
            "Counts how many of the keys exist.",
            "key [key ...]",
        ),
    CommandSpec::new("touch", -2, flags::READONLY | flags::FAST, Handler::Keyspace(keys::touch))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .about(
            "generic",
            "3.2.1",
            "O(N) where N is the number of keys that will be touched",
            "Counts how many of the keys exist.",
            "key [key ...]",
        ),
    CommandSpec::new("type", 2, flags::READONLY | flags::FAST, Handler::Keyspace(keys::type_of))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .about("generic", "1.0.0", "O(1)", "Returns the type of a key.", "key"),
    CommandSpec::new("expire", -3, flags::WRITE | flags::FAST, Handler::Keyspace(expiry::expire))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .changes_only()
        .categories(&["@keyspace"])
        .about(
            "generic",
            "1.0.0",
            "O(1)",
            "Sets the time to live of a key in seconds.",
            "key seconds [NX | XX | GT | LT]",
        ),
    CommandSpec::new("pexpire", -3, flags::WRITE | flags::FAST, Handler::Keyspace(expiry::pexpire))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .changes_only()
        .categories(&["@keyspace"])
        .about(
            "generic",
            "2.6.0",
            "O(1)",
            "Sets the time to live of a key in milliseconds.",
            "key milliseconds [NX | XX | GT | LT]",
        ),
    CommandSpec::new("expireat", -3, flags::WRITE | flags::FAST, Handler::Keyspace(expiry::expireat))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .changes_only()
        .categories(&["@keyspace"])
        .about(
            "generic",
            "1.2.0",
            "O(1)",
            "Sets the expiry time of a key as a Unix time in seconds.",
            "key unix-time-seconds [NX | XX | GT | LT]",
        ),
    CommandSpec::new("pexpireat", -3, flags::WRITE | flags::FAST, Handler::Keyspace(expiry::pexpireat))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .changes_only()
        .categories(&["@keyspace"])
        .about(
            "generic",
            "2.6.0",
            "O(1)",
            "Sets the expiry time of a key as a Unix time in milliseconds.",
            "key unix-time-milliseconds [NX | XX | GT | LT]",
        ),
    CommandSpec::new("ttl", 2, flags::READONLY | flags::FAST, Handler::Keyspace(expiry::ttl))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output"])
        .about("generic", "1.0.0", "O(1)", "Returns the time to live of a key in seconds.", "key"),
    CommandSpec::new("pttl", 2, flags::READONLY | flags::FAST, Handler::Keyspace(expiry::pttl))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output"])
        .about("generic", "2.6.0", "O(1)", "Returns the time to live of a key in milliseconds.", "key"),
    CommandSpec::new("expiretime", 2, flags::READONLY | flags::FAST, Handler::Keyspace(expiry::expiretime))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .about(
            "generic",
            "7.0.0",
            "O(1)",
            "Returns the expiry time of a key as a Unix time in seconds.",
            "key",
        ),
    CommandSpec::new("pexpiretime", 2, flags::READONLY | flags::FAST, Handler::Keyspace(expiry::pexpiretime))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .about(
            "generic",
            "7.0.0",
            "O(1)",
            "Returns the expiry time of a key as a Unix time in milliseconds.",
            "key",
        ),
    CommandSpec::new("persist", 2, flags::WRITE | flags::FAST, Handler::Keyspace(expiry::persist))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .changes_only()
        .categories(&["@keyspace"])
        .about("generic", "2.2.0", "O(1)", "Removes the expiry time of a key.", "key"),
    CommandSpec::new("keys", 2, flags::READONLY, Handler::Spanning(Spanning::Concatenate, scan::keys))
        .categories(&["@dangerous", "@keyspace"])
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .about(
            "generic",
            "1.0.0",
            "O(N) with N being the number of keys in the database",
            "Lists the keys that match a pattern.",
            "pattern",
        ),
    CommandSpec::new("scan", -2, flags::READONLY, Handler::Spanning(Spanning::Cursor, scan::scan))
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output", "request_policy:special"])
        .about(
            "generic",
            "2.8.0",
            "O(1) for every call",
            "Iterates over the keys, a few per call.",
            "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        ),
    CommandSpec::new(
        "randomkey",
        1,
        flags::READONLY,
        Handler::Spanning(Spanning::FirstFound, scan::randomkey),
    )
    .categories(&["@keyspace"])
    .tips(&["request_policy:all_shards", "nondeterministic_output"])
    .about("generic", "1.0.0", "O(1)", "Picks a random key.", ""),
    CommandSpec::new("rename", 3, flags::WRITE, Handler::Keyspace(rename::rename))
        .may_be_in_parts()
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] },
            KeySpec { first: 2, last: 0, step: 1, flags: &["OW", "update"] },
        ])
        .categories(&["@keyspace"])
        .about(
            "generic",
            "1.0.0",
            "O(1)",
            "Renames a key, replacing any key with the new name.",
            "key newkey",
        ),
    CommandSpec::new("renamenx", 3, flags::WRITE | flags::FAST, Handler::Keyspace(rename::renamenx))
        .may_be_in_parts()
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] },
            KeySpec { first: 2, last: 0, step: 1, flags: &["OW", "insert"] },
        ])
        .categories(&["@keyspace"])
        .about("generic", "1.0.0", "O(1)", "Renames a key unless the new name is taken.", "key newkey"),
    CommandSpec::new("copy", -3, flags::WRITE | flags::DENYOOM, Handler::Keyspace(rename::copy))
        .may_be_in_parts()
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] },
            KeySpec { first: 2, last: 0, step: 1, flags: &["OW", "update"] },
        ])
        .categories(&["@keyspace"])
        .about(
            "generic",
            "6.2.0",
            "O(N) worst case for collections, where N is the number of \
nested items",
            "Copies a key.",
            "source destination [DB destination-db] [REPLACE]",
        ),
    CommandSpec::new("move", 3, flags::WRITE | flags::FAST, Handler::Keyspace(rename::move_key))
        .may_be_in_parts()
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
        .categories(&["@keyspace"])
        .about("generic", "1.0.0", "O(1)", "Moves a key to another database.", "key db"),
    CommandSpec::new("dump", 2, flags::READONLY, Handler::Keyspace(dump::dump))
        .since_version(THIRD_VERSION)
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output"])
        .about(
            "generic",
            "2.6.0",
            "O(N) where N is the number of elements",
            "Returns the value of a key as Redis serialises it.",
            "key",
        ),
    CommandSpec::new("restore", -4, flags::WRITE | flags::DENYOOM, Handler::Keyspace(dump::restore))
        .since_version(THIRD_VERSION)
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] }])
        .categories(&["@dangerous", "@keyspace"])
        .about(
            "generic",
            "2.6.0",
            "O(N) where N is the number of elements, or O(N log N) for a sorted set",
            "Creates a key from a value that DUMP has returned.",
            "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
        ),
    CommandSpec::new(
        "sort",
        -2,
        flags::WRITE | flags::DENYOOM | flags::MOVABLEKEYS,
        Handler::Keyspace(sort::sort),
    )
    .since_version(THIRD_VERSION)
    .keys(&[
        KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] },
        KeySpec { first: 1, last: KeySpec::UNKNOWN, step: 1, flags: &["RO", "access"] },
        KeySpec { first: 1, last: KeySpec::STORE_OF_SORT, step: 1, flags: &["OW", "update"] },
    ])
    .categories(&["@set", "@sortedset", "@list", "@dangerous"])
    .about(
        "generic",
        "1.0.0",
        "O(N+M*log(M)) where N is the number of elements and M that of returned elements",
        "Sorts the elements of a list, set or sorted set, and may store the result.",
        "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] \
         [STORE destination]",
    ),
    CommandSpec::new("sort_ro", -2, flags::READONLY | flags::MOVABLEKEYS, Handler::Keyspace(sort::sort_ro))
        .since_version(THIRD_VERSION)
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] },
            KeySpec { first: 1, last: KeySpec::UNKNOWN, step: 1, flags: &["RO", "access"] },
        ])
        .categories(&["@set", "@sortedset", "@list", "@dangerous"])
        .about(
            "generic",
            "7.0.0",
            "O(N+M*log(M)) where N is the number of elements and M that of returned elements",
            "Sorts the elements of a list, set or sorted set.",
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
        ),
    CommandSpec::new(
        "dbsize",
        1,
        flags::READONLY | flags::FAST,
        Handler::Spanning(Spanning::Sum, scan::dbsize),
    )
    .categories(&["@keyspace"])
    .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
    .about("server", "1.0.0", "O(1)", "Counts the keys of the database.", ""),
    CommandSpec::new("flushall", -1, flags::WRITE, Handler::Spanning(Spanning::AllOk, scan::flushall))
        .categories(&["@dangerous", "@keyspace"])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about(
            "server",
            "1.0.0",
            "O(N) where N is the total number of keys in all databases",
            "Deletes every key of every database.",
            "[ASYNC | SYNC]",
        ),
    CommandSpec::new("flushdb", -1, flags::WRITE, Handler::Spanning(Spanning::AllOk, scan::flushdb))
        .categories(&["@dangerous", "@keyspace"])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about(
            "server",
            "1.0.0",
            "O(N) where N is the number of keys in the selected database",
            "Deletes every key of the database.",
            "[ASYNC | SYNC]",
        ),
    CommandSpec::new("object", -2, flags::NONE, Handler::Container).subcommands(&OBJECT).about(
        "generic",
        "2.2.3",
        "Depends on subcommand",
        "Inspects the representation of values.",
        "",
    ),
    CommandSpec::new("memory", -2, flags::NONE, Handler::Container).subcommands(&MEMORY).about(
        "server",
        "4.0.0",
        "Depends on subcommand",
        "Inspects memory usage.",
        "",
    ),
];

static OBJECT: [CommandSpec; 5] = [
    CommandSpec::new("object|encoding", 3, flags::READONLY, Handler::Keyspace(object::encoding))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO"] }])
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output"])
        .about("generic", "2.2.3", "O(1)", "Returns the encoding that Redis would use for a value.", "key"),
    CommandSpec::new("object|freq", 3, flags::READONLY, Handler::Keyspace(object::freq))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output"])
        .about("generic", "4.0.0", "O(1)", "Refused: access frequency is not tracked.", "key"),
    CommandSpec::new("object|idletime", 3, flags::READONLY, Handler::Keyspace(object::idletime))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output"])
        .about(
            "generic",
            "2.2.3",
            "O(1)",
            "Returns the seconds since a key was last used on this store.",
            "key",
        ),
    CommandSpec::new("object|refcount", 3, flags::READONLY, Handler::Keyspace(object::refcount))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@keyspace"])
        .tips(&["nondeterministic_output"])
        .about("generic", "2.2.3", "O(1)", "Always 1 for a key that exists.", "key"),
    CommandSpec::new("object|help", 2, flags::ANYTIME, Handler::Table(introspect::help))
        .categories(&["@keyspace"])
        .about("generic", "6.2.0", "O(1)", "Lists the subcommands.", ""),
];

static MEMORY: [CommandSpec; 6] = [
    CommandSpec::new("memory|usage", -3, flags::READONLY, Handler::Keyspace(object::memory_usage))
        .keys(&[KeySpec { first: 2, last: 0, step: 1, flags: &["RO"] }])
        .about(
            "server",
            "4.0.0",
            "O(N) where N is the number of samples",
            "Estimates the bytes that a key and its value take.",
            "key [SAMPLES count]",
        ),
    CommandSpec::new("memory|help", 2, flags::ANYTIME, Handler::Table(introspect::help)).about(
        "server",
        "4.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
    CommandSpec::new(
        "memory|doctor",
        2,
        flags::NONE,
        Handler::Server(ServerCommand::Memory(MemoryCommand::Doctor)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .about("server", "4.0.0", "O(1)", "Returns a report on memory.", ""),
    CommandSpec::new(
        "memory|malloc-stats",
        2,
        flags::NONE,
        Handler::Server(ServerCommand::Memory(MemoryCommand::MallocStats)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .about(
        "server",
        "4.0.0",
        "Depends on how much memory is allocated, could be slow",
        "Returns the allocator's statistics.",
        "",
    ),
    CommandSpec::new(
        "memory|purge",
        2,
        flags::NONE,
        Handler::Server(ServerCommand::Memory(MemoryCommand::Purge)),
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
    .about(
        "server",
        "4.0.0",
        "Depends on how much memory is allocated, could be slow",
        "Returns free pages to the kernel.",
        "",
    ),
    CommandSpec::new(
        "memory|stats",
        2,
        flags::NONE,
        Handler::Server(ServerCommand::Memory(MemoryCommand::Stats)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .about("server", "4.0.0", "O(1)", "Returns numbers about memory.", ""),
];
