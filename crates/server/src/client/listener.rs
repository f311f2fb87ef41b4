//! Accepts clients: limits their number, and keeps remote clients out in protected mode.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::connections::{ConnectionSlot, ListenerKind};
use crate::loops::ToLoop;
use crate::store::Store;
use crate::strangers::Most;
use crate::tls::Handshake;

/// Number of probes without an answer after which a client is gone.
const PROBES: u32 = 3;

const PROTECTED: &[u8] = b"-DENIED Steelyard is running in protected mode because protected mode is enabled \
and no password is set for the default user. In this mode connections are only accepted from the loopback \
interface. To connect from other machines set a password (requirepass), or turn protected mode off with \
CONFIG SET protected-mode no sent from the loopback interface.\r\n";

/// Accepts clients until the store closes, and then those that have already connected.
pub async fn listen(listener: TcpListener, kind: ListenerKind, is_tls: bool, store: Arc<Store>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = store.ends.closing() => return accept_the_last(listener, kind, is_tls, &store).await,
        };
        match accepted {
            Ok((stream, peer)) => accept(stream, peer, (kind, is_tls), &store).await,
            Err(error) => {
                // The usual reason is a lack of file descriptors. Some may be closed during the
                // pause.
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Accepts the clients that the kernel has already connected, because they may have sent a request
/// that must be answered.
async fn accept_the_last(listener: TcpListener, kind: ListenerKind, is_tls: bool, store: &Store) {
    let Ok(listener) = listener.into_std() else { return };
    // The listener is non-blocking. It is closed after the first call that finds no client.
    while let Ok((stream, peer)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok() {
            if let Ok(stream) = TcpStream::from_std(stream) {
                accept(stream, peer, (kind, is_tls), store).await;
            }
        }
    }
}

async fn accept(
    mut stream: TcpStream,
    peer: SocketAddr,
    (kind, is_tls): (ListenerKind, bool),
    store: &Store,
) {
    let local = stream.local_addr().unwrap_or(peer);
    let _ = stream.set_nodelay(true);
    let (has_no_password, is_open) = {
        let accounts = store.access.accounts();
        (accounts.default_user().needs_no_password(), accounts.default_user().is_open())
    };
    let (open_door, probe_after) = {
        let settings = store.settings.read();
        (!settings.protected_mode || !has_no_password, settings.tcp_keepalive)
    };
    if !open_door && !peer.ip().to_canonical().is_loopback() {
        store.metrics.connections_rejected.inc();
        refuse(&mut stream, PROTECTED, is_tls).await;
        return;
    }
    match take_places(store, peer, local, !is_open) {
        Some(seat) => {
            keep_alive(&stream, probe_after);
            let handshake = match is_tls {
                false => None,
                true => match place(store).await {
                    None => {
                        store.metrics.connections_rejected.inc();
                        return;
                    }
                    place => place,
                },
            };
            match stream.into_std() {
                Ok(stream) => {
                    drop(store.loops.next().send(ToLoop::Accepted { stream, kind, seat, handshake }))
                }
                Err(error) => tracing::warn!(%error, "a client's socket cannot be handed to its loop"),
            }
        }
        None => {
            store.metrics.connections_rejected.inc();
            refuse(&mut stream, b"-ERR max number of clients reached\r\n", is_tls).await;
        }
    }
}

/// Takes a client's place, and one among the strangers if the client must log in. A stranger
/// without the second one takes none of the others.
fn take_places(
    store: &Store,
    peer: SocketAddr,
    local: SocketAddr,
    must_log_in: bool,
) -> Option<ConnectionSlot> {
    let (max, strangers_max) = {
        let settings = store.settings.read();
        (settings.maxclients, settings.strangers_max)
    };
    let of_an_address = if strangers_max == 0 { usize::MAX } else { strangers_max };
    let most = Most { in_all: usize::MAX, of_an_address };
    let stranger = match must_log_in {
        true => Some(store.clients.strangers.begin(peer.ip(), most)?),
        false => None,
    };
    let mut seat = ConnectionSlot::take(&store.clients, &store.metrics, peer, local, max)?;
    seat.stranger = stranger;
    Some(seat)
}

/// Waits for a place for a client's handshake. A store that closes does not wait.
async fn place(store: &Store) -> Option<Handshake> {
    tokio::select! {
        place = store.tls.place() => Some(place),
        () = store.ends.closing() => store.tls.place_now(),
    }
}

/// Tells a client why it is refused. A client that waits for a TLS handshake would not understand.
async fn refuse(stream: &mut TcpStream, text: &[u8], is_tls: bool) {
    if !is_tls {
        let _ = stream.write_all(text).await;
    }
}

/// Has the kernel find out when the machine of an idle client has failed, in the times of Redis.
fn keep_alive(stream: &TcpStream, probe_after: u32) {
    if probe_after == 0 {
        return;
    }
    let time = Duration::from_secs(probe_after.into());
    let interval = (time / 3).max(Duration::from_secs(1));
    let probes = socket2::TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(PROBES);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&probes);
}
