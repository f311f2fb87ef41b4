//! One pipeline batch: each command is checked, classed and sent on its way; replies keep their order.
//!
//! Commands of one region keep their order, too: reads are gathered until a write to the same region
//! comes, which waits for them; once a write is gathered, later reads of a few rows ride behind it in the
//! same log entry, and longer ones wait for it. Groups of different regions run at once.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use command::{CommandSpec, Handler};
use futures::future::join_all;
use resp::Reply;

use super::replies::Replies;
use super::session::{Door, Session};
use super::{server_commands, spanning};
use crate::dispatch::{self, Answer};
use crate::region::shared::RegionShared;
use crate::store::{Route, Store};
use node::{Item, ItemSlot};

/// Bytes of one region's commands that are sent on together.
const GROUP_BYTES_MAX: usize = 2 << 20;

struct Group {
    region: Arc<RegionShared>,
    positions: Vec<usize>,
    /// Those that are still to be carried out, the last ones of `positions`.
    items: Vec<Item>,
    writes: bool,
    bytes: usize,
}

/// Answers `requests` in order.
pub async fn run(
    store: &Arc<Store>,
    session: &mut Session,
    requests: &mut Vec<Vec<Bytes>>,
    replies: &mut Replies,
) {
    let mut batch = Batch {
        answers: Vec::with_capacity(requests.len()),
        protocols: Vec::with_capacity(requests.len()),
        given: 0,
        replies,
        groups: Vec::new(),
        deadline: Instant::now() + store.config.request_timeout,
    };
    let mut last_command = None;
    for args in requests.drain(..) {
        if session.closing || batch.replies.is_gone() {
            break;
        }
        let position = batch.answers.len();
        batch.answers.push(None);
        let answer = batch.admit(store, session, args, position, &mut last_command).await;
        if answer.is_some() {
            batch.answers[position] = answer;
        }
        // HELLO answers in the protocol that it chose, and so does everything after it.
        batch.protocols.push(session.protocol);
    }
    batch.flush(store).await;
    if let Some(name) = last_command {
        session.entry.describe(|d| d.last_command = name);
    }
    for answer in &mut batch.answers[batch.given..] {
        answer.get_or_insert_with(|| Reply::error("ERR internal error: a command got no reply").into());
    }
    batch.give().await;
}

struct Batch<'a> {
    answers: Vec<Option<Answer>>,
    protocols: Vec<resp::Protocol>,
    /// Answers that are among the replies already.
    given: usize,
    replies: &'a mut Replies,
    groups: Vec<Group>,
    /// Until when the batch may wait for leaders and quorums. It is set anew whenever something was
    /// answered in time, so that a long pipeline may take long, but not by waiting for nobody.
    deadline: Instant,
}

impl Group {
    /// Takes out what is carried out next: everything, or so many reads.
    fn next(&mut self, reads: usize) -> Arc<Vec<Item>> {
        let count = if self.writes { self.items.len() } else { reads.min(self.items.len()) };
        let later = self.items.split_off(count);
        Arc::new(std::mem::replace(&mut self.items, later))
    }
}

impl Batch<'_> {
    /// Answers a command at once, or puts it into its region's group.
    async fn admit(
        &mut self,
        store: &Arc<Store>,
        session: &mut Session,
        args: Vec<Bytes>,
        position: usize,
        last_command: &mut Option<&'static str>,
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
        *last_command = Some(leaf.name);
        match leaf.handler {
            Handler::Server | Handler::Container(_) => {
                // These neither read nor write keys, but what they report should be true after what came
                // before them.
                if server_commands::waits_for_earlier(spec.name) {
                    self.flush(store).await;
                    session.entry.describe(|d| d.last_command = leaf.name);
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
        let resp3 = session.protocol == resp::Protocol::Resp3;
        let slot = match store.config.cluster_enabled {
            true => ItemSlot::of(spec, &args),
            false => ItemSlot::Any,
        };
        let item = Item { spec, db: session.db, resp3, args, slot };
        let region = match store.route(&item) {
            Ok(Route::Region(region)) => region,
            Ok(Route::Every) => {
                self.flush(store).await;
                let answer = spanning::run(store, session, item, self.deadline).await;
                self.renew(store);
                return Some(answer);
            }
            Ok(Route::Unknown(slot)) => {
                self.flush(store).await;
                match store.region_of_slot(slot, self.deadline).await {
                    Some(region) => region,
                    None => return Some(dispatch::cluster_down().into()),
                }
            }
            Err(error) => return Some(error.into()),
        };
        if let Some(error) = dispatch::too_large(&item) {
            return Some(error.into());
        }
        if region.leader() != Some(store.id) {
            // What this connection wrote before must not be missing from what it reads now.
            if session.read_only && !item.is_write() && region.is_local() && self.group(&region).is_none() {
                match store.read_weakly(&region, item.clone()).await {
                    Ok(Some(answer)) => return Some(answer),
                    Ok(None) => {}
                    Err(error) => return Some(error.into()),
                }
            }
            if store.config.cluster_enabled && session.door == Door::Client {
                if region.leader().is_none() {
                    self.flush(store).await;
                }
                let reply = redirect(store, &region, &item, self.deadline).await;
                return Some(reply.into());
            }
        }
        if self.must_flush_before(&region, &item) {
            self.flush(store).await;
        }
        self.gather(region, item, position);
        None
    }

    fn must_flush_before(&self, region: &RegionShared, item: &Item) -> bool {
        self.group(region).is_some_and(|group| {
            group.bytes + item.bytes() > GROUP_BYTES_MAX
                || item.is_write() && !group.writes
                || group.writes && !item.is_write() && !item.is_bounded_read()
        })
    }

    fn group(&self, region: &RegionShared) -> Option<&Group> {
        self.groups.iter().find(|group| group.region.id() == region.id())
    }

    fn renew(&mut self, store: &Store) {
        let now = Instant::now();
        if now < self.deadline {
            self.deadline = now + store.config.request_timeout;
        }
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

    /// Carries out every group, all of them at once. Of reads so many at a time that their replies are bounded: those
    /// that are there go out before the next.
    async fn flush(&mut self, store: &Arc<Store>) {
        let mut groups = std::mem::take(&mut self.groups);
        while !groups.is_empty() && !self.replies.is_gone() {
            let (reads, deadline) = (self.replies.reads_at_once(), self.deadline);
            let parts: Vec<_> = groups.iter_mut().map(|group| group.next(reads)).collect();
            if let ([only], [part]) = (groups.as_mut_slice(), parts.as_slice()) {
                let answers = store.execute(&only.region, part.clone(), deadline).await;
                self.place(only, part, answers);
            } else {
                let running = groups.iter().zip(&parts);
                let running =
                    running.map(|(group, part)| store.execute(&group.region, part.clone(), deadline));
                let answers = join_all(running).await;
                for ((group, part), answers) in groups.iter_mut().zip(&parts).zip(answers) {
                    self.place(group, part, answers);
                }
            }
            self.renew(store);
            self.give().await;
            groups.retain(|group| !group.items.is_empty());
        }
    }

    /// The answers that are next in order become replies.
    async fn give(&mut self) {
        while let Some(&protocol) = self.protocols.get(self.given) {
            let Some(answer) = self.answers[self.given].take() else { return };
            self.replies.add(&answer, protocol);
            self.given += 1;
            self.replies.relieve().await;
        }
    }

    /// Reads that were left for later are put back. What writes left is not: nothing is executed twice.
    fn place(&mut self, group: &mut Group, part: &[Item], answers: Vec<Answer>) {
        let begin = group.positions.len() - group.items.len() - part.len();
        if !group.writes && !answers.is_empty() {
            group.items.splice(0..0, part.iter().skip(answers.len()).cloned());
        }
        for (position, answer) in group.positions[begin..].iter().zip(answers) {
            self.answers[*position] = Some(answer);
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
async fn redirect(store: &Arc<Store>, region: &Arc<RegionShared>, item: &Item, deadline: Instant) -> Reply {
    let ItemSlot::One(slot) = item.slot else { return dispatch::cluster_down() };
    loop {
        let news = store.leader_news.notified();
        // Another region may have the slot by now.
        let region = store.regions.of_slot(slot).unwrap_or_else(|| region.clone());
        let leader = region.leader();
        match leader.and_then(|leader| store.member(leader)) {
            Some(member) => return Reply::error(format!("MOVED {slot} {}", member.client)),
            None if Instant::now() >= deadline => return dispatch::cluster_down(),
            None => {
                let _ = tokio::time::timeout(std::time::Duration::from_millis(50), news).await;
            }
        }
    }
}
