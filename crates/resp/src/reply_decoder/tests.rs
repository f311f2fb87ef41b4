use super::*;
use crate::receive_buffer::RESERVE_BYTES;

fn decode_all(limits: ReplyLimits, stream: &[u8], step: usize) -> (Vec<Reply>, Option<ProtocolError>) {
    let (mut decoder, mut buf, mut replies) = (ReplyDecoder::new(limits), BytesMut::new(), Vec::new());
    for piece in stream.chunks(step) {
        buf.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buf) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}

fn one(stream: &[u8]) -> Reply {
    for step in 1..=stream.len() {
        let (mut replies, error) = decode_all(ReplyLimits::default(), stream, step);
        assert_eq!((replies.len(), error), (1, None), "{:?}", String::from_utf8_lossy(stream));
        if step == stream.len() {
            return replies.remove(0);
        }
    }
    unreachable!("an empty stream holds no reply")
}

fn refused(limits: &ReplyLimits, stream: &[u8]) -> Option<ProtocolError> {
    let whole = decode_all(limits.clone(), stream, stream.len());
    assert_eq!(decode_all(limits.clone(), stream, 1), whole);
    whole.1
}

#[test]
fn every_type_of_both_protocols_is_read() {
    let int = Reply::Int;
    for (stream, reply) in [
        (&b"+OK\r\n"[..], Reply::OK),
        (b"+\r\n", Reply::Simple("".into())),
        (b"-ERR a b\r\n", Reply::error("ERR a b")),
        (b":-42\r\n", int(-42)),
        (b"$0\r\n\r\n", Reply::bulk("")),
        (b"$4\r\na\r\nb\r\n", Reply::bulk("a\r\nb")),
        (b"$-1\r\n", Reply::Nil),
        (b"*-1\r\n", Reply::NilArray),
        (b"*0\r\n", Reply::Array(vec![])),
        (b"*2\r\n*1\r\n:1\r\n*0\r\n", Reply::Array(vec![Reply::Array(vec![int(1)]), Reply::Array(vec![])])),
        (b"_\r\n", Reply::Nil),
        (b"#t\r\n", Reply::Bool(true)),
        (b"#f\r\n", Reply::Bool(false)),
        (b",1.5e3\r\n", Reply::Double(1500.0)),
        (b",-inf\r\n", Reply::Double(f64::NEG_INFINITY)),
        (b"(123456789012345678901234567890\r\n", Reply::bulk("123456789012345678901234567890")),
        (b"!8\r\nERR a\r\nb\r\n", Reply::error("ERR a\r\nb")),
        (b"=6\r\ntxt:hi\r\n", Reply::Verbatim("txt", Bytes::from("hi"))),
        (b"%2\r\n:1\r\n%0\r\n:3\r\n:4\r\n", Reply::Map(vec![(int(1), Reply::Map(vec![])), (int(3), int(4))])),
        (b"~1\r\n:1\r\n", Reply::Set(vec![int(1)])),
        (b">2\r\n+a\r\n:1\r\n", Reply::Push(vec![Reply::Simple("a".into()), int(1)])),
        (b"+\xff\r\n", Reply::Simple("\u{fffd}".into())),
    ] {
        assert_eq!(one(stream), reply);
    }
    assert!(matches!(one(b",nan\r\n"), Reply::Double(value) if value.is_nan()));
}

#[test]
fn attributes_are_skipped_wherever_they_stand() {
    assert_eq!(one(b"|1\r\n+ttl\r\n*1\r\n:3\r\n:7\r\n"), Reply::Int(7));
    assert_eq!(one(b"|0\r\n:7\r\n"), Reply::Int(7));
    let elements = vec![Reply::Int(1), Reply::Int(2)];
    assert_eq!(one(b"*2\r\n:1\r\n|1\r\n+a\r\n|1\r\n:8\r\n:9\r\n+b\r\n:2\r\n"), Reply::Array(elements));
}

#[test]
fn replies_of_a_pipeline_come_out_in_order() {
    let (replies, error) = decode_all(ReplyLimits::default(), b"+OK\r\n$1\r\na\r\n*1\r\n:1\r\n-E\r\n", 3);
    let expected = [Reply::OK, Reply::bulk("a"), Reply::Array(vec![Reply::Int(1)]), Reply::error("E")];
    assert_eq!((&replies[..], error), (&expected[..], None));
}

#[test]
fn what_is_no_reply_is_refused() {
    use ProtocolError::*;
    for (stream, error) in [
        (&b"x\r\n"[..], UnknownReplyType(b'x')),
        (b"\r\n", UnknownReplyType(b'\r')),
        (b":\r\n", InvalidReplyValue),
        (b":1a\r\n", InvalidReplyValue),
        (b":9223372036854775808\r\n", InvalidReplyValue),
        (b"_x\r\n", InvalidReplyValue),
        (b"#\r\n", InvalidReplyValue),
        (b",\r\n", InvalidReplyValue),
        (b",1,5\r\n", InvalidReplyValue),
        (b"(\r\n", InvalidReplyValue),
        (b"(-\r\n", InvalidReplyValue),
        (b"(1x\r\n", InvalidReplyValue),
        (b"=3\r\ntxt\r\n", InvalidReplyValue),
        (b"=5\r\nabc:d\r\n", InvalidReplyValue),
        (b"$-2\r\n", InvalidReplyLength),
        (b"$\r\n", InvalidReplyLength),
        (b"$?\r\n", InvalidReplyLength),
        (b"!-1\r\n", InvalidReplyLength),
        (b"*-2\r\n", InvalidReplyLength),
        (b"~-1\r\n", InvalidReplyLength),
        (b"$18446744073709551615\r\n", InvalidReplyLength),
        (b"%9223372036854775807\r\n", TooBigReply),
        (b"%4611686018427387904\r\n", TooBigReply),
        (b"+OK\n", ExpectedCrlf),
        (b"+O\rK\r\n", ExpectedCrlf),
        (b"$1\r\nabc", ExpectedCrlf),
    ] {
        assert_eq!(
            refused(&ReplyLimits::default(), stream),
            Some(error),
            "{:?}",
            String::from_utf8_lossy(stream)
        );
    }
}

#[test]
fn each_limit_admits_its_value_and_no_more() {
    let limits = ReplyLimits {
        bulk_bytes_max: 8,
        line_bytes_max: 12,
        nesting_max: 2,
        elements_max: 6,
        reply_bytes_max: 44,
    };
    for (fits, exceeds, error) in [
        (&b"$8\r\n12345678\r\n"[..], &b"$9\r\n"[..], ProtocolError::InvalidReplyLength),
        (b"+1234567890\r\n", b"+12345678901\r\n", ProtocolError::TooBigReplyLine),
        (b"*1\r\n*1\r\n:1\r\n", b"*1\r\n*1\r\n*1\r\n", ProtocolError::TooDeepReply),
        (b"*1\r\n|1\r\n:1\r\n:1\r\n:1\r\n", b"*1\r\n|1\r\n:1\r\n*1\r\n", ProtocolError::TooDeepReply),
        (b"*6\r\n_\r\n_\r\n_\r\n_\r\n_\r\n_\r\n", b"*7\r\n", ProtocolError::TooBigReply),
        (b"%3\r\n_\r\n_\r\n_\r\n_\r\n_\r\n_\r\n", b"*2\r\n%3\r\n", ProtocolError::TooBigReply),
        (
            b"*4\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n:1\r\n:12345\r\n",
            b"*4\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n:1\r\n:123456\r\n",
            ProtocolError::TooBigReply,
        ),
    ] {
        assert_eq!(refused(&limits, fits), None);
        assert_eq!(refused(&limits, exceeds), Some(error));
    }
    let announced = b"*4\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n$8\r\n";
    assert_eq!(refused(&limits, announced), Some(ProtocolError::TooBigReply), "before the string arrives");
    let many = b"*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n".repeat(20);
    assert_eq!(refused(&limits, &many), None, "the limits are those of one reply");
    let endless = b"|0\r\n".repeat(20);
    assert_eq!(refused(&limits, &endless), Some(ProtocolError::TooBigReply));
}

#[test]
fn a_declared_length_allocates_next_to_nothing() {
    let mut decoder = ReplyDecoder::default();
    let mut buf = BytesMut::from("*33554432\r\n");
    assert_eq!(decoder.decode(&mut buf), Ok(None));
    assert!(decoder.open[0].elements.capacity() <= RESERVED_ELEMENTS_MAX);
    buf.extend_from_slice(b"$536870912\r\n");
    assert_eq!(decoder.decode(&mut buf), Ok(None));
    assert!(buf.capacity() <= 2 * RESERVE_BYTES, "{}", buf.capacity());
}

#[test]
fn a_long_string_is_a_slice_and_a_short_one_a_copy() {
    let (short, long) = (COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1);
    for (length, sliced) in [(short, false), (long, true)] {
        let stream = [format!("${length}\r\n").into_bytes(), vec![b'v'; length], b"\r\n".to_vec()].concat();
        let mut buf = BytesMut::from(&stream[..]);
        let received = buf.as_ptr_range();
        let Some(Reply::Bulk(bytes)) = ReplyDecoder::default().decode(&mut buf).unwrap() else {
            panic!("a bulk")
        };
        assert_eq!((bytes.len(), received.contains(&bytes.as_ptr())), (length, sliced));
    }
}

#[test]
fn a_failed_decoder_stays_failed() {
    let mut decoder = ReplyDecoder::default();
    assert!(decoder.decode(&mut BytesMut::from("*2\r\n:x\r\n")).is_err());
    assert_eq!(decoder.decode(&mut BytesMut::from("+OK\r\n")), Err(ProtocolError::InvalidReplyValue));
}
