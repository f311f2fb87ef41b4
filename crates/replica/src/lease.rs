//! The leader's clock lease: the time for which it may serve local reads without contacting other
//! peers.
//!
//! The lease counts from the sending of the last confirmed round. It begins only once an entry of
//! the leader's own term is applied; until then, writes acknowledged by an earlier leader may be
//! missing here. The voters' half is in `stickiness`.
//!
//! A leader transfer breaks the voters' half on purpose: votes for the transfer target ignore the
//! hold. So the lease ends before the target is told to take over (`MsgTimeoutNow`), and no lease
//! may begin while that message may still be in transit. That time is unbounded: the target may be
//! stopped before it reads the message. A *fence* solves this: the message names the last index of
//! the leader's log, and the target obeys only while its own log ends at that index. When the
//! leader gives up the transfer, it appends an entry. Once the target has acknowledged an entry
//! beyond the fence, an old message is harmless, because the target's log never again ends at that
//! index in this term. A lease may begin only after that acknowledgement and a full stickiness
//! period. Meanwhile `ReadIndex` serves reads.

use types::{BootNanos, LogIndex, StoreId};

#[derive(Default)]
pub(crate) struct Lease {
    /// Time at which the latest confirmed round was sent.
    confirmed: Option<BootNanos>,
    suspended_until: BootNanos,
    /// Fences of leader transfers, at most one per store.
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

    /// Ends the lease. No lease begins from rounds sent before `until`, or while a fence stands.
    /// Returns true if a lease was published.
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

    /// Drops the fences whose stores have acknowledged a later index. Must not be called while the
    /// transfer is in progress.
    pub fn clear_fences(&mut self, matched: impl Fn(StoreId) -> LogIndex) {
        self.fences.retain(|&(store, index)| matched(store) <= index);
    }

    pub fn is_suspended(&self, now: BootNanos) -> bool {
        !self.fences.is_empty() || now < self.suspended_until
    }

    /// Resets the lease for another term. Returns true if a lease was published.
    pub fn reset(&mut self) -> bool {
        std::mem::take(self).published.is_some()
    }

    /// Extends the lease from the latest confirmed round. Returns its new end if it moved.
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
