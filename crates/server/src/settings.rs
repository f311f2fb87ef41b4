//! What `CONFIG GET` shows and `CONFIG SET` changes on a running store.
//!
//! These are this store's own settings: none of them is read by the execution of replicated commands.

use resp::Limits;

use crate::config::Config;

#[derive(Clone, Debug)]
pub struct Settings {
    pub requirepass: Option<String>,
    pub protected_mode: bool,
    pub maxclients: usize,
    pub limits: Limits,
    pub loglevel: String,
    fixed: Vec<(&'static str, String)>,
}

/// Why a setting was not changed, in Redis's words after `ERR CONFIG SET failed (possibly related to argument '...') - `.
#[derive(Debug, PartialEq, Eq)]
pub enum SettingError {
    Unknown,
    Immutable,
    Invalid(String),
}

impl Settings {
    pub fn from_config(config: &Config) -> Settings {
        let yes_no = |yes| if yes { "yes" } else { "no" }.to_owned();
        let fsync = match config.fsync {
            crate::Fsync::Always => "always",
            crate::Fsync::EverySec => "everysec",
            crate::Fsync::No => "no",
        };
        let bind: Vec<String> = config.bind.iter().map(ToString::to_string).collect();
        let fixed = vec![
            ("appendfsync", fsync.to_owned()),
            ("appendonly", "yes".to_owned()),
            ("bind", bind.join(" ")),
            ("cluster-enabled", yes_no(config.cluster_enabled)),
            ("databases", crate::DATABASES.to_string()),
            ("dir", config.dir.display().to_string()),
            ("io-threads", config.io_threads.to_string()),
            ("maxmemory", config.maxmemory.to_string()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("port", config.this().client.port().to_string()),
            ("reserve", config.reserve_bytes.to_string()),
            ("request-timeout", config.request_timeout.as_millis().to_string()),
            // Redis's snapshots do not exist here; tools ask all the same.
            ("save", String::new()),
        ];
        Settings {
            requirepass: config.requirepass.clone(),
            protected_mode: config.protected_mode,
            maxclients: config.maxclients,
            limits: Limits::default(),
            loglevel: "notice".to_owned(),
            fixed,
        }
    }

    /// Every setting by name, sorted.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        let mut all = self.fixed.clone();
        all.push(("requirepass", self.requirepass.clone().unwrap_or_default()));
        all.push(("protected-mode", if self.protected_mode { "yes" } else { "no" }.to_owned()));
        all.push(("maxclients", self.maxclients.to_string()));
        all.push(("loglevel", self.loglevel.clone()));
        all.push(("proto-max-bulk-len", self.limits.bulk_bytes_max.to_string()));
        all.sort();
        all
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match name.to_ascii_lowercase().as_str() {
            "requirepass" => self.requirepass = (!value.is_empty()).then(|| value.to_owned()),
            "protected-mode" => {
                self.protected_mode = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(SettingError::Invalid("argument must be 'yes' or 'no'".into())),
                }
            }
            "maxclients" => {
                self.maxclients = match value.parse() {
                    Ok(0) | Err(_) => {
                        return Err(SettingError::Invalid(
                            "argument must be between 1 and 4294967295 inclusive".into(),
                        ))
                    }
                    Ok(max) => max,
                }
            }
            "loglevel" => match value {
                "debug" | "verbose" | "notice" | "warning" => self.loglevel = value.to_owned(),
                _ => {
                    return Err(SettingError::Invalid(
                        "argument(s) must be one of the following: debug, verbose, notice, warning".into(),
                    ))
                }
            },
            "proto-max-bulk-len" => match value.parse() {
                Ok(max) if (1 << 20..=512 << 20).contains(&max) => self.limits.bulk_bytes_max = max,
                _ => {
                    return Err(SettingError::Invalid(
                        "argument must be between 1048576 and 536870912 inclusive".into(),
                    ))
                }
            },
            other if self.fixed.iter().any(|(name, _)| *name == other) => {
                return Err(SettingError::Immutable)
            }
            _ => return Err(SettingError::Unknown),
        }
        Ok(())
    }
}
