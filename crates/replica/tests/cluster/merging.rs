//! Merges: ordered as the cluster's driver orders them, and what must hold of them.

use super::*;

/// What is agreed of a merge, whatever its regions' leaders know.
pub struct Merge {
    into: RegionId,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Going,
    /// The source takes commands again, or never merged.
    Undoing,
    /// All of the source's peers held all of its log. There is no way back.
    Bound(RegionDescriptor),
}

impl Cluster {
    /// One step of the merges that `region` has a part in, or the first of a new one.
    pub fn drive_merges(&mut self, region: RegionId) {
        let known = self.merges.iter().find(|(&source, merge)| source == region || merge.into == region);
        match known.map(|(&source, _)| source) {
            Some(source) => self.drive_merge(source),
            None => self.begin_merge(region),
        }
    }

    fn begin_merge(&mut self, source: RegionId) {
        let descriptor = &self.regions[&source];
        let is_free = |id: &RegionId| !self.merges.iter().any(|(s, merge)| s == id || merge.into == *id);
        let neighbour = self.regions.values().find(|other| {
            is_free(&other.id) && other.joined(descriptor).is_some() && self.is_level(other.id)
        });
        let Some(into) = neighbour.map(|other| other.id) else { return };
        self.merges.insert(source, Merge { into, phase: Phase::Going });
        self.order(source, RegionChange::PrepareMerge { into });
    }

    /// Nothing that was proposed to the region's former leaders can still come to be.
    fn is_level(&self, region: RegionId) -> bool {
        let status =
            self.leader(region).and_then(|id| self.stores[id as usize].worker.as_ref()?.status(region, 0));
        status.is_some_and(|status| status.last == status.applied)
    }

    fn order(&mut self, region: RegionId, change: RegionChange) {
        let Some(id) = self.leader(region) else { return };
        self.change(id, region, change);
        if !self.is_paused(id) {
            self.turn(id);
        }
    }

    fn drive_merge(&mut self, source: RegionId) {
        if self.merged.contains_key(&source) {
            self.merges.remove(&source);
            return;
        }
        let undo = self.rng.chance(10);
        let status =
            self.leader(source).and_then(|id| self.stores[id as usize].worker.as_ref()?.status(source, 0));
        let Some(status) = status else { return };
        let newest = self.regions[&source].clone();
        let Some(merge) = self.merges.get_mut(&source) else { return };
        let into = merge.into;
        let is_known = status.descriptor == newest;
        match (&merge.phase, status.descriptor.merging) {
            (Phase::Going, None) if is_known && undo => merge.phase = Phase::Undoing,
            (Phase::Going, None) => self.order(source, RegionChange::PrepareMerge { into }),
            (Phase::Going, Some(_)) if undo => merge.phase = Phase::Undoing,
            (Phase::Going, Some(_)) => {
                let holds = |peer: &types::Peer| {
                    status.peers.get(&peer.store).is_some_and(|known| known.matched >= status.commit)
                };
                let fits = self.regions[&into].joined(&status.descriptor).is_some();
                if is_known && fits && status.descriptor.peers.iter().all(holds) {
                    merge.phase = Phase::Bound(status.descriptor);
                } else if !fits {
                    merge.phase = Phase::Undoing;
                }
            }
            // A seal may be on its way as long as no entry after it is committed.
            (Phase::Undoing, None) if is_known && status.last == status.applied => {
                self.merges.remove(&source);
            }
            (Phase::Undoing, None) => {}
            (Phase::Undoing, Some(_)) => self.order(source, RegionChange::RollbackMerge),
            (Phase::Bound(sealed), _) => {
                let sealed = sealed.clone();
                let index = sealed.merging.expect("it is sealed").sealed_at;
                match self.misfit(into, &sealed) {
                    Some(fix) => self.order(into, fix),
                    None => {
                        let source = Box::new(sealed);
                        self.order(into, RegionChange::CommitMerge { source, source_index: index });
                    }
                }
            }
        }
    }

    /// What a late order did to the target is undone.
    fn misfit(&self, into: RegionId, source: &RegionDescriptor) -> Option<RegionChange> {
        let target = &self.regions[&into];
        if target.merging.is_some() {
            return Some(RegionChange::RollbackMerge);
        }
        let role_in = |region: &RegionDescriptor, store| region.peer_on(store).map(|peer| peer.role);
        let stores = (0..self.stores.len() as u64).filter(|&s| role_in(target, s) != role_in(source, s));
        let mut fixes = stores.map(|store| match (role_in(target, store), role_in(source, store)) {
            (None, _) => PeerChange::AddLearner(store),
            (Some(PeerRole::Learner), Some(_)) => PeerChange::Promote(store),
            (Some(PeerRole::Learner), None) => PeerChange::Remove(store),
            (Some(_), _) => PeerChange::Demote(store),
        });
        fixes.next().map(|fix| RegionChange::Peers(vec![fix]))
    }

    /// The driver leaves the regions of a merge alone. Orders of before may come late.
    pub fn is_at_liberty(&mut self, region: RegionId, change: &RegionChange) -> bool {
        let is_merging = self.merges.iter().any(|(&source, merge)| source == region || merge.into == region);
        let is_of_peers = matches!(change, RegionChange::Peers(_));
        !is_merging || (is_of_peers && self.rng.chance(20))
    }

    pub fn count_seals(&mut self, before: &RegionDescriptor, after: &RegionDescriptor) {
        self.tally.seals += u64::from(before.merging.is_none() && after.merging.is_some());
        self.tally.rollbacks += u64::from(before.merging.is_some() && after.merging.is_none());
    }

    /// The store's rows of `source` become another region's, whose hash goes on with theirs.
    pub fn absorb(&mut self, id: StoreId, source: &RegionDescriptor, hash: u64) -> u64 {
        let rows = self.store(id).engines.remove(&source.id).expect("the source is here");
        assert_eq!(rows.descriptor, *source, "store {id}: the source is not as it was sealed");
        let sealed_at = source.merging.expect("it is sealed").sealed_at;
        assert!(rows.applied.0 >= sealed_at, "store {id}: the source is not complete");
        let acknowledged = self.acknowledged.get(&source.id).copied().unwrap_or(0);
        assert!(acknowledged < sealed_at, "what was acknowledged is not in what is taken over");
        assert!(
            matches!(self.merges.get(&source.id).map(|merge| &merge.phase), None | Some(Phase::Bound(_))),
            "a merge that was taken back"
        );
        if self.merged.insert(source.id, source.clone()).is_none() {
            self.tally.merges += 1;
            self.regions.remove(&source.id);
        }
        hash.wrapping_mul(0x100_0000_01b3).wrapping_add(rows.hash)
    }

    /// Nobody answers for a region that is none any more.
    pub fn ask_a_merged_region(&mut self) {
        if self.merged.is_empty() {
            return;
        }
        let nth = self.rng.below(self.merged.len() as u64) as usize;
        let region = self.merged.keys().copied().nth(nth).expect("a region");
        let id = self.rng.below(self.stores.len() as u64);
        let store = self.leader(region).unwrap_or(id);
        self.input(store, Input::WantLease { region });
        self.read(store, region);
        self.propose(store, region);
        if !self.is_paused(store) {
            self.turn(store);
        }
    }

    pub fn finish_merges(&mut self) {
        for _ in 0..200 {
            // An order that came late, of a merge that was given up.
            let sealed = self.regions.values().filter(|region| !self.merges.contains_key(&region.id));
            let sealed: Vec<_> =
                sealed.filter_map(|region| Some((region.id, region.merging?.into))).collect();
            for (source, into) in sealed {
                self.merges.insert(source, Merge { into, phase: Phase::Undoing });
            }
            if self.merges.is_empty() {
                return;
            }
            for source in self.merges.keys().copied().collect::<Vec<_>>() {
                self.drive_merge(source);
            }
            self.run_for(300 * MILLISECOND);
            (0..self.stores.len() as u64).for_each(|store| self.flush(store));
        }
        for (source, merge) in &self.merges {
            let of = |region| {
                let workers = self.stores.iter().filter_map(|store| store.worker.as_ref());
                workers.map(|worker| worker.status(region, 0)).collect::<Vec<_>>()
            };
            println!("{source} {:?}: {:#?} into {:#?}", merge.phase, of(*source), of(merge.into));
        }
        panic!("merges without an end");
    }

    /// Of regions that merged away nothing is left.
    pub fn check_merged(&self) {
        for (id, store) in self.stores.iter().enumerate() {
            for region in self.merged.keys() {
                assert!(!store.engines.contains_key(region), "store {id} has rows of {region}");
                assert!(
                    !store.disk.regions.borrow().contains_key(region),
                    "store {id} has a log of {region}"
                );
                let worker = store.worker.as_ref().expect("all are up");
                assert!(worker.regions().all(|peer| peer != *region), "store {id} has a peer of {region}");
            }
        }
    }
}
