//! Commands and their replies, as scripts beside the code.
//!
//! The scripts in `golden/scripts` also hold for Redis: another test runs them against
//! `redis-server`. Those in `golden/time` cover effects of the clock, and details of this
//! implementation. `UPDATE_GOLDENFILES=1` rewrites the replies; the difference must then be
//! reviewed.

#[path = "golden/render.rs"]
mod render;

use std::error::Error;
use std::path::Path;

use bytes::Bytes;
use render::{arguments, render};
use resp::Reply;
use steelyard_command::entry::{apply, Builder};
use steelyard_command::{execute, resolve, Exec, Limits, Mode, Outcome};
use storage::{MemoryKeyspace, Txn};
use types::{SlotRange, Version, NEWEST_VERSION, OLDEST_VERSION};

const REGION: u64 = 1;
/// A time in September 2001: earlier than all future times in the scripts, and later than all past
/// ones.
const START_MS: u64 = 1_000_000_000_000;

/// One region's keyspace, a clock that moves only by `advance MS`, and a client's database and
/// protocol.
///
/// Every command goes through a log entry. A read-only command is first executed over a snapshot
/// too. Both replies must be equal, unless the read finds an expired key or picks at random.
struct Keyspace {
    engine: MemoryKeyspace,
    now_ms: u64,
    seed: u64,
    db: u16,
    /// The version of the cluster, which decides whether collections are packed.
    version: Version,
}

impl Keyspace {
    fn new(version: Version) -> Keyspace {
        Keyspace { engine: MemoryKeyspace::default(), now_ms: START_MS, seed: 0, db: 0, version }
    }

    /// Returns the outcome over a snapshot, or `None` for a command that needs an entry.
    fn read(&self, args: &[Bytes], resp3: bool) -> Option<Outcome> {
        let spec = resolve(args).ok().filter(|spec| spec.is_readonly())?;
        let mut txn = Txn::read_only(&self.engine, REGION);
        let mut exec = Exec {
            txn: &mut txn,
            now_ms: self.now_ms,
            seed: self.seed,
            db: self.db,
            mode: Mode::Read,
            slots: SlotRange::ALL,
            limits: Limits::default(),
            resp3,
        };
        Some(execute(spec, args, &mut exec).expect("memory does not fail"))
    }

    fn apply(&mut self, args: &[Bytes], resp3: bool) -> Reply {
        if let Err(refusal) = resolve(args) {
            return refusal;
        }
        let mut builder = Builder::new();
        builder.push(self.db, resp3, args);
        let mut txn = Txn::begin(&self.engine, REGION).expect("memory does not fail");
        let payload = builder.finish_as(self.version, self.now_ms, self.seed);
        let mut replies = apply(&payload, &mut txn, SlotRange::ALL).expect("the entry is whole");
        let writes = txn.finish().0;
        let mut recorded = Txn::begin(&self.engine, REGION).expect("memory does not fail");
        recorded.begin_record();
        let same = apply(&payload, &mut recorded, SlotRange::ALL).expect("the entry is whole");
        assert_eq!(
            (same, recorded.finish().0),
            (replies.clone(), writes.clone()),
            "a record changes nothing"
        );
        self.engine.write(writes);
        replies.pop().flatten().expect("one command, one reply")
    }
}

impl goldenscript::Runner for Keyspace {
    fn run(&mut self, command: &goldenscript::Command) -> Result<String, Box<dyn Error>> {
        let words = arguments(command);
        match words[0].as_str() {
            "advance" => {
                self.now_ms += words[1].parse::<u64>()?;
                return Ok(String::new());
            }
            "SELECT" => {
                self.db = words[1].parse()?;
                return Ok("OK".to_owned());
            }
            _ => {}
        }
        self.seed += 1;
        let args: Vec<Bytes> = words.into_iter().map(Bytes::from).collect();
        let resp3 = command.tags.contains("resp3");
        let chance =
            [&b"RANDOMKEY"[..], b"HRANDFIELD", b"SRANDMEMBER", b"ZRANDMEMBER"].contains(&&args[0][..]);
        let read = self.read(&args, resp3);
        let reply = self.apply(&args, resp3);
        let shown_reply = if resp3 { reply.clone() } else { as_resp2(reply.clone()) };
        let mut shown = render(&shown_reply, command.tags.contains("sorted"));
        match read {
            Some(Outcome::Reply(read)) if !chance => {
                assert_eq!(read, reply, "read and entry differ: {args:?}")
            }
            // Such a read is answered through an entry, so that the deletion is committed first.
            Some(Outcome::NeedsApply) => shown.push_str("   (by an entry)"),
            _ => {}
        }
        Ok(shown)
    }
}

/// Replaces doubles by the texts that RESP2 sends.
fn as_resp2(reply: Reply) -> Reply {
    match reply {
        Reply::Double(number) => Reply::Bulk(resp::double_text(number)),
        Reply::Array(items) => Reply::Array(items.into_iter().map(as_resp2).collect()),
        other => other,
    }
}

#[test]
fn the_scripts_give_the_answers_that_they_hold() {
    let folder =
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells where the package is"))
            .join("tests/golden");
    let mut played = 0;
    for part in ["scripts", "time"] {
        let entries = std::fs::read_dir(folder.join(part)).expect("the scripts are there");
        for entry in entries {
            let path = entry.expect("the scripts are there").path();
            for version in [OLDEST_VERSION, NEWEST_VERSION] {
                goldenscript::run(&mut Keyspace::new(version), &path)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            }
            played += 1;
        }
    }
    assert!(played > 8, "only {played} scripts");
}
