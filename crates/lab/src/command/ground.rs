//! Options of all measurements that start their own clusters: sizes, speeds and directories.

use std::path::PathBuf;

use anyhow::{anyhow, ensure, Context};
use lab::alor::Scale;
use lab::scenario::Machine;

use super::reproduce::laboratory::Stores;
use steelyard::serve::YesNo;

#[derive(clap::Args)]
pub struct Ground {
    /// Sizes and times: smoke (no claims), quick, full or overnight
    #[arg(long, value_name = "NAME", default_value = "quick")]
    scale: String,
    /// Speed of the devices, instead of the scale's
    #[arg(long, value_name = "FACTOR")]
    device_speed: Option<f64>,
    /// Number of threads of the load, instead of the scale's
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Capacity of the stores, as a multiple of the paper's 5 GB times the scale's data factor; 0
    /// for unlimited
    #[arg(long, value_name = "FACTOR")]
    headroom: Option<f64>,
    /// Stores measure their emulated devices; otherwise they are told the capability that follows
    /// from the profile
    #[arg(long, value_name = "yes|no", num_args = 0..=1, default_missing_value = "yes")]
    probe: Option<YesNo>,
    /// Store i serves on this port + i
    #[arg(long, value_name = "PORT", default_value_t = 7600)]
    pub port: u16,
    /// Directory for the stores' data [default: a RAM file system with room]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory for results, plots and the report [default: NAME-SCALE under the build's target
    /// directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Ground {
    pub fn scale(&self) -> anyhow::Result<Scale> {
        let mut scale = Scale::named(&self.scale).map_err(|error| anyhow!(error))?;
        if let Some(speed) = self.device_speed {
            ensure!(speed.is_finite() && speed > 0.0, "a device's speed must be a factor above 0");
            scale.device_speed = speed;
        }
        if let Some(threads) = self.threads {
            ensure!(threads > 0, "a load must have threads");
            scale.threads = threads;
        }
        if let Some(headroom) = self.headroom {
            ensure!(headroom.is_finite() && headroom >= 0.0, "headroom must be a factor, or 0 for no limit");
            scale.capacity_headroom = headroom;
        }
        Ok(scale)
    }

    pub fn stores(&self) -> anyhow::Result<Stores> {
        Stores::new(self.data.clone(), self.port, self.probe.is_some_and(|yes| yes.0))
    }

    /// Returns the directory for results, which is made if it does not exist.
    pub fn out(&self, name: &str) -> anyhow::Result<PathBuf> {
        let out = self.out.clone().unwrap_or_else(|| target().join(format!("{name}-{}", self.scale)));
        std::fs::create_dir_all(&out).with_context(|| format!("{} cannot be made", out.display()))?;
        Ok(out)
    }
}

/// Returns the build's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub fn program() -> String {
    format!("steelyard {}", env!("CARGO_PKG_VERSION"))
}

pub fn machine(file_system: String) -> Machine {
    Machine { cpus: cpus(), file_system, program: program() }
}
