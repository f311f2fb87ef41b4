//! `steelyard bench full-store`: writes to stores of equal capacity until all of them are full,
//! with a pause in which shedding comes to rest.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use client::cluster_client::ClusterClient;
use client::table::{bytes, count};
use lab::alor::{devices, Scale};
use lab::scenario::full_store::{FullStore as Kept, Setup, VERSION};
use lab::scenario::{keep, Filling};
use placement::PlanLimits;

use super::ground::{machine, Ground};
use super::reproduce::laboratory::{say, Wanted, PATIENCE};
use super::reproduce::observe::Observer;
use super::watch::{Watch, LOOK_EVERY};
use steelyard::playground::START_PATIENCE;
use steelyard::serve::size::Size;

#[derive(clap::Args)]
pub struct FullStore {
    /// Devices of the stores, such as 1N2H3P
    #[arg(long, value_name = "MIX", default_value = "1N2H3P")]
    stores: String,
    #[arg(long, value_name = "NAME", default_value = "alor")]
    policy: String,
    /// Capacity of each store in bytes of live user data [default: the paper's 5 GB times the
    /// scale's data factor]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Size of each emulated device, for rows, log and compaction [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    device_size: Option<Size>,
    /// Number of regions. It is high, so that a region is smaller than the band in which a store
    /// sheds
    #[arg(long, value_name = "N", default_value_t = 48)]
    regions: u16,
    /// Seconds after which all stores would be full; a full store can shed no faster than others
    /// take its data
    #[arg(long, value_name = "S", default_value_t = 240, value_parser = clap::value_parser!(u16).range(1..))]
    fill: u16,
    /// Percentage of the stores' total capacity at which insertion pauses, until shedding is at
    /// rest
    #[arg(long, value_name = "PERCENT", default_value_t = 80)]
    pause_at: u32,
    /// Maximum length of the pause in seconds
    #[arg(long, value_name = "S", default_value_t = 120)]
    pause_at_most: u16,
    /// Seconds for which the load continues after every store has exceeded its threshold
    #[arg(long, value_name = "S", default_value_t = 30)]
    after: u16,
    /// Maximum duration in seconds
    #[arg(long, value_name = "S", default_value_t = 900)]
    at_most: u16,
    #[command(flatten)]
    ground: Ground,
}

/// Length of a key and its value in bytes.
const RECORD_BYTES: f64 = 1040.0;
/// Time in seconds without moves after which shedding is at rest. It is much longer than a planning
/// round.
const REST_S: f64 = 10.0;
/// Number of states between two lines of progress.
const TELL_EVERY: usize = 15;

pub async fn run(options: FullStore) -> anyhow::Result<()> {
    let scale = options.ground.scale()?;
    let limits = PlanLimits::default();
    let devices: Vec<String> =
        devices(&options.stores).map_err(|error| anyhow!(error))?.into_iter().map(str::to_owned).collect();
    options.policy.parse::<placement::Policy>()?;
    let exact = Scale { capacity_headroom: 1.0, ..scale.clone() };
    let capacity = options.capacity.map_or(exact.capacity_bytes().unwrap_or(0), |size| size.0);
    ensure!(capacity > 0, "this benchmark needs stores with a capacity");
    ensure!(
        (1..limits.full_percent_low).contains(&options.pause_at),
        "insertion pauses at 1% of capacity or more, and below {}%: there must be room to shed to",
        limits.full_percent_low
    );
    let stores = options.ground.stores()?;
    let out = options.ground.out("full-store")?;
    let mut wanted = Wanted {
        devices: devices.clone(),
        regions: options.regions,
        capacity: Some(capacity),
        ..Wanted::new(&options.policy, &scale)
    };
    if let Some(size) = options.device_size {
        wanted.devices.iter_mut().for_each(|device| *device = format!("{device},capacity={}B", size.0));
        wanted.extra.extend(["--reserve".into(), (size.0 / 16).to_string().into()]);
    }
    let mut cluster = stores.start_wanted(&wanted)?;
    cluster.wait_until_ready(START_PATIENCE).await?;
    let observer = Arc::new(Observer::new(&cluster)?);
    stores.placed(&observer).await?;
    let addresses = cluster.stores.iter().map(|store| store.member.client).collect();
    let client = Arc::new(ClusterClient::new(addresses, PATIENCE));
    // There are three copies of each record.
    let records = capacity as f64 * devices.len() as f64 / 3.0 / RECORD_BYTES;
    let inserts_per_second = records / f64::from(options.fill);
    let mut kept = Kept {
        version: VERSION,
        setup: Setup {
            stores: options.stores.clone(),
            policy: options.policy.clone(),
            capacity_bytes: capacity,
            inserts_per_second,
            pause_at_percent: options.pause_at,
            rest_s: REST_S,
            pause_s_max: options.pause_at_most.into(),
            device_bytes: options.device_size.map(|size| size.0),
            regions: options.regions,
            full_percent: limits.full_percent,
            full_percent_low: limits.full_percent_low,
            heat_gap_percent: limits.heat_gap_percent,
            copies_per_store: limits.data_moves_per_store_max,
            machine: machine(stores.file_system()),
            scale: scale.clone(),
        },
        devices: (0..).zip(devices).collect(),
        looks: Vec::new(),
        written: Vec::new(),
        pause: None,
        moves: Vec::new(),
        ended_s: 0.0,
    };
    say(&stores.progress, &format!("filling {} stores of {}", kept.devices.len(), bytes(capacity as f64)));
    let mut watch = Watch::start(observer);
    let filling = Filling::start(client, scale.threads, inserts_per_second, options.regions, 1);
    let mut paused = false;
    while watch.seconds() < f64::from(options.at_most) {
        if let Some(moment) = watch.look().await? {
            let pauses = kept.note(moment.look, filling.written(), &watch.moves());
            if pauses != paused {
                paused = pauses;
                filling.pause_inserts(paused);
                let what = if paused { "insertion pauses" } else { "insertion resumes" };
                say(&stores.progress, &format!("{:.0} s: {what}", watch.seconds()));
            }
            if kept.looks.len() % TELL_EVERY == 0 {
                say(&stores.progress, &progress(&kept));
            }
        }
        if let Some(end) = cluster.stores.iter_mut().find_map(|store| store.died()) {
            anyhow::bail!("a store {end}");
        }
        if kept.all_full_at().is_some_and(|since| watch.seconds() - since >= f64::from(options.after)) {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    kept.ended_s = watch.seconds();
    // Operations in flight may wait for devices that are full.
    let _ = tokio::time::timeout(Duration::from_secs(5), filling.stop()).await;
    watch.look().await?;
    kept.moves = watch.moves();
    keep(&out, "full-store", &kept, &kept.report(), &kept.plots())?;
    stores.progress.finish_and_clear();
    print!("{}", kept.report());
    eprintln!("the report is {}", out.join("full-store.md").display());
    Ok(())
}

/// Formats the progress, such as `45 s: 96% 91% 90% 40% 41% 40%, 123,456 records, 0 refused`.
fn progress(kept: &Kept) -> String {
    let (Some(look), Some(written)) = (kept.looks.last(), kept.written.last()) else { return String::new() };
    let shares: Vec<String> =
        look.stores.iter().map(|store| format!("{:.0}%", 100.0 * store.share())).collect();
    format!(
        "{:.0} s: {}, {} records, {} refused",
        look.at_s,
        shares.join(" "),
        count(written.inserted as f64),
        count(written.refused as f64)
    )
}
