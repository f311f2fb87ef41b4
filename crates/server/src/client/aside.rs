//! Parts of a client's session that wait: for a leader, another store, or rows on flash. Each is a
//! task.

use std::sync::Arc;
use std::time::Instant;

use node::bounded_staleness::MaxLag;
use node::{Answer, Item, ItemSlot};
use resp::Reply;

use super::spanning;
use crate::connections::ListenerKind;
use crate::dispatch::Bound;
use crate::proposals::cluster_down;
use crate::regions::RegionShared;
use crate::store::{Route, Store};

impl Store {
    /// Returns true if this kind of port redirects clients to the leader's store, by `MOVED`.
    pub fn redirects(&self, kind: ListenerKind) -> bool {
        self.config.cluster_enabled && kind == ListenerKind::Client
    }

    /// Returns `MOVED` to the region's leader, if its address is known.
    pub fn moved(&self, region: &RegionShared, item: &Item) -> Option<Reply> {
        let ItemSlot::One(slot) = item.slot else { return None };
        let member = self.membership.member(region.leader()?)?;
        Some(Reply::error(format!("MOVED {slot} {}", member.client)))
    }

    /// Executes a command for which no single region, or no leader, was known.
    pub async fn execute_alone(
        self: &Arc<Self>,
        kind: ListenerKind,
        item: Item,
        deadline: Instant,
    ) -> Answer {
        let region = match self.route(&item) {
            Ok(Route::Region(region)) => region,
            Ok(Route::Every(spanning)) => return spanning::run(self, kind, spanning, item, deadline).await,
            Ok(Route::Unknown(slot)) => match self.regions.await_slot(slot, deadline).await {
                Some(region) => region,
                None => return cluster_down().into(),
            },
            Err(error) => return error.into(),
        };
        self.execute_or_redirect(kind, &region, item, deadline).await
    }

    /// Executes reads on this store's own copy, within the bound if there is one. The leader
    /// executes the reads that this copy cannot answer. Returns at least one answer.
    pub async fn execute_weakly(
        self: &Arc<Self>,
        kind: ListenerKind,
        region: &Arc<RegionShared>,
        items: &[Item],
        max: Option<MaxLag>,
        deadline: Instant,
    ) -> Vec<Answer> {
        let mut answers = Vec::new();
        let bound = max.map(|max| Bound::of(max, deadline));
        let (mut bytes, bytes_max) = (0, crate::dispatch::REPLY_BYTES_MAX);
        for item in items {
            let answer = match self.read_weakly(region, item.clone(), bound).await {
                Ok(Some(answer)) => answer,
                Ok(None) => self.execute_or_redirect(kind, region, item.clone(), deadline).await,
                Err(error) => error.into(),
            };
            bytes += answer.bytes();
            answers.push(answer);
            if bytes >= bytes_max {
                break;
            }
        }
        answers
    }

    async fn execute_or_redirect(
        self: &Arc<Self>,
        kind: ListenerKind,
        region: &Arc<RegionShared>,
        item: Item,
        deadline: Instant,
    ) -> Answer {
        if self.redirects(kind) && region.leader() != Some(self.id) {
            return self.redirect(region, &item, deadline).await.into();
        }
        let mut answers = self.execute(region, Arc::new(vec![item]), deadline).await;
        answers.pop().unwrap_or_else(|| cluster_down().into())
    }

    /// Returns `MOVED` to the leader of the command's slot. Waits for a leader if none is known.
    async fn redirect(&self, region: &Arc<RegionShared>, item: &Item, deadline: Instant) -> Reply {
        let ItemSlot::One(slot) = item.slot else { return cluster_down() };
        let moved = || {
            // Another region may own the slot now.
            let region = self.regions.of_slot(slot).unwrap_or_else(|| region.clone());
            self.moved(&region, item)
        };
        self.regions.look_until(Some(deadline), moved).await.unwrap_or_else(cluster_down)
    }
}
