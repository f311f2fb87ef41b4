//! A directed fault: a machine crashes and forgets what its store acknowledged, while the leader
//! that remembers it is silent.
//!
//! An unclean peer does no harm unless three things meet: it made the majority for an entry, the
//! other voters never had that entry, and they elect a leader without the old one. Faults at random
//! seldom bring them together. Here a leader reaches only one of its followers for a while; then
//! that follower's machine crashes, and the leader is silent in the region until the others could
//! have elected another one. It happens in seeds with stores that acknowledge before they sync.
//!
//! This fault is drawn apart from the other faults, so that seeds without it are as they were.

use types::{RegionId, StoreId};

use crate::clock::{MILLISECOND, SECOND};
use crate::rng::Rng;
use crate::store::Fsync;
use crate::world::{Event, World};

/// Salt and percentage of the seeds with this fault among those with unsynced stores.
const FORGETTING: u64 = 0x5c0d_91e3_47b2_a86f;
const FORGETTING_PERCENT: u64 = 60;
/// The minimum of the mean pause between other faults in these seeds.
const UNDISTURBED: u64 = 3 * SECOND;
/// The time for which the leader is silent.
const SILENT: u64 = 4 * SECOND;

/// The name in the tally.
pub const FORGOT: &str = "entries forgotten while their leader was silent";

/// A leader that reaches only one of its followers.
#[derive(Debug)]
pub(crate) struct Forgetting {
    region: RegionId,
    leader: StoreId,
    follower: StoreId,
    partition: u64,
}

impl World {
    /// Schedules the first fault of this kind if the seed has them.
    pub(crate) fn draw_forgetting(&mut self) {
        let mut rng = Rng::new(self.seed ^ FORGETTING);
        if self.syncing.has_unsynced() && rng.chance(FORGETTING_PERCENT) {
            self.plan.pause_ns = self.plan.pause_ns.max(UNDISTURBED);
            self.schedule(2 * SECOND, Event::Forgetting);
        }
    }

    /// Isolates a leader with one follower, or crashes that follower and silences the leader.
    pub(crate) fn forget_entries(&mut self) {
        if self.plan.is_over {
            self.forgetting = None;
            return;
        }
        let pause = match self.forgetting.take() {
            None => {
                self.forgetting = self.isolate_two();
                self.rng.between(300, 900)
            }
            Some(pair) => {
                self.silence_and_crash(&pair);
                self.rng.between(5000, 8000)
            }
        };
        self.schedule(pause * MILLISECOND, Event::Forgetting);
    }

    fn isolate_two(&mut self) -> Option<Forgetting> {
        let regions = self.regions_known();
        let region = self.rng.pick(&regions)?;
        let (leader, status) = self.newest_leader(region)?;
        let others: Vec<StoreId> =
            self.voters_of(&status).into_iter().filter(|&store| store != leader).collect();
        let forgets = |store: &StoreId| self.stores[store].fsync != Fsync::Always;
        let forgetful: Vec<StoreId> = others.iter().copied().filter(forgets).collect();
        let follower = self.rng.pick(&forgetful).filter(|_| others.len() >= 2)?;
        let ignorant = others.into_iter().filter(|&store| store != follower);
        let links = ignorant.flat_map(|store| [(leader, store), (store, leader)]).collect();
        let partition = self.network.cut_regions(region..=region, links);
        Some(Forgetting { region, leader, follower, partition })
    }

    fn silence_and_crash(&mut self, pair: &Forgetting) {
        let Forgetting { region, leader, follower, partition } = *pair;
        let leads = self.newest_leader(region).is_some_and(|(store, _)| store == leader);
        if !leads || !self.machine_may_crash(follower) || self.stores[&follower].process.is_none() {
            return self.network.heal(partition);
        }
        self.tally.fault(FORGOT);
        self.say(&format!("fault: {FORGOT}: region {region}, leader {leader}, {follower} crashes"));
        let links = vec![(leader, follower), (follower, leader)];
        let silence = self.network.cut_regions(region..=region, links);
        let down = self.rng.between(20, 100) * MILLISECOND;
        self.crash_for(follower, down, true);
        for partition in [partition, silence] {
            self.schedule(SILENT, Event::Heal { partition });
        }
    }
}
