//! Checksums of this store's peers, and what all stores report of theirs.
//!
//! The apply thread meets the order in a region's log and has [`Checks::begin`] take a view of the rows as of exactly
//! that index. A thread of the check's own reads the view at a bounded rate, so that execution waits for the view and
//! for nothing else. Heartbeats carry the report. [`Checks::look`] compares what was heard: every store comes to the
//! same verdict by itself, so a peer in the minority hears of it without an order that might be lost.

mod words;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{CheckBook, CheckOutcome, CheckReport, Comparison, Verdict};
use parking_lot::Mutex;
use rocks::snapshot::TokenBucket;
use tokio::sync::Notify;
use types::{LogIndex, RegionDescriptor, RegionId, StoreId};

use crate::clock;
use crate::ends::Ends;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::regions::Regions;

pub use words::in_words;

/// Bytes of rows per second that all checks of a store read together.
pub const BYTES_PER_SECOND: u64 = 32 << 20;
/// Checks under way at once. Leaders on several stores order checks independently of each other; what is beyond this is
/// reported as skipped and ordered again after the interval.
const AT_ONCE_MAX: usize = 4;
/// A check that waits for its turn looks this often whether the store stops.
const STOP_LOOK: Duration = Duration::from_millis(100);

pub struct Checks {
    this: StoreId,
    regions: Arc<Regions>,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    ends: Arc<Ends>,
    /// Rung when the next heartbeat should not wait for its turn.
    report_soon: Arc<Notify>,
    state: Mutex<State>,
    pace: Mutex<TokenBucket>,
    started: Instant,
    /// Rung whenever a report came that is news.
    pub news: Notify,
}

#[derive(Default)]
struct State {
    book: CheckBook,
    /// By region, how often its rows came or went by other means than entries.
    replaced: BTreeMap<RegionId, u64>,
    under_way: usize,
    /// The check of each region of which the verdict was told last.
    told: BTreeMap<RegionId, u64>,
}

/// An order of the region's log, as the apply thread meets it.
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

/// A check in its thread. Dropped, it is not under way any more.
struct UnderWay {
    checks: Arc<Checks>,
    order: Order,
    /// As of the order's index.
    descriptor: Arc<RegionDescriptor>,
    /// The rows of the view are the peer's as long as this is unchanged.
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
        ends: Arc<Ends>,
        report_soon: Arc<Notify>,
    ) -> Checks {
        Checks {
            this,
            regions,
            engine,
            metrics,
            ends,
            report_soon,
            state: Mutex::default(),
            pace: Mutex::new(TokenBucket::new(BYTES_PER_SECOND)),
            started: Instant::now(),
            news: Notify::new(),
        }
    }

    /// Takes a view of the region's rows, which are as of the order's index, and has its checksum computed. Returns
    /// once the view is taken. To be called by whoever executes, before anything else of the region is executed.
    pub fn begin(self: &Arc<Checks>, order: Order) {
        let Some(region) = self.regions.get(order.region) else { return };
        let descriptor = region.descriptor();
        let replaced = {
            let mut state = self.state.lock();
            if state.under_way >= AT_ONCE_MAX {
                drop(state);
                tracing::info!(region = order.region, "a check is skipped: {AT_ONCE_MAX} are under way");
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
            // Ends when the thread drops its end: the view is taken, or the thread is gone.
            Ok(_) => drop(taken.recv()),
            Err(error) => {
                tracing::warn!(region = order.region, %error, "a check is skipped: no thread can be started");
                self.report(order.report(CheckOutcome::Skipped), &region.descriptor());
            }
        }
    }

    /// The region's rows are replaced by a snapshot's, or the peer is gone: its reports say nothing any more.
    pub fn withdraw(&self, region: RegionId) {
        let mut state = self.state.lock();
        *state.replaced.entry(region).or_default() += 1;
        state.book.withdraw(self.this, region);
    }

    /// What the next heartbeat tells.
    pub fn tell(&self) -> Vec<CheckReport> {
        self.state.lock().book.tell(clock::boot_nanos())
    }

    /// Takes in what another store tells.
    pub fn hear(&self, from: StoreId, reports: &[CheckReport]) {
        if reports.is_empty() {
            return;
        }
        let news = self.state.lock().book.hear(from, reports, clock::boot_nanos());
        if !news.is_empty() {
            news.into_iter().for_each(|region| self.look(region));
            self.news.notify_waiters();
        }
    }

    /// The reports of a check, compared.
    pub fn compare(&self, order: Order, descriptor: &RegionDescriptor) -> Comparison {
        self.state.lock().book.compare(order.number, order.index, descriptor)
    }

    /// The descriptor as of the check's index, once this store has computed its own part of it.
    pub fn descriptor_of(&self, order: Order) -> Option<RegionDescriptor> {
        let (report, descriptor, _) = self.state.lock().book.compare_own(order.region)?;
        (report.number == order.number).then_some(descriptor)
    }

    /// How long ago the region was checked last, as far as this store heard since it started.
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
        self.news.notify_waiters();
        self.report_soon.notify_one();
    }

    /// Says what the reports of the region's last check come to, once, if this store leads the region or its peer is
    /// in the minority.
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
            }
            Verdict::Incomplete { .. } => {}
        }
    }

    /// Waits until these bytes may be read. `Break`: the store stops.
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
                    "rows to check are of another index: the check is void"
                );
                CheckOutcome::Skipped
            }
            Ok(Ok(None)) => CheckOutcome::Skipped,
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
