//! All peers of this store, with one input queue and one log.
//!
//! The cost of a turn depends only on the regions with work: an input marks its region, and a tick
//! marks the regions in which it caused work.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use raft::eraftpb::{Message, MessageType};
use types::{BootNanos, LogIndex, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId};

use crate::action::{Action, DropReason, Fatal, Input, LogBatch, PeerSeed, Refusal, RegionStatus, Unclean};
use crate::chain::RelayCounts;
use crate::config::Config;
use crate::failpoints::Failpoint;
use crate::log_reads::{Range, LOG_READS_MAX};
use crate::log_store::LogStore;
use crate::log_view::Logs;
use crate::memory::{EntryMemory, Trim};
use crate::peer::inspect;
use crate::peer::{Context, Outbox, Peer, Turned, Turnover};
use crate::stickiness::{Promise, Stickiness};

mod existence;
mod merges;
mod quorum_loss;

use existence::Existence;

/// Maximum number of vote requests kept for split-off regions that have no peer here yet. The
/// latest ones are kept.
const EARLY_VOTES: usize = 256;

/// Maximum number of announced peers that wait for their first snapshot. A leader repeats an
/// announcement that had no effect, and snapshots come a few at a time.
const BLANK_PEERS_MAX: usize = 1024;

/// Maximum number of hibernating regions that one tick wakes after their leaders' store fell
/// silent. Elections of thousands of regions at the same time would disturb each other.
const WAKE_PER_TICK: usize = 512;

/// A filter of ticks. Each counted tick advances the earliest time of the next one by at least one
/// tick length, and at least to the present. So missed ticks are not replayed, and `k` counted
/// ticks take at least `k - 2` tick lengths, however irregular the caller's timer is.
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

/// The batch in flight. There is at most one, and the next one collects the writes that arrive
/// meanwhile. So under load the batch size follows the device's latency, and no write waits for a
/// timer.
struct BatchInFlight {
    number: u64,
    regions: Vec<RegionId>,
}

/// A peer that can be opened only after its parent has applied the split again.
struct WaitingPeer {
    seed: PeerSeed,
    /// The peer's quarantine: the first entry that is not applied, and whether the peer may lead.
    quarantine: Option<(LogIndex, bool)>,
}

pub struct Worker<L: LogStore> {
    ctx: Context,
    logs: Logs<L>,
    logger: slog::Logger,
    peers: BTreeMap<RegionId, Peer<L>>,
    waiting: BTreeMap<RegionId, WaitingPeer>,
    /// Regions whose peers were unclean at the start of this store or became so later. Each peer
    /// knows whether it still is.
    unclean: BTreeSet<RegionId>,
    existence: Existence,
    /// Removed peers whose rows or log may still exist. No region may take their slots yet.
    destroying: BTreeMap<RegionId, Option<SlotRange>>,
    /// Regions with a merge whose source is not completely applied here.
    mergers: BTreeSet<RegionId>,
    /// Peers that have merged away and must be destroyed, by the region whose snapshot is being
    /// applied over their rows. They are destroyed when it is applied.
    superseded: BTreeMap<RegionId, Vec<Action>>,
    /// Actions to issue when the batch in flight is written. That batch holds entries of the peers
    /// that the actions destroy.
    after_batch: Vec<Action>,
    early_votes: VecDeque<(StoreId, RegionId, Message)>,
    dirty: BTreeSet<RegionId>,
    /// Regions that get ticks. The others hibernate.
    awake: BTreeSet<RegionId>,
    /// Regions to wake, some with every tick, because their leaders' store has fallen silent.
    waking: BTreeSet<RegionId>,
    /// Peers with something for the log, and whether any of it needs a batch.
    unsaved: BTreeSet<RegionId>,
    is_urgent: bool,
    batches: u64,
    in_flight: Option<BatchInFlight>,
    /// Log reads that wait for earlier ones, and the number of reads in progress.
    log_reads: VecDeque<(RegionId, u64, Range)>,
    reads_under_way: usize,
    last_read: u64,
    ticks: TickGate,
    /// The time at which this store started.
    started_at: BootNanos,
    failure: Option<Fatal>,
    /// True if the store is about to stop: see `Input::StopLeading`.
    is_stopping: bool,
    /// True if the device does not answer: see `Input::DeviceHangs`.
    is_hanging: bool,
    /// Bytes of committed entries that may still be handed out, and the regions that have more.
    room: u64,
    withheld: BTreeSet<RegionId>,
    /// The region with which the next trimming of caches begins. `is_trimmed` is true if trimming
    /// has no effect until more is written.
    next_trimmed: RegionId,
    is_trimmed: bool,
}

impl<L: LogStore> Worker<L> {
    /// Creates a worker. Entries after a region's `applied` that are known to be committed are
    /// handed out again. `tombstones` holds the largest id of each region's removed peers.
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
        let mut ctx = Context { config, now, out: Outbox::default(), relays: RelayCounts::default() };
        let mut peers = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        let unclean =
            seeds.iter().filter(|seed| seed.unclean != Unclean::No).map(|seed| seed.descriptor.id).collect();
        // The existence of a split-off region's peer proves that the split was committed.
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
                waiting.insert(region, WaitingPeer { seed, quarantine: None }).is_none()
            } else {
                let known = committed.get(&region).copied().unwrap_or(0);
                let mut peer = Peer::open(&ctx, &logs, seed, known, &logger)?;
                peer.campaign_if_alone(&mut ctx);
                peers.insert(region, peer).is_none()
            };
            if !is_new {
                return Err(Fatal::NotAPeer { region });
            }
        }
        if let Some((&region, _)) = waiting.iter().find(|(_, WaitingPeer { seed, .. })| {
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
            unclean,
            existence: Existence::new(tombstones),
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
            ticks: TickGate { due: now.saturating_add(ctx.config.tick_nanos), length: ctx.config.tick_nanos },
            started_at: now,
            failure: None,
            is_stopping: false,
            is_hanging: false,
            room: u64::MAX,
            withheld: BTreeSet::new(),
            next_trimmed: 0,
            is_trimmed: false,
            ctx,
        })
    }

    /// Processes an input. The next `turn` returns the resulting actions.
    pub fn step(&mut self, input: Input, now: BootNanos) {
        self.ctx.now = now;
        match input {
            Input::Tick => self.tick(),
            Input::Persisted { batch } => self.persisted(batch),
            Input::StoreUnreachable { store } => {
                for (&region, peer) in &mut self.peers {
                    if peer.unreachable(&mut self.ctx, store) {
                        self.dirty.insert(region);
                    }
                }
            }
            Input::Message { from, region, message } => self.receive(from, region, message),
            Input::Announced { from, descriptor } => self.announced(from, descriptor),
            Input::MergedAway { region, heirs } => self.merged_away(region, &heirs),
            Input::ChangeRegion { region, token, expect, change } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, |peer, ctx| peer.change_region(ctx, token, expect, change));
            }
            Input::SnapshotMade { region, index, term, descriptor } => {
                self.with_peer(region, |peer, _| {
                    peer.snapshot_made(index, term, &descriptor);
                    Ok(())
                });
            }
            Input::SnapshotFailed { region } => self.with_peer(region, |peer, _| {
                peer.snapshot_failed();
                Ok(())
            }),
            Input::SnapshotSent { region, to, delivered } => self.with_peer(region, |peer, ctx| {
                peer.snapshot_sent(ctx, to, delivered);
                Ok(())
            }),
            Input::SnapshotApplied { region } => {
                self.ctx.out.later.extend(self.superseded.remove(&region).unwrap_or_default());
                self.with_peer(region, |peer, ctx| {
                    peer.snapshot_applied(ctx);
                    Ok(())
                });
            }
            Input::Destroyed { region } => drop(self.destroying.remove(&region)),
            Input::Propose { region, token, payload } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, |peer, ctx| peer.propose(ctx, token, payload));
            }
            Input::Quarantine { region, index, may_lead } => {
                if let Some(waiting) = self.waiting.get_mut(&region) {
                    waiting.quarantine = Some((index, may_lead));
                }
                self.with_peer(region, |peer, ctx| {
                    peer.confine(ctx, index, may_lead);
                    Ok(())
                });
            }
            Input::Release { region } => {
                if let Some(waiting) = self.waiting.get_mut(&region) {
                    waiting.quarantine = None;
                }
                self.with_peer(region, |peer, ctx| peer.set_free(&mut ctx.out));
            }
            Input::AdmitSnapshot { region } => self.with_peer(region, |peer, _| {
                peer.admit_snapshot();
                Ok(())
            }),
            Input::ProposeOrder { region, token, payload } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, |peer, ctx| peer.propose_order(ctx, token, payload));
            }
            Input::ReadIndex { region, token, asked } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_woken_peer(region, |peer, ctx| peer.read_index(ctx, token, asked));
            }
            Input::WantLease { region } => {
                self.with_woken_peer(region, |peer, ctx| peer.want_lease(ctx));
            }
            Input::Applied { region, index } => {
                self.with_peer(region, |peer, ctx| {
                    // A split was executed after the peer of its region was removed. The new
                    // region's blank peer gets a snapshot, which replaces the rows of the split.
                    if !peer.is_blank() {
                        peer.applied(ctx, index);
                    }
                    Ok(())
                });
                self.turn_over();
            }
            Input::Flushed { region, index } => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.flushed(&mut self.ctx, index);
                }
            }
            Input::TruncateHint { region, index } => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.truncate_hint(&mut self.ctx, index);
                }
            }
            Input::LogPinned { regions } => {
                for region in regions {
                    if let Some(peer) = self.peers.get_mut(&region) {
                        peer.let_go(&mut self.ctx.out);
                    }
                }
            }
            Input::LogRead { region, number, entries } => {
                self.reads_under_way = self.reads_under_way.saturating_sub(1);
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.log_read(&mut self.ctx, number, entries);
                    self.dirty.insert(region);
                }
                self.read_log();
            }
            Input::StoreSilent { store } => {
                let led = self.peers.iter().filter(|(_, peer)| peer.is_asleep() && peer.follows(store));
                self.waking.extend(led.map(|(&region, _)| region));
            }
            Input::SetElections(elections) => self.ctx.config.elections = elections,
            Input::SetReplication(replication) => self.ctx.config.replication = replication,
            Input::Stand { region } => self.with_peer(region, |peer, ctx| {
                peer.stand(ctx);
                Ok(())
            }),
            Input::SessionEnded { store } => {
                let led = self.peers.iter_mut().filter(|(_, peer)| peer.follows(store));
                self.waking.extend(led.map(|(&region, peer)| {
                    peer.leader_session_ended();
                    region
                }));
            }
            Input::AcceptLoss { region } => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.accept_loss(&self.ctx);
                }
                if let Some(waiting) = self.waiting.get_mut(&region) {
                    waiting.seed.unclean = Unclean::No;
                }
            }
            Input::DamageFound(error) => {
                self.with_peer(error.region, |peer, ctx| peer.read_failed(error, &mut ctx.out));
            }
            Input::Damaged { region } => {
                if self.peers.contains_key(&region) {
                    self.unclean.insert(region);
                }
                self.with_woken_peer(region, |peer, ctx| peer.damage_is_recorded(ctx));
            }
            Input::StopLeading => {
                self.is_stopping = true;
                self.tell_peers_whether_to_lead();
            }
            Input::DeviceHangs { hangs } => {
                self.is_hanging = hangs;
                self.tell_peers_whether_to_lead();
            }
            Input::StepDown { region } => {
                self.with_woken_peer(region, |peer, ctx| peer.step_down(ctx));
            }
            Input::TransferLeader { region, to } => {
                if !self.peers.contains_key(&region) {
                    return self.ctx.out.first.push(Action::TransferAborted { region, to });
                }
                self.with_woken_peer(region, |peer, ctx| peer.transfer_leader(ctx, to));
            }
        }
    }

    /// Returns the actions to execute now, in order. After an error the store must stop: no action
    /// of this turn may be executed, and every later turn fails, too.
    pub fn turn(&mut self, now: BootNanos) -> Result<Vec<Action>, Fatal> {
        self.ctx.now = now;
        for region in std::mem::take(&mut self.dirty) {
            let Some(peer) = self.peers.get_mut(&region) else { continue };
            match peer.turn(&mut self.ctx, &mut self.room) {
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
        self.see_to_merges();
        self.read_log();
        if let Some(fatal) = &self.failure {
            return Err(fatal.clone());
        }
        let batch = self.cut_batch();
        let Outbox { first, sends, later, turnover } = std::mem::take(&mut self.ctx.out);
        assert!(turnover.is_empty(), "the input that applies entries also handles the turnover");
        let mut actions = first;
        actions.extend(sends);
        actions.extend(batch.map(Action::Persist));
        actions.extend(later);
        Ok(actions)
    }

    /// Returns true if another turn would find work without another input. An input for a region
    /// without a peer leaves its effects only in the outbox.
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.ctx.out.is_empty()
    }

    /// Sets the bytes of committed entries that may be handed out from now on. The last `Apply` may
    /// exceed them. The remaining entries stay in the log, outside of memory, until there is room
    /// again.
    pub fn make_room(&mut self, bytes: u64) {
        self.room = bytes;
        if bytes > 0 {
            self.dirty.append(&mut self.withheld);
        }
    }

    /// Returns the bytes of committed entries that are withheld, estimated by the typical size of a
    /// region's entries.
    pub fn withheld_bytes(&self) -> u64 {
        self.withheld.iter().filter_map(|region| self.peers.get(region)).map(Peer::withheld_bytes).sum()
    }

    pub fn entry_memory(&self) -> Arc<EntryMemory> {
        self.logs.memory.clone()
    }

    /// Returns the stores of a region's chain, the first one first. Empty unless this store leads
    /// the region and sends along a chain.
    pub fn chain(&self, region: RegionId) -> Vec<StoreId> {
        self.peers.get(&region).map_or_else(Vec::new, Peer::chain)
    }

    pub fn relay_counts(&self) -> RelayCounts {
        self.ctx.relays
    }

    /// Returns true while a batch is in flight. The caller should then collect waiting commands
    /// into one payload, because their entry would have to wait, too.
    pub fn persist_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Drops a proposal or a read that the caller has answered itself. No later action names it.
    pub fn forget(&mut self, region: RegionId, token: u64) {
        if let Some(peer) = self.peers.get_mut(&region) {
            peer.forget(token);
        }
    }

    pub fn can_propose(&self, region: RegionId) -> Result<(), Refusal> {
        self.peers.get(&region).ok_or(Refusal::NotLeader { leader: None })?.can_propose()
    }

    /// Returns the number of entries that may be proposed before another one is committed.
    pub fn proposal_room(&self, region: RegionId) -> u64 {
        let in_flight = self.peers.get(&region).map_or(0, |peer| peer.uncommitted());
        self.ctx.config.max_uncommitted_entries.saturating_sub(in_flight)
    }

    pub fn status(&self, region: RegionId, now: BootNanos) -> Option<RegionStatus> {
        self.peers.get(&region).map(|peer| peer.status(&self.ctx.config, now))
    }

    /// Returns the regions in which something may happen without an input. The others hibernate.
    pub fn awake(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.awake.iter().copied()
    }

    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.peers.keys().copied()
    }

    /// Returns true if this store has a peer of the region whose rows no snapshot is replacing.
    pub fn keeps_rows(&self, region: RegionId) -> bool {
        let is_kept = |peer: &Peer<L>| !peer.is_applying_snapshot();
        self.waiting.contains_key(&region) || self.peers.get(&region).is_some_and(is_kept)
    }

    /// Returns true while the device hangs.
    pub fn is_hanging(&self) -> bool {
        self.is_hanging
    }

    /// Returns true if the store's peers must not become leaders.
    fn yields(&self) -> bool {
        self.is_stopping || self.is_hanging
    }

    fn tell_peers_whether_to_lead(&mut self) {
        let yields = self.yields();
        self.peers.values_mut().for_each(|peer| peer.yields = yields);
    }

    /// Returns the peers that take no part in consensus since their machine crashed or their log
    /// was found damaged, as pairs of region and number, ascending by region. See
    /// `PeerSeed::unclean`.
    pub fn unclean(&self) -> BTreeMap<RegionId, PeerId> {
        let number = |region: &RegionId| match (self.peers.get(region), self.waiting.get(region)) {
            (Some(peer), _) => peer.is_unclean().then_some(peer.id()),
            (None, Some(WaitingPeer { seed, .. })) if seed.unclean != Unclean::No => {
                seed.descriptor.peer_on(self.ctx.config.store).map(|peer| peer.id)
            }
            (None, _) => None,
        };
        self.unclean.iter().filter_map(|region| Some((*region, number(region)?))).collect()
    }

    fn with_peer(
        &mut self,
        region: RegionId,
        call: impl FnOnce(&mut Peer<L>, &mut Context) -> Result<(), Fatal>,
    ) {
        let Some(peer) = self.peers.get_mut(&region) else { return };
        if let Err(fatal) = call(peer, &mut self.ctx) {
            self.failure.get_or_insert(fatal);
        }
        match peer.is_asleep() {
            true => self.awake.remove(&region),
            false => self.awake.insert(region),
        };
        self.dirty.insert(region);
    }

    /// Wakes the region's peer and calls `with_peer` on it.
    fn with_woken_peer(&mut self, region: RegionId, call: impl FnOnce(&mut Peer<L>, &mut Context)) {
        self.with_peer(region, |peer, ctx| {
            peer.wake(ctx);
            call(peer, ctx);
            Ok(())
        });
    }

    fn wake_some(&mut self) {
        for _ in 0..WAKE_PER_TICK {
            let Some(region) = self.waking.pop_first() else { return };
            self.with_woken_peer(region, |peer, ctx| peer.wake_leader(&mut ctx.out));
        }
    }

    fn drop_message(&mut self, region: RegionId, from: StoreId, reason: DropReason) {
        self.ctx.out.first.push(Action::Dropped { region, from, reason });
    }

    fn receive(&mut self, from: StoreId, region: RegionId, message: Message) {
        if let Err(reason) = inspect::form(region, &message) {
            return self.drop_message(region, from, reason);
        }
        let kind = message.get_msg_type();
        let is_routed = kind == MessageType::MsgAppend && !message.get_context().is_empty();
        let passed = match self.peers.get_mut(&region).filter(|_| is_routed) {
            // It is passed on even if this store has no memory for it.
            Some(peer) => peer.pass_on(&mut self.ctx, from, message),
            None => Some((from, message, false)),
        };
        let Some((from, message, is_relayed)) = passed else { return };
        if kind == MessageType::MsgAppend && !message.entries.is_empty() && !self.has_entry_memory() {
            // The append is dropped without a rejection. To the leader it looks lost.
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
        self.with_peer(region, |peer, ctx| {
            peer.receive(ctx, from, message, is_relayed);
            Ok(())
        });
        if !yielding.is_empty() {
            self.supersede(region, yielding);
        }
    }

    /// Returns true if the entries that wait for their log write leave memory for more.
    fn has_entry_memory(&mut self) -> bool {
        if self.logs.memory.is_over() && !self.is_trimmed {
            self.trim_caches(Trim::All);
        }
        !self.logs.memory.is_over() || Failpoint::FullIgnored.is_on()
    }

    /// Evicts written entries, the older half of each region's cache, region by region.
    fn trim_caches(&mut self, trim: Trim) {
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
                has_evicted |= self.peers.get_mut(&region).is_some_and(|peer| peer.evict(trim));
            }
        }
        self.is_trimmed = trim == Trim::All;
    }

    fn has_waiting_child(&self, region: RegionId) -> bool {
        self.waiting.values().any(|waiting| waiting.seed.parent.is_some_and(|(parent, _)| parent == region))
    }

    /// Returns true if another region on this store has some of the descriptor's slots.
    fn overlaps(&self, descriptor: &RegionDescriptor) -> bool {
        self.overlaps_but(descriptor, &[])
    }

    fn overlaps_but(&self, descriptor: &RegionDescriptor, yielding: &[RegionId]) -> bool {
        let Some(slots) = descriptor.slots else { return false };
        let meets = |other: Option<SlotRange>| {
            other.is_some_and(|other| other.first <= slots.last && slots.first <= other.last)
        };
        let peers = self.peers.values().filter(|peer| !peer.is_blank()).map(Peer::descriptor);
        let waiting = self.waiting.values().map(|waiting| &waiting.seed.descriptor);
        peers
            .chain(waiting)
            .filter(|other| other.id != descriptor.id && !yielding.contains(&other.id))
            .any(|other| meets(other.slots))
            || self.destroying.iter().any(|(&region, &slots)| region != descriptor.id && meets(slots))
    }

    fn announced(&mut self, from: StoreId, descriptor: RegionDescriptor) {
        let region = descriptor.id;
        if let Err(reason) = inspect::announcement(from, &descriptor) {
            return self.drop_message(region, from, reason);
        }
        self.remove_merged_peers(&descriptor);
        if let Some(peer) = self.peers.get_mut(&region) {
            // The announcement may be a request to wake. Only a leader wakes: a follower that woke
            // alone would campaign against its hibernating leader.
            if peer.is_leader() && peer.wake(&mut self.ctx) {
                self.awake.insert(region);
            }
            if self.existence.end_of(peer.descriptor(), peer.id(), &descriptor).is_none() {
                peer.hear_descriptor(from, descriptor, &mut self.ctx.out);
            } else if !self.has_waiting_child(region) {
                self.ctx.out.turnover.push(Turnover::Gone { descriptor });
                self.turn_over();
            }
            return;
        }
        if let Some(heir) = self.heir_of(&descriptor) {
            return self.ctx.out.sends.push(Action::Announce { to: from, descriptor: heir });
        }
        let Some(peer) = descriptor.peer_on(self.ctx.config.store) else { return };
        let is_past = self.existence.bars(region, Some(peer.id)).is_some();
        let is_busy = self.waiting.contains_key(&region) || self.destroying.contains_key(&region);
        if is_past || is_busy || self.overlaps(&descriptor) {
            return;
        }
        if self.peers.values().filter(|peer| peer.is_blank()).count() >= BLANK_PEERS_MAX {
            return self.drop_message(region, from, DropReason::TooManyBlank);
        }
        let blank = self
            .recorded_promise(region)
            .and_then(|promise| Peer::blank(&self.ctx, &self.logs, descriptor, promise, &self.logger));
        match blank {
            Ok(mut peer) => {
                peer.yields = self.yields();
                self.peers.insert(region, peer);
                self.awake.insert(region);
                self.receive_early_votes(region);
            }
            Err(fatal) => drop(self.failure.get_or_insert(fatal)),
        }
    }

    /// Returns the promise of an earlier blank peer of the region, as recorded in the log. A peer
    /// that was never in any term promised nothing, because it answers a leader only once its term
    /// is synced.
    fn recorded_promise(&self, region: RegionId) -> Result<Promise, Fatal> {
        let recorded = self.logs.store.hard_state(region).map_err(Fatal::Log)?;
        let recorded = recorded.filter(|_| !Failpoint::BlankForgetsVote.is_on());
        let length = self.ctx.config.stickiness_nanos();
        let stickiness = Stickiness::new(length, recorded.is_some().then_some(self.started_at));
        Ok(Promise { hard_state: recorded.unwrap_or_default(), stickiness })
    }

    /// Delivers the vote requests that arrived before the region's peer existed.
    fn receive_early_votes(&mut self, region: RegionId) {
        let (early, others) =
            std::mem::take(&mut self.early_votes).into_iter().partition(|(_, to, _)| *to == region);
        self.early_votes = others;
        let early: VecDeque<(StoreId, RegionId, Message)> = early;
        early.into_iter().for_each(|(from, region, message)| self.receive(from, region, message));
    }

    /// Creates the peers that splits made, and removes the peers that were removed.
    fn turn_over(&mut self) {
        for turnover in std::mem::take(&mut self.ctx.out.turnover) {
            let made = match turnover {
                Turnover::Born { descriptor, parent, at, led } => {
                    self.create_peer(descriptor, (parent, at), led)
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

    fn create_peer(
        &mut self,
        descriptor: RegionDescriptor,
        (parent, at): (RegionId, u64),
        led: bool,
    ) -> Result<(), Fatal> {
        let region = descriptor.id;
        let waited = self.waiting.remove(&region);
        let is_known = self.peers.get(&region).is_some_and(|peer| !peer.is_blank());
        let id = descriptor.peer_on(self.ctx.config.store).map(|peer| peer.id);
        if is_known {
            return Ok(());
        }
        if let Some(peer) = self.existence.bars(region, id) {
            // The peer was created and removed before this store lost the split. Applying the split
            // again has restored its rows.
            self.destroying.insert(region, descriptor.slots);
            self.ctx.out.later.push(Action::Destroy { region, peer });
            return Ok(());
        }
        let mut quarantine = None;
        let mut peer = match waited {
            Some(waited) => {
                quarantine = waited.quarantine;
                Peer::open(&self.ctx, &self.logs, waited.seed, 0, &self.logger)?
            }
            None => {
                let promise = match self.peers.get(&region) {
                    Some(blank) => blank.promise(),
                    None => self.recorded_promise(region)?,
                };
                Peer::born(&self.ctx, &self.logs, descriptor, (parent, at), promise, &self.logger)?
            }
        };
        peer.yields = self.yields();
        if let Some((index, may_lead)) = quarantine {
            peer.confine(&mut self.ctx, index, may_lead);
        }
        if led {
            peer.campaign(&mut self.ctx);
        } else {
            peer.campaign_if_alone(&mut self.ctx);
        }
        self.peers.insert(region, peer);
        self.dirty.insert(region);
        self.awake.insert(region);
        self.receive_early_votes(region);
        Ok(())
    }

    fn bury(&mut self, descriptor: RegionDescriptor) {
        let region = descriptor.id;
        let slots = self.peers.get(&region).and_then(|peer| peer.descriptor().slots);
        // The superseded peers are destroyed only now: until this region's rows are gone, its
        // descriptor records the merges.
        self.ctx.out.later.extend(self.superseded.remove(&region).unwrap_or_default());
        let destroy = self.remove(region);
        if destroy.is_some() {
            self.destroying.insert(region, slots);
        }
        self.destroy(destroy);
    }

    fn destroy(&mut self, destroy: Option<Action>) {
        match self.in_flight {
            Some(_) => self.after_batch.extend(destroy),
            None => self.ctx.out.later.extend(destroy),
        }
    }

    /// Removes the peer. The returned action deletes its rows and log.
    fn remove(&mut self, region: RegionId) -> Option<Action> {
        let mut peer = self.peers.remove(&region)?;
        peer.retire(&mut self.ctx.out);
        self.existence.bury(region, peer.id());
        self.destroying.insert(region, None);
        Some(Action::Destroy { region, peer: peer.id() })
    }

    /// Requests reads of entries that are not in memory, up to the maximum at a time. Skips reads
    /// that are no longer needed.
    fn read_log(&mut self) {
        while self.reads_under_way < LOG_READS_MAX {
            let Some((region, number, range)) = self.log_reads.pop_front() else { return };
            if !self.peers.get(&region).is_some_and(|peer| peer.wants_read(number)) {
                continue;
            }
            self.reads_under_way += 1;
            let Range { low, high, max_bytes } = range;
            self.ctx.out.later.push(Action::ReadLog { region, number, low, high, max_bytes });
        }
    }

    fn refuse_unknown(&mut self, region: RegionId, token: u64) {
        let reason = Refusal::NotLeader { leader: None };
        self.ctx.out.first.push(Action::Refused { region, token, reason });
    }

    fn tick(&mut self) {
        if !self.ticks.pass(self.ctx.now) {
            return;
        }
        self.wake_some();
        let mut asleep = Vec::new();
        for &region in &self.awake {
            let Some(peer) = self.peers.get_mut(&region) else {
                asleep.push(region);
                continue;
            };
            if peer.tick(&mut self.ctx) {
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

    fn persisted(&mut self, number: u64) {
        let Some(batch) = self.in_flight.take_if(|batch| batch.number <= number) else { return };
        assert!(number <= self.batches, "batch {number} was never handed out");
        self.ctx.out.later.append(&mut self.after_batch);
        for region in batch.regions {
            if let Some(peer) = self.peers.get_mut(&region) {
                peer.persisted(&mut self.ctx);
                self.dirty.insert(region);
            }
        }
        self.is_trimmed = false;
        if self.logs.memory.is_over() {
            self.trim_caches(Trim::NotNext);
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
        // The first tick is late by most of a tick length and the next one is on time, so the
        // interval between them is short.
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
