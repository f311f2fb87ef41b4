//! Copies of large collections in parts: `COPY`, `RENAME`, `RENAMENX` and `MOVE` of a key whose
//! rows are too many for one entry. Other commands of the region go on between the parts.
//!
//! ```text
//! begin    name | elements u32, rows u32 | command ...   the reply, or a ticket and the first row
//! part     name | ticket | row | command ...             the next row, if there is one
//! end      name | ticket | command ...                   the reply of the command
//! drop     name | ticket | command ...                   OK
//! ticket   generation u64 | rows u32
//! ```
//!
//! Each `|` separates two arguments. Integers are big-endian. No client can send these names.
//!
//! The copy is written under a generation of the destination that no meta row names, so nobody sees
//! it. The end writes the meta row, if the source has not changed since the beginning: it is
//! watched, as for a transaction. Otherwise the reply is nil, and the copy is garbage. A copy that
//! is not ended becomes garbage by itself ([`SPARED_MS`]): from its beginning on it has a garbage
//! row, whose value tells until when the sweep spares it, and which watch it has.

use std::ops::ControlFlow;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use resp::Reply;
use storage::rows::{decode_key_row, Part};
use storage::watches::WatchedKey;
use storage::{KeyRef, Meta, Reader, StorageError};
use types::{UnixMillis, THIRD_VERSION};

use crate::exec::{call, held_bytes, Collection, CommandError, CommandResult, Exec, Key, HELD_ROW};
use crate::keys::rename::{self, Ends};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};
use crate::table::{check_arity, lookup};

pub(crate) const BEGIN_NAME: &[u8] = b"\0copybegin";
pub(crate) const PART_NAME: &[u8] = b"\0copypart";
pub(crate) const END_NAME: &[u8] = b"\0copyend";
pub(crate) const DROP_NAME: &[u8] = b"\0copydrop";

/// Time for which the sweep spares a copy after its last part, in milliseconds.
const SPARED_MS: u64 = 60_000;
/// Bytes of rows after which a part ends. Replicas must agree.
const PART_BYTES: usize = 256 << 10;
/// Number of times that a copy begins again because its source has changed, before it is executed
/// at once.
const CHANGES_MAX: u32 = 2;
/// Number of times that a copy begins again because the outcome of a part is unknown.
const LOSSES_MAX: u32 = 2;
/// Number of times that the dropping of a copy is asked for.
const DROPS_MAX: u32 = 2;

const fn source_at(first: usize) -> [KeySpec; 1] {
    [KeySpec { first, last: 0, step: 1, flags: &["RW"] }]
}

pub(crate) static BEGIN: CommandSpec =
    CommandSpec::new("copybegin", -4, flags::WRITE, Handler::Keyspace(begin))
        .keys(&source_at(3))
        .changes_only()
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

/// Returns true if one of these commands has a source that would be copied in parts.
///
/// # Errors
/// Those of the reader.
pub fn has_large_source(
    args: &[Bytes],
    db: u16,
    reader: &dyn Reader,
    elements: u32,
) -> storage::Result<bool> {
    let Some(key) = args.get(1) else { return Ok(false) };
    let Some(row) = reader.get(&KeyRef::new(db, key).meta_row())? else { return Ok(false) };
    Ok(Collection::of(&Meta::decode(&row)?).is_some_and(|of| of.len >= u64::from(elements)))
}

/// Returns true for the beginning of a copy by a command that may make the data grow.
pub fn grows(spec: &CommandSpec, args: &[Bytes]) -> bool {
    std::ptr::eq(spec, &BEGIN)
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spared {
    /// Time until which the sweep spares the copy.
    pub until_ms: UnixMillis,
    /// The source.
    pub source: WatchedKey,
    /// The number of its watch.
    pub watch: u64,
}

impl Spared {
    const MARK: u8 = 0;
    const LEN: usize = 1 + 8 + 2 + 2 + 8 + 8;

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(Spared::LEN);
        out.put_u8(Spared::MARK);
        out.put_u64(self.until_ms);
        out.put_u16(self.source.slot);
        out.put_u16(self.source.db);
        out.put_u64(self.source.hash);
        out.put_u64(self.watch);
        out.freeze()
    }

    /// Decodes the value of a garbage row; `None` if it is that of another one.
    pub fn decode(mut bytes: &[u8]) -> Option<Spared> {
        (bytes.len() == Spared::LEN && bytes.get_u8() == Spared::MARK).then(|| Spared {
            until_ms: bytes.get_u64(),
            source: WatchedKey { slot: bytes.get_u16(), db: bytes.get_u16(), hash: bytes.get_u64() },
            watch: bytes.get_u64(),
        })
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

/// Spares a copy from now on.
fn spare(exec: &mut Exec<'_, '_>, to: &Key<'_>, generation: u64, (source, watch): (WatchedKey, u64)) {
    let until_ms = exec.now_ms.saturating_add(SPARED_MS);
    let spared = Spared { until_ms, source, watch };
    exec.txn.put(to.garbage_row(generation), spared.encode());
}

/// Executes a command whose collection is small, or begins to copy it.
fn begin(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (mut sizes, command) = (&args[1][..], &args[2..]);
    if sizes.len() != 8 {
        return Err(corrupt());
    }
    let (elements, rows) = (sizes.get_u32(), sizes.get_u32());
    let spec = copying_spec(command)?;
    let ends = rename::ends(spec.name, command, exec).filter(|ends| ends.from != ends.to);
    if let Some(Ends { from, to, keeps_existing }) = ends {
        let found = exec.uncounted(|exec| exec.peek(&from))?;
        let is_large = |of: &Collection| of.len >= u64::from(elements);
        let collection = found.as_ref().and_then(Collection::of).filter(is_large);
        let is_refused = keeps_existing && exec.uncounted(|exec| exec.peek(&to))?.is_some();
        if let Some(collection) = collection.filter(|_| !is_refused) {
            let (number, now_ms) = (exec.seed, exec.now_ms);
            let state = exec.txn.state_mut();
            let source = WatchedKey::from(&*from);
            let watch = state.watches.add(source, number, now_ms);
            let ticket = Ticket { generation: state.take_generation(), rows };
            spare(exec, &to, ticket.generation, (source, watch));
            let [(first, _), ..] = from.generation_ranges(collection.generation);
            return Ok(Reply::Array(vec![Reply::Bulk(ticket.encode()), Reply::Bulk(first)]));
        }
    }
    let Handler::Keyspace(handler) = spec.handler else { return Err(corrupt()) };
    call((spec, handler), command, exec)
}

/// The arguments of a part or an end, after the look-up of the source.
struct Copy<'k> {
    spec: &'static CommandSpec,
    ticket: Ticket,
    ends: Ends<'k>,
    /// The source and its watch, if it has not changed and the sweep spares the copy.
    source: Option<(Collection, (WatchedKey, u64))>,
}

fn look_up<'k>(ticket: &[u8], command: &'k [Bytes], exec: &mut Exec<'_, '_>) -> CommandResult<Copy<'k>> {
    let ticket = Ticket::decode(ticket).ok_or_else(corrupt)?;
    let spec = copying_spec(command)?;
    let ends = rename::ends(spec.name, command, exec).ok_or_else(corrupt)?;
    // An expired source is deleted, which is a change.
    let found = exec.uncounted(|exec| exec.peek(&ends.from))?;
    let garbage = exec.txn.get(&ends.to.garbage_row(ticket.generation))?;
    let spared = garbage.and_then(|value| Spared::decode(&value)).filter(|of| of.until_ms > exec.now_ms);
    let watched = spared.map(|of| (of.source, of.watch));
    let watched = watched.filter(|(source, watch)| exec.txn.state().watches.has(*source, *watch));
    let source = found.as_ref().and_then(Collection::of).zip(watched);
    Ok(Copy { spec, ticket, ends, source })
}

/// Leaves a copy that is not ended to the sweep, and releases its watch.
fn abandon(exec: &mut Exec<'_, '_>, Copy { ticket, ends, .. }: &Copy<'_>) -> CommandResult<()> {
    let garbage = exec.txn.get(&ends.to.garbage_row(ticket.generation))?;
    if let Some(spared) = garbage.and_then(|value| Spared::decode(&value)) {
        exec.txn.state_mut().watches.release(spared.source, spared.watch);
        exec.leave_generation(&ends.to, ticket.generation);
    }
    Ok(())
}

/// Copies the next rows.
fn part(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let copy = look_up(&args[1], &args[3..], exec)?;
    let Some((source, watch)) = copy.source else {
        abandon(exec, &copy)?;
        return Ok(Reply::Nil);
    };
    let Copy { ticket, ends, .. } = copy;
    spare(exec, &ends.to, ticket.generation, watch);
    let next = copy_rows(exec, (&ends.from, source.generation), &ends.to, &ticket, &args[2])?;
    Ok(Reply::Array(next.map(Reply::Bulk).into_iter().collect()))
}

/// Executes the command with the rows that were copied.
fn end(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let command = &args[2..];
    let copy = look_up(&args[1], command, exec)?;
    let Some((_, (source, watch))) = copy.source else {
        abandon(exec, &copy)?;
        return Ok(Reply::Nil);
    };
    let mut copied = Some(copy.ticket.generation);
    let reply = rename::with_copy((copy.spec, command), exec, &mut copied)?;
    match copied {
        None => {
            exec.txn.state_mut().watches.release(source, watch);
            exec.txn.delete(copy.ends.to.garbage_row(copy.ticket.generation));
        }
        // The command has not stored it.
        Some(_) => abandon(exec, &copy)?,
    }
    Ok(reply)
}

/// Gives up a copy.
fn drop_copy(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let copy = look_up(&args[1], &args[2..], exec)?;
    abandon(exec, &copy)?;
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
            exec.put_unseen(to, row, value);
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
        let mut copying = Copying { command, sizes, asked: Asked::Begin, changes: 0, losses: 0 };
        let first = copying.begin_again();
        (copying, first)
    }

    fn begin_again(&mut self) -> Vec<Bytes> {
        let mut sizes = BytesMut::with_capacity(8);
        sizes.put_u32(self.sizes.elements);
        sizes.put_u32(self.sizes.rows);
        self.asked = Asked::Begin;
        self.asking(BEGIN_NAME, [sizes.freeze()])
    }

    fn asking(&self, name: &'static [u8], more: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
        let head = std::iter::once(Bytes::from_static(name)).chain(more);
        head.chain(self.command.iter().cloned()).collect()
    }

    /// Returns the arguments that drop the copy before its next part. It begins again afterwards.
    pub fn put_off(&mut self) -> Vec<Bytes> {
        self.leave(Then::Begin)
    }

    /// Same as [`put_off`](Copying::put_off), but ends with this reply.
    pub fn give_up(&mut self, reply: Reply) -> Vec<Bytes> {
        self.leave(Then::Reply(reply))
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
            (Asked::Begin, Reply::Array(items)) => {
                let mut items = items.into_iter().filter_map(bulk);
                match items.next() {
                    Some(ticket) => self.go_on(ticket, items.next()),
                    None => Next::Reply(Reply::error("ERR a copy got no ticket")),
                }
            }
            (Asked::Part(ticket), Reply::Array(items)) => {
                let next = items.into_iter().find_map(bulk);
                self.go_on(ticket, next)
            }
            // The source has changed, or the copy was swept.
            (Asked::Part(_) | Asked::End(_), Reply::Nil) => {
                self.changes += 1;
                Next::Ask(match self.changes <= CHANGES_MAX {
                    true => self.begin_again(),
                    false => {
                        self.asked = Asked::Whole;
                        self.command.clone()
                    }
                })
            }
            // A part whose outcome is unknown has changed nothing that anyone sees.
            (Asked::Part(ticket), Reply::Error(text))
                if text.starts_with("UNKNOWN") && self.losses < LOSSES_MAX =>
            {
                self.losses += 1;
                Next::Ask(self.drop_copy(ticket, Then::Begin, 1))
            }
            (Asked::Part(ticket) | Asked::End(ticket), reply @ Reply::Error(_)) => {
                Next::Ask(self.drop_copy(ticket, Then::Reply(reply), 1))
            }
            (Asked::Drop { ticket, then, tries }, Reply::Error(_)) if tries < DROPS_MAX => {
                Next::Ask(self.drop_copy(ticket, then, tries + 1))
            }
            (Asked::Drop { then: Then::Begin, .. }, _) => Next::Ask(self.begin_again()),
            (Asked::Drop { then: Then::Reply(reply), .. }, _) | (_, reply) => Next::Reply(reply),
        }
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

fn bulk(reply: Reply) -> Option<Bytes> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}
