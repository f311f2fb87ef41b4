use placement::Policy;

use super::*;
use crate::state::tests::bootstrap;
use crate::{LeadReport, MetaCommand, PeerProgress, Route, StoreHeartbeat};

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Now {
    Now { boot: seconds * SECOND, unix_ms: 1_700_000_000_000 + seconds * 1000 }
}

/// Three stores that hold every region; store 2 is the fastest. Leaders by region, terms with them.
struct Cluster {
    meta: MetaState,
    ledger: Ledger,
    driver: Driver,
    led: BTreeMap<RegionId, Route>,
    seq: u64,
}

impl Cluster {
    fn new(policy: Policy, regions: u16) -> Cluster {
        let mut meta = MetaState::default();
        meta.apply(&bootstrap(3, regions), 0).unwrap();
        meta.apply(&MetaCommand::SetPolicy { policy }, 0).unwrap();
        let led = meta.regions.keys().map(|&region| (region, Route { term: 5, leader: 0 })).collect();
        let driver = Driver::new(DriverConfig::default());
        Cluster { meta, ledger: Ledger::new(0, 2 * SECOND), driver, led, seq: 0 }
    }

    fn heartbeats(&mut self, now: Now) {
        self.seq += 1;
        for store in 0..3 {
            let leads = self.led.iter().filter(|(_, route)| route.leader == store);
            let leads = leads.map(|(&region, route)| LeadReport {
                region,
                term: route.term,
                peers: (0..3).map(|store| PeerProgress { store, matched: 0 }).collect(),
                ..LeadReport::default()
            });
            let heartbeat = StoreHeartbeat {
                store,
                seq: self.seq,
                capability: placement::Capability {
                    kv_bytes_per_s: 10.0 * (store + 1) as f64,
                    ops_per_s: 1.0,
                },
                leads: leads.collect(),
                ..StoreHeartbeat::default()
            };
            self.ledger.hear(heartbeat, now.boot);
        }
    }

    fn step(&mut self, seconds: u64) -> Vec<Operator> {
        self.heartbeats(at(seconds));
        self.driver.step(&self.meta, &self.ledger, &PlanLimits::default(), at(seconds))
    }

    fn execute(&mut self, operator: &Operator) {
        self.elect(operator.region(), operator.to().unwrap());
    }

    fn elect(&mut self, region: RegionId, leader: StoreId) {
        let route = self.led.get_mut(&region).unwrap();
        *route = Route { term: route.term + 1, leader };
    }

    fn outcomes(&self) -> Vec<(RegionId, Outcome)> {
        self.driver.history().map(|finished| (finished.operator.region(), finished.outcome)).collect()
    }
}

#[test]
fn leaders_move_succeed_and_then_all_is_quiet() {
    let mut cluster = Cluster::new(Policy::LeaderOnly, 3);
    let operators = cluster.step(1);
    assert_eq!(operators.len(), 4);
    assert!(operators.iter().all(|operator| operator.to() == Some(2)));
    assert_eq!(cluster.step(2), [], "in flight counts as done");
    assert_eq!(cluster.driver.in_flight().count(), 4);
    operators.iter().for_each(|operator| cluster.execute(operator));
    for seconds in 3..60 {
        assert_eq!(cluster.step(seconds), []);
    }
    assert_eq!(cluster.outcomes(), [0, 1, 2, 3].map(|region| (region, Outcome::Succeeded)));
    let first = cluster.driver.history().next().unwrap();
    assert_eq!((first.started_unix_ms, first.finished_unix_ms), (at(1).unix_ms, at(3).unix_ms));
}

#[test]
fn switching_the_policy_back_and_forth_ends_quiet_each_time() {
    let mut cluster = Cluster::new(Policy::LeaderOnly, 10);
    let mut now = 0;
    for policy in [Policy::LeaderOnly, Policy::Even, Policy::LeaderOnly] {
        cluster.meta.apply(&MetaCommand::SetPolicy { policy }, 0).unwrap();
        for _ in 0..20 {
            now += 1;
            for operator in cluster.step(now) {
                cluster.execute(&operator);
            }
        }
        assert_eq!(cluster.step(now + 1), []);
        let users = cluster.led.iter().filter(|(&region, _)| region != 0);
        let mut counts = [0; 3];
        users.for_each(|(_, route)| counts[route.leader as usize] += 1);
        match policy {
            Policy::Even => assert!(counts.iter().all(|count| [3, 4].contains(count)), "{counts:?}"),
            Policy::LeaderOnly => assert_eq!(counts, [0, 0, 10]),
        }
    }
}

#[test]
fn a_lost_move_times_out_and_is_tried_again_after_a_pause_that_grows() {
    let mut cluster = Cluster::new(Policy::LeaderOnly, 1);
    cluster.meta.regions.remove(&0);
    let starts: Vec<u64> = (1..35).filter(|&seconds| !cluster.step(seconds).is_empty()).collect();
    // 5 s until it is overdue, seen in the 6th; then 2, 4, 8 s of pause.
    assert_eq!(starts, [1, 9, 19, 33]);
    assert!(cluster.outcomes().iter().all(|outcome| *outcome == (1, Outcome::TimedOut)));
    cluster.elect(1, 2);
    cluster.step(35);
    assert_eq!(cluster.outcomes().last(), Some(&(1, Outcome::Succeeded)));
    cluster.elect(1, 0);
    assert_eq!(cluster.step(36).len(), 1, "a success forgets the failures");
}

#[test]
fn another_leader_than_the_wanted_one_is_a_failure() {
    let mut cluster = Cluster::new(Policy::LeaderOnly, 1);
    cluster.meta.regions.remove(&0);
    assert_eq!(cluster.step(1).len(), 1);
    cluster.elect(1, 1);
    assert_eq!(cluster.step(2), [], "it cools down");
    assert_eq!(cluster.outcomes(), [(1, Outcome::LedElsewhere { leader: 1 })]);
    assert_eq!(cluster.step(4).len(), 1);
}

#[test]
fn an_aborted_transfer_ends_at_once() {
    let mut cluster = Cluster::new(Policy::LeaderOnly, 1);
    cluster.step(1);
    cluster.driver.aborted(1, at(2));
    cluster.driver.aborted(77, at(2));
    assert_eq!(cluster.outcomes(), [(1, Outcome::Aborted)]);
    assert!(cluster.driver.is_cooling(1, at(3).boot) && !cluster.driver.is_cooling(1, at(4).boot));
}

#[test]
fn a_store_that_dies_has_its_leaders_counted_where_they_were_elected() {
    let mut cluster = Cluster::new(Policy::Even, 6);
    for seconds in 1..5 {
        for operator in cluster.step(seconds) {
            cluster.execute(&operator);
        }
    }
    let on_two: Vec<RegionId> =
        cluster.led.iter().filter(|(_, route)| route.leader == 2).map(|(&region, _)| region).collect();
    assert_eq!(on_two.len(), 2);
    on_two.into_iter().for_each(|region| cluster.elect(region, 1));
    let mut moved = 0;
    for seconds in 5..12 {
        cluster.seq += 1;
        cluster.heartbeats(at(seconds));
        // Store 2 is silent: what the helper says for it is put back into the past.
        cluster.ledger = silence(cluster.ledger.clone(), 2);
        let operators =
            cluster.driver.step(&cluster.meta, &cluster.ledger, &PlanLimits::default(), at(seconds));
        moved += operators.len();
        operators.iter().for_each(|operator| {
            assert_ne!(operator.to(), Some(2));
            cluster.execute(operator);
        });
    }
    assert_eq!(moved, 1, "from 2 and 4 to 3 and 3");
}

fn silence(ledger: Ledger, store: StoreId) -> Ledger {
    let mut silent = Ledger::new(0, 2 * SECOND);
    for (region, route) in ledger.routes().iter() {
        silent.learn(region, route);
    }
    for other in (0..3).filter(|&other| other != store) {
        let heard = ledger.heard(other).unwrap();
        silent.hear(heard.heartbeat.clone(), heard.at);
    }
    silent
}

#[test]
fn a_request_is_checked_and_then_begun() {
    let mut cluster = Cluster::new(Policy::Even, 1);
    cluster.heartbeats(at(1));
    let Cluster { meta, ledger, driver, .. } = &mut cluster;
    let mut request = |region, to, seconds| driver.request(meta, ledger, region, to, at(seconds));
    assert_eq!(request(9, 1, 1), Err(StartError::NoRegion(9)));
    assert_eq!(request(1, 0, 1), Err(StartError::LeadsAlready { region: 1, store: 0 }));
    assert_eq!(request(1, 7, 1), Err(StartError::NotAVoter { region: 1, store: 7 }));
    assert_eq!(request(1, 1, 9), Err(StartError::Down(0)));
    let operator = request(1, 1, 1).unwrap();
    assert_eq!((operator.from(), operator.to(), operator.reason()), (Some(0), Some(1), &Reason::Requested));
    assert_eq!(request(1, 2, 1), Err(StartError::Busy { region: 1 }));
    cluster.execute(&operator);
    cluster.step(2);
    assert_eq!(cluster.outcomes(), [(1, Outcome::Succeeded)]);
}

#[test]
fn nothing_is_planned_before_bootstrap_or_before_all_were_heard() {
    let mut cluster = Cluster::new(Policy::LeaderOnly, 1);
    let heard_nothing = cluster.driver.step(&cluster.meta, &cluster.ledger, &PlanLimits::default(), at(1));
    assert_eq!(heard_nothing, []);
    cluster.meta = MetaState::default();
    assert_eq!(cluster.step(2), []);
}

#[test]
fn history_keeps_the_latest() {
    let mut cluster = Cluster::new(Policy::Even, 1);
    cluster.driver = Driver::new(DriverConfig { history_max: 2, ..DriverConfig::default() });
    for (to, seconds) in [(1, 1), (2, 2), (0, 3)] {
        cluster.heartbeats(at(seconds));
        cluster.driver.request(&cluster.meta, &cluster.ledger, 1, to, at(seconds)).unwrap();
        cluster.elect(1, to);
        cluster.heartbeats(at(seconds));
        cluster.driver.observe(&cluster.ledger, at(seconds));
    }
    let to: Vec<StoreId> = cluster.driver.history().filter_map(|finished| finished.operator.to()).collect();
    assert_eq!(to, [2, 0]);
}
