//! Rules about things that must be absent: dependencies that point up, impure dependencies and
//! calls in pure crates, unsafe code outside of its crates, circular modules, modules without a
//! subject, and files of more than a thousand lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use steelyard_tidy::source::{production_lines, submodule, test_modules};

/// All crates with their dependencies among the project's crates. Dependencies only point down.
const EDGES: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("resp", &[]),
    ("rdb", &[]),
    ("durable", &[]),
    ("tls-stream", &[]),
    ("storage", &["types"]),
    ("script", &["resp"]),
    ("command", &["types", "rdb", "resp", "script", "storage"]),
    ("acl", &["resp", "command"]),
    ("placement", &["types"]),
    ("cluster", &["types", "storage", "placement"]),
    ("predict", &["types", "storage", "placement", "cluster"]),
    ("replica", &["types"]),
    ("wal", &["types", "replica"]),
    ("node", &["types", "resp", "storage", "command", "cluster", "replica", "wal"]),
    ("sst", &[]),
    ("vault", &[]),
    ("atrest", &["vault", "durable"]),
    ("rocks", &["atrest", "sst", "durable", "types", "storage"]),
    ("raftlog", &["atrest", "durable", "types", "replica", "wal"]),
    ("device", &["durable", "types"]),
    ("devshim", &["device"]),
    ("allocator", &[]),
    (
        "server",
        &[
            "acl",
            "atrest",
            "allocator",
            "durable",
            "types",
            "rdb",
            "resp",
            "script",
            "storage",
            "command",
            "replica",
            "node",
            "cluster",
            "placement",
            "rocks",
            "raftlog",
            "device",
            "tls-stream",
        ],
    ),
    ("client", &["types", "resp", "tls-stream", "cluster"]),
    ("faults", &["types", "resp", "client"]),
    ("sim", &["types", "resp", "storage", "command", "replica", "node", "wal", "cluster", "placement"]),
    (
        "steelyard",
        &[
            "allocator",
            "atrest",
            "durable",
            "types",
            "rdb",
            "resp",
            "command",
            "server",
            "client",
            "device",
            "placement",
            "predict",
            "raftlog",
        ],
    ),
    (
        "lab",
        &[
            "durable",
            "types",
            "resp",
            "rocks",
            "server",
            "replica",
            "wal",
            "raftlog",
            "placement",
            "predict",
            "device",
            "client",
            "faults",
            "steelyard",
        ],
    ),
    ("tidy", &[]),
];

/// Additional dependencies of the crates' tests. They are in no program, so they may be impure, but
/// they too are part of the map.
const TEST_EDGES: &[(&str, &[&str])] = &[
    ("acl", &["types"]),
    ("resp", &["types"]),
    ("node", &["script"]),
    ("wal", &["vault"]),
    ("predict", &["device"]),
    ("devshim", &["types"]),
    ("raftlog", &["device", "devshim"]),
    ("lab", &["devshim"]),
    ("steelyard", &["devshim", "faults", "rocks", "storage"]),
];

const PURE: &[&str] = &[
    "types",
    "resp",
    "rdb",
    "storage",
    "script",
    "command",
    "acl",
    "replica",
    "node",
    "cluster",
    "placement",
    "predict",
    "wal",
    "vault",
];

/// External crates that a pure crate may use. Any other crate must be discussed first.
const PURE_EXTERNAL: &[&str] = &[
    "aes",
    "bigdecimal",
    "bytes",
    "hashbrown",
    "itoa",
    "libm",
    "memchr",
    "mlua",
    "protobuf",
    "raft",
    "ring",
    "serde",
    "serde_json",
    "sha1",
    "sha2",
    "slog",
    "thiserror",
    "xxhash-rust",
    "zeroize",
];

/// Engines and their only users. `raftlog` and `server` use Raft's message types, which they store
/// and transmit, but they drive no Raft group.
const OWNED: &[(&str, &[&str])] =
    &[("raft", &["replica", "wal", "raftlog", "server"]), ("rocksdb", &["rocks", "sst"])];

/// Crates that may contain unsafe code. `device` maps control blocks, `devshim` intercepts file
/// calls, `server` ends without exit handlers, `client` asks the kernel to signal its child
/// processes when it ends, `sst` calls RocksDB's writer of files, and RocksDB calls `atrest`.
const UNSAFE_ALLOWED: &[&str] = &["allocator", "atrest", "client", "device", "devshim", "server", "sst"];
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

/// Returns the `crates` directory. It is read when the test runs, because several checkouts may
/// share a target directory, which then may hold a test that another checkout compiled.
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

/// Returns the names under the given kinds of dependencies, including target-specific ones.
fn dependencies_of(name: &str, kinds: &[&str]) -> BTreeSet<String> {
    fn collect(table: &toml::Table, kinds: &[&str], found: &mut BTreeSet<String>) {
        for kind in kinds {
            if let Some(entries) = table.get(*kind).and_then(toml::Value::as_table) {
                found.extend(entries.iter().map(|(key, value)| {
                    let renamed = value.get("package").and_then(toml::Value::as_str);
                    renamed.unwrap_or(key).trim_start_matches("steelyard-").to_owned()
                }));
            }
        }
        if let Some(targets) = table.get("target").and_then(toml::Value::as_table) {
            targets
                .values()
                .filter_map(toml::Value::as_table)
                .for_each(|target| collect(target, kinds, found));
        }
    }
    let manifest = fs::read_to_string(crates_dir().join(name).join("Cargo.toml")).expect("a manifest");
    let mut found = BTreeSet::new();
    collect(&manifest.parse().expect("a manifest is TOML"), kinds, &mut found);
    found
}

/// Returns the dependencies with which a crate is compiled outside of its tests.
fn dependencies(name: &str) -> BTreeSet<String> {
    dependencies_of(name, &["dependencies", "build-dependencies"])
}

/// Returns messages for dependencies missing from a table, and for entries of the table that no
/// manifest has.
fn differences(table: &[(&str, &[&str])], edges: &BTreeSet<(String, String)>) -> Vec<String> {
    let listed: BTreeSet<(String, String)> = table
        .iter()
        .flat_map(|(from, to)| to.iter().map(|to| ((*from).to_owned(), (*to).to_owned())))
        .collect();
    let extra = edges.difference(&listed).map(|(from, to)| format!("{from} must not depend on {to}"));
    let gone =
        listed.difference(edges).map(|(from, to)| format!("{from} does not depend on {to}: take it out"));
    extra.chain(gone).collect()
}

/// Returns all pairs of the project's crates of which the first depends on the second according to
/// `of`.
fn edges(of: impl Fn(&str) -> BTreeSet<String>) -> BTreeSet<(String, String)> {
    let ours = crate_names();
    let pairs = |from: &String| -> Vec<(String, String)> {
        of(from).intersection(&ours).map(|to| (from.clone(), to.clone())).collect()
    };
    ours.iter().flat_map(pairs).collect()
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

/// Returns the sources of a crate's library or program, without the files of test-only modules.
fn production_sources(name: &str) -> Vec<(PathBuf, String)> {
    let src = crates_dir().join(name).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        (path, text)
    };
    let files: Vec<(PathBuf, String)> = files.into_iter().map(read).collect();
    let tests: Vec<PathBuf> = files
        .iter()
        .flat_map(|(path, text)| test_modules(text).into_iter().map(|module| submodule(path, &module)))
        .collect();
    let is_test = |path: &Path| tests.iter().any(|test| path.with_extension("").starts_with(test));
    files.into_iter().filter(|(path, _)| !is_test(path)).collect()
}

/// Crates whose modules depend on each other in circles. No crate may be added.
const WITH_CIRCLES: &[&str] = &["command", "devshim", "lab", "placement", "sim"];

/// Returns the first name of each path that begins at the crate's root, also of paths in groups.
/// The code is in a module `depth` levels below the root, so `super` repeated `depth` times names
/// the root too.
fn modules_named(code: &str, depth: usize) -> BTreeSet<String> {
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    let first = |text: &str| text.trim_start().chars().take_while(|char| is_name(*char)).collect::<String>();
    let mut named = BTreeSet::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in code.match_indices(&root) {
            let before = &code[..at];
            if before.ends_with(is_name) || before.ends_with("::") {
                continue;
            }
            let rest = &code[at + root.len()..];
            let Some(group) = rest.strip_prefix('{') else {
                named.insert(first(rest));
                continue;
            };
            let mut nested = 0;
            let mut outermost = String::new();
            for char in group.chars() {
                nested += i32::from(char == '{') - i32::from(char == '}');
                match nested {
                    0 => outermost.push(char),
                    ..0 => break,
                    _ => {}
                }
            }
            named.extend(outermost.split(',').map(first));
        }
    }
    named
}

/// Returns the modules below a crate's root, each with the modules that it names.
fn uses(crate_name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let src = crates_dir().join(crate_name).join("src");
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in production_sources(crate_name) {
        let path = file.strip_prefix(&src).expect("a file of the crate").with_extension("");
        let mut names: Vec<String> = path
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .filter(|part| part != "mod")
            .collect();
        if names.len() == 1 && ["lib", "main"].contains(&names[0].as_str()) {
            continue;
        }
        let depth = names.len();
        let code: Vec<String> = production_lines(&text).into_iter().map(|line| line.text).collect();
        uses.entry(names.swap_remove(0)).or_default().extend(modules_named(&code.join("\n"), depth));
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    uses.iter_mut().for_each(|(own, used)| used.retain(|module| module != own && modules.contains(module)));
    uses
}

/// Returns the modules that depend on themselves through others.
fn in_circles(uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = uses.clone();
    loop {
        let further =
            |used: &BTreeSet<String>| used.iter().flat_map(|module| &reached[module]).cloned().collect();
        let next: BTreeMap<String, BTreeSet<String>> =
            reached.iter().map(|(module, used)| (module.clone(), used | &further(used))).collect();
        if next == reached {
            return reached
                .into_iter()
                .filter(|(own, used)| used.contains(own))
                .map(|(own, _)| own)
                .collect();
        }
        reached = next;
    }
}

#[test]
fn modules_form_circles_only_where_they_are_known() {
    let mut broken = Vec::new();
    for name in crate_names() {
        let circle = in_circles(&uses(&name));
        if circle.is_empty() == WITH_CIRCLES.contains(&name.as_str()) {
            broken.push(format!("{name}: modules in circles: {circle:?}"));
        }
    }
    assert_none(broken);
}

#[test]
fn circles_are_found_through_every_form_of_a_path() {
    let code =
        "use crate::a::B;\nuse crate::{b::{C, D}, c};\nsuper::super::d::f(); super::e; other_crate::g;";
    let named: Vec<String> = modules_named(code, 2).into_iter().collect();
    assert_eq!(named, ["a", "b", "c", "d"]);
    let uses = |edges: &[(&str, &str)]| {
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            uses.entry((*to).to_owned()).or_default();
            uses.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        uses
    };
    assert!(in_circles(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let circle = in_circles(&uses(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")]));
    assert_eq!(circle.into_iter().collect::<Vec<_>>(), ["b", "c", "d"]);
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
fn dependencies_between_our_crates_are_those_of_the_table() {
    assert_none(differences(EDGES, &edges(dependencies)));
}

#[test]
fn dependencies_of_tests_on_our_crates_are_those_of_the_table() {
    let of_tests = |name: &str| &dependencies_of(name, &["dev-dependencies"]) - &dependencies(name);
    assert_none(differences(TEST_EDGES, &edges(of_tests)));
}

#[test]
fn edges_of_the_table_point_down() {
    let level = |name: &str| EDGES.iter().position(|(listed, _)| *listed == name);
    let mut broken = Vec::new();
    for (from, to) in EDGES.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to))) {
        if level(to) >= level(from) {
            broken.push(format!(
                "{from} stands above {to} in the table, which a crate that it depends on must not"
            ));
        }
    }
    assert_none(broken);
}

#[test]
fn edges_are_compared_both_ways() {
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let found = differences(&[("a", &["b", "c"])], &BTreeSet::from([edge("a", "b"), edge("b", "a")]));
    assert_eq!(found, ["b must not depend on a", "a does not depend on c: take it out"]);
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
        for (file, text) in production_sources(&name) {
            for line in production_lines(&text).iter().filter(|line| line.text.contains("RawNode")) {
                broken.push(format!("{}:{}: only replica drives a Raft group", file.display(), line.number));
            }
        }
    }
    assert_none(broken);
}

#[test]
fn pure_crates_have_no_clock_thread_file_socket_or_ambient_randomness() {
    let mut broken = Vec::new();
    for name in PURE {
        let files = production_sources(name);
        assert!(!files.is_empty(), "{name} has no sources: the scan looks in the wrong place");
        for (file, text) in files {
            for line in production_lines(&text) {
                for call in BANNED_CALLS.iter().filter(|call| line.text.contains(**call)) {
                    broken.push(format!("{}:{}: {call} in a pure crate", file.display(), line.number));
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
        let lines = production_lines(&fs::read_to_string(&file).expect("a source file")).len();
        if lines > FILE_LINES_MAX {
            broken.push(format!("{}: {lines} lines without tests, split it", file.display()));
        }
    }
    assert_none(broken);
}
