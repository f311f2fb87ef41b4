//! The layout of a playground: its stores and their addresses. It is written to
//! `<dir>/playground.json` once, and checked when the directory is used again.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{bail, ensure, Context};
use device::{KvCapability, Noise, Profile};
use serde::{Deserialize, Serialize};
use server::{side_port, Capability, Member};

/// The offset of forward ports from client ports.
const FORWARD_OFFSET: u16 = 100;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub stores: u16,
    pub port: u16,
    pub cluster_enabled: bool,
    pub regions: u16,
    pub replicas: usize,
    /// The device of each store. Empty for real devices.
    pub devices: Vec<String>,
    pub device_speed: f64,
}

impl Layout {
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!((1..=50).contains(&self.stores), "a playground has 1 to 50 stores, not {}", self.stores);
        ensure!(self.port >= 1024, "port must be at least 1024");
        // With fewer stores than this, client ports, forward ports and their side ports do not
        // overlap.
        ensure!(
            u32::from(self.port) + u32::from(FORWARD_OFFSET + self.stores) <= 65_535,
            "port {} leaves no room for {} stores",
            self.port,
            self.stores
        );
        ensure!(
            self.device_speed.is_finite() && self.device_speed > 0.0,
            "device-speed must be a factor above 0: 0.1 makes every device ten times slower"
        );
        self.profiles()?;
        Ok(())
    }

    pub fn profiles(&self) -> anyhow::Result<Vec<Profile>> {
        ensure!(
            self.devices.is_empty() || self.devices.len() == usize::from(self.stores),
            "{} devices for {} stores: name one for each store, or one for all",
            self.devices.len(),
            self.stores
        );
        self.devices.iter().map(|text| Ok(text.parse::<Profile>()?)).collect()
    }

    /// Returns the members in the order of their numbers.
    pub fn members(&self) -> anyhow::Result<Vec<Member>> {
        let profiles = self.profiles()?;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let member = |id: u16| {
            let port = self.port + id;
            Member {
                id: u64::from(id),
                client: at(port),
                peer: at(side_port(port, 10_000)),
                admin: at(side_port(port, 20_000)),
                forward: self.cluster_enabled.then(|| at(port + FORWARD_OFFSET)),
                capability: profiles.get(usize::from(id)).map(|profile| self.capability(profile)),
                device: self.devices.get(usize::from(id)).cloned().unwrap_or_default(),
                labels: Default::default(),
            }
        };
        Ok((0..self.stores).map(member).collect())
    }

    /// Returns the capability of the device with the run's speed factor applied, because rates are
    /// measured against it.
    fn capability(&self, profile: &Profile) -> Capability {
        let kv = KvCapability::of(profile).scaled(self.device_speed);
        Capability { kv_bytes_per_s: kv.kv_bytes_per_s, ops_per_s: kv.kv_ops_per_s }
    }

    /// Writes the layout into a new directory, or compares it with the layout of an existing one.
    pub fn settle(&self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join("playground.json");
        match std::fs::read(&path) {
            Ok(bytes) => {
                let old: Layout = serde_json::from_slice(&bytes)
                    .with_context(|| format!("{} cannot be read", path.display()))?;
                match self.difference(&old) {
                    Some(difference) => bail!("{} holds another playground: {difference}", dir.display()),
                    None => Ok(()),
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let text = serde_json::to_string_pretty(self)? + "\n";
                durable::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    fn difference(&self, old: &Layout) -> Option<String> {
        let (new, old) = (serde_json::to_value(self).ok()?, serde_json::to_value(old).ok()?);
        let fields = new.as_object()?;
        let (name, value) = fields.iter().find(|(name, value)| old[name.as_str()] != **value)?;
        Some(format!("{} is {} there, not {value}", name.replace('_', "-"), old[name.as_str()]))
    }
}

/// Parses a list of devices: `nvm,2x high-end-ssd,3x plain-ssd` are six. Parts are separated by `;`
/// if a device is given in numbers, because these contain commas. A single device applies to every
/// store.
pub fn parse_devices(text: &str, stores: Option<u16>) -> anyhow::Result<Vec<String>> {
    let separator = if text.contains([';', '=']) { ';' } else { ',' };
    let mut devices = Vec::new();
    for part in text.split(separator).map(str::trim).filter(|part| !part.is_empty()) {
        let (count, device) =
            match part.split_once('x').map(|(count, rest)| (count.parse::<usize>(), rest.trim())) {
                Some((Ok(count), rest)) => (count, rest),
                _ => (1, part),
            };
        ensure!(count <= 50, "a playground has at most 50 stores");
        device.parse::<Profile>()?;
        devices.extend(std::iter::repeat_n(device.to_owned(), count));
    }
    if let ([one], Some(stores)) = (devices.as_slice(), stores) {
        return Ok(vec![one.clone(); usize::from(stores)]);
    }
    Ok(devices)
}

/// Adds noise to the devices. It replaces any noise in their names.
pub fn noisy(devices: Vec<String>, noise: &str) -> anyhow::Result<Vec<String>> {
    // Refuse text that sets anything but noise, because it applies to all devices.
    let quiet = Profile { noise: Noise::NONE, ..format!("nvm,{noise}").parse()? };
    ensure!(quiet == "nvm".parse()?, "--device-noise takes spread, burst, neighbour and seed, not '{noise}'");
    Ok(devices.into_iter().map(|device| format!("{device},{noise}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            stores: 3,
            port: 7000,
            cluster_enabled: true,
            regions: 6,
            replicas: 3,
            devices: parse_devices("nvm,2x plain-ssd", Some(3)).unwrap(),
            device_speed: 0.5,
        }
    }

    #[test]
    fn store_i_is_on_port_plus_i() {
        let members = layout().members().unwrap();
        let shown: Vec<String> = members
            .iter()
            .map(|m| format!("{} {} {} {}", m.client, m.peer, m.admin, m.forward.unwrap()))
            .collect();
        assert_eq!(shown[2], "127.0.0.1:7002 127.0.0.1:17002 127.0.0.1:27002 127.0.0.1:7102");
        let ops = |i: usize| members[i].capability.unwrap().ops_per_s;
        assert!(ops(0) > ops(1) && ops(1) == ops(2));
        let full_speed = Layout { device_speed: 1.0, ..layout() }.members().unwrap();
        let bytes = |m: &Member| m.capability.unwrap().kv_bytes_per_s;
        assert_eq!(bytes(&full_speed[0]), 2.0 * bytes(&members[0]), "a slowed device can do less");
        let single = Layout { cluster_enabled: false, ..layout() };
        assert!(single.members().unwrap().iter().all(|member| member.forward.is_none()));
    }

    #[test]
    fn devices_may_be_counted_or_given_in_numbers() {
        let devices = parse_devices("nvm,2x high-end-ssd,3x plain-ssd", None).unwrap();
        assert_eq!(devices.len(), 6);
        assert_eq!((devices[0].as_str(), devices[5].as_str()), ("nvm", "plain-ssd"));
        assert_eq!(parse_devices("plain-ssd", Some(3)).unwrap().len(), 3);
        let numbers = parse_devices("nvm;2x write=5MB/s,read=6MB/s", None).unwrap();
        assert_eq!(numbers, ["nvm", "write=5MB/s,read=6MB/s", "write=5MB/s,read=6MB/s"]);
        let hybrids = parse_devices("nvm;2x hybrid/10,cache=64MiB", None).unwrap();
        assert_eq!(hybrids, ["nvm", "hybrid/10,cache=64MiB", "hybrid/10,cache=64MiB"]);
        assert!(parse_devices("nvm,floppy", None).is_err());
    }

    #[test]
    fn noise_is_added_to_every_device_and_changes_nothing_else() {
        let devices = noisy(parse_devices("nvm,2x plain-ssd", None).unwrap(), "spread=50%,seed=7").unwrap();
        assert_eq!(devices[2], "plain-ssd,spread=50%,seed=7");
        let quiet = Layout { devices: parse_devices("nvm,2x plain-ssd", None).unwrap(), ..layout() };
        let noisy_members = Layout { devices, ..layout() }.members().unwrap();
        let capability =
            |members: &[Member]| members.iter().map(|member| member.capability).collect::<Vec<_>>();
        assert_eq!(capability(&noisy_members), capability(&quiet.members().unwrap()));
        for bad in ["write=5MB/s", "slow", "spread=a lot", "burst=10s"] {
            assert!(noisy(vec!["nvm".into()], bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_directory_remembers_its_layout() {
        let dir = tempfile::tempdir().unwrap();
        layout().settle(dir.path()).unwrap();
        layout().settle(dir.path()).unwrap();
        let other = Layout { regions: 7, ..layout() };
        let error = other.settle(dir.path()).unwrap_err().to_string();
        assert!(error.contains("regions is 6 there, not 7"), "{error}");
    }

    #[test]
    fn layouts_that_cannot_work_are_refused() {
        let devices = vec!["nvm".to_owned()];
        assert!(layout().check().is_ok());
        for bad in [
            Layout { stores: 0, ..layout() },
            Layout { port: 65_500, ..layout() },
            Layout { device_speed: 0.0, ..layout() },
            Layout { devices, ..layout() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
