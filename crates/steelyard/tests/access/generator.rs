//! Random modifiers of users, and random commands.

use crate::chance::Chance;

const NAMES: [&str; 4] = ["alice", "bob", "carol", "d:e*"];
const PASSWORDS: [&str; 4] = ["", "pw", "other one", "p\u{1}w"];
const KEYS: [&str; 9] = ["a", "a1", "b", "b2", "ab", "c", "x*", "[", ""];

const MODIFIERS: [&str; 75] = [
    "on",
    "on",
    "on",
    "off",
    "nopass",
    "resetpass",
    "reset",
    "clearselectors",
    "sanitize-payload",
    "skip-sanitize-payload",
    "ON",
    ">pw",
    ">pw",
    ">other one",
    "<pw",
    "<nothing",
    "#short",
    "#30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4",
    "!30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4",
    "~a*",
    "~b?",
    "~[ab]*",
    "%R~a*",
    "%W~b*",
    "%RW~c",
    "%wr~ab",
    "%R~*",
    "~*",
    "allkeys",
    "resetkeys",
    "%X~a",
    "%RR~a",
    "%~a",
    "%R",
    "~a b",
    "&c*",
    "&*",
    "allchannels",
    "resetchannels",
    "&",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+@read",
    "-@write",
    "+@HASH",
    "-@dangerous",
    "+@admin",
    "-@slow",
    "+@fast",
    "+@nothing",
    "+get",
    "-get",
    "+SET",
    "-mset",
    "+config",
    "-config|set",
    "+config|get",
    "+client|id",
    "+select|0",
    "+select|1",
    "-select",
    "+config|get|x",
    "+geoadd",
    "-xinfo|stream",
    "+nothing",
    "+",
    "+get|",
    "(+get ~a*)",
    "(+@write %W~b ~c)",
    "(+nope)",
    "(",
    "(-@all +@all ~x)",
    ")",
];

const COMMANDS: [&str; 72] = [
    "get K",
    "set K v",
    "set K v get",
    "set K v ex 9 GET",
    "mset K v K v",
    "mget K K K",
    "del K K",
    "unlink K",
    "exists K K",
    "copy K K",
    "rename K K",
    "lmpop 2 K K left",
    "lmpop 3 K K left",
    "lmpop x K left",
    "sintercard 2 K K",
    "sintercard 0 K",
    "zunionstore K 2 K K",
    "zunionstore K 9 K",
    "zunion 1 K",
    "zdiff 2 K K",
    "zmpop 1 K min",
    "zrangestore K K 0 1",
    "bitop and K K K",
    "bitop not K K",
    "bitfield K get u8 0",
    "bitfield K set u8 0 1",
    "bitfield K overflow wrap get u8 0",
    "bitfield K get u8 0 incrby u8 0 1",
    "bitfield K nonsense",
    "bitfield_ro K get u8 0",
    "object encoding K",
    "object help",
    "memory usage K",
    "config get maxclients",
    "config get acllog-max-len",
    "config set loglevel notice",
    "client id",
    "client list",
    "client getname",
    "select 0",
    "select 1",
    "SELECT 0",
    "ping",
    "echo K",
    "flushall",
    "keys K",
    "dbsize",
    "scan 0",
    "randomkey",
    "smove K K m",
    "lmove K K left right",
    "rpoplpush K K",
    "pfcount K K",
    "pfadd K e",
    "pfmerge K K",
    "getex K",
    "getdel K",
    "expire K 100",
    "ttl K",
    "hset K f v",
    "hget K f",
    "hrandfield K",
    "sunionstore K K K",
    "lcs K K",
    "touch K",
    "info server",
    "command count",
    "acl whoami",
    "acl users",
    "setbit K 1 1",
    "type K",
    "get",
];

pub fn name(chance: &mut Chance) -> String {
    chance.pick(&NAMES).to_owned()
}

pub fn password(chance: &mut Chance) -> String {
    chance.pick(&PASSWORDS).to_owned()
}

/// Returns the words of a command.
pub fn command(chance: &mut Chance) -> Vec<String> {
    let line = COMMANDS[chance.below(COMMANDS.len())];
    let word = |word: &str, chance: &mut Chance| match word {
        "K" => KEYS[chance.below(KEYS.len())].to_owned(),
        other => other.to_owned(),
    };
    line.split(' ').map(|part| word(part, chance)).collect()
}

/// Returns modifiers, of which some are damaged.
pub fn modifiers(chance: &mut Chance) -> Vec<Vec<u8>> {
    (0..1 + chance.below(5)).map(|_| modifier(chance)).collect()
}

fn modifier(chance: &mut Chance) -> Vec<u8> {
    let mut text = MODIFIERS[chance.below(MODIFIERS.len())].as_bytes().to_vec();
    if chance.percent(6) && !text.is_empty() {
        let at = chance.below(text.len());
        // Errors repeat the modifier, and only ASCII survives the test's decoder.
        let byte = chance.below(128) as u8;
        match chance.below(3) {
            0 => text[at] = byte,
            1 => text.insert(at, byte),
            _ => text.truncate(at),
        }
    }
    text
}
