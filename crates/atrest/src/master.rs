//! The master key: from a file, or from a program that fetches it.

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use vault::Key;
use zeroize::Zeroizing;

use crate::error::Error;

/// Maximum length of a key file, and of the output of a program, in bytes.
const BYTES_MAX: u64 = 1024;
/// Maximum time for the program.
const COMMAND_TIME: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// The place of the master key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    /// A program and its arguments, separated by white space. It is not run by a shell.
    Command(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub key: Source,
    /// The file with the master key that `key` replaces.
    pub old_key: Option<PathBuf>,
}

impl Source {
    pub(crate) fn fetch(&self) -> Result<Key, Error> {
        match self {
            Source::File(path) => read_file(path),
            Source::Command(command) => {
                run(command, COMMAND_TIME).map_err(|why| Error::Command { command: command.clone(), why })
            }
        }
    }
}

pub(crate) fn read_file(path: &Path) -> Result<Key, Error> {
    let at = |source| Error::Io { path: path.to_path_buf(), source };
    let file = std::fs::File::open(path).map_err(at)?;
    let mode = file.metadata().map_err(at)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::Exposed { path: path.to_path_buf(), mode });
    }
    let text = read_bounded(file).map_err(at)?;
    Key::from_hex(&text).ok_or_else(|| Error::NoKey { path: path.to_path_buf() })
}

fn read_bounded(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(BYTES_MAX as usize));
    from.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

fn run(command: &str, time: Duration) -> Result<Key, String> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("it is empty")?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let output = child.stdout.take().expect("a pipe was asked for");
    let (sender, receiver) = mpsc::channel();
    // Another process may keep the pipe open after the program was killed, so nothing waits for
    // this thread.
    std::thread::spawn(move || {
        let _ = sender.send(read_bounded(output));
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < time => std::thread::sleep(POLL),
            waited => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match waited {
                    Err(error) => error.to_string(),
                    Ok(_) => format!("it has not ended within {} s", time.as_secs()),
                });
            }
        }
    };
    if !status.success() {
        return Err(format!("it failed ({status})"));
    }
    let text = receiver.recv_timeout(time.saturating_sub(begun.elapsed()).max(POLL));
    let text = text.map_err(|_| "its output has no end")?.map_err(|error| error.to_string())?;
    Key::from_hex(&text).ok_or_else(|| "its output is not a key of 64 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let source = Source::File(path.clone());
        assert!(matches!(source.fetch(), Err(Error::Io { .. })));
        std::fs::write(&path, format!("{HEX}\n")).unwrap();
        for (mode, is_good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let fetched = source.fetch();
            assert_eq!(fetched.is_ok(), is_good, "{mode:o}");
            assert!(is_good || fetched.unwrap_err().to_string().contains("mode 600"));
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, &HEX[1..]).unwrap();
        assert!(matches!(source.fetch(), Err(Error::NoKey { .. })));
    }

    #[test]
    fn a_program_gives_the_key_or_the_reason_why_not() {
        assert_eq!(run(&format!("printf {HEX}"), COMMAND_TIME).ok(), Key::from_hex(HEX.as_bytes()));
        let said = |command: &str| run(command, Duration::from_millis(300)).unwrap_err();
        assert!(said("false").contains("it failed"));
        assert!(said("sleep 30").contains("has not ended"));
        assert!(said("yes").contains("failed") || said("yes").contains("has not ended"));
        assert!(said("echo no-key").contains("64 hexadecimal digits"));
        assert!(said("/no/such/program").contains("cannot be started"));
        assert!(said("  ").contains("empty"));
    }
}
