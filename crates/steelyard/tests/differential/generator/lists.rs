//! Commands on lists: every command and option, on small and large lists.

use super::{args, exact, Args, Generator, Step};

impl Generator {
    pub(super) fn list_command(&mut self) -> Step {
        let key = self.list_key();
        let args = match self.chance.below(40) {
            0..=6 => {
                let name = self.chance.pick(&["RPUSH", "LPUSH", "RPUSH", "LPUSHX", "RPUSHX"]);
                self.pushed(name, key)
            }
            7..=10 => {
                let mut args = args![self.chance.pick(&["LPOP", "RPOP"]), key];
                self.popped_count(&mut args);
                args
            }
            11 => args!["LLEN", key],
            12..=14 => args!["LRANGE", key, self.index(), self.index()],
            15..=16 => args!["LINDEX", key, self.index()],
            17..=18 => args!["LSET", key, self.index(), self.element()],
            19..=20 => {
                let side = self.chance.pick(&["BEFORE", "after", "AFTER", "NEAR"]);
                args!["LINSERT", key, side, self.element(), self.element()]
            }
            21..=22 => args!["LREM", key, self.index(), self.element()],
            23..=24 => args!["LTRIM", key, self.index(), self.index()],
            25..=27 => self.position(key),
            28..=30 => {
                let mut args = args!["LMOVE", key, self.list_key()];
                args.extend((0..2).map(|_| self.chance.pick(&["LEFT", "right", "RIGHT", "left"]).into()));
                args
            }
            31 => args!["RPOPLPUSH", key, self.list_key()],
            32 => self.popped_from_many("LMPOP", &["LEFT", "right"]),
            _ => self.long_list(),
        };
        exact(args)
    }

    pub(super) fn list_key(&mut self) -> Vec<u8> {
        match self.chance.below(5) {
            0 => self.key(),
            _ => self.chance.pick(&["list", "l2", "queue", "long", "{tag}2"]).as_bytes().to_vec(),
        }
    }

    fn element(&mut self) -> Vec<u8> {
        match self.chance.below(40) {
            0 => vec![b'x'; 1000 + self.chance.below(5000)],
            1..=9 => self.value(),
            _ => self.chance.pick(&["a", "b", "c", "17", "", "element"]).as_bytes().to_vec(),
        }
    }

    fn pushed(&mut self, name: &str, key: Vec<u8>) -> Args {
        let mut args = args![name, key];
        args.extend((0..1 + self.chance.below(6)).map(|_| self.element()));
        args
    }

    fn position(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["LPOS", key, self.element()];
        for _ in 0..self.chance.below(4) {
            args.push(self.chance.pick(&["RANK", "COUNT", "maxlen"]).into());
            args.push(match self.chance.below(10) {
                0 => self.integer(),
                _ => (self.chance.below(9) as i64 - 2).to_string().into_bytes(),
            });
        }
        args
    }

    /// Makes lists of several nodes, and changes them in their middle.
    fn long_list(&mut self) -> Args {
        let key = self.chance.pick(&["long", "queue"]);
        let far = (self.chance.below(4000) as i64 - 2000).to_string();
        match self.chance.below(12) {
            0..=4 => {
                let mut args = args![self.chance.pick(&["RPUSH", "LPUSH", "RPUSH"]), key];
                let from = self.chance.below(3000);
                args.extend((from..from + 1 + self.chance.below(400)).map(|n| format!("e{n}").into_bytes()));
                args
            }
            5 => args!["LINSERT", key, "AFTER", format!("e{}", self.chance.below(3000)), self.element()],
            6 => args!["LREM", key, self.index(), format!("e{}", self.chance.below(3000))],
            7 => args!["LSET", key, far, self.element()],
            8 => args!["LRANGE", key, far, self.number_of(3000)],
            9 => args!["LINDEX", key, far],
            10 => args!["LPOP", key, self.number_of(500)],
            _ => args!["LTRIM", key, self.number_of(200), far],
        }
    }
}
