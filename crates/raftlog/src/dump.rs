//! A readable listing of a log, with the outcome of a start from it.

use std::io::{self, Write};
use std::path::Path;

use wal::{recover, scan, Disk, Found, LogError, MarkFile, Place, Record, Recovered, Update};

use crate::files::{Access, Files};

/// Writes the contents of the log in `dir` without changing it: the segments (with `each_block`
/// also their blocks and sections), then the regions as a start would find them, or the reason why
/// a start would refuse the log. A log in use may change during the listing.
pub fn dump(dir: &Path, each_block: bool, out: &mut impl Write) -> io::Result<()> {
    let told = |error: LogError| io::Error::other(error.to_string());
    let (files, secret) = Files::open(dir, Access::Read).map_err(told)?;
    let recovered = recover(&files, secret);
    let mut segments = files.segments().map_err(|error| io::Error::other(error.to_string()))?;
    segments.sort_unstable();
    for mark in [MarkFile::Synced, MarkFile::First] {
        let number = wal::mark::Mark::read(&files, mark, secret).ok().flatten().map(|mark| mark.number());
        let what = match mark {
            MarkFile::Synced => "synced through block",
            MarkFile::First => "first needed block  ",
        };
        match number {
            Some(number) => writeln!(out, "{what} {number}")?,
            None => writeln!(out, "{what} unreadable")?,
        }
    }
    for (segment, len) in segments {
        let found =
            scan(&files, segment, len, 0, secret).map_err(|error| io::Error::other(error.to_string()))?;
        let sequences = found.iter().map(|block| block.header.sequence);
        let range = match sequences.clone().min().zip(sequences.max()) {
            Some((first, last)) => format!("{} blocks of {first}..={last}", found.len()),
            None => "no blocks".to_owned(),
        };
        let torn = found.iter().filter(|block| !block.is_whole()).count();
        let torn = if torn > 0 { format!(", {torn} of them damaged") } else { String::new() };
        writeln!(out, "segment {segment:08}, {len} bytes: {range}{torn}{}", role(&recovered, segment))?;
        if each_block {
            found.iter().try_for_each(|block| write_block(block, out))?;
        }
    }
    match recovered {
        Ok(recovered) => write_outcome(&recovered, out),
        Err(error) => writeln!(out, "a start would refuse this log: {error}"),
    }
}

fn role(recovered: &Result<Recovered, LogError>, segment: u32) -> &'static str {
    match recovered {
        Err(_) => "",
        Ok(of) if of.in_use.last().is_some_and(|last| last.id == segment) => "; the next block goes here",
        Ok(of) if of.in_use.iter().any(|used| used.id == segment) => "; holds needed blocks",
        Ok(_) => "; free to be overwritten",
    }
}

fn write_block(block: &Found, out: &mut impl Write) -> io::Result<()> {
    let header = &block.header;
    writeln!(
        out,
        "  at {}: block {} of start {}, {} bytes, synced through {}{}",
        header.position.offset,
        header.sequence,
        header.incarnation,
        header.length,
        header.synced,
        match &block.updates {
            None => ", damaged in the heads of its sections",
            Some(_) if !block.is_whole() => ", damaged",
            Some(_) => "",
        }
    )?;
    for update in block.updates.iter().flatten() {
        match update {
            Update::Entries { region, first, term, count, place, is_carried } => {
                let Place { length, .. } = place;
                let (last, carried) =
                    (first + u64::from(*count) - 1, if *is_carried { ", carried" } else { "" });
                writeln!(
                    out,
                    "    region {region}: entries {first}..={last} of term {term}, {length} bytes{carried}"
                )?;
            }
            Update::Record { record: Record::Value { name, value }, .. } => {
                writeln!(out, "    value {}: {} bytes", name.escape_ascii(), value.len())?;
            }
            Update::Damaged { region, kind, place } => {
                writeln!(out, "    region {region}: {kind:?} of {} bytes, DAMAGED", place.length)?;
            }
            Update::Record { region, record, .. } => writeln!(out, "    region {region}: {record:?}")?,
        }
    }
    Ok(())
}

fn write_outcome(recovered: &Recovered, out: &mut impl Write) -> io::Result<()> {
    for region in recovered.index.regions() {
        let bounds = recovered.index.bounds(region);
        let state = match recovered.index.hard_state(region) {
            Some(state) => {
                let vote = state.vote.map_or("none".to_owned(), |peer| format!("peer {peer}"));
                format!("term {}, vote {vote}, committed through {}", state.term, state.commit)
            }
            None => "no hard state".to_owned(),
        };
        writeln!(out, "region {region}: entries {}..={}, {state}", bounds.first, bounds.last)?;
    }
    for (region, life) in recovered.index.lifecycles() {
        writeln!(out, "peer of region {region}: {life:?}")?;
    }
    for (region, loss) in &recovered.losses {
        let what = match (loss.has_gap, loss.promise, loss.life) {
            (true, ..) => format!("entries after {}", loss.whole_through()),
            (_, true, _) => "its term and vote".to_owned(),
            _ => "what became of its peer".to_owned(),
        };
        writeln!(out, "DAMAGED: region {region} may lack {what} ({})", loss.place)?;
    }
    if let Some(cut) = recovered.cut {
        writeln!(
            out,
            "a start would cut off {} blocks from block {} on: they were never synced",
            cut.blocks, cut.first
        )?;
    }
    writeln!(
        out,
        "a start would continue after block {} as start {}",
        recovered.sequence, recovered.incarnation
    )
}
