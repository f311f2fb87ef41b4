//! The network between stores. It loses, delays, reorders and duplicates messages, and it can be
//! partitioned in any shape.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use types::{RegionId, StoreId};

use crate::clock::MILLISECOND;
use crate::rng::Rng;

/// The percentages of affected messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    /// Messages that are delayed, so that others overtake them.
    pub slow: u64,
    /// Maximum delay of these in milliseconds.
    pub slow_ms: u64,
}

/// The shape of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// One store and the rest cannot reach each other.
    Isolated,
    /// One store receives nothing.
    Deaf,
    /// All messages from one store are lost.
    Mute,
    Halves,
    /// Two stores cannot reach each other. All others can.
    Pair,
    /// Each store reaches only its two neighbours.
    Ring,
}

pub const PARTITIONS: [Partition; 6] = [
    Partition::Isolated,
    Partition::Deaf,
    Partition::Mute,
    Partition::Halves,
    Partition::Pair,
    Partition::Ring,
];

/// A number for [`Network::heal`], the regions, and the directed links.
type RegionCut = (u64, RangeInclusive<RegionId>, BTreeSet<(StoreId, StoreId)>);

#[derive(Debug, Default)]
pub struct Network {
    pub weather: Weather,
    /// The directed links that are cut, by the number of the partition.
    cuts: Vec<(u64, BTreeSet<(StoreId, StoreId)>)>,
    /// The directed links that do not carry the Raft messages of some regions, by the number as
    /// above.
    region_cuts: Vec<RegionCut>,
    partitions: u64,
    /// The delays of all messages to a store in nanoseconds, by the number as above.
    lags: Vec<(u64, StoreId, u64)>,
}

impl Network {
    /// Returns the delays of the copies of a message. Empty if the message is lost.
    pub fn delays(&self, rng: &mut Rng, from: StoreId, to: StoreId) -> Vec<u64> {
        let mut delays = Vec::new();
        let copies = 1 + u64::from(rng.chance(self.weather.doubled));
        for _ in 0..copies {
            let is_lost = rng.chance(self.weather.lost);
            let span = if rng.chance(self.weather.slow) { self.weather.slow_ms } else { 5 };
            let delay = MILLISECOND / 4 + rng.below(span * 100) * (MILLISECOND / 100);
            if !is_lost && self.reaches(from, to) {
                let lag = self.lags.iter().find(|(_, lagging, _)| *lagging == to && from != to);
                delays.push(delay + lag.map_or(0, |(_, _, lag)| *lag));
            }
        }
        delays
    }

    pub fn reaches(&self, from: StoreId, to: StoreId) -> bool {
        !self.cuts.iter().any(|(_, cut)| cut.contains(&(from, to)))
    }

    /// Returns false if a link drops the Raft messages of this region.
    pub fn carries(&self, region: RegionId, from: StoreId, to: StoreId) -> bool {
        let loses =
            |(_, regions, links): &RegionCut| regions.contains(&region) && links.contains(&(from, to));
        !self.region_cuts.iter().any(loses)
    }

    /// Drops the Raft messages of some regions on directed links until [`Network::heal`].
    pub fn cut_regions(&mut self, regions: RangeInclusive<RegionId>, links: Vec<(StoreId, StoreId)>) -> u64 {
        self.partitions += 1;
        self.region_cuts.push((self.partitions, regions, links.into_iter().collect()));
        self.partitions
    }

    /// Partitions the stores. Returns the number for [`Network::heal`].
    pub fn part(&mut self, shape: Partition, stores: &[StoreId], rng: &mut Rng) -> u64 {
        let mut order = stores.to_vec();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let half = order.len() / 2;
        let place = |store: StoreId| order.iter().position(|&other| other == store).expect("a store");
        let parted = |from: StoreId, to: StoreId| {
            let (a, b) = (place(from), place(to));
            match shape {
                Partition::Isolated => (a == 0) != (b == 0),
                Partition::Deaf => b == 0,
                Partition::Mute => a == 0,
                Partition::Halves => (a < half) != (b < half),
                Partition::Pair => a.max(b) == 1,
                Partition::Ring => {
                    let apart = a.abs_diff(b);
                    apart != 1 && apart + 1 != order.len()
                }
            }
        };
        let pairs = stores.iter().flat_map(|&from| stores.iter().map(move |&to| (from, to)));
        let cut = pairs.filter(|&(from, to)| from != to && parted(from, to)).collect();
        self.partitions += 1;
        self.cuts.push((self.partitions, cut));
        self.partitions
    }

    /// Delays all messages to a store until [`Network::heal`].
    pub fn lag(&mut self, to: StoreId, nanos: u64) -> u64 {
        self.partitions += 1;
        self.lags.push((self.partitions, to, nanos));
        self.partitions
    }

    /// Drops all messages from a store until [`Network::heal`].
    pub fn mute(&mut self, store: StoreId, stores: &[StoreId]) -> u64 {
        let others = stores.iter().filter(|&&other| other != store);
        self.partitions += 1;
        self.cuts.push((self.partitions, others.map(|&other| (store, other)).collect()));
        self.partitions
    }

    /// Drops all messages to a store until [`Network::heal`].
    pub fn deafen(&mut self, store: StoreId, stores: &[StoreId]) -> u64 {
        let others = stores.iter().filter(|&&other| other != store);
        self.partitions += 1;
        self.cuts.push((self.partitions, others.map(|&other| (other, store)).collect()));
        self.partitions
    }

    /// Cuts the link between two stores until [`Network::heal`].
    pub fn cut(&mut self, one: StoreId, other: StoreId) -> u64 {
        self.partitions += 1;
        self.cuts.push((self.partitions, BTreeSet::from([(one, other), (other, one)])));
        self.partitions
    }

    pub fn heal(&mut self, partition: u64) {
        self.cuts.retain(|&(number, _)| number != partition);
        self.lags.retain(|&(number, _, _)| number != partition);
        self.region_cuts.retain(|(number, _, _)| *number != partition);
    }

    pub fn calm(&mut self) {
        self.cuts.clear();
        self.lags.clear();
        self.region_cuts.clear();
        self.weather = Weather::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreached(shape: Partition) -> usize {
        let stores = [0, 1, 2, 3, 4];
        let mut network = Network::default();
        let number = network.part(shape, &stores, &mut Rng::new(1));
        let pairs = stores.iter().flat_map(|&a| stores.iter().map(move |&b| (a, b)));
        let cut = pairs.filter(|&(a, b)| !network.reaches(a, b)).count();
        network.heal(number);
        assert!(network.reaches(0, 1));
        cut
    }

    #[test]
    fn each_shape_cuts_what_it_says() {
        let cut: Vec<_> = PARTITIONS.iter().map(|&shape| unreached(shape)).collect();
        assert_eq!(cut, [8, 4, 4, 12, 2, 10]);
    }
}
