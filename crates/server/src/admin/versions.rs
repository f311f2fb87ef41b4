//! `ctl versions`: the cluster versions that the stores support, and the reason why the version
//! does not rise yet.

use std::sync::Arc;

use cluster::admin::{StoreVersionsRow, VersionsQuery, VersionsRow};
use cluster::StoreVersions;
use serde_json::Value;
use types::{StoreId, Version, NEWEST_VERSION};

use super::ask::{ask_for, Ask};
use super::operations::{Change, Served};
use crate::admin_error::AdminError;
use crate::store::Store;
use crate::upgrade;

impl Served for VersionsQuery {
    /// Asks the leader of the meta region, on any store.
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<VersionsRow, AdminError> {
        match ask_for(store, Ask::Versions).await {
            // A program that does not support the query refuses it.
            Err(AdminError { status: 400, .. }) => Ok(before_questions(store)),
            answer => answer,
        }
    }
}

/// Returns the versions that this store knows, because the leader's program is older than the
/// query.
fn before_questions(store: &Store) -> VersionsRow {
    let version = store.membership.version.get();
    let leader = store.regions.meta().leader().map_or("its leader".to_owned(), |id| format!("store {id}"));
    let own = StoreVersionsRow { store: store.id, newest: Some(NEWEST_VERSION), prepared: Some(version) };
    let note = format!(
        "Version {NEWEST_VERSION} waits for a newer program on {leader}, which leads the meta region."
    );
    VersionsRow { version, finishes: true, stores: vec![own], note }
}

/// Answers as the leader of the meta region.
pub async fn answer(store: &Store) -> Value {
    upgrade::ask_all(store, None).await;
    let (version, stores) = (store.cluster.version(), store.cluster.versions());
    let finishes = store.cluster.finishes_upgrades();
    let row = |&(store, versions): &(StoreId, Option<StoreVersions>)| StoreVersionsRow {
        store,
        newest: versions.map(|versions| versions.newest),
        prepared: versions.map(|versions| versions.prepared),
    };
    let row = VersionsRow {
        version,
        finishes,
        stores: stores.iter().map(row).collect(),
        note: note(version, finishes, &stores),
    };
    serde_json::to_value(row).expect("plain data")
}

/// Returns the state of the rise to a newer version, as text for display.
fn note(version: Version, finishes: bool, stores: &[(StoreId, Option<StoreVersions>)]) -> String {
    let list = |stores: Vec<StoreId>| {
        let stores: Vec<String> = stores.iter().map(StoreId::to_string).collect();
        match stores.len() {
            1 => format!("store {}", stores[0]),
            _ => format!("stores {}", stores.join(", ")),
        }
    };
    let silent: Vec<StoreId> =
        stores.iter().filter(|(_, versions)| versions.is_none()).map(|(store, _)| *store).collect();
    let newest = stores.iter().filter_map(|(_, versions)| Some((*versions)?.newest)).max();
    let newest = newest.unwrap_or(NEWEST_VERSION);
    let is_old = |versions: &Option<StoreVersions>| versions.is_some_and(|of| of.newest < newest);
    let old: Vec<StoreId> =
        stores.iter().filter(|(_, versions)| is_old(versions)).map(|(store, _)| *store).collect();
    if newest <= version {
        return format!("The cluster has version {version}, the newest that its stores support.");
    }
    if !old.is_empty() {
        return format!(
            "Version {newest} waits for a newer program on {}. Until then every store can go back to its older \
             program.",
            list(old)
        );
    }
    if !silent.is_empty() {
        return format!(
            "Version {newest} waits for {} to answer. Start it, or remove it from the cluster.",
            list(silent)
        );
    }
    match finishes {
        true => format!("All stores support version {newest}, and the cluster rises to it."),
        false => format!(
            "All stores support version {newest}. `ctl config finish-upgrades yes` lets the cluster rise to it; then \
             no store can go back to its older program."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_told_what_a_version_waits_for() {
        let of = |newest| Some(StoreVersions { newest, prepared: 1 });
        let told = |finishes, stores: &[Option<StoreVersions>]| {
            let stores: Vec<_> = (0u64..).zip(stores.iter().copied()).collect();
            note(1, finishes, &stores)
        };
        assert!(told(true, &[of(1), of(1)]).contains("the newest that its stores support"));
        assert!(told(true, &[of(2), of(1), of(1)]).contains("a newer program on stores 1, 2"));
        assert!(told(true, &[of(2), None]).contains("waits for store 1 to answer"));
        assert!(told(true, &[of(2), of(2)]).contains("the cluster rises to it"));
        assert!(told(false, &[of(2), of(3)]).contains("newer program on store 0"));
        assert!(told(false, &[of(2), of(2)]).contains("finish-upgrades yes"));
    }
}
