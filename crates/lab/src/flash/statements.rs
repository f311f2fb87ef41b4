//! The paper's statements, and whether they hold here. Each verdict follows from measured values.

use super::cases::{sync_sides, with_chunk, Case, Figure, Kind, CHUNKS};
use super::knobs::{knob, Base, Config, Knob, WritePath, KNOBS};
use super::loads::{ABSENT, READ_ONLY, REPLICATION, WRITE_ONLY};
use super::places::Place;
use super::rounds::Round;
use super::scale::Scale;
use super::summary::Summary;
use crate::measure::Spread;
use crate::scenario::Verdict;

/// The factor from which a load counts as faster, and its inverse as slower.
pub const NOTICEABLE: f64 = 1.03;
/// The paper's ratio of throughput in stop-start traffic: 50k to less than 10k.
const STOP_START: f64 = 5.0;
/// The paper's improvement of replication in total (212 to 18 minutes).
const TOTAL: f64 = 11.0;
/// The share of values in RAM above which random reads win, in percent on flash.
const CROSSING_ON_FLASH: u64 = 15;
/// The paper's times of a tuned replication: 18 minutes on SATA and 12:50 on NVMe.
const NVME: f64 = 1080.0 / 770.0;

pub fn times(spread: Spread) -> String {
    format!("{:.2} ({:.2} - {:.2})", spread.median, spread.least, spread.most)
}

fn paper() -> Config {
    Config::new(Base::Paper, WritePath::Puts)
}

/// Returns the verdicts on the statements about a figure that the good runs allow.
pub fn statements(figure: Figure, all: &[Round], scale: &Scale) -> Vec<Verdict> {
    let summary = Summary::of(all);
    let found: Vec<Option<Verdict>> = match figure {
        Figure::Table => {
            KNOBS.iter().flat_map(|knob| [replicates(&summary, knob), reads(&summary, knob)]).collect()
        }
        Figure::Total => vec![total(&summary), ours(&summary)],
        Figure::Two => vec![],
        Figure::Three => vec![stop_start(&summary)],
        Figure::Four => vec![steadier(&summary)],
        Figure::Five => vec![],
        Figure::Six => vec![chunks(&summary)],
        Figure::Seven => crossing(&summary),
        Figure::Nvme => nvme(&summary),
        Figure::Disk => vec![disk(&summary)],
        Figure::Filters => filters(&summary, scale),
        Figure::Sync => sync(&summary),
    };
    found.into_iter().flatten().collect()
}

/// Judges a knob's effect on replication, around the paper's baseline.
fn replicates(summary: &Summary<'_>, knob: &Knob) -> Option<Verdict> {
    let (initial, changed) = (paper().with(knob.initial), paper().with(knob.changed));
    let effect = summary.effect(Place::Sata, &initial, &changed, REPLICATION)?;
    let (claim, passed) = match (knob.paper, knob.name) {
        (Some(1.0), name) => {
            (format!("{name} changes nothing"), (1.0 / NOTICEABLE..=NOTICEABLE).contains(&effect.median))
        }
        (Some(_), name) => (
            format!("{name}: replication is faster (the paper: {})", knob.paper_text),
            effect.median >= NOTICEABLE,
        ),
        (None, "triggers 40/60") => {
            let middle = paper().with(super::knobs::knob("triggers 24/40")?.changed);
            let beside = summary.effect(Place::Sata, &middle, &changed, REPLICATION)?;
            ("triggers 40/60: replication is faster than with 24/40".to_owned(), beside.median > 1.0)
        }
        (None, _) => return None,
    };
    let case = Summary::loads(Place::Sata, &changed);
    let mut because = format!("{} times as fast", times(effect));
    if !passed {
        because += &format!(
            "; before: {}; after: {}",
            summary.bound(&Summary::loads(Place::Sata, &initial), REPLICATION),
            summary.bound(&case, REPLICATION)
        );
    }
    Some(Verdict::new(claim, passed, because))
}

/// Judges the harm that a knob does to reads, if the paper speaks of it.
fn reads(summary: &Summary<'_>, knob: &Knob) -> Option<Verdict> {
    if !["triggers 40/60", "bulk load", "blocks of 16k"].contains(&knob.name) {
        return None;
    }
    let (initial, changed) = (paper().with(knob.initial), paper().with(knob.changed));
    let effect = summary.effect(Place::Sata, &initial, &changed, READ_ONLY)?;
    Some(Verdict::new(
        format!("{}: reads become slower", knob.name),
        effect.median <= 1.0 / NOTICEABLE,
        format!("{} times as fast", times(effect)),
    ))
}

fn total(summary: &Summary<'_>) -> Option<Verdict> {
    let effect = summary.effect(Place::Sata, &paper(), &paper().tuned(), REPLICATION)?;
    let mut because = format!("{} times as fast", times(effect));
    let passed = effect.median >= TOTAL;
    if !passed {
        let of = |config: &Config| summary.bound(&Summary::loads(Place::Sata, config), REPLICATION);
        because += &format!("; untuned: {}; tuned: {}", of(&paper()), of(&paper().tuned()));
    }
    Some(Verdict::new("all adopted knobs: replication is 11 times as fast", passed, because))
}

fn ours(summary: &Summary<'_>) -> Option<Verdict> {
    let ours = Config::new(Base::Ours, WritePath::Ingest);
    let beside = |config: &Config| summary.effect(Place::Sata, &paper().tuned(), config, REPLICATION);
    let (effect, name) = [(beside(&ours)?, "as it is"), (beside(&ours.tuned())?, "with the paper's knobs")]
        .into_iter()
        .max_by(|a, b| a.0.median.total_cmp(&b.0.median))?;
    Some(Verdict::new(
        "our profile with sorted runs replicates at least as fast as the paper's tuned configuration",
        effect.median >= 1.0,
        format!("{} times as fast, {name}", times(effect)),
    ))
}

fn stop_start(summary: &Summary<'_>) -> Option<Verdict> {
    let case = Summary::loads(Place::Sata, &paper());
    let it = summary.steadiness(&case, WRITE_ONLY)?;
    let because = format!(
        "{:.0} to {:.0} operations a second in a tick, variation {:.0}%; {}",
        it.least,
        it.most,
        it.variation * 100.0,
        summary.bound(&case, WRITE_ONLY)
    );
    let claim = "triggers 12/20: throughput stops and starts (the most is 5 times the least)";
    Some(Verdict::new(claim, it.most >= STOP_START * it.least, because))
}

fn steadier(summary: &Summary<'_>) -> Option<Verdict> {
    let of = |config: &Config| summary.steadiness(&Summary::loads(Place::Sata, config), WRITE_ONLY);
    let (low, high) = (of(&paper())?, of(&paper().with(knob("triggers 24/40")?.changed))?);
    Some(Verdict::new(
        "triggers 24/40: throughput is steadier than with 12/20",
        high.variation < low.variation,
        format!("variation {:.0}% instead of {:.0}%", high.variation * 100.0, low.variation * 100.0),
    ))
}

fn chunks(summary: &Summary<'_>) -> Option<Verdict> {
    let seconds = |size: &str| {
        let case = Summary::loads(Place::Sata, &with_chunk(&paper(), size));
        Some(summary.phase(&case, REPLICATION, |phase| phase.seconds)?.median)
    };
    let all: Vec<(&str, f64)> = CHUNKS.iter().filter_map(|size| Some((*size, seconds(size)?))).collect();
    let (first, last) = (all.first()?.1, all.last()?.1);
    let listed: Vec<String> = all.iter().map(|(size, seconds)| format!("{size} {seconds:.2} s")).collect();
    Some(Verdict::new(
        "smaller chunks of the array: replication is faster (the paper: 68%)",
        last >= NOTICEABLE * first,
        format!("{}: {:.0}%", listed.join(", "), (last / first - 1.0) * 100.0),
    ))
}

fn crossing(summary: &Summary<'_>) -> Vec<Option<Verdict>> {
    let judge = |config: Config, name: &str| {
        let case = Case { place: Place::Sata, kind: Kind::Set, config };
        let ratio = |on_flash: u64| {
            let of = |round: &Round| {
                let read = round.set.iter().find(|read| read.on_flash == on_flash)?;
                Some(read.random_s / read.iterator_s)
            };
            Some((on_flash, summary.spread(&case, of)?.median))
        };
        let all: Vec<(u64, f64)> = super::child::ON_FLASH.into_iter().filter_map(ratio).collect();
        if all.is_empty() {
            return None;
        }
        let below = all.iter().filter(|(at, _)| *at < CROSSING_ON_FLASH).all(|(_, ratio)| *ratio <= 1.0);
        let above = all.iter().filter(|(at, _)| *at > CROSSING_ON_FLASH).all(|(_, ratio)| *ratio >= 1.0);
        let listed: Vec<String> = all.iter().map(|(at, ratio)| format!("{ratio:.2} at {at}%")).collect();
        Some(Verdict::new(
            format!("{name}: reading in order wins unless more than 85% of the values are in RAM"),
            below && above,
            format!("random reads take, of the iterator's time, by values on flash: {}", listed.join(", ")),
        ))
    };
    vec![judge(paper(), "baseline"), judge(paper().tuned(), "tuned")]
}

fn nvme(summary: &Summary<'_>) -> Vec<Option<Verdict>> {
    let of = |name: &str, text: &str| {
        let changed = paper().with(knob(name)?.changed);
        let effect = summary.effect(Place::Nvme, &paper(), &changed, REPLICATION)?;
        let mut because = format!("{} times as fast", times(effect));
        let passed = effect.median >= NOTICEABLE;
        if !passed {
            let case = Summary::loads(Place::Nvme, &paper());
            because += &format!("; the baseline: {}", summary.bound(&case, REPLICATION));
        }
        Some(Verdict::new(
            format!("NVMe, {name}: replication is faster (the paper: {text})"),
            passed,
            because,
        ))
    };
    let tuned = paper().tuned();
    let [sata, nvme] = [Place::Sata, Place::Nvme].map(|place| Summary::loads(place, &tuned));
    let faster = summary.ratio(&sata, &nvme, |round| Some(round.measured.phases.get(REPLICATION)?.seconds));
    let beside = faster.map(|ratio| {
        let because = format!("{} times as fast; the paper {NVME:.2}", times(ratio));
        Verdict::new("tuned, NVMe replicates faster than SATA", ratio.median >= NOTICEABLE, because)
    });
    vec![of("triggers 24/40", "15%"), of("RAID chunk 16k", "41%"), beside]
}

fn disk(summary: &Summary<'_>) -> Option<Verdict> {
    let tuned = with_chunk(&paper().tuned(), "512KiB");
    let effect = summary.effect(Place::Disk, &paper(), &tuned, REPLICATION)?;
    let claim = "on the real disk, all adopted knobs: replication is faster";
    Some(Verdict::new(claim, effect.median >= NOTICEABLE, format!("{} times as fast", times(effect))))
}

fn filters(summary: &Summary<'_>, scale: &Scale) -> Vec<Option<Verdict>> {
    let side = |on: bool| -> Option<[f64; 2]> {
        let filters = knob("filters for hits")?;
        let config = paper().with(if on { filters.changed } else { filters.initial });
        let case = Case { place: Place::Sata, kind: Kind::Filters, config };
        let ram = summary
            .spread(&case, |round| Some(round.measured.table_reader_bytes as f64 / scale.rows as f64))?;
        let read = |phase: &super::loads::Phase| phase.work.read as f64 / phase.operations as f64;
        Some([ram.median, summary.phase(&case, ABSENT, read)?.median])
    };
    let (Some(kept), Some(dropped)) = (side(false), side(true)) else { return Vec::new() };
    vec![
        Some(Verdict::new(
            "filters for hits: less RAM for indexes and filters",
            dropped[0] < kept[0],
            format!("{:.2} bytes a key instead of {:.2}", dropped[0], kept[0]),
        )),
        Some(Verdict::new(
            "filters for hits: a look-up of an absent key reads from flash",
            dropped[1] > 1024.0 && dropped[1] > 4.0 * kept[1],
            format!("{:.0} bytes a look-up instead of {:.0}", dropped[1], kept[1]),
        )),
    ]
}

fn sync(summary: &Summary<'_>) -> Vec<Option<Verdict>> {
    let calls: Vec<(bool, bool, f64, f64)> = sync_sides()
        .into_iter()
        .filter_map(|(direct, syncs, config)| {
            let case = Case { place: Place::Sata, kind: Kind::Write, config };
            // RocksDB also calls it once for no bytes, to learn whether the file system has it.
            let bytes = summary.phase(&case, WRITE_ONLY, |phase| phase.work.range_sync_bytes as f64)?;
            let seconds = summary.phase(&case, WRITE_ONLY, |phase| phase.seconds)?;
            Some((direct, syncs, bytes.median, seconds.median))
        })
        .collect();
    if calls.len() < 4 {
        return Vec::new();
    }
    let listed: Vec<String> = calls
        .iter()
        .map(|(direct, syncs, calls, seconds)| {
            format!(
                "{} I/O, bytes_per_sync {}: calls for {} in {seconds:.2} s",
                if *direct { "direct" } else { "buffered" },
                if *syncs { "2 MB" } else { "0" },
                client::table::bytes(*calls)
            )
        })
        .collect();
    let direct = calls.iter().filter(|(direct, ..)| *direct).all(|(_, _, calls, _)| *calls == 0.0);
    let buffered = calls.iter().any(|(direct, syncs, calls, _)| !direct && *syncs && *calls > 0.0);
    vec![Some(Verdict::new(
        "bytes_per_sync has no effect because the OS buffer is off: with direct I/O RocksDB calls \
         sync_file_range for no byte",
        direct && buffered,
        listed.join("; "),
    ))]
}

#[cfg(test)]
mod tests {
    use super::super::loads::Phase;
    use super::super::places::Work;
    use super::super::rounds::tests::{case, run};
    use super::*;

    fn judged(figure: Figure, all: &[Round]) -> Vec<(String, bool)> {
        let scale = Scale::named("quick").unwrap();
        statements(figure, all, &scale).into_iter().map(|it| (it.claim, it.passed)).collect()
    }

    #[test]
    fn a_knob_is_judged_by_its_sign() {
        let of = |seconds: f64, read_s: f64| {
            let bulk = paper().with(knob("bulk load").unwrap().changed);
            let all = [run(case(paper()), 1, 10.0, 1.0), run(case(bulk), 1, seconds, read_s)];
            judged(Figure::Table, &all).iter().map(|(_, passed)| *passed).collect::<Vec<_>>()
        };
        assert_eq!(of(2.0, 5.0), [true, true], "faster, and reads are slower");
        assert_eq!(of(11.0, 0.5), [false, false]);
    }

    #[test]
    fn what_the_paper_found_to_have_no_effect_must_have_none() {
        let sync = paper().with(knob("bytes_per_sync 2 MB").unwrap().changed);
        let of = |seconds| {
            let all = [run(case(paper()), 1, 10.0, 1.0), run(case(sync.clone()), 1, seconds, 1.0)];
            judged(Figure::Table, &all)
        };
        assert_eq!(of(10.1), [("bytes_per_sync 2 MB changes nothing".to_owned(), true)]);
        assert!(!of(8.0)[0].1 && !of(12.0)[0].1);
    }

    #[test]
    fn the_riddle_is_answered_by_calls() {
        let of = |calls: [u64; 4]| {
            let all: Vec<Round> = sync_sides()
                .into_iter()
                .zip(calls)
                .map(|((_, _, config), range_sync_bytes)| {
                    let case = Case { place: Place::Sata, kind: Kind::Write, config };
                    let mut round = run(case, 1, 1.0, 1.0);
                    let work = Work { range_sync_bytes, ..Work::default() };
                    let phase = Phase { work, seconds: 1.0, ..Phase::default() };
                    round.measured.phases.insert(WRITE_ONLY.to_owned(), phase);
                    round
                })
                .collect();
            judged(Figure::Sync, &all)[0].1
        };
        assert!(of([0, 0, 0, 50]));
        assert!(!of([0, 3, 0, 50]), "calls with direct I/O");
        assert!(!of([0, 0, 0, 0]), "no calls at all would show nothing");
    }

    #[test]
    fn the_crossing_must_be_where_the_paper_has_it() {
        let of = |random_s: [f64; 6]| {
            let case = Case { place: Place::Sata, kind: Kind::Set, config: paper() };
            let mut round = run(case, 1, 1.0, 1.0);
            round.set = super::super::child::ON_FLASH
                .into_iter()
                .zip(random_s)
                .map(|(on_flash, random_s)| super::super::replica::SetRead {
                    on_flash,
                    iterator_s: 1.0,
                    random_s,
                })
                .collect();
            judged(Figure::Seven, &[round])[0].1
        };
        assert!(of([0.5, 1.0, 1.5, 2.0, 3.0, 4.0]));
        assert!(!of([0.1, 0.2, 0.4, 0.6, 0.8, 1.0]), "random reads win almost always");
    }
}
