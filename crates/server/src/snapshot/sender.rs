//! Sends a snapshot over as many connections as needed. Each continues where the receiver's files
//! end.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use crossbeam_channel::Receiver;
use protobuf::Message as _;
use raft::eraftpb;
use rocks::snapshot::SnapshotError;
use types::{RegionId, StoreId};

use super::counters::Counters;
use super::maker::{self, Made};
use super::wire::{invalid, Frame, Place, Wire, DATA_BYTES_MAX};
use super::{streams, Connection, Shared};
use crate::transport::socket;

/// Maximum bytes in transit: sent, and not yet written by the receiver.
pub const WINDOW_BYTES: usize = 8 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval at which a waiting transfer checks whether it is still wanted.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(2);

pub struct Sending {
    pub region: RegionId,
    pub to: StoreId,
    /// The number of the transfer, the same for all its connections.
    pub attempt: u64,
    pub message: eraftpb::Message,
    pub snapshot: Option<Arc<Made>>,
}

pub enum Outgoing {
    /// Open a view of the region, and send it to the stores that ask for it.
    View(RegionId),
    /// Send the files that the maker has.
    Files(Box<Sending>),
}

pub fn run(shared: &Arc<Shared>, queue: &Receiver<Outgoing>) {
    for outgoing in queue {
        if shared.is_stopping() {
            return;
        }
        match outgoing {
            Outgoing::View(region) => {
                let serve = AssertUnwindSafe(|| streams::serve(shared, region));
                if std::panic::catch_unwind(serve).is_err() {
                    tracing::error!(region, "a view for a snapshot panicked");
                }
            }
            Outgoing::Files(sending) => attend(shared, &sending, |progress| match &sending.snapshot {
                Some(snapshot) => send_files(shared, &sending, snapshot, progress),
                None => Err(Broken::Refused("its files are no longer held".to_owned())),
            }),
        }
    }
}

/// Ends a transfer whose snapshot is not held any more. It waits for no other transfer.
pub fn refuse(shared: &Shared, sending: &Sending) {
    attend(shared, sending, |_| Err(Broken::Refused("its rows are no longer held".to_owned())));
}

/// Performs a transfer over connections that `send` opens, and reports its end.
pub fn attend(shared: &Shared, sending: &Sending, mut send: impl FnMut(&mut Progress) -> Result<(), Broken>) {
    // A panic must end only its transfer, not the thread.
    let attempt = AssertUnwindSafe(|| transfer(shared, sending, &mut send));
    let ok = std::panic::catch_unwind(attempt).unwrap_or(false);
    if shared.is_stopping() {
        return;
    }
    let counter = if ok { &shared.counters.sent } else { &shared.counters.send_failed };
    Counters::add(counter, 1);
    let Sending { region, to, attempt, .. } = *sending;
    let mut transfers = shared.sending.lock();
    if transfers.get(&(region, to)) == Some(&attempt) {
        transfers.remove(&(region, to));
        drop(transfers);
        shared.host.sent(region, to, ok);
    }
}

/// The reason why a connection did not complete the transfer.
pub enum Broken {
    /// The next connection may succeed.
    Connection(io::Error),
    Refused(String),
    /// The local files differ from the data that was written.
    Damaged(String),
    /// The rows cannot be read.
    Rows(SnapshotError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Connection(error)
    }
}

fn transfer(
    shared: &Shared,
    sending: &Sending,
    send: &mut dyn FnMut(&mut Progress) -> Result<(), Broken>,
) -> bool {
    let Sending { region, to, ref snapshot, .. } = *sending;
    let mut progress = Progress { reached: Place::default(), at: Instant::now() };
    let mut pause = PAUSE_FIRST;
    while is_wanted(shared, sending) {
        let before = progress.reached;
        match send(&mut progress) {
            Ok(()) => return true,
            Err(Broken::Refused(why)) => {
                tracing::warn!(region, to, why, "a snapshot cannot be sent");
                return false;
            }
            Err(Broken::Damaged(why)) => {
                tracing::error!(region, to, why, "a snapshot is damaged; a new one will be made");
                snapshot.iter().for_each(|snapshot| shared.maker.discard(snapshot));
                return false;
            }
            Err(Broken::Rows(error)) => {
                maker::cannot_be_made(shared, region, &error);
                return false;
            }
            Err(Broken::Connection(error)) => {
                tracing::debug!(region, to, %error, "a snapshot connection broke while sending");
                if progress.at.elapsed() >= shared.limits.patience {
                    tracing::warn!(region, to, %error, "a snapshot cannot be sent");
                    return false;
                }
            }
        }
        pause = if progress.reached > before { PAUSE_FIRST } else { (pause * 2).min(PAUSE_LAST) };
        rest(shared, pause);
    }
    false
}

pub fn is_wanted(shared: &Shared, sending: &Sending) -> bool {
    let newest = shared.sending.lock().get(&(sending.region, sending.to)).copied();
    !shared.is_stopping() && newest == Some(sending.attempt) && shared.host.leads(sending.region)
}

fn rest(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    while Instant::now() < until && !shared.is_stopping() {
        std::thread::sleep(PAUSE_FIRST.min(pause));
    }
}

/// The furthest position that the receiver reached, and the time at which it got there.
pub struct Progress {
    pub reached: Place,
    pub at: Instant,
}

impl Progress {
    pub fn reach(&mut self, place: Place) {
        if place > self.reached {
            self.reached = place;
            self.at = Instant::now();
        }
    }
}

/// A connection to the receiver of a snapshot, and its registration, which lives as long.
pub struct Connected(pub Wire, pub Connection);

/// Connects, offers the snapshot by `offer`, and waits for the receiver's turn. Also returns its
/// first answer.
pub fn connect(
    shared: &Arc<Shared>,
    sending: &Sending,
    progress: &mut Progress,
    offer: &Frame,
) -> io::Result<(Connected, Frame)> {
    let target = shared.host.target(sending.to);
    let (address, caller) = target.ok_or_else(|| io::Error::other("the store's address is not known"))?;
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    let registered = shared.connection(&stream)?;
    socket::prepare(&stream)?;
    stream.set_write_timeout(Some(shared.limits.timeout()))?;
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    let stream = caller.introduce(stream).map_err(io::Error::from)?;
    stream.socket.set_read_timeout(Some(LOOK_EVERY))?;
    let mut wire = Wire::new(stream, BytesMut::new());
    wire.send(offer)?;
    let asked_at = Instant::now();
    let first = hear(shared, sending, &mut wire, shared.limits.turn)?;
    // The wait for the receiver's turn does not count as a lack of progress.
    progress.at += asked_at.elapsed();
    Ok((Connected(wire, registered), first))
}

/// Returns the message of a transfer as an offer carries it.
pub fn encoded(sending: &Sending) -> io::Result<Bytes> {
    Ok(sending.message.write_to_bytes().map_err(io::Error::other)?.into())
}

fn send_files(
    shared: &Arc<Shared>,
    sending: &Sending,
    snapshot: &Made,
    progress: &mut Progress,
) -> Result<(), Broken> {
    let offer = Frame::Offer {
        attempt: sending.attempt,
        region: sending.region,
        message: encoded(sending)?,
        manifest: snapshot.manifest.encode(),
    };
    let (Connected(mut wire, _registered), first) = connect(shared, sending, progress, &offer)?;
    let mut stream =
        Stream { shared, snapshot, next: Place::default(), open: None, under_way: VecDeque::new() };
    let mut answer = Some(first);
    let mut rewinds = 0;
    loop {
        let frame = match answer.take() {
            Some(frame) => frame,
            None => hear(shared, sending, &mut wire, shared.limits.patience)?,
        };
        match frame {
            Frame::Go(at) => {
                rewinds += 1;
                stream.begin_at(at)?;
            }
            Frame::Taken(at) => {
                stream.taken(at);
                progress.reach(at);
            }
            Frame::Done => return Ok(()),
            // Files that were requested again repeatedly are damaged here.
            Frame::Refused { may_come_again: false, why } if rewinds > 1 => return Err(Broken::Damaged(why)),
            other => return Err(refusal(other)),
        }
        stream.fill_window(&mut wire)?;
    }
}

/// Returns the reason that a frame gives which does not go on with the transfer.
pub fn refusal(frame: Frame) -> Broken {
    match frame {
        Frame::Refused { may_come_again: true, why } => io::Error::other(why).into(),
        Frame::Refused { why, .. } => Broken::Refused(why),
        _ => invalid("not an answer").into(),
    }
}

/// Returns the receiver's next frame. Fails if that takes longer than `patience`, or if the
/// transfer is no longer wanted.
pub fn hear(shared: &Shared, sending: &Sending, wire: &mut Wire, patience: Duration) -> io::Result<Frame> {
    let asked_at = Instant::now();
    loop {
        if !is_wanted(shared, sending) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match wire.receive() {
            Err(error) if is_timeout(&error) && asked_at.elapsed() < patience => {}
            heard => return heard,
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

struct Stream<'a> {
    shared: &'a Shared,
    snapshot: &'a Made,
    next: Place,
    open: Option<atrest::File>,
    /// The end position and the length of each frame that the receiver has not written yet.
    under_way: VecDeque<(Place, usize)>,
}

impl Stream<'_> {
    fn begin_at(&mut self, at: Place) -> io::Result<()> {
        let files = &self.snapshot.manifest.files;
        let is_in = files.get(at.file as usize).is_some_and(|file| at.offset < file.bytes);
        if !is_in && at != (Place { file: files.len() as u32, offset: 0 }) {
            return Err(invalid("a place that is not in the snapshot"));
        }
        self.next = at;
        self.open = None;
        self.under_way.clear();
        Ok(())
    }

    fn taken(&mut self, before: Place) {
        while self.under_way.front().is_some_and(|(end, _)| *end <= before) {
            self.under_way.pop_front();
        }
    }

    fn fill_window(&mut self, wire: &mut Wire) -> Result<(), Broken> {
        while let Some(file) = self.snapshot.manifest.files.get(self.next.file as usize) {
            let under_way: usize = self.under_way.iter().map(|(_, bytes)| bytes).sum();
            if under_way >= WINDOW_BYTES {
                break;
            }
            let length = (file.bytes - self.next.offset).min(DATA_BYTES_MAX as u64) as usize;
            let bytes = self.read(length).map_err(|error| Broken::Damaged(error.to_string()))?;
            self.shared.send_pace.pay(length);
            wire.send(&Frame::data(self.next, bytes))?;
            Counters::add(&self.shared.counters.sent_bytes, length as u64);
            self.next.offset += length as u64;
            if self.next.offset == file.bytes {
                self.next = Place { file: self.next.file + 1, offset: 0 };
                if let Some(sent) = self.open.take() {
                    crate::snapshot::read_no_more(sent.raw());
                }
            }
            self.under_way.push_back((self.next, length));
        }
        Ok(())
    }

    fn read(&mut self, length: usize) -> io::Result<Bytes> {
        let file = match self.open.take() {
            Some(file) => file,
            None => atrest::File::open(&self.snapshot.file(self.next.file as usize))?,
        };
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, self.next.offset)?;
        self.open = Some(file);
        Ok(bytes.into())
    }
}
