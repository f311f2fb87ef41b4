//! The question whether the source and the target have the same data.
//!
//! A value that is copied in pieces is deleted at the target before it is read at the source, so an
//! import of a server into itself would lose such values. A Redis has a random `run_id`, and shares
//! the name of its history with its replicas. The `run_id` of a Steelyard follows from the layout
//! of its cluster, so stores of two clusters may have the same one. There a key is written to the
//! target, and looked for at the source.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use anyhow::bail;
use resp::Reply;

use super::server::ServerUrl;
use super::source::{field, Source};
use super::target::{may_pass, UNKNOWN_OUTCOME};

/// Time after which the key expires, if it cannot be deleted.
const MARKER_MS: u64 = 60_000;
/// Number of times that a command is sent while its failure may pass, and the time between.
const ATTEMPTS_MAX: u32 = 30;
const PAUSE: Duration = Duration::from_millis(500);

/// Returns an error if the source and the target have the same data.
pub async fn refuse_same_data(source: &mut Source, to: &ServerUrl) -> anyhow::Result<()> {
    let mut target = Source::connect(to).await?;
    let why = match (source.is_steelyard, target.is_steelyard) {
        (true, true) if share_a_key(source, &mut target).await? => {
            "the same server, or stores of one cluster"
        }
        (false, false) if is_same(Some(source.identity.as_str()), Some(target.identity.as_str())) => {
            "the same server"
        }
        (false, false) if share_a_history(source, &mut target).await? => {
            "a Redis and its replica, or replicas of one Redis"
        }
        _ => return Ok(()),
    };
    bail!("{} and {to} are {why}, so there is nothing to copy", source.url)
}

/// Returns true if both names are known and the same.
fn is_same(ours: Option<&str>, theirs: Option<&str>) -> bool {
    ours.is_some_and(|name| !name.is_empty()) && ours == theirs
}

async fn share_a_history(source: &mut Source, target: &mut Source) -> anyhow::Result<bool> {
    let (ours, theirs) = (source.info("replication").await?, target.info("replication").await?);
    Ok(is_same(field(&ours, "master_replid"), field(&theirs, "master_replid")))
}

/// Returns true if a key that is written to the target can be read at the source.
async fn share_a_key(source: &mut Source, target: &mut Source) -> anyhow::Result<bool> {
    let marker = format!("steelyard-import:{:016x}", RandomState::new().build_hasher().finish());
    source.select(0).await?;
    call(target, &["SET", &marker, "", "PX", &MARKER_MS.to_string()]).await?;
    let found = call(source, &["EXISTS", &marker]).await;
    // An error does no harm: the key expires.
    let _ = target.connection.call(&["DEL", &marker]).await;
    Ok(matches!(found?, Reply::Int(1..)))
}

/// Executes a command, and repeats it while its failure may pass. It may be executed twice.
async fn call(server: &mut Source, words: &[&str]) -> anyhow::Result<Reply> {
    for _ in 0..ATTEMPTS_MAX {
        let reply = server.connection.call(words).await;
        match reply.map_err(|error| server.url.name_broken(error.into()))? {
            Reply::Error(text) if may_pass(&text) || text.starts_with(UNKNOWN_OUTCOME) => {
                tokio::time::sleep(PAUSE).await;
            }
            Reply::Error(text) if text.starts_with("MOVED") => {
                bail!("{}: {}: {text}: in cluster mode, name a forward port", server.url, words[0])
            }
            Reply::Error(text) => bail!("{}: {}: {text}", server.url, words[0]),
            reply => return Ok(reply),
        }
    }
    bail!("{}: the server refuses {}: see its log", server.url, words[0])
}
