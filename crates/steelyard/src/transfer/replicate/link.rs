//! The connection to the source, as a replica's: it receives a file with all data and the stream of
//! commands after it, and acknowledges what the target has executed.
//!
//! A connection that breaks is made again, and continues at the byte after the last one that has
//! arrived, if the source still has it in its backlog. The import gives no `listening-port`,
//! because nothing can be asked of it, and a failover must not choose it.

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context};
use client::connection::Duplex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::super::server::{expect_ok, ServerUrl};
use super::framing::{Answer, Framing, Sink};
use super::spool::temporary_file;
use super::{now_ms, Shared};

const READ_BYTES: usize = 256 << 10;
/// Time between two acknowledgements, as of a replica.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);
/// Maximum time for an acknowledgement to leave.
const SEND_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time without a byte. A source sends a `PING` every ten seconds, and a newline while it
/// prepares its data.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The shortest time for which a new connection may wait for an answer.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Beginnings of answers to `PSYNC` after which it may be sent again.
const PASSING: [&str; 4] = ["LOADING", "NOMASTERLINK", "MASTERDOWN", "BUSY"];

/// Keeps what arrives.
struct Receiver {
    shared: Arc<Shared>,
    answer: Option<Answer>,
    /// True until the first answer. Later the stream must continue.
    is_new: bool,
    file: Option<BufWriter<File>>,
    has_file: bool,
}

impl Sink for Receiver {
    fn answer(&mut self, answer: Answer) -> anyhow::Result<()> {
        if let Answer::Full { id, offset } = &answer {
            ensure!(
                self.is_new,
                "PSYNC: the source no longer has the stream after offset {}; a larger repl-backlog-size there keeps \
                 it for longer",
                self.shared.spool.end()
            );
            // Bytes of the stream may follow at once.
            self.shared.spool.begin(*offset);
            self.shared.set_id(id);
        }
        self.is_new = false;
        self.answer = Some(answer);
        Ok(())
    }

    fn file_begins(&mut self, bytes: Option<u64>) -> anyhow::Result<()> {
        self.shared.file_bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
        self.file = Some(BufWriter::with_capacity(READ_BYTES, temporary_file(&self.shared.dir)?));
        Ok(())
    }

    fn file(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let file = self.file.as_mut().context("a file that has not begun")?;
        file.write_all(bytes)
            .with_context(|| format!("the source's data cannot be kept in {}", self.shared.dir.display()))?;
        self.shared.file_received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn file_ends(&mut self) -> anyhow::Result<()> {
        self.has_file = true;
        Ok(())
    }

    fn stream(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.shared.spool.append(bytes, now_ms())
    }
}

pub struct Link {
    url: ServerUrl,
    /// Maximum time without a connection.
    patience: Duration,
    shared: Arc<Shared>,
    reads: ReadHalf<Box<dyn Duplex>>,
    writes: WriteHalf<Box<dyn Duplex>>,
    buffer: Vec<u8>,
    framing: Framing,
    receiver: Receiver,
}

/// The reason for which a link has ended.
pub enum Ended {
    Stopped,
    SourceIsGone(anyhow::Error),
}

/// An attempt to connect that failed.
enum Failure {
    /// It may succeed later.
    Passing(anyhow::Error),
    Final(anyhow::Error),
}

impl Link {
    /// Asks for the stream after an offset of a history, or for all data. The answer is true if the
    /// stream continues. Otherwise the spool begins at the offset that the source tells, and the
    /// file must be received.
    pub async fn start(
        url: &ServerUrl,
        after: Option<(&str, u64)>,
        shared: Arc<Shared>,
        patience: Duration,
    ) -> anyhow::Result<(Link, bool)> {
        let connecting = tokio::time::timeout(SILENCE_MAX, psync(url, after));
        let connected =
            connecting.await.with_context(|| format!("{url}: {SILENCE_MAX:?} without an answer"))?;
        let (connection, input) = connected?;
        let (reads, writes) = tokio::io::split(connection);
        let receiver =
            Receiver { shared: shared.clone(), answer: None, is_new: true, file: None, has_file: false };
        let mut link = Link {
            url: url.clone(),
            patience,
            shared,
            reads,
            writes,
            buffer: vec![0; READ_BYTES],
            framing: Framing::new(),
            receiver,
        };
        if let Some((id, offset)) = after {
            link.shared.spool.begin(offset);
            link.shared.set_id(id);
        }
        link.framing.feed(&input, &mut link.receiver)?;
        // The first bytes of the stream may have arrived with the answer, so the spool's end does
        // not tell where it begins.
        let (continues, begin) = match (link.answer().await?, after) {
            (Answer::Continued { id }, Some((_, offset))) => {
                id.iter().for_each(|id| link.shared.set_id(id));
                (true, offset)
            }
            (Answer::Continued { .. }, None) => bail!("the source continues a stream that has not begun"),
            (Answer::Full { offset, .. }, _) => (false, offset),
        };
        link.shared.applied.store(begin, Ordering::Release);
        Ok((link, continues))
    }

    /// Reads once, and passes on what has arrived.
    async fn receive(&mut self) -> anyhow::Result<()> {
        let reading = tokio::time::timeout(SILENCE_MAX, self.reads.read(&mut self.buffer));
        let count = reading.await.with_context(|| format!("{SILENCE_MAX:?} without a byte"))??;
        ensure!(count > 0, "the source closed the connection");
        self.framing.feed(&self.buffer[..count], &mut self.receiver)
    }

    async fn answer(&mut self) -> anyhow::Result<Answer> {
        loop {
            if let Some(answer) = self.receiver.answer.take() {
                return Ok(answer);
            }
            self.receive().await?;
        }
    }

    /// Receives the file with all data.
    pub async fn file(&mut self) -> anyhow::Result<File> {
        while !self.receiver.has_file {
            self.receive().await.with_context(|| format!("{}: while its data arrives", self.url))?;
        }
        let file = self.receiver.file.take().context("the source sent no data")?;
        let mut file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(file)
    }

    /// Receives the stream until `stop` is true, or the source has been away for too long.
    ///
    /// # Errors
    /// If the stream cannot be continued or kept.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> anyhow::Result<Ended> {
        loop {
            let error = tokio::select! {
                failure = self.stream() => match failure {
                    Failure::Passing(error) => error,
                    Failure::Final(error) => return Err(error),
                },
                _ = stop.wait_for(|stop| *stop) => return Ok(Ended::Stopped),
            };
            self.shared.breaks.fetch_add(1, Ordering::Relaxed);
            let again = tokio::select! {
                again = self.connect_again(error) => again?,
                _ = stop.wait_for(|stop| *stop) => return Ok(Ended::Stopped),
            };
            if let Some(error) = again {
                return Ok(Ended::SourceIsGone(error));
            }
        }
    }

    /// Receives and acknowledges until the connection breaks.
    async fn stream(&mut self) -> Failure {
        let mut ticks = tokio::time::interval(ACKNOWLEDGE_EVERY);
        let mut last_heard = Instant::now();
        loop {
            tokio::select! {
                count = self.reads.read(&mut self.buffer) => match count {
                    Ok(0) => return Failure::Passing(anyhow::anyhow!("the source closed the connection")),
                    Ok(count) => {
                        last_heard = Instant::now();
                        if let Err(error) = self.framing.feed(&self.buffer[..count], &mut self.receiver) {
                            return Failure::Final(error);
                        }
                        continue;
                    }
                    Err(error) => return Failure::Passing(error.into()),
                },
                _ = ticks.tick() => {}
                _ = self.shared.acknowledge.notified() => {}
            }
            if last_heard.elapsed() > SILENCE_MAX {
                return Failure::Passing(anyhow::anyhow!("{SILENCE_MAX:?} without a byte"));
            }
            let mut words = bytes::BytesMut::new();
            let applied = self.shared.applied.load(Ordering::Acquire).to_string();
            resp::encode_request(&["REPLCONF", "ACK", &applied], &mut words);
            let sending = async {
                self.writes.write_all(&words).await?;
                self.writes.flush().await
            };
            match tokio::time::timeout(SEND_PATIENCE, sending).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Failure::Passing(error.into()),
                Err(_) => return Failure::Passing(anyhow::anyhow!("the source reads nothing")),
            }
        }
    }

    /// Connects until it succeeds. Returns an error inside if the source stays away.
    async fn connect_again(&mut self, broken: anyhow::Error) -> anyhow::Result<Option<anyhow::Error>> {
        eprintln!("{}: the connection broke ({broken:#}), and is made again", self.url);
        let since = Instant::now();
        loop {
            match self.continued().await {
                Ok(()) => {
                    eprintln!("{}: the stream continues at offset {}", self.url, self.shared.spool.end());
                    return Ok(None);
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(error)) if since.elapsed() >= self.patience => {
                    return Ok(Some(error.context(format!("no connection for {:?}", self.patience))));
                }
                Err(Failure::Passing(_)) => tokio::time::sleep(RECONNECT_PAUSE).await,
            }
        }
    }

    async fn continued(&mut self) -> Result<(), Failure> {
        let (id, end) = (self.shared.id(), self.shared.spool.end());
        let patience = self.patience.clamp(PATIENCE_MIN, SILENCE_MAX);
        let connecting = async {
            let (connection, input) = psync(&self.url, Some((&id, end))).await?;
            let (reads, writes) = tokio::io::split(connection);
            (self.reads, self.writes, self.framing) = (reads, writes, Framing::new());
            self.receiver.answer = None;
            self.framing.feed(&input, &mut self.receiver)?;
            self.answer().await
        };
        let connecting = tokio::time::timeout(patience, connecting);
        match connecting.await.unwrap_or_else(|_| Err(anyhow::anyhow!("the source does not answer"))) {
            Ok(Answer::Continued { id }) => {
                id.iter().for_each(|id| self.shared.set_id(id));
                Ok(())
            }
            Ok(Answer::Full { .. }) => unreachable!("the receiver refuses it"),
            Err(error) if is_final(&error) => Err(Failure::Final(error)),
            Err(error) => Err(Failure::Passing(error)),
        }
    }
}

/// Returns true for a refusal of `PSYNC` that does not pass.
fn is_final(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    match text.split_once("PSYNC: ") {
        Some((_, refusal)) => !PASSING.iter().any(|passing| refusal.starts_with(passing)),
        None => false,
    }
}

/// Connects as a replica and asks for a stream. Returns the connection before the answer.
async fn psync(
    url: &ServerUrl,
    after: Option<(&str, u64)>,
) -> anyhow::Result<(Box<dyn Duplex>, bytes::BytesMut)> {
    let mut connection = url.connect().await?;
    let capabilities = ["REPLCONF", "capa", "eof", "capa", "psync2"];
    expect_ok(connection.call(&capabilities).await?).with_context(|| format!("{url}: REPLCONF"))?;
    let (id, offset) = match after {
        Some((id, offset)) => {
            let Some(next) = offset.checked_add(1) else { bail!("the offset {offset} has no next one") };
            (id, next.to_string())
        }
        None => ("?", "-1".to_owned()),
    };
    connection.queue(&["PSYNC", id, &offset]);
    connection.flush().await?;
    Ok(connection.into_stream())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = "*1\r\n$4\r\nPING\r\n";

    /// Returns a link to a source that gives this answer to `PSYNC` with these words, in one write.
    async fn linked(
        after: Option<(&str, u64)>,
        asked: &'static str,
        answer: String,
    ) -> (tempfile::TempDir, Arc<Shared>, anyhow::Result<(Link, bool)>) {
        let address = client::scripted::scripted(move |words| {
            Some(match words {
                "PING" => "+PONG\r\n".to_owned(),
                _ if words == asked => answer.clone(),
                _ if words.starts_with("PSYNC") => format!("-ERR not '{words}'\r\n"),
                _ => "+OK\r\n".to_owned(),
            })
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared::new(dir.path()));
        let url = format!("redis://{address}").parse().unwrap();
        let link = Link::start(&url, after, shared.clone(), Duration::from_secs(1)).await;
        (dir, shared, link)
    }

    fn stream_from(shared: &Shared, offset: u64) -> String {
        let mut buffer = [0; 100];
        let count = shared.spool.read(offset, &mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[tokio::test]
    async fn a_stream_that_arrives_with_the_answer_begins_at_the_offset_of_the_answer() {
        let answer = format!("+FULLRESYNC history 100\r\n$4\r\ndata{PING}");
        let (_dir, shared, link) = linked(None, "PSYNC ? -1", answer).await;
        let (mut link, continues) = link.unwrap();
        let length = link.file().await.unwrap().metadata().unwrap().len();
        assert_eq!((continues, length, shared.id().as_str()), (false, 4, "history"));
        while shared.spool.end() < 114 {
            link.receive().await.unwrap();
        }
        let applied = shared.applied.load(Ordering::Relaxed);
        assert_eq!((applied, shared.spool.end(), stream_from(&shared, 100).as_str()), (100, 114, PING));

        let answer = format!("+CONTINUE later\r\n{PING}");
        let (_dir, shared, link) = linked(Some(("history", 100)), "PSYNC history 101", answer).await;
        let (mut link, continues) = link.unwrap();
        while shared.spool.end() < 114 {
            link.receive().await.unwrap();
        }
        let applied = shared.applied.load(Ordering::Relaxed);
        assert_eq!((continues, applied, stream_from(&shared, 100).as_str()), (true, 100, PING));
        assert_eq!(shared.id(), "later");
    }

    #[tokio::test]
    async fn all_data_instead_of_the_rest_of_a_stream_ends_it_before_any_byte_counts() {
        let answer = format!("+CONTINUE\r\n{PING}");
        let (_dir, shared, link) = linked(Some(("history", 100)), "PSYNC history 101", answer).await;
        let (mut link, _) = link.unwrap();
        let again = format!("+FULLRESYNC other 7\r\n$4\r\ndata{PING}");
        let error = Framing::new().feed(again.as_bytes(), &mut link.receiver).unwrap_err();
        assert!(is_final(&error) && error.to_string().contains("no longer has the stream"), "{error}");
        assert!(shared.spool.end() <= 114 && shared.id() == "history");
    }
}
