//! The heartbeat that every store sends to every other store several times a second.
//!
//! ```text
//! format u8 = 11, or 10 in version 1 of the cluster
//! store, cluster_id u64, members_version
//! incarnation, seq, since, wall_ms
//! kv_bytes_per_s f64, ops_per_s f64                     capability, as it counts now
//! io_bytes_per_s f64, correction f64, sync_ns            the measurement behind it
//! kv_spread f64, ops_spread f64, sync_spread f64        uncertainty: 1 configured, 0 unknown
//! capacity_bytes, used_bytes, load_ops_per_s f64, p99_us
//! snapshots_in, snapshots_out, unapplied_bytes, flags u8 (1 stopping, 2 out of room, 4 clock off,
//!   8 hanging, 16 has a session with ZooKeeper: from version 3 of the cluster on)
//! cpu_cores f64, cpu_busy f64, cpu_own f64, machine     all 0: not known; busy is at most 1
//! host, device                                          fingerprints; 0: not known
//! told u8 (1: configured), turn u8 (0 idle, 1 waits, 2 sits), number, ms
//! count, then for each turn granted, ascending: store, number
//! count, then for each region led, ascending:
//!   length, descriptor (its own encoding)
//!   term, commit, applied, bytes, sized u8 (0 or 1), keys
//!   write_rate f64, read_rate f64, miss_rate f64, write_bytes_rate f64, heat f64
//!   truncate_to
//!   count, then for each peer, ascending: store, matched, flags u8 (1 active, 2 needs a snapshot)
//! count, then for each region led no more, ascending: region
//! count, then for each region read here as a follower, ascending: region, heat f64
//! count, then for each region checked here lately, ascending:
//!   region, number, index, u8 (0 skipped, 1 unreadable, 2 rows), with 2: checksum, rows, bytes
//! count, then for each unclean peer, ascending: region, peer
//! count, then for each region quarantined here, ascending (not in format 10):
//!   region, index, cause u8 (0 entry, 1 change, 2 rows), read_only u8 (0 or 1), what, error
//! ```
//!
//! Integers are unsigned LEB128, f64 are eight bytes, big-endian, finite and not negative. There is
//! one encoding of a heartbeat up to redundant LEB128 bytes, and no byte may follow it.
//!
//! A heartbeat is *full* if `since` is its own `seq`. Otherwise it is a delta: it carries
//! everything that changed since the full heartbeat with the number `since`, not only since the
//! previous one. So a lost delta has no effect once the next one arrives. A lost full heartbeat
//! leaves gaps until the next full one. Idle regions appear only in full heartbeats, so ten
//! thousand of them cost little. [`DeltaTracker`] tracks the changes. Only full heartbeats carry
//! the heat of followers, because heat decays over minutes.

use bytes::Bytes;
use placement::{Capability, Cpu, Spread};
use types::{
    LogIndex, PeerId, RegionDescriptor, RegionEpoch, RegionId, StoreId, Term, UnixMillis, Version,
    SECOND_VERSION, THIRD_VERSION,
};

use crate::check::REPORT_BYTES_MIN;
use crate::quarantine;
use crate::wire::{Reader, Writer};
use crate::{CheckReport, Place, Quarantine, Turn, TurnGrant, TurnState, WireError};

mod book;

pub use book::{DeltaTracker, Leads};

const FORMAT: u8 = 11;
const FORMAT_WITHOUT_QUARANTINES: u8 = 10;

/// Window of the decaying averages of rates, in seconds. A leader starts them at its election, or
/// at its first answer as a follower.
pub const RATE_WINDOW_S: f64 = 5.0;
/// Window of the decaying average of heat, in seconds.
pub const HEAT_WINDOW_S: f64 = 600.0;

/// Window of the decaying average of a store's CPU load, in seconds. It is long enough that a burst
/// of a few seconds moves no leaders.
pub const CPU_WINDOW_S: f64 = 10.0;

/// Minimum size of an encoded list item, in bytes. A descriptor without peers has 60 bytes and its
/// length.
const LEAD_BYTES_MIN: usize = 61 + 6 + 5 * 8 + 2;
const PEER_BYTES_MIN: usize = 3;
const FOLLOWED_BYTES_MIN: usize = 1 + 8;
const GRANT_BYTES_MIN: usize = 2;

const UNCLEAN_BYTES_MIN: usize = 2;

/// Maximum number of unclean peers in a heartbeat. Later heartbeats name the remaining ones, once
/// these are replaced.
pub const UNCLEAN_MAX: usize = 256;

const STOPPING: u8 = 1;
const OUT_OF_ROOM: u8 = 2;
const CLOCK_OFF: u8 = 4;
const HANGING: u8 = 8;
const HAS_SESSION: u8 = 16;

const PEER_ACTIVE: u8 = 1;
const PEER_NEEDS_SNAPSHOT: u8 = 2;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreHeartbeat {
    pub store: StoreId,
    /// The cluster's id; 0 if it is not known yet.
    pub cluster_id: u64,
    /// The version of the store's list of members.
    pub members_version: u64,
    /// A number that increases with every start of the process, for example its start time in Unix
    /// ms.
    pub incarnation: u64,
    /// A number that increases with every heartbeat of an incarnation.
    pub seq: u64,
    /// The store's wall clock when the heartbeat is sent, in Unix ms. It may be wrong.
    pub wall_ms: UnixMillis,
    /// The configured or measured capability, multiplied by the correction.
    pub capability: Capability,
    /// The measured device speed; 0 if it was not measured.
    pub io_bytes_per_s: f64,
    /// The factor that lowers the capability when the device is slower than measured; otherwise 1.
    pub correction: f64,
    /// The time in nanoseconds that a write waits for a sync of the device, after the correction; 0
    /// if it is not known.
    pub sync_ns: u64,
    /// The uncertainty of the capability and of the sync time.
    pub spread: Spread,
    /// The live user bytes that the store may hold, and those that it holds.
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// Recent rate of answered commands per second, and the 99th percentile of their latency.
    pub load_ops_per_s: f64,
    pub p99_us: u64,
    /// Snapshots that the store is receiving and sending.
    pub snapshots_in: u64,
    pub snapshots_out: u64,
    /// Bytes of entries that are committed and not yet applied here.
    pub unapplied_bytes: u64,
    /// True if the store is transferring its leaders before it stops. It accepts no new peers, and
    /// its own peers are expected to return.
    pub stopping: bool,
    /// True if the device has only its reserve left, so the store proposes no entries that add
    /// data.
    pub out_of_room: bool,
    /// True if the store's wall clock is too far from the median of the clocks in recent heartbeats
    /// ([`Clocks`](crate::Clocks)).
    pub clock_off: bool,
    /// True if the store's device does not answer. The store transfers its leaders to other stores,
    /// and neither leaders nor peers may move to it.
    pub hanging: bool,
    /// True if the store has a session with ZooKeeper. Not sent before version 3 of the cluster.
    pub has_session: bool,
    /// The CPU of its machine; `None` if unknown.
    pub cpu: Option<Cpu>,
    pub place: Place,
    /// True if the capability was configured and not measured.
    pub told: bool,
    /// The state of the store's turn to measure its device.
    pub turn: Turn,
    /// Turns that the leader of the meta region has granted and that no store has taken yet,
    /// ascending by store. Empty for other stores.
    pub grants: Vec<TurnGrant>,
    pub leads: Leads,
    /// The heat of reads that the store answered as a follower to `READONLY` clients, by region,
    /// ascending, without duplicates. Only in full heartbeats.
    pub followed: Vec<(RegionId, f64)>,
    /// Recent checksums of the store's peers, by region, ascending, without duplicates.
    pub checks: Vec<CheckReport>,
    /// The regions and numbers of the store's peers that may have lost entries that they
    /// acknowledged, ascending by region, without duplicates, at most [`UNCLEAN_MAX`].
    pub unclean: Vec<(RegionId, PeerId)>,
    /// The store's quarantined peers, by region, ascending, without duplicates. Only the first few
    /// have texts.
    pub quarantined: Vec<(RegionId, Quarantine)>,
}

/// A region's state, as its leader reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeadReport {
    pub descriptor: RegionDescriptor,
    pub term: Term,
    pub commit: LogIndex,
    pub applied: LogIndex,
    /// Live user bytes of one copy, as last measured.
    pub bytes: u64,
    /// True if `bytes` was measured since the region got its present slots. Until then, a region
    /// that was split reports its size before the split, and its new half reports 0.
    pub sized: bool,
    pub keys: u64,
    /// Operations per second.
    pub write_rate: f64,
    pub read_rate: f64,
    /// Reads per second that RAM could not answer.
    pub miss_rate: f64,
    /// Bytes of keys and values per second.
    pub write_bytes_rate: f64,
    /// Operations per second, averaged over [`HEAT_WINDOW_S`].
    pub heat: f64,
    /// The index through which the log may be truncated. Every peer holds all entries through it,
    /// or is too far behind to wait for.
    pub truncate_to: LogIndex,
    /// The replication progress of each peer, ascending by store, without duplicates.
    pub peers: Vec<PeerProgress>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerProgress {
    pub store: StoreId,
    pub matched: LogIndex,
    /// True if the peer has answered recently.
    pub active: bool,
    /// True if the log no longer holds the entries that the peer lacks.
    pub needs_snapshot: bool,
}

impl StoreHeartbeat {
    pub fn is_full(&self) -> bool {
        self.leads.since == self.seq
    }

    pub fn lead(&self, region: RegionId) -> Option<&LeadReport> {
        let leads = &self.leads.reports;
        let at = leads.binary_search_by_key(&region, |lead| lead.region()).ok()?;
        Some(&leads[at])
    }

    /// Encodes the heartbeat in the cluster's `version`. Version 1 omits the quarantined peers.
    ///
    /// # Panics
    /// If regions or peers are out of order.
    pub fn encode(&self, version: Version) -> Bytes {
        let Leads { since, reports, gone } = &self.leads;
        assert!(is_ascending(reports.iter().map(LeadReport::region)), "regions ascend");
        assert!(is_ascending(gone.iter().copied()), "regions ascend");
        assert!(is_ascending(self.followed.iter().map(|(region, _)| *region)), "regions ascend");
        assert!(
            self.followed.is_empty() || self.is_full(),
            "only a full heartbeat has the heat of followers"
        );
        assert!(is_ascending(self.checks.iter().map(|check| check.region)), "regions ascend");
        assert!(is_ascending(self.unclean.iter().map(|(region, _)| *region)), "regions ascend");
        assert!(self.unclean.len() <= UNCLEAN_MAX, "later heartbeats name the others");
        assert!(is_ascending(self.quarantined.iter().map(|(region, _)| *region)), "regions ascend");
        let mut out = Writer::default();
        let names_quarantines = version >= SECOND_VERSION;
        out.u8(if names_quarantines { FORMAT } else { FORMAT_WITHOUT_QUARANTINES });
        for number in [self.store, self.cluster_id, self.members_version] {
            out.uint(number);
        }
        for number in [self.incarnation, self.seq, *since, self.wall_ms] {
            out.uint(number);
        }
        out.float(rate(self.capability.kv_bytes_per_s));
        out.float(rate(self.capability.ops_per_s));
        out.float(rate(self.io_bytes_per_s));
        out.float(rate(self.correction));
        out.uint(self.sync_ns);
        for spread in [self.spread.kv_bytes_per_s, self.spread.ops_per_s, self.spread.sync] {
            out.float(rate(spread));
        }
        out.uint(self.capacity_bytes);
        out.uint(self.used_bytes);
        out.float(rate(self.load_ops_per_s));
        for number in [self.p99_us, self.snapshots_in, self.snapshots_out, self.unapplied_bytes] {
            out.uint(number);
        }
        let flags = [
            (self.stopping, STOPPING),
            (self.out_of_room, OUT_OF_ROOM),
            (self.clock_off, CLOCK_OFF),
            (self.hanging, HANGING),
            (self.has_session && version >= THIRD_VERSION, HAS_SESSION),
        ];
        out.u8(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
        let Cpu { cores, busy, own, machine } =
            self.cpu.filter(|cpu| rate(cpu.cores) > 0.0).unwrap_or_default();
        for value in [cores, busy.min(1.0), own] {
            out.float(rate(value));
        }
        out.uint(machine);
        self.encode_turn(&mut out);
        out.uint(reports.len() as u64);
        for lead in reports {
            lead.encode(&mut out);
        }
        out.uint(gone.len() as u64);
        for &region in gone {
            out.uint(region);
        }
        out.uint(self.followed.len() as u64);
        for &(region, heat) in &self.followed {
            out.uint(region);
            out.float(rate(heat));
        }
        out.uint(self.checks.len() as u64);
        self.checks.iter().for_each(|check| check.encode(&mut out));
        out.uint(self.unclean.len() as u64);
        for &(region, peer) in &self.unclean {
            out.uint(region);
            out.uint(peer);
        }
        if names_quarantines {
            quarantine::encode_all(&self.quarantined, &mut out);
        }
        out.finish()
    }

    pub fn decode(bytes: &[u8]) -> Result<StoreHeartbeat, WireError> {
        let mut from = Reader(bytes);
        let format = from.u8()?;
        if !matches!(format, FORMAT | FORMAT_WITHOUT_QUARANTINES) {
            return Err(WireError::UnknownVersion(format));
        }
        let mut heartbeat = StoreHeartbeat {
            store: from.uint()?,
            cluster_id: from.uint()?,
            members_version: from.uint()?,
            incarnation: from.uint()?,
            seq: from.uint()?,
            leads: Leads { since: from.uint()?, ..Leads::default() },
            wall_ms: from.uint()?,
            capability: Capability { kv_bytes_per_s: from.float()?, ops_per_s: from.float()? },
            io_bytes_per_s: from.float()?,
            correction: from.float()?,
            sync_ns: from.uint()?,
            spread: Spread { kv_bytes_per_s: from.float()?, ops_per_s: from.float()?, sync: from.float()? },
            capacity_bytes: from.uint()?,
            used_bytes: from.uint()?,
            load_ops_per_s: from.float()?,
            p99_us: from.uint()?,
            snapshots_in: from.uint()?,
            snapshots_out: from.uint()?,
            unapplied_bytes: from.uint()?,
            ..StoreHeartbeat::default()
        };
        let flags = from.u8()?;
        if flags & !(STOPPING | OUT_OF_ROOM | CLOCK_OFF | HANGING | HAS_SESSION) != 0 {
            return Err(WireError::Malformed("a store is in a state that nobody knows"));
        }
        (heartbeat.stopping, heartbeat.out_of_room) = (flags & STOPPING != 0, flags & OUT_OF_ROOM != 0);
        (heartbeat.clock_off, heartbeat.hanging) = (flags & CLOCK_OFF != 0, flags & HANGING != 0);
        heartbeat.has_session = flags & HAS_SESSION != 0;
        let cpu =
            Cpu { cores: from.float()?, busy: from.float()?, own: from.float()?, machine: from.uint()? };
        heartbeat.cpu = (cpu != Cpu::default()).then_some(cpu);
        if cpu.busy > 1.0 || (heartbeat.cpu.is_some() && cpu.cores <= 0.0) {
            return Err(WireError::Malformed("a CPU has no cores, or is more than busy"));
        }
        heartbeat.decode_turn(&mut from)?;
        let Leads { since, reports, gone } = &mut heartbeat.leads;
        if *since > heartbeat.seq {
            return Err(WireError::Malformed("it builds on a later heartbeat"));
        }
        for _ in 0..from.count(LEAD_BYTES_MIN)? {
            reports.push(LeadReport::decode(&mut from)?);
        }
        for _ in 0..from.count(1)? {
            gone.push(from.uint()?);
        }
        let regions = reports.iter().map(LeadReport::region);
        if !is_ascending(regions) || !is_ascending(gone.iter().copied()) {
            return Err(WireError::Malformed("regions are out of order"));
        }
        for _ in 0..from.count(FOLLOWED_BYTES_MIN)? {
            heartbeat.followed.push((from.uint()?, from.float()?));
        }
        if !is_ascending(heartbeat.followed.iter().map(|(region, _)| *region)) {
            return Err(WireError::Malformed("regions are out of order"));
        }
        if !heartbeat.followed.is_empty() && !heartbeat.is_full() {
            return Err(WireError::Malformed("only a full heartbeat has the heat of followers"));
        }
        for _ in 0..from.count(REPORT_BYTES_MIN)? {
            heartbeat.checks.push(CheckReport::decode(&mut from)?);
        }
        if !is_ascending(heartbeat.checks.iter().map(|check| check.region)) {
            return Err(WireError::Malformed("regions are out of order"));
        }
        for _ in 0..from.count(UNCLEAN_BYTES_MIN)? {
            heartbeat.unclean.push((from.uint()?, from.uint()?));
        }
        if !is_ascending(heartbeat.unclean.iter().map(|(region, _)| *region)) {
            return Err(WireError::Malformed("regions are out of order"));
        }
        if heartbeat.unclean.len() > UNCLEAN_MAX {
            return Err(WireError::Malformed("too many unclean peers"));
        }
        if format == FORMAT {
            heartbeat.quarantined = quarantine::decode_all(&mut from)?;
        }
        from.end()?;
        Ok(heartbeat)
    }

    fn encode_turn(&self, out: &mut Writer) {
        assert!(is_ascending(self.grants.iter().map(|grant| grant.store)), "stores ascend");
        out.uint(self.place.host);
        out.uint(self.place.device);
        out.u8(self.told.into());
        out.u8(match self.turn.state {
            TurnState::Idle => 0,
            TurnState::Waits => 1,
            TurnState::Sits => 2,
        });
        out.uint(self.turn.number);
        out.uint(self.turn.millis);
        out.uint(self.grants.len() as u64);
        for grant in &self.grants {
            out.uint(grant.store);
            out.uint(grant.number);
        }
    }

    fn decode_turn(&mut self, from: &mut Reader<'_>) -> Result<(), WireError> {
        self.place = Place { host: from.uint()?, device: from.uint()? };
        self.told = flag(from, "the flag of a configured capability is not 0 or 1")?;
        let state = match from.u8()? {
            0 => TurnState::Idle,
            1 => TurnState::Waits,
            2 => TurnState::Sits,
            _ => return Err(WireError::Malformed("a turn has an unknown state")),
        };
        self.turn = Turn { state, number: from.uint()?, millis: from.uint()? };
        for _ in 0..from.count(GRANT_BYTES_MIN)? {
            self.grants.push(TurnGrant { store: from.uint()?, number: from.uint()? });
        }
        if !is_ascending(self.grants.iter().map(|grant| grant.store)) {
            return Err(WireError::Malformed("turns are out of order"));
        }
        Ok(())
    }
}

fn flag(from: &mut Reader<'_>, neither: &'static str) -> Result<bool, WireError> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Malformed(neither)),
    }
}

impl LeadReport {
    /// Returns a report that names only the region's leader.
    pub fn blank(descriptor: RegionDescriptor, term: Term) -> LeadReport {
        LeadReport {
            descriptor,
            term,
            commit: 0,
            applied: 0,
            bytes: 0,
            sized: true,
            keys: 0,
            write_rate: 0.0,
            read_rate: 0.0,
            miss_rate: 0.0,
            write_bytes_rate: 0.0,
            heat: 0.0,
            truncate_to: 0,
            peers: Vec::new(),
        }
    }

    pub fn region(&self) -> RegionId {
        self.descriptor.id
    }

    pub fn epoch(&self) -> RegionEpoch {
        self.descriptor.epoch
    }

    /// Returns the target of the merge for which the region is prepared. Such a region accepts no
    /// commands.
    pub fn merging_into(&self) -> Option<RegionId> {
        self.descriptor.merging.map(|merging| merging.into)
    }

    pub fn peer(&self, store: StoreId) -> Option<&PeerProgress> {
        let at = self.peers.binary_search_by_key(&store, |peer| peer.store).ok()?;
        Some(&self.peers[at])
    }

    /// Returns the number of committed log entries that the peer on `store` lacks. Returns `None`
    /// if the peer was not reported, has not answered recently, waits for a snapshot, or is not
    /// known to hold any entry. The time until it has the entries is then unknown. A newly added
    /// learner is such a peer. Every log begins above 0, so even for a short log the learner first
    /// needs a snapshot.
    pub fn lag_of(&self, store: StoreId) -> Option<u64> {
        let is_known = |peer: &&PeerProgress| peer.active && !peer.needs_snapshot && peer.matched > 0;
        let peer = self.peer(store).filter(is_known)?;
        Some(self.commit.saturating_sub(peer.matched))
    }

    fn encode(&self, out: &mut Writer) {
        assert!(is_ascending(self.peers.iter().map(|peer| peer.store)), "peers ascend");
        out.descriptor(&self.descriptor);
        for number in [self.term, self.commit, self.applied, self.bytes] {
            out.uint(number);
        }
        out.u8(self.sized.into());
        out.uint(self.keys);
        for value in [self.write_rate, self.read_rate, self.miss_rate, self.write_bytes_rate, self.heat] {
            out.float(rate(value));
        }
        out.uint(self.truncate_to);
        out.uint(self.peers.len() as u64);
        for peer in &self.peers {
            out.uint(peer.store);
            out.uint(peer.matched);
            out.u8(u8::from(peer.active) * PEER_ACTIVE + u8::from(peer.needs_snapshot) * PEER_NEEDS_SNAPSHOT);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<LeadReport, WireError> {
        let mut lead = LeadReport {
            descriptor: from.descriptor()?,
            term: from.uint()?,
            commit: from.uint()?,
            applied: from.uint()?,
            bytes: from.uint()?,
            sized: flag(from, "the flag of a measured size is not 0 or 1")?,
            keys: from.uint()?,
            write_rate: from.float()?,
            read_rate: from.float()?,
            miss_rate: from.float()?,
            write_bytes_rate: from.float()?,
            heat: from.float()?,
            truncate_to: from.uint()?,
            peers: Vec::new(),
        };
        for _ in 0..from.count(PEER_BYTES_MIN)? {
            let (store, matched, flags) = (from.uint()?, from.uint()?, from.u8()?);
            if flags & !(PEER_ACTIVE | PEER_NEEDS_SNAPSHOT) != 0 {
                return Err(WireError::Malformed("a peer has unknown flags"));
            }
            let active = flags & PEER_ACTIVE != 0;
            let needs_snapshot = flags & PEER_NEEDS_SNAPSHOT != 0;
            lead.peers.push(PeerProgress { store, matched, active, needs_snapshot });
        }
        if !is_ascending(lead.peers.iter().map(|peer| peer.store)) {
            return Err(WireError::Malformed("peers are out of order"));
        }
        Ok(lead)
    }
}

/// Replaces values that are not valid rates with 0, because a division by a zero interval must not
/// silence a store.
fn rate(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 {
        value
    } else {
        0.0
    }
}

fn is_ascending(mut ids: impl Iterator<Item = u64>) -> bool {
    let Some(mut last) = ids.next() else { return true };
    ids.all(|id| std::mem::replace(&mut last, id) < id)
}

#[cfg(test)]
mod tests;
