//! Commands on places: sorted sets whose scores are geohashes.
//!
//! A score holds 52 bits of longitude and latitude, which alternate ([`hash`]). The places in a
//! circle or rectangle are found in up to nine cells of one size ([`area`], [`search`]). Sines come
//! from `libm`, which is the same on every machine: distances may be stored.

mod area;
mod hash;
mod search;

use bytes::Bytes;
use resp::Reply;

use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::sorted_sets::add::zadd;
use crate::sorted_sets::score::score;
use crate::sorted_sets::score_of;

use hash::Point;
pub(crate) use search::{
    georadius, georadius_ro, georadiusbymember, georadiusbymember_ro, geosearch, geosearchstore,
};

/// Decimal places of a coordinate in a reply, and of a distance.
const COORDINATE_PLACES: usize = 17;
const DISTANCE_PLACES: usize = 4;

pub(crate) fn geoadd(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let is = |word: &Bytes, name: &[u8]| word.eq_ignore_ascii_case(name);
    let options = args[2..].iter().take_while(|word| is(word, b"NX") || is(word, b"XX") || is(word, b"CH"));
    let (options, places) = args[2..].split_at(options.count());
    let has = |name: &[u8]| options.iter().any(|word| is(word, name));
    if places.len() % 3 != 0 || has(b"NX") && has(b"XX") {
        return fail(error_messages::SYNTAX);
    }
    let mut words = vec![Bytes::from_static(b"ZADD"), args[1].clone()];
    words.extend_from_slice(options);
    for place in places.chunks_exact(3) {
        let point = point(&place[0], &place[1])?;
        words.extend([Bytes::from(hash::score_of(point).to_string()), place[2].clone()]);
    }
    zadd(&words, exec)
}

/// Parses a longitude and a latitude.
fn point(longitude: &[u8], latitude: &[u8]) -> CommandResult<Point> {
    let longitude = score(longitude, error_messages::NOT_A_FLOAT)?;
    let latitude = score(latitude, error_messages::NOT_A_FLOAT)?;
    match hash::is_valid(longitude, latitude) {
        true => Ok(Point { longitude, latitude }),
        false => fail(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")),
    }
}

/// Returns the metres of a unit.
fn unit(word: &[u8]) -> CommandResult<f64> {
    Ok(match word.to_ascii_lowercase().as_slice() {
        b"m" => 1.0,
        b"km" => 1000.0,
        b"ft" => 0.3048,
        b"mi" => 1609.34,
        _ => return fail("ERR unsupported unit provided. please use M, KM, FT, MI"),
    })
}

fn distance_text(distance: f64) -> Reply {
    Reply::bulk(format!("{distance:.DISTANCE_PLACES$}"))
}

/// Returns a coordinate with all its decimal places but trailing zeros.
fn coordinate(exec: &Exec<'_, '_>, value: f64) -> Reply {
    let text = format!("{value:.COORDINATE_PLACES$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    match exec.resp3 {
        true => Reply::Double(text.parse().unwrap_or(value)),
        false => Reply::bulk(text.to_owned()),
    }
}

fn coordinates(exec: &Exec<'_, '_>, point: Point) -> Reply {
    Reply::Array(vec![coordinate(exec, point.longitude), coordinate(exec, point.latitude)])
}

pub(crate) fn geodist(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let metres = match &args[4..] {
        [] => 1.0,
        [word] => unit(word)?,
        _ => return fail(error_messages::SYNTAX),
    };
    let key = exec.key(&args[1]);
    let Some(set) = exec.find_sorted_set(&key)? else { return Ok(Reply::Nil) };
    let from = score_of(exec, &key, set, &args[2])?;
    let to = score_of(exec, &key, set, &args[3])?;
    Ok(match (from, to) {
        (Some(from), Some(to)) => {
            distance_text(hash::distance(hash::point_of(from), hash::point_of(to)) / metres)
        }
        _ => Reply::Nil,
    })
}

pub(crate) fn geohash(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    of_members(args, exec, Reply::Nil, |_, point| Reply::bulk(hash::text_of(point)))
}

pub(crate) fn geopos(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    of_members(args, exec, Reply::NilArray, coordinates)
}

/// Replies what `show` makes of each member's place, and `absent` where there is no member.
fn of_members(
    args: &[Bytes],
    exec: &mut Exec<'_, '_>,
    absent: Reply,
    show: impl Fn(&Exec<'_, '_>, Point) -> Reply,
) -> CommandResult {
    let key = exec.key(&args[1]);
    let set = exec.find_sorted_set(&key)?;
    let mut replies = Vec::with_capacity(args.len() - 2);
    for name in &args[2..] {
        let score = match set {
            Some(set) => score_of(exec, &key, set, name)?,
            None => None,
        };
        replies.push(score.map_or(absent.clone(), |score| show(exec, hash::point_of(score))));
    }
    Ok(Reply::Array(replies))
}
