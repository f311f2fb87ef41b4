//! A region's descriptor as the log keeps it beside the peer's life.
//!
//! ```text
//! version u8 = 1 | region u64 | slots u8 (0: none) | first u16 | last u16
//! | conf_version u64 | version u64 | peers u32 | (store u64 | role u8 (0: voter, 1: learner))*
//! ```
//!
//! Integers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::{Peer, PeerRole, RegionDescriptor, RegionEpoch, SlotRange};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 1 + 8 + 1 + 2 + 2 + 8 + 8 + 4;
const PEER_BYTES: usize = 8 + 1;

pub fn encode(descriptor: &RegionDescriptor) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_BYTES + descriptor.peers.len() * PEER_BYTES);
    out.put_u8(VERSION);
    out.put_u64(descriptor.id);
    let slots = descriptor.slots.unwrap_or(SlotRange { first: 0, last: 0 });
    out.put_u8(u8::from(descriptor.slots.is_some()));
    out.put_u16(slots.first);
    out.put_u16(slots.last);
    out.put_u64(descriptor.epoch.conf_version);
    out.put_u64(descriptor.epoch.version);
    out.put_u32(descriptor.peers.len() as u32);
    for peer in &descriptor.peers {
        out.put_u64(peer.store);
        out.put_u8(match peer.role {
            PeerRole::Voter => 0,
            PeerRole::Learner => 1,
        });
    }
    out.freeze()
}

/// `None` for bytes that are no descriptor.
pub fn decode(mut bytes: Bytes) -> Option<RegionDescriptor> {
    if bytes.len() < HEADER_BYTES || bytes.get_u8() != VERSION {
        return None;
    }
    let id = bytes.get_u64();
    let has_slots = bytes.get_u8() != 0;
    let range = SlotRange { first: bytes.get_u16(), last: bytes.get_u16() };
    let epoch = RegionEpoch { conf_version: bytes.get_u64(), version: bytes.get_u64() };
    let count = bytes.get_u32() as usize;
    if Some(bytes.len()) != count.checked_mul(PEER_BYTES) {
        return None;
    }
    let mut peers = Vec::new();
    while bytes.has_remaining() {
        let store = bytes.get_u64();
        let role = match bytes.get_u8() {
            0 => PeerRole::Voter,
            1 => PeerRole::Learner,
            _ => return None,
        };
        peers.push(Peer { store, role });
    }
    Some(RegionDescriptor { id, slots: has_slots.then_some(range), epoch, peers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_survives_and_no_cut_of_it_does() {
        let voter = |store| Peer { store, role: PeerRole::Voter };
        let descriptor = RegionDescriptor {
            id: 7,
            slots: Some(SlotRange { first: 10, last: 20 }),
            epoch: RegionEpoch { conf_version: 3, version: 4 },
            peers: vec![voter(0), Peer { store: 5, role: PeerRole::Learner }],
        };
        let bytes = encode(&descriptor);
        assert_eq!(decode(bytes.clone()), Some(descriptor));
        for end in 0..bytes.len() {
            assert_eq!(decode(bytes.slice(..end)), None);
        }
    }
}
