//! The connections whose other end has not said who it is: stores that have not introduced
//! themselves, and clients that have not logged in. They cost nothing to open, so their number is
//! limited, also for each address. A crowd at one address does not keep out others until all places
//! are taken.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

#[derive(Clone, Copy, Debug)]
pub struct Most {
    pub in_all: usize,
    pub of_an_address: usize,
}

#[derive(Default)]
pub struct Strangers(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    all: usize,
    of_addresses: HashMap<IpAddr, usize>,
}

/// The place of one connection.
pub struct Stranger {
    of: Arc<Strangers>,
    from: IpAddr,
    since: Instant,
}

impl Strangers {
    /// Takes a place; `None` if there is none.
    pub fn begin(self: &Arc<Self>, from: IpAddr, most: Most) -> Option<Stranger> {
        let from = network_of(from);
        let mut counts = self.0.lock();
        let own = counts.of_addresses.get(&from).copied().unwrap_or(0);
        if counts.all >= most.in_all || own >= most.of_an_address {
            return None;
        }
        counts.all += 1;
        counts.of_addresses.insert(from, own + 1);
        Some(Stranger { of: self.clone(), from, since: Instant::now() })
    }
}

impl Stranger {
    /// Returns true if the other end has been a stranger for longer than `patience`.
    pub fn is_late(&self, now: Instant, patience: Duration) -> bool {
        now.saturating_duration_since(self.since) > patience
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock();
        counts.all -= 1;
        match counts.of_addresses.get_mut(&self.from) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                counts.of_addresses.remove(&self.from);
            }
        }
    }
}

/// Returns an IPv4 address as it is, and the /64 network of an IPv6 address, because one machine
/// may own the whole network.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most { in_all: 1024, of_an_address: 128 };

    #[test]
    fn a_crowd_at_one_address_leaves_room_for_others_and_places_come_back() {
        let all = Arc::new(Strangers::default());
        let [crowd, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut held: Vec<_> = (0..128).map(|_| all.begin(crowd, MOST).unwrap()).collect();
        assert!(all.begin(crowd, MOST).is_none() && all.begin(other, MOST).is_some());
        held.pop();
        assert!(all.begin(crowd, MOST).is_some());
        let many = (0..=255).flat_map(|last| {
            let from = IpAddr::from([10, 1, 0, last]);
            std::iter::repeat_n(from, 4).filter_map(|from| all.begin(from, MOST))
        });
        held.extend(many.collect::<Vec<_>>());
        assert_eq!(held.len(), MOST.in_all);
        assert!(all.begin(other, MOST).is_none());
        drop(held);
        let counts = all.0.lock();
        assert!(counts.all == 0 && counts.of_addresses.is_empty());
    }

    #[test]
    fn addresses_that_one_machine_may_have_count_together() {
        let all = Arc::new(Strangers::default());
        let one = Most { in_all: 9, of_an_address: 1 };
        for (first, second, is_same) in [
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
        ] {
            let _held = all.begin(first.parse().unwrap(), one).unwrap();
            assert_eq!(all.begin(second.parse().unwrap(), one).is_none(), is_same, "{first} {second}");
        }
    }
}
