//! The settings of TLS, by their names in Redis, and what their files contain.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tls_stream::{files, provider};

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
    /// The certificate for connections that this store opens, if it differs.
    pub client_cert_file: Option<PathBuf>,
    pub client_key_file: Option<PathBuf>,
    pub ca_cert_file: Option<PathBuf>,
    pub auth_clients: ClientCertificates,
    /// True if the common name of a client's certificate is the name of its user.
    pub names_users: bool,
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
            client_cert_file: None,
            client_key_file: None,
            ca_cert_file: None,
            auth_clients: ClientCertificates::Required,
            names_users: false,
            tls12: true,
            tls13: true,
            session_caching: true,
            session_cache_size: 20 * 1024,
        }
    }
}

/// Names of Redis's settings that this server does not have, and the reasons.
const REFUSED: [(&str, &str); 6] = [
    (
        "tls-key-file-pass",
        "keys with a passphrase cannot be read: give the key a file without one, for its owner only",
    ),
    ("tls-ca-cert-dir", "give the certificates in one file: tls-ca-cert-file"),
    ("tls-dh-params-file", "finite-field Diffie-Hellman is not offered"),
    ("tls-ciphers", "the cipher suites are those of rustls and cannot be chosen"),
    ("tls-ciphersuites", "the cipher suites are those of rustls and cannot be chosen"),
    ("tls-replication", "all connections between stores are those of tls-cluster"),
];

/// The names of the settings in [`TlsSettings`].
pub const NAMES: [&str; 10] = [
    "tls-cert-file",
    "tls-key-file",
    "tls-client-cert-file",
    "tls-client-key-file",
    "tls-ca-cert-file",
    "tls-auth-clients",
    "tls-auth-clients-user",
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
            "tls-client-cert-file" => self.client_cert_file = file(),
            "tls-client-key-file" => self.client_key_file = file(),
            "tls-ca-cert-file" => self.ca_cert_file = file(),
            "tls-auth-clients" => {
                self.auth_clients = match value.to_ascii_lowercase().as_str() {
                    "yes" => ClientCertificates::Required,
                    "optional" => ClientCertificates::Optional,
                    "no" => ClientCertificates::NotAsked,
                    _ => return Err("argument(s) must be one of the following: no, yes, optional".to_owned()),
                }
            }
            "tls-auth-clients-user" => {
                self.names_users = match value.to_ascii_lowercase().as_str() {
                    "cn" => true,
                    "off" => false,
                    _ => return Err("argument(s) must be one of the following: off, CN".to_owned()),
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
            file(&self.client_cert_file),
            file(&self.client_key_file),
            file(&self.ca_cert_file),
            auth.to_owned(),
            if self.names_users { "CN" } else { "off" }.to_owned(),
            protocols.to_owned(),
            if self.session_caching { "yes" } else { "no" }.to_owned(),
            self.session_cache_size.to_string(),
        ];
        NAMES.into_iter().zip(values).collect()
    }

    /// Returns the files that are set, each with its setting.
    fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let files = [
            ("tls-cert-file", &self.cert_file),
            ("tls-key-file", &self.key_file),
            ("tls-client-cert-file", &self.client_cert_file),
            ("tls-client-key-file", &self.client_key_file),
            ("tls-ca-cert-file", &self.ca_cert_file),
        ];
        files.into_iter().filter_map(|(setting, path)| Some((setting, path.as_ref()?)))
    }

    /// Returns the times at which the files were last changed.
    pub fn stamps(&self) -> Vec<Option<SystemTime>> {
        self.files().map(|(_, path)| fs::metadata(path).and_then(|facts| facts.modified()).ok()).collect()
    }

    /// Checks that the files can be opened, also those that nothing uses yet.
    pub fn check_files(&self) -> Result<(), String> {
        for (setting, path) in self.files() {
            let opened = fs::File::open(path).map(drop);
            named(setting, opened.map_err(|error| format!("{} cannot be read: {error}", path.display())))?;
        }
        Ok(())
    }

    /// Reads this store's certificate, with its chain, and its key.
    pub fn own_certificate(&self) -> Result<Pair, String> {
        let cert_file = self.cert_file.as_ref().ok_or("No tls-cert-file configured!")?;
        let key_file = self.key_file.as_ref().ok_or("No tls-key-file configured!")?;
        let chain = named("tls-cert-file", files::certificates(cert_file))?;
        Ok((chain, named("tls-key-file", files::private_key(key_file))?))
    }

    /// Reads the certificate for connections that this store opens, if it has one of its own.
    pub fn client_certificate(&self) -> Result<Option<Pair>, String> {
        match (&self.client_cert_file, &self.client_key_file) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => {
                let chain = named("tls-client-cert-file", files::certificates(cert))?;
                Ok(Some((chain, named("tls-client-key-file", files::private_key(key))?)))
            }
            _ => Err("tls-client-cert-file and tls-client-key-file need each other".into()),
        }
    }

    /// Reads the files for clients. The error names the setting and the reason, for the operator.
    pub fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let (chain, key) = self.own_certificate()?;
        let versions: Vec<&'static SupportedProtocolVersion> =
            [self.tls12.then_some(&rustls::version::TLS12), self.tls13.then_some(&rustls::version::TLS13)]
                .into_iter()
                .flatten()
                .collect();
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions)
            .map_err(|error| format!("tls-protocols: {error}"))?;
        let builder = match self.auth_clients {
            ClientCertificates::NotAsked => builder.with_no_client_auth(),
            wanted => {
                let path = self.ca_cert_file.as_ref().ok_or(
                    "tls-auth-clients needs tls-ca-cert-file, whose certificates sign those of clients",
                )?;
                let roots = named("tls-ca-cert-file", files::authorities(path))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
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

/// A certificate with its chain, and its key.
pub type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Names the setting in the error of a file.
pub fn named<T>(setting: &str, read: Result<T, String>) -> Result<T, String> {
    read.map_err(|why| format!("{setting}: {why}"))
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
            ("tls-client-cert-file", "/d"),
            ("tls-client-key-file", "/l"),
            ("tls-ca-cert-file", "/a"),
            ("tls-auth-clients", "optional"),
            ("tls-auth-clients-user", "CN"),
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
            ("tls-auth-clients-user", "URI"),
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
        settings.client_key_file = Some("/nowhere/k".into());
        assert!(settings.client_certificate().is_err_and(|why| why.contains("need each other")));
    }
}
