//! Damage in the stores' logs.
//!
//! In a sixth of the seeds, sections of the logs are damaged occasionally: at a start, and while a
//! store runs. The region's other voters must still be able to elect a leader without the store.
//! Otherwise the region would wait for an operator. As long as damaged peers take no part in
//! consensus, no entry is lost.

use node::unsynced::Damaged;
use replica::Input;
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, StoreId};

use crate::clock::MILLISECOND;
use crate::disk::Wound;
use crate::rng::Rng;
use crate::run::newest;
use crate::store::Store;
use crate::world::{Event, Work, World};

/// The probabilities of damage to logs, and a separate source of randomness. The world's generator
/// is not used, so that seeds without damage run as before.
#[derive(Clone, Debug)]
pub struct Damaging {
    rng: Rng,
    /// Probability in percent that a start finds damage in a region's log.
    at_start: u64,
    /// Probability in percent that a fault is accompanied by damage to a running store's log.
    running: u64,
}

impl Damaging {
    pub fn of(seed: u64) -> Damaging {
        let mut rng = Rng::new(seed ^ 0x4441_4d47);
        match rng.chance(17) {
            true => Damaging { at_start: rng.between(2, 15), running: rng.between(0, 40), rng },
            false => Damaging { at_start: 0, running: 0, rng },
        }
    }

    pub fn is_on(&self) -> bool {
        self.at_start > 0
    }
}

impl World {
    /// Damages some of the logs that a start is about to read.
    pub(super) fn damage_at_start(&mut self, id: StoreId) {
        if !self.damaging.is_on() || self.plan.is_over {
            return;
        }
        for region in self.stores[&id].durable.disk.regions() {
            if self.damaging.rng.below(100) < self.damaging.at_start && self.may_be_damaged(region, id) {
                let kind = self.damaging.rng.below(10);
                self.damage(id, region, kind);
            }
        }
    }

    /// Damages an entry in the log of a running store, which detects this when it reads the entry.
    pub(crate) fn damage_running(&mut self, id: StoreId) {
        if self.damaging.rng.below(100) >= self.damaging.running || self.stores[&id].process.is_none() {
            return;
        }
        let regions = self.stores[&id].durable.disk.regions();
        let Some(region) = self.damaging.rng.pick(&regions) else { return };
        if self.may_be_damaged(region, id) {
            self.damage(id, region, 0);
        }
    }

    /// Returns true if a region waits for an operator, who may restart stores, or for the
    /// replacement of an unclean peer whose log was damaged or whose region is merging. Until then
    /// the region may serve no client: a merge is committed or taken back only after the stores are
    /// heard, and every peer of the source must be able to take part in it.
    pub(crate) fn awaits_repair(&self) -> bool {
        let is_down = |store: &Store| store.process.is_none() && !store.is_lost && !store.is_removed;
        let is_unclean = |region: &RegionDescriptor| {
            let may_serve = !self.damaging.is_on() && region.merging.is_none();
            !may_serve && region.voters().any(|id| self.is_unclean(region, id))
        };
        let awaits_others = || newest(self).values().any(is_unclean);
        self.stores.values().any(is_down) || self.may_be_quarantined() || awaits_others()
    }

    /// Returns true if the region keeps a majority of voters without the store's peer.
    fn may_be_damaged(&self, region: RegionId, id: StoreId) -> bool {
        newest(self).get(&region).is_some_and(|descriptor| self.has_majority_besides(descriptor, id))
    }

    fn damage(&mut self, id: StoreId, region: RegionId, kind: u64) {
        let durable = &self.stores[&id].durable;
        let disk = durable.disk.clone();
        let wound = match kind {
            8 => Wound { promise: true, ..Wound::default() },
            9 if durable.described(region).is_some() => Wound { life: true, ..Wound::default() },
            _ => {
                let entries = disk.with(region, |log| log.entries.keys().copied().collect::<Vec<_>>());
                let Some(index) = self.damaging.rng.pick(&entries) else { return };
                let term = disk.with(region, |log| log.term(index)).unwrap_or(0);
                Wound { entry: Some((index, term)), ..Wound::default() }
            }
        };
        self.tally.fault("section of a log damaged");
        self.say(&format!("store {id}'s log of region {region} is damaged: {wound:?}"));
        disk.wound(region, wound);
    }

    /// Handles damaged entries that a running store found.
    pub(super) fn found_damage(
        &mut self,
        id: StoreId,
        (region, peer): (RegionId, PeerId),
        first: LogIndex,
        executed: bool,
    ) {
        if executed {
            self.tally.damage_healed += 1;
            return;
        }
        self.tally.damaged += 1;
        let damaged = Damaged { peer, first, place: "in the run".to_owned() };
        let store = self.store_mut(id);
        store.mark = store.mark.noting(&[(region, damaged)].into());
        let delay = self.damaging.rng.below(300) * MILLISECOND;
        self.schedule_work(id, delay, Work::DamageRecorded { region });
    }

    pub(super) fn damage_recorded(&mut self, id: StoreId, region: RegionId) {
        self.input(id, Input::Damaged { region });
    }

    /// Lets the store crash between the steps of a start that handle damage. Returns true if it
    /// crashed.
    pub(super) fn crashes_in_repair(&mut self, id: StoreId) -> bool {
        let is_crash = !self.plan.is_over && self.damaging.rng.chance(20);
        if is_crash {
            self.say(&format!("store {id} crashes before its log is repaired"));
            let down = self.damaging.rng.between(100, 1500) * MILLISECOND;
            self.schedule(down, Event::Start { store: id });
        }
        is_crash
    }
}
