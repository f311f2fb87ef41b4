//! `steelyard ctl join-token`: a token with which stores can join for some time.

use std::path::PathBuf;

use anyhow::{anyhow, Context};
use serde_json::json;
use server::JoinToken;

use super::Answer;
use crate::serve::Options;

#[derive(clap::Args)]
pub struct Token {
    /// Configuration file of a store of the cluster, with its requirepass
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Minutes until the token expires
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=527_040))]
    minutes: u64,
}

pub fn answer(Token { config, minutes }: Token) -> anyhow::Result<Answer> {
    let options = Options::read(&config).map_err(anyhow::Error::msg)?;
    let password = options.requirepass.filter(|password| !password.is_empty());
    let password = password.ok_or_else(|| {
        anyhow!("{} has no requirepass: without a password any store can join", config.display())
    })?;
    let token = JoinToken::issue(&password, minutes * 60).context("a token cannot be made")?.text();
    Ok(Answer { json: json!({ "token": token, "minutes": minutes }), text: token + "\n" })
}
