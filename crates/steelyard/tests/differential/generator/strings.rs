//! Commands on strings: every command and option.

use super::{args, compared, exact, Args, Generator, Step};
use crate::compare::Compare;

/// Offsets beyond the maximum length of a string. Offsets between a few thousand and these would
/// only fill memory.
const OFFSETS_TOO_LARGE: [&str; 3] = ["536870912", "4294967296", "9223372036854775807"];

impl Generator {
    pub(super) fn string_command(&mut self) -> Step {
        let key = self.key();
        let args = match self.chance.below(25) {
            0..=3 => self.set(key),
            4 => args!["SETNX", key, self.value()],
            5 => {
                let seconds = self.chance.percent(50);
                let name = if seconds { "SETEX" } else { "PSETEX" };
                args![name, key, self.span(seconds), self.value()]
            }
            6..=7 => args!["GET", key],
            8 => args!["GETSET", key, self.value()],
            9 => args!["GETDEL", key],
            10..=11 => self.getex(key),
            12 => with_keys("MGET", self.keys(4)),
            13 => self.pairs("MSET"),
            14 => self.pairs("MSETNX"),
            15 => args!["APPEND", key, self.text(30)],
            16 => args!["STRLEN", key],
            17 => {
                let name = self.chance.pick(&["GETRANGE", "SUBSTR"]);
                args![name, key, self.index(), self.index()]
            }
            18..=19 => self.setrange(key),
            20 => {
                let name = self.chance.pick(&["INCR", "DECR"]);
                args![name, key]
            }
            21..=22 => {
                let name = self.chance.pick(&["INCRBY", "DECRBY"]);
                args![name, key, self.integer()]
            }
            23 => return self.incrbyfloat(key),
            _ => return self.lcs(key),
        };
        exact(args)
    }

    fn set(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["SET", key, self.value()];
        let options = [0, 0, 1, 1, 2, 3][self.chance.below(6)];
        for _ in 0..options {
            match self.chance.below(6) {
                0 => args.push(b"NX".to_vec()),
                1 => args.push(b"xx".to_vec()),
                2 => args.push(b"GET".to_vec()),
                3 => args.push(b"KeepTTL".to_vec()),
                _ => args.extend(self.expiry_option()),
            }
        }
        args
    }

    fn getex(&mut self, key: Vec<u8>) -> Args {
        let mut args = args!["GETEX", key];
        match self.chance.below(8) {
            0 => {}
            1..=2 => args.push(b"PERSIST".to_vec()),
            3 => {
                args.push(b"persist".to_vec());
                args.extend(self.expiry_option());
            }
            _ => args.extend(self.expiry_option()),
        }
        args
    }

    fn pairs(&mut self, name: &str) -> Args {
        let mut args = args![name];
        for _ in 0..1 + self.chance.below(4) {
            args.push(self.key());
            args.push(self.value());
        }
        args
    }

    fn setrange(&mut self, key: Vec<u8>) -> Args {
        let offset = match self.chance.below(12) {
            0 => self.chance.pick(&OFFSETS_TOO_LARGE).as_bytes().to_vec(),
            1 => b"-1".to_vec(),
            2 => self.number_of(2000),
            _ => self.number_of(30),
        };
        let value = if self.chance.percent(15) { Vec::new() } else { self.text(20) };
        args!["SETRANGE", key, offset, value]
    }

    fn incrbyfloat(&mut self, key: Vec<u8>) -> Step {
        let key = if self.chance.percent(60) { b"float".to_vec() } else { key };
        let args = args!["INCRBYFLOAT", key, self.float()];
        compared(args, Compare::Sum { key_at: 1 })
    }

    fn lcs(&mut self, key: Vec<u8>) -> Step {
        let mut args = args!["LCS", key, self.key()];
        for _ in 0..self.chance.below(4) {
            match self.chance.below(4) {
                0 => args.push(b"LEN".to_vec()),
                1 => args.push(b"IDX".to_vec()),
                2 => args.extend([b"MINMATCHLEN".to_vec(), self.index()]),
                _ => args.push(b"withmatchlen".to_vec()),
            }
        }
        exact(args)
    }
}

pub(super) fn with_keys(name: &str, keys: Vec<Vec<u8>>) -> Args {
    let mut args = args![name];
    args.extend(keys);
    args
}
