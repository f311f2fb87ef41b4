//! The limit: the smallest durable server of keys and values that can be written, as a measure for
//! real servers.
//!
//! A SET that is to survive a power loss needs a read from a socket, a write to a log, an
//! `fdatasync`, a place in a table and a reply. This server does exactly that. One thread has an
//! epoll loop and the table, and another one writes the log. Requests that arrive while the log is
//! being synced go to disk with the next sync (group commit). Without followers, and if clients do
//! not pipeline, the loop writes the log itself, which is faster. With followers, each batch goes
//! to them and to the leader's own log at the same time. A batch is committed once a majority of
//! the copies has synced it.
//!
//! It is no store. It writes its log in a circle and does not read it at its start. Its table has
//! no bound, there are no elections, and a follower that is lost cannot return.
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
    /// The directory of the log.
    pub dir: PathBuf,
    /// The length of the log's file in bytes. The file is written in full before anything is
    /// served.
    pub log_bytes: u64,
    pub role: Role,
}

#[derive(Clone, Debug)]
pub enum Role {
    /// Answers clients. Its followers must be listening already.
    Leader { followers: Vec<SocketAddr> },
    /// Listens for one leader.
    Follower,
}

/// Serves until the process ends.
///
/// # Errors
/// The address or the directory cannot be used, the log cannot be written, or a copy is lost.
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
