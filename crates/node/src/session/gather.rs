//! Commands of one region, gathered from a pipeline to be carried out together.

use std::sync::Arc;

use crate::item::Item;

/// Maximum bytes of one region's commands that are carried out together; one command may be larger.
const GROUP_BYTES_MAX: usize = 2 << 20;

/// How a part may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Strong reads. The executor may answer a part of them, at least one.
    Reads,
    /// Reads of this store's own copy; strong reads where that cannot answer. May be answered in part, as `Reads`.
    Weak,
    /// Writes and the reads between and behind them: one entry of the region's log.
    Writes,
}

pub(super) struct Group<R> {
    pub region: R,
    pub kind: Kind,
    /// Positions of all commands of the group that are not answered, in order.
    pub positions: Vec<usize>,
    /// Commands that are being carried out, the first of `positions`.
    part: Arc<Vec<Item>>,
    /// Commands that are not asked for yet, the rest of `positions`.
    items: Vec<Item>,
    bytes: usize,
}

impl<R> Group<R> {
    pub fn new(region: R, weak: bool, item: Item, position: usize) -> Group<R> {
        let kind = match (item.is_write(), weak) {
            (true, _) => Kind::Writes,
            (false, true) => Kind::Weak,
            (false, false) => Kind::Reads,
        };
        let mut group =
            Group { region, kind, positions: Vec::new(), part: Arc::default(), items: Vec::new(), bytes: 0 };
        group.push(item, position);
        group
    }

    /// Returns whether the command may be carried out together with those before it. `weak`: this store's own copy may
    /// answer it, unless the connection has sent the region something else that is not answered.
    pub fn takes(&self, item: &Item, weak: bool) -> bool {
        let fits = self.bytes + item.bytes() <= GROUP_BYTES_MAX;
        fits && match self.kind {
            Kind::Weak => weak && !item.is_write(),
            Kind::Reads => !item.is_write(),
            Kind::Writes => item.is_write() || item.is_bounded_read(),
        }
    }

    pub fn push(&mut self, item: Item, position: usize) {
        self.bytes += item.bytes();
        self.positions.push(position);
        self.items.push(item);
    }

    /// Takes out the next commands to carry out: all of them, or the first `reads` of a group of reads.
    pub fn next(&mut self, reads: usize) -> Arc<Vec<Item>> {
        let count = if self.kind == Kind::Writes { self.items.len() } else { reads.min(self.items.len()) };
        let later = self.items.split_off(count);
        self.part = Arc::new(std::mem::replace(&mut self.items, later));
        self.part.clone()
    }

    /// The first `answered` commands of the part are answered. Puts reads that were left out back, and returns the
    /// positions of other commands that were.
    pub fn end_part(&mut self, answered: usize) -> Vec<usize> {
        let part = std::mem::take(&mut self.part);
        self.positions.drain(..answered.min(part.len()));
        let left = part.get(answered..).unwrap_or_default();
        if left.is_empty() {
            return Vec::new();
        }
        if self.kind == Kind::Writes || answered == 0 {
            return self.positions.drain(..left.len()).collect();
        }
        self.items.splice(0..0, left.iter().cloned());
        Vec::new()
    }

    pub fn is_done(&self) -> bool {
        self.items.is_empty()
    }
}
