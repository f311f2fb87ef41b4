//! Libraries of functions: every reply is that of Redis, and each server restores the other's
//! serialization.

use resp::Reply;

use crate::connection::Connection;
use crate::servers::{redis, steelyard};

/// Codes of libraries behind the line `#!lua name=l`.
const CODES: &str = r#"
x(
x=1
return foo
return math.random()
redis.call('get', 'a')
redis.setresp(3)
redis.log(redis.LOG_NOTICE, 'x')
redis.log(9, 'a')
error('boom')
local x = nil x()
local function r() return 1 + r() end r()
redis.register_function()
redis.register_function(1)
redis.register_function('f')
redis.register_function(1, 2, 3)
redis.register_function(1, 2)
redis.register_function({}, function() end)
redis.register_function(nil, function() end)
redis.register_function(1.5, function() end)
redis.register_function('f-g', function() end)
redis.register_function('', function() end)
redis.register_function('f', function() end) redis.register_function('f', function() end)
redis.register_function('f', function() end) redis.register_function('F', function() end)
redis.register_function('f', function() end) local x = y
redis.register_function{}
redis.register_function{1}
redis.register_function{[{}] = 1}
redis.register_function{function_name = 'f'}
redis.register_function{callback = function() end}
redis.register_function{function_name = 1, callback = function() end}
redis.register_function{function_name = true, callback = function() end}
redis.register_function{function_name = 'f', callback = 1}
redis.register_function{function_name = 'f', callback = function() end, description = 1}
redis.register_function{function_name = 'f', callback = function() end, description = 'a\0b\n'}
redis.register_function{function_name = 'f', callback = function() end, description = true}
redis.register_function{function_name = 'f', callback = function() end, flags = 1}
redis.register_function{function_name = 'f', callback = function() end, flags = {'x'}}
redis.register_function{function_name = 'f', callback = function() end, flags = {1}}
redis.register_function{function_name = 'f', callback = function() end, flags = {{}}}
redis.register_function{function_name = 'f', callback = function() end, flags = {a = 'no-writes'}}
redis.register_function{function_name = 'f', callback = function() end, flags = {'NO-WRITES', nil, 'x'}}
redis.register_function{function_name = 'f', callback = function() end, foo = 1}
redis.register_function{function_name = 'f', callback = redis.log, flags = {'allow-oom', 'no-cluster'}}
redis.REDIS_VERSION = 1
redis.x = 1
return _G
local a = redis.REDIS_VERSION_NUM + redis.LOG_DEBUG redis.register_function('f' .. a, function() end)
local s = ('a'):rep(3) redis.register_function(s, function() end)
local s = ('a'):foo()
"#;

const WHOLE_CODES: [&str; 22] = [
    "return 1",
    "#!lua",
    "#!lua\n",
    "#!lua name=\n",
    "#!lua name=a-b\n",
    "#!js name=a\n",
    "#!js name=a-b\n",
    "#!lua name=a name=b\n",
    "#!lua name=a foo=b\n",
    "#!lua foo\n",
    "#! name=a\n",
    "#!\n",
    "#!lua name=\"a b\"\n",
    "#!lua name=\"a\nreturn 1",
    "#!lua \"na\"me=l\n",
    " #!lua name=l\n",
    "#!lua name=l\0\nreturn 1",
    "#!lua name=l\n\u{1b}Lua",
    "#!LUA NAME=l\nredis.register_function('f', function() end)",
    "#!lua\tname='l'\t\r\nredis.register_function('f', function() end)",
    "#!\"lua\" name=\"\\x6c\"\nredis.register_function('f', function() end)",
    "#!lua name=l \"name=b\"\nreturn 1",
];

const LIBRARY: &str = r#"#!lua name=lib
local loaded = {n = 0}
local function count() loaded.n = loaded.n + 1 return loaded.n end
redis.register_function('count', function() return count() + count() end)
redis.register_function('err', function() error('x') end)
redis.register_function('err_table', function() error({err = 'A b'}) end)
redis.register_function('reply_err', function() return {err = 'A b'} end)
redis.register_function('pcalled', function() return redis.pcall('nope') end)
redis.register_function('called', function() return redis.call('nope') end)
redis.register_function('global', function() return foo end)
redis.register_function('set_global', function() foo = 1 end)
redis.register_function('given', function(keys, args) return {keys, args, #keys, #args} end)
redis.register_function('no_keys', function() return KEYS end)
redis.register_function('arguments', function(...) return select('#', ...) end)
redis.register_function('register', function() redis.register_function('a', function() end) end)
local kept = redis.register_function
redis.register_function('kept', function() return kept('a', function() end) end)
redis.register_function('no_field', function() return redis.foo end)
redis.register_function('metatable', function() getmetatable(_G).__index = 1 end)
redis.register_function('metatable_type', function() return type(getmetatable(_G)) end)
redis.register_function('loaded', function() return loadstring('return type(redis) .. type(string)')() end)
redis.register_function('loaded_keys', function() return loadstring('return type(KEYS)')() end)
redis.register_function('set_g', function() _G.a = 1 end)
redis.register_function('set_redis', function() redis.a = 1 end)
redis.register_function('json', function() return cjson.encode({1}) end)
redis.register_function('fcall', function() return redis.call('fcall', 'count', 0) end)
redis.register_function('list', function() return redis.call('function', 'list') end)
redis.register_function('eval', function() return redis.call('eval', 'return 1', 0) end)
redis.register_function('resp3', function() redis.setresp(3) return {double = 1.5} end)
redis.register_function('two', function() return 1, 2 end)
redis.register_function('deep', function() local function f() return 1 + f() end return f() end)
redis.register_function('publish', function() return redis.call('publish', 'a', 'b') end)
redis.register_function('publish_one', function() return redis.call('publish', 'a') end)
redis.register_function('names', function()
  local names = {}
  for name in pairs(redis) do names[#names + 1] = name end
  table.sort(names)
  return names
end)
redis.register_function('globals', function()
  local names = {}
  for name in pairs(_G) do names[#names + 1] = name end
  table.sort(names)
  return names
end)
redis.register_function('write', function(keys, args) return redis.call('incrby', keys[1], args[1]) end)
redis.register_function{
  function_name = 'write_no',
  callback = function(keys) return redis.pcall('incr', keys[1]) end,
  flags = {'no-writes'}
}
redis.register_function{
  function_name = 'publish_no',
  callback = function() return redis.call('publish', 'a', 'b') end,
  flags = {'no-writes'}
}
redis.register_function{
  function_name = 'read',
  callback = function(keys) return redis.call('get', keys[1]) end,
  flags = {'no-writes', 'allow-stale'},
  description = 'reads'
}
"#;

/// Connections to both servers.
struct Pair {
    ours: Connection,
    theirs: Connection,
    differing: Vec<String>,
}

impl Pair {
    fn same<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Reply {
        let subcommand = words.get(1).map_or(&b""[..], |word| word.as_ref());
        let ours = sorted(subcommand, self.ours.call(words).unwrap());
        let theirs = sorted(subcommand, self.theirs.call(words).unwrap());
        if ours != theirs {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            self.differing.push(format!("{words:?}\n  steelyard:    {ours:?}\n  redis-server: {theirs:?}"));
        }
        ours
    }

    fn line(&mut self, line: &str) -> Reply {
        self.same(&line.split(' ').collect::<Vec<_>>())
    }
}

/// Sorts what `FUNCTION LIST` lists.
fn sorted(subcommand: &[u8], reply: Reply) -> Reply {
    let of_array = |items: Vec<Reply>| {
        let mut items: Vec<Reply> = items.into_iter().map(|item| sorted(b"list", item)).collect();
        // Pairs of RESP2 begin with a name, lists with an array.
        if !matches!(items.first(), Some(Reply::Bulk(_))) {
            items.sort_by_key(|item| format!("{item:?}"));
        }
        items
    };
    match reply {
        Reply::Array(items) if subcommand.eq_ignore_ascii_case(b"list") => Reply::Array(of_array(items)),
        Reply::Set(items) if subcommand.eq_ignore_ascii_case(b"list") => Reply::Set(of_array(items)),
        Reply::Map(pairs) if subcommand.eq_ignore_ascii_case(b"list") => {
            Reply::Map(pairs.into_iter().map(|(name, value)| (name, sorted(b"list", value))).collect())
        }
        other => other,
    }
}

#[test]
fn functions_are_answered_as_redis_answers_them() {
    let Some(redis) = redis(&[]) else { return };
    let steelyard = steelyard(&[]);
    for protocol in ["2", "3"] {
        let mut pair = Pair { ours: steelyard.connect(), theirs: redis.connect(), differing: Vec::new() };
        for connection in [&mut pair.ours, &mut pair.theirs] {
            connection.call(&["HELLO", protocol]).unwrap();
        }
        let behind_name = CODES.lines().filter(|line| !line.is_empty());
        let codes = behind_name.map(|code| format!("#!lua name=l\n{code}"));
        for code in codes.chain(WHOLE_CODES.map(str::to_owned)) {
            if let Reply::Bulk(_) = pair.same(&["FUNCTION", "LOAD", &code]) {
                pair.line("FUNCTION LIST WITHCODE");
                pair.line("FUNCTION FLUSH SYNC");
            }
        }
        assert_eq!(pair.same(&["FUNCTION", "LOAD", LIBRARY]), Reply::bulk("lib"));
        pair.same(&["FUNCTION", "LOAD", LIBRARY]);
        pair.same(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
        pair.same(&["FUNCTION", "LOAD", "FOO", LIBRARY]);
        pair.same(&["FUNCTION", "LOAD", "#!lua name=b\nredis.register_function('READ', function() end)"]);
        for name in LIBRARY.split("register_function").skip(1).filter_map(|part| part.split('\'').nth(1)) {
            for command in ["FCALL", "FCALL_RO"] {
                if name != "count" || command == "FCALL_RO" {
                    pair.same(&[command, name, "1", "key", "3"]);
                }
            }
        }
        for line in [
            "FCALL nope 0",
            "FCALL nope x",
            "FCALL read x",
            "FCALL read -1",
            "FCALL read 1",
            "FCALL READ 1 key",
            "FCALL read",
            "FCALL",
            "FCALL_RO read 1 key",
            "FUNCTION",
            "FUNCTION NOPE",
            "FUNCTION LOAD",
            "FUNCTION DELETE",
            "FUNCTION DELETE nope",
            "FUNCTION DELETE LIB",
            "FUNCTION DELETE a b",
            "FUNCTION FLUSH X",
            "FUNCTION FLUSH SYNC X",
            "FUNCTION LIST X",
            "FUNCTION LIST LIBRARYNAME",
            "FUNCTION LIST WITHCODE WITHCODE",
            "FUNCTION LIST LIBRARYNAME a LIBRARYNAME b",
            "FUNCTION LIST libraryname LIB",
            "FUNCTION LIST withcode LIBRARYNAME [kl]ib",
            "FUNCTION STATS",
            "FUNCTION KILL",
            "FUNCTION KILL x",
            "FUNCTION DUMP x",
            "FUNCTION RESTORE",
            "FUNCTION RESTORE x",
            "FUNCTION RESTORE x FOO",
            "FUNCTION RESTORE x FLUSH x",
            "FUNCTION RESTORE 0123456789abcdef",
            "MULTI",
            "FCALL write 1 key 5",
            "FCALL read 1 key",
            "FCALL nope 0",
            "FCALL write x",
            "EXEC",
            "MULTI",
            "FUNCTION STATS",
            "FUNCTION DELETE lib",
            "EXEC",
            "FCALL read 1 key",
            "FUNCTION LIST",
            "COMMAND GETKEYS FCALL f 2 a b c",
            "COMMAND GETKEYS FCALL_RO f 0",
        ] {
            pair.line(line);
        }
        assert!(pair.differing.is_empty(), "RESP{protocol}\n{}", pair.differing.join("\n"));
    }
}

#[test]
fn each_server_restores_the_dump_of_the_other() {
    let Some(redis) = redis(&[]) else { return };
    let steelyard = steelyard(&[]);
    let (mut ours, mut theirs) = (steelyard.connect(), redis.connect());
    let code = |name: &str, length: usize| {
        format!(
            "#!lua name={name}\nredis.register_function('{name}_f', function() return '{name}' end)\n--{}",
            "x".repeat(length)
        )
    };
    let mut call = |words: &[&[u8]]| {
        let replies = (ours.call(words).unwrap(), theirs.call(words).unwrap());
        (sorted(words[1], replies.0), sorted(words[1], replies.1))
    };
    // Redis compresses them, with lengths of all forms.
    for (name, length) in [("a", 0), ("b", 100), ("c", 20_000), ("d", 200_000)] {
        let replies = call(&[b"FUNCTION", b"LOAD", code(name, length).as_bytes()]);
        assert_eq!(replies, (Reply::bulk(name.to_owned()), Reply::bulk(name.to_owned())));
    }
    let (Reply::Bulk(dumped), Reply::Bulk(theirs_dumped)) = call(&[b"FUNCTION", b"DUMP"]) else { panic!() };
    assert!(theirs_dumped.len() < dumped.len() / 10);
    let (listed, _) = call(&[b"FUNCTION", b"LIST", b"WITHCODE"]);
    for dump in [dumped, theirs_dumped] {
        for policy in [&b"APPEND"[..], b"REPLACE", b"flush"] {
            let (ours, theirs) = call(&[b"FUNCTION", b"RESTORE", &dump, policy]);
            // The first of Redis's libraries is a random one.
            let start = |reply: &Reply| format!("{reply:?}").split("Library").next().map(str::to_owned);
            assert_eq!(start(&ours), start(&theirs), "{ours:?} {theirs:?}");
            assert_eq!(ours == Reply::OK, policy != b"APPEND", "{ours:?}");
        }
        assert_eq!(call(&[b"FUNCTION", b"FLUSH"]), (Reply::OK, Reply::OK));
        let other = b"#!lua name=e\nredis.register_function('A_F', function() end)";
        call(&[b"FUNCTION", b"LOAD", other]);
        let (ours, theirs) = call(&[b"FUNCTION", b"RESTORE", &dump]);
        assert_eq!(ours, theirs);
        assert!(matches!(ours, Reply::Error(_)));
        assert_eq!(call(&[b"FUNCTION", b"RESTORE", &dump, b"FLUSH"]), (Reply::OK, Reply::OK));
        assert_eq!(call(&[b"FUNCTION", b"LIST", b"WITHCODE"]), (listed.clone(), listed.clone()));
        assert_eq!(call(&[b"FCALL", b"d_f", b"0"]), (Reply::bulk("d"), Reply::bulk("d")));
    }
}
