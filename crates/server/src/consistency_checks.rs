//! Computes checksums of this store's peers, and compares the reports of all stores.
//!
//! When the apply thread executes a check order, it calls [`Checks::begin`], which takes a view of
//! the rows as of exactly that index. A separate thread reads the view at a bounded rate, so
//! execution waits only for the view. Heartbeats carry the reports. [`Checks::look`] compares them.
//! Every store reaches the same verdict independently, so no message has to tell a peer that it is
//! in the minority.

mod words;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{CheckBook, CheckOutcome, CheckReport, Comparison, Verdict};
use parking_lot::Mutex;
use rocks::TokenBucket;
use storage::StorageError;
use tokio::sync::Notify;
use types::{LogIndex, RegionDescriptor, RegionId, StoreId};

use crate::clock;
use crate::ends::Ends;
use crate::engine::Engine;
use crate::loops::WorkerSender;
use crate::metrics::Metrics;
use crate::regions::Regions;

pub use words::in_words;

/// Maximum rate at which all checks of a store together read rows, in bytes per second.
pub const BYTES_PER_SECOND: u64 = 32 << 20;
/// Maximum number of checks in progress on a store. Leaders on several stores order checks
/// independently of each other. A check beyond the maximum is reported as skipped and ordered again
/// after the interval.
const AT_ONCE_MAX: usize = 4;
/// Interval at which a waiting check tests whether the store is stopping.
const STOP_LOOK: Duration = Duration::from_millis(100);

pub struct Checks {
    this: StoreId,
    regions: Arc<Regions>,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    worker: WorkerSender,
    ends: Arc<Ends>,
    /// A request for an early heartbeat.
    report_soon: Arc<Notify>,
    state: Mutex<State>,
    pace: Mutex<TokenBucket>,
    started: Instant,
    /// Notified of every new report.
    pub changed: Notify,
}

#[derive(Default)]
struct State {
    book: CheckBook,
    /// The number of times that each region's rows were replaced by a snapshot or removed.
    replaced: BTreeMap<RegionId, u64>,
    under_way: usize,
    /// The number of each region's check whose verdict was logged last.
    told: BTreeMap<RegionId, u64>,
}

/// An order in a region's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub region: RegionId,
    pub index: LogIndex,
    pub number: u64,
}

impl Order {
    fn report(self, outcome: CheckOutcome) -> CheckReport {
        CheckReport { region: self.region, number: self.number, index: self.index, outcome }
    }
}

/// A check in progress in its thread. Dropping it ends the check.
struct UnderWay {
    checks: Arc<Checks>,
    order: Order,
    /// The region's descriptor as of the order's index.
    descriptor: Arc<RegionDescriptor>,
    /// `State::replaced` of the region when the view was taken. While it is unchanged, the view
    /// shows the peer's rows.
    replaced: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.checks.state.lock().under_way -= 1;
    }
}

impl Checks {
    pub fn new(
        this: StoreId,
        regions: Arc<Regions>,
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        worker: WorkerSender,
        ends: Arc<Ends>,
        report_soon: Arc<Notify>,
    ) -> Checks {
        Checks {
            this,
            regions,
            engine,
            metrics,
            worker,
            ends,
            report_soon,
            state: Mutex::default(),
            pace: Mutex::new(TokenBucket::new(BYTES_PER_SECOND)),
            started: Instant::now(),
            changed: Notify::new(),
        }
    }

    /// Starts the check's thread and returns once that thread has taken its view of the rows. The
    /// executing thread must call it right after the order's entry, before it executes any later
    /// entry of the region.
    pub fn begin(self: &Arc<Checks>, order: Order) {
        let Some(region) = self.regions.get(order.region) else { return };
        let descriptor = region.descriptor();
        let replaced = {
            let mut state = self.state.lock();
            if state.under_way >= AT_ONCE_MAX {
                drop(state);
                tracing::info!(region = order.region, "a check is skipped: {AT_ONCE_MAX} are in progress");
                return self.report(order.report(CheckOutcome::Skipped), &descriptor);
            }
            state.under_way += 1;
            state.replaced.get(&order.region).copied().unwrap_or(0)
        };
        let check = UnderWay { checks: self.clone(), order, descriptor, replaced };
        let (sender, taken) = crossbeam_channel::bounded::<()>(1);
        let body = move || {
            let checks = check.checks.clone();
            let view = checks.engine.rows().view();
            drop(sender);
            check.run(&view);
        };
        match std::thread::Builder::new().name("check".to_owned()).spawn(body) {
            // Returns when the thread drops its end: it has taken the view or has ended.
            Ok(_) => drop(taken.recv()),
            Err(error) => {
                tracing::warn!(region = order.region, %error, "a check is skipped: no thread can be started");
                self.report(order.report(CheckOutcome::Skipped), &region.descriptor());
            }
        }
    }

    /// Voids the region's own report and its check in progress, because a snapshot replaces the
    /// rows or the peer is removed.
    pub fn withdraw(&self, region: RegionId) {
        let mut state = self.state.lock();
        *state.replaced.entry(region).or_default() += 1;
        state.book.withdraw(self.this, region);
    }

    /// Returns the reports for the next heartbeat.
    pub fn tell(&self) -> Vec<CheckReport> {
        self.state.lock().book.tell(clock::boot_nanos())
    }

    /// Adds another store's reports.
    pub fn hear(&self, from: StoreId, reports: &[CheckReport]) {
        if reports.is_empty() {
            return;
        }
        let decided = self.state.lock().book.hear(from, reports, clock::boot_nanos());
        if !decided.is_empty() {
            decided.into_iter().for_each(|region| self.look(region));
            self.changed.notify_waiters();
        }
    }

    /// Compares the reports of a check.
    pub fn compare(&self, order: Order, descriptor: &RegionDescriptor) -> Comparison {
        self.state.lock().book.compare(order.number, order.index, descriptor)
    }

    /// Returns the descriptor as of the check's index, once this store has its own report.
    pub fn descriptor_of(&self, order: Order) -> Option<RegionDescriptor> {
        let (report, descriptor, _) = self.state.lock().book.compare_own(order.region)?;
        (report.number == order.number).then_some(descriptor)
    }

    /// Returns the time since the region's last check, if this store has learned of one since it
    /// started.
    pub fn since_last(&self, region: RegionId) -> Option<Duration> {
        let at = self.state.lock().book.last(region)?;
        Some(Duration::from_nanos(clock::boot_nanos().saturating_sub(at)))
    }

    pub fn since_start(&self) -> Duration {
        self.started.elapsed()
    }

    fn report(&self, report: CheckReport, descriptor: &RegionDescriptor) {
        self.state.lock().book.report(self.this, report, descriptor.clone(), clock::boot_nanos());
        self.look(report.region);
        self.changed.notify_waiters();
        self.report_soon.notify_one();
    }

    /// Logs and counts the verdict of the region's last check, once, if this store leads the region
    /// or its peer is in the minority.
    fn look(&self, region: RegionId) {
        let (comparison, this_differs, leads) = {
            let mut state = self.state.lock();
            let Some((report, descriptor, comparison)) = state.book.compare_own(region) else { return };
            let this_differs =
                matches!(&comparison.verdict, Verdict::Minority { stores } if stores.contains(&self.this));
            let leads = self.regions.get(region).is_some_and(|region| self.regions.leads(&region));
            let is_decided =
                matches!(comparison.verdict, Verdict::Minority { .. }) || !comparison.is_open(&descriptor);
            let is_news = state.told.get(&region) != Some(&report.number);
            if !is_news || !is_decided || !(leads || this_differs) {
                return;
            }
            state.told.insert(region, report.number);
            (comparison, this_differs, leads)
        };
        match comparison.verdict {
            Verdict::Equal => {
                self.metrics.checks_equal.inc();
                tracing::debug!(region, index = comparison.index, "the region's replicas are equal");
            }
            Verdict::Minority { .. } | Verdict::NoMajority => {
                self.metrics.checks_different.inc();
                tracing::error!(
                    region,
                    index = comparison.index,
                    store = self.this,
                    leads,
                    this_differs,
                    "{}",
                    in_words(&comparison)
                );
                if this_differs {
                    let differs = node::Input::Differs { region, checked: comparison.index };
                    let _ = self.worker.step(differs);
                }
            }
            Verdict::Incomplete { .. } => {}
        }
    }

    /// Waits until these bytes may be read. Returns `Break` if the store stops.
    fn wait_for_turn(&self, bytes: u64) -> ControlFlow<()> {
        let mut left = self.pace.lock().take(bytes, self.started.elapsed());
        loop {
            if self.ends.is_stopping() {
                return ControlFlow::Break(());
            }
            if left.is_zero() {
                return ControlFlow::Continue(());
            }
            let part = left.min(STOP_LOOK);
            std::thread::sleep(part);
            left -= part;
        }
    }
}

impl UnderWay {
    fn run(self, view: &rocks::View<'_>) {
        let began = Instant::now();
        let Order { region, index, .. } = self.order;
        let checks = &self.checks;
        let mut bytes_read = 0;
        let mut pace = |bytes| {
            bytes_read += bytes;
            checks.wait_for_turn(bytes)
        };
        let computed =
            catch_unwind(AssertUnwindSafe(|| storage::checksum::of_region(view, region, &mut pace)));
        let outcome = match computed {
            Ok(Ok(Some(checked))) if checked.state.applied_index == index => CheckOutcome::Rows(checked.rows),
            Ok(Ok(Some(checked))) => {
                let applied = checked.state.applied_index;
                tracing::error!(
                    region,
                    index,
                    applied,
                    "the rows to check are of another index: the check is void"
                );
                CheckOutcome::Skipped
            }
            Ok(Ok(None)) => CheckOutcome::Skipped,
            Ok(Err(error @ StorageError::Damaged(_))) => {
                checks.ends.rows_failed(&format!("a check of region {region} cannot read rows"), &error);
                CheckOutcome::Skipped
            }
            Ok(Err(error)) => {
                tracing::error!(region, index, %error, "rows cannot be read: the device or its files are damaged");
                CheckOutcome::Unreadable
            }
            Err(_) => {
                tracing::error!(region, index, "reading rows for a check panicked");
                CheckOutcome::Unreadable
            }
        };
        checks.metrics.checksums.inc();
        checks.metrics.checksum_bytes.inc_by(bytes_read);
        tracing::debug!(region, index, ?outcome, took = ?began.elapsed(), "checksum of a peer's rows");
        let is_current = checks.state.lock().replaced.get(&region).copied().unwrap_or(0) == self.replaced;
        if is_current {
            checks.report(self.order.report(outcome), &self.descriptor);
        }
    }
}

#[cfg(test)]
mod tests;
