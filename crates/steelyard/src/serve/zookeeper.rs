//! The options of the sessions with ZooKeeper.

use std::path::PathBuf;
use std::time::Duration;

use server::{ZooKeeper, ZooKeeperTls};

use super::options::{Options, YesNo};

/// Returns the ensemble, if there is one.
pub fn settings(options: &Options) -> Result<Option<ZooKeeper>, String> {
    let Some(servers) = &options.zookeeper else {
        let others = [
            ("zookeeper-session-timeout", options.zookeeper_session_timeout.is_some()),
            ("zookeeper-auth", options.zookeeper_auth.is_some()),
            ("zookeeper-tls", options.zookeeper_tls.is_some_and(|yes| yes.0)),
            ("zookeeper-tls-ca-cert-file", options.zookeeper_tls_ca_cert_file.is_some()),
            ("zookeeper-tls-cert-file", options.zookeeper_tls_cert_file.is_some()),
            ("zookeeper-tls-key-file", options.zookeeper_tls_key_file.is_some()),
        ];
        return match others.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(format!("{name} needs zookeeper")),
            None => Ok(None),
        };
    };
    let mut ensemble = ZooKeeper::parse(servers)?;
    if let Some(ms) = options.zookeeper_session_timeout {
        ensemble.session_timeout = Duration::from_millis(ms);
    }
    if options.zookeeper_auth.as_ref().is_some_and(|auth| !auth.contains(':')) {
        return Err("zookeeper-auth is USER:PASSWORD".into());
    }
    ensemble.digest = options.zookeeper_auth.clone();
    ensemble.tls = tls(options)?;
    Ok(Some(ensemble))
}

fn tls(options: &Options) -> Result<Option<ZooKeeperTls>, String> {
    let path = |file: &Option<String>| file.as_ref().filter(|file| !file.is_empty()).map(PathBuf::from);
    let ca = path(&options.zookeeper_tls_ca_cert_file);
    let certificate = path(&options.zookeeper_tls_cert_file);
    let key = path(&options.zookeeper_tls_key_file);
    match options.zookeeper_tls {
        Some(YesNo(true)) => {}
        Some(YesNo(false)) => return Ok(None),
        // Otherwise a forgotten setting would send the password in plain text.
        None if ca.is_some() || certificate.is_some() || key.is_some() => {
            return Err("certificates for ZooKeeper need zookeeper-tls yes".into())
        }
        None => return Ok(None),
    }
    let ca_cert_file = ca.ok_or(
        "zookeeper-tls needs zookeeper-tls-ca-cert-file, whose certificates sign those of the servers",
    )?;
    let own_files = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        _ => return Err("zookeeper-tls-cert-file and zookeeper-tls-key-file need each other".into()),
    };
    Ok(Some(ZooKeeperTls { ca_cert_file, own_files }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<ZooKeeper>, String> {
        settings(&Options::parse(text).unwrap())
    }

    #[test]
    fn an_ensemble_with_tls_has_its_files() {
        let text = "zookeeper = \"a:1/r\"\nzookeeper-tls = \"yes\"\nzookeeper-tls-ca-cert-file = \"ca\"\n";
        let tls = |text: &str| read(text).unwrap().expect("an ensemble").tls;
        let known = tls(text).unwrap();
        assert_eq!((known.ca_cert_file, known.own_files), ("ca".into(), None));
        let own = format!("{text}zookeeper-tls-cert-file = \"c\"\nzookeeper-tls-key-file = \"k\"\n");
        assert_eq!(tls(&own).unwrap().own_files, Some(("c".into(), "k".into())));
        // The files may stay while TLS is off, if that is said.
        assert_eq!(tls(&own.replace("yes", "no")), None);
        assert_eq!(tls("zookeeper = \"a:1\""), None);
        assert_eq!(read(""), Ok(None));
    }

    #[test]
    fn settings_without_those_that_they_need_are_refused() {
        for (text, part) in [
            ("zookeeper-auth = \"a:b\"", "zookeeper-auth needs zookeeper"),
            ("zookeeper-tls = \"yes\"", "zookeeper-tls needs zookeeper"),
            ("zookeeper-tls-cert-file = \"c\"", "zookeeper-tls-cert-file needs zookeeper"),
            ("zookeeper = \"a:1\"\nzookeeper-auth = \"a\"", "USER:PASSWORD"),
            ("zookeeper = \"a:1\"\nzookeeper-tls = \"yes\"", "needs zookeeper-tls-ca-cert-file"),
            ("zookeeper = \"a:1\"\nzookeeper-tls-ca-cert-file = \"c\"", "need zookeeper-tls yes"),
            (
                "zookeeper = \"a:1\"\nzookeeper-tls = \"yes\"\nzookeeper-tls-ca-cert-file = \"c\"\n\
                 zookeeper-tls-key-file = \"k\"",
                "need each other",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
