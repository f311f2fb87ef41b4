//! The distance of each store's peers from their leaders.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RegionRow;

/// The distance of the peers of one store from their leaders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatchUpRow {
    pub store: u64,
    /// Regions with a peer on the store.
    pub regions: u64,
    /// Regions whose peer here lacks entries that are committed and that its leader's log holds.
    pub behind: u64,
    /// The number of those entries.
    pub entries: u64,
    /// Regions in which the position of the peer here is unknown: the peer waits for a snapshot,
    /// its leader has not heard from it, or the region has no leader.
    pub unknown: u64,
}

impl CatchUpRow {
    pub fn has_caught_up(&self) -> bool {
        (self.behind, self.unknown) == (0, 0)
    }
}

/// Returns a row for each store that holds peers, in the order of their numbers.
pub fn catch_up(regions: &[RegionRow]) -> Vec<CatchUpRow> {
    let mut rows: BTreeMap<u64, CatchUpRow> = BTreeMap::new();
    for region in regions {
        for peer in &region.peers {
            let row = rows.entry(peer.store).or_default();
            row.store = peer.store;
            row.regions += 1;
            match peer.lag {
                // The last known lag of a region without a leader says nothing.
                Some(lag) if region.leader.is_some() => {
                    row.behind += u64::from(lag > 0);
                    row.entries = row.entries.saturating_add(lag);
                }
                _ => row.unknown += 1,
            }
        }
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::PeerRow;
    use super::*;

    fn region(leader: Option<u64>, lags: &[(u64, Option<u64>)]) -> RegionRow {
        let peer = |&(store, lag): &(u64, Option<u64>)| PeerRow {
            store,
            id: store + 1,
            role: "voter".into(),
            lag,
            quarantined: None,
            unclean: false,
        };
        RegionRow {
            id: 1,
            first_slot: None,
            last_slot: None,
            epoch_conf_version: 1,
            epoch_version: 1,
            joint: false,
            leader,
            term: 1,
            peers: lags.iter().map(peer).collect(),
            keys: 0,
            bytes: 0,
            read_rate: 0.0,
            miss_rate: 0.0,
            write_rate: 0.0,
            heat: 0.0,
        }
    }

    #[test]
    fn a_store_is_behind_by_the_sum_over_its_regions() {
        let rows = catch_up(&[
            region(Some(1), &[(1, Some(0)), (2, Some(7)), (3, Some(0))]),
            region(Some(1), &[(1, Some(0)), (2, Some(5)), (4, None)]),
            region(None, &[(1, Some(0)), (2, Some(9))]),
        ]);
        let row = |store, regions, behind, entries, unknown| CatchUpRow {
            store,
            regions,
            behind,
            entries,
            unknown,
        };
        assert_eq!(rows, [row(1, 3, 0, 0, 1), row(2, 3, 2, 12, 1), row(3, 1, 0, 0, 0), row(4, 1, 0, 0, 1)]);
        let caught_up: Vec<bool> = rows.iter().map(CatchUpRow::has_caught_up).collect();
        assert_eq!(caught_up, [false, false, true, false]);
    }
}
