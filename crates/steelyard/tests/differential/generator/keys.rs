//! Commands on keys of every type: existence, expiry, names, databases, walks.

use super::strings::with_keys;
use super::{args, compared, exact, Args, Generator, Step, Times};
use crate::compare::Compare;

impl Generator {
    pub(super) fn key_command(&mut self) -> Step {
        let key = self.key();
        let args = match self.chance.below(30) {
            0..=1 => {
                let name = self.chance.pick(&["DEL", "UNLINK"]);
                with_keys(name, self.keys(3))
            }
            2 => {
                let name = self.chance.pick(&["EXISTS", "TOUCH"]);
                with_keys(name, self.keys(4))
            }
            3..=4 => args!["TYPE", key],
            5..=9 => self.expire(key),
            10..=12 => return self.time_left(key),
            13 => args!["PERSIST", key],
            14 => return compared(args!["KEYS", self.pattern()], Compare::Unordered),
            15..=16 => return self.walk_keys(),
            17 => return compared(args!["RANDOMKEY"], Compare::RandomKey),
            18..=19 => {
                let name = self.chance.pick(&["RENAME", "RENAMENX"]);
                args![name, key, self.key()]
            }
            20..=22 => self.copy(key),
            23 => args!["MOVE", key, self.database()],
            24..=25 => args!["SELECT", self.database()],
            26 => return Step::Count,
            27 => return self.wrong_walk_of_keys(),
            28 if self.chance.percent(10) => {
                let name = self.chance.pick(&["FLUSHALL", "FLUSHDB"]);
                let mut args = args![name];
                if self.chance.percent(50) {
                    args.push(self.chance.pick(&["ASYNC", "sync", "now"]).into());
                }
                args
            }
            _ => args!["EXISTS", key],
        };
        exact(args)
    }

    fn expire(&mut self, key: Vec<u8>) -> Args {
        let seconds = self.chance.percent(50);
        let relative = self.times == Times::Relative && self.chance.percent(50) || self.chance.percent(5);
        let (name, value) = match (relative, seconds) {
            (true, true) => ("EXPIRE", self.span(true)),
            (true, false) => ("PEXPIRE", self.span(false)),
            (false, true) => ("EXPIREAT", self.instant(true)),
            (false, false) => ("PEXPIREAT", self.instant(false)),
        };
        let mut args = args![name, key, value];
        for _ in 0..[0, 0, 1, 1, 1, 2][self.chance.below(6)] {
            args.push(self.chance.pick(&["NX", "xx", "GT", "Lt"]).into());
        }
        args
    }

    fn time_left(&mut self, key: Vec<u8>) -> Step {
        let name = self.chance.pick(&["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"]);
        let left = matches!(name, "TTL" | "PTTL");
        let compare = match self.times {
            Times::Instants if !left => Compare::Exact,
            _ => Compare::Time { milliseconds: name.starts_with('P') },
        };
        compared(args![name, key], compare)
    }

    fn copy(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["COPY", key, self.key()];
        if self.chance.percent(40) {
            args.extend([b"DB".to_vec(), self.database()]);
        }
        if self.chance.percent(50) {
            args.push(b"REPLACE".to_vec());
        }
        args
    }

    fn walk_keys(&mut self) -> Step {
        let mut args = args!["SCAN"];
        if self.chance.percent(40) {
            args.extend([b"MATCH".to_vec(), self.pattern()]);
        }
        if self.chance.percent(40) {
            args.extend([b"COUNT".to_vec(), (1 + self.chance.below(20)).to_string().into_bytes()]);
        }
        if self.chance.percent(40) {
            let name = self.chance.pick(&["string", "hash", "HASH", "set", "list", "nothing", ""]);
            args.extend([b"TYPE".to_vec(), name.into()]);
        }
        Step::Walk { args, cursor_at: 1 }
    }

    fn wrong_walk_of_keys(&mut self) -> Step {
        let args = match self.chance.below(5) {
            0 => args!["SCAN", "cursor"],
            1 => args!["SCAN", "0", "COUNT", "0"],
            2 => args!["SCAN", "0", "COUNT", "x"],
            3 => args!["SCAN", "0", "LIMIT", "5"],
            _ => args!["SCAN", "0", "TYPE"],
        };
        compared(args, Compare::Turn)
    }
}
