//! A directed fault: elections in a region that a split has just created, while one of its stores
//! lacks the split.
//!
//! Stores apply a split at different times. A store may take part in an election of the new region
//! before it has applied the split: it keeps early vote requests, or it has a blank peer, which
//! votes. Random faults rarely lead to this.
//!
//! A race withholds the split from one voter. It prevents the first two candidates of the new
//! region from reaching each other, and silences the first leader. So the second candidate
//! campaigns in a term in which that voter has already voted.
//!
//! In three of five races that voter's peer is blank at first. Its store misses an earlier split
//! and receives a snapshot of its region from after that split. The split-off region has a blank
//! peer there, which waits for a snapshot. While it waits, that region is split again.
//!
//! Races are drawn separately, so that seeds without races run as before.

use placement::{Operator, Reason};
use replica::{Input, RegionStatus, Role};
use types::{PeerRole, RegionId, StoreId, META_REGION};

use crate::clock::{MILLISECOND, SECOND};
use crate::faults::REGIONS_MAX;
use crate::rng::Rng;
use crate::world::{Asked, Event, Packet, Work, World};

/// The stages of a race, as the tally counts them.
pub const STAGES: [&str; 3] = [RACED, OUTRUN, SILENCED];
const RACED: &str = "elections raced a split";
const OUTRUN: &str = "split outran a store";
const SILENCED: &str = "new region's first leader silenced";

/// Salt and percentage of the seeds that have races.
const RACING: u64 = 0x3b8e_51d7_06fa_924c;
const RACING_PERCENT: u64 = 25;
/// Percentage of these seeds in which other faults are rare, so that they seldom disturb races, and
/// minimum of their mean pause.
const UNDISTURBED_PERCENT: u64 = 60;
const UNDISTURBED: u64 = 4 * SECOND;

/// The time between two looks at a race.
const LOOK: u64 = 5 * MILLISECOND;
/// The time between two requests for the same split.
const ASK_AGAIN: u64 = 300 * MILLISECOND;
/// Maximum time to reach a stage. A race that takes longer is abandoned.
const STAGE: u64 = 5 * SECOND;
/// The time for which the new region's first leader is silent in it.
const SILENT: u64 = 4 * SECOND;

/// The stage that a race has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The laggard receives nothing while its region is split.
    Outrun,
    /// The region's leader removes the entries that the laggard lacks from its log.
    LetGo,
    /// The laggard must receive the snapshot from after the split and get a blank peer of the new
    /// region. A snapshot that would fill that peer is withheld.
    Fill,
    /// The region must be split whose entries or snapshot the laggard lacks.
    Split,
    /// The new region must elect a leader.
    Elect,
    /// The first leader is silent.
    Silent,
}

#[derive(Debug)]
pub(crate) struct SplitRace {
    stage: Stage,
    region: RegionId,
    laggard: StoreId,
    /// The first number of regions that are created from now on.
    next_region: RegionId,
    /// The region that is split off.
    made: Option<RegionId>,
    /// True if a snapshot of the region for the laggard was withheld.
    holds: bool,
    partitions: Vec<u64>,
    until: u64,
    asked_at: u64,
    kills: Option<Killed>,
}

/// The store that a race kills once the first leader is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    /// The leader, after the laggard has the region's rows.
    Leader,
    /// The laggard, immediately: it has voted, and may have a blank peer.
    Laggard,
}

impl SplitRace {
    fn enter(&mut self, stage: Stage, now: u64) {
        let length = if stage == Stage::Silent { SILENT } else { STAGE };
        (self.stage, self.until) = (stage, now + length);
    }
}

impl World {
    /// Schedules the first race if the seed has races.
    pub(crate) fn draw_races(&mut self) {
        let mut rng = Rng::new(self.seed ^ RACING);
        if !rng.chance(RACING_PERCENT) {
            return;
        }
        if rng.chance(UNDISTURBED_PERCENT) {
            self.plan.pause_ns = self.plan.pause_ns.max(UNDISTURBED);
        }
        self.schedule(2 * SECOND, Event::SplitRace);
    }

    /// Continues the race, or begins one.
    pub(crate) fn look_at_race(&mut self) {
        if self.plan.is_over {
            self.race = None;
            return;
        }
        let Some(mut race) = self.race.take() else {
            self.race = self.begin_race();
            let pause = if self.race.is_some() { LOOK } else { self.rng.between(100, 600) * MILLISECOND };
            return self.schedule(pause, Event::SplitRace);
        };
        if self.now < race.until && self.advance(&mut race) {
            self.race = Some(race);
            return self.schedule(LOOK, Event::SplitRace);
        }
        self.say(&format!("the race of region {} ends at {:?}", race.region, race.stage));
        self.heal_race(&mut race);
        let pause = self.rng.between(200, 3000) * MILLISECOND;
        self.schedule(pause, Event::SplitRace);
    }

    /// Returns true if a race withholds this snapshot.
    pub(crate) fn race_holds(&mut self, region: RegionId, to: StoreId) -> bool {
        let Some(race) = &mut self.race else { return false };
        let holds = matches!(race.stage, Stage::Fill | Stage::Split | Stage::Elect)
            && race.region == region
            && race.laggard == to;
        race.holds |= holds;
        holds
    }

    fn begin_race(&mut self) -> Option<SplitRace> {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let regions = self.regions_known();
        if regions.len() > REGIONS_MAX {
            return None;
        }
        let region = self.rng.pick(&regions)?;
        let (leader, status) = self.newest_leader(region)?;
        let voters = self.voters_of(&status);
        let others: Vec<StoreId> = voters.into_iter().filter(|&store| store != leader).collect();
        let laggard = self.rng.pick(&others).filter(|_| others.len() >= 2)?;
        let is_deep = self.rng.chance(60) && regions.len() + 1 < REGIONS_MAX;
        let mut race = SplitRace {
            stage: if is_deep { Stage::Outrun } else { Stage::Split },
            region,
            laggard,
            next_region: self.next_region(),
            made: None,
            holds: false,
            partitions: Vec::new(),
            until: self.now + STAGE,
            asked_at: 0,
            kills: match self.rng.below(100) {
                0..20 => Some(Killed::Leader),
                60.. => Some(Killed::Laggard),
                _ => None,
            },
        };
        self.tally.fault(RACED);
        self.say(&format!("fault: elections race a split of region {region}, {laggard} lags: {is_deep}"));
        if is_deep {
            race.partitions.push(self.network.deafen(laggard, &stores));
        } else {
            let others: Vec<_> = others.iter().chain([&leader]).map(|&from| (from, laggard)).collect();
            race.partitions.push(self.network.cut_regions(region..=region, others));
            self.cut_candidates(&mut race, leader, &status);
        }
        Some(race)
    }

    /// Takes the race's next step when it is due. Returns false if the race is over.
    fn advance(&mut self, race: &mut SplitRace) -> bool {
        match race.stage {
            Stage::Outrun => {
                self.ask_for_split(race);
                let Some(made) = self.made_of(race) else { return true };
                race.made = Some(made);
                race.enter(Stage::LetGo, self.now);
            }
            Stage::LetGo => {
                let Some((leader, status)) = self.newest_leader(race.region) else { return true };
                let lagging = self.race_status(race.laggard, race.region);
                let Some(last) = lagging.map(|status| status.last) else { return false };
                if status.first > last + 1 {
                    self.heal_race(race);
                    race.region = race.made.take().expect("the region that was outrun");
                    race.enter(Stage::Fill, self.now);
                    self.tally.fault(OUTRUN);
                } else if self.now >= race.asked_at + ASK_AGAIN {
                    race.asked_at = self.now;
                    self.schedule_work(leader, 0, Work::FlushSoon);
                    self.input(leader, Input::LogPinned { regions: vec![race.region] });
                }
            }
            Stage::Fill => {
                let is_blank = self.race_status(race.laggard, race.region).is_some_and(|peer| peer.last == 0);
                if !(is_blank && race.holds) {
                    return true;
                }
                let Some((leader, status)) = self.newest_leader(race.region) else { return true };
                race.next_region = self.next_region();
                race.asked_at = 0;
                self.cut_candidates(race, leader, &status);
                race.enter(Stage::Split, self.now);
            }
            Stage::Split => {
                self.ask_for_split(race);
                let Some(made) = self.made_of(race) else { return true };
                race.made = Some(made);
                race.enter(Stage::Elect, self.now);
            }
            Stage::Elect => return self.elect_in_race(race),
            Stage::Silent => self.fill_in_race(race),
        }
        true
    }

    /// Silences the new region's first leader. If no candidate wins without the laggard, lets the
    /// laggard have the split.
    fn elect_in_race(&mut self, race: &mut SplitRace) -> bool {
        let Some(made) = race.made else { return false };
        if let Some((leader, status)) = self.newest_leader(made) {
            self.heal_race(race);
            let links = self.voters_of(&status).into_iter().filter(|&store| store != leader);
            let links = links.flat_map(|store| [(leader, store), (store, leader)]).collect();
            race.partitions.push(self.network.cut_regions(made..=made, links));
            race.enter(Stage::Silent, self.now);
            self.tally.fault(SILENCED);
            if race.kills == Some(Killed::Laggard) {
                self.restart(race.laggard);
            }
            return true;
        }
        let has_blank = self.race_status(race.laggard, made).is_some();
        let is_plain = self.race_status(race.laggard, race.region).is_some_and(|peer| peer.last > 0);
        if is_plain && !has_blank && self.now + STAGE > race.until + 300 * MILLISECOND {
            // The laggard votes when it has applied the split.
            self.network.heal(race.partitions[0]);
        }
        true
    }

    /// Kills the silent leader, in some races, once the laggard has the region's rows.
    fn fill_in_race(&mut self, race: &mut SplitRace) {
        let Some(made) = race.made.filter(|_| race.kills == Some(Killed::Leader)) else { return };
        let is_filled = self.race_status(race.laggard, made).is_some_and(|peer| peer.last > 0);
        if let Some((leader, _)) = self.newest_leader(made).filter(|_| is_filled) {
            race.kills = None;
            self.restart(leader);
        }
    }

    /// Cuts the leader off from all other voters except the laggard, in all regions that are
    /// created from now on.
    fn cut_candidates(&mut self, race: &mut SplitRace, leader: StoreId, status: &RegionStatus) {
        let rivals = self.voters_of(status).into_iter();
        let rivals = rivals.filter(|&store| store != leader && store != race.laggard);
        let links = rivals.flat_map(|rival| [(leader, rival), (rival, leader)]).collect();
        let made = race.next_region..=RegionId::MAX;
        race.partitions.push(self.network.cut_regions(made, links));
    }

    fn heal_race(&mut self, race: &mut SplitRace) {
        race.partitions.drain(..).for_each(|partition| self.network.heal(partition));
    }

    fn ask_for_split(&mut self, race: &mut SplitRace) {
        if self.now < race.asked_at + ASK_AGAIN {
            return;
        }
        let Some((meta_leader, _)) = self.newest_leader(META_REGION) else { return };
        race.asked_at = self.now;
        let operator = Operator::Split { region: race.region, reason: Reason::Requested };
        self.send(meta_leader, meta_leader, Packet::Asked(Asked::Operator(operator)));
    }

    /// Returns the region that was split off from the race's region on its leader's store.
    fn made_of(&self, race: &SplitRace) -> Option<RegionId> {
        let (leader, status) = self.newest_leader(race.region)?;
        let process = self.stores[&leader].process.as_ref()?;
        let end = status.descriptor.slots?.last;
        let follows = |region: &RegionId| {
            let shared = process.regions.get(region);
            let slots = shared.and_then(|shared| shared.descriptor.slots);
            *region >= race.next_region && slots.is_some_and(|slots| slots.first == end + 1)
        };
        process.shard.regions().find(follows)
    }

    fn race_status(&self, store: StoreId, region: RegionId) -> Option<RegionStatus> {
        self.stores.get(&store)?.process.as_ref()?.shard.status(region, 0)
    }

    /// Returns the store with the newest leader of a region.
    pub(crate) fn newest_leader(&self, region: RegionId) -> Option<(StoreId, RegionStatus)> {
        let leads = |&store: &StoreId| {
            let status = self.race_status(store, region).filter(|status| status.role == Role::Leader)?;
            Some((store, status))
        };
        self.stores.keys().filter_map(leads).max_by_key(|(_, status)| status.term)
    }

    pub(crate) fn voters_of(&self, status: &RegionStatus) -> Vec<StoreId> {
        let votes = status.descriptor.peers.iter().filter(|peer| peer.role != PeerRole::Learner);
        votes.map(|peer| peer.store).collect()
    }

    /// Returns the regions with keys that have a peer anywhere.
    pub(crate) fn regions_known(&self) -> Vec<RegionId> {
        let processes = self.stores.values().filter_map(|store| store.process.as_ref());
        let known: std::collections::BTreeSet<RegionId> =
            processes.flat_map(|process| process.shard.regions()).filter(|id| *id != META_REGION).collect();
        known.into_iter().collect()
    }

    /// Returns a number above those of all regions that are known anywhere.
    fn next_region(&self) -> RegionId {
        let processes = self.stores.values().filter_map(|store| store.process.as_ref());
        1 + processes.flat_map(|process| process.regions.keys()).copied().max().unwrap_or(META_REGION)
    }
}
