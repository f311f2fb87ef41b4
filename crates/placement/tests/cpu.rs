//! CPU as a resource, in a closed loop: the measured use of stores follows their leaders with a
//! delay of some seconds and with noise.

mod support;

use std::collections::BTreeMap;

use steelyard_placement::{
    plan, ClusterView, Cpu, CpuMemory, Operator, PlanLimits, Policy, Reason, RegionView,
};
use support::*;
use types::{Draw, StoreId};

const WINDOW_S: f64 = 10.0;

/// Returns a random factor between `1 - noise` and `1 + noise`.
fn about(draw: &mut Draw, noise: f64) -> f64 {
    1.0 + noise * (2.0 * draw.fraction() - 1.0)
}

/// The true costs, in cores per operation per second, of a leader's write, a follower's write and a
/// read. Their proportions differ from those that placement assumes.
const LEADER_WRITE: f64 = 45e-6;
const FOLLOWER_WRITE: f64 = 30e-6;
const READ: f64 = 15e-6;
const AT_REST: f64 = 0.03;

/// One machine per store, with the other programs that run on it.
struct Machines {
    view: ClusterView,
    /// By store: the cores of its machine, and those that other programs use.
    cores: Vec<f64>,
    others: Vec<f64>,
    /// Writes and reads per second that clients ask for, by region.
    asked: BTreeMap<u64, (f64, f64)>,
    /// Averages of the cores in use, by store: by its process and in total.
    used: Vec<(f64, f64)>,
    memory: CpuMemory,
    noise: f64,
    draw: Draw,
    moves: Vec<(usize, Operator)>,
    seconds: usize,
}

impl Machines {
    fn new(speeds: &[u64], cores: &[f64], regions: Vec<RegionView>) -> Machines {
        let asked = regions.iter().map(|region| (region.id, (region.write_rate, region.read_rate)));
        Machines {
            asked: asked.collect(),
            view: cluster(speeds, regions),
            cores: cores.to_vec(),
            others: vec![0.0; cores.len()],
            used: vec![(0.0, 0.0); cores.len()],
            memory: CpuMemory::default(),
            noise: 0.1,
            draw: Draw::new(11),
            moves: Vec::new(),
            seconds: 0,
        }
    }

    /// Returns the cores that each store would use if there were enough.
    fn wanted(&self) -> Vec<f64> {
        let mut cores = vec![AT_REST; self.cores.len()];
        for region in &self.view.regions {
            let (writes, reads) = self.asked[&region.id];
            for peer in &region.peers {
                cores[peer.store as usize] += match region.leader == Some(peer.store) {
                    true => writes * LEADER_WRITE + reads * READ,
                    false => writes * FOLLOWER_WRITE,
                };
            }
        }
        cores
    }

    fn share(&self, store: StoreId) -> f64 {
        let at = store as usize;
        (self.wanted()[at] + self.others[at]) / self.cores[at]
    }

    /// Advances by one second: plans a round and executes it. Clients of a machine that is too slow
    /// wait, and the measured rates are those of answered operations.
    fn pass(&mut self, policy: Policy) {
        let wanted = self.wanted();
        let mut answered = vec![1.0; wanted.len()];
        for (at, wanted) in wanted.into_iter().enumerate() {
            let own = wanted.min(self.cores[at] - self.others[at]);
            answered[at] = own / wanted;
            let part = if self.seconds == 0 { 1.0 } else { 1.0 - (-1.0 / WINDOW_S).exp() };
            let (mean_own, mean_all) = &mut self.used[at];
            *mean_own += part * (own - *mean_own);
            *mean_all += part * (own + self.others[at] - *mean_all);
            let cores = self.cores[at];
            let busy = (*mean_all / cores * about(&mut self.draw, self.noise)).min(1.0);
            let own = *mean_own * about(&mut self.draw, self.noise);
            self.view.stores[at].cpu = Some(Cpu { cores, busy, own, machine: 0 });
        }
        for region in &mut self.view.regions {
            let (writes, reads) = self.asked[&region.id];
            let served = answered[region.leader.unwrap() as usize];
            region.write_rate = writes * served * about(&mut self.draw, self.noise);
            region.read_rate = reads * served * about(&mut self.draw, self.noise);
            region.write_bytes_rate = region.write_rate * 100.0;
        }
        let limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
        self.memory.note(&mut self.view, 1.0, WINDOW_S, &limits);
        for operator in plan(&self.view, policy, &limits) {
            execute(&mut self.view, &operator);
            self.moves.push((self.seconds, operator));
        }
        self.seconds += 1;
    }

    fn run(&mut self, policy: Policy, seconds: usize) {
        for _ in 0..seconds {
            self.pass(policy);
        }
    }

    fn leads(&self, store: StoreId) -> u32 {
        leader_counts(&self.view)[&store]
    }

    fn since(&self, second: usize) -> Vec<&Operator> {
        self.moves.iter().filter(|(at, _)| *at >= second).map(|(_, operator)| operator).collect()
    }
}

const MB: u64 = 1_000_000;

/// Regions whose leaders are spread evenly and that all have the same rates.
fn regions(count: u64, writes: f64, reads: f64) -> Vec<RegionView> {
    let of = |id: u64| RegionView {
        write_rate: writes,
        read_rate: reads,
        bytes: 10 * MB,
        heat: writes + reads,
        ..region(id, id % 3, &[0, 1, 2])
    };
    (1..=count).map(of).collect()
}

/// The store with the fastest device has two cores, the others have sixteen each.
fn fast_and_small(writes: f64, reads: f64) -> Machines {
    Machines::new(&[625 * MB, 250 * MB, 250 * MB], &[2.0, 16.0, 16.0], regions(24, writes, reads))
}

#[test]
fn leads_fill_the_fast_device_until_its_cpu_is_at_the_limit_and_then_all_is_calm() {
    for policy in [Policy::LeaderOnly, Policy::Alor, Policy::Adaptive] {
        // All 24 leaders would use 92% of the two cores.
        let mut machines = fast_and_small(1000.0, 2000.0);
        machines.run(policy, 120);
        let (leads, share) = (machines.leads(0), machines.share(0));
        println!("{policy}: {leads} leads at {share:.3} after {} moves", machines.moves.len());
        assert!((10..=20).contains(&leads), "{policy}: {leads} leads");
        assert!((0.6..=0.78).contains(&share), "{policy}: {share}");
        assert!(machines.moves.len() <= 60, "{policy}: {} moves", machines.moves.len());
        machines.run(policy, 1200);
        let late = machines.since(120);
        assert!(late.len() <= 4, "{policy}: {} moves once it was calm: {late:?}", late.len());
        assert!(late.iter().all(|operator| operator.to() != Some(0)), "{policy}: none comes back: {late:?}");
    }
}

#[test]
fn where_nothing_is_noise_the_cpu_is_used_up_to_the_limit() {
    for policy in [Policy::LeaderOnly, Policy::Alor, Policy::Adaptive] {
        let mut machines = fast_and_small(1000.0, 2000.0);
        machines.noise = 0.0;
        machines.run(policy, 300);
        let share = machines.share(0);
        println!("{policy}: {} leads at {share:.3}", machines.leads(0));
        assert!((0.7..=0.76).contains(&share), "{policy}: {share}");
        assert_eq!(machines.since(60), [&machines.moves[0].1; 0], "{policy}");
    }
}

#[test]
fn without_a_limit_that_binds_leads_are_where_they_would_be_if_no_cpu_were_known() {
    for policy in Policy::ALL {
        let mut machines = fast_and_small(50.0, 50.0);
        machines.run(policy, 60);
        let mut unknown = cluster(&[625 * MB, 250 * MB, 250 * MB], regions(24, 50.0, 50.0));
        for region in &mut unknown.regions {
            region.write_bytes_rate = region.write_rate * 100.0;
        }
        let limits = PlanLimits { data_moves_max: 0, ..PlanLimits::default() };
        settle(&mut unknown, policy, &limits, 100);
        assert_eq!(leader_counts(&machines.view), leader_counts(&unknown), "{policy}");
    }
}

#[test]
fn an_idle_cluster_gets_the_same_plans_whatever_its_cpus_are() {
    for policy in Policy::ALL {
        let unknown = cluster(&[625 * MB, 250 * MB, 250 * MB], regions(24, 0.0, 0.0));
        let mut known = unknown.clone();
        for (store, cores) in known.stores.iter_mut().zip([2.0, 16.0, 16.0]) {
            store.cpu = Some(Cpu { cores, busy: 0.02, own: 0.03, machine: 0 });
        }
        let limits = PlanLimits::default();
        assert_eq!(plan(&known, policy, &limits), plan(&unknown, policy, &limits), "{policy}");
    }
}

#[test]
fn under_even_a_small_machine_hands_leads_over_until_it_is_below_the_limit() {
    // Eight leaders and sixteen followers would use 93% of two cores.
    let mut machines = fast_and_small(1900.0, 2000.0);
    machines.run(Policy::Even, 120);
    let (leads, share) = (machines.leads(0), machines.share(0));
    println!("even: {leads} leads at {share:.3} after {} moves", machines.moves.len());
    assert!((0.6..=0.78).contains(&share) || leads == 0, "{leads} leads at {share}");
    let is_cpu = |operator: &Operator| matches!(operator.reason(), Reason::CpuBusy { .. });
    assert!(machines.moves.iter().any(|(_, operator)| is_cpu(operator)));
    machines.run(Policy::Even, 1200);
    let late = machines.since(120);
    assert!(late.len() <= 4, "{} moves once it was calm: {late:?}", late.len());
}

#[test]
fn leads_come_back_when_the_load_has_fallen() {
    let mut machines = fast_and_small(1000.0, 2000.0);
    machines.run(Policy::Alor, 300);
    assert!(machines.leads(0) < 24);
    machines.asked.values_mut().for_each(|(writes, reads)| (*writes, *reads) = (*writes / 4.0, *reads / 4.0));
    machines.run(Policy::Alor, 120);
    assert_eq!(machines.leads(0), 24);
}

#[test]
fn equal_machines_that_are_all_too_busy_move_nothing() {
    for policy in Policy::ALL {
        // Eight leaders and sixteen followers on each of three machines with two cores use 90%.
        let mut machines = Machines::new(&[250 * MB; 3], &[2.0; 3], regions(24, 1600.0, 3500.0));
        machines.run(policy, 600);
        assert!(machines.share(0) > 0.85, "{}", machines.share(0));
        let moves = &machines.moves;
        assert!(moves.is_empty(), "{policy}: {} moves: {:?}", moves.len(), moves.first());
    }
}

#[test]
fn machines_about_the_limit_do_not_pass_leads_to_and_fro() {
    for policy in Policy::ALL {
        // Each machine uses 73%, so that in measurements different machines exceed the limit at
        // different times.
        let mut machines = Machines::new(&[250 * MB; 3], &[2.0; 3], regions(24, 1300.0, 2800.0));
        machines.run(policy, 120);
        machines.run(policy, 1200);
        let late = machines.since(120);
        assert!(late.len() <= 12, "{policy} at {:.3}: {} moves in 20 minutes", machines.share(0), late.len());
    }
}

#[test]
fn another_program_on_the_machine_moves_leads_only_where_that_helps() {
    let alike = || Machines::new(&[250 * MB; 3], &[4.0; 3], regions(24, 500.0, 1000.0));
    // The machine is below the limit if a third of its work is led elsewhere.
    let mut machines = alike();
    machines.run(Policy::Even, 60);
    assert_eq!(machines.moves, []);
    machines.others[0] = 2.6;
    machines.run(Policy::Even, 120);
    assert!(machines.share(0) < 0.78 && machines.leads(0) < 8, "{}", machines.share(0));
    // The other program alone exceeds the limit.
    let mut machines = alike();
    machines.others[0] = 3.7;
    machines.run(Policy::Even, 120);
    assert_eq!(machines.moves, []);
}

#[test]
fn one_large_lead_that_does_not_fit_is_not_passed_to_and_fro() {
    for policy in [Policy::LeaderOnly, Policy::Adaptive] {
        let mut all = regions(8, 1800.0, 600.0);
        // Leading this region takes 30% of the small machine; everything else takes 45%.
        (all[0].write_rate, all[0].read_rate) = (8000.0, 32_000.0);
        let mut machines = Machines::new(&[625 * MB, 250 * MB, 250 * MB], &[2.0, 16.0, 16.0], all);
        machines.noise = 0.05;
        machines.run(policy, 1800);
        let of_it = machines.moves.iter().filter(|(_, operator)| operator.region() == 1).count();
        println!("{policy}: {of_it} moves of it, {:.3} in use", machines.share(0));
        assert!(of_it <= 6, "{policy}: {of_it} moves of it in half an hour");
    }
}

/// Generates stores on the same number of machines or fewer. Some are too busy, and some have an
/// unknown CPU.
fn any_cluster(draw: &mut Draw) -> ClusterView {
    let stores = 3 + draw.below(4);
    let speeds: Vec<u64> = (0..stores).map(|_| (1 + draw.below(3)) * 100 * MB).collect();
    let regions = (1..=4 + draw.below(30)).map(|id| {
        let first = draw.below(stores);
        let mut peers = [first, (first + 1) % stores, (first + 2) % stores];
        peers.sort_unstable();
        let (write_rate, read_rate) = (draw.below(2000) as f64, draw.below(4000) as f64);
        let leader = peers[draw.below(3) as usize];
        RegionView {
            write_rate,
            read_rate,
            write_bytes_rate: write_rate * 100.0,
            bytes: 10 * MB,
            ..region(id, leader, &peers)
        }
    });
    let mut view = cluster(&speeds, regions.collect());
    fill_up(&mut view);
    let busy: Vec<f64> = (0..stores).map(|_| about(draw, 0.6) * 0.6).collect();
    for store in &mut view.stores {
        let machine = draw.below(stores + 1);
        let busy = busy[if machine == 0 { store.id } else { machine - 1 } as usize];
        let own = 4.0 * busy * about(draw, 0.5) / 3.0;
        let cpu = Cpu { cores: 4.0, busy, own, machine };
        store.cpu = (draw.below(8) > 0).then_some(cpu);
        store.cpu_high = draw.below(6) == 0;
    }
    view
}

#[test]
fn every_plan_ends_and_brings_no_lead_to_a_busy_machine_from_one_with_room() {
    let mut draw = Draw::new(5);
    let (mut brought, mut handed_over) = (0, 0);
    for _ in 0..400 {
        let view = any_cluster(&mut draw);
        for policy in Policy::ALL {
            let limits = PlanLimits::default();
            for operator in plan(&view, policy, &limits) {
                let Operator::TransferLeader { from, to, reason, .. } = &operator else { continue };
                let cpu = |store: &StoreId| view.store(*store).unwrap().cpu;
                let (Some(giver), Some(taker)) = (cpu(from), cpu(to)) else { continue };
                let is_one = giver.machine == taker.machine && giver.machine > 0;
                if matches!(reason, Reason::CpuBusy { .. }) {
                    handed_over += 1;
                    assert!(giver.busy > 0.75 && taker.busy <= 0.75 && !is_one, "{operator}");
                } else if !is_one {
                    brought += 1;
                    assert!(taker.busy <= 0.75 || giver.busy > 0.75, "{operator}");
                }
            }
            settle(&mut view.clone(), policy, &limits, 500);
        }
    }
    assert!(brought > 1000 && handed_over > 200, "{brought} and {handed_over}");
}

#[test]
fn a_store_that_was_too_busy_and_starts_again_is_brought_no_lead_before_its_cpu_is_known() {
    let limits = PlanLimits::default();
    let cpu = |busy| Some(Cpu { cores: 2.0, busy, own: 2.0 * busy, machine: 0 });
    let mut view = cluster(&[625 * MB, 250 * MB], regions(4, 1000.0, 0.0));
    for region in &mut view.regions {
        let id = region.id;
        *region = RegionView { write_rate: 1000.0, ..support::region(id, 1, &[0, 1]) };
    }
    (view.stores[0].cpu, view.stores[1].cpu) = (cpu(0.85), cpu(0.1));
    let mut memory = CpuMemory::default();
    let mut planned = |view: &mut ClusterView, seconds| {
        memory.note(view, seconds, WINDOW_S, &limits);
        plan(view, Policy::LeaderOnly, &limits).len()
    };
    assert_eq!(planned(&mut view, 1.0), 0, "it is too busy");
    view.stores[0].cpu = None;
    assert_eq!(planned(&mut view, 1.0), 0, "it has just started again");
    assert_eq!(planned(&mut view, 500.0), 0);
    assert!(planned(&mut view, 100.0) > 0, "a store whose CPU stays unknown has no limit");
}
