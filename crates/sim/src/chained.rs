//! Chained replication: a part of the seeds sends entries along a chain of followers, and some of
//! them change the way while they run.
//!
//! A directed fault follows when all other faults have ended: a follower that passes entries on is
//! isolated. The followers behind it must catch up nevertheless.

use std::collections::BTreeMap;

use replica::{Replication, Role};
use types::{LogIndex, RegionId, StoreId, Term};

use crate::clock::{MILLISECOND, SECOND};
use crate::rng::Rng;
use crate::run::ask_for_all;
use crate::world::{Event, Work, World};

/// Salt and percentage of the seeds with chains, and the percentage of these that change the way.
const CHAINED: u64 = 0x1f7a_93c5_2e84_d60b;
const CHAINED_PERCENT: u64 = 10;
const SWITCHING_PERCENT: u64 = 40;

/// Time that chains get to form.
const FORMING: u64 = 600 * MILLISECOND;
/// Time for which the follower is isolated.
const ISOLATED: u64 = 5 * SECOND;
/// Maximum time until an entry that was lost with the isolated follower reaches the others. Relayed
/// appends count as lost after half a second; the next heartbeat and its answer come then.
const CATCH_UP: u64 = 2 * SECOND;
const LOOK: u64 = 50 * MILLISECOND;

/// The name in the tally.
pub const MIDDLE_ISOLATED: &str = "middle of a chain isolated";

/// The way in which a seed's stores replicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chaining {
    replication: Replication,
    switches: bool,
}

impl Chaining {
    pub fn of(seed: u64) -> Option<Chaining> {
        let mut rng = Rng::new(seed ^ CHAINED);
        let is_chained = rng.chance(CHAINED_PERCENT);
        let switches = rng.chance(SWITCHING_PERCENT);
        is_chained.then_some(Chaining { replication: Replication::Chained, switches })
    }
}

/// A region that one store leads, with the followers that had its whole log.
struct Watched {
    leader: StoreId,
    term: Term,
    followers: Vec<StoreId>,
    /// The ends of the leader's log at the last looks, oldest first.
    ends: Vec<(u64, LogIndex)>,
}

impl World {
    pub(crate) fn replication(&self) -> Replication {
        self.chaining.map_or(Replication::Direct, |chaining| chaining.replication)
    }

    /// Schedules changes of the way if the seed has them.
    pub(crate) fn draw_chaining(&mut self) {
        let Some(chaining) = self.chaining else { return };
        self.tally.chained_runs += 1;
        if chaining.switches {
            self.schedule(2 * SECOND, Event::SwitchReplication);
        }
    }

    /// Changes the way of replication. The stores learn it one after another.
    pub(crate) fn switch_replication(&mut self) {
        let Some(chaining) = self.chaining.as_mut().filter(|_| !self.plan.is_over) else { return };
        chaining.replication = match chaining.replication {
            Replication::Direct => Replication::Chained,
            Replication::Chained => Replication::Direct,
        };
        let now = chaining.replication;
        self.tally.replication_changes += 1;
        self.say(&format!("from now on replication is {now:?}"));
        for store in self.stores.keys().copied().collect::<Vec<_>>() {
            let delay = self.rng.below(800) * MILLISECOND;
            self.schedule_work(store, delay, Work::LearnReplication);
        }
        let pause = self.rng.between(2000, 9000) * MILLISECOND;
        self.schedule(pause, Event::SwitchReplication);
    }

    /// Isolates the first follower of a chain, if there is one, while clients write.
    pub(crate) fn follow_without_the_middle(&mut self) {
        if self.replication() != Replication::Chained {
            return;
        }
        ask_for_all(self);
        let formed = self.now + FORMING;
        self.run_until(formed);
        let Some(middle) = self.first_of_a_chain() else { return };
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        self.tally.fault(MIDDLE_ISOLATED);
        self.say(&format!("fault: {MIDDLE_ISOLATED}: {middle}"));
        let mut watched = self.watched(middle);
        let partitions = [self.network.mute(middle, &stores), self.network.deafen(middle, &stores)];
        ask_for_all(self);
        let end = self.now + ISOLATED;
        while !self.is_over() && self.now < end {
            self.run_until(self.now + LOOK);
            self.look_at_followers(&mut watched);
        }
        partitions.into_iter().for_each(|partition| self.network.heal(partition));
    }

    fn led_regions(&mut self) -> Vec<(StoreId, replica::RegionStatus)> {
        let mut led = Vec::new();
        for store in self.stores.keys().copied().collect::<Vec<_>>() {
            let boot = self.boot(store);
            let Some(process) = self.process(store) else { continue };
            let statuses = process.shard.regions().filter_map(|region| process.shard.status(region, boot));
            led.extend(statuses.filter(|status| status.role == Role::Leader).map(|status| (store, status)));
        }
        led
    }

    fn first_of_a_chain(&mut self) -> Option<StoreId> {
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let mut firsts = Vec::new();
        for store in stores {
            let Some(process) = self.process(store) else { continue };
            let chains = process.shard.regions().map(|region| process.shard.chain(region));
            firsts.extend(chains.filter(|chain| chain.len() > 1).map(|chain| chain[0]));
        }
        self.rng.pick(&firsts)
    }

    fn watched(&mut self, middle: StoreId) -> BTreeMap<RegionId, Watched> {
        let led = self.led_regions().into_iter().filter(|(leader, _)| *leader != middle);
        led.map(|(leader, status)| {
            let is_complete = |peer: &replica::PeerProgress| peer.is_active && peer.matched == status.last;
            let others = status.peers.iter().filter(|(&store, _)| store != leader && store != middle);
            let followers = others.filter(|(_, peer)| is_complete(peer)).map(|(&store, _)| store).collect();
            let watched = Watched { leader, term: status.term, followers, ends: Vec::new() };
            (status.descriptor.id, watched)
        })
        .collect()
    }

    fn look_at_followers(&mut self, watched: &mut BTreeMap<RegionId, Watched>) {
        let led = self.led_regions();
        let now = self.now;
        watched.retain(|region, watched| {
            led.iter().any(|(leader, status)| {
                (*leader, status.term, status.descriptor.id) == (watched.leader, watched.term, *region)
            })
        });
        for (_, status) in led {
            let Some(watched) = watched.get_mut(&status.descriptor.id) else { continue };
            watched.ends.push((now, status.last));
            let due = watched.ends.iter().rev().find(|(at, _)| now - at >= CATCH_UP).map(|(_, end)| *end);
            watched.followers.retain(|store| status.peers.contains_key(store));
            let behind =
                watched.followers.iter().find(|store| status.peers[store].matched < due.unwrap_or(0));
            if let Some(&store) = behind {
                let what = format!(
                    "region {}: store {store} is at {} and misses entry {due:?} of its chain",
                    status.descriptor.id, status.peers[&store].matched
                );
                self.violate("liveness", what);
            }
        }
    }
}
