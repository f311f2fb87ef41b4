//! TLS of the programs that drive stores: whom they trust, and the certificate that they show.
//!
//! A program speaks TLS with all servers or with none. A directory of certificates says so, which
//! [`use_directory`] or the variable [`DIRECTORY`] names.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tls_stream::{files, provider};
use ureq::ReadWrite;

/// The variable that names a directory of certificates.
pub const DIRECTORY: &str = "STEELYARD_TLS";

/// The names of the files in such a directory. A program without certificate and key shows none.
pub const AUTHORITY_FILE: &str = "ca.crt";
pub const CERTIFICATE_FILE: &str = "client.crt";
pub const KEY_FILE: &str = "client.key";

/// The use of TLS by a client.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

static OF_PROCESS: OnceLock<Result<Option<ClientTls>, String>> = OnceLock::new();

/// Has this process speak TLS with all servers, from now on.
pub fn use_directory(dir: &Path) -> Result<(), String> {
    let tls = ClientTls::of_directory(dir)?;
    match OF_PROCESS.set(Ok(Some(tls))) {
        Ok(()) => Ok(()),
        Err(_) => Err("this process has already connected to a server".into()),
    }
}

/// Returns the use of TLS by this process; `None` if it uses none.
pub fn of_process() -> Result<Option<ClientTls>, String> {
    let read = || match std::env::var_os(DIRECTORY).filter(|dir| !dir.is_empty()) {
        None => Ok(None),
        Some(dir) => {
            ClientTls::of_directory(Path::new(&dir)).map(Some).map_err(|why| format!("{DIRECTORY}: {why}"))
        }
    };
    OF_PROCESS.get_or_init(read).clone()
}

impl ClientTls {
    /// Reads a directory of certificates.
    pub fn of_directory(dir: &Path) -> Result<ClientTls, String> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(files::authorities(&dir.join(AUTHORITY_FILE))?);
        let (certificate, key) = (dir.join(CERTIFICATE_FILE), dir.join(KEY_FILE));
        let config = match certificate.exists() {
            false => builder.with_no_client_auth(),
            true => builder
                .with_client_auth_cert(files::certificates(&certificate)?, files::private_key(&key)?)
                .map_err(|error| format!("{}: {error}", certificate.display()))?,
        };
        Ok(ClientTls(Arc::new(config)))
    }

    /// Completes the handshake with the server at an address, whose certificate must have it.
    pub async fn connect(
        &self,
        stream: tokio::net::TcpStream,
        address: SocketAddr,
    ) -> io::Result<tls_stream::TlsStream> {
        let name = ServerName::from(address.ip());
        let connecting = tls_stream::TlsStream::connect(stream, self.0.clone(), name);
        connecting.await.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))
    }
}

/// The means by which an HTTP client begins TLS, or the reason why it cannot.
pub(crate) struct HttpTls(pub Result<ClientTls, String>);

impl ureq::TlsConnector for HttpTls {
    fn connect(&self, host: &str, io: Box<dyn ReadWrite>) -> Result<Box<dyn ReadWrite>, ureq::Error> {
        let ClientTls(config) = self.0.as_ref().map_err(|why| io::Error::other(why.clone()))?;
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let name = match address {
            Ok(ip) => ServerName::from(ip),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, io);
        while stream.conn.is_handshaking() {
            stream
                .conn
                .complete_io(&mut stream.sock)
                .map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
        }
        Ok(Box::new(Secured(stream)))
    }
}

struct Secured(StreamOwned<ClientConnection, Box<dyn ReadWrite>>);

impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a connection with TLS")
    }
}

impl Read for Secured {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Secured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl ReadWrite for Secured {
    fn socket(&self) -> Option<&TcpStream> {
        self.0.sock.socket()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_an_authority_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let why = ClientTls::of_directory(dir.path()).err().unwrap();
        assert!(why.contains("ca.crt"), "{why}");
    }
}
