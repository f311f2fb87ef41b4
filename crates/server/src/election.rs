//! Elections whose candidates ZooKeeper chooses: the peers here that seek a leader, this store's
//! session, and the choice, which `node::coordinator` makes.
//!
//! ```text
//!  worker ── seekers ──▶ choice ── wanted ──▶ session ──▶ ZooKeeper
//!     ▲                   │  ▲                   │
//!     └── Stand, ended ───┘  └────── news ───────┘
//! ```
//!
//! The session is kept whenever an ensemble is configured, also while elections do without it. So
//! an operator can change to it at any time, and sees the stores' znodes before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::{AgreedSettings, Election};
use node::coordinator::{Coordinator, Positions};
use replica::{Elections, Input};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use types::StoreId;

use crate::clock;
use crate::config::ELECTION_TICKS;
use crate::store::Store;

mod dial;
mod session;
mod znodes;

const NEWS_MAX: usize = 1024;
/// Interval at which a change of the agreed settings is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// The content that the session keeps in ZooKeeper, and the stores whose content it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    positions: Positions,
    watched: BTreeSet<StoreId>,
}

/// A message of the session.
#[derive(Debug)]
enum SessionEvent {
    /// The session is connected, or not.
    Connected(bool),
    /// The positions that a store publishes.
    Positions(StoreId, Option<Positions>),
    /// The session of a store has ended: its znode is gone.
    Ended(StoreId),
}

/// Runs until the task is dropped.
pub async fn run(store: Arc<Store>) {
    let tick = store.config.raft_tick;
    let nanos = |ticks: u32| (tick * ticks).as_nanos() as u64;
    let mut coordinator = Coordinator::new(store.id, nanos(ELECTION_TICKS), nanos(2));
    let (wanted, published) = watch::channel(Wanted::default());
    let (tell, mut news) = mpsc::channel(NEWS_MAX);
    // Dropping the set ends the session's task.
    let mut tasks = JoinSet::new();
    if let Some(ensemble) = store.config.zookeeper.clone() {
        tasks.spawn(session::run(store.clone(), ensemble, published.clone(), tell.clone()));
    }
    let mut elections = Elections::ByTimeout;
    loop {
        let period = if coordinator.positions().is_empty() { LOOK } else { tick };
        tokio::select! {
            () = store.seekers.reported() => {}
            () = tokio::time::sleep(period) => {}
            Some(ended) = tasks.join_next() => {
                // It runs until the process ends, so it has panicked.
                tracing::error!(?ended, "the ZooKeeper session task has ended unexpectedly and is restarted");
                store.seekers.set_session(false);
                coordinator.set_session(false);
                tokio::time::sleep(LOOK).await;
                if let Some(ensemble) = store.config.zookeeper.clone() {
                    tasks.spawn(session::run(store.clone(), ensemble, published.clone(), tell.clone()));
                }
            }
            Some(message) = news.recv() => hear(&store, &mut coordinator, message, elections),
        }
        while let Ok(message) = news.try_recv() {
            hear(&store, &mut coordinator, message, elections);
        }
        let agreed = elections_of(&store.membership.members().agreed.settings);
        if agreed != elections {
            elections = agreed;
            tracing::info!("{}", describe(elections, store.config.zookeeper.is_some()));
            let _ = store.worker.raft(Input::SetElections(elections));
        }
        let now = clock::boot_nanos();
        for (region, seeker) in store.seekers.take() {
            coordinator.seek(region, seeker, now);
        }
        let wants = Wanted { positions: coordinator.positions(), watched: coordinator.watched() };
        wanted.send_if_modified(|known| {
            let has_changed = *known != wants;
            *known = wants;
            has_changed
        });
        for region in coordinator.candidates(now) {
            tracing::debug!(region, "this store's peer is chosen to campaign");
            store.metrics.elections_stood.inc();
            let _ = store.worker.raft(Input::Stand { region });
        }
    }
}

fn hear(store: &Store, coordinator: &mut Coordinator, news: SessionEvent, elections: Elections) {
    match news {
        SessionEvent::Connected(is_connected) => coordinator.set_session(is_connected),
        SessionEvent::Positions(from, positions) => coordinator.hear(from, positions),
        SessionEvent::Ended(of) => {
            coordinator.hear(of, None);
            if elections != Elections::ByTimeout {
                let _ = store.worker.raft(Input::SessionEnded { store: of });
            }
        }
    }
}

fn elections_of(agreed: &AgreedSettings) -> Elections {
    match agreed.election {
        Election::Raft => Elections::ByTimeout,
        Election::Zookeeper => Elections::ByCoordinator {
            fallback_nanos: agreed.election_fallback_ms.map(|ms| ms.saturating_mul(1_000_000)),
        },
    }
}

fn describe(elections: Elections, has_ensemble: bool) -> &'static str {
    match (elections, has_ensemble) {
        (Elections::ByTimeout, _) => "elections: peers without a leader campaign after a random timeout",
        (Elections::ByCoordinator { .. }, true) => "elections: ZooKeeper's znodes decide who campaigns",
        (Elections::ByCoordinator { .. }, false) => {
            "elections: ZooKeeper's znodes decide who campaigns, but this store has no `zookeeper` configured: its \
             peers campaign only after election-fallback"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::loops::ToWorker;

    #[tokio::test]
    async fn the_agreed_way_of_elections_reaches_the_worker() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let mut members = store.membership.members().agreed.clone();
        members.version += 1;
        members.settings.election = Election::Zookeeper;
        members.settings.election_fallback_ms = Some(3000);
        store.membership.take_members(members);
        let running = tokio::spawn(run(store.clone()));
        let told = loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(told) = fixture.told().next() {
                break told;
            }
        };
        running.abort();
        let by_coordinator = Elections::ByCoordinator { fallback_nanos: Some(3_000_000_000) };
        assert!(matches!(
            told,
            ToWorker::Shard(node::Input::Raft(Input::SetElections(elections))) if elections == by_coordinator
        ));
    }
}
