//! Random numbers from a seed, and the records that YCSB's workloads request.

pub(crate) use types::Draw;

use crate::Workload;

/// YCSB's constants. Ranks are drawn from 10^10 items with a probability proportional to 1 /
/// rank^0.99, whose sum is [`ZETA`], and are hashed onto the records (`ScrambledZipfianGenerator`).
const THETA: f64 = 0.99;
const ITEMS: f64 = 1e10;
const ZETA: f64 = 26.469_028_201_783_02;

/// Returns a record below `records`. A few records are popular, and they are scattered.
pub(crate) fn popular(records: u64, draw: &mut Draw) -> u64 {
    let zeta_of_two = 1.0 + 0.5f64.powf(THETA);
    let eta = (1.0 - (2.0 / ITEMS).powf(1.0 - THETA)) / (1.0 - zeta_of_two / ZETA);
    let u = draw.fraction();
    let rank = match u * ZETA {
        uz if uz < 1.0 => 0,
        uz if uz < zeta_of_two => 1,
        _ => (ITEMS * (eta * u - eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64,
    };
    fnv(rank) % records
}

/// Returns FNV-1a over the number's eight bytes, without the sign bit, as YCSB does.
fn fnv(number: u64) -> u64 {
    let hash = number.to_be_bytes().iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash as i64).unsigned_abs()
}

/// Returns the slot of a record's key, which has sixteen bytes and is the load generator's.
pub(crate) fn slot_of(record: u64) -> types::Slot {
    types::slot_of_key(format!("user{record:012}").as_bytes())
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Update,
    Insert,
}

pub(crate) fn kind(workload: Workload, draw: &mut Draw) -> Kind {
    match workload.read_percent() {
        None => Kind::Insert,
        Some(reads) if draw.below(100) < reads => Kind::Read,
        Some(_) => Kind::Update,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_popular_record_has_zipfs_share() {
        let (mut draw, records) = (Draw::new(7), 10_000);
        let hottest = fnv(0) % records;
        let draws = 200_000;
        let seen = (0..draws).filter(|_| popular(records, &mut draw) == hottest).count();
        let share = seen as f64 / f64::from(draws);
        // 1 / 26.47 is 3.78%, plus other ranks that are hashed to the same record.
        assert!((0.034..0.042).contains(&share), "{share}");
    }

    #[test]
    fn workloads_have_their_shares() {
        let mut draw = Draw::new(3);
        let mut reads = |workload| {
            (0..20_000).filter(|_| kind(workload, &mut draw) == Kind::Read).count() as f64 / 20_000.0
        };
        assert!((reads(Workload::A) - 0.5).abs() < 0.02);
        assert!((reads(Workload::B) - 0.95).abs() < 0.01);
        assert_eq!((reads(Workload::C), reads(Workload::Load)), (1.0, 0.0));
    }
}
