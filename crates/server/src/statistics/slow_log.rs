//! The slow log: the last commands that took long, as `SLOWLOG` shows them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use command::CommandSpec;
use parking_lot::Mutex;

use crate::clock;
use crate::connections::ClientEntry;
use crate::secrets;
use crate::statistics_settings::SlowLogSettings;

/// Maximum number of arguments of an entry, and of the bytes of each, as in Redis.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;
/// Maximum number of commands shown of those that took a time together.
pub const SHOWN_TOGETHER_MAX: usize = 8;

/// A command that took long.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowCommand {
    pub id: u64,
    /// The end of the execution, in seconds since 1970.
    pub time: u64,
    pub took: Duration,
    pub args: Vec<Bytes>,
    pub peer: String,
    pub name: Bytes,
}

impl SlowCommand {
    /// Creates the entry of a command as the client sent it.
    pub fn of(
        spec: &'static CommandSpec,
        args: &[Bytes],
        took: Duration,
        client: &ClientEntry,
    ) -> SlowCommand {
        let hidden = secrets::positions(spec, args);
        let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
        let mut all: Vec<Bytes> = args[..shown]
            .iter()
            .enumerate()
            .map(
                |(at, arg)| {
                    if hidden.contains(&at) {
                        Bytes::from_static(secrets::REDACTED)
                    } else {
                        trimmed(arg)
                    }
                },
            )
            .collect();
        if shown < args.len() {
            all.push(format!("... ({} more arguments)", args.len() - shown).into());
        }
        SlowCommand {
            id: 0,
            time: clock::unix_millis() / 1000,
            took,
            args: all,
            peer: client.peer.to_string(),
            name: client.description().name,
        }
    }
}

/// Returns an argument, or its beginning and the number of bytes after that. It never holds the
/// buffer in which the argument arrived.
fn trimmed(arg: &Bytes) -> Bytes {
    match arg.len() > ARG_BYTES_MAX {
        false => Bytes::copy_from_slice(arg),
        true => {
            let mut shown = arg[..ARG_BYTES_MAX].to_vec();
            shown.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes());
            shown.into()
        }
    }
}

#[derive(Default)]
struct State {
    /// The newest entry is the first.
    entries: VecDeque<SlowCommand>,
    max_len: usize,
    next: u64,
}

pub struct SlowLog {
    slower_than: AtomicI64,
    state: Mutex<State>,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        SlowLog { slower_than: AtomicI64::new(-1), state: Mutex::default() }
    }
}

impl SlowLog {
    pub fn configure(&self, settings: SlowLogSettings) {
        self.slower_than.store(settings.slower_than, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.max_len = settings.max_len;
        state.entries.truncate(settings.max_len);
    }

    /// Returns the shortest time of a command in the log; `None` if none is logged.
    pub fn limit(&self) -> Option<Duration> {
        u64::try_from(self.slower_than.load(Ordering::Relaxed)).ok().map(Duration::from_micros)
    }

    pub fn add(&self, command: SlowCommand) {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.entries.push_front(SlowCommand { id, ..command });
        let max_len = state.max_len;
        state.entries.truncate(max_len);
    }

    /// Returns the newest entries, newest first.
    pub fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.state.lock().entries.iter().take(count).cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    pub fn reset(&self) {
        self.state.lock().entries.clear();
    }
}
