use super::*;
use crate::hand_over::Heir;

const TIMES: HangTimes =
    HangTimes { after_nanos: 2000, bytes_per_s: 1_000_000_000, healthy_nanos: 10_000, look_nanos_max: 400 };

fn pending(began: BootNanos) -> Option<Pending> {
    Some(Pending { began, bytes: 0 })
}

/// Looks every 200 ns at the same state from `from` until `to`. Returns the time at which the
/// device first counted as hanging.
fn hung_at(watch: &mut HangWatch, pending: Option<Pending>, from: u64, to: u64) -> Option<u64> {
    (from..=to).step_by(200).find(|&now| watch.look(pending, now))
}

#[test]
fn a_device_hangs_once_an_operation_has_waited_for_the_limit_and_not_before() {
    let mut watch = HangWatch::new(TIMES);
    assert_eq!(hung_at(&mut watch, None, 0, 5000), None, "no operation is pending");
    assert_eq!(hung_at(&mut watch, pending(5100), 5200, 9000), Some(7200));
    assert!(watch.is_hanging() && watch.waited_nanos() >= 2000);
}

#[test]
fn many_operations_one_after_the_other_are_no_hang() {
    let mut watch = HangWatch::new(TIMES);
    for now in (0..20_000).step_by(200) {
        assert!(!watch.look(pending(now.max(100) - 100), now));
    }
}

#[test]
fn a_large_operation_has_the_time_that_its_bytes_take() {
    let mut watch = HangWatch::new(TIMES);
    let large = Some(Pending { began: 0, bytes: 6000 });
    assert_eq!(hung_at(&mut watch, large, 0, 20_000), Some(8000));
}

#[test]
fn a_process_that_stood_still_did_not_wait_for_its_device() {
    let mut watch = HangWatch::new(TIMES);
    watch.look(pending(0), 200);
    assert!(!watch.look(pending(0), 1_000_000), "it was suspended in between");
    assert_eq!(hung_at(&mut watch, pending(0), 1_000_200, 1_010_000), Some(1_001_600));
}

#[test]
fn a_device_that_answers_again_hangs_until_it_has_been_healthy_for_a_while() {
    let mut watch = HangWatch::new(TIMES);
    assert_eq!(hung_at(&mut watch, pending(0), 0, 3000), Some(2000));
    let mut now = 2200;
    while watch.look(None, now) {
        now += 200;
    }
    assert_eq!(now, 12_000, "10 us after the last look that found it hanging");
    // A slow operation in between restarts the healthy time, although it is not a hang.
    let mut watch = HangWatch::new(TIMES);
    assert!(hung_at(&mut watch, pending(0), 0, 3000).is_some());
    for now in (2200..8000).step_by(200) {
        assert!(watch.look(None, now));
    }
    (8000..=8600).step_by(200).for_each(|now| assert!(watch.look(pending(7900), now)));
    assert!(watch.look(None, 12_200) && !watch.look(None, 18_600));
}

fn led(region: RegionId, heirs: &[(StoreId, bool)], can_elect: bool) -> Led {
    let heir = |&(store, is_up_to_date): &(StoreId, bool)| Heir { store, lag: 0, is_up_to_date };
    Led { region, heirs: heirs.iter().map(heir).collect(), can_elect }
}

#[test]
fn leads_are_offered_once_and_given_up_when_they_are_not_taken() {
    let mut relief = HangRelief::default();
    let led = [led(1, &[(1, true), (2, true)], true), led(2, &[(1, true), (2, true)], true)];
    let step = relief.step(&led, 1000, 50);
    assert_eq!((step.transfers, step.step_downs), (vec![(1, 1), (2, 2)], vec![]));
    assert_eq!(relief.step(&led, 1000, 1000), ReliefStep::default());
    let step = relief.step(&led[..1], 1000, 1050);
    assert_eq!((step.transfers, step.step_downs), (vec![], vec![1]), "region 2 was taken over");
}

#[test]
fn a_lead_without_an_up_to_date_voter_is_given_up_and_one_that_nobody_could_win_stays() {
    let mut relief = HangRelief::default();
    let led = [led(1, &[(1, false)], true), led(2, &[(1, true)], false), led(3, &[], false)];
    assert_eq!(relief.step(&led, 1000, 0), ReliefStep::default());
    let step = relief.step(&led, 1000, 5000);
    assert_eq!((step.transfers, step.step_downs), (vec![], vec![1]));
}
