//! `steelyard ctl encryption`: the keys of stores' files.

use client::admin::{AdminClient, EncryptionQuery, EncryptionRequest, EncryptionRow, StoresQuery};

use super::{admin_of, ask, Answer, TIMEOUT};

#[derive(clap::Subcommand)]
pub enum EncryptionCommand {
    /// Show the data keys of a store, or of every store, with the bytes of the files that use them
    Status {
        #[arg(long, value_name = "STORE")]
        store: Option<u64>,
    },
    /// Make a new data key for the files of a store, and rewrite old files in the background
    Rotate {
        #[arg(long, value_name = "STORE")]
        store: u64,
    },
    /// Seal the data keys of a store with its master key as it is now, after it was replaced
    Rewrap {
        #[arg(long, value_name = "STORE")]
        store: u64,
    },
}

pub fn answer(client: &AdminClient, command: EncryptionCommand) -> anyhow::Result<Answer> {
    let change = |store, request| ask(&admin_of(client, store, TIMEOUT)?, &request);
    let rows = match command {
        EncryptionCommand::Rotate { store } => vec![change(store, EncryptionRequest::Rotate)?],
        EncryptionCommand::Rewrap { store } => vec![change(store, EncryptionRequest::Rewrap)?],
        EncryptionCommand::Status { store } => {
            let members = match store {
                Some(store) => vec![store],
                None => {
                    let rows = ask(client, &StoresQuery {})?;
                    rows.iter().filter(|row| row.state == "up").map(|row| row.id).collect()
                }
            };
            let status = |store| ask(&admin_of(client, store, TIMEOUT)?, &EncryptionQuery {});
            members.into_iter().map(status).collect::<anyhow::Result<_>>()?
        }
    };
    Answer::of(&rows, rows.iter().map(text).collect::<String>())
}

fn text(row: &EncryptionRow) -> String {
    let Some(active) = row.active else { return format!("store {}: not encrypted\n", row.store) };
    let keys: Vec<String> =
        row.keys.iter().map(|key| format!("key {}: {} bytes", key.number, key.bytes)).collect();
    let plain = match row.plain_bytes {
        0 => String::new(),
        bytes => format!("; not encrypted yet: {bytes} bytes"),
    };
    format!("store {}: new files get key {active}; {}{plain}\n", row.store, keys.join(", "))
}

#[cfg(test)]
mod tests {
    use client::admin::KeyRow;

    use super::*;

    #[test]
    fn a_store_is_shown_with_what_is_still_to_be_rewritten() {
        let mut row = EncryptionRow { store: 2, ..EncryptionRow::default() };
        assert_eq!(text(&row), "store 2: not encrypted\n");
        row.active = Some(3);
        row.keys = vec![KeyRow { number: 1, bytes: 7 }, KeyRow { number: 3, bytes: 90 }];
        assert_eq!(text(&row), "store 2: new files get key 3; key 1: 7 bytes, key 3: 90 bytes\n");
        row.plain_bytes = 5;
        assert!(text(&row).ends_with("; not encrypted yet: 5 bytes\n"));
    }
}
