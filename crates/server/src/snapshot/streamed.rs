//! Receives the files of a snapshot that are built while they are sent. Their lengths and checksums
//! come after their bytes, and the manifest at the end.
//!
//! A file counts once it was compared with its description, synced and renamed. If the connection
//! breaks, the receiver deletes its part of the open file, because the sender builds that file
//! again from the beginning.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::{BufMut, Bytes, BytesMut};
use rocks::snapshot::{Description, Manifest, SnapshotFile};
use types::{RegionDescriptor, StoreId};

use super::counters::Counters;
use super::received::{Claim, STREAM_MAGIC};
use super::receiver::{begin, complete, here, is_next, is_possible, promise, Broken, Offer, DAMAGED_MAX};
use super::wire::{invalid, Frame, Place, Wire};
use super::Shared;

/// Returns the content of the offer's file: only the connections of one transfer have files in
/// common.
///
/// ```text
/// "SYST" | version u8 = 1 | sending store u64 | attempt u64
/// ```
pub fn identity(from: StoreId, attempt: u64) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(STREAM_MAGIC);
    out.put_u8(1);
    out.put_u64(from);
    out.put_u64(attempt);
    out.freeze()
}

/// Receives the files and the manifest. Returns the number of bytes of all files.
pub fn take(
    shared: &Shared,
    wire: &mut Wire,
    offer: &Offer,
    estimate: u64,
    descriptor: &RegionDescriptor,
    mut claim: Claim,
) -> Result<u64, Broken> {
    let dir = begin(shared, offer, &claim)?;
    let mut files = Arrived::find(&dir).map_err(here(&dir))?;
    let is_resumed = files.count > 0;
    let mut left = estimate.saturating_sub(files.bytes);
    promise(shared, &mut claim, left)?;
    if is_resumed {
        Counters::add(&shared.counters.resumed, 1);
    }
    let mut damaged = 0;
    // True after a file was requested again. Frames that are already in transit are skipped.
    let mut is_rewound = false;
    wire.send(&Frame::Go(files.at()))?;
    let manifest = loop {
        match wire.receive()? {
            Frame::Data { at, checksum, bytes } => {
                if !is_next(shared, (at, files.at()), &mut is_rewound, (checksum, &bytes))? {
                    continue;
                }
                let of_others = || shared.received.promised();
                if left == 0 && shared.host.room() < of_others().saturating_add(bytes.len() as u64) {
                    // The estimate was too low.
                    return Err(Broken::Refused("there is no room for the rest".to_owned()));
                }
                shared.receive_pace.pay(bytes.len());
                files.write(&bytes)?;
                Counters::add(&shared.counters.received_bytes, bytes.len() as u64);
                left = left.saturating_sub(bytes.len() as u64);
                claim.promise(left);
            }
            Frame::FileEnd { .. } | Frame::End { .. } if is_rewound => continue,
            Frame::FileEnd { file, description } => {
                if file != files.count {
                    return Err(invalid("the end of another file than the open one").into());
                }
                if !files.close(description)? {
                    let why = "its bytes are not those that its end describes";
                    tracing::warn!(dir = %dir.display(), file, why, "a file of a snapshot arrived damaged");
                    Counters::add(&shared.counters.damaged, 1);
                    damaged += 1;
                    if damaged == DAMAGED_MAX {
                        return Err(Broken::Refused(format!("file {} is damaged: {why}", file + 1)));
                    }
                    is_rewound = true;
                    wire.send(&Frame::Go(files.at()))?;
                    continue;
                }
            }
            Frame::End { manifest } => break manifest,
            _ => return Err(invalid("a frame that is not of a stream").into()),
        }
        wire.send(&Frame::Taken(files.at()))?;
    };
    let refused = |why: &str| Broken::Refused(format!("its manifest {why}"));
    let manifest = Manifest::decode(&manifest).map_err(|_| refused("cannot be read"))?;
    let of_offer = (offer.key.index, offer.key.term, descriptor);
    if (manifest.index, manifest.term, &manifest.descriptor) != of_offer {
        return Err(refused("is of another snapshot"));
    }
    if !files.are_those_of(&manifest).map_err(here(&dir))? {
        return Err(refused("has other files than those that arrived"));
    }
    // Files of an earlier connection were verified, but by another process perhaps.
    complete(shared, &dir, &manifest, claim, !is_resumed)?;
    Ok(manifest.bytes())
}

/// The files that have arrived so far. A file is named `.part` until it is verified and synced.
struct Arrived<'a> {
    dir: &'a Path,
    /// The number of verified files, and their bytes.
    count: u32,
    bytes: u64,
    /// The descriptions of those that came over this connection, which are the last ones.
    known: Vec<SnapshotFile>,
    open: Option<(atrest::File, Description)>,
}

impl Arrived<'_> {
    /// Finds the files of earlier connections, and deletes the part of one.
    fn find(dir: &Path) -> io::Result<Arrived<'_>> {
        let mut arrived = Arrived { dir, count: 0, bytes: 0, known: Vec::new(), open: None };
        loop {
            match atrest::len(&arrived.path()) {
                Ok(bytes) => arrived.bytes += bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
            arrived.count += 1;
        }
        match fs::remove_file(arrived.part()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(arrived),
        }
    }

    /// Returns the place of the next byte.
    fn at(&self) -> Place {
        let offset = self.open.as_ref().map_or(0, |(_, description)| description.bytes());
        Place { file: self.count, offset }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        if bytes.is_empty() {
            return Err(invalid("data without bytes").into());
        }
        let path = self.part();
        if self.open.is_none() {
            let file = atrest::File::create(&path).map_err(here(&path))?;
            self.open = Some((file, Description::default()));
        }
        let (file, description) = self.open.as_mut().expect("opened above");
        file.write_all(bytes).map_err(here(&path))?;
        description.add(bytes);
        Ok(())
    }

    /// Compares the open file with its description, syncs and renames it. If it is another file,
    /// deletes it and returns false.
    fn close(&mut self, described: SnapshotFile) -> Result<bool, Broken> {
        let Some((file, description)) = self.open.take() else {
            return Err(invalid("the end of a file without bytes").into());
        };
        let part = self.part();
        if description.finish() != Some(described) || !is_possible(&described) {
            fs::remove_file(&part).map_err(here(&part))?;
            return Ok(false);
        }
        file.sync_all().map_err(here(&part))?;
        fs::rename(&part, self.path()).map_err(here(&part))?;
        self.count += 1;
        self.bytes += described.bytes;
        self.known.push(described);
        Ok(true)
    }

    /// Returns true if the manifest describes the files. Those of earlier connections are compared
    /// by their lengths.
    fn are_those_of(&self, manifest: &Manifest) -> io::Result<bool> {
        if self.open.is_some() || manifest.files.len() != self.count as usize {
            return Ok(false);
        }
        let (earlier, known) = manifest.files.split_at(manifest.files.len() - self.known.len());
        for (number, file) in earlier.iter().enumerate() {
            if atrest::len(&self.dir.join(Manifest::file_name(number)))? != file.bytes {
                return Ok(false);
            }
        }
        Ok(known == self.known)
    }

    /// Returns the path of the open file, or of the next one, once it is verified.
    fn path(&self) -> PathBuf {
        self.dir.join(Manifest::file_name(self.count as usize))
    }

    fn part(&self) -> PathBuf {
        self.path().with_extension("part")
    }
}
