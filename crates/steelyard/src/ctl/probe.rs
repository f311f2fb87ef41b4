//! `steelyard ctl probe`: measures stores' devices again.

use std::time::Duration;

use anyhow::anyhow;
use client::admin::{AdminClient, ProbeRequest, ProbeRow, StoresQuery};
use client::table::{count, micros};

use super::tables::capability;
use super::{admin_of, ask};

/// Time limit of a probe. A probe ends in about 7 s, but other stores of the host may have the
/// turn, and a slow device may delay its end.
const TIMEOUT: Duration = Duration::from_secs(150);

pub fn one(client: &AdminClient, store: u64) -> anyhow::Result<ProbeRow> {
    ask(&admin_of(client, store, TIMEOUT)?, &ProbeRequest {})
}

/// Probes every store in turn and prints each result when it arrives. A store that cannot be probed
/// is named, and the others are probed nevertheless.
pub fn all(
    client: &AdminClient,
    as_json: bool,
    say: impl Fn(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stores = ask(client, &StoresQuery {})?;
    let members: Vec<u64> = stores.iter().filter(|row| row.state != "removed").map(|row| row.id).collect();
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for &store in &members {
        match one(client, store) {
            Ok(row) => {
                if !as_json {
                    say(text(&row))?;
                }
                rows.push(row);
            }
            Err(error) => failed.push(format!("store {store}: {error}")),
        }
    }
    if as_json {
        say(serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(anyhow!(
            "{} of {} stores were not probed: {}",
            failed.len(),
            members.len(),
            failed.join("; ")
        )),
    }
}

pub fn text(row: &ProbeRow) -> String {
    let mut text = format!(
        "store {}'s device writes {}, syncs in {} and reads in {} (measured by {})\n",
        row.store,
        capability(row.io_bytes_per_s),
        micros(row.sync_us),
        micros(row.read_us),
        row.method,
    );
    text += &match (row.told, row.kept) {
        (true, true) => {
            "the store counts as it was told: the new figures are what its device is compared with\n".into()
        }
        (true, false) => {
            "the store counts for a part of its configured capability, for its device does less than it did then: \
                          with that it is still compared\n"
                .into()
        }
        (false, _) => format!(
            "it counts for {} of keys and values, {} operations/s\n",
            capability(row.capability_bytes_per_s),
            count(row.ops_per_s)
        ),
    };
    if row.load_ops_per_s >= 1.0 {
        text += &format!(
            "measured beside {} commands/s, which took their part of the device\n",
            count(row.load_ops_per_s)
        );
    }
    text
}
