//! The key-value capability of a device, derived from its I/O speed by a [`Fit`] and from its
//! latencies.
//!
//! ```text
//! kv_bytes_per_s = fit(write_bytes_per_s)
//! 1 / kv_ops_per_s = 4 KiB / write_bytes_per_s + read_latency / 32
//! ```
//!
//! Writes are counted in bytes, so the operations are reads. The second formula is a rule of thumb.
//! A read that misses RAM takes one page of the device's bandwidth, which is about the same in both
//! directions. It also takes its share of the latency, which it overlaps with the other reads in
//! flight.
//!
//! On emulated devices at an eightieth of their speed, stores reached their limit at 20, 7.7 and
//! 1.7 thousand reads per second, and the formula gives 14, 5 and 1.1. It is monotone: no number of
//! a device can improve and reduce the capability.

use serde::{Deserialize, Serialize};

use crate::{Fit, Measured, Profile};

/// Bytes that the device transfers for a row that is not in RAM.
const PAGE_BYTES: f64 = 4096.0;
/// Number of reads in flight at once under load.
const READS_AT_ONCE: f64 = 32.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvCapability {
    pub kv_bytes_per_s: f64,
    pub kv_ops_per_s: f64,
}

impl KvCapability {
    pub fn measured(measured: &Measured, fit: &Fit) -> KvCapability {
        let kv_bytes_per_s = fit.kv_bytes_per_s(measured.write_bytes_per_s);
        let seconds_per_op = PAGE_BYTES / measured.write_bytes_per_s.max(1.0)
            + measured.read_latency.as_secs_f64() / READS_AT_ONCE;
        KvCapability { kv_bytes_per_s, kv_ops_per_s: 1.0 / seconds_per_op }
    }

    /// Returns the capability that the shipped fit gives for a device as its profile states it. For
    /// a profile that is slowed as a whole, it is better to ask at full speed and
    /// [scale](KvCapability::scaled) the result.
    pub fn of(profile: &Profile) -> KvCapability {
        KvCapability::measured(&Measured::stated(profile), &Fit::shipped())
    }

    /// Returns the capability of a device whose bandwidths and latencies all change by the factor
    /// `speed`.
    pub fn scaled(self, speed: f64) -> KvCapability {
        KvCapability { kv_bytes_per_s: self.kv_bytes_per_s * speed, kv_ops_per_s: self.kv_ops_per_s * speed }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::probe::Method;

    #[test]
    fn faster_profiles_have_more_capability() {
        let of = |name| KvCapability::of(&Profile::named(name).unwrap());
        let (nvm, high, plain) = (of("nvm"), of("high-end-ssd"), of("plain-ssd"));
        assert!(nvm.kv_ops_per_s > high.kv_ops_per_s && high.kv_ops_per_s > plain.kv_ops_per_s);
        assert!(nvm.kv_bytes_per_s > high.kv_bytes_per_s && high.kv_bytes_per_s > plain.kv_bytes_per_s);
    }

    #[test]
    fn every_number_of_a_profile_is_monotone() {
        let base = Profile::named("plain-ssd").unwrap();
        let ops = |profile: &Profile| KvCapability::of(profile).kv_ops_per_s;
        let better = [
            Profile { write_bytes_per_s: base.write_bytes_per_s * 2, ..base.clone() },
            Profile { read_bytes_per_s: base.read_bytes_per_s * 2, ..base.clone() },
            Profile { read_latency: base.read_latency / 2, ..base.clone() },
        ];
        for profile in better {
            assert!(ops(&profile) > ops(&base), "{profile}");
        }
    }

    #[test]
    fn a_device_slowed_as_a_whole_does_less_by_the_same_factor() {
        let fit = Fit::shipped();
        let full = Profile::named("high-end-ssd").unwrap();
        let slow = full.slower(80.0).unwrap();
        let scaled = KvCapability::of(&full).scaled(1.0 / 80.0);
        let measured = KvCapability::measured(&Measured::stated(&slow), &fit.at_speed(1.0 / 80.0).unwrap());
        assert!((scaled.kv_bytes_per_s / measured.kv_bytes_per_s - 1.0).abs() < 1e-6);
        assert!((scaled.kv_ops_per_s / measured.kv_ops_per_s - 1.0).abs() < 1e-3);
    }

    fn device(write: f64, sync_us: u64, read_us: u64) -> Measured {
        Measured {
            write_bytes_per_s: write,
            sync_latency: Duration::from_micros(sync_us),
            read_latency: Duration::from_micros(read_us),
            method: Method::Direct,
            emulated: false,
        }
    }

    proptest! {
        #[test]
        fn what_is_measured_better_is_worth_no_less(
            pairs in prop::collection::vec((1e6..1e10, 1e5..1e9), 1..6),
            write in 1e5..2e10,
            better in 1.0..100.0,
            sync_us in 0u64..200_000,
            read_us in 0u64..50_000,
        ) {
            let pairs = pairs.into_iter().map(|(io_bytes_per_s, kv_bytes_per_s)| {
                crate::Pair { name: String::new(), io_bytes_per_s, kv_bytes_per_s }
            });
            let fit = Fit::of(pairs.collect(), 2, String::new()).unwrap();
            let of = |write, sync, read| KvCapability::measured(&device(write, sync, read), &fit);
            let base = of(write, sync_us, read_us);
            prop_assert!(base.kv_bytes_per_s > 0.0 && base.kv_ops_per_s > 0.0);
            for improved in [
                of(write * better, sync_us, read_us),
                of(write, (sync_us as f64 / better) as u64, read_us),
                of(write, sync_us, (read_us as f64 / better) as u64),
            ] {
                let rounding = 1.0 + 1e-12;
                prop_assert!(improved.kv_bytes_per_s * rounding >= base.kv_bytes_per_s);
                prop_assert!(improved.kv_ops_per_s * rounding >= base.kv_ops_per_s);
            }
        }
    }
}
