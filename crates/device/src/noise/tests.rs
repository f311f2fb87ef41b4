use super::*;
use crate::{Control, Extent, Profile};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn device(text: &str) -> (tempfile::TempDir, Control) {
    let dir = tempfile::tempdir().unwrap();
    let profile: Profile = text.parse().unwrap();
    let control = Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
    (dir, control)
}

fn noise(text: &str) -> Noise {
    format!("nvm,{text}").parse::<Profile>().unwrap().noise
}

/// Returns the median, and the standard deviation of the logarithms.
fn median_and_deviation(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let logs: Vec<f64> = times.iter().map(|time| time.ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64;
    (times[times.len() / 2], variance.sqrt())
}

#[test]
fn latencies_and_bandwidth_have_the_stated_median_and_spread() {
    for spread in [0.25, 0.5, 1.0] {
        let (_dir, control) =
            device(&format!("write=1MB/s,read=1MB/s,sync=1ms,read-latency=2ms,spread={spread}"));
        let block = control.block();
        let wanted = f64::ln(1.0 + spread);
        let (mut syncs, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        // One operation of each kind per slice, with nothing queued on the device.
        for slice in 1..20_001 {
            let at = slice * SECOND;
            syncs.push((block.sync(at) - at) as f64);
            writes.push((block.write(at, 1_000) - at) as f64);
            reads.push((block.read(at, 0, false) - at) as f64);
        }
        for (times, nominal) in [(syncs, MS), (writes, MS), (reads, 2 * MS)] {
            let (median, deviation) = median_and_deviation(times);
            assert!((median / nominal as f64 - 1.0).abs() < 0.03, "{spread}: median {median} of {nominal}");
            assert!((deviation / wanted - 1.0).abs() < 0.03, "{spread}: {deviation}, not {wanted}");
        }
    }
}

#[test]
fn half_of_the_variance_of_a_latency_is_that_of_its_slice() {
    let noise = noise("spread=50%");
    let slice = SLICE.as_nanos() as u64;
    let (mut of_means, mut within) = (Vec::new(), Vec::new());
    for number in 0..4_000 {
        let log = |operation| noise.latency_factor(number * slice, number * 32 + operation).ln();
        let logs: Vec<f64> = (0..32).map(log).collect();
        let mean = logs.iter().sum::<f64>() / 32.0;
        within.push(logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 31.0);
        of_means.push(mean.powi(2));
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let all = 1.5f64.ln().powi(2);
    assert!((mean(&within) / all - 0.5).abs() < 0.03);
    // The mean of 32 operations also has a 32nd of the operations' variance.
    assert!((mean(&of_means) / all - 0.5 - 0.5 / 32.0).abs() < 0.04);
}

#[test]
fn each_period_has_one_burst_of_the_stated_length_and_factor() {
    let noise = noise("burst=10s:200ms:5,seed=3");
    let (mut begins, mut in_burst) = (Vec::new(), 0);
    let mut was = false;
    for at in (0..1_000 * SECOND).step_by((10 * MS) as usize) {
        let factor = noise.transfer_factor(at);
        assert!(factor == 1.0 || factor == 5.0, "{factor}");
        assert_eq!(factor, noise.latency_factor(at, at));
        let is = factor == 5.0;
        if is && !was {
            begins.push(at);
        }
        in_burst += u64::from(is);
        was = is;
    }
    assert_eq!(begins.len(), 100);
    assert!((1_990..=2_010).contains(&in_burst), "{in_burst} of 100,000 looks");
    assert!(begins.iter().enumerate().all(|(period, at)| at / (10 * SECOND) == period as u64));
    let mut places: Vec<u64> = begins.iter().map(|at| at % (10 * SECOND) / SECOND).collect();
    places.sort();
    places.dedup();
    assert!(places.len() >= 8, "at places of their own: {places:?}");
}

#[test]
fn a_neighbour_leaves_what_it_does_not_take() {
    let (_dir, control) = device("write=1MB/s,read=1MB/s,sync=1ms,neighbour=60s:60s:75%");
    let block = control.block();
    assert_eq!(block.write(0, 1_000), 4 * MS);
    assert_eq!(block.sync(SECOND), SECOND + 4 * MS);
    control.set_slow(2.0).unwrap();
    assert_eq!(block.read(2 * SECOND, 1_000, true), 2 * SECOND + 8 * MS, "both slow it down");
}

#[test]
fn the_same_seed_gives_the_same_times_and_another_gives_others() {
    let times = |text: &str, number| {
        let mut profile: Profile = text.parse().unwrap();
        profile.noise = profile.noise.of_device(number);
        let dir = tempfile::tempdir().unwrap();
        let control = Control::create(&dir.path().join("device"), &profile, 1.0).unwrap();
        let block = control.block();
        (1..200).map(|n| block.write(n * SECOND, 1_000) + block.sync(n * SECOND)).collect::<Vec<_>>()
    };
    let text = "plain-ssd/10,spread=30%,burst=3s:1s:4,neighbour=20s:5s:30%";
    assert_eq!(times(text, 0), times(text, 0));
    assert_ne!(times(text, 0), times(text, 1));
    assert_ne!(times(text, 0), times(&format!("{text},seed=9"), 0));
}

#[test]
fn a_device_without_noise_does_what_it_does_without_a_description_of_it() {
    let (_dir, plain) = device("hybrid/10,cache=1MB");
    let (_other, quiet) = device("hybrid/10,cache=1MB,seed=7,spread=0%");
    for n in 1..2_000u64 {
        let at = n * MS / 3;
        let extent = Extent { file: n % 3, begin: n % 700 * 4096, bytes: 5_000 };
        let of = |control: &Control| {
            let (cache, block) = (control.cache().unwrap(), control.block());
            (cache.write(at, extent), cache.read(at, extent, n % 2 == 0), block.sync(at))
        };
        assert_eq!(of(&plain), of(&quiet));
    }
}

#[test]
fn a_sync_that_comes_after_a_flush_began_never_shares_it() {
    let (_dir, control) = device("write=1GB/s,read=1GB/s,sync=10ms,spread=100%");
    let block = control.block();
    for n in 1..2_000 {
        let at = n * SECOND;
        let first = block.sync(at);
        assert!(block.sync(at + 1) > first, "it came after the flush began");
    }
}

#[test]
fn noise_goes_through_the_control_block_and_can_be_taken_back() {
    let (_dir, control) = device("nvm,spread=50%,burst=10s:200ms:5,neighbour=60s:20s:30%,seed=7");
    let opened = Control::open(control.path()).unwrap();
    let profile = opened.profile();
    let burst = Burst { every: Duration::from_secs(10), lasts: Duration::from_millis(200), slower: 5.0 };
    let neighbour = Neighbour { every: Duration::from_secs(60), lasts: Duration::from_secs(20), share: 0.3 };
    let wanted = Noise { spread: 0.5, burst: Some(burst), neighbour: Some(neighbour), seed: 7 };
    assert_eq!(profile.noise, wanted);
    assert_eq!(profile.slower(3.0).unwrap().noise, wanted, "noise is no speed");
    control.set_profile(&Profile::named("nvm").unwrap());
    assert_eq!(opened.profile().noise, Noise::NONE);
}
