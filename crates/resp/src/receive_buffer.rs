//! The growth of a receive buffer for a string that has arrived in part.

use bytes::BytesMut;

/// Minimum bytes by which the buffer may grow when little of the string has arrived.
pub(crate) const RESERVE_BYTES: usize = 64 << 10;

/// Reserves room for some of the `missing` bytes that a peer has announced.
///
/// The buffer grows only when it is nearly full, and at most doubles. So the bytes copied stay
/// linear in the bytes received, and so does the memory that a peer can make the receiver reserve
/// by announcing more than it sends.
pub(crate) fn make_room(buf: &mut BytesMut, missing: usize) {
    let spare = buf.capacity() - buf.len();
    if spare < missing.min(RESERVE_BYTES) {
        buf.reserve(missing.min(buf.len().max(RESERVE_BYTES)));
    }
}
