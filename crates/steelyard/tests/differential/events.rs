//! Plays the golden scripts of `command` to both servers, and compares the events of keys that
//! their subscribers get after each command.

use std::error::Error;
use std::path::Path;

use resp::Reply;

use crate::connection::Connection;
use crate::render::arguments;
use crate::servers::{redis, steelyard, Server};

/// Commands whose events differ, because keys with an expiry time in the past are deleted at once:
/// see docs/COMPATIBILITY.md. Their keys expire in Redis when the next command finds them.
const DIFFERING: [&str; 4] = ["SET k v EXAT 1", "EXISTS k", "SET k w PXAT 1 GET", "GET k"];

struct Side {
    client: Connection,
    subscriber: Connection,
}

impl Side {
    fn new(server: &Server) -> Side {
        let mut client = server.connect();
        let mut subscriber = server.connect();
        client.call(&["FLUSHALL"]).expect("a reply");
        client.call(&["CONFIG", "SET", "notify-keyspace-events", "AKEn"]).expect("a reply");
        subscriber.call(&["PSUBSCRIBE", "__key*@*__:*"]).expect("a reply");
        Side { client, subscriber }
    }

    /// Executes a command. Returns the events that it caused.
    fn call(&mut self, words: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
        self.client.call(words)?;
        let mut bytes = bytes::BytesMut::new();
        resp::encode_request(&["PING"], &mut bytes);
        self.subscriber.send(&bytes)?;
        let mut events = Vec::new();
        loop {
            match self.subscriber.reply()? {
                Reply::Array(parts) if parts.len() == 4 => {
                    events.push(format!("{:?} {:?}", parts[2], parts[3]))
                }
                _ => return Ok(events),
            }
        }
    }
}

struct Both {
    ours: Side,
    theirs: Side,
    differing: Vec<String>,
    events: usize,
}

impl goldenscript::Runner for Both {
    fn run(&mut self, command: &goldenscript::Command) -> Result<String, Box<dyn Error>> {
        let words = arguments(command);
        let (ours, theirs) = (self.ours.call(&words)?, self.theirs.call(&words)?);
        if ours != theirs && !DIFFERING.contains(&words.join(" ").as_str()) {
            self.differing
                .push(format!("{}\n  steelyard:    {ours:?}\n  redis-server: {theirs:?}", words.join(" ")));
        }
        self.events += theirs.len();
        Ok(String::new())
    }
}

#[test]
fn the_commands_of_the_golden_scripts_cause_the_events_that_redis_tells() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let folder =
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells where the package is"))
            .join("../command/tests/golden/scripts");
    let (mut differing, mut events) = (Vec::new(), 0);
    for entry in std::fs::read_dir(folder).expect("the scripts are there") {
        let path = entry.expect("the scripts are there").path();
        let script = std::fs::read_to_string(&path).expect("the script is readable");
        let (ours, theirs) = (Side::new(&ours), Side::new(&theirs));
        let mut both = Both { ours, theirs, differing: Vec::new(), events: 0 };
        goldenscript::generate(&mut both, &script)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        differing.extend(both.differing.into_iter().map(|what| format!("{}: {what}", path.display())));
        events += both.events;
    }
    assert!(differing.is_empty(), "{} differ\n{}", differing.len(), differing.join("\n"));
    assert!(events > 500, "{events}");
}
