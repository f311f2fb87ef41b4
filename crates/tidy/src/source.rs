//! Extraction of production code from a Rust source without a parser: comments, contents of
//! literals and items under `#[cfg(test)]` are blanked out.
//!
//! If the end of a test item is unclear, an early end is assumed. The code after it is then checked
//! rather than skipped.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A line that is compiled into the program, with its number counted from 1. Comments, contents of
/// literals and parts of test items are replaced with spaces. Blank lines between items count as
/// lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub number: usize,
    pub text: String,
}

/// Returns the lines of `text` outside of test items.
pub fn production_lines(text: &str) -> Vec<Line> {
    let code: Vec<char> = blanked(text).chars().collect();
    let tests = test_items(&code);
    let mut lines = Vec::new();
    let mut from = 0;
    for (at, line) in code.split(|char| *char == '\n').enumerate() {
        let range = from..from + line.len();
        from = range.end + 1;
        let is_test = |place: usize| tests.iter().any(|test| test.contains(&place));
        let kept: String =
            range.clone().map(|place| if is_test(place) { ' ' } else { code[place] }).collect();
        let is_touched = tests.iter().any(|test| test.start <= range.end && range.start < test.end);
        let is_the_end = range.end == code.len() && line.is_empty();
        if !is_the_end && (!is_touched || !kept.trim().is_empty()) {
            lines.push(Line { number: at + 1, text: kept });
        }
    }
    lines
}

/// Returns the names of test-only modules in separate files: `#[cfg(test)] mod NAME;`.
pub fn test_modules(text: &str) -> Vec<String> {
    let code: Vec<char> = blanked(text).chars().collect();
    let items = test_items(&code);
    let names = items.iter().filter_map(|item| {
        let words: Vec<&[char]> = words(&code[item.clone()]);
        let at = words.iter().position(|word| is(word, "mod"))?;
        let ends = words.get(at + 2).is_some_and(|next| is(next, ";"));
        ends.then(|| words[at + 1].iter().collect::<String>())
    });
    names.collect()
}

/// Returns the path, without extension, of a module that the file at `path` declares. It is also
/// the directory of that module's own submodules.
pub fn submodule(path: &Path, module: &str) -> PathBuf {
    match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") | None => path.with_file_name(module),
        Some(_) => path.with_extension("").join(module),
    }
}

/// Returns `text` with spaces in place of comments and of the contents of strings and characters.
/// Lines keep their numbers.
fn blanked(text: &str) -> String {
    let source: Vec<char> = text.chars().collect();
    let mut code = source.clone();
    let mut blank = |range: Range<usize>| {
        code[range].iter_mut().filter(|char| **char != '\n').for_each(|char| *char = ' ');
    };
    let mut at = 0;
    while at < source.len() {
        let end = match source[at] {
            '/' if source.get(at + 1) == Some(&'/') => {
                let end = find(&source, at, |char| char == '\n');
                blank(at..end);
                end
            }
            '/' if source.get(at + 1) == Some(&'*') => {
                let end = end_of_comment(&source, at);
                blank(at..end);
                end
            }
            '"' => {
                let end = end_of_string(&source, at);
                blank(at + 1..end.saturating_sub(1).max(at + 1));
                end
            }
            'r' if !follows_name(&source, at) => match end_of_raw_string(&source, at) {
                Some(end) => {
                    blank(at..end);
                    end
                }
                None => at + 1,
            },
            '\'' => match end_of_character(&source, at) {
                Some(end) => {
                    blank(at + 1..end - 1);
                    end
                }
                None => at + 1,
            },
            _ => at + 1,
        };
        at = end;
    }
    code.into_iter().collect()
}

fn find(source: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    (from..source.len()).find(|at| wanted(source[*at])).unwrap_or(source.len())
}

/// Returns the end of a `/* */` comment. Such comments nest.
fn end_of_comment(source: &[char], from: usize) -> usize {
    let (mut depth, mut at) = (0, from);
    while at < source.len() {
        match (source[at], source.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    source.len()
}

fn end_of_string(source: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < source.len() {
        match source[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    source.len()
}

/// Returns true if the `r` at this place is part of a name. It is one after another letter, except
/// for the prefixes of byte and C strings.
fn follows_name(source: &[char], at: usize) -> bool {
    let is_name = |at: usize| source[at].is_alphanumeric() || source[at] == '_';
    match at.checked_sub(1) {
        Some(before) if matches!(source[before], 'b' | 'c') => before.checked_sub(1).is_some_and(is_name),
        Some(before) => is_name(before),
        None => false,
    }
}

/// Returns the end of `r"…"` or `r#"…"#`, or `None` if this is a name.
fn end_of_raw_string(source: &[char], from: usize) -> Option<usize> {
    let open = find(source, from + 1, |char| char != '#');
    let hashes = open - from - 1;
    if source.get(open) != Some(&'"') {
        return None;
    }
    let closes = |at: &usize| {
        source[*at] == '"'
            && source[at + 1..].iter().take(hashes).filter(|char| **char == '#').count() == hashes
    };
    let end = (open + 1..source.len()).find(closes).map_or(source.len(), |at| at + 1 + hashes);
    Some(end)
}

/// Returns the end of a character literal, or `None` if this is a lifetime.
fn end_of_character(source: &[char], from: usize) -> Option<usize> {
    match source.get(from + 1)? {
        '\\' => {
            let end = (from + 3..source.len()).find(|at| source[*at] == '\'')?;
            Some(end + 1)
        }
        _ => (source.get(from + 2) == Some(&'\'')).then_some(from + 3),
    }
}

/// Returns the words and single punctuation characters of blanked code.
fn words(code: &[char]) -> Vec<&[char]> {
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    let mut words = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let end = if is_name(code[at]) { find(code, at, |char| !is_name(char)) } else { at + 1 };
        if !code[at].is_whitespace() {
            words.push(&code[at..end]);
        }
        at = end;
    }
    words
}

fn is(word: &[char], text: &str) -> bool {
    word.iter().copied().eq(text.chars())
}

/// Returns the ranges of all test items, including their attributes. An item within a test item is
/// part of the outer one.
fn test_items(code: &[char]) -> Vec<Range<usize>> {
    let mut items = Vec::new();
    let mut at = 0;
    while at < code.len() {
        match attribute(code, at) {
            Some(Attribute { end, is_test: true, is_inner: true }) => {
                // An inner attribute applies to the file or to the block that contains it.
                let block_end = end_of_block(code, end);
                items.push(at..block_end);
                at = block_end.max(end);
            }
            Some(Attribute { end, is_test: true, .. }) => {
                let item_end = end_of_item(code, end);
                items.push(at..item_end);
                at = item_end;
            }
            Some(attribute) => at = attribute.end,
            None => at += 1,
        }
    }
    items
}

struct Attribute {
    end: usize,
    /// True for `cfg(test)`, and for `cfg(all(…))` with `test` as one of its parts. Code under
    /// `cfg(any(test, …))` is also in the program.
    is_test: bool,
    /// True for `#![…]`.
    is_inner: bool,
}

fn attribute(code: &[char], at: usize) -> Option<Attribute> {
    if code.get(at) != Some(&'#') {
        return None;
    }
    let is_inner = code.get(at + 1) == Some(&'!');
    let open = at + 1 + usize::from(is_inner);
    if code.get(open) != Some(&'[') {
        return None;
    }
    let end = end_of_group(code, open);
    let words = words(&code[open..end]);
    let begins = |texts: &[&str]| words.iter().zip(texts).filter(|(word, text)| is(word, text)).count();
    let is_test = match () {
        () if begins(&["[", "cfg", "(", "test", ")"]) == 5 => true,
        () if begins(&["[", "cfg", "(", "all", "("]) == 5 => has_test(&words[5..]),
        () => false,
    };
    Some(Attribute { end, is_test, is_inner })
}

/// Returns true if `test` is one of the direct parts of `all(…)`.
fn has_test(words: &[&[char]]) -> bool {
    let mut depth = 0;
    for word in words {
        match word {
            ['('] => depth += 1,
            [')'] => depth -= 1,
            word if depth == 0 && is(word, "test") => return true,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    false
}

/// Returns the position after the bracket that closes the one at `open`.
fn end_of_group(code: &[char], open: usize) -> usize {
    let mut depth = 0;
    for (at, char) in code.iter().enumerate().skip(open) {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Returns the position of the bracket that closes the block around `from`, or the end of the file.
fn end_of_block(code: &[char], from: usize) -> usize {
    let mut at = from;
    while at < code.len() {
        match code[at] {
            '(' | '[' | '{' => at = end_of_group(code, at),
            ')' | ']' | '}' => return at,
            _ => at += 1,
        }
    }
    code.len()
}

/// The syntax that ends an item.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// `use`, `static`, `let`: ends with a semicolon, even after braces.
    Statement,
    /// `fn`, `mod`, `impl`: ends with a semicolon or a block.
    Block,
    /// A field with its type or value: ends with a comma outside of angle brackets.
    Field,
    /// A variant, a match arm or an expression: ends with a semicolon, a comma or a block.
    Other,
}

fn form(code: &[char]) -> Form {
    let words = words(code);
    let mut rest = words.as_slice();
    loop {
        match rest {
            [first, ..] if is(first, "pub") && rest.get(1).is_some_and(|next| is(next, "(")) => {
                let close = rest.iter().position(|word| is(word, ")")).unwrap_or(0);
                rest = &rest[close + 1..];
            }
            [first, second, ..]
                if ["pub", "unsafe", "async", "default"].iter().any(|text| is(first, text))
                    && !is(second, ":") =>
            {
                rest = &rest[1..];
            }
            _ => break,
        }
    }
    let at = |place: usize, texts: &[&str]| {
        rest.get(place).is_some_and(|word| texts.iter().any(|text| is(word, text)))
    };
    match () {
        () if at(0, &["const"]) && at(1, &["fn", "unsafe", "extern", "async"]) => Form::Block,
        () if at(0, &["extern"]) && !at(1, &["crate"]) => Form::Block,
        () if at(0, &["use", "static", "let", "type", "const", "extern"]) => Form::Statement,
        () if at(0, &["fn", "mod", "impl", "trait", "struct", "enum", "union", "macro_rules", "{"]) => {
            Form::Block
        }
        () if at(1, &[":"]) && !at(2, &[":"]) => Form::Field,
        () => Form::Other,
    }
}

/// Returns the end of the item that begins at `from`, including further attributes before it.
fn end_of_item(code: &[char], from: usize) -> usize {
    let mut at = find(code, from, |char| !char.is_whitespace());
    while let Some(attribute) = attribute(code, at) {
        at = find(code, attribute.end, |char| !char.is_whitespace());
    }
    let form = form(&code[at..]);
    let mut angles = 0;
    while at < code.len() {
        match code[at] {
            '{' if form == Form::Block || form == Form::Other => {
                let end = end_of_group(code, at);
                return if code.get(end) == Some(&',') { end + 1 } else { end };
            }
            '(' | '[' | '{' => {
                at = end_of_group(code, at);
                continue;
            }
            // The end of the block that contains the item.
            ')' | ']' | '}' => return at,
            ';' => return at + 1,
            ',' if form == Form::Other || form == Form::Field && angles <= 0 => return at + 1,
            '<' => angles += 1,
            '>' if at > 0 && !matches!(code[at - 1], '-' | '=') => angles -= 1,
            _ => {}
        }
        at += 1;
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the non-blank production lines, trimmed, with their numbers.
    fn production(text: &str) -> Vec<(usize, String)> {
        let lines = production_lines(text).into_iter();
        lines
            .map(|line| (line.number, line.text.trim().to_owned()))
            .filter(|(_, text)| !text.is_empty())
            .collect()
    }

    fn texts(text: &str) -> Vec<String> {
        production(text).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn what_follows_a_test_module_is_production() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\n\nfn c() {}\n";
        assert_eq!(production(text), [(1, "fn a() {}".to_owned()), (8, "fn c() {}".to_owned())]);
        assert_eq!(production_lines(text).len(), 3, "the blank line counts, those of the module do not");
    }

    #[test]
    fn a_module_in_a_file_of_its_own_ends_with_its_line() {
        let text = "mod a;\n#[cfg(test)]\nmod tests;\n\nuse std::fs;\n";
        assert_eq!(texts(text), ["mod a;", "use std::fs;"]);
        assert_eq!(test_modules(text), ["tests"]);
        assert_eq!(
            test_modules("#[cfg(test)]\npub(crate) mod fixture;\n#[cfg(test)]\nmod b {}\nmod c;\n"),
            ["fixture"]
        );
    }

    #[test]
    fn a_module_lies_beside_a_root_and_below_any_other_file() {
        let of = |path: &str| submodule(Path::new(path), "tests").to_string_lossy().into_owned();
        assert_eq!(
            ["src/lib.rs", "src/a/mod.rs", "src/a.rs"].map(of),
            ["src/tests", "src/a/tests", "src/a/tests"]
        );
    }

    #[test]
    fn a_test_item_of_one_line_is_one_line() {
        assert_eq!(texts("#[cfg(test)]\nuse a::{b, c};\nuse std::fs;\n"), ["use std::fs;"]);
        assert_eq!(texts("#[cfg(test)] const A: [u8; 2] = [1, 2]; fn b() {}\n"), ["fn b() {}"]);
        assert_eq!(texts("#[cfg(test)]\nstatic A: B = B { c: 1 }.d();\nfn e() {}\n"), ["fn e() {}"]);
        assert_eq!(texts("#[cfg(test)]\nstruct A(u8, u8);\nstruct B;\n"), ["struct B;"]);
        assert_eq!(texts("#[cfg(test)]\ntype A = B<C>;\ntype D = E;\n"), ["type D = E;"]);
    }

    #[test]
    fn a_test_function_ends_with_its_block() {
        let text = "impl A {\n    #[cfg(test)]\n    pub(crate) const fn b(c: &[u8; 3]) -> [u8; 3] {\n        { *c }\n    }\n\n    fn d() {}\n}\n";
        assert_eq!(texts(text), ["impl A {", "fn d() {}", "}"]);
        let signature = "trait A {\n#[cfg(test)]\nfn b();\nfn c();\n}";
        assert_eq!(texts(signature), ["trait A {", "fn c();", "}"]);
    }

    #[test]
    fn fields_and_their_values_end_with_a_comma_or_with_what_they_stand_in() {
        let field = "struct A {\n    #[cfg(test)]\n    pub b: BTreeMap<u8, Vec<u8>>,\n    c: u8,\n}\n";
        assert_eq!(texts(field), ["struct A {", "c: u8,", "}"]);
        let last = "A {\n    c: 1,\n    #[cfg(test)]\n    b: f(1, 2)\n}\nfn d() {}\n";
        assert_eq!(texts(last), ["A {", "c: 1,", "}", "fn d() {}"]);
        let arrow = "struct A {\n    #[cfg(test)]\n    b: fn(u8) -> u8,\n    c: u8,\n}\n";
        assert_eq!(texts(arrow), ["struct A {", "c: u8,", "}"]);
    }

    #[test]
    fn variants_arms_and_statements_are_items() {
        let variant =
            "enum A {\n    #[cfg(test)]\n    B(u8, u8),\n    #[cfg(test)]\n    C { d: u8 },\n    E,\n}\n";
        assert_eq!(texts(variant), ["enum A {", "E,", "}"]);
        let arm = "match a {\n    #[cfg(test)]\n    B => c(1, 2),\n    _ => d(),\n}\n";
        assert_eq!(texts(arm), ["match a {", "_ => d(),", "}"]);
        let block = "fn a() {\n    #[cfg(test)]\n    {\n        b += 1;\n    }\n    c();\n}\n";
        assert_eq!(texts(block), ["fn a() {", "c();", "}"]);
        let statement =
            "fn a() {\n    #[cfg(test)]\n    b.c(1, 2);\n    #[cfg(test)]\n    let d = { 1 };\n    c();\n}\n";
        assert_eq!(texts(statement), ["fn a() {", "c();", "}"]);
    }

    #[test]
    fn other_attributes_and_comments_belong_to_the_item() {
        let text = "#[cfg(test)]\n#[path = \"a;{\"]\n/// Not; the {end.\n#[allow(dead_code)]\nmod tests {\n}\nfn a() {}\n";
        assert_eq!(texts(text), ["fn a() {}"]);
    }

    #[test]
    fn what_is_also_in_the_program_is_production() {
        let lines =
            texts("#[cfg(any(test, feature = \"failpoints\"))]\nfn a() {}\n#[cfg(not(test))]\nfn b() {}\n");
        assert!(lines.contains(&"fn a() {}".to_owned()) && lines.contains(&"fn b() {}".to_owned()));
        assert_eq!(texts("#[cfg(all(test, unix))]\nfn a() {}\nfn b() {}\n"), ["fn b() {}"]);
        let negated = "#[cfg(all(not(test), unix))]\nfn a() {}\n";
        assert!(texts(negated).contains(&"fn a() {}".to_owned()));
    }

    #[test]
    fn an_inner_attribute_covers_the_file_or_the_block() {
        assert_eq!(texts("#![cfg(test)]\nfn a() {}\n"), Vec::<String>::new());
        assert_eq!(texts("mod a {\n#![cfg(test)]\nfn a() {}\n}\nfn b() {}\n"), ["mod a {", "}", "fn b() {}"]);
    }

    #[test]
    fn neither_comments_nor_literals_are_code() {
        assert_eq!(texts("a(); // std::fs\n/* std::fs /* nested */ std::fs */ b();\n"), ["a();", "b();"]);
        let strings =
            r####"a("// no comment", r#"a "quoted" {"#, br"{", '{', '\'', b'"', "\"{"); std::fs();"####;
        let lines = texts(strings);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("std::fs();") && !lines[0].contains('{'), "{lines:?}");
        assert!(!lines[0].contains("comment") && !lines[0].contains("quoted"), "{lines:?}");
        let after =
            "#[cfg(test)]\nmod a {\n    const B: &str = \"}\"; const C: char = '}'; // }\n}\nfn d() {}\n";
        assert_eq!(texts(after), ["fn d() {}"]);
    }

    #[test]
    fn lifetimes_and_raw_names_open_nothing() {
        let text = "fn a<'a>(r#type: &'a str, bar: &'static str) -> &'a str { std::fs() }\nfn b() {}\n";
        assert_eq!(texts(text).len(), 2);
        assert!(texts(text)[0].contains("std::fs()"));
    }

    #[test]
    fn a_string_over_several_lines_keeps_their_numbers() {
        let text = "const A: &str = \"one\n#[cfg(test)]\nthree\";\nfn b() {}\n";
        assert_eq!(production(text).last().unwrap(), &(4, "fn b() {}".to_owned()));
    }

    /// An unfinished source must not cause a panic or a read beyond its end.
    #[test]
    fn unfinished_sources_are_read_to_their_end() {
        for text in [
            "#[cfg(test)]",
            "#[cfg(test)]\nmod a {",
            "\"a",
            "r#\"a",
            "/* a",
            "'",
            "'\\",
            "#[",
            "#",
            ")",
            "#[cfg(test)]}",
        ] {
            production_lines(text);
            test_modules(text);
        }
    }
}
