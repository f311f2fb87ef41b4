//! `CONFIG GET` and `CONFIG SET` of Redis's thresholds of collections, which are settings of the
//! cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cluster::{AuditedChange, SettingError};
use resp::Reply;
use types::{threshold_name, Thresholds, THIRD_VERSION, THRESHOLDS};

use super::admin_commands::failed;
use super::audit::NotChanged;
use super::other_stores::await_others;
use crate::admin;
use crate::store::Store;

/// Returns all names, old ones included, with the values that the cluster has agreed on.
pub fn all(store: &Store) -> Vec<(&'static str, String)> {
    let thresholds = store.engine.thresholds();
    let values = THRESHOLDS.iter().flat_map(|threshold| {
        let value = thresholds.get(threshold.name).unwrap_or_default().to_string();
        [Some(threshold.name), threshold.alias].into_iter().flatten().map(move |name| (name, value.clone()))
    });
    values.collect()
}

/// Returns all names, old ones included.
pub fn names() -> impl Iterator<Item = &'static str> {
    THRESHOLDS.iter().flat_map(|threshold| [Some(threshold.name), threshold.alias].into_iter().flatten())
}

/// Thresholds by name with their values, and the arguments that name other settings.
type Separate = (BTreeMap<String, String>, Vec<Bytes>);

/// Separates thresholds from the other settings of `CONFIG SET`, and checks them.
pub fn separate(pairs: &[Bytes]) -> Result<Separate, Reply> {
    let (mut values, mut others): Separate = Default::default();
    for (at, pair) in pairs.chunks(2).enumerate() {
        let [given, value] = pair else { continue };
        let Some(name) = threshold_name(&String::from_utf8_lossy(given)) else {
            others.extend_from_slice(pair);
            continue;
        };
        if pairs.chunks(2).take(at).any(|other| other[0].eq_ignore_ascii_case(given)) {
            return Err(failed(given, "duplicate parameter"));
        }
        let value = String::from_utf8_lossy(value).into_owned();
        Thresholds::default().set(name, &value).map_err(|why| failed(given, why))?;
        // As in Redis, the last one of a name and its old name counts.
        values.insert(name.to_owned(), value);
    }
    Ok((values, others))
}

/// Changes thresholds, and returns once this store has the change, and those of the others that are
/// up, if they are not slow.
pub async fn set(
    store: &Arc<Store>,
    audit: Option<&AuditedChange>,
    values: BTreeMap<String, String>,
) -> Result<Reply, NotChanged> {
    let version = store.membership.agreed_settings().cluster_version;
    if let (true, Some(name)) = (version < THIRD_VERSION, values.keys().next()) {
        // A leader of an earlier version would not know the question.
        let error = SettingError::NeedsVersion { what: name.clone(), version };
        return Err(Reply::error(format!("ERR {error}")).into());
    }
    let asked = admin::set_thresholds(store, audit.cloned(), values).await;
    let list = asked.map_err(NotChanged::by_cluster)?;
    let version = list.version;
    store.membership.take_members(list);
    let has = move |store: Arc<Store>, to| async move {
        admin::has_members(&store, to, version).await;
    };
    await_others(store, has).await;
    Ok(Reply::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<Bytes> {
        words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    #[test]
    fn thresholds_are_separated_from_the_settings_of_this_store() {
        let pairs =
            ["timeout", "5", "HASH-max-ziplist-value", "1kb", "nosuch", "x", "hash-max-listpack-value", "7"];
        let (values, others) = separate(&words(&pairs)).unwrap();
        assert_eq!(values, BTreeMap::from([("hash-max-listpack-value".to_owned(), "7".to_owned())]));
        assert_eq!(others, words(&["timeout", "5", "nosuch", "x"]));
        let error = |pairs: &[&str]| match separate(&words(pairs)) {
            Err(Reply::Error(error)) => error.into_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            error(&["set-max-intset-entries", "3", "SET-MAX-INTSET-ENTRIES", "4"]),
            "ERR CONFIG SET failed (possibly related to argument 'SET-MAX-INTSET-ENTRIES') - duplicate parameter"
        );
        assert_eq!(
            error(&["hash-max-ziplist-entries", "-1"]),
            "ERR CONFIG SET failed (possibly related to argument 'hash-max-ziplist-entries') - argument must \
             be between 0 and 9223372036854775807 inclusive"
        );
    }
}
