//! A store whose device hangs: an operation returns neither success nor an error.
//!
//! [`HangWatch`] decides from the oldest pending operation whether the device hangs. While the
//! device hangs, the store's peers neither campaign nor take over leadership
//! (`replica::Input::DeviceHangs`), the store's heartbeats report the hang, and [`HangRelief`]
//! moves the leadership of its regions to other stores. It transfers each region to an up-to-date
//! voter, which needs no log write of this store. If that fails, the leader steps down, and the
//! other voters elect a new one.

use std::collections::BTreeMap;

use types::{BootNanos, RegionId, StoreId};

use crate::failpoints::Failpoint;
use crate::hand_over::{HandOver, Led};

/// Limits of the watch, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct HangTimes {
    /// Time without an answer after which the device counts as hanging, for an operation of no
    /// bytes.
    pub after_nanos: u64,
    /// Minimum write rate of a healthy device, in bytes per second. An operation may take longer by
    /// the time that its bytes take at this rate.
    pub bytes_per_s: u64,
    /// Time during which the device must answer before it no longer counts as hanging.
    pub healthy_nanos: u64,
    /// Maximum time that one look adds to the waiting time. If two looks are further apart, the
    /// process was suspended in between and did not wait for its device.
    pub look_nanos_max: u64,
}

/// A pending operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub began: BootNanos,
    /// Number of bytes that the device writes before it answers.
    pub bytes: u64,
}

/// Watches the operations of one kind.
#[derive(Debug)]
pub struct HangWatch {
    times: HangTimes,
    looked_at: Option<BootNanos>,
    /// The start of the operation that was the oldest at the last look.
    began: Option<BootNanos>,
    waited_nanos: u64,
    is_hanging: bool,
    /// The time of the last look at which an operation had waited for a notable time.
    slow_at: BootNanos,
}

impl HangWatch {
    pub fn new(times: HangTimes) -> HangWatch {
        HangWatch { times, looked_at: None, began: None, waited_nanos: 0, is_hanging: false, slow_at: 0 }
    }

    /// Looks at the oldest pending operation. Returns true while the device hangs.
    pub fn look(&mut self, pending: Option<Pending>, now: BootNanos) -> bool {
        let since_look = now.saturating_sub(self.looked_at.unwrap_or(now)).min(self.times.look_nanos_max);
        self.looked_at = Some(now);
        let began = pending.map(|pending| pending.began);
        let before = if began == self.began { self.waited_nanos } else { 0 };
        self.began = began;
        self.waited_nanos = pending
            .map_or(0, |pending| before.saturating_add(since_look).min(now.saturating_sub(pending.began)));
        let writing = pending.map_or(0, |pending| {
            let nanos = u128::from(pending.bytes) * 1_000_000_000 / u128::from(self.times.bytes_per_s.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        let idle = self.waited_nanos.saturating_sub(writing);
        if idle >= self.times.after_nanos / 4 {
            self.slow_at = now;
        }
        if idle >= self.times.after_nanos {
            self.is_hanging = true;
        } else if self.is_hanging && now.saturating_sub(self.slow_at) >= self.times.healthy_nanos {
            self.is_hanging = false;
        }
        self.is_hanging
    }

    pub fn is_hanging(&self) -> bool {
        self.is_hanging
    }

    /// Returns the time in nanoseconds for which the oldest operation has waited.
    pub fn waited_nanos(&self) -> u64 {
        self.waited_nanos
    }
}

/// The next actions of a store whose device hangs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReliefStep {
    /// Transfers to start, as region and target store.
    pub transfers: Vec<(RegionId, StoreId)>,
    /// Regions whose leadership this store gives up without naming a successor.
    pub step_downs: Vec<RegionId>,
}

/// Moves the leadership of regions away from a store whose device hangs. Each hang uses a new
/// value.
#[derive(Debug, Default)]
pub struct HangRelief {
    hand_over: HandOver,
    /// The time since which another store could have led each region.
    led_since: BTreeMap<RegionId, BootNanos>,
}

impl HangRelief {
    /// Returns the next actions. Each region is offered once to an up-to-date voter. If no voter
    /// has taken over within `patience_nanos`, the store steps down. It continues to lead a region
    /// whose other voters cannot elect a leader: otherwise the region would have no leader, and its
    /// reads would get no answer.
    pub fn step(&mut self, led: &[Led], patience_nanos: u64, now: BootNanos) -> ReliefStep {
        if Failpoint::LeadsWhileHanging.is_on() {
            return ReliefStep::default();
        }
        let movable: Vec<Led> = led.iter().filter(|led| led.can_elect).cloned().collect();
        self.led_since.retain(|region, _| movable.iter().any(|led| led.region == *region));
        let is_over = |led: &Led| {
            let since = self.led_since.get(&led.region);
            since.is_some_and(|since| now.saturating_sub(*since) >= patience_nanos)
        };
        let (late, fresh): (Vec<Led>, Vec<Led>) = movable.into_iter().partition(is_over);
        for led in &fresh {
            self.led_since.entry(led.region).or_insert(now);
        }
        let step_downs = late.iter().map(|led| led.region).collect();
        let heirs: Vec<Led> = fresh.into_iter().filter(Led::has_up_to_date_heir).collect();
        ReliefStep { transfers: self.hand_over.transfers(&heirs, u64::MAX, now), step_downs }
    }
}

#[cfg(test)]
mod tests;
