//! A peer's part in chained replication: see `chain`.
//!
//! A store that passes an append on, or accepts one that was passed on, has heard from that leader
//! in that term before. So no store can name a leader or a term in another one's name, and an
//! append that was late because of a change of leaders has no effect. A relayed append proves no
//! more than that the leader once sent it: it does not extend the stickiness period.

use super::*;
use crate::chain::{bytes_of, Follower, Replication, Route};

impl<L: LogStore> Peer<L> {
    /// Returns the messages to send so that entries for several followers are sent once.
    pub(super) fn chain_appends(&mut self, ctx: &mut Context, sends: Vec<Message>) -> Vec<Message> {
        if !self.is_chained(ctx) {
            self.chain.clear();
            return sends;
        }
        if !sends.iter().any(|message| message.get_msg_type() == MessageType::MsgAppend) {
            return sends;
        }
        self.chain.lead(self.raw.raft.term, ctx.config.election_ticks);
        let followers = self.followers();
        ctx.relays.fallbacks += self.chain.arrange(&followers);
        let (sends, chained, bytes) = self.chain.join(sends, &followers);
        ctx.relays.chained += chained;
        ctx.relays.chained_bytes += bytes;
        sends
    }

    /// Returns the stores of the chain, the first one first.
    pub fn chain(&self) -> Vec<StoreId> {
        if self.is_leader() {
            self.chain.stores()
        } else {
            Vec::new()
        }
    }

    fn is_chained(&self, ctx: &Context) -> bool {
        ctx.config.replication == Replication::Chained && self.is_leader()
    }

    fn followers(&self) -> Vec<Follower> {
        let prs = self.raw.raft.prs();
        let conf = prs.conf();
        let follower = |(&peer, progress): (&u64, &raft::Progress)| {
            let store = self.store_of(peer).filter(|_| peer != self.id)?;
            let is_ready = Failpoint::LostRelayUnnoticed.is_on()
                || progress.state == raft::ProgressState::Replicate && self.is_active(peer, progress);
            let is_learner = !conf.voters().contains(peer);
            Some(Follower { peer, store, is_learner, matched: progress.matched, is_ready })
        };
        prs.iter().filter_map(follower).collect()
    }

    /// Treats relayed appends that were not acknowledged in time as lost.
    pub(super) fn watch_chain(&mut self, ctx: &mut Context) {
        if !self.is_chained(ctx) {
            return self.chain.clear();
        }
        if Failpoint::LostRelayUnnoticed.is_on() {
            return;
        }
        let followers = self.followers();
        let late = self.chain.tick(&followers, ctx.config.heartbeat_ticks);
        ctx.relays.fallbacks += u64::from(!late.is_empty());
        self.resend(ctx, late);
    }

    /// Sends directly again to a peer whose connection broke, and to those that it passed appends
    /// on to.
    pub(super) fn chain_broke_at(&mut self, ctx: &mut Context, peer: PeerId) {
        if Failpoint::LostRelayUnnoticed.is_on() {
            return;
        }
        let lost = self.chain.broke_at(peer);
        ctx.relays.fallbacks += u64::from(!lost.is_empty());
        self.resend(ctx, lost);
    }

    fn resend(&mut self, ctx: &mut Context, peers: Vec<PeerId>) {
        for peer in peers {
            self.drive(ctx, |raw| raw.report_unreachable(peer));
        }
    }

    /// Passes an append on to the next peer of its route. Returns the append as the leader would
    /// have sent it, its store, and whether it was relayed; `None` if this peer does not take it.
    pub fn pass_on(
        &mut self,
        ctx: &mut Context,
        from: StoreId,
        mut message: Message,
    ) -> Option<(StoreId, Message, bool)> {
        let route = Route::decode(&message.take_context())?;
        let raft = &self.raw.raft;
        let leads = raft.state == StateRole::Follower
            && raft.leader_id == message.from
            && raft.term == message.term
            && message.to == self.id;
        let leader = self.store_of(message.from);
        let is_direct = !route.is_relayed && leader == Some(from);
        // Only a peer of the region has a reason to pass something on.
        let is_member = |store| self.descriptor.has_peer_on(store) || self.strangers.contains_key(&store);
        if leads && (is_direct || route.is_relayed && is_member(from)) {
            self.send_on(ctx, &message, &route);
        }
        match (route.takes, route.is_relayed) {
            (false, _) => None,
            (true, false) => Some((from, message, false)),
            (true, true) => leader.filter(|_| leads && is_member(from)).map(|leader| (leader, message, true)),
        }
    }

    fn send_on(&self, ctx: &mut Context, message: &Message, route: &Route) {
        let mut hops = route.hops.clone();
        let Some(next) = hops.pop_front() else { return };
        if next.store == ctx.config.store || next.peer == self.id || next.peer == message.from {
            return;
        }
        if Failpoint::ChainLosesEntry.is_on() {
            return;
        }
        let mut relayed = Message { to: next.peer, ..message.clone() };
        relayed.commit = next.commit.unwrap_or(relayed.commit);
        relayed.context = Route { takes: next.commit.is_some(), is_relayed: true, hops }.encode().into();
        ctx.relays.relayed += 1;
        ctx.relays.relayed_bytes += bytes_of(message);
        let lane = lane(&relayed);
        ctx.out.sends.push(Action::Send { to: next.store, region: self.region, lane, message: relayed });
    }

    /// Counts an acknowledgement for the peers behind its sender, too: a failpoint.
    pub(super) fn acknowledge_for_next(&mut self, ctx: &mut Context, response: Message) {
        if response.reject || !self.is_leader() {
            return;
        }
        for peer in self.chain.behind(response.from, response.index) {
            let forged = Message { from: peer, ..response.clone() };
            self.drive(ctx, |raw| drop(raw.step(forged)));
        }
    }
}
