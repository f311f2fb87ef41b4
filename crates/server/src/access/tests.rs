use std::net::SocketAddr;

use cluster::UserRecord;
use resp::Protocol;

use super::*;
use crate::config::Config;
use crate::pubsub::PubSub;

fn context() -> session::Context {
    session::Context {
        protocol: Protocol::Resp2,
        db: 0,
        authenticated: false,
        is_restricted: false,
        read_only: false,
        max_lag: None,
        is_subscriber: false,
        caching: session::Caching::Off,
        replies: session::Replies::On,
        is_monitor: false,
        closing: false,
    }
}

fn users(rules: &[(&str, &str, u64)]) -> AgreedUsers {
    rules
        .iter()
        .map(|(name, rules, since)| {
            ((*name).to_owned(), UserRecord { rules: (*rules).to_owned(), since: *since })
        })
        .collect()
}

struct Here {
    access: Access,
    clients: Arc<Clients>,
    settings: Arc<RwLock<Settings>>,
}

impl Here {
    fn new(version: u64, users: AgreedUsers) -> Here {
        let settings = Settings::from_config(&Config::single("nowhere".into(), 7000));
        let (settings, clients) =
            (Arc::new(RwLock::new(settings)), Arc::new(Clients::new(PubSub::unlimited())));
        let access = Access::new(settings.clone(), clients.clone(), version, users);
        Here { access, clients, settings }
    }

    fn connect(&self) -> Arc<ClientEntry> {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        self.clients.open(address, address, 10).unwrap()
    }
}

const ALICE: &str =
    "on #30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4 ~a* resetchannels -@all +get";

#[test]
fn a_user_logs_in_is_checked_and_ends_with_its_account() {
    let here = Here::new(1, users(&[("alice", ALICE, 1)]));
    let (entry, mut context) = (here.connect(), context());
    assert!(here.access.log_in(&entry, &mut context, b"alice", b"wrong").is_err());
    assert!(here.access.log_in(&entry, &mut context, b"nobody", b"").is_err());
    assert!(!context.authenticated);
    assert!(here.access.log_in(&entry, &mut context, b"alice", b"pw").is_ok());
    assert!(context.authenticated && context.is_restricted);
    let check = |line: &str| {
        let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        here.access.check(&entry, command::resolve(&args).unwrap(), &args)
    };
    assert_eq!(
        (check("get a"), check("set a b"), check("get b")),
        (Ok(()), Err(Denial::Command), Err(Denial::Key(1)))
    );
    assert_eq!(here.access.review(&entry, &context), None);

    // Another user changes: the connection continues.
    here.access.take(2, &users(&[("alice", "on ~* &* +@all", 1), ("bob", "on", 2)]));
    let granted = session::Access::Granted { authenticated: true, is_restricted: false };
    assert_eq!(here.access.review(&entry, &context), Some(granted));
    // An older list changes nothing, and a newer one with the same users costs no review.
    here.access.take(1, &users(&[]));
    assert_eq!(here.access.review(&entry, &context), None);
    assert!(!entry.killed.load(Ordering::SeqCst));

    // The user was deleted and created again between two reviews.
    here.access.take(5, &users(&[("alice", ALICE, 4)]));
    assert_eq!(here.access.review(&entry, &context), Some(session::Access::Ended));
    assert!(entry.killed.load(Ordering::SeqCst), "an idle connection ends at once");

    let denied: Vec<_> = here.access.recent_denials(10).iter().map(|(entry, _)| entry.event.reason).collect();
    assert_eq!(denied, ["key", "command"]);
}

#[test]
fn the_default_user_follows_requirepass_until_the_cluster_agrees_on_one() {
    let here = Here::new(0, AgreedUsers::new());
    let (entry, mut context) = (here.connect(), context());
    here.access.log_out(&entry, &mut context);
    assert!(context.authenticated && !context.is_restricted);
    here.settings.write().requirepass = Some("pw".into());
    here.access.settings_changed();
    assert!(!here.access.accounts().default_user().is_open());
    assert!(here.access.log_in(&entry, &mut context, b"default", b"pw").is_ok());
    here.access.take(3, &users(&[("default", "on nopass ~* &* +@all -flushall", 3)]));
    assert!(here.access.accounts().is_default_agreed);
    let granted = session::Access::Granted { authenticated: true, is_restricted: true };
    assert_eq!(here.access.review(&entry, &context), Some(granted));
    assert!(!entry.killed.load(Ordering::SeqCst), "connections of the default user never end");
    here.access.log_out(&entry, &mut context);
    assert!(context.authenticated && context.is_restricted);
}

#[test]
fn rules_that_cannot_be_read_permit_nothing() {
    let here = Here::new(1, users(&[("newer", "on nopass ~* +@all future-rule", 1), ("ż", "on", 1)]));
    let accounts = here.access.accounts();
    assert_eq!(accounts.all().count(), 2, "the default user, and the one that can do nothing");
    assert!(!accounts.get(b"newer").unwrap().user.admits(b""));
}

#[test]
fn a_connection_ends_when_its_user_loses_a_channel_that_it_has_subscribed_to() {
    const RULES: &str = "on nopass ~* resetchannels &news* &other +@all";
    let here = Here::new(1, users(&[("alice", RULES, 1)]));
    let entries = [here.connect(), here.connect()];
    for (entry, channel) in entries.iter().zip(["news1", "other"]) {
        assert!(here.access.log_in(entry, &mut context(), b"alice", b"").is_ok());
        here.clients.pubsub.subscribe(&entry.subscriber, command::ChannelKind::Channel, &channel.into());
    }
    let killed = || entries.each_ref().map(|entry| entry.killed.load(Ordering::SeqCst));
    here.access.take(2, &users(&[("alice", RULES, 1), ("bob", "on", 2)]));
    assert_eq!(killed(), [false, false]);
    here.access.take(3, &users(&[("alice", "on nopass ~* resetchannels &news* +get", 1)]));
    assert_eq!(killed(), [false, true]);
}
