//! The requests of an operator's order to recover regions.

use super::*;
use crate::action::{PeerReport, RecoveryRefusal};
use types::{Recovery, Term};

impl<L: LogStore> Worker<L> {
    /// Reports every peer of this store. A leader that sleeps is woken, so that it finds out
    /// whether it still has a quorum.
    pub fn reports(&mut self, now: BootNanos) -> Vec<PeerReport> {
        let is_sleeping_leader = |peer: &Peer<L>| peer.is_asleep() && peer.is_leader();
        let sleeping: Vec<RegionId> = self
            .peers
            .iter()
            .filter(|(_, peer)| is_sleeping_leader(peer))
            .map(|(&region, _)| region)
            .collect();
        for region in sleeping {
            self.with_woken_peer(region, now, |_, _, _| {});
        }
        self.peers.values().map(|peer| peer.report(&self.config)).collect()
    }

    /// Makes the region's peer vote for the keeper of a recovery in this term.
    pub fn promise_recovery(
        &mut self,
        region: RegionId,
        term: Term,
        keeper: PeerId,
        now: BootNanos,
    ) -> Result<(), RecoveryRefusal> {
        self.of_recovery(region, now, |peer, config, out| {
            peer.promise_recovery(config, (term, keeper), now, out)
        })
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
        self.of_recovery(region, now, |peer, config, out| peer.recover(config, term, recovery, now, out))
    }

    fn of_recovery(
        &mut self,
        region: RegionId,
        now: BootNanos,
        call: impl FnOnce(&mut Peer<L>, &Config, &mut Outbox) -> Result<(), RecoveryRefusal>,
    ) -> Result<(), RecoveryRefusal> {
        let mut outcome = Err(RecoveryRefusal::NoPeer);
        self.with_woken_peer(region, now, |peer, config, out| outcome = call(peer, config, out));
        outcome
    }
}
