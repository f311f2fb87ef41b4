//! Whether one object's history is linearizable: Wing and Gong's search (*Testing and Verifying Concurrent
//! Objects*, 1993) with Lowe's memory of what was tried (*Testing for Linearizability*, 2017).
//!
//! The search walks the history in time and linearizes, at each step, some operation that began before the
//! first one ended that is not linearized yet. A set of linearized operations and the state they led to that
//! were tried before are not tried again. It ends well when every operation that came back is linearized:
//! those that are open may have taken effect, and need not.
//!
//! Open operations are what makes a search long: a store that is cut off leaves dozens, and every subset of them
//! may have taken effect. Those that cannot matter are left out before, and open increments are tried only in
//! their order and for numbers that nobody else was given (`seen`). So do writes that all wait for the same store:
//! none is tried before all that saw the value it overwrites, where no value is written twice; a read is
//! linearized as soon as it may be; and registers are judged without a search (`register`).

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
    /// The search was given up after so many steps.
    Undecided,
}

/// Where the search that came furthest got stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Indexes of linearized operations, in their order.
    pub order: Vec<usize>,
    pub state: Group,
    /// The operation that had to come next at the latest, and could not.
    pub stuck: usize,
}

/// Steps of the search for one object: some seconds.
pub const STEPS_MAX: u64 = 20_000_000;

/// One end of an operation, in a list in time from which linearized operations are lifted and put back.
struct Event {
    operation: usize,
    /// The event of its return, in a call; `None` in a return.
    returns: Option<usize>,
    before: usize,
    after: usize,
}

/// The list's head; its `before` is not used, and no event comes after `END`.
const HEAD: usize = 0;
const END: usize = usize::MAX;

struct Timeline(Vec<Event>);

impl Timeline {
    /// Calls and returns in time. Where both bear the same time the call comes first: operations that touch
    /// count as overlapping, the weaker claim.
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

    /// Undoes the last `lift` that is not undone yet.
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

/// Which operations are linearized.
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
    let is_linearizable = register::is_linearizable(operations);
    if is_linearizable == Some(true) {
        return Verdict::Linearizable;
    }
    match search(operations, &seen::Readers::of(operations), steps_max) {
        // A search without that shortcut gets stuck where a person would, if it comes to an end.
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
    // Calls that were linearized, with the state before each.
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
        // An operation returned that is not linearized. If it never came back, neither did any that follows
        // it: all that had to be linearized are.
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
            // A read leaves the state as it is. Any order of what was left that does not begin with it would also do
            // with the read moved to its beginning, and that was tried.
            if !operations[operation].is_read() {
                break;
            }
        }
    }
    Verdict::Undecided
}

#[cfg(test)]
mod tests;
