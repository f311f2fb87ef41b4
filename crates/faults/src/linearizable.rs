//! Checks whether the history of one object is linearizable. The algorithm is Wing and Gong's
//! search (*Testing and Verifying Concurrent Objects*, 1993) with Lowe's cache of visited states
//! (*Testing for Linearizability*, 2017).
//!
//! The search walks through the history in the order of time. At each step it linearizes an
//! operation that began before the first return of an operation that is not linearized yet. It does
//! not visit a combination of linearized operations and state twice. It succeeds when all
//! operations with an answer are linearized. Open operations may have taken effect, but need not.
//!
//! Open operations make a search long: a store that is cut off leaves dozens of them, and every
//! subset may have taken effect. Those that cannot affect the verdict are removed beforehand, and
//! open increments are tried only in their order and for numbers that no other increment returned
//! (`seen`).
//!
//! A search is also long if many writes wait for the same store. If no value is written twice, a
//! write is tried only after all reads that saw the value it overwrites. A read is linearized as
//! soon as possible. Registers and journals are judged without a search (`register`, `journal`).

mod journal;
mod register;
mod seen;

use std::collections::HashSet;

use crate::history::{History, Operation};
use crate::model::Group;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// No order explains the history.
    Violation(Violation),
    /// The search reached its maximum number of steps.
    Undecided,
}

/// The state in which the longest partial order of the search got stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Indexes of the linearized operations, in their order.
    pub order: Vec<usize>,
    pub state: Group,
    /// The operation that had to come next at the latest, but could not.
    pub stuck: usize,
}

/// Maximum number of steps for one object, which take some seconds.
pub const STEPS_MAX: u64 = 20_000_000;

/// The beginning or the end of an operation, in a list ordered by time. Linearized operations are
/// removed from the list and put back on backtracking.
struct Event {
    operation: usize,
    /// For a call, the event of its return. `None` for a return.
    returns: Option<usize>,
    before: usize,
    after: usize,
}

/// The head of the list, whose `before` is not used, and the mark after the last event.
const HEAD: usize = 0;
const END: usize = usize::MAX;

struct Timeline(Vec<Event>);

impl Timeline {
    /// Makes the list of calls and returns. At equal times calls come first, so that operations
    /// that touch count as overlapping, which is the weaker claim.
    fn new(history: &[Operation]) -> Timeline {
        let mut ends: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (index, operation) in history.iter().enumerate() {
            ends.push((operation.began, false, index));
            ends.push((operation.ended.as_ref().map_or(u64::MAX, |(at, _)| *at), true, index));
        }
        ends.sort_unstable();
        let mut events = vec![Event { operation: END, returns: None, before: END, after: END }];
        let mut calls = vec![END; history.len()];
        for (_, is_return, operation) in ends {
            let at = events.len();
            match is_return {
                true => events[calls[operation]].returns = Some(at),
                false => calls[operation] = at,
            }
            events[at - 1].after = at;
            events.push(Event { operation, returns: None, before: at - 1, after: END });
        }
        Timeline(events)
    }

    fn lift(&mut self, call: usize) {
        self.unlink(call);
        self.unlink(self.0[call].returns.expect("every call has a return"));
    }

    /// Undoes the last `lift` that has not been undone yet.
    fn put_back(&mut self, call: usize) {
        self.link(self.0[call].returns.expect("every call has a return"));
        self.link(call);
    }

    fn unlink(&mut self, at: usize) {
        let (before, after) = (self.0[at].before, self.0[at].after);
        self.0[before].after = after;
        if after != END {
            self.0[after].before = before;
        }
    }

    fn link(&mut self, at: usize) {
        let (before, after) = (self.0[at].before, self.0[at].after);
        self.0[before].after = at;
        if after != END {
            self.0[after].before = at;
        }
    }
}

/// The set of linearized operations.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Chosen(Vec<u64>);

impl Chosen {
    fn holds(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn flip(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }
}

pub fn check(history: &History) -> Verdict {
    check_within(history, STEPS_MAX)
}

pub fn check_within(history: &History, steps_max: u64) -> Verdict {
    let known: Vec<usize> = seen::that_matter(history);
    let operations: Vec<Operation> = known.iter().map(|&index| history[index].clone()).collect();
    match judge(&operations, steps_max) {
        Verdict::Violation(found) => Verdict::Violation(Violation {
            order: found.order.iter().map(|&index| known[index]).collect(),
            state: found.state,
            stuck: known[found.stuck],
        }),
        other => other,
    }
}

fn judge(operations: &[Operation], steps_max: u64) -> Verdict {
    let is_linearizable =
        register::is_linearizable(operations).or_else(|| journal::is_linearizable(operations));
    if is_linearizable == Some(true) {
        return Verdict::Linearizable;
    }
    match search(operations, &seen::Readers::of(operations), steps_max) {
        // A search without this shortcut gets stuck at an operation that is easier to understand,
        // if it ends.
        Verdict::Violation(found) => match search(operations, &seen::Readers::unknown(), steps_max) {
            Verdict::Violation(plain) => Verdict::Violation(plain),
            _ => Verdict::Violation(found),
        },
        Verdict::Undecided if is_linearizable == Some(false) => {
            let end = |index: &usize| operations[*index].ended.as_ref().map_or(u64::MAX, |(at, _)| *at);
            let stuck = (0..operations.len()).min_by_key(end).expect("nothing is linearizable");
            Verdict::Violation(Violation { order: Vec::new(), state: Group::default(), stuck })
        }
        verdict => verdict,
    }
}

fn search(operations: &[Operation], readers: &seen::Readers, steps_max: u64) -> Verdict {
    let mut timeline = Timeline::new(operations);
    let mut chosen = Chosen(vec![0; operations.len().div_ceil(64)]);
    let mut tried: HashSet<(Chosen, Group)> = HashSet::new();
    let open_increments = seen::OpenIncrements::of(operations);
    // Linearized calls, with the state before each.
    let mut path: Vec<(usize, Group)> = Vec::new();
    let mut state = Group::default();
    let mut furthest: Option<Violation> = None;
    let mut at = timeline.0[HEAD].after;
    for _ in 0..steps_max {
        if at == END {
            return Verdict::Linearizable;
        }
        let event = &timeline.0[at];
        let index = event.operation;
        let operation = &operations[index];
        if event.returns.is_some() {
            let answer = operation.ended.as_ref().map(|(_, answer)| answer);
            let is_first = open_increments.before(index).is_none_or(|before| chosen.holds(before));
            let next = if is_first { state.step(&operation.call, answer) } else { None };
            let next = next.filter(|next| open_increments.may_lead_to(operation, next));
            let next = next.filter(|_| readers.may_go(&state, operation, |read| chosen.holds(read)));
            let next = next.filter(|next| {
                chosen.flip(index);
                let is_new = tried.insert((chosen.clone(), next.clone()));
                chosen.flip(index);
                is_new
            });
            at = match next {
                Some(next) => {
                    chosen.flip(index);
                    path.push((at, std::mem::replace(&mut state, next)));
                    timeline.lift(at);
                    timeline.0[HEAD].after
                }
                None => event.after,
            };
            continue;
        }
        // This is the return of an operation that is not linearized. If the operation is open, all
        // later returns are of open operations too, so everything that must be linearized is.
        if operation.ended.is_none() {
            return Verdict::Linearizable;
        }
        if furthest.as_ref().is_none_or(|furthest| furthest.order.len() < path.len()) {
            let order = path.iter().map(|(call, _)| timeline.0[*call].operation).collect();
            furthest = Some(Violation { order, state: state.clone(), stuck: index });
        }
        loop {
            let Some((call, before)) = path.pop() else {
                return Verdict::Violation(furthest.expect("noted just above"));
            };
            let operation = timeline.0[call].operation;
            chosen.flip(operation);
            timeline.put_back(call);
            state = before;
            at = timeline.0[call].after;
            // A read does not change the state. If the remaining operations had an order that does
            // not begin with this read, the read could also be moved to its beginning, and that was
            // tried.
            if !operations[operation].is_read() {
                break;
            }
        }
    }
    Verdict::Undecided
}

#[cfg(test)]
mod tests;
