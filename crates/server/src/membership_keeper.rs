//! Announces this store's facts until the list of stores has them. The heartbeat's task drives
//! this.

use std::sync::Arc;
use std::time::Duration;

use cluster::StoreFacts;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admin;
use crate::config::facts_of;
use crate::store::Store;

/// Time after which a failed announcement is repeated.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// Applies the agreed list of stores, and announces this store's facts until the list has them.
#[derive(Default)]
pub struct MembershipKeeper {
    announcing: JoinSet<()>,
    announced: Option<Instant>,
}

impl MembershipKeeper {
    pub fn look(&mut self, store: &Arc<Store>) {
        let membership = &store.membership;
        membership.take_what_is_here();
        while self.announcing.try_join_next().is_some() {}
        let lately = self.announced.is_some_and(|at| at.elapsed() < ANNOUNCE_AGAIN);
        if lately || !self.announcing.is_empty() {
            return;
        }
        let members = membership.members();
        let facts = facts_of(store.config.this(), Some(membership.identity.key()));
        if members.record(store.id).is_some_and(|record| record.facts != facts) {
            self.announced = Some(Instant::now());
            self.announcing.spawn(announce(store.clone(), facts));
        }
    }
}

async fn announce(store: Arc<Store>, facts: StoreFacts) {
    match admin::set_facts(&store, facts).await {
        Ok(()) => tracing::info!("the cluster knows this store's addresses"),
        // The cluster has registered this number with another disk, or has removed the store.
        Err(error) if error.status == 409 => store.ends.fatal(&error.message),
        Err(error) => tracing::debug!(error.message, "the cluster could not be told this store's addresses"),
    }
}
