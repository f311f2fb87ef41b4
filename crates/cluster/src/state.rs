//! The state machine of the meta region.

use std::collections::{BTreeMap, BTreeSet};

use placement::Policy;
use types::{
    RegionDescriptor, RegionId, StoreId, Term, UnixMillis, Version, META_REGION, OLDEST_VERSION, SLOT_COUNT,
};

use crate::{MetaCommand, MetaError, MetaReply};

mod agreed;
mod audit;
pub(crate) mod cover;
pub(crate) mod descriptors;
mod facts;
mod libraries;
mod merged;
mod operators;
mod settings;
mod stores;
mod tokens;
mod users;

pub use agreed::{AgreedSettings, Election, Replication, StrongReads};
pub use audit::{
    clipped, AuditLog, AuditOutcome, AuditRecord, AuditedChange, AUDIT_BYTES_MAX, AUDIT_RECORDS_MAX,
};
pub use facts::{StoreFacts, StoreKey};
pub use libraries::{FunctionRecord, LibraryRecord, LIBRARIES_BYTES_MAX, LIBRARIES_TOO_LONG};
pub use merged::MergedRegions;
pub use operators::{Finished, InFlight, OperatorId, Outcome, Phase, HISTORY_MAX};
pub use settings::{is_setting, Setting, SettingError};
pub use stores::{MemberState, StoreRecord, STORES_MAX};
pub use tokens::{is_token_name, TokenRecord, TOKENS_MAX};
pub use users::UserRecord;

/// Names of the configuration values that this crate reads.
pub const CONFIG_REPLICAS: &str = "replicas";
pub const CONFIG_META_REPLICAS: &str = "meta-replicas";
/// The label whose equal values mark stores that fail together. Without it, no stores are assumed
/// to fail together.
pub const CONFIG_DOMAIN_LABEL: &str = "domain-label";
/// The way in which leaders prove that reads are current.
pub const CONFIG_STRONG_READS: &str = "strong-reads";
/// Maximum distance of a store's wall clock from the median of all.
pub const CONFIG_MAX_CLOCK_OFFSET: &str = "max-clock-offset";
pub const CONFIG_ELECTION: &str = "election";
pub const CONFIG_ELECTION_FALLBACK: &str = "election-fallback";
pub const CONFIG_REPLICATION: &str = "replication";

/// Either `yes` or `no`. With `yes` the cluster's version rises automatically once all stores
/// support a newer one.
pub const CONFIG_FINISH_UPGRADES: &str = "finish-upgrades";

/// Seconds of silence after which a store's peers are replaced on other stores.
pub const CONFIG_REPLACE_AFTER: &str = "replace-after-s";

const YES: &str = "yes";
const NO: &str = "no";

const REPLICAS_DEFAULT: usize = 3;
const META_REPLICAS_DEFAULT: usize = 5;
/// Maximum number of copies of a region.
pub const REPLICAS_MAX: usize = 9;

/// The state that every replica of region 0 agrees on. The default is the state before bootstrap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaState {
    /// The cluster's id; `None` until bootstrap.
    pub cluster_id: Option<u64>,
    pub created_ms: UnixMillis,
    /// The version that all stores write; see [`crate::upgrade`]. It never falls.
    pub version: Version,
    /// A number that increases with every change of a [`StoreRecord`], a [`UserRecord`],
    /// a [`LibraryRecord`], a [`TokenRecord`] or an [`AgreedSettings`].
    pub members_version: u64,
    /// The `members_version` of the last change of libraries.
    pub libraries_version: u64,
    /// The ids that the next store, region and operator get. Smaller ids are never used again.
    pub next_store: StoreId,
    pub next_region: RegionId,
    pub next_operator: OperatorId,
    /// The term of region 0 in which the last leader took over planning.
    pub planner_term: Term,
    /// All stores, removed ones included. [`MetaState::members`] leaves those out.
    pub stores: BTreeMap<StoreId, StoreRecord>,
    /// The regions. User regions cover every slot once.
    pub regions: BTreeMap<RegionId, RegionDescriptor>,
    /// The regions that have merged away, since version 2 of the cluster.
    pub merged: MergedRegions,
    /// The operators in flight. No region takes part in two.
    pub operators: BTreeMap<OperatorId, InFlight>,
    /// The last [`HISTORY_MAX`] operators that ended.
    pub history: BTreeMap<OperatorId, Finished>,
    pub policy: Policy,
    pub policy_since_ms: UnixMillis,
    pub config: BTreeMap<String, String>,
    /// The users of clients by name, since version 3 of the cluster.
    pub users: BTreeMap<String, UserRecord>,
    /// The libraries of functions by name, since version 3 of the cluster.
    pub libraries: BTreeMap<String, LibraryRecord>,
    /// The bearer tokens of the admin endpoint by name, since version 3 of the cluster.
    pub tokens: BTreeMap<String, TokenRecord>,
    /// The last changes that users asked for, since version 3 of the cluster.
    pub audit: AuditLog,
}

/// An object that a command changed, and so a row to be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Cluster,
    Policy,
    Counters,
    Store(StoreId),
    Region(RegionId),
    /// A chunk of [`MergedRegions`].
    Merged(u64),
    Config(String),
    User(String),
    Library(String),
    Token(String),
    Audit(u64),
    Operator(OperatorId),
    Finished(OperatorId),
}

impl MetaState {
    pub fn is_bootstrapped(&self) -> bool {
        self.cluster_id.is_some()
    }

    /// Returns the number of voters that a user region should have.
    pub fn replicas(&self) -> usize {
        self.configured_replicas(CONFIG_REPLICAS, REPLICAS_DEFAULT)
    }

    pub fn meta_replicas(&self) -> usize {
        self.configured_replicas(CONFIG_META_REPLICAS, META_REPLICAS_DEFAULT)
    }

    /// Returns the configured `replace_after_nanos` of a [`LedgerConfig`](crate::LedgerConfig);
    /// `None` if it is not configured.
    pub fn replace_after_nanos(&self) -> Option<u64> {
        let seconds = parse_seconds(self.config.get(CONFIG_REPLACE_AFTER)?)?;
        Some(seconds.saturating_mul(1_000_000_000))
    }

    pub fn domain_label(&self) -> Option<&str> {
        self.config.get(CONFIG_DOMAIN_LABEL).map(String::as_str)
    }

    /// Returns true if the cluster's version rises automatically.
    pub fn finishes_upgrades(&self) -> bool {
        self.config.get(CONFIG_FINISH_UPGRADES).is_none_or(|value| value == YES)
    }

    /// Refuses a joining store whose program does not support the cluster's version. `newest` is
    /// the newest version that it supports; `None` stands for the oldest.
    fn check_newest(&self, newest: Option<Version>) -> Result<(), MetaError> {
        let newest = newest.unwrap_or(OLDEST_VERSION);
        match newest >= self.version {
            true => Ok(()),
            false => Err(MetaError::OldProgram { newest, version: self.version }),
        }
    }

    fn configured_replicas(&self, name: &str, otherwise: usize) -> usize {
        self.config.get(name).and_then(|value| parse_replicas(value)).unwrap_or(otherwise)
    }

    /// Returns the reports that [`MetaCommand::ReportRegions`] would accept now.
    pub fn newer_descriptors<'a>(
        &self,
        reports: impl IntoIterator<Item = &'a RegionDescriptor>,
    ) -> Vec<&'a RegionDescriptor> {
        cover::fit(&self.regions, reports, |region| self.is_plausible(region)).taken
    }

    /// Applies a command. It is deterministic: the same commands with the same stamps lead to the
    /// same state. An error changes nothing but the audit log.
    pub fn apply(&mut self, command: &MetaCommand, stamp_ms: UnixMillis) -> Result<MetaReply, MetaError> {
        self.apply_noting(command, stamp_ms, &mut BTreeSet::new())
    }

    pub(crate) fn apply_noting(
        &mut self,
        command: &MetaCommand,
        stamp_ms: UnixMillis,
        noted: &mut BTreeSet<Object>,
    ) -> Result<MetaReply, MetaError> {
        if let (MetaCommand::Bootstrap { .. }, Some(cluster_id)) = (command, self.cluster_id) {
            return Ok(MetaReply::AlreadyBootstrapped { cluster_id });
        }
        if !self.is_bootstrapped() && !matches!(command, MetaCommand::Bootstrap { .. }) {
            return Err(MetaError::NotBootstrapped);
        }
        let mut changed = Vec::new();
        let reply = self.apply_command(command, stamp_ms, &mut changed);
        noted.extend(changed);
        reply
    }

    /// Applies a command. The state must exist, except for [`MetaCommand::Bootstrap`].
    fn apply_command(
        &mut self,
        command: &MetaCommand,
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) -> Result<MetaReply, MetaError> {
        Ok(match command {
            MetaCommand::Bootstrap { .. } => self.bootstrap(command, stamp_ms, changed)?,
            MetaCommand::SetPolicy { policy } => {
                if self.policy != *policy {
                    self.policy = *policy;
                    self.policy_since_ms = stamp_ms;
                    changed.push(Object::Policy);
                }
                changed_or_not(changed)
            }
            MetaCommand::Join { facts, newest } => {
                self.check_newest(*newest)?;
                let (reply, object) = self.join(facts)?;
                note_store(object, changed);
                reply
            }
            MetaCommand::SetStore { .. }
            | MetaCommand::SetStoreState { .. }
            | MetaCommand::SetPins { .. }
            | MetaCommand::RemoveStore { .. } => {
                note_store(self.apply_to_store(command)?, changed);
                changed_or_not(changed)
            }
            MetaCommand::ReportRegions { regions } => self.take_reports(regions, changed),
            MetaCommand::AllocateRegions { count } => {
                let first = self.take_region_ids(*count)?;
                changed.push(Object::Counters);
                MetaReply::Allocated { first, count: *count }
            }
            MetaCommand::TakeOver { term } => {
                if *term > self.planner_term {
                    self.planner_term = *term;
                    changed.push(Object::Counters);
                }
                changed_or_not(changed)
            }
            MetaCommand::BeginOperator { id, operator } => {
                self.begin_operator(*id, operator, stamp_ms, changed)?
            }
            MetaCommand::AdvanceOperator { id, phase } => self.advance_operator(*id, *phase, changed)?,
            MetaCommand::FinishOperator { id, outcome } => {
                self.finish_operator(*id, *outcome, stamp_ms, changed)?
            }
            MetaCommand::RaiseVersion { version, members_version } => {
                if *version > self.version {
                    if *members_version != self.members_version {
                        return Err(MetaError::MembersChanged);
                    }
                    self.version = *version;
                    // The list of stores brings the version to every store.
                    self.members_version += 1;
                    let regions: Vec<RegionDescriptor> = self.regions.values().cloned().collect();
                    self.record_merged(&regions, changed);
                    changed.extend([Object::Cluster, Object::Counters]);
                }
                changed_or_not(changed)
            }
            MetaCommand::SetConfig { name, value } => {
                if self.config.get(name) != value.as_ref() {
                    match value {
                        Some(value) => {
                            check_config(name, value)?;
                            self.config.insert(name.clone(), value.clone());
                        }
                        None => drop(self.config.remove(name)),
                    }
                    changed.push(Object::Config(name.clone()));
                    if agreed::is_for_every_store(name) {
                        self.members_version += 1;
                        changed.push(Object::Counters);
                    }
                }
                changed_or_not(changed)
            }
            MetaCommand::SetThresholds { values } => {
                self.change_thresholds(values, changed)?;
                changed_or_not(changed)
            }
            MetaCommand::SetLibraries { expected, changes, replace } => {
                self.set_libraries(*expected, changes, *replace, changed)?;
                changed_or_not(changed)
            }
            MetaCommand::SetUsers { expected, changes, replace } => {
                self.set_users(*expected, changes, *replace, changed)?;
                changed_or_not(changed)
            }
            MetaCommand::CreateToken { name, user, digest, ttl_ms } => {
                self.create_token(name, (user, digest, *ttl_ms), stamp_ms, changed)?;
                changed_or_not(changed)
            }
            MetaCommand::RevokeToken { name } => {
                self.revoke_token(name, changed)?;
                changed_or_not(changed)
            }
            MetaCommand::Audited { change, order } => self.apply_audited(change, order, stamp_ms, changed)?,
            MetaCommand::RecordChange { change, outcome, reason } => {
                self.record_change(change, *outcome, reason.as_ref(), stamp_ms, changed)?;
                changed_or_not(changed)
            }
        })
    }

    fn bootstrap(
        &mut self,
        command: &MetaCommand,
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) -> Result<MetaReply, MetaError> {
        let MetaCommand::Bootstrap { cluster_id, stores, regions, policy, config, version } = command else {
            unreachable!("the caller looked");
        };
        check_bootstrap(stores, regions)?;
        for (name, value) in config {
            check_config(name, value)?;
        }
        let after_last = |last: Option<u64>| last.map_or(Some(0), |last| last.checked_add(1));
        *self = MetaState {
            cluster_id: Some(*cluster_id),
            created_ms: stamp_ms,
            version: *version,
            members_version: 1,
            libraries_version: 0,
            next_store: after_last(stores.iter().map(|store| store.id).max()).ok_or(MetaError::NoIds)?,
            next_region: after_last(regions.iter().map(|region| region.id).max()).ok_or(MetaError::NoIds)?,
            next_operator: 1,
            planner_term: 0,
            stores: stores.iter().map(|store| (store.id, store.clone())).collect(),
            regions: regions.iter().map(|region| (region.id, region.clone())).collect(),
            merged: MergedRegions::default(),
            operators: BTreeMap::new(),
            history: BTreeMap::new(),
            policy: *policy,
            policy_since_ms: stamp_ms,
            config: config.clone(),
            users: BTreeMap::new(),
            libraries: BTreeMap::new(),
            tokens: BTreeMap::new(),
            audit: AuditLog::default(),
        };
        changed.extend([Object::Cluster, Object::Policy, Object::Counters]);
        changed.extend(self.stores.keys().map(|&id| Object::Store(id)));
        changed.extend(self.regions.keys().map(|&id| Object::Region(id)));
        changed.extend(self.config.keys().cloned().map(Object::Config));
        Ok(MetaReply::Bootstrapped)
    }

    fn take_reports(&mut self, reports: &[RegionDescriptor], changed: &mut Vec<Object>) -> MetaReply {
        let fit = cover::fit(&self.regions, reports, |region| self.is_plausible(region));
        let taken: Vec<RegionDescriptor> = fit.taken.into_iter().cloned().collect();
        let reply = MetaReply::Reported {
            taken: taken.iter().map(|region| region.id).collect(),
            ignored: fit.ignored,
        };
        for id in fit.gone {
            self.regions.remove(&id);
            changed.push(Object::Region(id));
        }
        self.record_merged(&taken, changed);
        for region in taken {
            changed.push(Object::Region(region.id));
            self.regions.insert(region.id, region);
        }
        reply
    }

    /// Returns true if the region can exist: its id was allocated, and so were the ids of its
    /// peers' stores.
    fn is_plausible(&self, region: &RegionDescriptor) -> bool {
        region.id < self.next_region
            && region.peers.iter().all(|peer| self.stores.contains_key(&peer.store))
            && region.voters().next().is_some()
    }

    fn take_region_ids(&mut self, count: u32) -> Result<RegionId, MetaError> {
        let first = self.next_region;
        self.next_region = first.checked_add(u64::from(count)).ok_or(MetaError::NoIds)?;
        Ok(first)
    }
}

fn changed_or_not(changed: &[Object]) -> MetaReply {
    match changed {
        [] => MetaReply::Unchanged,
        _ => MetaReply::Changed,
    }
}

/// Records a changed store. Its change also changes the version of the list of stores, which is in
/// a row of its own.
fn note_store(object: Option<Object>, changed: &mut Vec<Object>) {
    if let Some(object) = object {
        changed.extend([Object::Counters, object]);
    }
}

fn parse_replicas(value: &str) -> Option<usize> {
    value.parse().ok().filter(|replicas| (1..=REPLICAS_MAX).contains(replicas))
}

/// Parses seconds of silence. The minimum is 5 because a store that is silent for a few seconds is
/// expected to return.
fn parse_seconds(value: &str) -> Option<u64> {
    value.parse().ok().filter(|&seconds| seconds >= 5)
}

/// Returns true if a label can have this name. Stores write labels as `NAME=VALUE`.
fn is_label(name: &str) -> bool {
    !name.is_empty() && name.trim() == name && !name.contains('=')
}

fn check_config(name: &str, value: &str) -> Result<(), MetaError> {
    match name {
        CONFIG_REPLICAS | CONFIG_META_REPLICAS if parse_replicas(value).is_none() => {
            let expected = const {
                assert!(REPLICAS_MAX == 9);
                "1 to 9"
            };
            Err(MetaError::BadConfig { name: name.to_owned(), value: value.to_owned(), expected })
        }
        CONFIG_REPLACE_AFTER if parse_seconds(value).is_none() => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "5 or more seconds",
        }),
        CONFIG_STRONG_READS if agreed::parse_strong_reads(value).is_none() => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "lease, read-index or epoch-check",
        }),
        CONFIG_MAX_CLOCK_OFFSET if agreed::parse_offset_ms(value).is_none() => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "1s to 365d, as a whole number of s, m, h or d",
        }),
        CONFIG_ELECTION if agreed::parse_election(value).is_none() => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "raft or zookeeper",
        }),
        CONFIG_ELECTION_FALLBACK if agreed::parse_fallback(value).is_none() => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "1s to 365d, as a whole number of s, m, h or d, or never",
        }),
        CONFIG_REPLICATION if agreed::parse_replication(value).is_none() => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "direct or chained",
        }),
        CONFIG_FINISH_UPGRADES if ![YES, NO].contains(&value) => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "yes or no",
        }),
        CONFIG_DOMAIN_LABEL if !is_label(value) => Err(MetaError::BadConfig {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "a label's name without a value, or none",
        }),
        _ => match agreed::expected_threshold(name, value) {
            Some(expected) => {
                Err(MetaError::BadConfig { name: name.to_owned(), value: value.to_owned(), expected })
            }
            None => Ok(()),
        },
    }
}

/// Checks a bootstrap. Each store is named once, the meta region has no slots, and user regions
/// cover every slot once. Every peer is on a member, and no two peers of a region are on one store.
fn check_bootstrap(stores: &[StoreRecord], regions: &[RegionDescriptor]) -> Result<(), MetaError> {
    let bad = |what: String| Err(MetaError::BadBootstrap(what));
    let members: BTreeSet<StoreId> = stores.iter().map(|store| store.id).collect();
    if members.is_empty() || members.len() != stores.len() {
        return bad("there are no stores, or one is named twice".into());
    }
    if stores.iter().any(|store| store.state != MemberState::Up) {
        return bad("a store is draining or removed".into());
    }
    let mut ids = BTreeSet::new();
    let mut ranges = Vec::new();
    for region in regions {
        let id = region.id;
        if !ids.insert(id) {
            return bad(format!("region {id} is named twice"));
        }
        if region.slots.is_none() != (id == META_REGION) {
            return bad(format!("region {id}: exactly the user regions have slots"));
        }
        ranges.extend(region.slots);
        if region.voters().next().is_none() || !region.peers.iter().all(|peer| members.contains(&peer.store))
        {
            return bad(format!("region {id} has no voter, or a peer on a store that is no member"));
        }
        if !region.peers.windows(2).all(|pair| pair[0].store < pair[1].store) {
            return bad(format!("region {id} has two peers on one store, or they are out of order"));
        }
    }
    if !ids.contains(&META_REGION) {
        return bad("there is no meta region".into());
    }
    ranges.sort_unstable();
    let mut next = 0;
    for range in ranges {
        if range.first != next || range.is_empty() {
            return bad(format!("slot {next} is not in exactly one region"));
        }
        next = range.last + 1;
    }
    if next != SLOT_COUNT {
        return bad(format!("slot {next} is in no region"));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
