//! Table entries of the string commands.

use crate::spec::{flags, CommandSpec, Handler, KeySpec};
use crate::strings::{self, counter, lcs, set};

pub(super) static COMMANDS: [CommandSpec; 22] = [
    CommandSpec::new("set", -3, flags::WRITE | flags::DENYOOM, Handler::Keyspace(set::set))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update", "variable_flags"] }])
        .categories(&["@string"])
        .about(
            "string",
            "1.0.0",
            "O(1)",
            "Sets a key to a string.",
            "key value [NX | XX] [GET] [EX seconds | PX milliseconds | \
EXAT unix-time-seconds | PXAT unix-time-milliseconds | \
KEEPTTL]",
        ),
    CommandSpec::new("setnx", 3, flags::WRITE | flags::DENYOOM | flags::FAST, Handler::Keyspace(set::setnx))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "insert"] }])
        .categories(&["@string"])
        .about("string", "1.0.0", "O(1)", "Sets a key to a string unless the key exists.", "key value"),
    CommandSpec::new("setex", 4, flags::WRITE | flags::DENYOOM, Handler::Keyspace(set::setex))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] }])
        .categories(&["@string"])
        .about(
            "string",
            "2.0.0",
            "O(1)",
            "Sets a key to a string with an expiry time in seconds.",
            "key seconds value",
        ),
    CommandSpec::new("psetex", 4, flags::WRITE | flags::DENYOOM, Handler::Keyspace(set::psetex))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] }])
        .categories(&["@string"])
        .about(
            "string",
            "2.6.0",
            "O(1)",
            "Sets a key to a string with an expiry time in milliseconds.",
            "key milliseconds value",
        ),
    CommandSpec::new("get", 2, flags::READONLY | flags::FAST, Handler::Keyspace(strings::get))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@string"])
        .about("string", "1.0.0", "O(1)", "Reads a string.", "key"),
    CommandSpec::new(
        "getset",
        3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(set::getset),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .categories(&["@string"])
    .about("string", "1.0.0", "O(1)", "Sets a key to a string and returns the old value.", "key value"),
    CommandSpec::new("getdel", 2, flags::WRITE | flags::FAST, Handler::Keyspace(strings::getdel))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }])
        .categories(&["@string"])
        .about("string", "6.2.0", "O(1)", "Reads a string and deletes the key.", "key"),
    CommandSpec::new("getex", -2, flags::WRITE | flags::FAST, Handler::Keyspace(set::getex))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
        .changes_only()
        .categories(&["@string"])
        .about(
            "string",
            "6.2.0",
            "O(1)",
            "Reads a string and sets or removes its expiry time.",
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
PXAT unix-time-milliseconds | PERSIST]",
        ),
    CommandSpec::new("mget", -2, flags::READONLY | flags::FAST, Handler::Keyspace(strings::mget))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@string"])
        .tips(&["request_policy:multi_shard"])
        .about(
            "string",
            "1.0.0",
            "O(N) where N is the number of keys to retrieve",
            "Reads several strings.",
            "key [key ...]",
        ),
    CommandSpec::new("mset", -3, flags::WRITE | flags::DENYOOM, Handler::Keyspace(strings::mset))
        .keys(&[KeySpec { first: 1, last: -1, step: 2, flags: &["OW", "update"] }])
        .categories(&["@string"])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .about(
            "string",
            "1.0.1",
            "O(N) where N is the number of keys to set",
            "Sets several keys to strings.",
            "key value [key value ...]",
        ),
    CommandSpec::new("msetnx", -3, flags::WRITE | flags::DENYOOM, Handler::Keyspace(strings::msetnx))
        .keys(&[KeySpec { first: 1, last: -1, step: 2, flags: &["OW", "insert"] }])
        .categories(&["@string"])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .about(
            "string",
            "1.0.1",
            "O(N) where N is the number of keys to set",
            "Sets several keys to strings unless any of them exists.",
            "key value [key value ...]",
        ),
    CommandSpec::new(
        "append",
        3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(strings::append),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
    .categories(&["@string"])
    .about("string", "2.0.0", "O(1)", "Appends to a string.", "key value"),
    CommandSpec::new("strlen", 2, flags::READONLY | flags::FAST, Handler::Keyspace(strings::strlen))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@string"])
        .about("string", "2.2.0", "O(1)", "Returns the length of a string.", "key"),
    CommandSpec::new("getrange", 4, flags::READONLY, Handler::Keyspace(strings::getrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@string"])
        .about(
            "string",
            "2.4.0",
            "O(N) where N is the length of the returned string",
            "Reads a part of a string.",
            "key start end",
        ),
    CommandSpec::new("substr", 4, flags::READONLY, Handler::Keyspace(strings::getrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .categories(&["@string"])
        .about(
            "string",
            "1.0.0",
            "O(N) where N is the length of the returned string",
            "Reads a part of a string.",
            "key start end",
        ),
    CommandSpec::new("setrange", 4, flags::WRITE | flags::DENYOOM, Handler::Keyspace(strings::setrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .categories(&["@string"])
        .about(
            "string",
            "2.2.0",
            "O(1), not counting the time taken to copy the new string in place",
            "Overwrites a part of a string.",
            "key offset value",
        ),
    CommandSpec::new(
        "incr",
        2,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(counter::incr),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .categories(&["@string"])
    .about("string", "1.0.0", "O(1)", "Adds one to an integer.", "key"),
    CommandSpec::new(
        "decr",
        2,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(counter::decr),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .categories(&["@string"])
    .about("string", "1.0.0", "O(1)", "Subtracts one from an integer.", "key"),
    CommandSpec::new(
        "incrby",
        3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(counter::incrby),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .categories(&["@string"])
    .about("string", "1.0.0", "O(1)", "Adds to an integer.", "key increment"),
    CommandSpec::new(
        "decrby",
        3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(counter::decrby),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .categories(&["@string"])
    .about("string", "1.0.0", "O(1)", "Subtracts from an integer.", "key decrement"),
    CommandSpec::new(
        "incrbyfloat",
        3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(counter::incrbyfloat),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .categories(&["@string"])
    .about("string", "2.6.0", "O(1)", "Adds to a number.", "key increment"),
    CommandSpec::new("lcs", -3, flags::READONLY, Handler::Keyspace(lcs::lcs))
        .keys(&[KeySpec { first: 1, last: 1, step: 1, flags: &["RO", "access"] }])
        .categories(&["@string"])
        .about(
            "string",
            "7.0.0",
            "O(N*M) where N and M are the lengths of s1 and s2, respectively",
            "Finds the longest common subsequence of two strings.",
            "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        ),
];
