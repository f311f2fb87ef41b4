//! The wait for other stores after a change of what the whole cluster has.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use types::StoreId;

use crate::store::Store;

/// Time for which a change waits for the other stores that are up.
pub const OTHERS_PATIENCE: Duration = Duration::from_secs(1);

/// Waits until `has` has answered for the other stores that are up, for a limited time.
pub async fn await_others<F>(store: &Arc<Store>, has: impl Fn(Arc<Store>, StoreId) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for member in &store.membership.members().list {
        if member.id != store.id && store.cluster.is_heard(member.id) {
            asked.spawn(has(store.clone(), member.id));
        }
    }
    let all = async { while asked.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(OTHERS_PATIENCE, all).await;
}
