//! Commands on hashes: every command and option, on small and large hashes.

use super::{args, compared, exact, Args, Generator, Step};
use crate::compare::Compare;

impl Generator {
    pub(super) fn hash_command(&mut self) -> Step {
        let key = match self.chance.below(3) {
            0 => self.key(),
            _ => self.chance.pick(&["hash", "h2", "big", "{tag}1"]).as_bytes().to_vec(),
        };
        let field = self.field();
        let args = match self.chance.below(24) {
            0..=3 => self.set_fields("HSET", key),
            4 => self.set_fields("HMSET", key),
            5 => args!["HSETNX", key, field, self.value()],
            6..=7 => args!["HGET", key, field],
            8 => self.some_fields("HMGET", key),
            9 => return compared(args!["HGETALL", key], Compare::Pairs),
            10..=11 => self.some_fields("HDEL", key),
            12 => args!["HLEN", key],
            13 => args!["HEXISTS", key, field],
            14 => {
                let name = self.chance.pick(&["HKEYS", "HVALS"]);
                return compared(args![name, key], Compare::Unordered);
            }
            15..=16 => args!["HINCRBY", key, field, self.integer()],
            17 => {
                let field = if self.chance.percent(60) { b"float".to_vec() } else { field };
                let args = args!["HINCRBYFLOAT", key, field, self.float()];
                return compared(args, Compare::Sum { key_at: 1 });
            }
            18 => args!["HSTRLEN", key, field],
            19..=20 => return self.random_fields(key),
            21 => return self.walk_fields(key),
            22 => return self.wrong_walk(key),
            _ => self.many_fields(),
        };
        exact(args)
    }

    fn set_fields(&mut self, name: &str, key: Vec<u8>) -> Args {
        let mut args = args![name, key];
        for _ in 0..1 + self.chance.below(5) {
            args.push(self.field());
            args.push(self.value());
        }
        args
    }

    fn some_fields(&mut self, name: &str, key: Vec<u8>) -> Args {
        let mut args = args![name, key];
        args.extend((0..1 + self.chance.below(4)).map(|_| self.field()));
        args
    }

    /// Makes the hash larger than 128 and 1024 fields, the sizes at which the servers change their
    /// encoding.
    fn many_fields(&mut self) -> Args {
        let mut args = args!["HSET", "big"];
        if !self.chance.percent(20) {
            return self.some_fields("HDEL", b"big".to_vec());
        }
        let from = self.chance.below(1000);
        for number in from..from + self.chance.below(300) {
            args.push(format!("field-{number}").into_bytes());
            args.push(number.to_string().into_bytes());
        }
        args
    }

    fn random_fields(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["HRANDFIELD", key];
        if self.chance.percent(80) {
            args.push(match self.chance.below(10) {
                0 => self
                    .chance
                    .pick(&["9223372036854775807", "-9223372036854775808", "4611686018427387904", "x"])
                    .into(),
                1 => self.number_of(2000),
                2 if self.chance.percent(4) => b"-1048577".to_vec(),
                _ => (self.chance.below(31) as i64 - 15).to_string().into_bytes(),
            });
            if self.chance.percent(50) {
                args.push(b"WITHVALUES".to_vec());
            }
        }
        compared(args, Compare::RandomFields)
    }

    fn walk_fields(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["HSCAN", key];
        if self.chance.percent(40) {
            args.extend([b"MATCH".to_vec(), self.pattern()]);
        }
        if self.chance.percent(40) {
            args.extend([b"COUNT".to_vec(), (1 + self.chance.below(100)).to_string().into_bytes()]);
        }
        Step::Walk { args, cursor_at: 2 }
    }

    fn wrong_walk(&mut self, key: Vec<u8>) -> Step {
        let args = match self.chance.below(5) {
            0 => args!["HSCAN", key, "cursor"],
            1 => args!["HSCAN", key, "0", "COUNT", "0"],
            2 => args!["HSCAN", key, "0", "COUNT", "x"],
            3 => args!["HSCAN", key, "0", "TYPE", "string"],
            _ => args!["HSCAN", key, "0", "MATCH"],
        };
        compared(args, Compare::Turn)
    }
}
