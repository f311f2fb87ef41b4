//! This store's session with ZooKeeper: it publishes znodes and reads those of other stores.
//!
//! After each change, and after a lost connection, one pass compares everything that should be in
//! ZooKeeper with what was written, and reads again what may have changed. So a lost notification,
//! a lost answer and a new session need no steps of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use node::coordinator::{parse_positions, positions_text, Positions};
use tokio::sync::{mpsc, watch};
use types::StoreId;
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, Error, EventType, PersistentWatcher, SessionState, StateWatcher,
};

use super::dial::Dialer;
use super::znodes::{own_leads, own_store, Paths, DIRECTORIES, LEADERS, SEEKING, STORES};
use super::{SessionEvent, Wanted};
use crate::store::Store;
use crate::zookeeper_settings::ZooKeeper;

/// Time between two attempts to get a session.
const ATTEMPTS: Duration = Duration::from_millis(500);
/// Interval at which this store compares its part of the leader table with the present leads.
const LEADS: Duration = Duration::from_millis(500);
/// Interval at which this store writes its own znode again if its content has changed. No store
/// reads that content.
const PLACES: Duration = Duration::from_secs(5);
/// Time after which a session counts as successful. The log then shows the next error even if it is
/// the same as the last one.
const LASTING: Duration = Duration::from_secs(10);

/// Keeps a session. Returns when the receiver of the news is gone.
pub async fn run(
    store: Arc<Store>,
    ensemble: ZooKeeper,
    mut wanted: watch::Receiver<Wanted>,
    news: mpsc::Sender<SessionEvent>,
) {
    let dialer = Arc::new(Dialer::new(ensemble.tls.clone()));
    // The last error in the log. The same error is logged again only after a session that lasted.
    let mut said = String::new();
    while !news.is_closed() {
        let (what, error) = match open(&store, &ensemble, dialer.clone()).await {
            Ok(client) => {
                let began = Instant::now();
                dialer.forget_failures();
                tracing::info!(servers = ensemble.servers, session = %client.session_id(), "ZooKeeper session begins");
                let mut session = Session::new(&store, &ensemble, client, &dialer, &news);
                let ended = session.serve(&mut wanted).await;
                store.seekers.set_session(false);
                let _ = news.send(SessionEvent::Connected(false)).await;
                if began.elapsed() >= LASTING {
                    said.clear();
                }
                ("ZooKeeper session ends", ended)
            }
            Err(error) => ("no ZooKeeper session", error),
        };
        let error = match dialer.failures() {
            Some(failures) => format!("{error} ({failures})"),
            None => error.to_string(),
        };
        if said != error {
            tracing::warn!(servers = ensemble.servers, error, "{what}");
            said = error;
        }
        tokio::time::sleep(ATTEMPTS).await;
    }
}

async fn open(store: &Store, ensemble: &ZooKeeper, dialer: Arc<Dialer>) -> Result<Client, Error> {
    while store.membership.identity.cluster_id() == 0 {
        tokio::time::sleep(ATTEMPTS).await;
    }
    dialer.forget_failures();
    let mut connector = Client::connector().with_session_timeout(ensemble.session_timeout).with_dial(dialer);
    if let Some(digest) = &ensemble.digest {
        connector = connector.with_auth("digest", digest.as_bytes());
    }
    connector.connect(&ensemble.servers).await
}

/// The content of one of this store's znodes, as far as this session knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Written {
    /// An earlier session's znode may be there, or a request whose answer was lost had an effect.
    #[default]
    Unknown,
    Nothing,
    Text(String),
}

fn absent_or(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(Error::NoNode) => Ok(()),
        other => other,
    }
}

struct Session<'a> {
    store: &'a Store,
    client: Client,
    dialer: &'a Dialer,
    news: &'a mpsc::Sender<SessionEvent>,
    paths: Paths,
    acls: Acls<'static>,
    has_directories: bool,
    /// This store's znodes, by directory.
    written: BTreeMap<&'static str, Written>,
    /// The stores that had a session at the last look; `None` before the first.
    alive: Option<BTreeSet<StoreId>>,
    /// True if the list of stores may have changed since.
    is_stale: bool,
    /// Watches the list of stores.
    stores: Option<PersistentWatcher>,
    /// Watches the positions of all stores while peers of this one seek a leader.
    seeking: Option<PersistentWatcher>,
    /// The positions of other stores, as last told.
    told: BTreeMap<StoreId, Option<Positions>>,
    /// The times at which the znodes for people were last compared with the present state.
    leads_at: Option<Instant>,
    places_at: Option<Instant>,
    /// The contents of stores' znodes that could not be read, as last logged.
    unreadable: BTreeMap<StoreId, Vec<u8>>,
    /// The error of the znodes for people, as last logged.
    said: String,
}

impl<'a> Session<'a> {
    fn new(
        store: &'a Store,
        ensemble: &ZooKeeper,
        client: Client,
        dialer: &'a Dialer,
        news: &'a mpsc::Sender<SessionEvent>,
    ) -> Session<'a> {
        Session {
            store,
            client,
            dialer,
            news,
            paths: Paths::new(&ensemble.root, store.membership.identity.cluster_id(), store.id),
            // Only a session with the same credentials may change the znodes, if there are any.
            acls: match ensemble.digest {
                Some(_) => Acls::creator_all(),
                None => Acls::anyone_all(),
            },
            has_directories: false,
            written: BTreeMap::new(),
            alive: None,
            is_stale: true,
            stores: None,
            seeking: None,
            told: BTreeMap::new(),
            leads_at: None,
            places_at: None,
            unreadable: BTreeMap::new(),
            said: String::new(),
        }
    }

    /// Runs until the session has ended, and returns the reason.
    async fn serve(&mut self, wanted: &mut watch::Receiver<Wanted>) -> Error {
        let mut states = self.client.state_watcher();
        let mut lost_at: Option<Instant> = None;
        loop {
            let wants = wanted.borrow_and_update().clone();
            let mut state = None;
            let passed = match lost_at {
                // A pass whose connection is lost may wait for an answer for long.
                None => tokio::select! {
                    changed = states.changed() => {
                        state = Some(changed);
                        Ok(())
                    }
                    passed = self.pass(&wants) => passed,
                },
                Some(at) if at.elapsed() > self.client.session_timeout() => return Error::SessionExpired,
                Some(_) => Ok(()),
            };
            match passed {
                Ok(()) if lost_at.is_none() && state.is_none() => {
                    self.store.seekers.set_session(true);
                }
                Err(Error::NoNode) => {
                    // Another client has deleted a directory, or a znode of this store.
                    (self.has_directories, self.stores, self.seeking) = (false, None, None);
                    self.written.clear();
                    (self.leads_at, self.places_at) = (None, None);
                }
                Ok(()) | Err(Error::ConnectionLoss | Error::NodeExists) => {}
                Err(error) => return error,
            }
            if state.is_none() {
                state = self.wait(&mut states, wanted).await;
            }
            match state {
                Some(SessionState::SyncConnected) => {
                    lost_at = None;
                    self.dialer.forget_failures();
                    (self.stores, self.seeking, self.is_stale) = (None, None, true);
                    self.tell(SessionEvent::Connected(true)).await;
                    self.told.clear();
                }
                Some(state) if state.is_terminated() => return Error::SessionExpired,
                Some(_) => {
                    lost_at.get_or_insert_with(Instant::now);
                    self.tell(SessionEvent::Connected(false)).await;
                }
                None => {}
            }
        }
    }

    /// Waits until another pass may have something to do. Returns the new state of the session, if
    /// it has changed.
    async fn wait(
        &mut self,
        states: &mut StateWatcher,
        wanted: &mut watch::Receiver<Wanted>,
    ) -> Option<SessionState> {
        tokio::select! {
            state = states.changed() => Some(state),
            changed = wanted.changed() => changed.is_err().then_some(SessionState::Closed),
            () = changed(&mut self.stores) => {
                self.is_stale = true;
                None
            }
            () = changed(&mut self.seeking) => None,
            () = tokio::time::sleep(LEADS) => None,
        }
    }

    /// Writes this store's znodes if their contents have changed, and reads those of other stores
    /// that it needs.
    async fn pass(&mut self, wants: &Wanted) -> Result<(), Error> {
        if !self.has_directories {
            let options = CreateMode::Persistent.with_acls(self.acls);
            for name in DIRECTORIES {
                self.client.mkdir(&self.paths.directory(name), &options).await?;
            }
            self.has_directories = true;
            self.tell(SessionEvent::Connected(true)).await;
        }
        let positions = (!wants.positions.is_empty()).then(|| positions_text(&wants.positions));
        self.write(SEEKING, positions).await?;
        self.read_positions(wants).await?;
        self.look_at_stores().await?;
        match self.write_for_people().await {
            Ok(()) => self.said.clear(),
            // The session does not depend on these znodes.
            Err(error @ (Error::NoAuth | Error::InvalidAcl | Error::QuotaExceeded)) => {
                let said = error.to_string();
                if self.said != said {
                    tracing::warn!(%error, "the znodes of stores and leaders cannot be written");
                    self.said = said;
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write_for_people(&mut self) -> Result<(), Error> {
        if self.leads_at.is_none_or(|at| at.elapsed() >= LEADS) {
            self.leads_at = Some(Instant::now());
            self.write(LEADERS, Some(own_leads(self.store))).await?;
        }
        if self.places_at.is_none_or(|at| at.elapsed() >= PLACES) {
            self.places_at = Some(Instant::now());
            self.look_at_own().await?;
            self.write(STORES, Some(own_store(self.store))).await?;
        }
        Ok(())
    }

    /// Writes this store's znode in a directory; `None` deletes it.
    async fn write(&mut self, directory: &'static str, text: Option<String>) -> Result<(), Error> {
        let known = self.written.get(directory).cloned().unwrap_or_default();
        if known == text.clone().map_or(Written::Nothing, Written::Text) {
            return Ok(());
        }
        // This store does not know the content until the answer arrives, nor if it is lost.
        self.written.insert(directory, Written::Unknown);
        let path = self.paths.own(directory);
        let written = match (text, known) {
            (None, _) => {
                absent_or(self.client.delete(&path, None).await)?;
                Written::Nothing
            }
            (Some(text), Written::Text(_)) => {
                self.client.set_data(&path, text.as_bytes(), None).await?;
                Written::Text(text)
            }
            (Some(text), _) => {
                self.create(&path, &text).await?;
                Written::Text(text)
            }
        };
        self.written.insert(directory, written);
        Ok(())
    }

    /// Checks if this store's znodes exist. Another client may have deleted them.
    async fn look_at_own(&mut self) -> Result<(), Error> {
        for directory in DIRECTORIES {
            let has_text = matches!(self.written.get(directory), Some(Written::Text(_)));
            if has_text && self.client.check_stat(&self.paths.own(directory)).await?.is_none() {
                tracing::warn!(directory, "this store's znode was deleted; it is written again");
                self.written.insert(directory, Written::Unknown);
            }
        }
        Ok(())
    }

    /// Creates an ephemeral znode. One of an earlier session of this store is deleted first: its
    /// content is old, and it would vanish with that session.
    async fn create(&self, path: &str, text: &str) -> Result<(), Error> {
        let options = CreateMode::Ephemeral.with_acls(self.acls);
        match self.client.create(path, text.as_bytes(), &options).await {
            Ok(_) => Ok(()),
            Err(Error::NodeExists) => {
                absent_or(self.client.delete(path, None).await)?;
                self.client.create(path, text.as_bytes(), &options).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the positions of the stores that matter, while peers of this store seek a leader.
    async fn read_positions(&mut self, wants: &Wanted) -> Result<(), Error> {
        if wants.watched.is_empty() {
            self.seeking = None;
            for store in std::mem::take(&mut self.told).into_keys() {
                self.tell(SessionEvent::Positions(store, None)).await;
            }
            return Ok(());
        }
        if self.seeking.is_none() {
            let path = self.paths.directory(SEEKING);
            self.seeking = Some(self.client.watch(&path, AddWatchMode::PersistentRecursive).await?);
        }
        for &store in &wants.watched {
            let read = match self.client.get_data(&self.paths.of(SEEKING, store)).await {
                Ok((text, _)) => Some(text),
                Err(Error::NoNode) => None,
                Err(error) => return Err(error),
            };
            let positions = read.and_then(|text| match parse_positions(&String::from_utf8_lossy(&text)) {
                Ok(positions) => Some(positions),
                Err(error) => {
                    if self.unreadable.insert(store, text.clone()) != Some(text) {
                        tracing::warn!(store, %error, "a store's znode cannot be read");
                    }
                    None
                }
            });
            if self.told.get(&store) != Some(&positions) {
                self.told.insert(store, positions.clone());
                self.tell(SessionEvent::Positions(store, positions)).await;
            }
        }
        Ok(())
    }

    /// Looks which stores have a session, if the list may have changed.
    async fn look_at_stores(&mut self) -> Result<(), Error> {
        let path = self.paths.directory(STORES);
        if self.stores.is_none() {
            self.stores = Some(self.client.watch(&path, AddWatchMode::Persistent).await?);
        } else if !self.is_stale {
            return Ok(());
        }
        let names = self.client.list_children(&path).await?;
        let alive: BTreeSet<StoreId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let ended: Vec<StoreId> =
            self.alive.iter().flatten().filter(|s| !alive.contains(s)).copied().collect();
        for store in ended {
            tracing::info!(store, "the store's ZooKeeper session has ended");
            // What it publishes is read again, even if it has not changed.
            self.told.remove(&store);
            self.tell(SessionEvent::Ended(store)).await;
        }
        // A change of the session's state may end the pass before this line. Then the next pass
        // tells all of it again.
        (self.alive, self.is_stale) = (Some(alive), false);
        Ok(())
    }

    async fn tell(&self, news: SessionEvent) {
        let _ = self.news.send(news).await;
    }
}

/// Waits for the next event of a watch. The next pass replaces a watch that has ended.
async fn changed(watcher: &mut Option<PersistentWatcher>) {
    match watcher {
        Some(watching) => {
            let mut event = watching.changed().await;
            // One pass serves all events that have arrived.
            while let Some(next) = watching.changed().now_or_never() {
                event = next;
            }
            if event.event_type == EventType::Session && event.session_state != SessionState::SyncConnected {
                *watcher = None;
            }
        }
        None => std::future::pending().await,
    }
}
