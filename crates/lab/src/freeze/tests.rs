use types::Draw;

use super::*;

fn small(seconds: u64) -> Load {
    Load {
        keys: 3000,
        rows: 400,
        value_bytes: 100,
        rows_per_second: Some(8000),
        reads_per_second: 2000,
        seconds,
    }
}

#[test]
fn every_variant_is_measured_and_reported() {
    let measure_one = |variant: &Variant| {
        let dir = tempfile::tempdir().expect("a directory");
        measure(dir.path(), variant.name, small(1)).expect("every row is found")
    };
    // The variants run at the same time, because their figures are not checked.
    let measured: Vec<Measured> = std::thread::scope(|scope| {
        let running: Vec<_> = VARIANTS.iter().map(|variant| scope.spawn(|| measure_one(variant))).collect();
        running.into_iter().map(|one| one.join().expect("the measurement does not panic")).collect()
    });
    for (variant, one) in VARIANTS.iter().zip(&measured) {
        assert!(one.freezes > 0 && one.rows_per_second > 0.0, "{one:?}");
        assert!(one.steps.iter().map(|step| step.reads).sum::<u64>() > 0, "{one:?}");
        assert_eq!(one.load.rows, 400 / variant.run_divisor);
    }
    let text = report(&Report {
        measured,
        dir: "/data".into(),
        file_system: "ext4".into(),
        sync_us: [[1.0, 2.0]; 2],
        load_average: ["0.50".into(), "1.50".into()],
    });
    for variant in &VARIANTS {
        assert!(text.contains(&format!("| {} |", variant.name)), "{text}");
    }
}

#[test]
fn loads_and_variants_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let refuse = |name: &str, load: Load| measure(dir.path(), name, load).unwrap_err().to_string();
    assert!(refuse("mmap", small(1)).contains("ingest-slices"), "the names are told");
    refuse("memtable", Load { rows: 3001, ..small(1) });
    refuse("ingest-small", Load { rows: 3, ..small(1) });
    refuse("memtable", Load { value_bytes: 7, ..small(1) });
}

#[test]
fn drawn_keys_cover_all_keys() {
    let mut draw = Draw::new(1);
    let mut seen = [false; 100];
    (0..2000).for_each(|_| seen[draw.below(100) as usize] = true);
    assert!(seen.iter().all(|seen| *seen));
}
