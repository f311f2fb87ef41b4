//! `COPY` and other commands on large collections, which the region's leader executes in parts
//! (`command::copying`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use command::copying::{Copying, Next, Sizes};
use node::{Answer, Item};
use resp::Reply;
use types::THIRD_VERSION;

use crate::connections::ListenerKind;
use crate::large_replies::encoded_if_large;
use crate::proposals::{cluster_down, unknown_outcome};
use crate::store::{Route, Store};

/// The sizes of parts. A part takes a few milliseconds of a replica.
const SIZES: Sizes = Sizes { elements: 1_000, rows: 1_000 };
const PAUSE_POLL: Duration = Duration::from_millis(100);
/// Pause before a part is asked for again that found no room in its entry.
const ROOM_PAUSE: Duration = Duration::from_millis(10);

fn too_many() -> Reply {
    Reply::error("ERR too many large collections are being copied: try again later")
}

/// The command's client, for which the parts are asked.
struct Asker {
    store: Arc<Store>,
    kind: ListenerKind,
    db: u16,
    resp3: bool,
}

impl Asker {
    async fn ask(&self, copying: &mut Copying, args: Vec<Bytes>) -> Next {
        let Some(item) = Item::new(args, self.db, self.resp3) else {
            return Next::Reply(cluster_down());
        };
        let deadline = Instant::now() + self.store.config.request_timeout;
        let answer = self.store.execute_alone(self.kind, item, deadline).await;
        copying.answered(answer.into_reply())
    }

    async fn copy(mut self, command: Vec<Bytes>) -> Reply {
        let (mut copying, first) = Copying::begin(command, SIZES);
        let mut args = match self.ask(&mut copying, first).await {
            Next::Ask(next) => next,
            Next::Reply(reply) => return reply,
        };
        // A copy that has begun goes on at another leader, too.
        self.kind = ListenerKind::Forward;
        let copies = &self.store.copies;
        let admitted = copies.admit();
        if admitted.is_none() {
            args = copying.give_up(too_many());
        }
        let mut place = copies.free_place();
        if admitted.is_some() && place.is_none() {
            // Its rows may be swept, and its source may change, while it waits.
            let dropping = copying.put_off();
            match self.ask(&mut copying, dropping).await {
                Next::Ask(next) => args = next,
                Next::Reply(reply) => return reply,
            }
            place = copies.place().await;
        }
        let reply = self.go_on(copying, args).await;
        drop((admitted, place));
        reply
    }

    /// Asks for one part after the other. `CLIENT PAUSE` also holds up those of clients' copies.
    async fn go_on(&self, mut copying: Copying, mut args: Vec<Bytes>) -> Reply {
        loop {
            while self.store.client_pause.holds(true).is_some() && !self.store.ends.is_stopping() {
                tokio::time::sleep(PAUSE_POLL).await;
            }
            match self.ask(&mut copying, args.clone()).await {
                Next::Ask(next) if next == args => tokio::time::sleep(ROOM_PAUSE).await,
                Next::Ask(next) => args = next,
                Next::Reply(reply) => return reply,
            }
        }
    }
}

impl Store {
    /// Returns true unless the command's source is known to be small. Nothing is known of a region
    /// that has no peer here. Removals of ranges, which are frequent and rarely large, are passed
    /// on to it as they are.
    pub fn may_copy_much(&self, item: &Item) -> bool {
        let removes_few = command::copying::removes_few(item.spec, &item.args, SIZES.elements);
        if removes_few || self.membership.version.get() < THIRD_VERSION {
            return false;
        }
        match self.route(item) {
            Ok(Route::Region(region)) if region.is_local() => self.engine.may_copy_much(item, SIZES.elements),
            Ok(_) => !command::copying::removes_range(item.spec),
            Err(_) => false,
        }
    }

    /// Executes a command, in parts if its source is large. It goes on after the client has left,
    /// as every command does that was proposed.
    pub async fn copy_in_parts(self: Arc<Store>, kind: ListenerKind, item: Item) -> Answer {
        let asker = Asker { store: self, kind, db: item.db, resp3: item.resp3 };
        let copying = tokio::spawn(async move {
            let reply = asker.copy(item.args).await;
            encoded_if_large(reply, item.resp3)
        });
        copying.await.unwrap_or_else(|_| unknown_outcome().into())
    }
}
