//! The thread that freezes runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rocks::freeze::{Freezer, Row, Step};

use types::Draw;

use super::{row, thread_cpu, Load, Now, Variant, STEPS};
use client::process::ThreadPriority;

#[derive(Default)]
pub(super) struct Writer {
    pub(super) rows: u64,
    pub(super) freezes: u64,
    /// Wall time by step, in the order of [`STEPS`].
    pub(super) in_step: [Duration; STEPS.len()],
    /// CPU time spent on making the runs. A RAM tier has its rows at hand.
    pub(super) making: Duration,
    pub(super) level0_files_max: u64,
}

/// Freezes runs of random keys until the time is over. `hidden` marks the keys of the current run.
pub(super) fn write(
    freezer: &Freezer,
    variant: &Variant,
    load: Load,
    hidden: &[AtomicBool],
    now: &Now,
) -> anyhow::Result<Writer> {
    let mut writer = Writer::default();
    let mut draw = Draw::new(1);
    let mut priority = if variant.low_priority { ThreadPriority::changeable() } else { None };
    let started = Instant::now();
    let mut step_since = started;
    while started.elapsed().as_secs() < load.seconds {
        let before = thread_cpu()?;
        let mut keys: Vec<u64> = (0..load.rows).map(|_| draw.below(load.keys)).collect();
        keys.sort_unstable();
        keys.dedup();
        let run: Vec<Row> = keys.iter().map(|key| row(*key, load.value_bytes)).collect();
        writer.making += thread_cpu()? - before;

        keys.iter().for_each(|key| hidden[*key as usize].store(true, Ordering::Release));
        let mut enter = |step: Option<Step>| {
            writer.in_step[now.get()] += step_since.elapsed();
            step_since = Instant::now();
            now.set(step);
            // An ingest holds RocksDB's mutex, so it must not run at low priority.
            if let Some(priority) = &mut priority {
                priority.set_low(step == Some(Step::Writes));
            }
        };
        let frozen = freezer.freeze(&run, &mut |step| enter(Some(step)));
        enter(None);
        frozen?;
        keys.iter().for_each(|key| hidden[*key as usize].store(false, Ordering::Release));

        writer.rows += run.len() as u64;
        writer.freezes += 1;
        writer.level0_files_max = writer.level0_files_max.max(freezer.level0_files()?);
        if let Some(rate) = load.rows_per_second {
            let due = Duration::from_secs_f64(writer.rows as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
    }
    writer.in_step[0] += step_since.elapsed();
    Ok(writer)
}
