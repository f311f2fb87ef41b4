//! The members of the cluster: how stores join, change and leave.

use serde::{Deserialize, Serialize};
use types::{RegionId, StoreId};

use super::{MetaState, Object, StoreFacts, StoreKey};
use crate::{MetaCommand, MetaError, MetaReply};

/// Maximum number of members. Each store has connections to all others, and every change of the
/// list goes to all of them. The limit also prevents joining processes from growing the list
/// without bound.
pub const STORES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// A member. Only heartbeats say whether it is alive.
    #[default]
    Up,
    /// A member that is being drained: its leaders and peers move away.
    Draining,
    /// No longer a member. The record stays so that the id is not used again. It also lets the
    /// store learn of its removal if it returns.
    Removed,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRecord {
    pub id: StoreId,
    pub facts: StoreFacts,
    pub state: MemberState,
    /// The weights that replace the measured capability when data and leaders are placed.
    pub data_weight: Option<f64>,
    pub leader_weight: Option<f64>,
}

impl StoreRecord {
    pub fn new(id: StoreId, facts: StoreFacts) -> StoreRecord {
        StoreRecord { id, facts, state: MemberState::Up, data_weight: None, leader_weight: None }
    }
}

impl MetaState {
    /// Returns the stores that were not removed, ascending.
    pub fn members(&self) -> impl Iterator<Item = &StoreRecord> {
        self.stores.values().filter(|store| store.state != MemberState::Removed)
    }

    pub fn member(&self, store: StoreId) -> Result<&StoreRecord, MetaError> {
        let record = self.stores.get(&store).ok_or(MetaError::UnknownStore(store))?;
        match record.state {
            MemberState::Removed => Err(MetaError::StoreRemoved(store)),
            MemberState::Up | MemberState::Draining => Ok(record),
        }
    }

    /// Returns the store with this key, even if it was removed.
    pub fn with_key(&self, key: StoreKey) -> Option<&StoreRecord> {
        self.stores.values().find(|store| store.facts.key == Some(key))
    }

    /// Returns the first region that has a peer of any role on `store`.
    pub fn first_peer_on(&self, store: StoreId) -> Option<RegionId> {
        self.regions.values().find(|region| region.has_peer_on(store)).map(|region| region.id)
    }

    pub(super) fn join(&mut self, facts: &StoreFacts) -> Result<(MetaReply, Option<Object>), MetaError> {
        let key = facts.key.ok_or(MetaError::NoKey)?;
        facts.check()?;
        let cluster_id = self.cluster_id.expect("commands but the first need a cluster");
        let (store, object) = match self.with_key(key).map(|store| (store.id, store.state)) {
            Some((id, MemberState::Removed)) => return Err(MetaError::StoreRemoved(id)),
            Some((id, _)) => (id, self.change_store(id, |record| record.facts = facts.clone())),
            None if self.members().count() >= STORES_MAX => return Err(MetaError::TooManyStores),
            None => {
                let id = self.next_store;
                self.next_store = id.checked_add(1).ok_or(MetaError::NoIds)?;
                self.stores.insert(id, StoreRecord::new(id, facts.clone()));
                self.members_version += 1;
                (id, Some(Object::Store(id)))
            }
        };
        Ok((MetaReply::Joined { store, cluster_id }, object))
    }

    /// Applies a command about an existing member.
    pub(super) fn apply_to_store(&mut self, command: &MetaCommand) -> Result<Option<Object>, MetaError> {
        match command {
            MetaCommand::SetStore { store, facts } => {
                let known = self.member(*store)?.facts.key;
                let key = facts.key.ok_or(MetaError::NoKey)?;
                if known.is_some_and(|known| known != key) {
                    return Err(MetaError::OtherDisk(*store));
                }
                if let Some(other) = self.with_key(key).filter(|other| other.id != *store) {
                    return Err(MetaError::KeyInUse(other.id));
                }
                facts.check()?;
                Ok(self.change_store(*store, |record| record.facts = facts.clone()))
            }
            MetaCommand::SetStoreState { store, state } => {
                let known = self.member(*store)?.state;
                match state {
                    MemberState::Draining if known == MemberState::Up => self.check_staying(*store)?,
                    MemberState::Removed => self.check_removal(*store)?,
                    MemberState::Up | MemberState::Draining => {}
                }
                Ok(self.change_store(*store, |record| record.state = *state))
            }
            MetaCommand::RemoveStore { store } => {
                self.member(*store)?;
                self.check_removal(*store)?;
                Ok(self.change_store(*store, |record| record.state = MemberState::Removed))
            }
            MetaCommand::SetPins { store, data_weight, leader_weight } => {
                self.member(*store)?;
                let is_weight = |weight: &f64| weight.is_finite() && *weight > 0.0;
                if !data_weight.iter().chain(leader_weight).all(is_weight) {
                    return Err(MetaError::BadWeight);
                }
                Ok(self.change_store(*store, |record| {
                    record.data_weight = *data_weight;
                    record.leader_weight = *leader_weight;
                }))
            }
            _ => unreachable!("not a command about a store: {command:?}"),
        }
    }

    /// Changes a record. Returns `None` if the change has no effect.
    fn change_store(&mut self, id: StoreId, change: impl FnOnce(&mut StoreRecord)) -> Option<Object> {
        let record = self.stores.get_mut(&id).expect("the caller found it");
        let before = record.clone();
        change(record);
        if *record == before {
            return None;
        }
        self.members_version += 1;
        Some(Object::Store(id))
    }

    /// Checks that the stores that are not draining can hold every region without `store`.
    fn check_staying(&self, store: StoreId) -> Result<(), MetaError> {
        let stays = |other: &&StoreRecord| other.state == MemberState::Up && other.id != store;
        let staying = self.stores.values().filter(stays).count();
        let replicas = self.replicas();
        if staying < replicas {
            return Err(MetaError::TooFewStores { staying, replicas });
        }
        Ok(())
    }

    fn check_removal(&self, store: StoreId) -> Result<(), MetaError> {
        if let Some(region) = self.first_peer_on(store) {
            return Err(MetaError::HoldsPeer { store, region });
        }
        let named = |to: Option<StoreId>| to == Some(store);
        if self.operators.values().any(|flight| named(flight.operator.to()) || named(flight.operator.from()))
        {
            return Err(MetaError::StoreInUse(store));
        }
        Ok(())
    }
}
