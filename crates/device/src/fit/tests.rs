use proptest::prelude::*;

use super::*;

fn pair(name: &str, io: f64, kv: f64) -> Pair {
    Pair { name: name.into(), io_bytes_per_s: io, kv_bytes_per_s: kv }
}

fn fit(points: &[(f64, f64)], degree: usize) -> Fit {
    let pairs = points.iter().map(|(io, kv)| pair("device", *io, *kv)).collect();
    Fit::of(pairs, degree, "a test".into()).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn an_exact_polynomial_is_recovered() {
    let line = |x: f64| 3e6 + 0.01 * x;
    let bend = |x: f64| 5e6 + 0.03 * x - 2e-12 * x * x;
    let cubic = |x: f64| 4e6 + 0.02 * x + 1e-12 * x * x + 1e-22 * x * x * x;
    let at = [0.5e9, 1e9, 2e9, 3.5e9, 5e9];
    let check = |degree: usize, wanted: &[f64], curve: &dyn Fn(f64) -> f64| {
        let fit = fit(&at.map(|x| (x, curve(x))), degree);
        let found = fit.coefficients();
        assert_eq!(found.len(), degree + 1);
        for (power, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            let error = (found - wanted).abs() * 5e9_f64.powi(power as i32);
            assert!(error < 1e-3, "degree {degree}, power {power}: {found} for {wanted}");
        }
        assert!(fit.residuals().iter().all(|residual| residual.abs() < 1e-3));
        assert!((fit.r_squared() - 1.0).abs() < 1e-12);
    };
    check(1, &[3e6, 0.01], &line);
    check(2, &[3e6, 0.01, 0.0], &line);
    check(2, &[5e6, 0.03, -2e-12], &bend);
    check(3, &[4e6, 0.02, 1e-12, 1e-22], &cubic);
}

#[test]
fn scattered_pairs_are_fitted_by_least_squares() {
    // The least-squares line through these four points is 1 + 2x.
    let fit = fit(&[(1.0, 3.5), (2.0, 4.5), (3.0, 6.5), (4.0, 9.5)], 1);
    let expected = [3.0, 5.0, 7.0, 9.0];
    for (pair, wanted) in fit.pairs().iter().zip(expected) {
        assert!(close(fit.kv_bytes_per_s(pair.io_bytes_per_s), wanted));
    }
    assert_eq!(
        fit.residuals().iter().map(|r| (r * 10.0).round()).collect::<Vec<_>>(),
        [5.0, -5.0, -5.0, 5.0]
    );
    assert!(close(fit.r_squared(), 1.0 - 1.0 / 21.0));
}

/// The unconstrained parabola through such pairs has its maximum between the last two.
#[test]
fn a_curve_that_flattens_does_not_turn_down() {
    let fit = fit(&[(0.5e9, 40e6), (2e9, 110e6), (5e9, 140e6)], 2);
    let (low, high) = fit.range();
    let values: Vec<f64> =
        (0..=100).map(|step| fit.kv_bytes_per_s(low + (high - low) * f64::from(step) / 100.0)).collect();
    assert!(values.windows(2).all(|two| two[0] <= two[1]));
    assert!(fit.r_squared() > 0.95, "{}", fit.r_squared());
    assert!(fit.r_squared() > self::fit(&[(0.5e9, 40e6), (2e9, 110e6), (5e9, 140e6)], 1).r_squared());
    assert!(close(fit.kv_bytes_per_s(1e12), fit.kv_bytes_per_s(5e9)), "it was flat at its end");
}

#[test]
fn outside_of_the_range_nothing_is_made_up() {
    let fit = fit(&[(0.5e9, 60e6), (2e9, 180e6), (5e9, 300e6)], 2);
    let lowest = fit.kv_bytes_per_s(0.5e9);
    assert!(close(fit.kv_bytes_per_s(0.25e9), lowest / 2.0));
    assert!(close(fit.kv_bytes_per_s(6.25e6), lowest / 80.0));
    let steep = self::fit(&[(1e9, 10e6), (2e9, 11e6), (4e9, 100e6)], 2);
    assert!(steep.kv_bytes_per_s(40e9) <= 10.0 * steep.kv_bytes_per_s(4e9) * (1.0 + 1e-12));
    for odd in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1e-300] {
        assert!(fit.kv_bytes_per_s(odd) > 0.0 && fit.kv_bytes_per_s(odd) < 1.0);
    }
    assert!(fit.kv_bytes_per_s(f64::INFINITY).is_finite());
}

#[test]
fn fewer_speeds_than_the_degree_needs_lower_it() {
    assert_eq!(fit(&[(1e9, 10e6), (2e9, 15e6)], 2).degree(), 1);
    // The same device twice.
    let twice = fit(&[(1e9, 10e6), (1.01e9, 12e6)], 2);
    assert_eq!(twice.degree(), 0);
    assert!(close(twice.kv_bytes_per_s(1.005e9), 11e6));
    let one = fit(&[(1e9, 10e6)], 3);
    assert!(close(one.kv_bytes_per_s(2e9), 20e6) && close(one.kv_bytes_per_s(0.5e9), 5e6));
    assert!(close(one.kv_bytes_per_s(1e9), 10e6));
}

#[test]
fn slower_devices_have_the_same_curve_in_small() {
    let full = fit(&[(0.5e9, 60e6), (2e9, 180e6), (5e9, 300e6)], 2);
    let slow = full.at_speed(0.0125).unwrap();
    for io in [0.1e9, 0.5e9, 1e9, 3e9, 9e9] {
        assert!(close(slow.kv_bytes_per_s(io * 0.0125), full.kv_bytes_per_s(io) * 0.0125));
    }
    assert!(full.at_speed(0.0).is_err() && full.at_speed(f64::NAN).is_err());
}

#[test]
fn what_is_no_speed_is_refused_by_name() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e16] {
        let error = Fit::of(vec![pair("disk", 1e9, bad)], 2, String::new()).unwrap_err().to_string();
        assert!(error.contains("pair 'disk': KV is"), "{error}");
        let error = Fit::of(vec![pair("disk", bad, 1e6)], 2, String::new()).unwrap_err().to_string();
        assert!(error.contains("pair 'disk': I/O is"), "{error}");
    }
    assert!(matches!(Fit::of(Vec::new(), 2, String::new()), Err(FitError::NoPairs)));
    for degree in [0, 4] {
        assert!(matches!(
            Fit::of(vec![pair("d", 1e9, 1e6)], degree, String::new()),
            Err(FitError::BadDegree(_))
        ));
    }
}

#[test]
fn a_formula_has_its_units() {
    let fit = fit(&[(0.5e9, 60e6), (2e9, 180e6), (5e9, 300e6)], 2);
    assert_eq!(fit.formula(), "KV = 11.11 + 102.2·x − 8.889·x² MB/s, x = I/O in GB/s from 0.5 to 5");
}

#[test]
fn a_file_gives_the_same_fit_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fit.json");
    let fit = fit(&[(0.5e9, 61e6), (2e9, 180e6), (5e9, 300e6)], 2);
    fit.write(&path).unwrap();
    fit.write(&path).unwrap();
    assert_eq!(Fit::read(&path).unwrap(), fit);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing lies beside it");
    let error = fit.write(&dir.path().join("none/fit.json")).unwrap_err().to_string();
    assert!(error.contains("none/fit.json cannot be written"), "{error}");
}

#[test]
fn a_file_that_is_no_fit_is_refused_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fit.json");
    let refused = |text: &str| {
        fs::write(&path, text).unwrap();
        let error = Fit::read(&path).unwrap_err().to_string();
        assert!(error.contains("fit.json is not a fit: ") && !error.contains('\n'), "{error}");
        error
    };
    let with = |pairs: &str, rest: &str| {
        format!(r#"{{"version":1,"provenance":"","degree":2,"pairs":[{pairs}]{rest}}}"#)
    };
    let good = r#"{"name":"a","io_bytes_per_s":1e9,"kv_bytes_per_s":1e7}"#;
    assert!(refused("").contains("EOF"));
    assert!(refused("[]").contains("no version"));
    assert!(refused(r#"{"version":2,"curve":"spline"}"#).contains("version 2 is unknown, known is 1"));
    assert!(refused(&with("", "")).contains("at least one pair"));
    assert!(
        refused(&with(r#"{"name":"a","io_bytes_per_s":-1,"kv_bytes_per_s":1}"#, "")).contains("I/O is -1")
    );
    assert!(refused(&with(good, r#","coefficients":[2e7]"#)).contains("do not follow from the pairs"));
    assert!(refused(&with(good, r#","colour":"red""#)).contains("colour"));
    fs::write(&path, with(good, "")).unwrap();
    assert!(close(Fit::read(&path).unwrap().kv_bytes_per_s(1e9), 1e7), "coefficients may be left out");
    let error = Fit::read(&dir.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none cannot be read"), "{error}");
}

#[test]
fn the_fit_that_is_shipped_covers_the_profiles() {
    let fit = Fit::shipped();
    assert!(!fit.provenance().is_empty());
    let (low, high) = fit.range();
    assert!(low <= 0.55e9 && high >= 4.5e9, "{low} {high}");
    let of = |io: f64| fit.kv_bytes_per_s(io);
    assert!(of(0.5e9) < of(2e9) && of(2e9) < of(5e9));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_a_fit_says_is_positive_and_never_falls(
        points in prop::collection::vec((1e5..2e10, 1e3..2e9), 1..8),
        degree in 1usize..=3,
        mut inputs in prop::collection::vec(0.0..5e10, 2..40),
    ) {
        let fit = fit(&points, degree);
        inputs.sort_by(f64::total_cmp);
        let (low, high) = fit.range();
        inputs.extend([low, high]);
        inputs.sort_by(f64::total_cmp);
        let values: Vec<f64> = inputs.iter().map(|io| fit.kv_bytes_per_s(*io)).collect();
        prop_assert!(values.iter().all(|value| value.is_finite() && *value > 0.0));
        // De Casteljau's algorithm rounds.
        prop_assert!(values.windows(2).all(|two| two[0] <= two[1] * (1.0 + 1e-14)), "{values:?}");
    }

    /// No monotone polynomial of the degree near the fitted one has smaller squares.
    #[test]
    fn no_curve_beside_it_fits_better(
        points in prop::collection::vec((1e8..1e10, 1e6..1e9), 2..8),
        degree in 1usize..=3,
        nudges in prop::collection::vec(-0.05..0.05f64, 4),
    ) {
        let fit = fit(&points, degree);
        let floor = FLOOR * points.iter().map(|(_, kv)| *kv).fold(f64::INFINITY, f64::min);
        let mut beside = fit.curve.clone();
        let moved = beside.nudge(&nudges, floor);
        let squares = |curve: &Curve| {
            points.iter().map(|(io, kv)| (kv - curve.at(*io)).powi(2)).sum::<f64>()
        };
        prop_assert!(!moved || squares(&fit.curve) <= squares(&beside) * (1.0 + 1e-9) + 1e-3);
    }

    #[test]
    fn a_written_fit_is_the_same(
        points in prop::collection::vec((1e6..2e10, 1e4..2e9), 1..8),
        degree in 1usize..=3,
    ) {
        let fit = fit(&points, degree);
        let text = serde_json::to_string(&fit).unwrap();
        let read: Fit = serde_json::from_str(&text).unwrap();
        // The parser may lose the last bit of a number.
        for io in [1e6, 1e8, 1e9, 1e10] {
            prop_assert!(close(read.kv_bytes_per_s(io), fit.kv_bytes_per_s(io)));
        }
        prop_assert_eq!(read.degree(), fit.degree());
    }
}
