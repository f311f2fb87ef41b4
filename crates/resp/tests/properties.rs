//! Property tests of both decoders and both encoders, alone and against the crate `redis-protocol`.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use redis_protocol::resp2::types::{OwnedFrame as Frame2, Resp2Frame};
use redis_protocol::resp3::types::{OwnedFrame as Frame3, VerbatimStringFormat};
use steelyard_resp::{encode, encode_request, Decoder, Limits, Protocol, Reply, ReplyDecoder, Request};

/// Feeds `stream` in two pieces, cut anywhere, and returns all decoded items.
fn received<T>(
    stream: &[u8],
    cut: prop::sample::Index,
    mut decode: impl FnMut(&mut BytesMut) -> Option<T>,
) -> Vec<T> {
    let (first, second) = stream.split_at(cut.index(stream.len() + 1));
    let (mut buf, mut items) = (BytesMut::new(), Vec::new());
    for piece in [first, second] {
        buf.extend_from_slice(piece);
        while let Some(item) = decode(&mut buf) {
            items.push(item);
        }
    }
    assert!(buf.is_empty(), "nothing is left over");
    items
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![vec(any::<u8>(), 0..40), vec(Just(b'v'), 1000..1100)].prop_map(Bytes::from)
}

fn line() -> impl Strategy<Value = String> {
    "[^\r\n]{0,20}"
}

fn reply() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        line().prop_map(|text| Reply::Simple(text.into())),
        line().prop_map(|text| Reply::Error(text.into())),
        any::<i64>().prop_map(Reply::Int),
        bytes().prop_map(Reply::Bulk),
        Just(Reply::Nil),
        any::<f64>().prop_filter("a NaN is not equal to itself", |v| !v.is_nan()).prop_map(Reply::Double),
        any::<bool>().prop_map(Reply::Bool),
        (prop_oneof![Just("txt"), Just("mkd")], bytes())
            .prop_map(|(format, text)| Reply::Verbatim(format, text)),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Reply::Array),
            vec(inner.clone(), 0..6).prop_map(Reply::Set),
            vec((inner.clone(), inner), 0..4).prop_map(Reply::Map),
        ]
    })
}

/// Returns the reply as a RESP2 client receives it.
fn as_resp2(reply: &Reply) -> Reply {
    let all = |items: &[Reply]| Reply::Array(items.iter().map(as_resp2).collect());
    match reply {
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => all(items),
        Reply::Map(pairs) => {
            Reply::Array(pairs.iter().flat_map(|(k, v)| [as_resp2(k), as_resp2(v)]).collect())
        }
        Reply::Bool(value) => Reply::Int(i64::from(*value)),
        Reply::Verbatim(_, text) => Reply::Bulk(text.clone()),
        other => other.clone(),
    }
}

fn encoded(reply: &Reply, protocol: Protocol) -> BytesMut {
    let mut out = BytesMut::new();
    encode(reply, protocol, &mut out);
    out
}

/// Returns true if another decoder's RESP2 frame equals `reply`, already reduced to RESP2.
fn says_same2(reply: &Reply, frame: &Frame2) -> bool {
    match (reply, frame) {
        (Reply::Simple(text), Frame2::SimpleString(data)) => text.as_bytes() == data,
        (Reply::Error(text), Frame2::Error(data)) => text == data,
        (Reply::Int(value), Frame2::Integer(data)) => value == data,
        (Reply::Bulk(bytes), Frame2::BulkString(data)) => bytes == data,
        (Reply::Nil, Frame2::Null) => true,
        (Reply::Double(value), Frame2::BulkString(data)) => {
            std::str::from_utf8(data).unwrap().parse::<f64>().unwrap() == *value
        }
        (Reply::Array(items), Frame2::Array(data)) => {
            items.len() == data.len() && items.iter().zip(data).all(|(item, frame)| says_same2(item, frame))
        }
        _ => false,
    }
}

fn says_same3(reply: &Reply, frame: &Frame3) -> bool {
    let all = |items: &[Reply], data: &[Frame3]| {
        items.len() == data.len() && items.iter().zip(data).all(|(item, frame)| says_same3(item, frame))
    };
    match (reply, frame) {
        (Reply::Simple(text), Frame3::SimpleString { data, .. }) => text.as_bytes() == data,
        (Reply::Error(text), Frame3::SimpleError { data, .. }) => text == data,
        (Reply::Int(value), Frame3::Number { data, .. }) => value == data,
        (Reply::Bulk(bytes), Frame3::BlobString { data, .. }) => bytes == data,
        (Reply::Nil, Frame3::Null) => true,
        (Reply::Double(value), Frame3::Double { data, .. }) => value == data,
        (Reply::Bool(value), Frame3::Boolean { data, .. }) => value == data,
        (Reply::Verbatim(format, text), Frame3::VerbatimString { data, format: other, .. }) => {
            text == data && (*format == "txt") == matches!(other, VerbatimStringFormat::Text)
        }
        (Reply::Array(items), Frame3::Array { data, .. }) => all(items, data),
        _ => false,
    }
}

/// Returns true if `redis-protocol` can represent the reply. Its sets and maps are hash tables that
/// drop duplicates and refuse aggregates as keys.
fn comparable3(reply: &Reply) -> bool {
    match reply {
        Reply::Set(_) | Reply::Map(_) => false,
        Reply::Array(items) => items.iter().all(comparable3),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_come_out_as_they_were_written(
        requests in vec(vec(bytes(), 1..6), 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut stream = BytesMut::new();
        requests.iter().for_each(|args| encode_request(args, &mut stream));
        let mut decoder = Decoder::new(Limits::default());
        let decoded = received(&stream, cut, |buf| decoder.decode(buf).unwrap());
        prop_assert_eq!(decoded, requests.into_iter().map(|args| Request { args }).collect::<Vec<_>>());
    }

    #[test]
    fn our_requests_are_read_by_another_decoder(args in vec(bytes(), 1..6)) {
        let mut stream = BytesMut::new();
        encode_request(&args, &mut stream);
        let (frame, length) = redis_protocol::resp2::decode::decode(&stream).unwrap().unwrap();
        prop_assert_eq!(length, stream.len());
        prop_assert!(says_same2(&Reply::Array(args.into_iter().map(Reply::Bulk).collect()), &frame));
    }

    #[test]
    fn requests_of_another_encoder_are_read(args in vec(vec(any::<u8>(), 0..40), 1..6)) {
        let frame = Frame2::Array(args.iter().cloned().map(Frame2::BulkString).collect());
        let mut stream = vec![0; frame.encode_len(false)];
        redis_protocol::resp2::encode::encode(&mut stream, &frame, false).unwrap();
        let request = Decoder::new(Limits::default()).decode(&mut BytesMut::from(&stream[..])).unwrap().unwrap();
        prop_assert_eq!(request.args, args);
    }

    #[test]
    fn replies_come_out_as_they_were_written(replies in vec(reply(), 1..4), cut in any::<prop::sample::Index>()) {
        let mut stream = BytesMut::new();
        replies.iter().for_each(|reply| encode(reply, Protocol::Resp3, &mut stream));
        let mut decoder = ReplyDecoder::default();
        prop_assert_eq!(received(&stream, cut, |buf| decoder.decode(buf).unwrap()), replies);
    }

    #[test]
    fn resp2_replies_are_read_by_us_and_by_another_decoder(reply in reply(), cut in any::<prop::sample::Index>()) {
        let stream = encoded(&reply, Protocol::Resp2);
        let (frame, length) = redis_protocol::resp2::decode::decode(&stream).unwrap().unwrap();
        prop_assert_eq!(length, stream.len());
        prop_assert!(says_same2(&as_resp2(&reply), &frame), "{:?}", frame);
        let mut decoder = ReplyDecoder::default();
        let ours = received(&stream, cut, |buf| decoder.decode(buf).unwrap());
        prop_assert_eq!(ours.len(), 1);
        prop_assert!(says_same2(&ours[0], &frame), "{:?}", ours);
    }

    #[test]
    fn resp3_replies_are_read_by_another_decoder(reply in reply().prop_filter("see there", comparable3)) {
        let stream = encoded(&reply, Protocol::Resp3);
        let (frame, length) = redis_protocol::resp3::decode::complete::decode(&stream).unwrap().unwrap();
        prop_assert_eq!(length, stream.len());
        prop_assert!(says_same3(&reply, &frame), "{:?}", frame);
    }

    #[test]
    fn pushes_keep_their_kind(items in vec(reply(), 0..4)) {
        let push = Reply::Push(items);
        let mut stream = encoded(&push, Protocol::Resp3);
        prop_assert_eq!(ReplyDecoder::default().decode(&mut stream).unwrap(), Some(push));
    }
}
