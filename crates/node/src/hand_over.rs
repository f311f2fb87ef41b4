//! The choice of the stores that take over the regions of a store that must not lead.

use std::collections::BTreeMap;

use replica::RegionStatus;
use types::{BootNanos, PeerRole, RegionDescriptor, RegionId, StoreId};

/// Maximum number of entries that an up-to-date voter may lack. It receives them before it takes
/// over.
const LAG_MAX: u64 = 1024;

/// A region that this store leads, and the stores that could take over its leadership.
#[derive(Clone, Debug)]
pub struct Led {
    pub region: RegionId,
    pub(crate) heirs: Vec<Heir>,
    /// True if the other voters on stores that accept leadership can elect a leader without this
    /// store, and one of them can be that leader.
    pub(crate) can_elect: bool,
}

/// Another voter, on a store that accepts leadership.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heir {
    pub store: StoreId,
    pub lag: u64,
    pub is_up_to_date: bool,
}

impl Led {
    /// Creates the view of a region from its leader's status. `takes_leads` returns true for a
    /// store that is up and may become leader. `is_quarantined` returns true for a store whose peer
    /// of this region is quarantined.
    pub fn of(
        status: &RegionStatus,
        this: StoreId,
        takes_leads: impl Fn(StoreId) -> bool,
        is_quarantined: impl Fn(StoreId) -> bool,
    ) -> Led {
        let mut led = Led::with(&status.descriptor, this, takes_leads, is_quarantined, |store| {
            let progress = status.peers.get(&store);
            let lag = progress.map_or(u64::MAX, |progress| status.commit.saturating_sub(progress.matched));
            let is_able = progress.is_some_and(|progress| progress.is_active && !progress.needs_snapshot);
            Heir { store, lag, is_up_to_date: is_able && lag <= LAG_MAX }
        });
        // A quarantined voter takes over only if no sound voter is left. It can serve as little as
        // this quarantined leader, but its device answers.
        led.can_elect &= led.has_heirs() || status.is_quarantined;
        led
    }

    /// Creates the view of a region whose leader does not know the voters' progress yet.
    pub fn unseen(
        descriptor: &RegionDescriptor,
        this: StoreId,
        takes_leads: impl Fn(StoreId) -> bool,
        is_quarantined: impl Fn(StoreId) -> bool,
    ) -> Led {
        let unknown = |store| Heir { store, lag: u64::MAX, is_up_to_date: false };
        let mut led = Led::with(descriptor, this, takes_leads, is_quarantined, unknown);
        led.can_elect &= led.has_heirs();
        led
    }

    fn with(
        descriptor: &RegionDescriptor,
        this: StoreId,
        takes_leads: impl Fn(StoreId) -> bool,
        is_quarantined: impl Fn(StoreId) -> bool,
        heir: impl Fn(StoreId) -> Heir,
    ) -> Led {
        let takes = |store: StoreId| store != this && takes_leads(store);
        // A quarantined peer votes, but does not accept an offered leadership.
        let inherits = |store: &StoreId| takes(*store) && !is_quarantined(*store);
        Led {
            region: descriptor.id,
            heirs: descriptor.voters().filter(inherits).map(heir).collect(),
            can_elect: can_elect(descriptor, takes),
        }
    }

    /// Returns true if another voter that is not quarantined is on a store that accepts leadership.
    pub fn has_heirs(&self) -> bool {
        !self.heirs.is_empty()
    }

    /// Returns true if the other voters on stores that accept leadership can elect a leader without
    /// this store, and one of them can be that leader.
    pub fn can_elect(&self) -> bool {
        self.can_elect
    }

    pub(crate) fn has_up_to_date_heir(&self) -> bool {
        self.heirs.iter().any(|heir| heir.is_up_to_date)
    }
}

/// Returns true if the voters on stores for which `counts` holds are a majority. In a joint
/// configuration they must be a majority of both sets of voters.
pub(crate) fn can_elect(descriptor: &RegionDescriptor, counts: impl Fn(StoreId) -> bool) -> bool {
    let is_majority = |other: PeerRole| {
        let of_set =
            descriptor.peers.iter().filter(|peer| peer.role == PeerRole::Voter || peer.role == other);
        let (all, counted) =
            of_set.fold((0, 0), |(all, counted), peer| (all + 1, counted + usize::from(counts(peer.store))));
        2 * counted > all
    };
    is_majority(PeerRole::Incoming) && is_majority(PeerRole::Outgoing)
}

#[derive(Clone, Debug, Default)]
struct Attempts {
    last: Option<BootNanos>,
    by_store: BTreeMap<StoreId, u32>,
}

/// The transfers attempted so far.
#[derive(Clone, Debug, Default)]
pub struct HandOver {
    attempts: BTreeMap<RegionId, Attempts>,
    /// Number of transfers offered to each store so far.
    given: BTreeMap<StoreId, u32>,
}

impl HandOver {
    /// Returns the transfers to start now. Each goes to the voter with the fewest attempts, then
    /// the smallest lag, then the fewest offers to its store. A transfer that did not complete
    /// within `retry_nanos` is offered again.
    pub fn transfers(&mut self, led: &[Led], retry_nanos: u64, now: BootNanos) -> Vec<(RegionId, StoreId)> {
        let mut transfers = Vec::new();
        for led in led {
            let attempts = self.attempts.entry(led.region).or_default();
            if attempts.last.is_some_and(|at| now.saturating_sub(at) < retry_nanos) {
                continue;
            }
            let rank = |heir: &&Heir| {
                let tried = attempts.by_store.get(&heir.store).copied().unwrap_or(0);
                (tried, heir.lag, self.given.get(&heir.store).copied().unwrap_or(0), heir.store)
            };
            let Some(heir) = led.heirs.iter().filter(|heir| heir.is_up_to_date).min_by_key(rank) else {
                continue;
            };
            attempts.last = Some(now);
            *attempts.by_store.entry(heir.store).or_default() += 1;
            *self.given.entry(heir.store).or_default() += 1;
            transfers.push((led.region, heir.store));
        }
        transfers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Peer;

    #[test]
    fn a_leader_can_be_elected_without_this_store_by_a_majority_of_both_sets_of_voters() {
        let mut region = RegionDescriptor::founded(1, None, &[0, 1, 2]);
        let elects = |region: &RegionDescriptor, up: &[StoreId]| {
            Led::unseen(region, 0, |store| up.contains(&store), |_| false).can_elect()
        };
        assert!(elects(&region, &[1, 2]));
        assert!(!elects(&region, &[0, 1]), "its own vote does not count");
        region.peers[2].role = PeerRole::Outgoing;
        region.peers.push(Peer { store: 3, id: 4, role: PeerRole::Incoming });
        assert!(!elects(&region, &[1, 2]) && !elects(&region, &[1, 3]) && elects(&region, &[1, 2, 3]));
        assert!(!elects(&RegionDescriptor::founded(1, None, &[0, 1]), &[1]));
        assert!(!elects(&RegionDescriptor::founded(1, None, &[0]), &[1]));
    }

    #[test]
    fn a_quarantined_voter_votes_and_takes_no_lead_over() {
        let region = RegionDescriptor::founded(1, None, &[0, 1, 2]);
        let led = |held: &[StoreId]| Led::unseen(&region, 0, |_| true, |store| held.contains(&store));
        assert!(led(&[1]).can_elect() && led(&[1]).heirs.len() == 1, "store 1 elects store 2");
        assert!(!led(&[1, 2]).can_elect() && !led(&[1, 2]).has_heirs(), "no other voter can lead");
        let status = |is_quarantined| RegionStatus {
            term: 6,
            leader: Some(0),
            role: replica::Role::Leader,
            commit: 9,
            applied: 8,
            first: 6,
            last: 9,
            peers: BTreeMap::new(),
            truncate_to: 6,
            lease: None,
            descriptor: region.clone(),
            is_quarantined,
        };
        let of = |is_quarantined| Led::of(&status(is_quarantined), 0, |_| true, |store| store > 0);
        assert!(!of(false).can_elect(), "this store alone can serve the region");
        assert!(of(true).can_elect(), "none can, and the others' devices answer");
    }
}
