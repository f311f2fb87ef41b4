//! The devices that writes wait for.

use std::collections::BTreeMap;

use client::admin::RegionRow;

/// The facts about a store that determine waits.
#[derive(Clone, Debug)]
pub struct Syncs {
    pub device: String,
    pub sync_us: f64,
    pub is_up: bool,
}

/// Returns for each kind of device the number of regions whose writes wait for a sync of such a
/// device. This is the slowest device in the fastest majority that includes the leader. The device
/// with the longest sync comes first. Regions without a leader or without a majority are left out.
pub fn waits(regions: &[RegionRow], stores: &BTreeMap<u64, Syncs>) -> Vec<(String, usize)> {
    let mut counts: Vec<(&Syncs, usize)> = Vec::new();
    for slowest in
        regions.iter().filter(|row| row.first_slot.is_some()).filter_map(|row| slowest(row, stores))
    {
        match counts.iter_mut().find(|(known, _)| known.device == slowest.device) {
            Some((_, count)) => *count += 1,
            None => counts.push((slowest, 1)),
        }
    }
    counts.sort_by(|(a, _), (b, _)| b.sync_us.total_cmp(&a.sync_us));
    counts.into_iter().map(|(slowest, count)| (slowest.device.clone(), count)).collect()
}

fn slowest<'a>(region: &RegionRow, stores: &'a BTreeMap<u64, Syncs>) -> Option<&'a Syncs> {
    let leader = region.leader?;
    let voters = || region.peers.iter().filter(|peer| peer.role == "voter").map(|peer| peer.store);
    let mut others: Vec<&Syncs> =
        voters().filter(|store| *store != leader).filter_map(|store| stores.get(&store)).collect();
    others.retain(|store| store.is_up);
    others.sort_by(|a, b| a.sync_us.total_cmp(&b.sync_us));
    let own = stores.get(&leader).filter(|store| store.is_up)?;
    // A majority has one member in addition to these followers: the leader.
    let followers = voters().count() / 2;
    match followers {
        0 => Some(own),
        needed => others.get(needed - 1).map(|last| if last.sync_us > own.sync_us { *last } else { own }),
    }
}

#[cfg(test)]
mod tests {
    use client::admin::PeerRow;

    use super::*;

    fn stores() -> BTreeMap<u64, Syncs> {
        let store = |device: &str, sync_us| Syncs { device: device.into(), sync_us, is_up: true };
        let fast = [(0, store("nvm", 5.0)), (1, store("fast", 20.0))];
        fast.into_iter().chain((2..5).map(|id| (id, store("slow", 1000.0)))).collect()
    }

    fn region(leader: Option<u64>, peers: &[u64]) -> RegionRow {
        let peer = |store: &u64| PeerRow {
            store: *store,
            id: *store,
            role: "voter".into(),
            lag: Some(0),
            quarantined: None,
            unclean: false,
        };
        RegionRow {
            id: 1,
            first_slot: Some(0),
            last_slot: Some(9),
            epoch_conf_version: 1,
            epoch_version: 1,
            joint: false,
            leader,
            term: 1,
            peers: peers.iter().map(peer).collect(),
            keys: 0,
            bytes: 0,
            read_rate: 0.0,
            miss_rate: 0.0,
            write_rate: 0.0,
            heat: 0.0,
        }
    }

    #[test]
    fn a_write_waits_for_its_leader_and_the_fastest_followers() {
        let regions = [
            region(Some(0), &[0, 1, 2]),
            region(Some(0), &[0, 2, 3]),
            region(Some(2), &[0, 1, 2]),
            region(Some(1), &[0, 1, 2]),
            region(None, &[0, 1, 2]),
        ];
        assert_eq!(waits(&regions, &stores()), [("slow".into(), 2), ("fast".into(), 2)]);
        assert_eq!(waits(&[region(Some(0), &[0])], &stores()), [("nvm".into(), 1)]);
        assert_eq!(waits(&[region(Some(0), &[0, 1, 2, 3, 4])], &stores()), [("slow".into(), 1)]);
    }

    #[test]
    fn a_store_that_is_down_syncs_nothing() {
        let mut stores = stores();
        stores.get_mut(&1).unwrap().is_up = false;
        assert_eq!(waits(&[region(Some(0), &[0, 1, 2])], &stores), [("slow".into(), 1)]);
        assert!(waits(&[region(Some(1), &[0, 1, 2])], &stores).is_empty());
        stores.get_mut(&2).unwrap().is_up = false;
        assert!(waits(&[region(Some(0), &[0, 1, 2])], &stores).is_empty());
    }
}
