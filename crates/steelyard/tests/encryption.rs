//! Encryption at rest: what the files of stores tell, and what a start refuses.

mod stores;

use std::path::{Path, PathBuf};

use stores::wire::Wire;
use stores::{alone, ctl, eventually, steelyard, Plan, Store, Stores};

const KEY: &[u8] = b"planted-key";
const VALUE: &[u8] = b"planted-value";
const PASSWORD: &str = "planted-password";

fn plan() -> Plan<'static> {
    Plan { stores: 2, joining: true, in_ram: true, ..Plan::default() }
}

/// Writes a master key of one repeated digit, and returns its path.
fn master_key(stores: &Stores, digit: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = stores.all[0].dir.with_file_name(format!("master-{digit}"));
    std::fs::write(&path, digit.repeat(64)).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changed");
    path.to_str().expect("a plain path").to_owned()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").filter_map(Result::ok) {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found
}

/// Returns the files of a directory that hold the text.
fn holders(dir: &Path, text: &[u8]) -> Vec<PathBuf> {
    let has = |path: &PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text))
    };
    files(dir).into_iter().filter(has).collect()
}

fn ask(store: &Store, words: &[&str]) -> Option<resp::Reply> {
    Some(Wire::ask(store.client, &[words])?.remove(0))
}

fn write(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let (key, value) =
            (format!("planted-key-{number:05}"), format!("planted-value-{number}-").repeat(30));
        let reply = ask(store, &["SET", &key, &value]).expect("an answer");
        assert!(matches!(&reply, resp::Reply::Simple(text) if text == "OK"), "{reply:?}");
    }
}

fn check(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let wanted = format!("planted-value-{number}-").repeat(30);
        eventually("the value is there", || {
            let reply = ask(store, &["GET", &format!("planted-key-{number:05}")])?;
            (client::connection::text(&reply)? == wanted.as_bytes()).then_some(())
        });
    }
}

/// Writes, kills, restarts, and has a second store join, which gets a snapshot. Returns the number
/// of files of each store that hold each planted text.
fn live(key: Option<&str>) -> (Stores, Vec<(&'static str, usize)>) {
    let mut stores = Stores::prepare(&plan());
    let key = key.map(|digit| master_key(&stores, digit));
    for store in &mut stores.all {
        store.change(&[("--maxmemory", "128mb"), ("--raft-log-size", "4mb")]);
        if let Some(key) = &key {
            store.change(&[("--encryption-key-file", key)]);
        }
    }
    let digest: String = {
        let first = &mut stores.all[0];
        first.spawn();
        first.await_ready();
        write(first, 0..400);
        // A new cluster permits users as soon as it has its programs' version.
        eventually("the user is made", || {
            let password = format!(">{PASSWORD}");
            let made = ask(first, &["ACL", "SETUSER", "planted", "on", &password, "+@all", "~*"])?;
            (made == resp::Reply::OK).then_some(())
        });
        first.kill();
        first.restart();
        check(first, 0..400);
        write(first, 300..500);
        let users = ask(first, &["ACL", "LIST"]).expect("users");
        let text = format!("{users:?}");
        let at = text.find('#').expect("a digest") + 1;
        text[at..at + 64].to_owned()
    };
    stores.all[1].spawn();
    stores.all[1].await_ready();
    eventually("the second store has peers", || {
        let regions = stores.all[1].regions()?;
        let has = |of: &client::admin::RegionRow| of.peers.iter().any(|peer| peer.store == 1);
        (regions.len() > 1 && regions.iter().all(has)).then_some(())
    });
    check(&stores.all[1], 0..500);
    // A planned stop writes rows from RAM to files. Each start renames RocksDB's log of events.
    for store in &mut stores.all {
        eventually("the store knows the users", || {
            format!("{:?}", ask(store, &["ACL", "LIST"])?).contains(&digest).then_some(())
        });
    }
    for store in &mut stores.all {
        assert!(store.terminate().success());
    }
    let mut found = Vec::new();
    for store in &stores.all {
        found.push(("key", holders(&store.dir, KEY).len()));
        found.push(("value", holders(&store.dir, VALUE).len()));
        found.push(("digest", holders(&store.dir, digest.as_bytes()).len()));
        found.push(("secret", holders(&store.dir, b"secret = ").len()));
        found.push(("layout", holders(&store.dir, b"cluster_id").len()));
    }
    (stores, found)
}

#[test]
fn the_files_of_an_encrypted_store_and_of_its_followers_tell_nothing() {
    let _alone = alone();
    let (_plain, found) = live(None);
    assert!(found.iter().all(|(_, files)| *files > 0), "the search can find all of it: {found:?}");
    let (mut stores, found) = live(Some("a"));
    assert!(found.iter().all(|(_, files)| *files == 0), "{found:?}");
    let keys = [0, 1].map(|i| std::fs::read(stores.all[i].dir.join("KEYS")).expect("keys"));
    assert_ne!(keys[0], keys[1], "each store has keys of its own");

    // The log is listed with the key, and not without it.
    let log = stores.all[0].dir.join("log");
    let key = master_key(&stores, "a");
    let dump = |more: &[&str]| {
        let output = steelyard().args(["log", "dump"]).arg(&log).args(more).output().expect("it runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let (listed, text) = dump(&["--encryption-key-file", &key]);
    assert!(listed && text.contains("region 1: entries"), "{text}");
    let (listed, text) = dump(&[]);
    assert!(!listed && text.contains("encryption-key-file"), "{text}");

    // What a start refuses. It says why, names the file, and changes nothing.
    let before: Vec<(PathBuf, Vec<u8>)> = files(&stores.all[0].dir)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(&path).expect("a file")))
        .collect();
    let refused = |stores: &mut Stores, part: &str| {
        stores.all[0].spawn();
        assert!(!stores.all[0].await_end().success());
        let text = stores.all[0].log_text();
        assert!(text.contains(part), "{part}: {text}");
        for (path, bytes) in &before {
            // The open failure of a swapped file is noticed after the lock.
            if !path.ends_with("KEYS") && !path.ends_with("IDENTITY") && !path.ends_with("MEMBERS") {
                assert!(std::fs::read(path).is_ok_and(|now| now == *bytes), "{}", path.display());
            }
        }
    };
    let other = master_key(&stores, "b");
    stores.all[0].change(&[("--encryption-key-file", &other)]);
    refused(&mut stores, "another master key");
    stores.all[0].change(&[("--encryption-key-file", "")]);
    refused(&mut stores, "set encryption-key-file or encryption-key-command");
    stores.all[0].change(&[("--encryption-key-file", &key)]);
    let path = |name: &str| stores.all[0].dir.join(name);
    let (keys, identity, members) = (path("KEYS"), path("IDENTITY"), path("MEMBERS"));
    let good = std::fs::read(&keys).expect("keys");
    let mut damaged = good.clone();
    *damaged.last_mut().expect("a byte") ^= 1;
    std::fs::write(&keys, &damaged).expect("written");
    refused(&mut stores, "it is damaged");
    std::fs::remove_file(&keys).expect("removed");
    refused(&mut stores, "KEYS is missing");
    std::fs::write(&keys, &good).expect("written");
    let kept = std::fs::read(&identity).expect("an identity");
    std::fs::copy(&members, &identity).expect("swapped");
    refused(&mut stores, "of another place");
    std::fs::write(&identity, &kept).expect("written");

    // A new data key under load, with a kill at several moments: nothing is lost.
    stores.all[1].spawn();
    stores.all[0].restart();
    stores.all[1].await_ready();
    for (round, pause_ms) in [0, 50, 1500].into_iter().enumerate() {
        write(&stores.all[0], 0..40);
        let rotated = stores.all[0].host().ctl(&["encryption", "rotate", "--store", "0"]).expect("rotated");
        assert_eq!(rotated[0]["active"], round as u64 + 2, "{rotated}");
        write(&stores.all[0], 40..60);
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
        stores.all[0].kill();
        stores.all[0].restart();
        check(&stores.all[0], 0..80);
    }
    let status = stores.all[0].host().ctl(&["encryption", "status", "--store", "0"]).expect("a status");
    assert!(status[0]["active"] == 4 && status[0]["plain_bytes"] == 0, "{status}");
    let audit = ctl(&stores, 0, &["audit"]).expect("the log of changes");
    assert!(audit.contains("encryption"), "{audit}");
    for store in &mut stores.all {
        store.kill();
    }

    // A new master key, with the old one beside it; afterwards the old one opens nothing.
    stores.all[0].change(&[("--encryption-key-file", &other), ("--encryption-old-key-file", &key)]);
    stores.all[1].spawn();
    stores.all[0].restart();
    stores.all[1].await_ready();
    check(&stores.all[0], 0..500);
    stores.all[0].kill();
    stores.all[0].change(&[("--encryption-old-key-file", "")]);
    stores.all[0].restart();
    check(&stores.all[0], 490..500);
}
