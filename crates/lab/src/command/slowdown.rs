//! `steelyard bench slowdown`: slows a store's device under load and restores it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context};
use client::cluster_client::ClusterClient;
use client::table::count;
use lab::alor::{devices, Evidence};
use lab::scenario::slowdown::{
    steady_rate, Reference, Setup, Slowdown as Kept, StoreLook, Subject, RECOVERED_WITHIN_S, VERSION,
};
use lab::scenario::{keep, WINDOW_S};
use lab::ycsb::{self, Settings, Summary, Workload};

use super::ground::{cpus, machine, Ground};
use super::reproduce::laboratory::{rest, say, Stores, Wanted, PATIENCE};
use super::reproduce::observe::Observer;
use super::watch::{Moment, Watch, LOOK_EVERY};
use super::CLIENT_THREADS;
use steelyard::playground::cluster::Cluster;
use steelyard::playground::START_PATIENCE;

#[derive(clap::Args)]
pub struct Slowdown {
    /// Devices of the stores, such as 1N2H3P
    #[arg(long, value_name = "MIX", default_value = "1N2H3P")]
    stores: String,
    /// Policies, one after the other; `even` is only shown for comparison
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "adaptive")]
    policy: Vec<String>,
    /// The store to slow [default: the one that leads most regions at that moment]
    #[arg(long, value_name = "N")]
    store: Option<u64>,
    /// Factor by which the device becomes slower
    #[arg(long, value_name = "FACTOR", default_value_t = 10.0)]
    factor: f64,
    #[arg(long, value_name = "NAME", default_value = "a")]
    workload: Workload,
    /// Operations per second [default: closed-loop threads]
    #[arg(long, value_name = "N")]
    target: Option<f64>,
    /// Seconds before the store is slowed
    #[arg(long, value_name = "S", default_value_t = 60)]
    steady: u16,
    /// Seconds for which the store is slow
    #[arg(long, value_name = "S", default_value_t = 180)]
    slowed: u16,
    /// Seconds after the store is restored
    #[arg(long, value_name = "S", default_value_t = 180)]
    restored: u16,
    #[command(flatten)]
    ground: Ground,
}

/// Duration in seconds of the run in which the store is slow from the beginning.
const REFERENCE_S: u64 = 120;
/// Maximum time after the load for the best possible layout to come to rest.
const REFERENCE_REST: Duration = Duration::from_secs(120);

pub async fn run(options: Slowdown) -> anyhow::Result<()> {
    let scale = options.ground.scale()?;
    let devices: Vec<String> =
        devices(&options.stores).map_err(|error| anyhow!(error))?.into_iter().map(str::to_owned).collect();
    ensure!(options.factor.is_finite() && options.factor >= 1.0, "the factor must be at least 1");
    ensure!(
        f64::from(options.slowed) >= 2.0 * WINDOW_S && options.steady >= 1,
        "the run needs a steady phase, and at least {} s in which the store is slow",
        2.0 * WINDOW_S
    );
    if f64::from(options.slowed) < RECOVERED_WITHIN_S {
        eprintln!(
            "the store is slow for less than {RECOVERED_WITHIN_S:.0} s: the claim is judged by that time alone"
        );
    }
    ensure!(
        options.store.is_none_or(|store| store < devices.len() as u64),
        "there is no store {} in {}",
        options.store.unwrap_or(0),
        options.stores
    );
    ensure!(
        options.workload != Workload::Load,
        "the workload must be A, B, C, D, E or F, because load ends by itself"
    );
    let stores = options.ground.stores()?;
    for policy in &options.policy {
        policy.parse::<placement::Policy>()?;
    }
    let out = options.ground.out("slowdown")?;
    let setup = Setup {
        stores: options.stores.clone(),
        workload: options.workload,
        records: scale.records(devices.len()),
        target_per_s: options.target,
        slow_factor: options.factor,
        steady_s: options.steady.into(),
        slowed_s: options.slowed.into(),
        restored_s: options.restored.into(),
        machine: machine(stores.file_system()),
        scale,
    };
    let mut kept = Kept { version: VERSION, setup, subjects: Vec::new(), references: Vec::new() };
    let bench = Bench { stores: &stores, setup: kept.setup.clone(), devices };
    // The same store is slowed under all policies.
    let mut store = options.store;
    for policy in &options.policy {
        let subject = bench.subject(policy, store).await?;
        store = Some(subject.store);
        let reference = bench.reference(policy, subject.store).await?;
        kept.subjects.push(subject);
        kept.references.push(reference);
        keep(&out, "slowdown", &kept, &kept.report(), &kept.plots())?;
    }
    stores.progress.finish_and_clear();
    print!("{}", kept.report());
    for subject in kept.subjects.iter().filter(|subject| subject.policy != lab::alor::BASELINE) {
        let verdicts = kept.judge(subject);
        let held = verdicts.iter().filter(|verdict| verdict.passed).count();
        eprintln!("{}: {held} of {} claims hold", subject.policy, verdicts.len());
    }
    eprintln!("the report is {}", out.join("slowdown.md").display());
    Ok(())
}

struct Bench<'a> {
    stores: &'a Stores,
    setup: Setup,
    devices: Vec<String>,
}

/// A cluster that is loaded and at rest.
struct Ready {
    cluster: Cluster,
    observer: Arc<Observer>,
    client: Arc<ClusterClient>,
}

impl Bench<'_> {
    async fn ready(&self, policy: &str, devices: Vec<String>, patience: Duration) -> anyhow::Result<Ready> {
        let wanted = Wanted { devices, ..Wanted::new(policy, &self.setup.scale) };
        let mut cluster = self.stores.start_wanted(&wanted)?;
        cluster.wait_until_ready(START_PATIENCE).await?;
        let observer = Arc::new(Observer::new(&cluster)?);
        self.stores.placed(&observer).await?;
        let addresses = cluster.stores.iter().map(|store| store.member.client).collect();
        let client = Arc::new(ClusterClient::new(addresses, PATIENCE));
        self.tell(&format!("{policy}: loading {} records", count(self.setup.records as f64)));
        let settings = Settings {
            threads: self.setup.scale.threads,
            ..Settings::new(Workload::Load, self.setup.records)
        };
        let summary = ycsb::run(client.clone(), settings, |_| ()).await?;
        self.tell(&format!("{policy}: loaded at {} ops/s, coming to rest", count(summary.per_second())));
        rest(&observer, &client, self.setup.scale.regions, patience).await?;
        Ok(Ready { cluster, observer, client })
    }

    fn settings(&self, seconds: f64) -> Settings {
        Settings {
            threads: self.setup.scale.threads,
            operations: u64::MAX,
            at_most: Some(Duration::from_secs_f64(seconds)),
            target_per_s: self.setup.target_per_s,
            ..Settings::new(self.setup.workload, self.setup.records)
        }
    }

    async fn subject(&self, policy: &str, store: Option<u64>) -> anyhow::Result<Subject> {
        let ready = self.ready(policy, self.devices.clone(), self.setup.scale.settle_at_most()).await?;
        self.tell(&format!("{policy}: {} runs", self.setup.workload.name()));
        let before = ready.observer.sample().await?;
        let work = ycsb::run(ready.client.clone(), self.settings(self.setup.end()), |_| ());
        let (summary, watched) = tokio::try_join!(work, self.watch(&ready, policy, store))?;
        let after = ready.observer.sample().await?;
        let device = &self.devices[usize::try_from(watched.store)?];
        self.tell(&format!("{policy}: {} ops/s over all", count(summary.per_second())));
        Ok(Subject {
            policy: policy.to_owned(),
            store: watched.store,
            device: device.clone(),
            slowed_at_s: watched.slowed_at_s,
            restored_at_s: watched.restored_at_s,
            faults: faults(&summary, &Evidence::between(&before, &after, cpus(), CLIENT_THREADS)),
            series: summary.series,
            looks: watched.looks,
            moves: watched.moves,
        })
    }

    async fn watch(&self, ready: &Ready, policy: &str, store: Option<u64>) -> anyhow::Result<Watched> {
        let mut watch = Watch::start(ready.observer.clone());
        let mut moments = Vec::new();
        let (mut slowed, mut restored_at_s) = (None, None);
        while watch.seconds() < self.setup.end() {
            if let Some(moment) = watch.look().await? {
                moments.push(moment);
            }
            match slowed {
                None if watch.seconds() >= self.setup.slowed_at() => {
                    let chosen = match store {
                        Some(store) => store,
                        None => leads_most(moments.last().context("the cluster did not answer")?)?,
                    };
                    slow(ready.cluster.dir(), chosen, self.setup.slow_factor)?;
                    slowed = Some((chosen, watch.seconds()));
                    self.tell(&format!(
                        "{policy}: store {chosen} is {} times slower",
                        self.setup.slow_factor
                    ));
                }
                Some((store, _))
                    if restored_at_s.is_none() && watch.seconds() >= self.setup.restored_at() =>
                {
                    slow(ready.cluster.dir(), store, 1.0)?;
                    restored_at_s = Some(watch.seconds());
                    self.tell(&format!("{policy}: store {store} is as fast as before"));
                }
                _ => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let (store, slowed_at_s) = slowed.context("the run ended before a store was slowed")?;
        Ok(Watched {
            store,
            slowed_at_s,
            restored_at_s: restored_at_s.unwrap_or(self.setup.end()),
            looks: moments.iter().filter_map(|moment| store_look(moment, store)).collect(),
            moves: watch.moves(),
        })
    }

    async fn reference(&self, policy: &str, store: u64) -> anyhow::Result<Reference> {
        let mut devices = self.devices.clone();
        let slow = &mut devices[usize::try_from(store)?];
        *slow = format!("{slow}/{}", self.setup.slow_factor);
        self.tell(&format!("{policy}: store {store} slow from the beginning"));
        let ready = self.ready(policy, devices, REFERENCE_REST).await?;
        let before = ready.observer.sample().await?;
        let summary = ycsb::run(ready.client.clone(), self.settings(REFERENCE_S as f64), |_| ()).await?;
        let after = ready.observer.sample().await?;
        let steady_per_s = steady_rate(&summary.series, REFERENCE_S as f64).context("nothing was done")?;
        self.tell(&format!("{policy}: best possible {} ops/s", count(steady_per_s)));
        Ok(Reference {
            policy: policy.to_owned(),
            steady_per_s,
            faults: faults(&summary, &Evidence::between(&before, &after, cpus(), CLIENT_THREADS)),
            series: summary.series,
        })
    }

    fn tell(&self, line: &str) {
        say(&self.stores.progress, line);
    }
}

struct Watched {
    store: u64,
    slowed_at_s: f64,
    restored_at_s: f64,
    looks: Vec<StoreLook>,
    moves: Vec<lab::scenario::Move>,
}

/// Slows a store through its device's control block, as `ctl device` does.
fn slow(cluster: &Path, store: u64, factor: f64) -> anyhow::Result<()> {
    let control = device::Control::open(&cluster.join(format!("store-{store}.device")))?;
    Ok(control.set_slow(factor)?)
}

fn faults(summary: &Summary, evidence: &Evidence) -> Vec<String> {
    let mut faults = summary.faults();
    faults.extend(evidence.void(false));
    faults
}

/// Returns the store that leads most regions. Of equals it is the most capable, whose loss matters
/// most.
fn leads_most(moment: &Moment) -> anyhow::Result<u64> {
    let capability = |store: u64| moment.believed.get(&store).map_or(0.0, |believed| believed.0);
    let stores = moment.look.stores.iter();
    let most = stores.max_by(|a, b| {
        let by_capability = capability(a.store).total_cmp(&capability(b.store));
        a.leaders.cmp(&b.leaders).then(by_capability).then(b.store.cmp(&a.store))
    });
    Ok(most.context("the cluster has no stores")?.store)
}

fn store_look(moment: &Moment, store: u64) -> Option<StoreLook> {
    let look = moment.look.store(store)?;
    Some(StoreLook {
        at_s: moment.look.at_s,
        capability_bytes_per_s: moment.believed.get(&store)?.0,
        leaders: look.leaders,
        regions: look.regions,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lab::scenario::Look;

    use super::*;

    fn moment(leaders: &[u64], capabilities: &[f64]) -> Moment {
        let store = |(store, leaders): (usize, &u64)| lab::scenario::StoreLook {
            store: store as u64,
            used_bytes: 0,
            capacity_bytes: 0,
            leaders: *leaders,
            regions: 12,
        };
        Moment {
            look: Look {
                at_s: 1.0,
                stores: leaders.iter().enumerate().map(store).collect(),
                regions: Vec::new(),
            },
            believed: capabilities
                .iter()
                .enumerate()
                .map(|(at, value)| (at as u64, (*value, 1.0)))
                .collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn the_store_that_leads_most_is_slowed_and_of_equals_the_most_capable() {
        assert_eq!(leads_most(&moment(&[4, 9, 4], &[3.0, 1.0, 1.0])).unwrap(), 1);
        assert_eq!(leads_most(&moment(&[4, 4, 4], &[1.0, 1.0, 3.0])).unwrap(), 2);
        assert_eq!(leads_most(&moment(&[4, 4], &[1.0, 1.0])).unwrap(), 0);
        assert!(leads_most(&moment(&[], &[])).is_err());
    }

    #[test]
    fn the_control_block_of_a_store_is_slowed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store-2.device");
        let control = device::Control::create(&path, &"nvm".parse().unwrap(), 1.0).unwrap();
        slow(dir.path(), 2, 10.0).unwrap();
        assert_eq!(control.slow(), 10.0);
        assert!(slow(dir.path(), 3, 10.0).is_err());
    }
}
