//! All of this store's peers behind one queue and one log.
//!
//! A turn's cost is that of the regions that have something to do: inputs mark theirs, and a tick marks
//! those in which it caused something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use raft::eraftpb::{Message, MessageType};
use types::{BootNanos, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId};

use crate::action::{Action, DropReason, Fatal, Input, LogBatch, PeerSeed, Refusal, RegionStatus};
use crate::config::Config;
use crate::log_reads::{Range, LOG_READS_MAX};
use crate::log_store::LogStore;
use crate::log_view::Logs;
use crate::memory::EntryMemory;
use crate::peer::inspect;
use crate::peer::{Outbox, Peer, Turned, Turnover};
use crate::planted::{self, Bug};
use crate::vote_hold::{Promise, VoteHold};

mod merges;

/// Votes asked of peers that a split has not made here yet: the latest so many wait for it.
const EARLY_VOTES: usize = 256;

/// Peers that were announced and wait for their first snapshot. A leader announces again what was not heeded, and
/// snapshots come a few at a time.
const BLANK_PEERS_MAX: usize = 1024;

/// Sleeping regions that are woken with one tick, when the store of their leaders falls silent: elections of
/// thousands of them at once would be lost in each other's way.
const WAKE_PER_TICK: usize = 512;

/// Which ticks count. Each counted tick moves the time before which none counts by at least a tick's
/// length, and never behind the present, so missed ticks are not made up for and `k` counted ticks take
/// at least `k - 2` tick lengths however the caller's timer stumbles.
struct TickGate {
    due: BootNanos,
    length: BootNanos,
}

impl TickGate {
    fn pass(&mut self, now: BootNanos) -> bool {
        let passes = now >= self.due;
        if passes {
            self.due = self.due.saturating_add(self.length).max(now);
        }
        passes
    }
}

/// What the batch in flight is made of. There is one at a time: the next gathers what comes meanwhile, so
/// under load a batch is as large as the device is slow, and no write waits for a timer.
struct BatchInFlight {
    number: u64,
    regions: Vec<RegionId>,
}

pub struct Worker<L: LogStore> {
    config: Config,
    logs: Logs<L>,
    logger: slog::Logger,
    peers: BTreeMap<RegionId, Peer<L>>,
    /// Peers whose parent has to apply the split again before they can be opened.
    waiting: BTreeMap<RegionId, PeerSeed>,
    /// The largest number of a peer that was here and is no more: nothing may bring it back.
    tombstones: BTreeMap<RegionId, PeerId>,
    /// Peers that are gone, of which rows or log may be left. Nobody may have their slots yet.
    destroying: BTreeMap<RegionId, Option<SlotRange>>,
    /// Regions with a merge whose source has not come to its end here.
    mergers: BTreeSet<RegionId>,
    /// By the region whose snapshot is being applied over them: peers that have merged away, to be destroyed
    /// when that is done.
    superseded: BTreeMap<RegionId, Vec<Action>>,
    /// To be said when the batch in flight is written: it holds something of the peers that they destroy.
    after_batch: Vec<Action>,
    early_votes: VecDeque<(StoreId, RegionId, Message)>,
    dirty: BTreeSet<RegionId>,
    /// Those that a tick is for; the others sleep.
    awake: BTreeSet<RegionId>,
    /// To be woken, some with every tick: their leader's store has fallen silent.
    waking: BTreeSet<RegionId>,
    /// Peers with something for the log, and whether any of it needs a batch.
    unsaved: BTreeSet<RegionId>,
    is_urgent: bool,
    batches: u64,
    in_flight: Option<BatchInFlight>,
    /// Reads of the log that wait for others to be done, and how many of those there are.
    log_reads: VecDeque<(RegionId, u64, Range)>,
    reads_under_way: usize,
    last_read: u64,
    ticks: TickGate,
    /// When this store started.
    started_at: BootNanos,
    outbox: Outbox,
    failure: Option<Fatal>,
    /// The store is about to stop: see `Input::StopLeading`.
    is_stopping: bool,
    /// Bytes of committed entries that may still be handed out, and the regions that have more.
    room: u64,
    withheld: BTreeSet<RegionId>,
    /// Caches are trimmed in turns, beginning with this region; in vain until something more is written.
    next_trimmed: RegionId,
    is_trimmed: bool,
}

impl<L: LogStore> Worker<L> {
    /// Everything above each region's `applied` that is known to be committed is handed out again.
    /// `tombstones`: of the peers that were here once, each region's largest number.
    pub fn new(
        config: Config,
        log: L,
        seeds: Vec<PeerSeed>,
        tombstones: BTreeMap<RegionId, PeerId>,
        now: BootNanos,
    ) -> Result<Self, Fatal> {
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        Worker::with_logger(config, log, seeds, tombstones, logger, now)
    }

    pub fn with_logger(
        config: Config,
        log: L,
        seeds: Vec<PeerSeed>,
        tombstones: BTreeMap<RegionId, PeerId>,
        logger: slog::Logger,
        now: BootNanos,
    ) -> Result<Self, Fatal> {
        config.validate().map_err(Fatal::Config)?;
        let memory = Arc::new(EntryMemory::new(config.entry_memory_bytes));
        let logs = Logs { store: log, memory };
        let mut outbox = Outbox::default();
        let mut peers = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        // That a split's peer exists proves that the split was committed.
        let mut committed = BTreeMap::new();
        for (parent, at) in seeds.iter().filter(|seed| seed.applied.is_none()).filter_map(|seed| seed.parent)
        {
            let known = committed.entry(parent).or_insert(at);
            *known = at.max(*known);
        }
        for seed in seeds {
            let region = seed.descriptor.id;
            let is_waiting = seed.applied.is_none() && seed.parent.is_some();
            let is_new = if is_waiting {
                waiting.insert(region, seed).is_none()
            } else {
                let known = committed.get(&region).copied().unwrap_or(0);
                let mut peer = Peer::open(&config, &logs, seed, known, &logger, now)?;
                peer.campaign_if_alone(&config, now, &mut outbox);
                peers.insert(region, peer).is_none()
            };
            if !is_new {
                return Err(Fatal::NotAPeer { region });
            }
        }
        if let Some((&region, _)) = waiting.iter().find(|(_, seed)| {
            seed.parent
                .is_none_or(|(parent, _)| !peers.contains_key(&parent) && !waiting.contains_key(&parent))
        }) {
            return Err(Fatal::Orphan { region });
        }
        Ok(Worker {
            dirty: peers.keys().copied().collect(),
            awake: peers.keys().copied().collect(),
            waking: BTreeSet::new(),
            logs,
            logger,
            peers,
            waiting,
            tombstones,
            destroying: BTreeMap::new(),
            mergers: BTreeSet::new(),
            superseded: BTreeMap::new(),
            after_batch: Vec::new(),
            early_votes: VecDeque::new(),
            unsaved: BTreeSet::new(),
            is_urgent: false,
            batches: 0,
            in_flight: None,
            log_reads: VecDeque::new(),
            reads_under_way: 0,
            last_read: 0,
            ticks: TickGate { due: now.saturating_add(config.tick_nanos), length: config.tick_nanos },
            started_at: now,
            outbox,
            failure: None,
            is_stopping: false,
            room: u64::MAX,
            withheld: BTreeSet::new(),
            next_trimmed: 0,
            is_trimmed: false,
            config,
        })
    }

    /// Takes an input. What it causes comes out of the next `turn`.
    pub fn step(&mut self, input: Input, now: BootNanos) {
        match input {
            Input::Tick => self.tick(now),
            Input::Persisted { batch } => self.persisted(batch, now),
            Input::StoreUnreachable { store } => {
                for (&region, peer) in &mut self.peers {
                    if peer.unreachable(&self.config, store, now, &mut self.outbox) {
                        self.dirty.insert(region);
                    }
                }
            }
            Input::Message { from, region, message } => self.receive(from, region, message, now),
            Input::Announced { from, descriptor } => self.announced(from, descriptor, now),
            Input::ChangeRegion { region, token, expect, change } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, now, |peer, config, out| {
                    peer.change_region(config, token, (expect, change), now, out);
                });
            }
            Input::SnapshotMade { region, index, term, descriptor } => {
                self.with_peer(region, |peer, _, _| {
                    peer.snapshot_made(index, term, &descriptor);
                    Ok(())
                });
            }
            Input::SnapshotFailed { region } => self.with_peer(region, |peer, _, _| {
                peer.snapshot_failed();
                Ok(())
            }),
            Input::SnapshotSent { region, to, delivered } => self.with_peer(region, |peer, config, out| {
                peer.snapshot_sent(config, (to, delivered), now, out);
                Ok(())
            }),
            Input::SnapshotApplied { region } => {
                self.outbox.later.extend(self.superseded.remove(&region).unwrap_or_default());
                self.with_peer(region, |peer, config, out| {
                    peer.snapshot_applied(config, out);
                    Ok(())
                });
            }
            Input::Destroyed { region } => drop(self.destroying.remove(&region)),
            Input::Propose { region, token, payload } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, now, |peer, config, out| {
                    peer.propose(config, token, payload, now, out);
                });
            }
            Input::Quarantine { region, index, may_lead } => {
                self.with_peer(region, |peer, config, out| {
                    peer.confine(config, (index, may_lead), now, out);
                    Ok(())
                });
            }
            Input::Release { region } => self.with_peer(region, |peer, _, out| peer.set_free(out)),
            Input::AdmitSnapshot { region } => self.with_peer(region, |peer, _, _| {
                peer.admit_snapshot();
                Ok(())
            }),
            Input::ProposeOrder { region, token, payload } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, now, |peer, config, out| {
                    peer.propose_order(config, token, payload, now, out);
                });
            }
            Input::ReadIndex { region, token } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, now, |peer, _, out| peer.read_index(token, now, out));
            }
            Input::WantLease { region } => {
                self.with_woken_peer(region, now, |peer, config, out| peer.want_lease(config, now, out));
            }
            Input::Applied { region, index } => {
                self.with_peer(region, |peer, config, out| {
                    peer.applied(config, index, now, out);
                    Ok(())
                });
                self.turn_over(now);
            }
            Input::Flushed { region, index } => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.flushed(&self.config, index, &mut self.outbox);
                }
            }
            Input::TruncateHint { region, index } => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.truncate_hint(&self.config, index, &mut self.outbox);
                }
            }
            Input::LogPinned { regions } => {
                for region in regions {
                    if let Some(peer) = self.peers.get_mut(&region) {
                        peer.let_go(&mut self.outbox);
                    }
                }
            }
            Input::LogRead { region, number, entries } => {
                self.reads_under_way = self.reads_under_way.saturating_sub(1);
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.log_read(&self.config, number, entries, now, &mut self.outbox);
                    self.dirty.insert(region);
                }
                self.read_log();
            }
            Input::StoreSilent { store } => {
                let led = self.peers.iter().filter(|(_, peer)| peer.is_asleep() && peer.follows(store));
                self.waking.extend(led.map(|(&region, _)| region));
            }
            Input::StopLeading => {
                self.is_stopping = true;
                self.peers.values_mut().for_each(Peer::stop_leading);
            }
            Input::TransferLeader { region, to } => {
                if !self.peers.contains_key(&region) {
                    return self.outbox.first.push(Action::TransferAborted { region, to });
                }
                self.with_woken_peer(region, now, |peer, config, out| {
                    peer.transfer_leader(config, to, now, out);
                });
            }
        }
    }

    /// What is to be done now, to be executed in order. After an error the store must stop: nothing of
    /// this turn may be executed, and every later turn fails alike.
    pub fn turn(&mut self, now: BootNanos) -> Result<Vec<Action>, Fatal> {
        for region in std::mem::take(&mut self.dirty) {
            let Some(peer) = self.peers.get_mut(&region) else { continue };
            match peer.turn(&self.config, now, &mut self.room, &mut self.outbox) {
                Ok(Turned::Done) => {}
                Ok(Turned::HasMore) => drop(self.dirty.insert(region)),
                Ok(Turned::Withheld) => drop(self.withheld.insert(region)),
                Err(fatal) => {
                    self.failure.get_or_insert(fatal);
                }
            }
            let wanted = peer.take_up_reads(&mut self.last_read);
            self.log_reads.extend(wanted.into_iter().map(|(number, range)| (region, number, range)));
            if peer.awaits().is_some() {
                self.mergers.insert(region);
            }
            if !peer.unsaved.is_empty() {
                self.unsaved.insert(region);
                self.is_urgent |= peer.unsaved.is_urgent;
            }
        }
        self.see_to_merges(now);
        self.read_log();
        if let Some(fatal) = &self.failure {
            return Err(fatal.clone());
        }
        let batch = self.cut_batch();
        let Outbox { first, sends, later, turnover } = std::mem::take(&mut self.outbox);
        assert!(turnover.is_empty(), "whoever applies turns over");
        let mut actions = first;
        actions.extend(sends);
        actions.extend(batch.map(Action::Persist));
        actions.extend(later);
        Ok(actions)
    }

    /// Whether another turn would find work without another input. What an input caused where no peer is, or is
    /// any more, waits in the outbox alone.
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.outbox.is_empty()
    }

    /// Sets how many bytes of committed entries may be handed out from now on; the last `Apply` may pass that. The other
    /// entries stay in the log until there is room again, and not in memory.
    pub fn make_room(&mut self, bytes: u64) {
        self.room = bytes;
        if bytes > 0 {
            self.dirty.append(&mut self.withheld);
        }
    }

    /// Bytes, by the typical size of a region's entries, that are committed and withheld.
    pub fn withheld_bytes(&self) -> u64 {
        self.withheld.iter().filter_map(|region| self.peers.get(region)).map(Peer::withheld_bytes).sum()
    }

    pub fn entry_memory(&self) -> Arc<EntryMemory> {
        self.logs.memory.clone()
    }

    /// While true, waiting commands had better gather into one payload: their entry would wait too.
    pub fn persist_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The caller answered for this proposal or read itself: no action will name it any more.
    pub fn forget(&mut self, region: RegionId, token: u64) {
        if let Some(peer) = self.peers.get_mut(&region) {
            peer.forget(token);
        }
    }

    pub fn can_propose(&self, region: RegionId) -> Result<(), Refusal> {
        self.peers.get(&region).ok_or(Refusal::NotLeader { leader: None })?.can_propose()
    }

    pub fn status(&self, region: RegionId, now: BootNanos) -> Option<RegionStatus> {
        self.peers.get(&region).map(|peer| peer.status(&self.config, now))
    }

    /// The regions in which something may happen without being asked for; the others sleep.
    pub fn awake(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.awake.iter().copied()
    }

    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.peers.keys().copied()
    }

    fn with_peer(
        &mut self,
        region: RegionId,
        call: impl FnOnce(&mut Peer<L>, &Config, &mut Outbox) -> Result<(), Fatal>,
    ) {
        let Some(peer) = self.peers.get_mut(&region) else { return };
        if let Err(fatal) = call(peer, &self.config, &mut self.outbox) {
            self.failure.get_or_insert(fatal);
        }
        match peer.is_asleep() {
            true => self.awake.remove(&region),
            false => self.awake.insert(region),
        };
        self.dirty.insert(region);
    }

    /// As `with_peer`, for what is asked of the region: it does not sleep over it.
    fn with_woken_peer(
        &mut self,
        region: RegionId,
        now: BootNanos,
        call: impl FnOnce(&mut Peer<L>, &Config, &mut Outbox),
    ) {
        self.with_peer(region, |peer, config, out| {
            peer.wake(config, now, out);
            call(peer, config, out);
            Ok(())
        });
    }

    fn wake_some(&mut self, now: BootNanos) {
        for _ in 0..WAKE_PER_TICK {
            let Some(region) = self.waking.pop_first() else { return };
            self.with_woken_peer(region, now, |peer, _, out| peer.knock(out));
        }
    }

    fn drop_message(&mut self, region: RegionId, from: StoreId, reason: DropReason) {
        self.outbox.first.push(Action::Dropped { region, from, reason });
    }

    fn receive(&mut self, from: StoreId, region: RegionId, message: Message, now: BootNanos) {
        if let Err(reason) = inspect::form(region, &message) {
            return self.drop_message(region, from, reason);
        }
        let kind = message.get_msg_type();
        if kind == MessageType::MsgAppend && !message.entries.is_empty() && !self.has_entry_memory() {
            // Nothing is rejected by it: the leader finds out as if it were lost.
            return self.logs.memory.refuse();
        }
        let mut yielding = Vec::new();
        if kind == MessageType::MsgSnapshot {
            match self.yielding_to_snapshot(region, &message) {
                Some(regions) => yielding = regions,
                None => return,
            }
        }
        if !self.peers.contains_key(&region) {
            if matches!(kind, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote) {
                if self.early_votes.len() == EARLY_VOTES {
                    self.early_votes.pop_front();
                }
                self.early_votes.push_back((from, region, message));
            }
            return;
        }
        self.with_peer(region, |peer, config, out| {
            peer.receive(config, from, message, now, out);
            Ok(())
        });
        if !yielding.is_empty() {
            self.supersede(region, yielding, now);
        }
    }

    /// Whether what waits for the log leaves memory for more.
    fn has_entry_memory(&mut self) -> bool {
        if self.logs.memory.is_over() && !self.is_trimmed {
            self.trim_caches();
        }
        !self.logs.memory.is_over() || planted::is(Bug::FullIgnored)
    }

    /// Lets written entries go, the older half of what each region has, region after region.
    fn trim_caches(&mut self) {
        let regions = self.peers.range(self.next_trimmed..).chain(self.peers.range(..self.next_trimmed));
        let regions: Vec<RegionId> = regions.map(|(&region, _)| region).collect();
        let mut has_evicted = true;
        while has_evicted {
            has_evicted = false;
            for &region in &regions {
                if !self.logs.memory.is_above_rest() {
                    self.next_trimmed = region;
                    return;
                }
                has_evicted |= self.peers.get_mut(&region).is_some_and(Peer::evict);
            }
        }
        self.is_trimmed = true;
    }

    fn has_waiting_child(&self, region: RegionId) -> bool {
        self.waiting.values().any(|seed| seed.parent.is_some_and(|(parent, _)| parent == region))
    }

    /// Whether slots of the region are another region's on this store.
    fn overlaps(&self, descriptor: &RegionDescriptor) -> bool {
        self.overlaps_but(descriptor, &[])
    }

    fn overlaps_but(&self, descriptor: &RegionDescriptor, yielding: &[RegionId]) -> bool {
        let Some(slots) = descriptor.slots else { return false };
        let meets = |other: Option<SlotRange>| {
            other.is_some_and(|other| other.first <= slots.last && slots.first <= other.last)
        };
        let peers = self.peers.values().filter(|peer| !peer.is_blank()).map(Peer::descriptor);
        let waiting = self.waiting.values().map(|seed| &seed.descriptor);
        peers
            .chain(waiting)
            .filter(|other| other.id != descriptor.id && !yielding.contains(&other.id))
            .any(|other| meets(other.slots))
            || self.destroying.iter().any(|(&region, &slots)| region != descriptor.id && meets(slots))
    }

    fn announced(&mut self, from: StoreId, descriptor: RegionDescriptor, now: BootNanos) {
        let region = descriptor.id;
        if let Err(reason) = inspect::announcement(from, &descriptor) {
            return self.drop_message(region, from, reason);
        }
        self.bury_the_merged(&descriptor);
        if let Some(peer) = self.peers.get_mut(&region) {
            // It may be a knock. A follower that was woken alone would only stand against a leader that sleeps.
            if peer.is_leader() && peer.wake(&self.config, now, &mut self.outbox) {
                self.awake.insert(region);
            }
            let has_gone = peer.hear_descriptor(from, descriptor, &mut self.outbox);
            if let Some(descriptor) = has_gone.filter(|_| !self.has_waiting_child(region)) {
                self.outbox.turnover.push(Turnover::Gone { descriptor });
                self.turn_over(now);
            }
            return;
        }
        if let Some(heir) = self.heir_of(&descriptor) {
            return self.outbox.sends.push(Action::Announce { to: from, descriptor: heir });
        }
        let Some(peer) = descriptor.peer_on(self.config.store) else { return };
        let is_past = self.tombstones.get(&region).is_some_and(|&id| peer.id <= id);
        let is_busy = self.waiting.contains_key(&region) || self.destroying.contains_key(&region);
        if is_past || is_busy || self.overlaps(&descriptor) {
            return;
        }
        if self.peers.values().filter(|peer| peer.is_blank()).count() >= BLANK_PEERS_MAX {
            return self.drop_message(region, from, DropReason::TooManyBlank);
        }
        let blank = self.recorded_promise(region).and_then(|promise| {
            Peer::blank(&self.config, &self.logs, descriptor, promise, &self.logger, now)
        });
        match blank {
            Ok(mut peer) => {
                if self.is_stopping {
                    peer.stop_leading();
                }
                self.peers.insert(region, peer);
                self.awake.insert(region);
                self.receive_early_votes(region, now);
            }
            Err(fatal) => drop(self.failure.get_or_insert(fatal)),
        }
    }

    /// Returns what an earlier blank peer of the region promised, as the log has it. A peer that was never
    /// in any term promised nothing: it answers a leader only once its term is synced.
    fn recorded_promise(&self, region: RegionId) -> Result<Promise, Fatal> {
        let recorded = self.logs.store.hard_state(region).map_err(Fatal::Log)?;
        let recorded = recorded.filter(|_| !planted::is(Bug::BlankForgetsVote));
        let length = self.config.vote_hold_nanos();
        let hold = VoteHold::new(length, recorded.is_some().then_some(self.started_at));
        Ok(Promise { hard_state: recorded.unwrap_or_default(), hold })
    }

    /// Delivers the votes that were asked of the region's peer before it was there.
    fn receive_early_votes(&mut self, region: RegionId, now: BootNanos) {
        let (early, others) =
            std::mem::take(&mut self.early_votes).into_iter().partition(|(_, to, _)| *to == region);
        self.early_votes = others;
        let early: VecDeque<(StoreId, RegionId, Message)> = early;
        early.into_iter().for_each(|(from, region, message)| self.receive(from, region, message, now));
    }

    /// Makes the peers that splits made, and forgets those that were removed.
    fn turn_over(&mut self, now: BootNanos) {
        for turnover in std::mem::take(&mut self.outbox.turnover) {
            let made = match turnover {
                Turnover::Born { descriptor, parent, at, led } => {
                    self.give_birth(descriptor, (parent, at), led, now)
                }
                Turnover::Gone { descriptor } => {
                    self.bury(descriptor);
                    Ok(())
                }
                Turnover::Absorbed { source } => {
                    let destroy = self.remove(source.id);
                    self.destroy(destroy);
                    Ok(())
                }
            };
            if let Err(fatal) = made {
                self.failure.get_or_insert(fatal);
            }
        }
    }

    fn give_birth(
        &mut self,
        descriptor: RegionDescriptor,
        (parent, at): (RegionId, u64),
        led: bool,
        now: BootNanos,
    ) -> Result<(), Fatal> {
        let region = descriptor.id;
        let waited = self.waiting.remove(&region);
        let is_known = self.peers.get(&region).is_some_and(|peer| !peer.is_blank());
        let id = descriptor.peer_on(self.config.store).map(|peer| peer.id);
        if is_known {
            return Ok(());
        }
        if self.tombstones.get(&region).is_some_and(|&last| id.is_none_or(|id| id <= last)) {
            // It came and went before this store forgot the split. Its rows are here again.
            self.destroying.insert(region, descriptor.slots);
            let peer = self.tombstones[&region];
            self.outbox.later.push(Action::Destroy { region, peer });
            return Ok(());
        }
        let mut peer = match waited {
            Some(seed) => Peer::open(&self.config, &self.logs, seed, 0, &self.logger, now)?,
            None => {
                let promise = match self.peers.get(&region) {
                    Some(blank) => blank.promise(),
                    None => self.recorded_promise(region)?,
                };
                let (config, logs, logger) = (&self.config, &self.logs, &self.logger);
                Peer::born(config, logs, descriptor, (parent, at), promise, logger, now)?
            }
        };
        if self.is_stopping {
            peer.stop_leading();
        }
        if led {
            peer.campaign(&self.config, now, &mut self.outbox);
        } else {
            peer.campaign_if_alone(&self.config, now, &mut self.outbox);
        }
        self.peers.insert(region, peer);
        self.dirty.insert(region);
        self.awake.insert(region);
        self.receive_early_votes(region, now);
        Ok(())
    }

    fn bury(&mut self, descriptor: RegionDescriptor) {
        let region = descriptor.id;
        let slots = self.peers.get(&region).and_then(|peer| peer.descriptor().slots);
        // While this one's rows are there, they say what has become of those.
        self.outbox.later.extend(self.superseded.remove(&region).unwrap_or_default());
        let destroy = self.remove(region);
        if destroy.is_some() {
            self.destroying.insert(region, slots);
        }
        self.destroy(destroy);
    }

    fn destroy(&mut self, destroy: Option<Action>) {
        match self.in_flight {
            Some(_) => self.after_batch.extend(destroy),
            None => self.outbox.later.extend(destroy),
        }
    }

    /// The peer is none any more. What is left of it is for the action to delete.
    fn remove(&mut self, region: RegionId) -> Option<Action> {
        let mut peer = self.peers.remove(&region)?;
        peer.retire(&mut self.outbox);
        let last = self.tombstones.entry(region).or_insert(0);
        *last = peer.id().max(*last);
        self.destroying.insert(region, None);
        Some(Action::Destroy { region, peer: peer.id() })
    }

    /// Has entries read for followers that lag, so many at a time. What nobody waits for any more is not read.
    fn read_log(&mut self) {
        while self.reads_under_way < LOG_READS_MAX {
            let Some((region, number, range)) = self.log_reads.pop_front() else { return };
            if !self.peers.get(&region).is_some_and(|peer| peer.wants_read(number)) {
                continue;
            }
            self.reads_under_way += 1;
            let Range { low, high, max_bytes } = range;
            self.outbox.later.push(Action::ReadLog { region, number, low, high, max_bytes });
        }
    }

    fn refuse_unknown(&mut self, region: RegionId, token: u64) {
        let reason = Refusal::NotLeader { leader: None };
        self.outbox.first.push(Action::Refused { region, token, reason });
    }

    fn tick(&mut self, now: BootNanos) {
        if !self.ticks.pass(now) {
            return;
        }
        self.wake_some(now);
        let mut asleep = Vec::new();
        for &region in &self.awake {
            let Some(peer) = self.peers.get_mut(&region) else {
                asleep.push(region);
                continue;
            };
            if peer.tick(&self.config, now, &mut self.outbox) {
                self.dirty.insert(region);
            }
            if peer.is_asleep() {
                asleep.push(region);
            }
        }
        for region in asleep {
            self.awake.remove(&region);
        }
    }

    fn persisted(&mut self, number: u64, now: BootNanos) {
        let Some(batch) = self.in_flight.take_if(|batch| batch.number <= number) else { return };
        assert!(number <= self.batches, "batch {number} was never handed out");
        self.outbox.later.append(&mut self.after_batch);
        for region in batch.regions {
            if let Some(peer) = self.peers.get_mut(&region) {
                peer.persisted(&self.config, now, &mut self.outbox);
                self.dirty.insert(region);
            }
        }
        self.is_trimmed = false;
        if self.logs.memory.is_over() {
            self.trim_caches();
        }
    }

    fn cut_batch(&mut self) -> Option<LogBatch> {
        if self.in_flight.is_some() || !self.is_urgent {
            return None;
        }
        self.is_urgent = false;
        self.batches += 1;
        let mut batch = LogBatch { number: self.batches, writes: Vec::new(), must_sync: false };
        for region in std::mem::take(&mut self.unsaved) {
            let Some(peer) = self.peers.get_mut(&region) else { continue };
            let (write, must_sync) = peer.take_unsaved();
            batch.must_sync |= must_sync;
            batch.writes.push(write);
        }
        let regions = batch.writes.iter().map(|write| write.region).collect();
        self.in_flight = Some(BatchInFlight { number: batch.number, regions });
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_ticks_prove_the_time_between_them() {
        let mut gate = TickGate { due: 100, length: 100 };
        assert!(!gate.pass(99));
        // Late by most of a tick, then on time: those two are close.
        let mut counted: Vec<BootNanos> = Vec::new();
        for now in [190, 200, 201, 299, 300, 5000, 5001, 5002, 5099, 5101, 5150, 5200, 5300] {
            if gate.pass(now) {
                counted.push(now);
            }
        }
        assert_eq!(counted, vec![190, 200, 300, 5000, 5001, 5101, 5200, 5300]);
        for (first, &from) in counted.iter().enumerate() {
            for (k, &to) in counted[first..].iter().enumerate() {
                assert!(to - from >= 100 * (k as u64).saturating_sub(1));
            }
        }
    }
}
