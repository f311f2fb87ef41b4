//! Entries that a store acknowledged before it started and may have lost since.
//!
//! Under `fsync = everysec` and `no` a store acknowledges entries before it syncs them. A crash of
//! the process loses none of them, because the kernel holds them; a crash of the machine may. A
//! [`Mark`] in the store's directory distinguishes the two. It names the boot of the machine during
//! which the store acknowledges without a sync:
//!
//! ```text
//!  start     mark of another boot ─▶ the peers are unclean
//!            ─▶ mark: this boot, these peers (synced) ─▶ the store acknowledges
//!  stop      the log is synced ─▶ mark: no boot
//! ```
//!
//! An unclean peer takes no part in consensus (`replica::PeerSeed::unclean`). The region's other
//! peers remove its number, and the store gets a new peer, which a snapshot fills. The lost entries
//! were acknowledged under the old number, which no majority counts any more.
//!
//! Damage to the log makes peers unclean in any mode, and is recorded in the same mark (see
//! [`crate::damage`]).
//!
//! The meta region's entries, terms, votes, beginnings of logs and changes of regions are synced in
//! every mode. So a crash never makes the peers of the meta region unclean, and a peer that is
//! unclean after a crash still knows whether it is its region's only voter. Damage may affect any
//! entry, so a damaged peer cannot know that.

use std::collections::BTreeMap;

use replica::{PeerSeed, Unclean};
use serde::{Deserialize, Serialize};
use types::{LogIndex, PeerId, RegionId, StoreId, UnixMillis, META_REGION};

use crate::failpoints::Failpoint;

/// Maximum number of accepted losses that a mark records; the oldest are dropped.
const ACCEPTED_MAX: usize = 1024;

/// The record in a store's directory of acknowledgements without a sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The boot of the machine during which the store acknowledges without a sync. `None` if
    /// everything that the store acknowledged is synced.
    pub boot: Option<String>,
    /// The peers that may have lost entries that they acknowledged. A later peer of the same region
    /// has another number and is not unclean.
    pub unclean: BTreeMap<RegionId, PeerId>,
    /// The losses of the peers that are unclean because of damage to the log. The other peers are
    /// unclean because of a machine crash.
    #[serde(default)]
    pub damaged: BTreeMap<RegionId, Damaged>,
    /// The losses that an operator has accepted, oldest first.
    pub accepted: Vec<Accepted>,
}

/// The loss of a peer whose log is damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damaged {
    pub peer: PeerId,
    /// The first index that cannot be read or may be missing.
    pub first: LogIndex,
    /// The location of the damage in the log, for human readers.
    pub place: String,
}

/// A peer that takes part again although it may have lost entries that it acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub region: RegionId,
    pub peer: PeerId,
    /// The last index of its log at the store's start.
    pub last: LogIndex,
    pub at_ms: UnixMillis,
}

impl Mark {
    /// Returns true if the machine has crashed since the store acknowledged without a sync. `boot`
    /// is the present boot.
    pub fn has_crashed(&self, boot: &str) -> bool {
        self.boot.as_deref().is_some_and(|marked| marked != boot)
    }

    /// Marks in each seed of `store` whether its peer is unclean.
    pub fn judge(&self, boot: &str, store: StoreId, seeds: &mut [PeerSeed]) {
        let has_crashed = self.has_crashed(boot);
        for seed in seeds {
            let region = seed.descriptor.id;
            let number = seed.descriptor.peer_on(store).map(|peer| peer.id);
            let is_listed = number.is_some() && number == self.unclean.get(&region).copied();
            let is_damaged = number.is_some() && number == self.damaged.get(&region).map(|of| of.peer);
            seed.unclean = match () {
                () if Failpoint::DamageForgotten.is_on() && is_damaged => Unclean::No,
                () if is_damaged => Unclean::Damage,
                () if (is_listed || has_crashed) && region != META_REGION => Unclean::Crash,
                () => Unclean::No,
            };
        }
    }

    /// Returns the mark that must be durable before the log of the damaged peers is repaired.
    pub fn noting(&self, damaged: &BTreeMap<RegionId, Damaged>) -> Mark {
        let mut next = self.clone();
        next.unclean.extend(damaged.iter().map(|(region, of)| (*region, of.peer)));
        next.damaged.extend(damaged.iter().map(|(region, of)| (*region, of.clone())));
        next
    }

    /// Returns the mark that must be durable before the store acknowledges anything. `boot` is the
    /// present boot, or `None` if the store syncs before it acknowledges. `unclean` are the peers
    /// that take no part in consensus, and `tombstones` the largest numbers of removed peers.
    ///
    /// A damaged peer that could not be opened has a tombstone. It stays in the mark, because the
    /// region's other peers do not know yet that it takes no part.
    pub fn started(
        &self,
        boot: Option<&str>,
        mut unclean: BTreeMap<RegionId, PeerId>,
        tombstones: &BTreeMap<RegionId, PeerId>,
    ) -> Mark {
        let is_gone = |region: &RegionId, peer: PeerId| tombstones.get(region) == Some(&peer);
        let gone = self.damaged.iter().filter(|(region, of)| is_gone(region, of.peer));
        for (region, of) in gone {
            unclean.entry(*region).or_insert(of.peer);
        }
        let mut damaged = self.damaged.clone();
        damaged.retain(|region, of| unclean.get(region) == Some(&of.peer));
        Mark { boot: boot.map(str::to_owned), unclean, damaged, accepted: self.accepted.clone() }
    }

    /// Returns the peers that others should replace: those that take no part in consensus, and
    /// damaged peers that could not be opened. The others ignore a number that the region no longer
    /// has.
    pub fn reported(&self, mut unclean: BTreeMap<RegionId, PeerId>) -> BTreeMap<RegionId, PeerId> {
        for (region, damaged) in &self.damaged {
            unclean.entry(*region).or_insert(damaged.peer);
        }
        unclean
    }

    /// Returns the mark of a store that has synced its log and no longer acknowledges anything.
    pub fn stopped(&self) -> Mark {
        Mark { boot: None, ..self.clone() }
    }

    /// Removes a peer from the unclean peers, and records that its loss was accepted.
    pub fn accept(&mut self, accepted: Accepted) {
        self.unclean.remove(&accepted.region);
        self.damaged.remove(&accepted.region);
        self.record(accepted);
    }

    /// Records that a loss was accepted.
    pub fn record(&mut self, accepted: Accepted) {
        self.accepted.push(accepted);
        let surplus = self.accepted.len().saturating_sub(ACCEPTED_MAX);
        self.accepted.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use types::RegionDescriptor;

    use super::*;

    const NONE: [RegionId; 0] = [];

    fn seeds() -> Vec<PeerSeed> {
        let seed = |region| PeerSeed {
            descriptor: RegionDescriptor::founded(region, None, &[4, 5, 6]),
            applied: None,
            parent: None,
            unclean: Unclean::No,
        };
        [META_REGION, 1, 2].map(seed).to_vec()
    }

    fn unclean(mark: &Mark, boot: &str, seeds: &mut [PeerSeed]) -> Vec<RegionId> {
        mark.judge(boot, 5, seeds);
        seeds.iter().filter(|seed| seed.unclean != Unclean::No).map(|seed| seed.descriptor.id).collect()
    }

    #[test]
    fn another_boot_makes_all_peers_unclean_but_those_of_the_meta_region() {
        let mut seeds = seeds();
        let running = Mark::default().started(Some("monday"), BTreeMap::new(), &BTreeMap::new());
        assert_eq!(unclean(&running, "monday", &mut seeds), NONE, "the process crashed");
        assert_eq!(unclean(&running, "tuesday", &mut seeds), [1, 2], "the machine crashed");
        assert_eq!(unclean(&running.stopped(), "tuesday", &mut seeds), NONE, "it stopped by plan");
        let synced = Mark::default().started(None, BTreeMap::new(), &BTreeMap::new());
        assert_eq!(unclean(&synced, "tuesday", &mut seeds), NONE, "it synced before it acknowledged");
    }

    #[test]
    fn an_unclean_peer_stays_so_through_restarts_until_its_number_goes_or_the_loss_is_accepted() {
        let mut seeds = seeds();
        let number = seeds[1].descriptor.peer_on(5).unwrap().id;
        let mut mark = Mark::default().started(
            Some("tuesday"),
            BTreeMap::from([(1, number), (2, number + 1)]),
            &BTreeMap::new(),
        );
        assert_eq!(unclean(&mark, "tuesday", &mut seeds), [1], "region 2 has a peer of another number");
        assert_eq!(unclean(&mark.stopped(), "wednesday", &mut seeds), [1], "also under always");
        mark.accept(Accepted { region: 1, peer: number, last: 9, at_ms: 1 });
        assert_eq!(unclean(&mark, "tuesday", &mut seeds), NONE);
        assert_eq!(
            mark.started(None, BTreeMap::new(), &BTreeMap::new()).accepted.len(),
            1,
            "it is on record"
        );
    }
}
