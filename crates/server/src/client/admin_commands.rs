//! CLIENT and CONFIG.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::AuditOutcome;
use command::{ClientCommand, ConfigCommand};
use node::session::{Own, Replies};
use resp::Reply;
use rocks::OptionError;

use super::audit::NotChanged;
use super::{acl_commands, audit, thresholds, tracking_commands, ClientEntry, Connected};
use crate::admin;
use crate::audit_queue::LocalRecord;
use crate::config_file::RewriteError;
use crate::settings::{SettingError, Settings};
use crate::store::Store;

pub fn client(store: &Store, client: &mut Connected<'_>, command: ClientCommand, args: &[Bytes]) -> Reply {
    match command {
        ClientCommand::Id => Reply::Int(client.entry.id as i64),
        ClientCommand::GetName => match client.entry.description().name {
            name if name.is_empty() => Reply::Nil,
            name => Reply::Bulk(name),
        },
        ClientCommand::SetName => match bad_name(&args[2]) {
            Some(error) => error,
            None => {
                client.entry.describe(|d| d.name = args[2].clone());
                Reply::OK
            }
        },
        ClientCommand::SetInfo => set_info(client, &args[2], &args[3]),
        ClientCommand::Info => Reply::bulk(format!("{}\n", client.entry.line())),
        ClientCommand::List => list(store, &args[2..]),
        ClientCommand::Kill => kill(store, client, &args[2..]),
        ClientCommand::Unblock => unblock(store, args),
        ClientCommand::Tracking => tracking_commands::tracking(store, client, &args[2..]),
        ClientCommand::TrackingInfo => tracking_commands::info(store, client),
        ClientCommand::Caching => tracking_commands::caching(store, client, &args[2]),
        ClientCommand::GetRedir => tracking_commands::redirection(store, client),
        ClientCommand::NoEvict | ClientCommand::NoTouch => match is_on_or_off(&args[2]) {
            // Neither has an effect here.
            true => Reply::OK,
            false => Reply::error("ERR syntax error"),
        },
        ClientCommand::Pause => pause(store, args),
        ClientCommand::Unpause => {
            store.client_pause.end();
            Reply::OK
        }
        ClientCommand::Reply => unreachable!("it may have no reply"),
    }
}

fn pause(store: &Store, args: &[Bytes]) -> Reply {
    let is_of_all = match &args[2..] {
        [_] => true,
        [_, mode] if mode.eq_ignore_ascii_case(b"all") => true,
        [_, mode] if mode.eq_ignore_ascii_case(b"write") => false,
        [_, _] => return Reply::error("ERR CLIENT PAUSE mode must be WRITE or ALL"),
        _ => return command::wrong_subcommand(args),
    };
    match resp::parse_integer(&args[2]) {
        None => Reply::error("ERR timeout is not an integer or out of range"),
        Some(..0) => Reply::error("ERR timeout is negative"),
        Some(ms) => {
            let time = Duration::from_millis(ms.unsigned_abs());
            store.client_pause.begin(Instant::now(), time, is_of_all);
            Reply::OK
        }
    }
}

fn is_on_or_off(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"on") || word.eq_ignore_ascii_case(b"off")
}

/// Executes `CLIENT REPLY`.
pub fn reply(client: &mut Connected<'_>, word: &[u8]) -> Own {
    client.context.replies = match word.to_ascii_lowercase().as_slice() {
        b"on" => {
            client.context.replies = Replies::On;
            return Own::Reply(Reply::OK);
        }
        b"off" => Replies::Off,
        b"skip" if client.context.replies == Replies::Off => Replies::Off,
        b"skip" => Replies::SkipNext,
        _ => return Own::Reply(Reply::error("ERR syntax error")),
    };
    Own::Several(Vec::new())
}

fn unblock(store: &Store, args: &[Bytes]) -> Reply {
    let reply = match &args[2..] {
        [_] => Reply::NilArray,
        [_, reason] if reason.eq_ignore_ascii_case(b"timeout") => Reply::NilArray,
        [_, reason] if reason.eq_ignore_ascii_case(b"error") => {
            Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
        }
        [_, _] => return Reply::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        _ => return command::wrong_subcommand(args),
    };
    match resp::parse_integer(&args[2]) {
        Some(id) => {
            let client = u64::try_from(id).ok();
            Reply::Int(i64::from(client.is_some_and(|client| store.blocked.unblock(client, reply))))
        }
        None => Reply::error("ERR value is not an integer or out of range"),
    }
}

/// Returns an error if a name would break the lines of CLIENT LIST.
pub fn bad_name(name: &[u8]) -> Option<Reply> {
    let clean = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    (!clean).then(|| Reply::error("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn set_info(client: &mut Connected<'_>, attribute: &[u8], value: &Bytes) -> Reply {
    if !value.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        let attribute = String::from_utf8_lossy(attribute).to_ascii_lowercase();
        return Reply::error(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        ));
    }
    match attribute.to_ascii_lowercase().as_slice() {
        b"lib-name" => client.entry.describe(|d| d.library = value.clone()),
        b"lib-ver" => client.entry.describe(|d| d.library_version = value.clone()),
        _ => {
            let attribute = String::from_utf8_lossy(attribute);
            return Reply::error(format!("ERR Unrecognized option '{attribute}'"));
        }
    }
    Reply::OK
}

fn list(store: &Store, options: &[Bytes]) -> Reply {
    let mut all = store.clients.all();
    match options {
        [] => {}
        [option, kind] if option.eq_ignore_ascii_case(b"type") => {
            match kind.to_ascii_lowercase().as_slice() {
                b"normal" => all.retain(|entry| !entry.subscriber.is_subscribed()),
                b"pubsub" => all.retain(|entry| entry.subscriber.is_subscribed()),
                b"master" | b"replica" | b"slave" => all.clear(),
                _ => {
                    let kind = String::from_utf8_lossy(kind);
                    return Reply::error(format!("ERR Unknown client type '{kind}'"));
                }
            }
        }
        [option, ids @ ..] if option.eq_ignore_ascii_case(b"id") && !ids.is_empty() => {
            let parsed: Option<Vec<i64>> = ids.iter().map(|id| resp::parse_integer(id)).collect();
            match parsed {
                Some(wanted) => {
                    all.retain(|entry| wanted.iter().any(|id| u64::try_from(*id) == Ok(entry.id)))
                }
                None => return Reply::error("ERR Invalid client ID"),
            }
        }
        _ => return Reply::error("ERR syntax error"),
    }
    let text: String = all.iter().map(|entry| entry.line() + "\n").collect();
    Reply::Verbatim("txt", text.into())
}

fn kill(store: &Store, client: &mut Connected<'_>, filter: &[Bytes]) -> Reply {
    let end = |client: &mut Connected<'_>, entry: &Arc<ClientEntry>| {
        // The caller's own connection closes after its reply.
        if entry.id == client.entry.id {
            client.context.closing = true;
        } else {
            entry.end();
        }
    };
    if let [address] = filter {
        let found = store.clients.all().into_iter().find(|e| e.peer.to_string().as_bytes() == &address[..]);
        return match found {
            Some(entry) => {
                end(client, &entry);
                Reply::OK
            }
            None => Reply::error("ERR No such client"),
        };
    }
    if filter.is_empty() || filter.len() % 2 != 0 {
        return Reply::error("ERR syntax error");
    }
    let mut skip_me = true;
    let mut chosen = store.clients.all();
    for pair in filter.chunks(2) {
        let value = String::from_utf8_lossy(&pair[1]).into_owned();
        match pair[0].to_ascii_lowercase().as_slice() {
            b"id" => match value.parse::<u64>() {
                Ok(id) if id > 0 => chosen.retain(|entry| entry.id == id),
                _ => return Reply::error("ERR client-id should be greater than 0"),
            },
            b"addr" => chosen.retain(|entry| entry.peer.to_string() == value),
            b"laddr" => chosen.retain(|entry| entry.local.to_string() == value),
            b"user" if store.access.accounts().get(&pair[1]).is_some() => {
                chosen.retain(|entry| entry.user_name() == pair[1]);
            }
            b"user" => return Reply::error(format!("ERR No such user '{value}'")),
            b"type" => match value.to_ascii_lowercase().as_str() {
                "normal" => chosen.retain(|entry| !entry.subscriber.is_subscribed()),
                "pubsub" => chosen.retain(|entry| entry.subscriber.is_subscribed()),
                "master" | "replica" | "slave" => chosen.clear(),
                _ => return Reply::error(format!("ERR Unknown client type '{value}'")),
            },
            b"skipme" => match value.to_ascii_lowercase().as_str() {
                "yes" => skip_me = true,
                "no" => skip_me = false,
                _ => return Reply::error("ERR syntax error"),
            },
            _ => return Reply::error("ERR syntax error"),
        }
    }
    chosen.retain(|entry| !(skip_me && entry.id == client.entry.id));
    chosen.iter().for_each(|entry| end(client, entry));
    Reply::Int(chosen.len() as i64)
}

pub fn config(store: &Store, command: ConfigCommand, args: &[Bytes]) -> Own {
    Own::Reply(match command {
        ConfigCommand::Get => get(store, &args[2..]),
        ConfigCommand::Set if args.len() % 2 == 0 => return Own::Later,
        ConfigCommand::Set => Reply::error("ERR syntax error"),
        ConfigCommand::Rewrite => return Own::Later,
        ConfigCommand::ResetStat => {
            store.statistics.reset(&store.metrics, store.snapshots_sent());
            Reply::OK
        }
    })
}

/// Returns each setting that is named or matches a pattern, once. A name keeps the client's
/// spelling.
fn get(store: &Store, patterns: &[Bytes]) -> Reply {
    let is_glob = |pattern: &Bytes| pattern.iter().any(|byte| b"*?[".contains(byte));
    let asked_for = |name: &'static str| {
        let literal = patterns.iter().find(|p| !is_glob(p) && p.eq_ignore_ascii_case(name.as_bytes()));
        let fits = |p: &Bytes| is_glob(p) && command::glob_matches(&p.to_ascii_lowercase(), name.as_bytes());
        match literal {
            Some(text) => Some(text.clone()),
            None => patterns.iter().any(fits).then_some(Bytes::from_static(name.as_bytes())),
        }
    };
    let mut all = store.settings.read().all();
    all.extend(store.engine.rows().options().settings());
    all.extend(thresholds::all(store));
    all.sort();
    let rows = all.into_iter().filter_map(|(name, value)| Some((asked_for(name)?, value)));
    Reply::Map(rows.map(|(name, value)| (Reply::Bulk(name), Reply::bulk(value))).collect())
}

/// The prefix of RocksDB's options among the settings.
const ROCKSDB: &str = "rocksdb.";

/// Returns the new `requirepass`, if the cluster has agreed on a default user.
fn agreed_password(store: &Store, args: &[Bytes]) -> Option<Option<String>> {
    let pairs = args.get(2..).unwrap_or_default().chunks(2);
    let mut set = pairs.filter_map(|pair| match pair {
        [name, value] if name.eq_ignore_ascii_case(b"requirepass") => Some(value),
        _ => None,
    });
    let value = set.next().filter(|_| store.access.accounts().is_default_agreed)?;
    Some((!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned()))
}

fn rocksdb_name(name: &[u8]) -> Option<String> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    name.strip_prefix(ROCKSDB).map(str::to_owned)
}

/// Executes `CONFIG SET`, and records it. All of the settings are changed, or none, unless RocksDB
/// fails or certificates cannot be loaded: the thresholds of the cluster are changed before both,
/// and options of RocksDB before certificates.
pub async fn set_and_record(store: &Arc<Store>, entry: &ClientEntry, args: &[Bytes]) -> Reply {
    let change = audit::change(store, entry, "config set", audit::of_config_set(store, &args[2..]));
    let refused = |reply| audit::record(change.clone(), reply, AuditOutcome::Refused);
    let (values, others) = match thresholds::separate(args.get(2..).unwrap_or_default()) {
        Ok(separate) => separate,
        Err(error) => {
            admin::note_change(store, refused(&error)).await;
            return error;
        }
    };
    if !values.is_empty() && others.is_empty() {
        return audit::recorded(store, &change, thresholds::set(store, Some(&change), values)).await;
    }
    let has_thresholds = !values.is_empty();
    if has_thresholds {
        // The cluster's settings come first, because they may be refused.
        let set = match check_all(store, &others) {
            Ok(_) => thresholds::set(store, None, values).await.map(drop).map_err(NotChanged::into_parts),
            Err(error) => Err((error, AuditOutcome::Refused)),
        };
        if let Err((error, outcome)) = set {
            admin::note_change(store, audit::record(change, &error, outcome)).await;
            return error;
        }
    }
    let setting = {
        let store = store.clone();
        move || set_all(&store, &others)
    };
    // Options of RocksDB and certificates wait for files.
    let set = tokio::task::spawn_blocking(setting).await;
    let (mut reply, mut outcome) =
        set.unwrap_or_else(|_| (Reply::error("ERR the store is shutting down"), AuditOutcome::Unknown));
    if has_thresholds && outcome == AuditOutcome::Refused {
        // The thresholds are changed.
        outcome = AuditOutcome::Unknown;
    }
    if let (Some(password), AuditOutcome::Done) = (agreed_password(store, args), outcome) {
        if let Err(error) = acl_commands::set_default_password(store, password.as_deref()).await {
            // This store's own settings are changed.
            (reply, outcome) = (error, AuditOutcome::Unknown);
        }
    }
    admin::note_change(store, audit::record(change, &reply, outcome)).await;
    reply
}

/// Executes `CONFIG REWRITE`, and records it.
pub async fn rewrite_and_record(store: &Arc<Store>, entry: &ClientEntry) -> Reply {
    let change = audit::change(store, entry, "config rewrite", Vec::new());
    let rewriting = {
        let store = store.clone();
        move || rewrite(&store)
    };
    let written = tokio::task::spawn_blocking(rewriting).await;
    let (reply, outcome) =
        written.unwrap_or_else(|_| (Reply::error("ERR the store is shutting down"), AuditOutcome::Unknown));
    // The reason may quote the file, which has secrets.
    admin::note_change(store, LocalRecord::new(change, outcome, None)).await;
    reply
}

fn rewrite(store: &Store) -> (Reply, AuditOutcome) {
    let Some(file) = &store.config.file else {
        return (Reply::error("ERR The server is running without a config file"), AuditOutcome::Refused);
    };
    let changes = || {
        let names = store.rocksdb_changes.lock().clone();
        let mut options = store.engine.rows().options().settings();
        options.retain(|(name, _)| name.strip_prefix(ROCKSDB).is_some_and(|name| names.contains(name)));
        (store.settings.read().changed(), options)
    };
    let path = file.path().display();
    match file.rewrite(changes) {
        Ok(()) => {
            tracing::info!(file = %path, "changed settings were written to the file");
            (Reply::OK, AuditOutcome::Done)
        }
        Err(error) => {
            tracing::warn!(file = %path, "the file was not rewritten");
            let outcome = match error {
                RewriteError::Refused(_) => AuditOutcome::Refused,
                RewriteError::Write(_) => AuditOutcome::Unknown,
            };
            (Reply::error(format!("ERR Rewriting config file: {error}")), outcome)
        }
    }
}

/// Settings that were checked.
#[derive(Default)]
struct Checked {
    /// The options of RocksDB, with their values.
    options: Vec<(String, String)>,
    others: Vec<Bytes>,
    /// The value of `maxmemory` afterwards.
    maxmemory: u64,
}

/// Checks settings as far as that is possible before they are changed.
fn check_all(store: &Store, pairs: &[Bytes]) -> Result<Checked, Reply> {
    let Checked { mut options, mut others, .. } = Checked::default();
    for pair in pairs.chunks(2) {
        let Some(name) = rocksdb_name(&pair[0]) else {
            others.extend_from_slice(pair);
            continue;
        };
        let why = match options.iter().any(|(other, _)| *other == name) {
            true => "duplicate parameter",
            false if !rocks::Options::names().any(|known| known == name) => return Err(unknown(&pair[0])),
            false if !rocks::Options::can_change(&name) => "can't set immutable config",
            false => {
                options.push((name, String::from_utf8_lossy(&pair[1]).into_owned()));
                continue;
            }
        };
        return Err(failed(&pair[0], why));
    }
    let mut probe = store.settings.read().clone();
    change(&mut probe, &others)?;
    if !options.is_empty() {
        if let Err(error) = store.engine.rows().options().changed(&options) {
            return Err(bad_option(&error, &options));
        }
    }
    Ok(Checked { options, others, maxmemory: probe.maxmemory })
}

/// Returns the error of `CONFIG SET` for options that RocksDB cannot have.
fn bad_option(error: &OptionError, options: &[(String, String)]) -> Reply {
    let named = match error {
        OptionError::BadValue { name, .. } => format!("{ROCKSDB}{name}"),
        _ => options.first().map_or(ROCKSDB.to_owned(), |(name, _)| format!("{ROCKSDB}{name}")),
    };
    failed(named.as_bytes(), &error.to_string())
}

fn set_all(store: &Store, pairs: &[Bytes]) -> (Reply, AuditOutcome) {
    let refused = |error| (error, AuditOutcome::Refused);
    let _one_at_a_time = store.changing_settings.lock();
    // All are checked before anything changes.
    let Checked { options, others, maxmemory } = match check_all(store, pairs) {
        Ok(checked) => checked,
        Err(error) => return refused(error),
    };
    let has_changed = !options.is_empty();
    if has_changed {
        if let Err(error) = store.engine.rows().set_options(&options) {
            return refused(bad_option(&error, &options));
        }
    }
    for (name, value) in options {
        tracing::info!(
            name,
            value,
            "an option of RocksDB was changed until the next start or CONFIG REWRITE"
        );
        store.rocksdb_changes.lock().insert(name);
    }
    // This waits for files, so it does not belong under the lock of the settings.
    let before = store.budget.maxmemory();
    if maxmemory != before {
        if let Err(error) = store.set_maxmemory(maxmemory) {
            let outcome = if has_changed { AuditOutcome::Unknown } else { AuditOutcome::Refused };
            return (failed(b"maxmemory", &error.to_string()), outcome);
        }
    }
    let reply = set(store, &others);
    if maxmemory != before && reply != Reply::OK {
        if let Err(error) = store.set_maxmemory(before) {
            tracing::warn!(%error, "maxmemory could not be changed back");
        }
    }
    let outcome = match has_changed {
        _ if reply == Reply::OK => AuditOutcome::Done,
        true => AuditOutcome::Unknown,
        false => AuditOutcome::Refused,
    };
    (reply, outcome)
}

fn unknown(name: &[u8]) -> Reply {
    let name = String::from_utf8_lossy(name);
    Reply::error(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"))
}

/// Returns the error of `CONFIG SET` for a value that a setting cannot have.
pub fn failed(name: &[u8], why: &str) -> Reply {
    let name = String::from_utf8_lossy(name);
    Reply::error(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

/// Changes all of the settings, or none, but for the options of RocksDB and the memory.
fn set(store: &Store, pairs: &[Bytes]) -> Reply {
    let mut settings = store.settings.write();
    let mut changed = settings.clone();
    if let Err(error) = change(&mut changed, pairs) {
        return error;
    }
    if settings.tls != changed.tls && store.config.uses_tls() {
        if let Err(why) = store.tls.load(&changed.tls) {
            tracing::warn!(why, "the TLS settings are not changed");
            let named = pairs.chunks(2).find(|pair| pair[0].to_ascii_lowercase().starts_with(b"tls-"));
            let named = named.map_or(&b"tls-cert-file"[..], |pair| &pair[0]);
            return failed(named, "Unable to update TLS configuration. Check server logs.");
        }
    }
    if changed.io_threads > 0 {
        store.loops.serve_with(changed.io_threads);
    }
    if let (true, Some(set)) = (settings.loglevel != changed.loglevel, &store.config.set_loglevel) {
        (set.0)(&changed.loglevel);
    }
    if settings.snapshot_rate != changed.snapshot_rate {
        store.snapshots().set_rate(changed.snapshot_rate);
    }
    store.client_memory.set_limits(changed.output_limits);
    store.clients.pubsub.tracking.set_keys_max(changed.tracking_keys_max);
    store.statistics.configure(&changed.statistics);
    store.notices.set(changed.keyspace_events);
    let has_other_password = settings.requirepass != changed.requirepass;
    *settings = changed;
    drop(settings);
    if has_other_password {
        store.access.settings_changed();
    }
    Reply::OK
}

/// Changes these settings. The error is the client's reply.
fn change(changed: &mut Settings, pairs: &[Bytes]) -> Result<(), Reply> {
    for (at, pair) in pairs.chunks(2).enumerate() {
        let (name, value) = (String::from_utf8_lossy(&pair[0]), String::from_utf8_lossy(&pair[1]));
        let earlier = pairs.chunks(2).take(at).any(|other| other[0].eq_ignore_ascii_case(&pair[0]));
        let outcome = match earlier {
            true => Err(SettingError::Invalid("duplicate parameter".to_owned())),
            false => changed.set(&name, &value),
        };
        let why = match outcome {
            Ok(()) => continue,
            Err(SettingError::Unknown) => return Err(unknown(&pair[0])),
            Err(SettingError::Immutable) => "can't set immutable config".to_owned(),
            Err(SettingError::Invalid(why)) => why,
        };
        return Err(failed(&pair[0], &why));
    }
    Ok(())
}
