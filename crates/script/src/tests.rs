use super::*;

/// Scripts that are compared with Redis (`steelyard`, `differential`).
const CORPUS: &str = include_str!("../../steelyard/tests/differential/scripts.txt");

/// Replies to a few commands, and records them.
#[derive(Default)]
struct Commands(Vec<Vec<Bytes>>);

impl Host for Commands {
    fn call(&mut self, args: Vec<Bytes>, _: bool) -> Called {
        let called = match &args[0][..] {
            b"ping" => Called::Reply(Reply::Simple("PONG".into())),
            b"large" => Called::Reply(Reply::bulk(vec![b'x'; 8 << 20])),
            b"end" => Called::Ended,
            b"get" => Called::Reply(Reply::Nil),
            _ => Called::Refused("Unknown Redis command called from script".into()),
        };
        self.0.push(args);
        called
    }

    fn may_call(&mut self, args: &[Bytes]) -> Option<bool> {
        (args[0] != "nope").then_some(true)
    }
}

fn script(body: &str) -> Script<'_> {
    Script { body: body.as_bytes(), function: None, keys: &[], args: &[], seed: 7 }
}

fn outcome(body: &str) -> Outcome {
    match run(&script(body), &mut Commands::default()) {
        Outcome::Again => run_exactly(&script(body), &mut Commands::default()),
        outcome => outcome,
    }
}

fn reply(body: &str) -> Reply {
    match outcome(body) {
        Outcome::Reply(reply) => reply,
        other => panic!("{body}: {other:?}"),
    }
}

fn error(body: &str) -> String {
    match reply(body) {
        Reply::Error(text) => text.into_owned(),
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn scripts_that_take_too_long_or_too_much_end() {
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() while true do end end while true do coroutine.resume(coroutine.create(f)) end",
        "while true do coroutine.wrap(function() end)() end",
        "local s = string.rep('a', 100000) return s:find(string.rep('.-', 50) .. 'b')",
        "local s = string.rep('a', 100000) while true do s:find(s .. 'b', 1, true) end",
        "local a, b = string.rep('x', 9999999), string.rep('x', 9999999) .. 'y' while true do local c = a < b end",
        "local s = string.rep(' ', 9999999) .. '1' while true do local c = s + 1 end",
        "local t = {} for i = 1, 100000 do t[i] = i end while true do table.insert(t, 1, 0) end",
        "local t = {} for i = 1, 100000 do t[i] = i end for i = 1, 99999 do t[i] = nil end while true do next(t) end",
        "local s = string.rep('x', 100000) while true do loadstring(s) end",
        "return load(function() return ' ' end)",
        "while true do string.rep('', 1000000000) end",
        "return string.rep('', 2147483647)",
        "while true do redis.call('ping') end",
        "while true do pcall(redis.call, 'nope') end",
        "local t = {} for i = 1, 7000 do t[i] = i end while true do local a = {unpack(t)} end",
        "local function f(...) return f(...) end f(unpack({1, 2, 3}))",
        "cjson.encode_sparse_array(true, 0) while true do pcall(cjson.encode, {[2147483647] = 1}) end",
        "while true do cjson.decode('[[[[[[[[[[]]]]]]]]]]') end",
        "local p = '[' .. string.rep('a', 100000) .. ']*b' while true do string.find(string.rep('c', 1000), p) end",
        "table.sort({1, 2, 3}, function() while true do end end)",
        "return setmetatable({}, {__index = function(t, k) return t[k .. 'x'] end}).y",
    ] {
        let ended = matches!(outcome(body), Outcome::OutOfSteps | Outcome::OutOfMemory)
            || matches!(outcome(body), Outcome::Reply(Reply::Error(_)));
        assert!(ended, "{body}");
    }
}

#[test]
fn scripts_that_take_too_much_memory_end() {
    for body in [
        "return #string.rep('x', 1000000000)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} while true do t[#t + 1] = redis.call('large') end",
        "local s = string.rep('x', 4000000) local f = loadstring('local s = ... return ' .. string.rep('s..', 150) .. 's') return #f(s)",
        "local t = {} for i = 1, 1000 do t[i] = string.rep('x', 1000000) end return table.concat(t)",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
        "local t = {'x'} for i = 1, 40 do t = {t, t} end return cjson.encode(t)",
        "return #string.format(string.rep('%s', 200), unpack((function() local t = {} for i = 1, 200 do t[i] = string.rep('x', 1000000) end return t end)()))",
        "return string.gsub(string.rep('x', 100000), '.', string.rep('y', 100000))",
    ] {
        let outcome = outcome(body);
        let is_refused = matches!(&outcome, Outcome::OutOfMemory | Outcome::OutOfSteps)
            || matches!(&outcome, Outcome::Reply(Reply::Error(text))
                if text.contains("stack overflow") || text.contains("not enough memory"));
        assert!(is_refused, "{body}: {outcome:?}");
    }
}

#[test]
fn deep_recursion_is_an_error() {
    for body in [
        "local function f() return 1 + f() end return f()",
        "local function f() pcall(f) end f() error('end')",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "local t = {} for i = 1, 5000 do t = {t} end return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 100000))",
        "return cjson.decode(string.rep('{\"a\":', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        "return cmsgpack.unpack(string.rep('\\129\\1', 100000))",
        "cjson.decode_max_depth(1000000) return cjson.decode(string.rep('[', 100000))",
        "return string.find(string.rep('a', 100000), string.rep('a?', 100000) .. 'b')",
        "return string.find('x', string.rep('(', 100000))",
        "return loadstring(string.rep('(', 100000))()",
        "return loadstring('return ' .. string.rep('{', 100000))()",
        "return string.gsub('x', '.', function(c) return string.gsub(c, '.', function() error('x') end) end)",
    ] {
        let outcome = outcome(body);
        assert!(
            matches!(outcome, Outcome::Reply(Reply::Error(_)) | Outcome::OutOfSteps),
            "{body}: {outcome:?}"
        );
    }
    let mut nested = &reply("local t = {} for i = 1, 5000 do t = {t} end return t");
    let mut depth = 0;
    while let Reply::Array(items) = nested {
        (nested, depth) = (&items[0], depth + 1);
    }
    assert_eq!((nested, depth), (&Reply::error("ERR reached lua stack limit"), REPLY_DEPTH_MAX + 1));
}

#[test]
fn scripts_cannot_leave_anything_or_leave_the_sandbox() {
    for body in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "string.rep = nil",
        "getmetatable('').__index = {}",
        "getmetatable('').__add = function() end",
        "getmetatable(_G).__index = nil",
        "rawset(getmetatable(_G), '__index', nil)",
        "table.insert(redis, 1)",
        "table.sort({1}, nil) redis.call = nil",
        "cjson.encode = nil",
        "math.random = nil",
        "coroutine.wrap = nil",
        "bit.x = 1",
        "KEYS = {}",
        "os.exit()",
        "io.open('/etc/passwd')",
        "require('os')",
        "debug.getinfo(1)",
        "control('fuel', 1)",
        "package.loadlib('x', 'y')",
        "dofile('/etc/passwd')",
        "loadfile('/etc/passwd')()",
        "print(1)",
        "newproxy(true)",
        "setfenv(1, {})",
        "getfenv()",
        "loadstring(string.dump(function() return 1 end))()",
        "loadstring('\\27Lua')()",
        "load(coroutine.wrap(function() coroutine.yield('\\27Lua') end))()",
    ] {
        error(body);
    }
    assert_eq!(
        reply("local r = {} for k in pairs(getmetatable('')) do r[#r + 1] = k end return r"),
        reply("return {'__index'}")
    );
    assert_eq!(
        reply("redis.setresp(3) cjson.encode_number_precision(3) math.randomseed(9) return 1"),
        Reply::Int(1)
    );
    assert_eq!(reply("return cjson.encode(3.14159)"), Reply::bulk("3.14159"));
    assert_eq!(reply("return true"), Reply::Int(1));
}

#[test]
fn a_used_state_gives_the_result_of_a_new_one() {
    let order = "local t = {} for i = 1, 50 do t[{}] = i t[function() end] = -i t['k' .. i] = i end \
                 local s = {} for k, v in pairs(t) do s[#s + 1] = type(k) .. v end \
                 s[#s + 1] = tostring({}) .. tostring(pairs) .. math.random(1000) return table.concat(s, ' ')";
    let called =
        "local t = {} for i = 1, 20 do t[redis.pcall('ping')] = i t[redis.error_reply('a b')] = -i end \
                  local s = {} for k, v in pairs(t) do s[#s + 1] = tostring(k) .. v end \
                  s[#s + 1] = tostring({}) return table.concat(s, ' ')";
    let bodies: Vec<&str> = CORPUS.lines().chain([order, called]).collect();
    let mut failed = 0;
    for (at, body) in bodies.iter().enumerate() {
        let exactly = run_exactly(&script(body), &mut Commands::default());
        // Another script each time has used the state before.
        for before in [at * 7 % bodies.len(), at * 31 % bodies.len()] {
            let _ = run(&script(bodies[before]), &mut Commands::default());
            let mut commands = Commands::default();
            match run(&script(body), &mut commands) {
                Outcome::Again => {}
                outcome => assert_eq!(outcome, exactly, "{body} after {}", bodies[before]),
            }
        }
        failed += usize::from(matches!(exactly, Outcome::Reply(Reply::Error(_))));
    }
    assert!(failed > 100 && bodies.len() - failed > 200, "{failed} of {} fail", bodies.len());
    let other_seed = Script { seed: 8, ..script(order) };
    assert_ne!(run(&other_seed, &mut Commands::default()), run(&script(order), &mut Commands::default()));
}

#[test]
fn a_script_that_its_host_ends_calls_nothing_more() {
    for body in [
        "redis.call('end') redis.call('ping')",
        "while true do pcall(redis.call, 'end') redis.pcall('ping') end",
        "pcall(function() redis.pcall('end') end) return redis.call('ping')",
        "coroutine.wrap(function() redis.call('end') end)() redis.call('ping')",
        "xpcall(function() redis.call('end') end, function() redis.call('ping') end)",
    ] {
        let mut commands = Commands::default();
        assert_eq!(run(&script(body), &mut commands), Outcome::Ended, "{body}");
        assert_eq!(commands.0.len(), 1, "{body}: {:?}", commands.0);
        assert_eq!(reply("return redis.call('get', 'x')"), Reply::Nil);
    }
}

#[test]
fn arguments_reach_commands_as_redis_writes_them() {
    let (keys, args) = ([Bytes::from_static(b"k\0\xff")], [Bytes::from_static(b"v")]);
    let body = b"redis.call('get', KEYS[1], ARGV[1], #KEYS, 1.5, 10, 2^53, -0, 1e100, 1e-20)";
    let mut commands = Commands::default();
    run(&Script { body, function: None, keys: &keys, args: &args, seed: 1 }, &mut commands);
    let words: [&[u8]; 10] = [
        b"get",
        b"k\0\xff",
        b"v",
        b"1",
        b"1.5",
        b"10",
        b"9007199254740992",
        b"-0",
        b"1e+100",
        b"9.9999999999999995e-21",
    ];
    assert_eq!(commands.0[0], words);
}

#[test]
fn a_script_is_known_by_its_digest() {
    assert_eq!(digest(b"return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    assert!(compile(b"return 1").is_ok());
    let Err(Reply::Error(text)) = compile(b"return (") else { panic!() };
    assert!(text.starts_with("ERR Error compiling script (new function): user_script:1: unexpected symbol"));
    assert!(compile(b"\x1bLua").is_err());
}

#[test]
fn limits_are_reached_in_the_same_place() {
    // The number of rounds that fit is the same in every attempt.
    let body = "local n = 0 while true do n = n + 1 if n % 1000 == 0 then redis.call('get', n) end end";
    let rounds = || {
        let mut commands = Commands::default();
        assert_eq!(run_exactly(&script(body), &mut commands), Outcome::OutOfSteps);
        commands.0.last().cloned()
    };
    let first = rounds();
    let _ = outcome("local t = {} for i = 1, 1000 do t[i] = tostring(i) end return 1");
    assert_eq!(rounds(), first);
    let elsewhere = std::thread::scope(|scope| scope.spawn(rounds).join().unwrap());
    assert_eq!(elsewhere, first);
}

const LIBRARY: &str = "#!lua name=lib
local calls = {}
redis.register_function('f', function(keys, args)
    calls[{}] = #calls calls[#calls + 1] = args[1]
    local names = {}
    for key, value in pairs(calls) do names[#names + 1] = tostring(key) .. tostring(value) end
    names[#names + 1] = math.random(1000000)
    return {keys[1], names, #calls}
end)
redis.register_function{function_name = 'g', callback = function() while true do end end, flags = {'no-writes'}}
redis.register_function('h', function() return redis.call('ping') end)
";

fn call_of(function: &str) -> Outcome {
    let (keys, args) = ([Bytes::from("k")], [Bytes::from("v")]);
    let script =
        Script { body: LIBRARY.as_bytes(), function: Some(function), keys: &keys, args: &args, seed: 7 };
    match run(&script, &mut Commands::default()) {
        Outcome::Again => run_exactly(&script, &mut Commands::default()),
        outcome => {
            // A new state gives the same.
            assert_eq!(run_exactly(&script, &mut Commands::default()), outcome);
            outcome
        }
    }
}

#[test]
fn a_function_finds_what_its_library_has_computed_and_nothing_that_calls_have_left() {
    let first = call_of("f");
    let Outcome::Reply(Reply::Array(parts)) = &first else { panic!("{first:?}") };
    assert_eq!((&parts[0], &parts[2]), (&Reply::bulk("k"), &Reply::Int(1)));
    for before in CORPUS.lines().take(50) {
        outcome(before);
    }
    assert_eq!(call_of("h"), Outcome::Reply(Reply::Simple("PONG".into())));
    assert_eq!(call_of("g"), Outcome::OutOfSteps);
    assert_eq!(call_of("f"), first);
    assert_eq!(std::thread::scope(|scope| scope.spawn(|| call_of("f")).join().unwrap()), first);
    assert_eq!(call_of("F"), Outcome::Reply(Reply::error("ERR Function not found")));
    // A script after a function has its own globals.
    assert_eq!(reply("return type(redis.breakpoint) .. #KEYS"), Reply::bulk("function0"));
}

#[test]
fn objects_of_a_library_and_of_its_function_have_different_numbers() {
    let body = b"#!lua name=l\nlocal a = {} redis.register_function('f', function() \
                 return {tostring(a), tostring({}), tostring({})} end)";
    let script = Script { body, function: Some("f"), keys: &[], args: &[], seed: 7 };
    let Outcome::Reply(Reply::Array(names)) = run(&script, &mut Commands::default()) else { panic!() };
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    assert_eq!(run_exactly(&script, &mut Commands::default()), Outcome::Reply(Reply::Array(names)));
}

#[test]
fn a_library_is_loaded_within_limits_and_names_its_functions() {
    let functions = load_library(LIBRARY.as_bytes()).unwrap();
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["f", "g", "h"]);
    assert_eq!(functions[1].flags.names(), ["no-writes"]);
    let error = |code: &str| load_library(format!("#!lua name=l\n{code}").as_bytes()).unwrap_err();
    let many =
        "local d = 'x' for i = 1, 20 do d = d .. d end for i = 1, 96 do redis.register_function{function_name='f'..i, \
                callback=function() end, description=d} end";
    let text = error(many);
    assert!(text.contains("take too much memory"), "{text}");
    assert_eq!(
        error("local function f() return f() end f()"),
        "Error registering functions: ERR FUNCTION LOAD timeout"
    );
    let endless = "local s = 'x' while true do s = s .. s end";
    assert_eq!(error(endless), "Error registering functions: ERR not enough memory");
    assert_eq!(error("return 1"), "No functions registered");
    assert!(error("x(").starts_with("Error compiling function: user_function:2:"));
}
