//! Certificates of clients that name their users (`tls-auth-clients-user`).

use std::time::Duration;

use resp::Reply;
use rustls::version::{TLS12, TLS13};
use rustls::HandshakeKind;
use time::OffsetDateTime;

use crate::client_with_tls::{config, config_of, TlsClient};
use crate::connection::Connection;
use crate::sessions::Secured;
use crate::stores::{alone, eventually, say};

fn client(store: &Secured, own: Option<&(String, String)>) -> TlsClient {
    TlsClient::open(store.tls, config(&store.authority.file(), own)).expect("the store accepts the client")
}

fn text(reply: &Reply) -> String {
    format!("{reply:?}")
}

#[test]
fn the_name_in_a_certificate_is_the_clients_user_and_nothing_more() {
    let _alone = alone();
    let flags = [("--tls-auth-clients", "optional"), ("--tls-auth-clients-user", "CN")];
    let store = Secured::start(&flags);
    let mut admin = Connection::open(store.stores.all[0].client).unwrap();
    // The cluster has users as soon as it has its program's version.
    for user in ["ann on resetpass ~ann:* +@all", "off off resetpass ~* +@all"] {
        eventually("the user is set", || {
            let words: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(user.split(' ')).collect();
            (admin.call(&words).unwrap() == Reply::OK).then_some(())
        });
    }
    let sign = |name: &str| store.authority.sign(name);
    let (ann, off, nobody) = (sign("ann"), sign("off"), sign("nobody"));
    let whoami =
        |own: Option<&(String, String)>| text(&client(&store, own).call(&["ACL", "WHOAMI"]).unwrap());

    // A user without a password is reached by the certificate only, with its permissions.
    assert!(whoami(Some(&ann)).contains("ann"));
    let mut of_ann = client(&store, Some(&ann));
    assert_eq!(of_ann.call(&["SET", "ann:1", "x"]).unwrap(), Reply::OK);
    let denied = text(&of_ann.call(&["SET", "bob:1", "x"]).unwrap());
    assert!(denied.contains("NOPERM"), "{denied}");
    let refused = text(&client(&store, None).call(&["AUTH", "ann", ""]).unwrap());
    assert!(refused.contains("WRONGPASS"), "{refused}");
    // A pipeline that arrives with the end of the handshake already has the user.
    for _ in 0..20 {
        let mut early = client(&store, Some(&ann));
        early.send(&["SET", "bob:2", "x"]).unwrap();
        early.send(&["ACL", "WHOAMI"]).unwrap();
        assert!(text(&early.reply().unwrap()).contains("NOPERM"));
        assert!(text(&early.reply().unwrap()).contains("ann"));
    }
    // As in Redis, a reset returns to the default user.
    of_ann.call(&["RESET"]).unwrap();
    assert!(text(&of_ann.call(&["ACL", "WHOAMI"]).unwrap()).contains("default"));

    // A name without a user, or with one that is off, leaves the default user, and is recorded.
    for own in [Some(&nobody), Some(&off), None] {
        assert!(whoami(own).contains("default"), "{own:?}");
    }
    let log = text(&admin.call(&["ACL", "LOG"]).unwrap());
    assert!(log.contains("tls-cert") && log.contains("nobody") && log.contains("off"), "{log}");
    let stats = text(&admin.call(&["INFO", "stats"]).unwrap());
    assert!(stats.contains("acl_access_denied_tls_cert:2"), "{stats}");
    say("a certificate gives its user, and an unknown name gives none");

    // Once the default user has a password, a client whose certificate names no user may do
    // nothing.
    assert_eq!(admin.call(&["CONFIG", "SET", "requirepass", "secret"]).unwrap(), Reply::OK);
    let noauth = text(&client(&store, Some(&nobody)).call(&["GET", "k"]).unwrap());
    assert!(noauth.contains("NOAUTH"), "{noauth}");
    assert!(whoami(Some(&ann)).contains("ann"));
    // A client with a certificate has logged in, whether it sends something or not.
    let mut silent = client(&store, Some(&ann));
    let mut stranger = client(&store, Some(&nobody));
    assert_eq!(admin.call(&["CONFIG", "SET", "auth-timeout", "1"]).unwrap(), Reply::OK);
    assert!(stranger.reply().is_err(), "a stranger's connection ends");
    assert!(text(&silent.call(&["ACL", "WHOAMI"]).unwrap()).contains("ann"));
    // The connections of a deleted user end, and its certificate no longer logs in.
    let mut of_ann = client(&store, Some(&ann));
    assert_eq!(of_ann.call(&["GET", "ann:1"]).unwrap(), Reply::bulk("x"));
    assert_eq!(admin.call(&["ACL", "DELUSER", "ann"]).unwrap(), Reply::Int(1));
    assert!(of_ann.call(&["GET", "ann:1"]).is_err());
    let noauth = text(&client(&store, Some(&ann)).call(&["GET", "ann:1"]).unwrap());
    assert!(noauth.contains("NOAUTH"), "{noauth}");
    // With the setting off, a certificate names no user.
    assert_eq!(admin.call(&["CONFIG", "SET", "tls-auth-clients-user", "off"]).unwrap(), Reply::OK);
    assert!(text(&client(&store, Some(&off)).call(&["ACL", "WHOAMI"]).unwrap()).contains("NOAUTH"));
    let wrong = text(&admin.call(&["CONFIG", "SET", "tls-auth-clients-user", "URI"]).unwrap());
    assert!(wrong.contains("must be one of the following: off, CN"), "{wrong}");
}

#[test]
fn a_session_that_is_resumed_ends_with_its_certificate() {
    let _alone = alone();
    for version in [&TLS12, &TLS13] {
        let store = Secured::start(&[("--tls-auth-clients", "yes")]);
        let until = OffsetDateTime::now_utc() + Duration::from_secs(4);
        let (chain, key) = store.authority.sign_until_time("soon", &[], until);
        let config = config_of(&store.authority.file(), Some(&(chain, key)), &[version]);
        let kind = || {
            let mut client = TlsClient::open(store.tls, config.clone()).ok()?;
            client.call(&["PING"]).ok()?;
            client.stream.conn.handshake_kind()
        };
        assert_eq!(kind(), Some(HandshakeKind::Full));
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        eventually("the certificate expires", || kind().is_none().then_some(()));
    }
}
