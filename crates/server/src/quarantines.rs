//! This store's peers that are quarantined, for readers, heartbeats, operators and metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{Cause, Quarantine};
use parking_lot::Mutex;
use tokio::sync::Notify;
use types::{RegionId, StoreId};

use crate::metrics::Metrics;
use crate::regions::Regions;

pub struct Quarantines {
    this: StoreId,
    held: Mutex<BTreeMap<RegionId, Quarantine>>,
    regions: Arc<Regions>,
    metrics: Arc<Metrics>,
    /// A request to tell other stores of a change soon.
    report_soon: Arc<Notify>,
}

impl Quarantines {
    pub fn new(
        this: StoreId,
        regions: Arc<Regions>,
        metrics: Arc<Metrics>,
        report_soon: Arc<Notify>,
    ) -> Quarantines {
        Quarantines { this, held: Mutex::default(), regions, metrics, report_soon }
    }

    /// Publishes the quarantine of the region's peer, or a change of it. `None` means that the peer
    /// is no longer quarantined.
    pub fn publish(&self, region: RegionId, quarantine: Option<Quarantine>) {
        self.regions.set_quarantined(region, quarantine.as_ref().map(|held| held.read_only));
        let mut held = self.held.lock();
        let before = match &quarantine {
            Some(quarantine) => held.insert(region, quarantine.clone()),
            None => held.remove(&region),
        };
        self.metrics.set_quarantined(&held);
        drop(held);
        if before == quarantine {
            return;
        }
        self.report_soon.notify_one();
        match (before, quarantine) {
            (None, Some(held)) => {
                self.metrics.quarantines.inc();
                tracing::error!(
                    region,
                    index = held.index,
                    store = self.this,
                    what = held.what,
                    error = held.error,
                    "{}",
                    in_words(region, &held)
                );
            }
            (Some(_), None) => tracing::info!(region, "the region's peer is not quarantined any more"),
            (_, Some(held)) => {
                tracing::info!(region, read_only = held.read_only, "the region's peer stays quarantined");
            }
            (None, None) => {}
        }
    }

    pub fn get(&self, region: RegionId) -> Option<Quarantine> {
        self.held.lock().get(&region).cloned()
    }

    /// By region, ascending.
    pub fn all(&self) -> Vec<(RegionId, Quarantine)> {
        self.held.lock().iter().map(|(region, held)| (*region, held.clone())).collect()
    }
}

/// Returns the cause of the quarantine, its consequences and the operator's next step, as text.
pub fn in_words(region: RegionId, held: &Quarantine) -> String {
    let Quarantine { index, cause, what, error, .. } = held;
    match cause {
        Cause::Rows => format!(
            "the peer of region {region} on this store is quarantined: {error} ({what}). It serves and leads nothing, \
             and its rows are kept; once they are not needed: steelyard ctl quarantine refill {region} STORE"
        ),
        Cause::Damage if held.read_only => format!(
            "the peer of region {region} on this store is quarantined: {what} are lost with a damaged file ({error}). No \
             other store has the region. What is left is served to connections that said READONLY; once nothing else \
             can be saved: steelyard ctl accept-loss --region {region}"
        ),
        Cause::Damage => format!(
            "the peer of region {region} on this store is quarantined: {what} were in a damaged file ({error}). It \
             serves and leads nothing until the region's other peers have replaced it"
        ),
        Cause::Entry | Cause::Change => format!(
            "the peer of region {region} on this store is quarantined: entry {index} ({what}) cannot be executed: \
             {error}. The peer serves and leads nothing until an operator decides: steelyard ctl quarantine list"
        ),
    }
}
