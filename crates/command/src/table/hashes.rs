//! Table entries of the hash commands.

use crate::hashes::{self, hscan as hash_scan, numbers as hash_numbers};
use crate::spec::{flags, CommandSpec, FieldSpec, Handler, KeySpec};

pub(super) static COMMANDS: [CommandSpec; 16] = [
    CommandSpec::new(
        "hset",
        -4,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(hashes::hset),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
    .fields(FieldSpec::PAIRS)
    .categories(&["@hash"])
    .about(
        "hash",
        "2.0.0",
        "O(1) for each field/value pair added",
        "Sets fields of a hash.",
        "key field value [field value ...]",
    ),
    CommandSpec::new(
        "hsetnx",
        4,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(hashes::hsetnx),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
    .fields(FieldSpec::ONE)
    .categories(&["@hash"])
    .about("hash", "2.0.0", "O(1)", "Sets a field of a hash unless it exists.", "key field value"),
    CommandSpec::new(
        "hmset",
        -4,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(hashes::hmset),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
    .fields(FieldSpec::PAIRS)
    .categories(&["@hash"])
    .about(
        "hash",
        "2.0.0",
        "O(N) where N is the number of fields being set",
        "Sets fields of a hash.",
        "key field value [field value ...]",
    ),
    CommandSpec::new("hget", 3, flags::READONLY | flags::FAST, Handler::Keyspace(hashes::hget))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .fields(FieldSpec::ONE)
        .reads_few_rows()
        .categories(&["@hash"])
        .about("hash", "2.0.0", "O(1)", "Reads a field of a hash.", "key field"),
    CommandSpec::new("hmget", -3, flags::READONLY | flags::FAST, Handler::Keyspace(hashes::hmget))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .fields(FieldSpec::ALL)
        .reads_few_rows()
        .categories(&["@hash"])
        .about(
            "hash",
            "2.0.0",
            "O(N) where N is the number of fields being requested",
            "Reads several fields of a hash.",
            "key field [field ...]",
        ),
    CommandSpec::new("hgetall", 2, flags::READONLY, Handler::Keyspace(hashes::hgetall))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .categories(&["@hash"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "hash",
            "2.0.0",
            "O(N) where N is the size of the hash",
            "Reads every field of a hash with its value.",
            "key",
        ),
    CommandSpec::new("hdel", -3, flags::WRITE | flags::FAST, Handler::Keyspace(hashes::hdel))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .fields(FieldSpec::ALL)
        .categories(&["@hash"])
        .about(
            "hash",
            "2.0.0",
            "O(N) where N is the number of fields to be removed",
            "Deletes fields of a hash.",
            "key field [field ...]",
        ),
    CommandSpec::new("hlen", 2, flags::READONLY | flags::FAST, Handler::Keyspace(hashes::hlen))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .categories(&["@hash"])
        .about("hash", "2.0.0", "O(1)", "Counts the fields of a hash.", "key"),
    CommandSpec::new("hexists", 3, flags::READONLY | flags::FAST, Handler::Keyspace(hashes::hexists))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .fields(FieldSpec::ONE)
        .reads_few_rows()
        .categories(&["@hash"])
        .about("hash", "2.0.0", "O(1)", "Checks if a field exists.", "key field"),
    CommandSpec::new("hkeys", 2, flags::READONLY, Handler::Keyspace(hashes::hkeys))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .categories(&["@hash"])
        .tips(&["nondeterministic_output_order"])
        .about("hash", "2.0.0", "O(N) where N is the size of the hash", "Lists the fields of a hash.", "key"),
    CommandSpec::new("hvals", 2, flags::READONLY, Handler::Keyspace(hashes::hvals))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .categories(&["@hash"])
        .tips(&["nondeterministic_output_order"])
        .about("hash", "2.0.0", "O(N) where N is the size of the hash", "Lists the values of a hash.", "key"),
    CommandSpec::new(
        "hincrby",
        4,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(hash_numbers::hincrby),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .fields(FieldSpec::ONE)
    .categories(&["@hash"])
    .about("hash", "2.0.0", "O(1)", "Adds to an integer in a hash.", "key field increment"),
    CommandSpec::new(
        "hincrbyfloat",
        4,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(hash_numbers::hincrbyfloat),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .fields(FieldSpec::ONE)
    .categories(&["@hash"])
    .about("hash", "2.6.0", "O(1)", "Adds to a number in a hash.", "key field increment"),
    CommandSpec::new("hstrlen", 3, flags::READONLY | flags::FAST, Handler::Keyspace(hashes::hstrlen))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .fields(FieldSpec::ONE)
        .reads_few_rows()
        .categories(&["@hash"])
        .about("hash", "3.2.0", "O(1)", "Returns the length of a field's value.", "key field"),
    CommandSpec::new("hrandfield", -2, flags::READONLY, Handler::Keyspace(hash_scan::hrandfield))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .categories(&["@hash"])
        .tips(&["nondeterministic_output"])
        .about(
            "hash",
            "6.2.0",
            "O(N) where N is the number of fields returned",
            "Picks random fields of a hash.",
            "key [count [WITHVALUES]]",
        ),
    CommandSpec::new("hscan", -3, flags::READONLY, Handler::Keyspace(hash_scan::hscan))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .categories(&["@hash"])
        .tips(&["nondeterministic_output"])
        .about(
            "hash",
            "2.8.0",
            "O(1) for every call",
            "Iterates over a hash, a few fields per call.",
            "key cursor [MATCH pattern] [COUNT count]",
        ),
];
