//! The settings of the sessions with ZooKeeper, and what the files of their TLS contain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::ClientConfig;
use tls_stream::{files, provider};

use crate::secrets::HIDDEN;
use crate::tls_settings::named;

const ROOT: &str = "/steelyard";
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// A ZooKeeper ensemble, and this store's sessions with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeper {
    /// `HOST:PORT`, comma-separated.
    pub servers: String,
    /// The znode under which each cluster has a directory.
    pub root: String,
    pub session_timeout: Duration,
    /// `USER:PASSWORD` of the scheme `digest`. Only who has it may read or change the znodes.
    pub digest: Option<String>,
    /// `None` without TLS.
    pub tls: Option<ZooKeeperTls>,
}

/// The files of connections with ZooKeeper, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperTls {
    /// The certificates that sign those of the servers.
    pub ca_cert_file: PathBuf,
    /// The certificate that this store shows, with its chain, and the key.
    pub own_files: Option<(PathBuf, PathBuf)>,
}

impl ZooKeeper {
    /// Parses `HOST:PORT[,HOST:PORT...][/ROOT]`. The default root is `/steelyard`.
    pub fn parse(text: &str) -> Result<ZooKeeper, String> {
        let (servers, root) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ROOT),
        };
        let is_server = |server: &str| {
            let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        let is_root = root[1..].split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        match servers.split(',').all(is_server) && is_root {
            true => Ok(ZooKeeper {
                servers: servers.to_owned(),
                root: root.to_owned(),
                session_timeout: SESSION_TIMEOUT,
                digest: None,
                tls: None,
            }),
            false => Err(format!("zookeeper is HOST:PORT[,HOST:PORT...][/ROOT], not '{text}'")),
        }
    }

    /// Checks what `parse` cannot: the session timeout, and that certificates can be for the hosts.
    pub fn check(&self) -> Result<(), String> {
        if self.session_timeout < SESSION_TIMEOUT_MIN {
            return Err("zookeeper-session-timeout must be at least 100 ms".into());
        }
        if self.tls.is_none() {
            return Ok(());
        }
        let hosts = self.servers.split(',').filter_map(|server| server.rsplit_once(':'));
        for (host, _) in hosts {
            let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            if ServerName::try_from(address.unwrap_or(host)).is_err() {
                return Err(format!("zookeeper: no certificate can be for the host '{host}'"));
            }
        }
        Ok(())
    }
}

impl ZooKeeperTls {
    /// Reads the files. The error names the setting and the reason, for the operator.
    pub fn load(&self) -> Result<Arc<ClientConfig>, String> {
        let roots = named("zookeeper-tls-ca-cert-file", files::authorities(&self.ca_cert_file))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("zookeeper-tls: {error}"))?
            .with_root_certificates(roots);
        let mut config = match &self.own_files {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = named("zookeeper-tls-cert-file", files::certificates(certificate))?;
                let key = named("zookeeper-tls-key-file", files::private_key(key))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("zookeeper-tls-cert-file and zookeeper-tls-key-file: {error}"))?
            }
        };
        // Each connection is judged by the certificates of its time.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// Returns the settings with their values, as `CONFIG GET` shows them.
pub fn shown(ensemble: Option<&ZooKeeper>) -> Vec<(&'static str, String)> {
    let tls = ensemble.and_then(|ensemble| ensemble.tls.as_ref());
    let own = tls.and_then(|tls| tls.own_files.as_ref());
    let file = |path: Option<&PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
    let timeout = ensemble.map_or(SESSION_TIMEOUT, |ensemble| ensemble.session_timeout);
    let auth = ensemble.and_then(|ensemble| ensemble.digest.as_ref()).map_or("", |_| HIDDEN);
    vec![
        ("zookeeper", ensemble.map_or(String::new(), |known| format!("{}{}", known.servers, known.root))),
        ("zookeeper-session-timeout", timeout.as_millis().to_string()),
        ("zookeeper-auth", auth.to_owned()),
        ("zookeeper-tls", if tls.is_some() { "yes" } else { "no" }.to_owned()),
        ("zookeeper-tls-ca-cert-file", file(tls.map(|tls| &tls.ca_cert_file))),
        ("zookeeper-tls-cert-file", file(own.map(|(certificate, _)| certificate))),
        ("zookeeper-tls-key-file", file(own.map(|(_, key)| key))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_tls(servers: &str, own: Option<(&str, &str)>) -> ZooKeeper {
        let own_files = own.map(|(certificate, key)| (certificate.into(), key.into()));
        let tls = Some(ZooKeeperTls { ca_cert_file: "/nowhere/a".into(), own_files });
        ZooKeeper { tls, ..ZooKeeper::parse(servers).unwrap() }
    }

    #[test]
    fn settings_are_shown_without_the_password() {
        let mut ensemble = with_tls("a:1,b:2/r", Some(("/c", "/k")));
        ensemble.digest = Some("user:secret".into());
        let values = |shown: Vec<(_, String)>| shown.into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        let expected = ["a:1,b:2/r", "6000", HIDDEN, "yes", "/nowhere/a", "/c", "/k"];
        assert_eq!(values(shown(Some(&ensemble))), expected);
        assert_eq!(values(shown(None)), ["", "6000", "", "no", "", "", ""]);
    }

    #[test]
    fn files_that_cannot_be_read_are_errors_that_name_the_setting() {
        let tls = with_tls("a:1", None).tls.unwrap();
        let why = tls.load().unwrap_err();
        assert!(why.starts_with("zookeeper-tls-ca-cert-file: /nowhere/a cannot be read"), "{why}");
    }

    #[test]
    fn hosts_that_no_certificate_can_name_are_refused_with_tls_only() {
        for servers in ["a.b:1,127.0.0.1:2", "[::1]:2181"] {
            assert_eq!(with_tls(servers, None).check(), Ok(()), "{servers}");
        }
        let plain = ZooKeeper::parse("a b:1").unwrap();
        assert_eq!(plain.check(), Ok(()));
        assert!(with_tls("a b:1", None).check().is_err_and(|why| why.contains("'a b'")));
    }
}
