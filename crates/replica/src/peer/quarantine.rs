//! A quarantined peer: it applies no entry of its log beyond a certain one until it is released.
//!
//! It continues to append and to vote. Its log is sound, and the region may need its vote for a
//! majority. It cannot apply entries, so it can answer no client. So it must not lead if another
//! voter can lead. If every voter is quarantined, one of them must lead nevertheless, because the
//! order that releases them must be committed.
//!
//! A quarantined leader offers its leadership to the other voters in turn. A quarantined follower
//! campaigns only after a long silence, in which a healthy voter would have campaigned.

use super::*;
use crate::action::Unfit;
use raft::GetEntriesContext;

/// Number of election timeouts without a leader after which a quarantined peer campaigns.
const LAST_RESORT_ELECTIONS: u64 = 6;
/// Maximum number of election timeouts between two attempts to transfer leadership. The pause
/// doubles after each round of failed attempts.
const HAND_OVER_ELECTIONS_MAX: u64 = 16;
/// Maximum bytes of committed entries in one `Withheld`.
const SHOWN_BYTES: u64 = 1 << 20;

pub(super) struct Confined {
    /// The first entry that is not applied.
    index: LogIndex,
    may_lead: bool,
    /// True if a snapshot may replace the rows.
    admits_snapshot: bool,
    /// The index through which committed entries were reported as `Withheld`.
    shown: LogIndex,
    /// Number of failed attempts to transfer leadership, and the time of the next one.
    attempts: u64,
    next_attempt: BootNanos,
}

impl<L: LogStore> Peer<L> {
    /// See `Input::Quarantine`.
    pub fn confine(&mut self, ctx: &mut Context, index: LogIndex, may_lead: bool) {
        let shown = index.saturating_sub(1);
        let admits_snapshot = self.confined.as_ref().is_some_and(|confined| confined.admits_snapshot);
        self.confined =
            Some(Confined { index, may_lead, admits_snapshot, shown, attempts: 0, next_attempt: ctx.now });
        // Entries from `index` on that were already handed out are handed out again after the
        // release.
        self.held.retain(|entry| entry.index < index);
        self.takeovers.retain(|takeover| takeover.index < index);
        self.pending_changes.retain(|change| change.index < index);
        let last_change = self.pending_changes.back().map(|change| &change.changed.region);
        self.handed_descriptor = last_change.unwrap_or(&self.descriptor).clone();
        self.suspend_lease(ctx);
        self.refuse(&mut ctx.out, Refusal::NotLeader { leader: None }, Reads::take_all);
        if !self.may_send_rows() {
            self.raw.mut_store().set_offer(None);
        }
        self.wake(ctx);
        self.give_up_lead(ctx);
    }

    /// See `Input::Release`.
    pub fn set_free(&mut self, out: &mut Outbox) -> Result<(), Fatal> {
        let Some(confined) = self.confined.take() else { return Ok(()) };
        if self.is_taken || self.applying.is_some() {
            return Ok(());
        }
        let withheld = self.entries(confined.index, self.handed + 1, None)?;
        if (withheld.len() as u64) < (self.handed + 1).saturating_sub(confined.index) {
            // Some of the entries are damaged. Later entries must not be executed without them.
            self.confined = Some(confined);
            return Ok(());
        }
        let mut entries = Vec::new();
        for entry in withheld {
            entries.push(self.commit(entry, out)?);
        }
        self.hand_out(entries, out);
        Ok(())
    }

    /// See `Input::AdmitSnapshot`.
    pub fn admit_snapshot(&mut self) {
        if let Some(confined) = &mut self.confined {
            confined.admits_snapshot = true;
        }
    }

    pub(super) fn refuses_snapshots(&self) -> bool {
        self.confined.as_ref().is_some_and(|confined| !confined.admits_snapshot)
    }

    /// Returns true if the rows may be sent to other peers. The rows before an entry that cannot be
    /// executed are sound. A decision on that entry may need the vote of a peer that lacks them.
    pub(super) fn may_send_rows(&self) -> bool {
        self.confined.as_ref().is_none_or(|confined| confined.may_lead)
    }

    /// Proposes an order while this peer leads in quarantine.
    pub fn propose_order(&mut self, ctx: &mut Context, token: u64, payload: Bytes) {
        let can = match self.can_propose() {
            Ok(()) | Err(Refusal::Quarantined) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        self.append_proposal(ctx, can, token, payload);
    }

    /// Returns true if the quarantine allows the peer to campaign.
    pub(super) fn may_stand_confined(&self, ctx: &Context) -> bool {
        let Some(confined) = &self.confined else { return true };
        let is_alone = self.raw.raft.prs().conf().voters().ids().len() == 1;
        let silence = ctx.now.saturating_sub(self.heard_at);
        let is_last_resort = silence > LAST_RESORT_ELECTIONS.saturating_mul(ctx.config.election_nanos());
        (confined.may_lead && is_last_resort) || is_alone
    }

    /// Offers a quarantined leader's leadership to the other active voters, one after the other.
    /// Voters with more of the log come first.
    pub(super) fn give_up_lead(&mut self, ctx: &mut Context) {
        let Some(confined) = &self.confined else { return };
        if !self.is_leader() || self.transfer.is_some() || ctx.now < confined.next_attempt {
            return;
        }
        let prs = self.raw.raft.prs();
        let voters = prs.conf().voters();
        let mut others: Vec<(LogIndex, StoreId)> = prs
            .iter()
            .filter(|(&id, progress)| id != self.id && voters.contains(id) && self.is_active(id, progress))
            .filter_map(|(&id, progress)| Some((progress.matched, self.store_of(id)?)))
            .collect();
        others.sort_by_key(|&(matched, store)| (std::cmp::Reverse(matched), store));
        let Some(&(_, to)) = others.get(confined.attempts as usize % others.len().max(1)) else { return };
        // The first round of attempts is quick.
        let rounds = confined.attempts / others.len() as u64;
        let elections =
            1u64.checked_shl(rounds.min(63) as u32).unwrap_or(u64::MAX).min(HAND_OVER_ELECTIONS_MAX);
        let pause = elections.saturating_mul(ctx.config.election_nanos());
        if let Some(confined) = &mut self.confined {
            confined.attempts += 1;
            confined.next_attempt = ctx.now.saturating_add(pause);
        }
        self.transfer_leader(ctx, to);
    }

    /// Returns true if held entries may be executed. In a quarantine they precede the entry that
    /// cannot be executed. A restarted store executes them once it knows that they are committed.
    /// They may include a change of peers that an election depends on.
    pub(super) fn may_execute_held(&self) -> bool {
        self.applying.is_none() && self.may_send_rows()
    }

    /// Returns the first entry that is not handed out.
    pub(super) fn withheld_from(&self) -> LogIndex {
        self.confined.as_ref().map_or(LogIndex::MAX, |confined| confined.index)
    }

    /// Returns the reason why no region can be recovered from this peer's log. The recovery is an
    /// entry after the one at which the peer is quarantined, so it would have no effect.
    pub(super) fn unfit_by_quarantine(&self) -> Option<Unfit> {
        self.confined.as_ref().map(|confined| match confined.may_lead {
            true => Unfit::Quarantined { index: confined.index },
            false => Unfit::RowsDiffer,
        })
    }

    /// Returns true if nothing more is handed out.
    pub(super) fn is_withholding(&self) -> bool {
        self.handed.saturating_add(1) >= self.withheld_from() || self.misses_committed()
    }

    /// Reports committed entries that are not handed out. Returns true if there are more.
    pub(super) fn show_withheld(&mut self, out: &mut Outbox) -> bool {
        let Some(confined) = &self.confined else { return false };
        let log = &self.raw.raft.raft_log;
        let (low, high) = (confined.shown + 1, log.committed.min(log.persisted) + 1);
        if low >= high || self.applying.is_some() {
            return false;
        }
        // A failed read stops the worker in this turn.
        let entries = self.entries(low, high, Some(SHOWN_BYTES)).unwrap_or_default();
        let Some(last) = entries.last().map(|entry| entry.index) else { return false };
        let is_plain = |entry: &Entry| entry.context.is_empty() && !entry.data.is_empty();
        let shown: Vec<(LogIndex, Bytes)> =
            entries.into_iter().filter(is_plain).map(|entry| (entry.index, entry.data)).collect();
        if let Some(confined) = &mut self.confined {
            confined.shown = last;
        }
        if !shown.is_empty() {
            out.later.push(Action::Withheld { region: self.region, entries: shown });
        }
        last + 1 < high
    }

    fn entries(&self, low: LogIndex, high: LogIndex, bytes_max: Option<u64>) -> Result<Vec<Entry>, Fatal> {
        let log = &self.raw.raft.raft_log;
        if low >= high {
            return Ok(Vec::new());
        }
        let context = GetEntriesContext::empty(false);
        log.slice(low, high, bytes_max, context)
            .map_err(|error| Fatal::Consensus { region: self.region, reason: error.to_string() })
    }
}
