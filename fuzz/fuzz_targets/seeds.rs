//! Writes seeds and dictionaries that follow from the project's own encoders and tests, to
//! `DIR/TARGET/` and `DIR/TARGET.dict`. `STEELYARD_SEEDS` names `DIR`. It is built like a target,
//! because the crates of the targets can be linked only with libFuzzer, and fuzzes nothing.

#![no_main]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use cluster::{LeadReport, Leads, Mark, MetaCommand, MetaReply, Order, PeerProgress, StoreHeartbeat};
use command::entry::Builder;
use command::scripting::{eval_args, Caller, Code, ScriptBy, ScriptCall};
use command::transaction::{exec_args, unwatch_args, watch_args, Queued, Watched};
use raft::eraftpb;
use rdb::{write, Element, KeyFacts, Kind};
use types::{PeerChange, RegionChange, RegionEpoch, NEWEST_VERSION};
use wal::{LogState, PeerLifecycle, Record};

/// Bytes of the seeds that are made of longer texts.
const PIECE_BYTES: usize = 600;

struct Seeds {
    dir: PathBuf,
}

impl Seeds {
    fn write(&self, target: &str, seeds: impl IntoIterator<Item = Vec<u8>>) {
        let dir = self.dir.join(target);
        fs::create_dir_all(&dir).expect("a directory");
        for (number, seed) in seeds.into_iter().enumerate() {
            fs::write(dir.join(format!("made-{number:04}")), seed).expect("a file");
        }
    }

    fn dictionary(&self, target: &str, words: &BTreeSet<Vec<u8>>) {
        let line = |word: &Vec<u8>| {
            let text: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{text}\"\n")
        };
        let text: String = words.iter().map(line).collect();
        fs::write(self.dir.join(format!("{target}.dict")), text).expect("a file");
    }
}

libfuzzer_sys::fuzz_target!(
    init: {
        make();
        std::process::exit(0)
    },
    |_input: &[u8]| ()
);

fn make() {
    let dir = PathBuf::from(std::env::var_os("STEELYARD_SEEDS").expect("a directory"));
    fs::create_dir_all(&dir).expect("a directory");
    let seeds = Seeds { dir };
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("inside the project").to_owned();
    commands(&seeds, &project);
    scripts(&seeds, &project);
    values(&seeds);
    log_entries(&seeds);
    stores(&seeds);
    log(&seeds);
}

fn args(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

/// Cuts lines into pieces.
fn pieces(lines: &[&str]) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in lines {
        let last = pieces.last_mut().expect("never empty");
        if last.len() + line.len() > PIECE_BYTES && !last.is_empty() {
            pieces.push(String::new());
        }
        let last = pieces.last_mut().expect("never empty");
        last.push_str(line);
        last.push_str("\r\n");
    }
    pieces
}

/// The commands of the golden scripts, and the words of the command table.
fn commands(seeds: &Seeds, project: &Path) {
    let mut all = Vec::new();
    let dir = project.join("crates/command/tests/golden/scripts");
    let mut paths: Vec<_> =
        fs::read_dir(&dir).expect("golden scripts").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        let text = fs::read_to_string(&path).expect("a golden script");
        let mut is_input = true;
        let mut lines = Vec::new();
        for line in text.lines() {
            match line {
                "---" => is_input = false,
                "" => is_input = true,
                line if is_input && !line.starts_with('#') => {
                    lines.push(line.split(" [").next().unwrap_or(line));
                }
                _ => {}
            }
        }
        all.extend(pieces(&lines));
    }
    let ways = [0u8, 1, 2, 4, 0x40, 0x80, 0xc4, 0];
    let seed = |(number, text): (usize, &String)| {
        [&[ways[number % ways.len()], (number % 5) as u8][..], text.as_bytes()].concat()
    };
    seeds.write("client", all.iter().enumerate().map(seed));

    let mut words: BTreeSet<Vec<u8>> = BTreeSet::new();
    for spec in command::commands() {
        words.insert(format!("\r\n{} ", spec.name).into_bytes());
        for leaf in spec.subcommands {
            words.insert(format!("\r\n{} ", leaf.name.replace('|', " ")).into_bytes());
        }
        for leaf in std::iter::once(*spec).chain(spec.subcommands) {
            let is_word =
                |word: &&str| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase());
            let of_syntax = leaf.syntax.split(|letter: char| !letter.is_ascii_alphabetic()).filter(is_word);
            words.extend(of_syntax.map(|word| format!("{word} ").into_bytes()));
        }
    }
    let others: [&[u8]; 32] = [
        b"a ",
        b"b ",
        b"{a}1 ",
        b"0 ",
        b"-1 ",
        b"1 ",
        b"2 ",
        b"9223372036854775807 ",
        b"-9223372036854775808 ",
        b"18446744073709551615 ",
        b"1.5 ",
        b"inf ",
        b"-inf ",
        b"(1 ",
        b"[a ",
        b"+ ",
        b"- ",
        b"$ ",
        b"> ",
        b"* ",
        b"\"\" ",
        b"\"\\x00\\xff\" ",
        b"nan ",
        b"1e400 ",
        b"i64 ",
        b"u63 ",
        b"#1 ",
        b"0-1 ",
        b"5-* ",
        b"~ ",
        b"= ",
        b"*1\r\n$1\r\n",
    ];
    words.extend(others.map(<[u8]>::to_vec));
    seeds.dictionary("client", &words);
    seeds.dictionary("own_commands", &words);
    let own = [
        "HELLO 3 AUTH default x SETNAME n",
        "HELLO 2",
        "AUTH u p",
        "AUTH x",
        "PING a",
        "ECHO a",
        "RESET",
        "SELECT 1",
        "CLIENT SETNAME n",
        "CLIENT ID",
        "CLIENT INFO",
        "CLIENT LIST TYPE normal",
        "CLIENT LIST ID 1 2",
        "CLIENT KILL TYPE pubsub SKIPME no",
        "CLIENT KILL ID 1 ADDR 1.2.3.4:5 USER u",
        "CLIENT PAUSE 10 WRITE",
        "CLIENT UNPAUSE",
        "CLIENT REPLY OFF",
        "CLIENT REPLY ON",
        "CLIENT NO-EVICT on",
        "CLIENT UNBLOCK 1 ERROR",
        "CLIENT TRACKING on BCAST PREFIX a PREFIX b NOLOOP",
        "CLIENT TRACKING on OPTIN REDIRECT 1",
        "CLIENT CACHING yes",
        "CLIENT GETREDIR",
        "CLIENT TRACKINGINFO",
        "CLIENT TRACKING off",
        "CONFIG GET *max* [a-c]*",
        "CONFIG SET slowlog-max-len 5 latency-monitor-threshold 1",
        "CONFIG RESETSTAT",
        "CONFIG SET client-output-buffer-limit \"pubsub 1mb 2mb 3\"",
        "CONFIG SET notify-keyspace-events KEA",
        "CONFIG SET maxmemory 1gb save \"\" requirepass p",
        "SLOWLOG GET -1",
        "SLOWLOG LEN",
        "SLOWLOG RESET",
        "LATENCY HISTOGRAM get set",
        "LATENCY HISTORY command",
        "LATENCY LATEST",
        "LATENCY GRAPH e",
        "LATENCY DOCTOR",
        "MEMORY DOCTOR",
        "MEMORY STATS",
        "MODULE LIST",
        "ROLE",
        "LASTSAVE",
        "TIME",
        "INFO all",
        "INFO server errorstats",
        "ACL SETUSER u on >p ~a* %R~b &c +@all -@admin (+get ~x)",
        "ACL GETUSER u",
        "ACL DELUSER u",
        "ACL LIST",
        "ACL USERS",
        "ACL WHOAMI",
        "ACL CAT read",
        "ACL GENPASS 64",
        "ACL LOG 10",
        "ACL LOG RESET",
        "ACL DRYRUN default get a",
        "SUBSCRIBE a b",
        "PSUBSCRIBE a* [b-",
        "SSUBSCRIBE a",
        "UNSUBSCRIBE",
        "PUNSUBSCRIBE a*",
        "PUBLISH a text",
        "SPUBLISH a text",
        "PUBSUB CHANNELS a*",
        "PUBSUB NUMSUB a b",
        "PUBSUB NUMPAT",
        "PUBSUB SHARDCHANNELS",
        "MONITOR",
        "SCRIPT LOAD \"return 1\"",
        "SCRIPT EXISTS a b",
        "SCRIPT FLUSH ASYNC",
        "FUNCTION LOAD REPLACE \"#!lua name=a\\nredis.register_function('f', function() end)\"",
        "FUNCTION LIST LIBRARYNAME a* WITHCODE",
        "FUNCTION DUMP",
        "FUNCTION DELETE a",
        "FUNCTION STATS",
        "FUNCTION RESTORE x APPEND",
        "FUNCTION FLUSH SYNC",
        "CLUSTER INFO",
        "CLUSTER NODES",
        "CLUSTER SLOTS",
        "CLUSTER SHARDS",
        "CLUSTER KEYSLOT {a}b",
        "CLUSTER COUNTKEYSINSLOT 7",
        "CLUSTER GETKEYSINSLOT 7 10",
        "CLUSTER LINKS",
        "CLUSTER MYID",
        "CLUSTER REPLICAS x",
        "READONLY MAXLAG 20 MAXENTRIES 7",
        "READWRITE",
        "WAIT 1 1",
        "ASKING",
        "BGSAVE SCHEDULE",
        "QUIT",
    ];
    let pieces = pieces(&own);
    let each = own.iter().map(|line| format!("{line}\r\n")).chain(pieces);
    seeds.write("own_commands", each.map(String::into_bytes));
}

fn scripts(seeds: &Seeds, project: &Path) {
    let corpus = project.join("crates/steelyard/tests/differential/scripts.txt");
    let text = fs::read_to_string(corpus).expect("the scripts of the differential test");
    let with = |kind: u8, body: &[u8]| [&[kind][..], body].concat();
    let mut all: Vec<Vec<u8>> = text.lines().map(|line| with(0, line.as_bytes())).collect();
    for code in [
        "#!lua name=a\nredis.register_function('f', function(keys, args) return {#keys, args[1]} end)",
        "#!lua name=b\nlocal function g(k) return redis.call('get', k[1]) end
         redis.register_function{function_name='f', callback=g, flags={'no-writes', 'allow-oom'}, description='d'}",
    ] {
        all.push(with(1, code.as_bytes()));
    }
    let fixed =
        |kind: u8, first: &[u8], second: &[u8]| [&[kind, first.len() as u8][..], first, second].concat();
    for (first, second) in [
        ("[1,2.5,-3e4,\"a\\u00e9\\ud83d\\ude00\\n\",null,true,{}]", "{\"a\":{\"b\":[1,[2,[3]]]}}"),
        ("{\"1\":1,\"2\":2}", "[[[[[[]]]]]]"),
        ("\"\\u0000\"", "-0"),
    ] {
        all.extend([8, 9].map(|kind| fixed(kind, first.as_bytes(), second.as_bytes())));
    }
    for packed in [
        &b"\x93\x01\xa1a\xc0"[..],
        b"\x82\xa1k\xcb\x3f\xf8\0\0\0\0\0\0\x01\xd1\xff\x00",
        b"\xdc\x00\x01\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xc4\x02ab\xd9\x01x\xca\x3f\x80\0\0",
    ] {
        all.extend([10, 11].map(|kind| fixed(kind, packed, packed)));
    }
    for format in ["<i4>I2bBhHlLs", "!4i8c3c0d", "fs", ">!8xi"] {
        let data = b"\x01\0\0\0\0\x02abc\0defghijklmnop";
        all.extend([12, 13].map(|kind| fixed(kind, format.as_bytes(), data)));
    }
    for pattern in
        ["%5.2f %s %q %d %x %c", "(%a+)(%d*)", "[^%s-z]+", "%b()", "%f[%w]%w+", "^(.-)%s*$", "()%1?"]
    {
        all.extend([14, 15].map(|kind| fixed(kind, pattern.as_bytes(), b"  key=(value1) 42 \"x\" end")));
    }
    seeds.write("script", all);
    let words = [
        "redis.call(",
        "redis.pcall(",
        "redis.setresp(3)",
        "cjson.encode(",
        "cjson.decode(",
        "cmsgpack.pack(",
        "cmsgpack.unpack(",
        "struct.pack(",
        "struct.unpack(",
        "bit.band(",
        "return ",
        "local ",
        "function(",
        "end ",
        "for i=1,",
        "while ",
        "string.rep(",
        "string.format(",
        "table.concat(",
        "table.sort(",
        "setmetatable({},{",
        "__index",
        "__gc",
        "__call",
        "coroutine.wrap(",
        "pcall(",
        "error(",
        "unpack(",
        "tostring(",
        "tonumber(",
        "KEYS[1]",
        "ARGV[1]",
        "redis.register_function(",
        "#!lua name=",
        "flags=",
        "no-writes",
        "math.random(",
        "'array'",
        "'map'",
        "'set'",
        "'error'",
        "'nil'",
        "'int'",
        "'status'",
        "redis.error_reply(",
        "redis.acl_check_cmd(",
        "redis.sha1hex(",
        "redis.log(",
        "redis.breakpoint()",
        "loadstring(",
        "load(",
        "select('#',",
        "rawset(",
    ];
    seeds.dictionary("script", &words.iter().map(|word| word.as_bytes().to_vec()).collect());
}

/// Values in Redis's serialization.
fn values(seeds: &Seeds) {
    let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let all = [
        (Kind::String, vec![Element::String(text("value"))]),
        (Kind::List, vec![Element::Item(text("a")), Element::Item(text("-12345"))]),
        (Kind::Set, vec![Element::Member(text("a")), Element::Member(text("7"))]),
        (Kind::Hash, vec![Element::Field(text("f"), text("v")), Element::Field(text("g"), text(""))]),
        (Kind::SortedSet, vec![Element::Scored(text("m"), 1.5), Element::Scored(text("n"), f64::INFINITY)]),
    ];
    let mut made = Vec::new();
    let mut file = rdb::FileWriter::create(Vec::new(), &[("redis-ver", "7.0.15")]).expect("memory");
    for (kind, elements) in &all {
        let mut value = Vec::new();
        write::header(&mut value, *kind, elements.len() as u64);
        elements.iter().for_each(|element| write::element(&mut value, element));
        made.push([&[0, write::type_number(*kind)][..], &value].concat());
        let facts = KeyFacts {
            key: text("key"),
            expire_at_ms: Some(1 << 40),
            type_number: write::type_number(*kind),
        };
        file.begin_key(3, &facts, &value).expect("memory");
    }
    made.push([&[2][..], &file.finish().expect("memory")].concat());
    let code = text("#!lua name=a\nredis.register_function('f', function() return 1 end)");
    let mut libraries = rdb::write_libraries([code].iter());
    libraries.truncate(libraries.len() - 10);
    made.push([&[1][..], &libraries].concat());
    seeds.write("rdb", made);
}

fn log_entries(seeds: &Seeds) {
    let eval = |body: &str, function: Option<Bytes>| {
        let call = ScriptCall {
            by: if function.is_some() { ScriptBy::Function } else { ScriptBy::Body },
            is_readonly: false,
        };
        let body = Bytes::copy_from_slice(body.as_bytes());
        let code = Code { body, function: function.map(|name| (name, script::Flags::default())) };
        eval_args(call, &args("EVAL x 1 a b"), Ok(code), Caller { has_slots: false, rules: None })
            .expect("a script")
    };
    let watched = [Watched { db: 0, key: Bytes::from_static(b"a"), number: 1 }];
    let queued = [Queued { db: 0, args: args("SET a 1") }, Queued { db: 3, args: args("LPUSH l x") }];
    let entries = [
        vec![args("SET a 1"), args("HSET h f v"), args("ZADD z 1 m")],
        vec![args("XADD s * f v"), args("XGROUP CREATE s g 0"), args("XREADGROUP GROUP g c STREAMS s >")],
        vec![watch_args(&args("a b")), args("SET a 2"), exec_args(&watched, &queued), unwatch_args(&watched)],
        vec![eval("return redis.call('set', KEYS[1], ARGV[1])", None)],
        vec![eval(
            "#!lua name=l\nredis.register_function('f', function(k) return redis.call('get', k[1]) end)",
            Some(Bytes::from_static(b"f")),
        )],
    ];
    let made = entries.iter().enumerate().map(|(number, commands)| {
        let mut builder = Builder::new();
        commands.iter().for_each(|command| builder.push(0, number % 2 == 1, command));
        builder.push_expire_due(7, 10);
        builder.push_sweep(7, 10);
        builder.finish_as(NEWEST_VERSION, 1_700_000_000_000, 9).to_vec()
    });
    seeds.write("log_entry", made);
}

fn heartbeat(store: u64, seq: u64, full: bool) -> StoreHeartbeat {
    let MetaCommand::Bootstrap { regions, .. } = cluster::fuzzing::bootstrap() else { unreachable!() };
    let lead = |descriptor: types::RegionDescriptor| LeadReport {
        term: 5,
        commit: 10 * seq,
        applied: 10 * seq,
        bytes: 1 << (20 + store),
        sized: true,
        keys: 100,
        write_rate: 100.0 * store as f64,
        read_rate: 1000.0,
        miss_rate: 5.0,
        write_bytes_rate: 1e6,
        heat: 1e5,
        truncate_to: 1,
        peers: descriptor
            .peers
            .iter()
            .map(|peer| PeerProgress {
                store: peer.store,
                matched: 10 * seq,
                active: true,
                needs_snapshot: false,
            })
            .collect(),
        descriptor,
    };
    let reports = regions.into_iter().filter(|region| region.peers[0].store == store).map(lead).collect();
    StoreHeartbeat {
        store,
        cluster_id: 1,
        incarnation: 1,
        seq,
        wall_ms: 1_700_000_000_000 + seq,
        capacity_bytes: 1 << 40,
        used_bytes: 1 << (30 + store),
        load_ops_per_s: 1000.0,
        has_session: true,
        leads: Leads { since: if full { seq } else { 1 }, reports, gone: Vec::new() },
        ..StoreHeartbeat::default()
    }
}

fn stores(seeds: &Seeds) {
    let expect = RegionEpoch { conf_version: 1, version: 1 };
    let orders = [
        Order::TransferLeader { region: 1, to: 2 },
        Order::Change { region: 1, expect, change: RegionChange::Peers(vec![PeerChange::AddLearner(3)]) },
        Order::Change { region: 1, expect, change: RegionChange::LeaveJoint },
        Order::Change { region: 1, expect, change: RegionChange::PrepareMerge { into: 2 } },
        Order::Split { region: 1, expect, new_region: 9 },
    ];
    let MetaCommand::Bootstrap { regions, .. } = cluster::fuzzing::bootstrap() else { unreachable!() };
    let beats: Vec<Bytes> =
        (0..8).map(|n| heartbeat(n % 4, 1 + n / 4, n < 4).encode(NEWEST_VERSION)).collect();
    let orders: Vec<Bytes> = orders.iter().map(|order| order.encode(5)).collect();
    let descriptors: Vec<Bytes> = regions.iter().take(3).map(types::RegionDescriptor::encode).collect();
    let mark = Mark { skips: vec![4, 9], held: None }.encode();
    let reply = MetaReply::Joined { store: 4, cluster_id: 1 }.encode();
    let of = |kind: u8, bytes: &Bytes| [&[kind][..], bytes].concat();
    let mut messages: Vec<Vec<u8>> = beats.iter().map(|beat| of(0, beat)).collect();
    messages.extend(orders.iter().map(|order| of(1, order)));
    messages.extend(descriptors.iter().map(|descriptor| of(2, descriptor)));
    messages.extend([of(3, &mark), of(4, &reply)]);
    seeds.write("cluster_message", messages);

    let listed = |beats: &[Bytes]| -> Vec<u8> {
        beats.iter().flat_map(|beat| [&(beat.len() as u16).to_be_bytes()[..], beat].concat()).collect()
    };
    seeds.write("heartbeats", (0..4).map(|policy| [&[policy][..], &listed(&beats)].concat()));

    let commands: [Bytes; 2] =
        [cluster::fuzzing::bootstrap().encode(), MetaCommand::TakeOver { term: 5 }.encode()];
    let more = [
        r#"{"command":"set-policy","policy":"alor"}"#,
        r#"{"command":"set-store-state","store":1,"state":"draining"}"#,
        r#"{"command":"set-pins","store":1,"data_weight":2.5,"leader_weight":null}"#,
        r#"{"command":"remove-store","store":3}"#,
        r#"{"command":"allocate-regions","count":2}"#,
        r#"{"command":"set-config","name":"replicas","value":"2"}"#,
        r#"{"command":"finish-operator","id":1,"outcome":"done"}"#,
        r#"{"command":"raise-version","version":3,"members_version":1}"#,
        r#"{"command":"set-users","expected":1,"changes":{"u":"on nopass ~* +@all"},"replace":false}"#,
        r#"{"command":"set-libraries","expected":0,"changes":{"l":null},"replace":true}"#,
        r#"{"command":"report-regions","regions":[]}"#,
    ];
    let mut log = commands.map(|command| command.to_vec()).join(&b'\n');
    for line in more {
        log.extend_from_slice(b"\n\x03");
        log.extend_from_slice(line.as_bytes());
    }
    seeds.write("meta_log", [log]);
    let words: BTreeSet<Vec<u8>> = [
        "\n\x03{\"command\":\"",
        "begin-operator",
        "advance-operator",
        "\"id\":",
        "\"operator\":",
        "\"store\":",
        "\"facts\":",
        "transfer-leader",
        "add-learner",
        "split",
        "merge",
        "null",
        "18446744073709551615",
        "-1",
        "1e308",
        "\"region\":",
        "join",
        "\"newest\":",
        "\"phase\":",
        "\"outcome\":",
        "\"regions\":[",
        "true",
        "false",
    ]
    .iter()
    .map(|word| word.as_bytes().to_vec())
    .collect();
    seeds.dictionary("meta_log", &words);

    // Frames between stores.
    let frame = |kind: u8, content: &[u8]| {
        [&((content.len() + 1) as u32).to_le_bytes()[..], &[kind], content].concat()
    };
    let request = |kind: u8, body: &[u8]| frame(3, &[&7u64.to_le_bytes()[..], &[kind], body].concat());
    let mut message = eraftpb::Message { from: 1, to: 2, term: 6, ..eraftpb::Message::default() };
    message.set_msg_type(eraftpb::MessageType::MsgAppend);
    message.mut_entries().push(eraftpb::Entry {
        index: 4,
        term: 6,
        data: "data".into(),
        ..Default::default()
    });
    let message = protobuf::Message::write_to_bytes(&message).expect("a message");
    let raft = [&1u64.to_le_bytes()[..], &(message.len() as u32).to_le_bytes(), &message].concat();
    let mut commands = [&1u64.to_le_bytes()[..], &1u64.to_le_bytes(), &500u32.to_le_bytes()].concat();
    for line in ["SET a 1", "EVAL x 1 a", "XREAD COUNT 1 STREAMS a 0"] {
        let args = args(line);
        commands.extend([0, 0, 1]);
        commands.extend((args.len() as u32).to_le_bytes());
        for arg in args {
            commands.extend((arg.len() as u32).to_le_bytes());
            commands.extend_from_slice(&arg);
        }
    }
    let published = b"\0\x01\0\0\0\x03\0\0\0aone\x01\0\0\0\0\x01\0\0\0x";
    let asks = [
        r#"{"ask":"set-config","name":"replicas","value":"3"}"#,
        r#"{"ask":"change-region","region":1,"change":{"change":"move-peer","from":1,"to":2}}"#,
        r#"{"ask":"set-users","expected":1,"changes":{"u":null},"replace":true}"#,
        r#"{"ask":"libraries","known":{"l":1}}"#,
    ];
    let mut frames = vec![
        frame(1, &raft),
        frame(2, &beats[0]),
        frame(5, &orders[1]),
        frame(7, &descriptors[0]),
        request(1, &commands),
        request(5, br#"{"ask":"survey"}"#),
        request(6, br#"{"prepare":3}"#),
        request(9, published),
        frame(6, b"\x01who?"),
        frame(0, &[&b"SYLD\x03\0"[..], &[0; 16], &[1], &[0; 16], &[3; 64]].concat()),
        frame(8, &[4; 128]),
        frame(9, &[5; 96]),
        frame(10, &[6; 120]),
    ];
    frames.extend(asks.iter().map(|ask| request(2, ask.as_bytes())));
    seeds.write("store_messages", frames.clone());
    let from = |(number, frame): (usize, &Vec<u8>)| [&[number as u8 % 5][..], frame].concat();
    seeds.write("store_requests", frames.iter().enumerate().map(from));
    seeds.write("store_frame", frames);
    let facts = r#"{"key":"0303030303030303030303030303030303030303030303030303030303030303","client":"127.0.0.1:7000","peer":"127.0.0.1:7001","admin":"127.0.0.1:7002","device":"nvme","capability":{"kv_bytes_per_s":1.0,"ops_per_s":1.0},"labels":{"zone":"a"}}"#;
    seeds.write("store_join", [facts.as_bytes().to_vec()]);

    let listed = |frames: &[Vec<u8>]| -> Vec<u8> {
        frames.iter().flat_map(|frame| [&(frame.len() as u16).to_be_bytes()[..], frame].concat()).collect()
    };
    let mut manifest =
        [&b"SYSN\x01"[..], &1u64.to_be_bytes(), &77u64.to_be_bytes(), &5u64.to_be_bytes()].concat();
    let descriptor = &descriptors[1];
    manifest.extend((descriptor.len() as u32).to_be_bytes());
    manifest.extend_from_slice(descriptor);
    manifest.extend(1u32.to_be_bytes());
    manifest.extend([[0, 0, 0, 0, 0, 0, 9, 9], [0, 0, 0, 0, 0, 0, 0, 7], [1; 8]].concat());
    let offer = [
        &[0][..],
        &9u64.to_le_bytes(),
        &1u64.to_le_bytes(),
        &(message.len() as u32).to_le_bytes(),
        &message,
        &manifest,
    ]
    .concat();
    let data = [&[1][..], &[0; 12], &[7; 8], b"rows"].concat();
    let place = [&[2][..], &[1; 12]].concat();
    seeds.write(
        "snapshot_frames",
        [listed(&[offer, data, place, vec![4], b"\x05\x01no room".to_vec()]), manifest],
    );

    let bodies = [
        r#"{"change":"pin","data_weight":1.5,"leader_weight":null}"#,
        r#"{"store":2}"#,
        r#"{"change":"move-peer","from":1,"to":2}"#,
        "{}",
        r#"{"decision":"skip","index":7,"force":true}"#,
        r#"{"by_panic":true,"stores":[1,2]}"#,
        r#"{"policy":"alor"}"#,
        r#"{"name":"replicas","value":"3"}"#,
        r#"{"lost":[1,2],"regions":[3],"act":true}"#,
        r#"{"slow":10.5}"#,
        r#"{"region":7}"#,
        r#"{"history":true}"#,
        "Basic dXNlcjpwYXNz",
        "KEg$lshzxetdmn",
        "pubsub 1mb 10kb 5 normal 0 0 0",
        "",
        "zk1:2181,zk2:2181/root",
        "# region epoch lsn stands|votes\n1 5 7 stands\n2 6 8 votes\n",
        "",
        "READONLY MAXLAG 20 MAXENTRIES 7\r\nWAIT 1 1000\r\n",
    ];
    let numbered = bodies.iter().zip(0u8..).map(|(body, kind)| [&[kind][..], body.as_bytes()].concat());
    seeds.write("admin_request", numbered);
}

fn log(seeds: &Seeds) {
    let section =
        |kind: u8, region: u8, content: &[u8]| [&[kind, region, content.len() as u8][..], content].concat();
    let encoded = |record: Record| {
        let mut out = Vec::new();
        record.encode(&mut out);
        out
    };
    let state = LogState { truncated_index: 5, truncated_term: 5 };
    let descriptor = types::RegionDescriptor::founded(1, None, &[0, 1, 2]);
    let entries = [
        &6u64.to_be_bytes()[..],
        &5u64.to_be_bytes(),
        &2u32.to_be_bytes(),
        &[0, 0, 0, 0, 0, 0, 0, 0, 1, b'x'],
        &[1, 0, 0, 0, 1, 0, 0, 0, 0, b'c'],
    ]
    .concat();
    let hard_state = replica::HardState { term: 5, vote: Some(2), commit: 7 };
    let whole = [
        section(4, 1, &encoded(Record::Begun(state))),
        section(6, 1, &encoded(Record::Life(PeerLifecycle::Exists { descriptor, parent: None }))),
        section(0, 1, &entries),
        section(2, 1, &encoded(Record::HardState(hard_state))),
        section(3, 1, &encoded(Record::Truncated(LogState { truncated_index: 6, truncated_term: 5 }))),
        section(1, 1, &entries),
        section(8, 1, &encoded(Record::Cut(6))),
        section(7, 0, &encoded(Record::Value { name: b"n".to_vec(), value: Bytes::from_static(b"v") })),
        section(5, 1, b""),
    ]
    .concat();
    let damages =
        [vec![0, 1, 0, 70, 1, 4], vec![0, 2, 3, 0, 0, 0], vec![0, 0xf1, 4, 0, 1, 1, 3, 0, 90, 7, 7]];
    seeds.write("log_recovery", damages.into_iter().chain([[&[1][..], &whole].concat(), vec![2; 600]]));
}
