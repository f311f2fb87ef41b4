//! Copies from a running server.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{bail, ensure, Context};
use bytes::Bytes;
use client::connection::Connection;
use resp::Reply;
use tokio::sync::{mpsc, Mutex as AsyncMutex};
use tokio::task::JoinSet;

use super::fingerprint::Fingerprint;
use super::pieces::{restore_in_pieces, LargeReader, LargeWriter};
use super::place::{Place, Tracker};
use super::report::{shown, Progress};
use super::same_data::refuse_same_data;
use super::server::ServerUrl;
use super::signals::Signals;
use super::source::{Source, Value};
use super::target::{Target, Write};
use super::Options;

/// Number of differing keys that are named.
const NAMED_MAX: usize = 10;
/// Maximum difference of expiry times, if a server tells only the time that is left.
const CLOCK_MS: u64 = 5000;

pub const INTERRUPTED_LATE: &str = "interrupted after the copy, before keys were compared";

/// Keys of one step of a walk.
pub struct Batch {
    pub unit: u64,
    pub database: u64,
    pub keys: Vec<Bytes>,
}

pub type Batches = Arc<AsyncMutex<mpsc::Receiver<Batch>>>;

/// Walks over all databases. Every step becomes a batch.
pub async fn walk(
    source: &mut Source,
    databases: &BTreeMap<u64, u64>,
    from: &Place,
    tracker: &Mutex<Tracker>,
    batches: mpsc::Sender<Batch>,
) -> anyhow::Result<()> {
    let mut unit = 0;
    for &database in databases.keys().filter(|database| **database >= from.database) {
        let mut cursor = if database == from.database { from.cursor } else { 0 };
        loop {
            let (next, keys) = source.scan(database, cursor).await?;
            let after = if next == 0 { (database + 1, 0) } else { (database, next) };
            tracker.lock().expect("nothing panics under this lock").begin(unit, after);
            if batches.send(Batch { unit, database, keys }).await.is_err() {
                // The workers have ended, and their error is reported.
                return Ok(());
            }
            unit += 1;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(())
}

pub async fn next_batch(batches: &Batches) -> Option<Batch> {
    batches.lock().await.recv().await
}

/// Waits for workers. The first error ends all of them.
pub async fn all(mut workers: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

pub async fn import(
    from: &ServerUrl,
    to: &ServerUrl,
    record: Option<&Path>,
    options: &Options,
) -> anyhow::Result<()> {
    let progress = Progress::new();
    let mut source = Source::connect(from).await?;
    refuse_same_data(&mut source, to).await?;
    let mut target = Target::connect(to, progress.clone()).await?;
    let databases = source.databases().await?;
    target.check_databases(databases.keys().copied()).await?;
    let start = Place {
        source: from.to_string(),
        target: to.to_string(),
        identity: source.identity.clone(),
        target_was_empty: Source::connect(to).await?.databases().await?.is_empty(),
        ..Place::default()
    };
    let recorded = record.map(|path| Place::read(path, &start)).transpose()?.flatten();
    if let Some(place) = &recorded {
        eprintln!("continuing in database {} at cursor {}", place.database, place.cursor);
    }
    if recorded.is_none() {
        // After an interruption, the number of keys that are left is not known.
        progress.expect_keys(databases.values().sum());
    }
    let place = recorded.unwrap_or(start);
    progress.begin_with(&place);
    ensure!(
        record.is_none() || !place.identity.is_empty(),
        "the source does not tell its run_id, which --progress needs"
    );
    copy_functions(&mut source, &mut target, &progress).await?;
    let tracker = Arc::new(Mutex::new(Tracker::new(record, place.clone(), progress.clone())));
    let line = progress.show();
    let (sender, receiver) = mpsc::channel(2 * options.connections);
    let batches: Batches = Arc::new(AsyncMutex::new(receiver));
    let mut workers = JoinSet::new();
    for _ in 0..options.connections {
        let worker = Worker {
            source: Source::connect(from).await?,
            target: Target::connect(to, progress.clone()).await?,
            progress: progress.clone(),
            tracker: tracker.clone(),
            large: options.large,
        };
        workers.spawn(worker.run(batches.clone()));
    }
    drop(batches);
    let walking = walk(&mut source, &databases, &place, &tracker, sender);
    let mut signals = Signals::new()?;
    let result = tokio::select! {
        result = async { tokio::try_join!(walking, all(workers)) } => result.map(|_| ()),
        () = signals.next() => Err(anyhow::anyhow!("interrupted")),
    };
    line.abort();
    let tracker = || tracker.lock().expect("nothing panics under this lock");
    if let Err(error) = result {
        tracker().record()?;
        progress.print_totals("copied");
        return Err(match record {
            Some(path) => error.context(format!("run it again to continue at {}", path.display())),
            None => error,
        });
    }
    tracker().complete()?;
    progress.print_totals("copied");
    let sample = Sample {
        keys: options.sample,
        progress: &progress,
        is_followed: false,
        target_was_empty: place.target_was_empty,
    };
    let compared = tokio::select! {
        compared = compare(&mut source, &mut target, to, &databases, sample) => compared?,
        () = signals.next() => bail!(INTERRUPTED_LATE),
    };
    compared.conclude(progress.refused())
}

/// Copies the libraries of functions. If a server refuses them, the report says so.
async fn copy_functions(source: &mut Source, target: &mut Target, progress: &Progress) -> anyhow::Result<()> {
    /// Bytes of a payload without a library: the footer alone.
    const EMPTY_LEN: usize = 10;
    let payload = match source.connection.call(&["FUNCTION", "DUMP"]).await? {
        Reply::Bulk(payload) if payload.len() > EMPTY_LEN => payload,
        reply => {
            progress.note_without_functions(&reply);
            return Ok(());
        }
    };
    let words = ["FUNCTION".into(), "RESTORE".into(), payload, "REPLACE".into()];
    progress.note(match target.call(&words).await? {
        Reply::Error(text) => format!("the libraries of functions were not copied: {text}"),
        _ => "the libraries of functions were copied".to_owned(),
    });
    Ok(())
}

struct Worker {
    source: Source,
    target: Target,
    progress: Arc<Progress>,
    tracker: Arc<Mutex<Tracker>>,
    large: u64,
}

impl Worker {
    async fn run(mut self, batches: Batches) -> anyhow::Result<()> {
        while let Some(batch) = next_batch(&batches).await {
            self.copy(&batch).await?;
            self.tracker.lock().expect("nothing panics under this lock").end(batch.unit)?;
        }
        Ok(())
    }

    async fn copy(&mut self, batch: &Batch) -> anyhow::Result<()> {
        let values = self.source.values(batch.database, &batch.keys, self.large).await?;
        let mut large = Vec::new();
        for (key, value) in batch.keys.iter().zip(values) {
            match value {
                Value::Gone => {}
                Value::Large => large.push(key.clone()),
                Value::Refused(why) => self.progress.refuse(batch.database, key, &why),
                Value::Payload { payload, expire_at_ms } => {
                    let write = Write::restore(batch.database, key.clone(), expire_at_ms, payload);
                    let refused = self.target.push(write).await?;
                    self.write_in_pieces(refused).await?;
                }
            }
        }
        let refused = self.target.flush().await?;
        self.write_in_pieces(refused).await?;
        for key in large {
            match self.copy_large(batch.database, &key).await {
                Ok(()) => {}
                // A connection that broke says nothing about the key.
                Err(error) if error.is::<io::Error>() => return Err(error),
                Err(error) => self.progress.refuse(batch.database, &key, &format!("{error:#}")),
            }
        }
        Ok(())
    }

    async fn write_in_pieces(&mut self, refused: Vec<Write>) -> anyhow::Result<()> {
        for write in refused {
            restore_in_pieces(&mut self.target, &write, &write.words[3]).await?;
        }
        Ok(())
    }

    async fn copy_large(&mut self, database: u64, key: &Bytes) -> anyhow::Result<()> {
        let Some(mut reader) = LargeReader::open(&mut self.source, database, key).await? else {
            return Ok(());
        };
        let expire_at_ms = self.source.expire_at_ms(key).await?;
        let mut writer = LargeWriter::begin(&mut self.target, database, key, reader.kind).await?;
        while let Some(elements) = reader.next(&mut self.source).await? {
            writer.push(&elements).await?;
        }
        writer.finish(expire_at_ms).await
    }
}

/// The result of a comparison.
#[derive(Default)]
pub struct Compared {
    pub keys: u64,
    pub skipped: u64,
    pub differing: Vec<String>,
}

impl Compared {
    /// Prints the result. Returns an error if keys are missing or differ.
    pub fn conclude(self, refused: u64) -> anyhow::Result<()> {
        let Compared { keys, skipped, differing } = self;
        print!("compared {keys} random keys: {} differ", differing.len());
        println!(
            "{}",
            if skipped > 0 { format!(", {skipped} that could not be compared") } else { String::new() }
        );
        differing.iter().take(NAMED_MAX).for_each(|line| println!("  {line}"));
        ensure!(refused == 0, "{refused} keys were not copied");
        ensure!(differing.is_empty(), "{} keys differ: were they changed meanwhile?", differing.len());
        Ok(())
    }
}

/// The keys that are compared, and how.
pub struct Sample<'a> {
    pub keys: usize,
    pub progress: &'a Progress,
    /// True if the target has executed the source's stream.
    pub is_followed: bool,
    pub target_was_empty: bool,
}

/// Compares the numbers of keys, and a random sample of them.
pub async fn compare(
    source: &mut Source,
    target: &mut Target,
    to: &ServerUrl,
    databases: &BTreeMap<u64, u64>,
    sample: Sample<'_>,
) -> anyhow::Result<Compared> {
    let mut other = Source::connect(to).await?;
    let Sample { keys: sample, progress, is_followed, target_was_empty } = sample;
    let (mut compared, mut fewer) = (Compared::default(), Vec::new());
    let total: u64 = databases.values().sum();
    target.flush().await?;
    for (&database, &keys) in databases {
        let (here, there) = (source.size(database).await?, other.size(database).await?);
        println!("database {database}: {here} keys at the source, {there} at the target");
        print_surplus((database, "source"), here, there, target_was_empty);
        if there < here {
            fewer.push(database);
        }
        let share = (sample as u128 * u128::from(keys)).div_ceil(u128::from(total.max(1)));
        let share = usize::try_from(share).unwrap_or(sample);
        let mut names = source.sample(database, share).await?;
        names.sort();
        names.dedup();
        for key in names {
            // A value that the target cannot dump may be too large for a reply of the source.
            let theirs = facts(&mut other.connection, &key).await?;
            let ours = match theirs {
                Some(_) => facts(&mut source.connection, &key).await?,
                None => None,
            };
            match (ours, theirs) {
                (Some(mut ours), Some(mut theirs)) => {
                    compared.keys += 1;
                    if is_followed {
                        for facts in [&mut ours, &mut theirs] {
                            facts.value = facts.value.map(Fingerprint::without_entries_read);
                        }
                    }
                    if !ours.is_same(&theirs, progress.has_all_pending(database, &key)) {
                        compared.differing.push(format!("database {database}, {}", shown(&key)));
                    }
                }
                _ => compared.skipped += 1,
            }
        }
    }
    if compared.differing.is_empty() && progress.refused() == 0 {
        print_expired(source, &fewer).await?;
    }
    Ok(compared)
}

/// Prints that the target has more keys in a database than the source or file, if that is so.
pub fn print_surplus((database, of): (u64, &str), here: u64, there: u64, target_was_empty: bool) {
    if let Some(surplus) = there.checked_sub(here).filter(|surplus| *surplus > 0) {
        println!("{}", surplus_line((database, of), surplus, target_was_empty));
    }
}

fn surplus_line((database, of): (u64, &str), surplus: u64, target_was_empty: bool) -> String {
    let keys = if surplus == 1 { "key" } else { "keys" };
    let line = format!("the target has {surplus} more {keys} in database {database} than the {of}");
    match target_was_empty {
        true => format!("warning: {line}, although it had none before the import"),
        false => format!("{line}: keys that it had before the import stay"),
    }
}

/// Prints how many keys of the source have expired, for databases in which the target has fewer
/// keys.
async fn print_expired(source: &mut Source, databases: &[u64]) -> anyhow::Result<()> {
    for &database in databases {
        if let Some(expired @ 1..) = source.expired_keys(database).await? {
            println!(
                "database {database}: at least {expired} of the keys that the source counts have expired, and are \
                 not removed yet"
            );
        }
    }
    Ok(())
}

/// The value of a key and the time that is left, as far as they can be compared.
pub struct Facts {
    pub value: Option<Fingerprint>,
    pub left_ms: Option<u64>,
}

impl Facts {
    /// Returns true if they agree. Pending entries of a stream count if it has all of them.
    pub fn is_same(&self, other: &Facts, has_all_pending: bool) -> bool {
        // A key may expire between the two questions.
        let is_ending = |facts: &Facts| facts.left_ms.is_some_and(|left| left < CLOCK_MS);
        let gone = |facts: &Facts| facts.value.is_none();
        if gone(self) && is_ending(other) || gone(other) && is_ending(self) {
            return true;
        }
        let times = match (self.left_ms, other.left_ms) {
            (Some(a), Some(b)) => a.abs_diff(b) <= CLOCK_MS,
            (a, b) => a == b,
        };
        let values = match (&self.value, &other.value) {
            (Some(a), Some(b)) if !has_all_pending => a.is_same_without_pending(b),
            (a, b) => a == b,
        };
        values && times
    }
}

/// Returns the facts about a key, or `None` if its value cannot be dumped or read.
pub async fn facts(connection: &mut Connection, key: &Bytes) -> anyhow::Result<Option<Facts>> {
    connection.queue(&[&b"DUMP"[..], key]);
    connection.queue(&[&b"PTTL"[..], key]);
    connection.flush().await?;
    let (value, left) = (connection.reply().await?, connection.reply().await?);
    let left_ms = match left {
        Reply::Int(left) => u64::try_from(left).ok(),
        _ => None,
    };
    Ok(match value {
        Reply::Bulk(payload) => Fingerprint::of_payload(&payload)
            .context("a payload")
            .ok()
            .map(|value| Facts { value: Some(value), left_ms }),
        Reply::Nil => Some(Facts { value: None, left_ms: None }),
        Reply::Error(text) if text.contains("too large") => None,
        Reply::Error(text) => bail!("DUMP: {text}"),
        other => bail!("an answer to DUMP that is none: {other:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surplus_is_a_warning_if_the_target_was_empty() {
        let lines = [true, false].map(|was_empty| surplus_line((3, "source"), 7, was_empty));
        let told = "the target has 7 more keys in database 3 than the source";
        assert!(lines.iter().all(|line| line.contains(told)), "{lines:?}");
        assert_eq!(lines.map(|line| line.starts_with("warning: ")), [true, false]);
    }
}
