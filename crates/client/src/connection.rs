//! A RESP connection: requests leave in pipelines, and replies arrive in order.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use resp::{Reply, ReplyDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Connection {
    stream: TcpStream,
    decoder: ReplyDecoder,
    input: BytesMut,
    output: BytesMut,
}

/// Minimum free space in the buffer for one read, in bytes.
const READ_BYTES: usize = 16 << 10;

impl Connection {
    pub async fn open(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = tokio::time::timeout(patience, TcpStream::connect(address))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")))??;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            decoder: ReplyDecoder::default(),
            input: BytesMut::with_capacity(READ_BYTES),
            output: BytesMut::new(),
        })
    }

    /// Adds a request to the output that the next [`flush`](Self::flush) sends.
    pub fn queue<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        resp::encode_request(arguments, &mut self.output);
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// Waits for the next reply.
    pub async fn reply(&mut self) -> io::Result<Reply> {
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
            }
            self.input.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    pub async fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        self.queue(arguments);
        self.flush().await?;
        self.reply().await
    }
}

/// Returns the text of a bulk, verbatim or simple string.
pub fn text(reply: &Reply) -> Option<Bytes> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes.clone()),
        Reply::Verbatim(_, bytes) => Some(bytes.clone()),
        Reply::Simple(text) => Some(Bytes::copy_from_slice(text.as_bytes())),
        _ => None,
    }
}
