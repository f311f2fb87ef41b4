//! Table entries of the sorted set commands.

use types::THIRD_VERSION;

use crate::blocking;
use crate::sorted_sets::{self, add, algebra, pop, random as sorted_set_random, range, remove};
use crate::spec::{flags, CommandSpec, FieldSpec, Handler, KeySpec};

pub(super) static COMMANDS: [CommandSpec; 35] = [
    CommandSpec::new("zadd", -4, flags::WRITE | flags::DENYOOM | flags::FAST, Handler::Keyspace(add::zadd))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "update"] }])
        .fields(FieldSpec::SCORED)
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "1.2.0",
            "O(log N) for each member, where N is the size of the sorted set",
            "Adds members to a sorted set, or updates their scores.",
            "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        ),
    CommandSpec::new(
        "zincrby",
        4,
        flags::WRITE | flags::DENYOOM | flags::FAST,
        Handler::Keyspace(add::zincrby),
    )
    .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "update"] }])
    .fields(FieldSpec::MOVED)
    .walks_tree()
    .since_version(THIRD_VERSION)
    .categories(&["@sortedset"])
    .about(
        "sorted-set",
        "1.2.0",
        "O(log N) where N is the size of the sorted set",
        "Adds to the score of a member.",
        "key increment member",
    ),
    CommandSpec::new("zrem", -3, flags::WRITE | flags::FAST, Handler::Keyspace(remove::zrem))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .fields(FieldSpec::ALL)
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "1.2.0",
            "O(M log N) where M is the number of members to be removed and N the size of the \
             sorted set",
            "Removes members from a sorted set.",
            "key member [member ...]",
        ),
    CommandSpec::new("zcard", 2, flags::READONLY | flags::FAST, Handler::Keyspace(sorted_sets::zcard))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO"] }])
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about("sorted-set", "1.2.0", "O(1)", "Counts the members of a sorted set.", "key"),
    CommandSpec::new("zcount", 4, flags::READONLY | flags::FAST, Handler::Keyspace(range::zcount))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.0.0",
            "O(log N) where N is the size of the sorted set",
            "Counts the members with scores in a range.",
            "key min max",
        ),
    CommandSpec::new("zlexcount", 4, flags::READONLY | flags::FAST, Handler::Keyspace(range::zlexcount))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.8.9",
            "O(log N) where N is the size of the sorted set",
            "Counts the members in a range of names.",
            "key min max",
        ),
    CommandSpec::new("zscore", 3, flags::READONLY | flags::FAST, Handler::Keyspace(sorted_sets::zscore))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .fields(FieldSpec::ONE)
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about("sorted-set", "1.2.0", "O(1)", "Returns the score of a member.", "key member"),
    CommandSpec::new("zmscore", -3, flags::READONLY | flags::FAST, Handler::Keyspace(sorted_sets::zmscore))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .fields(FieldSpec::ALL)
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "6.2.0",
            "O(N) where N is the number of members",
            "Returns the scores of members.",
            "key member [member ...]",
        ),
    CommandSpec::new("zrank", 3, flags::READONLY | flags::FAST, Handler::Keyspace(sorted_sets::zrank))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .fields(FieldSpec::ONE)
        .walks_tree()
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.0.0",
            "O(log N) where N is the size of the sorted set",
            "Returns the rank of a member by ascending scores.",
            "key member",
        ),
    CommandSpec::new("zrevrank", 3, flags::READONLY | flags::FAST, Handler::Keyspace(sorted_sets::zrevrank))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .fields(FieldSpec::ONE)
        .walks_tree()
        .reads_few_rows()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.0.0",
            "O(log N) where N is the size of the sorted set",
            "Returns the rank of a member by descending scores.",
            "key member",
        ),
    CommandSpec::new("zrange", -4, flags::READONLY, Handler::Keyspace(range::zrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .reads_ranks()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "1.2.0",
            "O(log N + M) where N is the size of the sorted set and M the number of members \
             returned",
            "Returns the members in a range of ranks, scores or names.",
            "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        ),
    CommandSpec::new("zrangestore", -5, flags::WRITE | flags::DENYOOM, Handler::Keyspace(range::zrangestore))
        .may_be_in_parts()
        .keys(&[
            KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] },
            KeySpec { first: 2, last: 0, step: 1, flags: &["RO", "access"] },
        ])
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "6.2.0",
            "O(log N + M log M) where N is the size of the source and M the number of members \
             stored",
            "Stores the members in a range of ranks, scores or names.",
            "destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        ),
    CommandSpec::new("zrevrange", -4, flags::READONLY, Handler::Keyspace(range::zrevrange))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .reads_ranks()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "1.2.0",
            "O(log N + M) where N is the size of the sorted set and M the number of members \
             returned",
            "Returns the members in a range of ranks, by descending scores.",
            "key start stop [WITHSCORES]",
        ),
    CommandSpec::new("zrangebyscore", -4, flags::READONLY, Handler::Keyspace(range::zrangebyscore))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "1.0.5",
            "O(log N + M) where N is the size of the sorted set and M the number of members \
             returned",
            "Returns the members with scores in a range.",
            "key min max [WITHSCORES] [LIMIT offset count]",
        ),
    CommandSpec::new("zrevrangebyscore", -4, flags::READONLY, Handler::Keyspace(range::zrevrangebyscore))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.2.0",
            "O(log N + M) where N is the size of the sorted set and M the number of members \
             returned",
            "Returns the members with scores in a range, by descending scores.",
            "key max min [WITHSCORES] [LIMIT offset count]",
        ),
    CommandSpec::new("zrangebylex", -4, flags::READONLY, Handler::Keyspace(range::zrangebylex))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.8.9",
            "O(log N + M) where N is the size of the sorted set and M the number of members \
             returned",
            "Returns the members in a range of names.",
            "key min max [LIMIT offset count]",
        ),
    CommandSpec::new("zrevrangebylex", -4, flags::READONLY, Handler::Keyspace(range::zrevrangebylex))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.8.9",
            "O(log N + M) where N is the size of the sorted set and M the number of members \
             returned",
            "Returns the members in a range of names, in descending order.",
            "key max min [LIMIT offset count]",
        ),
    CommandSpec::new("zremrangebyrank", 4, flags::WRITE, Handler::Keyspace(remove::zremrangebyrank))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .walks_tree()
        .may_be_in_parts()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.0.0",
            "O(log N + M log N) where N is the size of the sorted set and M the number of members \
             removed",
            "Removes the members in a range of ranks.",
            "key start stop",
        ),
    CommandSpec::new("zremrangebyscore", 4, flags::WRITE, Handler::Keyspace(remove::zremrangebyscore))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .walks_tree()
        .may_be_in_parts()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "1.2.0",
            "O(log N + M log N) where N is the size of the sorted set and M the number of members \
             removed",
            "Removes the members with scores in a range.",
            "key min max",
        ),
    CommandSpec::new("zremrangebylex", 4, flags::WRITE, Handler::Keyspace(remove::zremrangebylex))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "delete"] }])
        .walks_tree()
        .may_be_in_parts()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "2.8.9",
            "O(log N + M log N) where N is the size of the sorted set and M the number of members \
             removed",
            "Removes the members in a range of names.",
            "key min max",
        ),
    CommandSpec::new("zpopmin", -2, flags::WRITE | flags::FAST, Handler::Keyspace(pop::zpopmin))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .may_be_in_parts()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "5.0.0",
            "O(log N + M log N) where N is the size of the sorted set and M the number of members \
             removed",
            "Removes the members with the lowest scores and returns them.",
            "key [count]",
        ),
    CommandSpec::new("zpopmax", -2, flags::WRITE | flags::FAST, Handler::Keyspace(pop::zpopmax))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .may_be_in_parts()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "5.0.0",
            "O(log N + M log N) where N is the size of the sorted set and M the number of members \
             removed",
            "Removes the members with the highest scores and returns them.",
            "key [count]",
        ),
    CommandSpec::new("zmpop", -4, flags::WRITE | flags::MOVABLEKEYS, Handler::Keyspace(pop::zmpop))
        .keys(&[KeySpec { first: 2, last: KeySpec::COUNTED, step: 1, flags: &["RW", "access", "delete"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "7.0.0",
            "O(K + M log N) where K is the number of keys, N the size of the sorted set and M the \
             number of members removed",
            "Removes members at an end of the first sorted set that is not empty.",
            "numkeys key [key ...] MIN | MAX [COUNT count]",
        ),
    CommandSpec::new("zrandmember", -2, flags::READONLY, Handler::Keyspace(sorted_set_random::zrandmember))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .tips(&["nondeterministic_output"])
        .about(
            "sorted-set",
            "6.2.0",
            "O(N) where N is the number of members returned",
            "Picks random members of a sorted set.",
            "key [count [WITHSCORES]]",
        ),
    CommandSpec::new("zinter", -3, flags::READONLY | flags::MOVABLEKEYS, Handler::Keyspace(algebra::zinter))
        .keys(&[KeySpec { first: 2, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "6.2.0",
            "O(N K + M log M) where N is the size of the smallest set, K the number of sets and M \
             the size of the result",
            "Returns the members that all sorted sets have.",
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] \
             [WITHSCORES]",
        ),
    CommandSpec::new(
        "zinterstore",
        -4,
        flags::WRITE | flags::DENYOOM | flags::MOVABLEKEYS,
        Handler::Keyspace(algebra::zinterstore),
    )
    .may_be_in_parts()
    .keys(&[
        KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] },
        KeySpec { first: 3, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] },
    ])
    .since_version(THIRD_VERSION)
    .categories(&["@sortedset"])
    .about(
        "sorted-set",
        "2.0.0",
        "O(N K + M log M) where N is the size of the smallest set, K the number of sets and M \
             the size of the result",
        "Stores the members that all sorted sets have.",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN \
             | MAX]",
    ),
    CommandSpec::new("zunion", -3, flags::READONLY | flags::MOVABLEKEYS, Handler::Keyspace(algebra::zunion))
        .keys(&[KeySpec { first: 2, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "6.2.0",
            "O(N + M log M) where N is the total size of the sets and M the size of the result",
            "Returns the members of all sorted sets.",
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] \
             [WITHSCORES]",
        ),
    CommandSpec::new(
        "zunionstore",
        -4,
        flags::WRITE | flags::DENYOOM | flags::MOVABLEKEYS,
        Handler::Keyspace(algebra::zunionstore),
    )
    .may_be_in_parts()
    .keys(&[
        KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] },
        KeySpec { first: 3, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] },
    ])
    .since_version(THIRD_VERSION)
    .categories(&["@sortedset"])
    .about(
        "sorted-set",
        "2.0.0",
        "O(N + M log M) where N is the total size of the sets and M the size of the result",
        "Stores the members of all sorted sets.",
        "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN \
             | MAX]",
    ),
    CommandSpec::new("zdiff", -3, flags::READONLY | flags::MOVABLEKEYS, Handler::Keyspace(algebra::zdiff))
        .keys(&[KeySpec { first: 2, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about(
            "sorted-set",
            "6.2.0",
            "O(N K) where N is the size of the first set and K the number of sets",
            "Returns the members of the first sorted set that no other one has.",
            "numkeys key [key ...] [WITHSCORES]",
        ),
    CommandSpec::new(
        "zdiffstore",
        -4,
        flags::WRITE | flags::DENYOOM | flags::MOVABLEKEYS,
        Handler::Keyspace(algebra::zdiffstore),
    )
    .may_be_in_parts()
    .keys(&[
        KeySpec { first: 1, last: 0, step: 1, flags: &["OW", "update"] },
        KeySpec { first: 3, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] },
    ])
    .since_version(THIRD_VERSION)
    .categories(&["@sortedset"])
    .about(
        "sorted-set",
        "6.2.0",
        "O(N K) where N is the size of the first set and K the number of sets",
        "Stores the members of the first sorted set that no other one has.",
        "destination numkeys key [key ...]",
    ),
    CommandSpec::new(
        "zintercard",
        -3,
        flags::READONLY | flags::MOVABLEKEYS,
        Handler::Keyspace(algebra::zintercard),
    )
    .keys(&[KeySpec { first: 2, last: KeySpec::COUNTED, step: 1, flags: &["RO", "access"] }])
    .since_version(THIRD_VERSION)
    .categories(&["@sortedset"])
    .about(
        "sorted-set",
        "7.0.0",
        "O(N K) where N is the size of the smallest set and K the number of sets",
        "Counts the members that all sorted sets have.",
        "numkeys key [key ...] [LIMIT limit]",
    ),
    CommandSpec::new("zscan", -3, flags::READONLY, Handler::Keyspace(sorted_sets::zscan))
        .keys(&[KeySpec { first: 1, last: 0, step: 1, flags: &["RO", "access"] }])
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .tips(&["nondeterministic_output"])
        .about(
            "sorted-set",
            "2.8.0",
            "O(1) for every call",
            "Iterates over a sorted set, a few members per call.",
            "key cursor [MATCH pattern] [COUNT count]",
        ),
    CommandSpec::new("bzpopmin", -3, flags::WRITE | flags::NOSCRIPT | flags::BLOCKING | flags::FAST, Handler::Keyspace(blocking::bzpopmin))
        .keys(&[KeySpec { first: 1, last: -2, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about("sorted-set", "5.0.0", "O(K + log N) where K is the number of keys and N the number of members", "Removes the member with the lowest score of the first sorted set that is not empty, or waits for one.", "key [key ...] timeout"),
    CommandSpec::new("bzpopmax", -3, flags::WRITE | flags::NOSCRIPT | flags::BLOCKING | flags::FAST, Handler::Keyspace(blocking::bzpopmax))
        .keys(&[KeySpec { first: 1, last: -2, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about("sorted-set", "5.0.0", "O(K + log N) where K is the number of keys and N the number of members", "Removes the member with the highest score of the first sorted set that is not empty, or waits for one.", "key [key ...] timeout"),
    CommandSpec::new("bzmpop", -5, flags::WRITE | flags::BLOCKING | flags::MOVABLEKEYS, Handler::Keyspace(blocking::bzmpop))
        .keys(&[KeySpec { first: 3, last: KeySpec::COUNTED, step: 1, flags: &["RW", "access", "delete"] }])
        .walks_tree()
        .since_version(THIRD_VERSION)
        .categories(&["@sortedset"])
        .about("sorted-set", "7.0.0", "O(K + M log N) where K is the number of keys, N the number of members and M the number of members removed", "Removes members at an end of the first sorted set that is not empty, or waits for one.", "timeout numkeys key [key ...] MIN | MAX [COUNT count]"),
];
