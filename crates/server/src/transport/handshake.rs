//! The beginning of every connection between stores: both ends prove their identity, in one round
//! trip.
//!
//! ```text
//!  caller    ── hello: numbers, lane, cluster, own key, a nonce ──────────▶  acceptor
//!            ◀── challenge: own key, a nonce, signature ───────────────────
//!  is it the key of the store that was called?
//!            ── proof: signature, and perhaps that it knows the password ─▶
//!                                          is it the key of the store that it says it is?
//!            ◀── refused, and why ── or what follows the proof is heard
//! ```
//! Each end signs the whole hello, the acceptor's key and its nonce, each after a label of its own.
//! So a proof for one store on one connection is worthless for another store or connection, and a
//! store's public key does not help to impersonate it.
//!
//! With TLS the frames come after its handshake, in which both ends show certificates. The signed
//! content then contains a secret number of the TLS connection. So whoever has a good certificate
//! and passes frames on between two stores is not in the middle of a connection afterwards: what
//! one store signs is worthless on the connection of the other. Without TLS nothing is encrypted:
//! an attacker who can read and change the traffic can take over a connection after the handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use cluster::StoreKey;
use tls_stream::is_tls_error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::StoreId;

use super::frame::{self, Challenge, Frame, FrameError, Hello, Lane, Nonce, Proof, Refusal, RefusalReason};
use super::identity::{Identity, NO_STORE};
use super::join_token::TokenName;
use super::keyring::Verdict;
use super::keys;
use super::socket;
use super::stream::{in_time, PeerSocket, PeerStream};

/// Maximum bytes of a frame before the proof, so that a stranger cannot make a buffer grow.
pub const FRAME_BYTES_MAX: usize = 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

const CALLER: &[u8] = b"steelyard 3: caller\0";
const ACCEPTOR: &[u8] = b"steelyard 3: acceptor\0";
const PASSWORD: &[u8] = b"steelyard 3: password\0";

/// The content that both ends sign.
struct Transcript(Vec<u8>);

impl Transcript {
    /// `binding` is a secret number of the connection with TLS, and empty without.
    fn new(hello: &Hello, key: &StoreKey, nonce: &Nonce, binding: &[u8]) -> Transcript {
        Transcript([&encoded(Frame::Hello(hello.clone()))[..], &key.0, nonce, binding].concat())
    }

    fn as_said_by(&self, label: &[u8]) -> Vec<u8> {
        [label, &self.0].concat()
    }
}

fn encoded(frame: Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    frame::encode(&frame, &mut bytes).expect("a frame of fixed length fits");
    bytes
}

/// The reason why a connection to a store could not be opened.
#[derive(Debug)]
pub enum NotOpened {
    Io(io::Error),
    /// The other end refused, before it proved its identity.
    Refused(Refusal),
    /// The other end is not the store that was called.
    Stranger(String),
}

impl From<io::Error> for NotOpened {
    fn from(error: io::Error) -> NotOpened {
        NotOpened::Io(error)
    }
}

impl From<NotOpened> for io::Error {
    fn from(error: NotOpened) -> io::Error {
        match error {
            NotOpened::Io(error) => error,
            NotOpened::Refused(refusal) => io::Error::other(refusal.text),
            NotOpened::Stranger(text) => io::Error::new(io::ErrorKind::PermissionDenied, text),
        }
    }
}

impl NotOpened {
    /// Returns the refusal to report to the operator. A process that did not prove its identity
    /// cannot make this store stop.
    pub fn refusal(self) -> Option<Refusal> {
        let text = match self {
            NotOpened::Io(_) => return None,
            NotOpened::Refused(refusal) => refusal.text,
            NotOpened::Stranger(text) => text,
        };
        Some(Refusal { reason: RefusalReason::Wrong, text })
    }
}

/// The caller's side of the handshake.
pub struct Caller {
    identity: Arc<Identity>,
    hello: Hello,
}

impl Caller {
    pub fn new(identity: Arc<Identity>, to: StoreId, lane: Lane) -> io::Result<Caller> {
        let hello = Hello {
            from: identity.store,
            to,
            lane,
            layout_digest: identity.layout_digest,
            cluster_id: identity.cluster_id(),
            key: identity.key(),
            nonce: keys::draw_nonce()?,
        };
        Ok(Caller { identity, hello })
    }

    fn hello(&self) -> BytesMut {
        encoded(Frame::Hello(self.hello.clone()))
    }

    /// Returns the proof, if the other end has proved its identity.
    fn answer(&self, frame: Frame, binding: &[u8]) -> Result<BytesMut, NotOpened> {
        let Challenge { key, nonce, signature } = match frame {
            Frame::Challenge(challenge) => challenge,
            Frame::Refused(refusal) => return Err(NotOpened::Refused(refusal)),
            _ => return Err(invalid("the answer to a hello is not a challenge").into()),
        };
        let transcript = Transcript::new(&self.hello, &key, &nonce, binding);
        let to = self.hello.to;
        if !keys::has_signed(&key, &transcript.as_said_by(ACCEPTOR), &signature) {
            return Err(NotOpened::Stranger(format!("what answers for store {to} cannot prove its key")));
        }
        // A store that is about to join knows only an address and no store's key.
        let verdict = if to == NO_STORE { Verdict::FirstSeen } else { self.identity.keyring.meet(to, key) };
        if !matches!(verdict, Verdict::Agreed | Verdict::FirstSeen) {
            return Err(NotOpened::Stranger(format!(
                "the process that answers for store {to} has another key: the address now belongs to another \
                 store, or the data directory was replaced"
            )));
        }
        let signature = self.identity.secret.sign(&transcript.as_said_by(CALLER));
        let message = transcript.as_said_by(PASSWORD);
        let (password, token) = match (&self.identity.token, &self.identity.password) {
            (Some(token), _) => (token.prove(&message), Some(token.name)),
            (None, Some(password)) => (keys::prove(password.as_bytes(), &message), None),
            (None, None) => ([0; 32], None),
        };
        Ok(encoded(Frame::Proof(Proof { signature, password, token })))
    }

    /// The two frames of the caller.
    #[cfg(test)]
    pub fn said(&self) -> BytesMut {
        self.hello()
    }

    #[cfg(test)]
    pub fn answers(&self, challenge: Frame) -> BytesMut {
        self.answer(challenge, &[]).expect("the challenge is good")
    }

    /// Connects, and proves this store's identity after the other store has proved its own.
    pub async fn connect(&self, address: SocketAddr) -> Result<PeerStream, NotOpened> {
        let timed_out = |_| NotOpened::Io(io::ErrorKind::TimedOut.into());
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
        let stream = connecting.await.map_err(timed_out)??;
        socket::prepare(&stream)?;
        let beginning = async {
            let mut stream = match &self.identity.certificates() {
                None => PeerStream::Plain(stream),
                Some(certificates) => certificates.call(stream, self.hello.to).await?,
            };
            stream.write_all(&self.hello()).await?;
            stream.flush().await?;
            let mut bytes = BytesMut::new();
            let challenge = loop {
                if let Some(frame) = take_only(&mut bytes)? {
                    break frame;
                }
                if stream.read_buf(&mut bytes).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            };
            let proof = self.answer(challenge, &stream.binding()?)?;
            stream.write_all(&proof).await?;
            stream.flush().await?;
            Ok::<PeerStream, NotOpened>(stream)
        };
        let opened = tokio::time::timeout(ANSWER_TIMEOUT, beginning).await.map_err(timed_out)?;
        opened.map_err(|error| self.told(error))
    }

    /// Makes an error of TLS one that the operator is told of.
    fn told(&self, error: NotOpened) -> NotOpened {
        match error {
            NotOpened::Io(error) if is_tls_error(&error) => NotOpened::Stranger(match self.hello.to {
                NO_STORE => format!("no TLS connection with a store of this cluster: {error}"),
                to => format!("no TLS connection with store {to}: {error}"),
            }),
            other => other,
        }
    }

    /// Does the same over a blocking connection, within its timeouts and [`ANSWER_TIMEOUT`].
    pub fn introduce(&self, socket: std::net::TcpStream) -> Result<PeerSocket, NotOpened> {
        self.introduce_itself(socket).map_err(|error| self.told(error))
    }

    fn introduce_itself(&self, socket: std::net::TcpStream) -> Result<PeerSocket, NotOpened> {
        let until = Instant::now() + ANSWER_TIMEOUT;
        let mut stream = match &self.identity.certificates() {
            None => PeerSocket { socket, tls: None },
            Some(certificates) => certificates.call_and_wait(socket, self.hello.to, until)?,
        };
        stream.write_all(&self.hello())?;
        let mut bytes = BytesMut::new();
        let challenge = loop {
            if let Some(frame) = take_only(&mut bytes)? {
                break frame;
            }
            if stream.read_to(&mut bytes, FRAME_BYTES_MAX)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            in_time(until)?;
        };
        let proof = self.answer(challenge, &stream.binding()?)?;
        stream.write_all(&proof)?;
        Ok(stream)
    }
}

/// Returns a short frame. No bytes may follow it, because the other end must wait for an answer.
fn take_only(bytes: &mut BytesMut) -> io::Result<Option<Frame>> {
    let frame = frame::take_within(FRAME_BYTES_MAX, bytes).map_err(io::Error::other)?;
    match frame {
        Some(_) if !bytes.is_empty() => Err(invalid("bytes behind a frame of the handshake")),
        frame => Ok(frame),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The acceptor's side: it has sent its challenge and waits for the caller's proof.
pub struct Greeted {
    hello: Hello,
    transcript: Transcript,
}

/// A caller that has proved that it has its key. Its store is not checked yet.
pub struct Introduced {
    pub hello: Hello,
    transcript: Transcript,
    password: [u8; 32],
    token: Option<TokenName>,
}

impl Greeted {
    /// Creates the challenge. `binding` is the secret number of the connection with TLS.
    pub fn new(identity: &Identity, hello: Hello, binding: &[u8]) -> io::Result<(Greeted, BytesMut)> {
        let (key, nonce) = (identity.key(), keys::draw_nonce()?);
        let transcript = Transcript::new(&hello, &key, &nonce, binding);
        let signature = identity.secret.sign(&transcript.as_said_by(ACCEPTOR));
        let challenge = encoded(Frame::Challenge(Challenge { key, nonce, signature }));
        Ok((Greeted { hello, transcript }, challenge))
    }

    /// Returns `None` if the caller does not have the key that it claims.
    pub fn check(self, Proof { signature, password, token }: Proof) -> Option<Introduced> {
        let Greeted { hello, transcript } = self;
        keys::has_signed(&hello.key, &transcript.as_said_by(CALLER), &signature).then_some(Introduced {
            hello,
            transcript,
            password,
            token,
        })
    }
}

impl Introduced {
    /// Returns true if the caller has proved that it knows the password, or has a token that was
    /// made from it and has not expired. A token admits only stores that ask to join.
    pub fn knows_password(&self, password: &str) -> bool {
        let message = self.transcript.as_said_by(PASSWORD);
        match &self.token {
            None => keys::is_proof(password.as_bytes(), &message, &self.password),
            Some(token) => {
                let is_valid = self.hello.from == NO_STORE && !token.has_expired();
                is_valid && token.is_proof(password, &message, &self.password)
            }
        }
    }

    /// Returns true if the caller has shown a token that has expired.
    pub fn came_too_late(&self) -> bool {
        self.token.is_some_and(|token| token.has_expired())
    }
}

/// Removes a frame of the handshake from the front of `bytes`.
pub fn take(bytes: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    frame::take_within(FRAME_BYTES_MAX, bytes)
}
