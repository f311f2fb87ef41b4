//! `ctl recover`: an operator's order to recover regions whose majority is lost for good. The store
//! that receives the order carries it out. No step needs the meta region, which may be one of these
//! regions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::admin::{
    FailedRegion, RecoverRequest, RecoverRow, RecoveriesQuery, RecoveryRow, StoreRequest, StruckStore,
};
use cluster::quorum_loss::{plan, OrderError, RecoveryPlan, RecoveryStep, RegionPlan, Situation, Survey};
use cluster::{MemberState, StoreRecord};
use futures::future::join_all;
use serde::de::DeserializeOwned;
use types::{RegionDescriptor, RegionId, StoreId, META_REGION};

use super::ask::{ask, Ask};
use super::operations::{Change, Served};
use crate::admin_error::{refuse, AdminError};
use crate::store::Store;
use crate::survey::{self, AskSurvivor, RefusedSteps};
use crate::transport::keys;
use crate::transport::kinds::{REQUEST_RECOVER, STATUS_DONE};

/// Time after which a store that has not answered counts as silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for a leader that lost its majority to detect the loss.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(6);
/// Time limit for promises to become durable.
const PROMISE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the recovered regions to get leaders.
const LEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for the meta region to learn that the lost stores no longer hold peers.
const STRIKE_TIMEOUT: Duration = Duration::from_secs(8);
const POLL: Duration = Duration::from_millis(100);
/// Maximum number of planning rounds. If a surviving log splits off a region, that region appears
/// only when the log is applied, and is recovered in the next round.
const ROUNDS_MAX: usize = 8;
/// Number of region ids that are skipped. The lost majority of the meta region may have allocated
/// ids that no survivor knows.
const REGION_IDS_SKIPPED: u32 = 1 << 16;

impl Served for RecoverRequest {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<RecoverRow, AdminError> {
        recover(store, self).await
    }
}

impl Served for RecoveriesQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<RecoveryRow>, AdminError> {
        Ok(recoveries(store))
    }
}

/// Plans an order, and carries it out if the request says so.
async fn recover(store: &Arc<Store>, request: RecoverRequest) -> Result<RecoverRow, AdminError> {
    let order = Order {
        store,
        lost: request.lost.iter().copied().collect(),
        only: (!request.regions.is_empty()).then(|| request.regions.iter().copied().collect()),
    };
    let mut planned = order.plan().await?;
    let mut row = RecoverRow { plan: planned.clone(), ..RecoverRow::default() };
    if !request.act {
        return Ok(row);
    }
    if planned.regions.is_empty() {
        return Err(refuse(409, nothing_to_do(&planned)));
    }
    let number = keys::draw_number().map_err(|error| refuse(500, error.to_string()))?;
    tracing::warn!(order = number, lost = ?order.lost, "an operator orders the recovery of regions");
    let mut tried = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        planned.regions.retain(|region| tried.insert(region.region));
        if planned.regions.is_empty() {
            break;
        }
        let (done, failed) = order.act(&planned.regions, number).await;
        row.recovered.extend(done);
        row.failed.extend(failed);
        planned = match order.plan().await {
            Ok(planned) => planned,
            Err(error) => {
                tracing::warn!(error.message, "regions are recovered, and there is no plan for more");
                break;
            }
        };
    }
    row.order = Some(number);
    if row.recovered.contains(&META_REGION) {
        if let Err(error) = ask(store, Ask::SkipRegionIds { count: REGION_IDS_SKIPPED }).await {
            tracing::warn!(
                error.message,
                "ids of regions that the lost stores allocated may be allocated again"
            );
        }
    }
    row.struck = join_all(order.lost.iter().map(|&lost| strike(store, lost))).await;
    Ok(row)
}

fn nothing_to_do(plan: &RecoveryPlan) -> String {
    if plan.refused.is_empty() {
        return "no region has lost its majority with these stores: nothing is changed".into();
    }
    let reasons = plan.refused.iter().map(|refused| format!("region {}: {}", refused.region, refused.reason));
    format!("nothing is changed: {}", reasons.collect::<Vec<_>>().join("; "))
}

struct Order<'a> {
    store: &'a Arc<Store>,
    lost: BTreeSet<StoreId>,
    only: Option<BTreeSet<RegionId>>,
}

impl Order<'_> {
    /// Surveys and plans. Repeats both while a leader that lost its majority has not detected the
    /// loss.
    async fn plan(&self) -> Result<RecoveryPlan, AdminError> {
        let deadline = Instant::now() + STEP_DOWN_TIMEOUT;
        loop {
            let planned = self.plan_once(&self.surveys().await)?;
            let is_passing = planned.refused.iter().any(|refused| refused.is_passing);
            if !is_passing || Instant::now() >= deadline {
                return Ok(planned);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn plan_once(&self, surveys: &[Survey]) -> Result<RecoveryPlan, AdminError> {
        let newest = surveys.iter().max_by_key(|survey| survey.members_version);
        let newest = newest.ok_or_else(|| refuse(503, "this store's groups do not answer"))?;
        let members = self.store.membership.members();
        if newest.members_version > members.agreed.version {
            let text = "store {} knows a newer list of stores than the one that was asked: ask it, or wait";
            return Err(refuse(409, text.replace("{}", &newest.store.to_string())));
        }
        let known: Vec<RegionDescriptor> =
            self.store.regions.all().iter().map(|region| (*region.newest()).clone()).collect();
        let leads = self.store.cluster.leads().into_iter();
        let told: BTreeMap<RegionId, u64> = leads.map(|(region, lead)| (region, lead.commit)).collect();
        let is_removed = |record: &&StoreRecord| record.state == MemberState::Removed;
        let removed = members.agreed.stores.iter().filter(is_removed).map(|record| record.id);
        let situation = Situation {
            lost: &self.lost,
            removed: &removed.collect(),
            surveys,
            members: &newest.members.iter().copied().collect(),
            known: &known,
            told: &told,
        };
        plan(&situation, self.only.as_ref()).map_err(|error| {
            let status = match error {
                OrderError::NoStore => 400,
                OrderError::UnknownStore(_) | OrderError::UnknownRegion(_) => 404,
                OrderError::Answers(_) | OrderError::Heard { .. } => 409,
            };
            refuse(status, error.to_string())
        })
    }

    /// Asks every member, including those named as lost, because a store that answers is not lost.
    async fn surveys(&self) -> Vec<Survey> {
        let members = self.store.membership.members();
        let asked = members.list.iter().map(|member| self.ask_store(member.id, &AskSurvivor::Survey));
        join_all(asked).await.into_iter().filter_map(Result::ok).collect()
    }

    async fn ask_store<T: DeserializeOwned>(&self, to: StoreId, what: &AskSurvivor) -> Result<T, String> {
        let body: Bytes = serde_json::to_vec(what).map_err(|error| error.to_string())?.into();
        let (status, body) = match to == self.store.id {
            true => survey::answer(self.store.clone(), body).await,
            false => {
                let call = self.store.transport.call(to, REQUEST_RECOVER, body, ANSWER_TIMEOUT);
                call.await.map_err(|_| "it does not answer".to_owned())?
            }
        };
        match status {
            STATUS_DONE => serde_json::from_slice(&body).map_err(|error| error.to_string()),
            _ => Err(String::from_utf8_lossy(&body).into_owned()),
        }
    }

    /// Carries out the plans. Returns the regions that are recovered and those that are not.
    async fn act(&self, plans: &[RegionPlan], number: u64) -> (Vec<RegionId>, Vec<FailedRegion>) {
        let mut failed = BTreeMap::new();
        self.have_done(plans.iter().flat_map(RegionPlan::promises), &mut failed).await;
        let promised =
            self.await_all(plans, PROMISE_TIMEOUT, |plan, surveys| plan.is_promised(surveys)).await;
        let now = self.store.wall.millis();
        let keepers = plans.iter().filter(|plan| promised.contains(&plan.region));
        self.have_done(keepers.map(|plan| plan.recover(number, now)), &mut failed).await;
        let begun: Vec<RegionPlan> =
            plans.iter().filter(|plan| promised.contains(&plan.region)).cloned().collect();
        let done = self.await_all(&begun, LEAD_TIMEOUT, |plan, surveys| plan.is_done(surveys, number)).await;
        let not_done = plans.iter().filter(|plan| !done.contains(&plan.region)).map(|plan| {
            let otherwise = match promised.contains(&plan.region) {
                true => "its keeper was told and does not lead yet: look again with ctl recover --list",
                false => "nothing was changed: not every survivor has promised itself, or a log has moved. Try again",
            };
            let reason = failed.remove(&plan.region).unwrap_or_else(|| otherwise.to_owned());
            FailedRegion { region: plan.region, reason }
        });
        (done.iter().copied().collect(), not_done.collect())
    }

    /// Sends the steps to their stores, and records the refused steps.
    async fn have_done(
        &self,
        steps: impl Iterator<Item = (StoreId, RecoveryStep)>,
        failed: &mut BTreeMap<RegionId, String>,
    ) {
        let mut by_store: BTreeMap<StoreId, Vec<RecoveryStep>> = BTreeMap::new();
        for (store, step) in steps {
            by_store.entry(store).or_default().push(step);
        }
        let asked = by_store.into_iter().map(|(to, steps)| async move {
            (to, self.ask_store::<RefusedSteps>(to, &AskSurvivor::Steps { steps }).await)
        });
        for (store, answer) in join_all(asked).await {
            for (region, reason) in answer.unwrap_or_default() {
                failed.insert(region, format!("store {store} refused: {reason}. Try again"));
            }
        }
    }

    /// Surveys until `is_there` is true for all plans, or `patience` is over. Returns the regions
    /// for which it is true.
    async fn await_all(
        &self,
        plans: &[RegionPlan],
        patience: Duration,
        is_there: impl Fn(&RegionPlan, &[Survey]) -> bool,
    ) -> BTreeSet<RegionId> {
        let deadline = Instant::now() + patience;
        loop {
            let surveys = self.surveys().await;
            let there = plans.iter().filter(|plan| is_there(plan, &surveys));
            let there: BTreeSet<RegionId> = there.map(|plan| plan.region).collect();
            if there.len() == plans.len() || Instant::now() >= deadline {
                return there;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Removes a lost store from the list of stores, once the meta region knows that it holds no peers.
async fn strike(store: &Store, lost: StoreId) -> StruckStore {
    let deadline = Instant::now() + STRIKE_TIMEOUT;
    loop {
        let outcome = ask(store, Ask::ChangeStore { store: lost, change: StoreRequest::Remove }).await;
        match outcome {
            Ok(_) => return StruckStore { store: lost, not_struck: None },
            Err(error) if Instant::now() >= deadline => {
                return StruckStore { store: lost, not_struck: Some(error.message) }
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Returns every recovery that is on record in a region that this store knows, newest first.
fn recoveries(store: &Store) -> Vec<RecoveryRow> {
    let mut rows = Vec::new();
    for region in store.regions.all() {
        rows.extend(region.newest().recoveries.iter().map(|recovery| RecoveryRow {
            region: region.id(),
            order: recovery.order,
            at_unix_ms: recovery.at_ms,
            keeper: recovery.keeper,
            lost: recovery.lost.clone(),
            committed: recovery.committed,
            last: recovery.last,
        }));
    }
    rows.sort_by_key(|row| (std::cmp::Reverse(row.at_unix_ms), row.region));
    rows
}
