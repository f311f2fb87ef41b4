//! Connections on which other stores send appends and acknowledgements. The first loop reads them
//! itself, so that no other thread must wake up for a message.
//!
//! A very large frame would delay the loop's other work. Its connection goes back to the task that
//! accepted it, which reads that frame.

use std::io::{self, ErrorKind, Read};
use std::panic::{catch_unwind, AssertUnwindSafe};

use mio::event::Event;
use mio::{Interest, Registry, Token};
use tokio::sync::oneshot;
use types::StoreId;

use crate::transport::raft_lane::{Messages, Next, RaftLane, Returned};
use crate::transport::Remote;

/// The first token of lanes. Connections of clients have smaller tokens.
pub const LANES: usize = 1 << 48;
/// Maximum bytes that are read from one lane in a round of the loop.
const ROUND_BYTES_MAX: usize = 1 << 20;

struct Open {
    stream: mio::net::TcpStream,
    lane: RaftLane,
    back: oneshot::Sender<Returned>,
    is_readable: bool,
    /// True if the end of the input is in the socket, or about to be.
    is_end_near: bool,
}

/// The outcome of a round with one lane.
enum Round {
    /// The socket is empty.
    Done,
    /// The socket may have more.
    NotDone,
    Large,
    Closed,
    Ended(String),
}

#[derive(Default)]
pub struct Lanes {
    slots: Vec<Option<Open>>,
}

impl Lanes {
    /// Takes a connection. The other end of `back` learns why it ends, or that it was closed.
    pub fn add(
        &mut self,
        lane: RaftLane,
        back: oneshot::Sender<Returned>,
        registry: &Registry,
    ) -> io::Result<()> {
        let at = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let mut stream = mio::net::TcpStream::from_std(lane.stream.socket.try_clone()?);
        registry.register(&mut stream, Token(LANES + at), Interest::READABLE)?;
        if at == self.slots.len() {
            self.slots.push(None);
        }
        // The bytes that were read before may contain frames.
        self.slots[at] = Some(Open { stream, lane, back, is_readable: true, is_end_near: false });
        Ok(())
    }

    /// Notes that a lane has something to read.
    pub fn note(&mut self, event: &Event) {
        if let Some(Some(open)) = self.slots.get_mut(event.token().0 - LANES) {
            open.is_readable = true;
            open.is_end_near |= event.is_read_closed() || event.is_error();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    pub fn are_ready(&self) -> bool {
        self.slots.iter().flatten().any(|open| open.is_readable)
    }

    /// Reads from all lanes that are ready and passes on their messages. `buffer` is used for each
    /// read.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        registry: &Registry,
        is_welcome: impl Fn(&Remote) -> bool,
        mut take: impl FnMut(StoreId, Messages),
    ) {
        for slot in &mut self.slots {
            let Some(open) = slot.as_mut().filter(|open| open.is_readable) else { continue };
            let round = match is_welcome(&open.lane.remote) {
                true => open.round(buffer, &mut take),
                false => Round::Ended("it is no longer admitted".into()),
            };
            match round {
                Round::Done => open.is_readable = false,
                Round::NotDone => {}
                Round::Large => give_back(slot, registry, |lane| Some(Ok(lane))),
                Round::Ended(reason) => give_back(slot, registry, |_| Some(Err(reason))),
                Round::Closed => give_back(slot, registry, |_| None),
            }
        }
    }
}

/// Empties a slot. Sends what `returned` makes of the lane, if anything.
fn give_back(
    slot: &mut Option<Open>,
    registry: &Registry,
    returned: impl FnOnce(RaftLane) -> Option<Returned>,
) {
    let Some(mut open) = slot.take() else { return };
    // The lane has its own descriptor of the socket, so closing this one would not end the
    // registration.
    let _ = registry.deregister(&mut open.stream);
    if let Some(returned) = returned(open.lane) {
        let _ = open.back.send(returned);
    }
}

impl Open {
    fn round(&mut self, buffer: &mut [u8], take: &mut impl FnMut(StoreId, Messages)) -> Round {
        let from = self.lane.remote.store;
        let (mut read_bytes, mut is_empty) = (0, false);
        loop {
            loop {
                // A panic of the decoder ends one connection, not the store.
                let next = catch_unwind(AssertUnwindSafe(|| self.lane.take()));
                match next.unwrap_or_else(|_| Err("a frame's decoding panicked".into())) {
                    Ok(Next::Messages(messages)) => take(from, messages),
                    Ok(Next::Part) => break,
                    Ok(Next::PartOfLarge) => return Round::Large,
                    Err(reason) => return Round::Ended(reason),
                }
            }
            // A socket that gave less than was asked for is empty. More input, or its end, is
            // another event.
            if is_empty {
                return Round::Done;
            }
            if read_bytes >= ROUND_BYTES_MAX {
                return Round::NotDone;
            }
            match self.stream.read(buffer) {
                Ok(0) => return Round::Closed,
                Ok(bytes) => {
                    match &mut self.lane.stream.tls {
                        None => self.lane.bytes.extend_from_slice(&buffer[..bytes]),
                        Some(session) => {
                            if let Err(error) = session.open(&buffer[..bytes], &mut self.lane.bytes) {
                                return Round::Ended(format!("TLS: {error}"));
                            }
                        }
                    }
                    read_bytes += bytes;
                    is_empty = bytes < buffer.len() && !self.is_end_near;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Round::Done,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_broken) => return Round::Closed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use bytes::{Bytes, BytesMut};
    use cluster::StoreKey;
    use mio::{Events, Poll};
    use protobuf::Message as _;
    use raft::eraftpb;

    use super::*;
    use crate::transport::frame::{self, Frame};
    use crate::transport::stream::PeerSocket;

    struct Fixture {
        poll: Poll,
        lanes: Lanes,
        taken: Vec<usize>,
        admitted: bool,
    }

    impl Fixture {
        fn new() -> Fixture {
            let poll = Poll::new().unwrap();
            Fixture { poll, lanes: Lanes::default(), taken: Vec::new(), admitted: true }
        }

        /// Adds a lane with bytes that were read before. Returns its other end, and the receiver
        /// that learns of its end here.
        fn add(&mut self, read: &[u8]) -> (TcpStream, oneshot::Receiver<Returned>) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = listener.accept().unwrap().0;
            stream.set_nonblocking(true).unwrap();
            let (back, comes_back) = oneshot::channel();
            let remote = Remote { store: 3, key: StoreKey([1; 32]) };
            let stream = PeerSocket { socket: stream, tls: None };
            let lane = RaftLane { stream, remote, bytes: BytesMut::from(read) };
            self.lanes.add(lane, back, self.poll.registry()).unwrap();
            (far, comes_back)
        }

        /// Waits for sockets and reads, until `is_over`.
        fn until(&mut self, is_over: impl Fn(&Fixture) -> bool) {
            let mut events = Events::with_capacity(8);
            let mut buffer = vec![0; 64 << 10];
            while !is_over(self) {
                let wait = if self.lanes.are_ready() { Duration::ZERO } else { Duration::from_secs(10) };
                self.poll.poll(&mut events, Some(wait)).unwrap();
                events.iter().for_each(|event| self.lanes.note(event));
                let (admitted, taken) = (self.admitted, &mut self.taken);
                self.lanes.read(
                    &mut buffer,
                    self.poll.registry(),
                    |_| admitted,
                    |from, messages| {
                        assert_eq!(from, 3);
                        taken.extend(messages.iter().map(|(_, message)| message.context.len()));
                    },
                );
            }
        }
    }

    fn encoded(length: usize) -> Vec<u8> {
        let message = eraftpb::Message { context: vec![5; length].into(), ..Default::default() };
        let mut bytes = BytesMut::new();
        let message = Bytes::from(message.write_to_bytes().unwrap());
        frame::encode(&Frame::Raft(vec![(1, message)]), &mut bytes).unwrap();
        bytes.to_vec()
    }

    #[test]
    fn frames_are_taken_in_order_however_they_are_cut() {
        let mut fixture = Fixture::new();
        let first = encoded(10);
        let (mut far, _back) = fixture.add(&first[..7]);
        far.write_all(&first[7..]).unwrap();
        fixture.until(|fixture| fixture.taken == [10]);
        let lengths: Vec<usize> = (0..60).map(|number| number * 7919 % 200_000).collect();
        let all: Vec<u8> = lengths.iter().flat_map(|&length| encoded(length)).collect();
        // More than a round reads, so the lane stays ready.
        let writing = std::thread::spawn(move || {
            all.chunks(99_991).for_each(|part| far.write_all(part).unwrap());
            far
        });
        fixture.until(|fixture| fixture.taken.len() == 61);
        assert_eq!(fixture.taken[1..], lengths);
        drop(writing.join().unwrap());
    }

    #[test]
    fn a_lane_comes_back_with_the_part_of_a_large_frame_and_may_be_added_again() {
        let mut fixture = Fixture::new();
        let (mut far, mut back) = fixture.add(&[]);
        far.write_all(&encoded(20)).unwrap();
        let large = encoded(9 << 20);
        far.write_all(&large[..1000]).unwrap();
        fixture.until(|fixture| fixture.lanes.slots[0].is_none());
        assert_eq!(fixture.taken, [20]);
        let mut lane = back.try_recv().unwrap().unwrap();
        assert_eq!(lane.bytes[..], large[..1000]);
        lane.bytes.clear();
        let (again, _back) = oneshot::channel();
        fixture.lanes.add(lane, again, fixture.poll.registry()).unwrap();
        far.write_all(&encoded(30)).unwrap();
        fixture.until(|fixture| fixture.taken == [20, 30]);
    }

    #[test]
    fn a_lane_ends_with_its_socket_with_a_wrong_frame_and_with_its_admission() {
        let mut wrong = BytesMut::new();
        frame::encode(&Frame::Order(Bytes::from_static(b"x")), &mut wrong).unwrap();
        for case in 0..4 {
            let mut fixture = Fixture::new();
            let (mut far, mut back) = fixture.add(&[]);
            match case {
                0 => drop(far),
                1 => far.write_all(&wrong).unwrap(),
                2 => far.write_all(&[9, 0, 0, 0, 77, 1, 1, 1, 1, 1, 1, 1, 1]).unwrap(),
                _ => {
                    fixture.admitted = false;
                    far.write_all(&encoded(1)).unwrap();
                }
            }
            fixture.until(|fixture| fixture.lanes.slots[0].is_none());
            assert!(fixture.taken.is_empty());
            let returned = back.try_recv();
            match case {
                0 => assert!(matches!(returned, Err(oneshot::error::TryRecvError::Closed))),
                _ => assert!(matches!(returned, Ok(Err(_))), "{case}"),
            }
        }
    }
}
