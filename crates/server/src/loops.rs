//! The queues through which other threads reach the loops. A sender wakes a loop only if it sleeps.

mod to_worker;

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use node::{Answer, Input, Outcome};
use parking_lot::Mutex;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::Timespec;
use tokio::sync::oneshot;

use crate::connections::{ConnectionSlot, ListenerKind, Moving};
use crate::tls::Handshake;
use crate::transport::raft_lane::{RaftLane, Returned};

pub use to_worker::{Asker, Outcomes, Reader, Surveyed, ToWorker};

/// The token of wake-ups. Connections have smaller tokens.
pub const WAKER: Token = Token(usize::MAX);

/// A connection of one loop. A slot is reused with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    pub slot: u32,
    pub generation: u32,
}

/// A part of a client's session that was submitted to the groups: see `node::session::Ask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartId {
    /// The loop that serves the client.
    pub of: usize,
    pub connection: ConnectionId,
    pub number: usize,
}

pub enum ToLoop {
    /// A message for the first loop, which owns the groups.
    Worker(ToWorker),
    Accepted {
        stream: TcpStream,
        kind: ListenerKind,
        seat: ConnectionSlot,
        /// Present if the client must speak TLS.
        handshake: Option<Handshake>,
    },
    /// A part was executed. `None` means that its task panicked, so the connection ends.
    Answered {
        connection: ConnectionId,
        number: usize,
        answers: Option<Vec<Answer>>,
    },
    /// The outcomes of parts that went through the groups.
    Outcomes(Vec<(PartId, Outcome)>),
    /// A connection of Raft messages, for the first loop.
    Lane {
        lane: RaftLane,
        back: oneshot::Sender<Returned>,
    },
    Kill(ConnectionId),
    /// There are messages for a subscriber.
    Mail(ConnectionId),
    /// Another number of loops serves clients now: give connections to others.
    Spread {
        before: usize,
        now: usize,
    },
    /// A connection that another loop has served.
    Moved(Box<Moving>),
    /// Each connection must be closed once its requests are answered.
    Close,
    Stop,
}

/// The loop has ended.
#[derive(Debug)]
pub struct Stopped;

/// The sending end of a loop's queue.
#[derive(Clone)]
pub struct LoopSender {
    queue: Sender<ToLoop>,
    sleeps: Arc<AtomicBool>,
    waker: Arc<OwnedFd>,
}

impl LoopSender {
    pub fn send(&self, message: ToLoop) -> Result<(), Stopped> {
        self.queue.send(message).map_err(|_| Stopped)?;
        // Pairs with the fences in `LoopInbox`: either this thread sees that the loop sleeps, or
        // the loop sees the message.
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            // The counter of the event never gets full.
            let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
        }
        Ok(())
    }
}

/// The receiving end of the queue, and the sockets that the loop waits for.
pub struct LoopInbox {
    pub poll: Poll,
    queue: Receiver<ToLoop>,
    sleeps: Arc<AtomicBool>,
    /// The event stays open as long as this end. If the last sender closed it before the loop has
    /// seen a wake-up, the wake-up would be lost.
    waker: Arc<OwnedFd>,
}

impl LoopInbox {
    /// Waits for a message, until the timeout at most. What comes to the sockets does not end this.
    pub fn rest(&mut self, timeout: Duration) -> io::Result<()> {
        // The counter still holds the wake-ups that have ended waits for sockets.
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let waited = match self.queue.is_empty() {
            true => poll(&mut [PollFd::new(&self.waker, PollFlags::IN)], Some(&timeout)),
            false => Ok(0),
        };
        self.sleeps.store(false, Ordering::Relaxed);
        match waited {
            Err(Errno::INTR) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a socket or a message, until the timeout at most.
    pub fn wait(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        let mut timeout = timeout;
        if !timeout.is_zero() {
            self.sleeps.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.queue.is_empty() {
                timeout = Duration::ZERO;
            }
        }
        let waited = self.poll.poll(events, Some(timeout));
        self.sleeps.store(false, Ordering::Relaxed);
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            waited => waited,
        }
    }

    pub fn try_recv(&self) -> Option<ToLoop> {
        self.queue.try_recv().ok()
    }
}

fn channel() -> io::Result<(LoopSender, LoopInbox)> {
    let poll = Poll::new()?;
    let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    poll.registry().register(&mut SourceFd(&waker.as_raw_fd()), WAKER, Interest::READABLE)?;
    let (sender, queue) = crossbeam_channel::unbounded();
    let sleeps = Arc::new(AtomicBool::new(false));
    let inbox = LoopInbox { poll, queue, sleeps: sleeps.clone(), waker: waker.clone() };
    Ok((LoopSender { queue: sender, sleeps, waker }, inbox))
}

/// All loops of a store. The first one owns the Raft groups. The first [`active`](Loops::active)
/// ones serve clients.
pub struct Loops {
    senders: Vec<LoopSender>,
    next: AtomicUsize,
    active: AtomicUsize,
    /// True if the clients of the first loop only write, and do not pipeline.
    only_write: AtomicBool,
    /// Held while the number of active loops changes, so that all loops hear the changes in order.
    changing: Mutex<()>,
    /// The kernel's numbers of the loops' threads; 0 before a loop runs.
    threads: Vec<AtomicU32>,
}

impl Loops {
    /// Creates `count` loops, and at least one.
    pub fn new(count: usize) -> io::Result<(Loops, Vec<LoopInbox>)> {
        let channels: Vec<_> = (0..count.max(1)).map(|_| channel()).collect::<io::Result<_>>()?;
        let (senders, inboxes): (Vec<_>, _) = channels.into_iter().unzip();
        let threads = senders.iter().map(|_| AtomicU32::new(0)).collect();
        let (next, active) = (AtomicUsize::new(0), AtomicUsize::new(1));
        let only_write = AtomicBool::new(false);
        Ok((Loops { senders, next, active, only_write, changing: Mutex::new(()), threads }, inboxes))
    }

    pub fn worker(&self) -> WorkerSender {
        WorkerSender(self.first().clone())
    }

    /// Returns the loop that owns the Raft groups.
    pub fn first(&self) -> &LoopSender {
        &self.senders[0]
    }

    pub fn get(&self, of: usize) -> &LoopSender {
        &self.senders[of]
    }

    pub fn all(&self) -> &[LoopSender] {
        &self.senders
    }

    /// Returns the loop for the next client.
    pub fn next(&self) -> &LoopSender {
        &self.senders[self.next.fetch_add(1, Ordering::Relaxed) % self.active()]
    }

    /// Returns the number of loops that serve clients.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Notes whether the clients of the first loop only write, and do not pipeline.
    pub fn note_only_write(&self, only_write: bool) {
        self.only_write.store(only_write, Ordering::Relaxed);
    }

    /// Returns what was noted last.
    pub fn only_write(&self) -> bool {
        self.only_write.load(Ordering::Relaxed)
    }

    /// Lets the first `count` loops serve clients, at most all. Returns true if the number changes.
    pub fn serve_with(&self, count: usize) -> bool {
        let now = count.clamp(1, self.senders.len());
        let _changing = self.changing.lock();
        let before = self.active.swap(now, Ordering::Relaxed);
        if before != now {
            self.senders.iter().for_each(|sender| drop(sender.send(ToLoop::Spread { before, now })));
        }
        before != now
    }

    /// Records the calling thread as that of the loop.
    pub fn runs_here(&self, number: usize) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.threads[number].store(thread as u32, Ordering::Relaxed);
    }

    pub fn threads(&self) -> Vec<u32> {
        self.threads.iter().map(|thread| thread.load(Ordering::Relaxed)).collect()
    }
}

/// The sender to the owner of the Raft groups.
#[derive(Clone)]
pub struct WorkerSender(LoopSender);

impl WorkerSender {
    pub fn send(&self, message: ToWorker) -> Result<(), Stopped> {
        self.0.send(ToLoop::Worker(message))
    }

    /// Sends an input for the shard.
    pub fn step(&self, input: Input<Asker, Reader>) -> Result<(), Stopped> {
        self.send(ToWorker::Shard(input))
    }

    /// Sends an input that the shard gives to the Raft groups unchanged.
    pub fn raft(&self, input: replica::Input) -> Result<(), Stopped> {
        self.step(Input::Raft(input))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_loop_that_rests_is_woken_by_messages_and_not_by_sockets() {
        const SHORT: Duration = Duration::from_millis(50);
        const LONG: Duration = Duration::from_secs(20);
        let (sender, mut inbox) = channel().unwrap();
        let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
        there.write_all(b"x").unwrap();
        here.set_nonblocking(true).unwrap();
        let mut here = mio::net::UnixStream::from_std(here);
        inbox.poll.registry().register(&mut here, Token(7), Interest::READABLE).unwrap();
        let rests = |inbox: &mut LoopInbox, timeout| {
            let began = std::time::Instant::now();
            inbox.rest(timeout).unwrap();
            began.elapsed() >= timeout
        };
        assert!(rests(&mut inbox, SHORT), "the client's request can wait");
        sender.send(ToLoop::Stop).unwrap();
        assert!(!rests(&mut inbox, LONG), "a message is there");
        assert!(inbox.try_recv().is_some());
        // A message that comes during a rest ends it.
        let sending = std::thread::spawn(move || {
            while !sender.sleeps.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            sender.send(ToLoop::Stop).unwrap();
            sender
        });
        assert!(!rests(&mut inbox, LONG));
        let _sender = sending.join().unwrap();
        assert!(inbox.try_recv().is_some());
        // The wake-up does not shorten the next one, and the sockets were only put off.
        assert!(rests(&mut inbox, SHORT));
        let mut events = Events::with_capacity(8);
        inbox.wait(&mut events, LONG).unwrap();
        assert!(events.iter().any(|event| event.token() == Token(7)));
    }

    /// After a lost wake-up the loop would sleep until the timeout.
    #[test]
    fn a_loop_that_is_about_to_sleep_misses_no_message() {
        let (sender, mut inbox) = channel().unwrap();
        let mut events = Events::with_capacity(8);
        let count = 200_000;
        let sending = std::thread::spawn(move || {
            (0..count).for_each(|_| sender.send(ToLoop::Stop).unwrap());
        });
        let mut received = 0;
        while received < count {
            let began = std::time::Instant::now();
            if received % 3 == 0 {
                inbox.rest(Duration::from_secs(20)).unwrap();
            }
            inbox.wait(&mut events, Duration::from_secs(20)).unwrap();
            assert!(began.elapsed() < Duration::from_secs(10), "{received} of {count}");
            while inbox.try_recv().is_some() {
                received += 1;
            }
        }
        sending.join().unwrap();
    }
}
