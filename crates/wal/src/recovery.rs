//! Recovery of a log at start, after a clean stop, a crash or a loss of power.
//!
//! Blocks form a chain: each stores the checksum of the header of the previous block. The chain
//! begins at the first needed block, which a mark names. It continues while there is an intact
//! block with the next sequence and the matching `previous`. So blocks that do not belong to the
//! chain are never accepted: older content of an overwritten segment, blocks that an earlier start
//! wrote after a block that was lost, and the rest of a write that failed halfway.
//!
//! At the end of the chain either the tail was torn or the log is damaged. Every block records the
//! sequence through which the log was synced before the block was written, and so does a mark. If
//! the chain ends below that sequence, recovery refuses the log and changes nothing. Blocks above
//! that sequence were never acknowledged, so the log may end anywhere there.

use std::collections::BTreeMap;

use replica::HardState;
use types::RegionId;

use crate::disk::{Disk, MarkFile, SegmentId};
use crate::error::{LogError, Result};
use crate::failpoints::Failpoint;
use crate::index::{Index, Loss};
use crate::layout::{block_len, Position, Secret, HEADER_LEN};
use crate::mark::Mark;
use crate::scan::{scan, Found};

/// A segment that holds needed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub id: SegmentId,
    pub len: u64,
    /// The sequence of its first block.
    pub first: u64,
}

/// Blocks found beyond the end of the chain. None of them was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of blocks with a whole header beyond the end of the chain.
    pub blocks: usize,
    /// The smallest of their sequences.
    pub first: u64,
}

pub struct Recovered {
    pub index: Index,
    /// The segments of the chain, oldest first. The next block goes into the last one, at `offset`.
    pub in_use: Vec<Segment>,
    pub offset: u64,
    /// The segments with no needed block, and their lengths in bytes.
    pub free: Vec<(SegmentId, u64)>,
    /// The sequence of the last block; 0 in a log without any.
    pub sequence: u64,
    pub checksum: u64,
    /// The incarnation of this start.
    pub incarnation: u64,
    pub synced_mark: Mark,
    pub first_mark: Mark,
    pub cut: Option<Cut>,
    /// The blocks, with their unpadded lengths in bytes, that no later block declares synced.
    pub unproven: Vec<(Position, u64)>,
    /// The hard states whose commit index was lowered, so that they differ from what the log holds.
    pub corrected: Vec<(RegionId, HardState)>,
    /// The losses by damaged sections, by region. These regions' logs must be repaired before they
    /// are used; see [`Appender::repair`](crate::Appender::repair).
    pub losses: BTreeMap<RegionId, Loss>,
}

/// Reads a log without changing it.
pub fn recover(disk: &impl Disk, secret: Secret) -> Result<Recovered> {
    let mark = |file, name: &str| {
        let unreadable = || LogError::Corrupt(format!("both slots of {name} are damaged"));
        Mark::read(disk, file, secret)?.ok_or_else(unreadable)
    };
    let synced_mark = mark(MarkFile::Synced, "the mark of the last synced block")?;
    let first_mark = mark(MarkFile::First, "the mark of the first needed block")?;
    let first = first_mark.number().max(1);

    let mut lengths = BTreeMap::new();
    let mut found = Vec::new();
    for (segment, len) in disk.segments()? {
        lengths.insert(segment, len);
        found.extend(scan(disk, segment, len, first, secret)?);
    }
    let incarnation = found.iter().map(|block| block.header.incarnation).max().unwrap_or(0) + 1;
    let claimed = found.iter().map(|block| block.header.synced).max().unwrap_or(0);
    let synced = synced_mark.number().max(claimed).max(first - 1);
    found.retain(|block| block.header.sequence >= first);

    let chain = chain(&found, first, synced);
    let end = first + chain.len() as u64 - 1;
    let last = chain.last().map(|at| &found[*at]);
    let beyond: Vec<&Found> = found
        .iter()
        .filter(|block| block.header.sequence > end)
        .filter(|block| last.is_none_or(|last| block.header.incarnation >= last.header.incarnation))
        .collect();
    if end < synced || (chain.is_empty() && first > 1) {
        return Err(damage(end, synced, &found, &lengths));
    }

    let mut index = Index::default();
    let mut in_use: Vec<Segment> = Vec::new();
    let mut unproven = Vec::new();
    let mut offset = 0;
    let (mut sequence, mut checksum) = (first - 1, 0);
    for block in chain.iter().map(|at| &found[*at]) {
        let Position { segment, offset: at } = block.header.position;
        if in_use.last().is_none_or(|current| current.id != segment) {
            in_use.push(Segment { id: segment, len: lengths[&segment], first: block.header.sequence });
        }
        offset = at + block_len(block.header.length as usize);
        if block.header.sequence > claimed {
            unproven.push((block.header.position, HEADER_LEN as u64 + u64::from(block.header.length)));
        }
        (sequence, checksum) = (block.header.sequence, block.checksum);
        block.updates.iter().flatten().for_each(|update| index.apply(update));
    }
    let losses = index.losses()?;
    let corrected = index.lower_commits();
    let is_free = |segment: &SegmentId| in_use.iter().all(|used| used.id != *segment);
    let free = lengths.into_iter().filter(|(segment, _)| is_free(segment)).collect();
    let least = beyond.iter().map(|block| block.header.sequence).min();
    let cut = least.map(|first| Cut { blocks: beyond.len(), first });
    Ok(Recovered {
        index,
        in_use,
        offset,
        free,
        sequence,
        checksum,
        incarnation,
        synced_mark,
        first_mark,
        cut,
        unproven,
        corrected,
        losses,
    })
}

/// Returns the positions in `found` of the blocks that form the chain from `first` on. Blocks
/// through `synced` may have damaged section contents: their headers and their sections' heads
/// prove that they belong to the chain. A later block with such damage is torn.
fn chain(found: &[Found], first: u64, synced: u64) -> Vec<usize> {
    let mut whole: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let is_usable =
        |block: &Found| block.is_whole() || block.header.sequence <= synced && block.updates.is_some();
    for (at, block) in found.iter().enumerate().filter(|(_, block)| is_usable(block)) {
        whole.entry(block.header.sequence).or_default().push(at);
    }
    let mut chain = Vec::new();
    let mut previous = None;
    for sequence in first.. {
        let follows = |at: &&usize| {
            previous.is_none_or(|name| found[**at].header.previous == name)
                || Failpoint::StaleBlockFollowed.is_on()
        };
        // Two blocks of one sequence come from two starts. The later start did not find the other
        // block.
        let next = whole
            .get(&sequence)
            .and_then(|of| of.iter().filter(follows).max_by_key(|at| found[**at].header.incarnation));
        let Some(at) = next else { break };
        previous = Some(found[*at].checksum);
        chain.push(*at);
    }
    chain
}

const WHAT_TO_DO: &str = "This store must not vote or serve from these files; rebuild it from its peers \
                          (OPERATING.md, A log that is refused)";

fn damage(end: u64, synced: u64, found: &[Found], lengths: &BTreeMap<SegmentId, u64>) -> LogError {
    let missing = end + 1;
    let is_beyond = |block: &&Found| block.header.sequence > missing && block.updates.is_some();
    if !found.iter().any(|block| is_beyond(&block)) {
        return LogError::LostTail { synced, found: end };
    }
    let torn = found.iter().find(|block| block.header.sequence == missing && block.updates.is_none());
    LogError::Corrupt(match torn {
        Some(block) => {
            let Position { segment, offset } = block.header.position;
            format!(
                "block {missing}, at {offset} in segment {segment}, was synced, and the heads of its sections are \
                 damaged: which regions it touches is unknown. {WHAT_TO_DO}"
            )
        }
        None => format!(
            "block {missing} is missing or its header is damaged, but block {synced} was synced; there are {} \
             segments. {WHAT_TO_DO}",
            lengths.len()
        ),
    })
}
