//! Checks by checksums. Leaders order them at intervals, stores compute them in parallel with
//! execution, and every store that receives the reports compares them.

use cluster::{CheckOutcome, CheckReport, Verdict};
use command::order::Order;
use node::Work as Proposal;
use storage::Checksum;
use types::{LogIndex, RegionId, StoreId};

use super::Asker;
use crate::clock::MILLISECOND;
use crate::durable::Snapshot;
use crate::observation::Observation;
use crate::world::{Work, World};

/// Number of heartbeats between two checks of a region that does not hibernate.
const PERIOD: u64 = 8;

impl World {
    /// Orders the checks that are due at `id`, in half of the seeds. An order is a log entry, and a
    /// voter that misses it cannot win an election. Checks in all seeds would leave clusters with
    /// idle logs untested.
    pub(super) fn order_checks(&mut self, id: StoreId) {
        if self.seed % 2 == 1 {
            return;
        }
        let Some(process) = self.process(id) else { return };
        let (seq, number) = (process.seq, process.incarnation.wrapping_mul(4096) + process.seq);
        let awake: Vec<RegionId> = process.shard.awake().collect();
        let is_due = |region: &RegionId| (seq + region) % PERIOD == 0 && awake.contains(region);
        for region in self.stores[&id].led().into_iter().filter(is_due) {
            self.submit(id, region, Proposal::Order(Order::Checksum(number)), Asker::Meta);
        }
    }

    /// Takes a view of the rows at exactly the index of the check's entry. It is read later, while
    /// the region continues.
    pub(super) fn begin_check(&mut self, id: StoreId, region: RegionId, index: LogIndex, number: u64) {
        let Some(view) = self.stores[&id].durable.view(region).map(Box::new) else {
            return self.violate("equal-replicas", format!("store {id} has no rows of region {region}"));
        };
        if view.state.applied_index != index {
            let what = format!("store {id} views index {} instead of {index}", view.state.applied_index);
            return self.violate("equal-replicas", what);
        }
        let Some(process) = self.process(id) else { return };
        let replaced = process.regions.get(&region).map_or(0, |shared| shared.replacements);
        let delay = self.rng.below(600) * MILLISECOND;
        self.schedule_work(id, delay, Work::Checked { view, number, replaced });
    }

    pub(super) fn checked(&mut self, id: StoreId, view: Snapshot, number: u64, replaced: u64) {
        if self.may_crash(id, "crash between a check's view and its report") {
            return;
        }
        let boot = self.boot(id);
        let (region, index) = (view.descriptor.id, view.state.applied_index);
        let mut sum = Checksum::default();
        view.rows.iter().chain(&view.own).for_each(|(row, value)| sum.add(row, value));
        let report = CheckReport { region, number, index, outcome: CheckOutcome::Rows(sum.finish()) };
        let Some(process) = self.process(id) else { return };
        let is_current = process
            .regions
            .get(&region)
            .is_some_and(|shared| shared.is_local && !shared.is_replaced && shared.replacements == replaced);
        if is_current {
            process.checks.report(id, report, view.descriptor, boot);
            self.tally.checks += 1;
            self.compare(id, region);
        }
    }

    pub(super) fn hear_checks(&mut self, id: StoreId, from: StoreId, reports: &[CheckReport]) {
        let boot = self.boot(id);
        let Some(process) = self.process(id) else { return };
        for region in process.checks.hear(from, reports, boot) {
            self.compare(id, region);
        }
    }

    fn compare(&mut self, id: StoreId, region: RegionId) {
        let Some(process) = self.process(id) else { return };
        let Some((report, _, comparison)) = process.checks.compare_own(region) else { return };
        let differs = matches!(&comparison.verdict, Verdict::Minority { stores } if stores.contains(&id));
        if differs {
            self.tell(id, node::Input::Differs { region, checked: report.index });
        }
        self.tally.checks_equal += u64::from(comparison.verdict == Verdict::Equal);
        self.observe(&Observation::Compared { store: id, comparison: &comparison });
    }
}
