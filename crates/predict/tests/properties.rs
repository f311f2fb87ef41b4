//! Properties of every prediction.

mod support;

use placement::{plan, PlanLimits, Policy};
use steelyard_predict::{at_rest, beside, predict, PredictError, Prediction, Question, Workload};
use support::{cluster, store, EQUAL, UNEQUAL};

fn ops_per_s(question: &Question, policy: Policy, workload: Workload) -> f64 {
    let prediction = predict(question, policy, &[Workload::Load, workload]).unwrap();
    prediction.phase(workload).unwrap().ops_per_s
}

#[test]
fn the_same_question_gets_the_same_answer() {
    let question = cluster(&UNEQUAL);
    let workloads = [Workload::Load, Workload::A];
    let first = predict(&question, Policy::Adaptive, &workloads).unwrap();
    assert_eq!(first, predict(&question, Policy::Adaptive, &workloads).unwrap());
    let other = Question { seed: 2, ..question };
    assert_ne!(first, predict(&other, Policy::Adaptive, &workloads).unwrap());
}

/// Each run has its own seed, and the first has the seed of a single run.
#[test]
fn of_several_runs_medians_are_told() {
    let question = cluster(&EQUAL);
    let of = |seed: u64, runs: u64| {
        let question = Question { seed, runs, ..question.clone() };
        predict(&question, Policy::Even, &[Workload::Load]).map(|told| told.phases[0].clone())
    };
    let mut single: Vec<f64> = (1..=3).map(|seed| of(seed, 1).unwrap().ops_per_s).collect();
    single.sort_by(f64::total_cmp);
    assert!(single[0] < single[2]);
    let told = of(1, 3).unwrap();
    assert_eq!([told.least_ops_per_s, told.ops_per_s, told.most_ops_per_s], single[..]);
    assert_eq!(of(1, 0), Err(PredictError::Zero("the number of runs")));
}

/// No policy gains anything if stores are equal.
#[test]
fn on_equal_stores_policies_are_equal() {
    let question = cluster(&EQUAL);
    let load = |policy| predict(&question, policy, &[Workload::Load]).unwrap();
    let even = load(Policy::Even);
    for policy in [Policy::LeaderOnly, Policy::Alor, Policy::Adaptive] {
        for ratio in beside(&even, &load(policy)) {
            assert!((0.9..1.1).contains(&ratio.throughput), "{ratio:?}");
        }
    }
    for policy in Policy::ALL {
        assert_eq!(at_rest(&question, policy).unwrap().operators, [], "{policy} moves nothing");
    }
}

#[test]
fn on_unequal_stores_the_order_is_the_papers() {
    let question = cluster(&UNEQUAL);
    let load = |policy| ops_per_s(&question, policy, Workload::Load);
    let (even, leader_only, alor) = (load(Policy::Even), load(Policy::LeaderOnly), load(Policy::Alor));
    assert!(even * 1.1 < leader_only && leader_only * 1.1 < alor, "{even} {leader_only} {alor}");
}

#[test]
fn a_faster_device_makes_nothing_slower() {
    for workload in [Workload::Load, Workload::A, Workload::C] {
        let mut before: Option<f64> = None;
        for device in ["plain-ssd/160", "plain-ssd/80", "plain-ssd/40", "plain-ssd/20"] {
            let now = ops_per_s(&cluster(&[device; 4]), Policy::Even, workload);
            assert!(
                before.is_none_or(|before| now > before * 0.97),
                "{workload} on {device}: {now}, {before:?}"
            );
            before = Some(now);
        }
    }
}

/// A cache makes a device faster, up to the speed of the cache. The gain is not steady: stores that
/// write sooner also compact sooner.
#[test]
fn a_hybrid_is_between_the_device_behind_and_its_cache() {
    let caches = ["2MiB", "16MiB", "1GiB"];
    for workload in [Workload::Load, Workload::A, Workload::C] {
        let of = |device: &str| ops_per_s(&cluster(&[device; 4]), Policy::Even, workload);
        let (plain, nvm) = (of("plain-ssd/80"), of("nvm/80"));
        let speeds = caches.map(|cache| of(&format!("hybrid/80,cache={cache}")));
        assert!(speeds.iter().all(|speed| *speed > plain * 0.75), "{workload}: {speeds:?}, {plain}");
        assert!(speeds[0] < nvm * 0.5 && speeds[1] > plain * 1.5, "{workload}: {speeds:?}, {plain} {nvm}");
        assert!((0.8..1.05).contains(&(speeds[2] / nvm)), "{workload}: {speeds:?}, {nvm}");
    }
}

#[test]
fn more_records_in_ram_make_reads_no_slower() {
    let small = cluster(&UNEQUAL);
    let mut large = small.clone();
    large.tuning.row_cache_bytes *= 16;
    let (small, large) =
        (ops_per_s(&small, Policy::Even, Workload::C), ops_per_s(&large, Policy::Even, Workload::C));
    assert!(large > small, "{small} {large}");
}

#[test]
fn layouts_are_placements_own_at_rest() {
    let question = cluster(&UNEQUAL);
    for policy in Policy::ALL {
        let rested = at_rest(&question, policy).unwrap();
        assert_eq!(plan(&rested.view, policy, &PlanLimits::default()), [], "{policy}");
        let prediction = predict(&question, policy, &[Workload::Load]).unwrap();
        assert_eq!(prediction.layout.len(), question.regions.len());
        for placed in &prediction.layout {
            assert_eq!(placed.peers.len(), 3, "{policy}: every region is whole");
            assert!(placed.peers.contains(&placed.leader));
        }
        let held: u64 = prediction.stores.iter().map(|store| store.bytes).sum();
        assert_eq!(held, 3 * 30_000 * 1084, "{policy}: every record three times");
    }
}

#[test]
fn every_operation_is_answered_and_counted_once() {
    let question = cluster(&UNEQUAL);
    for policy in [Policy::Even, Policy::Adaptive] {
        let prediction = predict(&question, policy, &[Workload::Load, Workload::C]).unwrap();
        assert_eq!(prediction.phase(Workload::Load).unwrap().operations, question.load.records);
        assert_eq!(prediction.phase(Workload::C).unwrap().operations, question.load.operations);
        for phase in &prediction.phases {
            assert!(phase.p50_us <= phase.p99_us && phase.mean_us > 0.0);
            let devices = phase.stores.iter().flat_map(|used| [used.write_share, used.read_share]);
            assert!(devices.into_iter().all(|share| (0.0..1.3).contains(&share)), "{phase:?}");
        }
    }
}

/// ALOR §3.2: a store above its threshold sheds, here while it is being filled.
#[test]
fn stores_with_little_room_are_not_filled_beyond_it() {
    let mut question = cluster(&UNEQUAL);
    // The data is 97 MB, and each store may hold a fifth of it: six stores have room for 117 MB.
    question.stores.iter_mut().for_each(|store| store.capacity_bytes = 19_500_000);
    let prediction = predict(&question, Policy::Alor, &[Workload::Load, Workload::C]).unwrap();
    assert!(prediction.phases[0].moves > 0, "they shed while they are loaded");
    for store in &prediction.stores {
        assert!(store.bytes as f64 <= 0.98 * 19_500_000.0, "{:?}", prediction.stores);
    }
    // Leaders moved and peers were copied while entries arrived: nothing may be lost or counted
    // twice.
    let held: u64 = prediction.stores.iter().map(|store| store.bytes).sum();
    assert_eq!(held, 3 * 30_000 * 1084);
    assert!(prediction.layout.iter().all(|placed| placed.peers.len() == 3), "{:?}", prediction.layout);
}

/// The time of a move consists mainly of syncs and writes at the target, so the slowest devices
/// decide how much is shed during a load.
#[test]
fn slow_stores_take_regions_slowly() {
    let moved = |factor: u64| {
        let mut question = cluster(&UNEQUAL);
        question.stores.iter_mut().for_each(|store| store.capacity_bytes = 19_500_000);
        // The capabilities that placement sees stay the same.
        for store in &mut question.stores[3..] {
            store.device.sync_ns /= factor;
            store.device.write_bytes_per_s *= factor;
            store.device.read_bytes_per_s *= factor;
        }
        predict(&question, Policy::Alor, &[Workload::Load]).unwrap().phases[0].moves
    };
    let (slow, fast) = (moved(1), moved(8));
    assert!(slow * 4 < fast * 3, "{slow} {fast}");
}

#[test]
fn a_store_that_leaves_holds_nothing() {
    let mut question = cluster(&UNEQUAL);
    question.stores[4].leaving = true;
    let prediction = predict(&question, Policy::Alor, &[Workload::Load]).unwrap();
    assert_eq!((prediction.stores[4].peers, prediction.stores[4].leaders), (0, 0));
    question.stores.iter_mut().take(4).for_each(|store| store.leaving = true);
    let error = predict(&question, Policy::Alor, &[Workload::Load]).unwrap_err();
    assert!(matches!(error, PredictError::Stays { .. }), "{error}");
}

/// A leader that is the only voter transfers leadership to the newcomer before it leaves.
#[test]
fn a_region_of_one_copy_is_shed_too() {
    let mut question = cluster(&UNEQUAL);
    question.replicas = 1;
    question.regions = Question::founded(&question.stores, 24, 1);
    question.stores.iter_mut().for_each(|store| store.capacity_bytes = 6_500_000);
    let prediction = predict(&question, Policy::Alor, &[Workload::Load, Workload::A]).unwrap();
    assert!(prediction.moves > 0);
    assert!(prediction.layout.iter().all(|placed| placed.peers == [placed.leader]));
    let full = prediction.stores.iter().filter(|store| store.bytes * 100 > 6_500_000 * 96);
    assert_eq!(full.count(), 0, "{:?}", prediction.stores);
}

#[test]
fn a_ratio_is_over_the_baseline() {
    let question = cluster(&["nvm/80", "plain-ssd/80", "plain-ssd/80"]);
    let even = predict(&question, Policy::Even, &[Workload::Load]).unwrap();
    let own = beside(&even, &even);
    assert_eq!((own[0].throughput, own[0].mean_latency, own[0].p99_latency), (1.0, 1.0, 1.0));
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    let good = cluster(&["nvm"]);
    let refused = |change: &dyn Fn(&mut Question)| {
        let mut question = good.clone();
        change(&mut question);
        predict(&question, Policy::Even, &[Workload::Load]).unwrap_err()
    };
    assert_eq!(refused(&|q| q.stores.clear()), PredictError::NoStores);
    assert_eq!(refused(&|q| q.regions.clear()), PredictError::NoRegions);
    assert_eq!(refused(&|q| q.regions[3].peers = vec![7]), PredictError::UnknownStore(4, 7));
    assert_eq!(refused(&|q| drop(q.regions.remove(0))), PredictError::Uncovered(0));
    assert_eq!(refused(&|q| q.load.threads = 0), PredictError::Zero("the number of threads"));
    assert!(matches!(refused(&|q| q.load.records = 1 << 40), PredictError::TooManyRecords(_)));
    let mut two = cluster(&["nvm", "nvm", "nvm"]);
    two.stores.push(store(3, "nvm"));
    two.regions[0].leader = 3;
    let error = predict(&two, Policy::Even, &[Workload::Load]).unwrap_err();
    assert_eq!(error, PredictError::NoLeader(1));
}

/// The paper's six stores, filled and then read for two minutes. Under `alor` the high-end SSDs
/// lead every region that the NVM store does not hold, and are fully used. `adaptive` lets plain
/// SSDs lead as many of them as they bear.
#[test]
fn adaptive_relieves_stores_that_reads_keep_busy() {
    let mut question = cluster(&[
        "nvm/160",
        "high-end-ssd/160",
        "high-end-ssd/160",
        "plain-ssd/160",
        "plain-ssd/160",
        "plain-ssd/160",
    ]);
    question.stores.iter_mut().for_each(|store| store.capacity_bytes = 19_500_000);
    // A fortieth of a store's rows is in RAM.
    (question.tuning.row_cache_bytes, question.tuning.block_cache_bytes) = (400_000, 400_000);
    question.load.threads = 256;
    question.load.operations = u64::MAX;
    question.load.at_most_ns = 120_000_000_000;
    question.load.rest_at_most_ns = 120_000_000_000;
    let read = |policy| predict(&question, policy, &[Workload::Load, Workload::C]).unwrap();
    let (alor, adaptive) = (read(Policy::Alor), read(Policy::Adaptive));
    let leads =
        |prediction: &Prediction| prediction.stores[3..].iter().map(|store| store.leaders).sum::<usize>();
    assert_eq!(leads(&alor), 0);
    assert!(leads(&adaptive) > 0, "{:?}", adaptive.stores);
    let ratio = adaptive.phases[1].ops_per_s / alor.phases[1].ops_per_s;
    assert!(ratio > 1.1, "{ratio}");
}
