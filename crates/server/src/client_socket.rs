//! A client's socket, with or without TLS.
//!
//! TLS is a state machine of bytes here: the loop that serves a connection reads and writes its
//! socket and decrypts and encrypts on its own thread. No task and no other thread takes part.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};
use socket2::SockRef;

use crate::tls::Handshake;

/// Maximum bytes that a client sends in its handshake, or afterwards without data. A chain of
/// certificates has a few KiB.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Bytes in a handshake beyond which the client is ended while memory is short.
const HANDSHAKE_BYTES_SHORT: usize = 4 << 10;
/// The same for bytes that bring no data after the handshake: more than one record.
const RECORD_BYTES_SHORT: usize = 24 << 10;
/// Memory that a TLS connection takes in addition to its session, in bytes: during the handshake,
/// afterwards, and while the socket does not take what was encrypted. An idle one has 10 KiB. The
/// bytes that the client has sent since its last data are counted in addition.
pub const HANDSHAKE_MEMORY: usize = 16 << 10;
const TLS_MEMORY: usize = 12 << 10;
const PENDING_MEMORY: usize = 64 << 10;

pub enum ClientSocket {
    Plain(TcpStream),
    Tls(Box<TlsSocket>),
}

pub struct TlsSocket {
    stream: TcpStream,
    tls: ServerConnection,
    /// Present until the handshake is complete.
    handshake: Option<UnderWay>,
    /// Bytes that the client has sent in its handshake, or since its last data: the session may
    /// hold all of them.
    unread: usize,
    /// True after the handshake, until [`ClientSocket::take_certificate`].
    is_identity_due: bool,
    /// True if the last read may have left something in the socket.
    may_have_more: bool,
}

/// A handshake that is not complete.
struct UnderWay {
    _place: Handshake,
    since: Instant,
}

/// A socket that notes whether a read has filled its buffer.
struct Noting<'a> {
    stream: &'a mut TcpStream,
    filled: bool,
    bytes: usize,
}

impl Read for Noting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stream.read(buffer)?;
        self.filled = bytes == buffer.len();
        self.bytes += bytes;
        Ok(bytes)
    }
}

impl ClientSocket {
    /// Begins TLS on a socket.
    pub fn tls(
        stream: TcpStream,
        config: Arc<ServerConfig>,
        place: Handshake,
        since: Instant,
    ) -> Result<ClientSocket, rustls::Error> {
        let tls = ServerConnection::new(config)?;
        let handshake = Some(UnderWay { _place: place, since });
        Ok(ClientSocket::Tls(Box::new(TlsSocket {
            stream,
            tls,
            handshake,
            unread: 0,
            is_identity_due: false,
            may_have_more: true,
        })))
    }

    /// Returns the socket, for the poller.
    pub fn stream(&mut self) -> &mut TcpStream {
        match self {
            ClientSocket::Plain(stream) => stream,
            ClientSocket::Tls(socket) => &mut socket.stream,
        }
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, ClientSocket::Tls(_))
    }

    /// Reads the client's bytes. `Ok(0)` is the end. The read is interrupted whenever the session
    /// [holds much](Self::holds_much), so that the caller can look at the memory.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientSocket::Plain(stream) => stream.read(buffer),
            ClientSocket::Tls(socket) => socket.read(buffer),
        }
    }

    /// Returns true if there may be more to read although the last read did not fill its buffer.
    pub fn may_have_more(&self) -> bool {
        match self {
            ClientSocket::Plain(_) => false,
            ClientSocket::Tls(socket) => socket.may_have_more,
        }
    }

    /// Returns the client's certificate after the read that has completed the handshake, once.
    pub fn take_certificate(&mut self) -> Option<CertificateDer<'static>> {
        let ClientSocket::Tls(socket) = self else { return None };
        let is_due = std::mem::take(&mut socket.is_identity_due);
        let certificate = is_due.then(|| socket.tls.peer_certificates()?.first()).flatten()?;
        Some(certificate.clone().into_owned())
    }

    /// Takes bytes for the client. Encrypted bytes may be [pending](Self::has_pending) afterwards.
    /// With `is_last` the kernel delays the last segment, so that it can carry the end of the
    /// stream.
    pub fn write(&mut self, bytes: &[u8], is_last: bool) -> io::Result<usize> {
        match self {
            ClientSocket::Plain(stream) if is_last => {
                SockRef::from(&*stream).send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL)
            }
            ClientSocket::Plain(stream) => stream.write(bytes),
            ClientSocket::Tls(socket) => socket.write(bytes),
        }
    }

    /// Returns true if encrypted bytes wait for the socket.
    pub fn has_pending(&self) -> bool {
        match self {
            ClientSocket::Plain(_) => false,
            ClientSocket::Tls(socket) => socket.tls.wants_write(),
        }
    }

    /// Writes pending bytes.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            ClientSocket::Plain(_) => Ok(()),
            ClientSocket::Tls(socket) => socket.flush(),
        }
    }

    /// Ends the stream to the client.
    pub fn shut_down(&mut self) {
        if let ClientSocket::Tls(socket) = self {
            socket.tls.send_close_notify();
            let _ = socket.flush();
        }
        let _ = self.stream().shutdown(Shutdown::Write);
    }

    /// Returns the time since when the handshake has been under way, until it is complete.
    pub fn handshake_since(&self) -> Option<Instant> {
        match self {
            ClientSocket::Plain(_) => None,
            ClientSocket::Tls(socket) => socket.handshake.as_ref().map(|handshake| handshake.since),
        }
    }

    /// Returns true if the session may hold much more memory than others.
    pub fn holds_much(&self) -> bool {
        match self {
            ClientSocket::Plain(_) => false,
            ClientSocket::Tls(socket) => socket.holds_much(),
        }
    }

    /// Returns the memory that the socket takes, in bytes, as far as this process knows it.
    pub fn held_bytes(&self) -> usize {
        match self {
            ClientSocket::Plain(_) => 0,
            ClientSocket::Tls(socket) if socket.handshake.is_some() => HANDSHAKE_MEMORY + socket.unread,
            ClientSocket::Tls(socket) if socket.tls.wants_write() => {
                TLS_MEMORY + PENDING_MEMORY + socket.unread
            }
            ClientSocket::Tls(socket) => TLS_MEMORY + socket.unread,
        }
    }
}

impl TlsSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Ok(bytes) => {
                    self.may_have_more |= bytes == buffer.len();
                    self.unread = 0;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The stream has ended without a notice of TLS. As in Redis it is an end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            let mut noting = Noting { stream: &mut self.stream, filled: true, bytes: 0 };
            let received = self.tls.read_tls(&mut noting);
            let (filled, bytes) = (noting.filled, noting.bytes);
            if received? == 0 {
                self.may_have_more = false;
                return Ok(0);
            }
            self.may_have_more = filled;
            if let Err(error) = self.tls.process_new_packets() {
                // The client is told the reason.
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            self.note_received(bytes)?;
            match self.flush() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            if self.holds_much() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }

    fn note_received(&mut self, bytes: usize) -> io::Result<()> {
        self.unread += bytes;
        if !self.tls.is_handshaking() && self.handshake.take().is_some() {
            self.is_identity_due = true;
            self.unread = 0;
        }
        match self.unread > HANDSHAKE_BYTES_MAX {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "the handshake is too long")),
            false => Ok(()),
        }
    }

    fn holds_much(&self) -> bool {
        let short = if self.handshake.is_some() { HANDSHAKE_BYTES_SHORT } else { RECORD_BYTES_SHORT };
        self.unread > short
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A call takes a bounded number of bytes, and only when no earlier bytes are pending.
        self.flush()?;
        let taken = self.tls.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
