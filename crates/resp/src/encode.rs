//! Encoders: replies in either protocol version, and requests.

use bytes::{BufMut, BytesMut};
use memchr::memchr2;

use crate::double::DoubleText;
use crate::Reply;

/// The protocol version that `HELLO` selected for the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// Appends `reply` to `out` in the given protocol version.
pub fn encode(reply: &Reply, protocol: Protocol, out: &mut BytesMut) {
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Simple(text) => put_text(b'+', text.as_bytes(), out),
        Reply::Error(text) => put_text(b'-', text.as_bytes(), out),
        Reply::Int(value) => put_number(b':', *value, out),
        Reply::Bulk(bytes) => put_bulk(bytes, out),
        Reply::Nil if resp3 => out.put_slice(b"_\r\n"),
        Reply::Nil => out.put_slice(b"$-1\r\n"),
        Reply::NilArray if resp3 => out.put_slice(b"_\r\n"),
        Reply::NilArray => out.put_slice(b"*-1\r\n"),
        Reply::Array(items) => put_items(b'*', items, protocol, out),
        Reply::Set(items) => put_items(if resp3 { b'~' } else { b'*' }, items, protocol, out),
        Reply::Push(items) => put_items(if resp3 { b'>' } else { b'*' }, items, protocol, out),
        Reply::Map(pairs) => {
            if resp3 {
                put_length(b'%', pairs.len(), out);
            } else {
                put_length(b'*', pairs.len() * 2, out);
            }
            for (key, value) in pairs {
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Double(value) if resp3 => put_text(b',', DoubleText::new(*value).as_bytes(), out),
        Reply::Double(value) => put_bulk(DoubleText::new(*value).as_bytes(), out),
        Reply::Bool(value) if resp3 => out.put_slice(if *value { b"#t\r\n" } else { b"#f\r\n" }),
        Reply::Bool(value) => put_number(b':', i64::from(*value), out),
        Reply::BigNumber(text) if resp3 => put_text(b'(', text.as_bytes(), out),
        Reply::BigNumber(text) => put_bulk(text.as_bytes(), out),
        Reply::Verbatim(format, text) if resp3 => {
            assert_eq!(format.len(), 3, "a verbatim format is three letters");
            put_length(b'=', text.len() + 4, out);
            out.put_slice(format.as_bytes());
            out.put_u8(b':');
            out.put_slice(text);
            out.put_slice(b"\r\n");
        }
        Reply::Verbatim(_, text) => put_bulk(text, out),
    }
}

/// Appends one request in the form that client libraries use: an array of bulk strings.
pub fn encode_request<A: AsRef<[u8]>>(args: &[A], out: &mut BytesMut) {
    put_length(b'*', args.len(), out);
    for arg in args {
        put_bulk(arg.as_ref(), out);
    }
}

/// Appends what precedes the bytes of a bulk reply. The caller appends the bytes and a CR LF, which
/// it may have elsewhere.
pub fn encode_bulk_length(length: usize, out: &mut BytesMut) {
    put_length(b'$', length, out);
}

/// Appends what precedes the elements of an array.
pub fn encode_array_length(length: usize, out: &mut BytesMut) {
    put_length(b'*', length, out);
}

/// Appends what precedes the elements of a push, which is an array in RESP2.
pub fn encode_push_length(length: usize, protocol: Protocol, out: &mut BytesMut) {
    put_length(if protocol == Protocol::Resp3 { b'>' } else { b'*' }, length, out);
}

/// Appends a bulk reply.
pub fn encode_bulk(bytes: &[u8], out: &mut BytesMut) {
    put_bulk(bytes, out);
}

fn put_items(kind: u8, items: &[Reply], protocol: Protocol, out: &mut BytesMut) {
    put_length(kind, items.len(), out);
    for item in items {
        encode(item, protocol, out);
    }
}

/// Appends a line of free text. CR and LF become spaces, because they would end the line early and
/// let a value forge the next reply.
fn put_text(kind: u8, text: &[u8], out: &mut BytesMut) {
    out.reserve(text.len() + 3);
    out.put_u8(kind);
    let start = out.len();
    out.put_slice(text);
    if memchr2(b'\r', b'\n', text).is_some() {
        for byte in &mut out[start..] {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }
    out.put_slice(b"\r\n");
}

fn put_bulk(bytes: &[u8], out: &mut BytesMut) {
    out.reserve(bytes.len() + 26);
    put_length(b'$', bytes.len(), out);
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

fn put_length(kind: u8, length: usize, out: &mut BytesMut) {
    put_number(kind, length, out);
}

fn put_number<N: itoa::Integer>(kind: u8, number: N, out: &mut BytesMut) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    // One append instead of three. The digits, including a sign, take at most 20 bytes.
    let mut line = [0u8; 24];
    line[0] = kind;
    line[1..=digits.len()].copy_from_slice(digits);
    line[digits.len() + 1] = b'\r';
    line[digits.len() + 2] = b'\n';
    out.extend_from_slice(&line[..digits.len() + 3]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn written(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        encode(reply, protocol, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn every_kind_of_reply_has_its_form_in_both_protocols() {
        let int = Reply::Int;
        for (reply, resp2, resp3) in [
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::error("ERR no"), "-ERR no\r\n", "-ERR no\r\n"),
            (int(0), ":0\r\n", ":0\r\n"),
            (int(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (Reply::bulk("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (Reply::bulk(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Nil, "$-1\r\n", "_\r\n"),
            (Reply::NilArray, "*-1\r\n", "_\r\n"),
            (Reply::Array(vec![]), "*0\r\n", "*0\r\n"),
            (
                Reply::Array(vec![int(1), Reply::Array(vec![Reply::Nil])]),
                "*2\r\n:1\r\n*1\r\n$-1\r\n",
                "*2\r\n:1\r\n*1\r\n_\r\n",
            ),
            (
                Reply::Map(vec![(int(1), int(2)), (int(3), int(4))]),
                "*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
                "%2\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
            ),
            (Reply::Set(vec![int(1)]), "*1\r\n:1\r\n", "~1\r\n:1\r\n"),
            (Reply::Push(vec![int(1)]), "*1\r\n:1\r\n", ">1\r\n:1\r\n"),
            (Reply::Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (Reply::Double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (Reply::Double(f64::NAN), "$3\r\nnan\r\n", ",nan\r\n"),
            (Reply::Bool(true), ":1\r\n", "#t\r\n"),
            (Reply::Bool(false), ":0\r\n", "#f\r\n"),
            (Reply::Verbatim("txt", Bytes::from("hi")), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ] {
            assert_eq!(written(&reply, Protocol::Resp2), resp2);
            assert_eq!(written(&reply, Protocol::Resp3), resp3);
        }
    }

    #[test]
    fn a_line_break_in_an_error_cannot_forge_a_reply() {
        let reply = Reply::error("ERR unknown command 'x\r\n+OK'");
        assert_eq!(written(&reply, Protocol::Resp2), "-ERR unknown command 'x  +OK'\r\n");
        assert_eq!(written(&Reply::Simple("a\nb".into()), Protocol::Resp3), "+a b\r\n");
    }

    #[test]
    fn a_request_is_an_array_of_bulk_strings() {
        let mut out = BytesMut::new();
        encode_request(&["SET", "k", ""], &mut out);
        assert_eq!(&out[..], b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    }
}
