//! `steelyard ctl`: asks any store's admin endpoint about the whole cluster, or changes something.

mod audit;
mod check;
mod encryption;
mod join_token;
mod probe;
mod quarantine;
mod recover;
mod tables;
mod tls;
mod token;
mod versions;

use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, Context};
use client::admin::{
    catch_up, AcceptLossRequest, AcceptedRow, AdminClient, AdminFailure, AuditQuery, ConfigQuery,
    ConfigRequest, ConfigRow, DeviceRequest, ExplainQuery, ExplainStoreQuery, FlashQuery, LeaderRequest,
    Operation, OperatorsQuery, PolicyQuery, PolicyRequest, RegionRequest, RegionsQuery, StatusQuery,
    StoreRequest, StoresQuery, VersionsQuery, WindowsQuery, AUDIT_LAST,
};
use serde::Serialize;
use serde_json::Value;
use server::side_port;

use tables::{
    catch_up_table, config_table, flash_table, operators_table, regions_table, status_text, stores_table,
    windows_table,
};

#[derive(clap::Args)]
pub struct Ctl {
    /// Admin endpoint of any store, HOST:PORT [default: 127.0.0.1:27000, or 127.0.0.1:26379 if
    /// nothing listens there]
    #[arg(long, value_name = "ADDRESS", global = true)]
    admin: Option<Endpoint>,
    /// Client port of a local store, whose admin port is derived from it
    #[arg(long, value_name = "PORT", conflicts_with = "admin", global = true)]
    port: Option<u16>,
    /// Speak TLS, with the certificates of a directory as `ctl tls init` makes it [default: the
    /// variable STEELYARD_TLS]
    #[arg(long, value_name = "DIR", global = true)]
    tls: Option<PathBuf>,
    /// Print the store's own JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// The addresses of a host, with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint(Vec<SocketAddr>);

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        let found = text.to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
        match found {
            Ok(addresses) if !addresses.is_empty() => Ok(Endpoint(addresses)),
            Ok(_) => Err(format!("'{text}' has no address")),
            Err(error) => Err(format!("'{text}' is no HOST:PORT: {error}")),
        }
    }
}

#[derive(clap::Subcommand)]
enum Command {
    /// The stores: device, capability, leaders, regions, load
    Stores {
        /// Show the use of RAM and flash instead: hit ratio, dirty and clean bytes, reads from
        /// flash, compaction debt, bytes written to the device
        #[arg(long)]
        flash: bool,
    },
    /// The regions: slots, leader, peers, size, load
    Regions {
        /// Show the proposals under way instead: the commit index, the last entry that another peer
        /// has acknowledged, the last one in the leader's log, the next unused index
        #[arg(long)]
        window: bool,
    },
    /// Show how far the stores' peers are behind their leaders
    CatchUp,
    /// Show the placement policy, or change it
    Policy { name: Option<String> },
    /// Show the cluster's other settings, or change one
    Config {
        name: Option<String>,
        #[arg(allow_negative_numbers = true)]
        value: Option<String>,
    },
    /// Move a region's leader to a store that holds a peer
    MoveLeader { region: u64, store: u64 },
    /// List stores, let one leave, or set its weights
    #[command(subcommand)]
    Store(StoreCommand),
    /// Add a peer of a region on a store
    AddPeer { region: u64, store: u64 },
    /// Remove the peer of a region from a store
    RemovePeer { region: u64, store: u64 },
    /// Move the peer of a region from one store to another
    MovePeer { region: u64, from: u64, to: u64 },
    /// Split a region in two, at the slot in the middle of its data
    Split { region: u64 },
    /// Merge a region into its neighbour
    Merge { region: u64, into: u64 },
    /// Compare the replicas of every region, or of one, by checksums of their rows
    Check {
        #[arg(long, value_name = "REGION")]
        region: Option<u64>,
    },
    /// Recover regions whose majority of voters is lost for good: shows a plan, and acts with --yes
    Recover(recover::Recover),
    /// Show the cluster's version, the versions that the stores support, and what delays a newer
    /// one
    Versions,
    /// List peers that do not execute their log, and decide about them
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// Propose an entry that fails when it is executed, for tests, on stores with
    /// enable-debug-command
    #[command(hide = true)]
    FailEntry(quarantine::Fail),
    /// Explain the placement of a region's leader, or of a store
    Explain(Subject),
    /// Show operators in flight
    Operators {
        /// Also show operators that have ended
        #[arg(long)]
        history: bool,
    },
    /// Slow a store's emulated device by a factor; 1 restores it
    Device {
        store: u64,
        #[arg(long, value_name = "FACTOR")]
        slow: f64,
    },
    /// Measure a store's device again while it serves, or every store's in turn
    Probe(Probed),
    /// Set a store's weights, as `store pin` does
    Pin {
        store: u64,
        #[command(flatten)]
        weights: Weights,
    },
    /// Let the addressed store's peers of regions without a leader take part again, although they
    /// may have lost writes when the machine crashed (fsync everysec and no). Lost writes cannot be
    /// restored
    AcceptLoss {
        /// Only for the peer of this region
        #[arg(long, value_name = "REGION")]
        region: Option<u64>,
    },
    /// Make a token with which stores can join until it expires. It is made from the password of
    /// the cluster, which the configuration file of a store has
    JoinToken(join_token::Token),
    /// Create, list and revoke bearer tokens for the admin endpoint, as scrapers of metrics use
    /// them
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Show the last changes that users asked for: when, who, what, and the outcome
    Audit {
        /// Number of changes to show, the newest ones
        #[arg(long, value_name = "N", default_value_t = AUDIT_LAST)]
        last: usize,
    },
    /// Make certificates for development
    #[command(subcommand)]
    Tls(tls::TlsCommand),
    /// Show and change the keys with which stores encrypt their files
    #[command(subcommand)]
    Encryption(encryption::EncryptionCommand),
    /// Show one store: process, stages, counters
    Status,
}

#[derive(clap::Subcommand)]
enum StoreCommand {
    /// Show the stores, as `ctl stores` does
    List,
    /// Move all leaders and peers away from a store, and then remove the store
    Drain {
        store: u64,
        /// Cancel the drain: the store stays
        #[arg(long)]
        cancel: bool,
    },
    /// Remove an empty store, or one that is lost for good, from the list of stores
    Remove { store: u64 },
    /// Set weights that replace the measured ones
    Pin {
        store: u64,
        #[command(flatten)]
        weights: Weights,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Subject {
    region: Option<u64>,
    /// Explain a store instead of a region: its data and leaders, and their targets
    #[arg(long, value_name = "STORE")]
    store: Option<u64>,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Probed {
    store: Option<u64>,
    /// Every store of the cluster, one after the other
    #[arg(long)]
    all: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct Weights {
    /// Weight for its share of the data, instead of the measured bytes per second
    #[arg(long, value_name = "WEIGHT", alias = "data")]
    data_weight: Option<f64>,
    /// Weight for its rank as a leader's store, instead of the measured bytes per second
    #[arg(long, value_name = "WEIGHT", alias = "leader")]
    leader_weight: Option<f64>,
    /// Use the measured weights again
    #[arg(long, conflicts_with_all = ["data_weight", "leader_weight"])]
    clear: bool,
}

/// Time limit of a request. A change may take a leader transfer; an answer comes within the store's
/// own request timeout.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of a look whether something listens at an address.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// The client ports of local stores that are asked if no store is named: that of the examples, and
/// that of `steelyard serve` without options.
const CLIENT_PORTS: [u16; 2] = [7000, 6379];

/// Time limit of a check. Peers read all rows of their region at a bounded rate; the stores give up
/// earlier.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3600);

/// The output of a command: the same data for programs and for human readers.
struct Answer {
    json: Value,
    text: String,
}

impl Answer {
    fn of<T: Serialize>(data: &T, text: impl Into<String>) -> anyhow::Result<Answer> {
        Ok(Answer { json: serde_json::to_value(data)?, text: text.into() })
    }
}

impl Ctl {
    /// Returns the address of the store to ask.
    fn address(&self) -> anyhow::Result<SocketAddr> {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, side_port(port, 20_000)));
        match (&self.admin, self.port) {
            (Some(Endpoint(addresses)), _) => Ok(listening(addresses).unwrap_or(addresses[0])),
            (None, Some(port)) => Ok(local(port)),
            (None, None) => of_local_store(CLIENT_PORTS.map(local)),
        }
    }
}

/// Returns the first of the addresses at which something listens. The only one is not looked at.
fn listening(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let listens = |address: &SocketAddr| TcpStream::connect_timeout(address, LOOK_TIMEOUT).is_ok();
    match addresses {
        [only] => Some(*only),
        several => several.iter().copied().find(listens),
    }
}

/// Returns the first of the addresses at which something listens, and says so if it is not the
/// first one.
fn of_local_store(addresses: [SocketAddr; 2]) -> anyhow::Result<SocketAddr> {
    let [first, second] = addresses;
    let found = listening(&addresses).ok_or_else(|| {
        anyhow!(
            "no store listens at {first} or {second}: name one with --port CLIENT-PORT or --admin HOST:PORT"
        )
    })?;
    if found == second {
        eprintln!("steelyard: nothing listens at {first}, so the store at {second} is asked");
    }
    Ok(found)
}

pub fn run(ctl: Ctl) -> anyhow::Result<()> {
    if let Command::JoinToken(token) = ctl.command {
        return show(join_token::answer(token)?, ctl.json);
    }
    if let Command::Tls(command) = ctl.command {
        return show(tls::answer(command)?, ctl.json);
    }
    if let Some(dir) = &ctl.tls {
        client::tls::use_directory(dir).map_err(anyhow::Error::msg)?;
    }
    let address = ctl.address()?;
    let client = AdminClient::new(address, TIMEOUT);
    if let Command::Probe(Probed { all: true, .. }) = ctl.command {
        return probe::all(&client, ctl.json, |text| print(&text));
    }
    if let Command::Check { region } = ctl.command {
        let client = AdminClient::new(address, CHECK_TIMEOUT);
        return check::run(&client, region, ctl.json, |text| print(&text));
    }
    if let Command::Recover(order) = ctl.command {
        let client = AdminClient::new(address, recover::TIMEOUT);
        return recover::run(&client, order, ctl.json, |text| print(&text));
    }
    show(answer(&client, ctl.command)?, ctl.json)
}

fn show(answer: Answer, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => print(&(serde_json::to_string_pretty(&answer.json)? + "\n")),
        false => print(&answer.text),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader (head, less) has closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn answer(client: &AdminClient, command: Command) -> anyhow::Result<Answer> {
    match command {
        Command::Stores { flash: true } => {
            let rows = ask(client, &FlashQuery {})?;
            Answer::of(&rows, flash_table(&rows).to_string())
        }
        Command::Stores { flash: false } | Command::Store(StoreCommand::List) => {
            let rows = ask(client, &StoresQuery {})?;
            Answer::of(&rows, stores_table(&rows).to_string())
        }
        Command::Regions { window: true } => {
            let rows = ask(client, &WindowsQuery {})?;
            Answer::of(&rows, windows_table(&rows).to_string())
        }
        Command::Regions { window: false } => {
            let rows = ask(client, &RegionsQuery {})?;
            Answer::of(&rows, regions_table(&rows).to_string())
        }
        Command::CatchUp => {
            let rows = catch_up(&ask(client, &RegionsQuery {})?);
            Answer::of(&rows, catch_up_table(&rows).to_string())
        }
        Command::Policy { name: None } => {
            let row = ask(client, &PolicyQuery {})?;
            Answer::of(&row, format!("{}\n", row.policy))
        }
        Command::Policy { name: Some(name) } => {
            let done = ask(client, &PolicyRequest { policy: name })?;
            Answer::of(&done, format!("the policy is {}\n", done.policy))
        }
        Command::Config { name: None, .. } => {
            let rows = ask(client, &ConfigQuery {})?;
            Answer::of(&rows, config_table(&rows).to_string())
        }
        Command::Config { name: Some(name), value: None } => {
            let rows = ask(client, &ConfigQuery {})?;
            let row = setting(&rows, &name)?;
            Answer::of(row, format!("{}\n", row.value))
        }
        Command::Config { name: Some(name), value: Some(value) } => {
            let done = ask(client, &ConfigRequest { name, value })?;
            Answer::of(&done, format!("{} is {}\n", done.name, done.value))
        }
        Command::MoveLeader { region, store } => {
            let done = ask_of(client, region, &LeaderRequest { store })?;
            Answer::of(&done, format!("region {region} moves to store {store}\n"))
        }
        Command::Store(StoreCommand::Drain { store, cancel: false }) => {
            change_store(client, store, StoreRequest::Drain, "is being drained")
        }
        Command::Store(StoreCommand::Drain { store, cancel: true }) => {
            change_store(client, store, StoreRequest::Keep, "stays")
        }
        Command::Store(StoreCommand::Remove { store }) => {
            change_store(client, store, StoreRequest::Remove, "is no member any more")
        }
        Command::Pin { store, weights } | Command::Store(StoreCommand::Pin { store, weights }) => {
            let Weights { data_weight, leader_weight, clear } = weights;
            let text = if clear { "counts as it is measured" } else { "is weighed by hand" };
            change_store(client, store, StoreRequest::Pin { data_weight, leader_weight }, text)
        }
        Command::AddPeer { region, store } => {
            let text = format!("gets a peer on store {store}");
            change_region(client, region, RegionRequest::AddPeer { to: store }, &text)
        }
        Command::RemovePeer { region, store } => {
            let text = format!("loses its peer on store {store}");
            change_region(client, region, RegionRequest::RemovePeer { from: store }, &text)
        }
        Command::MovePeer { region, from, to } => {
            let text = format!("moves its peer from store {from} to store {to}");
            change_region(client, region, RegionRequest::MovePeer { from, to }, &text)
        }
        Command::Split { region } => change_region(client, region, RegionRequest::Split, "is being split"),
        Command::Merge { region, into } => {
            let text = format!("is being merged into region {into}");
            change_region(client, region, RegionRequest::Merge { into }, &text)
        }
        Command::Check { .. } | Command::Recover(_) | Command::Tls(_) | Command::JoinToken(_) => {
            unreachable!("run() does it")
        }
        Command::Quarantine(command) => quarantine::answer(client, command),
        Command::FailEntry(fail) => quarantine::fail(client, fail),
        Command::Explain(Subject { region, store }) => {
            let text = |explanation: &str| explanation.trim_end().to_owned() + "\n";
            if let Some(store) = store {
                let row = ask_of(client, store, &ExplainStoreQuery {})?;
                return Answer::of(&row, text(&row.explanation));
            }
            let row = ask_of(client, region.expect("one of them is required"), &ExplainQuery {})?;
            Answer::of(&row, text(&row.explanation))
        }
        Command::Operators { history } => {
            let rows = ask(client, &OperatorsQuery { history })?;
            let text = match rows.is_empty() {
                true => "no operators\n".to_owned(),
                false => operators_table(&rows, unix_ms()).to_string(),
            };
            Answer::of(&rows, text)
        }
        Command::Device { store, slow } => {
            let done = ask(&admin_of(client, store, TIMEOUT)?, &DeviceRequest { slow })?;
            let text = match slow == 1.0 {
                true => format!("store {store}'s device runs at its profile's speed\n"),
                false => format!("store {store}'s device is slowed by {slow}\n"),
            };
            Answer::of(&done, text)
        }
        Command::Probe(Probed { store, .. }) => {
            let row = probe::one(client, store.expect("run() does all of them"))?;
            Answer::of(&row, probe::text(&row))
        }
        Command::AcceptLoss { region } => {
            let rows = ask(client, &AcceptLossRequest { region })?;
            let line = |row: &AcceptedRow| {
                let AcceptedRow { store, region, last, .. } = row;
                format!("store {store}'s peer of region {region} takes part again, with a log that ends at {last}\n")
            };
            Answer::of(&rows, rows.iter().map(line).collect::<String>())
        }
        Command::Token(command) => token::answer(client, command),
        Command::Encryption(command) => encryption::answer(client, command),
        Command::Audit { last } => {
            let rows = ask(client, &AuditQuery { last })?;
            Answer::of(&rows, audit::text(&rows))
        }
        Command::Versions => {
            let row = ask(client, &VersionsQuery {})?;
            Answer::of(&row, versions::text(&row))
        }
        Command::Status => {
            let status = ask(client, &StatusQuery {})?;
            Answer::of(&status, status_text(&status))
        }
    }
}

fn setting<'a>(rows: &'a [ConfigRow], name: &str) -> anyhow::Result<&'a ConfigRow> {
    let known = || rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join(", ");
    let row = rows.iter().find(|row| row.name == name);
    row.ok_or_else(|| anyhow!("unknown setting '{name}': the settings are {}", known()))
}

/// Returns the client of the store itself, for requests that only that store can handle.
fn admin_of(client: &AdminClient, store: u64, timeout: Duration) -> anyhow::Result<AdminClient> {
    let stores = ask(client, &StoresQuery {})?;
    let row = stores.iter().find(|row| row.id == store);
    let row = row.ok_or_else(|| anyhow!("there is no store {store}"))?;
    let address: SocketAddr = row.admin.parse().context("the store's admin address")?;
    Ok(AdminClient::new(address, timeout))
}

fn change_region(
    client: &AdminClient,
    region: u64,
    change: RegionRequest,
    text: &str,
) -> anyhow::Result<Answer> {
    let done = ask_of(client, region, &change)?;
    Answer::of(&done, format!("region {region} {text}\n"))
}

fn change_store(
    client: &AdminClient,
    store: u64,
    change: StoreRequest,
    text: &str,
) -> anyhow::Result<Answer> {
    let done = ask_of(client, store, &change)?;
    Answer::of(&done, format!("store {store} {text}\n"))
}

fn ask<O: Operation<Of = ()>>(client: &AdminClient, operation: &O) -> anyhow::Result<O::Reply> {
    client.ask(operation).map_err(explained)
}

fn ask_of<O: Operation<Of = u64>>(client: &AdminClient, of: u64, operation: &O) -> anyhow::Result<O::Reply> {
    client.ask_of(of, operation).map_err(explained)
}

fn explained(failure: AdminFailure) -> anyhow::Error {
    match failure {
        AdminFailure::Answered { message, .. } => anyhow!(message),
        AdminFailure::Silent(message) => {
            anyhow!(
                "{message} (is a store running there, with TLS or without? see --admin, --port and --tls)"
            )
        }
    }
}

pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ctl: Ctl,
    }

    #[test]
    fn a_region_is_explained_or_a_store_and_not_both() {
        let parse = |words: &[&str]| {
            let line = Line::try_parse_from([&["ctl", "explain"][..], words].concat());
            line.map(|line| line.ctl.command)
        };
        let region = parse(&["7"]);
        assert!(matches!(region, Ok(Command::Explain(Subject { region: Some(7), store: None }))));
        let store = parse(&["--store", "3"]);
        assert!(matches!(store, Ok(Command::Explain(Subject { region: None, store: Some(3) }))));
        for words in [&["7", "--store", "3"][..], &["store:3"], &[]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_store_is_probed_or_all_are() {
        let parse = |words: &[&str]| {
            let line = Line::try_parse_from([&["ctl", "probe"][..], words].concat());
            line.map(|line| line.ctl.command)
        };
        assert!(matches!(parse(&["7"]), Ok(Command::Probe(Probed { store: Some(7), all: false }))));
        assert!(matches!(parse(&["--all"]), Ok(Command::Probe(Probed { store: None, all: true }))));
        assert!(parse(&[]).is_err() && parse(&["7", "--all"]).is_err());
    }

    #[test]
    fn a_setting_is_found_or_the_settings_are_named() {
        let row = |name: &str| ConfigRow { name: name.into(), value: "3".into(), note: "copies".into() };
        let rows = [row("replicas"), row("meta-replicas")];
        assert_eq!(setting(&rows, "meta-replicas").unwrap().name, "meta-replicas");
        let error = setting(&rows, "replica").unwrap_err().to_string();
        assert_eq!(error, "unknown setting 'replica': the settings are replicas, meta-replicas");
    }

    #[test]
    fn an_endpoint_is_an_address_or_the_name_of_a_host() {
        let Endpoint(found) = "localhost:24400".parse::<Endpoint>().unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 24400));
        let loopback = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 5));
        assert_eq!("[::1]:5".parse::<Endpoint>(), Ok(Endpoint(vec![loopback])));
        for text in ["localhost", "24400", "127.0.0.1:x", ""] {
            assert!(text.parse::<Endpoint>().unwrap_err().contains("is no HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn the_store_that_listens_is_asked() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (open, closed) = (port.local_addr().unwrap(), SocketAddr::from(([127, 0, 0, 1], 1)));
        assert_eq!(of_local_store([closed, open]).unwrap(), open);
        let error = of_local_store([closed, closed]).unwrap_err().to_string();
        assert!(error.contains("127.0.0.1:1 or") && error.contains("--port"), "{error}");
        // A store that is named is asked in any case.
        assert_eq!(listening(&[closed]), Some(closed));
        let named = Line::try_parse_from(["ctl", "--port", "6379", "stores"]).unwrap();
        assert_eq!(named.ctl.address().unwrap(), SocketAddr::from(([127, 0, 0, 1], 26379)));
        let named = Line::try_parse_from(["ctl", "--admin", "127.0.0.1:1", "stores"]).unwrap();
        assert_eq!(named.ctl.address().unwrap(), closed);
    }

    #[test]
    fn a_store_that_is_not_there_is_an_error_that_names_the_address() {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = AdminClient::new(nobody, Duration::from_millis(500));
        let error = answer(&client, Command::Stores { flash: false }).err().unwrap().to_string();
        assert!(error.contains(&nobody.to_string()) && error.contains("--admin"), "{error}");
    }
}
