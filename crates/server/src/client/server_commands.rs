//! The commands that a store answers from its own state: connection, introspection and settings.

use std::sync::Arc;

use bytes::Bytes;
use command::{ClientCommand, CommandSpec, ConfigCommand, ServerCommand};
use node::session::Own;
use resp::{Protocol, Reply};

use super::{
    acl_commands, admin_commands, cluster_commands, debug_commands, function_commands, info, memory_commands,
    pubsub_commands, read_only, script_commands, statistics_commands, wait, Connected,
};
use crate::checkpoints::Flushed;
use crate::connections::ClientEntry;
use crate::store::Store;

/// Executes a command of the connection or of the store itself.
pub fn run(
    store: &Store,
    client: &mut Connected<'_>,
    command: ServerCommand,
    spec: &'static CommandSpec,
    args: &[Bytes],
) -> Own {
    Own::Reply(match command {
        ServerCommand::Ping => match args {
            [_] | [_, _] if client.context.is_subscriber && client.context.protocol == Protocol::Resp2 => {
                let message = args.get(1).cloned().unwrap_or_default();
                Reply::Array(vec![Reply::bulk("pong"), Reply::Bulk(message)])
            }
            [_] => Reply::Simple("PONG".into()),
            [_, message] => Reply::Bulk(message.clone()),
            _ => command::wrong_arity(spec.name),
        },
        ServerCommand::Echo => Reply::Bulk(args[1].clone()),
        ServerCommand::Hello => hello(store, client, args),
        ServerCommand::Auth => auth(store, client, args),
        ServerCommand::Select => select(store, client, &args[1]),
        ServerCommand::Quit => {
            client.context.closing = true;
            Reply::OK
        }
        ServerCommand::Reset => {
            client.reset(&store.access, &store.clients.pubsub);
            let mut answers = pubsub_commands::mail(client.entry);
            answers.push(Reply::Simple("RESET".into()).into());
            return Own::Several(answers);
        }
        ServerCommand::Client(ClientCommand::Reply) => return admin_commands::reply(client, &args[2]),
        ServerCommand::Monitor => {
            if std::mem::replace(&mut client.context.is_monitor, true) {
                return Own::Several(Vec::new());
            }
            store.clients.pubsub.monitors.add(&client.entry.subscriber);
            Reply::OK
        }
        ServerCommand::Client(command) => admin_commands::client(store, client, command, args),
        ServerCommand::Acl(command) => return acl_commands::run(store, client, command, args),
        ServerCommand::Function(command) => return function_commands::run(store, command, args),
        ServerCommand::Script(command) => return script_commands::run(store, command, args),
        ServerCommand::Config(command) => return admin_commands::config(store, command, args),
        ServerCommand::SlowLog(command) => statistics_commands::slow_log(store, command, args),
        ServerCommand::Latency(command) => statistics_commands::latency(store, command, args),
        ServerCommand::Memory(command) => memory_commands::run(store, command),
        ServerCommand::ModuleList => Reply::Array(Vec::new()),
        ServerCommand::Role => {
            Reply::Array(vec![Reply::bulk("master"), Reply::Int(0), Reply::Array(Vec::new())])
        }
        ServerCommand::LastSave => Reply::Int(store.checkpoints.last() as i64),
        ServerCommand::Wait => match wait::parse(args) {
            Ok(_) => return Own::Later,
            Err(error) => error,
        },
        ServerCommand::WaitAof => match wait::parse_aof(args, store.config.fsync) {
            Ok(_) => return Own::Later,
            Err(error) => error,
        },
        ServerCommand::Save => return Own::Later,
        ServerCommand::BgSave => save_in_background(store, spec, args),
        ServerCommand::Asking if store.config.cluster_enabled => Reply::OK,
        ServerCommand::Asking => Reply::error("ERR This instance has cluster support disabled"),
        ServerCommand::Debug => return debug_commands::run(store, client, args),
        ServerCommand::Info => info::reply(store, args),
        ServerCommand::Time => time(store),
        ServerCommand::Shutdown => match shutdown(store, client, args) {
            Ok(()) => return Own::Later,
            Err(error) => error,
        },
        ServerCommand::Cluster(command) => return cluster_commands::run(store, command, args),
        ServerCommand::ReadOnly => match read_only::max_lag(args, store.settings.read().weak_read_max_lag) {
            Ok(max_lag) => {
                client.context.read_only = true;
                client.context.max_lag = max_lag;
                Reply::OK
            }
            Err(error) => error,
        },
        ServerCommand::Subscribe(kind) => return pubsub_commands::subscribe(store, client, kind, spec, args),
        ServerCommand::Unsubscribe(kind) => {
            return pubsub_commands::unsubscribe(store, client, kind, spec, args);
        }
        ServerCommand::Publish(kind) => return pubsub_commands::publish(store, client, kind, spec, args),
        ServerCommand::PubSub(command) => pubsub_commands::inspect(store, command, args),
        ServerCommand::ReadWrite => {
            client.context.read_only = false;
            client.context.max_lag = None;
            Reply::OK
        }
    })
}

/// Executes a command for which [`run`] returned `Later`.
pub async fn run_later(
    store: &Arc<Store>,
    entry: &ClientEntry,
    command: ServerCommand,
    args: &[Bytes],
) -> Reply {
    if let ServerCommand::Acl(command) = command {
        return acl_commands::run_later(store, entry, command, args).await;
    }
    if let ServerCommand::Function(command) = command {
        return function_commands::run_later(store, entry, command, args).await;
    }
    if let (ServerCommand::Publish(kind), Some(spec)) = (command, command::lookup(&args[0])) {
        return pubsub_commands::publish_later(store, kind, spec, args).await;
    }
    if let ServerCommand::Script(_) = command {
        return script_commands::load_later(store, args).await;
    }
    if command == ServerCommand::Wait {
        return wait::wait(store, entry, args).await;
    }
    if command == ServerCommand::WaitAof {
        return wait::wait_aof(store, entry, args).await;
    }
    if command == ServerCommand::Debug {
        return debug_commands::sleep(args).await;
    }
    if command == ServerCommand::Save {
        return match store.checkpoints.next(|| store.levels.want_flush()).await {
            Flushed::Done => Reply::OK,
            Flushed::NoRoom => Reply::error("ERR the device has no room for the rows"),
        };
    }
    if command == ServerCommand::Shutdown {
        // The connection ends with the process.
        return std::future::pending().await;
    }
    if command == ServerCommand::Config(ConfigCommand::Set) {
        return admin_commands::set_and_record(store, entry, args).await;
    }
    if command == ServerCommand::Config(ConfigCommand::Rewrite) {
        return admin_commands::rewrite_and_record(store, entry).await;
    }
    cluster_commands::read_slot(store, args).await
}

fn save_in_background(store: &Store, spec: &CommandSpec, args: &[Bytes]) -> Reply {
    let is_save = spec.name == "bgsave";
    match &args[1..] {
        [] => {}
        [word] if is_save && word.eq_ignore_ascii_case(b"schedule") => {}
        _ => return Reply::error("ERR syntax error"),
    }
    store.levels.want_flush();
    Reply::Simple(match is_save {
        true => "Background saving started".into(),
        false => "Background append only file rewriting started".into(),
    })
}

/// Starts a shutdown. As in Redis there is no reply: the connection ends when the store has
/// stopped. `SAVE` and `NOSAVE` have no effect, because every acknowledged write is in the log.
fn shutdown(store: &Store, client: &Connected<'_>, args: &[Bytes]) -> Result<(), Reply> {
    let (mut is_now, mut is_abort, mut saves, mut saves_nothing) = (false, false, false, false);
    for word in &args[1..] {
        match word.to_ascii_lowercase().as_slice() {
            b"now" => is_now = true,
            b"abort" => is_abort = true,
            b"save" => saves = true,
            b"nosave" => saves_nothing = true,
            b"force" => {}
            _ => return Err(Reply::error("ERR syntax error")),
        }
    }
    if is_abort && args.len() > 2 || saves && saves_nothing {
        return Err(Reply::error("ERR syntax error"));
    }
    if is_abort {
        return Err(match store.ends.is_leaving() {
            true => Reply::error("ERR the store is stopping; this cannot be undone: start it again"),
            false => Reply::error("ERR No shutdown in progress."),
        });
    }
    client.entry.set_closed();
    if is_now {
        store.ends.hurry();
    }
    store.ends.end("SHUTDOWN");
    Ok(())
}

fn hello(store: &Store, client: &mut Connected<'_>, args: &[Bytes]) -> Reply {
    let mut protocol = client.context.protocol;
    if let Some(version) = args.get(1) {
        protocol = match resp::parse_integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Reply::error("NOPROTO unsupported protocol version"),
            None => return Reply::error("ERR Protocol version is not an integer or out of range"),
        };
    }
    let mut name = None;
    let mut credentials = None;
    let mut rest = args.get(2..).unwrap_or_default();
    while let [option, tail @ ..] = rest {
        match (option.to_ascii_uppercase().as_slice(), tail) {
            (b"AUTH", [user, password, tail @ ..]) => {
                credentials = Some((user.clone(), password.clone()));
                rest = tail;
            }
            (b"SETNAME", [new, tail @ ..]) => {
                if let Some(error) = admin_commands::bad_name(new) {
                    return error;
                }
                name = Some(new.clone());
                rest = tail;
            }
            _ => {
                // Redis shows the option up to the first NUL.
                let option = option.split(|byte| *byte == 0).next().unwrap_or_default();
                let option = String::from_utf8_lossy(option);
                return Reply::error(format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
    }
    if let Some((user, password)) = credentials {
        if let Err(error) = log_in(store, client, &args[0], &user, &password) {
            return error;
        }
    }
    if !client.context.authenticated {
        return Reply::error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        client.entry.describe(|d| d.name = name);
    }
    client.context.protocol = protocol;
    client.entry.subscriber.set_resp3(protocol == Protocol::Resp3);
    let number = if protocol == Protocol::Resp3 { 3 } else { 2 };
    client.entry.describe(|d| d.resp = number);
    let text = |text: &'static str| Reply::bulk(text.as_bytes());
    Reply::Map(vec![
        (text("server"), text("redis")),
        (text("version"), text(crate::REDIS_VERSION)),
        (text("proto"), Reply::Int(i64::from(number))),
        (text("id"), Reply::Int(client.entry.id as i64)),
        (text("mode"), text(if store.config.cluster_enabled { "cluster" } else { "standalone" })),
        (text("role"), text("master")),
        (text("modules"), Reply::Array(Vec::new())),
    ])
}

fn auth(store: &Store, client: &mut Connected<'_>, args: &[Bytes]) -> Reply {
    let (user, password) = match args {
        [_, password] => {
            if store.access.accounts().default_user().needs_no_password() {
                return Reply::error("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?");
            }
            (Bytes::from_static(b"default"), password)
        }
        [_, user, password] => (user.clone(), password),
        _ => return Reply::error("ERR syntax error"),
    };
    match log_in(store, client, &args[0], &user, password) {
        Ok(()) => Reply::OK,
        Err(error) => error,
    }
}

/// Makes a user the one of the connection. `command` is the client's spelling of the command.
fn log_in(
    store: &Store,
    client: &mut Connected<'_>,
    command: &Bytes,
    user: &Bytes,
    password: &[u8],
) -> Result<(), Reply> {
    if store.access.log_in(client.entry, client.context, user, password).is_ok() {
        return Ok(());
    }
    store.access.note_failure(client.entry, command, user);
    Err(Reply::error("WRONGPASS invalid username-password pair or user is disabled."))
}

fn select(store: &Store, client: &mut Connected<'_>, index: &[u8]) -> Reply {
    let index = match command::database_index_in(index, crate::DATABASES, store.config.cluster_enabled) {
        Ok(index) => index,
        Err(error) => return Reply::error(error),
    };
    client.context.db = index;
    client.entry.describe(|d| d.db = index);
    Reply::OK
}

fn time(store: &Store) -> Reply {
    let micros = store.wall.micros();
    Reply::Array(vec![
        Reply::bulk((micros / 1_000_000).to_string()),
        Reply::bulk((micros % 1_000_000).to_string()),
    ])
}
