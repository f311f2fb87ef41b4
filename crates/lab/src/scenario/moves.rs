//! The operators of a scenario, on its time axis.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The time at which the operator began. Negative before the observed workload.
    pub at_s: f64,
    /// The time at which it ended. `None` if it had not ended when it was last seen.
    pub ended_s: Option<f64>,
    pub region: u64,
    /// The kind of operator: `transfer-leader`, `move-peer`, ...
    pub kind: String,
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub reason: String,
}

impl Move {
    pub fn in_flight(&self, at_s: f64) -> bool {
        self.in_flight_lately(at_s, 0.0)
    }

    /// Returns true if the operator was in flight at `at_s` or within the `late_s` before.
    pub fn in_flight_lately(&self, at_s: f64, late_s: f64) -> bool {
        self.at_s <= at_s && self.ended_s.is_none_or(|ended| ended > at_s - late_s)
    }

    /// Returns true if the operator copies data from or to the store.
    fn copies_at(&self, store: u64) -> bool {
        self.kind.ends_with("-peer") && (self.from == Some(store) || self.to == Some(store))
    }
}

/// Returns the maximum number of copies from or towards a store that were in flight at the same
/// time, within the `late_s` before `at_s`.
pub fn copies(moves: &[Move], store: u64, at_s: f64, late_s: f64) -> usize {
    let lately = || moves.iter().filter(|one| one.in_flight_lately(at_s, late_s) && one.copies_at(store));
    // The maximum is reached when a copy begins, or at the beginning of the interval.
    let moments = lately().map(|one| one.at_s.max(at_s - late_s));
    moments.map(|moment| lately().filter(|one| one.in_flight(moment)).count()).max().unwrap_or(0)
}

/// A named interval of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub name: String,
    pub from_s: f64,
    pub to_s: f64,
}

impl Span {
    pub fn new(name: &str, from_s: f64, to_s: f64) -> Span {
        Span { name: name.to_owned(), from_s, to_s }
    }

    pub fn holds(&self, at_s: f64) -> bool {
        self.from_s <= at_s && at_s < self.to_s
    }

    pub fn moves<'a>(&'a self, moves: &'a [Move]) -> impl Iterator<Item = &'a Move> {
        moves.iter().filter(|one| self.holds(one.at_s))
    }

    /// Formats the number of moves, such as `12 (8 move-peer, 4 transfer-leader)`.
    pub fn moves_text(&self, moves: &[Move]) -> String {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for one in self.moves(moves) {
            *kinds.entry(&one.kind).or_default() += 1;
        }
        if kinds.is_empty() {
            return "0".to_owned();
        }
        let parts: Vec<String> = kinds.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
        format!("{} ({})", kinds.values().sum::<usize>(), parts.join(", "))
    }
}

/// Returns the number of moves that took a peer or leader back to a store that an earlier move of
/// the same kind had taken it from. That is thrashing if nothing changed in between.
pub fn reversals<'a>(moves: impl IntoIterator<Item = &'a Move>) -> usize {
    let mut left: BTreeMap<(u64, &str), Vec<u64>> = BTreeMap::new();
    let mut number = 0;
    for one in moves {
        let left = left.entry((one.region, &one.kind)).or_default();
        if one.to.is_some_and(|to| left.contains(&to)) {
            number += 1;
        }
        left.extend(one.from);
    }
    number
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn moved(at_s: f64, region: u64, kind: &str, from: u64, to: u64) -> Move {
        let reason = "its store writes 1 MB/s".to_owned();
        let ended_s = Some(at_s + 0.4);
        Move { at_s, ended_s, region, kind: kind.to_owned(), from: Some(from), to: Some(to), reason }
    }

    #[test]
    fn moves_belong_to_the_span_in_which_they_began() {
        let moves = [
            moved(-3.0, 1, "move-peer", 0, 1),
            moved(60.0, 1, "transfer-leader", 0, 1),
            moved(99.9, 2, "move-peer", 0, 1),
        ];
        assert_eq!(Span::new("slowed", 60.0, 100.0).moves_text(&moves), "2 (1 move-peer, 1 transfer-leader)");
        assert_eq!(Span::new("later", 100.0, 200.0).moves_text(&moves), "0");
    }

    #[test]
    fn copies_count_at_both_ends_until_they_end() {
        let moves = [moved(1.0, 1, "move-peer", 0, 3), moved(1.0, 2, "transfer-leader", 0, 3)];
        let count = |store, at_s| copies(&moves, store, at_s, 0.0);
        assert_eq!(
            [count(0, 1.2), count(3, 1.2), count(1, 1.2), count(3, 0.9), count(3, 1.4)],
            [1, 1, 0, 0, 0]
        );
        // One copy ends at 1.4 and the other begins at 1.6, so there are never two at once.
        let moves = [moves[0].clone(), moved(1.6, 3, "move-peer", 0, 3)];
        assert_eq!([0.1, 1.0].map(|late_s| copies(&moves, 3, 1.8, late_s)), [1, 1]);
        assert_eq!([0.1, 1.0].map(|late_s| copies(&moves, 3, 2.1, late_s)), [0, 1]);
    }

    #[test]
    fn there_and_back_is_a_reversal_and_a_chain_is_none() {
        let peer = |at, region, from, to| moved(at, region, "move-peer", from, to);
        assert_eq!(reversals(&[peer(1.0, 1, 0, 1), peer(2.0, 1, 1, 2), peer(3.0, 2, 1, 0)]), 0);
        assert_eq!(reversals(&[peer(1.0, 1, 0, 1), peer(2.0, 1, 1, 0)]), 1);
        assert_eq!(reversals(&[peer(1.0, 1, 0, 1), moved(2.0, 1, "transfer-leader", 1, 0)]), 0);
    }
}
