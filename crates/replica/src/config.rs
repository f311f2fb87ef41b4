//! A worker's settings, and the relations between them that the lease depends on.

use types::{BootNanos, StoreId};

use crate::chain::Replication;
use crate::truncation::Truncation;

/// Maximum rate error of any store's clock, fast or slow, in parts per million of true time. Quartz
/// stays within 100; NTP slews at 500.
pub const DRIFT_BOUND_PPM: u64 = 1000;

const MILLISECOND: u64 = 1_000_000;
/// The tick and the election timeout of a worker whose owner sets no others, as the simulator. The
/// server sets its own.
const TICK_NANOS: u64 = 100 * MILLISECOND;
const DEFAULT_ELECTION_TICKS: u32 = 10;
const HEARTBEAT_TICKS: u32 = 2;
const DEFAULT_LEASE_NANOS: u64 = 700 * MILLISECOND;
const MESSAGE_BYTES: u64 = 1 << 20;
/// Number of entries that may wait for their commit, by default. A store makes few proposals at a
/// time, because all commands of a turn share one; so the window fills only if no quorum answers.
pub const UNCOMMITTED_ENTRIES: u64 = 1024;
const UNCOMMITTED_BYTES: u64 = 64 << 20;

const _: () =
    assert!(lease_is_covered(DEFAULT_LEASE_NANOS, TICK_NANOS * (DEFAULT_ELECTION_TICKS as u64 - 2)));
const _: () = assert!(HEARTBEAT_TICKS < DEFAULT_ELECTION_TICKS - 2);
const _: () = assert!(MESSAGE_BYTES <= UNCOMMITTED_BYTES);

/// Returns whether a lease timed by the slowest allowed clock ends before a stickiness period timed
/// by the fastest one: lease / (1 - drift) < hold / (1 + drift).
const fn lease_is_covered(lease: u64, hold: u64) -> bool {
    (lease as u128) * (1_000_000 + DRIFT_BOUND_PPM as u128)
        < (hold as u128) * (1_000_000 - DRIFT_BOUND_PPM as u128)
}

#[derive(Clone, Debug)]
pub struct Config {
    pub store: StoreId,
    /// Seed of the random election timeouts.
    pub seed: u64,
    pub tick_nanos: u64,
    /// Election timeout in ticks. A follower that hears from no leader for this long campaigns,
    /// after a random wait of up to as long again. A leader that hears from no quorum for this long
    /// steps down.
    pub election_ticks: u32,
    pub heartbeat_ticks: u32,
    /// Length of the read lease, counted from the sending of the confirmed round.
    pub lease_nanos: u64,
    /// Time for which a lease is renewed after it was last asked for.
    pub lease_demand_nanos: u64,
    pub max_message_bytes: u64,
    pub max_inflight_messages: usize,
    /// The proposal window: the number of entries beyond a region's commit index from which on its
    /// leader makes no more proposals.
    pub max_uncommitted_entries: u64,
    /// Maximum size of a region's uncommitted proposals, in bytes. Further proposals are refused.
    pub max_uncommitted_bytes: u64,
    /// Maximum payload of one `Apply`, in bytes. A larger single entry is still handed out alone.
    pub max_apply_bytes: u64,
    /// Memory budget for the entries of all regions, in bytes. Entries stay in memory so that
    /// followers and apply rarely read the log. If the entries that wait for their log write exceed
    /// this budget, appends from other stores are refused.
    pub entry_memory_bytes: u64,
    pub truncation: Truncation,
    /// True if followers learn of a commit only with the next entries or heartbeat.
    pub skip_commit_broadcast: bool,
    /// Number of idle ticks after which a region hibernates; 0 disables hibernation.
    pub hibernate_ticks: u32,
    /// The way in which candidates are chosen. `Input::SetElections` changes it.
    pub elections: Elections,
    /// The way in which leaders send entries. `Input::SetReplication` changes it.
    pub replication: Replication,
}

/// The way in which the candidate of an election is chosen. Whether it wins is decided by the
/// votes, in either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Elections {
    /// Each peer campaigns once its own random timeout has passed.
    #[default]
    ByTimeout,
    /// A peer that hears from no leader reports its position and campaigns when it is told to
    /// (`Input::Stand`). If it has found no leader for `fallback_nanos`, it also campaigns by its
    /// own timeout; with `None` it never does.
    ByCoordinator { fallback_nanos: Option<u64> },
}

impl Config {
    pub fn new(store: StoreId, seed: u64) -> Config {
        Config {
            store,
            seed,
            tick_nanos: TICK_NANOS,
            election_ticks: DEFAULT_ELECTION_TICKS,
            heartbeat_ticks: HEARTBEAT_TICKS,
            lease_nanos: DEFAULT_LEASE_NANOS,
            lease_demand_nanos: 1000 * MILLISECOND,
            max_message_bytes: MESSAGE_BYTES,
            max_inflight_messages: 256,
            max_uncommitted_entries: UNCOMMITTED_ENTRIES,
            max_uncommitted_bytes: UNCOMMITTED_BYTES,
            max_apply_bytes: 8 << 20,
            entry_memory_bytes: 32 << 20,
            truncation: Truncation::default(),
            skip_commit_broadcast: false,
            hibernate_ticks: 0,
            elections: Elections::ByTimeout,
            replication: Replication::Direct,
        }
    }

    /// Returns the stickiness period: the time for which a voter that received a message from a
    /// leader grants no vote and does not campaign.
    ///
    /// It is two ticks shorter than the election timeout. Of `k` counted ticks, the first may come
    /// at once, and the second may directly follow a late first one (see `Worker`'s `TickGate`). So
    /// `k` ticks prove that `k - 2` tick lengths have passed.
    pub fn stickiness_nanos(&self) -> BootNanos {
        self.tick_nanos.saturating_mul(u64::from(self.election_ticks.saturating_sub(2)))
    }

    pub(crate) fn election_nanos(&self) -> BootNanos {
        self.tick_nanos.saturating_mul(u64::from(self.election_ticks))
    }

    pub fn validate(&self) -> Result<(), String> {
        let hold = self.stickiness_nanos();
        if self.tick_nanos == 0 || self.heartbeat_ticks == 0 {
            return Err("a tick and the heartbeat interval are at least 1".into());
        }
        if self.store == u64::MAX {
            return Err("the largest store number is taken".into());
        }
        if self.election_ticks < 4 || self.heartbeat_ticks + 2 >= self.election_ticks {
            return Err(format!(
                "{} election ticks are too few for a heartbeat every {}",
                self.election_ticks, self.heartbeat_ticks
            ));
        }
        if !lease_is_covered(self.lease_nanos, hold) {
            return Err(format!(
                "a lease of {} ns is not covered by a stickiness period of {hold} ns with clocks {DRIFT_BOUND_PPM} ppm off",
                self.lease_nanos
            ));
        }
        if self.max_uncommitted_entries == 0 {
            return Err("the proposal window is at least 1".into());
        }
        if self.max_inflight_messages == 0 || self.max_uncommitted_bytes < self.max_message_bytes {
            return Err("a message must be allowed in flight and within the uncommitted bytes".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_outlives_the_stickiness_is_refused() {
        let mut config = Config::new(0, 1);
        assert_eq!(config.validate(), Ok(()));
        config.lease_nanos = config.stickiness_nanos();
        assert!(config.validate().is_err());
        config.lease_nanos = config.stickiness_nanos() / 1_000_000 * (1_000_000 - 2 * DRIFT_BOUND_PPM);
        assert_eq!(config.validate(), Ok(()));
        config.election_ticks -= 1;
        assert!(config.validate().is_err());
    }
}
