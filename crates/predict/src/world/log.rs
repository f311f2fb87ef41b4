//! The worker and the log thread. While a batch is written and synced, commands and followers'
//! entries accumulate. They become the next batch, with one entry per region. Entries are sent to
//! the followers before the leader's own write begins (`server::executor::worker`,
//! `replica::Worker`).

use super::{Entry, Event, RegionAt, StoreAt, World, Write, ENTRY_OVERHEAD_BYTES};
use crate::device::Queues;
use crate::draw::Kind;

/// Maximum number of bytes waiting to be applied above which nothing is proposed (the part for
/// execution in `server::budget`).
const BEHIND_BYTES: u64 = 32 << 20;
const MARK_BYTES: u64 = 24;

impl World<'_> {
    /// Makes a batch of everything that waits, unless a batch is in progress.
    pub(super) fn turn(&mut self, at: StoreAt) {
        if self.stores[at].batch.is_some() {
            return;
        }
        let incoming = std::mem::take(&mut self.stores[at].incoming);
        let mut batch: Vec<(RegionAt, u32)> = Vec::new();
        let mut bytes = 0;
        for (region, end) in incoming {
            let region_log = &mut self.regions[region];
            let Some(peer) = region_log.peer(at) else { continue };
            let begin = peer.persisted.min(end) as usize;
            bytes += region_log.entries[begin..end as usize].iter().map(|entry| entry.bytes).sum::<u64>();
            batch.push((region, end));
        }
        if self.stores[at].to_apply_bytes <= BEHIND_BYTES {
            for region in self.propose(at) {
                let entry = self.regions[region].entries.last().expect("just proposed");
                bytes += entry.bytes;
                batch.push((region, self.regions[region].end()));
            }
        }
        if batch.is_empty() {
            return;
        }
        let store = &mut self.stores[at];
        store.counts.log_bytes += bytes;
        store.counts.log_batches += 1;
        store.batch = Some(batch);
        let done = store.device.write(self.now, bytes);
        self.schedule(Queues::buffered(done), Event::LogWritten(at));
    }

    /// Proposes one entry per region with commands and sends it to the followers. Passes commands
    /// on if their region is led by another store by now.
    fn propose(&mut self, at: StoreAt) -> Vec<RegionAt> {
        let mut proposed: Vec<RegionAt> = Vec::new();
        for (region, thread) in std::mem::take(&mut self.stores[at].queue) {
            let Some(operation) = self.phase.operations[thread] else { continue };
            if self.regions[region].leader != at {
                self.schedule(self.now + self.question.network_ns, Event::Serve(thread));
                continue;
            }
            let row_bytes = self.row_bytes;
            let entries = &mut self.regions[region].entries;
            if !proposed.contains(&region) {
                proposed.push(region);
                entries.push(Entry { writes: Vec::new(), bytes: ENTRY_OVERHEAD_BYTES });
            }
            let entry = entries.last_mut().expect("just pushed");
            entry.bytes += row_bytes;
            entry.writes.push(Write {
                record: operation.record,
                thread: thread as u32,
                inserts: operation.kind == Kind::Insert,
            });
        }
        for region in &proposed {
            self.send(*region);
        }
        proposed
    }

    /// Sends the followers the entries that they do not have yet.
    pub(super) fn send(&mut self, region: RegionAt) {
        let log = &mut self.regions[region];
        let (leader, end) = (log.leader, log.end());
        let mut sends = Vec::new();
        for peer in log.peers.iter_mut().filter(|peer| peer.store != leader && peer.sent < end) {
            peer.sent = end;
            sends.push(peer.store);
        }
        for store in sends {
            self.schedule(self.now + self.question.network_ns, Event::Append { store, region, end });
        }
    }

    pub(super) fn append(&mut self, store: StoreAt, region: RegionAt, end: u32) {
        let log = &mut self.regions[region];
        let Some(peer) = log.peer(store) else { return };
        let begin = (peer.persisted as usize).min(end as usize);
        let last = log.entries[begin..end as usize].last();
        // Separate threads do this work, so it takes CPU time but delays nothing else.
        let processors = &self.question.processors;
        let each = processors.follow_ns.saturating_sub(crate::question::APPLY_NS);
        let nanos = last.map_or(0, |entry| entry.writes.len() as u64) * each;
        self.compute(store, nanos);
        let known = self.stores[store].incoming.entry(region).or_default();
        *known = end.max(*known);
        self.turn(store);
    }

    pub(super) fn log_written(&mut self, at: StoreAt) {
        let done = self.stores[at].device.sync(self.now, 1.0);
        self.schedule(done, Event::LogSynced(at));
    }

    /// The mark is written after the sync and before followers and clients are answered
    /// (`wal::mark`). It is a buffered write, which waits if the device lags behind.
    pub(super) fn log_synced(&mut self, at: StoreAt) {
        let done = self.stores[at].device.write(self.now, MARK_BYTES);
        self.schedule(Queues::buffered(done), Event::LogMarked(at));
    }

    pub(super) fn log_marked(&mut self, at: StoreAt) {
        for (region, end) in self.stores[at].batch.take().unwrap_or_default() {
            let leads = self.regions[region].leader == at;
            let Some(peer) = self.regions[region].peer(at) else { continue };
            peer.persisted = peer.persisted.max(end);
            if leads {
                self.commit(region);
            } else {
                self.hand_out(at, region);
                self.schedule(self.now + self.question.network_ns, Event::Ack { region, from: at, end });
            }
        }
        self.turn(at);
    }

    pub(super) fn acknowledged(&mut self, region: RegionAt, from: StoreAt, end: u32) {
        let Some(peer) = self.regions[region].peer(from) else { return };
        peer.acknowledged = peer.acknowledged.max(end);
        self.commit(region);
    }

    /// Advances the commit index to what the leader and the fastest followers needed for a majority
    /// have persisted. The Raft library commits nothing that the leader has not persisted itself.
    pub(super) fn commit(&mut self, region: RegionAt) {
        let log = &mut self.regions[region];
        let leader = log.leader;
        let Some(own) = log.peer(leader).map(|peer| peer.persisted) else { return };
        let others = log.peers.iter().filter(|peer| peer.store != leader && peer.voter);
        let mut acknowledged: Vec<u32> = others.map(|peer| peer.acknowledged).collect();
        acknowledged.sort_unstable_by(|a, b| b.cmp(a));
        let needed = acknowledged.len().div_ceil(2);
        let majority = if needed == 0 { own } else { own.min(acknowledged[needed - 1]) };
        if majority <= log.committed {
            return;
        }
        log.committed = majority;
        let peers: Vec<StoreAt> = log.peers.iter().map(|peer| peer.store).collect();
        for store in peers {
            if store == leader {
                self.learn_commit(store, region, majority);
            } else {
                let at = self.now + self.question.network_ns;
                self.schedule(at, Event::Commit { store, region, end: majority });
            }
        }
        self.changed(region);
    }

    /// Proposes an entry without commands, which changes the peers of the region. Returns its
    /// index.
    pub(super) fn propose_change(&mut self, region: RegionAt) -> u32 {
        let log = &mut self.regions[region];
        log.entries.push(Entry { writes: Vec::new(), bytes: ENTRY_OVERHEAD_BYTES });
        let (leader, end) = (log.leader, log.end());
        self.stores[leader].incoming.insert(region, end);
        self.send(region);
        self.turn(leader);
        end
    }

    pub(super) fn learn_commit(&mut self, store: StoreAt, region: RegionAt, end: u32) {
        let Some(peer) = self.regions[region].peer(store) else { return };
        peer.committed = peer.committed.max(end);
        self.hand_out(store, region);
    }

    /// Gives the apply thread everything that is committed and persisted on this store.
    pub(super) fn hand_out(&mut self, store: StoreAt, region: RegionAt) {
        let log = &mut self.regions[region];
        let Some(peer) = log.peer(store).filter(|peer| !peer.loading) else { return };
        let (begin, end) = (peer.handed, peer.committed.min(peer.persisted));
        if end <= begin {
            return;
        }
        peer.handed = end;
        let entries = &log.entries[begin as usize..end as usize];
        self.stores[store].to_apply_bytes += entries.iter().map(|entry| entry.bytes).sum::<u64>();
        self.stores[store].to_apply.push_back((region, begin, end));
        self.start_apply(store);
    }
}
