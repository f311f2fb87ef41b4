//! Clusters whose stores use TLS with each other.

use std::path::Path;

use ::steelyard::authority::Owner;
use rustls::pki_types::ServerName;

use crate::client_with_tls::{config, TlsClient};
use crate::stores::ledger::{Load, Shape};
use crate::stores::wire::Wire;
use crate::stores::{alone, eventually, terms, Plan, Stores, CLUSTER};

fn three() -> Plan<'static> {
    Plan { stores: 3, in_ram: true, ..Plan::default() }
}

#[test]
fn three_stores_with_tls_serve_survive_the_leaders_kill_and_say_that_they_use_it() {
    let _alone = alone();
    let mut stores = Stores::prepare(&three());
    stores.secure();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let load = Load::start(&stores.clients(), "with TLS", Shape::MIXED);
    load.await_more(300);
    let leader = stores.leader(1);
    stores.all[leader].kill();
    load.await_more(300);
    stores.all[leader].restart();
    load.await_more(300);
    load.finish().check("with TLS");
    // An entry that is larger than records, frames and what a loop reads in one round.
    let mut client = Wire::open(stores.all[stores.leader(1)].client);
    let value = "x".repeat(12 << 20);
    client.ok(&["SET", "large", &value]);
    let other = (stores.leader(1) + 1) % 3;
    assert_eq!(Wire::open(stores.all[other].client).text(&["GET", "large"]).as_deref(), Some(&*value));
    let shown = crate::stores::ctl(&stores, 0, &["stores"]).unwrap();
    assert!(shown.contains("peers") && shown.contains("tls"), "{shown}");
    let gauge = |name| stores.all[0].admin().gauge(name).unwrap();
    assert_eq!((gauge("peers_encrypted"), gauge("insecure_peers")), (1, 0));
}

#[test]
fn a_store_that_was_away_gets_a_snapshot_over_tls() {
    let _alone = alone();
    let flags = [("--raft-log-size", "4mb")];
    let mut stores = Stores::prepare(&Plan { flags: &flags, ..three() });
    stores.secure();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let leader = stores.leader(1);
    let away = (leader + 1) % 3;
    stores.all[away].kill();
    let mut client = Wire::open(stores.all[leader].client);
    let value = "v".repeat(100_000);
    for number in 0..300 {
        client.ok(&["SET", &format!("k{number}"), &value]);
    }
    stores.all[away].restart();
    eventually("the store gets a snapshot", || {
        stores.all[away].log_text().contains("received a snapshot").then_some(())
    });
    // It has everything: it leads, and answers from its own rows.
    eventually("the store leads", || {
        let now = stores.leader(1);
        (now == away || {
            let _ = crate::stores::ctl(&stores, now, &["move-leader", "1", &away.to_string()]);
            false
        })
        .then_some(())
    });
    let mut client = Wire::open(stores.all[away].client);
    for number in (0..300).step_by(29) {
        assert_eq!(client.text(&["GET", &format!("k{number}")]).as_deref(), Some(&*value));
    }
}

/// Returns the content of a certificate's file.
fn der(pem: &[u8]) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_slice(pem).expect("a certificate").to_vec()
}

/// Returns the certificate that a store shows to other stores.
fn shown(stores: &Stores, of: usize, as_store: u64) -> Option<Vec<u8>> {
    let dir = stores.tls_dir();
    let file = |name: String| dir.join(name).to_str().expect("a plain path").to_owned();
    let own = (file(format!("store-{as_store}.crt")), file(format!("store-{as_store}.key")));
    let name = ServerName::try_from(format!("store-{of}.{CLUSTER}.steelyard")).expect("a name");
    let config = config(&file("ca.crt".into()), Some(&own));
    let client = TlsClient::open_to(stores.all[of].peer(), config, name).ok()?;
    Some(client.stream.conn.peer_certificates()?[0].to_vec())
}

#[test]
fn certificates_of_stores_are_renewed_under_load_without_an_error() {
    let _alone = alone();
    let mut stores = Stores::prepare(&three());
    let authority = stores.secure();
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    let load = Load::start(&stores.clients(), "renewal", Shape::MIXED);
    load.await_more(200);
    let before: Vec<_> = (0..3).map(|of| shown(&stores, of, (of as u64 + 1) % 3).expect("shown")).collect();
    for _ in 0..3 {
        for id in 0..3 {
            authority.sign(Owner::Store(id), &terms()).expect("a certificate");
        }
        load.await_more(100);
    }
    for (of, before) in before.iter().enumerate() {
        eventually("a store shows its renewed certificate", || {
            (shown(&stores, of, (of as u64 + 1) % 3)? != *before).then_some(())
        });
    }
    // A damaged certificate changes nothing.
    let damaged = stores.tls_dir().join("store-0.crt");
    let now = shown(&stores, 0, 1).expect("shown");
    std::fs::write(&damaged, "no certificate").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(shown(&stores, 0, 1).expect("shown"), now);
    authority.sign(Owner::Store(0), &terms()).expect("a certificate");
    load.await_more(200);
    // By CONFIG SET. A certificate that other stores would refuse changes nothing.
    let dir = stores.tls_dir();
    let file = |name: &str| dir.join(name).to_str().expect("a plain path").to_owned();
    let mut client = Wire::open(stores.all[0].client);
    let refused = client.error(&[
        "CONFIG",
        "SET",
        "tls-cert-file",
        &file("store-1.crt"),
        "tls-key-file",
        &file("store-1.key"),
    ]);
    assert!(refused.contains("Unable to update TLS configuration"), "{refused}");
    authority.sign(Owner::Store(0), &terms()).expect("a certificate");
    std::fs::copy(file("store-0.crt"), file("other.crt")).unwrap();
    authority.sign(Owner::Store(0), &terms()).expect("a certificate");
    client.ok(&["CONFIG", "SET", "tls-cert-file", &file("other.crt")]);
    let other = der(&std::fs::read(file("other.crt")).unwrap());
    assert_eq!(shown(&stores, 0, 1).expect("shown"), other);
    // No load on three running stores is refused anything or loses a connection.
    let ledger = load.finish();
    assert_eq!(ledger.failures(), (0, 0), "commands that were not done, and unknown ones");
    ledger.check("renewal");
    // New connections work with the renewed certificates on both sides.
    let leader = stores.leader(1);
    let follower = (leader + 1) % 3;
    stores.all[follower].kill();
    stores.all[follower].restart();
    let third = 3 - leader - follower;
    stores.all[third].kill();
    let mut client = Wire::open(stores.all[leader].client);
    client.ok(&["SET", "after", "renewal"]);
}

#[test]
fn a_store_without_tls_refuses_to_listen_to_others_on_a_network() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    // The addresses are reserved for documentation, so that no store can listen there.
    let list = "0=192.0.2.1:7000,1=192.0.2.2:7000";
    let run = |name: &str, flags: &[&str]| {
        let mut command = crate::stores::steelyard();
        command.args(["serve", "--dir", &data(name)]).args(flags);
        let output = client::process::output(&mut command).expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (name, flags) in [
        ("listed", &["--stores", list][..]),
        ("first", &["--bind", "192.0.2.1", "--bootstrap"]),
        ("joins", &["--bind", "192.0.2.1", "--join", "127.0.0.1:1"]),
    ] {
        let said = run(name, flags);
        for part in ["without encryption", "tls-cluster yes", "ctl tls init", "insecure-peers yes"] {
            assert!(said.contains(part), "{name}: {said}");
        }
        // With the operator's word it goes on, and cannot have the address.
        let said = run(name, &[flags, &["--insecure-peers", "yes"]].concat());
        assert!(said.contains("cannot listen on 192.0.2.1"), "{name}: {said}");
    }
    // A store alone listens to no other one.
    let said = run("alone", &["--bind", "192.0.2.1"]);
    assert!(said.contains("cannot listen on 192.0.2.1"), "{said}");
}

#[test]
fn a_store_does_not_start_with_a_certificate_that_others_would_refuse() {
    let _alone = alone();
    let stores = Stores::prepare(&three());
    let dir = stores.tls_dir();
    std::fs::create_dir_all(&dir).unwrap();
    let authority = crate::certificates::Authority::new(&dir, "authority");
    let other = crate::certificates::Authority::new(&dir, "other");
    let names = |store: u64, cluster: &str| {
        vec![format!("store-{store}.{cluster}.steelyard"), format!("store.{cluster}.steelyard")]
    };
    for (pair, ca, why) in [
        (authority.sign_for("late", &names(0, CLUSTER), 2020), authority.file(), "certificate expired"),
        (
            authority.sign_for("of-b", &names(0, "other"), 4000),
            authority.file(),
            "not valid for name \"store.tests",
        ),
        (authority.sign("client"), authority.file(), "not valid for name \"store.tests"),
        (authority.sign_for("of-1", &names(1, CLUSTER), 4000), authority.file(), "this is store 0"),
        (other.sign_for("stranger", &names(0, CLUSTER), 4000), authority.file(), "UnknownIssuer"),
    ] {
        let mut command = crate::stores::steelyard();
        let arguments = stores.all[0].arguments_with(&[
            ("--tls-cluster", "yes"),
            ("--tls-cluster-name", CLUSTER),
            ("--tls-cert-file", &pair.0),
            ("--tls-key-file", &pair.1),
            ("--tls-ca-cert-file", &ca),
        ]);
        let output = client::process::output(command.args(arguments)).expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{}: {said}", pair.0);
        // The key itself is in no message.
        let key = std::fs::read_to_string(Path::new(&pair.1)).unwrap();
        assert!(!said.contains(key.lines().nth(1).unwrap()));
    }
}
