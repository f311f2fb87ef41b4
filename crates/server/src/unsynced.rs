//! The peers of this store that may have lost writes. The cause is a crash of its machine, under
//! `fsync everysec` and `no`, or damage to the log.
//!
//! The rule is in `node::unsynced`. This module reads the boot of the machine, keeps the file
//! `UNSYNCED` in the data directory, warns operators, and carries out their orders to accept a
//! loss.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use node::damage::Damages;
use node::unsynced::{Accepted, Damaged, Mark};
use parking_lot::Mutex;
use raftlog::RaftLog;
use replica::{Input, LogStore, PeerSeed, Unclean};
use types::{LogIndex, PeerId, RegionId, UnixMillis};

use crate::config::{Config, Fsync};
use crate::datadir;
use crate::loops::WorkerSender;
use crate::transport::keys;

const FILE: &str = datadir::UNSYNCED;
/// Time between two lines of the log that name the waiting peers.
const REPEAT: Duration = Duration::from_secs(60);
/// Time after the start in which leaders may be elected and replace the peers, before the log names
/// the waiting peers.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of entries read from the end of a log to find the last one with a stamp.
const STAMPED_ENTRIES: u64 = 64;
const STAMPED_BYTES: u64 = 1 << 20;

/// A region in which this store is the only voter. Entries after `last` that it acknowledged may be
/// missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    pub region: RegionId,
    pub last: LogIndex,
    /// The stamp of the last entry that has one.
    pub stamp_ms: Option<UnixMillis>,
}

/// A peer whose loss was accepted.
pub struct Taken {
    pub region: RegionId,
    pub peer: PeerId,
    pub last: LogIndex,
}

#[derive(Debug)]
pub enum NotTaken {
    /// The store has no such peer.
    Nothing,
    /// The damage was found at runtime, and only a start repairs the log.
    RestartFirst,
    Unwritten(io::Error),
}

pub struct Unsynced {
    dir: PathBuf,
    boot: String,
    acknowledges_unsynced: bool,
    mark: Mutex<Mark>,
    incomplete: Vec<Incomplete>,
    /// The peers that take no part in consensus, as the worker last published them.
    unclean: ArcSwap<BTreeMap<RegionId, PeerId>>,
    /// The damaged peers that could not be opened. The regions' other peers replace them, too.
    absent: BTreeMap<RegionId, PeerId>,
    /// Damage that must still be recorded.
    found: Mutex<Vec<Damage>>,
    /// Regions whose damage was found at runtime. The next start repairs their logs.
    found_running: Mutex<BTreeSet<RegionId>>,
    /// The last index of each unclean peer's log at the start. The log gets no entries while its
    /// peer takes no part.
    ends: BTreeMap<RegionId, LogIndex>,
    started: Instant,
    said_at: Mutex<Option<Instant>>,
}

/// The mark as found at start, before the store acknowledges anything.
pub struct Found {
    mark: Mark,
    boot: String,
}

impl Found {
    /// Reads the mark.
    pub fn read(config: &Config) -> io::Result<Found> {
        Ok(Found { mark: read(&config.dir)?, boot: boot_of(&config.boot_id_file)? })
    }

    /// Returns the peers that were known before this start to be unclean because of damage to the
    /// log.
    pub fn damaged(&self) -> &BTreeMap<RegionId, Damaged> {
        &self.mark.damaged
    }

    /// Records durably which peers are unclean by the damage that this start found. The log may be
    /// repaired afterwards.
    pub fn note(&mut self, config: &Config, damages: &Damages) -> io::Result<()> {
        let next = self.mark.noting(&damages.unclean);
        if next != self.mark {
            write(&config.dir, &next)?;
            self.mark = next;
        }
        say_damages(damages);
        Ok(())
    }

    /// Marks in each seed whether its peer is unclean.
    pub fn judge(&self, config: &Config, seeds: &mut [PeerSeed]) {
        self.mark.judge(&self.boot, config.store, seeds);
    }

    /// Writes the mark of the starting store. `unclean` are the peers of `seeds` that take no part
    /// in consensus. The other unclean peers are the only voters of their regions, and serve the
    /// remaining data.
    pub fn begin(
        self,
        config: &Config,
        log: &RaftLog,
        (seeds, tombstones): (&[PeerSeed], &BTreeMap<RegionId, PeerId>),
        unclean: BTreeMap<RegionId, PeerId>,
        is_alone: bool,
    ) -> io::Result<Unsynced> {
        let Found { mark, boot } = self;
        let acknowledges_unsynced = config.fsync != Fsync::Always;
        let next = mark.started(acknowledges_unsynced.then_some(&boot), unclean.clone(), tombstones);
        if next != mark {
            write(&config.dir, &next)?;
        }
        let alone = seeds.iter().filter(|seed| seed.unclean == Unclean::Crash);
        let alone = alone.map(|seed| seed.descriptor.id).filter(|region| !unclean.contains_key(region));
        let mut incomplete: Vec<Incomplete> = alone.map(|region| Incomplete::of(log, region)).collect();
        for Incomplete { region, last, stamp_ms } in &incomplete {
            tracing::warn!(
                region,
                last,
                stamp_ms,
                "the machine crashed while this store acknowledged before it synced: writes after this index and \
                 time may be missing, and no other store has them"
            );
        }
        let is_damaged = |region: &RegionId| next.damaged.contains_key(region);
        let damaged = unclean.keys().filter(|region| is_alone && is_damaged(region));
        for found in damaged.map(|region| Incomplete::of(log, *region)) {
            let Incomplete { region, last, stamp_ms } = found;
            tracing::error!(
                region,
                last,
                stamp_ms,
                "the log is damaged: writes after this index and time are missing, and no other store has them. \
                 READONLY connections read what is left. Writes wait for `steelyard ctl accept-loss`; see \
                 OPERATING.md (Damage in the log)"
            );
            incomplete.push(found);
        }
        let end = |region: &RegionId| (*region, log.bounds(*region).map_or(0, |bounds| bounds.last));
        let ends = unclean.keys().map(end).collect();
        let crashed: BTreeMap<RegionId, PeerId> =
            unclean.iter().filter(|(region, _)| !is_damaged(region)).map(|(&of, &peer)| (of, peer)).collect();
        if !crashed.is_empty() {
            let (peers, regions) = (crashed.len(), first_of(&crashed));
            tracing::warn!(
                peers,
                regions,
                "the machine crashed while this store acknowledged before it synced: its peers take no part until \
                 their regions' leaders have replaced them"
            );
        }
        let damaged: BTreeMap<RegionId, PeerId> = unclean
            .iter()
            .filter(|(region, _)| is_damaged(region))
            .map(|(&region, &peer)| (region, peer))
            .collect();
        if !damaged.is_empty() {
            let (peers, regions) = (damaged.len(), first_of(&damaged));
            tracing::warn!(
                peers,
                regions,
                "the log was found damaged: these peers take no part until their regions' leaders have replaced them"
            );
        }
        let absent: BTreeMap<RegionId, PeerId> = next
            .unclean
            .iter()
            .filter(|(region, _)| !unclean.contains_key(region))
            .map(|(&region, &peer)| (region, peer))
            .collect();
        Ok(Unsynced {
            dir: config.dir.clone(),
            boot,
            acknowledges_unsynced,
            mark: Mutex::new(next),
            incomplete,
            unclean: ArcSwap::from_pointee(unclean),
            absent,
            found: Mutex::default(),
            found_running: Mutex::default(),
            ends,
            started: Instant::now(),
            said_at: Mutex::default(),
        })
    }
}

/// Damage that was found at runtime.
#[derive(Debug)]
pub struct Damage {
    pub region: RegionId,
    pub peer: PeerId,
    pub first: LogIndex,
    pub reason: String,
}

/// Logs the damage that this start found.
fn say_damages(damages: &Damages) {
    for (region, place) in &damages.harmless {
        tracing::warn!(
            region,
            place,
            "entries in the log are damaged. The rows hold all of them, so nothing is lost. Check the device"
        );
    }
    for (region, Damaged { peer, first, place }) in &damages.unclean {
        tracing::error!(
            region,
            peer,
            first,
            place,
            "the log is damaged: what this peer acknowledged from this index on may be missing. It takes no part \
             until the region's leader has replaced it. Check the device; see OPERATING.md (Damage in the log)"
        );
    }
    for (region, place) in &damages.barred {
        tracing::error!(
            region,
            place,
            "the log is damaged: which peer of the region this store had is unknown. The store takes no peer of \
             this region any more. Replace the store; see OPERATING.md (Damage in the log)"
        );
    }
}

impl Unsynced {
    /// Creates the state of a store that lost nothing.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn none(dir: &Path) -> Unsynced {
        Unsynced {
            dir: dir.to_path_buf(),
            boot: String::new(),
            acknowledges_unsynced: false,
            mark: Mutex::default(),
            incomplete: Vec::new(),
            unclean: ArcSwap::default(),
            absent: BTreeMap::new(),
            found: Mutex::default(),
            found_running: Mutex::default(),
            ends: BTreeMap::new(),
            started: Instant::now(),
            said_at: Mutex::default(),
        }
    }

    /// Returns the peers that take no part, by region.
    pub fn unclean(&self) -> BTreeMap<RegionId, PeerId> {
        let mut unclean = self.absent.clone();
        unclean.extend(self.unclean.load().iter().map(|(&region, &peer)| (region, peer)));
        unclean
    }

    /// Returns the peers that damage to the log has made unclean, by region.
    pub fn damaged(&self) -> BTreeMap<RegionId, Damaged> {
        let unclean = self.unclean();
        let mark = self.mark.lock();
        let is_silent = |(region, of): &(&RegionId, &Damaged)| unclean.get(region) == Some(&of.peer);
        mark.damaged.iter().filter(is_silent).map(|(&region, of)| (region, of.clone())).collect()
    }

    /// Adds damage that was found at runtime; see [`Unsynced::record_found`].
    pub fn report(&self, damage: Damage) {
        self.found.lock().push(damage);
    }

    /// Records durably that the peers with reported damage are unclean, and returns their regions.
    pub fn record_found(&self) -> io::Result<Vec<RegionId>> {
        let found = std::mem::take(&mut *self.found.lock());
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let of = |damage: &Damage| {
            let Damage { region, peer, first, reason } = damage;
            (*region, Damaged { peer: *peer, first: *first, place: reason.clone() })
        };
        let mut mark = self.mark.lock();
        let next = mark.noting(&found.iter().map(of).collect());
        write(&self.dir, &next)?;
        *mark = next;
        drop(mark);
        for Damage { region, peer, first, reason } in &found {
            tracing::error!(
                region,
                peer,
                first,
                reason,
                "entries in the log are damaged that are not executed yet. The peer hands over its lead and takes \
                 no part until the region's leader has replaced it. Check the device; see OPERATING.md (Damage in \
                 the log)"
            );
        }
        let regions: Vec<RegionId> = found.iter().map(|damage| damage.region).collect();
        self.found_running.lock().extend(&regions);
        Ok(regions)
    }

    /// Returns the peers that others should replace, by region.
    pub fn reported(&self) -> BTreeMap<RegionId, PeerId> {
        let unclean = self.unclean();
        self.mark.lock().reported(unclean)
    }

    pub fn incomplete(&self) -> &[Incomplete] {
        &self.incomplete
    }

    /// Returns the numbers of unclean peers, of incomplete regions and of accepted losses.
    pub fn counts(&self) -> [usize; 3] {
        [self.unclean().len(), self.incomplete.len(), self.accepted()]
    }

    /// Returns true if the store acknowledges before it syncs.
    pub fn acknowledges_unsynced(&self) -> bool {
        self.acknowledges_unsynced
    }

    /// Returns the number of losses that operators have accepted on this store.
    pub fn accepted(&self) -> usize {
        self.mark.lock().accepted.len()
    }

    /// Publishes the peers that take no part in consensus. The worker calls this.
    pub fn publish(&self, unclean: BTreeMap<RegionId, PeerId>) {
        if **self.unclean.load() != unclean {
            let left = unclean.len();
            tracing::info!(left, "peers that take no part were replaced, or their loss was accepted");
            self.unclean.store(unclean.into());
        }
    }

    /// Accepts the loss of the entries that the unclean peers of the `wanted` regions may have
    /// lost. The mark records the acceptance durably before these peers take part again.
    pub fn accept(
        &self,
        wanted: impl Fn(RegionId) -> bool,
        worker: &WorkerSender,
        at_ms: UnixMillis,
    ) -> Result<Vec<Taken>, NotTaken> {
        let running = self.found_running.lock().clone();
        let mut mark = self.mark.lock();
        let present = self.unclean.load();
        if present.keys().any(|region| wanted(*region) && running.contains(region)) {
            return Err(NotTaken::RestartFirst);
        }
        let mut next = mark.clone();
        let mut taken = Vec::new();
        // The worker publishes an acceptance later than the mark records it.
        let waits = |region: &RegionId, peer: &PeerId| mark.unclean.get(region) == Some(peer);
        for (&region, &peer) in
            present.iter().filter(|(region, peer)| wanted(**region) && waits(region, peer))
        {
            let last = self.ends.get(&region).copied().unwrap_or(0);
            next.accept(Accepted { region, peer, last, at_ms });
            taken.push(Taken { region, peer, last });
        }
        if taken.is_empty() {
            return Err(NotTaken::Nothing);
        }
        write(&self.dir, &next).map_err(NotTaken::Unwritten)?;
        *mark = next;
        for Taken { region, peer, last } in &taken {
            tracing::warn!(
                region,
                peer,
                last,
                "an operator accepted the loss of what this peer may have forgotten: it takes part again"
            );
            let _ = worker.raft(Input::AcceptLoss { region: *region });
        }
        Ok(taken)
    }

    /// Records that an operator accepted the loss of a peer's rows.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn record_accepted(&self, accepted: Accepted) -> io::Result<()> {
        let mut mark = self.mark.lock();
        let mut next = mark.clone();
        next.record(accepted);
        write(&self.dir, &next)?;
        *mark = next;
        Ok(())
    }

    /// Logs once a minute which peers wait, and the operator's next step. `is_led` returns true if
    /// a region has a leader on another store.
    pub fn look(&self, is_led: impl Fn(RegionId) -> bool) {
        let unclean = self.unclean();
        let mut said_at = self.said_at.lock();
        let now = Instant::now();
        if unclean.is_empty()
            || now.duration_since(self.started) < PATIENCE
            || said_at.is_some_and(|at| now.duration_since(at) < REPEAT)
        {
            return;
        }
        *said_at = Some(now);
        drop(said_at);
        let waiting: BTreeMap<RegionId, PeerId> = unclean
            .iter()
            .filter(|(region, _)| !is_led(**region))
            .map(|(&region, &peer)| (region, peer))
            .collect();
        if waiting.is_empty() {
            let (peers, regions) = (unclean.len(), first_of(&unclean));
            return tracing::warn!(
                peers,
                regions,
                "peers may have forgotten writes, by a crash of the machine or damage to the log, and have not been \
                 replaced yet"
            );
        }
        let (peers, regions) = (waiting.len(), first_of(&waiting));
        tracing::error!(
            peers,
            regions,
            "regions have no leader, and this store's peers may not vote: they may have forgotten writes when the \
             machine crashed or the log was damaged. Start all other stores of these regions. If that does not \
             help, see OPERATING.md (Crashed machines, Damage in the log) before `steelyard ctl accept-loss`"
        );
    }

    /// Syncs the log and marks the directory as synced. Must be called after the log's threads have
    /// ended, because the store must not acknowledge anything afterwards.
    pub fn stopped(&self, log: &RaftLog) {
        if !self.acknowledges_unsynced {
            return;
        }
        if let Err(error) = log.sync() {
            return tracing::warn!(%error, "the Raft log could not be synced: a crash of the machine may lose writes");
        }
        let mark = self.mark.lock();
        if let Err(error) = write(&self.dir, &mark.stopped()) {
            tracing::warn!(%error, boot = self.boot, "the directory could not be marked as synced");
        }
    }
}

impl Incomplete {
    fn of(log: &RaftLog, region: RegionId) -> Incomplete {
        let last = log.bounds(region).map_or(0, |bounds| bounds.last);
        let first =
            log.bounds(region).map_or(1, |bounds| bounds.first).max(last.saturating_sub(STAMPED_ENTRIES));
        let entries = log.entries(region, first, last + 1, STAMPED_BYTES).unwrap_or_default();
        let stamp = |entry: &replica::eraftpb::Entry| {
            let is_command = entry.context.is_empty() && !entry.data.is_empty();
            command::entry::Items::decode(entry.data.clone())
                .ok()
                .filter(|_| is_command)
                .map(|items| items.stamp_ms)
        };
        Incomplete { region, last, stamp_ms: entries.iter().rev().find_map(stamp) }
    }
}

/// Returns the first eight regions as text, for a line of the log.
fn first_of(peers: &BTreeMap<RegionId, PeerId>) -> String {
    let mut text: Vec<String> = peers.keys().take(8).map(RegionId::to_string).collect();
    if peers.len() > text.len() {
        text.push("...".to_owned());
    }
    text.join(",")
}

fn read(dir: &Path) -> io::Result<Mark> {
    match atrest::read(&dir.join(FILE)) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{FILE}: {error}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Mark::default()),
        Err(error) => Err(error),
    }
}

fn write(dir: &Path, mark: &Mark) -> io::Result<()> {
    atrest::write(&dir.join(FILE), serde_json::to_string_pretty(mark).expect("plain data"))
}

/// Returns the present boot of the machine. If the machine has no such file, every start counts as
/// another boot.
fn boot_of(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file).map(|text| text.trim().to_owned()) {
        Ok(boot) if !boot.is_empty() => Ok(boot),
        _ => {
            tracing::warn!(file = %file.display(), "the machine does not report its boot: every start counts as another");
            Ok(format!("start {:016x}", keys::draw_number()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use types::RegionDescriptor;

    use super::*;

    fn seeds() -> Vec<PeerSeed> {
        let descriptor = RegionDescriptor::founded(1, None, &[0, 1, 2]);
        vec![PeerSeed { descriptor, applied: None, parent: None, unclean: Unclean::No }]
    }

    /// Starts a store in `config.dir` on a machine that runs under `boot`. Returns true in the last
    /// field if its peer was unclean.
    fn start(config: &mut Config, boot: &str) -> (Unsynced, RaftLog, bool) {
        let file = config.dir.join("boot");
        fs::write(&file, format!("{boot}\n")).unwrap();
        config.boot_id_file = file;
        let log = RaftLog::open(&config.dir.join("log"), &raftlog::Options::default()).unwrap();
        let mut seeds = seeds();
        let found = Found::read(config).unwrap();
        found.judge(config, &mut seeds);
        let unclean = seeds[0].unclean != Unclean::No;
        let peers = unclean.then_some((1, 1)).into_iter().collect();
        let of_log = (&seeds[..], &BTreeMap::new());
        (found.begin(config, &log, of_log, peers, false).unwrap(), log, unclean)
    }

    #[test]
    fn only_a_crash_of_the_machine_under_unsynced_acknowledgements_makes_peers_unclean() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::single(dir.path().to_path_buf(), 6379);
        drop(start(&mut config, "one"));
        assert!(!dir.path().join(FILE).exists(), "a store that always syncs keeps no mark");
        config.fsync = Fsync::EverySec;
        assert!(!start(&mut config, "two").2, "it was synced under the boot before");
        assert!(!start(&mut config, "two").2, "only the process crashed");
        let (unsynced, log, unclean) = start(&mut config, "three");
        assert!(unclean, "the machine crashed");
        assert_eq!(unsynced.unclean(), BTreeMap::from([(1, 1)]));
        unsynced.stopped(&log);
        drop((unsynced, log));
        assert!(start(&mut config, "four").2, "the peer was not replaced");
    }

    #[test]
    fn a_planned_stop_leaves_nothing_unsynced() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::single(dir.path().to_path_buf(), 6379);
        config.fsync = Fsync::No;
        let (unsynced, log, _) = start(&mut config, "one");
        unsynced.stopped(&log);
        drop((unsynced, log));
        assert!(!start(&mut config, "two").2);
    }

    #[test]
    fn a_machine_that_does_not_tell_its_boot_counts_every_start_as_another() {
        let nowhere = Path::new("/nowhere/boot_id");
        assert_ne!(boot_of(nowhere).unwrap(), boot_of(nowhere).unwrap());
    }
}
