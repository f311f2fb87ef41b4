//! Bytes that are broken or unusual commands. Both servers must answer alike and close the
//! connection at the same point.

use resp::Reply;

use crate::chance::Chance;
use crate::servers::{redis, steelyard, Server};

/// Returns all answers to `bytes` until the connection ends.
fn answers(server: &Server, bytes: &[u8]) -> Vec<Reply> {
    let mut connection = server.connect();
    connection.send(bytes).expect("the bytes are taken");
    connection.finish_sending().expect("the connection stands");
    connection.replies_to_the_end().expect("an orderly end")
}

fn assert_same_answers<'a>(ours: &Server, theirs: &Server, inputs: impl Iterator<Item = &'a [u8]>) {
    let mut differing = Vec::new();
    for bytes in inputs {
        let (ours, theirs) = (answers(ours, bytes), answers(theirs, bytes));
        if ours != theirs {
            let shown = &bytes[..bytes.len().min(200)];
            differing.push(format!(
                "\"{}\"\n  steelyard:    {ours:?}\n  redis-server: {theirs:?}",
                shown.escape_ascii()
            ));
        }
    }
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Frames that are each followed by a PING, which is answered only if the connection survived.
const FRAMES: [&[u8]; 61] = [
    b"",
    b"PING\r\n",
    b"PING\n",
    b"  PING   hello  \r\n",
    b"\r\n",
    b"\n\n\n",
    b"   \r\n",
    b"\t\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*-9\r\n",
    b"*\r\n",
    b"*abc\r\n",
    b"*1x\r\n",
    b"*+1\r\n",
    b"*01\r\n",
    b"* 1\r\n",
    b"*-0\r\n",
    b"*2147483648\r\n",
    b"*9223372036854775807\r\n",
    b"*99999999999999999999999\r\n",
    b"*1\r\nPING\r\n",
    b"*1\r\n:4\r\n",
    b"*1\r\n\r\n",
    b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$-2\r\n",
    b"*1\r\n$\r\n",
    b"*1\r\n$abc\r\n",
    b"*1\r\n$4x\r\nPING\r\n",
    b"*1\r\n$+4\r\nPING\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n$ 4\r\nPING\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$9223372036854775808\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n",
    b"*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n",
    b"*2\r\n$4\r\nECHO\r\n$3\r\na\x00\xff\r\n",
    b"*1\r\n$4\r\nPINGxx",
    b"*1\r\n$3\r\nPING\r\n",
    b"*1\r\n$5\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n",
    b"+PING\r\n",
    b"$4\r\nPING\r\n",
    b":1\r\n",
    b"-ERR\r\n",
    b"_\r\n",
    b"%1\r\n$1\r\na\r\n$1\r\nb\r\n",
    b"SET quoted \"a b\\x41\\n\\t\\\"\"\r\nGET quoted\r\nDEL quoted\r\n",
    b"SET quoted 'it\\'s \\n'\r\nGET quoted\r\nDEL quoted\r\n",
    b"SET quoted \"unbalanced\r\n",
    b"SET quoted 'unbalanced\r\n",
    b"SET quoted \"a\"b\r\n",
    b"SET quoted a\"b c\"\r\nGET quoted\r\nDEL quoted\r\n",
    b"ECHO \"\\xzz\\x4\"\r\n",
    b"ECHO \"\"\r\n",
    b"PING\r\r\n",
    b"QUIT\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"notacommand a 'b c' \"d\"\r\n",
];

#[test]
fn strange_frames_are_answered_as_redis_answers_them() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let inputs: Vec<Vec<u8>> = FRAMES.iter().map(|frame| [frame, PING].concat()).collect();
    assert_same_answers(&ours, &theirs, inputs.iter().map(Vec::as_slice));
    // The next client is served in every case.
    assert_eq!(answers(&ours, PING), [Reply::Simple("PONG".into())]);
}

#[test]
fn lines_without_an_end_are_refused_at_the_same_length() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    const LINE_MAX: usize = 64 << 10;
    let line = |head: &[u8], length: usize| [head, &vec![b'1'; length - head.len()]].concat();
    let inputs = [
        line(b"ECHO ", LINE_MAX),
        line(b"ECHO ", LINE_MAX + 1),
        line(b"*", LINE_MAX + 1),
        [b"*1\r\n", &line(b"$", LINE_MAX + 1)[..]].concat(),
        [&line(b"ECHO ", LINE_MAX - 2)[..], b"\r\n"].concat(),
    ];
    assert_same_answers(&ours, &theirs, inputs.iter().map(Vec::as_slice));
}

#[test]
fn more_arguments_than_a_request_may_have_are_refused_before_they_come() {
    let ours = steelyard(&[]);
    let refused = [Reply::error("ERR Protocol error: invalid multibulk length")];
    assert_eq!(answers(&ours, b"*1048577\r\n$4\r\nPING\r\n"), refused);
    // The largest allowed number waits for its arguments.
    assert_eq!(answers(&ours, b"*1048576\r\n$4\r\nPING\r\n"), []);
}

/// Frames made at random from pieces of frames.
#[test]
fn random_bytes_are_answered_as_redis_answers_them() {
    const PIECES: [&[u8]; 33] = [
        b"*1\r\n",
        b"*2\r\n",
        b"*3\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"$4\r\n",
        b"$3\r\n",
        b"$1\r\n",
        b"$0\r\n",
        b"$-1\r\n",
        b"PING\r\n",
        b"ECHO\r\n",
        b"GET\r\n",
        b"SET\r\n",
        b"k\r\n",
        b"v\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"*",
        b"$",
        b"\"",
        b"'",
        b"\\",
        b"PING",
        b"GET k",
        b"\xff",
        b"1",
        b"9",
        b":",
        b"*1\r\n$4\r\nPING\r\n",
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    ];
    const INPUTS: usize = 1500;
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let mut chance = Chance::new(7);
    let inputs: Vec<Vec<u8>> = (0..INPUTS)
        .map(|_| (0..1 + chance.below(9)).flat_map(|_| chance.pick(&PIECES).to_vec()).collect())
        .collect();
    assert_same_answers(&ours, &theirs, inputs.iter().map(Vec::as_slice));
}
