//! `ZADD` and `ZINCRBY`.

use bytes::Bytes;
use resp::Reply;

use super::score::score;
use super::Changing;
use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};

/// The options of `ZADD`.
#[derive(Clone, Copy, Default)]
struct Options {
    only_new: bool,
    only_existing: bool,
    only_greater: bool,
    only_less: bool,
    counts_changed: bool,
    increments: bool,
}

pub(crate) fn zadd(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    add(args, exec, Options::default())
}

pub(crate) fn zincrby(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    add(args, exec, Options { increments: true, ..Options::default() })
}

/// Parses the options before the first score, and returns the arguments from it on.
fn parse<'a>(mut args: &'a [Bytes], options: &mut Options) -> &'a [Bytes] {
    while let [word, rest @ ..] = args {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"NX") {
            options.only_new = true;
        } else if is(b"XX") {
            options.only_existing = true;
        } else if is(b"GT") {
            options.only_greater = true;
        } else if is(b"LT") {
            options.only_less = true;
        } else if is(b"CH") {
            options.counts_changed = true;
        } else if is(b"INCR") {
            options.increments = true;
        } else {
            break;
        }
        args = rest;
    }
    args
}

fn add(args: &[Bytes], exec: &mut Exec<'_, '_>, mut options: Options) -> CommandResult {
    let pairs = parse(&args[2..], &mut options);
    if pairs.is_empty() || pairs.len() % 2 != 0 {
        return fail(error_messages::SYNTAX);
    }
    if options.only_new && options.only_existing {
        return fail("ERR XX and NX options at the same time are not compatible");
    }
    if options.only_greater && options.only_less
        || options.only_new && (options.only_greater || options.only_less)
    {
        return fail("ERR GT, LT, and/or NX options at the same time are not compatible");
    }
    if options.increments && pairs.len() > 2 {
        return fail("ERR INCR option supports a single increment-element pair");
    }
    let scores = pairs
        .chunks_exact(2)
        .map(|pair| score(&pair[0], error_messages::NOT_A_FLOAT))
        .collect::<CommandResult<Vec<f64>>>()?;
    let key = exec.key(&args[1]);
    let old = exec.find_sorted_set(&key)?;
    if old.is_none() && options.only_existing {
        return Ok(if options.increments { Reply::Nil } else { Reply::Int(0) });
    }
    let mut changing = Changing::begin(exec, &key, old);
    let (mut added, mut updated) = (0, 0);
    let mut incremented = None;
    for (pair, given) in pairs.chunks_exact(2).zip(scores) {
        let name = &pair[1];
        let current = changing.score(exec, name)?;
        let new = match current {
            Some(current) if options.increments => current + given,
            _ => given,
        };
        match current {
            Some(_) if options.only_new => continue,
            Some(_) if new.is_nan() => return fail("ERR resulting score is not a number (NaN)"),
            Some(current) if options.only_less && new >= current => continue,
            Some(current) if options.only_greater && new <= current => continue,
            Some(current) if new == current => {}
            Some(_) => {
                changing.set(exec, current, (new, name))?;
                updated += 1;
            }
            None if options.only_existing => continue,
            None => {
                changing.set(exec, None, (new, name))?;
                added += 1;
            }
        }
        incremented = Some(new);
    }
    changing.finish(exec);
    Ok(match options.increments {
        true => incremented.map_or(Reply::Nil, Reply::Double),
        false if options.counts_changed => Reply::Int(added + updated),
        false => Reply::Int(added),
    })
}
