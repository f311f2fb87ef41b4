//! Fingerprints of values, which do not depend on the order of elements unless it is a list.
//!
//! That of a stream has its entries, numbers, groups, consumers and pending entries. It has no
//! times, which a copy in pieces does not keep exactly.

use bytes::Bytes;
use rdb::{write, Element, EntryId, Kind, Source, StreamPart};

/// A value's kind, number of elements, and the sum of their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    kind: Kind,
    elements: u64,
    sum: u64,
    /// The sum of the hashes of a stream's pending entries.
    pending: u64,
    /// The sum of the hashes of the numbers of entries that a stream's groups have read.
    entries_read: u64,
    /// The hashes of a stream's last group, and of its last consumer there.
    group: u64,
    consumer: u64,
}

impl Fingerprint {
    pub fn new(kind: Kind) -> Fingerprint {
        Fingerprint { kind, elements: 0, sum: 0, pending: 0, entries_read: 0, group: 0, consumer: 0 }
    }

    /// Returns true if the fingerprints are the same except for the pending entries of a stream.
    pub fn is_same_without_pending(&self, other: &Fingerprint) -> bool {
        Fingerprint { pending: 0, ..*self } == Fingerprint { pending: 0, ..*other }
    }

    /// Returns the fingerprint without the numbers of entries that groups have read, which Redis
    /// 7.0 does not pass on to replicas.
    pub fn without_entries_read(self) -> Fingerprint {
        Fingerprint { entries_read: 0, ..self }
    }

    pub fn add(&mut self, element: &Element) {
        let mut bytes = Vec::with_capacity(element.len() + 16);
        if let Element::Item(_) = element {
            write::length(&mut bytes, self.elements);
        }
        match element {
            // A sorted set may hold a negative zero in Redis, which is 0 in the other encodings.
            Element::Scored(name, score) => {
                write::element(&mut bytes, &Element::Scored(name.clone(), *score + 0.0))
            }
            Element::Stream(part) => return self.add_part(part),
            element => write::element(&mut bytes, element),
        }
        self.elements += 1;
        self.sum = self.sum.wrapping_add(types::key_hash(&bytes));
    }

    fn add_part(&mut self, part: &StreamPart) {
        let mut bytes = Vec::new();
        let mut put = |number: u64| write::length(&mut bytes, number);
        let mut put_id = |id: &EntryId| [id.ms, id.seq].into_iter().for_each(&mut put);
        match part {
            StreamPart::Node { .. } => return,
            StreamPart::Entry { id, pairs } => {
                put_id(id);
                pairs.iter().for_each(|part| write::string(&mut bytes, part));
            }
            StreamPart::Numbers { last_id, max_deleted_id, entries_added } => {
                put_id(last_id);
                put_id(max_deleted_id);
                put(*entries_added);
            }
            StreamPart::Group { name, last_id, entries_read } => {
                put_id(last_id);
                write::string(&mut bytes, name);
                self.group = types::key_hash(name);
                let mut read = name.to_vec();
                read.extend(entries_read.to_le_bytes());
                self.entries_read = self.entries_read.wrapping_add(types::key_hash(&read));
            }
            StreamPart::Consumer { name, .. } => {
                put(self.group);
                write::string(&mut bytes, name);
                self.consumer = types::key_hash(&bytes);
            }
            StreamPart::Pending { id, deliveries, .. } => {
                put_id(id);
                put(*deliveries);
                put(self.consumer);
                self.pending = self.pending.wrapping_add(types::key_hash(&bytes));
                return;
            }
        }
        self.elements += 1;
        self.sum = self.sum.wrapping_add(types::key_hash(&bytes));
    }

    /// Returns the fingerprint of a payload's value.
    pub fn of_payload(payload: &Bytes) -> rdb::Result<Fingerprint> {
        let (number, value) = rdb::open_payload(payload)?;
        let mut fingerprint = Fingerprint::new(rdb::kind_of(number)?);
        rdb::read_value(number, &mut Source::new(&value[..]), &mut |element| {
            fingerprint.add(&element);
            Ok(())
        })?;
        Ok(fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, elements: &[Element]) -> Fingerprint {
        let mut fingerprint = Fingerprint::new(kind);
        elements.iter().for_each(|element| fingerprint.add(element));
        fingerprint
    }

    #[test]
    fn order_counts_in_lists_only() {
        let [a, b] = ["a", "b"].map(Bytes::from);
        let members = [Element::Member(a.clone()), Element::Member(b.clone())];
        assert_eq!(of(Kind::Set, &members), of(Kind::Set, &[members[1].clone(), members[0].clone()]));
        let items = [Element::Item(a.clone()), Element::Item(b.clone())];
        assert_ne!(of(Kind::List, &items), of(Kind::List, &[items[1].clone(), items[0].clone()]));
        assert_ne!(of(Kind::Set, &members), of(Kind::Set, &members[..1]));
        let [zero, negative] = [0.0, -0.0].map(|score| Element::Scored(a.clone(), score));
        assert_eq!(of(Kind::SortedSet, &[zero]), of(Kind::SortedSet, &[negative]));
        let fields = [Element::Field(a.clone(), b.clone()), Element::Field(b, a)];
        assert_ne!(of(Kind::Hash, &fields[..1]), of(Kind::Hash, &fields[1..]));
    }
}
