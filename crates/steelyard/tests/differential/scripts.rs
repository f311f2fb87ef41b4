//! Scripts: a corpus about the language, its libraries and the conversions of replies, and random
//! commands that scripts call. Every reply must be the same.

use std::net::SocketAddr;

use resp::Reply;

use crate::connection::Connection;
use crate::generator::{Generator, Request, Tags, Times};
use crate::known::KNOWN;

/// One script in each line.
const CORPUS: &str = include_str!("scripts.txt");

/// Scripts that call the command in their arguments.
const CALLS: [&str; 4] = [
    "return redis.pcall(unpack(ARGV))",
    "redis.setresp(3) return redis.pcall(unpack(ARGV))",
    "local r = redis.pcall(unpack(ARGV)) redis.pcall('PING') return r",
    "local ok, r = pcall(function() return redis.pcall(unpack(ARGV)) end) return r",
];

/// A connection to each server.
pub struct Scripts {
    ours: Connection,
    theirs: Connection,
    pub compared: usize,
}

impl Scripts {
    pub fn new(ours: SocketAddr, theirs: SocketAddr, resp3: bool) -> Scripts {
        let open = |address| Connection::open(address).expect("the server accepts connections");
        let mut scripts = Scripts { ours: open(ours), theirs: open(theirs), compared: 0 };
        scripts.both(&[b"FLUSHALL".to_vec()]);
        if resp3 {
            scripts.both(&[b"HELLO".to_vec(), b"3".to_vec()]);
        }
        scripts
    }

    fn both(&mut self, args: &[Vec<u8>]) -> (Reply, Reply) {
        let lost = |error: std::io::Error| Reply::error(format!("(no reply: {error})"));
        (self.ours.call(args).unwrap_or_else(lost), self.theirs.call(args).unwrap_or_else(lost))
    }

    /// Compares the scripts of the corpus.
    ///
    /// # Errors
    /// Returns the mismatches.
    pub fn run_corpus(&mut self) -> Result<(), String> {
        let mut mismatches = String::new();
        for line in CORPUS.lines() {
            let args = ["EVAL", line, "0"].map(|word| word.as_bytes().to_vec());
            let (ours, theirs) = self.both(&args);
            self.compared += 1;
            if ours != theirs {
                mismatches += &format!("{line}\n  steelyard:    {ours:?}\n  redis-server: {theirs:?}\n");
            }
        }
        match mismatches.is_empty() {
            true => Ok(()),
            false => Err(mismatches),
        }
    }

    /// Compares random commands that scripts call.
    ///
    /// # Errors
    /// Returns the first mismatch.
    pub fn run_commands(&mut self, seed: u64, commands: usize) -> Result<(), String> {
        let mut called = Called::new(seed);
        (0..commands).try_for_each(|_| self.run_command(&mut called))
    }

    /// Compares the next of these commands.
    ///
    /// # Errors
    /// Returns a mismatch.
    pub fn run_command(&mut self, called: &mut Called) -> Result<(), String> {
        let request = called.generator.inner_command();
        let mut args = vec![b"EVAL".to_vec(), CALLS[self.compared % CALLS.len()].into()];
        match &called.tag {
            Some(tag) => args.extend([b"1".to_vec(), tag.clone()]),
            None => args.push(b"0".to_vec()),
        }
        args.extend(request.args.iter().cloned());
        let (ours, theirs) = self.both(&args);
        self.check(&request, &ours, &theirs).map_err(|error| format!("seed {}: {error}", called.seed))?;
        self.compared += 1;
        Ok(())
    }

    fn check(&mut self, request: &Request, ours: &Reply, theirs: &Reply) -> Result<(), String> {
        if request.compare.agrees(ours, theirs) {
            return Ok(());
        }
        let Some(known) = KNOWN.iter().find(|known| (known.applies)(request, ours, theirs)) else {
            return Err(format!(
                "{:?}\n  steelyard:    {ours:?}\n  redis-server: {theirs:?}",
                shown(request)
            ));
        };
        if let Some(key) = (known.key_to_delete)(request).and_then(|at| request.args.get(at)) {
            let deleted = [b"DEL".to_vec(), key.clone()];
            self.both(&deleted);
        }
        Ok(())
    }
}

/// Random commands that scripts may call.
pub struct Called {
    seed: u64,
    generator: Generator,
    /// A key in the slot of all keys. The scripts declare it.
    tag: Option<Vec<u8>>,
}

impl Called {
    pub fn new(seed: u64) -> Called {
        let times = if seed % 2 == 0 { Times::Instants } else { Times::Relative };
        Called { seed, generator: Generator::new(seed, times), tag: None }
    }

    /// Gives every key a hash tag.
    pub fn tagged(mut self, tags: Tags) -> Called {
        let mut tag = Vec::new();
        tags.tag(&mut tag);
        self.tag = Some(tag);
        self.generator.set_tags(tags);
        self
    }
}

fn shown(request: &Request) -> Vec<String> {
    request.args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}
