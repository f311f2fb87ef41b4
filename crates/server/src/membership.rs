//! How a store comes to know the others, and whom it believes: the list of stores on its way between them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{StoreFacts, StoreState};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use types::StoreId;

use crate::admin_backend;
use crate::config::{Config, Member};
use crate::dispatch::{REQUEST_MEMBERS, STATUS_DONE};
use crate::members::{facts_of, AgreedMembers};
use crate::store::Store;
use crate::transport::frame::{Hello, Refusal, RefusalReason};
use crate::transport::handshake::Introduced;
use crate::transport::keyring::Verdict;
use crate::transport::{Remote, NOBODY};

mod refusals;

use refusals::{Consequence, Own, Refusals};

const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// What a store says of itself is said again after this long, if it did not get through.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// Whether another store, which has the key that it says, is believed to be who it says it is.
pub fn admit(store: &Arc<Store>, caller: &Introduced) -> Result<(), Refusal> {
    let Hello { from, cluster_id, key, .. } = caller.hello;
    let refuse = |reason, text: String| Err(Refusal { reason, text });
    let own = store.identity.cluster_id();
    if own != 0 && cluster_id != 0 && cluster_id != own {
        return refuse(RefusalReason::Wrong, format!("store {from} belongs to another cluster"));
    }
    let knows_password = || {
        let password = store.settings.read().requirepass.clone();
        password.is_none_or(|password| caller.knows_password(&password))
    };
    const NO_PASSWORD: &str =
        "it does not know this cluster's password: its requirepass must be that of this store";
    if from == NOBODY {
        return if knows_password() { Ok(()) } else { refuse(RefusalReason::Wrong, NO_PASSWORD.into()) };
    }
    let mut members = store.members();
    if members.record(from).is_none() && take_agreed(store) {
        members = store.members();
    }
    let record = members.record(from);
    if record.is_some_and(|record| record.facts.key.is_some_and(|known| known != key)) {
        return refuse(
            RefusalReason::OtherKey,
            format!(
                "the cluster knows store {from} with another data directory than the one it comes with now: \
                 what that one held, and promised, is not in this one. Remove store {from} from the cluster \
                 and let a store with an empty directory join"
            ),
        );
    }
    if record.is_some_and(|record| record.state == StoreState::Removed) {
        return refuse(RefusalReason::Removed, format!("store {from} was removed from the cluster"));
    }
    if members.member(from).is_none() {
        if own == 0 || cluster_id != own {
            return refuse(RefusalReason::Wrong, format!("store {from} is not known here"));
        }
        // Its joining may have been agreed on before this store heard of it. Until it has, anybody could say so.
        ask_for_newer(store);
        return refuse(RefusalReason::NotYetKnown, format!("store {from} is not known here yet"));
    }
    if !store.identity.keyring.is_agreed(from) && !knows_password() {
        return refuse(RefusalReason::Wrong, NO_PASSWORD.into());
    }
    match store.identity.keyring.meet(from, key) {
        Verdict::Agreed | Verdict::FirstSeen => Ok(()),
        Verdict::NotAgreed | Verdict::NotFirst | Verdict::Unknown => refuse(
            RefusalReason::Wrong,
            format!(
                "another data directory has come as store {from} before, and the cluster has not agreed yet on \
                 which it is. If it was the wrong one, restart the stores that it came to"
            ),
        ),
    }
}

/// Takes over what the meta region's rows here say, if that is news.
fn take_agreed(store: &Arc<Store>) -> bool {
    let agreed = store.cluster.members_after(store.members().agreed.version);
    agreed.map(|agreed| store.take_members(agreed)).is_some()
}

/// Whether a store that was admitted, or asks to join, is still to be listened to.
pub fn is_welcome(store: &Store, from: &Remote) -> bool {
    from.store == NOBODY || store.identity.keyring.has(from.store, from.key)
}

/// Acts on what other stores say when they refuse this one, until the task is dropped.
pub async fn heed_refusals(store: Arc<Store>, mut refused: UnboundedReceiver<(StoreId, Refusal)>) {
    let mut refusals = Refusals::default();
    while let Some((by, refusal)) = refused.recv().await {
        let members = store.members();
        let own = Own {
            is_agreed: members
                .record(store.id)
                .is_some_and(|record| record.facts.key == Some(store.identity.key())),
            others: members.list.iter().filter(|member| member.id != store.id).count(),
        };
        match refusals.hear(by, &refusal, own) {
            Consequence::Nothing => tracing::debug!(by, refusal.text),
            Consequence::Tell => tracing::warn!(by, refusal.text, "no connection to another store"),
            Consequence::Await => {
                tracing::info!(by, refusal.text, "this store ends when more than half say so")
            }
            Consequence::End => store.ends.end(&refusal.text),
            Consequence::Fatal => store.ends.fatal(&refusal.text),
        }
    }
}

/// The heartbeat's part in it: what was agreed is taken in, and what this store says of itself is agreed on.
#[derive(Default)]
pub struct MembershipKeeper {
    announcing: JoinSet<()>,
    announced: Option<tokio::time::Instant>,
}

impl MembershipKeeper {
    pub fn look(&mut self, store: &Arc<Store>) {
        take_agreed(store);
        if let Some(cluster_id) = store.cluster.cluster_id() {
            store.take_cluster_id(cluster_id);
        }
        while self.announcing.try_join_next().is_some() {}
        let lately = self.announced.is_some_and(|at| at.elapsed() < ANNOUNCE_AGAIN);
        if lately || !self.announcing.is_empty() {
            return;
        }
        let members = store.members();
        let facts = facts_of(store.config.this(), Some(store.identity.key()));
        if members.record(store.id).is_some_and(|record| record.facts != facts) {
            self.announced = Some(tokio::time::Instant::now());
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

/// Asks the meta region's leader, or else a store that was heard of lately, for a list that may be newer. Whoever
/// makes this store ask does not make it ask often.
fn ask_for_newer(store: &Arc<Store>) {
    let leader = store.regions.meta().leader();
    let members = store.members();
    let others = members.list.iter().map(|member| member.id);
    let heard = leader.into_iter().chain(others).find(|&id| id != store.id && store.is_heard(id));
    if let Some(from) = heard.filter(|_| store.may_ask_again()) {
        fetch(store, from);
    }
}

/// Asks a store that has said that it has a newer list.
pub fn fetch(store: &Arc<Store>, from: StoreId) {
    if !store.begin_fetch() {
        return;
    }
    let store = store.clone();
    tokio::spawn(async move {
        let asked = store.transport.call(from, REQUEST_MEMBERS, Bytes::new(), FETCH_TIMEOUT).await;
        if let Ok((STATUS_DONE, body)) = asked {
            match serde_json::from_slice::<AgreedMembers>(&body) {
                Ok(agreed) => store.take_members(agreed),
                Err(error) => tracing::warn!(from, %error, "a list of stores cannot be read"),
            }
        }
        store.end_fetch();
    });
}

pub fn answer_members(store: &Store) -> (u8, Bytes) {
    (STATUS_DONE, serde_json::to_vec(&store.members().agreed).expect("plain data").into())
}

/// The store as it is in its own configuration, under the number that its directory has.
pub fn rename(config: &mut Config, store: StoreId) {
    debug_assert!(store != NOBODY);
    let this: Member = Member { id: store, ..config.this().clone() };
    config.store = store;
    config.members = vec![this];
}

#[cfg(test)]
mod tests;
