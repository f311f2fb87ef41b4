//! Collections so large that they are copied in parts, and removals of many of their elements.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;

const KEYS: [&str; 4] = ["l1", "l2", "l3", "l4"];
/// Number of elements from which on a collection is copied in parts.
const IN_PARTS_FROM: usize = 1_000;
const ELEMENTS: [usize; 4] = [IN_PARTS_FROM - 1, IN_PARTS_FROM, 5_000, 24_000];

/// A connection to each server.
pub struct Large {
    seed: u64,
    chance: Chance,
    tag: String,
    ours: Connection,
    theirs: Connection,
    log: Vec<String>,
    /// Numbers of elements of the keys.
    sizes: BTreeMap<String, usize>,
    /// Number of collections that were copied or renamed in parts.
    pub copied: usize,
    /// Number of removals from lists, sets and sorted sets.
    pub removed: usize,
}

impl Large {
    pub fn new(seed: u64, ours: SocketAddr, theirs: SocketAddr, tag: &str) -> Large {
        let open = |address| Connection::open(address).expect("the server accepts connections");
        let (ours, theirs) = (open(ours), open(theirs));
        let (chance, tag) = (Chance::new(seed ^ 0x1A49E), tag.to_owned());
        Large {
            seed,
            chance,
            tag,
            ours,
            theirs,
            log: Vec::new(),
            sizes: BTreeMap::new(),
            copied: 0,
            removed: 0,
        }
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
        match self.chance.below(14) {
            0..=2 => {
                let (count, kind) = (ELEMENTS[self.chance.below(ELEMENTS.len())], self.chance.below(4));
                let name = ["HSET", "SADD", "ZADD", "RPUSH"][kind];
                let mut args = vec![name.to_owned(), a.clone()];
                for number in 0..count {
                    match name {
                        "HSET" => args.extend([format!("f{number}"), "v".to_owned()]),
                        "ZADD" => args.extend([(number % 100).to_string(), format!("m{number}")]),
                        "RPUSH" => args.push(format!("m{}", number % 700)),
                        _ => args.push(format!("m{number}")),
                    }
                }
                if !self.compare(&args)?.is_error() {
                    self.sizes.entry(a).and_modify(|size| *size = count.max(*size)).or_insert(count);
                }
                Ok(())
            }
            3 => {
                self.sizes.remove(&a);
                self.compare(&words(format!("DEL {a}"))).map(|_| ())
            }
            4 => {
                self.compare(&words(format!("SREM {a} m1 m2 m3")))?;
                self.pop_random(&a)
            }
            5 => self.compare(&words(format!("EXPIRE {a} 1000000"))).map(|_| ()),
            10.. => (0..4).try_for_each(|_| self.remove_elements(&a)),
            at => {
                let line = match at {
                    6 => format!("COPY {a} {b} REPLACE"),
                    7 => format!("COPY {a} {b}"),
                    8 => format!("RENAMENX {a} {b}"),
                    _ => format!("RENAME {a} {b}"),
                };
                let is_done = matches!(self.compare(&words(line))?, Reply::Int(1) | Reply::Simple(_));
                if is_done && a != b {
                    let size = if at < 8 { self.sizes.get(&a).copied() } else { self.sizes.remove(&a) };
                    self.copied += usize::from(size.is_some_and(|size| size >= IN_PARTS_FROM));
                    self.sizes.extend(size.map(|size| (b, size)));
                }
                Ok(())
            }
        }
    }

    /// Removes elements of a list or sorted set, and compares those that are left.
    fn remove_elements(&mut self, key: &str) -> Result<(), String> {
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let kind = self.compare(&words(format!("TYPE {key}")))?;
        let (first, count) = (self.chance.below(24_000), self.chance.below(6_000));
        let (first, count) = match self.chance.below(3) {
            0 => (first, count),
            // Most are removed, or few.
            1 => (first % 200, 4 * count),
            _ => (first, count % 200),
        };
        let last = first + count;
        let at = self.chance.below(5);
        let (removal, length, rest) = match kind {
            Reply::Simple(kind) if kind == "list" => {
                let removal = match at {
                    0 => format!("LTRIM {key} {first} {last}"),
                    1 => format!("LTRIM {key} {count} -{}", 1 + first % 200),
                    2 => format!("LREM {key} {} m{}", [0, 2, -2][count % 3], first % 700),
                    3 => format!("LPOP {key} {count}"),
                    _ => format!("RPOP {key} {count}"),
                };
                (removal, "LLEN", "LRANGE 0 -1")
            }
            Reply::Simple(kind) if kind == "zset" => {
                let removal = match at {
                    0 => format!("ZREMRANGEBYRANK {key} {first} {last}"),
                    1 => format!("ZREMRANGEBYRANK {key} -{last} -{}", 1 + first % 200),
                    2 => format!("ZREMRANGEBYSCORE {key} {} ({}", first % 100, first % 100 + count % 60),
                    3 => format!("ZPOPMIN {key} {count}"),
                    _ => format!("ZPOPMAX {key} {count}"),
                };
                (removal, "ZCARD", "ZRANGE 0 -1 WITHSCORES")
            }
            _ => return Ok(()),
        };
        self.compare(&words(removal))?;
        self.count(key, length)?;
        self.removed += 1;
        self.compare(&words(rest.replacen(' ', &format!(" {key} "), 1))).map(|_| ())
    }

    /// Compares the number of elements of a key.
    fn count(&mut self, key: &str, command: &str) -> Result<(), String> {
        match self.compare(&[command.to_owned(), key.to_owned()])? {
            Reply::Int(size) if size > 0 => self.sizes.insert(key.to_owned(), size as usize),
            _ => self.sizes.remove(key),
        };
        Ok(())
    }

    /// Removes random members of a set: on each server as many, and only those that it returns.
    /// Then both lose what the other one has removed.
    fn pop_random(&mut self, key: &str) -> Result<(), String> {
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let most = [200, 6_000, 30_000][self.chance.below(3)];
        let count = self.chance.below(most);
        let pop = words(format!("SPOP {key} {count}"));
        let ours = self.ours.call(&pop).map_err(|error| format!("seed {}: {error}", self.seed))?;
        let theirs = self.theirs.call(&pop).map_err(|error| format!("redis-server: {error}"))?;
        self.log.push(format!("{} -> {} bytes", pop.join(" "), theirs.bytes()));
        if let (Some(ours), Some(theirs)) = (names(&ours), names(&theirs)) {
            let number = ours.len();
            let mut popped: Vec<String> = ours.into_iter().chain(theirs.clone()).collect();
            popped[..number].sort_unstable();
            let is_distinct = popped[..number].windows(2).all(|pair| pair[0] != pair[1]);
            if number != theirs.len() || !is_distinct {
                return Err(format!("seed {}: {number} members\n  {}", self.seed, self.log.join("\n  ")));
            }
            if !popped.is_empty() {
                // Both lose as many.
                let removal = ["SREM".to_owned(), key.to_owned()].into_iter().chain(popped);
                self.compare(&removal.collect::<Vec<_>>())?;
                self.removed += 1;
            }
            self.count(key, "SCARD")?;
            self.compare(&words(format!("SORT {key} ALPHA")))?;
        }
        Ok(())
    }

    fn compare(&mut self, args: &[String]) -> Result<Reply, String> {
        let ours = self.ours.call(args).map_err(|error| format!("seed {}: {error}", self.seed))?;
        let theirs = self.theirs.call(args).map_err(|error| format!("redis-server: {error}"))?;
        let shown: String = args.join(" ").chars().take(60).collect();
        self.log.push(format!("{shown} -> {theirs:?}"));
        match ours == theirs {
            true => Ok(theirs),
            false => Err(format!("seed {}: {ours:?}\n  {}", self.seed, self.log.join("\n  "))),
        }
    }
}

/// Returns the names in a reply; `None` for an error.
fn names(reply: &Reply) -> Option<Vec<String>> {
    let (Reply::Array(items) | Reply::Set(items)) = reply else { return None };
    let name = |item: &Reply| match item {
        Reply::Bulk(name) => String::from_utf8_lossy(name).into_owned(),
        item => format!("{item:?}"),
    };
    Some(items.iter().map(name).collect())
}
