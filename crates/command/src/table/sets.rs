//! Table entries of the set commands.

use types::THIRD_VERSION;

use crate::sets::{self, algebra, random as set_random};
use crate::spec::{flags, CommandSpec, FieldSpec, Handler, KeySpec};

pub(super) static COMMANDS: [CommandSpec; 17] = [
    CommandSpec::new("sadd", -3, flags::WRITE | flags::DENYOOM | flags::FAST, Handler::Keyspace(sets::sadd))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
        .fields(FieldSpec::ALL)
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .about(
            "set",
            "1.0.0",
            "O(1) for each element added",
            "Adds members to a set.",
            "key member [member ...]",
        ),
    CommandSpec::new("srem", -3, flags::WRITE | flags::FAST, Handler::Keyspace(sets::srem))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .fields(FieldSpec::ALL)
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .about(
            "set",
            "1.0.0",
            "O(N) where N is the number of members to be removed",
            "Removes members from a set.",
            "key member [member ...]",
        ),
    CommandSpec::new("scard", 2, flags::READONLY | flags::FAST, Handler::Keyspace(sets::scard))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .since_version(THIRD_VERSION)
        .reads_few_rows()
        .categories(&["@set"])
        .about("set", "1.0.0", "O(1)", "Counts the members of a set.", "key"),
    CommandSpec::new("sismember", 3, flags::READONLY | flags::FAST, Handler::Keyspace(sets::sismember))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .fields(FieldSpec::ONE)
        .since_version(THIRD_VERSION)
        .reads_few_rows()
        .categories(&["@set"])
        .about("set", "1.0.0", "O(1)", "Checks if a set has a member.", "key member"),
    CommandSpec::new("smismember", -3, flags::READONLY | flags::FAST, Handler::Keyspace(sets::smismember))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .fields(FieldSpec::ALL)
        .since_version(THIRD_VERSION)
        .reads_few_rows()
        .categories(&["@set"])
        .about(
            "set",
            "6.2.0",
            "O(N) where N is the number of elements being checked",
            "Checks for each argument if a set has it as a member.",
            "key member [member ...]",
        ),
    CommandSpec::new("smembers", 2, flags::READONLY, Handler::Keyspace(sets::smembers))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .tips(&["nondeterministic_output_order"])
        .about("set", "1.0.0", "O(N) where N is the size of the set", "Lists the members of a set.", "key"),
    CommandSpec::new("srandmember", -2, flags::READONLY, Handler::Keyspace(set_random::srandmember))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .tips(&["nondeterministic_output"])
        .about(
            "set",
            "1.0.0",
            "O(N) where N is the number of members returned",
            "Picks random members of a set.",
            "key [count]",
        ),
    CommandSpec::new("spop", -2, flags::WRITE | flags::FAST, Handler::Keyspace(set_random::spop))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }])
        .may_be_in_parts()
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .tips(&["nondeterministic_output"])
        .about(
            "set",
            "1.0.0",
            "O(N) where N is the number of members returned",
            "Removes random members from a set and returns them.",
            "key [count]",
        ),
    CommandSpec::new("smove", 4, flags::WRITE | flags::FAST, Handler::Keyspace(sets::smove))
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] },
            KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "insert"] },
        ])
        .fields(FieldSpec::MOVED)
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .about(
            "set",
            "1.0.0",
            "O(1)",
            "Moves a member from one set to another.",
            "source destination member",
        ),
    CommandSpec::new("sinter", -2, flags::READONLY, Handler::Keyspace(algebra::sinter))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "set",
            "1.0.0",
            "O(N*M) where N is the size of the smallest set and M is the number of sets",
            "Returns the members that all sets have.",
            "key [key ...]",
        ),
    CommandSpec::new(
        "sintercard",
        -3,
        flags::READONLY | flags::MOVABLEKEYS,
        Handler::Keyspace(algebra::sintercard),
    )
    .keys(&[KeySpec { first: 2, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] }])
    .since_version(THIRD_VERSION)
    .categories(&["@set"])
    .about(
        "set",
        "7.0.0",
        "O(N*M) where N is the size of the smallest set and M is the number of sets",
        "Counts the members that all sets have.",
        "numkeys key [key ...] [LIMIT limit]",
    ),
    CommandSpec::new(
        "sinterstore",
        -3,
        flags::WRITE | flags::DENYOOM,
        Handler::Keyspace(algebra::sinterstore),
    )
    .may_be_in_parts()
    .keys(&[
        KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] },
        KeySpec { first: 2, last: -1, step: 1, flags: &["RO", "access"] },
    ])
    .since_version(THIRD_VERSION)
    .categories(&["@set"])
    .about(
        "set",
        "1.0.0",
        "O(N*M) where N is the size of the smallest set and M is the number of sets",
        "Stores the members that all sets have.",
        "destination key [key ...]",
    ),
    CommandSpec::new("sunion", -2, flags::READONLY, Handler::Keyspace(algebra::sunion))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "set",
            "1.0.0",
            "O(N) where N is the number of members of all sets",
            "Returns the members of all sets.",
            "key [key ...]",
        ),
    CommandSpec::new(
        "sunionstore",
        -3,
        flags::WRITE | flags::DENYOOM,
        Handler::Keyspace(algebra::sunionstore),
    )
    .may_be_in_parts()
    .keys(&[
        KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] },
        KeySpec { first: 2, last: -1, step: 1, flags: &["RO", "access"] },
    ])
    .since_version(THIRD_VERSION)
    .categories(&["@set"])
    .about(
        "set",
        "1.0.0",
        "O(N) where N is the number of members of all sets",
        "Stores the members of all sets.",
        "destination key [key ...]",
    ),
    CommandSpec::new("sdiff", -2, flags::READONLY, Handler::Keyspace(algebra::sdiff))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "set",
            "1.0.0",
            "O(N) where N is the number of members of all sets",
            "Returns the members of the first set that no other set has.",
            "key [key ...]",
        ),
    CommandSpec::new("sdiffstore", -3, flags::WRITE | flags::DENYOOM, Handler::Keyspace(algebra::sdiffstore))
        .may_be_in_parts()
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] },
            KeySpec { first: 2, last: -1, step: 1, flags: &["RO", "access"] },
        ])
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .about(
            "set",
            "1.0.0",
            "O(N) where N is the number of members of all sets",
            "Stores the members of the first set that no other set has.",
            "destination key [key ...]",
        ),
    CommandSpec::new("sscan", -3, flags::READONLY, Handler::Keyspace(sets::sscan))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@set"])
        .tips(&["nondeterministic_output"])
        .about(
            "set",
            "2.8.0",
            "O(1) for every call",
            "Iterates over a set, a few members per call.",
            "key cursor [MATCH pattern] [COUNT count]",
        ),
];
