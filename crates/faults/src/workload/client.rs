//! A client: which commands it sends, and how it interprets their replies.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use ::client::cluster_client::{Call as Request, ClusterClient, Outcome};
use bytes::Bytes;
use resp::Reply;

use super::{Notes, Object, Shared};
use crate::chance::Chance;
use crate::history::{Answer, Call, Member, Operation};

/// The Redis type of an object, and the commands used on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A string, with SET and GET.
    Register,
    /// A string, with INCR and GET.
    Counter,
    /// A string, with APPEND and GET. The order of all writes is visible in its value.
    Journal,
    /// Three strings with one hash tag, with MSET and MGET.
    Tagged,
    /// A hash of three fields, with HSET and HMGET.
    Hash,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Register, Kind::Counter, Kind::Journal, Kind::Tagged, Kind::Hash];

    fn members(self) -> &'static [Member] {
        match self {
            Kind::Register | Kind::Counter | Kind::Journal => &[0],
            Kind::Tagged | Kind::Hash => &[0, 1, 2],
        }
    }

    /// Chooses a call. No other call writes `word`.
    fn call(self, chance: &mut Chance, word: String, value_bytes: usize) -> Call {
        if chance.below(2) == 0 {
            return Call::Read(self.members().to_vec());
        }
        match self {
            Kind::Register => Call::Write(vec![(0, format!("{word:.<value_bytes$}"))]),
            Kind::Counter => Call::Increment(0),
            Kind::Journal => Call::Append(0, word + ";"),
            Kind::Tagged | Kind::Hash => {
                // All members, or two of the three.
                let left_out = chance.below(4) as Member;
                let written = self.members().iter().filter(|&&member| member != left_out);
                Call::Write(written.map(|&member| (member, format!("{word}.{member}"))).collect())
            }
        }
    }
}

impl Object {
    fn name(&self, load: &str) -> String {
        format!("{load}:{:?}:{}:{}", self.kind, self.lane, self.generation)
    }

    pub(super) fn label(&self) -> String {
        self.name("")[1..].to_owned()
    }

    fn request(&self, load: &str, call: &Call) -> Request {
        let name = self.name(load);
        let key = |member: &Member| format!("{{{name}}}:{member}");
        let mut words: Vec<String> = Vec::new();
        match (self.kind, call) {
            (Kind::Tagged, Call::Write(pairs)) => {
                words.push("MSET".into());
                pairs.iter().for_each(|(member, value)| words.extend([key(member), value.clone()]));
            }
            (Kind::Tagged, Call::Read(members)) => {
                words.push("MGET".into());
                words.extend(members.iter().map(key));
            }
            (Kind::Hash, Call::Write(pairs)) => {
                words.extend(["HSET".into(), name]);
                pairs.iter().for_each(|(member, value)| words.extend([member.to_string(), value.clone()]));
            }
            (Kind::Hash, Call::Read(members)) => {
                words.extend(["HMGET".into(), name]);
                words.extend(members.iter().map(Member::to_string));
            }
            (_, Call::Write(pairs)) => words.extend(["SET".into(), name, pairs[0].1.clone()]),
            (_, Call::Read(_)) => words.extend(["GET".into(), name]),
            (_, Call::Increment(_)) => words.extend(["INCR".into(), name]),
            (_, Call::Append(_, text)) => words.extend(["APPEND".into(), name, text.clone()]),
        }
        Request::new(words.into_iter().map(Bytes::from).collect(), matches!(call, Call::Read(_)))
    }

    /// Interprets a reply. Returns `None` if this call cannot have such a reply.
    fn answer(&self, call: &Call, reply: &Reply) -> Option<Answer> {
        let value = |reply: &Reply| match reply {
            Reply::Bulk(bytes) => Some(Some(String::from_utf8_lossy(bytes).into_owned())),
            Reply::Nil => Some(None),
            _ => None,
        };
        match (self.kind, call, reply) {
            // HSET returns the number of new fields, which the model does not track.
            (Kind::Hash, Call::Write(_), Reply::Int(_)) => Some(Answer::Written),
            (_, Call::Write(_), Reply::Simple(_)) => Some(Answer::Written),
            (Kind::Tagged | Kind::Hash, Call::Read(_), Reply::Array(values)) => {
                values.iter().map(value).collect::<Option<_>>().map(Answer::Values)
            }
            (_, Call::Read(_), reply) => Some(Answer::Values(vec![value(reply)?])),
            (_, Call::Increment(_), Reply::Int(number)) => Some(Answer::Number(*number)),
            (_, Call::Append(..), Reply::Int(length)) => Some(Answer::Length(u64::try_from(*length).ok()?)),
            _ => None,
        }
    }
}

pub(super) async fn run(number: u32, client: ClusterClient, shared: Arc<Shared>, seed: u64) -> Notes {
    let mut chance = Chance::new(seed);
    let mut notes = Notes::default();
    let mut words = 0u64;
    while !shared.stop.load(Ordering::Relaxed) {
        let lane = chance.below(shared.begun.len() as u64) as usize;
        let begun = shared.begun[lane].fetch_add(1, Ordering::Relaxed);
        let object = Object {
            kind: Kind::ALL[lane % Kind::ALL.len()],
            lane: (lane / Kind::ALL.len()) as u32,
            generation: begun / shared.shape.per_object,
        };
        words += 1;
        let call = object.kind.call(&mut chance, format!("{number}-{words}"), shared.shape.value_bytes);
        notes.ask(number, &client, &shared, object, call).await;
        tokio::time::sleep(shared.shape.rest).await;
    }
    notes
}

/// Reads each object, as a client that comes after all others.
pub(super) async fn read_back(client: &ClusterClient, shared: &Shared, objects: &[Object]) -> Notes {
    let mut notes = Notes::default();
    for object in objects {
        let refused = notes.refused;
        let call = Call::Read(object.kind.members().to_vec());
        notes.ask(u32::MAX, client, shared, *object, call).await;
        let is_known = notes.objects.get(object).is_some_and(|history| history[0].ended.is_some());
        if notes.refused > refused || !is_known {
            notes.errors.push(format!("{} cannot be read back", object.label()));
            return notes;
        }
    }
    notes
}

impl Notes {
    async fn ask(
        &mut self,
        number: u32,
        client: &ClusterClient,
        shared: &Shared,
        object: Object,
        call: Call,
    ) {
        let request = object.request(&shared.name, &call);
        // The client may repeat a read. It counts from the first attempt, which is the weaker
        // claim.
        let began = shared.start.elapsed().as_nanos() as u64;
        let outcome = client.call(&request).await;
        let ended = shared.start.elapsed().as_nanos() as u64;
        let ended = match outcome {
            // The device is full, and nothing was proposed.
            Outcome::Done(Reply::Error(text)) if text.starts_with("MISCONF ") => {
                self.refused += 1;
                return;
            }
            Outcome::Done(reply) => match object.answer(&call, &reply) {
                Some(answer) => {
                    shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                    Some((ended, answer))
                }
                None => {
                    self.errors.push(format!("{}: {call:?} was answered {reply:?}", object.label()));
                    return;
                }
            },
            Outcome::NotDone(_) => {
                self.refused += 1;
                return;
            }
            Outcome::Unknown(_) => None,
        };
        self.objects.entry(object).or_default().push(Operation { client: number, call, began, ended });
    }
}
