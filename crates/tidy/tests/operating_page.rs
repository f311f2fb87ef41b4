//! The rule for docs/OPERATING.md: an operator searches the page for what the log or an error says,
//! so each message that the first column of a table quotes stands in the code.

use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/OPERATING.md";

/// Minimum number of quoted messages that the test must find. Fewer mean that it reads wrongly.
const MESSAGES_MIN: usize = 40;

/// Words with which commands begin. A table may list these instead of messages.
const COMMANDS: &[&str] =
    &["ctl", "steelyard", "redis-cli", "INFO", "CONFIG", "READONLY", "READWRITE", "remove-peer", "move-peer"];

/// Minimum bytes of a part of a message that is searched for.
const PART_BYTES_MIN: usize = 5;

fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its package is");
    Path::new(&here).join("../..").canonicalize().expect("the project")
}

/// Returns the messages that the first cell of a table's row quotes, each without the parts that a
/// program fills in: `...` and single capital letters.
fn messages(line: &str) -> Vec<Vec<String>> {
    let Some(cell) = line.strip_prefix('|').and_then(|row| row.split('|').next()) else { return Vec::new() };
    let quotes = cell.split('`').skip(1).step_by(2);
    let is_message = |quote: &&str| {
        let first = quote.split(' ').next().unwrap_or_default();
        quote.contains(' ') && !first.starts_with('-') && !COMMANDS.contains(&first)
    };
    quotes.filter(is_message).map(parts).collect()
}

fn parts(message: &str) -> Vec<String> {
    let is_filled_in = |word: &&str| {
        *word == "..." || word.len() == 1 && word.chars().all(|letter| letter.is_ascii_uppercase())
    };
    let words: Vec<&str> = message.split(' ').collect();
    let parts = words.split(is_filled_in).map(|words| words.join(" "));
    parts.filter(|part| part.len() >= PART_BYTES_MIN).collect()
}

/// Returns a source with the lines of each string joined.
fn joined(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |joined, line| joined + line.trim_start())
}

fn sources(dir: &Path, text: &mut String) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            text.push_str(&joined(&fs::read_to_string(&path).expect("a source file")));
        }
    }
}

#[test]
fn messages_that_the_page_quotes_stand_in_the_code() {
    let root = root();
    let mut code = String::new();
    sources(&root.join("crates"), &mut code);
    let page = fs::read_to_string(root.join(PAGE)).expect("the page is there");
    let mut count = 0;
    let mut broken = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        for message in messages(line) {
            count += 1;
            let missing = message.iter().filter(|part| !code.contains(part.as_str()));
            broken.extend(missing.map(|part| format!("{PAGE}:{number}: no code says '{part}'")));
        }
    }
    assert!(count >= MESSAGES_MIN, "{PAGE} quotes only {count} messages");
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn what_a_program_fills_in_is_left_out() {
    let row =
        "| `knows store N with another directory`, `ctl regions`, `the time is ... ahead` | what | to do |";
    assert_eq!(messages(row), [vec!["knows store", "with another directory"], vec!["the time is", "ahead"]]);
    assert_eq!(messages("text with `one quote here`"), Vec::<Vec<String>>::new());
    assert_eq!(joined("\"the log \\\n    is full\""), "\"the log is full\"");
}
