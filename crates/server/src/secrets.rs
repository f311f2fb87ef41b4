//! The arguments of commands that are shown nowhere: users' names and passwords.

use std::ops::Range;

use bytes::Bytes;
use command::{AclCommand, CommandSpec, ConfigCommand, Handler, ServerCommand};

/// The text in place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";

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
            const SECRETS: [&[u8]; 2] = [b"requirepass", b"tls-key-file-pass"];
            let secret = |name: &Bytes| SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
            let named = args.iter().skip(2).step_by(2).position(secret);
            named.map_or(0..0, |nth| 2 * nth + 3..args.len())
        }
        _ => 0..0,
    }
}
