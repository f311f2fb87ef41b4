//! Commands on bitmaps and HyperLogLogs, which are strings.

use super::{args, exact, Args, Generator, Step};

impl Generator {
    pub(super) fn bitmap_command(&mut self) -> Step {
        let key = self.bitmap_key();
        let args = match self.chance.below(20) {
            0..=4 => args!["SETBIT", key, self.bit_offset(), self.bit()],
            5..=6 => args!["GETBIT", key, self.bit_offset()],
            7..=9 => {
                let args = args!["BITCOUNT", key];
                self.bit_range(args)
            }
            10..=12 => {
                let args = args!["BITPOS", key, self.bit()];
                self.bit_range(args)
            }
            13..=14 => {
                let name = self.chance.pick(&["AND", "or", "XOR", "NOT", "NAND"]);
                let mut args = args!["BITOP", name, key];
                let count = if name == "NOT" { 1 } else { 1 + self.chance.below(3) };
                args.extend((0..count).map(|_| self.bitmap_key()));
                args
            }
            15 => args!["GETRANGE", key, "0", "-1"],
            _ => self.fields_of_bits(key),
        };
        exact(args)
    }

    fn bitmap_key(&mut self) -> Vec<u8> {
        match self.chance.below(5) {
            0 => self.key(),
            _ => self.chance.pick(&["bits", "b2", "b3"]).as_bytes().to_vec(),
        }
    }

    fn bit(&mut self) -> Vec<u8> {
        match self.chance.below(12) {
            0 => self.integer(),
            bit => (bit % 2).to_string().into_bytes(),
        }
    }

    fn bit_offset(&mut self) -> Vec<u8> {
        match self.chance.below(14) {
            0 => self.chance.pick(&["-1", "4294967296", "x", "", "9223372036854775808"]).as_bytes().to_vec(),
            1 => self.number_of(20_000),
            _ => self.number_of(200),
        }
    }

    fn bit_range(&mut self, mut args: Args) -> Args {
        for _ in 0..self.chance.below(3) {
            args.push(match self.chance.below(4) {
                0 => (self.chance.below(400) as i64 - 200).to_string().into_bytes(),
                _ => self.index(),
            });
        }
        if self.chance.percent(30) {
            args.push(self.chance.pick(&["BIT", "byte", "BITS"]).into());
        }
        args
    }

    fn fields_of_bits(&mut self, key: Vec<u8>) -> Args {
        let only_reads = self.chance.percent(20);
        let mut args = args![if only_reads { "BITFIELD_RO" } else { "BITFIELD" }, key];
        for _ in 0..1 + self.chance.below(5) {
            if self.chance.percent(25) {
                args.push(b"OVERFLOW".to_vec());
                args.push(self.chance.pick(&["WRAP", "sat", "FAIL", "fail", "SAT", "NONE"]).into());
            }
            let action = match self.chance.below(if only_reads { 12 } else { 3 }) {
                0 if !only_reads => "SET",
                1 => "INCRBY",
                _ => "GET",
            };
            args.push(action.into());
            args.push(match self.chance.below(14) {
                0 => self.chance.pick(&["u64", "i65", "u0", "x8", "i", "I8"]).as_bytes().to_vec(),
                1..=2 => self.chance.pick(&["i64", "u63", "u1", "i1"]).as_bytes().to_vec(),
                _ => format!("{}{}", self.chance.pick(&["u", "i"]), 1 + self.chance.below(63)).into_bytes(),
            });
            let offset = self.bit_offset();
            args.push(if self.chance.percent(30) { [b"#", &offset[..]].concat() } else { offset });
            if action != "GET" {
                args.push(self.integer());
            }
        }
        args
    }

    pub(super) fn hyperloglog_command(&mut self) -> Step {
        let key = self.hyperloglog_key();
        let args = match self.chance.below(16) {
            0..=7 => {
                let mut args = args!["PFADD", key];
                match self.chance.below(6) {
                    0 => {
                        let from = self.chance.below(100_000);
                        args.extend(
                            (0..self.chance.below(900)).map(|n| format!("e{}", from + n).into_bytes()),
                        );
                    }
                    _ => args.extend((0..self.chance.below(12)).map(|_| self.value())),
                }
                args
            }
            8..=10 => args!["PFCOUNT", key],
            11 => {
                let mut args = args!["PFCOUNT", key];
                args.extend((0..1 + self.chance.below(3)).map(|_| self.hyperloglog_key()));
                args
            }
            12..=13 => {
                let mut args = args!["PFMERGE", key];
                args.extend((0..self.chance.below(3)).map(|_| self.hyperloglog_key()));
                args
            }
            14 => args!["GET", key],
            _ => self.damaged_hyperloglog(key),
        };
        exact(args)
    }

    fn hyperloglog_key(&mut self) -> Vec<u8> {
        match self.chance.below(8) {
            0 => self.key(),
            1 => b"damaged".to_vec(),
            _ => self.chance.pick(&["hll", "hll2", "hll3", "hll4"]).as_bytes().to_vec(),
        }
    }

    /// Changes a byte of a string, or makes one that only begins as a HyperLogLog does. Registers
    /// stay intact, and so does the encoding: Redis reads damaged registers beyond their end.
    fn damaged_hyperloglog(&mut self, key: Vec<u8>) -> Args {
        match self.chance.below(6) {
            0 => {
                let at = self.chance.pick(&["0", "1", "3", "5", "8", "11", "15"]);
                args!["SETRANGE", key, at, [self.chance.next() as u8]]
            }
            1 => args!["SET", key, "HYLL"],
            2 => args!["SET", "damaged", [&b"HYLL\x02\0\0\0"[..], &[0; 8], &self.value()].concat()],
            _ => args!["DEL", "damaged"],
        }
    }
}
