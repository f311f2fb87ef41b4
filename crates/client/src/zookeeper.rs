//! ZooKeeper servers as child processes, for the playground and the tests. They are started from
//! the files of Debian's package `zookeeper`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{free_ports, Child};

const JAR: &str = "/usr/share/java/zookeeper.jar";
/// Netty's parts for connections with TLS that the manifest of [`JAR`] does not name.
const NETTY_JARS: &str = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// Maximum size of a server's heap in MiB, unless another is given. Its content is small.
const HEAP_MIB: u32 = 128;
/// Ports of a server: for clients, followers, elections, and clients with TLS.
const PORTS: usize = 4;
const POLL: Duration = Duration::from_millis(50);

/// One server or several, all on loopback. Dropping it ends them.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    heap_mib: u32,
    class_path: String,
}

/// The files of servers that also have a port with TLS, in PEM. Clients need a certificate there.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The servers' certificate, with its chain and its key.
    pub identity: PathBuf,
    /// The certificates that sign those of clients.
    pub authorities: PathBuf,
}

#[derive(Debug)]
struct Server {
    dir: PathBuf,
    client: SocketAddr,
    secure: SocketAddr,
    child: Option<Child>,
}

impl Ensemble {
    /// Starts servers with data below `dir`. `tick` is ZooKeeper's `tickTime`: sessions last at
    /// least two of them and at most twenty.
    pub fn start(dir: &Path, servers: usize, tick: Duration) -> io::Result<Ensemble> {
        Ensemble::start_sized(dir, servers, tick, HEAP_MIB)
    }

    /// Starts servers like [`Ensemble::start`], each with a heap of at most `heap_mib` MiB.
    pub fn start_sized(dir: &Path, servers: usize, tick: Duration, heap_mib: u32) -> io::Result<Ensemble> {
        Ensemble::start_all(dir, servers, tick, heap_mib, None)
    }

    /// Starts servers like [`Ensemble::start`], each with a second port for clients with TLS.
    pub fn start_with_tls(
        dir: &Path,
        servers: usize,
        tick: Duration,
        tls: &ServerTls,
    ) -> io::Result<Ensemble> {
        Ensemble::start_all(dir, servers, tick, HEAP_MIB, Some(tls))
    }

    fn start_all(
        dir: &Path,
        servers: usize,
        tick: Duration,
        heap_mib: u32,
        tls: Option<&ServerTls>,
    ) -> io::Result<Ensemble> {
        if !Path::new(JAR).exists() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{JAR} is missing; Debian's package zookeeper has it"),
            ));
        }
        let ports = free_ports(servers * PORTS)?;
        let mut common = format!(
            "tickTime={}\ninitLimit=50\nsyncLimit=20\nadmin.enableServer=false\nmaxClientCnxns=0\n\
             4lw.commands.whitelist=srvr,dump\nstandaloneEnabled=true\n",
            tick.as_millis()
        );
        if let Some(ServerTls { identity, authorities }) = tls {
            common += &format!(
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\n\
                 ssl.trustStore.location={}\nssl.trustStore.type=PEM\n",
                identity.display(),
                authorities.display()
            );
        }
        if servers > 1 {
            for (number, ports) in ports.chunks(PORTS).enumerate() {
                common += &format!("server.{}=127.0.0.1:{}:{}\n", number + 1, ports[1], ports[2]);
            }
        }
        let class_path = match tls {
            Some(_) => format!("{JAR}:{NETTY_JARS}"),
            None => JAR.to_owned(),
        };
        let mut ensemble = Ensemble { servers: Vec::new(), heap_mib, class_path };
        for (number, ports) in ports.chunks(PORTS).enumerate() {
            let dir = dir.join(format!("zookeeper-{}", number + 1));
            let data = dir.join("data");
            std::fs::create_dir_all(&data)?;
            std::fs::write(data.join("myid"), (number + 1).to_string())?;
            let mut own =
                format!("dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n", data.display(), ports[0]);
            if tls.is_some() {
                own += &format!("secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n", ports[3]);
            }
            std::fs::write(dir.join("zoo.cfg"), common.clone() + &own)?;
            let [client, secure] =
                [ports[0], ports[3]].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            ensemble.servers.push(Server { dir, client, secure, child: None });
        }
        (0..servers).try_for_each(|server| ensemble.restart(server))?;
        Ok(ensemble)
    }

    /// Returns the addresses of all servers, as clients name them.
    pub fn connect_string(&self) -> String {
        self.servers.iter().map(|server| server.client.to_string()).collect::<Vec<_>>().join(",")
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.client).collect()
    }

    /// Returns the addresses for clients with TLS.
    pub fn secure_addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.secure).collect()
    }

    /// Starts a server that is not running.
    pub fn restart(&mut self, server: usize) -> io::Result<()> {
        let Server { dir, child, .. } = &mut self.servers[server];
        let log = std::fs::File::create(dir.join("log"))?;
        let mut command = Command::new("java");
        command.arg(format!("-Xmx{}m", self.heap_mib));
        command.args(["-Dzookeeper.jmx.log4j.disable=true", "-cp", &self.class_path, MAIN]);
        command.arg(dir.join("zoo.cfg")).current_dir(&*dir);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *child = Some(Child::spawn(format!("zookeeper-{}", server + 1), &mut command)?);
        Ok(())
    }

    pub fn kill(&mut self, server: usize) {
        if let Some(mut child) = self.servers[server].child.take() {
            child.kill();
            child.wait(Duration::from_secs(10));
        }
    }

    /// Stops all servers with SIGSTOP. Their connections stay open.
    pub fn suspend(&mut self) {
        self.children().for_each(Child::suspend);
    }

    /// Lets suspended servers go on.
    pub fn resume(&mut self) {
        self.children().for_each(Child::resume);
    }

    fn children(&mut self) -> impl Iterator<Item = &mut Child> {
        self.servers.iter_mut().filter_map(|server| server.child.as_mut())
    }

    /// Waits until every running server serves clients. Returns false if that takes too long.
    pub fn await_ready(&self, patience: Duration) -> bool {
        let began = Instant::now();
        let is_ready = |server: &Server| server.child.is_none() || mode_of(server.client).is_some();
        while !self.servers.iter().all(is_ready) {
            if began.elapsed() > patience {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    /// Returns the server that leads the ensemble.
    pub fn leader(&self) -> Option<usize> {
        self.servers.iter().position(|server| mode_of(server.client).is_some_and(|mode| mode == "leader"))
    }
}

/// Asks a server for its role by the command `srvr`. A server without a quorum has none.
fn mode_of(server: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_millis(500)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix("Mode: "))?.to_owned())
}
