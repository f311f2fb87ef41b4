//! Random sessions: right and wrong commands over so few keys that they collide.
//!
//! Times are either long past or far ahead, so that no answer depends on the time of day. A session
//! uses one of two [`Times`]. Either all times are instants, which both servers must return to the
//! millisecond, or some are relative.

mod bitmaps;
mod connection;
mod hashes;
mod keys;
mod lists;
mod places;
mod sets;
mod sorted_sets;
mod streams;
mod strings;
mod tags;
mod words;

use crate::chance::Chance;
use crate::compare::Compare;
pub use tags::Tags;

pub type Args = Vec<Vec<u8>>;

/// A command, and the rule by which its answers are compared.
#[derive(Clone, Debug)]
pub struct Request {
    pub args: Args,
    pub compare: Compare,
}

impl Request {
    pub fn new<A: AsRef<[u8]>>(args: &[A], compare: Compare) -> Request {
        Request { args: args.iter().map(|arg| arg.as_ref().to_vec()).collect(), compare }
    }
}

#[derive(Clone, Debug)]
pub enum Step {
    One(Request),
    /// `SCAN`, `HSCAN`, `SSCAN` or `ZSCAN` from cursor 0 until the cursor is 0 again. The cursor is
    /// inserted at `cursor_at`.
    Walk {
        args: Args,
        cursor_at: usize,
    },
    /// `DBSIZE`, which counts an expired key until it has been looked up.
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Instants,
    Relative,
}

pub struct Generator {
    chance: Chance,
    times: Times,
    families: &'static [(usize, Kind)],
    /// The time of the last entry that was added to a stream.
    last_ms: u64,
    tags: Option<Tags>,
}

/// A function that draws a command of one family.
type Kind = fn(&mut Generator) -> Step;

const WEIGHTS: [(usize, Kind); 10] = [
    (38, |g| g.string_command()),
    (33, |g| g.hash_command()),
    (30, |g| g.set_command()),
    (40, |g| g.sorted_set_command()),
    (34, |g| g.list_command()),
    (24, |g| g.stream_command()),
    (20, |g| g.bitmap_command()),
    (12, |g| g.hyperloglog_command()),
    (26, |g| g.key_command()),
    (3, |g| g.connection_command()),
];
/// The families of sessions of places and of `SORT`.
const PLACES: [(usize, Kind); 5] = [
    (60, |g| g.place_command()),
    (40, |g| g.sort_command()),
    (10, |g| g.list_command()),
    (6, |g| g.key_command()),
    (3, |g| g.connection_command()),
];
/// Mostly commands on streams, so that these become long.
const STREAMS: [(usize, Kind); 3] =
    [(90, |g| g.stream_command()), (3, |g| g.key_command()), (1, |g| g.connection_command())];
const MUTATED_PERCENT: usize = 6;
const OTHER_CASE_PERCENT: usize = 10;

impl Generator {
    pub fn new(seed: u64, times: Times) -> Generator {
        Generator { chance: Chance::new(seed), times, families: &WEIGHTS, last_ms: 1, tags: None }
    }

    /// Returns a generator of commands on places, and of `SORT`.
    pub fn of_places(seed: u64, times: Times) -> Generator {
        Generator { families: &PLACES, ..Generator::new(seed, times) }
    }

    pub fn of_streams(seed: u64, times: Times) -> Generator {
        Generator { families: &STREAMS, ..Generator::new(seed, times) }
    }

    /// Returns a command that both servers can execute within a transaction or a script, and that
    /// leaves the connection as it is.
    pub fn inner_command(&mut self) -> Request {
        loop {
            match self.step() {
                Step::One(request) if !request.compare.stands_alone() && self.is_inner(&request.args) => {
                    return request
                }
                _ => {}
            }
        }
    }

    fn is_inner(&self, args: &[Vec<u8>]) -> bool {
        // The tokens of SCAN may differ in the order in which keys are visited.
        const OTHERS: [&str; 9] =
            ["HELLO", "AUTH", "CLIENT", "COMMAND", "SELECT", "RESET", "QUIT", "SCAN", "DBSIZE"];
        // In cluster mode Steelyard refuses these in transactions and scripts, and Redis executes
        // them.
        const OF_ALL_SLOTS: [&str; 3] = ["KEYS", "FLUSHALL", "FLUSHDB"];
        let is_one_of =
            |names: &[&str]| names.iter().any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
        !(is_one_of(&OTHERS) || self.tags.is_some() && is_one_of(&OF_ALL_SLOTS))
    }

    /// Gives every key the hash tag of `tags`, so that all keys of the session are in one slot.
    pub fn set_tags(&mut self, tags: Tags) {
        self.tags = Some(tags);
    }

    /// Returns a key, with the hash tag if there is one.
    pub fn tagged_key(&mut self) -> Vec<u8> {
        let mut key = self.key();
        if let Some(tags) = &self.tags {
            tags.tag(&mut key);
        }
        key
    }

    pub fn step(&mut self) -> Step {
        let mut step = self.untagged_step();
        if let Some(tags) = &mut self.tags {
            tags.apply(&mut step);
        }
        step
    }

    fn untagged_step(&mut self) -> Step {
        let total = self.families.iter().map(|(weight, _)| weight).sum();
        let mut at = self.chance.below(total);
        let family = self.families.iter().find(|(weight, _)| match at.checked_sub(*weight) {
            Some(left) => {
                at = left;
                false
            }
            None => true,
        });
        let mut step = family.expect("below the total").1(self);
        if let Step::One(request) = &mut step {
            if self.chance.percent(MUTATED_PERCENT) {
                let intended = request.args.clone();
                self.mutate(&mut request.args);
                // If all times are instants, no relative time may remain. Otherwise no relative
                // time that ends soon may remain.
                let spans_from = if self.times == Times::Instants { i64::MAX } else { FAR_MILLIS };
                let args = &request.args;
                if has_span_below(args, spans_from)
                    || is_endless(args)
                    || overflows(args)
                    || sets_far_bits(args)
                    || orders_names_and_scores(args, &intended)
                    || names_before_failing(args)
                    || has_open_order(args)
                    || streams::depends_on_clock(args)
                {
                    request.args = intended;
                }
            }
            if self.chance.percent(OTHER_CASE_PERCENT) {
                self.change_case(&mut request.args[0]);
            }
        }
        step
    }

    /// Returns the number of steps to send in the next pipeline.
    pub fn batch_size(&mut self) -> usize {
        match self.chance.below(4) {
            0 => 1,
            1 => 2 + self.chance.below(4),
            _ => 1 + self.chance.below(48),
        }
    }

    /// Makes the arguments wrong. The command's name stays.
    fn mutate(&mut self, args: &mut Args) {
        let at = 1 + self.chance.below(args.len().max(2) - 1);
        let junk = self.junk();
        match self.chance.below(5) {
            0 if args.len() > 1 => drop(args.pop()),
            1 => args.push(junk),
            2 if at < args.len() => args[at] = junk,
            3 if at < args.len() => args.insert(at, junk),
            _ if at < args.len() => args.push(args[at].clone()),
            _ => args.push(junk),
        }
    }

    fn change_case(&mut self, name: &mut [u8]) {
        for letter in name {
            if self.chance.percent(50) {
                *letter = letter.to_ascii_uppercase();
            }
        }
    }
}

/// Time in milliseconds that is longer than any session.
const FAR_MILLIS: i64 = 1_000_000_000;

/// Returns true if a key could expire less than `far` milliseconds from now. The servers would see
/// that moment differently.
fn has_span_below(args: &[Vec<u8>], far: i64) -> bool {
    const RELATIVE: [&str; 6] = ["EX", "PX", "EXPIRE", "PEXPIRE", "SETEX", "PSETEX"];
    let relative =
        args.iter().any(|arg| RELATIVE.iter().any(|name| arg.eq_ignore_ascii_case(name.as_bytes())));
    let number = |arg: &Vec<u8>| std::str::from_utf8(arg).ok()?.parse::<i64>().ok();
    relative && args.iter().filter_map(number).any(|number| (1..far).contains(&number))
}

/// Returns true if Redis would repeat fields or members until it is out of memory.
fn is_endless(args: &[Vec<u8>]) -> bool {
    const REPEATED_MAX: i64 = -2000;
    let number = |arg: &Vec<u8>| std::str::from_utf8(arg).ok()?.parse::<i64>().ok();
    let repeats = ["HRANDFIELD", "SRANDMEMBER", "ZRANDMEMBER"];
    repeats.iter().any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()))
        && args.iter().filter_map(number).any(|count| count < REPEATED_MAX && count != i64::MIN)
}

/// Returns true if Redis would compute a position beyond 64 bits from a number of keys.
fn overflows(args: &[Vec<u8>]) -> bool {
    let number = |arg: &Vec<u8>| std::str::from_utf8(arg).ok()?.parse::<i64>().ok();
    args[0].to_ascii_uppercase().ends_with(b"MPOP")
        && args.get(1).and_then(number).is_some_and(|count| count > i64::from(i32::MAX))
}

/// Returns true if a bit could be set so far behind the end that a server would allocate much
/// memory for it.
fn sets_far_bits(args: &[Vec<u8>]) -> bool {
    let number =
        |arg: &Vec<u8>| std::str::from_utf8(arg.strip_prefix(b"#").unwrap_or(arg)).ok()?.parse::<i64>().ok();
    let sets = ["SETBIT", "BITFIELD"].iter().any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()));
    sets && args.iter().skip(2).filter_map(number).any(|number| (100_000..1 << 33).contains(&number))
}

/// Returns true if a change of the arguments could give members whose names are compared different
/// scores, or compare the names of others. Redis's answers then depend on its encoding.
fn orders_names_and_scores(args: &[Vec<u8>], intended: &[Vec<u8>]) -> bool {
    let compares = |args: &[Vec<u8>]| args.iter().any(|arg| arg.to_ascii_uppercase().ends_with(b"LEX"));
    let is_named = |key: Option<&Vec<u8>>| key.is_some_and(|key| key.starts_with(b"lex"));
    intended[1..].iter().any(|arg| is_named(Some(arg))) && intended[0] == b"ZADD"
        || compares(args) && !is_named(args.get(1))
        || args[0] == b"ZRANGESTORE" && args[1..] != intended[1..] && is_named(intended.get(1))
}

/// Returns true for a `HELLO` that sets a name. Redis 7.0 keeps the name even if it refuses a later
/// argument.
fn names_before_failing(args: &[Vec<u8>]) -> bool {
    args[0] == b"HELLO" && args.iter().any(|arg| arg.eq_ignore_ascii_case(b"SETNAME"))
}

/// Returns true for a `SORT` whose result Redis leaves open in part, or for a search that stores
/// distances.
fn has_open_order(args: &[Vec<u8>]) -> bool {
    let has = |word: &str| args.iter().skip(1).any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let is_sort = args[0].to_ascii_uppercase().starts_with(b"SORT");
    is_sort && has("BY") && (has("ALPHA") || has("set") || has("s2")) || has("STOREDIST")
}

fn exact(args: Args) -> Step {
    compared(args, Compare::Exact)
}

fn compared(args: Args, compare: Compare) -> Step {
    Step::One(Request { args, compare })
}

/// Makes arguments from anything that can be read as bytes.
macro_rules! args {
    ($($arg:expr),+ $(,)?) => { vec![$(AsRef::<[u8]>::as_ref(&$arg).to_vec()),+] };
}
pub(crate) use args;
