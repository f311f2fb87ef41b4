//! Counts of a session's commands, for the store's statistics.

use bytes::Bytes;
use command::{CommandSpec, Handler, ServerCommand, SessionCommand};
use resp::Reply;

use crate::answer::Answer;

/// Maximum length of an error's code, in bytes.
const CODE_BYTES_MAX: usize = 32;
/// Maximum bytes of an encoded reply to `EXEC` that is searched for errors.
const DECODED_BYTES_MAX: usize = 64 << 10;

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
        // Redis does not count the errors that a client asks for.
        let is_asked_for = matches!(
            call,
            Call::Executed(CommandSpec { handler: Handler::Server(ServerCommand::Debug), .. })
        );
        let code = code_of(answer).filter(|_| !is_asked_for);
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
        if let Call::Executed(CommandSpec { handler: Handler::Session(SessionCommand::Exec), .. }) = call {
            self.count_errors_of_exec(answer);
        }
    }

    /// Counts the errors of a transaction's commands.
    fn count_errors_of_exec(&mut self, answer: &Answer) {
        let decoded;
        let reply = match answer {
            Answer::Reply(reply) => reply,
            Answer::Encoded(bytes)
                if bytes.len() <= DECODED_BYTES_MAX && bytes.windows(3).any(|part| part == b"\r\n-") =>
            {
                decoded = answer.clone().into_reply();
                &decoded
            }
            Answer::Encoded(_) => return,
        };
        let Reply::Array(replies) = reply else { return };
        let errors = replies.iter().filter_map(code_of_reply);
        self.errors.extend(errors.map(Bytes::copy_from_slice));
    }
}

/// Returns the code of an error.
fn code_of(answer: &Answer) -> Option<&[u8]> {
    match answer {
        Answer::Reply(reply) => code_of_reply(reply),
        Answer::Encoded(bytes) => bytes.strip_prefix(b"-").map(first_word),
    }
}

fn code_of_reply(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Error(text) => Some(first_word(text.as_bytes())),
        _ => None,
    }
}

fn first_word(text: &[u8]) -> &[u8] {
    let word = text.split(|byte| b" \r\n".contains(byte)).next().unwrap_or_default();
    &word[..word.len().min(CODE_BYTES_MAX)]
}
