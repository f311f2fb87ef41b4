//! A load that fills stores with data of unequal heat. It inserts every record once, and reads and
//! overwrites the records of some slots again and again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resp::Reply;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use types::{slot_of_key, Draw, SLOT_COUNT};

use crate::ycsb::{key, Inserts, Records};
use client::cluster_client::{ClusterClient, Outcome};

/// Weights of the slots' heat. The slots are in equal bands, like the regions of a new cluster, and
/// neighbouring bands have different weights. Data of the last kind is written only once.
const HEAT: [u64; 4] = [8, 4, 2, 0];
/// Part of the operations that insert, in percent. The others go to existing records: half of them
/// read, half of them overwrite.
const INSERT_PERCENT: u64 = 50;
/// The pause before a refused write is sent again.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of draws to find a record of the wanted heat.
const DRAWS: usize = 64;

/// Counts of operations so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    pub inserted: u64,
    pub updated: u64,
    pub read: u64,
    /// Writes that a store refused for lack of space.
    pub refused: u64,
    /// Operations that no store served in time.
    pub not_done: u64,
    pub unknown: u64,
    /// Other errors of stores, and the text of the last one.
    pub errors: u64,
    pub last_error: Option<String>,
}

impl Written {
    pub fn operations(&self) -> u64 {
        self.inserted + self.updated + self.read
    }
}

/// Threads that fill stores until they are stopped.
pub struct Filling {
    shared: Arc<Shared>,
    threads: JoinSet<()>,
}

struct Shared {
    client: Arc<ClusterClient>,
    records: Records,
    inserts: Inserts,
    bands: u16,
    started: Instant,
    /// Operations per second of all threads together.
    per_second: f64,
    tickets: AtomicU64,
    paused: AtomicBool,
    stop: AtomicBool,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    inserted: AtomicU64,
    updated: AtomicU64,
    read: AtomicU64,
    refused: AtomicU64,
    not_done: AtomicU64,
    unknown: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Insert,
    Update(u64),
    Read(u64),
}

impl Filling {
    /// Starts the threads. `bands` is the number of regions that the cluster was created with. At
    /// most `inserts_per_second` records are inserted, with as many other operations. The limit is
    /// needed because a full store can shed no faster than others take its data.
    pub fn start(
        client: Arc<ClusterClient>,
        threads: usize,
        inserts_per_second: f64,
        bands: u16,
        seed: u64,
    ) -> Filling {
        assert!(
            inserts_per_second.is_finite() && inserts_per_second > 0.0,
            "the number of inserts per second must be positive"
        );
        let shared = Arc::new(Shared {
            client,
            records: Records::new(1, 1024, seed),
            inserts: Inserts::new(0, u64::MAX),
            bands: bands.max(1),
            started: Instant::now(),
            per_second: inserts_per_second * 100.0 / INSERT_PERCENT as f64,
            tickets: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            counts: Counts::default(),
        });
        let mut running = JoinSet::new();
        for number in 0..threads as u64 {
            let draw = Draw::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
            running.spawn(drive(shared.clone(), draw));
        }
        Filling { shared, threads: running }
    }

    pub fn written(&self) -> Written {
        let counts = &self.shared.counts;
        let get = |count: &AtomicU64| count.load(Relaxed);
        Written {
            inserted: get(&counts.inserted),
            updated: get(&counts.updated),
            read: get(&counts.read),
            refused: get(&counts.refused),
            not_done: get(&counts.not_done),
            unknown: get(&counts.unknown),
            errors: get(&counts.errors),
            last_error: counts.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone(),
        }
    }

    /// Pauses or resumes insertion. Inserts in flight are completed, and existing records are read
    /// and written as before.
    pub fn pause_inserts(&self, paused: bool) {
        self.shared.paused.store(paused, Relaxed);
    }

    /// Stops the threads and waits for operations in flight.
    pub async fn stop(mut self) -> anyhow::Result<Written> {
        self.shared.stop.store(true, Relaxed);
        while let Some(ended) = self.threads.join_next().await {
            ended?;
        }
        Ok(self.written())
    }
}

/// Returns a record's heat class, from 0 to 3. Class 0 is the hottest.
fn heat_class(record: u64, bands: u16) -> usize {
    let slot = usize::from(slot_of_key(key(record).as_bytes()));
    slot * usize::from(bands) / usize::from(SLOT_COUNT) % HEAT.len()
}

/// Chooses the next operation, given the number of existing records.
fn choose(draw: &mut Draw, records: u64, bands: u16) -> Step {
    if records == 0 || draw.below(100) < INSERT_PERCENT {
        return Step::Insert;
    }
    let mut weight = draw.below(HEAT.iter().sum());
    let class = HEAT.iter().position(|of_class| match weight.checked_sub(*of_class) {
        Some(left) => {
            weight = left;
            false
        }
        None => true,
    });
    let hit =
        (0..DRAWS).map(|_| draw.below(records)).find(|record| Some(heat_class(*record, bands)) == class);
    match hit {
        Some(record) if draw.below(2) == 0 => Step::Update(record),
        Some(record) => Step::Read(record),
        None => Step::Insert,
    }
}

async fn drive(shared: Arc<Shared>, mut draw: Draw) {
    let mut insert_took = Duration::ZERO;
    while !shared.stop.load(Relaxed) {
        let counts = &shared.counts;
        let due = shared.tickets.fetch_add(1, Relaxed) as f64 / shared.per_second;
        tokio::time::sleep_until((shared.started + Duration::from_secs_f64(due)).into()).await;
        match choose(&mut draw, shared.inserts.records(), shared.bands) {
            // The turn passes and takes as long as an insert, so that other operations do not
            // become more frequent.
            Step::Insert if shared.paused.load(Relaxed) => tokio::time::sleep(insert_took).await,
            Step::Insert => {
                let Some(record) = shared.inserts.take() else { return };
                let call = shared.records.insert(record, &mut draw);
                let began = tokio::time::Instant::now();
                // An insert may be repeated, because the repetition writes the same record.
                while !shared.stop.load(Relaxed) {
                    if counts.note(shared.client.call(&call).await, &counts.inserted) {
                        shared.inserts.acknowledge(record);
                        break;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                insert_took = began.elapsed();
            }
            Step::Update(record) => {
                let call = shared.records.update(record, &mut draw);
                if !counts.note(shared.client.call(&call).await, &counts.updated) {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            Step::Read(record) => {
                counts.note(shared.client.call(&shared.records.read(record)).await, &counts.read);
            }
        }
    }
}

impl Counts {
    /// Counts an outcome. Returns true if the operation was acknowledged.
    fn note(&self, outcome: Outcome, done: &AtomicU64) -> bool {
        let acknowledged = outcome.acknowledged();
        let count = match &outcome {
            Outcome::Done(Reply::Error(text)) if text.starts_with("MISCONF") => &self.refused,
            Outcome::Done(Reply::Error(text)) => {
                let mut last = self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                *last = Some(text.to_string());
                &self.errors
            }
            Outcome::Done(_) => done,
            Outcome::NotDone(_) => &self.not_done,
            Outcome::Unknown(_) => &self.unknown,
        };
        count.fetch_add(1, Relaxed);
        acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::cluster_client::Patience;
    use client::scripted::{scripted, slots};

    #[test]
    fn hot_slots_are_asked_for_by_their_weight_and_cold_ones_never() {
        let mut draw = Draw::new(7);
        let (mut inserts, mut classes) = (0, [0u64; 4]);
        for _ in 0..20_000 {
            match choose(&mut draw, 10_000, 24) {
                Step::Insert => inserts += 1,
                Step::Update(record) | Step::Read(record) => classes[heat_class(record, 24)] += 1,
            }
        }
        assert!((9_500..10_500).contains(&inserts), "{inserts}");
        assert_eq!(classes[3], 0);
        let ratio = classes[0] as f64 / classes[2] as f64;
        assert!((3.2..4.8).contains(&ratio), "{classes:?}");
        assert_eq!(choose(&mut draw, 0, 24), Step::Insert, "there is nothing to read yet");
    }

    #[test]
    fn neighbouring_bands_differ_in_heat() {
        let bands = 8;
        let class_of_slot = |slot: usize| slot * bands / usize::from(SLOT_COUNT) % HEAT.len();
        let edge = usize::from(SLOT_COUNT) / bands;
        assert_eq!([0, edge - 1, edge, 4 * edge].map(class_of_slot), [0, 0, 1, 0]);
    }

    /// Returns a client of one store that answers everything.
    async fn of_one_store() -> Arc<ClusterClient> {
        let address = Arc::new(std::sync::OnceLock::new());
        let own = address.clone();
        let store = scripted(move |request| {
            Some(match request.split(' ').next() {
                Some("CLUSTER") => slots(*own.get().expect("asked after it was told")),
                Some("SET") => "+OK\r\n".into(),
                _ => "$1\r\nx\r\n".into(),
            })
        })
        .await;
        address.set(store).unwrap();
        Arc::new(ClusterClient::new(vec![store], Patience::default()))
    }

    #[tokio::test]
    async fn a_filling_is_as_fast_as_it_was_told_and_no_faster() {
        let filling = Filling::start(of_one_store().await, 4, 50.0, 24, 1);
        while filling.written().operations() < 20 {
            tokio::task::yield_now().await;
        }
        let (seconds, written) = (filling.shared.started.elapsed().as_secs_f64(), filling.written());
        // The last operation was not due before this. A busy machine cannot break the bound.
        assert!(written.operations() as f64 <= 100.0 * seconds + 1.0, "{seconds} s: {written:?}");
    }

    async fn until(filling: &Filling, enough: impl Fn(&Written) -> bool) {
        while !enough(&filling.written()) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn while_insertion_pauses_records_are_read_and_written_and_none_is_added() {
        let filling = Filling::start(of_one_store().await, 1, 10_000.0, 24, 1);
        until(&filling, |now| now.read > 0 && now.updated > 0).await;
        filling.pause_inserts(true);
        let before = filling.written();
        until(&filling, |now| now.read > before.read + 9 && now.updated > before.updated + 9).await;
        let paused = filling.written();
        assert!(paused.inserted <= before.inserted + 1, "but for one under way: {before:?} {paused:?}");
        filling.pause_inserts(false);
        until(&filling, |now| now.inserted > paused.inserted + 9).await;
    }

    #[tokio::test]
    async fn refusals_are_counted_and_refused_inserts_are_tried_again() {
        let address = Arc::new(std::sync::OnceLock::new());
        let (own, sets) = (address.clone(), AtomicU64::new(0));
        let store = scripted(move |request| {
            Some(match request.split(' ').next() {
                Some("CLUSTER") => slots(*own.get().expect("asked after it was told")),
                Some("SET") if sets.fetch_add(1, Relaxed) < 2 => "-MISCONF the device is full\r\n".into(),
                Some("SET") => "+OK\r\n".into(),
                _ => "$1\r\nx\r\n".into(),
            })
        })
        .await;
        address.set(store).unwrap();
        let client = Arc::new(ClusterClient::new(vec![store], Patience::default()));
        let filling = Filling::start(client, 1, 10_000.0, 24, 1);
        while filling.written().read == 0 {
            tokio::task::yield_now().await;
        }
        let written = filling.stop().await.unwrap();
        assert_eq!((written.refused, written.errors), (2, 0));
        assert!(written.inserted > 0 && written.operations() > written.inserted);
    }
}
