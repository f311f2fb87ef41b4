//! The records beside the entries, and their encodings. Drawn in docs/FORMAT-LOG.md.

use bytes::{Buf, BufMut};
use replica::HardState;
use types::{LogIndex, PeerId, RegionDescriptor, RegionId, Term};

use crate::error::{LogError, Result};

/// The engine's group for what belongs to the store and not to a region.
pub(crate) const STORE_GROUP: u64 = u64::MAX;

pub(crate) const HARD_STATE_KEY: &[u8] = b"h";
pub(crate) const LOG_STATE_KEY: &[u8] = b"l";
pub(crate) const SEQUENCE_KEY: &[u8] = b"n";
const PEER_KEY: u8 = b'p';
const VALUE_KEY: u8 = b'v';

const VERSION: u8 = 1;

/// Where the log begins: the last entry that was truncated. Zeros when none was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    pub truncated_index: LogIndex,
    pub truncated_term: Term,
}

/// Whether this store has a peer of a region. Kept, synced, before the side effects of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerLife {
    Exists {
        /// As the peer was made. What the engine's rows say is newer.
        descriptor: RegionDescriptor,
        /// The region of which a split made it, and the entry.
        parent: Option<(RegionId, LogIndex)>,
    },
    /// A snapshot as of this entry is to replace the region's rows: begun or not, it will be.
    Applying { descriptor: RegionDescriptor, index: LogIndex, term: Term },
    /// The region's peers here were removed; this was the last one's number.
    Tombstone { peer: PeerId },
}

pub(crate) fn peer_key(region: RegionId) -> Vec<u8> {
    let mut key = vec![PEER_KEY];
    key.put_u64(region);
    key
}

/// Bounds of all peer records, for a scan.
pub(crate) const PEER_KEYS: (&[u8], &[u8]) = (&[PEER_KEY], &[PEER_KEY + 1]);

pub(crate) fn region_of_peer_key(key: &[u8]) -> Result<RegionId> {
    match key {
        [PEER_KEY, region @ ..] if region.len() == 8 => Ok(u64::from_be_bytes(region.try_into().expect("8"))),
        _ => Err(corrupt("a peer's key")),
    }
}

pub(crate) fn value_key(key: &[u8]) -> Vec<u8> {
    [&[VALUE_KEY], key].concat()
}

pub(crate) fn encode_sequence(sequence: u64) -> Vec<u8> {
    sequence.to_be_bytes().to_vec()
}

pub(crate) fn decode_sequence(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(bytes.try_into().map_err(|_| corrupt("the batch number"))?))
}

pub(crate) fn encode_hard_state(state: &HardState) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.put_u64(state.term);
    out.put_u64(state.commit);
    if let Some(vote) = state.vote {
        out.put_u64(vote);
    }
    out
}

pub(crate) fn decode_hard_state(bytes: &[u8]) -> Result<HardState> {
    let mut bytes = body(bytes, "a hard state")?;
    let (term, commit) = (u64_of(&mut bytes, "a term")?, u64_of(&mut bytes, "a commit index")?);
    let vote = if bytes.is_empty() { None } else { Some(u64_of(&mut bytes, "a vote")?) };
    end(bytes, "a hard state")?;
    Ok(HardState { term, vote, commit })
}

pub(crate) fn encode_log_state(state: LogState) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.put_u64(state.truncated_index);
    out.put_u64(state.truncated_term);
    out
}

pub(crate) fn decode_log_state(bytes: &[u8]) -> Result<LogState> {
    let mut bytes = body(bytes, "a log state")?;
    let truncated_index = u64_of(&mut bytes, "a truncated index")?;
    let truncated_term = u64_of(&mut bytes, "a truncated term")?;
    end(bytes, "a log state")?;
    Ok(LogState { truncated_index, truncated_term })
}

pub(crate) fn encode_peer(life: &PeerLife) -> Vec<u8> {
    let mut out = vec![VERSION];
    match life {
        PeerLife::Exists { descriptor, parent: None } => {
            out.put_u8(0);
            out.put_slice(&descriptor.encode());
        }
        PeerLife::Exists { descriptor, parent: Some((parent, at)) } => {
            out.put_u8(1);
            out.put_u64(*parent);
            out.put_u64(*at);
            out.put_slice(&descriptor.encode());
        }
        PeerLife::Applying { descriptor, index, term } => {
            out.put_u8(2);
            out.put_u64(*index);
            out.put_u64(*term);
            out.put_slice(&descriptor.encode());
        }
        PeerLife::Tombstone { peer } => {
            out.put_u8(3);
            out.put_u64(*peer);
        }
    }
    out
}

pub(crate) fn decode_peer(bytes: &[u8]) -> Result<PeerLife> {
    const WHAT: &str = "a peer's life";
    let Some((kind, mut rest)) = body(bytes, WHAT)?.split_first() else { return Err(corrupt(WHAT)) };
    let descriptor =
        |bytes| RegionDescriptor::decode(bytes).map_err(|error| LogError::Corrupt(error.to_string()));
    match kind {
        0 => Ok(PeerLife::Exists { descriptor: descriptor(rest)?, parent: None }),
        1 => {
            let parent = Some((u64_of(&mut rest, WHAT)?, u64_of(&mut rest, WHAT)?));
            Ok(PeerLife::Exists { descriptor: descriptor(rest)?, parent })
        }
        2 => {
            let (index, term) = (u64_of(&mut rest, WHAT)?, u64_of(&mut rest, WHAT)?);
            Ok(PeerLife::Applying { descriptor: descriptor(rest)?, index, term })
        }
        3 => {
            let peer = u64_of(&mut rest, WHAT)?;
            end(rest, WHAT)?;
            Ok(PeerLife::Tombstone { peer })
        }
        _ => Err(corrupt(WHAT)),
    }
}

fn body<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8]> {
    match bytes {
        [VERSION, rest @ ..] => Ok(rest),
        [version, ..] => Err(LogError::Corrupt(format!("{what} is of the unknown version {version}"))),
        [] => Err(corrupt(what)),
    }
}

fn u64_of(bytes: &mut &[u8], what: &str) -> Result<u64> {
    if bytes.len() < 8 {
        return Err(corrupt(what));
    }
    Ok(bytes.get_u64())
}

fn end(bytes: &[u8], what: &str) -> Result<()> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(corrupt(what))
    }
}

fn corrupt(what: &str) -> LogError {
    LogError::Corrupt(format!("{what} cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_cut_ones_are_corrupt() {
        for vote in [None, Some(0), Some(7)] {
            let state = HardState { term: 3, vote, commit: 9 };
            let bytes = encode_hard_state(&state);
            assert_eq!(decode_hard_state(&bytes), Ok(state));
            for cut in (0..bytes.len()).filter(|cut| *cut != 17) {
                assert!(matches!(decode_hard_state(&bytes[..cut]), Err(LogError::Corrupt(_))), "{cut}");
            }
        }
        let state = LogState { truncated_index: 5, truncated_term: 2 };
        let bytes = encode_log_state(state);
        assert_eq!(decode_log_state(&bytes), Ok(state));
        for cut in 0..bytes.len() {
            assert!(decode_log_state(&bytes[..cut]).is_err());
        }
        let descriptor = RegionDescriptor::founded(2, None, &[0, 1]);
        for life in [
            PeerLife::Exists { descriptor: descriptor.clone(), parent: None },
            PeerLife::Exists { descriptor: descriptor.clone(), parent: Some((3, 9)) },
            PeerLife::Applying { descriptor, index: 40, term: 6 },
            PeerLife::Tombstone { peer: 7 },
        ] {
            let bytes = encode_peer(&life);
            assert_eq!(decode_peer(&bytes), Ok(life));
            for cut in 0..bytes.len() {
                assert!(decode_peer(&bytes[..cut]).is_err(), "{cut}");
            }
        }
        assert!(decode_peer(&[VERSION, 9]).is_err() && decode_peer(&[VERSION + 1, 1]).is_err());
        assert_eq!(region_of_peer_key(&peer_key(258)), Ok(258));
    }
}
