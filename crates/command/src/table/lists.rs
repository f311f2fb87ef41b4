//! Table entries of the list commands.

use types::THIRD_VERSION;

use crate::blocking;
use crate::lists::{self, change, ends, search};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};

pub(super) static COMMANDS: [CommandSpec; 22] = [
    CommandSpec::new(
        "lpush",
        -3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(ends::lpush),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
    .walks_tree()
    .since_version(THIRD_VERSION)
    .categories(&["@list"])
    .about(
        "list",
        "1.0.0",
        "O(log N) for each element, where N is the length of the list",
        "Adds elements at the head of a list.",
        "key element [element ...]",
    ),
    CommandSpec::new(
        "rpush",
        -3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(ends::rpush),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
    .walks_tree()
    .since_version(THIRD_VERSION)
    .categories(&["@list"])
    .about(
        "list",
        "1.0.0",
        "O(log N) for each element, where N is the length of the list",
        "Adds elements at the tail of a list.",
        "key element [element ...]",
    ),
    CommandSpec::new(
        "lpushx",
        -3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(ends::lpushx),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
    .changes_only()
    .walks_tree()
    .since_version(THIRD_VERSION)
    .categories(&["@list"])
    .about(
        "list",
        "2.2.0",
        "O(log N) for each element, where N is the length of the list",
        "Adds elements at the head of a list that exists.",
        "key element [element ...]",
    ),
    CommandSpec::new(
        "rpushx",
        -3,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(ends::rpushx),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
    .changes_only()
    .walks_tree()
    .since_version(THIRD_VERSION)
    .categories(&["@list"])
    .about(
        "list",
        "2.2.0",
        "O(log N) for each element, where N is the length of the list",
        "Adds elements at the tail of a list that exists.",
        "key element [element ...]",
    ),
    CommandSpec::new("lpop", -2, flags::WRITE | flags::FAST, Handler::Keyspace(ends::lpop))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.0.0",
            "O(M log N) where N is the length of the list and M the number of elements returned",
            "Removes elements at the head of a list and returns them.",
            "key [count]",
        ),
    CommandSpec::new("rpop", -2, flags::WRITE | flags::FAST, Handler::Keyspace(ends::rpop))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.0.0",
            "O(M log N) where N is the length of the list and M the number of elements returned",
            "Removes elements at the tail of a list and returns them.",
            "key [count]",
        ),
    CommandSpec::new("llen", 2, flags::READONLY | flags::FAST, Handler::Keyspace(lists::llen))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about("list", "1.0.0", "O(1)", "Returns the length of a list.", "key"),
    CommandSpec::new("lrange", 4, flags::READONLY, Handler::Keyspace(lists::lrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .reads_ranks()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.0.0",
            "O(log N + M) where N is the length of the list and M the number of elements returned",
            "Returns the elements in a range of indexes.",
            "key start stop",
        ),
    CommandSpec::new("lindex", 3, flags::READONLY, Handler::Keyspace(lists::lindex))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.0.0",
            "O(log N) where N is the length of the list",
            "Returns the element at an index.",
            "key index",
        ),
    CommandSpec::new("lset", 4, flags::WRITE | flags::DENYOOM, Handler::Keyspace(change::lset))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .changes_only()
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.0.0",
            "O(log N) where N is the length of the list",
            "Replaces the element at an index.",
            "key index element",
        ),
    CommandSpec::new("linsert", 5, flags::WRITE | flags::DENYOOM, Handler::Keyspace(change::linsert))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "insert"] }])
        .changes_only()
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "2.2.0",
            "O(N) where N is the number of elements up to the pivot",
            "Inserts an element before or after another one.",
            "key BEFORE | AFTER pivot element",
        ),
    CommandSpec::new("lrem", 4, flags::WRITE, Handler::Keyspace(change::lrem))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.0.0",
            "O(N + M log N) where N is the length of the list and M the number of elements \
             removed",
            "Removes elements that equal an element.",
            "key count element",
        ),
    CommandSpec::new("ltrim", 4, flags::WRITE, Handler::Keyspace(change::ltrim))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.0.0",
            "O(M log N) where N is the length of the list and M the number of elements removed, \
             or kept if these are fewer",
            "Removes all elements but those in a range of indexes.",
            "key start stop",
        ),
    CommandSpec::new("lpos", -3, flags::READONLY, Handler::Keyspace(search::lpos))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "6.0.6",
            "O(N) where N is the number of elements compared",
            "Returns the indexes of elements that equal an element.",
            "key element [RANK rank] [COUNT count] [MAXLEN len]",
        ),
    CommandSpec::new("lmove", 5, flags::WRITE | flags::DENYOOM, Handler::Keyspace(ends::lmove))
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] },
            KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "insert"] },
        ])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "6.2.0",
            "O(log N) where N is the length of the longer list",
            "Moves an element from an end of a list to an end of a list.",
            "source destination LEFT | RIGHT LEFT | RIGHT",
        ),
    CommandSpec::new("rpoplpush", 3, flags::WRITE | flags::DENYOOM, Handler::Keyspace(ends::rpoplpush))
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] },
            KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "insert"] },
        ])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "1.2.0",
            "O(log N) where N is the length of the longer list",
            "Moves an element from the tail of a list to the head of a list.",
            "source destination",
        ),
    CommandSpec::new("lmpop", -4, flags::WRITE | flags::MOVABLEKEYS, Handler::Keyspace(ends::lmpop))
        .keys(&[KeySpec { first: 2, last: KeySpec::COUNTED, step: 1, flags: &["RW", "access", "delete"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about(
            "list",
            "7.0.0",
            "O(K + M log N) where K is the number of keys, N the length of the list and M the \
             number of elements removed",
            "Removes elements at an end of the first list that is not empty.",
            "numkeys key [key ...] LEFT | RIGHT [COUNT count]",
        ),
    CommandSpec::new("blpop", -3, flags::WRITE | flags::NOSCRIPT | flags::BLOCKING, Handler::Keyspace(blocking::blpop))
        .keys(&[KeySpec { first: 1, last: -2, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about("list", "2.0.0", "O(K + log N) where K is the number of keys and N the length of the list", "Removes the first element of the first list that is not empty, or waits for one.", "key [key ...] timeout"),
    CommandSpec::new("brpop", -3, flags::WRITE | flags::NOSCRIPT | flags::BLOCKING, Handler::Keyspace(blocking::brpop))
        .keys(&[KeySpec { first: 1, last: -2, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about("list", "2.0.0", "O(K + log N) where K is the number of keys and N the length of the list", "Removes the last element of the first list that is not empty, or waits for one.", "key [key ...] timeout"),
    CommandSpec::new("blmove", 6, flags::WRITE | flags::DENYOOM | flags::NOSCRIPT | flags::BLOCKING, Handler::Keyspace(blocking::blmove))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }, KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "insert"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about("list", "6.2.0", "O(log N) where N is the length of the longer list", "Moves an element from an end of a list to an end of a list, or waits for one.", "source destination LEFT | RIGHT LEFT | RIGHT timeout"),
    CommandSpec::new("brpoplpush", 4, flags::WRITE | flags::DENYOOM | flags::NOSCRIPT | flags::BLOCKING, Handler::Keyspace(blocking::brpoplpush))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }, KeySpec { first: 2, last: 0, step: 1, flags: &["RW", "insert"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about("list", "2.2.0", "O(log N) where N is the length of the longer list", "Moves an element from the tail of a list to the head of a list, or waits for one.", "source destination timeout"),
    CommandSpec::new("blmpop", -5, flags::WRITE | flags::BLOCKING | flags::MOVABLEKEYS, Handler::Keyspace(blocking::blmpop))
        .keys(&[KeySpec { first: 3, last: KeySpec::COUNTED, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@list"])
        .about("list", "7.0.0", "O(K + M log N) where K is the number of keys, N the length of the list and M the number of elements removed", "Removes elements at an end of the first list that is not empty, or waits for one.", "timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]"),
];
