//! A second, simple definition of the simulated clients' commands: the state of a group of keys
//! with one hash tag, and the effect of each command on it.
//!
//! Values are unique within a run, so a reply shows which writes it has seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use resp::Reply;
use types::{slot_of_key, Slot, UnixMillis};

mod log;

pub use log::{function, LogCommand, LOG_GROUP};

use log::Log;

pub type Group = u64;

/// The keys of a group: two strings, a counter, a hash, one key for each other type, and one for
/// copies. Only one group has a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    First,
    Second,
    Counter,
    Fields,
    List,
    Members,
    Scores,
    /// A copy of the sorted set.
    Copied,
    Log,
}

impl Key {
    const ALL: [Key; 9] = [
        Key::First,
        Key::Second,
        Key::Counter,
        Key::Fields,
        Key::List,
        Key::Members,
        Key::Scores,
        Key::Copied,
        Key::Log,
    ];
    /// The keys of strings and hashes.
    pub const SIMPLE: [Key; 4] = [Key::First, Key::Second, Key::Counter, Key::Fields];
    /// The keys of sets, lists and sorted sets.
    pub const COLLECTIONS: [Key; 3] = [Key::List, Key::Members, Key::Scores];

    pub fn name(self, group: Group) -> Bytes {
        let name = match self {
            Key::First => "a",
            Key::Second => "b",
            Key::Counter => "n",
            Key::Fields => "h",
            Key::List => "l",
            Key::Members => "s",
            Key::Scores => "z",
            Key::Copied => "y",
            Key::Log => "x",
        };
        Bytes::from(format!("{{g{group}}}{name}"))
    }
}

pub fn slot_of(group: Group) -> Slot {
    slot_of_key(&Key::First.name(group))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Set {
        key: Key,
        value: u64,
    },
    SetFor {
        key: Key,
        value: u64,
        ms: u64,
    },
    Append {
        key: Key,
        value: u64,
    },
    SetBoth {
        first: u64,
        second: u64,
    },
    Delete {
        key: Key,
    },
    Increment,
    SetField {
        field: u64,
        value: u64,
    },
    Get {
        key: Key,
    },
    GetBoth,
    GetField {
        field: u64,
    },
    /// `MULTI`, some commands, `EXEC`.
    Transaction {
        key: Key,
        value: u64,
    },
    /// `WATCH` of the key, and a transaction.
    Checked {
        key: Key,
        value: u64,
    },
    /// Adds several elements to the end of a list.
    Push {
        value: u64,
        count: u64,
    },
    /// Removes several elements from the beginning of a list.
    Pop {
        count: u64,
    },
    AddMember {
        member: u64,
    },
    RemoveMember {
        member: u64,
    },
    /// Adds several members to a sorted set.
    AddScores {
        value: u64,
        count: u64,
    },
    /// Removes the members with the lowest ranks.
    RemoveLowest {
        count: u64,
    },
    /// Removes the members with the lowest ranks and returns them.
    TakeLowest {
        count: u64,
    },
    CopyScores,
    ExpireIn {
        key: Key,
        ms: u64,
    },
    /// Reads elements of a list or sorted set, from this rank on.
    Range {
        key: Key,
        from: i64,
    },
    CountMembers,
    HasMembers {
        first: u64,
    },
    /// A script that executes the commands of a transaction.
    Script {
        key: Key,
        value: u64,
    },
    /// A command of a stream.
    Log(LogCommand),
}

/// Number of ranks that a range covers.
const RANGE_RANKS: i64 = 10;

/// Returns the elements that a push or an addition writes.
fn elements(value: u64, count: u64) -> impl Iterator<Item = String> {
    // A few long elements fill a node of a tree.
    (0..count).map(move |at| format!("{value}-{at:0150}"))
}

/// Returns the score of an element. Many elements have equal scores.
fn score_of(element: &str) -> u64 {
    types::key_hash(element.as_bytes()) % 16
}

/// Returns the elements of a range by rank, whose ends may count from the last element.
fn ranks<'a>(from: i64, elements: impl ExactSizeIterator<Item = &'a String>) -> Reply {
    let len = elements.len() as i64;
    let position = |rank: i64| if rank < 0 { rank + len } else { rank };
    let (first, last) = (position(from).max(0), position(last_rank(from)));
    let taken = elements.skip(first as usize).take((last + 1 - first).max(0) as usize);
    Reply::Array(taken.map(|element| Reply::bulk(element.clone().into_bytes())).collect())
}

/// Returns the last rank of a range. A range that begins before the end of a collection ends there.
fn last_rank(from: i64) -> i64 {
    match from + RANGE_RANKS - 1 {
        last if from < 0 && last >= 0 => -1,
        last => last,
    }
}

/// A script. Keys: the one that is appended to, the counter, both strings. Arguments: the value,
/// and the place in the client's pipeline.
const SCRIPT: &str = "local grown = redis.call('APPEND', KEYS[1], ARGV[1])
local count = redis.pcall('INCR', KEYS[2])
return {grown, count, redis.call('MGET', KEYS[3], KEYS[4])}";

impl Command {
    pub fn is_read(&self) -> bool {
        let is_simple = matches!(self, Command::Get { .. } | Command::GetBoth | Command::GetField { .. });
        let is_of_log = matches!(self, Command::Log(command) if command.is_read());
        is_simple
            || is_of_log
            || matches!(self, Command::Range { .. } | Command::CountMembers | Command::HasMembers { .. })
    }

    /// Returns true if a store without room refuses the command.
    pub fn adds_data(&self) -> bool {
        let is_removal = matches!(
            self,
            Command::Delete { .. }
                | Command::Pop { .. }
                | Command::RemoveMember { .. }
                | Command::RemoveLowest { .. }
                | Command::TakeLowest { .. }
                | Command::ExpireIn { .. }
        );
        !self.is_read() && !is_removal
    }

    /// Returns true if the command executes a script. Its last argument is the place in the
    /// client's pipeline.
    pub fn is_script(&self) -> bool {
        match self {
            Command::Script { .. } => true,
            Command::Log(command) => command.is_function(),
            _ => false,
        }
    }

    /// Returns the commands of a transaction. Empty for other commands.
    pub fn parts(&self) -> Vec<Command> {
        match *self {
            Command::Transaction { key, value } => {
                vec![Command::Append { key, value }, Command::Increment, Command::GetBoth]
            }
            Command::Checked { key, value } => {
                vec![Command::GetBoth, Command::Append { key, value }, Command::Increment]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the commands that a script executes. Empty for other commands.
    fn called(&self) -> Vec<Command> {
        match *self {
            Command::Script { key, value } => Command::Transaction { key, value }.parts(),
            _ => Vec::new(),
        }
    }

    /// Returns the key that a transaction watches.
    pub fn watched(&self) -> Option<Key> {
        if let Command::Checked { key, .. } = self {
            Some(*key)
        } else {
            None
        }
    }

    /// Returns the command's arguments.
    ///
    /// # Panics
    /// For a transaction, which is several commands.
    pub fn args(&self, group: Group) -> Vec<Bytes> {
        let word = |word: &'static str| Bytes::from_static(word.as_bytes());
        match *self {
            Command::Set { key, value } => vec![word("SET"), key.name(group), text(value)],
            Command::SetFor { key, value, ms } => {
                vec![word("SET"), key.name(group), text(value), word("PX"), text(ms)]
            }
            Command::Append { key, value } => vec![word("APPEND"), key.name(group), text(value)],
            Command::SetBoth { first, second } => {
                vec![word("MSET"), Key::First.name(group), text(first), Key::Second.name(group), text(second)]
            }
            Command::Delete { key } => vec![word("DEL"), key.name(group)],
            Command::Increment => vec![word("INCR"), Key::Counter.name(group)],
            Command::SetField { field, value } => {
                vec![word("HSET"), Key::Fields.name(group), text(field), text(value)]
            }
            Command::Get { key } => vec![word("GET"), key.name(group)],
            Command::GetBoth => vec![word("MGET"), Key::First.name(group), Key::Second.name(group)],
            Command::GetField { field } => vec![word("HGET"), Key::Fields.name(group), text(field)],
            Command::Push { value, count } => {
                let mut args = vec![word("RPUSH"), Key::List.name(group)];
                args.extend(elements(value, count).map(Bytes::from));
                args
            }
            Command::Pop { count } => vec![word("LPOP"), Key::List.name(group), text(count)],
            Command::AddMember { member } => vec![word("SADD"), Key::Members.name(group), text(member)],
            Command::RemoveMember { member } => vec![word("SREM"), Key::Members.name(group), text(member)],
            Command::AddScores { value, count } => {
                let mut args = vec![word("ZADD"), Key::Scores.name(group)];
                for element in elements(value, count) {
                    args.extend([text(score_of(&element)), Bytes::from(element)]);
                }
                args
            }
            Command::RemoveLowest { count } => {
                vec![word("ZREMRANGEBYRANK"), Key::Scores.name(group), text(0), text(count - 1)]
            }
            Command::TakeLowest { count } => vec![word("ZPOPMIN"), Key::Scores.name(group), text(count)],
            Command::CopyScores => {
                let [from, to] = [Key::Scores, Key::Copied].map(|key| key.name(group));
                vec![word("COPY"), from, to, word("REPLACE")]
            }
            Command::ExpireIn { key, ms } => vec![word("PEXPIRE"), key.name(group), text(ms)],
            Command::Range { key, from } => {
                let name = if key == Key::List { "LRANGE" } else { "ZRANGE" };
                let rank = |rank: i64| Bytes::from(rank.to_string());
                vec![word(name), key.name(group), rank(from), rank(last_rank(from))]
            }
            Command::CountMembers => vec![word("SCARD"), Key::Members.name(group)],
            Command::HasMembers { first } => {
                vec![word("SMISMEMBER"), Key::Members.name(group), text(first), text(first + 1)]
            }
            Command::Script { key, value } => vec![
                word("EVAL"),
                word(SCRIPT),
                word("4"),
                key.name(group),
                Key::Counter.name(group),
                Key::First.name(group),
                Key::Second.name(group),
                text(value),
            ],
            Command::Log(command) => command.args(),
            Command::Transaction { .. } | Command::Checked { .. } => {
                panic!("a transaction is several commands")
            }
        }
    }
}

fn text(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Data {
    Text(String),
    Fields(BTreeMap<u64, u64>),
    List(Arc<VecDeque<String>>),
    Members(BTreeSet<u64>),
    /// The members with their scores, in order.
    Scores(Arc<BTreeSet<(u64, String)>>),
    Log(Arc<Log>),
}

impl Data {
    fn is_empty(&self) -> bool {
        match self {
            Data::Text(_) | Data::Log(_) => false,
            Data::Fields(fields) => fields.is_empty(),
            Data::List(list) => list.is_empty(),
            Data::Members(members) => members.is_empty(),
            Data::Scores(scores) => scores.is_empty(),
        }
    }

    fn list(&mut self) -> &mut VecDeque<String> {
        match self {
            Data::List(list) => Arc::make_mut(list),
            _ => unreachable!("the list is a list"),
        }
    }

    fn members(&mut self) -> &mut BTreeSet<u64> {
        match self {
            Data::Members(members) => members,
            _ => unreachable!("the set is a set"),
        }
    }

    fn scores(&mut self) -> &mut BTreeSet<(u64, String)> {
        match self {
            Data::Scores(scores) => Arc::make_mut(scores),
            _ => unreachable!("the sorted set is a sorted set"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    data: Data,
    expires_ms: Option<UnixMillis>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    values: BTreeMap<Key, Value>,
    /// The number of changes of each key.
    changes: BTreeMap<Key, u64>,
}

impl GroupState {
    /// Returns the reply of a read of this state, or of a write that changes nothing. `None` if it
    /// finds an expired key, which a log entry must delete first, or is a write that needs an
    /// entry.
    pub fn read(&self, command: &Command, now: UnixMillis) -> Option<Reply> {
        let find = |key: Key| match self.values.get(&key) {
            Some(value) if value.expires_ms.is_some_and(|at| at <= now) => None,
            found => Some(found),
        };
        let string = |value: Option<&Value>| match value.map(|value| &value.data) {
            Some(Data::Text(text)) => Reply::bulk(text.clone().into_bytes()),
            _ => Reply::Nil,
        };
        Some(match command {
            Command::Get { key } => string(find(*key)?),
            Command::GetBoth => Reply::Array(vec![string(find(Key::First)?), string(find(Key::Second)?)]),
            Command::GetField { field } => match find(Key::Fields)?.map(|value| &value.data) {
                Some(Data::Fields(fields)) => {
                    fields.get(field).map_or(Reply::Nil, |&value| Reply::bulk(text(value)))
                }
                _ => Reply::Nil,
            },
            Command::Range { key, from } => match find(*key)?.map(|value| &value.data) {
                Some(Data::List(list)) => ranks(*from, list.iter()),
                Some(Data::Scores(scores)) => {
                    let elements: Vec<&String> = scores.iter().map(|(_, element)| element).collect();
                    ranks(*from, elements.into_iter())
                }
                _ => Reply::Array(Vec::new()),
            },
            Command::CountMembers => match find(Key::Members)?.map(|value| &value.data) {
                Some(Data::Members(members)) => Reply::Int(members.len() as i64),
                _ => Reply::Int(0),
            },
            Command::HasMembers { first } => {
                let data = find(Key::Members)?.map(|value| &value.data);
                let has =
                    |member: u64| matches!(data, Some(Data::Members(members)) if members.contains(&member));
                Reply::Array([*first, *first + 1].map(|member| Reply::Int(i64::from(has(member)))).into())
            }
            Command::Log(command) if command.is_read() => {
                let log = find(Key::Log)?.and_then(|value| match &value.data {
                    Data::Log(log) => Some(&**log),
                    _ => None,
                });
                log::read(log, *command)
            }
            // A write may be answered like a read only if it changes nothing.
            _ => {
                let mut after = self.clone();
                let reply = after.apply(command, now);
                return (after == *self).then_some(reply);
            }
        })
    }

    /// Returns the number of changes of a key that a transaction begins or ends to watch now.
    pub fn watch(&mut self, key: Key, now: UnixMillis) -> u64 {
        self.expire_key(key, now);
        self.changes.get(&key).copied().unwrap_or(0)
    }

    fn changed(&mut self, key: Key) {
        *self.changes.entry(key).or_default() += 1;
    }

    /// Applies a command of a log entry and returns its reply.
    pub fn apply(&mut self, command: &Command, now: UnixMillis) -> Reply {
        match *command {
            Command::Transaction { .. } | Command::Checked { .. } => {
                Reply::Array(command.parts().iter().map(|part| self.apply(part, now)).collect())
            }
            Command::Script { .. } => {
                Reply::Array(command.called().iter().map(|part| self.apply(part, now)).collect())
            }
            Command::Set { key, value } => self.put(key, value, None),
            Command::SetFor { key, value, ms } => self.put(key, value, Some(now + ms)),
            Command::SetBoth { first, second } => {
                self.put(Key::First, first, None);
                self.put(Key::Second, second, None)
            }
            Command::Append { key, value } => {
                self.expire_key(key, now);
                self.changed(key);
                let fresh = || Value { data: Data::Text(String::new()), expires_ms: None };
                let Data::Text(text) = &mut self.values.entry(key).or_insert_with(fresh).data else {
                    unreachable!("strings are appended to")
                };
                text.push_str(&value.to_string());
                Reply::Int(text.len() as i64)
            }
            Command::Delete { key } => {
                self.expire_key(key, now);
                Reply::Int(i64::from(self.remove(key)))
            }
            Command::Increment => {
                self.changed(Key::Counter);
                let fresh = || Value { data: Data::Text("0".into()), expires_ms: None };
                let Data::Text(text) = &mut self.values.entry(Key::Counter).or_insert_with(fresh).data else {
                    unreachable!("the counter is a string")
                };
                let next = text.parse::<i64>().expect("a number") + 1;
                *text = next.to_string();
                Reply::Int(next)
            }
            Command::SetField { field, value } => {
                self.changed(Key::Fields);
                let fresh = || Value { data: Data::Fields(BTreeMap::new()), expires_ms: None };
                let Data::Fields(fields) = &mut self.values.entry(Key::Fields).or_insert_with(fresh).data
                else {
                    unreachable!("the hash is a hash")
                };
                Reply::Int(i64::from(fields.insert(field, value).is_none()))
            }
            Command::Push { value, count } => {
                let list = self.collection(Key::List, now, Data::List(Arc::default())).list();
                list.extend(elements(value, count));
                Reply::Int(list.len() as i64)
            }
            Command::Pop { count } => {
                self.expire_key(Key::List, now);
                let Some(value) = self.values.get_mut(&Key::List) else { return Reply::NilArray };
                let list = value.data.list();
                let popped: Vec<Reply> = list
                    .drain(..(count as usize).min(list.len()))
                    .map(|element| Reply::bulk(element.into_bytes()))
                    .collect();
                self.taken_from(Key::List);
                Reply::Array(popped)
            }
            Command::AddMember { member } => {
                let members = self.collection(Key::Members, now, Data::Members(BTreeSet::new())).members();
                Reply::Int(i64::from(members.insert(member)))
            }
            Command::RemoveMember { member } => {
                self.expire_key(Key::Members, now);
                let Some(value) = self.values.get_mut(&Key::Members) else { return Reply::Int(0) };
                let was_there = value.data.members().remove(&member);
                self.taken_from(Key::Members);
                Reply::Int(i64::from(was_there))
            }
            Command::AddScores { value, count } => {
                let scores = self.collection(Key::Scores, now, Data::Scores(Arc::default())).scores();
                scores.extend(elements(value, count).map(|element| (score_of(&element), element)));
                Reply::Int(count as i64)
            }
            Command::RemoveLowest { count } => Reply::Int(self.take_lowest(count, now).len() as i64),
            Command::TakeLowest { count } => {
                let taken = self.take_lowest(count, now).into_iter();
                let pair = |(score, element): (u64, String)| {
                    [Reply::bulk(element.into_bytes()), Reply::Double(score as f64)]
                };
                Reply::Array(taken.flat_map(pair).collect())
            }
            Command::CopyScores => {
                [Key::Scores, Key::Copied].into_iter().for_each(|key| self.expire_key(key, now));
                let Some(value) = self.values.get(&Key::Scores).cloned() else { return Reply::Int(0) };
                self.values.insert(Key::Copied, value);
                self.changed(Key::Copied);
                Reply::Int(1)
            }
            Command::ExpireIn { key, ms } => {
                self.expire_key(key, now);
                let Some(value) = self.values.get_mut(&key) else { return Reply::Int(0) };
                value.expires_ms = Some(now + ms);
                self.changed(key);
                Reply::Int(1)
            }
            Command::Get { key } | Command::Range { key, .. } => {
                self.expire_key(key, now);
                self.read(command, now).expect("nothing is due")
            }
            Command::Log(of) if !of.is_read() => self.apply_to_log(of, now),
            Command::Log(_) => {
                self.expire_key(Key::Log, now);
                self.read(command, now).expect("nothing is due")
            }
            Command::CountMembers | Command::HasMembers { .. } => {
                self.expire_key(Key::Members, now);
                self.read(command, now).expect("nothing is due")
            }
            Command::GetBoth | Command::GetField { .. } => {
                self.expire(now);
                self.read(command, now).expect("nothing is due")
            }
        }
    }

    /// Removes members with the lowest ranks.
    fn take_lowest(&mut self, count: u64, now: UnixMillis) -> Vec<(u64, String)> {
        self.expire_key(Key::Scores, now);
        let Some(value) = self.values.get_mut(&Key::Scores) else { return Vec::new() };
        let scores = value.data.scores();
        let taken: Vec<(u64, String)> = (0..count).map_while(|_| scores.pop_first()).collect();
        self.taken_from(Key::Scores);
        taken
    }

    fn apply_to_log(&mut self, command: LogCommand, now: UnixMillis) -> Reply {
        self.expire_key(Key::Log, now);
        let old = self.values.remove(&Key::Log);
        let expires_ms = old.as_ref().and_then(|value| value.expires_ms);
        let mut log = old.and_then(|value| match value.data {
            Data::Log(log) => Some(Arc::unwrap_or_clone(log)),
            _ => None,
        });
        let (reply, is_changed) = log::apply(&mut log, command, now);
        if is_changed {
            self.changed(Key::Log);
        }
        if let Some(log) = log {
            self.values.insert(Key::Log, Value { data: Data::Log(Arc::new(log)), expires_ms });
        }
        reply
    }

    /// Returns the data of a collection that elements are added to.
    fn collection(&mut self, key: Key, now: UnixMillis, fresh: Data) -> &mut Data {
        self.expire_key(key, now);
        self.changed(key);
        &mut self.values.entry(key).or_insert(Value { data: fresh, expires_ms: None }).data
    }

    /// Deletes a collection if its last element was removed.
    fn taken_from(&mut self, key: Key) {
        match self.values.get(&key).is_some_and(|value| value.data.is_empty()) {
            true => drop(self.remove(key)),
            false => self.changed(key),
        }
    }

    /// Deletes all expired keys.
    pub fn expire(&mut self, now: UnixMillis) {
        Key::ALL.into_iter().for_each(|key| self.expire_key(key, now));
    }

    fn expire_key(&mut self, key: Key, now: UnixMillis) {
        if self.values.get(&key).is_some_and(|value| value.expires_ms.is_some_and(|at| at <= now)) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: Key) -> bool {
        let was_there = self.values.remove(&key).is_some();
        if was_there {
            self.changed(key);
        }
        was_there
    }

    fn put(&mut self, key: Key, value: u64, expires_ms: Option<UnixMillis>) -> Reply {
        self.changed(key);
        self.values.insert(key, Value { data: Data::Text(value.to_string()), expires_ms });
        Reply::OK
    }
}

#[cfg(test)]
mod tests {
    use storage::{MemoryKeyspace, Txn};
    use types::SlotRange;

    use super::*;
    use crate::rng::Rng;

    /// Returns the log's command for a script.
    fn as_in_log(args: Vec<Bytes>) -> Vec<Bytes> {
        use command::scripting::{eval_args, Caller, Code, ScriptBy, ScriptCall};
        let caller = Caller { has_slots: true, rules: None };
        let (by, code) = match function(1, &args[1]) {
            Some(code) => (ScriptBy::Function, code),
            None => (ScriptBy::Body, Code { body: args[1].clone(), function: None }),
        };
        let call = ScriptCall { by, is_readonly: false };
        eval_args(call, &args, Ok(code), caller).unwrap()
    }

    /// Runs the model and the real commands side by side.
    #[test]
    fn the_model_says_what_the_commands_say() {
        let mut rng = Rng::new(7);
        let (mut engine, mut state) = (MemoryKeyspace::default(), GroupState::default());
        let mut now = 1000;
        for value in 0..2000 {
            now += rng.below(40);
            let mut command = match crate::client::drawn_collection(rng.draw(), value, rng.chance(40)) {
                Some(command) if rng.chance(50) => command,
                _ => crate::client::draw(&mut rng, value),
            };
            if rng.chance(10) {
                command = crate::client::drawn_copy(rng.draw(), value, rng.chance(40)).unwrap_or(command);
            }
            if let Some(of_log) = crate::client::drawn_of_log(rng.draw(), value, rng.chance(40)) {
                command = of_log;
            }
            if !command.is_read() && value % 5 == 0 {
                command = Command::Script { key: Key::First, value };
            }
            let mut args = command.args(LOG_GROUP);
            if command.is_script() {
                args = as_in_log(args);
            }
            let mut builder = command::entry::Builder::new();
            builder.push(0, false, &args);
            let mut txn = Txn::begin(&engine, 1).unwrap();
            let reply = command::entry::apply(&builder.finish(now, 0), &mut txn, SlotRange::ALL).unwrap();
            engine.write(txn.finish().0);
            assert_eq!(reply, [Some(state.apply(&command, now))], "{command:?}");
        }
    }
}
