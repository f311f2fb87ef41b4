//! Damage to files at rest: torn tails, cut tails, flipped bits.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use device::Fault;

use crate::disk::Disk;
use crate::stores::wire::Wire;
use crate::stores::{eventually, say, steelyard, Store, Stores};
use crate::{is_long_run, judge, load_on, pause, three, warm_up, Plan, Shape, REGION};

/// One store in RAM that elects itself quickly, because it is restarted many times.
fn one() -> Stores {
    Stores::prepare(&Plan { stores: 1, flags: &[("--raft-tick", "10")], ..three() })
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    found
}

/// Returns the content of the log's segments. One of them may be prepared in advance.
pub fn segments(store: &Store) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = files(&store.dir.join("log"), "segment");
    paths.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap_or_default())).collect()
}

/// Returns the segment that contains the value now but did not before: its path, its previous
/// content, and its present content.
fn written(before: &BTreeMap<PathBuf, Vec<u8>>, store: &Store, value: &str) -> (PathBuf, Vec<u8>, Vec<u8>) {
    let has = |bytes: &[u8]| bytes.windows(value.len()).any(|window| window == value.as_bytes());
    let mut found = segments(store).into_iter().filter(|(_, bytes)| has(bytes));
    let (path, after) = found.next().expect("the batch was written");
    let before = before.get(&path).cloned().unwrap_or_default();
    assert!(!has(&before) && found.next().is_none(), "the value is written once");
    (path, before, after)
}

/// Returns the range of differing bytes, from the first to after the last.
fn difference(before: &[u8], after: &[u8]) -> Option<(usize, usize)> {
    let differs = |at: &usize| before.get(*at).unwrap_or(&0) != after.get(*at).unwrap_or(&0);
    let length = before.len().max(after.len());
    let first = (0..length).find(differs)?;
    Some((first, (first..length).rev().find(differs)? + 1))
}

/// Restores a directory from a copy.
fn restore(dir: &Path, saved: &Path) {
    fs::remove_dir_all(dir).expect("the directory goes");
    let copied = Command::new("cp").args(["-a", "--sparse=always"]).arg(saved).arg(dir).status();
    assert!(copied.is_ok_and(|status| status.success()), "the saved directory is copied back");
}

/// Returns every offset in a long run, and otherwise some of them with both ends.
fn some_of(first: usize, last: usize, short: usize) -> Vec<usize> {
    if is_long_run() || last - first < short {
        return (first..=last).collect();
    }
    (0..short).map(|n| first + (last - first) * n / (short - 1)).collect()
}

#[test]
fn a_tail_torn_at_any_byte_before_it_was_synced_is_cut_back_and_nothing_acknowledged_with_it() {
    let _place = crate::place();
    let mut stores = one();
    let disk = Disk::under(&mut stores.all[0]);
    stores.all[0].restart();
    let mut wire = Wire::open(stores.all[0].client);
    (0..20).for_each(|n| wire.ok(&["SET", &format!("key:{n}"), "acknowledged"]));
    // An idle log writes only its mark.
    pause(600);
    let before = segments(&stores.all[0]);
    disk.fail(Fault::SyncEio);
    let answer = Wire::ask(stores.all[0].client, &[&["SET", "torn", "never acknowledged"]]);
    assert!(answer.is_none(), "a write was answered whose sync failed: {answer:?}");
    stores.all[0].await_end();
    disk.repair();
    let (path, before, after) = written(&before, &stores.all[0], "never acknowledged");
    let (first, last) = difference(&before, &after).expect("the batch was written");
    say(&format!("the tail is {} bytes long", last - first));
    let saved = stores.all[0].dir.with_extension("saved");
    restore_point(&stores.all[0].dir, &saved);

    let mut with_it = 0;
    for offset in some_of(first, last, 4) {
        restore(&stores.all[0].dir, &saved);
        let file = OpenOptions::new().write(true).open(&path).expect("the log");
        match offset % 2 {
            // The tail is either torn, with the disk's old content after it, or cut off.
            0 => file.write_all_at(&padded(&before, offset, last), offset as u64).expect("torn"),
            _ => file.set_len(offset as u64).expect("cut"),
        }
        disk.renew();
        stores.all[0].restart();
        let mut wire = Wire::open(stores.all[0].client);
        for n in 0..20 {
            let value = wire.text(&["GET", &format!("key:{n}")]);
            assert_eq!(value.as_deref(), Some("acknowledged"), "torn at {offset}");
        }
        with_it += usize::from(wire.text(&["GET", "torn"]).is_some_and(|value| {
            assert_eq!(value, "never acknowledged");
            offset < last
        }));
        wire.ok(&["SET", "after", "yes"]);
        stores.all[0].kill();
    }
    assert_eq!(with_it, 0, "an incomplete batch was accepted");
}

/// Returns `before` from `offset` to `end`, padded with zeros.
fn padded(before: &[u8], offset: usize, end: usize) -> Vec<u8> {
    (offset..end).map(|at| before.get(at).copied().unwrap_or(0)).collect()
}

fn restore_point(dir: &Path, saved: &Path) {
    fs::create_dir_all(saved).expect("a place");
    restore(saved, dir);
}

/// The outcome of a start with a damaged log.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    Refused,
    /// A region is named as damaged.
    Named,
    /// Nothing is missing.
    Whole,
}

/// Returns true if the last acknowledged value is read from the store.
fn serves_last(store: &Store) -> bool {
    // A weak read does not wait for a leader.
    let replies = Wire::ask(store.client, &[&["READONLY"], &["GET", "last"]]);
    let text = replies.and_then(|replies| client::connection::text(&replies[1]));
    text.as_deref() == Some(&b"acknowledged last"[..])
}

/// Returns the index of the last entry of region 1 in the log of a store that does not run.
fn last_entry(dir: &Path) -> u64 {
    let dump = steelyard().args(["log", "dump"]).arg(dir.join("log")).output().expect("the log is shown");
    let text = String::from_utf8_lossy(&dump.stdout);
    let region = text.lines().find(|line| line.starts_with("region 1: entries")).expect("region 1");
    number_after(region, "..=").expect("its last entry")
}

fn number_after(text: &str, before: &str) -> Option<u64> {
    let digits = text.rsplit_once(before)?.1;
    digits[..digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

#[test]
fn an_acknowledged_tail_that_is_cut_or_damaged_is_refused_or_named_and_never_forgotten() {
    let _place = crate::place();
    let mut stores = one();
    stores.all[0].restart();
    let mut wire = Wire::open(stores.all[0].client);
    wire.ok(&["SET", "before", "acknowledged"]);
    pause(600);
    let before = segments(&stores.all[0]);
    wire.ok(&["SET", "last", "acknowledged last"]);
    stores.all[0].kill();
    let (path, before, after) = written(&before, &stores.all[0], "acknowledged last");
    let (first, _) = difference(&before, &after).expect("the batch was written");
    // What a busy machine's store writes behind the batch was never acknowledged.
    let value = &b"acknowledged last"[..];
    let last =
        after.windows(value.len()).position(|window| window == value).expect("the value") + value.len();
    let store = &mut stores.all[0];
    let saved = store.dir.with_extension("saved");
    restore_point(&store.dir, &saved);
    let last_entry = last_entry(&store.dir);
    let (mut refused, mut named) = (0, 0);
    for offset in some_of(first, last - 1, 12) {
        for cut in [true, false] {
            restore(&store.dir, &saved);
            let file = OpenOptions::new().write(true).open(&path).expect("the log");
            match cut {
                true => file.set_len(offset as u64).expect("cut"),
                false => file.write_all_at(&[after[offset] ^ 0x10], offset as u64).expect("flipped"),
            }
            let damaged = fs::read(&path).expect("the log");
            store.spawn();
            let outcome = eventually("it ends, names the damage, or serves everything", || {
                // A store names the damage before it serves.
                let serves = serves_last(store);
                // A refusal may report the damage as well, just before the process ends.
                let said = store.log_text();
                let names =
                    said.contains("and no other store has them") && !said.contains("steelyard: recovery");
                match (store.ended(), names) {
                    (Some(_), _) => Some(Start::Refused),
                    (None, true) => Some(Start::Named),
                    (None, false) => serves.then_some(Start::Whole),
                }
            });
            let said = store.log_text();
            if outcome == Start::Whole {
                // A busy machine's store may have written another region's record before the batch,
                // which a later record replaces.
                assert!(!cut, "byte {offset}: a cut tail was served");
                store.kill();
                continue;
            }
            if outcome == Start::Refused {
                refused += 1;
                assert!(said.contains("steelyard: "), "byte {offset} (cut: {cut}): {said}");
                let found = fs::read(&path).expect("the log");
                assert_eq!(difference(&damaged, &found), None, "byte {offset} (cut: {cut}): it was changed");
                continue;
            }
            // The content of one region's section is damaged. The data before it is served.
            named += 1;
            assert!(!cut, "byte {offset}: a cut tail shows no region");
            eventually("what is left is served", || {
                weak_read_is(store, "before", "acknowledged").then_some(())
            });
            // The damage may be to its entry, or only to what was written after it, such as its
            // commit index.
            let kept = number_after(&said, "region=1 last=").expect("the last entry that is left");
            let replies = Wire::ask(store.client, &[&["READONLY"], &["GET", "last"]]).expect("answers");
            let shown = client::connection::text(&replies[1]);
            let expected = (kept >= last_entry).then_some(&b"acknowledged last"[..]);
            assert_eq!(shown.as_deref(), expected, "byte {offset}: {kept} is left of {last_entry}");
            store.kill();
        }
    }
    say(&format!("{refused} refused, {named} with the region named"));
    assert!(refused > 0 && named > 0);
    restore(&store.dir, &saved);
    store.restart();
    let mut wire = Wire::open(store.client);
    assert_eq!(wire.text(&["GET", "last"]).as_deref(), Some("acknowledged last"));
}

/// Flips one bit in each of `count` places, spread evenly over the first `used` bytes of a file.
fn flip(path: &Path, used: u64, count: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file to damage");
    for n in 1..=count {
        let at = used * n / (count + 1);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("within the file");
        file.write_all_at(&[byte[0] ^ 1 << (n % 8)], at).expect("written");
    }
}

fn used(path: &Path) -> u64 {
    let bytes = fs::read(path).expect("a file");
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Damages the files of one store of three under load. The store may refuse to start, end when it
/// finds the damage, or continue if it never reads it. It must not return a value that no other
/// store has.
fn damaged_on_a_minority(
    name: &str,
    flags: &[(&str, &str)],
    value_bytes: usize,
    damage: impl Fn(&Store) -> usize,
) {
    let _place = crate::place();
    let mut stores = Stores::start(&Plan { flags, ..three() });
    let shape = Shape { value_bytes, ..Shape::default() };
    let load = load_on(&stores.clients(), name, shape);
    warm_up(&load);
    let keys: Vec<String> = (0..400).map(|n| format!("kept:{n}")).collect();
    let value = |key: &str| format!("{key:x<2000}");
    let mut wire = Wire::open(stores.all[stores.leader(REGION)].client);
    keys.iter().for_each(|key| wire.ok(&["SET", key, &value(key)]));
    let victim = (stores.leader(REGION) + 1) % 3;
    // Wait until the rows reach the victim's files.
    pause(500);
    stores.all[victim].kill();
    let damaged = damage(&stores.all[victim]);
    assert!(damaged > 0, "there was nothing to damage");
    stores.all[victim].spawn();
    warm_up(&load);
    let runs = eventually("the store serves or ends", || {
        if stores.all[victim].ended().is_some() {
            return Some(false);
        }
        stores.all[victim].log_text().contains("is ready to serve").then_some(true)
    });
    let mut read = 0;
    if runs {
        // A weak read returns this store's own rows.
        read = keys.iter().filter(|key| weak_read_is(&stores.all[victim], key, &value(key))).count();
    }
    let end = match stores.all[victim].ended() {
        Some(status) => format!("it ended ({status})"),
        None => "it still runs".to_owned(),
    };
    say(&format!("{name}: {damaged} files damaged; started: {runs}, {read} of 400 rows read, {end}"));
    for key in &keys {
        assert_eq!(wire.text(&["GET", key]).as_deref(), Some(&*value(key)));
    }
    stores.all[victim].kill();
    judge(load.finish());
}

/// Returns true if the store returns the value, and false if it returns an error or nothing. Any
/// other value fails the test.
fn weak_read_is(store: &Store, key: &str, value: &str) -> bool {
    let mut replies = Wire::ask(store.client, &[&["READONLY"], &["GET", key]]);
    let reply = replies.as_mut().and_then(Vec::pop);
    match reply {
        // A peer that takes no part in consensus executes nothing more, so it lacks the last
        // writes.
        None | Some(resp::Reply::Error(_) | resp::Reply::Nil) => false,
        Some(reply) => {
            let found = client::connection::text(&reply);
            assert!(found.as_deref() == Some(value.as_bytes()), "{key}: a damaged row was shown");
            true
        }
    }
}

#[test]
fn bits_flipped_in_the_middle_of_a_minoritys_log_lose_nothing() {
    damaged_on_a_minority("flipped-log", &[], 0, |store| {
        // One segment may be prepared in advance and hold nothing.
        let logs = files(&store.dir.join("log"), "segment");
        let log = logs.into_iter().max_by_key(|path| used(path)).expect("a segment");
        flip(&log, used(&log), 5);
        1
    });
}

#[test]
fn bits_flipped_in_a_minoritys_tables_are_never_shown_as_values() {
    let flags = &[("--rocksdb", "write_buffer_size=64kb"), ("--maxmemory", "64mb")];
    damaged_on_a_minority("flipped-tables", flags, 4096, |store| {
        // The kill may have left a table without data.
        let length = |table: &PathBuf| fs::metadata(table).expect("a table").len();
        let mut tables = files(&store.dir.join("rows"), "sst");
        tables.retain(|table| length(table) > 0);
        for table in &tables {
            // Damage the rows and not the index at the end, because a table with a damaged index is
            // refused at once.
            flip(table, length(table) / 2, 1);
        }
        tables.len()
    });
}
