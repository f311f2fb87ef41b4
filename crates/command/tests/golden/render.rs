//! Replies as `redis-cli` shows them.

use resp::Reply;

/// One reply over one line or, nested, over several. With `sorted`, the entries of an array stand in the
/// order of their text: for answers whose order means nothing.
pub fn render(reply: &Reply, sorted: bool) -> String {
    match reply {
        Reply::Simple(text) => text.to_string(),
        Reply::Error(text) => format!("(error) {text}"),
        Reply::Int(number) => format!("(integer) {number}"),
        Reply::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Reply::Nil | Reply::NilArray => "(nil)".to_owned(),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            list(items.iter().map(|item| render(item, false)).collect(), sorted, "(empty array)")
        }
        Reply::Map(pairs) => {
            let entry = |(name, value): &(Reply, Reply)| {
                format!("{} => {}", render(name, false), render(value, false))
            };
            list(pairs.iter().map(entry).collect(), sorted, "(empty map)")
        }
        other => format!("{other:?}"),
    }
}

fn list(mut entries: Vec<String>, sorted: bool, empty: &str) -> String {
    if sorted {
        entries.sort();
    }
    let indented = |(at, entry): (usize, &String)| {
        let number = format!("{}) ", at + 1);
        format!("{number}{}", entry.replace('\n', &format!("\n{}", " ".repeat(number.len()))))
    };
    match entries.is_empty() {
        true => empty.to_owned(),
        false => entries.iter().enumerate().map(indented).collect::<Vec<_>>().join("\n"),
    }
}

/// A script's command as a client's arguments.
pub fn arguments(command: &goldenscript::Command) -> Vec<String> {
    let argument = |argument: &goldenscript::Argument| match &argument.key {
        Some(key) => format!("{key}={}", argument.value),
        None => argument.value.clone(),
    };
    std::iter::once(command.name.clone()).chain(command.args.iter().map(argument)).collect()
}
