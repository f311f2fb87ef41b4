//! Table entries of the HyperLogLog commands.

use types::THIRD_VERSION;

use crate::hyperloglog;
use crate::spec::{flags, CommandSpec, Handler, KeySpec};

pub(super) static COMMANDS: [CommandSpec; 3] = [
    CommandSpec::new(
        "pfadd",
        -2,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(hyperloglog::pfadd),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
    .since_version(THIRD_VERSION)
    .categories(&["@hyperloglog"])
    .about(
        "hyperloglog",
        "2.8.9",
        "O(1) for each element",
        "Adds elements to a HyperLogLog.",
        "key [element [element ...]]",
    ),
    CommandSpec::new("pfcount", -2, flags::READONLY, Handler::Keyspace(hyperloglog::pfcount))
        .counts_as_write()
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RW", "access"] }])
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@hyperloglog"])
        .about(
            "hyperloglog",
            "2.8.9",
            "O(1) for one key whose estimate is known, otherwise O(N) where N is the number of \
             keys",
            "Estimates the number of different elements of HyperLogLogs.",
            "key [key ...]",
        ),
    CommandSpec::new("pfmerge", -2, flags::WRITE | flags::DENYOOM, Handler::Keyspace(hyperloglog::pfmerge))
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "insert"] },
            KeySpec { first: 2, last: -1, step: 1, flags: &["RO", "access"] },
        ])
        .since_version(THIRD_VERSION)
        .categories(&["@hyperloglog"])
        .about(
            "hyperloglog",
            "2.8.9",
            "O(N) where N is the number of keys",
            "Merges HyperLogLogs into one.",
            "destination [source [source ...]]",
        ),
];
