//! Stores that join over TLS, with the password and with tokens.

use std::path::Path;

use ::steelyard::authority::Owner;
use resp::Reply;

use crate::stores::wire::Wire;
use crate::stores::{alone, eventually, terms, Plan, Stores};

const PASSWORD: &str = "open sesame";

fn plan(stores: u16) -> Plan<'static> {
    Plan { stores, joining: true, in_ram: true, flags: &[("--requirepass", PASSWORD)], ..Plan::default() }
}

/// Runs `ctl join-token`. Returns the token.
fn token(dir: &Path, password: &str, minutes: &str) -> String {
    let config = dir.join("store.toml");
    std::fs::write(&config, format!("requirepass = \"{password}\"\n")).unwrap();
    let mut command = crate::stores::steelyard();
    command.args(["ctl", "join-token", "--minutes", minutes, "--config"]).arg(&config);
    let output = client::process::output(&mut command).expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the same token with an earlier time of expiry.
fn expired(token: &str) -> String {
    let (prefix, digits) = token.split_once('.').unwrap();
    format!("{prefix}.{}{}", "01".repeat(4) + "00000000", &digits[16..])
}

#[test]
fn a_store_joins_over_tls_with_the_password_or_a_token_and_not_otherwise() {
    let _alone = alone();
    let mut stores = Stores::prepare(&plan(4));
    let authority = stores.secure();
    stores.all[0].spawn();
    stores.all[0].await_ready();
    stores.all[1].spawn();
    stores.all[1].await_ready();
    let dir = tempfile::tempdir().unwrap();
    let good = token(dir.path(), PASSWORD, "10");
    // The number of the next store is 2, and it has nothing but a token.
    let data = stores.all[2].dir.clone();
    for (what, bad) in [
        ("a token of another password", token(dir.path(), "another", "10")),
        ("a token whose expiry was changed", expired(&good)),
    ] {
        stores.all[2].change(&[("--requirepass", ""), ("--join-token", &bad)]);
        stores.all[2].spawn();
        let refused = "does not know this cluster's password";
        let too_late = "has expired";
        eventually(what, || {
            let log = stores.all[2].log_text();
            (log.contains(refused) || log.contains(too_late)).then_some(())
        });
        stores.all[2].kill();
        assert!(!data.join("MEMBERS").exists(), "{what} gives away no list of stores");
    }
    stores.all[2].change(&[("--join-token", &good)]);
    stores.all[2].spawn();
    stores.all[2].await_ready();
    // It restarts with the token in its settings, after that expired or not. It does not know the
    // password, so it admits no clients, and no store that asks it alone.
    stores.all[2].change(&[("--join-token", &expired(&good))]);
    stores.all[2].kill();
    stores.all[2].restart();
    let mut stranger = Wire::open(stores.all[2].client);
    assert!(matches!(stranger.call(&["GET", "k"]), Reply::Error(text) if text.starts_with("NOAUTH")));
    let asked = stores.all[2].peer().to_string();
    stores.all[3].change(&[("--requirepass", ""), ("--join", &asked)]);
    stores.all[3].spawn();
    eventually("a store without the password is refused by one that does not know it", || {
        stores.all[3].log_text().contains("does not know this cluster's password").then_some(())
    });
    stores.all[3].kill();
    let member = stores.all[0].peer().to_string();
    stores.all[3].change(&[("--requirepass", PASSWORD), ("--join", &member)]);
    // A certificate without a number is good for the store that comes next.
    let any = authority.sign(Owner::AnyStore, &terms()).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    stores.all[3]
        .change(&[("--tls-cert-file", &text(&any.certificate)), ("--tls-key-file", &text(&any.key))]);
    stores.all[3].spawn();
    stores.all[3].await_ready();
    let mut client = Wire::open(stores.all[3].client);
    client.ok(&["AUTH", PASSWORD]);
    client.ok(&["SET", "k", "v"]);
    for store in &stores.all[..2] {
        let log = store.log_text();
        assert!(!log.contains(&good[30..]) && !log.contains(PASSWORD), "secrets are in no log");
    }
}

#[test]
fn a_store_that_joins_with_the_certificate_of_another_number_says_so() {
    let _alone = alone();
    let mut stores = Stores::prepare(&plan(3));
    stores.secure();
    stores.all[0].spawn();
    stores.all[0].await_ready();
    // Store 2 of the plan comes second, so that the cluster gives it the number 1.
    stores.all[2].spawn();
    let status = stores.all[2].await_end();
    let log = stores.all[2].log_text();
    assert!(!status.success() && log.contains("this is store 1, and its certificate"), "{log}");
    // With the right certificate it goes on under its number.
    let dir = stores.tls_dir();
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    stores.all[2]
        .change(&[("--tls-cert-file", &file("store-1.crt")), ("--tls-key-file", &file("store-1.key"))]);
    stores.all[2].restart();
}

#[test]
fn a_store_without_a_certificate_cannot_even_ask_to_join() {
    let _alone = alone();
    let mut stores = Stores::prepare(&plan(2));
    stores.secure();
    stores.all[0].spawn();
    stores.all[0].await_ready();
    // It knows the password, and has no TLS.
    stores.all[1].change(&[("--tls-cluster", "no")]);
    stores.all[1].spawn();
    eventually("it is not answered", || {
        stores.all[1].log_text().contains("cannot ask to join").then_some(())
    });
    stores.all[1].kill();
    // With a certificate of another authority it is not answered either.
    let other = crate::certificates::Authority::new(&stores.tls_dir(), "other");
    let (certificate, key) = other.sign_store("stranger", 1, crate::stores::CLUSTER);
    stores.all[1].change(&[
        ("--tls-cluster", "yes"),
        ("--tls-cert-file", &certificate),
        ("--tls-key-file", &key),
        ("--tls-ca-cert-file", &other.file()),
    ]);
    stores.all[1].spawn();
    eventually("it is not answered", || stores.all[1].log_text().contains("TLS").then_some(()));
    stores.all[1].kill();
    let rows = stores.all[0].admin().ask(&client::admin::StoresQuery {}).unwrap();
    assert_eq!(rows.len(), 1, "nobody has joined");
}
