//! The run of one seed: a cluster with faults, and then a calm time in which every operation must
//! finish.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, AssertUnwindSafe};

use cluster::Layout;
use node::damage::EVERY_PEER;
use types::{Peer, PeerRole, RegionDescriptor, RegionId, StoreId};
use wal::PeerLifecycle;

use crate::absence::give_past;
use crate::client::{has_all_types, Client};
use crate::clock::{Clock, MILLISECOND, SECOND};
use crate::faults::Plan;
use crate::invariants::{Violation, TABLE};
use crate::model::{Command, Key};
use crate::observation::{Observation, Op};
use crate::rng::Rng;
use crate::store::{Process, Store};
use crate::tally::Tally;
use crate::world::{Event, World, BEGIN};

const CLIENTS: usize = 5;
/// Salt and percentage of the seeds in which weak reads have bounds.
const BOUNDING: u64 = 0x2f9d_824d_d57d_8db8;
const BOUNDING_PERCENT: u64 = 10;
/// Salt and percentage of the seeds in which strong reads ask a mere majority.
const FRUGAL: u64 = 0x71c9_4e0b_a26f_5d13;
const FRUGAL_PERCENT: u64 = 20;
/// Salt and percentage of the seeds in which the proposal window is narrow.
const NARROW: u64 = 0x3da6_30f7_f25d_e68e;
const NARROW_PERCENT: u64 = 10;
/// A proposal window that fills often, in entries.
const NARROW_WINDOW: u64 = 2;
/// Salt and percentage of the seeds in which leaders know thresholds of collections.
const BOUNDED: u64 = 0xa2cb_980b_c1da_5d9a;
const BOUNDED_PERCENT: u64 = 8;
/// Salt and percentage of the seeds in which leaders answer writes of nothing without an entry. The
/// salt leaves out the seeds of failpoints.
const IDLE: u64 = 0x76a8_b941_c3a3_529e;
const IDLE_PERCENT: u64 = 12;
/// Salt and percentage of the seeds in which entries fail.
const FAILING: u64 = 0x9d1f_2b5a_77c3_e041;
const FAILING_PERCENT: u64 = 20;
/// Salt and percentage of the seeds with failing entries in which stores report marks late. The
/// salt leaves out the seeds with which the search for other failpoints begins.
const LATE_MARKS: u64 = 0x6f6c_646d_6172_0001;
const LATE_MARKS_PERCENT: u64 = 30;
/// Salt and percentage of the seeds in which stores know ranges of rows. The salt leaves out the
/// seeds with which the search for other failpoints begins, so that these keep their course.
const RANGES: u64 = 0x7261_6e67_0025_60ce;
const RANGES_PERCENT: u64 = 30;
/// Salt and percentage of the seeds in which stores pass their clients' commands on to leaders. The
/// salt leaves out the seeds with which the search for other failpoints begins.
const PASSING: u64 = 0x7061_7373_0000_0156;
const PASSING_PERCENT: u64 = 10;
/// Salt and percentage of the seeds in which workers write some batches of the log themselves. The
/// salt left out the seeds with which the search for failpoints began when it was chosen.
const AT_ONCE: u64 = 0x6174_206f_6e63_008d;
const AT_ONCE_PERCENT: u64 = 10;
/// Salt and percentage of the seeds with all types in which stores execute commands on sorted sets
/// in parts. The salt leaves out the seeds with which the search for other failpoints begins.
const COPIES: u64 = 0x636f_7069_6573_0228;
const COPIES_PERCENT: u64 = 20;
/// Maximum true time in which a calm cluster must finish every operation.
const PEACE: u64 = 60 * SECOND;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    /// Number of conversations that clients begin during faults.
    pub steps: u64,
    pub is_tracing: bool,
    /// The only invariant to check. `None` for all.
    pub only: Option<&'static str>,
    /// The failpoint to enable.
    #[cfg(feature = "failpoints")]
    pub failpoint: Option<Failpoint>,
}

/// A failpoint of one of the simulated machines.
#[cfg(feature = "failpoints")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    Command(command::failpoints::Failpoint),
    Replica(replica::failpoints::Failpoint),
    Node(node::failpoints::Failpoint),
    Storage(storage::failpoints::Failpoint),
}

#[cfg(feature = "failpoints")]
impl Failpoint {
    pub fn all() -> impl Iterator<Item = Failpoint> {
        let replica = replica::failpoints::Failpoint::ALL.iter().copied().map(Failpoint::Replica);
        let storage = storage::failpoints::Failpoint::ALL.iter().copied().map(Failpoint::Storage);
        let command = command::failpoints::Failpoint::ALL.iter().copied().map(Failpoint::Command);
        let node = node::failpoints::Failpoint::ALL.iter().copied().map(Failpoint::Node);
        replica.chain(node).chain(storage).chain(command)
    }

    pub fn named(name: &str) -> Option<Failpoint> {
        Failpoint::all().find(|failpoint| format!("{failpoint:?}").contains(&format!("({name})")))
    }
}

#[cfg(feature = "failpoints")]
fn enable(failpoint: Option<Failpoint>) {
    replica::failpoints::Failpoint::enable(match failpoint {
        Some(Failpoint::Replica(failpoint)) => Some(failpoint),
        _ => None,
    });
    command::failpoints::Failpoint::enable(match failpoint {
        Some(Failpoint::Command(failpoint)) => Some(failpoint),
        _ => None,
    });
    storage::failpoints::Failpoint::enable(match failpoint {
        Some(Failpoint::Storage(failpoint)) => Some(failpoint),
        _ => None,
    });
    node::failpoints::Failpoint::enable(match failpoint {
        Some(Failpoint::Node(failpoint)) => Some(failpoint),
        _ => None,
    });
}

impl Options {
    pub fn of(seed: u64) -> Options {
        Options {
            seed,
            steps: 160,
            is_tracing: false,
            only: None,
            #[cfg(feature = "failpoints")]
            failpoint: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Report {
    pub tally: Tally,
    pub violation: Option<Violation>,
    /// The digest of the run. Two runs of the same seed have the same digest.
    pub digest: u64,
}

/// Returns true if the weak reads of this seed's run have bounds.
pub fn bounds_reads(seed: u64) -> bool {
    Rng::new(seed ^ BOUNDING).chance(BOUNDING_PERCENT)
}

/// Returns true if leaders in this seed's run answer writes that change nothing without an entry.
pub fn finds_nothing(seed: u64) -> bool {
    Rng::new(seed ^ IDLE).chance(IDLE_PERCENT)
}

/// Returns true if stores in this seed's run pass commands on to leaders, and the execution of an
/// entry wakes clients.
pub fn passes_on(seed: u64) -> bool {
    Rng::new(seed ^ PASSING).chance(PASSING_PERCENT)
}

/// Returns true if workers in this seed's run write some batches of the log themselves.
pub fn logs_at_once(seed: u64) -> bool {
    Rng::new(seed ^ AT_ONCE).chance(AT_ONCE_PERCENT)
}

/// Returns true if entries fail in this seed's run.
fn has_failing_entries(seed: u64) -> bool {
    Rng::new(seed ^ FAILING).chance(FAILING_PERCENT)
}

/// Returns true if entries fail in this seed's run, and some marks of quarantines are reported
/// late.
pub fn has_late_marks(seed: u64) -> bool {
    has_failing_entries(seed) && Rng::new(seed ^ LATE_MARKS).chance(LATE_MARKS_PERCENT)
}

/// Returns true if stores in this seed's run execute commands on sorted sets in parts.
pub fn has_copies(seed: u64) -> bool {
    has_all_types(seed) && types::Draw::new(seed ^ COPIES).below(100) < COPIES_PERCENT
}

/// Returns true if leaders in this seed's run write thresholds of collections into entries.
pub fn has_thresholds(seed: u64) -> bool {
    Rng::new(seed ^ BOUNDED).chance(BOUNDED_PERCENT)
}

/// Returns true if stores in this seed's run know ranges of rows.
pub fn knows_ranges(seed: u64) -> bool {
    Rng::new(seed ^ RANGES).chance(RANGES_PERCENT)
}

impl World {
    /// Gives a store known ranges, if stores of this run know any.
    pub(crate) fn know_ranges(&mut self, id: StoreId) {
        if self.plan.knows_ranges {
            let seed = types::mix(self.seed ^ RANGES) ^ id;
            self.store_mut(id).durable.engine.know_ranges(seed);
        }
    }
}

/// Runs a seed. A panic in the code under test is a violation, too.
pub fn run(options: Options) -> Report {
    #[cfg(feature = "failpoints")]
    enable(options.failpoint);
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
    let count = rng.pick(&[1, 3, 3, 3, 3, 4, 5]).expect("a number of stores");
    // Stores that begin without peers.
    let spares = rng.pick(&[0, 0, 1, 2]).expect("a number of spares");
    let regions = rng.pick(&[1, 2, 3, 4]).expect("a number of regions");
    let plan = Plan::draw(&mut rng);
    let mut world = found(options.seed, rng, plan, (count, spares, regions));
    // These are drawn separately, so that the other seeds run as before.
    world.plan.entries_fail = has_failing_entries(options.seed);
    world.plan.has_late_marks = has_late_marks(options.seed);
    world.plan.bounds_reads = bounds_reads(options.seed);
    world.plan.has_thresholds = has_thresholds(options.seed);
    world.plan.knows_ranges = knows_ranges(options.seed);
    for id in world.stores.keys().copied().collect::<Vec<_>>() {
        world.know_ranges(id);
    }
    world.plan.has_copies = has_copies(options.seed);
    world.plan.logs_at_once = logs_at_once(options.seed);
    world.plan.passes_on = passes_on(options.seed);
    world.plan.finds_nothing = finds_nothing(options.seed) || world.plan.passes_on;
    world.is_tracing = options.is_tracing;
    if let Some(name) = options.only {
        world.keep_invariant(name);
    }
    world.groups = world.rng.between(1, 5);
    if world.rng.chance(70) {
        world.change_weather();
    }
    world
}

/// Starts a cluster of `stores` that share `regions`, and `spares` further stores without peers.
pub(crate) fn found(seed: u64, rng: Rng, plan: Plan, (count, spares, regions): (u64, u64, u16)) -> World {
    let stores: Vec<StoreId> = (0..count).collect();
    let mut layout = cluster::bootstrap_plan(&Layout { stores: stores.clone(), regions, replicas: 3 });
    give_past(seed, &mut layout);
    let mut world = World::new(seed, rng, plan, layout);
    world.plan.window = match Rng::new(seed ^ NARROW).chance(NARROW_PERCENT) {
        true => NARROW_WINDOW,
        false => replica::UNCOMMITTED_ENTRIES,
    };
    world.plan.asks_majority = Rng::new(seed ^ FRUGAL).chance(FRUGAL_PERCENT);
    for id in 0..count + spares {
        let boot = world.rng.between(10, 100_000) * SECOND;
        let drift = Plan::drift(&mut world.rng);
        world.stores.insert(id, Store::new(Clock::new(BEGIN, boot, drift)));
        world.draw_fsync(id);
    }
    for &id in &stores {
        for descriptor in world.layout.iter().filter(|region| region.has_peer_on(id)) {
            world.stores[&id].durable.disk.found(descriptor.clone());
        }
    }
    for id in world.stores.keys().copied().collect::<Vec<_>>() {
        world.start(id);
    }
    for descriptor in world.layout.clone() {
        let store = descriptor.peers[0].store;
        world.observe(&Observation::Described { store, region: &descriptor, split_off: None });
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
    if world.plan.entries_fail {
        world.schedule(2 * SECOND, Event::FailEntry);
    }
    world.draw_races();
    world.draw_absences();
    world.draw_forgetting();
    world.draw_coordination();
    world.draw_chaining();
    // Faults may prevent all answers for a long time. In that case the deadline ends them.
    let deadline = world.now + options.steps * 200 * MILLISECOND;
    let least = world.now + world.plan.least_ns;
    while !world.is_over()
        && world.now < deadline
        && (world.tally.conversations < options.steps || world.now < least)
    {
        world.step();
    }
    if world.rng.chance(10) {
        if let Some(lost) = world.lose_a_majority() {
            world.forget_the_past();
            return settle_recovered(world, &lost);
        }
    }
    world.say("peace");
    let is_settled = settle(world);
    if is_settled && world.rng.chance(20) {
        if let Some(lost) = world.lose_a_majority() {
            settle_recovered(world, &lost);
        }
    }
}

/// Ends a run after the loss of a majority. An operator recovers the survivors' regions, and the
/// survivors serve their data again.
fn settle_recovered(world: &mut World, lost: &BTreeSet<StoreId>) {
    world.calm();
    for client in &mut world.clients {
        client.wishes = Some(Vec::new());
    }
    if !world.recover_regions(lost) {
        world.tally.doomed += u64::from(!world.is_over());
        return;
    }
    expect_answers(world);
    let end = world.now + PEACE;
    while !world.is_over() && world.now < end && world.unrecovered().is_some() {
        world.run_until(world.now + 5 * SECOND);
        if world.unrecovered().is_none() {
            break;
        }
        // A change of peers that was under way may have cost a region its majority only now.
        // Requests that waited for that region may get no answer.
        world.is_calm = false;
        if !world.recover_regions(lost) {
            world.tally.doomed += u64::from(!world.is_over());
            return;
        }
        expect_answers(world);
    }
    if let Some(what) = world.unrecovered().filter(|_| !world.is_over()) {
        world.violate("liveness", format!("after a recovery {what}"));
    }
    show_all_rows(world);
}

/// Waits until requests from before a recovery are answered or given up, and until operators have
/// attended to quarantined peers. From then on every request must be answered.
fn expect_answers(world: &mut World) {
    let pause = world.now + crate::client::PATIENCE + SECOND;
    world.run_until(pause);
    let end = world.now + PEACE;
    while !world.is_over() && world.now < end && world.may_be_quarantined() {
        world.run_until(world.now + 100 * MILLISECOND);
    }
    world.await_elections();
    world.is_calm = true;
    ask_for_all(world);
}

/// Stops the faults. Then every request must be answered, and every store must reach the same rows.
/// Returns false if this fails.
fn settle(world: &mut World) -> bool {
    world.calm();
    world.elect_without_a_store();
    world.follow_without_the_middle();
    for client in &mut world.clients {
        client.wishes = Some(Vec::new());
    }
    // The outcomes of operations during the faults may still be unknown.
    let pause = world.now + crate::client::PATIENCE + SECOND;
    world.run_until(pause);
    // Repairs take time, and a region may serve no client until they are done.
    let end = world.now + PEACE;
    while !world.is_over() && world.now < end && world.awaits_repair() {
        let next = world.now + 100 * MILLISECOND;
        world.run_until(next);
    }
    world.await_elections();
    world.is_calm = true;
    ask_for_all(world);
    let end = world.now + PEACE;
    while !world.is_over() && world.now < end && !(is_content(world) && unsettled(world).is_none()) {
        let next = world.now + 100 * MILLISECOND;
        world.run_until(next);
    }
    if world.is_over() {
        return false;
    }
    if world.is_doomed() {
        world.tally.doomed += 1;
        return false;
    }
    if !is_content(world) {
        world.violate("liveness", "a calm cluster leaves requests unanswered".into());
    }
    if let Some(what) = unsettled(world) {
        world.violate("liveness", format!("in a calm cluster {what}"));
    }
    show_all_rows(world);
    !world.is_over()
}

/// Makes the clients request everything again.
pub(crate) fn ask_for_all(world: &mut World) {
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
}

fn show_all_rows(world: &mut World) {
    let descriptors: Vec<RegionDescriptor> = newest(world).into_values().collect();
    for descriptor in descriptors {
        for peer in &descriptor.peers {
            if world.stores.get(&peer.store).is_some_and(|store| store.process.is_some()) {
                world.show_rows(peer.store, descriptor.id);
            }
        }
    }
}

fn is_content(world: &World) -> bool {
    world.clients.iter().all(Client::is_content)
}

/// Returns the newest descriptor of each region that any running store has. Regions that have
/// merged away are left out.
pub(crate) fn newest(world: &World) -> BTreeMap<RegionId, RegionDescriptor> {
    let mut newest: BTreeMap<RegionId, RegionDescriptor> = BTreeMap::new();
    for process in world.stores.values().filter_map(|store| store.process.as_ref()) {
        for shared in process.regions.values() {
            let known = newest.entry(shared.descriptor.id).or_insert_with(|| shared.descriptor.clone());
            if shared.descriptor.epoch.is_newer_than(known.epoch) {
                *known = shared.descriptor.clone();
            }
        }
    }
    newest.retain(|region, _| !world.merged.contains(region));
    newest
}

/// Returns the merged regions that still have a peer on the store, and whether one of these peers
/// is quarantined. A quarantined peer may stay until the end of the run. It blocks the peers that
/// wait for it, and the peers of the regions that own its slots now.
fn left_behind(world: &World, process: &Process) -> (Vec<RegionId>, bool) {
    let left: Vec<_> = process.shard.regions().filter(|region| world.merged.contains(region)).collect();
    let is_held =
        |region: &RegionId| process.shard.status(*region, 0).is_some_and(|status| status.is_quarantined);
    let has_held = left.iter().any(is_held);
    (left, has_held)
}

/// Returns true if damage has hidden the number of the store's peer of the region. The store
/// accepts no new peer of the region until an operator empties it.
fn is_barred(store: &Store, region: RegionId) -> bool {
    let lifecycles = store.durable.disk.lifecycles();
    lifecycles.contains(&(region, PeerLifecycle::Tombstone { peer: EVERY_PEER }))
}

/// Describes the parts that are not in their final state. In the end every region's peers exist,
/// agree and have applied everything, and no other store has any of the region's data.
fn unsettled(world: &World) -> Option<String> {
    let mut excused = BTreeSet::new();
    for (&id, process) in world.stores.iter().filter_map(|(id, store)| Some((id, store.process.as_ref()?))) {
        match left_behind(world, process) {
            (_, true) => drop(excused.insert(id)),
            (left, false) if left.is_empty() => {}
            (left, false) => {
                return Some(format!("store {id} has a peer of region {}, which has merged away", left[0]))
            }
        }
    }
    for (region, descriptor) in newest(world) {
        if descriptor.is_joint() {
            return Some(format!("region {region} stays in a joint configuration"));
        }
        if descriptor.merging.is_some() {
            return Some(format!("region {region} waits for its merge"));
        }
        let mut first = None;
        for (&id, store) in world.stores.iter().filter(|(id, _)| !excused.contains(*id)) {
            let status = store.process.as_ref().and_then(|process| process.shard.status(region, 0));
            match (descriptor.has_peer_on(id), status) {
                (false, None) => {}
                (false, Some(_)) => return Some(format!("store {id} has a peer of region {region}")),
                (true, None) if is_barred(store, region) => {}
                (true, None) => {
                    let life = store.durable.disk.lifecycles().into_iter().find(|(of, _)| *of == region);
                    return Some(format!("store {id} has no peer of region {region}, {life:?}"));
                }
                (true, Some(status)) if status.is_quarantined => {
                    return Some(format!("store {id} is quarantined in region {region}"))
                }
                (true, Some(status)) => {
                    let is_behind = status.applied != status.last || status.descriptor != descriptor;
                    if is_behind || *first.get_or_insert(status.applied) != status.applied {
                        return Some(format!("store {id} lags in region {region}"));
                    }
                }
            }
        }
    }
    for (&id, store) in world.stores.iter().filter(|(id, _)| !excused.contains(*id)) {
        let waiting = store.process.as_ref().map_or(0, |process| process.bytes_to_apply());
        if waiting > 0 {
            return Some(format!("{waiting} bytes of entries count as not applied at store {id}"));
        }
    }
    None
}

impl World {
    /// Returns true if a region can have no leader any more, or needs an operator to get one: half
    /// of its voters or more are lost with their disks or unclean, or no live, clean voter has its
    /// rows. A voter whose store took the parent's snapshot from after a split has no rows of the
    /// split-off region. It can vote, but it cannot lead.
    pub(crate) fn is_doomed(&self) -> bool {
        newest(self).values().any(|region| {
            let votes = |peer: &&Peer| peer.role != PeerRole::Learner;
            let has_rows = |peer: &Peer| {
                let store = self.stores.get(&peer.store).filter(|store| !store.is_lost);
                let has_rows = store.is_some_and(|store| store.has_rows_of(region.id));
                has_rows && !self.is_unclean(region, peer.store)
            };
            !self.has_majority(region, |_| false) || !region.peers.iter().filter(votes).any(has_rows)
        })
    }
}

/// Returns the names and sources of all invariants.
pub fn invariants() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().map(|(name, source, _)| (*name, *source))
}
