//! Decides how reads are proved to be current: `strong-reads`, a setting of the cluster.
//!
//! A lease relies on CLOCK_BOOTTIME. On a virtual machine that was paused, that clock continues
//! from its value before the pause. So the lease continues as well, although another store may lead
//! by then. With `read-index` or `epoch-check` a store answers no read under a lease as soon as it
//! has received the setting. `DIR/MEMBERS` keeps the setting across restarts.

use cluster::StrongReads;
use replica::Asked;

use crate::membership::Membership;

impl Membership {
    /// Returns true if a read may be answered under its region's lease.
    pub fn may_use_lease(&self) -> bool {
        self.agreed_settings().strong_reads == StrongReads::Lease
    }

    /// Returns the followers that a leader asks for a read that has no lease.
    pub fn asked(&self) -> Asked {
        match self.agreed_settings().strong_reads {
            StrongReads::Lease | StrongReads::ReadIndex => Asked::All,
            StrongReads::EpochCheck => Asked::Majority,
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::AgreedSettings;

    use super::*;
    use crate::fixture::Fixture;
    use crate::members::AgreedMembers;

    #[tokio::test]
    async fn a_store_goes_by_the_latest_settings_that_it_heard_of() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        assert!(store.membership.may_use_lease(), "leases are the default");
        let told = |version, strong_reads| AgreedMembers {
            version,
            settings: AgreedSettings { strong_reads, ..AgreedSettings::default() },
            ..AgreedMembers::default()
        };
        store.membership.take_members(told(3, StrongReads::ReadIndex));
        assert!(!store.membership.may_use_lease());
        store.membership.take_members(told(2, StrongReads::Lease));
        assert!(!store.membership.may_use_lease(), "read-index is in effect");
        store.membership.take_members(told(4, StrongReads::Lease));
        assert!(store.membership.may_use_lease());
        assert_eq!(store.membership.asked(), Asked::All);
        store.membership.take_members(told(5, StrongReads::EpochCheck));
        assert!(!store.membership.may_use_lease());
        assert_eq!(store.membership.asked(), Asked::Majority);
    }
}
