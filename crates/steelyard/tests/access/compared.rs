//! The same random modifiers, log-ins and commands are sent to `redis-server` and to Steelyard. The
//! verdicts, the texts of errors, the users and the log of denials must be the same.
//!
//! `STEELYARD_SEEDS=100..200` sets the seeds.

use std::ops::Range;

use resp::Reply;

use crate::chance::Chance;
use crate::connection::Connection;
use crate::generator;
use crate::servers::{self, Server};

const SEEDS: Range<u64> = 1..21;
const ROUNDS: usize = 60;

/// Two connections of the same kind to the two servers.
struct Pair {
    ours: Connection,
    theirs: Connection,
}

impl Pair {
    fn open(ours: &Server, theirs: &Server) -> Pair {
        let mut pair = Pair { ours: ours.connect(), theirs: theirs.connect() };
        pair.call(&["HELLO", "3"]);
        pair
    }

    fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> (Reply, Reply) {
        (self.ours.call(words).expect("ours answers"), self.theirs.call(words).expect("theirs answers"))
    }

    /// Sends a command whose answers must be equal. Returns the answer.
    fn same<A: AsRef<[u8]>>(&mut self, words: &[A], context: &str) -> Reply {
        let (ours, theirs) = self.call(words);
        let shown: Vec<_> =
            words.iter().map(|word| String::from_utf8_lossy(word.as_ref()).into_owned()).collect();
        assert_eq!(ours, theirs, "{context}: {shown:?}");
        ours
    }
}

/// Returns the fields of a map without those that differ by design: the rules of commands, because
/// Redis 7.0 computes other rules with the same effect, and the clients.
fn without_rules(reply: &Reply) -> Reply {
    match reply {
        Reply::Map(pairs) => Reply::Map(
            pairs
                .iter()
                .filter(|(name, _)| {
                    !["commands", "age-seconds", "client-info"]
                        .iter()
                        .any(|other| *name == Reply::bulk(*other))
                })
                .map(|(name, value)| (name.clone(), without_rules(value)))
                .collect(),
        ),
        Reply::Array(items) => Reply::Array(items.iter().map(without_rules).collect()),
        Reply::Set(items) => {
            let mut items: Vec<Reply> = items.iter().map(without_rules).collect();
            items.sort_by_key(|item| format!("{item:?}"));
            Reply::Set(items)
        }
        other => other.clone(),
    }
}

fn is_refusal(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOPERM") || text.starts_with("NOAUTH"))
}

#[test]
fn random_users_may_do_what_they_may_do_in_redis() {
    let Some(theirs) = servers::redis(&[]) else { return };
    let ours = servers::steelyard(&[]);
    let (mut permitted, mut denied) = (0, 0);
    for seed in seeds() {
        let mut chance = Chance::new(seed);
        let mut admin = Pair::open(&ours, &theirs);
        for round in 0..ROUNDS {
            let context = format!("seed {seed}, round {round}");
            let name = generator::name(&mut chance);
            let mut words: Vec<Vec<u8>> =
                vec![b"ACL".to_vec(), b"SETUSER".to_vec(), name.clone().into_bytes()];
            words.extend(generator::modifiers(&mut chance));
            admin.same(&words, &context);
            let (mine, other) = admin.call(&["ACL", "GETUSER", &name]);
            assert_eq!(
                without_rules(&mine),
                without_rules(&other),
                "{context}: the user {name} after {words:?}"
            );
            let name = generator::name(&mut chance);
            for _ in 0..12 {
                let mut words = vec!["ACL".to_owned(), "DRYRUN".to_owned(), name.clone()];
                words.extend(generator::command(&mut chance));
                match admin.same(&words, &context) {
                    Reply::Simple(_) => permitted += 1,
                    _ => denied += 1,
                }
            }
            use_it(&mut chance, &ours, &theirs, &name, &context);
        }
        admin.same(&["ACL", "USERS"], "the names");
        let (mine, other) = admin.call(&["ACL", "LOG", "200"]);
        assert_eq!(without_rules(&mine), without_rules(&other), "seed {seed}: the log");
        admin.same(&["ACL", "LOG", "RESET"], "the log");
        admin.same(&["ACL", "DELUSER", "alice", "bob", "carol", "d:e*", "nobody"], "the end");
        admin.same(&["FLUSHALL"], "the end");
    }
    assert!(permitted > 500 && denied > 500, "{permitted} permitted, {denied} denied");
}

/// Logs in as a user and executes commands.
fn use_it(chance: &mut Chance, ours: &Server, theirs: &Server, name: &str, context: &str) {
    let mut client = Pair::open(ours, theirs);
    let password = generator::password(chance);
    let logged_in = match chance.percent(50) {
        true => client.same(&["AUTH", name, &password], context),
        false => {
            let (ours, theirs) = client.call(&["HELLO", "3", "AUTH", name, &password]);
            assert_eq!(ours.is_error(), theirs.is_error(), "{context}: {name} logs in");
            ours
        }
    };
    if logged_in.is_error() {
        return;
    }
    for _ in 0..6 {
        let words = generator::command(chance);
        let (ours, theirs) = client.call(&words);
        let (is_ours, is_theirs) = (is_refusal(&ours), is_refusal(&theirs));
        assert_eq!(is_ours, is_theirs, "{context}: {name} sends {words:?}: {ours:?}, {theirs:?}");
        if is_ours {
            assert_eq!(ours, theirs, "{context}: {name} sends {words:?}");
        }
    }
}

#[test]
fn acl_answers_as_redis_does() {
    let Some(theirs) = servers::redis(&[]) else { return };
    let ours = servers::steelyard(&[]);
    let mut pair = Pair::open(&ours, &theirs);
    let script = "ACL
        ACL NONSENSE
        ACL WHOAMI
        ACL WHOAMI x
        ACL CAT
        ACL CAT nonsense
        ACL CAT read x
        ACL GENPASS 0
        ACL GENPASS 4097
        ACL GENPASS x
        ACL GENPASS 5 6
        ACL GETUSER nobody
        ACL GETUSER
        ACL LIST
        ACL LIST x
        ACL USERS
        ACL LOAD
        ACL SAVE
        ACL LOG x
        ACL LOG 1 2
        ACL LOG -1
        ACL LOG RESET
        ACL DELUSER
        ACL DELUSER nobody
        ACL DELUSER default
        ACL DELUSER nobody default
        ACL SETUSER
        ACL SETUSER bad_name
        ACL SETUSER new
        ACL SETUSER new on (+get ~a
        ACL SETUSER new on (+get ~a +x)
        ACL SETUSER new on (+get ~a) clearselectors
        ACL SETUSER new off nonsense
        ACL DRYRUN
        ACL DRYRUN nobody get a
        ACL DRYRUN new nonsense a
        ACL DRYRUN new get
        ACL DRYRUN new config
        ACL DRYRUN new config nonsense
        ACL DRYRUN new config get
        ACL DRYRUN default config get x
        ACL LIST
        AUTH x
        AUTH default x
        ACL SETUSER default >pw
        AUTH pw
        AUTH wrong
        ACL WHOAMI
        CONFIG SET requirepass other
        AUTH pw
        AUTH other
        ACL SETUSER default nopass
        CLIENT KILL USER nobody
        CLIENT KILL USER new
        ACL DELUSER new new";
    for line in script.lines().map(str::trim) {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        pair.same(&words, "the script");
    }
    for (bits, digits) in [(None, 64), (Some("1"), 1), (Some("5"), 2), (Some("4096"), 1024)] {
        let words: Vec<&str> = ["ACL", "GENPASS"].into_iter().chain(bits).collect();
        let (ours, theirs) = pair.call(&words);
        for reply in [ours, theirs] {
            assert!(matches!(&reply, Reply::Bulk(text) if text.len() == digits), "{reply:?}");
        }
    }
    // The members of categories, as far as this server has the commands.
    let names = |reply: Reply| match reply {
        Reply::Array(names) => names,
        other => panic!("{other:?}"),
    };
    let known = names(pair.ours.call(&["COMMAND", "LIST"]).unwrap());
    for category in ["read", "write", "dangerous", "admin", "fast", "slow", "connection", "keyspace", "hash"]
    {
        let (ours, theirs) = pair.call(&["ACL", "CAT", category]);
        let ours = names(ours);
        for name in names(theirs) {
            assert!(!known.contains(&name) || ours.contains(&name), "{name:?} is in {category}");
        }
    }
}

/// The keys of commands, and the access to each, decide about permissions.
#[test]
fn the_keys_of_random_commands_are_those_of_redis() {
    let Some(theirs) = servers::redis(&[]) else { return };
    let ours = servers::steelyard(&[]);
    let mut pair = Pair::open(&ours, &theirs);
    let mut chance = Chance::new(5);
    let mut found = 0;
    for _ in 0..2000 {
        let mut words = vec!["COMMAND".to_owned(), "GETKEYSANDFLAGS".to_owned()];
        words.extend(generator::command(&mut chance));
        found += usize::from(!pair.same(&words, "keys").is_error());
    }
    assert!(found > 1000, "{found} commands with keys");
}

/// The same for every command and subcommand that both servers have, with arguments that may make
/// no sense.
#[test]
fn the_keys_of_every_command_are_those_of_redis() {
    let Some(theirs) = servers::redis(&[]) else { return };
    let ours = servers::steelyard(&[]);
    let mut pair = Pair::open(&ours, &theirs);
    let Reply::Array(commands) = pair.ours.call(&["COMMAND"]).unwrap() else { panic!("no table") };
    let mut names = Vec::new();
    fn note(command: &Reply, names: &mut Vec<(String, i64)>) {
        let Reply::Array(parts) = command else { panic!("{command:?} is no command") };
        let (Reply::Bulk(name), Reply::Int(arity)) = (&parts[0], &parts[1]) else { panic!("{command:?}") };
        names.push((String::from_utf8_lossy(name).into_owned(), arity.abs()));
        if let Some(Reply::Array(subcommands)) = parts.get(9) {
            subcommands.iter().for_each(|subcommand| note(subcommand, names));
        }
    }
    commands.iter().for_each(|command| note(command, &mut names));
    let words =
        ["a", "b", "c", "0", "1", "2", "3", "get", "GET", "set", "u8", "store", "overflow", "-1", "x"];
    let (mut chance, mut found) = (Chance::new(9), 0);
    for (name, arity) in names {
        let known = pair.theirs.call(&["COMMAND", "INFO", &name]).unwrap();
        if known == Reply::Array(vec![Reply::Nil]) {
            continue;
        }
        for _ in 0..40 {
            let mut line: Vec<&str> = vec!["COMMAND", "GETKEYSANDFLAGS"];
            line.extend(name.split('|'));
            let wanted = 2 + arity as usize + chance.below(6);
            while line.len() < wanted {
                line.push(chance.pick(&words));
            }
            // Redis finds no key in `PFMERGE key`, and so checks none. Here the key is checked.
            let is_unchecked_in_redis = name == "pfmerge" && line.len() == 4;
            if line.len() > 3 && !is_unchecked_in_redis {
                found += usize::from(!pair.same(&line, "keys").is_error());
            }
        }
    }
    assert!(found > 2000, "{found} commands with keys");
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("STEELYARD_SEEDS") else { return SEEDS };
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.expect("STEELYARD_SEEDS is a range like 100..200")
}
