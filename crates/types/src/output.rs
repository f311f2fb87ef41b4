//! Bytes that are about to be written to a socket. Small ones are copied into a buffer. Very large
//! ones are written without a copy, because copying them would delay the thread's other work.

use std::collections::VecDeque;
use std::future::Future;

use bytes::{Buf, Bytes, BytesMut};

/// Minimum bytes of a part that is not copied.
pub const SHARED_BYTES_MIN: usize = 256 << 10;
/// Maximum bytes that a thread copies without a pause for its other work.
pub const PIECE_BYTES: usize = 1 << 20;

/// Appends bytes to a buffer, and pauses after each part of [`PIECE_BYTES`].
pub async fn copy_in_pieces<P: Future<Output = ()>>(
    bytes: &[u8],
    buffer: &mut BytesMut,
    mut pause: impl FnMut() -> P,
) {
    for piece in bytes.chunks(PIECE_BYTES) {
        buffer.extend_from_slice(piece);
        if piece.len() == PIECE_BYTES {
            pause().await;
        }
    }
}

#[derive(Default)]
pub struct Output {
    /// The bytes that are written before the buffer, in order. No part is empty.
    parts: VecDeque<Bytes>,
    parts_bytes: usize,
    buffer: BytesMut,
}

impl Output {
    #[inline]
    pub fn len(&self) -> usize {
        self.parts_bytes + self.buffer.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer that is written last. The caller may only append to it.
    #[inline]
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Appends bytes. Many bytes are not copied.
    pub fn put(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.buffer.extend_from_slice(bytes);
        }
        let before = self.buffer.split().freeze();
        self.parts_bytes += before.len() + bytes.len();
        self.parts.extend(Some(before).filter(|before| !before.is_empty()));
        self.parts.push_back(bytes.clone());
    }

    /// Returns the bytes to write first; none if the output is empty.
    #[inline]
    pub fn front(&self) -> &[u8] {
        self.parts.front().map_or(&self.buffer, |part| part)
    }

    /// Removes the first `bytes` of the front.
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        match self.parts.front_mut() {
            Some(part) => {
                part.advance(bytes);
                self.parts_bytes -= bytes;
                if part.is_empty() {
                    self.parts.pop_front();
                }
            }
            None => self.buffer.advance(bytes),
        }
    }

    /// Removes the bytes that are written first, if they were not copied.
    pub fn take_shared(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front()?;
        self.parts_bytes -= part.len();
        Some(part)
    }

    /// Removes everything. Keeps memory for at most `kept` bytes.
    pub fn clear(&mut self, kept: usize) {
        self.parts.clear();
        self.parts_bytes = 0;
        self.buffer.clear();
        if self.buffer.capacity() > kept {
            self.buffer = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_out_in_their_order_and_only_small_ones_are_copied() {
        let large = Bytes::from(vec![1; SHARED_BYTES_MIN + 100_000]);
        let small = Bytes::from(vec![2; SHARED_BYTES_MIN - 1]);
        let (mut output, mut expected) = (Output::default(), Vec::new());
        for part in [&small, &large, &large, &small] {
            output.put(part);
            output.buffer().extend_from_slice(b"between");
            expected.extend_from_slice(part);
            expected.extend_from_slice(b"between");
            assert_eq!(output.len(), expected.len());
        }
        let (mut written, mut shared) = (Vec::new(), 0);
        while !output.is_empty() {
            shared += usize::from(output.front().as_ptr() == large.as_ptr());
            assert_ne!(output.front().as_ptr(), small.as_ptr());
            let bytes = output.front().len().min(100_000);
            written.extend_from_slice(&output.front()[..bytes]);
            output.advance(bytes);
            assert_eq!(output.len(), expected.len() - written.len());
        }
        assert!(written == expected && shared == 2 && output.front().is_empty());
        for (kept, remains) in [(1000, true), (999, false)] {
            *output.buffer() = BytesMut::with_capacity(1000);
            output.put(&large);
            assert_eq!(output.take_shared(), Some(large.clone()));
            output.buffer().reserve(1000);
            output.put(&small.slice(..10));
            output.clear(kept);
            assert_eq!((output.len(), output.buffer().capacity() > 0), (0, remains));
        }
    }
}
