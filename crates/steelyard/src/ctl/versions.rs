//! `steelyard ctl versions`: the cluster's version, and the versions that the stores support.

use client::admin::VersionsRow;
use client::table::{Align, Table};

pub fn text(row: &VersionsRow) -> String {
    let columns = [("store", Align::Right), ("supports", Align::Right), ("prepared for", Align::Right)];
    let mut table = Table::new(columns);
    let shown = |version: Option<u32>| version.map_or("?".to_owned(), |version| version.to_string());
    for store in &row.stores {
        table.row([store.store.to_string(), shown(store.newest), shown(store.prepared)]);
    }
    format!("the cluster has version {}\n\n{table}\n{}\n", row.version, row.note)
}
