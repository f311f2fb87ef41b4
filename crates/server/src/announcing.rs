//! What this store says of itself, on its way into the list of stores. The heartbeat has it looked after.

use std::sync::Arc;
use std::time::Duration;

use cluster::StoreFacts;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admin_backend;
use crate::config::facts_of;
use crate::store::Store;

/// What a store says of itself is said again after this long, if it did not get through.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// What was agreed is taken in, and what this store says of itself is agreed on.
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
    match admin_backend::set_facts(&store, facts).await {
        Ok(()) => tracing::info!("the cluster knows where this store is"),
        // The cluster knows this number with another disk, or not any more.
        Err(error) if error.status == 409 => store.ends.fatal(&error.message),
        Err(error) => tracing::debug!(error.message, "the cluster did not hear where this store is"),
    }
}
