//! `COPY`, `RENAME`, `RENAMENX` and `MOVE` of large collections, which the region's leader executes
//! in parts (`command::copying`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use command::copying::{Copying, Next, Sizes};
use node::{Answer, Item};
use types::THIRD_VERSION;

use crate::connections::ListenerKind;
use crate::proposals::{cluster_down, unknown_outcome};
use crate::store::{Route, Store};

/// The sizes of parts. A part takes a few milliseconds of a replica.
const SIZES: Sizes = Sizes { elements: 10_000, rows: 1_000 };

const PAUSE_POLL: Duration = Duration::from_millis(100);

/// The command's client, for which the parts are asked.
struct Asker {
    store: Arc<Store>,
    kind: ListenerKind,
    db: u16,
    resp3: bool,
}

impl Asker {
    async fn ask(&self, args: Vec<Bytes>) -> Answer {
        let Some(item) = Item::new(args, self.db, self.resp3) else { return cluster_down().into() };
        let deadline = Instant::now() + self.store.config.request_timeout;
        self.store.execute_alone(self.kind, item, deadline).await
    }

    /// Asks for one part after the other. `CLIENT PAUSE` also holds up those of clients' copies.
    async fn go_on(self, mut copying: Copying, mut args: Vec<Bytes>) -> Answer {
        loop {
            while self.store.client_pause.holds(true).is_some() {
                tokio::time::sleep(PAUSE_POLL).await;
            }
            match copying.answered(self.ask(args).await.into_reply()) {
                Next::Ask(next) => args = next,
                Next::Reply(reply) => return reply.into(),
            }
        }
    }
}

impl Store {
    /// Returns true unless the command's source is known to be small.
    pub fn may_copy_much(&self, item: &Item) -> bool {
        if self.membership.version.get() < THIRD_VERSION {
            return false;
        }
        match self.route(item) {
            Ok(Route::Region(region)) if region.is_local() => self.engine.may_copy_much(item, SIZES.elements),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// Executes a command, in parts if its source is large. Parts go on after the client has left,
    /// as every command does that was proposed.
    pub async fn copy_in_parts(self: Arc<Store>, kind: ListenerKind, item: Item) -> Answer {
        let (mut copying, first) = Copying::begin(item.args, SIZES);
        let mut asker = Asker { store: self.clone(), kind, db: item.db, resp3: item.resp3 };
        let args = match copying.answered(asker.ask(first).await.into_reply()) {
            Next::Ask(next) => next,
            Next::Reply(reply) => return reply.into(),
        };
        let place = self.copies.place().await;
        // A copy that has begun goes on at another leader, too.
        asker.kind = ListenerKind::Forward;
        let rest = tokio::spawn(async move {
            let answer = asker.go_on(copying, args).await;
            drop(place);
            answer
        });
        rest.await.unwrap_or_else(|_| unknown_outcome().into())
    }
}
