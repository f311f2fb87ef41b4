//! The part of a merge that involves two regions' peers on this store.

use types::PeerEnd;

use super::*;

impl<L: LogStore> Worker<L> {
    /// Completes the sources of committed merges, and then lets their targets continue.
    pub(super) fn see_to_merges(&mut self) {
        for region in self.mergers.clone() {
            while let Some(source) = self.peers.get(&region).and_then(Peer::awaits).cloned() {
                // After a restart the source may not have been created again yet.
                let Some(peer) = self.peers.get_mut(&source.id) else { break };
                let is_done = peer.come_to_its_end(&mut self.ctx, &source);
                match peer.has_ready() {
                    true if self.room == 0 => drop(self.withheld.insert(source.id)),
                    true => drop(self.dirty.insert(source.id)),
                    false => {}
                }
                if !is_done {
                    break;
                }
                if let Some(target) = self.peers.get_mut(&region) {
                    target.take_over(&mut self.ctx.out);
                }
            }
            if self.peers.get(&region).and_then(Peer::awaits).is_none() {
                self.mergers.remove(&region);
            }
        }
    }

    /// Returns the regions whose peers a snapshot would replace because they have merged away, or
    /// `None` if the snapshot cannot be accepted at present. It is not accepted in these cases:
    /// - A peer here has applied a split that no flush covers. After a crash, the snapshot's rows
    ///   would be there before the split is applied again, and entries older than the split would
    ///   be executed over newer rows. A flush has been requested, so this ends soon.
    /// - A region split off from this one waits until this peer applies the split again.
    /// - Another peer here still has some of the snapshot's slots.
    pub(super) fn yielding_to_snapshot(&self, region: RegionId, message: &Message) -> Option<Vec<RegionId>> {
        let descriptor = RegionDescriptor::decode(message.get_snapshot().get_data()).ok()?;
        if self.peers.values().any(Peer::owes_rows) || self.has_waiting_child(region) {
            return None;
        }
        let yielding: Vec<RegionId> = self
            .peers
            .keys()
            .copied()
            .filter(|&other| other != region && self.has_merged_away(other, &descriptor))
            .collect();
        (!self.overlaps_but(&descriptor, &yielding)).then_some(yielding)
    }

    /// Handles a received snapshot for `region` that contains the rows of `yielding`. If the peer
    /// accepts it, it does so in this call, and the yielding peers are removed at once. Otherwise
    /// they could still write to rows that belong to another region.
    pub(super) fn supersede(&mut self, region: RegionId, yielding: Vec<RegionId>) {
        let Some(peer) = self.peers.get_mut(&region).filter(|peer| !peer.is_applying_snapshot()) else {
            return;
        };
        if let Err(fatal) = peer.turn(&mut self.ctx, &mut self.room) {
            self.failure.get_or_insert(fatal);
        }
        self.dirty.insert(region);
        if !peer.is_applying_snapshot() {
            return;
        }
        for source in yielding {
            let destroy = self.remove(source);
            self.superseded.entry(region).or_default().extend(destroy);
        }
    }

    /// Removes peers whose regions have merged away without this store taking part in the merge.
    pub(super) fn remove_merged_peers(&mut self, heard: &RegionDescriptor) {
        if self.peers.get(&heard.id).is_some_and(|peer| !peer.is_blank()) {
            // The peer of the surviving region has their rows or will take them over.
            return;
        }
        let merged: Vec<RegionId> = self
            .peers
            .keys()
            .copied()
            .filter(|&region| region != heard.id && self.has_merged_away(region, heard))
            .collect();
        for region in merged {
            if let Some(descriptor) = self.peers.get(&region).map(|peer| peer.descriptor().clone()) {
                self.bury(descriptor);
            }
        }
    }

    /// Handles the meta region's record that `region` has merged away. If the store has no peer of
    /// an heir, the region's peer here is removed now. Otherwise the peer yields to the snapshot
    /// that the heir's peer accepts.
    pub(super) fn merged_away(&mut self, region: RegionId, heirs: &[RegionDescriptor]) {
        if !self.peers.contains_key(&region) {
            return;
        }
        self.existence.record_merge(region, heirs);
        heirs.iter().for_each(|heir| self.remove_merged_peers(heir));
        let peers = &self.peers;
        self.existence.keep_merges(|region| peers.contains_key(&region));
    }

    /// Returns true if `later` proves that the region has merged away and no other peer here still
    /// has to take over its rows.
    fn has_merged_away(&self, region: RegionId, later: &RegionDescriptor) -> bool {
        let Some(peer) = self.peers.get(&region) else { return false };
        let end = self.existence.end_of(peer.descriptor(), peer.id(), later);
        if end != Some(PeerEnd::Merged) || !peer.is_at_rest() || self.has_waiting_child(region) {
            return false;
        }
        let may_take_over = |heir: &RegionId| {
            let is_before =
                |peer: &Peer<L>| !peer.is_blank() && !peer.descriptor().absorbed.contains(&region);
            let is_here = self.peers.get(heir).is_some_and(is_before) || self.waiting.contains_key(heir);
            *heir != later.id && is_here
        };
        peer.is_blank()
            || Failpoint::HeirNotAwaited.is_on()
            || !peer.possible_heirs().iter().any(may_take_over)
    }

    /// Returns the descriptor of the region on this store that has the slots of `descriptor`, whose
    /// region has merged away.
    pub(super) fn heir_of(&self, descriptor: &RegionDescriptor) -> Option<RegionDescriptor> {
        let peers = self.peers.values().filter(|peer| !peer.is_blank()).map(Peer::descriptor);
        peers.into_iter().find(|heir| heir.has_absorbed(descriptor)).cloned()
    }
}
