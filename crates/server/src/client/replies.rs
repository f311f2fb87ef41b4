//! Replies on their way to one client, in order, and the memory that the connection holds.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use resp::{Protocol, Reply};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::memory::Held;
use crate::dispatch::Answer;
use crate::store::Store;

/// What waits to be written, above which the next commands wait.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Replies of the commands that are read for at once, as far as their size can be foreseen.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// So many commands are read for at first: what they give says how many may be next.
const READS_FIRST: usize = 16;
/// What frames a reply, and one that is short.
const REPLY_OVERHEAD: usize = 16;
/// What carrying out a batch takes beside requests and replies.
const BATCH_BYTES: usize = 6 << 10;
/// As much is reserved at once for replies, at most.
const RESERVED_BYTES_MAX: usize = 16 << 10;

/// The client has gone, or is not worth waiting for.
pub struct Gone;

pub struct Replies {
    pub stream: TcpStream,
    pub held: Held,
    /// Bytes that the connection holds beside its replies.
    pub others: usize,
    output: BytesMut,
    store: Arc<Store>,
    client: u64,
    /// Of this batch.
    count: usize,
    bytes: usize,
    is_gone: bool,
}

impl Replies {
    pub fn new(stream: TcpStream, store: Arc<Store>, client: u64) -> Replies {
        let held = Held::new(store.client_memory.clone());
        let output = BytesMut::new();
        Replies { stream, held, others: 0, output, store, client, count: 0, bytes: 0, is_gone: false }
    }

    /// A batch of so many requests begins, once there is room for it.
    pub async fn begin(&mut self, requests: usize) {
        (self.count, self.bytes) = (0, 0);
        let reply_bytes = self.held.reply_bytes();
        let first = requests.min(READS_FIRST).saturating_mul(reply_bytes);
        self.held.hold((self.others + first + BATCH_BYTES) as u64).await;
        if self.output.capacity() == 0 {
            let likely = requests.saturating_mul(reply_bytes + REPLY_OVERHEAD);
            self.output.reserve(likely.min(RESERVED_BYTES_MAX));
        }
    }

    pub fn end(&mut self) {
        self.held.replied(self.count, self.bytes);
        self.held.count((self.others + self.output.len()) as u64);
    }

    /// How many commands may be read for next.
    pub fn reads_at_once(&self) -> usize {
        match self.count {
            0 => READS_FIRST,
            count => (REPLY_BYTES_MAX / (self.bytes / count).max(1)).max(1),
        }
    }

    pub fn add(&mut self, answer: &Answer, protocol: Protocol) {
        let before = self.output.len();
        answer.encode(protocol, &mut self.output);
        self.count += 1;
        self.bytes += self.output.len() - before;
    }

    pub fn add_error(&mut self, error: &Reply, protocol: Protocol) {
        resp::encode(error, protocol, &mut self.output);
    }

    /// Writes what there is if it is much. Whoever has gone gets nothing any more.
    pub async fn relieve(&mut self) {
        if self.output.len() >= OUTPUT_BYTES_MAX && !self.is_gone {
            self.held.count((self.others + self.output.len()) as u64);
            self.is_gone = self.write().await.is_err();
        }
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub async fn write(&mut self) -> Result<(), Gone> {
        if self.is_gone {
            return Err(Gone);
        }
        if self.output.is_empty() {
            return Ok(());
        }
        self.store.metrics.client_bytes_out.fetch_add(self.output.len() as u64, Ordering::Relaxed);
        let written = self.stream.try_write(&self.output).unwrap_or(0);
        self.output.advance(written);
        while !self.output.is_empty() {
            let patience = self.store.config.request_timeout;
            tokio::select! {
                written = self.stream.write_buf(&mut self.output) => match written {
                    Ok(0) | Err(_) => return Err(Gone),
                    Ok(_) => self.held.count((self.others + self.output.len()) as u64),
                },
                () = in_the_way(&self.held, patience) => return Err(self.give_up()),
            }
        }
        self.output = BytesMut::new();
        self.held.count(self.others as u64);
        Ok(())
    }

    /// For the log: why this client is ended.
    pub fn give_up(&self) -> Gone {
        let client = self.client;
        tracing::warn!(client, "a client that neither sends nor reads held memory that others wait for");
        self.store.metrics.clients_given_up.inc();
        Gone
    }
}

/// Comes back when a client has stood still for so long while it holds memory that others wait for.
pub async fn in_the_way(held: &Held, patience: Duration) {
    loop {
        tokio::time::sleep(patience).await;
        if held.is_in_the_way() {
            return;
        }
    }
}
