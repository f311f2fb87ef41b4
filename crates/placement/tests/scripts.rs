//! Golden scripts in `tests/scripts`; `UPDATE_GOLDENFILES=1` writes them anew.
//!
//! ```text
//! stores 0=625MB 1=62.5MB ...          speeds; `down 1`, `up 1` change states
//! region ID leader=S peers=0/1/2       caught-up voters; rate=R, lag=S/N, learner=S, cooldown
//! plan POLICY                          shows the round's operators, which are then in flight
//! done                                 everything in flight happens
//! settle POLICY                        rounds until quiet, then leader counts
//! explain POLICY ID
//! limits in-flight=N per-target=N
//! ```

mod support;

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{Command, Runner};
use steelyard_placement::{explain, plan, ClusterView, PlanLimits, Policy, StoreState};
use support::*;

struct Script {
    view: ClusterView,
    /// What `stores` goes back to.
    base: PlanLimits,
    limits: PlanLimits,
}

impl Script {
    fn new(base: PlanLimits) -> Script {
        Script { view: ClusterView::default(), base, limits: base }
    }

    /// Peers stay where they are.
    fn of_leaders() -> Script {
        Script::new(PlanLimits { data_moves_max: 0, ..PlanLimits::default() })
    }
}

fn speed(text: &str) -> Result<u64, Box<dyn Error>> {
    let number: f64 = text.strip_suffix("MB").ok_or("a speed is like 62.5MB")?.parse()?;
    Ok((number * 1e6) as u64)
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
                (Some(key @ ("lag" | "learner")), value) => laters.push((key.to_owned(), value.to_owned())),
                (None, "cooldown") => view.cooldown = true,
                _ => return Err(format!("what is {arg:?}?").into()),
            }
        }
        for (key, value) in laters {
            let (store, lag) = if key == "lag" { pair(&value)? } else { (value.parse()?, 0) };
            let peer = view.peers.iter_mut().find(|peer| peer.store == store).ok_or("no such peer")?;
            match key.as_str() {
                "lag" => peer.lag = Some(lag),
                _ => peer.voter = false,
            }
        }
        self.view.regions.push(view);
        self.view.regions.sort_by_key(|region| region.id);
        Ok(())
    }
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
            "limits" => {
                for arg in args.rest_key() {
                    match arg.key.as_deref() {
                        Some("in-flight") => self.limits.in_flight_max = arg.value.parse()?,
                        Some("per-target") => self.limits.per_target_max = arg.value.parse()?,
                        _ => return Err("in-flight or per-target".into()),
                    }
                }
            }
            "plan" => {
                let policy: Policy = args.next_pos().ok_or("a policy")?.value.parse()?;
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
                for (store, count) in leader_counts(&self.view) {
                    writeln!(out, "store {store} leads {count}")?;
                }
            }
            "explain" => {
                let policy: Policy = args.next_pos().ok_or("a policy")?.value.parse()?;
                let id = args.next_pos().ok_or("a region")?.parse()?;
                let explanation = explain(&self.view, policy, &self.limits, id).ok_or("no such region")?;
                writeln!(out, "{explanation}")?;
            }
            other => return Err(format!("unknown command {other}").into()),
        }
        Ok(out)
    }
}

#[test]
fn even() {
    goldenscript::run(&mut Script::of_leaders(), "tests/scripts/even").unwrap();
}

#[test]
fn leader_only() {
    goldenscript::run(&mut Script::of_leaders(), "tests/scripts/leader_only").unwrap();
}
