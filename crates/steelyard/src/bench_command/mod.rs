//! `steelyard bench`: workloads against a running cluster, and measurements beside neighbours on the same machine.

mod cross_check;
mod peers;
mod reproduce;
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
    /// One store beside Redis, three beside etcd, in one run
    Peers(peers::Peers),
    /// One of YCSB's core workloads against a running cluster
    Ycsb(ycsb::Ycsb),
    /// Our load generator beside go-ycsb, on the same clusters under several policies
    CrossCheck(cross_check::Check),
    /// A paper's figures, on this machine
    Reproduce(reproduce::Reproduce),
}

/// Threads of the load generator; the servers get the rest.
const CLIENT_THREADS: usize = 1;

pub fn run(bench: Bench) -> anyhow::Result<()> {
    match bench.command {
        Command::Peers(options) => peers::run(options),
        Command::Ycsb(options) => drive(CLIENT_THREADS, ycsb::run(options)),
        Command::CrossCheck(options) => drive(CLIENT_THREADS, cross_check::run(options)),
        Command::Reproduce(options) => drive(CLIENT_THREADS, reproduce::run(options)),
    }
}

/// Runs to the end or to a signal. The root future runs on the main thread, whose life child processes are bound to.
fn drive<T>(client_threads: usize, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
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
