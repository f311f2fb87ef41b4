//! `steelyard ctl token`: bearer tokens of the admin endpoint.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use client::admin::{AdminClient, TokenRequest, TokensQuery};
use client::table::{duration, Align, Table};

use super::audit::word;
use super::{ask, unix_ms, Answer};

const DAY_SECONDS: u64 = 24 * 60 * 60;

#[derive(clap::Subcommand)]
pub enum TokenCommand {
    /// Create a token that stands for a user, and print it. It is shown this once
    Create {
        name: String,
        /// The user, whose rules decide what the token may do
        #[arg(long, value_name = "USER")]
        user: String,
        /// Days until it expires. Without this option it is valid until it is revoked
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=36_525))]
        days: Option<u64>,
        /// Write the token to this file, which only its owner can read, instead of printing it
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List the tokens
    List,
    /// Revoke a token. Every store that reaches the cluster refuses it within a second
    Revoke { name: String },
}

pub fn answer(client: &AdminClient, command: TokenCommand) -> anyhow::Result<Answer> {
    match command {
        TokenCommand::Create { name, user, days, file } => {
            let seconds = days.map(|days| days * DAY_SECONDS);
            let mut done = ask(client, &TokenRequest::Create { name, user, seconds })?;
            let Some(path) = file else {
                let text = done.token.clone().unwrap_or_default() + "\n";
                return Answer::of(&done, text);
            };
            let token = done.token.take().unwrap_or_default();
            let written = durable::write_with_mode(&path, token, 0o600);
            written.with_context(|| {
                let name = &done.name;
                format!("the token {name} cannot be written to {}: revoke it", path.display())
            })?;
            Answer::of(&done, format!("the token {} is in {}\n", done.name, path.display()))
        }
        TokenCommand::List => {
            let rows = ask(client, &TokensQuery {})?;
            let columns = [
                ("token", Align::Left),
                ("user", Align::Left),
                ("created", Align::Right),
                ("expires", Align::Right),
            ];
            let (mut table, now) = (Table::new(columns), unix_ms());
            let ago = |at: u64| format!("{} ago", duration(Duration::from_millis(now.saturating_sub(at))));
            for row in &rows {
                let expires = match row.expires_unix_ms {
                    None => "never".to_owned(),
                    Some(at) if at > now => format!("in {}", duration(Duration::from_millis(at - now))),
                    Some(at) => ago(at),
                };
                table.row([row.name.clone(), word(&row.user), ago(row.created_unix_ms), expires]);
            }
            let text = if rows.is_empty() { "no tokens\n".to_owned() } else { table.to_string() };
            Answer::of(&rows, text)
        }
        TokenCommand::Revoke { name } => {
            let done = ask(client, &TokenRequest::Revoke { name })?;
            Answer::of(&done, format!("the token {} is revoked\n", done.name))
        }
    }
}
