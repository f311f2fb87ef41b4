//! This store's turn to measure its device: its state for heartbeats, and the wait for a grant.

use std::time::{Duration, Instant};

use cluster::{Turn, TurnGrant, TurnState, Waiting};
use parking_lot::Mutex;

use super::Measurer;
use crate::clock;

/// Interval at which a waiting store checks for a grant. Grants arrive with heartbeats.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

#[derive(Default)]
pub struct OwnTurn(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    /// The number of the last request. Numbers increase, even across restarts.
    last: u64,
    now: Option<(TurnState, Instant)>,
}

impl OwnTurn {
    pub fn told(&self) -> Turn {
        let requests = self.0.lock();
        requests.now.map_or(Turn::default(), |(state, since)| Turn {
            state,
            number: requests.last,
            millis: since.elapsed().as_millis() as u64,
        })
    }

    /// Makes a request. Returns its number.
    fn ask(&self) -> u64 {
        let mut requests = self.0.lock();
        requests.last = clock::unix_millis().max(requests.last + 1);
        requests.now = Some((TurnState::Waits, Instant::now()));
        requests.last
    }

    fn be(&self, state: TurnState) {
        let mut requests = self.0.lock();
        requests.now = (state != TurnState::Idle).then(|| (state, Instant::now()));
    }
}

/// The turn, or a place in the queue for it. Dropping it releases the turn.
pub struct Held(Measurer);

impl Held {
    fn be(&self, state: TurnState) {
        self.0.own.turn.be(state);
        self.0.cluster.report_soon.notify_one();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.be(TurnState::Idle);
    }
}

/// Waits for the turn. Only one call may run at a time, because a second request would replace the
/// first.
pub async fn take(measurer: &Measurer) -> Held {
    let number = measurer.own.turn.ask();
    let held = Held(measurer.clone());
    measurer.cluster.report_soon.notify_one();
    let grant = TurnGrant { store: measurer.config.store, number };
    let mut waiting = Waiting::default();
    // A store that is alone disturbs no other measurement.
    while measurer.membership.members().list.len() > 1 {
        let leader = measurer.regions.meta().leader();
        let is_heard = leader.is_some_and(|leader| measurer.cluster.is_heard(leader));
        let granted = leader.is_some_and(|leader| measurer.cluster.is_granted_by(leader, grant));
        if waiting.may_sit(granted, is_heard, clock::boot_nanos()) {
            break;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
    held.be(TurnState::Sits);
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[tokio::test]
    async fn the_turn_is_told_while_it_is_held_and_every_request_has_a_number_of_its_own() {
        let fixture = Fixture::new();
        let own = &fixture.store.capability.turn;
        assert_eq!(own.told(), Turn::default());
        let mut numbers = Vec::new();
        for _ in 0..3 {
            let held = take(&fixture.store.measurer()).await;
            let Turn { state, number, .. } = own.told();
            assert_eq!(state, TurnState::Sits);
            numbers.push(number);
            drop(held);
            assert_eq!(own.told(), Turn::default());
        }
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }

    #[tokio::test]
    async fn a_store_of_several_waits_for_its_turn_and_gives_up_its_place_when_nobody_waits_any_more() {
        let fixture = Fixture::with(|config| {
            let mut other = config.members[0].clone();
            other.id += 1;
            config.members.push(other);
        });
        let store = &fixture.store;
        let measurer = store.measurer();
        let waited = tokio::time::timeout(Duration::from_millis(200), take(&measurer)).await;
        assert!(waited.is_err(), "the turn was not granted");
        assert_eq!(store.capability.turn.told(), Turn::default());
    }
}
