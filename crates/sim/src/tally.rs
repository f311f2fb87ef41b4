//! Counts of the events in runs. They show that the invariants held while all features were
//! exercised.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub seeds: u64,
    pub events: u64,
    pub simulated_ns: u64,
    /// Number of conversations that clients began, without those of a rush.
    pub conversations: u64,
    pub operations: u64,
    pub answered: u64,
    /// Operations among these that followed another one of their group on the same connection.
    pub pipelined: u64,
    pub refused: u64,
    pub unknown: u64,
    pub reads: u64,
    pub lease_reads: u64,
    /// Number of writes that were answered without an entry, because they changed nothing.
    pub writes_of_nothing: u64,
    /// Parts of commands that were executed in parts, ends of such commands, those among them that
    /// returned members, and parts and ends that found that a source had changed.
    pub copy_parts: u64,
    pub copies_ended: u64,
    pub pops_ended: u64,
    pub copies_overtaken: u64,
    /// Commands that stores passed on to leaders.
    pub passed_on: u64,
    /// Parts with reads among them for which the lease did not suffice, because the leader had
    /// announced entries that it had not executed.
    pub behind_announced: u64,
    /// Clients that the execution of an entry on a store woke.
    pub woken: u64,
    pub index_reads: u64,
    pub elections: u64,
    /// Runs with a coordinator, peers' reports that they seek a leader, and candidates that it
    /// chose.
    pub coordinated: u64,
    pub searches: u64,
    pub stands: u64,
    /// Sessions that the coordinator ended, its lies, and changes of the way in which candidates
    /// are chosen.
    pub sessions_ended: u64,
    pub lies: u64,
    pub switches: u64,
    /// Runs with chains, changes of the way of replication, appends that leaders left to a follower
    /// to pass on, appends that were passed on, and followers that left a chain.
    pub chained_runs: u64,
    pub replication_changes: u64,
    pub chained: u64,
    pub relayed: u64,
    pub fallbacks: u64,
    pub entries_applied: u64,
    /// Number of times that the worker executed entries with the rows in RAM, and number of times
    /// that it lacked rows.
    pub executed_in_ram: u64,
    pub attempts_missed: u64,
    /// Batches of the log that workers wrote themselves.
    pub logged_at_once: u64,
    pub truncations: u64,
    pub log_reads: u64,
    /// Turns after which committed entries waited for room to be executed.
    pub withheld: u64,
    pub appends_refused: u64,
    pub transfers: u64,
    pub transfers_aborted: u64,
    pub operators: u64,
    pub changes: u64,
    pub joints: u64,
    pub splits: u64,
    pub seals: u64,
    pub merges: u64,
    pub merges_taken_back: u64,
    /// Questions about single regions to the meta region, and regions that it reported as merged
    /// away.
    pub asked_if_merged: u64,
    pub found_merged: u64,
    pub snapshots: u64,
    pub destroyed: u64,
    pub joined: u64,
    /// Stores that completed a planned stop, and those of them that led nothing at the end.
    pub planned_stops: u64,
    pub all_handed_over: u64,
    pub removed: u64,
    /// Peers that took no part in consensus from a start on, because their machine had crashed.
    pub unclean: u64,
    /// Peers that are unclean because of a damaged log, and logs whose damaged entries were dropped
    /// without loss.
    pub damaged: u64,
    pub damage_healed: u64,
    pub weak_reads: u64,
    /// Weak reads with a bound, questions to leaders for them, and such reads that were refused.
    pub bounded_reads: u64,
    pub bound_questions: u64,
    pub bounds_refused: u64,
    /// Hibernating regions, counted at each heartbeat of a store.
    pub asleep: u64,
    /// Number of times that a store found its clock too far from the median, or close to it again.
    pub clocks_judged: u64,
    /// Number of times that a store found its device hanging, and number of regions whose
    /// leadership it gave up without a successor.
    pub hangs: u64,
    pub step_downs: u64,
    /// Checksums that stores reported of their peers' rows, and comparisons that found all peers
    /// equal.
    pub checks: u64,
    pub checks_equal: u64,
    /// Number of times that a peer was quarantined or found quarantined at a start, and number of
    /// decisions about them.
    pub quarantined: u64,
    pub skips: u64,
    pub retries: u64,
    pub refills: u64,
    /// Runs in which a region lost its majority. Their end is not checked.
    pub doomed: u64,
    pub histories: u64,
    pub violations: u64,
    pub slowest_ns: u64,
    pub faults: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    pub fn add(&mut self, other: &Tally) {
        for (sum, more) in [
            (&mut self.seeds, other.seeds),
            (&mut self.events, other.events),
            (&mut self.simulated_ns, other.simulated_ns),
            (&mut self.conversations, other.conversations),
            (&mut self.operations, other.operations),
            (&mut self.answered, other.answered),
            (&mut self.pipelined, other.pipelined),
            (&mut self.refused, other.refused),
            (&mut self.unknown, other.unknown),
            (&mut self.reads, other.reads),
            (&mut self.lease_reads, other.lease_reads),
            (&mut self.writes_of_nothing, other.writes_of_nothing),
            (&mut self.copy_parts, other.copy_parts),
            (&mut self.copies_ended, other.copies_ended),
            (&mut self.pops_ended, other.pops_ended),
            (&mut self.copies_overtaken, other.copies_overtaken),
            (&mut self.passed_on, other.passed_on),
            (&mut self.behind_announced, other.behind_announced),
            (&mut self.woken, other.woken),
            (&mut self.index_reads, other.index_reads),
            (&mut self.elections, other.elections),
            (&mut self.coordinated, other.coordinated),
            (&mut self.searches, other.searches),
            (&mut self.stands, other.stands),
            (&mut self.sessions_ended, other.sessions_ended),
            (&mut self.lies, other.lies),
            (&mut self.switches, other.switches),
            (&mut self.chained_runs, other.chained_runs),
            (&mut self.replication_changes, other.replication_changes),
            (&mut self.chained, other.chained),
            (&mut self.relayed, other.relayed),
            (&mut self.fallbacks, other.fallbacks),
            (&mut self.entries_applied, other.entries_applied),
            (&mut self.executed_in_ram, other.executed_in_ram),
            (&mut self.attempts_missed, other.attempts_missed),
            (&mut self.logged_at_once, other.logged_at_once),
            (&mut self.truncations, other.truncations),
            (&mut self.log_reads, other.log_reads),
            (&mut self.withheld, other.withheld),
            (&mut self.appends_refused, other.appends_refused),
            (&mut self.transfers, other.transfers),
            (&mut self.transfers_aborted, other.transfers_aborted),
            (&mut self.operators, other.operators),
            (&mut self.changes, other.changes),
            (&mut self.joints, other.joints),
            (&mut self.splits, other.splits),
            (&mut self.seals, other.seals),
            (&mut self.merges, other.merges),
            (&mut self.merges_taken_back, other.merges_taken_back),
            (&mut self.asked_if_merged, other.asked_if_merged),
            (&mut self.found_merged, other.found_merged),
            (&mut self.snapshots, other.snapshots),
            (&mut self.destroyed, other.destroyed),
            (&mut self.joined, other.joined),
            (&mut self.planned_stops, other.planned_stops),
            (&mut self.all_handed_over, other.all_handed_over),
            (&mut self.removed, other.removed),
            (&mut self.unclean, other.unclean),
            (&mut self.damaged, other.damaged),
            (&mut self.damage_healed, other.damage_healed),
            (&mut self.weak_reads, other.weak_reads),
            (&mut self.bounded_reads, other.bounded_reads),
            (&mut self.bound_questions, other.bound_questions),
            (&mut self.bounds_refused, other.bounds_refused),
            (&mut self.asleep, other.asleep),
            (&mut self.clocks_judged, other.clocks_judged),
            (&mut self.hangs, other.hangs),
            (&mut self.step_downs, other.step_downs),
            (&mut self.checks, other.checks),
            (&mut self.checks_equal, other.checks_equal),
            (&mut self.quarantined, other.quarantined),
            (&mut self.skips, other.skips),
            (&mut self.retries, other.retries),
            (&mut self.refills, other.refills),
            (&mut self.doomed, other.doomed),
            (&mut self.histories, other.histories),
            (&mut self.violations, other.violations),
        ] {
            *sum += more;
        }
        self.slowest_ns = self.slowest_ns.max(other.slowest_ns);
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
    }

    /// Returns the counts with their printed names.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("seeds", self.seeds),
            ("events", self.events),
            ("conversations", self.conversations),
            ("operations", self.operations),
            ("  answered", self.answered),
            ("  behind others of their group", self.pipelined),
            ("  refused and asked again", self.refused),
            ("  left open", self.unknown),
            ("reads", self.reads),
            ("  by lease", self.lease_reads),
            ("  by ReadIndex", self.index_reads),
            ("  after READONLY", self.weak_reads),
            ("    with a bound", self.bounded_reads),
            ("    questions to leaders", self.bound_questions),
            ("    refused because of the bound", self.bounds_refused),
            ("writes of nothing", self.writes_of_nothing),
            ("parts of commands executed", self.copy_parts),
            ("  commands that ended in parts", self.copies_ended),
            ("    and returned what they removed", self.pops_ended),
            ("  changes of their sources found", self.copies_overtaken),
            ("commands passed on to leaders", self.passed_on),
            ("  that waited for announced entries", self.behind_announced),
            ("clients woken by an execution", self.woken),
            ("elections won", self.elections),
            ("runs with a coordinator", self.coordinated),
            ("  reports of peers without a leader", self.searches),
            ("  candidates chosen", self.stands),
            ("  sessions ended", self.sessions_ended),
            ("  lies", self.lies),
            ("  changes of the way to choose", self.switches),
            ("runs with chains", self.chained_runs),
            ("  changes of the way to replicate", self.replication_changes),
            ("  appends joined with others", self.chained),
            ("  appends passed on", self.relayed),
            ("  followers that fell back to direct appends", self.fallbacks),
            ("entries applied", self.entries_applied),
            ("  hand-outs executed in RAM", self.executed_in_ram),
            ("  hand-outs that lacked rows", self.attempts_missed),
            ("batches written by workers", self.logged_at_once),
            ("log truncations", self.truncations),
            ("log reads for followers", self.log_reads),
            ("turns that withheld entries", self.withheld),
            ("appends refused by full stores", self.appends_refused),
            ("leader transfers done", self.transfers),
            ("leader transfers aborted", self.transfers_aborted),
            ("operators", self.operators),
            ("changes of regions applied", self.changes),
            ("  to joint configurations", self.joints),
            ("  splits", self.splits),
            ("  merges prepared", self.seals),
            ("  merges", self.merges),
            ("  merges taken back", self.merges_taken_back),
            ("regions asked about without a leader", self.asked_if_merged),
            ("  that had merged away", self.found_merged),
            ("snapshots applied", self.snapshots),
            ("peers destroyed", self.destroyed),
            ("stores joined", self.joined),
            ("stores removed", self.removed),
            ("peers unclean after a start", self.unclean),
            ("peers unclean by damage", self.damaged),
            ("damage without loss", self.damage_healed),
            ("stores stopped by plan", self.planned_stops),
            ("  that led nothing in the end", self.all_handed_over),
            ("sleeping regions seen", self.asleep),
            ("clocks found wrong, or right again", self.clocks_judged),
            ("devices found hanging", self.hangs),
            ("  leads given up for it", self.step_downs),
            ("checksums of peers' rows", self.checks),
            ("  that found all peers equal", self.checks_equal),
            ("peers quarantined", self.quarantined),
            ("  skips asked for", self.skips),
            ("  retries asked for", self.retries),
            ("  refills asked for", self.refills),
            ("histories checked", self.histories),
        ]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.counts() {
            writeln!(f, "{name:<36}{count:>14}")?;
        }
        writeln!(f, "{:<36}{:>14}", "regions that no store can lead", self.doomed)?;
        writeln!(f, "{:<36}{:>14.2}", "simulated hours", self.simulated_ns as f64 / 3.6e12)?;
        writeln!(f, "{:<36}{:>14}", "faults", self.faults.values().sum::<u64>())?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<34}{count:>14}")?;
        }
        writeln!(f, "{:<36}{:>14}", "violations", self.violations)
    }
}
