//! Redis 7.0's error messages, word for word, because clients match on them.

use std::borrow::Cow;

use bytes::Bytes;
use resp::Reply;

use crate::spec::CommandSpec;

pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const SYNTAX: &str = "ERR syntax error";
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub const OUT_OF_RANGE: &str = "ERR value is out of range";
pub const BEYOND_INT: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
pub const BEYOND_LONG: &str =
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
pub const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
pub const NO_SUCH_KEY: &str = "ERR no such key";
pub const SAME_OBJECT: &str = "ERR source and destination objects are the same";
pub const SELECT_IN_CLUSTER: &str = "ERR SELECT is not allowed in cluster mode";
pub const DB_OUT_OF_RANGE: &str = "ERR DB index is out of range";
pub const OVERFLOW: &str = "ERR increment or decrement would overflow";
pub const DECREMENT_OVERFLOW: &str = "ERR decrement would overflow";
pub const NAN_OR_INFINITY: &str = "ERR increment would produce NaN or Infinity";
pub const STRING_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
pub const OFFSET_OUT_OF_RANGE: &str = "ERR offset is out of range";
pub const INVALID_CURSOR: &str = "ERR invalid cursor";

/// Returns the error of a command that would hold more than `bytes` in memory.
pub fn holds_too_much(bytes: u64) -> String {
    format!(
        "ERR the command needs more than {} MiB of memory at once: read or write the data in parts",
        bytes >> 20
    )
}

/// Maximum bytes of a name, and of all arguments together, in an error message.
const SHOWN_BYTES: usize = 128;

pub fn unknown_command(args: &[Bytes]) -> Reply {
    let name = args.first().map_or(&b""[..], |name| c_string(name));
    let mut shown = String::new();
    let mut shown_bytes = 0;
    for arg in args.iter().skip(1) {
        if shown_bytes >= SHOWN_BYTES {
            break;
        }
        let arg = c_string(arg);
        let arg = &arg[..arg.len().min(SHOWN_BYTES - shown_bytes)];
        shown_bytes += arg.len() + 3;
        shown.push('\'');
        shown.push_str(&String::from_utf8_lossy(arg));
        shown.push_str("' ");
    }
    let name = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES)]);
    one_line(format!("ERR unknown command '{name}', with args beginning with: {shown}"))
}

pub fn unknown_subcommand(container: &CommandSpec, name: &[u8]) -> Reply {
    let name = c_string(name);
    let name = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES)]);
    let container = container.name.to_uppercase();
    one_line(format!("ERR unknown subcommand '{name}'. Try {container} HELP."))
}

/// Returns the error for a subcommand, argument 1, whose number of arguments it refuses itself.
pub fn wrong_subcommand(args: &[Bytes]) -> Reply {
    let shown = |at: usize| {
        let arg = args.get(at).map(|arg| c_string(arg)).unwrap_or_default();
        String::from_utf8_lossy(&arg[..arg.len().min(SHOWN_BYTES)]).into_owned()
    };
    let (container, name) = (shown(0).to_uppercase(), shown(1));
    one_line(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
    ))
}

pub fn wrong_arity(name: &str) -> Reply {
    Reply::error(wrong_arity_text(name))
}

pub fn wrong_arity_text(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

pub fn invalid_expire(command: &str) -> Cow<'static, str> {
    format!("ERR invalid expire time in '{command}' command").into()
}

pub fn unsupported_option(option: &[u8]) -> Cow<'static, str> {
    match one_line(format!("ERR Unsupported option {}", String::from_utf8_lossy(c_string(option)))) {
        Reply::Error(text) => text,
        _ => unreachable!("one_line makes errors"),
    }
}

/// Returns the error for arguments that a subcommand does not take.
pub(crate) fn unknown_syntax(container: &str, subcommand: &[u8]) -> Cow<'static, str> {
    let name = c_string(subcommand);
    let name = String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES)]);
    shown(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."))
}

/// Returns the error for a missing stream or consumer group.
pub(crate) fn no_group(key: &[u8], group: &[u8]) -> Cow<'static, str> {
    shown(format!("NOGROUP No such key '{}' or consumer group '{}'", c_text(key), c_text(group)))
}

/// Returns an argument as it is shown in an error.
pub(crate) fn c_text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(c_string(bytes))
}

/// Returns the text of an error, which is one line.
pub(crate) fn shown(text: String) -> Cow<'static, str> {
    text.replace(['\r', '\n'], " ").into()
}

fn one_line(text: String) -> Reply {
    Reply::error(text.replace(['\r', '\n'], " "))
}

/// Returns the part before the first NUL. Redis formats these as C strings.
fn c_string(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(args: &[&[u8]]) -> String {
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect();
        match unknown_command(&args) {
            Reply::Error(text) => text.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_unknown_command_shows_at_most_128_bytes() {
        let long = [b'a'; 300];
        assert_eq!(
            unknown(&[&long, &long, b"more"]),
            format!("ERR unknown command '{0}', with args beginning with: '{0}' ", "a".repeat(128))
        );
        // 60 + 3, then 65 bytes are left: the third argument is cut to the remainder.
        let sixty = [b'b'; 60];
        assert_eq!(
            unknown(&[b"x", &sixty, &sixty, b"cdefgh", b"never"]),
            format!("ERR unknown command 'x', with args beginning with: '{0}' '{0}' 'cd' ", "b".repeat(60))
        );
    }

    #[test]
    fn an_error_is_one_line_and_ends_at_nul() {
        assert_eq!(
            unknown(&[b"a\r\nb\0c", b"d\ne"]),
            "ERR unknown command 'a  b', with args beginning with: 'd e' "
        );
    }
}
