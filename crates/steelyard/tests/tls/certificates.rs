//! Certificates for tests, in a directory of their own.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    date_time_ymd, BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// An authority, and the files that it has signed.
pub struct Authority {
    certificate: Certificate,
    key: KeyPair,
    dir: PathBuf,
    name: String,
}

impl Authority {
    /// Creates an authority whose certificate is in the file `NAME.crt`.
    pub fn new(dir: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(dir.join(format!("{name}.crt")), certificate.pem()).expect("a file");
        Authority { certificate, key, dir: dir.to_owned(), name: name.to_owned() }
    }

    pub fn file(&self) -> String {
        self.path(&format!("{}.crt", self.name))
    }

    fn path(&self, file: &str) -> String {
        self.dir.join(file).to_str().expect("a plain path").to_owned()
    }

    /// Signs a certificate for 127.0.0.1. Returns its file and the file of its key.
    pub fn sign(&self, name: &str) -> (String, String) {
        self.sign_until(name, 4000)
    }

    /// Signs a certificate that is valid until the beginning of a year.
    pub fn sign_until(&self, name: &str, year: i32) -> (String, String) {
        self.sign_for(name, &[], year)
    }

    /// Signs a certificate of a store of a cluster, whose number is among its names.
    #[allow(dead_code, reason = "not every test has stores with certificates")]
    pub fn sign_store(&self, file: &str, store: u64, cluster: &str) -> (String, String) {
        let names = [format!("store-{store}.{cluster}.steelyard"), format!("store.{cluster}.steelyard")];
        self.sign_for(file, &names, 4000)
    }

    /// Signs a certificate for 127.0.0.1 and for more names.
    pub fn sign_for(&self, name: &str, more: &[String], year: i32) -> (String, String) {
        self.sign_until_time(name, more, date_time_ymd(year, 1, 1))
    }

    /// Signs a certificate that is valid until a moment.
    pub fn sign_until_time(&self, name: &str, more: &[String], until: OffsetDateTime) -> (String, String) {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let names: Vec<String> = names.into_iter().chain(more.iter().cloned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = until;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.certificate, &self.key).expect("a certificate");
        let (crt, secret) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        fs::write(&crt, certificate.pem()).expect("a file");
        fs::write(&secret, key.serialize_pem()).expect("a file");
        (crt, secret)
    }
}
