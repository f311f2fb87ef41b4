//! Requests as they come in, and reads: under a lease, or after a round that proves leadership.

use std::sync::Arc;

use bytes::Bytes;
use command::{Exec, Limits, Mode};
use node::reads::{Local, Proof, Read};
use node::{Item, ItemSlot, Maintenance, Work as Proposal};
use replica::Input;
use resp::Reply;
use storage::Txn;
use types::{RegionId, SlotRange, StoreId, UnixMillis};

use super::Asker;
use crate::client::{ClientId, Outcome, PATIENCE};
use crate::clock::MILLISECOND;
use crate::model::slot_of;
use crate::observation::OpId;
use crate::world::{Work, World};

/// How often readers tell the worker that the lease is in demand.
const LEASE_DEMAND: u64 = 50 * MILLISECOND;

impl World {
    pub(crate) fn request(&mut self, id: StoreId, client: ClientId, op: OpId) {
        let Some(asking) = self.clients[client].asking.as_ref().filter(|asking| asking.op.id == op) else {
            return;
        };
        let (slot, is_read) = (slot_of(asking.op.group), asking.op.command.is_read());
        let (is_weak, adds) = (asking.is_weak, asking.op.command.adds_data());
        let out_of_room = self.now < self.stores[&id].low_until;
        let args = asking.op.command.args(asking.op.group);
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
        if is_weak {
            return self.read_rows(id, region, client, op, Proof::AlreadyThere);
        }
        let leader = shared.leadership.leader;
        if leader != Some(id) {
            return self.reply(client, op, Outcome::Refused { leader });
        }
        if !is_read && adds && out_of_room {
            return self.reply(client, op, Outcome::Refused { leader: None });
        }
        if !is_read {
            return self.propose_command(id, region, (client, op), args);
        }
        let holds = shared.lease_holds(boot);
        if boot.saturating_sub(shared.lease_wanted) > LEASE_DEMAND {
            shared.lease_wanted = boot;
            self.input(id, Input::WantLease { region });
        }
        match holds {
            true => self.read_rows(id, region, client, op, Proof::Lease),
            false => self.prove(id, region, client, op),
        }
    }

    fn is_weak(&self, client: ClientId) -> bool {
        self.clients[client].asking.as_ref().is_some_and(|asking| asking.is_weak)
    }

    fn prove(&mut self, id: StoreId, region: RegionId, client: ClientId, op: OpId) {
        let deadline = self.boot(id) + PATIENCE;
        self.tell(id, node::Input::ReadIndex { region, deadline, reader: (client, op) });
    }

    /// A read begins; its view of the rows is taken later, and later still it is looked at whether that may be answered.
    fn read_rows(&mut self, id: StoreId, region: RegionId, client: ClientId, op: OpId, proof: Proof) {
        let Some(process) = self.process(id) else { return };
        let read = process.regions.get(&region).and_then(|shared| Read::begin(shared, proof));
        let Some(read) = read else {
            return self.reply(client, op, Outcome::Refused { leader: None });
        };
        let delay = self.read_delay();
        self.schedule_work(id, delay, Work::View { region, client, op, read });
    }

    fn read_delay(&mut self) -> u64 {
        let slow = if self.rng.chance(5) { 50 } else { 1 };
        if self.rng.chance(20) {
            self.rng.below(slow * 20 * MILLISECOND)
        } else {
            0
        }
    }

    pub(super) fn take_view(
        &mut self,
        id: StoreId,
        (region, client, op): (RegionId, ClientId, OpId),
        read: Read<u64>,
    ) {
        if self.clients[client].asking.as_ref().is_none_or(|asking| asking.op.id != op) {
            return;
        }
        match self.view(id, region, client) {
            Some((reply, read_ms)) => {
                let delay = self.read_delay();
                let work = Work::Read { region, client, op, reply, read_ms, read };
                self.schedule_work(id, delay, work);
            }
            None if self.is_weak(client) => self.reply(client, op, Outcome::Refused { leader: None }),
            None => self.read_past_expiry(id, region, client, op),
        }
    }

    /// The view was taken: may it be answered?
    pub(super) fn viewed(
        &mut self,
        id: StoreId,
        (region, client, op): (RegionId, ClientId, OpId),
        (reply, read_ms): (Reply, UnixMillis),
        read: &Read<u64>,
    ) {
        let boot = self.boot(id);
        let Some(process) = self.stores[&id].process.as_ref() else { return };
        let asking = self.clients[client].asking.as_ref().filter(|asking| asking.op.id == op);
        let Some(slot) = asking.map(|asking| slot_of(asking.op.group)) else { return };
        let shared = &process.regions[&region];
        if read.may_be_answered(shared, [ItemSlot::One(slot)], shared.version_here(), || boot) {
            match read.proof() {
                Proof::Lease => self.tally.lease_reads += 1,
                Proof::AlreadyThere if self.is_weak(client) => self.tally.weak_reads += 1,
                Proof::AlreadyThere => self.tally.index_reads += 1,
            }
            let weakly = self.is_weak(client).then_some((id, self.stores[&id].life));
            self.reply(client, op, Outcome::Done { reply, read_ms: Some(read_ms), weakly });
        } else if shared.descriptor.contains(slot) && read.proof() == Proof::Lease {
            self.prove(id, region, client, op);
        } else {
            self.reply(client, op, Outcome::Refused { leader: None });
        }
    }

    pub(super) fn proven_read(&mut self, id: StoreId, region: RegionId, client: ClientId, op: OpId) {
        if self.clients[client].asking.as_ref().is_none_or(|asking| asking.op.id != op) {
            return;
        }
        self.read_rows(id, region, client, op, Proof::AlreadyThere);
    }

    /// A read that meets a key past its time is itself proposed, or first the deletion of all that is due.
    fn read_past_expiry(&mut self, id: StoreId, region: RegionId, client: ClientId, op: OpId) {
        let Some(asking) = &self.clients[client].asking else { return };
        let (slot, args) = (slot_of(asking.op.group), asking.op.command.args(asking.op.group));
        if self.rng.chance(30) {
            let due = Maintenance { expire: vec![slot], sweep: Vec::new() };
            self.submit(id, region, Proposal::Maintenance(due), Asker::Upkeep(slot));
        }
        self.propose_command(id, region, (client, op), args);
    }

    fn propose_command(
        &mut self,
        id: StoreId,
        region: RegionId,
        (client, op): (ClientId, OpId),
        args: Vec<Bytes>,
    ) {
        let item = Item::new(args, 0, false).expect("clients ask for what there is");
        let work = Proposal::Commands(Arc::new(vec![item]));
        self.submit(id, region, work, Asker::Client { client, op });
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
        let mut txn = Txn::read_only(&store.durable.engine, region);
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
