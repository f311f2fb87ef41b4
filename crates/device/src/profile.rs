//! Profiles: devices described by numbers, with a text notation.
//!
//! ```text
//! device   = base *( "," override )       plain-ssd/10,capacity=5GB    hybrid,cache=1GB
//!          | override *( "," override )   write=500MB/s,read=550MB/s,sync=1ms,read-latency=80us
//! base     = name [ "/" slower ]          bandwidths divided, latencies multiplied by `slower`
//! override = ("write"|"read") "=" size "/s" | ("sync"|"read-latency") "=" time
//!          | "capacity" "=" size | "cache" "=" size
//!          | "cache-" ("write"|"read"|"sync"|"read-latency") as above
//!          | "sharing" "=" share | "array" "=" integer ":" size | "slc" "=" size ":" size "/s"
//!          | "spread" "=" share | "burst" "=" time ":" time ":" factor
//!          | "neighbour" "=" time ":" time ":" share
//!          | "seed" "=" integer           nvm,spread=50%,burst=10s:200ms:5,neighbour=60s:20s:30%
//! ```
//!
//! `sharing` says how far reads and writes use the same resource: `100%` (the default) if the
//! device does either at a time, `0%` if each has a device of its own. `array=8:512KiB` makes eight
//! such devices, with chunks of 512 KiB. `slc=4GB:100MB/s` is a fast cache of 4 GB that the write
//! bandwidth applies to; once it is full, writes take 100 MB/s.
//!
//! In a hybrid, settings without `cache` in their name apply to the device behind the cache. Only a
//! hybrid has a cache.
//!
//! The settings from `spread` on are noise ([`Noise`]). The two times of `burst` and `neighbour`
//! are the period and the duration. A share is written `50%` or `0.5`. Speed factors do not change
//! noise.
//!
//! Sizes are decimal (`KB MB GB TB`) or binary (`KiB MiB GiB TiB`). Times are `ns us ms s`. An
//! override is an absolute number: the base's own `/slower` does not affect it, but a run-wide
//! speed factor does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::block::DEVICES_MAX;
use crate::cache;
use crate::noise::{Burst, Neighbour, Noise, SHARE_MAX, SLOWER_MAX, SPREAD_MAX};

/// The parameters of a device. In a hybrid, those outside of `cache` describe the device behind the
/// cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The name from which the profile was made, or `custom`. It is only displayed. At most 31
    /// bytes of it are stored in the control block.
    pub name: String,
    pub write_bytes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub sync_latency: Duration,
    pub read_latency: Duration,
    pub capacity_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheProfile>,
    /// The part of an operation's time, from 0 to 1, for which operations of the other kind cannot
    /// use the device.
    #[serde(default = "all_shared")]
    pub sharing: f64,
    /// The array that such devices form. The capacity is that of the array, everything else of one
    /// device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayProfile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slc: Option<SlcProfile>,
    #[serde(default, skip_serializing_if = "Noise::is_none")]
    pub noise: Noise,
}

/// The fast part of a hybrid: a write-back block cache that survives a loss of power.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheProfile {
    pub bytes: u64,
    pub write_bytes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub sync_latency: Duration,
    pub read_latency: Duration,
}

/// An array of equal devices without redundancy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayProfile {
    pub devices: u64,
    /// Bytes on one device before the next device follows.
    pub chunk_bytes: u64,
}

/// The fast cache of a cheap device. Writes fill it at the device's write bandwidth. It empties all
/// the time at the bandwidth of the flash behind it. While it is full, writes have that bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlcProfile {
    pub bytes: u64,
    pub write_bytes_per_s: u64,
}

fn all_shared() -> f64 {
    1.0
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ProfileError {
    #[error("unknown device profile '{0}': use nvm, high-end-ssd, plain-ssd, hybrid, or numbers (write=500MB/s,read=550MB/s,sync=1ms,read-latency=80us,capacity=5GB)")]
    UnknownName(String),
    #[error("unknown device setting '{0}': use write, read, sync, read-latency, capacity, sharing, array, slc, spread, burst, neighbour, seed, and for a hybrid cache, cache-write, cache-read, cache-sync, cache-read-latency")]
    UnknownSetting(String),
    #[error("device setting '{setting}' has a bad value '{value}': wanted {wanted}")]
    BadValue { setting: String, value: String, wanted: &'static str },
    #[error("device setting '{0}' applies only to a hybrid: write hybrid,{0}=...")]
    NoCache(String),
    #[error("device setting '{0}' cannot be applied to a hybrid")]
    Hybrid(String),
    #[error("a device described by numbers needs '{0}'")]
    Missing(&'static str),
    #[error("a device's speed factor must be a number above 0 and at most 1e6, not '{0}'")]
    BadFactor(String),
}

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];
const TIME_UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Default bytes of a hybrid's cache.
const CACHE_BYTES: u64 = 1_000_000_000;
/// Sizes of an array's chunk.
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

impl Profile {
    pub const NAMES: [&'static str; 4] = ["nvm", "high-end-ssd", "plain-ssd", "hybrid"];

    /// Returns a named profile.
    ///
    /// The profiles stand for the devices of ALOR §4.1: a block device of 16 GB that emulates NVM
    /// in DRAM, an Intel Optane 900p of 280 GB, and an Intel SATA SSD of 256 GB. `hybrid` is the
    /// first as a cache of 1 GB in front of the last. The paper states no speeds, so these follow
    /// data sheets of such devices.
    pub fn named(name: &str) -> Option<Profile> {
        if name == "hybrid" {
            let (fast, slow) = (Profile::named("nvm")?, Profile::named("plain-ssd")?);
            let cache = CacheProfile {
                bytes: CACHE_BYTES,
                write_bytes_per_s: fast.write_bytes_per_s,
                read_bytes_per_s: fast.read_bytes_per_s,
                sync_latency: fast.sync_latency,
                read_latency: fast.read_latency,
            };
            return Some(Profile { name: name.to_owned(), cache: Some(cache), ..slow });
        }
        let (write_mb, read_mb, sync_us, read_us) = match name {
            "nvm" => (5_000, 8_000, 5, 1),
            "high-end-ssd" => (2_000, 2_500, 20, 10),
            "plain-ssd" => (500, 550, 1_000, 80),
            _ => return None,
        };
        Some(Profile {
            name: name.to_owned(),
            write_bytes_per_s: write_mb * 1_000_000,
            read_bytes_per_s: read_mb * 1_000_000,
            sync_latency: Duration::from_micros(sync_us),
            read_latency: Duration::from_micros(read_us),
            capacity_bytes: None,
            cache: None,
            sharing: all_shared(),
            array: None,
            slc: None,
            noise: Noise::NONE,
        })
    }

    /// Returns the same device `factor` times slower (faster if below 1): bandwidths are divided,
    /// latencies multiplied. Capacity and cache size are not speeds and stay.
    pub fn slower(&self, factor: f64) -> Result<Profile, ProfileError> {
        let factor = checked_factor(factor).ok_or_else(|| ProfileError::BadFactor(factor.to_string()))?;
        let bandwidth = |bytes: u64| ((bytes as f64 / factor) as u64).max(1);
        Ok(Profile {
            name: self.name.clone(),
            write_bytes_per_s: bandwidth(self.write_bytes_per_s),
            read_bytes_per_s: bandwidth(self.read_bytes_per_s),
            sync_latency: scaled(self.sync_latency, factor),
            read_latency: scaled(self.read_latency, factor),
            capacity_bytes: self.capacity_bytes,
            cache: self.cache.as_ref().map(|cache| CacheProfile {
                bytes: cache.bytes,
                write_bytes_per_s: bandwidth(cache.write_bytes_per_s),
                read_bytes_per_s: bandwidth(cache.read_bytes_per_s),
                sync_latency: scaled(cache.sync_latency, factor),
                read_latency: scaled(cache.read_latency, factor),
            }),
            sharing: self.sharing,
            array: self.array.clone(),
            slc: self
                .slc
                .as_ref()
                .map(|slc| SlcProfile { write_bytes_per_s: bandwidth(slc.write_bytes_per_s), ..slc.clone() }),
            noise: self.noise,
        })
    }

    /// Returns the speeds that a test with random writes and reads in a file of `file_bytes` finds
    /// in the long run. For a hybrid they combine hits and misses, an array has the bandwidth of
    /// all its devices, and a fast cache is full. The returned profile is a plain device.
    ///
    /// Writes to dirty blocks cost the device behind the cache nothing, and in the long run as many
    /// blocks are dirty as permitted. Reads hit the part of the file that the cache can hold.
    pub fn as_tested(&self, file_bytes: u64) -> Profile {
        let Some(cache) = &self.cache else {
            let devices = self.array.as_ref().map_or(1, |array| array.devices);
            let written = self.slc.as_ref().map_or(self.write_bytes_per_s, |slc| slc.write_bytes_per_s);
            return Profile {
                write_bytes_per_s: written.saturating_mul(devices),
                read_bytes_per_s: self.read_bytes_per_s.saturating_mul(devices),
                array: None,
                slc: None,
                ..self.clone()
            };
        };
        let share = |bytes: u64| (bytes as f64 / file_bytes.max(1) as f64).min(1.0);
        let (absorbed, hit) = (share(cache::dirty_max(cache.bytes)), share(cache.bytes));
        let slowest = |fast: u64, of_fast: f64, slow: u64, of_slow: f64| {
            (1.0 / (of_fast / fast as f64).max(of_slow / slow as f64)).round() as u64
        };
        Profile {
            name: self.name.clone(),
            write_bytes_per_s: slowest(cache.write_bytes_per_s, 1.0, self.write_bytes_per_s, 1.0 - absorbed),
            read_bytes_per_s: slowest(cache.read_bytes_per_s, hit, self.read_bytes_per_s, 1.0 - hit),
            sync_latency: cache.sync_latency,
            read_latency: cache.read_latency.mul_f64(hit) + self.read_latency.mul_f64(1.0 - hit),
            capacity_bytes: self.capacity_bytes,
            cache: None,
            sharing: self.sharing,
            array: None,
            slc: None,
            noise: self.noise,
        }
    }

    fn set(&mut self, setting: &str, value: &str) -> Result<(), ProfileError> {
        let bad = |wanted| ProfileError::BadValue { setting: setting.into(), value: value.into(), wanted };
        let rate = || {
            let size = value.strip_suffix("/s").and_then(|v| quantity(v, &SIZE_UNITS));
            size.filter(|&bytes| bytes > 0).ok_or_else(|| bad("a rate such as 500MB/s"))
        };
        let time = || {
            let nanos = quantity(value, &TIME_UNITS).filter(|&nanos| nanos <= 3_600_000_000_000);
            nanos.map(Duration::from_nanos).ok_or_else(|| bad("a time such as 80us or 1ms, at most an hour"))
        };
        if let Some(of_cache) = setting.strip_prefix("cache") {
            let Some(cache) = &mut self.cache else { return Err(ProfileError::NoCache(setting.to_owned())) };
            match of_cache {
                "" => {
                    let known = cache::BYTES_MIN..=cache::BYTES_MAX;
                    let bytes = quantity(value, &SIZE_UNITS).filter(|bytes| known.contains(bytes));
                    cache.bytes = bytes.ok_or_else(|| bad("a size such as 1GB, from 64KiB to 1PB"))?;
                }
                "-write" => cache.write_bytes_per_s = rate()?,
                "-read" => cache.read_bytes_per_s = rate()?,
                "-sync" => cache.sync_latency = time()?,
                "-read-latency" => cache.read_latency = time()?,
                _ => return Err(ProfileError::UnknownSetting(setting.to_owned())),
            }
            return Ok(());
        }
        match setting {
            "write" => self.write_bytes_per_s = rate()?,
            "read" => self.read_bytes_per_s = rate()?,
            "sync" => self.sync_latency = time()?,
            "read-latency" => self.read_latency = time()?,
            "capacity" => {
                let bytes = quantity(value, &SIZE_UNITS).filter(|&bytes| bytes > 0);
                self.capacity_bytes = Some(bytes.ok_or_else(|| bad("a size such as 5GB"))?);
            }
            "sharing" => {
                let sharing = share(value).filter(|sharing| *sharing <= 1.0);
                self.sharing = sharing.ok_or_else(|| bad("a share from 0% to 100%"))?;
            }
            "array" | "slc" if self.cache.is_some() => return Err(ProfileError::Hybrid(setting.to_owned())),
            "array" => {
                let known = value.split_once(':').and_then(|(devices, chunk)| {
                    let devices = devices.parse().ok().filter(|n| (1..=DEVICES_MAX as u64).contains(n))?;
                    let chunk_bytes = quantity(chunk, &SIZE_UNITS).filter(|n| CHUNK_BYTES.contains(n))?;
                    Some(ArrayProfile { devices, chunk_bytes })
                });
                let wanted = "1 to 32 devices and the size of a chunk from 4KiB to 1GiB, such as 8:512KiB";
                let array = known.ok_or_else(|| bad(wanted))?;
                self.array = (array.devices > 1).then_some(array);
            }
            "slc" => {
                let known = value.split_once(':').and_then(|(bytes, rate)| {
                    let bytes = quantity(bytes, &SIZE_UNITS).filter(|bytes| *bytes > 0)?;
                    let rate = quantity(rate.strip_suffix("/s")?, &SIZE_UNITS).filter(|rate| *rate > 0)?;
                    Some(SlcProfile { bytes, write_bytes_per_s: rate })
                });
                self.slc = Some(known.ok_or_else(|| bad("a size and a rate, such as 4GB:100MB/s"))?);
            }
            "spread" => {
                let spread = share(value).filter(|spread| *spread <= SPREAD_MAX);
                self.noise.spread = spread.ok_or_else(|| bad("a share such as 50% or 0.5, at most 1000%"))?;
            }
            "burst" => {
                let known = spell(value).and_then(|(every, lasts, slower)| {
                    let slower = slower.parse().ok().filter(|slower| (1.0..=SLOWER_MAX).contains(slower))?;
                    Some(Burst { every, lasts, slower })
                });
                self.noise.burst =
                    Some(known.ok_or_else(|| bad("period, duration and slowdown, such as 10s:200ms:5"))?);
            }
            "neighbour" => {
                let known = spell(value).and_then(|(every, lasts, taken)| {
                    let share = share(taken).filter(|share| *share <= SHARE_MAX)?;
                    Some(Neighbour { every, lasts, share })
                });
                self.noise.neighbour =
                    Some(known.ok_or_else(|| bad("period, duration and share, such as 60s:20s:30%"))?);
            }
            "seed" => self.noise.seed = value.parse().map_err(|_| bad("an integer, 0 or more"))?,
            _ => return Err(ProfileError::UnknownSetting(setting.to_owned())),
        }
        Ok(())
    }
}

/// Returns the factor if all products with it stay within `u64` nanoseconds.
pub(crate) fn checked_factor(factor: f64) -> Option<f64> {
    (factor.is_finite() && factor > 0.0 && factor <= 1e6).then_some(factor)
}

fn scaled(latency: Duration, factor: f64) -> Duration {
    Duration::from_nanos((latency.as_nanos() as f64 * factor) as u64)
}

/// Parses a quantity such as `1.5GB` into multiples of the smallest unit. Returns `None` if it is
/// not a number, is negative, or is too large.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let value = number.parse::<f64>().ok()? * unit as f64;
    (value < 1e18).then_some(value as u64)
}

/// Parses a share such as `50%` or `0.5`.
fn share(text: &str) -> Option<f64> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let value = number.parse::<f64>().ok()? * unit;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Parses `10s:200ms:REST` into period, duration and the rest.
fn spell(text: &str) -> Option<(Duration, Duration, &str)> {
    let mut parts = text.splitn(3, ':');
    let mut time = || quantity(parts.next()?, &TIME_UNITS).map(Duration::from_nanos);
    let (every, lasts) = (time()?, time()?);
    (!lasts.is_zero() && lasts <= every && every <= Duration::from_secs(86_400)).then_some(())?;
    Some((every, lasts, parts.next()?))
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Profile, ProfileError> {
        let mut parts = text.split(',').map(str::trim).peekable();
        let base = match parts.peek() {
            Some(first) if !first.contains('=') => parts.next(),
            _ => None,
        };
        let mut given = Vec::new();
        let mut profile = match base {
            Some(base) => {
                let (name, factor) = base.split_once('/').unwrap_or((base, "1"));
                let named = Profile::named(name).ok_or_else(|| ProfileError::UnknownName(name.into()))?;
                let factor = factor.parse().map_err(|_| ProfileError::BadFactor(factor.into()))?;
                Profile { name: base.to_owned(), ..named.slower(factor)? }
            }
            None => Profile {
                name: "custom".to_owned(),
                write_bytes_per_s: 0,
                read_bytes_per_s: 0,
                sync_latency: Duration::ZERO,
                read_latency: Duration::ZERO,
                capacity_bytes: None,
                cache: None,
                sharing: all_shared(),
                array: None,
                slc: None,
                noise: Noise::NONE,
            },
        };
        for part in parts {
            let (setting, value) =
                part.split_once('=').ok_or_else(|| ProfileError::UnknownSetting(part.into()))?;
            profile.set(setting, value)?;
            given.push(setting);
        }
        if base.is_none() {
            for needed in ["write", "read"] {
                if !given.contains(&needed) {
                    return Err(ProfileError::Missing(needed));
                }
            }
        }
        Ok(profile)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: write {:.1} MB/s, read {:.1} MB/s, sync {:?}, read latency {:?}",
            self.name,
            self.write_bytes_per_s as f64 / 1e6,
            self.read_bytes_per_s as f64 / 1e6,
            self.sync_latency,
            self.read_latency
        )?;
        if let Some(bytes) = self.capacity_bytes {
            write!(f, ", capacity {:.2} GB", bytes as f64 / 1e9)?;
        }
        if let Some(cache) = &self.cache {
            write!(
                f,
                ", behind a cache of {:.1} MB: write {:.1} MB/s, read {:.1} MB/s, sync {:?}, read latency {:?}",
                cache.bytes as f64 / 1e6,
                cache.write_bytes_per_s as f64 / 1e6,
                cache.read_bytes_per_s as f64 / 1e6,
                cache.sync_latency,
                cache.read_latency
            )?;
        }
        if let Some(slc) = &self.slc {
            let (bytes, rate) = (slc.bytes as f64 / 1e9, slc.write_bytes_per_s as f64 / 1e6);
            write!(f, ", after {bytes:.2} GB of writes only {rate:.1} MB/s")?;
        }
        if let Some(ArrayProfile { devices, chunk_bytes }) = &self.array {
            write!(f, ", {devices} of them with chunks of {} KiB", *chunk_bytes as f64 / 1024.0)?;
        }
        if self.sharing < 1.0 {
            write!(f, ", reads and writes share {:.0}%", self.sharing * 100.0)?;
        }
        if self.noise.spread > 0.0 {
            write!(f, ", spread {:.0}%", self.noise.spread * 100.0)?;
        }
        if let Some(Burst { every, lasts, slower }) = self.noise.burst {
            write!(f, ", {slower} times slower for {lasts:?} every {every:?}")?;
        }
        if let Some(Neighbour { every, lasts, share }) = self.noise.neighbour {
            write!(f, ", a neighbour takes {:.0}% for {lasts:?} every {every:?}", share * 100.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_data_sheet_numbers() {
        let ssd: Profile = "plain-ssd".parse().unwrap();
        assert_eq!(ssd.write_bytes_per_s, 500_000_000);
        assert_eq!(ssd.read_bytes_per_s, 550_000_000);
        assert_eq!(ssd.sync_latency, Duration::from_millis(1));
        assert_eq!(ssd.read_latency, Duration::from_micros(80));
        assert_eq!(ssd.capacity_bytes, None);
        for name in Profile::NAMES {
            assert_eq!(Profile::named(name).unwrap(), name.parse().unwrap());
        }
    }

    #[test]
    fn a_slower_device_has_bandwidth_divided_and_latency_multiplied() {
        let ssd: Profile = "plain-ssd/10".parse().unwrap();
        assert_eq!(ssd.write_bytes_per_s, 50_000_000);
        assert_eq!(ssd.sync_latency, Duration::from_millis(10));
        assert_eq!(ssd.slower(0.1).unwrap().write_bytes_per_s, 500_000_000);
    }

    #[test]
    fn overrides_are_absolute() {
        let ssd: Profile = "plain-ssd/10,write=1.5MB/s,capacity=5GiB".parse().unwrap();
        assert_eq!(ssd.write_bytes_per_s, 1_500_000);
        assert_eq!(ssd.capacity_bytes, Some(5 << 30));
        let custom: Profile = "write=500MB/s, read=550MB/s, sync=1ms, read-latency=80us".parse().unwrap();
        assert_eq!(Profile { name: "plain-ssd".into(), ..custom }, Profile::named("plain-ssd").unwrap());
    }

    #[test]
    fn a_hybrid_is_an_nvm_cache_before_a_plain_ssd() {
        let hybrid: Profile = "hybrid".parse().unwrap();
        let (nvm, ssd) = (Profile::named("nvm").unwrap(), Profile::named("plain-ssd").unwrap());
        assert_eq!(Profile { name: "plain-ssd".into(), cache: None, ..hybrid.clone() }, ssd);
        let cache = hybrid.cache.unwrap();
        assert_eq!((cache.bytes, cache.write_bytes_per_s), (1_000_000_000, nvm.write_bytes_per_s));
        assert_eq!((cache.sync_latency, cache.read_latency), (nvm.sync_latency, nvm.read_latency));

        let slow: Profile =
            "hybrid/10,cache=64MiB,cache-read=1GB/s,cache-sync=3us,write=7MB/s".parse().unwrap();
        assert_eq!((slow.write_bytes_per_s, slow.read_bytes_per_s), (7_000_000, 55_000_000));
        let cache = slow.cache.unwrap();
        assert_eq!((cache.bytes, cache.write_bytes_per_s), (64 << 20, 500_000_000), "size is no speed");
        assert_eq!((cache.read_bytes_per_s, cache.sync_latency), (1_000_000_000, Duration::from_micros(3)));
        assert_eq!(cache.read_latency, Duration::from_micros(10));
    }

    #[test]
    fn a_test_finds_the_cache_as_far_as_its_file_fits() {
        let tested = |text: &str, file: u64| text.parse::<Profile>().unwrap().as_tested(file);
        let nvm = Profile { name: "hybrid".into(), ..Profile::named("nvm").unwrap() };
        assert_eq!(tested("hybrid", 256 << 20), nvm);
        assert_eq!(tested("plain-ssd", 256 << 20), Profile::named("plain-ssd").unwrap());
        let far_larger = tested("hybrid,cache=1MB", 1_000_000_000);
        assert!((500_000_000..501_000_000).contains(&far_larger.write_bytes_per_s), "{far_larger}");
        assert!((550_000_000..551_000_000).contains(&far_larger.read_bytes_per_s), "{far_larger}");
        assert_eq!(far_larger.sync_latency, nvm.sync_latency, "what is in the cache is durable");
        let twice = tested("hybrid,cache=500MB", 1_000_000_000);
        let near = |value: u64, wanted: f64| (value as f64 / wanted - 1.0).abs() < 0.001;
        assert!(near(twice.write_bytes_per_s, 8e8), "of eight writes three find their block dirty: {twice}");
        assert!(near(twice.read_latency.as_nanos() as u64, 40_500.0), "{twice}");
    }

    #[test]
    fn noise_is_written_after_the_device_and_said_with_it() {
        let noisy: Profile =
            "plain-ssd/10, spread=50%, burst=10s:200ms:5, neighbour=60s:20s:30%, seed=7".parse().unwrap();
        let noise = noisy.noise;
        assert_eq!((noise.spread, noise.seed), (0.5, 7));
        assert_eq!(noise.burst.unwrap().slower, 5.0);
        assert_eq!(noise.neighbour.unwrap().share, 0.3);
        assert_eq!(Profile { noise: Noise::NONE, ..noisy.clone() }, "plain-ssd/10".parse().unwrap());
        let said = noisy.to_string();
        let wanted =
            "spread 50%, 5 times slower for 200ms every 10s, a neighbour takes 30% for 20s every 60s";
        assert!(said.ends_with(wanted), "{said}");
        assert_eq!("nvm,spread=0.5".parse::<Profile>().unwrap().noise.spread, 0.5);
        let text = serde_json::to_string(&noisy).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), noisy);
        let quiet = serde_json::to_string(&Profile::named("nvm").unwrap()).unwrap();
        assert!(!quiet.contains("noise"), "{quiet}");
    }

    #[test]
    fn an_array_has_the_bandwidth_of_its_devices_and_a_cheap_one_runs_out() {
        let array: Profile = "plain-ssd/10,array=8:16KiB,slc=2GB:5MB/s,sharing=50%".parse().unwrap();
        assert_eq!(array.array, Some(ArrayProfile { devices: 8, chunk_bytes: 16 << 10 }));
        assert_eq!(array.sharing, 0.5);
        let slow = array.slower(2.0).unwrap();
        assert_eq!(slow.slc, Some(SlcProfile { bytes: 2_000_000_000, write_bytes_per_s: 2_500_000 }));
        let tested = array.as_tested(1 << 30);
        assert_eq!((tested.write_bytes_per_s, tested.read_bytes_per_s), (40_000_000, 440_000_000));
        let text = array.to_string();
        let wanted =
            "after 2.00 GB of writes only 5.0 MB/s, 8 of them with chunks of 16 KiB, reads and writes share 50%";
        assert!(text.ends_with(wanted), "{text}");
        assert_eq!("nvm,array=1:16KiB".parse::<Profile>().unwrap(), "nvm".parse().unwrap());
        let text = serde_json::to_string(&array).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), array);
    }

    #[test]
    fn what_is_not_a_device_is_refused_by_name() {
        let failure = |text: &str| text.parse::<Profile>().unwrap_err();
        assert_eq!(failure("floppy"), ProfileError::UnknownName("floppy".into()));
        assert_eq!(failure("nvm,colour=red"), ProfileError::UnknownSetting("colour".into()));
        assert_eq!(failure("write=5MB/s"), ProfileError::Missing("read"));
        for bad in ["nvm/0", "nvm/-1", "nvm/NaN", "nvm/inf", "nvm/1e9", "nvm/"] {
            assert!(matches!(failure(bad), ProfileError::BadFactor(_)), "{bad}");
        }
        for bad in ["nvm,write=5MB", "nvm,write=0B/s", "nvm,read=-1MB/s", "nvm,sync=1", "nvm,sync=2e3s"] {
            assert!(matches!(failure(bad), ProfileError::BadValue { .. }), "{bad}");
        }
        for bad in
            ["hybrid,cache=63KiB", "hybrid,cache=2000TB", "hybrid,cache-write=5", "hybrid,cache-sync=1"]
        {
            assert!(matches!(failure(bad), ProfileError::BadValue { .. }), "{bad}");
        }
        assert_eq!(failure("plain-ssd,cache=1GB"), ProfileError::NoCache("cache".into()));
        assert_eq!(failure("hybrid,array=2:1MiB"), ProfileError::Hybrid("array".into()));
        assert_eq!(failure("hybrid,slc=1GB:1MB/s"), ProfileError::Hybrid("slc".into()));
        assert_eq!(failure("hybrid,cached=1GB"), ProfileError::UnknownSetting("cached".into()));
        assert!(matches!(failure("nvm,capacity=99999999TB"), ProfileError::BadValue { .. }));
        for bad in [
            "spread=-1",
            "spread=1001%",
            "spread=NaN",
            "burst=10s",
            "burst=1s:2s:5",
            "burst=10s:0s:5",
            "burst=10s:1s:0.5",
            "burst=10s:1s:inf",
            "neighbour=60s:20s:100%",
            "neighbour=60s:20s:-5%",
            "seed=-1",
            "sharing=101%",
            "array=8",
            "array=0:16KiB",
            "array=33:16KiB",
            "array=8:1KiB",
            "slc=1GB",
            "slc=0GB:1MB/s",
            "slc=1GB:5MB",
        ] {
            assert!(matches!(failure(&format!("nvm,{bad}")), ProfileError::BadValue { .. }), "{bad}");
        }
    }
}
