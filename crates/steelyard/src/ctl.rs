//! `steelyard ctl`: asks any store's admin endpoint about the whole cluster, or changes something.

mod check;
mod quarantine;
mod recover;
mod versions;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, Context};
use client::admin::{
    AcceptLossRequest, AcceptedRow, AdminClient, AdminFailure, ConfigQuery, ConfigRequest, ConfigRow,
    DeviceRequest, ExplainQuery, ExplainStoreQuery, LeaderRequest, Operation, OperatorRow, OperatorsQuery,
    PolicyQuery, PolicyRequest, ProbeRequest, ProbeRow, RegionRequest, RegionRow, RegionsQuery, StatusQuery,
    StoreRequest, StoreRow, StoreStatus, StoresQuery, VersionsQuery,
};
use client::table::{bytes, count, duration, micros, Align, Table};
use serde::Serialize;
use serde_json::Value;
use server::side_port;

#[derive(clap::Args)]
pub struct Ctl {
    /// Admin endpoint of any store [default: 127.0.0.1:27000]
    #[arg(long, value_name = "ADDRESS", global = true)]
    admin: Option<SocketAddr>,
    /// Client port of a local store, whose admin port is derived from it
    #[arg(long, value_name = "PORT", conflicts_with = "admin", global = true)]
    port: Option<u16>,
    /// Print the store's own JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// The stores: device, capability, leaders, regions, load
    Stores,
    /// The regions: slots, leader, peers, size, load
    Regions,
    /// Show the placement policy, or change it
    Policy { name: Option<String> },
    /// Show the cluster's other settings, or change one
    Config { name: Option<String>, value: Option<String> },
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

/// Time limit of a probe. A probe ends in about 7 s, but other stores of the host may have the
/// turn, and a slow device may delay its end.
const PROBE_TIMEOUT: Duration = Duration::from_secs(150);

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

pub fn run(ctl: Ctl) -> anyhow::Result<()> {
    let address = ctl.admin.unwrap_or_else(|| {
        let port = side_port(ctl.port.unwrap_or(7000), 20_000);
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    });
    let client = AdminClient::new(address, TIMEOUT);
    if let Command::Probe(Probed { all: true, .. }) = ctl.command {
        return probe_all(&client, ctl.json, |text| print(&text));
    }
    if let Command::Check { region } = ctl.command {
        let client = AdminClient::new(address, CHECK_TIMEOUT);
        return check::run(&client, region, ctl.json, |text| print(&text));
    }
    if let Command::Recover(order) = ctl.command {
        let client = AdminClient::new(address, recover::TIMEOUT);
        return recover::run(&client, order, ctl.json, |text| print(&text));
    }
    let answer = answer(&client, ctl.command)?;
    let text = match ctl.json {
        true => serde_json::to_string_pretty(&answer.json)? + "\n",
        false => answer.text,
    };
    print(&text)
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
        Command::Stores | Command::Store(StoreCommand::List) => {
            let rows = ask(client, &StoresQuery {})?;
            Answer::of(&rows, stores_table(&rows).to_string())
        }
        Command::Regions => {
            let rows = ask(client, &RegionsQuery {})?;
            Answer::of(&rows, regions_table(&rows).to_string())
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
        Command::Check { .. } | Command::Recover(_) => unreachable!("run() does it"),
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
            let row = probe(client, store.expect("run() does all of them"))?;
            Answer::of(&row, probe_text(&row))
        }
        Command::AcceptLoss { region } => {
            let rows = ask(client, &AcceptLossRequest { region })?;
            let line = |row: &AcceptedRow| {
                let AcceptedRow { store, region, last, .. } = row;
                format!("store {store}'s peer of region {region} takes part again, with a log that ends at {last}\n")
            };
            Answer::of(&rows, rows.iter().map(line).collect::<String>())
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

fn probe(client: &AdminClient, store: u64) -> anyhow::Result<ProbeRow> {
    ask(&admin_of(client, store, PROBE_TIMEOUT)?, &ProbeRequest {})
}

/// Probes every store in turn and prints each result when it arrives. A store that cannot be probed
/// is named, and the others are probed nevertheless.
fn probe_all(
    client: &AdminClient,
    as_json: bool,
    say: impl Fn(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stores = ask(client, &StoresQuery {})?;
    let members: Vec<u64> = stores.iter().filter(|row| row.state != "removed").map(|row| row.id).collect();
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for &store in &members {
        match probe(client, store) {
            Ok(row) => {
                if !as_json {
                    say(probe_text(&row))?;
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
            anyhow!("{message} (is a store running there? see --admin and --port)")
        }
    }
}

use Align::{Left, Right};

fn config_table(rows: &[ConfigRow]) -> Table {
    let mut table = Table::new([("setting", Left), ("value", Left), ("what it is", Left)]);
    for row in rows {
        table.row([row.name.clone(), row.value.clone(), row.note.clone()]);
    }
    table
}

/// Quarantined peers, pinned weights and shared devices have columns only if there are any.
pub fn stores_table(rows: &[StoreRow]) -> Table {
    let pinned = rows.iter().any(|row| row.data_weight.is_some() || row.leader_weight.is_some());
    let columns = [
        ("store", Right),
        ("state", Left),
        ("client", Left),
        ("device", Left),
        ("i/o", Right),
        ("sync", Right),
        ("capability", Right),
        ("counts", Right),
        ("leaders", Right),
        ("regions", Right),
        ("used", Right),
        ("capacity", Right),
        ("ops/s", Right),
        ("p99", Right),
        ("cpu", Right),
        ("clock", Right),
        ("heard", Right),
    ];
    let shared = rows.iter().any(|row| !row.shares_device_with.is_empty());
    let quarantined = rows.iter().any(|row| row.quarantined > 0);
    let more = [
        (quarantined, ("quarantined", Right)),
        (pinned, ("pinned", Left)),
        (shared, ("shares device with", Left)),
    ];
    let more = more.into_iter().filter_map(|(is_shown, column)| is_shown.then_some(column));
    let mut table = Table::new(columns.into_iter().chain(more));
    for row in rows {
        let cells = [
            row.id.to_string(),
            row.state.clone(),
            row.client.clone(),
            dash(&row.device),
            capability(row.io_bytes_per_s),
            sync(row.sync_us),
            estimate(row),
            correction(row),
            row.leaders.to_string(),
            row.regions.to_string(),
            bytes(row.used_bytes as f64),
            bytes(row.capacity_bytes as f64),
            count(row.ops_per_s),
            micros(row.p99_us as f64),
            cpu(row),
            row.clock_offset_ms.map_or("-".into(), clock_offset),
            row.heard_ms_ago.map_or("-".into(), |ms| format!("{ms} ms ago")),
        ];
        let held = quarantined.then(|| row.quarantined.to_string());
        let more = held.into_iter().chain(pinned.then(|| pins(row))).chain(shared.then(|| sharers(row)));
        table.row(cells.into_iter().chain(more));
    }
    table
}

fn sharers(row: &StoreRow) -> String {
    let stores: Vec<String> = row.shares_device_with.iter().map(u64::to_string).collect();
    dash(&stores.join(", "))
}

fn pins(row: &StoreRow) -> String {
    let told = [("data", row.data_weight), ("leader", row.leader_weight)];
    let told = told.iter().filter_map(|(what, weight)| Some(format!("{what} {}", (*weight)?)));
    dash(&told.collect::<Vec<_>>().join(", "))
}

fn regions_table(rows: &[RegionRow]) -> Table {
    let mut table = Table::new([
        ("region", Right),
        ("slots", Left),
        ("leader", Right),
        ("term", Right),
        ("peers", Left),
        ("epoch", Left),
        ("keys", Right),
        ("size", Right),
        ("reads/s", Right),
        ("misses/s", Right),
        ("writes/s", Right),
    ]);
    for row in rows {
        let slots = match (row.first_slot, row.last_slot) {
            (Some(first), Some(last)) => format!("{first}-{last}"),
            _ => "meta".into(),
        };
        let peers = row.peers.iter().map(|peer| match (peer.role.as_str(), peer.lag) {
            _ if peer.unclean => format!("{}(unclean)", peer.store),
            _ if peer.quarantined.is_some() => format!("{}(quarantined)", peer.store),
            (role @ ("learner" | "incoming" | "outgoing"), _) => format!("{}({role})", peer.store),
            (_, Some(lag)) if lag > 0 => format!("{}(-{lag})", peer.store),
            _ => peer.store.to_string(),
        });
        table.row([
            row.id.to_string(),
            slots,
            row.leader.map_or("none".into(), |leader| leader.to_string()),
            row.term.to_string(),
            peers.collect::<Vec<_>>().join(" "),
            format!(
                "{}.{}{}",
                row.epoch_conf_version,
                row.epoch_version,
                if row.joint { " joint" } else { "" }
            ),
            count(row.keys as f64),
            bytes(row.bytes as f64),
            count(row.read_rate),
            count(row.miss_rate),
            count(row.write_rate),
        ]);
    }
    table
}

fn operators_table(rows: &[OperatorRow], now_ms: u64) -> Table {
    let mut table = Table::new([
        ("region", Right),
        ("operator", Left),
        ("from", Right),
        ("to", Right),
        ("state", Left),
        ("started", Right),
        ("took", Right),
        ("reason", Left),
    ]);
    for row in rows {
        let since = |from: u64, to: u64| Duration::from_millis(to.saturating_sub(from));
        table.row([
            row.region.to_string(),
            row.kind.clone(),
            row.from.map_or("-".into(), |from| from.to_string()),
            row.to.map_or("-".into(), |to| to.to_string()),
            row.state.clone(),
            format!("{} ago", duration(since(row.started_unix_ms, now_ms))),
            row.finished_unix_ms
                .map_or("-".into(), |end| micros(since(row.started_unix_ms, end).as_micros() as f64)),
            row.reason.clone(),
        ]);
    }
    table
}

fn status_text(status: &StoreStatus) -> String {
    let mut text = format!(
        "store {}  version {}  pid {}  up {}\npolicy {}  fsync {}  cluster mode {}\n\n",
        status.store,
        status.version,
        status.pid,
        duration(Duration::from_secs(status.uptime_s)),
        status.policy,
        status.fsync,
        if status.cluster_enabled { "on" } else { "off" },
    );
    let mut stages = Table::new([
        ("stage", Left),
        ("count", Right),
        ("mean", Right),
        ("p50", Right),
        ("p99", Right),
        ("max", Right),
    ]);
    for row in &status.stages {
        stages.row([
            row.stage.clone(),
            count(row.count as f64),
            micros(row.mean_us),
            micros(row.p50_us as f64),
            micros(row.p99_us as f64),
            micros(row.max_us as f64),
        ]);
    }
    let mut counters = Table::new([("counter", Left), ("value", Right)]);
    for (name, value) in &status.counters {
        counters.row([name.clone(), count(*value as f64)]);
    }
    text += &format!("{stages}\n{counters}");
    text
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Formats a capability. Stores with unknown capability count as equal, with 1 byte/s.
fn capability(bytes_per_s: f64) -> String {
    match bytes_per_s {
        unknown if unknown <= 1.0 => "-".into(),
        known => format!("{}/s", bytes(known)),
    }
}

/// Returns the store's configured or measured capability, and the spread of a measured one.
fn estimate(row: &StoreRow) -> String {
    let text = capability(row.capability_bytes_per_s / row.correction.max(f64::MIN_POSITIVE));
    match row.capability_spread {
        spread if spread > 1.0 && text != "-" => format!("{text} ±{:.0}%", (spread - 1.0) * 100.0),
        _ => text,
    }
}

fn sync(us: f64) -> String {
    match us {
        none if none <= 0.0 => "-".to_owned(),
        known => micros(known),
    }
}

/// Formats the cores that the store uses, the cores that it may use, and the busy share of these.
fn cpu(row: &StoreRow) -> String {
    match (row.cpu_own_cores, row.cpu_cores, row.cpu_busy) {
        (Some(own), Some(cores), Some(busy)) => {
            let places = usize::from(cores.fract() != 0.0);
            format!("{own:.1}/{cores:.places$} {:.0}%", busy * 100.0)
        }
        _ => "-".into(),
    }
}

/// Formats the difference between a wall clock and the stores' median.
fn clock_offset(ms: i64) -> String {
    format!("{:+.2} s", ms as f64 / 1000.0)
}

/// Formats the part of the capability that is in effect.
fn correction(row: &StoreRow) -> String {
    match row.capability_bytes_per_s {
        unknown if unknown <= 1.0 => "-".into(),
        _ if row.correction >= 0.1 => format!("{:.0}%", row.correction * 100.0),
        _ => format!("{:.1}%", row.correction * 100.0),
    }
}

fn probe_text(row: &ProbeRow) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use client::admin::PeerRow;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ctl: Ctl,
    }

    #[test]
    fn a_measured_capability_is_shown_with_how_sure_it_is_and_a_told_one_without() {
        let row = |capability_spread| StoreRow {
            capability_bytes_per_s: 5e7,
            correction: 0.5,
            capability_spread,
            ..StoreRow::default()
        };
        assert!(stores_table(&[row(1.0)]).lines()[1].contains("100 MB/s  "));
        assert!(stores_table(&[row(1.3)]).lines()[1].contains("100 MB/s ±30%"));
        let unknown = StoreRow { capability_bytes_per_s: 1.0, ..row(0.0) };
        assert!(!stores_table(&[unknown]).lines()[1].contains('±'));
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
    fn a_store_shows_the_cores_that_it_uses_and_how_busy_its_machine_is() {
        let row = |cores| StoreRow {
            cpu_cores: Some(cores),
            cpu_busy: Some(0.834),
            cpu_own_cores: Some(1.24),
            ..StoreRow::default()
        };
        assert_eq!([4.0, 1.5].map(|cores| cpu(&row(cores))), ["1.2/4 83%", "1.2/1.5 83%"]);
        assert_eq!(cpu(&StoreRow::default()), "-");
        let lines = stores_table(&[row(4.0)]).lines();
        let end = lines[0].find("cpu").unwrap() + "cpu".len();
        assert!(lines[1][..end].ends_with("1.2/4 83%"), "{lines:?}");
    }

    #[test]
    fn a_store_shows_how_far_its_clock_is_from_the_others() {
        assert_eq!([20, -86_400_000, 0].map(clock_offset), ["+0.02 s", "-86400.00 s", "+0.00 s"]);
        let row = |clock_offset_ms| StoreRow { clock_offset_ms, ..StoreRow::default() };
        let lines = stores_table(&[row(None), row(Some(-20))]).lines();
        let clock = lines[0].find("clock").unwrap();
        let shown =
            |line: usize| lines[line][..clock + "clock".len()].split_whitespace().last().unwrap().to_owned();
        assert_eq!((shown(1).as_str(), lines[2].contains("-0.02 s")), ("-", true));
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
    fn stores_that_share_a_device_are_shown_with_the_others_on_it() {
        let row =
            |id, shares: &[u64]| StoreRow { id, shares_device_with: shares.to_vec(), ..Default::default() };
        let lines = stores_table(&[row(1, &[2, 3]), row(4, &[])]).lines();
        assert!(lines[0].ends_with("shares device with"), "{}", lines[0]);
        assert!(lines[1].ends_with("2, 3") && lines[2].ends_with('-'), "{lines:?}");
        assert!(!stores_table(&[row(4, &[])]).lines()[0].contains("shares"));
    }

    #[test]
    fn a_setting_is_found_or_the_settings_are_named() {
        let row = |name: &str| ConfigRow { name: name.into(), value: "3".into(), note: "copies".into() };
        let rows = [row("replicas"), row("meta-replicas")];
        assert_eq!(setting(&rows, "meta-replicas").unwrap().name, "meta-replicas");
        let error = setting(&rows, "replica").unwrap_err().to_string();
        assert_eq!(error, "unknown setting 'replica': the settings are replicas, meta-replicas");
        assert_eq!(config_table(&rows).lines()[1], "replicas       3      copies");
    }

    #[test]
    fn a_region_shows_its_lag_and_its_learners() {
        let peer = |store, role: &str, lag| {
            let quarantined = (store == 3).then(|| "rows".to_owned());
            PeerRow { store, id: store + 1, role: role.into(), lag, quarantined, unclean: false }
        };
        let row = RegionRow {
            id: 3,
            first_slot: Some(0),
            last_slot: Some(99),
            epoch_conf_version: 1,
            epoch_version: 2,
            joint: false,
            leader: None,
            term: 4,
            peers: vec![
                peer(0, "voter", Some(0)),
                peer(1, "voter", Some(12)),
                peer(2, "learner", None),
                peer(3, "voter", Some(1)),
            ],
            keys: 1234,
            bytes: 5_000_000,
            read_rate: 0.0,
            miss_rate: 0.0,
            write_rate: 10.4,
            heat: 10.0,
        };
        let line = &regions_table(&[row]).lines()[1];
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "3 0-99 none 4 0 1(-12) 2(learner) 3(quarantined) 1.2 1,234 5.0 MB 0 0 10"
        );
    }

    #[test]
    fn a_store_that_is_not_there_is_an_error_that_names_the_address() {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = AdminClient::new(nobody, Duration::from_millis(500));
        let error = answer(&client, Command::Stores).err().unwrap().to_string();
        assert!(error.contains(&nobody.to_string()) && error.contains("--admin"), "{error}");
    }
}
