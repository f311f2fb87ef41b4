//! A TLS connection for tasks, and for threads that write what the socket takes without waiting.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Session;

/// Maximum bytes of one read from the socket.
const READ_BYTES: usize = 32 << 10;

pub struct TlsStream {
    stream: TcpStream,
    inner: Mutex<Inner>,
}

struct Inner {
    session: Session,
    /// Decrypted bytes that nobody has taken yet.
    plain: BytesMut,
    sealed: Box<[u8]>,
}

/// A socket that takes what it can without waiting.
struct Now<'a>(&'a TcpStream);

impl Write for Now<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns `WouldBlock` as `false`.
fn is_all(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

impl Inner {
    /// Fills `plain` unless it has bytes. Returns false at the end of the input.
    fn receive(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while self.plain.is_empty() {
            if self.session.has_ended() {
                return Ok(false);
            }
            let bytes = stream.try_read(&mut self.sealed)?;
            if bytes == 0 {
                return Ok(false);
            }
            let opened = self.session.open(&self.sealed[..bytes], &mut self.plain);
            // Answers of the handshake, and the reason for an error.
            let answered = is_all(self.session.write_to(&mut Now(stream)));
            opened?;
            answered?;
            if self.session.is_handshaking() && self.session.wants_write() {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
        Ok(true)
    }
}

impl TlsStream {
    /// Creates a connection whose handshake has not begun, or has ended before.
    pub fn new(stream: TcpStream, session: Session) -> TlsStream {
        let inner = Inner { session, plain: BytesMut::new(), sealed: vec![0; READ_BYTES].into() };
        TlsStream { stream, inner: Mutex::new(inner) }
    }

    /// Completes the handshake with the owner of a certificate for `name`.
    pub async fn connect(
        stream: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<TlsStream> {
        let tls = TlsStream::new(stream, Session::client(config, name)?);
        tls.handshake().await?;
        Ok(tls)
    }

    /// Completes the handshake with a client.
    pub async fn accept(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        let tls = TlsStream::new(stream, Session::server(config)?);
        tls.handshake().await?;
        Ok(tls)
    }

    async fn handshake(&self) -> io::Result<()> {
        loop {
            while !self.try_flush()? {
                self.stream.writable().await?;
            }
            if !self.inner.lock().session.is_handshaking() {
                return Ok(());
            }
            self.stream.readable().await?;
            let inner = &mut *self.inner.lock();
            match inner.receive(&self.stream) {
                Ok(true) => {}
                Ok(false) if inner.session.is_handshaking() => {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the certificate of the other end.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.inner.lock().session.certificate()
    }

    /// Returns a secret number of this connection: see [`Session::binding`].
    pub fn binding(&self) -> io::Result<[u8; 32]> {
        self.inner.lock().session.binding()
    }

    /// Appends what has arrived to `bytes`, without waiting. `Ok(0)` is the end.
    pub fn try_read_buf(&self, bytes: &mut BytesMut) -> io::Result<usize> {
        let inner = &mut *self.inner.lock();
        if !inner.receive(&self.stream)? {
            return Ok(0);
        }
        let read = inner.plain.len();
        bytes.extend_from_slice(&inner.plain);
        inner.plain.clear();
        Ok(read)
    }

    /// Takes bytes without waiting. Some of them may still have to be
    /// [flushed](Self::try_flush).
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let inner = &mut *self.inner.lock();
        let socket = &mut Now(&self.stream);
        inner.session.write_to(socket)?;
        let taken = inner.session.seal(bytes)?;
        is_all(inner.session.write_to(socket))?;
        Ok(taken)
    }

    /// Writes taken bytes, without waiting. Returns false if the socket did not take all of them.
    pub fn try_flush(&self) -> io::Result<bool> {
        is_all(self.inner.lock().session.write_to(&mut Now(&self.stream)))
    }

    /// Returns the socket, to wait for it and for its options.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the parts. Decrypted bytes that nobody has taken are appended to `bytes`.
    pub fn into_parts(self, bytes: &mut BytesMut) -> (TcpStream, Session) {
        let inner = self.inner.into_inner();
        bytes.extend_from_slice(&inner.plain);
        (self.stream, inner.session)
    }

    pub fn poll_read_shared(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let inner = &mut *self.inner.lock();
            match inner.receive(&self.stream) {
                Ok(false) => return Poll::Ready(Ok(())),
                Ok(true) => {
                    let length = inner.plain.len().min(buf.remaining());
                    buf.put_slice(&inner.plain[..length]);
                    inner.plain.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.stream.poll_read_ready(cx))?;
        }
    }

    pub fn poll_write_shared(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
            ready!(self.stream.poll_write_ready(cx))?;
        }
    }

    pub fn poll_flush_shared(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush()? {
            ready!(self.stream.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    pub fn poll_shutdown_shared(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.lock().session.end();
        ready!(self.poll_flush_shared(cx))?;
        Poll::Ready(socket2::SockRef::from(&self.stream).shutdown(Shutdown::Write))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_read_shared(cx, buf)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush_shared(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shutdown_shared(cx)
    }
}
