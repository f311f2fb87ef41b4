//! The reasons of operators, with their numbers.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use crate::units::{Bytes, BytesPerSecond, Cores, Nanos, Percent};

/// The reason of an operator. `Display` writes it as a sentence. Its numbers describe the state
/// before the move, with everything counted as done that was in flight or planned earlier in the
/// same round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Reason {
    /// Repair: a peer is missing and another one is added.
    TooFewVoters {
        voters: u32,
        wanted: u32,
    },
    /// Repair: the region is complete without the peer on a lost store.
    Lost {
        store: StoreId,
    },
    /// Repair: the peer may have lost state that it acknowledged when its machine crashed.
    Unclean {
        store: StoreId,
    },
    LostRows {
        store: StoreId,
    },
    /// The store drains.
    Draining {
        store: StoreId,
    },
    /// The device of the store is down to its reserve.
    OutOfRoom {
        store: StoreId,
    },
    /// The store's wall clock is too far from those of the others.
    ClockOff {
        store: StoreId,
    },
    /// The store has no session with ZooKeeper, which chooses candidates, and other stores have.
    NoSession {
        store: StoreId,
    },
    /// Repair: the region has too many voters, and one is removed.
    TooManyVoters {
        voters: u32,
        wanted: u32,
    },
    /// Repair: a learner for which no operator is in flight.
    StrayLearner,
    /// Repair: `companions` other peers of the region are in the same failure domain, and
    /// `companions_after` in that of the target.
    SharedDomain {
        companions: u32,
        companions_after: u32,
    },
    /// Data moves to a store that holds less relative to its weight (ALOR §3.2, Eq. 1). Weights are
    /// in millionths of the largest.
    DataLevels {
        region_bytes: u64,
        from_bytes: u64,
        from_weight_ppm: u32,
        to_bytes: u64,
        to_weight_ppm: u32,
    },
    /// The store is above its threshold and sheds its coldest data (ALOR §3.2).
    Full {
        used_bytes: u64,
        capacity_bytes: u64,
        heat_per_gb: u64,
    },
    /// `even`. If no region of `most` has an eligible peer on `least`, leaders move along a chain
    /// of stores, one region per step; `steps` is then above 1.
    LeaderCounts {
        most: StoreId,
        most_leaders: u32,
        least: StoreId,
        least_leaders: u32,
        step: u32,
        steps: u32,
    },
    /// `leader-only` and `alor` (§3.1): the write speeds of the present leader's store and of the
    /// target.
    MoreCapable {
        from_bytes_per_s: u64,
        to_bytes_per_s: u64,
    },
    /// `adaptive`: the loads of the two stores before and after, in thousandths of their
    /// capability.
    Busy {
        from_permille: u64,
        to_permille: u64,
        from_after_permille: u64,
        to_after_permille: u64,
    },
    /// `adaptive`: this move relieves the busiest of the stores that take part only together with
    /// another region's move.
    Together {
        with: RegionId,
        busiest_permille: u64,
        busiest_after_permille: u64,
    },
    /// `adaptive`: writes wait for the slowest log that a majority needs, and then for the leader.
    Wait {
        // Stored cluster states may contain an older form with other fields.
        #[serde(default)]
        before: Waited,
        #[serde(default)]
        after: Waited,
    },
    /// `adaptive`: a peer of the region changes places with one of another region. Afterwards the
    /// writes of both together wait for `waits_permille` thousandths of the present time.
    ChangePlaces {
        with: RegionId,
        waits_permille: u64,
    },
    /// The CPU of the leader's machine is too busy, and the target's machine has room. Busy shares
    /// are in thousandths, cores in thousandths of a core.
    CpuBusy {
        from_permille: u64,
        from_millicores: u64,
        to_permille: u64,
        to_after_permille: u64,
        to_millicores: u64,
    },
    /// A split by size.
    TooLarge {
        bytes: u64,
        bytes_max: u64,
    },
    /// A split by load.
    TooBusy {
        ops_per_s: u64,
        ops_per_s_max: u64,
    },
    /// A merge. `bytes` is the sum of both regions.
    Small {
        bytes: u64,
        bytes_max: u64,
    },
    /// The order to prepare the region's merge arrived after the merge was abandoned.
    MergeGivenUp {
        into: RegionId,
    },
    /// Requested by an administrator.
    Requested,
}

/// The logs that a region's writes wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// True if the slowest log needed is a follower's, false if it is the leader's own.
    pub log_of_follower: bool,
    pub log_bytes_per_s: u64,
    /// Sync time of that log in nanoseconds; 0 if unknown.
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
            Reason::NoSession { store } => write!(f, "store {store} has no session with ZooKeeper"),
            Reason::TooManyVoters { voters, wanted } => write!(f, "it has {voters} voters and needs {wanted}"),
            Reason::Unclean { store } => {
                write!(f, "the peer on store {store} may have lost entries in a crash of its machine")
            }
            Reason::LostRows { store } => {
                write!(f, "the peer on store {store} lost rows with a damaged file")
            }
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
                // A pair gains at least a tenth, unless a region without a fast peer got one.
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

    /// Stored cluster states contain the older form.
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
