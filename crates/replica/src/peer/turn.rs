//! Delivery of the consensus code's output: to the log, to other stores and to apply.

use super::*;
use crate::change_entry::{self, EntryChange};
use crate::conf::{conf_change_of, recovery_conf_changes};
use crate::failpoints::Failpoint;
use crate::log_reads::Range;
use crate::log_store::LogError;
use crate::log_view::{size_of, Handing};
use crate::memory::Trim;
use raft::eraftpb::Entry;
use types::META_REGION;

impl<L: LogStore> Peer<L> {
    /// Takes the consensus code's output. Log writes are collected in `unsaved`. Committed entries
    /// are handed out while there is `room`, in bytes. The last `Apply` may exceed it.
    pub fn turn(&mut self, ctx: &mut Context, room: &mut u64) -> Result<Turned, Fatal> {
        if self.is_leader() && self.reads.needs_round() {
            self.send_round(ctx);
        }
        let mut had_any = false;
        if self.raw.has_ready() {
            had_any = self.take_ready(ctx, room)?;
        }
        self.want_snapshot(&mut ctx.out);
        let shows_more = self.show_withheld(&mut ctx.out);
        if let Some(error) = self.raw.store().take_failure() {
            self.read_failed(error, &mut ctx.out)?;
        }
        Ok(match self.raw.has_ready() {
            _ if shows_more => Turned::HasMore,
            // Committed entries are not handed out before the peer is released.
            true if self.is_withholding() && !had_any => Turned::Done,
            false => Turned::Done,
            // Committed entries are handed out once they have been read.
            true if self.raw.store().awaits_execution() && !had_any => Turned::Done,
            // Nothing came out, so only committed entries are left.
            true if *room == 0 && !had_any => Turned::Withheld,
            true => Turned::HasMore,
        })
    }

    /// Drops written entries from memory. See [`Trim`].
    pub fn evict(&mut self, trim: Trim) -> bool {
        let handed = self.handed;
        self.raw.mut_store().evict(trim, handed)
    }

    pub fn withheld_bytes(&self) -> u64 {
        let log = &self.raw.raft.raft_log;
        log.committed.min(log.persisted).saturating_sub(self.handed) * self.raw.store().entry_bytes()
    }

    /// Returns the log reads that followers or execution wait for, numbered from `last + 1` on.
    pub fn take_up_reads(&self, last: &mut u64) -> Vec<(u64, Range)> {
        self.raw.store().take_up_reads(last)
    }

    pub fn wants_read(&self, number: u64) -> bool {
        self.raw.store().wants_read(number)
    }

    pub fn log_read(&mut self, ctx: &mut Context, number: u64, entries: Result<Vec<Entry>, LogError>) {
        for asker in self.raw.store().fetched(number, entries) {
            self.drive(ctx, |raw| raw.on_entries_fetched(asker));
        }
        self.raw.store().forget_fetched();
    }

    /// Returns false if the ready was empty.
    fn take_ready(&mut self, ctx: &mut Context, room: &mut u64) -> Result<bool, Fatal> {
        let is_withholding = self.is_withholding();
        let is_withheld = *room == 0 || is_withholding;
        let handing = if is_withheld { Handing::Withheld } else { Handing::Out };
        self.raw.mut_store().hand(Some(handing));
        let mut ready = self.raw.ready();
        self.raw.mut_store().hand(None);
        let number = ready.number();
        let mut had_any = !ready.snapshot().is_empty() || ready.ss().is_some() || ready.hs().is_some();
        if !ready.snapshot().is_empty() {
            let snapshot = ready.snapshot().clone();
            self.accept_snapshot(&snapshot, &mut ctx.out)?;
        }
        let sends = ready.take_messages();

        let entries = ready.take_entries();
        had_any |= !sends.is_empty() || !entries.is_empty();
        if let Some(head) = entries.first().map(|entry| entry.index) {
            let view = self.raw.mut_store();
            view.append(&entries);
            let lost = self.proposals.replaced(head, |index| view.term_if_held(index));
            self.lose(lost, &mut ctx.out);
            // A machine crash must not lose a region's peers or slots, or any entry of the meta
            // region.
            let is_meta = self.region == META_REGION;
            self.unsaved.must_sync |= is_meta || entries.iter().any(|entry| !entry.context.is_empty());
            self.unsaved.append(entries);
        }
        if let Some(state) = ready.hs() {
            self.unsaved.hard_state = Some(HardState {
                term: state.term,
                vote: (state.vote != 0).then_some(state.vote),
                commit: state.commit,
            });
            if Failpoint::VoteNotSaved.is_on() {
                self.unsaved.hard_state = None;
            }
            let is_vote = self.given_vote != (state.term, state.vote);
            self.given_vote = (state.term, state.vote);
            self.unsaved.must_sync |= is_vote;
            self.unsaved.is_urgent |= is_vote;
        }

        let mut vouching = ready.take_persisted_messages();
        had_any |= !vouching.is_empty() || !ready.read_states().is_empty();
        if self.raw.raft.term > self.saved_term {
            // The only voter becomes leader without asking other peers, so its term may not be
            // saved yet. After a crash it could start the same term again and send different
            // messages in it. So the messages of an unsaved term wait for the write.
            vouching.splice(..0, sends);
        } else {
            let sends = self.chain_appends(ctx, sends);
            self.send(sends, &mut ctx.out);
        }
        // The answer to a heartbeat vouches for the term and for no entry, so it does not wait for
        // the write of entries. Otherwise a leader would treat followers as lost while all of them
        // write something large.
        let vouches_for_saved = |message: &Message| {
            message.get_msg_type() == MessageType::MsgHeartbeatResponse && message.term <= self.saved_term
        };
        let (prompt, later): (Vec<Message>, _) = vouching.into_iter().partition(vouches_for_saved);
        vouching = later;
        self.send(prompt, &mut ctx.out);
        if Failpoint::AcknowledgeBeforeSync.is_on() {
            self.send(std::mem::take(&mut vouching), &mut ctx.out);
        }
        let region = self.region;
        for state in ready.take_read_states() {
            self.confirm_round(&state.request_ctx, state.index, ctx.now);
        }
        let committed = ready.take_committed_entries();
        had_any |= !committed.is_empty();
        *room = room.saturating_sub(committed.iter().map(size_of).sum());
        self.raw.advance_append_async(ready);

        if self.unsaved.is_urgent {
            self.unsaved.ready = number;
            self.unsaved.messages.extend(vouching);
        } else if let Some(in_flight) = &mut self.in_flight {
            in_flight.ready = number;
            in_flight.messages.extend(vouching);
        } else {
            self.drive(ctx, |raw| raw.on_persist_ready(number));
            self.send(vouching, &mut ctx.out);
        }
        if let Some(last) = committed.last().filter(|_| !self.is_taken) {
            self.handed = last.index;
            let end = self.withheld_from();
            let mut entries = Vec::with_capacity(committed.len());
            for entry in committed.into_iter().filter(|entry| entry.index < end) {
                entries.push(self.commit(entry, &mut ctx.out)?);
            }
            self.hand_out(entries, &mut ctx.out);
        }
        if self.is_leader() {
            let all = Failpoint::ReadBeforeApplied.is_on().then_some(LogIndex::MAX);
            let ready = self.reads.take_ready(all.unwrap_or(self.raw.raft.raft_log.applied));
            ctx.out.later.extend(ready.into_iter().map(|token| Action::ReadReady { region, token }));
            self.settle_lease(ctx);
        }
        Ok(had_any)
    }

    pub(super) fn commit(&mut self, entry: Entry, out: &mut Outbox) -> Result<Committed, Fatal> {
        let (index, term) = (entry.index, entry.term);
        let token = self.proposals.applied(index, term).unwrap_or_else(|lost| {
            self.lose(vec![lost], out);
            None
        });
        let is_sealed = self.handed_descriptor.merging.is_some() && !Failpoint::SealIgnored.is_on();
        if entry.context.is_empty() && is_sealed {
            // The entry follows the seal. Every peer sees this and none executes it, so the client
            // may retry at the merge's target.
            let reason = Refusal::NotLeader { leader: None };
            let region = self.region;
            out.first.extend(token.map(|token| Action::Refused { region, token, reason }));
            return Ok(Committed { index, term, payload: Bytes::new(), token: None, change: None });
        }
        if entry.context.is_empty() {
            return Ok(Committed { index, term, payload: entry.data, token, change: None });
        }
        let change = change_entry::decode(&entry.context)
            .ok_or(Fatal::UnknownChange { region: self.region, index })?;
        // Every peer makes the same decision here, because the handed-out descriptor follows from
        // the log alone.
        let before = &self.handed_descriptor;
        let changed = change.apply(before, index);
        if let Some(changed) = &changed {
            let conf_changes = match &change {
                EntryChange::Proposed { change, .. } => {
                    conf_change_of(change, before, &changed.region).into_iter().collect()
                }
                EntryChange::Recover(_) if Failpoint::RecoveryNotTold.is_on() => Vec::new(),
                EntryChange::Recover(_) => recovery_conf_changes(before, &changed.region),
            };
            let recovers = matches!(change, EntryChange::Recover(_));
            self.handed_descriptor = changed.region.clone();
            if let Some(source) = changed.absorbed.clone() {
                self.takeovers.push_back(Takeover { index, source });
            }
            let changed = changed.clone();
            self.pending_changes.push_back(PendingChange { index, conf_changes, changed, recovers });
        }
        Ok(Committed { index, term, payload: Bytes::new(), token, change: changed })
    }

    /// Moves the pending writes into a batch that is being built. Also returns whether the batch
    /// must be synced.
    pub fn take_unsaved(&mut self) -> (RegionWrite, bool) {
        assert!(self.in_flight.is_none(), "one batch at a time");
        let unsaved = std::mem::take(&mut self.unsaved);
        self.in_flight = Some(InFlight {
            ready: unsaved.ready,
            snapshot: unsaved.restart.clone().filter(|restart| restart.cause == RestartCause::Snapshot),
            term: unsaved.hard_state.map(|state| state.term),
            last: unsaved.entries.last().map(|entry| (entry.index, entry.term)),
            messages: unsaved.messages,
        });
        let Unsaved { restart, entries, hard_state, must_sync, .. } = unsaved;
        (RegionWrite { region: self.region, restart, entries, hard_state }, must_sync)
    }

    pub fn persisted(&mut self, ctx: &mut Context) {
        let Some(InFlight { ready, snapshot, term, last, messages }) = self.in_flight.take() else { return };
        self.saved_term = term.unwrap_or(0).max(self.saved_term);
        if self.owes_leadership {
            self.tell_leadership(&mut ctx.out);
        }
        if let Some((index, term)) = last {
            self.raw.mut_store().persisted(index, term);
        }
        if ready > 0 {
            self.drive(ctx, |raw| raw.on_persist_ready(ready));
        }
        if let Some(snapshot) = snapshot {
            self.snapshot_is_recorded(ctx, snapshot);
        }
        self.send(messages, &mut ctx.out);
    }

    fn send(&self, messages: Vec<Message>, out: &mut Outbox) {
        if self.is_unclean && !Failpoint::UncleanVotes.is_on() {
            // Messages that were under way when the damage was found no longer vouch for anything.
            return;
        }
        for mut message in messages {
            let Some(to) = self.store_of(message.to) else { continue };
            if message.get_msg_type() == MessageType::MsgTimeoutNow {
                match self.lease.fence_of(to) {
                    Some(index) => message.index = index,
                    // The leadership was lost meanwhile, so there is nothing to hand over.
                    None => continue,
                }
            }
            let region = self.region;
            out.sends.push(match message.get_msg_type() {
                MessageType::MsgSnapshot => Action::SendSnapshot { region, to, message },
                _ => Action::Send { to, region, lane: lane(&message), message },
            });
        }
    }
}
