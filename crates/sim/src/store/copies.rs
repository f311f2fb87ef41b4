//! Commands that stores execute in parts, as `server::dispatch::copying` does: the client's store
//! asks for one command of the log after the other.

use std::sync::Arc;

use command::copying::{Copying, Next, Sizes};
use node::session::Kind;
use node::{Item, ItemSlot, Maintenance, Work as Proposal};
use resp::Reply;
use types::StoreId;

use super::sessions::{Connection, Part, PartId, Wanted};
use super::Asker;
use crate::observation::OpId;
use crate::world::World;

/// Sizes that small sorted sets exceed.
const SIZES: Sizes = Sizes { elements: 1, rows: 3 };

/// A command under way.
pub(super) struct Copy {
    op: OpId,
    copying: Copying,
}

impl World {
    /// Begins a command of a client that may be executed in parts.
    pub(super) fn begin_copy(
        &mut self,
        id: StoreId,
        part: PartId,
        connection: &mut Connection,
        item: Item,
    ) -> Wanted {
        let conversation = self.clients[part.client].conversation.as_ref();
        let conversation = conversation.filter(|of| of.connection == Some(part.connection));
        let Some(op) = conversation.and_then(|conversation| conversation.op(&item.args)) else {
            return Wanted::Gone;
        };
        let (copying, first) = Copying::begin(item.args, SIZES);
        let asked = self.copy_part(id, op, first);
        connection.ask_for_copy(part.number, Copy { op, copying }, asked)
    }

    /// Returns the next command of the log; `None` if the store knows no region for it.
    fn copy_part(&mut self, id: StoreId, op: OpId, args: Vec<bytes::Bytes>) -> Option<Part> {
        let item = Item::new(args, 0, false)?;
        let ItemSlot::One(slot) = item.slot else { return None };
        let process = self.process(id)?;
        let region = process.region_of(slot)?;
        process.regions.contains_key(&region).then(|| Part {
            region,
            kind: Kind::Writes,
            items: Arc::new(vec![item]),
            ops: Arc::new([op]),
        })
    }

    /// Counts a step of a copy. What the destination had before its end is often swept then.
    fn note_step(&mut self, id: StoreId, asked: &Part, reply: &Reply) {
        let item = &asked.items[0];
        match (item.spec.name, reply) {
            ("copypart", Reply::Array(_)) => self.tally.copy_parts += 1,
            ("copypart" | "copyend", Reply::Nil) => self.tally.copies_overtaken += 1,
            ("copyend", Reply::Array(_) | Reply::Int(_)) => {
                self.tally.copies_ended += 1;
                self.tally.pops_ended += u64::from(matches!(reply, Reply::Array(_)));
                if let (ItemSlot::One(slot), true) = (item.slot, self.rng.chance(70)) {
                    let due = Maintenance { expire: Vec::new(), sweep: vec![slot] };
                    self.submit(id, asked.region, Proposal::Maintenance(due), Asker::Sweep);
                }
            }
            _ => {}
        }
    }

    /// Takes the reply to what a copy has asked.
    pub(super) fn go_on_copying(
        &mut self,
        id: StoreId,
        part: PartId,
        mut copy: Copy,
        (asked, replies): (Option<Part>, Vec<Reply>),
    ) {
        let Some(reply) = replies.into_iter().next() else { return };
        if let Some(asked) = asked {
            self.note_step(id, &asked, &reply);
        }
        let args = match copy.copying.answered(reply) {
            Next::Ask(args) => args,
            Next::Reply(reply) => return self.answer_session(id, part, vec![reply]),
        };
        let asked = self.copy_part(id, copy.op, args);
        let connection = self.process(id).and_then(|process| process.connections.get_mut(&part.connection));
        let Some(connection) = connection else { return };
        let wanted = connection.ask_for_copy(part.number, copy, asked);
        self.carry_out_part(id, part, wanted);
    }
}
