//! `GEOSEARCH`, `GEORADIUS` and their kin.

use std::ops::ControlFlow;

use bytes::Bytes;
use resp::Reply;

use super::area::{cells, scores, Shape};
use super::hash::{point_of, Point};
use super::{coordinates, distance_text, point, unit};
use crate::error_messages;
use crate::exec::{fail, Collection, CommandResult, Exec, Key};
use crate::number::integer;
use crate::sorted_sets::score::score;
use crate::sorted_sets::{replace, score_of, visit_scores, Member};

const NO_MEMBER: &str = "ERR could not decode requested zset member";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

/// The form of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `GEORADIUS` and `GEORADIUSBYMEMBER`, which may name a destination unless they only read.
    Radius {
        stores: bool,
    },
    Search,
    SearchStore,
}

/// The arguments of a search.
struct Query<'a> {
    middle: Option<Point>,
    names_middle: bool,
    shape: Option<Shape>,
    /// The metres of the unit.
    unit: f64,
    with_distance: bool,
    with_hash: bool,
    with_coordinates: bool,
    any: bool,
    order: Option<Order>,
    /// Maximum number of results, or 0.
    count: usize,
    destination: Option<&'a Bytes>,
    stores_distance: bool,
}

impl Query<'_> {
    fn new() -> Self {
        Query {
            middle: None,
            names_middle: false,
            shape: None,
            unit: 1.0,
            with_distance: false,
            with_hash: false,
            with_coordinates: false,
            any: false,
            order: None,
            count: 0,
            destination: None,
            stores_distance: false,
        }
    }
}

/// The sorted set that is searched.
struct Places<'k> {
    key: Key<'k>,
    set: Option<Collection>,
}

impl<'k> Places<'k> {
    fn find(exec: &mut Exec<'_, '_>, key: Key<'k>) -> CommandResult<Places<'k>> {
        let set = exec.reading(|exec| exec.find_sorted_set(&key))?;
        Ok(Places { key, set })
    }

    /// Returns the place of a member; `None` if the key does not exist, which is no error.
    fn middle(&self, exec: &Exec<'_, '_>, name: &[u8]) -> CommandResult<Option<Point>> {
        let Some(set) = self.set else { return Ok(None) };
        match score_of(exec, &self.key, set, name)? {
            Some(score) => Ok(Some(point_of(score))),
            None => fail(NO_MEMBER),
        }
    }
}

fn circle(radius: &[u8], word: &[u8]) -> CommandResult<(Shape, f64)> {
    let radius = score(radius, "ERR need numeric radius")?;
    if radius < 0.0 {
        return fail("ERR radius cannot be negative");
    }
    let metres = unit(word)?;
    Ok((Shape::Circle { radius: radius * metres }, metres))
}

fn rectangle(width: &[u8], height: &[u8], word: &[u8]) -> CommandResult<(Shape, f64)> {
    let width = score(width, "ERR need numeric width")?;
    let height = score(height, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return fail("ERR height or width cannot be negative");
    }
    let metres = unit(word)?;
    Ok((Shape::Rectangle { width: width * metres, height: height * metres }, metres))
}

pub(crate) fn georadius(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    by_radius(args, exec, true)
}

pub(crate) fn georadius_ro(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    by_radius(args, exec, false)
}

fn by_radius(args: &[Bytes], exec: &mut Exec<'_, '_>, stores: bool) -> CommandResult {
    let key = exec.key(&args[1]);
    let places = Places::find(exec, key)?;
    let mut query = Query::new();
    query.middle = Some(point(&args[2], &args[3])?);
    let (shape, metres) = circle(&args[4], &args[5])?;
    (query.shape, query.unit) = (Some(shape), metres);
    search(&args[0], &args[6..], exec, (&places, Form::Radius { stores }), query)
}

pub(crate) fn georadiusbymember(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    by_member(args, exec, true)
}

pub(crate) fn georadiusbymember_ro(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    by_member(args, exec, false)
}

fn by_member(args: &[Bytes], exec: &mut Exec<'_, '_>, stores: bool) -> CommandResult {
    let key = exec.key(&args[1]);
    let places = Places::find(exec, key)?;
    let mut query = Query::new();
    // Without a key only the options are checked.
    if places.set.is_some() {
        query.middle = places.middle(exec, &args[2])?;
        let (shape, metres) = circle(&args[3], &args[4])?;
        (query.shape, query.unit) = (Some(shape), metres);
    }
    search(&args[0], &args[5..], exec, (&places, Form::Radius { stores }), query)
}

pub(crate) fn geosearch(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let places = Places::find(exec, key)?;
    search(&args[0], &args[2..], exec, (&places, Form::Search), Query::new())
}

pub(crate) fn geosearchstore(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[2]);
    let places = Places::find(exec, key)?;
    let query = Query { destination: Some(&args[1]), ..Query::new() };
    search(&args[0], &args[3..], exec, (&places, Form::SearchStore), query)
}

/// Parses the options of a search.
fn parse<'a>(
    mut options: &'a [Bytes],
    exec: &Exec<'_, '_>,
    (places, form): (&Places<'_>, Form),
    query: &mut Query<'a>,
) -> CommandResult<()> {
    let searches = matches!(form, Form::Search | Form::SearchStore);
    let (mut by_place, mut by_circle, mut by_rectangle) = (false, false, false);
    let mut by_name = false;
    while let [word, rest @ ..] = options {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        options = match rest {
            _ if is(b"WITHDIST") => {
                query.with_distance = true;
                rest
            }
            _ if is(b"WITHHASH") => {
                query.with_hash = true;
                rest
            }
            _ if is(b"WITHCOORD") => {
                query.with_coordinates = true;
                rest
            }
            _ if is(b"ANY") => {
                query.any = true;
                rest
            }
            _ if is(b"ASC") => {
                query.order = Some(Order::Ascending);
                rest
            }
            _ if is(b"DESC") => {
                query.order = Some(Order::Descending);
                rest
            }
            [number, rest @ ..] if is(b"COUNT") => {
                query.count = match usize::try_from(integer(number)?) {
                    Ok(count) if count > 0 => count,
                    _ => return fail("ERR COUNT must be > 0"),
                };
                rest
            }
            [key, rest @ ..]
                if form == (Form::Radius { stores: true }) && (is(b"STORE") || is(b"STOREDIST")) =>
            {
                query.destination = Some(key);
                query.stores_distance = is(b"STOREDIST");
                rest
            }
            _ if form == Form::SearchStore && is(b"STOREDIST") => {
                query.stores_distance = true;
                rest
            }
            [name, rest @ ..] if searches && is(b"FROMMEMBER") && !by_place => {
                query.middle = places.middle(exec, name)?;
                by_name = true;
                rest
            }
            [longitude, latitude, rest @ ..] if searches && is(b"FROMLONLAT") && !by_name => {
                query.middle = Some(point(longitude, latitude)?);
                by_place = true;
                rest
            }
            [radius, unit, rest @ ..] if searches && is(b"BYRADIUS") && !by_rectangle => {
                let (shape, metres) = circle(radius, unit)?;
                (query.shape, query.unit) = (Some(shape), metres);
                by_circle = true;
                rest
            }
            [width, height, unit, rest @ ..] if searches && is(b"BYBOX") && !by_circle => {
                let (shape, metres) = rectangle(width, height, unit)?;
                (query.shape, query.unit) = (Some(shape), metres);
                by_rectangle = true;
                rest
            }
            _ => return fail(error_messages::SYNTAX),
        };
    }
    query.names_middle = by_name || by_place || !searches;
    Ok(())
}

/// Number of items for which a place counts, in a reply with everything about it.
const HELD_PLACE: usize = 7;

/// A place that was found.
struct Found {
    name: Bytes,
    score: f64,
    point: Point,
    distance: f64,
}

fn search<'a>(
    name: &[u8],
    options: &'a [Bytes],
    exec: &mut Exec<'_, '_>,
    (places, form): (&Places<'_>, Form),
    mut query: Query<'a>,
) -> CommandResult {
    parse(options, exec, (places, form), &mut query)?;
    let shows = query.with_distance || query.with_hash || query.with_coordinates;
    if query.destination.is_some() && shows {
        let what = match form {
            Form::SearchStore => "GEOSEARCHSTORE",
            _ => "STORE option in GEORADIUS",
        };
        return fail(format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"));
    }
    if !matches!(form, Form::Radius { .. }) {
        let name = String::from_utf8_lossy(name);
        if !query.names_middle {
            return fail(format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"));
        }
        if query.shape.is_none() {
            return fail(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"));
        }
    }
    if query.any && query.count == 0 {
        return fail("ERR the ANY argument requires COUNT argument");
    }
    let found = match (places.set, query.middle, query.shape) {
        (Some(set), Some(middle), Some(shape)) => find(exec, (&places.key, set), (middle, shape), &query)?,
        _ => Vec::new(),
    };
    match query.destination {
        Some(destination) => store(exec, destination, found, &query),
        None => Ok(show(exec, found, &query)),
    }
}

/// Returns the places in a shape, sorted and cut as the query says.
fn find(
    exec: &Exec<'_, '_>,
    (key, set): (&Key<'_>, Collection),
    (middle, shape): (Point, Shape),
    query: &Query<'_>,
) -> CommandResult<Vec<Found>> {
    let enough = if query.any { query.count } else { usize::MAX };
    let mut found = Vec::new();
    for cell in cells(&shape, middle) {
        if found.len() >= enough {
            break;
        }
        let (from, below) = scores(cell);
        visit_scores(exec, key, set, from, &mut |score, name| {
            if score >= below {
                return ControlFlow::Break(());
            }
            let point = point_of(score);
            let Some(distance) = shape.distance_inside(middle, point) else {
                return ControlFlow::Continue(());
            };
            let bytes = name.len();
            found.push(Found { name, score, point, distance });
            match found.len() >= enough {
                true => ControlFlow::Break(()),
                false => exec.holding(HELD_PLACE, bytes),
            }
        })?;
        exec.check_held()?;
    }
    // The closest ones are asked for, unless any are.
    let order = query.order.or((query.count > 0 && !query.any).then_some(Order::Ascending));
    match order {
        Some(Order::Ascending) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
        Some(Order::Descending) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
        None => {}
    }
    if query.count > 0 {
        found.truncate(query.count);
    }
    Ok(found)
}

fn show(exec: &Exec<'_, '_>, found: Vec<Found>, query: &Query<'_>) -> Reply {
    let shown = found.into_iter().map(|place| {
        let name = Reply::Bulk(place.name);
        if !(query.with_distance || query.with_hash || query.with_coordinates) {
            return name;
        }
        let mut parts = vec![name];
        if query.with_distance {
            parts.push(distance_text(place.distance / query.unit));
        }
        if query.with_hash {
            parts.push(Reply::Int(place.score as i64));
        }
        if query.with_coordinates {
            parts.push(coordinates(exec, place.point));
        }
        Reply::Array(parts)
    });
    Reply::Array(shown.collect())
}

fn store(
    exec: &mut Exec<'_, '_>,
    destination: &Bytes,
    found: Vec<Found>,
    query: &Query<'_>,
) -> CommandResult {
    let count = found.len();
    let mut members: Vec<Member> = found
        .into_iter()
        .map(|place| {
            let score = if query.stores_distance { place.distance / query.unit } else { place.score };
            Member { score, name: place.name }
        })
        .collect();
    members.sort_by(Member::order);
    members.dedup_by(|next, before| next.name == before.name);
    let key = exec.key(destination);
    replace(exec, &key, None, &members)?;
    Ok(Reply::Int(count as i64))
}
