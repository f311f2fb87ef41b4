//! The admin port with TLS. Each handshake is a task with a time limit, so that a slow one delays
//! nobody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tls_stream::TlsStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::tls::{Handshake, Tls};

const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// Number of connections that wait until the HTTP server takes them.
const WAITING_MAX: usize = 64;

type Accepted = (TlsStream, SocketAddr);

/// Accepts programs that complete a handshake.
pub struct TlsListener {
    local: SocketAddr,
    accepted: mpsc::Receiver<Accepted>,
    /// Dropping it ends the task that accepts.
    _accepting: JoinSet<()>,
}

impl TlsListener {
    pub fn new(listener: TcpListener, tls: Arc<Tls>) -> std::io::Result<TlsListener> {
        let local = listener.local_addr()?;
        let (accepts, accepted) = mpsc::channel(WAITING_MAX);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, accepts));
        Ok(TlsListener { local, accepted, _accepting: accepting })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Accepted {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The runtime is ending.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.local)
    }
}

async fn accept(listener: TcpListener, tls: Arc<Tls>, accepts: mpsc::Sender<Accepted>) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let handshake = tls.place().await;
                let Some(config) = tls.offered() else { continue };
                tokio::spawn(shake_hands((stream, from), config, handshake, accepts.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection at the admin port");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn shake_hands(
    (stream, from): (TcpStream, SocketAddr),
    config: Arc<rustls::ServerConfig>,
    handshake: Handshake,
    accepts: mpsc::Sender<Accepted>,
) {
    let completed = tokio::time::timeout(HANDSHAKE_TIME_MAX, TlsStream::accept(stream, config)).await;
    drop(handshake);
    match completed {
        Ok(Ok(stream)) => drop(accepts.send((stream, from)).await),
        Ok(Err(error)) => tracing::debug!(%from, %error, "a TLS handshake at the admin port failed"),
        Err(_) => tracing::debug!(%from, "a TLS handshake at the admin port took too long"),
    }
}
