//! Replies as bytes, in RESP2 or RESP3.

use bytes::{BufMut, BytesMut};

use crate::Reply;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Resp2,
    Resp3,
}

/// Appends a reply.
pub fn encode(reply: &Reply, protocol: Protocol, out: &mut BytesMut) {
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Simple(text) => put_line(out, b'+', text.as_bytes()),
        Reply::Error(text) => put_line(out, b'-', text.as_bytes()),
        Reply::Int(value) => put_header(out, b':', *value),
        Reply::Bulk(bytes) => put_bulk(out, bytes),
        Reply::Nil | Reply::NilArray if resp3 => out.put_slice(b"_\r\n"),
        Reply::Nil => out.put_slice(b"$-1\r\n"),
        Reply::NilArray => out.put_slice(b"*-1\r\n"),
        Reply::Array(items) => put_items(out, b'*', items, protocol),
        Reply::Set(items) => put_items(out, if resp3 { b'~' } else { b'*' }, items, protocol),
        Reply::Push(items) => put_items(out, if resp3 { b'>' } else { b'*' }, items, protocol),
        Reply::Map(pairs) => {
            let (kind, count) = if resp3 { (b'%', pairs.len()) } else { (b'*', pairs.len() * 2) };
            put_header(out, kind, count as i64);
            for (key, value) in pairs {
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Double(value) if resp3 => put_line(out, b',', double(*value).as_bytes()),
        Reply::Double(value) => put_bulk(out, double(*value).as_bytes()),
        Reply::Bool(value) if resp3 => out.put_slice(if *value { b"#t\r\n" } else { b"#f\r\n" }),
        Reply::Bool(value) => put_header(out, b':', i64::from(*value)),
        Reply::Verbatim(format, bytes) if resp3 => {
            put_header(out, b'=', bytes.len() as i64 + 4);
            out.put_slice(format.as_bytes());
            out.put_u8(b':');
            out.put_slice(bytes);
            out.put_slice(b"\r\n");
        }
        Reply::Verbatim(_, bytes) => put_bulk(out, bytes),
    }
}

fn put_items(out: &mut BytesMut, kind: u8, items: &[Reply], protocol: Protocol) {
    put_header(out, kind, items.len() as i64);
    items.iter().for_each(|item| encode(item, protocol, out));
}

/// The kind, a decimal number, and the line's end.
pub(crate) fn put_header(out: &mut BytesMut, kind: u8, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut left = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.reserve(24);
    out.put_u8(kind);
    if value < 0 {
        out.put_u8(b'-');
    }
    out.put_slice(&digits[at..]);
    out.put_slice(b"\r\n");
}

pub(crate) fn put_bulk(out: &mut BytesMut, bytes: &[u8]) {
    out.reserve(bytes.len() + 26);
    put_header(out, b'$', bytes.len() as i64);
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// A line may not hold a line's end: such bytes become blanks.
fn put_line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.put_u8(kind);
    if text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        text.iter().for_each(|byte| out.put_u8(if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    } else {
        out.put_slice(text);
    }
    out.put_slice(b"\r\n");
}

/// The shortest decimal that reads back as the same double; `inf`, `-inf` and `nan` as Redis writes them.
pub fn double(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-5..1e17).contains(&magnitude) {
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent:0>2}"),
            Some((mantissa, exponent)) => format!("{mantissa}e-{:0>2}", &exponent[1..]),
            None => text,
        };
    }
    format!("{value}")
}
