//! Payloads of streams: every entry, number, group, consumer and pending entry, the bounds of
//! nodes, and damage.

use super::*;

/// Requests that make streams: a few fields or many, deleted entries, groups with consumers,
/// acknowledged entries, pending entries whose entry was deleted, the largest IDs, no entries.
fn corpus() -> (Vec<Command>, Vec<String>) {
    let mut commands: Vec<Command> = Vec::new();
    let mut run = |line: &str| commands.push(command(&line.split(' ').collect::<Vec<_>>()));
    run("XADD one 1-1 a b");
    run("XADD numbers 5-5 0 -1 127 128 -4097 32768");
    run("XADD numbers 5-6 0 8388608 127 2147483648 -4097 9223372036854775807");
    run("XADD numbers 18446744073709551615-18446744073709551615 x 007");
    run("XGROUP CREATE empty group 0 MKSTREAM");
    run("XADD emptied 7-7 a b");
    run("XADD emptied 7-8 a b");
    run("XGROUP CREATE emptied group 0");
    run("XREADGROUP GROUP group me STREAMS emptied >");
    run("XDEL emptied 7-7 7-8");
    run("XADD ahead 3-3 a b");
    run("XSETID ahead 9-9 ENTRIESADDED 70 MAXDELETEDID 8-1");
    run("XGROUP CREATE ahead unknown 2-2");
    run("XGROUP CREATE ahead known 2-2 ENTRIESREAD 5");
    for at in 0..450 {
        // Nodes end by their entries and by their bytes, and their first entries go.
        run(&format!("XADD many {}-0 name {at} text {}", 1000 + at, "y".repeat(at % 60)));
        if at % 50 == 7 {
            run(&format!("XADD many {}-5 other {at} name more", 1000 + at));
        }
        if at % 100 < 3 || at % 7 == 0 {
            run(&format!("XDEL many {}-0", 1000 + at));
        }
        if at % 90 == 0 {
            run(&format!("XGROUP CREATE many group{at} {}-1", 990 + at));
        }
    }
    run("XTRIM many MAXLEN 300");
    for (group, consumer, count) in [("group0", "a", 120), ("group0", "b", 30), ("group90", "a", 1)] {
        run(&format!("XREADGROUP GROUP {group} {consumer} COUNT {count} STREAMS many >"));
    }
    run("XACK many group0 1110-0 1111-0 1113-0");
    run("XDEL many 1115-0 1116-0 1117-0");
    run("XCLAIM many group0 c 0 1120-0 1121-0 TIME 1234567 RETRYCOUNT 77");
    run("XGROUP CREATECONSUMER many group0 idle");
    for at in 0..30 {
        run(&format!(
            "XADD wide * {}",
            (0..200).map(|field| format!("field{field} {at}")).collect::<Vec<_>>().join(" ")
        ));
    }
    commands.push(vec![
        b"XADD".to_vec(),
        b"large".to_vec(),
        b"1-1".to_vec(),
        text(70_000, 1),
        text(70_000, 2),
    ]);
    let keys = ["one", "numbers", "empty", "emptied", "ahead", "many", "wide", "large"];
    (commands, keys.map(str::to_owned).into())
}

/// Returns all that a server tells of a stream, except for the number of a radix tree's nodes.
fn stream(connection: &mut Connection, key: &str) -> String {
    let entries = connection.call(&["XRANGE", key, "-", "+"]).unwrap();
    let mut facts = connection.call(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"]).unwrap();
    let Reply::Array(parts) = &mut facts else { panic!("{key}: {facts:?}") };
    assert_eq!(parts[4], Reply::bulk("radix-tree-nodes"));
    parts.drain(4..6);
    format!("{entries:?}\n{facts:?}")
}

#[test]
fn streams_restore_on_the_other_server_and_grow_there_alike() {
    let Some(theirs) = servers::redis(&["--sanitize-dump-payload", "yes"]) else { return };
    let ours = servers::steelyard(&[]);
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    let (commands, keys) = corpus();
    for (reply, words) in theirs.pipeline(&commands).unwrap().iter().zip(&commands) {
        assert!(!reply.is_error(), "{reply:?} {:?}", words[0].escape_ascii().to_string());
    }
    for key in &keys {
        let expected = stream(&mut theirs, key);
        let payload = dumped(&mut theirs, key);
        assert_eq!(payload[0], 19);
        restored(&mut ours, key, &payload);
        assert_eq!(stream(&mut ours, key), expected, "{key} from Redis");
        let payload = dumped(&mut ours, key);
        restored(&mut theirs, &format!("{key}:back"), &payload);
        assert_eq!(stream(&mut theirs, &format!("{key}:back")), expected, "{key} back to Redis");
        assert_eq!(ours.call(&["COPY", key, &format!("{key}:copy")]).unwrap(), Reply::Int(1));
        assert_eq!(stream(&mut ours, &format!("{key}:copy")), expected);
    }
    // Later entries begin nodes at the same places, deleted entries counted.
    let mut requests: Vec<Command> = Vec::new();
    for at in 0..130 {
        requests.push(command(&[
            "XADD",
            "many",
            &format!("9000-{at}"),
            "name",
            &at.to_string(),
            "text",
            "z",
        ]));
        requests.push(command(&["XREADGROUP", "GROUP", "group0", "a", "COUNT", "2", "STREAMS", "many", ">"]));
    }
    requests.push(command(&["XTRIM", "many", "MAXLEN", "~", "150"]));
    requests.push(command(&["XPENDING", "many", "group0"]));
    requests.push(command(&["XACK", "many", "group0", "1120-0", "1122-0"]));
    requests.push(command(&["XADD", "ahead", "9-10", "a", "b"]));
    requests.push(command(&["XINFO", "GROUPS", "ahead"]));
    requests.push(command(&["XINFO", "STREAM", "many"]));
    let answers = |connection: &mut Connection| -> Vec<String> {
        let replies = connection.pipeline(&requests).unwrap().into_iter();
        replies
            .map(|reply| format!("{reply:?}").split("radix-tree-nodes").next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(answers(&mut ours), answers(&mut theirs));
}

#[test]
fn what_redis_refuses_of_a_damaged_stream_is_refused() {
    let Some(theirs) = servers::redis(&["--sanitize-dump-payload", "yes"]) else { return };
    let ours = servers::steelyard(&[]);
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    for line in [
        "XADD s 5-1 a 1 b xx",
        "XADD s 5-2 a 2 b yy",
        "XADD s 6-0 c 300",
        "XDEL s 5-2",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g me COUNT 1 STREAMS s >",
        "XREADGROUP GROUP g you COUNT 1 STREAMS s >",
    ] {
        theirs.call(&line.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let good = dumped(&mut theirs, "s");
    let body = &good[..good.len() - 10];
    let (mut refused, mut restored) = (0, 0);
    let mut requests: Vec<Command> = Vec::new();
    for at in 1..body.len() {
        for byte in [body[at] ^ 1, body[at] ^ 0x10, body[at] ^ 0x80, body[at].wrapping_add(3), 0, 0xff] {
            let mut payload = body.to_vec();
            payload[at] = byte;
            rdb::seal_payload(&mut payload);
            requests.push(vec![
                b"RESTORE".to_vec(),
                b"k".to_vec(),
                b"0".to_vec(),
                payload,
                b"REPLACE".to_vec(),
            ]);
        }
    }
    let (here, there) = (ours.pipeline(&requests).unwrap(), theirs.pipeline(&requests).unwrap());
    for (ours, (theirs, request)) in here.iter().zip(there.iter().zip(&requests)) {
        match ours {
            Reply::Error(text) => {
                assert!(text == "ERR Bad data format" || text.contains("payload is too large"), "{text}");
                refused += 1;
            }
            _ => {
                assert_eq!(ours, theirs, "{}", request[3].escape_ascii());
                restored += 1;
            }
        }
    }
    assert!(refused > 500 && restored > 50, "{refused} refused, {restored} restored");
    let of_all = [body, &good[good.len() - 10..]].concat();
    super::restored(&mut ours, "k", &of_all.into());
    assert_eq!(ours.call(&["XLEN", "k"]).unwrap(), Reply::Int(2));
}
