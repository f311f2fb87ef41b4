//! The sessions of a ZooKeeper server, and their end at a time that the test chooses.
//!
//! A server lets any connection continue a session that names it and its password. ZooKeeper's own
//! tests expire a session so: another client continues it and closes it. The session's owner is
//! disconnected, connects again, and finds that its session has expired. The server derives the
//! password from the number alone, so a test needs to know nothing of the owner.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
/// The constant in a session's password (`ZooKeeperServer.superSecret`).
const PASSWORD_SEED: u64 = 0xB341_5C00;
const PASSWORD_BYTES: usize = 16;
/// The xid of the only request, and the operation code of `closeSession`.
const XID: i32 = 1;
const CLOSE_SESSION: i32 = -11;

/// A session that has ephemeral znodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: u64,
    /// The paths of its ephemeral znodes.
    pub znodes: Vec<String>,
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Returns the sessions with ephemeral znodes that the server knows. It must lead its ensemble or
/// be the only server, and permit the command `dump`.
pub fn sessions(server: SocketAddr) -> io::Result<Vec<Session>> {
    let mut stream = connect(server)?;
    stream.write_all(b"dump")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(parse(&text))
}

fn parse(dump: &str) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    for line in dump.lines().skip_while(|line| !line.starts_with("Sessions with Ephemerals")).skip(1) {
        let number = line.strip_prefix("0x").and_then(|line| line.strip_suffix(':'));
        if let Some(id) = number.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            sessions.push(Session { id, znodes: Vec::new() });
        } else if let (Some(session), true) = (sessions.last_mut(), line.trim_start().starts_with('/')) {
            session.znodes.push(line.trim_start().to_owned());
        } else {
            break;
        }
    }
    sessions
}

/// Ends a session. Returns an error if the server does not know it.
pub fn end(server: SocketAddr, session: u64) -> io::Result<()> {
    let mut stream = connect(server)?;
    let timeout_ms = 10_000i32;
    let mut request = Vec::new();
    request.extend(0i32.to_be_bytes());
    request.extend(0i64.to_be_bytes());
    request.extend(timeout_ms.to_be_bytes());
    request.extend(session.to_be_bytes());
    request.extend((PASSWORD_BYTES as i32).to_be_bytes());
    request.extend(password(session));
    request.push(0);
    let reply = call(&mut stream, &request)?;
    // The protocol's version, and the timeout, which is 0 for a session that has expired.
    if reply.get(4..8).is_none_or(|timeout| timeout == [0; 4]) {
        return Err(io::Error::other(format!("the server does not know session {session:#x}")));
    }
    let request = [XID.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat();
    let reply = call(&mut stream, &request)?;
    // The xid, the zxid, and the error.
    match reply.get(12..16) {
        Some([0, 0, 0, 0]) => Ok(()),
        _ => Err(io::Error::other(format!("session {session:#x} is not closed: {reply:?}"))),
    }
}

fn call(stream: &mut TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    const REPLY_BYTES_MAX: u32 = 4096;
    let length = request.len() as u32;
    stream.write_all(&[&length.to_be_bytes(), request].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > REPLY_BYTES_MAX {
        return Err(io::Error::other(format!("a reply of {length} bytes")));
    }
    let mut reply = vec![0; length as usize];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}

/// Returns the password of a session: bytes of Java's `Random`, whose seed is the session's number
/// with a constant.
fn password(session: u64) -> [u8; PASSWORD_BYTES] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (session ^ PASSWORD_SEED ^ MULTIPLIER) & MASK;
    let mut bytes = [0; PASSWORD_BYTES];
    for word in bytes.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        word.copy_from_slice(&((state >> 16) as u32).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_from_a_dump_with_their_znodes() {
        let dump = "SessionTracker dump:\nSession Sets (2)/(1):\n0 expire at x:\n1 expire at y:\n\t0x10\n\
                    ephemeral nodes dump:\nSessions with Ephemerals (2):\n0x100a:\n\t/s/stores/0\n\t/s/leaders/0\n\
                    0x100b:\n\t/s/stores/1\nConnections dump:\n0x100c:\n\t/none\n";
        let session =
            |id, znodes: &[&str]| Session { id, znodes: znodes.iter().map(|&z| z.into()).collect() };
        let expected = [session(0x100a, &["/s/stores/0", "/s/leaders/0"]), session(0x100b, &["/s/stores/1"])];
        assert_eq!(parse(dump), expected);
        assert_eq!(parse("This ZooKeeper instance is not currently serving requests\n"), []);
    }

    #[test]
    fn the_password_is_the_one_that_a_server_gave() {
        let given = 0x7415_cb4a_f18b_4379_72e7_a9f9_2240_02c2_u128;
        assert_eq!(u128::from_be_bytes(password(0x0100_02b5_f55a_0000)), given);
    }
}
