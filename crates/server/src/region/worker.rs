//! The region worker: it owns the Raft groups of this store.
//!
//! Where one thread serves the clients, it is a task of that thread: commands reach it, and outcomes their clients, without
//! a thread being woken for them. Otherwise it has a thread of its own.
//!
//! It waits for input, has `node::Shard` take turns, and carries out the effects in the order in which they come. It
//! decides nothing itself, and waits for no device: the log and the rows have threads of their own. Commands
//! that arrive while a log batch is being synced wait and make one entry together.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use node::{Effect, Input, Leadership, Messages, Moment, Shard};
use raftlog::RaftLog;
use replica::{Input as RaftInput, LogBatch};
use tokio::sync::mpsc::UnboundedReceiver;
use types::{RegionId, StoreId};

use super::apply::{ApplyQueue, ExecutedHere};
use super::dropped::Dropped;
use super::inbox::{Asker, Reader, ToWorker};
use super::log_reader::Wanted;
use crate::clock;
use crate::store::Store;
use crate::transport::frame::Lane;

/// Messages taken from the inbox before the worker takes its turn.
const INBOX_PER_TURN_MAX: usize = 4096;
/// Deadlines are looked at, and the state of led regions is published, this often.
const EXPIRY_PERIOD: Duration = Duration::from_millis(100);

pub struct RegionWorker {
    store: Arc<Store>,
    shard: Shard<RaftLog, Asker, Reader>,
    inbox: UnboundedReceiver<ToWorker>,
    /// Batches on their way to the device.
    batches: Sender<LogBatch>,
    log: RaftLog,
    /// Entries that followers lack.
    reads: Sender<Wanted>,
    apply: ApplyQueue,
    /// Whose status was published when it was last time.
    published: BTreeSet<RegionId>,
    dropped: Dropped,
    stopping: bool,
}

impl RegionWorker {
    pub fn new(
        store: Arc<Store>,
        raft: replica::Worker<RaftLog>,
        inbox: UnboundedReceiver<ToWorker>,
        batches: Sender<LogBatch>,
        log: RaftLog,
        reads: Sender<Wanted>,
        apply: ApplyQueue,
    ) -> RegionWorker {
        RegionWorker {
            store,
            shard: Shard::new(raft),
            inbox,
            batches,
            log,
            reads,
            apply,
            published: BTreeSet::new(),
            dropped: Dropped::default(),
            stopping: false,
        }
    }

    /// Runs until it is told to stop.
    pub async fn run(mut self) {
        let tick = self.store.config.raft_tick;
        let mut next_tick = Instant::now() + tick;
        let mut ticking = pin!(tokio::time::sleep_until(next_tick.into()));
        let mut came = Vec::new();
        let mut next_expiry = Instant::now() + EXPIRY_PERIOD;
        while !self.stopping {
            tokio::select! {
                biased;
                count = self.inbox.recv_many(&mut came, INBOX_PER_TURN_MAX) => if count == 0 { return },
                () = &mut ticking => {}
            }
            came.drain(..).for_each(|message| self.take(message));
            let now = Instant::now();
            if now >= next_tick {
                self.raft(RaftInput::Tick);
                // Ticks missed in a pause are dropped, not replayed.
                next_tick = now + tick;
                ticking.as_mut().reset(next_tick.into());
            }
            if now >= next_expiry {
                self.shard.expire(clock::boot_nanos());
                self.publish_status();
                next_expiry = now + EXPIRY_PERIOD;
            }
            self.turn();
        }
    }

    fn take(&mut self, message: ToWorker) {
        let now = clock::boot_nanos();
        match message {
            ToWorker::Input(input) => self.shard.step(Input::Raft(input), now),
            ToWorker::Submit(submit) => self.shard.step(Input::Submit(submit), now),
            ToWorker::ReadIndex { region, reply } => {
                let deadline = clock::boot_nanos_at(Instant::now() + self.store.config.request_timeout);
                self.shard.step(Input::ReadIndex { region, deadline, reader: reply }, now);
            }
            ToWorker::Messages { from, messages, place: _place } => {
                for (region, message) in messages {
                    self.shard.step(Input::Raft(RaftInput::Message { from, region, message }), now);
                }
            }
            ToWorker::Applied { indexes } => {
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
            ToWorker::ChangeRegion { region, expect, change } => {
                self.shard.step(Input::ChangeRegion { region, expect, change }, now);
            }
            ToWorker::SnapshotApplied { region } => {
                self.shard.step(Input::SnapshotApplied { region }, now);
            }
            ToWorker::Stop => self.stopping = true,
        }
    }

    fn executed_here(&mut self, executed: Option<ExecutedHere>) {
        let Some(ExecutedHere { applied, outcomes }) = executed else { return };
        for (region, index) in applied {
            self.raft(RaftInput::Applied { region, index });
        }
        outcomes.into_iter().for_each(|(client, outcome)| drop(client.send(outcome)));
    }

    fn raft(&mut self, input: RaftInput) {
        self.shard.step(Input::Raft(input), clock::boot_nanos());
    }

    /// Turns until there is nothing to do before the next message.
    fn turn(&mut self) {
        loop {
            let boot = clock::boot_nanos();
            let wall = &self.store.wall;
            let stamp = wall.may_stamp().then(|| wall.millis());
            let now = Moment { boot, stamp, seed: boot, room: self.apply.room() };
            match self.shard.turn(now, &mut ()) {
                Ok(Some(effects)) => effects.into_iter().for_each(|effect| self.carry_out(effect)),
                Ok(None) => return,
                Err(error) => self.store.fatal(&format!("consensus cannot go on: {error}")),
            }
        }
    }

    fn carry_out(&mut self, effect: Effect<Asker, Reader>) {
        match effect {
            Effect::Leadership { region, leadership, .. } => self.lead(region, leadership),
            Effect::Lease { region, term, until } => {
                if let Some(shared) = self.store.regions.get(region) {
                    let counts = shared.leadership().is_of(self.store.id, term);
                    shared.set_lease(until.filter(|_| counts));
                }
            }
            Effect::Send { to, lane, messages } => self.send(to, lane, messages),
            Effect::AcceptSnapshot { region, index, term } => {
                self.store.snapshots().accept(region, index, term);
            }
            Effect::Persist(batch) => {
                if self.batches.send(batch).is_err() {
                    self.store.fatal("the log thread has gone");
                }
            }
            Effect::Apply { region, entries } => {
                let executed = self.apply.execute(region, entries);
                self.executed_here(executed);
            }
            Effect::Life(job) => self.apply.send_life(job),
            Effect::Truncate { region, index, term } => self.log.truncate(region, index, term),
            // Whoever does not wait any more has been answered otherwise.
            Effect::Answer { client, outcome } => drop(client.send(outcome)),
            Effect::NotApplied { waiting, outcome } => {
                waiting.clients().for_each(|client| drop(client.send(outcome.clone())));
            }
            Effect::Read { reader, proven, .. } => drop(reader.send(proven)),
            Effect::Announce { to, descriptor } => {
                self.store.transport().send_announce(to, descriptor.encode());
            }
            Effect::ReadLog { region, number, low, high, max_bytes } => {
                let _ = self.reads.send(Wanted { region, number, low, high, max_bytes });
            }
            Effect::MakeSnapshot { region } => self.store.snapshots().make(region),
            Effect::SendSnapshot { region, to, message } => self.store.snapshots().send(region, to, message),
            Effect::FlushSoon => self.store.flush_soon.store(true, Ordering::Relaxed),
            Effect::ChangeRefused { region, reason } => {
                tracing::info!(region, ?reason, "a change of the region is refused");
            }
            Effect::Transferred { region, to, is_done: true } => {
                tracing::info!(region, to, "leadership handed over");
            }
            Effect::Transferred { region, to, is_done: false } => {
                tracing::info!(region, to, "leadership stays: it was not taken over in time");
            }
            Effect::Dropped { region, from, reason } => {
                self.store.metrics.raft_messages_refused.inc();
                self.dropped.note(region, from, reason, Instant::now());
            }
        }
    }

    fn send(&mut self, to: StoreId, lane: replica::Lane, messages: Messages) {
        let lane = match lane {
            replica::Lane::Control => Lane::Control,
            replica::Lane::Log => Lane::Log,
        };
        let count = messages.len() as u64;
        if self.store.transport().send_raft(to, lane, messages) {
            self.store.metrics.raft_messages_sent.inc_by(count);
        } else {
            self.store.metrics.raft_messages_dropped.inc_by(count);
            self.raft(RaftInput::StoreUnreachable { store: to });
        }
    }

    fn lead(&mut self, region: RegionId, leadership: Leadership) {
        let Some(shared) = self.store.regions.get(region) else { return };
        let before = shared.leader();
        if leadership.leader != Some(self.store.id) {
            shared.set_lease(None);
        }
        if shared.set_leadership(leadership) {
            self.store.leader_changed(&shared, before);
        }
    }

    /// What heartbeats tell of the regions that are led here.
    /// Of those that are awake, and once more of those that have just gone to sleep.
    fn publish_status(&mut self) {
        let now = clock::boot_nanos();
        self.store.withheld_bytes.store(self.shard.withheld_bytes(), Ordering::Relaxed);
        let put_off = &self.store.metrics.raft_appends_put_off;
        put_off.inc_by(self.shard.entry_memory().refused() - put_off.get());
        let awake: BTreeSet<RegionId> = self.shard.awake().collect();
        let table = self.store.regions.table();
        for region in awake.union(&self.published).filter_map(|id| table.get(*id)) {
            let led = region.leader() == Some(self.store.id);
            let status = if led { self.shard.status(region.id(), now) } else { None };
            self.store.publish_status(region, status);
        }
        drop(table);
        self.published = awake;
    }
}
