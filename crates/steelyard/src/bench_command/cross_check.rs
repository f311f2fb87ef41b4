//! `steelyard bench cross-check`: our load generator beside go-ycsb, on the same clusters under two policies.
//!
//! The clients cost different amounts of CPU, so their rates differ. What they say about the policies, the
//! ratio of rates under one and under the other, must not.

use anyhow::{anyhow, ensure};
use bench::alor::{Laboratory, Scale, Setup};
use bench::table::{count, Align, Table};
use bench::ycsb::{self, CrossCheck, Settings, Workload};

use super::reproduce::laboratory::{settle, Stores, PATIENCE, PLACING_PATIENCE};
use super::reproduce::observe::Observer;
use crate::playground::START_PATIENCE;

#[derive(clap::Args)]
pub struct Check {
    /// Devices of the stores, as in 1N2H3P
    #[arg(long, value_name = "MIX", default_value = "1N2H3P")]
    mix: String,
    /// Policies, the first of which the others are compared with
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "even,leader-only")]
    policies: Vec<String>,
    /// Workloads after load
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "a,c")]
    workloads: Vec<Workload>,
    /// Sizes and speeds: smoke, quick, full or overnight
    #[arg(long, value_name = "NAME", default_value = "smoke")]
    scale: String,
    /// Store i serves on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7600)]
    port: u16,
}

pub async fn run(options: Check) -> anyhow::Result<()> {
    let scale = Scale::named(&options.scale).map_err(|error| anyhow!(error))?;
    let stores = Stores::new(None, options.port)?;
    let setup = Setup { scale, ..super::reproduce::setup(&stores) };
    let tools = super::ground::target();
    ensure!(!options.policies.is_empty(), "there is no policy to check");
    for policy in &options.policies {
        stores.supports(&options.mix, policy).map_err(|error| anyhow!(error))?;
    }
    let mut rows: Vec<(String, CrossCheck)> = Vec::new();
    for policy in &options.policies {
        let mut cluster = stores.start(&options.mix, policy, &setup)?;
        cluster.wait_until_ready(START_PATIENCE).await?;
        let observer = Observer::new(&cluster)?;
        settle(&observer, PLACING_PATIENCE).await?;
        let addresses: Vec<_> = cluster.stores.iter().map(|store| store.member.client).collect();
        let records = setup.scale.records(cluster.stores.len());
        for workload in std::iter::once(Workload::Load).chain(options.workloads.iter().copied()) {
            eprintln!("{policy}: {}", workload.name());
            let settings = Settings { threads: setup.scale.threads, ..Settings::new(workload, records) };
            let check = ycsb::cross_check(&addresses, &tools.join("tools"), &settings, PATIENCE).await?;
            if check.go_ycsb_errors > 0 {
                eprintln!("{} operations of go-ycsb failed", check.go_ycsb_errors);
            }
            rows.push((policy.clone(), check));
            settle(&observer, setup.scale.settle_at_most()).await?;
        }
    }
    print!("{}", table(&rows, &options.policies[0]));
    Ok(())
}

fn table(rows: &[(String, CrossCheck)], base: &str) -> Table {
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
    ]);
    for (policy, check) in rows {
        let of_base =
            |(name, other): &&(String, CrossCheck)| name == base && other.workload == check.workload;
        let Some((_, of_base)) = rows.iter().find(of_base) else { continue };
        let ours = check.ours.per_second / of_base.ours.per_second.max(f64::MIN_POSITIVE);
        let theirs = check.go_ycsb.per_second / of_base.go_ycsb.per_second.max(f64::MIN_POSITIVE);
        table.row([
            policy.clone(),
            check.workload.name().to_owned(),
            count(check.ours.per_second),
            count(check.go_ycsb.per_second),
            format!("{ours:.2}"),
            format!("{theirs:.2}"),
            format!("{:+.0}%", 100.0 * (ours / theirs - 1.0)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use bench::ycsb::Side;

    use super::*;

    #[test]
    fn ratios_of_policies_are_compared_client_by_client() {
        let check = |policy: &str, ours, theirs| {
            let side = |per_second| Side { per_second, mean_us: 1.0, p99_us: 1.0 };
            let check = CrossCheck {
                workload: Workload::A,
                ours: side(ours),
                go_ycsb: side(theirs),
                go_ycsb_errors: 0,
            };
            (policy.to_owned(), check)
        };
        let text =
            table(&[check("even", 1000.0, 800.0), check("leader-only", 1500.0, 1000.0)], "even").to_string();
        assert!(text.contains("1.50") && text.contains("1.25") && text.contains("+20%"), "{text}");
    }
}
