//! Exports a running server to an RDB file.
//!
//! Workers read values and encode them anew, so the file depends on no version of the source. One
//! task writes the file, which gets its name when it is complete and was read again.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{bail, ensure, Context};
use bytes::Bytes;
use rdb::{
    write, Element, EntryId, FileReader, FileWriter, KeyFacts, Kind, Record, StreamPart, StreamWriter,
};
use resp::Reply;
use tempfile::NamedTempFile;
use tokio::sync::{mpsc, Mutex as AsyncMutex};
use tokio::task::JoinSet;

use super::live::{all, next_batch, walk, Batches};
use super::pieces::LargeReader;
use super::place::{Place, Tracker};
use super::report::Progress;
use super::server::ServerUrl;
use super::signals::Signals;
use super::source::{Source, Value};
use super::Options;

const BUFFER_BYTES: usize = 1 << 20;
/// Keys that wait for the writer.
const QUEUE: usize = 256;
/// Number of keys of the file that are read again before signals are looked at.
const CHECKED_AT_ONCE: u64 = 1000;

/// A key that is ready to be written.
struct Encoded {
    database: u64,
    facts: KeyFacts,
    /// The number of elements or nodes and what follows it, or the number alone.
    head: Vec<u8>,
    /// The elements of a large value.
    spooled: Option<File>,
}

pub async fn export(from: &ServerUrl, path: &Path, options: &Options) -> anyhow::Result<()> {
    check_path(path)?;
    let mut signals = Signals::new()?;
    // The temporary file is deleted with the export that is dropped.
    tokio::select! {
        exported = export_to(from, path, options) => exported,
        () = signals.next() => bail!("interrupted: no file was written"),
    }
}

/// Returns an error if a file cannot get this name.
fn check_path(path: &Path) -> anyhow::Result<()> {
    let names_directory = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    ensure!(!names_directory, "{} is a directory: --rdb names the file to write", path.display());
    let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    ensure!(!is_other, "{} exists and is not a regular file", path.display());
    Ok(())
}

/// Makes the file that gets its name when it is complete. A process that is killed leaves it
/// behind.
fn temporary_file(path: &Path) -> anyhow::Result<NamedTempFile> {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".partial-");
    let file = tempfile::Builder::new().prefix(&prefix).tempfile_in(durable::dir_of(path));
    file.with_context(|| format!("{} cannot be written", path.display()))
}

async fn export_to(from: &ServerUrl, path: &Path, options: &Options) -> anyhow::Result<()> {
    let progress = Progress::new();
    let mut source = Source::connect(from).await?;
    let databases = source.databases().await?;
    progress.expect_keys(databases.values().sum());
    let file = temporary_file(path)?;
    let version = env!("CARGO_PKG_VERSION");
    let aux = [("steelyard-ver", version), ("redis-bits", "64")];
    let mut writer = FileWriter::create(BufWriter::with_capacity(BUFFER_BYTES, file), &aux)?;
    let functions = source.connection.call(&["FUNCTION", "DUMP"]).await;
    match functions.map_err(|error| from.name_broken(error.into()))? {
        Reply::Bulk(payload) => {
            if let Err(error) = writer.functions(&payload) {
                progress.note(format!("the libraries of functions were left out: {error}"));
            }
        }
        reply => progress.note_without_functions(&reply),
    }
    let line = progress.show();
    let (batches, encoded) = (mpsc::channel(2 * options.connections), mpsc::channel(QUEUE));
    let (sender, mut ready) = encoded;
    let (batch_sender, batch_receiver) = batches;
    let receiver: Batches = Arc::new(AsyncMutex::new(batch_receiver));
    // A walk over Redis may meet a key twice, and Redis refuses a file with a key twice.
    let met = (!source.is_steelyard).then(|| Arc::new(Mutex::new(HashSet::new())));
    let mut workers = JoinSet::new();
    for _ in 0..options.connections {
        let worker = Worker {
            source: Source::connect(from).await?,
            progress: progress.clone(),
            ready: sender.clone(),
            met: met.clone(),
            large: options.large,
            dir: durable::dir_of(path).to_owned(),
        };
        workers.spawn(worker.run(receiver.clone()));
    }
    drop((sender, receiver));
    let tracker = Mutex::new(Tracker::new(None, Place::default(), progress.clone()));
    let start = Place::default();
    let walking = walk(&mut source, &databases, &start, &tracker, batch_sender);
    let writing = async {
        let mut keys = 0u64;
        while let Some(encoded) = ready.recv().await {
            let before = writer.position();
            write_key(&mut writer, encoded)?;
            keys += 1;
            progress.add(1, writer.position() - before);
        }
        Ok::<u64, anyhow::Error>(keys)
    };
    let result = tokio::try_join!(walking, all(workers), writing);
    line.abort();
    let ((), (), keys) = result?;
    finish(writer, path, keys, &progress).await
}

/// Completes the file, reads it again, and gives it its name.
async fn finish(
    writer: FileWriter<BufWriter<NamedTempFile>>,
    path: &Path,
    keys: u64,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut buffer = writer.finish()?;
    buffer.flush()?;
    let file = buffer.into_inner().map_err(|error| error.into_error())?;
    file.as_file().sync_all()?;
    progress.print_totals("exported");
    let read = read_again(file.reopen()?).await?;
    ensure!(read == keys, "the file has {read} keys instead of {keys}");
    let named = file.persist(path).map_err(|error| error.error);
    named.with_context(|| format!("{} cannot be written", path.display()))?;
    durable::sync_dir(durable::dir_of(path))?;
    println!("{}: {keys} keys, read again without an error", path.display());
    let refused = progress.refused();
    ensure!(refused == 0, "{refused} keys were not exported");
    Ok(())
}

fn write_key<W: io::Write>(writer: &mut FileWriter<W>, encoded: Encoded) -> anyhow::Result<()> {
    writer.begin_key(encoded.database, &encoded.facts, &encoded.head)?;
    let Some(mut file) = encoded.spooled else { return Ok(()) };
    file.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => writer.elements(&buffer[..count])?,
        }
    }
}

/// Reads the whole file and checks its checksum. Returns the number of keys.
async fn read_again(file: File) -> anyhow::Result<u64> {
    let mut reader = FileReader::open(BufReader::with_capacity(BUFFER_BYTES, file))?;
    let mut keys = 0;
    while let Some(record) = reader.next_record()? {
        if let Record::Key(facts) = record {
            reader.value(&facts, &mut |_| Ok(()))?;
            keys += 1;
            if keys % CHECKED_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(keys)
}

struct Worker {
    source: Source,
    progress: Arc<Progress>,
    ready: mpsc::Sender<Encoded>,
    /// The hashes of the keys that were met.
    met: Option<Arc<Mutex<HashSet<[u64; 2]>>>>,
    large: u64,
    dir: std::path::PathBuf,
}

impl Worker {
    async fn run(mut self, batches: Batches) -> anyhow::Result<()> {
        while let Some(mut batch) = next_batch(&batches).await {
            if let Some(met) = &self.met {
                let mut met = met.lock().expect("nothing panics under this lock");
                batch.keys.retain(|key| met.insert(hashes(batch.database, key)));
            }
            let values = self.source.values(batch.database, &batch.keys, self.large).await?;
            for (key, value) in batch.keys.iter().zip(values) {
                let encoded = match value {
                    Value::Gone => continue,
                    Value::Payload { payload, expire_at_ms } => {
                        encode(batch.database, key, expire_at_ms, &payload)
                    }
                    Value::Large => match self.spool(batch.database, key).await {
                        Ok(None) => continue,
                        Ok(Some(encoded)) => Ok(encoded),
                        // A connection that broke, or a full device, says nothing about the key.
                        Err(error) if error.is::<io::Error>() => return Err(error),
                        Err(error) => Err(error),
                    },
                    Value::Refused(why) => Err(anyhow::Error::msg(why)),
                };
                match encoded {
                    Ok(encoded) => {
                        if self.ready.send(encoded).await.is_err() {
                            // The writer has ended, and its error is reported.
                            return Ok(());
                        }
                    }
                    Err(error) => self.progress.refuse(batch.database, key, &format!("{error:#}")),
                }
            }
        }
        Ok(())
    }

    /// Reads a large value into a file, because the number of its elements comes first.
    async fn spool(&mut self, database: u64, key: &Bytes) -> anyhow::Result<Option<Encoded>> {
        let Some(mut reader) = LargeReader::open(&mut self.source, database, key).await? else {
            return Ok(None);
        };
        let expire_at_ms = self.source.expire_at_ms(key).await?;
        let mut file = tempfile::tempfile_in(&self.dir)?;
        let mut names = HashSet::new();
        let mut elements = 0;
        let mut stream = Stream::default();
        while let Some(piece) = reader.next(&mut self.source).await? {
            let mut bytes = Vec::new();
            for element in piece {
                let is_new = match &element {
                    Element::String(_) | Element::Item(_) => true,
                    Element::Member(name) | Element::Field(name, _) | Element::Scored(name, _) => {
                        names.insert(hashes(0, name))
                    }
                    Element::Stream(part) => {
                        stream.push(&mut bytes, part)?;
                        continue;
                    }
                };
                if is_new {
                    write::element(&mut bytes, &element);
                    elements += 1;
                }
            }
            file.write_all(&bytes)?;
        }
        if reader.kind == Kind::Stream {
            let mut bytes = Vec::new();
            let (nodes, tail) = stream.writer.finish(&mut bytes)?;
            file.write_all(&bytes)?;
            file.write_all(&tail)?;
            elements = nodes;
        } else if elements == 0 {
            return Ok(None);
        }
        self.progress.in_pieces.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (facts, head) = begin(key, expire_at_ms, reader.kind, elements);
        Ok(Some(Encoded { database, facts, head, spooled: Some(file) }))
    }
}

/// A stream that is written while it may change.
#[derive(Default)]
struct Stream {
    writer: StreamWriter,
    /// The pending entries of the group. One that another consumer has claimed is met twice.
    pending: HashSet<EntryId>,
}

impl Stream {
    /// Adds a part. Appends complete nodes to `nodes`.
    fn push(&mut self, nodes: &mut Vec<u8>, part: &StreamPart) -> rdb::Result<()> {
        match part {
            StreamPart::Group { .. } => self.pending.clear(),
            StreamPart::Pending { id, .. } if !self.pending.insert(*id) => return Ok(()),
            _ => {}
        }
        self.writer.push(nodes, part)
    }
}

/// Returns two hashes of a name, which together are the same only for the same name.
fn hashes(database: u64, name: &[u8]) -> [u64; 2] {
    let mut longer = database.to_le_bytes().to_vec();
    longer.extend_from_slice(name);
    [types::key_hash(name), types::key_hash(&longer)]
}

fn begin(key: &Bytes, expire_at_ms: Option<u64>, kind: Kind, elements: u64) -> (KeyFacts, Vec<u8>) {
    let facts = KeyFacts { key: key.clone(), expire_at_ms, type_number: write::type_number(kind) };
    let mut head = Vec::new();
    write::header(&mut head, kind, elements);
    (facts, head)
}

/// Encodes a payload's value anew.
fn encode(database: u64, key: &Bytes, expire_at_ms: Option<u64>, payload: &Bytes) -> anyhow::Result<Encoded> {
    let (number, value) = rdb::open_payload(payload)?;
    let kind = rdb::kind_of(number)?;
    let (mut body, mut elements) = (Vec::new(), 0);
    let mut stream = StreamWriter::default();
    rdb::read_value(number, &mut rdb::Source::new(&value[..]), &mut |element| {
        if let Element::Stream(part) = &element {
            return stream.push(&mut body, part);
        }
        write::element(&mut body, &element);
        elements += 1;
        Ok(())
    })?;
    if kind == Kind::Stream {
        let (nodes, tail) = stream.finish(&mut body)?;
        body.extend(tail);
        elements = nodes;
    }
    let (facts, mut head) = begin(key, expire_at_ms, kind, elements);
    head.append(&mut body);
    Ok(Encoded { database, facts, head, spooled: None })
}
