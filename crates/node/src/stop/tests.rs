use super::*;
use crate::hand_over::Heir;

const TIMES: StopTimes = StopTimes {
    told_nanos: 50,
    hand_over_nanos: 5000,
    retry_nanos: 1000,
    quiet_nanos: 300,
    redirect_nanos: 2000,
    close_nanos: 7000,
};

/// A region with heirs as (store, lag, up to date).
fn led(region: RegionId, heirs: &[(StoreId, u64, bool)]) -> Led {
    let heirs = heirs.iter().map(|&(store, lag, is_up_to_date)| Heir { store, lag, is_up_to_date });
    Led { region, heirs: heirs.collect(), can_elect: true }
}

fn with_others(led: Vec<Led>) -> StopView {
    StopView { led, has_others: true, ..StopView::default() }
}

fn step(stop: &mut PlannedStop, view: &StopView, now: BootNanos) -> (StopPhase, Vec<(RegionId, StoreId)>) {
    let StopStep { phase, transfers } = stop.step(view, now);
    (phase, transfers)
}

#[test]
fn leads_are_handed_over_at_once_and_spread_over_voters_that_lack_as_little() {
    let mut stop = PlannedStop::new(TIMES, 0);
    let even = [(1, 0, true), (2, 0, true)];
    let view = with_others(vec![led(0, &even), led(1, &even), led(2, &[(1, 9, true), (2, 3, true)])]);
    assert_eq!(step(&mut stop, &view, 0), (StopPhase::Telling, vec![]));
    assert_eq!(step(&mut stop, &view, 50), (StopPhase::HandingOver, vec![(0, 1), (1, 2), (2, 2)]));
    assert_eq!(step(&mut stop, &view, 70), (StopPhase::HandingOver, vec![]), "they are under way");
}

#[test]
fn a_transfer_that_was_not_taken_up_goes_to_another_voter() {
    let mut stop = PlannedStop::new(TIMES, 0);
    let view = with_others(vec![led(7, &[(1, 0, true), (2, 5, true), (3, 0, false)])]);
    let mut given = Vec::new();
    for now in (50..5000).step_by(50) {
        given.extend(step(&mut stop, &view, now).1);
    }
    assert_eq!(given, [(7, 1), (7, 2), (7, 1), (7, 2), (7, 1)]);
    assert_eq!(step(&mut stop, &view, 5050).0, StopPhase::Redirecting);
    assert_eq!(stop.left().regions, [7], "the report names the region that stays");
}

#[test]
fn a_voter_that_lags_is_waited_for_and_a_region_without_any_other_is_not() {
    let mut stop = PlannedStop::new(TIMES, 0);
    let alone = led(1, &[]);
    let view = with_others(vec![alone.clone(), led(2, &[(5, 2000, false)])]);
    assert_eq!(step(&mut stop, &view, 60), (StopPhase::HandingOver, vec![]));
    let view = with_others(vec![alone.clone(), led(2, &[(5, 10, true)])]);
    assert_eq!(step(&mut stop, &view, 80), (StopPhase::HandingOver, vec![(2, 5)]));
    assert_eq!(step(&mut stop, &with_others(vec![alone]), 100).0, StopPhase::Redirecting);
}

#[test]
fn it_serves_on_until_no_store_sends_commands_and_closes_when_all_are_answered() {
    let mut stop = PlannedStop::new(TIMES, 0);
    let mut view = StopView { connections: 3, ..with_others(Vec::new()) };
    assert_eq!(step(&mut stop, &view, 50).0, StopPhase::Redirecting);
    (view.passed, view.answering) = (4, 1);
    assert_eq!(step(&mut stop, &view, 200).0, StopPhase::Redirecting);
    assert_eq!(step(&mut stop, &view, 600).0, StopPhase::Redirecting, "one is not answered");
    (view.passed, view.answering) = (5, 0);
    assert_eq!(step(&mut stop, &view, 700).0, StopPhase::Redirecting);
    assert_eq!(step(&mut stop, &view, 1000).0, StopPhase::Closing);
    assert_eq!(step(&mut stop, &view, 1200).0, StopPhase::Closing);
    view.connections = 0;
    assert_eq!(step(&mut stop, &view, 1300).0, StopPhase::Done);
    assert_eq!(*stop.left(), Left::default());
}

#[test]
fn a_lone_store_waits_for_its_clients_alone_and_for_them_not_for_ever() {
    let mut stop = PlannedStop::new(TIMES, 0);
    let view = StopView { led: vec![led(0, &[]), led(1, &[])], connections: 1, ..StopView::default() };
    assert_eq!(step(&mut stop, &view, 0), (StopPhase::Closing, vec![]));
    assert_eq!(step(&mut stop, &view, 6999).0, StopPhase::Closing);
    assert_eq!(step(&mut stop, &view, 7000).0, StopPhase::Done);
    assert_eq!(*stop.left(), Left { regions: vec![0, 1], connections: 1, answering: 0 });
}

#[test]
fn a_second_word_ends_the_waiting() {
    let mut stop = PlannedStop::new(TIMES, 0);
    let view = with_others(vec![led(1, &[(2, 0, true)])]);
    assert_eq!(step(&mut stop, &view, 60).0, StopPhase::HandingOver);
    stop.hurry();
    assert_eq!(step(&mut stop, &view, 70), (StopPhase::Done, vec![]));
}
