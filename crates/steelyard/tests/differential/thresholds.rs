//! Random commands on collections whose sizes are around Redis's thresholds. After each command the
//! collection's encoding must be the same at both servers, and at the end its elements.
//!
//! An encoding of Redis depends on the history of a collection: it does not become compact again.
//! So the programs compare no encodings of a collection from which elements were removed, and begin
//! with new keys when a threshold changes.

use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;
use crate::servers::Server;

const KEYS: usize = 4;

const COUNTS: [&str; 7] = ["0", "1", "3", "8", "9", "512", "100000"];
const BYTES: [&str; 5] = ["0", "1", "5", "64", "1kb"];
const NODES: [&str; 6] = ["-5", "-2", "0", "1", "3", "100"];
const NAMES: [(&str, &[&str]); 11] = [
    ("hash-max-listpack-entries", &COUNTS),
    ("hash-max-ziplist-entries", &COUNTS),
    ("hash-max-listpack-value", &BYTES),
    ("hash-max-ziplist-value", &BYTES),
    ("zset-max-listpack-entries", &COUNTS),
    ("zset-max-ziplist-entries", &COUNTS),
    ("zset-max-listpack-value", &BYTES),
    ("zset-max-ziplist-value", &BYTES),
    ("set-max-intset-entries", &COUNTS),
    ("list-max-listpack-size", &NODES),
    ("list-max-ziplist-size", &NODES),
];

/// The two servers, and the keys that the test has written to both.
pub struct Program {
    chance: Chance,
    ours: Connection,
    theirs: Connection,
    /// For each key: true if Redis may have a less compact encoding than its elements need.
    is_worn: Vec<bool>,
    /// The encodings that were compared.
    pub compared: Vec<String>,
}

impl Program {
    pub fn new(seed: u64, ours: &Server, theirs: &Server) -> Program {
        let chance = Chance::new(seed);
        let (ours, theirs) = (ours.connect(), theirs.connect());
        Program { chance, ours, theirs, is_worn: vec![false; 4 * KEYS], compared: Vec::new() }
    }

    /// Sends a command to both servers, and returns the reply if it is the same.
    fn same(&mut self, words: &[&str]) -> Reply {
        let (ours, theirs) = (self.ours.call(words).unwrap(), self.theirs.call(words).unwrap());
        assert_eq!(ours, theirs, "{words:?}");
        ours
    }

    pub fn run(&mut self, commands: usize) {
        self.change_thresholds();
        for _ in 0..commands {
            match self.chance.percent(4) {
                true => self.change_thresholds(),
                false => self.command(),
            }
        }
        self.compare_elements();
    }

    fn change_thresholds(&mut self) {
        self.compare_elements();
        for number in 0..self.is_worn.len() {
            self.same(&["DEL", &name(number)]);
        }
        self.is_worn.fill(false);
        for _ in 0..1 + self.chance.below(3) {
            let (name, values) = NAMES[self.chance.below(NAMES.len())];
            let value = values[self.chance.below(values.len())];
            assert_eq!(self.same(&["CONFIG", "SET", name, value]), Reply::OK);
            self.same(&["CONFIG", "GET", name]);
        }
    }

    /// Returns a field or member and a value. The lengths follow from the number, so that a second
    /// write of the same field does not shorten it.
    fn element(&mut self) -> (String, String) {
        let number = self.chance.below(14);
        let length = [1, 2, 5, 6, 63, 64, 65][number % 7];
        let value = ((b'a' + self.chance.below(26) as u8) as char).to_string();
        (format!("{number:x}{}", "n".repeat(length - 1)), value.repeat([1, 5, 6, 64, 65][number % 5]))
    }

    fn command(&mut self) {
        let number = self.chance.below(self.is_worn.len());
        let key = name(number);
        let kind = number % 4;
        let (field, value) = self.element();
        let (other_field, other_value) = self.element();
        let integer = self.chance.below(14).to_string();
        let score = self.chance.below(9).to_string();
        let roll = self.chance.below(100);
        if roll < 4 {
            self.same(&["DEL", &key]);
            self.is_worn[number] = false;
            return;
        }
        if roll < 14 {
            // Also if nothing is removed, so that a check costs nothing.
            self.is_worn[number] = true;
            let removal: &[&str] = match kind {
                0 => &["HDEL", &key, &field],
                1 => &["SREM", &key, &integer],
                2 => &["ZREM", &key, &field],
                _ => &["RPOP", &key],
            };
            self.same(removal);
            return;
        }
        let is_member_text = roll < 18;
        let source = name(self.chance.below(KEYS) * 4 + kind);
        let write: &[&str] = match (kind, roll) {
            (0, 90..) => &["HINCRBY", &key, "counter", "7"],
            (0, _) => &["HSET", &key, &field, &value, &other_field, &other_value],
            (1, 90..) => &["SUNIONSTORE", &key, &source],
            (1, _) => &["SADD", &key, &integer, if is_member_text { &field } else { &score }],
            (2, 90..) => &["ZUNIONSTORE", &key, "1", &source],
            (2, _) => &["ZADD", &key, &score, &field],
            _ => &["RPUSH", &key, &value, &other_value],
        };
        self.same(write);
        if write[0].ends_with("STORE") {
            self.is_worn[number] = false;
        }
        if !self.is_worn[number] {
            self.compare_encoding(&key);
        }
    }

    /// Compares a key's encoding as a read, in a transaction and in a script returns it.
    fn compare_encoding(&mut self, key: &str) {
        let question = ["OBJECT", "ENCODING", key];
        let encoding = self.same(&question);
        self.same(&["MULTI"]);
        self.same(&question);
        assert_eq!(self.same(&["EXEC"]), Reply::Array(vec![encoding.clone()]), "{key}");
        let script = "redis.call('GET', KEYS[2]) return redis.call('OBJECT', 'ENCODING', KEYS[1])";
        let by_script = self.same(&["EVAL", script, "2", key, "{c}none"]);
        match &encoding {
            Reply::Nil => {}
            Reply::Bulk(_) => assert_eq!(by_script, encoding),
            other => panic!("{other:?}"),
        }
        if let Reply::Bulk(encoding) = encoding {
            self.compared.push(String::from_utf8_lossy(&encoding).into_owned());
        }
    }

    fn compare_elements(&mut self) {
        for number in 0..self.is_worn.len() {
            let key = name(number);
            let words: &[&str] = match number % 4 {
                0 => &["HGETALL", &key],
                1 => &["SMEMBERS", &key],
                2 => &["ZRANGE", &key, "0", "-1", "WITHSCORES"],
                _ => &["LRANGE", &key, "0", "-1"],
            };
            let elements = |connection: &mut Connection| {
                let Reply::Array(all) = connection.call(words).unwrap() else { panic!("{words:?}") };
                let size = if number % 4 == 0 { 2 } else { 1 };
                let mut all: Vec<String> = all.chunks(size).map(|part| format!("{part:?}")).collect();
                if number % 4 < 2 {
                    all.sort();
                }
                all
            };
            assert_eq!(elements(&mut self.ours), elements(&mut self.theirs), "{key}");
        }
    }
}

fn name(number: usize) -> String {
    format!("{{c}}{}:{}", ["hash", "set", "zset", "list"][number % 4], number / 4)
}

/// Compares collections at the default thresholds.
pub fn check_defaults(ours: &Server, theirs: &Server) {
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    let numbers: Vec<String> = (0..514).map(|number| number.to_string()).collect();
    let mut program = |words: &[&str]| {
        let reply = ours.call(words).unwrap();
        assert_eq!(reply, theirs.call(words).unwrap(), "{:?}", &words[..2]);
        reply
    };
    for (key, counts, step, encodings) in [
        ("hash", [512, 513], "HSET", ["listpack", "hashtable"]),
        ("set", [512, 513], "SADD", ["intset", "hashtable"]),
        ("zset", [128, 129], "ZADD", ["listpack", "skiplist"]),
    ] {
        for (count, encoding) in counts.into_iter().zip(encodings) {
            let mut words = vec![step, key];
            for number in &numbers[..count] {
                words.extend(std::iter::repeat_n(number.as_str(), if key == "set" { 1 } else { 2 }));
            }
            program(&words);
            assert_eq!(program(&["OBJECT", "ENCODING", key]), Reply::bulk(encoding), "{key} {count}");
        }
        program(&["DEL", key]);
    }
}
