use bytes::Bytes;
use replica::Committed;

use super::*;

const REGION: RegionId = 1;

/// An executor that finds its rows in RAM or not, as the test configures it.
#[derive(Default)]
struct Threads {
    lacks_rows: bool,
    is_busy: bool,
    attempts: usize,
    /// Entries that were executed by an attempt, by index.
    executed: Vec<LogIndex>,
    /// Entries that a quarantine withheld, by index.
    withheld: Vec<LogIndex>,
    backlog: Backlog<()>,
}

impl Executor<()> for Threads {
    fn attempt(&mut self, _: RegionId, entries: Vec<ToApply<()>>) -> Attempt<()> {
        self.attempts += 1;
        if self.is_busy {
            return Attempt::Busy(entries);
        }
        if self.lacks_rows {
            return Attempt::NotInRam(entries);
        }
        self.executed.extend(entries.iter().map(|apply| apply.entry.index));
        Attempt::Executed
    }

    fn send(&mut self, job: ApplyJob<()>) {
        self.backlog.push(job);
    }

    fn withheld(&mut self, entries: Vec<ToApply<()>>) {
        self.withheld.extend(entries.iter().map(|apply| apply.entry.index));
    }
}

/// Creates one entry with a payload of `bytes` bytes.
fn entry(index: LogIndex, bytes: usize) -> Vec<ToApply<()>> {
    let payload = Bytes::from(vec![0; bytes]);
    vec![ToApply { entry: Committed { index, term: 6, payload, token: None, change: None }, waiting: None }]
}

fn end() -> lifecycle::Job {
    lifecycle::Job::End { region: REGION, peer: 1 }
}

/// Returns the backlog in order: the indexes of each batch, and an empty list for any other job.
fn sent(threads: &mut Threads) -> Vec<Vec<LogIndex>> {
    let mut sent = Vec::new();
    while let Some(next) = threads.backlog.next(usize::MAX) {
        sent.push(match next {
            Next::Entries { by_region, .. } => {
                by_region[&REGION].iter().map(|apply| apply.entry.index).collect()
            }
            Next::Life(_) | Next::Reload(_) => Vec::new(),
        });
    }
    sent
}

#[test]
fn entries_whose_rows_are_in_ram_are_executed_at_once() {
    let (mut queue, mut threads) = (ApplyQueue::default(), Threads::default());
    queue.apply(REGION, entry(1, 10), &mut threads);
    queue.apply(REGION, entry(2, 10), &mut threads);
    assert_eq!(threads.executed, [1, 2]);
    assert_eq!(queue.bytes(), 0);
    assert!(threads.backlog.is_empty());
}

#[test]
fn entries_behind_one_that_was_sent_wait_until_it_is_applied() {
    let (mut queue, mut threads) = (ApplyQueue::default(), Threads { is_busy: true, ..Threads::default() });
    queue.apply(REGION, entry(1, 10), &mut threads);
    threads.is_busy = false;
    queue.apply(REGION, entry(2, 5), &mut threads);
    queue.apply(REGION, entry(3, 5), &mut threads);
    assert_eq!((queue.bytes(), threads.attempts), (20, 1));
    assert_eq!(sent(&mut threads), [[1]]);
    queue.applied(REGION, 0, &mut threads);
    assert!(threads.executed.is_empty());
    queue.applied(REGION, 1, &mut threads);
    assert_eq!(threads.executed, [2, 3]);
    assert_eq!(queue.bytes(), 0);
    // Other regions do not wait.
    threads.is_busy = true;
    queue.apply(REGION, entry(4, 10), &mut threads);
    threads.is_busy = false;
    queue.apply(REGION + 1, entry(1, 10), &mut threads);
    assert_eq!(threads.executed, [2, 3, 1]);
}

#[test]
fn while_rows_are_missed_attempts_become_rare_but_never_end() {
    let (mut queue, mut threads) =
        (ApplyQueue::default(), Threads { lacks_rows: true, ..Threads::default() });
    for index in 1..=2000 {
        queue.apply(REGION, entry(index, 1), &mut threads);
        queue.applied(REGION, index, &mut threads);
    }
    assert!((2000 / 64..60).contains(&threads.attempts), "{} attempts", threads.attempts);
    threads.lacks_rows = false;
    for index in 2001..=2200 {
        queue.apply(REGION, entry(index, 1), &mut threads);
        queue.applied(REGION, index, &mut threads);
    }
    assert!(threads.executed.len() > 200 - 64, "{} executed", threads.executed.len());
}

#[test]
fn what_is_held_is_sent_before_the_end_of_its_peer_and_before_the_store_stops() {
    let (mut queue, mut threads) = (ApplyQueue::default(), Threads { is_busy: true, ..Threads::default() });
    queue.apply(REGION, entry(1, 10), &mut threads);
    queue.apply(REGION, entry(2, 10), &mut threads);
    queue.live(end(), &mut threads);
    assert_eq!(sent(&mut threads), [vec![1, 2], vec![]]);
    queue.apply(REGION + 1, entry(1, 10), &mut threads);
    queue.apply(REGION + 1, entry(2, 10), &mut threads);
    queue.close(&mut threads);
    let Some(Next::Entries { by_region }) = threads.backlog.next(usize::MAX) else {
        panic!("both entries of the other region")
    };
    assert_eq!(by_region[&(REGION + 1)].len(), 2);
    assert_eq!(queue.bytes(), 40);
}

#[test]
fn entries_of_rows_that_were_replaced_go_behind_word_of_that() {
    let (mut queue, mut threads) = (ApplyQueue::default(), Threads { is_busy: true, ..Threads::default() });
    queue.apply(REGION, entry(1, 10), &mut threads);
    threads.is_busy = false;
    queue.live(end(), &mut threads);
    // The apply thread may not know yet that the rows are present, although the groups know.
    queue.apply(REGION, entry(5, 10), &mut threads);
    queue.apply(REGION, entry(6, 10), &mut threads);
    assert_eq!(sent(&mut threads), [vec![1], vec![], vec![5, 6]]);
    // Entries that were sent before the replacement are reported after it, and do not count.
    queue.applied(REGION, 1, &mut threads);
    queue.apply(REGION, entry(7, 10), &mut threads);
    assert_eq!((sent(&mut threads), queue.bytes()), (vec![vec![7]], 30));
    queue.applied(REGION, 6, &mut threads);
    queue.apply(REGION, entry(8, 10), &mut threads);
    assert!(threads.executed.is_empty(), "entry 7 is in flight");
    queue.applied(REGION, 7, &mut threads);
    queue.apply(REGION, entry(9, 10), &mut threads);
    assert_eq!((threads.executed, queue.bytes()), (vec![8, 9], 0));
}

#[test]
fn entries_of_many_bytes_are_the_apply_threads() {
    let (mut queue, mut threads) = (ApplyQueue::default(), Threads::default());
    queue.apply(REGION, entry(1, 1 + (1 << 20)), &mut threads);
    assert_eq!(threads.attempts, 0);
    assert_eq!(sent(&mut threads), [[1]]);
}

#[test]
fn batches_end_at_their_bytes_and_at_jobs_that_are_not_of_entries() {
    let mut backlog = Backlog::default();
    for index in 1..=3 {
        backlog.push(ApplyJob::Entries { region: REGION, entries: entry(index, 10) });
    }
    backlog.push(ApplyJob::Life(end()));
    backlog.push(ApplyJob::Entries { region: REGION, entries: entry(9, 30) });
    let mut batches = Vec::new();
    while let Some(next) = backlog.next(20) {
        batches.push(match next {
            Next::Entries { by_region } => by_region[&REGION].len(),
            Next::Life(_) | Next::Reload(_) => 0,
        });
    }
    assert_eq!(batches, [2, 1, 0, 1]);
    assert!(backlog.is_empty());
}

#[test]
fn rows_of_a_snapshot_are_not_loaded_once_the_peer_has_ended() {
    let descriptor = RegionDescriptor::founded(REGION, None, &[1]);
    let replace = || lifecycle::Job::Replace { descriptor: descriptor.clone(), index: 9, term: 6 };
    let mut backlog: Backlog<()> = Backlog::default();
    backlog.push(ApplyJob::Life(replace()));
    backlog.push(ApplyJob::Life(end()));
    backlog.push(ApplyJob::Reload(descriptor.clone()));
    backlog.push(ApplyJob::Entries { region: REGION + 1, entries: entry(1, 10) });
    // This is a later peer of the region.
    backlog.push(ApplyJob::Life(replace()));
    backlog.push(ApplyJob::Reload(descriptor.clone()));
    let next = |backlog: &mut Backlog<()>| match backlog.next(20) {
        Some(Next::Entries { .. }) => "entries",
        Some(Next::Life(lifecycle::Job::Replace { .. })) => "replace",
        Some(Next::Life(lifecycle::Job::End { .. })) => "end",
        Some(Next::Life(_)) => "another",
        Some(Next::Reload(_)) => "reload",
        None => "nothing",
    };
    let done: Vec<&str> = (0..6).map(|_| next(&mut backlog)).collect();
    assert_eq!(done, ["replace", "end", "entries", "replace", "reload", "nothing"]);
}

#[test]
fn an_order_goes_to_the_apply_thread_and_ends_its_batch() {
    let (mut queue, mut threads) = (ApplyQueue::default(), Threads::default());
    let mut order = entry(1, 0);
    order[0].entry.payload = command::order::Order::Checksum(7).encode();
    queue.apply(REGION, order.into_iter().chain(entry(2, 10)).collect(), &mut threads);
    assert_eq!((threads.attempts, sent(&mut threads)), (0, vec![vec![1], vec![2]]));
}

#[test]
fn a_quarantined_region_leaves_room_for_the_others_and_goes_on_in_order() {
    let (mut queue, mut threads) = (ApplyQueue::default(), Threads { is_busy: true, ..Threads::default() });
    (7..=8).for_each(|index| queue.apply(REGION, entry(index, 10), &mut threads));
    threads.is_busy = false;
    // Entry 8 is held after entry 7, which the apply thread has. The peer is quarantined at entry
    // 8.
    queue.stop(REGION, 8, &mut threads);
    assert_eq!((threads.withheld.clone(), queue.bytes()), (vec![8], 10));
    queue.apply(REGION, entry(9, 10), &mut threads);
    queue.applied(REGION, 7, &mut threads);
    assert_eq!((threads.withheld.clone(), queue.bytes()), (vec![8, 9], 0));
    assert_eq!(sent(&mut threads), [vec![7]]);
    queue.live(lifecycle::Job::Release { region: REGION, mark: cluster::Mark::default() }, &mut threads);
    queue.resume(REGION);
    queue.apply(REGION, entry(8, 10), &mut threads);
    assert_eq!(sent(&mut threads), [vec![], vec![8]], "not before the release");
    queue.applied(REGION, 8, &mut threads);
    queue.apply(REGION, entry(9, 10), &mut threads);
    assert_eq!((threads.executed.clone(), queue.bytes()), (vec![9], 0));
}
