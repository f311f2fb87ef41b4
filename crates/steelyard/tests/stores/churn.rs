//! Layouts that constantly change: regions split, merge, move and change leaders while a test runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faults::chance::Chance;
use serde_json::Value;

use super::{say, Host, Stores, PATIENCE};

/// Maximum number of regions. With more, regions are only merged.
const REGIONS_MAX: usize = 8;

/// The requests for changes, by command.
type Tally = BTreeMap<&'static str, Asked>;

#[derive(Debug, Default)]
struct Asked {
    taken_up: u64,
    refused: u64,
    last_refusal: String,
}

fn number(row: &Value, field: &str) -> Option<u64> {
    row[field].as_u64()
}

/// Requests changes of the layout, drawn from a seed, until `stop` is set and every needed kind of
/// change was accepted. Refusals are expected: a change may already be in flight, or a fault may
/// interfere.
fn churn(hosts: &[Host], needed: &[&str], stop: &AtomicBool) -> Tally {
    let mut chance = Chance::new(0xc41e);
    let mut tally = Tally::new();
    let mut deadline = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            let over = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            if needed.iter().all(|command| taken_up(&tally, command) > 0) || Instant::now() >= over {
                return tally;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
        let host = chance.pick(hosts);
        let Ok(rows) = host.ctl(&["regions"]) else { continue };
        let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
        let rows: Vec<&Value> = rows.iter().filter(|row| number(row, "id") != Some(0)).collect();
        if rows.is_empty() {
            continue;
        }
        if let Some((command, numbers)) = change(&mut chance, hosts.len() as u64, &rows) {
            // At the end the kinds that were accepted keep no region busy for those that were not.
            if deadline.is_some() && taken_up(&tally, command) > 0 && chance.below(8) > 0 {
                continue;
            }
            let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let words: Vec<&str> = [command].into_iter().chain(words.iter().map(String::as_str)).collect();
            let asked = tally.entry(command).or_default();
            match host.ctl(&words) {
                Ok(_) => asked.taken_up += 1,
                Err(why) => {
                    asked.refused += 1;
                    asked.last_refusal = why;
                }
            }
        }
    }
}

fn taken_up(tally: &Tally, command: &str) -> u64 {
    tally.get(command).map_or(0, |asked| asked.taken_up)
}

fn stores_of(row: &Value) -> Vec<u64> {
    let peers = row["peers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut stores: Vec<u64> = peers.iter().filter_map(|peer| number(peer, "store")).collect();
    stores.sort_unstable();
    stores
}

/// Returns a command and its numbers for one of the regions.
fn change(chance: &mut Chance, stores: u64, rows: &[&Value]) -> Option<(&'static str, Vec<u64>)> {
    let row = chance.pick(rows);
    let id = number(row, "id")?;
    let held = stores_of(row);
    if held.is_empty() {
        return None;
    }
    Some(match chance.below(4) {
        0 => ("move-leader", vec![id, *chance.pick(&held)]),
        1 => {
            let free: Vec<u64> = (0..stores).filter(|store| !held.contains(store)).collect();
            if free.is_empty() {
                return None;
            }
            ("move-peer", vec![id, *chance.pick(&held), *chance.pick(&free)])
        }
        2 if rows.len() < REGIONS_MAX => ("split", vec![id]),
        // Only regions on the same stores can be merged, such as regions that were split recently.
        _ => {
            let mut pairs = rows.iter().flat_map(|left| rows.iter().map(move |right| (left, right)));
            let (left, right) = pairs.find(|(left, right)| {
                let next = number(left, "last_slot").map(|last| last + 1);
                next.is_some() && next == number(right, "first_slot") && stores_of(left) == stores_of(right)
            })?;
            let (left, right) = (number(left, "id")?, number(right, "id")?);
            ("merge", if chance.below(2) == 0 { vec![left, right] } else { vec![right, left] })
        }
    })
}

/// Runs `faults` while the layout changes. Every needed kind of change must have been accepted.
pub fn while_the_layout_changes(
    name: &str,
    needed: &[&str],
    stores: &mut Stores,
    faults: impl FnOnce(&mut Stores),
) {
    let hosts: Vec<Host> = stores.all.iter().map(|store| store.host().clone()).collect();
    let stop = AtomicBool::new(false);
    let tally = std::thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&hosts, needed, &stop));
        // Stop even if the faults fail the test. Otherwise the scope would wait forever.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stopping = Stop(&stop);
        faults(stores);
        drop(stopping);
        churning.join().expect("the changes are asked for to the end")
    });
    say(&format!("{name}: {tally:?}"));
    for store in &mut stores.all {
        assert_eq!(store.ended(), None, "store {} has stopped by itself", store.id);
    }
    for command in needed {
        assert!(taken_up(&tally, command) > 0, "VOID: no {command} was accepted: {tally:?}");
    }
}
