//! The leader's loop, which answers clients.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use super::batch::Batch;
use super::clients::{Clients, Writers};
use super::log::Log;
use super::replicas::{committed, Replica};
use super::table::Table;
use super::Options;

const LISTENER: Token = Token(0);
const LOG: Token = Token(1);
/// The token of the first follower. Clients' tokens follow those of the followers and are never
/// reused.
const FIRST_FOLLOWER: usize = 2;
const EVENTS: usize = 1024;
/// Mean number of a client's writes in a batch above which clients pipeline. The loop then serves
/// them while the log's thread writes.
const PIPELINED: usize = 2;

/// A finished batch that is not committed.
struct InFlight {
    number: u64,
    bytes: Arc<Vec<u8>>,
    writers: Writers,
}

struct Leader {
    log: Log,
    replicas: Vec<Replica>,
    clients: Clients,
    table: Table,
    batch: Batch,
    in_flight: VecDeque<InFlight>,
    /// Numbers of batches: the last one given to the log, and the last one that the log has synced.
    written: u64,
    synced: u64,
    committed: u64,
}

pub(super) fn serve(
    mut listener: TcpListener,
    options: &Options,
    followers: &[SocketAddr],
) -> anyhow::Result<()> {
    let mut poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), LOG)?;
    // A failed wake-up is ignored. It can only fail for lack of memory, and any later event also
    // runs the turn.
    let log = Log::start(&options.dir, options.log_bytes, move || drop(waker.wake()))?;
    let connect = |(at, &address)| Replica::connect(address, poll.registry(), Token(FIRST_FOLLOWER + at));
    let replicas = followers.iter().enumerate().map(connect).collect::<anyhow::Result<Vec<_>>>()?;
    let mut leader = Leader {
        log,
        replicas,
        clients: Clients::new(),
        table: Table::default(),
        batch: Batch::new(0),
        in_flight: VecDeque::new(),
        written: 0,
        synced: 0,
        committed: 0,
    };
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let first_client = FIRST_FOLLOWER + followers.len();
    let mut next = first_client;
    let mut events = Events::with_capacity(EVENTS);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        for event in &events {
            match event.token() {
                LISTENER => accept(&listener, &poll, &mut leader.clients, &mut next)?,
                LOG => {}
                Token(at) if at < first_client => leader.replicas[at - FIRST_FOLLOWER].ready()?,
                client => {
                    let is_ending = event.is_read_closed();
                    leader.clients.ready(client, is_ending, &mut leader.batch, &leader.table);
                }
            }
        }
        leader.turn()?;
    }
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    clients: &mut Clients,
    next: &mut usize,
) -> anyhow::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stream.set_nodelay(true)?;
        let token = Token(*next);
        *next += 1;
        poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        clients.add(token, stream);
    }
}

impl Leader {
    /// Commits the batches that can be committed, and gives the log the next batch if it is free.
    fn turn(&mut self) -> anyhow::Result<()> {
        if self.log.take_done()? {
            self.synced = self.written;
        }
        self.committed = committed(self.synced, &self.replicas);
        while self.in_flight.front().is_some_and(|batch| batch.number <= self.committed) {
            let InFlight { bytes, writers, .. } = self.in_flight.pop_front().expect("it is there");
            self.table.apply(&bytes);
            self.clients.committed(writers, &mut self.batch, &self.table);
        }
        // Clients whose writes were committed may have sent others.
        while !self.log.is_busy() && self.batch.entries > 0 {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> anyhow::Result<()> {
        self.written += 1;
        let entries = self.batch.entries;
        let empty = Batch::new(self.batch.len());
        let bytes = Arc::new(std::mem::replace(&mut self.batch, empty).seal(self.written, self.committed));
        let writers = self.clients.take_writers();
        if self.replicas.is_empty() && entries <= PIPELINED * writers.len() {
            // Two wake-ups of threads would cost more than the wait for the disk.
            self.log.write_here(&vec![bytes.clone()])?;
            (self.synced, self.committed) = (self.written, self.written);
            self.table.apply(&bytes);
            self.clients.committed(writers, &mut self.batch, &self.table);
            return Ok(());
        }
        // Send first: the followers' disks then work at the same time as the leader's own.
        self.replicas.iter_mut().try_for_each(|replica| replica.send(bytes.clone()))?;
        self.log.write(vec![bytes.clone()])?;
        self.in_flight.push_back(InFlight { number: self.written, bytes, writers });
        Ok(())
    }
}
