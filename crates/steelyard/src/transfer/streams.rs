//! Streams in pieces: read and written by commands.
//!
//! The entries come first, then the stream's numbers, and its groups with their consumers and
//! pending entries. A pending entry whose entry was deleted cannot be written by a command, and is
//! left out. A consumer's time of the last activity becomes that of the import.

use std::collections::VecDeque;

use anyhow::Context;
use bytes::Bytes;
use client::connection::text;
use rdb::{estimated_entries_read, Element, EntryId, StreamPart};
use resp::Reply;

use super::pieces::PIECE_ELEMENTS;
use super::server::call;
use super::source::{time_ms, Source};

/// The number of entries that a group has read, if it is not known.
const UNKNOWN: i64 = -1;

/// A part of the stream that is to be read behind the entries.
enum Rest {
    Group { name: Bytes, last_id: EntryId, entries_read: i64 },
    Consumer { group: Bytes, name: Bytes, seen_ms: u64 },
    Pending { group: Bytes, consumer: Bytes, from: EntryId },
}

/// Reads a stream in pieces.
pub struct StreamReader {
    key: Bytes,
    /// Number of entries of one piece.
    step: u64,
    /// The ID from which on entries are read, until there are no more.
    from: Option<EntryId>,
    rest: VecDeque<Rest>,
}

impl StreamReader {
    pub fn new(key: Bytes, step: u64) -> StreamReader {
        StreamReader { key, step, from: Some(EntryId::MIN), rest: VecDeque::new() }
    }

    /// Returns the next piece, or `None` at the end.
    pub async fn next(&mut self, source: &mut Source) -> anyhow::Result<Option<Vec<Element>>> {
        let parts = match self.from {
            Some(from) => self.entries(source, from).await?,
            None => match self.rest.pop_front() {
                Some(rest) => self.part_of(source, rest).await?,
                None => return Ok(None),
            },
        };
        Ok(Some(parts.into_iter().map(Element::Stream).collect()))
    }

    async fn entries(&mut self, source: &mut Source, from: EntryId) -> anyhow::Result<Vec<StreamPart>> {
        let (from, step) = (from.to_string(), self.step.to_string());
        let words = [&b"XRANGE"[..], &self.key, from.as_bytes(), b"+", b"COUNT", step.as_bytes()];
        let mut parts = Vec::new();
        let mut last = None;
        for entry in items(call(&mut source.connection, &words).await?)? {
            let [id, pairs] = parts_of(entry)?;
            let id = entry_id(&id)?;
            let pairs = items(pairs)?.iter().map(text).collect::<Option<Vec<Bytes>>>();
            parts.push(StreamPart::Entry { id, pairs: pairs.context("the fields of an entry")? });
            last = Some(id);
        }
        self.from = match parts.len() as u64 == self.step {
            true => last.and_then(EntryId::next),
            false => None,
        };
        if self.from.is_none() {
            parts.push(self.numbers(source).await?);
        }
        Ok(parts)
    }

    /// Reads the stream's numbers, and the names of its groups.
    async fn numbers(&mut self, source: &mut Source) -> anyhow::Result<StreamPart> {
        let about = |name: &'static [u8]| [&b"XINFO"[..], name, &self.key];
        let stream = call(&mut source.connection, &about(b"STREAM")).await?;
        let groups = call(&mut source.connection, &about(b"GROUPS")).await?;
        let id = |name: &str| field(&stream, name).map(entry_id).transpose();
        let number = |name: &str| match field(&stream, name) {
            Some(Reply::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let last_id = id("last-generated-id")?.context("a stream without its last ID")?;
        let first_id = match field(&stream, "first-entry") {
            Some(Reply::Array(entry)) => entry.first().map(entry_id).transpose()?,
            _ => None,
        };
        let entries = (number("length").unwrap_or(0), first_id);
        for group in items(groups)? {
            let name = field(&group, "name").and_then(text).context("a group without a name")?;
            let delivered = field(&group, "last-delivered-id").context("a group without an ID")?;
            let delivered = entry_id(delivered)?;
            let entries_read = match field(&group, "entries-read") {
                Some(Reply::Int(number)) => *number,
                Some(_) => UNKNOWN,
                // Redis 6 does not tell it.
                None => estimated_entries_read(entries, last_id, delivered),
            };
            self.rest.push_back(Rest::Group { name, last_id: delivered, entries_read });
        }
        Ok(StreamPart::Numbers {
            last_id,
            max_deleted_id: id("max-deleted-entry-id")?.unwrap_or_default(),
            entries_added: number("entries-added").or(number("length")).unwrap_or(0),
        })
    }

    async fn part_of(&mut self, source: &mut Source, rest: Rest) -> anyhow::Result<Vec<StreamPart>> {
        match rest {
            Rest::Group { name, last_id, entries_read } => {
                let words = [&b"XINFO"[..], b"CONSUMERS", &self.key, &name];
                let (consumers, now_ms) = with_time(source, &words).await?;
                for consumer in items(consumers)?.into_iter().rev() {
                    let seen_ms = now_ms.saturating_sub(number_of(field(&consumer, "idle"))?);
                    let consumer = field(&consumer, "name").and_then(text).context("a consumer")?;
                    let group = name.clone();
                    self.rest.push_front(Rest::Consumer { group, name: consumer, seen_ms });
                }
                Ok(vec![StreamPart::Group { name, last_id, entries_read }])
            }
            Rest::Consumer { group, name, seen_ms } => {
                let consumer = name.clone();
                self.rest.push_front(Rest::Pending { group, consumer, from: EntryId::MIN });
                Ok(vec![StreamPart::Consumer { name, seen_ms }])
            }
            Rest::Pending { group, consumer, from } => self.pending(source, group, consumer, from).await,
        }
    }

    async fn pending(
        &mut self,
        source: &mut Source,
        group: Bytes,
        consumer: Bytes,
        from: EntryId,
    ) -> anyhow::Result<Vec<StreamPart>> {
        let (from, step) = (from.to_string(), PIECE_ELEMENTS.to_string());
        let words = [&b"XPENDING"[..], &self.key, &group, from.as_bytes(), b"+", step.as_bytes(), &consumer];
        let (pending, now_ms) = with_time(source, &words).await?;
        let mut parts = Vec::new();
        let mut last = None;
        for pending in items(pending)? {
            let [id, _, idle, deliveries] = parts_of(pending)?;
            let id = entry_id(&id)?;
            let delivered_ms = now_ms.saturating_sub(number_of(Some(&idle))?);
            let deliveries = number_of(Some(&deliveries))?;
            parts.push(StreamPart::Pending { id, delivered_ms, deliveries });
            last = Some(id);
        }
        if let (true, Some(from)) = (parts.len() as u64 == PIECE_ELEMENTS, last.and_then(EntryId::next)) {
            self.rest.push_front(Rest::Pending { group, consumer, from });
        }
        Ok(parts)
    }
}

/// Returns the answer to a command, and the time at the source.
async fn with_time(source: &mut Source, words: &[&[u8]]) -> anyhow::Result<(Reply, u64)> {
    source.connection.queue(&["TIME"]);
    source.connection.queue(words);
    source.connection.flush().await?;
    let now_ms = time_ms(&source.connection.reply().await?);
    match source.connection.reply().await? {
        Reply::Error(text) => anyhow::bail!("{}: {text}", String::from_utf8_lossy(words[0])),
        reply => Ok((reply, now_ms)),
    }
}

fn items(reply: Reply) -> anyhow::Result<Vec<Reply>> {
    match reply {
        Reply::Array(items) => Ok(items),
        other => anyhow::bail!("not a list: {other:?}"),
    }
}

fn parts_of<const N: usize>(reply: Reply) -> anyhow::Result<[Reply; N]> {
    let parts = items(reply)?;
    <[Reply; N]>::try_from(parts).map_err(|parts| anyhow::anyhow!("not {N} parts: {parts:?}"))
}

/// Returns the value of a name in an answer to `XINFO`.
fn field<'r>(reply: &'r Reply, name: &str) -> Option<&'r Reply> {
    let Reply::Array(items) = reply else { return None };
    let of = |pair: &&[Reply]| pair.len() == 2 && text(&pair[0]).is_some_and(|text| text == name);
    items.chunks(2).find(of).map(|pair| &pair[1])
}

fn number_of(reply: Option<&Reply>) -> anyhow::Result<u64> {
    match reply {
        Some(Reply::Int(number)) => Ok(u64::try_from(*number).unwrap_or(0)),
        other => anyhow::bail!("not a number: {other:?}"),
    }
}

fn entry_id(reply: &Reply) -> anyhow::Result<EntryId> {
    let text = text(reply).context("not an ID")?;
    let numbers = std::str::from_utf8(&text).ok().and_then(|text| text.split_once('-'));
    let numbers = numbers.and_then(|(ms, seq)| Some((ms.parse().ok()?, seq.parse().ok()?)));
    let (ms, seq) = numbers.with_context(|| format!("not an ID: {}", text.escape_ascii()))?;
    Ok(EntryId { ms, seq })
}

/// Makes the commands that write a stream.
#[derive(Default)]
pub struct StreamCommands {
    exists: bool,
    /// The command that sets the stream's numbers at the end.
    numbers: Option<Vec<Bytes>>,
    group: Bytes,
    consumer: Bytes,
}

fn text_of(number: impl ToString) -> Bytes {
    number.to_string().into()
}

/// Returns a number as Redis accepts it in an argument.
fn argument(number: u64) -> Bytes {
    text_of(i64::try_from(number).unwrap_or(i64::MAX))
}

impl StreamCommands {
    /// Returns the commands for some parts.
    pub fn of(&mut self, key: &Bytes, elements: &[Element]) -> Vec<Vec<Bytes>> {
        let mut commands: Vec<Vec<Bytes>> = Vec::new();
        // The time and number of deliveries of the entries that are claimed together.
        let mut claimed = None;
        let parts = elements.iter().filter_map(|element| match element {
            Element::Stream(part) => Some(part),
            _ => None,
        });
        for part in parts {
            let words: Vec<Bytes> = match part {
                StreamPart::Node { .. } => continue,
                StreamPart::Entry { id, pairs } => {
                    self.exists = true;
                    let mut words = vec!["XADD".into(), key.clone(), text_of(id)];
                    words.extend(pairs.iter().cloned());
                    words
                }
                StreamPart::Numbers { last_id, max_deleted_id, entries_added } => {
                    self.numbers = Some(vec![
                        "XSETID".into(),
                        key.clone(),
                        text_of(last_id),
                        "ENTRIESADDED".into(),
                        argument(*entries_added),
                        "MAXDELETEDID".into(),
                        text_of(max_deleted_id),
                    ]);
                    continue;
                }
                StreamPart::Group { name, last_id, entries_read } => {
                    self.exists = true;
                    self.group = name.clone();
                    create_group(key, name.clone(), *last_id, *entries_read)
                }
                StreamPart::Consumer { name, .. } => {
                    self.consumer = name.clone();
                    let (group, name) = (self.group.clone(), name.clone());
                    vec!["XGROUP".into(), "CREATECONSUMER".into(), key.clone(), group, name]
                }
                StreamPart::Pending { id, delivered_ms, deliveries } => {
                    let of = (delivered_ms, deliveries);
                    if let (true, Some(words)) = (claimed == Some(of), commands.last_mut()) {
                        // The IDs precede the options.
                        words.insert(words.len() - CLAIM_OPTIONS, text_of(id));
                        continue;
                    }
                    claimed = Some(of);
                    commands.push(self.claim(key, *id, of));
                    continue;
                }
            };
            claimed = None;
            commands.push(words);
        }
        commands
    }

    fn claim(&self, key: &Bytes, id: EntryId, (delivered_ms, deliveries): (&u64, &u64)) -> Vec<Bytes> {
        let mut words = vec!["XCLAIM".into(), key.clone(), self.group.clone(), self.consumer.clone()];
        words.extend(["0".into(), text_of(id), "TIME".into(), argument(*delivered_ms)]);
        words.extend(["RETRYCOUNT".into(), argument(*deliveries), "FORCE".into(), "JUSTID".into()]);
        words
    }

    /// Returns the commands at the end.
    pub fn finish(self, key: &Bytes) -> Vec<Vec<Bytes>> {
        let mut commands = Vec::new();
        if !self.exists {
            // A stream without entries is made by a group, which then goes.
            commands.push(create_group(key, "g".into(), EntryId::MIN, UNKNOWN));
            commands.push(vec!["XGROUP".into(), "DESTROY".into(), key.clone(), "g".into()]);
        }
        commands.extend(self.numbers);
        commands
    }
}

/// Number of words of `XCLAIM` behind the IDs.
const CLAIM_OPTIONS: usize = 6;

fn create_group(key: &Bytes, name: Bytes, last_id: EntryId, entries_read: i64) -> Vec<Bytes> {
    let mut words = vec!["XGROUP".into(), "CREATE".into(), key.clone(), name, text_of(last_id)];
    words.extend(["MKSTREAM".into(), "ENTRIESREAD".into(), text_of(entries_read.max(UNKNOWN))]);
    words
}

/// Returns the number of pending entries that the answers to commands have left out.
pub fn left_out(commands: &[Vec<Bytes>], replies: &[Reply]) -> u64 {
    let of = |(words, reply): (&Vec<Bytes>, &Reply)| match reply {
        Reply::Array(claimed) if words[0] == "XCLAIM" => {
            // The words before and behind the IDs.
            (words.len().saturating_sub(5 + CLAIM_OPTIONS).saturating_sub(claimed.len())) as u64
        }
        _ => 0,
    };
    commands.iter().zip(replies).map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_entries_of_one_delivery_are_claimed_together() {
        let (key, id) = (Bytes::from("k"), |seq| EntryId { ms: 7, seq });
        let pending = |seq, delivered_ms| {
            Element::Stream(StreamPart::Pending { id: id(seq), delivered_ms, deliveries: 2 })
        };
        let elements = [
            Element::Stream(StreamPart::Group { name: "g".into(), last_id: id(9), entries_read: -7 }),
            Element::Stream(StreamPart::Consumer { name: "c".into(), seen_ms: 5 }),
            pending(1, 30),
            pending(2, 30),
            pending(3, 31),
        ];
        let mut maker = StreamCommands::default();
        let commands = maker.of(&key, &elements);
        let shown: Vec<String> = commands
            .iter()
            .map(|words| words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            shown,
            [
                "XGROUP CREATE k g 7-9 MKSTREAM ENTRIESREAD -1",
                "XGROUP CREATECONSUMER k g c",
                "XCLAIM k g c 0 7-1 7-2 TIME 30 RETRYCOUNT 2 FORCE JUSTID",
                "XCLAIM k g c 0 7-3 TIME 31 RETRYCOUNT 2 FORCE JUSTID",
            ]
        );
        let replies =
            [Reply::OK, Reply::Int(1), Reply::Array(vec![Reply::bulk("7-2")]), Reply::Array(vec![])];
        assert_eq!(left_out(&commands, &replies), 2);
        assert_eq!(maker.finish(&key).len(), 0, "there were no numbers");
        assert_eq!(StreamCommands::default().finish(&key).len(), 2);
    }
}
