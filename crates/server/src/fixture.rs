//! A store without threads, links or listeners, for tests of its parts.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use rocks::FlashKeyspace;
use tempfile::TempDir;

use crate::config::Config;
use crate::engine::Engine;
use crate::region::inbox::ToWorker;
use crate::regions::Regions;
use crate::store::Store;

pub struct Fixture {
    pub store: Arc<Store>,
    /// Where the store's parts believe their worker to be.
    inbox: Receiver<ToWorker>,
    _dir: TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    /// A single store with what `change` makes of the defaults.
    pub fn with(change: impl FnOnce(&mut Config)) -> Fixture {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::single(dir.path().to_path_buf(), 6379);
        config.reserve_bytes = 0;
        change(&mut config);
        let options = rocks::Options::profile(&config.rocksdb_profile).expect("a known profile");
        let flash = FlashKeyspace::open(&dir.path().join("rows"), &options).expect("rows");
        let layout = cluster::Layout {
            stores: config.members.iter().map(|member| member.id).collect(),
            regions: config.regions,
            replicas: config.replicas,
        };
        let (local, others): (Vec<_>, Vec<_>) =
            cluster::bootstrap_plan(&layout).into_iter().partition(|region| region.has_peer_on(config.store));
        let regions = Regions::new(&local, &others);
        let (worker, inbox) = crossbeam_channel::unbounded();
        let meta = cluster::MetaState::default();
        let store = Arc::new(Store::new(config, 0, regions, Arc::new(Engine::new(flash)), meta, worker));
        Fixture { store, inbox, _dir: dir }
    }

    /// What the worker has been told since the last time. It answers nothing: dropped, a request is refused.
    pub fn told(&self) -> impl Iterator<Item = ToWorker> + '_ {
        self.inbox.try_iter()
    }
}
