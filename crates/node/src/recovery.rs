//! Recovery of a store's peers from its log and rows at start.
//!
//! A peer's lifecycle state is synced to the log before any other data of the peer is written. The
//! rows are as old as the last flush. The log has all later entries, and the Raft groups hand them
//! out again.

use std::collections::{BTreeMap, BTreeSet};

use cluster::Mark;
use replica::{HardState, PeerSeed, Unclean};
use storage::RegionState;
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId, Term, FIRST_INDEX};
use wal::{Loss, PeerLifecycle, Record};

use crate::damage::{self, Damages, Verdict, EVERY_PEER};
use crate::failpoints::Failpoint;
use crate::unsynced::Damaged;

/// A region's own rows: its state, and its descriptor as of that state.
pub type OwnRows = (RegionState, Option<RegionDescriptor>);

/// The log and rows of a store that is not running yet. Unless stated otherwise, writes are durable
/// on return.
pub trait StoredState {
    type Error;

    /// Returns the lifecycle state of every region that has or had a peer on this store.
    fn lifecycles(&self) -> Vec<(RegionId, PeerLifecycle)>;

    fn set_lifecycles(&mut self, lifecycles: &[(RegionId, PeerLifecycle)]) -> Result<(), Self::Error>;

    /// Creates the logs of peers of a new cluster's first regions.
    fn found(&mut self, peers: &[RegionDescriptor]) -> Result<(), Self::Error>;

    /// Returns the regions whose logs have begun, with or without entries. A blank peer's log has
    /// not begun: it holds only a term and a vote.
    fn logs(&self) -> Vec<RegionId>;

    /// Deletes the peer's log except for its tombstone.
    fn destroy_log(&mut self, region: RegionId, peer: PeerId) -> Result<(), Self::Error>;

    /// Returns the mark of the region's peer, if there is one.
    fn mark(&self, region: RegionId) -> Result<Option<Mark>, Self::Error>;

    /// Returns the losses caused by damaged sections of the log.
    fn losses(&self) -> BTreeMap<RegionId, Loss>;

    /// Returns the last index of the region's log, and its hard state.
    fn log_end(&self, region: RegionId) -> (LogIndex, Option<HardState>);

    /// Deletes the mark, if there is one.
    fn forget_mark(&mut self, region: RegionId) -> Result<(), Self::Error>;

    /// Returns the regions that have rows.
    fn regions(&self) -> Result<Vec<RegionId>, Self::Error>;

    fn own_rows(&self, region: RegionId) -> Result<Option<OwnRows>, Self::Error>;

    /// Writes a region's own rows. A crash may lose them.
    fn set_own_rows(&mut self, region: &RegionDescriptor, state: &RegionState) -> Result<(), Self::Error>;

    /// Replaces the region's rows with those of the snapshot, which this store has received
    /// completely. Does nothing if they are already the snapshot's rows.
    fn replace_rows(
        &mut self,
        region: &RegionDescriptor,
        index: LogIndex,
        term: Term,
    ) -> Result<(), Self::Error>;

    /// Deletes the region's own rows and those in the slots, except rows of other regions on this
    /// store.
    fn delete_rows(&mut self, region: RegionId, slots: &[SlotRange]) -> Result<(), Self::Error>;
}

/// The peers of a store.
#[derive(Debug, Default)]
pub struct Recovered {
    pub seeds: Vec<PeerSeed>,
    /// The largest peer number that each region had on this store before its peer was removed.
    pub tombstones: BTreeMap<RegionId, PeerId>,
    /// Peers that are quarantined or that skip entries.
    pub marks: BTreeMap<RegionId, Mark>,
    pub damages: Damages,
}

/// Finishes the lifecycle changes that were in progress when the store stopped, and returns its
/// peers. `known` are peers that were unclean by damage before this start. `is_alone` is true if
/// the cluster has no other store.
///
/// The damages are returned, not written. [`crate::damage`] describes the writes that the caller
/// must make, and their order.
pub fn recover<K: StoredState>(
    store: StoreId,
    kept: &mut K,
    known: &BTreeMap<RegionId, Damaged>,
    is_alone: bool,
) -> Result<Recovered, K::Error> {
    let losses = kept.losses();
    adopt_orphans(store, kept, &losses)?;
    for (region, life) in kept.lifecycles() {
        let is_known = losses.get(&region).is_none_or(|loss| !loss.life);
        if let PeerLifecycle::Applying { descriptor, index, term } = life {
            if !is_known {
                continue;
            }
            if !Failpoint::SnapshotNotFinished.is_on() {
                kept.replace_rows(&descriptor, index, term)?;
            }
            kept.set_lifecycles(&[(region, PeerLifecycle::Exists { descriptor, parent: None })])?;
        }
    }
    let mut recovered = Recovered::default();
    let lifecycles = readable_lifecycles(store, kept, &losses, &mut recovered)?;
    let mut described = BTreeMap::new();
    for &region in lifecycles.keys() {
        if let Some((_, Some(descriptor))) = kept.own_rows(region)? {
            described.insert(region, descriptor);
        }
    }
    let mut ended = Vec::new();
    for (region, life) in lifecycles {
        let (made, parent) = match life {
            PeerLifecycle::Exists { descriptor, parent } => (descriptor, parent),
            PeerLifecycle::Applying { descriptor, .. } => (descriptor, None),
            PeerLifecycle::Tombstone { peer } => {
                recovered.tombstones.insert(region, peer);
                continue;
            }
        };
        let has_ended = |peer| described.values().any(|other| other.end_of(&made, peer).is_some());
        match made.peer_on(store).map(|peer| peer.id) {
            Some(peer) if has_ended(peer) && !Failpoint::EndForgotten.is_on() => {
                // The entry that removes the peer is applied, but the removal was not finished.
                ended.push((region, PeerLifecycle::Tombstone { peer }));
                recovered.tombstones.insert(region, peer);
            }
            _ => {
                let seed = seed(kept, made, parent)?;
                let mark = kept.mark(region)?.filter(|_| !Failpoint::QuarantineForgotten.is_on());
                let applied = seed.applied.map_or(0, |(index, _)| index);
                // A snapshot that replaced the rows has ended an earlier quarantine.
                let mark =
                    mark.map(|mark| Mark { held: mark.held.filter(|held| held.index > applied), ..mark });
                recovered.marks.extend(mark.filter(|mark| !mark.is_blank()).map(|mark| (region, mark)));
                recovered.seeds.push(seed);
            }
        }
    }
    if !ended.is_empty() {
        // All tombstones are written together, because the rows of a removed region may be the only
        // evidence that other regions merged into it.
        kept.set_lifecycles(&ended)?;
    }
    for (region, _) in recovered.tombstones.iter().filter(|(_, peer)| **peer == EVERY_PEER) {
        let place = || "found at an earlier start".to_owned();
        recovered.damages.barred.entry(*region).or_insert_with(place);
    }
    for (&region, &peer) in recovered.tombstones.iter().filter(|(_, peer)| **peer != EVERY_PEER) {
        bury(region, peer, kept)?;
    }
    judge_losses(store, kept, &losses, (known, is_alone), &mut recovered);
    // Terms and votes of blank peers stay in the log: their numbers may belong to voters, which
    // must not vote twice in a term.
    Ok(recovered)
}

/// Returns the lifecycles of the store's peers. If the log's record is damaged, the descriptor in
/// the rows describes the peer. Without such rows the peer's number is unknown. The number of a
/// blank peer whose vote is damaged is unknown, too. A region with an unknown number is barred.
fn readable_lifecycles<K: StoredState>(
    store: StoreId,
    kept: &K,
    losses: &BTreeMap<RegionId, Loss>,
    recovered: &mut Recovered,
) -> Result<BTreeMap<RegionId, PeerLifecycle>, K::Error> {
    let mut lifecycles: BTreeMap<RegionId, PeerLifecycle> = kept.lifecycles().into_iter().collect();
    let begun = kept.logs();
    for (&region, loss) in losses {
        let is_buried = matches!(lifecycles.get(&region), None | Some(PeerLifecycle::Tombstone { .. }));
        let is_blank = is_buried && loss.promise && !begun.contains(&region);
        if !loss.life && !is_blank {
            continue;
        }
        let described = kept.own_rows(region)?.and_then(|(_, descriptor)| descriptor);
        match described.filter(|descriptor| loss.life && descriptor.has_peer_on(store)) {
            Some(descriptor) => {
                let life = damage::life_of_rows(&descriptor);
                recovered.damages.repairs.push((region, vec![Record::Life(life.clone())]));
                lifecycles.insert(region, life);
            }
            None => {
                recovered.damages.barred.insert(region, loss.place.clone());
                recovered.damages.repairs.push((region, damage::buried(EVERY_PEER)));
                lifecycles.insert(region, PeerLifecycle::Tombstone { peer: EVERY_PEER });
            }
        }
    }
    Ok(lifecycles)
}

/// Decides which peers are unclean by damage, and how to make their logs consistent.
fn judge_losses<K: StoredState>(
    store: StoreId,
    kept: &K,
    losses: &BTreeMap<RegionId, Loss>,
    (known, is_alone): (&BTreeMap<RegionId, Damaged>, bool),
    recovered: &mut Recovered,
) {
    let Recovered { seeds, tombstones, damages, .. } = recovered;
    let number = |seed: &PeerSeed| seed.descriptor.peer_on(store).map_or(0, |peer| peer.id);
    // These peers hand out no entries after their rows, and so create no other peers.
    let mut silent: BTreeMap<RegionId, LogIndex> = BTreeMap::new();
    let mut unborn: Vec<RegionId> = Vec::new();
    for seed in seeds.iter() {
        let region = seed.descriptor.id;
        let was_known = known.get(&region).is_some_and(|damaged| damaged.peer == number(seed));
        let Some(applied) = seed.applied else {
            unborn.extend(losses.get(&region).map(|_| region));
            continue;
        };
        let verdict = losses.get(&region).map(|loss| (loss, damage::judge(loss, applied, is_alone)));
        match verdict {
            Some((loss, Verdict::Harmless(records))) => {
                damages.harmless.insert(region, loss.place.clone());
                damages.repairs.push((region, records));
            }
            Some((loss, Verdict::Unclean { first, records })) => {
                let damaged = Damaged { peer: number(seed), first, place: loss.place.clone() };
                damages.unclean.insert(region, damaged);
                damages.repairs.push((region, records));
                silent.insert(region, if is_alone { first - 1 } else { applied.0 });
            }
            None if was_known => {
                let (last, hard_state) = kept.log_end(region);
                if last < applied.0 {
                    damages.repairs.push((region, damage::begin_after_rows(applied, hard_state)));
                }
                silent.insert(region, if is_alone { last.max(applied.0) } else { applied.0 });
            }
            None => {}
        }
    }
    loop {
        let is_lost = |seed: &&PeerSeed| {
            let (region, parent) = (seed.descriptor.id, seed.parent);
            let is_waiting = seed.applied.is_none() && !unborn.contains(&region);
            is_waiting
                && parent.is_some_and(|(parent, at)| {
                    unborn.contains(&parent) || silent.get(&parent).is_some_and(|&through| through < at)
                })
        };
        let Some(lost) = seeds.iter().find(is_lost).map(|seed| seed.descriptor.id) else { break };
        unborn.push(lost);
    }
    for seed in seeds.iter().filter(|seed| unborn.contains(&seed.descriptor.id)) {
        let (region, peer) = (seed.descriptor.id, number(seed));
        let place = losses.get(&region).map_or("the entry of the split", |loss| &loss.place).to_owned();
        damages.unclean.insert(region, Damaged { peer, first: FIRST_INDEX, place });
        damages.repairs.push((region, damage::buried(peer)));
        tombstones.insert(region, peer);
    }
    seeds.retain(|seed| !unborn.contains(&seed.descriptor.id));
    damages.unborn = unborn;
}

/// Begins the logs of peers that have rows but no lifecycle record. The rows of a split-off region
/// may be flushed before the log knows of its peer. In that case the parent does not apply the
/// split again. Such a peer has acknowledged no entry. If it was blank before, its term and vote
/// stay.
fn adopt_orphans<K: StoredState>(
    store: StoreId,
    kept: &mut K,
    losses: &BTreeMap<RegionId, Loss>,
) -> Result<(), K::Error> {
    let mut known: BTreeSet<RegionId> = kept.lifecycles().into_iter().map(|(region, _)| region).collect();
    known.extend(losses.keys());
    let mut orphans = Vec::new();
    for region in kept.regions()?.into_iter().filter(|region| !known.contains(region)) {
        if let Some((state, Some(descriptor))) = kept.own_rows(region)? {
            if descriptor.has_peer_on(store) && state.applied_index == FIRST_INDEX {
                orphans.push(descriptor);
            }
        }
    }
    match orphans.is_empty() {
        true => Ok(()),
        false => kept.found(&orphans),
    }
}

/// Deletes the remaining data of a peer whose tombstone is written.
fn bury<K: StoredState>(region: RegionId, peer: PeerId, kept: &mut K) -> Result<(), K::Error> {
    if let Some((_, descriptor)) = kept.own_rows(region)? {
        let slots: Vec<SlotRange> = descriptor.and_then(|descriptor| descriptor.slots).into_iter().collect();
        kept.delete_rows(region, &slots)?;
    }
    kept.forget_mark(region)?;
    match kept.logs().contains(&region) {
        true => kept.destroy_log(region, peer),
        false => Ok(()),
    }
}

fn seed<K: StoredState>(
    kept: &mut K,
    made: RegionDescriptor,
    parent: Option<(RegionId, LogIndex)>,
) -> Result<PeerSeed, K::Error> {
    let rows = match kept.own_rows(made.id)? {
        None if parent.is_none() => {
            // The region was founded with the cluster, and no flush has happened yet.
            let state = RegionState::default();
            kept.set_own_rows(&made, &state)?;
            Some((state, None))
        }
        rows => rows,
    };
    let applied = rows.as_ref().map(|(state, _)| (state.applied_index, state.applied_term));
    let descriptor = rows.and_then(|(_, descriptor)| descriptor).unwrap_or(made);
    Ok(PeerSeed { descriptor, applied, parent, unclean: Unclean::No })
}
