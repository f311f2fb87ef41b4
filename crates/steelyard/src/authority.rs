//! A certificate authority for development and tests: a directory with its key and certificate, and
//! the certificates that it signs for stores and clients.
//!
//! Whoever has the authority's key can make certificates for any store. For real use, sign the
//! certificates elsewhere, with the same names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context};
use client::tls::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

const AUTHORITY_KEY_FILE: &str = "ca.key";
const AUTHORITY_NAME: &str = "Steelyard development authority";
const AUTHORITY_DAYS: u32 = 3650;
/// Time by which certificates are valid before they are made, because clocks differ.
const BEFORE: Duration = Duration::HOUR;
/// File modes: of keys, and of everything else.
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

pub struct Authority {
    dir: PathBuf,
    certificate: Certificate,
    key: KeyPair,
}

/// The owner of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<'a> {
    Store(u64),
    /// A store whose number is not known yet.
    AnyStore,
    Client,
    /// A client with the user of this name (`tls-auth-clients-user`).
    User(&'a str),
}

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The content of the certificates to sign.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The cluster's name, as in `tls-cluster-name`.
    pub cluster: String,
    /// Addresses and names of hosts at which clients reach the stores.
    pub hosts: Vec<String>,
    pub days: u32,
}

impl Authority {
    /// Opens the authority in a directory, or creates one there.
    pub fn open(dir: &Path) -> anyhow::Result<Authority> {
        if !dir.exists() {
            fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        }
        let key_file = dir.join(AUTHORITY_KEY_FILE);
        let is_new = !key_file.exists();
        ensure!(
            !is_new || !dir.join(AUTHORITY_FILE).exists(),
            "{} has the certificate of an authority whose key is elsewhere",
            dir.display()
        );
        let key = kept_key(&key_file)?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        valid_for(&mut params, AUTHORITY_DAYS);
        // Signing needs only the authority's name and key, which are the same in the kept file.
        let certificate = params.self_signed(&key)?;
        if is_new {
            write(&dir.join(AUTHORITY_FILE), certificate.pem(), PUBLIC)?;
        }
        Ok(Authority { dir: dir.to_owned(), certificate, key })
    }

    /// Signs a certificate, in place of an earlier one. The owner's key stays the same.
    pub fn sign(&self, owner: Owner<'_>, terms: &Terms) -> anyhow::Result<Files> {
        let files = self.files(owner);
        let key = kept_key(&files.key)?;
        let Terms { cluster, hosts, days } = terms;
        let any = format!("store.{cluster}.steelyard");
        let mut names = match owner {
            Owner::Store(id) => vec![format!("store-{id}.{cluster}.steelyard"), any],
            Owner::AnyStore => vec![format!("*.{cluster}.steelyard")],
            Owner::Client | Owner::User(_) => Vec::new(),
        };
        let is_client = names.is_empty();
        if !is_client {
            names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
            names.extend(hosts.iter().cloned());
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, common_name(owner));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match is_client {
            true => vec![ExtendedKeyUsagePurpose::ClientAuth],
            false => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        valid_for(&mut params, *days);
        let certificate = params.signed_by(&key, &self.certificate, &self.key)?;
        write(&files.certificate, certificate.pem(), PUBLIC)?;
        Ok(files)
    }

    /// Returns the file of the authority's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.dir.join(AUTHORITY_FILE)
    }

    /// Returns the files of an owner's certificate, whether they exist or not.
    pub fn files(&self, owner: Owner<'_>) -> Files {
        match owner {
            Owner::Client => {
                Files { certificate: self.dir.join(CERTIFICATE_FILE), key: self.dir.join(KEY_FILE) }
            }
            owner => {
                let stem = stem(owner);
                let file = |extension| self.dir.join(format!("{stem}.{extension}"));
                Files { certificate: file("crt"), key: file("key") }
            }
        }
    }
}

fn stem(owner: Owner<'_>) -> String {
    match owner {
        Owner::Store(id) => format!("store-{id}"),
        Owner::AnyStore => "any-store".into(),
        Owner::Client => "client".into(),
        Owner::User(name) => format!("user-{name}"),
    }
}

fn common_name(owner: Owner<'_>) -> String {
    match owner {
        Owner::User(name) => name.to_owned(),
        owner => format!("steelyard {}", stem(owner)),
    }
}

fn valid_for(params: &mut CertificateParams, days: u32) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BEFORE;
    params.not_after = now + Duration::days(i64::from(days));
}

/// Reads a private key, or makes one.
fn kept_key(path: &Path) -> anyhow::Result<KeyPair> {
    match fs::read_to_string(path) {
        Ok(text) => KeyPair::from_pem(&text).with_context(|| format!("{} is no key", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = KeyPair::generate()?;
            write(path, key.serialize_pem(), SECRET)?;
            Ok(key)
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

fn write(path: &Path, text: String, mode: u32) -> anyhow::Result<()> {
    durable::write_with_mode(path, text, mode)
        .with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn terms() -> Terms {
        Terms { cluster: "a".into(), hosts: vec!["10.0.0.1".into()], days: 30 }
    }

    #[test]
    fn keys_are_readable_for_their_owner_only_and_stay_the_same_in_renewed_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(&dir.path().join("tls")).unwrap();
        for owner in [Owner::Store(0), Owner::AnyStore, Owner::Client, Owner::User("ann")] {
            let files = authority.sign(owner, &terms()).unwrap();
            let read = |path: &Path| fs::read_to_string(path).unwrap();
            let (certificate, key) = (read(&files.certificate), read(&files.key));
            let again = Authority::open(&dir.path().join("tls")).unwrap();
            assert_eq!(again.sign(owner, &terms()).unwrap(), files);
            assert_eq!(read(&files.key), key);
            assert_ne!(read(&files.certificate), certificate);
        }
        for entry in fs::read_dir(dir.path().join("tls")).unwrap() {
            let path = entry.unwrap().path();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            let is_key = path.extension().is_some_and(|extension| extension == "key");
            let allowed = if is_key { SECRET } else { PUBLIC };
            assert_eq!(mode & !allowed, 0, "{}: {mode:o}", path.display());
        }
    }

    #[test]
    fn an_authority_whose_key_is_elsewhere_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        Authority::open(dir.path()).unwrap();
        fs::remove_file(dir.path().join(AUTHORITY_KEY_FILE)).unwrap();
        assert!(Authority::open(dir.path()).is_err());
        fs::write(dir.path().join(AUTHORITY_KEY_FILE), "no key").unwrap();
        assert!(Authority::open(dir.path()).is_err());
    }
}
