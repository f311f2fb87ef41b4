//! Table entries of `ACL`.

use crate::introspect;
use crate::server_command::{AclCommand, ServerCommand};
use crate::spec::{flags, CommandSpec, Handler};

/// The flags of all subcommands, and of those that read or change users.
const OPEN: u32 = flags::NOSCRIPT | flags::ANYTIME;
const ADMIN: u32 = OPEN | flags::ADMIN;

pub(super) static COMMANDS: [CommandSpec; 1] = [CommandSpec::new("acl", -2, flags::NONE, Handler::Container)
    .subcommands(&ACL)
    .about("server", "6.0.0", "Depends on subcommand.", "Manages users and their permissions.", "")];

const fn acl(command: AclCommand) -> Handler {
    Handler::Server(ServerCommand::Acl(command))
}

static ACL: [CommandSpec; 13] = [
    CommandSpec::new("acl|cat", -2, OPEN, acl(AclCommand::Cat)).about(
        "server",
        "6.0.0",
        "O(1) since the categories and commands are a fixed set.",
        "Lists the categories, or the commands of one.",
        "[categoryname]",
    ),
    CommandSpec::new("acl|deluser", -3, ADMIN, acl(AclCommand::DelUser)).about(
        "server",
        "6.0.0",
        "O(1) amortized time considering the typical user.",
        "Deletes users, and ends their connections.",
        "username [username ...]",
    ),
    CommandSpec::new("acl|dryrun", -4, ADMIN, acl(AclCommand::DryRun)).about(
        "server",
        "7.0.0",
        "O(1).",
        "Tells whether a user may execute a command, without executing it.",
        "username command [arg [arg ...]]",
    ),
    CommandSpec::new("acl|genpass", -2, OPEN, acl(AclCommand::GenPass)).about(
        "server",
        "6.0.0",
        "O(1)",
        "Generates a password of 256 bits, or of another number of bits.",
        "[bits]",
    ),
    CommandSpec::new("acl|getuser", 3, ADMIN, acl(AclCommand::GetUser)).about(
        "server",
        "6.0.0",
        "O(N). Where N is the number of password, command and pattern rules that the user has.",
        "Returns a user's rules.",
        "username",
    ),
    CommandSpec::new("acl|list", 2, ADMIN, acl(AclCommand::List)).about(
        "server",
        "6.0.0",
        "O(N). Where N is the number of configured users.",
        "Lists all users with their rules.",
        "",
    ),
    CommandSpec::new("acl|load", 2, ADMIN, acl(AclCommand::Load)).about(
        "server",
        "6.0.0",
        "O(N). Where N is the number of configured users.",
        "Replaces all users by those of the store's file of users.",
        "",
    ),
    CommandSpec::new("acl|log", -2, ADMIN, acl(AclCommand::Log)).about(
        "server",
        "6.0.0",
        "O(N) with N being the number of entries shown.",
        "Lists recent denials, or forgets them.",
        "[count | RESET]",
    ),
    CommandSpec::new("acl|save", 2, ADMIN, acl(AclCommand::Save)).about(
        "server",
        "6.0.0",
        "O(N). Where N is the number of configured users.",
        "Writes all users to the store's file of users.",
        "",
    ),
    CommandSpec::new("acl|setuser", -3, ADMIN, acl(AclCommand::SetUser)).about(
        "server",
        "6.0.0",
        "O(N). Where N is the number of rules provided.",
        "Creates or changes a user.",
        "username [rule [rule ...]]",
    ),
    CommandSpec::new("acl|users", 2, ADMIN, acl(AclCommand::Users)).about(
        "server",
        "6.0.0",
        "O(N). Where N is the number of configured users.",
        "Lists the names of all users.",
        "",
    ),
    CommandSpec::new("acl|whoami", 2, OPEN, acl(AclCommand::WhoAmI)).about(
        "server",
        "6.0.0",
        "O(1)",
        "Returns the name of the connection's user.",
        "",
    ),
    CommandSpec::new("acl|help", 2, flags::ANYTIME, Handler::Table(introspect::help)).about(
        "server",
        "6.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
