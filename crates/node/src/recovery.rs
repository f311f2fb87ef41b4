//! Recovery of a store's peers from its log and rows at start.
//!
//! A peer's lifecycle state is synced to the log before anything else of the peer is written. The
//! rows are as old as the last flush. The log has all later entries, and the Raft groups hand them
//! out again.

use std::collections::{BTreeMap, BTreeSet};

use cluster::Mark;
use replica::PeerSeed;
use storage::RegionState;
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, SlotRange, StoreId, Term, FIRST_INDEX};
use wal::PeerLifecycle;

use crate::planted::{self, Bug};

/// A region's own rows: its state, and its descriptor as of that state.
pub type OwnRows = (RegionState, Option<RegionDescriptor>);

/// A store's log and rows before the store runs. Except where stated, writes are durable on return.
pub trait Kept {
    type Error;

    /// Returns the lifecycle state of every region that has or had a peer on this store.
    fn lives(&self) -> Vec<(RegionId, PeerLifecycle)>;

    fn set_lives(&mut self, lives: &[(RegionId, PeerLifecycle)]) -> Result<(), Self::Error>;

    /// Creates the logs of peers as those of a cluster's first regions.
    fn found(&mut self, peers: &[RegionDescriptor]) -> Result<(), Self::Error>;

    /// Returns the regions whose logs have begun, with or without entries. A blank peer's log has
    /// not: it holds a term and a vote alone.
    fn logs(&self) -> Vec<RegionId>;

    /// Deletes the peer's log except for its tombstone.
    fn destroy_log(&mut self, region: RegionId, peer: PeerId) -> Result<(), Self::Error>;

    /// Returns the mark of the region's peer, if there is one.
    fn mark(&self, region: RegionId) -> Result<Option<Mark>, Self::Error>;

    /// Deletes the mark, if there is one.
    fn forget_mark(&mut self, region: RegionId) -> Result<(), Self::Error>;

    /// Returns the regions that have rows.
    fn regions(&self) -> Result<Vec<RegionId>, Self::Error>;

    fn own_rows(&self, region: RegionId) -> Result<Option<OwnRows>, Self::Error>;

    /// Writes a region's own rows. A crash may lose them.
    fn set_own_rows(&mut self, region: &RegionDescriptor, state: &RegionState) -> Result<(), Self::Error>;

    /// Replaces the region's rows by those of the snapshot, which this store has completely, unless
    /// they are that already.
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
}

/// Finishes the lifecycle changes that were in progress when the store stopped, and returns its
/// peers.
pub fn recover<K: Kept>(store: StoreId, kept: &mut K) -> Result<Recovered, K::Error> {
    adopt_orphans(store, kept)?;
    for (region, life) in kept.lives() {
        if let PeerLifecycle::Applying { descriptor, index, term } = life {
            if !planted::is(Bug::SnapshotNotFinished) {
                kept.replace_rows(&descriptor, index, term)?;
            }
            kept.set_lives(&[(region, PeerLifecycle::Exists { descriptor, parent: None })])?;
        }
    }
    let lives = kept.lives();
    let mut described = BTreeMap::new();
    for (region, _) in &lives {
        if let Some((_, Some(descriptor))) = kept.own_rows(*region)? {
            described.insert(*region, descriptor);
        }
    }
    let mut ended = Vec::new();
    let mut recovered = Recovered::default();
    for (region, life) in lives {
        let (made, parent) = match life {
            PeerLifecycle::Exists { descriptor, parent } => (descriptor, parent),
            PeerLifecycle::Applying { descriptor, .. } => (descriptor, None),
            PeerLifecycle::Tombstone { peer } => {
                recovered.tombstones.insert(region, peer);
                continue;
            }
        };
        let newest = described.get(&region).unwrap_or(&made);
        let has_merged = described.values().any(|other| other.supersedes(newest));
        match made.peer_on(store).map(|peer| peer.id) {
            Some(peer) if (has_merged || !newest.has_peer_on(store)) && !planted::is(Bug::EndForgotten) => {
                // The entry that removes the peer is applied, but the removal was not finished.
                ended.push((region, PeerLifecycle::Tombstone { peer }));
                recovered.tombstones.insert(region, peer);
            }
            _ => {
                let seed = seed(kept, made, parent)?;
                let mark = kept.mark(region)?.filter(|_| !planted::is(Bug::QuarantineForgotten));
                let applied = seed.applied.map_or(0, |(index, _)| index);
                // A snapshot that took the rows' place has ended what was before it.
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
        kept.set_lives(&ended)?;
    }
    for (&region, &peer) in &recovered.tombstones {
        bury(region, peer, kept)?;
    }
    // Terms and votes of blank peers stay in the log: their numbers may be those of voters, which
    // must not vote twice in a term.
    Ok(recovered)
}

/// Begins the logs of peers that have rows but no lifecycle record. The rows of a region that a
/// split made may be flushed before the log knows of its peer, and then the parent does not apply
/// the split again. Such a peer has acknowledged no entry. Its term and vote, if it was blank
/// before, stay.
fn adopt_orphans<K: Kept>(store: StoreId, kept: &mut K) -> Result<(), K::Error> {
    let known: BTreeSet<RegionId> = kept.lives().into_iter().map(|(region, _)| region).collect();
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

/// Deletes the rest of a peer whose tombstone is written.
fn bury<K: Kept>(region: RegionId, peer: PeerId, kept: &mut K) -> Result<(), K::Error> {
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

fn seed<K: Kept>(
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
    Ok(PeerSeed { descriptor, applied, parent, is_unclean: false })
}
