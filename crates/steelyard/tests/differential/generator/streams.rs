//! Commands on streams: every command and option, on small streams and on streams of several nodes.
//!
//! Entries have given IDs, because the servers' clocks differ. Only the stream `far`, whose last ID
//! is in the future, gets automatic ones. Idle times are either a few seconds or more than a month,
//! and are compared with limits far from both.

use super::{args, compared, exact, Args, Generator, Step};
use crate::compare::Compare;

const DELIVERED_LONG_AGO_MS: &str = "5000000000";
const SHORTEST_IDLE_MS: [&str; 5] = ["0", "0", "1000000000", "9000000000000", "-5"];
/// An ID beyond all clocks.
const FAR_MS: u64 = 90_000_000_000_000;

impl Generator {
    pub(super) fn stream_command(&mut self) -> Step {
        let key = self.stream_key();
        let args = match self.chance.below(130) {
            0..=29 | 100..=125 => self.add(key),
            30..=31 => self.add_far(),
            32 => args!["XLEN", key],
            33..=38 => self.stream_range(key),
            39..=43 => {
                let mut args = args!["XDEL", key];
                args.extend((0..1 + self.chance.below(4)).map(|_| self.id()));
                args
            }
            44..=45 => {
                let mut args = args!["XTRIM", key];
                self.trim_options(&mut args);
                args
            }
            46..=49 => self.read_streams(),
            // The stream `log` is left to become long.
            50 => match self.chance.below(4) {
                0 => args![self.chance.pick(&["DEL", "UNLINK"]), "x1"],
                1 => args!["RENAME", "x1", "{tag}x"],
                2 => args!["COPY", "log", "x1", "REPLACE"],
                _ => args!["COPY", key, "x1"],
            },
            51..=64 => self.read_as_group(),
            65..=66 => {
                let mut args = args!["XSETID", key, self.id()];
                if self.chance.percent(40) {
                    args.extend(args!["ENTRIESADDED", self.index()]);
                }
                if self.chance.percent(40) {
                    args.extend(args!["maxdeletedid", self.id()]);
                }
                args
            }
            67..=74 => self.manage_group(key),
            75..=80 => {
                let mut args = args!["XACK", key, self.group_name()];
                args.extend((0..1 + self.chance.below(5)).map(|_| self.id()));
                args
            }
            81..=85 => return compared(self.pending(key), Compare::Idle),
            86..=90 => self.claim(key),
            91..=94 => self.auto_claim(key),
            _ => return compared(self.info(key), Compare::Idle),
        };
        exact(args)
    }

    fn stream_key(&mut self) -> Vec<u8> {
        match self.chance.below(30) {
            0 => self.key(),
            _ => self.chance.pick(&["log", "log", "log", "x1", "{tag}x"]).as_bytes().to_vec(),
        }
    }

    /// Returns an ID among those that entries have.
    fn id(&mut self) -> Vec<u8> {
        let (last, near) = (self.last_ms, 1 + self.chance.below(60) as u64);
        let text = match self.chance.below(60) {
            0 if self.chance.percent(30) => return self.integer(),
            1 => return self.junk(),
            2 => "0-0".to_owned(),
            3 => format!("{}-*", last + 1),
            4 if self.chance.percent(20) => "18446744073709551615-18446744073709551615".to_owned(),
            5 => "-".to_owned(),
            6 => "+".to_owned(),
            7 => "$".to_owned(),
            8..=9 => "0".to_owned(),
            10..=20 => format!("{}-{}", 1 + self.chance.next() % last, self.chance.below(3)),
            21..=25 => (1 + self.chance.next() % last).to_string(),
            _ => format!("{}-{}", last.saturating_sub(near).max(1), self.chance.below(3)),
        };
        text.into_bytes()
    }

    fn bound(&mut self) -> Vec<u8> {
        match self.chance.below(10) {
            0..=1 => b"-".to_vec(),
            2..=3 => b"+".to_vec(),
            4..=5 => [b"(".to_vec(), self.id()].concat(),
            _ => self.id(),
        }
    }

    fn group_name(&mut self) -> Vec<u8> {
        match self.chance.below(20) {
            0 => self.text(4),
            _ => self.chance.pick(&["g", "g", "g1", "group\nb"]).as_bytes().to_vec(),
        }
    }

    fn consumer_name(&mut self) -> Vec<u8> {
        match self.chance.below(20) {
            0 => self.field(),
            _ => self.chance.pick(&["alice", "bob", "c"]).as_bytes().to_vec(),
        }
    }

    fn trim_options(&mut self, args: &mut Args) {
        let by_count = self.chance.percent(85);
        args.push(
            self.chance.pick(if by_count { &["MAXLEN", "maxlen"] } else { &["MINID", "minid"] }).into(),
        );
        let sign = self.chance.below(3);
        args.extend([vec![], args!["~"], args!["="]][sign].clone());
        let count = [40, 400, 800, 800][self.chance.below(4)];
        args.push(if by_count { self.number_of(count) } else { self.id() });
        if self.chance.percent(if sign == 1 { 40 } else { 3 }) {
            args.extend(args!["LIMIT", self.number_of(300)]);
        }
    }

    fn fields_and_values(&mut self, args: &mut Args) {
        match self.chance.below(12) {
            0 => args.extend((0..1 + self.chance.below(5)).map(|_| self.value())),
            1 if self.chance.percent(20) => args.extend(args!["f", vec![b'x'; self.chance.below(6000)]]),
            2..=4 => args.extend(args![self.field(), self.value()]),
            _ => args.extend(args!["f", self.number_of(5000), "name", self.text(20)]),
        }
    }

    fn add(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["XADD", key];
        if self.chance.percent(5) {
            args.push(b"NOMKSTREAM".to_vec());
        }
        if self.chance.percent(5) {
            self.trim_options(&mut args);
        }
        self.last_ms += self.chance.next() % 4;
        let last = self.last_ms;
        args.push(match self.chance.below(20) {
            0 if self.chance.percent(30) => self.id(),
            1..=3 => format!("{last}-*").into_bytes(),
            4..=6 => (last + 1).to_string().into_bytes(),
            _ => format!("{}-{}", last + 1, self.chance.below(4)).into_bytes(),
        });
        self.fields_and_values(&mut args);
        args
    }

    /// Returns an append to the stream whose last ID is in the future.
    fn add_far(&mut self) -> Args {
        match self.chance.below(3) {
            0 => args!["XADD", "far", format!("{FAR_MS}-{}", self.chance.below(9)), "f", "v"],
            1 => args!["XADD", "far", "NOMKSTREAM", "*", "f", self.value()],
            _ => args!["XRANGE", "far", "-", "+"],
        }
    }

    fn stream_range(&mut self, key: Vec<u8>) -> Args {
        let name = self.chance.pick(&["XRANGE", "XREVRANGE"]);
        let mut args = args![name, key, self.bound(), self.bound()];
        if self.chance.percent(60) {
            args.extend(args!["COUNT", self.index()]);
        }
        args
    }

    fn read_options(&mut self, args: &mut Args) {
        if self.chance.percent(60) {
            args.extend(args!["COUNT", self.number_of(12)]);
        }
        if self.chance.percent(8) {
            args.extend(args!["BLOCK", self.chance.pick(&["1", "2", "-1", "x", "9223372036854775808"])]);
        }
    }

    fn streams(&mut self, args: &mut Args, id: impl Fn(&mut Generator) -> Vec<u8>) {
        args.push(self.chance.pick(&["STREAMS", "streams"]).into());
        let count = 1 + self.chance.below(2);
        args.extend((0..count).map(|_| self.stream_key()));
        args.extend((0..count).map(|_| id(self)));
    }

    fn read_streams(&mut self) -> Args {
        let mut args = args!["XREAD"];
        self.read_options(&mut args);
        self.streams(&mut args, |g| match g.chance.below(10) {
            0 => b"$".to_vec(),
            _ => g.id(),
        });
        args
    }

    fn read_as_group(&mut self) -> Args {
        let mut args = args!["XREADGROUP", "GROUP", self.group_name(), self.consumer_name()];
        self.read_options(&mut args);
        if self.chance.percent(8) {
            args.push(b"NOACK".to_vec());
        }
        self.streams(&mut args, |g| match g.chance.below(10) {
            0..=7 => b">".to_vec(),
            8 => b"0".to_vec(),
            _ => g.id(),
        });
        args
    }

    fn manage_group(&mut self, key: Vec<u8>) -> Args {
        let group = self.group_name();
        match self.chance.below(20) {
            0..=6 => {
                let id = if self.chance.percent(30) { b"$".to_vec() } else { self.id() };
                let mut args = args!["XGROUP", "CREATE", key, group, id];
                if self.chance.percent(30) {
                    args.push(b"MKSTREAM".to_vec());
                }
                if self.chance.percent(20) {
                    args.extend(args!["ENTRIESREAD", self.index()]);
                }
                args
            }
            7..=10 => {
                let mut args = args!["XGROUP", "setid", key, group, self.id()];
                if self.chance.percent(30) {
                    args.extend(args!["ENTRIESREAD", self.index()]);
                }
                args
            }
            11 => args!["XGROUP", "DESTROY", key, group],
            12..=14 => args!["XGROUP", "CREATECONSUMER", key, group, self.consumer_name()],
            15..=18 => args!["XGROUP", "DELCONSUMER", key, group, self.consumer_name()],
            _ => args!["XGROUP", self.chance.pick(&["NONSENSE", "create", "destroy"]), key],
        }
    }

    fn pending(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["XPENDING", key, self.group_name()];
        if self.chance.percent(60) {
            if self.chance.percent(30) {
                args.extend(args!["IDLE", self.chance.pick(&SHORTEST_IDLE_MS)]);
            }
            args.extend(args![self.bound(), self.bound(), self.number_of(20)]);
            if self.chance.percent(40) {
                args.push(self.consumer_name());
            }
        }
        args
    }

    fn claim(&mut self, key: Vec<u8>) -> Args {
        let idle = self.chance.pick(&SHORTEST_IDLE_MS);
        let mut args = args!["XCLAIM", key, self.group_name(), self.consumer_name(), idle];
        args.extend((0..1 + self.chance.below(5)).map(|_| self.id()));
        for _ in 0..self.chance.below(4) {
            args.extend(match self.chance.below(7) {
                0 => args!["IDLE", self.chance.pick(&[DELIVERED_LONG_AGO_MS, "0", "x"])],
                1 => args!["TIME", self.chance.pick(&["1000", "-3", "900000000000000"])],
                2 => args!["RETRYCOUNT", self.number_of(9)],
                3 => args!["FORCE"],
                4 => args!["justid"],
                5 => args!["LASTID", self.id()],
                _ => args!["FORCE", "JUSTID"],
            });
        }
        args
    }

    fn auto_claim(&mut self, key: Vec<u8>) -> Args {
        let idle = self.chance.pick(&SHORTEST_IDLE_MS);
        let mut args = args!["XAUTOCLAIM", key, self.group_name(), self.consumer_name(), idle, self.bound()];
        if self.chance.percent(60) {
            args.extend(args!["COUNT", self.number_of(7)]);
        }
        if self.chance.percent(40) {
            args.push(b"JUSTID".to_vec());
        }
        args
    }

    fn info(&mut self, key: Vec<u8>) -> Args {
        match self.chance.below(10) {
            0..=2 => args!["XINFO", "STREAM", key],
            3..=4 => args!["XINFO", "STREAM", key, "FULL", "COUNT", self.index()],
            5 => args!["XINFO", "STREAM", key, self.chance.pick(&["FULL", "x"])],
            6..=7 => args!["XINFO", "GROUPS", key],
            8 => args!["XINFO", self.chance.pick(&["GROUPS", "NONSENSE", "CONSUMERS"])],
            _ => args!["XINFO", "CONSUMERS", key, self.group_name()],
        }
    }
}

/// Returns true if the answer to a command on a stream depends on the servers' clocks, or if the
/// client would wait for long.
pub(super) fn depends_on_clock(args: &[Vec<u8>]) -> bool {
    const SHORT_MS: i64 = 1_000_000_000;
    let number = |arg: &Vec<u8>| std::str::from_utf8(arg).ok()?.trim().parse::<i64>().ok();
    let is_short = |arg: &Vec<u8>| number(arg).is_some_and(|idle| (1..SHORT_MS).contains(&idle));
    let name = args[0].to_ascii_uppercase();
    let waits = |pair: &[Vec<u8>]| {
        pair[0].eq_ignore_ascii_case(b"BLOCK")
            && number(&pair[1]).is_some_and(|ms| !(-9..=5).contains(&ms) || ms == 0)
    };
    match &name[..] {
        b"XADD" => args.iter().skip(2).any(|arg| arg.starts_with(b"*")),
        // Idle times and times of delivery.
        b"XCLAIM" | b"XAUTOCLAIM" | b"XPENDING" => args.iter().skip(3).any(is_short),
        b"XREAD" | b"XREADGROUP" => args.windows(2).any(waits),
        _ => false,
    }
}
