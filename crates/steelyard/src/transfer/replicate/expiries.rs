//! The true expiry times, which are written at the end of an import.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::bail;
use bytes::Bytes;
use client::connection::Connection;
use resp::Reply;
use tokio::sync::{mpsc, Mutex as AsyncMutex};
use tokio::task::JoinSet;

use super::super::live::{all, next_batch, walk, Batches};
use super::super::place::{Place, Tracker};
use super::super::report::{shown, Progress};
use super::super::server::{select, ServerUrl};
use super::super::source::Source;
use super::commands::true_time;

/// Walks over all keys of the target and writes the true times of those whose times are held back.
/// Returns the number of these. A second walk does no harm.
///
/// A time is read and written by two commands, so no client of the target may change expiry times
/// meanwhile.
pub async fn release(target: &ServerUrl, connections: usize) -> anyhow::Result<u64> {
    let mut source = Source::connect(target).await?;
    let databases = source.databases().await?;
    let place = Place::default();
    let tracker = Arc::new(Mutex::new(Tracker::new(None, place.clone(), Progress::new())));
    let (sender, receiver) = mpsc::channel(2 * connections);
    let batches: Batches = Arc::new(AsyncMutex::new(receiver));
    let released = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..connections {
        let connection = target.connect().await?;
        workers.spawn(work(connection, batches.clone(), tracker.clone(), released.clone()));
    }
    drop(batches);
    tokio::try_join!(walk(&mut source, &databases, &place, &tracker, sender), all(workers))?;
    Ok(released.load(Ordering::Relaxed))
}

async fn work(
    mut connection: Connection,
    batches: Batches,
    tracker: Arc<Mutex<Tracker>>,
    released: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut database = 0;
    while let Some(batch) = next_batch(&batches).await {
        if batch.database != database {
            select(&mut connection, batch.database).await?;
            database = batch.database;
        }
        let count = release_keys(&mut connection, &batch.keys).await?;
        released.fetch_add(count, Ordering::Relaxed);
        tracker.lock().expect("nothing panics under this lock").end(batch.unit)?;
    }
    Ok(())
}

async fn release_keys(connection: &mut Connection, keys: &[Bytes]) -> anyhow::Result<u64> {
    for key in keys {
        connection.queue(&[&b"PEXPIRETIME"[..], key]);
    }
    connection.flush().await?;
    let mut held = Vec::new();
    for key in keys {
        match connection.reply().await? {
            Reply::Int(at) => {
                let at = u64::try_from(at).ok().and_then(true_time);
                held.extend(at.map(|at| (key, at)));
            }
            Reply::Error(text) => bail!("PEXPIRETIME {}: {text}", shown(key)),
            other => bail!("an answer to PEXPIRETIME that is none: {other:?}"),
        }
    }
    for (key, at) in &held {
        connection.queue(&[&b"PEXPIREAT"[..], key, at.to_string().as_bytes()]);
    }
    connection.flush().await?;
    for (key, _) in &held {
        if let Reply::Error(text) = connection.reply().await? {
            bail!("PEXPIREAT {}: {text}", shown(key));
        }
    }
    Ok(held.len() as u64)
}
