//! The requests of an operator's order to recover regions.

use super::*;
use crate::action::{PeerReport, RecoveryRefusal};
use types::{Recovery, Term};

impl<L: LogStore> Worker<L> {
    /// Reports every peer of this store. Wakes hibernating leaders, so that each finds out whether
    /// it still has a quorum.
    pub fn reports(&mut self, now: BootNanos) -> Vec<PeerReport> {
        self.ctx.now = now;
        let is_sleeping_leader = |peer: &Peer<L>| peer.is_asleep() && peer.is_leader();
        let sleeping: Vec<RegionId> = self
            .peers
            .iter()
            .filter(|(_, peer)| is_sleeping_leader(peer))
            .map(|(&region, _)| region)
            .collect();
        for region in sleeping {
            self.with_woken_peer(region, |_, _| {});
        }
        self.peers.values().map(|peer| peer.report(&self.ctx.config)).collect()
    }

    /// Returns the largest number under which each region's peer was removed from this store.
    pub fn removed_peers(&self) -> &BTreeMap<RegionId, PeerId> {
        self.existence.removed()
    }

    /// Makes the region's peer vote for the keeper of a recovery in this term.
    pub fn promise_recovery(
        &mut self,
        region: RegionId,
        term: Term,
        keeper: PeerId,
        now: BootNanos,
    ) -> Result<(), RecoveryRefusal> {
        self.of_recovery(region, now, |peer, ctx| peer.promise_recovery(ctx, term, keeper))
    }

    /// Makes the region continue from the log of its peer here. Every survivor must have voted for
    /// this peer in this term.
    pub fn recover(
        &mut self,
        region: RegionId,
        term: Term,
        recovery: &Recovery,
        now: BootNanos,
    ) -> Result<(), RecoveryRefusal> {
        self.of_recovery(region, now, |peer, ctx| peer.recover(ctx, term, recovery))
    }

    fn of_recovery(
        &mut self,
        region: RegionId,
        now: BootNanos,
        call: impl FnOnce(&mut Peer<L>, &mut Context) -> Result<(), RecoveryRefusal>,
    ) -> Result<(), RecoveryRefusal> {
        self.ctx.now = now;
        let mut outcome = Err(RecoveryRefusal::NoPeer);
        self.with_woken_peer(region, |peer, ctx| outcome = call(peer, ctx));
        outcome
    }
}
