//! The audit log: the last changes that users asked for, with their outcomes.
//!
//! A change of the meta region's state and its record are one entry of the log
//! ([`MetaCommand::Audited`]), so neither exists without the other. Changes that a store makes by
//! itself are recorded afterwards ([`MetaCommand::RecordChange`]).
//!
//! Stores leave secrets out before they propose a record. This crate knows a change only as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{StoreId, UnixMillis, THIRD_VERSION};

use super::{MetaState, Object};
use crate::{MetaCommand, MetaError, MetaReply};

/// Maximum number of records.
pub const AUDIT_RECORDS_MAX: usize = 4096;
/// Maximum bytes of all records, as they are written in rows.
pub const AUDIT_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a text in a record.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum bytes of a record's arguments.
const ARGUMENTS_BYTES_MAX: usize = 2048;
/// The end of a text that was cut.
const CUT: &str = "...";

// One record never drops all others: in JSON a byte becomes at most six.
const _: () = assert!(6 * (ARGUMENTS_BYTES_MAX + 4 * TEXT_BYTES_MAX) < AUDIT_BYTES_MAX / 8);

/// A change that a user asks for, without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditedChange {
    /// The time of the request, by the clock of the store that took it.
    pub at_ms: UnixMillis,
    /// The store that took the request.
    pub store: StoreId,
    /// A number that this store gives to no other change.
    pub number: u64,
    /// The user; `None` if no login was required.
    pub user: Option<String>,
    /// The address of the program that asked.
    pub address: String,
    pub command: String,
    pub arguments: Vec<String>,
    /// The number of arguments that are missing because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditOutcome {
    Done,
    /// Nothing was changed.
    Refused,
    /// The change may have taken effect.
    Unknown,
}

impl AuditOutcome {
    pub fn name(self) -> &'static str {
        match self {
            AuditOutcome::Done => "done",
            AuditOutcome::Refused => "refused",
            AuditOutcome::Unknown => "unknown",
        }
    }
}

/// A record of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRecord {
    /// The place in the log, from 1. No two records have the same, and none is left out.
    pub id: u64,
    /// The stamp of the record's entry.
    pub recorded_ms: UnixMillis,
    pub change: AuditedChange,
    pub outcome: AuditOutcome,
    /// The reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl AuditRecord {
    /// Returns the bytes of the record in a row.
    fn bytes(&self) -> usize {
        serde_json::to_vec(self).expect("plain data").len()
    }
}

/// The records that are kept: the newest ones, without a gap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditLog {
    records: BTreeMap<u64, AuditRecord>,
    bytes: usize,
}

impl AuditLog {
    /// Returns the records, oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &AuditRecord> {
        self.records.values()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&AuditRecord> {
        self.records.get(&id)
    }

    /// Adds a record that was read from its row.
    pub(crate) fn insert(&mut self, record: AuditRecord) {
        self.bytes += record.bytes();
        self.records.insert(record.id, record);
    }

    /// Returns true if a change is recorded.
    fn has(&self, change: &AuditedChange) -> bool {
        let is_it =
            |known: &AuditRecord| (known.change.store, known.change.number) == (change.store, change.number);
        self.records.values().rev().any(is_it)
    }

    /// Adds a record, and drops the oldest ones above the maximum. Returns the ids of both.
    fn add(&mut self, record: AuditRecord) -> Vec<u64> {
        let mut changed = vec![record.id];
        self.insert(record);
        while self.records.len() > AUDIT_RECORDS_MAX || self.bytes > AUDIT_BYTES_MAX {
            let Some((id, oldest)) = self.records.pop_first() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
            changed.push(id);
        }
        changed
    }
}

impl AuditedChange {
    /// Cuts texts that are too long, and drops arguments that are too many.
    pub fn clipped(mut self) -> AuditedChange {
        for text in [&mut self.address, &mut self.command].into_iter().chain(&mut self.user) {
            clip(text);
        }
        let mut bytes = 0;
        let count = self.arguments.len();
        self.arguments.retain_mut(|argument| {
            clip(argument);
            bytes += argument.len() + 1;
            bytes <= ARGUMENTS_BYTES_MAX
        });
        let dropped = u32::try_from(count - self.arguments.len()).unwrap_or(u32::MAX);
        self.left_out = self.left_out.saturating_add(dropped);
        self
    }
}

/// Returns a text that is short enough for a record.
pub fn clipped(mut text: String) -> String {
    clip(&mut text);
    text
}

fn clip(text: &mut String) {
    if text.len() <= TEXT_BYTES_MAX {
        return;
    }
    let mut end = TEXT_BYTES_MAX - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(CUT);
}

impl MetaState {
    /// Returns the number of the first record that is kept, which tells how many were dropped.
    pub fn first_audit_id(&self) -> u64 {
        self.audit.records.first_key_value().map_or(1, |(&id, _)| id)
    }

    /// Carries out a command and records it. See [`MetaCommand::Audited`].
    pub(super) fn apply_audited(
        &mut self,
        change: &AuditedChange,
        command: &MetaCommand,
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) -> Result<MetaReply, MetaError> {
        self.check_audited_version()?;
        let is_order = !matches!(
            command,
            MetaCommand::Audited { .. } | MetaCommand::RecordChange { .. } | MetaCommand::Bootstrap { .. }
        );
        if !is_order {
            return Err(MetaError::BadAudit("the command cannot be one that is recorded"));
        }
        let outcome = self.apply_command(command, stamp_ms, changed);
        match &outcome {
            Ok(_) => self.record(change, AuditOutcome::Done, None, stamp_ms, changed),
            // The change is computed and proposed again.
            Err(MetaError::UsersChanged | MetaError::LibrariesChanged) => {}
            // A store that may not join asks again and again.
            Err(_) if matches!(command, MetaCommand::Join { .. }) => {}
            Err(error) => {
                let reason = Some(error.to_string());
                self.record(change, AuditOutcome::Refused, reason, stamp_ms, changed);
            }
        }
        outcome
    }

    /// Records a change that was made elsewhere, unless it is recorded.
    pub(super) fn record_change(
        &mut self,
        change: &AuditedChange,
        outcome: AuditOutcome,
        reason: Option<&String>,
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) -> Result<(), MetaError> {
        self.check_audited_version()?;
        if !self.audit.has(change) {
            self.record(change, outcome, reason.cloned(), stamp_ms, changed);
        }
        Ok(())
    }

    fn check_audited_version(&self) -> Result<(), MetaError> {
        match self.version >= THIRD_VERSION {
            true => Ok(()),
            false => Err(MetaError::BadAudit(
                "the audit log needs version 3 of the cluster: see steelyard ctl versions",
            )),
        }
    }

    fn record(
        &mut self,
        change: &AuditedChange,
        outcome: AuditOutcome,
        mut reason: Option<String>,
        stamp_ms: UnixMillis,
        changed: &mut Vec<Object>,
    ) {
        if let Some(reason) = &mut reason {
            clip(reason);
        }
        let id = self.audit.records.last_key_value().map_or(1, |(&last, _)| last.saturating_add(1));
        let change = change.clone().clipped();
        let record = AuditRecord { id, recorded_ms: stamp_ms, change, outcome, reason };
        changed.extend(self.audit.add(record).into_iter().map(Object::Audit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::begun;

    fn change(number: u64, arguments: &[&str]) -> AuditedChange {
        AuditedChange {
            at_ms: 5,
            store: 1,
            number,
            user: Some("ann".into()),
            address: "127.0.0.1:9".into(),
            command: "config set".into(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            left_out: 0,
        }
    }

    fn third(stores: u64) -> MetaState {
        MetaState { version: THIRD_VERSION, ..begun(stores, 1) }
    }

    fn outcomes(state: &MetaState) -> Vec<(u64, AuditOutcome, Option<&str>)> {
        state.audit.records().map(|record| (record.id, record.outcome, record.reason.as_deref())).collect()
    }

    fn audited(number: u64, command: MetaCommand) -> MetaCommand {
        let command = MetaCommand::Audited { change: change(number, &[]), order: Box::new(command) };
        assert_eq!(MetaCommand::decode(&command.encode()).as_ref(), Ok(&command));
        command
    }

    #[test]
    fn a_change_and_its_record_are_one_entry_and_a_refusal_is_recorded_with_its_reason() {
        let mut state = third(2);
        let set = |value: &str| MetaCommand::SetConfig {
            name: "finish-upgrades".into(),
            value: Some(value.into()),
        };
        assert_eq!(state.apply(&audited(1, set("no")), 7), Ok(MetaReply::Changed));
        assert!(!state.finishes_upgrades());
        let record = state.audit.get(1).unwrap();
        assert_eq!((record.recorded_ms, record.change.at_ms), (7, 5));
        let refused = state.apply(&audited(2, set("never")), 8).unwrap_err();
        let reason = refused.to_string();
        let reason = Some(reason.as_str());
        use AuditOutcome::{Done, Refused};
        assert_eq!(outcomes(&state), [(1, Done, None), (2, Refused, reason)]);
        let again = MetaCommand::SetUsers { expected: 0, changes: BTreeMap::new(), replace: false };
        assert_eq!(state.apply(&audited(3, again), 8), Err(MetaError::UsersChanged));
        assert_eq!(state.audit.records().count(), 2, "the change is computed again");
        state.version = THIRD_VERSION - 1;
        assert!(matches!(state.apply(&audited(4, set("yes")), 9), Err(MetaError::BadAudit(_))));
        assert!(!state.finishes_upgrades(), "without a record there is no change");
    }

    #[test]
    fn commands_that_begin_a_cluster_or_record_a_change_are_not_recorded_themselves() {
        let mut state = third(1);
        let inner =
            MetaCommand::RecordChange { change: change(1, &[]), outcome: AuditOutcome::Done, reason: None };
        let nested = MetaCommand::Audited { change: change(2, &[]), order: Box::new(inner.clone()) };
        for inner in [inner, nested, crate::state::tests::bootstrap(1, 1)] {
            let outer = MetaCommand::Audited { change: change(3, &[]), order: Box::new(inner) };
            assert!(matches!(state.apply(&outer, 1), Err(MetaError::BadAudit(_))));
        }
        assert_eq!(state.audit.records().count(), 0);
    }

    #[test]
    fn a_change_is_recorded_once_however_often_it_is_proposed() {
        let mut state = third(1);
        let record = |number| MetaCommand::RecordChange {
            change: change(number, &["timeout", "5"]),
            outcome: AuditOutcome::Unknown,
            reason: None,
        };
        let command = record(7);
        assert_eq!(MetaCommand::decode(&command.encode()).as_ref(), Ok(&command));
        assert_eq!(state.apply(&command, 1), Ok(MetaReply::Changed));
        assert_eq!(state.apply(&command, 1), Ok(MetaReply::Unchanged));
        assert_eq!(state.apply(&record(8), 1), Ok(MetaReply::Changed));
        assert_eq!(state.audit.records().count(), 2);
    }

    #[test]
    fn a_flood_of_changes_drops_the_oldest_records_and_shows_that_it_did() {
        let mut state = third(1);
        let long = "\n".repeat(10_000);
        let arguments = [long.as_str(); 100];
        for (count, arguments) in [(AUDIT_RECORDS_MAX as u64 + 10, &arguments[..0]), (500, &arguments[..])] {
            for _ in 0..count {
                let number = state.audit.records().last().map_or(0, |last| last.id);
                let command = MetaCommand::RecordChange {
                    change: change(number, arguments),
                    outcome: AuditOutcome::Done,
                    reason: Some(long.clone()),
                };
                assert_eq!(state.apply(&command, 1), Ok(MetaReply::Changed));
            }
            let log = &state.audit;
            let bytes: usize = log.records().map(AuditRecord::bytes).sum();
            assert!(log.records.len() <= AUDIT_RECORDS_MAX && bytes <= AUDIT_BYTES_MAX, "{bytes}");
            assert_eq!(log.bytes, bytes);
            let ids: Vec<u64> = log.records().map(|record| record.id).collect();
            assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            assert_eq!(ids[0], state.first_audit_id());
        }
        assert!(state.first_audit_id() > 10 && state.audit.records.len() > 20);
        let change = &state.audit.records().last().unwrap().change;
        assert_eq!(change.arguments.len() + change.left_out as usize, arguments.len());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let clipped = change(1, &["é".repeat(200).as_str()]).clipped();
        assert!(clipped.arguments[0].ends_with("é...") && clipped.arguments[0].len() <= TEXT_BYTES_MAX);
        assert_eq!(clipped.clone().clipped(), clipped);
    }
}
