//! Encoding of a region change in a log entry. The change is stored in the entry's context, which
//! is empty for commands.
//!
//! ```text
//! version u8 = 1 | conf_version u64 | version u64      the epoch for which it was proposed
//! | kind u8
//!   1 peers           (change u8 | store u64)*        1 add learner, 2 promote, 3 demote, 4 remove
//!   2 leave joint
//!   3 split           at u16 | new region u64
//!   4 prepare merge   into u64
//!   5 rollback merge
//!   6 commit merge    source index u64 | descriptor
//!   7 recover         recovery, as in a descriptor
//! ```
//!
//! Integers are big-endian. An entry whose context this version cannot decode stops the store,
//! because a peer that runs a newer version may have executed it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::{
    ChangeError, Changed, LogIndex, PeerChange, Recovery, RegionChange, RegionDescriptor, RegionEpoch,
};

use crate::failpoints::Failpoint;

const VERSION: u8 = 1;

/// The change that an entry makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryChange {
    /// Proposed by a leader for one epoch. It has no effect in any other epoch.
    Proposed { expect: RegionEpoch, change: RegionChange },
    /// Forced into the log by an operator's order. It takes effect in every epoch, because earlier
    /// entries of the log may have changed the epoch in the meantime.
    Recover(Recovery),
}

impl EntryChange {
    /// Returns the result of the change as the entry `index`; `None` if it has no effect.
    pub fn apply(&self, before: &RegionDescriptor, index: LogIndex) -> Option<Changed> {
        let changed: Result<Changed, ChangeError> = match self {
            EntryChange::Proposed { expect, .. }
                if *expect != before.epoch && !Failpoint::EpochIgnored.is_on() =>
            {
                return None;
            }
            EntryChange::Proposed { change, .. } => before.after_entry(change, index),
            EntryChange::Recover(recovery) => before.recovered(recovery),
        };
        changed.ok()
    }
}

fn begun(expect: RegionEpoch) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    out.put_u64(expect.conf_version);
    out.put_u64(expect.version);
    out
}

/// Encodes a recovery. `epoch` is the epoch of the previous descriptor; it is only informative.
pub(crate) fn encode_recovery(epoch: RegionEpoch, recovery: &Recovery) -> Bytes {
    let mut out = begun(epoch);
    out.put_u8(7);
    recovery.encode(&mut out);
    out.freeze()
}

pub(crate) fn encode(expect: RegionEpoch, change: &RegionChange) -> Bytes {
    let mut out = begun(expect);
    match change {
        RegionChange::Peers(changes) => {
            out.put_u8(1);
            for change in changes {
                out.put_u8(change.code());
                out.put_u64(change.store());
            }
        }
        RegionChange::LeaveJoint => out.put_u8(2),
        RegionChange::Split { at, new_region } => {
            out.put_u8(3);
            out.put_u16(*at);
            out.put_u64(*new_region);
        }
        RegionChange::PrepareMerge { into } => {
            out.put_u8(4);
            out.put_u64(*into);
        }
        RegionChange::RollbackMerge => out.put_u8(5),
        RegionChange::CommitMerge { source, source_index } => {
            out.put_u8(6);
            out.put_u64(*source_index);
            out.put_slice(&source.encode());
        }
    }
    out.freeze()
}

/// Decodes a change. Returns `None` if the bytes are not a valid encoding.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<EntryChange> {
    if bytes.len() < 18 || bytes.get_u8() != VERSION {
        return None;
    }
    let expect = RegionEpoch { conf_version: bytes.get_u64(), version: bytes.get_u64() };
    let kind = bytes.get_u8();
    let change = match (kind, bytes.len()) {
        (7, _) => {
            let recovery = Recovery::decode(&mut bytes)?;
            return bytes.is_empty().then_some(EntryChange::Recover(recovery));
        }
        (1, length) if length % 9 == 0 => {
            let mut changes = Vec::new();
            while bytes.has_remaining() {
                changes.push(PeerChange::from_code(bytes.get_u8(), bytes.get_u64())?);
            }
            RegionChange::Peers(changes)
        }
        (2, 0) => RegionChange::LeaveJoint,
        (3, 10) => RegionChange::Split { at: bytes.get_u16(), new_region: bytes.get_u64() },
        (4, 8) => RegionChange::PrepareMerge { into: bytes.get_u64() },
        (5, 0) => RegionChange::RollbackMerge,
        (6, 8..) => {
            let source_index = bytes.get_u64();
            let source = Box::new(RegionDescriptor::decode(bytes).ok()?);
            RegionChange::CommitMerge { source, source_index }
        }
        _ => return None,
    };
    Some(EntryChange::Proposed { expect, change })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_change_is_what_the_format_says() {
        let expect = RegionEpoch { conf_version: 3, version: 400 };
        let n = |number: u64| number.to_be_bytes();
        let head = [&[1][..], &n(3), &n(400)].concat();
        let source = Box::new(RegionDescriptor::founded(9, None, &[1]));
        let descriptor = source.encode();
        let peers = [PeerChange::AddLearner, PeerChange::Promote, PeerChange::Demote, PeerChange::Remove];
        let peers = peers.into_iter().zip(5..).map(|(change, store)| change(store)).collect();
        for (change, rest) in [
            (
                RegionChange::Peers(peers),
                [&[1, 1][..], &n(5), &[2], &n(6), &[3], &n(7), &[4], &n(8)].concat(),
            ),
            (RegionChange::LeaveJoint, vec![2]),
            (RegionChange::Split { at: 300, new_region: 8 }, [&[3, 1, 44][..], &n(8)].concat()),
            (RegionChange::PrepareMerge { into: 2 }, [&[4][..], &n(2)].concat()),
            (RegionChange::RollbackMerge, vec![5]),
            (
                RegionChange::CommitMerge { source, source_index: 70 },
                [&[6][..], &n(70), &descriptor].concat(),
            ),
        ] {
            assert_eq!(encode(expect, &change), [&head[..], &rest].concat(), "{change:?}");
        }
        let recovery = Recovery { order: 5, at_ms: 6, keeper: 0, lost: vec![1], committed: 7, last: 8 };
        let rest = [&[7][..], &n(5), &n(6), &n(0), &n(7), &n(8), &[1], &n(1)].concat();
        assert_eq!(encode_recovery(expect, &recovery), [&head[..], &rest].concat());
    }

    #[test]
    fn changes_survive_and_no_cut_of_them_does() {
        let expect = RegionEpoch { conf_version: 3, version: 4 };
        let source = Box::new(RegionDescriptor::founded(9, None, &[1]));
        let swap = vec![PeerChange::Promote(1), PeerChange::Demote(u64::MAX)];
        for change in [
            RegionChange::Peers(swap),
            RegionChange::LeaveJoint,
            RegionChange::Split { at: 7, new_region: 8 },
            RegionChange::PrepareMerge { into: 2 },
            RegionChange::RollbackMerge,
            RegionChange::CommitMerge { source, source_index: 70 },
        ] {
            let bytes = encode(expect, &change);
            let proposed = EntryChange::Proposed { expect, change: change.clone() };
            assert_eq!(decode(&bytes), Some(proposed));
            let ends =
                (0..bytes.len()).filter(|end| !matches!((&change, end), (RegionChange::Peers(_), 18 | 27)));
            for end in ends {
                assert_eq!(decode(&bytes[..end]), None, "{change:?} cut at {end}");
            }
        }
        let recovery = Recovery { order: 5, at_ms: 6, keeper: 0, lost: vec![1, 2], committed: 7, last: 8 };
        let bytes = encode_recovery(expect, &recovery);
        assert_eq!(decode(&bytes), Some(EntryChange::Recover(recovery)));
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "a recovery cut at {end}");
        }
    }
}
