//! Starts the servers that are compared. Each has a directory that is removed with the server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context};
use tempfile::TempDir;

use client::admin::AdminClient;
use client::connection::Connection;
use client::process::{end_all, free_ports, Child};

/// A server of one or more processes. Dropping it ends them and then removes its data.
pub struct Server {
    pub clients: Vec<SocketAddr>,
    /// The admin endpoints, if the server has them.
    pub admins: Vec<AdminClient>,
    children: Vec<Child>,
    dir: TempDir,
}

impl Server {
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::pid).collect()
    }

    /// Returns a counter summed over the stores. `None` if there is no such counter.
    pub async fn counter(&self, name: &'static str) -> Option<u64> {
        let admins = self.admins.clone();
        let sum = move || admins.iter().map(|admin| admin.counter(name).ok()).sum::<Option<u64>>();
        tokio::task::spawn_blocking(sum).await.ok()?.filter(|_| !self.admins.is_empty())
    }

    fn fail_if_dead(&mut self) -> anyhow::Result<()> {
        for child in &mut self.children {
            if let Some(status) = child.ended() {
                let log = std::fs::read_to_string(self.dir.path().join(format!("{}.log", child.name())));
                let log = log.unwrap_or_default();
                let last =
                    log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing in its log");
                bail!("{} ended ({status}): {last}", child.name());
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end_all(&mut self.children);
    }
}

const START: Duration = Duration::from_secs(60);

fn start(name: &str, dir: &Path, command: &mut Command) -> anyhow::Result<Child> {
    let log = std::fs::File::create(dir.join(format!("{name}.log")))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Child::spawn(name, command)?)
}

fn directory(parent: &Path, name: &str) -> anyhow::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("steelyard-peers-{name}-"))
        .tempdir_in(parent)
        .with_context(|| format!("no directory can be made in {}", parent.display()))
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Returns the full path of a program on PATH.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

pub async fn redis(parent: &Path, program: &Path) -> anyhow::Result<Server> {
    let dir = directory(parent, "redis")?;
    let port = free_ports(1)?[0];
    let mut command = Command::new(program);
    command.current_dir(dir.path()).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no"]);
    let child = start("redis", dir.path(), &mut command)?;
    let mut server = Server { clients: vec![loopback(port)], admins: Vec::new(), children: vec![child], dir };
    let deadline = Instant::now() + START;
    while !answers_ping(server.clients[0]).await {
        server.fail_if_dead()?;
        wait(deadline, "redis-server").await?;
    }
    Ok(server)
}

async fn answers_ping(address: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(address, Duration::from_secs(1)).await else { return false };
    matches!(connection.call(&["PING"]).await, Ok(reply) if !reply.is_error())
}

async fn wait(deadline: Instant, what: &str) -> anyhow::Result<()> {
    if Instant::now() >= deadline {
        bail!("{what} does not answer after {} s", START.as_secs());
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(())
}

/// Starts `stores` stores that sync before they acknowledge. More than one store run in cluster
/// mode with three copies.
pub async fn steelyard(parent: &Path, program: &Path, stores: usize, regions: u16) -> anyhow::Result<Server> {
    let dir = directory(parent, "steelyard")?;
    let ports = free_ports(3 * stores)?;
    let list: Vec<String> = (0..stores)
        .map(|i| format!("{i}=127.0.0.1:{}:{}:{}", ports[3 * i], ports[3 * i + 1], ports[3 * i + 2]))
        .collect();
    let mut children = Vec::new();
    for i in 0..stores {
        let mut command = Command::new(program);
        command.args(["serve", "--store-id", &i.to_string(), "--stores", &list.join(",")]);
        // The probe of the device would disturb the measurement.
        command
            .args(["--fsync", "always", "--probe", "no", "--dir"])
            .arg(dir.path().join(format!("store-{i}")));
        if stores > 1 {
            command.args(["--cluster-enabled", "yes", "--regions", &regions.to_string()]);
        }
        children.push(start(&format!("store-{i}"), dir.path(), &mut command)?);
    }
    let admins: Vec<AdminClient> =
        (0..stores).map(|i| AdminClient::new(loopback(ports[3 * i + 2]), Duration::from_secs(2))).collect();
    let clients = (0..stores).map(|i| loopback(ports[3 * i])).collect();
    let mut server = Server { clients, admins, children, dir };
    let deadline = Instant::now() + START;
    loop {
        server.fail_if_dead()?;
        let admins = server.admins.clone();
        if tokio::task::spawn_blocking(move || admins.iter().all(AdminClient::healthy)).await? {
            return Ok(server);
        }
        wait(deadline, "steelyard").await?;
    }
}

/// Starts the limit with `copies` copies.
pub async fn limit(parent: &Path, program: &Path, copies: usize) -> anyhow::Result<Server> {
    let dir = directory(parent, "limit")?;
    let ports = free_ports(copies)?;
    let (leader, followers) = ports.split_first().context("the limit needs at least one copy")?;
    let mut server =
        Server { clients: vec![loopback(*leader)], admins: Vec::new(), children: Vec::new(), dir };
    let deadline = Instant::now() + START;
    for port in followers.iter().chain([leader]) {
        let name = format!("limit-{port}");
        let mut command = Command::new(program);
        command.args(["bench", "limit", "--port", &port.to_string()]);
        command.arg("--dir").arg(server.dir.path().join(&name));
        if port != leader {
            command.arg("--follow");
        } else if !followers.is_empty() {
            let list: Vec<String> = followers.iter().map(|port| loopback(*port).to_string()).collect();
            command.args(["--followers", &list.join(",")]);
        }
        server.children.push(start(&name, server.dir.path(), &mut command)?);
        // A follower accepts only one connection, the leader's. The check must not use it up.
        while port != leader && !is_bound(*port) {
            server.fail_if_dead()?;
            wait(deadline, "a follower at the limit").await?;
        }
    }
    while !answers_ping(server.clients[0]).await {
        server.fail_if_dead()?;
        wait(deadline, "the limit").await?;
    }
    Ok(server)
}

/// Returns true if a process listens at the port.
fn is_bound(port: u16) -> bool {
    std::net::TcpListener::bind(loopback(port)).is_err()
}

/// Starts three etcd nodes.
pub async fn etcd(parent: &Path, program: &Path) -> anyhow::Result<Server> {
    const NODES: usize = 3;
    let dir = directory(parent, "etcd")?;
    let ports = free_ports(2 * NODES)?;
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let list: Vec<String> = (0..NODES).map(|i| format!("n{i}={}", url(ports[2 * i + 1]))).collect();
    let mut children = Vec::new();
    for i in 0..NODES {
        let (client, peer) = (url(ports[2 * i]), url(ports[2 * i + 1]));
        let mut command = Command::new(program);
        command.args(["--name", &format!("n{i}"), "--initial-cluster", &list.join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster-state", "new", "--quota-backend-bytes", "8589934592"]);
        command.args(["--logger", "zap", "--log-level", "error"]);
        command.arg("--data-dir").arg(dir.path().join(format!("n{i}")));
        children.push(start(&format!("etcd-{i}"), dir.path(), &mut command)?);
    }
    let clients: Vec<SocketAddr> = (0..NODES).map(|i| loopback(ports[2 * i])).collect();
    let mut server = Server { clients, admins: Vec::new(), children, dir };
    let deadline = Instant::now() + START;
    loop {
        server.fail_if_dead()?;
        let clients = server.clients.clone();
        let healthy = move || {
            clients.iter().all(|address| {
                let client = AdminClient::new(*address, Duration::from_secs(1));
                client.get::<serde_json::Value>("/health").is_ok_and(|answer| answer["health"] == "true")
            })
        };
        if tokio::task::spawn_blocking(healthy).await? {
            return Ok(server);
        }
        wait(deadline, "etcd").await?;
    }
}
