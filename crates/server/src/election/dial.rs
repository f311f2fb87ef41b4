//! Connections with ZooKeeper's servers, with TLS or without.
//!
//! The client library tries the servers in turn, and says only that none of them gave it a session
//! in time. So the latest failure of each server is kept here, for the log.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tls_stream::TlsStream;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use zookeeper_client::{Dial, DialedStream};

use crate::zookeeper_settings::ZooKeeperTls;

/// The failure of a server until its connection is there.
const NO_ANSWER: &str = "no answer in time";
const READING: &str = "its certificates are still being read";
const CLOSED: &str = "the server closed the connection";
const CLOSED_IN_HANDSHAKE: &str =
    "the server closed the connection during the handshake; is this its port with TLS (secureClientPort)?";

/// Maximum bytes that fit in one record of TLS.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// The latest failure of each server, by its address.
type Failures = Arc<Mutex<BTreeMap<String, String>>>;

pub struct Dialer {
    tls: Option<Tls>,
    failures: Failures,
}

struct Tls {
    settings: ZooKeeperTls,
    loaded: Mutex<Loaded>,
    /// Held while the files are read. A file system that hangs keeps one thread, however often
    /// connections are tried.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Loaded {
    /// The contents of the files when they were last valid.
    valid: Option<Arc<ClientConfig>>,
    /// The error of the files that is in the log.
    logged: Option<String>,
}

impl Dialer {
    pub fn new(tls: Option<ZooKeeperTls>) -> Dialer {
        let tls = tls.map(|settings| Tls { settings, loaded: Mutex::default(), reading: Arc::default() });
        Dialer { tls, failures: Failures::default() }
    }

    /// Returns the latest failure of each server since they were last forgotten.
    pub fn failures(&self) -> Option<String> {
        let failures = self.failures.lock();
        let each: Vec<String> = failures.iter().map(|(server, why)| format!("{server}: {why}")).collect();
        (!each.is_empty()).then(|| each.join("; "))
    }

    pub fn forget_failures(&self) {
        self.failures.lock().clear();
    }

    /// Notes a failure in case that the attempt takes too long, which drops it. An earlier failure
    /// says more.
    fn note_unless_failed(&self, server: &str, why: &str) {
        self.failures.lock().entry(server.to_owned()).or_insert_with(|| why.to_owned());
    }

    async fn connect(&self, host: &str, port: u16, server: &str) -> io::Result<Box<dyn DialedStream>> {
        // Files are read for each connection, so it has renewed certificates.
        let config = match &self.tls {
            Some(tls) => {
                self.note_unless_failed(server, READING);
                let config = tls.config().await?;
                self.failures.lock().retain(|of, why| of != server || why != READING);
                Some(config)
            }
            None => None,
        };
        self.note_unless_failed(server, NO_ANSWER);
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let Some(config) = config else {
            return Ok(Box::new(Connection::new(stream, server, &self.failures)));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsStream::connect(stream, config, name).await.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                io::Error::new(error.kind(), CLOSED_IN_HANDSHAKE)
            }
            _ => error,
        })?;
        Ok(Box::new(Connection::new(stream, server, &self.failures)))
    }
}

impl Dial for Dialer {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        Box::pin(async move {
            let server = match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            };
            let connected = self.connect(host, port, &server).await;
            if let Err(error) = &connected {
                self.failures.lock().insert(server, describe(error));
            }
            connected
        })
    }
}

impl Tls {
    /// Reads the files. While they cannot be used, connections get what they contained before.
    async fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let (settings, turn) = (self.settings.clone(), self.reading.clone().lock_owned().await);
        let load = move || {
            let _turn = turn;
            settings.load()
        };
        let read = tokio::task::spawn_blocking(load).await.map_err(io::Error::other)?;
        let loaded = &mut *self.loaded.lock();
        match read {
            Ok(config) => {
                *loaded = Loaded { valid: Some(config.clone()), logged: None };
                Ok(config)
            }
            Err(why) => {
                let Some(config) = &loaded.valid else { return Err(io::Error::other(why)) };
                if loaded.logged.as_ref() != Some(&why) {
                    tracing::warn!(
                        why,
                        "a changed certificate for ZooKeeper cannot be used: connections get the one before it"
                    );
                    loaded.logged = Some(why);
                }
                Ok(config.clone())
            }
        }
    }
}

/// Returns the failure for the operator, with the setting that it may be due to.
fn describe(error: &io::Error) -> String {
    use AlertDescription as Alert;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        // The signature is bad if an authority there has the same name and another key.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => format!("{error}: no certificate in zookeeper-tls-ca-cert-file signs it"),
        Some(rustls::Error::AlertReceived(
            Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::AccessDenied,
        )) => format!(
            "{error}: the server needs a certificate of this store that it trusts (zookeeper-tls-cert-file)"
        ),
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{error}: is this its port with TLS (secureClientPort)?")
        }
        _ => error.to_string(),
    }
}

/// A connection whose end is noted as a failure of its server.
struct Connection<S> {
    stream: S,
    server: String,
    failures: Failures,
}

impl<S> Connection<S> {
    fn new(stream: S, server: &str, failures: &Failures) -> Connection<S> {
        Connection { stream, server: server.to_owned(), failures: failures.clone() }
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.failures.lock().insert(self.server.clone(), describe(error));
        }
        result
    }
}

impl<S> fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).finish_non_exhaustive()
    }
}

impl<S: tokio::io::AsyncRead + Unpin> futures::AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(bytes);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
        let (has_room, length) = (buffer.capacity() > 0, buffer.filled().len());
        if has_room && length == 0 && read.is_ok() {
            self.failures.lock().insert(self.server.clone(), CLOSED.into());
        }
        Poll::Ready(self.note(read.map(|()| length)))
    }
}

impl<S: tokio::io::AsyncWrite + Unpin> futures::AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.note(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.stream.is_write_vectored() {
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts));
            return Poll::Ready(self.note(written));
        }
        // The parts share a record of TLS, and do not get one each.
        let bytes = parts.iter().flat_map(|part| part.iter().copied());
        let gathered: Vec<u8> = bytes.take(RECORD_BYTES_MAX).collect();
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &gathered));
        Poll::Ready(self.note(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(self.note(flushed))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
