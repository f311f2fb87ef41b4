//! `FUNCTION`: shows and changes the libraries of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::{AuditOutcome, AuditedChange, FunctionRecord, LibraryRecord};
use command::{glob_matches, FunctionCommand};
use node::session::Own;
use resp::Reply;

use super::audit::{self, NotChanged};
use super::other_stores::{await_others, OTHERS_PATIENCE};
use crate::accounts::text_of;
use crate::admin::{self, LibrariesAnswer};
use crate::connections::ClientEntry;
use crate::functions::{serialized, Libraries, Library};
use crate::secrets;
use crate::store::Store;

/// Maximum time in which `FUNCTION RESTORE` loads libraries. It is not replicated, so a clock may
/// decide.
const RESTORE_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause before a change is repeated, because another one came in between.
const AGAIN: Duration = Duration::from_millis(10);

/// Executes a subcommand of `FUNCTION`, or the part of it that does not wait.
pub fn run(store: &Store, command: FunctionCommand, args: &[Bytes]) -> Own {
    let known = store.functions.known();
    Own::Reply(match command {
        FunctionCommand::Load
        | FunctionCommand::Delete
        | FunctionCommand::Flush
        | FunctionCommand::Restore => return Own::Later,
        FunctionCommand::Dump => {
            Reply::bulk(rdb::write_libraries(known.by_name.values().map(|library| &library.code)))
        }
        FunctionCommand::List => list(&known, &args[2..]),
        FunctionCommand::Stats => stats(&known),
        // Every replica executes a function to its end.
        FunctionCommand::Kill => Reply::error("NOTBUSY No scripts in execution right now."),
    })
}

/// Executes a subcommand that [`run`] left for later.
pub async fn run_later(
    store: &Arc<Store>,
    entry: &ClientEntry,
    command: FunctionCommand,
    args: &[Bytes],
) -> Reply {
    let change = |command: &str, arguments| audit::change(store, entry, command, arguments);
    match command {
        FunctionCommand::Load => {
            let name = args.last().and_then(|code| script::library_name(code).ok()).map(|(name, _)| name);
            let change = change("function load", name.into_iter().collect());
            audit::recorded(store, &change, load(store, &args[2..], &change)).await
        }
        FunctionCommand::Delete => {
            let change = change("function delete", vec![secrets::shown(&args[2])]);
            audit::recorded(store, &change, delete(store, &args[2], &change)).await
        }
        FunctionCommand::Flush => {
            let change = change("function flush", Vec::new());
            audit::recorded(store, &change, flush(store, args, &change)).await
        }
        FunctionCommand::Restore => {
            let change = change("function restore", Vec::new());
            audit::recorded(store, &change, restore(store, args, &change)).await
        }
        _ => Reply::error("ERR internal error: the command was answered before"),
    }
}

fn text(text: &'static str) -> Reply {
    Reply::bulk(text.as_bytes())
}

fn shown(word: &[u8]) -> String {
    let word = word.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(word).replace(['\r', '\n'], " ")
}

fn list(known: &Libraries, mut options: &[Bytes]) -> Reply {
    let (mut pattern, mut has_code) = (None, false);
    while let [option, rest @ ..] = options {
        options = rest;
        if !has_code && option.eq_ignore_ascii_case(b"withcode") {
            has_code = true;
        } else if pattern.is_none() && option.eq_ignore_ascii_case(b"libraryname") {
            let [given, rest @ ..] = options else {
                return Reply::error("ERR library name argument was not given");
            };
            (pattern, options) = (Some(given), rest);
        } else {
            return Reply::error(format!("ERR Unknown argument {}", shown(option)));
        }
    }
    // As in Redis, the case makes no difference.
    let pattern = pattern.map(|pattern| pattern.to_ascii_lowercase());
    let is_meant = |name: &String| {
        let name = name.to_ascii_lowercase();
        pattern.as_ref().is_none_or(|pattern| glob_matches(pattern, name.as_bytes()))
    };
    let libraries = known.by_name.iter().filter(|(name, _)| is_meant(name));
    Reply::Array(libraries.map(|(name, library)| described(name, library, has_code)).collect())
}

fn described(name: &str, library: &Library, has_code: bool) -> Reply {
    let functions = library.functions.iter().map(|function| {
        let flags = function.flags.names().into_iter().map(|flag| Reply::Simple(flag.into())).collect();
        Reply::Map(vec![
            (text("name"), Reply::Bulk(function.name.clone())),
            (text("description"), function.description.clone().map_or(Reply::Nil, Reply::Bulk)),
            (text("flags"), Reply::Set(flags)),
        ])
    });
    let mut fields = vec![
        (text("library_name"), Reply::bulk(name.to_owned())),
        (text("engine"), text("LUA")),
        (text("functions"), Reply::Array(functions.collect())),
    ];
    if has_code {
        fields.push((text("library_code"), Reply::Bulk(library.code.clone())));
    }
    Reply::Map(fields)
}

fn stats(known: &Libraries) -> Reply {
    let count = |count: usize| Reply::Int(count as i64);
    let lua = Reply::Map(vec![
        (text("libraries_count"), count(known.count())),
        (text("functions_count"), count(known.functions_count())),
    ]);
    Reply::Map(vec![
        (text("running_script"), Reply::Nil),
        (text("engines"), Reply::Map(vec![(text("LUA"), lua)])),
    ])
}

/// A library that is to be created.
struct New {
    name: String,
    record: LibraryRecord,
}

fn error(text: impl std::fmt::Display) -> Reply {
    Reply::error(format!("ERR {text}"))
}

/// Executes the code of a library, to learn its functions.
fn loaded(code: &Bytes) -> Result<New, Reply> {
    let (name, _) = script::library_name(code).map_err(error)?;
    let function = |function: &script::Function| FunctionRecord {
        name: function.name.clone(),
        description: function.description.as_deref().map(text_of),
        flags: function.flags.names().into_iter().map(str::to_owned).collect(),
    };
    let functions = script::load_library(code).map_err(error)?.iter().map(function).collect();
    Ok(New { name, record: LibraryRecord { code: text_of(code), functions, since: 0 } })
}

/// Loads libraries, one command at a time: the threads are needed for other work, too.
async fn blocking<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce() -> Result<T, Reply> + Send + 'static,
) -> Result<T, Reply> {
    // It is kept also if the client goes.
    let turn = store.functions.loading.clone().lock_owned().await;
    let loading = move || {
        let _turn = turn;
        work()
    };
    let done = tokio::task::spawn_blocking(loading).await;
    done.unwrap_or_else(|_| Err(Reply::error("ERR the store is shutting down")))
}

/// Returns the error if another library has one of the functions. `replaced` are the libraries that
/// go.
fn check_functions(known: &Libraries, new: &New, replaced: &BTreeSet<&str>) -> Result<(), Reply> {
    for FunctionRecord { name, .. } in &new.record.functions {
        let owner = known.library_of(name.as_bytes());
        if owner.is_some_and(|owner| owner != new.name && !replaced.contains(owner)) {
            return Err(error(format!("Function {name} already exists")));
        }
    }
    Ok(())
}

async fn load(store: &Arc<Store>, args: &[Bytes], audit: &AuditedChange) -> Result<Reply, NotChanged> {
    let [options @ .., code] = args else { return Err(error("syntax error").into()) };
    if let Some(other) = options.iter().find(|option| !option.eq_ignore_ascii_case(b"replace")) {
        return Err(error(format!("Unknown option given: {}", shown(other))).into());
    }
    let replaces = !options.is_empty();
    let (name, _) = script::library_name(code).map_err(error)?;
    let exists = |known: &Libraries| match !replaces && known.by_name.contains_key(&name) {
        true => Err(error(format!("Library '{name}' already exists"))),
        false => Ok(()),
    };
    exists(&store.functions.known())?;
    let code = code.clone();
    let new = blocking(store, move || loaded(&code)).await?;
    change(store, audit, |known| {
        exists(known)?;
        check_functions(known, &new, &BTreeSet::new())?;
        Ok((Changes::from([(name.clone(), Some(new.record.clone()))]), false))
    })
    .await?;
    Ok(Reply::bulk(name))
}

async fn delete(store: &Arc<Store>, name: &Bytes, audit: &AuditedChange) -> Result<Reply, NotChanged> {
    change(store, audit, |known| match std::str::from_utf8(name) {
        Ok(name) if known.by_name.contains_key(name) => Ok((Changes::from([(name.to_owned(), None)]), false)),
        _ => Err(error("Library not found")),
    })
    .await?;
    Ok(Reply::OK)
}

async fn flush(store: &Arc<Store>, args: &[Bytes], audit: &AuditedChange) -> Result<Reply, NotChanged> {
    match &args[2..] {
        [] => {}
        [mode] if mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async") => {}
        [_] => return Err(error("FUNCTION FLUSH only supports SYNC|ASYNC option").into()),
        _ => return Err(command::wrong_subcommand(args).into()),
    }
    change(store, audit, |_| Ok((Changes::new(), true))).await?;
    Ok(Reply::OK)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Flush,
    Append,
    Replace,
}

async fn restore(store: &Arc<Store>, args: &[Bytes], audit: &AuditedChange) -> Result<Reply, NotChanged> {
    let policy = match &args[3..] {
        [] => Policy::Append,
        [word] if word.eq_ignore_ascii_case(b"append") => Policy::Append,
        [word] if word.eq_ignore_ascii_case(b"replace") => Policy::Replace,
        [word] if word.eq_ignore_ascii_case(b"flush") => Policy::Flush,
        [_] => {
            let text = "Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
            return Err(error(text).into());
        }
        _ => return Err(command::wrong_subcommand(args).into()),
    };
    let payload = args[2].clone();
    let news = blocking(store, move || {
        let began = Instant::now();
        let codes = serialized::read(&payload).map_err(error)?;
        let mut names = BTreeSet::new();
        let mut functions = BTreeSet::new();
        let mut news = Vec::new();
        for code in &codes {
            let (name, _) = script::library_name(code).map_err(error)?;
            if !names.insert(name.clone()) {
                return Err(error(format!("Library '{name}' already exists")));
            }
            if began.elapsed() > RESTORE_TIME_MAX {
                return Err(error("the libraries take too long to load: restore fewer at once"));
            }
            let new = loaded(code)?;
            let lower = |function: &FunctionRecord| function.name.to_ascii_lowercase();
            let own = &new.record.functions;
            if let Some(function) = own.iter().find(|function| functions.contains(&lower(function))) {
                return Err(error(format!("Function {} already exists", function.name)));
            }
            functions.extend(own.iter().map(lower));
            news.push(new);
        }
        Ok(news)
    })
    .await?;
    change(store, audit, |known| {
        let replaced = match policy {
            Policy::Append => BTreeSet::new(),
            Policy::Replace => news.iter().map(|new| new.name.as_str()).collect(),
            Policy::Flush => known.by_name.keys().map(String::as_str).collect(),
        };
        for new in &news {
            if policy == Policy::Append && known.by_name.contains_key(&new.name) {
                return Err(error(format!("Library {} already exists", new.name)));
            }
            check_functions(known, new, &replaced)?;
        }
        let changes = news.iter().map(|new| (new.name.clone(), Some(new.record.clone())));
        Ok((changes.collect(), policy == Policy::Flush))
    })
    .await?;
    Ok(Reply::OK)
}

/// Changes of libraries by name: the new ones, or `None` for those that are deleted.
type Changes = BTreeMap<String, Option<LibraryRecord>>;

/// Changes libraries, and returns once this store has the change, and those of the others that are
/// up, if they are not slow. `changes` is computed again if another change came in between. Its
/// flag is true if libraries that are not named are deleted.
async fn change(
    store: &Arc<Store>,
    audit: &AuditedChange,
    mut changes: impl FnMut(&Libraries) -> Result<(Changes, bool), Reply>,
) -> Result<(), NotChanged> {
    let deadline = Instant::now() + store.config.request_timeout;
    loop {
        let known = store.functions.known();
        let (changes, replaces) = changes(&known)?;
        if changes.is_empty() && !replaces {
            return Ok(());
        }
        if changes.values().flatten().map(LibraryRecord::bytes).sum::<usize>() > cluster::LIBRARIES_BYTES_MAX
        {
            return Err(error(cluster::LIBRARIES_TOO_LONG).into());
        }
        let asked = admin::set_libraries(store, Some(audit.clone()), known.version, changes, replaces).await;
        let left = deadline.saturating_duration_since(Instant::now());
        match asked.map_err(NotChanged::by_cluster)? {
            LibrariesAnswer::Changed(version) => {
                if !store.functions.has(version, left.max(OTHERS_PATIENCE)).await {
                    let late = error("the libraries are changed, and this store does not have them yet");
                    return Err(NotChanged::ByCluster(late, AuditOutcome::Done));
                }
                let has = move |store: Arc<Store>, to| async move {
                    admin::has_libraries(&store, to, version).await;
                };
                await_others(store, has).await;
                return Ok(());
            }
            LibrariesAnswer::Conflict(version) if version < known.version => {
                return Err(error(
                    "this store has libraries that the cluster has lost: stop it, delete DIR/FUNCTIONS, and start it",
                )
                .into());
            }
            LibrariesAnswer::Conflict(version) => {
                if left.is_zero() || !store.functions.has(version, left).await {
                    let text = "the libraries are changed by others at the same time: nothing was changed";
                    return Err(error(text).into());
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
