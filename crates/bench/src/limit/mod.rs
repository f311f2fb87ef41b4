//! The limit: the smallest durable server of keys and values that can be written, as a measure for real ones.
//!
//! What a SET needs, if it is to survive a power loss, is a read from a socket, a write to a log, an `fdatasync`, a place
//! in a table and a reply. This server does that and nothing else. One thread has an epoll loop and the table; another
//! one writes the log. What arrives while the log is being synced goes to disk with the next sync (group commit). With
//! followers, each batch goes to them while it goes to the leader's own log; a batch is committed once a majority of
//! the copies has synced it.
//!
//! It is no store. It writes its log in a circle and reads nothing back at its start, its table has no bound, nobody is
//! elected, and a follower that is gone does not come back.
//!
//! ```text
//!  clients ──▶ loop ──┬─▶ log thread: pwrite, fdatasync ──▶ loop: table, replies
//!                     └─▶ follower's loop ─▶ its log thread ─▶ acknowledgement ─▶ loop
//! ```

mod batch;
mod clients;
mod follower;
mod leader;
mod log;
mod replicas;
mod table;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use mio::net::TcpListener;

#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    /// Holds the log.
    pub dir: PathBuf,
    /// Length of the log's file, which is written in full before anything is served.
    pub log_bytes: u64,
    pub role: Role,
}

#[derive(Clone, Debug)]
pub enum Role {
    /// Answers clients. Its followers listen already.
    Leader { followers: Vec<SocketAddr> },
    /// Listens for one leader.
    Follower,
}

/// Serves until the process ends.
///
/// # Errors
/// The address or the directory cannot be used, the log cannot be written, or a copy that is needed is gone.
pub fn serve(options: &Options) -> anyhow::Result<()> {
    std::fs::create_dir_all(&options.dir)
        .with_context(|| format!("{} cannot be made", options.dir.display()))?;
    let listener =
        TcpListener::bind(options.listen).with_context(|| format!("cannot listen at {}", options.listen))?;
    match &options.role {
        Role::Leader { followers } => leader::serve(listener, options, followers),
        Role::Follower => follower::serve(listener, options),
    }
}

#[cfg(test)]
mod tests;
