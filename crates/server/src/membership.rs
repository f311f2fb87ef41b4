//! The list of stores: how this store receives it, and which callers it admits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use cluster::{AgreedSettings, MemberState};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc::UnboundedReceiver;
use types::{StoreId, Version, NEWEST_VERSION};

use crate::access::Access;
use crate::clock;
use crate::cluster_state::ClusterState;
use crate::config::{Config, Member};
use crate::datadir::DataDir;
use crate::ends::Ends;
use crate::engine::Engine;
use crate::functions::Functions;
use crate::members::{AgreedMembers, Members};
use crate::regions::Regions;
use crate::settings::Settings;
use crate::transport::frame::{Hello, Refusal, RefusalReason};
use crate::transport::handshake::Introduced;
use crate::transport::keyring::Verdict;
use crate::transport::kinds::{REQUEST_MEMBERS, STATUS_DONE};
use crate::transport::{Identity, Remote, Transport, NO_STORE};
use crate::wall_clock::WallClock;
use crate::written_version::WrittenVersion;

mod join_rate;
mod refusals;

use join_rate::JoinRate;
use refusals::{Consequence, Own, Refusals};

const FETCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which a store that waits for a version of the list looks whether it has it.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Minimum interval in nanoseconds between two requests for the list that unknown callers cause.
const ASK_AGAIN_NANOS: u64 = 100_000_000;

/// The parts of the store that a change of the list affects.
pub struct Reach {
    pub config: Arc<Config>,
    pub settings: Arc<RwLock<Settings>>,
    pub cluster: Arc<ClusterState>,
    pub regions: Arc<Regions>,
    pub transport: Arc<Transport>,
    pub wall: Arc<WallClock>,
    pub access: Arc<Access>,
    pub functions: Arc<Functions>,
    pub engine: Arc<Engine>,
}

pub struct Membership {
    this: StoreId,
    pub identity: Arc<Identity>,
    dir: Mutex<DataDir>,
    members: ArcSwap<Members>,
    /// The version in which this store writes.
    pub version: Arc<WrittenVersion>,
    /// Locked while a thread creates the next list.
    changing: Mutex<()>,
    /// True while another store is being asked for its list.
    fetching: AtomicBool,
    /// The time at which another store was last asked because of an unknown caller.
    asked_at: AtomicU64,
    /// The rate limit of joins, used while this store leads the meta region.
    joins: Mutex<JoinRate>,
    /// The same limit for stores that have joined before and ask again.
    joins_again: Mutex<JoinRate>,
    reach: Reach,
}

impl Membership {
    pub fn new(identity: Arc<Identity>, dir: DataDir, members: Members, reach: Reach) -> Membership {
        identity.set_members(members.keys());
        let version = members.agreed.settings.cluster_version.min(dir.version());
        reach.engine.set_thresholds(members.agreed.settings.thresholds);
        Membership {
            this: reach.config.store,
            identity,
            dir: Mutex::new(dir),
            members: ArcSwap::from_pointee(members),
            version: Arc::new(WrittenVersion::new(version)),
            changing: Mutex::new(()),
            fetching: AtomicBool::new(false),
            asked_at: AtomicU64::new(0),
            joins: Mutex::new(JoinRate::new(Instant::now())),
            joins_again: Mutex::new(JoinRate::new(Instant::now())),
            reach,
        }
    }

    /// Returns the stores of the cluster, as this store knows them.
    pub fn members(&self) -> Arc<Members> {
        self.members.load_full()
    }

    /// Returns the settings that every store uses, as this store last received them.
    pub fn agreed_settings(&self) -> AgreedSettings {
        self.members.load().agreed.settings
    }

    pub fn member(&self, id: StoreId) -> Option<Member> {
        self.members.load().member(id).cloned()
    }

    /// Applies a list of stores that is newer than the known one. Links are started and ended
    /// accordingly.
    pub fn take_members(self: &Arc<Self>, agreed: AgreedMembers) {
        let Reach { config, cluster, regions, transport, wall, access, functions, engine, .. } = &self.reach;
        let changing = self.changing.lock();
        if agreed.version <= self.members.load().agreed.version {
            return;
        }
        tracing::info!(
            version = agreed.version,
            stores = agreed.stores.len(),
            "the list of stores has changed"
        );
        let (before, after) = (self.members.load().agreed.settings, agreed.settings);
        if before != after {
            tracing::info!(?before, ?after, "the settings of the cluster have changed");
        }
        for record in agreed.stores.iter().filter(|record| record.state == MemberState::Removed) {
            cluster.forget(record.id);
            wall.forget(record.id);
        }
        let members = Members::new(config, agreed);
        let links = members.list.iter().map(|member| (member.id, member.peer)).collect();
        self.identity.set_members(members.keys());
        access.take(members.agreed.version, &members.agreed.users);
        functions.want(members.agreed.libraries);
        engine.set_thresholds(members.agreed.settings.thresholds);
        self.members.store(Arc::new(members));
        transport.set_members(links);
        drop(changing);
        regions.leader_changes.notify_waiters();
        self.keep_soon();
    }

    /// Sets the cluster's id once a store reports it. Later reports are ignored.
    pub fn take_cluster_id(self: &Arc<Self>, cluster_id: u64) {
        if cluster_id != 0 && self.identity.take_cluster_id(cluster_id) {
            self.keep_soon();
        }
    }

    /// Stores the known facts of the cluster, in the background because the device may be slow. If
    /// this fails, the store receives the list again later; until then, a restart uses the previous
    /// list.
    fn keep_soon(self: &Arc<Self>) {
        let membership = self.clone();
        tokio::task::spawn_blocking(move || {
            let mut dir = membership.dir.lock();
            let members = membership.members();
            // A store was prepared for the version before the version rose, unless it is just
            // joining.
            let version = members.agreed.settings.cluster_version.min(NEWEST_VERSION);
            let kept = dir.prepare(version);
            match kept.and_then(|()| dir.keep(membership.identity.cluster_id(), &members.agreed)) {
                Ok(()) => membership.version.raise(version),
                Err(error) => {
                    tracing::warn!(%error, "the list of stores cannot be written to the data directory")
                }
            }
        });
    }

    /// Records that the store may write in this version of the cluster. Returns the version for
    /// which the directory is prepared. This waits for the device.
    pub fn prepare(&self, version: Version) -> Version {
        let mut dir = self.dir.lock();
        let before = dir.version();
        match dir.prepare(version) {
            Ok(()) if dir.version() > before => {
                tracing::info!(version, "this store is prepared for a newer version of the cluster");
            }
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, version, "the store cannot prepare for a version of the cluster")
            }
        }
        dir.version()
    }

    /// Applies the list of stores and the cluster's id in this store's rows of the meta region, if
    /// they are new.
    pub fn take_what_is_here(self: &Arc<Self>) {
        self.take_agreed();
        if let Some(cluster_id) = self.reach.cluster.cluster_id() {
            self.take_cluster_id(cluster_id);
        }
    }

    /// Applies the list of stores in those rows, if it is new.
    fn take_agreed(self: &Arc<Self>) -> bool {
        let agreed = self.reach.cluster.members_after(self.members().agreed.version);
        agreed.map(|agreed| self.take_members(agreed)).is_some()
    }

    /// Decides whether a store that has proved its key is admitted under the number that it claims.
    pub fn admit(self: &Arc<Self>, caller: &Introduced) -> Result<(), Refusal> {
        let Hello { from, cluster_id, key, .. } = caller.hello;
        let refuse = |reason, text: String| Err(Refusal { reason, text });
        let own = self.identity.cluster_id();
        if own != 0 && cluster_id != 0 && cluster_id != own {
            return refuse(RefusalReason::Wrong, format!("store {from} belongs to another cluster"));
        }
        let knows_password = || {
            let settings = self.reach.settings.read();
            match &settings.requirepass {
                Some(password) => caller.knows_password(password),
                None => !settings.lacks_password(),
            }
        };
        const NO_PASSWORD: &str =
            "the caller does not know this cluster's password: its requirepass must equal that of this store";
        if from == NO_STORE {
            return match knows_password() {
                true => Ok(()),
                false if caller.came_too_late() => {
                    refuse(RefusalReason::Wrong, "the token of the caller (join-token) has expired".into())
                }
                false => refuse(RefusalReason::Wrong, NO_PASSWORD.into()),
            };
        }
        let mut members = self.members();
        if members.record(from).is_none() && self.take_agreed() {
            members = self.members();
        }
        let record = members.record(from);
        if record.is_some_and(|record| record.facts.key.is_some_and(|known| known != key)) {
            return refuse(
                RefusalReason::OtherKey,
                format!(
                    "the cluster knows store {from} with another data directory than the one it comes with now: \
                     what that one held, and promised, is not in this one. Remove store {from} from the cluster \
                     and let a store with an empty directory join"
                ),
            );
        }
        let is_removed = record.is_some_and(|record| record.state == MemberState::Removed);
        if is_removed && self.reach.regions.went_on_without(from) {
            return refuse(
                RefusalReason::DeclaredLost,
                format!(
                    "store {from} was declared lost for good, and regions went on without it: what it holds is out of \
                     date. Empty its directory and let it join as a new store"
                ),
            );
        }
        if is_removed {
            return refuse(RefusalReason::Removed, format!("store {from} was removed from the cluster"));
        }
        if members.member(from).is_none() {
            if own == 0 || cluster_id != own {
                return refuse(RefusalReason::Wrong, format!("store {from} is not known here"));
            }
            // The join may have been agreed before this store received the new list. Until it has
            // the list, the claim is unproved.
            self.ask_for_newer();
            return refuse(RefusalReason::NotYetKnown, format!("store {from} is not known here yet"));
        }
        if !self.identity.keyring.is_agreed(from) && !knows_password() {
            return refuse(RefusalReason::Wrong, NO_PASSWORD.into());
        }
        match self.identity.keyring.meet(from, key) {
            Verdict::Agreed | Verdict::FirstSeen => Ok(()),
            Verdict::NotAgreed | Verdict::NotFirst | Verdict::Unknown => refuse(
                RefusalReason::Wrong,
                format!(
                    "another data directory has come as store {from} before, and the cluster has not agreed yet on \
                     which it is. If it was the wrong one, restart the stores that it came to"
                ),
            ),
        }
    }

    /// Returns true if an admitted store, or one that asks to join, may still send frames.
    pub fn is_welcome(&self, from: &Remote) -> bool {
        from.store == NO_STORE || self.identity.keyring.has(from.store, from.key)
    }

    /// Returns true if one more store may join now, and counts it.
    pub fn may_join(&self, is_known: bool) -> bool {
        // A store that asks again does not count against the limit of new stores.
        let joins = if is_known { &self.joins_again } else { &self.joins };
        joins.lock().take(Instant::now())
    }

    /// Notes that a new store's request, which was counted, came before the cluster's state, so
    /// that nothing has joined.
    pub fn joined_too_early(&self) {
        self.joins.lock().give_back();
    }

    /// Asks the meta region's leader for a list that may be newer. If there is none, asks a store
    /// with a recent heartbeat. One rate limit applies to all callers.
    fn ask_for_newer(self: &Arc<Self>) {
        let Reach { cluster, regions, .. } = &self.reach;
        let leader = regions.meta().leader();
        let members = self.members();
        let others = members.list.iter().map(|member| member.id);
        let heard = leader.into_iter().chain(others).find(|&id| id != self.this && cluster.is_heard(id));
        if let Some(from) = heard.filter(|_| self.may_ask_again()) {
            self.fetch(from);
        }
    }

    /// Waits until this store has a version of the list, for `patience` at most. Returns whether it
    /// has it.
    pub async fn has(self: &Arc<Self>, version: u64, patience: Duration) -> bool {
        let waiting = async {
            while self.members().agreed.version < version {
                if !self.take_agreed() {
                    self.ask_for_newer();
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(patience, waiting).await.is_ok()
    }

    /// Returns true if enough time has passed to ask again.
    fn may_ask_again(&self) -> bool {
        let (now, before) = (clock::boot_nanos(), self.asked_at.load(Ordering::Acquire));
        let is_time = now.saturating_sub(before) >= ASK_AGAIN_NANOS;
        is_time && self.asked_at.compare_exchange(before, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Asks a store that reported a newer list.
    pub fn fetch(self: &Arc<Self>, from: StoreId) {
        if !self.begin_fetch() {
            return;
        }
        let membership = self.clone();
        tokio::spawn(async move {
            let transport = &membership.reach.transport;
            let asked = transport.call(from, REQUEST_MEMBERS, Bytes::new(), FETCH_TIMEOUT).await;
            if let Ok((STATUS_DONE, body)) = asked {
                match serde_json::from_slice::<AgreedMembers>(&body) {
                    Ok(agreed) => membership.take_members(agreed),
                    Err(error) => tracing::warn!(from, %error, "a list of stores cannot be read"),
                }
            }
            membership.end_fetch();
        });
    }

    /// Returns false if another store is being asked already.
    fn begin_fetch(&self) -> bool {
        !self.fetching.swap(true, Ordering::AcqRel)
    }

    fn end_fetch(&self) {
        self.fetching.store(false, Ordering::Release);
    }

    /// Answers another store's request for the list.
    pub fn answer_members(&self) -> (u8, Bytes) {
        (STATUS_DONE, serde_json::to_vec(&self.members().agreed).expect("plain data").into())
    }
}

/// Handles the refusals by other stores, until the task is dropped.
pub async fn heed_refusals(
    membership: Arc<Membership>,
    ends: Arc<Ends>,
    mut refused: UnboundedReceiver<(StoreId, Refusal)>,
) {
    let mut refusals = Refusals::default();
    while let Some((by, refusal)) = refused.recv().await {
        let members = membership.members();
        let own = Own {
            is_agreed: members
                .record(membership.this)
                .is_some_and(|record| record.facts.key == Some(membership.identity.key())),
            others: members.list.iter().filter(|member| member.id != membership.this).count(),
        };
        match refusals.hear(by, &refusal, own) {
            Consequence::Nothing => tracing::debug!(by, refusal.text),
            Consequence::Tell => tracing::warn!(by, refusal.text, "no connection to another store"),
            Consequence::Await => {
                tracing::info!(
                    by,
                    refusal.text,
                    "a store reports that this one was removed; it stops once more than half report so"
                )
            }
            Consequence::End => ends.end(&refusal.text),
            Consequence::Fatal => ends.fatal(&refusal.text),
        }
    }
}

/// Changes the store's number in its own configuration to the number in its directory.
pub fn rename(config: &mut Config, store: StoreId) {
    debug_assert!(store != NO_STORE);
    let this: Member = Member { id: store, ..config.this().clone() };
    config.store = store;
    config.members = vec![this];
}

#[cfg(test)]
mod tests;
