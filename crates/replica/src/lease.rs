//! The leader's clock lease: how long local reads are current without asking anybody.
//!
//! It counts from the sending of the last confirmed round, and stands only when an entry of the leader's
//! own term is applied (else writes acknowledged by an earlier leader may be missing here). The voters'
//! half is in `vote_hold`.
//!
//! A leader transfer breaks the voters' half on purpose: the target's votes ignore the hold. So the lease
//! ends before the target is told, and must not come back while that word may still be under way, which
//! has no bound: the target may be stopped with the word unread. Hence a *fence*: the word names the log's
//! last index, the target obeys only while its log ends there, and the leader, when it gives the transfer
//! up, appends an entry. Once the target acknowledged anything beyond the index, an old word can do no
//! harm: the target's log never again ends there in this term. Only then, and after the full vote hold,
//! may a lease begin; `ReadIndex` serves meanwhile.

use types::{BootNanos, LogIndex, StoreId};

#[derive(Default)]
pub(crate) struct Lease {
    /// When the latest confirmed round was sent.
    confirmed: Option<BootNanos>,
    suspended_until: BootNanos,
    /// At most one per store.
    fences: Vec<(StoreId, LogIndex)>,
    published: Option<BootNanos>,
}

impl Lease {
    pub fn confirm(&mut self, sent: BootNanos) {
        self.confirmed = self.confirmed.max(Some(sent));
    }

    pub fn until(&self) -> Option<BootNanos> {
        self.published
    }

    /// No lease from rounds sent before `until`, nor while the fence stands. True if a lease was out.
    pub fn suspend(&mut self, until: BootNanos) -> bool {
        self.suspended_until = self.suspended_until.max(until);
        self.published.take().is_some()
    }

    pub fn fence(&mut self, target: StoreId, index: LogIndex) {
        self.fences.retain(|&(store, _)| store != target);
        self.fences.push((target, index));
    }

    pub fn fence_of(&self, target: StoreId) -> Option<LogIndex> {
        self.fences.iter().find(|(store, _)| *store == target).map(|&(_, index)| index)
    }

    /// Drops the fences whose stores acknowledged more. Not to be called while the transfer goes on.
    pub fn clear_fences(&mut self, matched: impl Fn(StoreId) -> LogIndex) {
        self.fences.retain(|&(store, index)| matched(store) <= index);
    }

    pub fn is_suspended(&self, now: BootNanos) -> bool {
        !self.fences.is_empty() || now < self.suspended_until
    }

    /// Begins anew for another term. True if a lease was out.
    pub fn reset(&mut self) -> bool {
        std::mem::take(self).published.is_some()
    }

    /// The lease's new end, if it moved.
    pub fn extend(&mut self, length: BootNanos, now: BootNanos) -> Option<BootNanos> {
        let sent = self.confirmed.filter(|&sent| sent >= self.suspended_until && !self.is_suspended(now))?;
        let until = sent.saturating_add(length);
        (until > now && Some(until) > self.published).then(|| {
            self.published = Some(until);
            until
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_the_sending_and_is_never_shortened() {
        let mut lease = Lease::default();
        assert_eq!(lease.extend(100, 1000), None);
        lease.confirm(1000);
        assert_eq!(lease.extend(100, 1090), Some(1100));
        lease.confirm(990);
        assert_eq!(lease.extend(100, 1090), None);
        assert_eq!(lease.until(), Some(1100));
        lease.confirm(1050);
        assert_eq!(lease.extend(100, 1150), None);
        assert!(lease.reset());
        assert_eq!(lease.extend(100, 1060), None);
    }

    #[test]
    fn a_transfer_suspends_the_lease_for_its_length_and_until_the_target_moved_on() {
        let mut lease = Lease::default();
        lease.confirm(1000);
        assert!(lease.extend(100, 1000).is_some());
        lease.fence(2, 7);
        assert!(lease.suspend(1200));
        lease.confirm(1210);
        lease.clear_fences(|_| 7);
        assert_eq!(lease.extend(100, 1220), None);
        lease.clear_fences(|_| 8);
        assert_eq!(lease.extend(100, 1220), Some(1310));
        lease.suspend(1400);
        assert_eq!(lease.extend(100, 1410), None);
        lease.confirm(1399);
        assert_eq!(lease.extend(100, 1410), None);
        lease.confirm(1400);
        assert_eq!(lease.extend(100, 1410), Some(1500));
    }
}
