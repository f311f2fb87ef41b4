//! The connections whose other end has not introduced itself yet: they cost nothing to open, so
//! their number is limited, also for each address. A crowd at one address does not keep out stores
//! at others until all places are taken.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

const CONNECTIONS_MAX: usize = 1024;
const OF_AN_ADDRESS_MAX: usize = 128;

#[derive(Default)]
pub struct Introductions(Mutex<HashMap<IpAddr, usize>>);

/// The place of one connection.
pub struct Introduction {
    of: Arc<Introductions>,
    from: IpAddr,
}

impl Introductions {
    /// Takes a place; `None` if there is none.
    pub fn begin(self: &Arc<Self>, from: IpAddr) -> Option<Introduction> {
        let mut all = self.0.lock();
        let (total, own) = (all.values().sum::<usize>(), all.get(&from).copied().unwrap_or(0));
        if total >= CONNECTIONS_MAX || own >= OF_AN_ADDRESS_MAX {
            return None;
        }
        all.insert(from, own + 1);
        Some(Introduction { of: self.clone(), from })
    }
}

impl Drop for Introduction {
    fn drop(&mut self) {
        let mut all = self.of.0.lock();
        match all.get_mut(&self.from) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                all.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_at_one_address_leaves_room_for_others_and_places_come_back() {
        let all = Arc::new(Introductions::default());
        let [crowd, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut held: Vec<_> = (0..OF_AN_ADDRESS_MAX).map(|_| all.begin(crowd).unwrap()).collect();
        assert!(all.begin(crowd).is_none() && all.begin(other).is_some());
        held.pop();
        assert!(all.begin(crowd).is_some());
        let many = (0..=255).flat_map(|last| {
            let from = IpAddr::from([10, 1, 0, last]);
            std::iter::repeat_n(from, 4).filter_map(|from| all.begin(from))
        });
        held.extend(many.collect::<Vec<_>>());
        assert_eq!(held.len(), CONNECTIONS_MAX);
        assert!(all.begin(other).is_none());
        drop(held);
        assert!(all.0.lock().is_empty());
    }
}
