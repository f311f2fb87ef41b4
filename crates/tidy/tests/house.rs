//! What must be absent: edges that point up, impure dependencies and calls in pure crates, unsafe code
//! outside its homes, modules without a subject, files past a thousand lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every crate, and which of ours it may depend on. An arrow only ever points down.
const EDGES: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("resp", &["types"]),
    ("storage", &["types"]),
    ("command", &["types", "resp", "storage"]),
    ("placement", &["types"]),
    ("cluster", &["types", "storage", "placement"]),
    ("predict", &["types", "placement", "cluster"]),
    ("replica", &["types", "storage"]),
    ("rocks", &["types", "storage"]),
    ("raftlog", &["types", "replica"]),
    ("device", &["types"]),
    ("devshim", &["device"]),
    (
        "server",
        &[
            "types",
            "resp",
            "storage",
            "command",
            "replica",
            "cluster",
            "placement",
            "rocks",
            "raftlog",
            "device",
        ],
    ),
    ("bench", &["types", "resp"]),
    ("faults", &["resp", "bench"]),
    ("sim", &["types", "resp", "storage", "command", "replica", "cluster", "placement"]),
    ("steelyard", &["types", "resp", "server", "bench", "device", "placement", "cluster", "predict"]),
    ("tidy", &[]),
];

const PURE: &[&str] = &["types", "resp", "storage", "command", "replica", "cluster", "placement", "predict"];

/// What a pure crate may use from outside. A list of what is allowed: an unknown crate is a question.
const PURE_EXTERNAL: &[&str] = &[
    "bytes",
    "itoa",
    "memchr",
    "protobuf",
    "raft",
    "serde",
    "serde_json",
    "slog",
    "thiserror",
    "xxhash-rust",
];

/// Engines and their only users. `raftlog` and `server` name Raft's message types, which they store and
/// carry; they drive no Raft group.
const OWNED: &[(&str, &[&str])] =
    &[("raft", &["replica", "raftlog", "server"]), ("rocksdb", &["rocks"]), ("raft-engine", &["raftlog"])];

/// `device` and `devshim` stand at the file-call boundary, `server` asks the kernel for locks, room and
/// clocks, and `bench` for CPU times and a signal at its end to the processes that it started.
const UNSAFE_ALLOWED: &[&str] = &["bench", "device", "devshim", "server"];
const BANNED_MODULES: &[&str] = &["utils", "util", "helpers", "common", "misc", "manager"];
const BANNED_CALLS: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "thread_rng",
    "rand::random",
    "std::thread",
    "thread::spawn",
    "thread::sleep",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "HashMap::new",
    "HashMap::with_capacity",
    "HashSet::new",
    "HashSet::with_capacity",
    "RandomState",
];
const FILE_LINES_MAX: usize = 1000;

/// Asked when the test runs: a target directory that several checkouts share may hold a test that another of
/// them compiled.
fn crates_dir() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its package is");
    Path::new(&here).parent().expect("inside crates/").to_path_buf()
}

fn crate_names() -> BTreeSet<String> {
    let entries = fs::read_dir(crates_dir()).expect("crates/ is readable");
    let dirs = entries.map(|entry| entry.expect("a directory entry").path());
    dirs.filter(|dir| dir.join("Cargo.toml").exists())
        .map(|dir| dir.file_name().unwrap().to_str().expect("an UTF-8 name").to_owned())
        .collect()
}

/// Names under `[dependencies]` and `[build-dependencies]`, those of one target included.
fn dependencies(name: &str) -> BTreeSet<String> {
    fn collect(table: &toml::Table, found: &mut BTreeSet<String>) {
        for kind in ["dependencies", "build-dependencies"] {
            if let Some(entries) = table.get(kind).and_then(toml::Value::as_table) {
                found.extend(entries.iter().map(|(key, value)| {
                    let renamed = value.get("package").and_then(toml::Value::as_str);
                    renamed.unwrap_or(key).trim_start_matches("steelyard-").to_owned()
                }));
            }
        }
        if let Some(targets) = table.get("target").and_then(toml::Value::as_table) {
            targets.values().filter_map(toml::Value::as_table).for_each(|target| collect(target, found));
        }
    }
    let manifest = fs::read_to_string(crates_dir().join(name).join("Cargo.toml")).expect("a manifest");
    let mut found = BTreeSet::new();
    collect(&manifest.parse().expect("a manifest is TOML"), &mut found);
    found
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.expect("a directory entry").path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Lines of a file before its test module, comments taken out.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let before_tests = text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    before_tests.enumerate().map(|(at, line)| (at + 1, line.split("//").next().unwrap_or("")))
}

fn is_test_file(path: &Path) -> bool {
    let shown = path.to_string_lossy();
    shown.contains("/tests/") || shown.ends_with("/tests.rs")
}

fn assert_none(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_crate_has_a_row_in_the_table_of_edges() {
    let listed: BTreeSet<String> = EDGES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, crate_names());
}

#[test]
fn dependencies_between_our_crates_point_down() {
    let ours = crate_names();
    let mut broken = Vec::new();
    for (name, allowed) in EDGES {
        for dependency in dependencies(name).intersection(&ours) {
            if !allowed.contains(&dependency.as_str()) {
                broken.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn pure_crates_depend_on_nothing_impure() {
    let ours = crate_names();
    let mut broken = Vec::new();
    for name in PURE {
        for dependency in dependencies(name).difference(&ours) {
            if !PURE_EXTERNAL.contains(&dependency.as_str()) {
                broken.push(format!("{name} is pure and {dependency} is not on the list for pure crates"));
            }
        }
        for dependency in dependencies(name).intersection(&ours) {
            if !PURE.contains(&dependency.as_str()) {
                broken.push(format!("{name} is pure, {dependency} is not"));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn engines_are_used_by_their_owners_alone() {
    let mut broken = Vec::new();
    for name in crate_names() {
        let used = dependencies(&name);
        for (engine, owners) in OWNED {
            if used.contains(*engine) && !owners.contains(&name.as_str()) {
                broken.push(format!("{name} must not use {engine}"));
            }
        }
        if name == "replica" {
            continue;
        }
        let mut files = Vec::new();
        sources(&crates_dir().join(&name).join("src"), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).expect("a source file");
            for (at, line) in code_lines(&text) {
                if line.contains("RawNode") {
                    broken.push(format!("{}:{at}: only replica drives a Raft group", file.display()));
                }
            }
        }
    }
    assert_none(broken);
}

#[test]
fn pure_crates_have_no_clock_thread_file_socket_or_ambient_randomness() {
    let mut broken = Vec::new();
    for name in PURE {
        let mut files = Vec::new();
        sources(&crates_dir().join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "{name} has no sources: the scan looks in the wrong place");
        for file in files.iter().filter(|file| !is_test_file(file)) {
            let text = fs::read_to_string(file).expect("a source file");
            for (at, line) in code_lines(&text) {
                for call in BANNED_CALLS.iter().filter(|call| line.contains(**call)) {
                    broken.push(format!("{}:{at}: {call} in a pure crate", file.display()));
                }
            }
        }
    }
    assert_none(broken);
}

#[test]
fn unsafe_code_is_forbidden_outside_its_homes() {
    let mut broken = Vec::new();
    for name in crate_names() {
        if UNSAFE_ALLOWED.contains(&name.as_str()) {
            continue;
        }
        let src = crates_dir().join(&name).join("src");
        for root in ["lib.rs", "main.rs"].map(|root| src.join(root)) {
            if let Ok(text) = fs::read_to_string(&root) {
                if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
                    broken.push(format!("{} lacks #![forbid(unsafe_code)]", root.display()));
                }
            }
        }
    }
    assert_none(broken);
}

#[test]
fn files_have_a_subject_and_an_end() {
    let mut files = Vec::new();
    sources(&crates_dir(), &mut files);
    let mut broken = Vec::new();
    for file in files {
        let module = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let folder =
            file.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
        if BANNED_MODULES.contains(&module) || BANNED_MODULES.contains(&folder) {
            broken.push(format!("{}: a module is named for its subject", file.display()));
        }
        let lines = code_lines(&fs::read_to_string(&file).expect("a source file")).count();
        if lines > FILE_LINES_MAX {
            broken.push(format!("{}: {lines} lines without tests, split it", file.display()));
        }
    }
    assert_none(broken);
}
