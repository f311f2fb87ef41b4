//! Tests against a store in this process that keeps strings in a map.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::*;
use client::cluster_client::Patience;
use client::scripted::{scripted, slots};

/// Starts a store that answers GET, MGET and SET. `before` may answer a request first.
async fn store(before: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let rows: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let own: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
    let known = own.clone();
    let address = scripted(move |words| {
        if let Some(answer) = before(words) {
            return Some(answer);
        }
        let mut parts = words.splitn(3, ' ');
        let (name, key) = (parts.next()?, parts.next()?.to_owned());
        let mut rows = lock(&rows);
        let bulk = |length: &usize| format!("${length}\r\n{}\r\n", "x".repeat(*length));
        let get = |rows: &BTreeMap<String, usize>, key: &str| rows.get(key).map_or("$-1\r\n".into(), bulk);
        Some(match name {
            "MGET" => {
                let keys: Vec<&str> = words.split(' ').skip(1).collect();
                let found = keys.iter().map(|key| get(&rows, key)).collect::<String>();
                format!("*{}\r\n{found}", keys.len())
            }
            "CLUSTER" => slots(lock(&known).expect("the address is known before the first request")),
            "SET" => {
                rows.insert(key, parts.next()?.len());
                "+OK\r\n".into()
            }
            _ => get(&rows, &key),
        })
    })
    .await;
    *lock(&own) = Some(address);
    address
}

fn client(address: SocketAddr) -> Arc<ClusterClient> {
    let ms = Duration::from_millis;
    let patience = Patience { connect: ms(1000), reply: ms(5000), whole: ms(200) };
    Arc::new(ClusterClient::new(vec![address], patience))
}

fn settings(workload: Workload) -> Settings {
    Settings { operations: 300, threads: 4, field_bytes: 32, ..Settings::new(workload, 100) }
}

#[tokio::test]
async fn every_record_is_loaded_once_and_then_found() {
    let client = client(store(|_| None).await);
    let loaded = run(client.clone(), settings(Workload::Load), |_| {}).await.unwrap();
    assert_eq!((loaded.operations, loaded.missing, loaded.cut_short), (100, 0, false));
    assert_eq!(loaded.kinds.keys().collect::<Vec<_>>(), [&Kind::Insert]);
    for workload in [Workload::A, Workload::C, Workload::F] {
        let ran = run(client.clone(), settings(workload), |_| {}).await.unwrap();
        assert_eq!((ran.operations, ran.missing), (300, 0), "{workload:?}");
        assert_eq!(ran.kinds.values().map(|latency| latency.count).sum::<u64>(), 300);
        assert_eq!(ran.series.iter().map(|second| second.operations).sum::<u64>(), 300);
    }
    let grown = run(client.clone(), settings(Workload::D), |_| {}).await.unwrap();
    assert!(grown.kinds[&Kind::Insert].count > 0 && grown.missing == 0, "{grown:?}");
}

#[tokio::test]
async fn ranges_find_every_record_however_records_are_grouped() {
    for group in [1, 7, 1000] {
        let client = client(store(|_| None).await);
        let grouped = |workload| Settings { group, ..settings(workload) };
        run(client.clone(), grouped(Workload::Load), |_| {}).await.unwrap();
        let ran = run(client.clone(), grouped(Workload::E), |_| {}).await.unwrap();
        assert_eq!((ran.operations, ran.missing), (300, 0));
        assert!(ran.kinds[&Kind::Scan].count > 250 && ran.kinds[&Kind::Insert].count > 0, "{ran:?}");
        assert!(run(client, Settings { pipeline: 2, ..grouped(Workload::E) }, |_| {}).await.is_err());
    }
}

/// Each range that reaches beyond the last record counts as one operation with a missing record.
#[tokio::test]
async fn a_range_that_lacks_a_record_says_so() {
    let client = client(store(|_| None).await);
    let grouped = |workload, records| Settings { group: 10, records, ..settings(workload) };
    run(client.clone(), grouped(Workload::Load, 95), |_| {}).await.unwrap();
    let ran = run(client, grouped(Workload::E, 100), |_| {}).await.unwrap();
    assert!(ran.missing > 0 && ran.missing < ran.operations, "{ran:?}");
}

#[test]
fn a_range_is_as_good_as_its_worst_part() {
    let found = Outcome::Done(Reply::Array(vec![Reply::Bulk("x".into())]));
    let missing = Outcome::Done(Reply::Nil);
    let unknown = Outcome::Unknown("no reply in time".into());
    let error = Outcome::Done(Reply::Error("ERR no".into()));
    let mut parts = vec![found.clone(), found.clone()];
    for worse in [missing, unknown, error] {
        parts.insert(1, worse.clone());
        assert_eq!(whole(parts.clone()), worse);
    }
    assert_eq!(whole(vec![found.clone()]), found);
    assert!(is_missing(&whole(Vec::new())));
}

#[tokio::test]
async fn pipelines_carry_the_same_operations() {
    let client = client(store(|_| None).await);
    let piped = |workload| Settings { pipeline: 8, ..settings(workload) };
    assert_eq!(run(client.clone(), piped(Workload::Load), |_| {}).await.unwrap().operations, 100);
    let ran = run(client.clone(), piped(Workload::A), |_| {}).await.unwrap();
    assert_eq!((ran.operations, ran.missing), (300, 0));
    assert!(run(client, piped(Workload::F), |_| {}).await.is_err());
}

#[tokio::test]
async fn records_that_are_not_there_are_counted() {
    let client = client(store(|_| None).await);
    let ran = run(client, settings(Workload::C), |_| {}).await.unwrap();
    assert_eq!((ran.operations, ran.missing), (300, 300));
    assert_eq!(ran.faults().len(), 1);
}

/// One thread at 100 operations per second stalls once for a quarter of a second. The operations
/// that were due meanwhile include the wait in their latencies, although each was answered at once
/// when it was sent.
#[tokio::test]
async fn a_stall_is_charged_to_the_operations_that_were_due() {
    let stalls = AtomicU64::new(0);
    let client = client(
        store(move |words| {
            if words.starts_with("GET") && stalls.fetch_add(1, Ordering::Relaxed) == 5 {
                std::thread::sleep(Duration::from_millis(250));
            }
            None
        })
        .await,
    );
    run(client.clone(), settings(Workload::Load), |_| {}).await.unwrap();
    let paced = Settings { operations: 50, threads: 1, target_per_s: Some(100.0), ..settings(Workload::C) };
    let ran = run(client, paced, |_| {}).await.unwrap();
    let service = ran.service.unwrap();
    assert_eq!(ran.operations, 50);
    // At least the operation that stalled and the twenty or so that were due behind it.
    assert!(ran.latency.mean_us > 2.0 * service.mean_us, "{:?} {service:?}", ran.latency);
    assert!(ran.latency.p50_us > service.p50_us);
}

#[tokio::test]
async fn an_error_of_the_store_ends_the_run() {
    let client = client(store(|words| words.starts_with("GET").then(|| "-WRONGTYPE no\r\n".into())).await);
    run(client.clone(), settings(Workload::Load), |_| {}).await.unwrap();
    let error = run(client, settings(Workload::C), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn refused_operations_are_counted_and_not_timed() {
    let client = client(store(|words| words.starts_with("GET").then(|| "-CLUSTERDOWN no\r\n".into())).await);
    run(client.clone(), settings(Workload::Load), |_| {}).await.unwrap();
    let few = Settings { operations: 3, threads: 3, ..settings(Workload::C) };
    let ran = run(client, few, |_| {}).await.unwrap();
    assert_eq!((ran.operations, ran.not_done, ran.cut_short), (0, 3, false));
}

/// Two threads whose reads end only after the run's time is over. They count as latencies and not
/// as throughput.
#[tokio::test]
async fn operations_that_outlast_the_run_are_latencies_and_no_throughput() {
    let client = client(
        store(|words| {
            if words.starts_with("GET") {
                std::thread::sleep(Duration::from_millis(600));
            }
            None
        })
        .await,
    );
    run(client.clone(), settings(Workload::Load), |_| {}).await.unwrap();
    let at_most = Some(Duration::from_millis(500));
    let ran = run(client, Settings { at_most, threads: 2, ..settings(Workload::C) }, |_| {}).await.unwrap();
    assert!(ran.cut_short && ran.operations == 0, "{ran:?}");
    assert!(ran.latency.count > 0 && ran.latency.max_us >= 500_000, "{:?}", ran.latency);
}
