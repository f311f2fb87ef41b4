//! Random waits: clients wait for elements of a few keys or entries of streams, and another one
//! fills them. After each step the same clients must have got the same replies from both servers,
//! so the order of service must be the same.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;

const CLIENTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of steps that a mismatch shows.
const SHOWN_STEPS: usize = 30;
const KEYS: [&str; 3] = ["k1", "k2", "k3"];
const STREAMS: [&str; 2] = ["s1", "s2"];
/// Keys for which no client waits.
const OTHERS: [&str; 2] = ["d", "src"];

/// One of the servers.
struct Side {
    clients: Vec<Connection>,
    filler: Connection,
}

impl Side {
    fn new(address: SocketAddr) -> Side {
        let open = |_| Connection::open(address).expect("the server accepts connections");
        let mut side = Side { clients: (0..CLIENTS).map(open).collect(), filler: open(0) };
        side.filler.call(&["FLUSHALL"]).expect("a reply");
        side
    }

    fn blocked(&mut self) -> usize {
        let text = match self.filler.call(&["INFO", "clients"]).expect("a reply") {
            Reply::Bulk(text) | Reply::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
            other => panic!("{other:?}"),
        };
        let count = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        count.and_then(|count| count.trim().parse().ok()).expect("a count")
    }
}

pub struct Waits {
    seed: u64,
    tag: String,
    chance: Chance,
    ours: Side,
    theirs: Side,
    waiting: Vec<bool>,
    log: Vec<String>,
    /// The time of the last entry of a stream.
    last_ms: u64,
    /// The number of waits that ended with an element.
    pub served: usize,
}

impl Waits {
    pub fn new(seed: u64, ours: SocketAddr, theirs: SocketAddr) -> Waits {
        let (ours, theirs) = (Side::new(ours), Side::new(theirs));
        let waiting = vec![false; CLIENTS];
        let (chance, log) = (Chance::new(seed ^ 0xB10C), Vec::new());
        Waits { seed, tag: String::new(), chance, ours, theirs, waiting, log, last_ms: 0, served: 0 }
    }

    /// Gives every key a hash tag.
    pub fn tagged(mut self, tag: &str) -> Waits {
        self.tag = tag.to_owned();
        self
    }

    /// # Errors
    /// Returns the first mismatch with its history.
    pub fn run(&mut self, steps: usize) -> Result<(), String> {
        (0..steps).try_for_each(|_| self.step())?;
        // Clients that wait at the end are of the same number on both servers.
        self.settle()
    }

    /// Lets one more client wait, or fills a key.
    ///
    /// # Errors
    /// Returns a mismatch with its history.
    pub fn step(&mut self) -> Result<(), String> {
        let idle: Vec<usize> = (0..CLIENTS).filter(|at| !self.waiting[*at]).collect();
        if !idle.is_empty() && self.chance.percent(55) {
            let at = idle[self.chance.below(idle.len())];
            let line = match self.chance.percent(50) {
                true => self.wait(),
                false => self.wait_for_entries(at),
            };
            self.log.push(format!("{at}: {line}"));
            let mut bytes = bytes::BytesMut::new();
            resp::encode_request(&self.words(&line), &mut bytes);
            self.ours.clients[at].send(&bytes).map_err(|error| self.mismatch(&error.to_string()))?;
            self.theirs.clients[at].send(&bytes).map_err(|error| self.mismatch(&error.to_string()))?;
            self.waiting[at] = true;
        } else {
            let lines = match self.chance.percent(50) {
                true => self.fill(),
                false => self.fill_stream(),
            };
            for line in &lines {
                let words = self.words(line);
                let ours =
                    self.ours.filler.call(&words).map_err(|error| self.mismatch(&error.to_string()))?;
                let theirs = self.theirs.filler.call(&words).expect("a reply");
                self.log.push(format!("filler: {line} -> {theirs:?}"));
                if ours != theirs {
                    return Err(self.mismatch(&format!("{line}: {ours:?}, not {theirs:?}")));
                }
            }
        }
        self.settle()
    }

    /// Waits until both servers have the same number of blocked clients, and compares the replies
    /// that have come.
    fn settle(&mut self) -> Result<(), String> {
        let sent = self.waiting.iter().filter(|waits| **waits).count();
        let mut replies: Vec<Option<Reply>> = vec![None; CLIENTS];
        let began = Instant::now();
        // Redis serves before it reads the next command, but may not have read this one yet.
        loop {
            let mut come = 0;
            for at in (0..CLIENTS).filter(|at| self.waiting[*at]) {
                if replies[at].is_none() {
                    let reply = self.theirs.clients[at].reply_within(Duration::from_millis(1));
                    replies[at] = reply.map_err(|error| self.mismatch(&error.to_string()))?;
                }
                come += usize::from(replies[at].is_some());
            }
            if self.theirs.blocked() + come == sent {
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(self.mismatch("Redis does not settle"));
            }
        }
        for (at, theirs) in replies.into_iter().enumerate() {
            let Some(theirs) = theirs else { continue };
            let ours = self.ours.clients[at].reply_within(PATIENCE);
            match ours.map_err(|error| self.mismatch(&error.to_string()))? {
                Some(ours) if ours == theirs => {}
                ours => return Err(self.mismatch(&format!("client {at} got {ours:?}, not {theirs:?}"))),
            }
            self.log.push(format!("{at} got {theirs:?}"));
            self.waiting[at] = false;
            self.served += 1;
        }
        let blocked = self.waiting.iter().filter(|waits| **waits).count();
        while self.ours.blocked() != blocked {
            if began.elapsed() > PATIENCE {
                return Err(self.mismatch("the number of blocked clients differs"));
            }
        }
        Ok(())
    }

    /// Returns the arguments of a command. Its keys have the tag.
    fn words(&self, line: &str) -> Vec<String> {
        let is_key = |word: &str| KEYS.contains(&word) || STREAMS.contains(&word) || OTHERS.contains(&word);
        line.split(' ')
            .map(|word| if is_key(word) { format!("{word}{}", self.tag) } else { word.into() })
            .collect()
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.chance.below(KEYS.len())]
    }

    fn wait(&mut self) -> String {
        let (a, b) = (self.key(), self.key());
        match self.chance.below(9) {
            0 => format!("BLPOP {a} 0"),
            1 => format!("BRPOP {a} {b} 0"),
            2 => format!("BLPOP {a} {b} {a} 0"),
            // A destination for which others wait would be served at the same time, and not after
            // the source as by Redis.
            3 => format!("BLMOVE {a} d LEFT RIGHT 0"),
            4 => format!("BRPOPLPUSH {a} d 0"),
            5 => format!("BLMPOP 0 2 {a} {b} RIGHT COUNT 2"),
            6 => format!("BZPOPMIN {a} {b} 0"),
            7 => format!("BZPOPMAX {a} 0"),
            _ => format!("BZMPOP 0 1 {a} MIN COUNT 2"),
        }
    }

    fn fill(&mut self) -> Vec<String> {
        let key = self.key();
        let number = self.chance.below(1000);
        match self.chance.below(10) {
            0..=2 => vec![format!("RPUSH {key} a{number}")],
            3 => vec![format!("LPUSH {key} a{number} b{number} c{number}")],
            4 => vec![format!("ZADD {key} 1 a{number}")],
            5 => vec![format!("ZADD {key} 3 a{number} 1 b{number} 2 c{number}")],
            6 => vec![format!("DEL {key}")],
            7 => vec![
                format!("DEL src"),
                format!("RPUSH src a{number} b{number}"),
                format!("RENAME src {key}"),
            ],
            8 => vec![
                "MULTI".into(),
                format!("DEL {key}"),
                format!("RPUSH {key} a{number} b{number}"),
                "EXEC".into(),
            ],
            _ => vec!["MULTI".into(), format!("RPUSH {key} a{number}"), format!("DEL {key}"), "EXEC".into()],
        }
    }

    fn stream(&mut self) -> &'static str {
        STREAMS[self.chance.below(STREAMS.len())]
    }

    fn wait_for_entries(&mut self, at: usize) -> String {
        let (a, b) = (self.stream(), self.stream());
        let group = self.chance.pick(&["g", "g", "h"]);
        match self.chance.below(8) {
            0 => format!("XREAD BLOCK 0 STREAMS {a} $"),
            1 => format!("XREAD COUNT 1 BLOCK 0 STREAMS {a} {}", self.last_ms + 1),
            2 => "XREAD BLOCK 0 STREAMS s1 s2 $ $".to_owned(),
            3 => format!("XREADGROUP GROUP {group} c{at} BLOCK 0 NOACK STREAMS {a} >"),
            4 => format!("XREADGROUP GROUP {group} c{at} BLOCK 0 STREAMS {a} {b} > >"),
            5 => format!("XREADGROUP GROUP {group} c{at} BLOCK 0 STREAMS {a} 0"),
            _ => format!("XREADGROUP GROUP {group} c{at} COUNT 1 BLOCK 0 STREAMS {a} >"),
        }
    }

    fn fill_stream(&mut self) -> Vec<String> {
        let key = self.stream();
        let group = self.chance.pick(&["g", "g", "h"]);
        self.last_ms += 1;
        let ms = self.last_ms;
        match self.chance.below(16) {
            0..=4 => vec![format!("XADD {key} {ms}-1 f v{ms}")],
            5 => vec![
                "MULTI".into(),
                format!("XADD {key} {ms}-1 f a"),
                format!("XADD {key} {ms}-2 f b"),
                "EXEC".into(),
            ],
            6..=9 => vec![format!("XGROUP CREATE {key} {group} $ MKSTREAM")],
            10 => vec![format!("XGROUP DESTROY {key} {group}")],
            11 => vec![format!("XGROUP SETID {key} {group} 0")],
            12 => vec![format!("XDEL {key} {}-1", ms.saturating_sub(2))],
            13 => vec![format!("DEL {key}")],
            14 => vec![format!("SET {key} x"), format!("DEL {key}")],
            _ => vec![format!("XTRIM {key} MAXLEN 1"), format!("XINFO GROUPS {key}")],
        }
    }

    fn mismatch(&self, what: &str) -> String {
        let history: Vec<&str> = self.log.iter().rev().take(SHOWN_STEPS).rev().map(String::as_str).collect();
        format!("seed {}: {what}\nafter\n  {}", self.seed, history.join("\n  "))
    }
}
