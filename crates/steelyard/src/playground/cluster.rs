//! A local cluster of real store processes, which end with this process.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context};
use client::admin::{AdminClient, StatusQuery, VersionsQuery};
use client::process::{end_all, Child};
use server::Member;

use super::layout::Layout;
use crate::authority::{Authority, Owner, Terms};
use crate::serve::members;

/// A store's process, and the data needed to restart it.
pub struct Store {
    pub member: Member,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    log: PathBuf,
    child: Option<Child>,
}

/// The way in which a store comes into its cluster.
enum Beginning<'a> {
    /// The list of the stores with which the cluster begins.
    Listed(&'a str),
    /// The peer address of a store of the cluster.
    Joins(SocketAddr),
}

/// The directory of a playground's data.
pub enum Place {
    /// A directory given by the user, which is kept.
    Kept(PathBuf),
    /// A directory that is removed at the end.
    Temporary(tempfile::TempDir),
}

impl Place {
    pub fn path(&self) -> &Path {
        match self {
            Place::Kept(path) => path,
            Place::Temporary(dir) => dir.path(),
        }
    }
}

pub struct Cluster {
    pub stores: Vec<Store>,
    pub layout: Layout,
    // Dropped after the stores, because fields are dropped in the order of their declaration.
    place: Place,
}

/// The directory of certificates below that of a cluster's data.
const TLS_DIR: &str = "tls";
const TLS_DAYS: u32 = 365;

impl Cluster {
    /// Starts every store without waiting until they serve; see [`Cluster::wait_until_ready`]. Must
    /// be called from the main thread, because the stores end when the calling thread ends.
    pub fn start(layout: Layout, place: Place, extra: &[OsString]) -> anyhow::Result<Cluster> {
        let members = layout.members()?;
        Cluster::start_members(layout, members, place, extra)
    }

    /// Starts a cluster like [`Cluster::start`], with members whose descriptions may differ from
    /// the layout's.
    pub fn start_members(
        layout: Layout,
        members: Vec<Member>,
        place: Place,
        extra: &[OsString],
    ) -> anyhow::Result<Cluster> {
        Cluster::start_with(layout, members, place, extra, false)
    }

    /// Does the same with TLS at every port, by certificates that are made in the place of the
    /// data. This process then speaks TLS with all servers.
    pub fn start_with_tls(
        layout: Layout,
        members: Vec<Member>,
        place: Place,
        extra: &[OsString],
    ) -> anyhow::Result<Cluster> {
        Cluster::start_with(layout, members, place, extra, true)
    }

    fn start_with(
        layout: Layout,
        members: Vec<Member>,
        place: Place,
        extra: &[OsString],
        with_tls: bool,
    ) -> anyhow::Result<Cluster> {
        layout.check()?;
        let dir = place.path().to_owned();
        std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let dir = dir.canonicalize()?;
        for member in &members {
            for address in [Some(member.client), Some(member.peer), Some(member.admin), member.forward] {
                if let Some(address) = address.filter(|address| !client::process::port_is_free(*address)) {
                    bail!("{address}, the address of store {}, is in use: choose another --port", member.id);
                }
            }
        }
        layout.settle(&dir)?;
        let profiles = layout.profiles()?;
        let list = members::format(&members);
        let authority = with_tls.then(|| Authority::open(&dir.join(TLS_DIR))).transpose()?;
        let terms = Terms { cluster: "playground".into(), hosts: Vec::new(), days: TLS_DAYS };
        if let Some(authority) = &authority {
            authority.sign(Owner::Client, &terms)?;
            client::tls::use_directory(&dir.join(TLS_DIR)).map_err(anyhow::Error::msg)?;
        }
        let mut cluster = Cluster { stores: Vec::new(), layout, place };
        for member in members {
            let profile = profiles.get(member.id as usize);
            let beginning = Beginning::Listed(&list);
            let mut flags = extra.to_vec();
            if let Some(authority) = &authority {
                flags.extend(tls_flags(authority, &member, &terms)?);
            }
            let store = Store::prepare(member, profile, &cluster.layout, beginning, &dir, &flags)?;
            cluster.stores.push(store);
        }
        for store in &mut cluster.stores {
            store.start()?;
        }
        Ok(cluster)
    }

    /// Starts one more store, which joins the cluster through its first store, on a device like
    /// that store's. The cluster numbers its stores itself; the member's number is only the place
    /// in `stores`.
    pub fn join(&mut self, extra: &[OsString]) -> anyhow::Result<()> {
        let mut wider = self.layout.clone();
        wider.stores += 1;
        wider.devices.extend(self.layout.devices.first().cloned());
        let member = wider.members()?.pop().context("a wider layout has a last member")?;
        let first = self.stores.first().context("a cluster has a store")?.member.peer;
        let profiles = wider.profiles()?;
        let dir = self.place.path().canonicalize()?;
        let beginning = Beginning::Joins(first);
        let mut store = Store::prepare(member, profiles.last(), &wider, beginning, &dir, extra)?;
        store.start()?;
        self.stores.push(store);
        Ok(())
    }

    pub fn dir(&self) -> &Path {
        self.place.path()
    }

    /// Returns the directory of the certificates of a cluster with TLS.
    pub fn tls_dir(&self) -> PathBuf {
        self.dir().join(TLS_DIR)
    }

    /// Waits until every store reports that it serves, with the commands of its program's version.
    /// Fails at once if a store ends, with the last line of its log.
    pub async fn wait_until_ready(&mut self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let mut waiting = Vec::new();
            for store in &mut self.stores {
                if let Some(end) = store.died() {
                    bail!("store {} {end}: {}", store.member.id, store.last_words());
                }
                if !store.admin().healthy() || !has_newest_version(&store.admin()) {
                    waiting.push(store.member.id.to_string());
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("store {} does not answer after {} s", waiting.join(", "), patience.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns true if a store executes the commands of its stores' programs, or if the cluster waits
/// for an operator.
fn has_newest_version(admin: &AdminClient) -> bool {
    let (Ok(row), Ok(own)) = (admin.ask(&VersionsQuery {}), admin.ask(&StatusQuery {})) else { return false };
    let newest: Option<Vec<u32>> = row.stores.iter().map(|store| store.newest).collect();
    !row.finishes || newest.is_some_and(|newest| newest.iter().all(|newest| *newest <= own.cluster_version))
}

/// Returns the flags of a store with TLS at every port.
fn tls_flags(authority: &Authority, member: &Member, terms: &Terms) -> anyhow::Result<Vec<OsString>> {
    let files = authority.sign(Owner::Store(member.id), terms)?;
    let mut flags: Vec<OsString> = Vec::new();
    let mut option = |name: &str, value: OsString| flags.extend([format!("--{name}").into(), value]);
    option("tls-port", member.client.port().to_string().into());
    option("tls-cert-file", files.certificate.into());
    option("tls-key-file", files.key.into());
    option("tls-ca-cert-file", authority.certificate_file().into());
    option("tls-cluster-name", terms.cluster.clone().into());
    for name in ["tls-cluster", "tls-admin", "tls-forward"] {
        option(name, "yes".into());
    }
    Ok(flags)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end_all(self.stores.iter_mut().filter_map(|store| store.child.as_mut()));
    }
}

impl Store {
    fn prepare(
        member: Member,
        profile: Option<&device::Profile>,
        layout: &Layout,
        beginning: Beginning<'_>,
        dir: &Path,
        extra: &[OsString],
    ) -> anyhow::Result<Store> {
        let id = member.id;
        let data = dir.join(format!("store-{id}"));
        let mut environment = Vec::new();
        let mut device = None;
        if let Some(profile) = profile {
            std::fs::create_dir_all(&data)?;
            let control = dir.join(format!("store-{id}.device"));
            // Each device is noisy at different times.
            let profile = device::Profile { noise: profile.noise.of_device(id), ..profile.clone() };
            device::Control::create(&control, &profile, 1.0 / layout.device_speed)?;
            for (name, value) in device::preload_env(&control, &data)? {
                environment.push((name.to_owned(), value));
            }
            device = Some(control);
        }
        let mut arguments: Vec<OsString> = vec!["serve".into()];
        let mut option = |name: &str, value: OsString| arguments.extend([format!("--{name}").into(), value]);
        option("dir", data.into());
        match beginning {
            Beginning::Listed(list) => {
                option("store-id", id.to_string().into());
                option("stores", list.into());
                option("cluster-enabled", if layout.cluster_enabled { "yes" } else { "no" }.into());
                option("regions", layout.regions.to_string().into());
                option("replicas", layout.replicas.to_string().into());
            }
            Beginning::Joins(peer) => {
                option("join", peer.to_string().into());
                option("port", member.client.port().to_string().into());
            }
        }
        if let Some(control) = device {
            option("device-control", control.into());
        }
        arguments.extend(extra.iter().cloned());
        let store = Store {
            member,
            program: program()?,
            arguments,
            environment,
            log: dir.join(format!("store-{id}.log")),
            child: None,
        };
        store.write_script(&dir.join(format!("store-{id}.cmd")))?;
        Ok(store)
    }

    /// Writes the command as a shell script, so that a killed store can be restarted by hand. Only
    /// the owner can read it, because a password may be among the arguments.
    fn write_script(&self, path: &Path) -> anyhow::Result<()> {
        let mut words = vec!["exec env".to_owned()];
        for (name, value) in &self.environment {
            words.push(format!("{name}={}", quoted(&value.to_string_lossy())));
        }
        words.push(quoted(&self.program.to_string_lossy()));
        words.extend(self.arguments.iter().map(|argument| quoted(&argument.to_string_lossy())));
        let script = format!(
            "#!/bin/sh\n# Starts store {} in the foreground; its log is appended to {}.\n{} >>{} 2>&1\n",
            self.member.id,
            self.log.display(),
            words.join(" "),
            quoted(&self.log.to_string_lossy())
        );
        let _ = std::fs::remove_file(path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)?;
        file.write_all(script.as_bytes())?;
        Ok(())
    }

    /// Starts the process. It must not be running.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(Child::spawn(format!("store {}", self.member.id), &mut command)?);
        Ok(())
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill();
        }
    }

    /// Returns how the process ended, if it ended without being killed here. The next call returns
    /// `None`.
    pub fn died(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.ended()?;
        self.child = None;
        Some(format!("ended ({status})"))
    }

    pub fn admin(&self) -> AdminClient {
        AdminClient::new(self.member.admin, Duration::from_millis(1000))
    }

    /// Returns the last line of the log.
    pub fn last_words(&self) -> String {
        let text = read_tail(&self.log).unwrap_or_default();
        let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("its log is empty");
        format!("{} (see {})", line.trim(), self.log.display())
    }
}

fn read_tail(path: &Path) -> io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4096)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Minimum free space of a RAM file system that takes the data of emulated devices, in bytes.
const ROOM: u64 = 2 << 30;

/// Returns the directory of the data and a note about it. Stores on emulated devices use RAM if
/// possible, because the real disk's sync time would hide the emulated one.
pub fn choose_place(dir: Option<&Path>, emulated: bool) -> anyhow::Result<(Place, String)> {
    if let Some(dir) = dir {
        let note = match emulated && client::place::file_system(dir) != "tmpfs" {
            true => " (a real disk: its own times add to the emulated ones)",
            false => "",
        };
        return Ok((Place::Kept(dir.to_owned()), format!("data in {}{note}", dir.display())));
    }
    let shm = Path::new("/dev/shm");
    if emulated && device::free_bytes(shm).is_ok_and(|free| free >= ROOM) {
        let temp = tempfile::Builder::new().prefix("steelyard-").tempdir_in(shm)?;
        let note = format!("data in {} (RAM; removed at the end)", temp.path().display());
        return Ok((Place::Temporary(temp), note));
    }
    let temp = tempfile::Builder::new().prefix("steelyard-").tempdir()?;
    let why = match emulated {
        true => "; no room in /dev/shm: the real disk's times add to the emulated ones",
        false => "",
    };
    let note = format!("data in {} (removed at the end{why})", temp.path().display());
    Ok((Place::Temporary(temp), note))
}

/// Returns the path of the program `steelyard`: this process's own, or the one beside the
/// laboratory.
pub fn program() -> std::io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let is_lab = own.file_name().is_some_and(|name| name == "steelyard-lab");
    Ok(if is_lab { own.with_file_name("steelyard") } else { own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_words_back() {
        assert_eq!(quoted("0=127.0.0.1:7000,device=nvm"), "0=127.0.0.1:7000,device=nvm");
        for word in ["", "a b", "it's", "device=(x)", "$HOME"] {
            let output =
                Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(output.stdout, word.as_bytes());
        }
    }
}
