//! Socket options and growing buffers, for all connections between stores.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use types::{copy_in_pieces, PIECE_BYTES};

/// Silence after which a store counts as gone. Power and network fail without notice, and TCP alone
/// would wait a quarter of an hour. The option also ends a connection whose remote end reads
/// nothing for this long.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Idle time after which a connection is probed, and interval of the probes until one is answered.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// Sets the options of a connection that either side has opened.
pub fn prepare(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    Ok(())
}

/// Room for input at which a large buffer grows.
const ROOM_BYTES_MIN: usize = 64 << 10;

/// Enlarges a large and nearly full input buffer in steps, so that other tasks run in between.
pub async fn make_room(bytes: &mut BytesMut) {
    let length = bytes.len();
    if length < PIECE_BYTES || bytes.capacity() - length >= ROOM_BYTES_MIN {
        return;
    }
    let mut larger = BytesMut::with_capacity(2 * length);
    copy_in_pieces(bytes, &mut larger, tokio::task::yield_now).await;
    *bytes = larger;
}

/// Marks a connection as up for as long as this lives, however its task ends.
pub struct Standing<'a>(&'a AtomicBool);

impl<'a> Standing<'a> {
    pub fn new(connected: &'a AtomicBool) -> Standing<'a> {
        connected.store(true, Ordering::Release);
        Standing(connected)
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_buffer_grows_before_it_is_full_and_keeps_its_bytes() {
        for length in [10, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 5] {
            let mut bytes = BytesMut::with_capacity(length);
            bytes.extend((0..length).map(|at| at as u8));
            let before = bytes.clone();
            make_room(&mut bytes).await;
            assert_eq!(bytes, before);
            assert_eq!(bytes.capacity() - length >= ROOM_BYTES_MIN, length >= PIECE_BYTES);
        }
    }
}
