//! Three stores beside three etcd nodes and three copies of the limit: inserts of 1 KiB by go-ycsb
//! with 64 and with 512 clients.

use super::servers::{self, Server};
use super::ycsb::{self, Inserts, Target};
use super::{say, Comparison, Plan, Report, Side, SyncTime};
use crate::measure::{cpu_time, fdatasync_micros};

/// The number of clients, and the ratio to reach.
const LOADS: [(usize, f64); 2] = [(64, 4.0), (512, 3.0)];

pub async fn compare(plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let Some(program) = servers::installed("etcd") else {
        report.skip("etcd is not installed (Debian's package: etcd-server): no comparison with etcd");
        return Ok(());
    };
    let tools = plan.tools.clone();
    let Some(client) = tokio::task::spawn_blocking(move || ycsb::program(&tools)).await?? else {
        report.skip("Go is not installed (golang-go), so go-ycsb cannot be built: no comparison with etcd");
        return Ok(());
    };
    let mut comparisons: Vec<Comparison> = LOADS
        .iter()
        .map(|(clients, aim)| {
            let load = format!("insert 1 KiB, {clients} clients");
            Comparison::new(load, "go-ycsb", "etcd, three nodes", *aim)
        })
        .collect();
    for round in 0..plan.rounds {
        report.syncs.push(SyncTime::of(round, &fdatasync_micros(&plan.dir, 200)?));
        for side in Side::order(round) {
            let (server, who) = match side {
                Side::Ours => {
                    (servers::steelyard(&plan.dir, &plan.steelyard, 3, plan.regions).await?, "steelyard")
                }
                Side::Theirs => (servers::etcd(&plan.dir, &program).await?, "etcd"),
                Side::Limit => (servers::limit(&plan.dir, &plan.steelyard, 3).await?, "limit"),
            };
            let mut first = 0;
            for (index, (clients, _)) in LOADS.into_iter().enumerate() {
                let into = &mut comparisons[index];
                say(&format!("round {} of {}: {who}: {}", round + 1, plan.rounds, into.load));
                let inserts = Inserts { clients, count: clients * plan.inserts_per_client, first };
                first += inserts.count;
                let before = Usage::of(&server).await;
                let target = match side {
                    Side::Ours => Target::Stores(&server.clients),
                    Side::Theirs => Target::Etcd(&server.clients),
                    Side::Limit => Target::One(server.clients[0]),
                };
                let mut sample = ycsb::insert(&client, target, &inserts, round).await?;
                let after = Usage::of(&server).await;
                let per_insert = |sum: Option<f64>| sum.map(|sum| sum / inserts.count as f64);
                sample.cpu_us_per_operation = per_insert(after.cpu_us.zip(before.cpu_us).map(|(b, a)| b - a));
                sample.syncs_per_operation = per_insert(after.syncs.zip(before.syncs).map(|(b, a)| b - a));
                into.of(side).push(sample);
            }
        }
    }
    report.comparisons.append(&mut comparisons);
    Ok(())
}

/// The use of resources by all processes of a server.
struct Usage {
    cpu_us: Option<f64>,
    syncs: Option<f64>,
}

impl Usage {
    async fn of(server: &Server) -> Usage {
        let times = server.pids().into_iter().map(|pid| Some(cpu_time(pid)?.as_micros() as f64));
        Usage { cpu_us: times.sum(), syncs: server.counter("log_syncs").await.map(|count| count as f64) }
    }
}
