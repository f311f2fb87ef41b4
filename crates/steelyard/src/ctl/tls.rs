//! `steelyard ctl tls`: certificates for development.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use serde_json::json;

use super::Answer;
use crate::authority::{Authority, Owner, Terms};

#[derive(clap::Subcommand)]
pub enum TlsCommand {
    /// Make an authority, and sign certificates for stores, clients and stores that will join. In a
    /// directory that has an authority, sign them again
    Init(Init),
}

#[derive(clap::Args)]
pub struct Init {
    /// Directory of the files
    #[arg(long, value_name = "DIR", default_value = "tls")]
    dir: PathBuf,
    /// Name of the cluster, as in --tls-cluster-name of the stores
    #[arg(long, value_name = "NAME", default_value = "default")]
    cluster_name: String,
    /// Number of stores that get certificates, from store 0 on
    #[arg(long, value_name = "N", default_value_t = 3)]
    stores: u64,
    /// Addresses and host names of the stores for clients, in addition to those of loopback
    #[arg(long, value_name = "IP|NAME", value_delimiter = ',')]
    host: Vec<String>,
    /// Users of clients that get certificates, for tls-auth-clients-user CN
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    user: Vec<String>,
    /// Days until the certificates expire
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
}

pub fn answer(command: TlsCommand) -> anyhow::Result<Answer> {
    let TlsCommand::Init(Init { dir, cluster_name, stores, host, user, days }) = command;
    ensure!(
        server::is_cluster_name(&cluster_name),
        "a cluster's name has 1 to 63 letters a to z, digits and hyphens"
    );
    let is_file_name = |name: &String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
    };
    if let Some(name) = user.iter().find(|name| !is_file_name(name)) {
        bail!("user '{name}': a file is named after it, so it must have 1 to 64 letters, digits and -_.@");
    }
    let authority = Authority::open(&dir)?;
    let terms = Terms { cluster: cluster_name, hosts: host, days };
    let owners = (0..stores).map(Owner::Store).chain([Owner::AnyStore, Owner::Client]);
    let owners = owners.chain(user.iter().map(|name| Owner::User(name)));
    let mut text = format!("authority  {}\n", authority.certificate_file().display());
    let mut json = vec![json!({ "owner": "authority", "certificate": authority.certificate_file() })];
    for owner in owners {
        let files = authority.sign(owner, &terms)?;
        let name = match owner {
            Owner::Store(id) => format!("store {id}"),
            Owner::AnyStore => "any store".into(),
            Owner::Client => "client".into(),
            Owner::User(name) => format!("user {name}"),
        };
        let _ = writeln!(text, "{name:9}  {}  {}", files.certificate.display(), files.key.display());
        json.push(json!({ "owner": name, "certificate": files.certificate, "key": files.key }));
    }
    let _ = write!(
        text,
        "store N: --tls-cluster yes --tls-cluster-name {} --tls-ca-cert-file {} --tls-cert-file {dir}/store-N.crt \
         --tls-key-file {dir}/store-N.key\nctl, bench: --tls {dir}\n",
        terms.cluster,
        authority.certificate_file().display(),
        dir = dir.display(),
    );
    Ok(Answer { json: json.into(), text })
}
