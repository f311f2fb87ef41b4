//! A measurement of the cost of decoding a request: `cargo run --release -p steelyard-resp
//! --example decode_speed`.
//!
//! The input is copied into a receive buffer as a socket read does, 16 pipelined requests at a
//! time, and the copy is part of the figure. The best of several rounds is printed, because other
//! processes may use the machine too.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use bytes::BytesMut;
use steelyard_resp::{encode_request, Decoder, Limits};

const PIPELINE: usize = 16;
const TURNS: usize = 20_000;
const ROUNDS: usize = 7;

fn measure(name: &str, args: &[&[u8]]) {
    let mut pipeline = BytesMut::new();
    (0..PIPELINE).for_each(|_| encode_request(args, &mut pipeline));
    let mut nanos_min = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (mut decoder, mut buf) = (Decoder::new(Limits::default()), BytesMut::with_capacity(64 << 10));
        let start = Instant::now();
        for _ in 0..TURNS {
            buf.reserve(16 << 10);
            buf.extend_from_slice(&pipeline);
            while let Some(request) = decoder.decode(&mut buf).expect("a valid request") {
                black_box(request);
            }
        }
        let nanos = start.elapsed().as_nanos() as f64 / (TURNS * PIPELINE) as f64;
        nanos_min = nanos_min.min(nanos);
    }
    let bytes = pipeline.len() / PIPELINE;
    println!(
        "{name:<24} {bytes:>6} bytes {nanos_min:>8.1} ns/request {:>8.2} GB/s",
        bytes as f64 / nanos_min
    );
}

fn main() {
    measure("GET", &[b"GET", b"key:000000012345"]);
    measure("SET, 1 KiB", &[b"SET", b"key:000000012345", &[b'v'; 1024]]);
    measure("SET, 64 bytes, with EX", &[b"SET", b"key:000000012345", &[b'v'; 64], b"EX", b"3600"]);
    let fields: Vec<Vec<u8>> = (0..40).map(|field| format!("field:{field}").into_bytes()).collect();
    let hset: Vec<&[u8]> =
        [&b"HSET"[..], b"key"].into_iter().chain(fields.iter().map(Vec::as_slice)).collect();
    measure("HSET, 20 fields", &hset);
}
