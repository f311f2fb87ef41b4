//! `SCRIPT`.

use std::sync::Arc;

use bytes::Bytes;
use command::ScriptCommand;
use node::session::Own;
use resp::Reply;

use crate::store::Store;

/// Scripts above this length in bytes are compiled by a thread of their own.
const COMPILED_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Executes a subcommand of `SCRIPT`.
pub fn run(store: &Store, command: ScriptCommand, args: &[Bytes]) -> Own {
    Own::Reply(match command {
        ScriptCommand::Load if args[2].len() > COMPILED_AT_ONCE_BYTES_MAX => return Own::Later,
        ScriptCommand::Load => load(store, &args[2]),
        ScriptCommand::Exists => {
            let is_known = |digest: &Bytes| Reply::Int(i64::from(store.scripts.get(digest).is_some()));
            Reply::Array(args[2..].iter().map(is_known).collect())
        }
        ScriptCommand::Flush => match &args[2..] {
            [] => flush(store),
            [mode] if mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async") => {
                flush(store)
            }
            _ => Reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        },
        // The log has the script already, and every replica executes it to its end.
        ScriptCommand::Kill => Reply::error("NOTBUSY No scripts in execution right now."),
        ScriptCommand::Debug => match args[2].to_ascii_lowercase().as_slice() {
            b"no" => Reply::OK,
            b"yes" | b"sync" => Reply::error("ERR there is no debugger of scripts"),
            _ => Reply::error("ERR Use SCRIPT DEBUG YES/SYNC/NO"),
        },
    })
}

fn flush(store: &Store) -> Reply {
    store.scripts.clear();
    Reply::OK
}

fn load(store: &Store, body: &[u8]) -> Reply {
    store.scripts.load(body).map_or_else(|error| error, Reply::bulk)
}

/// Executes `SCRIPT LOAD` of a long script.
pub async fn load_later(store: &Arc<Store>, args: &[Bytes]) -> Reply {
    let (store, body) = (store.clone(), args[2].clone());
    let loading = tokio::task::spawn_blocking(move || load(&store, &body));
    loading.await.unwrap_or_else(|_| Reply::error("ERR the store is shutting down"))
}
