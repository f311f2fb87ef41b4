//! `ctl quarantine`: lists peers that do not execute their region's log, and decides about them.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use client::admin::{
    AdminClient, FailRequest, QuarantineQuery, QuarantineRequest, QuarantineRow, RegionRequest, RegionsQuery,
};
use client::table::{Align, Table};

use super::{ask, ask_of, Answer};

/// Time that a refill waits for the peer to be removed.
const REMOVAL: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

#[derive(clap::Subcommand)]
pub enum QuarantineCommand {
    /// List the quarantined peers, each with the entry that it does not execute
    List,
    /// Make all peers of a region skip an entry that none of them can execute
    Skip {
        region: u64,
        index: u64,
        /// Skip even if a store that has a peer does not answer
        #[arg(long)]
        force: bool,
    },
    /// Execute the entry again after an upgrade of the program, on every store or on one
    Retry {
        region: u64,
        #[arg(long, value_name = "STORE")]
        store: Option<u64>,
    },
    /// Serve the rows of quarantined peers to connections that sent READONLY
    ReadOnly {
        region: u64,
        /// Stop serving them
        #[arg(long)]
        off: bool,
    },
    /// Give a quarantined peer new rows, with a snapshot from its region's leader
    Refill { region: u64, store: u64 },
}

/// Options of an entry that fails on purpose.
#[derive(clap::Args)]
pub struct Fail {
    region: u64,
    /// Fail by a panic instead of an error
    #[arg(long)]
    panic: bool,
    /// Fail only on these stores
    #[arg(long, value_name = "STORE", value_delimiter = ',')]
    store: Vec<u64>,
}

pub fn answer(client: &AdminClient, command: QuarantineCommand) -> anyhow::Result<Answer> {
    match command {
        QuarantineCommand::List => {
            let rows = ask(client, &QuarantineQuery {})?;
            let text = match rows.is_empty() {
                true => "no peer is quarantined\n".to_owned(),
                false => table(&rows).to_string(),
            };
            Answer::of(&rows, text)
        }
        QuarantineCommand::Skip { region, index, force } => {
            let request = QuarantineRequest::Skip { index, force };
            decide(client, region, request, format!("region {region} skips entry {index} on every peer\n"))
        }
        QuarantineCommand::Retry { region, store } => {
            let place = store.map_or("on every store".to_owned(), |store| format!("on store {store}"));
            let text = format!("region {region} executes the entry again {place}\n");
            decide(client, region, QuarantineRequest::Retry { on: store }, text)
        }
        QuarantineCommand::ReadOnly { region, off } => {
            let text = match off {
                false => format!("the quarantined peers of region {region} serve READONLY connections\n"),
                true => format!("the quarantined peers of region {region} serve nothing\n"),
            };
            decide(client, region, QuarantineRequest::ReadOnly { read_only: !off }, text)
        }
        QuarantineCommand::Refill { region, store } => refill(client, region, store),
    }
}

pub fn fail(client: &AdminClient, Fail { region, panic, store }: Fail) -> anyhow::Result<Answer> {
    let done = ask_of(client, region, &FailRequest { by_panic: panic, stores: store })?;
    Answer::of(&done, format!("an entry that fails is in the log of region {region}\n"))
}

fn decide(
    client: &AdminClient,
    region: u64,
    request: QuarantineRequest,
    text: String,
) -> anyhow::Result<Answer> {
    let done = ask_of(client, region, &request)?;
    Answer::of(&done, text)
}

/// Removes the peer, waits until it is removed, and then adds one on the same store again.
fn refill(client: &AdminClient, region: u64, store: u64) -> anyhow::Result<Answer> {
    let done = ask_of(client, region, &QuarantineRequest::Refill { from: store })?;
    let deadline = Instant::now() + REMOVAL;
    loop {
        let rows = ask(client, &RegionsQuery {})?;
        let held = ask(client, &QuarantineQuery {})?;
        let row = rows.iter().find(|row| row.id == region);
        let row = row.ok_or_else(|| anyhow!("region {region} is gone"))?;
        let has_peer = row.peers.iter().any(|peer| peer.store == store);
        let is_held = held.iter().any(|row| (row.region, row.store) == (region, store));
        if !has_peer && !is_held {
            break;
        }
        if has_peer && !is_held {
            // Placement has already added the peer.
            return Answer::of(&done, format!("region {region} has a new peer on store {store}\n"));
        }
        if Instant::now() >= deadline {
            return Err(anyhow!(
                "the peer of region {region} on store {store} is not removed yet: see ctl operators --history"
            ));
        }
        std::thread::sleep(LOOK);
    }
    // If placement has begun to add the peer, this is refused.
    let added = ask_of(client, region, &RegionRequest::AddPeer { to: store });
    let text = match added {
        Ok(_) => format!("region {region} gets a new peer on store {store}\n"),
        Err(error) => {
            format!("the peer of region {region} on store {store} is removed; a new one is up to placement: {error}\n")
        }
    };
    Answer::of(&done, text)
}

fn table(rows: &[QuarantineRow]) -> Table {
    let mut table = Table::new([
        ("region", Align::Right),
        ("store", Align::Right),
        ("entry", Align::Right),
        ("cause", Align::Left),
        ("reads", Align::Left),
        ("what", Align::Left),
        ("error", Align::Left),
    ]);
    for row in rows {
        table.row([
            row.region.to_string(),
            row.store.to_string(),
            row.index.to_string(),
            row.cause.clone(),
            if row.read_only { "READONLY" } else { "none" }.to_owned(),
            row.what.clone(),
            row.error.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarantined_peer_is_shown_with_its_entry() {
        let row = QuarantineRow {
            region: 3,
            store: 1,
            index: 77,
            cause: "entry".into(),
            read_only: false,
            what: "set \"k\"".into(),
            error: "panic: no".into(),
        };
        let lines = table(&[row]).lines();
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words.join(" "), "3 1 77 entry none set \"k\" panic: no");
    }
}
