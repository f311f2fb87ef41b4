//! Loss of power while files of the log are created and deleted, on an emulated device that keeps
//! all synced data and a seeded part of the rest.
//!
//! A child process writes, truncates and recycles by a seed, and exits without closing anything.
//! Then the device loses power. The reopened log must hold the state after the last synced write,
//! or after one of the later writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use device::{preload_env, Control, Image, Profile, Survival, IMAGE_ENV};
use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, LogBounds, LogStore, RegionWrite};
use steelyard_raftlog::{Options, RaftLog};
use types::{Draw, LogIndex, RegionId, Term};

const DIR: &str = "STEELYARD_TEST_LOG_DIR";
const SEED: &str = "STEELYARD_TEST_LOG_SEED";
/// Name of the environment variable with the number of seeds that each test tries, for long runs.
const ROUNDS: &str = "STEELYARD_LOG_ROUNDS";
const REGIONS: u64 = 4;

fn small() -> Options {
    Options { segment_bytes: 64 << 10, log_bytes: 192 << 10 }
}

fn rounds(short: u64) -> u64 {
    std::env::var(ROUNDS).map_or(short, |text| text.parse().expect("a number of rounds"))
}

/// The contents of a region's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    truncated: LogIndex,
    terms: BTreeMap<LogIndex, Term>,
    hard_state: Option<HardState>,
}

impl Held {
    fn last(&self) -> LogIndex {
        self.terms.last_key_value().map_or(self.truncated, |(index, _)| *index)
    }
}

type Model = BTreeMap<RegionId, Held>;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Appends `count` entries from `first` on, in place of any existing ones.
    Append {
        region: RegionId,
        first: LogIndex,
        count: u64,
        term: Term,
        synced: bool,
    },
    Truncate {
        region: RegionId,
        index: LogIndex,
    },
    Destroy {
        region: RegionId,
    },
    Sync,
    Recycle,
}

fn payload(region: RegionId, index: LogIndex, term: Term) -> Bytes {
    let mut draw = Draw::new(region << 40 | term << 20 | index);
    let length = 1 + draw.below(12 << 10) as usize;
    let word = draw.number().to_be_bytes();
    Bytes::from(word.into_iter().cycle().take(length).collect::<Vec<u8>>())
}

/// Returns the operations of a seed, each with the contents of the log after it. Only even seeds
/// append entries without sync.
fn history(seed: u64) -> Vec<(Op, Model)> {
    let mut draw = Draw::new(seed);
    let mut model = Model::new();
    let count = 60 + draw.below(300);
    let mut history = Vec::new();
    for number in 1..=count {
        let region = 1 + draw.below(REGIONS);
        let held = model.entry(region).or_default();
        let (last, term) = (held.last(), 1 + number / 20);
        let op = match draw.below(20) {
            0..=11 => {
                // Occasionally a new leader's entries replace the last ones.
                let over = if draw.below(8) == 0 { draw.below(3).min(last - held.truncated) } else { 0 };
                let (first, count) = (last + 1 - over, 1 + draw.below(6));
                held.terms.retain(|index, _| *index < first);
                held.terms.extend((first..first + count).map(|index| (index, term)));
                held.hard_state = Some(HardState { term, vote: Some(number), commit: first });
                Op::Append { region, first, count, term, synced: seed % 2 == 1 || draw.below(3) > 0 }
            }
            12..=15 if last > held.truncated => {
                let index = held.truncated + 1 + draw.below(last - held.truncated);
                held.truncated = index;
                held.terms.retain(|of, _| *of > index);
                Op::Truncate { region, index }
            }
            16 if draw.below(4) == 0 => {
                model.remove(&region);
                Op::Destroy { region }
            }
            17 => Op::Sync,
            _ => Op::Recycle,
        };
        model.retain(|_, held| *held != Held::default());
        history.push((op, model.clone()));
    }
    // Half of the runs end where a loss of power is most dangerous: just after files were deleted.
    if draw.below(2) == 0 {
        history.push((Op::Recycle, model));
    }
    history
}

/// The process that loses power.
#[test]
#[ignore = "started by the other tests on an emulated device"]
fn write_until_the_power_goes() {
    let dir = std::env::var(DIR).unwrap();
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let log = RaftLog::open(Path::new(&dir), &small()).unwrap();
    for (op, model) in history(seed) {
        match op {
            Op::Append { region, first, count, term, synced } => {
                let entry =
                    |index| Entry { index, term, data: payload(region, index, term), ..Entry::default() };
                let write = RegionWrite {
                    region,
                    restart: None,
                    entries: (first..first + count).map(entry).collect(),
                    hard_state: model[&region].hard_state,
                };
                log.append(&LogBatch { number: 1, writes: vec![write], must_sync: synced }, synced).unwrap();
            }
            Op::Truncate { region, index } => {
                let term = log.term(region, index).unwrap();
                log.truncate(region, index, term);
            }
            Op::Destroy { region } => log.destroy(region, 1).unwrap(),
            Op::Sync => drop(log.sync().unwrap()),
            Op::Recycle => drop(log.recycle().unwrap()),
        }
    }
    // This is the worst case that a disk allows: names are current, and contents are as last
    // synced.
    File::open(dir).and_then(|dir| dir.sync_all()).unwrap();
    std::process::exit(77);
}

fn found(log: &RaftLog) -> Model {
    let mut model = Model::new();
    for region in log.regions() {
        let LogBounds { first, last } = log.bounds(region).unwrap();
        let entries = log.entries(region, first, last + 1, u64::MAX).unwrap();
        for entry in &entries {
            assert_eq!(entry.data, payload(region, entry.index, entry.term), "region {region}");
        }
        let terms = entries.iter().map(|entry| (entry.index, entry.term)).collect();
        let hard_state = log.hard_state(region).unwrap();
        model.insert(region, Held { truncated: first - 1, terms, hard_state });
    }
    model.retain(|_, held| *held != Held::default());
    model
}

/// Returns true if `found` is a valid outcome of `model`. A truncation may be lost, or may be
/// present although an earlier write is lost.
fn is_as(model: &Model, found: &Model, latest: &Model) -> bool {
    let blank = Held::default();
    let of = |model: &Model, region: RegionId| model.get(&region).unwrap_or(&blank).clone();
    (1..=REGIONS).all(|region| {
        let (was, is, last) = (of(model, region), of(found, region), of(latest, region));
        let above = was.truncated.max(is.truncated);
        let entries = |held: &Held| held.terms.clone().split_off(&(above + 1));
        entries(&was) == entries(&is)
            && is.last() == was.last().max(above)
            && is.truncated <= was.truncated.max(last.truncated)
            && is.hard_state == was.hard_state
    })
}

fn lose_power(seed: u64, survival: Survival) {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("log");
    std::fs::create_dir(&dir).unwrap();
    let profile: Profile = "write=100GB/s,read=100GB/s".parse().unwrap();
    let control = Control::create(&place.path().join("device"), &profile, 1.0).unwrap();
    let image = Image::create(&place.path().join("image"), &dir).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "write_until_the_power_goes", "--ignored", "--nocapture"])
        .envs(preload_env(control.path(), &dir).unwrap())
        .env(IMAGE_ENV, image.path())
        .env(DIR, &dir)
        .env(SEED, seed.to_string())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(77), "{}", String::from_utf8_lossy(&output.stderr));
    image.lose_power(survival).unwrap();
    let history = history(seed);
    let is_synced = |op: &Op| matches!(op, Op::Sync | Op::Destroy { .. } | Op::Append { synced: true, .. });
    let synced = history.iter().rposition(|(op, _)| is_synced(op));
    let before_any = [(Op::Sync, Model::new())];
    let possible = match synced {
        Some(at) => &history[at..],
        None => &before_any,
    };
    let latest = history.last().map(|(_, model)| model.clone()).unwrap_or_default();
    let log = RaftLog::open(&dir, &small()).unwrap_or_else(|why| panic!("seed {seed}, {survival:?}: {why}"));
    let found = found(&log);
    assert!(
        possible
            .iter()
            .chain(&history[synced.unwrap_or(0)..])
            .any(|(_, model)| is_as(model, &found, &latest)),
        "seed {seed}, {survival:?}: what was found was never there:\n{found:#?}\nat the last sync:\n{:#?}",
        possible[0].1
    );
}

#[test]
fn files_that_go_because_of_a_write_that_was_not_synced_take_nothing_along() {
    for seed in 0..rounds(40) {
        lose_power(seed, Survival::Synced);
    }
}

#[test]
fn a_loss_of_power_at_any_time_leaves_the_log_as_it_was_after_some_write() {
    for seed in (1001..).take(rounds(40) as usize) {
        lose_power(seed, Survival::Torn(seed));
    }
}
