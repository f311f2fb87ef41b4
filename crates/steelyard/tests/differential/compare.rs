//! The rules by which two answers count as the same.

use std::collections::BTreeSet;

use bytes::Bytes;
use resp::Reply;

/// The rule by which the answers to one command are compared. Errors are always compared exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Exact,
    /// An array or a set in any order.
    Unordered,
    /// A map in any order, which RESP2 sends as a flat array.
    Pairs,
    /// A time that depends on the servers' own clocks.
    Time {
        milliseconds: bool,
    },
    /// A sum of decimal numbers, stored under the key at that argument.
    Sum {
        key_at: usize,
    },
    /// An answer about a stream with idle times, times of delivery, or the size of Redis's tree.
    Idle,
    /// A turn of a walk. Its cursor and its items may differ between the servers.
    Turn,
    /// The answer to `HELLO` without the connection's number.
    Greeting,
    /// Any key that exists.
    RandomKey,
    /// Fields of the hash at argument 1. Their number, and whether they repeat, must be right.
    RandomFields,
    /// Members of the set at argument 1, likewise.
    RandomMembers,
    /// Members of the sorted set at argument 1, and perhaps their scores.
    RandomScores,
    /// Members that are removed from the set at argument 1.
    Popped,
}

impl Compare {
    /// Returns true if the comparison sends further commands. Then nothing may follow the command
    /// in its pipeline.
    pub fn stands_alone(self) -> bool {
        matches!(
            self,
            Compare::Sum { .. }
                | Compare::RandomKey
                | Compare::RandomFields
                | Compare::RandomMembers
                | Compare::RandomScores
                | Compare::Popped
        )
    }

    /// Returns true if both answers agree, as far as the answers alone can show.
    pub fn agrees(self, ours: &Reply, theirs: &Reply) -> bool {
        if ours.is_error() || theirs.is_error() {
            return ours == theirs;
        }
        match self {
            Compare::Exact | Compare::Sum { .. } => ours == theirs,
            Compare::Unordered => match (ours, theirs) {
                (Reply::Array(ours), Reply::Array(theirs)) | (Reply::Set(ours), Reply::Set(theirs)) => {
                    sorted(ours) == sorted(theirs)
                }
                _ => ours == theirs,
            },
            Compare::Pairs => match (ours, theirs) {
                (Reply::Array(ours), Reply::Array(theirs)) => pairs(ours) == pairs(theirs),
                (Reply::Map(ours), Reply::Map(theirs)) => sorted_pairs(ours) == sorted_pairs(theirs),
                _ => ours == theirs,
            },
            Compare::Time { milliseconds } => match (ours, theirs) {
                (Reply::Int(ours), Reply::Int(theirs)) if *ours > 0 && *theirs > 0 => {
                    ours.abs_diff(*theirs) <= if milliseconds { CLOCK_SECONDS * 1000 } else { CLOCK_SECONDS }
                }
                _ => ours == theirs,
            },
            Compare::Idle => without_times(ours) == without_times(theirs),
            Compare::Turn => is_turn(ours) && is_turn(theirs),
            Compare::Greeting => without_id(ours) == without_id(theirs),
            Compare::RandomKey => {
                matches!((ours, theirs), (Reply::Nil, Reply::Nil) | (Reply::Bulk(_), Reply::Bulk(_)))
            }
            Compare::RandomFields | Compare::RandomMembers | Compare::RandomScores | Compare::Popped => {
                shape(ours) == shape(theirs)
            }
        }
    }
}

/// Maximum difference in seconds between the times at which the servers execute the same command.
/// The times in use are days apart.
const CLOCK_SECONDS: u64 = 60;

/// Returns a sort key of a reply, for comparisons without order.
fn key_of(reply: &Reply) -> String {
    format!("{reply:?}")
}

pub fn sorted(replies: &[Reply]) -> Vec<String> {
    let mut keys: Vec<String> = replies.iter().map(key_of).collect();
    keys.sort();
    keys
}

fn pairs(flat: &[Reply]) -> Vec<String> {
    let mut keys: Vec<String> = flat.chunks(2).map(|pair| format!("{pair:?}")).collect();
    keys.sort();
    keys
}

fn sorted_pairs(map: &[(Reply, Reply)]) -> Vec<String> {
    let mut keys: Vec<String> = map.iter().map(|pair| format!("{pair:?}")).collect();
    keys.sort();
    keys
}

fn without_id(greeting: &Reply) -> Vec<String> {
    let pairs: Vec<(String, String)> = match greeting {
        Reply::Map(pairs) => pairs.iter().map(|(name, value)| (key_of(name), key_of(value))).collect(),
        Reply::Array(flat) => {
            flat.chunks(2).map(|pair| (key_of(&pair[0]), format!("{:?}", pair.get(1)))).collect()
        }
        other => return vec![key_of(other)],
    };
    pairs.into_iter().filter(|(name, _)| !name.contains("\"id\"")).map(|pair| format!("{pair:?}")).collect()
}

/// Returns a reply about a stream with zeros in place of what differs between the servers.
fn without_times(reply: &Reply) -> Reply {
    const NAMES: [&str; 3] = ["idle", "seen-time", "radix-tree-nodes"];
    let is_time = |name: &Reply| NAMES.iter().any(|of| *name == Reply::bulk(*of));
    let zero = |reply: &Reply| match reply {
        Reply::Int(_) => Reply::Int(0),
        other => other.clone(),
    };
    match reply {
        Reply::Map(pairs) => Reply::Map(
            pairs
                .iter()
                .map(|(name, value)| {
                    (name.clone(), if is_time(name) { zero(value) } else { without_times(value) })
                })
                .collect(),
        ),
        // A pending entry of a group, or of a consumer.
        Reply::Array(items) => match &items[..] {
            [id @ Reply::Bulk(_), name @ Reply::Bulk(_), Reply::Int(_), count @ Reply::Int(_)] => {
                Reply::Array(vec![id.clone(), name.clone(), Reply::Int(0), count.clone()])
            }
            [id @ Reply::Bulk(_), Reply::Int(_), count @ Reply::Int(_)] => {
                Reply::Array(vec![id.clone(), Reply::Int(0), count.clone()])
            }
            items => {
                let after_time = |at: usize| at > 0 && is_time(&items[at - 1]);
                let item = |(at, item)| if after_time(at) { zero(item) } else { without_times(item) };
                Reply::Array(items.iter().enumerate().map(item).collect())
            }
        },
        other => other.clone(),
    }
}

fn is_turn(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(parts) if matches!(parts[..], [Reply::Bulk(_), Reply::Array(_)]))
}

/// Returns the structure of a reply without its texts.
fn shape(reply: &Reply) -> String {
    match reply {
        Reply::Array(items) => format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(" ")),
        Reply::Set(items) => format!("{{{}}}", items.iter().map(shape).collect::<Vec<_>>().join(" ")),
        Reply::Bulk(_) => "text".to_owned(),
        Reply::Double(_) => "score".to_owned(),
        other => key_of(other),
    }
}

/// Returns true if `picked` is a valid answer to `HRANDFIELD` with these arguments, for a hash with
/// `fields`.
pub fn picked_rightly(args: &[Vec<u8>], picked: &Reply, fields: &[(Bytes, Bytes)]) -> bool {
    let holds = |field: &Reply| {
        fields.iter().find(|(name, _)| *field == Reply::Bulk(name.clone())).map(|(_, value)| value.clone())
    };
    let items = match picked {
        Reply::Bulk(_) => return holds(picked).is_some(),
        Reply::Array(items) => items,
        _ => return true,
    };
    let with_values = args.len() > 3;
    let chosen: Vec<(&Reply, Option<&Reply>)> = match items.first() {
        Some(Reply::Array(_)) => items
            .iter()
            .filter_map(
                |item| if let Reply::Array(pair) = item { Some((&pair[0], pair.get(1))) } else { None },
            )
            .collect(),
        _ if with_values => items.chunks(2).map(|pair| (&pair[0], pair.get(1))).collect(),
        _ => items.iter().map(|field| (field, None)).collect(),
    };
    let true_values = chosen.iter().all(|(field, value)| match (holds(field), value) {
        (Some(held), Some(value)) => **value == Reply::Bulk(held),
        (held, None) => held.is_some() && !with_values,
        (None, Some(_)) => false,
    });
    let mut names: Vec<String> = chosen.iter().map(|(field, _)| key_of(field)).collect();
    names.sort();
    names.dedup();
    let may_repeat = args.get(2).is_some_and(|count| count.starts_with(b"-"));
    true_values && (may_repeat || names.len() == chosen.len())
}

/// Returns the items of an array or a set, or the only item.
pub fn items(reply: &Reply) -> Vec<Bytes> {
    let text = |reply: &Reply| if let Reply::Bulk(text) = reply { Some(text.clone()) } else { None };
    match reply {
        Reply::Array(items) | Reply::Set(items) => items.iter().filter_map(text).collect(),
        one => text(one).into_iter().collect(),
    }
}

/// Returns true if `picked` is a valid answer to `SRANDMEMBER` or `SPOP` with these arguments, for
/// a set with `members`.
pub fn members_picked_rightly(args: &[Vec<u8>], picked: &Reply, members: &BTreeSet<Bytes>) -> bool {
    let picked = items(picked);
    let may_repeat = args.get(2).is_some_and(|count| count.starts_with(b"-"));
    let different: BTreeSet<&Bytes> = picked.iter().collect();
    picked.iter().all(|member| members.contains(member)) && (may_repeat || different.len() == picked.len())
}

/// Returns the members of a reply with the texts of their scores, which it may have as pairs, in
/// alternation, or not at all.
pub fn scores(reply: &Reply, with_scores: bool) -> Vec<(Bytes, Option<Bytes>)> {
    let text = |reply: &Reply| match reply {
        Reply::Bulk(text) => text.clone(),
        Reply::Double(score) => resp::double_text(*score),
        _ => Bytes::new(),
    };
    match reply {
        Reply::Array(items) if matches!(items.first(), Some(Reply::Array(_))) => {
            items.iter().flat_map(|pair| scores(pair, true)).collect()
        }
        Reply::Array(items) if with_scores => {
            items.chunks(2).map(|pair| (text(&pair[0]), pair.get(1).map(text))).collect()
        }
        Reply::Array(items) => items.iter().map(|item| (text(item), None)).collect(),
        Reply::Bulk(name) => vec![(name.clone(), None)],
        _ => Vec::new(),
    }
}

/// Returns true if `picked` is a valid answer to `ZRANDMEMBER` with these arguments, for a sorted
/// set whose members and scores are `held`.
pub fn scores_picked_rightly(args: &[Vec<u8>], picked: &Reply, held: &[(Bytes, Option<Bytes>)]) -> bool {
    let picked = scores(picked, args.len() > 3);
    let may_repeat = args.get(2).is_some_and(|count| count.starts_with(b"-"));
    let different: BTreeSet<&Bytes> = picked.iter().map(|(name, _)| name).collect();
    let is_held = |(name, score): &(Bytes, Option<Bytes>)| {
        held.iter().any(|(other, held)| other == name && (score.is_none() || score == held))
    };
    picked.iter().all(is_held) && (may_repeat || different.len() == picked.len())
}
