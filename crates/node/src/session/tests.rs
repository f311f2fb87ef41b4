use types::{Draw, RegionId};

use super::*;
use crate::bounded_staleness::MaxLag;

/// A cluster of two regions: keys that begin with `a` are in region 1, others in region 2. Region 9
/// is led by another store.
struct Two {
    own_later: bool,
    /// The keys that the client may cache.
    reads: Vec<Bytes>,
}

impl Host for Two {
    type Region = RegionId;

    fn has_slots(&self) -> bool {
        true
    }

    fn route(&mut self, context: &Context, item: &Item) -> Route<RegionId> {
        let mut keys = command::keys_of(item.spec, &item.args).map(|(key, _)| key);
        match keys.next().and_then(|key| key.first()) {
            None => Route::Alone,
            Some(b'a') => Route::Region(1),
            Some(b'm') => Route::Answered(Reply::error("MOVED 1 elsewhere")),
            Some(b'w') if context.read_only && !item.is_write() => Route::Weak(9),
            Some(b'w') => Route::Region(9),
            Some(_) => Route::Region(2),
        }
    }

    fn may_copy_much(&self, item: &Item) -> bool {
        item.args[1].ends_with(b"large")
    }

    fn reads(&mut self, keys: &[Bytes]) {
        self.reads.extend_from_slice(keys);
    }

    fn own(
        &mut self,
        context: &mut Context,
        command: ServerCommand,
        _: &'static CommandSpec,
        args: &[Bytes],
    ) -> Own {
        match command {
            ServerCommand::Ping => Own::Reply(Reply::Simple("PONG".into())),
            ServerCommand::Info if self.own_later => Own::Later,
            ServerCommand::Subscribe(_) => {
                context.is_subscriber = true;
                Own::Several(args[1..].iter().map(|name| Reply::Bulk(name.clone()).into()).collect())
            }
            ServerCommand::Client(command::ClientCommand::Tracking) => {
                let words: Vec<&[u8]> = args[2..].iter().map(|word| &word[..]).collect();
                context.caching = match words[..] {
                    [b"on"] => Caching::All,
                    [b"on", b"optin"] => Caching::OptIn,
                    _ => Caching::Off,
                };
                Own::Reply(Reply::OK)
            }
            ServerCommand::Client(command::ClientCommand::Caching) => {
                context.caching = Caching::Next { yes: true };
                Own::Reply(Reply::OK)
            }
            ServerCommand::Hello => {
                context.protocol = Protocol::Resp3;
                Own::Reply(Reply::Map(Vec::new()))
            }
            ServerCommand::Auth => {
                context.authenticated = true;
                Own::Reply(Reply::OK)
            }
            ServerCommand::ReadOnly => {
                context.read_only = true;
                let nanos = args.get(1).map(|nanos| std::str::from_utf8(nanos).unwrap().parse().unwrap());
                context.max_lag = nanos.map(|nanos| MaxLag { nanos, entries: None });
                Own::Reply(Reply::OK)
            }
            ServerCommand::Quit => {
                context.closing = true;
                Own::Reply(Reply::OK)
            }
            _ => Own::Reply(Reply::bulk(args[0].clone())),
        }
    }
}

struct Client {
    session: Session<RegionId>,
    host: Two,
    asks: Vec<Ask<RegionId>>,
}

impl Client {
    fn new() -> Client {
        Client {
            session: Session::new(Limits::default(), false),
            host: Two { own_later: false, reads: Vec::new() },
            asks: Vec::new(),
        }
    }

    fn sends(&mut self, lines: &[&str]) -> Vec<String> {
        for line in lines {
            self.session.received(format!("{line}\r\n").as_bytes());
        }
        self.goes_on()
    }

    /// Lets the session continue, and returns a description of its new asks.
    fn goes_on(&mut self) -> Vec<String> {
        let before = self.asks.len();
        loop {
            self.session.decode();
            if !self.session.can_advance() {
                break;
            }
            self.session.advance(&mut self.host, &mut self.asks);
        }
        self.asks[before..].iter().map(described).collect()
    }

    /// Answers the first `count` commands of ask `number` (counted from 0), each with its key.
    fn answers(&mut self, number: usize, count: usize) -> Vec<String> {
        self.answers_only(number, count);
        self.goes_on()
    }

    fn answers_only(&mut self, number: usize, count: usize) {
        let answers = match &self.asks[number].part {
            Part::Commands { items, .. } => {
                items.iter().take(count).map(|item| Reply::bulk(item.args[1].clone()).into()).collect()
            }
            Part::Alone(_) | Part::Blocking(_) | Part::Copying(_) | Part::Own { .. } => {
                vec![Reply::OK.into(); count]
            }
            Part::Release(_) => return,
        };
        self.session.answered(self.asks[number].number, answers);
    }

    fn reads(&mut self) -> String {
        let text = String::from_utf8(self.session.output().to_vec()).unwrap();
        self.session.written(text.len());
        text.replace("\r\n", " ").trim_end().to_owned()
    }
}

fn described(ask: &Ask<RegionId>) -> String {
    match &ask.part {
        Part::Commands { region, kind, items } => {
            let words = |item: &Item| {
                let words: Vec<_> = item.args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
                words.join(" ")
            };
            format!("{region} {kind:?}: {}", items.iter().map(words).collect::<Vec<_>>().join(", "))
        }
        Part::Alone(item) => format!("alone: {}", item.spec.name),
        Part::Blocking(item) => format!("blocking: {}", item.spec.name),
        Part::Copying(item) => format!("copying: {}", item.spec.name),
        Part::Release(item) => format!("release: {}", item.args.len()),
        Part::Own { command, .. } => format!("own: {command:?}").to_lowercase(),
    }
}

#[test]
fn parts_of_different_regions_are_asked_for_at_once_and_replies_keep_the_order_of_commands() {
    let mut client = Client::new();
    let asks = client.sends(&["set b 1", "ping", "set a 1", "set b2 1"]);
    assert_eq!(asks, ["2 Writes: set b 1, set b2 1", "1 Writes: set a 1"]);
    assert!(client.answers(1, 1).is_empty());
    assert_eq!(client.reads(), "", "the first command has no answer yet");
    client.answers(0, 2);
    assert_eq!(client.reads(), "$1 b +PONG $1 a $2 b2");
    assert!(client.session.is_idle());
    assert_eq!(client.session.take_answered(), 4);
}

#[test]
fn a_write_waits_for_reads_before_it_and_short_reads_follow_a_write_in_its_entry() {
    let mut client = Client::new();
    assert_eq!(client.sends(&["get b", "set b 1", "get b", "hgetall b"]), ["2 Reads: get b"]);
    assert_eq!(client.answers(0, 1), ["2 Writes: set b 1, get b"]);
    assert_eq!(client.answers(1, 2), ["2 Reads: hgetall b"]);
    client.answers(2, 1);
    assert_eq!(client.reads(), "$1 b $1 b $1 b $1 b");
}

#[test]
fn commands_that_arrive_while_others_wait_are_not_taken() {
    let mut client = Client::new();
    assert_eq!(client.sends(&["set a 1"]).len(), 1);
    assert!(client.sends(&["set a 2"]).is_empty());
    assert_eq!(client.answers(0, 1), ["1 Writes: set a 2"]);
}

#[test]
fn reads_that_were_left_out_are_asked_for_again_and_never_writes() {
    let mut client = Client::new();
    client.sends(&["get a1", "get a2", "get a3"]);
    assert_eq!(client.answers(0, 1), ["1 Reads: get a2, get a3"]);
    client.answers(1, 2);
    assert_eq!(client.reads(), "$2 a1 $2 a2 $2 a3");
    client.sends(&["set a1 1", "set a2 1"]);
    client.answers(2, 1);
    assert_eq!(client.reads(), "$2 a1 -ERR internal error: a command got no reply");
}

#[test]
fn so_many_reads_are_asked_for_as_their_replies_are_likely_to_fit() {
    let mut client = Client::new();
    let lines: Vec<String> = (0..40).map(|n| format!("get a{n}")).collect();
    client.sends(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let part = |ask: &Ask<RegionId>| match &ask.part {
        Part::Commands { items, .. } => items.len(),
        _ => 0,
    };
    assert_eq!(part(&client.asks[0]), READS_FIRST);
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    let answers = vec![Reply::Bulk(large).into(); READS_FIRST];
    client.session.answered(0, answers);
    client.goes_on();
    let mut read = 0;
    while client.session.is_output_full() {
        let bytes = client.session.output().len();
        assert!(bytes < OUTPUT_BYTES_MAX + (1 << 20) + 32, "at most one reply beyond the limit");
        read += bytes;
        client.session.written(bytes);
        client.goes_on();
    }
    assert!(read > 15 << 20);
    assert_eq!(part(&client.asks[1]), 3, "of a megabyte each");
}

#[test]
fn an_output_may_take_more_than_a_session_has_by_itself_if_it_is_allowed() {
    let mut client = Client::new();
    client.session.allow_output(3 << 20);
    let lines: Vec<String> = (0..READS_FIRST).map(|n| format!("get a{n}")).collect();
    client.sends(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    client.session.answered(0, vec![Reply::Bulk(large).into(); READS_FIRST]);
    client.goes_on();
    let bytes = client.session.output_bytes();
    assert!(client.session.is_output_full() && (3 << 20..(4 << 20) + 100).contains(&bytes), "{bytes}");
    client.session.allow_output(0);
    client.session.written(client.session.output().len());
    while client.session.output_bytes() >= OUTPUT_BYTES_MAX {
        assert!(client.session.is_output_full());
        client.session.written(client.session.output().len());
    }
    assert!(!client.session.is_output_full());
}

#[test]
fn a_command_for_no_single_region_is_carried_out_alone_and_in_its_place() {
    let mut client = Client::new();
    assert_eq!(client.sends(&["set a 1", "dbsize", "set a 2"]), ["1 Writes: set a 1"]);
    assert_eq!(client.answers(0, 1), ["alone: dbsize"]);
    assert_eq!(client.answers(1, 1), ["1 Writes: set a 2"]);
    client.answers(2, 1);
    assert_eq!(client.reads(), "$1 a +OK $1 a");
}

#[test]
fn commands_of_the_stores_own_wait_where_they_must_be_true_after_what_came_before() {
    let mut client = Client::new();
    client.host.own_later = true;
    assert_eq!(client.sends(&["set a 1", "info", "ping"]), ["1 Writes: set a 1"]);
    assert_eq!(client.answers(0, 1), ["own: info"]);
    client.answers(1, 1);
    assert_eq!(client.reads(), "$1 a +OK +PONG");
}

#[test]
fn a_reply_has_the_protocol_that_held_after_its_command() {
    let mut client = Client::new();
    client.sends(&["get a", "hello 3", "get a2"]);
    client.session.answered(0, vec![Reply::Nil.into(), Reply::Nil.into()]);
    client.goes_on();
    assert_eq!(client.reads(), "$-1 %0 _");
}

#[test]
fn nothing_is_carried_out_behind_quit_or_behind_what_is_no_request() {
    let mut client = Client::new();
    assert_eq!(client.sends(&["set a 1", "quit", "set a 2"]), ["1 Writes: set a 1"]);
    assert!(client.answers(0, 1).is_empty());
    assert_eq!(client.reads(), "$1 a +OK");
    assert!(client.session.has_ended());

    let mut client = Client::new();
    client.session.received(b"set a 1\r\n*1\r\n:1\r\nset a 2\r\n");
    assert_eq!(client.goes_on(), ["1 Writes: set a 1"]);
    client.answers(0, 1);
    assert_eq!(client.reads(), "$1 a -ERR Protocol error: expected '$', got ':'");
    assert!(client.session.has_ended());
    assert!(client.sends(&["set a 3"]).is_empty());
}

#[test]
fn without_a_password_nothing_is_told_and_only_one_command_is_read_at_a_time() {
    let mut client = Client::new();
    client.session = Session::new(Limits::default(), true);
    assert!(client.sends(&["get a", "nonsense", "auth x", "get a"]).len() == 1);
    client.answers(0, 1);
    let no = "-NOAUTH Authentication required.";
    assert_eq!(client.reads(), format!("{no} {no} +OK $1 a"));
}

#[test]
fn weak_reads_become_strong_behind_what_the_connection_sent_to_the_region() {
    let mut client = Client::new();
    client.sends(&["readonly"]);
    assert_eq!(client.sends(&["get w1", "get w2"]), ["9 Weak(None): get w1, get w2"]);
    client.answers(0, 2);
    assert_eq!(client.sends(&["set w1 1", "get w1"]), ["9 Writes: set w1 1, get w1"]);
    client.answers(1, 2);
    assert_eq!(client.sends(&["get w1", "set w1 1"]), ["9 Weak(None): get w1"]);
    assert_eq!(client.answers(2, 1), ["9 Writes: set w1 1"]);
}

#[test]
fn weak_reads_with_another_bound_wait_for_those_before_them() {
    let mut client = Client::new();
    client.sends(&["readonly 5"]);
    let bounded = |nanos| format!("Weak({:?})", Some(MaxLag { nanos, entries: None }));
    let first = client.sends(&["get w1", "get w2", "readonly 7", "get w3"]);
    assert_eq!(first, [format!("9 {}: get w1, get w2", bounded(5))]);
    assert_eq!(client.answers(0, 2), [format!("9 {}: get w3", bounded(7))]);
}

#[test]
fn an_answer_that_comes_twice_or_for_nothing_is_ignored() {
    let mut client = Client::new();
    client.sends(&["set a 1"]);
    client.answers(0, 1);
    client.answers(0, 1);
    client.session.answered(77, vec![Reply::OK.into()]);
    assert_eq!(client.reads(), "$1 a");
}

#[test]
fn an_idle_session_holds_no_buffers() {
    let mut client = Client::new();
    client.sends(&["set a 1"]);
    assert!(client.session.held_bytes() > 0);
    client.answers(0, 1);
    client.reads();
    assert_eq!(client.session.held_bytes(), 0);
}

/// A command of a random session, as the executor records it.
struct Command {
    position: u64,
    region: RegionId,
    is_write: bool,
}

fn commands_of(ask: &Ask<RegionId>) -> Vec<Command> {
    let Part::Commands { region, items, .. } = &ask.part else { return Vec::new() };
    let command = |item: &Item| {
        let name = std::str::from_utf8(&item.args[1]).unwrap();
        let position = name.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap();
        Command { position, region: *region, is_write: item.is_write() }
    };
    items.iter().map(command).collect()
}

/// Runs random pipelines in random pieces, with partial answers in random order. Each command's key
/// names its position and is its answer.
#[test]
fn whatever_the_order_of_answers_replies_keep_theirs_and_no_command_overtakes_one_that_it_depends_on() {
    for seed in 0..2000 {
        let mut draw = Draw::new(seed);
        let mut client = Client::new();
        client.host.own_later = draw.below(2) == 0;
        let count = 1 + draw.below(60);
        let mut sent = Vec::new();
        let mut expected = String::new();
        for position in 0..count {
            let (line, reply) = match draw.below(12) {
                0 => ("ping".into(), "+PONG ".into()),
                1 => ("dbsize".into(), "+OK ".into()),
                2 if client.host.own_later => ("info".into(), "+OK ".into()),
                2 => ("readonly".into(), "+OK ".into()),
                3 => (format!("get m{position}"), "-MOVED 1 elsewhere ".into()),
                kind => {
                    let name = ["set", "get", "hgetall"][draw.below(3) as usize];
                    let key = format!("{}{position}", ["a", "b", "w"][kind as usize % 3]);
                    let value = if name == "set" { " 1" } else { "" };
                    (format!("{name} {key}{value}"), format!("${} {key} ", key.len()))
                }
            };
            sent.extend_from_slice(format!("{line}\r\n").as_bytes());
            expected += &reply;
        }
        let mut got = String::new();
        // For each position: true if the command was answered, and the number of its executions.
        let mut answered = vec![false; count as usize];
        let mut carried_out = vec![0; count as usize];
        let mut open: Vec<usize> = Vec::new();
        while got.len() < expected.trim_end().len() {
            if !sent.is_empty() {
                let piece: Vec<u8> = sent.drain(..sent.len().min(1 + draw.below(40) as usize)).collect();
                client.session.received(&piece);
            }
            let before = client.asks.len();
            client.goes_on();
            for (at, ask) in client.asks.iter().enumerate().skip(before) {
                for command in commands_of(ask) {
                    // All earlier commands of its region are answered, unless both are reads or
                    // they are in the same part.
                    let own: Vec<u64> = commands_of(ask).iter().map(|other| other.position).collect();
                    for other in client.asks.iter().take(at + 1).flat_map(commands_of) {
                        let depends = other.region == command.region && (other.is_write || command.is_write);
                        let is_before = other.position < command.position;
                        let in_part = own.contains(&other.position);
                        assert!(!(depends && is_before) || in_part || answered[other.position as usize]);
                    }
                    assert!(own.windows(2).all(|pair| pair[0] < pair[1]));
                }
                open.push(at);
            }
            if !open.is_empty() && draw.below(3) > 0 {
                let at = open.swap_remove(draw.below(open.len() as u64) as usize);
                let commands = commands_of(&client.asks[at]);
                let is_partial = commands.iter().all(|command| !command.is_write) && draw.below(2) == 0;
                let some = if is_partial { 1 + draw.below(commands.len().max(1) as u64) } else { u64::MAX };
                let some = (some as usize).min(commands.len().max(1));
                for command in commands.iter().take(some) {
                    answered[command.position as usize] = true;
                    carried_out[command.position as usize] += 1;
                }
                client.answers_only(at, some);
            }
            got += &client.reads();
            if !got.is_empty() && !got.ends_with(' ') {
                got.push(' ');
            }
            assert!(expected.starts_with(&got), "seed {seed}: {got} is not the beginning of {expected}");
        }
        assert!(client.session.is_idle() && carried_out.iter().all(|times| *times <= 1), "seed {seed}");
        assert_eq!(client.session.take_answered(), count, "seed {seed}");
    }
}

/// A page in a browser can send requests to any port.
#[test]
fn a_request_of_http_ends_the_connection_before_its_body() {
    for request in
        ["POST / HTTP/1.1\r\nSET a 1\r\n", "GET a\r\nhost: x\r\n\r\nSET a 1\r\n", "MULTI\r\nPost x\r\n"]
    {
        let mut client = Client::new();
        client.session.received(request.as_bytes());
        let asks = client.goes_on();
        assert!(asks.iter().all(|ask| !ask.contains("SET")), "{request:?}: {asks:?}");
        assert!(client.session.context().closing, "{request:?}");
    }
}

/// Other clients wait while the commands of one batch are executed.
#[test]
fn a_pipeline_of_commands_with_many_arguments_is_taken_in_batches() {
    let members = |count: usize| (0..count).map(|number| format!("m{number}")).collect::<Vec<_>>().join(" ");
    for (arguments, sent, taken) in [(2, 600, 512), (5, 600, 410), (500, 20, 5), (5000, 3, 1)] {
        let mut client = Client::new();
        let line = format!("SADD a {}", members(arguments - 2));
        let line = if arguments == 2 { "GET a".to_owned() } else { line };
        client.session.received(format!("{line}\r\n").repeat(sent).as_bytes());
        assert_eq!(client.session.decode(), taken, "{sent} commands of {arguments} arguments");
        let mut answered = 0;
        let mut asks = client.goes_on().len();
        for number in 0.. {
            let Some(ask) = client.asks.get(number) else { break };
            let Part::Commands { items, .. } = &ask.part else { panic!("commands were expected") };
            answered += items.len();
            let count = items.len();
            asks += client.answers(number, count).len();
        }
        assert_eq!((answered, asks), (sent, client.asks.len()), "all are taken in the end");
    }
}

#[test]
fn the_buffer_of_a_very_large_request_grows_a_part_at_a_time() {
    const READ: usize = 64 << 10;
    let value = vec![b'v'; 9 << 20];
    let mut request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    let mut client = Client::new();
    let mut parts = 0;
    for piece in request.chunks(READ) {
        client.goes_on();
        while !client.session.make_room(READ) {
            parts += 1;
            assert_eq!(client.session.decode(), 0, "what is being copied is decoded no further");
        }
        let before = client.session.held_bytes();
        client.session.received(piece);
        assert!(client.session.held_bytes() <= before.max(3 * PIECE_BYTES), "it grows by parts only");
    }
    assert!((8..20).contains(&parts), "{parts} parts");
    assert!(client.session.held_bytes() < request.len() + 4 * READ, "no more than is needed");
    client.goes_on();
    let Part::Commands { items, .. } = &client.asks[0].part else { panic!("a command was expected") };
    assert!(items[0].args[2] == value);
}

/// Returns the log's arguments of an ask, shortened.
fn in_log(ask: &Ask<RegionId>) -> Vec<String> {
    let item = match &ask.part {
        Part::Commands { items, .. } => &items[0],
        Part::Alone(item) | Part::Blocking(item) | Part::Copying(item) | Part::Release(item) => item,
        Part::Own { .. } => panic!("not a command of the log"),
    };
    item.args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

fn watches(client: &mut Client, key: &str, number: i64) {
    let at = client.asks.len();
    client.sends(&[&format!("watch {key}")]);
    client.session.answered(client.asks[at].number, vec![Reply::Array(vec![Reply::Int(number)]).into()]);
    client.goes_on();
    assert_eq!(client.reads(), "+OK");
}

#[test]
fn a_transaction_on_keys_is_gathered_like_a_command() {
    let mut client = Client::new();
    let asks = client.sends(&["set a 1", "multi", "set a 2", "get a", "exec", "set a 3"]);
    assert_eq!(asks.len(), 1, "one entry has them all");
    let Part::Commands { items, kind, .. } = &client.asks[0].part else { panic!("no commands") };
    assert_eq!((items.len(), *kind), (3, Kind::Writes));
    assert_eq!(items[1].spec.name, "exec");
    assert_eq!(client.reads(), "");
    client
        .session
        .answered(0, vec![Reply::OK.into(), Reply::Array(vec![Reply::OK]).into(), Reply::OK.into()]);
    client.goes_on();
    assert_eq!(client.reads(), "+OK +OK +QUEUED +QUEUED *1 +OK +OK");
}

#[test]
fn the_store_s_own_commands_follow_the_region_s_part_and_only_if_it_was_executed() {
    let lines = ["multi", "ping", "set a 1", "select 3", "get a", "exec", "ping"];
    let mut client = Client::new();
    assert_eq!(client.sends(&lines).len(), 1);
    let replies = Reply::Array(vec![Reply::OK, Reply::bulk("1")]);
    client.session.answered(0, vec![replies.into()]);
    client.goes_on();
    assert!(client.reads().ends_with("*4 +PONG +OK $6 select $1 1 +PONG"));
    for (answer, expected) in [
        (Reply::NilArray, "*-1 +PONG"),
        (Reply::Nil, "*-1 +PONG"),
        (Reply::error("UNKNOWN outcome"), "-UNKNOWN outcome +PONG"),
    ] {
        let mut client = Client::new();
        client.sends(&lines);
        client.session.answered(0, vec![answer.into()]);
        client.goes_on();
        assert!(client.reads().ends_with(expected));
    }
}

#[test]
fn a_large_copy_is_alone_between_the_commands_before_and_after_it() {
    let mut client = Client::new();
    let asks = client.sends(&["set a 1", "rename a b", "copy alarge b", "get a", "copy mlarge b"]);
    assert_eq!(asks, ["1 Writes: set a 1, rename a b"]);
    assert_eq!(client.answers(0, 2), ["copying: copy"]);
    assert!(client.goes_on().is_empty(), "nothing overtakes it");
    assert_eq!(client.answers(1, 1), ["1 Reads: get a"]);
    client.answers(2, 1);
    assert!(client.reads().ends_with("-MOVED 1 elsewhere"));
}

#[test]
fn commands_that_cluster_mode_does_not_allow_are_queued_and_fail() {
    let mut client = Client::new();
    assert_eq!(client.sends(&["multi", "move a 1", "get a", "copy a a1 db 2", "exec"]).len(), 1);
    let Part::Commands { items, .. } = &client.asks[0].part else { panic!("no commands") };
    assert_eq!(items[0].args.iter().filter(|arg| **arg == "a").count(), 1);
    client.session.answered(0, vec![Reply::Array(vec![Reply::bulk("1")]).into()]);
    client.goes_on();
    let (moved, copied) = ("ERR MOVE is not allowed", "ERR Copying to another database is not allowed");
    let all = client.reads();
    let expected = format!("*3 -{moved} in cluster mode $1 1 -{copied} in cluster mode");
    assert!(all.ends_with(&expected), "{all}");
}

#[test]
fn a_command_of_the_store_may_answer_later_within_a_transaction() {
    let mut client = Client::new();
    client.host.own_later = true;
    let asks = client.sends(&["multi", "info", "ping", "exec", "ping"]);
    assert_eq!(asks, ["own: info"]);
    assert_eq!(client.reads(), "+OK +QUEUED +QUEUED");
    client.answers(0, 1);
    assert_eq!(client.reads(), "*2 +OK +PONG +PONG");
}

#[test]
fn watches_are_numbered_by_the_region_and_go_with_the_transaction() {
    let mut client = Client::new();
    watches(&mut client, "a", 77);
    assert!(client.sends(&["watch a a"]).is_empty(), "the key is watched already");
    assert_eq!(client.reads(), "+OK");
    client.sends(&["multi", "get a", "exec"]);
    let stamp = &client.asks.last().map(in_log).unwrap()[3];
    assert_eq!(stamp.as_bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 77]);
    let number = client.asks.last().unwrap().number;
    client.session.answered(number, vec![Reply::NilArray.into()]);
    assert!(client.goes_on().is_empty(), "the region released the watches");
    assert_eq!(client.reads(), "+OK +QUEUED *-1");
    assert!(client.session.take_watches(true).is_none());
}

#[test]
fn watches_are_released_when_nothing_is_executed() {
    for lines in [
        &["unwatch"][..],
        &["multi", "discard"],
        &["multi", "nosuch", "exec"],
        &["exec x"],
        &["multi", "get m", "exec"],
        &["reset"],
    ] {
        let mut client = Client::new();
        watches(&mut client, "a", 1);
        let asks = client.sends(lines);
        assert_eq!(asks, ["release: 3"], "{lines:?}");
        assert!(client.session.take_watches(true).is_none());
    }
    let mut client = Client::new();
    watches(&mut client, "a", 1);
    assert_eq!(client.session.take_watches(true).unwrap().args.len(), 3);
    // A refused EXEC may have left them.
    watches(&mut client, "a", 2);
    client.sends(&["multi", "exec"]);
    let number = client.asks.last().unwrap().number;
    client.session.answered(number, vec![Reply::error("CLUSTERDOWN").into()]);
    assert_eq!(client.goes_on(), ["release: 3"]);
    assert_eq!(client.reads(), "+OK -CLUSTERDOWN");
}

#[test]
fn keys_of_a_transaction_and_its_watches_share_a_slot() {
    let mut client = Client::new();
    watches(&mut client, "a", 1);
    assert!(client.sends(&["watch b"]).is_empty());
    assert!(client.reads().starts_with("-CROSSSLOT "));
    client.sends(&["multi", "dbsize", "exec"]);
    assert!(client.reads().contains("-ERR 'dbsize' is about all slots"));
}

#[test]
fn queued_commands_are_held_without_the_buffer_that_they_came_in() {
    let mut client = Client::new();
    client.sends(&["multi"]);
    client.reads();
    let before = client.session.held_bytes();
    client.sends(&["set a 1", "set a 2"]);
    client.reads();
    let held = client.session.held_bytes() - before;
    assert!((2 * (5 + 64)..1000).contains(&held), "{held}");
    assert_eq!(client.session.queued(), Some(2));
    client.sends(&["discard"]);
    client.reads();
    assert_eq!((client.session.queued(), client.session.held_bytes()), (None, before));
}

#[test]
fn a_command_that_may_wait_follows_all_others_and_precedes_all_others() {
    let mut client = Client::new();
    assert_eq!(client.sends(&["set a 1", "blpop b 0", "set a 2"]), ["1 Writes: set a 1"]);
    assert!(!client.session.is_blocked());
    assert_eq!(client.answers(0, 1), ["blocking: blpop"]);
    assert!(client.session.is_blocked() && client.session.is_waiting());
    assert_eq!(client.answers(1, 1), ["1 Writes: set a 2"]);
    assert!(!client.session.is_blocked());
    // In a transaction it does not wait.
    let mut client = Client::new();
    client.sends(&["multi", "blpop b 0", "exec"]);
    assert!(!client.session.is_blocked());
    assert_eq!(in_log(&client.asks[0])[3..], ["blpop", "b", "0"]);
}

#[test]
fn a_subscriber_of_resp2_may_use_few_commands_and_one_of_resp3_all() {
    let mut client = Client::new();
    client.sends(&["subscribe x y"]);
    assert_eq!(client.reads(), "$1 x $1 y");
    assert_eq!(client.session.take_answered(), 1);
    assert!(client.sends(&["get a", "multi", "ping"]).is_empty());
    let read = client.reads();
    assert!(read.starts_with("-ERR Can't execute 'get': only") && read.ends_with("+PONG"), "{read}");
    let mut client = Client::new();
    assert_eq!(client.sends(&["hello 3", "subscribe x", "get a"]), ["1 Reads: get a"]);
}

#[test]
fn a_message_goes_between_replies_and_not_before_one_that_is_known() {
    let mut client = Client::new();
    client.sends(&["hello 3", "subscribe x", "get a", "get b"]);
    client.reads();
    assert!(client.session.takes_pushes(), "the first reply is not known yet");
    client.session.push(&"push1 ".into());
    client.answers_only(0, 1);
    assert!(!client.session.takes_pushes(), "the reply to `get a` comes first");
    client.answers(1, 1);
    assert!(client.session.takes_pushes());
    client.session.push(&"push2".into());
    assert_eq!(client.reads(), "push1 $1 a $1 b push2");
    client.session.push(&Bytes::from(vec![b'x'; PUSHED_BYTES_MAX]));
    assert!(!client.session.takes_pushes(), "the client reads slowly");
}

#[test]
fn the_reply_to_a_transaction_with_channels_has_one_length_and_all_replies() {
    let mut client = Client::new();
    client.sends(&["multi", "subscribe x y", "ssubscribe z", "exec"]);
    let read = client.reads();
    assert!(
        read.ends_with("*2 $1 x $1 y -ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"),
        "{read}"
    );
}

#[test]
fn keys_may_be_cached_once_the_reply_is_encoded() {
    let mut client = Client::new();
    client.sends(&["get a", "client tracking on", "get a1", "get b1"]);
    assert_eq!(client.answers(0, 1), ["1 Reads: get a1", "2 Reads: get b1"]);
    assert_eq!(client.host.reads, ["a1", "b1"]);
    client.answers(2, 1);
    assert_eq!(client.session.take_tracked(), None, "the reply to `get a1` comes first");
    client.answers(1, 1);
    assert_eq!(client.session.take_tracked(), Some(vec!["a1".into()]));
    assert_eq!(client.session.take_tracked(), Some(vec!["b1".into()]));
    assert_eq!(client.session.take_tracked(), None);
}

#[test]
fn the_mode_of_the_next_command_holds_for_one_command_or_one_transaction() {
    let mut client = Client::new();
    client.sends(&["client tracking on optin", "get a1"]);
    client.answers(0, 1);
    client.sends(&["client caching yes", "get a2"]);
    client.answers(1, 1);
    client.sends(&["get a3"]);
    client.answers(2, 1);
    client.sends(&["client caching yes", "multi", "get a4", "set a5 1", "get a6", "exec"]);
    client.answers(3, 1);
    client.sends(&["get a7"]);
    assert_eq!(client.host.reads, ["a2", "a4", "a6"]);
}
