//! Accepting clients: their number is bounded, and strangers are kept out in protected mode.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::connection;
use super::session::Door;
use crate::store::Store;

const PROTECTED: &[u8] = b"-DENIED Steelyard is running in protected mode because protected mode is enabled \
and no password is set for the default user. In this mode connections are only accepted from the loopback \
interface. To connect from other machines set a password (requirepass), or turn protected mode off with \
CONFIG SET protected-mode no sent from the loopback interface.\r\n";

/// Accepts clients until the task is dropped.
pub async fn listen(listener: TcpListener, door: Door, store: Arc<Store>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => accept(stream, peer, door, &store).await,
            Err(error) => {
                // Out of file descriptors, usually: a pause lets some close.
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn accept(mut stream: TcpStream, peer: SocketAddr, door: Door, store: &Arc<Store>) {
    let local = stream.local_addr().unwrap_or(peer);
    let _ = stream.set_nodelay(true);
    let (max, open_door) = {
        let settings = store.settings.read();
        (settings.maxclients, !settings.protected_mode || settings.requirepass.is_some())
    };
    if !open_door && !peer.ip().is_loopback() {
        store.metrics.connections_rejected.inc();
        let _ = stream.write_all(PROTECTED).await;
        return;
    }
    match store.clients.open(peer, local, max) {
        Some(entry) => {
            store.metrics.connections_accepted.inc();
            store.metrics.connections.inc();
            let store = store.clone();
            tokio::spawn(async move {
                connection::serve(stream, door, entry.clone(), store.clone()).await;
                store.clients.close(entry.id);
                store.metrics.connections.dec();
            });
        }
        None => {
            store.metrics.connections_rejected.inc();
            let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
        }
    }
}
