//! The certificates of stores. Both ends of every connection have one, if `tls-cluster` is `yes`.
//!
//! A store's certificate is valid for the DNS names `store-N.CLUSTER.steelyard`, with the store's
//! number, and `store.CLUSTER.steelyard`, which every store has. One for `*.CLUSTER.steelyard` is
//! good for any store, such as one whose number the cluster has yet to choose. The names say what
//! the authority has certified; the certificates of clients have none of them.
//!
//! No connection is resumed. So each is judged by the certificates of its time.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{verify_server_name, Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tls_stream::{files, provider, Session, TlsStream};
use tokio::net::TcpStream;
use types::StoreId;

use super::identity::NO_STORE;
use super::stream::{PeerSocket, PeerStream};
use crate::tls_settings::{named, TlsSettings};

/// The domain of all names in certificates of stores.
const DOMAIN: &str = "steelyard";

pub struct Certificates {
    /// The value of `tls-cluster-name`.
    cluster: String,
    used: ArcSwap<Used>,
}

/// The certificates for new connections.
struct Used {
    accepting: Arc<ServerConfig>,
    calling: Arc<ClientConfig>,
    /// This store's own certificates: for those that connect, and for those to which it connects.
    own: [CertificateDer<'static>; 2],
}

/// Returns the name in the certificate of a store, or in that of every store.
pub fn name_of(cluster: &str, store: StoreId) -> String {
    match store {
        NO_STORE => format!("store.{cluster}.{DOMAIN}"),
        store => format!("store-{store}.{cluster}.{DOMAIN}"),
    }
}

/// Returns true if the text can be the name of a cluster in certificates.
pub fn is_cluster_name(text: &str) -> bool {
    let is_short = (1..=63).contains(&text.len());
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    is_short && text.bytes().all(is_plain) && !text.starts_with('-') && !text.ends_with('-')
}

impl Used {
    /// Reads the files, and checks that other stores would accept the certificates if they are to
    /// be `judged`.
    fn read(cluster: &str, settings: &TlsSettings, judged: bool) -> Result<Used, String> {
        let (chain, secret) = settings.own_certificate()?;
        let ((client_chain, client_secret), client_setting) = match settings.client_certificate()? {
            Some(pair) => (pair, "tls-client-cert-file"),
            None => ((chain.clone(), secret.clone_key()), "tls-cert-file"),
        };
        let ca = settings.ca_cert_file.as_ref();
        let ca = ca.ok_or("tls-cluster needs tls-ca-cert-file, whose certificates sign those of stores")?;
        let roots = Arc::new(named("tls-ca-cert-file", files::authorities(ca))?);
        let broken = |error: rustls::server::VerifierBuilderError| format!("tls-ca-cert-file: {error}");
        let of_callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider()).build();
        let of_callers = of_callers.map_err(broken)?;
        if judged {
            let of_stores = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider()).build();
            let (of_stores, now) = (of_stores.map_err(broken)?, UnixTime::now());
            let wanted = name_of(cluster, NO_STORE);
            let refused = |setting: &str, error: rustls::Error| {
                format!("{setting}: other stores would refuse this certificate: {error}")
            };
            let name = server_name(&wanted)?;
            of_stores
                .verify_server_cert(&chain[0], &chain[1..], &name, &[], now)
                .map_err(|error| refused("tls-cert-file", error))?;
            of_callers
                .verify_client_cert(&client_chain[0], &client_chain[1..], now)
                .map_err(|error| refused(client_setting, error))?;
            if !has_name(&client_chain[0], &wanted) {
                return Err(format!("{client_setting}: this certificate needs the name {wanted}"));
            }
        }
        let own = [chain[0].clone(), client_chain[0].clone()];
        let mut accepting = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(of_callers)
            .with_single_cert(chain, secret)
            .map_err(|error| format!("tls-cert-file and tls-key-file: {error}"))?;
        accepting.session_storage = Arc::new(NoServerSessionStorage {});
        accepting.send_tls13_tickets = 0;
        let mut calling = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_client_auth_cert(client_chain, client_secret)
            .map_err(|error| format!("tls-client-cert-file and tls-client-key-file: {error}"))?;
        calling.resumption = Resumption::disabled();
        Ok(Used { accepting: Arc::new(accepting), calling: Arc::new(calling), own })
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned()).map_err(|error| format!("{name}: {error}"))
}

fn has_name(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    let named = server_name(name);
    matches!((parsed, named), (Ok(parsed), Ok(name)) if verify_server_name(&parsed, &name).is_ok())
}

impl Certificates {
    /// Reads the files of the settings.
    pub fn read(cluster: &str, settings: &TlsSettings) -> Result<Certificates, String> {
        let used = Used::read(cluster, settings, true)?;
        Ok(Certificates { cluster: cluster.to_owned(), used: ArcSwap::from_pointee(used) })
    }

    /// Reads certificates that other stores may refuse.
    #[cfg(test)]
    pub fn unjudged(cluster: &str, settings: &TlsSettings) -> Result<Certificates, String> {
        let used = Used::read(cluster, settings, false)?;
        Ok(Certificates { cluster: cluster.to_owned(), used: ArcSwap::from_pointee(used) })
    }

    /// Reads the files again, for new connections of store `this`. An error changes nothing.
    pub fn load(&self, settings: &TlsSettings, this: StoreId) -> Result<(), String> {
        let used = Used::read(&self.cluster, settings, true)?;
        self.check_own(&used, this)?;
        self.used.store(Arc::new(used));
        Ok(())
    }

    /// Checks that this store's certificates have its number.
    pub fn check_number(&self, this: StoreId) -> Result<(), String> {
        self.check_own(&self.used.load(), this)
    }

    fn check_own(&self, used: &Used, this: StoreId) -> Result<(), String> {
        let name = name_of(&self.cluster, this);
        match used.own.iter().all(|certificate| has_name(certificate, &name)) {
            true => Ok(()),
            false => Err(format!(
                "this is store {this}, and its certificate (tls-cert-file) is for another: other stores expect the \
                 name {name} or *.{}.{DOMAIN}",
                self.cluster
            )),
        }
    }

    /// Returns true if the certificate is that of a store, or of any store with [`NO_STORE`].
    pub fn is_of(&self, certificate: &CertificateDer<'_>, store: StoreId) -> bool {
        has_name(certificate, &name_of(&self.cluster, store))
    }

    /// Returns the name that a certificate of the store needs, for messages.
    pub fn name_of(&self, store: StoreId) -> String {
        name_of(&self.cluster, store)
    }

    fn calling(&self, to: StoreId) -> std::io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let name = server_name(&name_of(&self.cluster, to)).map_err(std::io::Error::other)?;
        Ok((self.used.load().calling.clone(), name))
    }

    /// Completes the handshake with the store that was called.
    pub async fn call(&self, stream: TcpStream, to: StoreId) -> std::io::Result<PeerStream> {
        let (config, name) = self.calling(to)?;
        Ok(PeerStream::Tls(Box::new(TlsStream::connect(stream, config, name).await?)))
    }

    /// Completes the handshake with the store that was called, over a socket that waits.
    pub fn call_and_wait(
        &self,
        socket: std::net::TcpStream,
        to: StoreId,
        until: Instant,
    ) -> std::io::Result<PeerSocket> {
        let (config, name) = self.calling(to)?;
        PeerSocket::with_tls(socket, Session::client(config, name)?, until)
    }

    /// Completes the handshake with a caller.
    pub async fn accept(&self, stream: TcpStream) -> std::io::Result<PeerStream> {
        let config = self.used.load().accepting.clone();
        Ok(PeerStream::Tls(Box::new(TlsStream::accept(stream, config).await?)))
    }
}
