//! `ctl quarantine`: shows quarantined peers, and carries out an operator's decisions about them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::admin::{AcceptedRow, FailRequest, QuarantineQuery, QuarantineRequest, QuarantineRow};
use cluster::{Cause, Quarantine};
use command::order::{Order, FAIL_STORES_MAX};
use node::unsynced::Accepted;
use node::Work;
use placement::{Operator, Reason};
use resp::Reply;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{LogIndex, RegionId, StoreId, SECOND_VERSION};

use super::ask::{ask, ask_leader, ask_store, begin, Ask, NotAnswered, PEER_PATIENCE};
use super::operations::{Change, Served};
use super::proposer::Proposer;
use crate::admin_error::{refuse, AdminError};
use crate::config::DebugCommand;
use crate::proposals::NotDone;
use crate::regions::RegionShared;
use crate::store::Store;

/// Time limit for the answer to a skip. The order must be committed, and the leader must continue
/// with its log.
const SKIP_PATIENCE: Duration = Duration::from_secs(2);

/// The state of a store's own peer of a region.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PeerState {
    applied: LogIndex,
    /// The entry that cannot be executed and at which the peer is quarantined.
    held: Option<LogIndex>,
}

/// Returns all quarantined peers of the cluster, as their stores last reported.
pub fn rows(store: &Store) -> Vec<QuarantineRow> {
    let mut held = store.cluster.quarantined();
    // This store knows its own quarantined peers without a heartbeat.
    held.retain(|(_, of), _| *of != store.id);
    held.extend(store.quarantines.all().into_iter().map(|(region, own)| ((region, store.id), own)));
    let row = |((region, store), held): ((RegionId, StoreId), Quarantine)| QuarantineRow {
        region,
        store,
        index: held.index,
        cause: held.cause.name().to_owned(),
        read_only: held.read_only,
        what: held.what,
        error: held.error,
    };
    held.into_iter().map(row).collect()
}

impl Served for QuarantineQuery {
    async fn serve(
        self,
        (): (),
        store: &Arc<Store>,
        _: Change<'_>,
    ) -> Result<Vec<QuarantineRow>, AdminError> {
        Ok(rows(store))
    }
}

impl Served for QuarantineRequest {
    async fn serve(
        self,
        region: RegionId,
        store: &Arc<Store>,
        _: Change<'_>,
    ) -> Result<QuarantineRequest, AdminError> {
        decide(store, region, &self).await?;
        Ok(self)
    }
}

/// Carries out an operator's decision about the region.
async fn decide(store: &Store, region: RegionId, request: &QuarantineRequest) -> Result<(), AdminError> {
    let shared = store.regions.get(region).ok_or_else(|| refuse(404, format!("no region {region}")))?;
    match *request {
        QuarantineRequest::Skip { index, force } => {
            let skip = Ask::Skip { region, index, force };
            ask_leader(store, &shared, skip, SKIP_PATIENCE).await.map(drop)
        }
        QuarantineRequest::Refill { from } => {
            // The peer can still accept a snapshot if the region lacks the majority to remove it.
            let _ = ask_store(store, from, Ask::Admit { region }).await;
            ask(store, Ask::Refill { region, from }).await.map(drop)
        }
        QuarantineRequest::Retry { on } => {
            let held = held_of(store, region, on)?;
            let without_rows = [Cause::Rows.name(), Cause::Damage.name()];
            if held.iter().all(|(_, cause)| without_rows.contains(&cause.as_str())) {
                let text = "rows that differ or are damaged do not become sound by a retry: refill the peer";
                return Err(refuse(409, text));
            }
            tell_all(store, &held, |_| Ask::Retry { region }).await
        }
        QuarantineRequest::ReadOnly { read_only } => {
            let held = held_of(store, region, None)?;
            tell_all(store, &held, |_| Ask::ReadOnly { region, read_only }).await
        }
    }
}

/// Returns the stores with a quarantined peer of the region, and the causes.
fn held_of(
    store: &Store,
    region: RegionId,
    on: Option<StoreId>,
) -> Result<Vec<(StoreId, String)>, AdminError> {
    let is_meant = |row: &QuarantineRow| row.region == region && on.is_none_or(|on| row.store == on);
    let held: Vec<_> = rows(store).into_iter().filter(is_meant).map(|row| (row.store, row.cause)).collect();
    match (held.is_empty(), on) {
        (false, _) => Ok(held),
        (true, None) => Err(refuse(404, format!("no peer of region {region} is quarantined"))),
        (true, Some(on)) => Err(refuse(404, format!("region {region} is not quarantined on store {on}"))),
    }
}

async fn tell_all(
    store: &Store,
    held: &[(StoreId, String)],
    of: impl Fn(StoreId) -> Ask,
) -> Result<(), AdminError> {
    let mut failed = Vec::new();
    for (to, _) in held {
        if let Err(error) = ask_store(store, *to, of(*to)).await {
            failed.push(format!("store {to}: {}", error.message));
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(refuse(503, failed.join("; "))),
    }
}

/// Answers for this store's own peer.
pub fn own_peer(store: &Store, region: RegionId) -> PeerState {
    let held = store.quarantines.get(region).filter(|held| held.cause == Cause::Entry);
    let shared = store.regions.get(region).filter(|shared| shared.is_local());
    PeerState { applied: shared.map_or(0, |shared| shared.applied()), held: held.map(|held| held.index) }
}

pub fn retry(store: &Store, region: RegionId) {
    let _ = store.worker.step(node::Input::Retry { region });
}

/// Returns true if this store's peer of the region lost rows with a damaged file.
pub fn is_damaged(store: &Store, region: RegionId) -> bool {
    store.quarantines.get(region).is_some_and(|held| held.cause == Cause::Damage)
}

/// Lets the region's peer continue without the rows that it lost with a damaged file.
pub fn accept_damage(store: &Store, region: RegionId) -> Result<AcceptedRow, AdminError> {
    let shared = store.regions.get(region).ok_or_else(|| refuse(404, format!("no region {region}")))?;
    let descriptor = shared.newest();
    let own = descriptor.peer_on(store.id).filter(|_| descriptor.is_alone_on(store.id));
    let Some(peer) = own.map(|peer| peer.id) else {
        let text = "other stores have the region's rows: its leader has this store's peer replaced";
        return Err(refuse(409, text));
    };
    let last = shared.applied();
    let accepted = Accepted { region, peer, last, at_ms: store.wall.millis() };
    let unwritten = |error| refuse(500, format!("the order cannot be recorded: {error}"));
    store.unsynced.record_accepted(accepted).map_err(unwritten)?;
    tracing::warn!(region, peer, "an operator accepted the loss of damaged rows: the peer takes part again");
    retry(store, region);
    Ok(AcceptedRow { store: store.id, region, peer, last })
}

pub fn read_only(store: &Store, region: RegionId, read_only: bool) {
    let _ = store.worker.step(node::Input::ReadOnly { region, read_only });
}

fn led(store: &Store, region: RegionId) -> Result<Arc<RegionShared>, NotAnswered> {
    store.regions.get(region).filter(|region| store.regions.leads(region)).ok_or(NotAnswered::NotLeader)
}

/// Refuses orders that stores of the first version cannot read.
fn needs_orders(store: &Store) -> Result<(), NotAnswered> {
    let version = store.membership.version.get();
    match version >= SECOND_VERSION {
        true => Ok(()),
        false => {
            let text = format!(
                "the cluster has version {version}, and this order needs {SECOND_VERSION}: see steelyard ctl versions"
            );
            Err(refuse(409, text).into())
        }
    }
}

/// Orders a skip as the region's leader, unless a peer has already executed the entry.
pub async fn skip(
    store: &Store,
    region: RegionId,
    index: LogIndex,
    force: bool,
) -> Result<Value, NotAnswered> {
    needs_orders(store)?;
    let shared = led(store, region)?;
    let unavailable = |text: String| NotAnswered::Error(refuse(503, text));
    let refuse = |text: String| NotAnswered::Error(refuse(409, text));
    let refill =
        format!("give the quarantined peers new rows: steelyard ctl quarantine refill {region} STORE");
    match store.quarantines.get(region) {
        None => {
            let text = format!(
                "store {}, which leads region {region}, has executed entry {index}; {refill}",
                store.id
            );
            return Err(refuse(text));
        }
        Some(held) if held.cause != Cause::Entry => {
            return Err(refuse("only an entry of commands can be skipped: see docs/OPERATING.md".to_owned()))
        }
        Some(held) if held.index != index => {
            let text = format!("region {region} is quarantined at entry {}, not at {index}", held.index);
            return Err(refuse(text));
        }
        Some(_) => {}
    }
    let (mut silent, mut unclean, mut late) = (Vec::new(), Vec::new(), Vec::new());
    let newest = shared.newest();
    for peer in newest.peers.iter().filter(|peer| peer.store != store.id) {
        let told = ask_store(store, peer.store, Ask::PeerState { region }).await;
        let told = told.ok().and_then(|told| serde_json::from_value::<PeerState>(told).ok());
        match told {
            None => silent.push(peer.store.to_string()),
            Some(state) if state.held == Some(index) => {}
            Some(state) if state.applied >= index => {
                return Err(refuse(format!("store {} has executed entry {index}; {refill}", peer.store)))
            }
            Some(_) if store.cluster.is_unclean(&newest, peer.store) => unclean.push(peer.store.to_string()),
            Some(_) => late.push(peer.store.to_string()),
        }
    }
    if !silent.is_empty() && !force {
        return Err(refuse(format!(
            "store {} does not answer: if it has executed entry {index}, a skip loses what the entry acknowledged, \
             and its peer is quarantined. Bring it back, or say --force",
            silent.join(", ")
        )));
    }
    if !unclean.is_empty() && !force {
        return Err(refuse(format!(
            "store {} may have forgotten writes when its machine crashed, and takes no part: if it had executed \
             entry {index}, a skip loses what the entry acknowledged. Say --force if it had not",
            unclean.join(", ")
        )));
    }
    if !late.is_empty() && !force {
        return Err(refuse(format!(
            "store {} has not come to entry {index} yet, and may be able to execute it: try again",
            late.join(", ")
        )));
    }
    tracing::warn!(region, index, force, "an operator has the region skip an entry");
    let deadline = Instant::now() + store.config.request_timeout;
    let work = Work::Order(Order::Skip(index));
    match store.proposals.submit(&shared, work, deadline).await {
        Ok(_) => Ok(Value::Null),
        Err(NotDone::NotLeader) => Err(NotAnswered::NotLeader),
        Err(NotDone::Error(Reply::Error(error))) => Err(unavailable(error.into_owned())),
        Err(NotDone::Error(_)) => Err(unavailable("the order was not proposed".to_owned())),
    }
}

/// Removes the quarantined peer, as the leader of the meta region. Placement adds a new one.
pub async fn refill(
    store: &Store,
    proposer: &Proposer,
    region: RegionId,
    from: StoreId,
) -> Result<Value, NotAnswered> {
    if !store.cluster.quarantined().contains_key(&(region, from)) {
        let text = format!("the peer of region {region} on store {from} is not quarantined");
        return Err(refuse(404, text).into());
    }
    // If the region has merged away, the heir's peer on that store waits for the quarantined peer.
    // Both are removed together.
    let heir = store.regions.all().into_iter().map(|region| region.newest());
    let region =
        heir.filter(|heir| heir.absorbed.contains(&region)).map(|heir| heir.id).next().unwrap_or(region);
    begin(store, proposer, Operator::RemovePeer { region, from, reason: Reason::Requested }).await
}

impl Served for FailRequest {
    /// Asks the region's leader to propose an entry that fails, for tests.
    async fn serve(
        self,
        region: RegionId,
        store: &Arc<Store>,
        _: Change<'_>,
    ) -> Result<FailRequest, AdminError> {
        let shared = store.regions.get(region).ok_or_else(|| refuse(404, format!("no region {region}")))?;
        let fail = Ask::Fail { region, request: self.clone() };
        ask_leader(store, &shared, fail, PEER_PATIENCE).await?;
        Ok(self)
    }
}

/// Proposes an entry that fails, as the region's leader.
pub async fn fail(
    store: &Store,
    region: RegionId,
    FailRequest { by_panic, stores }: FailRequest,
) -> Result<Value, NotAnswered> {
    if store.config.enable_debug_command != DebugCommand::Yes {
        return Err(refuse(403, "enable-debug-command is not yes on the store that leads the region").into());
    }
    if stores.len() > FAIL_STORES_MAX {
        return Err(refuse(400, format!("at most {FAIL_STORES_MAX} stores can be named")).into());
    }
    needs_orders(store)?;
    let shared = led(store, region)?;
    let deadline = Instant::now() + store.config.request_timeout;
    let work = Work::Order(Order::Fail { by_panic, stores });
    match store.proposals.submit(&shared, work, deadline).await {
        // The outcome is unknown if the entry fails on this store.
        Ok(_) | Err(NotDone::Error(_)) => Ok(Value::Null),
        Err(NotDone::NotLeader) => Err(NotAnswered::NotLeader),
    }
}
