use super::*;

/// A kernel with two cores. `used` cores are in use, `own` of them by this process, for a number of
/// seconds.
struct Kernel {
    at_s: f64,
    counters: Counters,
    average: Average,
}

impl Kernel {
    fn new() -> Kernel {
        let counters = Counters { cores: 2.0, machine: 7, used_nanos: 0, available_nanos: 0, own_nanos: 0 };
        let mut kernel = Kernel { at_s: 0.0, counters, average: Average::default() };
        kernel.average.note(0.0, Some(counters));
        kernel
    }

    fn run(&mut self, seconds: usize, used: f64, own: f64) {
        for _ in 0..seconds {
            self.at_s += 1.0;
            self.counters.used_nanos += (used * 1e9) as u64;
            self.counters.available_nanos += (self.counters.cores * 1e9) as u64;
            self.counters.own_nanos += (own * 1e9) as u64;
            self.average.note(self.at_s, Some(self.counters));
        }
    }

    fn told(&self) -> (f64, f64) {
        let cpu = self.average.cpu().unwrap();
        assert_eq!((cpu.cores, cpu.machine), (2.0, 7));
        (cpu.busy, cpu.own)
    }
}

fn is_near((busy, own): (f64, f64), expected: (f64, f64)) -> bool {
    (busy - expected.0).abs() < 1e-6 && (own - expected.1).abs() < 1e-6
}

#[test]
fn the_share_of_the_machine_and_the_cores_of_this_process_are_told_apart() {
    let mut kernel = Kernel::new();
    kernel.run(60, 1.5, 0.5);
    assert!(is_near(kernel.told(), (0.75, 0.5)), "{:?}", kernel.told());
}

#[test]
fn nothing_is_told_before_some_seconds_are_over_and_then_their_plain_mean() {
    let mut kernel = Kernel::new();
    kernel.run(2, 2.0, 2.0);
    assert_eq!(kernel.average.cpu(), None);
    kernel.run(3, 0.0, 0.0);
    assert!(is_near(kernel.told(), (0.4, 0.8)), "{:?}", kernel.told());
}

#[test]
fn a_burst_of_a_few_seconds_does_not_make_a_calm_machine_busy() {
    let mut kernel = Kernel::new();
    kernel.run(60, 0.6, 0.4);
    kernel.run(5, 2.0, 1.8);
    assert!(kernel.told().0 < 0.75, "{:?}", kernel.told());
    kernel.run(60, 2.0, 1.8);
    assert!(kernel.told().0 > 0.99 && kernel.told().1 > 1.79, "{:?}", kernel.told());
}

#[test]
fn other_cores_and_a_kernel_that_does_not_tell_begin_anew() {
    let mut kernel = Kernel::new();
    kernel.run(60, 2.0, 1.0);
    kernel.average.note(kernel.at_s + 1.0, None);
    assert_eq!(kernel.average.cpu(), None);
    kernel.run(60, 2.0, 1.0);
    kernel.counters.cores = 1.0;
    kernel.run(4, 0.5, 0.5);
    assert_eq!(kernel.average.cpu(), None);
    kernel.run(60, 0.5, 0.5);
    let cpu = kernel.average.cpu().unwrap();
    assert!(cpu.cores == 1.0 && is_near((cpu.busy, cpu.own), (0.5, 0.5)), "{cpu:?}");
}

#[test]
fn a_clock_that_stands_still_and_counters_that_fall_are_no_load() {
    let mut kernel = Kernel::new();
    kernel.run(60, 1.0, 0.5);
    let before = kernel.told();
    kernel.average.note(kernel.at_s, Some(kernel.counters));
    assert!(is_near(kernel.told(), before));
    kernel.counters.used_nanos = 0;
    kernel.run(1, 0.0, 0.0);
    assert!(kernel.told().0 < before.0);
}
