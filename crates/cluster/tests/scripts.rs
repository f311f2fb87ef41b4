//! Lifecycles of operators as golden scripts, in `tests/scripts`. `UPDATE_GOLDENFILES=1` rewrites
//! them.
//!
//! ```text
//! cluster stores=N regions=N replicas=N
//! ask KIND REGION [FROM] [TO]     transfer, add, remove, move, split or merge
//! tick                            half a second passes
//! run SECONDS                     shows what was proposed, ordered and done
//! kill STORE | revive STORE       its peers answer no more, or again
//! stick STORE | unstick STORE     learners there are not filled, or are again
//! elect REGION STORE              the region has another leader
//! freeze SOURCE TARGET            a merge is prepared without an operator
//! learner REGION STORE            a learner is added without an operator
//! next-driver                     the meta region has another leader
//! join | drain STORE | plan on|off | policy NAME
//! lose SECONDS                    runs, and no order or proposal arrives
//! show                            regions and operators, as agreed
//! ```

mod support;

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{Command, Runner};
use placement::PlanLimits;
use steelyard_cluster::{may_drain, MemberState, MetaCommand};
use support::*;

struct Script {
    world: World,
}

impl Script {
    fn events(&mut self) -> String {
        self.world.events.drain(..).fold(String::new(), |text, event| text + &event + "\n")
    }
}

fn numbers(command: &Command) -> Result<Vec<u64>, Box<dyn Error>> {
    let mut args = command.consume_args();
    let numbers = args.rest_pos().iter().filter_map(|arg| arg.value.parse().ok()).collect();
    args.reject_rest()?;
    Ok(numbers)
}

impl Runner for Script {
    fn run(&mut self, command: &Command) -> Result<String, Box<dyn Error>> {
        let world = &mut self.world;
        match command.name.as_str() {
            "cluster" => {
                let mut args = command.consume_args();
                let stores = args.lookup_parse("stores")?.unwrap_or(3);
                let regions = args.lookup_parse("regions")?.unwrap_or(1);
                let replicas = args.lookup_parse("replicas")?.unwrap_or(3);
                args.reject_rest()?;
                *world = World::new(stores, regions, replicas);
                world.run(1);
            }
            "ask" => {
                let mut args = command.consume_args();
                let kind = args.next_pos().ok_or("a kind")?.value.clone();
                let numbers: Vec<u64> =
                    args.rest_pos().iter().map(|arg| arg.value.parse()).collect::<Result<_, _>>()?;
                let operator = operator(&kind, &numbers).ok_or("no such operator")?;
                if let Err(error) = world.request(operator) {
                    return Ok(format!("{error}\n"));
                }
            }
            "run" | "lose" => {
                let mut args = command.consume_args();
                let seconds: u64 = args.next_pos().ok_or("seconds")?.parse()?;
                let fate = if command.name == "run" { Fate::Arrives } else { Fate::Lost };
                for _ in 0..2 * seconds {
                    world.tick(|_| fate);
                }
            }
            "tick" => world.tick(|_| Fate::Arrives),
            "elect" => {
                let [region, store] = numbers(command)?[..] else { return Err("region and store".into()) };
                let region = world.regions.get_mut(&region).ok_or("no such region")?;
                (region.leader, region.term) = (Some(store), region.term + 1);
            }
            "freeze" => {
                let [source, into] = numbers(command)?[..] else { return Err("source and target".into()) };
                world.freeze(source, into);
            }
            "learner" => {
                let [region, store] = numbers(command)?[..] else { return Err("region and store".into()) };
                world.add_late(region, store);
            }
            "next-driver" => world.new_driver(),
            "join" => {
                world.join();
            }
            "plan" => {
                let on = command.args.first().is_some_and(|arg| arg.value == "on");
                world.limits = PlanLimits::default();
                world.limits.in_flight_max *= usize::from(on);
            }
            "policy" => {
                let policy = command.args.first().ok_or("a name")?.value.parse()?;
                world.apply(&MetaCommand::SetPolicy { policy })?;
            }
            "drain" => {
                let store = numbers(command)?[0];
                if let Err(error) = may_drain(&world.meta, &world.ledger, store, world.now) {
                    return Ok(format!("{error}\n"));
                }
                let _ = world.apply(&MetaCommand::SetStoreState { store, state: MemberState::Draining });
            }
            "show" => {
                let mut text = String::new();
                for region in world.meta.regions.values() {
                    let truth = world.regions.get(&region.id);
                    let leader = truth.and_then(|region| region.leader);
                    let leader = leader.map_or("nobody".to_owned(), |leader| format!("store {leader}"));
                    let frozen = truth.is_some_and(|region| region.descriptor.merging.is_some());
                    let frozen = if frozen { ", takes no commands" } else { "" };
                    writeln!(text, "{}, led by {leader}{frozen}", show_region(region))?;
                }
                for flight in world.meta.operators.values() {
                    writeln!(text, "{} {:?}: {}", flight.id, flight.phase, flight.operator)?;
                }
                for ended in world.meta.history.values() {
                    writeln!(text, "{} {}: {}", ended.id, ended.outcome, ended.operator)?;
                }
                return Ok(text);
            }
            name => {
                let store = numbers(command)?[0];
                match name {
                    "kill" => drop(world.dead.insert(store)),
                    "revive" => drop(world.dead.remove(&store)),
                    "stick" => drop(world.stuck.insert(store)),
                    "unstick" => drop(world.stuck.remove(&store)),
                    _ => return Err("no such command".into()),
                }
            }
        }
        Ok(self.events())
    }
}

fn check(name: &str) {
    let path = format!("{}/tests/scripts/{name}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut Script { world: World::new(3, 1, 3) }, path).expect("the script is as it was");
}

#[test]
fn peers_are_added_removed_and_moved() {
    check("membership");
}

#[test]
fn a_learner_that_never_catches_up_is_taken_back() {
    check("stuck-learner");
}

#[test]
fn another_leader_of_the_region_in_mid_move() {
    check("leader-changes");
}

#[test]
fn another_leader_of_the_meta_region_in_mid_move() {
    check("driver-changes");
}

#[test]
fn regions_are_split_and_merged() {
    check("split-merge");
}

#[test]
fn a_store_joins_another_drains_and_a_dead_one_is_replaced() {
    check("stores");
}
