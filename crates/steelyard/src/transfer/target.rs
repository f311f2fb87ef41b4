//! The server that is written to: commands in pipelines, and what becomes of those that fail.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, Context};
use bytes::Bytes;
use client::connection::Connection;
use resp::Reply;

use super::report::Progress;
use super::server::{select_at_target, ServerUrl};

/// Bytes and commands of one pipeline.
const PIPELINE_BYTES: usize = 4 << 20;
const PIPELINE_COMMANDS: usize = 1000;
/// Number of times that a command is repeated after a failure that may pass, and the time before.
const ATTEMPTS_MAX: u32 = 30;
const PAUSE: Duration = Duration::from_millis(500);

/// Beginnings of errors after which a command may be repeated: all commands of a transfer may be
/// executed twice, except for `RPUSH`, which is repeated only if it had no effect.
const PASSING: [&str; 5] = ["CLUSTERDOWN", "LOADING", "TRYAGAIN", "MISCONF", "OOM"];
/// Words of the error of a new cluster that does not have its newest version yet.
const NEEDS_VERSION: &str = " needs version ";
/// The beginning of the error of a command that may have been executed.
pub const UNKNOWN_OUTCOME: &str = "UNKNOWN";

/// A command for the target.
pub struct Write {
    pub database: u64,
    pub key: Bytes,
    pub words: Vec<Bytes>,
    /// True if the command completes its key.
    pub completes: bool,
}

impl Write {
    pub fn restore(database: u64, key: Bytes, expire_at_ms: Option<u64>, payload: Bytes) -> Write {
        let at = Bytes::from(expire_at_ms.unwrap_or(0).to_string());
        let mut words = vec!["RESTORE".into(), key.clone(), at, payload, "REPLACE".into()];
        if expire_at_ms.is_some() {
            words.push("ABSTTL".into());
        }
        Write { database, key, words, completes: true }
    }

    fn bytes(&self) -> usize {
        self.words.iter().map(|word| word.len() + 16).sum()
    }

    /// Returns true if a second execution would change the result of the first one.
    fn accumulates(&self) -> bool {
        &self.words[0][..] == b"RPUSH"
    }
}

pub struct Target {
    url: ServerUrl,
    connection: Connection,
    database: u64,
    queue: Vec<Write>,
    queued_bytes: usize,
    progress: Arc<Progress>,
    /// The key of which a piece was refused. Its other pieces are dropped.
    failed: Option<(u64, Bytes)>,
}

impl Target {
    pub async fn connect(url: &ServerUrl, progress: Arc<Progress>) -> anyhow::Result<Target> {
        let connection = url.connect().await?;
        let (queue, queued_bytes) = (Vec::new(), 0);
        Ok(Target { url: url.clone(), connection, database: 0, queue, queued_bytes, progress, failed: None })
    }

    /// Adds a command. It is sent when there are enough for a pipeline.
    pub async fn push(&mut self, write: Write) -> anyhow::Result<Vec<Write>> {
        self.queued_bytes += write.bytes();
        self.queue.push(write);
        match self.queued_bytes >= PIPELINE_BYTES || self.queue.len() >= PIPELINE_COMMANDS {
            true => self.flush().await,
            false => Ok(Vec::new()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what is queued and waits for the replies. Returns the commands whose payload is
    /// too large for the target.
    pub async fn flush(&mut self) -> anyhow::Result<Vec<Write>> {
        let mut queue = std::mem::take(&mut self.queue).into_iter().peekable();
        self.queued_bytes = 0;
        let mut too_large = Vec::new();
        // Commands whose failure may pass.
        let mut repeated = Vec::new();
        while let Some(database) = queue.peek().map(|write| write.database) {
            let run: Vec<Write> =
                std::iter::from_fn(|| queue.next_if(|write| write.database == database)).collect();
            self.select(database).await?;
            self.send(run, &mut repeated, &mut too_large).await?;
        }
        for write in repeated {
            self.repeat(write).await?;
        }
        Ok(too_large)
    }

    /// Sends commands for the selected database in a pipeline, and waits for the replies.
    async fn send(
        &mut self,
        run: Vec<Write>,
        repeated: &mut Vec<Write>,
        too_large: &mut Vec<Write>,
    ) -> anyhow::Result<()> {
        run.iter().for_each(|write| self.connection.queue(&write.words));
        self.connection.flush().await.with_context(|| self.url.to_string())?;
        for write in run {
            match self.connection.reply().await.with_context(|| self.url.to_string())? {
                Reply::Error(text) => self.failed(write, &text, repeated, too_large)?,
                _ => self.done(&write),
            }
        }
        Ok(())
    }

    async fn select(&mut self, database: u64) -> anyhow::Result<()> {
        if database != self.database {
            select_at_target(&mut self.connection, &self.url, database).await?;
            self.database = database;
        }
        Ok(())
    }

    /// Returns an error if the target refuses one of these databases.
    pub async fn check_databases(&mut self, databases: impl IntoIterator<Item = u64>) -> anyhow::Result<()> {
        for database in databases {
            self.select(database).await?;
        }
        Ok(())
    }

    fn done(&mut self, write: &Write) {
        let is_failed = self.has_failed(write.database, &write.key);
        self.progress.add(u64::from(write.completes && !is_failed), write.bytes() as u64);
    }

    fn failed(
        &mut self,
        write: Write,
        text: &str,
        repeated: &mut Vec<Write>,
        too_large: &mut Vec<Write>,
    ) -> anyhow::Result<()> {
        let passes = may_pass(text);
        if text.starts_with("MOVED") || text.starts_with("CROSSSLOT") {
            bail!("{}: {text}: in cluster mode, name a forward port", self.url);
        }
        if text.starts_with("NOAUTH") || text.starts_with("NOPERM") || text.starts_with("WRONGPASS") {
            bail!("{}: {text}", self.url);
        }
        if passes || text.starts_with(UNKNOWN_OUTCOME) && !write.accumulates() {
            repeated.push(write);
        } else if &write.words[0][..] == b"RESTORE" && text.contains("too large") {
            too_large.push(write);
        } else {
            self.refuse(write, text);
        }
        Ok(())
    }

    fn refuse(&mut self, write: Write, text: &str) {
        if !self.has_failed(write.database, &write.key) {
            self.progress.refuse(write.database, &write.key, text);
            self.failed = Some((write.database, write.key));
        }
    }

    /// Returns true if a piece of a key was refused.
    pub fn has_failed(&self, database: u64, key: &Bytes) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.0 == database && failed.1 == *key)
    }

    /// Begins to write a key in pieces.
    pub fn begin(&mut self) {
        self.failed = None;
    }

    async fn repeat(&mut self, write: Write) -> anyhow::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            tokio::time::sleep(PAUSE).await;
            self.select(write.database).await?;
            match self.connection.call(&write.words).await.with_context(|| self.url.to_string())? {
                Reply::Error(text) if may_pass(&text) => {}
                Reply::Error(text) if text.starts_with(UNKNOWN_OUTCOME) && !write.accumulates() => {}
                Reply::Error(text) => {
                    self.refuse(write, &text);
                    return Ok(());
                }
                _ => {
                    self.done(&write);
                    return Ok(());
                }
            }
        }
        bail!("{}: the server refuses writes: see its log", self.url)
    }

    /// Executes commands on one key in a transaction. Returns their replies, or none if one of them
    /// was refused, which is then recorded.
    pub async fn transaction(
        &mut self,
        (database, key): (u64, &Bytes),
        commands: &[Vec<Bytes>],
    ) -> anyhow::Result<Vec<Reply>> {
        let refused =
            |words: &[Bytes]| Write { database, key: key.clone(), words: words.to_vec(), completes: false };
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            self.select(database).await?;
            self.connection.queue(&["MULTI"]);
            commands.iter().for_each(|words| self.connection.queue(words));
            self.connection.queue(&["EXEC"]);
            self.connection.flush().await.with_context(|| self.url.to_string())?;
            // The first error tells why the transaction is not executed.
            let mut error = None;
            for _ in 0..=commands.len() {
                let reply = self.connection.reply().await.with_context(|| self.url.to_string())?;
                if let Reply::Error(text) = reply {
                    error.get_or_insert(text);
                }
            }
            match self.connection.reply().await.with_context(|| self.url.to_string())? {
                Reply::Array(replies) => {
                    let failed = commands.iter().zip(&replies).find_map(|(words, reply)| match reply {
                        Reply::Error(text) => Some((words, text)),
                        _ => None,
                    });
                    if let Some((words, text)) = failed {
                        self.refuse(refused(words), text);
                        return Ok(Vec::new());
                    }
                    let bytes = commands.iter().flatten().map(|word| word.len() as u64 + 16).sum();
                    self.progress.add(0, bytes);
                    return Ok(replies);
                }
                Reply::Error(text) => {
                    let text = error.unwrap_or(text);
                    if !may_pass(&text) {
                        let mut repeated = Vec::new();
                        self.failed(refused(&commands[0]), &text, &mut repeated, &mut Vec::new())?;
                        // The outcome is unknown, and entries cannot be added twice.
                        repeated.into_iter().for_each(|write| self.refuse(write, &text));
                        return Ok(Vec::new());
                    }
                }
                other => bail!("{}: an answer to EXEC that is none: {other:?}", self.url),
            }
        }
        bail!("{}: the server refuses writes: see its log", self.url)
    }

    /// Records that a stream was written without some of its pending entries.
    pub fn tell_left_out(&self, database: u64, key: &Bytes, count: u64) {
        self.progress.leave_out(database, key, count);
    }

    /// Counts a key that was copied in pieces.
    pub fn count_pieces(&self) {
        self.progress.in_pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// Executes a command outside of the pipeline.
    pub async fn call(&mut self, words: &[Bytes]) -> anyhow::Result<Reply> {
        self.connection.call(words).await.with_context(|| self.url.to_string())
    }
}

/// Returns true if a command that failed had no effect, and may succeed later.
pub fn may_pass(text: &str) -> bool {
    PASSING.iter().any(|start| text.starts_with(start)) || text.contains(NEEDS_VERSION)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn write(database: u64) -> Write {
        Write::restore(database, "key".into(), None, "payload".into())
    }

    #[tokio::test]
    async fn nothing_is_sent_for_a_database_before_the_target_has_accepted_it() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = told.clone();
        let address = client::scripted::scripted(move |words| {
            seen.lock().unwrap().push(words.to_owned());
            let answer = match words {
                "SELECT 3" => "-ERR DB index is out of range\r\n",
                _ => "+OK\r\n",
            };
            Some(answer.to_owned())
        })
        .await;
        let url = format!("redis://{address}").parse().unwrap();
        let mut target = Target::connect(&url, Progress::new()).await.unwrap();
        for database in [0, 2, 2, 3] {
            assert!(target.push(write(database)).await.unwrap().is_empty());
        }
        let error = target.flush().await.err().unwrap().to_string();
        assert!(error.contains("refuses database 3 (ERR DB index"), "{error}");
        let restore = "RESTORE key 0 payload REPLACE";
        assert_eq!(*told.lock().unwrap(), ["PING", restore, "SELECT 2", restore, restore, "SELECT 3"]);
        assert!(target.check_databases([2]).await.is_ok());
        assert!(target.check_databases([0, 3]).await.is_err());
    }
}
