//! The keys and errors that `INFO` counts, beside those of `redis-server`.

use std::time::Duration;

use bytes::BytesMut;
use resp::Reply;

use crate::administration::counts;
use crate::connection::Connection;
use crate::servers::{redis, steelyard, Server};

const ROWS: &str = "FLUSHALL
SET s hello
SET n 5
SET bits abc
HSET h a 1 b 2
RPUSH l 3 1 2
SADD set a b c
SADD set2 b c d
ZADD z 1 a 2 b 3 c
ZADD z2 1 a 2 d
GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
PFADD hll a b c
PFADD hll2 c d
XADD x 1-1 f v
XADD x 2-1 f v
XGROUP CREATE x grp 0
MSET w:1 7 w:2 8";

/// Commands over the rows above. Those of a line are sent one after the other.
const LINES: &str = "GET s;GET none;GET h
SET s x;SET s x GET;SET none x NX GET;SET none x NX
SETNX s x;SETEX s 10 x;GETSET s y;GETSET none y;GETSET h y
GETDEL s;GETDEL s;GETDEL h
GETEX n;GETEX n EX 10;GETEX none;GETEX h
APPEND s x;STRLEN s;STRLEN none;GETRANGE s 0 1;SUBSTR none 0 1;SETRANGE s 0 x
INCR n;INCRBYFLOAT n 1.5;MGET s none h n;MSET a 1;MSETNX s 1 b 2
LCS s bits;LCS s none;GETBIT bits 1;SETBIT bits 1 1;BITCOUNT none;BITPOS bits 1
BITOP AND dest bits none;BITOP AND s bits n;BITOP OR dest s h
BITFIELD bits GET u4 0;BITFIELD none GET u4 0;BITFIELD bits SET u4 0 3;BITFIELD_RO bits GET u4 0
EXISTS s none s;TYPE s;TYPE none;TTL s;PTTL none;EXPIRETIME s;PEXPIRETIME none;TOUCH s none
EXPIRE s 100;PERSIST s;PERSIST none;RENAME s t;RENAME none t;RENAMENX t n;MOVE t 1;DEL n none;UNLINK h
COPY s t;COPY s n;COPY s n REPLACE;COPY none t
KEYS *;DBSIZE;SCAN 0;RANDOMKEY;WATCH s none;UNWATCH
DUMP s;DUMP none;RESTORE s 0 x;OBJECT ENCODING s;OBJECT REFCOUNT none;OBJECT FREQ s;MEMORY USAGE s;MEMORY USAGE none
SORT l;SORT none;SORT l BY w:*;SORT l BY nosort GET w:*;SORT l GET h->a;SORT l BY w:* GET w:* STORE dest;SORT h
SORT_RO l BY w:* GET w:* GET #
HGET h a;HGET h z;HGET none a;HGET s a;HMGET h a z;HMGET none a;HSET h c 3;HSETNX h a 1;HDEL h c
HLEN h;HSTRLEN none a;HEXISTS h a;HKEYS h;HVALS none;HGETALL h;HINCRBY h a 1;HRANDFIELD h;HRANDFIELD none 2;HSCAN h 0
LPUSH l a;LPUSHX none a;LPOP l;RPOP none;LLEN l;LINDEX l 0;LRANGE none 0 1;LPOS l 1;LSET l 0 x;LSET none 0 x
LINSERT l BEFORE 1 x;LREM none 0 1;LTRIM l 0 1;LMOVE l l2 LEFT LEFT;LMPOP 2 none l LEFT;BLPOP none l2 0;BLPOP none 0.01
SADD set x;SREM set x;SCARD set;SCARD none;SISMEMBER set a;SMISMEMBER none a;SMEMBERS set;SRANDMEMBER set;SRANDMEMBER none 2
SPOP set;SPOP none;SMOVE set2 set d
SINTER set none set2;SINTERCARD 2 set set2;SINTERSTORE dest set none;SINTERSTORE set set set2;SINTER set s
SUNION set set2 none;SUNIONSTORE dest set none;SDIFF none set;SDIFFSTORE dest set set2;SSCAN set 0
ZADD z 1 x;ZINCRBY z 1 a;ZREM none a;ZCARD z;ZSCORE none a;ZMSCORE z a q;ZRANK z a;ZCOUNT none 0 9;ZLEXCOUNT z - +
ZRANGE z 0 1;ZRANGEBYSCORE none 0 9;ZREVRANGE z 0 1;ZRANGESTORE dest z 0 1;ZRANGESTORE dest none 0 1;ZRANGESTORE z z 0 1
ZPOPMIN z;ZMPOP 2 none z MIN;ZREMRANGEBYRANK z 0 0;ZRANDMEMBER z2;ZRANDMEMBER none 2;ZSCAN z2 0
ZUNION 2 z none;ZINTER 2 z z2;ZDIFF 2 z z2;ZINTERCARD 2 none z;ZUNIONSTORE dest 2 z set;ZINTERSTORE dest 2 z z2;ZDIFFSTORE dest 2 z none
GEOADD g 1 1 x;GEOPOS g Palermo;GEODIST none a b;GEOHASH g Palermo;GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km
GEOSEARCHSTORE dest g FROMLONLAT 15 37 BYRADIUS 200 km;GEORADIUS g 15 37 200 km;GEORADIUS none 15 37 200 km STORE dest
GEORADIUS_RO g 15 37 200 km;GEORADIUSBYMEMBER g Palermo 200 km;GEORADIUSBYMEMBER_RO g Palermo 200 km
PFADD hll x;PFCOUNT hll;PFCOUNT hll;PFCOUNT none;PFCOUNT hll none;PFMERGE dest hll hll2;PFMERGE hll hll2;PFCOUNT s
XADD x * a b;XLEN x;XLEN none;XRANGE x - +;XREVRANGE none + -;XDEL x 1-1;XTRIM x MAXLEN 1;XINFO STREAM x;XINFO GROUPS none
XREAD STREAMS x 0;XREAD STREAMS none $;XREAD COUNT 1 STREAMS x x 0 1-1;XREAD STREAMS s 0
XREADGROUP GROUP grp c STREAMS x >;XREADGROUP GROUP grp c STREAMS none >;XREADGROUP GROUP no c STREAMS x >
XACK x grp 1-1;XACK none grp 1-1;XPENDING x grp;XPENDING none grp;XCLAIM x grp c 0 2-1;XAUTOCLAIM x grp c 0 0;XINFO CONSUMERS x no
MULTI;GET s;GET none;SET t 1;EXISTS t;HGET s a;EXEC
MULTI;GET s;DISCARD;WATCH s;MULTI;GET s;INCR s;EXEC
MULTI;GET;EXEC
EVAL return_redis.call('get',KEYS[1]) 1 s;EVAL return_redis.call('get',KEYS[1]) 1 none
EVAL redis.call('get',KEYS[1])redis.call('set',KEYS[2],1)return_redis.call('exists',KEYS[1],KEYS[2]) 2 s t
EVAL_RO return_redis.call('mget',KEYS[1],KEYS[2]) 2 s none;EVAL return_redis.call('hget',KEYS[1],'a') 1 s
SELECT 1;GET s;SELECT 0;NOSUCH;GET a b;OBJECT NOPE;CLIENT NOPE;AUTH a b c d";

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace('_', " ").replace("EVAL RO", "EVAL_RO")).collect()
}

/// Sends a command, whose words may have `_` in place of spaces.
fn send(connection: &mut Connection, line: &str) -> Reply {
    let has_spaces = line.starts_with("EVAL");
    let words = if has_spaces { words(line) } else { line.split(' ').map(str::to_owned).collect() };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    connection.call(&words).unwrap()
}

/// Sends commands together.
fn fill(connection: &mut Connection, lines: &str) {
    let mut bytes = BytesMut::new();
    for line in lines.lines() {
        resp::encode_request(&line.split(' ').collect::<Vec<_>>(), &mut bytes);
    }
    connection.send(&bytes).unwrap();
    for line in lines.lines() {
        let reply = connection.reply().unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
}

const FIELDS: [&str; 3] = ["keyspace_hits", "keyspace_misses", "total_error_replies"];

#[test]
fn keys_and_errors_are_counted_as_redis_counts_them() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let mut connections = [ours.connect(), theirs.connect()];
    for connection in &mut connections {
        connection.call(&["CONFIG", "RESETSTAT"]).unwrap();
    }
    let mut different = Vec::new();
    for line in LINES.lines() {
        let [ours, theirs] = [0, 1].map(|of| {
            let connection = &mut connections[of];
            fill(connection, ROWS);
            let (mut steps, mut is_queueing) = (Vec::new(), false);
            for command in line.split(';') {
                send(connection, command);
                is_queueing = command == "MULTI" || is_queueing && !matches!(command, "EXEC" | "DISCARD");
                if !is_queueing {
                    steps.push((command, counts(connection, "stats", &FIELDS)));
                }
            }
            steps
        });
        // The first difference says what the later ones come from.
        different.extend(ours.into_iter().zip(theirs).find(|(ours, theirs)| ours != theirs));
        if !different.is_empty() {
            break;
        }
    }
    assert_eq!(different, []);
    let [ours, theirs] = connections.each_mut().map(|connection| {
        counts(connection, "errorstats", &["errorstat_ERR", "errorstat_WRONGTYPE", "errorstat_NOGROUP"])
    });
    assert_eq!((ours.len(), ours), (3, theirs));
}

/// Lets keys expire, reads them in several ways, and waits until all of them are counted.
fn expired(server: &Server) -> Vec<String> {
    let mut connection = server.connect();
    fill(&mut connection, ROWS);
    connection.call(&["CONFIG", "RESETSTAT"]).unwrap();
    // Redis reads its clock twice in this command. If the time has passed at the second, it deletes
    // the key and does not count it. So the time is longer than a busy machine's pauses.
    for key in ["s", "n", "h", "l", "set", "z", "x"] {
        connection.call(&["PEXPIRE", key, "200"]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(250));
    for line in [
        "GET s",
        "EXISTS n n",
        "HGETALL h",
        "SUNIONSTORE dest set set2",
        "SUNION l set2",
        "MULTI",
        "ZSCORE z a",
        "TTL z",
        "EXEC",
        "PEXPIRE hll -1",
    ] {
        send(&mut connection, line);
    }
    let until = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let counted = counts(&mut connection, "stats", &["expired_keys", "keyspace_hits", "keyspace_misses"]);
        if counted[0] == "expired_keys:7" || std::time::Instant::now() > until {
            return counted;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn keys_that_expire_are_counted_once() {
    let Some(theirs) = redis(&[]) else { return };
    let (ours, theirs) = (expired(&steelyard(&[])), expired(&theirs));
    assert_eq!(ours, theirs);
    assert_eq!(ours[0], "expired_keys:7");
}

#[test]
fn info_has_what_agents_of_monitoring_read() {
    let server = steelyard(&[]);
    let mut connection = server.connect();
    let value = |connection: &mut Connection, section: &str, name: &str| {
        let lines = counts(connection, section, &[name]);
        let [line] = &lines[..] else { panic!("{name}: {lines:?}") };
        line.split_once(':').expect("a value").1.to_owned()
    };
    for name in
        ["evicted_keys", "expired_time_cap_reached_count", "latest_fork_usec", "sync_full", "evicted_clients"]
    {
        assert_eq!(value(&mut connection, "stats", name), "0", "{name}");
    }
    let reads: u64 = value(&mut connection, "stats", "total_reads_processed").parse().unwrap();
    for _ in 0..50 {
        connection.call(&["SET", "key", &"x".repeat(10_000)]).unwrap();
    }
    let later: u64 = value(&mut connection, "stats", "total_reads_processed").parse().unwrap();
    assert!(later >= reads + 50, "{reads} {later}");
    let kilobytes: f64 = value(&mut connection, "stats", "instantaneous_input_kbps").parse().unwrap();
    assert!(kilobytes > 50.0, "{kilobytes}");
    let used = value(&mut connection, "memory", "used_memory_human");
    assert!(used.ends_with('M') || used.ends_with('K'), "{used}");
    assert!(value(&mut connection, "memory", "mem_fragmentation_ratio").parse::<f64>().unwrap() > 0.5);
    connection.call(&["EVAL", "return 1", "0"]).unwrap();
    assert_eq!(value(&mut connection, "memory", "number_of_cached_scripts"), "1");
}
