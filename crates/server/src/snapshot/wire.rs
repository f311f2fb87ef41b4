//! The frames of two stores on the connection of one snapshot, after the hello. Every frame is a
//! little-endian u32 length and that many bytes, the first of which is the kind. Numbers are
//! little-endian.
//!
//! ```text
//! sender to receiver
//! 0 offer    attempt u64, region u64, message length u32, eraftpb::Message, manifest
//! 1 data     file u32, offset u64, XXH3-64 of the bytes u64, bytes
//! 7 stream   attempt u64, region u64, estimate of the bytes u64, eraftpb::Message: an offer of
//!            files that are built while they are sent
//! 8 file end file u32, bytes u64, place of the sequence number u64, XXH3-64 u64
//! 9 end      manifest of the files that were built
//! receiver to sender
//! 2 go       file u32, offset u64: send from there on; everything before is durable
//! 3 taken    file u32, offset u64: everything before was written
//! 4 done     everything is durable, and the message was delivered
//! 5 refused  may come again u8, why (UTF-8)
//! 6          the transport's refusal of a hello: reason u8, why (UTF-8)
//! ```
//!
//! A `go` may be repeated: a file was damaged, and all data from that file on must be sent again.
//!
//! A stream is sent from version 3 of the cluster on. Its `go` always names the beginning of a
//! file, because the same bytes are not built twice. `data` of a file is followed by its `file
//! end`, and the last file by the `end`.

use std::io;
use std::net::TcpStream;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rocks::snapshot::SnapshotFile;
use types::RegionId;
use xxhash_rust::xxh3::xxh3_64;

use crate::transport::frame::{take_bytes, take_u32, take_u64, take_u8, FrameError};
use crate::transport::stream::PeerSocket;

/// Maximum bytes of a file in one frame.
pub const DATA_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of a frame: data with its header, or an offer of a hundred thousand files.
const FRAME_BYTES_MAX: usize = 4 << 20;

const READ_BYTES: usize = 256 << 10;

/// A place in a snapshot: the position of a file in the manifest, and an offset in that file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: u32,
    pub offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Offer { attempt: u64, region: RegionId, message: Bytes, manifest: Bytes },
    Data { at: Place, checksum: u64, bytes: Bytes },
    Stream { attempt: u64, region: RegionId, estimate: u64, message: Bytes },
    FileEnd { file: u32, description: SnapshotFile },
    End { manifest: Bytes },
    Go(Place),
    Taken(Place),
    Done,
    Refused { may_come_again: bool, why: String },
}

impl Frame {
    pub fn data(at: Place, bytes: Bytes) -> Frame {
        Frame::Data { at, checksum: xxh3_64(&bytes), bytes }
    }

    fn encode(&self) -> io::Result<BytesMut> {
        let mut out = BytesMut::new();
        out.put_u32_le(0);
        match self {
            Frame::Offer { attempt, region, message, manifest } => {
                out.reserve(25 + message.len() + manifest.len());
                out.put_u8(0);
                out.put_u64_le(*attempt);
                out.put_u64_le(*region);
                out.put_u32_le(u32::try_from(message.len()).map_err(io::Error::other)?);
                out.put_slice(message);
                out.put_slice(manifest);
            }
            Frame::Data { at, checksum, bytes } => {
                out.reserve(25 + bytes.len());
                put_data(&mut out, *at, *checksum);
                out.put_slice(bytes);
            }
            Frame::Stream { attempt, region, estimate, message } => {
                out.put_u8(7);
                out.put_u64_le(*attempt);
                out.put_u64_le(*region);
                out.put_u64_le(*estimate);
                out.put_slice(message);
            }
            Frame::FileEnd { file, description } => {
                out.put_u8(8);
                out.put_u32_le(*file);
                out.put_u64_le(description.bytes);
                out.put_u64_le(description.sequence_at);
                out.put_u64_le(description.checksum);
            }
            Frame::End { manifest } => {
                out.put_u8(9);
                out.put_slice(manifest);
            }
            Frame::Go(at) => put_place(&mut out, 2, *at),
            Frame::Taken(at) => put_place(&mut out, 3, *at),
            Frame::Done => out.put_u8(4),
            Frame::Refused { may_come_again, why } => {
                out.put_u8(5);
                out.put_u8(u8::from(*may_come_again));
                out.put_slice(why.as_bytes());
            }
        }
        let length = out.len() - 4;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {length} bytes is too long to send")));
        }
        out[..4].copy_from_slice(&(length as u32).to_le_bytes());
        Ok(out)
    }

    /// Decodes a frame's content (without its length).
    pub fn decode(mut bytes: Bytes) -> Result<Frame, FrameError> {
        let frame = match take_u8(&mut bytes, "the kind")? {
            0 => {
                let (attempt, region) =
                    (take_u64(&mut bytes, "an offer")?, take_u64(&mut bytes, "an offer")?);
                let length = take_u32(&mut bytes, "a message's length")? as usize;
                let message = take_bytes(&mut bytes, length, "a message")?;
                Frame::Offer { attempt, region, message, manifest: std::mem::take(&mut bytes) }
            }
            1 => {
                let at = take_place(&mut bytes)?;
                let checksum = take_u64(&mut bytes, "a checksum")?;
                Frame::Data { at, checksum, bytes: std::mem::take(&mut bytes) }
            }
            2 => Frame::Go(take_place(&mut bytes)?),
            3 => Frame::Taken(take_place(&mut bytes)?),
            4 => Frame::Done,
            5 => {
                let may_come_again = take_u8(&mut bytes, "a refusal")? != 0;
                let why = String::from_utf8_lossy(&std::mem::take(&mut bytes)).into_owned();
                Frame::Refused { may_come_again, why }
            }
            6 => {
                take_u8(&mut bytes, "a refusal")?;
                let why = String::from_utf8_lossy(&std::mem::take(&mut bytes)).into_owned();
                Frame::Refused { may_come_again: true, why }
            }
            7 => Frame::Stream {
                attempt: take_u64(&mut bytes, "a stream")?,
                region: take_u64(&mut bytes, "a stream")?,
                estimate: take_u64(&mut bytes, "a stream")?,
                message: std::mem::take(&mut bytes),
            },
            8 => {
                let file = take_u32(&mut bytes, "a file's end")?;
                let description = SnapshotFile {
                    bytes: take_u64(&mut bytes, "a file's end")?,
                    sequence_at: take_u64(&mut bytes, "a file's end")?,
                    checksum: take_u64(&mut bytes, "a file's end")?,
                };
                Frame::FileEnd { file, description }
            }
            9 => Frame::End { manifest: std::mem::take(&mut bytes) },
            other => return Err(FrameError::UnknownKind(other)),
        };
        match bytes.len() {
            0 => Ok(frame),
            left => Err(FrameError::TrailingBytes(left)),
        }
    }
}

/// Appends the content of a data frame before its bytes.
fn put_data(out: &mut BytesMut, at: Place, checksum: u64) {
    put_place(out, 1, at);
    out.put_u64_le(checksum);
}

fn put_place(out: &mut BytesMut, kind: u8, at: Place) {
    out.put_u8(kind);
    out.put_u32_le(at.file);
    out.put_u64_le(at.offset);
}

fn take_place(bytes: &mut Bytes) -> Result<Place, FrameError> {
    Ok(Place { file: take_u32(bytes, "a place")?, offset: take_u64(bytes, "a place")? })
}

/// One end of the blocking connection.
pub struct Wire {
    stream: PeerSocket,
    read: BytesMut,
}

impl Wire {
    /// Creates the end. `read` is the input that was already read from the stream.
    pub fn new(stream: PeerSocket, read: BytesMut) -> Wire {
        Wire { stream, read }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream.socket
    }

    pub fn send(&mut self, frame: &Frame) -> io::Result<()> {
        self.stream.write_all(&frame.encode()?)
    }

    /// Sends a data frame without a copy of its bytes.
    pub fn send_data(&mut self, at: Place, bytes: &[u8]) -> io::Result<()> {
        let mut head = BytesMut::with_capacity(32);
        head.put_u32_le(0);
        put_data(&mut head, at, xxh3_64(bytes));
        let length = head.len() - 4 + bytes.len();
        assert!(length <= FRAME_BYTES_MAX, "data is sent in small pieces");
        head[..4].copy_from_slice(&(length as u32).to_le_bytes());
        self.stream.write_all(&head)?;
        self.stream.write_all(bytes)
    }

    /// Returns the next frame. Waits for the time of the stream's read timeout.
    pub fn receive(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(prefix) = self.read.first_chunk::<4>() {
                let length = u32::from_le_bytes(*prefix) as usize;
                if length > FRAME_BYTES_MAX {
                    return Err(invalid(FrameError::TooLong(length)));
                }
                if self.read.len() - 4 >= length {
                    self.read.advance(4);
                    return Frame::decode(self.read.split_to(length).freeze()).map_err(invalid);
                }
            }
            // The buffer grows with the received bytes, not with the announced length.
            match self.stream.read_to(&mut self.read, READ_BYTES) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }
}

/// Checks that a decoded frame survives encoding and decoding.
pub fn fuzz(content: Bytes) -> Option<Frame> {
    let frame = Frame::decode(content).ok()?;
    let encoded = frame.encode().expect("a frame that fits").freeze();
    assert_eq!(Frame::decode(encoded.slice(4..)), Ok(frame.clone()));
    Some(frame)
}

pub fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn samples() -> Vec<Frame> {
        let bytes = Bytes::from_static;
        vec![
            Frame::Offer { attempt: 9, region: 7, message: bytes(b"msg"), manifest: bytes(b"manifest") },
            Frame::data(Place { file: 3, offset: 1 << 40 }, bytes(b"rows")),
            Frame::Stream { attempt: 9, region: 7, estimate: 1 << 40, message: bytes(b"msg") },
            Frame::FileEnd {
                file: 3,
                description: SnapshotFile { bytes: 1 << 40, sequence_at: 5, checksum: u64::MAX },
            },
            Frame::End { manifest: bytes(b"manifest") },
            Frame::Go(Place { file: 1, offset: 2 }),
            Frame::Taken(Place { file: 0, offset: u64::MAX }),
            Frame::Done,
            Frame::Refused { may_come_again: true, why: "no room".into() },
        ]
    }

    #[test]
    fn frames_survive_and_nonsense_is_an_error() {
        for frame in samples() {
            let content = frame.encode().unwrap().freeze().slice(4..);
            assert_eq!(Frame::decode(content.clone()), Ok(frame.clone()));
            for end in 0..content.len() {
                assert_ne!(Frame::decode(content.slice(..end)), Ok(frame.clone()));
            }
            if let Frame::Go(_) | Frame::Taken(_) | Frame::Done = frame {
                let longer = [&content[..], b"x"].concat();
                assert_eq!(Frame::decode(longer.into()), Err(FrameError::TrailingBytes(1)));
            }
        }
        assert_eq!(Frame::decode(Bytes::from_static(&[77])), Err(FrameError::UnknownKind(77)));
        let long = Frame::data(Place::default(), vec![0; FRAME_BYTES_MAX].into());
        assert!(long.encode().is_err());
    }

    #[test]
    fn a_wire_joins_pieces_and_refuses_a_length_that_no_frame_has() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let all: Vec<u8> = samples().iter().flat_map(|frame| frame.encode().unwrap()).collect();
        let (early, late) = all.split_at(5);
        stream.write_all(late).unwrap();
        stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let mut wire =
            Wire::new(PeerSocket { socket: listener.accept().unwrap().0, tls: None }, BytesMut::from(early));
        for frame in samples() {
            assert_eq!(wire.receive().unwrap(), frame);
        }
        assert_eq!(wire.receive().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
