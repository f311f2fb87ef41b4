//! The rules for comments and for the form of modules.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum width of a line with nothing but a comment, in characters.
const COMMENT_WIDTH_MAX: usize = 100;

/// Maximum width of a line of a document, in characters.
const DOCUMENT_WIDTH_MAX: usize = 120;

/// Words with which no doc comment begins, because they hide its subject.
const HIDING_WORDS: &[&str] = &[
    "What", "Of", "Whether", "Which", "So", "Whoever", "Nobody", "Those", "Where", "If", "How", "When", "Why",
];

/// Adds the files below `dir` whose names end with `.extension`, each with its text.
fn below(dir: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.map(|entry| entry.expect("a directory entry").path()) {
        if path.is_dir() && !path.ends_with("target") {
            below(&path, extension, found);
        } else if path.extension().is_some_and(|of| of == extension) {
            let text = fs::read_to_string(&path).expect("a text file");
            found.push((path, text));
        }
    }
}

fn crates_dir() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its package is");
    Path::new(&here).parent().expect("inside crates/").canonicalize().expect("a directory")
}

/// Returns the project's sources, each with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let crates = crates_dir();
    let mut found = Vec::new();
    below(&crates, "rs", &mut found);
    below(&crates.with_file_name("fuzz"), "rs", &mut found);
    assert!(found.len() > 100, "the scan looks in the wrong place");
    found
}

/// Returns the project's documents, each with its text. Reports that a measurement writes are
/// excepted.
fn documents() -> Vec<(PathBuf, String)> {
    let root = crates_dir().parent().expect("inside the repository").to_path_buf();
    let mut found = Vec::new();
    for entry in fs::read_dir(&root).expect("the repository") {
        let path = entry.expect("a directory entry").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).expect("a text file");
            found.push((path, text));
        }
    }
    below(&root.join("docs"), "md", &mut found);
    below(&root.join("fuzz"), "md", &mut found);
    found.retain(|(path, _)| !path.starts_with(root.join("docs/evaluation")));
    assert!(found.len() > 15, "the scan looks in the wrong place");
    found
}

fn assert_none(broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Returns the violations of the rules for comments in `text`, with line numbers.
fn comments_that_break_rules(text: &str) -> Vec<(usize, String)> {
    let mut broken = Vec::new();
    let mut before = "";
    for (number, line) in (1..).zip(text.lines()) {
        let comment = line.trim_start();
        if comment.starts_with("//") && line.chars().count() > COMMENT_WIDTH_MAX {
            broken.push((number, format!("a comment is wider than {COMMENT_WIDTH_MAX}")));
        }
        for mark in ["/// ", "//! "] {
            let Some(doc) = comment.strip_prefix(mark).filter(|_| !before.starts_with(mark.trim_end()))
            else {
                continue;
            };
            let word = doc.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if HIDING_WORDS.contains(&word) {
                broken
                    .push((number, format!("a doc comment begins with '{word}', not with a noun or a verb")));
            }
        }
        before = comment;
    }
    broken
}

#[test]
fn comments_are_narrow_and_doc_comments_begin_with_their_subject() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let found = comments_that_break_rules(&text);
        broken.extend(found.into_iter().map(|(line, what)| format!("{}:{line}: {what}", path.display())));
    }
    assert_none(broken);
}

#[test]
fn comments_that_break_rules_are_found() {
    let wide = format!("    // {}", "x".repeat(100));
    let text = format!("/// What it is.\n/// Of it.\nfn f() {{}}\n//! Whether so.\n{wide}\n/// Offers.\n");
    let lines: Vec<usize> = comments_that_break_rules(&text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 4, 5]);
}

/// Returns the numbers of a document's lines that are too wide although they could be broken. Rows
/// of tables and code blocks cannot, nor can a word, such as a link, that is too wide by itself.
fn wide_lines(text: &str) -> Vec<usize> {
    let mut wide = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if content.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let is_fixed = is_code || indent >= 4 || content.starts_with('|');
        let can_break =
            content.split_whitespace().all(|word| indent + word.chars().count() <= DOCUMENT_WIDTH_MAX);
        if !is_fixed && can_break && line.chars().count() > DOCUMENT_WIDTH_MAX {
            wide.push(number);
        }
    }
    wide
}

#[test]
fn lines_of_documents_are_narrow() {
    let mut broken = Vec::new();
    for (path, text) in documents() {
        let found = wide_lines(&text).into_iter();
        broken
            .extend(found.map(|line| format!("{}:{line}: wider than {DOCUMENT_WIDTH_MAX}", path.display())));
    }
    assert_none(broken);
}

#[test]
fn wide_lines_of_documents_are_found() {
    let words = "word ".repeat(25);
    let link = format!("[x](https://{})", "y".repeat(120));
    let umlauts = "ü".repeat(60) + " " + &"ü".repeat(59);
    let text =
        format!("{words}\n| {words} |\n```\n{words}\n```\n    {words}\n{link}\n{umlauts}\n- {words}\n");
    assert_eq!(wide_lines(&text), [1, 9]);
}

/// Returns the modules that `text` declares in files of their own.
fn declared(text: &str) -> BTreeSet<String> {
    let of = |line: &str| {
        let line = line.trim().strip_suffix(';')?;
        let (head, name) = line.rsplit_once(' ')?;
        let is_module = head == "mod" || head.starts_with("pub") && head.ends_with(" mod");
        is_module.then(|| name.to_owned())
    };
    text.lines().filter_map(of).collect()
}

/// Returns the directory of the modules that `path` declares.
fn directory_of(path: &Path) -> PathBuf {
    let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|root| path.ends_with(root));
    let is_target = ["tests", "benches", "bin", "fuzz_targets", "examples"]
        .iter()
        .any(|dir| path.parent().is_some_and(|parent| parent.ends_with(dir)));
    if is_root || is_target {
        path.parent().expect("a file").to_path_buf()
    } else {
        path.with_extension("")
    }
}

#[test]
fn every_source_is_declared_by_another_or_is_a_target() {
    let all = sources();
    let mut used = BTreeSet::new();
    for (path, text) in &all {
        let dir = directory_of(path);
        for module in declared(text) {
            used.insert(dir.join(format!("{module}.rs")));
            used.insert(dir.join(module).join("mod.rs"));
        }
        for named in
            text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"))
        {
            let parent = path.parent().expect("a file");
            used.insert(parent.join(named).canonicalize().expect("a file that a path names"));
        }
    }
    let targets = ["tests", "benches", "bin", "fuzz_targets", "examples"];
    let is_target = |path: &Path| {
        let parent = path.parent().expect("a file");
        ["lib.rs", "main.rs", "build.rs"].iter().any(|root| path.ends_with(root))
            || targets.iter().any(|dir| parent.ends_with(dir))
    };
    let unused = all.iter().map(|(path, _)| path).filter(|path| !used.contains(*path) && !is_target(path));
    assert_none(unused.map(|path| format!("{} is compiled into nothing", path.display())).collect());
}

/// A module with submodules is `x.rs` beside `x/`. Tests are the exception: there, `x.rs` would be
/// a test program of its own.
#[test]
fn modules_have_one_form() {
    let in_src = |path: &Path| path.iter().any(|part| part == "src");
    let broken = sources().into_iter().filter(|(path, _)| path.ends_with("mod.rs") && in_src(path));
    assert_none(
        broken.map(|(path, _)| format!("{} has to be a file beside its directory", path.display())).collect(),
    );
}
