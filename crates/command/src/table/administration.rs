//! Table entries of the commands that operators use: statistics, checkpoints, and those that a
//! cluster of Redis has and this one does differently.

use crate::introspect;
use crate::refused;
use crate::server_command::{LatencyCommand, ServerCommand, SlowLogCommand};
use crate::spec::{flags, CommandSpec, Handler};

pub(super) static COMMANDS: [CommandSpec; 20] = [
    CommandSpec::new("slowlog", -2, flags::NONE, Handler::Container).subcommands(&SLOWLOG).about(
        "server",
        "2.2.12",
        "Depends on subcommand.",
        "Inspects the slow log.",
        "",
    ),
    CommandSpec::new("latency", -2, flags::NONE, Handler::Container).subcommands(&LATENCY).about(
        "server",
        "2.8.13",
        "Depends on subcommand.",
        "Inspects slow moments and the times of commands.",
        "",
    ),
    CommandSpec::new(
        "role",
        1,
        flags::NOSCRIPT | flags::FAST | flags::ANYTIME,
        Handler::Server(ServerCommand::Role),
    )
    .categories(&["@admin", "@dangerous"])
    .about("server", "2.8.12", "O(1)", "Returns the role of the store.", ""),
    CommandSpec::new("wait", 3, flags::NOSCRIPT, Handler::Server(ServerCommand::Wait))
        .categories(&["@connection"])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .about(
            "generic",
            "3.0.0",
            "O(1)",
            "Waits until writes are synced on a number of other stores.",
            "numreplicas timeout",
        ),
    CommandSpec::new("waitaof", 4, flags::NOSCRIPT, Handler::Server(ServerCommand::WaitAof))
        .categories(&["@connection"])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .about(
            "generic",
            "7.2.0",
            "O(1)",
            "Waits until writes are synced on the leader's store and on a number of other stores.",
            "numlocal numreplicas timeout",
        ),
    CommandSpec::new(
        "save",
        1,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING | flags::NO_MULTI,
        Handler::Server(ServerCommand::Save),
    )
    .about(
        "server",
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "Brings all rows in RAM to flash.",
        "",
    ),
    CommandSpec::new(
        "bgsave",
        -1,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING,
        Handler::Server(ServerCommand::BgSave),
    )
    .about("server", "1.0.0", "O(1)", "Begins to bring all rows in RAM to flash.", "[SCHEDULE]"),
    CommandSpec::new(
        "bgrewriteaof",
        1,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING,
        Handler::Server(ServerCommand::BgSave),
    )
    .about(
        "server",
        "1.0.0",
        "O(1)",
        "Begins to bring all rows in RAM to flash, after which less of the log is needed.",
        "",
    ),
    CommandSpec::new("lastsave", 1, flags::FAST | flags::ANYTIME, Handler::Server(ServerCommand::LastSave))
        .categories(&["@admin", "@dangerous"])
        .tips(&["nondeterministic_output"])
        .about(
            "server",
            "1.0.0",
            "O(1)",
            "Returns the time at which all rows in RAM were last brought to flash.",
            "",
        ),
    CommandSpec::new("lolwut", -1, flags::READONLY | flags::FAST, Handler::Table(introspect::lolwut)).about(
        "server",
        "5.0.0",
        "O(1)",
        "Returns the versions.",
        "[VERSION version]",
    ),
    CommandSpec::new("asking", 1, flags::FAST, Handler::Server(ServerCommand::Asking))
        .categories(&["@connection"])
        .about("cluster", "3.0.0", "O(1)", "Has no effect: a store never asks for it.", ""),
    CommandSpec::new(
        "debug",
        -2,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Debug),
    )
    .about(
        "server",
        "1.0.0",
        "Depends on subcommand.",
        "Helps with tests of clients, if enable-debug-command permits it.",
        "SLEEP seconds | ERROR string | PROTOCOL type | SET-ACTIVE-EXPIRE 0|1 | LOG message | HELP",
    ),
    CommandSpec::new("swapdb", 3, flags::WRITE | flags::FAST, Handler::Table(refused::reply))
        .categories(&["@keyspace", "@dangerous"])
        .about(
            "server",
            "4.0.0",
            "O(N) where N is the count of clients watching or blocking on keys from both databases.",
            "Refused: databases cannot be swapped.",
            "index1 index2",
        ),
    CommandSpec::new(
        "replicaof",
        3,
        flags::ADMIN | flags::NOSCRIPT | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("server", "5.0.0", "O(1)", "Refused: placement chooses the replicas.", "host port"),
    CommandSpec::new(
        "slaveof",
        3,
        flags::ADMIN | flags::NOSCRIPT | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("server", "1.0.0", "O(1)", "Refused: placement chooses the replicas.", "host port"),
    CommandSpec::new(
        "failover",
        -1,
        flags::ADMIN | flags::NOSCRIPT | flags::STALE,
        Handler::Table(refused::reply),
    )
    .about(
        "server",
        "6.2.0",
        "O(1)",
        "Refused: placement and the stores choose leaders.",
        "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
    ),
    CommandSpec::new(
        "sync",
        1,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING | flags::NO_MULTI,
        Handler::Table(refused::reply),
    )
    .about("server", "1.0.0", "O(1)", "Refused: stores replicate by their own protocol.", ""),
    CommandSpec::new(
        "psync",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING | flags::NO_MULTI,
        Handler::Table(refused::reply),
    )
    .about(
        "server",
        "2.8.0",
        "O(1)",
        "Refused: stores replicate by their own protocol.",
        "replicationid offset",
    ),
    CommandSpec::new(
        "replconf",
        -1,
        flags::ADMIN | flags::NOSCRIPT | flags::ALLOW_BUSY | flags::ANYTIME,
        Handler::Table(refused::reply),
    )
    .about("server", "3.0.0", "O(1)", "Refused: stores replicate by their own protocol.", ""),
    CommandSpec::new("module", -2, flags::NONE, Handler::Container).subcommands(&MODULE).about(
        "server",
        "4.0.0",
        "Depends on subcommand.",
        "Lists modules; there are none.",
        "",
    ),
];

static SLOWLOG: [CommandSpec; 4] = [
    CommandSpec::new(
        "slowlog|get",
        -2,
        flags::ADMIN | flags::ANYTIME,
        Handler::Server(ServerCommand::SlowLog(SlowLogCommand::Get)),
    )
    .tips(&["request_policy:all_nodes", "nondeterministic_output"])
    .about(
        "server",
        "2.2.12",
        "O(N) where N is the number of entries returned",
        "Returns the newest entries of the slow log.",
        "[count]",
    ),
    CommandSpec::new(
        "slowlog|len",
        2,
        flags::ADMIN | flags::ANYTIME,
        Handler::Server(ServerCommand::SlowLog(SlowLogCommand::Len)),
    )
    .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
    .about("server", "2.2.12", "O(1)", "Returns the number of entries of the slow log.", ""),
    CommandSpec::new(
        "slowlog|reset",
        2,
        flags::ADMIN | flags::ANYTIME,
        Handler::Server(ServerCommand::SlowLog(SlowLogCommand::Reset)),
    )
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .about(
        "server",
        "2.2.12",
        "O(N) where N is the number of entries in the slowlog",
        "Empties the slow log.",
        "",
    ),
    CommandSpec::new("slowlog|help", 2, flags::ANYTIME, Handler::Table(introspect::help)).about(
        "server",
        "6.2.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

static LATENCY: [CommandSpec; 7] = [
    CommandSpec::new(
        "latency|doctor",
        2,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Latency(LatencyCommand::Doctor)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
    .about("server", "2.8.13", "O(1)", "Returns a report on slow moments.", ""),
    CommandSpec::new(
        "latency|graph",
        3,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Latency(LatencyCommand::Graph)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
    .about("server", "2.8.13", "O(1)", "Draws the slow moments of an event.", "event"),
    CommandSpec::new(
        "latency|histogram",
        -2,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Latency(LatencyCommand::Histogram)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
    .about(
        "server",
        "7.0.0",
        "O(N) where N is the number of commands with latency information being retrieved.",
        "Returns histograms of the times of commands.",
        "[command [command ...]]",
    ),
    CommandSpec::new(
        "latency|history",
        3,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Latency(LatencyCommand::History)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
    .about("server", "2.8.13", "O(1)", "Returns the slow moments of an event.", "event"),
    CommandSpec::new(
        "latency|latest",
        2,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Latency(LatencyCommand::Latest)),
    )
    .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
    .about("server", "2.8.13", "O(1)", "Returns the newest slow moment of each event.", ""),
    CommandSpec::new(
        "latency|reset",
        -2,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Latency(LatencyCommand::Reset)),
    )
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .about("server", "2.8.13", "O(1)", "Forgets slow moments.", "[event [event ...]]"),
    CommandSpec::new("latency|help", 2, flags::ANYTIME, Handler::Table(introspect::help)).about(
        "server",
        "2.8.13",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

static MODULE: [CommandSpec; 5] = [
    CommandSpec::new(
        "module|list",
        2,
        flags::ADMIN | flags::NOSCRIPT,
        Handler::Server(ServerCommand::ModuleList),
    )
    .tips(&["nondeterministic_output_order"])
    .about(
        "server",
        "4.0.0",
        "O(N) where N is the number of loaded modules.",
        "Lists modules; there are none.",
        "",
    ),
    CommandSpec::new(
        "module|load",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("server", "4.0.0", "O(1)", "Refused: there are no modules.", "path [arg [arg ...]]"),
    CommandSpec::new(
        "module|loadex",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "server",
        "7.0.0",
        "O(1)",
        "Refused: there are no modules.",
        "path [CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]",
    ),
    CommandSpec::new(
        "module|unload",
        3,
        flags::ADMIN | flags::NOSCRIPT | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("server", "4.0.0", "O(1)", "Refused: there are no modules.", "name"),
    CommandSpec::new("module|help", 2, flags::ANYTIME, Handler::Table(introspect::help)).about(
        "server",
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
