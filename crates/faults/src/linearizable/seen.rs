//! Decides which operations a search need not try.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Answer, Call, Member, Operation};
use crate::model::Group;

/// Returns the indexes of the operations that may affect the verdict. It leaves out:
///
/// - open reads;
/// - open writes whose values no read returned, if the history contains only writes and reads. An
///   order that explains the history still does without such a write, because a read between it and
///   the next write would have returned its value;
/// - open appends whose text no read returned, if the history contains only appends and reads, and
///   some read began after all answered appends had ended. That read comes after everything that
///   the open append could have affected, and would return its text.
pub(super) fn that_matter(history: &[Operation]) -> Vec<usize> {
    let only = |kinds: fn(&Call) -> bool| history.iter().all(|operation| kinds(&operation.call));
    let only_writes = only(|call| matches!(call, Call::Write(_) | Call::Read(_)));
    let only_appends = only(|call| matches!(call, Call::Append(..) | Call::Read(_)));
    let matters = |operation: &Operation| {
        if operation.ended.is_some() {
            return true;
        }
        match &operation.call {
            Call::Read(_) => false,
            Call::Write(pairs) => {
                !only_writes
                    || pairs.iter().any(|(member, value)| shows(history, *member, |held| held == value))
            }
            Call::Append(member, text) => {
                let is_told = only_appends && is_read_at_the_end(history, *member);
                !is_told || shows(history, *member, |held| held.contains(text.as_str()))
            }
            Call::Increment(_) => true,
        }
    };
    (0..history.len()).filter(|&index| matters(&history[index])).collect()
}

/// Returns true if a read returned such a value of the member.
fn shows(history: &[Operation], member: Member, is_it: impl Fn(&str) -> bool) -> bool {
    history.iter().any(|operation| match (&operation.call, &operation.ended) {
        (Call::Read(members), Some((_, Answer::Values(values)))) => members
            .iter()
            .zip(values)
            .any(|(read, value)| *read == member && value.as_deref().is_some_and(&is_it)),
        _ => false,
    })
}

fn is_read_at_the_end(history: &[Operation], member: Member) -> bool {
    let changes = history.iter().filter(|operation| !operation.is_read());
    let last = changes.filter_map(|operation| Some(operation.ended.as_ref()?.0)).max().unwrap_or(0);
    history.iter().any(|operation| match &operation.call {
        Call::Read(members) => {
            members.contains(&member) && operation.ended.is_some() && operation.began > last
        }
        _ => false,
    })
}

/// Reads by the values that they returned, if the history contains only writes and reads and no
/// member is given a value twice. Then an overwritten value does not come back, so all reads that
/// returned it come before the overwriting write.
pub(super) struct Readers(Option<ByValue>);

/// Indexes of reads by what they returned.
type ByValue = BTreeMap<(Member, Option<String>), Vec<usize>>;

impl Readers {
    /// Puts no condition on writes.
    pub(super) fn unknown() -> Readers {
        Readers(None)
    }

    pub(super) fn of(operations: &[Operation]) -> Readers {
        let mut written = BTreeSet::new();
        let mut readers = ByValue::new();
        for (index, operation) in operations.iter().enumerate() {
            match (&operation.call, &operation.ended) {
                (Call::Write(pairs), _) => {
                    if !pairs.iter().all(|pair| written.insert(pair)) {
                        return Readers(None);
                    }
                }
                (Call::Read(members), Some((_, Answer::Values(values)))) => {
                    for (member, value) in members.iter().zip(values) {
                        readers.entry((*member, value.clone())).or_default().push(index);
                    }
                }
                (Call::Read(_), None) => {}
                _ => return Readers(None),
            }
        }
        Readers(Some(readers))
    }

    /// Returns true if all reads that returned the values which the operation overwrites are
    /// linearized.
    pub(super) fn may_go(
        &self,
        state: &Group,
        operation: &Operation,
        is_linearized: impl Fn(usize) -> bool,
    ) -> bool {
        let (Some(readers), Call::Write(pairs)) = (&self.0, &operation.call) else { return true };
        pairs.iter().all(|(member, _)| {
            let saw = readers.get(&(*member, state.value(*member)));
            saw.is_none_or(|saw| saw.iter().all(|read| is_linearized(*read)))
        })
    }
}

/// Restrictions on the order and the results of open increments.
pub(super) struct OpenIncrements {
    /// By operation: the open increment of the same member that began just before. They are all
    /// alike, so the earlier one goes first.
    before: Vec<Option<usize>>,
    /// By member, the numbers that an open increment may produce. Set if the history contains only
    /// increments and reads. These are the numbers up to the largest one seen that no increment
    /// returned. A counter takes every number once, so an open increment that took a returned
    /// number would leave its operation without a place. An open increment beyond the largest
    /// number comes after everything that was seen.
    free: Option<BTreeMap<Member, BTreeSet<i64>>>,
}

impl OpenIncrements {
    pub(super) fn of(operations: &[Operation]) -> OpenIncrements {
        OpenIncrements { before: alike_before(operations), free: free_numbers(operations) }
    }

    /// Returns the operation that must be linearized before this one.
    pub(super) fn before(&self, index: usize) -> Option<usize> {
        self.before[index]
    }

    /// Returns true if the operation may be tried with the state to which it leads.
    pub(super) fn may_lead_to(&self, operation: &Operation, next: &Group) -> bool {
        let (Call::Increment(member), None, Some(free)) = (&operation.call, &operation.ended, &self.free)
        else {
            return true;
        };
        let number = next.value(*member).and_then(|value| value.parse().ok());
        number.is_some_and(|number| free.get(member).is_some_and(|free| free.contains(&number)))
    }
}

fn free_numbers(operations: &[Operation]) -> Option<BTreeMap<Member, BTreeSet<i64>>> {
    let mut largest: BTreeMap<Member, i64> = BTreeMap::new();
    let mut given: BTreeSet<(Member, i64)> = BTreeSet::new();
    for operation in operations {
        let seen: Vec<(Member, i64)> = match (&operation.call, &operation.ended) {
            (Call::Increment(member), Some((_, Answer::Number(number)))) => {
                given.insert((*member, *number));
                vec![(*member, *number)]
            }
            (Call::Read(members), Some((_, Answer::Values(values)))) => {
                let number =
                    |value: &Option<String>| value.as_ref().map_or(Some(0), |text| text.parse().ok());
                let pairs = members.iter().zip(values);
                pairs.map(|(member, value)| Some((*member, number(value)?))).collect::<Option<_>>()?
            }
            (Call::Increment(_) | Call::Read(_), None) => Vec::new(),
            _ => return None,
        };
        for (member, number) in seen {
            let largest = largest.entry(member).or_default();
            *largest = (*largest).max(number);
        }
    }
    // A wrong answer may be any number. Numbers beyond the count of operations are not enumerated.
    let most = i64::try_from(operations.len()).ok()?;
    let free = |(member, largest): (Member, i64)| {
        (member, (1..=largest.min(most)).filter(|number| !given.contains(&(member, *number))).collect())
    };
    Some(largest.into_iter().map(free).collect())
}

/// Returns for each open increment the one of the same member that began just before it and is open
/// too.
fn alike_before(operations: &[Operation]) -> Vec<Option<usize>> {
    let mut before = vec![None; operations.len()];
    let mut open: Vec<(Member, u64, usize)> = operations
        .iter()
        .enumerate()
        .filter(|(_, operation)| operation.ended.is_none())
        .filter_map(|(index, operation)| match operation.call {
            Call::Increment(member) => Some((member, operation.began, index)),
            _ => None,
        })
        .collect();
    open.sort_unstable();
    for pair in open.windows(2) {
        if pair[0].0 == pair[1].0 {
            before[pair[1].2] = Some(pair[0].2);
        }
    }
    before
}
