//! Commands that wait for elements: the first attempt, the wait, and the attempts for keys that
//! have elements again. `blocked` has the queues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use command::blocking::{attempt, last_ids_question, wait_of, with_last_ids, Awaited, Wait};
use command::transaction::lookup_in_log;
use node::{Answer, Item, ItemSlot};
use resp::Reply;
use tokio::sync::mpsc;
use types::RegionId;

use crate::blocked::{is_nothing, Place, Seat, ATTEMPTS_MAX};
use crate::connections::ListenerKind;
use crate::store::{Route, Store};

/// Pause after which attempts that could not be proposed are repeated.
const RETRY: Duration = Duration::from_millis(200);
/// Interval at which a client looks again on a store without a copy of the rows, which is not told
/// of their changes.
const FAR_LOOK: Duration = Duration::from_secs(1);

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

fn unblocked() -> Reply {
    Reply::error(
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    )
}

impl Store {
    /// Executes a command that may wait for elements.
    pub async fn block(
        self: Arc<Store>,
        kind: ListenerKind,
        client: u64,
        item: Item,
        deadline: Instant,
    ) -> Answer {
        let Some(wait) = wait_of(item.spec, &item.args) else {
            return self.execute_alone(kind, item, deadline).await;
        };
        let item = match self.from_last_entries(kind, item, deadline).await {
            Ok(item) => item,
            Err(error) => return error,
        };
        let ends_at = wait.timeout.and_then(|timeout| tokio::time::Instant::now().checked_add(timeout));
        let mut seat = self.blocked.enter(client, &item, &wait);
        let (free, is_wrong) = self.first_keys(kind, &item, &wait, &seat, deadline).await;
        if !free.is_empty() {
            let args = match free.len() == wait.keys.len() {
                true => item.args.clone(),
                false => attempt(item.spec, &item.args, &free),
            };
            let spec = lookup_in_log(&args[0]).unwrap_or(item.spec);
            let first = self.execute_alone(kind, Item { args, spec, ..item.clone() }, deadline).await;
            if !is_nothing(&first) {
                return first;
            }
        }
        if is_wrong {
            return Reply::error(WRONG_TYPE).into();
        }
        if !seat.free.is_empty() {
            self.blocked.waits(&seat);
        }
        if seat.free.len() < wait.keys.len() {
            self.look_again(&item, &wait);
        }
        let mut copy = self.copy_of(&item);
        let closing = self.ends.closing();
        tokio::pin!(closing);
        loop {
            let changed = self.regions.leader_changes.notified();
            let now = self.copy_of(&item);
            if now != copy {
                copy = now;
                // This store may have got or lost its copy of the rows meanwhile.
                self.look_again(&item, &wait);
            }
            if let Some(reply) = self.blocked_elsewhere(kind, &item) {
                self.blocked.end(&seat, reply);
                return seat_answer(&mut seat.answer).await;
            }
            let is_far = copy.is_none_or(|(_, is_here)| !is_here);
            tokio::select! {
                answer = &mut seat.answer => {
                    return answer.unwrap_or_else(|_| unblocked().into());
                }
                () = tokio::time::sleep_until(ends_at.unwrap_or_else(far_future)), if ends_at.is_some() => {
                    self.blocked.end(&seat, Reply::NilArray);
                    return seat_answer(&mut seat.answer).await;
                }
                () = &mut closing => {
                    self.blocked.end(&seat, unblocked());
                    return seat_answer(&mut seat.answer).await;
                }
                () = changed => {}
                () = tokio::time::sleep(FAR_LOOK), if is_far => self.look_again(&item, &wait),
            }
        }
    }

    /// Returns a command with the IDs of last entries in place of `$`.
    async fn from_last_entries(
        self: &Arc<Store>,
        kind: ListenerKind,
        item: Item,
        deadline: Instant,
    ) -> Result<Item, Answer> {
        let Some(question) = last_ids_question(item.spec, &item.args) else { return Ok(item) };
        let Some(question) = Item::new(question, item.db, false) else { return Ok(item) };
        let reply = self.execute_alone(kind, question, deadline).await.into_reply();
        match with_last_ids(item.spec, &item.args, &reply) {
            Some(args) => Ok(Item { args, ..item }),
            None => Err(reply.into()),
        }
    }

    /// Returns the keys for the first attempt, in the order of the command: those for which no
    /// other client waits, up to a key of a wrong type. Returns true if there is such a key.
    async fn first_keys(
        self: &Arc<Store>,
        kind: ListenerKind,
        item: &Item,
        wait: &Wait,
        seat: &Seat,
        deadline: Instant,
    ) -> (Vec<Bytes>, bool) {
        let mut free = Vec::new();
        let mut free_keys = seat.free.iter().peekable();
        for key in &wait.keys {
            if free_keys.next_if_eq(&key).is_some() {
                free.push(key.clone());
                continue;
            }
            // Others wait for the key, so it has no elements, or is of another type.
            let args = vec![Bytes::from_static(b"TYPE"), key.clone()];
            let Some(asked) = Item::new(args, item.db, false) else { continue };
            let of_type = self.execute_alone(kind, asked, deadline).await.into_reply();
            let right: &[u8] = match wait.awaited {
                Awaited::List => b"list",
                Awaited::SortedSet => b"zset",
                Awaited::Stream => b"stream",
            };
            match of_type {
                Reply::Simple(name) if name != "none" && name.as_bytes() != right => return (free, true),
                _ => {}
            }
        }
        (free, false)
    }

    fn look_again(&self, item: &Item, wait: &Wait) {
        wait.keys.iter().for_each(|key| self.blocked.look_at(&(item.db, key.clone(), wait.awaited)));
    }

    /// Returns the region of a command, and true if this store has a copy of it.
    fn copy_of(&self, item: &Item) -> Option<(RegionId, bool)> {
        match self.route(item) {
            Ok(Route::Region(region)) => Some((region.id(), region.is_local())),
            Ok(Route::Every(_) | Route::Unknown(_)) | Err(_) => None,
        }
    }

    /// Returns the redirection of a client that waits for keys which another store leads now.
    fn blocked_elsewhere(&self, kind: ListenerKind, item: &Item) -> Option<Reply> {
        if !self.redirects(kind) || !matches!(item.slot, ItemSlot::One(_)) {
            return None;
        }
        let Ok(Route::Region(region)) = self.route(item) else { return None };
        let leader = region.leader()?;
        if leader == self.id {
            None
        } else {
            self.moved(&region, item)
        }
    }

    /// Proposes attempts for a key while they take something.
    async fn serve_blocked(self: Arc<Store>, place: Place) {
        let mut count = 1;
        loop {
            let attempts = self.blocked.next(&place, count);
            let Some(first) = attempts.first() else { return };
            let deadline = Instant::now() + self.config.request_timeout;
            let items: Arc<Vec<Item>> =
                Arc::new(attempts.iter().map(|attempt| attempt.item.clone()).collect());
            let answers = match self.route(&first.item) {
                Ok(Route::Region(region)) => self.execute(&region, items.clone(), deadline).await,
                Ok(Route::Every(_) | Route::Unknown(_)) | Err(_) => {
                    vec![crate::proposals::cluster_down().into(); items.len()]
                }
            };
            match self.blocked.ended(&place, &attempts, answers) {
                Some(true) if place.2 != Awaited::Stream => count = 2 * count.min(ATTEMPTS_MAX),
                // A consumer takes all new entries of a stream, so those behind it would mostly get
                // nothing.
                Some(_) => count = 1,
                None if self.ends.is_stopping() => return,
                None => tokio::time::sleep(RETRY).await,
            }
        }
    }
}

fn far_future() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(86_400 * 365)
}

async fn seat_answer(answer: &mut tokio::sync::oneshot::Receiver<Answer>) -> Answer {
    answer.await.unwrap_or_else(|_| unblocked().into())
}

/// Serves the keys that clients of this store wait for, one task for each key that has elements.
pub async fn run(store: Arc<Store>, mut ready: mpsc::UnboundedReceiver<Place>) {
    while let Some(place) = ready.recv().await {
        tokio::spawn(store.clone().serve_blocked(place));
    }
}
