use storage::MemoryKeyspace;
use types::META_REGION;

use super::*;
use crate::encode_entry;
use crate::state::tests::{bootstrap, commands, transfer};
use crate::MetaCommand;

/// Applies each command in a batch of its own. Returns the number of rows that each wrote, without
/// the region's state.
fn apply_all(engine: &mut MemoryKeyspace, state: &mut MetaState, commands: &[MetaCommand]) -> Vec<usize> {
    let mut written = Vec::new();
    for (command, stamp_ms) in commands.iter().zip(50..) {
        let mut txn = Txn::begin(engine, META_REGION).unwrap();
        let entry = encode_entry(stamp_ms, &command.encode());
        apply_entry(&entry, state, &mut txn).unwrap().unwrap();
        let (writes, _) = txn.finish();
        written.push(writes.rows.iter().filter(|(row, _)| row[0] == SPACE_META_REGION).count());
        engine.write(writes);
    }
    written
}

#[test]
fn rows_hold_what_the_state_holds_after_every_command() {
    let (mut engine, mut state) = (MemoryKeyspace::default(), MetaState::default());
    assert_eq!(MetaState::load(&engine).unwrap(), state);
    for command in commands() {
        apply_all(&mut engine, &mut state, &[command]);
        assert_eq!(MetaState::load(&engine).unwrap(), state);
    }
}

#[test]
fn tokens_and_records_are_rows_and_a_refusal_writes_its_record_alone() {
    let (mut engine, mut state) = (MemoryKeyspace::default(), MetaState::default());
    let third = MetaCommand::RaiseVersion { version: types::THIRD_VERSION, members_version: 1 };
    let changes = [("ann".to_owned(), Some("on".to_owned()))].into();
    let users = MetaCommand::SetUsers { expected: 2, changes, replace: false };
    let digest = "0".repeat(64);
    let (name, user) = ("t".to_owned(), "ann".to_owned());
    let token = MetaCommand::CreateToken { name, user, digest, ttl_ms: Some(u64::MAX) };
    let audited = |number, order: MetaCommand| {
        let change = crate::AuditedChange { number, ..crate::AuditedChange::default() };
        MetaCommand::Audited { change, order: Box::new(order) }
    };
    let revoke = MetaCommand::RevokeToken { name: "t".into() };
    let refused = audited(3, revoke.clone());
    let commands = [bootstrap(1, 1), third, audited(1, users), audited(2, token), audited(3, revoke)];
    for command in commands {
        apply_all(&mut engine, &mut state, &[command]);
        assert_eq!(MetaState::load(&engine).unwrap(), state);
    }
    let mut txn = Txn::begin(&engine, META_REGION).unwrap();
    let outcome = apply_entry(&encode_entry(99, &refused.encode()), &mut state, &mut txn).unwrap();
    assert!(matches!(outcome, Err(MetaError::BadToken(_))));
    let (writes, _) = txn.finish();
    let rows: Vec<_> = writes.rows.iter().filter(|(row, _)| row[0] == SPACE_META_REGION).collect();
    assert_eq!(rows.iter().map(|(row, _)| row[1]).collect::<Vec<_>>(), [KIND_AUDIT]);
    engine.write(writes);
    assert_eq!(MetaState::load(&engine).unwrap(), state);
    assert_eq!(state.audit.records().count(), 4);
}

#[test]
fn a_change_writes_the_row_of_what_changed_and_no_other() {
    let (mut engine, mut state) = (MemoryKeyspace::default(), MetaState::default());
    // The first command writes cluster, policy, counters, 4 stores, 8 regions and one configuration
    // value. Each later one writes one row, and the counters if it takes an id or changes the list
    // of stores.
    let written = apply_all(&mut engine, &mut state, &commands());
    assert_eq!(written, [16, 1, 2, 1, 1, 1, 2, 2, 2, 1, 1, 2, 1, 2, 2, 2, 1]);
    assert_eq!(apply_all(&mut engine, &mut state, &[bootstrap(9, 9)]), [0]);
}

#[test]
fn batches_of_commands_see_each_other() {
    let (mut one, mut many) = (MemoryKeyspace::default(), MemoryKeyspace::default());
    apply_all(&mut many, &mut MetaState::default(), &commands());
    let mut state = MetaState::default();
    let mut txn = Txn::begin(&one, META_REGION).unwrap();
    for (command, stamp_ms) in commands().iter().zip(50..) {
        apply_entry(&encode_entry(stamp_ms, &command.encode()), &mut state, &mut txn).unwrap().unwrap();
    }
    let (writes, region) = txn.finish();
    assert_eq!(region.last_stamp_ms, 49 + commands().len() as u64);
    one.write(writes);
    assert!(one.iter().eq(many.iter()));
}

#[test]
fn a_stamp_never_goes_back() {
    let engine = MemoryKeyspace::default();
    let mut state = MetaState::default();
    let mut txn = Txn::begin(&engine, META_REGION).unwrap();
    txn.state_mut().advance_time(1000);
    apply_entry(&encode_entry(5, &bootstrap(3, 1).encode()), &mut state, &mut txn).unwrap().unwrap();
    assert_eq!(state.created_ms, 1000);
}

#[test]
fn an_entry_that_cannot_be_read_stops_the_store_and_a_refusal_does_not() {
    let engine = MemoryKeyspace::default();
    let mut state = MetaState::default();
    let mut txn = Txn::begin(&engine, META_REGION).unwrap();
    let newer = apply_entry(b"\x02whatever", &mut state, &mut txn);
    assert!(matches!(newer, Err(StorageError::Corrupt(_))));
    let early = MetaCommand::SetConfig { name: "a".into(), value: None };
    let refused = apply_entry(&encode_entry(1, &early.encode()), &mut state, &mut txn);
    assert_eq!(refused, Ok(Err(MetaError::NotBootstrapped)));
}

#[test]
fn damaged_rows_are_corrupt() {
    let (mut engine, mut state) = (MemoryKeyspace::default(), MetaState::default());
    apply_all(&mut engine, &mut state, &commands());
    let rows: Vec<(Bytes, Bytes)> = engine.iter().map(|(row, value)| (row.clone(), value.clone())).collect();
    for (row, value) in rows.into_iter().filter(|(row, _)| row[0] == SPACE_META_REGION) {
        let mut newer = value.to_vec();
        newer[0] = 9;
        for damaged in [Bytes::new(), value.slice(..value.len() - 1), newer.into()] {
            let mut engine = engine.clone();
            let rows = vec![(row.clone(), Some(damaged))];
            engine.write(storage::WriteSet { ranges_deleted: Vec::new(), rows });
            assert!(matches!(MetaState::load(&engine), Err(StorageError::Corrupt(_))), "{row:?}");
        }
    }
    for row in [&b"m"[..], b"m\x09", b"m\x01x", b"m\x06x", b"m\x03\0\0\0\0\0\0\0\x09"] {
        let mut engine = engine.clone();
        let value = engine.get(b"m\x03\0\0\0\0\0\0\0\x01").unwrap();
        engine.write(storage::WriteSet { ranges_deleted: Vec::new(), rows: vec![(row.into(), value)] });
        assert!(matches!(MetaState::load(&engine), Err(StorageError::Corrupt(_))), "{row:?}");
    }
}

#[test]
fn the_oldest_operators_leave_the_rows_too() {
    let (mut engine, mut state) = (MemoryKeyspace::default(), MetaState::default());
    apply_all(&mut engine, &mut state, &[bootstrap(3, 1)]);
    for id in 1..=crate::HISTORY_MAX as u64 + 3 {
        let begin = MetaCommand::BeginOperator { id, operator: transfer(1, 2) };
        let finish = MetaCommand::FinishOperator { id, outcome: crate::Outcome::TimedOut };
        apply_all(&mut engine, &mut state, &[begin, finish]);
    }
    assert_eq!(state.history.len(), crate::HISTORY_MAX);
    assert_eq!(MetaState::load(&engine).unwrap(), state);
}
