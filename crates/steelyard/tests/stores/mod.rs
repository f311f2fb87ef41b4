//! Real store processes for the tests of this directory: they are started, signalled, restarted and
//! ended.
//!
//! Every process ends when the value that started it is dropped. When a test fails, the ends of the
//! stores' logs are printed.

// Each test file uses only a part of this module.
#![allow(dead_code)]

pub mod churn;
pub mod ledger;
pub mod way;
pub mod wire;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ::steelyard::authority::{Authority, Owner, Terms};
use client::admin::{AdminClient, RegionRow, RegionsQuery};
use client::process::{end_all, free_ports, Child};
use faults::network::Network;
use serde_json::Value;

/// Maximum time until a store is up or an expectation holds, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(20);

/// Takes the lock that makes tests with several processes run one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Prints text that the test runner must not capture: a skipped test, or a measured time.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs `steelyard ctl` on the store `asked`. Returns what it prints, or its error.
pub fn ctl(stores: &Stores, asked: usize, words: &[&str]) -> Result<String, String> {
    let admin = stores.all[asked].admin().address().to_string();
    let output = steelyard().arg("ctl").args(["--admin", &admin]).args(words).output().expect("ctl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// Waits until `check` returns a value. Fails the test with `what` after [`PATIENCE`].
pub fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, check).unwrap_or_else(|| panic!("not within {} s: {what}", PATIENCE.as_secs()))
}

pub fn within<T>(patience: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(value) = check() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the median of the times. There must be at least one.
pub fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

pub fn steelyard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steelyard"));
    command.stdin(Stdio::null()).env_remove("STEELYARD_LOG");
    command
}

pub struct Store {
    pub id: u64,
    pub client: SocketAddr,
    pub forward: Option<SocketAddr>,
    pub dir: PathBuf,
    admin: AdminClient,
    arguments: Vec<String>,
    host: Host,
    /// The program for the next start, if it differs from this one.
    pub program: Option<PathBuf>,
    /// Variables for the environment of the next start.
    pub environment: Vec<(String, OsString)>,
    log: PathBuf,
    child: Option<Child>,
}

/// The host of a store, and the means to reach the store there.
#[derive(Clone)]
pub struct Host {
    /// The beginning of the command line that runs a program on the host. Empty for this host.
    launcher: Vec<String>,
    /// The admin address on that host's loopback.
    admin: SocketAddr,
}

impl Host {
    fn is_elsewhere(&self) -> bool {
        !self.launcher.is_empty()
    }

    fn program(&self) -> Command {
        let program = steelyard();
        let Some((first, others)) = self.launcher.split_first() else { return program };
        let mut command = Command::new(first);
        command.args(others).arg(program.get_program()).stdin(Stdio::null()).env_remove("STEELYARD_LOG");
        command
    }

    /// Runs `steelyard ctl` and returns its answer, or its error text.
    pub fn ctl(&self, arguments: &[&str]) -> Result<Value, String> {
        let mut command = self.program();
        command.args(["ctl", "--json", "--admin", &self.admin.to_string()]).args(arguments);
        let output = client::process::output(&mut command).map_err(|error| error.to_string())?;
        match output.status.success() {
            true => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

/// The description of a test's cluster.
pub struct Plan<'a> {
    pub stores: u16,
    pub regions: u16,
    pub cluster_enabled: bool,
    /// `capability=` of each store. May be empty.
    pub capabilities: &'a [&'a str],
    /// Further flags for every `steelyard serve`, or other values for the flags that every test
    /// sets.
    pub flags: &'a [(&'a str, &'a str)],
    /// A network with a host for each store. Without it, all stores are on loopback.
    pub network: Option<&'a Network>,
    /// True if the data should be in RAM, if there is a RAM file system.
    pub in_ram: bool,
    /// True if store 0 begins the cluster and the others join it in order. Otherwise all are in one
    /// list.
    pub joining: bool,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Plan {
            stores: 1,
            regions: 1,
            cluster_enabled: false,
            capabilities: &[],
            flags: &[],
            network: None,
            in_ram: false,
            joining: false,
        }
    }
}

/// The variable that has the stores of every test use TLS with each other.
const TLS_FOR_ALL: &str = "STEELYARD_TEST_TLS";

/// The name of the cluster in certificates.
pub const CLUSTER: &str = "tests";

/// Returns the content of certificates for tests.
pub fn terms() -> Terms {
    Terms { cluster: CLUSTER.into(), hosts: Vec::new(), days: 10 }
}

pub struct Stores {
    pub all: Vec<Store>,
    // Dropped after the processes, because fields are dropped in the order of their declaration.
    root: tempfile::TempDir,
}

impl Stores {
    /// Starts the stores and waits until they serve.
    pub fn start(plan: &Plan) -> Stores {
        let mut stores = Stores::prepare(plan);
        for store in &mut stores.all {
            store.spawn();
            if plan.joining {
                // The order of joining determines the store's number.
                store.await_ready();
            }
        }
        stores.await_ready();
        stores
    }

    /// Prepares everything but does not start the processes.
    pub fn prepare(plan: &Plan) -> Stores {
        const RAM: &str = "/dev/shm";
        let place = if plan.in_ram && Path::new(RAM).is_dir() { RAM.into() } else { std::env::temp_dir() };
        let root = tempfile::Builder::new().prefix("steelyard-test-").tempdir_in(place);
        let root = root.expect("a temporary directory");
        let ports = free_ports(usize::from(plan.stores) * 4).expect("free ports");
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let ip = |i: usize| plan.network.map_or(loopback, |network| network.address(i));
        let list: Vec<String> = (0..usize::from(plan.stores))
            .map(|i| {
                let [client, peer, admin, forward] = ports[i * 4..i * 4 + 4] else { unreachable!() };
                let mut entry = format!("{i}={}:{client}:{peer}:{admin}", ip(i));
                if plan.cluster_enabled {
                    entry += &format!(",forward={forward}");
                }
                if let Some(capability) = plan.capabilities.get(i) {
                    entry += &format!(",capability={capability}");
                }
                entry
            })
            .collect();
        let list = list.join(",");
        let store = |i: usize| {
            let dir = root.path().join(format!("store-{i}"));
            let mut arguments: Vec<String> = vec!["serve".into()];
            let mut option = |name: &str, value: &str| {
                arguments.extend([format!("--{name}"), value.to_owned()]);
            };
            if plan.joining {
                let [client, peer, admin, forward] = ports[i * 4..i * 4 + 4] else { unreachable!() };
                match i {
                    0 => option("bootstrap", "yes"),
                    _ => option("join", &SocketAddr::new(ip(0), ports[1]).to_string()),
                }
                option("bind", &ip(i).to_string());
                let named = [("port", client), ("peer-port", peer), ("admin-port", admin)];
                named.iter().for_each(|(name, port)| option(name, &port.to_string()));
                if plan.cluster_enabled {
                    option("forward-port", &forward.to_string());
                }
            } else {
                option("store-id", &i.to_string());
                option("stores", &list);
            }
            option("dir", dir.to_str().expect("a plain path"));
            option("cluster-enabled", if plan.cluster_enabled { "yes" } else { "no" });
            option("regions", &plan.regions.to_string());
            option("reserve", "16mb");
            // A store alone with one loop writes the log on that loop.
            option("io-threads", if plan.stores == 1 { "1" } else { "2" });
            // Hundreds of stores are started. Only tests of the measurement let stores measure.
            option("probe", "no");
            let mut store = Store {
                id: i as u64,
                client: SocketAddr::new(ip(i), ports[i * 4]),
                forward: plan.cluster_enabled.then(|| SocketAddr::new(ip(i), ports[i * 4 + 3])),
                dir,
                admin: AdminClient::new(SocketAddr::new(loopback, ports[i * 4 + 2]), Duration::from_secs(8)),
                arguments,
                host: Host {
                    launcher: plan.network.map_or_else(Vec::new, |network| network.launcher(i)),
                    admin: SocketAddr::new(loopback, ports[i * 4 + 2]),
                },
                program: None,
                environment: Vec::new(),
                log: root.path().join(format!("store-{i}.log")),
                child: None,
            };
            if plan.network.is_some() {
                store.change(&[("--protected-mode", "no"), ("--insecure-peers", "yes")]);
            }
            store.change(plan.flags);
            store
        };
        let all: Vec<Store> = (0..usize::from(plan.stores)).map(store).collect();
        let mut stores = Stores { all, root };
        if std::env::var_os(TLS_FOR_ALL).is_some() && plan.stores > 1 {
            stores.secure();
        }
        stores
    }

    /// Has the stores use TLS with each other. Returns the authority of their certificates.
    pub fn secure(&mut self) -> Authority {
        let authority = Authority::open(&self.tls_dir()).expect("an authority");
        for store in &mut self.all {
            let files = authority.sign(Owner::Store(store.id), &terms()).expect("a certificate");
            let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
            store.change(&[
                ("--tls-cluster", "yes"),
                ("--tls-cluster-name", CLUSTER),
                ("--tls-cert-file", &text(&files.certificate)),
                ("--tls-key-file", &text(&files.key)),
                ("--tls-ca-cert-file", &text(&authority.certificate_file())),
            ]);
        }
        authority
    }

    /// Returns the directory of the authority and the certificates.
    pub fn tls_dir(&self) -> PathBuf {
        self.root.path().join("tls")
    }

    /// Waits until every running store serves every region.
    pub fn await_ready(&mut self) {
        for store in self.all.iter_mut().filter(|store| store.child.is_some()) {
            store.await_ready();
        }
    }

    /// Sends SIGKILL to all stores at nearly the same time.
    pub fn kill_all(&mut self) {
        let pids: Vec<String> =
            self.all.iter().filter_map(|store| store.child.as_ref()).map(|c| c.pid().to_string()).collect();
        assert!(Command::new("kill").arg("-KILL").args(&pids).status().is_ok_and(|status| status.success()));
        self.all.iter_mut().for_each(Store::kill);
    }

    pub fn clients(&self) -> Vec<SocketAddr> {
        self.all.iter().map(|store| store.client).collect()
    }

    /// Returns a running store that answers. On a busy machine a leader can lose its region for a
    /// moment, even just after the start, and then no store might.
    pub fn any(&self) -> &Store {
        eventually("a store answers", || self.all.iter().find(|store| store.answers()))
    }

    /// Returns the leader of a region once the stores in `asked` agree on it.
    pub fn leader_among(&self, region: u64, asked: &[usize]) -> usize {
        eventually("stores agree on a leader", || {
            let mut leaders = asked.iter().map(|&i| self.all[i].leader_of(region));
            let first = leaders.next()??;
            leaders.all(|other| other == Some(first)).then_some(first as usize)
        })
    }

    pub fn leader(&self, region: u64) -> usize {
        self.leader_among(region, &(0..self.all.len()).collect::<Vec<_>>())
    }

    /// Sets a way of replication, and waits until every store knows it.
    pub fn replicate(&self, way: &str) {
        let knows = match way {
            "chained" => "leaders send each entry to one follower",
            _ => "leaders send each entry to every follower",
        };
        eventually("the cluster has the version that chains need", || {
            ctl(self, 0, &["config", "replication", way]).ok()
        });
        eventually("every store replicates so", || {
            let is_told = |store: &Store| {
                let text = store.log_text();
                let last = text.lines().rfind(|line| line.contains("replication: leaders"));
                last.map_or(way == "direct", |line| line.contains(knows))
            };
            self.all.iter().all(is_told).then_some(())
        });
    }

    /// Waits until every store has a peer of the region that holds what its leader holds.
    pub fn await_no_lag(&self, region: u64) {
        eventually("every peer holds what the leader holds", || {
            let leader = self.all[0].leader_of(region)?;
            let rows = self.all[leader as usize].regions()?;
            let peers = &rows.iter().find(|row| row.id == region)?.peers;
            (peers.len() == self.all.len() && peers.iter().all(|peer| peer.lag == Some(0))).then_some(())
        });
    }

    /// Returns the leaders of the user regions in order, according to one store. `None` while one
    /// has none.
    pub fn leaders(&self, asked: usize) -> Option<Vec<u64>> {
        let rows = self.all[asked].regions()?;
        rows.iter().filter(|row| row.id != 0).map(|row| row.leader).collect()
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.all.iter().for_each(|store| say(&format!("--- store {}\n{}", store.id, store.log_tail())));
        }
        end_all(self.all.iter_mut().filter_map(|store| store.child.as_mut()));
    }
}

impl Store {
    /// Starts the process and returns at once. It must not be running.
    pub fn spawn(&mut self) {
        let log = File::create(&self.log).expect("the log can be made");
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None => self.host.program(),
        };
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        assert!(self.child.as_mut().is_none_or(|child| child.ended().is_some()), "the store runs already");
        self.child =
            Some(Child::spawn(format!("store {}", self.id), &mut command).expect("the store starts"));
    }

    pub fn restart(&mut self) {
        self.spawn();
        self.await_ready();
    }

    pub fn await_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log_text().contains("is ready to serve") {
            if let Some(status) = self.child.as_mut().and_then(Child::ended) {
                panic!("store {} ended before it served ({status}):\n{}", self.id, self.log_tail());
            }
            assert!(Instant::now() < deadline, "store {} does not serve:\n{}", self.id, self.log_tail());
            std::thread::sleep(POLL);
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the store was started").pid()
    }

    /// Returns a field of a section of INFO. `None` if the store does not answer or has no such
    /// field.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let reply = wire::Wire::ask(self.client, &[&["INFO", section]])?.remove(0);
        let text = String::from_utf8(client::connection::text(&reply)?.to_vec()).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned())
    }

    /// Returns the maximum memory in bytes that the process has held since it started.
    pub fn peak_rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill();
        }
    }

    /// Sends SIGTERM and returns how the process ended.
    pub fn terminate(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("the store was started");
        child.terminate();
        assert!(child.wait(PATIENCE), "SIGTERM does not end the store");
        child.ended().expect("it has ended")
    }

    /// Waits until the process ends by itself and returns how it ended.
    pub fn await_end(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("the store was started");
        assert!(child.wait(PATIENCE), "store {} still runs", self.id);
        child.ended().expect("it has ended")
    }

    /// Returns how the process ended. `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(Child::ended)
    }

    /// Returns one of the counters in the store's status.
    pub fn count(&self, name: &str) -> u64 {
        let status = self.host().ctl(&["status"]).expect("the store reports its status");
        let counters = status["counters"].as_array().expect("counters");
        let counter = counters.iter().find(|counter| counter[0] == name);
        counter.and_then(|counter| counter[1].as_u64()).unwrap_or_else(|| panic!("no {name} in {status}"))
    }

    /// Sends SIGSTOP or SIGCONT.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().is_ok_and(|status| status.success()));
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn admin(&self) -> &AdminClient {
        &self.admin
    }

    /// Returns the port for other stores.
    pub fn peer(&self) -> SocketAddr {
        let at = |name: &str| self.arguments.iter().position(|argument| argument == name);
        let port = match at("--peer-port") {
            Some(at) => self.arguments[at + 1].parse().expect("a port"),
            None => {
                let list = &self.arguments[at("--stores").expect("a list") + 1];
                let own = format!("{}=", self.id);
                let entry = list.split(',').find(|entry| entry.starts_with(&own)).expect("an entry");
                entry.split(':').nth(2).and_then(|port| port.parse().ok()).expect("a port")
            }
        };
        SocketAddr::new(self.client.ip(), port)
    }

    /// Has the tests talk to the admin endpoint with TLS.
    pub fn use_tls(&mut self, tls: client::tls::ClientTls) {
        self.admin = AdminClient::with_tls(self.admin.address(), Duration::from_secs(8), Ok(Some(tls)));
    }

    pub fn answers(&self) -> bool {
        self.admin.healthy()
    }

    pub fn regions(&self) -> Option<Vec<RegionRow>> {
        if self.host.is_elsewhere() {
            return serde_json::from_value(self.host.ctl(&["regions"]).ok()?).ok();
        }
        self.admin.ask(&RegionsQuery {}).ok()
    }

    pub fn leader_of(&self, region: u64) -> Option<u64> {
        self.regions()?.iter().find(|row| row.id == region)?.leader
    }

    /// Returns the command line without the program, with some flags changed.
    pub fn arguments_with(&self, changes: &[(&str, &str)]) -> Vec<String> {
        let mut arguments = self.arguments.clone();
        for (name, value) in changes {
            match arguments.iter().position(|argument| argument == name) {
                Some(at) => arguments[at + 1] = (*value).to_owned(),
                None => arguments.extend([(*name).to_owned(), (*value).to_owned()]),
            }
        }
        arguments
    }

    /// Changes flags for the next start.
    pub fn change(&mut self, changes: &[(&str, &str)]) {
        self.arguments = self.arguments_with(changes);
    }

    /// Flips a bit in the middle of the store's largest row file, if that has more than `least`
    /// bytes. Returns its path. The store must be down.
    pub fn damage_rows(&self, least: u64) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.dir.join("rows")).ok()?.filter_map(Result::ok);
        let tables =
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|of| of == "sst"));
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
        let largest = tables.max_by_key(size).filter(|path| size(path) > least)?;
        let file = File::options().read(true).write(true).open(&largest).expect("a file to damage");
        let (at, mut byte) = (size(&largest) / 2, [0]);
        file.read_exact_at(&mut byte, at).expect("within the file");
        file.write_all_at(&[byte[0] ^ 4], at).expect("written");
        Some(largest)
    }

    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_default()
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    const TAIL_BYTES: u64 = 4096;
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
