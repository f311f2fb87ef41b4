//! Requests as they come in, and reads: under a lease, or after a round that proves leadership.

use bytes::Bytes;
use command::{Exec, Limits, Mode};
use replica::Input;
use resp::Reply;
use storage::Txn;
use types::{RegionId, SlotRange, StoreId, UnixMillis};

use super::{Submit, ToWorker};
use crate::client::{ClientId, Outcome};
use crate::clock::MILLISECOND;
use crate::model::slot_of;
use crate::observation::OpId;
use crate::world::{Work, World};

/// How often readers tell the worker that the lease is in demand.
const LEASE_DEMAND: u64 = 50 * MILLISECOND;

impl World {
    pub(crate) fn request(&mut self, id: StoreId, client: ClientId, op: OpId) {
        let now = self.now;
        let Some(asking) = self.clients[client].asking.as_ref().filter(|asking| asking.op.id == op) else {
            return;
        };
        let (slot, is_read) = (slot_of(asking.op.group), asking.op.command.is_read());
        let boot = self.boot(id);
        let Some(process) = self.process(id) else {
            return self.reply(client, op, Outcome::Refused { leader: None });
        };
        let region = process.region_of(slot);
        let Some((region, shared)) =
            region.and_then(|region| Some((region, process.regions.get_mut(&region)?)))
        else {
            return self.reply(client, op, Outcome::Refused { leader: None });
        };
        if shared.leader != Some(id) {
            let leader = shared.leader;
            return self.reply(client, op, Outcome::Refused { leader });
        }
        if !is_read {
            let submit = Submit::Command { client, op, since: now };
            return self.tell(id, ToWorker::Submit { region, submit });
        }
        let holds = shared.lease.is_some_and(|until| boot < until);
        if boot.saturating_sub(shared.lease_wanted) > LEASE_DEMAND {
            shared.lease_wanted = boot;
            self.input(id, Input::WantLease { region });
        }
        if !holds {
            return self.tell(id, ToWorker::ReadIndex { region, client, op });
        }
        match self.view(id, region, client) {
            Some((reply, read_ms)) => {
                let delay = if self.rng.chance(10) { self.rng.below(20 * MILLISECOND) } else { 0 };
                let work = Work::Read { region, client, op, reply, read_ms };
                self.schedule_work(id, delay, work);
            }
            None => self.read_past_expiry(id, region, client, op),
        }
    }

    /// The view was taken; it counts if the lease still holds.
    pub(super) fn read_under_lease(
        &mut self,
        id: StoreId,
        region: RegionId,
        client: ClientId,
        op: OpId,
        reply: Reply,
        read_ms: UnixMillis,
    ) {
        let boot = self.boot(id);
        let Some(process) = self.stores[&id].process.as_ref() else { return };
        let asking = self.clients[client].asking.as_ref().filter(|asking| asking.op.id == op);
        let Some(slot) = asking.map(|asking| slot_of(asking.op.group)) else { return };
        let shared = &process.regions[&region];
        if !shared.descriptor.contains(slot) {
            self.reply(client, op, Outcome::Refused { leader: None });
        } else if shared.lease.is_some_and(|until| boot < until) {
            self.tally.lease_reads += 1;
            self.reply(client, op, Outcome::Done { reply, read_ms: Some(read_ms) });
        } else {
            self.tell(id, ToWorker::ReadIndex { region, client, op });
        }
    }

    pub(super) fn proven_read(&mut self, id: StoreId, region: RegionId, client: ClientId, op: OpId) {
        if self.clients[client].asking.as_ref().is_none_or(|asking| asking.op.id != op) {
            return;
        }
        let slot = self.clients[client].asking.as_ref().map(|asking| slot_of(asking.op.group));
        let has_slot = self.stores[&id].process.as_ref().is_some_and(|process| {
            let shared = process.regions.get(&region);
            shared.is_some_and(|shared| {
                shared.is_local && slot.is_some_and(|slot| shared.descriptor.contains(slot))
            })
        });
        if !has_slot {
            return self.reply(client, op, Outcome::Refused { leader: None });
        }
        match self.view(id, region, client) {
            Some((reply, read_ms)) => {
                self.tally.index_reads += 1;
                self.reply(client, op, Outcome::Done { reply, read_ms: Some(read_ms) });
            }
            None => self.read_past_expiry(id, region, client, op),
        }
    }

    /// A read that meets a key past its time is itself proposed, or first the deletion of all that is due.
    fn read_past_expiry(&mut self, id: StoreId, region: RegionId, client: ClientId, op: OpId) {
        let since = self.now;
        if self.rng.chance(30) {
            if let Some(asking) = &self.clients[client].asking {
                let submit = Submit::ExpireDue(slot_of(asking.op.group));
                self.tell(id, ToWorker::Submit { region, submit });
            }
        }
        self.tell(id, ToWorker::Submit { region, submit: Submit::Command { client, op, since } });
    }

    /// What the client's read gives over the rows as they are; `None` when a key in it is past its time.
    pub(super) fn view(
        &self,
        id: StoreId,
        region: RegionId,
        client: ClientId,
    ) -> Option<(Reply, UnixMillis)> {
        let store = &self.stores[&id];
        let shared = &store.process.as_ref()?.regions[&region];
        let now_ms = self.usable_ms(id).max(shared.last_stamp_ms);
        let asking = self.clients[client].asking.as_ref()?;
        let args: Vec<Bytes> = asking.op.command.args(asking.op.group);
        let spec = command::lookup(&args[0])?;
        let mut txn = Txn::read_only(&store.engine, region);
        let mut exec = Exec {
            txn: &mut txn,
            now_ms,
            seed: 0,
            db: 0,
            mode: Mode::Read,
            slots: shared.descriptor.slots.unwrap_or(SlotRange::ALL),
            limits: Limits::default(),
            resp3: false,
        };
        match command::execute(spec, &args, &mut exec).ok()? {
            command::Outcome::Reply(reply) => Some((reply, now_ms)),
            command::Outcome::NeedsApply => None,
        }
    }
}
