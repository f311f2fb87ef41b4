//! Table entries of the commands on connections and on the command table.

use crate::introspect;
use crate::server_command::{ClientCommand, ServerCommand};
use crate::spec::{flags, CommandSpec, Handler};

/// The flags of commands that begin or end a session.
const SESSION: u32 = flags::NOSCRIPT | flags::ANYTIME | flags::FAST | flags::NO_AUTH | flags::ALLOW_BUSY;

pub(super) static COMMANDS: [CommandSpec; 11] = [
    CommandSpec::new("ping", -1, flags::FAST, Handler::Server(ServerCommand::Ping))
        .categories(&["@connection"])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .about("connection", "1.0.0", "O(1)", "Replies PONG, or the message.", "[message]"),
    CommandSpec::new("echo", 2, flags::ANYTIME | flags::FAST, Handler::Server(ServerCommand::Echo))
        .categories(&["@connection"])
        .about("connection", "1.0.0", "O(1)", "Replies with the message.", "message"),
    CommandSpec::new("hello", -1, SESSION, Handler::Server(ServerCommand::Hello))
        .categories(&["@connection"])
        .about(
            "connection",
            "6.0.0",
            "O(1)",
            "Selects the protocol and authenticates.",
            "[protover [AUTH username password] [SETNAME clientname]]",
        ),
    CommandSpec::new("auth", -2, SESSION, Handler::Server(ServerCommand::Auth))
        .categories(&["@connection"])
        .about(
            "connection",
            "1.0.0",
            "O(N) where N is the number of passwords defined for the user",
            "Authenticates the connection.",
            "[username] password",
        ),
    CommandSpec::new("select", 2, flags::ANYTIME | flags::FAST, Handler::Server(ServerCommand::Select))
        .categories(&["@connection"])
        .about("connection", "1.0.0", "O(1)", "Selects the database.", "index"),
    CommandSpec::new("quit", -1, SESSION, Handler::Server(ServerCommand::Quit))
        .categories(&["@connection"])
        .about("connection", "1.0.0", "O(1)", "Closes the connection.", ""),
    CommandSpec::new("reset", 1, SESSION, Handler::Server(ServerCommand::Reset))
        .categories(&["@connection"])
        .about("connection", "6.2.0", "O(1)", "Resets the connection to its initial state.", ""),
    CommandSpec::new("client", -2, flags::NONE, Handler::Container).subcommands(&CLIENT).about(
        "connection",
        "2.4.0",
        "Depends on subcommand",
        "Inspects and changes client connections.",
        "",
    ),
    CommandSpec::new("command", -1, flags::ANYTIME, Handler::Table(introspect::command))
        .subcommands(&COMMAND)
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "2.8.13",
            "O(N) where N is the total number of Redis commands",
            "Returns information about commands.",
            "",
        ),
    CommandSpec::new("readonly", -1, flags::ANYTIME | flags::FAST, Handler::Server(ServerCommand::ReadOnly))
        .categories(&["@connection"])
        .about("cluster", "3.0.0", "O(1)", "Allows reads from followers on the connection.", ""),
    CommandSpec::new("readwrite", 1, flags::ANYTIME | flags::FAST, Handler::Server(ServerCommand::ReadWrite))
        .categories(&["@connection"])
        .about("cluster", "3.0.0", "O(1)", "Disables READONLY.", ""),
];

const fn client(command: ClientCommand) -> Handler {
    Handler::Server(ServerCommand::Client(command))
}

static CLIENT: [CommandSpec; 18] = [
    CommandSpec::new("client|id", 2, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::Id))
        .categories(&["@connection"])
        .about("connection", "5.0.0", "O(1)", "Returns the connection's id.", ""),
    CommandSpec::new("client|getname", 2, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::GetName))
        .categories(&["@connection"])
        .about("connection", "2.6.9", "O(1)", "Returns the connection's name.", ""),
    CommandSpec::new("client|setname", 3, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::SetName))
        .categories(&["@connection"])
        .about("connection", "2.6.9", "O(1)", "Sets the connection's name.", "connection-name"),
    CommandSpec::new("client|setinfo", 4, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::SetInfo))
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
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        client(ClientCommand::List),
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
    CommandSpec::new("client|info", 2, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::Info))
        .categories(&["@connection"])
        .tips(&["nondeterministic_output"])
        .about("connection", "6.2.0", "O(1)", "Returns information about this connection.", ""),
    CommandSpec::new(
        "client|kill",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        client(ClientCommand::Kill),
    )
    .categories(&["@connection"])
    .about(
        "connection",
        "2.4.0",
        "O(N) where N is the number of client connections",
        "Closes connections.",
        "[ID client-id] [ADDR ip:port] [LADDR ip:port] [SKIPME yes/no]",
    ),
    CommandSpec::new(
        "client|unblock",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        client(ClientCommand::Unblock),
    )
    .categories(&["@connection"])
    .about(
        "connection",
        "5.0.0",
        "O(N) where N is the number of clients that wait",
        "Ends the wait of a connection.",
        "client-id [TIMEOUT | ERROR]",
    ),
    CommandSpec::new(
        "client|tracking",
        -3,
        flags::NOSCRIPT | flags::ANYTIME,
        client(ClientCommand::Tracking),
    )
    .categories(&["@connection"])
    .about(
        "connection",
        "6.0.0",
        "O(1)",
        "Has the connection told of changes of the keys that it may have cached.",
        "ON | OFF [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    ),
    CommandSpec::new(
        "client|trackinginfo",
        2,
        flags::NOSCRIPT | flags::ANYTIME,
        client(ClientCommand::TrackingInfo),
    )
    .categories(&["@connection"])
    .about("connection", "6.2.0", "O(1)", "Returns how the connection is told of changes.", ""),
    CommandSpec::new("client|caching", 3, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::Caching))
        .categories(&["@connection"])
        .about(
            "connection",
            "6.0.0",
            "O(1)",
            "Tells whether the keys of the next command are cached.",
            "YES | NO",
        ),
    CommandSpec::new("client|getredir", 2, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::GetRedir))
        .categories(&["@connection"])
        .about(
            "connection",
            "6.0.0",
            "O(1)",
            "Returns the connection that is told of changes instead of this one.",
            "",
        ),
    CommandSpec::new("client|reply", 3, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::Reply))
        .categories(&["@connection"])
        .about(
            "connection",
            "3.2.0",
            "O(1)",
            "Turns replies to the connection on or off.",
            "ON | OFF | SKIP",
        ),
    CommandSpec::new(
        "client|no-evict",
        3,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        client(ClientCommand::NoEvict),
    )
    .categories(&["@connection"])
    .about("connection", "7.0.0", "O(1)", "Has no effect: clients are not evicted.", "ON | OFF"),
    CommandSpec::new("client|no-touch", 3, flags::NOSCRIPT | flags::ANYTIME, client(ClientCommand::NoTouch))
        .categories(&["@connection"])
        .about("connection", "7.2.0", "O(1)", "Has no effect: keys have no idle time.", "ON | OFF"),
    CommandSpec::new("client|help", 2, flags::ANYTIME, Handler::Table(introspect::help))
        .categories(&["@connection"])
        .about("connection", "5.0.0", "O(1)", "Lists the subcommands.", ""),
    CommandSpec::new(
        "client|pause",
        -3,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Client(ClientCommand::Pause)),
    )
    .categories(&["@connection"])
    .about(
        "connection",
        "2.9.50",
        "O(1)",
        "Stops executing the commands of clients for a time.",
        "timeout [WRITE | ALL]",
    ),
    CommandSpec::new(
        "client|unpause",
        2,
        flags::ADMIN | flags::NOSCRIPT | flags::ANYTIME,
        Handler::Server(ServerCommand::Client(ClientCommand::Unpause)),
    )
    .categories(&["@connection"])
    .about("connection", "6.2.0", "O(N) Where N is the number of paused clients", "Ends a pause.", ""),
];

static COMMAND: [CommandSpec; 7] = [
    CommandSpec::new("command|count", 2, flags::ANYTIME, Handler::Table(introspect::count))
        .categories(&["@connection"])
        .about("server", "2.8.13", "O(1)", "Counts the commands.", ""),
    CommandSpec::new("command|info", -2, flags::ANYTIME, Handler::Table(introspect::info))
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "2.8.13",
            "O(N) where N is the number of commands to look up",
            "Returns information about commands by name.",
            "[command-name [command-name ...]]",
        ),
    CommandSpec::new("command|docs", -2, flags::ANYTIME, Handler::Table(introspect::docs))
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "7.0.0",
            "O(N) where N is the number of commands to look up",
            "Documents commands by name.",
            "[command-name [command-name ...]]",
        ),
    CommandSpec::new("command|list", -2, flags::ANYTIME, Handler::Table(introspect::list))
        .categories(&["@connection"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "server",
            "7.0.0",
            "O(N) where N is the total number of Redis commands",
            "Lists the commands' names.",
            "[FILTERBY MODULE module-name | ACLCAT category | PATTERN pattern]",
        ),
    CommandSpec::new("command|getkeys", -4, flags::ANYTIME, Handler::Table(introspect::get_keys))
        .categories(&["@connection"])
        .about(
            "server",
            "2.8.13",
            "O(N) where N is the number of arguments to the command",
            "Finds the keys in a command.",
            "command [arg ...]",
        ),
    CommandSpec::new(
        "command|getkeysandflags",
        -4,
        flags::ANYTIME,
        Handler::Table(introspect::get_keys_and_flags),
    )
    .categories(&["@connection"])
    .about(
        "server",
        "7.0.0",
        "O(N) where N is the number of arguments to the command",
        "Finds the keys in a command and how it uses them.",
        "command [arg ...]",
    ),
    CommandSpec::new("command|help", 2, flags::ANYTIME, Handler::Table(introspect::help))
        .categories(&["@connection"])
        .about("server", "5.0.0", "O(1)", "Lists the subcommands.", ""),
];
