//! The third-party crates that the programs link: where they come from, their licences, and the
//! security advisories on them.
//!
//! `advisories.toml` has facts of the RustSec database on every crate of `Cargo.lock`, and the day
//! on which they were looked up. A crate that was never looked up fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use semver::{Version, VersionReq};
use serde::Deserialize;

/// The licences that a crate may have. One with a choice of licences needs one of these.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "BSL-1.0",
    "Unicode-3.0",
    "Unlicense",
];
/// Crates in `vendor` under the name and the version of the original, whose advisories they have.
const VENDORED: [&str; 1] = ["zookeeper-client"];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: Version,
    source: Option<String>,
    /// Each with its name first.
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The parts of a `Cargo.toml`.
#[derive(Deserialize)]
struct Manifest {
    package: Option<Named>,
    workspace: Option<Workspace>,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Workspace {
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisories {
    /// The day on which the crates were looked up.
    looked_up: String,
    crates: Vec<String>,
    advisory: Vec<Advisory>,
    #[serde(default)]
    accepted: Vec<Accepted>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisory {
    id: String,
    package: String,
    kind: String,
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

/// An advisory that a crate in use has, and the reason why it does no harm.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    id: String,
    reason: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Described>,
    resolve: Resolved,
}

#[derive(Deserialize)]
struct Resolved {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

#[derive(Deserialize)]
struct Described {
    id: String,
    name: String,
    source: Option<String>,
    license: Option<String>,
}

fn here() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its package is"))
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Advisory {
    fn affects(&self, locked: &Locked) -> bool {
        let is_safe = |range: &VersionReq| range.matches(&locked.version);
        self.package == locked.name && !self.patched.iter().chain(&self.unaffected).any(is_safe)
    }
}

#[test]
fn no_crate_has_an_advisory_that_was_not_judged() {
    let lock: Lock = read(&here().join("../../Cargo.lock"));
    let known: Advisories = read(&here().join("advisories.toml"));
    assert!(known.looked_up.len() == "2026-01-31".len(), "a day: {}", known.looked_up);
    let crates: BTreeSet<&str> = known.crates.iter().map(String::as_str).collect();
    let is_vendored = |locked: &Locked| VENDORED.contains(&locked.name.as_str());
    let others = lock.package.iter().filter(|locked| locked.source.is_some() || is_vendored(locked));
    let (mut wrong, mut judged) = (Vec::new(), BTreeSet::new());
    for locked in others {
        let (name, version) = (&locked.name, &locked.version);
        if locked.source.as_deref() != Some(REGISTRY) && !is_vendored(locked) {
            wrong.push(format!("{name} {version} is not from crates.io"));
        }
        if !crates.contains(name.as_str()) {
            wrong.push(format!("{name}: look its advisories up, and add it to advisories.toml"));
        }
        for advisory in known.advisory.iter().filter(|advisory| advisory.affects(locked)) {
            judged.insert(&advisory.id);
            if !known.accepted.iter().any(|accepted| accepted.id == advisory.id) {
                wrong.push(format!("{name} {version}: {} ({})", advisory.id, advisory.kind));
            }
        }
    }
    for accepted in &known.accepted {
        if accepted.reason.is_empty() || !judged.contains(&accepted.id) {
            wrong.push(format!("{}: accepted without a reason, or without need", accepted.id));
        }
    }
    assert_eq!(wrong, [""; 0], "as of {}", known.looked_up);
}

/// The crates of the workspace tell rustls to use ring. One that does not would bring a second one.
#[test]
fn there_is_one_library_of_tls_and_one_of_its_cryptography() {
    let lock: Lock = read(&here().join("../../Cargo.lock"));
    let count = |name: &str| lock.package.iter().filter(|locked| locked.name == name).count();
    assert_eq!([count("rustls"), count("ring")], [1, 1]);
    for other in ["aws-lc-rs", "aws-lc-sys", "openssl-sys", "native-tls"] {
        assert_eq!(count(other), 0, "{other}");
    }
}

#[test]
fn every_crate_has_a_permissive_licence() {
    let mut command = Command::new(std::env::var_os("CARGO").expect("cargo tells a test where it is"));
    // Crates for other platforms may be missing on this machine.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform"];
    let output = command.current_dir(here()).args(arguments).arg(platform).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo's description");
    let used: BTreeSet<&str> = metadata.resolve.nodes.iter().map(|node| node.id.as_str()).collect();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        if package.source.is_none() || !used.contains(package.id.as_str()) {
            continue;
        }
        let text = package.license.as_deref().unwrap_or("none");
        let is_permissive = spdx::Expression::parse_mode(text, spdx::ParseMode::LAX).is_ok_and(|licence| {
            licence.evaluate(|one| one.license.id().is_some_and(|id| LICENCES.contains(&id.name)))
        });
        if !is_permissive {
            wrong.push(format!("{}: {text}", package.name));
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(used.len() > 100, "{}", used.len());
}

/// The fuzz targets have a lock file of their own, which no build of the workspace reads.
#[test]
fn the_lock_file_of_the_fuzz_targets_has_the_dependencies_of_our_crates() {
    let root = here().join("../..");
    let lock: Lock = read(&root.join("fuzz/Cargo.lock"));
    let shared = read::<Manifest>(&root.join("Cargo.toml")).workspace.expect("a workspace").dependencies;
    let flag = |value: &toml::Value, name: &str| value.get(name).and_then(toml::Value::as_bool) == Some(true);
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for entry in fs::read_dir(root.join("crates")).expect("a directory") {
        let manifest: Manifest = read(&entry.expect("an entry").path().join("Cargo.toml"));
        let name = manifest.package.expect("a package").name;
        let Some(locked) = lock.package.iter().find(|locked| locked.name == name) else { continue };
        compared += 1;
        for (alias, value) in manifest.dependencies.iter().filter(|(_, value)| !flag(value, "optional")) {
            let value = if flag(value, "workspace") { &shared[alias] } else { value };
            let needed = value.get("package").and_then(toml::Value::as_str).unwrap_or(alias);
            let is_needed = |locked: &String| locked.split(' ').next() == Some(needed);
            if !locked.dependencies.iter().any(is_needed) {
                wrong.push(format!("{name} needs {needed}: cargo metadata in fuzz/ adds it"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(compared > 10, "{compared}");
}
