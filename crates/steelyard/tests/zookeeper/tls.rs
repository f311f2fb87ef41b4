//! Sessions over TLS with a real ZooKeeper that asks its clients for certificates.

use std::fs;
use std::path::Path;
use std::time::Duration;

use client::zookeeper::{Ensemble, ServerTls};

use crate::certificates::Authority;
use crate::stores::ledger::{Load, Shape};
use crate::stores::way::Way;
use crate::stores::{alone, eventually, steelyard, Store};
use crate::{directory, Cluster, FAILOVER_MAX, TICK};

const WRONG_AUTHORITY: &str = "no certificate in zookeeper-tls-ca-cert-file signs it";
const WRONG_PORT: &str = "is this its port with TLS";

fn has_session(store: &Store) -> bool {
    store.admin().gauge("zookeeper_session").ok() == Some(1)
}

fn await_log(store: &Store, text: &str) {
    eventually("the store logs why it has no session", || store.log_text().contains(text).then_some(()));
    assert!(!has_session(store), "{text}");
}

/// Starts three stores and an ensemble whose certificates one authority has signed. Each store has
/// the authority's certificate in a file of its own, `ca-N.crt`.
fn start(authority: &Authority, dir: tempfile::TempDir) -> Cluster {
    let path = |file: String| dir.path().join(file).display().to_string();
    let (certificate, key) = authority.sign("zookeeper");
    let identity = dir.path().join("identity.pem");
    fs::write(&identity, [certificate, key].map(|file| fs::read_to_string(file).unwrap()).concat()).unwrap();
    let tls = ServerTls { identity, authorities: authority.file().into() };
    let ensemble = Ensemble::start_with_tls(dir.path(), 1, TICK, &tls).unwrap();
    let files: Vec<[String; 3]> = (0..3)
        .map(|store| {
            let ca = path(format!("ca-{store}.crt"));
            fs::copy(authority.file(), &ca).unwrap();
            let (certificate, key) = authority.sign(&format!("store-{store}"));
            [ca, certificate, key]
        })
        .collect();
    let servers = ensemble.secure_addresses();
    Cluster::with(ensemble, &servers, dir, "never", |store| {
        let [ca, certificate, key] = files[store].clone();
        vec![
            ("--zookeeper-tls", "yes".to_owned()),
            ("--zookeeper-tls-ca-cert-file", ca),
            ("--zookeeper-tls-cert-file", certificate),
            ("--zookeeper-tls-key-file", key),
            ("--zookeeper-auth", "stores:secret".to_owned()),
        ]
    })
}

fn replace(dir: &Path, store: usize, authority: &Authority) {
    fs::copy(authority.file(), dir.join(format!("ca-{store}.crt"))).unwrap();
}

/// Without sessions the peers elect after the fallback, which shows that nothing else fails.
#[test]
fn zookeeper_elects_over_tls_and_a_wrong_authority_or_port_leaves_the_fallback() {
    let _alone = alone();
    let dir = directory();
    let files = dir.path().to_owned();
    let authority = Authority::new(dir.path(), "authority");
    let mut cluster = start(&authority, dir);
    let mut load = Load::start(&cluster.stores.clients(), "tls", Shape::MIXED);
    load.await_more(100);
    let passed = cluster.replace_leader(&mut load);
    assert!(passed < FAILOVER_MAX, "{passed:?}");
    assert!(cluster.stood() > 0, "no peer campaigned by ZooKeeper's choice");
    cluster.stores.await_ready();
    // Each store connects again, and reads a file that has changed.
    let other = Authority::new(&files, "other");
    cluster.set("election-fallback", "1s").unwrap();
    (0..3).for_each(|store| replace(&files, store, &other));
    cluster.ways.iter().for_each(Way::cut);
    cluster.ways.iter().for_each(Way::mend);
    cluster.stores.all.iter().for_each(|store| await_log(store, WRONG_AUTHORITY));
    let leader = cluster.leader();
    cluster.stores.all[leader].kill();
    let stood = cluster.stood();
    load.time_to_serve(Duration::from_secs(20));
    assert_eq!(cluster.stood(), stood, "a peer campaigned by ZooKeeper's choice");
    // The store that comes back has the right authority and the wrong port.
    (0..3).for_each(|store| replace(&files, store, &authority));
    let plain = cluster.ensemble.addresses()[0].to_string();
    cluster.stores.all[leader].change(&[("--zookeeper", &plain)]);
    cluster.stores.all[leader].restart();
    for store in cluster.others(leader) {
        let store = &cluster.stores.all[store];
        eventually("the store has a session without a restart", || has_session(store).then_some(()));
    }
    await_log(&cluster.stores.all[leader], WRONG_PORT);
    cluster.stores.await_ready();
    load.finish().check("tls");
}

#[test]
fn files_that_cannot_be_read_are_an_error_at_the_start() {
    let dir = directory();
    let missing = dir.path().join("missing.crt");
    let output = steelyard()
        .args(["serve", "--zookeeper", "127.0.0.1:1", "--zookeeper-tls", "--dir"])
        .arg(dir.path().join("data"))
        .arg("--zookeeper-tls-ca-cert-file")
        .arg(&missing)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("zookeeper-tls-ca-cert-file: {} cannot be read", missing.display());
    assert!(!output.status.success() && said.contains(&expected), "{said}");
}
