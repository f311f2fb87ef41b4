//! Contents of certificates.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::{Any, Decode, Tag, Tagged};
use x509_cert::spki::ObjectIdentifier;
use x509_cert::Certificate;

/// X.520's attribute `commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The common name (CN) of the subject. A certificate with several has none, because readers
    /// differ in which of them they take.
    pub common_name: Option<String>,
    /// The last moment at which the certificate is valid, since 1970.
    pub valid_until: Duration,
}

/// Reads a certificate. Does not judge it.
pub fn facts(certificate: &CertificateDer<'_>) -> Option<Facts> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    let parts = certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = parts.filter(|part| part.oid == COMMON_NAME);
    let common_name = match (names.next(), names.next()) {
        (Some(only), None) => text(&only.value).filter(|name| !name.is_empty() && !name.contains('\0')),
        _ => None,
    };
    Some(Facts { common_name, valid_until: certificate.validity.not_after.to_unix_duration() })
}

fn text(value: &Any) -> Option<String> {
    let text = match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str().to_owned(),
        _ => return None,
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn name_in(subject: &[(DnType, DnValue)]) -> Option<String> {
        let mut params = CertificateParams::new(vec!["a.b.c".into()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (part, value) in subject {
            params.distinguished_name.push(part.clone(), value.clone());
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        facts(certificate.der()).unwrap().common_name
    }

    #[test]
    fn a_certificate_names_one_user_or_none() {
        let text = |name: &str| DnValue::Utf8String(name.into());
        let printable = DnValue::PrintableString("ann".try_into().unwrap());
        // The same attribute, which the library that writes certificates takes for another one.
        let second = DnType::CustomDnType(vec![2, 5, 4, 3]);
        for (subject, name) in [
            (vec![(DnType::CommonName, text("ann"))], Some("ann")),
            (vec![(DnType::CommonName, text("\u{e5}nn \u{1f511}"))], Some("\u{e5}nn \u{1f511}")),
            (vec![(DnType::CommonName, printable)], Some("ann")),
            (vec![(DnType::OrganizationName, text("ann")), (DnType::CommonName, text("bob"))], Some("bob")),
            (vec![(DnType::OrganizationName, text("ann"))], None),
            (vec![(DnType::CommonName, text(""))], None),
            (vec![(DnType::CommonName, text("ann\0bob"))], None),
            (vec![(DnType::CommonName, text("ann")), (second, text("bob"))], None),
            (vec![], None),
        ] {
            assert_eq!(name_in(&subject).as_deref(), name, "{subject:?}");
        }
        assert_eq!(facts(&CertificateDer::from(vec![0x30, 0x80, 1])), None);
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let mut params = CertificateParams::new(vec!["a.b.c".into()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(facts(certificate.der()).unwrap().valid_until, Duration::from_secs(1_893_456_000));
    }
}
