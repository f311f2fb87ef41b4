//! Redis's thresholds of collections: their names, ranges and defaults.
//!
//! They decide the answers of `OBJECT ENCODING`. Those that are below Redis's defaults, and a size
//! of lists from 0 on, also decide when a small collection gets rows of its own. The cluster agrees
//! on them. The leader of a region writes them into each entry that it proposes, so all replicas
//! execute an entry with the same ones.

use crate::size::parse_size;

/// A threshold's unit, which decides how its value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// A number of elements.
    Count,
    /// A number of bytes. A suffix such as `kb` is permitted.
    Bytes,
    /// The size of a list's node: a number of elements, or from -1 to -5 a class of bytes.
    Node,
}

/// The name of a threshold, and the name that it had before Redis 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdName {
    pub name: &'static str,
    pub alias: Option<&'static str>,
    unit: Unit,
    default: i64,
}

impl ThresholdName {
    /// Describes the values of the threshold.
    pub fn expected(&self) -> &'static str {
        match self.unit {
            Unit::Count => "a number from 0 to 9223372036854775807",
            Unit::Bytes => "a number of bytes from 0 to 9223372036854775807, as in 64 or 1kb",
            Unit::Node => "a number from -2147483648 to 2147483647",
        }
    }
}

const fn named(name: &'static str, alias: Option<&'static str>, unit: Unit, default: i64) -> ThresholdName {
    ThresholdName { name, alias, unit, default }
}

/// All thresholds. Their places are those of the numbers in [`Thresholds`].
pub const THRESHOLDS: [ThresholdName; THRESHOLD_COUNT] = [
    named("hash-max-listpack-entries", Some("hash-max-ziplist-entries"), Unit::Count, 512),
    named("hash-max-listpack-value", Some("hash-max-ziplist-value"), Unit::Bytes, 64),
    named("zset-max-listpack-entries", Some("zset-max-ziplist-entries"), Unit::Count, 128),
    named("zset-max-listpack-value", Some("zset-max-ziplist-value"), Unit::Bytes, 64),
    named("set-max-intset-entries", None, Unit::Count, 512),
    named("list-max-listpack-size", Some("list-max-ziplist-size"), Unit::Node, -2),
];
const THRESHOLD_COUNT: usize = 6;

/// The values of all thresholds. The default is that of Redis 7.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds([i64; THRESHOLD_COUNT]);

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds(THRESHOLDS.map(|threshold| threshold.default))
    }
}

/// The value that a threshold stands for in a layout: `None` if it is not below the default.
fn lowered(value: i64, default: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|_| value < default)
}

impl Thresholds {
    /// The number of bytes that [`encode`](Thresholds::encode) returns.
    pub const LEN: usize = 4 * THRESHOLD_COUNT;

    pub fn is_default(&self) -> bool {
        *self == Thresholds::default()
    }

    /// Maximum number of fields of a hash that Redis keeps in a listpack.
    pub fn hash_entries(&self) -> u64 {
        self.number(0)
    }

    /// Maximum bytes of a field or value of such a hash.
    pub fn hash_value(&self) -> u64 {
        self.number(1)
    }

    /// Maximum number of members of a sorted set that Redis keeps in a listpack.
    pub fn sorted_set_entries(&self) -> u64 {
        self.number(2)
    }

    /// Maximum bytes of a member of such a sorted set.
    pub fn sorted_set_value(&self) -> u64 {
        self.number(3)
    }

    /// Maximum number of integers of a set that Redis keeps in an intset.
    pub fn intset_entries(&self) -> u64 {
        self.number(4)
    }

    fn number(&self, at: usize) -> u64 {
        u64::try_from(self.0[at]).unwrap_or(0)
    }

    /// Returns the value at `at`, if it is below Redis's default.
    fn lowered(&self, at: usize) -> Option<u64> {
        lowered(self.0[at], THRESHOLDS[at].default)
    }

    /// Returns the bounds on the layout of a hash: of its number of fields, and of the bytes of a
    /// field or value.
    pub fn hash_bounds(&self) -> LayoutBounds {
        LayoutBounds { elements: self.lowered(0), bytes: self.lowered(1) }
    }

    /// Returns the bounds on the layout of a sorted set: of its number of members, and of their
    /// bytes.
    pub fn sorted_set_bounds(&self) -> LayoutBounds {
        LayoutBounds { elements: self.lowered(2), bytes: self.lowered(3) }
    }

    /// Returns the bound on the layout of a set: of its number of members.
    pub fn set_bounds(&self) -> LayoutBounds {
        LayoutBounds { elements: self.lowered(4), bytes: None }
    }

    /// Returns the bound on the layout of a list: of its number of elements. Classes of bytes are
    /// larger than a packed collection can be.
    pub fn list_bounds(&self) -> LayoutBounds {
        LayoutBounds { elements: u64::try_from(self.0[5]).ok(), bytes: None }
    }

    /// Returns true if the layout of some collections has bounds.
    pub fn bound_layouts(&self) -> bool {
        let all = [self.hash_bounds(), self.sorted_set_bounds(), self.set_bounds(), self.list_bounds()];
        all.iter().any(|bounds| *bounds != LayoutBounds::default())
    }

    /// Returns the value of the threshold with this name.
    pub fn get(&self, name: &str) -> Option<i64> {
        THRESHOLDS.iter().position(|threshold| threshold.name == name).map(|at| self.0[at])
    }

    /// Sets the threshold with this name, which is not an alias.
    ///
    /// # Errors
    /// The reason why the text is no value, in Redis's words. A name that no threshold has is one.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), &'static str> {
        let at = THRESHOLDS.iter().position(|threshold| threshold.name == name);
        let at = at.ok_or("there is no threshold of this name")?;
        self.0[at] = parse(THRESHOLDS[at].unit, text)?;
        Ok(())
    }

    /// Returns the thresholds that are not Redis's defaults.
    pub fn changed(&self) -> impl Iterator<Item = (&'static str, i64)> + '_ {
        let all = THRESHOLDS.iter().zip(self.0);
        all.filter(|(threshold, value)| threshold.default != *value)
            .map(|(threshold, value)| (threshold.name, value))
    }

    /// Encodes the thresholds for an entry. A value that 31 bits cannot hold is larger than any
    /// collection or element to which the execution compares it, so the largest number stands for
    /// it.
    pub fn encode(&self) -> [u8; Thresholds::LEN] {
        let mut out = [0; Thresholds::LEN];
        for (value, place) in self.0.iter().zip(out.chunks_exact_mut(4)) {
            let value = (*value).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            place.copy_from_slice(&value.to_be_bytes());
        }
        out
    }

    /// Decodes thresholds; `None` if one is out of its range.
    pub fn decode(bytes: &[u8; Thresholds::LEN]) -> Option<Thresholds> {
        let mut values = [0; THRESHOLD_COUNT];
        for (at, number) in bytes.chunks_exact(4).enumerate() {
            let value = i32::from_be_bytes(number.try_into().ok()?);
            if value < 0 && THRESHOLDS[at].unit != Unit::Node {
                return None;
            }
            values[at] = value.into();
        }
        Some(Thresholds(values))
    }
}

/// Bounds on a collection in one row; `None` means that only the bytes of the row bound it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutBounds {
    /// Maximum number of elements.
    pub elements: Option<u64>,
    /// Maximum bytes of an element's name or value.
    pub bytes: Option<u64>,
}

/// Returns the name of the threshold that has this name or alias. The case makes no difference.
pub fn threshold_name(name: &str) -> Option<&'static str> {
    let is_meant = |threshold: &&ThresholdName| {
        let names = [Some(threshold.name), threshold.alias];
        names.iter().flatten().any(|known| known.eq_ignore_ascii_case(name))
    };
    THRESHOLDS.iter().find(is_meant).map(|threshold| threshold.name)
}

const NO_INTEGER: &str = "argument couldn't be parsed into an integer";
const NOT_A_COUNT: &str = "argument must be between 0 and 9223372036854775807 inclusive";
const NOT_A_NODE: &str = "argument must be between -2147483648 and 2147483647 inclusive";

fn parse(unit: Unit, text: &str) -> Result<i64, &'static str> {
    match unit {
        Unit::Count => Some(integer(text)?).filter(|count| *count >= 0).ok_or(NOT_A_COUNT),
        Unit::Bytes => {
            let bytes = parse_size(text).map_err(|_| "argument must be a memory value")?;
            i64::try_from(bytes).map_err(|_| NOT_A_COUNT)
        }
        Unit::Node => i32::try_from(integer(text)?).map(i64::from).map_err(|_| NOT_A_NODE),
    }
}

/// Parses an integer without a plus sign and leading zeros.
fn integer(text: &str) -> Result<i64, &'static str> {
    let number: i64 = text.parse().map_err(|_| NO_INTEGER)?;
    if number.to_string() == text {
        Ok(number)
    } else {
        Err(NO_INTEGER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_known_and_the_defaults_are_those_of_redis() {
        let default = Thresholds::default();
        for (threshold, value) in THRESHOLDS.iter().zip([512, 64, 128, 64, 512, -2]) {
            assert_eq!(default.get(threshold.name), Some(value), "{}", threshold.name);
            assert_eq!(threshold_name(&threshold.name.to_uppercase()), Some(threshold.name));
            if let Some(alias) = threshold.alias {
                assert_eq!(threshold_name(alias), Some(threshold.name));
                assert_eq!(default.get(alias), None);
            }
        }
        assert_eq!(threshold_name("set-max-listpack-entries"), None);
        assert!(default.is_default() && default.changed().next().is_none() && !default.bound_layouts());
    }

    #[test]
    fn values_are_read_as_redis_reads_them() {
        let mut thresholds = Thresholds::default();
        for (name, text, expected) in [
            ("hash-max-listpack-entries", "9223372036854775807", Ok(i64::MAX)),
            ("hash-max-listpack-entries", "-1", Err(NOT_A_COUNT)),
            ("hash-max-listpack-entries", "9223372036854775808", Err(NO_INTEGER)),
            ("hash-max-listpack-entries", "1kb", Err(NO_INTEGER)),
            ("set-max-intset-entries", "+7", Err(NO_INTEGER)),
            ("set-max-intset-entries", "007", Err(NO_INTEGER)),
            ("set-max-intset-entries", "", Err(NO_INTEGER)),
            ("hash-max-listpack-value", "1kb", Ok(1024)),
            ("hash-max-listpack-value", "-1", Err("argument must be a memory value")),
            ("zset-max-listpack-value", "9223372036854775808", Err(NOT_A_COUNT)),
            ("list-max-listpack-size", "-7", Ok(-7)),
            ("list-max-listpack-size", "3000000000", Err(NOT_A_NODE)),
            ("list-max-ziplist-size", "3", Err("there is no threshold of this name")),
        ] {
            let before = thresholds;
            assert_eq!(
                thresholds.set(name, text).map(|()| thresholds.get(name).unwrap()),
                expected,
                "{name} {text}"
            );
            assert!(expected.is_ok() || thresholds == before);
        }
        let changed: Vec<_> = thresholds.changed().collect();
        let expected = [
            ("hash-max-listpack-entries", i64::MAX),
            ("hash-max-listpack-value", 1024),
            ("list-max-listpack-size", -7),
        ];
        assert_eq!(changed, expected);
    }

    #[test]
    fn thresholds_of_an_entry_are_read_back_and_large_ones_stay_large() {
        let mut thresholds = Thresholds::default();
        assert_eq!(Thresholds::decode(&thresholds.encode()), Some(thresholds));
        for (name, text) in [("zset-max-listpack-entries", "0"), ("list-max-listpack-size", "-2147483648")] {
            thresholds.set(name, text).unwrap();
        }
        assert_eq!(Thresholds::decode(&thresholds.encode()), Some(thresholds));
        thresholds.set("hash-max-listpack-value", "5gb").unwrap();
        let decoded = Thresholds::decode(&thresholds.encode()).unwrap();
        assert_eq!(decoded.hash_value(), i32::MAX as u64);
        let mut bytes = thresholds.encode();
        bytes[0] = 0x80;
        assert_eq!(Thresholds::decode(&bytes), None);
    }

    #[test]
    fn only_lower_thresholds_and_a_size_of_lists_from_0_on_bound_a_layout() {
        let mut thresholds = Thresholds::default();
        for (text, elements, is_bound) in
            [("512", None, false), ("9999", None, false), ("511", Some(511), true)]
        {
            thresholds.set("hash-max-listpack-entries", text).unwrap();
            assert_eq!(thresholds.hash_bounds(), LayoutBounds { elements, bytes: None });
            assert_eq!(thresholds.bound_layouts(), is_bound);
        }
        thresholds = Thresholds::default();
        for (text, elements) in [("-5", None), ("0", Some(0)), ("1000", Some(1000))] {
            thresholds.set("list-max-listpack-size", text).unwrap();
            assert_eq!(thresholds.list_bounds(), LayoutBounds { elements, bytes: None });
        }
    }
}
