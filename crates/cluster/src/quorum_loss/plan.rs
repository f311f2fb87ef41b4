//! The plan of an order, from one survey of the stores.

use std::cmp::Reverse;

use super::*;

/// Distance in terms from the largest term that a survivor knows to the term of the promises. The
/// lost stores may have been in later terms than the survivors.
const TERM_LEAP: Term = 1024;

/// The facts from which an order is planned.
pub struct Situation<'a> {
    /// The stores that an operator declares to be lost for good.
    pub lost: &'a BTreeSet<StoreId>,
    /// The surveys of all stores that answered.
    pub surveys: &'a [Survey],
    /// Members of the newest list of stores.
    pub members: &'a BTreeSet<StoreId>,
    /// The stores that were removed from the cluster. A survivor may not know that they had to give
    /// up their peers first.
    pub removed: &'a BTreeSet<StoreId>,
    /// The descriptors that the planning store knows.
    pub known: &'a [RegionDescriptor],
    /// The commit indexes that leaders have reported, by region.
    pub told: &'a BTreeMap<RegionId, LogIndex>,
}

/// Plans the recovery of the regions in `only`, or of all regions that lost their majority with the
/// lost stores.
pub fn plan(
    situation: &Situation<'_>,
    only: Option<&BTreeSet<RegionId>>,
) -> Result<RecoveryPlan, OrderError> {
    let all = Regions::of(situation);
    all.check_order(only)?;
    let mut plan = RecoveryPlan::default();
    for (&region, newest) in &all.newest {
        let is_named = only.is_some_and(|only| only.contains(&region));
        if only.is_some() && !is_named {
            continue;
        }
        match all.plan_region(region, newest) {
            Ok(region) => plan.regions.push(region),
            Err(Refused::NotLost) if !is_named => {}
            Err(refused) => {
                let is_passing = matches!(refused, Refused::Leads(_));
                plan.refused.push(RefusedRegion { region, reason: refused.to_string(), is_passing });
            }
        }
    }
    Ok(plan)
}

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("it has not lost its majority: the stores that are not named as lost can elect a leader")]
    NotLost,
    #[error("store {0} has a peer of it, and neither answers nor is named as lost")]
    Silent(StoreId),
    #[error("its peers have changed since the last configuration that is known, and store {0}, which may have one by now, neither answers nor is named as lost")]
    MayHavePeer(StoreId),
    #[error("store {0} believes that it leads it: it steps down within seconds if its majority is gone")]
    Leads(StoreId),
    #[error("no copy of its data is left{0}")]
    NoCopy(String),
    #[error("no surviving copy can be its beginning: {0}")]
    Unfit(String),
    #[error("the surviving copies were removed from the region before, and are older than it")]
    RemovedBefore,
    #[error("region {0} has some of its slots by now, and has not lost its majority")]
    Overtaken(RegionId),
    #[error("no surviving log holds all that the survivors know to be committed")]
    Parted,
}

struct Regions<'a> {
    situation: &'a Situation<'a>,
    /// The stores that will not return: the lost and the removed ones.
    gone: BTreeSet<StoreId>,
    reports: BTreeMap<(RegionId, StoreId), &'a PeerReport>,
    /// Each region's newest descriptor, without regions that have merged into others.
    newest: BTreeMap<RegionId, &'a RegionDescriptor>,
}

impl<'a> Regions<'a> {
    fn of(situation: &'a Situation<'a>) -> Regions<'a> {
        let reports = reports_of(situation.surveys);
        let told = reports.values().filter(|report| report.unfit != Some(Unfit::Merged));
        let mut newest: BTreeMap<RegionId, &RegionDescriptor> = BTreeMap::new();
        for descriptor in told.map(|report| &report.descriptor).chain(situation.known) {
            let known = newest.entry(descriptor.id).or_insert(descriptor);
            if descriptor.epoch.is_newer_than(known.epoch) {
                *known = descriptor;
            }
        }
        let merged: BTreeSet<RegionId> =
            newest.values().flat_map(|region| region.absorbed.iter().copied()).collect();
        newest.retain(|region, _| !merged.contains(region));
        let gone = situation.lost.union(situation.removed).copied().collect();
        Regions { situation, gone, reports, newest }
    }

    fn check_order(&self, only: Option<&BTreeSet<RegionId>>) -> Result<(), OrderError> {
        let Situation { lost, surveys, members, .. } = self.situation;
        if lost.is_empty() {
            return Err(OrderError::NoStore);
        }
        let has_peer = |store| self.newest.values().any(|region| region.has_peer_on(store));
        let is_unknown = |store: &&StoreId| !members.contains(store) && !has_peer(**store);
        if let Some(&store) = lost.iter().find(is_unknown) {
            return Err(OrderError::UnknownStore(store));
        }
        if let Some(survey) = surveys.iter().find(|survey| lost.contains(&survey.store)) {
            return Err(OrderError::Answers(survey.store));
        }
        for survey in surveys.iter() {
            if let Some(&store) = survey.hears.iter().find(|store| lost.contains(store)) {
                return Err(OrderError::Heard { store, by: survey.store });
            }
        }
        match only.and_then(|only| only.iter().find(|region| !self.newest.contains_key(region))) {
            Some(&region) => Err(OrderError::UnknownRegion(region)),
            None => Ok(()),
        }
    }

    fn plan_region(&self, region: RegionId, newest: &RegionDescriptor) -> Result<RegionPlan, Refused> {
        let Situation { surveys, told, members, .. } = self.situation;
        let removed = self.removed_from(newest);
        let gone = &self.gone.union(&removed).copied().collect();
        if may_live(newest, gone) {
            return Err(Refused::NotLost);
        }
        let answers = |store| surveys.iter().any(|survey| survey.store == store);
        let mut peers = newest.peers.iter().map(|peer| peer.store);
        if let Some(store) = peers.find(|store| !gone.contains(store) && !answers(*store)) {
            return Err(Refused::Silent(store));
        }
        // If a peer of the newest known configuration was removed, there is a later one. Its peers
        // may be on any store.
        let mut others = members.iter().filter(|store| !gone.contains(store) && !answers(**store));
        if let Some(&store) = others.next().filter(|_| !removed.is_empty()) {
            return Err(Refused::MayHavePeer(store));
        }
        let of_region = self.reports.range((region, 0)..=(region, StoreId::MAX));
        let with_data: Vec<(StoreId, &PeerReport)> = of_region
            .map(|(&(_, store), report)| (store, *report))
            .filter(|(_, report)| !matches!(report.unfit, Some(Unfit::Blank | Unfit::Merged)))
            .collect();
        if let Some((store, _)) = with_data.iter().find(|(_, report)| report.leads) {
            return Err(Refused::Leads(*store));
        }
        let (keeper, kept) = keeper(newest, &with_data)?;
        if let Some(other) = self.living_heir(&kept.ends_as) {
            return Err(Refused::Overtaken(other));
        }
        let survivor = |(store, report): &(StoreId, &PeerReport)| Survivor {
            store: *store,
            last_term: report.last_term(),
            last: report.last,
            commit: report.commit,
            applied: report.applied,
            unfit: report.unfit.as_ref().map(text),
            dropped: report.beyond(kept),
        };
        let had_peer = |store: &StoreId| newest.has_peer_on(*store) || kept.ends_as.has_peer_on(*store);
        let terms = with_data.iter().map(|(_, report)| report.term);
        Ok(RegionPlan {
            region,
            slots: kept.ends_as.slots.map(|slots| (slots.first, slots.last)),
            keeper,
            keeper_peer: kept.peer,
            term: terms.max().unwrap_or(0).saturating_add(TERM_LEAP),
            lost: gone.iter().copied().filter(had_peer).collect(),
            survivors: with_data.iter().map(survivor).collect(),
            committed: with_data.iter().map(|(_, report)| report.commit).max().unwrap_or(0),
            last: kept.last,
            told: told.get(&region).copied(),
        })
    }

    /// Returns the stores from which the region's peer was removed, although the newest known
    /// configuration has it. They no longer vote.
    fn removed_from(&self, newest: &RegionDescriptor) -> BTreeSet<StoreId> {
        let surveys = self.situation.surveys.iter();
        let is_removed = |survey: &&Survey| {
            let peer = newest.peer_on(survey.store).map(|peer| peer.id);
            let mut removed = survey.removed.iter();
            peer.is_some_and(|peer| removed.any(|&(region, last)| region == newest.id && peer <= last))
        };
        surveys.filter(is_removed).map(|survey| survey.store).collect()
    }

    /// Returns a live region that absorbed slots of this one, with a later version.
    fn living_heir(&self, region: &RegionDescriptor) -> Option<RegionId> {
        let slots = region.slots?;
        let overlaps = |other: &RegionDescriptor| {
            other.slots.is_some_and(|of| of.first <= slots.last && slots.first <= of.last)
        };
        let is_heir = |other: &RegionDescriptor| {
            other.id != region.id && other.epoch.version > region.epoch.version && overlaps(other)
        };
        let mut heirs = self.newest.values().filter(|other| is_heir(other));
        heirs.find(|other| may_live(other, &self.gone)).map(|other| other.id)
    }
}

/// Returns the survivor that becomes the keeper, and its report.
fn keeper<'r>(
    newest: &RegionDescriptor,
    with_data: &[(StoreId, &'r PeerReport)],
) -> Result<(StoreId, &'r PeerReport), Refused> {
    let Some((_, furthest)) = with_data.iter().max_by_key(|(_, report)| report.commit) else {
        let slots = newest.slots.map(|slots| format!(", slots {} to {}", slots.first, slots.last));
        return Err(Refused::NoCopy(slots.unwrap_or_default()));
    };
    let mut fit: Vec<_> = with_data.iter().copied().filter(|(_, report)| report.unfit.is_none()).collect();
    if fit.is_empty() {
        return Err(Refused::Unfit(reasons(with_data)));
    }
    // If a later configuration is known, peers that are not in it are left over from an earlier
    // one.
    fit.retain(|(store, report)| {
        newest.has_peer_on(*store) || !newest.epoch.is_newer_than(report.ends_as.epoch)
    });
    if fit.is_empty() {
        return Err(Refused::RemovedBefore);
    }
    let holds = |(_, report): &(StoreId, &PeerReport)| report.holds(furthest.commit, furthest.commit_term);
    let rank = |(store, report): &(StoreId, &PeerReport)| (report.last_term(), report.last, Reverse(*store));
    fit.into_iter().filter(holds).max_by_key(rank).ok_or_else(|| {
        let unfit: Vec<_> =
            with_data.iter().copied().filter(|report| report.1.unfit.is_some() && holds(report)).collect();
        match unfit.is_empty() {
            true => Refused::Parted,
            false => Refused::Unfit(reasons(&unfit)),
        }
    })
}

/// Returns the reasons why the logs of these survivors cannot be used.
fn reasons(survivors: &[(StoreId, &PeerReport)]) -> String {
    let why = survivors
        .iter()
        .filter_map(|(store, report)| Some(format!("on store {store} {}", report.unfit.as_ref().map(text)?)));
    why.collect::<Vec<_>>().join("; ")
}

fn text(unfit: &Unfit) -> String {
    match unfit {
        Unfit::Blank => "it has no data".to_owned(),
        Unfit::Merged => "it has merged into another region".to_owned(),
        Unfit::Other(text) => text.clone(),
    }
}
