//! Copies of large collections in parts: `COPY`, `RENAME`, `RENAMENX` and `MOVE` of a key whose
//! rows are too many for one entry, `SUNIONSTORE`, `ZUNIONSTORE`, their kind and `ZRANGESTORE` of
//! large sets, and `ZREMRANGEBYRANK`, `ZPOPMIN`, `SPOP` and their kind, which copy the members that
//! are left ([`result`]). Other commands of the region go on between the parts.
//!
//! ```text
//! begin    name | elements u32, rows u32 | command ...   the reply, or `BEGUN`, ticket, place
//! part     name | ticket | place | command ...           the next place, if there is one, and
//!                                                        those members found that are removed
//! end      name | ticket | command ...                   the reply of the command without them
//! drop     name | ticket | command ...                   OK
//! ticket   generation u64 | rows u32
//! ```
//!
//! Each `|` separates two arguments. Integers are big-endian. No client can send these names. The
//! beginning of a result has another name than that of a copy.
//!
//! The copy is written under a generation of the destination that no meta row names, so nobody sees
//! it. The end writes the meta row, if no source has changed since the beginning: they are watched,
//! as for a transaction. Otherwise the reply is nil, and the copy is garbage. A copy that is not
//! ended becomes garbage by itself ([`SPARED_MS`]): from its beginning on it has a garbage row,
//! whose value tells until when the sweep spares it, and which watches it has.

mod result;

use std::ops::ControlFlow;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use resp::Reply;
use storage::rows::{decode_key_row, Part};
use storage::watches::{WatchedKey, Watches};
use storage::{KeyRef, Meta, Reader, StorageError, Txn};
use types::{SlotRange, UnixMillis, META_REGION, THIRD_VERSION};

use self::result::{Begun, Stored};
use crate::error_messages;
use crate::events;
use crate::exec::{
    call, fail, held_bytes, Collection, CommandError, CommandResult, Exec, Key, Limits, Mode, HELD_ROW,
};
use crate::failpoints::Failpoint;
use crate::keys::rename::{self, Ends};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};
use crate::table::{check_arity, lookup};

pub(crate) const BEGIN_NAME: &[u8] = b"\0copybegin";
pub(crate) const BEGIN_RESULT_NAME: &[u8] = b"\0resultbegin";
pub(crate) const PART_NAME: &[u8] = b"\0copypart";
pub(crate) const END_NAME: &[u8] = b"\0copyend";
pub(crate) const DROP_NAME: &[u8] = b"\0copydrop";

/// Time for which the sweep spares a copy after its last part, in milliseconds.
const SPARED_MS: u64 = 60_000;
/// The first item of a reply that means that a copy has begun. No reply of a command that may be
/// executed in parts begins with it.
const BEGUN: &str = "BEGUN";
/// Bytes of rows after which a part ends. Replicas must agree.
const PART_BYTES: usize = 256 << 10;
/// Number of times that a copy begins again because its source has changed, before it is executed
/// at once.
const CHANGES_MAX: u32 = 2;
/// Number of times that a copy begins again because the outcome of a part is unknown.
const LOSSES_MAX: u32 = 2;
/// Bytes of removed members that wait for the end, from which on a command is executed at once.
const REMOVED_BYTES_MAX: usize = 64 << 20;
/// Number of times that the dropping of a copy is asked for.
const DROPS_MAX: u32 = 2;
/// Maximum number of sets that are combined in parts. A region has room for some thousand watches.
const SOURCES_MAX: usize = 16;
/// Maximum number of arguments of a command that is executed in parts: the sources with their
/// weights, and the options.
const ARGS_MAX: usize = 2 * SOURCES_MAX + 8;

const fn source_at(first: usize) -> [KeySpec; 1] {
    [KeySpec { first, last: 0, step: 1, flags: &["RW"] }]
}

pub(crate) static BEGIN: CommandSpec =
    CommandSpec::new("copybegin", -4, flags::WRITE, Handler::Keyspace(begin))
        .keys(&source_at(3))
        .changes_only()
        .since_version(THIRD_VERSION);
/// Same as [`BEGIN`], for a command that changes something although its first key does not exist.
pub(crate) static BEGIN_RESULT: CommandSpec =
    CommandSpec::new("resultbegin", -4, flags::WRITE, Handler::Keyspace(begin))
        .keys(&source_at(3))
        .since_version(THIRD_VERSION);
pub(crate) static PART: CommandSpec =
    CommandSpec::new("copypart", -5, flags::WRITE | flags::DENYOOM, Handler::Keyspace(part))
        .keys(&source_at(4))
        .since_version(THIRD_VERSION);
pub(crate) static END: CommandSpec = CommandSpec::new("copyend", -4, flags::WRITE, Handler::Keyspace(end))
    .keys(&source_at(3))
    .since_version(THIRD_VERSION);
pub(crate) static DROP: CommandSpec =
    CommandSpec::new("copydrop", -4, flags::WRITE, Handler::Keyspace(drop_copy))
        .keys(&source_at(3))
        .since_version(THIRD_VERSION);

/// Returns true if the sources of a command have at least `elements` elements together, so that it
/// may be executed in parts.
///
/// # Errors
/// Those of the reader.
pub fn has_large_source(
    spec: &'static CommandSpec,
    args: &[Bytes],
    db: u16,
    reader: &dyn Reader,
    elements: u32,
) -> storage::Result<bool> {
    if args.len() > ARGS_MAX {
        return Ok(false);
    }
    let (first_key, others) = (args.get(1..2).unwrap_or_default(), args.get(2..).unwrap_or_default());
    if removes(spec) {
        // Small removals from large sets are frequent, so the range is looked up.
        let is_large = have_elements(first_key, db, reader, result::removed_from(spec.name, elements))?;
        return Ok(is_large && removes_many(spec, args, db, reader, elements)?);
    }
    // Some of these arguments may be no keys.
    let sources = if rename::is_of(spec.name) { first_key } else { others };
    have_elements(sources, db, reader, elements.into())
}

/// Returns true if the collections of these keys have at least `least` elements together.
fn have_elements(keys: &[Bytes], db: u16, reader: &dyn Reader, least: u64) -> storage::Result<bool> {
    let mut sum = 0u64;
    for key in keys {
        let Some(row) = reader.get(&KeyRef::new(db, key).meta_row())? else { continue };
        sum = sum.saturating_add(Collection::of(&Meta::decode(&row)?).map_or(0, |of| of.len));
        if sum >= least {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the command removes members of a set, and copies the others.
fn removes(spec: &CommandSpec) -> bool {
    result::removes(spec.name)
}

/// Returns true if the command removes a range of a sorted set. Its arguments do not tell whether
/// that are many members, and mostly they are few.
pub fn removes_range(spec: &CommandSpec) -> bool {
    removes(spec) && !result::pops(spec.name)
}

/// Returns true if the arguments alone show that a command removes few members.
pub fn removes_few(spec: &CommandSpec, args: &[Bytes], elements: u32) -> bool {
    result::pops_few(spec.name, args, elements)
}

/// Returns true if a command removes enough members of a set.
fn removes_many(
    spec: &'static CommandSpec,
    args: &[Bytes],
    db: u16,
    reader: &dyn Reader,
    elements: u32,
) -> storage::Result<bool> {
    if check_arity(spec, args).is_err() {
        return Ok(false);
    }
    let mut exec = Exec {
        txn: &mut Txn::read_only(reader, META_REGION),
        // Nothing is due yet.
        now_ms: 0,
        seed: 0,
        db,
        mode: Mode::Read,
        slots: SlotRange::ALL,
        limits: Limits::default(),
        resp3: false,
    };
    match Stored::of(spec.name, args, &mut exec) {
        Ok(rest) => Ok(rest.is_some_and(|rest| rest.is_large(elements))),
        Err(CommandError::Error(_)) => Ok(false),
        Err(CommandError::NeedsApply) => Ok(true),
        Err(CommandError::Storage(error)) => Err(error),
    }
}

/// Returns true for the beginning of a copy by a command that may make the data grow.
pub fn grows(spec: &CommandSpec, args: &[Bytes]) -> bool {
    (std::ptr::eq(spec, &BEGIN) || std::ptr::eq(spec, &BEGIN_RESULT))
        && args.get(2).and_then(|name| lookup(name)).is_some_and(CommandSpec::denies_oom)
}

/// The sizes at which collections are copied in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Number of elements from which on a collection is copied in parts.
    pub elements: u32,
    /// Maximum number of rows of a part.
    pub rows: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ticket {
    generation: u64,
    rows: u32,
}

impl Ticket {
    const LEN: usize = 8 + 4;

    /// Returns the generation under which the members of a result are in order of their scores.
    fn sorted(&self) -> u64 {
        self.generation.wrapping_add(1)
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(Ticket::LEN);
        out.put_u64(self.generation);
        out.put_u32(self.rows);
        out.freeze()
    }

    fn decode(mut bytes: &[u8]) -> Option<Ticket> {
        (bytes.len() == Ticket::LEN).then(|| Ticket { generation: bytes.get_u64(), rows: bytes.get_u32() })
    }
}

/// The value of the garbage row of a copy under way. Those of others are empty or rows, which begin
/// with another byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spared {
    /// Time until which the sweep spares the copy.
    pub until_ms: UnixMillis,
    /// Number of elements that are stored so far; 0 if the rows of a key are copied.
    len: u64,
    /// The sources, and the numbers of their watches.
    watches: Vec<(WatchedKey, u64)>,
}

impl Spared {
    const MARK: u8 = 0;
    const HEADER_LEN: usize = 1 + 8 + 8;
    const WATCH_LEN: usize = 2 + 2 + 8 + 8;

    fn encode(&self) -> Bytes {
        let len = Spared::HEADER_LEN + self.watches.len() * Spared::WATCH_LEN;
        let mut out = BytesMut::with_capacity(len);
        out.put_u8(Spared::MARK);
        out.put_u64(self.until_ms);
        out.put_u64(self.len);
        for (source, watch) in &self.watches {
            out.put_u16(source.slot);
            out.put_u16(source.db);
            out.put_u64(source.hash);
            out.put_u64(*watch);
        }
        out.freeze()
    }

    /// Decodes the value of a garbage row; `None` if it is that of another one.
    pub fn decode(mut bytes: &[u8]) -> Option<Spared> {
        let watches = bytes.len().checked_sub(Spared::HEADER_LEN)?;
        if watches % Spared::WATCH_LEN != 0 || bytes.get_u8() != Spared::MARK {
            return None;
        }
        let (until_ms, len) = (bytes.get_u64(), bytes.get_u64());
        let watch = |mut bytes: &[u8]| {
            let source = WatchedKey { slot: bytes.get_u16(), db: bytes.get_u16(), hash: bytes.get_u64() };
            (source, bytes.get_u64())
        };
        Some(Spared { until_ms, len, watches: bytes.chunks_exact(Spared::WATCH_LEN).map(watch).collect() })
    }

    /// Returns true if no source has changed. `sources` are those that exist now.
    fn holds(&self, sources: &[WatchedKey], watches: &Watches) -> bool {
        Failpoint::ChangedSourceIgnored.is_on()
            || self.watches.iter().map(|(source, _)| source).eq(sources)
                && self.watches.iter().all(|(source, watch)| watches.has(*source, *watch))
    }

    pub fn release(&self, watches: &mut Watches) {
        self.watches.iter().for_each(|(source, watch)| watches.release(*source, *watch));
    }
}

fn corrupt() -> CommandError {
    StorageError::Corrupt("a copy in a log entry cannot be read".into()).into()
}

/// Returns the table's entry of a command that is copied in parts.
fn copying_spec(command: &[Bytes]) -> CommandResult<&'static CommandSpec> {
    let spec = command.first().and_then(|name| lookup(name));
    let spec = spec.filter(|spec| spec.may_be_in_parts && check_arity(spec, command).is_ok());
    spec.ok_or_else(corrupt)
}

/// The work of a command that is executed in parts.
enum Work<'k> {
    /// The rows of a key, which has this collection.
    Copy(Ends<'k>, Collection),
    Result(Stored<'k>),
}

impl<'k> Work<'k> {
    /// Returns the work of a command; `None` if its arguments are wrong, or there is nothing to do.
    fn of(
        spec: &CommandSpec,
        command: &'k [Bytes],
        exec: &mut Exec<'_, '_>,
    ) -> CommandResult<Option<Work<'k>>> {
        if rename::is_of(spec.name) {
            let Some(ends) = rename::ends(spec.name, command, exec) else { return Ok(None) };
            let found = exec.look_up(&ends.from)?;
            let source = found.as_ref().and_then(Collection::of);
            return Ok(source.map(|source| Work::Copy(ends, source)));
        }
        match Stored::of(spec.name, command, exec) {
            Ok(result) => Ok(result.map(Work::Result)),
            Err(CommandError::Error(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the keys to watch: the sources that exist. Whether others come into being is seen
    /// by each part.
    fn sources(&self) -> Vec<WatchedKey> {
        let sources = match self {
            Work::Copy(ends, _) => vec![*ends.from],
            Work::Result(result) => result.sources(),
        };
        let mut sources: Vec<WatchedKey> = sources.iter().map(WatchedKey::from).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Returns true if the command is executed in parts.
    fn is_large(&self, exec: &mut Exec<'_, '_>, elements: u32) -> CommandResult<bool> {
        Ok(match self {
            Work::Result(result) => result.is_large(elements),
            Work::Copy(ends, source) => {
                let is_refused = ends.keeps_existing && exec.look_up(&ends.to)?.is_some();
                source.len >= u64::from(elements) && ends.from != ends.to && !is_refused
            }
        })
    }

    /// Returns true if the members of the result are put in order of their scores.
    fn sorts(&self) -> bool {
        matches!(self, Work::Result(result) if result.sorts())
    }

    /// Returns the place where the first part begins.
    fn first_place(&self) -> Bytes {
        match self {
            Work::Result(_) => Bytes::new(),
            Work::Copy(ends, source) => {
                let [(first, _), ..] = ends.from.generation_ranges(source.generation);
                first
            }
        }
    }
}

/// Returns the destination of a command; `None` if its arguments are wrong.
fn destination<'k>(spec: &CommandSpec, command: &'k [Bytes], exec: &Exec<'_, '_>) -> Option<Key<'k>> {
    match rename::is_of(spec.name) {
        true => rename::ends(spec.name, command, exec).map(|ends| ends.to),
        false => command.get(1).map(|key| exec.key(key)),
    }
}

/// Executes a command whose collections are small, or begins to copy them.
fn begin(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (mut sizes, command) = (&args[1][..], &args[2..]);
    if sizes.len() != 8 {
        return Err(corrupt());
    }
    let (elements, rows) = (sizes.get_u32(), sizes.get_u32());
    let spec = copying_spec(command)?;
    let work = Work::of(spec, command, exec)?;
    let (Some(work), Some(to)) = (work, destination(spec, command, exec)) else {
        return execute_at_once(spec, command, exec);
    };
    // The sweep may be slower than a client that removes members again and again.
    let is_large = work.is_large(exec, elements)? && !(removes(spec) && exec.has_garbage(&to)?);
    if !is_large {
        return execute_at_once(spec, command, exec);
    }
    let (number, now_ms) = (exec.seed, exec.now_ms);
    let state = exec.txn.state_mut();
    let watches =
        work.sources().into_iter().map(|source| (source, state.watches.add(source, number, now_ms)));
    let spared = Spared { until_ms: now_ms.saturating_add(SPARED_MS), len: 0, watches: watches.collect() };
    let ticket = Ticket { generation: state.take_generation(), rows };
    if work.sorts() {
        let next = state.take_generation();
        debug_assert_eq!(next, ticket.sorted(), "generations are consecutive");
    }
    spare(exec, &to, &ticket, (&work, &spared));
    let begun = [ticket.encode(), work.first_place()].map(Reply::Bulk);
    Ok(Reply::Array(std::iter::once(Reply::Simple(BEGUN.into())).chain(begun).collect()))
}

fn execute_at_once(spec: &'static CommandSpec, command: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let Handler::Keyspace(handler) = spec.handler else { return Err(corrupt()) };
    call((spec, handler), command, exec)
}

/// The arguments of a part or an end.
struct Copy<'k> {
    spec: &'static CommandSpec,
    ticket: Ticket,
    to: Key<'k>,
    /// The work, if no source has changed and the sweep spares the copy.
    work: Option<(Work<'k>, Spared)>,
}

fn look_up<'k>(ticket: &[u8], command: &'k [Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Copy<'k>> {
    let ticket = Ticket::decode(ticket).ok_or_else(corrupt)?;
    let spec = copying_spec(command)?;
    let to = destination(spec, command, exec).ok_or_else(corrupt)?;
    // An expired source is deleted, which is a change.
    let work = Work::of(spec, command, exec)?;
    let garbage = exec.txn.get(&to.garbage_row(ticket.generation))?;
    let spared = garbage.and_then(|value| Spared::decode(&value)).filter(|of| of.until_ms > exec.now_ms);
    let work = work.zip(spared);
    let work = work.filter(|(work, spared)| spared.holds(&work.sources(), &exec.txn.state().watches));
    Ok(Copy { spec, ticket, to, work })
}

/// Leaves a copy that is not ended to the sweep, and releases its watches.
fn abandon(exec: &mut Exec<'_, '_>, to: &Key<'_>, ticket: &Ticket) -> CommandResult<()> {
    let garbage = exec.txn.get(&to.garbage_row(ticket.generation))?;
    if let Some(spared) = garbage.and_then(|value| Spared::decode(&value)) {
        spared.release(&mut exec.txn.state_mut().watches);
        exec.leave_generation(to, ticket.generation);
    }
    leave_sorted(exec, to, ticket)
}

/// Leaves the members that were written in order of scores to the sweep, if there are any. The
/// next generation may also be that of another copy, which has watches.
fn leave_sorted(exec: &mut Exec<'_, '_>, to: &Key<'_>, ticket: &Ticket) -> CommandResult<()> {
    let garbage = exec.txn.get(&to.garbage_row(ticket.sorted()))?;
    let spared = garbage.and_then(|value| Spared::decode(&value));
    if spared.is_some_and(|spared| spared.watches.is_empty()) {
        exec.leave_generation(to, ticket.sorted());
    }
    Ok(())
}

/// Spares a copy, and what it has written in order of scores.
fn spare(exec: &mut Exec<'_, '_>, to: &Key<'_>, ticket: &Ticket, (work, spared): (&Work<'_>, &Spared)) {
    exec.txn.put(to.garbage_row(ticket.generation), spared.encode());
    if work.sorts() {
        // The watches are released with the copy itself.
        let sorted = Spared { until_ms: spared.until_ms, len: 0, watches: Vec::new() };
        exec.txn.put(to.garbage_row(ticket.sorted()), sorted.encode());
    }
}

/// Copies the next rows.
fn part(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let Copy { ticket, to, work, .. } = look_up(&args[1], &args[3..], exec)?;
    let Some((work, mut spared)) = work else {
        abandon(exec, &to, &ticket)?;
        return Ok(Reply::Nil);
    };
    let is_alone = exec.txn.held() == 0;
    let (next, removed) = match &work {
        Work::Copy(ends, source) => {
            let next = copy_rows(exec, (&ends.from, source.generation), &to, &ticket, &args[2])?;
            (next, Vec::new())
        }
        Work::Result(result) => {
            let begun = Begun { place: &args[2], len: spared.len };
            let done = result.part(exec, &ticket, begun)?;
            spared.len = done.len;
            (done.next, done.removed)
        }
    };
    if is_alone && next.as_ref() == Some(&args[2]) {
        // There will never be room for the next row.
        return fail(error_messages::holds_too_much(exec.txn.held_max()));
    }
    spared.until_ms = exec.now_ms.saturating_add(SPARED_MS);
    spare(exec, &to, &ticket, (&work, &spared));
    let removed = (!removed.is_empty()).then_some(Reply::Array(removed));
    Ok(Reply::Array(next.map(Reply::Bulk).into_iter().chain(removed).collect()))
}

/// Executes the command with the rows that were copied.
fn end(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let command = &args[2..];
    let Copy { spec, ticket, to, work } = look_up(&args[1], command, exec)?;
    let Some((work, spared)) = work else {
        abandon(exec, &to, &ticket)?;
        return Ok(Reply::Nil);
    };
    let (reply, takes) = match &work {
        Work::Copy(..) => {
            let mut copied = Some(ticket.generation);
            let reply = rename::with_copy((spec, command), exec, &mut copied)?;
            (reply, copied.is_none())
        }
        Work::Result(result) => result.end(exec, ticket.generation, spared.len)?,
    };
    events::conclude(Some(spec), command, exec);
    if takes {
        spared.release(&mut exec.txn.state_mut().watches);
        exec.txn.delete(to.garbage_row(ticket.generation));
        leave_sorted(exec, &to, &ticket)?;
    } else {
        // The command has not stored it.
        abandon(exec, &to, &ticket)?;
    }
    Ok(reply)
}

/// Gives up a copy.
fn drop_copy(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let Copy { to, ticket, .. } = look_up(&args[1], &args[2..], exec)?;
    abandon(exec, &to, &ticket)?;
    Ok(Reply::OK)
}

/// Copies rows of a generation of `from`, from the row `first` on. Returns the row at which the
/// next part begins, if any are left. There may be no room for a row, because other commands of the
/// entry hold much; then the next part begins with it.
fn copy_rows(
    exec: &mut Exec<'_, '_>,
    (from, generation): (&Key<'_>, u64),
    to: &Key<'_>,
    ticket: &Ticket,
    first: &[u8],
) -> CommandResult<Option<Bytes>> {
    let (mut left, mut bytes) = (ticket.rows.max(1), 0);
    let [elements, nodes, _] = from.generation_ranges(generation);
    for (start, end) in [elements, nodes] {
        let start = start.as_ref().max(first);
        if start >= &end[..] {
            continue;
        }
        let (mut found, mut next) = (Vec::new(), None);
        exec.txn.scan(start, &end, &mut |row, value| {
            let held = held_bytes(HELD_ROW, row.len() + value.len());
            if left == 0 || bytes >= PART_BYTES || !exec.txn.has_room(held) {
                next = Some(Bytes::copy_from_slice(row));
                return ControlFlow::Break(());
            }
            exec.txn.hold(held);
            found.push((Bytes::copy_from_slice(row), Bytes::copy_from_slice(value)));
            (left, bytes) = (left - 1, bytes + row.len() + value.len());
            ControlFlow::Continue(())
        })?;
        for (row, value) in found {
            let row = match decode_key_row(&row)?.1 {
                Part::Element { subkey, .. } => to.element_row(ticket.generation, subkey),
                Part::Node { number, .. } => to.node_row(ticket.generation, number),
                Part::Meta | Part::Group { .. } => return Err(corrupt()),
            };
            exec.put_unseen(to, row, None, value);
        }
        if next.is_some() {
            return Ok(next);
        }
    }
    Ok(None)
}

/// A copy as its client's store sees it: the commands of the log that it needs, one after the
/// other.
#[derive(Debug)]
pub struct Copying {
    command: Vec<Bytes>,
    sizes: Sizes,
    asked: Asked,
    /// The members that the end will remove, as the reply shows them.
    removed: Vec<Reply>,
    removed_bytes: usize,
    changes: u32,
    losses: u32,
}

#[derive(Debug)]
enum Asked {
    Begin,
    /// A part of the copy with this ticket.
    Part(Bytes),
    End(Bytes),
    Drop {
        ticket: Bytes,
        then: Then,
        tries: u32,
    },
    /// The command itself, all at once.
    Whole,
}

/// The step after a copy was dropped.
#[derive(Debug)]
enum Then {
    Begin,
    Whole,
    Reply(Reply),
}

#[derive(Debug, PartialEq)]
pub enum Next {
    /// These arguments are to be executed.
    Ask(Vec<Bytes>),
    Reply(Reply),
}

impl Copying {
    /// Returns a copy and the arguments to execute first.
    pub fn begin(command: Vec<Bytes>, sizes: Sizes) -> (Copying, Vec<Bytes>) {
        let mut copying = Copying {
            command,
            sizes,
            asked: Asked::Begin,
            removed: Vec::new(),
            removed_bytes: 0,
            changes: 0,
            losses: 0,
        };
        let first = copying.begin_again();
        (copying, first)
    }

    fn begin_again(&mut self) -> Vec<Bytes> {
        let mut sizes = BytesMut::with_capacity(8);
        sizes.put_u32(self.sizes.elements);
        sizes.put_u32(self.sizes.rows);
        self.asked = Asked::Begin;
        if !Failpoint::FoundMembersKept.is_on() {
            self.forget_removed();
        }
        let needs_source = self.spec().is_some_and(|of| rename::is_of(of.name) || removes(of));
        let name = if needs_source { BEGIN_NAME } else { BEGIN_RESULT_NAME };
        self.asking(name, [sizes.freeze()])
    }

    fn spec(&self) -> Option<&'static CommandSpec> {
        self.command.first().and_then(|name| lookup(name))
    }

    fn asking(&self, name: &'static [u8], more: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
        let head = std::iter::once(Bytes::from_static(name)).chain(more);
        head.chain(self.command.iter().cloned()).collect()
    }

    /// Returns the arguments that drop the copy before its next part. It begins again afterwards.
    pub fn put_off(&mut self) -> Vec<Bytes> {
        self.leave(Then::Begin)
    }

    /// Same as [`put_off`](Copying::put_off), but ends with this reply. A removal is executed at
    /// once instead.
    pub fn give_up(&mut self, reply: Reply) -> Vec<Bytes> {
        match self.spec().is_some_and(removes) {
            true => self.leave(Then::Whole),
            false => self.leave(Then::Reply(reply)),
        }
    }

    fn leave(&mut self, then: Then) -> Vec<Bytes> {
        match std::mem::replace(&mut self.asked, Asked::Begin) {
            Asked::Part(ticket) | Asked::End(ticket) | Asked::Drop { ticket, .. } => {
                self.drop_copy(ticket, then, 1)
            }
            Asked::Begin | Asked::Whole => self.begin_again(),
        }
    }

    /// Takes the reply to what was asked.
    pub fn answered(&mut self, reply: Reply) -> Next {
        match (std::mem::replace(&mut self.asked, Asked::Begin), reply) {
            (Asked::Begin, Reply::Array(items)) if has_begun(&items) => {
                let mut items = items.into_iter().filter_map(bulk);
                match items.next() {
                    Some(ticket) => self.go_on(ticket, items.next()),
                    None => Next::Reply(Reply::error("ERR a copy got no ticket")),
                }
            }
            (Asked::Part(ticket), Reply::Array(items)) => {
                let mut next = None;
                for item in items {
                    match item {
                        Reply::Array(removed) => self.remember_removed(removed),
                        item => next = bulk(item),
                    }
                }
                match self.removed_bytes > REMOVED_BYTES_MAX {
                    true => Next::Ask(self.drop_copy(ticket, Then::Whole, 1)),
                    false => self.go_on(ticket, next),
                }
            }
            (Asked::End(_), Reply::Array(_)) => Next::Reply(Reply::Array(std::mem::take(&mut self.removed))),
            (Asked::End(_), Reply::Set(_)) => Next::Reply(Reply::Set(std::mem::take(&mut self.removed))),
            // The source has changed, or the copy was swept.
            (Asked::Part(_) | Asked::End(_), Reply::Nil) => {
                self.changes += 1;
                Next::Ask(match self.changes <= CHANGES_MAX {
                    true => self.begin_again(),
                    false => self.whole(),
                })
            }
            // A part whose outcome is unknown has changed nothing that anyone sees.
            (Asked::Part(ticket), Reply::Error(text))
                if text.starts_with("UNKNOWN") && self.losses < LOSSES_MAX =>
            {
                self.losses += 1;
                Next::Ask(self.drop_copy(ticket, Then::Begin, 1))
            }
            // A full disk refuses parts. Removals make room.
            (Asked::Part(ticket), Reply::Error(text))
                if text.starts_with("MISCONF") && self.spec().is_some_and(removes) =>
            {
                Next::Ask(self.drop_copy(ticket, Then::Whole, 1))
            }
            (Asked::Part(ticket) | Asked::End(ticket), reply @ Reply::Error(_)) => {
                Next::Ask(self.drop_copy(ticket, Then::Reply(reply), 1))
            }
            (Asked::Drop { ticket, then, tries }, Reply::Error(_)) if tries < DROPS_MAX => {
                Next::Ask(self.drop_copy(ticket, then, tries + 1))
            }
            (Asked::Drop { then: Then::Begin, .. }, _) => Next::Ask(self.begin_again()),
            (Asked::Drop { then: Then::Whole, .. }, _) => Next::Ask(self.whole()),
            (Asked::Drop { then: Then::Reply(reply), .. }, _) | (_, reply) => Next::Reply(reply),
        }
    }

    fn remember_removed(&mut self, mut removed: Vec<Reply>) {
        self.removed_bytes += removed.iter().map(Reply::bytes).sum::<usize>();
        self.removed.append(&mut removed);
    }

    fn forget_removed(&mut self) {
        (self.removed, self.removed_bytes) = (Vec::new(), 0);
    }

    fn whole(&mut self) -> Vec<Bytes> {
        self.asked = Asked::Whole;
        self.forget_removed();
        self.command.clone()
    }

    fn go_on(&mut self, ticket: Bytes, next: Option<Bytes>) -> Next {
        let asking = match next {
            Some(row) => {
                self.asked = Asked::Part(ticket.clone());
                self.asking(PART_NAME, [ticket, row])
            }
            None => {
                self.asked = Asked::End(ticket.clone());
                self.asking(END_NAME, [ticket])
            }
        };
        Next::Ask(asking)
    }

    fn drop_copy(&mut self, ticket: Bytes, then: Then, tries: u32) -> Vec<Bytes> {
        let asking = self.asking(DROP_NAME, [ticket.clone()]);
        self.asked = Asked::Drop { ticket, then, tries };
        asking
    }
}

/// Returns true for the reply of a copy that has begun.
fn has_begun(items: &[Reply]) -> bool {
    matches!(items.first(), Some(Reply::Simple(word)) if word == BEGUN)
}

fn bulk(reply: Reply) -> Option<Bytes> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}
