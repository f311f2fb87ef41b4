//! Figure 5.2: one copy beside three copies.

use std::path::Path;

use lab::load::{self, Mix};
use lab::measure::fdatasync_micros;
use lab::paxstore::{Measured, Sample};

use super::stores::{leader_address, Device, Wanted, PORTS};
use super::{turns, Bench, Request, PROBES};

const CLIENTS: [usize; 2] = [1, 50];
const FSYNC: [&str; 2] = ["always", "no"];
const KEYS: u64 = 1000;
const COPIES: [u16; 2] = [1, 3];

pub async fn measure(bench: &Bench, round: usize) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    for device in Device::BOTH {
        let syncs = match device {
            Device::Disk => Some(syncs(bench).await?),
            Device::Emulated => None,
        };
        for fsync in FSYNC {
            // Both clusters exist at the same time, so that their measurements are close together.
            let mut clusters = Vec::new();
            for (number, copies) in COPIES.into_iter().enumerate() {
                let ports = PORTS * number as u16;
                let wanted = Wanted { ports, ..Wanted::new(device, copies) }.option("fsync", fsync);
                let cluster = bench.start(&wanted).await?;
                let target = leader_address(&cluster).await?;
                clusters.push((copies, target, cluster));
            }
            for bytes in bench.scale().sizes.clone() {
                for (_, target, _) in &clusters {
                    load::fill(*target, KEYS, bytes as usize).await?;
                }
                for clients in CLIENTS {
                    for at in turns(&[0, 1], round) {
                        let (copies, target, _) = &clusters[at];
                        let request = Request {
                            target: *target,
                            mix: Mix::Set,
                            clients,
                            bytes,
                            keys: KEYS,
                            seed: round,
                        };
                        let load =
                            format!("{clients} client{}, fsync {fsync}", if clients == 1 { "" } else { "s" });
                        let series = if *copies == 1 { "1 copy" } else { "3 copies" };
                        let loaded = bench.load(request).await?;
                        let sample = loaded.sample(device.name(), &load, series, bytes);
                        let sync_us = syncs.filter(|_| fsync == "always").map(|syncs| syncs[at]);
                        measured.samples.push(Sample { sync_us, ..sample });
                    }
                }
            }
        }
    }
    Ok(measured)
}

/// Returns the mean microseconds of a sync on the disk, alone and while two others sync at the same
/// time, as three stores do.
async fn syncs(bench: &Bench) -> anyhow::Result<[f64; 2]> {
    let dirs = [bench.directory()?, bench.directory()?, bench.directory()?];
    let together = |dirs: &[tempfile::TempDir]| {
        let paths: Vec<_> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
        tokio::task::spawn_blocking(move || probe(&paths))
    };
    Ok([together(&dirs[..1]).await??, together(&dirs).await??])
}

fn probe<P: AsRef<Path> + Sync>(dirs: &[P]) -> anyhow::Result<f64> {
    let times = std::thread::scope(|scope| -> std::io::Result<Vec<f64>> {
        let probes: Vec<_> =
            dirs.iter().map(|dir| scope.spawn(|| fdatasync_micros(dir.as_ref(), PROBES))).collect();
        let joined = probes.into_iter().map(|probe| match probe.join() {
            Ok(times) => Ok(times?.mean()),
            Err(_) => Err(std::io::Error::other("a probe panicked")),
        });
        joined.collect()
    })?;
    Ok(times.iter().sum::<f64>() / times.len().max(1) as f64)
}
