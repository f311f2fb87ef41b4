//! Encryption at rest in a running store: its state, new keys, and the files that still have old
//! ones.
//!
//! A thread rewrites tables of rows that are plain or have an old key, by compactions of their
//! ranges, at a bounded rate. Segments of the log get the new key when they would be overwritten.
//! RocksDB's other files and the small files get it at the next start. A data key is dropped when
//! no file has it. All of this is found from the files themselves, so a store that is killed at any
//! point goes on after its next start.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrest::{Usage, Vault};
use cluster::admin::{EncryptionQuery, EncryptionRequest, EncryptionRow, KeyRow};
use storage::StorageError;

use crate::admin::{Change, Served};
use crate::admin_error::{refuse, AdminError};
use crate::ends::Ends;
use crate::engine::Engine;
use crate::store::Store;

/// Mean rate at which tables are rewritten. A single compaction is not slowed.
const REWRITE_BYTES_PER_S: u64 = 32 << 20;
/// Interval at which a changed key is noticed.
const LOOK: Duration = Duration::from_secs(1);
/// Time between two searches for files with old keys.
const SEARCH_EVERY: Duration = Duration::from_secs(30);
/// Minimum age of a key before earlier ones are dropped. Files that are being made when the key
/// changes get the earlier one, and appear within this time.
const AGE_MIN: Duration = Duration::from_secs(20);

/// Rewrites tables and drops keys until the store stops. Returns at once if it does not encrypt.
pub fn run(dir: &Path, engine: &Engine, ends: &Ends) {
    let Some(vault) = atrest::vault_of(dir) else { return };
    let (mut settled, mut unused_before) = (None, BTreeSet::new());
    let mut searched: Option<(u32, Instant)> = None;
    let mut changed = (vault.keyring().active().0, Instant::now());
    while !ends.is_stopping() {
        std::thread::sleep(LOOK);
        let active = vault.keyring().active().0;
        if changed.0 != active {
            changed = (active, Instant::now());
            unused_before.clear();
        }
        // Files with earlier keys than a new one are searched for at once.
        let is_early = searched.is_some_and(|(of, when)| of == active && when.elapsed() < SEARCH_EVERY);
        if settled == Some(active) || is_early {
            continue;
        }
        searched = Some((active, Instant::now()));
        let rewritten = rewrite_tables(&vault, engine, ends);
        if changed.1.elapsed() < AGE_MIN {
            continue;
        }
        match rewritten.and_then(|()| drop_old(&vault, active, &mut unused_before)) {
            Ok(true) => {
                tracing::info!(key = active, "all files of the store have the newest data key");
                settled = Some(active);
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(error, "files with old keys stay for now; the search is repeated"),
        }
    }
}

fn rewrite_tables(vault: &Vault, engine: &Engine, ends: &Ends) -> Result<(), String> {
    let text = |error: StorageError| error.to_string();
    let active = vault.keyring().active().0;
    // Compactions of the lowest levels include the tables above them.
    let mut tables = engine.rows().tables().map_err(text)?;
    tables.sort_by_key(|table| std::cmp::Reverse(table.level));
    for table in tables {
        if ends.is_stopping() {
            return Ok(());
        }
        // A table that an earlier compaction removed has no key.
        let key = match atrest::key_of(&table.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            key => key.map_err(|error| error.to_string())?,
        };
        if key == Some(active) {
            continue;
        }
        let written = |engine: &Engine| engine.rows().stats().map(|stats| stats.compaction_write_bytes);
        let before = written(engine).map_err(text)?;
        engine.rows().compact(&table.from, &table.to).map_err(text)?;
        // Tables that overlap this one were rewritten with it.
        let bytes = written(engine).map_err(text)?.saturating_sub(before).max(table.bytes);
        let rest = Duration::from_secs_f64(bytes as f64 / REWRITE_BYTES_PER_S as f64);
        let begun = Instant::now();
        while begun.elapsed() < rest && !ends.is_stopping() {
            std::thread::sleep(LOOK.min(rest));
        }
    }
    Ok(())
}

/// Drops the keys before `active` that no file had at this search and at the previous one. One
/// search is not enough, because it may miss a file that moves meanwhile. Returns true if only
/// `active` is left, and all files have it.
fn drop_old(vault: &Vault, active: u32, unused_before: &mut BTreeSet<u32>) -> Result<bool, String> {
    let used = usage(vault)?;
    let keyring = vault.keyring();
    let is_unused = |number: &u32| *number < active && !used.bytes_of_keys.contains_key(number);
    let unused: BTreeSet<u32> = keyring.numbers().filter(is_unused).collect();
    let dropped: BTreeSet<u32> = unused.intersection(unused_before).copied().collect();
    if !dropped.is_empty() {
        let needed = keyring.numbers().filter(|number| !dropped.contains(number)).collect();
        vault.drop_unused(active, &needed).map_err(|error| error.to_string())?;
    }
    *unused_before = unused;
    let is_left = |number: u32| number < active;
    Ok(used.plain_bytes == 0 && !vault.keyring().numbers().any(is_left))
}

fn usage(vault: &Vault) -> Result<Usage, String> {
    vault.usage().map_err(|error| error.to_string())
}

fn row(store: u64, vault: Option<&Vault>) -> Result<EncryptionRow, AdminError> {
    let Some(vault) = vault else { return Ok(EncryptionRow { store, ..EncryptionRow::default() }) };
    let usage = usage(vault).map_err(|why| refuse(500, why))?;
    let keyring = vault.keyring();
    let bytes = |number| usage.bytes_of_keys.get(&number).copied().unwrap_or(0);
    let keys = keyring.numbers().map(|number| KeyRow { number, bytes: bytes(number) }).collect();
    Ok(EncryptionRow { store, active: Some(keyring.active().0), keys, plain_bytes: usage.plain_bytes })
}

impl Served for EncryptionQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<EncryptionRow, AdminError> {
        let (id, vault) = (store.id, atrest::vault_of(&store.config.dir));
        in_background(move || row(id, vault.as_deref())).await
    }
}

impl Served for EncryptionRequest {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<EncryptionRow, AdminError> {
        let (id, vault) = (store.id, atrest::vault_of(&store.config.dir));
        let vault = vault.ok_or_else(|| refuse(409, "this store does not encrypt its files"))?;
        let change = move || {
            let changed = match self {
                EncryptionRequest::Rotate => vault.rotate(),
                EncryptionRequest::Rewrap => vault.rewrap(),
            };
            changed.map_err(|error| refuse(409, error.to_string()))?;
            row(id, Some(&vault))
        };
        in_background(change).await
    }
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
) -> Result<T, AdminError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(refuse(500, error.to_string())))
}
