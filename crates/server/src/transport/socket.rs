//! Socket options of all connections between stores.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// The silence after which a store counts as gone. Power and network fail without notice, and TCP
/// alone would wait a quarter of an hour. The option also ends a connection whose remote end reads
/// nothing for this long.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// The idle time after which a connection is probed, and the interval of the probes until one is
/// answered.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// Sets the options of a connection, whichever side opened it.
pub fn prepare(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    Ok(())
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
