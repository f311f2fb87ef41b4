//! Teaches the filter of rows which rows flash has, after a start and after rows were replaced.
//! Until it knows them, absent rows are looked up on flash.

use std::time::{Duration, Instant};

use super::parts::Parts;
use crate::resident::resident_bytes;

const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// Pause after a failed pass before the next one.
const RETRY_PERIOD: Duration = Duration::from_secs(60);
/// Pause after each slice, in multiples of the time that the slice took. So passes take a quarter
/// of the device's time at most, whatever its speed.
const PAUSE_TIMES: u32 = 3;

/// Runs until the store stops.
pub fn run(parts: &Parts) {
    let mut due = Instant::now();
    while !parts.ends.is_stopping() {
        std::thread::sleep(LOOK_PERIOD);
        if Instant::now() < due || !has_memory(parts) {
            continue;
        }
        if let Err(error) = learn_all(parts) {
            tracing::warn!(%error, "the filter of rows could not read the rows on flash");
            due = Instant::now() + RETRY_PERIOD;
        }
    }
}

/// Returns false while the process holds more than `maxmemory`. A pass needs memory for what it
/// reads ahead in each file.
fn has_memory(parts: &Parts) -> bool {
    resident_bytes() <= parts.budget.maxmemory()
}

fn learn_all(parts: &Parts) -> storage::Result<()> {
    let mut began = Instant::now();
    let mut after_slice = || {
        std::thread::sleep(began.elapsed() * PAUSE_TIMES);
        began = Instant::now();
        !parts.ends.is_stopping() && has_memory(parts)
    };
    while parts.engine.rows().learn_rows(&mut after_slice)? {
        if !after_slice() {
            break;
        }
    }
    Ok(())
}
