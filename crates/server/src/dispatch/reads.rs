//! Strong reads at the leader, weak reads anywhere.
//!
//! A strong read takes its view of the rows first and checks the lease afterwards: had another leader
//! been elected before the view was taken, the lease would be over by then. Without a lease a ReadIndex
//! round that began after the read did proves the same. The region's slots are looked at afterwards, too: what
//! it gave away before the view was taken may have been written elsewhere since.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use command::Outcome;
use replica::Input;
use resp::Reply;
use tokio::sync::oneshot;

use super::{cluster_down, lie_in, Answer, Answers, Item, NotDone};
use crate::clock;
use crate::region::inbox::{Maintenance, Refusal, ToWorker, Work};
use crate::region::shared::RegionShared;
use crate::store::Store;

/// Slots whose due keys one entry deletes.
const DUE_SLOTS_MAX: usize = 256;

/// What one pass over the rows made of the commands.
struct Pass {
    answers: Vec<Option<Answer>>,
    /// Positions of commands that met a key past its time.
    to_propose: Vec<usize>,
    /// Commands that RAM did not answer.
    misses: u64,
}

impl Store {
    /// Reads at the leader. All `items` are read-only.
    pub(super) async fn read(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: Arc<Vec<Item>>,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        region.reads.fetch_add(items.len() as u64, Ordering::Relaxed);
        self.touch(region);
        let mut pass = None;
        let now = clock::boot_nanos();
        let may_use_lease = self.may_use_lease();
        if may_use_lease && region.should_want_lease(now) {
            let _ = self.worker.send(ToWorker::Input(Input::WantLease { region: region.id() }));
        }
        if may_use_lease && region.lease_holds(now) {
            let read = self.pass(region, &items).await?;
            if region.lease_holds(clock::boot_nanos()) {
                self.metrics.reads_by_lease.inc_by(items.len() as u64);
                pass = Some(read);
            }
        }
        let pass = match pass {
            Some(pass) => pass,
            None => {
                self.read_index(region, deadline).await?;
                self.metrics.reads_by_read_index.inc_by(items.len() as u64);
                self.pass(region, &items).await?
            }
        };
        region.misses.fetch_add(pass.misses, Ordering::Relaxed);
        if !lie_in(&items, region, version) {
            return Err(NotDone::NotLeader);
        }
        self.settle(region, version, &items, pass, deadline).await
    }

    /// A read of whatever this store has applied: fresh or not. `None` at a command that only the leader
    /// can answer, for it met a key past its time.
    pub async fn read_weakly(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        item: Item,
    ) -> Result<Option<Answer>, Reply> {
        match self.pass(region, &Arc::new(vec![item])).await {
            Ok(mut pass) => {
                let answer = pass.answers.pop().flatten();
                if answer.is_some() {
                    region.reads.fetch_add(1, Ordering::Relaxed);
                    self.touch(region);
                }
                Ok(answer)
            }
            Err(NotDone::Error(error)) => Err(error),
            Err(NotDone::NotLeader) => Err(cluster_down()),
        }
    }

    async fn read_index(&self, region: &RegionShared, deadline: Instant) -> Result<(), NotDone> {
        let (sender, granted) = oneshot::channel();
        if self.worker.send(ToWorker::ReadIndex { region: region.id(), reply: sender }).is_err() {
            return Err(NotDone::Error(Reply::error("ERR the store is shutting down")));
        }
        match tokio::time::timeout_at(deadline.into(), granted).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(Refusal::NotLeader))) => Err(NotDone::NotLeader),
            Ok(Ok(Err(Refusal::TooLate))) | Ok(Err(_)) | Err(_) => Err(NotDone::Error(cluster_down())),
        }
    }

    /// Executes the commands over the rows as they are now, in order. Those at the front whose rows are in
    /// RAM are answered at once; from the first that misses on, the rest goes to the reader pool together,
    /// so that a slow device never holds up an I/O thread.
    async fn pass(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: &Arc<Vec<Item>>,
    ) -> Result<Pass, NotDone> {
        let now = region.read_time(self.wall.millis());
        let mut pass = Pass { answers: vec![None; items.len()], to_propose: Vec::new(), misses: 0 };
        let mut missed = items.len();
        for (position, item) in items.iter().enumerate() {
            match self.engine.read_from_ram(region, item, now) {
                Some(outcome) => pass.take(position, outcome),
                None => {
                    missed = position;
                    break;
                }
            }
        }
        if missed < items.len() {
            let (store, region, items) = (self.clone(), region.clone(), items.clone());
            let reading = tokio::task::spawn_blocking(move || -> storage::Result<(Vec<_>, u64)> {
                let mut misses = 0;
                let read = |position: usize| {
                    let item = &items[position];
                    // The first was looked for already.
                    if position > missed {
                        if let Some(outcome) = store.engine.read_from_ram(&region, item, now) {
                            return Ok((position, outcome));
                        }
                    }
                    misses += 1;
                    Ok((position, store.engine.read(&region, item, now)?))
                };
                let outcomes = (missed..items.len()).map(read).collect::<storage::Result<Vec<_>>>()?;
                Ok((outcomes, misses))
            });
            let (outcomes, misses) = match reading.await {
                Ok(Ok(read)) => read,
                Ok(Err(error)) => self.fatal(&format!("cannot read rows: {error}")),
                Err(ended) if ended.is_cancelled() => return Err(NotDone::NotLeader),
                Err(_) => self.fatal("a reader died"),
            };
            outcomes.into_iter().for_each(|(position, outcome)| pass.take(position, outcome));
            pass.misses = misses;
        }
        Ok(pass)
    }

    /// Answers what a pass could not, for it met keys past their time: their deletion is committed first.
    async fn settle(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: &[Item],
        mut pass: Pass,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        for position in std::mem::take(&mut pass.to_propose) {
            pass.answers[position] =
                self.read_past_expiry(region, version, &items[position], deadline).await?;
        }
        Ok(pass.answers)
    }

    /// A read of a few rows is itself proposed: applying it deletes what is due. A longer one would hold up
    /// every replica, so the due keys are deleted by themselves and the read is made again.
    async fn read_past_expiry(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        item: &Item,
        deadline: Instant,
    ) -> Result<Option<Answer>, NotDone> {
        let one = Arc::new(vec![item.clone()]);
        if item.is_bounded_read() {
            let mut answers = self.submit(region, Work::Commands(one), deadline).await?;
            return Ok(answers.pop().flatten());
        }
        while Instant::now() < deadline {
            match item.keys_exist() {
                Some(exist) => {
                    self.submit(region, Work::Commands(Arc::new(vec![exist])), deadline).await?;
                }
                None => {
                    let due = self.due_slots(region).await?;
                    self.submit(region, Work::Maintenance(due), deadline).await?;
                }
            }
            let mut pass = self.pass(region, &one).await?;
            if !lie_in(&one, region, version) {
                return Ok(None);
            }
            if let Some(answer) = pass.answers.pop().flatten() {
                // Leadership was proved again by what has just been committed and applied here.
                return Ok(Some(answer));
            }
        }
        Err(NotDone::Error(cluster_down()))
    }

    async fn due_slots(self: &Arc<Self>, region: &Arc<RegionShared>) -> Result<Maintenance, NotDone> {
        let (store, region) = (self.clone(), region.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let now = region.read_time(store.wall.millis());
            command::find_due(&store.engine.flash().view(), region.slots_or_all(), now)
        });
        match looking.await {
            Ok(Ok(mut due)) => {
                due.truncate(DUE_SLOTS_MAX);
                Ok(Maintenance { expire: due, sweep: Vec::new() })
            }
            Ok(Err(error)) => self.fatal(&format!("cannot read rows: {error}")),
            Err(_) => Err(NotDone::NotLeader),
        }
    }
}

impl Pass {
    fn take(&mut self, position: usize, outcome: Outcome) {
        match outcome {
            Outcome::Reply(reply) => self.answers[position] = Some(reply.into()),
            Outcome::NeedsApply => self.to_propose.push(position),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use storage::{RegionState, Txn};
    use types::SlotRange;

    use super::*;
    use crate::fixture::Fixture;

    fn item(line: &str) -> Item {
        Item::new(line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect(), 0, false)
            .unwrap()
    }

    /// What is written stays in RAM, but for values that are too large for that.
    #[tokio::test]
    async fn only_reads_that_ram_does_not_answer_are_misses() {
        let fixture = Fixture::new();
        let region = fixture.store.regions.get(1).unwrap();
        let mut entry = command::entry::Builder::new();
        let large = "1".repeat((1 << 20) + 1);
        for (key, value) in [("a", "1"), ("b", "1"), ("large", large.as_str())] {
            entry.push(0, false, &["SET", key, value].map(|arg| Bytes::copy_from_slice(arg.as_bytes())));
        }
        let mut txn = Txn::new(fixture.store.engine.flash(), region.id(), RegionState::default());
        command::entry::apply(&entry.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
        fixture.store.engine.write(&txn.finish().0).unwrap();
        let misses_of = async |lines: &[&str]| {
            let items = Arc::new(lines.iter().map(|line| item(line)).collect::<Vec<_>>());
            let pass = fixture.store.pass(&region, &items).await.ok().unwrap();
            assert!(pass.answers.iter().all(Option::is_some));
            pass.misses
        };
        assert_eq!(misses_of(&["GET a", "GET b"]).await, 0);
        assert_eq!(misses_of(&["GET large"]).await, 1);
        assert_eq!(misses_of(&["GET large", "GET a", "GET large", "GET b"]).await, 2);
    }
}
