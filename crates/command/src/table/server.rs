//! Table entries of the commands on the server and the cluster, which the server executes.

use crate::spec::{flags, CommandSpec, Handler};

pub(super) static COMMANDS: [CommandSpec; 5] = [
    CommandSpec::new("info", -1, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@dangerous"])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .about(
            "server",
            "1.0.0",
            "O(1)",
            "Returns information about the server in sections.",
            "[section [section ...]]",
        ),
    CommandSpec::new("config", -2, flags::NONE, Handler::Container(&CONFIG)).about(
        "server",
        "2.0.0",
        "Depends on subcommand",
        "Reads and changes the configuration.",
        "",
    ),
    CommandSpec::new("time", 1, flags::LOADING | flags::STALE | flags::FAST, Handler::Server)
        .tips(&["nondeterministic_output"])
        .about("server", "2.6.0", "O(1)", "Returns the server's time.", ""),
    CommandSpec::new(
        "shutdown",
        -1,
        flags::ADMIN | flags::NOSCRIPT | flags::LOADING | flags::STALE | flags::NO_MULTI | flags::ALLOW_BUSY,
        Handler::Server,
    )
    .about(
        "server",
        "1.0.0",
        "O(N) when saving",
        "Stops the server.",
        "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
    ),
    CommandSpec::new("cluster", -2, flags::NONE, Handler::Container(&CLUSTER)).about(
        "cluster",
        "3.0.0",
        "Depends on subcommand",
        "Returns information about the cluster.",
        "",
    ),
];

static CONFIG: [CommandSpec; 4] = [
    CommandSpec::new(
        "config|get",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::LOADING | flags::STALE,
        Handler::Server,
    )
    .about(
        "server",
        "2.0.0",
        "O(N) when N is the number of configuration parameters provided",
        "Reads settings by pattern.",
        "parameter [parameter ...]",
    ),
    CommandSpec::new(
        "config|set",
        -4,
        flags::ADMIN | flags::NOSCRIPT | flags::LOADING | flags::STALE,
        Handler::Server,
    )
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .about(
        "server",
        "2.0.0",
        "O(N) when N is the number of configuration parameters provided",
        "Changes settings.",
        "parameter value [parameter value ...]",
    ),
    CommandSpec::new(
        "config|resetstat",
        2,
        flags::ADMIN | flags::NOSCRIPT | flags::LOADING | flags::STALE,
        Handler::Server,
    )
    .about("server", "2.0.0", "O(1)", "Resets the statistics.", ""),
    CommandSpec::new("config|help", 2, flags::LOADING | flags::STALE, Handler::Server).about(
        "server",
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];

static CLUSTER: [CommandSpec; 9] = [
    CommandSpec::new("cluster|slots", 2, flags::STALE, Handler::Server)
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "3.0.0",
            "O(N) where N is the total number of Cluster nodes",
            "Lists slot ranges and the nodes that serve them.",
            "",
        ),
    CommandSpec::new("cluster|shards", 2, flags::STALE, Handler::Server)
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "7.0.0",
            "O(N) where N is the total number of cluster nodes",
            "Lists slot ranges and the nodes that serve them, by shard.",
            "",
        ),
    CommandSpec::new("cluster|nodes", 2, flags::STALE, Handler::Server)
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "3.0.0",
            "O(N) where N is the total number of Cluster nodes",
            "Lists the nodes.",
            "",
        ),
    CommandSpec::new("cluster|info", 2, flags::STALE, Handler::Server)
        .tips(&["nondeterministic_output"])
        .about("cluster", "3.0.0", "O(1)", "Returns the cluster's state.", ""),
    CommandSpec::new("cluster|keyslot", 3, flags::STALE, Handler::Server).about(
        "cluster",
        "3.0.0",
        "O(N) where N is the number of bytes in the key",
        "Returns a key's slot.",
        "key",
    ),
    CommandSpec::new("cluster|myid", 2, flags::STALE, Handler::Server).about(
        "cluster",
        "3.0.0",
        "O(1)",
        "Returns this node's id.",
        "",
    ),
    CommandSpec::new("cluster|countkeysinslot", 3, flags::STALE, Handler::Server).about(
        "cluster",
        "3.0.0",
        "O(1)",
        "Counts the keys of a slot.",
        "slot",
    ),
    CommandSpec::new("cluster|getkeysinslot", 4, flags::STALE, Handler::Server)
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "3.0.0",
            "O(log(N)) where N is the number of requested keys",
            "Lists keys of a slot.",
            "slot count",
        ),
    CommandSpec::new("cluster|help", 2, flags::LOADING | flags::STALE, Handler::Server).about(
        "cluster",
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
