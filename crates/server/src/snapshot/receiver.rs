//! Receives a snapshot over one connection into files, and checks every frame and every file.

use std::fs;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use crossbeam_channel::Receiver;
use raft::eraftpb::{self, MessageType};
use rocks::snapshot::{Arriving, Manifest, SnapshotError, SnapshotFile};
use types::{RegionDescriptor, StoreId};
use xxhash_rust::xxh3::xxh3_64;

use super::counters::Counters;
use super::received::{Begin, Claim, Key, OFFER};
use super::wire::{invalid, Frame, Place, Wire};
use super::{remove, streamed, Shared};
use crate::transport::raft_message;
use crate::transport::socket;
use crate::transport::stream::PeerSocket;

/// A connection that another store opened for a snapshot, with the input that was read after its
/// hello.
pub struct Incoming {
    pub from: StoreId,
    pub stream: PeerSocket,
    pub read: BytesMut,
}

/// Maximum time for a refused sender to read the refusal.
const LINGER: Duration = Duration::from_secs(1);

/// Number of damaged copies of a file over one connection after which the file counts as damaged at
/// the sender.
pub const DAMAGED_MAX: u32 = 3;

pub fn run(shared: &Arc<Shared>, queue: &Receiver<Incoming>) {
    for incoming in queue {
        if shared.is_stopping() {
            return;
        }
        let from = incoming.from;
        // A panic must end only its connection, not the thread.
        match std::panic::catch_unwind(AssertUnwindSafe(|| receive(shared, incoming))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!(from, %error, "a snapshot connection broke while receiving"),
            Err(_) => tracing::error!(from, "receiving a snapshot panicked"),
        }
    }
}

fn receive(shared: &Arc<Shared>, incoming: Incoming) -> io::Result<()> {
    let Incoming { from, stream, read } = incoming;
    let _registered = shared.connection(&stream.socket)?;
    socket::prepare(&stream.socket)?;
    stream.socket.set_read_timeout(Some(shared.limits.timeout()))?;
    stream.socket.set_write_timeout(Some(shared.limits.timeout()))?;
    let mut wire = Wire::new(stream, read);
    let offer = match Offer::read(wire.receive()?, from) {
        Ok(offer) => offer,
        Err(why) => return refuse(shared, &mut wire, why.to_owned()),
    };
    let (begun, gone) = shared.received.begin(offer.key, from, wire.stream())?;
    gone.iter().for_each(|dir| remove(dir));
    match begun {
        Begin::Busy(why) => return wire.send(&Frame::Refused { may_come_again: true, why: why.to_owned() }),
        Begin::Whole => {}
        Begin::Claimed(claim) => {
            let taken = match &offer.contents {
                Contents::Files { manifest } => {
                    take(shared, &mut wire, &offer, manifest, claim).map(|()| manifest.bytes())
                }
                Contents::Stream { estimate, descriptor } => {
                    streamed::take(shared, &mut wire, &offer, *estimate, descriptor, claim)
                }
            };
            match taken {
                Ok(bytes) => {
                    Counters::add(&shared.counters.received, 1);
                    let Key { region, index, .. } = offer.key;
                    tracing::info!(region, index, from, bytes, "received a snapshot");
                }
                Err(Broken::Refused(why)) => return refuse(shared, &mut wire, why),
                Err(Broken::Connection(error)) => return Err(error),
            }
        }
    }
    if shared.received.is_first_delivery(offer.key, from, offer.attempt) {
        shared.host.deliver(from, offer.key.region, offer.message);
    }
    wire.send(&Frame::Done)
}

fn refuse(shared: &Shared, wire: &mut Wire, why: String) -> io::Result<()> {
    tracing::warn!(why, "refused a snapshot");
    Counters::add(&shared.counters.refused, 1);
    wire.send(&Frame::Refused { may_come_again: false, why })?;
    linger(wire.stream())
}

/// Waits briefly for the other side to close. A close with unread input would discard the last
/// frame.
fn linger(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(LINGER))?;
    let mut unread = vec![0; 64 << 10];
    let begun_at = Instant::now();
    while begun_at.elapsed() < LINGER && stream.read(&mut unread)? > 0 {}
    Ok(())
}

pub struct Offer {
    pub key: Key,
    attempt: u64,
    message: eraftpb::Message,
    contents: Contents,
    /// Distinguishes different snapshots at the same index: the encoded manifest as received, or
    /// the transfer if the manifest is not known yet.
    pub identity: Bytes,
}

enum Contents {
    Files { manifest: Manifest },
    Stream { estimate: u64, descriptor: RegionDescriptor },
}

impl Offer {
    fn read(frame: Frame, from: StoreId) -> Result<Offer, &'static str> {
        let (attempt, region, encoded, contents) = match frame {
            Frame::Offer { attempt, region, message, manifest } => {
                (attempt, region, message, Err::<u64, Bytes>(manifest))
            }
            Frame::Stream { attempt, region, estimate, message } => (attempt, region, message, Ok(estimate)),
            _ => return Err("a snapshot begins with an offer"),
        };
        let message = raft_message::decode(&encoded).map_err(|_| "its message cannot be read")?;
        if message.get_msg_type() != MessageType::MsgSnapshot {
            return Err("its message is not a snapshot message");
        }
        let metadata = message.get_snapshot().get_metadata();
        let key = Key { region, index: metadata.index, term: metadata.term };
        let described = message.get_snapshot().get_data();
        let (contents, identity) = match contents {
            Ok(estimate) => {
                let descriptor =
                    RegionDescriptor::decode(described).map_err(|_| "its message describes no region")?;
                if descriptor.id != region {
                    return Err("its message is about another region");
                }
                (Contents::Stream { estimate, descriptor }, streamed::identity(from, attempt))
            }
            Err(encoded) => {
                let manifest = Manifest::decode(&encoded).map_err(|_| "its manifest cannot be read")?;
                if key != (Key { region: manifest.region(), index: manifest.index, term: manifest.term }) {
                    return Err("its message is about another snapshot than its manifest");
                }
                // The log accepts a snapshot by the message and ingests it by the manifest, at
                // every start until it succeeds. So both must describe the same region.
                if described != &manifest.descriptor.encode()[..] {
                    return Err("its message names another region than its manifest");
                }
                if !manifest.files.iter().all(is_possible) {
                    return Err("one of its files has an invalid length");
                }
                (Contents::Files { manifest }, encoded)
            }
        };
        Ok(Offer { key, attempt, message, contents, identity })
    }
}

pub fn is_possible(file: &SnapshotFile) -> bool {
    file.bytes > 0 && u32::try_from(file.bytes >> 20).is_ok()
}

/// Reads an offer.
pub fn fuzz(frame: Frame) {
    let _ = Offer::read(frame, 1);
}

pub enum Broken {
    /// The received files are kept, and the sender may try again.
    Connection(io::Error),
    /// The sender should not try again.
    Refused(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Connection(error)
    }
}

/// Converts an error of a local file into a refusal, because the sender only needs to know that it
/// should not try again.
pub fn here(path: &Path) -> impl FnOnce(io::Error) -> Broken + '_ {
    move |error| Broken::Refused(format!("{}: {error}", path.display()))
}

/// Receives every missing file, and writes the manifest last.
fn take(
    shared: &Shared,
    wire: &mut Wire,
    offer: &Offer,
    manifest: &Manifest,
    mut claim: Claim,
) -> Result<(), Broken> {
    let dir = begin(shared, offer, &claim)?;
    let mut files = Incomplete { dir: &dir, manifest, at: Place::default(), open: None, arriving: None };
    let is_resumed = files.resume().map_err(here(&dir))?;
    let mut left = files.left();
    promise(shared, &mut claim, left)?;
    if is_resumed {
        Counters::add(&shared.counters.resumed, 1);
    }
    let mut damaged = 0;
    // True after a file was requested again. Frames that are already in transit are skipped.
    let mut is_rewound = false;
    wire.send(&Frame::Go(files.at))?;
    while (files.at.file as usize) < manifest.files.len() {
        let Frame::Data { at, checksum, bytes } = wire.receive()? else {
            return Err(invalid("a frame that is not snapshot data").into());
        };
        if !is_next(shared, (at, files.at), &mut is_rewound, (checksum, &bytes))? {
            continue;
        }
        shared.receive_pace.pay(bytes.len());
        let is_whole = files.write(&bytes)?;
        Counters::add(&shared.counters.received_bytes, bytes.len() as u64);
        left = left.saturating_sub(bytes.len() as u64);
        claim.promise(left);
        if is_whole {
            match files.close() {
                Ok(()) => {}
                Err(SnapshotError::Damaged { path, why }) => {
                    tracing::warn!(path = %path.display(), why, "a file of a snapshot arrived damaged");
                    Counters::add(&shared.counters.damaged, 1);
                    damaged += 1;
                    if damaged == DAMAGED_MAX {
                        return Err(Broken::Refused(format!("file {} is damaged: {why}", files.at.file + 1)));
                    }
                    is_rewound = true;
                    left = files.left();
                    claim.promise(left);
                    wire.send(&Frame::Go(files.at))?;
                    continue;
                }
                Err(error) => return Err(Broken::Refused(error.to_string())),
            }
        }
        wire.send(&Frame::Taken(files.at))?;
    }
    // For files from an earlier connection only the lengths are known.
    complete(shared, &dir, manifest, claim, !is_resumed)
}

/// Checks data for the place `at`. Returns false if it is to be skipped, because it was already in
/// transit when a file was requested again.
pub fn is_next(
    shared: &Shared,
    (at, expected): (Place, Place),
    is_rewound: &mut bool,
    (checksum, bytes): (u64, &[u8]),
) -> io::Result<bool> {
    if at != expected {
        return match is_rewound {
            true => Ok(false),
            false => Err(invalid("data of another place than the expected one")),
        };
    }
    *is_rewound = false;
    if xxh3_64(bytes) != checksum {
        Counters::add(&shared.counters.damaged, 1);
        return Err(invalid("data whose checksum is wrong"));
    }
    Ok(true)
}

/// Returns the directory of the offered snapshot. It has only files of this offer.
pub fn begin(shared: &Shared, offer: &Offer, claim: &Claim) -> Result<PathBuf, Broken> {
    let dir = shared.received.dir(offer.key);
    let offered = dir.join(OFFER);
    if atrest::read(&offered).ok().as_deref() != Some(&offer.identity[..]) {
        claim.clear(&dir).map_err(here(&dir))?;
        atrest::write(&offered, &offer.identity).map_err(here(&offered))?;
    }
    Ok(dir)
}

/// Reserves room for the bytes that are missing.
pub fn promise(shared: &Shared, claim: &mut Claim, left: u64) -> Result<(), Broken> {
    let (room, promised) = (shared.host.room(), shared.received.promised());
    if left.saturating_add(promised) > room {
        return Err(Broken::Refused(format!(
            "{left} bytes are missing beside {promised} of other snapshots, and there is room for {room}"
        )));
    }
    claim.promise(left);
    Ok(())
}

/// Ends a snapshot whose files are here and synced.
pub fn complete(
    shared: &Shared,
    dir: &Path,
    manifest: &Manifest,
    claim: Claim,
    is_verified: bool,
) -> Result<(), Broken> {
    manifest.write(dir).map_err(|error| Broken::Refused(error.to_string()))?;
    // The worker relies on the directory's own entry, too.
    shared.received.sync().map_err(here(dir))?;
    // From here on the snapshot is complete, even if the offer is not deleted.
    let _ = fs::remove_file(dir.join(OFFER));
    claim.complete(is_verified);
    Ok(())
}

/// The files of a snapshot that have arrived so far. A file is named `.part` until it is verified
/// and synced.
struct Incomplete<'a> {
    dir: &'a Path,
    manifest: &'a Manifest,
    /// The position of the next byte.
    at: Place,
    open: Option<atrest::File>,
    /// The checksum of the open file's bytes. `None` if an earlier connection wrote some of them.
    arriving: Option<Arriving>,
}

impl Incomplete<'_> {
    /// Finds the position at which to continue, and makes everything before it durable. Returns
    /// true if there was anything.
    fn resume(&mut self) -> io::Result<bool> {
        let is_here = |file: &usize| self.path(*file).exists();
        let done = (0..self.manifest.files.len()).take_while(is_here).count();
        self.at = Place { file: done as u32, offset: 0 };
        let part = self.part();
        // A plain part is from before the directory was encrypted. Nothing more is written to it.
        if atrest::vault_of(&part).is_some() && matches!(atrest::key_of(&part), Ok(None)) {
            fs::remove_file(&part)?;
        }
        if let (Ok(bytes), Some(file)) = (atrest::len(&part), self.manifest.files.get(done)) {
            // The last byte is received again, so that a part of full length is still verified.
            let offset = bytes.min(file.bytes - 1);
            let part = atrest::File::open_to_write(&part)?;
            part.set_len(offset)?;
            part.sync_all()?;
            self.at.offset = offset;
        }
        Ok(self.at != Place::default())
    }

    /// Returns the number of missing bytes.
    fn left(&self) -> u64 {
        let files = &self.manifest.files[self.at.file as usize..];
        files.iter().fold(0u64, |sum, file| sum.saturating_add(file.bytes)).saturating_sub(self.at.offset)
    }

    /// Writes the next bytes. Returns true if the file has its full length now.
    fn write(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        let end = self.at.offset.saturating_add(bytes.len() as u64);
        let length = self.manifest.files[self.at.file as usize].bytes;
        if bytes.is_empty() || end > length {
            return Err(invalid("data that is empty or reaches beyond its file").into());
        }
        let path = self.part();
        if self.open.is_none() {
            self.open = Some(atrest::File::open_or_create(&path).map_err(here(&path))?);
            let file = &self.manifest.files[self.at.file as usize];
            self.arriving = (self.at.offset == 0).then(|| Arriving::new(file));
        }
        let file = self.open.as_ref().expect("opened above");
        file.write_all_at(bytes, self.at.offset).map_err(here(&path))?;
        self.arriving.iter_mut().for_each(|arriving| arriving.add(bytes));
        self.at.offset = end;
        Ok(end == length)
    }

    /// Verifies the completed file and renames it. A damaged file is received again from its
    /// beginning. The file is read only if some of its bytes came over an earlier connection.
    fn close(&mut self) -> Result<(), SnapshotError> {
        let (at, part) = (self.at.file as usize, self.part());
        let failed = |source| SnapshotError::Io { path: part.clone(), source };
        if let Some(file) = self.open.take() {
            file.sync_all().map_err(failed)?;
        }
        let is_known_whole = self.arriving.take().is_some_and(|arriving| arriving.is_whole());
        let verified = if is_known_whole { Ok(()) } else { self.manifest.files[at].verify(&part) };
        if let Err(error) = verified {
            self.at.offset = 0;
            fs::remove_file(&part).map_err(failed)?;
            return Err(error);
        }
        fs::rename(&part, self.path(at)).map_err(failed)?;
        self.at = Place { file: self.at.file + 1, offset: 0 };
        Ok(())
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.join(Manifest::file_name(file))
    }

    fn part(&self) -> PathBuf {
        self.path(self.at.file as usize).with_extension("part")
    }
}
