//! Bytes that are about to be written to a socket. Small frames are encoded into a buffer. Very
//! large parts of a frame are written from where they are, because copying one would hold up the
//! other tasks of its thread.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Minimum bytes of a part that is not copied.
pub const SHARED_BYTES_MIN: usize = 256 << 10;
/// Maximum bytes of one write, which the kernel copies.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Capacity above which an empty buffer is given back.
const KEPT_BYTES_MAX: usize = 4 << 20;

#[derive(Default)]
pub struct Output {
    /// The bytes that are written before the buffer.
    parts: Vec<Bytes>,
    parts_bytes: usize,
    buffer: BytesMut,
}

impl Output {
    /// Returns the buffer that is written last. The caller may only append to it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Appends bytes, without a copy if they are many.
    pub fn put(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.buffer.extend_from_slice(bytes);
        }
        let before = self.buffer.split().freeze();
        self.parts_bytes += before.len() + bytes.len();
        self.parts.extend([before, bytes.clone()]);
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.parts_bytes + self.buffer.len()
    }

    /// Writes everything.
    pub async fn write_to(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        self.parts_bytes = 0;
        for part in std::mem::take(&mut self.parts) {
            for piece in part.chunks(WRITE_BYTES_MAX) {
                writer.write_all(piece).await?;
            }
        }
        writer.write_all(&self.buffer).await?;
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = BytesMut::new();
        }
        Ok(())
    }

    /// Returns everything in one piece.
    #[cfg(test)]
    pub fn joined(&self) -> BytesMut {
        let parts = self.parts.iter().map(|part| &part[..]).chain([&self.buffer[..]]);
        BytesMut::from(&parts.collect::<Vec<_>>().concat()[..])
    }

    /// Returns true if these bytes are written from where they are.
    #[cfg(test)]
    pub fn shares(&self, bytes: &Bytes) -> bool {
        self.parts.iter().any(|part| part.as_ptr_range() == bytes.as_ptr_range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parts_are_written_in_their_order_and_only_small_ones_are_copied() {
        let large = Bytes::from(vec![1; SHARED_BYTES_MIN + WRITE_BYTES_MAX]);
        let small = Bytes::from(vec![2; SHARED_BYTES_MIN - 1]);
        let mut output = Output::default();
        let mut expected = Vec::new();
        for part in [&small, &large, &large, &small] {
            output.put(part);
            expected.extend_from_slice(part);
        }
        assert!(output.shares(&large) && !output.shares(&small));
        assert_eq!((output.len(), &output.joined()[..]), (expected.len(), &expected[..]));
        let mut written = Vec::new();
        output.write_to(&mut written).await.unwrap();
        assert_eq!((written, output.len()), (expected, 0));
    }
}
