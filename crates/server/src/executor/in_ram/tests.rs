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
        let payload = entry.finish(1, self.index);
        let entry = Committed { index: self.index, term: 6, payload, token: None, change: None };
        let here = self.queue.apply(REGION, vec![ToApply { entry, waiting: None }]);
        here.applied == [(REGION, self.index)]
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
