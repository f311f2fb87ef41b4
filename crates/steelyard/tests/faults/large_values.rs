//! The largest commands: they delay others but cause no election, however little CPU the stores
//! get.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::admin::StatusQuery;
use resp::Reply;

use crate::disk::under_all;
use crate::stores::wire::Wire;
use crate::stores::{eventually, say, Plan, Store};
use crate::{rounds, three, Stores};

/// Size of a value in bytes. With its key and the command's name it is just below the limit of one
/// command.
const LARGE: usize = 63 << 20;
const LARGE_VALUES: u64 = 4;
/// Maximum number of keys that hold such a value, so that a long run overwrites its values and its
/// data fits into the memory of the machine.
const LARGE_KEYS_MAX: u64 = 8;
/// Maximum number of rounds on slow devices. A value takes a few seconds there, and its reply up to
/// `--request-timeout`.
const SLOW_ROUNDS_MAX: u64 = 3;
/// Maximum time for a large request and its reply. The bytes of the request wait in the socket
/// while the store's memory is full of earlier requests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Gives a request the time that a large one takes on a slow device or a busy machine.
const PATIENT: (&str, &str) = ("--request-timeout", "12000");
/// The CPU time that the thread of the groups may take for one thing, in microseconds. It takes a
/// tenth or a fifth of that for the largest command. To read such a value back from the log took
/// it twice as long.
const TURN_US_MAX: u64 = 100_000;

fn terms(stores: &Stores) -> BTreeMap<u64, u64> {
    let rows = eventually("a store tells of the regions", || stores.any().regions());
    rows.iter().map(|row| (row.id, row.term)).collect()
}

/// Returns the longest time that the groups' thread worked between two waits, in microseconds of
/// CPU time. Other programs hardly affect it.
fn longest_turn(store: &Store) -> u64 {
    let stages = store.admin().ask(&StatusQuery {}).expect("a store tells of itself").stages;
    stages.iter().find(|row| row.stage == "groups_turn").expect("the groups' turns").max_us
}

/// Writes small values to keys of all regions, one after the other, until `stop` is set. Counts the
/// acknowledged writes. A write may wait too long behind a large one of its region; it is then
/// refused, or its outcome is unknown.
fn write_small(client: SocketAddr, name: &str, stop: &AtomicBool, written: &AtomicU64) {
    let mut wire = Wire::open(client);
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match wire.call(&["SET", &format!("small:{name}:{number}"), "x"]) {
            Reply::Error(error) => {
                let is_late = error.starts_with("UNKNOWN") || error.starts_with("CLUSTERDOWN");
                assert!(is_late, "{error}");
            }
            _ => drop(written.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Stops the other writers when a writer ends, also by a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes the largest values under a stream of small ones, and fails if any region had an election.
fn write_large(stores: &Stores, name: &str, rounds: u64) {
    let forward = |store: usize| stores.all[store].forward.expect("it has a forward port");
    let mut wire = Wire::open(forward(0)).with_patience(PATIENCE);
    wire.ok(&["SET", "first", "x"]);
    // A planned transfer is a new term, too.
    eventually("each store leads a region", || {
        let mut leaders = stores.leaders(0)?;
        leaders.sort();
        (leaders == [0, 1, 2]).then_some(())
    });
    let before = terms(stores);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (stop, written) = (&stop, &written);
    let value = "v".repeat(LARGE);
    let acknowledged = std::thread::scope(|scope| {
        for store in 0..3 {
            let client = forward(store);
            scope.spawn(move || write_small(client, &store.to_string(), stop, written));
        }
        let _stop = StopOnDrop(stop);
        let count = rounds * LARGE_VALUES;
        let keys = (0..count).map(|number| format!("large:{}", number % LARGE_KEYS_MAX));
        keys.filter(|key| !wire.call(&["SET", key, &value]).is_error()).collect::<Vec<String>>()
    });
    let small = written.load(Ordering::Relaxed);
    say(&format!("{name}: {} large values and {small} small ones were acknowledged", acknowledged.len()));
    assert!(!acknowledged.is_empty() && small > 0);
    assert_eq!(terms(stores), before, "regions had elections");
    for key in acknowledged.iter().collect::<BTreeSet<_>>() {
        assert_eq!(wire.int(&["STRLEN", key]), LARGE as i64, "{key}");
        let read = wire.call(&["GET", key]);
        assert!(matches!(&read, Reply::Bulk(bytes) if bytes == value.as_bytes()), "{key}");
    }
    let turns: Vec<u64> = stores.all.iter().map(longest_turn).collect();
    say(&format!("{name}: the longest turns of the groups took {turns:?} microseconds of CPU time"));
    assert!(turns.iter().all(|&turn| turn < TURN_US_MAX), "{turns:?} microseconds at one thing");
    let hung = |store: &Store| store.log_text().contains("the device hangs");
    assert!(!stores.all.iter().any(hung), "a device that writes for long does not hang");
}

#[test]
fn the_largest_values_cost_no_election_on_the_disk_that_is_there() {
    let _place = crate::place();
    let flags = [PATIENT];
    let plan = Plan { regions: 3, cluster_enabled: true, in_ram: false, flags: &flags, ..three() };
    write_large(&Stores::start(&plan), "on this disk", rounds(1));
}

/// All stores write each value at once, for more than a second: longer than an election timeout.
#[test]
fn the_largest_values_cost_no_election_on_a_slow_device() {
    let _place = crate::place();
    let flags = [PATIENT];
    let plan = Plan { regions: 3, cluster_enabled: true, flags: &flags, ..three() };
    let mut stores = Stores::prepare(&plan);
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(Store::spawn);
    stores.await_ready();
    let slow = "write=50MB/s,read=200MB/s,sync=5ms,read-latency=100us".parse().expect("a profile");
    disks.iter().for_each(|disk| disk.control.set_profile(&slow));
    write_large(&stores, "on slow devices", rounds(1).min(SLOW_ROUNDS_MAX));
}
