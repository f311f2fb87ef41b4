use command::entry::Builder;
use replica::Committed;
use types::RegionDescriptor;

use super::*;
use crate::fixture::Fixture;

const REGION: RegionId = 1;

/// The queue of a store whose thread does what the test has it do.
struct Running {
    fixture: Fixture,
    applier: Applier,
    queue: ApplyQueue,
    index: LogIndex,
}

impl Running {
    fn new() -> Running {
        let fixture = Fixture::new();
        let (lives, _) = crossbeam_channel::unbounded();
        let (applier, queue, _) = Applier::new(fixture.store.clone(), lives);
        let index = applied(&fixture_state(&queue));
        Running { fixture, applier, queue, index }
    }

    /// An entry of these commands, which is committed next.
    fn entry(&mut self, lines: &[&str]) -> Vec<ToApply> {
        let mut entry = Builder::new();
        for line in lines {
            let words: Vec<Bytes> =
                line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            entry.push(0, false, &words);
        }
        self.index += 1;
        let payload = entry.finish(1, self.index);
        let entry = Committed { index: self.index, term: 6, payload, token: None, change: None };
        vec![ToApply { entry, waiting: None }]
    }

    /// Whether the entry is executed at once.
    fn execute(&mut self, lines: &[&str]) -> bool {
        let entries = self.entry(lines);
        match self.queue.execute(REGION, entries) {
            Some(here) => {
                assert_eq!(here.applied, [(REGION, self.index)]);
                true
            }
            None => false,
        }
    }

    /// Entries that have gone to the thread, by index; `None` for the end of a peer.
    fn sent(&self) -> Vec<Option<LogIndex>> {
        let of = |job| match job {
            Job::Entries(_, entries) => {
                entries.iter().map(|apply: &ToApply| Some(apply.entry.index)).collect()
            }
            Job::Life(_) => vec![None],
            Job::Reload(_) | Job::Stop => Vec::new(),
        };
        self.applier.jobs.try_iter().flat_map(of).collect()
    }

    fn value(&self, key: &str) -> Option<Bytes> {
        let row = storage::KeyRef::new(0, key.as_bytes()).meta_row();
        self.fixture.store.engine.rows().get(&row).expect("rows are read")
    }

    /// From here on RAM knows nothing of what was written.
    fn forget(&self) {
        let rows = self.fixture.store.engine.rows();
        rows.flush().expect("there is room");
        // Rows that fill the row cache twice.
        for round in 0..40 {
            let filler = (0..100).map(|at| {
                let row = Bytes::from(format!("d\0\0filler{round}:{at}"));
                (row, Some(Bytes::from(vec![0; 40 << 10])))
            });
            rows.write(&storage::WriteSet { ranges_deleted: Vec::new(), rows: filler.collect() });
            rows.flush().expect("there is room");
        }
    }
}

fn fixture_state(queue: &ApplyQueue) -> Option<RegionState> {
    queue.execution.lock().state(REGION).cloned()
}

fn applied(state: &Option<RegionState>) -> LogIndex {
    state.as_ref().map_or(0, |state| state.applied_index)
}

#[test]
fn entries_whose_rows_are_in_ram_are_executed_at_once() {
    let mut running = Running::new();
    assert!(running.execute(&["SET a 1", "INCR b"]) && running.execute(&["INCR b"]));
    assert!(running.sent().is_empty());
    assert!(running.value("b").is_some_and(|row| row.ends_with(b"2")));
    assert_eq!(applied(&fixture_state(&running.queue)), running.index);
}

#[test]
fn entries_behind_one_whose_rows_are_not_in_ram_wait_for_it() {
    let mut running = Running::new();
    assert!(running.execute(&["SET a 1"]));
    running.forget();
    let missed = running.index + 1;
    assert!(!running.execute(&["INCR b", "INCR a"]) && !running.execute(&["INCR b"]));
    assert_eq!(running.sent(), [Some(missed)], "the second is held");
    assert!(running.value("b").is_none(), "nothing of the first was executed here");
    assert!(running.queue.applied(REGION, missed - 1).is_none());
    // The thread executes the first.
    let entries = {
        running.index = missed - 1;
        running.entry(&["INCR b", "INCR a"])
    };
    let bytes = bytes_of(&entries);
    assert!(running.applier.apply(BTreeMap::from([(REGION, entries)]), bytes));
    let here = running.queue.applied(REGION, missed).expect("the second is executed now");
    assert_eq!(here.applied, [(REGION, missed + 1)]);
    assert!(running.value("b").is_some_and(|row| row.ends_with(b"2")));
    assert_eq!(running.fixture.store.unapplied_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_held_goes_to_the_thread_before_the_end_of_its_peer() {
    let mut running = Running::new();
    assert!(running.execute(&["SET a 1"]));
    running.forget();
    let missed = running.index + 1;
    assert!(!running.execute(&["INCR a"]) && !running.execute(&["INCR a"]));
    running.queue.send_life(lives::Job::End { region: REGION, peer: 1 });
    assert_eq!(running.sent(), [Some(missed), Some(missed + 1), None]);
}

#[test]
fn entries_of_rows_that_were_replaced_go_behind_word_of_that() {
    let mut running = Running::new();
    assert!(running.execute(&["SET a 1"]));
    let descriptor =
        RegionDescriptor::clone(&running.fixture.store.regions.get(REGION).unwrap().descriptor());
    running.queue.send_life(lives::Job::Replace { descriptor, index: running.index, term: 6 });
    // The thread may not have heard that the rows are there, though the groups have.
    assert!(!running.execute(&["INCR a"]) && !running.execute(&["INCR a"]));
    let last = running.index;
    assert_eq!(running.sent(), [None, Some(last - 1), Some(last)]);
    // What was handed out before the replacement may be reported after it.
    assert!(running.queue.applied(REGION, last - 2).is_none());
    assert!(!running.execute(&["INCR a"]));
    assert_eq!(running.sent(), [Some(last + 1)]);
    assert!(running.queue.applied(REGION, last + 1).is_none());
    assert!(running.queue.away.is_empty());
}
