//! The reasons why a store did not start, or ended other than on request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::datadir::DataDirError;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("configuration: {0}")]
    Config(String),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the Raft log in {path} cannot be opened: {reason}")]
    Log { path: PathBuf, reason: String },
    #[error("the rows in {path} cannot be opened: {reason}")]
    Rows { path: PathBuf, reason: String },
    #[error("recovery: {0}")]
    Recovery(String),
    #[error("joining a cluster: {0}")]
    Join(String),
    #[error("the loops that serve clients cannot be started: {0}")]
    Loops(io::Error),
}
