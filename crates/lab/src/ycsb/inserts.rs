//! The records that exist while a load inserts more. Numbers are handed out in order and
//! acknowledged in any order.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// The numbers of inserted records. Readers choose below [`Inserts::records`], so they never ask
/// for a record that may not exist yet.
#[derive(Debug)]
pub struct Inserts {
    next: AtomicU64,
    end: u64,
    /// Every record below this number is acknowledged.
    records: AtomicU64,
    /// Acknowledged records above `records`.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Inserts {
    /// Creates the numbers from `first` to `end`. Records below `first` exist already.
    pub fn new(first: u64, end: u64) -> Inserts {
        Inserts {
            next: AtomicU64::new(first),
            end,
            records: AtomicU64::new(first),
            ahead: Mutex::new(BTreeSet::new()),
        }
    }

    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Returns the next record to insert. `None` if all were handed out.
    pub fn take(&self) -> Option<u64> {
        let take = |next: u64| (next < self.end).then(|| next + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
    }

    pub fn acknowledge(&self, record: u64) {
        // A poisoned set is still consistent: no code that can panic runs under this lock.
        let mut ahead = self.ahead.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        ahead.insert(record);
        let mut records = self.records.load(Ordering::Relaxed);
        while ahead.remove(&records) {
            records += 1;
        }
        self.records.store(records, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_once_all_before_it_do() {
        let inserts = Inserts::new(10, 13);
        assert_eq!([inserts.take(), inserts.take(), inserts.take()], [Some(10), Some(11), Some(12)]);
        assert_eq!(inserts.take(), None);
        inserts.acknowledge(12);
        inserts.acknowledge(11);
        assert_eq!(inserts.records(), 10);
        inserts.acknowledge(10);
        assert_eq!(inserts.records(), 13);
    }
}
