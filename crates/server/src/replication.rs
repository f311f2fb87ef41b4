//! The way in which this store's leaders send entries: `replication`, a setting of the cluster.
//!
//! The consensus code learns it a moment after the store has received it. Leaders may use different
//! ways at the same time.

use std::sync::Arc;
use std::time::Duration;

use cluster::AgreedSettings;
use replica::{Input, Replication};
use types::THIRD_VERSION;

use crate::store::Store;

/// Interval at which a change of the agreed settings is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Runs until the task is dropped.
pub async fn run(store: Arc<Store>) {
    let mut replication = Replication::Direct;
    loop {
        let agreed = replication_of(&store.membership.agreed_settings());
        if agreed != replication {
            replication = agreed;
            tracing::info!("{}", describe(replication));
            let _ = store.worker.raft(Input::SetReplication(replication));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the agreed way. A store of an earlier version does not pass appends on.
fn replication_of(agreed: &AgreedSettings) -> Replication {
    match agreed.replication {
        cluster::Replication::Chained if agreed.cluster_version >= THIRD_VERSION => Replication::Chained,
        _ => Replication::Direct,
    }
}

fn describe(replication: Replication) -> &'static str {
    match replication {
        Replication::Direct => "replication: leaders send each entry to every follower",
        Replication::Chained => "replication: leaders send each entry to one follower, which passes it on",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::loops::ToWorker;

    #[tokio::test]
    async fn the_agreed_way_reaches_the_worker() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let mut members = store.membership.members().agreed.clone();
        members.version += 1;
        members.settings.replication = cluster::Replication::Chained;
        members.settings.cluster_version = THIRD_VERSION;
        store.membership.take_members(members);
        let running = tokio::spawn(run(store.clone()));
        let told = loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(told) = fixture.told().next() {
                break told;
            }
        };
        running.abort();
        let is_chained =
            matches!(told, ToWorker::Shard(node::Input::Raft(Input::SetReplication(Replication::Chained))));
        assert!(is_chained);
    }

    #[test]
    fn stores_of_an_earlier_version_are_sent_no_relayed_appends() {
        let of = |cluster_version| {
            let replication = cluster::Replication::Chained;
            replication_of(&AgreedSettings { cluster_version, replication, ..AgreedSettings::default() })
        };
        assert_eq!(of(THIRD_VERSION - 1), Replication::Direct);
        assert_eq!(of(THIRD_VERSION), Replication::Chained);
        assert_eq!(replication_of(&AgreedSettings::default()), Replication::Direct);
    }
}
