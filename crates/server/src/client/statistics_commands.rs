//! `SLOWLOG` and `LATENCY`, and the sections of `INFO` about commands.

use std::fmt::Write as _;

use bytes::Bytes;
use command::{LatencyCommand, SlowLogCommand};
use resp::Reply;

use crate::clock;
use crate::slow_moments::{Moments, COMMAND, FAST_COMMAND, LOG_SYNC};
use crate::statistics::commands::{cumulative, OfCommand};
use crate::statistics::slow_log::SlowCommand;
use crate::store::Store;

/// Number of entries that `SLOWLOG GET` returns without a number.
const NEWEST: usize = 10;

pub fn slow_log(store: &Store, command: SlowLogCommand, args: &[Bytes]) -> Reply {
    let log = &store.statistics.slow_log;
    match command {
        SlowLogCommand::Len => Reply::Int(log.len() as i64),
        SlowLogCommand::Reset => {
            log.reset();
            Reply::OK
        }
        SlowLogCommand::Get => {
            let count = match &args[2..] {
                [] => NEWEST,
                [count] => match resp::parse_integer(count) {
                    Some(-1) => usize::MAX,
                    Some(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
                    _ => return Reply::error("ERR count should be greater than or equal to -1"),
                },
                _ => return command::wrong_subcommand(args),
            };
            Reply::Array(log.newest(count).into_iter().map(shown).collect())
        }
    }
}

fn shown(command: SlowCommand) -> Reply {
    let SlowCommand { id, time, took, args, peer, name } = command;
    Reply::Array(vec![
        Reply::Int(id as i64),
        Reply::Int(time as i64),
        Reply::Int(took.as_micros() as i64),
        Reply::Array(args.into_iter().map(Reply::Bulk).collect()),
        Reply::bulk(peer),
        Reply::Bulk(name),
    ])
}

pub fn latency(store: &Store, command: LatencyCommand, args: &[Bytes]) -> Reply {
    let latency = &store.statistics.latency;
    match command {
        LatencyCommand::Latest => {
            let latest = |(event, of): (&'static str, Moments)| {
                let (time, ms) = of.history.back().copied().unwrap_or_default();
                let numbers = [time, ms, of.longest].map(|number| Reply::Int(number as i64));
                Reply::Array(std::iter::once(Reply::bulk(event)).chain(numbers).collect())
            };
            Reply::Array(latency.all().into_iter().map(latest).collect())
        }
        LatencyCommand::History => {
            let moment =
                |(time, ms): (u64, u64)| Reply::Array(vec![Reply::Int(time as i64), Reply::Int(ms as i64)]);
            let history = of_event(store, &args[2]).map(|of| of.history).unwrap_or_default();
            Reply::Array(history.into_iter().map(moment).collect())
        }
        LatencyCommand::Reset => {
            let names: Vec<_> = args[2..].iter().map(|name| String::from_utf8_lossy(name)).collect();
            let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
            Reply::Int(latency.reset(&names) as i64)
        }
        LatencyCommand::Doctor => Reply::Verbatim("txt", doctor(store).into()),
        LatencyCommand::Graph => match of_event(store, &args[2]) {
            Some(of) => Reply::Verbatim("txt", graph(&String::from_utf8_lossy(&args[2]), &of).into()),
            None => {
                let event = String::from_utf8_lossy(&args[2]);
                Reply::error(format!("ERR No samples available for event '{event}'"))
            }
        },
        LatencyCommand::Histogram => histogram(store, &args[2..]),
    }
}

fn of_event(store: &Store, event: &[u8]) -> Option<Moments> {
    let all = store.statistics.latency.all();
    all.into_iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(event)).map(|(_, of)| of)
}

/// Returns the histograms of the commands with these names, or of all.
fn histogram(store: &Store, names: &[Bytes]) -> Reply {
    let all = store.statistics.commands.all();
    let is_named = |name: &str| {
        let container = name.split('|').next().unwrap_or_default();
        let equals = |given: &Bytes| {
            given.eq_ignore_ascii_case(name.as_bytes()) || given.eq_ignore_ascii_case(container.as_bytes())
        };
        names.is_empty() || names.iter().any(equals)
    };
    let rows = all.into_iter().filter(|(name, _)| is_named(name)).filter_map(|(name, of)| {
        let times = of.times?;
        let buckets = cumulative(&times).into_iter();
        let buckets = buckets.map(|(micros, count)| (Reply::Int(micros as i64), Reply::Int(count as i64)));
        let histogram = vec![
            (Reply::bulk("calls"), Reply::Int(times.len() as i64)),
            (Reply::bulk("histogram_usec"), Reply::Map(buckets.collect())),
        ];
        Some((Reply::bulk(name), Reply::Map(histogram)))
    });
    Reply::Map(rows.collect())
}

/// Returns a report on the slow moments, with advice.
fn doctor(store: &Store) -> String {
    let Some(limit) = store.statistics.latency.limit() else {
        return "Slow moments are not recorded. CONFIG SET latency-monitor-threshold MILLISECONDS begins it."
            .into();
    };
    let all = store.statistics.latency.all();
    if all.is_empty() {
        return format!("Nothing took {} ms or longer since the record began.", limit.as_millis());
    }
    let mut report = String::new();
    for (event, of) in all {
        let count = of.history.len() as u64;
        let mean = of.history.iter().map(|(_, ms)| ms).sum::<u64>() / count.max(1);
        let _ = write!(
            report,
            "{event}: {count} seconds with slow moments, mean {mean} ms, longest {} ms.\n  {}\n",
            of.longest,
            match event {
                COMMAND => "SLOWLOG GET shows the commands. Those that visit many elements take long, and so do all commands while the log's device is slow.",
                FAST_COMMAND => "These commands are short by themselves: they waited for other commands, for rows on flash (INFO flash), for replicas or for the log's device.",
                LOG_SYNC => "The device of the log is slow: compare `steelyard ctl stores --flash` with other stores, and see docs/TUNING.md.",
                _ => "",
            }
        );
    }
    report
}

/// Draws the slow moments of an event, oldest first: the height is the time, and the last row shows
/// how long ago each moment was.
fn graph(event: &str, of: &Moments) -> String {
    const ROWS: u64 = 4;
    const COLUMNS: usize = 80;
    let shown: Vec<(u64, u64)> =
        of.history.iter().skip(of.history.len().saturating_sub(COLUMNS)).copied().collect();
    let high = shown.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let low = shown.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let mut text = format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", of.longest);
    text.push_str(&"-".repeat(COLUMNS));
    text.push('\n');
    for row in (0..ROWS).rev() {
        for (_, ms) in &shown {
            let height = if high == low { ROWS } else { 1 + (ms - low) * (ROWS - 1) / (high - low) };
            text.push(if height > row { '#' } else { ' ' });
        }
        text.push('\n');
    }
    let now = clock::unix_millis() / 1000;
    let ages: Vec<String> = shown.iter().map(|(time, _)| age(now.saturating_sub(*time))).collect();
    let longest = ages.iter().map(String::len).max().unwrap_or(0);
    text.push('\n');
    for at in 0..longest {
        text.extend(ages.iter().map(|age| age.chars().nth(at).unwrap_or(' ')));
        text.push('\n');
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Writes the fields of `INFO commandstats`.
pub fn write_commands(store: &Store, field: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
    for (name, OfCommand { calls, micros, rejected, failed, .. }) in store.statistics.commands.all() {
        let each = if calls == 0 { 0.0 } else { micros as f64 / calls as f64 };
        let value = format!(
            "calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
        );
        field(&format!("cmdstat_{name}"), &value);
    }
}

/// Writes the fields of `INFO errorstats`.
pub fn write_errors(store: &Store, field: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
    for (code, count) in store.statistics.commands.errors() {
        field(&format!("errorstat_{code}"), &format!("count={count}"));
    }
}

/// Writes the fields of `INFO latencystats`.
pub fn write_latencies(store: &Store, field: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
    let percentiles = store.settings.read().statistics.percentiles.clone();
    for (name, of) in store.statistics.commands.all() {
        let Some(times) = of.times else { continue };
        let at = |percentile: &f64| {
            let micros = times.value_at_quantile(percentile / 100.0) as f64;
            format!("p{percentile}={micros:.3}")
        };
        let values: Vec<String> = percentiles.iter().map(at).collect();
        field(&format!("latency_percentiles_usec_{name}"), &values.join(","));
    }
}
