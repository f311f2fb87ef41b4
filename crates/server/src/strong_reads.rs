//! Whether reads may be answered under a lease: `strong-reads`, which the cluster has agreed on.
//!
//! A lease is as good as CLOCK_BOOTTIME. On a virtual machine that was paused that clock goes on where it stood, and
//! the lease with it, although another store may lead by then. With `read-index` no store answers by a lease, from the
//! moment on at which it hears of the setting; it stays so over restarts, for what was heard is kept (`DIR/MEMBERS`).

use cluster::StrongReads;

use crate::store::Store;

impl Store {
    /// Asked once for every batch of reads of a region, before its lease is.
    pub fn may_use_lease(&self) -> bool {
        self.agreed_settings().strong_reads == StrongReads::Lease
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
        assert!(store.may_use_lease(), "unless something else was agreed on");
        let told = |version, strong_reads| AgreedMembers {
            version,
            settings: AgreedSettings { strong_reads, ..AgreedSettings::default() },
            ..AgreedMembers::default()
        };
        store.take_members(told(3, StrongReads::ReadIndex));
        assert!(!store.may_use_lease());
        store.take_members(told(2, StrongReads::Lease));
        assert!(!store.may_use_lease(), "that was before");
        store.take_members(told(4, StrongReads::Lease));
        assert!(store.may_use_lease());
    }
}
