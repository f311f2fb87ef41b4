//! Files of certificates and keys, in PEM.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::RootCertStore;

/// Reads the certificates of a file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(|error| unreadable(path, &error))?;
    match found.is_empty() {
        true => Err(format!("{} has no certificate", path.display())),
        false => Ok(found),
    }
}

/// Reads a private key without a passphrase.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable(path, &error))
}

/// Reads the certificates of authorities.
pub fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unreadable(path, &error))?;
    }
    Ok(roots)
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{} cannot be read: {error}", path.display())
}
