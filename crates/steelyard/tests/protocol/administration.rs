//! The commands that operators use: statistics, the slow log, pauses, checkpoints.

use std::time::Duration;

use resp::Reply;

use crate::connection::Connection;
use crate::script::assert_same;
use crate::servers::{redis, steelyard};

/// Time in which a reply would have come.
const NO_REPLY: Duration = Duration::from_millis(150);

#[test]
fn operators_commands_are_answered_as_redis_answers_them() {
    let Some(theirs) = redis(&[]) else { return };
    assert_same(
        &steelyard(&[]),
        &theirs,
        &[
            "CONFIG SET latency-tracking-info-percentiles abc\nCONFIG SET latency-tracking-info-percentiles 101",
            "CONFIG SET slowlog-log-slower-than -2\nCONFIG SET slowlog-log-slower-than x",
            "CONFIG SET slowlog-max-len -1\nCONFIG SET latency-monitor-threshold -1",
            "CONFIG SET latency-tracking maybe\nCONFIG GET latency-tracking\nCONFIG GET slowlog-max-len",
            "SLOWLOG GET -2\nSLOWLOG GET x\nSLOWLOG GET 1 2\nSLOWLOG LEN x\nSLOWLOG NOPE\nSLOWLOG RESET\nSLOWLOG LEN",
            "LATENCY LATEST\nLATENCY HISTORY command\nLATENCY GRAPH command\nLATENCY RESET\nLATENCY RESET a b",
            "LATENCY HISTOGRAM nosuch\nLATENCY NOPE\nLATENCY HISTORY",
            "ROLE\nWAIT 0 0\nWAIT x 0\nWAIT 0 x\nWAIT 0 -1\nWAIT 1 1\nSET a 1\nWAIT 0 0\nWAIT 1 1",
            "CLIENT PAUSE x\nCLIENT PAUSE -1\nCLIENT PAUSE 1 foo\nCLIENT PAUSE 0 write\nCLIENT UNPAUSE",
            "CLIENT PAUSE\nCLIENT PAUSE 1 all x\nCLIENT UNPAUSE x",
            "BGSAVE foo\nASKING\nMODULE LIST\nCLUSTER REPLICAS x\nCLUSTER LINKS\nMEMORY PURGE\nMODULE NOPE",
            "MULTI\nSAVE\nDISCARD\nMULTI\nWAIT 0 0\nROLE\nEXEC\nEVAL return_redis.call('save') 0",
        ],
    );
}

#[test]
fn thresholds_of_collections_are_set_and_shown_as_redis_does() {
    let Some(theirs) = redis(&[]) else { return };
    let refused = [
        "hash-max-listpack-entries -1",
        "hash-max-listpack-entries 99999999999999999999",
        "hash-max-listpack-entries 1kb",
        "hash-max-listpack-entries +7",
        "hash-max-ziplist-entries ''",
        "hash-max-listpack-value -1",
        "zset-max-listpack-value 9223372036854775808",
        "zset-max-ziplist-value abc",
        "set-max-intset-entries x",
        "list-max-listpack-size 3000000000",
        "list-max-ziplist-size x",
        "hash-max-listpack-entries 3 HASH-MAX-LISTPACK-ENTRIES 4",
        "hash-max-listpack-entries 3 nosuch 4",
        "timeout 7 hash-max-listpack-entries -1",
        "hash-max-listpack-entries 3 timeout -1",
        "hash-max-listpack-entries",
    ];
    let names =
        "hash-max-listpack-entries hash-max-ziplist-entries hash-max-listpack-value hash-max-ziplist-value \
        zset-max-listpack-entries zset-max-ziplist-entries zset-max-listpack-value zset-max-ziplist-value \
        set-max-intset-entries list-max-listpack-size list-max-ziplist-size";
    let shown: Vec<String> = names.split_whitespace().map(|name| format!("CONFIG GET {name}")).collect();
    let shown = shown.join("\n");
    let refused: Vec<String> = refused.iter().map(|pairs| format!("CONFIG SET {pairs}")).collect();
    let script = format!(
        "{shown}\n{}\n{shown}\nCONFIG GET timeout
        CONFIG SET Hash-Max-Ziplist-Value 1kb list-max-listpack-size -5 timeout 9
        CONFIG SET zset-max-listpack-entries 7 zset-max-ziplist-entries 9223372036854775807
        CONFIG GET timeout\nCONFIG GET HASH-max-listpack-value\n{shown}",
        refused.join("\n")
    );
    let ours = steelyard(&[]);
    assert_same(&ours, &theirs, &[&script]);
    let by_pattern =
        |server: &crate::servers::Server| match server.connect().call(&["CONFIG", "GET", "*-max-*list*"]) {
            Ok(Reply::Array(words)) => {
                let mut pairs: Vec<String> = words.chunks(2).map(|pair| format!("{pair:?}")).collect();
                pairs.sort();
                pairs
            }
            other => panic!("{other:?}"),
        };
    assert_eq!(by_pattern(&ours).len(), 10, "the old names, too");
    assert_eq!(by_pattern(&ours), by_pattern(&theirs));
}

/// Returns the arguments of the slow log's entries of commands on keys, newest first.
fn logged(connection: &mut Connection) -> Vec<Vec<String>> {
    let Reply::Array(entries) = connection.call(&["SLOWLOG", "GET", "-1"]).unwrap() else { panic!("no log") };
    let words = |entry: &Reply| {
        let Reply::Array(parts) = entry else { panic!("{entry:?}") };
        let (Reply::Array(args), Reply::Bulk(_), Reply::Bulk(name)) = (&parts[3], &parts[4], &parts[5])
        else {
            panic!("{parts:?}")
        };
        assert_eq!(name, "ops");
        let word = |arg: &Reply| match arg {
            Reply::Bulk(arg) => String::from_utf8_lossy(arg).into_owned(),
            other => panic!("{other:?}"),
        };
        args.iter().map(word).collect::<Vec<String>>()
    };
    let on_keys = ["set", "get", "incr", "eval", "lrange", "rpush", "mset", "acl", "config"];
    let is_on_keys = |args: &Vec<String>| on_keys.contains(&args[0].to_lowercase().as_str());
    entries.iter().map(words).filter(is_on_keys).collect()
}

#[test]
fn the_slow_log_shows_the_commands_that_redis_shows_and_no_secret() {
    let Some(theirs) = redis(&[]) else { return };
    let long = "x".repeat(500);
    let many: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    let log = |server: &crate::servers::Server| {
        let mut connection = server.connect();
        connection.call(&["CLIENT", "SETNAME", "ops"]).unwrap();
        connection.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).unwrap();
        connection.call(&["SET", "a", "1"]).unwrap();
        connection.call(&["GET", "a"]).unwrap();
        connection.call(&["SET", "long", &long]).unwrap();
        let many: Vec<&str> = std::iter::once("MSET").chain(many.iter().map(String::as_str)).collect();
        connection.call(&many).unwrap();
        connection.call(&["EVAL", "return 1", "1", "a"]).unwrap();
        for queued in [&["MULTI"][..], &["SET", "a", "3"], &["LRANGE", "l", "0", "1"], &["EXEC"]] {
            connection.call(queued).unwrap();
        }
        connection.call(&["LRANGE", "l", "0", "-1"]).unwrap();
        connection.call(&["ACL", "SETUSER", "who", ">secret"]).unwrap();
        connection.call(&["CONFIG", "SET", "requirepass", "secret"]).unwrap();
        let logged = logged(&mut connection);
        assert!(!format!("{logged:?}").contains("secret"), "{logged:?}");
        connection.call(&["CONFIG", "SET", "slowlog-max-len", "2"]).unwrap();
        assert_eq!(connection.call(&["SLOWLOG", "LEN"]).unwrap(), Reply::Int(2));
        logged
    };
    let (ours, theirs) = (log(&steelyard(&[])), log(&theirs));
    assert_eq!(ours.len(), 11);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // Redis shows the name of a user, and hides the rules.
        assert_eq!(
            ours.iter().map(|arg| arg.to_lowercase()).collect::<Vec<_>>(),
            theirs.iter().map(|arg| arg.to_lowercase()).collect::<Vec<_>>()
        );
    }
}

/// Returns the lines of a section of `INFO` about these commands or codes, without the times.
pub fn counts(connection: &mut Connection, section: &str, names: &[&str]) -> Vec<String> {
    let text = match connection.call(&["INFO", section]).unwrap() {
        Reply::Bulk(text) | Reply::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(&format!("{name}:"))))
        .map(|line| {
            let fields = line.split(',').filter(|field| !field.starts_with("usec"));
            fields.collect::<Vec<_>>().join(",")
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn commands_and_errors_are_counted_as_redis_counts_them() {
    let Some(theirs) = redis(&[]) else { return };
    let count = |server: &crate::servers::Server| {
        let mut connection = server.connect();
        connection.call(&["CONFIG", "RESETSTAT"]).unwrap();
        for line in [
            "SET a x",
            "SET a y",
            "GET a",
            "GET",
            "INCR a",
            "LPUSH a 1",
            "NOSUCH",
            "SET a",
            "HGET a f",
            "MULTI",
            "GET a",
            "INCR c",
            "EXEC",
            "CONFIG GET port",
            "EVAL return_x 0",
            "EVAL return_1 0",
            "OBJECT ENCODING a",
            "PFADD h 1",
            "CLIENT NOPE",
        ] {
            let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let _ = connection.call(&words).unwrap();
        }
        let commands = [
            "cmdstat_set",
            "cmdstat_get",
            "cmdstat_incr",
            "cmdstat_lpush",
            "cmdstat_hget",
            "cmdstat_multi",
            "cmdstat_exec",
            "cmdstat_config|get",
            "cmdstat_object|encoding",
            "cmdstat_pfadd",
            "cmdstat_eval",
        ];
        let mut lines = counts(&mut connection, "commandstats", &commands);
        lines.extend(counts(&mut connection, "errorstats", &["errorstat_ERR", "errorstat_WRONGTYPE"]));
        connection.call(&["CONFIG", "RESETSTAT"]).unwrap();
        assert_eq!(counts(&mut connection, "commandstats", &["cmdstat_set"]), Vec::<String>::new());
        let totals = counts(
            &mut connection,
            "stats",
            &["total_connections_received", "total_error_replies", "rejected_connections"],
        );
        assert_eq!(totals.len(), 3, "{totals:?}");
        lines.extend(totals);
        // The commands since the reset, give or take those whose count is not read yet.
        let commands = counts(&mut connection, "stats", &["total_commands_processed"]);
        let commands: u64 = commands[0].trim_start_matches("total_commands_processed:").parse().unwrap();
        assert!(commands <= 4, "{commands}");
        lines
    };
    assert_eq!(count(&steelyard(&[])), count(&theirs));
}

#[test]
fn histograms_have_every_execution() {
    let server = steelyard(&[]);
    let mut connection = server.connect();
    for number in 0..100 {
        connection.call(&["SET", "a", &number.to_string()]).unwrap();
    }
    let Reply::Array(rows) = connection.call(&["LATENCY", "HISTOGRAM", "set", "get"]).unwrap() else {
        panic!("no histogram")
    };
    assert_eq!(rows[0], Reply::bulk("set"));
    let Reply::Array(of_set) = &rows[1] else { panic!("{rows:?}") };
    assert_eq!(of_set[1], Reply::Int(100));
    let Reply::Array(buckets) = &of_set[3] else { panic!("{of_set:?}") };
    assert_eq!(buckets.last(), Some(&Reply::Int(100)), "{buckets:?}");
    let lines = counts(&mut connection, "latencystats", &["latency_percentiles_usec_set"]);
    assert!(lines[0].contains("p99.9="), "{lines:?}");
    connection.call(&["CONFIG", "SET", "latency-tracking", "no"]).unwrap();
    assert_eq!(connection.call(&["LATENCY", "HISTOGRAM", "set"]).unwrap(), Reply::Array(vec![]));
}

#[test]
fn a_pause_holds_writes_or_everything_until_it_ends() {
    let server = steelyard(&[]);
    let [mut operator, mut writer, mut reader] = [(); 3].map(|()| server.connect());
    let sends = |connection: &mut Connection, words: &[&str]| {
        let mut bytes = bytes::BytesMut::new();
        resp::encode_request(words, &mut bytes);
        connection.send(&bytes).unwrap();
    };
    writer.call(&["SET", "a", "before"]).unwrap();
    operator.call(&["CLIENT", "PAUSE", "3600000", "WRITE"]).unwrap();
    sends(&mut writer, &["SET", "a", "after"]);
    sends(&mut writer, &["GET", "a"]);
    assert_eq!(writer.reply_within(NO_REPLY).unwrap(), None);
    // A held command does not hold the replies before it.
    let mut both = server.connect();
    let mut bytes = bytes::BytesMut::new();
    resp::encode_request(&["GET", "a"], &mut bytes);
    resp::encode_request(&["SET", "b", "1"], &mut bytes);
    both.send(&bytes).unwrap();
    assert_eq!(both.reply().unwrap(), Reply::bulk("before"));
    assert_eq!(both.reply_within(NO_REPLY).unwrap(), None);
    for words in [&["GET", "a"][..], &["EVAL_RO", "return redis.call('get', 'a')", "0"]] {
        assert_eq!(reader.call(words).unwrap(), Reply::bulk("before"));
    }
    for words in [&["MULTI"][..], &["GET", "a"]] {
        reader.call(words).unwrap();
    }
    assert_eq!(reader.call(&["EXEC"]).unwrap(), Reply::Array(vec![Reply::bulk("before")]));
    for words in [&["PUBLISH", "c", "x"][..], &["EVAL", "return 1", "0"]] {
        let mut held = server.connect();
        sends(&mut held, words);
        assert_eq!(held.reply_within(NO_REPLY).unwrap(), None, "{words:?}");
    }
    operator.call(&["CLIENT", "UNPAUSE"]).unwrap();
    assert_eq!(writer.reply().unwrap(), Reply::OK);
    assert_eq!(writer.reply().unwrap(), Reply::bulk("after"));
    // A pause of everything ends by itself.
    operator.call(&["CLIENT", "PAUSE", "300"]).unwrap();
    sends(&mut reader, &["GET", "a"]);
    assert_eq!(reader.reply_within(NO_REPLY).unwrap(), None);
    assert_eq!(reader.reply().unwrap(), Reply::bulk("after"));
}

#[test]
fn a_checkpoint_is_a_flush() {
    let server = steelyard(&[]);
    let mut connection = server.connect();
    let Reply::Int(before) = connection.call(&["LASTSAVE"]).unwrap() else { panic!("no time") };
    for number in 0..1000 {
        connection.call(&["SET", &format!("key{number}"), &"x".repeat(1000)]).unwrap();
    }
    assert_eq!(connection.call(&["SAVE"]).unwrap(), Reply::OK);
    let dirty = counts(&mut connection, "memory", &["mem_rows_dirty"]);
    assert_eq!(dirty, ["mem_rows_dirty:0"]);
    let Reply::Int(after) = connection.call(&["LASTSAVE"]).unwrap() else { panic!("no time") };
    assert!(after >= before);
    let begun = connection.call(&["BGSAVE"]).unwrap();
    assert_eq!(begun, Reply::Simple("Background saving started".into()));
}

#[test]
fn settings_that_are_rewritten_are_those_of_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.toml");
    std::fs::write(&path, "# Ours.\nmaxclients = 50 # few\n").unwrap();
    let flags = ["--config", path.to_str().unwrap()];
    let shown = |connection: &mut Connection| {
        let names = ["maxclients", "timeout", "rocksdb.block_size"];
        names.map(|name| connection.call(&["CONFIG", "GET", name]).unwrap())
    };
    let server = steelyard(&flags);
    let mut connection = server.connect();
    let before = std::fs::read_to_string(&path).unwrap();
    assert_eq!(connection.call(&["CONFIG", "REWRITE"]).unwrap(), Reply::OK);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before, "nothing was changed");
    let set = ["CONFIG", "SET", "maxclients", "70", "timeout", "600", "rocksdb.block_size", "16384"];
    assert_eq!(connection.call(&set).unwrap(), Reply::OK);
    let changed = shown(&mut connection);
    assert_eq!(connection.call(&["CONFIG", "REWRITE"]).unwrap(), Reply::OK);
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.starts_with("# Ours.\nmaxclients = 70 # few\ntimeout = 600\n"), "{written}");
    drop(server);
    let server = steelyard(&flags);
    assert_eq!(shown(&mut server.connect()), changed);
    std::fs::remove_file(&path).unwrap();
    let reply = server.connect().call(&["CONFIG", "REWRITE"]).unwrap();
    assert_eq!(reply, Reply::error("ERR Rewriting config file: No such file or directory (os error 2)"));
}

#[test]
fn commands_without_a_place_here_are_refused_with_what_to_do_instead() {
    let server = steelyard(&[]);
    let mut connection = server.connect();
    for (words, hint) in [
        (&["REPLICAOF", "NO", "ONE"][..], "ctl move-peer"),
        (&["FAILOVER"], "ctl move-leader"),
        (&["CLUSTER", "MEET", "127.0.0.1", "1"], "--join"),
        (&["CLUSTER", "FORGET", "x"], "ctl store remove"),
        (&["CONFIG", "REWRITE"], "running without a config file"),
    ] {
        match connection.call(words).unwrap() {
            Reply::Error(text) => {
                let name = words[..words.len().min(2)].join(" ").to_uppercase();
                assert!(text.starts_with("ERR ") && text.contains(hint), "{name}: {text}");
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }
}
