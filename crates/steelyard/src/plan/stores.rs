//! Parses stores from text with counted device profiles.

use std::str::FromStr;

use anyhow::{anyhow, ensure, Context};
use device::{Fit, KvCapability, Measured, Profile};
use placement::{Capability, Spread};
use predict::{Device, Store, WriteBack};

/// Maximum number of stores. A simulation of this size still ends within a minute.
const STORES_MAX: usize = 64;

/// Parses a list of stores: `1xnvm,2x high-end-ssd,plain-ssd` are four. Parts are separated by `;`
/// if a device is given in numbers, because these contain commas.
pub fn parse(text: &str, device_speed: f64, fit: &Fit, capacity_bytes: u64) -> anyhow::Result<Vec<Store>> {
    let separator = if text.contains([';', '=']) { ';' } else { ',' };
    let mut stores = Vec::new();
    for part in text.split(separator).map(str::trim) {
        ensure!(!part.is_empty(), "a store is missing in '{text}': write a list such as 1xnvm,2xplain-ssd");
        let (count, device) = match part.split_once('x') {
            Some((count, device))
                if count.trim().bytes().all(|byte| byte.is_ascii_digit()) && !count.is_empty() =>
            {
                let count: usize =
                    count.trim().parse().with_context(|| format!("'{part}' is no number of stores"))?;
                (count, device.trim())
            }
            _ => (1, part),
        };
        ensure!(count > 0, "'{part}' asks for no store");
        ensure!(stores.len() + count <= STORES_MAX, "at most {STORES_MAX} stores are predicted");
        for _ in 0..count {
            stores.push(store(stores.len() as u64, device, device_speed, fit, capacity_bytes)?);
        }
    }
    Ok(stores)
}

pub fn check_speed(device_speed: f64) -> anyhow::Result<()> {
    ensure!(
        device_speed.is_finite() && device_speed > 0.0,
        "device-speed must be a factor above 0: 0.1 makes every device ten times slower"
    );
    Ok(())
}

/// Returns a store with the device. `fit` is for devices at full speed.
pub fn store(
    id: u64,
    device: &str,
    device_speed: f64,
    fit: &Fit,
    capacity_bytes: u64,
) -> anyhow::Result<Store> {
    check_speed(device_speed)?;
    let profile = Profile::from_str(device)?;
    let slowed = profile.slower(1.0 / device_speed)?;
    // The model has one device with or without a cache, so an array or a cheap device is
    // represented by its speed in the long run.
    let slowed = if slowed.cache.is_some() { slowed } else { slowed.as_tested(u64::MAX) };
    let kv = KvCapability::measured(&Measured::stated(&profile), fit).scaled(device_speed);
    let nanos = |time: std::time::Duration| {
        u64::try_from(time.as_nanos()).map_err(|_| anyhow!("{time:?} is too long"))
    };
    let cache = slowed.cache.as_ref().map(|cache| {
        Ok::<_, anyhow::Error>(WriteBack {
            bytes: cache.bytes,
            write_bytes_per_s: cache.write_bytes_per_s,
            read_bytes_per_s: cache.read_bytes_per_s,
            sync_ns: nanos(cache.sync_latency)?,
            read_ns: nanos(cache.read_latency)?,
        })
    });
    Ok(Store {
        id,
        device_name: profile.name.clone(),
        device: Device {
            write_bytes_per_s: slowed.write_bytes_per_s,
            read_bytes_per_s: slowed.read_bytes_per_s,
            sync_ns: nanos(slowed.sync_latency)?,
            read_ns: nanos(slowed.read_latency)?,
            cache: cache.transpose()?,
            sharing_milli: (slowed.sharing * 1000.0).round() as u64,
        },
        capability: Capability { kv_bytes_per_s: kv.kv_bytes_per_s, ops_per_s: kv.kv_ops_per_s },
        spread: Spread::EXACT,
        capacity_bytes: profile.capacity_bytes.unwrap_or(capacity_bytes),
        data_weight: None,
        leader_weight: None,
        leaving: false,
    })
}
