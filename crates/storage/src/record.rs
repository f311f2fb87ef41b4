//! A record of the keys that a batch of commands changes, for clients that want to know. It does
//! not influence the rows, and a batch keeps one only if it is asked for.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::rows::KeyRef;

/// A key that the current command has touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    pub db: u16,
    pub key: Bytes,
    /// True if the key existed before the command and had not expired.
    pub existed: bool,
    pub exists: bool,
    /// True if the key had expired, and was deleted for that.
    pub has_expired: bool,
    /// True if the command has changed the key, apart from its expiry.
    pub is_changed: bool,
    /// The events that the command tells itself.
    pub told: Vec<&'static str>,
}

/// An event of a key, as Redis's keyspace notifications name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The letter of the event's class in `notify-keyspace-events`.
    pub class: u8,
    pub name: &'static str,
    pub db: u16,
    pub key: Bytes,
}

/// A message for the subscribers of a channel, which a script has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// True for a shard channel.
    pub is_shard: bool,
    pub channel: Bytes,
    pub payload: Bytes,
}

/// Maximum bytes of the messages that are kept for one batch of entries. Those beyond are dropped,
/// for a message arrives at most once.
const PUBLICATIONS_BYTES_MAX: usize = 32 << 20;
/// Memory of a message in addition to its texts, in bytes.
const PUBLICATION_BYTES: usize = 64;

/// The messages that the scripts of a batch have published.
#[derive(Clone, Debug, Default)]
pub struct Publications {
    pub messages: Vec<Publication>,
    /// Number of messages that were dropped.
    pub dropped: usize,
    /// The bytes of all messages of the batch, also of those that were taken.
    bytes: usize,
}

impl Publications {
    pub(crate) fn push(&mut self, publication: Publication) {
        let bytes = publication.channel.len() + publication.payload.len() + PUBLICATION_BYTES;
        if bytes > PUBLICATIONS_BYTES_MAX - self.bytes.min(PUBLICATIONS_BYTES_MAX) {
            self.dropped += 1;
            return;
        }
        self.bytes += bytes;
        self.messages.push(publication);
    }

    /// Adds the messages of other entries of the batch.
    pub fn append(&mut self, others: Publications) {
        self.dropped += others.dropped;
        others.messages.into_iter().for_each(|message| self.push(message));
    }

    /// Returns the messages since this was last called.
    pub(crate) fn take(&mut self) -> Publications {
        let rest = Publications { bytes: self.bytes, ..Publications::default() };
        std::mem::replace(self, rest)
    }

    /// Returns a mark of the present end.
    pub(crate) fn end(&self) -> (usize, usize, usize) {
        (self.messages.len(), self.dropped, self.bytes)
    }

    pub(crate) fn back_to(&mut self, (messages, dropped, bytes): (usize, usize, usize)) {
        self.messages.truncate(messages);
        (self.dropped, self.bytes) = (dropped, bytes);
    }
}

/// The changes of keys, in the order of the commands.
#[derive(Debug, Default)]
pub struct Record {
    /// The keys that the current command has touched, in the order of their first touch.
    touched: Vec<Touched>,
    /// Positions in `touched`.
    places: BTreeMap<(u16, Bytes), usize>,
    pub events: Vec<Event>,
    /// The names of keys that have changed, expired or gone. A name may occur several times.
    pub keys: Vec<Bytes>,
    /// For each of these keys the item that has changed it; [`NO_ITEM`] if the key has expired.
    items: Vec<u32>,
    /// For each item of the batch's entries the client that has sent it, or 0.
    authors: Vec<u64>,
    /// True if all keys of a database were deleted.
    pub is_flushed: bool,
}

/// Stands for no item of an entry.
const NO_ITEM: u32 = u32::MAX;

/// The end of a record at a moment.
pub(crate) struct Mark {
    events: usize,
    keys: usize,
    is_flushed: bool,
}

impl Record {
    /// Returns the present command's entry of a key. `exists` tells whether the key exists, if this
    /// is the first touch.
    pub fn touch(&mut self, key: &KeyRef<'_>, exists: bool) -> &mut Touched {
        let at = match self.is_last(key) {
            true => self.touched.len() - 1,
            false => {
                let name = (key.db, Bytes::copy_from_slice(key.key));
                *self.places.entry(name.clone()).or_insert_with(|| {
                    let (db, key) = name;
                    let (existed, has_expired, is_changed) = (exists, false, false);
                    let told = Vec::new();
                    self.touched.push(Touched { db, key, existed, exists, has_expired, is_changed, told });
                    self.touched.len() - 1
                })
            }
        };
        &mut self.touched[at]
    }

    /// Returns true if the key was touched last.
    pub fn is_last(&self, key: &KeyRef<'_>) -> bool {
        self.touched.last().is_some_and(|touched| touched.db == key.db && touched.key == key.key)
    }

    /// Ends a command, and returns the keys that it has touched.
    pub fn end_command(&mut self) -> Vec<Touched> {
        self.places.clear();
        let touched = std::mem::take(&mut self.touched);
        let item = u32::try_from(self.authors.len()).map_or(NO_ITEM, |items| items.wrapping_sub(1));
        for of in touched.iter().filter(|of| of.has_expired || of.is_changed) {
            self.keys.push(of.key.clone());
            self.items.push(if of.has_expired { NO_ITEM } else { item });
        }
        touched
    }

    /// Begins an item of an entry. Its author is not known yet.
    pub fn begin_item(&mut self) {
        self.authors.push(0);
    }

    /// Returns the number of items that have begun.
    pub fn items(&self) -> usize {
        self.authors.len()
    }

    /// Sets the authors of the items from the given one on.
    pub fn set_authors(&mut self, first: usize, authors: impl Iterator<Item = u64>) {
        let items = self.authors.get_mut(first..).unwrap_or_default();
        items.iter_mut().zip(authors).for_each(|(item, author)| *item = author);
    }

    /// Returns the client that has changed the key at a position of `keys`, or 0 if that is not
    /// known.
    pub fn author_of(&self, position: usize) -> u64 {
        let item = self.items.get(position).and_then(|item| self.authors.get(*item as usize));
        item.copied().unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.keys.is_empty() && !self.is_flushed
    }

    /// Returns a mark of the present end of the record.
    pub(crate) fn mark(&self) -> Mark {
        Mark { events: self.events.len(), keys: self.keys.len(), is_flushed: self.is_flushed }
    }

    /// Drops what was recorded after the mark.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.touched.clear();
        self.places.clear();
        self.events.truncate(mark.events);
        self.keys.truncate(mark.keys);
        self.items.truncate(mark.keys);
        self.is_flushed = mark.is_flushed;
    }

    /// Records that the command has deleted all keys of a database, instead of each of them.
    pub fn flush(&mut self) {
        self.touched.clear();
        self.places.clear();
        self.is_flushed = true;
    }
}

#[cfg(test)]
mod publication_tests {
    use super::*;

    #[test]
    fn keys_have_the_authors_of_their_items_unless_they_have_expired() {
        let mut record = Record::default();
        let change = |record: &mut Record, key: &'static str, expires: bool| {
            record.begin_item();
            let touched = record.touch(&KeyRef::new(0, key.as_bytes()), true);
            (touched.is_changed, touched.has_expired) = (true, expires);
            record.end_command();
        };
        change(&mut record, "replayed", false);
        let first = record.items();
        for (key, expires) in [("a", false), ("gone", true), ("b", false)] {
            change(&mut record, key, expires);
        }
        record.set_authors(first, [7, 8, 9].into_iter());
        let authors: Vec<u64> = (0..5).map(|at| record.author_of(at)).collect();
        assert_eq!(authors, [0, 7, 0, 9, 0]);
    }

    #[test]
    fn messages_of_a_batch_are_bounded_and_an_undone_one_frees_its_place() {
        let message =
            |bytes| Publication { is_shard: false, channel: Bytes::new(), payload: vec![0; bytes].into() };
        let mut publications = Publications::default();
        publications.push(message(PUBLICATIONS_BYTES_MAX - 1000));
        let end = publications.end();
        publications.push(message(500));
        publications.push(message(500));
        assert_eq!((publications.messages.len(), publications.dropped), (2, 1));
        publications.back_to(end);
        publications.push(message(500));
        let taken = publications.take();
        assert_eq!((taken.messages.len(), taken.dropped), (2, 0));
        // Those of the batch's next entries count together with them.
        publications.push(message(500));
        assert_eq!((publications.messages.len(), publications.dropped), (0, 1));
        // Two regions' messages are bounded together.
        let mut others = Publications::default();
        others.push(message(500));
        others.append(taken);
        assert_eq!((others.messages.len(), others.dropped), (2, 1));
    }
}
