//! Carries out operators, at most one step per round (`cluster::driver`).
//!
//! ```text
//! move   add learner ─▶ it has its snapshot ─▶ (transfer the leader)
//!        ─▶ promote and demote, jointly ─▶ remove
//! ```
//!
//! Each change is an entry of the region's own log. The planning store learns from the next
//! heartbeat that it is committed, so a step takes half a heartbeat period each way in addition to
//! its entry. Operators never exceed their deadlines.

use placement::Operator;

use super::{Peer, RegionAt, StoreAt, World};

/// Maximum number of entries that a learner may be behind to be promoted, or a peer to become
/// leader (`cluster::DriverConfig`).
const CAUGHT_UP_ENTRIES: u32 = 1024;
/// A store that has at most this many bytes to apply, or at most what it writes in a second, has
/// little to apply (`placement::is_behind`).
const UNAPPLIED_BYTES: f64 = (1 << 20) as f64;

pub(super) struct Move {
    pub operator: Operator,
    from: Option<StoreAt>,
    to: Option<StoreAt>,
    stage: Stage,
    /// The time since which the region's leader knows that the next step can be taken.
    ready_at: Option<u64>,
    /// The entry whose commit the operator waits for.
    awaits: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Adds,
    Copies,
    /// A change of voters, with the number of its entries still to be committed: a joint
    /// configuration is entered and left.
    Votes(u32),
    Removes,
    Ends,
    /// The end is being committed to the meta region.
    Over,
}

impl World<'_> {
    pub(super) fn begin_operator(&mut self, operator: Operator) {
        let Some(region) = self.regions.iter().position(|region| region.id == operator.region()) else {
            return;
        };
        let at = |id: Option<u64>| id.and_then(|id| self.question.stores.iter().position(|s| s.id == id));
        let (from, to) = (at(operator.from()), at(operator.to()));
        let ready_at = Some(self.now);
        let begun = Move { operator, from, to, stage: Stage::Begun, ready_at, awaits: None };
        self.moving.insert(region, begun);
    }

    /// Takes one step for every operator that is ready for one.
    pub(super) fn drive(&mut self) {
        let told_before = self.now.saturating_sub(self.period() / 2);
        let is_ready = |moving: &Move| moving.ready_at.is_some_and(|at| at <= told_before);
        let ready: Vec<RegionAt> =
            self.moving.iter().filter(|(_, moving)| is_ready(moving)).map(|(region, _)| *region).collect();
        for region in ready {
            let Some(mut moving) = self.moving.remove(&region) else { continue };
            self.planning.changed = true;
            if moving.stage == Stage::Over {
                continue;
            }
            moving.ready_at = None;
            self.advance(region, &mut moving);
            self.moving.insert(region, moving);
            // An entry may already be committed by its leader alone.
            self.changed(region);
        }
    }

    fn advance(&mut self, region: RegionAt, moving: &mut Move) {
        let leader = self.regions[region].leader;
        match (moving.stage, moving.from, moving.to) {
            (Stage::Begun, _, Some(to)) if matches!(moving.operator, Operator::TransferLeader { .. }) => {
                self.transfer(region, to);
                (moving.stage, moving.ready_at) = (Stage::Ends, Some(self.now));
            }
            (Stage::Begun, _, Some(_)) => self.propose_for(region, moving, Stage::Adds),
            (Stage::Adds, Some(from), Some(to)) => {
                self.hand_on(region, from);
                moving.stage = Stage::Copies;
                self.start_copy(region, to);
            }
            // A single voter transfers leadership to the newcomer, which must be a voter first.
            (Stage::Copies, Some(from), Some(_)) if leader == from && self.votes_alone(region) => {
                self.propose_for(region, moving, Stage::Votes(1));
            }
            (Stage::Begun | Stage::Copies | Stage::Votes(0), Some(from), _) if leader == from => {
                self.hand_on(region, from);
                moving.ready_at = Some(self.now);
            }
            (Stage::Copies, Some(_), _) => self.propose_for(region, moving, Stage::Votes(2)),
            (Stage::Begun | Stage::Copies, ..) => self.propose_for(region, moving, Stage::Votes(1)),
            (Stage::Votes(_), Some(_), _) => self.propose_for(region, moving, Stage::Removes),
            (Stage::Votes(_) | Stage::Removes | Stage::Ends, ..) => {
                (moving.stage, moving.ready_at) = (Stage::Over, Some(self.now));
            }
            (Stage::Adds | Stage::Over, ..) => {}
        }
    }

    fn propose_for(&mut self, region: RegionAt, moving: &mut Move, stage: Stage) {
        moving.stage = stage;
        moving.awaits = Some(self.propose_change(region));
    }

    /// Called when the commit index of a region has advanced.
    pub(super) fn changed(&mut self, region: RegionAt) {
        let committed = self.regions[region].committed;
        let Some(moving) = self.moving.get_mut(&region) else { return };
        if moving.awaits.is_none_or(|end| committed < end) {
            return;
        }
        moving.awaits = None;
        let (from, to) = (moving.from, moving.to);
        match moving.stage {
            // No heartbeat has reported yet that the learner needs a snapshot, and in a short log
            // no peer is far behind. A leader that is to leave is therefore replaced at once.
            Stage::Adds if from == Some(self.regions[region].leader) && committed <= CAUGHT_UP_ENTRIES => {}
            Stage::Adds => {
                moving.stage = Stage::Copies;
                if let Some(to) = to {
                    self.start_copy(region, to);
                }
                return;
            }
            Stage::Votes(left) => {
                moving.stage = Stage::Votes(left - 1);
                self.vote(region, from, to);
                if left > 1 {
                    let end = self.propose_change(region);
                    if let Some(moving) = self.moving.get_mut(&region) {
                        moving.awaits = Some(end);
                    }
                    // A later entry may already be committed.
                    return self.changed(region);
                }
            }
            Stage::Removes => {
                if let Some(from) = from {
                    self.remove_peer(region, from);
                    self.start_removal(region, from);
                }
            }
            _ => {}
        }
        let now = self.now;
        if let Some(moving) = self.moving.get_mut(&region) {
            moving.ready_at = Some(now);
        }
    }

    fn votes_alone(&self, region: RegionAt) -> bool {
        self.regions[region].peers.iter().filter(|peer| peer.voter).count() == 1
    }

    /// Makes the newcomer a voter and the leaving peer a learner, unless the latter still leads.
    fn vote(&mut self, region: RegionAt, from: Option<StoreAt>, to: Option<StoreAt>) {
        let leader = self.regions[region].leader;
        for peer in &mut self.regions[region].peers {
            let goes = Some(peer.store) == from && peer.store != leader;
            peer.voter = (peer.voter || Some(peer.store) == to) && !goes;
        }
    }

    /// The learner's log has taken in the snapshot, so the learner receives the entries after it.
    pub(super) fn delivered(&mut self, region: RegionAt, to: StoreAt, index: u32) {
        let log = &mut self.regions[region];
        if log.peer(to).is_none() {
            log.peers.push(Peer { loading: true, ..Peer::at(to, index) });
        }
        self.send(region);
        if let Some(moving) = self.moving.get_mut(&region) {
            moving.ready_at = Some(self.now);
        }
    }

    /// The rows have arrived, so the peer applies.
    pub(super) fn loaded(&mut self, region: RegionAt, to: StoreAt) {
        if let Some(peer) = self.regions[region].peer(to) {
            peer.loading = false;
        }
        self.hand_out(to, region);
    }

    /// Transfers leadership to another voter that has caught up: the fastest of those with little
    /// to apply, or else the fastest of all.
    fn hand_on(&mut self, region: RegionAt, from: StoreAt) {
        let log = &self.regions[region];
        let caught_up = |peer: &&Peer| log.committed.saturating_sub(peer.persisted) <= CAUGHT_UP_ENTRIES;
        let others = log.peers.iter().filter(|peer| peer.voter && !peer.loading && peer.store != from);
        let ranked = others.filter(caught_up).map(|peer| {
            let speed = self.question.stores[peer.store].capability.kv_bytes_per_s;
            let is_ready = self.stores[peer.store].to_apply_bytes as f64 <= speed.max(UNAPPLIED_BYTES);
            (is_ready, speed, peer.store)
        });
        let best = ranked.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(b.2.cmp(&a.2)));
        if let Some((_, _, store)) = best {
            self.transfer(region, store);
        }
    }
}
