//! `docs/WHERE.md` answers questions by file and item. Every file and item that it names must
//! exist, so that a rename in the code changes the page too.

use std::fs;
use std::path::{Path, PathBuf};

use steelyard_tidy::source::production_lines;

const PAGE: &str = "docs/WHERE.md";
/// Minimum number of answers. Otherwise a page in another form would pass without a check.
const ANSWERS_MIN: usize = 30;
/// Keywords before the name of an item where it is defined.
const KEYWORDS: &[&str] = &["fn", "struct", "enum", "trait", "const", "static", "type", "mod"];

/// A file that an answer names, with the items named after it.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    file: String,
    items: Vec<String>,
}

fn repository() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a test where its package is");
    Path::new(&here).join("../..")
}

/// Returns the files that an answer names, or `None` if the line is no row of a question.
///
/// The question is the first cell and ends with a question mark. In the answer, the first code span
/// and every span with a slash or the extension `md` is a file; the spans after it are its items.
fn answer(line: &str) -> Option<Vec<Named>> {
    let (question, answer) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
    if !question.ends_with('?') {
        return None;
    }
    let mut named: Vec<Named> = Vec::new();
    for span in answer.split('`').skip(1).step_by(2) {
        let is_file = span.contains('/') || span.ends_with(".md") || named.is_empty();
        if is_file {
            named.push(Named { file: span.to_owned(), items: Vec::new() });
        } else if let Some(last) = named.last_mut() {
            last.items.push(span.to_owned());
        }
    }
    Some(named)
}

fn is_of_a_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Returns whether `name` is in `code` as a whole word whose preceding text satisfies `follows`.
fn occurs(code: &str, name: &str, follows: impl Fn(&str) -> bool) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = &code[..at];
        let after = &code[at + name.len()..];
        !before.ends_with(is_of_a_name) && !after.starts_with(is_of_a_name) && follows(before)
    })
}

fn is_defined(code: &str, name: &str) -> bool {
    occurs(code, name, |before| {
        let word = before.trim_end().rsplit(|char: char| !is_of_a_name(char)).next();
        word.is_some_and(|word| KEYWORDS.contains(&word))
    })
}

/// Returns whether `code` has an item: a definition of `name`, or for `Type::name` also the word
/// `Type`. A name in upper case after `Type::` may be a variant, which has no keyword.
fn has_item(code: &str, item: &str) -> bool {
    let Some((owner, name)) = item.rsplit_once("::") else { return is_defined(code, item) };
    let is_variant = name.starts_with(char::is_uppercase) && occurs(code, name, |_| true);
    occurs(code, owner, |_| true) && (is_defined(code, name) || is_variant)
}

/// Returns the code of a source file, without comments, contents of literals and tests.
fn code_of(text: &str) -> String {
    let lines: Vec<String> = production_lines(text).into_iter().map(|line| line.text).collect();
    lines.join("\n")
}

#[test]
fn files_and_items_that_the_page_names_exist() {
    let root = repository();
    let page = fs::read_to_string(root.join(PAGE)).expect("the page is there");
    let mut answers = 0;
    let mut broken = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let Some(named) = answer(line) else { continue };
        answers += 1;
        let place = format!("{PAGE}:{}", at + 1);
        if named.is_empty() {
            broken.push(format!("{place}: names no file"));
        }
        for Named { file, items } in named {
            let path = root.join(&file);
            if !path.is_file() {
                broken.push(format!("{place}: there is no file {file}"));
                continue;
            }
            let code = code_of(&fs::read_to_string(&path).expect("a text file"));
            for item in items.iter().filter(|item| !has_item(&code, item)) {
                broken.push(format!("{place}: {file} has no {item}"));
            }
        }
    }
    assert!(answers >= ANSWERS_MIN, "{PAGE} has only {answers} answers");
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn rows_are_read_and_what_is_missing_is_noticed() {
    let row = "| Where is `x/y`? | `a/b.rs` `Type::run`, `go`; `c/d.rs`, as `README.md` says |";
    let named = |file: &str, items: &[&str]| Named {
        file: file.to_owned(),
        items: items.iter().map(|item| (*item).to_owned()).collect(),
    };
    let expected = vec![named("a/b.rs", &["Type::run", "go"]), named("c/d.rs", &[]), named("README.md", &[])];
    assert_eq!(answer(row), Some(expected));
    assert_eq!(answer("| question | where |"), None);
    assert_eq!(answer("Where is it?"), None);
    let code =
        code_of("impl Type {\n    pub fn run(&self) {} // fn gone\n}\nenum Kind { First }\nfn good() {}\n");
    assert!(has_item(&code, "Type::run") && has_item(&code, "Kind::First") && has_item(&code, "Kind"));
    assert!(!has_item(&code, "gone") && !has_item(&code, "go") && !has_item(&code, "Other::run"));
}
