//! What the server keeps of one client's connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use resp::Protocol;
use tokio::sync::Notify;

/// Which port a client came in by: it decides how keys of other stores are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Redis Cluster rules when cluster mode is on: `MOVED` for regions led elsewhere.
    Client,
    /// Every command is served, passed on where necessary.
    Forward,
}

/// The connection's own state; only its task touches it.
pub struct Session {
    pub id: u64,
    pub door: Door,
    pub protocol: Protocol,
    pub db: u16,
    pub authenticated: bool,
    /// After READONLY: this store's own copy may answer reads.
    pub read_only: bool,
    pub closing: bool,
    pub entry: Arc<ClientEntry>,
}

impl Session {
    /// As after RESET.
    pub fn reset(&mut self, needs_password: bool) {
        self.protocol = Protocol::Resp2;
        self.db = 0;
        self.read_only = false;
        self.authenticated = !needs_password;
        self.entry.describe(|d| d.name = Bytes::new());
    }
}

/// What others may know of a connection (`CLIENT LIST`), and how they end it.
pub struct ClientEntry {
    pub id: u64,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub connected: Instant,
    pub commands: AtomicU64,
    pub killed: AtomicBool,
    pub kill: Notify,
    description: Mutex<Description>,
}

#[derive(Clone, Default)]
pub struct Description {
    pub name: Bytes,
    pub library: Bytes,
    pub library_version: Bytes,
    pub db: u16,
    pub resp: u8,
    pub last_command: &'static str,
}

impl ClientEntry {
    pub fn describe(&self, change: impl FnOnce(&mut Description)) {
        change(&mut self.description.lock());
    }

    pub fn description(&self) -> Description {
        self.description.lock().clone()
    }

    pub fn end(&self) {
        self.killed.store(true, Ordering::Release);
        self.kill.notify_one();
    }

    /// One line of `CLIENT LIST`, without its newline.
    pub fn line(&self) -> String {
        let d = self.description();
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle=0 flags=N db={} sub=0 psub=0 ssub=0 multi=-1 \
             qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r \
             cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            String::from_utf8_lossy(&d.name),
            self.connected.elapsed().as_secs(),
            d.db,
            d.last_command,
            d.resp,
            String::from_utf8_lossy(&d.library),
            String::from_utf8_lossy(&d.library_version),
        )
    }
}

/// Every open connection, by id.
#[derive(Default)]
pub struct Clients {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<ClientEntry>>>,
}

impl Clients {
    /// `None` when `max` connections are open already.
    pub fn open(&self, peer: SocketAddr, local: SocketAddr, max: usize) -> Option<Arc<ClientEntry>> {
        let mut open = self.open.lock();
        if open.len() >= max {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Arc::new(ClientEntry {
            id,
            peer,
            local,
            connected: Instant::now(),
            commands: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            kill: Notify::new(),
            description: Mutex::new(Description { resp: 2, last_command: "NULL", ..Description::default() }),
        });
        open.insert(id, entry.clone());
        Some(entry)
    }

    pub fn close(&self, id: u64) {
        self.open.lock().remove(&id);
    }

    /// Every connection that goes on: one that was killed is no more, though its end may take a moment.
    pub fn all(&self) -> Vec<Arc<ClientEntry>> {
        let open = self.open.lock();
        open.values().filter(|entry| !entry.killed.load(Ordering::Acquire)).cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.open.lock().len()
    }
}
