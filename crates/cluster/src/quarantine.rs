//! Quarantined peers: they do not execute their region's log any further until an operator decides
//! how to continue.
//!
//! ```text
//! quarantine: index, cause u8 (0 entry, 1 change, 2 rows, 3 damage), read_only u8 (0 or 1),
//!   what, error
//! mark: version u8 = 1 | count, then for each: skipped index | u8 (0 or 1), with 1: quarantine
//! ```
//!
//! Integers are unsigned LEB128. A text is its length and UTF-8.

use types::{LogIndex, RegionId};

use crate::wire::{Reader, Writer};
use crate::WireError;

const MARK_VERSION: u8 = 1;
/// Maximum length of a text of a quarantine, in bytes. Longer texts are truncated.
const WHAT_BYTES_MAX: usize = 160;
const ERROR_BYTES_MAX: usize = 320;
/// Maximum number of skipped entries in a mark. The rows already cover older ones.
const SKIPS_MAX: usize = 64;
/// Maximum number of quarantines whose texts a heartbeat carries.
const TEXTS_MAX: usize = 16;
/// Minimum bytes of an encoded quarantine with its region.
pub(crate) const QUARANTINED_BYTES_MIN: usize = 6;

/// The reason why a peer is quarantined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Execution of an entry failed.
    Entry,
    /// Execution of an entry that changes the region failed: a split, a merge or a change of peers.
    /// It cannot be skipped.
    Change,
    /// The peer's rows differ from those of the majority.
    Rows,
    /// Some of the peer's rows were in a file that cannot be read.
    Damage,
}

impl Cause {
    /// Returns the name that operators see.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Entry => "entry",
            Cause::Change => "change",
            Cause::Rows => "rows",
            Cause::Damage => "damage",
        }
    }

    /// Returns true if the rows before the entry are those that the log produces. Otherwise the
    /// peer must not lead, and no other store may get its rows.
    pub fn leaves_rows_sound(self) -> bool {
        match self {
            Cause::Entry | Cause::Change => true,
            Cause::Rows | Cause::Damage => false,
        }
    }
}

/// The state of a quarantined peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// The first entry that is not executed.
    pub index: LogIndex,
    pub cause: Cause,
    /// True if reads on `READONLY` connections are served from the rows as they are.
    pub read_only: bool,
    /// The command of the entry and the beginning of its key. For differing rows it is the check,
    /// and for damage the loss.
    pub what: String,
    pub error: String,
}

impl Quarantine {
    /// Creates a quarantine. Texts that are too long are truncated, and control characters are
    /// replaced.
    pub fn new(index: LogIndex, cause: Cause, what: &str, error: &str) -> Quarantine {
        let read_only = false;
        let (what, error) = (shown(what, WHAT_BYTES_MAX), shown(error, ERROR_BYTES_MAX));
        Quarantine { index, cause, read_only, what, error }
    }

    fn encode(&self, with_texts: bool, out: &mut Writer) {
        out.uint(self.index);
        out.u8(match self.cause {
            Cause::Entry => 0,
            Cause::Change => 1,
            Cause::Rows => 2,
            Cause::Damage => 3,
        });
        out.u8(self.read_only.into());
        for text in [&self.what, &self.error] {
            out.text(if with_texts { text } else { "" });
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Quarantine, WireError> {
        Ok(Quarantine {
            index: from.uint()?,
            cause: match from.u8()? {
                0 => Cause::Entry,
                1 => Cause::Change,
                2 => Cause::Rows,
                3 => Cause::Damage,
                _ => return Err(WireError::Malformed("an unknown cause of a quarantine")),
            },
            read_only: match from.u8()? {
                0 => false,
                1 => true,
                _ => return Err(WireError::Malformed("a quarantine is neither read-only nor not")),
            },
            what: from.text(WHAT_BYTES_MAX)?,
            error: from.text(ERROR_BYTES_MAX)?,
        })
    }
}

/// A store's durable record of a peer that is quarantined or skips entries. It is deleted with the
/// peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Entries that the region's orders skip. Ascending.
    pub skips: Vec<LogIndex>,
    pub held: Option<Quarantine>,
}

impl Mark {
    /// Returns the mark after the entry at which the peer is quarantined was skipped.
    pub fn skipping(&self, index: LogIndex) -> Mark {
        let mut mark = Mark { held: None, ..self.clone() };
        mark.skips.retain(|&other| other != index);
        mark.skips.push(index);
        mark.skips.sort_unstable();
        if mark.skips.len() > SKIPS_MAX {
            mark.skips.remove(0);
        }
        mark
    }

    /// Returns true if the peer executes every entry.
    pub fn is_blank(&self) -> bool {
        self.skips.is_empty() && self.held.is_none()
    }

    pub fn encode(&self) -> bytes::Bytes {
        let mut out = Writer::default();
        out.u8(MARK_VERSION);
        out.uint(self.skips.len() as u64);
        self.skips.iter().for_each(|index| out.uint(*index));
        out.u8(self.held.is_some().into());
        if let Some(held) = &self.held {
            held.encode(true, &mut out);
        }
        out.finish()
    }

    /// # Errors
    /// [`WireError`] if the bytes are not a mark of this version.
    pub fn decode(bytes: &[u8]) -> Result<Mark, WireError> {
        let mut from = Reader(bytes);
        from.version(MARK_VERSION)?;
        let mut mark = Mark::default();
        for _ in 0..from.count(1)? {
            mark.skips.push(from.uint()?);
        }
        if mark.skips.len() > SKIPS_MAX || !mark.skips.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(WireError::Malformed("skipped entries are out of order"));
        }
        mark.held = match from.u8()? {
            0 => None,
            1 => Some(Quarantine::decode(&mut from)?),
            _ => return Err(WireError::Malformed("a peer is neither quarantined nor not")),
        };
        from.end()?;
        Ok(mark)
    }
}

/// Appends the quarantines of a heartbeat: by region, ascending.
pub(crate) fn encode_all(quarantines: &[(RegionId, Quarantine)], out: &mut Writer) {
    out.uint(quarantines.len() as u64);
    for (at, (region, quarantine)) in quarantines.iter().enumerate() {
        out.uint(*region);
        quarantine.encode(at < TEXTS_MAX, out);
    }
}

pub(crate) fn decode_all(from: &mut Reader<'_>) -> Result<Vec<(RegionId, Quarantine)>, WireError> {
    let mut quarantines: Vec<(RegionId, Quarantine)> = Vec::new();
    for _ in 0..from.count(QUARANTINED_BYTES_MIN)? {
        let region = from.uint()?;
        if quarantines.last().is_some_and(|(last, _)| *last >= region) {
            return Err(WireError::Malformed("regions are out of order"));
        }
        quarantines.push((region, Quarantine::decode(from)?));
    }
    Ok(quarantines)
}

/// Truncates a text to at most `max` bytes.
fn shown(text: &str, max: usize) -> String {
    let mut out = String::new();
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if out.len() + character.len_utf8() > max {
            break;
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Quarantine {
        Quarantine { read_only: true, ..Quarantine::new(9, Cause::Entry, "set \"k\"", "a panic") }
    }

    #[test]
    fn marks_round_trip_and_cut_ones_are_none() {
        let held = Mark { skips: vec![4, 700], held: Some(sample()) };
        for mark in [Mark::default(), held.skipping(5), held] {
            let bytes = mark.encode();
            assert_eq!(Mark::decode(&bytes), Ok(mark));
            for cut in 0..bytes.len() {
                assert!(Mark::decode(&bytes[..cut]).is_err(), "{cut}");
            }
            assert!(Mark::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn a_skip_ends_the_quarantine_and_is_kept_with_the_latest_others() {
        let mut mark = Mark { held: Some(sample()), ..Mark::default() };
        for index in 0..100 {
            mark = mark.skipping(index);
        }
        assert_eq!((mark.held.clone(), mark.skips.first(), mark.skips.last()), (None, Some(&36), Some(&99)));
        assert_eq!(mark.skipping(50).skips, mark.skips);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é\n".repeat(200);
        let quarantine = Quarantine::new(1, Cause::Change, &long, &long);
        assert!(quarantine.what.len() <= WHAT_BYTES_MAX && quarantine.what.starts_with("é é"));
        let mark = Mark { held: Some(quarantine), ..Mark::default() };
        assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
    }

    #[test]
    fn a_heartbeat_tells_all_quarantines_and_the_texts_of_some() {
        let all: Vec<(RegionId, Quarantine)> = (0..100).map(|region| (region, sample())).collect();
        let mut out = Writer::default();
        encode_all(&all, &mut out);
        let told = decode_all(&mut Reader(&out.finish())).unwrap();
        assert_eq!(told.len(), 100);
        assert_eq!((&told[0], told[99].1.what.as_str()), (&all[0], ""));
    }
}
