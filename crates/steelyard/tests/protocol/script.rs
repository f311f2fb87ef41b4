//! Scripts: lines of commands for one connection, whose answers two servers must agree on.

use resp::Reply;

use crate::servers::Server;

/// What both answered to each line of `script`, words parted by spaces (`''` is an empty one, `_` in a word
/// a space). A line after the end of the connection answers `(closed)`.
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
    } else {
        word.replace('_', " ")
    }
}

/// A reply without what differs by nature: a connection's number.
fn shown(reply: &Reply) -> String {
    let text = format!("{reply:?}");
    match text.split_once("Bulk(b\"id\"), Int(") {
        Some((before, after)) => {
            format!("{before}Bulk(b\"id\"), Int(_{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => text,
    }
}

/// Asserts that both servers answer every script alike, line by line.
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
