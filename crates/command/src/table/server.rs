//! Table entries of the commands on the server and the cluster, which the server executes.

use crate::introspect;
use crate::refused;
use crate::server_command::{ClusterCommand, ConfigCommand, ServerCommand};
use crate::spec::{flags, CommandSpec, Handler};

pub(super) static COMMANDS: [CommandSpec; 6] = [
    CommandSpec::new(
        "monitor",
        1,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Monitor),
    )
    .about(
        "server",
        "1.0.0",
        "O(1)",
        "Tells the connection of all commands that clients of the store send.",
        "",
    ),
    CommandSpec::new("info", -1, flags::ANYTIME, Handler::Server(ServerCommand::Info))
        .categories(&["@dangerous"])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .about(
            "server",
            "1.0.0",
            "O(1)",
            "Returns information about the server in sections.",
            "[section [section ...]]",
        ),
    CommandSpec::new("config", -2, flags::NONE, Handler::Container).subcommands(&CONFIG).about(
        "server",
        "2.0.0",
        "Depends on subcommand",
        "Reads and changes the configuration.",
        "",
    ),
    CommandSpec::new("time", 1, flags::ANYTIME | flags::FAST, Handler::Server(ServerCommand::Time))
        .tips(&["nondeterministic_output"])
        .about("server", "2.6.0", "O(1)", "Returns the server's time.", ""),
    CommandSpec::new(
        "shutdown",
        -1,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME | flags::NO_MULTI | flags::ALLOW_BUSY,
        Handler::Server(ServerCommand::Shutdown),
    )
    .about(
        "server",
        "1.0.0",
        "O(N) when saving",
        "Stops the server.",
        "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
    ),
    CommandSpec::new("cluster", -2, flags::NONE, Handler::Container).subcommands(&CLUSTER).about(
        "cluster",
        "3.0.0",
        "Depends on subcommand",
        "Returns information about the cluster.",
        "",
    ),
];

const fn config(command: ConfigCommand) -> Handler {
    Handler::Server(ServerCommand::Config(command))
}

static CONFIG: [CommandSpec; 5] = [
    CommandSpec::new(
        "config|get",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        config(ConfigCommand::Get),
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
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        config(ConfigCommand::Set),
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
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        config(ConfigCommand::ResetStat),
    )
    .about("server", "2.0.0", "O(1)", "Resets the statistics.", ""),
    CommandSpec::new("config|help", 2, flags::ANYTIME, Handler::Table(introspect::help)).about(
        "server",
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
    CommandSpec::new(
        "config|rewrite",
        2,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        config(ConfigCommand::Rewrite),
    )
    .about("server", "2.8.0", "O(1)", "Writes changed settings to the configuration file.", ""),
];

const fn cluster(command: ClusterCommand) -> Handler {
    Handler::Server(ServerCommand::Cluster(command))
}

static CLUSTER: [CommandSpec; 27] = [
    CommandSpec::new("cluster|slots", 2, flags::STALE, cluster(ClusterCommand::Slots))
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "3.0.0",
            "O(N) where N is the total number of Cluster nodes",
            "Lists slot ranges and the nodes that serve them.",
            "",
        ),
    CommandSpec::new("cluster|shards", 2, flags::STALE, cluster(ClusterCommand::Shards))
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "7.0.0",
            "O(N) where N is the total number of cluster nodes",
            "Lists slot ranges and the nodes that serve them, by shard.",
            "",
        ),
    CommandSpec::new("cluster|nodes", 2, flags::STALE, cluster(ClusterCommand::Nodes))
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "3.0.0",
            "O(N) where N is the total number of Cluster nodes",
            "Lists the nodes.",
            "",
        ),
    CommandSpec::new("cluster|info", 2, flags::STALE, cluster(ClusterCommand::Info))
        .tips(&["nondeterministic_output"])
        .about("cluster", "3.0.0", "O(1)", "Returns the cluster's state.", ""),
    CommandSpec::new("cluster|keyslot", 3, flags::STALE, cluster(ClusterCommand::KeySlot)).about(
        "cluster",
        "3.0.0",
        "O(N) where N is the number of bytes in the key",
        "Returns a key's slot.",
        "key",
    ),
    CommandSpec::new("cluster|myid", 2, flags::STALE, cluster(ClusterCommand::MyId)).about(
        "cluster",
        "3.0.0",
        "O(1)",
        "Returns this node's id.",
        "",
    ),
    CommandSpec::new("cluster|countkeysinslot", 3, flags::STALE, cluster(ClusterCommand::CountKeysInSlot))
        .about("cluster", "3.0.0", "O(1)", "Counts the keys of a slot.", "slot"),
    CommandSpec::new("cluster|getkeysinslot", 4, flags::STALE, cluster(ClusterCommand::GetKeysInSlot))
        .tips(&["nondeterministic_output"])
        .about(
            "cluster",
            "3.0.0",
            "O(log(N)) where N is the number of requested keys",
            "Lists keys of a slot.",
            "slot count",
        ),
    CommandSpec::new("cluster|help", 2, flags::ANYTIME, cluster(ClusterCommand::Help)).about(
        "cluster",
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
    CommandSpec::new(
        "cluster|replicas",
        3,
        flags::ADMIN | flags::STALE,
        Handler::Server(ServerCommand::Cluster(ClusterCommand::Replicas)),
    )
    .tips(&["nondeterministic_output"])
    .about(
        "cluster",
        "5.0.0",
        "O(1)",
        "Lists the replicas of a node; a store has none of its own.",
        "node-id",
    ),
    CommandSpec::new(
        "cluster|slaves",
        3,
        flags::ADMIN | flags::STALE,
        Handler::Server(ServerCommand::Cluster(ClusterCommand::Replicas)),
    )
    .tips(&["nondeterministic_output"])
    .about(
        "cluster",
        "3.0.0",
        "O(1)",
        "Lists the replicas of a node; a store has none of its own.",
        "node-id",
    ),
    CommandSpec::new(
        "cluster|links",
        2,
        flags::STALE,
        Handler::Server(ServerCommand::Cluster(ClusterCommand::Links)),
    )
    .tips(&["nondeterministic_output"])
    .about(
        "cluster",
        "7.0.0",
        "O(N) where N is the total number of Cluster nodes",
        "Lists connections of the cluster bus; there is none.",
        "",
    ),
    CommandSpec::new(
        "cluster|count-failure-reports",
        3,
        flags::ADMIN | flags::STALE,
        Handler::Table(refused::reply),
    )
    .tips(&["nondeterministic_output"])
    .about(
        "cluster",
        "3.0.0",
        "O(N) where N is the number of failure reports",
        "Refused: stores do not vote on failures of nodes.",
        "node-id",
    ),
    CommandSpec::new(
        "cluster|meet",
        -4,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "3.0.0",
        "O(1)",
        "Refused: a store joins by its own configuration.",
        "ip port [cluster-bus-port]",
    ),
    CommandSpec::new(
        "cluster|forget",
        3,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("cluster", "3.0.0", "O(1)", "Refused: ctl removes stores.", "node-id"),
    CommandSpec::new(
        "cluster|replicate",
        3,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("cluster", "3.0.0", "O(1)", "Refused: placement chooses the replicas.", "node-id"),
    CommandSpec::new(
        "cluster|failover",
        -2,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "3.0.0",
        "O(1)",
        "Refused: placement and the stores choose leaders.",
        "[FORCE | TAKEOVER]",
    ),
    CommandSpec::new(
        "cluster|addslots",
        -3,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "3.0.0",
        "O(N) where N is the total number of hash slot arguments",
        "Refused: regions have the slots.",
        "slot [slot ...]",
    ),
    CommandSpec::new(
        "cluster|addslotsrange",
        -4,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "7.0.0",
        "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        "Refused: regions have the slots.",
        "start-slot end-slot [start-slot end-slot ...]",
    ),
    CommandSpec::new(
        "cluster|delslots",
        -3,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "3.0.0",
        "O(N) where N is the total number of hash slot arguments",
        "Refused: regions have the slots.",
        "slot [slot ...]",
    ),
    CommandSpec::new(
        "cluster|delslotsrange",
        -4,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "7.0.0",
        "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        "Refused: regions have the slots.",
        "start-slot end-slot [start-slot end-slot ...]",
    ),
    CommandSpec::new(
        "cluster|setslot",
        -4,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "3.0.0",
        "O(1)",
        "Refused: regions have the slots.",
        "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
    ),
    CommandSpec::new(
        "cluster|flushslots",
        2,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("cluster", "3.0.0", "O(1)", "Refused: regions have the slots.", ""),
    CommandSpec::new(
        "cluster|bumpepoch",
        2,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .tips(&["nondeterministic_output"])
    .about("cluster", "3.0.0", "O(1)", "Refused: the meta region has the epochs.", ""),
    CommandSpec::new(
        "cluster|set-config-epoch",
        3,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("cluster", "3.0.0", "O(1)", "Refused: the meta region has the epochs.", "config-epoch"),
    CommandSpec::new(
        "cluster|saveconfig",
        2,
        flags::ADMIN | flags::STALE | flags::NO_ASYNC_LOADING,
        Handler::Table(refused::reply),
    )
    .about("cluster", "3.0.0", "O(1)", "Refused: the meta region keeps the cluster.", ""),
    CommandSpec::new(
        "cluster|reset",
        -2,
        flags::ADMIN | flags::NOSCRIPT | flags::STALE,
        Handler::Table(refused::reply),
    )
    .about(
        "cluster",
        "3.0.0",
        "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
        "Refused: ctl removes stores.",
        "[HARD | SOFT]",
    ),
];
