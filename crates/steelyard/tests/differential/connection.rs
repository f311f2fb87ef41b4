//! A blocking RESP connection that sends complete requests or raw bytes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use resp::{Reply, ReplyDecoder};

/// Maximum time without a reply. After that time the reply counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 << 10;

pub struct Connection {
    stream: TcpStream,
    decoder: ReplyDecoder,
    input: BytesMut,
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Connection { stream, decoder: ReplyDecoder::default(), input: BytesMut::new() })
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        let mut output = BytesMut::new();
        resp::encode_request(arguments, &mut output);
        self.send(&output)?;
        self.reply()
    }

    /// Sends requests at once and reads their replies in order.
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>]) -> io::Result<Vec<Reply>> {
        let mut output = BytesMut::new();
        requests.iter().for_each(|arguments| resp::encode_request(arguments, &mut output));
        self.send(&output)?;
        requests.iter().map(|_| self.reply()).collect()
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes the sending side. Replies may still arrive.
    pub fn finish_sending(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    pub fn local(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket")
    }

    /// Returns the next reply. The error is `UnexpectedEof` if the server has closed the
    /// connection.
    pub fn reply(&mut self) -> io::Result<Reply> {
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
            }
            let mut chunk = [0; READ_BYTES];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.input.extend_from_slice(&chunk[..read]),
            }
        }
    }

    /// Returns the next reply, or `None` if it does not come within this time.
    pub fn reply_within(&mut self, time: Duration) -> io::Result<Option<Reply>> {
        self.stream.set_read_timeout(Some(time))?;
        let reply = self.reply();
        self.stream.set_read_timeout(Some(SILENCE_MAX))?;
        match reply {
            Ok(reply) => Ok(Some(reply)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns every reply until the server closes the connection.
    pub fn replies_to_the_end(&mut self) -> io::Result<Vec<Reply>> {
        let mut replies = Vec::new();
        loop {
            match self.reply() {
                Ok(reply) => replies.push(reply),
                Err(error) if is_closed(&error) => return Ok(replies),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns true if the connection was closed, or reset because the server left input unread.
pub fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
