//! The cells that cover a circle or a rectangle: the cell of its middle and the eight around it.

use super::hash::{
    bounds_of, cell_of, degrees, distance, latitude_distance, radians, Cell, Point, EARTH_RADIUS, STEPS_MAX,
};

/// Half of the earth's circumference on the square map, in metres.
const HALF_MAP: f64 = 20_037_726.37;
const EVEN_BITS: u64 = 0x5555_5555_5555_5555;
const ODD_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A shape around a place, in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

impl Shape {
    /// Returns the distance of a place from the middle, if it is inside.
    pub fn distance_inside(&self, middle: Point, place: Point) -> Option<f64> {
        match *self {
            Shape::Circle { radius } => Some(distance(middle, place)).filter(|distance| *distance <= radius),
            Shape::Rectangle { width, height } => {
                let beside = Point { longitude: middle.longitude, ..place };
                let is_inside = latitude_distance(place.latitude, middle.latitude) <= height / 2.0
                    && distance(place, beside) <= width / 2.0;
                is_inside.then(|| distance(middle, place))
            }
        }
    }

    /// Returns the distance of the farthest point from the middle.
    fn radius(&self) -> f64 {
        match *self {
            Shape::Circle { radius } => radius,
            Shape::Rectangle { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        }
    }

    /// Returns the west, south, east and north edge of the shape in degrees. The parallel that is
    /// nearer to the equator counts for a southern middle, as in Redis.
    fn edges(&self, middle: Point) -> [f64; 4] {
        let (width, height) = match *self {
            Shape::Circle { radius } => (radius, radius),
            Shape::Rectangle { width, height } => (width / 2.0, height / 2.0),
        };
        let Point { longitude, latitude } = middle;
        let north = degrees(height / EARTH_RADIUS);
        let parallel = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = degrees(width / EARTH_RADIUS / libm::cos(radians(parallel)));
        [longitude - east, latitude - north, longitude + east, latitude + north]
    }
}

/// Returns the number of bits of each coordinate for cells that are not smaller than the shape.
fn steps_for(radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEPS_MAX;
    }
    let (mut radius, mut steps) = (radius, 1i32);
    while radius < HALF_MAP {
        radius *= 2.0;
        steps += 1;
    }
    // One for the shape's diameter, and one so that its edges are inside in most cases.
    steps -= 2;
    // Cells are narrower towards the poles.
    if latitude.abs() > 66.0 {
        steps -= 1;
        if latitude.abs() > 80.0 {
            steps -= 1;
        }
    }
    steps.clamp(1, STEPS_MAX as i32) as u32
}

/// Returns the cell beside a cell, `east` and `north` cells away, around the edges of the map.
fn beside(cell: Cell, east: i8, north: i8) -> Cell {
    let shift = 64 - 2 * cell.steps;
    // Adds one to the number in the bits of `own`, while the others are full or empty.
    let moved = |own: u64, others: u64, by: i8| {
        let others = others >> shift;
        let number = match by {
            0 => cell.bits & own,
            1.. => (cell.bits & own).wrapping_add(others.wrapping_add(1)),
            _ => (cell.bits & own | others).wrapping_sub(others.wrapping_add(1)),
        };
        match by {
            0 => number,
            _ => number & own >> shift,
        }
    };
    let bits = moved(ODD_BITS, EVEN_BITS, east) | moved(EVEN_BITS, ODD_BITS, north);
    Cell { bits, steps: cell.steps }
}

/// The middle and its neighbours as (east, north), in the order in which they are searched.
const AROUND: [(i8, i8); 9] = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// Returns the cells that may hold places of a shape, in the order in which they are searched.
pub(super) fn cells(shape: &Shape, middle: Point) -> Vec<Cell> {
    let [west, south, east, north] = shape.edges(middle);
    let mut steps = steps_for(shape.radius(), middle.latitude);
    let mut cell = cell_of(middle, steps);
    let around = |cell, (east, north)| bounds_of(beside(cell, east, north));
    let is_too_small = around(cell, (0, 1)).1.max < north
        || around(cell, (0, -1)).1.min > south
        || around(cell, (1, 0)).0.max < east
        || around(cell, (-1, 0)).0.min > west;
    if steps > 1 && is_too_small {
        steps -= 1;
        cell = cell_of(middle, steps);
    }
    let (longitudes, latitudes) = bounds_of(cell);
    let is_needed = |(to_east, to_north): (i8, i8)| {
        steps < 2
            || !(latitudes.min < south && to_north < 0
                || latitudes.max > north && to_north > 0
                || longitudes.min < west && to_east < 0
                || longitudes.max > east && to_east > 0)
    };
    let mut cells: Vec<Cell> = Vec::with_capacity(AROUND.len());
    for (at, place) in AROUND.into_iter().enumerate().filter(|(_, place)| is_needed(*place)) {
        let next = beside(cell, place.0, place.1);
        // Around the whole earth neighbours are the same. As in Redis, a cell is compared with the
        // one searched before it, unless that is the middle.
        let is_repeated = at > 0 && cells.len() > 1 && cells.last() == Some(&next);
        if !is_repeated {
            cells.push(next);
        }
    }
    cells
}

/// Returns the scores of a cell: from the first number on, below the second.
pub(super) fn scores(cell: Cell) -> (f64, f64) {
    let shift = 2 * (STEPS_MAX - cell.steps);
    let score = |bits: u64| (bits << shift) as f64;
    (score(cell.bits), score(cell.bits + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_beside_a_cell_go_around_the_map() {
        let cell = cell_of(Point { longitude: 179.9, latitude: 0.1 }, 10);
        let (longitudes, _) = bounds_of(beside(cell, 1, 0));
        assert_eq!(longitudes.min, -180.0);
        let back = beside(beside(cell, 1, 1), -1, -1);
        assert_eq!(back, cell);
        let (_, north) = bounds_of(beside(cell, 0, 1));
        assert_eq!(north.min, bounds_of(cell).1.max);
    }

    #[test]
    fn the_places_at_the_edges_of_a_circle_are_in_its_cells() {
        for (longitude, latitude) in [(15.0, 37.0), (-0.000_01, 0.000_01), (100.0, -70.0)] {
            let middle = Point { longitude, latitude };
            for radius in [1.0, 777.0, 200_000.0] {
                let ranges: Vec<(f64, f64)> =
                    cells(&Shape::Circle { radius }, middle).into_iter().map(scores).collect();
                assert!(ranges.len() <= AROUND.len());
                let north = degrees(0.99 * radius / EARTH_RADIUS);
                let east = north / libm::cos(radians(latitude));
                for (to_east, to_north) in
                    [(0.0, 0.0), (0.0, north), (0.0, -north), (east, 0.0), (-east, 0.0)]
                {
                    let place = Point { longitude: longitude + to_east, latitude: latitude + to_north };
                    let score = cell_of(place, STEPS_MAX).bits as f64;
                    let is_covered = ranges.iter().any(|(from, below)| (*from..*below).contains(&score));
                    assert!(is_covered, "{place:?} in {radius} m around {middle:?}");
                }
            }
        }
        let (from, to) = scores(cell_of(Point { longitude: 15.0, latitude: 37.0 }, STEPS_MAX));
        assert_eq!(to - from, 1.0);
    }
}
