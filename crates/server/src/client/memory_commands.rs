//! `MEMORY` about the store: `STATS`, `DOCTOR`, `PURGE`, `MALLOC-STATS`.

use command::MemoryCommand;
use resp::Reply;

use crate::resident::resident_bytes;
use crate::store::Store;

/// Share of `maxmemory` in percent above which the doctor says that memory is nearly used up.
const NEARLY_ALL_PERCENT: u64 = 95;
/// The doctor reports unused pages if they are more than this share of the resident pages, in
/// percent, and more than this many bytes.
const UNUSED_PERCENT: u64 = 40;
const UNUSED_BYTES_LEAST: u64 = 64 << 20;

pub fn run(store: &Store, command: MemoryCommand) -> Reply {
    match command {
        MemoryCommand::Stats => {
            let rows = numbers(store).into_iter();
            Reply::Map(rows.map(|(name, value)| (Reply::bulk(name), Reply::Int(value as i64))).collect())
        }
        MemoryCommand::Doctor => Reply::Verbatim("txt", doctor(store).into()),
        MemoryCommand::Purge => {
            allocator::return_free_pages();
            Reply::OK
        }
        MemoryCommand::MallocStats => {
            let Some(usage) = allocator::usage() else {
                return Reply::error("ERR the allocator tells no statistics");
            };
            let text = format!(
                "jemalloc: allocated {}, active {}, resident {} bytes\n",
                usage.allocated, usage.active, usage.resident
            );
            Reply::Verbatim("txt", text.into())
        }
    }
}

/// The numbers of `MEMORY STATS`, in bytes where they are not counts.
fn numbers(store: &Store) -> Vec<(&'static str, u64)> {
    let resident = resident_bytes();
    let rows = store.engine.rows().ram_use();
    let keys: u64 = store.engine.key_counts().into_iter().map(|(_, (keys, _))| keys).sum();
    let mut numbers = vec![
        ("maxmemory", store.budget.maxmemory()),
        ("resident", resident),
        ("clients.normal", store.client_memory.used()),
        ("rows.dirty", rows.dirty_bytes),
        ("rows.clean", rows.clean_bytes),
        ("rows.filter", store.engine.rows().filter_use().bytes),
        ("log.entries", store.levels.entry_bytes()),
        ("log.unapplied", store.levels.handed_out_bytes()),
        ("keys.count", keys),
    ];
    if let Some(usage) = allocator::usage() {
        numbers.extend([
            ("total.allocated", usage.allocated),
            ("allocator.allocated", usage.allocated),
            ("allocator.active", usage.active),
            ("allocator.resident", usage.resident),
        ]);
    }
    numbers.sort_unstable();
    numbers
}

fn doctor(store: &Store) -> String {
    let (resident, maxmemory) = (resident_bytes(), store.budget.maxmemory());
    let mut findings = Vec::new();
    if resident > maxmemory / 100 * NEARLY_ALL_PERCENT {
        findings.push(format!(
            "{resident} bytes are resident of {maxmemory} (maxmemory). Rows that do not fit are read from flash: \
             see the hit ratio in INFO flash."
        ));
    }
    if let Some(usage) = allocator::usage() {
        let unused = usage.resident.saturating_sub(usage.allocated);
        if unused > UNUSED_BYTES_LEAST && unused > usage.resident / 100 * UNUSED_PERCENT {
            findings.push(format!(
                "{unused} bytes of pages are resident and hold nothing. MEMORY PURGE returns those that are free."
            ));
        }
    }
    match findings.is_empty() {
        true => "Nothing is wrong with the memory of this store.".into(),
        false => findings.join("\n"),
    }
}
