//! Executes the orders of the meta region's leader to leaders of regions.
//!
//! An order may be late, repeated, or for a region that this store no longer leads. So it names its
//! epoch, and a store that does not lead the region ignores it.

use bytes::Bytes;
use cluster::Order;
use node::Input;
use types::{RegionChange, RegionEpoch, RegionId, StoreId, Term};

use crate::store::Store;

/// Processes an order of another store.
pub fn receive(store: &Store, from: StoreId, order: &Bytes) {
    let (term, order) = match Order::decode(order) {
        Ok(decoded) => decoded,
        Err(error) => return tracing::warn!(from, %error, "an order cannot be read"),
    };
    let meta = store.regions.meta();
    if !meta.newest().has_peer_on(from) {
        return tracing::warn!(from, %order, "an order came from a store that cannot lead the meta region; it is ignored");
    }
    let known = meta.leadership();
    if is_outdated(term, from, known.term, known.leader) {
        return tracing::debug!(from, term, %order, "an order of a previous leader is ignored");
    }
    carry_out(store, order);
}

/// Returns true if the order is from a previous leader, which may not know later decisions.
fn is_outdated(term: Term, from: StoreId, known_term: Term, known_leader: Option<StoreId>) -> bool {
    term < known_term || term == known_term && known_leader.is_some_and(|leader| leader != from)
}

/// Sends an order to the region's leader: this store or another.
pub fn send(store: &Store, to: StoreId, order: Order, term: Term) {
    tracing::info!(to, %order, "order");
    if to == store.id {
        carry_out(store, order);
    } else {
        store.transport.send_order(to, order.encode(term));
    }
}

fn carry_out(store: &Store, order: Order) {
    let order = match order {
        Order::TransferLeader { region, to } => Input::Raft(replica::Input::TransferLeader { region, to }),
        Order::Change { region, expect, change } => Input::ChangeRegion { region, expect, change },
        Order::Split { region, expect, new_region } => return split(store, region, expect, new_region),
    };
    let _ = store.worker.step(order);
}

/// Finds the slot that divides the region into halves, outside of the I/O threads, and proposes the
/// change.
fn split(store: &Store, region: RegionId, expect: RegionEpoch, new_region: RegionId) {
    let Some(shared) = store.regions.get(region) else { return };
    let Some(slots) = shared.slots().filter(|_| shared.leader() == Some(store.id)) else { return };
    let (engine, worker) = (store.engine.clone(), store.worker.clone());
    tokio::task::spawn_blocking(move || match engine.split_slot(slots) {
        Some(at) => {
            let change = RegionChange::Split { at, new_region };
            let _ = worker.step(Input::ChangeRegion { region, expect, change });
        }
        None => tracing::warn!(region, "a region of one slot cannot be split"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::loops::ToWorker;
    use node::Leadership;

    #[test]
    fn only_the_present_leader_of_the_meta_region_gives_orders() {
        assert!(is_outdated(4, 1, 5, Some(2)));
        assert!(is_outdated(5, 1, 5, Some(2)));
        assert!(!is_outdated(5, 2, 5, Some(2)));
        assert!(!is_outdated(5, 2, 5, None));
        assert!(!is_outdated(6, 1, 5, Some(2)), "its election is not known here yet");
    }

    #[test]
    fn a_store_that_cannot_lead_the_meta_region_gives_no_orders() {
        let fixture = Fixture::new();
        let order = Order::TransferLeader { region: 1, to: 5 };
        receive(&fixture.store, 7, &order.encode(9));
        assert!(fixture.told().next().is_none());
        receive(&fixture.store, 0, &order.encode(9));
        assert!(matches!(
            fixture.told().next(),
            Some(ToWorker::Shard(Input::Raft(replica::Input::TransferLeader { region: 1, to: 5 })))
        ));
    }

    #[tokio::test]
    async fn a_region_is_split_by_its_leader_and_by_nobody_else() {
        let fixture = Fixture::new();
        let expect = RegionEpoch { conf_version: 1, version: 1 };
        let order = Order::Split { region: 1, expect, new_region: 9 };
        receive(&fixture.store, 0, &order.encode(1));
        let led = Leadership { term: 1, leader: Some(fixture.store.id) };
        fixture.store.regions.lead(1, led);
        receive(&fixture.store, 0, &order.encode(1));
        let told = loop {
            match fixture.told().next() {
                Some(told) => break told,
                None => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
            }
        };
        let ToWorker::Shard(Input::ChangeRegion { region: 1, change, .. }) = told else {
            panic!("another message")
        };
        // No data is stored, so the slots are halved.
        assert_eq!(change, RegionChange::Split { at: 8192, new_region: 9 });
        assert!(fixture.told().next().is_none());
    }
}
