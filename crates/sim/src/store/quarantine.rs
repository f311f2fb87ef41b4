//! Peers that are quarantined, entries that fail, and a simulated operator who decides about both.

use std::collections::BTreeMap;

use cluster::{Cause, Mark, Quarantine};
use command::order::Order;
use node::lifecycle::Job;
use node::{Input, Outcome, ToApply, Work as Proposal};
use placement::{Operator, Reason};
use replica::eraftpb::Entry;
use types::{LogIndex, RegionDescriptor, RegionId, StoreId, META_REGION};

use super::{Asker, Process};
use crate::client::PATIENCE;
use crate::clock::{MILLISECOND, SECOND};
use crate::observation::Observation;
use crate::world::{Asked, Event, Packet, World};

/// The state of a region's peer on a store, as an operator finds it.
#[derive(Clone, Debug)]
enum Standing {
    Away,
    NoRows,
    Applied(LogIndex),
    Held(Quarantine),
}

impl Process {
    /// Returns the quarantined peers, for heartbeats.
    pub(super) fn quarantined(&self) -> Vec<(RegionId, Quarantine)> {
        let held =
            |(region, shared): (&RegionId, &super::Shared)| Some((*region, shared.quarantine.clone()?));
        self.regions.iter().filter_map(held).collect()
    }
}

impl World {
    /// Loads the marks of the previous process.
    pub(super) fn load_marks(&mut self, id: StoreId, marks: BTreeMap<RegionId, Mark>) {
        let boot = self.boot(id);
        for (region, mark) in marks {
            let Some(process) = self.process(id) else { return };
            process.execution.load_mark(region, mark.clone());
            self.publish_quarantine(id, region, &mark);
            if let Some(process) = self.process(id) {
                process.shard.step(Input::Held { region, mark }, boot);
            }
        }
    }

    pub(super) fn begin_life(&mut self, id: StoreId, job: Job) {
        let Some(process) = self.process(id) else { return };
        if matches!(job, Job::Replace { .. } | Job::End { .. }) {
            process.checks.withdraw(id, job.region());
        }
        if let Some(job) = process.execution.begin(job) {
            self.carry_on_life(id, job);
        }
    }

    pub(super) fn carry_on_life(&mut self, id: StoreId, job: Job) {
        let region = job.region();
        if let Job::Hold { mark, .. } = &job {
            self.publish_quarantine(id, region, mark);
        }
        let Some(process) = self.process(id) else { return };
        process.lifecycle_steps.extend(job.steps().into_iter().map(|step| (region, step)));
        self.wake_lifecycle(id);
    }

    /// Publishes a quarantine to readers and heartbeats.
    fn publish_quarantine(&mut self, id: StoreId, region: RegionId, mark: &Mark) {
        let Some(held) = &mark.held else { return };
        self.say(&format!("store {id} is quarantined in region {region} at {}: {held:?}", held.index));
        let Some(process) = self.process(id) else { return };
        if let Some(shared) = process.regions.get_mut(&region) {
            shared.replacements += 1;
            shared.quarantine = Some(held.clone());
        }
    }

    pub(super) fn stop_applying(&mut self, id: StoreId, region: RegionId, index: LogIndex) {
        self.tally.quarantined += 1;
        self.observe(&Observation::Held { store: id, region, index });
        self.with_apply_queue(id, |queue, threads| queue.stop(region, index, threads));
        if !std::mem::replace(&mut self.is_attended, true) {
            self.schedule(SECOND, Event::Attend);
        }
    }

    pub(super) fn resume_applying(&mut self, id: StoreId, region: RegionId) {
        self.observe(&Observation::Released { store: id, region });
        self.say(&format!("store {id} resumes region {region}"));
        self.with_apply_queue(id, |queue, _| queue.resume(region));
        let Some(process) = self.process(id) else { return };
        if let Some(shared) = process.regions.get_mut(&region) {
            shared.quarantine = None;
        }
    }

    pub(super) fn leave_unanswered(&mut self, id: StoreId, entries: Vec<ToApply<Asker>>) {
        for client in entries.into_iter().filter_map(|apply| apply.waiting).flat_map(|one| one.clients()) {
            self.answer(id, client, Outcome::Unknown);
        }
    }

    pub(crate) fn fail_entry(&mut self) {
        if self.plan.is_over {
            return;
        }
        let pause = self.rng.between(1500, 8000) * MILLISECOND;
        self.schedule(pause, Event::FailEntry);
        let ids: Vec<StoreId> = self.stores.keys().copied().collect();
        let led: Vec<(StoreId, RegionId)> = ids
            .iter()
            .flat_map(|&id| self.stores[&id].led().into_iter().map(move |region| (id, region)))
            .collect();
        let Some((id, region)) = self.rng.pick(&led) else { return };
        let mut stores = Vec::new();
        if self.rng.chance(60) {
            stores.extend(self.rng.pick(&ids));
            stores.extend(self.rng.pick(&ids).filter(|_| self.rng.chance(30)));
        }
        self.tally.fault(if stores.is_empty() { "entry fails everywhere" } else { "entry fails on a store" });
        self.say(&format!("an entry of region {region} is to fail on {stores:?}"));
        let order = Order::Fail { by_panic: false, stores };
        self.submit(id, region, Proposal::Order(order), Asker::Meta);
    }

    /// Decides about each region with quarantined peers as docs/OPERATING.md says.
    pub(crate) fn attend(&mut self) {
        let pause = self.rng.between(500, 2500) * MILLISECOND;
        self.schedule(pause, Event::Attend);
        let processes = self.stores.values().filter_map(|store| store.process.as_ref());
        let mut newest: BTreeMap<RegionId, RegionDescriptor> = BTreeMap::new();
        for shared in processes.flat_map(|process| process.regions.values()) {
            let known = newest.entry(shared.descriptor.id).or_insert_with(|| shared.descriptor.clone());
            if shared.descriptor.epoch.is_newer_than(known.epoch) {
                *known = shared.descriptor.clone();
            }
        }
        for (region, descriptor) in newest.clone() {
            if let Some(heir) = newest.values().find(|heir| heir.absorbed.contains(&region)) {
                self.attend_merged(region, heir);
                continue;
            }
            if self.merged.contains(&region) {
                continue;
            }
            let peers: Vec<(StoreId, Standing)> =
                descriptor.peers.iter().map(|peer| (peer.store, self.standing(peer.store, region))).collect();
            if peers.iter().any(|(_, standing)| matches!(standing, Standing::Held(_))) {
                self.attend_region(&descriptor, &peers);
            }
        }
    }

    /// Handles a merged region whose quarantined peer blocks its heir's peer on the same store.
    fn attend_merged(&mut self, region: RegionId, heir: &RegionDescriptor) {
        for id in heir.peers.iter().map(|peer| peer.store) {
            if let Standing::Held(_) = self.standing(id, region) {
                return self.refill(heir, id);
            }
        }
    }

    /// Returns true if a peer of a running store is quarantined, or still executes committed
    /// entries, which may quarantine it.
    pub(crate) fn may_be_quarantined(&self) -> bool {
        let is_behind = |process: &Process, region: RegionId| {
            process.shard.status(region, 0).is_some_and(|status| status.applied < status.commit)
        };
        let processes = self.stores.values().filter_map(|store| store.process.as_ref());
        processes
            .flat_map(|process| process.regions.iter().map(move |each| (process, each)))
            .any(|(process, (region, shared))| shared.quarantine.is_some() || is_behind(process, *region))
    }

    fn standing(&self, id: StoreId, region: RegionId) -> Standing {
        let process = self.stores.get(&id).and_then(|store| store.process.as_ref());
        let Some(process) = process else { return Standing::Away };
        match process.regions.get(&region).filter(|shared| shared.is_local) {
            None => Standing::NoRows,
            Some(shared) => match &shared.quarantine {
                Some(held) => Standing::Held(held.clone()),
                None => Standing::Applied(shared.applied),
            },
        }
    }

    fn attend_region(&mut self, descriptor: &RegionDescriptor, peers: &[(StoreId, Standing)]) {
        let region = descriptor.id;
        let held: Vec<(StoreId, Quarantine)> = peers
            .iter()
            .filter_map(|(id, standing)| match standing {
                Standing::Held(held) => Some((*id, held.clone())),
                _ => None,
            })
            .collect();
        // An unclean peer is replaced without an operator, so the others are attended to first.
        let is_clean = |(id, _): &&(StoreId, Quarantine)| !self.is_unclean(descriptor, *id);
        let first = held.iter().find(is_clean).or(held.first());
        let Some((first, quarantine)) = first.cloned() else { return };
        if self.rng.chance(15) {
            let read_only = self.rng.chance(70);
            self.tell(first, Input::ReadOnly { region, read_only });
        }
        let is_upgraded = self.stores.values().all(|store| store.is_upgraded);
        // An entry for which a skip was ordered is not retried. Otherwise different stores could
        // skip and execute it.
        let may_retry = !self.skips_asked.contains_key(&(region, quarantine.index));
        if quarantine.cause != Cause::Rows && is_upgraded && may_retry {
            self.tally.retries += 1;
            self.retry_all(region, &held);
        }
        let is_at = |(_, standing): &(StoreId, Standing)| match standing {
            Standing::Held(held) => (held.index, held.cause) == (quarantine.index, Cause::Entry),
            // The peer takes a snapshot of the rows before the entry and will reach the entry.
            Standing::NoRows | Standing::Away | Standing::Applied(_) => false,
        };
        // A store that is lost permanently does not return with the entry executed. An unclean peer
        // takes no part in consensus and sends no answers.
        let is_lost = |id: &StoreId| {
            self.stores.get(id).is_none_or(|store| store.is_lost) || self.is_unclean(descriptor, *id)
        };
        // If different entries failed on different stores, or the entry of the only voter failed,
        // no voter is left to lead a change.
        let voters: Vec<StoreId> = descriptor.voters().collect();
        let is_well = |(id, standing): &(StoreId, Standing)| {
            !is_lost(id) && voters.contains(id) && !matches!(standing, Standing::Held(_) | Standing::NoRows)
        };
        if !peers.iter().any(is_well) && !peers.iter().filter(|(id, _)| !is_lost(id)).all(is_at) {
            return match is_upgraded {
                true if may_retry => self.retry_all(region, &held),
                true if self.is_skip_lost(region, quarantine.index) => {
                    self.skips_asked.remove(&(region, quarantine.index));
                }
                true => {}
                false => self.upgrade(),
            };
        }
        let standing: Vec<_> = peers.iter().filter(|(id, _)| !is_lost(id)).cloned().collect();
        if standing.iter().all(is_at) {
            match self.rng.chance(50) {
                true if self.has_change_behind(region, quarantine.index) && may_retry => self.upgrade(),
                true => self.order_skip(descriptor, quarantine.index),
                false if self.is_skip_lost(region, quarantine.index) => {
                    self.skips_asked.remove(&(region, quarantine.index));
                }
                false if !may_retry => self.order_skip(descriptor, quarantine.index),
                // It may fail again.
                false if self.rng.chance(30) => self.tell(first, Input::Retry { region }),
                false if self.rng.chance(30) => self.upgrade(),
                false => {}
            }
            return;
        }
        // Another peer has passed the entry, or knows the rows better, so a new peer replaces this
        // one.
        let has_passed = |standing: &Standing, index: LogIndex| match standing {
            Standing::Held(other) => other.index > index,
            Standing::Applied(applied) => *applied >= index,
            Standing::Away | Standing::NoRows => false,
        };
        let behind = held.iter().find(|(id, held)| {
            held.cause == Cause::Rows
                || standing.iter().any(|(other, standing)| other != id && has_passed(standing, held.index))
        });
        // A committed change of peers that a quarantined peer does not apply may prevent it from
        // leading, although the region needs its log. Alternatively, too many other voters are lost
        // to remove the peer. In both cases only a retry helps.
        let is_led = self.stores.values().any(|store| store.led().contains(&region));
        let Some((from, _)) = behind.cloned() else {
            let is_stuck = !is_led && self.has_change_behind(region, quarantine.index);
            if is_stuck && may_retry && self.rng.chance(20) {
                if is_upgraded {
                    self.retry_all(region, &held)
                } else {
                    self.upgrade()
                }
            }
            return;
        };
        if !self.is_calm && self.rng.chance(if is_led { 5 } else { 20 }) {
            return if is_upgraded { self.retry_all(region, &held) } else { self.upgrade() };
        }
        self.tell(from, Input::Raft(replica::Input::AdmitSnapshot { region }));
        self.refill(descriptor, from);
    }

    fn retry_all(&mut self, region: RegionId, held: &[(StoreId, Quarantine)]) {
        for (id, held) in held {
            if !self.skips_asked.contains_key(&(region, held.index)) {
                self.tell(*id, Input::Retry { region });
            }
        }
    }

    /// Returns true if a change of peers follows the entry. If the leader is lost before an order
    /// to skip the entry is committed, no peer can be elected, because a committed and unapplied
    /// change forbids elections.
    fn has_change_behind(&self, region: RegionId, index: LogIndex) -> bool {
        let has_change = |store: &super::Store| {
            store.durable.disk.with(region, |log| {
                log.entries.range(index + 1..).any(|(_, entry)| !entry.context.is_empty())
            })
        };
        self.stores.values().any(has_change)
    }

    /// Returns true if the order to skip an entry is in no log and can no longer come into one. A
    /// log that is truncated beyond the entry may have held the order, which was executed then.
    fn is_skip_lost(&self, region: RegionId, index: LogIndex) -> bool {
        let skips = |entry: &Entry| {
            let order = Order::decode(&entry.data);
            matches!(order, Ok(Some(Order::Skip(of))) if of == index)
        };
        let may_be_there = |store: &super::Store| {
            store.durable.disk.with(region, |log| log.truncated.0 >= index || log.entries.values().any(skips))
        };
        let asked_at = self.skips_asked.get(&(region, index));
        asked_at.is_some_and(|at| self.now > at + PATIENCE) && !self.stores.values().any(may_be_there)
    }

    fn order_skip(&mut self, descriptor: &RegionDescriptor, index: LogIndex) {
        let region = descriptor.id;
        let ids: Vec<StoreId> = self.stores.keys().copied().collect();
        let Some(leader) = ids.into_iter().find(|id| self.stores[id].led().contains(&region)) else { return };
        self.tally.skips += 1;
        self.skips_asked.insert((region, index), self.now);
        let is_given_up = |id: &StoreId| {
            self.stores[id].is_lost || !descriptor.has_peer_on(*id) || self.is_unclean(descriptor, *id)
        };
        let given_up: Vec<StoreId> = self.stores.keys().copied().filter(is_given_up).collect();
        self.observe(&Observation::SkipOrdered { region, index, given_up: &given_up });
        self.say(&format!("entry {index} of region {region} is to be skipped"));
        self.submit(leader, region, Proposal::Order(Order::Skip(index)), Asker::Meta);
    }

    /// Gives every store a program that executes the entry. A quarantine survives the upgrade.
    fn upgrade(&mut self) {
        let ids: Vec<StoreId> = self.stores.keys().copied().collect();
        for (at, id) in ids.into_iter().enumerate() {
            self.store_mut(id).is_upgraded = true;
            if self.stores[&id].process.is_some() {
                self.crash(id, false);
                let down = (50 + 400 * at as u64) * MILLISECOND;
                self.schedule(down, Event::Start { store: id });
            }
        }
        self.say("every store is upgraded");
    }

    fn refill(&mut self, descriptor: &RegionDescriptor, from: StoreId) {
        let region = descriptor.id;
        let ids: Vec<StoreId> = self.stores.keys().copied().collect();
        let Some(leader) = ids.iter().copied().find(|id| self.stores[id].led().contains(&META_REGION)) else {
            return;
        };
        let reason = Reason::Requested;
        let spare = ids.iter().copied().find(|id| {
            !descriptor.has_peer_on(*id) && self.stores[id].process.is_some() && !self.stores[id].is_removed
        });
        let operator = match spare.filter(|_| self.rng.chance(50)) {
            Some(to) => Operator::AddPeer { region, to, reason },
            None => Operator::RemovePeer { region, from, reason },
        };
        self.tally.refills += 1;
        self.send(leader, leader, Packet::Asked(Asked::Operator(operator)));
    }
}
