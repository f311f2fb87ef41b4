//! All of this store's peers behind one queue and one log.
//!
//! A turn's cost is that of the regions that have something to do: inputs mark theirs, and a tick marks
//! those in which it caused something.

use std::collections::{BTreeMap, BTreeSet};

use types::{BootNanos, RegionId};

use crate::action::{Action, Fatal, Input, LogBatch, PeerSeed, Refusal, RegionStatus};
use crate::config::Config;
use crate::log_store::LogStore;
use crate::peer::{Outbox, Peer};

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
    peers: BTreeMap<RegionId, Peer<L>>,
    dirty: BTreeSet<RegionId>,
    /// Peers with something for the log, and whether any of it needs a batch.
    unsaved: BTreeSet<RegionId>,
    is_urgent: bool,
    batches: u64,
    in_flight: Option<BatchInFlight>,
    ticks: TickGate,
    outbox: Outbox,
    failure: Option<Fatal>,
}

impl<L: LogStore> Worker<L> {
    /// Everything above each region's `applied` that is known to be committed is handed out again.
    pub fn new(config: Config, log: L, seeds: Vec<PeerSeed>, now: BootNanos) -> Result<Self, Fatal> {
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        Worker::with_logger(config, log, seeds, &logger, now)
    }

    pub fn with_logger(
        config: Config,
        log: L,
        seeds: Vec<PeerSeed>,
        logger: &slog::Logger,
        now: BootNanos,
    ) -> Result<Self, Fatal> {
        config.validate().map_err(Fatal::Config)?;
        let mut outbox = Outbox::default();
        let mut peers = BTreeMap::new();
        for seed in seeds {
            let region = seed.descriptor.id;
            let logger = logger.new(slog::o!("region" => region));
            let mut peer = Peer::open(&config, &log, seed, &logger, now)?;
            peer.campaign_if_alone(&config, now, &mut outbox);
            if peers.insert(region, peer).is_some() {
                return Err(Fatal::NotAPeer { region });
            }
        }
        Ok(Worker {
            dirty: peers.keys().copied().collect(),
            peers,
            unsaved: BTreeSet::new(),
            is_urgent: false,
            batches: 0,
            in_flight: None,
            ticks: TickGate { due: now.saturating_add(config.tick_nanos), length: config.tick_nanos },
            outbox,
            failure: None,
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
            Input::Message { from, region, message } => {
                self.with_peer(region, |peer, config, out| peer.receive(config, from, message, now, out))
            }
            Input::Propose { region, token, payload } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_peer(region, |peer, config, out| {
                    peer.propose(config, token, payload, now, out);
                    Ok(())
                });
            }
            Input::ReadIndex { region, token } => {
                if !self.peers.contains_key(&region) {
                    return self.refuse_unknown(region, token);
                }
                self.with_peer(region, |peer, _, out| {
                    peer.read_index(token, now, out);
                    Ok(())
                });
            }
            Input::WantLease { region } => self.with_peer(region, |peer, config, out| {
                peer.want_lease(config, now, out);
                Ok(())
            }),
            Input::Applied { region, index } => self.with_peer(region, |peer, config, out| {
                peer.applied(config, index, now, out);
                Ok(())
            }),
            Input::Flushed { region, index } => self.with_peer(region, |peer, config, out| {
                peer.flushed(config, index, out);
                Ok(())
            }),
            Input::TruncateHint { region, index } => self.with_peer(region, |peer, config, out| {
                peer.truncate_hint(config, index, out);
                Ok(())
            }),
            Input::TransferLeader { region, to } => {
                if !self.peers.contains_key(&region) {
                    return self.outbox.first.push(Action::TransferAborted { region, to });
                }
                self.with_peer(region, |peer, config, out| {
                    peer.transfer_leader(config, to, now, out);
                    Ok(())
                });
            }
        }
    }

    /// What is to be done now, to be executed in order. After an error the store must stop: nothing of
    /// this turn may be executed, and every later turn fails alike.
    pub fn turn(&mut self, now: BootNanos) -> Result<Vec<Action>, Fatal> {
        for region in std::mem::take(&mut self.dirty) {
            let Some(peer) = self.peers.get_mut(&region) else { continue };
            match peer.turn(&self.config, now, &mut self.outbox) {
                Ok(true) => {
                    self.dirty.insert(region);
                }
                Ok(false) => {}
                Err(fatal) => {
                    self.failure.get_or_insert(fatal);
                }
            }
            if !peer.unsaved.is_empty() {
                self.unsaved.insert(region);
                self.is_urgent |= peer.unsaved.is_urgent;
            }
        }
        if let Some(fatal) = &self.failure {
            return Err(fatal.clone());
        }
        let batch = self.cut_batch();
        let Outbox { first, sends, later } = std::mem::take(&mut self.outbox);
        let mut actions = first;
        actions.extend(sends);
        actions.extend(batch.map(Action::Persist));
        actions.extend(later);
        Ok(actions)
    }

    /// Whether another turn would find work without another input.
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty()
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
        self.peers.get(&region).map(|peer| peer.status(now))
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
        self.dirty.insert(region);
    }

    fn refuse_unknown(&mut self, region: RegionId, token: u64) {
        let reason = Refusal::NotLeader { leader: None };
        self.outbox.first.push(Action::Refused { region, token, reason });
    }

    fn tick(&mut self, now: BootNanos) {
        if !self.ticks.pass(now) {
            return;
        }
        for (&region, peer) in &mut self.peers {
            if peer.tick(&self.config, now, &mut self.outbox) {
                self.dirty.insert(region);
            }
        }
    }

    fn persisted(&mut self, number: u64, now: BootNanos) {
        let Some(batch) = self.in_flight.take_if(|batch| batch.number <= number) else { return };
        assert!(number <= self.batches, "batch {number} was never handed out");
        for region in batch.regions {
            if let Some(peer) = self.peers.get_mut(&region) {
                peer.persisted(&self.config, now, &mut self.outbox);
                self.dirty.insert(region);
            }
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
