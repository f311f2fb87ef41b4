//! `DEBUG`: the subcommands that tests of clients use. The setting `enable-debug-command` permits
//! them.
//!
//! `SLEEP` delays the answer to its own client only. Redis stops the whole server; here that would
//! stop heartbeats, elections and the clients of other regions, too.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use node::session::Own;
use node::Answer;
use resp::{Protocol, Reply};

use super::Connected;
use crate::config::DebugCommand;
use crate::connections::ClientEntry;
use crate::store::Store;

/// Maximum bytes of a message that `DEBUG LOG` writes.
const MESSAGE_BYTES_MAX: usize = 1024;
/// Maximum length of a number of seconds that is read.
const SECONDS_LEN_MAX: usize = 64;

const HELP: [(&str, &str); 5] = [
    ("ERROR <string>", "Replies with this text as an error."),
    ("LOG <message>", "Writes the message to the log of this store."),
    (
        "PROTOCOL <type>",
        "Replies with a value of the type string, integer, double, bignum, null, array, set, map, attrib, push, \
         verbatim, true or false.",
    ),
    (
        "SET-ACTIVE-EXPIRE <0|1>",
        "With 0 this store does not look for expired keys in the regions that it leads. They are deleted when \
         they are read.",
    ),
    ("SLEEP <seconds>", "Replies after this time. Other clients are served meanwhile."),
];

const CRASHES: &str = "a store is ended by signals";
const LAYOUT: &str = "values are rows, and have no such layout";
const WHOLE_DATA: &str = "'steelyard ctl check' compares the replicas of a region by checksums";
const INTERNALS: &str = "Steelyard has no such part";

/// The other subcommands of Redis, each with the reason for which it is refused.
const REFUSED: [(&str, &str); 32] = [
    ("aof-flush-sleep", INTERNALS),
    ("assert", CRASHES),
    ("change-repl-id", INTERNALS),
    ("client-eviction", INTERNALS),
    ("clusterlink", INTERNALS),
    ("config-rewrite-force-all", "CONFIG REWRITE writes the settings that CONFIG SET has changed"),
    ("crash-and-recover", CRASHES),
    ("digest", WHOLE_DATA),
    ("digest-value", WHOLE_DATA),
    ("drop-cluster-packet-filter", INTERNALS),
    ("htstats", LAYOUT),
    ("htstats-key", LAYOUT),
    ("leak", CRASHES),
    ("listpack", LAYOUT),
    ("loadaof", "the log is read at a start"),
    ("mallctl", INTERNALS),
    ("mallctl-str", INTERNALS),
    ("object", "use OBJECT ENCODING and MEMORY USAGE"),
    ("oom", CRASHES),
    ("panic", CRASHES),
    ("pause-cron", "DEBUG SET-ACTIVE-EXPIRE stops the search for expired keys"),
    ("populate", "every key is written through the log"),
    ("quicklist", LAYOUT),
    ("quicklist-packed-threshold", LAYOUT),
    ("reload", "SAVE writes the rows in RAM to flash, and a start reads the log"),
    ("replicate", "every replica executes the log"),
    ("replybuffer", INTERNALS),
    ("restart", CRASHES),
    ("sdslen", LAYOUT),
    ("segfault", CRASHES),
    ("set-skip-checksum-validation", "checksums are always checked"),
    ("structsize", LAYOUT),
];

/// Returns the error for a client that may not use `DEBUG`.
pub fn refusal(store: &Store, entry: &ClientEntry) -> Option<Reply> {
    let is_allowed = match store.config.enable_debug_command {
        DebugCommand::No => false,
        DebugCommand::Local => entry.peer.ip().to_canonical().is_loopback(),
        DebugCommand::Yes => true,
    };
    (!is_allowed).then(|| {
        Reply::error(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it \
             from a local connection, otherwise you need to set this option in the configuration file, and then \
             restart the server.",
        )
    })
}

pub fn run(store: &Store, client: &Connected<'_>, args: &[Bytes]) -> Own {
    let subcommand = args[1].to_ascii_lowercase();
    Own::Reply(match (&subcommand[..], &args[2..]) {
        (b"sleep", [_]) => return Own::Later,
        (b"error", [text]) => Reply::error(String::from_utf8_lossy(text).into_owned()),
        (b"log", [message]) => {
            let shown = String::from_utf8_lossy(&message[..message.len().min(MESSAGE_BYTES_MAX)]);
            tracing::info!(client = client.entry.id, message = %shown.escape_debug(), "DEBUG LOG");
            Reply::OK
        }
        (b"set-active-expire", [switch]) => {
            let is_on = resp::parse_integer(switch).is_some_and(|number| number != 0);
            store.engine.upkeep().is_expiry_active.store(is_on, Ordering::Relaxed);
            Reply::OK
        }
        (b"protocol", [kind]) => return protocol(kind, client.context.protocol),
        (b"help", []) => help(),
        (name, _) => match REFUSED.iter().find(|(refused, _)| refused.as_bytes() == name) {
            Some((name, reason)) => {
                Reply::error(format!("ERR DEBUG {} is not supported: {reason}", name.to_uppercase()))
            }
            None => command::wrong_subcommand(args),
        },
    })
}

fn help() -> Reply {
    let mut lines = vec!["DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:".to_owned()];
    for (subcommand, summary) in HELP {
        lines.extend([subcommand.to_owned(), format!("    {summary}")]);
    }
    lines.extend(["HELP".to_owned(), "    Prints this help.".to_owned()]);
    Reply::Array(lines.into_iter().map(|line| Reply::Simple(line.into())).collect())
}

/// Waits for the time that `DEBUG SLEEP` names.
pub async fn sleep(args: &[Bytes]) -> Reply {
    tokio::time::sleep(seconds(&args[2])).await;
    Reply::OK
}

/// Returns the number of seconds at the beginning of a text. Returns zero if there is none, or if
/// it is negative or too large.
fn seconds(text: &[u8]) -> Duration {
    let text = text.trim_ascii_start();
    let text = &text[..text.len().min(SECONDS_LEN_MAX)];
    let number = (1..=text.len())
        .rev()
        .find_map(|end| std::str::from_utf8(&text[..end]).ok()?.parse::<f64>().ok())
        .unwrap_or(0.0);
    Duration::try_from_secs_f64(number).unwrap_or(Duration::ZERO)
}

#[allow(clippy::approx_constant, reason = "the number that Redis gives")]
fn protocol(kind: &[u8], protocol: Protocol) -> Own {
    let three = || (0..3).map(Reply::Int);
    Own::Reply(match kind.to_ascii_lowercase().as_slice() {
        b"string" => Reply::bulk("Hello World"),
        b"integer" => Reply::Int(12345),
        b"double" => Reply::Double(3.141),
        b"bignum" => Reply::BigNumber("1234567999999999999999999999999999999".into()),
        b"null" => Reply::Nil,
        b"array" => Reply::Array(three().collect()),
        b"set" => Reply::Set(three().collect()),
        b"map" => Reply::Map((0..3).map(|number| (Reply::Int(number), Reply::Bool(number == 1))).collect()),
        b"attrib" => {
            let reply = Reply::bulk("Some real reply following the attribute");
            if protocol == Protocol::Resp2 {
                return Own::Reply(reply);
            }
            let attribute = b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n";
            let mut encoded = bytes::BytesMut::from(&attribute[..]);
            resp::encode(&reply, protocol, &mut encoded);
            return Own::Several(vec![Answer::Encoded(encoded.freeze())]);
        }
        b"push" if protocol == Protocol::Resp2 => Reply::error("ERR RESP2 is not supported by this command"),
        b"push" => {
            let push = Reply::Push(vec![Reply::bulk("server-cpu-usage"), Reply::Int(42)]);
            let reply = Reply::bulk("Some real reply following the push reply");
            return Own::Several(vec![push.into(), reply.into()]);
        }
        b"verbatim" => Reply::Verbatim("txt", "This is a verbatim\nstring".into()),
        b"true" => Reply::Bool(true),
        b"false" => Reply::Bool(false),
        _ => Reply::error(
            "ERR Wrong protocol type name. Please use one of the following: \
             string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_far_as_they_are_numbers() {
        for (text, millis) in [
            ("0.25", 250),
            (" 0.25", 250),
            ("2", 2000),
            ("1.5s", 1500),
            ("x", 0),
            ("", 0),
            ("-1", 0),
            ("nan", 0),
            ("1e300", 0),
            ("inf", 0),
        ] {
            assert_eq!(seconds(text.as_bytes()).as_millis(), millis, "{text}");
        }
        assert_eq!(seconds(&[0xff; 100]), Duration::ZERO);
    }

    #[test]
    fn no_subcommand_is_both_offered_and_refused() {
        assert!(REFUSED.is_sorted());
        for (subcommand, _) in HELP {
            let name = subcommand.split(' ').next().unwrap().to_lowercase();
            assert!(REFUSED.iter().all(|(refused, _)| *refused != name), "{name}");
        }
    }
}
