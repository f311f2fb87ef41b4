//! TLS for clients: the settings, and the certificates that new connections get.
//!
//! A change of the settings or of the files replaces what new connections get; open connections
//! continue with the keys that they agreed on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

/// Maximum number of connections that are in their handshake at the same time.
pub const HANDSHAKES_MAX: usize = 1024;

/// `tls-auth-clients`: the certificates of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    Required,
    /// A client may have a certificate; then it must be valid.
    Optional,
    NotAsked,
}

/// The settings, by their names in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub ca_cert_file: Option<PathBuf>,
    pub auth_clients: ClientCertificates,
    pub tls12: bool,
    pub tls13: bool,
    pub session_caching: bool,
    pub session_cache_size: usize,
}

impl Default for TlsSettings {
    fn default() -> TlsSettings {
        TlsSettings {
            cert_file: None,
            key_file: None,
            ca_cert_file: None,
            auth_clients: ClientCertificates::Required,
            tls12: true,
            tls13: true,
            session_caching: true,
            session_cache_size: 20 * 1024,
        }
    }
}

/// Names of Redis's settings that this server does not have, and the reasons.
const REFUSED: [(&str, &str); 9] = [
    (
        "tls-key-file-pass",
        "keys with a passphrase cannot be read: give the key a file without one, for its owner only",
    ),
    ("tls-client-cert-file", "a store opens no TLS connections"),
    ("tls-client-key-file", "a store opens no TLS connections"),
    ("tls-ca-cert-dir", "give the certificates in one file: tls-ca-cert-file"),
    ("tls-dh-params-file", "finite-field Diffie-Hellman is not offered"),
    ("tls-ciphers", "the cipher suites are those of rustls and cannot be chosen"),
    ("tls-ciphersuites", "the cipher suites are those of rustls and cannot be chosen"),
    ("tls-replication", "connections between stores are not encrypted"),
    ("tls-cluster", "connections between stores are not encrypted"),
];

/// The names of the settings in [`TlsSettings`].
pub const NAMES: [&str; 7] = [
    "tls-cert-file",
    "tls-key-file",
    "tls-ca-cert-file",
    "tls-auth-clients",
    "tls-protocols",
    "tls-session-caching",
    "tls-session-cache-size",
];

/// Returns the reason why a setting of Redis does not exist here.
pub fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

impl TlsSettings {
    /// Sets one of [`NAMES`]. The error is the reason, in Redis's words where it has some.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let file = || (!value.is_empty()).then(|| PathBuf::from(value));
        let yes_no = || match value.to_ascii_lowercase().as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err("argument must be 'yes' or 'no'".to_owned()),
        };
        match name {
            "tls-cert-file" => self.cert_file = file(),
            "tls-key-file" => self.key_file = file(),
            "tls-ca-cert-file" => self.ca_cert_file = file(),
            "tls-auth-clients" => {
                self.auth_clients = match value.to_ascii_lowercase().as_str() {
                    "yes" => ClientCertificates::Required,
                    "optional" => ClientCertificates::Optional,
                    "no" => ClientCertificates::NotAsked,
                    _ => return Err("argument(s) must be one of the following: no, yes, optional".to_owned()),
                }
            }
            "tls-protocols" => {
                let (mut tls12, mut tls13) = (value.is_empty(), value.is_empty());
                for protocol in value.split_ascii_whitespace() {
                    match protocol.to_ascii_lowercase().as_str() {
                        "tlsv1.2" => tls12 = true,
                        "tlsv1.3" => tls13 = true,
                        "tlsv1" | "tlsv1.1" => {
                            return Err(format!(
                                "{protocol} is not safe and not offered: use TLSv1.2 or TLSv1.3"
                            ))
                        }
                        _ => return Err(format!("unknown protocol '{protocol}'")),
                    }
                }
                (self.tls12, self.tls13) = (tls12, tls13);
            }
            "tls-session-caching" => self.session_caching = yes_no()?,
            "tls-session-cache-size" => {
                let size =
                    value.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
                self.session_cache_size = size;
            }
            other => return Err(format!("unknown setting {other}")),
        }
        Ok(())
    }

    /// Returns the settings with their values, as `CONFIG GET` shows them.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        let file =
            |file: &Option<PathBuf>| file.as_ref().map_or(String::new(), |path| path.display().to_string());
        let auth = match self.auth_clients {
            ClientCertificates::Required => "yes",
            ClientCertificates::Optional => "optional",
            ClientCertificates::NotAsked => "no",
        };
        let protocols = match (self.tls12, self.tls13) {
            (true, true) => "",
            (true, false) => "TLSv1.2",
            (false, _) => "TLSv1.3",
        };
        let values = [
            file(&self.cert_file),
            file(&self.key_file),
            file(&self.ca_cert_file),
            auth.to_owned(),
            protocols.to_owned(),
            if self.session_caching { "yes" } else { "no" }.to_owned(),
            self.session_cache_size.to_string(),
        ];
        NAMES.into_iter().zip(values).collect()
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert_file, &self.key_file, &self.ca_cert_file].into_iter().flatten()
    }

    /// Returns the times at which the files were last changed.
    fn stamps(&self) -> Vec<Option<SystemTime>> {
        self.files().map(|path| fs::metadata(path).and_then(|facts| facts.modified()).ok()).collect()
    }

    /// Reads the files. The error names the setting and the reason, for the operator.
    pub fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let cert_file = self.cert_file.as_ref().ok_or("No tls-cert-file configured!")?;
        let key_file = self.key_file.as_ref().ok_or("No tls-key-file configured!")?;
        let chain = certificates("tls-cert-file", cert_file)?;
        let key = PrivateKeyDer::from_pem_file(key_file)
            .map_err(|error| unreadable("tls-key-file", key_file, &error))?;
        let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
        let versions: Vec<&'static SupportedProtocolVersion> =
            [self.tls12.then_some(&rustls::version::TLS12), self.tls13.then_some(&rustls::version::TLS13)]
                .into_iter()
                .flatten()
                .collect();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| format!("tls-protocols: {error}"))?;
        let builder = match self.auth_clients {
            ClientCertificates::NotAsked => builder.with_no_client_auth(),
            wanted => {
                let path = self.ca_cert_file.as_ref().ok_or(
                    "tls-auth-clients needs tls-ca-cert-file, whose certificates sign those of clients",
                )?;
                let mut roots = RootCertStore::empty();
                for certificate in certificates("tls-ca-cert-file", path)? {
                    roots.add(certificate).map_err(|error| unreadable("tls-ca-cert-file", path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match wanted {
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(
                    verifier.build().map_err(|error| format!("tls-ca-cert-file: {error}"))?,
                )
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("tls-cert-file and tls-key-file: {error}"))?;
        config.session_storage = match self.session_caching {
            true => ServerSessionMemoryCache::new(self.session_cache_size),
            false => Arc::new(NoServerSessionStorage {}),
        };
        Ok(Arc::new(config))
    }
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(|error| unreadable(setting, path, &error))?;
    match found.is_empty() {
        true => Err(format!("{setting}: {} has no certificate", path.display())),
        false => Ok(found),
    }
}

fn unreadable(setting: &str, path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{setting}: {} cannot be read: {error}", path.display())
}

/// The certificates that new connections get.
#[derive(Default)]
pub struct Tls {
    offered: ArcSwapOption<ServerConfig>,
    /// The settings that are in force, and the times of their files.
    loaded: Mutex<Option<(TlsSettings, Vec<Option<SystemTime>>)>>,
    handshakes: Arc<AtomicUsize>,
}

/// A connection in its handshake, among at most [`HANDSHAKES_MAX`].
pub struct Handshake(Arc<AtomicUsize>);

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tls {
    /// Reads the files of the settings, for new connections. An error changes nothing.
    pub fn load(&self, settings: &TlsSettings) -> Result<(), String> {
        let mut loaded = self.loaded.lock();
        // A file that changes while it is read is read again later.
        let stamps = settings.stamps();
        self.offered.store(Some(settings.load()?));
        *loaded = Some((settings.clone(), stamps));
        Ok(())
    }

    /// Reads the files again if they have changed. Returns false if nothing has changed.
    pub fn load_if_changed(&self) -> Result<bool, String> {
        let (settings, stamps) = match &*self.loaded.lock() {
            Some((settings, stamps)) => (settings.clone(), stamps.clone()),
            None => return Ok(false),
        };
        match settings.stamps() == stamps {
            true => Ok(false),
            false => self.load(&settings).map(|()| true),
        }
    }

    /// Begins a handshake; `None` without TLS, or if too many are in progress.
    pub fn begin(&self) -> Option<(Arc<ServerConfig>, Handshake)> {
        let config = self.offered.load_full()?;
        let before = self.handshakes.fetch_add(1, Ordering::Relaxed);
        let handshake = Handshake(self.handshakes.clone());
        (before < HANDSHAKES_MAX).then_some((config, handshake))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_were_set() {
        let mut settings = TlsSettings::default();
        for (name, value) in [
            ("tls-cert-file", "/c"),
            ("tls-key-file", "/k"),
            ("tls-ca-cert-file", "/a"),
            ("tls-auth-clients", "optional"),
            ("tls-protocols", "TLSv1.3"),
            ("tls-session-caching", "no"),
            ("tls-session-cache-size", "7"),
        ] {
            settings.set(name, value).unwrap();
            assert!(settings.all().contains(&(name, value.to_owned())), "{name}");
        }
        assert!(settings.set("tls-protocols", "tlsv1.2 TLSv1.3").is_ok() && settings.tls12 && settings.tls13);
        for (name, value) in [
            ("tls-auth-clients", "maybe"),
            ("tls-protocols", "TLSv1.1"),
            ("tls-protocols", "SSLv3"),
            ("tls-session-caching", "1"),
            ("tls-session-cache-size", "-1"),
        ] {
            assert!(settings.set(name, value).is_err(), "{name} {value}");
        }
        assert!(refusal("tls-ciphers").is_some() && refusal("tls-cert-file").is_none());
    }

    #[test]
    fn missing_files_are_errors_that_name_the_setting() {
        let mut settings = TlsSettings::default();
        assert_eq!(settings.load().unwrap_err(), "No tls-cert-file configured!");
        settings.cert_file = Some("/nowhere/c".into());
        assert_eq!(settings.load().unwrap_err(), "No tls-key-file configured!");
        settings.key_file = Some("/nowhere/k".into());
        assert!(settings.load().unwrap_err().starts_with("tls-cert-file: /nowhere/c cannot be read"));
        let tls = Tls::default();
        assert!(tls.load(&settings).is_err() && tls.begin().is_none());
        assert_eq!(tls.load_if_changed(), Ok(false));
    }
}
