//! The users of clients, as this store knows them, and their denials.
//!
//! The meta region's state holds the users. They come with the list of stores and are stored with
//! it (`DIR/MEMBERS`), so a store that is cut off from the meta region continues with the users
//! that it last knew. The default user, until the cluster has agreed on one, follows this store's
//! `requirepass`.
//!
//! The users are a snapshot that is replaced as a whole. Its generation tells a connection, once
//! per batch of commands, that its permissions must be looked up again. A connection whose user may
//! do everything pays for one comparison per batch and one flag per command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use acl::{Denial, Event, Log, User, DEFAULT_USER};
use arc_swap::ArcSwap;
use bytes::Bytes;
use command::CommandSpec;
use node::session;
use parking_lot::{Mutex, RwLock};

use crate::accounts::{Account, Accounts, AgreedUsers};
use crate::clock;
use crate::connections::{ClientEntry, Clients};
use crate::settings::Settings;

/// Counters of denials by their reason.
#[derive(Default)]
pub struct Denials {
    pub auth: AtomicU64,
    pub command: AtomicU64,
    pub key: AtomicU64,
    pub channel: AtomicU64,
    /// Certificates that named no user.
    pub certificate: AtomicU64,
}

pub struct Access {
    accounts: ArcSwap<Accounts>,
    /// Increases with every change of `accounts`.
    generation: AtomicU64,
    /// The agreed users and their version; locked while a thread creates the next accounts.
    agreed: Mutex<(u64, AgreedUsers)>,
    settings: Arc<RwLock<Settings>>,
    clients: Arc<Clients>,
    log: Mutex<Log>,
    pub denials: Denials,
}

impl Access {
    pub fn new(
        settings: Arc<RwLock<Settings>>,
        clients: Arc<Clients>,
        version: u64,
        users: AgreedUsers,
    ) -> Access {
        let accounts = Accounts::new(version, &users, &settings.read());
        Access {
            accounts: ArcSwap::from_pointee(accounts),
            // Connections begin with generation 0.
            generation: AtomicU64::new(1),
            agreed: Mutex::new((version, users)),
            settings,
            clients,
            log: Mutex::default(),
            denials: Denials::default(),
        }
    }

    pub fn accounts(&self) -> Arc<Accounts> {
        self.accounts.load_full()
    }

    /// Replaces the agreed users by those of a newer list. Connections of deleted users end.
    pub fn take(&self, version: u64, users: &AgreedUsers) {
        let mut agreed = self.agreed.lock();
        if version <= agreed.0 {
            return;
        }
        let are_new = agreed.1 != *users;
        *agreed = (version, users.clone());
        self.publish(&agreed, are_new);
    }

    /// Applies a change of the store's own settings.
    pub fn settings_changed(&self) {
        self.publish(&self.agreed.lock(), true);
    }

    fn publish(&self, (version, users): &(u64, AgreedUsers), are_new: bool) {
        let accounts = Arc::new(Accounts::new(*version, users, &self.settings.read()));
        let before = self.accounts.swap(accounts.clone());
        if !are_new {
            return;
        }
        self.generation.fetch_add(1, Ordering::Release);
        let is_gone = |entry: &Arc<ClientEntry>| {
            let account = entry.account();
            account.is_some_and(|account| accounts.current(&account).is_none())
        };
        let has_lost_channels = |entry: &Arc<ClientEntry>| {
            let old = entry.account().unwrap_or_else(|| before.default.clone());
            let new =
                if entry.account().is_some() { accounts.current(&old) } else { Some(&accounts.default) };
            new.is_some_and(|new| new.user != old.user && !self.may_keep_channels(entry, new))
        };
        // A connection that deletes its own user ends by itself after its reply.
        self.clients
            .all()
            .iter()
            .filter(|entry| (is_gone(entry) || has_lost_channels(entry)) && !entry.is_changing_users())
            .for_each(|entry| entry.end());
    }

    /// Returns true if a connection with this user may keep its subscriptions.
    fn may_keep_channels(&self, entry: &ClientEntry, account: &Account) -> bool {
        let permits = |name: &[u8], is_pattern| account.user.permits_channel(name, is_pattern);
        !entry.subscriber.is_subscribed() || self.clients.pubsub.may_keep(&entry.subscriber, permits)
    }

    /// Returns the permissions of a connection, if users have changed since it last asked.
    pub fn review(&self, entry: &ClientEntry, context: &session::Context) -> Option<session::Access> {
        let generation = self.generation.load(Ordering::Acquire);
        if entry.users_seen.load(Ordering::Relaxed) == generation {
            return None;
        }
        entry.users_seen.store(generation, Ordering::Relaxed);
        let accounts = self.accounts.load();
        Some(match entry.account() {
            None => session::Access::Granted {
                authenticated: context.authenticated || accounts.default.user.is_open(),
                is_restricted: accounts.default.is_restricted,
            },
            Some(account) => match accounts.current(&account) {
                Some(new) if new.user != account.user && !self.may_keep_channels(entry, new) => {
                    session::Access::Ended
                }
                Some(account) => {
                    let is_restricted = account.is_restricted;
                    entry.set_account(Some(account.clone()));
                    session::Access::Granted { authenticated: context.authenticated, is_restricted }
                }
                None => session::Access::Ended,
            },
        })
    }

    /// Returns the user of a connection.
    pub fn account_of(&self, entry: &ClientEntry) -> Arc<Account> {
        entry.account().unwrap_or_else(|| self.accounts.load().default.clone())
    }

    /// Makes a user the one of a connection, if the password is right.
    pub fn log_in(
        &self,
        entry: &ClientEntry,
        context: &mut session::Context,
        name: &[u8],
        password: &[u8],
    ) -> Result<(), ()> {
        let generation = self.generation.load(Ordering::Acquire);
        let accounts = self.accounts.load();
        let account = accounts.get(name);
        // The time does not tell whether the user exists.
        let is_right = match account {
            Some(account) => account.user.admits(password),
            None => User::default_user(Some("")).admits(password) & false,
        };
        let Some(account) = account.filter(|_| is_right) else { return Err(()) };
        self.take_account(entry, account, generation);
        context.authenticated = true;
        context.is_restricted = account.is_restricted;
        Ok(())
    }

    /// Makes the user whom a client's certificate names the one of a new connection, if it is on.
    /// Otherwise the connection keeps the default user, and the failure is recorded.
    pub fn log_in_named(&self, entry: &ClientEntry, name: &Bytes) -> Option<session::Access> {
        let generation = self.generation.load(Ordering::Acquire);
        let accounts = self.accounts.load();
        let Some(account) = accounts.get(name).filter(|account| account.user.is_enabled()) else {
            self.denials.certificate.fetch_add(1, Ordering::Relaxed);
            self.note(entry, "tls-cert", Bytes::new(), name.clone());
            return None;
        };
        self.take_account(entry, account, generation);
        Some(session::Access::Granted { authenticated: true, is_restricted: account.is_restricted })
    }

    /// Gives a connection a user that was looked up after `generation` was read.
    fn take_account(&self, entry: &ClientEntry, account: &Arc<Account>, generation: u64) {
        let is_default = account.name == DEFAULT_USER;
        entry.set_account((!is_default).then(|| account.clone()));
        // A change since then is looked up with the next batch.
        entry.users_seen.store(generation, Ordering::Relaxed);
    }

    /// Returns a user, if the password is right. A failure is counted.
    pub fn admit(&self, name: &[u8], password: &[u8]) -> Option<Arc<Account>> {
        let accounts = self.accounts.load();
        let account = accounts.get(name).filter(|account| account.user.admits(password));
        if account.is_none() {
            self.denials.auth.fetch_add(1, Ordering::Relaxed);
        }
        account.cloned()
    }

    /// Counts a failed login without a name.
    pub fn denied_login(&self) {
        self.denials.auth.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a connection the user that new ones have.
    pub fn log_out(&self, entry: &ClientEntry, context: &mut session::Context) {
        let accounts = self.accounts.load();
        entry.set_account(None);
        context.authenticated = accounts.default.user.is_open();
        context.is_restricted = accounts.default.is_restricted;
    }

    /// Decides whether a connection may execute a command, and records a denial.
    pub fn check(
        &self,
        entry: &ClientEntry,
        spec: &'static CommandSpec,
        args: &[Bytes],
    ) -> Result<(), Denial> {
        let account = self.account_of(entry);
        let denial = match account.user.check(spec, args) {
            Ok(()) => return Ok(()),
            Err(denial) => denial,
        };
        let (counter, reason, object) = match denial {
            Denial::Command => (&self.denials.command, "command", Bytes::from_static(spec.name.as_bytes())),
            // As in Redis, it is not in the log.
            Denial::Pattern(_) => return Err(denial),
            Denial::Key(at) => (&self.denials.key, "key", args[at].clone()),
            Denial::Channel(at) => (&self.denials.channel, "channel", args[at].clone()),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.note(entry, reason, object, account.name.clone());
        Err(denial)
    }

    /// Records a failed log-in.
    pub fn note_failure(&self, entry: &ClientEntry, command: &Bytes, name: &Bytes) {
        self.denials.auth.fetch_add(1, Ordering::Relaxed);
        self.note(entry, "auth", command.clone(), name.clone());
    }

    fn note(&self, entry: &ClientEntry, reason: &'static str, object: Bytes, username: Bytes) {
        // The entry must not keep the whole request in memory.
        let copied = |text: Bytes| Bytes::copy_from_slice(&text);
        let (object, username) = (copied(object), copied(username));
        let event = Event { reason, context: "toplevel", object, username };
        let max = self.settings.read().acllog_max_len;
        self.log.lock().note(event, entry.line(), clock::boot_nanos() / 1_000_000, max);
    }

    /// Returns the newest entries of the log, with their ages in milliseconds.
    pub fn recent_denials(&self, count: usize) -> Vec<(acl::Entry, u64)> {
        let now = clock::boot_nanos() / 1_000_000;
        self.log.lock().recent(count).map(|entry| (entry.clone(), now.saturating_sub(entry.at_ms))).collect()
    }

    pub fn forget_denials(&self) {
        self.log.lock().clear();
    }
}

#[cfg(test)]
mod tests;
