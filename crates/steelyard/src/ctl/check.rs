//! `steelyard ctl check`: has each region's replicas compared, one region after the other, and
//! shows the results.

use anyhow::anyhow;
use client::admin::{AdminClient, CheckRequest, CheckRow, RegionsQuery};
use client::table::{bytes, count, Align, Table};

use super::{ask, ask_of};

/// Checks one region or all, and prints each result. Fails unless all replicas are equal.
pub fn run(
    client: &AdminClient,
    region: Option<u64>,
    as_json: bool,
    say: impl Fn(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let regions: Vec<u64> = match region {
        Some(region) => vec![region],
        None => ask(client, &RegionsQuery {})?.iter().map(|row| row.id).collect(),
    };
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for &region in &regions {
        match ask_of(client, region, &CheckRequest {}) {
            Ok(row) => rows.push(row),
            Err(error) => failed.push(format!("region {region}: {error}")),
        }
    }
    match as_json {
        true => say(serde_json::to_string_pretty(&rows)? + "\n")?,
        false => say(text(&rows))?,
    }
    if !failed.is_empty() {
        let of = format!("{} of {} regions were not checked", failed.len(), regions.len());
        return Err(anyhow!("{of}: {}", failed.join("; ")));
    }
    let unequal: Vec<String> =
        rows.iter().filter(|row| row.verdict != "equal").map(|row| row.region.to_string()).collect();
    match unequal.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("not all replicas were found equal: region {}", unequal.join(", "))),
    }
}

fn text(rows: &[CheckRow]) -> String {
    let mut text = table(rows).to_string();
    for row in rows.iter().filter(|row| row.verdict != "equal") {
        text += &format!("\n{}\n", row.note);
    }
    text
}

fn table(rows: &[CheckRow]) -> Table {
    let columns = [
        ("region", Align::Right),
        ("index", Align::Right),
        ("store", Align::Right),
        ("checksum", Align::Left),
        ("rows", Align::Right),
        ("size", Align::Right),
        ("verdict", Align::Left),
    ];
    let mut table = Table::new(columns);
    for row in rows {
        for of in &row.stores {
            let differs = row.differing.contains(&of.store);
            table.row([
                row.region.to_string(),
                row.index.to_string(),
                of.store.to_string(),
                of.checksum.clone(),
                count(of.rows as f64),
                bytes(of.bytes as f64),
                if differs { "differs from the majority".to_owned() } else { row.verdict.clone() },
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use client::admin::CheckedRow;

    use super::*;

    #[test]
    fn the_store_that_differs_is_marked_and_the_note_says_what_to_do() {
        let of = |store, checksum: &str| CheckedRow { store, checksum: checksum.into(), rows: 3, bytes: 40 };
        let row = CheckRow {
            region: 7,
            index: 99,
            verdict: "minority".into(),
            differing: vec![2],
            stores: vec![of(0, "aa"), of(1, "aa"), of(2, "bb")],
            note: "look at the device".into(),
        };
        let lines = table(std::slice::from_ref(&row)).lines();
        assert!(
            lines[1].ends_with("minority") && lines[3].ends_with("differs from the majority"),
            "{lines:?}"
        );
        assert!(text(&[row]).ends_with("\nlook at the device\n"));
    }
}
