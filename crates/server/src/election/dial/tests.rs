//! Connections with servers that are none of ZooKeeper's: they answer each byte with the next one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use futures::{AsyncReadExt, AsyncWriteExt};
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::ServerConfig;
use tls_stream::{files, provider};
use tokio::net::TcpListener;

use super::*;

struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    /// Creates an authority with a certificate in the file.
    fn new(file: &Path) -> Authority {
        Authority::named("authority", file)
    }

    fn named(name: &str, file: &Path) -> Authority {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(file, certificate.pem()).unwrap();
        Authority { certificate, key }
    }

    fn sign(&self, name: &str, certificate: &Path, key: &Path) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let secret = KeyPair::generate().unwrap();
        let signed = params.signed_by(&secret, &self.certificate, &self.key).unwrap();
        std::fs::write(certificate, signed.pem()).unwrap();
        std::fs::write(key, secret.serialize_pem()).unwrap();
    }
}

/// The files of a store, and those of a server, which are signed by the same authority.
struct Files {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(&dir.path().join("ca"));
        let files = Files { dir, authority };
        files.renew("server", "127.0.0.1");
        files.renew("store", "one");
        files
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// Signs another certificate and writes it with its key.
    fn renew(&self, owner: &str, name: &str) {
        self.authority.sign(name, &self.path(&format!("{owner}.crt")), &self.path(&format!("{owner}.key")));
    }

    fn dialer(&self, has_certificate: bool) -> Dialer {
        let own_files = has_certificate.then(|| (self.path("store.crt"), self.path("store.key")));
        Dialer::new(Some(ZooKeeperTls { ca_cert_file: self.path("ca"), own_files }))
    }

    /// Starts a server that wants certificates. Returns its address and those certificates.
    async fn serve(&self) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>) {
        let roots = Arc::new(files::authorities(&self.path("ca")).unwrap());
        let judge = WebPkiClientVerifier::builder_with_provider(roots, provider()).build().unwrap();
        let chain = files::certificates(&self.path("server.crt")).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(judge)
            .with_single_cert(chain, files::private_key(&self.path("server.key")).unwrap())
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, shown) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = TlsStream::accept(stream, config.clone()).await else { continue };
                let certificate = stream.certificate().expect("the server wants one");
                let _ = tell.send(certificate.to_vec());
                let byte = tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap();
                tokio::io::AsyncWriteExt::write_all(&mut stream, &[byte + 1]).await.unwrap();
                tokio::io::AsyncWriteExt::flush(&mut stream).await.unwrap();
            }
        });
        (address, shown)
    }

    fn certificate(&self) -> Vec<u8> {
        files::certificates(&self.path("store.crt")).unwrap()[0].to_vec()
    }
}

/// Starts a server that answers the first bytes of each connection with these ones and closes it.
async fn serve_plain(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    address
}

async fn dial(dialer: &Dialer, address: SocketAddr) -> io::Result<Box<dyn DialedStream>> {
    dialer.dial(&address.ip().to_string(), address.port()).await
}

/// Sends a byte and returns the answer.
async fn ask(dialer: &Dialer, address: SocketAddr) -> io::Result<u8> {
    let mut stream = dial(dialer, address).await?;
    assert_eq!(stream.write_vectored(&[IoSlice::new(b""), IoSlice::new(b"a")]).await?, 1);
    stream.flush().await?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await?;
    Ok(answer[0])
}

#[tokio::test]
async fn each_connection_has_the_certificates_of_its_time() {
    let files = Files::new();
    let (address, mut shown) = files.serve().await;
    let dialer = files.dialer(true);
    assert_eq!(ask(&dialer, address).await.unwrap(), b'b');
    assert_eq!(shown.recv().await, Some(files.certificate()));
    files.renew("store", "two");
    assert_eq!(ask(&dialer, address).await.unwrap(), b'b');
    let second = files.certificate();
    assert_eq!(shown.recv().await.as_ref(), Some(&second));
    // A certificate without its key, as in the middle of a renewal, and then no certificate.
    files.authority.sign("three", &files.path("store.crt"), &files.path("other"));
    assert_eq!(ask(&dialer, address).await.unwrap(), b'b');
    assert_eq!(shown.recv().await.as_ref(), Some(&second));
    std::fs::write(files.path("store.crt"), "").unwrap();
    assert_eq!(ask(&dialer, address).await.unwrap(), b'b');
    assert_eq!(shown.recv().await, Some(second));
    // The authority is read again, too.
    Authority::new(&files.path("ca"));
    files.renew("store", "four");
    assert!(ask(&dialer, address).await.is_err());
}

#[tokio::test]
async fn a_server_whose_certificate_is_wrong_is_a_failure_with_the_setting_in_it() {
    let files = Files::new();
    let (address, _shown) = files.serve().await;
    let dialer = files.dialer(true);
    let failures = |dialer: &Dialer| dialer.failures().unwrap_or_default();
    let other = format!("localhost:{}: ", address.port());
    assert!(dialer.dial("localhost", address.port()).await.is_err());
    let said = failures(&dialer);
    assert!(said.starts_with(&other) && said.contains("not valid for name"), "{said}");
    dialer.forget_failures();
    assert_eq!(dialer.failures(), None);
    for name in ["authority", "other"] {
        Authority::named(name, &files.path("ca"));
        assert!(ask(&dialer, address).await.is_err());
        let said = failures(&dialer);
        assert!(said.contains("no certificate in zookeeper-tls-ca-cert-file signs it"), "{said}");
        assert!(said.starts_with(&format!("{address}: ")) && !said.contains("localhost"), "{said}");
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_is_a_failure_with_the_setting_in_it() {
    let files = Files::new();
    let (address, _shown) = files.serve().await;
    let dialer = files.dialer(false);
    assert!(ask(&dialer, address).await.is_err());
    let said = dialer.failures().unwrap();
    assert!(said.contains("zookeeper-tls-cert-file"), "{said}");
}

#[tokio::test]
async fn a_port_without_tls_is_a_failure_that_asks_for_the_right_port() {
    let files = Files::new();
    let dialer = files.dialer(true);
    for answer in [&b""[..], b"\0\0\0\x10 plain words, and more of them"] {
        assert!(dial(&dialer, serve_plain(answer).await).await.is_err());
        let said = dialer.failures().unwrap();
        assert!(said.contains("is this its port with TLS"), "{said}");
        dialer.forget_failures();
    }
}

#[tokio::test]
async fn connections_without_tls_have_failures_too() {
    let dialer = Dialer::new(None);
    assert_eq!(ask(&dialer, serve_plain(b"x").await).await.unwrap(), b'x');
    assert!(ask(&dialer, serve_plain(b"").await).await.is_err());
    assert!(dialer.failures().unwrap().contains(CLOSED));
    dialer.forget_failures();
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(dial(&dialer, nowhere).await.is_err());
    let said = dialer.failures().unwrap();
    assert!(said.contains("refused"), "{said}");
}

/// The server returns what its first read gets.
#[tokio::test]
async fn the_parts_of_a_write_share_a_record() {
    let files = Files::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let chain = files::certificates(&files.path("server.crt")).unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, files::private_key(&files.path("server.key")).unwrap())
        .unwrap();
    let reading = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsStream::accept(stream, Arc::new(config)).await.unwrap();
        let mut bytes = vec![0; 64 << 10];
        let first = tokio::io::AsyncReadExt::read(&mut stream, &mut bytes).await.unwrap();
        bytes[..first].to_vec()
    });
    let dialer = files.dialer(false);
    let mut stream = dial(&dialer, address).await.unwrap();
    let large = vec![b'c'; 20 << 10];
    let parts = [IoSlice::new(b"a"), IoSlice::new(b"b"), IoSlice::new(&large)];
    assert_eq!(stream.write_vectored(&parts).await.unwrap(), RECORD_BYTES_MAX);
    stream.flush().await.unwrap();
    let read = reading.await.unwrap();
    assert!(read.starts_with(b"abc") && read.len() <= RECORD_BYTES_MAX, "{}", read.len());
}

#[tokio::test]
async fn files_that_cannot_be_read_at_first_are_a_failure() {
    let files = Files::new();
    std::fs::write(files.path("ca"), "").unwrap();
    let dialer = files.dialer(true);
    assert!(dial(&dialer, serve_plain(b"").await).await.is_err());
    let said = dialer.failures().unwrap();
    assert!(said.contains("zookeeper-tls-ca-cert-file: ") && said.contains("has no certificate"), "{said}");
}
