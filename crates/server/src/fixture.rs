//! A store without threads, links or listeners, and rows that only flash has, for tests of a
//! store's parts.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use replica::RegionStatus;
use rocks::Keyspace;
use storage::WriteSet;
use tempfile::TempDir;

use crate::config::Config;
use crate::datadir::DataDir;
use crate::engine::Engine;
use crate::loops::ToWorker;
use crate::loops::{LoopInbox, Loops, ToLoop};
use crate::members::{AgreedMembers, Members};
use crate::regions::RegionShared;
use crate::store::{Found, Store};
use crate::transport::Identity;
use crate::unsynced::Unsynced;

pub struct Fixture {
    pub store: Arc<Store>,
    /// The inbox that the store's parts take for their worker's.
    inbox: Mutex<LoopInbox>,
    _dir: TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    /// Creates a single store with a changed default configuration.
    pub fn with(change: impl FnOnce(&mut Config)) -> Fixture {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::single(dir.path().to_path_buf(), 6379);
        config.reserve_bytes = 0;
        change(&mut config);
        let options = rocks::Options::profile(&config.rocksdb_profile).expect("a known profile");
        let mut data = DataDir::open(&config.dir).expect("a directory of our own");
        data.claim(config.store, "of a test", false).expect("the directory is new");
        let flash = Keyspace::open(&data.rows_dir(), &options).expect("rows");
        let layout = cluster::Layout {
            stores: config.members.iter().map(|member| member.id).collect(),
            regions: config.regions,
            replicas: config.replicas,
        };
        let (local, others): (Vec<_>, Vec<_>) =
            cluster::bootstrap_plan(&layout).into_iter().partition(|region| region.has_peer_on(config.store));
        let (loops, mut inboxes) = Loops::new(1).expect("a loop");
        let inbox = inboxes.remove(0);
        let meta = cluster::MetaState::default();
        let members = Members::new(&config, AgreedMembers::default());
        let (identity, _) = Identity::new(config.store, 0, data.identity().secret.clone(), 0, None);
        let (identity, engine) =
            (Arc::new(identity), Arc::new(Engine::new(flash, crate::tuning::Tuning::default())));
        let (local, others) = (&local, &others);
        let unsynced = Unsynced::none(&config.dir);
        let found = Found { config, dir: data, identity, members, local, others, engine, meta, unsynced };
        let store = Store::new(found, loops);
        Fixture { store: Arc::new(store), inbox: inbox.into(), _dir: dir }
    }

    /// Starts links to the other known stores.
    pub fn start_links(&self, runtime: &tokio::runtime::Handle) {
        let _runtime = runtime.enter();
        self.store
            .transport
            .start(self.store.membership.members().list.iter().map(|member| (member.id, member.peer)));
    }

    /// Returns the status that a worker would publish of a region that it leads.
    pub fn status(&self, region: &RegionShared) -> RegionStatus {
        RegionStatus {
            term: region.leadership().term,
            leader: region.leader(),
            role: replica::Role::Leader,
            commit: 7,
            applied: 7,
            first: 1,
            last: 7,
            peers: Default::default(),
            truncate_to: 0,
            lease: None,
            descriptor: (*region.descriptor()).clone(),
            is_quarantined: false,
        }
    }

    /// Returns the messages to the worker since the last call. The fixture answers none: dropping a
    /// request refuses it.
    pub fn told(&self) -> impl Iterator<Item = ToWorker> + '_ {
        std::iter::from_fn(|| self.inbox.lock().try_recv()).filter_map(|message| match message {
            ToLoop::Worker(message) => Some(message),
            _ => None,
        })
    }
}

/// Returns rows that only flash has. Of the first `rows` rows every other one exists and has a
/// [value](value) of `bytes` bytes.
pub fn rows_on_flash(rows: usize, bytes: usize) -> (TempDir, Arc<Keyspace>) {
    let dir = tempfile::tempdir().expect("a directory");
    let options = rocks::Options { row_cache_bytes: 0, ..rocks::Options::default() };
    let flash = Keyspace::open(dir.path(), &options).expect("rows");
    let rows = (0..rows).step_by(2).map(|at| (row(at), Some(value(at, bytes)))).collect();
    flash.write(WriteSet { ranges_deleted: vec![], rows });
    flash.flush().expect("a flush");
    (dir, Arc::new(flash))
}

pub fn row(at: usize) -> Bytes {
    Bytes::from(format!("d{at:05}"))
}

pub fn value(at: usize, bytes: usize) -> Bytes {
    format!("{at:0bytes$}").into()
}
