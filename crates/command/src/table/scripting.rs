//! Table entries of the commands on scripts.

use crate::introspect;
use crate::scripting::ScriptCall;
use crate::server_command::{ScriptCommand, ServerCommand, SessionCommand};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};

const FLAGS: u32 =
    flags::NOSCRIPT | flags::STALE | flags::SKIP_MONITOR | flags::NO_MANDATORY_KEYS | flags::MOVABLEKEYS;
const FLAGS_RO: u32 = FLAGS | flags::READONLY;

const KEYS: &[KeySpec] =
    &[KeySpec { first: 3, last: KeySpec::COUNTED_OR_NONE, step: 1, flags: &["RW", "access", "update"] }];
const KEYS_RO: &[KeySpec] =
    &[KeySpec { first: 3, last: KeySpec::COUNTED_OR_NONE, step: 1, flags: &["RO", "access"] }];

const COMPLEXITY: &str = "Depends on the script that is executed.";
const BY_BODY: &str = "script numkeys [key [key ...]] [arg [arg ...]]";
const BY_DIGEST: &str = "sha1 numkeys [key [key ...]] [arg [arg ...]]";

const fn call(by_digest: bool, is_readonly: bool) -> Handler {
    Handler::Session(SessionCommand::Script(ScriptCall { by_digest, is_readonly }))
}

const fn script(command: ScriptCommand) -> Handler {
    Handler::Server(ServerCommand::Script(command))
}

pub(super) static COMMANDS: [CommandSpec; 5] = [
    CommandSpec::new("eval", -3, FLAGS, call(false, false)).keys(KEYS).categories(&["@scripting"]).about(
        "scripting",
        "2.6.0",
        COMPLEXITY,
        "Executes a Lua script.",
        BY_BODY,
    ),
    CommandSpec::new("evalsha", -3, FLAGS, call(true, false)).keys(KEYS).categories(&["@scripting"]).about(
        "scripting",
        "2.6.0",
        COMPLEXITY,
        "Executes a Lua script that the store knows, by its digest.",
        BY_DIGEST,
    ),
    CommandSpec::new("eval_ro", -3, FLAGS_RO, call(false, true))
        .keys(KEYS_RO)
        .categories(&["@scripting"])
        .about("scripting", "7.0.0", COMPLEXITY, "Executes a Lua script that only reads.", BY_BODY),
    CommandSpec::new("evalsha_ro", -3, FLAGS_RO, call(true, true))
        .keys(KEYS_RO)
        .categories(&["@scripting"])
        .about(
            "scripting",
            "7.0.0",
            COMPLEXITY,
            "Executes a Lua script that only reads and that the store knows, by its digest.",
            BY_DIGEST,
        ),
    CommandSpec::new("script", -2, flags::NONE, Handler::Container).subcommands(&SCRIPT).about(
        "scripting",
        "2.6.0",
        "Depends on the subcommand.",
        "Manages the scripts that the store knows.",
        "",
    ),
];

static SCRIPT: [CommandSpec; 6] = [
    CommandSpec::new("script|debug", 3, flags::NOSCRIPT, script(ScriptCommand::Debug))
        .categories(&["@scripting"])
        .about("scripting", "3.2.0", "O(1)", "Refused: there is no debugger.", "YES | SYNC | NO"),
    CommandSpec::new("script|exists", -3, flags::NOSCRIPT, script(ScriptCommand::Exists))
        .categories(&["@scripting"])
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .about(
            "scripting",
            "2.6.0",
            "O(N) where N is the number of digests",
            "Returns which of these scripts the store knows.",
            "sha1 [sha1 ...]",
        ),
    CommandSpec::new("script|flush", -2, flags::NOSCRIPT, script(ScriptCommand::Flush))
        .categories(&["@scripting"])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .about(
            "scripting",
            "2.6.0",
            "O(N) where N is the number of scripts",
            "Forgets all scripts.",
            "[ASYNC | SYNC]",
        ),
    CommandSpec::new("script|kill", 2, flags::NOSCRIPT | flags::ALLOW_BUSY, script(ScriptCommand::Kill))
        .categories(&["@scripting"])
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .about("scripting", "2.6.0", "O(1)", "Replies that no script is to be ended.", ""),
    CommandSpec::new("script|load", 3, flags::NOSCRIPT | flags::STALE, script(ScriptCommand::Load))
        .categories(&["@scripting"])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .about(
            "scripting",
            "2.6.0",
            "O(N) where N is the number of bytes of the script",
            "Makes the store know a script.",
            "script",
        ),
    CommandSpec::new("script|help", 2, flags::ANYTIME, Handler::Table(introspect::help))
        .categories(&["@scripting"])
        .about("scripting", "5.0.0", "O(1)", "Lists the subcommands.", ""),
];
