//! Table entries of the commands on scripts.

use crate::introspect;
use crate::scripting::{ScriptBy, ScriptCall};
use crate::server_command::{FunctionCommand, ScriptCommand, ServerCommand, SessionCommand};
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
const BY_FUNCTION: &str = "function numkeys [key [key ...]] [arg [arg ...]]";

const fn call(by: ScriptBy, is_readonly: bool) -> Handler {
    Handler::Session(SessionCommand::Script(ScriptCall { by, is_readonly }))
}

const fn function(command: FunctionCommand) -> Handler {
    Handler::Server(ServerCommand::Function(command))
}

const fn script(command: ScriptCommand) -> Handler {
    Handler::Server(ServerCommand::Script(command))
}

pub(super) static COMMANDS: [CommandSpec; 8] = [
    CommandSpec::new("eval", -3, FLAGS, call(ScriptBy::Body, false))
        .keys(KEYS)
        .categories(&["@scripting"])
        .about("scripting", "2.6.0", COMPLEXITY, "Executes a Lua script.", BY_BODY),
    CommandSpec::new("evalsha", -3, FLAGS, call(ScriptBy::Digest, false))
        .keys(KEYS)
        .categories(&["@scripting"])
        .about(
            "scripting",
            "2.6.0",
            COMPLEXITY,
            "Executes a Lua script that the store knows, by its digest.",
            BY_DIGEST,
        ),
    CommandSpec::new("eval_ro", -3, FLAGS_RO, call(ScriptBy::Body, true))
        .keys(KEYS_RO)
        .categories(&["@scripting"])
        .about("scripting", "7.0.0", COMPLEXITY, "Executes a Lua script that only reads.", BY_BODY),
    CommandSpec::new("evalsha_ro", -3, FLAGS_RO, call(ScriptBy::Digest, true))
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
    CommandSpec::new("fcall", -3, FLAGS, call(ScriptBy::Function, false))
        .keys(KEYS)
        .categories(&["@scripting"])
        .about(
            "scripting",
            "7.0.0",
            "Depends on the function that is executed.",
            "Executes a function of a library.",
            BY_FUNCTION,
        ),
    CommandSpec::new("fcall_ro", -3, FLAGS_RO, call(ScriptBy::Function, true))
        .keys(KEYS_RO)
        .categories(&["@scripting"])
        .about(
            "scripting",
            "7.0.0",
            "Depends on the function that is executed.",
            "Executes a function of a library that only reads.",
            BY_FUNCTION,
        ),
    CommandSpec::new("function", -2, flags::NONE, Handler::Container).subcommands(&FUNCTION).about(
        "scripting",
        "7.0.0",
        "Depends on the subcommand.",
        "Manages the libraries of functions.",
        "",
    ),
];

const CHANGES: u32 = flags::NOSCRIPT | flags::WRITE;
const TO_ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

static FUNCTION: [CommandSpec; 9] = [
    CommandSpec::new("function|delete", 3, CHANGES, function(FunctionCommand::Delete))
        .categories(&["@scripting"])
        .tips(TO_ALL)
        .about("scripting", "7.0.0", "O(1)", "Deletes a library.", "library-name"),
    CommandSpec::new("function|dump", 2, flags::NOSCRIPT, function(FunctionCommand::Dump))
        .categories(&["@scripting"])
        .about(
            "scripting",
            "7.0.0",
            "O(N) where N is the number of libraries",
            "Returns all libraries in Redis's serialization.",
            "",
        ),
    CommandSpec::new("function|flush", -2, CHANGES, function(FunctionCommand::Flush))
        .categories(&["@scripting"])
        .tips(TO_ALL)
        .about(
            "scripting",
            "7.0.0",
            "O(N) where N is the number of libraries",
            "Deletes all libraries.",
            "[ASYNC | SYNC]",
        ),
    CommandSpec::new(
        "function|kill",
        2,
        flags::NOSCRIPT | flags::ALLOW_BUSY,
        function(FunctionCommand::Kill),
    )
    .categories(&["@scripting"])
    .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
    .about("scripting", "7.0.0", "O(1)", "Replies that no function is to be ended.", ""),
    CommandSpec::new("function|list", -2, flags::NOSCRIPT, function(FunctionCommand::List))
        .categories(&["@scripting"])
        .tips(&["nondeterministic_output_order"])
        .about(
            "scripting",
            "7.0.0",
            "O(N) where N is the number of functions",
            "Returns the libraries with their functions.",
            "[LIBRARYNAME library-name-pattern] [WITHCODE]",
        ),
    CommandSpec::new("function|load", -3, CHANGES | flags::DENYOOM, function(FunctionCommand::Load))
        .categories(&["@scripting"])
        .tips(TO_ALL)
        .about(
            "scripting",
            "7.0.0",
            "O(N) where N is the number of bytes of the code",
            "Creates a library.",
            "[REPLACE] function-code",
        ),
    CommandSpec::new("function|restore", -3, CHANGES | flags::DENYOOM, function(FunctionCommand::Restore))
        .categories(&["@scripting"])
        .tips(TO_ALL)
        .about(
            "scripting",
            "7.0.0",
            "O(N) where N is the number of libraries",
            "Creates the libraries of a serialization.",
            "serialized-value [FLUSH | APPEND | REPLACE]",
        ),
    CommandSpec::new(
        "function|stats",
        2,
        flags::NOSCRIPT | flags::ALLOW_BUSY,
        function(FunctionCommand::Stats),
    )
    .categories(&["@scripting"])
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .about("scripting", "7.0.0", "O(1)", "Counts the libraries and functions.", ""),
    CommandSpec::new("function|help", 2, flags::ANYTIME, Handler::Table(introspect::help))
        .categories(&["@scripting"])
        .about("scripting", "7.0.0", "O(1)", "Lists the subcommands.", ""),
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
