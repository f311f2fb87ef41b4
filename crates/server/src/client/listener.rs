//! Accepting clients: their number is bounded, and strangers are kept out in protected mode.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::connection;
use super::session::{ClientEntry, Door};
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
    match Seat::take(store, peer, local, max) {
        Some(seat) => {
            tokio::spawn(async move {
                connection::serve(stream, door, seat.entry.clone(), seat.store.clone()).await;
            });
        }
        None => {
            store.metrics.connections_rejected.inc();
            let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
        }
    }
}

/// A client's place among the `maxclients`. It is given back however the client's task ends: by a panic, too.
struct Seat {
    store: Arc<Store>,
    entry: Arc<ClientEntry>,
}

impl Seat {
    fn take(store: &Arc<Store>, peer: SocketAddr, local: SocketAddr, max: usize) -> Option<Seat> {
        let entry = store.clients.open(peer, local, max)?;
        store.metrics.connections_accepted.inc();
        store.metrics.connections.inc();
        Some(Seat { store: store.clone(), entry })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.store.clients.close(self.entry.id);
        self.store.metrics.connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[tokio::test]
    async fn a_client_whose_task_panics_gives_its_seat_back() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let seat = Seat::take(store, address, address, 1).expect("there is one seat");
        assert!(Seat::take(store, address, address, 1).is_none(), "and it is taken");
        assert_eq!((store.clients.count(), store.metrics.connections.get()), (1, 1));

        let panicked = tokio::spawn(async move {
            let _seat = seat;
            panic!("as a defect of a command would");
        });
        assert!(panicked.await.is_err());
        assert_eq!((store.clients.count(), store.metrics.connections.get()), (0, 0));
        assert!(Seat::take(store, address, address, 1).is_some());
    }
}
