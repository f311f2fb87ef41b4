//! A ZooKeeper server beside a local cluster, and the cluster's way of elections.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use ::client::admin::ConfigRequest;
use ::client::zookeeper::Ensemble;
use anyhow::{bail, ensure};

use super::cluster::Cluster;
use super::START_PATIENCE;

/// ZooKeeper's unit of time: sessions last at least two of them.
const ZOOKEEPER_TICK: Duration = Duration::from_millis(500);

/// The way of elections through ZooKeeper, as the setting `election` names it.
pub const ZOOKEEPER: &str = "zookeeper";

/// A running ZooKeeper server. It must be dropped after the stores.
pub struct ZooKeeper {
    server: Ensemble,
    // Dropped after the server.
    _dir: tempfile::TempDir,
}

impl ZooKeeper {
    /// Starts a server and names it in the serve flags. Returns `None` if they name an ensemble
    /// already, or if elections do without ZooKeeper.
    pub fn start_for(election: Option<&str>, flags: &mut Vec<OsString>) -> anyhow::Result<Option<ZooKeeper>> {
        let names_one = |flag: &OsString| {
            flag == "--zookeeper" || flag.to_str().is_some_and(|flag| flag.starts_with("--zookeeper="))
        };
        if election != Some(ZOOKEEPER) || flags.iter().any(names_one) {
            return Ok(None);
        }
        let dir = tempfile::Builder::new().prefix("steelyard-zookeeper-").tempdir()?;
        let server = Ensemble::start(dir.path(), 1, ZOOKEEPER_TICK)?;
        ensure!(server.await_ready(START_PATIENCE), "ZooKeeper does not start");
        flags.extend(["--zookeeper".into(), server.connect_string().into()]);
        Ok(Some(ZooKeeper { server, _dir: dir }))
    }

    pub fn address(&self) -> String {
        self.server.connect_string()
    }
}

/// Changes the setting once the stores allow it: their version rises after they have started, and
/// they need their sessions.
pub async fn set(cluster: &Cluster, election: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    let request = ConfigRequest { name: "election".to_owned(), value: election.to_owned() };
    loop {
        let admin = cluster.stores[0].admin();
        match admin.ask(&request) {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > START_PATIENCE => {
                bail!("the election cannot be set to {election}: {error}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}
