//! Lua scripts, as Redis 7.0 executes them.
//!
//! [`run`] executes one script in a Lua state of its own, with Redis's libraries: `redis`, `cjson`,
//! `cmsgpack`, `struct` and `bit`. The commands that it calls go to a [`Host`].
//!
//! **A script gives the same result on every machine of one architecture.** The state is new, or
//! nothing shows that it is not (`state`). Lua itself is compiled from `vendor/lua-src`, in which
//! nothing depends on an address: tables are hashed by the number of a key object and not by its
//! place in memory, and `tostring` shows that number. Weak tables do not exist. The functions whose
//! results differ between C libraries (`math.sin` and its kin, the power operator) have portable
//! code. There is no clock, file or environment. Random numbers follow from the seed in [`Script`].
//!
//! **Two limits are constants**: the steps ([`STEPS_MAX`]) and the memory ([`MEMORY_BYTES_MAX`]).
//! A step is one instruction of Lua; what takes longer in one instruction costs more steps, such as
//! the comparison of long strings, a pattern's search, or a command. So the steps bound the time.
//!
//! No input makes this crate panic or recurse without a bound. Binary chunks are refused.

#![forbid(unsafe_code)]

mod arguments;
mod bit;
mod builder;
mod compiled;
#[doc(hidden)]
pub mod fuzzing;
mod json;
mod library;
mod math;
mod msgpack;
mod nested;
mod random;
mod redis;
mod registered;
mod reply;
mod settings;
mod shebang;
mod state;
mod structs;

use bytes::Bytes;
use resp::Reply;
use sha1::{Digest, Sha1};

pub use library::{library_name, BAD_NAME};
pub use registered::Function;
pub use shebang::{flags_of, Flags, SHEBANG_LEN_MAX};

/// Maximum number of steps of a script: about a second on one core.
pub const STEPS_MAX: u64 = 100_000_000;
/// Maximum memory of a script in bytes, which includes what its libraries and its arguments take.
pub const MEMORY_BYTES_MAX: usize = 128 << 20;
/// Number of steps that a command costs, in addition to those for the bytes of its reply.
pub const CALL_STEPS: u64 = 1000;
/// Nesting of values beyond which a reply has an error in their place. Redis allows as much as its
/// Lua stack holds.
pub const REPLY_DEPTH_MAX: usize = 100;
/// Maximum bytes of what a library encodes at once.
const ENCODED_BYTES_MAX: usize = MEMORY_BYTES_MAX / 2;
/// Bytes of a SHA-1 digest in hexadecimal.
pub const DIGEST_LEN: usize = 40;

/// Maximum number of steps of a library's code, which is executed before each call of one of its
/// functions: about half a second.
pub const LOAD_STEPS_MAX: u64 = STEPS_MAX / 2;

/// A script and its arguments.
pub struct Script<'a> {
    /// The script, or the code of a library.
    pub body: &'a [u8],
    /// The function of the library that is called.
    pub function: Option<&'a str>,
    pub keys: &'a [Bytes],
    pub args: &'a [Bytes],
    pub seed: u64,
}

/// The result of a command that a script calls.
pub enum Called {
    Reply(Reply),
    /// A refusal in Redis's words, without a code. It becomes an `ERR`.
    Refused(String),
    /// The script must end at once, because this store cannot go on with it.
    Ended,
}

/// Executes the commands of a script.
pub trait Host {
    /// Executes a command, name first. `resp3` is set by `redis.setresp`.
    fn call(&mut self, args: Vec<Bytes>, resp3: bool) -> Called;

    /// Returns whether the script's user may execute a command, or `None` for an unknown command.
    fn may_call(&mut self, args: &[Bytes]) -> Option<bool>;
}

/// The end of a script.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Reply(Reply),
    /// [`Called::Ended`] was returned.
    Ended,
    /// The script is too near to a limit. What it has done must be undone, and it must be executed
    /// again by [`run_exactly`].
    Again,
    /// The script used up its steps.
    OutOfSteps,
    /// The script used up its memory.
    OutOfMemory,
}

/// Executes a script that is far from the limits, and ends others with [`Outcome::Again`].
pub fn run(script: &Script<'_>, host: &mut dyn Host) -> Outcome {
    state::run(script, false, host)
}

/// Executes a script up to the limits. It takes longer to begin than [`run`].
pub fn run_exactly(script: &Script<'_>, host: &mut dyn Host) -> Outcome {
    state::run(script, true, host)
}

/// Checks that a script can be compiled.
///
/// # Errors
/// The reply to the client.
pub fn compile(body: &[u8]) -> Result<(), Reply> {
    state::compile(body)
}

/// Executes the code of a library, and returns the functions that it registers.
///
/// # Errors
/// The text of the error, without its code.
pub fn load_library(code: &[u8]) -> Result<Vec<Function>, String> {
    state::load_library(code)
}

/// Returns the name of a script: its SHA-1 digest in hexadecimal.
pub fn digest(body: &[u8]) -> String {
    let mut text = String::with_capacity(DIGEST_LEN);
    for byte in Sha1::digest(body) {
        text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        text.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests;
