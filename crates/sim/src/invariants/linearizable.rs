//! Every group of keys behaves like one copy. Each command takes effect at one moment between its
//! call and its answer.
//!
//! The logs give the order in which commands take effect: the order of their first execution on any
//! store. So no search is needed. An executed command creates the group's next version, and its
//! replies on every store must be those of the model. A read must agree with a version between the
//! newest that any client had seen at the call, and the newest that exists. A read after `READONLY`
//! may agree with any version that is not older than one that the same process has returned. If the
//! connection set a bound on the lag, the version is not older than the newest that any client had
//! seen that long before the call. A command that a store has passed on to the leader must agree
//! with a version that is not older than what the former store had executed, or returned to weak
//! reads, at the call, because its clients may know of it.
//! Commands that one connection sends at once take effect in their order, unless they were refused
//! first. A refused command must never be executed, and no command may be executed twice.

use std::collections::BTreeMap;

use resp::Reply;
use types::{LogIndex, RegionId, StoreId, UnixMillis};

use super::Invariant;
use crate::model::{slot_of, Command, Group, GroupState};
use crate::observation::{EntryId, Item, Observation, OpId, Weakly};

struct OpRecord {
    group: Group,
    command: Command,
    /// The newest version that any client was known to have seen at the call.
    floor: usize,
    /// The newest versions that weak reads had returned at the call, by the store's incarnation.
    weak_floors: BTreeMap<(StoreId, u64), usize>,
    /// The newest versions that stores had executed at the call.
    executed_floors: BTreeMap<StoreId, usize>,
    /// The true time of the call.
    called_at: u64,
    /// For each executed `WATCH` of the command, the number of changes of the watched key so far.
    watched: Vec<u64>,
    /// The version that the command created, and the model's reply.
    effect: Option<(usize, Reply)>,
    /// The version that the answer agrees with.
    answered: Option<usize>,
}

/// The expected result of an item.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Reply(Reply),
    /// Any reply.
    Any,
    /// The item is executed nowhere, because its slot was given away.
    NotExecuted,
}

impl Expected {
    fn allows(&self, reply: &Option<Reply>) -> bool {
        match (self, reply) {
            (Expected::Reply(expected), Some(reply)) => expected == reply,
            (Expected::Any, Some(_)) | (Expected::NotExecuted, None) => true,
            _ => false,
        }
    }
}

#[derive(Default)]
struct EntryRecord {
    items: Vec<Item>,
    is_refused: bool,
    executed: Option<(RegionId, LogIndex, Vec<Expected>)>,
}

struct GroupRecord {
    versions: Vec<GroupState>,
    seen: usize,
    /// The times at which `seen` grew, and its values.
    seen_at: Vec<(u64, usize)>,
    /// The newest version that a store's incarnation has returned to weak reads. It never
    /// decreases.
    weakly_seen: BTreeMap<(StoreId, u64), usize>,
    /// The newest version that a store has executed, whether or not any client has seen it.
    executed: BTreeMap<StoreId, usize>,
}

#[derive(Default)]
pub struct Linearizable {
    ops: BTreeMap<OpId, OpRecord>,
    entries: BTreeMap<EntryId, EntryRecord>,
    groups: BTreeMap<Group, GroupRecord>,
}

impl Invariant for Linearizable {
    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match *seen {
            Observation::Invoked { op, at } => {
                let fresh = || GroupRecord {
                    versions: vec![GroupState::default()],
                    seen: 0,
                    seen_at: Vec::new(),
                    weakly_seen: BTreeMap::new(),
                    executed: BTreeMap::new(),
                };
                let group = self.groups.entry(op.group).or_insert_with(fresh);
                let record = OpRecord {
                    group: op.group,
                    command: op.command.clone(),
                    floor: group.seen,
                    weak_floors: group.weakly_seen.clone(),
                    executed_floors: group.executed.clone(),
                    called_at: at,
                    watched: Vec::new(),
                    effect: None,
                    answered: None,
                };
                self.ops.insert(op.id, record);
                Ok(())
            }
            Observation::Proposed { entry, items } => {
                self.entries.insert(entry, EntryRecord { items: items.to_vec(), ..EntryRecord::default() });
                Ok(())
            }
            Observation::NotProposed { entry } => {
                let record = self.entries.entry(entry).or_default();
                record.is_refused = true;
                match &record.executed {
                    None => Ok(()),
                    Some((region, index, _)) => {
                        Err(format!("entry {index} of region {region} was executed and then refused"))
                    }
                }
            }
            Observation::Executed { store, region, index, entry, now_ms, replies } => {
                self.execute(entry, (region, index), now_ms, replies)?;
                self.executed_on(store, entry, replies);
                let (_, _, expected) = self.entries[&entry].executed.as_ref().expect("executed just now");
                let same = expected.len() == replies.len()
                    && expected.iter().zip(replies).all(|(expected, reply)| expected.allows(reply));
                match same {
                    true => Ok(()),
                    false => Err(format!(
                        "store {store} answers entry {index} of region {region} with {replies:?}, not {expected:?}"
                    )),
                }
            }
            Observation::Answered { op, at, reply, read_ms, weakly, passed_by, after } => {
                self.answer((op, at), reply, (read_ms, weakly, passed_by), after)
            }
            _ => Ok(()),
        }
    }
}

impl OpRecord {
    /// Returns the newest version of which a store's clients may have known at the call.
    fn known_at(&self, store: StoreId) -> usize {
        let executed = self.executed_floors.get(&store);
        let weakly_seen = self.weak_floors.range((store, 0)..=(store, u64::MAX)).map(|(_, version)| version);
        executed.into_iter().chain(weakly_seen).copied().max().unwrap_or(0)
    }
}

impl GroupRecord {
    /// Returns the newest version that any client had seen `lag` before a call. A store measures
    /// the lag by its own clock, which may be slow.
    fn seen_until(&self, called_at: u64, lag: u64) -> usize {
        let limit = called_at.saturating_sub(lag + lag * 2 * replica::DRIFT_BOUND_PPM / 1_000_000);
        self.seen_at.iter().rev().find(|(at, _)| *at <= limit).map_or(0, |(_, version)| *version)
    }
}

impl Linearizable {
    /// Creates the groups' next versions from the first execution of an entry.
    fn execute(
        &mut self,
        entry: EntryId,
        (region, index): (RegionId, LogIndex),
        now: UnixMillis,
        answered: &[Option<Reply>],
    ) -> Result<(), String> {
        let Some(record) = self.entries.get_mut(&entry) else {
            return Err(format!("entry {index} of region {region} was not proposed"));
        };
        if record.is_refused {
            return Err(format!("entry {index} of region {region} was refused and is executed"));
        }
        match &record.executed {
            Some((r, i, _)) if (*r, *i) == (region, index) => return Ok(()),
            Some((r, i, _)) => {
                return Err(format!(
                    "a proposal is both entry {i} of region {r} and entry {index} of region {region}"
                ))
            }
            None => {}
        }
        let mut replies = Vec::with_capacity(record.items.len());
        for (at, item) in record.items.iter().enumerate() {
            match *item {
                _ if answered.get(at).is_some_and(Option::is_none) => replies.push(Expected::NotExecuted),
                Item::Watch(id) => {
                    let op = self.ops.get_mut(&id).expect("an item is an operation");
                    let group = self.groups.get_mut(&op.group).expect("an operation has a group");
                    let mut state = group.versions.last().expect("a first version").clone();
                    let key = op.command.watched().expect("it watches a key");
                    op.watched.push(state.watch(key, now));
                    group.versions.push(state);
                    replies.push(Expected::Any);
                }
                Item::Unseen => replies.push(Expected::Any),
                // It has begun, or found that its source has changed.
                Item::Begin(_) | Item::End(_) if is_step(answered.get(at)) => replies.push(Expected::Any),
                Item::Op(id) | Item::Checked(id) | Item::Begin(id) | Item::End(id) => {
                    let op = self.ops.get_mut(&id).expect("an item is an operation");
                    if op.effect.is_some() {
                        return Err(format!("operation {id} ({:?}) is executed twice", op.command));
                    }
                    let group = self.groups.get_mut(&op.group).expect("an operation has a group");
                    let mut state = group.versions.last().expect("a first version").clone();
                    let is_stopped = match op.command.watched().filter(|_| matches!(item, Item::Checked(_))) {
                        Some(key) => {
                            let (changes, reply) = (state.watch(key, now), answered.get(at));
                            match op.watched.iter().filter(|&&at| at == changes).count() {
                                0 => true,
                                count if count == op.watched.len() => false,
                                // An earlier `WATCH`, whose outcome its client did not learn, was
                                // executed too. The client's own may be any of them.
                                _ => reply == Some(&Some(Reply::NilArray)),
                            }
                        }
                        None => false,
                    };
                    let reply = if is_stopped { Reply::NilArray } else { state.apply(&op.command, now) };
                    group.versions.push(state);
                    op.effect = Some((group.versions.len() - 1, reply.clone()));
                    replies.push(Expected::Reply(match (item, reply) {
                        // The parts have returned the members.
                        (Item::End(_), Reply::Array(_)) => Reply::Array(Vec::new()),
                        (_, reply) => reply,
                    }));
                }
                Item::ExpireDue(slot) => {
                    for (_, group) in self.groups.iter_mut().filter(|(&group, _)| slot_of(group) == slot) {
                        let mut state = group.versions.last().expect("a first version").clone();
                        state.expire(now);
                        group.versions.push(state);
                    }
                    replies.push(Expected::Any);
                }
            }
        }
        record.executed = Some((region, index, replies));
        Ok(())
    }

    /// Records that a store has executed an entry, for the first time or again after a start. A
    /// command without a reply was not executed.
    fn executed_on(&mut self, store: StoreId, entry: EntryId, replies: &[Option<Reply>]) {
        for (item, reply) in self.entries[&entry].items.iter().zip(replies) {
            let (Item::Op(id) | Item::Checked(id) | Item::Begin(id) | Item::End(id)) = item else { continue };
            if reply.is_none() {
                continue;
            }
            let op = &self.ops[id];
            let group = self.groups.get_mut(&op.group).expect("an operation has a group");
            if let Some((version, _)) = op.effect {
                let executed = group.executed.entry(store).or_default();
                *executed = version.max(*executed);
            }
        }
    }

    fn answer(
        &mut self,
        (id, at): (OpId, u64),
        reply: &Reply,
        (read_ms, weakly, passed_by): (Option<UnixMillis>, Option<Weakly>, Option<StoreId>),
        after: Option<OpId>,
    ) -> Result<(), String> {
        let before = after.and_then(|before| self.ops[&before].answered);
        let op = &self.ops[&id];
        let floor = match weakly {
            Some(Weakly { store, life, max_lag }) => {
                let same_process = op.weak_floors.get(&(store, life)).copied().unwrap_or(0);
                let within = max_lag.map_or(0, |lag| self.groups[&op.group].seen_until(op.called_at, lag));
                same_process.max(within)
            }
            None => {
                let known = passed_by.map_or(0, |store| op.known_at(store));
                op.floor.max(before.unwrap_or(0)).max(known)
            }
        };
        let group = self.groups.get_mut(&op.group).expect("an operation has a group");
        let version = match (read_ms, &op.effect) {
            (None, Some((version, _))) if before.is_some_and(|before| *version <= before) => {
                return Err(format!("operation {id} took effect before {after:?}, which was sent before it"));
            }
            (None, Some((version, expected))) if shown(expected) == *reply => *version,
            (None, effect) => {
                return Err(format!("operation {id} is answered {reply:?}; executed: {effect:?}"));
            }
            (Some(now), _) => {
                let agrees = |state: &GroupState| state.read(&op.command, now).as_ref() == Some(reply);
                let found = group.versions[floor..].iter().position(agrees);
                let Some(found) = found else {
                    let before = group.versions[..floor].iter().rposition(agrees);
                    return Err(format!(
                        "{:?} of group {} is answered {reply:?}: version {before:?}, and {} was seen before",
                        op.command, op.group, floor
                    ));
                };
                floor + found
            }
        };
        // A follower may have applied an entry that the leader has committed but not applied yet. A
        // strong read needs to see it only if that follower passed the read on.
        match weakly {
            Some(Weakly { store, life, .. }) => {
                let seen = group.weakly_seen.entry((store, life)).or_default();
                *seen = version.max(*seen);
            }
            None if version > group.seen => {
                group.seen = version;
                group.seen_at.push((at, version));
            }
            None => {}
        }
        if let Some(op) = self.ops.get_mut(&id) {
            op.answered = Some(version);
        }
        Ok(())
    }
}

/// Returns true for the reply of a beginning or an end that has not executed the command.
fn is_step(reply: Option<&Option<Reply>>) -> bool {
    match reply {
        Some(Some(Reply::Array(items))) => matches!(items.first(), Some(Reply::Simple(_))),
        Some(Some(reply)) => *reply == Reply::Nil,
        _ => false,
    }
}

/// Returns a reply as a client of RESP2 decodes it.
fn shown(reply: &Reply) -> Reply {
    match reply {
        Reply::Double(number) => Reply::bulk(number.to_string().into_bytes()),
        Reply::Array(items) => Reply::Array(items.iter().map(shown).collect()),
        reply => reply.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Key;
    use crate::observation::Op;

    fn invoke(invariant: &mut Linearizable, id: OpId, command: Command) {
        invariant.observe(&Observation::Invoked { op: &Op { id, group: 1, command }, at: id }).unwrap();
    }

    fn execute(invariant: &mut Linearizable, entry: EntryId, op: OpId, reply: Reply) -> Result<(), String> {
        invariant.observe(&Observation::Proposed { entry, items: &[Item::Op(op)] }).unwrap();
        let replies = &[Some(reply)];
        invariant.observe(&Observation::Executed {
            store: 0,
            region: 1,
            index: entry,
            entry,
            now_ms: 1,
            replies,
        })
    }

    fn read(invariant: &mut Linearizable, id: OpId, value: &'static str) -> Result<(), String> {
        let reply = &Reply::bulk(value);
        invariant.observe(&Observation::Answered {
            op: id,
            at: id,
            reply,
            read_ms: Some(1),
            weakly: None,
            passed_by: None,
            after: None,
        })
    }

    #[test]
    fn a_read_older_than_an_answered_write_is_found() {
        let get = Command::Get { key: Key::First };
        let mut invariant = Linearizable::default();
        for value in [1, 2] {
            invoke(&mut invariant, value, Command::Set { key: Key::First, value });
        }
        execute(&mut invariant, 1, 1, Reply::OK).unwrap();
        invariant
            .observe(&Observation::Answered {
                op: 1,
                at: 1,
                reply: &Reply::OK,
                read_ms: None,
                weakly: None,
                passed_by: None,
                after: None,
            })
            .unwrap();
        invoke(&mut invariant, 3, get.clone());
        invoke(&mut invariant, 4, get.clone());
        invoke(&mut invariant, 5, get.clone());
        execute(&mut invariant, 2, 2, Reply::OK).unwrap();
        // The second write is not answered: both values may be read, but never the older one again.
        read(&mut invariant, 3, "1").unwrap();
        read(&mut invariant, 4, "2").unwrap();
        invoke(&mut invariant, 6, get);
        assert!(read(&mut invariant, 6, "1").is_err());
        read(&mut invariant, 5, "1").unwrap();
    }

    #[test]
    fn a_weak_read_older_than_its_bound_is_found() {
        let get = Command::Get { key: Key::First };
        let mut invariant = Linearizable::default();
        for value in [1, 2] {
            invoke(&mut invariant, value, Command::Set { key: Key::First, value });
            execute(&mut invariant, value, value, Reply::OK).unwrap();
            let (at, reply) = (100 * value, &Reply::OK);
            let seen = Observation::Answered {
                op: value,
                at,
                reply,
                read_ms: None,
                weakly: None,
                passed_by: None,
                after: None,
            };
            invariant.observe(&seen).unwrap();
        }
        let mut read = |op, called_at, lag| {
            let command = get.clone();
            invariant
                .observe(&Observation::Invoked { op: &Op { id: op, group: 1, command }, at: called_at })
                .unwrap();
            let weakly = Some(Weakly { store: op, life: 1, max_lag: lag });
            let (at, reply) = (called_at, &Reply::bulk("1"));
            let (read_ms, passed_by, after) = (Some(1), None, None);
            invariant.observe(&Observation::Answered { op, at, reply, read_ms, weakly, passed_by, after })
        };
        // The second value was seen at 200.
        read(3, 250, None).unwrap();
        read(4, 250, Some(60)).unwrap();
        assert!(read(5, 250, Some(50)).is_err());
        assert!(read(6, 300, Some(60)).is_err());
    }

    #[test]
    fn a_read_older_than_what_the_store_that_passed_it_on_had_executed_is_found() {
        let get = Command::Get { key: Key::First };
        let mut invariant = Linearizable::default();
        // Store 0 executes both values, of which no client has an answer.
        for value in [1, 2] {
            invoke(&mut invariant, value, Command::Set { key: Key::First, value });
            execute(&mut invariant, value, value, Reply::OK).unwrap();
            invoke(&mut invariant, 10 + value, get.clone());
            invoke(&mut invariant, 20 + value, get.clone());
        }
        let mut read = |op, store, value| {
            let reply = &Reply::bulk(value);
            let (read_ms, passed_by) = (Some(1), Some(store));
            invariant.observe(&Observation::Answered {
                op,
                at: op,
                reply,
                read_ms,
                weakly: None,
                passed_by,
                after: None,
            })
        };
        read(11, 0, "1").unwrap();
        read(22, 1, "1").unwrap();
        assert!(read(12, 0, "1").is_err());
        read(12, 0, "2").unwrap();
    }

    #[test]
    fn a_command_executed_twice_is_found() {
        let mut invariant = Linearizable::default();
        invoke(&mut invariant, 1, Command::Increment);
        execute(&mut invariant, 1, 1, Reply::Int(1)).unwrap();
        assert!(execute(&mut invariant, 2, 1, Reply::Int(2)).is_err());
    }

    #[test]
    fn an_answer_that_the_model_does_not_give_is_found() {
        let mut invariant = Linearizable::default();
        invoke(&mut invariant, 1, Command::Increment);
        assert!(execute(&mut invariant, 1, 1, Reply::Int(2)).is_err());
    }
}
