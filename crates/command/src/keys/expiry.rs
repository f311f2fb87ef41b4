//! Commands on the expiry times of keys.

use bytes::Bytes;
use resp::Reply;

use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::integer;

pub(crate) fn expire(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    set_time(args, exec, true, true, "expire")
}

pub(crate) fn pexpire(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    set_time(args, exec, true, false, "pexpire")
}

pub(crate) fn expireat(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    set_time(args, exec, false, true, "expireat")
}

pub(crate) fn pexpireat(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    set_time(args, exec, false, false, "pexpireat")
}

#[derive(Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: &[Bytes]) -> CommandResult<Conditions> {
        let mut conditions = Conditions::default();
        for arg in args {
            match arg.to_ascii_uppercase().as_slice() {
                b"NX" => conditions.nx = true,
                b"XX" => conditions.xx = true,
                b"GT" => conditions.gt = true,
                b"LT" => conditions.lt = true,
                _ => return fail(error_messages::unsupported_option(arg)),
            }
        }
        let Conditions { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            return fail("ERR NX and XX, GT or LT options at the same time are not compatible");
        }
        if gt && lt {
            return fail("ERR GT and LT options at the same time are not compatible");
        }
        Ok(conditions)
    }

    /// Returns true if the conditions permit the new time. A key without an expiry time counts as
    /// one that expires later than any time.
    fn allow(&self, current: Option<u64>, new: i64) -> bool {
        let current = current.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        !(self.nx && current.is_some()
            || self.xx && current.is_none()
            || self.gt && current.is_none_or(|current| new <= current)
            || self.lt && current.is_some_and(|current| new >= current))
    }
}

fn set_time(
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
    relative: bool,
    seconds: bool,
    command: &str,
) -> CommandResult {
    let conditions = Conditions::parse(&args[3..])?;
    let value = integer(&args[2])?;
    let millis = if seconds { value.checked_mul(1000) } else { Some(value) };
    let now = i64::try_from(exec.now_ms).unwrap_or(i64::MAX);
    let base = if relative { now } else { 0 };
    let Some(at) = millis.and_then(|millis| millis.checked_add(base)) else {
        return fail(error_messages::invalid_expire(command));
    };
    let key = exec.key(&args[1]);
    let Some(meta) = exec.find(&key)? else { return Ok(Reply::Int(0)) };
    if !conditions.allow(meta.expire_at_ms, at) {
        return Ok(Reply::Int(0));
    }
    match u64::try_from(at) {
        Ok(at) if at > exec.now_ms => exec.set_expiry(&key, meta, Some(at)),
        _ => exec.remove(&key, &meta)?,
    }
    Ok(Reply::Int(1))
}

pub(crate) fn ttl(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let now = exec.now_ms;
    time_of(args, exec, |at| (at - now).saturating_add(500) / 1000)
}

pub(crate) fn pttl(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let now = exec.now_ms;
    time_of(args, exec, |at| at - now)
}

pub(crate) fn expiretime(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    time_of(args, exec, |at| at.saturating_add(500) / 1000)
}

pub(crate) fn pexpiretime(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    time_of(args, exec, |at| at)
}

/// Replies -2 if there is no key and -1 if it has no expiry time. A key that was found has not
/// expired, so its time is in the future.
fn time_of(args: &[Bytes], exec: &mut Exec<'_, '_>, answer: impl Fn(u64) -> u64) -> CommandResult {
    let key = exec.key(&args[1]);
    Ok(Reply::Int(match exec.peek(&key)?.map(|meta| meta.expire_at_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => i64::try_from(answer(at)).unwrap_or(i64::MAX),
    }))
}

pub(crate) fn persist(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    match exec.find(&key)? {
        Some(meta) if meta.expire_at_ms.is_some() => {
            exec.set_expiry(&key, meta, None);
            Ok(Reply::Int(1))
        }
        _ => Ok(Reply::Int(0)),
    }
}
