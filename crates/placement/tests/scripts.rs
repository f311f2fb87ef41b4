//! Golden scripts in `tests/scripts`; `UPDATE_GOLDENFILES=1` rewrites them.
//!
//! ```text
//! stores 0=625MB 1=62.5MB ...   a new cluster with these speeds
//! store ID state=up|down|draining|lost zone=Z capacity=SIZE used=SIZE unapplied=SIZE room=none
//!          data-weight=W leader-weight=W
//!          sync=MILLISECONDS spread=FACTOR (1: configured, less: unknown)
//!          cpu=OWN/BUSY/CORES (in cores) machine=NUMBER cpu-was=high|low
//! cluster replicas=N meta-replicas=N domain=LABEL
//! region ID leader=S peers=0/1/2   caught-up voters
//!        rate=R (writes) reads=R misses=R (default: all reads) writes-bytes=SIZE heat=R
//!        bytes=SIZE slots=A-B lag=S/N learner=S unclean=S cooldown held joint
//! limits in-flight=N per-target=N data-moves=N per-store=N split-bytes=SIZE split-ops=N
//!        merge-bytes=SIZE regions-per-store=N busy=PERCENT region-bytes=SIZE
//! plan POLICY                   prints the round's operators, which are then in flight
//! done                          everything in flight completes
//! fill                          sets the used bytes of stores to the sum of their regions
//! settle POLICY                 plans until quiet, then prints leaders, peers and bytes by store
//! regions                       prints their peers, the leader first
//! explain POLICY REGION
//! explain-store POLICY STORE
//! ```

mod support;

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{Command, Runner};
use steelyard_placement::{
    explain, explain_store, plan, ClusterView, Cpu, PlanLimits, Policy, Spread, StoreState,
};
use support::*;

struct Script {
    view: ClusterView,
    /// The limits that `stores` restores.
    base: PlanLimits,
    limits: PlanLimits,
}

impl Script {
    fn new(base: PlanLimits) -> Script {
        Script { view: ClusterView::default(), base, limits: base }
    }

    fn whole() -> Script {
        Script::new(PlanLimits::default())
    }

    /// A script in which peers do not move.
    fn of_leaders() -> Script {
        Script::new(PlanLimits { data_moves_max: 0, ..PlanLimits::default() })
    }
}

fn speed(text: &str) -> Result<u64, Box<dyn Error>> {
    let number: f64 = text.strip_suffix("MB").ok_or("a speed is like 62.5MB")?.parse()?;
    Ok((number * 1e6) as u64)
}

fn size(text: &str) -> Result<u64, Box<dyn Error>> {
    const UNITS: [(&str, f64); 3] = [("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];
    match UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor))) {
        Some((number, factor)) => Ok((number.parse::<f64>()? * factor) as u64),
        None => Ok(text.parse()?),
    }
}

fn pair(text: &str) -> Result<(u64, u64), Box<dyn Error>> {
    let (store, value) = text.split_once('/').ok_or("expected STORE/NUMBER")?;
    Ok((store.parse()?, value.parse()?))
}

impl Script {
    fn add_region(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        let mut args = command.consume_args();
        let id = args.next_pos().ok_or("region ID")?.parse()?;
        let mut view = region(id, 0, &[]);
        let mut laters = Vec::new();
        for arg in args.rest() {
            match (arg.key.as_deref(), arg.value.as_str()) {
                (Some("leader"), "none") => view.leader = None,
                (Some("leader"), store) => view.leader = Some(store.parse()?),
                (Some("peers"), list) => {
                    for store in list.split('/') {
                        view.peers.extend(region(0, 0, &[store.parse()?]).peers);
                    }
                }
                (Some("rate"), rate) => view.write_rate = rate.parse()?,
                (Some("reads"), rate) => {
                    view.read_rate = rate.parse()?;
                    view.miss_rate = view.read_rate;
                }
                (Some("misses"), rate) => view.miss_rate = rate.parse()?,
                (Some("writes-bytes"), rate) => view.write_bytes_rate = size(rate)? as f64,
                (Some("heat"), rate) => view.heat = rate.parse()?,
                (Some("bytes"), bytes) => view.bytes = size(bytes)?,
                (Some("slots"), range) => {
                    let (first, last) = range.split_once('-').ok_or("slots A-B")?;
                    (view.first_slot, view.last_slot) = (first.parse()?, last.parse()?);
                    view.slots = u32::from(view.last_slot - view.first_slot) + 1;
                }
                (None, "joint") => view.joint = true,
                (Some(key @ ("lag" | "learner" | "unclean")), value) => {
                    laters.push((key.to_owned(), value.to_owned()))
                }
                (None, "cooldown") => view.cooldown = true,
                (None, "held") => view.held = true,
                _ => return Err(format!("what is {arg:?}?").into()),
            }
        }
        for (key, value) in laters {
            let (store, lag) = if key == "lag" { pair(&value)? } else { (value.parse()?, 0) };
            let peer = view.peers.iter_mut().find(|peer| peer.store == store).ok_or("no such peer")?;
            match key.as_str() {
                "lag" => peer.lag = Some(lag),
                "unclean" => (peer.unclean, peer.lag) = (true, None),
                _ => peer.voter = false,
            }
        }
        self.view.regions.push(view);
        self.view.regions.sort_by_key(|region| region.id);
        Ok(())
    }

    fn set_store(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        let mut args = command.consume_args();
        let id: u64 = args.next_pos().ok_or("a store")?.parse()?;
        let store = self.view.stores.iter_mut().find(|store| store.id == id).ok_or("no such store")?;
        for arg in args.rest_key() {
            match arg.key.as_deref().unwrap_or_default() {
                "state" => store.state = state(&arg.value)?,
                "capacity" => store.capacity_bytes = size(&arg.value)?,
                "used" => store.used_bytes = size(&arg.value)?,
                "room" => store.out_of_room = arg.value == "none",
                "clock" => store.clock_off = arg.value == "off",
                "unapplied" => store.unapplied_bytes = size(&arg.value)?,
                "spread" => store.spread = Spread::all(arg.value.parse()?),
                "cpu" => store.cpu = Some(cpu(&arg.value)?),
                "machine" => store.cpu.get_or_insert_default().machine = arg.value.parse()?,
                "cpu-was" => store.cpu_high = arg.value == "high",
                "sync" => store.sync_ns = (arg.value.parse::<f64>()? * 1e6) as u64,
                "data-weight" => store.data_weight = Some(arg.value.parse()?),
                "leader-weight" => store.leader_weight = Some(arg.value.parse()?),
                label => drop(store.labels.insert(label.to_owned(), arg.value.clone())),
            }
        }
        Ok(())
    }

    fn set_cluster(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        for arg in command.consume_args().rest_key() {
            match arg.key.as_deref().unwrap_or_default() {
                "replicas" => self.view.replicas = arg.value.parse()?,
                "meta-replicas" => self.view.meta_replicas = arg.value.parse()?,
                "domain" => self.view.domain_label = Some(arg.value.clone()),
                other => return Err(format!("what is {other}?").into()),
            }
        }
        Ok(())
    }

    fn set_limits(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        let limits = &mut self.limits;
        for arg in command.consume_args().rest_key() {
            match arg.key.as_deref().unwrap_or_default() {
                "in-flight" => limits.in_flight_max = arg.value.parse()?,
                "per-target" => limits.per_target_max = arg.value.parse()?,
                "data-moves" => limits.data_moves_max = arg.value.parse()?,
                "per-store" => limits.data_moves_per_store_max = arg.value.parse()?,
                "repairs" => limits.repairs_per_store_max = arg.value.parse()?,
                "repair-seconds" => limits.repair_seconds = arg.value.parse()?,
                "split-bytes" => limits.split_bytes = size(&arg.value)?,
                "split-ops" => limits.split_ops = arg.value.parse()?,
                "merge-bytes" => limits.merge_bytes = size(&arg.value)?,
                "busy" => limits.busy_percent_min = arg.value.parse()?,
                "region-bytes" => limits.region_bytes_min = size(&arg.value)?,
                "regions-per-store" => limits.regions_per_store_min = arg.value.parse()?,
                other => return Err(format!("what is {other}?").into()),
            }
        }
        Ok(())
    }

    fn regions(&self, out: &mut String) {
        for region in &self.view.regions {
            let led = |peer: &&steelyard_placement::PeerView| region.leader == Some(peer.store);
            let peers = region.peers.iter().filter(led).chain(region.peers.iter().filter(|peer| !led(peer)));
            let peers: Vec<String> = peers
                .map(|peer| format!("{}{}", peer.store, if peer.voter { "" } else { " (learner)" }))
                .collect();
            writeln!(out, "region {}: {}", region.id, peers.join(" ")).expect("a string");
        }
    }
}

/// Parses the cores that the store uses, those that are busy, and those that exist.
fn cpu(text: &str) -> Result<Cpu, Box<dyn Error>> {
    let numbers: Vec<f64> = text.split('/').map(str::parse).collect::<Result<_, _>>()?;
    let [own, busy, cores] = numbers[..] else { return Err("a CPU is like 1.5/1.8/4".into()) };
    Ok(Cpu { cores, busy: busy / cores, own, machine: 0 })
}

fn state(name: &str) -> Result<StoreState, Box<dyn Error>> {
    let all = [StoreState::Up, StoreState::Down, StoreState::Draining, StoreState::Lost];
    Ok(all.into_iter().find(|state| state.to_string() == name).ok_or("no such state")?)
}

impl Runner for Script {
    fn run(&mut self, command: &Command) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        let mut args = command.consume_args();
        match command.name.as_str() {
            "stores" => {
                *self = Script::new(self.base);
                for arg in args.rest_key() {
                    let id = arg.key.as_deref().unwrap_or_default().parse()?;
                    self.view.stores.push(store(id, speed(&arg.value)?));
                }
            }
            name @ ("up" | "down") => {
                let id: u64 = args.next_pos().ok_or("a store")?.parse()?;
                let at = self.view.stores.iter().position(|store| store.id == id).ok_or("no such store")?;
                self.view.stores[at].state = if name == "up" { StoreState::Up } else { StoreState::Down };
            }
            "region" => self.add_region(command)?,
            "store" => self.set_store(command)?,
            "cluster" => self.set_cluster(command)?,
            "limits" => self.set_limits(command)?,
            "fill" => fill_up(&mut self.view),
            "regions" => self.regions(&mut out),
            "plan" => {
                let policy: Policy = args.next_pos().ok_or("a policy")?.value.parse()?;
                remember_shedding(&mut self.view, &self.limits);
                let operators = plan(&self.view, policy, &self.limits);
                if operators.is_empty() {
                    out.push_str("nothing\n");
                }
                for operator in operators {
                    writeln!(out, "{operator}")?;
                    self.view.in_flight.push(operator);
                }
            }
            "done" => {
                for operator in std::mem::take(&mut self.view.in_flight) {
                    execute(&mut self.view, &operator);
                }
            }
            "settle" => {
                let policy: Policy = args.next_pos().ok_or("a policy")?.value.parse()?;
                let moves = settle(&mut self.view, policy, &self.limits, 1000);
                writeln!(out, "moves: {moves}")?;
                let (peers, data) = (peer_counts(&self.view), support::data(&self.view));
                for (store, count) in leader_counts(&self.view) {
                    write!(out, "store {store} leads {count}")?;
                    match self.limits.data_moves_max {
                        0 => writeln!(out)?,
                        _ => writeln!(out, ", has {} peers and {} bytes", peers[&store], data[&store])?,
                    }
                }
            }
            "explain" => {
                let policy: Policy = args.next_pos().ok_or("a policy")?.value.parse()?;
                let id = args.next_pos().ok_or("a region")?.parse()?;
                let explanation = explain(&self.view, policy, &self.limits, id).ok_or("no such region")?;
                writeln!(out, "{explanation}")?;
            }
            "explain-store" => {
                let policy: Policy = args.next_pos().ok_or("a policy")?.value.parse()?;
                let id = args.next_pos().ok_or("a store")?.parse()?;
                let explanation =
                    explain_store(&self.view, policy, &self.limits, id).ok_or("no such store")?;
                writeln!(out, "{explanation}")?;
            }
            other => return Err(format!("unknown command {other}").into()),
        }
        Ok(out)
    }
}

fn run(mut script: Script, name: &str) {
    goldenscript::run(&mut script, format!("tests/scripts/{name}")).unwrap();
}

#[test]
fn even() {
    run(Script::of_leaders(), "even");
}

#[test]
fn leader_only() {
    run(Script::of_leaders(), "leader_only");
}

#[test]
fn repair() {
    run(Script::whole(), "repair");
}

#[test]
fn domains() {
    run(Script::whole(), "domains");
}

#[test]
fn data() {
    run(Script::whole(), "data");
}

#[test]
fn alor() {
    run(Script::whole(), "alor");
}

#[test]
fn full() {
    run(Script::whole(), "full");
}

#[test]
fn adaptive() {
    run(Script::whole(), "adaptive");
}

#[test]
fn cpu_limits() {
    run(Script::of_leaders(), "cpu");
}

#[test]
fn split_and_merge() {
    run(Script::whole(), "split_and_merge");
}
