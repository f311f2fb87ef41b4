//! One pipeline batch: each command is checked, classed and sent on its way; replies keep their order.
//!
//! Commands of one region keep their order, too: reads are gathered until a write to the same region
//! comes, which waits for them; once a write is gathered, later reads of the region ride behind it in the
//! same log entry. Groups of different regions run at once.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use command::{CommandSpec, Handler};
use futures::future::join_all;
use resp::Reply;

use super::session::{Door, Session};
use super::{server_commands, spanning};
use crate::dispatch::{Answer, Item};
use crate::region::shared::RegionShared;
use crate::store::Store;

/// Bytes of one region's commands that are sent on together.
const GROUP_BYTES_MAX: usize = 2 << 20;

struct Group {
    region: Arc<RegionShared>,
    positions: Vec<usize>,
    items: Vec<Item>,
    writes: bool,
    bytes: usize,
}

/// Answers `requests` in order into `output`.
pub async fn run(
    store: &Arc<Store>,
    session: &mut Session,
    requests: &mut Vec<Vec<Bytes>>,
    output: &mut BytesMut,
) {
    let mut batch = Batch { answers: Vec::with_capacity(requests.len()), groups: Vec::new() };
    let mut protocols = Vec::with_capacity(requests.len());
    for args in requests.drain(..) {
        if session.closing {
            break;
        }
        let position = batch.answers.len();
        batch.answers.push(None);
        let answer = batch.admit(store, session, args, position).await;
        if answer.is_some() {
            batch.answers[position] = answer;
        }
        // HELLO answers in the protocol that it chose, and so does everything after it.
        protocols.push(session.protocol);
    }
    batch.flush(store).await;
    for (answer, protocol) in batch.answers.into_iter().zip(protocols) {
        let answer =
            answer.unwrap_or_else(|| Reply::error("ERR internal error: a command got no reply").into());
        answer.encode(protocol, output);
    }
}

struct Batch {
    answers: Vec<Option<Answer>>,
    groups: Vec<Group>,
}

impl Batch {
    /// Answers a command at once, or puts it into its region's group.
    async fn admit(
        &mut self,
        store: &Arc<Store>,
        session: &mut Session,
        args: Vec<Bytes>,
        position: usize,
    ) -> Option<Answer> {
        let Some(spec) = command::lookup(&args[0]) else {
            return Some(refuse_unknown(session, &args).into());
        };
        if let Err(error) = command::check_arity(spec, &args) {
            return Some(error.into());
        }
        if !session.authenticated && !spec.has(command::flags::NO_AUTH) {
            return Some(Reply::error("NOAUTH Authentication required.").into());
        }
        let leaf = command::leaf(spec, &args);
        session.entry.describe(|d| d.last_command = leaf.name);
        match leaf.handler {
            Handler::Server | Handler::Container(_) => {
                // These neither read nor write keys, but what they report should be true after what came
                // before them.
                if server_commands::waits_for_earlier(spec.name) {
                    self.flush(store).await;
                }
                Some(server_commands::run(store, session, spec, &args).await.into())
            }
            Handler::Keyspace(_) => self.route(store, session, leaf, args, position).await,
        }
    }

    async fn route(
        &mut self,
        store: &Arc<Store>,
        session: &mut Session,
        spec: &'static CommandSpec,
        args: Vec<Bytes>,
        position: usize,
    ) -> Option<Answer> {
        let item = Item { spec, db: session.db, resp3: session.protocol == resp::Protocol::Resp3, args };
        let region = match store.region_of(&item) {
            Ok(Some(region)) => region,
            Ok(None) => {
                self.flush(store).await;
                return Some(spanning::run(store, session, item).await);
            }
            Err(error) => return Some(error.into()),
        };
        if store.config.cluster_enabled && session.door == Door::Client && region.leader() != Some(store.id) {
            if session.read_only && !item.is_write() && region.local {
                match store.read_weakly(&region, item.clone()).await {
                    Ok(Some(answer)) => return Some(answer),
                    Ok(None) => {}
                    Err(error) => return Some(error.into()),
                }
            }
            return Some(redirect(store, &region, &item).await.into());
        }
        if session.read_only && !store.config.cluster_enabled && !item.is_write() && region.local {
            if let Ok(Some(answer)) = store.read_weakly(&region, item.clone()).await {
                return Some(answer);
            }
        }
        if self.must_flush_before(&region, &item) {
            self.flush(store).await;
        }
        self.gather(region, item, position);
        None
    }

    fn must_flush_before(&self, region: &RegionShared, item: &Item) -> bool {
        let group = self.groups.iter().find(|group| group.region.id() == region.id());
        group.is_some_and(|g| g.bytes + item.bytes() > GROUP_BYTES_MAX || item.is_write() && !g.writes)
    }

    fn gather(&mut self, region: Arc<RegionShared>, item: Item, position: usize) {
        let at = match self.groups.iter().position(|group| group.region.id() == region.id()) {
            Some(at) => at,
            None => {
                let (positions, items) = (Vec::new(), Vec::new());
                self.groups.push(Group { region, positions, items, writes: false, bytes: 0 });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        group.writes |= item.is_write();
        group.bytes += item.bytes();
        group.positions.push(position);
        group.items.push(item);
    }

    /// Carries out every group, all of them at once.
    async fn flush(&mut self, store: &Arc<Store>) {
        let groups = std::mem::take(&mut self.groups);
        if let [_] = groups.as_slice() {
            for group in groups {
                let answers = store.execute(&group.region, group.items).await;
                self.place(group.positions, answers);
            }
            return;
        }
        let running = groups
            .into_iter()
            .map(|group| async move { (group.positions, store.execute(&group.region, group.items).await) });
        for (positions, answers) in join_all(running).await {
            self.place(positions, answers);
        }
    }

    fn place(&mut self, positions: Vec<usize>, answers: Vec<Answer>) {
        for (position, answer) in positions.into_iter().zip(answers) {
            self.answers[position] = Some(answer);
        }
    }
}

/// An unknown command; to someone who has not logged in nothing is told about commands.
fn refuse_unknown(session: &Session, args: &[Bytes]) -> Reply {
    match session.authenticated {
        true => command::unknown_command(args),
        false => Reply::error("NOAUTH Authentication required."),
    }
}

/// `MOVED` to the leader, after a short wait for one where none is known.
async fn redirect(store: &Arc<Store>, region: &Arc<RegionShared>, item: &Item) -> Reply {
    let deadline = tokio::time::Instant::now() + store.config.request_timeout;
    loop {
        let news = store.leader_news.notified();
        match region.leader() {
            Some(leader) => {
                let slot = store.slot_of(item).unwrap_or(0);
                return match store.config.members.iter().find(|m| m.id == leader) {
                    Some(member) => Reply::error(format!("MOVED {slot} {}", member.client)),
                    None => crate::dispatch::cluster_down(),
                };
            }
            None if tokio::time::Instant::now() >= deadline => return crate::dispatch::cluster_down(),
            None => {
                let _ = tokio::time::timeout(std::time::Duration::from_millis(50), news).await;
            }
        }
    }
}
