//! Keyspace notifications: the events of keys as messages on the channels `__keyspace@DB__:KEY` and
//! `__keyevent@DB__:EVENT` of this store's clients.
//!
//! Every copy of a region executes its entries, and only the store that leads the region tells its
//! clients. So a client that listens at all stores hears an event once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use command::ChannelKind;
use storage::record::{Event, Publication, Record};
use types::SlotRange;

use super::spread::Spread;
use super::PubSub;

/// The letters of `notify-keyspace-events`. The position is the bit.
const LETTERS: &[u8] = b"g$lshzxetdnKEm";
/// The classes that `A` stands for.
const ALL: &[u8] = b"g$lshzxetd";

/// A set of classes of events, and the channels to which they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(u32);

impl Classes {
    /// Reads the letters of the setting; `None` if one is unknown.
    pub fn parse(text: &str) -> Option<Classes> {
        text.bytes().try_fold(Classes::default(), |set, letter| match letter {
            b'A' => Some(ALL.iter().fold(set, |set, letter| set.with(*letter))),
            letter if LETTERS.contains(&letter) => Some(set.with(letter)),
            _ => None,
        })
    }

    fn with(self, letter: u8) -> Classes {
        Classes(self.0 | Classes::bit(letter))
    }

    fn bit(letter: u8) -> u32 {
        LETTERS.iter().position(|known| *known == letter).map_or(0, |at| 1 << at)
    }

    fn has(self, letter: u8) -> bool {
        self.0 & Classes::bit(letter) != 0
    }

    /// Returns the letters of all classes. [`parse`](Self::parse) reads them as the same classes.
    pub fn letters(self) -> String {
        LETTERS.iter().filter(|letter| self.has(**letter)).map(|letter| char::from(*letter)).collect()
    }

    /// Returns true if any event is told.
    fn tells(self) -> bool {
        let channels = Classes::bit(b'K') | Classes::bit(b'E');
        self.0 & channels != 0 && self.0 & !channels != 0
    }
}

impl std::fmt::Display for Classes {
    /// Writes the letters as Redis shows them: `A` also stands for `n`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_all = ALL.iter().all(|letter| self.has(*letter));
        if has_all {
            write!(f, "A")?;
        }
        let is_shown = |letter: &u8| match letter {
            b'K' | b'E' | b'm' => self.has(*letter),
            letter => self.has(*letter) && !has_all,
        };
        LETTERS
            .iter()
            .filter(|letter| is_shown(letter))
            .try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

pub struct Notices {
    pubsub: Arc<PubSub>,
    classes: AtomicU32,
}

impl Notices {
    pub fn new(pubsub: Arc<PubSub>) -> Notices {
        Notices { pubsub, classes: AtomicU32::new(0) }
    }

    pub fn set(&self, classes: Classes) {
        self.classes.store(classes.0, Ordering::Relaxed);
    }

    fn classes(&self) -> Classes {
        Classes(self.classes.load(Ordering::Relaxed))
    }

    /// Returns true if events have a receiver.
    pub fn are_wanted(&self) -> bool {
        self.pubsub.tracking.is_active() || self.classes().tells() && self.pubsub.has_subscribers()
    }

    /// Tells clients of executed changes. `leads` is true if this store leads the region.
    pub fn tell(&self, record: &Record, leads: bool) {
        if self.pubsub.tracking.is_active() {
            self.pubsub.tracking.changed(record);
        }
        if leads && self.classes().tells() {
            self.tell_events(&record.events);
        }
    }

    /// Publishes the messages of executed scripts to the clients of all stores. In cluster mode a
    /// shard channel's clients are at this store, which led the slot when the script was proposed.
    pub fn publish(&self, publications: Vec<Publication>, spread: &Arc<Spread>, has_slots: bool) {
        for Publication { is_shard, channel, payload } in publications {
            let kind = if is_shard { ChannelKind::Shard } else { ChannelKind::Channel };
            self.pubsub.publish(kind, &channel, &payload);
            if !is_shard || !has_slots {
                spread.to_all(kind, &channel, &payload);
            }
        }
    }

    /// Tells clients which keys may have changed, if changes were executed without a record
    /// although clients cache keys.
    pub fn executed_without_record(&self) {
        if self.pubsub.tracking.is_active() {
            self.pubsub.tracking.lost(|_| true);
        }
    }

    /// Tells clients that the rows of these slots were replaced.
    pub fn replaced(&self, slots: SlotRange) {
        if self.pubsub.tracking.is_active() {
            self.pubsub.tracking.lost(|slot| slots.contains(slot));
        }
    }

    fn tell_events(&self, events: &[Event]) {
        let classes = self.classes();
        for Event { name, db, key, .. } in events.iter().filter(|event| classes.has(event.class)) {
            let event = Bytes::from_static(name.as_bytes());
            if classes.has(b'K') {
                let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
                self.pubsub.publish(ChannelKind::Channel, &channel.into(), &event);
            }
            if classes.has(b'E') {
                let channel = format!("__keyevent@{db}__:{name}");
                self.pubsub.publish(ChannelKind::Channel, &channel.into(), key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_shown_as_redis_shows_them() {
        for (text, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("AKEm", "AKEm"),
            ("AKEn", "AKE"),
            ("g$KE", "g$KE"),
            ("gn", "gn"),
            ("ng", "gn"),
            ("xxKE", "xKE"),
        ] {
            assert_eq!(Classes::parse(text).map(|classes| classes.to_string()).as_deref(), Some(shown));
        }
        assert_eq!(Classes::parse("Kq"), None);
    }

    #[test]
    fn without_a_class_or_a_channel_nothing_is_told() {
        for (text, tells) in [("", false), ("KE", false), ("A", false), ("Kg", true), ("Ex", true)] {
            assert_eq!(Classes::parse(text).unwrap().tells(), tells, "{text}");
        }
    }
}
