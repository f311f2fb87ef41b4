//! Random workloads on a log with losses of power, and a model of the states that recovery may
//! find.

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::eraftpb::Entry;
use replica::{HardState, LogBatch, RegionWrite, Restart, RestartCause};
use types::{Draw, LogIndex, RegionDescriptor, RegionId, Term};
use wal::{
    read_entries, recover, settle, Appender, LogError, LogState, PeerLifecycle, Record, Release, SharedIndex,
    Sizes,
};

use super::{Cell, MemoryDisk, SECRET};

const REGIONS: u64 = 4;
const SIZES: Sizes = Sizes { segment_bytes: 32 << 10, log_bytes: 160 << 10 };

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    truncated: LogState,
    terms: BTreeMap<LogIndex, Term>,
    hard_state: Option<HardState>,
}

impl Held {
    fn last(&self) -> LogIndex {
        self.terms.last_key_value().map_or(self.truncated.truncated_index, |(index, _)| *index)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    regions: BTreeMap<RegionId, Held>,
    lifecycles: BTreeMap<RegionId, PeerLifecycle>,
    values: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn payload(region: RegionId, index: LogIndex, term: Term) -> Bytes {
    let mut draw = Draw::new(region << 40 | term << 20 | index);
    // Occasionally an entry is larger than a segment.
    let most = if draw.below(60) == 0 { 50 << 10 } else { 2 << 10 };
    let length = draw.below(most) as usize;
    let word = draw.number().to_be_bytes();
    Bytes::from(word.into_iter().cycle().take(length).collect::<Vec<u8>>())
}

fn entry(region: RegionId, index: LogIndex, term: Term) -> Entry {
    Entry { index, term, data: payload(region, index, term), ..Entry::default() }
}

fn descriptor(region: RegionId) -> RegionDescriptor {
    RegionDescriptor::founded(region, None, &[0, 1, 2])
}

struct Life {
    disk: MemoryDisk,
    index: Cell,
    log: Appender<MemoryDisk, Cell>,
    first: wal::mark::Mark,
    /// The states that recovery may find: the one at the last sync, and one for each step since.
    possible: Vec<Model>,
    /// The largest truncated index per region, synced or not.
    truncated: BTreeMap<RegionId, LogIndex>,
    term: Term,
    counts: Counts,
}

impl Life {
    fn open(disk: &MemoryDisk) -> Result<Life, LogError> {
        let found = recover(disk, SECRET)?;
        assert!(found.losses.is_empty(), "a loss of power is no damage: {:?}", found.losses);
        let index = Cell::default();
        let cuts = u64::from(found.cut.is_some());
        let (log, first) = Appender::new(disk.clone(), SECRET, SIZES, index.clone(), found)?;
        let mut life = Life {
            disk: disk.clone(),
            index,
            log,
            first,
            possible: Vec::new(),
            truncated: BTreeMap::new(),
            term: 1,
            counts: Counts { cuts, ..Counts::default() },
        };
        let held = life.held();
        life.truncated =
            held.regions.iter().map(|(region, of)| (*region, of.truncated.truncated_index)).collect();
        life.term = held.regions.values().flat_map(|of| of.terms.values()).max().map_or(1, |term| term + 1);
        life.possible = vec![held];
        Ok(life)
    }

    /// Returns the state of the log, read from the disk.
    fn held(&self) -> Model {
        let mut model = Model::default();
        for region in self.index.with(|index| index.regions()) {
            let (bounds, hard_state) =
                self.index.with(|index| (index.bounds(region), index.hard_state(region)));
            let truncated_term = self.index.with(|index| index.term(region, bounds.first - 1)).unwrap();
            let range = (bounds.first, bounds.last + 1);
            let entries = read_entries(&self.disk, &self.index, SECRET, region, range, u64::MAX).unwrap();
            assert_eq!(entries.len() as u64, range.1 - range.0);
            for entry in &entries {
                assert_eq!(entry.data, payload(region, entry.index, entry.term), "region {region}");
            }
            let truncated = LogState { truncated_index: bounds.first - 1, truncated_term };
            let terms = entries.iter().map(|entry| (entry.index, entry.term)).collect();
            model.regions.insert(region, Held { truncated, terms, hard_state });
        }
        model.lifecycles = self.index.with(|index| index.lifecycles()).into_iter().collect();
        for name in 0..5u8 {
            if let Some(value) = self.index.with(|index| index.value(&[name])) {
                model.values.insert(vec![name], value.to_vec());
            }
        }
        model
    }

    fn now(&self) -> Model {
        self.possible.last().expect("at least one").clone()
    }

    fn step(&mut self, model: &Model) {
        self.possible.push(model.clone());
    }

    /// Drops all states before the current one, which is synced.
    fn synced(&mut self) {
        self.possible = vec![self.now()];
    }

    fn append(&mut self, draw: &mut Draw) -> Result<(), LogError> {
        let mut model = self.now();
        let mut writes = Vec::new();
        let mut region = draw.below(REGIONS);
        while region < REGIONS {
            let held = model.regions.entry(region).or_default();
            if draw.below(10) == 0 {
                self.term += 1;
            }
            let (last, term) = (held.last(), self.term);
            let mut write = RegionWrite { region, restart: None, entries: Vec::new(), hard_state: None };
            let mut first = last + 1;
            if draw.below(40) == 0 {
                let index = held.truncated.truncated_index.max(last) + draw.below(20);
                let descriptor = descriptor(region);
                let cause = match draw.below(2) {
                    0 => RestartCause::Snapshot,
                    _ => RestartCause::Split { parent: 77, at: index },
                };
                write.restart = Some(Restart { index, term, descriptor: descriptor.clone(), cause });
                *held = Held::default();
                held.truncated = LogState { truncated_index: index, truncated_term: term };
                self.truncated.insert(region, index);
                first = index + 1;
                let life = match cause {
                    RestartCause::Split { parent, at } => {
                        PeerLifecycle::Exists { descriptor, parent: Some((parent, at)) }
                    }
                    RestartCause::Snapshot => PeerLifecycle::Applying { descriptor, index, term },
                };
                model.lifecycles.insert(region, life);
            } else if draw.below(6) == 0 {
                first -= draw.below(4).min(last - held.truncated.truncated_index);
            }
            let most = if draw.below(12) == 0 { 40 } else { 5 };
            let count = draw.below(most);
            write.entries = (first..first + count).map(|index| entry(region, index, term)).collect();
            if draw.below(3) > 0 || write.restart.is_some() {
                let commit = (first + count).saturating_sub(1 + draw.below(3));
                let state = HardState { term, vote: Some(draw.below(3)), commit };
                write.hard_state = Some(state);
                // Until its entries are written, the hard state must not count the replaced entries
                // as committed.
                let at_first = HardState { commit: commit.min(first - 1), ..state };
                let early = if count > 0 { at_first } else { state };
                model.regions.get_mut(&region).expect("it is there").hard_state = Some(early);
            }
            self.step(&model);
            for entry in &write.entries {
                let held = model.regions.get_mut(&region).expect("it is there");
                held.terms.retain(|index, _| *index < entry.index);
                held.terms.insert(entry.index, entry.term);
                self.step(&model);
            }
            if write.hard_state.is_some() {
                model.regions.get_mut(&region).expect("it is there").hard_state = write.hard_state;
                self.step(&model);
            }
            writes.push(write);
            region += 1 + draw.below(REGIONS);
        }
        let synced = draw.below(3) > 0;
        self.log.append(&LogBatch { number: 1, writes, must_sync: synced }, synced)?;
        if synced {
            self.synced();
        }
        Ok(())
    }

    fn truncate(&mut self, draw: &mut Draw) {
        let mut model = self.now();
        let region = draw.below(REGIONS);
        let Some(held) = model.regions.get_mut(&region) else { return };
        let room = held.last() - held.truncated.truncated_index;
        if room == 0 {
            return;
        }
        let index = held.truncated.truncated_index + 1 + draw.below(room);
        let state = LogState { truncated_index: index, truncated_term: held.terms[&index] };
        held.truncated = state;
        held.terms.retain(|of, _| *of > index);
        self.truncated.insert(region, index);
        self.index.with(|of| of.truncate(region, state));
        self.step(&model);
    }

    fn record(&mut self, draw: &mut Draw) -> Result<(), LogError> {
        let mut model = self.now();
        let region = draw.below(REGIONS);
        let tombstone = PeerLifecycle::Tombstone { peer: draw.below(9) };
        let (region, records) = match draw.below(4) {
            0 => {
                let name = vec![draw.below(5) as u8];
                let value = draw.number().to_be_bytes().to_vec();
                model.values.insert(name.clone(), value.clone());
                (0, vec![Record::Value { name, value: value.into() }])
            }
            1 => {
                model.regions.remove(&region);
                model.lifecycles.insert(region, tombstone.clone());
                self.truncated.insert(region, 0);
                (region, vec![Record::Forgotten, Record::Life(tombstone)])
            }
            _ => {
                model.lifecycles.insert(region, tombstone.clone());
                (region, vec![Record::Life(tombstone)])
            }
        };
        self.step(&model);
        self.log.record(vec![(region, records)], true)?;
        self.synced();
        Ok(())
    }

    /// Releases segments as a store's keeper thread does.
    fn keep(&mut self) -> Result<(), LogError> {
        for _ in 0..8 {
            let last = self.log.sequence();
            match self.log.release_oldest()? {
                Release::Released { first } => {
                    self.counts.released += 1;
                    self.counts.carried += u64::from(self.log.sequence() > last);
                    // A release syncs all that was written.
                    self.synced();
                    settle(&self.disk, &mut self.first, first)?;
                    self.log.reuse_below(first);
                }
                Release::Kept | Release::Pinned(_) => break,
            }
        }
        if let Some((segment, len)) = self.log.wanted_segment() {
            wal::Disk::create(&self.disk, segment, len)?;
            self.log.add_segment(segment, len);
        }
        Ok(())
    }

    fn act(&mut self, draw: &mut Draw) -> Result<(), LogError> {
        match draw.below(20) {
            0..=11 => self.append(draw)?,
            12..=15 => self.truncate(draw),
            16 => self.record(draw)?,
            17 => {
                self.log.sync()?;
                self.synced();
            }
            18 => self.log.sync_mark()?,
            _ => self.keep()?,
        }
        Ok(())
    }

    /// Returns true if `found` is a valid state after a loss of power. An unsynced truncation may
    /// be lost, so that its entries are back. The commit index is at most the last entry found.
    fn may_become(&self, found: &Model) -> bool {
        self.possible.iter().any(|model| {
            let regions: std::collections::BTreeSet<_> =
                model.regions.keys().chain(found.regions.keys()).collect();
            model.lifecycles == found.lifecycles
                && model.values == found.values
                && regions.into_iter().all(|region| {
                    let blank = Held::default();
                    let was = model.regions.get(region).unwrap_or(&blank);
                    let is = found.regions.get(region).unwrap_or(&blank);
                    let truncated = is.truncated.truncated_index.max(was.truncated.truncated_index);
                    let above = |held: &Held| -> Vec<_> {
                        held.terms
                            .iter()
                            .filter(|(index, _)| **index > truncated)
                            .map(|(i, t)| (*i, *t))
                            .collect()
                    };
                    let latest = self.truncated.get(region).copied().unwrap_or(0);
                    let commit = |held: &Held| held.hard_state.map(|state| (state.term, state.vote));
                    let bounded = is.hard_state.is_none_or(|state| {
                        state.commit <= is.last()
                            && was.hard_state.is_some_and(|of| state.commit <= of.commit)
                    });
                    above(was) == above(is)
                        && is.last() == was.last().max(truncated)
                        && is.truncated.truncated_index <= latest.max(was.truncated.truncated_index)
                        && commit(was) == commit(is)
                        && bounded
                })
        })
    }
}

/// The number of events in one run, or in several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub losses: u64,
    /// Segments that were released.
    pub released: u64,
    /// Released segments from which data was carried.
    pub carried: u64,
    /// Starts that cut off blocks.
    pub cuts: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.losses += other.losses;
        self.released += other.released;
        self.carried += other.carried;
        self.cuts += other.cuts;
    }
}

/// Runs a log through several losses of power. Returns an error that describes the first invalid
/// state found.
pub fn live(seed: u64, ignores_syncs: bool) -> Result<Counts, String> {
    let disk = MemoryDisk::new();
    if ignores_syncs {
        disk.ignore_syncs();
    }
    live_on(disk, seed)
}

/// Same as [`live`], on this empty disk.
pub fn live_on(disk: MemoryDisk, seed: u64) -> Result<Counts, String> {
    let mut draw = Draw::new(seed);
    let mut counts = Counts::default();
    let mut life = Life::open(&disk).map_err(|error| error.to_string())?;
    for round in 0..6 {
        disk.power_for(draw.below(600));
        let why = loop {
            if let Err(error) = life.act(&mut draw) {
                break error;
            }
        };
        if why != LogError::Device("the power is off".into()) {
            return Err(format!("seed {seed}, round {round}: {why}"));
        }
        counts.losses += 1;
        counts += std::mem::take(&mut life.counts);
        // A killed process loses no writes. Power may also be lost before anything else is written.
        if draw.below(4) > 0 {
            disk.lose_power(&mut draw);
        }
        disk.power_for(draw.below(6));
        if Life::open(&disk).is_err() {
            disk.lose_power(&mut draw);
        }
        disk.power_for(u64::MAX);
        let next = Life::open(&disk).map_err(|error| format!("seed {seed}, round {round}: {error}"))?;
        let found = next.now();
        if !life.may_become(&found) {
            return Err(format!(
                "seed {seed}, round {round}: what was found was never there:\n{found:#?}\nat the last sync:\n{:#?}",
                life.possible[0]
            ));
        }
        let term = life.term.max(next.term) + 1;
        life = next;
        life.term = term;
    }
    Ok(counts)
}
