//! Names in certificates.

use rustls::pki_types::CertificateDer;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::{Any, Decode, Tag, Tagged};
use x509_cert::spki::ObjectIdentifier;
use x509_cert::Certificate;

/// X.520's attribute `commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Returns the common name (CN) of a certificate's subject. A certificate with several has none,
/// because readers differ in which of them they take.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let parts = certificate.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = parts.filter(|part| part.oid == COMMON_NAME);
    let (Some(only), None) = (names.next(), names.next()) else { return None };
    text(&only.value).filter(|name| !name.is_empty() && !name.contains('\0'))
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
        common_name(certificate.der())
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
        assert_eq!(common_name(&CertificateDer::from(vec![0x30, 0x80, 1])), None);
    }
}
