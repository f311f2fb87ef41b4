//! Scripts: lines of commands for one connection. Two servers must give the same answers.

use resp::Reply;

use crate::servers::Server;

/// Returns the answer to each line of `script`. Words are separated by spaces. `''` is an empty
/// word. `_` in a word is a space, except in names that end with `_RO`, and `¶` is a line break. A
/// line after the end of the connection gets `(closed)`.
pub fn answers(server: &Server, script: &str) -> Vec<String> {
    let mut connection = server.connect();
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let words: Vec<String> = line.split(' ').map(word).collect();
            match connection.call(&words) {
                Ok(reply) => shown(&reply),
                Err(_) => "(closed)".to_owned(),
            }
        })
        .collect()
}

fn word(word: &str) -> String {
    if word == "''" {
        String::new()
    } else if word.ends_with("_RO") {
        word.to_owned()
    } else {
        word.replace('_', " ").replace('¶', "\n")
    }
}

/// Formats a reply without the number of the connection, which differs.
fn shown(reply: &Reply) -> String {
    let text = format!("{reply:?}");
    match text.split_once("Bulk(b\"id\"), Int(") {
        Some((before, after)) => {
            format!("{before}Bulk(b\"id\"), Int(_{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => text,
    }
}

/// Asserts that both servers answer every line of every script alike.
pub fn assert_same(ours: &Server, theirs: &Server, scripts: &[&str]) {
    let mut differing = Vec::new();
    for script in scripts {
        let (ours, theirs) = (answers(ours, script), answers(theirs, script));
        let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
        for ((line, ours), theirs) in lines.zip(ours).zip(theirs) {
            if ours != theirs {
                differing.push(format!("{line}\n  steelyard:    {ours}\n  redis-server: {theirs}"));
            }
        }
    }
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}
