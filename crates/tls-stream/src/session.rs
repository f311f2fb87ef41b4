//! One end of a TLS connection as a state machine: bytes of the socket go in and come out.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use bytes::BytesMut;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

/// Maximum bytes that the other end sends in its handshake. A chain of certificates has a few KiB.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// The label of [`Session::binding`].
const BINDING: &[u8] = b"EXPORTER-steelyard-binding";

pub struct Session {
    connection: Connection,
    /// Bytes that the other end has sent in its handshake.
    handshake_bytes: usize,
    has_ended: bool,
}

impl Session {
    /// Begins a connection to the owner of a certificate for `name`.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Session> {
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Session::new(connection.into()))
    }

    /// Begins a connection with a client.
    pub fn server(config: Arc<ServerConfig>) -> io::Result<Session> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Session::new(connection.into()))
    }

    fn new(connection: Connection) -> Session {
        Session { connection, handshake_bytes: 0, has_ended: false }
    }

    /// Takes bytes that came from the socket, and appends what they contain to `plain`.
    ///
    /// # Errors
    /// Bytes that are no TLS, or that the other end may not send. The reason for the other end is
    /// then among the bytes that [`write_to`](Self::write_to) writes.
    pub fn open(&mut self, mut sealed: &[u8], plain: &mut BytesMut) -> io::Result<()> {
        if self.connection.is_handshaking() {
            self.handshake_bytes += sealed.len();
            if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the handshake is too long"));
            }
        }
        while !sealed.is_empty() && self.connection.read_tls(&mut sealed)? > 0 {
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let mut left = state.plaintext_bytes_to_read();
            self.has_ended |= state.peer_has_closed();
            while left > 0 {
                let mut reader = self.connection.reader();
                let part = reader.fill_buf()?;
                let length = part.len();
                plain.extend_from_slice(part);
                reader.consume(length);
                left -= length.min(left);
            }
        }
        Ok(())
    }

    /// Takes bytes for the other end. Returns their number, which is bounded.
    pub fn seal(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(bytes)
    }

    /// Notes that no more bytes follow, for the other end.
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Writes the bytes for the socket until there are none, or the socket takes no more.
    pub fn write_to(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns true if there are bytes for the socket.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Returns true if the other end has said that it sends no more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the certificate with which the other end has proved its identity.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.connection.peer_certificates()?.first().map(|certificate| certificate.clone().into_owned())
    }

    /// Returns a secret number that only the two ends of this connection know. Whoever stands in
    /// the middle of two connections has two different ones.
    pub fn binding(&self) -> io::Result<[u8; 32]> {
        self.connection.export_keying_material([0; 32], BINDING, None).map_err(io::Error::other)
    }
}

/// Returns true if an operation has failed for reasons of TLS, and not of the network.
pub fn is_tls_error(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::RootCertStore;

    use super::*;

    /// Returns both ends of a connection.
    fn pair() -> [Session; 2] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["a.b.c".into()]).unwrap().self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let client = ClientConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("a.b.c").unwrap();
        [Session::client(Arc::new(client), name).unwrap(), Session::server(Arc::new(server)).unwrap()]
    }

    /// Passes what one end has to say to the other, in pieces.
    fn pass(from: &mut Session, to: &mut Session, piece: usize, plain: &mut BytesMut) -> usize {
        let mut wire = Vec::new();
        from.write_to(&mut wire).unwrap();
        wire.chunks(piece).for_each(|chunk| to.open(chunk, plain).unwrap());
        wire.len()
    }

    fn shake_hands(ends: &mut [Session; 2], piece: usize) {
        let [client, server] = ends;
        let mut plain = BytesMut::new();
        while pass(client, server, piece, &mut plain) + pass(server, client, piece, &mut plain) > 0 {}
        assert!(!client.is_handshaking() && !server.is_handshaking() && plain.is_empty());
    }

    #[test]
    fn bytes_arrive_whole_however_they_are_cut() {
        for piece in [1, 7, 4096, usize::MAX >> 1] {
            let mut ends = pair();
            shake_hands(&mut ends, piece);
            let [client, server] = &mut ends;
            let sent: Vec<u8> = (0..200_000u32).map(|number| (number % 251) as u8).collect();
            let (mut left, mut plain) = (&sent[..], BytesMut::new());
            while !left.is_empty() {
                left = &left[client.seal(left).unwrap()..];
                pass(client, server, piece, &mut plain);
            }
            assert!(plain == sent && !server.has_ended());
            client.end();
            pass(client, server, piece, &mut plain);
            assert!(server.has_ended());
        }
    }

    #[test]
    fn both_ends_of_a_connection_have_the_same_binding_and_other_connections_another() {
        let [mut one, mut other] = [pair(), pair()];
        shake_hands(&mut one, 4096);
        shake_hands(&mut other, 4096);
        let [client, server] = one.map(|end| end.binding().unwrap());
        assert_eq!(client, server);
        assert_ne!(client, other[0].binding().unwrap());
        assert!(pair()[0].binding().is_err(), "before the handshake there is none");
    }

    #[test]
    fn a_handshake_has_a_maximum_of_bytes_and_damage_is_an_error() {
        let [_, mut server] = pair();
        let record = [&[22, 3, 1, 0x40, 0][..], &[1; 0x4000]].concat();
        let opened: io::Result<()> = (0..10).try_for_each(|_| server.open(&record, &mut BytesMut::new()));
        assert!(opened.is_err());
        let mut ends = pair();
        shake_hands(&mut ends, 4096);
        let [client, server] = &mut ends;
        client.seal(b"words").unwrap();
        let mut wire = Vec::new();
        client.write_to(&mut wire).unwrap();
        *wire.last_mut().unwrap() ^= 1;
        let mut plain = BytesMut::new();
        let error = server.open(&wire, &mut plain).unwrap_err();
        assert!(is_tls_error(&error) && plain.is_empty());
        assert!(!is_tls_error(&io::ErrorKind::UnexpectedEof.into()));
    }
}
