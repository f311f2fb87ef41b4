//! The loop of a follower: it writes the batches of one leader to the log and acknowledges them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;

use anyhow::Context;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::batch;
use super::log::Log;
use super::table::Table;
use super::Options;

const LEADER: Token = Token(0);
const LOG: Token = Token(1);
const READ_BYTES: usize = 1 << 20;

struct Follower {
    leader: TcpStream,
    log: Log,
    table: Table,
    input: Vec<u8>,
    scratch: Vec<u8>,
    output: Vec<u8>,
    /// Batches that arrived and are not yet given to the log.
    to_write: Vec<Arc<Vec<u8>>>,
    /// Batches that arrived and are not yet in the table, with their numbers.
    to_apply: VecDeque<(u64, Arc<Vec<u8>>)>,
    /// Numbers of batches: the last one that arrived, that was given to the log, that the log has
    /// synced, and that is committed according to the leader.
    arrived: u64,
    written: u64,
    synced: u64,
    committed: u64,
}

/// Serves one leader until it closes the connection.
pub(super) fn serve(mut listener: TcpListener, options: &Options) -> anyhow::Result<()> {
    let mut poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), LOG)?;
    let log = Log::start(&options.dir, options.log_bytes, move || drop(waker.wake()))?;
    let mut events = Events::with_capacity(16);
    poll.registry().register(&mut listener, LEADER, Interest::READABLE)?;
    let mut leader = loop {
        match listener.accept() {
            Ok((leader, _)) => break leader,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        wait(&mut poll, &mut events)?;
    };
    poll.registry().deregister(&mut listener)?;
    leader.set_nodelay(true)?;
    poll.registry().register(&mut leader, LEADER, Interest::READABLE | Interest::WRITABLE)?;
    let mut follower = Follower {
        leader,
        log,
        table: Table::default(),
        input: Vec::new(),
        scratch: vec![0; READ_BYTES],
        output: Vec::new(),
        to_write: Vec::new(),
        to_apply: VecDeque::new(),
        arrived: 0,
        written: 0,
        synced: 0,
        committed: 0,
    };
    loop {
        wait(&mut poll, &mut events)?;
        if events.iter().any(|event| event.token() == LEADER) && !follower.hear()? {
            return Ok(());
        }
        follower.turn()?;
    }
}

fn wait(poll: &mut Poll, events: &mut Events) -> io::Result<()> {
    loop {
        match poll.poll(events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Follower {
    /// Reads all input. Returns false if the leader closed the connection.
    fn hear(&mut self) -> anyhow::Result<bool> {
        loop {
            match self.leader.read(&mut self.scratch) {
                Ok(0) => return Ok(false),
                Ok(bytes) => self.input.extend_from_slice(&self.scratch[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the leader's connection failed"),
            }
        }
        let mut at = 0;
        while let Some(found) = batch::find(&self.input[at..])? {
            anyhow::ensure!(found.number == self.arrived + 1, "a batch is missing");
            self.arrived = found.number;
            self.committed = self.committed.max(found.committed);
            let bytes = Arc::new(self.input[at..at + found.bytes].to_vec());
            self.to_write.push(bytes.clone());
            self.to_apply.push_back((found.number, bytes));
            at += found.bytes;
        }
        self.input.drain(..at);
        Ok(true)
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        if self.log.take_done()? {
            self.synced = self.written;
            self.output.extend_from_slice(&self.synced.to_le_bytes());
        }
        if !self.log.is_busy() && !self.to_write.is_empty() {
            self.log.write(std::mem::take(&mut self.to_write))?;
            self.written = self.arrived;
        }
        self.flush()?;
        let through = self.synced.min(self.committed);
        while let Some((_, batch)) = self.to_apply.pop_front_if(|(number, _)| *number <= through) {
            self.table.apply(&batch);
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        while !self.output.is_empty() {
            match self.leader.write(&self.output) {
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the leader"),
            }
        }
        Ok(())
    }
}
