//! The facts that `COMMAND` reports about each command. Clients route by them, so they must be
//! those of Redis.

use std::collections::BTreeMap;

use resp::Reply;

use crate::servers::{redis, steelyard, Server};

/// Returns the facts of each command by its name, as `COMMAND` lists them, with sets sorted.
fn facts(server: &Server) -> BTreeMap<String, Vec<String>> {
    let mut connection = server.connect();
    connection.call(&["HELLO", "3"]).unwrap();
    let Reply::Array(commands) = connection.call(&["COMMAND"]).unwrap() else { panic!("no table") };
    let mut facts = BTreeMap::new();
    commands.iter().for_each(|command| note(command, &mut facts));
    facts
}

fn note(command: &Reply, facts: &mut BTreeMap<String, Vec<String>>) {
    let Reply::Array(parts) = command else { panic!("{command:?} is no command") };
    let Reply::Bulk(name) = &parts[0] else { panic!("{command:?} has no name") };
    let told: Vec<String> = parts[1..9].iter().map(in_order).collect();
    facts.insert(String::from_utf8_lossy(name).into_owned(), told);
    if let Some(Reply::Array(subcommands) | Reply::Set(subcommands)) = parts.get(9) {
        subcommands.iter().for_each(|subcommand| note(subcommand, facts));
    }
}

/// Formats a reply with arrays sorted as sets. The notes on a key specification are prose and left
/// out.
fn in_order(reply: &Reply) -> String {
    let mut items: Vec<String> = match reply {
        Reply::Array(items) | Reply::Set(items) => items.iter().map(in_order).collect(),
        Reply::Map(pairs) => pairs
            .iter()
            .filter(|(name, _)| *name != Reply::bulk("notes"))
            .map(|(name, value)| format!("{}: {}", in_order(name), in_order(value)))
            .collect(),
        other => return format!("{other:?}"),
    };
    items.sort();
    format!("[{}]", items.join(", "))
}

const FACTS: [&str; 8] =
    ["arity", "flags", "first key", "last key", "step", "categories", "tips", "key specifications"];

/// Facts that differ because a command takes arguments that Redis does not have.
const EXTENDED: [(&str, &str); 1] = [("readonly", "arity")];

#[test]
fn commands_have_the_facts_that_redis_tells_of_them() {
    let Some(theirs) = redis(&[]) else { return };
    let (ours, theirs) = (facts(&steelyard(&[])), facts(&theirs));
    let mut differing = Vec::new();
    for (name, ours) in &ours {
        let Some(theirs) = theirs.get(name) else { continue };
        for ((fact, ours), theirs) in FACTS.iter().zip(ours).zip(theirs) {
            if ours != theirs && !EXTENDED.contains(&(name.as_str(), *fact)) {
                differing.push(format!("{name}: {fact}\n  steelyard:    {ours}\n  redis-server: {theirs}"));
            }
        }
    }
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}

/// The commands of the groups that this project serves. A new command is added here.
#[test]
fn every_command_of_the_types_that_are_there_is_there() {
    let Some(theirs) = redis(&[]) else { return };
    let (ours, theirs) = (facts(&steelyard(&[])), facts(&theirs));
    // Redis's own tests use these.
    const TESTS: [&str; 2] = ["pfdebug", "pfselftest"];
    const BLOCKING: [&str; 8] =
        ["blpop", "brpop", "blmove", "blmpop", "brpoplpush", "bzpopmin", "bzpopmax", "bzmpop"];
    let told = |facts: &Vec<String>, group: &str| facts[5].contains(group);
    for (name, facts) in &theirs {
        let wanted = [
            "@string",
            "@hash",
            "@set\"",
            "@sortedset",
            "@list",
            "@stream",
            "@bitmap",
            "@hyperloglog",
            "@geo",
        ]
        .iter()
        .any(|group| told(facts, group));
        let later = TESTS.contains(&name.as_str()) || BLOCKING.contains(&name.as_str());
        assert!(!wanted || later || ours.contains_key(name), "{name} is missing");
    }
}

#[test]
fn the_count_is_the_length_of_the_table() {
    let server = steelyard(&[]);
    let mut connection = server.connect();
    let Reply::Array(commands) = connection.call(&["COMMAND"]).unwrap() else { panic!("no table") };
    assert_eq!(connection.call(&["COMMAND", "COUNT"]).unwrap(), Reply::Int(commands.len() as i64));
    // The list has the subcommands, too.
    let Reply::Array(names) = connection.call(&["COMMAND", "LIST"]).unwrap() else { panic!("no list") };
    let is_whole = |name: &&Reply| !matches!(name, Reply::Bulk(name) if name.contains(&b'|'));
    assert_eq!(names.iter().filter(is_whole).count(), commands.len());
    let Reply::Array(docs) = connection.call(&["COMMAND", "DOCS"]).unwrap() else { panic!("no docs") };
    assert_eq!(docs.len(), 2 * commands.len());
}
