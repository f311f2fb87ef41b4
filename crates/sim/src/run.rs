//! One seed from beginning to end: a cluster in trouble, then peace, in which everything must finish.

use std::panic::{catch_unwind, AssertUnwindSafe};

use cluster::Layout;
use types::StoreId;

use crate::clock::{Clock, MILLISECOND, SECOND};
use crate::faults::Plan;
use crate::invariants::{Violation, TABLE};
use crate::model::{Command, Key};
use crate::observation::Op;
use crate::rng::Rng;
use crate::store::Store;
use crate::tally::Tally;
use crate::world::{Event, World, BEGIN};

const CLIENTS: usize = 5;
/// True time in which a calm cluster must have finished everything.
const PEACE: u64 = 20 * SECOND;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    /// Operations that clients ask for while there is trouble.
    pub steps: u64,
    pub is_tracing: bool,
}

impl Options {
    pub fn of(seed: u64) -> Options {
        Options { seed, steps: 250, is_tracing: false }
    }
}

#[derive(Clone, Debug)]
pub struct Report {
    pub tally: Tally,
    pub violation: Option<Violation>,
    /// Two runs of a seed have the same.
    pub digest: u64,
}

/// Runs a seed. A panic anywhere in the code under test is a violation, too.
pub fn run(options: Options) -> Report {
    let mut world = begin(options);
    let outcome = catch_unwind(AssertUnwindSafe(|| drive(&mut world, options)));
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        world.violate("panic", text.to_owned());
    }
    world.tally.seeds = 1;
    world.tally.simulated_ns = world.now - BEGIN;
    world.tally.histories = world.groups;
    world.tally.violations = u64::from(world.violation.is_some());
    Report { tally: world.tally.clone(), violation: world.violation.clone(), digest: world.digest }
}

fn begin(options: Options) -> World {
    let mut rng = Rng::new(options.seed);
    let count = rng.pick(&[1, 3, 3, 3, 3, 3, 4, 5, 5]).expect("a number of stores");
    let regions = rng.pick(&[1, 1, 2, 3]).expect("a number of regions");
    let stores: Vec<StoreId> = (0..count).collect();
    let layout = cluster::bootstrap_plan(&Layout { stores: stores.clone(), regions, replicas: 3 });
    let plan = Plan::draw(&mut rng);
    let mut world = World::new(options.seed, rng, plan, layout);
    world.is_tracing = options.is_tracing;
    world.groups = world.rng.between(1, 5);
    for &id in &stores {
        let boot = world.rng.between(10, 100_000) * SECOND;
        let drift = Plan::drift(&mut world.rng);
        world.stores.insert(id, Store::new(Clock::new(BEGIN, boot, drift)));
    }
    for &id in &stores {
        world.start(id);
    }
    if world.rng.chance(70) {
        world.change_weather();
    }
    world
}

fn drive(world: &mut World, options: Options) {
    for client in 0..CLIENTS {
        world.clients.push(Default::default());
        let delay = world.rng.below(SECOND);
        world.schedule(delay, Event::Client { client });
    }
    world.schedule(SECOND, Event::Fault);
    // Trouble can be such that nothing is answered for long: then time ends it.
    let deadline = world.now + options.steps * 200 * MILLISECOND;
    while !world.is_over() && world.tally.operations < options.steps && world.now < deadline {
        world.step();
    }
    world.say("peace");
    settle(world);
}

/// Faults stop; every request must be answered, and every store must come to the same rows.
fn settle(world: &mut World) {
    world.calm();
    for client in &mut world.clients {
        client.wishes = Some(Vec::new());
    }
    // Operations from the time of trouble may still be refused their answer.
    let pause = world.now + crate::client::PATIENCE + SECOND;
    world.run_until(pause);
    world.is_calm = true;
    for group in 0..world.groups {
        for command in [
            Command::GetField { field: 0 },
            Command::Get { key: Key::Counter },
            Command::GetBoth,
            Command::Increment,
            Command::Append { key: Key::First, value: 7 },
            Command::GetBoth,
        ] {
            world.last_op += 1;
            let op = Op { id: world.last_op, group, command };
            let client = (world.last_op % CLIENTS as u64) as usize;
            world.clients[client].wishes.get_or_insert_default().push(op);
        }
    }
    for client in 0..CLIENTS {
        world.schedule(0, Event::Client { client });
    }
    let end = world.now + PEACE;
    while !world.is_over() && world.now < end && !(is_content(world) && has_converged(world)) {
        let next = world.now + 100 * MILLISECOND;
        world.run_until(next);
    }
    if world.is_over() {
        return;
    }
    if !is_content(world) {
        world.violate("liveness", "a calm cluster leaves requests unanswered".into());
    }
    if !has_converged(world) {
        world.violate("liveness", "stores of a calm cluster did not catch up".into());
    }
    for store in world.stores.keys().copied().collect::<Vec<_>>() {
        for region in world.layout.iter().map(|region| region.id).collect::<Vec<_>>() {
            world.show_rows(store, region);
        }
    }
}

fn is_content(world: &World) -> bool {
    let content = |wishes: &Option<Vec<Op>>| wishes.as_ref().is_some_and(Vec::is_empty);
    world.clients.iter().all(|client| client.asking.is_none() && content(&client.wishes))
}

fn has_converged(world: &World) -> bool {
    world.layout.iter().all(|region| {
        let applied = |store: StoreId| {
            let process = world.stores[&store].process.as_ref()?;
            let status = process.worker.status(region.id, 0)?;
            (status.applied == status.last).then_some(status.applied)
        };
        let mut ends = region.peers.iter().map(|peer| applied(peer.store));
        let first = ends.next().flatten();
        first.is_some() && ends.all(|end| end == first)
    })
}

/// Names of the invariants that every run is checked against.
pub fn invariants() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().map(|(name, source, _)| (*name, *source))
}
