//! `steelyard plan`: predicts the speed and the layout of a cluster before it is bought.
//!
//! [`predict`] makes the prediction. This module reads the stores from text or from a running
//! cluster, and shows the result.

mod cluster;
mod devices;
mod settings;
mod show;
mod stores;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{anyhow, bail, ensure, Context};
use device::Fit;
use placement::Policy;
use predict::{predict, Workload};

use crate::serve::size::Size;

pub use settings::ratios;

#[derive(clap::Args)]
pub struct Plan {
    /// The stores' devices, such as 1xnvm,2xhigh-end-ssd,3xplain-ssd; separated by `;` if devices
    /// are described by numbers
    #[arg(long, value_name = "LIST", required_unless_present = "from_cluster")]
    stores: Option<String>,
    /// Admin endpoint of any store of a running cluster, to predict it unchanged and with changes
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["stores", "regions", "replicas"])]
    from_cluster: Option<SocketAddr>,
    /// Add a store with this device to the running cluster
    #[arg(long, value_name = "DEVICE")]
    add: Vec<String>,
    /// Remove this store from the running cluster
    #[arg(long, value_name = "STORE")]
    remove: Vec<u64>,
    /// Give this store another device
    #[arg(long, value_name = "STORE=DEVICE")]
    swap: Vec<String>,
    /// Workloads: load, a, b, c or several of them; load always comes first unless the cluster is
    /// running [default: a; for a running cluster its present mix of reads and writes]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    workload: Vec<String>,
    /// Bytes of keys and values, counting one copy [default: 10gb, or the data of the running
    /// cluster]
    #[arg(long, value_name = "SIZE")]
    data: Option<Size>,
    #[arg(long, value_name = "SIZE", default_value = "1kb")]
    value: Size,
    /// Policies to compare; the others are compared with the first [default: all of them, or that
    /// of the running cluster]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<Policy>,
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=16384))]
    regions: u16,
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    replicas: u16,
    /// Number of clients, each of which waits for its reply before it sends again
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
    /// Capacity of each store in bytes of live user data [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Number of CPUs of each store
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    cpus: u16,
    /// Number of readers that read in parallel the rows that updates replace
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    apply_reads: u16,
    /// Factor for every device's speed: 0.1 makes each ten times slower [default: 1; for devices
    /// added to a running cluster, the speed of its own devices if they agree]
    #[arg(long, value_name = "FACTOR")]
    device_speed: Option<f64>,
    /// Fit from a device's speed to its store's, as written by `steelyard calibrate`; for a running
    /// cluster, it applies to new devices [default: the built-in fit]
    #[arg(long, value_name = "FILE")]
    capability_fit: Option<PathBuf>,
    /// Use the settings of a scale of `bench reproduce alor`: smoke, quick, full, overnight
    #[arg(
        long,
        value_name = "SCALE",
        conflicts_with_all = [
            "from_cluster",
            "data",
            "value",
            "regions",
            "replicas",
            "threads",
            "capacity",
            "cpus",
            "device_speed",
            "capability_fit",
        ]
    )]
    like_bench: Option<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of simulations, each from its own seed; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    runs: u16,
    #[arg(long)]
    json: bool,
}

pub fn run(plan: Plan) -> anyhow::Result<()> {
    let policies = if plan.policy.is_empty() { Policy::ALL.to_vec() } else { plan.policy.clone() };
    let mut cases = Vec::new();
    match plan.from_cluster {
        Some(address) => {
            let running = cluster::Running::ask(address)?;
            let mix = running.mix();
            let workloads = plan.workloads(&[mix.unwrap_or(Workload::A)])?;
            let policies = if plan.policy.is_empty() { vec![running.policy] } else { policies };
            let note = match mix {
                Some(mix) => format!("the running cluster under its load of {mix}"),
                None => "the running cluster, which has no load now: workload A".to_owned(),
            };
            let question = running.question(&plan)?;
            cases.push(Case::predict(note, question, &policies, &workloads)?);
            if let Some((what, question)) = running.changed(&plan)? {
                cases.push(Case::predict(what, question, &policies, &workloads)?);
            }
        }
        None => {
            let changes = plan.add.len() + plan.remove.len() + plan.swap.len();
            ensure!(
                changes == 0,
                "--add, --remove and --swap change a running cluster: name it with --from-cluster"
            );
            let text = plan.stores.as_deref().context("either --stores or --from-cluster is needed")?;
            // The predicted cluster must hold its data, so it is loaded first.
            let mut workloads = plan.workloads(&[Workload::A])?;
            workloads.retain(|workload| *workload != Workload::Load);
            workloads.insert(0, Workload::Load);
            let question = settings::question(&plan, text)?;
            cases.push(Case::predict(text.to_owned(), question, &policies, &workloads)?);
        }
    }
    let text = if plan.json { show::json(&cases)? } else { show::text(&cases) };
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// The prediction of one cluster under several policies.
pub struct Case {
    pub what: String,
    pub question: settings::Settings,
    pub predictions: Vec<predict::Prediction>,
}

impl Case {
    fn predict(
        what: String,
        question: settings::Settings,
        policies: &[Policy],
        workloads: &[Workload],
    ) -> anyhow::Result<Case> {
        let predictions = each(policies, |policy| predict(&question.question, *policy, workloads))?;
        Ok(Case { what, question, predictions })
    }
}

/// Computes a result for each element, in parallel. Predictions are independent of each other.
fn each<A: Sync, T: Send, E: Send>(all: &[A], of: impl Fn(&A) -> Result<T, E> + Sync) -> Result<Vec<T>, E> {
    std::thread::scope(|scope| {
        let of = &of;
        let running: Vec<_> = all.iter().map(|one| scope.spawn(move || of(one))).collect();
        let joined = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}

impl Plan {
    /// Returns the fit that turns a device's write speed into its store's capability.
    fn fit(&self) -> anyhow::Result<Fit> {
        match &self.capability_fit {
            Some(path) => Fit::read(path).map_err(|error| anyhow!("capability-fit: {error}")),
            None => Ok(Fit::shipped()),
        }
    }

    fn workloads(&self, default: &[Workload]) -> anyhow::Result<Vec<Workload>> {
        if self.workload.is_empty() {
            return Ok(default.to_vec());
        }
        let mut workloads = Vec::new();
        for name in &self.workload {
            let workload: Workload = name.parse().map_err(|error: String| anyhow!(error))?;
            ensure!(!workloads.contains(&workload), "workload {workload} is named twice");
            workloads.push(workload);
        }
        if self.from_cluster.is_some() && workloads.contains(&Workload::Load) {
            bail!("a running cluster holds its data already: choose a, b or c");
        }
        Ok(workloads)
    }
}

#[cfg(test)]
mod tests;
