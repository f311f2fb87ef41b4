//! The loss of a majority of the stores with their disks, and an operator's recovery of the
//! survivors' regions.
//!
//! In a calm cluster every survivor has all entries, and no acknowledged entry may be missing after
//! the recovery. In a cluster with faults, entries that only the lost stores had are lost. Earlier
//! histories are then no longer checked, and the other checks restart ([`World::forget_the_past`]).

use std::collections::{BTreeMap, BTreeSet};

use cluster::quorum_loss::{plan, RecoveryPlan, RecoveryStep, RegionPlan, Situation, Survey};
use replica::Input as RaftInput;
use types::{RegionDescriptor, StoreId};

use crate::client::Client;
use crate::clock::{MILLISECOND, SECOND};
use crate::run::newest;
use crate::store::Fsync;
use crate::world::World;

const LOOK: u64 = 100 * MILLISECOND;
/// True time limit of each part of a recovery.
const PATIENCE: u64 = 40 * SECOND;
/// Maximum number of rounds that an order needs. Each round is for regions that the logs of the
/// previous round split off.
const ROUNDS_MAX: u64 = 8;
const ORDER: u64 = 4711;

impl World {
    /// Crashes stores permanently, so that a region has lost its majority and every region still
    /// has a copy. Returns all lost stores; `None` if there are no such stores.
    pub(crate) fn lose_a_majority(&mut self) -> Option<BTreeSet<StoreId>> {
        // Unclean peers need an order of their own, which no simulated operator gives.
        if self.damaging.is_on() || self.stores.values().any(|store| store.fsync != Fsync::Always) {
            return None;
        }
        let live: Vec<StoreId> = self
            .stores
            .iter()
            .filter(|(_, store)| !store.is_lost && !store.is_removed && store.process.is_some())
            .map(|(&id, _)| id)
            .collect();
        let gone: BTreeSet<StoreId> =
            self.stores.iter().filter(|(_, store)| store.is_lost).map(|(&id, _)| id).collect();
        let regions = newest(self);
        for _ in 0..20 {
            let mut lost = gone.clone();
            lost.extend(live.iter().copied().filter(|_| self.rng.chance(50)));
            let is_left = |store: &StoreId| live.contains(store) && !lost.contains(store);
            let has_copy = |region: &RegionDescriptor| {
                let mut stores = region.peers.iter().map(|peer| peer.store);
                stores.any(|store| is_left(&store) && self.stores[&store].has_rows_of(region.id))
            };
            let lacks_majority = |region: &RegionDescriptor| {
                let voters: Vec<StoreId> = region.voters().collect();
                2 * voters.iter().filter(|store| !lost.contains(store)).count() <= voters.len()
            };
            let is_news = lost.len() > gone.len();
            if is_news && regions.values().all(has_copy) && regions.values().any(lacks_majority) {
                self.tally.fault("majority lost with its disks");
                self.say(&format!("stores {lost:?} are lost for good"));
                for store in lost.difference(&gone).copied().collect::<Vec<_>>() {
                    self.crash(store, true);
                    self.store_mut(store).is_lost = true;
                }
                return Some(lost);
            }
        }
        None
    }

    /// Carries out an order. Returns false if the survivors cannot recover. Their regions then stay
    /// without service.
    pub(crate) fn recover_regions(&mut self, lost: &BTreeSet<StoreId>) -> bool {
        for round in 0..ROUNDS_MAX {
            let Some(planned) = self.plan_recovery(lost) else { return false };
            if planned.regions.is_empty() {
                return true;
            }
            self.say(&format!("an order recovers {:?}", planned.regions));
            for (store, step) in planned.regions.iter().flat_map(RegionPlan::promises) {
                self.take_step(store, &step);
            }
            if !self.await_all(&planned, |plan, surveys| plan.is_promised(surveys)) {
                // A survivor's peer was outdated and has been removed, so the operator tries again.
                if round + 1 == ROUNDS_MAX {
                    self.violate("recovery", "the survivors do not promise themselves".into());
                }
                continue;
            }
            let steps = planned.regions.iter().map(|region| region.recover(ORDER + round, 1));
            if !steps.fold(true, |is_taken, (store, step)| self.insist(store, &step) && is_taken) {
                continue;
            }
            if !self.await_all(&planned, |plan, surveys| plan.is_done(surveys, ORDER + round)) {
                self.violate("recovery", "a keeper does not lead what it recovered".into());
            }
            if self.is_over() {
                return false;
            }
        }
        self.violate("recovery", "there is always one more region to recover".into());
        false
    }

    /// Plans until no region is refused. Returns `None` if a region is still refused at the time
    /// limit, or if the order is refused.
    fn plan_recovery(&mut self, lost: &BTreeSet<StoreId>) -> Option<RecoveryPlan> {
        let deadline = self.now + PATIENCE;
        loop {
            let surveys = self.surveys();
            let known: Vec<RegionDescriptor> = newest(self).into_values().collect();
            let removed = self.stores.iter().filter(|(_, store)| store.is_removed);
            let situation = Situation {
                removed: &removed.map(|(&id, _)| id).collect(),
                lost,
                surveys: &surveys,
                members: &self.stores.keys().copied().collect(),
                known: &known,
                told: &BTreeMap::new(),
            };
            match plan(&situation, None) {
                Ok(planned) if planned.refused.is_empty() => return Some(planned),
                Ok(planned) if self.now >= deadline || self.is_over() => {
                    self.say(&format!("an order is refused: {:?}", planned.refused));
                    return None;
                }
                Ok(_) => {}
                Err(error) => {
                    self.violate("recovery", error.to_string());
                    return None;
                }
            }
            self.run_until(self.now + LOOK);
        }
    }

    fn surveys(&mut self) -> Vec<Survey> {
        let live: Vec<StoreId> =
            self.stores.iter().filter(|(_, store)| store.process.is_some()).map(|(&id, _)| id).collect();
        let mut surveys = Vec::new();
        for store in live {
            let boot = self.boot(store);
            let Some(process) = self.process(store) else { continue };
            let peers = process.shard.recovery_reports(boot);
            let removed =
                process.shard.removed_peers().iter().map(|(&region, &peer)| (region, peer)).collect();
            let (hears, members) = (Vec::new(), Vec::new());
            surveys.push(Survey { store, hears, members_version: 0, members, peers, removed });
        }
        surveys
    }

    /// Repeats a step until the store takes it, as an operator does for a store with a hanging
    /// device. Returns false if it is refused every time.
    fn insist(&mut self, store: StoreId, step: &RecoveryStep) -> bool {
        let deadline = self.now + PATIENCE;
        while !self.take_step(store, step) {
            if self.now >= deadline || self.is_over() {
                return false;
            }
            self.run_until(self.now + LOOK);
        }
        true
    }

    /// Returns false if the store refuses the step.
    fn take_step(&mut self, store: StoreId, step: &RecoveryStep) -> bool {
        let boot = self.boot(store);
        let mut is_taken = false;
        if let Some(process) = self.process(store) {
            match process.shard.recovery(step, boot) {
                Ok(_) => is_taken = true,
                Err(refusal) => self.say(&format!("store {store} refuses {step:?}: {refusal}")),
            }
        }
        // The next turn returns the resulting messages and writes.
        self.input(store, RaftInput::Tick);
        is_taken
    }

    fn await_all(
        &mut self,
        planned: &RecoveryPlan,
        is_there: impl Fn(&RegionPlan, &[Survey]) -> bool,
    ) -> bool {
        let deadline = self.now + PATIENCE;
        loop {
            let surveys = self.surveys();
            if planned.regions.iter().all(|plan| is_there(plan, &surveys)) {
                return true;
            }
            if self.now >= deadline || self.is_over() {
                return false;
            }
            self.run_until(self.now + LOOK);
        }
    }

    /// Returns the first reason why a recovery is not complete. After a recovery all requests are
    /// answered, every region has a leader, and its live peers have applied the same entries.
    pub(crate) fn unrecovered(&self) -> Option<String> {
        if !self.clients.iter().all(Client::is_content) {
            return Some("requests are unanswered".into());
        }
        for (region, descriptor) in newest(self) {
            let live = self.stores.iter().filter(|(id, _)| descriptor.has_peer_on(**id));
            let mut applied = BTreeSet::new();
            let mut is_led = false;
            for (_, store) in live {
                let Some(process) = &store.process else { continue };
                let Some(status) = process.shard.status(region, 0) else { continue };
                is_led |= status.role == replica::Role::Leader;
                applied.insert(status.applied);
            }
            if !is_led {
                return Some(format!("region {region} has no leader"));
            }
            if applied.len() > 1 {
                return Some(format!("the peers of region {region} have applied {applied:?}"));
            }
        }
        None
    }
}
