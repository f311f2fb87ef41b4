//! The commands for a record, which is one string or a hash of several fields.

use std::ops::Range;

use bytes::Bytes;
use types::Draw;

use super::workload::{grouped_key, key};
use client::cluster_client::Call;

/// Number of bytes, which do not compress, from which values are cut. A table block holds a few
/// values.
const POOL_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Records {
    fields: usize,
    field_bytes: usize,
    /// The number of consecutive records in one slot.
    group: u64,
    pool: Bytes,
}

impl Records {
    pub fn new(fields: usize, field_bytes: usize, seed: u64) -> Records {
        assert!(fields > 0 && field_bytes > 0, "a record must have a field, and a field must have bytes");
        let pool = Bytes::from(client::value::printable(POOL_BYTES + field_bytes, seed));
        Records { fields, field_bytes, group: 1, pool }
    }

    /// Returns records whose keys share a hash tag in groups of `group` consecutive records.
    pub fn grouped(self, group: u64) -> Records {
        Records { group: group.max(1), ..self }
    }

    fn key(&self, record: u64) -> Bytes {
        Bytes::from(match self.group {
            1 => key(record),
            group => grouped_key(record, group),
        })
    }

    fn value(&self, draw: &mut Draw) -> Bytes {
        let at = draw.below(POOL_BYTES as u64) as usize;
        self.pool.slice(at..at + self.field_bytes)
    }

    pub fn insert(&self, record: u64, draw: &mut Draw) -> Call {
        let mut arguments = vec![Bytes::from_static(b"SET"), self.key(record)];
        if self.fields > 1 {
            arguments[0] = Bytes::from_static(b"HSET");
            for field in 0..self.fields {
                arguments.extend([Bytes::from(format!("field{field}")), self.value(draw)]);
            }
        } else {
            arguments.push(self.value(draw));
        }
        Call::new(arguments, false)
    }

    /// Writes one field, as YCSB does by default.
    pub fn update(&self, record: u64, draw: &mut Draw) -> Call {
        if self.fields == 1 {
            return self.insert(record, draw);
        }
        let field = Bytes::from(format!("field{}", draw.below(self.fields as u64)));
        let name = Bytes::from_static(b"HSET");
        Call::new(vec![name, self.key(record), field, self.value(draw)], false)
    }

    /// Reads all fields.
    pub fn read(&self, record: u64) -> Call {
        let name: &[u8] = if self.fields == 1 { b"GET" } else { b"HGETALL" };
        Call::new(vec![Bytes::from_static(name), self.key(record)], true)
    }

    /// Reads consecutive records. Strings of one slot are read by one command, all other records
    /// one by one.
    pub fn scan(&self, records: Range<u64>) -> Vec<Call> {
        if self.fields > 1 || self.group == 1 {
            return records.map(|record| self.read(record)).collect();
        }
        let mut calls = Vec::new();
        let mut next = records.start;
        while next < records.end {
            let end = records.end.min((next / self.group + 1) * self.group);
            let name = Bytes::from_static(b"MGET");
            let keys = (next..end).map(|record| self.key(record));
            calls.push(Call::new(std::iter::once(name).chain(keys).collect(), true));
            next = end;
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(call: &Call) -> Vec<String> {
        let short = |bytes: &Bytes| String::from_utf8_lossy(&bytes[..bytes.len().min(20)]).into_owned();
        call.arguments.iter().map(short).collect()
    }

    #[test]
    fn a_record_of_one_field_is_a_string() {
        let records = Records::new(1, 1024, 1);
        let insert = records.insert(7, &mut Draw::new(1));
        assert_eq!(words(&insert)[..2], ["SET", "user000000000007"]);
        assert_eq!((insert.arguments[2].len(), insert.read), (1024, false));
        assert_eq!(words(&records.read(7)), ["GET", "user000000000007"]);
        assert!(records.read(7).read);
    }

    #[test]
    fn a_range_is_one_command_for_each_slot() {
        let plain = Records::new(1, 10, 1);
        let read: Vec<_> = plain.scan(8..11).iter().map(words).collect();
        assert_eq!(read[..2], [["GET", "user000000000008"], ["GET", "user000000000009"]]);
        let grouped = plain.grouped(10);
        let read: Vec<_> = grouped.scan(8..11).iter().map(words).collect();
        assert_eq!(
            read,
            [vec!["MGET", "user{000000000000}8", "user{000000000000}9"], vec!["MGET", "user{000000000001}0"]]
        );
        assert!(grouped.scan(20..20).is_empty());
        assert_eq!(grouped.scan(0..100).len(), 10);
        for call in grouped.scan(0..100) {
            let mut slots = call.arguments[1..].iter().map(|key| types::slot_of_key(key));
            assert!(slots.all(|slot| slot == types::slot_of_key(&call.key)));
        }
        assert_eq!(Records::new(2, 10, 1).grouped(10).scan(0..3).len(), 3);
    }

    #[test]
    fn a_record_of_more_fields_is_a_hash_and_an_update_writes_one() {
        let records = Records::new(3, 10, 1);
        assert_eq!(records.insert(7, &mut Draw::new(1)).arguments.len(), 8);
        let update = records.update(7, &mut Draw::new(1));
        assert_eq!(update.arguments.len(), 4);
        assert!(words(&update)[2].starts_with("field"));
        assert_eq!(words(&records.read(7))[0], "HGETALL");
    }
}
