//! A blocking client with TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use resp::{Reply, ReplyDecoder};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

const SILENCE_MAX: Duration = Duration::from_secs(30);

pub struct TlsClient {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
    decoder: ReplyDecoder,
    input: BytesMut,
}

/// Returns a client's configuration, which trusts an authority and may have a certificate and key.
pub fn config(authority: &str, own: Option<&(String, String)>) -> Arc<ClientConfig> {
    config_of(authority, own, &[&TLS12, &TLS13])
}

/// Returns one for some versions of TLS.
pub fn config_of(
    authority: &str,
    own: Option<&(String, String)>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).expect("a file") {
        roots.add(certificate.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain =
                CertificateDer::pem_file_iter(certificate).expect("a file").map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    })
}

impl TlsClient {
    /// Connects and completes the handshake.
    pub fn open(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<TlsClient> {
        TlsClient::open_to(address, config, ServerName::from(address.ip()))
    }

    /// Does the same with the owner of a certificate for `name`.
    pub fn open_to(
        address: SocketAddr,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<TlsClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(TlsClient { stream, decoder: ReplyDecoder::default(), input: BytesMut::new() })
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        let mut output = BytesMut::new();
        resp::encode_request(words, &mut output);
        self.stream.write_all(&output)?;
        self.stream.flush()
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Reply> {
        self.send(words)?;
        self.reply()
    }

    pub fn reply(&mut self) -> io::Result<Reply> {
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.input.extend_from_slice(&chunk[..read]),
            }
        }
    }
}
