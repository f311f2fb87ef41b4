//! Imports and exports that are refused before they change anything, ends that are told, and
//! numbers of keys that differ.

use client::scripted::scripted;

use super::stores::{eventually, within, Plan, Stores, PATIENCE};
use super::*;

const ITEMS: i64 = 300;

fn refused(words: &[&str]) -> String {
    let output = steelyard(words).output().expect("the program starts");
    let told = told(&output);
    assert!(!output.status.success(), "{words:?}\n{told}");
    told
}

/// Makes a list that is copied in pieces, with `--large 1024`.
fn push_list(connection: &mut Connection) {
    let items: Vec<String> = (0..ITEMS).map(|number| format!("an item with the number {number}")).collect();
    let words: Vec<&str> = ["RPUSH", "list"].into_iter().chain(items.iter().map(String::as_str)).collect();
    assert_eq!(connection.call(&words).unwrap(), Reply::Int(ITEMS));
}

fn list_len(connection: &mut Connection) -> Reply {
    connection.call(&["LLEN", "list"]).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = dir.read_dir().unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn keys_of_a_database_that_the_target_refuses_are_written_nowhere() {
    let Some(source) = servers::redis(&[]) else { return };
    let Some(small) = servers::redis(&["--databases", "2"]) else { return };
    let cluster = servers::steelyard(&["--cluster-enabled", "yes"]);
    let mut theirs = source.connect();
    for database in ["0", "3"] {
        theirs.call(&["SELECT", database]).unwrap();
        theirs.call(&["SET", "shared", database]).unwrap();
        theirs.call(&["SET", &format!("only:{database}"), database]).unwrap();
    }
    let file = save(&source, &mut theirs);
    let from = url(source.address);
    for target in [&small, &cluster] {
        let (to, mut ours) = (url(target.address), target.connect());
        let import = ["import", "--connections", "1", "--to", &to];
        for way in [&["--from", &from][..], &["--from", &from, "--replicate", "--until-caught-up"]] {
            let told = refused(&[&import[..], way].concat());
            assert!(told.contains("refuses database 3 (ERR"), "{told}");
            assert_eq!(ours.call(&["DBSIZE"]).unwrap(), Reply::Int(0), "nothing was copied: {told}");
        }
        // The databases of a file are not known beforehand.
        let told = refused(&[&import[..], &["--rdb", file.to_str().unwrap()]].concat());
        assert!(told.contains("refuses database 3 (ERR"), "{told}");
        assert_eq!(ours.call(&["GET", "shared"]).unwrap(), Reply::Bulk("0".into()));
        assert_eq!(ours.call(&["EXISTS", "only:0"]).unwrap(), Reply::Int(1));
        assert_eq!(ours.call(&["EXISTS", "only:3"]).unwrap(), Reply::Int(0));
    }
}

#[test]
fn an_import_of_a_redis_into_itself_or_from_its_replica_is_refused() {
    let Some(redis) = servers::redis(&["--repl-diskless-sync-delay", "0"]) else { return };
    let mut connection = redis.connect();
    push_list(&mut connection);
    let (own, port) = (url(redis.address), redis.address.port().to_string());
    for way in [&["--replicate", "--flush-target", "--until-caught-up"][..], &["--large", "1024"]] {
        let told = refused(&[&["import", "--from", &own, "--to", &own][..], way].concat());
        assert!(told.contains("are the same server, so there is nothing to copy"), "{told}");
        assert_eq!(list_len(&mut connection), Reply::Int(ITEMS));
    }
    let Some(replica) = servers::redis(&["--replicaof", "127.0.0.1", &port]) else { return };
    let mut asked = replica.connect();
    eventually("the replica has its master's data", || {
        let info = asked.call(&["INFO", "replication"]).ok()?;
        let info = client::connection::text(&info)?;
        String::from_utf8_lossy(&info).contains("master_link_status:up").then_some(())
    });
    let told = refused(&["import", "--from", &url(replica.address), "--to", &own, "--large", "1024"]);
    assert!(told.contains("a Redis and its replica"), "{told}");
    assert_eq!(list_len(&mut connection), Reply::Int(ITEMS));
}

#[test]
fn an_import_within_a_cluster_is_refused_and_one_between_two_clusters_is_not() {
    let _alone = stores::alone();
    let stores = Stores::start(&Plan { stores: 3, ..Plan::default() });
    let mut connection = Connection::open(stores.all[0].client).unwrap();
    eventually("a leader serves", || (list_len(&mut connection) == Reply::Int(0)).then_some(()));
    push_list(&mut connection);
    for (from, to) in [(0, 0), (1, 2), (2, 0)] {
        let [from, to] = [from, to].map(|store: usize| url(stores.all[store].client));
        let told = refused(&["import", "--from", &from, "--to", &to, "--large", "1024"]);
        assert!(told.contains("are the same server, or stores of one cluster"), "{told}");
        assert_eq!(list_len(&mut connection), Reply::Int(ITEMS));
        assert_eq!(connection.call(&["DBSIZE"]).unwrap(), Reply::Int(1), "no other key stays");
    }
    // Two clusters of the same layout have stores with the same `run_id`.
    let (source, target) = (servers::steelyard(&[]), servers::steelyard(&[]));
    push_list(&mut source.connect());
    let told =
        run(&["import", "--from", &url(source.address), "--to", &url(target.address), "--large", "1024"]);
    assert!(told.contains("1 keys in pieces") && told.contains(" 0 differ"), "{told}");
    assert_eq!(list_len(&mut target.connect()), Reply::Int(ITEMS));
}

#[test]
fn files_that_cannot_be_written_are_refused_before_a_server_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let [free] = client::process::free_ports(1).unwrap()[..] else { panic!("one port") };
    let nowhere = format!("redis://127.0.0.1:{free}");
    let told = refused(&["export", "--rdb", dir.path().to_str().unwrap(), "--from", &nowhere]);
    let expected = format!("{} is a directory: --rdb names the file to write", dir.path().display());
    assert_eq!(told.trim(), format!("steelyard: {expected}"));
    let absent = dir.path().join("absent/progress");
    let words = ["import", "--from", &nowhere, "--to", &nowhere, "--progress", absent.to_str().unwrap()];
    for words in [&words[..], &[&words[..], &["--replicate"]].concat()] {
        let told = refused(words);
        assert!(told.contains("cannot record its progress in") && told.contains("absent"), "{told}");
        assert!(!told.contains(&nowhere), "{told}");
    }
    assert_eq!(names(dir.path()), [""; 0]);
}

/// Starts a server with one key. It answers as Redis until a walk begins. Then it sends nothing, or
/// closes the connection.
fn server_until_a_walk(runtime: &tokio::runtime::Runtime, closes: bool) -> SocketAddr {
    runtime.block_on(scripted(move |words| {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let answer = match words {
            "PING" => "+PONG\r\n".to_owned(),
            "INFO server" => bulk("redis_version:7.0.0\r\nrun_id:1\r\n"),
            "INFO keyspace" => bulk("db0:keys=1,expires=0,avg_ttl=0\r\n"),
            "DBSIZE" => ":1\r\n".to_owned(),
            _ if words.starts_with("SCAN") => return (!closes).then(String::new),
            _ => "-ERR unknown command\r\n".to_owned(),
        };
        Some(answer)
    }))
}

fn export_words<'a>(path: &'a Path, from: &'a str) -> [&'a str; 5] {
    ["export", "--rdb", path.to_str().unwrap(), "--from", from]
}

#[test]
fn an_export_that_does_not_end_leaves_no_file_and_tells_why() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dump.rdb");
    let from = url(server_until_a_walk(&runtime, true));
    let told = refused(&export_words(&path, &from));
    assert!(told.contains(&format!("{from}: the server closed the connection")), "{told}");
    assert_eq!(names(dir.path()), [""; 0]);

    let from = url(server_until_a_walk(&runtime, false));
    for signal in ["-TERM", "-INT"] {
        let mut command = steelyard(&export_words(&path, &from));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let name = eventually("the export begins", || names(dir.path()).pop());
        assert!(name.starts_with(".dump.rdb.partial-"), "{name}");
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let told = super::told(&child.wait_with_output().unwrap());
        assert!(told.contains("interrupted: no file was written"), "{told}");
        assert_eq!(names(dir.path()), [""; 0]);
    }
}

#[test]
fn numbers_of_keys_that_differ_are_explained() {
    let Some(redis) = servers::redis(&[]) else { return };
    let ours = servers::steelyard(&[]);
    let (mut theirs, mut connection) = (redis.connect(), ours.connect());
    let import = ["import", "--from", &url(redis.address), "--to", &url(ours.address)];
    theirs.call(&["SET", "stays", "1"]).unwrap();
    connection.call(&["SET", "other", "1"]).unwrap();
    let told = run(&import);
    let more = "the target has 1 more key in database 0 than the source: keys that it had before";
    assert!(told.contains(more) && !told.contains("warning"), "{told}");

    // A paused Redis counts keys that have expired. All keys of database 1 have, and a search for a
    // random one among them would not end.
    connection.call(&["FLUSHALL"]).unwrap();
    let lines = "SET gone x PX 50,SELECT 1,SET gone:1 x PX 50,SET gone:2 x PX 50,CLIENT PAUSE 600000 WRITE";
    let requests: Vec<Vec<&str>> = lines.split(',').map(|line| line.split(' ').collect()).collect();
    theirs.pipeline(&requests).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let mut child = steelyard(&import).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = within(PATIENCE, || child.try_wait().unwrap());
    let _ = child.kill();
    let told = super::told(&child.wait_with_output().unwrap());
    assert!(ended.is_some_and(|status| status.success()), "{told}");
    for (database, counted, copied) in [(0, 2, 1), (1, 2, 0)] {
        let line = format!("database {database}: {counted} keys at the source, {copied} at the target");
        let expired = format!("database {database}: at least {} of the keys", counted - copied);
        assert!(told.contains(&line) && told.contains(&expired), "{told}");
    }
    assert!(!told.contains("more key"), "{told}");
}

#[test]
fn expired_keys_of_a_file_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dump.rdb");
    let mut file = rdb::FileWriter::create(Vec::new(), &[]).unwrap();
    for (key, expire_at_ms) in [("gone", Some(1)), ("stays", None), ("later", Some(FAR_MS))] {
        let facts = rdb::KeyFacts { key: key.into(), expire_at_ms, type_number: 0 };
        file.begin_key(0, &facts, b"\x01v").unwrap();
    }
    std::fs::write(&path, file.finish().unwrap()).unwrap();
    let ours = servers::steelyard(&[]);
    let told = run(&["import", "--rdb", path.to_str().unwrap(), "--to", &url(ours.address)]);
    assert!(told.contains("1 keys of the file had expired before the import"), "{told}");
    assert!(told.contains("3 keys in the file, 2 at the target"), "{told}");
}
