//! Runs the body of a fuzz target over its seeds, among them the inputs that once failed.

use std::path::Path;

/// Calls `body` with each seed in `fuzz/seeds/TARGET`, and names the seed on which it panics.
pub fn seeds(target: &str, body: fn(&[u8])) {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells where the package is");
    let dir = Path::new(&package).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.expect("an entry of the directory").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds in {}", dir.display());
    for path in paths {
        let input = std::fs::read(&path).expect("a seed");
        if std::panic::catch_unwind(|| body(&input)).is_err() {
            panic!("{target} fails on {}", path.display());
        }
    }
}
