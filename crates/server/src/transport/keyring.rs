//! The known key of each member.
//!
//! The list of stores names it once the member has reported its key. Until then, while a cluster
//! with a fixed list starts, the first key with which a member proves its identity is valid, on
//! either side of a connection. It stays valid while this process lives, or until the list names
//! another key.

use std::collections::BTreeMap;

use cluster::StoreKey;
use parking_lot::Mutex;
use types::StoreId;

#[derive(Default)]
pub struct Keyring(Mutex<BTreeMap<StoreId, Known>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The list of stores names this key.
    Agreed(StoreKey),
    FirstSeen(StoreKey),
    Untold,
}

/// The standing of a key that a store has proved to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The member's key in the list of stores.
    Agreed,
    /// The key that the member used first.
    FirstSeen,
    /// A key other than the one in the list.
    NotAgreed,
    /// A key other than the first one that the member used.
    NotFirst,
    /// There is no such member.
    Unknown,
}

impl Keyring {
    /// Sets the members, with their keys if the list names them.
    pub fn set(&self, members: impl Iterator<Item = (StoreId, Option<StoreKey>)>) {
        let mut known = self.0.lock();
        let previous = std::mem::take(&mut *known);
        for (store, key) in members {
            let seen = previous.get(&store).filter(|known| matches!(known, Known::FirstSeen(_))).copied();
            known.insert(store, key.map_or(seen.unwrap_or(Known::Untold), Known::Agreed));
        }
    }

    /// Returns the standing of a key that a store has just proved to have.
    pub fn meet(&self, store: StoreId, key: StoreKey) -> Verdict {
        match self.0.lock().get_mut(&store) {
            Some(Known::Agreed(known)) if *known == key => Verdict::Agreed,
            Some(Known::Agreed(_)) => Verdict::NotAgreed,
            Some(Known::FirstSeen(known)) if *known == key => Verdict::FirstSeen,
            Some(Known::FirstSeen(_)) => Verdict::NotFirst,
            Some(untold) => {
                *untold = Known::FirstSeen(key);
                Verdict::FirstSeen
            }
            None => Verdict::Unknown,
        }
    }

    /// Returns true if the owner of the key is still a member with this number.
    pub fn has(&self, store: StoreId, key: StoreKey) -> bool {
        match self.0.lock().get(&store) {
            Some(Known::Agreed(known) | Known::FirstSeen(known)) => *known == key,
            Some(Known::Untold) | None => false,
        }
    }

    /// Returns true if the list of stores names the member's key.
    pub fn is_agreed(&self, store: StoreId) -> bool {
        matches!(self.0.lock().get(&store), Some(Known::Agreed(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_counts_until_one_is_agreed_on() {
        let [a, b, c] = [1, 2, 3].map(|byte| StoreKey([byte; 32]));
        let keyring = Keyring::default();
        assert_eq!(keyring.meet(1, a), Verdict::Unknown);
        keyring.set([(1, None), (2, Some(b))].into_iter());
        assert!(!keyring.has(1, a) && !keyring.is_agreed(1));
        assert_eq!(keyring.meet(1, a), Verdict::FirstSeen);
        assert_eq!(keyring.meet(1, b), Verdict::NotFirst);
        assert_eq!(keyring.meet(1, a), Verdict::FirstSeen);
        assert_eq!((keyring.meet(2, b), keyring.meet(2, a)), (Verdict::Agreed, Verdict::NotAgreed));
        assert!(keyring.has(1, a) && keyring.has(2, b) && !keyring.has(2, a));
        // A list without a key changes nothing, and a list with a key is final.
        keyring.set([(1, None), (2, Some(b))].into_iter());
        assert_eq!(keyring.meet(1, b), Verdict::NotFirst);
        keyring.set([(1, Some(c))].into_iter());
        assert_eq!((keyring.meet(1, a), keyring.meet(1, c)), (Verdict::NotAgreed, Verdict::Agreed));
        assert!(!keyring.has(1, a) && keyring.is_agreed(1));
        assert_eq!(keyring.meet(2, b), Verdict::Unknown);
    }
}
