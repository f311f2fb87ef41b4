//! Executes the stream at the target, in order and over one connection.
//!
//! Commands leave in pipelines, and a pipeline is answered before the next one leaves. A command
//! that failed without an effect, for example while the target elects a leader, is repeated, unless
//! a later command on one of its keys was executed already. Every other failure ends the import:
//! what the target has is then no place in the stream.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure, Context};
use bytes::{Bytes, BytesMut};
use client::connection::Connection;
use resp::{Decoder, Limits, Reply};
use tokio::sync::watch;

use super::super::report::shown;
use super::super::server::{select_at_target, ServerUrl};
use super::super::target::may_pass;
use super::commands::{Command, Counts, StreamState, Unit, Units};
use super::{now_ms, Shared};

/// Number and bytes of the commands of one pipeline.
const PIPELINE_COMMANDS: usize = 1000;
const PIPELINE_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 256 << 10;
/// Number of times that commands are sent while their failure may pass, and the time between.
const ATTEMPTS_MAX: u32 = 120;
const PAUSE: Duration = Duration::from_millis(500);

/// Reads commands from the spool.
struct Input {
    shared: Arc<Shared>,
    decoder: Decoder,
    buffer: BytesMut,
    chunk: Vec<u8>,
    /// The offset after the last byte in the buffer.
    read_to: u64,
    /// True if the buffer begins with a command, and not with a part of one that was looked at.
    is_boundary: bool,
}

impl Input {
    fn new(shared: Arc<Shared>, offset: u64) -> Input {
        Input {
            shared,
            decoder: Decoder::new(Limits::default()),
            buffer: BytesMut::new(),
            chunk: vec![0; READ_BYTES],
            read_to: offset,
            is_boundary: true,
        }
    }

    /// Returns the next command and the offset after it, or `None` if it has not arrived.
    fn next(&mut self) -> anyhow::Result<Option<(Vec<Bytes>, u64)>> {
        loop {
            let begin = self.read_to - self.buffer.len() as u64;
            if let (true, Some(first)) = (self.is_boundary, self.buffer.first()) {
                ensure!(
                    *first == b'*',
                    "the stream has no command at offset {begin}, but the byte {}",
                    first.escape_ascii()
                );
            }
            let decoded = self.decoder.decode(&mut self.buffer);
            let decoded = decoded.with_context(|| format!("the stream from offset {begin} on"))?;
            if let Some(request) = decoded {
                self.is_boundary = true;
                return Ok(Some((request.args, self.read_to - self.buffer.len() as u64)));
            }
            self.is_boundary = self.buffer.is_empty();
            let count = self.shared.spool.read(self.read_to, &mut self.chunk)?;
            if count == 0 {
                return Ok(None);
            }
            self.buffer.extend_from_slice(&self.chunk[..count]);
            self.read_to += count as u64;
        }
    }
}

/// The end of what the target has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    pub offset: u64,
    pub state: StreamState,
}

/// One command or transaction on its way.
struct Pending {
    commands: Vec<Command>,
    is_transaction: bool,
    end: u64,
}

impl Pending {
    /// Returns the keys with their databases, or `None` if any key may be concerned.
    fn keys(&self) -> Option<Vec<(u64, Bytes)>> {
        let mut keys = Vec::new();
        for command in &self.commands {
            keys.extend(command.keys()?.into_iter().map(|key| (command.database, key)));
        }
        Some(keys)
    }

    fn bytes(&self) -> usize {
        self.commands.iter().map(Command::bytes).sum()
    }

    /// Returns true if nothing may be sent with it, so that it can be repeated: it may concern any
    /// key, or selects databases in a transaction.
    fn is_alone(&self) -> bool {
        self.keys().is_none() || self.commands.windows(2).any(|pair| pair[0].database != pair[1].database)
    }
}

enum Outcome {
    Done,
    /// It had no effect and may succeed later.
    Passing(String),
}

pub struct Applier {
    url: ServerUrl,
    connection: Connection,
    /// The database that the connection has selected.
    database: u64,
    /// Databases that the target does not refuse.
    accepted: BTreeSet<u64>,
    shared: Arc<Shared>,
    input: Input,
    units: Units,
    ready: VecDeque<Unit>,
    applied: Applied,
}

impl Applier {
    pub async fn connect(
        url: &ServerUrl,
        from: Applied,
        is_cluster: bool,
        shared: Arc<Shared>,
    ) -> anyhow::Result<Applier> {
        Ok(Applier {
            url: url.clone(),
            connection: url.connect().await?,
            database: 0,
            accepted: BTreeSet::from([0]),
            input: Input::new(shared.clone(), from.offset),
            shared,
            units: Units::new(from.state, is_cluster),
            ready: VecDeque::new(),
            applied: from,
        })
    }

    /// Executes commands until all that have arrived are executed and `finish` is true.
    pub async fn run(mut self, mut finish: watch::Receiver<bool>) -> anyhow::Result<(Applied, Counts)> {
        let mut ends = self.shared.spool.ends();
        loop {
            // No more commands arrive after `finish` has become true.
            let finishes = *finish.borrow_and_update();
            ends.borrow_and_update();
            let window = self.fill()?;
            let Some(last) = window.last() else {
                if finishes {
                    return Ok((self.applied, self.units.counts));
                }
                tokio::select! {
                    changed = ends.changed() => changed?,
                    changed = finish.changed() => changed?,
                }
                continue;
            };
            self.applied = Applied { offset: last.end, state: last.after };
            let acknowledges = window.iter().any(|unit| unit.acknowledges);
            self.execute(window).await?;
            self.shared.applied.store(self.applied.offset, Ordering::Release);
            if self.units.counts.held_expiries > 0 {
                self.shared.holds_expiries.store(true, Ordering::Relaxed);
            }
            self.shared.spool.release(self.applied.offset);
            if acknowledges {
                self.shared.acknowledge.notify_one();
            }
        }
    }

    /// Returns units for a pipeline, as far as they have arrived.
    fn fill(&mut self) -> anyhow::Result<Vec<Unit>> {
        let (mut window, mut commands, mut bytes) = (Vec::new(), 0, 0);
        while commands < PIPELINE_COMMANDS && window.len() < PIPELINE_COMMANDS && bytes < PIPELINE_BYTES {
            let Some(unit) = self.ready.pop_front() else {
                let Some((words, end)) = self.input.next()? else { break };
                let arrival_ms = self.shared.spool.arrival_ms(end - 1).unwrap_or_else(now_ms);
                let mut made = Vec::new();
                self.units.push(words, end, arrival_ms, &mut made)?;
                self.ready.extend(made);
                continue;
            };
            commands += unit.commands.len();
            bytes += unit.commands.iter().map(Command::bytes).sum::<usize>();
            window.push(unit);
        }
        Ok(window)
    }

    async fn execute(&mut self, window: Vec<Unit>) -> anyhow::Result<()> {
        let (mut run, mut bytes) = (Vec::new(), 0);
        for unit in window {
            let Unit { commands, is_transaction, end, .. } = unit;
            let pending = match is_transaction {
                true => vec![Pending { commands, is_transaction, end }],
                false => commands
                    .into_iter()
                    .map(|command| Pending { commands: vec![command], is_transaction, end })
                    .collect(),
            };
            for pending in pending {
                let is_alone = pending.is_alone();
                let is_full = bytes >= PIPELINE_BYTES || run.len() >= PIPELINE_COMMANDS;
                if is_alone || is_full {
                    self.execute_run(std::mem::take(&mut run)).await?;
                    bytes = 0;
                }
                if is_alone {
                    self.execute_run(vec![pending]).await?;
                } else {
                    bytes += pending.bytes();
                    run.push(pending);
                }
            }
        }
        self.execute_run(run).await
    }

    /// Executes a pipeline, and repeats what failed without an effect.
    async fn execute_run(&mut self, mut run: Vec<Pending>) -> anyhow::Result<()> {
        let mut reason = String::new();
        for attempt in 0..ATTEMPTS_MAX {
            if run.is_empty() {
                return Ok(());
            }
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let outcomes = self.send(&run).await?;
            if outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done)) {
                return Ok(());
            }
            let mut failed_keys = HashSet::new();
            let mut failed = Vec::new();
            for (pending, outcome) in run.into_iter().zip(outcomes) {
                let keys = pending.keys().unwrap_or_default();
                match outcome {
                    Outcome::Passing(text) => {
                        failed_keys.extend(keys);
                        failed.push(pending);
                        reason = text;
                    }
                    Outcome::Done => {
                        if let Some((_, key)) = keys.into_iter().find(|key| failed_keys.contains(key)) {
                            bail!(
                                "{}: two commands on the key {} were executed out of order, because the first \
                                 one failed: {reason}",
                                self.url,
                                shown(&key)
                            );
                        }
                    }
                }
            }
            run = failed;
        }
        bail!("{}: the target refuses writes: {reason}", self.url)
    }

    /// Sends a pipeline and waits for its replies.
    ///
    /// # Errors
    /// If a command was refused, if its outcome is unknown, or if the connection breaks.
    async fn send(&mut self, run: &[Pending]) -> anyhow::Result<Vec<Outcome>> {
        self.check_databases(run).await?;
        // Numbers of the replies to the selection of a database, and to the commands.
        let mut replies = Vec::with_capacity(run.len());
        for pending in run {
            let mut selects = 0;
            let mut count = 0;
            if let Some(first) = pending.commands.first() {
                selects = u64::from(self.select(first.database));
            }
            if pending.is_transaction {
                self.connection.queue(&["MULTI"]);
                count += 1;
            }
            for command in &pending.commands {
                count += u64::from(self.select(command.database));
                self.connection.queue(&command.words);
                count += 1;
            }
            if pending.is_transaction {
                self.connection.queue(&["EXEC"]);
                count += 1;
            }
            replies.push((selects, count));
        }
        let broken = || format!("{}: the connection broke, so the outcome of commands is unknown", self.url);
        self.connection.flush().await.with_context(broken)?;
        let mut outcomes = Vec::with_capacity(run.len());
        for (pending, (selects, count)) in run.iter().zip(replies) {
            for _ in 0..selects {
                if let Reply::Error(text) = self.connection.reply().await.with_context(broken)? {
                    bail!("{}: database {}: {text}", self.url, pending.commands[0].database);
                }
            }
            let mut error = None;
            let mut last = Reply::Nil;
            for at in 0..count {
                last = self.connection.reply().await.with_context(broken)?;
                if let Reply::Error(text) = &last {
                    if pending.is_transaction && at == 0 {
                        bail!("{}: the target refuses MULTI: {text}", self.url);
                    }
                    // The first error tells why a transaction is not executed.
                    error.get_or_insert_with(|| text.to_string());
                }
            }
            outcomes.push(match error {
                Some(text) if may_pass(&text) => {
                    if pending.is_transaction {
                        // The databases that it selects were not selected.
                        self.database = u64::MAX;
                    }
                    Outcome::Passing(text)
                }
                Some(text) => return Err(self.refusal(pending, &pending.commands[0], &text)),
                None => {
                    self.check_transaction(pending, &last)?;
                    self.shared.commands.fetch_add(pending.commands.len() as u64, Ordering::Relaxed);
                    Outcome::Done
                }
            });
        }
        Ok(outcomes)
    }

    /// Selects each database for the first time, and waits for the answer. Later the selection
    /// leaves with the commands, because a database that was accepted is not refused.
    async fn check_databases(&mut self, run: &[Pending]) -> anyhow::Result<()> {
        let databases: BTreeSet<u64> =
            run.iter().flat_map(|pending| &pending.commands).map(|command| command.database).collect();
        for database in databases {
            if !self.accepted.contains(&database) {
                select_at_target(&mut self.connection, &self.url, database).await?;
                self.database = database;
                self.accepted.insert(database);
            }
        }
        Ok(())
    }

    /// Selects a database if it is another one. Returns true if a reply follows.
    fn select(&mut self, database: u64) -> bool {
        let selects = database != self.database;
        if selects {
            self.connection.queue(&["SELECT".to_owned(), database.to_string()]);
            self.database = database;
        }
        selects
    }

    /// Looks for errors among the replies of a transaction.
    fn check_transaction(&self, pending: &Pending, reply: &Reply) -> anyhow::Result<()> {
        if !pending.is_transaction {
            return Ok(());
        }
        let Reply::Array(replies) = reply else {
            return Err(self.refusal(pending, &pending.commands[0], "EXEC has no replies"));
        };
        let error = replies.iter().position(Reply::is_error);
        let Some(at) = error else { return Ok(()) };
        let Reply::Error(text) = &replies[at] else { return Ok(()) };
        // There are also replies to the selections of databases among the commands.
        let (mut left, mut database) = (at, pending.commands[0].database);
        let failed = pending.commands.iter().find(|command| {
            let count =
                1 + usize::from(std::mem::replace(&mut database, command.database) != command.database);
            let is_failed = left < count;
            left = left.saturating_sub(count);
            is_failed
        });
        let command = failed.unwrap_or(&pending.commands[0]);
        Err(self.refusal(pending, command, text))
    }

    fn refusal(&self, pending: &Pending, command: &Command, text: &str) -> anyhow::Error {
        let name = String::from_utf8_lossy(&command.words[0]).to_ascii_uppercase();
        let keys = command.keys().unwrap_or_default();
        let key = keys.first().map(|key| format!(", key {}", shown(key))).unwrap_or_default();
        let of = if pending.is_transaction { " in a transaction" } else { "" };
        let hint = match text.starts_with("MOVED") || text.starts_with("CROSSSLOT") {
            true => ": in cluster mode, name a forward port, and keys of a command must share a slot",
            false => "",
        };
        anyhow::anyhow!(
            "{}: the target refuses {name}{of} (database {}{key}, before offset {}): {text}{hint}",
            self.url,
            command.database,
            pending.end
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Returns the shared state with a stream of these commands, and their offset.
    fn streamed(lines: &[&str], offset: u64) -> (tempfile::TempDir, Arc<Shared>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared::new(dir.path()));
        shared.spool.begin(offset);
        let mut bytes = BytesMut::new();
        for line in lines {
            resp::encode_request(&line.split(' ').collect::<Vec<_>>(), &mut bytes);
        }
        (dir, shared, bytes.to_vec())
    }

    #[test]
    fn commands_and_their_offsets_are_the_same_at_every_split() {
        let (_dir, shared, bytes) = streamed(&["SELECT 0", "SET a some-value", "PING", "DEL a b"], 500);
        let expected = [523, 560, 574, 601];
        assert_eq!(expected[3], 500 + bytes.len() as u64);
        let mut input = Input::new(shared.clone(), 500);
        let mut seen = Vec::new();
        for at in 0..bytes.len() {
            shared.spool.append(&bytes[at..=at], 0).unwrap();
            while let Some((words, end)) = input.next().unwrap() {
                assert_eq!(end, 500 + at as u64 + 1, "a command ends with its last byte");
                seen.push((words[0].clone(), end));
            }
        }
        assert_eq!(seen.iter().map(|(_, end)| *end).collect::<Vec<_>>(), expected);
        shared.spool.append(b"garbage\r\n", 0).unwrap();
        let error = input.next().unwrap_err().to_string();
        assert!(error.contains("offset 601"), "{error}");
    }

    /// A target that answers by a function of the command and of how often it was asked.
    async fn target(
        answer: impl Fn(&str, usize) -> String + Send + Sync + 'static,
    ) -> (ServerUrl, Arc<Mutex<Vec<String>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = told.clone();
        let address = client::scripted::scripted(move |words| {
            let mut seen = seen.lock().unwrap();
            let times = seen.iter().filter(|known| *known == words).count();
            if words != "PING" {
                seen.push(words.to_owned());
            }
            Some(if words == "PING" { "+PONG\r\n".to_owned() } else { answer(words, times) })
        })
        .await;
        (format!("redis://{address}").parse().unwrap(), told)
    }

    async fn applied(url: &ServerUrl, lines: &[&str]) -> anyhow::Result<(Applied, Counts)> {
        let (_dir, shared, bytes) = streamed(lines, 0);
        shared.spool.append(&bytes, 0)?;
        let from = Applied { offset: 0, state: StreamState::default() };
        let applier = Applier::connect(url, from, false, shared).await?;
        let (_finish, finish) = watch::channel(true);
        applier.run(finish).await
    }

    #[tokio::test]
    async fn a_command_without_an_effect_is_repeated_and_keeps_the_order_of_its_key() {
        let fails_once = |words: &str, times: usize| match (words, times) {
            ("INCR a", 0) => "-CLUSTERDOWN no leader\r\n".to_owned(),
            _ => ":1\r\n".to_owned(),
        };
        let (url, told) = target(fails_once).await;
        applied(&url, &["INCR a", "INCR b", "PING"]).await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["INCR a", "INCR b", "INCR a"]);
        // `SET a` was executed, and `INCR a` would now change its result.
        let (url, _) = target(fails_once).await;
        let error = applied(&url, &["INCR a", "INCR b", "SET a 5"]).await.unwrap_err().to_string();
        assert!(error.contains("out of order") && error.contains("key a"), "{error}");
        // What may concern any key is alone in its pipeline.
        let (url, told) = target(|words, times| match (words, times) {
            ("FLUSHALL", 0) => "-CLUSTERDOWN no leader\r\n".to_owned(),
            _ => ":1\r\n".to_owned(),
        })
        .await;
        applied(&url, &["INCR a", "FLUSHALL", "INCR a"]).await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["INCR a", "FLUSHALL", "FLUSHALL", "INCR a"]);
    }

    #[tokio::test]
    async fn nothing_is_sent_for_a_database_before_the_target_has_accepted_it() {
        let refuses = |words: &str, _: usize| match words {
            "SELECT 3" => "-ERR SELECT is not allowed in cluster mode\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        for lines in [&["SELECT 3", "SET a 1"][..], &["MULTI", "SET a 1", "SELECT 3", "SET b 1", "EXEC"]] {
            let (url, told) = target(refuses).await;
            let error = applied(&url, lines).await.unwrap_err().to_string();
            assert!(error.contains("refuses database 3"), "{error}");
            assert_eq!(*told.lock().unwrap(), ["SELECT 3"], "{lines:?}");
        }
        let (url, told) = target(|_, _| "+OK\r\n".to_owned()).await;
        applied(&url, &["SELECT 3", "SET a 1", "SELECT 0", "SET a 1", "SELECT 3", "SET b 1"]).await.unwrap();
        let told = told.lock().unwrap().join(", ");
        assert_eq!(told, "SELECT 3, SET a 1, SELECT 0, SET a 1, SELECT 3, SET b 1");
    }

    #[tokio::test]
    async fn refusals_and_unknown_outcomes_end_the_import() {
        for error in ["ERR unknown command 'JSON.SET'", "UNKNOWN the outcome", "WRONGTYPE value"] {
            let (url, _) = target(move |words, _| match words {
                "JSON.SET k v" => format!("-{error}\r\n"),
                _ => "+OK\r\n".to_owned(),
            })
            .await;
            let told = applied(&url, &["SET a 1", "JSON.SET k v"]).await.unwrap_err().to_string();
            assert!(told.contains("JSON.SET") && told.contains(error), "{told}");
        }
        let (url, _) = target(|words, _| match words {
            "EXEC" => "*2\r\n:1\r\n-WRONGTYPE value\r\n".to_owned(),
            "MULTI" => "+OK\r\n".to_owned(),
            _ => "+QUEUED\r\n".to_owned(),
        })
        .await;
        let told = applied(&url, &["MULTI", "INCR a", "INCR b", "EXEC"]).await.unwrap_err().to_string();
        assert!(told.contains("INCR in a transaction (database 0, key b"), "{told}");
    }
}
