//! Commands of one region that are gathered from a pipeline and executed together.

use std::sync::Arc;

use crate::bounded_staleness::MaxLag;
use crate::item::Item;

/// Maximum size of one region's commands that are executed together, in bytes. A single larger
/// command is allowed.
const GROUP_BYTES_MAX: usize = 2 << 20;

/// The way in which a part is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Strong reads. The executor may answer only some of them, but at least one.
    Reads,
    /// Reads of this store's own copy, within the bound if there is one, or strong reads if that
    /// copy cannot answer. As with `Reads`, the executor may answer only some of them.
    Weak(Option<MaxLag>),
    /// Writes and the reads between and after them, as one entry of the region's log.
    Writes,
}

pub(super) struct Group<R> {
    pub region: R,
    pub kind: Kind,
    /// Positions of all unanswered commands of the group, in order.
    pub positions: Vec<usize>,
    /// Commands that are being executed: the first of `positions`.
    part: Arc<Vec<Item>>,
    /// Commands that are not requested yet: the rest of `positions`.
    items: Vec<Item>,
    bytes: usize,
}

impl<R> Group<R> {
    /// Begins a group. `reads` is the kind of the group if the command is a read.
    pub fn new(region: R, reads: Kind, item: Item, position: usize) -> Group<R> {
        let kind = if item.is_write() { Kind::Writes } else { reads };
        let mut group =
            Group { region, kind, positions: Vec::new(), part: Arc::default(), items: Vec::new(), bytes: 0 };
        group.push(item, position);
        group
    }

    /// Returns true if the command may be executed together with those before it. `reads` is the
    /// kind of reads that it belongs to. A strong read may not be answered like a weak one; a weak
    /// one becomes strong if another command that the connection sent to the region is unanswered.
    pub fn takes(&self, item: &Item, reads: Kind) -> bool {
        let fits = self.bytes + item.bytes() <= GROUP_BYTES_MAX;
        fits && match self.kind {
            Kind::Weak(_) => reads == self.kind && !item.is_write(),
            Kind::Reads => !item.is_write(),
            Kind::Writes => item.is_write() || item.is_bounded_read(),
        }
    }

    pub fn push(&mut self, item: Item, position: usize) {
        self.bytes += item.bytes();
        self.positions.push(position);
        self.items.push(item);
    }

    /// Removes and returns the next commands to execute: all of them, or the first `reads` of a
    /// group of reads.
    pub fn next(&mut self, reads: usize) -> Arc<Vec<Item>> {
        let count = if self.kind == Kind::Writes { self.items.len() } else { reads.min(self.items.len()) };
        let later = self.items.split_off(count);
        self.part = Arc::new(std::mem::replace(&mut self.items, later));
        self.part.clone()
    }

    /// Ends the part after its first `answered` commands were answered. Puts unanswered reads back,
    /// and returns the positions of other unanswered commands.
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
