//! How a receive buffer grows for a string of which only the start has arrived.

use bytes::BytesMut;

/// How far the buffer may be enlarged when little of the string has arrived.
pub(crate) const RESERVE_BYTES: usize = 64 << 10;

/// Makes room for some of the `missing` bytes that a peer has announced.
///
/// The buffer doubles, and only once it is nearly full: what is copied on the way stays linear in what arrives, and so
/// does the room that a peer makes us hold by announcing more than it sends.
pub(crate) fn make_room(buf: &mut BytesMut, missing: usize) {
    let spare = buf.capacity() - buf.len();
    if spare < missing.min(RESERVE_BYTES) {
        buf.reserve(missing.min(buf.len().max(RESERVE_BYTES)));
    }
}
