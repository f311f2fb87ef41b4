//! The settings that `CONFIG GET` shows and `CONFIG SET` changes on a running store.
//!
//! They belong to this store: the execution of replicated commands reads none of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use resp::Limits;

use crate::config::{check_maxmemory, Beginning, Config};
use crate::output_limits::{self, OutputLimits};
use crate::pubsub::notices::Classes;
use crate::secrets::HIDDEN;
use crate::statistics_settings::{self, StatisticsSettings};
use crate::tls_settings::{self, TlsSettings};
use crate::zookeeper_settings;

/// The values of `proto-max-bulk-len`, as error messages state them.
pub const BULK_BYTES_RANGE: &str = "between 1048576 and 536870912 inclusive";

/// Returns the limit of an argument while it is read; `None` if the number is out of range.
pub fn bulk_bytes_max(bytes: u64) -> Option<usize> {
    usize::try_from(bytes).ok().filter(|bytes| (1 << 20..=512 << 20).contains(bytes))
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// The password of the default user, until the cluster has agreed on such a user. Other stores
    /// prove with it that they may join.
    pub requirepass: Option<String>,
    /// See [`Config::lacks_password`].
    lacks_password: bool,
    /// The file that `ACL LOAD` reads and `ACL SAVE` writes.
    pub aclfile: Option<String>,
    /// True if new users may use all channels.
    pub acl_pubsub_all: bool,
    pub acllog_max_len: usize,
    pub tls: TlsSettings,
    pub protected_mode: bool,
    pub maxclients: usize,
    /// Bytes of memory of the process.
    pub maxmemory: u64,
    /// Seconds without a word after which a client is closed; 0 for never.
    pub timeout: u32,
    /// Seconds after which a client is closed that has not logged in; 0 for never.
    pub auth_timeout: u32,
    /// Maximum number of clients of an address that have not logged in; 0 means no limit.
    pub strangers_max: usize,
    /// Seconds after which an idle client's machine is probed; 0 for never. It applies to new
    /// clients.
    pub tcp_keepalive: u32,
    pub limits: Limits,
    pub loglevel: String,
    /// Bytes per second; 0 means no limit.
    pub snapshot_rate: u64,
    /// Number of loops that serve clients; 0 means that it follows the load.
    pub io_threads: usize,
    io_threads_max: usize,
    /// Maximum number of keys that clients may cache; 0 means no limit.
    pub tracking_keys_max: usize,
    /// The events of keys that subscribers are told of.
    pub keyspace_events: Classes,
    /// The limits of what waits for clients.
    pub output_limits: OutputLimits,
    pub statistics: StatisticsSettings,
    /// The bound on weak reads after `READONLY` without arguments; `None` means any age.
    pub weak_read_max_lag: Option<Duration>,
    /// The settings that `CONFIG SET` has changed since the start.
    changed: BTreeSet<String>,
    fixed: Vec<(&'static str, String)>,
}

/// Settings that Redis changes and a store does not: the name, Redis's values if they are words,
/// and why there is no other value.
const KEPT: [(&str, &[&str], &str); 4] = [
    ("appendfsync", &["everysec", "always", "no"], "the option fsync of the start decides"),
    ("appendonly", &["yes", "no"], "every write is in the log of its region"),
    (
        "maxmemory-policy",
        &[
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "noeviction",
        ],
        "nothing is evicted: flash holds what RAM cannot",
    ),
    ("save", &[], "every write is in the log of its region, and SAVE and BGSAVE make a checkpoint"),
];

/// Settings that a new cluster takes from the configuration, and the commands that change them
/// later.
const OF_THE_CLUSTER: [(&str, &str); 2] =
    [("policy", "steelyard ctl policy"), ("replicas", "steelyard ctl config replicas")];

/// The values of `acl-pubsub-default`.
pub const ALL_CHANNELS: &str = "allchannels";
pub const NO_CHANNELS: &str = "resetchannels";

/// The values of `weak-read-max-lag`, as error messages state them.
pub const WEAK_READ_MAX_LAG_RANGE: &str = "between -1 and 4294967295 inclusive";

/// Returns the bound on weak reads that a number of milliseconds stands for; `None` if the number
/// is out of range. -1 stands for no bound.
pub fn weak_read_max_lag(ms: i64) -> Option<Option<Duration>> {
    match ms {
        -1 => Some(None),
        ms => u32::try_from(ms).ok().map(|ms| Some(Duration::from_millis(u64::from(ms)))),
    }
}

/// The reason why a setting was not changed. The text follows Redis's `ERR CONFIG SET failed
/// (possibly related to argument '...') - `.
#[derive(Debug, PartialEq, Eq)]
pub enum SettingError {
    Unknown,
    Immutable,
    Invalid(String),
}

impl Settings {
    /// Returns true if a password protects this store that it does not know.
    pub fn lacks_password(&self) -> bool {
        self.lacks_password && self.requirepass.is_none()
    }

    pub fn from_config(config: &Config) -> Settings {
        Settings {
            requirepass: config.requirepass.clone(),
            lacks_password: config.lacks_password,
            aclfile: config.aclfile.as_ref().map(|path| path.display().to_string()),
            acl_pubsub_all: config.acl_pubsub_all,
            acllog_max_len: config.acllog_max_len,
            tls: config.tls.clone(),
            protected_mode: config.protected_mode,
            maxclients: config.maxclients,
            maxmemory: config.maxmemory,
            timeout: config.timeout,
            auth_timeout: config.auth_timeout,
            strangers_max: config.strangers_max,
            tcp_keepalive: config.tcp_keepalive,
            limits: Limits { bulk_bytes_max: config.bulk_bytes_max, ..Limits::default() },
            loglevel: config.loglevel.clone(),
            snapshot_rate: config.snapshot_rate,
            io_threads: config.io_threads,
            io_threads_max: config.loops(),
            tracking_keys_max: config.tracking_keys_max,
            keyspace_events: config.keyspace_events,
            output_limits: config.output_limits,
            statistics: config.statistics.clone(),
            weak_read_max_lag: config.weak_read_max_lag,
            changed: BTreeSet::new(),
            fixed: fixed(config),
        }
    }

    /// Returns every setting by name, sorted.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        let mut all = self.fixed.clone();
        all.extend(self.tls.all());
        all.extend(self.statistics.all());
        // Passwords are not shown.
        let shown = self.requirepass.as_ref().map_or("", |_| HIDDEN);
        all.push(("requirepass", shown.to_owned()));
        all.push(("aclfile", self.aclfile.clone().unwrap_or_default()));
        let channels = if self.acl_pubsub_all { ALL_CHANNELS } else { NO_CHANNELS };
        all.push(("acl-pubsub-default", channels.to_owned()));
        all.push(("acllog-max-len", self.acllog_max_len.to_string()));
        all.push(("protected-mode", if self.protected_mode { "yes" } else { "no" }.to_owned()));
        all.push(("maxclients", self.maxclients.to_string()));
        all.push(("maxmemory", self.maxmemory.to_string()));
        all.push(("timeout", self.timeout.to_string()));
        all.push(("auth-timeout", self.auth_timeout.to_string()));
        all.push(("maxclients-unauthenticated", self.strangers_max.to_string()));
        all.push(("tcp-keepalive", self.tcp_keepalive.to_string()));
        all.push(("loglevel", self.loglevel.clone()));
        all.push(("snapshot-rate", self.snapshot_rate.to_string()));
        all.push(("io-threads", self.io_threads.to_string()));
        all.push(("proto-max-bulk-len", self.limits.bulk_bytes_max.to_string()));
        let lag_ms = self.weak_read_max_lag.map_or("-1".to_owned(), |lag| lag.as_millis().to_string());
        all.push(("weak-read-max-lag", lag_ms));
        all.push(("tracking-table-max-keys", self.tracking_keys_max.to_string()));
        all.push(("notify-keyspace-events", self.keyspace_events.to_string()));
        all.push((output_limits::NAME, self.output_limits.shown()));
        all.sort();
        all
    }

    /// Returns the settings that `CONFIG SET` has changed, with values that a start reads as the
    /// same. A password is shown.
    pub fn changed(&self) -> Vec<(&'static str, String)> {
        let mut changed = self.all();
        changed.retain(|(name, _)| self.changed.contains(*name));
        for (name, value) in &mut changed {
            match *name {
                "requirepass" => *value = self.requirepass.clone().unwrap_or_default(),
                "notify-keyspace-events" => *value = self.keyspace_events.letters(),
                _ => {}
            }
        }
        changed
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let name = name.to_ascii_lowercase();
        if !self.is_kept(&name, value)? {
            self.set_value(&name, value)?;
            self.changed.insert(name);
        }
        Ok(())
    }

    /// Returns true if `value` is the only one that a setting of Redis can have here. Tools write
    /// some when they connect.
    ///
    /// # Errors
    /// The reason why a store has no other value.
    fn is_kept(&self, name: &str, value: &str) -> Result<bool, SettingError> {
        let Some((_, values, why)) = KEPT.iter().find(|(kept, ..)| *kept == name) else { return Ok(false) };
        let value = value.trim().to_ascii_lowercase();
        if self.fixed.iter().any(|(fixed, has)| *fixed == name && *has == value) {
            return Ok(true);
        }
        let is_known = values.is_empty() || values.iter().any(|known| *known == value);
        match (is_known, values) {
            (true, _) => Err(SettingError::Invalid((*why).to_owned())),
            (false, ["yes", "no"]) => Err(SettingError::Invalid("argument must be 'yes' or 'no'".to_owned())),
            (false, values) => {
                let listed = values.join(", ");
                let text = format!("argument(s) must be one of the following: {listed}");
                Err(SettingError::Invalid(text))
            }
        }
    }

    /// Returns the reason why `CONFIG SET` does not change a setting.
    fn not_settable(&self, name: &str) -> SettingError {
        if let Some((_, command)) = OF_THE_CLUSTER.iter().find(|(known, _)| *known == name) {
            return SettingError::Invalid(format!("the cluster has this setting: {command} changes it"));
        }
        match self.fixed.iter().any(|(known, _)| *known == name) {
            true => SettingError::Immutable,
            false => SettingError::Unknown,
        }
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match name {
            "requirepass" => self.requirepass = (!value.is_empty()).then(|| value.to_owned()),
            name if tls_settings::NAMES.contains(&name) => {
                self.tls.set(name, value).map_err(SettingError::Invalid)?
            }
            name if tls_settings::refusal(name).is_some() => {
                return invalid(tls_settings::refusal(name).unwrap_or_default());
            }
            name if statistics_settings::NAMES.contains(&name) => {
                self.statistics.set(name, value).map_err(SettingError::Invalid)?
            }
            "aclfile" => return Err(SettingError::Immutable),
            "acl-pubsub-default" => match value.to_ascii_lowercase().as_str() {
                ALL_CHANNELS => self.acl_pubsub_all = true,
                NO_CHANNELS => self.acl_pubsub_all = false,
                _ => return invalid("argument(s) must be one of the following: allchannels, resetchannels"),
            },
            "acllog-max-len" => match resp::parse_integer(value.as_bytes()) {
                None => return invalid("argument couldn't be parsed into an integer"),
                Some(max) => match usize::try_from(max) {
                    Ok(max) => self.acllog_max_len = max,
                    Err(_) => return invalid("argument must be between 0 and 9223372036854775807 inclusive"),
                },
            },
            "protected-mode" => {
                self.protected_mode = match value.to_ascii_lowercase().as_str() {
                    "yes" => true,
                    "no" => false,
                    _ => return invalid("argument must be 'yes' or 'no'"),
                }
            }
            "maxclients" => match resp::parse_integer(value.as_bytes()) {
                None => return invalid("argument couldn't be parsed into an integer"),
                Some(max) => match u32::try_from(max) {
                    Ok(0) | Err(_) => return invalid("argument must be between 1 and 4294967295 inclusive"),
                    Ok(max) => self.maxclients = max as usize,
                },
            },
            "maxmemory" => match types::parse_size(value) {
                Err(_) => return invalid("argument must be a memory value"),
                Ok(bytes) => match check_maxmemory(bytes) {
                    Ok(()) => self.maxmemory = bytes,
                    Err(why) => return invalid(&why),
                },
            },
            "maxclients-unauthenticated" => match resp::parse_integer(value.as_bytes()).map(u32::try_from) {
                None => return invalid("argument couldn't be parsed into an integer"),
                Some(Err(_)) => return invalid("argument must be between 0 and 4294967295 inclusive"),
                Some(Ok(max)) => self.strangers_max = max as usize,
            },
            "timeout" => self.timeout = seconds(value)?,
            "auth-timeout" => self.auth_timeout = seconds(value)?,
            "tcp-keepalive" => self.tcp_keepalive = seconds(value)?,
            "loglevel" => match value.to_ascii_lowercase().as_str() {
                level @ ("debug" | "verbose" | "notice" | "warning") => self.loglevel = level.to_owned(),
                _ => {
                    return invalid(
                        "argument(s) must be one of the following: debug, verbose, notice, warning",
                    )
                }
            },
            "snapshot-rate" => match types::parse_size(value) {
                Err(_) => return invalid("argument must be a memory value"),
                Ok(rate) => self.snapshot_rate = rate,
            },
            "io-threads" => match resp::parse_integer(value.as_bytes()).map(usize::try_from) {
                None => return invalid("argument couldn't be parsed into an integer"),
                Some(Ok(count)) if count <= self.io_threads_max => self.io_threads = count,
                Some(_) => {
                    let most = self.io_threads_max;
                    return invalid(&format!("argument must be between 0 and {most} inclusive"));
                }
            },
            "weak-read-max-lag" => match resp::parse_integer(value.as_bytes()).map(weak_read_max_lag) {
                None => return invalid("argument couldn't be parsed into an integer"),
                Some(None) => return invalid(&format!("argument must be {WEAK_READ_MAX_LAG_RANGE}")),
                Some(Some(max)) => self.weak_read_max_lag = max,
            },
            "tracking-table-max-keys" => match resp::parse_integer(value.as_bytes()).map(usize::try_from) {
                None => return invalid("argument must be a memory value"),
                Some(Ok(max)) => self.tracking_keys_max = max,
                Some(Err(_)) => {
                    return invalid("argument must be between 0 and 9223372036854775807 inclusive")
                }
            },
            "notify-keyspace-events" => match Classes::parse(value) {
                Some(classes) => self.keyspace_events = classes,
                None => return invalid("Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
            },
            output_limits::NAME => match self.output_limits.changed(value) {
                Ok(limits) => self.output_limits = limits,
                Err(why) => return invalid(&why),
            },
            "proto-max-bulk-len" => match types::parse_size(value) {
                Err(_) => return invalid("argument must be a memory value"),
                Ok(max) => match bulk_bytes_max(max) {
                    Some(max) => self.limits.bulk_bytes_max = max,
                    None => return invalid(&format!("argument must be {BULK_BYTES_RANGE}")),
                },
            },
            other => return Err(self.not_settable(other)),
        }
        Ok(())
    }
}

/// Returns the settings that no running store changes, with their values at the start.
fn fixed(config: &Config) -> Vec<(&'static str, String)> {
    let file = |path: Option<&PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
    let fsync = match config.fsync {
        crate::Fsync::Always => "always",
        crate::Fsync::EverySec => "everysec",
        crate::Fsync::No => "no",
    };
    // Redis shows an absolute path, too.
    let dir = std::path::absolute(&config.dir).unwrap_or_else(|_| config.dir.clone());
    let mut fixed = vec![
        ("appendfsync", fsync.to_owned()),
        ("appendonly", "yes".to_owned()),
        ("admin-auth", yes_no(config.admin_auth)),
        ("boot-id-file", file(Some(&config.boot_id_file))),
        ("capacity", config.capacity_bytes.map_or(String::new(), |bytes| bytes.to_string())),
        ("consistency-check-interval", config.check_interval.as_secs().to_string()),
        ("core-file-memory", yes_no(config.core_file_memory)),
        ("databases", crate::DATABASES.to_string()),
        ("device-control", file(config.device_control.as_ref())),
        ("enable-debug-command", config.enable_debug_command.name().to_owned()),
        ("dir", dir.display().to_string()),
        ("fsync", fsync.to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("merge-size", config.limits.merge_bytes.to_string()),
        ("probe", yes_no(config.probe)),
        ("proposal-window", config.proposal_window.to_string()),
        ("raft-log-size", config.raft_log_bytes.to_string()),
        ("raft-tick", config.raft_tick.as_millis().to_string()),
        ("reader-threads", config.reader_threads.to_string()),
        ("replace-after", config.replace_after.as_secs().to_string()),
        ("request-timeout", config.request_timeout.as_millis().to_string()),
        ("reserve", config.reserve_bytes.to_string()),
        ("rocksdb-profile", config.rocksdb_profile.clone()),
        // Redis's snapshots do not exist here, but tools read this setting.
        ("save", String::new()),
        ("split-ops", config.limits.split_ops.to_string()),
        ("split-size", config.limits.split_bytes.to_string()),
    ];
    fixed.extend(of_membership(config));
    fixed.extend(of_ports(config));
    fixed.extend(of_encryption(config.encryption.as_ref()));
    fixed.extend(zookeeper_settings::shown(config.zookeeper.as_ref()));
    fixed
}

/// Returns the settings of the store's place in its cluster. Those of a new cluster have the values
/// of the configuration, which the cluster may have changed since.
fn of_membership(config: &Config) -> Vec<(&'static str, String)> {
    let this = config.this();
    let join: Vec<String> = match &config.beginning {
        Beginning::Join(stores) => stores.iter().map(ToString::to_string).collect(),
        Beginning::Listed | Beginning::Bootstrap => Vec::new(),
    };
    let capability = this
        .capability
        .map_or(String::new(), |known| format!("{:.0}/{:.0}", known.kv_bytes_per_s, known.ops_per_s));
    let labels: Vec<String> = this.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let token = config.join_token.as_ref().map_or("", |_| HIDDEN);
    vec![
        ("bootstrap", yes_no(config.beginning == Beginning::Bootstrap)),
        ("capability", capability),
        ("cluster-enabled", yes_no(config.cluster_enabled)),
        ("device", this.device.clone()),
        ("join", join.join(",")),
        ("join-token", token.to_owned()),
        ("label", labels.join(",")),
        ("policy", config.policy.name().to_owned()),
        ("regions", config.regions.to_string()),
        ("replicas", config.replicas.to_string()),
        ("store-id", config.store.to_string()),
    ]
}

fn of_ports(config: &Config) -> Vec<(&'static str, String)> {
    let this = config.this();
    let bind: Vec<String> = config.bind.iter().map(ToString::to_string).collect();
    vec![
        ("admin-port", this.admin.port().to_string()),
        ("bind", bind.join(" ")),
        ("forward-port", this.forward.map_or(0, |address| address.port()).to_string()),
        ("insecure-peers", yes_no(config.insecure_peers)),
        ("peer-port", this.peer.port().to_string()),
        ("port", config.plain_port().to_string()),
        ("tls-admin", yes_no(config.tls_admin)),
        ("tls-cluster", yes_no(config.tls_cluster)),
        ("tls-cluster-name", config.tls_cluster_name.clone()),
        ("tls-forward", yes_no(config.tls_forward)),
        ("tls-port", config.tls_port.unwrap_or(0).to_string()),
    ]
}

/// Returns the places of the master key. The keys themselves are shown nowhere.
fn of_encryption(keys: Option<&atrest::Settings>) -> Vec<(&'static str, String)> {
    let (key_file, key_command) = match keys.map(|keys| &keys.key) {
        Some(atrest::Source::File(path)) => (Some(path.display().to_string()), None),
        Some(atrest::Source::Command(command)) => (None, Some(command.clone())),
        None => (None, None),
    };
    let old_key_file = keys.and_then(|keys| Some(keys.old_key.as_ref()?.display().to_string()));
    vec![
        ("encryption-key-file", key_file.unwrap_or_default()),
        ("encryption-key-command", key_command.unwrap_or_default()),
        ("encryption-old-key-file", old_key_file.unwrap_or_default()),
    ]
}

fn yes_no(yes: bool) -> String {
    let text = if yes { "yes" } else { "no" };
    text.to_owned()
}

/// Maximum of settings in seconds, as in Redis.
pub const SECONDS_MAX: u32 = i32::MAX as u32;

fn seconds(value: &str) -> Result<u32, SettingError> {
    let why = match resp::parse_integer(value.as_bytes()).map(u32::try_from) {
        Some(Ok(seconds)) if seconds <= SECONDS_MAX => return Ok(seconds),
        Some(_) => "argument must be between 0 and 2147483647 inclusive",
        None => "argument couldn't be parsed into an integer",
    };
    Err(SettingError::Invalid(why.to_owned()))
}

fn invalid(why: &str) -> Result<(), SettingError> {
    Err(SettingError::Invalid(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{SettingError, Settings};
    use crate::config::Config;
    use crate::transport::join_token::JoinToken;

    #[test]
    fn the_rate_of_snapshots_is_set_in_bytes_and_zero_lifts_it() {
        let mut settings = Settings::from_config(&Config::single("dir".into(), 7000));
        for (value, rate) in [("5mb", 5 << 20), ("0", 0)] {
            assert_eq!(settings.set("snapshot-rate", value), Ok(()));
            assert_eq!(settings.snapshot_rate, rate);
            assert!(settings.all().contains(&("snapshot-rate", rate.to_string())));
        }
        assert!(matches!(settings.set("snapshot-rate", "fast"), Err(SettingError::Invalid(_))));
    }

    #[test]
    fn settings_with_one_value_take_it_and_say_why_there_is_no_other() {
        let mut settings = Settings::from_config(&Config::single("dir".into(), 7000));
        let before = settings.all();
        for (name, value, other, why) in [
            ("maxmemory-policy", "NoEviction", "allkeys-lru", "nothing is evicted"),
            (
                "maxmemory-policy",
                "noeviction",
                "lru",
                "argument(s) must be one of the following: volatile-lru, ",
            ),
            ("appendonly", "yes", "no", "log"),
            ("appendonly", "yes", "maybe", "argument must be 'yes' or 'no'"),
            ("appendfsync", "always", "no", "fsync"),
            ("save", "", "3600 1", "checkpoint"),
        ] {
            assert_eq!(settings.set(name, value), Ok(()), "{name}");
            let refused = settings.set(name, other);
            let says = |text: &String| text.contains(why);
            assert!(matches!(&refused, Err(SettingError::Invalid(text)) if says(text)), "{refused:?}");
        }
        assert_eq!(settings.all(), before);
        assert!(settings.changed().is_empty());
    }

    #[test]
    fn settings_of_the_start_are_shown_and_refused_as_immutable() {
        let mut config = Config::single("dir".into(), 7000);
        config.join_token = JoinToken::parse(&JoinToken::issue("pw", 60).expect("a token").text());
        config.members[0].labels.insert("zone".into(), "a".into());
        let mut settings = Settings::from_config(&config);
        for (name, value) in [
            ("fsync", "always"),
            ("replace-after", "600"),
            ("split-size", "0"),
            ("raft-tick", "50"),
            ("capability", ""),
            ("peer-port", "17000"),
            ("admin-port", "27000"),
            ("forward-port", "0"),
            ("label", "zone=a"),
            ("regions", "1"),
            ("join-token", "(hidden)"),
        ] {
            assert!(settings.all().contains(&(name, value.to_owned())), "{name}");
            assert_eq!(settings.set(name, "1"), Err(SettingError::Immutable), "{name}");
        }
        for (name, value, command) in
            [("policy", "even", "ctl policy"), ("replicas", "3", "ctl config replicas")]
        {
            assert!(settings.all().contains(&(name, value.to_owned())), "{name}");
            let refused = settings.set(name, "5");
            let says = |text: &String| text.contains(command);
            assert!(matches!(&refused, Err(SettingError::Invalid(text)) if says(text)), "{refused:?}");
        }
        assert_eq!(settings.set("nonsense", "1"), Err(SettingError::Unknown));
        let names: Vec<&str> = settings.all().iter().map(|(name, _)| *name).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "a setting is shown once: {names:?}");
    }

    #[test]
    fn the_directory_is_shown_as_an_absolute_path() {
        let settings = Settings::from_config(&Config::single("dir".into(), 7000));
        let dir = std::env::current_dir().unwrap().join("dir").display().to_string();
        assert!(settings.all().contains(&("dir", dir)));
    }

    #[test]
    fn memory_is_set_with_units_and_has_a_minimum() {
        let mut settings = Settings::from_config(&Config::single("dir".into(), 7000));
        for (value, bytes) in [("64mb", 64 << 20), ("1gb", 1 << 30), ("100000000", 100_000_000)] {
            assert_eq!(settings.set("maxmemory", value), Ok(()));
            assert_eq!(settings.maxmemory, bytes);
            assert!(settings.all().contains(&("maxmemory", bytes.to_string())));
        }
        for value in ["0", "63mb", "-1", "much"] {
            assert!(matches!(settings.set("maxmemory", value), Err(SettingError::Invalid(_))), "{value}");
        }
        assert_eq!(settings.maxmemory, 100_000_000);
    }

    #[test]
    fn times_of_idle_clients_are_in_seconds_and_zero_lifts_them() {
        let mut settings = Settings::from_config(&Config::single("dir".into(), 7000));
        assert_eq!((settings.timeout, settings.tcp_keepalive), (0, 300));
        for name in ["timeout", "tcp-keepalive", "auth-timeout"] {
            for value in ["0", "7", "2147483647"] {
                assert_eq!(settings.set(name, value), Ok(()));
                assert!(settings.all().contains(&(name, value.to_owned())));
            }
            for value in ["-1", "2147483648", "1s", ""] {
                assert!(matches!(settings.set(name, value), Err(SettingError::Invalid(_))), "{name} {value}");
            }
        }
    }

    #[test]
    fn values_that_are_written_to_the_file_are_read_as_the_same() {
        let mut settings = Settings::from_config(&Config::single("dir".into(), 7000));
        for (name, value) in [("REQUIREPASS", "12"), ("notify-keyspace-events", "KEAnm"), ("timeout", "7")] {
            assert_eq!(settings.set(name, value), Ok(()));
        }
        assert!(settings.set("timeout", "never").is_err());
        let changed = settings.changed();
        let mut again = Settings::from_config(&Config::single("dir".into(), 7000));
        assert_eq!(changed.len(), 3);
        for (name, value) in changed {
            assert_eq!(again.set(name, &value), Ok(()), "{name}");
        }
        assert_eq!(again.all(), settings.all());
        assert_eq!(again.keyspace_events.letters(), settings.keyspace_events.letters());
        assert_eq!(again.requirepass.as_deref(), Some("12"));
    }

    #[test]
    fn the_number_of_loops_is_at_most_the_number_that_exist() {
        let config = Config { io_threads: 2, ..Config::single("dir".into(), 7000) };
        let mut settings = Settings::from_config(&config);
        for count in ["1", "0", "2"] {
            assert_eq!(settings.set("io-threads", count), Ok(()));
            assert!(settings.all().contains(&("io-threads", count.to_owned())));
        }
        for count in ["3", "-1", "many"] {
            assert!(matches!(settings.set("IO-THREADS", count), Err(SettingError::Invalid(_))), "{count}");
        }
        assert_eq!(settings.io_threads, 2);
    }

    #[test]
    fn the_bound_on_weak_reads_is_in_milliseconds_and_minus_one_lifts_it() {
        let mut settings = Settings::from_config(&Config::single("dir".into(), 7000));
        assert!(settings.all().contains(&("weak-read-max-lag", "-1".to_owned())));
        for (value, lag) in [("0", Some(0)), ("250", Some(250)), ("-1", None)] {
            assert_eq!(settings.set("weak-read-max-lag", value), Ok(()));
            assert_eq!(settings.weak_read_max_lag, lag.map(std::time::Duration::from_millis));
        }
        for value in ["-2", "4294967296", "1s", ""] {
            assert!(matches!(settings.set("weak-read-max-lag", value), Err(SettingError::Invalid(_))));
        }
    }
}
