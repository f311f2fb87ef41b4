//! Gets the libraries of functions that this store lacks, and stores them.

use std::sync::Arc;
use std::time::Duration;

use crate::admin;
use crate::store::Store;

/// Pause after a failed attempt to get newer libraries.
const AGAIN: Duration = Duration::from_millis(100);

/// Gets newer libraries whenever the store hears of some, until the task is dropped.
pub async fn run(store: Arc<Store>) {
    loop {
        let Some(version) = store.functions.lacks() else {
            store.functions.news().await;
            continue;
        };
        let known = store.functions.known();
        let sinces = known.by_name.iter().map(|(name, library)| (name.clone(), library.since)).collect();
        let here = store.cluster.libraries(&sinces);
        let agreed = match here.version >= version {
            true => Ok(here),
            false => admin::libraries(&store, sinces).await,
        };
        match agreed {
            Ok(agreed) if agreed.version >= version && store.functions.take(&agreed) => {
                let of_task = store.clone();
                // A store that cannot write them gets them again after its next start.
                let _ = tokio::task::spawn_blocking(move || of_task.functions.keep()).await;
            }
            // The leader may not have heard of the version yet.
            Ok(_) => tokio::time::sleep(AGAIN).await,
            Err(error) => {
                tracing::debug!(error = error.message, "the libraries of functions cannot be had yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
