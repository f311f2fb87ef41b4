//! Commands that rename, move or copy a key.

use bytes::Bytes;
use resp::Reply;
use storage::{KeyRef, Meta, StorageError, Value};

use crate::elements::{all_elements, replace};
use crate::error_messages;
use crate::exec::{fail, Collection, CollectionKind, CommandResult, Exec, Key, Limits};
use crate::lists;
use crate::number::database_index;
use crate::sorted_sets;
use crate::spec::CommandSpec;
use crate::streams;

/// The generation of the destination under which the source's rows have been copied already
/// (`copying`). The command that stores them takes it.
type Copied = Option<u64>;

pub(crate) fn rename(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    rename_with(args, exec, &mut None)
}

pub(crate) fn renamenx(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    renamenx_with(args, exec, &mut None)
}

pub(crate) fn copy(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    copy_with(args, exec, &mut None)
}

pub(crate) fn move_key(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    move_with(args, exec, &mut None)
}

/// Executes one of these commands with rows that were copied already.
pub(crate) fn with_copy(
    (spec, args): (&'static CommandSpec, &[Bytes]),
    exec: &mut Exec<'_, '_>,
    copied: &mut Copied,
) -> CommandResult {
    match spec.name {
        "rename" => rename_with(args, exec, copied),
        "renamenx" => renamenx_with(args, exec, copied),
        "copy" => copy_with(args, exec, copied),
        "move" => move_with(args, exec, copied),
        _ => Err(StorageError::Corrupt("a copy in a log entry has no command".into()).into()),
    }
}

/// Returns true for the names of these commands.
pub(crate) fn is_of(name: &str) -> bool {
    matches!(name, "rename" | "renamenx" | "copy" | "move")
}

/// The keys of one of these commands.
pub(crate) struct Ends<'k> {
    pub from: Key<'k>,
    pub to: Key<'k>,
    /// True if the command does nothing when the destination exists.
    pub keeps_existing: bool,
}

/// Returns the keys of the command with this name; `None` if its arguments are wrong.
pub(crate) fn ends<'k>(name: &str, args: &'k [Bytes], exec: &Exec<'_, '_>) -> Option<Ends<'k>> {
    let from = exec.key(args.get(1)?);
    let second = args.get(2)?;
    let (to, keeps_existing) = match name {
        "rename" => (exec.key(second), false),
        "renamenx" => (exec.key(second), true),
        "copy" => {
            let (db, replace) = copy_options(&args[3..], exec.limits.databases).ok()?;
            (Key::from(KeyRef::new(db.unwrap_or(exec.db), second)), !replace)
        }
        "move" => (Key::from(KeyRef::new(database(second, exec).ok()?, &args[1])), true),
        _ => return None,
    };
    Some(Ends { from, to, keeps_existing })
}

fn rename_with(args: &[Bytes], exec: &mut Exec<'_, '_>, copied: &mut Copied) -> CommandResult {
    let (from, to) = (exec.key(&args[1]), exec.key(&args[2]));
    let Some(meta) = exec.find(&from)? else { return fail(error_messages::NO_SUCH_KEY) };
    if from != to {
        duplicate(exec, &from, &meta, &to, copied)?;
        exec.remove(&from, &meta)?;
    }
    Ok(Reply::OK)
}

fn renamenx_with(args: &[Bytes], exec: &mut Exec<'_, '_>, copied: &mut Copied) -> CommandResult {
    let (from, to) = (exec.key(&args[1]), exec.key(&args[2]));
    let Some(meta) = exec.find(&from)? else { return fail(error_messages::NO_SUCH_KEY) };
    if from == to || exec.find(&to)?.is_some() {
        return Ok(Reply::Int(0));
    }
    duplicate(exec, &from, &meta, &to, copied)?;
    exec.remove(&from, &meta)?;
    Ok(Reply::Int(1))
}

/// Parses the options of `COPY`: the other database if one is named, and whether an existing key is
/// replaced.
fn copy_options(args: &[Bytes], databases: u16) -> CommandResult<(Option<u16>, bool)> {
    let (mut db, mut replace) = (None, false);
    let mut options = args.iter();
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"REPLACE") {
            replace = true;
        } else if option.eq_ignore_ascii_case(b"DB") {
            let Some(number) = options.next() else { return fail(error_messages::SYNTAX) };
            db = Some(database_index(number, databases).or_else(fail)?);
        } else {
            return fail(error_messages::SYNTAX);
        }
    }
    Ok((db, replace))
}

/// Returns true for a right `COPY` to another database than 0.
pub(crate) fn copies_to_another_database(args: &[Bytes]) -> bool {
    let options = args.get(3..).map(|options| copy_options(options, Limits::default().databases));
    matches!(options, Some(Ok((Some(1..), _))))
}

fn copy_with(args: &[Bytes], exec: &mut Exec<'_, '_>, copied: &mut Copied) -> CommandResult {
    let (db, replace) = copy_options(&args[3..], exec.limits.databases)?;
    let db = db.unwrap_or(exec.db);
    let (from, to) = (exec.key(&args[1]), Key::from(KeyRef::new(db, &args[2])));
    if from == to {
        return fail(error_messages::SAME_OBJECT);
    }
    let Some(meta) = exec.reading(|exec| exec.find(&from))? else { return Ok(Reply::Int(0)) };
    if exec.find(&to)?.is_some() && !replace {
        return Ok(Reply::Int(0));
    }
    duplicate(exec, &from, &meta, &to, copied)?;
    Ok(Reply::Int(1))
}

fn move_with(args: &[Bytes], exec: &mut Exec<'_, '_>, copied: &mut Copied) -> CommandResult {
    let db = database(&args[2], exec)?;
    let (from, to) = (exec.key(&args[1]), Key::from(KeyRef::new(db, &args[1])));
    if from == to {
        return fail(error_messages::SAME_OBJECT);
    }
    let Some(meta) = exec.find(&from)? else { return Ok(Reply::Int(0)) };
    if exec.find(&to)?.is_some() {
        return Ok(Reply::Int(0));
    }
    duplicate(exec, &from, &meta, &to, copied)?;
    exec.remove(&from, &meta)?;
    Ok(Reply::Int(1))
}

fn database(number: &[u8], exec: &Exec<'_, '_>) -> CommandResult<u16> {
    database_index(number, exec.limits.databases).or_else(fail)
}

/// Copies the value and the expiry time of `from` to `to`, in place of its current value.
fn duplicate(
    exec: &mut Exec<'_, '_>,
    from: &Key<'_>,
    meta: &Meta,
    to: &Key<'_>,
    copied: &mut Copied,
) -> CommandResult<()> {
    if let Value::String(bytes) = &meta.value {
        let old = exec.find(to)?;
        return exec.put_string(to, old.as_ref(), bytes, meta.expire_at_ms);
    }
    if let Value::Stream(stream) = &meta.value {
        return streams::duplicate(exec, from, (stream, meta.expire_at_ms), to);
    }
    let Some(collection) = Collection::of(meta) else { return Ok(()) };
    if let Some(generation) = copied.take() {
        if let Some(old) = exec.find(to)? {
            exec.remove(to, &old)?;
        }
        exec.put_collection(to, None, Collection { generation, ..collection });
        return Ok(());
    }
    match collection.kind {
        kind @ (CollectionKind::Hash | CollectionKind::Set) => {
            let elements = all_elements(exec, from, collection.generation)?;
            replace(exec, to, (kind, meta.expire_at_ms), elements)
        }
        CollectionKind::SortedSet => {
            let members = sorted_sets::all_members(exec, from, collection)?;
            sorted_sets::replace(exec, to, meta.expire_at_ms, &members)
        }
        CollectionKind::List => {
            let elements = lists::all_elements(exec, from, collection)?;
            lists::replace(exec, to, meta.expire_at_ms, elements)
        }
    }
}
