//! One client's connection: bytes in, requests, replies in order, bytes out.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{ready, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use resp::{Decoder, Limits, Protocol, ProtocolError, Reply};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::batch;
use super::replies::{in_the_way, Gone, Replies};
use super::session::{ClientEntry, Door, Session};
use crate::store::Store;

/// Requests of one pipeline that are worked on together.
const BATCH_REQUESTS_MAX: usize = 512;
/// Bytes of one pipeline that are worked on together; one request may be larger.
const BATCH_BYTES_MAX: usize = 4 << 20;
const READ_BYTES: usize = 16 << 10;
/// What is read of a client at first while others wait for memory.
const READ_BYTES_SHORT: usize = 1 << 10;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// A client whose machine has gone is noticed after about this long, as with Redis.
const KEEP_ALIVE: Duration = Duration::from_secs(300);

fn keep_alive(stream: &TcpStream) {
    let probes = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 3);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&probes);
}

pub async fn serve(stream: TcpStream, door: Door, entry: Arc<ClientEntry>, store: Arc<Store>) {
    let (limits, needs_password) = {
        let settings = store.settings.read();
        (settings.limits.clone(), settings.requirepass.is_some())
    };
    keep_alive(&stream);
    let session = Session {
        id: entry.id,
        door,
        protocol: Protocol::Resp2,
        db: 0,
        authenticated: !needs_password,
        read_only: false,
        closing: false,
        entry: entry.clone(),
    };
    let mut connection = Connection {
        session,
        decoder: Decoder::new(if needs_password { Limits::unauthenticated() } else { limits.clone() }),
        limits,
        input: BytesMut::new(),
        requests: Vec::new(),
        replies: Replies::new(stream, store.clone(), entry.id),
        store,
    };
    // A batch ends by its deadlines, and whoever is ended meanwhile is not waited for; nor is one who does not read.
    tokio::select! {
        _ = connection.converse() => {}
        () = entry.kill.notified() => {}
    }
}

struct Connection {
    store: Arc<Store>,
    session: Session,
    decoder: Decoder,
    limits: Limits,
    input: BytesMut,
    requests: Vec<Vec<Bytes>>,
    replies: Replies,
}

impl Connection {
    async fn converse(&mut self) -> Result<(), Gone> {
        while !self.session.closing && !self.session.entry.killed.load(Ordering::Acquire) {
            let (decoded, bytes) = self.decode();
            let has_run = !self.requests.is_empty();
            if has_run {
                self.run(bytes).await;
            }
            if let Err(error) = decoded {
                self.replies.add_error(&Reply::error(format!("ERR {error}")), self.session.protocol);
                self.session.closing = true;
            }
            self.replies.write().await?;
            if !self.session.closing && (self.input.is_empty() || !has_run) {
                self.read().await?;
            }
        }
        let _ = self.replies.stream.shutdown().await;
        Ok(())
    }

    /// Requests that are worked on together, and how many bytes they have.
    fn decode(&mut self) -> (Result<(), ProtocolError>, usize) {
        let mut bytes = 0;
        while self.requests.len() < BATCH_REQUESTS_MAX && bytes < BATCH_BYTES_MAX {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(request)) => {
                    bytes += request.args.iter().map(|arg| arg.len()).sum::<usize>();
                    self.requests.push(request.args);
                    // What follows AUTH is read under other limits.
                    if !self.session.authenticated {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => return (Err(error), bytes),
            }
        }
        (Ok(()), bytes)
    }

    async fn run(&mut self, bytes: usize) {
        let (count, started) = (self.requests.len(), Instant::now());
        self.replies.others = self.input.len() + bytes;
        self.replies.begin(count).await;
        let was_authenticated = self.session.authenticated;
        // It is as large as all else that a connection holds, and an idle one shall not.
        Box::pin(batch::run(&self.store, &mut self.session, &mut self.requests, &mut self.replies)).await;
        self.requests.clear();
        self.replies.others = self.input.len();
        self.replies.end();
        self.store.metrics.record_commands(count as u64, started.elapsed());
        self.session.entry.commands.fetch_add(count as u64, Ordering::Relaxed);
        if self.session.authenticated != was_authenticated {
            let is_in = self.session.authenticated;
            self.decoder.set_limits(if is_in { self.limits.clone() } else { Limits::unauthenticated() });
        }
    }

    /// Waits for something to read. A client of whom nothing has come holds no buffer.
    async fn read(&mut self) -> Result<(), Gone> {
        let read = match self.input.is_empty() {
            true => self.read_first().await,
            false => {
                let capacity = self.input.capacity();
                // A buffer that has to grow doubles.
                let grown = if capacity - self.input.len() < READ_BYTES {
                    2 * capacity.max(READ_BYTES)
                } else {
                    capacity
                };
                self.replies.others = grown;
                self.replies.held.hold(grown as u64).await;
                self.input.reserve(READ_BYTES);
                let patience = self.store.config.request_timeout;
                tokio::select! {
                    read = self.replies.stream.read_buf(&mut self.input) => read,
                    () = in_the_way(&self.replies.held, patience) => return Err(self.replies.give_up()),
                }
            }
        };
        match read {
            Ok(0) | Err(_) => Err(Gone),
            Ok(bytes) => {
                self.store.metrics.client_bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Reads by way of a buffer that all connections of a thread share, into one that is as large as what has come.
    async fn read_first(&mut self) -> std::io::Result<usize> {
        self.input = BytesMut::new();
        self.replies.held.count(0);
        let (stream, input, store) = (&mut self.replies.stream, &mut self.input, &self.store);
        let read = poll_fn(|cx| {
            SHARED.with_borrow_mut(|shared| {
                let most = if store.client_memory.is_short() { READ_BYTES_SHORT } else { READ_BYTES };
                let mut buffer = ReadBuf::new(&mut shared[..most]);
                ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
                input.extend_from_slice(buffer.filled());
                Poll::Ready(Ok::<usize, std::io::Error>(buffer.filled().len()))
            })
        });
        let bytes = read.await?;
        self.replies.held.count(bytes as u64);
        Ok(bytes)
    }
}
