//! `steelyard bench`: workloads against a running cluster, and measurements on clusters of its own: beside
//! neighbours on the same machine, a paper's figures, scenarios.

mod check_emulation;
mod cross_check;
mod equal_stores;
mod freeze;
mod full_store;
mod ground;
mod limit;
mod peers;
pub mod reproduce;
mod slowdown;
mod watch;
mod ycsb;

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{signal, SignalKind};

#[derive(clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// One store beside Redis, three beside etcd, and the limit beside both, in one run
    Peers(peers::Peers),
    /// The smallest durable server: SET, GET, PING and DBSIZE, and nothing is read back at its start
    Limit(limit::Limit),
    /// How frozen rows reach flash: memtable, vector, sorted files; with reads beside
    Freeze(freeze::Freeze),
    /// One of YCSB's core workloads against a running cluster
    Ycsb(ycsb::Ycsb),
    /// Our load generator beside go-ycsb, on the same clusters under several policies
    CrossCheck(cross_check::Check),
    /// A paper's figures, on this machine
    Reproduce(reproduce::Reproduce),
    /// A store's device slows tenfold under load and recovers: how soon the cluster does
    Slowdown(slowdown::Slowdown),
    /// Stores of equal capacity are written until all are full: what is shed, and when that ends
    FullStore(full_store::FullStore),
    /// Equal stores measure themselves, many times over: are they taken for equal?
    EqualStores(equal_stores::Options),
    /// Policies on real unequal devices and on emulated ones with the same numbers
    CheckEmulation(check_emulation::CheckEmulation),
}

/// Threads of the load generator; the servers get the rest.
pub const CLIENT_THREADS: usize = 1;

pub fn run(bench: Bench) -> anyhow::Result<()> {
    match bench.command {
        Command::Peers(options) => peers::run(options),
        Command::Limit(options) => limit::run(options),
        Command::Freeze(options) => freeze::run(options),
        Command::Ycsb(options) => drive(CLIENT_THREADS, ycsb::run(options)),
        Command::CrossCheck(options) => drive(CLIENT_THREADS, cross_check::run(options)),
        Command::Reproduce(options) => drive(CLIENT_THREADS, reproduce::run(options)),
        Command::Slowdown(options) => drive(CLIENT_THREADS, slowdown::run(options)),
        Command::FullStore(options) => drive(CLIENT_THREADS, full_store::run(options)),
        Command::EqualStores(options) => drive(CLIENT_THREADS, equal_stores::run(options)),
        Command::CheckEmulation(options) => drive(CLIENT_THREADS, check_emulation::run(options)),
    }
}

/// Runs to the end or to a signal. The root future runs on the main thread, whose life child processes are bound to.
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
    // A client program that still runs is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}
