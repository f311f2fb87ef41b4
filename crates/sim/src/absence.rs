//! A directed fault: a store is down while it loses its peers, and their regions merge more often
//! than a region's descriptor records. When the store starts again, only the meta region can inform
//! it that its peers' regions have merged.
//!
//! A descriptor names the last [`ABSORBED_MAX`] regions that it absorbed. A simulated cluster never
//! has that many regions. So some clusters begin with a history: their regions' lists are nearly
//! full.
//!
//! Absences and histories are drawn separately from the other faults, so that seeds without them
//! run as before.

use placement::{Operator, Reason};
use types::{RegionDescriptor, RegionId, StoreId, ABSORBED_MAX, META_REGION};

use crate::clock::{MILLISECOND, SECOND};
use crate::faults::REGIONS_MAX;
use crate::rng::Rng;
use crate::world::{Asked, Event, Packet, World};

/// Salts and percentages: of the seeds whose regions have a history, and of the seeds with absences
/// among these.
const PAST: u64 = 0x71d2_0c4e_b5a8_3f69;
const PAST_PERCENT: u64 = 30;
const ABSENT_PERCENT: u64 = 60;
/// The first number of the regions that merged away before the simulation begins.
const PAST_REGIONS: RegionId = 1 << 32;
/// Maximum number of bytes by which such lists enlarge an entry of the meta region.
pub(crate) const PAST_ENTRY_BYTES: u64 = 4096;
/// Minimum of the mean pause between other faults in seeds with absences.
const UNDISTURBED: u64 = 4 * SECOND;

/// The name in the tally.
pub const ABSENT: &str = "store absent while its regions merged";

/// The number of regions with which an absence begins, so that two can merge into a third.
const REGIONS_AT_FIRST: usize = 4;
/// The time between two requests.
const ASK: u64 = 150 * MILLISECOND;

#[derive(Debug)]
pub(crate) struct Absence {
    pub store: StoreId,
    until: u64,
}

/// Returns true if the regions of the seed have a history.
pub(crate) fn has_past(seed: u64) -> bool {
    Rng::new(seed ^ PAST).chance(PAST_PERCENT)
}

/// Gives the regions of some seeds a history: their descriptors have room for one or two merges
/// before they drop an absorbed region.
pub(crate) fn give_past(seed: u64, layout: &mut [RegionDescriptor]) {
    let mut rng = Rng::new(seed ^ PAST);
    if rng.chance(PAST_PERCENT) {
        let count = ABSORBED_MAX as u64 - rng.below(3);
        for region in layout.iter_mut().filter(|region| region.id != META_REGION) {
            region.absorbed = (PAST_REGIONS..PAST_REGIONS + count).collect();
        }
    }
}

impl World {
    /// Schedules the first absence if the seed has absences.
    pub(crate) fn draw_absences(&mut self) {
        let mut rng = Rng::new(self.seed ^ PAST);
        if !rng.chance(PAST_PERCENT) {
            return;
        }
        let mut rng = Rng::new(rng.draw());
        if rng.chance(ABSENT_PERCENT) {
            self.plan.pause_ns = self.plan.pause_ns.max(UNDISTURBED);
            self.schedule(2 * SECOND, Event::Absence);
        }
    }

    /// Returns true if the store must not start yet.
    pub(crate) fn is_absent(&self, store: StoreId) -> bool {
        !self.plan.is_over && self.absence.as_ref().is_some_and(|absence| absence.store == store)
    }

    /// Begins, continues or ends an absence.
    pub(crate) fn look_at_absence(&mut self) {
        if self.plan.is_over {
            self.absence = None;
            return;
        }
        match self.absence.as_ref().map(|absence| (absence.store, absence.until)) {
            None => self.begin_absence(),
            Some((store, until)) if until <= self.now => {
                self.absence = None;
                self.start(store);
                let pause = self.rng.between(4000, 9000) * MILLISECOND;
                return self.schedule(pause, Event::Absence);
            }
            Some((store, _)) => self.merge_without(store),
        }
        self.schedule(ASK, Event::Absence);
    }

    fn begin_absence(&mut self) {
        let staying = self.staying();
        let Some(regions) = self.planned_regions() else { return };
        let Some(store) = self.rng.pick(&staying).filter(|_| staying.len() >= 3) else { return };
        if regions.len() < REGIONS_AT_FIRST {
            let ids: Vec<RegionId> = regions.iter().map(|region| region.id).collect();
            let Some(region) = self.rng.pick(&ids) else { return };
            return self.ask_operator(Operator::Split { region, reason: Reason::Requested });
        }
        let has_peers = regions.iter().filter(|region| region.has_peer_on(store)).count() >= 2;
        if !has_peers || self.stores[&store].process.is_none() {
            return;
        }
        let length = self.rng.between(7000, 13_000) * MILLISECOND;
        self.tally.fault(ABSENT);
        self.say(&format!("fault: {ABSENT}: {store}, {} ms", length / MILLISECOND));
        self.crash(store, false);
        self.absence = Some(Absence { store, until: self.now + length });
    }

    /// Requests the removal of a peer on the absent store, the merge of two regions that have no
    /// peer there, or a split if no regions can merge.
    fn merge_without(&mut self, store: StoreId) {
        let Some(regions) = self.planned_regions() else { return };
        let reason = || Reason::Requested;
        let (there, free): (Vec<_>, Vec<_>) =
            regions.into_iter().partition(|region| region.has_peer_on(store));
        let there: Vec<RegionId> = there.iter().map(|region| region.id).collect();
        if let Some(region) = self.rng.pick(&there) {
            self.ask_operator(Operator::RemovePeer { region, from: store, reason: reason() });
        }
        let mut pairs = Vec::new();
        for one in &free {
            let fits = free.iter().filter(|other| other.joined(one).is_some());
            pairs.extend(fits.map(|other| (one.id, other.id)));
        }
        let ids: Vec<RegionId> = free.iter().map(|region| region.id).collect();
        match (self.rng.pick(&pairs), self.rng.pick(&ids)) {
            (Some((region, into)), _) => {
                self.ask_operator(Operator::Merge { region, into, reason: reason() })
            }
            (None, Some(region)) if there.is_empty() && free.len() < REGIONS_MAX / 2 => {
                self.ask_operator(Operator::Split { region, reason: reason() });
            }
            _ => {}
        }
    }

    /// Returns the regions with keys, as known to the meta region's leader.
    fn planned_regions(&self) -> Option<Vec<RegionDescriptor>> {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let leader = self.meta_leader(&stores)?;
        let process = self.stores[&leader].process.as_ref()?;
        let regions = process.meta.regions.values().filter(|region| region.id != META_REGION);
        Some(regions.cloned().collect())
    }

    fn ask_operator(&mut self, operator: Operator) {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        if let Some(leader) = self.meta_leader(&stores) {
            self.send(leader, leader, Packet::Asked(Asked::Operator(operator)));
        }
    }
}
