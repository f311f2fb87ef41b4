//! `steelyard import --replicate`: the import is a replica of the source.
//!
//! ```text
//! source --PSYNC--> link ---file----> temporary file --> load (`super::file`) --> target
//!                     '-----stream--> spool -----------> apply ----------------->
//! ```
//!
//! The file with all data is received first and loaded then. Meanwhile the stream is received, too,
//! and waits in a spool of temporary files, so memory does not depend on the data. The source
//! learns of what the target has executed, not of what has arrived.

mod apply;
mod commands;
mod expiries;
mod framing;
mod link;
mod record;
mod spool;

use std::fs::File;
use std::io::{BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context};
use client::connection::{text, Connection};
use client::table::{bytes, count, duration};
use rdb::FileReader;
use tokio::sync::{watch, Notify};
use tokio::task::JoinHandle;

use super::file::{self, Load};
use super::live;
use super::place::{Place, Tracker};
use super::report::Progress;
use super::same_data::refuse_same_data;
use super::server::{call, ServerUrl};
use super::signals::Signals;
use super::source::{now_ms, Source};
use super::target::Target;
use super::Options;
use apply::{Applied, Applier};
use commands::{Counts, StreamState};
use link::{Ended, Link};
use record::Record;
use spool::Spool;

pub use commands::hold;

const FILE_BUFFER_BYTES: usize = 1 << 20;
/// Time between two lines that tell of the progress, and between two questions whether the target
/// has caught up.
const SHOW_EVERY: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_millis(100);
const PLACE_IS_LOST: &str = "the target has a part of the stream that is not known: run it again with \
                             --flush-target, or end it with --finish";

const FINISH_LATER: &str = "run it with --replicate --finish, which lets expiry times take effect";

#[derive(clap::Args)]
pub struct Replication {
    /// Follow the source as a replica, so that its writes arrive too, until SIGINT or SIGTERM. The
    /// target must be empty
    #[arg(long, requires = "from")]
    pub replicate: bool,
    /// End when the target has all writes of the source, and compare the servers. Stop the writers
    /// before
    #[arg(long, requires = "replicate", conflicts_with = "finish")]
    until_caught_up: bool,
    /// Delete all keys of the target before the source's data is loaded
    #[arg(long, requires = "replicate")]
    flush_target: bool,
    /// End an import that was interrupted, without the source: expiry times take effect
    #[arg(long, requires = "replicate")]
    finish: bool,
    /// Directory for the source's data and stream while they wait [default: the system's temporary
    /// directory]
    #[arg(long, value_name = "DIR", requires = "replicate")]
    spool_dir: Option<PathBuf>,
    /// Seconds for which the source may be away before the import ends
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "replicate")]
    source_timeout: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Receives,
    Loads,
    Follows,
}

/// The state of an import, which its tasks share.
struct Shared {
    dir: PathBuf,
    spool: Spool,
    started: Instant,
    phase: Mutex<Phase>,
    /// The name of the source's history.
    id: Mutex<String>,
    /// The length of the file with all data, 0 if it is not known, and the bytes that have arrived.
    file_bytes: AtomicU64,
    file_received: AtomicU64,
    /// The offset up to which the target has executed the stream.
    applied: AtomicU64,
    /// The offset that the source told last.
    source_offset: AtomicU64,
    commands: AtomicU64,
    /// Number of times that the connection to the source broke.
    breaks: AtomicU64,
    /// True if expiry times are held back at the target.
    holds_expiries: AtomicBool,
    /// Notified if the source asks for an acknowledgement.
    acknowledge: Notify,
}

impl Shared {
    fn new(dir: &Path) -> Shared {
        Shared {
            dir: dir.to_owned(),
            spool: Spool::new(dir),
            started: Instant::now(),
            phase: Mutex::new(Phase::Receives),
            id: Mutex::default(),
            file_bytes: AtomicU64::new(0),
            file_received: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            source_offset: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            breaks: AtomicU64::new(0),
            holds_expiries: AtomicBool::new(false),
            acknowledge: Notify::new(),
        }
    }

    fn id(&self) -> String {
        self.id.lock().expect("nothing panics under this lock").clone()
    }

    fn set_id(&self, id: &str) {
        id.clone_into(&mut self.id.lock().expect("nothing panics under this lock"));
    }

    fn begin(&self, phase: Phase) {
        *self.phase.lock().expect("nothing panics under this lock") = phase;
    }

    /// Returns the bytes of the stream that the target has not executed.
    fn lag_bytes(&self) -> u64 {
        let known = self.spool.end().max(self.source_offset.load(Ordering::Relaxed));
        known.saturating_sub(self.applied.load(Ordering::Acquire))
    }

    /// Returns the age of the first received byte that the target has not executed.
    fn lag_ms(&self) -> u64 {
        let applied = self.applied.load(Ordering::Acquire);
        match self.spool.arrival_ms(applied) {
            Some(at) if applied < self.spool.end() => now_ms().saturating_sub(at),
            _ => 0,
        }
    }

    fn line(&self, progress: &Progress, commands_per_second: f64) -> String {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
        let waiting = self.spool.end().saturating_sub(self.applied.load(Ordering::Acquire));
        match *self.phase.lock().expect("nothing panics under this lock") {
            Phase::Receives => {
                let of = match self.file_bytes.load(Ordering::Relaxed) {
                    0 => String::new(),
                    length => format!(" of {}", bytes(length as f64)),
                };
                let received = bytes(load(&self.file_received));
                format!("receiving the source's data: {received}{of}  {}", duration(self.started.elapsed()))
            }
            Phase::Loads => {
                format!("loading: {}  {} of commands wait", progress.line(), bytes(waiting as f64))
            }
            Phase::Follows => format!(
                "following: {} commands  {}/s  lag {}, {:.1} s  {}",
                count(load(&self.commands)),
                count(commands_per_second),
                bytes(self.lag_bytes() as f64),
                self.lag_ms() as f64 / 1000.0,
                duration(self.started.elapsed())
            ),
        }
    }

    /// Shows the progress on stderr until the task is aborted.
    fn show(self: &Arc<Shared>, progress: &Arc<Progress>) -> JoinHandle<()> {
        let (shared, progress) = (self.clone(), progress.clone());
        tokio::spawn(async move {
            let is_terminal = std::io::stderr().is_terminal();
            let mut ticks = tokio::time::interval(SHOW_EVERY);
            ticks.tick().await;
            let mut before = 0;
            loop {
                ticks.tick().await;
                let commands = shared.commands.load(Ordering::Relaxed);
                let per_second = (commands - before) as f64 / SHOW_EVERY.as_secs_f64();
                let line = shared.line(&progress, per_second);
                before = commands;
                match is_terminal {
                    true => eprint!("\r\x1b[K{line}"),
                    false => eprintln!("{line}"),
                }
            }
        })
    }
}

/// Asks the source for the end of its stream.
struct Asking {
    url: ServerUrl,
    connection: Option<Connection>,
}

impl Asking {
    /// Returns the name of the source's history and its end, if the source answers.
    async fn end(&mut self) -> Option<(String, u64)> {
        const PATIENCE: Duration = Duration::from_secs(1);
        match tokio::time::timeout(PATIENCE, self.ask()).await {
            Ok(Ok(end)) => Some(end),
            _ => {
                self.connection = None;
                None
            }
        }
    }

    async fn ask(&mut self) -> anyhow::Result<(String, u64)> {
        if self.connection.is_none() {
            self.connection = Some(self.url.connect().await?);
        }
        let connection = self.connection.as_mut().context("no connection")?;
        let info = call(connection, &["INFO", "replication"]).await?;
        let info = text(&info).unwrap_or_default();
        let info = String::from_utf8_lossy(&info).into_owned();
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(|value| value.trim().to_owned())
        };
        // Such a replica may lack writes of its master.
        let is_cut_off = field("master_link_status").is_some_and(|status| status != "up");
        ensure!(!is_cut_off, "the source has no connection to its master");
        let offset = field("master_repl_offset").and_then(|offset| offset.parse().ok());
        let id = field("master_replid").context("the source tells no master_replid")?;
        Ok((id, offset.context("the source tells no master_repl_offset")?))
    }
}

/// The reason for which an import ends.
enum End {
    CaughtUp,
    Interrupted,
    /// The stream has ended.
    Broken(anyhow::Error),
}

struct Import<'a> {
    from: &'a ServerUrl,
    to: &'a ServerUrl,
    record: Option<&'a Path>,
    replication: &'a Replication,
    options: &'a Options,
    shared: Arc<Shared>,
    progress: Arc<Progress>,
    signals: Signals,
}

pub async fn import(
    from: &ServerUrl,
    to: &ServerUrl,
    record: Option<&Path>,
    replication: &Replication,
    options: &Options,
) -> anyhow::Result<()> {
    ensure!(from.database.is_none(), "--replicate copies all databases: --from names none");
    let dir = replication.spool_dir.clone().unwrap_or_else(std::env::temp_dir);
    let import = Import {
        from,
        to,
        record,
        replication,
        options,
        shared: Arc::new(Shared::new(&dir)),
        progress: Progress::new(),
        signals: Signals::new()?,
    };
    match replication.finish {
        true => import.finish().await,
        false => import.run().await,
    }
}

impl Import<'_> {
    async fn run(mut self) -> anyhow::Result<()> {
        let (source, target) = (self.from.to_string(), self.to.to_string());
        let recorded = self.record.map(|path| Record::read(path, &source, &target)).transpose()?.flatten();
        let recorded = recorded.map(|record| record.replication);
        if let Some(record::Replication::Runs) = recorded {
            eprintln!("the last import ended without recording its place, so all data is copied again");
        }
        self.check_servers().await?;
        let after = match &recorded {
            Some(record::Replication::At { id, offset, .. }) => Some((id.as_str(), *offset)),
            _ => None,
        };
        if after.is_none() {
            self.check_target().await?;
        }
        let patience = Duration::from_secs(self.replication.source_timeout);
        let (link, continues) = tokio::select! {
            started = Link::start(self.from, after, self.shared.clone(), patience) => started?,
            () = self.signals.next() => bail!("interrupted"),
        };
        let line = self.shared.show(&self.progress);
        let result = match recorded {
            Some(record::Replication::At { state, offset, holds_expiries, .. }) if continues => {
                eprintln!("continuing at offset {offset}");
                self.shared.holds_expiries.store(holds_expiries, Ordering::Relaxed);
                // The place stays recorded if the target is away.
                let applier = self.applier(state).await?;
                self.record(record::Replication::Runs)?;
                let (stop, stopped) = watch::channel(false);
                self.follow(tokio::spawn(link.run(stopped)), stop, applier).await.context(PLACE_IS_LOST)
            }
            recorded => {
                if recorded.is_some_and(|recorded| recorded != record::Replication::Runs) {
                    eprintln!(
                        "the source does not continue at the recorded place, so all data is copied again"
                    );
                    self.check_target().await?;
                }
                self.copy_and_follow(link).await
            }
        };
        line.abort();
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let (end, applied, counts) = result?;
        let mut signals = Signals::new()?;
        tokio::select! {
            concluded = self.conclude(end, applied, counts) => concluded,
            () = signals.next() => bail!("interrupted: {FINISH_LATER}"),
        }
    }

    /// Returns an error if the source cannot be followed, if the target has the same data, or if it
    /// refuses a database of the source.
    async fn check_servers(&self) -> anyhow::Result<()> {
        let mut source = Source::connect(self.from).await?;
        ensure!(!source.is_steelyard, "{}: --replicate is for Redis", self.from);
        refuse_same_data(&mut source, self.to).await?;
        let mut target = Target::connect(self.to, self.progress.clone()).await?;
        target.check_databases(source.databases().await?.into_keys()).await
    }

    /// Returns an error if the target has keys that the source may not have.
    async fn check_target(&self) -> anyhow::Result<()> {
        if self.replication.flush_target {
            return Ok(());
        }
        let databases = Source::connect(self.to).await?.databases().await?;
        ensure!(
            databases.is_empty(),
            "{}: the target has keys. Keys that the source does not have would stay: --flush-target deletes all \
             keys of the target first",
            self.to
        );
        Ok(())
    }

    fn record(&self, replication: record::Replication) -> anyhow::Result<()> {
        let Some(path) = self.record else { return Ok(()) };
        let (source, target) = (self.from.to_string(), self.to.to_string());
        Record { source, target, replication }.write(path)
    }

    async fn copy_and_follow(&mut self, mut link: Link) -> anyhow::Result<(End, Applied, Counts)> {
        eprintln!("the source's data and stream wait in {}", self.shared.dir.display());
        let file = tokio::select! {
            file = link.file() => file?,
            () = self.signals.next() => bail!("interrupted"),
        };
        let (stop, stopped) = watch::channel(false);
        let link = tokio::spawn(link.run(stopped));
        self.record(record::Replication::Runs)?;
        self.load_and_follow(file, link, stop).await.context(PLACE_IS_LOST)
    }

    async fn load_and_follow(
        &mut self,
        file: File,
        mut link: JoinHandle<anyhow::Result<Ended>>,
        stop: watch::Sender<bool>,
    ) -> anyhow::Result<(End, Applied, Counts)> {
        if self.replication.flush_target {
            call(&mut self.to.connect().await?, &["FLUSHALL"]).await?;
        }
        self.shared.begin(Phase::Loads);
        let loaded = tokio::select! {
            loaded = load(self.to, file, self.options, &self.progress) => loaded?,
            ended = &mut link => match ended?? {
                Ended::Stopped => bail!("the stream was not received"),
                Ended::SourceIsGone(error) => return Err(error),
            },
            () = self.signals.next() => bail!("interrupted while the source's data was loaded"),
        };
        self.progress.print_totals("loaded");
        let refused = self.progress.refused();
        ensure!(refused == 0, "{refused} keys were not copied, so commands on them cannot be executed");
        self.shared.holds_expiries.store(loaded.has_expiries, Ordering::Relaxed);
        // A master selects a database again after its data. A replica passes on what its own master
        // sends.
        let database = loaded.stream_database.unwrap_or(0);
        let applier = self.applier(StreamState { database, splits: false }).await?;
        self.follow(link, stop, applier).await
    }

    /// Returns the applier of the stream from here on.
    async fn applier(&self, state: StreamState) -> anyhow::Result<Applier> {
        let is_cluster = is_cluster(self.to).await?;
        let from = Applied { offset: self.shared.applied.load(Ordering::Acquire), state };
        Applier::connect(self.to, from, is_cluster, self.shared.clone()).await
    }

    /// Executes the stream until the import ends.
    async fn follow(
        &mut self,
        mut link: JoinHandle<anyhow::Result<Ended>>,
        stop: watch::Sender<bool>,
        applier: Applier,
    ) -> anyhow::Result<(End, Applied, Counts)> {
        self.shared.begin(Phase::Follows);
        let (finish, finishes) = watch::channel(false);
        let mut applier = tokio::spawn(applier.run(finishes));
        let mut asking = Asking { url: self.from.clone(), connection: None };
        let mut ticks = tokio::time::interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked = Instant::now();
        let end = loop {
            tokio::select! {
                ended = &mut applier => {
                    ended??;
                    bail!("the stream was not executed to its end");
                }
                ended = &mut link => break match ended? {
                    Ok(Ended::Stopped) => bail!("the stream was not received"),
                    Ok(Ended::SourceIsGone(error)) | Err(error) => End::Broken(error),
                },
                () = self.signals.next() => break End::Interrupted,
                _ = ticks.tick() => {
                    let has_all = self.shared.applied.load(Ordering::Acquire) == self.shared.spool.end();
                    let asks = self.replication.until_caught_up && has_all;
                    if asks || asked.elapsed() >= SHOW_EVERY {
                        asked = Instant::now();
                        if let Some((id, end)) = asking.end().await {
                            self.shared.source_offset.store(end, Ordering::Relaxed);
                            let applied = self.shared.applied.load(Ordering::Acquire);
                            if asks && id == self.shared.id() && applied >= end {
                                break End::CaughtUp;
                            }
                        }
                    }
                }
            }
        };
        if !link.is_finished() {
            stop.send_replace(true);
            // Its errors do not matter any more.
            let _ = link.await;
        }
        finish.send_replace(true);
        let (applied, counts) = tokio::select! {
            ended = &mut applier => ended??,
            () = self.signals.next() => bail!("interrupted before all received commands were executed"),
        };
        Ok((end, applied, counts))
    }

    /// Records the place, or ends the import for good.
    async fn conclude(&self, end: End, applied: Applied, counts: Counts) -> anyhow::Result<()> {
        let holds_expiries = self.shared.holds_expiries.load(Ordering::Relaxed);
        let Applied { offset, state } = applied;
        // While keys get their true expiry times, the stream cannot continue.
        let releases = matches!(end, End::CaughtUp) || self.record.is_none();
        if !releases {
            self.record(record::Replication::At { id: self.shared.id(), offset, state, holds_expiries })?;
        }
        self.print_totals(&counts);
        if releases {
            self.release_expiries().await?;
            self.record.map_or(Ok(()), Record::delete)?;
        } else if let Some(path) = self.record {
            println!("the place is recorded in {}: run it again to continue there", path.display());
            if holds_expiries {
                println!(
                    "no key of the target expires before the end, which --until-caught-up or --finish make"
                );
            }
        }
        match end {
            End::CaughtUp => self.compare().await,
            End::Interrupted => Ok(()),
            End::Broken(error) => Err(error),
        }
    }

    fn print_totals(&self, counts: &Counts) {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        println!(
            "followed {} commands, lag at the end {}",
            count(load(&self.shared.commands) as f64),
            bytes(self.shared.lag_bytes() as f64)
        );
        let note = |number: u64, text: &str| {
            if number > 0 {
                println!("note: {} {text}", count(number as f64));
            }
        };
        note(load(&self.shared.breaks), "times the connection to the source was made again");
        note(counts.published, "messages that were published at the source were not passed on");
        note(counts.split, "transactions were executed command by command");
        note(counts.scripts, "scripts were executed, whose expiry times took effect at once");
    }

    /// Lets expiry times take effect.
    async fn release_expiries(&self) -> anyhow::Result<()> {
        if self.shared.holds_expiries.load(Ordering::Relaxed) {
            let since = Instant::now();
            let released = expiries::release(self.to, self.options.connections).await.context(
                "expiry times have no effect yet: run it with --replicate --finish to let them take effect",
            )?;
            println!(
                "{} expiry times take effect, after {:.1} s",
                count(released as f64),
                since.elapsed().as_secs_f64()
            );
        }
        Ok(())
    }

    async fn compare(&self) -> anyhow::Result<()> {
        let mut source = Source::connect(self.from).await?;
        let mut target = Target::connect(self.to, self.progress.clone()).await?;
        let databases = source.databases().await?;
        let sample = live::Sample {
            keys: self.options.sample,
            progress: &self.progress,
            is_followed: true,
            // Only an empty target is followed, or one that was emptied.
            target_was_empty: true,
        };
        live::compare(&mut source, &mut target, self.to, &databases, sample).await?.conclude(0)
    }

    /// Ends an import that was interrupted.
    async fn finish(self) -> anyhow::Result<()> {
        let (source, target) = (self.from.to_string(), self.to.to_string());
        self.record.map(|path| Record::read(path, &source, &target)).transpose()?;
        self.shared.holds_expiries.store(true, Ordering::Relaxed);
        let mut signals = Signals::new()?;
        tokio::select! {
            released = self.release_expiries() => released?,
            () = signals.next() => bail!("interrupted: {FINISH_LATER}"),
        }
        self.record.map_or(Ok(()), Record::delete)
    }
}

/// Loads the source's data.
async fn load(
    to: &ServerUrl,
    file: File,
    options: &Options,
    progress: &Arc<Progress>,
) -> anyhow::Result<file::Loaded> {
    let bytes = file.metadata()?.len();
    progress.expect_bytes(bytes);
    let tracker = Arc::new(Mutex::new(Tracker::new(None, Place::default(), progress.clone())));
    let reader = FileReader::open(BufReader::with_capacity(FILE_BUFFER_BYTES, file))?;
    let file = Load { reader, bytes, skipped: 0, holds_expiries: true };
    let options = Options { sample: 0, ..options.clone() };
    file::load(file, to, &options, &tracker, progress).await
}

/// Returns true if the keys of a command must share a slot.
async fn is_cluster(target: &ServerUrl) -> anyhow::Result<bool> {
    let info = call(&mut target.connect().await?, &["INFO", "cluster"]).await?;
    let info = text(&info).unwrap_or_default();
    Ok(String::from_utf8_lossy(&info).lines().any(|line| line.trim() == "cluster_enabled:1"))
}
