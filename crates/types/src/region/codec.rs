//! The encoding of region descriptors, which is the same in logs, rows, snapshots and messages.
//!
//! ```text
//! version u8 = 4 | region u64 | slots u8 (0: none) | first u16 | last u16
//! | conf_version u64 | version u64 | next_peer u64
//! | merging u8 (0: no) | into u64 | sealed_at u64
//! | absorbed u8 | (region u64)*
//! | recoveries u8 | (order u64 | at u64 | keeper u64 | committed u64 | last u64
//! |                  | lost u8 | (store u64)*)*
//! | peers u32
//! | (store u64 | id u64 | role u8 (0 voter, 1 learner, 2 incoming, 3 outgoing))*
//! ```
//!
//! Version 3 has no recoveries and no count of them; it is still read.
//!
//! Integers are big-endian. No bytes may follow. Epochs and the next peer's number must be below
//! 2^62, so that they can be incremented without overflow even if the sender is faulty.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    Merging, Peer, PeerChange, PeerRole, Recovery, RegionDescriptor, RegionEpoch, ABSORBED_MAX, PEERS_MAX,
    RECOVERIES_MAX,
};
use crate::{SlotRange, StoreId, SLOT_COUNT};

const VERSION: u8 = 4;
/// The version before recoveries were recorded.
const VERSION_WITHOUT_RECOVERIES: u8 = 3;
/// Bytes up to and including the number of absorbed regions.
const HEADER_BYTES: usize = 1 + 8 + 1 + 2 + 2 + 8 + 8 + 8 + 1 + 8 + 8 + 1;
const ABSORBED_BYTES: usize = 8;
/// Bytes of a recovery without its lost stores.
const RECOVERY_BYTES: usize = 5 * 8 + 1;
const COUNT_BYTES: usize = 4;
const PEER_BYTES: usize = 8 + 8 + 1;
/// The limit of decoded counters, exclusive. They are incremented by small steps from there.
const COUNTED_MAX: u64 = 1 << 62;

/// The reason why bytes are not a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid region descriptor: {0}")]
pub struct DescriptorError(&'static str);

impl RegionDescriptor {
    pub fn encode(&self) -> Bytes {
        let lists = self.absorbed.len() * ABSORBED_BYTES + self.peers.len() * PEER_BYTES;
        let mut out = BytesMut::with_capacity(HEADER_BYTES + COUNT_BYTES + lists);
        out.put_u8(VERSION);
        out.put_u64(self.id);
        let slots = self.slots.unwrap_or(SlotRange { first: 0, last: 0 });
        out.put_u8(u8::from(self.slots.is_some()));
        out.put_u16(slots.first);
        out.put_u16(slots.last);
        out.put_u64(self.epoch.conf_version);
        out.put_u64(self.epoch.version);
        out.put_u64(self.next_peer);
        let merging = self.merging.unwrap_or(Merging { into: 0, sealed_at: 0 });
        out.put_u8(u8::from(self.merging.is_some()));
        out.put_u64(merging.into);
        out.put_u64(merging.sealed_at);
        assert!(self.absorbed.len() <= ABSORBED_MAX, "older ones are left out");
        out.put_u8(self.absorbed.len() as u8);
        self.absorbed.iter().for_each(|region| out.put_u64(*region));
        assert!(self.recoveries.len() <= RECOVERIES_MAX, "older ones are left out");
        out.put_u8(self.recoveries.len() as u8);
        self.recoveries.iter().for_each(|recovery| recovery.encode(&mut out));
        out.put_u32(u32::try_from(self.peers.len()).expect("a region has few peers"));
        for peer in &self.peers {
            out.put_u64(peer.store);
            out.put_u64(peer.id);
            out.put_u8(match peer.role {
                PeerRole::Voter => 0,
                PeerRole::Learner => 1,
                PeerRole::Incoming => 2,
                PeerRole::Outgoing => 3,
            });
        }
        out.freeze()
    }

    pub fn decode(mut bytes: &[u8]) -> Result<RegionDescriptor, DescriptorError> {
        let bad = |what| Err(DescriptorError(what));
        if bytes.len() < HEADER_BYTES {
            return bad("it is truncated");
        }
        let version = bytes.get_u8();
        if !matches!(version, VERSION | VERSION_WITHOUT_RECOVERIES) {
            return bad("its version is unknown");
        }
        let id = bytes.get_u64();
        let has_slots = bytes.get_u8();
        let range = SlotRange { first: bytes.get_u16(), last: bytes.get_u16() };
        let slots = match has_slots {
            0 => None,
            1 if range.first <= range.last && range.last < SLOT_COUNT => Some(range),
            _ => return bad("its slot range is invalid"),
        };
        let epoch = RegionEpoch { conf_version: bytes.get_u64(), version: bytes.get_u64() };
        let next_peer = bytes.get_u64();
        if epoch.conf_version.max(epoch.version).max(next_peer) >= COUNTED_MAX {
            return bad("its epoch or its next peer number is too large");
        }
        let is_merging = bytes.get_u8();
        let known = Merging { into: bytes.get_u64(), sealed_at: bytes.get_u64() };
        let merging = match is_merging {
            0 if known == (Merging { into: 0, sealed_at: 0 }) => None,
            1 => Some(known),
            _ => return bad("its merge state is invalid"),
        };
        let count = usize::from(bytes.get_u8());
        if count > ABSORBED_MAX || bytes.len() < count * ABSORBED_BYTES {
            return bad("its list of absorbed regions is too long or truncated");
        }
        let absorbed = (0..count).map(|_| bytes.get_u64()).collect();
        let recoveries = match version {
            VERSION_WITHOUT_RECOVERIES => Vec::new(),
            _ => recoveries(&mut bytes).ok_or(DescriptorError("its recoveries are invalid"))?,
        };
        if bytes.len() < COUNT_BYTES {
            return bad("it is truncated");
        }
        let count = bytes.get_u32() as usize;
        if count > PEERS_MAX || bytes.len() != count * PEER_BYTES {
            return bad("it has too many peers, or its length does not match them");
        }
        let mut peers: Vec<Peer> = Vec::new();
        while bytes.has_remaining() {
            let (store, id) = (bytes.get_u64(), bytes.get_u64());
            let role = match bytes.get_u8() {
                0 => PeerRole::Voter,
                1 => PeerRole::Learner,
                2 => PeerRole::Incoming,
                3 => PeerRole::Outgoing,
                _ => return bad("the role of a peer is unknown"),
            };
            if peers.last().is_some_and(|last| last.store >= store) {
                return bad("its peers are not sorted by store");
            }
            if id == 0 || id >= next_peer || peers.iter().any(|peer| peer.id == id) {
                return bad("a peer number is out of range or used twice");
            }
            peers.push(Peer { store, id, role });
        }
        Ok(RegionDescriptor { id, slots, epoch, peers, next_peer, merging, absorbed, recoveries })
    }
}

impl Recovery {
    /// Appends the record, in the form in which a descriptor holds it.
    pub fn encode(&self, out: &mut BytesMut) {
        for number in [self.order, self.at_ms, self.keeper, self.committed, self.last] {
            out.put_u64(number);
        }
        assert!(self.lost.len() <= PEERS_MAX, "a region has few peers");
        out.put_u8(self.lost.len() as u8);
        self.lost.iter().for_each(|store| out.put_u64(*store));
    }

    /// Reads a record from the beginning of `bytes`. Returns `None` for bytes that begin with none.
    pub fn decode(bytes: &mut &[u8]) -> Option<Recovery> {
        if bytes.len() < RECOVERY_BYTES {
            return None;
        }
        let mut number = || bytes.get_u64();
        let (order, at_ms, keeper, committed, last) = (number(), number(), number(), number(), number());
        let count = usize::from(bytes.get_u8());
        if count > PEERS_MAX || bytes.len() < count * 8 {
            return None;
        }
        let lost: Vec<u64> = (0..count).map(|_| bytes.get_u64()).collect();
        let is_sorted = lost.windows(2).all(|pair| pair[0] < pair[1]);
        let is_valid = is_sorted && lost.binary_search(&keeper).is_err() && committed <= last;
        is_valid.then_some(Recovery { order, at_ms, keeper, lost, committed, last })
    }
}

impl PeerChange {
    /// Returns the code of the change, which is the same in log entries and orders.
    pub fn code(self) -> u8 {
        match self {
            PeerChange::AddLearner(_) => 1,
            PeerChange::Promote(_) => 2,
            PeerChange::Demote(_) => 3,
            PeerChange::Remove(_) => 4,
        }
    }

    /// Returns the change with this code, of the peer on `store`; `None` if the code is unknown.
    pub fn from_code(code: u8, store: StoreId) -> Option<PeerChange> {
        let known = [PeerChange::AddLearner, PeerChange::Promote, PeerChange::Demote, PeerChange::Remove];
        let changes = known.map(|change| change(store));
        changes.into_iter().find(|change| change.code() == code)
    }
}

fn recoveries(bytes: &mut &[u8]) -> Option<Vec<Recovery>> {
    let count = usize::from(bytes.try_get_u8().ok()?);
    if count > RECOVERIES_MAX {
        return None;
    }
    (0..count).map(|_| Recovery::decode(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_survives_and_no_cut_of_it_does() {
        let mut descriptor =
            RegionDescriptor::founded(7, Some(SlotRange { first: 10, last: 20 }), &[0, 5, 9]);
        for (peer, role) in
            descriptor.peers.iter_mut().zip([PeerRole::Learner, PeerRole::Incoming, PeerRole::Outgoing])
        {
            peer.role = role;
        }
        descriptor.merging = Some(Merging { into: 6, sealed_at: 90 });
        descriptor.absorbed = vec![3, 4];
        let recovery = |lost| Recovery { order: 9, at_ms: 1, keeper: 5, lost, committed: 70, last: u64::MAX };
        descriptor.recoveries = vec![recovery(vec![]), recovery(vec![0, 9])];
        for descriptor in [descriptor, RegionDescriptor::founded(0, None, &[3])] {
            let bytes = descriptor.encode();
            assert_eq!(RegionDescriptor::decode(&bytes), Ok(descriptor));
            for end in 0..bytes.len() {
                assert!(RegionDescriptor::decode(&bytes[..end]).is_err());
            }
        }
    }

    #[test]
    fn a_descriptor_from_before_recoveries_is_still_read() {
        let descriptor = RegionDescriptor::founded(7, None, &[0, 5, 9]);
        let mut bytes = descriptor.encode().to_vec();
        bytes[0] = VERSION_WITHOUT_RECOVERIES;
        bytes.remove(HEADER_BYTES);
        assert_eq!(RegionDescriptor::decode(&bytes), Ok(descriptor));
    }

    #[test]
    fn a_recovery_that_cannot_have_been_is_refused() {
        let founded = RegionDescriptor::founded(7, None, &[0, 5, 9]);
        let refused = |lost: &[u64], committed| {
            let lost = lost.to_vec();
            let recovery = Recovery { order: 9, at_ms: 1, keeper: 5, lost, committed, last: 70 };
            let descriptor = RegionDescriptor { recoveries: vec![recovery], ..founded.clone() };
            RegionDescriptor::decode(&descriptor.encode()).is_err()
        };
        assert!(!refused(&[0, 9], 70));
        assert!(refused(&[0, 5], 70), "the keeper is not lost");
        assert!(refused(&[9, 0], 70) && refused(&[9, 9], 70), "sorted, and each store once");
        assert!(refused(&[0, 9], 71), "the log ends before what is known to be committed");
    }

    #[test]
    fn what_could_not_be_counted_up_and_too_many_peers_are_refused() {
        let founded = RegionDescriptor::founded(7, Some(SlotRange { first: 10, last: 20 }), &[0, 5, 9]);
        let refused = |change: fn(&mut RegionDescriptor)| {
            let mut descriptor = founded.clone();
            change(&mut descriptor);
            RegionDescriptor::decode(&descriptor.encode()).is_err()
        };
        assert!(!refused(|region| region.epoch.version = COUNTED_MAX - 1));
        assert!(refused(|region| region.epoch.version = u64::MAX));
        assert!(refused(|region| region.epoch.conf_version = COUNTED_MAX));
        assert!(refused(|region| region.next_peer = u64::MAX));
        let stores: Vec<u64> = (0..PEERS_MAX as u64).collect();
        let full = RegionDescriptor::founded(7, None, &stores);
        assert_eq!(RegionDescriptor::decode(&full.encode()), Ok(full));
        let stores: Vec<u64> = (0..PEERS_MAX as u64 + 1).collect();
        assert!(RegionDescriptor::decode(&RegionDescriptor::founded(7, None, &stores).encode()).is_err());
    }
}
