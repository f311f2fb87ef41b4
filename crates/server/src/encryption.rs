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
use crate::metrics::Metrics;
use crate::store::Store;

/// Mean rate at which tables are rewritten. A single compaction is not slowed.
const REWRITE_BYTES_PER_S: u64 = 32 << 20;

#[derive(Clone, Copy)]
struct Pace {
    /// Interval at which a changed key is noticed.
    look: Duration,
    /// Time between two searches for files with old keys.
    search_every: Duration,
    /// Minimum age of a key before earlier ones are dropped. Files that are being made when the
    /// key changes get the earlier one, and appear within this time.
    age_min: Duration,
}

const PACE: Pace = Pace {
    look: Duration::from_secs(1),
    search_every: Duration::from_secs(30),
    age_min: Duration::from_secs(20),
};

/// Rewrites tables and drops keys until the store stops. Returns at once if it does not encrypt.
pub fn run(dir: &Path, engine: &Engine, ends: &Ends, metrics: &Metrics) {
    run_at(PACE, dir, engine, ends, metrics);
}

fn run_at(pace: Pace, dir: &Path, engine: &Engine, ends: &Ends, metrics: &Metrics) {
    let Some(vault) = atrest::vault_of(dir) else { return };
    let (mut settled, mut unused_before) = (None, BTreeSet::new());
    let mut searched: Option<(u32, Instant)> = None;
    let mut changed = (vault.keyring().active().0, Instant::now());
    while !ends.is_stopping() {
        std::thread::sleep(pace.look);
        let active = vault.keyring().active().0;
        metrics.data_key.set(i64::from(active));
        if changed.0 != active {
            changed = (active, Instant::now());
            unused_before.clear();
        }
        // Files with earlier keys than a new one are searched for at once.
        let is_early = searched.is_some_and(|(of, when)| of == active && when.elapsed() < pace.search_every);
        if settled == Some(active) || is_early {
            continue;
        }
        searched = Some((active, Instant::now()));
        let show = || {
            let used = usage(&vault)?;
            let left = i64::try_from(used.outdated_bytes(active)).unwrap_or(i64::MAX);
            metrics.outdated_bytes.set(left);
            Ok::<_, String>(used)
        };
        let rewritten = show().and_then(|_| rewrite_tables(pace, &vault, engine, ends, &|| show().map(drop)));
        // The age at which the search below begins.
        let is_old_enough = changed.1.elapsed() >= pace.age_min;
        let found = rewritten.and_then(|()| show());
        if !is_old_enough {
            continue;
        }
        match found.and_then(|used| drop_old(&vault, &used, active, &mut unused_before)) {
            Ok(true) => {
                tracing::info!(key = active, "all files of the store have the newest data key");
                settled = Some(active);
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(error, "files with old keys stay for now; the search is repeated"),
        }
    }
}

/// Rewrites the tables that are plain or have an earlier key. Calls `show` from time to time.
fn rewrite_tables(
    pace: Pace,
    vault: &Vault,
    engine: &Engine,
    ends: &Ends,
    show: &dyn Fn() -> Result<(), String>,
) -> Result<(), String> {
    let text = |error: StorageError| error.to_string();
    let active = vault.keyring().active().0;
    // Compactions of the lowest levels include the tables above them.
    let mut tables = engine.rows().tables().map_err(text)?;
    tables.sort_by_key(|table| std::cmp::Reverse(table.level));
    let mut shown = Instant::now();
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
            std::thread::sleep(pace.look.min(rest));
        }
        if shown.elapsed() >= pace.search_every {
            show()?;
            shown = Instant::now();
        }
    }
    Ok(())
}

/// Drops the keys before `active` that no file had at this search and at the previous one. One
/// search is not enough, because it may miss a file that moves meanwhile. Returns true if only
/// `active` is left, and all files have it.
fn drop_old(
    vault: &Vault,
    used: &Usage,
    active: u32,
    unused_before: &mut BTreeSet<u32>,
) -> Result<bool, String> {
    let keyring = vault.keyring();
    let is_unused = |number: &u32| *number < active && !used.bytes_of_keys.contains_key(number);
    let unused: BTreeSet<u32> = keyring.numbers().filter(is_unused).collect();
    let dropped: BTreeSet<u32> = unused.intersection(unused_before).copied().collect();
    if !dropped.is_empty() {
        vault.drop_keys(&dropped).map_err(|error| error.to_string())?;
    }
    *unused_before = unused;
    Ok(used.outdated_bytes(active) == 0 && vault.keyring().numbers().all(|number| number >= active))
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use atrest::{Settings, Source};
    use rocks::{Keyspace, Options};
    use storage::WriteSet;

    use super::*;
    use crate::tuning::Tuning;

    const FAST: Pace = Pace {
        look: Duration::from_millis(5),
        search_every: Duration::from_millis(20),
        age_min: Duration::from_millis(40),
    };

    fn open(dir: &Path) -> Engine {
        let rows = Keyspace::open(&dir.join("rows"), &Options::profile("default").unwrap()).unwrap();
        Engine::new(rows, Tuning::default())
    }

    fn write(engine: &Engine, text: &str) {
        let row = |number: u32| (format!("d{text}{number:04}").into(), Some(text.repeat(100).into()));
        engine.rows().write(WriteSet { rows: (0..500).map(row).collect(), ..WriteSet::default() });
        engine.rows().flush().unwrap();
    }

    /// Runs the thread until `done`, and returns the metrics.
    fn run_until(dir: &Path, engine: &Engine, done: impl Fn(&Metrics) -> bool) -> Metrics {
        let (ends, metrics) = (Ends::new(0, dir.to_owned()), Metrics::new());
        std::thread::scope(|scope| {
            scope.spawn(|| run_at(FAST, dir, engine, &ends, &metrics));
            let begun = Instant::now();
            while !done(&metrics) && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(FAST.look);
            }
            ends.stop();
        });
        assert!(done(&metrics), "not within a minute");
        metrics
    }

    #[test]
    fn old_keys_are_dropped_when_no_file_has_them_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let (master, store) = (dir.path().join("master"), dir.path().join("store"));
        fs::write(&master, "a".repeat(64)).unwrap();
        fs::set_permissions(&master, fs::Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(&store).unwrap();
        let vault = atrest::open(&store, Some(&Settings { key: Source::File(master), old_key: None }));
        let vault = vault.unwrap().expect("keys");
        let numbers = || vault.keyring().numbers().collect::<Vec<_>>();
        let small = store.join("SMALL");
        atrest::write(&small, "small").unwrap();
        let engine = open(&store);
        write(&engine, "first");

        vault.rotate().unwrap();
        write(&engine, "second");
        let tables = || engine.rows().tables().unwrap();
        // A table may be gone: another one replaces it.
        let key = |table: &rocks::Table| atrest::key_of(&table.path).ok().flatten();
        assert!(tables().iter().any(|table| key(table) == Some(1)));
        let only_new = || tables().iter().all(|table| key(table) == Some(2));
        // The manifest and the small file keep the first key, so it stays.
        let waits = run_until(&store, &engine, |metrics| only_new() && metrics.outdated_bytes.get() > 0);
        assert_eq!((waits.data_key.get(), numbers()), (2, vec![1, 2]));
        drop(engine);

        // RocksDB's other files get the second key at a start.
        atrest::reseal_rows(&vault, &store.join("rows")).unwrap();
        let engine = open(&store);
        let is_dropped = |_: &Metrics| numbers() == [2];
        let begun = Instant::now();
        run_until(&store, &engine, |_| begun.elapsed() > FAST.age_min * 5);
        assert!(!is_dropped(&waits), "the small file needs the first key");
        atrest::reseal(&vault, &["SMALL"]).unwrap();
        let metrics = run_until(&store, &engine, is_dropped);
        assert_eq!((metrics.data_key.get(), metrics.outdated_bytes.get()), (2, 0));
        assert_eq!(atrest::read(&small).unwrap(), b"small");
        for text in ["first", "second"] {
            let value = engine.rows().get(format!("d{text}0499").as_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(text.repeat(100).as_bytes()));
        }
    }
}
