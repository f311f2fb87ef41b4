//! Table entries of the bitmap commands.

use types::THIRD_VERSION;

use crate::bitmaps::{self, field, operation, search};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};

pub(super) static COMMANDS: [CommandSpec; 7] = [
    CommandSpec::new("setbit", 4, flags::WRITE | flags::DENYOOM, Handler::Keyspace(bitmaps::setbit))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@bitmap"])
        .about(
            "bitmap",
            "2.2.0",
            "O(N) where N is the length of the string",
            "Sets or clears a bit and returns its old value.",
            "key offset value",
        ),
    CommandSpec::new("getbit", 3, flags::READONLY | flags::FAST, Handler::Keyspace(bitmaps::getbit))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@bitmap"])
        .about("bitmap", "2.2.0", "O(1)", "Returns a bit.", "key offset"),
    CommandSpec::new("bitcount", -2, flags::READONLY, Handler::Keyspace(search::bitcount))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@bitmap"])
        .about(
            "bitmap",
            "2.6.0",
            "O(N) where N is the length of the range",
            "Counts the bits that are set.",
            "key [start end [BYTE | BIT]]",
        ),
    CommandSpec::new("bitpos", -3, flags::READONLY, Handler::Keyspace(search::bitpos))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@bitmap"])
        .about(
            "bitmap",
            "2.8.7",
            "O(N) where N is the length of the range",
            "Finds the first bit that is set or clear.",
            "key bit [start [end [BYTE | BIT]]]",
        ),
    CommandSpec::new("bitop", -4, flags::WRITE | flags::DENYOOM, Handler::Keyspace(operation::bitop))
        .keys(&[
            KeySpec { first: 2, last: 0, step: 1, flags: &["OW", "update"] },
            KeySpec { first: 3, last: -1, step: 1, flags: &["RO", "access"] },
        ])
        .since_version(THIRD_VERSION)
        .categories(&["@bitmap"])
        .about(
            "bitmap",
            "2.6.0",
            "O(N) where N is the total length of the strings",
            "Combines strings bit by bit and stores the result.",
            "operation destination key [key ...]",
        ),
    CommandSpec::new("bitfield", -2, flags::WRITE | flags::DENYOOM, Handler::Keyspace(field::bitfield))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update", "variable_flags"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@bitmap"])
        .about(
            "bitmap",
            "3.2.0",
            "O(M + N) where M is the number of operations and N the length of the string",
            "Reads and changes integers of any width.",
            "key [GET encoding offset] [OVERFLOW WRAP | SAT | FAIL] [SET encoding offset value] \
             [INCRBY encoding offset increment]",
        ),
    CommandSpec::new("bitfield_ro", -2, flags::READONLY | flags::FAST, Handler::Keyspace(field::bitfield_ro))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@bitmap"])
        .about(
            "bitmap",
            "6.0.0",
            "O(M) where M is the number of operations",
            "Reads integers of any width.",
            "key [GET encoding offset [GET encoding offset ...]]",
        ),
];
