//! Stores in separate network namespaces, joined by a bridge, and partitions between them.
//!
//! A cut makes one namespace send its packets for another one to a hardware address that does not
//! exist. They are lost silently and in this direction only; packets in the other direction arrive.
//! This needs no packet filter, only permission to create namespaces. The test process, where the
//! clients run, always reaches every store.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A locally administered hardware address that no interface has.
const NOWHERE: &str = "02:00:00:00:de:ad";

/// The last byte of the bridge's address.
const OUTSIDE: u8 = 254;

/// A network of namespaces, which are removed when it is dropped. The processes in them must end
/// before.
pub struct Network {
    tag: String,
    /// The third byte of every address, in the range reserved for network tests (RFC 2544).
    subnet: u8,
    hosts: usize,
    cuts: BTreeSet<(usize, usize)>,
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {}: {}", arguments.join(" "), error.trim()))
        }
    }
}

impl Network {
    /// Creates a network of `hosts` namespaces. Returns an error if the machine does not permit it.
    pub fn new(hosts: usize) -> Result<Network, String> {
        assert!((1..=200).contains(&hosts), "addresses for {hosts} hosts");
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_leftovers();
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let subnet = ((pid + number) % 251) as u8;
        // A namespace disappears some time after its name, so each name is used only once.
        let network = Network { tag: format!("sy{pid}x{number}"), subnet, hosts, cuts: BTreeSet::new() };
        network.build()?;
        Ok(network)
    }

    fn build(&self) -> Result<(), String> {
        let bridge = &self.tag;
        ip(&["link", "add", bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", self.outside()), "dev", bridge])?;
        ip(&["link", "set", bridge, "up"])?;
        for host in 0..self.hosts {
            let (name, outside) = (self.namespace(host), format!("{bridge}v{host}"));
            ip(&["netns", "add", &name])?;
            ip(&["link", "add", &outside, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
            ip(&["link", "set", &outside, "master", bridge, "up"])?;
            ip(&["-n", &name, "addr", "add", &format!("{}/24", self.address(host)), "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.tag)
    }

    pub fn address(&self, host: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 18, self.subnet, host as u8 + 1))
    }

    /// Returns the address at which the hosts reach the test process. No cut affects it.
    pub fn outside(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 18, self.subnet, OUTSIDE))
    }

    /// Returns the prefix of a command line that makes the command run on this host.
    pub fn launcher(&self, host: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(host)].map(str::to_owned).to_vec()
    }

    /// Limits the rate at which a host sends, in megabits per second; `None` removes the limit.
    pub fn limit(&self, host: usize, megabits: Option<u32>) -> Result<(), String> {
        let name = self.namespace(host);
        // A host without a limit has no queue to remove.
        let _ = run("tc", &["-n", &name, "qdisc", "del", "dev", "eth0", "root"]);
        let Some(megabits) = megabits else { return Ok(()) };
        let rate = format!("{megabits}mbit");
        let queue = ["burst", "256kb", "latency", "50ms"];
        let add = ["-n", &name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate];
        run("tc", &[&add[..], &queue].concat())
    }

    /// Returns the bytes that a host has sent, with the headers of its packets.
    pub fn sent_bytes(&self, host: usize) -> Result<u64, String> {
        let path = format!("/sys/class/net/{}v{host}/statistics/rx_bytes", self.tag);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        text.trim().parse().map_err(|error| format!("{path}: {error}"))
    }

    /// Drops all packets from `from` to `to` until the network is healed.
    pub fn cut(&mut self, from: usize, to: usize) {
        if self.cuts.insert((from, to)) {
            let (name, address) = (self.namespace(from), self.address(to).to_string());
            let entry = [
                "-n",
                &name,
                "neigh",
                "replace",
                &address,
                "lladdr",
                NOWHERE,
                "dev",
                "eth0",
                "nud",
                "permanent",
            ];
            ip(&entry).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Partitions the network: only hosts of the same group reach each other. A host in no group
    /// reaches no other host.
    pub fn part(&mut self, groups: &[&[usize]]) {
        let together =
            |a: usize, b: usize| groups.iter().any(|group| group.contains(&a) && group.contains(&b));
        self.keep(together);
    }

    /// Partitions the network so that every host reaches only the one before and the one after it,
    /// in a circle.
    pub fn ring(&mut self) {
        let hosts = self.hosts;
        self.keep(|a, b| (a + 1) % hosts == b || (b + 1) % hosts == a);
    }

    fn keep(&mut self, reaches: impl Fn(usize, usize) -> bool) {
        self.heal();
        for from in 0..self.hosts {
            (0..self.hosts).filter(|&to| to != from && !reaches(from, to)).for_each(|to| self.cut(from, to));
        }
    }

    pub fn heal(&mut self) {
        for (from, to) in std::mem::take(&mut self.cuts) {
            let (name, address) = (self.namespace(from), self.address(to).to_string());
            ip(&["-n", &name, "neigh", "del", &address, "dev", "eth0"])
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            let _ = ip(&["netns", "del", &self.namespace(host)]);
        }
        let _ = ip(&["link", "del", &self.tag]);
    }
}

/// Removes the namespaces and bridges of tests that were killed.
fn remove_leftovers() {
    let names = |dir: &str| -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    };
    let is_left = |name: &str| {
        let Some(rest) = name.strip_prefix("sy") else { return false };
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        digits > 0 && !Path::new("/proc").join(&rest[..digits]).exists()
    };
    for name in names("/run/netns").into_iter().filter(|name| name.contains('-') && is_left(name)) {
        let _ = ip(&["netns", "del", &name]);
    }
    for name in names("/sys/class/net").into_iter().filter(|name| is_left(name)) {
        let _ = ip(&["link", "del", &name]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaches(network: &Network, from: usize, to: usize) -> bool {
        let mut command = network.launcher(from);
        command.extend(["ping", "-c", "1", "-W", "1", &network.address(to).to_string()].map(str::to_owned));
        let status = Command::new(&command[0])
            .args(&command[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    #[test]
    fn cuts_lose_packets_and_healing_restores_them() {
        let mut network = match Network::new(3) {
            Ok(network) => network,
            Err(why) => return eprintln!("SKIPPED partitions: {why}"),
        };
        if !reaches(&network, 0, 1) {
            return eprintln!("SKIPPED partitions: hosts cannot be pinged");
        }
        network.cut(0, 1);
        // A cut also loses the answers in its direction.
        assert!(!reaches(&network, 0, 1) && !reaches(&network, 1, 0));
        assert!(reaches(&network, 0, 2) && reaches(&network, 2, 1));
        network.part(&[&[0], &[1, 2]]);
        assert!(!reaches(&network, 0, 2) && !reaches(&network, 2, 0) && reaches(&network, 1, 2));
        network.heal();
        assert!(reaches(&network, 0, 1) && reaches(&network, 2, 0));
    }
}
