//! Values too large for one payload: read and written by commands of their type.

use anyhow::{bail, ensure, Context};
use bytes::Bytes;
use client::connection::text;
use rdb::{Element, Kind};
use resp::Reply;

use super::server::{call, number};
use super::source::{step_of, Source};
use super::streams::{left_out, StreamCommands, StreamReader};
use super::target::{Target, Write};

/// Bytes and elements of one piece.
const PIECE_BYTES: u64 = 1 << 20;
pub const PIECE_ELEMENTS: u64 = 1000;

/// Reads a large value in pieces. What is changed meanwhile may be missing, or be there twice.
pub struct LargeReader {
    pub kind: Kind,
    key: Bytes,
    /// The number of elements of one piece.
    step: u64,
    /// The next rank, or the cursor.
    at: u64,
    is_done: bool,
    stream: Option<StreamReader>,
}

impl LargeReader {
    /// Begins to read a key. Returns `None` if it has gone.
    ///
    /// # Errors
    /// Also for a type that cannot be copied.
    pub async fn open(
        source: &mut Source,
        database: u64,
        key: &Bytes,
    ) -> anyhow::Result<Option<LargeReader>> {
        let opened = LargeReader::begin(source, database, key).await;
        opened.map_err(|error| source.url.name_broken(error))
    }

    async fn begin(source: &mut Source, database: u64, key: &Bytes) -> anyhow::Result<Option<LargeReader>> {
        source.select(database).await?;
        let about = |name: &'static str| [Bytes::from(name), key.clone()];
        let kind = text(&call(&mut source.connection, &about("TYPE")).await?).context("no type")?;
        let (kind, count) = match &kind[..] {
            b"none" => return Ok(None),
            b"string" => (Kind::String, "STRLEN"),
            b"list" => (Kind::List, "LLEN"),
            b"set" => (Kind::Set, "SCARD"),
            b"hash" => (Kind::Hash, "HLEN"),
            b"zset" => (Kind::SortedSet, "ZCARD"),
            b"stream" => (Kind::Stream, "XLEN"),
            other => bail!("values of the type {} are not supported", String::from_utf8_lossy(other)),
        };
        let len = number(&mut source.connection, &about(count)).await?.unsigned_abs();
        let bytes = match source.connection.call(&[&b"MEMORY"[..], b"USAGE", key]).await? {
            Reply::Int(bytes) => bytes.unsigned_abs(),
            _ => 0,
        };
        let step = (PIECE_BYTES / (bytes / len.max(1)).max(1)).clamp(1, PIECE_ELEMENTS);
        let stream = (kind == Kind::Stream).then(|| StreamReader::new(key.clone(), step));
        Ok(Some(LargeReader { kind, key: key.clone(), step, at: 0, is_done: false, stream }))
    }

    /// Returns the next piece, or `None` at the end. A piece may have no elements.
    pub async fn next(&mut self, source: &mut Source) -> anyhow::Result<Option<Vec<Element>>> {
        let read = self.read(source).await;
        read.map_err(|error| source.url.name_broken(error))
    }

    async fn read(&mut self, source: &mut Source) -> anyhow::Result<Option<Vec<Element>>> {
        if let Some(stream) = &mut self.stream {
            return stream.next(source).await;
        }
        if self.is_done {
            return Ok(None);
        }
        let key = self.key.clone();
        let numbers = [self.at, self.at.saturating_add(self.step - 1), self.step];
        let [at, last, step] = numbers.map(|number| Bytes::from(number.to_string()));
        let scan = |name: &'static str| vec![name.into(), key.clone(), at.clone(), "COUNT".into(), step];
        let words: Vec<Bytes> = match self.kind {
            Kind::String => vec!["GET".into(), key],
            Kind::List => vec!["LRANGE".into(), key, at, last],
            Kind::Set => scan("SSCAN"),
            Kind::Hash => scan("HSCAN"),
            Kind::SortedSet => scan("ZSCAN"),
            Kind::Stream => unreachable!("a stream has a reader of its own"),
        };
        let reply = call(&mut source.connection, &words).await?;
        let items = match self.kind {
            Kind::String => {
                self.is_done = true;
                vec![text(&reply).context("the key has gone while it was read")?]
            }
            Kind::List => {
                let Reply::Array(items) = reply else { bail!("not an answer to LRANGE") };
                self.is_done = (items.len() as u64) < self.step;
                self.at = self.at.saturating_add(items.len() as u64);
                items.iter().map(text).collect::<Option<Vec<Bytes>>>().context("an element")?
            }
            Kind::Set | Kind::Hash | Kind::SortedSet | Kind::Stream => {
                let (cursor, items) = step_of(reply)?;
                self.is_done = cursor == 0;
                self.at = cursor;
                items
            }
        };
        let mut elements = Vec::with_capacity(items.len());
        let mut items = items.into_iter();
        while let Some(item) = items.next() {
            elements.push(match self.kind {
                Kind::String => Element::String(item),
                Kind::List => Element::Item(item),
                Kind::Set => Element::Member(item),
                Kind::Hash => Element::Field(item, items.next().context("a field without a value")?),
                Kind::SortedSet => {
                    let score = items.next().context("a member without a score")?;
                    let score = std::str::from_utf8(&score).ok().and_then(|score| score.parse().ok());
                    Element::Scored(item, score.context("a score")?)
                }
                Kind::Stream => unreachable!("a stream has a reader of its own"),
            });
        }
        Ok(Some(elements))
    }
}

/// Writes a key in pieces, each of which is complete before the next one leaves.
pub struct LargeWriter<'t> {
    target: &'t mut Target,
    database: u64,
    key: Bytes,
    kind: Kind,
    stream: StreamCommands,
    /// Number of pending entries of a stream that were left out.
    left_out: u64,
}

impl<'t> LargeWriter<'t> {
    /// Deletes the target's key.
    pub async fn begin(
        target: &'t mut Target,
        database: u64,
        key: &Bytes,
        kind: Kind,
    ) -> anyhow::Result<LargeWriter<'t>> {
        target.begin();
        let (stream, left_out) = (StreamCommands::default(), 0);
        let mut writer = LargeWriter { target, database, key: key.clone(), kind, stream, left_out };
        writer.write(vec!["DEL".into(), key.clone()], false).await?;
        Ok(writer)
    }

    async fn write(&mut self, words: Vec<Bytes>, completes: bool) -> anyhow::Result<()> {
        let write = Write { database: self.database, key: self.key.clone(), words, completes };
        // The caller has sent all other commands before, and these are no payloads.
        let mut refused = self.target.push(write).await?;
        refused.extend(self.target.flush().await?);
        ensure!(refused.is_empty(), "a payload was refused while a key was written in pieces");
        Ok(())
    }

    pub async fn push(&mut self, elements: &[Element]) -> anyhow::Result<()> {
        if elements.is_empty() || self.target.has_failed(self.database, &self.key) {
            return Ok(());
        }
        if self.kind == Kind::Stream {
            let commands = self.stream.of(&self.key, elements);
            return self.transaction(commands).await;
        }
        self.write(piece(self.kind, &self.key, elements), false).await
    }

    /// Writes a piece of a stream, which takes several commands.
    async fn transaction(&mut self, commands: Vec<Vec<Bytes>>) -> anyhow::Result<()> {
        if !commands.is_empty() {
            let replies = self.target.transaction((self.database, &self.key), &commands).await?;
            self.left_out += left_out(&commands, &replies);
        }
        Ok(())
    }

    /// Deletes what was written.
    pub async fn discard(mut self) -> anyhow::Result<()> {
        // A part of a value must not look like the value.
        self.write(vec!["DEL".into(), self.key.clone()], false).await
    }

    pub async fn finish(mut self, expire_at_ms: Option<u64>) -> anyhow::Result<()> {
        let key = self.key.clone();
        if self.kind == Kind::Stream && !self.target.has_failed(self.database, &key) {
            let commands = std::mem::take(&mut self.stream).finish(&key);
            self.transaction(commands).await?;
        }
        if self.target.has_failed(self.database, &key) {
            return self.discard().await;
        }
        if self.left_out > 0 {
            self.target.tell_left_out(self.database, &key, self.left_out);
        }
        let last = match expire_at_ms {
            Some(at) => vec!["PEXPIREAT".into(), key, at.to_string().into()],
            // It completes the count of keys.
            None => vec!["PERSIST".into(), key],
        };
        self.write(last, true).await?;
        self.target.count_pieces();
        Ok(())
    }
}

/// Returns the command that adds elements to a key, which is no stream.
pub fn piece(kind: Kind, key: &Bytes, elements: &[Element]) -> Vec<Bytes> {
    let name = match kind {
        Kind::String => "SET",
        Kind::List => "RPUSH",
        Kind::Set => "SADD",
        Kind::Hash => "HSET",
        Kind::SortedSet => "ZADD",
        Kind::Stream => unreachable!("a stream takes several commands"),
    };
    let mut words = vec![name.into(), key.clone()];
    for element in elements {
        match element {
            Element::String(bytes) | Element::Item(bytes) | Element::Member(bytes) => {
                words.push(bytes.clone())
            }
            Element::Field(name, value) => words.extend([name.clone(), value.clone()]),
            Element::Scored(name, score) => words.extend([score.to_string().into(), name.clone()]),
            Element::Stream(_) => unreachable!("a stream takes several commands"),
        }
    }
    words
}

/// Elements that are gathered for a piece.
#[derive(Default)]
pub struct Gathered {
    pub elements: Vec<Element>,
    bytes: u64,
}

impl Gathered {
    /// Adds an element. Returns the elements of a complete piece.
    pub fn add(&mut self, element: Element) -> Option<Vec<Element>> {
        self.bytes += element.len() as u64;
        self.elements.push(element);
        let is_complete = self.bytes >= PIECE_BYTES || self.elements.len() as u64 >= PIECE_ELEMENTS;
        is_complete.then(|| self.take())
    }

    pub fn take(&mut self) -> Vec<Element> {
        self.bytes = 0;
        std::mem::take(&mut self.elements)
    }
}

/// Writes the value of a `RESTORE` that the target does not take in pieces.
pub async fn restore_in_pieces(target: &mut Target, write: &Write, payload: &Bytes) -> anyhow::Result<()> {
    let (number, value) = rdb::open_payload(payload)?;
    let kind = rdb::kind_of(number)?;
    let (mut gathered, mut pieces) = (Gathered::default(), Vec::new());
    rdb::read_value(number, &mut rdb::Source::new(&value[..]), &mut |element| {
        pieces.extend(gathered.add(element));
        Ok(())
    })?;
    pieces.push(gathered.take());
    let mut writer = LargeWriter::begin(target, write.database, &write.key, kind).await?;
    for piece in pieces {
        writer.push(&piece).await?;
    }
    let at = std::str::from_utf8(&write.words[2]).ok().and_then(|at| at.parse().ok()).filter(|at| *at > 0);
    writer.finish(at).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_commands_of_the_type() {
        let key = Bytes::from("k");
        let words = |kind, elements: &[Element]| {
            let words = piece(kind, &key, elements);
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
        };
        let [a, b] = ["a", "b"].map(Bytes::from);
        assert_eq!(words(Kind::List, &[Element::Item(a.clone()), Element::Item(b.clone())]), "RPUSH k a b");
        assert_eq!(words(Kind::Hash, &[Element::Field(a.clone(), b.clone())]), "HSET k a b");
        let scores = [0.1, f64::NEG_INFINITY, 1e300].map(|score| Element::Scored(a.clone(), score));
        assert!(words(Kind::SortedSet, &scores).starts_with("ZADD k 0.1 a -inf a 1000000000"));
    }

    #[test]
    fn a_piece_ends_with_its_bytes_or_elements() {
        let mut gathered = Gathered::default();
        let large = Element::Item(vec![0; PIECE_BYTES as usize].into());
        assert_eq!(gathered.add(large).unwrap().len(), 1);
        let small = || Element::Item(Bytes::from("x"));
        let complete = (1..).find_map(|count| gathered.add(small()).map(|piece| (count, piece.len())));
        assert_eq!(complete, Some((PIECE_ELEMENTS as usize, PIECE_ELEMENTS as usize)));
    }
}
