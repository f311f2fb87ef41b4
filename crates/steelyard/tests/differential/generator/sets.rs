//! Commands on sets: every command and option, on small and large sets.

use super::{args, compared, exact, Args, Generator, Step};
use crate::compare::Compare;

impl Generator {
    pub(super) fn set_command(&mut self) -> Step {
        let key = self.set_key();
        let args = match self.chance.below(30) {
            0..=5 => self.some_members("SADD", key),
            6..=7 => self.some_members("SREM", key),
            8 => args!["SCARD", key],
            9 => args!["SISMEMBER", key, self.member()],
            10 => self.some_members("SMISMEMBER", key),
            11 => return compared(args!["SMEMBERS", key], Compare::Unordered),
            12..=13 => args!["SMOVE", key, self.set_key(), self.member()],
            14..=15 => return self.random_members(key),
            16..=17 => return self.popped_members(key),
            18..=20 => {
                let name = self.chance.pick(&["SINTER", "SUNION", "SDIFF"]);
                return compared(self.some_sets(args![name, key]), Compare::Unordered);
            }
            21..=23 => {
                let name = self.chance.pick(&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]);
                let first = self.set_key();
                self.some_sets(args![name, key, first])
            }
            24..=25 => self.count_of_intersection(key),
            26 => return self.walk_members(key),
            27 => return self.wrong_walk_of_members(key),
            _ => self.many_members(),
        };
        exact(args)
    }

    pub(super) fn set_key(&mut self) -> Vec<u8> {
        match self.chance.below(4) {
            0 => self.key(),
            _ => self.chance.pick(&["set", "s2", "s3", "large", "{tag}2"]).as_bytes().to_vec(),
        }
    }

    pub(super) fn member(&mut self) -> Vec<u8> {
        match self.chance.below(3) {
            0 => self.integer(),
            _ => self.field(),
        }
    }

    pub(super) fn some_members(&mut self, name: &str, key: Vec<u8>) -> Args {
        let mut args = args![name, key];
        args.extend((0..1 + self.chance.below(6)).map(|_| self.member()));
        args
    }

    fn some_sets(&mut self, mut args: Args) -> Args {
        args.extend((0..self.chance.below(3)).map(|_| self.set_key()));
        args
    }

    /// Makes sets larger than 128 members, the size from which they are no longer read completely
    /// for a random pick, and sets that overlap.
    fn many_members(&mut self) -> Args {
        let key = self.chance.pick(&["large", "s3"]);
        if !self.chance.percent(30) {
            return self.some_members("SREM", key.as_bytes().to_vec());
        }
        let mut args = args!["SADD", key];
        let from = self.chance.below(400);
        for number in from..from + 1 + self.chance.below(300) {
            args.push(format!("member-{number}").into_bytes());
        }
        args
    }

    fn count_of_intersection(&mut self, key: Vec<u8>) -> Args {
        let keys = self.some_sets(vec![key]);
        let count = match self.chance.below(12) {
            0 => self.chance.pick(&["0", "-1", "x", "7", "9223372036854775807"]).as_bytes().to_vec(),
            _ => keys.len().to_string().into_bytes(),
        };
        let mut args = args!["SINTERCARD", count];
        args.extend(keys);
        if self.chance.percent(50) {
            args.push(self.chance.pick(&["LIMIT", "limit"]).into());
            args.push(match self.chance.below(8) {
                0 => self.integer(),
                limit => limit.to_string().into_bytes(),
            });
        }
        args
    }

    fn random_members(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["SRANDMEMBER", key];
        if self.chance.percent(80) {
            args.push(match self.chance.below(10) {
                0 => self.chance.pick(&["9223372036854775807", "-9223372036854775808", "x"]).into(),
                1 => self.number_of(2000),
                2 if self.chance.percent(4) => b"-1048577".to_vec(),
                _ => (self.chance.below(31) as i64 - 15).to_string().into_bytes(),
            });
        }
        compared(args, Compare::RandomMembers)
    }

    fn popped_members(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["SPOP", key];
        if self.chance.percent(60) {
            args.push(match self.chance.below(10) {
                0 => self.chance.pick(&["9223372036854775807", "-1", "-9223372036854775808", "x"]).into(),
                1 => self.number_of(200),
                count => count.to_string().into_bytes(),
            });
        }
        compared(args, Compare::Popped)
    }

    fn walk_members(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["SSCAN", key];
        if self.chance.percent(40) {
            args.extend([b"MATCH".to_vec(), self.pattern()]);
        }
        if self.chance.percent(40) {
            args.extend([b"COUNT".to_vec(), (1 + self.chance.below(100)).to_string().into_bytes()]);
        }
        Step::Walk { args, cursor_at: 2 }
    }

    fn wrong_walk_of_members(&mut self, key: Vec<u8>) -> Step {
        let args = match self.chance.below(5) {
            0 => args!["SSCAN", key, "cursor"],
            1 => args!["SSCAN", key, "0", "COUNT", "0"],
            2 => args!["SSCAN", key, "0", "COUNT", "x"],
            3 => args!["SSCAN", key, "0", "TYPE", "string"],
            _ => args!["SSCAN", key, "0", "MATCH"],
        };
        compared(args, Compare::Turn)
    }
}
