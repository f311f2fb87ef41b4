//! A directed fault: a machine crashes and loses entries that its store acknowledged, while the
//! leader that has them is silent.
//!
//! An unclean peer does no harm unless three conditions coincide: it was part of the majority for
//! an entry, the other voters never had that entry, and they elect a leader without the old one.
//! Random faults rarely combine these. Here a leader reaches only one of its followers for a while.
//! Then that follower's machine crashes, and the leader is silent until the others could have
//! elected another one. The fault occurs in seeds with stores that acknowledge before they sync.
//!
//! This fault is drawn separately from the other faults, so that seeds without it run as before.

use types::{RegionId, StoreId};

use crate::clock::{MILLISECOND, SECOND};
use crate::rng::Rng;
use crate::store::Fsync;
use crate::world::{Event, World};

/// Salt and percentage of the seeds with this fault among those with unsynced stores.
const FORGETTING: u64 = 0x5c0d_91e3_47b2_a86f;
const FORGETTING_PERCENT: u64 = 60;
/// Minimum of the mean pause between other faults in these seeds.
const UNDISTURBED: u64 = 3 * SECOND;
/// Interval between two looks at the isolated pair.
const LOOK: u64 = 20 * MILLISECOND;
/// Time for which the leader is silent.
const SILENT: u64 = 4 * SECOND;

/// The name in the tally.
pub const FORGOT: &str = "entries forgotten while their leader was silent";

/// A leader that reaches only one of its followers.
#[derive(Debug)]
pub(crate) struct Forgetting {
    region: RegionId,
    leader: StoreId,
    follower: StoreId,
    /// A voter that the leader does not reach.
    ignorant: StoreId,
    partitions: Vec<u64>,
    /// The time at which the leader's links are restored if nothing was committed.
    until: u64,
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
                LOOK
            }
            Some(pair) if self.now < pair.until && !self.has_committed(&pair) => {
                self.forgetting = Some(pair);
                LOOK
            }
            Some(pair) => {
                self.silence_and_crash(pair);
                self.rng.between(5000, 8000) * MILLISECOND
            }
        };
        self.schedule(pause, Event::Forgetting);
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
        let ignorant: Vec<StoreId> = others.into_iter().filter(|&store| store != follower).collect();
        // The cut drops the messages of all regions. Otherwise hibernating peers would wake when
        // their leader's store is silent.
        let partitions = ignorant.iter().map(|&store| self.network.cut(leader, store)).collect();
        let until = self.now + self.rng.between(400, 1200) * MILLISECOND;
        Some(Forgetting { region, leader, follower, ignorant: ignorant[0], partitions, until })
    }

    /// Returns true if the leader has committed an entry that the unreachable voter lacks.
    fn has_committed(&self, pair: &Forgetting) -> bool {
        let status = |store| self.stores.get(&store)?.process.as_ref()?.shard.status(pair.region, 0);
        let last = status(pair.ignorant).map(|status| status.last);
        let committed = status(pair.leader).map(|status| status.commit);
        last.zip(committed).is_some_and(|(last, committed)| committed > last)
    }

    fn silence_and_crash(&mut self, pair: Forgetting) {
        let is_ready = self.has_committed(&pair);
        let Forgetting { region, leader, follower, mut partitions, .. } = pair;
        let leads = self.newest_leader(region).is_some_and(|(store, _)| store == leader);
        if !leads
            || !is_ready
            || !self.machine_may_crash(follower)
            || self.stores[&follower].process.is_none()
        {
            return partitions.into_iter().for_each(|partition| self.network.heal(partition));
        }
        self.tally.fault(FORGOT);
        self.say(&format!("fault: {FORGOT}: region {region}, leader {leader}, {follower} crashes"));
        partitions.push(self.network.cut(leader, follower));
        let down = self.rng.between(20, 100) * MILLISECOND;
        // The crash loses everything that was not synced.
        self.stores[&follower].durable.disk.tear(0);
        self.crash_for(follower, down, true);
        for partition in partitions {
            self.schedule(SILENT, Event::Heal { partition });
        }
    }
}
