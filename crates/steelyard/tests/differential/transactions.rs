//! Random transactions: several connections to each server take turns, watch keys, queue commands
//! and execute them. Every reply must be the same, also that of a transaction whose watched keys
//! another connection has changed.

use std::fmt::Write;
use std::net::SocketAddr;

use bytes::Bytes;
use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;
use crate::generator::{Args, Generator, Request, Tags, Times};
use crate::known::KNOWN;

const CONNECTIONS: usize = 3;
/// Number of turns that a mismatch shows.
const SHOWN_TURNS: usize = 40;
/// Percentages of the turns of a connection outside of a transaction and in one.
const WATCH: usize = 18;
const MULTI: usize = 40;
const UNWATCH: usize = 43;
const EXEC: usize = 22;
const DISCARD: usize = 25;
const REFUSED: usize = 30;

/// One client, with a connection to each server.
struct Client {
    ours: Connection,
    theirs: Connection,
    /// The queued commands, in a transaction.
    queued: Option<Vec<Request>>,
}

/// The number of transactions that ran and that a watch stopped, so that a test can show that it
/// has seen both.
#[derive(Debug, Default)]
pub struct Tally {
    pub executed: usize,
    pub stopped: usize,
    pub aborted: usize,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.executed += other.executed;
        self.stopped += other.stopped;
        self.aborted += other.aborted;
    }
}

pub struct Transactions {
    seed: u64,
    chance: Chance,
    generator: Generator,
    clients: Vec<Client>,
    log: Vec<String>,
    pub tally: Tally,
}

fn args(words: &[&str]) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

impl Transactions {
    pub fn new(seed: u64, ours: SocketAddr, theirs: SocketAddr) -> Transactions {
        let open = |address| Connection::open(address).expect("the server accepts connections");
        let client = |_| Client { ours: open(ours), theirs: open(theirs), queued: None };
        let times = if seed % 2 == 0 { Times::Instants } else { Times::Relative };
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(client).collect();
        let _ = (clients[0].ours.call(&["FLUSHALL"]), clients[0].theirs.call(&["FLUSHALL"]));
        Transactions {
            seed,
            chance: Chance::new(seed ^ 0x7A05),
            generator: Generator::new(seed, times),
            clients,
            log: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Gives every key of the program a hash tag.
    pub fn tagged(mut self, tags: Tags) -> Transactions {
        self.generator.set_tags(tags);
        self
    }

    /// Takes `turns` turns.
    ///
    /// # Errors
    /// Returns the first mismatch with its history.
    pub fn run(&mut self, turns: usize) -> Result<(), String> {
        (0..turns).try_for_each(|_| self.turn())
    }

    fn turn(&mut self) -> Result<(), String> {
        let at = self.chance.below(CONNECTIONS);
        let die = self.chance.below(100);
        if self.clients[at].queued.is_none() {
            return match die {
                _ if die < WATCH => {
                    let mut watch = args(&["WATCH"]);
                    (0..=self.chance.below(3)).for_each(|_| watch.push(self.generator.tagged_key()));
                    self.same(at, &watch)
                }
                _ if die < MULTI => {
                    self.same(at, &args(&["MULTI"]))?;
                    self.clients[at].queued = Some(Vec::new());
                    Ok(())
                }
                _ if die < UNWATCH => self.same(at, &args(&["UNWATCH"])),
                _ => self.command(at),
            };
        }
        match die {
            _ if die < EXEC => self.exec(at),
            _ if die < DISCARD => {
                self.clients[at].queued = None;
                self.same(at, &args(&["DISCARD"]))
            }
            _ if die < REFUSED => {
                let choices = [
                    &["MULTI"][..],
                    &["WATCH", "a"],
                    &["UNWATCH"],
                    &["PING"],
                    &["ECHO", "x"],
                    &["NOSUCH"],
                    &["GET"],
                ];
                let words = choices[self.chance.below(choices.len())];
                let is_queued = ["UNWATCH", "PING", "ECHO"].contains(&words[0]);
                let request = Request::new(words, crate::compare::Compare::Exact);
                if is_queued {
                    self.clients[at].queued.iter_mut().for_each(|queued| queued.push(request.clone()));
                }
                self.same(at, &request.args)
            }
            _ => self.command(at),
        }
    }

    /// Sends a random command, which is executed or queued.
    fn command(&mut self, at: usize) -> Result<(), String> {
        let request = self.generator.inner_command();
        let (ours, theirs) = self.call(at, &request.args);
        match &mut self.clients[at].queued {
            Some(queued) if theirs == Reply::Simple("QUEUED".into()) => queued.push(request.clone()),
            Some(_) => {}
            None => return self.check(at, &request, &ours, &theirs),
        }
        self.expect(&request.args, &ours, &theirs, ours == theirs)
    }

    fn exec(&mut self, at: usize) -> Result<(), String> {
        let queued = self.clients[at].queued.take().unwrap_or_default();
        let exec = args(&["EXEC"]);
        let (ours, theirs) = self.call(at, &exec);
        match (&ours, &theirs) {
            (Reply::Array(our_replies), Reply::Array(their_replies)) => {
                self.tally.executed += 1;
                let fit = our_replies.len() == queued.len() && their_replies.len() == queued.len();
                self.expect(&exec, &ours, &theirs, fit)?;
                for ((request, ours), theirs) in queued.iter().zip(our_replies).zip(their_replies) {
                    self.check(at, request, ours, theirs)?;
                }
                Ok(())
            }
            _ => {
                self.tally.stopped += usize::from(!theirs.is_error());
                self.tally.aborted += usize::from(theirs.is_error());
                self.expect(&exec, &ours, &theirs, ours == theirs)
            }
        }
    }

    fn call(&mut self, at: usize, args: &[Vec<u8>]) -> (Reply, Reply) {
        let client = &mut self.clients[at];
        let lost = |error: std::io::Error| Reply::error(format!("(no reply: {error})"));
        let ours = client.ours.call(args).unwrap_or_else(lost);
        let theirs = client.theirs.call(args).unwrap_or_else(lost);
        self.log.push(format!("{at}: {} -> {theirs:?}", shown(args)));
        (ours, theirs)
    }

    fn same(&mut self, at: usize, args: &[Vec<u8>]) -> Result<(), String> {
        let (ours, theirs) = self.call(at, args);
        self.expect(args, &ours, &theirs, ours == theirs)
    }

    fn check(&mut self, at: usize, request: &Request, ours: &Reply, theirs: &Reply) -> Result<(), String> {
        if request.compare.agrees(ours, theirs) {
            return Ok(());
        }
        let Some(known) = KNOWN.iter().find(|known| (known.applies)(request, ours, theirs)) else {
            return self.expect(&request.args, ours, theirs, false);
        };
        if let Some(key) = (known.key_to_delete)(request).and_then(|at| request.args.get(at)) {
            let deleted = [b"DEL".to_vec(), key.clone()];
            self.same(at, &deleted)?;
        }
        Ok(())
    }

    fn expect(&self, args: &[Vec<u8>], ours: &Reply, theirs: &Reply, is_right: bool) -> Result<(), String> {
        if is_right {
            return Ok(());
        }
        let mut text = format!("seed {}: {}\n", self.seed, shown(args));
        let _ = writeln!(text, "  steelyard:    {ours:?}\n  redis-server: {theirs:?}\nafter");
        for line in self.log.iter().rev().take(SHOWN_TURNS).rev() {
            let _ = writeln!(text, "  {}", line.chars().take(200).collect::<String>());
        }
        Err(text)
    }
}

fn shown(args: &[Vec<u8>]) -> String {
    args.iter().map(|arg| format!("{:?}", Bytes::copy_from_slice(arg))).collect::<Vec<_>>().join(" ")
}
