//! Commands that wait for a proposal, and proposals that wait for their outcome.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use command::entry::Builder;
use command::order::Order;
use resp::Reply;
use types::{BootNanos, LogIndex, RegionId, Thresholds, UnixMillis, Version};

use crate::failpoints::Failpoint;
use crate::work::{Outcome, Refusal, Submit, Work};

/// Maximum bytes of commands in one Raft entry; a single command may be larger. Entries are
/// executed one by one, so the clients of an entry are answered before the next one begins.
const ENTRY_BYTES_MAX: usize = 64 << 10;
/// Maximum number of keys or rows that one maintenance step of a slot deletes.
const MAINTENANCE_STEP: u32 = 256;
/// Number of rows that the slots of one sweep share, if they are few: removals in parts leave large
/// sorted sets to it again and again. With more slots, each has a maintenance step.
const SWEPT_ROWS: u32 = 2048;

/// The clients of one proposed entry, in the order of their commands.
#[derive(Debug)]
pub struct Waiting<C> {
    region: RegionId,
    seed: u64,
    clients: Vec<Client<C>>,
}

#[derive(Debug)]
struct Client<C> {
    /// The client; `None` if it was answered before its entry was executed.
    to: Option<C>,
    commands: usize,
    deadline: BootNanos,
    author: u64,
}

impl<C> Waiting<C> {
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// Returns the entry's seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the author of each command, or 0.
    pub fn authors(&self) -> impl Iterator<Item = u64> + '_ {
        self.clients.iter().flat_map(|client| std::iter::repeat_n(client.author, client.commands))
    }

    /// Returns each client's share of the entry's replies.
    pub fn answers(self, replies: Vec<Option<Reply>>) -> impl Iterator<Item = (C, Outcome)> {
        let mut replies = replies.into_iter();
        self.clients.into_iter().filter_map(move |client| {
            let own: Vec<Option<Reply>> = replies.by_ref().take(client.commands).collect();
            Some((client.to?, Outcome::Applied(own)))
        })
    }

    /// Returns the clients that were not answered before.
    pub fn clients(self) -> impl Iterator<Item = C> {
        self.clients.into_iter().filter_map(|client| client.to)
    }
}

/// An entry to propose. Clients wait for it under the token.
pub(crate) struct Proposal {
    pub region: RegionId,
    pub token: u64,
    pub payload: Bytes,
    /// An order for a region whose leader is quarantined.
    pub is_skip: bool,
}

/// The proposals that a region accepts at the moment.
pub(crate) enum May {
    /// Everything but a skip, in at most this number of entries. This store leads the region.
    Propose(u64),
    /// Only a skip of this entry. The leader is quarantined there.
    Skip(LogIndex),
    /// Nothing, because this store does not lead the region.
    Refuse,
    /// Nothing for a while; commands wait.
    Wait,
}

impl May {
    fn takes(&self, work: &Work) -> bool {
        match (work, self) {
            (_, May::Wait) => true,
            (Work::Order(Order::Skip(index)), May::Skip(expected)) => index == expected,
            (Work::Order(Order::Skip(_)), _) => false,
            (_, may) => matches!(may, May::Propose(_)),
        }
    }

    /// Returns the submissions that the region accepts, and adds the clients of the others to
    /// `refused`.
    fn split_off<C>(&self, queue: VecDeque<Submit<C>>, refused: &mut Vec<C>) -> VecDeque<Submit<C>> {
        let takes = |submit: &Submit<C>| self.takes(&submit.work);
        if queue.iter().all(takes) {
            return queue;
        }
        let (taken, unfit): (VecDeque<_>, VecDeque<_>) = queue.into_iter().partition(takes);
        refused.extend(unfit.into_iter().map(|submit| submit.client));
        taken
    }
}

pub(crate) struct Queue<C> {
    queues: BTreeMap<RegionId, VecDeque<Submit<C>>>,
    proposed: BTreeMap<u64, Waiting<C>>,
}

impl<C> Default for Queue<C> {
    fn default() -> Queue<C> {
        Queue { queues: BTreeMap::new(), proposed: BTreeMap::new() }
    }
}

/// The cluster's version in which entries are written, and the thresholds that they carry.
pub type Form = (Version, Thresholds);

impl<C> Queue<C> {
    pub fn add(&mut self, submit: Submit<C>) {
        self.queues.entry(submit.region).or_default().push_back(submit);
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Builds one entry for each region from its waiting submissions, or more if one would be too
    /// large. Submissions for which the region's window has no room keep waiting. Entries are
    /// written in the `form`'s version, and carry its thresholds and the timestamp `stamp`. `may`
    /// decides whether a region accepts proposals now. If this store does not lead the region, its
    /// clients are returned in `refused`. If the region accepts no proposals for a while, they keep
    /// waiting. `token` returns a number that no other entry has. The entry's seed is derived from
    /// it and `seed`.
    pub fn build(
        &mut self,
        (form, stamp, seed): (Form, UnixMillis, u64),
        may: impl Fn(RegionId) -> May,
        mut token: impl FnMut() -> u64,
        refused: &mut Vec<C>,
    ) -> Vec<Proposal> {
        let mut made = Vec::new();
        for (region, queue) in std::mem::take(&mut self.queues) {
            let may = may(region);
            if let May::Wait = may {
                self.queues.insert(region, queue);
                continue;
            }
            let mut queue = may.split_off(queue, refused);
            let mut room = if let May::Propose(room) = may { room } else { u64::MAX };
            while room > 0 {
                let Some(first) = queue.pop_front() else { break };
                room -= 1;
                let token = token();
                let seed = seed ^ token.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let alone =
                    |client, deadline| vec![Client { to: Some(client), commands: 1, deadline, author: 0 }];
                let (payload, clients) = match first.work {
                    Work::Meta(command) => {
                        (cluster::encode_entry(stamp, &command), alone(first.client, first.deadline))
                    }
                    Work::Order(order) => (order.encode(), alone(first.client, first.deadline)),
                    Work::Commands(_) | Work::Encoded(_) | Work::Maintenance(_) => {
                        merge(first, &mut queue, (form, stamp, seed))
                    }
                };
                self.proposed.insert(token, Waiting { region, seed, clients });
                let is_skip = matches!(may, May::Skip(_));
                made.push(Proposal { region, token, payload, is_skip });
            }
            if !queue.is_empty() {
                self.queues.insert(region, queue);
            }
        }
        made
    }

    /// Moves the clients whose region does not accept their commands to `refused`.
    pub fn refuse(&mut self, may: impl Fn(RegionId) -> May, refused: &mut Vec<C>) {
        for (region, queue) in &mut self.queues {
            *queue = may(*region).split_off(std::mem::take(queue), refused);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
    }

    pub fn take(&mut self, token: u64) -> Option<Waiting<C>> {
        self.proposed.remove(&token)
    }

    /// Returns the seed of the token's entry and the clients that wait for it.
    pub fn waiting(&self, token: u64) -> Option<(u64, impl Iterator<Item = (&C, usize)>)> {
        let waiting = self.proposed.get(&token)?;
        let clients =
            waiting.clients.iter().filter_map(|client| Some((client.to.as_ref()?, client.commands)));
        Some((waiting.seed, clients))
    }

    /// Answers all clients whose deadline has passed. Queued submissions were not proposed; the
    /// outcome of proposed ones is unknown. Returns the entries for which no client waits any more.
    pub fn expire(&mut self, now: BootNanos, answers: &mut Vec<(C, Outcome)>) -> Vec<(RegionId, u64)> {
        for queue in self.queues.values_mut() {
            let (late, waiting): (VecDeque<_>, _) =
                queue.drain(..).partition(|submit| submit.deadline <= now);
            *queue = waiting;
            answers
                .extend(late.into_iter().map(|submit| (submit.client, Outcome::Refused(Refusal::TooLate))));
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        let mut ended = Vec::new();
        self.proposed.retain(|token, waiting| {
            let late = waiting.clients.iter_mut().filter(|client| client.deadline <= now);
            let outcome = match Failpoint::RefuseWhatIsLate.is_on() {
                true => Outcome::Refused(Refusal::TooLate),
                false => Outcome::Unknown,
            };
            answers.extend(late.filter_map(|client| Some((client.to.take()?, outcome.clone()))));
            let is_over = waiting.clients.iter().all(|client| client.to.is_none());
            if is_over {
                ended.push((waiting.region, *token));
            }
            !is_over
        });
        ended
    }
}

/// Merges the first submission, and as many of the following ones as fit, into one entry.
fn merge<C>(
    first: Submit<C>,
    queue: &mut VecDeque<Submit<C>>,
    (form, stamp, seed): (Form, UnixMillis, u64),
) -> (Bytes, Vec<Client<C>>) {
    let mut builder = Builder::with_capacity(likely_bytes(&first, queue));
    let mut clients = Vec::new();
    let mut next = Some(first);
    while let Some(submit) = next {
        let before = builder.len();
        let Submit { work, client, deadline, author, .. } = submit;
        match work {
            Work::Commands(items) => {
                items.iter().for_each(|item| builder.push(item.db, item.resp3, &item.args));
            }
            Work::Encoded(items) => builder.append(items),
            Work::Maintenance(slots) => {
                slots.expire.iter().for_each(|slot| builder.push_expire_due(*slot, MAINTENANCE_STEP));
                let share = SWEPT_ROWS / u32::try_from(slots.sweep.len()).unwrap_or(u32::MAX).max(1);
                let step = share.max(MAINTENANCE_STEP);
                slots.sweep.iter().for_each(|slot| builder.push_sweep(*slot, step));
            }
            Work::Meta(_) | Work::Order(_) => unreachable!("these are entries of their own"),
        }
        let commands = builder.len() - before;
        clients.push(Client { to: Some(client), commands, deadline, author });
        let has_room = |submit: &Submit<C>| {
            let is_alone = matches!(submit.work, Work::Meta(_) | Work::Order(_));
            !is_alone && builder.bytes() + submit.work.bytes() <= ENTRY_BYTES_MAX
        };
        next = if queue.front().is_some_and(has_room) { queue.pop_front() } else { None };
    }
    (builder.finish_with(form, stamp, seed), clients)
}

/// Returns the approximate bytes of the entry that begins with the first submission. The estimate
/// is never too small for that submission alone, unless the submission is already encoded.
fn likely_bytes<C>(first: &Submit<C>, behind: &VecDeque<Submit<C>>) -> usize {
    if let Work::Encoded(_) = first.work {
        return 0;
    }
    let first = first.work.bytes();
    let mut bytes = first;
    for submit in behind {
        if bytes >= ENTRY_BYTES_MAX {
            break;
        }
        bytes += submit.work.bytes();
    }
    bytes.min(ENTRY_BYTES_MAX.max(first))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::item::Item;

    fn set(value: Vec<u8>) -> Arc<Vec<Item>> {
        let args = vec![Bytes::from_static(b"SET"), Bytes::from_static(b"k"), value.into()];
        Arc::new(vec![Item::new(args, 0, false).unwrap()])
    }

    fn built(works: Vec<Work>) -> Vec<Bytes> {
        let mut queue = Queue::default();
        for (client, work) in works.into_iter().enumerate() {
            queue.add(Submit { region: 1, work, deadline: 0, author: 0, client });
        }
        let mut token = 0;
        let next = || {
            token += 1;
            token
        };
        let proposals = queue.build(
            ((1, Thresholds::default()), 5, 6),
            |_| May::Propose(u64::MAX),
            next,
            &mut Vec::new(),
        );
        proposals.into_iter().map(|proposal| proposal.payload).collect()
    }

    #[test]
    fn a_window_takes_as_many_entries_as_it_has_room_for_and_the_rest_in_order_later() {
        let mut queue = Queue::default();
        // Each of these is an entry of its own.
        let large = |first: u8| vec![first; ENTRY_BYTES_MAX];
        for client in 0..3u8 {
            let work = Work::Commands(set(large(client)));
            queue.add(Submit { region: 1, work, deadline: 0, author: 0, client: usize::from(client) });
        }
        let work = Work::Commands(set(large(9)));
        queue.add(Submit { region: 2, work, deadline: 0, author: 0, client: 9 });
        let mut token = 0;
        let mut build = |queue: &mut Queue<usize>, room: u64| {
            let may = |region| match (region, room) {
                (1, 0) => May::Wait,
                (1, room) => May::Propose(room),
                _ => May::Propose(u64::MAX),
            };
            let next = || {
                token += 1;
                token
            };
            let proposals = queue.build(((1, Thresholds::default()), 5, 6), may, next, &mut Vec::new());
            proposals.iter().map(|proposal| proposal.region).collect::<Vec<_>>()
        };
        assert_eq!(build(&mut queue, 0), [2]);
        assert_eq!(build(&mut queue, 2), [1, 1]);
        let clients = |queue: &Queue<usize>, token| {
            queue.waiting(token).map(|(_, clients)| clients.map(|(client, _)| *client).collect::<Vec<_>>())
        };
        assert_eq!((clients(&queue, 2), clients(&queue, 3)), (Some(vec![0]), Some(vec![1])));
        assert_eq!(build(&mut queue, 2), [1]);
        assert_eq!(clients(&queue, 4), Some(vec![2]));
        assert!(queue.is_empty());
    }

    #[test]
    fn commands_that_are_encoded_make_the_same_entries_without_another_copy() {
        let encoded = |items: &[Item]| {
            let mut builder = Builder::new();
            items.iter().for_each(|item| builder.push(item.db, item.resp3, &item.args));
            builder
        };
        let (large, small) = (set(vec![7; crate::COPIED_BYTES_MAX]), set(vec![8; 10]));
        let work = |items: &Arc<Vec<Item>>| Work::Commands(items.clone());
        let expected = built(vec![work(&large), work(&small), work(&large), work(&small)]);
        assert_eq!(expected.len(), 4);
        let first = encoded(&large);
        let at = first.as_ptr_range();
        let works = vec![Work::Encoded(first), work(&small), Work::Encoded(encoded(&large)), work(&small)];
        let entries = built(works);
        assert_eq!(entries, expected);
        assert_eq!(entries[0].as_ptr_range(), at, "the bytes are those that were submitted");
        let of_small = [work(&small), Work::Encoded(encoded(&small)), work(&small)];
        assert_eq!(built(of_small.to_vec()), built(vec![work(&small); 3]));
    }
}
