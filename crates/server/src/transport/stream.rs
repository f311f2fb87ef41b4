//! A connection between stores, with or without TLS.
//!
//! Without TLS every operation is that of the socket itself.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use rustls::pki_types::CertificateDer;
use tls_stream::{Session, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::TcpStream;

/// A connection for tasks.
pub enum PeerStream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// A connection for threads: for one that reads without waiting, or for one that waits.
pub struct PeerSocket {
    pub socket: std::net::TcpStream,
    pub tls: Option<Box<Session>>,
}

/// One direction of a connection for tasks; with TLS both directions share the connection.
pub enum Half<P> {
    Plain(P),
    Tls(Arc<TlsStream>),
}

pub type ReadHalf = Half<OwnedReadHalf>;
pub type WriteHalf = Half<OwnedWriteHalf>;

impl PeerStream {
    /// Returns the socket, to wait for it and for its options.
    pub fn socket(&self) -> &TcpStream {
        match self {
            PeerStream::Plain(stream) => stream,
            PeerStream::Tls(stream) => stream.socket(),
        }
    }

    /// Returns the other end's certificate; `None` without TLS.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        match self {
            PeerStream::Plain(_) => None,
            PeerStream::Tls(stream) => stream.certificate(),
        }
    }

    /// Returns a secret number that only the two ends know; nothing without TLS.
    pub fn binding(&self) -> io::Result<Vec<u8>> {
        match self {
            PeerStream::Plain(_) => Ok(Vec::new()),
            PeerStream::Tls(stream) => Ok(stream.binding()?.to_vec()),
        }
    }

    /// Reads from a connection that is not split.
    pub async fn read_shared(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        loop {
            self.socket().readable().await?;
            let read = match self {
                PeerStream::Plain(stream) => stream.try_read_buf(bytes),
                PeerStream::Tls(stream) => stream.try_read_buf(bytes),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Takes bytes without waiting. With TLS, some of them may still have to be
    /// [flushed](Self::try_flush).
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            PeerStream::Plain(stream) => stream.try_write(bytes),
            PeerStream::Tls(stream) => stream.try_write(bytes),
        }
    }

    /// Returns false if bytes that were taken still wait for the socket.
    pub fn try_flush(&self) -> io::Result<bool> {
        match self {
            PeerStream::Plain(_) => Ok(true),
            PeerStream::Tls(stream) => stream.try_flush(),
        }
    }

    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            PeerStream::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadHalf::Plain(reader), WriteHalf::Plain(writer))
            }
            PeerStream::Tls(stream) => {
                let stream = Arc::from(stream);
                (ReadHalf::Tls(Arc::clone(&stream)), WriteHalf::Tls(stream))
            }
        }
    }

    /// Returns the connection for a thread. Bytes that were received and not read are appended to
    /// `bytes`.
    pub fn into_socket(self, bytes: &mut BytesMut) -> io::Result<PeerSocket> {
        let (stream, tls) = match self {
            PeerStream::Plain(stream) => (stream, None),
            PeerStream::Tls(stream) => {
                let (stream, session) = stream.into_parts(bytes);
                (stream, Some(Box::new(session)))
            }
        };
        Ok(PeerSocket { socket: stream.into_std()?, tls })
    }

    pub fn from_socket(socket: PeerSocket) -> io::Result<PeerStream> {
        let stream = TcpStream::from_std(socket.socket)?;
        Ok(match socket.tls {
            None => PeerStream::Plain(stream),
            Some(session) => PeerStream::Tls(Box::new(TlsStream::new(stream, *session))),
        })
    }
}

/// Fails if the time is over: the other end of a handshake may send byte by byte.
pub(super) fn in_time(until: Instant) -> io::Result<()> {
    if Instant::now() < until {
        Ok(())
    } else {
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Maximum bytes of one read of a thread that waits.
const READ_BYTES: usize = 16 << 10;

impl PeerSocket {
    /// Completes the handshake of TLS over a socket that waits, within its timeouts and until
    /// `until`.
    pub fn with_tls(
        socket: std::net::TcpStream,
        mut session: Session,
        until: Instant,
    ) -> io::Result<PeerSocket> {
        let (mut plain, mut sealed) = (BytesMut::new(), [0; READ_BYTES]);
        loop {
            session.write_to(&mut &socket)?;
            if !session.is_handshaking() {
                break;
            }
            let bytes = (&socket).read(&mut sealed)?;
            in_time(until)?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let opened = session.open(&sealed[..bytes], &mut plain);
            if opened.is_err() {
                let _ = session.write_to(&mut &socket);
            }
            opened?;
        }
        match plain.is_empty() {
            true => Ok(PeerSocket { socket, tls: Some(Box::new(session)) }),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes behind the handshake of TLS")),
        }
    }

    /// Returns a secret number that only the two ends know; nothing without TLS.
    pub fn binding(&self) -> io::Result<Vec<u8>> {
        match &self.tls {
            None => Ok(Vec::new()),
            Some(session) => Ok(session.binding()?.to_vec()),
        }
    }

    /// Writes everything to a socket that waits.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.tls else { return self.socket.write_all(bytes) };
        while !bytes.is_empty() {
            bytes = &bytes[session.seal(bytes)?..];
            session.write_to(&mut self.socket)?;
        }
        Ok(())
    }

    /// Appends input of a socket that waits to `bytes`. Returns the number of bytes, and 0 at the
    /// end. A plain read takes at most `most`.
    pub fn read_to(&mut self, bytes: &mut BytesMut, most: usize) -> io::Result<usize> {
        let filled = bytes.len();
        let Some(session) = &mut self.tls else {
            bytes.resize(filled + most, 0);
            let got = self.socket.read(&mut bytes[filled..]);
            bytes.truncate(filled + *got.as_ref().unwrap_or(&0));
            return got;
        };
        let mut sealed = [0; READ_BYTES];
        while bytes.len() == filled {
            let read = self.socket.read(&mut sealed)?;
            if read == 0 {
                return Ok(0);
            }
            session.open(&sealed[..read], bytes)?;
        }
        Ok(bytes.len() - filled)
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            PeerStream::Tls(stream) => stream.poll_read_shared(cx, buf),
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            PeerStream::Tls(stream) => stream.poll_write_shared(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            PeerStream::Tls(stream) => stream.poll_flush_shared(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            PeerStream::Tls(stream) => stream.poll_shutdown_shared(cx),
        }
    }
}

impl<P: AsyncRead + Unpin> AsyncRead for Half<P> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Half::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Half::Tls(stream) => stream.poll_read_shared(cx, buf),
        }
    }
}

impl<P: AsyncWrite + Unpin> AsyncWrite for Half<P> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Half::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Half::Tls(stream) => stream.poll_write_shared(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Half::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Half::Tls(stream) => stream.poll_flush_shared(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Half::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Half::Tls(stream) => stream.poll_shutdown_shared(cx),
        }
    }
}
