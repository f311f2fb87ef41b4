use placement::{Capability, Cpu, StoreState};
use types::{RegionChange, SlotRange};

use super::*;
use crate::state::tests::begun;
use crate::{
    view, DeltaTracker, Driver, DriverConfig, Leads, MetaCommand, PeerProgress, HEAT_WINDOW_S, RATE_WINDOW_S,
};

const DOWN_AFTER: u64 = 1000;
const REPLACE_AFTER: u64 = 10_000;
const CONFIG: LedgerConfig =
    LedgerConfig { down_after_nanos: DOWN_AFTER, replace_after_nanos: REPLACE_AFTER };

fn ledger(now: BootNanos) -> Ledger {
    Ledger::new(now, CONFIG)
}

fn lead(region: RegionId, term: Term) -> LeadReport {
    let progress = |store, matched| PeerProgress { store, matched, active: true, needs_snapshot: false };
    LeadReport {
        commit: 10,
        bytes: 77,
        peers: vec![progress(0, 10), progress(1, 4)],
        ..LeadReport::blank(descriptor(region), term)
    }
}

fn descriptor(region: RegionId) -> RegionDescriptor {
    let slots = (region != 0).then(|| SlotRange { first: region as u16 * 10, last: region as u16 * 10 + 9 });
    RegionDescriptor::founded(region, slots, &[0, 1, 2])
}

/// Returns a full heartbeat.
fn heartbeat(store: StoreId, seq: u64, leads: &[(RegionId, Term)]) -> StoreHeartbeat {
    let reports = leads.iter().map(|&(region, term)| lead(region, term)).collect();
    let leads = Leads { since: seq, reports, gone: Vec::new() };
    StoreHeartbeat { store, incarnation: 1, seq, leads, ..Default::default() }
}

fn with_leads(store: StoreId, seq: u64, leads: Leads) -> StoreHeartbeat {
    StoreHeartbeat { leads, ..heartbeat(store, seq, &[]) }
}

#[test]
fn the_larger_term_wins_in_whatever_order_news_comes() {
    let routes_heard = [(5, 1), (7, 2), (6, 0)].map(|(term, leader)| Route { term, leader });
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut routes = Routes::default();
        for at in order {
            routes.learn(1, routes_heard[at]);
        }
        assert_eq!(routes.get(1), Some(routes_heard[1]));
        assert!(!routes.learn(1, routes_heard[1]), "known already");
    }
}

#[test]
fn an_old_heartbeat_changes_nothing() {
    let mut ledger = ledger(0);
    assert!(ledger.hear(heartbeat(1, 5, &[]), 10));
    assert!(!ledger.hear(heartbeat(1, 5, &[(1, 3)]), 500));
    assert!(!ledger.hear(heartbeat(1, 4, &[(1, 3)]), 500));
    assert_eq!(ledger.heard(1).unwrap().at, 10);
    assert_eq!(ledger.routes().get(1), None);
    assert!(ledger.hear(StoreHeartbeat { incarnation: 2, ..heartbeat(1, 0, &[]) }, 600));
}

#[test]
fn a_store_that_stops_is_up_to_its_end_and_takes_nothing_on() {
    let mut ledger = ledger(0);
    ledger.hear(heartbeat(1, 1, &[]), 100);
    assert!(ledger.is_up(1, 100) && ledger.takes_on(1, 100));
    ledger.hear(StoreHeartbeat { stopping: true, ..heartbeat(1, 2, &[]) }, 200);
    assert!(ledger.is_up(1, 200) && !ledger.takes_on(1, 200));
    ledger.hear(StoreHeartbeat { incarnation: 2, ..heartbeat(1, 1, &[]) }, 300);
    assert!(ledger.takes_on(1, 300), "the store is back");
}

#[test]
fn a_store_whose_device_hangs_takes_nothing_on_and_is_lost_if_that_lasts() {
    let mut ledger = ledger(0);
    ledger.hear(heartbeat(1, 1, &[]), 100);
    let hanging = |seq| StoreHeartbeat { hanging: true, ..heartbeat(1, seq, &[]) };
    ledger.hear(hanging(2), 200);
    assert!(ledger.is_up(1, 200) && !ledger.takes_on(1, 200) && !ledger.may_lead(1, 200));
    ledger.hear(hanging(3), 200 + REPLACE_AFTER);
    assert!(!ledger.is_lost_to_a_hang(1, 200 + REPLACE_AFTER));
    assert!(ledger.is_lost_to_a_hang(1, 201 + REPLACE_AFTER));
    ledger.hear(heartbeat(1, 4, &[]), 300 + REPLACE_AFTER);
    assert!(ledger.may_lead(1, 300 + REPLACE_AFTER) && !ledger.is_lost_to_a_hang(1, 300 + REPLACE_AFTER));
    ledger.hear(hanging(5), 400 + REPLACE_AFTER);
    assert!(!ledger.is_lost_to_a_hang(1, 500 + REPLACE_AFTER), "the time starts again");
}

#[test]
fn a_store_without_room_or_a_right_clock_takes_on_anything_but_leads() {
    let mut ledger = ledger(0);
    assert!(!ledger.may_lead(1, 100), "the store has sent no heartbeat");
    ledger.hear(heartbeat(1, 1, &[]), 100);
    assert!(ledger.may_lead(1, 100));
    ledger.hear(StoreHeartbeat { out_of_room: true, ..heartbeat(1, 2, &[]) }, 200);
    assert!(ledger.takes_on(1, 200) && !ledger.may_lead(1, 200));
    ledger.hear(StoreHeartbeat { clock_off: true, ..heartbeat(1, 3, &[]) }, 300);
    assert!(ledger.takes_on(1, 300) && !ledger.may_lead(1, 300));
}

/// A store's incarnation is its wall clock when it started.
#[test]
fn a_store_that_restarts_with_its_clock_set_back_is_heard_once_its_former_self_is_down() {
    let mut ledger = ledger(0);
    let at = |incarnation, seq| StoreHeartbeat { incarnation, ..heartbeat(1, seq, &[(1, 3)]) };
    assert!(ledger.hear(at(86_400_000, 900), 100));
    assert!(!ledger.hear(at(1000, 1), 100 + DOWN_AFTER), "the heartbeat may have been overtaken");
    assert!(ledger.hear(at(1000, 2), 101 + DOWN_AFTER));
    assert!(ledger.is_up(1, 101 + DOWN_AFTER) && ledger.lead(1).is_some());
    assert!(ledger.hear(at(1000, 3), 102 + DOWN_AFTER));
    // Within an incarnation numbers only rise, however long the silence is.
    assert!(!ledger.hear(at(1000, 3), 200 + 2 * DOWN_AFTER));
}

#[test]
fn a_store_is_down_and_later_lost_when_nothing_was_heard_for_long_enough() {
    let mut ledger = ledger(0);
    assert_eq!(ledger.liveness(1, 0), Liveness::Down);
    assert_eq!(ledger.liveness(1, REPLACE_AFTER + 1), Liveness::Lost, "the store never sent a heartbeat");
    let mut now = 100;
    ledger.hear(heartbeat(1, 1, &[]), now);
    let silent = |ledger: &Ledger, after: u64| ledger.liveness(1, 100 + after);
    assert_eq!(
        [DOWN_AFTER, DOWN_AFTER + 1].map(|after| silent(&ledger, after)),
        [Liveness::Up, Liveness::Down]
    );
    while now < 100 + REPLACE_AFTER {
        now += DOWN_AFTER / 2;
        ledger.hear(heartbeat(0, now, &[]), now);
    }
    assert_eq!(silent(&ledger, REPLACE_AFTER), Liveness::Down);
    assert_eq!(silent(&ledger, REPLACE_AFTER + 1), Liveness::Lost);
    ledger.hear(heartbeat(1, 2, &[]), now);
    assert!(ledger.is_up(1, now));
}

#[test]
fn a_pause_of_the_listener_is_nobody_elses_silence() {
    let mut ledger = ledger(0);
    ledger.hear(heartbeat(0, 1, &[]), 100);
    ledger.hear(heartbeat(1, 1, &[]), 100);
    let awake = 100 + 5 * REPLACE_AFTER;
    ledger.hear(heartbeat(0, 2, &[]), awake);
    assert_eq!(ledger.liveness(1, awake), Liveness::Up);
    assert_eq!(ledger.liveness(1, awake + DOWN_AFTER + 1), Liveness::Down);
}

#[test]
fn a_report_counts_while_its_store_leads() {
    let mut ledger = ledger(0);
    ledger.hear(heartbeat(0, 1, &[(1, 3)]), 0);
    assert_eq!(ledger.lead(1).unwrap().bytes, 77);
    ledger.learn(1, Route { term: 4, leader: 1 });
    assert_eq!(ledger.lead(1), None, "the new leader has not reported");
    ledger.hear(heartbeat(1, 1, &[(1, 4)]), 0);
    assert_eq!(ledger.lead(1).unwrap().term, 4);
    ledger.hear(heartbeat(1, 2, &[]), 0);
    assert_eq!(ledger.lead(1), None, "the store reports that it no longer leads");
    ledger.hear(heartbeat(0, 2, &[(1, 5)]), 0);
    ledger.learn(1, Route { term: 6, leader: 0 });
    assert_eq!(ledger.lead(1), None, "its report is from an earlier term");
}

#[test]
fn any_subset_of_heartbeats_with_the_last_full_one_leads_to_the_same() {
    let told = |region, bytes| LeadReport { bytes, ..lead(region, 1) };
    let mut book = DeltaTracker::default();
    let mut beats = Vec::new();
    for seq in 1..=8u64 {
        match seq {
            1 => (1..=4).for_each(|region| book.put(told(region, 0))),
            4 => book.remove(2),
            6 => book.put(told(2, 9)),
            7 => book.remove(3),
            _ => {}
        }
        book.put(told(1, seq));
        beats.push(with_leads(0, seq, book.tell(seq, seq == 3)));
    }
    for heard in 0..1u32 << 7 {
        let mut ledger = ledger(0);
        // The full third heartbeat and the last one arrive, and any subset of the others.
        for (at, beat) in beats.iter().enumerate() {
            if at == 2 || at == 7 || heard & (1 << at) != 0 {
                ledger.hear(beat.clone(), 0);
            }
        }
        let leads: Vec<_> =
            ledger.heard(0).unwrap().leads().map(|lead| (lead.region(), lead.bytes)).collect();
        assert_eq!(leads, [(1, 8), (2, 9), (4, 0)], "{heard:b}");
    }
}

#[test]
fn what_builds_on_an_unheard_full_one_tells_what_it_says_and_no_more() {
    let mut ledger = ledger(0);
    let delta = |seq| Leads { since: 5, reports: vec![lead(seq, 2)], gone: vec![9] };
    ledger.hear(with_leads(0, 7, delta(1)), 0);
    assert!(ledger.is_up(0, 0) && ledger.lead(1).is_some());
    // A restarted store does not continue where it was.
    ledger.hear(StoreHeartbeat { incarnation: 2, ..with_leads(0, 7, delta(2)) }, 0);
    assert!(ledger.lead(1).is_none() && ledger.lead(2).is_some());
}

#[test]
fn the_newest_descriptor_of_each_region_is_kept_until_its_slots_are_all_others() {
    let mut ledger = ledger(0);
    let (one, two) = (descriptor(1), descriptor(2));
    assert!(ledger.learn_descriptor(&one) && ledger.learn_descriptor(&two));
    assert!(!ledger.learn_descriptor(&one), "no news");
    let merge = RegionChange::CommitMerge { source: Box::new(two.clone()), source_index: 3 };
    let merged = one.after(&merge).unwrap().region;
    assert!(ledger.learn_descriptor(&merged));
    assert_eq!(ledger.descriptors().collect::<Vec<_>>(), [&merged]);
    assert!(!ledger.learn_descriptor(&two), "the descriptor is outdated");
    assert_eq!((ledger.descriptor(2), ledger.slots().region_of(25)), (None, Some(1)));
}

#[test]
fn planning_waits_until_every_store_was_heard_or_had_the_time() {
    let mut meta = begun(2, 1);
    let mut ledger = ledger(500);
    ledger.hear(heartbeat(0, 1, &[]), 500);
    assert!(!ledger.is_settled(&meta, 500 + DOWN_AFTER));
    assert!(ledger.is_settled(&meta, 501 + DOWN_AFTER));
    ledger.hear(heartbeat(1, 1, &[]), 600);
    assert!(ledger.is_settled(&meta, 600));
    meta.apply(&MetaCommand::Join { facts: crate::state::tests::facts(2), newest: None }, 0).unwrap();
    assert!(!ledger.is_settled(&meta, 600));
    meta.apply(&MetaCommand::RemoveStore { store: 2 }, 0).unwrap();
    assert!(ledger.is_settled(&meta, 600));
}

#[test]
fn the_view_joins_what_is_agreed_with_what_was_heard() {
    let mut meta = begun(6, 2);
    let pins = MetaCommand::SetPins { store: 0, data_weight: Some(2.0), leader_weight: Some(3.0) };
    let state = |store, state| MetaCommand::SetStoreState { store, state };
    meta.apply(&pins, 0).unwrap();
    for store in [1, 4] {
        meta.apply(&state(store, crate::MemberState::Draining), 0).unwrap();
    }
    meta.apply(&MetaCommand::SetConfig { name: "domain-label".into(), value: Some("zone".into()) }, 0)
        .unwrap();
    let mut ledger = ledger(0);
    let driver = Driver::new(DriverConfig::default());
    let fast = Capability { kv_bytes_per_s: 9e9, ops_per_s: 9e6 };
    let mut led = LeadReport {
        write_bytes_rate: 5.0,
        heat: 6.0,
        ..LeadReport { descriptor: meta.regions[&1].clone(), ..lead(1, 2) }
    };
    let free = (0..6).find(|&store| !led.descriptor.has_peer_on(store)).unwrap();
    let grow = RegionChange::Peers(vec![types::PeerChange::AddLearner(free)]);
    led.descriptor = led.descriptor.after(&grow).unwrap().region;
    led.peers = led
        .descriptor
        .peers
        .iter()
        .map(|peer| peer.store)
        .map(|store| PeerProgress {
            store,
            matched: 4 + 6 * u64::from(store == 0),
            active: store < 2,
            needs_snapshot: false,
        })
        .collect();
    let leads = Leads { since: 1, reports: vec![led.clone()], gone: vec![] };
    // The bytes in the store's own report are not used.
    let cpu = Some(Cpu { cores: 4.0, busy: 0.5, own: 1.0, machine: 9 });
    ledger.hear(StoreHeartbeat { capability: fast, used_bytes: 5, cpu, ..with_leads(0, 1, leads) }, 0);
    for now in [900, 1800] {
        for store in [1, 2, 3, 5] {
            ledger.hear(heartbeat(store, now, &[]), now);
        }
    }
    let view = view(&meta, &ledger, &driver, 2000);

    assert_eq!((view.replicas, view.meta_replicas, view.domain_label.as_deref()), (3, 5, Some("zone")));
    assert_eq!(view.stores.iter().map(|s| s.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(view.stores[0].capability, fast);
    assert_eq!((view.stores[0].cpu, view.stores[1].cpu), (cpu, None));
    let holds = |store| 77 * u64::from(led.descriptor.has_peer_on(store));
    assert!(view.stores.iter().all(|store| store.used_bytes == holds(store.id)));
    assert_eq!(view.stores[free as usize].used_bytes, 77, "a learner counts");
    assert_eq!((view.stores[0].data_weight, view.stores[0].leader_weight), (Some(2.0), Some(3.0)));
    assert_eq!(view.stores[4].capability, meta.stores[&4].facts.capability);
    assert_eq!(view.stores[0].labels["zone"], "a");
    let states: Vec<StoreState> = view.stores.iter().map(|store| store.state).collect();
    use StoreState::{Down, Draining, Lost, Up};
    assert_eq!(states, [Down, Draining, Up, Up, Lost, Up], "a silent store that is to leave is replaced");

    assert_eq!(view.regions.iter().map(|r| r.id).collect::<Vec<_>>(), [0, 1, 2]);
    let one = &view.regions[1];
    assert_eq!((one.leader, one.bytes, one.write_bytes_rate, one.heat), (Some(0), 77, 5.0, 6.0));
    assert_eq!((one.first_slot, one.last_slot, one.slots, one.joint), (0, 8191, 8192, false));
    let peers: Vec<_> = one.peers.iter().map(|peer| (peer.store, peer.voter, peer.lag)).collect();
    let lag = |store| led.lag_of(store);
    let expected: Vec<_> =
        led.descriptor.peers.iter().map(|p| (p.store, p.store != free, lag(p.store))).collect();
    assert_eq!(peers, expected, "the learner that the leader reports is there");
    assert_eq!((view.regions[2].leader, view.regions[2].peers[0].lag), (None, None));
}

#[test]
fn placement_is_given_half_of_a_device_for_each_of_two_stores_on_it() {
    let meta = begun(3, 1);
    let mut ledger = ledger(0);
    for (store, device) in [(0, 7), (1, 7), (2, 8)] {
        let measured = StoreHeartbeat {
            place: crate::Place { host: 6, device },
            capability: Capability { kv_bytes_per_s: 8e6, ops_per_s: 4e3 },
            correction: 1.0,
            spread: placement::Spread::all(1.1),
            sync_ns: 1000,
            ..heartbeat(store, 1, &[])
        };
        ledger.hear(measured, 0);
    }
    let view = view(&meta, &ledger, &Driver::new(DriverConfig::default()), 0);
    let counts: Vec<_> =
        view.stores.iter().map(|store| (store.capability.kv_bytes_per_s, store.sync_ns)).collect();
    assert_eq!(counts, [(4e6, 1000), (4e6, 1000), (8e6, 1000)]);
    let classes: Vec<_> = placement::rate(&view.stores).iter().map(|rating| rating.classes.writes).collect();
    assert_eq!(classes, [Some(0), Some(0), Some(2)]);
}

#[test]
fn a_lost_store_and_one_removed_with_a_peer_left_are_lost_to_placement() {
    let mut meta = begun(4, 1);
    let mut ledger = ledger(0);
    let mut now = 0;
    while now <= REPLACE_AFTER {
        now += DOWN_AFTER;
        for store in 0..3 {
            ledger.hear(heartbeat(store, now, &[]), now);
        }
    }
    meta.stores.get_mut(&2).unwrap().state = crate::MemberState::Removed;
    let driver = Driver::new(DriverConfig::default());
    let states = |meta: &MetaState| -> Vec<_> {
        view(meta, &ledger, &driver, now).stores.iter().map(|store| (store.id, store.state)).collect()
    };
    use StoreState::{Lost, Up};
    assert_eq!(states(&meta), [(0, Up), (1, Up), (2, Lost), (3, Lost)]);
    for region in meta.regions.values_mut() {
        region.peers.retain(|peer| peer.store != 2);
    }
    assert_eq!(states(&meta), [(0, Up), (1, Up), (3, Lost)]);
}

/// Returns a heartbeat about one region with slots, which store 0 leads first and store 1 later.
fn told(store: StoreId, term: Term, seq: u64, change: impl FnOnce(&mut LeadReport)) -> StoreHeartbeat {
    let mut told = lead(1, term);
    change(&mut told);
    with_leads(store, seq, Leads { since: seq, reports: vec![told], gone: Vec::new() })
}

const SECOND: BootNanos = 1_000_000_000;

#[test]
fn what_followers_answer_heats_a_region_whoever_leads_it_and_wherever_its_peers_go() {
    let mut ledger = ledger(0);
    let heat = |ledger: &Ledger| ledger.load(1, 0).heat;
    let reads = |store, seq, followed: &[(RegionId, f64)]| StoreHeartbeat {
        followed: followed.to_vec(),
        ..heartbeat(store, seq, &[])
    };
    ledger.hear(told(0, 1, 1, |lead| lead.heat = 10.0), 0);
    ledger.hear(reads(1, 1, &[(1, 4.0), (2, 90.0)]), 0);
    ledger.hear(reads(2, 1, &[(1, 2.0)]), 0);
    assert_eq!(heat(&ledger), 16.0);
    ledger.hear(with_leads(1, 2, Leads { since: 1, ..Leads::default() }), 0);
    assert_eq!(heat(&ledger), 16.0, "only full heartbeats carry it");
    ledger.hear(reads(2, 2, &[(1, 3.0)]), 0);
    assert_eq!(heat(&ledger), 17.0);
    // Store 1 leads now and reports all its heat. The previous leader's heat still counts.
    ledger.hear(told(1, 2, 3, |lead| lead.heat = 4.5), 0);
    assert_eq!(heat(&ledger), 17.5);
    // A store that restarted or lost its peer reports no heat, and the region keeps its heat.
    ledger.hear(StoreHeartbeat { incarnation: 2, ..reads(2, 1, &[(1, 0.5)]) }, 0);
    assert_eq!(heat(&ledger), 18.0);
    ledger.hear(StoreHeartbeat { incarnation: 2, ..reads(2, 2, &[]) }, 0);
    assert_eq!(heat(&ledger), 18.0);
    let later = ledger.load(1, HEAT_WINDOW_S as u64 * SECOND).heat;
    // A leader that has not reported yet keeps its last report.
    assert!((later - 4.5 - 13.5 / std::f64::consts::E).abs() < 1e-9, "{later}");
}

#[test]
fn what_a_silent_follower_answered_decays() {
    let mut ledger = ledger(0);
    ledger.hear(told(0, 1, 1, |_| ()), 0);
    let followed = vec![(1, 8.0)];
    ledger.hear(StoreHeartbeat { followed, ..heartbeat(1, 1, &[]) }, 0);
    let heat = ledger.load(1, 2 * HEAT_WINDOW_S as u64 * SECOND).heat;
    assert!((heat - 8.0 / std::f64::consts::E.powi(2)).abs() < 1e-9, "{heat}");
}

#[test]
fn a_follower_that_starts_anew_as_a_leader_leaves_its_heat_to_the_region() {
    let mut ledger = ledger(0);
    ledger.hear(told(0, 1, 1, |_| ()), 0);
    let followed = vec![(1, 8.0)];
    ledger.hear(StoreHeartbeat { followed, ..heartbeat(1, 1, &[]) }, 0);
    ledger.hear(StoreHeartbeat { incarnation: 2, ..told(1, 2, 1, |lead| lead.heat = 0.5) }, 0);
    assert_eq!(ledger.load(1, 0).heat, 8.5);
    // A late report of an earlier leader has no effect.
    let followed = vec![(1, 4.0)];
    ledger.hear(StoreHeartbeat { followed, ..heartbeat(2, 1, &[]) }, 0);
    ledger.hear(told(2, 1, 2, |lead| lead.heat = 4.0), 0);
    assert_eq!(ledger.load(1, 0).heat, 12.5);
}

#[test]
fn a_leader_that_is_elected_again_inherits_from_itself() {
    let mut ledger = ledger(0);
    ledger.hear(told(0, 1, 1, |lead| lead.heat = 10.0), 0);
    ledger.hear(told(0, 2, 2, |lead| lead.heat = 0.25), 0);
    assert_eq!(ledger.load(1, 0).heat, 10.25);
    ledger.hear(told(0, 2, 3, |lead| lead.heat = 0.5), 0);
    assert_eq!(ledger.load(1, 0).heat, 10.5);
}

#[test]
fn a_new_leader_inherits_the_load_that_it_cannot_know() {
    let mut ledger = ledger(0);
    let busy = |lead: &mut LeadReport| {
        (lead.read_rate, lead.miss_rate, lead.heat) = (1000.0, 100.0, 800.0);
    };
    ledger.hear(told(0, 3, 1, busy), 0);
    let load = ledger.load(1, 9 * SECOND);
    assert_eq!((load.read_rate, load.miss_rate, load.heat), (1000.0, 100.0, 800.0));
    // The load equals the report of a leader that stayed: averages with these windows do not change
    // under the same load.
    let at = 20 * SECOND;
    for seconds in [0u64, 2, 5, 30, 300] {
        let part = |window: f64| 1.0 - (-(seconds as f64) / window).exp();
        let own = |lead: &mut LeadReport| {
            (lead.read_rate, lead.heat) = (1000.0 * part(RATE_WINDOW_S), 800.0 * part(HEAT_WINDOW_S));
            lead.miss_rate = lead.read_rate / 10.0;
        };
        ledger.hear(told(1, 4, 2 + seconds, own), at + seconds * SECOND);
        let load = ledger.load(1, at + seconds * SECOND);
        assert!((load.read_rate - 1000.0).abs() < 1e-6 && (load.heat - 800.0).abs() < 1e-6, "{load:?}");
        assert!((load.miss_rate - 100.0).abs() < 1e-6, "{load:?}");
    }
    // A late report of the previous leader no longer counts.
    ledger.hear(told(0, 3, 9, busy), at + 300 * SECOND);
    assert!(ledger.load(1, at + 300 * SECOND).read_rate < 1001.0);
    // A region that no longer exists is forgotten.
    let over = LeadReport {
        descriptor: RegionDescriptor {
            epoch: types::RegionEpoch { conf_version: 1, version: 9 },
            id: 7,
            ..descriptor(1)
        },
        ..lead(7, 1)
    };
    ledger.hear(with_leads(2, 1, Leads { since: 1, reports: vec![over], gone: Vec::new() }), at);
    assert_eq!((ledger.bytes(1), ledger.load(1, at)), (0, Load::default()));
}

#[test]
fn that_a_new_leader_has_read_nothing_yet_does_not_count_for_a_minute() {
    let mut ledger = ledger(0);
    let warm = |lead: &mut LeadReport| (lead.read_rate, lead.miss_rate) = (1000.0, 100.0);
    let cold = |lead: &mut LeadReport| (lead.read_rate, lead.miss_rate) = (2000.0, 1800.0);
    ledger.hear(told(0, 3, 1, warm), 0);
    ledger.hear(told(1, 4, 1, |_| {}), SECOND);
    for (seq, at) in [(2, 20), (3, 60)] {
        ledger.hear(told(1, 4, seq, cold), at * SECOND);
        let load = ledger.load(1, at * SECOND);
        assert!((load.miss_rate - load.read_rate / 10.0).abs() < 1e-6, "{load:?}");
    }
    // The next leader inherits the effective rate, not the reported one.
    ledger.hear(told(2, 5, 1, cold), 60 * SECOND);
    let load = ledger.load(1, 60 * SECOND);
    assert!((load.miss_rate - load.read_rate / 10.0).abs() < 1e-6, "{load:?}");
    assert!(
        (ledger.load(1, 121 * SECOND).miss_rate - 1800.0).abs() < 1e-2,
        "after a minute the reported rate counts"
    );
    // No reads were known before, so only the report counts.
    let mut ledger = self::ledger(0);
    ledger.hear(told(0, 3, 1, |_| {}), 0);
    ledger.hear(told(1, 4, 1, cold), SECOND);
    assert_eq!(ledger.load(1, SECOND).miss_rate, 1800.0);
}

#[test]
fn a_leader_that_restarts_inherits_from_itself() {
    let mut ledger = ledger(0);
    ledger.hear(told(0, 3, 1, |lead| lead.heat = 800.0), 0);
    let again = StoreHeartbeat { incarnation: 2, ..told(0, 4, 1, |lead| lead.heat = 1.0) };
    ledger.hear(again, SECOND);
    assert_eq!(ledger.load(1, SECOND).heat, 801.0);
}

#[test]
fn a_size_is_the_last_that_was_measured_whoever_leads() {
    let mut ledger = ledger(0);
    ledger.hear(told(0, 3, 1, |lead| lead.bytes = 500), 0);
    let unmeasured = |lead: &mut LeadReport| (lead.bytes, lead.sized) = (0, false);
    ledger.hear(told(1, 4, 1, unmeasured), 1);
    assert_eq!(ledger.bytes(1), 500);
    ledger.hear(told(1, 4, 2, |lead| lead.bytes = 200), 2);
    assert_eq!(ledger.bytes(1), 200);
}

#[test]
fn what_was_cut_is_left_alone_until_it_has_been_measured() {
    let meta = begun(3, 1);
    let mut ledger = ledger(0);
    let driver = Driver::new(DriverConfig::default());
    let of = |sized| LeadReport { sized, descriptor: meta.regions[&1].clone(), ..lead(1, 2) };
    for (seq, sized) in [(1, false), (2, true)] {
        ledger.hear(with_leads(0, seq, Leads { since: seq, reports: vec![of(sized)], gone: vec![] }), 0);
        assert_eq!(view(&meta, &ledger, &driver, 0).regions[1].cooldown, !sized);
    }
}
