//! Writing of an output to a connection between stores.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use types::{Output, PIECE_BYTES};

use super::stream::PeerStream;

/// Bytes that are encoded before they are written to the socket.
pub const WRITE_BYTES: usize = 1 << 20;
/// Maximum memory that an empty output keeps, in bytes.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Writes everything. The kernel copies at most [`PIECE_BYTES`] of a very large part at once.
pub async fn write(output: &mut Output, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    while let Some(part) = output.take_shared() {
        for piece in part.chunks(PIECE_BYTES) {
            writer.write_all(piece).await?;
        }
    }
    writer.write_all(output.front()).await?;
    writer.flush().await?;
    output.clear(KEPT_BYTES_MAX);
    Ok(())
}

/// Writes what the socket takes without waiting. Returns true if that is everything.
pub fn write_now(output: &mut Output, stream: &PeerStream) -> io::Result<bool> {
    while !output.is_empty() {
        let front = output.front();
        match stream.try_write(&front[..front.len().min(PIECE_BYTES)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => output.advance(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    output.clear(KEPT_BYTES_MAX);
    stream.try_flush()
}

/// Writes everything to a connection that others write to, too, while this task does not.
pub async fn write_to(output: &mut Output, stream: &PeerStream) -> io::Result<()> {
    while !write_now(output, stream)? {
        stream.socket().writable().await?;
    }
    Ok(())
}

/// Returns everything in one piece, and the parts that are not copied.
#[cfg(test)]
pub fn joined(mut output: Output) -> (bytes::BytesMut, Vec<bytes::Bytes>) {
    let shared: Vec<bytes::Bytes> = std::iter::from_fn(|| output.take_shared()).collect();
    let parts = shared.iter().map(|part| &part[..]).chain([output.front()]);
    (bytes::BytesMut::from(&parts.collect::<Vec<_>>().concat()[..]), shared)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::SHARED_BYTES_MIN;

    use super::*;

    #[tokio::test]
    async fn parts_are_written_in_their_order() {
        let large = Bytes::from(vec![1; SHARED_BYTES_MIN + PIECE_BYTES]);
        let small = Bytes::from(vec![2; SHARED_BYTES_MIN - 1]);
        let (mut output, mut expected) = (Output::default(), Vec::new());
        for part in [&small, &large, &large, &small] {
            output.put(part);
            expected.extend_from_slice(part);
        }
        let mut written = Vec::new();
        write(&mut output, &mut written).await.unwrap();
        assert_eq!((written, output.len()), (expected, 0));
    }
}
