//! Snapshots: offered to peers whose next entries are truncated, and accepted by those peers.
//!
//! The data is carried outside the consensus code. Only the snapshot's index, term and descriptor
//! pass through it, in a message that the receiving peer gets once the data has arrived.

use super::*;
use crate::failpoints::Failpoint;
use raft::eraftpb::Snapshot;
use raft::SnapshotStatus;

impl<L: LogStore> Peer<L> {
    /// Requests a snapshot if a peer needs one and none is being made.
    pub(super) fn want_snapshot(&mut self, out: &mut Outbox) {
        let may_make = !self.making && self.is_leader() && self.may_send_rows();
        if self.raw.store().take_snapshot_wanted() && may_make {
            self.making = true;
            out.later.push(Action::MakeSnapshot { region: self.region });
        }
    }

    pub fn snapshot_made(&mut self, index: LogIndex, term: Term, descriptor: &RegionDescriptor) {
        self.making = false;
        if !self.may_send_rows() {
            return;
        }
        let present = Failpoint::SnapshotOfThePresent.is_on().then(|| self.descriptor.clone());
        let descriptor = present.as_ref().unwrap_or(descriptor);
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().index = index;
        snapshot.mut_metadata().term = term;
        snapshot.mut_metadata().set_conf_state(conf_state_of(descriptor));
        snapshot.data = descriptor.encode();
        // It is sent when the next message from the peer that needs it arrives.
        self.raw.mut_store().set_offer(Some(snapshot));
    }

    pub fn snapshot_failed(&mut self) {
        self.making = false;
    }

    pub fn snapshot_sent(&mut self, ctx: &mut Context, to: StoreId, delivered: bool) {
        let Some(peer) = self.descriptor.peer_on(to).map(|peer| peer.id).filter(|_| self.is_leader()) else {
            return;
        };
        let status = if delivered { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.drive(ctx, |raw| raw.report_snapshot(peer, status));
        let prs = self.raw.raft.prs();
        let is_used = prs.iter().any(|(_, progress)| progress.state == raft::ProgressState::Snapshot);
        if !is_used || !delivered {
            // The next peer that needs a snapshot gets a newer one. After a failure the rows of
            // this one may be gone.
            self.raw.mut_store().set_offer(None);
        }
    }

    /// Records that the consensus code accepted a snapshot: the log begins after it. The rows are
    /// replaced later.
    pub(super) fn accept_snapshot(&mut self, snapshot: &Snapshot, out: &mut Outbox) -> Result<(), Fatal> {
        let metadata = snapshot.get_metadata();
        let (index, term) = (metadata.index, metadata.term);
        let descriptor = RegionDescriptor::decode(snapshot.get_data())
            .map_err(|error| Fatal::Consensus { region: self.region, reason: error.to_string() })?;
        let lost = self.proposals.take_all();
        self.lose(lost, out);
        self.raw.mut_store().restart(index, term);
        self.unsaved.restart(Restart {
            index,
            term,
            descriptor: descriptor.clone(),
            cause: RestartCause::Snapshot,
        });
        // The batch that deletes the old log and hard state must contain the new hard state.
        let raft = &self.raw.raft;
        let vote = (raft.vote != 0).then_some(raft.vote);
        self.unsaved.hard_state = Some(HardState { term: raft.term, vote, commit: index });
        self.pending_changes.clear();
        self.handed_descriptor = descriptor.clone();
        self.descriptor = descriptor;
        self.handed = index;
        self.held.clear();
        self.takeovers.clear();
        self.applying = Some(index);
        self.is_blank = false;
        self.confined = None;
        if Failpoint::SnapshotNotRecorded.is_on() {
            let region = self.region;
            out.later.push(Action::ApplySnapshot {
                region,
                index,
                term,
                descriptor: self.descriptor.clone(),
            });
        }
        Ok(())
    }

    /// Hands out the snapshot once the log has recorded it. From then on the snapshot is applied
    /// even after a crash.
    pub(super) fn snapshot_is_recorded(&mut self, ctx: &mut Context, snapshot: Restart) {
        let Restart { index, term, descriptor, .. } = snapshot;
        self.drive(ctx, |raw| raw.advance_apply_to(index));
        if Failpoint::SnapshotNotRecorded.is_on() {
            return;
        }
        ctx.out.later.push(Action::ApplySnapshot { region: self.region, index, term, descriptor });
    }

    pub fn snapshot_applied(&mut self, ctx: &mut Context) {
        let Some(index) = self.applying.take() else { return };
        self.flushed = self.flushed.max(index);
        self.release(&mut ctx.out);
        self.truncate(ctx);
    }
}
