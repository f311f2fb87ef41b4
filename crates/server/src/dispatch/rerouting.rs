//! Sends commands to the leader of their region. If their slots have moved in the meantime, sends
//! them to another region.
//!
//! A region may have no leader here, refuse, or answer only some of the commands. In all these
//! cases it has executed none of the others. So those may be sent elsewhere, and a retry repeats
//! nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use resp::Reply;
use types::Slot;

use crate::proposals::{cluster_down, unknown_outcome, Answers, NotDone};
use crate::regions::RegionShared;
use crate::store::Store;
use crate::transport::CallError;
use node::reads::Origin;
use node::{Answer, Item, ItemSlot};

/// Maximum wait, without a change notification, before a request without a leader looks again.
const LEADER_POLL: Duration = Duration::from_millis(25);

/// Commands, by their positions, that presumably belong to one region.
struct Group {
    region: Arc<RegionShared>,
    positions: Vec<usize>,
}

impl Store {
    /// Executes `items` in order in one region while the region owns their slots, and returns one
    /// answer each. For reads with large replies it may return fewer answers, but at least one. The
    /// remaining reads were not executed.
    pub async fn execute(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: Arc<Vec<Item>>,
        deadline: Instant,
    ) -> Vec<Answer> {
        let answers = match self.execute_in(region, items.clone(), deadline).await {
            Ok(answers) => answers,
            Err(error) => return vec![Answer::Reply(error); items.len()],
        };
        debug_assert!((1..=items.len()).contains(&answers.len()));
        self.execute_rest(answers, &items, deadline).await
    }

    /// Executes the remaining commands of a group after a region answered some of them. The
    /// remaining commands were not proposed.
    pub async fn go_on(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: Arc<Vec<Item>>,
        answers: Answers,
        deadline: Instant,
    ) -> Vec<Answer> {
        match answers.iter().any(Option::is_some) {
            true => self.execute_rest(answers, &items, deadline).await,
            false => self.execute(region, items, deadline).await,
        }
    }

    async fn execute_rest(
        self: &Arc<Self>,
        answers: Answers,
        items: &[Item],
        deadline: Instant,
    ) -> Vec<Answer> {
        match answers.iter().all(Option::is_some) {
            true => answers.into_iter().flatten().collect(),
            false => self.execute_elsewhere(answers, items, deadline).await,
        }
    }

    /// Executes the commands that the first region did not, in the present regions of their slots.
    /// Commands of one slot stay together and so keep their order. Those behind a command that was
    /// answered have as much time again: long reads of one client are not late.
    async fn execute_elsewhere(
        self: &Arc<Self>,
        mut answers: Answers,
        items: &[Item],
        mut deadline: Instant,
    ) -> Vec<Answer> {
        let patience = self.config.request_timeout;
        let open = |answers: &Answers| -> Vec<usize> {
            (0..answers.len()).filter(|position| answers[*position].is_none()).collect()
        };
        let mut left = open(&answers);
        // A command about a whole region must be retried by the caller, with the new regions.
        let has_slots = left.iter().all(|position| slot_of(&items[*position]).is_some());
        while has_slots && !left.is_empty() && Instant::now() < deadline {
            let changed = self.regions.leader_changes.notified();
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
                // The new owner of the slots is not known yet.
                let _ = tokio::time::timeout(LEADER_POLL, changed).await;
            } else {
                deadline = deadline.max(Instant::now() + patience);
            }
            left = still;
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| cluster_down().into())).collect()
    }

    fn groups(&self, items: &[Item], positions: &[usize]) -> Vec<Group> {
        let table = self.regions.table();
        let mut groups: Vec<Group> = Vec::new();
        for &position in positions {
            let Some(slot) = slot_of(&items[position]) else { continue };
            let Some(region) = table.of_slot(slot) else { continue };
            match groups.iter_mut().find(|group| Arc::ptr_eq(&group.region, region)) {
                Some(group) => group.positions.push(position),
                None => groups.push(Group { region: region.clone(), positions: vec![position] }),
            }
        }
        groups
    }

    /// Returns true if, as far as this store knows, these commands still belong to the region.
    fn goes_to(&self, region: &Arc<RegionShared>, version: u64, items: &[Item]) -> bool {
        let table = self.regions.table();
        let same = |known: Option<&Arc<RegionShared>>| known.is_some_and(|known| Arc::ptr_eq(known, region));
        items.iter().all(|item| match slot_of(item) {
            Some(slot) => same(table.of_slot(slot)),
            // The command is about all slots that the region had, so it must be retried by the
            // caller.
            None => same(table.get(region.id())) && region.newest().epoch.version == version,
        })
    }

    /// Returns true if the region's peer here is quarantined and no other store has a voter.
    fn is_stuck(&self, region: &RegionShared) -> bool {
        region.is_quarantined() && region.newest().is_alone_on(self.id)
    }

    /// Executes commands at the leader of the region, here or elsewhere. All answers are `None` if
    /// the region no longer owns all of their slots.
    async fn execute_in(
        self: &Arc<Self>,
        region: &Arc<RegionShared>,
        items: Arc<Vec<Item>>,
        deadline: Instant,
    ) -> Result<Answers, Reply> {
        let read_only = items.iter().all(|item| !item.is_write());
        let has_slots = items.iter().all(|item| slot_of(item).is_some());
        let mut known = region.newest();
        loop {
            let changed = self.regions.leader_changes.notified();
            // A command about all slots keeps the range with which it began. The leader executes a
            // SCAN, or a command without keys, only with the range that it has itself.
            if has_slots {
                known = region.newest();
                let slots = items.iter().filter_map(slot_of);
                if slots.into_iter().any(|slot| known.slots.is_some_and(|range| !range.contains(slot))) {
                    return Ok(vec![None; items.len()]);
                }
            }
            let version = known.epoch.version;
            match region.leader() {
                Some(leader) if leader == self.id => {
                    let from = Origin::Here;
                    match self.execute_here(region, version, items.clone(), from, deadline).await {
                        Ok(answers) => return Ok(answers),
                        Err(NotDone::Error(error)) => return Err(error),
                        // Only an operator's order lets the region continue, so the commands do not
                        // wait for it.
                        Err(NotDone::NotLeader) if self.is_stuck(region) => return Err(cluster_down()),
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
            let _ = tokio::time::timeout(LEADER_POLL, changed).await;
        }
    }
}

/// Returns the slot by which a command is routed, or `None` if it is about all slots of a region.
/// Commands without keys, such as those with errors in their arguments, go to the first slot.
fn slot_of(item: &Item) -> Option<Slot> {
    match item.slot {
        ItemSlot::One(slot) => Some(slot),
        ItemSlot::Any | ItemSlot::Several => item.spec.spanning().is_none().then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::RegionChange;

    use super::*;
    use crate::fixture::Fixture;
    use crate::loops::{Asker, ToWorker};
    use node::Leadership;
    use node::{Outcome, Submit, Work};

    /// Returns a store that leads the one region of a cluster.
    fn leader() -> Fixture {
        let fixture = Fixture::with(|config| config.cluster_enabled = true);
        lead(&fixture, 1);
        fixture
    }

    fn lead(fixture: &Fixture, region: u64) {
        let led = Leadership { term: 6, leader: Some(fixture.store.id) };
        fixture.store.regions.lead(region, led);
    }

    fn item(line: &str) -> Item {
        Item::new(line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect(), 0, false)
            .unwrap()
    }

    /// Splits region 1 so that `foo` (slot 12182) is in region 2, and `bar` (5061) stays.
    fn split(fixture: &Fixture) {
        let whole = fixture.store.regions.get(1).unwrap().descriptor();
        let changed = whole.after(&RegionChange::Split { at: 8000, new_region: 2 }).unwrap();
        fixture.store.regions.set_local(&[changed.region, changed.split_off.unwrap()]);
        lead(fixture, 2);
    }

    async fn next(fixture: &Fixture) -> Submit<Asker> {
        loop {
            match fixture.told().next() {
                Some(ToWorker::Shard(node::Input::Submit(submit))) => return submit,
                Some(_) => {}
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    fn names(submit: &Submit<Asker>) -> Vec<String> {
        let Work::Commands(items) = &submit.work else { panic!("only commands are expected") };
        items.iter().map(|item| String::from_utf8_lossy(&item.args[1]).into_owned()).collect()
    }

    fn execute(fixture: &Fixture, lines: &[&str]) -> tokio::task::JoinHandle<Vec<Answer>> {
        let (store, items) = (fixture.store.clone(), lines.iter().map(|line| item(line)).collect());
        let region = store.regions.get(1).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        tokio::spawn(async move { store.execute(&region, Arc::new(items), deadline).await })
    }

    fn replies(answers: Vec<Answer>) -> Vec<Reply> {
        answers.into_iter().map(Answer::into_reply).collect()
    }

    #[test]
    fn commands_without_keys_go_to_the_first_slot_unless_they_are_about_all() {
        assert_eq!(slot_of(&item("GET foo")), Some(12182));
        assert_eq!(slot_of(&item("XREAD COUNT 1 foo 0")), Some(0));
        assert_eq!((slot_of(&item("DBSIZE")), slot_of(&item("SCAN 0"))), (None, None));
    }

    #[tokio::test]
    async fn what_was_not_executed_goes_to_the_region_that_has_the_slot_now() {
        let fixture = leader();
        let running = execute(&fixture, &["SET foo 1", "SET bar 2", "INCR foo"]);
        let first = next(&fixture).await;
        assert_eq!((first.region, names(&first)), (1, vec!["foo".into(), "bar".into(), "foo".into()]));
        // The command is proposed, and the split is applied before it.
        split(&fixture);
        first.client.answer(Outcome::Applied(vec![None, Some(Reply::OK), None]));
        let second = next(&fixture).await;
        assert_eq!((second.region, names(&second)), (2, vec!["foo".into(), "foo".into()]), "in their order");
        second.client.answer(Outcome::Applied(vec![Some(Reply::OK), Some(Reply::Int(2))]));
        assert_eq!(replies(running.await.unwrap()), [Reply::OK, Reply::OK, Reply::Int(2)]);
    }

    #[tokio::test]
    async fn what_may_have_been_executed_goes_nowhere_else() {
        let fixture = leader();
        let running = execute(&fixture, &["SET foo 1"]);
        let first = next(&fixture).await;
        split(&fixture);
        first.client.answer(Outcome::Unknown);
        assert_eq!(replies(running.await.unwrap()), [unknown_outcome()]);
        assert!(fixture.told().next().is_none());
    }

    #[tokio::test]
    async fn a_group_for_a_region_that_was_split_before_is_never_proposed_there() {
        let fixture = leader();
        let one = fixture.store.regions.get(1).unwrap();
        split(&fixture);
        assert_eq!(one.id(), 1);
        let running = execute(&fixture, &["SET foo 1", "SET bar 2"]);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let submit = next(&fixture).await;
            seen.push((submit.region, names(&submit)));
            submit.client.answer(Outcome::Applied(vec![Some(Reply::OK)]));
        }
        seen.sort();
        assert_eq!(seen, [(1, vec!["bar".to_owned()]), (2, vec!["foo".to_owned()])]);
        assert_eq!(replies(running.await.unwrap()), [Reply::OK, Reply::OK]);
    }

    #[test]
    fn a_command_of_a_later_version_is_refused_until_the_cluster_has_that_version() {
        let fixture = leader();
        for line in ["SADD foo x", "SCARD foo", "SUNIONSTORE foo foo"] {
            let name = line.split(' ').next().unwrap().to_lowercase();
            let expected = format!(
                "ERR '{name}' needs version 3 of the cluster, and it has 1: see steelyard ctl versions"
            );
            assert_eq!(fixture.store.route(&item(line)).err(), Some(Reply::error(expected)));
        }
        assert!(fixture.store.route(&item("HSET foo f v")).is_ok());
        fixture.store.membership.version.raise(types::THIRD_VERSION);
        assert!(fixture.store.route(&item("SADD foo x")).is_ok());
    }

    #[tokio::test]
    async fn a_command_about_a_whole_region_is_not_executed_in_a_part_of_it() {
        let fixture = leader();
        let one = fixture.store.regions.get(1).unwrap();
        let version = one.newest().epoch.version;
        split(&fixture);
        let flush = Arc::new(vec![item("FLUSHALL SYNC")]);
        let deadline = Instant::now() + Duration::from_secs(60);
        let refused = fixture.store.execute_here(&one, version, flush.clone(), Origin::Here, deadline).await;
        assert!(matches!(refused, Err(NotDone::NotLeader)));
        assert!(fixture.told().next().is_none());
        let store = fixture.store.clone();
        let running = tokio::spawn(async move {
            store.execute_here(&one, version + 1, flush, Origin::Here, deadline).await.is_ok()
        });
        next(&fixture).await.client.answer(Outcome::Applied(vec![Some(Reply::OK)]));
        assert!(running.await.unwrap());
    }
}
