//! A store that returns without the data that it had acknowledged.

use crate::stores::wire::Wire;
use crate::{judge, load, pause, three, warm_up, Stores, REGION};

#[test]
fn an_empty_disk_under_an_old_number_makes_no_majority() {
    let _place = crate::place();
    let mut stores = Stores::start(&three());
    let load = load(&stores, "empty-disk");
    warm_up(&load);
    let emptied = stores.leader(REGION);
    stores.all[emptied].kill();
    // Some acknowledged entries are only on this store and one other.
    std::fs::remove_dir_all(&stores.all[emptied].dir).expect("a directory that is gone");
    warm_up(&load);
    stores.all[emptied].spawn();
    pause(1000);
    // The other stores detect that its data is missing. The store then has no vote and holds no
    // data, so it forms no majority with one other store.
    let rest: Vec<usize> = (0..3).filter(|&store| store != emptied).collect();
    stores.all[rest[0]].kill();
    let error = within_reach(&stores, rest[1]);
    assert!(error.starts_with("CLUSTERDOWN ") || error.starts_with("UNKNOWN "), "{error}");
    stores.all[rest[0]].restart();
    warm_up(&load);
    stores.all[emptied].kill();
    judge(load.finish());
}

/// Returns the error of a write, after the time that a failed election takes.
fn within_reach(stores: &Stores, store: usize) -> String {
    let mut wire = Wire::open(stores.all[store].client);
    pause(2000);
    wire.error(&["SET", "without a majority", "x"])
}
