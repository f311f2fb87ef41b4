//! Reads: under a lease, after a round that proves leadership, or from the entries that a follower
//! has applied.

use command::{Exec, Limits, Mode};
use node::reads::{Local, Origin, Proof, Read};
use node::session::Kind;
use node::{Item, ItemSlot, Maintenance, Work as Proposal};
use replica::Input;
use resp::Reply;
use storage::Txn;
use types::{RegionId, Slot, SlotRange, StoreId, UnixMillis};

use super::sessions::{Part, PartId};
use super::weak_reads::Reader;
use super::Asker;
use crate::client::PATIENCE;
use crate::clock::MILLISECOND;
use crate::observation::Weakly;
use crate::world::{Work, World};

/// Interval at which readers tell the worker that the lease is in use.
const LEASE_DEMAND: u64 = 50 * MILLISECOND;

fn slot_of(item: &Item) -> Slot {
    match item.slot {
        ItemSlot::One(slot) => slot,
        ItemSlot::Any | ItemSlot::Several => unreachable!("clients ask for keys of one group"),
    }
}

impl World {
    /// Serves reads of a region that this store leads.
    pub(super) fn read_strongly(&mut self, id: StoreId, part: PartId, region: RegionId) {
        let boot = self.boot(id);
        let Some(shared) = self.process(id).and_then(|process| process.regions.get_mut(&region)) else {
            return self.refuse(id, part);
        };
        if boot.saturating_sub(shared.lease_wanted) > LEASE_DEMAND {
            shared.lease_wanted = boot;
            self.input(id, Input::WantLease { region });
        }
        match self.plan.asks_majority {
            false => self.read_rows(id, part, Proof::Lease(self.origin(id, part))),
            true => self.prove(id, part, region),
        }
    }

    /// Looks for the keys of writes that change nothing without them, as far as RAM knows. Returns
    /// false if they need an entry. Otherwise they are checked later for whether they may be
    /// answered.
    pub(super) fn find_nothing(&mut self, id: StoreId, part: PartId, region: RegionId) -> bool {
        if !self.plan.finds_nothing || self.plan.asks_majority {
            return false;
        }
        let (boot, origin) = (self.boot(id), self.origin(id, part));
        let Some(Part { items, .. }) = self.part(id, part) else { return false };
        let items = items.clone();
        let shared = self.process(id).and_then(|process| process.regions.get(&region));
        let read = shared.and_then(|shared| Read::begin_nothing(shared, &items, origin, || boot));
        let Some(read) = read else { return false };
        let rows = self.stores[&id].durable.engine.in_ram();
        if !items.iter().all(|item| item.finds_nothing(&rows).unwrap_or(false)) {
            return false;
        }
        let views: Option<Vec<_>> = items.iter().map(|item| self.view(id, region, item)).collect();
        let Some(views) = views else { return false };
        let delay = self.read_delay();
        self.schedule_work(id, delay, Work::Nothing { part, views, read });
        true
    }

    /// Answers writes that have found nothing, if they may be answered with the view that was
    /// taken. Otherwise proposes them.
    pub(super) fn found_nothing(
        &mut self,
        id: StoreId,
        part: PartId,
        views: Vec<(Reply, UnixMillis)>,
        read: &Read<u64>,
    ) {
        let boot = self.boot(id);
        let Some(Part { region, items, ops, .. }) = self.part(id, part) else { return };
        let (region, items, ops) = (*region, items.clone(), ops.clone());
        let Some(process) = self.stores[&id].process.as_ref() else { return };
        let shared = &process.regions[&region];
        let slots = items.iter().map(|item| item.slot);
        if !read.may_be_answered(shared, slots, shared.version_here(), || boot) {
            return self.propose_writes(id, part);
        }
        self.tally.writes_of_nothing += items.len() as u64;
        let mut replies = Vec::with_capacity(views.len());
        for ((reply, read_ms), op) in views.into_iter().zip(ops.iter()) {
            self.note_read(id, part, *op, read_ms, None);
            replies.push(reply);
        }
        self.answer_part(id, part, replies);
    }

    fn prove(&mut self, id: StoreId, part: PartId, region: RegionId) {
        let deadline = self.boot(id) + PATIENCE;
        let (asked, reader) = (self.plan.asked(), Reader::Part(part));
        self.tell(id, node::Input::ReadIndex { region, asked, deadline, reader });
    }

    /// Begins reads. The view of the rows is taken later. After that the reads are checked for
    /// whether they may be answered.
    pub(super) fn read_rows(&mut self, id: StoreId, part: PartId, proof: Proof) {
        let boot = self.boot(id);
        let Some(Part { region, .. }) = self.part(id, part) else { return };
        let region = *region;
        let shared = self.process(id).and_then(|process| process.regions.get(&region));
        let Some(read) = shared.and_then(|shared| Read::begin(shared, proof, || boot)) else {
            let would_suffice_here = shared.is_some_and(|shared| {
                let here = Read::begin(shared, Proof::Lease(Origin::Here), || boot);
                proof == Proof::Lease(Origin::Elsewhere) && here.is_some()
            });
            self.tally.behind_announced += u64::from(would_suffice_here);
            return match proof {
                Proof::Lease(_) => self.prove(id, part, region),
                Proof::AlreadyThere => self.refuse(id, part),
            };
        };
        let delay = self.read_delay();
        self.schedule_work(id, delay, Work::View { part, read });
    }

    pub(super) fn read_delay(&mut self) -> u64 {
        let slow = if self.rng.chance(5) { 50 } else { 1 };
        if self.rng.chance(20) {
            self.rng.below(slow * 20 * MILLISECOND)
        } else {
            0
        }
    }

    /// Takes the view for the first of the reads, and possibly for the reads after it.
    pub(super) fn take_view(&mut self, id: StoreId, part: PartId, read: Read<u64>) {
        let Some(Part { region, items, kind, .. }) = self.part(id, part) else { return };
        let (region, items, is_weak) = (*region, items.clone(), matches!(kind, Kind::Weak(_)));
        let count = if self.rng.chance(70) { items.len() } else { 1 };
        let (mut replies, mut read_ms) = (Vec::new(), 0);
        for item in items.iter().take(count) {
            let Some((reply, at)) = self.view(id, region, item) else { break };
            replies.push(reply);
            read_ms = at;
        }
        if !replies.is_empty() {
            let delay = self.read_delay();
            self.schedule_work(id, delay, Work::Read { part, replies, read_ms, read });
        } else if is_weak {
            self.refuse(id, part);
        } else {
            self.read_past_expiry(id, part, region, &items[0]);
        }
    }

    /// Answers reads with the view that was taken, if they may be answered.
    pub(super) fn viewed(
        &mut self,
        id: StoreId,
        part: PartId,
        (replies, read_ms): (Vec<Reply>, UnixMillis),
        read: &Read<u64>,
    ) {
        let boot = self.boot(id);
        let Some(Part { region, items, kind, ops }) = self.part(id, part) else { return };
        let (region, items, kind, ops) = (*region, items.clone(), *kind, ops.clone());
        let Some(process) = self.stores[&id].process.as_ref() else { return };
        let shared = &process.regions[&region];
        let slots = || items.iter().take(replies.len()).map(|item| item.slot);
        if read.may_be_answered(shared, slots(), shared.version_here(), || boot) {
            let count = replies.len() as u64;
            match (read.proof(), kind) {
                (Proof::Lease(_), _) => self.tally.lease_reads += count,
                (Proof::AlreadyThere, Kind::Weak(max)) => {
                    self.tally.weak_reads += count;
                    self.tally.bounded_reads += if max.is_some() { count } else { 0 };
                }
                (Proof::AlreadyThere, _) => self.tally.index_reads += count,
            }
            let max_lag = match kind {
                Kind::Weak(max) => Some(max),
                Kind::Reads | Kind::Writes => None,
            };
            let weakly = max_lag.map(|max_lag| {
                let life = self.stores[&id].life;
                Weakly { store: id, life, max_lag: max_lag.map(|max| max.nanos) }
            });
            for op in ops.iter().take(replies.len()) {
                self.note_read(id, part, *op, read_ms, weakly);
            }
            self.answer_part(id, part, replies);
        } else if shared.descriptor.contains(slot_of(&items[0])) && matches!(read.proof(), Proof::Lease(_)) {
            self.prove(id, part, region);
        } else {
            self.refuse(id, part);
        }
    }

    /// Proposes a read that found an expired key. Sometimes the deletion of all expired keys is
    /// proposed first.
    fn read_past_expiry(&mut self, id: StoreId, part: PartId, region: RegionId, item: &Item) {
        if self.rng.chance(30) {
            let slot = slot_of(item);
            let due = Maintenance { expire: vec![slot], sweep: Vec::new() };
            self.submit(id, region, Proposal::Maintenance(due), Asker::Upkeep(slot));
        }
        self.propose(id, part, 1);
    }

    /// Returns the reply of a read of the current rows. `None` if it finds an expired key.
    pub(super) fn view(&self, id: StoreId, region: RegionId, item: &Item) -> Option<(Reply, UnixMillis)> {
        let store = &self.stores[&id];
        let shared = &store.process.as_ref()?.regions[&region];
        let now_ms = self.usable_ms(id).max(shared.last_stamp_ms);
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
        match command::execute(item.spec, &item.args, &mut exec).ok()? {
            command::Outcome::Reply(reply) => Some((reply, now_ms)),
            command::Outcome::NeedsApply => None,
        }
    }
}
