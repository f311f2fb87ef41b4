//! The list of stores, as text for the command line or as tables in the configuration file.
//!
//! ```text
//! stores  = entry *( "," entry )
//! entry   = ID "=" IP ":" PORT [ ":" PEER-PORT [ ":" ADMIN-PORT ] ]   starts a store
//!         | "forward=" PORT | "capability=" BYTES [ "/" OPS ] | "device=" TEXT
//!         | "label=" NAME "=" VALUE                               belongs to the store before it
//! ```
//!
//! An IPv6 address is written in brackets. A value with commas is written in parentheses:
//! `device=(write=500MB/s,read=550MB/s)`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use server::{side_port, Capability, Member};

use super::size::Size;

/// One store as written in the configuration file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StoreTable {
    pub id: u64,
    /// Address and port for clients.
    pub client: SocketAddr,
    pub peer_port: Option<u16>,
    pub admin_port: Option<u16>,
    pub forward_port: Option<u16>,
    pub capability: Option<String>,
    pub device: Option<String>,
    #[serde(default, deserialize_with = "super::options::table_or_list")]
    pub label: Vec<String>,
}

/// The list in either form.
#[derive(Clone, Debug, PartialEq)]
pub enum Stores {
    Text(String),
    Tables(Vec<StoreTable>),
}

impl<'de> Deserialize<'de> for Stores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stores, D::Error> {
        deserializer.deserialize_any(StoresVisitor)
    }
}

/// Reads either form. Unlike those of an untagged enum, the errors of a table name its keys.
struct StoresVisitor;

impl<'de> Visitor<'de> for StoresVisitor {
    type Value = Stores;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text as for --stores, or tables with id and client")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Stores, E> {
        Ok(Stores::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Stores, A::Error> {
        let mut tables = Vec::new();
        while let Some(table) = list.next_element::<StoreTable>()? {
            tables.push(table);
        }
        Ok(Stores::Tables(tables))
    }
}

impl std::str::FromStr for Stores {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Stores, Self::Err> {
        Ok(Stores::Text(text.to_owned()))
    }
}

impl Stores {
    /// Returns the members, sorted by id. Errors begin with the name of the setting.
    pub fn members(&self) -> Result<Vec<Member>, String> {
        self.sorted().map_err(|why| format!("stores: {why}"))
    }

    fn sorted(&self) -> Result<Vec<Member>, String> {
        let tables = match self {
            Stores::Text(text) => parse(text)?,
            Stores::Tables(tables) => tables.clone(),
        };
        if tables.is_empty() {
            return Err("the list of stores is empty".into());
        }
        let mut members = tables.into_iter().map(StoreTable::member).collect::<Result<Vec<_>, _>>()?;
        members.sort_by_key(|member| member.id);
        Ok(members)
    }
}

impl StoreTable {
    fn member(self) -> Result<Member, String> {
        let id = self.id;
        self.checked().map_err(|why| format!("store {id}: {why}"))
    }

    fn checked(self) -> Result<Member, String> {
        let (ip, port) = (self.client.ip(), self.client.port());
        if port == 0 {
            return Err("client needs a port other than 0, so that other stores can find the store".into());
        }
        check_ports([
            ("peer-port", self.peer_port),
            ("admin-port", self.admin_port),
            ("forward-port", self.forward_port),
        ])?;
        // The admin endpoint has no password, so it listens on loopback only.
        let at = |port| SocketAddr::new(ip, port);
        Ok(Member {
            id: self.id,
            client: self.client,
            peer: at(self.peer_port.unwrap_or_else(|| side_port(port, 10_000))),
            admin: SocketAddr::new(
                loopback_like(ip),
                self.admin_port.unwrap_or_else(|| side_port(port, 20_000)),
            ),
            forward: self.forward_port.map(at),
            capability: self.capability.as_deref().map(capability).transpose()?,
            device: self.device.unwrap_or_default(),
            labels: labels(&self.label)?,
        })
    }
}

/// Checks ports that were given. A store cannot listen on a port that changes with each start.
pub fn check_ports(given: [(&str, Option<u16>); 3]) -> Result<(), String> {
    match given.iter().find(|(_, port)| *port == Some(0)) {
        Some((name, _)) => Err(format!("{name} must be 1 to 65535")),
        None => Ok(()),
    }
}

/// Parses labels of the form `NAME=VALUE`.
pub fn labels(texts: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    for text in texts {
        let (name, value) = match text.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => (name, value),
            _ => return Err(format!("label takes NAME=VALUE, not '{text}'")),
        };
        if let Some(other) = labels.insert(name.to_owned(), value.to_owned()) {
            return Err(format!("label {name} has two values, '{other}' and '{value}'"));
        }
    }
    Ok(labels)
}

pub fn loopback_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_loopback() => ip.into(),
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    }
}

/// Parses `BYTES[/OPS]` per second. Without OPS, a command counts as 1 KiB.
pub fn capability(text: &str) -> Result<Capability, String> {
    let (bytes, ops) = match text.split_once('/') {
        Some((bytes, ops)) => (bytes, Some(ops)),
        None => (text, None),
    };
    let bytes = bytes.parse::<Size>().map_err(|error| format!("capability: {error}"))?.0 as f64;
    let ops = match ops {
        Some(ops) => {
            let number = ops.parse::<u64>();
            number.map_err(|_| format!("capability: '{ops}' is not a number of operations"))? as f64
        }
        None => bytes / 1024.0,
    };
    if bytes <= 0.0 || ops <= 0.0 {
        return Err(format!("capability must be above 0, not '{text}'"));
    }
    Ok(Capability { kv_bytes_per_s: bytes, ops_per_s: ops })
}

fn parse(text: &str) -> Result<Vec<StoreTable>, String> {
    let mut stores: Vec<StoreTable> = Vec::new();
    for entry in split_outside_parentheses(text) {
        let entry = entry.trim();
        let (name, value) = entry.split_once('=').ok_or_else(|| {
            format!("'{entry}' in the list must be ID=IP:PORT, forward=, capability=, device= or label=")
        })?;
        if let Ok(id) = name.parse::<u64>() {
            stores.push(addresses(id, value)?);
            continue;
        }
        let store = stores.last_mut().ok_or_else(|| format!("'{entry}' comes before any store"))?;
        match name {
            "forward" => store.forward_port = Some(port(value)?),
            "capability" => store.capability = Some(value.to_owned()),
            "device" => store.device = Some(value.to_owned()),
            "label" => store.label.push(value.to_owned()),
            _ => return Err(format!("'{name}' is unknown: a store has forward, capability, device, label")),
        }
    }
    Ok(stores)
}

fn split_outside_parentheses(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().expect("never empty").push(c),
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn addresses(id: u64, text: &str) -> Result<StoreTable, String> {
    let wrong = || format!("store {id}: '{text}' is not IP:PORT[:PEER-PORT[:ADMIN-PORT]]");
    let (ip, ports) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").ok_or_else(wrong)?,
        None => text.split_once(':').ok_or_else(wrong)?,
    };
    let ip: IpAddr = ip.parse().map_err(|_| format!("store {id}: '{ip}' is not an IP address"))?;
    let ports = ports.split(':').map(port).collect::<Result<Vec<u16>, String>>()?;
    if ports.len() > 3 {
        return Err(wrong());
    }
    Ok(StoreTable {
        id,
        client: SocketAddr::new(ip, ports[0]),
        peer_port: ports.get(1).copied(),
        admin_port: ports.get(2).copied(),
        forward_port: None,
        capability: None,
        device: None,
        label: Vec::new(),
    })
}

fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("'{text}' is not a port (1 to 65535)")),
    }
}

/// Formats the list for `--stores`. [`parse`] reads back the same members.
pub fn format(members: &[Member]) -> String {
    let mut parts = Vec::new();
    for m in members {
        parts.push(format!("{}={}:{}:{}", m.id, m.client, m.peer.port(), m.admin.port()));
        if let Some(forward) = m.forward {
            parts.push(format!("forward={}", forward.port()));
        }
        if let Some(Capability { kv_bytes_per_s, ops_per_s }) = m.capability {
            parts.push(format!("capability={:.0}/{:.0}", kv_bytes_per_s.max(1.0), ops_per_s.max(1.0)));
        }
        if !m.device.is_empty() {
            parts.push(format!("device={}", in_parentheses(&m.device)));
        }
        for (name, value) in &m.labels {
            parts.push(format!("label={}", in_parentheses(&format!("{name}={value}"))));
        }
    }
    parts.join(",")
}

/// Puts a value in parentheses if it contains a comma.
fn in_parentheses(value: &str) -> String {
    match value.contains(',') {
        true => format!("({value})"),
        false => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Result<Vec<Member>, String> {
        Stores::Text(text.into()).members()
    }

    #[test]
    fn ports_not_given_follow_the_client_port() {
        let list = members("1=10.0.0.2:7001:9001:9101,0=127.0.0.1:60000").unwrap();
        assert_eq!(list[0].id, 0);
        assert_eq!(list[0].peer.to_string(), "127.0.0.1:50000");
        assert_eq!(list[0].admin.to_string(), "127.0.0.1:40000");
        assert_eq!(list[1].peer.to_string(), "10.0.0.2:9001");
        assert_eq!(list[1].admin.to_string(), "127.0.0.1:9101", "the admin endpoint stays on loopback");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = "0=127.0.0.1:7000:17000:27000,forward=7100,capability=600/20,\
                    device=(write=5MB/s,read=6MB/s),label=(rack=3,left),label=zone=a,\
                    1=[::1]:7001:17001:27001,device=nvm";
        let list = members(text).unwrap();
        assert_eq!(list[0].capability, Some(Capability { kv_bytes_per_s: 600.0, ops_per_s: 20.0 }));
        assert_eq!(list[0].device, "write=5MB/s,read=6MB/s");
        assert_eq!(list[0].forward.unwrap().port(), 7100);
        let labels = [("rack", "3,left"), ("zone", "a")];
        assert!(list[0].labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(labels));
        assert!(list[1].labels.is_empty());
        assert_eq!(list[1].client.to_string(), "[::1]:7001");
        assert_eq!(format(&list), text);
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, part) in [
            ("", "empty"),
            ("nonsense", "'nonsense'"),
            ("0=localhost:7000", "'localhost' is not an IP address"),
            ("0=127.0.0.1", "IP:PORT"),
            ("0=127.0.0.1:70000", "'70000' is not a port"),
            ("0=127.0.0.1:1:2:3:4", "IP:PORT"),
            ("forward=1,0=127.0.0.1:7000", "before any store"),
            ("0=127.0.0.1:7000,color=red", "'color' is unknown"),
            ("0=127.0.0.1:7000,label=zone", "NAME=VALUE, not 'zone'"),
            ("0=127.0.0.1:7000,label=zone=", "NAME=VALUE, not 'zone='"),
            ("0=127.0.0.1:7000,label=zone=a,label=zone=b", "label zone has two values, 'a' and 'b'"),
            (
                "0=127.0.0.1:7000,1=127.0.0.1:7001,capability=fast",
                "store 1: capability: 'fast' is not a size",
            ),
            ("0=127.0.0.1:7000,capability=1mb/x", "store 0: capability: 'x' is not a number"),
            ("0=127.0.0.1:7000,capability=0", "store 0: capability must be above 0"),
        ] {
            let error = members(text).unwrap_err();
            assert!(error.contains(part) && error.starts_with("stores: "), "{text}: {error}");
        }
    }
}
