//! The rise of the cluster's version ([`types::Version`]), as the leader of the meta region decides
//! it.
//!
//! ```text
//! leader                                     store
//! which versions do you support? ──────────▶ newest, prepared
//! all members support a newer one:
//! prepare for it ──────────────────────────▶ its data directory records the version, durably:
//!                                            an older program refuses to start there
//! all members are prepared:
//! MetaCommand::RaiseVersion ───────────────▶ with the list of stores: write in the new version
//! ```
//!
//! Invariant: when the version rises, the directory of every member records it. An older program
//! refuses such a directory. So every store that reads the new version supports it, even if its
//! program is replaced by an older one at that moment.
//!
//! A store that joins during these steps changes the list of stores, and the rise is refused
//! ([`MetaError::MembersChanged`]). A store that joins later must support the version.
//!
//! [`MetaError::MembersChanged`]: crate::MetaError::MembersChanged

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{BootNanos, StoreId, Version, OLDEST_VERSION};

use crate::MetaState;

/// Time for which an answer counts, in nanoseconds. A store that answered longer ago may run
/// another program now, or may be gone.
const ANSWER_COUNTS_NANOS: u64 = 10_000_000_000;

/// The versions of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreVersions {
    /// The newest version that its program supports.
    pub newest: Version,
    /// The version that its data directory records. Programs that do not support it refuse to
    /// start there.
    pub prepared: Version,
}

impl StoreVersions {
    /// The versions of a store whose program does not support the query.
    pub const BEFORE_QUESTIONS: StoreVersions =
        StoreVersions { newest: OLDEST_VERSION, prepared: OLDEST_VERSION };
}

/// The next step until the cluster's version rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeStep {
    /// The cluster has the newest version that this store's program supports.
    Done,
    /// Ask every member for its versions. `prepare` is the version to prepare for.
    Ask { prepare: Option<Version> },
    /// Propose the rise: `MetaCommand::RaiseVersion` with these fields.
    Raise { version: Version, members_version: u64 },
}

/// The answers of the stores.
#[derive(Debug, Default)]
pub struct Upgrade {
    heard: BTreeMap<StoreId, (BootNanos, StoreVersions)>,
}

impl Upgrade {
    pub fn hear(&mut self, store: StoreId, versions: StoreVersions, now: BootNanos) {
        self.heard.insert(store, (now, versions));
    }

    /// Returns a store's answer, if it still counts.
    pub fn heard(&self, store: StoreId, now: BootNanos) -> Option<StoreVersions> {
        let (at, versions) = self.heard.get(&store)?;
        (now.saturating_sub(*at) < ANSWER_COUNTS_NANOS).then_some(*versions)
    }

    /// Drops all answers, because another store leads the meta region.
    pub fn forget(&mut self) {
        self.heard.clear();
    }

    /// Returns the next step of the leader of the meta region, whose program supports versions up
    /// to `newest`.
    pub fn step(&self, meta: &MetaState, newest: Version, now: BootNanos) -> UpgradeStep {
        if !meta.is_bootstrapped() || meta.version >= newest {
            return UpgradeStep::Done;
        }
        let answers: Option<Vec<StoreVersions>> =
            meta.members().map(|store| self.heard(store.id, now)).collect();
        // All members support this version.
        let common = answers.as_ref().and_then(|answers| answers.iter().map(|store| store.newest).min());
        let version = match common {
            Some(common) if common > meta.version && meta.finishes_upgrades() => common.min(newest),
            _ => return UpgradeStep::Ask { prepare: None },
        };
        match answers.iter().flatten().all(|store| store.prepared >= version) {
            true => UpgradeStep::Raise { version, members_version: meta.members_version },
            false => UpgradeStep::Ask { prepare: Some(version) },
        }
    }
}

#[cfg(test)]
mod tests;
