//! `MONITOR`: clients that are told of all commands of this store's clients.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use command::CommandSpec;
use parking_lot::Mutex;

use super::mailbox::{Message, MessageMemory, Subscriber};
use crate::secrets;

pub struct Monitors {
    clients: Mutex<BTreeMap<u64, Arc<Subscriber>>>,
    count: AtomicUsize,
    memory: Arc<MessageMemory>,
}

impl Monitors {
    pub fn new(memory: Arc<MessageMemory>) -> Monitors {
        Monitors { clients: Mutex::default(), count: AtomicUsize::new(0), memory }
    }

    /// Returns true if a client is told of all commands.
    pub fn are_there(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn add(&self, subscriber: &Arc<Subscriber>) {
        let mut clients = self.clients.lock();
        subscriber.set_monitor(true);
        clients.insert(subscriber.id, subscriber.clone());
        self.count.store(clients.len(), Ordering::SeqCst);
    }

    pub fn remove(&self, subscriber: &Subscriber) {
        if subscriber.is_monitor() {
            let mut clients = self.clients.lock();
            subscriber.set_monitor(false);
            clients.remove(&subscriber.id);
            self.count.store(clients.len(), Ordering::SeqCst);
        }
    }

    /// Tells of a command that a client at `peer` has sent, at a time in microseconds.
    pub fn tell(&self, micros: u64, (db, peer): (u16, &str), spec: &'static CommandSpec, args: &[Bytes]) {
        let line = line(micros, (db, peer), spec, args);
        let message = Message::new(line, None, &self.memory);
        self.clients.lock().values().for_each(|subscriber| subscriber.give(&message));
    }
}

fn line(micros: u64, (db, peer): (u16, &str), spec: &'static CommandSpec, args: &[Bytes]) -> Bytes {
    let mut line = BytesMut::with_capacity(64 + args.iter().map(|arg| arg.len() + 3).sum::<usize>());
    let _ = write!(line, "+{}.{:06} [{db} {peer}]", micros / 1_000_000, micros % 1_000_000);
    let secrets = secrets::positions(spec, args);
    for (at, arg) in args.iter().enumerate() {
        line.extend_from_slice(b" \"");
        put_escaped(if secrets.contains(&at) { secrets::REDACTED } else { arg }, &mut line);
        line.extend_from_slice(b"\"");
    }
    line.extend_from_slice(b"\r\n");
    line.freeze()
}

/// Appends bytes as Redis shows them between quotes.
fn put_escaped(bytes: &[u8], out: &mut BytesMut) {
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.extend_from_slice(&[*byte]),
            other => drop(write!(out, "\\x{other:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&'static [u8]]) -> String {
        let args: Vec<Bytes> = words.iter().map(|word| Bytes::from_static(word)).collect();
        let spec = command::lookup(&args[0]).unwrap();
        String::from_utf8(line(1_795_813_030_000_145, (3, "127.0.0.1:5"), spec, &args).to_vec()).unwrap()
    }

    #[test]
    fn commands_are_shown_as_redis_shows_them_and_passwords_are_not() {
        let begin = "+1795813030.000145 [3 127.0.0.1:5]";
        assert_eq!(
            shown(&[b"SET", b"bin\x00\xff\r\n\"\\k", b""]),
            format!("{begin} \"SET\" \"bin\\x00\\xff\\r\\n\\\"\\\\k\" \"\"\r\n")
        );
        assert_eq!(
            shown(&[b"auth", b"user", b"secret"]),
            format!("{begin} \"auth\" \"(redacted)\" \"(redacted)\"\r\n")
        );
        assert_eq!(
            shown(&[b"hello", b"3", b"AUTH", b"user", b"secret", b"setname", b"x"]),
            format!("{begin} \"hello\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"setname\" \"x\"\r\n")
        );
        let hidden = shown(&[b"hello", b"3", b"setname", b"auth", b"AUTH", b"user", b"secret"]);
        assert!(hidden.contains("auth") && !hidden.contains("secret"), "{hidden}");
        // Without its arguments, as the command is refused.
        assert_eq!(shown(&[b"hello", b"3", b"AUTH", b"x"]).matches("redacted").count(), 1);
    }
}
