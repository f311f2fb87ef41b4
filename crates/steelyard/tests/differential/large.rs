//! Collections so large that they are copied in parts.

use std::net::SocketAddr;

use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;

const KEYS: [&str; 4] = ["l1", "l2", "l3", "l4"];
/// Numbers of elements around the one from which on a collection is copied in parts.
const ELEMENTS: [usize; 3] = [9_999, 10_000, 24_000];

/// A connection to each server.
pub struct Large {
    seed: u64,
    chance: Chance,
    tag: String,
    ours: Connection,
    theirs: Connection,
    log: Vec<String>,
    /// Number of collections that were copied or renamed.
    pub copied: usize,
}

impl Large {
    pub fn new(seed: u64, ours: SocketAddr, theirs: SocketAddr, tag: &str) -> Large {
        let open = |address| Connection::open(address).expect("the server accepts connections");
        let (ours, theirs) = (open(ours), open(theirs));
        let (chance, tag) = (Chance::new(seed ^ 0x1A49E), tag.to_owned());
        Large { seed, chance, tag, ours, theirs, log: Vec::new(), copied: 0 }
    }

    fn key(&mut self) -> String {
        let key = self.chance.pick(&KEYS);
        format!("{key}{}", self.tag)
    }

    /// Sends one command.
    ///
    /// # Errors
    /// Returns a mismatch with its history.
    pub fn turn(&mut self) -> Result<(), String> {
        let (a, b) = (self.key(), self.key());
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self.chance.below(10) {
            0..=2 => {
                let (count, kind) = (ELEMENTS[self.chance.below(3)], self.chance.below(4));
                let name = ["HSET", "SADD", "ZADD", "RPUSH"][kind];
                let mut args = vec![name.to_owned(), a];
                for number in 0..count {
                    match name {
                        "HSET" => args.extend([format!("f{number}"), "v".to_owned()]),
                        "ZADD" => args.extend([(number % 100).to_string(), format!("m{number}")]),
                        _ => args.push(format!("m{number}")),
                    }
                }
                self.compare(&args).map(|_| ())
            }
            3 => self.compare(&words(format!("DEL {a}"))).map(|_| ()),
            4 => self.compare(&words(format!("SREM {a} m1 m2 m3"))).map(|_| ()),
            5 => self.compare(&words(format!("EXPIRE {a} 1000000"))).map(|_| ()),
            at => {
                let line = match at {
                    6 => format!("COPY {a} {b} REPLACE"),
                    7 => format!("COPY {a} {b}"),
                    8 => format!("RENAMENX {a} {b}"),
                    _ => format!("RENAME {a} {b}"),
                };
                let reply = self.compare(&words(line))?;
                self.copied += usize::from(matches!(reply, Reply::Int(1) | Reply::Simple(_)));
                Ok(())
            }
        }
    }

    fn compare(&mut self, args: &[String]) -> Result<Reply, String> {
        let lost = |error: std::io::Error| Reply::error(format!("(no reply: {error})"));
        let ours = self.ours.call(args).unwrap_or_else(lost);
        let theirs = self.theirs.call(args).unwrap_or_else(lost);
        let shown: String = args.join(" ").chars().take(60).collect();
        self.log.push(format!("{shown} -> {theirs:?}"));
        match ours == theirs {
            true => Ok(theirs),
            false => Err(format!("seed {}: {ours:?}\n  {}", self.seed, self.log.join("\n  "))),
        }
    }
}
