//! `steelyard bench check-emulation`: the policies on real unequal devices, which are a RAM file
//! system and a disk, and on emulated devices with the same numbers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{ensure, Context};
use client::cluster_client::ClusterClient;
use client::place::file_system;
use client::table::{bytes, count};
use device::{Fit, KvCapability, Measured};
use lab::alor::{Evidence, Scale};
use lab::scenario::emulation::{Check, Place, Row, Side, VERSION};
use lab::scenario::keep;
use lab::ycsb::{self, Settings, Workload};
use server::{Capability, Member};

use super::ground::{cpus, machine, target, Ground};
use super::reproduce::laboratory::{rest, say, settle, Stores, Wanted, PATIENCE, PLACING_PATIENCE};
use super::reproduce::observe::Observer;
use super::CLIENT_THREADS;
use steelyard::playground::cluster::{self, Cluster};
use steelyard::playground::START_PATIENCE;

#[derive(clap::Args)]
pub struct CheckEmulation {
    /// A directory on a RAM file system
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    ram: PathBuf,
    /// A directory on a disk [default: the build's target directory]
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Number of stores in each of the two directories
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=8))]
    each: u16,
    /// Policies to compare with `even`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "alor")]
    policies: Vec<String>,
    /// Number of runs of each policy
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(flatten)]
    ground: Ground,
}

/// Read speed of the emulated devices, because the page cache answers reads of real files.
const READ_BYTES_PER_S: u64 = 8_000_000_000;
const PROBE_TIME: Duration = Duration::from_secs(5);
const PROBE_BYTES: u64 = 1 << 30;

/// The two places, in the order of their stores' numbers.
struct Grounds {
    places: [PathBuf; 2],
    each: usize,
    capabilities: [Capability; 2],
    kept: [Place; 2],
    scale: Scale,
}

pub async fn run(options: CheckEmulation) -> anyhow::Result<()> {
    // The emulated devices run at full speed, like the real ones. The stores are not filled.
    let scale = Scale { device_speed: 1.0, capacity_headroom: 0.0, ..options.ground.scale()? };
    for policy in &options.policies {
        policy.parse::<placement::Policy>()?;
    }
    let disk = options.disk.clone().unwrap_or_else(target);
    ensure!(file_system(&options.ram) == "tmpfs", "{} is not on a RAM file system", options.ram.display());
    ensure!(
        file_system(&disk) != "tmpfs",
        "{} is on a RAM file system, but must be on a disk",
        disk.display()
    );
    let stores = options.ground.stores()?;
    let out = options.ground.out("check-emulation")?;
    let grounds = Grounds::probe([options.ram.clone(), disk], usize::from(options.each), scale).await?;
    for place in &grounds.kept {
        say(
            &stores.progress,
            &format!(
                "{}: random 8 MiB writes {}/s, a sync {:.0} us, capability {}/s",
                place.file_system,
                bytes(place.write_bytes_per_s),
                place.sync_us,
                bytes(place.capability_bytes_per_s)
            ),
        );
    }
    let records = grounds.scale.records(2 * grounds.each);
    let mut check = Check {
        version: VERSION,
        machine: machine(format!("{} and {}", grounds.kept[0].file_system, grounds.kept[1].file_system)),
        records,
        threads: grounds.scale.threads,
        places: grounds.kept.to_vec(),
        rows: Vec::new(),
    };
    let mut policies = lab::alor::with_baseline(&options.policies);
    for number in 1..=usize::from(options.runs) {
        for policy in &policies {
            for side in Side::BOTH {
                let rows = grounds.measure(&stores, side, policy, number).await?;
                check.rows.extend(rows);
                keep(&out, "check-emulation", &check, &check.report(), &[])?;
            }
        }
        policies.rotate_left(1);
    }
    stores.progress.finish_and_clear();
    print!("{}", check.report());
    eprintln!("the report is {}", out.join("check-emulation.md").display());
    Ok(())
}

impl Grounds {
    async fn probe(places: [PathBuf; 2], each: usize, scale: Scale) -> anyhow::Result<Grounds> {
        let fit = Fit::shipped();
        let mut found = Vec::new();
        for dir in &places {
            let own = directory(dir)?;
            let path = own.path().to_owned();
            let options = device::probe::Options {
                time_max: PROBE_TIME,
                bytes_max: PROBE_BYTES,
                ..device::probe::Options::default()
            };
            let measured = tokio::task::spawn_blocking(move || device::probe(&path, &options)).await??;
            let kv = KvCapability::measured(&measured, &fit);
            let capability = Capability { kv_bytes_per_s: kv.kv_bytes_per_s, ops_per_s: kv.kv_ops_per_s };
            let place = Place {
                file_system: file_system(dir),
                stores: each,
                write_bytes_per_s: measured.write_bytes_per_s,
                sync_us: measured.sync_latency.as_secs_f64() * 1e6,
                capability_bytes_per_s: kv.kv_bytes_per_s,
                emulated_as: emulated_as(&measured),
            };
            found.push((capability, place));
        }
        let [ram, disk]: [(Capability, Place); 2] = found.try_into().ok().context("there are two places")?;
        Ok(Grounds { places, each, capabilities: [ram.0, disk.0], kept: [ram.1, disk.1], scale })
    }

    fn place_of(&self, store: usize) -> usize {
        store / self.each
    }

    /// Sets the same capabilities on both sides, so that the policies see the same cluster.
    fn members(&self, members: Vec<Member>, side: Side) -> Vec<Member> {
        let known = |mut member: Member| {
            let place = self.place_of(member.id as usize);
            member.capability = Some(self.capabilities[place]);
            if side == Side::Real {
                member.device = self.kept[place].file_system.clone();
            }
            member
        };
        members.into_iter().map(known).collect()
    }

    async fn measure(
        &self,
        stores: &Stores,
        side: Side,
        policy: &str,
        number: usize,
    ) -> anyhow::Result<Vec<Row>> {
        let total = 2 * self.each;
        let emulated = (0..total).map(|store| self.kept[self.place_of(store)].emulated_as.clone());
        let wanted = Wanted {
            devices: if side == Side::Emulated { emulated.collect() } else { Vec::new() },
            stores: total,
            ..Wanted::new(policy, &self.scale)
        };
        let layout = wanted.layout(stores.port())?;
        let members = self.members(layout.members()?, side);
        let ram = directory(&self.places[0])?;
        // Dropped after the cluster.
        let disk = directory(&self.places[1])?;
        if side == Side::Real {
            for store in self.each..total {
                let name = format!("store-{store}");
                let real = disk.path().join(&name);
                std::fs::create_dir(&real)?;
                std::os::unix::fs::symlink(&real, ram.path().join(&name))?;
            }
        }
        let place = cluster::Place::Temporary(ram);
        let mut cluster = Cluster::start_members(layout, members, place, &wanted.options())?;
        let rows = self.workloads(stores, &mut cluster, side, policy, number).await;
        drop(cluster);
        rows.with_context(|| format!("{} devices under {policy}", side.name()))
    }

    async fn workloads(
        &self,
        stores: &Stores,
        cluster: &mut Cluster,
        side: Side,
        policy: &str,
        number: usize,
    ) -> anyhow::Result<Vec<Row>> {
        cluster.wait_until_ready(START_PATIENCE).await?;
        let observer = Observer::new(cluster)?;
        settle(&observer, PLACING_PATIENCE).await?;
        let addresses = cluster.stores.iter().map(|store| store.member.client).collect();
        let client = Arc::new(ClusterClient::new(addresses, PATIENCE));
        let mut rows = Vec::new();
        for workload in [Workload::Load, Workload::A] {
            let settings = Settings {
                threads: self.scale.threads,
                at_most: Some(self.scale.phase_at_most()),
                seed: number as u64,
                ..Settings::new(workload, self.scale.records(2 * self.each))
            };
            let before = observer.sample().await?;
            let summary = ycsb::run(client.clone(), settings, |_| ()).await?;
            let after = observer.sample().await?;
            let evidence = Evidence::between(&before, &after, cpus(), CLIENT_THREADS);
            let mut doubts = evidence.void(true);
            doubts.extend(summary.faults());
            say(
                &stores.progress,
                &format!(
                    "{} {policy}-{number} {}: {} ops/s",
                    side.name(),
                    workload.name(),
                    count(summary.per_second())
                ),
            );
            rows.push(Row {
                side,
                policy: policy.to_owned(),
                run: number,
                workload,
                per_second: summary.per_second(),
                mean_us: summary.latency.mean_us,
                p99_us: summary.latency.p99_us as f64,
                doubts,
                leaders: after.stores.iter().map(|store| store.leaders).collect(),
            });
            if workload == Workload::Load {
                rest(&observer, &client, self.scale.regions, self.scale.settle_at_most()).await?;
            }
        }
        ensure!(rows.len() == 2, "not both workloads were run");
        Ok(rows)
    }
}

fn directory(within: &Path) -> anyhow::Result<tempfile::TempDir> {
    std::fs::create_dir_all(within).with_context(|| format!("{} cannot be made", within.display()))?;
    tempfile::Builder::new()
        .prefix("steelyard-")
        .tempdir_in(within)
        .with_context(|| format!("{} cannot be used", within.display()))
}

/// Returns an emulated device with the measured speeds of a real one.
fn emulated_as(measured: &Measured) -> String {
    format!(
        "write={}KB/s,read={}KB/s,sync={}us",
        (measured.write_bytes_per_s / 1e3).round().max(1.0),
        READ_BYTES_PER_S / 1000,
        (measured.sync_latency.as_secs_f64() * 1e6).round()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_device_is_one_that_can_be_emulated() {
        let measured = Measured {
            write_bytes_per_s: 512_345_678.0,
            sync_latency: Duration::from_micros(1250),
            ..Measured::stated(&"plain-ssd".parse().unwrap())
        };
        let profile: device::Profile = emulated_as(&measured).parse().unwrap();
        assert_eq!(profile.write_bytes_per_s, 512_346_000);
        assert_eq!((profile.sync_latency, profile.read_latency), (measured.sync_latency, Duration::ZERO));
    }

    #[test]
    fn the_first_half_of_the_stores_is_in_ram_and_known_to_be() {
        let capability = |kv_bytes_per_s| Capability { kv_bytes_per_s, ops_per_s: 1.0 };
        let place = |file_system: &str| Place {
            file_system: file_system.into(),
            stores: 3,
            write_bytes_per_s: 1.0,
            sync_us: 1.0,
            capability_bytes_per_s: 1.0,
            emulated_as: "write=1KB/s,read=1KB/s".into(),
        };
        let scale = Scale::named("smoke").unwrap();
        let grounds = Grounds {
            places: ["/ram".into(), "/disk".into()],
            each: 3,
            capabilities: [capability(9.0), capability(2.0)],
            kept: [place("tmpfs"), place("ext4")],
            scale: scale.clone(),
        };
        let layout = Wanted { stores: 6, ..Wanted::new("even", &scale) }.layout(7600).unwrap();
        let members = grounds.members(layout.members().unwrap(), Side::Real);
        let speeds: Vec<f64> =
            members.iter().map(|member| member.capability.unwrap().kv_bytes_per_s).collect();
        assert_eq!(speeds, [9.0, 9.0, 9.0, 2.0, 2.0, 2.0]);
        assert_eq!((members[2].device.as_str(), members[3].device.as_str()), ("tmpfs", "ext4"));
    }
}
