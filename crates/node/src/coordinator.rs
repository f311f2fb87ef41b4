//! The choice of candidates by the positions that stores publish with a coordinator (PaxStore
//! §4.1.2). The coordinator is ZooKeeper, or the simulator's model of it.
//!
//! A peer that hears from no leader *seeks*. Its store publishes the peer's epoch and LSN, that is
//! term and index of the last entry of its log, as long as it seeks. The stores of the region's
//! other voters read this. Once a majority of the voters seek, the peer with the largest epoch,
//! then LSN, campaigns first; a deterministic draw breaks ties, so that a lost store's leads spread
//! over the others. If it does not become leader within a turn, the next candidate campaigns as
//! well. After the last candidate the order starts again. If no majority has joined within a turn,
//! those that have joined begin.
//!
//! All stores calculate the same order from the same positions, so usually one peer campaigns. If
//! their views differ, several campaign, and Raft's votes decide. Nothing here can make a peer
//! leader: a peer that campaigns needs the votes of a majority, as in every election, and its log
//! must be as long as theirs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use replica::Seeker;
use types::{BootNanos, Draw, LogIndex, PeerRole, RegionId, StoreId, Term};

use crate::failpoints::Failpoint;
use crate::hand_over::can_elect;

mod znode;

pub use znode::{leads_text, parse_positions, positions_text, store_text, Lead, Place, UnreadableZnode};

/// The position of a peer that seeks a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Epoch and LSN: term and index of the last entry of the log.
    pub last: (Term, LogIndex),
    /// False if the peer votes but must not lead.
    pub may_stand: bool,
}

pub type Positions = BTreeMap<RegionId, Position>;

struct Search {
    seeker: Seeker,
    since: BootNanos,
    /// The time at which a majority of the voters had joined the search.
    joined: Option<BootNanos>,
    stood: Option<BootNanos>,
}

/// One store's part in the choice.
pub struct Coordinator {
    this: StoreId,
    /// The time for which a candidate campaigns alone, in nanoseconds.
    turn_nanos: u64,
    /// Interval at which a candidate campaigns again during its turn, in nanoseconds.
    retry_nanos: u64,
    has_session: bool,
    searches: BTreeMap<RegionId, Search>,
    /// The positions that other stores have published.
    others: BTreeMap<StoreId, Positions>,
}

impl Coordinator {
    pub fn new(this: StoreId, turn_nanos: u64, retry_nanos: u64) -> Coordinator {
        Coordinator {
            this,
            turn_nanos: turn_nanos.max(1),
            retry_nanos,
            has_session: false,
            searches: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }

    /// Takes the report of this store's peer of a region. Returns true if the published positions
    /// change.
    pub fn seek(&mut self, region: RegionId, seeker: Option<Seeker>, now: BootNanos) -> bool {
        let before = self.searches.get(&region).map(Search::position);
        match (seeker, self.searches.get_mut(&region)) {
            (Some(seeker), Some(search)) => search.seeker = seeker,
            (Some(seeker), None) => {
                self.searches.insert(region, Search { seeker, since: now, joined: None, stood: None });
            }
            (None, _) => drop(self.searches.remove(&region)),
        }
        before != self.searches.get(&region).map(Search::position)
    }

    /// Notes whether this store has a session. Without one it knows nothing about other stores, and
    /// its peers do not campaign.
    pub fn set_session(&mut self, has_session: bool) {
        self.has_session = has_session;
        if !has_session {
            self.others.clear();
            self.searches.values_mut().for_each(|search| search.joined = None);
        }
    }

    /// Takes the positions that another store publishes; `None` if it publishes none, or if its
    /// session has ended.
    pub fn hear(&mut self, store: StoreId, positions: Option<Positions>) {
        match positions {
            _ if store == self.this => {}
            Some(positions) => drop(self.others.insert(store, positions)),
            None => drop(self.others.remove(&store)),
        }
    }

    /// Returns the positions to publish.
    pub fn positions(&self) -> Positions {
        self.searches.iter().map(|(&region, search)| (region, search.position())).collect()
    }

    /// Returns the other stores whose positions matter: those with a peer of a region that seeks
    /// here.
    pub fn watched(&self) -> BTreeSet<StoreId> {
        let peers = self.searches.values().flat_map(|search| &search.seeker.descriptor.peers);
        peers.map(|peer| peer.store).filter(|&store| store != self.this).collect()
    }

    /// Returns the regions whose peers here campaign now. To be called after each change, and
    /// repeatedly while regions seek.
    pub fn candidates(&mut self, now: BootNanos) -> Vec<RegionId> {
        if !self.has_session {
            return Vec::new();
        }
        let (this, turn, retry, others) = (self.this, self.turn_nanos, self.retry_nanos, &self.others);
        let mut due = Vec::new();
        for (&region, search) in &mut self.searches {
            let published = |store: StoreId| match store == this {
                true => Some(search.position()),
                false => others.get(&store).and_then(|positions| positions.get(&region)).copied(),
            };
            let descriptor = &search.seeker.descriptor;
            // In a joint configuration an outgoing voter may have the only log that is long enough.
            let mut standing: Vec<(StoreId, Position)> = descriptor
                .peers
                .iter()
                .filter(|peer| peer.role != PeerRole::Learner)
                .map(|peer| peer.store)
                .filter_map(|store| Some((store, published(store)?)))
                .filter(|(_, position)| position.may_stand)
                .collect();
            standing.sort_by_key(|&(store, position)| {
                let tie = Draw::new(Draw::new(region).number() ^ store).number();
                (Reverse(position.last), tie)
            });
            let Some(rank) = standing.iter().position(|&(store, _)| store == this) else { continue };
            search.joined = match can_elect(descriptor, |store| published(store).is_some()) {
                true => search.joined.or(Some(now)),
                false => None,
            };
            let begins = search.joined.unwrap_or_else(|| search.since.saturating_add(turn));
            let Some(passed) = now.checked_sub(begins) else { continue };
            let place = match Failpoint::TurnsForgotten.is_on() {
                true => 0,
                false => passed / turn % standing.len() as u64,
            };
            let is_turn = place == rank as u64;
            // Without a majority a candidate can hardly win, and there may be thousands of them.
            let retry = if search.joined.is_some() { retry } else { turn };
            let stood_lately = search.stood.is_some_and(|at| now.saturating_sub(at) < retry);
            if is_turn && !stood_lately {
                search.stood = Some(now);
                due.push(region);
            }
        }
        due
    }
}

impl Search {
    fn position(&self) -> Position {
        Position { last: self.seeker.last, may_stand: self.seeker.may_stand }
    }
}

#[cfg(test)]
mod tests;
