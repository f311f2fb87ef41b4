//! Strong reads at the leader, and the pass over the rows that weak reads share (`weak_reads`).
//!
//! Every read takes a view of the rows and afterwards proves that the view may be used for an
//! answer. Two conditions hold for all reads: the region's own rows were present and complete, and
//! the slots belonged to the region. They are checked because a peer may be removed, or a snapshot
//! may replace its rows, while a read waits in the pool. A strong read needs one more proof:
//!
//! - **The lease** is valid before the view is taken, and still afterwards. If another leader had
//!   been elected in between, the lease would have ended. For commands that another store has
//!   passed on (`Origin::Elsewhere`), this store must also have executed all entries that it has
//!   announced as committed, before the view is taken.
//! - **A ReadIndex round** began after the read did. It ends before the view is taken and covers
//!   everything that the peer has applied since. If the peer has lost its leadership in the
//!   meantime, its rows are still those of a later moment.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::reads::{Local, Origin, Proof, Read};
use node::{Answer, Item, Maintenance, Refusal, Work};
use replica::Input;
use resp::Reply;
use storage::KeyCounts;
use tokio::sync::oneshot;
use types::{BootNanos, UnixMillis};

use super::REPLY_BYTES_MAX;
use crate::clock;
use crate::large_replies::{answered, Answered};
use crate::loops::ToWorker;
use crate::proposals::{cluster_down, Answers, NotDone};
use crate::regions::{RegionShared, RowsToken};
use crate::store::Store;

/// The time after which a pass over many slow commands ends, so that the lease still holds then.
const PASS_TIME: Duration = Duration::from_millis(100);

/// Maximum number of slots whose due keys one entry deletes.
const DUE_SLOTS_MAX: usize = 256;

/// Maximum number of reads that are answered at one moment.
const WINDOW_ITEMS: usize = 128;
/// Maximum number of rows that one client's reads fetch together.
const FETCHED_ROWS_MAX: usize = 1024;
/// Maximum number of attempts to answer reads from rows in RAM and fetched rows. A field of a hash
/// needs three: its meta row must be read before its own row.
const FETCH_ROUNDS: usize = 6;

/// The answers of reads in order, each with true if RAM alone could not give it.
type ColdReads = Vec<(Answered, bool)>;

/// The result of one pass over the rows.
pub(super) struct Pass {
    pub(super) answers: Vec<Option<Answer>>,
    /// Positions of commands that met an expired key.
    to_propose: Vec<usize>,
    /// Number of commands that RAM could not answer.
    misses: u64,
    /// The keys that the answered commands have looked up.
    pub(super) counts: KeyCounts,
}

impl Store {
    /// Reads at the leader. All `items` are read-only.
    pub(super) async fn read(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: Arc<Vec<Item>>,
        origin: Origin,
        deadline: Instant,
    ) -> Result<Answers, NotDone> {
        self.regions.touch(region);
        let mut pass = None;
        let began = Instant::now();
        if self.membership.may_use_lease() {
            self.want_lease(region, clock::boot_nanos());
            pass = self.proved_pass(region, version, &items, Proof::Lease(origin)).await?;
        }
        let pass = match pass {
            Some(pass) => {
                self.metrics.reads_by_lease.inc_by(pass.answers.len() as u64);
                pass
            }
            None => {
                // A long pass that the lease did not outlast leaves as much time as there was.
                self.read_index(region, deadline + began.elapsed()).await?;
                let proved = self.proved_pass(region, version, &items, Proof::AlreadyThere).await?;
                let pass = proved.ok_or(NotDone::NotLeader)?;
                self.metrics.reads_by_read_index.inc_by(pass.answers.len() as u64);
                pass
            }
        };
        region.reads.fetch_add(pass.answers.len() as u64, Ordering::Relaxed);
        region.misses.fetch_add(pass.misses, Ordering::Relaxed);
        let counts = pass.counts;
        let answers = self.settle(region, version, &items, pass, deadline).await?;
        self.metrics.keys.add(counts);
        Ok(answers)
    }

    /// Tells the groups, at intervals, that reads need the region's lease.
    pub(super) fn want_lease(&self, region: &RegionShared, now: BootNanos) {
        if region.should_want_lease(now) {
            let _ = self.worker.raft(Input::WantLease { region: region.id() });
        }
    }

    /// Returns once this store has proved that it leads the region, by the lease or by a round of
    /// heartbeats. Everything that was acknowledged before the call is then applied here.
    pub(super) async fn prove_leadership(
        &self,
        region: &RegionShared,
        deadline: Instant,
    ) -> Result<(), NotDone> {
        let now = clock::boot_nanos();
        if self.membership.may_use_lease() {
            self.want_lease(region, now);
            if region.lease_holds(now) {
                return Ok(());
            }
        }
        self.read_index(region, deadline).await
    }

    /// Makes a pass over the rows and proves it. Returns `None` if the pass may have seen foreign
    /// or incomplete rows, or if the lease does not hold or does not suffice.
    async fn proved_pass(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: &Arc<Vec<Item>>,
        proof: Proof,
    ) -> Result<Option<Pass>, NotDone> {
        let Some(read) = Read::begin(&**region, proof, clock::boot_nanos) else { return Ok(None) };
        self.finish_read(region, version, items, read).await
    }

    /// Makes the pass of a read that has begun.
    pub(super) async fn finish_read(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        items: &Arc<Vec<Item>>,
        read: Read<RowsToken>,
    ) -> Result<Option<Pass>, NotDone> {
        let pass = self.pass(region, items).await?;
        let slots = items.iter().map(|item| item.slot);
        Ok(read.may_be_answered(&**region, slots, version, clock::boot_nanos).then_some(pass))
    }

    async fn read_index(&self, region: &RegionShared, deadline: Instant) -> Result<(), NotDone> {
        let (sender, granted) = oneshot::channel();
        let asked = self.membership.asked();
        if self.worker.send(ToWorker::ReadIndex { region: region.id(), asked, reply: sender }).is_err() {
            return Err(NotDone::Error(Reply::error("ERR the store is shutting down")));
        }
        match tokio::time::timeout_at(deadline.into(), granted).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(Refusal::NotLeader))) => Err(NotDone::NotLeader),
            Ok(Ok(Err(Refusal::TooLate))) | Ok(Err(_)) | Err(_) => Err(NotDone::Error(cluster_down())),
        }
    }

    /// Executes the commands over the present rows, in order. The commands before the first miss
    /// are answered from RAM. The rest waits for flash on other threads, so that a slow device
    /// never delays an I/O thread. The pass ends when the replies are large or have taken long, so
    /// there may be fewer answers than commands, but at least one.
    async fn pass(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: &Arc<Vec<Item>>,
    ) -> Result<Pass, NotDone> {
        let now = region.read_time(self.wall.millis());
        let (answers, counts) = (vec![None; items.len()], KeyCounts::default());
        let mut pass = Pass { answers, to_propose: Vec::new(), misses: 0, counts };
        let mut missed = items.len();
        for (position, item) in items.iter().enumerate() {
            match self.engine.read_from_ram(region, item, now) {
                Some(outcome) => pass.take(position, answered(outcome, Answer::from)),
                None => {
                    missed = position;
                    break;
                }
            }
        }
        if missed < items.len() {
            let _permit = self.client_memory.reading(items.len() - missed).await;
            let cold = self.metrics.cold_reads.begin();
            let (mut at, mut bytes, began) = (missed, 0, Instant::now());
            let is_long = |at| at > missed && began.elapsed() >= PASS_TIME;
            while at < items.len() && bytes < REPLY_BYTES_MAX && !is_long(at) {
                let window = &items[at..items.len().min(at + WINDOW_ITEMS)];
                let mut read = self.read_fetched(region, window, now).await;
                if read.is_empty() {
                    read = self.read_on_a_thread(region, items, at, now).await?;
                }
                for (answered, has_missed) in read {
                    if bytes >= REPLY_BYTES_MAX {
                        break;
                    }
                    bytes += answered.0.as_ref().map_or(0, Answer::bytes);
                    pass.misses += u64::from(has_missed);
                    pass.take(at, answered);
                    at += 1;
                }
            }
            cold.end(pass.misses);
            self.client_memory.replied(at - missed, bytes);
            pass.answers.truncate(at);
        }
        Ok(pass)
    }

    /// Executes reads of a few rows each, whose rows are fetched together. The reads are answered
    /// at one moment, the first one that needs more and all later ones are not.
    async fn read_fetched(&self, region: &RegionShared, items: &[Item], now: UnixMillis) -> ColdReads {
        let mut fetched = HashMap::new();
        let mut missed = Vec::new();
        for round in 0..FETCH_ROUNDS {
            let so_far = self.engine.read_with_fetched(region, items, now, &fetched);
            if round == 0 {
                missed = so_far.missed;
            }
            if !so_far.outcomes.is_empty() || so_far.rows.is_empty() || round + 1 == FETCH_ROUNDS {
                let answers = so_far.outcomes.into_iter().map(|outcome| answered(outcome, Answer::from));
                return answers.zip(missed).collect();
            }
            // A row that a later round needs may depend on the rows of this one, and a row that was
            // fetched before a memtable was dropped is fetched again.
            let mut rows = so_far.rows;
            rows.truncate(FETCHED_ROWS_MAX);
            fetched.extend(self.engine.fetcher().fetch(rows, REPLY_BYTES_MAX).await);
        }
        unreachable!("the last round returns")
    }

    /// Executes the read at `first`, which may need many rows, and the reads behind it that are
    /// like it or that RAM answers.
    async fn read_on_a_thread(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: &Arc<Vec<Item>>,
        first: usize,
        now: UnixMillis,
    ) -> Result<ColdReads, NotDone> {
        let (store, region, items) = (self.clone(), region.clone(), items.clone());
        let reading = tokio::task::spawn_blocking(move || -> storage::Result<ColdReads> {
            let (mut read, mut bytes, began) = (ColdReads::new(), 0, Instant::now());
            for (position, item) in items.iter().enumerate().skip(first) {
                // RAM was already searched for the first command.
                let in_ram = match position > first {
                    true => store.engine.read_from_ram(&region, item, now),
                    false => None,
                };
                if position > first && in_ram.is_none() && item.is_bounded_read() {
                    break;
                }
                let has_missed = in_ram.is_none();
                let answered = match in_ram {
                    Some(outcome) => answered(outcome, Answer::from),
                    None => store
                        .large_replies
                        .answer(item, |held| store.engine.read(&region, item, now, held))?,
                };
                bytes += answered.0.as_ref().map_or(0, Answer::bytes);
                read.push((answered, has_missed));
                if bytes >= REPLY_BYTES_MAX || began.elapsed() >= PASS_TIME {
                    break;
                }
            }
            Ok(read)
        });
        match reading.await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(error)) => {
                self.ends.rows_failed("cannot read rows", &error);
                Err(NotDone::NotLeader)
            }
            Err(ended) if ended.is_cancelled() => Err(NotDone::NotLeader),
            Err(_) => self.ends.fatal("a reader died"),
        }
    }

    /// Answers the commands that met expired keys. The deletion of those keys is committed first.
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

    /// Answers one read that met an expired key. A read of a few rows is proposed itself, and
    /// applying it deletes the due keys. A longer read would delay every replica, so the due keys
    /// are deleted separately and the read is repeated.
    async fn read_past_expiry(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        version: u64,
        item: &Item,
        deadline: Instant,
    ) -> Result<Option<Answer>, NotDone> {
        let one = Arc::new(vec![item.clone()]);
        if item.is_bounded_read() {
            let mut answers = self.proposals.submit(region, Work::Commands(one), deadline).await?;
            return Ok(answers.pop().flatten());
        }
        while Instant::now() < deadline {
            match item.keys_exist() {
                Some(exist) => {
                    self.proposals.submit(region, Work::Commands(Arc::new(vec![exist])), deadline).await?;
                }
                None => {
                    let due = self.due_slots(region).await?;
                    self.proposals.submit(region, Work::Maintenance(due), deadline).await?;
                }
            }
            // The command that was just committed and applied on this store has confirmed the
            // leadership again. `EXISTS` has counted its keys, so this pass does not count them.
            let Some(mut pass) = self.proved_pass(region, version, &one, Proof::AlreadyThere).await? else {
                return Ok(None);
            };
            if let Some(answer) = pass.answers.pop().flatten() {
                return Ok(Some(answer));
            }
        }
        Err(NotDone::Error(cluster_down()))
    }

    async fn due_slots(self: &Arc<Self>, region: &Arc<RegionShared>) -> Result<Maintenance, NotDone> {
        let (store, region) = (self.clone(), region.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let now = region.read_time(store.wall.millis());
            command::find_due(store.engine.rows(), region.slots_or_all(), now)
        });
        match looking.await {
            Ok(Ok(mut due)) => {
                due.truncate(DUE_SLOTS_MAX);
                Ok(Maintenance { expire: due, sweep: Vec::new() })
            }
            Ok(Err(error)) => {
                self.ends.rows_failed("cannot read rows", &error);
                Err(NotDone::NotLeader)
            }
            Err(_) => Err(NotDone::NotLeader),
        }
    }
}

impl Pass {
    fn take(&mut self, position: usize, (answer, counts): Answered) {
        match answer {
            Some(_) => self.counts += counts,
            None => self.to_propose.push(position),
        }
        self.answers[position] = answer;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;
    use command::Outcome;
    use storage::{RegionState, Txn};
    use types::{RegionDescriptor, SlotRange};

    use super::*;
    use crate::dispatch::passing;
    use crate::fixture::Fixture;
    use crate::transport::kinds::STATUS_DONE;

    fn item(line: &str) -> Item {
        Item::new(line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect(), 0, false)
            .unwrap()
    }

    /// Written rows stay in RAM, except for values that are too large for it.
    #[tokio::test]
    async fn only_reads_that_ram_does_not_answer_are_misses_and_large_replies_end_a_pass() {
        let fixture = Fixture::new();
        let region = fixture.store.regions.get(1).unwrap();
        let mut entry = command::entry::Builder::new();
        let large = "1".repeat((1 << 20) + 1);
        for (key, value) in [("a", "1"), ("b", "1"), ("large", large.as_str())] {
            entry.push(0, false, &["SET", key, value].map(|arg| Bytes::copy_from_slice(arg.as_bytes())));
        }
        let mut txn = Txn::new(fixture.store.engine.rows(), region.id(), RegionState::default());
        command::entry::apply(&entry.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
        fixture.store.engine.write(txn.finish().0);
        // Large values in memtables do not enter the row cache.
        fixture.store.engine.rows().flush().unwrap();
        let answers_and_misses = async |lines: &[&str]| {
            let items = Arc::new(lines.iter().map(|line| item(line)).collect::<Vec<_>>());
            let pass = fixture.store.pass(&region, &items).await.ok().unwrap();
            assert!(pass.answers.iter().all(Option::is_some));
            (pass.answers.len(), pass.misses)
        };
        assert_eq!(answers_and_misses(&["GET a", "GET b"]).await, (2, 0));
        assert_eq!(answers_and_misses(&["GET large"]).await, (1, 1));
        // A large reply ends the pass. The remaining commands are read later.
        assert_eq!(answers_and_misses(&["GET a", "GET large", "GET a", "GET large"]).await, (2, 1));
    }

    fn write(fixture: &Fixture, value: &str) {
        let mut entry = command::entry::Builder::new();
        entry.push(0, false, &["SET", "key", value].map(|arg| Bytes::copy_from_slice(arg.as_bytes())));
        let mut txn = Txn::new(fixture.store.engine.rows(), 1, RegionState::default());
        command::entry::apply(&entry.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
        fixture.store.engine.write(txn.finish().0);
        // Large values in memtables do not enter the row cache.
        fixture.store.engine.rows().flush().unwrap();
    }

    /// Removes the peer as the store does.
    fn remove_peer(fixture: &Fixture) {
        fixture.store.regions.remove_local(1);
        fixture.store.engine.rows().destroy_region(1, &[SlotRange::ALL]).unwrap();
    }

    /// Reads at the leader without a lease, and lets the heartbeat round succeed after `meanwhile`.
    async fn read_by_index(fixture: &Fixture, meanwhile: impl FnOnce()) -> Result<Answers, NotDone> {
        let (store, region) = (fixture.store.clone(), fixture.store.regions.get(1).unwrap());
        let version = region.newest().epoch.version;
        let reading = tokio::spawn(async move {
            let deadline = Instant::now() + std::time::Duration::from_secs(60);
            store.read(&region, version, Arc::new(vec![item("GET key")]), Origin::Here, deadline).await
        });
        let granted = loop {
            match fixture.told().next() {
                Some(ToWorker::ReadIndex { reply, .. }) => break reply,
                Some(_) => {}
                None => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
            }
        };
        meanwhile();
        granted.send(Ok(())).unwrap();
        reading.await.unwrap()
    }

    #[tokio::test]
    async fn a_read_that_another_store_passes_on_is_no_older_than_what_that_store_may_have_executed() {
        let fixture = Fixture::new();
        write(&fixture, "live");
        let region = fixture.store.regions.get(1).unwrap();
        let term = 5;
        fixture.store.regions.lead(1, node::Leadership { leader: Some(fixture.store.id), term });
        fixture.store.regions.lease(1, term, Some(BootNanos::MAX));
        let asks = async |origin: Origin| {
            let (store, region) = (fixture.store.clone(), region.clone());
            let version = region.newest().epoch.version;
            let deadline = Instant::now() + std::time::Duration::from_millis(200);
            let items = Arc::new(vec![item("GET key")]);
            let read = store.read(&region, version, items, origin, deadline).await;
            let told: Vec<_> = fixture.told().collect();
            let asks = told.iter().any(|message| matches!(message, ToWorker::ReadIndex { .. }));
            assert_eq!(read.is_err(), asks, "nobody answers");
            asks
        };
        fixture.store.regions.set_applied(1, 7, 1);
        region.announce(7);
        assert_eq!((asks(Origin::Here).await, asks(Origin::Elsewhere).await), (false, false));
        region.announce(8);
        assert_eq!((asks(Origin::Here).await, asks(Origin::Elsewhere).await), (false, true));
        region.announce(6);
        assert!(asks(Origin::Elsewhere).await);
        fixture.store.regions.set_applied(1, 8, 1);
        assert!(!asks(Origin::Elsewhere).await);
    }

    #[tokio::test]
    async fn what_another_store_passes_on_is_not_answered_with_rows_older_than_what_is_announced() {
        let fixture = Fixture::new();
        let region = fixture.store.regions.get(1).unwrap();
        let mut entry = command::entry::Builder::new();
        for args in [&["SET", "key", "live"][..], &["SET", "none", "1"], &["DEL", "none"]] {
            entry.push(
                0,
                false,
                &args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect::<Vec<_>>(),
            );
        }
        let mut txn = Txn::new(fixture.store.engine.rows(), 1, RegionState::default());
        command::entry::apply(&entry.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
        fixture.store.engine.write(txn.finish().0);
        let term = 5;
        fixture.store.regions.lead(1, node::Leadership { leader: Some(fixture.store.id), term });
        fixture.store.regions.lease(1, term, Some(BootNanos::MAX));
        fixture.store.regions.set_applied(1, 7, 1);
        let reaches_the_worker = async |line: &str| {
            let (version, patience) = (region.newest().epoch.version, std::time::Duration::from_secs(60));
            let body = passing::encode_request(1, version, patience, &[item(line)]).await;
            let executing = tokio::spawn(fixture.store.clone().execute_passed(body));
            let mut asked = 0;
            while !executing.is_finished() {
                // The fixture drops what the worker should do, which then fails.
                let is_work = |message: &ToWorker| {
                    matches!(message, ToWorker::ReadIndex { .. } | ToWorker::Shard(node::Input::Submit(_)))
                };
                asked += fixture.told().filter(is_work).count();
                tokio::task::yield_now().await;
            }
            let (status, answer) = executing.await.unwrap();
            assert_eq!(status == STATUS_DONE, asked == 0, "{line}: {answer:?}");
            asked > 0
        };
        region.announce(7);
        assert!(!reaches_the_worker("GET key").await && !reaches_the_worker("DEL none").await);
        region.announce(8);
        assert!(reaches_the_worker("GET key").await && reaches_the_worker("DEL none").await);
        fixture.store.regions.set_applied(1, 8, 1);
        assert!(!reaches_the_worker("GET key").await && !reaches_the_worker("DEL none").await);
        // The same without a lease.
        fixture.store.regions.lease(1, term, None);
        assert!(reaches_the_worker("GET key").await && reaches_the_worker("DEL none").await);
    }

    #[tokio::test]
    async fn a_read_by_read_index_does_not_answer_from_rows_that_have_gone_meanwhile() {
        let fixture = Fixture::new();
        write(&fixture, "live");
        let answers = read_by_index(&fixture, || ()).await.ok().unwrap();
        assert_eq!(answers[0].clone().unwrap().into_reply(), Reply::bulk("live"));
        let moved = read_by_index(&fixture, || remove_peer(&fixture)).await;
        assert!(matches!(moved, Err(NotDone::NotLeader)), "{:?}", moved.ok());
    }

    /// Rows disappear and return while a read waits for the fetcher's threads.
    #[tokio::test]
    async fn a_read_that_waited_for_flash_is_not_answered_from_rows_of_another_time() {
        let fixture = Fixture::new();
        // The value is too large for RAM.
        write(&fixture, &"x".repeat((1 << 20) + 1));
        let region = fixture.store.regions.get(1).unwrap();
        let descriptor = region.descriptor();
        let fetcher = fixture.store.engine.fetcher();
        fetcher.pause();
        let (store, of) = (fixture.store.clone(), region.clone());
        let reading = tokio::spawn(async move { store.read_weakly(&of, item("GET key"), None).await });
        while fetcher.under_way() != (1, 0) {
            tokio::task::yield_now().await;
        }
        remove_peer(&fixture);
        fixture.store.regions.set_local(&[RegionDescriptor::clone(&descriptor)]);
        fetcher.resume();
        let answer = reading.await.unwrap().unwrap().map(Answer::into_reply);
        assert_eq!(answer, None, "the rows belong to a new peer that has no rows yet");
    }

    /// A key is overwritten, and its new value flushed, after its old value was fetched.
    #[tokio::test]
    async fn a_pipeline_sees_each_key_at_one_moment_or_later_than_the_key_before_it() {
        let fixture = Fixture::new();
        let region = fixture.store.regions.get(1).unwrap();
        let (old, new) = ("x".repeat((1 << 20) + 1), "y".repeat((1 << 20) + 1));
        write(&fixture, &old);
        let items = [item("GET key")];
        let read = |fetched: &_| fixture.store.engine.read_with_fetched(&region, &items, 1, fetched);
        let first = read(&HashMap::new());
        assert!(first.outcomes.is_empty());
        let fetched: HashMap<_, _> =
            fixture.store.engine.fetcher().fetch(first.rows.clone(), usize::MAX).await.into_iter().collect();
        assert!(
            matches!(&read(&fetched).outcomes[..], [(Outcome::Reply(reply), _)] if *reply == Reply::bulk(old))
        );
        write(&fixture, &new);
        let later = read(&fetched);
        assert_eq!((later.outcomes.len(), later.rows), (0, first.rows), "the fetched value is old by now");
        let pass = fixture.store.pass(&region, &Arc::new(vec![item("GET key")])).await.ok().unwrap();
        assert_eq!(pass.answers[0].clone().unwrap().into_reply(), Reply::bulk(new));
    }

    /// A list's nodes come and go between the reads of its rows.
    #[test]
    fn a_list_that_changes_while_it_is_read_does_not_look_damaged() {
        let fixture = Fixture::new();
        let region = fixture.store.regions.get(1).unwrap();
        let engine = &fixture.store.engine;
        let execute = |line: &str| {
            let mut entry = command::entry::Builder::new();
            let args: Vec<Bytes> =
                line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
            entry.push(0, false, &args);
            let state = engine.region_state(region.id()).unwrap();
            let mut txn = Txn::new(engine.rows(), region.id(), state);
            command::entry::apply(&entry.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
            engine.write(txn.finish().0);
        };
        let fill = format!("RPUSH list{}", " element".repeat(400));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    execute(&fill);
                    execute("LTRIM list 0 9");
                }
            });
            for _ in 0..3000 {
                for line in ["LINDEX list 300", "LRANGE list 200 390"] {
                    let outcome = engine.read(&region, &item(line), 1, storage::HeldLimit::default());
                    if !matches!(outcome, Ok((Outcome::Reply(_), _))) {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{line}: {:?}", outcome.err());
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[tokio::test]
    async fn reads_of_all_kinds_are_answered_in_order_from_flash() {
        let fixture = Fixture::new();
        let region = fixture.store.regions.get(1).unwrap();
        let mut entry = command::entry::Builder::new();
        let padding = "p".repeat((1 << 20) + 1);
        let hash = ["HSET", "hash", "a", "1", "large", padding.as_str()];
        entry.push(0, false, &hash.map(|arg| Bytes::copy_from_slice(arg.as_bytes())));
        let mut wanted = Vec::new();
        for key in 0..300 {
            let (key, value) = (format!("k{key}"), format!("v{key}"));
            entry.push(0, false, &["SET", &key, &value].map(|arg| Bytes::copy_from_slice(arg.as_bytes())));
            wanted.push((format!("GET {key}"), Reply::bulk(value)));
        }
        wanted.push(("HGET hash a".into(), Reply::bulk("1")));
        wanted.push(("HLEN hash".into(), Reply::Int(2)));
        wanted.push(("HKEYS hash".into(), Reply::Array(vec![Reply::bulk("a"), Reply::bulk("large")])));
        wanted.push(("GET none".into(), Reply::Nil));
        let three = ["v7", "v9"].map(Reply::bulk).into_iter().chain([Reply::Nil]).collect();
        wanted.push(("MGET k7 k9 none".into(), Reply::Array(three)));
        let mut txn = Txn::new(fixture.store.engine.rows(), region.id(), RegionState::default());
        command::entry::apply(&entry.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
        fixture.store.engine.write(txn.finish().0);
        fixture.store.engine.rows().flush().unwrap();
        fixture.store.engine.rows().forget_clean_rows();
        let items: Vec<Item> = wanted.iter().map(|(line, _)| item(line)).collect();
        let pass = fixture.store.pass(&region, &Arc::new(items)).await.ok().unwrap();
        assert_eq!(pass.answers.len(), wanted.len());
        for (answer, (line, reply)) in pass.answers.into_iter().zip(&wanted) {
            assert_eq!(answer.unwrap().into_reply(), *reply, "{line}");
        }
        assert!(pass.misses >= 303 && fixture.store.metrics.cold_reads.row().count >= 1);
    }
}
