//! The leader's connections to its followers.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// The length of an acknowledgement: the number of the last synced batch as u64, little-endian.
pub(super) const ACKNOWLEDGEMENT_BYTES: usize = 8;

pub(super) struct Replica {
    address: SocketAddr,
    stream: TcpStream,
    to_send: VecDeque<Arc<Vec<u8>>>,
    /// The bytes of the first batch in `to_send` that are sent already.
    sent: usize,
    input: Vec<u8>,
    /// The number of the last batch that the follower has synced.
    synced: u64,
}

impl Replica {
    pub(super) fn connect(address: SocketAddr, registry: &Registry, token: Token) -> anyhow::Result<Replica> {
        let connect = || {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            Ok::<TcpStream, io::Error>(stream)
        };
        let stream = connect().with_context(|| format!("no connection to the follower at {address}"))?;
        Ok(Replica { address, stream, to_send: VecDeque::new(), sent: 0, input: Vec::new(), synced: 0 })
    }

    pub(super) fn send(&mut self, batch: Arc<Vec<u8>>) -> anyhow::Result<()> {
        self.to_send.push_back(batch);
        self.flush()
    }

    /// Serves a socket that is ready.
    pub(super) fn ready(&mut self) -> anyhow::Result<()> {
        self.hear().with_context(|| format!("lost follower {}", self.address))?;
        self.flush()
    }

    fn hear(&mut self) -> io::Result<()> {
        let mut scratch = [0; 4096];
        loop {
            match self.stream.read(&mut scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.input.extend_from_slice(&scratch[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let whole = self.input.len() - self.input.len() % ACKNOWLEDGEMENT_BYTES;
        if let Some(last) = self.input[..whole].last_chunk::<ACKNOWLEDGEMENT_BYTES>() {
            self.synced = u64::from_le_bytes(*last);
        }
        self.input.drain(..whole);
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        while let Some(batch) = self.to_send.front() {
            match self.stream.write(&batch[self.sent..]) {
                Ok(bytes) => {
                    self.sent += bytes;
                    if self.sent == batch.len() {
                        self.to_send.pop_front();
                        self.sent = 0;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| format!("lost follower {}", self.address)),
            }
        }
        Ok(())
    }
}

/// Returns the number of the last batch that a majority of the copies has synced. The leader's own
/// log is one copy.
pub(super) fn committed(own: u64, replicas: &[Replica]) -> u64 {
    majority(std::iter::once(own).chain(replicas.iter().map(|replica| replica.synced)).collect())
}

fn majority(mut synced: Vec<u64>) -> u64 {
    synced.sort_unstable_by(|a, b| b.cmp(a));
    synced[synced.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_most_copies_have_is_committed() {
        assert_eq!(majority(vec![5]), 5);
        assert_eq!(majority(vec![5, 7]), 5);
        assert_eq!(majority(vec![5, 7, 6]), 6);
        assert_eq!(majority(vec![0, 9, 0]), 0);
        assert_eq!(majority(vec![4, 0, 3, 9, 8]), 4);
    }
}
