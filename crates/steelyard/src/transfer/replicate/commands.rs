//! The commands of a source's stream, in the form in which the target executes them.
//!
//! Commands become units, which are executed in order: one command, or a transaction. A place
//! between two units is one at which an import can continue.
//!
//! While the import runs, the target must not expire keys by its own clock: it lags, and the source
//! may have prolonged a key that would be gone here. So expiry times are held back by a constant,
//! as [`hold`] says, and the source's own deletions of expired keys arrive in the stream. At the
//! end the true times are written ([`super::expiries`]).

use anyhow::{bail, ensure, Context};
use bytes::Bytes;

/// Milliseconds by which expiry times are held back: 142,000 years. Times that are as late already
/// are not.
pub const HELD_MS: u64 = 1 << 52;
/// Number of commands and bytes up to which a transaction is executed as one. A target has limits
/// of 65,536 commands and 64 MiB.
const TRANSACTION_COMMANDS_MAX: usize = 60_000;
const TRANSACTION_BYTES_MAX: usize = 48 << 20;

/// Returns an expiry time that takes effect only after the import.
pub fn hold(at_ms: u64) -> u64 {
    if at_ms < HELD_MS {
        at_ms + HELD_MS
    } else {
        at_ms
    }
}

/// Returns the true expiry time, if a time was held back.
pub fn true_time(at_ms: u64) -> Option<u64> {
    at_ms.checked_sub(HELD_MS).filter(|at| *at < HELD_MS)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub database: u64,
    pub words: Vec<Bytes>,
}

impl Command {
    pub fn bytes(&self) -> usize {
        self.words.iter().map(|word| word.len() + 16).sum()
    }

    /// Returns the keys in the command's database, or `None` if the target's table does not tell
    /// them all. Such a command may be about any key.
    pub fn keys(&self) -> Option<Vec<Bytes>> {
        let name = self.words.first()?.to_ascii_uppercase();
        let has = |option: &[u8]| self.words.iter().skip(2).any(|word| word.eq_ignore_ascii_case(option));
        let has_others = match &name[..] {
            b"MOVE" => true,
            b"COPY" => has(b"DB"),
            b"SORT" => has(b"BY") || has(b"GET"),
            _ => false,
        };
        if has_others {
            return None;
        }
        let spec = command::resolve(&self.words).ok()?;
        let keys: Vec<Bytes> = command::keys_of(spec, &self.words).map(|(key, _)| key.clone()).collect();
        (!keys.is_empty()).then_some(keys)
    }
}

/// The state of a stream between two units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// The database that the last `SELECT` selected.
    pub database: u64,
    /// True in a transaction whose commands are executed one by one.
    pub splits: bool,
}

/// Commands that are executed at once.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// No command if the target need not execute anything.
    pub commands: Vec<Command>,
    pub is_transaction: bool,
    /// The offset after it.
    pub end: u64,
    pub after: StreamState,
    /// True if the source asks how far the target is.
    pub acknowledges: bool,
}

/// Makes units of commands.
pub struct Units {
    state: StreamState,
    /// Keys of several slots cannot be in one command or transaction.
    is_cluster: bool,
    /// The commands of a transaction that is not complete, and their bytes.
    open: Option<(Vec<Command>, usize)>,
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were published, and are not passed on.
    pub published: u64,
    /// Transactions that were not executed as one.
    pub split: u64,
    /// Scripts, which the source did not replace by their effects.
    pub scripts: u64,
    pub held_expiries: u64,
}

impl Units {
    pub fn new(state: StreamState, is_cluster: bool) -> Units {
        Units { state, is_cluster, open: None, counts: Counts::default() }
    }

    /// Takes the command that ends at an offset. Adds the units that it completes.
    ///
    /// # Errors
    /// If the target cannot execute it.
    pub fn push(
        &mut self,
        words: Vec<Bytes>,
        end: u64,
        arrival_ms: u64,
        units: &mut Vec<Unit>,
    ) -> anyhow::Result<()> {
        let name = words.first().context("a command without a name")?.to_ascii_uppercase();
        match &name[..] {
            b"PING" => self.done(end, false, units),
            b"REPLCONF" => {
                let asks = words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"GETACK"));
                self.done(end, asks, units);
            }
            b"PUBLISH" | b"SPUBLISH" => {
                self.counts.published += 1;
                self.done(end, false, units);
            }
            b"SELECT" => {
                let number = words.get(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
                self.state.database = number.context("SELECT without a number")?;
                self.done(end, false, units);
            }
            b"SWAPDB" => bail!(
                "SWAPDB at offset {end} exchanges two databases of the source, which cannot be done at the \
                 target"
            ),
            b"MULTI" => {
                ensure!(self.open.is_none() && !self.state.splits, "MULTI in a transaction at offset {end}");
                self.open = Some((Vec::new(), 0));
            }
            b"EXEC" => self.execute(end, units)?,
            _ => {
                let words = self.with_held_expiry(&name, words, arrival_ms);
                self.command(Command { database: self.state.database, words }, end, units);
            }
        }
        Ok(())
    }

    /// Ends a command that the target does not execute.
    fn done(&self, end: u64, acknowledges: bool, units: &mut Vec<Unit>) {
        // The place moves with the transaction that the command is in.
        if self.open.is_none() {
            units.push(self.unit(Vec::new(), end, acknowledges));
        }
    }

    fn unit(&self, commands: Vec<Command>, end: u64, acknowledges: bool) -> Unit {
        Unit { commands, is_transaction: false, end, after: self.state, acknowledges }
    }

    fn command(&mut self, command: Command, end: u64, units: &mut Vec<Unit>) {
        if let Some((commands, bytes)) = &mut self.open {
            *bytes += command.bytes();
            commands.push(command);
            if commands.len() >= TRANSACTION_COMMANDS_MAX || *bytes >= TRANSACTION_BYTES_MAX {
                let commands = self.open.take().map(|(commands, _)| commands).unwrap_or_default();
                self.state.splits = true;
                self.counts.split += 1;
                self.split(commands, end, units);
            }
            return;
        }
        self.split(vec![command], end, units);
    }

    fn execute(&mut self, end: u64, units: &mut Vec<Unit>) -> anyhow::Result<()> {
        if std::mem::take(&mut self.state.splits) {
            self.done(end, false, units);
            return Ok(());
        }
        let (commands, _) =
            self.open.take().with_context(|| format!("EXEC without MULTI at offset {end}"))?;
        match commands.len() {
            ..=1 => self.split(commands, end, units),
            _ if self.is_cluster && !share_a_slot(&commands) => {
                self.counts.split += 1;
                self.split(commands, end, units);
            }
            _ => units.push(Unit { is_transaction: true, ..self.unit(commands, end, false) }),
        }
        Ok(())
    }

    /// Adds commands as units of their own. All but the last one end before `end`, and repeating
    /// them is not possible, so they are in one unit for the place.
    fn split(&self, commands: Vec<Command>, end: u64, units: &mut Vec<Unit>) {
        let mut parts = Vec::with_capacity(commands.len());
        for command in commands {
            match self.is_cluster {
                true => parts.extend(by_key(command)),
                false => parts.push(command),
            }
        }
        units.push(self.unit(parts, end, false));
    }

    /// Replaces the expiry time in a command by a later instant.
    fn with_held_expiry(&mut self, name: &[u8], words: Vec<Bytes>, arrival_ms: u64) -> Vec<Bytes> {
        if matches!(name, b"EVAL" | b"EVALSHA" | b"FCALL") {
            self.counts.scripts += 1;
        }
        match held(name, &words, arrival_ms) {
            Some(words) => {
                self.counts.held_expiries += 1;
                words
            }
            None => words,
        }
    }
}

/// Returns true if a transaction is possible in cluster mode.
fn share_a_slot(commands: &[Command]) -> bool {
    let mut slots = Vec::new();
    for command in commands {
        match command.keys() {
            Some(keys) => slots.extend(keys.iter().map(|key| types::slot_of_key(key))),
            None => return false,
        }
    }
    slots.windows(2).all(|pair| pair[0] == pair[1])
}

/// Replaces a command on several keys by one for each key, if the result is the same.
fn by_key(command: Command) -> Vec<Command> {
    let Command { database, words } = &command;
    let step = match words[0].to_ascii_uppercase().as_slice() {
        b"DEL" | b"UNLINK" | b"TOUCH" => 1,
        b"MSET" => 2,
        _ => return vec![command],
    };
    if words.len() <= step + 1 || (words.len() - 1) % step != 0 {
        return vec![command];
    }
    let one = |part: &[Bytes]| Command {
        database: *database,
        words: std::iter::once(&words[0]).chain(part).cloned().collect(),
    };
    words[1..].chunks(step).map(one).collect()
}

/// A number in a command, in the unit of its name, as an instant in milliseconds.
fn instant(word: &Bytes, is_seconds: bool, since_ms: u64) -> Option<u64> {
    let number: u64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    number.checked_mul(if is_seconds { 1000 } else { 1 })?.checked_add(since_ms)
}

/// Returns a command with an expiry time that is held back, or `None` if it has none. A relative
/// time counts from the command's arrival.
fn held(name: &[u8], words: &[Bytes], arrival_ms: u64) -> Option<Vec<Bytes>> {
    let text = |at: u64| Bytes::from(hold(at).to_string());
    let with = |name: &'static str, at: u64, rest: &[Bytes]| {
        let start = [Bytes::from(name), words[1].clone(), text(at)];
        Some(start.into_iter().chain(rest.iter().cloned()).collect())
    };
    match (name, words.len()) {
        (b"PEXPIREAT", 3..) => with("PEXPIREAT", instant(&words[2], false, 0)?, &words[3..]),
        (b"EXPIREAT", 3..) => with("PEXPIREAT", instant(&words[2], true, 0)?, &words[3..]),
        (b"PEXPIRE", 3..) => with("PEXPIREAT", instant(&words[2], false, arrival_ms)?, &words[3..]),
        (b"EXPIRE", 3..) => with("PEXPIREAT", instant(&words[2], true, arrival_ms)?, &words[3..]),
        (b"SETEX" | b"PSETEX", 4) => {
            let at = instant(&words[2], name == b"SETEX", arrival_ms)?;
            Some(vec!["SET".into(), words[1].clone(), words[3].clone(), "PXAT".into(), text(at)])
        }
        (b"SET", 5..) => with_option(words, 3, arrival_ms),
        (b"GETEX", 4..) => with_option(words, 2, arrival_ms),
        (b"RESTORE", 4..) => {
            let is_instant = words[4..].iter().any(|word| word.eq_ignore_ascii_case(b"ABSTTL"));
            let at = instant(&words[2], false, 0)?;
            if at == 0 {
                return None;
            }
            let at = if is_instant { at } else { at.checked_add(arrival_ms)? };
            let mut words = words.to_vec();
            words[2] = text(at);
            if !is_instant {
                words.push("ABSTTL".into());
            }
            Some(words)
        }
        _ => None,
    }
}

/// Replaces the option `EX`, `PX`, `EXAT` or `PXAT` that stands at `from` or later.
fn with_option(words: &[Bytes], from: usize, arrival_ms: u64) -> Option<Vec<Bytes>> {
    for at in from..words.len() - 1 {
        let (is_seconds, since_ms) = match words[at].to_ascii_uppercase().as_slice() {
            b"EX" => (true, arrival_ms),
            b"PX" => (false, arrival_ms),
            b"EXAT" => (true, 0),
            b"PXAT" => (false, 0),
            _ => continue,
        };
        let instant = instant(&words[at + 1], is_seconds, since_ms)?;
        let mut words = words.to_vec();
        words[at] = "PXAT".into();
        words[at + 1] = hold(instant).to_string().into();
        return Some(words);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn words(line: &str) -> Vec<Bytes> {
        line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
    }

    /// Returns units as text: database and commands, `!` for a transaction, and the end.
    fn units_of(is_cluster: bool, lines: &[&str]) -> (Vec<String>, Units) {
        let mut units = Units::new(StreamState::default(), is_cluster);
        let mut made = Vec::new();
        for (line, end) in lines.iter().zip(1..) {
            units.push(words(line), end, NOW_MS, &mut made).unwrap();
        }
        let shown = |command: &Command| {
            let words: Vec<_> = command.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            format!("{} {}", command.database, words.join(" "))
        };
        let shown = made.iter().map(|unit| {
            let commands: Vec<String> = unit.commands.iter().map(shown).collect();
            let mark = if unit.is_transaction { "!" } else { "" };
            let asks = if unit.acknowledges { " asks" } else { "" };
            format!("{mark}{}{asks} @{}", commands.join(", "), unit.end)
        });
        (shown.collect(), units)
    }

    #[test]
    fn commands_on_keys_that_are_not_all_known_may_be_about_any_key() {
        let keys = |line: &str| Command { database: 0, words: words(line) }.keys().map(|keys| keys.len());
        for line in ["MOVE a 5", "COPY a b DB 5", "SORT a BY w_* STORE b", "sort a get x_*", "EVAL x 0"] {
            assert_eq!(keys(line), None, "{line}");
        }
        assert_eq!(
            (keys("COPY a b"), keys("SORT a STORE b"), keys("SET a MOVE")),
            (Some(2), Some(2), Some(1))
        );
    }

    #[test]
    fn commands_are_units_and_transactions_are_one_with_their_end() {
        let lines =
            ["SELECT 3", "SET a 1", "PING", "MULTI", "INCR a", "select 0", "DEL b", "EXEC", "PUBLISH c m"];
        let (made, units) = units_of(false, &lines);
        assert_eq!(made, [" @1", "3 SET a 1 @2", " @3", "!3 INCR a, 0 DEL b @8", " @9"]);
        assert_eq!((units.state, units.counts.published), (StreamState::default(), 1));
        // A transaction of one command is this command, and one without commands is nothing.
        let (made, _) =
            units_of(false, &["MULTI", "INCR a", "EXEC", "MULTI", "EXEC", "REPLCONF GETACK *", "MULTI"]);
        assert_eq!(made, ["0 INCR a @3", " @5", " asks @6"]);
    }

    #[test]
    fn in_cluster_mode_keys_of_several_slots_are_separated() {
        let lines = ["MULTI", "SET {x}a 1", "DEL {x}b {x}c", "EXEC", "DEL a b", "MSET a 1 b 2"];
        let (made, units) = units_of(true, &lines);
        let separate = ["0 DEL a, 0 DEL b @5", "0 MSET a 1, 0 MSET b 2 @6"];
        assert_eq!(made, [&["!0 SET {x}a 1, 0 DEL {x}b {x}c @4"][..], &separate].concat());
        assert_eq!(units.counts.split, 0);
        let (made, units) = units_of(true, &["MULTI", "SET a 1", "SET b 1", "EXEC"]);
        assert_eq!((made, units.counts.split), (vec!["0 SET a 1, 0 SET b 1 @4".to_owned()], 1));
    }

    #[test]
    fn a_transaction_that_is_too_large_is_executed_in_parts() {
        let mut units = Units::new(StreamState::default(), false);
        let mut made = Vec::new();
        units.push(words("MULTI"), 1, NOW_MS, &mut made).unwrap();
        for end in 2..TRANSACTION_COMMANDS_MAX as u64 + 3 {
            units.push(words("INCR a"), end, NOW_MS, &mut made).unwrap();
        }
        assert_eq!(made.len(), 2);
        assert!(made.iter().all(|unit| !unit.is_transaction && unit.after.splits));
        units.push(words("EXEC"), 1 << 20, NOW_MS, &mut made).unwrap();
        assert!(!made[2].after.splits && made[2].commands.is_empty());
        assert!(units.push(words("EXEC"), 0, NOW_MS, &mut made).is_err());
        assert!(units.push(words("SWAPDB 0 1"), 99, NOW_MS, &mut made).is_err());
    }

    #[test]
    fn every_expiry_time_is_held_back_and_found_again() {
        let at = |ms: u64| (HELD_MS + ms).to_string();
        for (line, expected) in [
            ("PEXPIREAT k 5000 GT", format!("PEXPIREAT k {} GT", at(5000))),
            ("EXPIREAT k 5", format!("PEXPIREAT k {}", at(5000))),
            ("EXPIRE k 5", format!("PEXPIREAT k {}", at(NOW_MS + 5000))),
            ("PEXPIRE k 5", format!("PEXPIREAT k {}", at(NOW_MS + 5))),
            ("SETEX k 5 v", format!("SET k v PXAT {}", at(NOW_MS + 5000))),
            ("PSETEX k 5 v", format!("SET k v PXAT {}", at(NOW_MS + 5))),
            ("SET k EX NX PX 5", format!("SET k EX NX PXAT {}", at(NOW_MS + 5))),
            ("SET k v exat 5 XX", format!("SET k v PXAT {} XX", at(5000))),
            ("SET k v PXAT 5", format!("SET k v PXAT {}", at(5))),
            ("GETEX k PXAT 5", format!("GETEX k PXAT {}", at(5))),
            ("RESTORE k 5 p", format!("RESTORE k {} p ABSTTL", at(NOW_MS + 5))),
            ("RESTORE k 5 p ABSTTL REPLACE", format!("RESTORE k {} p ABSTTL REPLACE", at(5))),
        ] {
            assert_eq!(units_of(false, &[line]).0, [format!("0 {expected} @1")], "{line}");
        }
        for line in
            ["RESTORE k 0 p", "SET k v", "SET k v KEEPTTL", "SET EX 5", "PEXPIREAT k x", "GETEX k PERSIST"]
        {
            assert_eq!(units_of(false, &[line]).0, [format!("0 {line} @1")]);
        }
        assert_eq!(true_time(hold(NOW_MS)), Some(NOW_MS));
        assert_eq!((hold(u64::MAX), true_time(u64::MAX), true_time(NOW_MS)), (u64::MAX, None, None));
    }
}
