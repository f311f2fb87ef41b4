use std::sync::Arc;

use cluster::{Cause, Quarantine};
use storage::MemoryKeyspace;
use types::{RegionChange, FIRST_INDEX};

use super::*;
use crate::item::Item;
use crate::lifecycle::Job;
use crate::queue::{May, Queue};
use crate::work::{Submit, Work};

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn region(id: RegionId, slots: SlotRange) -> RegionDescriptor {
    RegionDescriptor::founded(id, Some(slots), &[0, 1, 2])
}

/// Returns the entry at `index` with these commands, for which `client` waits.
fn asked(index: LogIndex, client: &str, lines: &[&str]) -> ToApply<String> {
    let items = lines.iter().map(|line| Item::new(words(line), 0, false).expect("a command")).collect();
    let work = Work::Commands(Arc::new(items));
    let mut queue = Queue::default();
    queue.add(Submit { region: 1, work, deadline: u64::MAX, author: 0, client: client.to_owned() });
    let proposal = queue
        .build(
            ((types::OLDEST_VERSION, types::Thresholds::default()), 1, 1),
            |_| May::Propose(u64::MAX),
            || 1,
            &mut Vec::new(),
        )
        .pop()
        .expect("one entry");
    let waiting = queue.take(proposal.token);
    ToApply { entry: entry(index, proposal.payload, None), waiting }
}

fn entry(index: LogIndex, payload: Bytes, change: Option<Changed>) -> Committed {
    Committed { index, term: 6, payload, token: None, change }
}

fn changed(index: LogIndex, change: Changed) -> ToApply<String> {
    ToApply { entry: entry(index, Bytes::new(), Some(change)), waiting: None }
}

fn execute(
    execution: &mut Execution,
    rows: &MemoryKeyspace,
    entries: Vec<ToApply<String>>,
) -> Result<Vec<ApplyEffect<String>>, ExecutionError> {
    let mut meta = |_: &Bytes, _: &mut Txn<'_>| Ok(Vec::new());
    execution.execute(BTreeMap::from([(1, entries)]), rows, &mut meta, &mut ())
}

/// Executes and writes the entries. Returns the names of the effects.
fn apply(execution: &mut Execution, rows: &mut MemoryKeyspace, entries: Vec<ToApply<String>>) -> Vec<String> {
    let effects = execute(execution, rows, entries).expect("it can be executed");
    let mut names = Vec::new();
    for effect in effects {
        names.push(match effect {
            ApplyEffect::Write(writes) => {
                rows.write(writes);
                "write".to_owned()
            }
            ApplyEffect::Describe(regions) => {
                format!("describe {:?}", regions.iter().map(|region| region.id).collect::<Vec<_>>())
            }
            ApplyEffect::Absorbed { region } => format!("absorbed {region}"),
            ApplyEffect::State { region, state } => format!("state of {region} at {}", state.applied_index),
            ApplyEffect::Changed { region, .. } => format!("changed keys of {region}"),
            ApplyEffect::Published { messages, .. } => format!("published {}", messages.len()),
            ApplyEffect::Counted(counts) => format!("counted {counts:?}"),
            ApplyEffect::Check { region, index, number } => format!("check {number} of {region} at {index}"),
            ApplyEffect::Hold { region, mark } => {
                format!("hold {region} at {}", mark.held.expect("it is quarantined").index)
            }
            ApplyEffect::Applied(indexes) => format!("applied {indexes:?}"),
            ApplyEffect::Answer { client, .. } => format!("answer {client}"),
        });
    }
    names
}

fn get(rows: &MemoryKeyspace, line: &str) -> Reply {
    let args = words(line);
    let mut txn = Txn::read_only(rows, 1);
    let mut exec = command::Exec {
        txn: &mut txn,
        now_ms: 1,
        seed: 0,
        db: 0,
        mode: command::Mode::Read,
        slots: SlotRange::ALL,
        limits: command::Limits::default(),
        resp3: false,
    };
    let spec = command::lookup(&args[0]).expect("a command");
    match command::execute(spec, &args, &mut exec).expect("it can be read") {
        command::Outcome::Reply(reply) => reply,
        command::Outcome::NeedsApply => panic!("nothing expires"),
    }
}

/// A store with region 1 of all slots.
fn store() -> (Execution, MemoryKeyspace) {
    let mut execution = Execution::new(0, true);
    execution.load(1, RegionState::default(), Some(SlotRange::ALL));
    (execution, MemoryKeyspace::default())
}

const NEXT: LogIndex = FIRST_INDEX + 1;

#[test]
fn rows_are_written_first_and_answers_come_last() {
    let (mut execution, mut rows) = store();
    let split = region(1, SlotRange::ALL).after(&RegionChange::Split { at: 8000, new_region: 2 }).unwrap();
    let entries = vec![
        asked(NEXT, "ann", &["SET foo 1"]),
        changed(NEXT + 1, split),
        asked(NEXT + 2, "bob", &["SET bar 2"]),
    ];
    let expected = [
        "write".to_owned(),
        "describe [1, 2]".to_owned(),
        format!("state of 1 at {}", NEXT + 2),
        format!("state of 2 at {FIRST_INDEX}"),
        format!("applied [(1, {}), (2, {FIRST_INDEX})]", NEXT + 2),
        "answer ann".to_owned(),
        "answer bob".to_owned(),
    ];
    assert_eq!(apply(&mut execution, &mut rows, entries), expected);
}

#[test]
fn a_region_that_has_no_peer_here_any_more_is_not_described() {
    let (_, mut rows) = store();
    let mut execution = Execution::new(7, true);
    execution.load(1, RegionState::default(), Some(SlotRange::ALL));
    let split = region(1, SlotRange::ALL).after(&RegionChange::Split { at: 8000, new_region: 2 }).unwrap();
    let names = apply(&mut execution, &mut rows, vec![changed(NEXT, split)]);
    assert!(names.iter().all(|name| !name.starts_with("describe")), "{names:?}");
}

#[test]
fn what_is_behind_a_split_is_executed_in_the_slots_that_are_left() {
    let (mut execution, mut rows) = store();
    let split = region(1, SlotRange::ALL).after(&RegionChange::Split { at: 8000, new_region: 2 }).unwrap();
    // foo's slot is 12182, bar's 5061.
    let entries = vec![changed(NEXT, split), asked(NEXT + 1, "ann", &["SET foo 1", "SET bar 2"])];
    let effects = execute(&mut execution, &rows, entries).unwrap();
    let outcome = effects.into_iter().find_map(|effect| match effect {
        ApplyEffect::Write(writes) => {
            rows.write(writes);
            None
        }
        ApplyEffect::Answer { outcome, .. } => Some(outcome),
        _ => None,
    });
    assert_eq!(outcome, Some(Outcome::Applied(vec![None, Some(Reply::OK)])));
    assert_eq!((get(&rows, "GET foo"), get(&rows, "GET bar")), (Reply::Nil, Reply::bulk("2")));
}

#[test]
fn a_split_that_is_applied_again_leaves_a_child_that_went_on() {
    let (mut execution, mut rows) = store();
    let whole = region(1, SlotRange::ALL);
    let split = whole.after(&RegionChange::Split { at: 8000, new_region: 2 }).unwrap();
    apply(&mut execution, &mut rows, vec![asked(NEXT, "ann", &["SET foo 1", "SET bar 2"])]);
    let before = execution.state(1).cloned().unwrap();
    // A snapshot replaced the child's rows with later ones: the child has three keys, and foo is
    // longer.
    let child = split.split_off.clone().unwrap();
    let mut later = Execution::new(0, true);
    later.load(2, RegionState::default(), child.slots);
    let mut came = asked(NEXT, "bob", &["SET foo longer", "SET {foo}2 1", "SET {foo}3 1"]);
    came.entry.index = NEXT;
    let mut meta = |_: &Bytes, _: &mut Txn<'_>| Ok(Vec::new());
    let effects = later.execute(BTreeMap::from([(2, vec![came])]), &rows, &mut meta, &mut ()).unwrap();
    for effect in effects {
        if let ApplyEffect::Write(writes) = effect {
            rows.write(writes);
        }
    }
    let child_before = storage::load_state(&rows, 2).unwrap();

    // After a crash the parent is back at its earlier state and applies the split again.
    execution.load(1, before, Some(SlotRange::ALL));
    apply(&mut execution, &mut rows, vec![changed(NEXT + 1, split)]);
    assert_eq!(get(&rows, "GET foo"), Reply::bulk("longer"));
    assert_eq!(storage::load_state(&rows, 2).unwrap(), child_before, "it is not reset");
    assert!(execution.state(2).is_none(), "the child's state is loaded from its rows");
    let parent = execution.state(1).unwrap();
    assert_eq!(parent.counts(0).keys, 1, "bar alone");
    assert_eq!(parent.bytes(), "bar".len() as u64 + 1);
}

#[test]
fn an_entry_of_a_region_without_rows_stops_the_store() {
    let (_, rows) = store();
    let mut execution = Execution::new(0, true);
    let error = execute(&mut execution, &rows, vec![asked(NEXT, "ann", &["SET foo 1"])]).err().unwrap();
    assert!(error.to_string().contains("region 1 cannot apply"), "{error}");
}

#[test]
#[should_panic(expected = "apply in order")]
fn an_entry_is_never_left_out() {
    let (mut execution, rows) = store();
    let _ = execute(&mut execution, &rows, vec![asked(NEXT + 1, "ann", &["SET foo 1"])]);
}

/// A reader over rows in RAM that lacks one row.
struct Partly<'a> {
    rows: &'a MemoryKeyspace,
    missing: Option<Bytes>,
}

impl Rows for Partly<'_> {}

impl Reader for Partly<'_> {
    fn get(&self, row: &[u8]) -> storage::Result<Option<Bytes>> {
        match self.missing.as_ref().is_some_and(|missing| missing[..] == *row) {
            true => Err(StorageError::NotInRam),
            false => self.rows.get(row),
        }
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut storage::Visit<'_>) -> storage::Result<()> {
        Err(StorageError::NotInRam)
    }
}

#[test]
fn entries_that_lack_a_row_in_ram_are_given_back_and_nothing_of_them_is_executed() {
    let (mut execution, rows) = store();
    let before = execution.state(1).cloned();
    let entries = |first| {
        vec![
            asked(first, "a", &["INCR n", "SET here 1"]),
            asked(first + 1, "b", &["INCR n", "INCR elsewhere"]),
        ]
    };
    let first = before.as_ref().map_or(1, |state| state.applied_index + 1);
    let missing = Some(storage::KeyRef::new(0, b"elsewhere").meta_row());
    let tried = execution.execute_in_ram(1, entries(first), &Partly { rows: &rows, missing }, &mut ());
    let Ok(InRamOutcome::NotExecuted(given_back)) = tried else { panic!("a row is missing") };
    assert_eq!(given_back.iter().map(|apply| apply.entry.index).collect::<Vec<_>>(), [first, first + 1]);
    assert_eq!(execution.state(1).cloned(), before);
    let tried = execution.execute_in_ram(1, given_back, &Partly { rows: &rows, missing: None }, &mut ());
    let Ok(InRamOutcome::Executed(effects)) = tried else { panic!("everything is there") };
    let replies: Vec<_> = effects
        .into_iter()
        .filter_map(|effect| match effect {
            ApplyEffect::Answer { client, outcome: Outcome::Applied(replies) } => Some((client, replies)),
            _ => None,
        })
        .collect();
    let int = |number| Some(Reply::Int(number));
    assert_eq!(replies, [("a".into(), vec![int(1), Some(Reply::OK)]), ("b".into(), vec![int(2), int(1)])]);
}

#[test]
fn keys_are_counted_where_their_entry_was_proposed_and_once() {
    let (mut execution, rows) = store();
    let first = execution.state(1).map_or(1, |state| state.applied_index + 1);
    let lines = ["SET a 1", "GET a", "EXISTS a none", "SET due x PX 1", "GETSET none 1"];
    let mut entries = vec![asked(first, "ann", &lines), asked(first + 1, "bob", &["MGET a none"])];
    // No client of this store waits for the second entry.
    entries[1].waiting = None;
    let effects = execute(&mut execution, &rows, entries).unwrap();
    let counted: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            ApplyEffect::Counted(counts) => Some(*counts),
            _ => None,
        })
        .collect();
    assert_eq!(counted, [KeyCounts { hits: 2, misses: 2, expired: 0 }]);
}

#[test]
fn entries_that_change_the_region_are_not_for_ram_alone() {
    let (mut execution, rows) = store();
    let first = execution.state(1).map_or(1, |state| state.applied_index + 1);
    let whole = region(1, SlotRange::ALL);
    let split = whole.after(&RegionChange::Split { at: 8000, new_region: 2 }).expect("it can be split");
    let entries = vec![changed(first, split)];
    let tried = execution.execute_in_ram(1, entries, &Partly { rows: &rows, missing: None }, &mut ());
    assert!(matches!(tried, Ok(InRamOutcome::NotExecuted(entries)) if entries.len() == 1));
}

#[test]
fn a_checksum_is_wanted_after_the_rows_are_written_and_before_the_groups_go_on() {
    let (mut execution, mut rows) = store();
    let index = FIRST_INDEX + 1;
    let order =
        || ToApply::<String> { entry: entry(index + 1, Order::Checksum(7).encode(), None), waiting: None };
    let names = apply(&mut execution, &mut rows, vec![asked(index, "a", &["SET k v"]), order()]);
    let state = format!("state of 1 at {}", index + 1);
    let check = format!("check 7 of 1 at {}", index + 1);
    let applied = format!("applied [(1, {})]", index + 1);
    assert_eq!(names, ["write".to_owned(), state, check, applied, "answer a".to_owned()]);
}

#[test]
fn an_order_is_not_tried_in_ram_and_an_unknown_one_is_not_executed() {
    let (mut execution, rows) = store();
    let index = FIRST_INDEX + 1;
    let of = |payload| vec![ToApply::<String> { entry: entry(index, payload, None), waiting: None }];
    let tried = execution.execute_in_ram(1, of(Order::Checksum(7).encode()), &rows, &mut ()).unwrap();
    assert!(matches!(tried, InRamOutcome::NotExecuted(entries) if entries.len() == 1));
    let unknown = Bytes::from_static(&[2, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
    let effects = execute(&mut execution, &rows, of(unknown)).unwrap();
    let error = mark_of(&effects).and_then(|mark| mark.held).expect("it is not known").error;
    assert!(error.contains("unknown kind 9"), "{error}");
}

fn order(index: LogIndex, order: Order) -> ToApply<String> {
    ToApply { entry: entry(index, order.encode(), None), waiting: None }
}

fn fail(by_panic: bool) -> Order {
    Order::Fail { by_panic, stores: Vec::new() }
}

/// Returns the mark of region 1 in these effects.
fn mark_of(effects: &[ApplyEffect<String>]) -> Option<Mark> {
    effects.iter().find_map(|effect| match effect {
        ApplyEffect::Hold { region: 1, mark } => Some(mark.clone()),
        _ => None,
    })
}

#[test]
fn an_entry_that_fails_or_panics_stops_its_region_and_what_is_before_it_stays() {
    for by_panic in [false, true] {
        let (mut execution, mut rows) = store();
        let entries = vec![
            asked(NEXT, "ann", &["SET a 1"]),
            asked(NEXT + 1, "bob", &["SET b 2"]),
            order(NEXT + 2, fail(by_panic)),
            asked(NEXT + 3, "cem", &["SET a 3"]),
        ];
        let names = apply(&mut execution, &mut rows, entries);
        let expected = [
            "write".to_owned(),
            format!("state of 1 at {}", NEXT + 1),
            format!("hold 1 at {}", NEXT + 2),
            format!("applied [(1, {})]", NEXT + 1),
            "answer ann".to_owned(),
            "answer bob".to_owned(),
            "answer cem".to_owned(),
        ];
        assert_eq!(names, expected);
        assert_eq!(get(&rows, "GET a"), Reply::bulk("1"));
        // Entries that are handed out during the quarantine are not executed, and their outcome is
        // unknown.
        let effects = execute(&mut execution, &rows, vec![asked(NEXT + 4, "dan", &["SET a 4"])]).unwrap();
        let outcomes: Vec<_> = effects
            .iter()
            .filter_map(|effect| match effect {
                ApplyEffect::Answer { client, outcome } => Some((client.as_str(), outcome.clone())),
                _ => None,
            })
            .collect();
        assert_eq!(outcomes, [("dan", Outcome::Unknown)]);
        assert!(effects.iter().all(|effect| !matches!(effect, ApplyEffect::Write(_))));
    }
}

#[test]
fn a_quarantine_says_what_failed() {
    let (mut execution, mut rows) = store();
    // A meta row that no correct store writes.
    let row = storage::KeyRef::new(0, b"spoilt").meta_row();
    rows.write(WriteSet { ranges_deleted: Vec::new(), rows: vec![(row, Some(Bytes::from_static(&[99])))] });
    let entries = vec![asked(NEXT, "ann", &["SET fine 1", "APPEND spoilt x", "SET fine 2"])];
    let effects = execute(&mut execution, &rows, entries).unwrap();
    let held = mark_of(&effects).and_then(|mark| mark.held).expect("it is quarantined");
    assert_eq!((held.index, held.cause, held.what.as_str()), (NEXT, Cause::Entry, "append \"spoilt\""));
    assert!(held.error.contains("meta row"), "{}", held.error);
    assert_eq!(get(&rows, "GET fine"), Reply::Nil, "the entry is dropped whole");

    let (mut execution, rows) = store();
    let effects = execute(&mut execution, &rows, vec![order(NEXT, fail(true))]).unwrap();
    let held = mark_of(&effects).and_then(|mark| mark.held).expect("it is quarantined");
    assert_eq!((held.what.as_str(), held.error.as_str()), ("order fail", "panic: the entry orders a panic"));
}

#[test]
fn an_entry_is_executed_again_when_that_is_wanted_and_skipped_where_that_is_ordered() {
    let (mut execution, mut rows) = store();
    let entries = || vec![order(NEXT, fail(false)), asked(NEXT + 1, "ann", &["SET a 1"])];
    let mark = mark_of(&execute(&mut execution, &rows, entries()).unwrap()).expect("it is quarantined");
    // The retry fails again.
    let retry = Mark { held: None, ..mark.clone() };
    assert!(execution.begin(Job::Release { region: 1, mark: retry }).is_some());
    let again = mark_of(&execute(&mut execution, &rows, entries()).unwrap());
    assert_eq!(again, Some(mark.clone()));
    let skipping = mark.skipping(NEXT);
    assert!(execution.begin(Job::Release { region: 1, mark: skipping }).is_some());
    let mut all = entries();
    all.push(order(NEXT + 2, Order::Skip(NEXT)));
    // A second order to skip the same entry changes nothing.
    all.push(order(NEXT + 3, Order::Skip(NEXT)));
    let names = apply(&mut execution, &mut rows, all);
    assert!(names.iter().all(|name| !name.starts_with("hold")), "{names:?}");
    assert_eq!(get(&rows, "GET a"), Reply::bulk("1"));
    let state = execution.state(1).expect("its state").clone();
    assert!(state.applied_index == NEXT + 3 && state.has_skipped(NEXT));
    assert_eq!(RegionState::decode(&state.encode()).unwrap(), state);

    // A peer that executed the entry has different rows, so the order quarantines it.
    let mut other = Execution::new(3, false);
    other.load(1, RegionState::default(), Some(SlotRange::ALL));
    let mut all = entries();
    all.push(order(NEXT + 2, Order::Skip(NEXT)));
    let held = mark_of(&execute(&mut other, &rows, all).unwrap()).and_then(|mark| mark.held);
    let held = held.expect("it is quarantined");
    assert_eq!((held.index, held.what.as_str()), (NEXT + 2, "order skip"));
    assert!(held.error.contains("was executed here"), "{}", held.error);
}

#[test]
fn a_failure_of_the_device_stops_the_store_and_not_the_region() {
    struct Broken;
    impl Rows for Broken {}
    impl Reader for Broken {
        fn get(&self, _: &[u8]) -> storage::Result<Option<Bytes>> {
            Err(StorageError::Engine("the device is broken".to_owned()))
        }
        fn scan(&self, _: &[u8], _: &[u8], _: &mut storage::Visit<'_>) -> storage::Result<()> {
            Err(StorageError::Engine("the device is broken".to_owned()))
        }
    }
    let (mut execution, _) = store();
    let entries = BTreeMap::from([(1, vec![asked(NEXT, "ann", &["INCR n"])])]);
    let mut meta = |_: &Bytes, _: &mut Txn<'_>| Ok(Vec::new());
    let error = execution.execute(entries, &Broken, &mut meta, &mut ()).err().expect("an error").to_string();
    assert!(error.contains("the device is broken"), "{error}");
}

#[test]
fn a_start_executes_up_to_the_entry_at_which_the_peer_was_quarantined() {
    let (mut execution, mut rows) = store();
    let held = Some(Quarantine::new(NEXT + 1, Cause::Entry, "set", "a panic"));
    execution.load_mark(1, Mark { skips: vec![], held });
    let entries = vec![asked(NEXT, "ann", &["SET a 1"]), asked(NEXT + 1, "bob", &["SET a 2"])];
    let names = apply(&mut execution, &mut rows, entries);
    assert!(names.contains(&format!("state of 1 at {NEXT}")), "{names:?}");
    assert_eq!(get(&rows, "GET a"), Reply::bulk("1"));
    let tried = execution.execute_in_ram(1, vec![asked(NEXT + 1, "c", &["SET a 3"])], &rows, &mut ());
    assert!(matches!(tried, Ok(InRamOutcome::NotExecuted(_))));
}

#[test]
fn a_meta_entry_that_fails_leaves_the_state_in_memory_as_the_rows_have_it() {
    struct Counter {
        applied: u32,
        reloads: u32,
    }
    impl Meta for Counter {
        fn apply(&mut self, payload: &Bytes, _: &mut Txn<'_>) -> storage::Result<Vec<Option<Reply>>> {
            self.applied += 1;
            match payload[..] == *b"bad" {
                true => panic!("it cannot be applied"),
                false => Ok(vec![None]),
            }
        }
        fn reload(&mut self) -> storage::Result<()> {
            (self.applied, self.reloads) = (0, self.reloads + 1);
            Ok(())
        }
    }
    let mut execution = Execution::new(0, false);
    execution.load(META_REGION, RegionState::default(), None);
    let of = |index, payload| ToApply::<String> {
        entry: entry(index, Bytes::from_static(payload), None),
        waiting: None,
    };
    let entries = vec![of(NEXT, b"good"), of(NEXT + 1, b"bad"), of(NEXT + 2, b"good")];
    let mut meta = Counter { applied: 0, reloads: 0 };
    let rows = MemoryKeyspace::default();
    let entries = BTreeMap::from([(META_REGION, entries)]);
    let effects = execution.execute(entries, &rows, &mut meta, &mut ()).unwrap();
    assert_eq!((meta.applied, meta.reloads), (1, 1), "the first entry alone");
    let held = effects.iter().find_map(|effect| match effect {
        ApplyEffect::Hold { region: META_REGION, mark } => mark.held.clone(),
        _ => None,
    });
    assert_eq!(held.expect("it is quarantined").index, NEXT + 1);
}
