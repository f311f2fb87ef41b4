//! `steelyard bench`: workloads against a running cluster, and measurements on clusters that it
//! starts: comparisons with other servers on the same machine, a paper's figures, scenarios.

mod chain;
mod check_emulation;
mod collections;
mod cross_check;
mod equal_stores;
mod freeze;
mod full_store;
mod ground;
mod limit;
mod memtier;
mod peers;
mod reads;
mod replicate;
pub mod reproduce;
mod slowdown;
mod watch;
mod ycsb;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{signal, SignalKind};

#[derive(clap::Args)]
pub struct Bench {
    /// Speak TLS with the servers, with the certificates of a directory as `steelyard ctl tls init`
    /// makes it [default: the variable STEELYARD_TLS]
    #[arg(long, value_name = "DIR", global = true)]
    tls: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Compare one store with Redis, three with etcd, and both with the limit, in one run
    Peers(peers::Peers),
    /// Compare strong reads by lease, epoch check and ReadIndex, and weak reads, on three stores
    Reads(reads::Reads),
    /// Load, read and delete large collections on a running server, beside another client
    Collections(collections::Collections),
    /// Run the smallest durable server: SET, GET, PING and DBSIZE, without recovery of data at its
    /// start
    Limit(limit::Limit),
    /// Compare direct and chained replication, with and without a limit on the stores' networks
    Chain(chain::Chain),
    /// Measure how fast an empty store gets copies of all regions while the cluster serves
    Replicate(replicate::Replicate),
    /// Measure how frozen rows reach flash (memtable, vector, sorted files) while a reader reads
    Freeze(freeze::Freeze),
    /// Run a load of memtier_benchmark against a running server, with that tool's usual options
    Memtier(memtier::Memtier),
    /// Run one of YCSB's core workloads against a running cluster
    Ycsb(ycsb::Ycsb),
    /// Compare our load generator with go-ycsb, on the same clusters under several policies
    CrossCheck(cross_check::Check),
    /// Reproduce a paper's figures on this machine
    Reproduce(reproduce::Reproduce),
    /// Slow a store's device tenfold under load and restore it: how soon does the cluster recover?
    Slowdown(slowdown::Slowdown),
    /// Fill stores of equal capacity, and measure which data they shed and when shedding ends
    FullStore(full_store::FullStore),
    /// Start equal stores that measure themselves, many times: are they treated as equal?
    EqualStores(equal_stores::Options),
    /// Run policies on real unequal devices and on emulated ones with the same numbers
    CheckEmulation(check_emulation::CheckEmulation),
}

/// Number of threads of the load generator. The servers get the other CPUs.
pub const CLIENT_THREADS: usize = 1;

pub fn run(bench: Bench) -> anyhow::Result<()> {
    if let Some(dir) = &bench.tls {
        client::tls::use_directory(dir).map_err(anyhow::Error::msg)?;
    }
    match bench.command {
        Command::Peers(options) => peers::run(options),
        Command::Reads(options) => drive(CLIENT_THREADS, reads::run(options)),
        Command::Collections(options) => drive(CLIENT_THREADS, collections::run(options)),
        Command::Limit(options) => limit::run(options),
        Command::Chain(options) => drive(CLIENT_THREADS, chain::run(options)),
        Command::Replicate(options) => drive(CLIENT_THREADS, replicate::run(options)),
        Command::Freeze(options) => freeze::run(options),
        Command::Memtier(options) => drive(options.threads(), memtier::run(options)),
        Command::Ycsb(options) => drive(CLIENT_THREADS, ycsb::run(options)),
        Command::CrossCheck(options) => drive(CLIENT_THREADS, cross_check::run(options)),
        Command::Reproduce(options) => drive(CLIENT_THREADS, reproduce::run(options)),
        Command::Slowdown(options) => drive(CLIENT_THREADS, slowdown::run(options)),
        Command::FullStore(options) => drive(CLIENT_THREADS, full_store::run(options)),
        Command::EqualStores(options) => drive(CLIENT_THREADS, equal_stores::run(options)),
        Command::CheckEmulation(options) => drive(CLIENT_THREADS, check_emulation::run(options)),
    }
}

/// Runs to the end or to a signal. The root future runs on the main thread, because child processes
/// end when that thread ends.
pub fn drive<T>(client_threads: usize, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(client_threads).enable_all().build()?;
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            result = work => result,
            _ = terminate.recv() => Err(anyhow::anyhow!("ended by SIGTERM")),
            _ = interrupt.recv() => Err(anyhow::anyhow!("ended by Ctrl-C")),
        }
    });
    // Do not wait for a client program that still runs.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}
