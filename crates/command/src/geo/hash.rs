//! Geohashes: places as integers whose bits halve the longitude and the latitude in turn.

/// Bits of each coordinate in a score.
pub(super) const STEPS_MAX: u32 = 26;
const LONGITUDE_MAX: f64 = 180.0;
/// The latitudes of the square map.
const LATITUDE_MAX: f64 = 85.051_128_78;
/// The mean radius of the earth in metres, as Redis has it.
pub(super) const EARTH_RADIUS: f64 = 6_372_797.560_856;
const RADIANS: f64 = std::f64::consts::PI / 180.0;
const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// Letters of a geohash as text. The last one is always the first letter: there are only 52 bits.
const TEXT_LEN: u32 = 11;
const LETTER_BITS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub longitude: f64,
    pub latitude: f64,
}

/// The least and largest coordinate of a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub min: f64,
    pub max: f64,
}

const LONGITUDES: Span = Span { min: -LONGITUDE_MAX, max: LONGITUDE_MAX };
const LATITUDES: Span = Span { min: -LATITUDE_MAX, max: LATITUDE_MAX };
/// The latitudes of geohashes as text, as others compute them.
const ALL_LATITUDES: Span = Span { min: -90.0, max: 90.0 };

/// A cell of the map: the first `steps` bits of each coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub bits: u64,
    pub steps: u32,
}

pub(super) fn is_valid(longitude: f64, latitude: f64) -> bool {
    (LONGITUDES.min..=LONGITUDES.max).contains(&longitude)
        && (LATITUDES.min..=LATITUDES.max).contains(&latitude)
}

/// Returns a number whose bit 2n is bit n.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Returns a number whose bit n is bit 2n.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

fn encoded(point: Point, latitudes: Span, steps: u32) -> Cell {
    let offset = |value: f64, span: Span| {
        let share = (value - span.min) / (span.max - span.min);
        (share * (1u64 << steps) as f64) as u32
    };
    let bits = spread(offset(point.latitude, latitudes)) | spread(offset(point.longitude, LONGITUDES)) << 1;
    Cell { bits, steps }
}

/// Returns the cell of a place.
pub(super) fn cell_of(point: Point, steps: u32) -> Cell {
    encoded(point, LATITUDES, steps)
}

/// Returns the score of a place.
pub(super) fn score_of(point: Point) -> u64 {
    cell_of(point, STEPS_MAX).bits
}

/// Returns the longitudes and latitudes of a cell.
pub(super) fn bounds_of(cell: Cell) -> (Span, Span) {
    let span = |number: u32, all: Span| {
        let (scale, cells) = (all.max - all.min, (1u64 << cell.steps) as f64);
        let edge = |number: f64| all.min + number / cells * scale;
        Span { min: edge(f64::from(number)), max: edge(f64::from(number.wrapping_add(1))) }
    };
    (span(gather(cell.bits >> 1), LONGITUDES), span(gather(cell.bits), LATITUDES))
}

/// Returns the middle of the cell of a score.
pub(super) fn point_of(score: f64) -> Point {
    // A negative score, which is no place, is read as the machines do that Redis runs on.
    let bits = if score < 0.0 { score as i64 as u64 } else { score as u64 };
    let (longitudes, latitudes) = bounds_of(Cell { bits, steps: STEPS_MAX });
    let middle = |span: Span, all: Span| ((span.min + span.max) / 2.0).clamp(all.min, all.max);
    Point { longitude: middle(longitudes, LONGITUDES), latitude: middle(latitudes, LATITUDES) }
}

/// Returns the geohash of a place as text.
pub(super) fn text_of(point: Point) -> Vec<u8> {
    let bits = encoded(point, ALL_LATITUDES, STEPS_MAX).bits;
    (1..=TEXT_LEN)
        .map(|letter| match (2 * STEPS_MAX).checked_sub(letter * LETTER_BITS) {
            Some(shift) => LETTERS[(bits >> shift & 0x1f) as usize],
            None => LETTERS[0],
        })
        .collect()
}

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * RADIANS
}

pub(super) fn degrees(radians: f64) -> f64 {
    radians / RADIANS
}

/// Returns the metres between two latitudes.
pub(super) fn latitude_distance(from: f64, to: f64) -> f64 {
    EARTH_RADIUS * (radians(to) - radians(from)).abs()
}

/// Returns the metres between two places on a sphere, by the haversine formula.
pub(super) fn distance(from: Point, to: Point) -> f64 {
    let half = |from: f64, to: f64| libm::sin((radians(to) - radians(from)) / 2.0);
    let across = half(from.longitude, to.longitude);
    if across == 0.0 {
        return latitude_distance(from.latitude, to.latitude);
    }
    let along = half(from.latitude, to.latitude);
    let (from, to) = (libm::cos(radians(from.latitude)), libm::cos(radians(to.latitude)));
    let share = along * along + from * to * across * across;
    2.0 * EARTH_RADIUS * libm::asin(share.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Point = Point { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Point = Point { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn scores_and_distances_are_those_of_redis() {
        assert_eq!(score_of(PALERMO), 3_479_099_956_230_698);
        assert_eq!(score_of(CATANIA), 3_479_447_370_796_909);
        let [palermo, catania] = [PALERMO, CATANIA].map(|point| point_of(score_of(point) as f64));
        assert_eq!(format!("{:.4}", distance(palermo, catania)), "166274.1516");
        assert_eq!(text_of(palermo), b"sqc8b49rny0");
        assert_eq!(text_of(catania), b"sqdtr74hyu0");
    }

    #[test]
    fn bits_are_spread_and_gathered_again() {
        for number in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
            assert_eq!(gather(spread(number)), number);
        }
        assert_eq!(spread(0b101), 0b10001);
    }

    #[test]
    fn edges_of_the_map_are_places() {
        for (longitude, latitude) in [(180.0, LATITUDE_MAX), (-180.0, -LATITUDE_MAX)] {
            assert!(is_valid(longitude, latitude));
            let point = point_of(score_of(Point { longitude, latitude }) as f64);
            assert!((point.longitude - longitude).abs() < 1e-5 && (point.latitude - latitude).abs() < 1e-5);
        }
        assert!(!is_valid(180.000_001, 0.0) && !is_valid(0.0, f64::INFINITY));
        point_of(-1.0);
        point_of(f64::INFINITY);
        point_of(f64::NEG_INFINITY);
    }
}
