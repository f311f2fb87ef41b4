//! One client's connection: bytes in, requests, replies in order, bytes out.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use resp::{Decoder, Limits, Protocol, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::batch;
use super::session::{ClientEntry, Door, Session};
use crate::store::Store;

/// Requests of one pipeline that are worked on together.
const BATCH_REQUESTS_MAX: usize = 512;
/// Bytes of one pipeline that are worked on together; one request may be larger.
const BATCH_BYTES_MAX: usize = 4 << 20;
const READ_BYTES: usize = 16 << 10;
/// A buffer that grew past this is given back once it is empty.
const IDLE_BUFFER_BYTES_MAX: usize = 256 << 10;

/// A client whose machine has gone is noticed after about this long, as with Redis.
const KEEP_ALIVE: Duration = Duration::from_secs(300);

fn keep_alive(stream: &TcpStream) {
    let probes = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 3);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&probes);
}

pub async fn serve(mut stream: TcpStream, door: Door, entry: Arc<ClientEntry>, store: Arc<Store>) {
    let (limits, needs_password) = {
        let settings = store.settings.read();
        (settings.limits.clone(), settings.requirepass.is_some())
    };
    keep_alive(&stream);
    let mut session = Session {
        id: entry.id,
        door,
        protocol: Protocol::Resp2,
        db: 0,
        authenticated: !needs_password,
        read_only: false,
        closing: false,
        entry: entry.clone(),
    };
    let mut decoder = Decoder::new(if needs_password { Limits::unauthenticated() } else { limits.clone() });
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let mut output = BytesMut::new();
    let mut requests = Vec::new();
    while !session.closing && !entry.killed.load(Ordering::Acquire) {
        let mut bytes = 0;
        let mut broken = None;
        while requests.len() < BATCH_REQUESTS_MAX && bytes < BATCH_BYTES_MAX {
            match decoder.decode(&mut input) {
                Ok(Some(request)) => {
                    bytes += request.args.iter().map(|arg| arg.len()).sum::<usize>();
                    requests.push(request.args);
                    // What follows AUTH is read under other limits.
                    if !session.authenticated {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        let decoded = !requests.is_empty();
        if decoded {
            let (count, started) = (requests.len() as u64, Instant::now());
            let was_authenticated = session.authenticated;
            // A batch ends by its deadlines; whoever is ended meanwhile is not waited for.
            tokio::select! {
                () = batch::run(&store, &mut session, &mut requests, &mut output) => {}
                () = entry.kill.notified() => return,
            }
            requests.clear();
            store.metrics.record_commands(count, started.elapsed());
            entry.commands.fetch_add(count, Ordering::Relaxed);
            if session.authenticated != was_authenticated {
                decoder.set_limits(if session.authenticated {
                    limits.clone()
                } else {
                    Limits::unauthenticated()
                });
            }
        }
        if let Some(error) = broken {
            resp::encode(&Reply::error(format!("ERR {error}")), session.protocol, &mut output);
            session.closing = true;
        }
        if !output.is_empty() {
            store.metrics.client_bytes_out.fetch_add(output.len() as u64, Ordering::Relaxed);
            // Someone who does not read can still be ended.
            let written = tokio::select! {
                written = stream.write_all(&output) => written.is_ok(),
                () = entry.kill.notified() => false,
            };
            if !written {
                return;
            }
            output.clear();
            if output.capacity() > IDLE_BUFFER_BYTES_MAX {
                output = BytesMut::new();
            }
        }
        if session.closing || decoded && !input.is_empty() {
            continue;
        }
        if input.is_empty() && input.capacity() > IDLE_BUFFER_BYTES_MAX {
            input = BytesMut::with_capacity(READ_BYTES);
        }
        input.reserve(READ_BYTES);
        tokio::select! {
            read = stream.read_buf(&mut input) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => { store.metrics.client_bytes_in.fetch_add(count as u64, Ordering::Relaxed); }
            },
            () = entry.kill.notified() => return,
        }
    }
    let _ = stream.shutdown().await;
}
