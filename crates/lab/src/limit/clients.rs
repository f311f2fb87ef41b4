//! The clients' connections: requests in, replies out in order.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use mio::net::TcpStream;
use mio::Token;
use resp::{Decoder, Limits, Protocol, Reply, Request};
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use super::batch::Batch;
use super::table::Table;

pub(super) const READ_BYTES: usize = 64 << 10;

struct Client {
    stream: TcpStream,
    decoder: Decoder,
    input: BytesMut,
    output: BytesMut,
    /// The number of SETs that are not committed. Their replies are the next ones.
    waits: usize,
    /// A request that must wait for these SETs, because its reply comes after theirs. Input after
    /// it is not decoded yet.
    held: Option<Request>,
    /// True if no more events of the socket will come.
    is_ending: bool,
}

/// The clients with SETs in a batch, and the number of SETs of each.
pub(super) type Writers = Vec<(Token, usize)>;

pub(super) struct Clients {
    clients: HashMap<Token, Client, Xxh3DefaultBuilder>,
    /// The writers of the batch that is being filled.
    writers: Writers,
    scratch: Box<[u8]>,
}

impl Clients {
    pub(super) fn new() -> Clients {
        Clients {
            clients: HashMap::default(),
            writers: Vec::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
        }
    }

    pub(super) fn add(&mut self, token: Token, stream: TcpStream) {
        let client = Client {
            stream,
            decoder: Decoder::new(Limits::default()),
            input: BytesMut::new(),
            output: BytesMut::new(),
            waits: 0,
            held: None,
            is_ending: false,
        };
        self.clients.insert(token, client);
    }

    /// Returns the writers of the batch that is now finished.
    pub(super) fn take_writers(&mut self) -> Writers {
        std::mem::take(&mut self.writers)
    }

    /// Serves a client whose socket is ready, or whose held request may go on. `is_ending` says
    /// that the client may have closed the connection.
    pub(super) fn ready(&mut self, token: Token, is_ending: bool, batch: &mut Batch, table: &Table) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        client.is_ending |= is_ending;
        let before = client.waits;
        let result = client.pump(&mut self.scratch, batch, table);
        if client.waits > before {
            self.writers.push((token, client.waits - before));
        }
        if result.and_then(|()| client.flush()).is_err() {
            self.clients.remove(&token);
        }
    }

    /// Answers the writers of a committed batch, and serves the requests that waited for it.
    pub(super) fn committed(&mut self, writers: Writers, batch: &mut Batch, table: &Table) {
        for (token, sets) in writers {
            let Some(client) = self.clients.get_mut(&token) else { continue };
            client.waits -= sets;
            (0..sets).for_each(|_| client.output.extend_from_slice(b"+OK\r\n"));
            if client.waits == 0 && client.held.is_some() {
                self.ready(token, false, batch, table);
            } else if client.flush().is_err() {
                self.clients.remove(&token);
            }
        }
    }
}

impl Client {
    /// Serves requests until there are no more, or one has to wait.
    fn pump(&mut self, scratch: &mut [u8], batch: &mut Batch, table: &Table) -> io::Result<()> {
        let mut is_emptied = false;
        loop {
            while let Some(request) = self.next()? {
                if !self.work_on(request, batch, table) {
                    return Ok(());
                }
            }
            // A short read has emptied the socket. More input causes a new event.
            if is_emptied {
                return Ok(());
            }
            match self.stream.read(scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.input.extend_from_slice(&scratch[..bytes]);
                    is_emptied = bytes < scratch.len() && !self.is_ending;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn next(&mut self) -> io::Result<Option<Request>> {
        match self.held.take() {
            Some(request) => Ok(Some(request)),
            None => self
                .decoder
                .decode(&mut self.input)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
        }
    }

    /// Serves one request. Returns false if the request has to wait.
    fn work_on(&mut self, request: Request, batch: &mut Batch, table: &Table) -> bool {
        let args = &request.args[..];
        let is = |name: &str| args[0].eq_ignore_ascii_case(name.as_bytes());
        match args {
            [_, key, value] if is("SET") => {
                batch.push(key, value);
                self.waits += 1;
                return true;
            }
            _ if self.waits > 0 => {
                self.held = Some(request);
                return false;
            }
            _ => {}
        }
        let reply = match args {
            [_, key] if is("GET") => {
                table.get(key).map_or(Reply::Nil, |value| Reply::Bulk(Bytes::copy_from_slice(value)))
            }
            [_] if is("PING") => Reply::Simple("PONG".into()),
            [_] if is("DBSIZE") => Reply::Int(table.len() as i64),
            [name, ..] => Reply::error(format!(
                "ERR unknown command '{}': the limit serves SET key value, GET, PING and DBSIZE",
                String::from_utf8_lossy(name).chars().take(32).collect::<String>().escape_debug()
            )),
            [] => unreachable!("a request has a name"),
        };
        resp::encode(&reply, Protocol::Resp2, &mut self.output);
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.output.advance(bytes),
                // The rest is sent when an event says that the socket has room.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
