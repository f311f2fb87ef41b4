use std::collections::BTreeMap;

use storage::{MemoryKeyspace, Txn};
use types::SlotRange;

use super::rules::SelectorRules;
use super::*;
use crate::entry::{apply, Builder};
use crate::exec::{execute, Limits, Outcome as Executed};
use crate::permission::{Access, KeyPattern};
use crate::transaction::{exec_args, lookup_in_log, Queued};

const PLAIN: ScriptCall = ScriptCall { by: ScriptBy::Body, is_readonly: false };

fn words(words: &[&str]) -> Vec<Bytes> {
    words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn code(body: &Bytes) -> Code {
    Code { body: body.clone(), function: None }
}

/// Returns the log's command for `EVAL body numkeys ...`.
fn eval_as(body: &str, rest: &[&str], has_slots: bool, rules: Option<Rules>) -> Vec<Bytes> {
    let mut args = words(&["EVAL", body]);
    args.extend(words(rest));
    let caller = Caller { has_slots, rules: rules.map(|rules| rules.encode()) };
    eval_args(PLAIN, &args, Ok(code(&args[1])), caller).unwrap()
}

fn evaluate(keyspace: &mut MemoryKeyspace, args: &[Bytes]) -> Reply {
    let mut builder = Builder::new();
    builder.push(0, false, args);
    let mut txn = Txn::begin(keyspace, 1).unwrap();
    let replies = apply(&builder.finish(1_700_000_000_123, 7), &mut txn, SlotRange::ALL).unwrap();
    let (writes, _) = txn.finish();
    keyspace.write(writes);
    replies.into_iter().next().flatten().unwrap()
}

fn run(keyspace: &mut MemoryKeyspace, body: &str, rest: &[&str]) -> Reply {
    evaluate(keyspace, &eval_as(body, rest, false, None))
}

fn error(reply: &Reply) -> &str {
    match reply {
        Reply::Error(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_script_sees_its_own_writes_and_those_before_an_error_remain() {
    let mut keyspace = MemoryKeyspace::default();
    let body = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('INCR', KEYS[1]) \
                return redis.call('GET', KEYS[1])";
    assert_eq!(run(&mut keyspace, body, &["1", "k", "41"]), Reply::bulk("42"));
    let fails = run(&mut keyspace, "redis.call('SET', 'k', 'x') return redis.call('INCR', 'k')", &["0"]);
    assert!(error(&fails).starts_with("ERR value is not an integer or out of range script: "));
    assert_eq!(run(&mut keyspace, "return redis.call('GET', 'k')", &["0"]), Reply::bulk("x"));
}

#[test]
fn the_time_in_a_script_is_that_of_the_entry() {
    let mut keyspace = MemoryKeyspace::default();
    let expected = Reply::Array(vec![Reply::bulk("1700000000"), Reply::bulk("123000")]);
    assert_eq!(run(&mut keyspace, "return redis.call('TIME')", &["0"]), expected);
}

#[test]
fn a_script_that_reaches_a_limit_has_no_effect() {
    let mut keyspace = MemoryKeyspace::default();
    run(&mut keyspace, "redis.call('SET', 'a', '1') redis.call('HSET', 'h', 'f', '1')", &["0"]);
    let before = keyspace.clone();
    let writes = "redis.call('SET', 'a', '2') redis.call('DEL', 'h') redis.call('SET', 'b', '3') ";
    for ending in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end",
        "local function f() return pcall(f) end while true do f() end",
    ] {
        let reply = run(&mut keyspace, &format!("{writes}{ending}"), &["0"]);
        assert!(error(&reply).ends_with("has had no effect"), "{ending}: {reply:?}");
        let rows = |keyspace: &MemoryKeyspace| {
            let mut rows = BTreeMap::new();
            let visit = &mut |row: &[u8], value: &[u8]| {
                if row[0] == b'd' {
                    rows.insert(row.to_vec(), value.to_vec());
                }
                std::ops::ControlFlow::Continue(())
            };
            storage::Reader::scan(keyspace, b"", &[0xff; 8], visit).unwrap();
            rows
        };
        assert_eq!(rows(&keyspace), rows(&before), "{ending}");
    }
    // Writes of commands before it in the entry remain.
    let mut builder = Builder::new();
    builder.push(0, false, &words(&["SET", "a", "5"]));
    builder.push(0, false, &eval_as(&format!("{writes} while true do end"), &["0"], false, None));
    builder.push(0, false, &words(&["GET", "a"]));
    let mut txn = Txn::begin(&keyspace, 1).unwrap();
    let replies = apply(&builder.finish(1, 1), &mut txn, SlotRange::ALL).unwrap();
    assert_eq!(replies[2], Some(Reply::bulk("5")));
}

#[test]
fn a_script_uses_keys_of_its_slot_only() {
    let mut keyspace = MemoryKeyspace::default();
    let script = |rest: &[&str]| eval_as("return redis.call('SET', ARGV[1], 'x')", rest, true, None);
    assert_eq!(evaluate(&mut keyspace, &script(&["1", "{a}1", "{a}2"])), Reply::OK);
    for rest in [&["1", "{a}1", "{b}2"][..], &["0", "{b}2"]] {
        let reply = evaluate(&mut keyspace, &script(rest));
        let text = "ERR Script attempted to access a non local key in a cluster node script: ";
        assert!(error(&reply).starts_with(text), "{reply:?}");
    }
}

#[test]
fn commands_that_wait_or_belong_to_a_connection_are_refused() {
    let mut keyspace = MemoryKeyspace::default();
    for command in [
        "'BLPOP', 'l', 0",
        "'MULTI'",
        "'EVAL', 'return 1', 0",
        "'WATCH', 'a'",
        "'AUTH', 'x'",
        "'CLIENT', 'ID'",
    ] {
        let reply = run(&mut keyspace, &format!("return redis.call({command})"), &["0"]);
        let text = "ERR This Redis command is not allowed from script script: ";
        assert!(error(&reply).starts_with(text), "{command}: {reply:?}");
    }
    for (command, text) in [
        ("'NOPE'", "ERR Unknown Redis command called from script script: "),
        ("'GET'", "ERR Wrong number of args calling Redis command from script script: "),
        ("'OBJECT', 'NOPE', 'k'", "ERR Unknown Redis command called from script script: "),
    ] {
        let reply = run(&mut keyspace, &format!("return redis.call({command})"), &["0"]);
        assert!(error(&reply).starts_with(text), "{command}: {reply:?}");
    }
}

#[test]
fn a_read_only_script_writes_nothing() {
    let keyspace = MemoryKeyspace::default();
    let call = ScriptCall { is_readonly: true, ..PLAIN };
    let args = words(&["EVAL_RO", "return redis.pcall('SET', KEYS[1], 'x')", "1", "k"]);
    let caller = || Caller { has_slots: false, rules: None };
    let eval = eval_args(call, &args, Ok(code(&args[1])), caller()).unwrap();
    let spec = lookup_in_log(&eval[0]).unwrap();
    assert!(spec.is_readonly() && !spec.is_write());
    let mut txn = Txn::read_only(&keyspace, 1);
    let mut exec = Exec {
        txn: &mut txn,
        now_ms: 1,
        seed: 1,
        db: 0,
        mode: Mode::Read,
        slots: SlotRange::ALL,
        limits: Limits::default(),
        resp3: false,
    };
    let Executed::Reply(reply) = execute(spec, &eval, &mut exec).unwrap() else { panic!() };
    assert_eq!(error(&reply), "ERR Write commands are not allowed from read-only scripts.");
    let writes = words(&["EVAL_RO", "#!lua\nreturn 1", "0"]);
    let refused = eval_args(call, &writes, Ok(code(&writes[1])), caller()).unwrap_err();
    assert_eq!(error(&refused), "ERR Can not execute a script with write flag using *_ro command.");
    let reads = words(&["EVAL", "#!lua flags=no-writes\nreturn 1", "0"]);
    let eval = eval_args(PLAIN, &reads, Ok(code(&reads[1])), caller()).unwrap();
    assert!(lookup_in_log(&eval[0]).unwrap().is_readonly());
    let cluster = words(&["EVAL", "#!lua flags=no-cluster\nreturn 1", "0"]);
    let refused = eval_args(PLAIN, &cluster, Ok(code(&cluster[1])), Caller { has_slots: true, rules: None });
    assert!(refused.is_err());
}

#[test]
fn the_commands_of_a_script_are_checked_by_the_users_rules() {
    let mut keyspace = MemoryKeyspace::default();
    let rules = Rules(vec![
        SelectorRules {
            commands: vec!["get".into(), "set".into()],
            keys: vec![
                KeyPattern { glob: b"own:*".to_vec(), access: Access::ALL },
                KeyPattern { glob: b"shown:*".to_vec(), access: Access { read: true, write: false } },
            ],
            ..SelectorRules::default()
        },
        SelectorRules {
            forbids: true,
            commands: vec!["del".into(), "object|encoding".into()],
            first_arguments: vec![("object|encoding".into(), "shown:x".into())],
            keys: vec![KeyPattern { glob: b"all:*".to_vec(), access: Access::ALL }],
            ..SelectorRules::default()
        },
    ]);
    assert_eq!(Rules::decode(&rules.encode()).as_ref(), Some(&rules));
    for end in 0..rules.encode().len() {
        let _ = Rules::decode(&rules.encode().slice(..end));
    }
    let mut reply = |command: &str| {
        let body = format!("return redis.pcall({command})");
        evaluate(&mut keyspace, &eval_as(&body, &["0"], false, Some(rules.clone())))
    };
    assert_eq!(reply("'SET', 'own:a', 'x'"), Reply::OK);
    assert_eq!(reply("'SET', 'all:a', 'x'"), Reply::OK);
    assert_eq!(reply("'INCR', 'all:n'"), Reply::Int(1));
    assert_eq!(reply("'GET', 'shown:a'"), Reply::Nil);
    for (command, text) in [
        ("'SET', 'shown:a', 'x'", "access at least one of the keys"),
        ("'SET', 'other', 'x'", "access at least one of the keys"),
        ("'DEL', 'all:a'", "run this command"),
        ("'INCR', 'own:n'", "access at least one of the keys"),
        ("'OBJECT', 'ENCODING', 'all:a'", "run this command"),
    ] {
        let reply = reply(command);
        let expected = format!("ERR The user executing the script can't {text}");
        assert!(error(&reply).starts_with(&expected), "{command}: {reply:?}");
    }
}

#[test]
fn a_transaction_may_have_scripts() {
    let mut keyspace = MemoryKeyspace::default();
    let script = eval_as("return redis.call('INCR', KEYS[1])", &["1", "n"], false, None);
    let refused = refusal_args(PLAIN, &words(&["EVAL", "x", "1", "n"]), &Reply::error(NO_SCRIPT));
    let queued =
        [script.clone(), words(&["INCR", "n"]), refused.clone(), script].map(|args| Queued { db: 0, args });
    let reply = evaluate(&mut keyspace, &exec_args(&[], &queued));
    let expected = [Reply::Int(1), Reply::Int(2), Reply::error(NO_SCRIPT), Reply::Int(3)];
    assert_eq!(reply, Reply::Array(expected.to_vec()));
    let (spec, sent) = sent_args(lookup_in_log(&refused[0]).unwrap(), &refused).unwrap();
    assert_eq!((spec.name, &sent[2..]), ("eval", &words(&["1", "n"])[..]));
}

#[test]
fn the_result_does_not_depend_on_scripts_before() {
    let body = "local t = {} for i = 1, 40 do t[{}] = i t[tostring({})] = i end \
                local s = {} for _, v in pairs(t) do s[#s + 1] = v end \
                s[#s + 1] = tostring(function() end) s[#s + 1] = math.random(1000000) \
                return redis.call('SET', 'k', cjson.encode(s)) and redis.call('GET', 'k')";
    let result = |before: &[&str]| {
        let mut keyspace = MemoryKeyspace::default();
        before.iter().for_each(|script| drop(run(&mut keyspace, script, &["0"])));
        run(&mut keyspace, body, &["0"])
    };
    let first = result(&[]);
    assert_eq!(
        result(&["cjson.encode_number_precision(3) math.randomseed(5)", "local t = {} return tostring(t)"]),
        first
    );
    assert_eq!(
        result(&["redis.setresp(3)", "return redis.call('NOPE')", "error({})", "while true do end"]),
        first
    );
    let garbage = "local t = {} for i = 1, 20000 do t[i] = {tostring(i) .. 'x'} end return #t";
    assert_eq!(result(&[garbage; 3]), first);
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| result(&[])).join().unwrap());
    assert_eq!(elsewhere, first);
}

const COUNTER: &str = "#!lua name=lib
redis.register_function('add', function(keys, args) return redis.call('INCRBY', keys[1], args[1]) end)
redis.register_function{function_name = 'get', callback = function(keys) return redis.call('GET', keys[1]) end,
    flags = {'no-writes'}}";

fn fcall(name: &str, flags: script::Flags, rest: &[&str], is_readonly: bool) -> Result<Vec<Bytes>, Reply> {
    let call = ScriptCall { by: ScriptBy::Function, is_readonly };
    let args = [words(&["FCALL", &name.to_uppercase()]), words(rest)].concat();
    let function = Some((Bytes::copy_from_slice(name.as_bytes()), flags));
    let code = Code { body: Bytes::from_static(COUNTER.as_bytes()), function };
    eval_args(call, &args, Ok(code), Caller { has_slots: false, rules: None })
}

#[test]
fn a_function_is_executed_from_the_code_in_the_entry() {
    let mut keyspace = MemoryKeyspace::default();
    let plain = script::Flags { are_stated: true, ..script::Flags::default() };
    let reads = script::Flags { no_writes: true, ..plain };
    let add = fcall("add", plain, &["1", "k", "5"], false).unwrap();
    assert_eq!(evaluate(&mut keyspace, &add), Reply::Int(5));
    assert_eq!(evaluate(&mut keyspace, &add), Reply::Int(10));
    let get = fcall("get", reads, &["1", "k"], false).unwrap();
    assert!(lookup_in_log(&get[0]).unwrap().is_readonly() && !lookup_in_log(&add[0]).unwrap().is_readonly());
    assert_eq!(evaluate(&mut keyspace, &get), Reply::bulk("10"));
    let (spec, sent) = sent_args(lookup_in_log(&get[0]).unwrap(), &get).unwrap();
    assert_eq!((spec.name, &sent[1..]), ("fcall", &words(&["get", "1", "k"])[..]));
    assert_eq!(
        error(&fcall("add", plain, &["0"], true).unwrap_err()),
        "ERR Can not execute a script with write flag using *_ro command."
    );
    assert_eq!(error(&fcall("add", plain, &["x"], false).unwrap_err()), BAD_NUMBER_OF_KEYS);
    let call = ScriptCall { by: ScriptBy::Function, is_readonly: true };
    let args = words(&["FCALL_RO", "nope", "x"]);
    let caller = Caller { has_slots: false, rules: None };
    let refused = eval_args(call, &args, Err(Reply::error(NO_FUNCTION)), caller).unwrap_err();
    let refused = refusal_args(call, &args, &refused);
    assert_eq!(error(&evaluate(&mut keyspace, &refused)), NO_FUNCTION);
    let (spec, sent) = sent_args(lookup_in_log(&refused[0]).unwrap(), &refused).unwrap();
    assert_eq!((spec.name, &sent[1..]), ("fcall_ro", &words(&["nope", "x"])[..]));
}

/// Executes a script, and returns its reply and what it has published.
fn published(keyspace: &MemoryKeyspace, args: &[Bytes]) -> (Reply, Vec<Publication>) {
    let mut builder = Builder::new();
    builder.push(0, false, args);
    let mut txn = Txn::begin(keyspace, 1).unwrap();
    let replies = apply(&builder.finish(1_700_000_000_123, 7), &mut txn, SlotRange::ALL).unwrap();
    let published = txn.take_publications().messages;
    assert!(txn.take_publications().messages.is_empty());
    (replies.into_iter().next().flatten().unwrap(), published)
}

#[test]
fn a_script_publishes_once_unless_it_is_undone() {
    let keyspace = MemoryKeyspace::default();
    let of = |body: &str| published(&keyspace, &eval_as(body, &["0"], false, None));
    let message = |is_shard, channel: &'static str, payload: &'static str| Publication {
        is_shard,
        channel: channel.into(),
        payload: payload.into(),
    };
    let two = "redis.call('SPUBLISH', 's', 'y') return redis.call('PUBLISH', 'c', 'x')";
    assert_eq!(of(two), (Reply::Int(0), vec![message(true, "s", "y"), message(false, "c", "x")]));
    let slow = "redis.call('PUBLISH', 'c', 'x') for i = 1, 2000000 do end return 1";
    assert_eq!(of(slow), (Reply::Int(1), vec![message(false, "c", "x")]));
    let (reply, none) = of("redis.call('PUBLISH', 'c', 'x') while true do end");
    assert!(error(&reply).ends_with("has had no effect") && none.is_empty());
    let (reply, many) =
        of("local s = string.rep('x', 1000000) for i = 1, 5 do redis.call('PUBLISH', 'c', s) end");
    assert!(error(&reply).starts_with("ERR a script publishes at most 4194304 bytes"), "{reply:?}");
    assert_eq!(many.len(), 4);
    let slots = |body: &str| published(&keyspace, &eval_as(body, &["1", "{a}"], true, None)).1.len();
    assert_eq!(slots("return redis.pcall('SPUBLISH', '{a}c', 'x')"), 1);
    assert_eq!(slots("return redis.pcall('SPUBLISH', '{b}c', 'x')"), 0);
}

#[test]
fn the_channels_of_a_script_are_checked_by_the_users_rules() {
    let keyspace = MemoryKeyspace::default();
    let selector = |channels: &[&str], all_channels| SelectorRules {
        forbids: true,
        all_keys: true,
        all_channels,
        channels: channels.iter().map(|glob| glob.as_bytes().to_vec()).collect(),
        ..SelectorRules::default()
    };
    let of = |rules: &Rules, channel: &str| {
        let body = format!("return redis.pcall('PUBLISH', '{channel}', 'x')");
        published(&keyspace, &eval_as(&body, &["0"], false, Some(rules.clone())))
    };
    let some = Rules(vec![selector(&["news.*", "exact"], false), selector(&[], false)]);
    assert_eq!(Rules::decode(&some.encode()).as_ref(), Some(&some));
    assert_eq!(of(&some, "news.1").1.len(), 1);
    assert_eq!(of(&some, "exact").1.len(), 1);
    let (reply, none) = of(&some, "other");
    let text = "ERR The user executing the script can't access at least one of the channels mentioned in the command arguments";
    assert_eq!((error(&reply), none.len()), (text, 0));
    assert_eq!(of(&Rules(vec![selector(&[], true)]), "other").1.len(), 1);
}
