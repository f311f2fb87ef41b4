//! What a device lets a store do, in key-value terms, before anything was measured.
//!
//! A stated rule of thumb, not a fit: `steelyard calibrate` replaces it by a polynomial over measured pairs
//! (ALOR §4.1). It is monotone: no number of a profile can improve and make the capability worse, which is
//! what leader placement rests on.

use serde::{Deserialize, Serialize};

use crate::Profile;

/// Bytes a device writes for a byte of user data: the Raft log, the flush and about six rewrites by
/// levelled compaction.
const WRITE_AMPLIFICATION: f64 = 8.0;
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
    pub fn of(profile: &Profile) -> KvCapability {
        let write = profile.write_bytes_per_s as f64;
        let read = profile.read_bytes_per_s as f64;
        let kv_bytes_per_s = write / WRITE_AMPLIFICATION;
        let seconds_per_op = RECORD_BYTES / kv_bytes_per_s
            + profile.sync_latency.as_secs_f64() / COMMANDS_PER_SYNC
            + READS_PER_OPERATION * (profile.read_latency.as_secs_f64() + RECORD_BYTES / read);
        KvCapability { kv_bytes_per_s, kv_ops_per_s: 1.0 / seconds_per_op }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
