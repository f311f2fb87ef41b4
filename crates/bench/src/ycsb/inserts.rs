//! Which records exist while a load inserts more: numbers are handed out in order and acknowledged in any.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// Readers choose below [`Inserts::records`] and so never ask for a record that may not be there yet.
#[derive(Debug)]
pub struct Inserts {
    next: AtomicU64,
    end: u64,
    /// Every record below is acknowledged.
    records: AtomicU64,
    /// Acknowledged above `records`.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Inserts {
    /// Records below `first` exist; those from `end` on are not inserted.
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

    /// The next record to insert. `None`: all were handed out.
    pub fn take(&self) -> Option<u64> {
        let take = |next: u64| (next < self.end).then(|| next + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
    }

    pub fn acknowledge(&self, record: u64) {
        // No code that can panic runs under this lock.
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
