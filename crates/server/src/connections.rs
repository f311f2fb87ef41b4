//! The open connections of clients, whichever loop serves them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use command::ChannelKind;
use node::session::Session;
use node::Item;
use parking_lot::Mutex;
use types::RegionId;

use crate::accounts::Account;
use crate::client_socket::ClientSocket;
use crate::metrics::Metrics;
use crate::pubsub::mailbox::Subscriber;
use crate::pubsub::PubSub;
use crate::regions::RegionShared;
use crate::strangers::{Stranger, Strangers};

/// The kind of port to which a client connected. It decides how keys of other stores are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// Redis Cluster's rules if cluster mode is on: `MOVED` for regions with another leader.
    Client,
    /// Every command is executed, on another store if necessary.
    Forward,
}

/// The public state of a connection (`CLIENT LIST`), and the means to end it.
pub struct ClientEntry {
    pub id: u64,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub connected: Instant,
    pub commands: AtomicU64,
    pub killed: AtomicBool,
    /// True if the connection was closed by a planned stop after the client's last reply.
    closed: AtomicBool,
    /// The user, unless it is the default one.
    account: Mutex<Option<Arc<Account>>>,
    /// The generation of the users in which the permissions were looked up.
    pub users_seen: AtomicU64,
    /// True while the connection waits for a change of users that it asked for.
    changes_users: AtomicBool,
    /// Tells the serving loop to end the connection. Set once a loop serves it.
    kill: Mutex<Option<Kill>>,
    written: Mutex<Written>,
    /// The connection's subscriptions and messages.
    pub subscriber: Arc<Subscriber>,
    description: Mutex<Description>,
}

/// The regions that a connection has written to.
#[derive(Default)]
struct Written {
    regions: BTreeSet<RegionId>,
    /// True after a command that may have written to others.
    is_anywhere: bool,
}

type Kill = Box<dyn Fn() + Send>;

#[derive(Clone, Default)]
pub struct Description {
    pub name: Bytes,
    pub library: Bytes,
    pub library_version: Bytes,
    pub db: u16,
    pub resp: u8,
    pub last_command: &'static str,
    /// The number of commands queued since `MULTI`.
    pub queued: Option<usize>,
}

impl ClientEntry {
    /// Registers `kill`, which tells the serving loop to end the connection. Each loop that takes
    /// the connection calls this. Returns false if the connection must end at once.
    pub fn served_by(&self, kill: impl Fn() + Send + 'static) -> bool {
        // `end` takes the same lock after its change: it calls `kill`, or this sees the change.
        let mut of_loop = self.kill.lock();
        *of_loop = Some(Box::new(kill));
        !self.killed.load(Ordering::SeqCst)
    }

    pub fn describe(&self, change: impl FnOnce(&mut Description)) {
        change(&mut self.description.lock());
    }

    pub fn description(&self) -> Description {
        self.description.lock().clone()
    }

    /// Returns the user, unless it is the default one.
    pub fn account(&self) -> Option<Arc<Account>> {
        self.account.lock().clone()
    }

    pub fn set_account(&self, account: Option<Arc<Account>>) {
        *self.account.lock() = account;
    }

    pub fn user_name(&self) -> Bytes {
        self.account().map_or(Bytes::from_static(acl::DEFAULT_USER), |account| account.name.clone())
    }

    /// Marks the connection, while the result lives, as one that changes users.
    pub fn changing_users(&self) -> ChangingUsers<'_> {
        self.changes_users.store(true, Ordering::SeqCst);
        ChangingUsers(self)
    }

    pub fn is_changing_users(&self) -> bool {
        self.changes_users.load(Ordering::SeqCst)
    }

    /// Notes a region that the connection writes to.
    pub fn writes_to(&self, region: RegionId) {
        self.written.lock().regions.insert(region);
    }

    /// Notes a command whose regions are not known here.
    pub fn writes_with(&self, item: &Item) {
        if item.is_write() {
            self.written.lock().is_anywhere = true;
        }
    }

    /// Returns the regions that the connection has written to, or `None` if it may be any.
    pub fn regions_written(&self) -> Option<BTreeSet<RegionId>> {
        let written = self.written.lock();
        (!written.is_anywhere).then(|| written.regions.clone())
    }

    /// Closes the connection, whatever it waits for.
    pub fn end(&self) {
        self.killed.store(true, Ordering::SeqCst);
        if let Some(kill) = &*self.kill.lock() {
            kill();
        }
    }

    /// Marks the connection as closed, so that a planned stop does not wait for it.
    pub fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    fn flags(&self, description: &Description) -> String {
        let (redirect, is_told_all) = self.subscriber.tracking();
        let flags = [
            ('O', self.subscriber.is_monitor()),
            ('P', self.subscriber.is_subscribed()),
            ('x', description.queued.is_some()),
            ('t', redirect >= 0),
            ('B', is_told_all),
        ];
        let set: String = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag).collect();
        if set.is_empty() {
            "N".to_owned()
        } else {
            set
        }
    }

    /// One line of `CLIENT LIST`, without its newline.
    pub fn line(&self) -> String {
        let d = self.description();
        let (waiting, waiting_bytes) = self.subscriber.waiting();
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle=0 flags={} db={} sub={} psub={} ssub={} multi={} \
             qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll={} omem={} tot-mem={} events=r \
             cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            String::from_utf8_lossy(&d.name),
            self.connected.elapsed().as_secs(),
            self.flags(&d),
            d.db,
            self.subscriber.count(ChannelKind::Channel),
            self.subscriber.count(ChannelKind::Pattern),
            self.subscriber.count(ChannelKind::Shard),
            d.queued.map_or(-1, |queued| queued as i64),
            waiting,
            waiting_bytes,
            waiting_bytes,
            d.last_command,
            String::from_utf8_lossy(&self.user_name()),
            self.subscriber.tracking().0,
            d.resp,
            String::from_utf8_lossy(&d.library),
            String::from_utf8_lossy(&d.library_version),
        )
    }
}

/// A mark of a connection that changes users.
pub struct ChangingUsers<'a>(&'a ClientEntry);

impl Drop for ChangingUsers<'_> {
    fn drop(&mut self) {
        self.0.changes_users.store(false, Ordering::SeqCst);
    }
}

/// All open connections, by id.
pub struct Clients {
    pub pubsub: Arc<PubSub>,
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<ClientEntry>>>,
    late: AtomicU64,
    /// Clients that must log in and have not.
    pub strangers: Arc<Strangers>,
}

impl Clients {
    pub fn new(pubsub: Arc<PubSub>) -> Clients {
        Clients {
            pubsub,
            next: AtomicU64::new(0),
            open: Mutex::default(),
            late: AtomicU64::new(0),
            strangers: Arc::default(),
        }
    }

    /// Registers a connection. Returns `None` if `max` connections are open already.
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
            closed: AtomicBool::new(false),
            account: Mutex::default(),
            users_seen: AtomicU64::new(0),
            changes_users: AtomicBool::new(false),
            written: Mutex::default(),
            kill: Mutex::new(None),
            subscriber: Subscriber::new(id),
            description: Mutex::new(Description { resp: 2, last_command: "NULL", ..Description::default() }),
        });
        open.insert(id, entry.clone());
        Some(entry)
    }

    pub fn close(&self, id: u64) {
        self.open.lock().remove(&id);
    }

    /// Returns the connections that continue. A killed one is left out, although it may take a
    /// moment to end.
    pub fn all(&self) -> Vec<Arc<ClientEntry>> {
        let open = self.open.lock();
        open.values().filter(|entry| !entry.killed.load(Ordering::Acquire)).cloned().collect()
    }

    /// Returns the number of connections that a planned stop still waits for.
    pub fn unclosed(&self) -> usize {
        let open = self.open.lock();
        open.values().filter(|entry| !entry.closed.load(Ordering::SeqCst)).count()
    }

    /// Counts input on a connection that was closed by a planned stop.
    pub fn note_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often input came on a connection that was closed by a planned stop.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    pub fn count(&self) -> usize {
        self.open.lock().len()
    }
}

/// A client's place among the `maxclients`. Dropping it releases the place.
pub struct ConnectionSlot {
    clients: Arc<Clients>,
    metrics: Arc<Metrics>,
    pub entry: Arc<ClientEntry>,
    /// Present until the client has logged in for the first time.
    pub stranger: Option<Stranger>,
}

impl ConnectionSlot {
    pub fn take(
        clients: &Arc<Clients>,
        metrics: &Arc<Metrics>,
        peer: SocketAddr,
        local: SocketAddr,
        max: usize,
    ) -> Option<ConnectionSlot> {
        let entry = clients.open(peer, local, max)?;
        metrics.connections_accepted.inc();
        metrics.connections.inc();
        Some(ConnectionSlot { clients: clients.clone(), metrics: metrics.clone(), entry, stranger: None })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.entry.subscriber.set_ended();
        self.clients.pubsub.leave(&self.entry.subscriber);
        self.clients.close(self.entry.id);
        self.metrics.connections.dec();
    }
}

/// A connection on its way from one loop to another. All of its requests are answered.
pub struct Moving {
    pub stream: ClientSocket,
    pub kind: ListenerKind,
    pub seat: ConnectionSlot,
    pub session: Session<Arc<RegionShared>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_given_back_however_its_connection_ends() {
        let (clients, metrics) = (Arc::new(Clients::new(PubSub::unlimited())), Arc::new(Metrics::new()));
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let seat = ConnectionSlot::take(&clients, &metrics, address, address, 1).expect("one place is free");
        assert!(
            ConnectionSlot::take(&clients, &metrics, address, address, 1).is_none(),
            "the place is taken"
        );
        assert_eq!((clients.count(), metrics.connections.get()), (1, 1));
        let ended = std::thread::spawn(move || {
            let _seat = seat;
            panic!("a panic, as by a defect of a command");
        });
        assert!(ended.join().is_err());
        assert_eq!((clients.count(), metrics.connections.get()), (0, 0));
        assert!(ConnectionSlot::take(&clients, &metrics, address, address, 1).is_some());
    }
}
