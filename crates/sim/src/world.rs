//! A simulated cluster: its stores and clients, and the future events, in true time.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cluster::MetaCommand;
use node::bounded_staleness::MaxLag;
use node::merged::Merged;
use node::reads::Read;
use placement::Operator;
use replica::eraftpb::Message;
use resp::Reply;
use types::{
    BootNanos, LogIndex, RegionChange, RegionDescriptor, RegionId, Slot, SlotRange, StoreId, UnixMillis,
};

use crate::absence::Absence;
use crate::chained::Chaining;
use crate::client::{Client, ClientId, ConnectionId};
use crate::clock::{MILLISECOND, SECOND};
use crate::coordinator::{Ask, CoordinatorMessage, Ensemble};
use crate::durable::Snapshot;
use crate::faults::Plan;
use crate::forgetting::Forgetting;
use crate::invariants::{Invariant, Violation, TABLE};
use crate::model::Group;
use crate::network::Network;
use crate::observation::{EntryId, Observation, OpId};
use crate::rng::{fold, Rng};
use crate::split_race::SplitRace;
use crate::store::{Call, Damaging, Part, PartId, Shared, Store, Syncing};
use crate::tally::Tally;

#[derive(Clone)]
pub enum Packet {
    Raft {
        region: RegionId,
        message: Message,
    },
    /// An encoded heartbeat.
    Heartbeat(Bytes),
    /// An encoded order of the meta region's leader to a region's leader.
    Order(Bytes),
    /// Another store's announcement of a region's descriptor.
    Announced(RegionDescriptor),
    /// A store's question to the meta region's leader, and its answer: which of these regions have
    /// merged away. Each region is given with the slots that it had.
    AskMerged {
        regions: Vec<(RegionId, SlotRange)>,
    },
    Merged {
        asked: Vec<RegionId>,
        merged: Vec<Merged>,
    },
    /// A store's question to a region's leader for its applied index, and the answer.
    AskApplied {
        question: Question,
    },
    Applied {
        question: Question,
        index: LogIndex,
    },
    /// Commands that a store passes on to a region's leader, and their answers.
    Commands {
        call: Call,
        part: Part,
    },
    Replies {
        call: Call,
        replies: Vec<Reply>,
    },
    /// A random, unplanned request to a leader.
    Asked(Asked),
}

/// A question to a region's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    pub region: RegionId,
    /// The time of the question by the asking store's clock.
    pub asked_at: BootNanos,
    /// The incarnation of the asking process, whose connections end with it.
    pub life: u64,
}

#[derive(Clone, Debug)]
pub enum Asked {
    Transfer {
        region: RegionId,
        to: StoreId,
    },
    Change {
        region: RegionId,
        change: RegionChange,
    },
    /// A request to the meta region's leader for an operator, as an administrator makes it.
    Operator(Operator),
    /// A request to the meta region's leader: a store joins or should leave, or a merge is
    /// abandoned.
    Meta(MetaCommand),
}

#[derive(Clone)]
pub enum Event {
    /// Work of one incarnation of a store's process. It has no effect in a later incarnation.
    Of {
        store: StoreId,
        life: u64,
        work: Work,
    },
    Packet {
        from: StoreId,
        to: StoreId,
        packet: Packet,
    },
    /// Bytes of a connection, with the number of bytes before them.
    Request {
        store: StoreId,
        client: ClientId,
        connection: ConnectionId,
        offset: usize,
        bytes: Bytes,
    },
    Replies {
        client: ClientId,
        connection: ConnectionId,
        bytes: Bytes,
    },
    /// The store's process has ended. If it ended before the connection began, the store received
    /// no request.
    Reset {
        client: ClientId,
        connection: ConnectionId,
        is_refused: bool,
    },
    /// The client sends the refused operations of the conversation again.
    AskAgain {
        client: ClientId,
        first: ConnectionId,
    },
    Impatience {
        client: ClientId,
        first: ConnectionId,
    },
    Client {
        client: ClientId,
    },
    /// A client learns that the store has executed an entry of the group's region.
    Woken {
        client: ClientId,
        store: StoreId,
        group: Group,
    },
    /// A client that began to wait at this time gives up the wait.
    WaitEnds {
        client: ClientId,
        since: u64,
    },
    Fault,
    /// The absence of a store begins or is checked.
    Absence,
    /// A race of elections with a split begins or is checked.
    SplitRace,
    /// A store and its leader are isolated, or the store forgets entries.
    Forgetting,
    /// An entry that fails during execution is proposed.
    FailEntry,
    /// The coordinator looks for sessions that have ended.
    Sessions,
    /// A store's message reaches the coordinator.
    AskCoordinator {
        ask: Ask,
    },
    EnsembleFault,
    /// The way in which candidates are chosen changes.
    SwitchElections,
    /// The way of replication changes.
    SwitchReplication,
    /// The simulated operator handles quarantined peers.
    Attend,
    Heal {
        partition: u64,
    },
    Start {
        store: StoreId,
    },
    Restart {
        store: StoreId,
    },
    /// Merges that have begun are rolled back if possible.
    GiveUpMerges,
    /// A store is paused for seconds.
    Silence {
        store: StoreId,
    },
    /// A store that is no longer a member ends.
    Removed {
        store: StoreId,
    },
    Duel {
        leader: StoreId,
        rival: StoreId,
        others: Vec<StoreId>,
    },
    Mute {
        store: StoreId,
        stores: Vec<StoreId>,
    },
}

/// The work of a store's threads.
#[derive(Clone, Debug)]
pub enum Work {
    Tick,
    /// The worker takes the inputs from its queue.
    Turn,
    Logged,
    /// The store syncs the writes that are not synced yet.
    Sync,
    Apply,
    Flush,
    Flushed {
        applied: Vec<(RegionId, LogIndex)>,
        /// Memtables below this number are flushed.
        memtables: u64,
    },
    Heartbeat,
    /// A planned stop checks whether its current phase is done.
    Stop,
    /// A part of a conversation has waited too long and is refused.
    Refuse {
        part: PartId,
    },
    /// A command that another thread carries out is done.
    Own {
        part: PartId,
    },
    /// Weak reads with a bound look whether the store's copy is fresh enough.
    AwaitCopy {
        part: PartId,
        max: MaxLag,
        arrived: BootNanos,
    },
    /// The answer to another store's question is sent.
    TellApplied {
        to: StoreId,
        question: Question,
        index: LogIndex,
    },
    /// The store gives up a question to a region's leader.
    NoAnswer {
        question: Question,
    },
    /// The answer to commands that were passed on is no longer awaited.
    NoReplies {
        call: Call,
    },
    /// Reads take their view.
    View {
        part: PartId,
        read: Read<u64>,
    },
    /// Reads have taken their view. They are now checked for whether they may be answered.
    Read {
        part: PartId,
        replies: Vec<Reply>,
        read_ms: UnixMillis,
        read: Read<u64>,
    },
    /// Writes have found nothing in the view. They are now checked for whether they may be answered
    /// with it.
    Nothing {
        part: PartId,
        /// The replies, with the times at which they were read.
        views: Vec<(Reply, UnixMillis)>,
        read: Read<u64>,
    },
    /// The store led when the reads arrived.
    ProvenRead {
        part: PartId,
    },
    /// Entries of the log are read for a follower that lags.
    ReadLog {
        region: RegionId,
        number: u64,
        low: LogIndex,
        high: LogIndex,
        max_bytes: u64,
    },
    MakeSnapshot {
        region: RegionId,
    },
    SnapshotMade {
        snapshot: Box<Snapshot>,
    },
    /// A region's rows at the index of a check's entry were read.
    Checked {
        view: Box<Snapshot>,
        number: u64,
        /// The number of times that the rows had been replaced when the view was taken.
        replaced: u64,
    },
    SnapshotSent {
        region: RegionId,
        to: StoreId,
        message: Box<Message>,
        made: Option<Box<Snapshot>>,
    },
    /// The next step of a peer's lifecycle: of a snapshot that replaces rows, or of the removal of
    /// a peer.
    Life,
    FlushSoon,
    /// A message of the coordinator.
    CoordinatorMessage(CoordinatorMessage),
    /// The store learns the present way in which candidates are chosen.
    LearnElections,
    /// The store learns the present way of replication.
    LearnReplication,
    /// The record is complete that damage to the log made the region's peer unclean.
    DamageRecorded {
        region: RegionId,
    },
}

pub struct World {
    /// True time in nanoseconds.
    pub now: u64,
    pub rng: Rng,
    pub seed: u64,
    pub stores: BTreeMap<StoreId, Store>,
    pub network: Network,
    pub clients: Vec<Client>,
    pub groups: u64,
    /// The regions with which the cluster begins.
    pub layout: Vec<RegionDescriptor>,
    pub plan: Plan,
    pub syncing: Syncing,
    pub damaging: Damaging,
    pub tally: Tally,
    pub violation: Option<Violation>,
    /// A digest of all events.
    pub digest: u64,
    pub is_tracing: bool,
    /// The meta region's applied index up to which members were checked.
    pub(crate) members_as_of: LogIndex,
    /// Stores that were asked to leave, even if they were asked to stay since.
    pub(crate) asked_to_go: BTreeSet<StoreId>,
    /// True if every request must be answered from now on.
    pub is_calm: bool,
    /// Clients only read until this store leads a region, or until this moment.
    pub(crate) quiet: Option<(StoreId, u64)>,
    /// The store that is down while its regions merge.
    pub(crate) absence: Option<Absence>,
    /// The regions that any store has seen merge away.
    pub(crate) merged: BTreeSet<RegionId>,
    /// The present race of elections with a split.
    pub(crate) race: Option<SplitRace>,
    /// The leader and the follower that are isolated together.
    pub(crate) forgetting: Option<Forgetting>,
    /// The coordinator that chooses candidates.
    pub(crate) ensemble: Option<Ensemble>,
    /// The seed's chains.
    pub(crate) chaining: Option<Chaining>,
    /// True from the first quarantined peer on: a simulated operator decides about such peers.
    pub(crate) is_attended: bool,
    /// The skips that the simulated operator has ordered, by region and entry, and their times.
    pub(crate) skips_asked: BTreeMap<(RegionId, LogIndex), u64>,
    /// Clients write without pauses until this moment.
    pub(crate) rush_until: u64,
    pub(crate) last_op: OpId,
    pub(crate) last_entry: EntryId,
    pub(crate) last_connection: ConnectionId,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    invariants: Vec<(&'static str, Box<dyn Invariant>)>,
}

/// Interval at which events for a paused process check whether it has resumed.
const PAUSE_LOOK: u64 = 200 * MILLISECOND;

/// True time at which a run begins.
pub const BEGIN: u64 = 1_000 * SECOND;

impl World {
    pub fn new(seed: u64, rng: Rng, plan: Plan, layout: Vec<RegionDescriptor>) -> World {
        World {
            now: BEGIN,
            rng,
            seed,
            stores: BTreeMap::new(),
            network: Network::default(),
            clients: Vec::new(),
            groups: 1,
            layout,
            plan,
            syncing: Syncing::of(seed),
            damaging: Damaging::of(seed),
            tally: Tally::default(),
            violation: None,
            digest: seed,
            is_tracing: false,
            members_as_of: 0,
            asked_to_go: BTreeSet::new(),
            is_calm: false,
            quiet: None,
            absence: None,
            merged: BTreeSet::new(),
            race: None,
            forgetting: None,
            ensemble: Ensemble::of(seed),
            chaining: Chaining::of(seed),
            is_attended: false,
            skips_asked: BTreeMap::new(),
            rush_until: 0,
            last_op: 0,
            last_entry: 0,
            last_connection: 0,
            events: BTreeMap::new(),
            next_event: 0,
            invariants: TABLE.iter().map(|(name, _, begin)| (*name, begin())).collect(),
        }
    }

    pub fn schedule(&mut self, delay: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + delay, self.next_event), event);
    }

    /// Keeps one invariant and drops the others.
    pub fn keep_invariant(&mut self, name: &str) {
        self.invariants.retain(|(other, _)| *other == name);
    }

    /// Allows acknowledged entries to be lost from now on. Invariants that compare with earlier
    /// commits, executions or answers restart; invariants of terms and epochs continue, and the one
    /// of ranges only demands that they do not overlap.
    /// Histories are no longer checked, because they mix the data from before and after the loss.
    /// Acknowledgements are not checked either: the keeper answers for the end of its log, which no
    /// other peer may have.
    pub fn forget_the_past(&mut self) {
        self.invariants.retain(|(name, _)| !matches!(*name, "linearizable" | "acknowledged"));
        for (name, invariant) in &mut self.invariants {
            if matches!(*name, "committed" | "same-rows" | "current-lease" | "equal-replicas") {
                let row = TABLE.iter().find(|(other, _, _)| other == name);
                *invariant = row.map(|(_, _, begin)| begin()).expect("it is in the table");
            }
            invariant.allow_loss();
        }
    }

    /// True when the run ends early, because an invariant is violated.
    pub fn is_over(&self) -> bool {
        self.violation.is_some()
    }

    /// Advances the time to the next event and handles it.
    pub fn step(&mut self) {
        let Some(((at, number), event)) = self.events.pop_first() else { return };
        self.now = at;
        self.tally.events += 1;
        self.digest = fold(self.digest, &at.to_le_bytes()) ^ number;
        self.handle(event);
        self.check_leases();
    }

    /// Runs until a moment or a violation.
    pub fn run_until(&mut self, end: u64) {
        while !self.is_over() && self.events.first_key_value().is_some_and(|(&(at, _), _)| at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    fn handle(&mut self, event: Event) {
        let process = match &event {
            Event::Of { store, .. } | Event::Packet { to: store, .. } | Event::Request { store, .. } => {
                Some(*store)
            }
            _ => None,
        };
        // A paused process finds all events when it resumes, which may be earlier than planned.
        if let Some(until) = process.and_then(|store| self.stores[&store].paused_until(self.now)) {
            return self.schedule((until - self.now).min(PAUSE_LOOK), event);
        }
        match event {
            Event::Of { store, life, work } => {
                if self.stores[&store].is_alive(life) {
                    self.work(store, work);
                }
            }
            Event::Packet { from, to, packet } => self.receive(to, from, packet),
            Event::Request { store, client, connection, offset, bytes } => {
                self.request(store, client, connection, (offset, bytes));
            }
            Event::Replies { client, connection, bytes } => self.replied(client, connection, &bytes),
            Event::Reset { client, connection, is_refused } => self.reset(client, connection, is_refused),
            Event::AskAgain { client, first } => self.ask_again(client, first),
            Event::Impatience { client, first } => self.impatient(client, first),
            Event::Client { client } => self.client_turn(client),
            Event::Woken { client, store, group } => self.woken(client, store, group),
            Event::WaitEnds { client, since } => self.wait_ends(client, since),
            Event::Fault => self.fault(),
            Event::Absence => self.look_at_absence(),
            Event::SplitRace => self.look_at_race(),
            Event::Forgetting => self.forget_entries(),
            Event::FailEntry => self.fail_entry(),
            Event::Sessions => self.look_at_sessions(),
            Event::AskCoordinator { ask } => self.asked_coordinator(&ask),
            Event::EnsembleFault => self.ensemble_fault(),
            Event::SwitchElections => self.switch_elections(),
            Event::SwitchReplication => self.switch_replication(),
            Event::Attend => self.attend(),
            Event::Heal { partition } => self.network.heal(partition),
            Event::Start { store } => self.start(store),
            Event::Restart { store } => self.restart(store),
            Event::GiveUpMerges => self.give_up_merges(),
            Event::Silence { store } => self.silence(store),
            Event::Removed { store } => self.end_removed(store),
            Event::Duel { leader, rival, others } => self.begin_duel(leader, rival, &others),
            Event::Mute { store, stores } => self.mute(store, &stores),
        }
    }

    pub fn send(&mut self, from: StoreId, to: StoreId, packet: Packet) {
        if let Packet::Raft { region, .. } = &packet {
            if !self.network.carries(*region, from, to) {
                return;
            }
        }
        for delay in self.network.delays(&mut self.rng, from, to) {
            self.schedule(delay, Event::Packet { from, to, packet: packet.clone() });
        }
    }

    pub fn observe(&mut self, seen: &Observation<'_>) {
        for (name, invariant) in &mut self.invariants {
            if let Err(what) = invariant.observe(seen) {
                let at_ms = (self.now - BEGIN) / MILLISECOND;
                let violation = Violation { invariant: name, what, at_ms };
                self.violation.get_or_insert(violation);
            }
        }
    }

    pub fn violate(&mut self, invariant: &'static str, what: String) {
        let at_ms = (self.now - BEGIN) / MILLISECOND;
        if self.violation.is_none() {
            self.say_peers();
        }
        self.violation.get_or_insert(Violation { invariant, what, at_ms });
    }

    /// Prints the state of every peer in a trace.
    fn say_peers(&self) {
        for (id, process) in self.stores.iter().filter_map(|(id, store)| Some((id, store.process.as_ref()?)))
        {
            for region in process.shard.regions() {
                let status = process.shard.status(region, 0);
                self.say(&format!("store {id} has of region {region}: {status:?}"));
            }
        }
    }

    pub fn say(&self, text: &str) {
        if self.is_tracing {
            println!("{:>10.3} ms  {text}", (self.now - BEGIN) as f64 / MILLISECOND as f64);
        }
    }

    /// Returns the leader of a slot's region according to the newest knowledge of any store.
    pub fn routed_to(&self, slot: Slot) -> Option<StoreId> {
        let processes = self.stores.values().filter_map(|store| store.process.as_ref());
        let regions = processes.flat_map(|process| process.regions.values());
        let of_slot = regions.filter(|shared| {
            shared.descriptor.slots.is_some_and(|slots| slots.contains(slot))
                && shared.leadership.leader.is_some()
        });
        let newest = |shared: &&Shared| (shared.descriptor.epoch.version, shared.leadership.term);
        of_slot.max_by_key(newest).and_then(|shared| shared.leadership.leader)
    }
}
