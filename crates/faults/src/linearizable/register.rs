//! Judges registers: one member that is written and read as a whole, where every value is written
//! once. Such a history needs no search, however many of its writes overlap (Gibbons and Korach,
//! *Testing Shared Memories*, 1997, theorem 4.1).
//!
//! The write of a value and the reads that returned it form a *cluster*. If the first end among the
//! cluster's operations is before their last beginning, the register holds the value at least from
//! the former to the latter. These spans of two clusters must not overlap. In every other cluster,
//! all operations are in progress at the same time. They may take effect together at any moment
//! from their last beginning to their first end that no span covers.

use std::collections::BTreeMap;

use crate::history::{Answer, Call, Member, Operation};

/// Nanoseconds. `None` is before everything.
type Moment = Option<u64>;

/// The operations of one value.
struct Cluster {
    write_began: Moment,
    first_end: Moment,
    last_began: Moment,
}

impl Cluster {
    fn written(began: Moment, ended: Moment) -> Cluster {
        Cluster { write_began: began, first_end: ended, last_began: began }
    }

    /// Returns true if the register certainly holds the value from `first_end` to `last_began`.
    fn spans(&self) -> bool {
        self.first_end < self.last_began
    }
}

/// Returns the verdict on a register's history without open reads, or `None` if the history is of
/// another kind.
pub(super) fn is_linearizable(operations: &[Operation]) -> Option<bool> {
    let mut clusters: BTreeMap<Option<&str>, Cluster> = BTreeMap::new();
    clusters.insert(None, Cluster::written(None, None));
    let mut reads = Vec::new();
    let mut member: Option<Member> = None;
    for operation in operations {
        let began = Some(operation.began);
        let at = match (&operation.call, &operation.ended) {
            (Call::Write(_), Some((_, answer))) if *answer != Answer::Written => return Some(false),
            (Call::Write(pairs), ended) => {
                let [(at, value)] = pairs.as_slice() else { return None };
                let ended = Some(ended.as_ref().map_or(u64::MAX, |(at, _)| *at));
                if clusters.insert(Some(value.as_str()), Cluster::written(began, ended)).is_some() {
                    return None;
                }
                at
            }
            (Call::Read(members), Some((ended, Answer::Values(values)))) => {
                let ([at], [value]) = (members.as_slice(), values.as_slice()) else { return None };
                reads.push((value.as_deref(), began, Some(*ended)));
                at
            }
            _ => return None,
        };
        if *member.get_or_insert(*at) != *at {
            return None;
        }
    }
    for (value, began, ended) in reads {
        let Some(cluster) = clusters.get_mut(&value) else { return Some(false) };
        if ended < cluster.write_began {
            return Some(false);
        }
        cluster.first_end = cluster.first_end.min(ended);
        cluster.last_began = cluster.last_began.max(began);
    }
    let (mut spanning, others): (Vec<Cluster>, Vec<Cluster>) =
        clusters.into_values().partition(Cluster::spans);
    spanning.sort_unstable_by_key(|cluster| cluster.first_end);
    let overlap = spanning.windows(2).any(|pair| pair[1].first_end < pair[0].last_began);
    let covered = others.iter().any(|other| {
        let covers = |span: &Cluster| span.first_end < other.last_began && other.first_end < span.last_began;
        spanning.iter().any(covers)
    });
    Some(!overlap && !covered)
}
