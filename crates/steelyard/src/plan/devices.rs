//! The devices of a running cluster for the simulation. Each has a profile and one ratio to the
//! profile's speed.
//!
//! The cluster reports the measured write speed of a device, or the configured capability of its
//! store, and the part of it that is in effect. An emulated device is slowed by one factor in
//! everything, so one ratio describes it. For a real device nothing else is known.

use anyhow::{anyhow, bail, Context};
use client::admin::StoreRow;
use device::{Fit, KvCapability, Measured, Profile};
use placement::Spread;
use predict::Store;

use super::{stores, Plan};

/// Maximum ratio of two speeds that count as equal. A probe of an emulated device is within 15%.
const AGREEMENT: f64 = 1.15 / 0.85;
/// Minimum part of its capability that is in effect for a store (docs/CAPABILITY.md).
const CORRECTION_MIN: f64 = 0.001;

pub struct Devices<'a> {
    installed: Vec<Installed<'a>>,
    /// Speed of new devices, and of running devices whose speed is unknown, relative to their
    /// profiles.
    new_speed: f64,
    /// The reason for this speed, for human readers.
    reason: &'static str,
    /// The fit for devices at full speed.
    fit: Fit,
}

/// The device of a running store.
struct Installed<'a> {
    row: &'a StoreRow,
    /// The profile as text. For a device without a name, this is the nearest profile.
    profile: String,
    /// Uncorrected speed relative to the profile. `None` if unknown.
    speed: Option<f64>,
}

impl<'a> Devices<'a> {
    pub fn of(rows: &'a [StoreRow], plan: &Plan) -> anyhow::Result<Devices<'a>> {
        let installed = rows.iter().map(Installed::of).collect::<anyhow::Result<Vec<_>>>()?;
        let (new_speed, reason) = match (plan.device_speed, common(&installed)) {
            (Some(asked), _) => (asked, "as --device-speed says"),
            (None, Some(common)) => (common, "like the cluster's devices"),
            (None, None) => (1.0, "because the cluster's devices differ"),
        };
        stores::check_speed(new_speed)?;
        let mut fit = plan.fit()?;
        // If all stores measure themselves, a new store will look up the already reduced speed of
        // its device in the curve.
        if rows.iter().all(|row| row.io_bytes_per_s > 0.0) {
            fit = fit.at_speed(1.0 / new_speed)?;
        }
        Ok(Devices { installed, new_speed, reason, fit })
    }

    /// Returns the running stores in the order of their rows, without a capacity.
    pub fn stores(&self) -> anyhow::Result<Vec<Store>> {
        self.installed.iter().map(|installed| self.store(installed)).collect()
    }

    fn store(&self, installed: &Installed<'_>) -> anyhow::Result<Store> {
        let row = installed.row;
        let mut store = stores::store(row.id, &installed.profile, self.speed(installed), &self.fit, 0)
            .with_context(|| format!("the device of store {}", row.id))?;
        if row.device.is_empty() {
            store.device_name = format!("like {}", installed.profile);
        }
        if is_known(row) {
            store.capability.kv_bytes_per_s = row.capability_bytes_per_s;
            if row.capability_spread > 1.0 {
                store.spread = Spread::all(row.capability_spread);
            }
        }
        Ok(store)
    }

    /// Returns a store with a new device.
    pub fn new_store(&self, id: u64, device: &str, capacity_bytes: u64) -> anyhow::Result<Store> {
        stores::store(id, device, self.new_speed, &self.fit, capacity_bytes)
    }

    /// Returns the current speed relative to the profile.
    fn speed(&self, installed: &Installed<'_>) -> f64 {
        installed.speed.unwrap_or(self.new_speed) * correction(installed.row)
    }

    /// Returns notes about the assumed speeds of the running devices.
    pub fn notes(&self) -> Vec<String> {
        let speeds: Vec<String> =
            self.installed.iter().map(|installed| three_digits(self.speed(installed))).collect();
        let is_one = speeds.windows(2).all(|two| two[0] == two[1]);
        let told = match speeds.first().filter(|_| is_one) {
            Some(speed) => speed.clone(),
            None => {
                let each = self.installed.iter().zip(&speeds);
                let each = each.map(|(installed, speed)| format!("{speed} (store {})", installed.row.id));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        let mut notes = vec![format!("devices at {told} of their profiles' speed")];
        for row in self.installed.iter().map(|installed| installed.row) {
            if correction(row) < 1.0 {
                let part = three_digits(100.0 * correction(row));
                notes.push(format!(
                    "store {} counts for {part}%, because its device has become slower",
                    row.id
                ));
            }
        }
        notes
    }

    /// Returns a note about the assumed speed of new devices.
    pub fn new_note(&self) -> String {
        format!("new devices at {} of their profiles' speed, {}", three_digits(self.new_speed), self.reason)
    }
}

impl<'a> Installed<'a> {
    fn of(row: &'a StoreRow) -> anyhow::Result<Installed<'a>> {
        if row.device.is_empty() {
            return Installed::unnamed(row);
        }
        let profile: Profile =
            row.device.parse().with_context(|| format!("the device of store {}", row.id))?;
        let speed = if row.io_bytes_per_s > 0.0 {
            Some(row.io_bytes_per_s / Measured::stated(&profile).write_bytes_per_s)
        } else if is_known(row) {
            // A playground configures the capabilities of its stores in this way.
            let told = row.capability_bytes_per_s / correction(row);
            Some(told / KvCapability::of(&profile).kv_bytes_per_s)
        } else {
            None
        };
        Ok(Installed { row, profile: row.device.clone(), speed })
    }

    /// Treats a real device as the profile that is nearest to its measured write speed, at that
    /// speed.
    fn unnamed(row: &'a StoreRow) -> anyhow::Result<Installed<'a>> {
        let measured = row.io_bytes_per_s;
        if measured <= 0.0 {
            bail!("store {} has no named device and was not measured: 'ctl probe' measures it", row.id);
        }
        let known = Profile::NAMES.iter().filter_map(|name| Profile::named(name));
        let known = known.filter(|profile| profile.cache.is_none());
        let ratio = |profile: &Profile| measured / profile.write_bytes_per_s as f64;
        let distance = |profile: &Profile| ratio(profile).ln().abs();
        let nearest = known.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let nearest = nearest.ok_or_else(|| anyhow!("there is no device profile"))?;
        let speed = Some(ratio(&nearest));
        Ok(Installed { row, profile: nearest.name, speed })
    }
}

/// Returns the speed of the devices that name a profile, if they agree on one.
fn common(installed: &[Installed<'_>]) -> Option<f64> {
    let named = installed.iter().filter(|installed| !installed.row.device.is_empty());
    let mut speeds: Vec<f64> = named.filter_map(|installed| installed.speed).collect();
    speeds.sort_by(f64::total_cmp);
    let (slowest, fastest) = (*speeds.first()?, *speeds.last()?);
    (fastest <= slowest * AGREEMENT).then(|| speeds[speeds.len() / 2])
}

/// Returns true if the store's capability is known. An unknown capability is reported as 1.
fn is_known(row: &StoreRow) -> bool {
    row.capability_bytes_per_s > 1.0
}

fn correction(row: &StoreRow) -> f64 {
    row.correction.clamp(CORRECTION_MIN, 1.0)
}

/// Formats a number above 0 with three significant digits.
fn three_digits(value: f64) -> String {
    let decimals = (2.0 - value.log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
