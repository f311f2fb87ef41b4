//! The rule for the number of loops that serve clients.
//!
//! Each further loop costs wake-ups, and takes CPU time that the log, compaction, other processes
//! or a client on the same machine may need. It gains only if the present loops are saturated while
//! CPUs are idle. Whether it gains is tried, not guessed: a change is kept if the rate of commands
//! shows that it was right, and taken back otherwise.
//!
//! A loop that writes the log itself leaves its CPU idle while it waits for the device. Such idle
//! time is no reason to try one more loop, which would need the log thread and its wake-ups.

/// Load of the loops during one period.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// CPUs that the loops used together.
    pub used: f64,
    /// CPUs that were idle.
    pub idle: f64,
    /// Commands answered per second.
    pub commands: f64,
    /// True if the clients only write, so that one loop alone would write the log itself.
    pub only_writes: bool,
}

/// Share of their CPUs from which the loops are taken to be saturated.
const SATURATED: f64 = 0.85;
/// Minimum number of idle CPUs for a trial of one more loop, and number below which one loop fewer
/// is tried.
const IDLE: f64 = 0.2;
const CONTENDED: f64 = 0.1;
/// Share of their CPUs from which the loops get another one without a trial, if a whole CPU is
/// idle.
const BUSY: f64 = 0.6;
/// Share of the CPUs of one loop fewer, below which a loop is given up without a trial. It is well
/// below [`BUSY`], so that a steady load has a steady number of loops.
const QUIET: f64 = 0.4;
/// Share of the CPUs of one loop fewer, below which one loop fewer may be enough.
const FITS: f64 = 0.95;
/// Gain of the rate for which one more loop is kept.
const GAIN: f64 = 1.05;
/// Ratio of the rates below which one loop fewer is taken back.
const LOSS: f64 = 0.97;
/// Ratio of the rates from which a load counts as another one, for which earlier trials prove
/// nothing.
const OTHER_LOAD: f64 = 1.5;
/// Periods whose mean is a rate. Before a trial is measured, one period passes in which clients
/// change their loop.
const MEASURED: u32 = 2;
const SETTLING: u32 = 1;
/// Periods between two trials. Each trial that is taken back doubles the next rest.
const REST: u32 = 16;
const REST_MAX: u32 = 1024;

#[derive(Debug)]
struct Trial {
    loops_before: usize,
    rate_before: f64,
    periods: u32,
    commands: f64,
}

#[derive(Debug)]
pub struct Policy {
    most: usize,
    loops: usize,
    /// The rates of the latest periods with this number of loops.
    rates: Vec<f64>,
    trial: Option<Trial>,
    /// Periods without a trial, and the number of them after the next failure.
    rests: u32,
    rest: u32,
    /// The rate of the load for which the last trial was judged.
    rate_judged: Option<f64>,
    /// The latest periods in a row with another load than that.
    others: u32,
}

impl Policy {
    /// Begins with one of at most `most` loops.
    pub fn new(most: usize) -> Policy {
        Policy {
            most,
            loops: 1,
            rates: Vec::new(),
            trial: None,
            rests: 0,
            rest: REST,
            rate_judged: None,
            others: 0,
        }
    }

    pub fn loops(&self) -> usize {
        self.loops
    }

    /// Takes the load of the last period. Returns the number of loops for the next one.
    pub fn look(&mut self, load: Load) -> usize {
        self.rests = self.rests.saturating_sub(1);
        if let Some(trial) = &mut self.trial {
            trial.periods += 1;
            if trial.periods > SETTLING {
                trial.commands += load.commands;
            }
            if trial.periods == SETTLING + MEASURED {
                self.judge();
            }
            return self.loops;
        }
        if self.rates.len() == MEASURED as usize {
            self.rates.remove(0);
        }
        self.rates.push(load.commands);
        // A pause is no other load: the load after it may be the one from before.
        let is_other = |judged| load.used >= BUSY && is_other_load(judged, load.commands);
        self.others = if self.rate_judged.is_some_and(is_other) { self.others + 1 } else { 0 };
        if self.others == MEASURED {
            (self.rests, self.rest, self.rate_judged, self.others) = (0, REST, None, 0);
        }
        let (loops, fewer) = (self.loops as f64, self.loops as f64 - 1.0);
        let is_steady = self.rates.len() == MEASURED as usize
            && self.rates.windows(2).all(|rates| !is_other_load(rates[0], rates[1]));
        let may_try = self.rests == 0 && is_steady;
        let is_saturated = load.used >= SATURATED * loops && load.idle >= IDLE;
        let is_contended = load.used < FITS * fewer && load.idle < CONTENDED;
        if self.loops < self.most && load.used >= BUSY * loops && load.idle >= 1.0 {
            self.change(self.loops + 1);
        } else if self.loops > 1 && load.used < QUIET * fewer {
            self.change(self.loops - 1);
            self.rest = REST;
        } else if may_try && self.loops < self.most && is_saturated && !load.only_writes {
            self.attempt(self.loops + 1);
        } else if may_try && self.loops > 1 && (is_contended || load.only_writes && load.idle < 1.0) {
            self.attempt(self.loops - 1);
        }
        self.loops
    }

    fn change(&mut self, loops: usize) {
        self.loops = loops;
        self.rates.clear();
    }

    fn attempt(&mut self, loops: usize) {
        let rate_before = self.rates.iter().sum::<f64>() / self.rates.len() as f64;
        self.trial = Some(Trial { loops_before: self.loops, rate_before, periods: 0, commands: 0.0 });
        self.change(loops);
    }

    /// Keeps the number of loops that is being tried, or takes it back.
    fn judge(&mut self) {
        let Some(trial) = self.trial.take() else { return };
        let rate = trial.commands / f64::from(MEASURED);
        let ratio = rate / trial.rate_before.max(1.0);
        let least = if self.loops > trial.loops_before { GAIN } else { LOSS };
        if ratio >= least {
            self.rest = REST;
            self.rests = REST;
            self.rate_judged = Some(rate);
        } else {
            self.change(trial.loops_before);
            self.rate_judged = Some(trial.rate_before);
            self.rests = self.rest;
            self.rest = (self.rest * 2).min(REST_MAX);
        }
    }
}

fn is_other_load(rate_before: f64, rate: f64) -> bool {
    rate > rate_before * OTHER_LOAD || rate * OTHER_LOAD < rate_before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two CPUs, a log and a client on it. Each further loop costs a tenth.
    struct Machine {
        /// CPU time of the loops and of all else, per command.
        own: f64,
        other: f64,
        /// Commands per second that the client asks for at most.
        asked: f64,
        cpus: f64,
        /// CPUs that the client can use: it has one thread.
        others_max: f64,
    }

    impl Machine {
        fn load(&self, loops: usize) -> Load {
            let own = self.own * (1.0 + 0.1 * (loops as f64 - 1.0));
            let by_loops = loops as f64 / own;
            let by_others = self.others_max / self.other;
            let by_cpus = self.cpus / (own + self.other);
            let commands = by_loops.min(by_others).min(by_cpus).min(self.asked);
            let used = commands * own;
            let idle = (self.cpus - used - commands * self.other).max(0.0);
            Load { used, idle, commands, only_writes: false }
        }

        /// Returns how many of the periods each number of loops lasted.
        fn run(&self, policy: &mut Policy, periods: usize) -> Vec<usize> {
            let mut counts = vec![0; 9];
            let mut loops = policy.loops;
            for _ in 0..periods {
                counts[loops] += 1;
                loops = policy.look(self.load(loops));
            }
            counts
        }
    }

    const US: f64 = 1e-6;

    fn two_cpus(own: f64, other: f64) -> Machine {
        Machine { own: own * US, other: other * US, asked: f64::INFINITY, cpus: 2.0, others_max: 1.0 }
    }

    #[test]
    fn a_client_that_needs_the_other_cpu_is_served_by_one_loop() {
        let counts = two_cpus(10.0, 9.0).run(&mut Policy::new(2), 2000);
        assert!(counts[1] > 1950, "{counts:?}");
    }

    #[test]
    fn a_pipeline_that_leaves_the_other_cpu_idle_gets_a_second_loop() {
        let counts = two_cpus(2.5, 1.2).run(&mut Policy::new(2), 200);
        assert!(counts[1] < 10, "{counts:?}");
    }

    #[test]
    fn when_the_client_needs_its_cpu_again_the_second_loop_is_given_up() {
        let mut policy = Policy::new(2);
        two_cpus(2.5, 1.2).run(&mut policy, 50);
        assert_eq!(policy.loops, 2);
        let client_with_threads = Machine { others_max: 2.0, ..two_cpus(10.0, 13.0) };
        let counts = client_with_threads.run(&mut policy, 200);
        assert!(counts[2] < 30, "{counts:?}");
    }

    #[test]
    fn idle_cpus_of_a_large_machine_are_used_before_a_loop_is_saturated() {
        let large = |asked| Machine { own: 10.0 * US, other: 0.5 * US, asked, cpus: 16.0, others_max: 1.0 };
        let mut policy = Policy::new(8);
        large(70_000.0).run(&mut policy, 20);
        assert_eq!(policy.loops, 2);
        large(400_000.0).run(&mut policy, 20);
        assert_eq!(policy.loops, 8);
        large(10_000.0).run(&mut policy, 20);
        assert_eq!(policy.loops, 1);
        let counts = large(59_000.0).run(&mut policy, 1000);
        assert_eq!(counts[1], 1000, "a load below the limit changes nothing: {counts:?}");
    }

    #[test]
    fn another_load_is_tried_although_the_last_trial_failed() {
        let mut policy = Policy::new(2);
        let log_bound = Load { used: 0.9, idle: 0.5, commands: 100_000.0, only_writes: false };
        for _ in 0..500 {
            policy.look(log_bound);
        }
        assert_eq!(policy.loops, 1);
        let counts = two_cpus(2.5, 1.2).run(&mut policy, 20);
        assert!(counts[1] < 6, "{counts:?}");
    }

    #[test]
    fn another_load_is_tried_although_the_last_trial_was_kept() {
        let mut policy = Policy::new(2);
        two_cpus(2.5, 1.2).run(&mut policy, 50);
        // One loop fewer is as good for this load, so the trial is kept.
        let contended = |loops: usize| {
            let commands = 90_000.0 + loops as f64;
            Load { used: 0.9, idle: 0.0, commands, only_writes: false }
        };
        for _ in 0..100 {
            if policy.loops == 1 {
                break;
            }
            policy.look(contended(policy.loops));
        }
        for _ in 0..SETTLING + MEASURED {
            policy.look(contended(policy.loops));
        }
        assert_eq!((policy.loops, policy.trial.is_none(), policy.rests > 8), (1, true, true));
        let counts = two_cpus(2.5, 1.2).run(&mut policy, 20);
        assert!(counts[1] < 6, "{counts:?}");
    }

    #[test]
    fn a_load_that_comes_in_bursts_is_not_tried_again_and_again() {
        let mut policy = Policy::new(2);
        let burst = |part: f64| {
            let commands = 20_000.0 * part;
            Load { used: 0.9 * part, idle: 0.5, commands, only_writes: false }
        };
        let mut tried = 0;
        for _ in 0..50 {
            for part in [0.4, 1.0, 1.0, 1.0, 0.3, 0.0] {
                tried += usize::from(policy.look(burst(part)) == 2);
            }
        }
        assert!(tried < 30, "{tried} of 300 periods");
    }

    #[test]
    fn failed_trials_become_rare() {
        let mut policy = Policy::new(2);
        let saturated = Load { used: 1.0, idle: 0.5, commands: 1000.0, only_writes: false };
        let tried = |policy: &mut Policy, periods: usize| {
            (0..periods).map(|_| policy.look(saturated)).filter(|&loops| loops == 2).count()
        };
        let (first, later) = (tried(&mut policy, 1000), tried(&mut policy, 1000));
        assert!(first > 0 && later < first && later < 10, "{first} {later}");
    }

    /// Clients that only write. With one loop, it writes the log itself, which saves wake-ups.
    fn writes(loops: usize) -> Load {
        match loops {
            1 => Load { used: 0.9, idle: 0.4, commands: 50_000.0, only_writes: true },
            _ => Load { used: 1.2, idle: 0.3, commands: 40_000.0, only_writes: true },
        }
    }

    #[test]
    fn a_loop_that_writes_the_log_itself_gets_no_second_one_unless_a_cpu_is_idle() {
        let mut policy = Policy::new(8);
        for _ in 0..500 {
            policy.look(writes(policy.loops));
            assert_eq!(policy.loops, 1);
        }
        policy.look(Load { idle: 14.0, ..writes(1) });
        assert_eq!(policy.loops, 2);
    }

    #[test]
    fn after_another_load_clients_that_only_write_come_back_to_one_loop() {
        let mut policy = Policy::new(2);
        two_cpus(2.5, 1.2).run(&mut policy, 50);
        assert_eq!(policy.loops, 2);
        let mut with_two = 0;
        for _ in 0..200 {
            with_two += usize::from(policy.look(writes(policy.loops)) == 2);
        }
        assert!(policy.loops == 1 && with_two < 30, "{with_two} of 200 periods");
    }
}
