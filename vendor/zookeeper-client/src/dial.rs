//! Connections that the user of this crate makes.

use std::fmt::Debug;
use std::io;

use futures::future::BoxFuture;
use futures::io::{AsyncRead, AsyncWrite};

/// A connection to a server.
pub trait DialedStream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Unpin> DialedStream for T {}

/// Makes connections to servers.
pub trait Dial: Send + Sync {
    /// Connects to a server. The future is dropped when it takes too long.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>>;
}
