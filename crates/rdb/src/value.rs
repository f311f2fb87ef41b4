//! Values, element by element.

use std::io::Read;

use bytes::Bytes;

use crate::compact::{intset, zipmap};
use crate::listpack::{Entries, Listpack};
use crate::stream::{read_stream, StreamPart, STREAM, STREAM_2, STREAM_3};
use crate::ziplist::Ziplist;
use crate::{Error, Result, Source};

/// The numbers of the types in a payload or file. `stream` has those of streams.
pub(crate) const STRING: u8 = 0;
pub(crate) const LIST: u8 = 1;
pub(crate) const SET: u8 = 2;
const SORTED_SET_TEXT: u8 = 3;
pub(crate) const HASH: u8 = 4;
pub(crate) const SORTED_SET: u8 = 5;
const MODULE_OLD: u8 = 6;
pub(crate) const MODULE: u8 = 7;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const SORTED_SET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
const HASH_LISTPACK: u8 = 16;
const SORTED_SET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
const SET_LISTPACK: u8 = 20;

/// Containers of the nodes of a list.
const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;

/// Lengths that stand for special scores in the oldest encoding.
const SCORE_NAN: u8 = 253;
const SCORE_INFINITE: u8 = 254;
const SCORE_MINUS_INFINITE: u8 = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    String,
    List,
    Set,
    Hash,
    SortedSet,
    Stream,
}

/// A string, or an element of a collection.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    String(Bytes),
    /// The next element of a list.
    Item(Bytes),
    Member(Bytes),
    Field(Bytes, Bytes),
    /// A member of a sorted set. The score is not NaN.
    Scored(Bytes, f64),
    Stream(StreamPart),
}

impl Element {
    /// Returns the bytes of the element's parts, without any overhead.
    pub fn len(&self) -> usize {
        match self {
            Element::String(bytes) | Element::Item(bytes) | Element::Member(bytes) => bytes.len(),
            Element::Field(name, value) => name.len() + value.len(),
            Element::Scored(name, _) => name.len() + size_of::<f64>(),
            Element::Stream(part) => part.bytes(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A callback that receives the elements of a value. An error ends the read.
pub type VisitElement<'a> = dyn FnMut(Element) -> Result<()> + 'a;

/// Returns the kind of values of a type's number.
///
/// # Errors
/// [`Error::Unsupported`] for modules, and [`Error::UnknownType`].
pub fn kind_of(number: u8) -> Result<Kind> {
    Ok(match number {
        STRING => Kind::String,
        LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => Kind::List,
        SET | SET_INTSET | SET_LISTPACK => Kind::Set,
        SORTED_SET_TEXT | SORTED_SET | SORTED_SET_ZIPLIST | SORTED_SET_LISTPACK => Kind::SortedSet,
        HASH | HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK => Kind::Hash,
        STREAM | STREAM_2 | STREAM_3 => Kind::Stream,
        MODULE_OLD | MODULE => return Err(Error::Unsupported("values of modules")),
        _ => return Err(Error::UnknownType(number)),
    })
}

/// Reads the value that follows a type's number, and calls `visit` with each of its elements.
///
/// Elements of a set, hash or sorted set that are named twice are visited twice: only the caller
/// knows them all.
///
/// # Errors
/// Errors of the data, of the reader and of `visit`. A collection without elements is an error, as
/// in Redis, except for a stream. After [`Error::TooManyPending`] the next value can be read.
pub fn read_value<R: Read>(number: u8, source: &mut Source<R>, visit: &mut VisitElement<'_>) -> Result<()> {
    kind_of(number)?;
    let mut visited = false;
    let visit = &mut |element: Element| {
        visited = true;
        visit(element)
    };
    match number {
        STRING => visit(Element::String(source.string()?))?,
        LIST => counted(source, |source| visit(Element::Item(source.string()?)))?,
        SET => counted(source, |source| visit(Element::Member(source.string()?)))?,
        HASH => counted(source, |source| visit(Element::Field(source.string()?, source.string()?)))?,
        SORTED_SET_TEXT => counted(source, |source| {
            let name = source.string()?;
            visit(Element::Scored(name, text_score(source)?))
        })?,
        SORTED_SET => counted(source, |source| {
            let name = source.string()?;
            visit(Element::Scored(name, not_nan(f64::from_bits(source.u64_le()?))?))
        })?,
        LIST_ZIPLIST => items(Ziplist::open(source.string()?)?, visit)?,
        LIST_QUICKLIST => counted(source, |source| items(Ziplist::open(source.string()?)?, visit))?,
        LIST_QUICKLIST_2 => counted(source, |source| match source.length()? {
            NODE_PLAIN => visit(Element::Item(source.string()?)),
            NODE_PACKED => items(Listpack::open(source.string()?)?, visit),
            _ => Err(Error::Damaged("the container of a node")),
        })?,
        SET_INTSET => intset(&source.string()?, |member| visit(Element::Member(member)))?,
        SET_LISTPACK => {
            for member in Listpack::open(source.string()?)? {
                visit(Element::Member(member?))?;
            }
        }
        HASH_ZIPMAP => zipmap(&source.string()?, |name, value| visit(Element::Field(name, value)))?,
        HASH_ZIPLIST => fields(Ziplist::open(source.string()?)?, visit)?,
        HASH_LISTPACK => fields(Listpack::open(source.string()?)?, visit)?,
        SORTED_SET_ZIPLIST => scored(Ziplist::open(source.string()?)?, visit)?,
        SORTED_SET_LISTPACK => scored(Listpack::open(source.string()?)?, visit)?,
        STREAM | STREAM_2 | STREAM_3 => {
            read_stream(number, source, &mut |part| visit(Element::Stream(part)))?;
        }
        _ => return Err(Error::UnknownType(number)),
    }
    match visited {
        true => Ok(()),
        false => Err(Error::Damaged("a collection without elements")),
    }
}

/// Calls `read` as many times as the length says that comes first. The data ends long before a
/// wrong length.
fn counted<R: Read>(
    source: &mut Source<R>,
    mut read: impl FnMut(&mut Source<R>) -> Result<()>,
) -> Result<()> {
    for _ in 0..source.length()? {
        read(source)?;
    }
    Ok(())
}

fn items(entries: impl Entries, visit: &mut impl FnMut(Element) -> Result<()>) -> Result<()> {
    for item in entries {
        visit(Element::Item(item?))?;
    }
    Ok(())
}

fn pairs(mut entries: impl Entries, mut visit: impl FnMut(Bytes, Bytes) -> Result<()>) -> Result<()> {
    while let Some(first) = entries.next() {
        let first = first?;
        let second = entries.next().ok_or(Error::Damaged("an element without its second part"))?;
        visit(first, second?)?;
    }
    Ok(())
}

fn fields(entries: impl Entries, visit: &mut impl FnMut(Element) -> Result<()>) -> Result<()> {
    pairs(entries, |name, value| visit(Element::Field(name, value)))
}

fn scored(entries: impl Entries, visit: &mut impl FnMut(Element) -> Result<()>) -> Result<()> {
    pairs(entries, |name, score| visit(Element::Scored(name, parsed_score(&score)?)))
}

fn text_score<R: Read>(source: &mut Source<R>) -> Result<f64> {
    match source.u8()? {
        SCORE_NAN => Err(Error::Damaged("a score that is not a number")),
        SCORE_INFINITE => Ok(f64::INFINITY),
        SCORE_MINUS_INFINITE => Ok(f64::NEG_INFINITY),
        length => {
            let mut text = [0; SCORE_NAN as usize];
            let text = &mut text[..usize::from(length)];
            source.fill(text)?;
            parsed_score(text)
        }
    }
}

fn parsed_score(text: &[u8]) -> Result<f64> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    not_nan(score.ok_or(Error::Damaged("a score"))?)
}

fn not_nan(score: f64) -> Result<f64> {
    match score.is_nan() {
        true => Err(Error::Damaged("a score that is not a number")),
        false => Ok(score),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ziplist::of_strings;

    fn read(bytes: &[u8]) -> Result<Vec<Element>> {
        let mut source = Source::new(&bytes[1..]);
        let mut all = Vec::new();
        read_value(bytes[0], &mut source, &mut |element| {
            all.push(element);
            Ok(())
        })?;
        Ok(all)
    }

    fn with_string(number: u8, blob: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number];
        crate::write::string(&mut bytes, blob);
        bytes
    }

    #[test]
    fn old_encodings_are_read() {
        let pairs = of_strings(&[b"a", b"1.5", b"b", b"-inf"]);
        let list: Vec<Element> =
            ["a", "1.5", "b", "-inf"].map(|item| Element::Item(Bytes::from(item))).into();
        assert_eq!(read(&with_string(LIST_ZIPLIST, &pairs)).unwrap(), list);
        let mut quicklist = vec![LIST_QUICKLIST, 2];
        crate::write::string(&mut quicklist, &of_strings(&[b"a", b"1.5"]));
        crate::write::string(&mut quicklist, &of_strings(&[b"b", b"-inf"]));
        assert_eq!(read(&quicklist).unwrap(), list);
        assert_eq!(
            read(&with_string(SORTED_SET_ZIPLIST, &pairs)).unwrap(),
            [Element::Scored("a".into(), 1.5), Element::Scored("b".into(), f64::NEG_INFINITY)]
        );
        assert_eq!(
            read(&with_string(HASH_ZIPLIST, &pairs)).unwrap(),
            [Element::Field("a".into(), "1.5".into()), Element::Field("b".into(), "-inf".into())]
        );
        let zipmap = b"\x01\x01a\x02\x00xy\xff";
        assert_eq!(
            read(&with_string(HASH_ZIPMAP, zipmap)).unwrap(),
            [Element::Field("a".into(), "xy".into())]
        );
        assert_eq!(
            read(b"\x03\x02\x01a\x041.25\x01b\xfe").unwrap(),
            [Element::Scored("a".into(), 1.25), Element::Scored("b".into(), f64::INFINITY)]
        );
    }

    #[test]
    fn nan_pairs_cut_in_half_and_empty_collections_are_damage() {
        assert!(read(b"\x03\x01\x01a\xfd").is_err());
        assert!(read(b"\x03\x01\x01a\x03nan").is_err());
        assert!(read(&with_string(HASH_ZIPLIST, &of_strings(&[b"a"]))).is_err());
        for number in [LIST, SET, HASH, SORTED_SET, LIST_QUICKLIST, LIST_QUICKLIST_2] {
            assert!(read(&[number, 0]).is_err());
        }
    }

    #[test]
    fn modules_are_refused_by_name() {
        assert_eq!(kind_of(7).unwrap_err().to_string(), "values of modules are not supported");
        assert!(matches!(kind_of(99), Err(Error::UnknownType(99))));
    }

    #[test]
    fn a_declared_length_reserves_no_memory() {
        // A set of 2^62 elements and a string of 500 MB are declared, and hardly anything follows.
        assert!(read(b"\x02\x81\x40\0\0\0\0\0\0\0\x01a").is_err());
        assert!(read(b"\x00\x80\x1d\xcd\x65\x00ab").is_err());
        assert!(matches!(read(b"\x00\x80\xff\xff\xff\xffab"), Err(Error::TooLarge(_))));
    }
}
