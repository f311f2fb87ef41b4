//! Commands to the leader of their region, and on to another region when their slots have moved meanwhile.
//!
//! A region that has no leader here, refuses, or answers only for some of the commands executed nothing of the
//! others; so these may go elsewhere, and a retry here repeats nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use resp::Reply;

use super::{cluster_down, unknown_outcome, Answer, Answers, Item, ItemSlot, NotDone};
use crate::region::shared::RegionShared;
use crate::store::Store;
use crate::transport::CallError;

/// How long a request that found no leader waits before it looks again without news.
const LEADER_POLL: Duration = Duration::from_millis(25);

/// Commands that one region is thought to have, by their positions.
struct Group {
    region: Arc<RegionShared>,
    positions: Vec<usize>,
}

impl Store {
    /// Carries out `items` in order in one region, as long as it has their slots, and gives as many answers.
    pub async fn execute(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: Vec<Item>,
        deadline: Instant,
    ) -> Vec<Answer> {
        let items = Arc::new(items);
        let answers = match self.execute_in(region, items.clone(), deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![Answer::Reply(error); items.len()],
        };
        debug_assert_eq!(answers.len(), items.len());
        match answers.iter().all(Option::is_some) {
            true => answers.into_iter().flatten().collect(),
            false => self.execute_elsewhere(answers, &items, deadline).await,
        }
    }

    /// Carries out what the first region did not, wherever its slots are now. Commands of one slot stay
    /// together, and so keep their order.
    async fn execute_elsewhere(
        self: &Arc<Self>,
        mut answers: Answers,
        items: &[Item],
        deadline: Instant,
    ) -> Vec<Answer> {
        let open = |answers: &Answers| -> Vec<usize> {
            (0..answers.len()).filter(|position| answers[*position].is_none()).collect()
        };
        let mut left = open(&answers);
        // Who asks about a whole region has to ask for the regions anew.
        let has_slots = left.iter().all(|position| matches!(items[*position].slot, ItemSlot::One(_)));
        while has_slots && !left.is_empty() && Instant::now() < deadline {
            let news = self.leader_news.notified();
            for Group { region, positions } in self.groups(items, &left) {
                let part = Arc::new(positions.iter().map(|position| items[*position].clone()).collect());
                let part = match self.execute_in(&region, part, deadline).await {
                    Ok(part) => part,
                    Err(error) => vec![Some(Answer::Reply(error)); positions.len()],
                };
                for (position, answer) in positions.into_iter().zip(part) {
                    answers[position] = answer;
                }
            }
            let still = open(&answers);
            if still == left {
                // Whoever has the slots is not known yet.
                let _ = tokio::time::timeout(LEADER_POLL, news).await;
            }
            left = still;
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| cluster_down().into())).collect()
    }

    fn groups(&self, items: &[Item], positions: &[usize]) -> Vec<Group> {
        let table = self.regions.table();
        let mut groups: Vec<Group> = Vec::new();
        for &position in positions {
            let ItemSlot::One(slot) = items[position].slot else { continue };
            let Some(region) = table.of_slot(slot) else { continue };
            match groups.iter_mut().find(|group| Arc::ptr_eq(&group.region, region)) {
                Some(group) => group.positions.push(position),
                None => groups.push(Group { region: region.clone(), positions: vec![position] }),
            }
        }
        groups
    }

    /// Whether the region is still where these commands go, as far as this store knows.
    fn goes_to(&self, region: &Arc<RegionShared>, version: u64, items: &[Item]) -> bool {
        let table = self.regions.table();
        let same = |known: Option<&Arc<RegionShared>>| known.is_some_and(|known| Arc::ptr_eq(known, region));
        items.iter().all(|item| match item.slot {
            ItemSlot::One(slot) => same(table.of_slot(slot)),
            // It is about all that the region had when it was asked, and is to be asked anew.
            ItemSlot::Any | ItemSlot::Several => {
                same(table.get(region.id())) && region.newest().epoch.version == version
            }
        })
    }

    /// Carries out commands at the leader of the region, here or elsewhere. Without answers when it turns out
    /// that the region does not have all of their slots any more.
    async fn execute_in(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: Arc<Vec<Item>>,
        deadline: Instant,
    ) -> Result<Answers, Reply> {
        let read_only = items.iter().all(|item| !item.is_write());
        let version = region.newest().epoch.version;
        loop {
            let news = self.leader_news.notified();
            match region.leader() {
                Some(leader) if leader == self.id => {
                    match self.execute_here(region, version, items.clone(), deadline).await {
                        Ok(answers) => return Ok(answers),
                        Err(NotDone::Error(error)) => return Err(error),
                        Err(NotDone::NotLeader) => {}
                    }
                }
                Some(leader) => match self.pass_on(region.id(), version, leader, &items, deadline).await {
                    Ok(Some(answers)) => return Ok(answers),
                    Ok(None) | Err(CallError::NotSent) => {}
                    Err(CallError::Unknown) if read_only => {}
                    Err(CallError::Unknown) => {
                        self.metrics.unknown_outcomes.inc_by(items.len() as u64);
                        return Err(unknown_outcome());
                    }
                },
                None => {}
            }
            if !self.goes_to(region, version, &items) {
                return Ok(vec![None; items.len()]);
            }
            if Instant::now() >= deadline {
                return Err(cluster_down());
            }
            let _ = tokio::time::timeout(LEADER_POLL, news).await;
        }
    }
}
