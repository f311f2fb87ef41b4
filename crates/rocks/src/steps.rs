//! Long work on shared data, in steps between which others have the data.

use std::time::{Duration, Instant};

use parking_lot::RwLock;

/// Maximum pause after a step.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Divisor of a short pause. Linux's timers add about 60 us to each pause. These alone are not
/// enough: a thread that waited for the data hardly wakes up before it is taken again.
const SHORT: u32 = 4;

/// The pause after a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    /// As long as the step took, up to a maximum.
    Equal,
    /// For work that is urgent: a part of it.
    Short,
    /// None, because no other thread needs the data.
    No,
}

/// Repeats a step until it returns `None`. Returns the time for which the data was left to others.
///
/// If the data were only passed to a waiting thread and taken back, that thread would wait for
/// another step a few look-ups later, and a command with thousands of look-ups for hundreds of
/// steps.
pub(crate) fn in_steps<T>(data: &RwLock<T>, mut step: impl FnMut(&mut T) -> Option<Pause>) -> Duration {
    let mut left = Duration::ZERO;
    loop {
        let pause = {
            let mut data = data.write();
            let began = Instant::now();
            let Some(pause) = step(&mut data) else { return left };
            let took = began.elapsed().min(PAUSE_MAX);
            match pause {
                Pause::Equal => took,
                Pause::Short => took / SHORT,
                Pause::No => continue,
            }
        };
        let began = Instant::now();
        std::thread::sleep(pause);
        left += began.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_once_a_step_returns_none() {
        let data = RwLock::new(Vec::new());
        for pause in [Pause::Equal, Pause::Short, Pause::No] {
            let left = in_steps(&data, |data: &mut Vec<u32>| {
                data.push(1);
                (data.len() % 10 != 0).then_some(pause)
            });
            assert_eq!(left.is_zero(), matches!(pause, Pause::No));
        }
        assert_eq!(data.read().len(), 30);
    }
}
