//! `SET` and its variants, and `GETEX`, which shares their options.

use bytes::Bytes;
use resp::Reply;
use storage::{Meta, Value};

use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec, Key};
use crate::number::integer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    /// `EX` (`seconds`) or `PX`, relative to the current time.
    After { seconds: bool },
    /// `EXAT` (`seconds`) or `PXAT`, as a Unix time.
    At { seconds: bool },
}

#[derive(Default)]
struct Options<'a> {
    nx: bool,
    xx: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expiry: Option<(Expiry, &'a Bytes)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Set,
    GetEx,
}

impl<'a> Options<'a> {
    /// Parses the options. As in Redis, an option may be repeated but not contradicted.
    fn parse(args: &'a [Bytes], family: Family) -> CommandResult<Options<'a>> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let is = |name: &str| arg.eq_ignore_ascii_case(name.as_bytes());
            let set = family == Family::Set;
            let expiry = match () {
                _ if is("EX") => Some(Expiry::After { seconds: true }),
                _ if is("PX") => Some(Expiry::After { seconds: false }),
                _ if is("EXAT") => Some(Expiry::At { seconds: true }),
                _ if is("PXAT") => Some(Expiry::At { seconds: false }),
                _ => None,
            };
            if let Some(kind) = expiry {
                let free = options.expiry.is_none_or(|(other, _)| other == kind);
                match args.next() {
                    Some(value) if free && !options.keep_ttl && !options.persist => {
                        options.expiry = Some((kind, value));
                    }
                    _ => return fail(error_messages::SYNTAX),
                }
            } else if is("NX") && set && !options.xx {
                options.nx = true;
            } else if is("XX") && set && !options.nx {
                options.xx = true;
            } else if is("GET") && set {
                options.get = true;
            } else if is("KEEPTTL") && set && options.expiry.is_none() {
                options.keep_ttl = true;
            } else if is("PERSIST") && !set && options.expiry.is_none() {
                options.persist = true;
            } else {
                return fail(error_messages::SYNTAX);
            }
        }
        Ok(options)
    }
}

/// Returns the Unix time in milliseconds that an option specifies.
fn expire_at(exec: &Exec<'_, '_>, kind: Expiry, value: &[u8], command: &str) -> CommandResult<u64> {
    let value = integer(value)?;
    let (Expiry::After { seconds } | Expiry::At { seconds }) = kind;
    let millis = if seconds { value.checked_mul(1000) } else { Some(value) };
    let base = match kind {
        Expiry::After { .. } => i64::try_from(exec.now_ms).unwrap_or(i64::MAX),
        Expiry::At { .. } => 0,
    };
    match millis.filter(|millis| *millis > 0).and_then(|millis| millis.checked_add(base)) {
        Some(at) => Ok(at as u64),
        None => fail(error_messages::invalid_expire(command)),
    }
}

/// Writes a string, or deletes the key immediately if the expiry time has already passed.
fn put(
    exec: &mut Exec<'_, '_>,
    key: &Key<'_>,
    old: Option<&Meta>,
    value: &[u8],
    expire_at_ms: Option<u64>,
) -> CommandResult<()> {
    if expire_at_ms.is_none_or(|at| at > exec.now_ms) {
        return exec.put_string(key, old, value, expire_at_ms);
    }
    match old {
        Some(old) => exec.remove(key, old),
        None => Ok(()),
    }
}

pub(crate) fn set(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let options = Options::parse(&args[3..], Family::Set)?;
    let expire_at_ms = match options.expiry {
        Some((kind, value)) => Some(expire_at(exec, kind, value, "set")?),
        None => None,
    };
    let key = exec.key(&args[1]);
    let old = match options.get {
        true => exec.reading(|exec| exec.find(&key))?,
        false => exec.find(&key)?,
    };
    let answer = match (options.get, &old) {
        (false, _) => Reply::OK,
        (true, None) => Reply::Nil,
        (true, Some(Meta { value: Value::String(bytes), .. })) => Reply::Bulk(bytes.clone()),
        (true, Some(_)) => return fail(error_messages::WRONG_TYPE),
    };
    if (options.nx && old.is_some()) || (options.xx && old.is_none()) {
        return Ok(if options.get { answer } else { Reply::Nil });
    }
    let expire_at_ms = match options.keep_ttl {
        true => old.as_ref().and_then(|old| old.expire_at_ms),
        false => expire_at_ms,
    };
    put(exec, &key, old.as_ref(), &args[2], expire_at_ms)?;
    Ok(answer)
}

pub(crate) fn setnx(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    if exec.find(&key)?.is_some() {
        return Ok(Reply::Int(0));
    }
    exec.put_string(&key, None, &args[2], None)?;
    Ok(Reply::Int(1))
}

pub(crate) fn setex(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    put_for(args, exec, Expiry::After { seconds: true }, "setex")
}

pub(crate) fn psetex(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    put_for(args, exec, Expiry::After { seconds: false }, "psetex")
}

fn put_for(args: &[Bytes], exec: &mut Exec<'_, '_>, kind: Expiry, command: &str) -> CommandResult {
    let at = expire_at(exec, kind, &args[2], command)?;
    let key = exec.key(&args[1]);
    let old = exec.find(&key)?;
    put(exec, &key, old.as_ref(), &args[3], Some(at))?;
    Ok(Reply::OK)
}

pub(crate) fn getset(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let old = exec.reading(|exec| exec.find_string(&key))?;
    let answer = old.as_ref().map_or(Reply::Nil, |old| Reply::Bulk(old.bytes.clone()));
    let old = old.map(|old| Meta { expire_at_ms: old.expire_at_ms, value: Value::String(old.bytes) });
    exec.put_string(&key, old.as_ref(), &args[2], None)?;
    Ok(answer)
}

pub(crate) fn getex(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let options = Options::parse(&args[2..], Family::GetEx)?;
    let key = exec.key(&args[1]);
    let Some(string) = exec.reading(|exec| exec.find_string(&key))? else { return Ok(Reply::Nil) };
    let meta = Meta { expire_at_ms: string.expire_at_ms, value: Value::String(string.bytes.clone()) };
    if let Some((kind, value)) = options.expiry {
        let at = expire_at(exec, kind, value, "getex")?;
        match at > exec.now_ms {
            true => exec.set_expiry(&key, meta, Some(at)),
            false => exec.remove(&key, &meta)?,
        }
    } else if options.persist && meta.expire_at_ms.is_some() {
        exec.set_expiry(&key, meta, None);
    }
    Ok(Reply::Bulk(string.bytes))
}
