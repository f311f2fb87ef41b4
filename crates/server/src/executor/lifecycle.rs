//! The thread that executes the steps of `node::lifecycle`, which replace a region's rows with a
//! snapshot or remove a peer. A step without room waits until there is room or the store stops.
//!
//! A region that merged into another one is removed like any other. Its rows in slots that now
//! belong to the other region stay, because `destroy_region` checks the local descriptors.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use node::lifecycle::{self, Step};
use node::ApplyJob;
use raftlog::{LogError, RaftLog};
use replica::Input;
use rocks::snapshot::SnapshotError;
use storage::StorageError;
use types::{LogIndex, RegionDescriptor, RegionId, SlotRange, Term};

use super::apply::ToApplier;
use super::flusher;
use super::parts::Parts;
use crate::recovery;
use crate::snapshot::SnapshotService;

const RETRY: Duration = Duration::from_millis(200);

pub struct LifecycleThread {
    pub parts: Parts,
    pub snapshots: Arc<SnapshotService>,
    pub log: RaftLog,
    pub jobs: Receiver<lifecycle::Job>,
    pub apply: Sender<ToApplier>,
}

/// The error of a step that was interrupted by the store's stop. The next start continues with the
/// step.
struct Stopping;

impl LifecycleThread {
    /// Runs until the apply thread has ended.
    pub fn run(self) {
        while let Ok(job) = self.jobs.recv() {
            let region = job.region();
            // The slots are read now, because the steps delete the record of them.
            let slots = self.slots_of(region);
            for step in job.steps() {
                if self.carry_out(region, &slots, step).is_err() {
                    return;
                }
            }
        }
    }

    fn carry_out(&self, region: RegionId, slots: &[SlotRange], step: Step) -> Result<(), Stopping> {
        match step {
            Step::HideRows => {
                self.parts.regions.begin_replacing(region);
                self.parts.quarantines.publish(region, None);
            }
            Step::ReplaceRows { descriptor, index, term } => self.replace(&descriptor, index, term, slots)?,
            Step::Record(life) => self.log(|log| log.set_peers(&[(region, life.clone())]))?,
            Step::Load(descriptor) => {
                let _ = self.apply.send(ToApplier::Job(ApplyJob::Reload(descriptor)));
            }
            Step::TellApplied => drop(self.parts.worker.step(node::Input::SnapshotApplied { region })),
            Step::RemovePeer => {
                self.parts.regions.remove_local(region);
                self.parts.quarantines.publish(region, None);
            }
            Step::RecordMark(mark) => {
                let (name, bytes) = (recovery::mark_name(region), mark.encode());
                self.log(|log| log.set_store_value(&name, &bytes))?;
            }
            Step::ForgetMark => self.log(|log| recovery::forget_mark(log, region))?,
            Step::TellHeld(mark) => {
                // The apply thread has published it. The end of an earlier quarantine may have been
                // published since.
                self.parts.quarantines.publish(region, mark.held.clone());
                drop(self.parts.worker.step(node::Input::Held { region, mark }));
            }
            Step::TellReleased(mark) => {
                self.parts.quarantines.publish(region, None);
                drop(self.parts.worker.step(node::Input::Released { region, mark }));
            }
            Step::Flush => self.flush()?,
            Step::DeleteRows => self.delete(region, slots)?,
            Step::DestroyLog { peer } => {
                // With this order the bytes always count as held, as space to be reclaimed, or as
                // both.
                let bytes = self.parts.engine.bytes_in_region(region);
                slots.iter().for_each(|slots| self.snapshots.reclaim(*slots, bytes));
                self.parts.engine.forget_counts(region);
                self.log(|log| log.destroy(region, peer))?;
                tracing::info!(region, peer, "the peer and its rows were removed");
            }
            Step::TellDestroyed => {
                drop(self.parts.worker.raft(Input::Destroyed { region }));
            }
        }
        Ok(())
    }

    fn replace(
        &self,
        descriptor: &RegionDescriptor,
        index: LogIndex,
        term: Term,
        replaced: &[SlotRange],
    ) -> Result<(), Stopping> {
        let region = descriptor.id;
        loop {
            match self.snapshots.ingest(descriptor, index, term, replaced) {
                Ok(()) => break,
                Err(error) if error.is_no_space() => {
                    self.parts.disk.set_full();
                    tracing::error!(region, %error, "no space to apply a snapshot: it waits for room");
                }
                Err(_) if self.is_stopping() => return Err(Stopping),
                Err(SnapshotError::Storage(error)) => {
                    self.fail(region, "a snapshot cannot be applied", &error)
                }
                Err(error) => {
                    self.parts.ends.fatal(&format!("a snapshot of region {region} failed: {error}"))
                }
            }
            self.pause()?;
        }
        tracing::info!(region, index, "a snapshot has replaced the region's rows");
        Ok(())
    }

    fn delete(&self, region: RegionId, slots: &[SlotRange]) -> Result<(), Stopping> {
        self.snapshots.forget(region);
        loop {
            match self.parts.engine.rows().destroy_region(region, slots) {
                Ok(()) => return Ok(()),
                Err(StorageError::NoSpace(_)) => self.parts.disk.set_full(),
                Err(error) => self.fail(region, "rows cannot be deleted", &error),
            }
            self.pause()?;
        }
    }

    /// Returns the slots of the region's rows.
    fn slots_of(&self, region: RegionId) -> Vec<SlotRange> {
        match self.parts.engine.region_rows(region) {
            Ok(rows) => rows.and_then(|(_, descriptor)| descriptor?.slots).into_iter().collect(),
            Err(error) => self.fail(region, "rows cannot be read", &error),
        }
    }

    fn flush(&self) -> Result<(), Stopping> {
        while !flusher::flush(&self.parts) {
            self.pause()?;
        }
        Ok(())
    }

    fn log(&self, write: impl Fn(&RaftLog) -> Result<(), LogError>) -> Result<(), Stopping> {
        loop {
            match write(&self.log) {
                Ok(()) => return Ok(()),
                Err(LogError::NoSpace(_)) => self.parts.disk.set_full(),
                Err(error) => self.parts.ends.fatal(&format!("a peer's life cannot be written: {error}")),
            }
            self.pause()?;
        }
    }

    fn fail(&self, region: RegionId, what: &str, error: &StorageError) -> ! {
        self.parts.ends.rows_failed_for_good(&format!("region {region}: {what}"), error)
    }

    fn pause(&self) -> Result<(), Stopping> {
        std::thread::sleep(RETRY);
        if self.is_stopping() {
            return Err(Stopping);
        }
        Ok(())
    }

    fn is_stopping(&self) -> bool {
        self.parts.ends.is_stopping()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use bytes::Bytes;
    use storage::rows::{region_descriptor_row, region_state_row};
    use storage::{RegionState, Txn};

    use super::*;
    use crate::executor::snapshots::Host;
    use crate::fixture::Fixture;
    use crate::snapshot::{received_dir, Limits};
    use node::Answer;
    use node::Item;

    const KEYS: usize = 200;
    const TERM: Term = 6;

    fn command(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    /// Writes the region's rows as of this entry. They have the same keys at every index.
    fn fill(fixture: &Fixture, descriptor: &RegionDescriptor, index: LogIndex) {
        let mut entry = command::entry::Builder::new();
        for key in 0..KEYS {
            entry.push(0, false, &command(&format!("SET key:{key} value:{index}")));
        }
        let engine = &fixture.store.engine;
        let mut txn = Txn::new(engine.rows(), descriptor.id, RegionState::default());
        command::entry::apply(&entry.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
        let (mut writes, mut state) = txn.finish();
        (state.applied_index, state.applied_term) = (index, TERM);
        writes.rows.push((region_state_row(descriptor.id), Some(state.encode())));
        writes.rows.push((region_descriptor_row(descriptor.id), Some(descriptor.encode())));
        engine.write(writes);
    }

    fn read_weakly(fixture: &Fixture, runtime: &tokio::runtime::Runtime, key: usize) -> Option<resp::Reply> {
        let region = fixture.store.regions.get(1).unwrap();
        let item = Item::new(command(&format!("GET key:{key}")), 0, false).unwrap();
        let answer = runtime.block_on(fixture.store.read_weakly(&region, item, None)).unwrap();
        answer.map(Answer::into_reply)
    }

    #[test]
    fn rows_that_a_snapshot_replaces_are_not_read_before_it_is_complete() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let descriptor = RegionDescriptor::clone(&store.regions.get(1).unwrap().descriptor());
        let snapshots = store.config.dir.join("snapshots");
        let host = Arc::new(Host::new(&store.executor()));
        let service = Arc::new(SnapshotService::start(&snapshots, Limits::default(), host).unwrap());
        let log = RaftLog::open(&store.config.dir.join("log"), &raftlog::Options::default()).unwrap();
        let (to_lifecycle, jobs) = crossbeam_channel::unbounded();
        let (apply, applied) = crossbeam_channel::unbounded();
        let lifecycle =
            LifecycleThread { parts: store.executor(), snapshots: service.clone(), log, jobs, apply };
        let thread = std::thread::spawn(move || lifecycle.run());

        let (mut refused, mut served, mut strange) = (0, 0, Vec::new());
        for round in 1..=5 {
            let (before, after) = (100 * round, 100 * round + 50);
            fill(&fixture, &descriptor, after);
            let dir = received_dir(&snapshots, 1, after, TERM);
            let pace = &mut |_| ControlFlow::Continue(());
            store.engine.rows().write_snapshot(1, &dir, 1 << 20, pace).unwrap();
            fill(&fixture, &descriptor, before);
            to_lifecycle
                .send(lifecycle::Job::Replace { descriptor: descriptor.clone(), index: after, term: TERM })
                .unwrap();
            let mut key = 0;
            let reloaded = loop {
                match read_weakly(&fixture, &runtime, key % KEYS) {
                    None => refused += 1,
                    Some(resp::Reply::Bulk(value))
                        if [before, after].iter().any(|at| value == format!("value:{at}")) =>
                    {
                        served += 1
                    }
                    Some(other) => strange.push((round, other)),
                }
                key += 1;
                if let Ok(ToApplier::Job(ApplyJob::Reload(descriptor))) = applied.try_recv() {
                    break descriptor;
                }
            };
            store.regions.set_local(&[reloaded]);
            let value = read_weakly(&fixture, &runtime, 0);
            if value != Some(resp::Reply::bulk(format!("value:{after}"))) {
                strange.push((round, value.unwrap_or(resp::Reply::Nil)));
            }
        }
        drop(to_lifecycle);
        thread.join().unwrap();
        service.stop();
        assert!(
            strange.is_empty(),
            "keys that always existed: {} reads such as {:?}",
            strange.len(),
            strange[0]
        );
        assert!(refused > 0, "no read arrived while rows were replaced; {served} were served");
    }
}
