//! The arguments of commands that are shown nowhere: users' names and passwords.

use std::ops::Range;

use bytes::Bytes;
use command::{AclCommand, CommandSpec, ConfigCommand, Handler, ServerCommand};

/// The text in place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";
/// The text that stands for a password that is set.
pub const HIDDEN: &str = "(hidden)";

/// Returns the positions of the secrets of a command. They may lie behind its arguments.
pub fn positions(spec: &'static CommandSpec, args: &[Bytes]) -> Range<usize> {
    match spec.handler {
        Handler::Server(ServerCommand::Auth) => 1..args.len(),
        Handler::Server(ServerCommand::Hello) => {
            let mut at = 2;
            while let Some(option) = args.get(at) {
                if option.eq_ignore_ascii_case(b"auth") {
                    return at + 1..at + 3;
                }
                at += if option.eq_ignore_ascii_case(b"setname") { 2 } else { 1 };
            }
            0..0
        }
        Handler::Server(ServerCommand::Acl(AclCommand::SetUser)) => 2..args.len(),
        Handler::Server(ServerCommand::Config(ConfigCommand::Set)) => {
            let named = args.iter().skip(2).step_by(2).position(|name| is_secret_setting(name));
            named.map_or(0..0, |nth| 2 * nth + 3..args.len())
        }
        _ => 0..0,
    }
}

/// Returns true if the value of a setting is a secret.
pub fn is_secret_setting(name: &[u8]) -> bool {
    // Not all of them are settings here, but a client may set them.
    const SECRETS: [&[u8]; 5] =
        [b"requirepass", b"masterauth", b"tls-key-file-pass", b"tls-client-key-file-pass", b"zookeeper-auth"];
    SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
}

/// Returns bytes as text: UTF-8 as it is, and anything else with escapes.
pub fn shown(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), str::to_owned)
}
