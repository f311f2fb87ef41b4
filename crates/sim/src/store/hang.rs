//! A store whose log device hangs. `node::hang` decides, and this module acts as a running store
//! does.

use node::hand_over::Led;
use node::hang::{HangRelief, HangTimes, HangWatch, Pending};
use replica::{Input, Role};
use types::{BootNanos, RegionId, StoreId};

use crate::clock::{MILLISECOND, SECOND};
use crate::observation::Observation;
use crate::world::World;

const TIMES: HangTimes = HangTimes {
    after_nanos: 2 * SECOND,
    bytes_per_s: 4 << 20,
    healthy_nanos: 2 * SECOND,
    look_nanos_max: 800 * MILLISECOND,
};

/// Maximum bytes of log entries that may wait for a hanging log, in addition to the bytes that may
/// wait for a slow log.
pub(super) const HUNG_LOG_BYTES: u64 = 1024;

/// Time after which an unfinished transfer counts as failed.
const PATIENCE: u64 = 1250 * MILLISECOND;

/// The knowledge of a process about its device.
pub(super) struct DeviceWatch {
    watch: HangWatch,
    /// The start time of the pending log write.
    log_began: Option<BootNanos>,
    relief: Option<HangRelief>,
}

impl Default for DeviceWatch {
    fn default() -> DeviceWatch {
        DeviceWatch { watch: HangWatch::new(TIMES), log_began: None, relief: None }
    }
}

impl DeviceWatch {
    pub fn is_hanging(&self) -> bool {
        self.watch.is_hanging()
    }

    /// Returns true if the log has not answered for a second.
    pub fn waits_long(&self, boot: BootNanos) -> bool {
        self.log_began.is_some_and(|began| boot.saturating_sub(began) >= SECOND)
    }

    pub fn log_write_ended(&mut self) {
        self.log_began = None;
    }
}

impl World {
    /// Records that a log write begins. It waits for room for `without_room` before the device
    /// receives it.
    pub(super) fn log_write_began(&mut self, id: StoreId, without_room: u64) {
        let began = self.boot(id) + without_room;
        let Some(process) = self.process(id) else { return };
        process.device.log_began = Some(began);
    }

    /// Checks whether the device hangs. While it hangs, moves the leadership of its regions to
    /// other stores.
    pub(super) fn look_at_device(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let Some(process) = self.process(id) else { return };
        let began = process.device.log_began.filter(|&began| began <= boot);
        let waited = began.map_or(0, |began| boot - began);
        let hangs = process.device.watch.look(began.map(|began| Pending { began, bytes: 0 }), boot);
        let led = process.led_regions(id, boot);
        let movable = process.movable(id, boot);
        self.observe(&Observation::LogWaits { store: id, at: boot, waited, led: &movable });
        let Some(process) = self.process(id) else { return };
        if hangs != process.device.relief.is_some() {
            process.device.relief = hangs.then(HangRelief::default);
            self.tally.hangs += u64::from(hangs);
            self.say(&format!("store {id}: its device hangs: {hangs}"));
            self.input(id, Input::DeviceHangs { hangs });
        }
        let Some(relief) = self.process(id).and_then(|process| process.device.relief.as_mut()) else {
            return;
        };
        let step = relief.step(&led, PATIENCE, boot);
        for (region, to) in step.transfers {
            self.input(id, Input::TransferLeader { region, to });
        }
        for region in step.step_downs {
            self.tally.step_downs += 1;
            self.say(&format!("store {id} steps down from region {region}"));
            self.input(id, Input::StepDown { region });
        }
    }
}

impl super::Process {
    /// Returns the regions that this store leads.
    pub(super) fn led_regions(&self, id: StoreId, boot: BootNanos) -> Vec<Led> {
        let takes_leads = |other| self.ledger.takes_on(other, boot);
        let statuses = self.shard.regions().filter_map(|region| self.shard.status(region, boot));
        let led = statuses.filter(|status| status.role == Role::Leader);
        let of = |status: replica::RegionStatus| {
            let is_quarantined = |other| self.says_quarantined(status.descriptor.id, other);
            Led::of(&status, id, takes_leads, is_quarantined)
        };
        led.map(of).collect()
    }

    /// Returns true if the store has recently reported its peer of the region as quarantined.
    fn says_quarantined(&self, region: RegionId, store: StoreId) -> bool {
        self.ledger.quarantined(region).any(|(of, _)| of == store)
    }

    /// Returns the led regions with a majority of voters on other stores that accept leadership. At
    /// least one of these voters can lead.
    fn movable(&self, id: StoreId, boot: BootNanos) -> Vec<RegionId> {
        let statuses = self.shard.regions().filter_map(|region| self.shard.status(region, boot));
        let led = statuses.filter(|status| status.role == Role::Leader && !status.descriptor.is_joint());
        let is_movable = |status: &replica::RegionStatus| {
            let voters: Vec<StoreId> = status.descriptor.voters().collect();
            let is_other = |store: StoreId| store != id && self.ledger.takes_on(store, boot);
            let others: Vec<StoreId> = voters.iter().copied().filter(|&store| is_other(store)).collect();
            let is_sound = |store: &StoreId| !self.says_quarantined(status.descriptor.id, *store);
            let can_lead = status.is_quarantined || others.iter().any(is_sound);
            2 * others.len() > voters.len() && can_lead
        };
        led.filter(is_movable).map(|status| status.descriptor.id).collect()
    }
}
