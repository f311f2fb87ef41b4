//! The bytes that a source sends after `PSYNC`.
//!
//! ```text
//! newlines, while the source prepares its data
//! "+CONTINUE" [" " id] CR LF                 the stream continues at the offset that was asked for
//! "+FULLRESYNC " id " " offset CR LF         all data follows, then the stream from that offset
//!   newlines
//!   "$" length CR LF, file                   or, if the source does not know the length,
//!   "$EOF:" mark (40 bytes) CR LF, file, mark
//! commands                                   the stream, without an end
//! ```

use anyhow::{bail, ensure, Context};
use memchr::memmem;

/// Maximum bytes of a line.
const LINE_BYTES_MAX: usize = 4096;
const MARK_BYTES: usize = 40;

/// The answer to `PSYNC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Full {
        id: String,
        offset: u64,
    },
    /// The history has another name since a failover.
    Continued {
        id: Option<String>,
    },
}

/// The receiver of the parts.
pub trait Sink {
    fn answer(&mut self, answer: Answer) -> anyhow::Result<()>;
    /// The file begins. Its length may not be known.
    fn file_begins(&mut self, bytes: Option<u64>) -> anyhow::Result<()>;
    fn file(&mut self, bytes: &[u8]) -> anyhow::Result<()>;
    fn file_ends(&mut self) -> anyhow::Result<()>;
    fn stream(&mut self, bytes: &[u8]) -> anyhow::Result<()>;
}

enum State {
    Answer,
    /// The line that precedes the file.
    Header,
    Counted {
        left: u64,
    },
    Marked {
        mark: Vec<u8>,
    },
    Stream,
}

pub struct Framing {
    state: State,
    /// The beginning of a line, or the end of a file that may be the beginning of its mark.
    held: Vec<u8>,
}

impl Framing {
    pub fn new() -> Framing {
        Framing { state: State::Answer, held: Vec::new() }
    }

    /// Passes bytes on to the sink, in the order in which they arrived.
    ///
    /// # Errors
    /// If the source refuses, if it does not follow the protocol, or if the sink fails.
    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Stream => return sink.stream(bytes),
                State::Answer | State::Header => {
                    let Some(line) = self.line(&mut bytes)? else { return Ok(()) };
                    self.state = match self.state {
                        State::Answer => after_answer(&line, sink)?,
                        _ => after_header(&line, sink)?,
                    };
                }
                State::Counted { left } => {
                    let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    sink.file(&bytes[..count])?;
                    bytes = &bytes[count..];
                    *left -= count as u64;
                    if *left == 0 {
                        sink.file_ends()?;
                        self.state = State::Stream;
                    }
                }
                State::Marked { mark } => {
                    self.held.extend_from_slice(bytes);
                    match memmem::find(&self.held, mark) {
                        Some(at) => {
                            sink.file(&self.held[..at])?;
                            sink.file_ends()?;
                            let rest = self.held.split_off(at + MARK_BYTES);
                            self.held = Vec::new();
                            self.state = State::Stream;
                            return if rest.is_empty() { Ok(()) } else { sink.stream(&rest) };
                        }
                        None => {
                            let sure = self.held.len().saturating_sub(MARK_BYTES - 1);
                            sink.file(&self.held[..sure])?;
                            self.held.drain(..sure);
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a line that is not empty, or returns `None` if it has not arrived.
    fn line(&mut self, bytes: &mut &[u8]) -> anyhow::Result<Option<String>> {
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            match byte {
                b'\n' if self.held.is_empty() => {}
                b'\n' => {
                    let line = std::mem::take(&mut self.held);
                    let line = line.strip_suffix(b"\r").unwrap_or(&line);
                    return Ok(Some(line.escape_ascii().to_string()));
                }
                byte => {
                    ensure!(self.held.len() < LINE_BYTES_MAX, "the source's answer to PSYNC has no end");
                    self.held.push(byte);
                }
            }
        }
        Ok(None)
    }
}

fn after_answer(line: &str, sink: &mut impl Sink) -> anyhow::Result<State> {
    if let Some(error) = line.strip_prefix('-') {
        bail!("PSYNC: {error}");
    }
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("+CONTINUE"), id, None) => {
            sink.answer(Answer::Continued { id: id.map(str::to_owned) })?;
            Ok(State::Stream)
        }
        (Some("+FULLRESYNC"), Some(id), Some(offset)) => {
            let offset = offset.parse().context("the offset of FULLRESYNC")?;
            sink.answer(Answer::Full { id: id.to_owned(), offset })?;
            Ok(State::Header)
        }
        _ => bail!("the source answers PSYNC with {line}"),
    }
}

fn after_header(line: &str, sink: &mut impl Sink) -> anyhow::Result<State> {
    if let Some(error) = line.strip_prefix('-') {
        bail!("the source cannot send its data: {error}");
    }
    if let Some(mark) = line.strip_prefix("$EOF:") {
        ensure!(mark.len() == MARK_BYTES, "the mark of the file's end has {} bytes", mark.len());
        sink.file_begins(None)?;
        return Ok(State::Marked { mark: mark.as_bytes().to_vec() });
    }
    let bytes = line.strip_prefix('$').and_then(|length| length.parse().ok());
    let bytes: u64 = bytes.with_context(|| format!("the source begins its data with {line}"))?;
    sink.file_begins(Some(bytes))?;
    if bytes == 0 {
        sink.file_ends()?;
        return Ok(State::Stream);
    }
    Ok(State::Counted { left: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, PartialEq, Debug)]
    struct Seen {
        answers: Vec<Answer>,
        length: Option<Option<u64>>,
        file: Vec<u8>,
        has_file: bool,
        stream: Vec<u8>,
    }

    impl Sink for Seen {
        fn answer(&mut self, answer: Answer) -> anyhow::Result<()> {
            self.answers.push(answer);
            Ok(())
        }

        fn file_begins(&mut self, bytes: Option<u64>) -> anyhow::Result<()> {
            self.length = Some(bytes);
            Ok(())
        }

        fn file(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
            assert!(!self.has_file);
            self.file.extend_from_slice(bytes);
            Ok(())
        }

        fn file_ends(&mut self) -> anyhow::Result<()> {
            self.has_file = true;
            Ok(())
        }

        fn stream(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
            self.stream.extend_from_slice(bytes);
            Ok(())
        }
    }

    /// Feeds the bytes in two parts that meet at every position, and byte by byte.
    fn fed(bytes: &[u8]) -> Seen {
        let seen = |parts: &mut dyn Iterator<Item = &[u8]>| {
            let (mut framing, mut seen) = (Framing::new(), Seen::default());
            parts.for_each(|part| framing.feed(part, &mut seen).unwrap());
            seen
        };
        let whole = seen(&mut [bytes].into_iter());
        for at in 0..bytes.len() {
            let parts = bytes.split_at(at);
            assert_eq!(seen(&mut [parts.0, parts.1].into_iter()), whole, "split at {at}");
        }
        assert_eq!(seen(&mut bytes.chunks(1)), whole);
        whole
    }

    #[test]
    fn both_kinds_of_files_and_the_stream_after_them_arrive_at_every_split() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let mark = "8e1f0c6b5a4938271605f4e3d2c1b0a998877665";
        let full = Answer::Full { id: id.into(), offset: 77 };
        let counted =
            fed(format!("\n\n+FULLRESYNC {id} 77\r\n\n$6\r\nREDIS\n*1\r\n$4\r\nPING\r\n").as_bytes());
        assert_eq!((&counted.answers[..], counted.length), (&[full.clone()][..], Some(Some(6))));
        assert_eq!((&counted.file[..], &counted.stream[..]), (&b"REDIS\n"[..], &b"*1\r\n$4\r\nPING\r\n"[..]));
        // The file ends with the beginning of the mark.
        let text = format!("+FULLRESYNC {id} 77\r\n$EOF:{mark}\r\nREDIS8e1f{mark}*1\r\n$4\r\nPING\r\n");
        let marked = fed(text.as_bytes());
        assert_eq!((&marked.answers[..], marked.length), (&[full][..], Some(None)));
        assert!(marked.has_file);
        assert_eq!((&marked.file[..], &marked.stream[..]), (&b"REDIS8e1f"[..], &b"*1\r\n$4\r\nPING\r\n"[..]));
        let continued = fed(b"+CONTINUE abc\r\n*1\r\n");
        assert_eq!(continued.answers, [Answer::Continued { id: Some("abc".into()) }]);
        assert_eq!(continued.stream, b"*1\r\n");
        assert_eq!(fed(b"+CONTINUE\r\n").answers, [Answer::Continued { id: None }]);
        assert!(fed(format!("+FULLRESYNC {id} 0\r\n$0\r\n").as_bytes()).has_file);
    }

    #[test]
    fn refusals_and_bad_answers_are_errors() {
        let fails = |text: &str, needle: &str| {
            let error = Framing::new().feed(text.as_bytes(), &mut Seen::default()).unwrap_err();
            assert!(format!("{error:#}").contains(needle), "{text}: {error:#}");
        };
        fails("-NOMASTERLINK Can't SYNC\r\n", "NOMASTERLINK");
        fails("+FULLRESYNC x y\r\n", "offset");
        fails("+OK\r\n", "+OK");
        fails("+FULLRESYNC x 1\r\n-ERR no disk\r\n", "no disk");
        fails("+FULLRESYNC x 1\r\n$-1\r\n", "$-1");
        fails("+FULLRESYNC x 1\r\n$18446744073709551616\r\n", "begins its data");
        fails("+FULLRESYNC x 1\r\n$EOF:short\r\n", "mark");
        fails(&"x".repeat(LINE_BYTES_MAX + 1), "no end");
    }
}
