//! Failpoints of `command`, `replica`, `node` and `storage`. The simulator finds each of them, and
//! finds nothing in the same seeds without them.

#![cfg(feature = "failpoints")]

use std::sync::Mutex;

use sim::invariants::Violation;
use sim::run::{
    bounds_reads, finds_nothing, has_copies, has_late_marks, has_thresholds, knows_ranges, passes_on, run,
    Failpoint, Options,
};

/// Maximum number of seeds within which a failpoint must be found.
const SEEDS: usize = 3000;

/// A seed that detects each failpoint at present, with which the search begins. A change of the
/// simulator moves them: then the test takes minutes, and its output has the new ones.
const KNOWN: &[(&str, u64)] = &[
    ("Command(ChangedSourceIgnored)", 40),
    ("Command(FoundMembersKept)", 1767),
    ("Node(AnnouncedIgnored)", 547),
    ("Node(AnswerBeforeWrite)", 0),
    ("Node(DamageForgotten)", 20),
    ("Node(EndForgotten)", 273),
    ("Node(ExecuteAhead)", 0),
    ("Node(ExecuteBeforeReload)", 5),
    ("Node(ExistsBeforeRows)", 22),
    ("Node(HeedsOldMark)", 12581),
    ("Node(LagFromAnswer)", 511),
    ("Node(LeadsWhileHanging)", 304),
    ("Node(LeaseNotCheckedBefore)", 792),
    ("Node(LivingIsMerged)", 93),
    ("Node(NothingUnproved)", 3823),
    ("Node(Overtake)", 2),
    ("Node(QuarantineForgotten)", 1),
    ("Node(RefuseWhatIsLate)", 24),
    ("Node(RepliesTurned)", 0),
    ("Node(RowDiffers)", 0),
    ("Node(SkipAlone)", 38),
    ("Node(SlotsOfTheTurn)", 38),
    ("Node(SnapshotNotFinished)", 11),
    ("Node(StopUnanswered)", 32),
    ("Node(TombstoneAfterRows)", 46),
    ("Node(TurnsForgotten)", 1602),
    ("Replica(AcknowledgeBeforeSync)", 0),
    ("Replica(BirthForgetsVote)", 414),
    ("Replica(BlankForgetsVote)", 18),
    ("Replica(ChainLosesEntry)", 5),
    ("Replica(EpochIgnored)", 162),
    ("Replica(EpochRemembered)", 3039),
    ("Replica(FallbackForgotten)", 99),
    ("Replica(FullIgnored)", 2506),
    ("Replica(HeirNotAwaited)", 15175),
    ("Replica(LeadsWhileStopping)", 82),
    ("Replica(LeaseBeforeOwnTerm)", 23),
    ("Replica(LeaseFromConfirmation)", 791),
    ("Replica(LeaseInTransfer)", 571),
    ("Replica(LostRelayUnnoticed)", 90),
    ("Replica(MergeNotAwaited)", 5794),
    ("Replica(NoStickinessAfterRestart)", 15621),
    ("Replica(PromotionLost)", 10),
    ("Replica(ReadBeforeApplied)", 23),
    ("Replica(RecoveryNotTold)", 17),
    ("Replica(RefuseWhatWasProposed)", 0),
    ("Replica(SealIgnored)", 1450),
    ("Replica(SessionEndTrusted)", 663),
    ("Replica(SessionKeepsLease)", 4919),
    ("Replica(SnapshotNotRecorded)", 188),
    ("Replica(SnapshotOfThePresent)", 154),
    ("Replica(StaleEpochWins)", 59),
    ("Replica(TruncatePastFlush)", 4),
    ("Replica(UncleanVotes)", 39),
    ("Replica(VoteNotSaved)", 0),
    ("Storage(DeletedStaysKnown)", 16),
    ("Storage(DivisionLosesRow)", 7),
    ("Storage(DroppedUnsettled)", 0),
    ("Storage(EvictedStaysKnown)", 7),
    ("Storage(FirstThresholds)", 27),
    ("Storage(FlushUnknown)", 7),
    ("Storage(FlushUnlearnt)", 2320),
    ("Storage(FrozenForgotten)", 1),
    ("Storage(NoTombstones)", 1),
    ("Storage(OldestFirst)", 0),
    ("Storage(ReplacedLearnt)", 0),
    ("Storage(ReplacedStays)", 6),
    ("Storage(ReplacedStaysKnown)", 29),
    ("Storage(StaleFill)", 0),
    ("Storage(StalePass)", 1909),
    ("Storage(StaleRange)", 29),
    ("Storage(WatchIgnored)", 0),
];

/// The failpoints of known ranges of rows.
const OF_RANGES: &[&str] = &[
    "Storage(DeletedStaysKnown)",
    "Storage(DivisionLosesRow)",
    "Storage(EvictedStaysKnown)",
    "Storage(FlushUnknown)",
    "Storage(ReplacedStaysKnown)",
    "Storage(StaleRange)",
];

/// Returns the seeds in which a failpoint is looked for. `STEELYARD_FROM` replaces the first one.
/// `LagFromAnswer` has an effect only in runs whose weak reads have bounds, `FirstThresholds` only
/// in runs whose entries have thresholds, `NothingUnproved` only in runs whose leaders answer
/// writes of nothing, `AnnouncedIgnored` only in runs whose stores pass commands on, those of
/// commands in parts and of known ranges only in runs with them. `HeedsOldMark` is rare in runs
/// without late marks.
fn seeds_of(failpoint: Failpoint) -> impl Iterator<Item = u64> {
    let name = format!("{failpoint:?}");
    let from = KNOWN.iter().find(|(known, _)| name == *known).map_or(0, |(_, from)| *from);
    let from = std::env::var("STEELYARD_FROM").map_or(from, |from| from.parse().expect("a seed"));
    let may_find = move |seed: &u64| match name.as_str() {
        "Node(LagFromAnswer)" => bounds_reads(*seed),
        name if name.starts_with("Command(") => has_copies(*seed),
        "Storage(FirstThresholds)" => has_thresholds(*seed),
        "Node(AnnouncedIgnored)" => passes_on(*seed),
        "Node(HeedsOldMark)" => has_late_marks(*seed),
        "Node(NothingUnproved)" => finds_nothing(*seed),
        name if OF_RANGES.contains(&name) => knows_ranges(*seed),
        _ => true,
    };
    (from..).filter(may_find).take(SEEDS)
}

fn first_violation(
    failpoint: Option<Failpoint>,
    mut seeds: impl Iterator<Item = u64>,
) -> Option<(u64, Violation)> {
    seeds.find_map(|seed| {
        let report = run(Options { failpoint, ..Options::of(seed) });
        Some((seed, report.violation?))
    })
}

/// Returns the first seed in which the simulator finds `failpoint`, and the violation; `None` if it
/// misses the failpoint.
fn found(failpoint: Failpoint) -> Option<(u64, Violation)> {
    let found = first_violation(Some(failpoint), seeds_of(failpoint))?;
    let clean = first_violation(None, found.0..found.0 + 1);
    assert_eq!(clean, None, "{failpoint:?}: seed {} is broken without it", found.0);
    Some(found)
}

#[test]
fn every_failpoint_is_detected_and_its_seed_is_clean_without_it() {
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("STEELYARD_FAILPOINT").ok();
    let is_chosen = |failpoint: &Failpoint| {
        let name = format!("{failpoint:?}");
        only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    };
    // The threads share the failpoints out; each thread enables one at a time.
    let failpoints = Mutex::new(Failpoint::all().filter(is_chosen));
    let search = || {
        let mut missed = Vec::new();
        loop {
            let Some(failpoint) = failpoints.lock().expect("no search panics with it").next() else {
                return missed;
            };
            match found(failpoint) {
                Some((seed, violation)) => {
                    println!("{failpoint:?}: seed {seed}, {}: {}", violation.invariant, violation.what);
                }
                None => missed.push(failpoint),
            }
        }
    };
    let missed = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let searches: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        searches.into_iter().flat_map(|search| search.join().expect("its seed is clean")).collect::<Vec<_>>()
    });
    assert_eq!(missed, [], "not found within {SEEDS} seeds");
}

/// Clients and the comparison of rows after each entry would detect the failpoint, too. They are
/// switched off here.
#[test]
fn a_row_that_one_store_writes_differently_is_found_by_the_stores_own_checks() {
    const SHORT: u64 = 120;
    let failpoint = Some(Failpoint::Node(node::failpoints::Failpoint::RowDiffers));
    let of = |seed, failpoint| Options { failpoint, only: Some("equal-replicas"), ..Options::of(seed) };
    let found = (0..SHORT).filter_map(|seed| run(of(seed, failpoint)).violation);
    let found: Vec<_> = found.filter(|violation| violation.invariant == "equal-replicas").collect();
    // The reports of two of three stores are no majority yet.
    let named = found.iter().filter(|violation| violation.what.contains("differ on [1]")).count();
    println!("found in {} of {SHORT} seeds, store 1 named in {named}: {:?}", found.len(), found.first());
    assert!(found.len() >= 30 && named > 0, "{found:?}");
    assert!((0..SHORT).all(|seed| run(of(seed, None)).violation.is_none()));
}

/// Most violations with this failpoint are reads. Deletions that find nothing are covered, too.
#[test]
fn a_deletion_that_is_passed_on_needs_what_the_leader_has_announced() {
    // The search begins with a seed that finds the failpoint at present.
    const FROM: u64 = 3645;
    let failpoint = Some(Failpoint::Node(node::failpoints::Failpoint::AnnouncedIgnored));
    let of = |seed, failpoint| Options { failpoint, only: Some("linearizable"), ..Options::of(seed) };
    let is_found_by_deletion = |seed: &u64| {
        let violation = run(of(*seed, failpoint)).violation;
        violation.is_some_and(|violation| violation.what.starts_with("Delete"))
    };
    let found = (FROM..).filter(|seed| passes_on(*seed)).take(SEEDS).find(is_found_by_deletion);
    println!("found in seed {found:?}");
    let found = found.expect("a seed");
    let clean = (found..).filter(|seed| passes_on(*seed)).take(20).map(|seed| run(of(seed, None)));
    let clean: Vec<_> = clean.collect();
    assert!(clean.iter().all(|report| report.violation.is_none()));
    let behind: u64 = clean.iter().map(|report| report.tally.behind_announced).sum();
    println!("{behind} parts waited for announced entries");
    assert!(behind > 0);
}

/// The failpoint stays enabled for the peer that is made again, so the end of such a run is not
/// judged.
#[test]
fn a_peer_whose_rows_differ_is_quarantined_and_made_anew() {
    let failpoint = Some(Failpoint::Node(node::failpoints::Failpoint::RowDiffers));
    let (mut quarantined, mut refilled) = (0, 0);
    for seed in 0..40 {
        let report = run(Options { failpoint, only: Some("quarantined"), ..Options::of(seed) });
        let broken = report.violation.filter(|violation| violation.invariant == "quarantined");
        assert_eq!(broken, None, "seed {seed}");
        quarantined += u64::from(report.tally.quarantined > 0);
        refilled += u64::from(report.tally.refills > 0);
    }
    println!("quarantined in {quarantined} of 40 seeds, refills asked for in {refilled}");
    assert!(quarantined >= 10 && refilled >= 5);
}
