//! Table entries of the commands on connections, which the server executes.

use crate::spec::{flags, CommandSpec, Handler};

pub(super) static COMMANDS: [CommandSpec; 11] = [
    CommandSpec::new("ping", -1, flags::FAST, Handler::Server)
        .categories(&["@connection"])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about("connection", "1.0.0", "O(1)", "Replies PONG, or the message.", "[message]"),
    CommandSpec::new("echo", 2, flags::LOADING | flags::STALE | flags::FAST, Handler::Server)
        .categories(&["@connection"])
        .about("connection", "1.0.0", "O(1)", "Replies with the message.", "message"),
    CommandSpec::new(
        "hello",
        -1,
        flags::NOSCRIPT | flags::LOADING | flags::STALE | flags::FAST | flags::NO_AUTH | flags::ALLOW_BUSY,
        Handler::Server,
    )
    .categories(&["@connection"])
    .about(
        "connection",
        "6.0.0",
        "O(1)",
        "Selects the protocol and authenticates.",
        "[protover [AUTH username password] [SETNAME clientname]]",
    ),
    CommandSpec::new(
        "auth",
        -2,
        flags::NOSCRIPT | flags::LOADING | flags::STALE | flags::FAST | flags::NO_AUTH | flags::ALLOW_BUSY,
        Handler::Server,
    )
    .categories(&["@connection"])
    .about(
        "connection",
        "1.0.0",
        "O(N) where N is the number of passwords defined for the user",
        "Authenticates the connection.",
        "[username] password",
    ),
    CommandSpec::new("select", 2, flags::LOADING | flags::STALE | flags::FAST, Handler::Server)
        .categories(&["@connection"])
        .about("connection", "1.0.0", "O(1)", "Selects the database.", "index"),
    CommandSpec::new(
        "quit",
        -1,
        flags::NOSCRIPT | flags::LOADING | flags::STALE | flags::FAST | flags::NO_AUTH | flags::ALLOW_BUSY,
        Handler::Server,
    )
    .categories(&["@connection"])
    .about("connection", "1.0.0", "O(1)", "Closes the connection.", ""),
    CommandSpec::new(
        "reset",
        1,
        flags::NOSCRIPT | flags::LOADING | flags::STALE | flags::FAST | flags::NO_AUTH | flags::ALLOW_BUSY,
        Handler::Server,
    )
    .categories(&["@connection"])
    .about("connection", "6.2.0", "O(1)", "Resets the connection to its initial state.", ""),
    CommandSpec::new("client", -2, flags::NONE, Handler::Container(&CLIENT)).about(
        "connection",
        "2.4.0",
        "Depends on subcommand",
        "Inspects and changes client connections.",
        "",
    ),
    CommandSpec::new("command", -1, flags::LOADING | flags::STALE, Handler::Container(&COMMAND))
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "2.8.13",
            "O(N) where N is the total number of Redis commands",
            "Returns information about commands.",
            "",
        ),
    CommandSpec::new("readonly", 1, flags::LOADING | flags::STALE | flags::FAST, Handler::Server)
        .categories(&["@connection"])
        .about("cluster", "3.0.0", "O(1)", "Allows reads from followers on the connection.", ""),
    CommandSpec::new("readwrite", 1, flags::LOADING | flags::STALE | flags::FAST, Handler::Server)
        .categories(&["@connection"])
        .about("cluster", "3.0.0", "O(1)", "Disables READONLY.", ""),
];

static CLIENT: [CommandSpec; 8] = [
    CommandSpec::new("client|id", 2, flags::NOSCRIPT | flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about("connection", "5.0.0", "O(1)", "Returns the connection's id.", ""),
    CommandSpec::new("client|getname", 2, flags::NOSCRIPT | flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about("connection", "2.6.9", "O(1)", "Returns the connection's name.", ""),
    CommandSpec::new("client|setname", 3, flags::NOSCRIPT | flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about("connection", "2.6.9", "O(1)", "Sets the connection's name.", "connection-name"),
    CommandSpec::new("client|setinfo", 4, flags::NOSCRIPT | flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about(
            "connection",
            "7.2.0",
            "O(1)",
            "Records the client library's name or version.",
            "LIB-NAME libname | LIB-VER libver",
        ),
    CommandSpec::new(
        "client|list",
        -2,
        flags::ADMIN | flags::NOSCRIPT | flags::LOADING | flags::STALE,
        Handler::Server,
    )
    .categories(&["@connection"])
    .tips(&["nondeterministic_output"])
    .about(
        "connection",
        "2.4.0",
        "O(N) where N is the number of client connections",
        "Lists the connections.",
        "[TYPE type] [ID client-id [client-id ...]]",
    ),
    CommandSpec::new("client|info", 2, flags::NOSCRIPT | flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .tips(&["nondeterministic_output"])
        .about("connection", "6.2.0", "O(1)", "Returns information about this connection.", ""),
    CommandSpec::new(
        "client|kill",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::LOADING | flags::STALE,
        Handler::Server,
    )
    .categories(&["@connection"])
    .about(
        "connection",
        "2.4.0",
        "O(N) where N is the number of client connections",
        "Closes connections.",
        "[ID client-id] [ADDR ip:port] [LADDR ip:port] [SKIPME yes/no]",
    ),
    CommandSpec::new("client|help", 2, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about("connection", "5.0.0", "O(1)", "Lists the subcommands.", ""),
];

static COMMAND: [CommandSpec; 7] = [
    CommandSpec::new("command|count", 2, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about("server", "2.8.13", "O(1)", "Counts the commands.", ""),
    CommandSpec::new("command|info", -2, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "2.8.13",
            "O(N) where N is the number of commands to look up",
            "Returns information about commands by name.",
            "[command-name [command-name ...]]",
        ),
    CommandSpec::new("command|docs", -2, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "7.0.0",
            "O(N) where N is the number of commands to look up",
            "Documents commands by name.",
            "[command-name [command-name ...]]",
        ),
    CommandSpec::new("command|list", -2, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "7.0.0",
            "O(N) where N is the total number of Redis commands",
            "Lists the commands' names.",
            "[FILTERBY MODULE module-name | ACLCAT category | PATTERN pattern]",
        ),
    CommandSpec::new("command|getkeys", -4, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about(
            "server",
            "2.8.13",
            "O(N) where N is the number of arguments to the command",
            "Finds the keys in a command.",
            "command [arg ...]",
        ),
    CommandSpec::new("command|getkeysandflags", -4, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about(
            "server",
            "7.0.0",
            "O(N) where N is the number of arguments to the command",
            "Finds the keys in a command and how it uses them.",
            "command [arg ...]",
        ),
    CommandSpec::new("command|help", 2, flags::LOADING | flags::STALE, Handler::Server)
        .categories(&["@connection"])
        .about("server", "5.0.0", "O(1)", "Lists the subcommands.", ""),
];
