//! A directed fault of seeds with a coordinator: the candidate that it would choose first reaches
//! no other store, but keeps its session. The next candidate must then have its turn.
//!
//! The fault begins when all other faults have ended, and peers have no timeout of their own to
//! fall back on. A region that could elect a leader must do so in time.

use std::collections::BTreeMap;

use types::{RegionDescriptor, RegionId, StoreId};

use crate::clock::{MILLISECOND, SECOND};
use crate::coordinator::Published;
use crate::run::newest;
use crate::world::World;

/// Percentage of the seeds without fallback that have this fault.
const SILENT_PERCENT: u64 = 60;
/// Time for which the candidate is silent.
const SILENT: u64 = 9 * SECOND;
/// Maximum time of an election, in which every voter has had its turn.
const ELECTION: u64 = 6 * SECOND;
const LOOK: u64 = 50 * MILLISECOND;

/// The name in the tally.
pub const FIRST_SILENT: &str = "first candidate silent";

impl World {
    /// Isolates a store, if the seed's peers depend on the coordinator, and waits for elections.
    pub(crate) fn elect_without_a_store(&mut self) {
        let depends = self.ensemble.as_ref().is_some_and(|ensemble| ensemble.is_depended_on());
        if !depends || !self.rng.chance(SILENT_PERCENT) {
            return;
        }
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let silent = self.victim(&stores);
        self.tally.fault(FIRST_SILENT);
        self.say(&format!("fault: {FIRST_SILENT}: {silent}"));
        let partitions = [self.network.mute(silent, &stores), self.network.deafen(silent, &stores)];
        let end = self.now + SILENT;
        let mut since = BTreeMap::new();
        while !self.is_over() && self.now < end {
            self.run_until(self.now + LOOK);
            self.look_at_elections(silent, &mut since);
        }
        partitions.into_iter().for_each(|partition| self.network.heal(partition));
    }

    fn look_at_elections(&mut self, silent: StoreId, since: &mut BTreeMap<RegionId, u64>) {
        let Some(published) = self.ensemble.as_ref().map(|ensemble| ensemble.published()) else { return };
        let electable = newest(self).into_values().filter(|region| can_elect(region, &published, silent));
        let electable: Vec<RegionId> = electable.map(|region| region.id).collect();
        since.retain(|region, _| electable.contains(region));
        for region in electable {
            let began = *since.entry(region).or_insert(self.now);
            if self.now - began > ELECTION {
                let what = format!("region {region} does without store {silent}, but elects no leader");
                self.violate("liveness", what);
            }
        }
    }
}

/// Returns true if the peers that seek a leader could elect one of them without the silent store: a
/// peer may campaign, and the logs of a majority of the voters are not longer than its log.
fn can_elect(region: &RegionDescriptor, published: &Published, silent: StoreId) -> bool {
    let voters: Vec<StoreId> = region.voters().collect();
    let others = voters.iter().filter(|&&store| store != silent);
    let seeking: Vec<_> = others.filter_map(|store| published.get(store)?.get(&region.id)).collect();
    let wins = |last| 2 * seeking.iter().filter(|position| position.last <= last).count() > voters.len();
    !region.is_joint() && seeking.iter().any(|position| position.may_stand && wins(position.last))
}
