//! Table entries of the commands on transactions, which a client's session executes.

use crate::server_command::SessionCommand;
use crate::spec::{flags, CommandSpec, Handler, KeySpec};

const FLAGS: u32 = flags::NOSCRIPT | flags::ANYTIME | flags::FAST | flags::ALLOW_BUSY;

pub(super) static COMMANDS: [CommandSpec; 5] = [
    CommandSpec::new("multi", 1, FLAGS, Handler::Session(SessionCommand::Multi))
        .categories(&["@transaction"])
        .about("transactions", "1.2.0", "O(1)", "Begins a transaction.", ""),
    CommandSpec::new(
        "exec",
        1,
        flags::NOSCRIPT | flags::ANYTIME | flags::SKIP_SLOWLOG,
        Handler::Session(SessionCommand::Exec),
    )
    .categories(&["@transaction"])
    .about("transactions", "1.2.0", "Depends on the commands", "Executes the queued commands.", ""),
    CommandSpec::new("discard", 1, FLAGS, Handler::Session(SessionCommand::Discard))
        .categories(&["@transaction"])
        .about(
            "transactions",
            "2.0.0",
            "O(N) where N is the number of queued commands",
            "Drops the queued commands.",
            "",
        ),
    CommandSpec::new("watch", -2, FLAGS, Handler::Session(SessionCommand::Watch))
        .keys(&[KeySpec { first: 1, last: -1, step: 1, flags: &["RO"] }])
        .categories(&["@transaction"])
        .about(
            "transactions",
            "2.2.0",
            "O(1) for each key",
            "Makes the next transaction depend on keys.",
            "key [key ...]",
        ),
    CommandSpec::new("unwatch", 1, FLAGS, Handler::Session(SessionCommand::Unwatch))
        .categories(&["@transaction"])
        .about("transactions", "2.2.0", "O(1)", "Forgets the watched keys.", ""),
];
