//! A cluster under load, observed about once per second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::admin::{PeerRow, RegionRow, StoreRow};
use lab::scenario::{Look, Move, RegionLook, StoreLook};
use placement::PlanLimits;

use super::reproduce::observe::{Glance, Observer};
use steelyard::ctl::unix_ms;

pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of failed observations in a row. Stores on slowed devices and busy CPUs answer
/// late.
const FAILURES_MAX: usize = 10;

/// The state of the cluster at one moment: its layout, and the capabilities that it attributes to
/// stores.
pub struct Moment {
    pub look: Look,
    /// By store: the capability in KV bytes per second, and its uncertainty as a factor.
    pub believed: BTreeMap<u64, (f64, f64)>,
}

pub struct Watch {
    observer: Arc<Observer>,
    started: Instant,
    started_unix_ms: u64,
    failures: usize,
}

impl Watch {
    /// Starts a watch. Times count from now.
    pub fn start(observer: Arc<Observer>) -> Watch {
        Watch { observer, started: Instant::now(), started_unix_ms: unix_ms(), failures: 0 }
    }

    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Returns the current state. `None` if no store answered in time.
    pub async fn look(&mut self) -> anyhow::Result<Option<Moment>> {
        let at_s = self.seconds();
        match self.observer.glance().await {
            Ok(glance) => {
                self.failures = 0;
                Ok(Some(moment(at_s, &glance)))
            }
            Err(error) => {
                self.failures += 1;
                if self.failures > FAILURES_MAX {
                    return Err(error.context("the cluster could not be observed"));
                }
                Ok(None)
            }
        }
    }

    /// Returns every operator seen, in the order in which they began.
    pub fn moves(&self) -> Vec<Move> {
        self.observer.moves(self.started_unix_ms)
    }
}

fn moment(at_s: f64, glance: &Glance) -> Moment {
    let moving = |region: u64| {
        let running = glance.operators.iter().filter(|row| row.finished_unix_ms.is_none());
        running.into_iter().any(|row| row.region == region)
    };
    let store = |row: &StoreRow| StoreLook {
        store: row.id,
        used_bytes: row.used_bytes,
        capacity_bytes: row.capacity_bytes,
        leaders: row.leaders as u64,
        regions: row.regions as u64,
    };
    let limits = PlanLimits::default();
    let serves =
        |id: u64| glance.stores.iter().any(|store| store.id == id && store.state == "up" && !store.behind);
    let region = |row: &RegionRow| {
        let leads = |peer: &PeerRow| row.leader == Some(peer.store);
        let is_heir = |peer: &PeerRow| {
            let is_near = peer.lag.is_some_and(|lag| lag <= limits.lag_entries_max);
            !leads(peer) && peer.role == "voter" && is_near && serves(peer.store)
        };
        RegionLook {
            region: row.id,
            bytes: row.bytes,
            heat: row.heat,
            peers: row.peers.iter().map(|peer| peer.store).collect(),
            leader: row.leader,
            // A single peer hands over to the peer that takes its place.
            has_heir: row.peers.len() == 1 || row.peers.iter().any(is_heir),
            bound: row.joint
                || moving(row.id)
                || row.peers.iter().any(|peer| !leads(peer) && peer.lag.is_none()),
        }
    };
    // The meta region holds no data, so data placement does not move it.
    let user = |row: &&RegionRow| row.first_slot.is_some();
    let look = Look {
        at_s,
        stores: glance.stores.iter().map(store).collect(),
        regions: glance.regions.iter().filter(user).map(region).collect(),
    };
    let believed = |row: &StoreRow| (row.id, (row.capability_bytes_per_s, row.capability_spread));
    Moment { look, believed: glance.stores.iter().map(believed).collect() }
}

#[cfg(test)]
mod tests {
    use client::admin::OperatorRow;

    use super::*;

    fn operator(started_unix_ms: u64, region: u64, finished_unix_ms: Option<u64>) -> OperatorRow {
        OperatorRow {
            region,
            kind: "move-peer".into(),
            from: Some(0),
            to: Some(1),
            reason: "because".into(),
            reason_kind: String::new(),
            state: "in flight".into(),
            started_unix_ms,
            finished_unix_ms,
        }
    }

    fn region(id: u64, first_slot: Option<u16>) -> RegionRow {
        RegionRow {
            id,
            first_slot,
            last_slot: first_slot,
            epoch_conf_version: 1,
            epoch_version: 1,
            joint: false,
            leader: None,
            term: 1,
            peers: Vec::new(),
            keys: 0,
            bytes: 10,
            read_rate: 0.0,
            miss_rate: 0.0,
            write_rate: 0.0,
            heat: 2.5,
        }
    }

    #[test]
    fn a_region_moves_while_an_operator_for_it_has_not_ended() {
        let glance = Glance {
            stores: Vec::new(),
            regions: vec![region(0, None), region(1, Some(0)), region(2, Some(9))],
            operators: vec![operator(5, 1, Some(9)), operator(6, 2, None)],
        };
        let look = moment(1.0, &glance).look;
        let seen: Vec<(u64, bool, f64)> =
            look.regions.iter().map(|region| (region.region, region.bound, region.heat)).collect();
        assert_eq!(seen, [(1, false, 2.5), (2, true, 2.5)]);
    }

    fn store(id: u64, state: &str, behind: bool) -> StoreRow {
        StoreRow { id, state: state.into(), behind, ..StoreRow::default() }
    }

    #[test]
    fn a_lead_could_go_to_near_voters_of_stores_that_are_up_and_not_behind() {
        let peer = |store: u64, lag: Option<u64>| PeerRow {
            store,
            id: store,
            role: "voter".into(),
            lag,
            quarantined: None,
            unclean: false,
        };
        let seen = |other: PeerRow| {
            let stores = vec![
                store(0, "up", false),
                store(1, "up", false),
                store(2, "up", true),
                store(3, "out of room", false),
            ];
            let peers = vec![peer(0, None), other];
            let regions = vec![RegionRow { leader: Some(0), peers, ..region(1, Some(0)) }];
            let look = moment(1.0, &Glance { stores, regions, operators: Vec::new() }).look;
            (look.regions[0].has_heir, look.regions[0].bound)
        };
        let most = PlanLimits::default().lag_entries_max;
        assert_eq!(seen(peer(1, Some(most))), (true, false));
        let others = [
            peer(1, Some(most + 1)),
            PeerRow { role: "learner".into(), ..peer(1, Some(0)) },
            peer(2, Some(0)),
            peer(3, Some(0)),
        ];
        assert_eq!(others.map(seen), [(false, false); 4]);
        assert_eq!(seen(peer(1, None)), (false, true), "the peer's lag is unknown");
    }

    #[tokio::test]
    async fn an_operator_that_is_seen_twice_is_one_move() {
        let nowhere = Arc::new(Observer::of_nothing());
        let watch = Watch { started_unix_ms: 10_000, ..Watch::start(nowhere) };
        watch.observer.note(&[operator(9_000, 1, None), operator(12_500, 2, None)]);
        watch.observer.note(&[operator(9_000, 1, Some(13_000)), operator(12_500, 2, None)]);
        let times: Vec<(f64, Option<f64>)> =
            watch.moves().iter().map(|one| (one.at_s, one.ended_s)).collect();
        assert_eq!(times, [(-1.0, Some(3.0)), (2.5, None)]);
    }
}
