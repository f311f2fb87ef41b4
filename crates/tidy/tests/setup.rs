//! `scripts/setup.sh` on a simulated machine. Its programs are stand-ins in a separate directory,
//! which alone is on the search path. The package manager records the packages requested of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Programs that every target needs, installed already.
const INSTALLED: &[&str] = &["gcc", "g++", "cmake", "redis-server", "redis-cli", "strace", "ip"];
/// Real programs that the script uses.
const TOOLS: &[&str] = &["sh", "ls", "grep", "env", "dirname", "rm"];

fn repository() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its package is");
    Path::new(&here).join("../..")
}

struct Machine {
    programs: TempDir,
}

/// The result of a run of the script.
struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
    /// The arguments of `apt-get` and `service`, in order.
    asked: Vec<String>,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { programs: tempfile::tempdir().unwrap() };
        for tool in TOOLS {
            let real = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(tool));
            let real = real.into_iter().find(|path| path.exists()).expect("a Unix machine");
            std::os::unix::fs::symlink(real, machine.path(tool)).unwrap();
        }
        INSTALLED.iter().for_each(|program| machine.program(program, "exit 0"));
        machine.program("gcc", "echo /usr/lib/librocksdb.so");
        machine.program("id", "echo 0");
        machine.program(
            "apt-get",
            r#"cd "${0%/*}"; echo "apt-get $*" >> asked
            case "$*" in *etcd-server*) : > running-etcd; { echo '#!/bin/sh'; } > etcd; chmod +x etcd ;; esac"#,
        );
        machine.program(
            "service",
            r#"cd "${0%/*}"
            case "$2" in
                status) [ -e "running-$1" ] ;;
                *) echo "service $*" >> asked; rm "running-$1" ;;
            esac"#,
        );
        machine.program("chmod", r#"exec /bin/chmod "$@""#);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.programs.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn set_up(&self, targets: &[&str]) -> Outcome {
        let mut command = Command::new("/bin/sh");
        command.arg(repository().join("scripts/setup.sh")).args(targets);
        command.env_clear().env("PATH", self.programs.path()).env("HOME", self.programs.path());
        let output = command.output().unwrap();
        let asked = fs::read_to_string(self.path("asked")).unwrap_or_default();
        let _ = fs::remove_file(self.path("asked"));
        Outcome {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            asked: asked.lines().map(str::to_owned).collect(),
        }
    }
}

impl Outcome {
    fn installed(&self, package: &str) -> bool {
        self.asked.iter().any(|line| line.starts_with("apt-get install") && line.ends_with(package))
    }
}

#[test]
fn a_target_gets_what_it_needs_and_no_service_that_nobody_asked_for() {
    let machine = Machine::new();
    let outcome = machine.set_up(&["bench-peers"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(outcome.installed("etcd-server"), "{:?}", outcome.asked);
    assert!(outcome.installed("golang-go"), "{:?}", outcome.asked);
    assert!(outcome.err.contains("setup: etcd-server is missing: "), "{}", outcome.err);
    assert_eq!(
        outcome.asked.iter().filter(|line| *line == "service etcd stop").count(),
        1,
        "{:?}",
        outcome.asked
    );
    assert!(!machine.path("running-etcd").exists());
    assert!(outcome.out.lines().all(|line| line.starts_with("export ")), "the shell reads {}", outcome.out);
    let again = machine.set_up(&["bench-peers"]);
    assert!(!again.installed("etcd-server"), "it is there: {:?}", again.asked);
}

#[test]
fn a_service_that_ran_before_goes_on() {
    let machine = Machine::new();
    fs::write(machine.path("running-etcd"), "").unwrap();
    let outcome = machine.set_up(&["bench-peers"]);
    assert!(outcome.installed("etcd-server"), "{:?}", outcome.asked);
    assert!(machine.path("running-etcd").exists(), "{:?}", outcome.asked);
}

#[test]
fn without_a_target_nothing_more_is_installed() {
    let outcome = Machine::new().set_up(&[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    for package in
        ["etcd-server", "golang-go", "nodejs", "npm", "python3-venv", "maven", "default-jdk-headless"]
    {
        assert!(!outcome.installed(package), "{:?}", outcome.asked);
    }
}

#[test]
fn what_several_targets_need_is_installed_once() {
    let outcome = Machine::new().set_up(&["test-clients", "test-faults"]);
    let times = outcome.asked.iter().filter(|line| line.ends_with(" golang-go")).count();
    assert_eq!(times, 1, "{:?}", outcome.asked);
    for package in ["python3-venv", "npm", "maven", "default-jdk-headless"] {
        assert!(outcome.installed(package), "{package}: {:?}", outcome.asked);
    }
}

#[test]
fn a_name_that_is_no_target_is_refused() {
    let outcome = Machine::new().set_up(&["bench-piers"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.err.contains("'bench-piers' is no target"), "{}", outcome.err);
    assert!(outcome.out.is_empty() && outcome.asked.is_empty());
}

/// A misspelled target would only be noticed on the first machine that lacks something.
#[test]
fn the_makefile_names_targets_that_the_script_knows() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let mut target = "";
    let mut named = Vec::new();
    for line in makefile.lines() {
        if !line.starts_with(['\t', '#', '.']) {
            target = line.split(':').next().unwrap_or_default();
        }
        if let Some((_, rest)) = line.split_once("$(call ENV,") {
            let name = rest.split(')').next().unwrap_or_default();
            if line.starts_with('\t') {
                assert_eq!(name, target, "a target names itself");
                named.push(name);
            }
        }
    }
    assert_eq!(named, ["test-faults", "test-clients", "test-redis-py", "bench-peers"]);
    let outcome = Machine::new().set_up(&named);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
}
