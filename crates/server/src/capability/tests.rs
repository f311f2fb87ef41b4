use super::watch::Totals;
use super::*;
use crate::fixture::Fixture;

fn measured(write_bytes_per_s: f64) -> Measured {
    Measured {
        write_bytes_per_s,
        sync_latency: Duration::from_millis(1),
        read_latency: Duration::from_micros(80),
        method: device::probe::Method::Direct,
        emulated: false,
    }
}

impl OwnCapability {
    fn correct_by(&self, correction: f64, ratio: Option<f64>) {
        let mut state = self.state.lock();
        (state.correction, state.ratio) = (correction, ratio);
    }
}

fn sitting(measured: Measured) -> rounds::Result {
    let rounds = vec![Round::from(&measured)];
    rounds::Result { measured, spread: DeviceSpread::OF_A_LOOK, rounds, sittings: 1 }
}

fn keep(own: &OwnCapability, write_bytes_per_s: f64, brief: bool) -> Capability {
    let measured = measured(write_bytes_per_s);
    let counts = own.counts_for(&measured);
    own.take(Persisted::new(sitting(measured), counts, brief, "of a test"));
    counts
}

#[test]
fn what_is_measured_counts_until_something_else_is_told() {
    let fixture = Fixture::new();
    let own = &fixture.store.capability;
    assert_eq!(own.present().capability, Capability::UNKNOWN);
    assert_eq!(own.lacks(), Some(Probe::Start));
    assert!(own.reference().1.is_none(), "there is no reference");
    let counts = keep(own, 5e8, false);
    let present = own.present();
    assert_eq!((present.capability, present.io_bytes_per_s), (counts, 5e8));
    assert_eq!(own.lacks(), None);

    let told = crate::Capability { kv_bytes_per_s: 700.0, ops_per_s: 7.0 };
    let fixture = Fixture::with(|config| config.members[0].capability = Some(told));
    let own = &fixture.store.capability;
    assert_eq!(own.present().capability.kv_bytes_per_s, 700.0);
    assert_eq!(own.lacks(), Some(Probe::Brief));
    keep(own, 5e8, true);
    let present = own.present();
    assert_eq!((present.capability.kv_bytes_per_s, present.io_bytes_per_s), (700.0, 0.0));
    assert!(own.reference().1.is_some() && own.lacks().is_none());
}

#[test]
fn a_told_store_is_compared_with_the_device_that_it_was_told_of() {
    let told = |kv_bytes_per_s| Some(crate::Capability { kv_bytes_per_s, ops_per_s: 7.0 });
    let fixture = Fixture::with(|config| config.members[0].capability = told(700.0));
    let own = &fixture.store.capability;
    keep(own, 5e8, true);
    assert!(!own.is_told_too_much(), "a healthy device may be measured again");
    own.correct_by(0.1, None);
    assert!(own.is_told_too_much(), "a measurement would end the correction");
    own.correct_by(1.0, Some(9.0));
    assert!(own.is_told_too_much());
    // Without a configured value, the measurement counts.
    let fixture = Fixture::new();
    let own = &fixture.store.capability;
    keep(own, 5e8, false);
    own.correct_by(0.1, None);
    assert!(!own.is_told_too_much());
}

#[test]
fn a_store_that_is_told_another_number_looks_at_its_device_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::single(dir.path().to_path_buf(), 6379);
    let told = |kv_bytes_per_s| Some(crate::Capability { kv_bytes_per_s, ops_per_s: 7.0 });
    config.members[0].capability = told(700.0);
    super::keep(&config, sitting(measured(5e8)), Probe::Brief, None, Vec::new());
    assert_eq!(OwnCapability::load(&config).lacks(), None);
    config.members[0].capability = told(70.0);
    assert_eq!(OwnCapability::load(&config).lacks(), Some(Probe::Brief));
    // An earlier measurement without a configured value still applies to this device.
    config.members[0].capability = None;
    super::keep(&config, sitting(measured(5e8)), Probe::Start, None, Vec::new());
    config.members[0].capability = told(70.0);
    assert_eq!(OwnCapability::load(&config).lacks(), None);
}

#[test]
fn a_short_look_is_not_what_a_store_counts_for_once_it_is_not_told_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::single(dir.path().to_path_buf(), 6379);
    let own = OwnCapability::load(&config);
    let counts = own.counts_for(&measured(5e8));
    Persisted::new(sitting(measured(5e8)), counts, true, "of a test").write(dir.path()).unwrap();
    let own = OwnCapability::load(&config);
    assert_eq!(own.present().capability, Capability::UNKNOWN);
    assert_eq!(own.lacks(), Some(Probe::Start));
    // A damaged file is treated as absent.
    std::fs::write(dir.path().join("CAPABILITY"), "{").unwrap();
    config.members[0].capability = Some(crate::Capability { kv_bytes_per_s: 7.0, ops_per_s: 7.0 });
    assert_eq!(OwnCapability::load(&config).lacks(), Some(Probe::Brief));
}

#[test]
fn the_correction_scales_what_counts_and_a_new_measurement_ends_it() {
    let fixture = Fixture::new();
    let own = &fixture.store.capability;
    let counts = keep(own, 5e8, false);
    let (first, reference) = own.reference();
    let mut watch = Watch::new(reference.unwrap());
    for second in 0..20 {
        let now = Duration::from_secs(second);
        watch.observe(now, Totals { blocked: now / 2, syncs: 50 * second, ..Totals::default() });
    }
    assert!((watch.correction() - 0.1).abs() < 0.001, "{}", watch.correction());
    own.correct(&watch);
    let present = own.present();
    assert!((present.capability.kv_bytes_per_s / counts.kv_bytes_per_s - 0.1).abs() < 0.001);
    assert!((present.capability.ops_per_s / counts.ops_per_s - 0.1).abs() < 0.001);
    assert_eq!(present.io_bytes_per_s, 5e8, "the measurement stays");
    let metrics = &fixture.store.metrics;
    present.show(metrics);
    let text = metrics.text();
    for name in ["capability_bytes_per_s", "capability_correction 0.1", "device_ratio 10"] {
        assert!(text.contains(&format!("steelyard_{name}")), "{name}: {text}");
    }
    keep(own, 5e7, false);
    assert_eq!((own.present().correction, own.present().ratio), (1.0, None));
    assert!(own.reference().0 > first);
}

#[tokio::test]
async fn a_probe_measures_keeps_and_is_alone() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let measurer = store.measurer();
    let (one, other) =
        tokio::join!(probe(&measurer, Probe::Brief, None), probe(&measurer, Probe::Brief, None));
    let Probed { measured, is_reference } = one.unwrap();
    assert!(is_reference && measured.write_bytes_per_s > 0.0);
    assert!(matches!(other, Err(NotProbed::UnderWay)));
    assert_eq!(Persisted::read(&store.config.dir).unwrap().map(|kept| kept.measured), Some(measured));
    assert!(probe(&store.measurer(), Probe::Brief, None).await.is_ok(), "the first probe is over");

    let full = Fixture::with(|config| config.reserve_bytes = u64::MAX);
    let refused = probe(&full.store.measurer(), Probe::Brief, None).await;
    assert!(matches!(refused, Err(NotProbed::NoRoom { .. })), "{refused:?}");
}

#[test]
fn what_is_told_is_exact_what_is_measured_is_not_and_what_is_corrected_is_less_sure() {
    let fixture = Fixture::new();
    let own = &fixture.store.capability;
    assert_eq!(own.present().spread, Spread::UNKNOWN);
    keep(own, 5e8, false);
    let measured = own.present().spread;
    assert!((1.25..1.4).contains(&measured.kv_bytes_per_s) && measured.sync == 1.3, "{measured:?}");
    own.correct_by(0.1, None);
    assert!((own.present().spread.kv_bytes_per_s / measured.kv_bytes_per_s - 1.2).abs() < 1e-9);
    assert!(own.previous_rounds(Probe::Start).0.is_empty(), "the device has changed");

    let told = crate::Capability { kv_bytes_per_s: 700.0, ops_per_s: 7.0 };
    let fixture = Fixture::with(|config| config.members[0].capability = Some(told));
    let own = &fixture.store.capability;
    keep(own, 5e8, true);
    let spread = own.present().spread;
    assert_eq!((spread.kv_bytes_per_s, spread.ops_per_s, spread.sync), (1.0, 1.0, 1.3));
    assert_eq!(own.next_sitting(0), None);
}

#[test]
fn a_second_sitting_is_wanted_once_and_goes_on_from_the_first() {
    let fixture = Fixture::new();
    let own = &fixture.store.capability;
    assert_eq!(own.next_sitting(0), None, "there was no first sitting");
    keep(own, 5e8, false);
    assert_eq!(own.next_sitting(0), Some(Duration::ZERO));
    assert_eq!((own.previous_rounds(Probe::Start).0.len(), own.previous_rounds(Probe::Full).0.len()), (1, 0));
    let spread = DeviceSpread { write: 1.1, ..DeviceSpread::OF_A_LOOK };
    let second = rounds::Result { sittings: 2, spread, ..sitting(measured(5e8)) };
    let counts = own.counts_for(&measured(5e8));
    own.take(Persisted::new(second, counts, false, "of a test"));
    assert_eq!(own.next_sitting(0), None);
}

#[test]
fn a_store_that_is_not_sure_after_two_sittings_sits_again_unless_its_device_is_corrected() {
    let fixture = Fixture::new();
    let own = &fixture.store.capability;
    let measured = measured(5e8);
    let twice = |write: f64| {
        let spread = DeviceSpread { write, ..DeviceSpread::OF_A_LOOK };
        let result = rounds::Result { sittings: 2, spread, ..sitting(measured) };
        Persisted::new(result, own.counts_for(&measured), false, "of a test")
    };
    own.take(twice(2.0));
    assert_eq!(own.next_sitting(0), Some(Duration::ZERO));
    own.correct_by(0.5, None);
    assert_eq!(own.next_sitting(0), None);
    own.take(twice(1.1));
    assert_eq!(own.next_sitting(0), None);
}

#[test]
fn what_was_measured_of_another_device_is_dropped_and_what_of_this_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::single(dir.path().to_path_buf(), 6379);
    let lacks = |config: &Config| OwnCapability::load(config).lacks();
    let own = OwnCapability::load(&config);
    let place = own.place();
    assert!(place.host != 0 && place.device != 0 && place == OwnCapability::load(&config).place());
    let once = || vec![Sitting { began_unix_ms: 1, ended_unix_ms: 2 }];
    drop(super::keep(&config, sitting(measured(5e8)), Probe::Start, own.ground.as_ref(), once()));
    assert_eq!(lacks(&config), None);
    assert_eq!(Persisted::read(dir.path()).unwrap().unwrap().history, once());

    // An emulated device under the same directory.
    config.device_control = Some(dir.path().join("control"));
    assert_eq!(lacks(&config), Some(Probe::Start));
    let emulated = OwnCapability::load(&config).place();
    assert!(emulated.host == place.host && emulated.device != place.device);
    // The same disk after another boot.
    config.device_control = None;
    let mut ground = own.ground.clone().expect("this machine has one");
    ground.boot_id = "another".into();
    if let device::Underlying::Disks { disks } = &mut ground.device {
        disks.iter_mut().for_each(|disk| disk.number = "77:7".into());
    }
    drop(super::keep(&config, sitting(measured(5e8)), Probe::Start, Some(&ground), once()));
    assert_eq!(lacks(&config), None);
    // The device does not count as changed if the kernel did not report it.
    drop(super::keep(&config, sitting(measured(5e8)), Probe::Start, None, once()));
    assert_eq!(lacks(&config), None);
}

#[tokio::test]
async fn a_sitting_is_remembered_with_its_time_and_its_ground() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    for _ in 0..2 {
        probe(&store.measurer(), Probe::Brief, None).await.unwrap();
    }
    let kept = Persisted::read(&store.config.dir).unwrap().unwrap();
    assert_eq!((kept.history.len(), &kept.ground), (2, &store.capability.ground));
    let [one, other] = kept.history[..] else { unreachable!() };
    assert!(one.began_unix_ms <= one.ended_unix_ms && one.ended_unix_ms <= other.began_unix_ms);
}

#[tokio::test]
async fn a_probe_whose_turn_does_not_come_in_time_measures_nothing_and_is_over() {
    let fixture = Fixture::with(|config| {
        let mut other = config.members[0].clone();
        other.id += 1;
        config.members.push(other);
    });
    let store = &fixture.store;
    for _ in 0..2 {
        let refused = probe(&store.measurer(), Probe::Brief, Some(Duration::from_millis(60))).await;
        assert!(matches!(refused, Err(NotProbed::NoTurn)), "{refused:?}");
    }
    assert_eq!(store.capability.lacks(), Some(Probe::Start));
}
