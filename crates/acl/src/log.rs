//! The log of denials: recent ones first, with equal ones counted together.

use std::collections::VecDeque;

use bytes::Bytes;

/// Denials within this time are counted as one entry if they are equal, in milliseconds.
const GROUPED_MS: u64 = 60_000;
/// Number of recent entries that are compared with a new one.
const COMPARED: usize = 10;

/// A denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `auth`, `command`, `key` or `channel`.
    pub reason: &'static str,
    /// `toplevel`, or `multi` within a transaction.
    pub context: &'static str,
    pub object: Bytes,
    pub username: Bytes,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub event: Event,
    pub count: u64,
    /// The time of the last denial, in milliseconds.
    pub at_ms: u64,
    /// The client of the last denial, as a line of `CLIENT LIST`.
    pub client: String,
}

/// The entries, the newest first.
#[derive(Debug, Default)]
pub struct Log(VecDeque<Entry>);

impl Log {
    /// Records a denial. At most `max` entries are kept.
    pub fn note(&mut self, event: Event, client: String, now_ms: u64, max: usize) {
        let is_same = |entry: &Entry| entry.event == event && now_ms.abs_diff(entry.at_ms) <= GROUPED_MS;
        let same = self.0.iter().take(COMPARED).position(is_same);
        let count = match same.and_then(|at| self.0.remove(at)) {
            Some(entry) => entry.count + 1,
            None => 1,
        };
        self.0.push_front(Entry { event, count, at_ms: now_ms, client });
        self.0.truncate(max);
    }

    pub fn recent(&self, count: usize) -> impl Iterator<Item = &Entry> {
        self.0.iter().take(count)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(object: &str) -> Event {
        let object = Bytes::copy_from_slice(object.as_bytes());
        Event { reason: "key", context: "toplevel", object, username: Bytes::from_static(b"u") }
    }

    #[test]
    fn equal_denials_are_counted_and_the_oldest_are_dropped() {
        let mut log = Log::default();
        for (object, at) in [("a", 0), ("b", 10), ("a", 50_000), ("a", 110_000), ("a", 170_001)] {
            log.note(event(object), format!("at {at}"), at, 3);
        }
        let seen: Vec<_> = log
            .recent(9)
            .map(|entry| (entry.event.object.clone(), entry.count, entry.client.as_str()))
            .collect();
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        assert_eq!(seen, [(a.clone(), 1, "at 170001"), (a, 3, "at 110000"), (b, 1, "at 10")]);
        log.note(event("c"), String::new(), 170_002, 3);
        assert_eq!((log.recent(9).count(), log.recent(1).count()), (3, 1));
        log.note(event("d"), String::new(), 170_002, 0);
        assert_eq!(log.recent(9).count(), 0);
        log.clear();
    }
}
