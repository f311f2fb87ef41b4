//! The settings that every store uses, even without a peer of the meta region. They are sent and
//! stored with the list of stores, and share its version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{Thresholds, Version, OLDEST_VERSION, THRESHOLDS};

use super::{
    check_config, MetaState, Object, CONFIG_ELECTION, CONFIG_ELECTION_FALLBACK, CONFIG_MAX_CLOCK_OFFSET,
    CONFIG_REPLICATION, CONFIG_STRONG_READS,
};
use crate::MetaError;

/// The way in which a leader proves that a read is current.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrongReads {
    /// By its clock, under a lease that a majority granted.
    #[default]
    Lease,
    /// By a round of heartbeats to a majority, sent after the read arrived. It relies on no clock.
    ReadIndex,
    /// As by `ReadIndex`, but the round goes only to as many followers as make a majority with the
    /// leader: one of two (PaxStore §3.2).
    EpochCheck,
}

/// The way in which the candidates of elections are chosen. Votes decide who wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Election {
    /// Each peer campaigns after a random timeout.
    #[default]
    Raft,
    /// The positions that stores publish in ZooKeeper decide who campaigns.
    Zookeeper,
}

/// The way in which leaders send entries to their followers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replication {
    /// A leader sends each entry to every follower.
    #[default]
    Direct,
    /// A leader sends each entry to one follower, which passes it on.
    Chained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreedSettings {
    pub strong_reads: StrongReads,
    /// Distance in milliseconds from the median of the stores' wall clocks beyond which a store
    /// does not lead.
    pub max_clock_offset_ms: u64,
    /// The cluster's version. A list that was written before versions existed has none.
    #[serde(default = "oldest")]
    pub cluster_version: Version,
    #[serde(default)]
    pub election: Election,
    /// Time in milliseconds without a leader after which peers campaign by their own timeouts
    /// although ZooKeeper chooses the candidates; `None` means never.
    #[serde(default = "fallback")]
    pub election_fallback_ms: Option<u64>,
    #[serde(default)]
    pub replication: Replication,
    /// Redis's thresholds of collections, since version 3 of the cluster. Leaders write them into
    /// the entries that they propose.
    #[serde(default, skip_serializing_if = "Thresholds::is_default", with = "written_thresholds")]
    pub thresholds: Thresholds,
}

/// Thresholds as a map of those that are not the defaults, by name.
mod written_thresholds {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};
    use types::Thresholds;

    pub fn serialize<S: Serializer>(thresholds: &Thresholds, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(thresholds.changed())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Thresholds, D::Error> {
        let mut thresholds = Thresholds::default();
        for (name, value) in BTreeMap::<String, i64>::deserialize(from)? {
            // A newer program may know more thresholds.
            let _ = thresholds.set(&name, &value.to_string());
        }
        Ok(thresholds)
    }
}

fn fallback() -> Option<u64> {
    Some(FALLBACK_DEFAULT_MS)
}

fn oldest() -> Version {
    OLDEST_VERSION
}

pub(super) const MAX_CLOCK_OFFSET_DEFAULT: &str = "10s";
const MAX_CLOCK_OFFSET_DEFAULT_MS: u64 = 10_000;
pub(super) const FALLBACK_DEFAULT: &str = "10s";
const FALLBACK_DEFAULT_MS: u64 = 10_000;
/// The value by which peers never campaign by their own timeouts.
const NEVER: &str = "never";
const SECONDS_MAX: u64 = 365 * 86_400;

impl Default for AgreedSettings {
    fn default() -> AgreedSettings {
        AgreedSettings {
            strong_reads: StrongReads::default(),
            max_clock_offset_ms: MAX_CLOCK_OFFSET_DEFAULT_MS,
            cluster_version: OLDEST_VERSION,
            election: Election::default(),
            election_fallback_ms: fallback(),
            replication: Replication::default(),
            thresholds: Thresholds::default(),
        }
    }
}

impl MetaState {
    pub fn agreed_settings(&self) -> AgreedSettings {
        let default = AgreedSettings::default();
        let read = self.config.get(CONFIG_STRONG_READS).and_then(|text| parse_strong_reads(text));
        let offset = self.config.get(CONFIG_MAX_CLOCK_OFFSET).and_then(|text| parse_offset_ms(text));
        let election = self.config.get(CONFIG_ELECTION).and_then(|text| parse_election(text));
        let fallback = self.config.get(CONFIG_ELECTION_FALLBACK).and_then(|text| parse_fallback(text));
        let replication = self.config.get(CONFIG_REPLICATION).and_then(|text| parse_replication(text));
        AgreedSettings {
            strong_reads: read.unwrap_or(default.strong_reads),
            max_clock_offset_ms: offset.unwrap_or(default.max_clock_offset_ms),
            cluster_version: self.version.max(OLDEST_VERSION),
            election: election.unwrap_or(default.election),
            election_fallback_ms: fallback.unwrap_or(default.election_fallback_ms),
            replication: replication.unwrap_or(default.replication),
            thresholds: self.thresholds(),
        }
    }

    /// Changes thresholds, all or none. See
    /// [`MetaCommand::SetThresholds`](crate::MetaCommand::SetThresholds).
    pub(super) fn change_thresholds(
        &mut self,
        values: &BTreeMap<String, String>,
        changed: &mut Vec<Object>,
    ) -> Result<(), MetaError> {
        for (name, value) in values {
            check_config(name, value)?;
        }
        for (name, value) in values.iter().filter(|(name, _)| is_threshold(name)) {
            if self.config.get(name) != Some(value) {
                self.config.insert(name.clone(), value.clone());
                changed.push(Object::Config(name.clone()));
            }
        }
        if !changed.is_empty() {
            self.members_version += 1;
            changed.push(Object::Counters);
        }
        Ok(())
    }

    fn thresholds(&self) -> Thresholds {
        let mut thresholds = Thresholds::default();
        for threshold in &THRESHOLDS {
            if let Some(text) = self.config.get(threshold.name) {
                // The command that set it was checked.
                let _ = thresholds.set(threshold.name, text);
            }
        }
        thresholds
    }
}

impl StrongReads {
    pub fn name(self) -> &'static str {
        match self {
            StrongReads::Lease => "lease",
            StrongReads::ReadIndex => "read-index",
            StrongReads::EpochCheck => "epoch-check",
        }
    }
}

impl Election {
    pub fn name(self) -> &'static str {
        match self {
            Election::Raft => "raft",
            Election::Zookeeper => "zookeeper",
        }
    }
}

impl Replication {
    pub fn name(self) -> &'static str {
        match self {
            Replication::Direct => "direct",
            Replication::Chained => "chained",
        }
    }
}

/// Returns true if every store uses this setting.
pub(super) fn is_for_every_store(name: &str) -> bool {
    [
        CONFIG_STRONG_READS,
        CONFIG_MAX_CLOCK_OFFSET,
        CONFIG_ELECTION,
        CONFIG_ELECTION_FALLBACK,
        CONFIG_REPLICATION,
    ]
    .contains(&name)
        || is_threshold(name)
}

/// Returns a description of a threshold's values, if `value` is none of them.
pub(super) fn expected_threshold(name: &str, value: &str) -> Option<&'static str> {
    let threshold = THRESHOLDS.iter().find(|threshold| threshold.name == name)?;
    Thresholds::default().set(name, value).is_err().then(|| threshold.expected())
}

pub(super) fn is_threshold(name: &str) -> bool {
    THRESHOLDS.iter().any(|threshold| threshold.name == name)
}

pub(super) fn parse_strong_reads(text: &str) -> Option<StrongReads> {
    let all = [StrongReads::Lease, StrongReads::ReadIndex, StrongReads::EpochCheck];
    all.into_iter().find(|known| known.name() == text)
}

pub(super) fn parse_election(text: &str) -> Option<Election> {
    [Election::Raft, Election::Zookeeper].into_iter().find(|known| known.name() == text)
}

pub(super) fn parse_replication(text: &str) -> Option<Replication> {
    [Replication::Direct, Replication::Chained].into_iter().find(|known| known.name() == text)
}

/// Parses a time in milliseconds, or `never`.
pub(super) fn parse_fallback(text: &str) -> Option<Option<u64>> {
    match text {
        NEVER => Some(None),
        _ => parse_offset_ms(text).map(Some),
    }
}

/// Parses whole seconds, minutes, hours or days, from one second to one year. An offset below a
/// second would be comparable to a heartbeat's delay.
pub(super) fn parse_offset_ms(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    // `parse` accepts a sign, which is not allowed here.
    let number: u64 = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let seconds = number.checked_mul(unit).filter(|seconds| (1..=SECONDS_MAX).contains(seconds))?;
    Some(seconds * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::begun;
    use crate::{MetaCommand, MetaReply};

    #[test]
    fn an_offset_is_a_whole_number_with_a_unit() {
        assert_eq!(parse_offset_ms(MAX_CLOCK_OFFSET_DEFAULT), Some(MAX_CLOCK_OFFSET_DEFAULT_MS));
        let known = [("1", 1), ("1s", 1), ("90s", 90), ("2m", 120), ("3h", 10_800), ("365d", SECONDS_MAX)];
        for (text, seconds) in known {
            assert_eq!(parse_offset_ms(text), Some(seconds * 1000), "{text}");
        }
        for text in
            ["", "s", "0", "0d", "-1s", "+1s", "1.5s", "1ms", "1 s", "1S", "366d", "9999999999999999999999d"]
        {
            assert_eq!(parse_offset_ms(text), None, "{text}");
        }
        assert_eq!(parse_offset_ms(&format!("{}d", u64::MAX / 2)), None);
        assert_eq!(parse_offset_ms("é"), None);
    }

    #[test]
    fn what_every_store_goes_by_makes_a_new_version_of_what_they_know() {
        let mut state = begun(3, 1);
        let mut set = |name: &str, value: &str| {
            let command = state.set(name, value).unwrap();
            let reply = state.apply(&command, 1).unwrap();
            (reply, state.members_version, state.agreed_settings())
        };
        let default = AgreedSettings::default();
        assert_eq!(
            set("replicas", "2"),
            (MetaReply::Changed, 1, default),
            "the meta region's leader's alone"
        );
        let by_index = AgreedSettings { strong_reads: StrongReads::ReadIndex, ..default };
        assert_eq!(set("strong-reads", "read-index"), (MetaReply::Changed, 2, by_index));
        assert_eq!(set("strong-reads", "read-index"), (MetaReply::Unchanged, 2, by_index));
        let both = AgreedSettings { max_clock_offset_ms: 60_000, ..by_index };
        assert_eq!(set("max-clock-offset", "1m"), (MetaReply::Changed, 3, both));
        let unset = MetaCommand::SetConfig { name: CONFIG_STRONG_READS.into(), value: None };
        assert_eq!(state.apply(&unset, 1), Ok(MetaReply::Changed));
        assert_eq!((state.members_version, state.agreed_settings().strong_reads), (4, StrongReads::Lease));
    }

    #[test]
    fn settings_are_read_back_as_they_were_written() {
        let settings = AgreedSettings {
            strong_reads: StrongReads::ReadIndex,
            max_clock_offset_ms: 1000,
            cluster_version: 3,
            election: Election::Zookeeper,
            election_fallback_ms: None,
            replication: Replication::Chained,
            thresholds: Thresholds::default(),
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"strong_reads":"read-index","max_clock_offset_ms":1000,"cluster_version":3,"#,
                r#""election":"zookeeper","election_fallback_ms":null,"replication":"chained"}"#
            )
        );
        let older = r#"{"strong_reads":"lease","max_clock_offset_ms":10000,"cluster_version":1}"#;
        assert_eq!(serde_json::from_str::<AgreedSettings>(older).unwrap(), AgreedSettings::default());
        assert_eq!(serde_json::from_str::<AgreedSettings>(&text).unwrap(), settings);
        let mut thresholds = Thresholds::default();
        thresholds.set("list-max-listpack-size", "-3").unwrap();
        let bounded = AgreedSettings { thresholds, ..settings };
        let text = serde_json::to_string(&bounded).unwrap();
        assert!(text.ends_with(r#""chained","thresholds":{"list-max-listpack-size":-3}}"#), "{text}");
        assert_eq!(serde_json::from_str::<AgreedSettings>(&text).unwrap(), bounded);
        let newer = text.replace("-3}", r#"-3,"a-newer-one":4}"#);
        assert_eq!(serde_json::from_str::<AgreedSettings>(&newer).unwrap(), bounded);
    }
}
