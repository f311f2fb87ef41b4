//! The region worker owns the Raft groups of this store. The first loop drives it.
//!
//! It runs the turns of `node::Shard` and carries out the effects in order. It makes no decisions.
//! It waits for no device, except for short writes of the log if the loop permits them. The log and
//! the rows have threads of their own. Commands that arrive while a log batch is being synced wait
//! and share one entry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use node::{Effect, Input, Messages, Moment, Outcome, Shard, Submit};
use raftlog::{LogError, RaftLog};
use replica::{Input as RaftInput, RelayCounts};
use types::{LogIndex, RegionId, StoreId};

use super::dropped::Dropped;
use super::in_ram::{ApplyHandle, ExecutedHere};
use super::log_reader::Wanted;
use super::log_writer::LogSender;
use super::parts::Parts;
use crate::clock;
use crate::loops::{Asker, Outcomes, PartId, Reader, Surveyed, ToWorker};
use crate::snapshot::SnapshotService;
use crate::transport::frame::Lane;
use crate::unsynced::Damage;

/// The interval at which deadlines are checked and the state of led regions is published.
const EXPIRY_PERIOD: Duration = Duration::from_millis(100);

pub struct RegionWorker {
    parts: Parts,
    snapshots: Arc<SnapshotService>,
    shard: Shard<RaftLog, Asker, Reader>,
    log_sender: LogSender<RaftLog>,
    log: RaftLog,
    /// Requests to read entries that followers lack.
    reads: Sender<Wanted>,
    apply: ApplyHandle,
    /// Regions whose status was published last time.
    published: BTreeSet<RegionId>,
    dropped: Dropped,
    next_tick: Instant,
    next_expiry: Instant,
    /// Outcomes for clients that were not taken yet.
    outcomes: Vec<(PartId, Outcome)>,
}

impl RegionWorker {
    pub fn new(
        parts: Parts,
        snapshots: Arc<SnapshotService>,
        raft: replica::Worker<RaftLog>,
        log_sender: LogSender<RaftLog>,
        log: RaftLog,
        reads: Sender<Wanted>,
        apply: ApplyHandle,
    ) -> RegionWorker {
        let now = Instant::now();
        RegionWorker {
            next_tick: now + parts.config.raft_tick,
            next_expiry: now + EXPIRY_PERIOD,
            parts,
            snapshots,
            shard: Shard::new(raft),
            log_sender,
            log,
            reads,
            apply,
            published: BTreeSet::new(),
            dropped: Dropped::default(),
            outcomes: Vec::new(),
        }
    }

    /// Returns the time at which the worker must run even without an event.
    pub fn wakes_at(&self) -> Instant {
        self.next_tick.min(self.next_expiry)
    }

    /// Does the work that is due at `now`.
    pub fn on_time(&mut self, now: Instant) {
        if now >= self.next_tick {
            self.raft(RaftInput::Tick);
            // Ticks missed during a pause are dropped, not replayed.
            self.next_tick = now + self.parts.config.raft_tick;
        }
        if now >= self.next_expiry {
            self.shard.expire(clock::boot_nanos());
            self.publish_status();
            self.next_expiry = now + EXPIRY_PERIOD;
        }
    }

    /// Returns the outcomes of parts that clients wait for.
    pub fn take_outcomes(&mut self) -> Vec<(PartId, Outcome)> {
        std::mem::take(&mut self.outcomes)
    }

    pub fn submit(&mut self, submit: Submit<Asker>) {
        self.shard.step(Input::Submit(submit), clock::boot_nanos());
    }

    /// Processes a message. The next turn returns its effects.
    pub fn take(&mut self, message: ToWorker) {
        let now = clock::boot_nanos();
        match message {
            ToWorker::Shard(input) => self.shard.step(input, now),
            ToWorker::ReadIndex { region, asked, reply } => {
                let deadline = clock::boot_nanos_at(Instant::now() + self.parts.config.request_timeout);
                self.shard.step(Input::ReadIndex { region, asked, deadline, reader: reply }, now);
            }
            ToWorker::Messages { from, messages, place: _place } => {
                for (region, message) in messages {
                    self.shard.step(Input::Raft(RaftInput::Message { from, region, message }), now);
                }
            }
            ToWorker::Applied { indexes, outcomes } => {
                self.answer(outcomes);
                for (region, index) in indexes {
                    self.shard.step(Input::Raft(RaftInput::Applied { region, index }), now);
                    let executed = self.apply.applied(region, index);
                    self.executed_here(executed);
                }
            }
            ToWorker::Flushed { applied } => {
                for (region, index) in applied {
                    self.shard.step(Input::Raft(RaftInput::Flushed { region, index }), now);
                }
            }
            ToWorker::HeldByAll { indexes } => {
                for (region, index) in indexes {
                    self.shard.step(Input::Raft(RaftInput::TruncateHint { region, index }), now);
                }
            }
            ToWorker::Survey { reply } => {
                let peers = self.shard.recovery_reports(now);
                let removed = self.shard.removed_peers().iter().map(|(&region, &peer)| (region, peer));
                drop(reply.send(Surveyed { peers, removed: removed.collect() }));
            }
            ToWorker::Recovery { steps, reply } => {
                let outcomes = steps.iter().map(|step| (step.region(), self.shard.recovery(step, now)));
                let refused =
                    outcomes.filter_map(|(region, outcome)| Some((region, outcome.err()?.to_string())));
                let _ = reply.send(refused.collect());
            }
        }
    }

    fn executed_here(&mut self, ExecutedHere { applied, outcomes }: ExecutedHere) {
        for (region, index) in applied {
            self.raft(RaftInput::Applied { region, index });
        }
        self.answer(outcomes);
    }

    /// Sends outcomes. A task that no longer waits already has its answer.
    fn answer(&mut self, outcomes: Outcomes) {
        for (asker, outcome) in outcomes {
            match asker {
                Asker::Task(task) => drop(task.send(outcome)),
                Asker::Client(part) => self.outcomes.push((part, outcome)),
            }
        }
    }

    fn raft(&mut self, input: RaftInput) {
        self.shard.step(Input::Raft(input), clock::boot_nanos());
    }

    /// Takes turns until nothing is left to do before the next message. If `may_wait` is true, the
    /// first write of the log is made here if it is expected to be short.
    pub fn turn(&mut self, may_wait: bool) {
        let mut may_wait = may_wait;
        loop {
            let boot = clock::boot_nanos();
            let wall = &self.parts.wall;
            let stamp = wall.may_stamp().then(|| wall.millis());
            let version = self.parts.version.get();
            let thresholds = self.parts.engine.thresholds();
            let now = Moment { boot, stamp, version, thresholds, seed: boot, room: self.apply.room() };
            match self.shard.turn(now, &mut ()) {
                Ok(Some(effects)) => {
                    let persists = effects.iter().any(|effect| matches!(effect, Effect::Persist(_)));
                    effects.into_iter().for_each(|effect| self.carry_out(effect, may_wait));
                    may_wait &= !persists;
                }
                Ok(None) => return,
                Err(error) => self.parts.ends.fatal(&format!("the Raft groups cannot continue: {error}")),
            }
        }
    }

    fn carry_out(&mut self, effect: Effect<Asker, Reader>, may_wait: bool) {
        match effect {
            Effect::Leadership { region, leadership, .. } => self.parts.regions.lead(region, leadership),
            Effect::Lease { region, term, until } => self.parts.regions.lease(region, term, until),
            Effect::Seeking { region, seeker } => self.parts.seekers.put(region, seeker),
            Effect::Send { to, lane, messages } => self.send(to, lane, messages),
            Effect::AcceptSnapshot { region, index, term } => {
                self.snapshots.accept(region, index, term);
            }
            Effect::Persist(batch) if may_wait => {
                let number = batch.number;
                if self.log_sender.write(batch) {
                    self.raft(RaftInput::Persisted { batch: number });
                }
            }
            Effect::Persist(batch) => self.log_sender.send(batch),
            Effect::Apply { region, entries } => {
                let executed = self.apply.apply(region, entries);
                self.executed_here(executed);
            }
            Effect::Life(job) => self.apply.live(job),
            Effect::StopApplying { region, index } => {
                let executed = self.apply.stop(region, index);
                self.executed_here(executed);
            }
            Effect::ResumeApplying { region } => self.apply.resume(region),
            Effect::Truncate { region, index, term } => self.log.truncate(region, index, term),
            Effect::Answer { client, outcome } => self.answer(vec![(client, outcome)]),
            Effect::NotApplied { waiting, outcome } => {
                self.answer(waiting.clients().map(|client| (client, outcome.clone())).collect());
            }
            Effect::Read { reader, proven, .. } => drop(reader.send(proven)),
            Effect::Announce { to, descriptor } => {
                self.parts.transport.send_announce(to, descriptor.encode());
            }
            Effect::ReadLog { region, number, low, high, max_bytes } => {
                let _ = self.reads.send(Wanted { region, number, low, high, max_bytes });
            }
            Effect::MakeSnapshot { region } => self.snapshots.make(region),
            Effect::SendSnapshot { region, to, message } => self.snapshots.send(region, to, message),
            Effect::FlushSoon => self.parts.levels.want_flush(),
            Effect::ChangeRefused { region, reason } => {
                tracing::info!(region, ?reason, "a change of the region was refused");
            }
            Effect::Transferred { region, to, is_done: true } => {
                tracing::info!(region, to, "leadership transferred");
            }
            Effect::Transferred { region, to, is_done: false } => {
                tracing::info!(region, to, "leadership stays here: the target did not take over in time");
            }
            Effect::Damaged { region, first, executed: true, reason, .. } => {
                self.parts.metrics.log_damages.inc();
                tracing::error!(
                    region,
                    first,
                    reason,
                    "entries in the log are damaged. They are executed, so nothing is lost: the rows are flushed, \
                     and the entries dropped. Check the device; see OPERATING.md (Damage in the log)"
                );
            }
            Effect::Damaged { region, peer, first, executed: false, reason } => {
                self.parts.metrics.log_damages.inc();
                self.parts.unsynced.report(Damage { region, peer, first, reason });
            }
            Effect::GiveUpLog { region, first } => self.give_up_log(region, first),
            Effect::Dropped { region, from, reason } => {
                self.parts.metrics.raft_messages_refused.inc();
                self.dropped.note(region, from, reason, Instant::now());
            }
        }
    }

    /// Drops the damaged part of a silent peer's log. This thread waits for a sync, once for each
    /// such peer, so that no other peer of the region can be created in between.
    fn give_up_log(&self, region: RegionId, first: LogIndex) {
        match self.log.give_up(region, first) {
            Ok(()) => tracing::info!(region, first, "the damaged part of a silent peer's log is dropped"),
            // The next attempt to recycle the log asks again.
            Err(LogError::NoSpace(reason)) => {
                tracing::warn!(region, reason, "no space to drop a damaged log");
            }
            Err(error) => self.parts.ends.fatal(&format!("the Raft log cannot be written: {error}")),
        }
    }

    fn send(&mut self, to: StoreId, lane: replica::Lane, messages: Messages) {
        let lane = match lane {
            replica::Lane::Control => Lane::Control,
            replica::Lane::Log => Lane::Log,
        };
        for (region, message) in &messages {
            if let Some(region) = self.parts.regions.get(*region) {
                region.announce(replica::announced_commit(message));
            }
        }
        let count = messages.len() as u64;
        let entries = messages.iter().flat_map(|(_, message)| message.get_entries());
        let entry_bytes = entries.map(|entry| entry.data.len() as u64).sum();
        if self.parts.transport.send_raft(to, lane, messages) {
            self.parts.metrics.raft_messages_sent.inc_by(count);
            self.parts.metrics.raft_entry_bytes_sent.inc_by(entry_bytes);
        } else {
            self.parts.metrics.raft_messages_dropped.inc_by(count);
            self.raft(RaftInput::StoreUnreachable { store: to });
        }
    }

    fn publish_relays(&self) {
        let RelayCounts { chained, chained_bytes, relayed, relayed_bytes, fallbacks } =
            self.shard.relay_counts();
        let metrics = &self.parts.metrics;
        for (counter, now) in [
            (&metrics.chained_appends, chained),
            (&metrics.chained_bytes, chained_bytes),
            (&metrics.relayed_appends, relayed),
            (&metrics.relayed_bytes, relayed_bytes),
            (&metrics.chain_fallbacks, fallbacks),
        ] {
            counter.inc_by(now - counter.get());
        }
    }

    /// Publishes the status of the regions that this store leads, for heartbeats. These are the
    /// awake regions, and once more those that have just hibernated.
    fn publish_status(&mut self) {
        let now = clock::boot_nanos();
        self.parts.levels.publish(self.apply.bytes(), self.shard.withheld_bytes());
        let put_off = &self.parts.metrics.raft_appends_put_off;
        put_off.inc_by(self.shard.entry_memory().refused() - put_off.get());
        self.publish_relays();
        self.parts.unsynced.publish(self.shard.unclean());
        let awake: BTreeSet<RegionId> = self.shard.awake().collect();
        let status = |region| self.shard.status(region, now);
        self.parts.regions.publish(awake.union(&self.published).copied(), status);
        self.published = awake;
    }
}
