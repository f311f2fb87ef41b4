//! What a device lets a store do, in key-value terms: its I/O speed through a [`Fit`], and its latencies.
//!
//! ```text
//! kv_bytes_per_s = fit(write_bytes_per_s)
//! 1 / kv_ops_per_s = 1 KiB / kv_bytes_per_s + sync_latency / 32 + read_latency / 4
//! ```
//!
//! The second is a stated rule of thumb: what a record costs in bytes, its part of a log sync that as many
//! commands share under load, and the device reads that are left once hot rows are in RAM. It is monotone: no
//! number of a device can improve and make the capability worse, which is what leader placement rests on.

use serde::{Deserialize, Serialize};

use crate::{Fit, Measured, Profile};

/// The record that operations per second are stated for.
const RECORD_BYTES: f64 = 1024.0;
/// Commands that share one log sync under load.
const COMMANDS_PER_SYNC: f64 = 32.0;
/// Device reads per operation once the hot rows are in RAM.
const READS_PER_OPERATION: f64 = 0.25;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvCapability {
    pub kv_bytes_per_s: f64,
    pub kv_ops_per_s: f64,
}

impl KvCapability {
    pub fn measured(measured: &Measured, fit: &Fit) -> KvCapability {
        let kv_bytes_per_s = fit.kv_bytes_per_s(measured.write_bytes_per_s);
        let seconds_per_op = RECORD_BYTES / kv_bytes_per_s
            + measured.sync_latency.as_secs_f64() / COMMANDS_PER_SYNC
            + READS_PER_OPERATION * measured.read_latency.as_secs_f64();
        KvCapability { kv_bytes_per_s, kv_ops_per_s: 1.0 / seconds_per_op }
    }

    /// What the fit that is shipped says of a device as its profile states it. A profile that is slowed as a
    /// whole is better asked at full speed, and the answer [scaled](KvCapability::scaled).
    pub fn of(profile: &Profile) -> KvCapability {
        KvCapability::measured(&Measured::stated(profile), &Fit::shipped())
    }

    /// Of a device that is slower by a factor in everything, bandwidths and latencies.
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
            Profile { sync_latency: base.sync_latency / 2, ..base.clone() },
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
