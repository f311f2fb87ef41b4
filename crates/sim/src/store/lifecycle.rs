//! The thread that carries out peer lifecycles: the steps that replace rows with a snapshot, and
//! the steps that remove a peer, in the order that `node` gives. Between any two steps it may be
//! delayed, and the store may crash, while entries of other regions are executed.

use node::lifecycle::Step;
use node::recovery::StoredState;
use node::ApplyJob;
use replica::Input;
use types::{LogIndex, RegionDescriptor, RegionId, StoreId};
use wal::PeerLifecycle;

use crate::clock::{MILLISECOND, SECOND};
use crate::observation::Observation;
use crate::world::{Work, World};

/// Maximum time from a written mark to its report, in runs with late marks.
const LATEST_MARK: u64 = 5 * SECOND;

/// Returns the name under which a crash before the step is counted.
fn crash_before(step: &Step) -> &'static str {
    match step {
        Step::HideRows | Step::ReplaceRows { .. } => "crash before a snapshot is ingested",
        Step::Record(PeerLifecycle::Exists { .. } | PeerLifecycle::Applying { .. }) => {
            "crash after a snapshot is ingested"
        }
        Step::Load(_) | Step::TellApplied => "crash with a snapshot applied",
        Step::RemovePeer | Step::Record(PeerLifecycle::Tombstone { .. }) => "crash before a tombstone",
        Step::DeleteRows => "crash after a tombstone",
        Step::Flush => "crash before the rows of a peer's end are flushed",
        Step::RecordMark(_) => "crash before a mark is written",
        Step::TellHeld(_) | Step::TellReleased(_) => "crash after a mark is written",
        Step::DestroyLog { .. } | Step::ForgetMark | Step::TellDestroyed => {
            "crash before the log of a peer is destroyed"
        }
    }
}

impl World {
    pub(super) fn wake_lifecycle(&mut self, id: StoreId) {
        let slow = if self.rng.chance(10) { 100 } else { 1 };
        let mut delay = self.rng.below(3 * slow * MILLISECOND);
        let has_late_marks = self.plan.has_late_marks;
        let Some(process) = self.process(id) else { return };
        // Long enough for the operator to see the quarantine, and for a snapshot to arrive.
        if has_late_marks && matches!(process.lifecycle_steps.front(), Some((_, Step::TellHeld(_)))) {
            delay = self.rng.below(LATEST_MARK);
        }
        let Some(process) = self.process(id) else { return };
        if !process.lifecycle_steps.is_empty() && !std::mem::replace(&mut process.has_life, true) {
            self.schedule_work(id, delay, Work::Life);
        }
    }

    /// Carries out the next step.
    pub(super) fn live(&mut self, id: StoreId) {
        let Some(process) = self.process(id) else { return };
        process.has_life = false;
        if let Some(wait) = self.without_room(id) {
            let Some(process) = self.process(id) else { return };
            process.has_life = true;
            return self.schedule_work(id, wait, Work::Life);
        }
        let Some(process) = self.process(id) else { return };
        let Some((region, step)) = process.lifecycle_steps.pop_front() else { return };
        if self.may_crash(id, crash_before(&step)) {
            return;
        }
        self.do_step(id, region, step);
        self.wake_lifecycle(id);
    }

    fn do_step(&mut self, id: StoreId, region: RegionId, step: Step) {
        if matches!(step, Step::ReplaceRows { .. } | Step::Flush | Step::DeleteRows) {
            self.sync_before_flush(id);
        }
        match step {
            Step::HideRows => {
                if let Some(shared) = self.process(id).and_then(|process| process.regions.get_mut(&region)) {
                    shared.is_replaced = true;
                    shared.quarantine = None;
                }
                self.observe(&Observation::Released { store: id, region });
            }
            Step::ReplaceRows { descriptor, index, term } => {
                let Some(process) = self.process(id) else { return };
                if !std::mem::replace(&mut process.is_replacing, true) {
                    process
                        .lifecycle_steps
                        .push_front((region, Step::ReplaceRows { descriptor, index, term }));
                    let done = self.store_mut(id).durable.clear_for(region, index);
                    return self.must(id, done);
                }
                process.is_replacing = false;
                self.replace_rows(id, &descriptor, index);
            }
            Step::Record(life) => {
                if let PeerLifecycle::Tombstone { .. } = life {
                    self.tally.destroyed += 1;
                    self.say(&format!("store {id} no longer has a peer of region {region}"));
                }
                self.stores[&id].durable.disk.set_life(region, life);
            }
            Step::Load(descriptor) => {
                self.store_mut(id).durable.received.retain(|&(of, _), _| of != region);
                self.queue_job(id, ApplyJob::Reload(descriptor));
            }
            Step::TellApplied => self.tell(id, node::Input::SnapshotApplied { region }),
            Step::RemovePeer => {
                if let Some(shared) = self.process(id).and_then(|process| process.regions.get_mut(&region)) {
                    shared.is_local = false;
                    shared.lease = None;
                    shared.replacements += 1;
                    shared.quarantine = None;
                }
                self.observe(&Observation::Released { store: id, region });
            }
            Step::Flush => self.store_mut(id).durable.engine.flush(),
            Step::DeleteRows => {
                let done = self.store_mut(id).durable.delete_own_rows(region);
                self.must(id, done);
            }
            Step::DestroyLog { peer } => {
                let done = self.store_mut(id).durable.destroy_log(region, peer);
                self.must(id, done);
            }
            Step::RecordMark(mark) => {
                if mark.held.is_none() {
                    self.observe(&Observation::Released { store: id, region });
                }
                self.stores[&id].durable.disk.set_mark(region, Some(mark));
            }
            Step::ForgetMark => {
                let done = self.store_mut(id).durable.forget_mark(region);
                self.must(id, done);
            }
            Step::TellHeld(mark) => self.tell(id, node::Input::Held { region, mark }),
            Step::TellReleased(mark) => self.tell(id, node::Input::Released { region, mark }),
            Step::TellDestroyed => self.input(id, Input::Destroyed { region }),
        }
    }

    fn must(&mut self, id: StoreId, done: Result<(), String>) {
        if let Err(what) = done {
            self.violate("recovery", format!("store {id}: {what}"));
        }
    }

    fn replace_rows(&mut self, id: StoreId, promised: &RegionDescriptor, index: LogIndex) {
        let region = promised.id;
        if let Err(what) = self.store_mut(id).durable.ingest(region, index) {
            return self.violate("recovery", format!("store {id}: {what}"));
        }
        let Some((state, descriptor)) = self.stores[&id].durable.described(region) else {
            return self.violate("recovery", format!("store {id}: a snapshot without its own rows"));
        };
        if descriptor != *promised || state.applied_index != index {
            let at = state.applied_index;
            let what =
                format!("store {id}: a snapshot of {descriptor:?} at {at}, not {promised:?} at {index}");
            return self.violate("recovery", what);
        }
        self.tally.snapshots += 1;
        self.say(&format!("store {id} has applied a snapshot of region {region} at {index}"));
    }

    /// Tells the apply thread that a snapshot's rows are in place.
    pub(super) fn load(&mut self, id: StoreId, descriptor: &RegionDescriptor) {
        let region = descriptor.id;
        let Some((state, _)) = self.stores[&id].durable.described(region) else {
            return self.violate("recovery", format!("store {id}: no rows of region {region} to load"));
        };
        let Some(process) = self.process(id) else { return };
        process.load(descriptor, state);
        if region == types::META_REGION {
            self.load_meta(id);
        }
        self.show_rows(id, region);
    }
}
