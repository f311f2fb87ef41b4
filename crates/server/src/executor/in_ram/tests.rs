use std::collections::BTreeMap;

use command::entry::Builder;
use replica::Committed;

use super::*;
use crate::executor::apply::Applier;
use crate::fixture::Fixture;
use crate::loops::ToWorker;

const REGION: RegionId = 1;

/// The queue of a store whose apply thread the test controls.
struct Running {
    fixture: Fixture,
    applier: Applier,
    queue: ApplyHandle,
    index: LogIndex,
}

impl Running {
    fn new() -> Running {
        let fixture = Fixture::new();
        let (lifecycle, _) = crossbeam_channel::unbounded();
        let (applier, queue, _) = Applier::new(fixture.store.executor(), lifecycle, &BTreeMap::new());
        let index = applied(&queue);
        Running { fixture, applier, queue, index }
    }

    /// Hands out an entry of these commands. Returns true if it is executed at once.
    fn apply(&mut self, lines: &[&str]) -> bool {
        let mut entry = Builder::new();
        for line in lines {
            let words: Vec<Bytes> =
                line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            entry.push(0, false, &words);
        }
        self.index += 1;
        let payload = entry.finish_as(types::NEWEST_VERSION, 1, self.index);
        let entry = Committed { index: self.index, term: 6, payload, token: None, change: None };
        let here = self.queue.apply(REGION, vec![ToApply { entry, waiting: None }]);
        here.applied == [(REGION, self.index)]
    }

    /// Executes an entry of these commands, by the apply thread if need be. Returns true if it was
    /// executed at once.
    fn apply_anywhere(&mut self, lines: &[&str]) -> bool {
        let is_at_once = self.apply(lines);
        if !is_at_once {
            let next = self.applier.next().expect("the entry was sent");
            assert!(self.applier.perform(next));
            self.queue.applied(REGION, self.index);
        }
        is_at_once
    }

    /// Returns the reply to a read.
    fn read(&self, line: &str) -> command::Outcome {
        let words = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let item = node::Item::new(words, 0, false).expect("a command");
        let store = &self.fixture.store;
        store
            .engine
            .read(&store.regions.of_users()[0], &item, 1, storage::HeldLimit::default())
            .expect("rows are read")
            .0
    }

    fn value(&self, key: &str) -> Option<Bytes> {
        let row = storage::KeyRef::new(0, key.as_bytes()).meta_row();
        self.fixture.store.engine.rows().get(&row).expect("rows are read")
    }

    /// Evicts all written rows from RAM.
    fn forget(&self) {
        let rows = self.fixture.store.engine.rows();
        rows.flush().expect("there is room");
        // These rows are twice the size of the row cache.
        for round in 0..40 {
            let filler = (0..100).map(|at| {
                let row = Bytes::from(format!("d\0\0filler{round}:{at}"));
                (row, Some(Bytes::from(vec![0; 40 << 10])))
            });
            rows.write(storage::WriteSet { ranges_deleted: Vec::new(), rows: filler.collect() });
            rows.flush().expect("there is room");
        }
    }
}

fn applied(queue: &ApplyHandle) -> LogIndex {
    queue.here.execution.lock().state(REGION).map_or(0, |state| state.applied_index)
}

#[test]
fn entries_whose_rows_are_in_ram_are_executed_at_once() {
    let mut running = Running::new();
    assert!(running.apply(&["SET a 1", "INCR b"]) && running.apply(&["INCR b"]));
    assert!(running.value("b").is_some_and(|row| row.ends_with(b"2")));
    assert_eq!(applied(&running.queue), running.index);
}

#[test]
fn an_entry_whose_rows_are_not_in_ram_has_no_effect_before_the_thread_executes_it() {
    let mut running = Running::new();
    assert!(running.apply(&["SET a 1"]));
    running.forget();
    let missed = running.index + 1;
    assert!(!running.apply(&["INCR b", "INCR a"]) && !running.apply(&["INCR b"]));
    assert!(running.value("b").is_none(), "the first entry had no effect here");
    let next = running.applier.next().expect("the first entry was sent");
    assert!(running.applier.perform(next));
    let told: Vec<ToWorker> = running.fixture.told().collect();
    let [ToWorker::Applied { indexes, .. }] = &told[..] else {
        panic!("a report of the applied entry was expected")
    };
    assert_eq!(*indexes, [(REGION, missed)], "the second entry waits");
    let here = running.queue.applied(REGION, missed);
    assert_eq!(here.applied, [(REGION, missed + 1)]);
    assert!(running.value("b").is_some_and(|row| row.ends_with(b"2")));
    assert_eq!(running.queue.bytes(), 0);
}

/// Returns commands that add 3,000 members to a set, which then has rows of its own.
fn large_set(key: &str) -> Vec<String> {
    let members = |part: u32| (part * 500..(part + 1) * 500).map(|n| format!(" member:{n}"));
    (0..6).map(|part| format!("SADD {key}{}", members(part).collect::<String>())).collect()
}

#[test]
fn random_picks_of_a_large_set_are_executed_at_once_when_its_rows_are_known() {
    let mut running = Running::new();
    for line in large_set("s") {
        running.apply_anywhere(&[&line]);
    }
    for is_flushed in [false, true] {
        if is_flushed {
            running.fixture.store.engine.rows().flush().expect("there is room");
        }
        // The apply thread learns the ranges that picks need. They have no row of flash at first.
        let mut at_once = 0;
        for _ in 0..300 {
            at_once += u32::from(running.apply_anywhere(&["SPOP s"]));
        }
        assert!(at_once > 250, "{at_once} of 300 after a flush: {is_flushed}");
    }
    let left = command::Outcome::Reply(resp::Reply::Int(3000 - 600));
    assert_eq!(running.read("SCARD s"), left, "each member was popped once");
}

#[test]
fn an_attempt_examines_a_bounded_number_of_deleted_rows() {
    let mut running = Running::new();
    for line in large_set("s") {
        running.apply_anywhere(&[&line]);
    }
    for part in 0..5 {
        let members: String = (part * 600..part * 600 + 598).map(|n| format!(" member:{n}")).collect();
        running.apply_anywhere(&[&format!("SREM s{members}")]);
    }
    let (from, to) = storage::rows::slots_range(types::SlotRange::ALL);
    let rows = running.fixture.store.engine.rows();
    while rows.learn_range(&from, &to).expect("rows are read") {}
    let rows = RamRows::new(rows, false);
    let mut outcomes = Vec::new();
    for _ in 0..5 {
        let scanned = rows.scan(&from, &to, &mut |_, _| ControlFlow::Continue(()));
        outcomes.push((scanned.is_ok(), rows.rows_left.get()));
    }
    assert!(outcomes[0].0, "{outcomes:?}");
    assert_eq!(outcomes[4], (false, 0), "about 3,000 rows are examined each time: {outcomes:?}");
}
