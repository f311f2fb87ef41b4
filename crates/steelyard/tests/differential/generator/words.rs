//! The arguments of commands: keys, fields, values, numbers, times, junk.

use super::{Generator, Times};

/// The keys. They are few, so that commands of all kinds work on the same ones. One is empty, one
/// binary and one long. Some share a hash tag, and so a slot. Some names look like integers or
/// patterns.
const KEYS: [&[u8]; 20] = [
    b"a",
    b"b",
    b"c",
    b"counter",
    b"float",
    b"hash",
    b"h2",
    b"set",
    b"s2",
    b"{tag}1",
    b"{tag}2",
    b"x*y",
    b"[z]",
    b"",
    b"17",
    b"\xff\x00\r\n\x80",
    b"key:with:colons",
    b"\xc3\xa9t\xc3\xa9",
    b"big",
    b"a-key-that-is-longer-than-most-of-the-others-are",
];
const FIELDS: [&[u8]; 14] = [
    b"f",
    b"g",
    b"f1",
    b"f2",
    b"name",
    b"n",
    b"float",
    b"",
    b"10",
    b"-1",
    b"\x00\xff\n",
    b"f*",
    b"F",
    b"long-field-name-long-field-name",
];
const INTEGERS: [&str; 27] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "10",
    "-10",
    "100",
    "127",
    "128",
    "255",
    "1000",
    "-5000",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
];
const NOT_INTEGERS: [&[u8]; 14] = [
    b"", b" 1", b"1 ", b"+1", b"01", b"-0", b"1.0", b"1e3", b"0o17", b"abc", b"--1", b"9\x00", b"1,000",
    b"\xff",
];
/// Numbers whose sums are exact in binary, so that Redis adds them as exactly as Steelyard adds
/// decimals.
const FLOATS: [&str; 22] = [
    "0.5",
    "-0.5",
    "1.25",
    "3.0",
    "3.0e3",
    "-1.5e2",
    "1e2",
    "10.125",
    "-0.375",
    "0",
    "-0.0",
    "100.75",
    "5e-1",
    "1048576.0625",
    "+2.5",
    ".5",
    "5.",
    "00.50",
    "17",
    "-17",
    "1E1",
    "0.0000152587890625",
];
const NOT_FLOATS: [&[u8]; 14] = [
    b"",
    b" 1.5",
    b"1.5 ",
    b"abc",
    b"1.5.5",
    b"1e",
    b"nan",
    b"NaN",
    b"-nan",
    b"--1",
    b"1.5\x00",
    b"e5",
    b"0.1f",
    b"\xff\xfe",
];
const INFINITIES: [&str; 5] = ["inf", "-inf", "+inf", "Infinity", "1e5000"];
const PATTERNS: [&[u8]; 20] = [
    b"*",
    b"?",
    b"a*",
    b"*a*",
    b"{tag}?",
    b"{tag}[12]",
    b"[a-c]",
    b"[^a]",
    b"x\\*y",
    b"\\[z\\]",
    b"*[0-9]",
    b"",
    b"**",
    b"*\xff*",
    b"[",
    b"[a",
    b"\\",
    b"h[ash]*",
    b"counter",
    b"?*?",
];
const JUNK: [&[u8]; 32] = [
    b"",
    b"junk",
    b"NX",
    b"XX",
    b"GT",
    b"LT",
    b"GET",
    b"EX",
    b"PX",
    b"EXAT",
    b"PXAT",
    b"KEEPTTL",
    b"PERSIST",
    b"WITHVALUES",
    b"MATCH",
    b"COUNT",
    b"TYPE",
    b"DB",
    b"REPLACE",
    b"LEN",
    b"IDX",
    b"WITHSCORES",
    b"LIMIT",
    b"BYSCORE",
    b"WEIGHTS",
    b"LEFT",
    b"RANK",
    b"0",
    b"-1",
    b"abc",
    b"nx",
    b"\x00\r\n",
];

const MILLIS_AHEAD: u64 = 4_000_000_000_000;

impl Generator {
    pub fn key(&mut self) -> Vec<u8> {
        self.chance.pick(&KEYS).to_vec()
    }

    pub fn keys(&mut self, most: usize) -> Vec<Vec<u8>> {
        (0..1 + self.chance.below(most)).map(|_| self.key()).collect()
    }

    pub fn field(&mut self) -> Vec<u8> {
        match self.chance.below(12) {
            0 => format!("field-{}", self.chance.below(300)).into_bytes(),
            _ => self.chance.pick(&FIELDS).to_vec(),
        }
    }

    pub fn value(&mut self) -> Vec<u8> {
        match self.chance.below(20) {
            0..=5 => self.chance.pick(&INTEGERS).as_bytes().to_vec(),
            6..=7 => self.chance.pick(&FLOATS).as_bytes().to_vec(),
            8 => self.chance.pick(&NOT_INTEGERS).to_vec(),
            9 => self.chance.pick(&NOT_FLOATS).to_vec(),
            10 => self.chance.pick(&INFINITIES).as_bytes().to_vec(),
            11 => Vec::new(),
            12..=15 => self.text(12),
            16..=17 => self.text(80),
            18 => (0..self.chance.below(40)).map(|_| self.chance.next() as u8).collect(),
            _ => self.text(600),
        }
    }

    /// Returns a text over a small alphabet, so that two texts have much in common.
    pub fn text(&mut self, longest: usize) -> Vec<u8> {
        (0..self.chance.below(longest)).map(|_| b"abcde "[self.chance.below(6)]).collect()
    }

    pub fn integer(&mut self) -> Vec<u8> {
        match self.chance.below(20) {
            0..=8 => (self.chance.below(41) as i64 - 20).to_string().into_bytes(),
            9..=18 => self.chance.pick(&INTEGERS).as_bytes().to_vec(),
            _ => self.chance.pick(&NOT_INTEGERS).to_vec(),
        }
    }

    pub fn index(&mut self) -> Vec<u8> {
        match self.chance.below(10) {
            0 => self.integer(),
            _ => (self.chance.below(41) as i64 - 15).to_string().into_bytes(),
        }
    }

    pub fn float(&mut self) -> Vec<u8> {
        match self.chance.below(20) {
            0 => self.chance.pick(&NOT_FLOATS).to_vec(),
            1 => self.chance.pick(&INFINITIES).as_bytes().to_vec(),
            2 => self.integer(),
            3 => self
                .chance
                .pick(&["0.1", "-0.3", "3.14159", "1e-5", "123456.789", "1e30"])
                .as_bytes()
                .to_vec(),
            _ => self.chance.pick(&FLOATS).as_bytes().to_vec(),
        }
    }

    pub fn pattern(&mut self) -> Vec<u8> {
        if self.chance.percent(40) {
            return (0..self.chance.below(7)).map(|_| b"*?[]^-\\abcght{17"[self.chance.below(16)]).collect();
        }
        self.chance.pick(&PATTERNS).to_vec()
    }

    pub fn junk(&mut self) -> Vec<u8> {
        match self.chance.below(3) {
            0 => self.value(),
            1 => self.integer(),
            _ => self.chance.pick(&JUNK).to_vec(),
        }
    }

    pub fn database(&mut self) -> Vec<u8> {
        match self.chance.below(16) {
            0 => self.chance.pick(&["15", "16", "-1", "999999999999"]).as_bytes().to_vec(),
            1 => self.integer(),
            _ => self.chance.pick(&["0", "0", "1", "2"]).as_bytes().to_vec(),
        }
    }

    pub fn number_of(&mut self, below: usize) -> Vec<u8> {
        self.chance.below(below).to_string().into_bytes()
    }

    /// Returns an instant that is far ahead or long past.
    pub fn instant(&mut self, seconds: bool) -> Vec<u8> {
        let millis = match self.chance.below(24) {
            0 => return self.integer_that_is_no_time(seconds),
            1..=2 => 1 + self.chance.next() % 1_000_000_000_000,
            // A few instants are equal, for GT and LT.
            3..=10 => MILLIS_AHEAD + 1_000_000 * (self.chance.next() % 4),
            _ => MILLIS_AHEAD + self.chance.next() % 1_000_000_000,
        };
        let number = if seconds { millis.div_ceil(1000) } else { millis };
        number.to_string().into_bytes()
    }

    /// Returns a relative time: different times of days to years, or zero, or a negative or invalid
    /// one.
    pub fn span(&mut self, seconds: bool) -> Vec<u8> {
        let roll = self.chance.below(12);
        if self.times == Times::Instants || roll == 0 {
            return match self.chance.below(3) {
                0 => self.integer_that_is_no_time(seconds),
                1 => (-(self.chance.below(1_000_000) as i64)).to_string().into_bytes(),
                _ => b"0".to_vec(),
            };
        }
        let millis = 1_000_000_000 + self.chance.next() % 100_000_000_000_000;
        (if seconds { millis / 1000 } else { millis }).to_string().into_bytes()
    }

    /// Returns a time that is zero, negative, too large for any clock, or no number.
    fn integer_that_is_no_time(&mut self, seconds: bool) -> Vec<u8> {
        const WRONG: [&str; 7] = [
            "0",
            "-1",
            "-1000",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "18446744073709551615",
        ];
        /// Numbers of seconds at the limit of 64 bits of milliseconds.
        const EDGE_SECONDS: [&str; 3] = ["9223372036854775", "-9223372036854775", "9223372036854776"];
        match self.chance.below(4) {
            0 => self.chance.pick(&NOT_INTEGERS).to_vec(),
            1 if seconds => self.chance.pick(&EDGE_SECONDS).as_bytes().to_vec(),
            _ => self.chance.pick(&WRONG).as_bytes().to_vec(),
        }
    }

    /// Returns `EX n`, `PX n`, `EXAT n` or `PXAT n`.
    pub fn expiry_option(&mut self) -> [Vec<u8>; 2] {
        let seconds = self.chance.percent(50);
        let relative = self.times == Times::Relative && self.chance.percent(50) || self.chance.percent(5);
        let (name, value) = match (relative, seconds) {
            (true, true) => ("EX", self.span(true)),
            (true, false) => ("px", self.span(false)),
            (false, true) => ("EXAT", self.instant(true)),
            (false, false) => ("pxAT", self.instant(false)),
        };
        [name.as_bytes().to_vec(), value]
    }
}
