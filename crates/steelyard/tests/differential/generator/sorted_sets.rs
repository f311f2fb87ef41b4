//! Commands on sorted sets: every command and option, on small and large sorted sets.
//!
//! Ranges by name have a defined answer only if all scores are equal. So they use keys of their
//! own, to which members are added with the score 0.

use super::{args, compared, exact, Args, Generator, Step};
use crate::compare::Compare;

impl Generator {
    pub(super) fn sorted_set_command(&mut self) -> Step {
        let key = self.sorted_set_key();
        let args = match self.chance.below(44) {
            0..=6 => self.add_members(key),
            7..=8 => args!["ZINCRBY", key, self.score(), self.member()],
            9..=10 => self.some_members("ZREM", key),
            11 => args!["ZCARD", key],
            12 => args!["ZSCORE", key, self.member()],
            13 => self.some_members("ZMSCORE", key),
            14..=15 => {
                let name = self.chance.pick(&["ZRANK", "ZREVRANK"]);
                args![name, key, self.member()]
            }
            16 => args!["ZCOUNT", key, self.score_bound(), self.score_bound()],
            17..=20 => {
                let args = args!["ZRANGE", key];
                self.range(args, true)
            }
            21..=22 => {
                let from = self.sorted_set_key();
                self.range(args!["ZRANGESTORE", key, from], false)
            }
            23..=25 => self.older_range(key),
            26 => args!["ZREMRANGEBYRANK", key, self.index(), self.index()],
            27 => args!["ZREMRANGEBYSCORE", key, self.score_bound(), self.score_bound()],
            28..=29 => self.popped_scores(key),
            30 => self.popped_from_many("ZMPOP", &["MIN", "max"]),
            31 => return self.random_scores(key),
            32..=35 => self.combined(key),
            36 => return self.walk_scores(key),
            37..=40 => self.named(),
            _ => self.many_scores(),
        };
        exact(args)
    }

    fn sorted_set_key(&mut self) -> Vec<u8> {
        match self.chance.below(5) {
            0 => self.key(),
            _ => self.chance.pick(&["zset", "z2", "z3", "ranked", "{tag}1"]).as_bytes().to_vec(),
        }
    }

    fn score(&mut self) -> Vec<u8> {
        const SCORES: [&str; 15] = [
            "0",
            "-0",
            "1",
            "2",
            "2.0",
            "3",
            "-1",
            "0.1",
            "-1.5",
            "1e10",
            "123456789012345678",
            "1e300",
            "5e-324",
            "1e400",
            "1e-400",
        ];
        match self.chance.below(12) {
            0 => self.integer(),
            1 => self.float(),
            2..=5 => self.chance.pick(&SCORES).as_bytes().to_vec(),
            6 => self.chance.pick(&["inf", "-inf", "+Inf", "Infinity", "nan"]).as_bytes().to_vec(),
            _ => self.number_of(12),
        }
    }

    fn score_bound(&mut self) -> Vec<u8> {
        let score = match self.chance.below(16) {
            0 => self.chance.pick(&["", " 1", "(", "((1", "1 ", "abc", "1\0x"]).as_bytes().to_vec(),
            1..=4 => self.chance.pick(&["-inf", "+inf"]).as_bytes().to_vec(),
            _ => self.score(),
        };
        match self.chance.below(4) {
            0 => [b"(", &score[..]].concat(),
            _ => score,
        }
    }

    fn name_bound(&mut self) -> Vec<u8> {
        let name = self.member();
        match self.chance.below(12) {
            0 => self.chance.pick(&["", "+x", "-x", "a", "-\0"]).as_bytes().to_vec(),
            1..=2 => b"-".to_vec(),
            3..=4 => b"+".to_vec(),
            5..=7 => [b"(", &name[..]].concat(),
            _ => [b"[", &name[..]].concat(),
        }
    }

    fn add_members(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["ZADD", key];
        for _ in 0..[0, 0, 0, 1, 1, 2][self.chance.below(6)] {
            args.push(self.chance.pick(&["NX", "xx", "GT", "lt", "CH", "INCR", "ch"]).into());
        }
        for _ in 0..1 + self.chance.below(4) * self.chance.below(2) {
            args.push(self.score());
            args.push(self.member());
        }
        args
    }

    fn limit(&mut self, args: &mut Args) {
        if self.chance.percent(40) {
            args.push(self.chance.pick(&["LIMIT", "limit"]).into());
            args.push(self.index());
            args.push(self.index());
        }
    }

    /// Appends bounds and options of the newer commands.
    fn range(&mut self, mut args: Args, with_scores: bool) -> Args {
        let by_score = self.chance.percent(50);
        for _ in 0..2 {
            args.push(if by_score { self.score_bound() } else { self.index() });
        }
        if by_score {
            args.push(b"BYSCORE".to_vec());
        }
        if self.chance.percent(40) {
            args.push(b"REV".to_vec());
        }
        if by_score || self.chance.percent(4) {
            self.limit(&mut args);
        } else if self.chance.percent(6) {
            // The only limit that a range by rank may have.
            args.extend([b"LIMIT".to_vec(), self.index(), b"-1".to_vec()]);
        }
        if with_scores && self.chance.percent(50) || self.chance.percent(3) {
            args.push(b"WITHSCORES".to_vec());
        }
        args
    }

    fn older_range(&mut self, key: Vec<u8>) -> Args {
        let name = self.chance.pick(&["ZREVRANGE", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]);
        let by_score = name != "ZREVRANGE";
        let mut args = args![name, key];
        for _ in 0..2 {
            args.push(if by_score { self.score_bound() } else { self.index() });
        }
        if self.chance.percent(50) {
            args.push(b"WITHSCORES".to_vec());
        }
        if by_score || self.chance.percent(4) {
            self.limit(&mut args);
        }
        args
    }

    fn popped_scores(&mut self, key: Vec<u8>) -> Args {
        let mut args = args![self.chance.pick(&["ZPOPMIN", "ZPOPMAX"]), key];
        self.popped_count(&mut args);
        args
    }

    pub(super) fn popped_count(&mut self, args: &mut Args) {
        if self.chance.percent(50) {
            args.push(match self.chance.below(8) {
                0 => self.integer(),
                1 => self.number_of(200),
                count => count.to_string().into_bytes(),
            });
        }
    }

    /// `ZMPOP` or `LMPOP`, whose arguments have the same form. Or the form that waits, with a
    /// timeout that is an error, so that it never waits.
    pub(super) fn popped_from_many(&mut self, name: &str, ends: &[&str]) -> Args {
        let is_list = name == "LMPOP";
        let keys: Vec<Vec<u8>> = (0..1 + self.chance.below(3))
            .map(|_| if is_list { self.list_key() } else { self.sorted_set_key() })
            .collect();
        let count = match self.chance.below(12) {
            0 => self.chance.pick(&["0", "-1", "x", "7"]).as_bytes().to_vec(),
            _ => keys.len().to_string().into_bytes(),
        };
        let mut args = args![name, count];
        args.extend(keys);
        args.push(self.chance.pick(ends).into());
        if self.chance.percent(50) {
            args.push(b"COUNT".to_vec());
            args.push(match self.chance.below(8) {
                0 => self.chance.pick(&["0", "-1", "x"]).as_bytes().to_vec(),
                count => count.to_string().into_bytes(),
            });
        }
        if self.chance.percent(10) {
            args[0].insert(0, b'B');
            args.insert(1, self.chance.pick(&["x", "-1", "1e30", "nan"]).into());
        }
        args
    }

    fn random_scores(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["ZRANDMEMBER", key];
        if self.chance.percent(80) {
            args.push(match self.chance.below(10) {
                0 => self.chance.pick(&["9223372036854775807", "-9223372036854775808", "x"]).into(),
                1 => self.number_of(2000),
                _ => (self.chance.below(31) as i64 - 15).to_string().into_bytes(),
            });
            if self.chance.percent(50) {
                args.push(self.chance.pick(&["WITHSCORES", "withscores", "WITHVALUES"]).into());
            }
        }
        compared(args, Compare::RandomScores)
    }

    fn combined(&mut self, key: Vec<u8>) -> Args {
        let mut name = self.chance.pick(&["ZUNION", "ZINTER", "ZDIFF", "ZUNION", "ZINTER"]).to_owned();
        let is_count = name == "ZINTER" && self.chance.percent(30);
        let is_stored = !is_count && self.chance.percent(50);
        let has_weights = name != "ZDIFF" && !is_count;
        name.push_str(if is_count {
            "CARD"
        } else if is_stored {
            "STORE"
        } else {
            ""
        });
        let mut args = if is_stored { args![name, key] } else { args![name] };
        let keys: Vec<Vec<u8>> = (0..1 + self.chance.below(3))
            .map(|_| if self.chance.percent(15) { self.set_key() } else { self.sorted_set_key() })
            .collect();
        args.push(match self.chance.below(14) {
            0 => self.chance.pick(&["0", "-1", "x", "7", "9223372036854775807"]).as_bytes().to_vec(),
            _ => keys.len().to_string().into_bytes(),
        });
        let count = keys.len();
        args.extend(keys);
        if has_weights && self.chance.percent(40) {
            args.push(b"WEIGHTS".to_vec());
            args.extend((0..count).map(|_| self.score()));
        }
        if has_weights && self.chance.percent(40) {
            args.push(b"AGGREGATE".to_vec());
            args.push(self.chance.pick(&["SUM", "min", "MAX", "avg"]).into());
        }
        if is_count && self.chance.percent(50) {
            args.push(b"LIMIT".to_vec());
            args.push(self.index());
        }
        if !is_stored && !is_count && self.chance.percent(50) || self.chance.percent(3) {
            args.push(b"WITHSCORES".to_vec());
        }
        args
    }

    fn walk_scores(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["ZSCAN", key];
        if self.chance.percent(40) {
            args.extend([b"MATCH".to_vec(), self.pattern()]);
        }
        if self.chance.percent(40) {
            args.extend([b"COUNT".to_vec(), (1 + self.chance.below(100)).to_string().into_bytes()]);
        }
        Step::Walk { args, cursor_at: 2 }
    }

    /// Commands on members that all have the score 0.
    fn named(&mut self) -> Args {
        let key = self.chance.pick(&["lex", "lex2"]);
        match self.chance.below(12) {
            0..=3 => {
                let mut args = args!["ZADD", key];
                for _ in 0..1 + self.chance.below(30) {
                    args.push(b"0".to_vec());
                    args.push(self.member());
                }
                args
            }
            4 => args!["ZREMRANGEBYLEX", key, self.name_bound(), self.name_bound()],
            5 => args!["ZLEXCOUNT", key, self.name_bound(), self.name_bound()],
            6..=8 => {
                let name = self.chance.pick(&["ZRANGEBYLEX", "ZREVRANGEBYLEX"]);
                let mut args = args![name, key, self.name_bound(), self.name_bound()];
                self.limit(&mut args);
                args
            }
            _ => {
                let mut args = match self.chance.percent(30) {
                    true => args!["ZRANGESTORE", "lex3", key],
                    false => args!["ZRANGE", key],
                };
                args.extend([self.name_bound(), self.name_bound(), b"BYLEX".to_vec()]);
                if self.chance.percent(40) {
                    args.push(b"REV".to_vec());
                }
                self.limit(&mut args);
                if self.chance.percent(4) {
                    args.push(b"WITHSCORES".to_vec());
                }
                args
            }
        }
    }

    /// Makes sorted sets of several nodes and removes large parts of them.
    fn many_scores(&mut self) -> Args {
        let key = self.chance.pick(&["ranked", "z3"]);
        match self.chance.below(10) {
            0..=4 => {
                let mut args = args!["ZADD", key];
                let from = self.chance.below(3000);
                for number in from..from + 1 + self.chance.below(400) {
                    args.push(self.number_of(1000));
                    args.push(format!("member-{number}").into_bytes());
                }
                args
            }
            5..=6 => {
                let mut args = args!["ZREM", key];
                let from = self.chance.below(3000);
                args.extend(
                    (from..from + self.chance.below(300) + 1).map(|n| format!("member-{n}").into_bytes()),
                );
                args
            }
            7 => args!["ZREMRANGEBYRANK", key, self.number_of(600), self.number_of(2000)],
            8 => args!["ZRANGE", key, self.number_of(3000), self.number_of(3000), "WITHSCORES"],
            _ => args!["ZCOUNT", key, self.number_of(1000), self.number_of(1000)],
        }
    }
}
