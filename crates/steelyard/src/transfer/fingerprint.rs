//! Fingerprints of values, which do not depend on the order of elements unless it is a list.

use bytes::Bytes;
use rdb::{write, Element, Kind, Source};

/// A value's kind, number of elements, and the sum of their hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    kind: Kind,
    elements: u64,
    sum: u64,
}

impl Fingerprint {
    pub fn new(kind: Kind) -> Fingerprint {
        Fingerprint { kind, elements: 0, sum: 0 }
    }

    pub fn add(&mut self, element: &Element) {
        let mut bytes = Vec::with_capacity(element.len() + 16);
        match element {
            Element::Item(_) => write::length(&mut bytes, self.elements),
            _ => {}
        }
        match element {
            // A sorted set may hold a negative zero in Redis, which is 0 in the other encodings.
            Element::Scored(name, score) => {
                write::element(&mut bytes, &Element::Scored(name.clone(), *score + 0.0))
            }
            element => write::element(&mut bytes, element),
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
