//! The curve through measured pairs: the least-squares polynomial among those of a degree that
//! never fall over the measured range and start at or above a floor.
//!
//! A polynomial over `[low, high]` is represented by its Bernstein values. With `t = (x − low) /
//! (high − low)` it is `Σ v_j · B_j(t)`, where `B_j(t) = C(d, j) · t^j · (1 − t)^(d − j)`. It never
//! falls if `v_0 ≤ v_1 ≤ … ≤ v_d` (for degrees 1 and 2, only then). So the constraint is one on
//! numbers. Evaluation takes weighted means of positive numbers only, so no digits cancel.
//!
//! In the unknowns `v_0` and the rises `v_j − v_(j−1)`, every constraint is a lower bound of one
//! unknown. The set of bounds that hold with equality at the optimum is found by trying all of
//! them. With a degree of at most 3 these are 16 small systems.

pub const DEGREE_MAX: usize = 3;

/// Magnitude below which a negative unknown counts as zero, where the largest y is scaled to 1.
const ROUNDING: f64 = 1e-11;
/// The relative remainder at which a column counts as a combination of the others.
const DEPENDENT: f64 = 1e-9;

#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    low: f64,
    high: f64,
    /// `v_0 … v_d`: at least one, all positive, never falling.
    values: Vec<f64>,
}

impl Curve {
    /// Fits a curve. There must be at least one point, and all coordinates must be positive and
    /// finite. The degree must be less than the number of different x.
    pub fn through(points: &[(f64, f64)], degree: usize, floor: f64) -> Curve {
        assert!(!points.is_empty() && degree <= DEGREE_MAX, "a curve needs a point and a degree up to 3");
        let low = points.iter().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
        let unit = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        let rows: Vec<Vec<f64>> = points.iter().map(|(x, _)| rises(degree, place(low, high, *x))).collect();
        let wanted: Vec<f64> = points.iter().map(|(_, y)| (y - floor) / unit).collect();
        // The solution in which all bounds hold with equality, which is always valid.
        let mut best = (squares(&wanted), vec![0.0; degree + 1]);
        for bound in 0..1u32 << (degree + 1) {
            let free: Vec<usize> = (0..=degree).filter(|unknown| bound & (1 << unknown) == 0).collect();
            let Some(solved) = least_squares(&rows, &free, &wanted) else { continue };
            if solved.iter().any(|value| *value < -ROUNDING) {
                continue;
            }
            let mut unknowns = vec![0.0; degree + 1];
            for (unknown, value) in free.iter().zip(solved) {
                unknowns[*unknown] = value.max(0.0);
            }
            let left: Vec<f64> = rows.iter().zip(&wanted).map(|(row, y)| y - dot(row, &unknowns)).collect();
            if squares(&left) < best.0 {
                best = (squares(&left), unknowns);
            }
        }
        let mut value = floor;
        let values = best.1.iter().map(|rise| {
            value += rise * unit;
            value
        });
        Curve { low, high, values: values.collect() }
    }

    /// Evaluates the curve at `x`. The result is positive and never falls with `x`: the polynomial
    /// over the measured range, proportional below it, and continued along the last slope above it,
    /// but at most proportionally.
    pub fn at(&self, x: f64) -> f64 {
        let (first, last) = (self.values[0], self.values[self.values.len() - 1]);
        if x < self.low {
            first * (x / self.low)
        } else if x > self.high {
            last + self.slope_above() * (x - self.high)
        } else {
            self.inside(place(self.low, self.high, x))
        }
    }

    /// Evaluates the polynomial by De Casteljau's algorithm.
    fn inside(&self, t: f64) -> f64 {
        let mut values = self.values.clone();
        while values.len() > 1 {
            values = values.windows(2).map(|two| two[0] + (two[1] - two[0]) * t).collect();
        }
        values[0]
    }

    fn slope_above(&self) -> f64 {
        let last = self.values[self.values.len() - 1];
        let proportional = last / self.high;
        match self.values.len().checked_sub(2) {
            Some(before) => {
                let degree = (before + 1) as f64;
                (degree * (last - self.values[before]) / (self.high - self.low)).min(proportional)
            }
            // One speed does not tell how the curve bends.
            None => proportional,
        }
    }

    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns the coefficients of `1, x, x², …` over the measured range.
    pub fn coefficients(&self) -> Vec<f64> {
        let degree = self.values.len() - 1;
        // Coefficients of powers of t: C(d, j) times the j-th forward difference at 0.
        let mut differences = self.values.clone();
        let mut of_t = Vec::new();
        for power in 0..=degree {
            of_t.push(choose(degree, power) * differences[0]);
            differences = differences.windows(2).map(|two| two[1] - two[0]).collect();
        }
        // Horner's method with t = slope · x + shift.
        let width = self.high - self.low;
        let (slope, shift) = if width > 0.0 { (1.0 / width, -self.low / width) } else { (0.0, 0.0) };
        let mut of_x = vec![0.0; degree + 1];
        for coefficient in of_t.iter().rev() {
            for power in (0..=degree).rev() {
                let below = if power > 0 { of_x[power - 1] * slope } else { *coefficient };
                of_x[power] = of_x[power] * shift + below;
            }
        }
        of_x
    }
}

fn place(low: f64, high: f64, x: f64) -> f64 {
    if high > low {
        (x - low) / (high - low)
    } else {
        0.0
    }
}

/// Returns the contributions of `v_0` and of each rise at `t`: 1, and `Σ B_j(t)` over all j from
/// that rise on.
fn rises(degree: usize, t: f64) -> Vec<f64> {
    let bernstein = |j: usize| choose(degree, j) * t.powi(j as i32) * (1.0 - t).powi((degree - j) as i32);
    (0..=degree).map(|from| if from == 0 { 1.0 } else { (from..=degree).map(bernstein).sum() }).collect()
}

fn choose(n: usize, k: usize) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn squares(values: &[f64]) -> f64 {
    dot(values, values)
}

/// Solves by QR after Gram and Schmidt. Each column is orthogonalized twice, which is as accurate
/// as Householder's method. Returns `None` if the columns are linearly dependent.
fn least_squares(rows: &[Vec<f64>], columns: &[usize], wanted: &[f64]) -> Option<Vec<f64>> {
    let count = columns.len();
    let mut q: Vec<Vec<f64>> = Vec::with_capacity(count);
    let mut r = vec![vec![0.0; count]; count];
    for (at, column) in columns.iter().enumerate() {
        let mut vector: Vec<f64> = rows.iter().map(|row| row[*column]).collect();
        let length = squares(&vector).sqrt();
        for _ in 0..2 {
            for (before, known) in q.iter().enumerate() {
                let part = dot(known, &vector);
                r[before][at] += part;
                vector.iter_mut().zip(known).for_each(|(value, k)| *value -= part * k);
            }
        }
        r[at][at] = squares(&vector).sqrt();
        if r[at][at] <= DEPENDENT * length {
            return None;
        }
        q.push(vector.iter().map(|value| value / r[at][at]).collect());
    }
    let mut solution = vec![0.0; count];
    for at in (0..count).rev() {
        let known: f64 = (at + 1..count).map(|later| r[at][later] * solution[later]).sum();
        solution[at] = (dot(&q[at], wanted) - known) / r[at][at];
    }
    Some(solution)
}

#[cfg(test)]
impl Curve {
    /// Moves to another curve of the same degree. Returns false if that violates the constraints.
    pub fn nudge(&mut self, by: &[f64], floor: f64) -> bool {
        let unit = self.values[self.values.len() - 1];
        self.values.iter_mut().zip(by).for_each(|(value, by)| *value += by * unit);
        self.values[0] >= floor && self.values.windows(2).all(|two| two[0] <= two[1])
    }
}
