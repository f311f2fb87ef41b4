//! `steelyard bench cross-check`: compares our load generator with go-ycsb, on the same clusters
//! under two policies.
//!
//! The clients need different amounts of CPU, so their rates differ. But both must give the same
//! ratio of the rates under two policies, within the noise between runs. Each run has clusters of
//! its own. The clients take turns in running first, and each loads half of the records.

use anyhow::{anyhow, ensure};
use client::cluster_client::ClusterClient;
use client::table::{count, Align, Table};
use lab::alor::{Laboratory, Scale, Setup};
use lab::measure::median;
use lab::ycsb::{self, CrossCheck, First, Settings, Side, Workload};

use super::reproduce::laboratory::{rest, settle, Stores, PATIENCE, PLACING_PATIENCE};
use super::reproduce::observe::Observer;
use steelyard::playground::START_PATIENCE;

#[derive(clap::Args)]
pub struct Check {
    /// Devices of the stores, such as 1N2H3P
    #[arg(long, value_name = "MIX", default_value = "1N2H3P")]
    mix: String,
    /// Policies. The others are compared with the first
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "even,leader-only")]
    policies: Vec<String>,
    /// Workloads after load
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "a,c")]
    workloads: Vec<Workload>,
    /// Sizes and speeds: smoke, quick, full or overnight
    #[arg(long, value_name = "NAME", default_value = "smoke")]
    scale: String,
    /// Number of runs of each policy. The differences between runs are the noise
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Write the table as Markdown
    #[arg(long)]
    markdown: bool,
    /// Store i serves on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7600)]
    port: u16,
}

pub async fn run(options: Check) -> anyhow::Result<()> {
    let scale = Scale::named(&options.scale).map_err(|error| anyhow!(error))?;
    let stores = Stores::new(None, options.port, false)?;
    let setup = Setup { scale, ..super::reproduce::setup(&stores) };
    ensure!(!options.policies.is_empty(), "name at least one policy");
    options.workloads.iter().try_for_each(|workload| ycsb::comparable(*workload))?;
    for policy in &options.policies {
        stores.supports(&options.mix, policy).map_err(|error| anyhow!(error))?;
    }
    let mut checks = Vec::new();
    for run in 0..options.runs {
        for policy in &options.policies {
            eprintln!("run {} of {}, {policy}", run + 1, options.runs);
            let first = if run % 2 == 0 { First::Ours } else { First::GoYcsb };
            for check in one(&options, &stores, &setup, policy, first).await? {
                checks.push(Measured { run, policy: policy.clone(), check });
            }
        }
    }
    let rows = compare(&checks, &options.policies);
    let table = table(&rows, &options.policies[0]);
    match options.markdown {
        true => print!("{}", table.markdown()),
        false => print!("{table}"),
    }
    Ok(())
}

/// Runs every workload on one cluster.
async fn one(
    options: &Check,
    stores: &Stores,
    setup: &Setup,
    policy: &str,
    first: First,
) -> anyhow::Result<Vec<CrossCheck>> {
    let tools = super::ground::target().join("tools");
    let mut cluster = stores.start(&options.mix, policy, setup)?;
    cluster.wait_until_ready(START_PATIENCE).await?;
    let observer = Observer::new(&cluster)?;
    settle(&observer, PLACING_PATIENCE).await?;
    let addresses: Vec<_> = cluster.stores.iter().map(|store| store.member.client).collect();
    let client = ClusterClient::new(addresses.clone(), PATIENCE);
    let records = setup.scale.records(cluster.stores.len()) / 2;
    let mut checks = Vec::new();
    for workload in std::iter::once(Workload::Load).chain(options.workloads.iter().copied()) {
        let seed = setup.seed + checks.len() as u64;
        let settings = Settings { threads: setup.scale.threads, seed, ..Settings::new(workload, records) };
        let check = ycsb::cross_check(&addresses, &tools, &settings, PATIENCE, first).await?;
        eprintln!(
            "  {}: {} ops/s by ours, {} by go-ycsb, of which {} failed",
            workload.name(),
            count(check.ours.per_second),
            count(check.go_ycsb.per_second),
            check.go_ycsb_errors
        );
        checks.push(check);
        rest(&observer, &client, setup.scale.regions, setup.scale.settle_at_most()).await?;
    }
    Ok(checks)
}

/// The result of one run of a policy for one workload.
struct Measured {
    run: u32,
    policy: String,
    check: CrossCheck,
}

/// A client's ratios of a policy to the first policy, one for each run.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    per_second: f64,
    ratios: Vec<f64>,
}

impl Said {
    fn of(side: fn(&CrossCheck) -> Side, these: &[&Measured], base: &[&Measured]) -> Said {
        let rate = |measured: &Measured| side(&measured.check).per_second;
        let rates: Vec<f64> = these.iter().map(|measured| rate(measured)).collect();
        let ratio = |measured: &&Measured| {
            let base = base.iter().find(|base| base.run == measured.run)?;
            Some(rate(measured) / rate(base).max(f64::MIN_POSITIVE))
        };
        Said { per_second: median(&rates), ratios: these.iter().filter_map(ratio).collect() }
    }

    fn ratio(&self) -> f64 {
        median(&self.ratios)
    }

    /// Returns the difference between the largest and the smallest ratio, as a part of the median.
    fn spread(&self) -> f64 {
        let most = self.ratios.iter().copied().fold(f64::MIN, f64::max);
        let least = self.ratios.iter().copied().fold(f64::MAX, f64::min);
        (most - least) / self.ratio().max(f64::MIN_POSITIVE)
    }
}

struct Compared {
    policy: String,
    workload: Workload,
    ours: Said,
    theirs: Said,
}

impl Compared {
    fn apart(&self) -> f64 {
        self.ours.ratio() / self.theirs.ratio().max(f64::MIN_POSITIVE) - 1.0
    }

    /// Returns the spread of the client whose ratios vary more.
    fn noise(&self) -> f64 {
        self.ours.spread().max(self.theirs.spread())
    }

    fn verdict(&self) -> &'static str {
        match self.apart().abs() <= self.noise() {
            _ if self.ours.ratios.len() < 2 => "one run: no noise to compare with",
            true => "within noise",
            false => "apart",
        }
    }
}

/// Compares every policy with the first, workload by workload.
fn compare(measured: &[Measured], policies: &[String]) -> Vec<Compared> {
    let of = |policy: &str, workload| -> Vec<&Measured> {
        measured.iter().filter(|one| one.policy == policy && one.check.workload == workload).collect()
    };
    let mut workloads: Vec<Workload> = Vec::new();
    for one in measured {
        if !workloads.contains(&one.check.workload) {
            workloads.push(one.check.workload);
        }
    }
    let mut rows = Vec::new();
    for policy in policies {
        for &workload in &workloads {
            let (these, base) = (of(policy, workload), of(&policies[0], workload));
            rows.push(Compared {
                policy: policy.clone(),
                workload,
                ours: Said::of(|check| check.ours, &these, &base),
                theirs: Said::of(|check| check.go_ycsb, &these, &base),
            });
        }
    }
    rows
}

fn table(rows: &[Compared], base: &str) -> Table {
    use Align::{Left, Right};
    let over = format!("over {base}, ours");
    let over_theirs = format!("over {base}, go-ycsb");
    let mut table = Table::new([
        ("policy", Left),
        ("workload", Left),
        ("ours, ops/s", Right),
        ("go-ycsb, ops/s", Right),
        (over.as_str(), Right),
        (over_theirs.as_str(), Right),
        ("apart", Right),
        ("noise", Right),
        ("", Left),
    ]);
    for row in rows {
        let is_base = row.policy == base;
        let of_others = |text: String| if is_base { "-".to_owned() } else { text };
        table.row([
            row.policy.clone(),
            row.workload.name().to_owned(),
            count(row.ours.per_second),
            count(row.theirs.per_second),
            of_others(format!("{:.2}", row.ours.ratio())),
            of_others(format!("{:.2}", row.theirs.ratio())),
            of_others(format!("{:+.0}%", 100.0 * row.apart())),
            of_others(format!("{:.0}%", 100.0 * row.noise())),
            of_others(row.verdict().to_owned()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(run: u32, policy: &str, ours: f64, theirs: f64) -> Measured {
        let side = |per_second| Side { per_second, mean_us: 1.0, p99_us: 1.0 };
        let check =
            CrossCheck { workload: Workload::A, ours: side(ours), go_ycsb: side(theirs), go_ycsb_errors: 0 };
        Measured { run, policy: policy.to_owned(), check }
    }

    fn compared(runs: &[(f64, f64)]) -> Compared {
        let policies = ["even".to_owned(), "alor".to_owned()];
        let mut all = Vec::new();
        for (run, (ours, theirs)) in (0..).zip(runs) {
            all.push(measured(run, "even", 1000.0, 800.0));
            all.push(measured(run, "alor", 1000.0 * ours, 800.0 * theirs));
        }
        compare(&all, &policies).pop().unwrap()
    }

    #[test]
    fn ratios_of_policies_are_compared_client_by_client() {
        let row = compared(&[(1.5, 1.25)]);
        assert_eq!((row.ours.ratio(), row.theirs.ratio()), (1.5, 1.25));
        assert!(row.verdict().starts_with("one run"));
        let text = table(&[row], "even").to_string();
        assert!(text.contains("1.50") && text.contains("1.25") && text.contains("+20%"), "{text}");
    }

    #[test]
    fn what_is_apart_by_more_than_runs_are_is_said() {
        let row = compared(&[(1.5, 1.25), (1.51, 1.26), (1.49, 1.25)]);
        assert_eq!(row.verdict(), "apart");
        let row = compared(&[(1.5, 1.45), (1.6, 1.40), (1.4, 1.5)]);
        assert_eq!(row.verdict(), "within noise");
        assert!((row.noise() - 0.2 / 1.5).abs() < 1e-9, "the greater of both");
    }
}
