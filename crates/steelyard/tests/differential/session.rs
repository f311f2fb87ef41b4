//! A session of one seed: sends the same commands to both servers and compares every answer. Now
//! and then it compares all data.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;

use bytes::Bytes;
use resp::Reply;

use crate::compare::{items, members_picked_rightly, picked_rightly, scores, scores_picked_rightly, Compare};
use crate::connection::Connection;
use crate::generator::{Args, Generator, Request, Step, Tags, Times};
use crate::known::{is_same_but_for_zeros, KNOWN};

/// Number of commands between two comparisons of all data.
const STEPS_BETWEEN_AUDITS: usize = 1000;
const DATABASES: usize = 16;
/// Number of commands before a mismatch that are shown.
const SHOWN_COMMANDS: usize = 24;
/// Maximum number of turns of a walk. A walk with more does not end.
const WALK_TURNS_MAX: usize = 100_000;

/// A connection to each server.
struct Both {
    ours: Connection,
    theirs: Connection,
}

impl Both {
    fn connect(ours: SocketAddr, theirs: SocketAddr) -> Both {
        let open = |address| Connection::open(address).expect("the server accepts connections");
        Both { ours: open(ours), theirs: open(theirs) }
    }

    fn call(&mut self, args: &[Vec<u8>]) -> (Reply, Reply) {
        let ours = self.ours.call(args).unwrap_or_else(|error| lost("steelyard", args, error));
        let theirs = self.theirs.call(args).unwrap_or_else(|error| lost("redis-server", args, error));
        (ours, theirs)
    }
}

/// Returns an error in place of a lost reply, so that it is shown as a mismatch with its history.
fn lost(server: &str, args: &[Vec<u8>], error: std::io::Error) -> Reply {
    Reply::error(format!("(no reply from {server} to {}: {error})", show_args(args)))
}

pub struct Session {
    seed: u64,
    generator: Generator,
    clients: Both,
    /// Connections for the comparison of all data, which are not part of the session.
    auditors: Both,
    log: Vec<(usize, Args, Reply)>,
    sent: usize,
    /// Number of databases that are compared: in cluster mode there is only one.
    databases: usize,
}

impl Session {
    pub fn new(seed: u64, ours: SocketAddr, theirs: SocketAddr) -> Session {
        let times = if seed % 2 == 0 { Times::Instants } else { Times::Relative };
        Session::with(seed, Generator::new(seed, times), ours, theirs)
    }

    /// Returns a session of places and of `SORT`.
    pub fn of_places(seed: u64, ours: SocketAddr, theirs: SocketAddr) -> Session {
        Session::with(seed, Generator::of_places(seed, Times::Relative), ours, theirs)
    }

    fn with(seed: u64, generator: Generator, ours: SocketAddr, theirs: SocketAddr) -> Session {
        let mut auditors = Both::connect(ours, theirs);
        auditors.call(&[b"FLUSHALL".to_vec()]);
        let clients = Both::connect(ours, theirs);
        Session { seed, generator, clients, auditors, log: Vec::new(), sent: 0, databases: DATABASES }
    }

    /// Creates a session about streams.
    pub fn of_streams(seed: u64, ours: SocketAddr, theirs: SocketAddr) -> Session {
        let mut session = Session::new(seed, ours, theirs);
        let times = if seed % 2 == 0 { Times::Instants } else { Times::Relative };
        session.generator = Generator::of_streams(seed, times);
        session
    }

    /// Gives every key of the session a hash tag.
    pub fn tagged(mut self, tags: Tags) -> Session {
        self.generator.set_tags(tags);
        self.databases = 1;
        self
    }

    /// Compares the servers until they have answered `commands` commands.
    ///
    /// # Errors
    /// Returns the first mismatch with its history.
    pub fn run(&mut self, commands: usize) -> Result<(), String> {
        let mut audited = 0;
        while self.sent < commands {
            self.turn()?;
            if self.sent - audited >= STEPS_BETWEEN_AUDITS {
                self.audit()?;
                audited = self.sent;
            }
        }
        self.audit()
    }

    /// Sends one pipeline of single commands, and then the step that cannot be part of a pipeline.
    ///
    /// # Errors
    /// Returns a mismatch with its history.
    pub fn turn(&mut self) -> Result<(), String> {
        let mut batch: Vec<Request> = Vec::new();
        let size = self.generator.batch_size();
        let mut last = None;
        while batch.len() < size {
            match self.generator.step() {
                Step::One(request) if !request.compare.stands_alone() => batch.push(request),
                other => {
                    last = Some(other);
                    break;
                }
            }
        }
        self.compare_batch(batch)?;
        match last {
            None => Ok(()),
            Some(Step::One(request)) => self.compare_alone(request),
            Some(Step::Walk { args, cursor_at }) => self.compare_walk(&args, cursor_at),
            Some(Step::Count) => {
                // A full walk makes Redis delete expired keys, so that its count is right.
                self.compare_walk(&[b"SCAN".to_vec()], 1)?;
                self.compare_alone(Request::new(&["DBSIZE"], Compare::Exact))
            }
        }
    }

    fn compare_batch(&mut self, batch: Vec<Request>) -> Result<(), String> {
        let requests: Vec<Args> = batch.iter().map(|request| request.args.clone()).collect();
        let together = |connection: &mut Connection, name| match connection.pipeline(&requests) {
            Ok(replies) => Ok(replies),
            Err(error) => Err(format!("{name}: {error} in a pipeline of {}", requests.len())),
        };
        let replies = together(&mut self.clients.ours, "steelyard")
            .and_then(|ours| Ok((ours, together(&mut self.clients.theirs, "redis-server")?)));
        let (ours, theirs) = replies.map_err(|what| {
            let all: Vec<String> = requests.iter().map(|args| show_args(args)).collect();
            format!("seed {}: {what}:\n  {}", self.seed, all.join("\n  "))
        })?;
        for ((request, ours), theirs) in batch.iter().zip(ours).zip(theirs) {
            self.check(request, &ours, &theirs)?;
        }
        Ok(())
    }

    fn check(&mut self, request: &Request, ours: &Reply, theirs: &Reply) -> Result<(), String> {
        self.sent += 1;
        self.log.push((self.sent, request.args.clone(), theirs.clone()));
        if request.compare.agrees(ours, theirs) {
            return Ok(());
        }
        let Some(known) = KNOWN.iter().find(|known| (known.applies)(request, ours, theirs)) else {
            return Err(self.mismatch(&request.args, ours, theirs));
        };
        if let Some(key) = (known.key_to_delete)(request).and_then(|at| request.args.get(at)) {
            let (ours, theirs) = self.clients.call(&[b"DEL".to_vec(), key.clone()]);
            assert_eq!(ours, theirs);
        }
        Ok(())
    }

    fn compare_alone(&mut self, request: Request) -> Result<(), String> {
        if request.compare == Compare::Popped && request.args.len() > 1 {
            return self.compare_popped(&request);
        }
        let (ours, theirs) = self.clients.call(&request.args);
        self.check(&request, &ours, &theirs)?;
        let right = match request.compare {
            Compare::RandomKey => self.both_exist(&ours, &theirs),
            Compare::RandomFields if !ours.is_error() && !theirs.is_error() => {
                let fields = self.clients.call(&[b"HGETALL".to_vec(), request.args[1].clone()]);
                picked_rightly(&request.args, &ours, &fields_of(&fields.0))
                    && picked_rightly(&request.args, &theirs, &fields_of(&fields.1))
            }
            Compare::RandomMembers if !ours.is_error() && !theirs.is_error() => {
                let (held, _) = self.members(&request.args[1]);
                [&ours, &theirs].iter().all(|picked| members_picked_rightly(&request.args, picked, &held))
            }
            Compare::RandomScores if !ours.is_error() && !theirs.is_error() => {
                let all = [&b"ZRANGE"[..], &request.args[1], b"0", b"-1", b"WITHSCORES"].map(<[u8]>::to_vec);
                let held = scores(&self.clients.call(&all).0, true);
                [&ours, &theirs].iter().all(|picked| scores_picked_rightly(&request.args, picked, &held))
            }
            _ => true,
        };
        match right {
            true => Ok(()),
            false => Err(self.mismatch(&request.args, &ours, &theirs)),
        }
    }

    /// Returns the members of a set on both servers.
    fn members(&mut self, key: &[u8]) -> (BTreeSet<Bytes>, BTreeSet<Bytes>) {
        let (ours, theirs) = self.clients.call(&[b"SMEMBERS".to_vec(), key.to_vec()]);
        (items(&ours).into_iter().collect(), items(&theirs).into_iter().collect())
    }

    /// Compares `SPOP`: each server removes exactly the members that it returns. Then what one of
    /// them has removed is removed from the other one.
    fn compare_popped(&mut self, request: &Request) -> Result<(), String> {
        let key = &request.args[1];
        let (before, _) = self.members(key);
        let (ours, theirs) = self.clients.call(&request.args);
        self.check(request, &ours, &theirs)?;
        let (our_rest, their_rest) = self.members(key);
        let mut popped = BTreeSet::new();
        for (reply, rest) in [(&ours, our_rest), (&theirs, their_rest)] {
            let gone: BTreeSet<Bytes> = items(reply).into_iter().collect();
            let left: BTreeSet<Bytes> = before.difference(&gone).cloned().collect();
            if !members_picked_rightly(&request.args, reply, &before) || left != rest {
                return Err(self.mismatch(&request.args, &ours, &theirs));
            }
            popped.extend(gone);
        }
        if !popped.is_empty() {
            let mut args = vec![b"SREM".to_vec(), key.clone()];
            args.extend(popped.iter().map(|member| member.to_vec()));
            self.clients.call(&args);
        }
        Ok(())
    }

    fn both_exist(&mut self, ours: &Reply, theirs: &Reply) -> bool {
        [ours, theirs].into_iter().all(|reply| match reply {
            Reply::Bulk(key) => {
                let (ours, theirs) = self.clients.call(&[b"EXISTS".to_vec(), key.to_vec()]);
                ours == Reply::Int(1) && theirs == Reply::Int(1)
            }
            _ => true,
        })
    }

    /// Walks on both servers to the end and compares the sets of items.
    fn compare_walk(&mut self, args: &[Vec<u8>], cursor_at: usize) -> Result<(), String> {
        let ours = walk(&mut self.clients.ours, args, cursor_at);
        let theirs = walk(&mut self.clients.theirs, args, cursor_at);
        let request = Request::new(args, Compare::Exact);
        self.check(&request, &ours, &theirs)
    }

    /// Compares every key of every database: type, value, and instant of expiry.
    ///
    /// # Errors
    /// Returns a mismatch with its history.
    pub fn audit(&mut self) -> Result<(), String> {
        for db in 0..self.databases {
            self.auditors.call(&[b"SELECT".to_vec(), db.to_string().into_bytes()]);
            let keys = [b"KEYS".to_vec(), b"*".to_vec()];
            let (ours, theirs) = self.audited(&keys, Compare::Unordered)?;
            let (Reply::Array(ours), Reply::Array(theirs)) = (ours, theirs) else { continue };
            debug_assert_eq!(ours.len(), theirs.len());
            for key in ours {
                let Reply::Bulk(key) = key else { continue };
                let about = |name: &str| [name.as_bytes().to_vec(), key.to_vec()];
                let (kind, _) = self.audited(&about("TYPE"), Compare::Exact)?;
                match kind {
                    Reply::Simple(kind) if kind == "hash" => {
                        self.audited(&about("HGETALL"), Compare::Pairs)?;
                        self.audited(&about("HLEN"), Compare::Exact)?
                    }
                    Reply::Simple(kind) if kind == "set" => {
                        self.audited(&about("SMEMBERS"), Compare::Unordered)?;
                        self.audited(&about("SCARD"), Compare::Exact)?
                    }
                    Reply::Simple(kind) if kind == "zset" => {
                        let key = key.to_vec();
                        let all =
                            [b"ZRANGE".to_vec(), key, b"0".to_vec(), b"-1".to_vec(), b"WITHSCORES".to_vec()];
                        self.audited(&all, Compare::Exact)?;
                        self.audited(&about("ZCARD"), Compare::Exact)?
                    }
                    Reply::Simple(kind) if kind == "list" => {
                        let all = [b"LRANGE".to_vec(), key.to_vec(), b"0".to_vec(), b"-1".to_vec()];
                        self.audited(&all, Compare::Exact)?;
                        self.audited(&about("LLEN"), Compare::Exact)?
                    }
                    Reply::Simple(kind) if kind == "stream" => {
                        let key = key.to_vec();
                        let back = [b"XREVRANGE".to_vec(), key.clone(), b"+".to_vec(), b"-".to_vec()];
                        self.audited(&back, Compare::Exact)?;
                        let all =
                            [&b"XINFO"[..], b"STREAM", &key, b"FULL", b"COUNT", b"0"].map(<[u8]>::to_vec);
                        self.audited(&all, Compare::Idle)?;
                        self.audited(&about("XLEN"), Compare::Exact)?
                    }
                    _ => self.audited(&about("GET"), Compare::Exact)?,
                };
                self.audited(&about("PEXPIRETIME"), Compare::Time { milliseconds: true })?;
            }
        }
        Ok(())
    }

    fn audited(&mut self, args: &[Vec<u8>], compare: Compare) -> Result<(Reply, Reply), String> {
        let (ours, theirs) = self.auditors.call(args);
        let is_ranked = args[0].starts_with(b"Z");
        match compare.agrees(&ours, &theirs) || is_ranked && is_same_but_for_zeros(&ours, &theirs) {
            true => Ok((ours, theirs)),
            false => Err(self.mismatch(args, &ours, &theirs)),
        }
    }

    /// Describes a mismatch: the command, both answers, and earlier commands on the same keys.
    fn mismatch(&self, args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> String {
        let mut text = format!("seed {}, command {}: {}\n", self.seed, self.sent, show_args(args));
        let _ = writeln!(text, "  steelyard:    {}", show(ours));
        let _ = writeln!(text, "  redis-server: {}", show(theirs));
        let _ = writeln!(text, "  before it:");
        let everything = [&b"SELECT"[..], b"FLUSHALL", b"FLUSHDB", b"HELLO", b"RESET"];
        let related = |entry: &&(usize, Args, Reply)| {
            let shares = entry.1[1..].iter().any(|arg| args[1..].contains(arg));
            shares || everything.iter().any(|name| entry.1[0].eq_ignore_ascii_case(name))
        };
        let related: Vec<_> = self.log.iter().rev().filter(related).take(SHOWN_COMMANDS).collect();
        for (number, args, reply) in related.into_iter().rev() {
            let _ = writeln!(text, "    {number}: {} -> {}", show_args(args), show(reply));
        }
        text
    }
}

/// Returns the items of a walk as a sorted array without repetition, or the error that ended it.
fn walk(connection: &mut Connection, args: &[Vec<u8>], cursor_at: usize) -> Reply {
    let pairs = [&b"HSCAN"[..], b"ZSCAN"].iter().any(|name| args[0].eq_ignore_ascii_case(name));
    let mut met = BTreeSet::new();
    let mut cursor = Bytes::from_static(b"0");
    for _ in 0..WALK_TURNS_MAX {
        let mut turn = args.to_vec();
        turn.insert(cursor_at, cursor.to_vec());
        let items = match connection.call(&turn) {
            Ok(Reply::Array(parts)) => match <[Reply; 2]>::try_from(parts) {
                Ok([Reply::Bulk(next), Reply::Array(items)]) => {
                    cursor = next;
                    items
                }
                other => return Reply::error(format!("(not an answer to a walk: {other:?})")),
            },
            Ok(other) => return other,
            Err(error) => return lost("a server", &turn, error),
        };
        met.extend(items.chunks(if pairs { 2 } else { 1 }).map(|entry| format!("{entry:?}")));
        if &cursor[..] == b"0" {
            return Reply::Array(met.into_iter().map(Reply::bulk).collect());
        }
    }
    Reply::error("(the walk does not end)")
}

fn fields_of(reply: &Reply) -> Vec<(Bytes, Bytes)> {
    let text = |reply: &Reply| if let Reply::Bulk(text) = reply { text.clone() } else { Bytes::new() };
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(field, value)| (text(field), text(value))).collect(),
        Reply::Array(flat) => flat.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        _ => Vec::new(),
    }
}

fn show_args(args: &[Vec<u8>]) -> String {
    let shown: Vec<String> = args.iter().map(|arg| cut(format!("\"{}\"", arg.escape_ascii()))).collect();
    cut(shown.join(" "))
}

fn show(reply: &Reply) -> String {
    cut(format!("{reply:?}"))
}

fn cut(text: String) -> String {
    const LONGEST: usize = 1500;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
