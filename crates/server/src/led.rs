//! The regions that this store leads, as `node::hand_over` views them when leadership must move.

use node::hand_over::Led;

use crate::store::Store;

/// Returns the views of all regions that the store leads.
pub(crate) fn led(store: &Store) -> Vec<Led> {
    let takes_leads = |other| store.cluster.takes_on(other);
    let mut led = Vec::new();
    for region in store.regions.all().iter().filter(|region| store.regions.leads(region)) {
        let quarantined = store.cluster.quarantined_on(region.id());
        let is_quarantined = |other| quarantined.contains(&other);
        led.push(match region.status() {
            Some(status) => Led::of(&status, store.id, takes_leads, is_quarantined),
            // This store has just become the region's leader.
            None => Led::unseen(&region.descriptor(), store.id, takes_leads, is_quarantined),
        });
    }
    led
}
