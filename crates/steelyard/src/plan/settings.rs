//! The settings of a simulation. It simulates a part of the data, one record at a time, and scales
//! every quantity that grows with the data. Alternatively it simulates the runs behind the
//! reproduction of the paper's figures. A hybrid device has its own cache. Only in [`ratios`] the
//! devices share one cache, as in the figures.

use anyhow::{anyhow, ensure, Context};
use device::Fit;
use placement::Policy;
use predict::alor::{self, scaled_devices, Scale};
use predict::{Load, Processors, Question, Ratio, Tuning, Workload};

use super::{stores, Plan};

/// Maximum number of records that are simulated. A policy then takes about a second.
const RECORDS_MAX: u64 = 150_000;
/// Maximum virtual time in nanoseconds of a workload after the load.
const PHASE_NS: u64 = 60_000_000_000;
/// Maximum virtual time in nanoseconds until the cluster is at rest after a workload.
const REST_NS: u64 = 120_000_000_000;
/// Number of runs of a prediction for the figures, which show medians of runs as well.
const RUNS: u64 = 5;
/// Latency of the network in nanoseconds: one way within a rack, including the wake-ups at both
/// ends.
const NETWORK_NS: u64 = 100_000;
/// Length of a key in bytes.
const KEY_BYTES: u64 = 16;

/// CPU use on the machine of the figures, where six stores and the client share two CPUs:
/// nanoseconds of a read, which usually misses RAM, nanoseconds of an operation in the client, and
/// CPUs that each store uses without load. They were measured in 18 runs of C with 3,300 to 21,800
/// reads per second.
const BENCH_READ_NS: u64 = 60_000;
const BENCH_CLIENT_NS: u64 = 12_000;
const BENCH_IDLE_PER_STORE: f64 = 0.045;

/// A question, and its relation to the user's request.
pub struct Settings {
    pub question: Question,
    /// The factor for the data, memtables, levels and caches.
    pub data_factor: f64,
    /// Notes for human readers about assumptions on a running cluster.
    pub notes: Vec<String>,
}

pub fn question(plan: &Plan, text: &str) -> anyhow::Result<Settings> {
    if let Some(scale) = &plan.like_bench {
        let scale = Scale::named(scale).map_err(|error| anyhow!(error))?;
        let capacity = scale.capacity_bytes().unwrap_or(0);
        let mut stores = stores::parse(text, scale.device_speed, &Fit::shipped(), capacity)?;
        scale_caches(&mut stores, scale.data_factor);
        let (apply_reads, runs) = (usize::from(plan.apply_reads), u64::from(plan.runs));
        let records = scale.records(stores.len());
        return Ok(like_bench(stores, records, &scale, apply_reads, (plan.seed, runs)));
    }
    let bytes = plan.data.map_or(10 << 30, |data| data.0);
    let data_factor = factor(plan, bytes)?;
    // The capacity applies to all of the data.
    let capacity = plan.capacity.map_or(0, |capacity| (capacity.0 as f64 * data_factor) as u64);
    let mut stores = stores::parse(text, plan.device_speed.unwrap_or(1.0), &plan.fit()?, 0)?;
    for store in &mut stores {
        store.capacity_bytes = match store.capacity_bytes {
            0 => capacity,
            own => (own as f64 * data_factor) as u64,
        };
    }
    let regions = Question::founded(&stores, plan.regions, usize::from(plan.replicas));
    let question = of(plan, stores, regions, records(plan, bytes), data_factor);
    Ok(Settings { question, data_factor, notes: Vec::new() })
}

/// Scales the caches of hybrid devices, whose sizes are given for all of the data.
fn scale_caches(stores: &mut [predict::Store], data_factor: f64) {
    for cache in stores.iter_mut().filter_map(|store| store.device.cache.as_mut()) {
        cache.bytes = (cache.bytes as f64 * data_factor) as u64;
    }
}

fn records(plan: &Plan, bytes: u64) -> u64 {
    (bytes / record_bytes(plan)).clamp(1, RECORDS_MAX)
}

/// Returns the length of a key and its value in bytes.
pub fn record_bytes(plan: &Plan) -> u64 {
    plan.value.0.saturating_add(KEY_BYTES)
}

/// Returns the part of the data that is simulated.
pub fn factor(plan: &Plan, bytes: u64) -> anyhow::Result<f64> {
    ensure!(plan.value.0 >= 1, "a value must have at least one byte");
    let all = bytes / record_bytes(plan);
    ensure!(all > 0, "the data is smaller than one record");
    Ok(if all <= RECORDS_MAX { 1.0 } else { RECORDS_MAX as f64 / all as f64 })
}

/// Returns a question about stores with the default configuration.
pub fn of(
    plan: &Plan,
    mut stores: Vec<predict::Store>,
    regions: Vec<predict::Region>,
    records: u64,
    data_factor: f64,
) -> Question {
    scale_caches(&mut stores, data_factor);
    let tuning = Tuning { apply_reads: usize::from(plan.apply_reads), ..Tuning::default() };
    Question {
        replicas: usize::from(plan.replicas).min(stores.len()),
        stores,
        regions,
        tuning: if data_factor < 1.0 { tuning.scaled(data_factor) } else { tuning },
        processors: Processors { cpus: usize::from(plan.cpus), ..Processors::default() },
        load: Load {
            records,
            value_bytes: plan.value.0,
            threads: usize::from(plan.threads),
            operations: RECORDS_MAX,
            at_most_ns: PHASE_NS,
            rest_at_most_ns: REST_NS,
            warm_up: 0,
        },
        network_ns: NETWORK_NS,
        seed: plan.seed,
        runs: u64::from(plan.runs),
    }
}

/// Returns the question about a run of `bench reproduce alor` at a scale.
fn like_bench(
    stores: Vec<predict::Store>,
    records: u64,
    scale: &Scale,
    apply_reads: usize,
    (seed, runs): (u64, u64),
) -> Settings {
    let mut tuning = Tuning { apply_reads, ..Tuning::default() };
    for (name, bytes) in scale.store_options() {
        match name {
            "write_buffer_size" => tuning.memtable_bytes = bytes,
            "max_bytes_for_level_base" => tuning.level_base_bytes = bytes,
            "target_file_size_base" => tuning.table_file_bytes = bytes,
            "block_cache_size" => tuning.block_cache_bytes = bytes,
            "row_cache_bytes" => tuning.row_cache_bytes = bytes,
            _ => {}
        }
    }
    let question = Question {
        regions: Question::founded(&stores, scale.regions, 3),
        replicas: stores.len().min(3),
        tuning,
        processors: Processors {
            cpus: 2,
            shared: true,
            read_ns: BENCH_READ_NS,
            client_ns: BENCH_CLIENT_NS,
            idle: BENCH_IDLE_PER_STORE * stores.len() as f64,
            ..Processors::default()
        },
        load: Load {
            records,
            value_bytes: 1024,
            threads: scale.threads,
            operations: records,
            at_most_ns: u64::try_from(scale.phase_at_most().as_nanos()).unwrap_or(u64::MAX / 4),
            rest_at_most_ns: u64::try_from(scale.settle_at_most().as_nanos()).unwrap_or(u64::MAX / 4),
            warm_up: 0,
        },
        network_ns: NETWORK_NS,
        seed,
        runs,
        stores,
    };
    Settings { question, data_factor: scale.data_factor, notes: Vec::new() }
}

/// Returns the predictions for the figures: the ratios of policies on a mix such as `1N2H3P` to
/// `baseline` on the mix `beside`, at a scale of the reproduction. The workloads run one after the
/// other, `Load` first.
pub fn ratios(
    mix: &str,
    beside: &str,
    baseline: Policy,
    policies: &[Policy],
    workloads: &[Workload],
    scale: &Scale,
) -> anyhow::Result<Vec<Ratio>> {
    let (question, base) = (of_mix(mix, scale)?, of_mix(beside, scale)?);
    let mut all = vec![(&base, baseline)];
    all.extend(policies.iter().map(|policy| (&question, *policy)));
    let predictions = super::each(&all, |(question, policy)| predict::predict(question, *policy, workloads))?;
    let (base, others) = predictions.split_first().context("the baseline has no prediction")?;
    Ok(others.iter().flat_map(|other| predict::beside(base, other)).collect())
}

fn of_mix(mix: &str, scale: &Scale) -> anyhow::Result<Question> {
    let devices = scaled_devices(mix, scale).map_err(|error| anyhow!(error))?;
    let records = alor::records(mix, scale).map_err(|error| anyhow!(error))?;
    let (capacity, fit) = (alor::capacity_bytes(mix, scale).unwrap_or(0), Fit::shipped());
    let stores = devices
        .iter()
        .enumerate()
        .map(|(id, device)| stores::store(id as u64, device, scale.device_speed, &fit, capacity));
    let stores = stores.collect::<anyhow::Result<Vec<_>>>()?;
    Ok(like_bench(stores, records, scale, Tuning::default().apply_reads, (1, RUNS)).question)
}
