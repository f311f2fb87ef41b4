//! `COMMAND` and `HELP`: replies built from the command table.

use bytes::Bytes;
use resp::Reply;

use crate::error_messages;
use crate::glob;
use crate::key_access::key_access;
use crate::spec::{CommandSpec, KeySpec};
use crate::streams::read::key_positions;
use crate::syntax;
use crate::table::{commands, counted_keys, leaf, lookup, subcommand, subname};

/// Replies to `HELP` of the container that argument 0 names, with its subcommands.
pub fn help(args: &[Bytes]) -> Reply {
    let Some(spec) = lookup(&args[0]) else { return error_messages::unknown_command(args) };
    let title =
        format!("{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", spec.name.to_uppercase());
    let mut lines = vec![title];
    for sub in spec.subcommands.iter().filter(|sub| subname(sub) != "help") {
        lines.push(format!("{} {}", subname(sub).to_uppercase(), sub.syntax).trim_end().to_owned());
        lines.push(format!("    {}", sub.summary));
    }
    lines.extend(["HELP".to_owned(), "    Prints this help.".to_owned()]);
    Reply::Array(lines.into_iter().map(|line| Reply::Simple(line.into())).collect())
}

/// Replies to `LOLWUT`. The drawings of Redis are not here.
pub(crate) fn lolwut(_: &[Bytes]) -> Reply {
    Reply::Verbatim("txt", format!("Steelyard {}\n", env!("CARGO_PKG_VERSION")).into())
}

/// Finds a command by its name, or a subcommand by `container|subcommand`.
fn by_name(name: &[u8]) -> Option<&'static CommandSpec> {
    match name.iter().position(|&byte| byte == b'|') {
        Some(bar) => subcommand(lookup(&name[..bar])?, &name[bar + 1..]),
        None => lookup(name),
    }
}

/// Replies to `COMMAND`.
pub(crate) fn command(_: &[Bytes]) -> Reply {
    Reply::Array(commands().iter().map(|spec| info_of(spec)).collect())
}

pub(crate) fn count(_: &[Bytes]) -> Reply {
    Reply::Int(commands().len() as i64)
}

pub(crate) fn info(args: &[Bytes]) -> Reply {
    match &args[2..] {
        [] => command(args),
        names => Reply::Array(names.iter().map(|name| by_name(name).map_or(Reply::Nil, info_of)).collect()),
    }
}

fn info_of(spec: &CommandSpec) -> Reply {
    let (first, last, step) = spec.key_positions();
    Reply::Array(vec![
        text(spec.name),
        Reply::Int(i64::from(spec.arity)),
        Reply::Set(spec.flag_names().map(simple).collect()),
        Reply::Int(first as i64),
        Reply::Int(last as i64),
        Reply::Int(step as i64),
        Reply::Set(spec.acl_categories().into_iter().map(simple).collect()),
        Reply::Set(spec.tips.iter().copied().map(text).collect()),
        Reply::Set(spec.keys.iter().map(key_spec).collect()),
        Reply::Set(spec.subcommands.iter().map(info_of).collect()),
    ])
}

fn key_spec(spec: &KeySpec) -> Reply {
    let part = |kind: &'static str, fields: Vec<(Reply, Reply)>| {
        Reply::Map(vec![(text("type"), text(kind)), (text("spec"), Reply::Map(fields))])
    };
    let counted = vec![
        (text("keynumidx"), Reply::Int(0)),
        (text("firstkey"), Reply::Int(1)),
        (text("keystep"), Reply::Int(spec.step as i64)),
    ];
    let is_of_streams = spec.last == KeySpec::STREAMS;
    let last = match spec.last {
        _ if is_of_streams => -1,
        last if last < -1024 => 0,
        last => last as i64,
    };
    let range = vec![
        (text("lastkey"), Reply::Int(last)),
        (text("keystep"), Reply::Int(spec.step as i64)),
        (text("limit"), Reply::Int(if is_of_streams { 2 } else { 0 })),
    ];
    let index = |at: usize| part("index", vec![(text("index"), Reply::Int(at as i64))]);
    let keyword = |word: &'static str| {
        let from = (text("startfrom"), Reply::Int(spec.first as i64));
        part("keyword", vec![(text("keyword"), text(word)), from])
    };
    let (begin, find) = match spec.last {
        KeySpec::COUNTED | KeySpec::COUNTED_OR_NONE => (index(spec.first - 1), part("keynum", counted)),
        KeySpec::STREAMS => (keyword("STREAMS"), part("range", range)),
        KeySpec::BEHIND_STORE => (keyword("STORE"), part("range", range)),
        KeySpec::BEHIND_STOREDIST => (keyword("STOREDIST"), part("range", range)),
        KeySpec::STORE_OF_SORT | KeySpec::UNKNOWN => {
            (part("unknown", Vec::new()), part("unknown", Vec::new()))
        }
        _ => (index(spec.first), part("range", range)),
    };
    Reply::Map(vec![
        (text("flags"), Reply::Set(spec.flags.iter().copied().map(simple).collect())),
        (text("begin_search"), begin),
        (text("find_keys"), find),
    ])
}

pub(crate) fn docs(args: &[Bytes]) -> Reply {
    let entry = |spec: &'static CommandSpec| (text(spec.name), docs_of(spec));
    Reply::Map(match &args[2..] {
        [] => commands().iter().map(|spec| entry(spec)).collect(),
        names => names.iter().filter_map(|name| by_name(name)).map(entry).collect(),
    })
}

fn docs_of(spec: &'static CommandSpec) -> Reply {
    let mut map: Vec<(Reply, Reply)> = [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group),
        ("complexity", spec.complexity),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (text(name), text(value)))
    .collect();
    let arguments = syntax::arguments(spec.syntax);
    if !arguments.is_empty() {
        map.push((text("arguments"), Reply::Array(arguments)));
    }
    if !spec.subcommands.is_empty() {
        let subcommands = spec.subcommands.iter().map(|sub| (text(sub.name), docs_of(sub))).collect();
        map.push((text("subcommands"), Reply::Map(subcommands)));
    }
    Reply::Map(map)
}

pub(crate) fn list(args: &[Bytes]) -> Reply {
    let listed = |wanted: &dyn Fn(&CommandSpec) -> bool| {
        let all = commands().iter().flat_map(|spec| std::iter::once(*spec).chain(spec.subcommands));
        Reply::Array(all.filter(|spec| wanted(spec)).map(|spec| text(spec.name)).collect())
    };
    match &args[2..] {
        [] => listed(&|_| true),
        [by, kind, value] if by.eq_ignore_ascii_case(b"FILTERBY") => {
            match kind.to_ascii_uppercase().as_slice() {
                // Modules do not exist.
                b"MODULE" => Reply::Array(Vec::new()),
                b"ACLCAT" => listed(&|spec| {
                    spec.acl_categories().iter().any(|name| name.as_bytes()[1..].eq_ignore_ascii_case(value))
                }),
                b"PATTERN" => {
                    let pattern = value.to_ascii_lowercase();
                    listed(&|spec| glob::matches(&pattern, spec.name.as_bytes()))
                }
                _ => Reply::error(error_messages::SYNTAX),
            }
        }
        _ => Reply::error(error_messages::SYNTAX),
    }
}

pub(crate) fn get_keys(args: &[Bytes]) -> Reply {
    keys_in(&args[2..], |key, _| Reply::Bulk(key.clone()))
}

pub(crate) fn get_keys_and_flags(args: &[Bytes]) -> Reply {
    keys_in(&args[2..], |key, flags| {
        let flags = flags.iter().copied().map(simple).collect();
        Reply::Array(vec![Reply::Bulk(key.clone()), Reply::Set(flags)])
    })
}

fn keys_in(args: &[Bytes], show: impl Fn(&Bytes, &'static [&'static str]) -> Reply) -> Reply {
    let invalid = || Reply::error("ERR Invalid command specified");
    let Some(named) = args.first().and_then(|name| lookup(name)) else { return invalid() };
    let spec = leaf(named, args);
    if !named.subcommands.is_empty() && args.len() > 1 && std::ptr::eq(spec, named) {
        return invalid();
    }
    if !spec.keys.iter().any(KeySpec::names_keys) {
        return Reply::error("ERR The command has no key arguments");
    }
    if !spec.accepts(args.len()) {
        return Reply::error("ERR Invalid number of arguments specified for command");
    }
    let is_wrong = |keys: &KeySpec| match keys.last {
        KeySpec::COUNTED => counted_keys(keys, args).is_none(),
        KeySpec::STREAMS => key_positions(args).is_empty(),
        _ => false,
    };
    if spec.keys.iter().any(is_wrong) {
        return Reply::error("ERR Invalid arguments specified for command");
    }
    Reply::Array(key_access(spec, args).map(|(_, key, flags)| show(key, flags)).collect())
}

fn text(text: &'static str) -> Reply {
    Reply::Bulk(Bytes::from_static(text.as_bytes()))
}

fn simple(text: &'static str) -> Reply {
    Reply::Simple(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Handler;
    use crate::table::resolve;

    fn run(line: &str) -> Reply {
        let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        match resolve(&args).unwrap().handler {
            Handler::Table(reply) => reply(&args),
            _ => panic!("{line} is not about the table"),
        }
    }

    #[test]
    fn info_has_the_ten_parts_of_redis_7() {
        let Reply::Array(mut infos) = run("command info GET nothere object|encoding") else { panic!() };
        assert_eq!(infos.len(), 3);
        assert_eq!(infos[1], Reply::Nil);
        let Reply::Array(encoding) = infos.pop().unwrap() else { panic!() };
        assert_eq!(encoding[..2], [text("object|encoding"), Reply::Int(3)]);
        let Reply::Array(get) = infos.swap_remove(0) else { panic!() };
        assert_eq!(get.len(), 10);
        assert_eq!(get[2], Reply::Set(vec![simple("readonly"), simple("fast")]));
        assert_eq!(get[3..6], [Reply::Int(1), Reply::Int(1), Reply::Int(1)]);
        assert_eq!(get[6], Reply::Set(vec![simple("@read"), simple("@fast"), simple("@string")]));
    }

    #[test]
    fn keys_are_found_in_whole_commands() {
        assert_eq!(run("command getkeys mset a 1 b 2"), Reply::Array(vec![text("a"), text("b")]));
        let flags = Reply::Set(vec![simple("RW"), simple("access"), simple("delete")]);
        assert_eq!(
            run("command getkeysandflags getdel a"),
            Reply::Array(vec![Reply::Array(vec![text("a"), flags])])
        );
        for (line, expected) in [
            ("command getkeys nope a", "ERR Invalid command specified"),
            ("command getkeys ping a", "ERR The command has no key arguments"),
            ("command getkeys get a b", "ERR Invalid number of arguments specified for command"),
            ("command getkeys xread COUNT 1 a", "ERR Invalid arguments specified for command"),
            ("command getkeys sintercard 3 a b", "ERR Invalid arguments specified for command"),
        ] {
            assert_eq!(run(line), Reply::error(expected));
        }
    }

    #[test]
    fn every_container_has_help_from_the_table() {
        for container in commands().iter().filter(|spec| !spec.subcommands.is_empty()) {
            let Some(help) = subcommand(container, b"help") else { panic!("{}", container.name) };
            assert!(!matches!(help.handler, Handler::Keyspace(_) | Handler::Spanning(..)), "{}", help.name);
        }
        let Reply::Array(lines) = run("Memory HELP") else { panic!() };
        assert_eq!(lines.len(), 13);
        assert_eq!(lines[1], simple("USAGE key [SAMPLES count]"));
    }

    #[test]
    fn lists_and_counts_agree() {
        let Reply::Array(listed) = run("command list") else { panic!() };
        assert!(listed.contains(&text("xinfo")) && listed.contains(&text("xinfo|groups")));
        let is_whole = |name: &&Reply| !matches!(name, Reply::Bulk(name) if name.contains(&b'|'));
        let all: Vec<&Reply> = listed.iter().filter(is_whole).collect();
        assert_eq!(run("command count"), Reply::Int(all.len() as i64));
        let Reply::Map(docs) = run("command docs") else { panic!() };
        assert_eq!(docs.len(), all.len());
        let Reply::Array(infos) = run("command") else { panic!() };
        assert_eq!(infos.len(), all.len());
        assert_eq!(run("command list filterby pattern HGETA*"), Reply::Array(vec![text("hgetall")]));
        assert_eq!(run("command list filterby module x"), Reply::Array(vec![]));
        assert_eq!(run("command list filterby color red"), Reply::error(error_messages::SYNTAX));
        let Reply::Array(hashes) = run("command list filterby aclcat hash") else { panic!() };
        assert_eq!(hashes.len(), 16);
    }
}
