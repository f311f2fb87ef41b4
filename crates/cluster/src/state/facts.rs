//! The facts that a store reports about itself, and their limits. The limits matter because any
//! process that may join sends facts, and every store keeps them forever.

use std::collections::BTreeMap;
use std::fmt;

use placement::Capability;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::is_label;
use crate::MetaError;

const ADDRESS_BYTES_MAX: usize = 128;
const DEVICE_BYTES_MAX: usize = 128;
const LABELS_MAX: usize = 16;
const LABEL_BYTES_MAX: usize = 64;
/// Maximum of a capability, in bytes or operations per second. Sums over many stores are still
/// exact enough at this value.
const CAPABILITY_MAX: f64 = 1e15;

/// The identity of a store: the public half of the key pair that was generated when its disk was
/// first used. Only the owner of the private half is the store; the public half alone does not
/// allow another process to impersonate it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey(pub [u8; 32]);

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for StoreKey {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<StoreKey, &'static str> {
        const ERROR: &str = "a store's key is 64 hexadecimal digits";
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ERROR);
        }
        let mut key = [0; 32];
        for (byte, at) in key.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| ERROR)?;
        }
        Ok(StoreKey(key))
    }
}

impl Serialize for StoreKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StoreKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<StoreKey, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The facts that a store reports about itself. Addresses are `host:port`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreFacts {
    /// The store's key; `None` if it is not known yet. An empty disk under an old id has another
    /// key.
    pub key: Option<StoreKey>,
    pub client: String,
    pub peer: String,
    pub admin: String,
    pub forward: Option<String>,
    /// The device's profile, for display.
    pub device: String,
    pub capability: Capability,
    pub labels: BTreeMap<String, String>,
}

impl StoreFacts {
    /// Checks that the facts are within their limits.
    pub fn check(&self) -> Result<(), MetaError> {
        let addresses = [&self.client, &self.peer, &self.admin].into_iter().chain(&self.forward);
        let is_short = |text: &String, most: usize| text.len() <= most;
        let is_bounded = |value: f64| value.is_finite() && (0.0..=CAPABILITY_MAX).contains(&value);
        let is_label = |(name, value): (&String, &String)| {
            is_label(name) && is_short(name, LABEL_BYTES_MAX) && is_short(value, LABEL_BYTES_MAX)
        };
        let bad = |what| Err(MetaError::BadFacts(what));
        if !addresses.into_iter().all(|address| is_short(address, ADDRESS_BYTES_MAX)) {
            return bad("an address is longer than 128 bytes");
        }
        if !is_short(&self.device, DEVICE_BYTES_MAX) {
            return bad("the device's name is longer than 128 bytes");
        }
        if self.labels.len() > LABELS_MAX || !self.labels.iter().all(is_label) {
            return bad("there are more than 16 labels, or one is malformed or longer than 64 bytes");
        }
        let Capability { kv_bytes_per_s, ops_per_s } = self.capability;
        if !is_bounded(kv_bytes_per_s) || !is_bounded(ops_per_s) {
            return bad("the capability is negative or above 10^15");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::facts;

    #[test]
    fn a_key_is_told_as_text_and_read_back() {
        let key = StoreKey(std::array::from_fn(|at| at as u8 * 7));
        let text = key.to_string();
        assert!(text.starts_with("00070e15") && text.len() == 64);
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(serde_json::from_str::<StoreKey>(&format!("\"{text}\"")).unwrap(), key);
        for bad in
            ["", "00", &text[1..], &format!("{text}00"), &"g".repeat(64), &"é".repeat(32), &"+1".repeat(32)]
        {
            assert!(bad.parse::<StoreKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_store_says_no_more_of_itself_than_is_of_use() {
        assert_eq!(facts(1).check(), Ok(()));
        let refused = |change: fn(&mut StoreFacts)| {
            let mut facts = facts(1);
            change(&mut facts);
            matches!(facts.check(), Err(MetaError::BadFacts(_)))
        };
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert!(refused(|facts| facts.client = "x".repeat(129)));
        assert!(refused(|facts| facts.peer = "x".repeat(1 << 20)));
        assert!(refused(|facts| facts.admin = "x".repeat(129)));
        assert!(refused(|facts| facts.forward = Some("x".repeat(129))));
        assert!(refused(|facts| facts.device = "x".repeat(129)));
        assert!(refused(|facts| facts.labels = (0..17).map(|n| (n.to_string(), String::new())).collect()));
        assert!(refused(|facts| facts.labels = BTreeMap::from([("".into(), "a".into())])));
        for (name, value) in [label(&"n".repeat(65), "v"), label("n", &"v".repeat(65)), label("a=b", "v")] {
            let labels = BTreeMap::from([(name, value)]);
            assert!(StoreFacts { labels, ..facts(1) }.check().is_err());
        }
        for value in [-1.0, 2e15, f64::NAN, f64::INFINITY] {
            let capability = Capability { kv_bytes_per_s: value, ops_per_s: 1.0 };
            assert!(StoreFacts { capability, ..facts(1) }.check().is_err());
            let capability = Capability { kv_bytes_per_s: 1.0, ops_per_s: value };
            assert!(StoreFacts { capability, ..facts(1) }.check().is_err());
        }
    }
}
