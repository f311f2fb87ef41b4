//! What every store tells every other, several times a second.
//!
//! ```text
//! version u8 = 1
//! store, incarnation, seq
//! kv_bytes_per_s f64, ops_per_s f64                     capability
//! capacity_bytes, used_bytes, load_ops_per_s f64, p99_us
//! count, then for each region led, ascending:
//!   region, conf_version, version, term, commit, applied, bytes, keys
//!   write_rate f64, read_rate f64, truncate_to
//!   count, then for each peer, ascending: store, matched
//! ```
//!
//! Integers are unsigned LEB128, f64 are eight bytes, big-endian, finite and not negative. There is one
//! encoding of a heartbeat up to redundant LEB128 bytes, and no byte may follow it.

use bytes::Bytes;
use placement::Capability;
use types::{LogIndex, RegionEpoch, RegionId, StoreId, Term};

use crate::wire::{Reader, Writer};

const VERSION: u8 = 1;

/// The smallest encodings of list items.
const LEAD_BYTES_MIN: usize = 26;
const PEER_BYTES_MIN: usize = 2;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreHeartbeat {
    pub store: StoreId,
    /// Rises with every start of the process (its start time in Unix ms will do).
    pub incarnation: u64,
    /// Rises with every heartbeat of an incarnation.
    pub seq: u64,
    pub capability: Capability,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// Commands answered per second lately, and their 99th percentile.
    pub load_ops_per_s: f64,
    pub p99_us: u64,
    /// The regions that it leads, ascending, none twice.
    pub leads: Vec<LeadReport>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeadReport {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    pub term: Term,
    pub commit: LogIndex,
    pub applied: LogIndex,
    pub bytes: u64,
    pub keys: u64,
    /// Operations per second.
    pub write_rate: f64,
    pub read_rate: f64,
    /// Every peer's log holds everything through this index.
    pub truncate_to: LogIndex,
    /// How far each peer is known to hold the log, ascending, none twice.
    pub peers: Vec<PeerProgress>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerProgress {
    pub store: StoreId,
    pub matched: LogIndex,
}

/// Bytes that are no heartbeat of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    #[error("a heartbeat is cut short")]
    Cut,
    #[error("a heartbeat has the unknown version {0}")]
    UnknownVersion(u8),
    #[error("a malformed heartbeat: {0}")]
    Malformed(&'static str),
}

impl StoreHeartbeat {
    pub fn lead(&self, region: RegionId) -> Option<&LeadReport> {
        let at = self.leads.binary_search_by_key(&region, |lead| lead.region).ok()?;
        Some(&self.leads[at])
    }

    /// # Panics
    /// If regions or peers are out of order.
    pub fn encode(&self) -> Bytes {
        assert!(is_ascending(self.leads.iter().map(|lead| lead.region)), "regions ascend");
        let mut out = Writer::default();
        out.u8(VERSION);
        out.uint(self.store);
        out.uint(self.incarnation);
        out.uint(self.seq);
        out.float(rate(self.capability.kv_bytes_per_s));
        out.float(rate(self.capability.ops_per_s));
        out.uint(self.capacity_bytes);
        out.uint(self.used_bytes);
        out.float(rate(self.load_ops_per_s));
        out.uint(self.p99_us);
        out.uint(self.leads.len() as u64);
        for lead in &self.leads {
            lead.encode(&mut out);
        }
        out.finish()
    }

    pub fn decode(bytes: &[u8]) -> Result<StoreHeartbeat, HeartbeatError> {
        let mut from = Reader(bytes);
        match from.u8()? {
            VERSION => {}
            version => return Err(HeartbeatError::UnknownVersion(version)),
        }
        let mut heartbeat = StoreHeartbeat {
            store: from.uint()?,
            incarnation: from.uint()?,
            seq: from.uint()?,
            capability: Capability { kv_bytes_per_s: from.float()?, ops_per_s: from.float()? },
            capacity_bytes: from.uint()?,
            used_bytes: from.uint()?,
            load_ops_per_s: from.float()?,
            p99_us: from.uint()?,
            leads: Vec::new(),
        };
        let leads = from.count(LEAD_BYTES_MIN)?;
        heartbeat.leads.reserve_exact(leads);
        for _ in 0..leads {
            heartbeat.leads.push(LeadReport::decode(&mut from)?);
        }
        if !is_ascending(heartbeat.leads.iter().map(|lead| lead.region)) {
            return Err(HeartbeatError::Malformed("regions are out of order"));
        }
        from.end()?;
        Ok(heartbeat)
    }
}

impl LeadReport {
    /// Log entries that the peer on `store` is behind what is committed; `None` when it was not reported.
    pub fn lag_of(&self, store: StoreId) -> Option<u64> {
        let at = self.peers.binary_search_by_key(&store, |peer| peer.store).ok()?;
        Some(self.commit.saturating_sub(self.peers[at].matched))
    }

    fn encode(&self, out: &mut Writer) {
        assert!(is_ascending(self.peers.iter().map(|peer| peer.store)), "peers ascend");
        out.uint(self.region);
        out.uint(self.epoch.conf_version);
        out.uint(self.epoch.version);
        out.uint(self.term);
        out.uint(self.commit);
        out.uint(self.applied);
        out.uint(self.bytes);
        out.uint(self.keys);
        out.float(rate(self.write_rate));
        out.float(rate(self.read_rate));
        out.uint(self.truncate_to);
        out.uint(self.peers.len() as u64);
        for peer in &self.peers {
            out.uint(peer.store);
            out.uint(peer.matched);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<LeadReport, HeartbeatError> {
        let mut lead = LeadReport {
            region: from.uint()?,
            epoch: RegionEpoch { conf_version: from.uint()?, version: from.uint()? },
            term: from.uint()?,
            commit: from.uint()?,
            applied: from.uint()?,
            bytes: from.uint()?,
            keys: from.uint()?,
            write_rate: from.float()?,
            read_rate: from.float()?,
            truncate_to: from.uint()?,
            peers: Vec::new(),
        };
        let peers = from.count(PEER_BYTES_MIN)?;
        lead.peers.reserve_exact(peers);
        for _ in 0..peers {
            lead.peers.push(PeerProgress { store: from.uint()?, matched: from.uint()? });
        }
        if !is_ascending(lead.peers.iter().map(|peer| peer.store)) {
            return Err(HeartbeatError::Malformed("peers are out of order"));
        }
        Ok(lead)
    }
}

/// What cannot be a rate is sent as none: a division by a zero interval must not silence a store.
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
