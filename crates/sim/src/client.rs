//! The clients: each asks for one thing at a time, at the store that it takes for the leader.
//!
//! They live outside the stores' network and are never parted from them. What a store refused was proposed
//! nowhere, so it is asked for again elsewhere; what timed out, or was asked of a store that crashed, stays open
//! for ever.

use resp::Reply;
use types::{StoreId, UnixMillis};

use crate::clock::{MILLISECOND, SECOND};
use crate::model::{Command, Key};
use crate::observation::{Observation, Op, OpId};
use crate::rng::Rng;
use crate::world::{Event, World};

pub type ClientId = usize;

/// How long a client waits for one answer.
pub const PATIENCE: u64 = 4 * SECOND;

#[derive(Debug, Default)]
pub struct Client {
    pub asking: Option<Asking>,
    /// What it still has to ask for before it is content; `None`: whatever comes to its mind.
    pub wishes: Option<Vec<Op>>,
}

#[derive(Debug)]
pub struct Asking {
    pub op: Op,
    pub since: u64,
    /// Where the request is now.
    pub at: StoreId,
    /// Any store may answer from what it has applied.
    pub is_weak: bool,
}

/// How a store answers a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done {
        reply: Reply,
        read_ms: Option<UnixMillis>,
        /// The life of the store that answered a weak read.
        weakly: Option<(StoreId, u64)>,
    },
    /// Nothing was proposed.
    Refused { leader: Option<StoreId> },
    /// It may have taken effect, or may yet.
    Unknown,
}

/// What a client may ask for. Values are unique.
pub fn draw(rng: &mut Rng, value: u64) -> Command {
    let key = if rng.chance(60) { Key::First } else { Key::Second };
    match rng.below(20) {
        0..=3 => Command::Set { key, value },
        4 => Command::SetFor { key, value, ms: rng.between(1, 1500) },
        5 | 6 => Command::Append { key, value },
        7 => Command::SetBoth { first: value, second: value + 1 },
        8 => Command::Delete { key: rng.pick(&Key::ALL).expect("four keys") },
        9 | 10 => Command::Increment,
        11 => Command::SetField { field: rng.below(3), value },
        12..=15 => Command::Get { key },
        16 | 17 => Command::Get { key: Key::Counter },
        18 => Command::GetBoth,
        _ => Command::GetField { field: rng.below(3) },
    }
}

impl World {
    /// A client's thoughts come to an end.
    pub(crate) fn client_turn(&mut self, id: ClientId) {
        if self.clients[id].asking.is_some() {
            return;
        }
        let op = match &mut self.clients[id].wishes {
            Some(wishes) => match wishes.pop() {
                Some(op) => op,
                None => return,
            },
            None => self.new_op(),
        };
        self.tally.operations += 1;
        self.observe(&Observation::Invoked { op: &op });
        self.schedule(PATIENCE, Event::Impatience { client: id, op: op.id });
        let is_weak = op.command.is_read() && !self.is_calm && self.rng.chance(10);
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let at = match is_weak {
            true => self.rng.pick(&stores).expect("there are stores"),
            false => self.guess(&op),
        };
        self.ask(id, op, at, is_weak);
    }

    pub(crate) fn new_op(&mut self) -> Op {
        self.last_op += 1;
        let group = self.rng.below(self.groups);
        // Two numbers for the command that writes two.
        let mut command = draw(&mut self.rng, self.last_op * 2);
        while self.is_quiet() && !command.is_read() {
            command = draw(&mut self.rng, self.last_op * 2);
        }
        Op { id: self.last_op, group, command }
    }

    fn is_quiet(&self) -> bool {
        self.quiet.is_some_and(|(_, until)| self.now < until)
    }

    /// Mostly whom the stores take for the leader.
    fn guess(&mut self, op: &Op) -> StoreId {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let known = self.routed_to(crate::model::slot_of(op.group));
        match known.filter(|_| self.rng.chance(95)) {
            Some(leader) => leader,
            None => self.rng.pick(&stores).expect("there are stores"),
        }
    }

    fn ask(&mut self, client: ClientId, op: Op, at: StoreId, is_weak: bool) {
        let id = op.id;
        self.clients[client].asking = Some(Asking { op, since: self.now, at, is_weak });
        let delay = self.client_delay();
        self.schedule(delay, Event::Request { store: at, client, op: id });
    }

    pub(crate) fn client_delay(&mut self) -> u64 {
        MILLISECOND / 10 + self.rng.below(MILLISECOND)
    }

    /// The outcome reaches the client, unless it has given up.
    pub(crate) fn answered(&mut self, client: ClientId, op: OpId, outcome: Outcome) {
        let Some(asking) = self.clients[client].asking.as_ref().filter(|asking| asking.op.id == op) else {
            return;
        };
        match outcome {
            Outcome::Done { reply, read_ms, weakly } => {
                if self.is_tracing {
                    let weakly = if asking.is_weak { ", weakly" } else { "" };
                    let Asking { op: Op { group, command, .. }, at, .. } = asking;
                    let text =
                        format!("client {client}: {op} of group {group}, store {at}{weakly}: {command:?} -> {reply:?}");
                    self.say(&text);
                }
                self.tally.answered += 1;
                self.tally.reads += u64::from(read_ms.is_some());
                self.tally.slowest_ns = self.tally.slowest_ns.max(self.now - asking.since);
                self.observe(&Observation::Answered { op, reply: &reply, read_ms, weakly });
                self.content(client);
            }
            Outcome::Unknown => self.give_up(client),
            Outcome::Refused { leader } => {
                self.tally.refused += 1;
                let Some(Asking { op, since, .. }) = self.clients[client].asking.take() else { return };
                let id = op.id;
                let at = match leader {
                    Some(leader) if self.rng.chance(90) => leader,
                    _ => self.guess(&op),
                };
                // Only the leader is asked again.
                self.clients[client].asking = Some(Asking { op, since, at, is_weak: false });
                let pause = if leader.is_some() { MILLISECOND } else { 40 * MILLISECOND };
                let delay = pause + self.client_delay();
                self.schedule(delay, Event::Request { store: at, client, op: id });
            }
        }
    }

    pub(crate) fn impatient(&mut self, client: ClientId, op: OpId) {
        if self.clients[client].asking.as_ref().is_some_and(|asking| asking.op.id == op) {
            self.give_up(client);
        }
    }

    /// The operation stays open.
    fn give_up(&mut self, client: ClientId) {
        self.tally.unknown += 1;
        if let Some(asking) = &self.clients[client].asking {
            if self.is_calm {
                let is_doomed = self.is_doomed();
                let Asking { op, at, .. } = asking;
                let text = format!("operation {} of store {at} was not answered: {:?}", op.id, op.command);
                if !is_doomed {
                    self.violate("liveness", text);
                }
            }
        }
        self.content(client);
    }

    fn content(&mut self, client: ClientId) {
        self.clients[client].asking = None;
        let span = if self.is_quiet() { 200 } else { 60 };
        let pause = self.rng.below(span) * MILLISECOND;
        self.schedule(pause, Event::Client { client });
    }

    /// The connections of a store that crashed are reset.
    pub(crate) fn reset_clients(&mut self, store: StoreId) {
        for client in 0..self.clients.len() {
            let Some(asking) = &self.clients[client].asking else { continue };
            if asking.at == store {
                let op = asking.op.id;
                let delay = self.client_delay();
                self.schedule(delay, Event::Response { client, op, outcome: Outcome::Unknown });
            }
        }
    }
}
