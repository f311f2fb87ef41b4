//! What every connection between stores has in common.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// A store that says nothing for this long, not even that it received what was sent, has gone: power and
/// network fail without a word, and TCP alone would wait a quarter of an hour. This also ends a
/// connection whose remote end reads nothing for as long.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// When a connection on which nothing is sent is probed, and how often until it is answered.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// Sets a connection up, whichever side opened it.
pub fn prepare(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    Ok(())
}

/// Says that a connection stands for as long as it lives, however the task that holds it ends.
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
