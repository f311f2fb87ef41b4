//! Counts of a session's commands, for the store's statistics.

use bytes::Bytes;
use command::CommandSpec;
use resp::Reply;

use crate::answer::Answer;

/// Maximum length of an error's code, in bytes.
const CODE_BYTES_MAX: usize = 32;

/// The fate of the command that gets a reply.
#[derive(Clone, Copy, Default)]
pub(super) enum Call {
    /// The reply is to no known command, to a queued one, or a message before the reply.
    #[default]
    None,
    /// The command was refused before its execution.
    Rejected(&'static CommandSpec),
    Executed(&'static CommandSpec),
}

/// Counts of one command.
#[derive(Clone, Copy)]
pub struct Calls {
    pub spec: &'static CommandSpec,
    /// Number of executions, including those that failed.
    pub calls: u64,
    /// Number of executions that ended with an error.
    pub failed: u64,
    /// Number of refusals before the execution.
    pub rejected: u64,
}

/// The replies given since the tally was last taken.
#[derive(Default)]
pub struct Tally {
    pub commands: Vec<Calls>,
    /// The code of each error reply: its first word.
    pub errors: Vec<Bytes>,
}

impl Tally {
    fn of(&mut self, spec: &'static CommandSpec) -> &mut Calls {
        // Commands of one kind often follow each other.
        let at = match self.commands.iter().rposition(|calls| std::ptr::eq(calls.spec, spec)) {
            Some(at) => at,
            None => {
                self.commands.push(Calls { spec, calls: 0, failed: 0, rejected: 0 });
                self.commands.len() - 1
            }
        };
        &mut self.commands[at]
    }

    /// Counts a command of a transaction, whose reply is a part of that to `EXEC`.
    pub(super) fn count_queued(&mut self, spec: &'static CommandSpec) {
        self.of(spec).calls += 1;
    }

    pub(super) fn count(&mut self, call: Call, answer: &Answer) {
        let code = code_of(answer);
        match call {
            Call::None => {}
            Call::Executed(spec) => {
                let of = self.of(spec);
                of.calls += 1;
                of.failed += u64::from(code.is_some());
            }
            Call::Rejected(spec) => self.of(spec).rejected += 1,
        }
        self.errors.extend(code.map(Bytes::copy_from_slice));
    }
}

/// Returns the code of an error.
fn code_of(answer: &Answer) -> Option<&[u8]> {
    let text: &[u8] = match answer {
        Answer::Reply(Reply::Error(text)) => text.as_bytes(),
        Answer::Reply(_) => return None,
        Answer::Encoded(bytes) => bytes.strip_prefix(b"-")?,
    };
    let word = text.split(|byte| b" \r\n".contains(byte)).next().unwrap_or_default();
    Some(&word[..word.len().min(CODE_BYTES_MAX)])
}
