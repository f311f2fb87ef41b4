//! A RESP connection: requests leave in pipelines, and replies arrive in order.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use resp::{Reply, ReplyDecoder};
use tls_stream::TlsStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::tls;

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// A stream of bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub struct Connection {
    stream: Stream,
    decoder: ReplyDecoder,
    input: BytesMut,
    output: BytesMut,
}

/// Minimum free space in the buffer for one read, in bytes.
const READ_BYTES: usize = 16 << 10;

impl Connection {
    /// Connects, with TLS if this process uses it.
    pub async fn open(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let tls = tls::of_process().map_err(io::Error::other)?;
        Connection::open_with(address, patience, tls).await
    }

    /// Connects without TLS.
    pub async fn open_plain(address: SocketAddr, patience: Duration) -> io::Result<Connection> {
        Connection::open_with(address, patience, None).await
    }

    async fn open_with(
        address: SocketAddr,
        patience: Duration,
        tls: Option<tls::ClientTls>,
    ) -> io::Result<Connection> {
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<Stream, io::Error>(match tls {
                None => Stream::Plain(stream),
                Some(tls) => Stream::Tls(Box::new(tls.connect(stream, address).await?)),
            })
        };
        let stream = tokio::time::timeout(patience, connecting)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")))??;
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
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(&self.output).await?,
            Stream::Tls(stream) => {
                stream.write_all(&self.output).await?;
                stream.flush().await?;
            }
        }
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
            let read = match &mut self.stream {
                Stream::Plain(stream) => stream.read_buf(&mut self.input).await?,
                Stream::Tls(stream) => stream.read_buf(&mut self.input).await?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns the stream, and the bytes that have arrived after the last reply, for a protocol
    /// that is not one of requests and replies.
    pub fn into_stream(self) -> (Box<dyn Duplex>, BytesMut) {
        let stream: Box<dyn Duplex> = match self.stream {
            Stream::Plain(stream) => Box::new(stream),
            Stream::Tls(stream) => stream,
        };
        (stream, self.input)
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
