//! Replies in the form in which `redis-cli` shows them.

use resp::Reply;

/// Renders a reply on one line, or on several if it is nested. With `sorted`, the items of an array
/// are sorted by their text, for replies whose order has no meaning.
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
        Reply::Double(number) => {
            format!("(double) {}", String::from_utf8_lossy(&resp::double_text(*number)))
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

/// Returns a script's command as a client's arguments.
pub fn arguments(command: &goldenscript::Command) -> Vec<String> {
    let argument = |argument: &goldenscript::Argument| match &argument.key {
        Some(key) => format!("{key}={}", argument.value),
        None => argument.value.clone(),
    };
    std::iter::once(command.name.clone()).chain(command.args.iter().map(argument)).collect()
}
