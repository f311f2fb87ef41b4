//! The resident set of the process, and its guard.
//!
//! The parts of [`Budget`](crate::budget::Budget) bound the allocated memory. Freed memory stays
//! resident until jemalloc returns its pages. jemalloc checks an arena only while a thread
//! allocates from it, so pages that a compaction freed can stay as long as its thread sleeps. The
//! guard reads the resident set and returns all free pages whenever the set exceeds `maxmemory`.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::LiveBudget;

/// Time between two looks while the resident set exceeds three quarters of `maxmemory`.
const PERIOD: Duration = Duration::from_millis(20);

/// Time between two looks otherwise.
const REST: Duration = Duration::from_millis(200);

/// Returns the bytes of the process that are in RAM, mapped files included; 0 if the kernel does
/// not report it.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Returns free pages to the kernel while the resident set exceeds `maxmemory`. Runs until the task
/// is dropped.
pub async fn guard(budget: Arc<LiveBudget>) {
    loop {
        let (resident, maxmemory) = (resident_bytes(), budget.maxmemory());
        if resident > maxmemory {
            // Returning pages takes milliseconds.
            let _ = tokio::task::spawn_blocking(allocator::return_free_pages).await;
        }
        let is_near = resident > maxmemory / 4 * 3;
        tokio::time::sleep(if is_near { PERIOD } else { REST }).await;
    }
}
