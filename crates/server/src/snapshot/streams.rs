//! Snapshots that are sent while they are read: the files of a region are built in memory from one
//! view and never stored at the source. So the source reads each row once and writes nothing, it
//! needs no room, and the first bytes leave at once.
//!
//! ```text
//! worker ─ make ─▶ view ─▶ host.made          the view is open, and waits to be asked for
//! worker ─ send ─▶ a thread each ═▶ receiver  built from the view as fast as the receiver takes it
//! ```
//!
//! * *Views are few.* The thread of the queue that opened a view holds it until it closes, so there
//!   are at most as many views as streams. Rows are flushed first, up to three times, while they
//!   exceed an eighth of a memtable, because a view keeps its memtables in RAM; on flash it keeps
//!   old versions of rows.
//! * *Memory is bounded.* The builder is called back for each piece and waits in the call while the
//!   window is full, so a slow receiver slows the reading down and nothing queues up.
//! * *A lost connection* costs the open file: the receiver keeps whole files, and the builder
//!   begins at the first row that is not in one of them. The bytes of a file are not built twice
//!   alike.
//! * *Several receivers* of one view get a thread and an iterator each, because they do not proceed
//!   at the same pace.
//! * A view closes when no transfer of it is left, when none asked for it in time, and when its
//!   region is forgotten. A transfer ends when its receiver makes no progress in time, and when
//!   this store no longer leads the region.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use rocks::snapshot::{FileSink, RegionView, SnapshotError, SnapshotFile, Start};
use types::{LogIndex, RegionId};

use super::counters::Counters;
use super::sender::{attend, connect, encoded, hear, is_wanted, refusal};
use super::sender::{Broken, Connected, Progress, Sending, LOOK_EVERY, WINDOW_BYTES};
use super::wire::{invalid, Frame, Place, Wire, DATA_BYTES_MAX};
use super::{maker, Shared};

/// Maximum number of times that a file is begun before its transfer is given up.
const TRIES_OF_A_FILE: u32 = 8;

/// The open views: each region has at most one. A view that a newer one replaces only completes its
/// transfers.
#[derive(Default)]
pub struct Views {
    open: Mutex<BTreeMap<RegionId, OpenView>>,
    next_number: AtomicU64,
    /// Number of transfers in progress.
    transfers: AtomicUsize,
}

struct OpenView {
    number: u64,
    index: LogIndex,
    requests: Sender<Box<Sending>>,
}

impl Views {
    /// Passes a transfer to the view that the message names. Returns it if there is none.
    pub fn request(&self, sending: Box<Sending>) -> Result<(), Box<Sending>> {
        let index = sending.message.get_snapshot().get_metadata().index;
        let open = self.open.lock();
        match open.get(&sending.region).filter(|view| view.index == index) {
            Some(view) => view.requests.send(sending).map_err(|unsent| unsent.0),
            None => Err(sending),
        }
    }

    /// Closes the region's view once its transfers have ended.
    pub fn forget(&self, region: RegionId) {
        self.open.lock().remove(&region);
    }

    fn register(&self, region: RegionId, index: LogIndex, requests: Sender<Box<Sending>>) -> u64 {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(region, OpenView { number, index, requests });
        number
    }

    /// Closes a view unless there is another request. Returns true if it is closed.
    fn close(&self, region: RegionId, number: u64, requests: &Receiver<Box<Sending>>) -> bool {
        let mut open = self.open.lock();
        let is_unused = requests.is_empty();
        if is_unused && open.get(&region).is_some_and(|view| view.number == number) {
            open.remove(&region);
        }
        is_unused
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }
}

/// Opens a view of the region, and holds it until it is no longer needed.
pub fn serve(shared: &Arc<Shared>, region: RegionId) {
    if !shared.maker.is_wanted(region) {
        return;
    }
    let keyspace = shared.host.keyspace();
    let opened = keyspace.view_region_for_long(region);
    let opened = opened.and_then(|view| Ok((view, keyspace.estimate_snapshot(region)?)));
    // If the region was forgotten in the meantime, no caller waits for an answer.
    if shared.is_stopping() || !shared.maker.answered(region) {
        return;
    }
    let (view, estimate) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            maker::cannot_be_made(shared, region, &error);
            Counters::add(&shared.counters.make_failed, 1);
            shared.host.failed(region);
            return;
        }
    };
    Counters::add(&shared.counters.made, 1);
    tracing::info!(region, index = view.index, estimate, "opened a view for a snapshot");
    let (requests, queue) = crossbeam_channel::unbounded();
    let number = shared.views.register(region, view.index, requests);
    shared.host.made(region, view.index, view.term, view.descriptor.clone());
    Held { shared, view: &view, estimate, number, opened_at: Instant::now() }.serve(queue);
}

struct Held<'a> {
    shared: &'a Arc<Shared>,
    view: &'a RegionView<'a>,
    /// The estimated bytes of the files.
    estimate: u64,
    number: u64,
    opened_at: Instant,
}

/// Reports the end of a thread's transfer, also if it panics.
struct Ends<'a> {
    ended: Sender<()>,
    transfers: &'a AtomicUsize,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.transfers.fetch_sub(1, Ordering::Relaxed);
        let _ = self.ended.send(());
    }
}

impl Held<'_> {
    fn serve(&self, mut requests: Receiver<Box<Sending>>) {
        let (ended, ends) = crossbeam_channel::unbounded();
        let mut waiting = VecDeque::new();
        let (mut running, mut is_open, mut was_asked_for) = (0, true, false);
        std::thread::scope(|scope| loop {
            crossbeam_channel::select! {
                recv(requests) -> request => match request {
                    Ok(sending) => {
                        was_asked_for = true;
                        waiting.push_back(Arc::<Sending>::from(sending));
                    }
                    Err(_) => {
                        is_open = false;
                        requests = crossbeam_channel::never();
                    }
                },
                recv(ends) -> _ => running -= 1,
                default(LOOK_EVERY) => {}
            }
            if self.shared.is_stopping() {
                waiting.clear();
            }
            let (shared, views) = (self.shared, &self.shared.views);
            // The first transfer has the place of this thread. The others must find one.
            while running == 0 || views.transfers.load(Ordering::Relaxed) < shared.limits.streams {
                let Some(sending) = waiting.pop_front() else { break };
                running += 1;
                views.transfers.fetch_add(1, Ordering::Relaxed);
                let ends = Ends { ended: ended.clone(), transfers: &views.transfers };
                let of_thread = sending.clone();
                let body = move || {
                    let _ends = ends;
                    self.send(&of_thread);
                };
                let thread = std::thread::Builder::new().name("snap-send".to_owned());
                if let Err(error) = thread.spawn_scoped(scope, body) {
                    tracing::error!(%error, "a thread for a snapshot cannot be started");
                    attend(shared, &sending, |_| Err(Broken::Refused(error.to_string())));
                }
            }
            let is_late = self.opened_at.elapsed() >= shared.limits.unclaimed;
            let is_over = was_asked_for || !is_open || is_late || shared.is_stopping();
            let region = self.view.descriptor.id;
            if running == 0 && is_over && views.close(region, self.number, &requests) {
                return;
            }
        });
    }

    fn send(&self, sending: &Sending) {
        let mut built = Built { starts: vec![Start::default()], ..Built::default() };
        attend(self.shared, sending, |progress| self.send_over_a_connection(sending, &mut built, progress));
    }

    fn send_over_a_connection(
        &self,
        sending: &Sending,
        built: &mut Built,
        progress: &mut Progress,
    ) -> Result<(), Broken> {
        let offer = Frame::Stream {
            attempt: sending.attempt,
            region: sending.region,
            estimate: self.estimate,
            message: encoded(sending)?,
        };
        let (Connected(mut wire, _registered), first) = connect(self.shared, sending, progress, &offer)?;
        let mut at = match first {
            Frame::Go(at) => at,
            Frame::Done => return Ok(()),
            other => return Err(refusal(other)),
        };
        loop {
            let start = built.begin_at(at)?;
            // What is sent again counts as progress. The tries of a file are limited.
            progress.reached = at;
            let (shared, under_way) = (self.shared, VecDeque::new());
            let mut stream = Stream { shared, sending, wire: &mut wire, built, progress, at, under_way };
            let ended = match self.view.build(&start, shared.limits.file_bytes, &mut stream) {
                Ok(()) => stream.end(self.view),
                Err(stop) => Err(stop),
            };
            match ended {
                Ok(()) => {
                    let files = built.files.len();
                    tracing::info!(region = sending.region, to = sending.to, files, "sent a snapshot");
                    return Ok(());
                }
                Err(Stop::Go(again)) => at = again,
                Err(Stop::Broken(broken)) => return Err(broken),
            }
        }
    }
}

/// The files that a transfer has built, over all its connections.
#[derive(Default)]
struct Built {
    files: Vec<SnapshotFile>,
    /// The start of each of the files, and of the next one.
    starts: Vec<Start>,
    /// The last file at which the receiver began, and the number of times that it did.
    begun: u32,
    tries: u32,
}

impl Built {
    /// Returns the start of the file at which the receiver continues.
    fn begin_at(&mut self, at: Place) -> Result<Start, Broken> {
        let file = at.file as usize;
        let start = self.starts.get(file).filter(|_| at.offset == 0).cloned();
        let start = start.ok_or_else(|| invalid("a place that is not the beginning of a file"))?;
        if file < self.files.len() {
            self.files.truncate(file);
            self.starts.truncate(file + 1);
        }
        if at.file > self.begun {
            (self.begun, self.tries) = (at.file, 0);
        }
        self.tries += 1;
        match self.tries {
            ..=TRIES_OF_A_FILE => Ok(start),
            tries => Err(Broken::Refused(format!("file {} did not arrive in {tries} tries", file + 1))),
        }
    }
}

/// The reason why the building of files stops.
enum Stop {
    /// The receiver wants a file again.
    Go(Place),
    Broken(Broken),
}

impl From<SnapshotError> for Stop {
    fn from(error: SnapshotError) -> Stop {
        Stop::Broken(Broken::Rows(error))
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Broken(error.into())
    }
}

/// Sends files while they are built.
struct Stream<'a> {
    shared: &'a Shared,
    sending: &'a Sending,
    wire: &'a mut Wire,
    built: &'a mut Built,
    progress: &'a mut Progress,
    /// The place of the next byte.
    at: Place,
    /// The end position and the length of each frame that the receiver has not written yet.
    under_way: VecDeque<(Place, usize)>,
}

impl FileSink for Stream<'_> {
    type Error = Stop;

    fn have_read(&mut self, _row_bytes: u64) -> Result<(), Stop> {
        self.go_on()
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        for piece in bytes.chunks(DATA_BYTES_MAX) {
            while self.under_way.iter().map(|(_, bytes)| bytes).sum::<usize>() >= WINDOW_BYTES {
                self.hear()?;
            }
            self.go_on()?;
            self.shared.send_pace.pay(piece.len());
            self.wire.send_data(self.at, piece)?;
            Counters::add(&self.shared.counters.sent_bytes, piece.len() as u64);
            self.at.offset += piece.len() as u64;
            self.under_way.push_back((self.at, piece.len()));
        }
        Ok(())
    }

    fn end_file(&mut self, file: SnapshotFile, next: Start) -> Result<(), Stop> {
        // The receiver may get the frame although sending it fails, and then begin at the next
        // file.
        let end = Frame::FileEnd { file: self.at.file, description: file };
        self.built.files.push(file);
        self.built.starts.push(next);
        self.wire.send(&end)?;
        self.at = Place { file: self.at.file + 1, offset: 0 };
        Ok(())
    }
}

impl Stream<'_> {
    /// Ends the transfer if it is no longer wanted.
    fn go_on(&self) -> Result<(), Stop> {
        match is_wanted(self.shared, self.sending) {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
        }
    }

    /// Waits until the receiver has everything.
    fn end(&mut self, view: &RegionView<'_>) -> Result<(), Stop> {
        let manifest = view.manifest(self.built.files.clone()).encode();
        self.wire.send(&Frame::End { manifest })?;
        while self.hear()? {}
        Ok(())
    }

    /// Takes the receiver's next frame. Returns false if the receiver has everything.
    fn hear(&mut self) -> Result<bool, Stop> {
        match hear(self.shared, self.sending, self.wire, self.shared.limits.patience)? {
            Frame::Taken(before) => {
                while self.under_way.front().is_some_and(|(end, _)| *end <= before) {
                    self.under_way.pop_front();
                }
                let known = self.progress.reached;
                self.progress.reach(before);
                let is_late = self.progress.at.elapsed() >= self.shared.limits.patience;
                match self.progress.reached == known && is_late {
                    true => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
                    false => Ok(true),
                }
            }
            Frame::Go(at) => Err(Stop::Go(at)),
            Frame::Done => Ok(false),
            other => Err(Stop::Broken(refusal(other))),
        }
    }
}
