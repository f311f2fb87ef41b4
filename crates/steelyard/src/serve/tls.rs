//! The options of TLS.

use server::TlsSettings;

use super::options::Options;

/// Returns the settings of TLS. Without a port for it they must not be given.
pub fn settings(options: &Options) -> Result<TlsSettings, String> {
    let mut settings = TlsSettings::default();
    if options.tls_key_file_pass.is_some() {
        let why = server::tls_refusal("tls-key-file-pass").unwrap_or_default();
        return Err(format!("tls-key-file-pass: {why}"));
    }
    let given = [
        ("tls-cert-file", &options.tls_cert_file),
        ("tls-key-file", &options.tls_key_file),
        ("tls-client-cert-file", &options.tls_client_cert_file),
        ("tls-client-key-file", &options.tls_client_key_file),
        ("tls-ca-cert-file", &options.tls_ca_cert_file),
        ("tls-auth-clients", &options.tls_auth_clients),
        ("tls-auth-clients-user", &options.tls_auth_clients_user),
        ("tls-protocols", &options.tls_protocols),
        ("tls-session-caching", &options.tls_session_caching),
        ("tls-session-cache-size", &options.tls_session_cache_size),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            settings.set(name, value).map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_settings_and_a_passphrase_is_refused() {
        let options = Options {
            tls_cert_file: Some("c".into()),
            tls_auth_clients: Some("no".into()),
            ..Options::default()
        };
        let settings = settings(&options).unwrap();
        assert!(settings.all().contains(&("tls-auth-clients", "no".to_owned())));
        let with = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            super::settings(&options).unwrap_err()
        };
        assert!(with(|o| o.tls_key_file_pass = Some("x".into())).starts_with("tls-key-file-pass: keys with"));
        assert!(
            with(|o| o.tls_protocols = Some("TLSv1".into())).starts_with("tls-protocols: TLSv1 is not safe")
        );
    }
}
