use super::*;
use crate::receive_buffer::RESERVE_BYTES;

/// Returns all requests of `stream`, received in pieces of at most `step` bytes, and the error that
/// ended it.
fn decode_all(limits: Limits, stream: &[u8], step: usize) -> (Vec<Request>, Option<ProtocolError>) {
    let (mut decoder, mut buf, mut requests) = (Decoder::new(limits), BytesMut::new(), Vec::new());
    for piece in stream.chunks(step) {
        buf.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buf) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

fn words(request: &Request) -> Vec<&[u8]> {
    request.args.iter().map(|arg| &arg[..]).collect()
}

fn bulk_request(args: &[&[u8]]) -> Vec<u8> {
    let mut out = BytesMut::new();
    crate::encode_request(args, &mut out);
    out.to_vec()
}

/// Pairs of a stream and the error text of Redis 7.0.15 after `-ERR `. One differs: Redis limits
/// the argument count only at INT_MAX.
#[test]
fn what_redis_refuses_is_refused_in_its_words() {
    let long = |start: &str, len: usize| [start.as_bytes(), &vec![b'1'; len]].concat();
    let expected_dollar = "Protocol error: expected '$', got";
    for (stream, text) in [
        (&b"*x\r\n"[..], "Protocol error: invalid multibulk length"),
        (b"*\r\n", "Protocol error: invalid multibulk length"),
        (b"*01\r\n", "Protocol error: invalid multibulk length"),
        (b"* 1\r\n", "Protocol error: invalid multibulk length"),
        (b"*2147483648\r\n", "Protocol error: invalid multibulk length"),
        (b"*1048577\r\n", "Protocol error: invalid multibulk length"),
        (b"*99999999999999999999\r\n", "Protocol error: invalid multibulk length"),
        (&long("*", 65536), "Protocol error: too big mbulk count string"),
        (b"*1\r\n!4\r\nPING\r\n", &format!("{expected_dollar} '!'")),
        (b"*1\r\n\r\n", &format!("{expected_dollar} ' '")),
        (b"*2\r\n$1\r\na\r\n:1\r\n", &format!("{expected_dollar} ':'")),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$5x\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$04\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "Protocol error: invalid bulk length"),
        (&long("*1\r\n$", 65536), "Protocol error: too big bulk count string"),
        (&long("", 65537), "Protocol error: too big inline request"),
        (b"PING \"a\r\n", "Protocol error: unbalanced quotes in request"),
        (b"PING 'a'b\n", "Protocol error: unbalanced quotes in request"),
    ] {
        let whole = decode_all(Limits::default(), stream, stream.len());
        let shown = String::from_utf8_lossy(&stream[..stream.len().min(24)]).into_owned();
        assert_eq!(whole.1.map(|error| error.to_string()).as_deref(), Some(text), "{shown:?}");
        assert_eq!(decode_all(Limits::default(), stream, 1), whole, "{shown:?} byte by byte");
    }
}

#[test]
fn before_authentication_stricter_limits_hold() {
    let refused = |stream: &[u8]| decode_all(Limits::unauthenticated(), stream, 1).1.map(|e| e.to_string());
    assert_eq!(refused(b"*11\r\n").unwrap(), "Protocol error: unauthenticated multibulk length");
    assert_eq!(refused(b"*10\r\n$16385\r\n").unwrap(), "Protocol error: unauthenticated bulk length");
    assert_eq!(refused(b"*2147483648\r\n").unwrap(), "Protocol error: invalid multibulk length");
    assert_eq!(refused(b"*1\r\n$536870913\r\n").unwrap(), "Protocol error: invalid bulk length");
    let largest = bulk_request(&[&[b'x'; 16384][..]; 10]);
    let (requests, error) = decode_all(Limits::unauthenticated(), &largest, largest.len());
    assert_eq!((requests.len(), error), (1, None), "the largest that is allowed");
}

#[test]
fn limits_change_on_a_live_decoder() {
    let mut decoder = Decoder::new(Limits::unauthenticated());
    let mut buf = BytesMut::from(&bulk_request(&[b"AUTH", b"secret"])[..]);
    buf.extend_from_slice(&bulk_request(&[b"SET", b"k", &[b'v'; 20000]]));
    assert_eq!(words(&decoder.decode(&mut buf).unwrap().unwrap())[0], b"AUTH");
    decoder.set_limits(Limits::default());
    assert_eq!(decoder.decode(&mut buf).unwrap().unwrap().args[2].len(), 20000);
    decoder.set_limits(Limits::unauthenticated());
    buf.extend_from_slice(&bulk_request(&[b"SET", b"k", &[b'v'; 20000]]));
    assert_eq!(decoder.decode(&mut buf), Err(ProtocolError::UnauthenticatedBulkLength));
}

#[test]
fn each_limit_admits_its_value_and_no_more() {
    let limits = Limits {
        bulk_bytes_max: 8,
        args_max: 3,
        line_bytes_max: 12,
        request_bytes_max: 40,
        authenticated: true,
    };
    let decode = |stream: &[u8]| {
        let whole = decode_all(limits.clone(), stream, stream.len());
        assert_eq!(decode_all(limits.clone(), stream, 1), whole);
        whole.1.map_or(Ok(whole.0.len()), Err)
    };
    assert_eq!(decode(&bulk_request(&[b"12345678"])), Ok(1));
    assert_eq!(decode(b"*1\r\n$9\r\n"), Err(ProtocolError::InvalidBulkLength));
    assert_eq!(decode(&bulk_request(&[b"1", b"2", b"3"])), Ok(1));
    assert_eq!(decode(b"*4\r\n"), Err(ProtocolError::InvalidMultibulkLength));
    assert_eq!(decode(b"a 345678901\r\n"), Ok(1));
    assert_eq!(decode(b"a 3456789012\n"), Ok(1));
    assert_eq!(decode(b"a 3456789012\r\n"), Err(ProtocolError::TooBigInline), "the CR counts, as in Redis");
    assert_eq!(decode(b"a 34567890123"), Err(ProtocolError::TooBigInline), "nor is its end awaited");
    assert_eq!(decode(b"*00000000001\r\n"), Err(ProtocolError::InvalidMultibulkLength));
    assert_eq!(decode(b"*000000000001\r\n"), Err(ProtocolError::TooBigMultibulkCount));
    assert_eq!(decode(b"*1\r\n$000000000001\r\n"), Err(ProtocolError::TooBigBulkCount));
    // 4 bytes for the count, then 14, 14 and 8 bytes: 40 in all. One byte more is too many.
    assert_eq!(decode(&bulk_request(&[b"12345678", b"12345678", b"12"])), Ok(1));
    assert_eq!(decode(&bulk_request(&[b"12345678", b"12345678", b"123"])), Err(ProtocolError::TooBigRequest));
}

#[test]
fn empty_requests_are_skipped() {
    let stream = b"*0\r\n\r\n*-1\r\n\n   \r\n*-5\r\nPING\r\n*1\r\n$4\r\nPING\r\n*0\r\n";
    for step in 1..=stream.len() {
        let (requests, error) = decode_all(Limits::default(), stream, step);
        assert_eq!(error, None);
        assert_eq!(requests.iter().map(words).collect::<Vec<_>>(), [[b"PING"], [b"PING"]]);
    }
}

#[test]
fn requests_of_a_pipeline_come_out_in_order_however_they_are_cut() {
    let mut stream = bulk_request(&[b"SET", b"key\r\n", b"*1\r\n$4\r\nPING\r\n"]);
    stream.extend_from_slice(b"get \"k\\x0a\" 'v'\r\n");
    stream.extend_from_slice(&bulk_request(&[b"", b"\0\xff", &[b'x'; 100]]));
    stream.extend_from_slice(b"PING\n");
    let whole = decode_all(Limits::default(), &stream, stream.len());
    assert_eq!(whole.1, None);
    assert_eq!(words(&whole.0[0]), [&b"SET"[..], b"key\r\n", b"*1\r\n$4\r\nPING\r\n"]);
    assert_eq!(words(&whole.0[1]), [&b"get"[..], b"k\n", b"v"]);
    assert_eq!(words(&whole.0[2]), [&b""[..], b"\0\xff", &[b'x'; 100]]);
    assert_eq!(words(&whole.0[3]), [b"PING"]);
    for cut in 1..stream.len() {
        let (mut decoder, mut buf, mut requests) = (Decoder::new(Limits::default()), BytesMut::new(), vec![]);
        for piece in [&stream[..cut], &stream[cut..]] {
            buf.extend_from_slice(piece);
            while let Some(request) = decoder.decode(&mut buf).unwrap() {
                requests.push(request);
            }
        }
        assert_eq!(requests, whole.0, "cut at {cut}");
        assert!(buf.is_empty());
    }
}

#[test]
fn line_ends_are_not_checked_beyond_their_first_byte() {
    let (requests, error) = decode_all(Limits::default(), b"*1\rX$4\r\nPINGXXPING\r\n", 1);
    assert_eq!((requests.len(), error), (2, None), "as in Redis");
}

#[test]
fn a_failed_decoder_stays_failed() {
    let mut decoder = Decoder::new(Limits::default());
    let mut buf = BytesMut::from("*x\r\n");
    assert_eq!(decoder.decode(&mut buf), Err(ProtocolError::InvalidMultibulkLength));
    let mut buf = BytesMut::from("PING\r\n");
    assert_eq!(decoder.decode(&mut buf), Err(ProtocolError::InvalidMultibulkLength));
}

#[test]
fn arguments_are_slices_of_the_receive_buffer() {
    let mut buf = BytesMut::from(&bulk_request(&[b"SET", b"key", &[b'v'; 1000]])[..]);
    let received = buf.as_ptr_range();
    let request = Decoder::new(Limits::default()).decode(&mut buf).unwrap().unwrap();
    assert!(request.args.iter().all(|arg| received.contains(&arg.as_ptr())));
}

#[test]
fn compacted_arguments_let_the_receive_buffer_go() {
    let mut buf = BytesMut::from(&bulk_request(&[b"SET", b"key", &[b'v'; 1000]])[..]);
    let request = Decoder::new(Limits::default()).decode(&mut buf).unwrap().unwrap();
    let (key, all) = (compact(&request.args[1]), request.compact());
    assert_eq!(all, request);
    drop(request);
    assert!(buf.try_reclaim(1000), "nothing else holds the buffer");
    assert_eq!((&key[..], all.args[2].len()), (&b"key"[..], 1000));
}

#[test]
fn a_declared_length_allocates_nothing() {
    let mut decoder = Decoder::new(Limits::default());
    let mut buf = BytesMut::from("*1048576\r\n");
    assert_eq!(decoder.decode(&mut buf), Ok(None));
    assert_eq!(decoder.arrived.capacity(), 0);
    buf.extend_from_slice(b"$536870912\r\n");
    assert_eq!(decoder.decode(&mut buf), Ok(None));
    assert!(buf.capacity() <= 2 * RESERVE_BYTES, "{}", buf.capacity());
}

#[test]
fn a_long_argument_is_received_in_few_and_growing_allocations() {
    const BYTES: usize = 32 << 20;
    let value = vec![b'v'; BYTES];
    let stream = bulk_request(&[b"SET", b"k", &value]);
    let (mut decoder, mut buf) = (Decoder::new(Limits::default()), BytesMut::new());
    let (mut copied, mut request) = (0, None);
    for piece in stream.chunks(16 << 10) {
        let before = buf.as_ptr();
        buf.extend_from_slice(piece);
        request = decoder.decode(&mut buf).unwrap();
        if request.is_none() && buf.as_ptr() != before {
            copied += buf.len();
        }
        assert!(buf.capacity() <= 2 * (buf.len() + RESERVE_BYTES));
    }
    assert_eq!(request.unwrap().args[2], value);
    assert!(copied <= 3 * BYTES, "{copied} bytes were moved to receive {BYTES}");
}

#[test]
fn a_large_request_takes_its_memory_with_it() {
    let mut stream = bulk_request(&[b"SET", b"k", &vec![b'v'; LARGE_REQUEST_BYTES]]);
    stream.extend_from_slice(b"PING\r\n");
    let mut buf = BytesMut::from(&stream[..]);
    let mut decoder = Decoder::new(Limits::default());
    let request = decoder.decode(&mut buf).unwrap().unwrap();
    assert_eq!(&buf[..], b"PING\r\n");
    drop(request);
    assert!(!buf.try_reclaim(LARGE_REQUEST_BYTES), "the buffer has no hold on the large one any more");
    assert_eq!(words(&decoder.decode(&mut buf).unwrap().unwrap()), [b"PING"]);
}

#[test]
fn a_line_that_trickles_in_is_searched_once() {
    for line in [&b"*1111111111111111111"[..], b"SET a b c d e f g h i j k l"] {
        let (mut decoder, mut buf) = (Decoder::new(Limits::default()), BytesMut::new());
        for &byte in line {
            buf.extend_from_slice(&[byte]);
            assert_eq!(decoder.decode(&mut buf), Ok(None));
            assert_eq!(decoder.searched, buf.len());
        }
    }
}

#[test]
fn arguments_that_have_arrived_are_not_looked_at_again() {
    let stream = bulk_request(&[&b"x"[..]; 100]);
    let (mut decoder, mut buf) = (Decoder::new(Limits::default()), BytesMut::new());
    let mut arrived = 0;
    for &byte in &stream[..stream.len() - 1] {
        buf.extend_from_slice(&[byte]);
        assert_eq!(decoder.decode(&mut buf), Ok(None));
        assert!(decoder.position + 8 >= buf.len(), "at most one length line or argument behind");
        assert!(decoder.arrived.len() >= arrived);
        arrived = decoder.arrived.len();
    }
    assert_eq!(arrived, 99);
}
