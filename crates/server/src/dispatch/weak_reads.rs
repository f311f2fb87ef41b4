//! Weak reads: from this store's own copy of a region, with or without a bound on its age.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use node::bounded_staleness::{MaxLag, Next};
use node::reads::Read;
use node::{Answer, Item};
use resp::Reply;
use types::{BootNanos, LogIndex, StoreId};

use crate::clock;
use crate::proposals::{cluster_down, NotDone};
use crate::regions::{RegionShared, RowsToken};
use crate::store::Store;
use crate::transport::frame::take_u64;
use crate::transport::kinds::{REQUEST_APPLIED, STATUS_DONE, STATUS_ERROR, STATUS_NOT_LEADER};

/// Interval at which a read that waits for entries looks at its copy: the first, and the longest.
const COPY_POLL: Duration = Duration::from_millis(1);
const COPY_POLL_MAX: Duration = Duration::from_millis(20);
/// Time for which a store waits for the leader's answer.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);
/// Time between two questions if the first got no answer.
const RETRY: Duration = Duration::from_millis(100);

fn too_old(max: MaxLag) -> Reply {
    let ms = max.nanos / 1_000_000;
    let entries = max.entries.map_or(String::new(), |entries| format!(" or {entries} entries"));
    Reply::error(format!(
        "MASTERDOWN This store's copy may be more than {ms} ms{entries} behind its leader, \
         and READONLY allows this connection no older reads"
    ))
}

/// The bound of a read, and the times at which it began and ends.
#[derive(Clone, Copy)]
pub struct Bound {
    max: MaxLag,
    /// The arrival of the read.
    arrived: BootNanos,
    /// The end of the wait for a copy that is fresh enough.
    until: Instant,
}

impl Bound {
    /// Returns the bound of reads that arrive now and must be answered by `deadline`.
    pub fn of(max: MaxLag, deadline: Instant) -> Bound {
        let until = Instant::now().checked_add(Duration::from_nanos(max.patience_nanos()));
        let until = until.map_or(deadline, |until| until.min(deadline));
        Bound { max, arrived: clock::boot_nanos(), until }
    }
}

impl Store {
    /// Reads what this store has applied, which may be outdated, but not beyond the bound if there
    /// is one. Returns `None` if only the leader can answer: the command met an expired key, the
    /// rows cannot be read here, or this store has become the leader.
    pub async fn read_weakly(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        item: Item,
        bound: Option<Bound>,
    ) -> Result<Option<Answer>, Reply> {
        let version = region.newest_version();
        let read = match bound {
            Some(bound) => self.await_copy(region, &item, version, bound).await?,
            None => Read::begin_weak(&**region, [item.slot], version),
        };
        let Some(read) = read else { return Ok(None) };
        match self.finish_read(region, version, &Arc::new(vec![item]), read).await {
            Ok(pass) => {
                let counts = pass.as_ref().map(|pass| pass.counts).unwrap_or_default();
                let answer = pass.and_then(|mut pass| pass.answers.pop().flatten());
                if answer.is_some() {
                    self.metrics.keys.add(counts);
                    region.reads.fetch_add(1, Ordering::Relaxed);
                    self.regions.touch(region);
                }
                Ok(answer)
            }
            Err(NotDone::Error(error)) => Err(error),
            Err(NotDone::NotLeader) => Err(cluster_down()),
        }
    }

    /// Waits until this store's copy is fresh enough. Returns `None` if the leader must answer.
    async fn await_copy(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        item: &Item,
        version: u64,
        Bound { max, arrived, until }: Bound,
    ) -> Result<Option<Read<RowsToken>>, Reply> {
        let mut poll = COPY_POLL;
        loop {
            let question_ended = region.question_ended.notified();
            tokio::pin!(question_ended);
            question_ended.as_mut().enable();
            if region.leader() == Some(self.id) && !region.is_quarantined() {
                return Ok(None);
            }
            // The token is taken before the applied index is read. If older rows replace these in
            // between, the token changes.
            let Some(read) = Read::begin_weak(&**region, [item.slot], version) else { return Ok(None) };
            let now = clock::boot_nanos();
            let (next, asks) = region.freshness().look(max, arrived, now, region.applied());
            if asks {
                tokio::spawn(self.clone().ask_for_applied(region.clone(), now));
            }
            let wait_until = match next {
                Next::Read => return Ok(Some(read)),
                Next::AwaitAnswer => until,
                Next::AwaitEntries => until.min(Instant::now() + poll),
            };
            if Instant::now() >= until {
                self.metrics.weak_reads_refused.inc();
                return Err(too_old(max));
            }
            if tokio::time::timeout_at(wait_until.into(), question_ended).await.is_err() {
                poll = (2 * poll).min(COPY_POLL_MAX);
            }
        }
    }

    /// Asks the region's leader for its applied index, on behalf of all reads of this store's copy.
    async fn ask_for_applied(self: Arc<Self>, region: Arc<RegionShared>, asked_at: BootNanos) {
        let leader = region.leader().filter(|leader| *leader != self.id);
        let answer = match leader {
            Some(leader) => self.applied_at_leader(&region, leader).await,
            None => None,
        };
        match answer {
            Some(index) => region.freshness().answered(asked_at, index, clock::boot_nanos()),
            None => {
                // Another leader can be asked at once.
                if region.leader() == leader {
                    tokio::time::sleep(RETRY).await;
                }
                region.freshness().not_answered(asked_at);
            }
        }
        region.question_ended.notify_waiters();
    }

    /// Returns a leader's answer; `None` if there is none, or if another store leads by then.
    async fn applied_at_leader(&self, region: &RegionShared, leader: StoreId) -> Option<LogIndex> {
        self.metrics.weak_read_questions.inc();
        let deposed = async {
            loop {
                let changed = self.regions.leader_changes.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if region.leader() != Some(leader) {
                    return;
                }
                changed.await;
            }
        };
        let body = encode(region.id());
        let (status, mut body) = tokio::select! {
            answer = self.transport.call(leader, REQUEST_APPLIED, body, ANSWER_PATIENCE) => answer.ok()?,
            () = deposed => return None,
        };
        (status == STATUS_DONE).then(|| take_u64(&mut body, "the applied index").ok())?
    }

    /// Answers another store's question for the applied index of a region that this store leads.
    /// The leadership is proved as for a strong read, after the question arrived.
    pub async fn answer_applied(self: &Arc<Self>, mut body: Bytes) -> (u8, Bytes) {
        let Ok(id) = take_u64(&mut body, "the region") else {
            return (STATUS_ERROR, Bytes::from_static(b"the question cannot be read"));
        };
        let not_leader = (STATUS_NOT_LEADER, Bytes::new());
        let Some(region) = self.regions.get(id).filter(|region| region.leader() == Some(self.id)) else {
            return not_leader;
        };
        let deadline = Instant::now() + ANSWER_PATIENCE;
        match self.prove_leadership(&region, deadline).await {
            // All that was acknowledged before the proof is applied here by now.
            Ok(()) => (STATUS_DONE, encode(region.applied())),
            Err(_) => not_leader,
        }
    }
}

/// Encodes a question, which is a region's id, or an answer, which is an index.
fn encode(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use node::Leadership;

    use super::*;
    use crate::fixture::Fixture;

    #[tokio::test]
    async fn only_a_leader_that_proves_its_leadership_answers_for_its_region() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let ask = |region| store.answer_applied(encode(region));
        let led_by = |leader| store.regions.lead(1, Leadership { term: 3, leader: Some(leader) });
        led_by(store.id + 1);
        assert_eq!(ask(1).await, (STATUS_NOT_LEADER, Bytes::new()));
        assert_eq!(ask(77).await, (STATUS_NOT_LEADER, Bytes::new()));
        assert_eq!(store.answer_applied(Bytes::from_static(b"1234567")).await.0, STATUS_ERROR);
        // Without a lease, the store needs a round of heartbeats. No other store confirms it here.
        let led = Leadership { term: 4, leader: Some(store.id) };
        store.regions.lead(1, led);
        store.regions.set_applied(1, 70, 1);
        assert_eq!(ask(1).await, (STATUS_NOT_LEADER, Bytes::new()));
        store.regions.lease(1, led.term, Some(BootNanos::MAX));
        assert_eq!(ask(1).await, (STATUS_DONE, encode(70)));
    }
}
