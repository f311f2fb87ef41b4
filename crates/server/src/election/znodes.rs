//! The paths of the znodes, and the texts for people.
//!
//! ```text
//! ROOT/CLUSTER/stores/ID     ephemeral: address, incarnation, each peer's epoch and LSN
//! ROOT/CLUSTER/leaders/ID    ephemeral: the regions that the store leads
//! ROOT/CLUSTER/seeking/ID    ephemeral, while peers seek a leader: their epochs and LSNs
//! ```
//!
//! A znode for each store, not for each region: a thousand regions cost one write when something
//! changes. The leader table is the union of `leaders`: each store writes its part itself, and it
//! vanishes with the store's session, like the leader's file of PaxStore §4.1.2. Only `seeking`
//! decides about candidates. It is read only by stores whose own peers seek a leader, and only for
//! the stores of these peers' regions, so that no store is woken for an election in which it has no
//! part.

use node::coordinator::{leads_text, store_text, Lead, Place};
use types::StoreId;

use crate::store::Store;

pub const DIRECTORIES: [&str; 3] = [STORES, LEADERS, SEEKING];
pub const STORES: &str = "stores";
pub const LEADERS: &str = "leaders";
pub const SEEKING: &str = "seeking";

/// The directory of a cluster.
pub struct Paths {
    root: String,
    store: StoreId,
}

impl Paths {
    pub fn new(root: &str, cluster_id: u64, store: StoreId) -> Paths {
        Paths { root: format!("{root}/{cluster_id:016x}"), store }
    }

    pub fn directory(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }

    pub fn own(&self, directory: &str) -> String {
        self.of(directory, self.store)
    }

    pub fn of(&self, directory: &str, store: StoreId) -> String {
        format!("{}/{directory}/{store}", self.root)
    }
}

/// Returns the text of this store's znode. The LSN of a region that the store follows is the index
/// that it has applied.
pub fn own_store(store: &Store) -> String {
    let regions = store.regions.all();
    let places: Vec<Place> = regions
        .iter()
        .filter(|region| region.is_local())
        .map(|region| {
            let leadership = region.leadership();
            let leads = leadership.leader == Some(store.id);
            let last = region.status().filter(|_| leads).map(|status| status.last);
            let lsn = last.unwrap_or_else(|| region.applied());
            Place { region: region.id(), epoch: leadership.term, lsn, leads }
        })
        .collect();
    let this = store.config.this();
    let head = [("address", this.client.to_string()), ("admin", this.admin.to_string())];
    store_text(&head, &places)
}

/// Returns the text of this store's part of the leader table.
pub fn own_leads(store: &Store) -> String {
    let regions = store.regions.all();
    let led = regions.iter().filter(|region| store.regions.leads(region));
    let leads: Vec<Lead> =
        led.map(|region| Lead { region: region.id(), epoch: region.leadership().term }).collect();
    leads_text(&store.config.this().client.to_string(), &leads)
}
