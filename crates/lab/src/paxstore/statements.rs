//! The paper's statements, and whether they hold here. Each verdict follows from measured values,
//! and so does the reason if a statement does not hold.

use super::figures::{size, Figure, Metric};
use super::rounds::{Round, Setup};
use super::summary::{Panel, Summary};
use crate::scenario::Verdict;
use client::table::{bytes, count, micros};

/// The ratio from which one side counts as much slower. The paper's figure has no numbers.
const MUCH: f64 = 1.5;
/// Protocol overhead (§5.2): three copies may take 20% longer than one.
const OVERHEAD_MAX: f64 = 1.2;
/// The ratio to ZooKeeper's throughput from 2,000 bytes on (§5.3), and the part of the limit to
/// reach where the limit does not reach that ratio.
const TIMES_ZOOKEEPER: f64 = 5.0;
const PART_OF_LIMIT: f64 = 0.6;
const LARGE_BYTES: u64 = 2000;
/// Minimum part of a linear growth that counts as linear.
const LINEAR: f64 = 0.8;
/// Share of the machine's CPUs from which they are the bound.
const BUSY: f64 = 0.85;
/// The paper's recovery times in seconds, by record size (§5.5), and the time to reach here.
const RECOVERY_S: [(u64, f64); 2] = [(512, 8.0), (8192, 15.0)];
const RECOVERY_AIM_S: f64 = 2.0;
/// The paper's time to read a record of 512 bytes, in microseconds (§5.6).
const READ_US: f64 = 150.0;
/// The ratio up to which two read latencies are basically the same.
const SAME: f64 = 1.2;
/// The paper's bound of a leader election (§5.5).
const FAILOVER_US: f64 = 3e6;

/// Returns the verdicts on all statements about a figure that its good rounds allow.
pub fn statements(figure: Figure, all: &[Round], setup: &Setup) -> Vec<Verdict> {
    let summary = Summary::of(figure, all);
    let panels = summary.panels();
    let judge = |panel: &Panel| -> Vec<Option<Verdict>> {
        match figure {
            Figure::Log => vec![log_grows(&summary, panel), log_overwrite(&summary, panel)],
            Figure::Overhead => vec![overhead(&summary, panel, setup)],
            Figure::Ensemble => ensemble(&summary, panel, setup),
            Figure::Ranges => vec![linear(&summary, panel, setup)],
            Figure::Recovery => recovery(&summary, panel, setup),
            Figure::Reads => {
                vec![read_time(&summary, panel), read_grows(&summary, panel), read_engine(&summary, panel)]
            }
            Figure::Failover => vec![failover(&summary, panel)],
        }
    };
    panels.iter().flat_map(judge).flatten().collect()
}

fn name((place, load): &Panel) -> String {
    format!("{place}, {load}")
}

/// Returns the ends of the axis. `None` if it has only one value.
fn ends(summary: &Summary<'_>, panel: &Panel) -> Option<(u64, u64)> {
    let axis = summary.axis(panel);
    let (first, last) = (*axis.first()?, *axis.last()?);
    (first < last).then_some((first, last))
}

/// Returns the ratios of two series' mean latencies at each size that has both.
fn ratios(summary: &Summary<'_>, panel: &Panel, over: &str, under: &str) -> Vec<(u64, f64)> {
    let ratio = |at| Some((at, summary.ratio(panel, over, under, at, Metric::Mean)?));
    summary.axis(panel).into_iter().filter_map(ratio).collect()
}

fn listed(ratios: &[(u64, f64)]) -> String {
    let texts: Vec<String> =
        ratios.iter().map(|(at, ratio)| format!("{ratio:.2} at {}", size(*at))).collect();
    texts.join(", ")
}

fn grows(summary: &Summary<'_>, panel: &Panel, series: &str, what: &str) -> Option<Verdict> {
    let (small, large) = ends(summary, panel)?;
    let of = |at| summary.spread(panel, series, at, Metric::Mean);
    let (first, last) = (of(small)?, of(large)?);
    let mut because =
        format!("{} at {}, {} at {}", micros(first.median), size(small), micros(last.median), size(large));
    let passed = last.median > first.median;
    if !passed {
        let of_rounds = (first.most - first.least).max(last.most - last.least);
        let of_sizes = first.median - last.median;
        because += &match of_rounds > of_sizes {
            true => format!("; rounds of one size differ by {}, more than the sizes do", micros(of_rounds)),
            false => format!("; the size matters less than {} of other causes", micros(of_sizes)),
        };
    }
    Some(Verdict::new(format!("{}: {what} grows with the size", name(panel)), passed, because))
}

fn log_grows(summary: &Summary<'_>, panel: &Panel) -> Option<Verdict> {
    grows(summary, panel, "overwrite", "write latency")
}

fn log_overwrite(summary: &Summary<'_>, panel: &Panel) -> Option<Verdict> {
    let ratios = ratios(summary, panel, "append", "overwrite");
    let least = ratios.iter().map(|(_, ratio)| *ratio).reduce(f64::min)?;
    let mut because = format!("append takes {} times as long as overwrite", listed(&ratios));
    let passed = least >= MUCH;
    if !passed {
        let (at, _) = *ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let of = |series| {
            Some((
                summary.median(panel, series, at, Metric::Mean)?,
                summary.median(panel, series, at, Metric::Sync)?,
            ))
        };
        if let (Some((over, over_sync)), Some((append, append_sync))) = (of("overwrite"), of("append")) {
            because += &format!(
                "; at {} a sync takes {} of the {} of an overwrite and {} of the {} of an append: a sync \
                 that also commits the file's new length takes {:.2} times as long on this device",
                size(at),
                micros(over_sync),
                micros(over),
                micros(append_sync),
                micros(append),
                append_sync / over_sync.max(f64::MIN_POSITIVE)
            );
        }
    }
    let claim = format!("{}: overwriting is much faster than appending (at least {MUCH} times)", name(panel));
    Some(Verdict::new(claim, passed, because))
}

fn overhead(summary: &Summary<'_>, panel: &Panel, setup: &Setup) -> Option<Verdict> {
    let ratios = ratios(summary, panel, "3 copies", "1 copy");
    let (at, worst) = ratios.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut because = format!("three copies over one: {}", listed(&ratios));
    let passed = worst <= OVERHEAD_MAX;
    if !passed {
        let of = |series, metric| summary.median(panel, series, at, metric);
        let (one, three) = (of("1 copy", Metric::Mean)?, of("3 copies", Metric::Mean)?);
        because += &format!(
            "; at {} the way to two followers and back adds {} to {}",
            size(at),
            micros(three - one),
            micros(one)
        );
        if let (Some(one), Some(three)) = (of("1 copy", Metric::OwnCores), of("3 copies", Metric::OwnCores)) {
            because +=
                &format!("; with one copy, store and clients use {one:.2} CPUs, with three {three:.2}");
        }
        if let Some(cores) = of("3 copies", Metric::Cores).filter(|cores| cores / setup.cpus as f64 >= BUSY) {
            because += &format!(
                "; {cores:.2} of the machine's {} CPUs are busy, so the CPUs are the bound",
                setup.cpus
            );
        }
        let syncs = of("1 copy", Metric::Sync).zip(of("3 copies", Metric::Sync));
        if let Some((alone, shared)) = syncs.filter(|(alone, shared)| shared > alone) {
            because += &format!(
                "; a sync of the disk takes {} alone and {} while two others sync: the three stores share it",
                micros(alone),
                micros(shared)
            );
        }
    }
    let claim = format!(
        "{}: three copies take at most {:.0}% longer than one",
        name(panel),
        100.0 * (OVERHEAD_MAX - 1.0)
    );
    Some(Verdict::new(claim, passed, because))
}

/// The two sides of figure 5.3 that are ZooKeeper's. The faster one counts.
const ZOOKEEPER: [&str; 2] = ["ZooKeeper setData", "ZooKeeper create"];

fn ensemble(summary: &Summary<'_>, panel: &Panel, setup: &Setup) -> Vec<Option<Verdict>> {
    let rate = |series: &str, at| summary.median(panel, series, at, Metric::Rate);
    let judge = |at: u64| -> Option<[Verdict; 2]> {
        let ours = rate("Steelyard", at)?;
        let theirs = ZOOKEEPER.iter().filter_map(|series| rate(series, at)).reduce(f64::max)?;
        let times = ours / theirs;
        let limit = rate("limit", at).map(|limit| (limit / theirs, ours / limit));
        let mut because =
            format!("{times:.2} times: {} and {} writes per second", count(ours), count(theirs));
        if let Some((limit_times, part)) = limit {
            because += &format!("; the limit reaches {limit_times:.2} times, ours {part:.2} of the limit");
            let cores = |series| summary.median(panel, series, at, Metric::OwnCores);
            if times < TIMES_ZOOKEEPER && limit_times < TIMES_ZOOKEEPER {
                because += ": not even the limit is so much faster here";
            } else if let (true, Some(ours), Some(limit)) =
                (times < TIMES_ZOOKEEPER, cores("Steelyard"), cores("limit"))
            {
                because += &format!(
                    "; of {} CPUs ours uses {ours:.2} with its clients, the limit {limit:.2}: a write costs us \
                     {:.0} us of CPU time, and the limit {:.0} us",
                    setup.cpus,
                    ours * 1e6 / (times * theirs),
                    limit * 1e6 / (limit_times * theirs)
                );
            }
        }
        let at_limit =
            limit.is_some_and(|(limit_times, part)| limit_times < TIMES_ZOOKEEPER && part >= PART_OF_LIMIT);
        let aim = times >= TIMES_ZOOKEEPER || at_limit;
        let claim = format!("{}: {TIMES_ZOOKEEPER} times as fast as ZooKeeper", size(at));
        let wanted = format!(
            "{}: our aim, {TIMES_ZOOKEEPER} times or, if the limit does not reach that, {PART_OF_LIMIT} of it",
            size(at)
        );
        Some([
            Verdict::new(claim, times >= TIMES_ZOOKEEPER, because.clone()),
            Verdict::new(wanted, aim, because),
        ])
    };
    let large = summary.axis(panel).into_iter().filter(|at| *at >= LARGE_BYTES);
    large.filter_map(judge).flatten().map(Some).collect()
}

fn linear(summary: &Summary<'_>, panel: &Panel, setup: &Setup) -> Option<Verdict> {
    let series = summary.series(panel).into_iter().next()?;
    let of = |at, metric| summary.median(panel, &series, at, metric);
    let axis = summary.axis(panel);
    let first = *axis.first()?;
    let base = of(first, Metric::Rate)? / first as f64;
    let mut rows = Vec::new();
    let (mut linear, mut lost, mut bound) = (0, false, None);
    for at in axis.iter().copied().filter(|at| *at > first) {
        let times = of(at, Metric::Rate)? / base;
        let busy = of(at, Metric::Cores).map_or(0.0, |cores| cores / setup.cpus as f64);
        let own = of(at, Metric::OwnCores)
            .map_or_else(String::new, |own| format!(", {own:.2} CPUs by stores and clients"));
        rows.push(format!("{times:.2} times with {at} ranges (CPUs {:.0}% busy{own})", 100.0 * busy));
        if times / at as f64 >= LINEAR {
            linear += 1;
        } else if busy >= BUSY {
            bound = bound.or(Some(at));
        } else {
            lost = true;
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut because = rows.join("; ");
    if let Some(at) = bound {
        because += &format!("; from {at} ranges on the CPUs are the bound and not the devices");
    }
    let passed = linear > 0 && !lost;
    let claim = format!(
        "{}: throughput grows linearly with the ranges (at least {LINEAR} of it), until the CPUs are the bound",
        name(panel)
    );
    Some(Verdict::new(claim, passed, because))
}

fn recovery(summary: &Summary<'_>, panel: &Panel, setup: &Setup) -> Vec<Option<Verdict>> {
    let records = setup.scale.recovered;
    let judge = |series: &str, at: u64| -> Option<Vec<Verdict>> {
        let took = summary.spread(panel, series, at, Metric::Time)?;
        let seconds = took.most / 1e6;
        let mut because = format!(
            "{seconds:.2} s at most, {:.2} s in the median: {} records, {:.1} MB/s",
            took.median / 1e6,
            count(records as f64),
            (records * at) as f64 / took.median.max(1.0)
        );
        let least = summary.axis(panel).first().copied().filter(|least| *least < at);
        let shortest =
            least.and_then(|least| Some((least, summary.median(panel, series, least, Metric::Time)?)));
        if let (Some((least, shortest)), true) = (shortest, seconds >= RECOVERY_AIM_S) {
            because += &format!(
                "; as many records of {} take {:.2} s, so {} more bytes take {:.2} s",
                size(least),
                shortest / 1e6,
                bytes((records * (at - least)) as f64),
                (took.median - shortest) / 1e6
            );
        }
        let what = format!("{}, by {series}, {}", panel.0, size(at));
        let mut all = Vec::new();
        if let Some((_, paper_s)) = RECOVERY_S.iter().find(|(bytes, _)| *bytes == at) {
            let claim = format!("{what}: recovered in {paper_s} s");
            all.push(Verdict::new(claim, seconds <= *paper_s, because.clone()));
        }
        let claim = format!("{what}: our aim, {RECOVERY_AIM_S} s");
        all.push(Verdict::new(claim, seconds < RECOVERY_AIM_S, because));
        Some(all)
    };
    let axis = summary.axis(panel);
    let each =
        |series: String| axis.iter().filter_map(|at| judge(&series, *at)).flatten().collect::<Vec<_>>();
    summary.series(panel).into_iter().flat_map(each).map(Some).collect()
}

const OURS: &str = "Steelyard";
const REDIS: &str = "Redis";
const ENGINE: &str = "RocksDB alone";

fn read_time(summary: &Summary<'_>, panel: &Panel) -> Option<Verdict> {
    const AT: u64 = 512;
    let took = summary.median(panel, OURS, AT, Metric::Mean)?;
    let mut because = micros(took);
    if let Some(redis) = summary.median(panel, REDIS, AT, Metric::Mean) {
        because += &format!("; Redis takes {}", micros(redis));
    }
    Some(Verdict::new(
        format!("{}: a read takes at most {} at {}", name(panel), micros(READ_US), size(AT)),
        took <= READ_US,
        because,
    ))
}

fn read_grows(summary: &Summary<'_>, panel: &Panel) -> Option<Verdict> {
    grows(summary, panel, OURS, "read latency")
}

fn read_engine(summary: &Summary<'_>, panel: &Panel) -> Option<Verdict> {
    let ratios = ratios(summary, panel, OURS, ENGINE);
    let (at, worst) = ratios.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let of = |series| summary.median(panel, series, at, Metric::Mean);
    let (ours, engine) = (of(OURS)?, of(ENGINE)?);
    let mut because = format!("over the engine alone: {}", listed(&ratios));
    let passed = worst <= SAME;
    if !passed {
        because += &format!(
            "; at {} the engine alone takes {}, so {} of our {} are the way over loopback and the server",
            size(at),
            micros(engine),
            micros(ours - engine),
            micros(ours)
        );
        if let Some(redis) = of(REDIS) {
            because += &format!(
                "; Redis, which reads from RAM, takes {} for the same way, and ours is {:.2} times that",
                micros(redis),
                ours / redis
            );
        }
    }
    Some(Verdict::new(format!("{}: reads are as fast as the engine's alone", name(panel)), passed, because))
}

fn failover(summary: &Summary<'_>, panel: &Panel) -> Option<Verdict> {
    let at = *summary.axis(panel).first()?;
    let series = summary.series(panel).into_iter().next()?;
    let longest = summary.spread(panel, &series, at, Metric::Longest)?;
    let middle = summary.median(panel, &series, at, Metric::Median)?;
    let because =
        format!("{} in the median, {} at most, of {at} a round", micros(middle), micros(longest.most));
    let claim = format!("{}: service is back in less than {}", panel.1, micros(FAILOVER_US));
    Some(Verdict::new(claim, longest.most < FAILOVER_US, because))
}

#[cfg(test)]
mod tests {
    use super::super::rounds::tests::{round, sample, setup};
    use super::super::rounds::Sample;
    use super::*;

    fn judged(figure: Figure, samples: Vec<Sample>) -> Vec<(bool, String)> {
        let rounds = [round(figure, 1, 1000.0, samples)];
        let of = |verdict: Verdict| (verdict.passed, verdict.because);
        statements(figure, &rounds, &setup()).into_iter().map(of).collect()
    }

    #[test]
    fn appends_must_be_much_slower_at_every_size() {
        let with = |append_us: f64| {
            let of = |series, at, us| Sample {
                sync_us: Some(us - 50.0),
                ..sample("disk", "1 writer", series, at, us)
            };
            judged(
                Figure::Log,
                vec![
                    of("overwrite", 512, 1000.0),
                    of("append", 512, append_us),
                    of("overwrite", 8192, 1100.0),
                    of("append", 8192, 2200.0),
                ],
            )
        };
        assert!(with(1600.0).iter().all(|(passed, _)| *passed));
        let (passed, because) = with(1100.0).remove(1);
        assert!(
            !passed
                && because.contains("1.10 at 512 B, 2.00 at 8 KiB")
                && because.contains("1.11 times as long"),
            "{because}"
        );
    }

    #[test]
    fn an_overhead_above_a_fifth_is_explained() {
        let of = |series, us, cores| Sample {
            cores: Some(cores),
            ..sample("disk", "1 client, fsync no", series, 512, us)
        };
        let with =
            |us| judged(Figure::Overhead, vec![of("1 copy", 100.0, 0.5), of("3 copies", us, 1.9)]).remove(0);
        assert!(with(119.0).0);
        let (passed, because) = with(150.0);
        assert!(
            !passed
                && because.contains("adds 50 us to 100 us")
                && because.contains("1.90 of the machine's 2 CPUs"),
            "{because}"
        );
    }

    #[test]
    fn the_limit_decides_where_it_does_not_reach_five_times() {
        let at = |ours: f64, limit: f64| {
            let of = |series, rate: f64| sample("disk", "50 clients", series, 2048, 1e6 / rate);
            judged(
                Figure::Ensemble,
                vec![
                    of("Steelyard", ours),
                    of("limit", limit),
                    of("ZooKeeper setData", 900.0),
                    of("ZooKeeper create", 1000.0),
                ],
            )
            .into_iter()
            .map(|(passed, _)| passed)
            .collect::<Vec<_>>()
        };
        assert_eq!(at(5100.0, 9000.0), [true, true]);
        assert_eq!(at(2500.0, 4000.0), [false, true]);
        assert_eq!(at(2000.0, 4000.0), [false, false]);
        assert_eq!(at(4000.0, 6000.0), [false, false], "the limit reaches five times");
    }

    #[test]
    fn growth_counts_until_the_cpus_are_the_bound() {
        let with = |at_two: f64| {
            let of = |at, rate: f64, cores| Sample {
                cores: Some(cores),
                ..sample("slow", "512 B", "3 copies", at, 1e6 / rate)
            };
            judged(Figure::Ranges, vec![of(1, 100.0, 0.2), of(2, at_two, 0.4), of(4, 250.0, 1.8)]).remove(0)
        };
        assert!(with(190.0).0 && with(190.0).1.contains("from 4 ranges on the CPUs"));
        assert!(!with(150.0).0, "the CPUs were idle");
        let alone = [sample("slow", "512 B", "3 copies", 1, 10.0)];
        assert!(judged(Figure::Ranges, alone.to_vec()).is_empty(), "one number of ranges is no growth");
    }

    #[test]
    fn recovery_and_failover_have_bounds_in_seconds() {
        let of = |us| judged(Figure::Recovery, vec![sample("disk", "3 stores", "log", 512, us)]);
        let passed = |us| of(us).iter().map(|(passed, _)| *passed).collect::<Vec<_>>();
        assert_eq!(passed(1.5e6), [true, true]);
        assert_eq!(passed(3e6), [true, false]);
        assert_eq!(passed(9e6), [false, false]);
        let of = |us| {
            judged(Figure::Failover, vec![sample("disk", "election raft", "3 stores", 3, us)]).remove(0).0
        };
        assert!(of(1.4e6) && !of(1.6e6), "the longest time counts, which is twice the mean here");
    }

    #[test]
    fn reads_are_compared_with_the_engine_and_the_paper() {
        let of = |series, at, us| sample("disk", "1 client", series, at, us);
        let all = judged(
            Figure::Reads,
            vec![
                of(OURS, 512, 60.0),
                of(REDIS, 512, 50.0),
                of(ENGINE, 512, 4.0),
                of(OURS, 8192, 70.0),
                of(ENGINE, 8192, 6.0),
            ],
        );
        assert_eq!(all.iter().map(|(passed, _)| *passed).collect::<Vec<_>>(), [true, true, false]);
        assert!(
            all[2].1.contains("56 us of our 60 us") && all[2].1.contains("1.20 times that"),
            "{}",
            all[2].1
        );
    }
}
