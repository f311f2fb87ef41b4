//! The choice of an operator's next step, from the present state of its regions.
//!
//! ```text
//! transfer   transfer the leader to `to`
//! add        add learner ─▶ caught up ─▶ promote
//! remove     (transfer the leader) ─▶ demote ─▶ remove
//! move       add learner ─▶ caught up ─▶ (transfer the leader) ─▶ promote and demote, jointly
//!            ─▶ remove
//! split      split
//! merge      all peers of both are close behind ─▶ prepare the source ─▶ all its peers have its
//!            whole log ─▶ *bound* ─▶ the target commits ─▶ the result is agreed
//! ```
//!
//! The next step follows from the descriptor that the region's leader reported; the driver keeps no
//! other state. A region's leader leaves a joint configuration without an order. A peer becomes a
//! voter only when it has caught up. A peer loses its vote only when a majority of the remaining
//! voters is alive.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use placement::{Capability, Operator, PlanLimits, Rating};
use types::{
    BootNanos, LogIndex, PeerChange, PeerRole, RegionChange, RegionDescriptor, RegionId, StoreId, Term,
};

use super::DriverConfig;
use crate::state::{InFlight, Outcome, Phase};
use crate::{LeadReport, Ledger, MetaState, Order};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    Order(Order),
    /// Propose [`Phase::Bound`]: from here on the operator cannot be undone.
    Bind,
    /// The operator failed and may have left a partial change.
    Fail(Outcome),
    /// The operator ended and left no partial change.
    Done(Outcome),
}

pub(super) struct Scene<'a> {
    pub config: &'a DriverConfig,
    pub limits: &'a PlanLimits,
    pub meta: &'a MetaState,
    pub ledger: &'a Ledger,
    pub ratings: &'a BTreeMap<StoreId, Rating>,
    pub flight: &'a InFlight,
    /// The region's term when the driver first saw the operator.
    pub began_term: Term,
    pub now: BootNanos,
}

impl Scene<'_> {
    pub fn lead(&self) -> Option<&LeadReport> {
        self.ledger.lead(self.flight.operator.region())
    }

    /// Returns true if the region accepts no commands because of this operator, or if that is not
    /// known and the operator holds no other region.
    ///
    /// A merge also holds its target. A source without a leader may need a change of the target's
    /// peers before it gets one: a store whose peer of the target missed the split between the two
    /// has no peer of the source. So the merge ends. If the source turns out to be sealed once it
    /// has a leader, an operator of its own frees it.
    pub fn is_frozen(&self) -> bool {
        let known = self.lead().map(|lead| lead.merging_into().is_some());
        match self.flight.operator {
            Operator::Merge { .. } => known.unwrap_or(false),
            Operator::Unseal { .. } => known.unwrap_or(true),
            _ => false,
        }
    }

    pub fn next(&self) -> Next {
        let undoing = match self.flight.phase {
            Phase::Going | Phase::Bound => None,
            Phase::Undoing { because } => Some(because),
        };
        let region = self.flight.operator.region();
        match &self.flight.operator {
            Operator::TransferLeader { to, .. } => undoing.map_or_else(|| self.transfer(*to), Next::Done),
            Operator::Merge { into, .. } => self.merge(*into, undoing),
            Operator::Unseal { .. } => self.unseal(undoing),
            // An order to prepare a merge arrived late, so the region accepts no commands. `Unseal`
            // frees it once this operator has ended.
            _ if self.lead().is_some_and(|lead| lead.merging_into().is_some()) => {
                Next::Done(undoing.unwrap_or(Outcome::Overtaken))
            }
            Operator::Split { .. } => undoing.map_or_else(|| self.split(), Next::Done),
            _ if !self.meta.regions.contains_key(&region) => {
                Next::Done(undoing.unwrap_or(Outcome::Overtaken))
            }
            Operator::AddPeer { to, .. } => self.with_lead(|lead| self.add(lead, *to, undoing)),
            Operator::RemovePeer { from, .. } => self.with_lead(|lead| self.remove(lead, *from, undoing)),
            Operator::MovePeer { from, to, .. } => {
                self.with_lead(|lead| self.move_peer(lead, *from, *to, undoing))
            }
        }
    }

    /// Calls `next` with the leader's report. Membership changes wait for that report, and for the
    /// end of a joint configuration.
    fn with_lead(&self, next: impl FnOnce(&LeadReport) -> Next) -> Next {
        match self.lead() {
            Some(lead) if !lead.descriptor.is_joint() => next(lead),
            _ => Next::Wait,
        }
    }

    fn transfer(&self, to: StoreId) -> Next {
        let region = self.flight.operator.region();
        let Some(route) = self.ledger.routes().get(region) else { return Next::Wait };
        if route.leader == to {
            return Next::Done(Outcome::Succeeded);
        }
        if route.term > self.began_term {
            return Next::Done(Outcome::LedElsewhere { leader: route.leader });
        }
        match self.lead() {
            Some(lead) if role_on(lead, to) != Some(PeerRole::Voter) => Next::Done(Outcome::Overtaken),
            _ => Next::Order(Order::TransferLeader { region, to }),
        }
    }

    fn add(&self, lead: &LeadReport, to: StoreId, undoing: Option<Outcome>) -> Next {
        match (role_on(lead, to), undoing) {
            (Some(PeerRole::Voter), _) => Next::Done(Outcome::Succeeded),
            (None, Some(because)) => Next::Done(because),
            (None, None) => change(lead, [PeerChange::AddLearner(to)]),
            (Some(_), Some(_)) => change(lead, [PeerChange::Remove(to)]),
            // An unclean peer takes no part in consensus under this number. A snapshot fills the
            // next peer.
            (Some(PeerRole::Learner), None) if self.ledger.is_unclean(&lead.descriptor, to) => {
                change(lead, [PeerChange::Remove(to)])
            }
            (Some(_), None) if self.is_caught_up(lead, to) => change(lead, [PeerChange::Promote(to)]),
            (Some(_), None) => Next::Wait,
        }
    }

    fn remove(&self, lead: &LeadReport, from: StoreId, undoing: Option<Outcome>) -> Next {
        match (role_on(lead, from), undoing) {
            (None, _) => Next::Done(Outcome::Succeeded),
            // The vote is already removed, and the remaining steps take little time.
            (Some(PeerRole::Learner), _) => change(lead, [PeerChange::Remove(from)]),
            (Some(_), Some(because)) => Next::Done(because),
            (Some(_), None) => self.take_vote(lead, from, None),
        }
    }

    fn move_peer(&self, lead: &LeadReport, from: StoreId, to: StoreId, undoing: Option<Outcome>) -> Next {
        let (old, new) = (role_on(lead, from), role_on(lead, to));
        match (new, old) {
            (Some(PeerRole::Voter), None) => Next::Done(Outcome::Succeeded),
            (Some(PeerRole::Voter), Some(PeerRole::Learner)) => change(lead, [PeerChange::Remove(from)]),
            (Some(PeerRole::Voter), Some(_)) => self.take_vote(lead, from, None),
            (None, _) => match (undoing, old) {
                (Some(because), _) => Next::Done(because),
                (None, None) => Next::Done(Outcome::Overtaken),
                (None, Some(_)) => change(lead, [PeerChange::AddLearner(to)]),
            },
            (Some(_), _) if undoing.is_some() => change(lead, [PeerChange::Remove(to)]),
            (Some(_), _) if !self.is_caught_up(lead, to) => Next::Wait,
            (Some(_), Some(PeerRole::Voter)) => self.take_vote(lead, from, Some(to)),
            // The old peer has no vote to transfer.
            (Some(_), _) => change(lead, [PeerChange::Promote(to)]),
        }
    }

    /// Takes the vote of `from` and gives it to `to`, if there is one. If `from` leads the region,
    /// first transfers its leadership.
    fn take_vote(&self, lead: &LeadReport, from: StoreId, to: Option<StoreId>) -> Next {
        let region = lead.region();
        let leads = self.ledger.routes().get(region).is_some_and(|route| route.leader == from);
        if leads {
            return match (self.next_leader(lead, from), to) {
                (Some(to), _) => Next::Order(Order::TransferLeader { region, to }),
                // `from` is the only voter: `to` first becomes a second voter, and then the leader.
                (None, Some(to)) if lead.descriptor.voters().eq([from]) => {
                    change(lead, [PeerChange::Promote(to)])
                }
                (None, _) => Next::Wait,
            };
        }
        match (Remaining::voters(self.ledger, lead, from, to, self.now), self.flight.phase) {
            (Remaining::Majority, _) => {}
            // The unclean peer must be replaced first, and its replacement waits for this
            // operator's end.
            (Remaining::AwaitsRepair(_), Phase::Going) => return Next::Fail(Outcome::Aborted),
            (Remaining::AwaitsRepair(_), Phase::Undoing { because }) => return Next::Done(because),
            (Remaining::AwaitsRepair(_) | Remaining::Minority, _) => return Next::Wait,
        }
        let given = to.map(PeerChange::Promote);
        change(lead, given.into_iter().chain([PeerChange::Demote(from)]))
    }

    fn split(&self) -> Next {
        let new_region = self.flight.new_region.expect("a split has a region to make");
        if self.meta.regions.contains_key(&new_region) || self.ledger.descriptor(new_region).is_some() {
            return Next::Done(Outcome::Succeeded);
        }
        match self.lead() {
            Some(lead) if lead.epoch().version == self.flight.version && !lead.descriptor.is_joint() => {
                let (region, expect) = (lead.region(), lead.epoch());
                Next::Order(Order::Split { region, expect, new_region })
            }
            // The split is done, and the new region has not reported yet. Otherwise another change
            // cut the region.
            _ => Next::Wait,
        }
    }

    fn merge(&self, into: RegionId, undoing: Option<Outcome>) -> Next {
        let region = self.flight.operator.region();
        let Some(agreed) = self.meta.regions.get(&region) else { return Next::Done(Outcome::Succeeded) };
        let target = self.ledger.lead(into);
        if target.is_some_and(|target| holds(&target.descriptor, agreed)) {
            // The merge is done, and the agreed state will show it soon.
            return Next::Wait;
        }
        let Some(source) = self.lead() else { return Next::Wait };
        let expect = source.epoch();
        let fits = |target: &LeadReport| {
            target.merging_into().is_none() && target.descriptor.joined(&source.descriptor).is_some()
        };
        match (source.merging_into(), self.flight.phase, target) {
            // No operator can have bound the merge, because then that operator would hold the
            // source.
            (Some(other), ..) if undoing.is_some() || other != into => {
                Next::Order(Order::Change { region, expect, change: RegionChange::RollbackMerge })
            }
            (None, Phase::Undoing { because }, _) => Next::Done(because),
            // The source's report is older than the agreed state.
            (None, Phase::Bound, _) | (_, _, None) => Next::Wait,
            (None, _, Some(target)) if !fits(target) => Next::Done(Outcome::Overtaken),
            (None, ..) if self.has_quarantined(region, into) => Next::Done(Outcome::Aborted),
            // The source accepts no commands while it waits, so the wait begins only when all peers
            // are close behind.
            (None, _, Some(target)) if !self.all_caught_up(source) || !self.all_caught_up(target) => {
                Next::Wait
            }
            (None, ..) => {
                Next::Order(Order::Change { region, expect, change: RegionChange::PrepareMerge { into } })
            }
            (Some(_), Phase::Bound, Some(target)) if fits(target) => {
                let change = RegionChange::CommitMerge {
                    source: Box::new(source.descriptor.clone()),
                    source_index: sealed_at(source),
                };
                Next::Order(Order::Change { region: into, expect: target.epoch(), change })
            }
            (Some(_), Phase::Bound, Some(target)) => align(target, &source.descriptor),
            (Some(_), _, Some(target)) if !fits(target) => Next::Fail(Outcome::Overtaken),
            (Some(_), ..) if self.has_quarantined(region, into) => Next::Fail(Outcome::Aborted),
            (Some(_), ..) if source.descriptor.peers.iter().all(|peer| self.has_all(source, peer.store)) => {
                Next::Bind
            }
            // A store that is down may stay down, and the source accepts no commands until the
            // merge ends.
            (Some(_), ..)
                if source.descriptor.peers.iter().any(|peer| !self.ledger.is_up(peer.store, self.now)) =>
            {
                Next::Fail(Outcome::Aborted)
            }
            (Some(_), ..) => Next::Wait,
        }
    }

    /// Returns true if a peer of the source or of the target is quarantined. On that peer's store
    /// the source would not be applied completely, and the target's peer would wait for it.
    fn has_quarantined(&self, source: RegionId, target: RegionId) -> bool {
        [source, target].into_iter().any(|region| self.ledger.quarantined(region).next().is_some())
    }

    fn has_all(&self, lead: &LeadReport, store: StoreId) -> bool {
        lead.peer(store).is_some_and(|peer| peer.matched >= sealed_at(lead))
            && !self.ledger.is_unclean(&lead.descriptor, store)
    }

    /// Rolls the merge back. No operator can have bound the merge, because then that operator would
    /// hold the source instead of this one.
    fn unseal(&self, undoing: Option<Outcome>) -> Next {
        let region = self.flight.operator.region();
        let outcome = undoing.unwrap_or(Outcome::Succeeded);
        match self.lead() {
            _ if !self.meta.regions.contains_key(&region) => Next::Done(outcome),
            Some(lead) if lead.merging_into().is_some() => {
                let expect = lead.epoch();
                Next::Order(Order::Change { region, expect, change: RegionChange::RollbackMerge })
            }
            // A pending order for the sealed region finds another version and has no effect.
            Some(lead) if lead.epoch().version > self.flight.version => Next::Done(outcome),
            // The report is from before the seal, or there is none.
            Some(_) | None => Next::Wait,
        }
    }

    fn all_caught_up(&self, lead: &LeadReport) -> bool {
        lead.descriptor.peers.iter().all(|peer| self.is_caught_up(lead, peer.store))
    }

    fn is_caught_up(&self, lead: &LeadReport, store: StoreId) -> bool {
        lead.lag_of(store).is_some_and(|lag| lag <= self.config.caught_up_entries)
            && !self.ledger.is_unclean(&lead.descriptor, store)
            && self.ledger.takes_on(store, self.now)
    }

    /// Chooses the next leader among the other voters that have caught up. It prefers a store that
    /// is not leaving, may lead and has few entries to apply. Among those it prefers the fastest
    /// one by pinned weight or class.
    fn next_leader(&self, lead: &LeadReport, from: StoreId) -> Option<StoreId> {
        let rank = |&store: &StoreId| {
            let staying = self.meta.stores.get(&store).is_some_and(|r| r.state == crate::MemberState::Up);
            let heard = self.ledger.heard(store).map(|heard| &heard.heartbeat);
            let capability = heard.map_or(Capability::default(), |heartbeat| heartbeat.capability);
            let unapplied = heard.map_or(0, |heartbeat| heartbeat.unapplied_bytes);
            let is_behind = placement::is_behind(capability, unapplied, self.limits);
            let pinned = self.meta.stores.get(&store).and_then(|record| record.leader_weight);
            let counts = self.ratings.get(&store).map_or(capability, |rating| rating.capability);
            let rank = pinned.map_or(counts.speed(), |weight| weight as u64);
            (staying, self.ledger.may_lead(store, self.now), !is_behind, rank, Reverse(store))
        };
        let others = lead.descriptor.voters().filter(|&store| store != from);
        others.filter(|&store| self.is_caught_up(lead, store)).max_by_key(rank)
    }
}

fn role_on(lead: &LeadReport, store: StoreId) -> Option<PeerRole> {
    lead.descriptor.peer_on(store).map(|peer| peer.role)
}

fn change(lead: &LeadReport, changes: impl IntoIterator<Item = PeerChange>) -> Next {
    let change = RegionChange::Peers(changes.into_iter().collect());
    Next::Order(Order::Change { region: lead.region(), expect: lead.epoch(), change })
}

/// Returns the index of the entry that seals a merge's source. No later entry of the source has an
/// effect.
fn sealed_at(lead: &LeadReport) -> LogIndex {
    lead.descriptor.merging.map_or(LogIndex::MAX, |merging| merging.sealed_at)
}

/// Returns the next step that makes a target's peers equal to the source's again. An order that
/// arrived late may have changed the target after the merge was bound.
fn align(target: &LeadReport, source: &RegionDescriptor) -> Next {
    let (region, expect) = (target.region(), target.epoch());
    if target.merging_into().is_some() {
        return Next::Order(Order::Change { region, expect, change: RegionChange::RollbackMerge });
    }
    if target.descriptor.is_joint() {
        return Next::Wait;
    }
    let stores = source.peers.iter().chain(&target.descriptor.peers).map(|peer| peer.store);
    let mut fix = stores.filter_map(|store| {
        let wanted = source.peer_on(store).map(|peer| peer.role);
        match (role_on(target, store), wanted) {
            (has, wanted) if has == wanted => None,
            (None, _) => Some(PeerChange::AddLearner(store)),
            (Some(PeerRole::Learner), Some(_)) => Some(PeerChange::Promote(store)),
            (Some(PeerRole::Learner), None) => Some(PeerChange::Remove(store)),
            (Some(_), _) => Some(PeerChange::Demote(store)),
        }
    });
    fix.next().map_or(Next::Wait, |fix| change(target, [fix]))
}

/// Returns true if all slots of `part` belong to `whole`.
fn holds(whole: &RegionDescriptor, part: &RegionDescriptor) -> bool {
    match (whole.slots, part.slots) {
        (Some(whole), Some(part)) => whole.first <= part.first && part.last <= whole.last,
        _ => false,
    }
}

/// The voters that remain if one store loses its vote and another may get one.
pub(super) enum Remaining {
    /// A majority of them can vote.
    Majority,
    /// A majority of them can vote only after the unclean peer on this store is replaced.
    AwaitsRepair(StoreId),
    Minority,
}

impl Remaining {
    pub(super) fn voters(
        ledger: &Ledger,
        lead: &LeadReport,
        from: StoreId,
        to: Option<StoreId>,
        now: BootNanos,
    ) -> Remaining {
        let is_unclean = |store: StoreId| ledger.is_unclean(&lead.descriptor, store);
        let leader = ledger.routes().get(lead.region()).map(|route| route.leader);
        let answers =
            |store: StoreId| leader == Some(store) || lead.peer(store).is_some_and(|peer| peer.active);
        let can_vote = |store: StoreId| ledger.is_up(store, now) && !is_unclean(store) && answers(store);
        let stay: Vec<StoreId> = lead.descriptor.voters().filter(|&store| store != from).chain(to).collect();
        if 2 * stay.iter().filter(|&&store| can_vote(store)).count() > stay.len() {
            return Remaining::Majority;
        }
        let unclean = stay.into_iter().find(|&store| is_unclean(store));
        unclean.map_or(Remaining::Minority, Remaining::AwaitsRepair)
    }
}
