//! Conversion of a command's syntax notation to the arguments in `COMMAND DOCS`.
//!
//! `[x]` is optional, `a | b` is a choice, `[x ...]` repeats the preceding `x`, an upper-case word
//! is a token, and a lower-case word directly after a token is the token's value.

use resp::Reply;

#[derive(Debug, PartialEq, Eq)]
struct Argument {
    name: String,
    kind: &'static str,
    token: Option<String>,
    optional: bool,
    multiple: bool,
    inner: Vec<Argument>,
}

impl Argument {
    fn new(name: impl Into<String>, kind: &'static str) -> Argument {
        Argument { name: name.into(), kind, token: None, optional: false, multiple: false, inner: Vec::new() }
    }
}

/// Returns the `arguments` of a command: an array of maps, as Redis 7.0 sends it.
pub(crate) fn arguments(syntax: &str) -> Vec<Reply> {
    let spaced = syntax.replace('[', " [ ").replace(']', " ] ");
    let mut words = spaced.split_whitespace();
    let arguments = choice(&mut words);
    let first_key = arguments.iter().find(|argument| argument.kind == "key");
    let is_destination_first = first_key.is_some_and(|first| first.name == "destination");
    arguments.iter().map(|argument| reply(argument, is_destination_first)).collect()
}

/// Parses alternatives up to the closing bracket. A single alternative is returned without a
/// `oneof` around it.
fn choice<'a>(words: &mut impl Iterator<Item = &'a str>) -> Vec<Argument> {
    let mut alternatives: Vec<Vec<Argument>> = vec![Vec::new()];
    while let Some(word) = words.next() {
        let current = alternatives.last_mut().expect("never empty");
        match word {
            "]" => break,
            "|" => alternatives.push(Vec::new()),
            "[" => optional(choice(words), current),
            "..." => current.push(Argument::new("...", "repeat")),
            word if word.chars().any(char::is_lowercase) => match current.last_mut() {
                Some(token) if token.kind == "pure-token" => {
                    token.kind = value_kind(word);
                    token.name = word.into();
                }
                _ => current.push(Argument::new(word, value_kind(word))),
            },
            token => {
                let mut argument = Argument::new(token.to_lowercase(), "pure-token");
                argument.token = Some(token.into());
                current.push(argument);
            }
        }
    }
    if alternatives.len() == 1 {
        return alternatives.pop().expect("one");
    }
    let mut oneof = Argument::new("choice", "oneof");
    oneof.inner = alternatives.into_iter().map(|sequence| block("block", sequence)).collect();
    vec![oneof]
}

/// Appends the content of a bracket to the arguments before it. A repetition replaces the arguments
/// that it repeats.
fn optional(mut sequence: Vec<Argument>, before: &mut Vec<Argument>) {
    if sequence.last().is_some_and(|last| last.kind == "repeat") {
        sequence.pop();
        let start = before.len().saturating_sub(sequence.len());
        let mut repeated = block("data", before.split_off(start));
        repeated.multiple = true;
        before.push(repeated);
    } else if !sequence.is_empty() {
        let mut argument = block("options", sequence);
        argument.optional = true;
        before.push(argument);
    }
}

fn block(name: &str, mut sequence: Vec<Argument>) -> Argument {
    if sequence.len() == 1 {
        return sequence.pop().expect("one");
    }
    let mut block = Argument::new(name, "block");
    block.inner = sequence;
    block
}

fn value_kind(word: &str) -> &'static str {
    match word {
        "key" | "key1" | "key2" | "newkey" | "source" | "destination" => "key",
        "pattern" => "pattern",
        "seconds" | "milliseconds" | "count" | "increment" | "decrement" | "offset" | "start" | "end"
        | "cursor" | "db" | "destination-db" | "index" | "min-match-len" | "slot" | "client-id"
        | "protover" | "numkeys" | "limit" => "integer",
        word if word.starts_with("unix-time") => "unix-time",
        _ => "string",
    }
}

/// Converts an argument to its map. A destination and the other keys are in two key specifications
/// of the command, in the order of their occurrence.
fn reply(argument: &Argument, is_destination_first: bool) -> Reply {
    let text = |text: &str| Reply::bulk(text.to_owned());
    let mut map = vec![(text("name"), text(&argument.name)), (text("type"), text(argument.kind))];
    if argument.kind == "key" {
        let is_destination = matches!(argument.name.as_str(), "destination" | "newkey");
        let index = i64::from(is_destination != is_destination_first);
        map.push((text("key_spec_index"), Reply::Int(index)));
    }
    if let Some(token) = &argument.token {
        map.push((text("token"), text(token)));
    }
    let flags: Vec<Reply> = [(argument.optional, "optional"), (argument.multiple, "multiple")]
        .into_iter()
        .filter(|(set, _)| *set)
        .map(|(_, name)| Reply::Simple(name.into()))
        .collect();
    if !flags.is_empty() {
        map.push((text("flags"), Reply::Set(flags)));
    }
    if !argument.inner.is_empty() {
        map.push((
            text("arguments"),
            Reply::Array(argument.inner.iter().map(|inner| reply(inner, is_destination_first)).collect()),
        ));
    }
    Reply::Map(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an outline of the arguments: the name, or `kind(parts)` for a compound, with
    /// `TOKEN=` before it, `?` after an optional and `+` after a repeated argument.
    fn outline(syntax: &str) -> String {
        fn show(argument: &Argument) -> String {
            let inner: Vec<String> = argument.inner.iter().map(show).collect();
            let mut text = match inner.is_empty() {
                true => argument.name.clone(),
                false => format!("{}({})", argument.kind, inner.join(" ")),
            };
            if let Some(token) = &argument.token {
                text = format!("{token}={text}");
            }
            let optional = if argument.optional { "?" } else { "" };
            let multiple = if argument.multiple { "+" } else { "" };
            format!("{text}{optional}{multiple}")
        }
        let spaced = syntax.replace('[', " [ ").replace(']', " ] ");
        let arguments = choice(&mut spaced.split_whitespace());
        arguments.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_name_their_specification() {
        let indexes = |syntax: &str| {
            let shown = format!("{:?}", arguments(syntax));
            let parts = shown.split("key_spec_index").skip(1);
            parts.map(|part| part.contains("Int(1)")).collect::<Vec<bool>>()
        };
        assert_eq!(indexes("key member"), [false]);
        assert_eq!(indexes("source destination member"), [false, true]);
        assert_eq!(indexes("key newkey"), [false, true]);
        assert_eq!(indexes("destination key [key ...]"), [false, true]);
        assert_eq!(indexes("destination source min max"), [false, true]);
        assert_eq!(indexes("operation destination key [key ...]"), [false, true]);
        assert_eq!(indexes("numkeys key [key ...] [LIMIT limit]"), [false]);
    }

    #[test]
    fn a_syntax_becomes_arguments() {
        assert_eq!(outline(""), "");
        assert_eq!(outline("key [key ...]"), "key+");
        assert_eq!(outline("key value [key value ...]"), "block(key value)+");
        assert_eq!(outline("[section [section ...]]"), "section?+");
        assert_eq!(outline("cursor [MATCH pattern]"), "cursor MATCH=pattern?");
        assert_eq!(
            outline("key [NX | XX] [GET] [EX seconds | KEEPTTL]"),
            "key oneof(NX=nx XX=xx)? GET=get? oneof(EX=seconds KEEPTTL=keepttl)?"
        );
        assert_eq!(outline("key [count [WITHVALUES]]"), "key block(count WITHVALUES=withvalues?)?");
    }
}
