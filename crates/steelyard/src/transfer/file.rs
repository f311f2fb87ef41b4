//! Imports an RDB file.
//!
//! One thread reads the file and makes commands of each key; those of one key go to the same
//! worker, in order. A file is read from its beginning also when an import continues: what precedes
//! the recorded place is skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{bail, Context};
use bytes::Bytes;
use rdb::{write, Element, Error, FileReader, KeyFacts, Kind, Record, StreamPart, StreamWriter};
use resp::Reply;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use types::Draw;

use super::fingerprint::Fingerprint;
use super::live::{all, facts, print_surplus, Compared, Facts, INTERRUPTED_LATE};
use super::pieces::{restore_in_pieces, Gathered, LargeWriter};
use super::place::{Place, Tracker};
use super::replicate::hold;
use super::report::{shown, Progress};
use super::server::{number, select, ServerUrl};
use super::signals::Signals;
use super::source::{now_ms, Source};
use super::target::{Target, Write};
use super::Options;

const BUFFER_BYTES: usize = 1 << 20;
/// Messages that wait for one worker.
const QUEUE: usize = 256;

/// A message to a worker.
enum Message {
    Whole {
        unit: u64,
        write: Write,
    },
    Begin {
        database: u64,
        key: Bytes,
        kind: Kind,
    },
    Piece(Vec<Element>),
    End {
        unit: u64,
        expire_at_ms: Option<u64>,
    },
    /// The rest of the value cannot be written.
    Discard {
        unit: u64,
    },
    Function(Bytes),
}

/// A key that is compared at the end.
struct Sampled {
    database: u64,
    key: Bytes,
    expire_at_ms: Option<u64>,
    value: Fingerprint,
}

pub async fn import(
    path: &Path,
    to: &ServerUrl,
    record: Option<&Path>,
    options: &Options,
) -> anyhow::Result<()> {
    let progress = Progress::new();
    let file = File::open(path)?;
    let facts = file.metadata()?;
    progress.expect_bytes(facts.len());
    let start = Place {
        source: path.display().to_string(),
        target: to.to_string(),
        identity: format!("{} bytes of {:?}", facts.len(), facts.modified()?),
        target_was_empty: Source::connect(to).await?.databases().await?.is_empty(),
        ..Place::default()
    };
    let recorded = record.map(|path| Place::read(path, &start)).transpose()?.flatten();
    if let Some(place) = &recorded {
        eprintln!("continuing after {} keys", place.cursor);
    }
    let place = recorded.unwrap_or(start);
    progress.begin_with(&place);
    let tracker = Arc::new(Mutex::new(Tracker::new(record, place.clone(), progress.clone())));
    let line = progress.show();
    let file = Load {
        reader: FileReader::open(BufReader::with_capacity(BUFFER_BYTES, file))?,
        bytes: facts.len(),
        skipped: place.cursor,
        holds_expiries: false,
    };
    let mut signals = Signals::new()?;
    let result = tokio::select! {
        result = load(file, to, options, &tracker, &progress) => result,
        () = signals.next() => Err(anyhow::anyhow!("interrupted")),
    };
    line.abort();
    let tracker = || tracker.lock().expect("nothing panics under this lock");
    let loaded = match result {
        Ok(loaded) => loaded,
        Err(error) => {
            tracker().record()?;
            progress.print_totals("imported");
            let error = match record {
                Some(path) => error.context(format!("run it again to continue at {}", path.display())),
                None => error,
            };
            return Err(error);
        }
    };
    tracker().complete()?;
    if loaded.expired > 0 {
        progress.note(format!("{} keys of the file had expired before the import", loaded.expired));
    }
    progress.print_totals("imported");
    let compared = tokio::select! {
        compared = compare(to, loaded, place.target_was_empty, &progress) => compared?,
        () = signals.next() => bail!(INTERRUPTED_LATE),
    };
    compared.conclude(progress.refused())
}

/// A file that is loaded.
pub struct Load<R> {
    pub reader: FileReader<R>,
    pub bytes: u64,
    /// Number of keys at the beginning that are done.
    pub skipped: u64,
    /// True if keys must not expire before the import has ended.
    pub holds_expiries: bool,
}

#[derive(Default)]
pub struct Loaded {
    sampled: Vec<Sampled>,
    /// Number of keys of each database.
    by_database: BTreeMap<u64, u64>,
    /// Number of keys that had expired before the file was read.
    expired: u64,
    /// True if a key has an expiry time.
    pub has_expiries: bool,
    /// The database that the source had selected when its stream began.
    pub stream_database: Option<u64>,
}

/// Writes the contents of a file to the target, over several connections.
pub async fn load<R: Read + Send + 'static>(
    file: Load<R>,
    to: &ServerUrl,
    options: &Options,
    tracker: &Arc<Mutex<Tracker>>,
    progress: &Arc<Progress>,
) -> anyhow::Result<Loaded> {
    let (mut queues, mut workers) = (Vec::new(), JoinSet::new());
    for _ in 0..options.connections {
        let (sender, receiver) = mpsc::channel(QUEUE);
        queues.push(sender);
        let target = Target::connect(to, progress.clone()).await?;
        workers.spawn(work(target, receiver, tracker.clone(), progress.clone()));
    }
    let reading = Reading {
        reader: file.reader,
        queues,
        tracker: tracker.clone(),
        progress: progress.clone(),
        skipped: file.skipped,
        holds_expiries: file.holds_expiries,
        large: options.large,
        sample: options.sample,
        draw: Draw::new(file.bytes),
        keys: 0,
        loaded: Loaded::default(),
    };
    let reading = tokio::task::spawn_blocking(move || reading.run());
    let reading = async { reading.await? };
    tokio::try_join!(reading, all(workers)).map(|(loaded, ())| loaded)
}

/// The thread that reads the file.
struct Reading<R> {
    reader: FileReader<R>,
    queues: Vec<mpsc::Sender<Message>>,
    tracker: Arc<Mutex<Tracker>>,
    progress: Arc<Progress>,
    /// Number of keys at the beginning that are done.
    skipped: u64,
    holds_expiries: bool,
    large: u64,
    sample: usize,
    draw: Draw,
    keys: u64,
    loaded: Loaded,
}

impl<R: Read> Reading<R> {
    fn run(mut self) -> anyhow::Result<Loaded> {
        let mut database = 0;
        let mut unit = 0;
        let began_ms = now_ms();
        loop {
            let record = self
                .reader
                .next_record()
                .with_context(|| format!("at byte {}, after {} keys", self.reader.position(), self.keys))?;
            match record {
                None => return Ok(self.loaded),
                Some(Record::Database(number)) => database = number,
                Some(Record::Aux(name, value)) => {
                    if &name[..] == b"repl-stream-db" {
                        let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                        self.loaded.stream_database = number;
                    }
                }
                Some(Record::Sizes(..)) => {}
                Some(Record::Function(source)) => {
                    let _ = self.queues[0].blocking_send(Message::Function(source));
                }
                Some(Record::ModuleData) => {
                    self.progress.note("data of a module, which belongs to no key, was left out");
                }
                Some(Record::Key(facts)) => {
                    self.keys += 1;
                    *self.loaded.by_database.entry(database).or_default() += 1;
                    self.loaded.expired += u64::from(facts.expire_at_ms.is_some_and(|at| at <= began_ms));
                    self.progress.reached(self.reader.position());
                    if self.queues.iter().any(mpsc::Sender::is_closed) {
                        // A worker has ended, and its error is reported.
                        return Ok(self.loaded);
                    }
                    if self.keys <= self.skipped {
                        self.reader.skip(&facts).with_context(|| shown(&facts.key))?;
                        continue;
                    }
                    let after = (0, self.keys);
                    self.tracker.lock().expect("nothing panics under this lock").begin(unit, after);
                    self.key(unit, database, facts)?;
                    unit += 1;
                }
            }
        }
    }

    fn key(&mut self, unit: u64, database: u64, facts: KeyFacts) -> anyhow::Result<()> {
        let key = facts.key.clone();
        let worker = (types::key_hash(&key) % self.queues.len() as u64) as usize;
        let kind = match rdb::kind_of(facts.type_number) {
            Ok(kind) => kind,
            Err(error @ Error::Unsupported(_)) => {
                self.progress.refuse(database, &key, &error.to_string());
                self.reader.skip(&facts).with_context(|| format!("the key {}", shown(&key)))?;
                self.tracker.lock().expect("nothing panics under this lock").end(unit)?;
                return Ok(());
            }
            Err(error) => return Err(error).with_context(|| format!("the key {}", shown(&key))),
        };
        let mut fingerprint = Fingerprint::new(kind);
        let mut body = Body::new(kind);
        // The pieces of a value that is too large for a payload.
        let mut pieces: Option<Gathered> = None;
        let (queue, large) = (&self.queues[worker], self.large);
        let send = |message| drop(queue.blocking_send(message));
        let begin = || send(Message::Begin { database, key: key.clone(), kind });
        let read = self.reader.value(&facts, &mut |element| {
            fingerprint.add(&element);
            if let Some(gathered) = &mut pieces {
                if let Some(piece) = gathered.add(element) {
                    send(Message::Piece(piece));
                }
                return Ok(());
            }
            body.push(element);
            if body.bytes() as u64 > large {
                begin();
                let mut gathered = Gathered::default();
                std::mem::replace(&mut body, Body::new(kind)).visit(&mut |element| {
                    if let Some(piece) = gathered.add(element) {
                        send(Message::Piece(piece));
                    }
                    Ok(())
                })?;
                pieces = Some(gathered);
            }
            Ok(())
        });
        let expire_at_ms = match self.holds_expiries {
            true => facts.expire_at_ms.map(hold),
            false => facts.expire_at_ms,
        };
        self.loaded.has_expiries |= expire_at_ms.is_some();
        if let Err(error @ Error::TooManyPending(_)) = &read {
            self.progress.refuse(database, &key, &error.to_string());
            match pieces {
                Some(_) => send(Message::Discard { unit }),
                None => self.tracker.lock().expect("nothing panics under this lock").end(unit)?,
            }
            return Ok(());
        }
        read.with_context(|| format!("the key {}", shown(&key)))?;
        match pieces {
            Some(mut gathered) => {
                send(Message::Piece(gathered.take()));
                send(Message::End { unit, expire_at_ms });
            }
            None => {
                let payload = body.into_payload().with_context(|| format!("the key {}", shown(&key)))?;
                let write = Write::restore(database, key.clone(), expire_at_ms, payload);
                send(Message::Whole { unit, write });
            }
        }
        self.consider(Sampled { database, key, expire_at_ms, value: fingerprint });
        Ok(())
    }

    /// Keeps each key of the file with the same probability.
    fn consider(&mut self, sampled: Sampled) {
        let seen = self.keys - self.skipped;
        if self.loaded.sampled.len() < self.sample {
            self.loaded.sampled.push(sampled);
        } else {
            let at = self.draw.below(seen) as usize;
            if let Some(place) = self.loaded.sampled.get_mut(at) {
                *place = sampled;
            }
        }
    }
}

/// The beginning of a value, up to the size at which it is written in pieces.
enum Body {
    Elements {
        kind: Kind,
        encoded: Vec<u8>,
        count: u64,
    },
    /// The parts of a stream, and their bytes in memory.
    Stream {
        parts: Vec<StreamPart>,
        bytes: usize,
    },
}

impl Body {
    fn new(kind: Kind) -> Body {
        match kind {
            Kind::Stream => Body::Stream { parts: Vec::new(), bytes: 0 },
            kind => Body::Elements { kind, encoded: Vec::new(), count: 0 },
        }
    }

    fn push(&mut self, element: Element) {
        match (self, element) {
            (Body::Stream { parts, bytes }, Element::Stream(part)) => {
                let texts = match &part {
                    StreamPart::Node { fields, .. } => fields.len(),
                    StreamPart::Entry { pairs, .. } => pairs.len(),
                    _ => 0,
                };
                *bytes += size_of::<StreamPart>() + texts * size_of::<Bytes>();
                *bytes += part.bytes();
                parts.push(part);
            }
            (Body::Elements { encoded, count, .. }, element) => {
                write::element(encoded, &element);
                *count += 1;
            }
            (Body::Stream { .. }, _) => {}
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Body::Elements { encoded, .. } => encoded.len(),
            Body::Stream { bytes, .. } => *bytes,
        }
    }

    /// Visits the elements again.
    fn visit(self, visit: &mut rdb::VisitElement<'_>) -> rdb::Result<()> {
        match self {
            Body::Stream { parts, .. } => parts.into_iter().map(Element::Stream).try_for_each(visit),
            Body::Elements { kind, encoded, count } => {
                let mut value = Vec::with_capacity(encoded.len() + 16);
                write::header(&mut value, kind, count);
                value.extend_from_slice(&encoded);
                drop(encoded);
                rdb::read_value(write::type_number(kind), &mut rdb::Source::new(&value[..]), visit)
            }
        }
    }

    fn into_payload(self) -> rdb::Result<Bytes> {
        let mut payload = Vec::with_capacity(self.bytes() + 24);
        match self {
            Body::Elements { kind, encoded, count } => {
                payload.push(write::type_number(kind));
                write::header(&mut payload, kind, count);
                payload.extend_from_slice(&encoded);
            }
            Body::Stream { parts, .. } => {
                payload.push(write::type_number(Kind::Stream));
                payload.extend(StreamWriter::encode(&parts)?);
            }
        }
        rdb::seal_payload(&mut payload);
        Ok(payload.into())
    }
}

/// Writes what the reader sends.
async fn work(
    mut target: Target,
    mut messages: mpsc::Receiver<Message>,
    tracker: Arc<Mutex<Tracker>>,
    progress: Arc<Progress>,
) -> anyhow::Result<()> {
    let end = |unit| tracker.lock().expect("nothing panics under this lock").end(unit);
    let mut sent = Vec::new();
    while let Some(message) = messages.recv().await {
        match message {
            Message::Whole { unit, write } => {
                sent.push(unit);
                let refused = target.push(write).await?;
                let is_flushed = target.is_empty();
                in_pieces(&mut target, refused).await?;
                if is_flushed {
                    sent.drain(..).try_for_each(end)?;
                }
            }
            Message::Begin { database, key, kind } => {
                let refused = target.flush().await?;
                in_pieces(&mut target, refused).await?;
                sent.drain(..).try_for_each(end)?;
                let mut writer = LargeWriter::begin(&mut target, database, &key, kind).await?;
                loop {
                    match messages.recv().await {
                        Some(Message::Piece(elements)) => writer.push(&elements).await?,
                        Some(Message::End { unit, expire_at_ms }) => {
                            writer.finish(expire_at_ms).await?;
                            end(unit)?;
                            break;
                        }
                        Some(Message::Discard { unit }) => {
                            writer.discard().await?;
                            end(unit)?;
                            break;
                        }
                        // The reader has ended with an error.
                        _ => return Ok(()),
                    }
                }
            }
            Message::Piece(_) | Message::End { .. } | Message::Discard { .. } => {}
            Message::Function(source) => {
                let words = ["FUNCTION".into(), "LOAD".into(), "REPLACE".into(), source];
                progress.note(match target.call(&words).await? {
                    Reply::Error(text) => format!("a library of functions was not imported: {text}"),
                    _ => "the libraries of functions were imported".to_owned(),
                });
            }
        }
        // Nothing more is there to send now.
        if messages.is_empty() && !sent.is_empty() {
            let refused = target.flush().await?;
            in_pieces(&mut target, refused).await?;
            sent.drain(..).try_for_each(end)?;
        }
    }
    let refused = target.flush().await?;
    in_pieces(&mut target, refused).await?;
    sent.into_iter().try_for_each(end)
}

async fn in_pieces(target: &mut Target, refused: Vec<Write>) -> anyhow::Result<()> {
    for write in refused {
        restore_in_pieces(target, &write, &write.words[3]).await?;
    }
    Ok(())
}

async fn compare(
    to: &ServerUrl,
    loaded: Loaded,
    target_was_empty: bool,
    progress: &Progress,
) -> anyhow::Result<Compared> {
    let Loaded { mut sampled, by_database, .. } = loaded;
    let mut connection = to.connect().await?;
    let mut compared = Compared::default();
    for (database, keys) in by_database {
        select(&mut connection, database).await?;
        let there = number(&mut connection, &["DBSIZE"]).await?.unsigned_abs();
        println!("database {database}: {keys} keys in the file, {there} at the target");
        print_surplus((database, "file"), keys, there, target_was_empty);
    }
    let mut selected = None;
    sampled.sort_by_key(|sampled| sampled.database);
    for Sampled { database: of, key, expire_at_ms, value } in sampled {
        if selected.replace(of) != Some(of) {
            select(&mut connection, of).await?;
        }
        let left_ms = expire_at_ms.map(|at| at.saturating_sub(now_ms()));
        match facts(&mut connection, &key).await? {
            Some(theirs) => {
                compared.keys += 1;
                let has_all_pending = progress.has_all_pending(of, &key);
                if !theirs.is_same(&Facts { value: Some(value), left_ms }, has_all_pending) {
                    compared.differing.push(format!("database {of}, {}", shown(&key)));
                }
            }
            None => compared.skipped += 1,
        }
    }
    Ok(compared)
}
