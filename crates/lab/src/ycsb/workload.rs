//! The core workloads: the shares of reads, updates and inserts, and the distribution of requests.

use serde::{Deserialize, Serialize};
use types::Draw;

use super::generator::{Chooser, Distribution};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Inserts every record once.
    Load,
    A,
    B,
    C,
    D,
    E,
    F,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Read,
    Update,
    Insert,
    /// A read, then a write of the same record. They count as one latency.
    ReadModifyWrite,
    /// A read of consecutive records. It counts as one latency.
    Scan,
}

/// Maximum number of records of a scan: YCSB's value for its workload E.
const SCANNED_MAX: u64 = 100;

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::ReadModifyWrite => "read-modify-write",
            Kind::Scan => "scan",
        }
    }
}

impl Workload {
    pub const ALL: [Workload; 7] =
        [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::E, Workload::F];

    pub fn name(self) -> &'static str {
        match self {
            Workload::Load => "Load",
            Workload::A => "A",
            Workload::B => "B",
            Workload::C => "C",
            Workload::D => "D",
            Workload::E => "E",
            Workload::F => "F",
        }
    }

    /// Returns the shares of the kinds of operations in percent.
    pub fn shares(self) -> &'static [(Kind, u64)] {
        match self {
            Workload::Load => &[(Kind::Insert, 100)],
            Workload::A => &[(Kind::Read, 50), (Kind::Update, 50)],
            Workload::B => &[(Kind::Read, 95), (Kind::Update, 5)],
            Workload::C => &[(Kind::Read, 100)],
            Workload::D => &[(Kind::Read, 95), (Kind::Insert, 5)],
            Workload::E => &[(Kind::Scan, 95), (Kind::Insert, 5)],
            Workload::F => &[(Kind::Read, 50), (Kind::ReadModifyWrite, 50)],
        }
    }

    pub fn distribution(self) -> Distribution {
        match self {
            Workload::Load => Distribution::Uniform,
            Workload::A | Workload::B | Workload::C | Workload::E | Workload::F => Distribution::Zipfian,
            Workload::D => Distribution::Latest,
        }
    }

    /// Returns true if the workload writes enough to keep compaction busy.
    pub fn is_write_heavy(self) -> bool {
        let reads = self.share(Kind::Read) + self.share(Kind::Scan);
        reads <= 50
    }

    /// Returns the share of a kind of operation in percent.
    pub fn share(self, kind: Kind) -> u64 {
        self.shares().iter().filter(|(known, _)| *known == kind).map(|(_, share)| share).sum()
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let found = Workload::ALL.into_iter().find(|workload| workload.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("'{text}' is no workload; the workloads are load, a, b, c, d, e and f"))
    }
}

/// Returns the key `user` and twelve digits: sixteen bytes in the order of the numbers. The slot is
/// the CRC16 of the whole key.
pub fn key(record: u64) -> String {
    assert!(record < 1_000_000_000_000, "a record's number has at most twelve digits");
    format!("user{record:012}")
}

/// Returns a key with a hash tag. `group` consecutive records share it, and with it a slot.
pub fn grouped_key(record: u64, group: u64) -> String {
    format!("user{{{:012}}}{}", record / group, record % group)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub kind: Kind,
    /// The record. `None` for an insert: the caller then chooses the next record that is not
    /// inserted yet.
    pub record: Option<u64>,
    /// Maximum number of records from that record on.
    pub length: u64,
}

/// The operations of one thread. The same seed gives the same operations if the numbers of records
/// are the same.
#[derive(Clone, Debug)]
pub struct Operations {
    workload: Workload,
    chooser: Chooser,
    draw: Draw,
}

impl Operations {
    /// Creates the generator. `operations` is the maximum number for all threads together.
    pub fn new(
        workload: Workload,
        distribution: Distribution,
        records: u64,
        operations: u64,
        draw: Draw,
    ) -> Operations {
        // YCSB reckons with twice the expected inserts. The number of operations may be unbounded,
        // so it is limited to the number of existing records. Records inserted beyond that are
        // never asked for.
        let coming = (operations.saturating_mul(2 * workload.share(Kind::Insert)) / 100).min(records);
        Operations { workload, chooser: Chooser::new(distribution, records, coming), draw }
    }

    /// Returns the next operation, given the number of existing records.
    pub fn next(&mut self, records: u64) -> Operation {
        let mut at = self.draw.below(100);
        let mut kind = Kind::Read;
        for (known, share) in self.workload.shares() {
            kind = *known;
            match at.checked_sub(*share) {
                Some(rest) => at = rest,
                None => break,
            }
        }
        let record = (kind != Kind::Insert).then(|| self.chooser.next(records, &mut self.draw));
        let length = if kind == Kind::Scan { 1 + self.draw.below(SCANNED_MAX) } else { 1 };
        Operation { kind, record, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_hundred_and_are_kept() {
        for workload in Workload::ALL {
            assert_eq!(workload.shares().iter().map(|(_, share)| share).sum::<u64>(), 100);
            let mut operations =
                Operations::new(workload, workload.distribution(), 1000, 0, Draw::new(workload as u64));
            let drawn: Vec<Kind> = (0..20_000).map(|_| operations.next(1000).kind).collect();
            for (kind, share) in workload.shares() {
                let seen = drawn.iter().filter(|k| *k == kind).count() as f64 / 200.0;
                assert!((seen - *share as f64).abs() < 1.5, "{workload:?} {kind:?}: {seen}%");
            }
        }
        let heavy: Vec<_> = Workload::ALL.into_iter().filter(|w| w.is_write_heavy()).collect();
        assert_eq!(heavy, [Workload::Load, Workload::A, Workload::F]);
    }

    #[test]
    fn a_seed_repeats_its_operations() {
        let of = |seed| {
            let mut operations = Operations::new(Workload::A, Distribution::Zipfian, 500, 0, Draw::new(seed));
            (0..50).map(|_| operations.next(500)).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn keys_are_sixteen_bytes() {
        assert_eq!(key(42), "user000000000042");
        assert_eq!(key(999_999_999_999).len(), 16);
    }

    #[test]
    fn ranges_have_one_to_a_hundred_records() {
        let mut operations = Operations::new(Workload::E, Distribution::Zipfian, 1000, 0, Draw::new(3));
        let drawn: Vec<Operation> = (0..20_000).map(|_| operations.next(1000)).collect();
        let lengths = || drawn.iter().filter(|one| one.kind == Kind::Scan).map(|one| one.length);
        assert_eq!((lengths().min(), lengths().max()), (Some(1), Some(100)));
        let mean = lengths().sum::<u64>() as f64 / lengths().count() as f64;
        assert!((mean - 50.5).abs() < 1.0, "{mean}");
        assert!(drawn.iter().all(|one| one.kind == Kind::Scan || one.length == 1));
    }

    #[test]
    fn names_are_read() {
        assert_eq!("load".parse(), Ok(Workload::Load));
        assert_eq!("a".parse(), Ok(Workload::A));
        assert_eq!("e".parse(), Ok(Workload::E));
        assert!("z".parse::<Workload>().is_err());
    }
}
