//! What redis-rs gets from a server, a line for each answer, so that two servers can be compared.
//!
//!     redis-rs-scenario plain PORT
//!     redis-rs-scenario cluster PORT
//!
//! The lines hold nothing that may differ between two runs.

use std::sync::mpsc::{channel, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::caching::CacheConfig;
use redis::cluster::{ClusterClientBuilder, ClusterConnection};
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{
    cmd, pipe, Client, Commands, Connection, ConnectionLike, IntoConnectionInfo, ProtocolVersion, PushInfo,
    RedisError, RedisResult, Script, Value,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// One slot for all keys, as a cluster wants it.
fn key(name: &str) -> String {
    format!("{{rs}}{name}")
}

fn stable(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(stable).collect::<Vec<_>>().join(", ");
    match value {
        Value::BulkString(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Value::Array(items) => format!("[{}]", list(items)),
        Value::Set(items) => {
            let mut items: Vec<String> = items.iter().map(stable).collect();
            items.sort();
            format!("set[{}]", items.join(", "))
        }
        Value::Map(pairs) => {
            let mut pairs: Vec<String> =
                pairs.iter().map(|(name, item)| format!("{}: {}", stable(name), stable(item))).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Push { kind, data } => format!("push {kind:?} [{}]", list(data)),
        other => format!("{other:?}"),
    }
}

fn show(step: &str, answer: impl std::fmt::Debug) {
    println!("{step} | {answer:?}");
}

fn show_value(step: &str, answer: RedisResult<Value>) {
    match answer {
        Ok(value) => println!("{step} | {}", stable(&value)),
        Err(error) => println!("{step} | error: {}", words(&error)),
    }
}

fn words(error: &RedisError) -> String {
    format!("{:?} {:?} {:?}", error.kind(), error.code(), error.detail())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Commands of one line, for which the client has no name or one that is no better.
fn call(connection: &mut impl ConnectionLike, line: &str) -> RedisResult<Value> {
    let mut words = line.split(' ').map(|word| match word.strip_prefix('@') {
        Some(name) => key(name),
        None => word.to_string(),
    });
    let mut command = cmd(&words.next().unwrap_or_default());
    words.for_each(|word| {
        command.arg(word);
    });
    command.query(connection)
}

fn show_call(connection: &mut impl ConnectionLike, line: &str) {
    let answer = call(connection, line);
    show_value(line, answer);
}

#[derive(Clone)]
struct Scenario {
    is_plain: bool,
    protocol: ProtocolVersion,
    port: u16,
    /// The port of the server that has the keys.
    keys_port: u16,
}

impl Scenario {
    fn client(&self, port: u16) -> Client {
        let info = ("127.0.0.1", port).into_connection_info().unwrap();
        let settings = info.redis_settings().clone().set_protocol(self.protocol);
        Client::open(info.set_redis_settings(settings)).unwrap()
    }

    fn cluster(&self) -> ClusterConnection {
        let node = format!("redis://127.0.0.1:{}", self.port);
        ClusterClientBuilder::new([node])
            .use_protocol(self.protocol)
            .build()
            .unwrap()
            .get_connection()
            .unwrap()
    }

    /// Connects to the server that has the keys, for commands that name no key.
    fn server(&self) -> Connection {
        self.client(self.keys_port).get_connection().unwrap()
    }

    fn blocked(&self, server: &mut Connection) -> u64 {
        let text: String = cmd("INFO").arg("clients").query(server).unwrap();
        let line = text.lines().find(|line| line.starts_with("blocked_clients:")).unwrap();
        line["blocked_clients:".len()..].parse().unwrap()
    }
}

fn values(client: &mut impl ConnectionLike) {
    client.hset_multiple::<_, _, _, ()>(key("hash"), &[("a", "1"), ("b", "two")]).unwrap();
    let hash: std::collections::BTreeMap<String, String> = client.hgetall(key("hash")).unwrap();
    show("hash", hash);
    client.sadd::<_, _, ()>(key("set"), &["x", "y", "z"]).unwrap();
    let members: std::collections::BTreeSet<String> = client.smembers(key("set")).unwrap();
    show("set", members);
    client.zadd_multiple::<_, _, _, ()>(key("zset"), &[(1.0, "one"), (2.5, "two")]).unwrap();
    show("zset", client.zrange_withscores::<_, Vec<(String, f64)>>(key("zset"), 0, -1).unwrap());
    for line in [
        "RPUSH @list 3 1 2",
        "SORT @list DESC",
        "GEOADD @geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
        "GEODIST @geo Palermo Catania km",
        "BITFIELD @bits SET u8 0 200 INCRBY u8 0 100",
        "LPUSH @hash 1",
        "PFADD @hll a b c",
        "PFCOUNT @hll",
        "ZSCORE @zset two",
        "ZRANGE @zset 0 -1 WITHSCORES",
        "ZPOPMIN @zset",
        "INCRBYFLOAT @float 2.5",
        "OBJECT ENCODING @hash",
        "GETEX @float EX 100",
        "COPY @list @list2",
        "LMPOP 2 @none @list2 LEFT COUNT 2",
    ] {
        show_call(client, line);
    }
}

/// Pipelines through a connection to one server.
fn pipelines(scenario: &Scenario) {
    let mut server = scenario.server();
    let mut pipeline = pipe();
    for n in 0..100 {
        pipeline.set(key(&format!("p{n}")), n).ignore().incr(key(&format!("p{n}")), 2);
    }
    let sums: Vec<i64> = pipeline.query(&mut server).unwrap();
    show("pipeline", sums.iter().sum::<i64>());
    let mut broken = pipe();
    broken.incr(key("p0"), 1).lpush(key("p0"), 1).incr(key("p0"), 1);
    let error = broken.query::<Value>(&mut server).unwrap_err();
    show("pipeline with an error", words(&error));
    show_call(&mut server, "GET @p0");
}

/// Pipelines whose commands the client sends to the servers that have the keys.
fn cluster_pipelines(client: &mut ClusterConnection) {
    let mut pipeline = redis::cluster::cluster_pipe();
    for n in 0..100 {
        pipeline.set(format!("all{n}"), n).ignore().incr(format!("all{n}"), 2);
    }
    let sums: Vec<i64> = pipeline.query(client).unwrap();
    show("pipeline to all servers", sums.iter().sum::<i64>());
}

fn transactions(client: &mut impl ConnectionLike, scenario: &Scenario) {
    client.set::<_, _, ()>(key("tx"), 1).unwrap();
    // The cluster's connection has no transactions.
    let mut server = scenario.server();
    let answer: RedisResult<Value> =
        pipe().atomic().incr(key("tx"), 1).incr(key("tx"), 5).get(key("tx")).query(&mut server);
    show_value("transaction", answer);
    let answer: RedisResult<Value> =
        pipe().atomic().incr(key("tx"), 1).lpush(key("tx"), 1).incr(key("tx"), 1).query(&mut server);
    show("transaction with an error", words(&answer.unwrap_err()));
    let answer: RedisResult<Value> =
        pipe().atomic().set(key("tx"), 5).cmd("SET").arg(key("tx")).query(&mut server);
    show("refused in the queue", words(&answer.unwrap_err()));
    let mut watching = scenario.server();
    let mut tries = 0;
    let sum: Value = redis::transaction(&mut watching, &[key("tx")], |watching, pipeline| {
        let value: i64 = watching.get(key("tx"))?;
        tries += 1;
        if tries == 1 {
            client.set::<_, _, ()>(key("tx"), 100)?;
        }
        pipeline.set(key("tx"), value + 1).ignore().get(key("tx")).query(watching)
    })
    .unwrap();
    show_value("after a conflict", Ok(sum));
    show("tries", tries);
}

fn scripts(client: &mut impl ConnectionLike) {
    let mut eval = |step: &str, text: &str| {
        let answer = cmd("EVAL").arg(text).arg(1).arg(key("s")).arg("argument").query(client);
        show_value(step, answer);
    };
    eval("eval", "return {KEYS[1], ARGV[1], 7, {'x', false}, 3.9}");
    eval(
        "map",
        "redis.setresp(3); redis.call('hset', KEYS[1], 'f', 'v'); return redis.call('hgetall', KEYS[1])",
    );
    eval("double and boolean", "redis.setresp(3); return {{double = 2.5}, true}");
    eval("big number", "redis.setresp(3); return {big_number = '123456789012345678901234567890'}");
    eval("error", "return redis.error_reply('MINE is this')");
    eval("raised", "error('words')");
    eval("call error", "return redis.call('lpush', KEYS[1], 1)");
    eval("compile", "return (");
    let script = Script::new("return redis.call('incrby', KEYS[1], ARGV[1])");
    for by in [5, 6] {
        show("script", script.key(key("n")).arg(by).invoke::<i64>(client).unwrap());
    }
    let unknown = "0".repeat(40);
    show_value("evalsha unknown", cmd("EVALSHA").arg(unknown).arg(1).arg(key("n")).query(client));
}

const LIBRARY: &str = "#!lua name=shop
redis.register_function('buy', function(keys, args)
  return redis.call('HINCRBY', keys[1], args[1], args[2])
end)
redis.register_function{function_name='look', callback=function(keys, args)
  return redis.call('HGET', keys[1], args[1])
end, flags={'no-writes'}}
";

fn functions(client: &mut impl ConnectionLike, scenario: &Scenario) {
    let mut server = scenario.server();
    show_value("function load", cmd("FUNCTION").arg(&["LOAD", "REPLACE", LIBRARY]).query(&mut server));
    show_value("function load again", cmd("FUNCTION").arg(&["LOAD", LIBRARY]).query(&mut server));
    for line in [
        "FCALL buy 1 @shop pear 3",
        "FCALL buy 1 @shop pear 4",
        "FCALL_RO look 1 @shop pear",
        "FCALL_RO buy 1 @shop pear 1",
        "FCALL nothing 1 @shop",
    ] {
        show_call(client, line);
    }
    show_call(&mut server, "FUNCTION DELETE shop");
}

fn publications(scenario: &Scenario) {
    let mut publisher = scenario.server();
    if scenario.protocol == ProtocolVersion::RESP2 {
        let mut subscriber = scenario.server();
        let mut subscriber = subscriber.as_pubsub();
        subscriber.subscribe("news").unwrap();
        subscriber.psubscribe("n*").unwrap();
        show_call(&mut publisher, "PUBLISH news hello");
        let mut messages: Vec<String> =
            (0..2).map(|_| subscriber.get_message().unwrap()).map(|message| format!("{message:?}")).collect();
        messages.sort();
        show("messages", messages);
        subscriber.unsubscribe("news").unwrap();
        show_call(&mut publisher, "PUBLISH news again");
        show("message", subscriber.get_message().unwrap());
        return;
    }
    let (sender, pushes) = channel();
    let mut subscriber = scenario.server();
    subscriber.set_push_sender(sender);
    // The answer is a push for each channel.
    let ask = |subscriber: &mut Connection, command: &str, channels: &[&str]| {
        cmd(command).arg(channels).set_no_response(true).exec(subscriber).unwrap();
    };
    ask(&mut subscriber, "SUBSCRIBE", &["news", "sport"]);
    ask(&mut subscriber, "PSUBSCRIBE", &["n*"]);
    show_pushes("subscribed", &mut subscriber, &pushes, 3);
    show_call(&mut publisher, "PUBLISH news hello");
    show_pushes("messages", &mut subscriber, &pushes, 2);
    ask(&mut subscriber, "UNSUBSCRIBE", &["news"]);
    ask(&mut subscriber, "SSUBSCRIBE", &[&key("shard")]);
    show_pushes("changed", &mut subscriber, &pushes, 2);
    show_call(&mut publisher, "SPUBLISH @shard sharded");
    show_pushes("sharded message", &mut subscriber, &pushes, 1);
    ask(&mut subscriber, "SUNSUBSCRIBE", &[&key("shard")]);
    show_pushes("ended", &mut subscriber, &pushes, 1);
    show_call(&mut subscriber, "GET @none");
}

/// Prints this many pushes, in a stable order.
fn show_pushes(step: &str, connection: &mut Connection, pushes: &Receiver<PushInfo>, count: usize) {
    let mut texts = Vec::new();
    until("the pushes", || {
        // A push is found when a reply is read.
        call(connection, "PING").unwrap();
        texts.extend(pushes.try_iter().map(|push| {
            format!("{:?} {}", push.kind, push.data.iter().map(stable).collect::<Vec<_>>().join(" "))
        }));
        texts.len() >= count
    });
    texts.sort();
    show(step, texts);
}

fn blocking(client: &mut impl ConnectionLike, scenario: &Scenario) {
    let mut server = scenario.server();
    let started = Instant::now();
    show_call(&mut server, "BLPOP @empty 0.3");
    show("it waited", started.elapsed() >= Duration::from_millis(290));
    let waiter = |line: &'static str| -> JoinHandle<RedisResult<Value>> {
        let scenario = scenario.clone();
        std::thread::spawn(move || call(&mut scenario.server(), line))
    };
    let mut waiting = Vec::new();
    for n in 1..=3 {
        waiting.push(waiter("BLPOP @queue @queue2 20"));
        until("a blocked client more", || scenario.blocked(&mut server) == n);
    }
    for item in ["first", "second", "third"] {
        client.rpush::<_, _, ()>(key("queue"), item).unwrap();
    }
    for thread in waiting {
        show_value("in the order of arrival", thread.join().unwrap());
    }
    let mut later = |line: &'static str, then: &str| {
        let thread = waiter(line);
        until("a blocked client", || scenario.blocked(&mut server) == 1);
        call(client, then).unwrap();
        show_value(line, thread.join().unwrap());
    };
    later("BLMOVE @from @to LEFT RIGHT 20", "RPUSH @from moved");
    later("BZPOPMIN @zq 20", "ZADD @zq 2 b 1 a");
    later("BLMPOP 20 2 @m1 @m2 LEFT COUNT 2", "RPUSH @m2 a b c");
}

fn streams(client: &mut impl ConnectionLike, scenario: &Scenario) {
    for n in 1..=5 {
        client.xadd::<_, _, _, _, ()>(key("stream"), format!("{n}-0"), &[("n", n)]).unwrap();
    }
    show_call(client, "XADD @stream 1-0 n 9");
    show_call(client, "XRANGE @stream 2 3");
    show_call(client, "XGROUP CREATE @stream g 0");
    show_call(client, "XGROUP CREATE @stream g 0");
    for (consumer, from) in [("alice", ">"), ("bob", ">"), ("alice", "0")] {
        let options = StreamReadOptions::default().group("g", consumer).count(2);
        let reply: Option<StreamReadReply> =
            client.xread_options(&[key("stream")], &[from], &options).unwrap();
        let ids: Vec<String> =
            reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids).map(|id| id.id).collect();
        show(&format!("read by {consumer} from {from}"), ids);
    }
    for line in [
        "XREADGROUP GROUP g bob COUNT 1 STREAMS @stream 0",
        "XACK @stream g 1-0 9-9",
        "XPENDING @stream g",
        "XAUTOCLAIM @stream g carol 0 0-0 COUNT 2",
        "XCLAIM @stream g dave 0 4-0 JUSTID",
        "XINFO GROUPS @stream",
        "XREADGROUP GROUP g carol STREAMS @stream 0",
        "XREADGROUP GROUP g erin NOACK STREAMS @stream >",
    ] {
        show_call(client, line);
    }
    let mut server = scenario.server();
    let mut waiter = scenario.server();
    let thread = std::thread::spawn(move || call(&mut waiter, "XREAD BLOCK 20000 STREAMS @stream $"));
    until("a blocked reader", || scenario.blocked(&mut server) == 1);
    show_call(client, "XADD @stream 10-1 late entry");
    show_value("blocked reader", thread.join().unwrap());
    show_call(client, "XTRIM @stream MAXLEN 2");
    show_call(client, "XGROUP DESTROY @stream g");
}

/// Reads with the client's own cache, which the server must invalidate.
fn caching(writer: &mut impl ConnectionLike, scenario: &Scenario) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = redis::AsyncConnectionConfig::new().set_cache_config(CacheConfig::new());
        let client = scenario.client(scenario.keys_port);
        let mut cached = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        writer.set::<_, _, ()>(key("cached"), "old").unwrap();
        for _ in 0..10 {
            let value: Value = cmd("GET").arg(key("cached")).query_async(&mut cached).await.unwrap();
            assert_eq!(stable(&value), "\"old\"");
        }
        let statistics = cached.get_cache_statistics().unwrap();
        show("ten reads", (statistics.hit, statistics.miss));
        writer.set::<_, _, ()>(key("cached"), "new").unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value: Value = cmd("GET").arg(key("cached")).query_async(&mut cached).await.unwrap();
            if stable(&value) == "\"new\"" {
                break;
            }
            assert!(Instant::now() < deadline, "the cache is not invalidated: {value:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        show("after another client's write", "new");
    });
}

fn run(client: &mut impl ConnectionLike, scenario: &Scenario) {
    show("protocol", scenario.protocol);
    values(client);
    pipelines(scenario);
    transactions(client, scenario);
    scripts(client);
    functions(client, scenario);
    publications(scenario);
    blocking(client, scenario);
    streams(client, scenario);
    if scenario.protocol == ProtocolVersion::RESP3 {
        caching(client, scenario);
    }
}

/// Returns the port of the server that has the keys.
fn port_of_keys(mut server: Connection) -> u16 {
    let slot: u16 = cmd("CLUSTER").arg("KEYSLOT").arg(key("")).query(&mut server).unwrap();
    let rows: Vec<Vec<Value>> = cmd("CLUSTER").arg("SLOTS").query(&mut server).unwrap();
    let found = rows.iter().find_map(|row| {
        let number = |value: &Value| match value {
            Value::Int(number) => u16::try_from(*number).unwrap(),
            other => panic!("{other:?}"),
        };
        let Value::Array(master) = &row[2] else { panic!("{row:?}") };
        (number(&row[0]) <= slot && slot <= number(&row[1])).then(|| number(&master[1]))
    });
    found.expect("every slot has a server")
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let port: u16 = arguments[2].parse().unwrap();
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let is_plain = arguments[1] == "plain";
        let mut scenario = Scenario { is_plain, protocol, port, keys_port: port };
        if scenario.is_plain {
            let mut client = scenario.server();
            call(&mut client, "FLUSHALL").unwrap();
            run(&mut client, &scenario);
            call(&mut client, "FLUSHALL").unwrap();
        } else {
            scenario.keys_port = port_of_keys(scenario.server());
            let mut client = scenario.cluster();
            call(&mut client, "FLUSHALL").unwrap();
            run(&mut client, &scenario);
            cluster_pipelines(&mut client);
            call(&mut client, "FLUSHALL").unwrap();
        }
    }
}
