//! The one encoding of a region's descriptor, in logs, rows, snapshots and messages.
//!
//! ```text
//! version u8 = 2 | region u64 | slots u8 (0: none) | first u16 | last u16
//! | conf_version u64 | version u64 | next_peer u64 | peers u32
//! | (store u64 | id u64 | role u8 (0 voter, 1 learner, 2 incoming, 3 outgoing))*
//! ```
//!
//! Integers are big-endian. Nothing may follow.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Peer, PeerRole, RegionDescriptor, RegionEpoch};
use crate::{SlotRange, SLOT_COUNT};

const VERSION: u8 = 2;
const HEADER_BYTES: usize = 1 + 8 + 1 + 2 + 2 + 8 + 8 + 8 + 4;
const PEER_BYTES: usize = 8 + 8 + 1;

/// Bytes that are no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a region's descriptor cannot be read: {0}")]
pub struct DescriptorError(&'static str);

impl RegionDescriptor {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + self.peers.len() * PEER_BYTES);
        out.put_u8(VERSION);
        out.put_u64(self.id);
        let slots = self.slots.unwrap_or(SlotRange { first: 0, last: 0 });
        out.put_u8(u8::from(self.slots.is_some()));
        out.put_u16(slots.first);
        out.put_u16(slots.last);
        out.put_u64(self.epoch.conf_version);
        out.put_u64(self.epoch.version);
        out.put_u64(self.next_peer);
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
            return bad("it is cut short");
        }
        if bytes.get_u8() != VERSION {
            return bad("its version is unknown");
        }
        let id = bytes.get_u64();
        let has_slots = bytes.get_u8();
        let range = SlotRange { first: bytes.get_u16(), last: bytes.get_u16() };
        let slots = match has_slots {
            0 => None,
            1 if range.first <= range.last && range.last < SLOT_COUNT => Some(range),
            _ => return bad("its slots are no range"),
        };
        let epoch = RegionEpoch { conf_version: bytes.get_u64(), version: bytes.get_u64() };
        let next_peer = bytes.get_u64();
        let count = bytes.get_u32() as usize;
        if Some(bytes.len()) != count.checked_mul(PEER_BYTES) {
            return bad("its length is not that of its peers");
        }
        let mut peers: Vec<Peer> = Vec::new();
        while bytes.has_remaining() {
            let (store, id) = (bytes.get_u64(), bytes.get_u64());
            let role = match bytes.get_u8() {
                0 => PeerRole::Voter,
                1 => PeerRole::Learner,
                2 => PeerRole::Incoming,
                3 => PeerRole::Outgoing,
                _ => return bad("a role is unknown"),
            };
            if peers.last().is_some_and(|last| last.store >= store) {
                return bad("its peers are out of order");
            }
            if id == 0 || id >= next_peer || peers.iter().any(|peer| peer.id == id) {
                return bad("a peer's number is out of range or used twice");
            }
            peers.push(Peer { store, id, role });
        }
        Ok(RegionDescriptor { id, slots, epoch, peers, next_peer })
    }
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
        for descriptor in [descriptor, RegionDescriptor::founded(0, None, &[3])] {
            let bytes = descriptor.encode();
            assert_eq!(RegionDescriptor::decode(&bytes), Ok(descriptor));
            for end in 0..bytes.len() {
                assert!(RegionDescriptor::decode(&bytes[..end]).is_err());
            }
        }
    }
}
