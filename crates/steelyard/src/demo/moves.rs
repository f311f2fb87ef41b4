//! Chooses moves that show the effect of placement, and describes them in words.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use client::admin::OperatorRow;
use client::table::micros;

/// A move in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub what: String,
    /// The purpose of the move, then the cluster's reason with its numbers.
    pub reason: String,
}

/// Purposes of moves by operator and kind of reason, the most instructive first.
const PURPOSES: &[(&str, &str, &str)] = &[
    ("transfer-leader", "wait", "writes wait for the leader's sync, which is shorter there"),
    ("move-peer", "wait", "a copy on a faster device shortens what writes wait for"),
    ("move-peer", "data-levels", "each store gets data by what its device can carry"),
    ("move-peer", "change-places", "two copies change places, and both regions keep a fast device"),
    ("move-peer", "full", "a full store sheds what is cold"),
    ("transfer-leader", "busy", "a busy device hands over work"),
    ("move-peer", "busy", "a busy device hands over work"),
    ("transfer-leader", "together", "two moves together relieve a busy device"),
    ("move-peer", "together", "two moves together relieve a busy device"),
    ("transfer-leader", "more-capable", "the more capable store leads"),
    ("transfer-leader", "cpu-busy", "a busy CPU hands over work"),
    ("transfer-leader", "leader-counts", "equally fast stores lead equally many regions"),
];

/// Order in which moves are preferred.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Number of moves of the same kind that were chosen already.
    chosen: usize,
    purpose: usize,
    /// Moves between devices of different kinds are more instructive.
    between_kinds: Reverse<bool>,
    started_unix_ms: u64,
    region: u64,
}

/// Chooses up to `number` completed moves, of different kinds if there are as many. `device_of`
/// returns the name of a store's device.
pub fn choose(rows: &[OperatorRow], number: usize, device_of: impl Fn(u64) -> String) -> Vec<Told> {
    let mut left: Vec<&OperatorRow> = rows.iter().filter(|row| is_move(row)).collect();
    let mut chosen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut told = Vec::new();
    while told.len() < number {
        let rank = |row: &&OperatorRow| Rank {
            chosen: chosen.get(&kind(row)).copied().unwrap_or(0),
            purpose: purpose(row),
            between_kinds: Reverse(row.from.map(&device_of) != row.to.map(&device_of)),
            started_unix_ms: row.started_unix_ms,
            region: row.region,
        };
        let Some(best) = (0..left.len()).min_by_key(|&at| rank(&left[at])) else { break };
        let row = left.remove(best);
        *chosen.entry(kind(row)).or_default() += 1;
        told.push(tell(row, &device_of));
    }
    told
}

/// Returns true for a completed change of a leader or of a copy's store.
pub fn is_move(row: &OperatorRow) -> bool {
    let moves = ["transfer-leader", "move-peer"].contains(&row.kind.as_str());
    moves && row.from.is_some() && row.to.is_some() && row.state == "succeeded"
}

fn kind(row: &OperatorRow) -> (&str, &str) {
    (&row.kind, &row.reason_kind)
}

fn purpose(row: &OperatorRow) -> usize {
    let known = PURPOSES.iter().position(|(operator, reason, _)| (*operator, *reason) == kind(row));
    known.unwrap_or(PURPOSES.len())
}

fn tell(row: &OperatorRow, device_of: impl Fn(u64) -> String) -> Told {
    let store = |id: Option<u64>| id.map_or("-".into(), |id| format!("store {id} ({})", device_of(id)));
    let moved = if row.kind == "transfer-leader" { "leader of" } else { "copy of" };
    let took = row.finished_unix_ms.map_or(0, |end| end.saturating_sub(row.started_unix_ms));
    let what = format!(
        "{moved} region {}: {} -> {} in {}",
        row.region,
        store(row.from),
        store(row.to),
        micros(took as f64 * 1e3)
    );
    let reason = match PURPOSES.get(purpose(row)) {
        Some((_, _, purpose)) => format!("{purpose}: {}", row.reason),
        None => row.reason.clone(),
    };
    Told { what, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, reason_kind: &str, region: u64, from: u64, to: u64) -> OperatorRow {
        OperatorRow {
            region,
            kind: kind.into(),
            from: Some(from),
            to: Some(to),
            reason: format!("reason {region}"),
            reason_kind: reason_kind.into(),
            state: "succeeded".into(),
            started_unix_ms: 1000 + region,
            finished_unix_ms: Some(1250 + region),
        }
    }

    fn device(store: u64) -> String {
        if store < 2 { "nvm" } else { "plain-ssd" }.into()
    }

    fn regions(told: &[Told]) -> Vec<u64> {
        told.iter().map(|told| told.reason.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn three_moves_of_three_kinds_are_chosen_if_there_are() {
        let mut rows = vec![
            row("transfer-leader", "leader-counts", 1, 2, 3),
            row("transfer-leader", "wait", 2, 0, 1),
            row("transfer-leader", "wait", 3, 3, 0),
            row("move-peer", "data-levels", 4, 2, 0),
            row("move-peer", "wait", 5, 2, 1),
        ];
        let told = choose(&rows, 3, device);
        assert_eq!(regions(&told), [3, 5, 4], "between kinds of devices first");
        assert_eq!(told[0].what, "leader of region 3: store 3 (plain-ssd) -> store 0 (nvm) in 250.0 ms");
        assert!(told[0].reason.ends_with(": reason 3"), "{}", told[0].reason);
        rows.truncate(3);
        let told = choose(&rows, 3, device);
        assert_eq!(regions(&told), [3, 1, 2], "then others");
    }

    #[test]
    fn only_completed_moves_are_told() {
        let failed = OperatorRow { state: "timed out".into(), ..row("move-peer", "wait", 1, 2, 0) };
        let added = OperatorRow { from: None, ..row("add-peer", "too-few-voters", 2, 2, 0) };
        assert!(choose(&[failed, added], 3, device).is_empty());
        let unknown = choose(&[row("move-peer", "of a later version", 3, 2, 0)], 3, device);
        assert_eq!(unknown[0].what, "copy of region 3: store 2 (plain-ssd) -> store 0 (nvm) in 250.0 ms");
        assert_eq!(unknown[0].reason, "reason 3");
    }
}
