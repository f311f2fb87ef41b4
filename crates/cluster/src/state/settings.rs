//! The agreed settings that an administrator may change while the cluster runs. Only settings that
//! have an effect are listed.

use std::collections::{BTreeMap, BTreeSet};

use types::{StoreId, Thresholds, Version, THIRD_VERSION, THRESHOLDS};

use super::agreed::{
    is_threshold, Election, Replication, StrongReads, FALLBACK_DEFAULT, MAX_CLOCK_OFFSET_DEFAULT,
};
use super::{
    check_config, MetaState, CONFIG_DOMAIN_LABEL, CONFIG_ELECTION, CONFIG_ELECTION_FALLBACK,
    CONFIG_FINISH_UPGRADES, CONFIG_MAX_CLOCK_OFFSET, CONFIG_META_REPLICAS, CONFIG_REPLICAS,
    CONFIG_REPLICATION, CONFIG_STRONG_READS,
};
use crate::{MemberState, MetaCommand, MetaError};

const SETTINGS: [&str; 15] = [
    CONFIG_REPLICAS,
    CONFIG_META_REPLICAS,
    CONFIG_DOMAIN_LABEL,
    CONFIG_STRONG_READS,
    CONFIG_MAX_CLOCK_OFFSET,
    CONFIG_ELECTION,
    CONFIG_ELECTION_FALLBACK,
    CONFIG_REPLICATION,
    CONFIG_FINISH_UPGRADES,
    THRESHOLDS[0].name,
    THRESHOLDS[1].name,
    THRESHOLDS[2].name,
    THRESHOLDS[3].name,
    THRESHOLDS[4].name,
    THRESHOLDS[5].name,
];

/// Returns true if the cluster has a setting of this name.
pub fn is_setting(name: &str) -> bool {
    SETTINGS.contains(&name)
}

/// The meanings of [`THRESHOLDS`], in their order.
const THRESHOLD_NOTES: [&str; THRESHOLDS.len()] = [
    "fields up to which OBJECT ENCODING of a hash is listpack",
    "bytes of fields and values up to which OBJECT ENCODING of a hash is listpack",
    "members up to which OBJECT ENCODING of a sorted set is listpack",
    "bytes of members up to which OBJECT ENCODING of a sorted set is listpack",
    "integers up to which OBJECT ENCODING of a set is intset",
    "from 0 on: elements up to which a list is kept in one row",
];

/// The value that removes the label: no two stores are assumed to fail together.
const NO_LABEL: &str = "none";

/// The present value of a setting, configured or default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// The meaning of the value, for display.
    pub note: String,
}

impl Setting {
    /// Returns true if every store uses the setting, and not only the leader of the meta region.
    pub fn is_for_every_store(&self) -> bool {
        super::agreed::is_for_every_store(self.name)
    }
}

/// The reason why a setting was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("unknown setting '{name}': the settings are {}", SETTINGS.join(", "))]
    Unknown { name: String },
    #[error("no store has the label '{label}': stores have {}", listed(.labels))]
    NoSuchLabel { label: String, labels: Vec<String> },
    #[error("{stores} stores stay in the cluster and cannot hold {replicas} copies, one a store")]
    TooFewStores { replicas: usize, stores: usize },
    #[error(
        "'{what}' needs version {THIRD_VERSION} of the cluster, and it has {version}: see steelyard ctl versions"
    )]
    NeedsVersion { what: String, version: Version },
    #[error(
        "ZooKeeper cannot choose the candidates: stores without a session with it are {}",
        numbers(.stores)
    )]
    NoSession { stores: Vec<StoreId> },
    #[error(transparent)]
    Refused(#[from] MetaError),
}

impl MetaState {
    /// Returns all settings.
    pub fn settings(&self) -> Vec<Setting> {
        let setting = |name, value: String, note: &str| Setting { name, value, note: note.to_owned() };
        let label = self.domain_label().unwrap_or(NO_LABEL).to_owned();
        let agreed = self.agreed_settings();
        let reads = agreed.strong_reads;
        let proof = match reads {
            StrongReads::Lease => "leaders answer reads under a lease that counts on CLOCK_BOOTTIME",
            StrongReads::ReadIndex => "leaders ask all followers before they answer reads, many at a time",
            StrongReads::EpochCheck => {
                "leaders ask as many followers as they need before they answer reads, many at a time"
            }
        };
        let offset =
            self.config.get(CONFIG_MAX_CLOCK_OFFSET).map_or(MAX_CLOCK_OFFSET_DEFAULT, String::as_str);
        let offset = offset.to_owned();
        let mut settings = vec![
            setting(CONFIG_REPLICAS, self.replicas().to_string(), "copies of a region, one a store at most"),
            setting(
                CONFIG_META_REPLICAS,
                self.meta_replicas().to_string(),
                "copies of the meta region, an odd number of them where there are three stores or more",
            ),
            setting(CONFIG_DOMAIN_LABEL, label, &self.domains()),
            setting(CONFIG_STRONG_READS, reads.name().to_owned(), proof),
            setting(
                CONFIG_MAX_CLOCK_OFFSET,
                offset,
                "a store whose wall clock is further than this from the stores' median does not lead",
            ),
            setting(
                CONFIG_ELECTION,
                agreed.election.name().to_owned(),
                match agreed.election {
                    Election::Raft => "peers without a leader campaign after a random timeout",
                    Election::Zookeeper => {
                        "the positions that stores publish in ZooKeeper decide who campaigns"
                    }
                },
            ),
            setting(
                CONFIG_ELECTION_FALLBACK,
                self.config.get(CONFIG_ELECTION_FALLBACK).map_or(FALLBACK_DEFAULT, String::as_str).to_owned(),
                "with election zookeeper: time without a leader after which peers campaign by themselves",
            ),
            setting(
                CONFIG_REPLICATION,
                agreed.replication.name().to_owned(),
                match agreed.replication {
                    Replication::Direct => "leaders send each entry to every follower",
                    Replication::Chained => "leaders send each entry to one follower, which passes it on",
                },
            ),
            setting(
                CONFIG_FINISH_UPGRADES,
                if self.finishes_upgrades() { super::YES } else { super::NO }.to_owned(),
                "the cluster's version rises once all stores support a newer one; then there is no way back",
            ),
        ];
        for (threshold, note) in THRESHOLDS.iter().zip(THRESHOLD_NOTES) {
            let value = agreed.thresholds.get(threshold.name).unwrap_or_default();
            settings.push(setting(threshold.name, value.to_string(), note));
        }
        settings
    }

    /// Returns the command that changes these thresholds, all or none.
    pub fn set_thresholds(&self, values: &BTreeMap<String, String>) -> Result<MetaCommand, SettingError> {
        let mut thresholds = Thresholds::default();
        let mut checked = BTreeMap::new();
        for (name, text) in values {
            if !is_threshold(name) {
                return Err(SettingError::Unknown { name: name.clone() });
            }
            self.check_version_of(name)?;
            check_config(name, text)?;
            // A number without a unit, as all programs of this version write it.
            if thresholds.set(name, text).is_ok() {
                checked.insert(name.clone(), thresholds.get(name).unwrap_or_default().to_string());
            }
        }
        Ok(MetaCommand::SetThresholds { values: checked })
    }

    /// Refuses settings that the cluster's version does not have.
    fn check_version_of(&self, name: &str) -> Result<(), SettingError> {
        let is_of_third = [CONFIG_ELECTION, CONFIG_ELECTION_FALLBACK, CONFIG_REPLICATION].contains(&name)
            || is_threshold(name);
        match is_of_third && self.version < THIRD_VERSION {
            true => Err(SettingError::NeedsVersion { what: name.to_owned(), version: self.version }),
            false => Ok(()),
        }
    }

    /// Returns the command that changes a setting. A label that no store has is refused: it would
    /// have no effect and is probably mistyped.
    pub fn set(&self, name: &str, value: &str) -> Result<MetaCommand, SettingError> {
        if !SETTINGS.contains(&name) {
            return Err(SettingError::Unknown { name: name.to_owned() });
        }
        if (name, value) == (CONFIG_DOMAIN_LABEL, NO_LABEL) {
            return Ok(MetaCommand::SetConfig { name: name.to_owned(), value: None });
        }
        check_config(name, value)?;
        self.check_version_of(name)?;
        if is_threshold(name) {
            return self.set_thresholds(&BTreeMap::from([(name.to_owned(), value.to_owned())]));
        }
        if self.version < THIRD_VERSION {
            let version = self.version;
            if (name, value) == (CONFIG_STRONG_READS, StrongReads::EpochCheck.name()) {
                return Err(SettingError::NeedsVersion { what: format!("{name} {value}"), version });
            }
        }
        let staying = self.members().filter(|store| store.state == MemberState::Up).count();
        match super::parse_replicas(value) {
            // An unreachable number of copies would keep regions from being moved, because they
            // would wait for a copy.
            Some(replicas) if name == CONFIG_REPLICAS && replicas > staying => {
                return Err(SettingError::TooFewStores { replicas, stores: staying });
            }
            // With two voters nothing can be committed while either is down.
            Some(replicas) if name == CONFIG_META_REPLICAS && replicas % 2 == 0 => {
                let (name, value) = (name.to_owned(), value.to_owned());
                return Err(MetaError::BadConfig { name, value, expected: "1, 3, 5, 7 or 9" }.into());
            }
            _ => {}
        }
        let labels = self.labels();
        if name == CONFIG_DOMAIN_LABEL && !labels.iter().any(|label| label == value) {
            return Err(SettingError::NoSuchLabel { label: value.to_owned(), labels });
        }
        Ok(MetaCommand::SetConfig { name: name.to_owned(), value: Some(value.to_owned()) })
    }

    /// Returns the same command as [`set`](MetaState::set), if ZooKeeper may choose the candidates:
    /// each member has a session with it.
    pub fn set_with_sessions(
        &self,
        name: &str,
        value: &str,
        has_session: impl Fn(StoreId) -> bool,
    ) -> Result<MetaCommand, SettingError> {
        let command = self.set(name, value)?;
        let without = self.members().map(|store| store.id).filter(|&store| !has_session(store));
        let stores: Vec<StoreId> = without.collect();
        let needs_sessions = (name, value) == (CONFIG_ELECTION, Election::Zookeeper.name());
        match needs_sessions && !stores.is_empty() {
            true => Err(SettingError::NoSession { stores }),
            false => Ok(command),
        }
    }

    /// Returns the names of the labels that members have, ascending.
    fn labels(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.members().flat_map(|store| store.facts.labels.keys()).collect();
        names.into_iter().cloned().collect()
    }

    /// Describes the stores that fail together, or the labels that could define them.
    fn domains(&self) -> String {
        let Some(label) = self.domain_label() else {
            return format!("labels that stores have: {}", listed(&self.labels()));
        };
        let mut domains: BTreeMap<(bool, &str), Vec<String>> = BTreeMap::new();
        for store in self.members() {
            let value = store.facts.labels.get(label);
            let domain = (value.is_none(), value.map_or("each by itself", String::as_str));
            domains.entry(domain).or_default().push(store.id.to_string());
        }
        let domains: Vec<String> =
            domains.iter().map(|((_, value), stores)| format!("{value} ({})", stores.join(" "))).collect();
        format!("stores that fail together: {}", domains.join(", "))
    }
}

fn numbers(stores: &[StoreId]) -> String {
    stores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn listed(labels: &[String]) -> String {
    match labels {
        [] => "none".to_owned(),
        _ => labels.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::{begun, facts};
    use crate::MetaReply;

    fn value(state: &MetaState, name: &str) -> String {
        let settings = state.settings();
        settings.into_iter().find(|setting| setting.name == name).unwrap().value
    }

    #[test]
    fn a_setting_that_is_set_counts_and_its_command_survives_the_log() {
        let mut state = begun(3, 1);
        state.version = THIRD_VERSION;
        assert!(state.settings().iter().map(|setting| setting.name).eq(SETTINGS));
        for (name, before, after) in [
            ("replicas", "3", "2"),
            ("meta-replicas", "5", "7"),
            ("domain-label", "none", "zone"),
            ("strong-reads", "lease", "epoch-check"),
            ("max-clock-offset", "10s", "2m"),
            ("election", "raft", "zookeeper"),
            ("election-fallback", "10s", "never"),
            ("replication", "direct", "chained"),
        ] {
            assert_eq!(value(&state, name), before);
            let command = state.set(name, after).unwrap();
            let read = MetaCommand::decode(&command.encode()).unwrap();
            assert_eq!(read, command);
            assert_eq!(state.apply(&read, 1), Ok(MetaReply::Changed));
            assert_eq!(state.apply(&read, 1), Ok(MetaReply::Unchanged));
            assert_eq!(value(&state, name), after);
        }
        for (name, before, text, after) in [
            ("hash-max-listpack-entries", "512", "7", "7"),
            ("hash-max-listpack-value", "64", "1kb", "1024"),
            ("list-max-listpack-size", "-2", "-5", "-5"),
        ] {
            assert_eq!(value(&state, name), before);
            let command = state.set(name, text).unwrap();
            let read = MetaCommand::decode(&command.encode()).unwrap();
            assert_eq!(read, command);
            let version = state.members_version;
            assert_eq!(state.apply(&read, 1), Ok(MetaReply::Changed));
            assert_eq!(state.members_version, version + 1, "the list of stores brings it to every store");
            assert_eq!(state.apply(&read, 1), Ok(MetaReply::Unchanged));
            assert_eq!((value(&state, name), state.members_version), (after.to_owned(), version + 1));
        }
        let none = state.set("domain-label", "none").unwrap();
        let encoded = "\x03{\"command\":\"set-config\",\"name\":\"domain-label\",\"value\":null}";
        assert_eq!(none.encode(), encoded.as_bytes());
        assert_eq!(state.apply(&none, 1), Ok(MetaReply::Changed));
        assert_eq!((state.domain_label(), value(&state, "domain-label").as_str()), (None, "none"));
    }

    #[test]
    fn what_has_no_effect_or_no_sense_is_not_set() {
        let state = begun(3, 1);
        let refused = |name, value| state.set(name, value).unwrap_err().to_string();
        let settings =
            "the settings are replicas, meta-replicas, domain-label, strong-reads, max-clock-offset, \
             election, election-fallback, replication, finish-upgrades, hash-max-listpack-entries, \
             hash-max-listpack-value, zset-max-listpack-entries, zset-max-listpack-value, \
             set-max-intset-entries, list-max-listpack-size";
        for name in ["replace-after-s", "databases", "domain_label", ""] {
            assert_eq!(refused(name, "5"), format!("unknown setting '{name}': {settings}"));
        }
        for (name, value) in [("replicas", "0"), ("replicas", "none"), ("meta-replicas", "10")] {
            assert_eq!(refused(name, value), format!("'{value}' is no value of '{name}': 1 to 9"));
        }
        for value in ["zone=a", "", " zone"] {
            let expected = "a label's name without a value, or none";
            assert_eq!(
                refused("domain-label", value),
                format!("'{value}' is no value of 'domain-label': {expected}")
            );
        }
        for value in ["", "leases", "Lease", "none"] {
            let expected =
                format!("'{value}' is no value of 'strong-reads': lease, read-index or epoch-check");
            assert_eq!(refused("strong-reads", value), expected);
        }
        let expected =
            "'0s' is no value of 'max-clock-offset': 1s to 365d, as a whole number of s, m, h or d";
        assert_eq!(refused("max-clock-offset", "0s"), expected);
        let expected = "'zk' is no value of 'election': raft or zookeeper";
        assert_eq!(refused("election", "zk"), expected);
        let expected = "'election' needs version 3 of the cluster, and it has 1: see steelyard ctl versions";
        assert_eq!(refused("election", "zookeeper"), expected);
        let expected = "'strong-reads epoch-check' needs version 3 of the cluster, and it has 1: see steelyard ctl versions";
        assert_eq!(refused("strong-reads", "epoch-check"), expected);
        let expected = "'chain' is no value of 'replication': direct or chained";
        assert_eq!(refused("replication", "chain"), expected);
        let expected =
            "'replication' needs version 3 of the cluster, and it has 1: see steelyard ctl versions";
        assert_eq!(refused("replication", "chained"), expected);
        let expected =
            "'-1' is no value of 'hash-max-listpack-entries': a number from 0 to 9223372036854775807";
        assert_eq!(refused("hash-max-listpack-entries", "-1"), expected);
        let expected =
            "'hash-max-listpack-entries' needs version 3 of the cluster, and it has 1: see steelyard ctl versions";
        assert_eq!(refused("hash-max-listpack-entries", "7"), expected);
        assert_eq!(refused("domain-label", "rack"), "no store has the label 'rack': stores have zone");
        assert_eq!(refused("meta-replicas", "2"), "'2' is no value of 'meta-replicas': 1, 3, 5, 7 or 9");
        let too_few = "3 stores stay in the cluster and cannot hold 4 copies, one a store";
        assert_eq!(refused("replicas", "4"), too_few);
    }

    #[test]
    fn failure_domains_are_told_with_their_stores() {
        let mut state = begun(4, 1);
        let note = |state: &MetaState| {
            let settings = state.settings();
            settings.into_iter().find(|setting| setting.name == CONFIG_DOMAIN_LABEL).unwrap().note
        };
        assert_eq!(note(&state), "labels that stores have: zone");
        let both = [("zone", "b"), ("rack", "9")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (store, labels) in [(1, BTreeMap::from(both)), (3, BTreeMap::new())] {
            let facts = crate::StoreFacts { labels, ..facts(store) };
            state.apply(&MetaCommand::SetStore { store, facts }, 1).unwrap();
        }
        assert_eq!(note(&state), "labels that stores have: rack, zone");
        let command = state.set("domain-label", "zone").unwrap();
        state.apply(&command, 1).unwrap();
        assert_eq!(note(&state), "stores that fail together: a (0 2), b (1), each by itself (3)");
    }
}
