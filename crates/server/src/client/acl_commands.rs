//! `ACL`: shows and changes the users of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acl::{Denial, SelectorView, User, DEFAULT_USER};
use bytes::Bytes;
use cluster::AuditedChange;
use command::{AclCommand, CommandSpec};
use node::session::Own;
use resp::Reply;

use super::audit::{self, NotChanged};
use super::Connected;
use crate::accounts::{text_of, Accounts};
use crate::admin::{self, UsersAnswer};
use crate::connections::ClientEntry;
use crate::secrets::shown as shown_name;
use crate::store::Store;

/// Pause before a change is repeated, because another one came in between.
const AGAIN: Duration = Duration::from_millis(10);
/// Number of bits of a generated password, by default and at most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;
const LOG_ENTRIES: usize = 10;

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users \
via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in \
order to store users in the Redis configuration.";

/// Executes `ACL`, or the part of it that does not wait.
pub fn run(store: &Store, client: &Connected<'_>, command: AclCommand, args: &[Bytes]) -> Own {
    let accounts = store.access.accounts();
    Own::Reply(match command {
        AclCommand::SetUser | AclCommand::DelUser | AclCommand::Load | AclCommand::Save => return Own::Later,
        AclCommand::WhoAmI => Reply::Bulk(store.access.account_of(client.entry).name.clone()),
        AclCommand::Users => {
            Reply::Array(accounts.all().map(|account| Reply::Bulk(account.name.clone())).collect())
        }
        AclCommand::List => Reply::Array(
            accounts
                .all()
                .map(|account| {
                    let line = [b"user ", &account.name[..], b" ", &account.user.describe()].concat();
                    Reply::bulk(line)
                })
                .collect(),
        ),
        AclCommand::GetUser => match accounts.get(&args[2]) {
            Some(account) => described(&account.user),
            None => Reply::Nil,
        },
        AclCommand::Cat => categories(args),
        AclCommand::GenPass => generated(args),
        AclCommand::DryRun => dry_run(&accounts, args),
        AclCommand::Log => log(store, args),
    })
}

/// Executes a subcommand that [`run`] left for later.
pub async fn run_later(
    store: &Arc<Store>,
    entry: &ClientEntry,
    command: AclCommand,
    args: &[Bytes],
) -> Reply {
    let _changing = entry.changing_users();
    match command {
        AclCommand::SetUser => {
            let audit = audit::change(store, entry, "acl setuser", audit::of_set_user(&args[2..]));
            audit::recorded(store, &audit, set_user(store, args, &audit)).await
        }
        AclCommand::DelUser => {
            let names = args[2..].iter().map(|name| shown_name(name)).collect();
            let audit = audit::change(store, entry, "acl deluser", names);
            audit::recorded(store, &audit, delete_users(store, &args[2..], &audit)).await
        }
        AclCommand::Load => {
            let audit = audit::change(store, entry, "acl load", Vec::new());
            audit::recorded(store, &audit, load(store, &audit)).await
        }
        AclCommand::Save => save(store).await,
        _ => Reply::error("ERR internal error: the command was answered before"),
    }
}

fn described(user: &User) -> Reply {
    let text = |text: &'static str| Reply::bulk(text.as_bytes());
    let parts = |SelectorView { commands, keys, channels }: SelectorView| {
        vec![
            (text("commands"), Reply::bulk(commands)),
            (text("keys"), Reply::bulk(keys)),
            (text("channels"), Reply::bulk(channels)),
        ]
    };
    let flags = user.flags().into_iter().map(text).collect();
    let passwords = user.passwords().iter().map(|digest| Reply::bulk(digest.clone())).collect();
    let mut fields = vec![(text("flags"), Reply::Set(flags)), (text("passwords"), Reply::Array(passwords))];
    fields.extend(parts(user.root().view()));
    let selectors = user.selectors().iter().map(|selector| Reply::Map(parts(selector.view()))).collect();
    fields.push((text("selectors"), Reply::Array(selectors)));
    Reply::Map(fields)
}

fn categories(args: &[Bytes]) -> Reply {
    let list = |names: &[&'static str]| {
        Reply::Array(names.iter().map(|name| Reply::bulk(name.as_bytes())).collect())
    };
    match &args[2..] {
        [] => list(&acl::CATEGORIES),
        [name] => match acl::category_members(name) {
            Some(members) => list(&members),
            None => Reply::error(format!("ERR Unknown category '{}'", shown(name))),
        },
        _ => command::wrong_subcommand(args),
    }
}

fn generated(args: &[Bytes]) -> Reply {
    let bits = match &args[2..] {
        [] => PASSWORD_BITS,
        [bits] => match resp::parse_integer(bits) {
            Some(bits) if (1..=PASSWORD_BITS_MAX).contains(&bits) => bits,
            Some(_) => {
                return Reply::error(format!(
                    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
                     number up to {PASSWORD_BITS_MAX}"
                ))
            }
            None => return Reply::error("ERR value is not an integer or out of range"),
        },
        _ => return command::wrong_subcommand(args),
    };
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    if getrandom::fill(&mut random).is_err() {
        return Reply::error("ERR the system has no random numbers");
    }
    let mut text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    Reply::bulk(text)
}

/// Returns the error reply of a command that a user may not execute.
pub fn refusal(denial: Denial, spec: &'static CommandSpec) -> Reply {
    Reply::error(match denial {
        Denial::Command => format!("NOPERM this user has no permissions to run the '{}' command", spec.name),
        Denial::Key(_) => {
            "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
        }
        Denial::Pattern(pattern) => pattern.denial_to_user().to_owned(),
        Denial::Channel(_) => {
            "NOPERM this user has no permissions to access one of the channels used as arguments".to_owned()
        }
    })
}

fn dry_run(accounts: &Accounts, args: &[Bytes]) -> Reply {
    let Some(account) = accounts.get(&args[2]) else {
        return Reply::error(format!("ERR User '{}' not found", shown(&args[2])));
    };
    let args = &args[3..];
    let unknown = || Reply::error(format!("ERR Command '{}' not found", shown(&args[0])));
    let Some(spec) = command::lookup(&args[0]) else { return unknown() };
    let leaf = command::leaf(spec, args);
    if !spec.subcommands.is_empty() && args.len() > 1 && std::ptr::eq(leaf, spec) {
        return unknown();
    }
    if !leaf.accepts(args.len()) {
        return command::wrong_arity(leaf.name);
    }
    match account.user.check(leaf, args) {
        // Redis checks patterns when the command is executed.
        Ok(()) | Err(Denial::Pattern(_)) => Reply::OK,
        Err(Denial::Command) => {
            Reply::bulk(format!("This user has no permissions to run the '{}' command", leaf.name))
        }
        Err(Denial::Key(at)) => {
            Reply::bulk([b"This user has no permissions to access the '", &args[at][..], b"' key"].concat())
        }
        Err(Denial::Channel(at)) => {
            let text = [b"This user has no permissions to access the '", &args[at][..], b"' channel"];
            Reply::bulk(text.concat())
        }
    }
}

fn log(store: &Store, args: &[Bytes]) -> Reply {
    let count = match &args[2..] {
        [] => LOG_ENTRIES,
        [word] if word.eq_ignore_ascii_case(b"reset") => {
            store.access.forget_denials();
            return Reply::OK;
        }
        [count] => match resp::parse_integer(count) {
            Some(count) => usize::try_from(count).unwrap_or(0),
            None => return Reply::error("ERR value is not an integer or out of range"),
        },
        _ => return command::wrong_subcommand(args),
    };
    let text = |text: &'static str| Reply::bulk(text.as_bytes());
    let entries = store.access.recent_denials(count).into_iter().map(|(entry, age_ms)| {
        Reply::Map(vec![
            (text("count"), Reply::Int(i64::try_from(entry.count).unwrap_or(i64::MAX))),
            (text("reason"), text(entry.event.reason)),
            (text("context"), text(entry.event.context)),
            (text("object"), Reply::Bulk(entry.event.object)),
            (text("username"), Reply::Bulk(entry.event.username)),
            (text("age-seconds"), Reply::Double(age_ms as f64 / 1000.0)),
            (text("client-info"), Reply::bulk(entry.client)),
        ])
    });
    Reply::Array(entries.collect())
}

/// Changes of users by name: their new rules, or `None` for those that are deleted.
type Changes = BTreeMap<String, Option<String>>;

async fn set_user(store: &Arc<Store>, args: &[Bytes], audit: &AuditedChange) -> Result<Reply, NotChanged> {
    let name = &args[2];
    if acl::has_spaces(name) {
        return Err(Reply::error("ERR Usernames can't contain spaces or null characters").into());
    }
    let modifiers = match acl::merge_selectors(&args[3..]) {
        Ok(modifiers) => modifiers,
        Err(acl::Unmatched(first)) => {
            let first = shown(&first);
            let text = format!("ERR Unmatched parenthesis in acl selector starting at '{first}'.");
            return Err(Reply::error(text).into());
        }
    };
    let all_channels = store.settings.read().acl_pubsub_all;
    change(store, Some(audit), false, |accounts| {
        let mut user = match accounts.get(name) {
            Some(account) => account.user.clone(),
            None => User::new(all_channels),
        };
        for modifier in &modifiers {
            if let Err(error) = user.apply(modifier, all_channels) {
                let modifier = shown(modifier);
                return Err(Reply::error(format!("ERR Error in ACL SETUSER modifier '{modifier}': {error}")));
            }
        }
        Ok(Changes::from([(text_of(name), Some(text_of(&user.describe())))]))
    })
    .await?;
    Ok(Reply::OK)
}

async fn delete_users(
    store: &Arc<Store>,
    names: &[Bytes],
    audit: &AuditedChange,
) -> Result<Reply, NotChanged> {
    if names.iter().any(|name| name == DEFAULT_USER) {
        return Err(Reply::error("ERR The 'default' user cannot be removed").into());
    }
    let mut deleted = 0;
    change(store, Some(audit), false, |accounts| {
        let there: Changes = names
            .iter()
            .filter(|name| accounts.get(name).is_some())
            .map(|name| (text_of(name), None))
            .collect();
        deleted = there.len() as i64;
        Ok(there)
    })
    .await?;
    Ok(Reply::Int(deleted))
}

/// Changes the password of the default user on which the cluster has agreed, for `requirepass`.
pub async fn set_default_password(store: &Arc<Store>, password: Option<&str>) -> Result<(), Reply> {
    // It is recorded as CONFIG SET.
    change(store, None, false, |accounts| {
        let mut user = accounts.default_user().clone();
        user.set_password(password);
        Ok(Changes::from([("default".to_owned(), Some(text_of(&user.describe())))]))
    })
    .await
    .map_err(NotChanged::into_reply)
}

async fn load(store: &Arc<Store>, audit: &AuditedChange) -> Result<Reply, NotChanged> {
    let (path, all_channels) = {
        let settings = store.settings.read();
        (settings.aclfile.clone(), settings.acl_pubsub_all)
    };
    let Some(path) = path else { return Err(Reply::error(NO_FILE).into()) };
    let text = read_file(path.clone())
        .await
        .map_err(|error| Reply::error(format!("ERR Error loading ACLs, opening file '{path}': {error}")))?;
    let users = acl::parse_file(&path, &text, all_channels)
        .map_err(|acl::FileErrors(errors)| Reply::error(format!("ERR {errors}")))?;
    let rules = |user: &User| Some(text_of(&user.describe()));
    let mut changes: Changes = users.iter().map(|(name, user)| (text_of(name), rules(user))).collect();
    // As in Redis, a file without the default user gives it back its first rules.
    changes.entry("default".to_owned()).or_insert_with(|| rules(&User::default_user(None)));
    change(store, Some(audit), true, |_| Ok(changes.clone())).await?;
    Ok(Reply::OK)
}

async fn save(store: &Arc<Store>) -> Reply {
    let Some(path) = store.settings.read().aclfile.clone() else { return Reply::error(NO_FILE) };
    let accounts = store.access.accounts();
    let text = acl::write_file(accounts.all().map(|account| (&account.name[..], &account.user)));
    // It holds digests of passwords, which can be guessed at.
    let writing = move || durable::write_with_mode(std::path::Path::new(&path), text, 0o600);
    match tokio::task::spawn_blocking(writing).await {
        Ok(Ok(())) => Reply::OK,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the file of users cannot be written");
            Reply::error("ERR There was an error trying to save the ACLs. Please check the server logs for more information")
        }
        Err(_) => Reply::error("ERR the store is shutting down"),
    }
}

/// Changes users, and returns once this store applies the change. `changes` is computed again if
/// another change came in between. `audit` is recorded with the change.
async fn change(
    store: &Arc<Store>,
    audit: Option<&AuditedChange>,
    replaces: bool,
    mut changes: impl FnMut(&Accounts) -> Result<Changes, Reply>,
) -> Result<(), NotChanged> {
    let deadline = Instant::now() + store.config.request_timeout;
    loop {
        let accounts = store.access.accounts();
        let changes = changes(&accounts)?;
        if changes.is_empty() && !replaces {
            return Ok(());
        }
        match admin::set_users(store, audit.cloned(), accounts.version, changes, replaces).await {
            Ok(UsersAnswer::Changed(list)) => {
                store.membership.take_members(*list);
                return Ok(());
            }
            Ok(UsersAnswer::Conflict(list)) => store.membership.take_members(*list),
            Err(error) => return Err(NotChanged::by_cluster(error)),
        }
        if Instant::now() >= deadline {
            let text = "ERR the users are changed by others at the same time: nothing was changed";
            return Err(Reply::error(text).into());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Returns bytes as Redis formats them: up to the first NUL, on one line.
fn shown(bytes: &[u8]) -> String {
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}

async fn read_file(path: String) -> std::io::Result<Vec<u8>> {
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    read.unwrap_or_else(|_| Err(std::io::ErrorKind::Interrupted.into()))
}
