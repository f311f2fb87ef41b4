//! Slots as in Redis Cluster: CRC16 (XMODEM) of the key, or of its `{hash tag}`, modulo 16384.

/// A slot, from 0 to 16383.
pub type Slot = u16;

pub const SLOT_COUNT: u16 = 16384;

/// A contiguous, inclusive range of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRange {
    pub first: Slot,
    pub last: Slot,
}

impl SlotRange {
    pub const ALL: SlotRange = SlotRange { first: 0, last: SLOT_COUNT - 1 };

    pub fn contains(&self, slot: Slot) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// Returns the number of slots in the range. An inverted range is empty.
    pub fn len(&self) -> usize {
        (usize::from(self.last) + 1).saturating_sub(usize::from(self.first))
    }

    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// Returns the parts of the range on both sides of another: none, one or two ranges, ascending.
    pub fn without(self, other: Option<SlotRange>) -> impl Iterator<Item = SlotRange> {
        let (before, behind) = match other {
            Some(other) => (
                SlotRange { first: self.first, last: self.last.min(other.first.saturating_sub(1)) },
                SlotRange { first: self.first.max(other.last.saturating_add(1)), last: self.last },
            ),
            None => (self, SlotRange { first: 1, last: 0 }),
        };
        // No slot is before slot 0.
        let has_before = other.is_none_or(|other| other.first > 0);
        [before].into_iter().filter(move |_| has_before).chain([behind]).filter(|slots| !slots.is_empty())
    }

    /// Splits all slots into `parts` ranges whose sizes differ by at most one.
    pub fn split_evenly(parts: u16) -> Vec<SlotRange> {
        assert!((1..=SLOT_COUNT).contains(&parts), "1 to 16384 parts");
        let (parts, total) = (u32::from(parts), u32::from(SLOT_COUNT));
        (0..parts)
            .map(|i| SlotRange {
                first: (i * total / parts) as u16,
                last: ((i + 1) * total / parts - 1) as u16,
            })
            .collect()
    }
}

/// Returns the part of a key that determines its slot: the bytes between the first `{` and the next
/// `}` if there are any, or else the whole key.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&b| b == b'{') else { return key };
    match key[open + 1..].iter().position(|&b| b == b'}') {
        Some(0) | None => key,
        Some(len) => &key[open + 1..open + 1 + len],
    }
}

pub fn slot_of_key(key: &[u8]) -> Slot {
    crc16(hash_tag(key)) % SLOT_COUNT
}

/// Returns the 64-bit hash that orders keys within a slot. It is part of the on-disk format.
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, &b| (crc << 8) ^ CRC16_TABLE[usize::from((crc >> 8) as u8 ^ b)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of_key(b"foo"), 12182);
        assert_eq!(slot_of_key(b"bar"), 5061);
        assert_eq!(slot_of_key(b""), 0);
    }

    #[test]
    fn a_hash_tag_is_the_first_nonempty_braced_part() {
        assert_eq!(hash_tag(b"{user1000}.following"), b"user1000");
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(hash_tag(b"foo{bar"), b"foo{bar");
    }

    #[test]
    fn a_range_without_another_is_what_is_on_both_sides() {
        let range = |first, last| SlotRange { first, last };
        let all = SlotRange::ALL;
        for (slots, other) in [
            (range(10, 20), Some(range(12, 15))),
            (range(10, 20), Some(range(0, 9))),
            (range(10, 20), Some(range(21, 30))),
            (range(10, 20), Some(range(10, 20))),
            (range(10, 20), Some(range(0, 12))),
            (range(0, 20), Some(range(0, 0))),
            (range(0, 20), Some(range(20, 20))),
            (all, Some(range(0, all.last))),
            (all, Some(range(all.last, all.last))),
            (all, Some(range(3, 3))),
            (all, None),
        ] {
            let left: Vec<_> = slots.without(other).collect();
            let expected = |slot| slots.contains(slot) && !other.is_some_and(|other| other.contains(slot));
            for slot in 0..SLOT_COUNT {
                let times = left.iter().filter(|left| left.contains(slot)).count();
                assert_eq!(times, usize::from(expected(slot)), "{slots:?} without {other:?}: slot {slot}");
            }
        }
    }

    #[test]
    fn an_even_split_covers_every_slot_once() {
        for parts in [1, 2, 3, 5, 7, 48, 1000, 16384] {
            let ranges = SlotRange::split_evenly(parts);
            assert_eq!(ranges.len(), usize::from(parts));
            assert_eq!(ranges[0].first, 0);
            assert_eq!(ranges[ranges.len() - 1].last, SLOT_COUNT - 1);
            assert!(ranges.windows(2).all(|w| w[0].last + 1 == w[1].first));
            let sizes = ranges.iter().map(SlotRange::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }
}
