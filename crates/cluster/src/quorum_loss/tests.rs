use types::{RegionEpoch, SlotRange};

use super::*;

fn descriptor(stores: &[StoreId]) -> RegionDescriptor {
    RegionDescriptor::founded(1, Some(SlotRange { first: 0, last: 99 }), stores)
}

/// A report whose log is these runs of (first, term) up to `last`, oldest first.
fn report(
    region: &RegionDescriptor,
    store: StoreId,
    runs: &[(u64, u64)],
    last: u64,
    commit: u64,
) -> PeerReport {
    let mut runs = runs.to_vec();
    runs.reverse();
    let mut report = PeerReport {
        region: region.id,
        peer: region.peer_on(store).map_or(1, |peer| peer.id),
        descriptor: region.clone(),
        ends_as: region.clone(),
        term: runs[0].1,
        vote: None,
        is_saved: true,
        leads: false,
        unfit: None,
        commit,
        commit_term: 0,
        applied: commit,
        last,
        runs,
    };
    report.commit_term = report.term_at(commit).expect("the log holds what it committed");
    report
}

fn survey(store: StoreId, peers: Vec<PeerReport>) -> Survey {
    let (hears, removed) = (Vec::new(), Vec::new());
    Survey { store, hears, members_version: 1, members: (0..5).collect(), peers, removed }
}

fn planned(
    surveys: &[Survey],
    lost: &[StoreId],
    known: &[RegionDescriptor],
    only: Option<RegionId>,
) -> Result<RecoveryPlan, OrderError> {
    let situation = Situation {
        lost: &lost.iter().copied().collect(),
        surveys,
        members: &(0..5).collect(),
        removed: &BTreeSet::from([9]),
        known,
        told: &BTreeMap::from([(1, 30)]),
    };
    plan(&situation, only.map(|region| BTreeSet::from([region])).as_ref())
}

fn refusal(plan: Result<RecoveryPlan, OrderError>) -> String {
    let plan = plan.expect("the order is valid");
    assert!(plan.regions.is_empty(), "{plan:?}");
    plan.refused.into_iter().map(|refused| refused.reason).collect()
}

#[test]
fn the_longest_log_counts_and_what_may_be_lost_is_told() {
    let region = descriptor(&[0, 1, 2, 3, 4]);
    let surveys = [
        survey(0, vec![report(&region, 0, &[(5, 1), (11, 2)], 20, 12)]),
        survey(1, vec![report(&region, 1, &[(5, 1), (11, 2)], 23, 10)]),
    ];
    let plan = planned(&surveys, &[2, 3, 4], &[], None).unwrap();
    assert!(plan.refused.is_empty());
    let [of_region] = &plan.regions[..] else { panic!("{plan:?}") };
    assert_eq!((of_region.keeper, of_region.keeper_peer), (1, 2));
    assert_eq!((of_region.committed, of_region.last, of_region.told), (12, 23, Some(30)));
    assert_eq!(of_region.certainly_lost(), 7);
    assert_eq!(of_region.lost, [2, 3, 4]);
    assert!(of_region.term > 1000);
    assert_eq!(of_region.survivors.iter().map(|survivor| survivor.dropped).sum::<u64>(), 0);
    let (keeper, step) = of_region.recover(7, 8);
    let RecoveryStep::Recover { recovery, .. } = &step else { panic!("{step:?}") };
    assert_eq!((keeper, recovery.last, recovery.committed), (1, 23, 12));
    let sent = serde_json::to_vec(&step).unwrap();
    assert_eq!(serde_json::from_slice::<RecoveryStep>(&sent).unwrap(), step);
    let sent = serde_json::to_vec(&surveys[0]).unwrap();
    assert_eq!(serde_json::from_slice::<Survey>(&sent).unwrap(), surveys[0]);
}

#[test]
fn a_log_of_a_later_term_does_not_count_if_it_lacks_what_is_known_to_be_committed() {
    let region = descriptor(&[0, 1, 2, 3, 4]);
    // The leader of term 3 reached only store 0. The leader of term 4 never reached store 0, and
    // committed entry 15.
    let mut knows = report(&region, 1, &[(5, 2)], 15, 15);
    knows.term = 4;
    let surveys = [survey(0, vec![report(&region, 0, &[(5, 2), (13, 3)], 19, 12)]), survey(1, vec![knows])];
    let plan = planned(&surveys, &[2, 3, 4], &[], None).unwrap();
    assert_eq!((plan.regions[0].keeper, plan.regions[0].last), (1, 15));
    let dropped: Vec<u64> = plan.regions[0].survivors.iter().map(|survivor| survivor.dropped).collect();
    assert_eq!(dropped, [7, 0]);
}

#[test]
fn a_voter_on_a_removed_store_is_gone_although_no_survivor_has_heard_of_its_end() {
    let region = descriptor(&[0, 1, 9]);
    let survivor = survey(0, vec![report(&region, 0, &[(5, 1)], 9, 9)]);
    let plan = planned(&[survivor], &[1], &[], None).unwrap();
    assert_eq!((plan.regions[0].keeper, &plan.regions[0].lost[..]), (0, &[1, 9][..]));
}

#[test]
fn a_voter_that_was_removed_without_the_survivors_knowledge_counts_as_lost() {
    let region = descriptor(&[0, 1, 2]);
    let at_0 = |peer| Survey { removed: vec![(7, 9), (1, peer)], ..survey(0, vec![]) };
    let survivor = survey(2, vec![report(&region, 2, &[(5, 1)], 9, 9)]);
    let surveys = |peer| [at_0(peer), survivor.clone(), survey(3, vec![]), survey(4, vec![])];
    let plan = planned(&surveys(1), &[1], &[], None).unwrap();
    assert_eq!((plan.regions[0].keeper, &plan.regions[0].lost[..]), (2, &[0, 1][..]));
    assert_eq!(plan.regions[0].promises().len(), 1);
    // It may vote if an earlier number was removed.
    assert_eq!(planned(&surveys(0), &[1], &[], None), Ok(RecoveryPlan::default()));
    // The later configuration may have its peers on the stores that do not answer.
    let refused = refusal(planned(&surveys(1)[..3], &[1], &[], None));
    assert!(refused.contains("store 4, which may have one by now"), "{refused}");
    let sent = serde_json::to_vec(&at_0(1)).unwrap();
    assert_eq!(serde_json::from_slice::<Survey>(&sent).unwrap(), at_0(1));
    assert!(!serde_json::to_string(&survivor).unwrap().contains("removed"), "older programs read it");
}

#[test]
fn a_region_that_may_live_is_left_alone() {
    let region = descriptor(&[0, 1, 2]);
    let at = |store| survey(store, vec![report(&region, store, &[(5, 1)], 9, 9)]);
    let surveys = [at(0), at(1)];
    assert_eq!(planned(&surveys, &[2], &[], None), Ok(RecoveryPlan::default()));
    assert!(refusal(planned(&surveys, &[2], &[], Some(1))).contains("has not lost its majority"));
    assert_eq!(planned(&surveys, &[1, 2], &[], None), Err(OrderError::Answers(1)));
    let mut hears = at(0);
    hears.hears = vec![2];
    assert_eq!(planned(&[hears], &[1, 2], &[], None), Err(OrderError::Heard { store: 2, by: 0 }));
    assert_eq!(planned(&[at(0)], &[1, 77], &[], None), Err(OrderError::UnknownStore(77)));
    assert_eq!(planned(&[at(0)], &[], &[], None), Err(OrderError::NoStore));
    assert_eq!(planned(&[at(0)], &[1, 2], &[], Some(9)), Err(OrderError::UnknownRegion(9)));
    // A store that does not answer does not count as lost.
    assert_eq!(planned(&[at(0)], &[1], &[], None), Ok(RecoveryPlan::default()));
    let five = descriptor(&[0, 1, 2, 3, 4]);
    let at = survey(0, vec![report(&five, 0, &[(5, 1)], 9, 9)]);
    assert!(refusal(planned(&[at], &[2, 3, 4], &[], None)).contains("store 1 has a peer of it, and neither"));
    let mut leads = report(&region, 0, &[(5, 1)], 9, 9);
    leads.leads = true;
    let plan = planned(&[survey(0, vec![leads])], &[1, 2], &[], None).unwrap();
    assert!(plan.refused[0].is_passing && plan.regions.is_empty());
}

#[test]
fn a_joint_configuration_is_lost_with_either_half() {
    use types::{PeerChange::*, RegionChange};
    let mut region = descriptor(&[0, 1, 2]);
    let swap = vec![Promote(3), Promote(4), Demote(1), Demote(2)];
    for changes in [vec![AddLearner(3)], vec![AddLearner(4)], swap] {
        region = region.after(&RegionChange::Peers(changes)).unwrap().region;
    }
    assert!(region.is_joint());
    let lost = |stores: &[StoreId]| !may_live(&region, &stores.iter().copied().collect());
    assert!(lost(&[1, 2]) && lost(&[3, 4]) && lost(&[0, 1]) && !lost(&[1, 3]) && !lost(&[0]));
}

#[test]
fn remains_of_the_past_do_not_become_a_region_again() {
    let region = descriptor(&[0, 1, 2]);
    let surveys = [survey(0, vec![report(&region, 0, &[(5, 1)], 9, 9)]), survey(3, vec![])];
    let lost = [1, 2];
    // Store 0 was removed from the region, whose later peers are lost, too.
    let mut moved = descriptor(&[1, 2]);
    moved.epoch.conf_version = 9;
    assert!(refusal(planned(&surveys, &lost, &[moved], None)).contains("removed from the region before"));
    // The region has merged into a live region.
    let living = |version| RegionDescriptor {
        id: 7,
        epoch: RegionEpoch { conf_version: 1, version },
        ..descriptor(&[0, 3, 4])
    };
    let heir = RegionDescriptor { absorbed: vec![1], ..living(9) };
    assert_eq!(planned(&surveys, &lost, &[heir], None), Ok(RecoveryPlan::default()));
    assert!(refusal(planned(&surveys, &lost, &[living(9)], None)).contains("region 7 has some of its slots"));
    let older = planned(&surveys, &lost, &[living(1)], None).unwrap();
    assert_eq!(older.regions.len(), 1);
    // No copy of the region is left.
    let gone = planned(&[survey(3, vec![])], &lost, &[descriptor(&[1, 2])], None);
    assert!(refusal(gone).contains("no copy of its data is left, slots 0 to 99"));
    let mut blank = report(&region, 0, &[(5, 1)], 9, 9);
    blank.unfit = Some(Unfit::Blank);
    assert!(refusal(planned(&[survey(0, vec![blank])], &lost, &[], None)).contains("no copy"));
}

#[test]
fn nothing_is_recovered_before_every_survivor_has_promised_itself() {
    let region = descriptor(&[0, 1, 2, 3, 4]);
    let at = |store: StoreId, last| report(&region, store, &[(5, 1)], last, 9);
    let surveys = [survey(0, vec![at(0, 20)]), survey(1, vec![at(1, 12)])];
    let plan = planned(&surveys, &[2, 3, 4], &[], None).unwrap().regions.remove(0);
    assert_eq!(plan.promises().len(), 2);
    let promised = |store, last, change: fn(&mut PeerReport)| {
        let mut report = at(store, last);
        (report.term, report.vote) = (plan.term, Some(plan.keeper_peer));
        change(&mut report);
        survey(store, vec![report])
    };
    let kept = promised(0, 20, |_| {});
    assert!(plan.is_promised(&[kept.clone(), promised(1, 12, |_| {})]));
    assert!(!plan.is_promised(std::slice::from_ref(&kept)));
    assert!(!plan.is_promised(&[kept.clone(), survey(1, vec![at(1, 12)])]));
    assert!(!plan.is_promised(&[kept.clone(), promised(1, 12, |report| report.vote = Some(2))]));
    assert!(!plan.is_promised(&[kept.clone(), promised(1, 12, |report| report.is_saved = false)]));
    assert!(!plan.is_promised(&[kept, promised(1, 13, |_| {})]), "its log has moved");
    let recovered = |order, leads| {
        let (_, step) = plan.recover(order, 1);
        let RecoveryStep::Recover { recovery, .. } = step else { panic!("{step:?}") };
        let mut report = at(0, 21);
        report.leads = leads;
        report.descriptor = report.descriptor.recovered(&recovery).unwrap().region;
        [survey(0, vec![report])]
    };
    assert!(plan.is_done(&recovered(7, true), 7));
    assert!(!plan.is_done(&recovered(8, true), 7) && !plan.is_done(&recovered(7, false), 7));
    // The region has merged into another one, on the keeper's store and not only elsewhere.
    let merged = |store| {
        let heir = RegionDescriptor { id: region.id + 1, absorbed: vec![region.id], ..region.clone() };
        [survey(store, vec![report(&heir, store, &[(5, 1)], 9, 9)])]
    };
    assert!(plan.is_done(&merged(0), 7) && !plan.is_done(&merged(1), 7));
}

#[test]
fn a_quarantined_survivor_is_no_keeper_and_the_plan_says_why() {
    let region = descriptor(&[0, 1, 2, 3, 4]);
    let why = "it is quarantined at entry 12";
    let quarantined = |commit| {
        let mut report = report(&region, 0, &[(5, 1), (11, 2)], 20, commit);
        report.unfit = Some(Unfit::Other(why.to_owned()));
        survey(0, vec![report])
    };
    let sound = |last, commit| survey(1, vec![report(&region, 1, &[(5, 1), (11, 2)], last, commit)]);
    let plan = planned(&[quarantined(12), sound(15, 11)], &[2, 3, 4], &[], None).unwrap();
    let [of_region] = &plan.regions[..] else { panic!("{plan:?}") };
    assert_eq!((of_region.keeper, of_region.last, of_region.committed), (1, 15, 12));
    let [follows, _] = &of_region.survivors[..] else { panic!("{of_region:?}") };
    assert_eq!((follows.unfit.as_deref(), follows.dropped), (Some(why), 5));
    // The sound log lacks an entry that is known to be committed, so the other log must be usable
    // first.
    let refused = refusal(planned(&[quarantined(18), sound(15, 11)], &[2, 3, 4], &[], None));
    assert!(refused.contains(&format!("on store 0 {why}")), "{refused}");
    let refused = refusal(planned(&[quarantined(12)], &[1, 2, 3, 4], &[], None));
    assert!(refused.contains(&format!("on store 0 {why}")), "{refused}");
}
