//! Devices that hang: their operations return neither success nor an error.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use device::Hang;

use crate::disk::under_all;
use crate::stores::wire::Wire;
use crate::stores::{eventually, say, Plan, Store};
use crate::{
    await_operations, judge, leader_of_any, load, move_leader, rounds, row, three, warm_up, Stores, REGION,
};

fn state(asked: &Store, of: usize) -> Option<String> {
    row(asked, of)?["state"].as_str().map(str::to_owned)
}

fn metrics_of(store: &Store) -> String {
    let mut admin = TcpStream::connect(store.admin().address()).expect("the admin port is open");
    admin.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it is asked");
    let mut metrics = String::new();
    admin.read_to_string(&mut metrics).expect("it tells its metrics");
    metrics
}

/// Returns true if the store reports in `INFO` and in `/metrics` that its device hangs.
fn says_that_it_hangs(store: &Store) -> bool {
    let info = store.info("server", "device_hanging").expect("it answers");
    info == "1" && metrics_of(store).contains("\nsteelyard_device_hanging 1")
}

fn a_leader_whose_device_hangs_is_relieved(name: &str, hang: Hang, waits: &str) {
    let _place = crate::place();
    let mut stores = Stores::prepare(&three());
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(Store::spawn);
    stores.await_ready();
    let load = load(&stores, name);
    for _ in 0..rounds(1) {
        warm_up(&load);
        let hung = stores.leader(REGION);
        let others: Vec<usize> = (0..3).filter(|store| *store != hung).collect();
        disks[hung].control.set_hang(hang);
        let begun = Instant::now();
        let next = leader_of_any(&stores, &others);
        await_operations(&load, 200);
        say(&format!("{name}: 200 operations {} ms after the device hung", begun.elapsed().as_millis()));
        for asked in &stores.all {
            eventually("it is shown", || (state(asked, hung)? == "hanging").then_some(()));
        }
        eventually("it says so", || says_that_it_hangs(&stores.all[hung]).then_some(()));
        let log = stores.all[hung].log_text();
        assert!(log.contains(&format!("the device hangs: the oldest {waits}")), "{log}");
        assert!(others.iter().all(|&other| state(&stores.all[next], other).as_deref() == Some("up")));

        disks[hung].control.set_hang(Hang::Nothing);
        eventually("it goes on by itself", || (state(&stores.all[next], hung)? == "up").then_some(()));
        await_operations(&load, 200);
        eventually("it leads again", || {
            move_leader(&stores, hung);
            (stores.all[hung].leader_of(REGION) == Some(hung as u64)).then_some(())
        });
        await_operations(&load, 200);
    }
    judge(load.finish());
}

#[test]
fn a_leader_whose_log_writes_do_not_return_is_led_away_from_and_goes_on_when_they_do() {
    a_leader_whose_device_hangs_is_relieved("hung-writes", Hang::Writes, "write or sync of the Raft log");
}

#[test]
fn a_leader_whose_device_answers_nothing_is_led_away_from_and_goes_on_when_it_does() {
    a_leader_whose_device_hangs_is_relieved("hung-device", Hang::Everything, "");
}

#[test]
fn a_region_that_no_other_store_could_lead_stays_where_its_device_hangs_and_its_reads_are_answered() {
    let _place = crate::place();
    let mut stores = Stores::prepare(&Plan { stores: 2, ..three() });
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(Store::spawn);
    stores.await_ready();
    let hung = stores.leader(REGION);
    let mut wire = Wire::open(stores.all[hung].client);
    wire.ok(&["SET", "k", "v"]);
    disks[hung].control.set_hang(Hang::Writes);
    let client = stores.all[hung].client;
    let writer = std::thread::spawn(move || Wire::ask(client, &[&["SET", "k", "w"]]));
    eventually("it is shown", || (state(&stores.all[1 - hung], hung)? == "hanging").then_some(()));
    let read = wire.text(&["GET", "k"]);
    assert!(matches!(read.as_deref(), Some("v" | "w")), "{read:?}");
    assert_eq!(stores.all[hung].leader_of(REGION), Some(hung as u64), "no other store can be elected");
    assert!(stores.all[hung].log_text().contains("are no majority"), "it says so");
    let written = writer.join().expect("it is answered").expect("a reply").remove(0);
    // Another write of the log may have hung first. In that case the command was not even proposed.
    let is_honest = |error: &str| error.starts_with("UNKNOWN ") || error.starts_with("CLUSTERDOWN ");
    assert!(matches!(&written, resp::Reply::Error(error) if is_honest(error)), "{written:?}");
    disks[hung].control.set_hang(Hang::Nothing);
    eventually("it goes on by itself", || (state(&stores.all[1 - hung], hung)? == "up").then_some(()));
    wire.ok(&["SET", "k", "x"]);
}

/// Its loop writes the log itself, so it waits for the device as well.
#[test]
fn a_store_alone_answers_no_client_while_its_device_hangs_says_so_and_goes_on_afterwards() {
    let _place = crate::place();
    let mut stores = Stores::prepare(&Plan { stores: 1, ..three() });
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(Store::spawn);
    stores.await_ready();
    let store = &stores.all[0];
    let client = store.client;
    let mut wire = Wire::open(client);
    let of_loop = |metrics: &str| {
        let value =
            |line: &str| line.strip_prefix("steelyard_log_batches_of_loop_total ")?.parse::<f64>().ok();
        metrics.lines().find_map(value).expect("the metric is there")
    };
    eventually("the loop writes the log", || {
        (0..100).for_each(|_| wire.ok(&["SET", "k", "v"]));
        (of_loop(&metrics_of(store)) > 0.0).then_some(())
    });
    let before = of_loop(&metrics_of(store));
    (0..100).for_each(|_| wire.ok(&["SET", "k", "v"]));
    assert!(of_loop(&metrics_of(store)) > before);

    disks[0].control.set_hang(Hang::Writes);
    let writer = std::thread::spawn(move || Wire::ask(client, &[&["SET", "k", "w"]]));
    eventually("it says so", || metrics_of(store).contains("\nsteelyard_device_hanging 1").then_some(()));
    assert!(store.log_text().contains("the device hangs: the oldest write or sync of the Raft log"));
    disks[0].control.set_hang(Hang::Nothing);
    let written = writer.join().expect("it is answered").expect("a reply").remove(0);
    let is_honest = match &written {
        resp::Reply::Error(error) => error.starts_with("UNKNOWN "),
        reply => *reply == resp::Reply::Simple("OK".into()),
    };
    assert!(is_honest, "{written:?}");
    assert!(matches!(wire.text(&["GET", "k"]).as_deref(), Some("v" | "w")));
    wire.ok(&["SET", "k", "x"]);
    eventually("the device counts as healthy", || {
        metrics_of(store).contains("\nsteelyard_device_hanging 0").then_some(())
    });
}
