//! Which operations a search need not try.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Answer, Call, Member, Operation};
use crate::model::Group;

/// The operations without those that leave the verdict as it is:
///
/// - reads of which nobody has seen the answer;
/// - open writes of which no read shows any value, where the history has nothing but writes and reads. Taken out
///   of an order that explains the history they leave one: what was read after them, and before the next write,
///   would have shown them;
/// - open appends of which no read shows the text, where the history has nothing but appends and reads, and a read
///   that began when all appends that came back had ended. That read comes after everything that the open one
///   could have changed, and would show it.
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

/// Whether some read saw such a value of a member.
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

/// Who saw which value, where the history has nothing but writes and reads and no member is given one value twice:
/// what was overwritten does not come back, so whoever saw it comes before.
pub(super) struct Readers(Option<ByValue>);

/// Indexes of reads by what they saw.
type ByValue = BTreeMap<(Member, Option<String>), Vec<usize>>;

impl Readers {
    /// Every write may go at any time.
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

    /// Whether all that saw what the operation overwrites are linearized.
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

/// Which open increments a search has to try where.
pub(super) struct OpenIncrements {
    /// For each of them the one of the same member that began just before it: they are all alike, so that one
    /// goes first.
    before: Vec<Option<usize>>,
    /// Numbers that an open increment may make, by member, where the history has nothing but increments and
    /// reads: up to the largest that was seen, those that no increment was answered. A counter takes every
    /// number once, so an open increment that took another's would leave that one without a place; and one
    /// beyond the largest comes after all that anybody saw.
    free: Option<BTreeMap<Member, BTreeSet<i64>>>,
}

impl OpenIncrements {
    pub(super) fn of(operations: &[Operation]) -> OpenIncrements {
        OpenIncrements { before: alike_before(operations), free: free_numbers(operations) }
    }

    /// The operation that has to be linearized before this one.
    pub(super) fn before(&self, index: usize) -> Option<usize> {
        self.before[index]
    }

    /// Whether the state that the operation leads to is one that it may be tried for.
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
    // A wrong answer may be any number: what cannot have been counted so far is not counted out.
    let most = i64::try_from(operations.len()).ok()?;
    let free = |(member, largest): (Member, i64)| {
        (member, (1..=largest.min(most)).filter(|number| !given.contains(&(member, *number))).collect())
    };
    Some(largest.into_iter().map(free).collect())
}

/// For each open increment the one of the same member that began just before it and is open too.
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
