//! Repair: gives every region the voters it should have, on stores that stay, in as many failure
//! domains as possible. It precedes every policy.
//!
//! A region is changed only while it has a leader and a majority of its voters answers; otherwise
//! Raft could not commit the change. A region gets one change at a time, in this order:
//!
//! 1. A peer that may have lost state that it acknowledged is removed. It neither votes nor
//!    acknowledges, so its removal makes no majority harder to reach. The next step adds a peer
//!    with another number.
//! 2. A peer that lost rows with a damaged file is removed if a majority of the other voters
//!    answers. Its votes and acknowledgements are sound, but it is not a complete copy.
//! 3. If there are too few voters, not counting those on lost stores, one is added on the best
//!    store.
//! 4. If there are enough voters without a peer on a lost store, that peer is removed. The new
//!    voter comes first, so that the number of answering voters never decreases.
//! 5. The leader leaves a store that drains, whose device is out of room or whose clock is off. It
//!    also does so if the third step has to wait for room.
//! 6. Learners without an operator, and surplus voters, are removed.
//! 7. A peer leaves a store that drains.
//! 8. A peer moves to a failure domain with at least two fewer of the region's other peers than its
//!    own. (With one fewer, as many pairs would share a domain afterwards.)
//!
//! The region with the most urgent defect is repaired first (see [`Urgency`]).

use std::cmp::Reverse;

use crate::fill::Ordered;
use crate::round::{Round, StoreIndex, NOWHERE};
use crate::view::Bar;
use crate::{Operator, Policy, Reason, StoreState};

/// The order in which repairs begin.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Urgency {
    ailment: Ailment,
    /// The number of voters that may still fail before the majority is lost.
    spare: u16,
    busy: Reverse<u64>,
    region: u32,
}

/// The defects of a region, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ailment {
    Unclean,
    LostRows,
    TooFewVoters,
    LostVoter,
    LeaderMustGo,
    PeerDrains,
    Superfluous,
    SharedDomain,
}

pub(crate) fn plan(round: &mut Round<'_>) {
    let mut urgent: Vec<Urgency> = Vec::new();
    for at in 0..round.ailing.len() {
        let region = round.ailing[at];
        let Some(ailment) = diagnose(round, region).filter(|_| round.can_repair(region)) else { continue };
        let row = &round.rows[region as usize];
        let spare = row.live_voters - (row.voters / 2 + 1);
        urgent.push(Urgency { ailment, spare, busy: Reverse(round.region(region).rate()), region });
    }
    urgent.sort_unstable();
    for Urgency { ailment, region, .. } in urgent {
        if round.room() == 0 {
            break;
        }
        // A repair that needs a copy may have to wait; a leader's move needs none.
        let is_free = round.rows[region as usize].free;
        let lead = || (is_free && leader_must_go(round, region)).then_some(Ailment::LeaderMustGo);
        let operator = treat(round, region, ailment).or_else(|| treat(round, region, lead()?));
        let Some(operator) = operator else { continue };
        round.begin(region, operator);
    }
}

/// Returns the number of voters on stores that are not lost.
pub(crate) fn kept_voters(round: &Round<'_>, region: u32) -> usize {
    round
        .replicas(region)
        .iter()
        .filter(|replica| replica.voter && round.state(replica.store) != StoreState::Lost)
        .count()
}

fn diagnose(round: &Round<'_>, region: u32) -> Option<Ailment> {
    let (replicas, wanted) = (round.replicas(region), round.wanted(region));
    let kept = kept_voters(round, region);
    let is = |state| move |at: StoreIndex| round.state(at) == state;
    if unclean(round, region).is_some() {
        return Some(Ailment::Unclean);
    }
    if lost_rows(round, region).is_some() {
        return Some(Ailment::LostRows);
    }
    if kept < wanted {
        // If no store can take another voter, the other defects of the region are repaired.
        let place =
            round.peers_may_move() && round.stores().any(|at| round.is_up(at) && may_add(round, region, at));
        if place {
            return Some(Ailment::TooFewVoters);
        }
    }
    if round.rows[region as usize].held {
        return None;
    }
    if kept >= wanted && replicas.iter().any(|replica| replica.voter && is(StoreState::Lost)(replica.store)) {
        return Some(Ailment::LostVoter);
    }
    // If no other peer can lead, the other defects of the region are repaired.
    if leader_must_go(round, region) {
        return Some(Ailment::LeaderMustGo);
    }
    if kept > wanted || replicas.iter().any(|replica| !replica.voter && kept >= wanted) {
        return Some(Ailment::Superfluous);
    }
    if replicas.iter().any(|replica| is(StoreState::Draining)(replica.store)) {
        return Some(Ailment::PeerDrains);
    }
    round.domains.can_spread(replicas).then_some(Ailment::SharedDomain)
}

/// Returns the store of a peer that may have lost state that it acknowledged.
fn unclean(round: &Round<'_>, region: u32) -> Option<StoreIndex> {
    let replicas = round.replicas(region).iter();
    let leader = round.rows[region as usize].leader;
    replicas
        .filter(|replica| replica.unclean && replica.store != leader && replica.store != NOWHERE)
        .map(|replica| replica.store)
        .next()
}

/// Returns the store of a peer that lost rows, if the other voters suffice without it.
fn lost_rows(round: &Round<'_>, region: u32) -> Option<StoreIndex> {
    let leader = round.rows[region as usize].leader;
    let mut replicas = round
        .replicas(region)
        .iter()
        .filter(|replica| replica.lost_rows && replica.store != leader && replica.store != NOWHERE);
    replicas
        .find(|replica| !replica.voter || can_do_without(round, region, replica.store))
        .map(|replica| replica.store)
}

/// Returns true if a majority of the other voters answers.
fn can_do_without(round: &Round<'_>, region: u32, at: StoreIndex) -> bool {
    let row = &round.rows[region as usize];
    let answers = matches!(round.state(at), StoreState::Up | StoreState::Draining);
    row.live_voters.saturating_sub(answers.into()) > (row.voters - 1) / 2
}

/// Returns true if the leader's store should not lead and another peer can.
fn leader_must_go(round: &Round<'_>, region: u32) -> bool {
    let leader = round.rows[region as usize].leader;
    let must_go = round.state(leader) == StoreState::Draining || round.bar(leader).is_some();
    must_go && round.able(region).next().is_some()
}

/// Returns true if the store has no voter of the region yet.
fn may_add(round: &Round<'_>, region: u32, at: StoreIndex) -> bool {
    !round.replicas(region).iter().any(|replica| replica.store == at && replica.voter)
}

fn treat(round: &Round<'_>, region: u32, ailment: Ailment) -> Option<Operator> {
    let id = round.region(region).id;
    let replicas = round.replicas(region);
    let (voters, wanted) = (kept_voters(round, region) as u32, round.wanted(region) as u32);
    if ailment != Ailment::LeaderMustGo && !round.peers_may_move() {
        return None;
    }
    match ailment {
        Ailment::Unclean => {
            let store = round.id(unclean(round, region)?);
            Some(Operator::RemovePeer { region: id, from: store, reason: Reason::Unclean { store } })
        }
        Ailment::LostRows => {
            let store = round.id(lost_rows(round, region)?);
            Some(Operator::RemovePeer { region: id, from: store, reason: Reason::LostRows { store } })
        }
        Ailment::TooFewVoters => {
            if !round.has_data_room() {
                return None;
            }
            // An existing learner needs the least work.
            let begun = replicas.iter().filter(|replica| !replica.voter && round.is_up(replica.store));
            let begun = begun.map(|replica| replica.store).find(|&at| round.has_repair_room_at(at));
            let to = begun.or_else(|| round.place(region, NOWHERE))?;
            let reason = Reason::TooFewVoters { voters, wanted };
            Some(Operator::AddPeer { region: id, to: round.id(to), reason })
        }
        Ailment::LostVoter => {
            let lost =
                |at: &usize| replicas[*at].voter && round.state(replicas[*at].store) == StoreState::Lost;
            // Positions follow the view's peers. A store that is not in the view is identified only
            // by its id there.
            let store = round.region(region).peers[(0..replicas.len()).find(lost)?].store;
            Some(Operator::RemovePeer { region: id, from: store, reason: Reason::Lost { store } })
        }
        Ailment::LeaderMustGo => {
            let leader = round.rows[region as usize].leader;
            let to = heir(round, region)?;
            let store = round.id(leader);
            let reason = match (round.state(leader), round.bar(leader)) {
                (StoreState::Draining, _) => Reason::Draining { store },
                (_, Some(Bar::ClockOff)) => Reason::ClockOff { store },
                (_, Some(Bar::NoSession)) => Reason::NoSession { store },
                _ => Reason::OutOfRoom { store },
            };
            Some(Operator::TransferLeader { region: id, from: store, to: round.id(to), reason })
        }
        Ailment::PeerDrains => {
            if !round.has_data_room() {
                return None;
            }
            let drains = |at: &StoreIndex| {
                round.state(*at) == StoreState::Draining
                    && round.has_repair_room_at(*at)
                    && round.can_leave(region, *at)
            };
            let from = replicas.iter().map(|replica| replica.store).find(drains)?;
            let to = round.place(region, from)?;
            let reason = Reason::Draining { store: round.id(from) };
            Some(Operator::MovePeer { region: id, from: round.id(from), to: round.id(to), reason })
        }
        Ailment::Superfluous => {
            if let Some(at) = replicas.iter().position(|replica| !replica.voter) {
                let from = round.region(region).peers[at].store;
                return Some(Operator::RemovePeer { region: id, from, reason: Reason::StrayLearner });
            }
            let leader = round.rows[region as usize].leader;
            let rank = |at: StoreIndex| {
                let draining = round.state(at) == StoreState::Draining;
                let companions = round.companions(region, at, at);
                (draining, at != leader, !round.is_up(at), companions, Ordered::new(round.level(at)), at)
            };
            let affordable =
                |at: &StoreIndex| can_do_without(round, region, *at) && round.can_leave(region, *at);
            let from =
                replicas.iter().map(|replica| replica.store).filter(affordable).max_by_key(|&at| rank(at))?;
            let reason = Reason::TooManyVoters { voters, wanted };
            Some(Operator::RemovePeer { region: id, from: round.id(from), reason })
        }
        Ailment::SharedDomain => {
            if !round.has_data_room() {
                return None;
            }
            let leader = round.rows[region as usize].leader;
            let crowd = |at: StoreIndex| round.companions(region, at, at);
            let up = replicas
                .iter()
                .map(|replica| replica.store)
                .filter(|&at| round.is_up(at) && round.has_repair_room_at(at) && round.can_leave(region, at));
            let from = up.max_by_key(|&at| (crowd(at), at != leader, Reverse(at)))?;
            let to = round.place(region, from)?;
            let (companions, companions_after) = (crowd(from), round.companions(region, from, to));
            let reason = Reason::SharedDomain { companions, companions_after };
            let better = companions_after < companions;
            better.then(|| Operator::MovePeer { region: id, from: round.id(from), to: round.id(to), reason })
        }
    }
}

/// Returns the peer that takes over from a leader that must move. It is the policy's preferred peer
/// among those whose CPU has room, or among all if no CPU has room.
fn heir(round: &Round<'_>, region: u32) -> Option<StoreIndex> {
    let speed = |at: StoreIndex| match round.policy {
        Policy::Even => 0,
        _ => round.leader_speed(at),
    };
    let led = |at: StoreIndex| round.totals.leaders[at as usize];
    let able = round.able(region).filter(|&at| round.has_room_towards(at));
    able.min_by_key(|&at| (!round.cpu_fits(region, at), Reverse(speed(at)), led(at), at))
}
