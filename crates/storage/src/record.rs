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
    /// True if all keys of a database were deleted.
    pub is_flushed: bool,
}

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
        let changed = touched.iter().filter(|of| of.has_expired || of.is_changed);
        self.keys.extend(changed.map(|of| of.key.clone()));
        touched
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
        self.is_flushed = mark.is_flushed;
    }

    /// Records that the command has deleted all keys of a database, instead of each of them.
    pub fn flush(&mut self) {
        self.touched.clear();
        self.places.clear();
        self.is_flushed = true;
    }
}
