//! Why an operator is asked for, in numbers.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::units::{Bytes, BytesPerSecond, Cores, Nanos, Percent};

/// `Display` makes it a sentence. Numbers are those before the move, with what was in flight, and what was
/// planned earlier in the same round, counted as done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Reason {
    /// Repair: one more peer makes up for it.
    TooFewVoters { voters: u32, wanted: u32 },
    /// Repair: the region is whole without the peer on a store that is lost.
    Lost { store: StoreId },
    /// The store is asked to go.
    Draining { store: StoreId },
    /// Its device is down to the reserve.
    OutOfRoom { store: StoreId },
    /// Its wall clock is too far from the others'.
    ClockOff { store: StoreId },
    /// Repair.
    TooManyVoters { voters: u32, wanted: u32 },
    /// Repair: a learner that nothing is under way for.
    StrayLearner,
    /// Repair: `companions` others of its peers are in the same failure domain, fewer where it goes.
    SharedDomain { companions: u32, companions_after: u32 },
    /// Data to where there is less of it for the weight of the store (ALOR §3.2, Eq. 1). Weights in
    /// millionths of the largest.
    DataLevels { region_bytes: u64, from_bytes: u64, from_weight_ppm: u32, to_bytes: u64, to_weight_ppm: u32 },
    /// The store is above its threshold and sheds what is least used (ALOR §3.2).
    Full { used_bytes: u64, capacity_bytes: u64, heat_per_gb: u64 },
    /// `even`. When no region of `most` has an eligible peer on `least`, leadership is handed on from store
    /// to store, each step a region of its own: `steps` is above 1.
    LeaderCounts {
        most: StoreId,
        most_leaders: u32,
        least: StoreId,
        least_leaders: u32,
        step: u32,
        steps: u32,
    },
    /// `leader-only` and `alor` (§3.1). Bytes/s of the leader's store and of the one that shall lead.
    MoreCapable { from_bytes_per_s: u64, to_bytes_per_s: u64 },
    /// `adaptive`: how busy the two stores are and would be, in thousandths of what they can do.
    Busy { from_permille: u64, to_permille: u64, from_after_permille: u64, to_after_permille: u64 },
    /// `adaptive`: only with another region's move does it relieve the busiest of the stores that take part.
    Together { with: RegionId, busiest_permille: u64, busiest_after_permille: u64 },
    /// `adaptive`: writes wait for the logs of a majority, of which the slowest store counts, and then for
    /// the leader.
    Wait {
        // Cluster states have older ones, with other numbers.
        #[serde(default)]
        before: Waited,
        #[serde(default)]
        after: Waited,
    },
    /// `adaptive`: a peer of the region changes places with one of another region, and the writes of both together
    /// wait for so many thousandths of the time that they do.
    ChangePlaces { with: RegionId, waits_permille: u64 },
    /// The machine of the leader's store has too much of its CPU busy, and the one of the store that shall lead has
    /// room. Busy shares in thousandths, cores in thousandths of one.
    CpuBusy {
        from_permille: u64,
        from_millicores: u64,
        to_permille: u64,
        to_after_permille: u64,
        to_millicores: u64,
    },
    /// A split.
    TooLarge { bytes: u64, bytes_max: u64 },
    /// A split.
    TooBusy { ops_per_s: u64, ops_per_s_max: u64 },
    /// A merge: of both together.
    Small { bytes: u64, bytes_max: u64 },
    /// The order to prepare the region's merge came after the merge was given up.
    MergeGivenUp { into: RegionId },
    /// Somebody asked for it.
    Requested,
}

/// What a region's writes wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// A follower's; else the leader's own.
    pub log_of_follower: bool,
    pub log_bytes_per_s: u64,
    /// 0: not known.
    pub log_sync_ns: u64,
    pub leader_bytes_per_s: u64,
}

struct Log<'a>(&'a Waited);

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.0.log_of_follower { "a follower's" } else { "the leader's own" };
        write!(f, "{whose} log of {}", BytesPerSecond(self.0.log_bytes_per_s))?;
        match self.0.log_sync_ns {
            0 => Ok(()),
            known => write!(f, " ({} a sync)", Nanos(known)),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::TooFewVoters { voters, wanted } => {
                write!(f, "it has {voters} of {wanted} voters on stores that are not lost")
            }
            Reason::Lost { store } => write!(f, "store {store} is lost and the others are enough"),
            Reason::Draining { store } => write!(f, "store {store} is draining"),
            Reason::OutOfRoom { store } => {
                write!(f, "the device of store {store} is out of room, and it refuses what adds data")
            }
            Reason::ClockOff { store } => {
                write!(f, "the clock of store {store} is too far from the median of the stores' clocks")
            }
            Reason::TooManyVoters { voters, wanted } => write!(f, "it has {voters} voters and needs {wanted}"),
            Reason::StrayLearner => f.write_str("it is a learner that nothing is under way for"),
            Reason::SharedDomain { companions, companions_after } => write!(
                f,
                "it shares its failure domain with {companions} of the region's peers, there with {companions_after}"
            ),
            Reason::DataLevels { region_bytes, from_bytes, from_weight_ppm, to_bytes, to_weight_ppm } => {
                let weight = |ppm: &u32| f64::from(*ppm) / 1e6;
                write!(
                    f,
                    "the one holds {} for a weight of {:.3}, the other {} for {:.3}, the region is {}",
                    Bytes(*from_bytes),
                    weight(from_weight_ppm),
                    Bytes(*to_bytes),
                    weight(to_weight_ppm),
                    Bytes(*region_bytes)
                )
            }
            Reason::Full { used_bytes, capacity_bytes, heat_per_gb } => write!(
                f,
                "the store holds {} of {}, and of its regions that can go this is among the coldest \
                 with {heat_per_gb} operations/s per GB",
                Bytes(*used_bytes),
                Bytes(*capacity_bytes)
            ),
            Reason::LeaderCounts { most, most_leaders, least, least_leaders, step, steps } => {
                let regions = |count: &u32| if *count == 1 { "region" } else { "regions" };
                write!(
                    f,
                    "store {most} leads {most_leaders} {} and store {least} leads {least_leaders}",
                    regions(most_leaders)
                )?;
                if *steps > 1 {
                    write!(f, " (step {step} of a chain of {steps} moves between them)")?;
                }
                Ok(())
            }
            Reason::MoreCapable { from_bytes_per_s, to_bytes_per_s } => write!(
                f,
                "its store writes {}, the present leader's {}",
                BytesPerSecond(*to_bytes_per_s),
                BytesPerSecond(*from_bytes_per_s)
            ),
            Reason::Busy { from_permille, to_permille, from_after_permille, to_after_permille } => write!(
                f,
                "the one is {} busy and the other {}, afterwards {} and {}",
                Percent(*from_permille),
                Percent(*to_permille),
                Percent(*from_after_permille),
                Percent(*to_after_permille)
            ),
            Reason::Together { with, busiest_permille, busiest_after_permille } => write!(
                f,
                "together with the move of region {with} the busiest of the stores that take part comes \
                 from {} to {}",
                Percent(*busiest_permille),
                Percent(*busiest_after_permille)
            ),
            Reason::Wait { before, after } => write!(
                f,
                "its writes wait for {} and a leader of {}, then for {} and {}",
                Log(before),
                BytesPerSecond(before.leader_bytes_per_s),
                Log(after),
                BytesPerSecond(after.leader_bytes_per_s)
            ),
            Reason::ChangePlaces { with, waits_permille } => {
                write!(f, "it changes places with a peer of region {with}, ")?;
                // A tenth is what two moves gain at least, but for a region that had no fast peer.
                if *waits_permille > 900 {
                    f.write_str("so that each of the two has one that is fast, ")?;
                }
                write!(f, "and the writes of both wait {} as long", Percent(*waits_permille))
            }
            Reason::CpuBusy {
                from_permille,
                from_millicores,
                to_permille,
                to_after_permille,
                to_millicores,
            } => write!(
                f,
                "its store has its CPU at {} of {}, the other at {} of {} and then at {}",
                Percent(*from_permille),
                Cores(*from_millicores),
                Percent(*to_permille),
                Cores(*to_millicores),
                Percent(*to_after_permille)
            ),
            Reason::TooLarge { bytes, bytes_max } => {
                write!(f, "it holds {}, the limit is {}", Bytes(*bytes), Bytes(*bytes_max))
            }
            Reason::TooBusy { ops_per_s, ops_per_s_max } => {
                write!(f, "it serves {ops_per_s} operations/s, the limit is {ops_per_s_max}")
            }
            Reason::Small { bytes, bytes_max } => {
                write!(f, "together they hold {}, less than {}", Bytes(*bytes), Bytes(*bytes_max))
            }
            Reason::MergeGivenUp { into } => write!(f, "its merge into region {into} was given up"),
            Reason::Requested => f.write_str("it was asked for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cluster states remember them.
    #[test]
    fn a_reason_with_the_numbers_of_before_is_read() {
        let old = r#"{"reason":"wait","log_before_bytes_per_s":1,"leader_before_bytes_per_s":2,
            "log_after_bytes_per_s":3,"leader_after_bytes_per_s":4}"#;
        let read: Reason = serde_json::from_str(old).unwrap();
        assert_eq!(read, Reason::Wait { before: Waited::default(), after: Waited::default() });
        let new = Reason::ChangePlaces { with: 7, waits_permille: 787 };
        assert_eq!(serde_json::from_str::<Reason>(&serde_json::to_string(&new).unwrap()).unwrap(), new);
    }
}
