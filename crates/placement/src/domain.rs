//! Failure domains: stores with equal values of one label fail together.
//!
//! A layout is better if fewer pairs of a region's peers share a domain. Peers are moved to lower
//! that number, not only to avoid shared domains: five copies over two zones are best placed as
//! three and two.

use std::collections::BTreeMap;

use crate::round::{Replica, StoreIndex};
use crate::{ClusterView, StoreState};

pub(crate) struct Domains {
    /// The domain of each store. A store without the label is a domain of its own.
    of: Vec<u32>,
    /// The number of stores that are up, by domain.
    up: Vec<u32>,
    /// The number of domains that have a store that is up.
    up_count: usize,
    labelled: bool,
}

impl Domains {
    pub fn new(view: &ClusterView) -> Domains {
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let mut up = Vec::new();
        let mut of = Vec::with_capacity(view.stores.len());
        for store in &view.stores {
            let value = view.domain_label.as_ref().and_then(|label| store.labels.get(label));
            let next = up.len() as u32;
            let domain = value.map_or(next, |value| *numbers.entry(value).or_insert(next));
            if domain == next {
                up.push(0);
            }
            up[domain as usize] += u32::from(store.state == StoreState::Up);
            of.push(domain);
        }
        let up_count = up.iter().filter(|stores| **stores > 0).count();
        let labelled = up.len() < of.len();
        Domains { of, up, up_count, labelled }
    }

    /// Returns true if any two stores share a domain.
    pub fn matter(&self) -> bool {
        self.labelled
    }

    pub fn count(&self) -> usize {
        self.up.len()
    }

    pub fn of(&self, store: StoreIndex) -> Option<u32> {
        self.of.get(store as usize).copied()
    }

    /// Returns true if a peer could move to a domain with at least two peers fewer than its present
    /// domain. This is exactly the case in which fewer pairs share a domain afterwards. Does not
    /// check whether a store there has room.
    pub fn can_spread(&self, replicas: &[Replica]) -> bool {
        if !self.labelled {
            return false;
        }
        let mut used: Vec<u32> = replicas.iter().filter_map(|replica| self.of(replica.store)).collect();
        let peers_in = |domain: u32| used.iter().filter(|used| **used == domain).count() as u32;
        let most = used.iter().map(|&domain| peers_in(domain)).max().unwrap_or(0);
        if most < 2 {
            return false;
        }
        // This is a domain in use that has another store.
        if used
            .iter()
            .any(|&domain| peers_in(domain) + 2 <= most && self.up[domain as usize] > peers_in(domain))
        {
            return true;
        }
        // This is a domain that is not in use.
        used.sort_unstable();
        used.dedup();
        used.iter().filter(|domain| self.up[**domain as usize] > 0).count() < self.up_count
    }
}
