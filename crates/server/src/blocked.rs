//! Clients of this store that wait for elements of lists and sorted sets, and for entries of
//! streams.
//!
//! A waiting client has a place in the queue of each of its keys, in the order of arrival. When an
//! executed entry leaves elements under a key, the key becomes ready. Then the attempts of the
//! clients at the front of its queue are proposed, in their order and in one entry, and the clients
//! whose attempts took something are answered. A client whose attempt took nothing keeps its place.
//!
//! A client enters the queues before its first attempt. So a key that becomes ready between that
//! attempt and the wait is not missed: the attempts after it include this client. A client has at
//! most one attempt under way, so it never takes twice.
//!
//! Entries of a stream are for all who wait, or for one consumer of each group. So when a stream
//! has grown, all clients of its queue get their turn, in their order. Once a consumer gets
//! nothing, the others of its group are passed over. Clients that read as consumers also get their
//! turn when the stream or a group is deleted, which ends their wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use command::blocking::{attempt, moves, Awaited, Wait};
use command::transaction::lookup_in_log;
use node::{Answer, Item};
use parking_lot::Mutex;
use resp::Reply;
use storage::rows::{decode_key_row, Part};
use storage::{Meta, StreamId, Value, WriteSet};
use tokio::sync::{mpsc, oneshot};

/// Maximum number of attempts in one entry.
pub const ATTEMPTS_MAX: usize = 64;

/// A key that clients wait for: its database, its name, and the type of value that they wait for.
pub type Place = (u16, Bytes, Awaited);

struct Waiter {
    /// The number of the client's connection.
    client: u64,
    item: Item,
    wait: Wait,
    is_trying: bool,
    /// Keys that became ready while an attempt for another key was under way.
    missed: Vec<Place>,
    /// The answer if the attempt under way takes nothing.
    ends_with: Option<Reply>,
    answer: oneshot::Sender<Answer>,
}

#[derive(Default)]
struct Queue {
    waiters: VecDeque<u64>,
    /// True while a task proposes attempts for the key.
    is_served: bool,
    /// True if the key may have elements that no attempt has looked for.
    is_ready: bool,
    /// The turns of the clients that wait for a stream, while there are any.
    turns: Option<Turns>,
    /// The generation and the last ID that the stream had when it was last looked at.
    seen: Option<(u64, StreamId)>,
}

/// The turns of the clients that wait for a stream.
#[derive(Default)]
struct Turns {
    /// The number of the last client that had its turn.
    last: u64,
    /// Groups that have no new entries.
    exhausted: BTreeSet<Bytes>,
}

#[derive(Default)]
struct State {
    last: u64,
    waiters: BTreeMap<u64, Waiter>,
    queues: BTreeMap<Place, Queue>,
    /// The number of the waiters that wait for streams.
    of_streams: usize,
}

pub struct Blocked {
    state: Mutex<State>,
    count: AtomicUsize,
    /// The number of clients that wait for streams.
    of_streams: AtomicUsize,
    /// The number of the last client that has come.
    last: AtomicU64,
    ready: mpsc::UnboundedSender<Place>,
    places: Mutex<Option<mpsc::UnboundedReceiver<Place>>>,
}

impl Default for Blocked {
    fn default() -> Blocked {
        let (ready, places) = mpsc::unbounded_channel();
        Blocked {
            state: Mutex::default(),
            count: AtomicUsize::new(0),
            of_streams: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            ready,
            places: Mutex::new(Some(places)),
        }
    }
}

/// A client's places in the queues. Dropping it leaves them.
pub struct Seat {
    blocked: Arc<Blocked>,
    number: u64,
    pub answer: oneshot::Receiver<Answer>,
    /// The keys for which no other client waits. The first attempt takes from these.
    pub free: Vec<Bytes>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let left = self.blocked.state.lock().leave(self.number);
        self.blocked.recount();
        left.iter().flat_map(|waiter| &waiter.missed).for_each(|place| self.blocked.look_at(place));
    }
}

/// An attempt to propose.
pub struct Attempt {
    pub number: u64,
    pub item: Item,
    /// The group as which the client reads streams.
    group: Option<Bytes>,
}

/// Returns true if an attempt took nothing.
pub fn is_nothing(answer: &Answer) -> bool {
    match answer {
        Answer::Reply(reply) => matches!(reply, Reply::Nil | Reply::NilArray),
        Answer::Encoded(bytes) => [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"].contains(&&bytes[..]),
    }
}

/// Returns the text of an error.
fn error_of(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Reply(Reply::Error(text)) => Some(text.to_string()),
        Answer::Encoded(bytes) if bytes.first() == Some(&b'-') => {
            Some(String::from_utf8_lossy(&bytes[1..]).into_owned())
        }
        Answer::Reply(_) | Answer::Encoded(_) => None,
    }
}

/// The consequence of an attempt for a client that waits.
enum Taken {
    Answered(Answer),
    /// The client keeps its place.
    Nothing,
    /// The outcome is unknown, and so is whether others can take something.
    Unknown(Answer),
    /// Nothing was proposed, so the attempt should be repeated.
    NotProposed,
}

fn result_of(answer: Answer, waiter: &Waiter) -> Taken {
    if is_nothing(&answer) {
        return Taken::Nothing;
    }
    match error_of(&answer) {
        Some(text) if ["CLUSTERDOWN ", "MOVED ", "TRYAGAIN "].iter().any(|code| text.starts_with(code)) => {
            Taken::NotProposed
        }
        // A key of another type has no elements for this client. The destination of a move may have
        // the wrong type, too, which ends the wait as in Redis.
        Some(text) if text.starts_with("WRONGTYPE ") && !moves(waiter.item.spec) => Taken::Nothing,
        Some(text) if text.starts_with("UNKNOWN ") => Taken::Unknown(answer),
        _ => Taken::Answered(answer),
    }
}

impl Waiter {
    /// Begins an attempt for a key.
    fn attempt(&mut self, number: u64, place: &Place) -> Attempt {
        self.is_trying = true;
        let args = attempt(self.item.spec, &self.item.args, std::slice::from_ref(&place.1));
        let spec = lookup_in_log(&args[0]).unwrap_or(self.item.spec);
        let group = self.wait.group.clone();
        Attempt { number, item: Item { args, spec, ..self.item.clone() }, group }
    }
}

/// Returns the attempts of the clients whose turn it is at a stream: reads, or up to `count`
/// writes.
fn next_turns(
    waiters: &mut BTreeMap<u64, Waiter>,
    queue: &mut Queue,
    place: &Place,
    count: usize,
) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    let Some(turns) = &mut queue.turns else { return attempts };
    let from = queue.waiters.partition_point(|number| *number <= turns.last);
    for number in queue.waiters.range(from..) {
        let Some(waiter) = waiters.get_mut(number) else { continue };
        let is_write = waiter.item.is_write();
        let most = if is_write { count.min(ATTEMPTS_MAX) } else { ATTEMPTS_MAX };
        let is_other = attempts.first().is_some_and(|first| first.item.is_write() != is_write);
        if is_other || attempts.len() >= most {
            break;
        }
        turns.last = *number;
        if waiter.wait.group.as_ref().is_some_and(|group| turns.exhausted.contains(group)) {
            continue;
        }
        if waiter.is_trying {
            // The stream is looked at again after that attempt.
            if !waiter.missed.contains(place) {
                waiter.missed.push(place.clone());
            }
            continue;
        }
        attempts.push(waiter.attempt(*number, place));
    }
    if attempts.is_empty() {
        queue.turns = None;
    }
    attempts
}

impl State {
    fn leave(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&number)?;
        self.of_streams -= usize::from(waiter.wait.awaited == Awaited::Stream);
        for key in &waiter.wait.keys {
            let place = (waiter.item.db, key.clone(), waiter.wait.awaited);
            let Some(queue) = self.queues.get_mut(&place) else { continue };
            // The numbers ascend.
            if let Ok(at) = queue.waiters.binary_search(&number) {
                queue.waiters.remove(at);
            }
            if queue.waiters.is_empty() && !queue.is_served {
                self.queues.remove(&place);
            }
        }
        Some(waiter)
    }
}

impl Blocked {
    /// Returns the keys whose attempts should be proposed. One task takes them.
    pub fn take_ready(&self) -> Option<mpsc::UnboundedReceiver<Place>> {
        self.places.lock().take()
    }

    /// Returns the number of clients that wait.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn recount(&self) {
        self.count_in(&self.state.lock());
    }

    /// Publishes the numbers of clients, under the lock, so that the last change counts.
    fn count_in(&self, state: &State) {
        self.of_streams.store(state.of_streams, Ordering::SeqCst);
        self.count.store(state.waiters.len(), Ordering::SeqCst);
    }

    /// Gives a client its places. Its first attempt counts as under way if some of its keys are
    /// free, as streams always are.
    pub fn enter(self: &Arc<Blocked>, client: u64, item: &Item, wait: &Wait) -> Seat {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        let mut free = Vec::new();
        for key in &wait.keys {
            let queue = state.queues.entry((item.db, key.clone(), wait.awaited)).or_default();
            if queue.waiters.is_empty() || wait.awaited == Awaited::Stream {
                free.push(key.clone());
            }
            queue.waiters.push_back(number);
        }
        let waiter = Waiter {
            client,
            item: item.clone(),
            wait: wait.clone(),
            is_trying: !free.is_empty(),
            missed: Vec::new(),
            ends_with: None,
            answer: sender,
        };
        state.of_streams += usize::from(wait.awaited == Awaited::Stream);
        state.waiters.insert(number, waiter);
        self.count_in(&state);
        // This is stored last: a thread that reads this number then also sees this client in the
        // counts.
        self.last.store(number, Ordering::SeqCst);
        drop(state);
        Seat { blocked: self.clone(), number, answer, free }
    }

    /// Ends the first attempt of a client, which took nothing.
    pub fn waits(&self, seat: &Seat) {
        self.end_attempt(seat.number, Reply::NilArray.into());
    }

    /// Has attempts proposed for a key, because it may have elements.
    pub fn look_at(&self, place: &Place) {
        let mut state = self.state.lock();
        let Some(queue) = state.queues.get_mut(place) else { return };
        queue.is_ready = true;
        if !std::mem::replace(&mut queue.is_served, true) {
            let _ = self.ready.send(place.clone());
        }
    }

    /// Has attempts proposed for all keys, because many rows have changed.
    pub fn look_at_all(&self) {
        if self.count() == 0 {
            return;
        }
        let places: Vec<Place> = self.state.lock().queues.keys().cloned().collect();
        places.iter().for_each(|place| self.look_at(place));
    }

    /// Returns the number of the last client that has come.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::SeqCst)
    }

    /// Has attempts proposed for the keys of the clients that came after a client. An attempt that
    /// reads the rows as they are may have looked between [`fed_by`](Self::fed_by), which did not
    /// know its client yet, and the write.
    pub fn look_at_those_behind(&self, last: u64) {
        if self.last() == last {
            return;
        }
        let places: BTreeSet<Place> = {
            let state = self.state.lock();
            let behind = state.waiters.range(last + 1..).map(|(_, waiter)| waiter);
            behind
                .flat_map(|Waiter { item, wait, .. }| {
                    wait.keys.iter().map(|key| (item.db, key.clone(), wait.awaited))
                })
                .collect()
        };
        places.iter().for_each(|place| self.look_at(place));
    }

    /// Returns the awaited keys that have elements after these writes, and the awaited streams that
    /// have grown by them, or were deleted or replaced, or have lost a group.
    pub fn fed_by(&self, writes: &WriteSet) -> Vec<Place> {
        if self.count() == 0 {
            return Vec::new();
        }
        let are_streams_awaited = self.of_streams.load(Ordering::SeqCst) > 0;
        let mut fed = Vec::new();
        let mut streams = Vec::new();
        for (row, value) in &writes.rows {
            let Ok((key, part)) = decode_key_row(row) else { continue };
            let value = match (part, value) {
                (Part::Meta, Some(value)) => Meta::decode(value).ok().map(|meta| meta.value),
                (Part::Meta, None) | (Part::Group { .. }, None) => None,
                _ => continue,
            };
            let place = |awaited| (key.db, Bytes::copy_from_slice(key.key), awaited);
            match value {
                Some(Value::List { .. }) => fed.push(place(Awaited::List)),
                Some(Value::SortedSet { .. }) => fed.push(place(Awaited::SortedSet)),
                _ => {}
            }
            if are_streams_awaited {
                let seen = match value {
                    Some(Value::Stream(stream)) => Some((stream.generation, stream.last_id)),
                    _ => None,
                };
                streams.push((place(Awaited::Stream), seen));
            }
        }
        if are_streams_awaited {
            fed.extend(self.changed_streams(streams, !writes.ranges_deleted.is_empty()));
        }
        fed
    }

    /// Returns the awaited streams among keys that were written, unless they look as they did. With
    /// `all`, all awaited streams may have changed.
    fn changed_streams(&self, written: Vec<(Place, Option<(u64, StreamId)>)>, all: bool) -> Vec<Place> {
        let mut state = self.state.lock();
        if all {
            let streams = state.queues.iter_mut().filter(|((_, _, awaited), _)| *awaited == Awaited::Stream);
            return streams
                .map(|(place, queue)| {
                    queue.seen = None;
                    place.clone()
                })
                .collect();
        }
        let changed = written.into_iter().filter(|(place, seen)| {
            let Some(queue) = state.queues.get_mut(place) else { return false };
            let is_changed = seen.is_none() || queue.seen != *seen;
            queue.seen = *seen;
            is_changed
        });
        changed.map(|(place, _)| place).collect()
    }

    /// Returns the next attempts for a key: up to `count` from the front of its queue. If there is
    /// nothing to look for, the task for the key ends.
    pub fn next(&self, place: &Place, count: usize) -> Vec<Attempt> {
        let mut state = self.state.lock();
        let State { waiters, queues, .. } = &mut *state;
        let Some(queue) = queues.get_mut(place) else { return Vec::new() };
        let mut attempts = Vec::new();
        if place.2 == Awaited::Stream {
            if std::mem::take(&mut queue.is_ready) {
                queue.turns = Some(Turns::default());
            }
            attempts = next_turns(waiters, queue, place, count);
        } else if std::mem::take(&mut queue.is_ready) {
            for number in &queue.waiters {
                let Some(waiter) = waiters.get_mut(number) else { continue };
                if waiter.is_trying {
                    // The others wait for the end of that attempt, so that none overtakes. Then the
                    // key is looked at again.
                    if !waiter.missed.contains(place) {
                        waiter.missed.push(place.clone());
                    }
                    break;
                }
                attempts.push(waiter.attempt(*number, place));
                if attempts.len() == count.min(ATTEMPTS_MAX) {
                    break;
                }
            }
        }
        if attempts.is_empty() {
            queue.is_served = false;
            if queue.waiters.is_empty() {
                queues.remove(place);
            }
        }
        attempts
    }

    /// Ends attempts for a key. Returns true if all of them took something, so that there may be
    /// more, and `None` if the attempts behind them should be made after a pause.
    pub fn ended(&self, place: &Place, attempts: &[Attempt], answers: Vec<Answer>) -> Option<bool> {
        let answered = answers.len();
        let mut took_all = answered == attempts.len();
        let mut is_proposed = true;
        for (attempt, answer) in attempts.iter().zip(answers) {
            let is_error = error_of(&answer).is_some();
            match self.end_attempt(attempt.number, answer) {
                // The client has gone, perhaps with an element.
                None => took_all &= !is_error,
                Some(Ended::Took) => {}
                Some(Ended::Nothing) => {
                    took_all = false;
                    if let Some(group) = &attempt.group {
                        self.exhaust(place, group);
                    }
                }
                Some(Ended::NotProposed) => (took_all, is_proposed) = (false, false),
            }
        }
        // Large replies may leave some reads without an answer.
        for attempt in attempts.iter().skip(answered) {
            self.end_attempt(attempt.number, Reply::NilArray.into());
        }
        let is_repeated = match place.2 {
            Awaited::Stream => answered < attempts.len(),
            Awaited::List | Awaited::SortedSet => took_all,
        };
        if is_repeated || !is_proposed {
            if let Some(queue) = self.state.lock().queues.get_mut(place) {
                queue.is_ready = true;
            }
        }
        is_proposed.then_some(took_all)
    }

    /// Passes over the other clients of a group, which has no new entries.
    fn exhaust(&self, place: &Place, group: &Bytes) {
        let mut state = self.state.lock();
        if let Some(turns) = state.queues.get_mut(place).and_then(|queue| queue.turns.as_mut()) {
            turns.exhausted.insert(group.clone());
        }
    }

    fn end_attempt(&self, number: u64, answer: Answer) -> Option<Ended> {
        let mut state = self.state.lock();
        let waiter = state.waiters.get_mut(&number)?;
        waiter.is_trying = false;
        let missed = std::mem::take(&mut waiter.missed);
        let (ended, answer) = match result_of(answer, waiter) {
            Taken::Answered(answer) => (Ended::Took, Some(answer)),
            Taken::Unknown(answer) => (Ended::NotProposed, Some(answer)),
            Taken::Nothing => (Ended::Nothing, waiter.ends_with.take().map(Answer::from)),
            Taken::NotProposed => (Ended::NotProposed, waiter.ends_with.take().map(Answer::from)),
        };
        if let Some(answer) = answer {
            if let Some(waiter) = state.leave(number) {
                let _ = waiter.answer.send(answer);
            }
        }
        drop(state);
        self.recount();
        // A client that is served may have stood in the way of others at these keys.
        missed.iter().for_each(|place| self.look_at(place));
        Some(ended)
    }

    /// Ends a client's wait with this reply, or, if an attempt is under way, with what that takes.
    pub fn end(&self, seat: &Seat, reply: Reply) {
        self.end_wait(seat.number, reply);
    }

    fn end_wait(&self, number: u64, reply: Reply) {
        let mut state = self.state.lock();
        let Some(waiter) = state.waiters.get_mut(&number) else { return };
        if waiter.is_trying {
            waiter.ends_with = Some(reply);
        } else if let Some(waiter) = state.leave(number) {
            let _ = waiter.answer.send(reply.into());
        }
        drop(state);
        self.recount();
    }

    /// Ends the wait of a connection, for `CLIENT UNBLOCK`. Returns false if it does not wait.
    pub fn unblock(&self, client: u64, reply: Reply) -> bool {
        let found = self.state.lock().waiters.iter().find(|(_, of)| of.client == client).map(|(at, _)| *at);
        found.inspect(|number| self.end_wait(*number, reply)).is_some()
    }
}

/// The end of an attempt, for the others that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Took,
    Nothing,
    NotProposed,
}

#[cfg(test)]
mod tests;
